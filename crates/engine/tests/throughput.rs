//! What the laws make of a path, over half a minute of virtual time: how much of the line the
//! application gets, with nothing but the defaults.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod pair;

use core::time::Duration;

use farhaul_engine::{Config, Counters};
use farhaul_link::{LinkConfig, LinkStats};
use pair::{A, B, Flood, Net, stream};

/// What came of a run.
#[derive(Debug)]
struct Outcome {
    /// Bytes that the application got, as a share of what the line can carry with all headers.
    share: f64,
    /// The least in any second after the first three, as such a share.
    worst_second: f64,
    sender: Counters,
    receiver: Counters,
    link: LinkStats,
}

fn link(rate: &str, rtt_ms: u64) -> LinkConfig {
    LinkConfig {
        rate: Some(rate.parse().unwrap()),
        delay: Duration::from_millis(rtt_ms) / 2,
        queue: format!("bdp:{rtt_ms}ms").parse().unwrap(),
        ..LinkConfig::default()
    }
}

/// Sends for `seconds` from A to B, and reads as it comes.
fn run(link: &LinkConfig, law: &str, seconds: u64, seed: u64) -> Outcome {
    run_towards(stream(), link, law, seconds, seed)
}

fn run_towards(receiver: Config, link: &LinkConfig, law: &str, seconds: u64, seed: u64) -> Outcome {
    let mut net = Net::new(link, seed);
    let config = Config { law: law.parse().unwrap(), ..stream() };
    let (a, b) = net.connect(config, receiver);
    let mut flow = Flood::new((a, b));
    let second = Duration::from_secs(1);
    let read: Vec<f64> = (0..seconds).map(|_| flow.run_for(&mut net, second) as f64).collect();
    let line = link.rate.unwrap().bits_per_second() as f64 / 8.0;
    let (sender, receiver) = (net.stats(A, a), net.stats(B, b));
    Outcome {
        share: read.iter().sum::<f64>() / seconds as f64 / line,
        worst_second: read[3..].iter().copied().fold(f64::MAX, f64::min) / line,
        sender: sender.total.counters,
        receiver: receiver.total.counters,
        link: net.links[A].stats(),
    }
}

/// 1456 of 1500 bytes are the most that an application can get: 97%.
#[test]
fn a_clean_long_path() {
    for law in ["udt", "udt4"] {
        let outcome = run(&link("200M", 80), law, 30, 1);
        assert!(outcome.share >= 0.92, "{law}: {outcome:#?}");
        assert!(outcome.worst_second > 0.5, "{law}: {outcome:#?}");
        // What overflows the queue at the end of slow start, and hardly anything after it.
        assert!(outcome.link.dropped_queue < 1_500, "{law}: {outcome:#?}");
    }
}

#[test]
fn a_noisy_long_path() {
    let noisy = LinkConfig { loss: "0.1%".parse().unwrap(), ..link("200M", 80) };
    let outcome = run(&noisy, "udt:noisy", 30, 2);
    assert!(outcome.share >= 0.85, "{outcome:#?}");
    assert!(outcome.worst_second > 0.5, "{outcome:#?}");
    // Hardly anything is sent twice for nothing: some where slow start overflows the queue.
    assert!(outcome.receiver.duplicates * 300 < outcome.sender.packets_sent, "{outcome:#?}");
}

/// gu05 §3.5.2 has 80% of the link at 1% loss for the noisy-link option.
#[test]
fn a_very_noisy_long_path() {
    let noisy = LinkConfig { loss: "1%".parse().unwrap(), ..link("100M", 40) };
    let shares = [1, 2, 3].map(|seed| run(&noisy, "udt:noisy", 15, seed).share);
    assert!(shares.iter().sum::<f64>() / 3.0 >= 0.80, "{shares:?}");
    assert!(shares.iter().all(|share| *share >= 0.70), "{shares:?}");
}

