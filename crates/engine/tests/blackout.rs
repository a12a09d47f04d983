//! The path is cut for a while: nothing is lost, and the flow goes on soon after.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod pair;

use core::time::Duration;
use std::collections::BTreeSet;

use farhaul_base::Time;
use farhaul_engine::Config;
use farhaul_link::LinkConfig;
use pair::{A, B, Flow, Net, data, path, stream};

/// When the cuts begin, well after slow start.
const START: u64 = 1_000;

fn cut(length: u64, link: LinkConfig) -> LinkConfig {
    let blackout = format!("{START}ms+{length}ms").parse().unwrap();
    LinkConfig { blackouts: vec![blackout], ..link }
}

/// A transfer over a path with a cut of `length` ms, in the directions that are `cut`. Returns how
/// long after its end data arrived again.
fn recovery(
    cut_ab: bool,
    cut_ba: bool,
    length: u64,
    config: Config,
    net: impl Fn(Net) -> Net,
) -> Duration {
    let link = |is_cut| if is_cut { cut(length, path()) } else { path() };
    let mut net = net(Net::asymmetric(link(cut_ab), link(cut_ba), length));
    let ids = net.connect(config.clone(), config);
    let mut flow = Flow::new(A, ids, data(1, 24 << 20));
    let end = Time::from_millis(START + length);
    net.run_until(end - net.now, |net| flow.pump(net));
    let before = flow.read;
    assert!(before > 4 << 20, "slow start is over: {before}");
    // What comes again at once may be a single packet; a hundred are a flow.
    let again = net.run_until(Duration::from_secs(20), |net| {
        flow.pump(net);
        flow.read > before + 100 * 1_456
    });
    assert!(again, "{length} ms: {:#?}", net.stats(A, ids.0));
    let took = net.now - end;
    let done = net.run_until(Duration::from_secs(60), |net| flow.pump(net));
    assert!(done, "{} bytes; {:#?}", flow.read, net.stats(A, ids.0));
    let speed = (flow.read - before) as f64 * 8.0 / (net.now - end).as_secs_f64();
    assert!(speed > 10e6, "{length} ms: {speed} b/s afterwards");
    took
}

#[test]
fn in_both_directions() {
    for length in [1_000, 3_000, 10_000, 30_000] {
        let took = recovery(true, true, length, stream(), |net| net);
        assert!(took < Duration::from_millis(1_300), "{length} ms: {took:?}");
    }
}

#[test]
fn of_the_data() {
    for length in [100, 1_000, 3_000, 10_000, 30_000] {
        let took = recovery(true, false, length, stream(), |net| net);
        assert!(took < Duration::from_millis(1_300), "{length} ms: {took:?}");
    }
}

#[test]
fn of_the_acknowledgements() {
    for length in [100, 1_000, 3_000, 10_000, 30_000] {
        let took = recovery(false, true, length, stream(), |net| net);
        assert!(took < Duration::from_millis(1_300), "{length} ms: {took:?}");
    }
}

/// The other laws are no worse.
#[test]
fn under_every_law() {
    for law in ["udt4", "udt:noisy"] {
        let config = Config { law: law.parse().unwrap(), ..stream() };
        let took = recovery(true, true, 5_000, config, |net| net);
        assert!(took < Duration::from_millis(1_300), "{law}: {took:?}");
    }
}

/// A receiver that reports each loss once only, as the stock library does: a report that is lost is
/// made up for.
#[test]
fn with_a_receiver_that_does_not_repeat_its_reports() {
    let once = |mut net: Net| {
        net.hosts[B].stock = Some(BTreeSet::new());
        net
    };
    for (cut_ab, cut_ba) in [(true, true), (true, false), (false, true)] {
        for length in [200, 3_000] {
            let took = recovery(cut_ab, cut_ba, length, stream(), once);
            assert!(took < Duration::from_millis(2_500), "{cut_ab} {cut_ba} {length}: {took:?}");
        }
    }
    // Reports and retransmissions lost all the time.
    for (seed, loss) in [(0, "1%"), (1, "5%"), (2, "10%"), (3, "ge:loss=5%,burst=20")] {
        let link = LinkConfig { loss: loss.parse().unwrap(), ..path() };
        let mut net = once(Net::new(&link, seed));
        let ids = net.connect(stream(), stream());
        let mut flow = Flow::new(A, ids, data(1, 300_000));
        let done = net.run_until(Duration::from_secs(60), |net| flow.pump(net));
        assert!(done, "{loss}: {} bytes, {:#?}", flow.read, net.stats(A, ids.0));
    }
}

/// A cut again and again, longer than the round trip and the time between.
#[test]
fn many_times() {
    let link = LinkConfig { blackouts: vec!["500ms+700ms/1s".parse().unwrap()], ..path() };
    for seed in 0..4 {
        let mut net = Net::new(&link, seed);
        let ids = net.connect(stream(), stream());
        let mut there = Flow::new(A, ids, data(1, 2 << 20));
        let mut back = Flow::new(B, ids, data(2, 2 << 20));
        let done = net.run_until(Duration::from_secs(60), |net| there.pump(net) & back.pump(net));
        assert!(done, "{} {}", there.read, back.read);
    }
}

/// An idle connection does not notice.
#[test]
fn while_idle() {
    let mut net = Net::new(&cut(30_000, path()), 1);
    let ids = net.connect(stream(), stream());
    net.run_for(Duration::from_secs(40));
    let mut flow = Flow::new(B, ids, data(1, 100_000));
    assert!(net.run_until(Duration::from_secs(1), |net| flow.pump(net)));
}

/// During a long cut the sender asks about once a second whether the path is back.
#[test]
fn costs_little_meanwhile() {
    let mut net = Net::new(&cut(30_000, path()), 1);
    let ids = net.connect(stream(), stream());
    let mut flow = Flow::new(A, ids, data(1, 24 << 20));
    net.run_until(Duration::from_millis(START + 1_500), |net| flow.pump(net));
    let before = net.datagrams;
    net.run_until(Duration::from_secs(25), |net| flow.pump(net));
    let sent = net.datagrams - before;
    assert!((20..150).contains(&sent), "{sent} in 25 s");
}

/// Each time-out asks with two packets. The window is not taken for free again: what is sent into a cut is lost.
#[test]
fn no_more_than_a_window_is_sent_into_it() {
    let mut net = Net::new(&cut(5_000, path()), 1);
    let ids = net.connect(stream(), stream());
    let mut flow = Flow::new(A, ids, data(1, 24 << 20));
    net.run_until(Duration::from_millis(START + 100), |net| flow.pump(net));
    let before = net.datagrams;
    net.run_until(Duration::from_millis(4_500), |net| flow.pump(net));
    let sent = net.datagrams - before;
    assert!(sent < 30, "{sent}");
}
