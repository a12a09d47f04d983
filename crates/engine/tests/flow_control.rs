//! A reader that is slower than the path: the sender waits, memory stays within its bound, nothing
//! is lost, and the flow goes on at once when there is room again.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod pair;

use core::time::Duration;

use farhaul_engine::{Chunks, Config, SendError};
use farhaul_link::LinkConfig;
use pair::{A, B, Flow, Net, data, path, stream};

const RECEIVE_MEMORY: usize = 256 << 10;

fn small() -> Config {
    Config { receive_memory: RECEIVE_MEMORY, ..stream() }
}

/// Data stored, and the memory held for it, of which the buffers held in part are a share.
fn check_memory(net: &mut Net, flow: &Flow) {
    let instant = net.stats(B, flow.ids[B]).instant;
    assert!(instant.receive_buffer.0 <= RECEIVE_MEMORY / 2, "{instant:?}");
    assert!(instant.receive_memory <= RECEIVE_MEMORY + (1 << 20), "{instant:?}");
    // The sender's buffer follows its windows, which have been open wider.
    let instant = net.stats(A, flow.ids[A]).instant;
    assert!(instant.send_buffer.0 <= (3 << 19) + flow.piece, "{instant:?}");
}

#[test]
fn a_reader_that_takes_a_little_at_a_time() {
    for seed in 0..2 {
        let mut net = Net::new(&path(), seed);
        let ids = net.connect(stream(), small());
        let mut flow = Flow::new(A, ids, data(4, 2 << 20));
        let mut chunks = Chunks::default();
        let mut out = Vec::new();
        // A megabyte a second over a path that carries twelve.
        while out.len() < flow.data.len() {
            while flow.written < flow.data.len() {
                let end = (flow.written + flow.piece).min(flow.data.len());
                let piece = flow.data.slice(flow.written..end);
                if net.update(A, ids.0, |c| c.send_bytes(piece)).is_err() {
                    break;
                }
                flow.written = end;
            }
            net.run_for(Duration::from_millis(10));
            check_memory(&mut net, &flow);
            net.update(B, ids.1, |c| c.read(10_000, &mut chunks));
            let mut piece = vec![0; chunks.len()];
            chunks.copy_to(&mut piece);
            out.extend_from_slice(&piece);
            assert!(net.now.as_secs_f64() < 3.0, "{} bytes", out.len());
        }
        assert_eq!(out, &flow.data[..]);
    }
}

/// Nothing is read for a minute; then all of it, and the sender is not left waiting for a timer.
#[test]
fn a_reader_that_stops_and_goes_on() {
    for (seed, loss) in [(0, "none"), (1, "none"), (2, "10%"), (3, "10%")] {
        let link = LinkConfig { loss: loss.parse().unwrap(), ..path() };
        let mut net = Net::new(&link, seed);
        let ids = net.connect(stream(), small());
        let mut flow = Flow::new(A, ids, data(4, 800_000));
        for _ in 0..60 {
            while flow.written < flow.data.len() {
                let end = (flow.written + flow.piece).min(flow.data.len());
                let piece = flow.data.slice(flow.written..end);
                if net.update(A, ids.0, |c| c.send_bytes(piece)).is_err() {
                    break;
                }
                flow.written = end;
            }
            net.run_for(Duration::from_secs(1));
            check_memory(&mut net, &flow);
        }
        let sent = net.stats(A, ids.0).total.counters.packets_sent;
        let limit = if loss == "none" { 2 } else { 60 };
        let opened = net.now;
        flow.drain(&mut net);
        assert!(flow.read > 100_000, "the buffer was filled: {}", flow.read);
        let read = flow.read;
        let moves = net.run_until(Duration::from_millis(1_200), |net| {
            flow.pump(net);
            flow.read > read
        });
        assert!(moves, "no data {:?} after the window opened", net.now - opened);
        assert!(net.run_until(Duration::from_secs(limit), |net| flow.pump(net)), "{}", flow.read);
        // While the window is shut, it is probed about once a second, and not flooded.
        assert!(sent < 600, "{sent} packets");
    }
}