/// A hole is always open, for ten packets are lost in each round trip of a millisecond: what arrives
/// behind it is known all the same, and the queue stays short.
#[test]
fn a_short_path_where_a_hole_is_always_open() {
    let path = LinkConfig { queue: "830p".parse().unwrap(), ..link("1G", 1) };
    let noisy = LinkConfig { loss: "1%".parse().unwrap(), ..path.clone() };
    for law in ["haul", "bbr", "copa"] {
        let mut net = Net::asymmetric(noisy.clone(), path.clone(), 1);
        let config = || Config { law: law.parse().unwrap(), ..stream() };
        let ids = net.connect(config(), config());
        let mut flow = Flood::new(ids);
        flow.run_for(&mut net, Duration::from_secs(1));
        let read = flow.run_for(&mut net, Duration::from_millis(1_500));
        let share = read as f64 * 8.0 / 1.5e9;
        let stats = net.stats(A, ids.0);
        assert!(share > 0.75, "{law}: {share}; {stats:#?}");
        assert!(stats.instant.rtt < Duration::from_millis(3), "{law}: {stats:#?}");
    }
}

#[test]
fn a_gigabit_long_path() {
    let outcome = run(&link("1G", 100), "udt", 8, 1);
    // Slow start alone takes a second and a half of the eight.
    assert!(outcome.share >= 0.75, "{outcome:#?}");
    assert!(outcome.worst_second > 0.8, "{outcome:#?}");
}

/// A twentieth of the packets overtaken by three others: no loss, and not taken for any.
#[test]
fn reordering_is_not_punished() {
    let order = LinkConfig { reorder: Some("5%:3".parse().unwrap()), ..link("10M", 10) };
    let outcome = run(&order, "udt", 30, 4);
    assert!(outcome.share >= 0.90, "{outcome:#?}");
    assert!(outcome.receiver.naks_sent <= 10, "{outcome:#?}");
    assert!(outcome.receiver.reordered > 1_000, "{outcome:#?}");
}

/// Packets that come two milliseconds late, sixty of them in a burst: the tolerance grows to that.
#[test]
fn reordering_in_time_is_learnt() {
    let order = LinkConfig { reorder: Some("5%:2ms".parse().unwrap()), ..link("100M", 40) };
    let outcome = run(&order, "udt", 20, 4);
    assert!(outcome.receiver.naks_sent <= 20, "{outcome:#?}");
    assert!(outcome.sender.packets_retransmitted <= 40, "{outcome:#?}");
    // The first of it ends slow start.
    assert!(outcome.share >= 0.70, "{outcome:#?}");
}

/// A slow path with a short queue, a fast one without delay: nothing stalls.
#[test]
fn paths_of_other_kinds() {
    for (rate, rtt, law) in
        [("1M", 300, "udt"), ("2M", 20, "udt4"), ("100M", 1, "udt"), ("100M", 1, "udt4")]
    {
        let outcome = run(&link(rate, rtt), law, 10, 5);
        assert!(outcome.share >= 0.80, "{rate} {rtt} {law}: {outcome:#?}");
        assert!(outcome.worst_second > 0.4, "{rate} {rtt} {law}: {outcome:#?}");
    }
}

/// gu05 §2.3.2.4: a window that is the limit keeps the rate from growing beyond it, and does not
/// bring it down either.
#[test]
fn a_small_flow_window_is_used() {
    let receiver = Config { flow_window: Some(100), ..stream() };
    let outcome = run_towards(receiver, &link("100M", 40), "udt", 20, 5);
    // A window each round trip and SYN interval, in which an ACK may be held back.
    let most = 100.0 * 1_456.0 * 8.0 / 0.050 / 100e6;
    assert!((0.95..1.05).contains(&(outcome.share / most)), "{most}: {outcome:#?}");
    assert!(outcome.worst_second / most > 0.9, "{most}: {outcome:#?}");
}

/// A stock receiver at the end of the path: no repeated reports, and a flow window that says nothing.
#[test]
fn towards_a_stock_receiver() {
    let mut net = Net::new(&link("100M", 40), 6);
    net.hosts[B].stock = Some(Default::default());
    let (a, b) = net.connect(stream(), stream());
    let read = Flood::new((a, b)).run_for(&mut net, Duration::from_secs(15));
    let share = read as f64 * 8.0 / 15.0 / 100e6;
    assert!(share > 0.85, "{share} {:#?}", net.stats(A, a));
}
