//! Laws that go by the delay, alone on a path with a deep queue: they fill the line, and what they
//! leave in the queue is what they say.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod pair;

use core::time::Duration;

use farhaul_engine::Config;
use farhaul_link::LinkConfig;
use pair::{A, Flood, Net, stream};

/// Bits per second of the line, its round trip, and packets that fill both.
const RATE: f64 = 50e6;
const RTT: Duration = Duration::from_millis(40);
const PRODUCT: f64 = RATE * 0.040 / (1500.0 * 8.0);
/// Packets in flight that are neither on the way nor waiting in the queue: one is in transmission,
/// and as every second one is acknowledged, half a packet has arrived without the sender's knowing.
const ELSEWHERE: f64 = 1.0 + 0.5;
/// The application's share of a packet.
const PAYLOAD: f64 = 1456.0 / 1500.0;

/// What came of a run.
#[derive(Debug)]
struct Outcome {
    /// Share of the line that was used.
    share: f64,
    /// Packets of data in the queue: the mean, and what there are fewer of 99% of the time.
    queue: f64,
    most: f64,
    dropped: u64,
}

/// Sends from A to B, and looks from the second `from` to the second `until`, at intervals that no
/// round trip keeps step with.
fn run(law: &str, from: u64, until: u64) -> Outcome {
    let link = LinkConfig {
        rate: Some("50M".parse().unwrap()),
        delay: RTT / 2,
        queue: "bdp:160ms".parse().unwrap(),
        ..LinkConfig::default()
    };
    let mut net = Net::new(&link, 1);
    // The receiver has another law, and acknowledges as often as this one asks for.
    let config = Config { law: law.parse().unwrap(), ..stream() };
    let (a, b) = net.connect(config, stream());
    let mut flow = Flood::new((a, b));
    let (begin, end) = (net.now + Duration::from_secs(from), net.now + Duration::from_secs(until));
    let (mut read, mut queues) = (0, Vec::new());
    while net.now < end {
        let got = flow.run_for(&mut net, Duration::from_millis(7));
        if net.now > begin {
            read += got;
            let in_flight = f64::from(net.stats(A, a).instant.in_flight);
            queues.push(in_flight - PRODUCT - ELSEWHERE);
        }
    }
    queues.sort_by(f64::total_cmp);
    let count = queues.len() as f64;
    Outcome {
        share: read as f64 * 8.0 / PAYLOAD / (count * 0.007) / RATE,
        queue: queues.iter().sum::<f64>() / count,
        most: queues[queues.len() * 99 / 100],
        dropped: net.links[A].stats().dropped_queue,
    }
}

/// A line that is used, without a loss.
fn check(outcome: &Outcome) {
    assert!(outcome.share > 0.98, "{outcome:#?}");
    assert_eq!(outcome.dropped, 0, "{outcome:#?}");
}

#[test]
fn vegas_keeps_alpha_to_beta_packets() {
    for (law, few, many) in [("vegas", 1.0, 3.0), ("vegas:alpha=8,beta=12", 8.0, 12.0)] {
        let outcome = run(law, 8, 12);
        check(&outcome);
        assert!((few..=many).contains(&outcome.queue), "{law} {outcome:#?}");
    }
}

#[test]
fn fast_keeps_alpha_packets() {
    for (law, alpha) in [("fast:alpha=20", 20.0), ("fast", 200.0)] {
        let outcome = run(law, 6, 10);
        check(&outcome);
        assert!((outcome.queue / alpha - 1.0).abs() < 0.05, "{law} {outcome:#?}");
    }
}

#[test]
fn ledbat_keeps_its_target() {
    let outcome = run("ledbat:target=25ms", 55, 60);
    check(&outcome);
    let target = 0.025 * RATE / (1500.0 * 8.0);
    assert!((outcome.queue / target - 1.0).abs() < 0.03, "{target} {outcome:#?}");
}

/// Between nought and 2.5/δ packets, 1.25/δ in the mean (NSDI 2018 §3), while nothing disturbs it. A
/// packet of other kind is enough for the window to go one way for a round trip more, at which the
/// velocity doubles, and the swings that follow take seconds to die down.
#[test]
fn copa_keeps_one_over_delta_packets() {
    // A δ of 0.1 on this path is a step of 10 packets a round trip, and swings do not die down.
    let outcome = run("copa", 5, 12);
    check(&outcome);
    assert!((0.75..2.5).contains(&(outcome.queue / 2.0)), "{outcome:#?}");
    assert!(outcome.most < 0.25 * PRODUCT, "{outcome:#?}");
}
