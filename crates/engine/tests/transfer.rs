//! Streams between two endpoints over every kind of path: what is read is what was written.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod pair;

use core::time::Duration;

use farhaul_base::Rng;
use farhaul_engine::{CloseReason, Config, Origins};
use farhaul_link::{Blackout, LinkConfig};
use farhaul_wire::{AckSeq, Seq};
use pair::{A, B, Flow, Net, data, path, stream};

/// Moves `bytes` from A to B within `limit` seconds and closes; what was read was checked on the way.
fn transfer(net: &mut Net, a: Config, b: Config, bytes: usize, limit: u64) -> Flow {
    let ids = net.connect(a, b);
    let mut flow = Flow::new(A, ids, data(9, bytes));
    let done = net.run_until(Duration::from_secs(limit), |net| flow.pump(net));
    assert!(done, "{} of {bytes} bytes in {limit} s; {:#?}", flow.read, net.stats(A, ids.0));
    flow
}

fn lossy(percent: &str) -> LinkConfig {
    LinkConfig { loss: percent.parse().unwrap(), ..path() }
}

/// A hundred thousand bytes each way at the same time.
fn both_ways(net: &mut Net, config: Config, bytes: usize, limit: u64) {
    let ids = net.connect(config.clone(), config);
    let mut there = Flow::new(A, ids, data(1, bytes));
    let mut back = Flow::new(B, ids, data(2, bytes));
    let done = net.run_until(Duration::from_secs(limit), |net| there.pump(net) & back.pump(net));
    assert!(done, "{} and {} of {bytes} bytes", there.read, back.read);
}

#[test]
fn a_clean_path() {
    for seed in 0..2 {
        let mut net = Net::new(&path(), seed);
        let flow = transfer(&mut net, stream(), stream(), 4 << 20, 2);
        let stats = net.stats(A, flow.ids[A]);
        let counters = stats.total.counters;
        assert_eq!(counters.timeouts, 0, "{counters:#?}");
        assert_eq!(net.stats(B, flow.ids[B]).total.counters.out_of_window, 0);
        assert!(stats.instant.rtt < Duration::from_millis(60), "{stats:#?}");
    }
}

/// The same happens whether headers come with their payload or apart from it.
#[test]
fn headers_apart_from_their_payload() {
    let path =
        LinkConfig { loss: "1%".parse().unwrap(), duplicate: "1%".parse().unwrap(), ..path() };
    let [whole, apart] = [false, true].map(|apart| {
        let mut net = Net::new(&path, 1);
        net.apart = apart;
        let flow = transfer(&mut net, stream(), stream(), 1 << 20, 20);
        [A, B].map(|side| net.stats(side, flow.ids[side]).total.counters)
    });
    assert_eq!(whole, apart);
}

/// The peer tells of a loss again when a round trip and a SYN interval have passed, which is when
/// what was sent again after the law's pause of a SYN comes: one retransmission is enough.
#[test]
fn a_report_that_crosses_a_retransmission_is_no_second_loss() {
    let lossy = lossy("2%");
    let (mut lost, mut twice) = (0, 0);
    for seed in 0..6 {
        let mut net = Net::asymmetric(lossy.clone(), path(), seed);
        // A steady rate, so that nothing waits and the round trip is the same throughout.
        let config = Config { max_bandwidth: Some(20_000_000), ..stream() };
        let flow = transfer(&mut net, config, stream(), 4 << 20, 30);
        lost += net.links[A].stats().dropped_loss;
        twice += net.stats(B, flow.ids[B]).total.counters.duplicates;
    }
    assert!(30 * twice < lost, "{twice} of {lost}");
}

#[test]
fn random_loss_in_both_directions() {
    let cases = [("0.1%", 4 << 20, 10), ("1%", 1 << 20, 10), ("5%", 500_000, 60)];
    let hard = [("10%", 300_000, 120), ("20%", 200_000, 300), ("30%", 100_000, 300)];
    for (loss, bytes, limit) in cases.into_iter().chain(hard) {
        for seed in 0..2 {
            let mut net = Net::new(&lossy(loss), seed);
            transfer(&mut net, stream(), stream(), bytes, limit);
        }
    }
}