/// The window opens with an ACK that is lost: probes find out.
#[test]
fn the_ack_that_opens_the_window_is_lost() {
    let mut net = Net::new(&path(), 1);
    let ids = net.connect(stream(), small());
    let mut flow = Flow::new(A, ids, data(4, 400_000));
    flow.pump(&mut net);
    net.run_for(Duration::from_secs(1));
    while flow.written < flow.data.len() {
        let end = (flow.written + flow.piece).min(flow.data.len());
        let piece = flow.data.slice(flow.written..end);
        net.update(A, ids.0, |c| c.send_bytes(piece)).unwrap();
        flow.written = end;
    }
    net.run_for(Duration::from_secs(5));
    net.hosts[A].deaf = true;
    flow.drain(&mut net);
    net.run_for(Duration::from_millis(30));
    net.hosts[A].deaf = false;
    assert!(net.run_until(Duration::from_secs(3), |net| flow.pump(net)), "{}", flow.read);
}

/// The writer is told when there is room, and only then.
#[test]
fn a_full_send_buffer_refuses_and_tells_when_there_is_room() {
    let mut net = Net::new(&path(), 1);
    let config = Config { send_memory: 64 << 10, ..stream() };
    let ids = net.connect(config, stream());
    net.run_for(Duration::from_millis(50));
    net.hosts[A].events.clear();
    let piece = bytes::Bytes::from(vec![7; 16 << 10]);
    let mut written = 0;
    let refused = loop {
        match net.update(A, ids.0, |c| c.send_bytes(piece.clone())) {
            Ok(()) => written += piece.len(),
            Err(error) => break error,
        }
    };
    assert_eq!(refused, SendError::Full);
    assert_eq!(written, 64 << 10);
    assert!(net.hosts[A].events.iter().all(|(_, e)| !e.writable));
    net.run_for(Duration::from_secs(1));
    assert!(net.hosts[A].events.iter().any(|(_, e)| e.writable));
    assert!(net.hosts[A].events.iter().any(|(_, e)| e.flushed));
    assert!(net.update(A, ids.0, |c| c.send_bytes(piece.clone())).is_ok());
}

/// The writer may be as far ahead as the window that the next ACKs open: with less, slow start on a
/// fast path would wait for the application.
#[test]
fn the_send_buffer_follows_the_windows() {
    let mut net = Net::new(&path(), 1);
    let ids = net.connect(stream(), stream());
    let mut flow = Flow::new(A, ids, data(1, 16 << 20));
    let mut largest = 0;
    let done = net.run_until(Duration::from_secs(5), |net| {
        let done = flow.pump(net);
        let instant = net.stats(A, ids.0).instant;
        let window = instant.congestion_window.min(instant.flow_window) as usize;
        let limit = instant.send_buffer.1;
        assert!(limit >= 2 * window * 1_456, "{instant:#?}");
        largest = largest.max(limit);
        done
    });
    assert!(done);
    assert!(largest < 16 << 20, "and no further: {largest}");
}

#[test]
fn a_stranger_gets_little_memory_until_it_is_welcome() {
    const STRANGER: usize = 128 << 10;
    let mut net = Net::new(&path(), 5);
    let ids = net.connect(stream(), Config { stranger_memory: Some(STRANGER), ..stream() });
    let sent = data(9, 3 << 20);
    net.update(A, ids.0, |c| c.send_bytes(sent.clone().into())).unwrap();
    net.run_for(Duration::from_secs(5));
    let kept = |net: &mut Net| net.stats(B, ids.1).instant.receive_buffer.0;
    assert!((1..=STRANGER / 2).contains(&kept(&mut net)), "{}", kept(&mut net));
    // Without anything being read.
    net.update(B, ids.1, |c| c.welcome());
    net.run_for(Duration::from_secs(5));
    assert_eq!(kept(&mut net), sent.len());
    assert!(net.read(B, ids.1) == sent);
}
