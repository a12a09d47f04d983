//! Nothing is sent twice that was not lost: hosts that stall, paths that jitter and put packets out of
//! order.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod pair;

use core::time::Duration;

use farhaul_base::Rng;
use farhaul_engine::{Config, Stats};
use farhaul_link::LinkConfig;
use pair::{A, B, Flood, Net, path, stream};

/// What there is of the sending and of the receiving side after `seconds` over `link`, with a law
/// and a seed; hosts stall for up to `stall` if there is any.
fn run(law: &str, link: &LinkConfig, stall: Duration, seconds: u64, seed: u64) -> (Stats, Stats) {
    let mut net = Net::new(link, seed);
    if !stall.is_zero() {
        let mut rng = Rng::new(seed);
        for host in &mut net.hosts {
            host.stall(rng.next_u64(), Duration::from_millis(150), stall);
        }
    }
    let config = Config { law: law.parse().unwrap(), ..stream() };
    let (a, b) = net.connect(config.clone(), config);
    let mut flow = Flood::new((a, b));
    flow.run_for(&mut net, Duration::from_secs(seconds));
    assert!(flow.read > 2 << 20, "{} bytes", flow.read);
    (net.stats(A, a), net.stats(B, b))
}

/// A path that never loses: its queue holds all that a law could have in flight.
fn lossless(delay_ms: u64, jitter: &str) -> LinkConfig {
    LinkConfig {
        delay: Duration::from_millis(delay_ms),
        queue: "100000p".parse().unwrap(),
        jitter: jitter.parse().unwrap(),
        ..path()
    }
}

#[track_caller]
fn nothing_twice(what: &str, (sender, receiver): &(Stats, Stats)) {
    let (sent, received) = (&sender.total.counters, &receiver.total.counters);
    assert_eq!(
        (sent.packets_retransmitted, sent.send_lost, received.duplicates, sent.timeouts),
        (0, 0, 0, 0),
        "{what}: {sent:#?}\n{received:#?}"
    );
}

/// Laws that fill queues grow the round trip by what is in flight, so those that do not are taken, and
/// one that is limited by its window.
const LAWS: [&str; 3] = ["udt", "bbr", "haul"];

#[test]
fn hosts_that_stall() {
    for law in LAWS {
        for (seed, delay) in [(1, 1), (2, 5), (3, 20), (4, 50), (5, 100)] {
            let stall = Duration::from_millis(50);
            let outcome = run(law, &lossless(delay, "0ms"), stall, 6, seed);
            nothing_twice(&format!("{law}, {delay} ms"), &outcome);
        }
    }
}

#[test]
fn a_path_that_jitters_between_hosts_that_stall() {
    for law in LAWS {
        for (seed, delay) in [(1, 1), (2, 10), (3, 50)] {
            let stall = Duration::from_millis(20);
            let outcome = run(law, &lossless(delay, "4ms"), stall, 6, seed);
            nothing_twice(&format!("{law}, {delay} ms"), &outcome);
        }
    }
}

/// What is lost is sent again, once, whatever becomes of the reports: lost themselves, late, or repeated
/// while the answer is under way or waits for a host that stalls.
#[test]
fn losses_and_reports_that_are_lost_or_late() {
    for law in LAWS {
        for (seed, delay, back) in [(1, 1, "0%"), (2, 10, "0%"), (3, 10, "20%"), (4, 50, "20%")] {
            let lossy = LinkConfig { loss: "every:400".parse().unwrap(), ..lossless(delay, "0ms") };
            let back = LinkConfig { loss: back.parse().unwrap(), ..lossless(delay, "0ms") };
            let mut net = Net::asymmetric(lossy, back, seed);
            for (side, host) in net.hosts.iter_mut().enumerate() {
                let pause = Duration::from_millis(150);
                host.stall(10 * seed + side as u64, pause, Duration::from_millis(30));
            }
            let config = Config { law: law.parse().unwrap(), ..stream() };
            let (a, b) = net.connect(config.clone(), config);
            let mut flow = Flood::new((a, b));
            flow.run_for(&mut net, Duration::from_secs(6));
            let lost = net.links[A].stats().dropped_loss;
            let (sender, receiver) = (net.stats(A, a), net.stats(B, b));
            let twice = receiver.total.counters.duplicates;
            assert!(lost > 8, "{sender:#?}");
            // ACKs may be missing as well until the silence counts.
            let asked = 2 * sender.total.counters.timeouts;
            assert!(
                twice <= asked && asked < lost / 4,
                "{law}, {delay} ms: {sender:#?}\n{receiver:#?}"
            );
        }
    }
}

/// One position is within the tolerance that a connection begins with.
#[test]
fn a_path_that_puts_packets_out_of_order_a_little() {
    for law in LAWS {
        for (seed, stall) in [(1, 0), (2, 50)] {
            let link =
                LinkConfig { reorder: Some("0.5%:1/1ms".parse().unwrap()), ..lossless(10, "0ms") };
            let outcome = run(law, &link, Duration::from_millis(stall), 6, seed);
            nothing_twice(&format!("{law}, stalls of {stall} ms"), &outcome);
        }
    }
}

/// More than that has to be learnt: few are sent twice until then.
#[test]
fn a_path_that_puts_packets_out_of_order() {
    for law in LAWS {
        let link = LinkConfig { reorder: Some("1%:1ms".parse().unwrap()), ..lossless(10, "0ms") };
        let (sender, receiver) = run(law, &link, Duration::ZERO, 10, 1);
        let twice = receiver.total.counters.duplicates;
        assert!(twice < 20, "{law}: {twice}; {sender:#?}");
    }
}