#[test]
fn loss_in_bursts() {
    let mut net = Net::new(&lossy("ge:loss=2%,burst=20"), 3);
    transfer(&mut net, stream(), stream(), 2 << 20, 60);
}

/// A retransmission that is lost as well is sent again, without waiting for a time-out.
#[test]
fn lost_retransmissions_are_reported_again() {
    // Packet numbers on the wire: some data, then all that is sent again for a while.
    let link = LinkConfig { loss: "list:200-204,300-340".parse().unwrap(), ..path() };
    let mut net = Net::asymmetric(link, path(), 1);
    let flow = transfer(&mut net, stream(), stream(), 2 << 20, 5);
    let sent = net.stats(A, flow.ids[A]).total.counters;
    assert!(sent.naks_received >= 2, "{sent:#?}");
    assert_eq!(sent.timeouts, 0, "{sent:#?}");
}

#[test]
fn acknowledgements_lost() {
    for loss in ["30%", "60%", "every:2"] {
        let mut net = Net::asymmetric(path(), lossy(loss), 4);
        transfer(&mut net, stream(), stream(), 1 << 20, 30);
    }
}

#[test]
fn packets_out_of_order() {
    for (seed, reorder) in [(0, "20%:3ms"), (1, "30%:5"), (2, "5%:40/100ms"), (3, "100%:1ms")] {
        let link = LinkConfig { reorder: Some(reorder.parse().unwrap()), ..path() };
        let mut net = Net::new(&link, seed);
        transfer(&mut net, stream(), stream(), 1 << 20, 30);
    }
}

#[test]
fn jitter_larger_than_the_spacing() {
    let link = LinkConfig { jitter: "5ms:reorder".parse().unwrap(), ..path() };
    for seed in 0..2 {
        transfer(&mut Net::new(&link, seed), stream(), stream(), 1 << 20, 30);
    }
}

#[test]
fn packets_twice() {
    let link = LinkConfig { duplicate: "50%".parse().unwrap(), ..path() };
    for seed in 0..2 {
        let mut net = Net::new(&link, seed);
        let flow = transfer(&mut net, stream(), stream(), 1 << 20, 5);
        assert!(net.stats(B, flow.ids[B]).total.counters.duplicates > 100);
        assert_eq!(net.stats(A, flow.ids[A]).total.counters.packets_retransmitted, 0);
    }
}

#[test]
fn everything_at_once() {
    let link = LinkConfig {
        loss: "2%".parse().unwrap(),
        reorder: Some("10%:2ms".parse().unwrap()),
        duplicate: "10%".parse().unwrap(),
        jitter: "1ms".parse().unwrap(),
        blackouts: vec!["1s+200ms/2s".parse::<Blackout>().unwrap()],
        ..path()
    };
    for seed in 0..4 {
        both_ways(&mut Net::new(&link, seed), stream(), 300_000, 120);
    }
}

#[test]
fn both_directions_at_once() {
    both_ways(&mut Net::new(&path(), 1), stream(), 2 << 20, 3);
    both_ways(&mut Net::new(&lossy("1%"), 2), stream(), 500_000, 20);
}

/// Receivers that look for packets now and then get them in batches.
#[test]
fn hosts_that_are_slow_to_look() {
    for (seed, us) in [(0, 200), (2, 1_000), (4, 5_000), (6, 20_000)] {
        let mut net = Net::new(&path(), seed);
        net.interval = Duration::from_micros(us);
        transfer(&mut net, stream(), stream(), 4 << 20, 4);
    }
}

