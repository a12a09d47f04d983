//! The response functions of the laws: the mean window, or rate, that comes of a rate of loss.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod pair;

use core::time::Duration;

use farhaul_base::math::power;
use farhaul_engine::Config;
use farhaul_link::LinkConfig;
use pair::{A, Flood, Net, stream};

/// The round-trip time for laws with a window, of which it takes a few until a loss is made good.
const RTT: Duration = Duration::from_millis(100);
const SAMPLED_EACH: Duration = Duration::from_millis(10);
/// This share of a run, its beginning, is left out.
const SETTLING: f64 = 0.2;

/// What came of a run.
#[derive(Debug)]
struct Outcome {
    /// Share of packets lost, as it turned out: packets that bear no data are lost as well, and do
    /// not count.
    loss: f64,
    /// The mean over time of the congestion window, packets.
    window: f64,
    /// Packets sent in a second.
    rate: f64,
}

/// Sends for `seconds` over a path that loses as `loss` says and that is never full.
fn run(law: &str, rate: &str, rtt: Duration, loss: &str, seconds: u64) -> Outcome {
    let link = LinkConfig {
        rate: Some(rate.parse().unwrap()),
        delay: rtt / 2,
        queue: "10000p".parse().unwrap(),
        ..LinkConfig::default()
    };
    let lossy = LinkConfig { loss: loss.parse().unwrap(), ..link.clone() };
    let mut net = Net::asymmetric(lossy, link, 1);
    let config = Config { law: law.parse().unwrap(), ..stream() };
    let (a, b) = net.connect(config, stream());
    let mut flow = Flood::new((a, b));
    let samples = seconds * 1_000 / SAMPLED_EACH.as_millis() as u64;
    let first = (SETTLING * samples as f64) as u64;
    let (mut windows, mut before) = (0.0, Default::default());
    for sample in 0..samples {
        flow.run_for(&mut net, SAMPLED_EACH);
        let stats = net.stats(A, a);
        if sample < first {
            before = stats.total.counters;
        } else {
            windows += f64::from(stats.instant.congestion_window);
        }
    }
    let counted = net.stats(A, a).total.counters - before;
    let sampled = (samples - first) as f64;
    Outcome {
        loss: counted.send_lost as f64 / counted.packets_sent as f64,
        window: windows / sampled,
        rate: counted.packets_sent as f64 / (sampled * SAMPLED_EACH.as_secs_f64()),
    }
}

#[track_caller]
fn agrees(what: &str, found: f64, expected: f64) {
    let ratio = found / expected;
    println!("{what}: {found:.1} where {expected:.1} is expected: {ratio:.3}");
    assert!((ratio - 1.0).abs() < 0.15, "{what}: {found} where {expected} is expected");
}

/// Runs a law with a window at three rates of loss; `expected`: what its mean is to be at each.
fn windows(law: &str, runs: [(&str, u64); 3], expected: impl Fn(f64) -> f64) {
    for (loss, seconds) in runs {
        let outcome = run(law, "1G", RTT, loss, seconds);
        agrees(&format!("{law} at {loss}"), outcome.window, expected(outcome.loss));
    }
}

#[test]
fn reno() {
    let runs = [("every:300", 100), ("every:1000", 120), ("every:3000", 150)];
    windows("reno", runs, |p| 1.22 * power(p, -0.5));
}

/// Kelly 2003: (a / b) / p, for losses at random. Between losses at equal distances the window has a
/// round trip less to grow in, that of the repair; when they are random, those that fall into a
/// repair are not answered, which makes up for it.
#[test]
fn scalable() {
    let runs = [("0.2%", 150), ("0.1%", 200), ("0.05%", 100)];
    windows("scalable", runs, |p| 0.01 / 0.125 / p);
}

/// RFC 3649 §5.
#[test]
fn hstcp() {
    let runs = [("every:2000", 100), ("every:5000", 100), ("every:10000", 80)];
    windows("hstcp", runs, |p| 0.12 * power(p, -0.835));
}

/// RFC 9438 §5.1 is of the cubic alone.
#[test]
fn cubic() {
    let runs = [("every:1000", 100), ("every:3000", 100), ("every:10000", 90)];
    let expected = |p| 1.054 * power(RTT.as_secs_f64() / p, 0.75);
    windows("cubic:friendly=false", runs, expected);
}

/// gu05 eq. 3-12: 3 / sqrt(p) 10^((e - k - 9) / 2) packets a SYN interval. At 100 Mb/s e is 8, and k is
/// 0 while more than 10 Mb/s are free.
#[test]
fn udt() {
    for (loss, seconds) in [("every:300", 30), ("every:1000", 30), ("every:3000", 25)] {
        let outcome = run("udt", "100M", Duration::from_millis(10), loss, seconds);
        let expected = 3.0 * power(outcome.loss, -0.5) * power(10.0, -0.5);
        agrees(&format!("udt at {loss}"), outcome.rate * 0.010, expected);
    }
}

/// It has no response function of the window alone. Losses that are noise cost it less than Reno.
#[test]
fn westwood() {
    let rate = |law| run(law, "100M", Duration::from_millis(40), "0.1%", 60).rate;
    let (westwood, reno) = (rate("westwood"), rate("reno"));
    assert!(westwood > 1.25 * reno, "{westwood} {reno}");
}