#[test]
fn small_and_odd_writes() {
    let mut rng = Rng::new(5);
    let mut net = Net::new(&lossy("1%"), 5);
    let ids = net.connect(stream(), stream());
    let mut flow = Flow::new(A, ids, data(3, 150_000));
    while flow.written < flow.data.len() {
        let end = (flow.written + 1 + rng.below(3_000) as usize).min(flow.data.len());
        let piece = flow.data.slice(flow.written..end);
        net.update(A, ids.0, |c| c.send_bytes(piece)).unwrap();
        flow.written = end;
        net.run_for(Duration::from_micros(rng.below(2_000)));
        flow.drain(&mut net);
    }
    assert!(net.run_until(Duration::from_secs(20), |net| flow.drain(net)));
}

/// Written a byte at a time, data leaves at once while the path is free and in full packets when
/// it is not.
#[test]
fn single_bytes_are_gathered_into_packets() {
    let mut net = Net::new(&path(), 1);
    let ids = net.connect(stream(), stream());
    let mut flow = Flow::new(A, ids, data(3, 20_000));
    flow.piece = 1;
    assert!(net.run_until(Duration::from_secs(5), |net| flow.pump(net)));
    let sent = net.stats(A, ids.0).total.counters.packets_sent;
    assert!(sent <= 20, "{sent} packets for 20,000 bytes");
}

/// An empty write sends nothing and breaks nothing.
#[test]
fn empty_writes() {
    let mut net = Net::new(&path(), 1);
    let ids = net.connect(stream(), stream());
    let before = net.datagrams;
    net.update(A, ids.0, |c| c.send_bytes(bytes::Bytes::new())).unwrap();
    net.run_for(Duration::from_millis(100));
    assert_eq!(net.datagrams, before);
    let mut flow = Flow::new(A, ids, data(3, 5_000));
    assert!(net.run_until(Duration::from_secs(1), |net| flow.pump(net)));
}

/// Reading a bounded amount takes whole packets and leaves the rest; pieces come by reference.
#[test]
fn bounded_reads_by_reference() {
    let mut net = Net::new(&path(), 0);
    let ids = net.connect(stream(), stream());
    let mut flow = Flow::new(A, ids, data(3, 50_000));
    assert!(!flow.pump(&mut net));
    net.run_for(Duration::from_secs(1));
    let mut chunks = farhaul_engine::Chunks::default();
    let mut got = Vec::new();
    while net.hosts[B].endpoint.connection(ids.1).unwrap().readable() {
        net.update(B, ids.1, |c| c.read(2_000, &mut chunks));
        assert!(
            (2_000..2_000 + 1_456).contains(&chunks.len()) || got.len() + chunks.len() == 50_000
        );
        while let Some(piece) = chunks.pop() {
            assert!(!piece.is_empty() && piece.len() <= 1_456);
            got.extend_from_slice(&piece);
        }
    }
    assert_eq!(got, &flow.data[..]);
    assert_eq!(net.stats(B, ids.1).instant.receive_memory, 0);
}

/// Every counter starts a few packets before its wrap.
#[test]
fn counters_wrap() {
    let origins = Origins {
        isn: Some(Seq::new(Seq::MAX - 20)),
        timestamp: u32::MAX - 100_000,
        message: 0x1fff_fff0,
        ack: Some(AckSeq::new(Seq::MAX - 2)),
    };
    let config = Config { origins, ..stream() };
    for (seed, link) in [(0, path()), (1, lossy("5%")), (2, lossy("5%"))] {
        let mut net = Net::new(&link, seed);
        both_ways(&mut net, config.clone(), 400_000, 60);
    }
    // The wrap among the losses themselves.
    for start in 0..6u32 {
        let isn = Some(Seq::new(Seq::MAX).minus(start));
        let config = Config { origins: Origins { isn, ..origins }, ..stream() };
        let link = LinkConfig { loss: "list:4-8,11,13".parse().unwrap(), ..path() };
        let mut net = Net::asymmetric(link, path(), u64::from(start));
        transfer(&mut net, config.clone(), config, 100_000, 10);
    }
}

#[test]
fn large_and_unequal_packets() {
    for (seed, (a, b)) in
        [(9_000, 9_000), (1_500, 9_000), (9_000, 1_400), (65_535, 65_535), (96, 200)]
            .into_iter()
            .enumerate()
    {
        let mut net = Net::new(&lossy("0.5%"), seed as u64);
        let bytes = if a == 96 { 50_000 } else { 1 << 20 };
        let configs = [a, b].map(|mss| Config { mss, ..stream() });
        let [a_config, b_config] = configs;
        let flow = transfer(&mut net, a_config, b_config, bytes, 120);
        for side in [A, B] {
            let connection = net.hosts[side].endpoint.connection(flow.ids[side]).unwrap();
            assert_eq!(connection.payload_size(), a.min(b) as usize - 44);
        }
    }
}

/// Over IPv6 a full packet still fits the MTU, its longer header included.
#[test]
fn over_ipv6() {
    let mut net = Net::new(&lossy("1%"), 3).with_addresses("[2001:db8::1]:1", "[2001:db8::2]:2");
    net.hosts[A].log = Some(Vec::new());
    let flow = transfer(&mut net, stream(), stream(), 500_000, 20);
    let longest = net.hosts[A].log.take().unwrap().iter().map(Vec::len).max();
    assert_eq!(longest, Some(1_500 - 48));
    assert_eq!(net.update(B, flow.ids[B], |c| c.payload_size()), 1_436);
}

#[test]
fn asymmetric_paths() {
    let thin = LinkConfig { rate: Some("1M".parse().unwrap()), ..path() };
    let long = LinkConfig { delay: Duration::from_millis(200), ..path() };
    for (seed, (ab, ba)) in
        [(path(), thin.clone()), (long.clone(), path()), (thin, long)].into_iter().enumerate()
    {
        let mut net = Net::asymmetric(ab, ba, seed as u64);
        transfer(&mut net, stream(), stream(), 600_000, 30);
    }
}

#[test]
fn one_packet_a_call() {
    let config = Config { max_segments: 1, ..stream() };
    transfer(&mut Net::new(&lossy("1%"), 2), config.clone(), config, 500_000, 20);
}

/// The path is as fast as the hosts: everything happens at one instant.
#[test]
fn no_delay_and_no_rate() {
    for seed in 0..2 {
        let mut net = Net::new(&LinkConfig::default(), seed);
        transfer(&mut net, stream(), stream(), 4 << 20, 1);
    }
}

#[test]
fn the_maximum_bandwidth_is_kept() {
    let config = Config { max_bandwidth: Some(10_000_000), ..stream() };
    let mut net = Net::new(&path(), 1);
    let begun = net.now;
    let flow = transfer(&mut net, config, stream(), 2 << 20, 3);
    let seconds = (net.now - begun).as_secs_f64();
    let rate = (flow.read as f64 / 1_456.0 * 1_500.0) * 8.0 / seconds;
    assert!((9.0e6..10.1e6).contains(&rate), "{rate}");
}

/// Estimates and timers that have aged do not keep a connection from going on.
#[test]
fn an_hour_of_silence_between_two_transfers() {
    let mut net = Net::new(&path(), 1);
    let ids = net.connect(stream(), stream());
    for round in 0..2 {
        let mut flow = Flow::new(A, ids, data(round, 1 << 20));
        assert!(net.run_until(Duration::from_secs(2), |net| flow.pump(net)), "round {round}");
        net.run_for(Duration::from_secs(3_600));
    }
    assert_eq!(net.update(A, ids.0, |c| c.close_reason()), None);
}

/// The stream ends as it should: the reader has everything, and each side knows who closed.
#[test]
fn closing_after_a_transfer() {
    let mut net = Net::new(&lossy("5%"), 8);
    let flow = transfer(&mut net, stream(), stream(), 200_000, 30);
    let now = net.now;
    net.update(A, flow.ids[A], |c| c.close(now));
    net.run_for(Duration::from_secs(5));
    assert_eq!(net.update(A, flow.ids[A], |c| c.close_reason()), Some(CloseReason::Local));
    assert_eq!(net.update(B, flow.ids[B], |c| c.close_reason()), Some(CloseReason::Peer));
}
