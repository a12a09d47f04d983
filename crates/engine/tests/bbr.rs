//! What `bbr` makes of a path, in virtual time.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod pair;

use core::time::Duration;

use farhaul_engine::{Config, ConnectionId};
use farhaul_link::LinkConfig;
use pair::{A, Flood, Net, stream};

/// 100 Mb/s and 40 ms: so many packets on the way.
const PRODUCT: f64 = 100e6 / 8.0 / 1_500.0 * 0.040;

/// A queue of `products` times what is on the way.
fn link(products: f64) -> LinkConfig {
    LinkConfig {
        rate: Some("100M".parse().unwrap()),
        delay: Duration::from_millis(20),
        queue: format!("{}p", (products * PRODUCT) as u32).parse().unwrap(),
        ..LinkConfig::default()
    }
}

/// What is seen every ten milliseconds.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// Of the first flow.
    state: &'static str,
    /// Packets that wait at the link, in shares of what is on the way.
    queue: f64,
}

struct Run {
    net: Net,
    /// The first flow's sender.
    sender: ConnectionId,
    flows: Vec<Flood>,
    seen: Vec<Seen>,
}

impl Run {
    /// The receivers have the law as well: it is theirs that sets how many ACKs there are.
    fn new(link: &LinkConfig, law: &str, flows: usize, seed: u64) -> Self {
        let mut net = Net::new(link, seed);
        let config = || Config { law: law.parse().unwrap(), ..stream() };
        let ids: Vec<_> = (0..flows).map(|_| net.connect(config(), config())).collect();
        let sender = ids[0].0;
        Run { net, sender, flows: ids.into_iter().map(Flood::new).collect(), seen: Vec::new() }
    }

    fn run(mut self, seconds: u64) -> Self {
        for _ in 0..seconds * 100 {
            self.net.run_until(Duration::from_millis(10), |net| {
                self.flows.iter_mut().for_each(|flow| flow.pump(net));
                false
            });
            let state = self.net.update(A, self.sender, |c| c.law().state());
            let queue = self.net.links[A].stats().queue.packets as f64 / PRODUCT;
            self.seen.push(Seen { state, queue });
        }
        self
    }

    /// Bytes that the applications got, as a share of the line: 0.97 at most.
    fn share(&self) -> f64 {
        let bits = self.flows.iter().map(|flow| flow.read).sum::<usize>() as f64 * 8.0;
        bits / (self.seen.len() as f64 / 100.0) / 100e6
    }

    /// Packets that overflowed the queue, as a share of those that came.
    fn overflow(&self) -> f64 {
        let stats = self.net.links[A].stats();
        stats.dropped_queue as f64 / stats.offered as f64
    }

    fn mean_queue(&self) -> f64 {
        self.seen.iter().map(|seen| seen.queue).sum::<f64>() / self.seen.len() as f64
    }

    /// The states in their order, and for how many of the hundredths of a second.
    fn states(&self) -> Vec<(&'static str, usize)> {
        let runs = self.seen.chunk_by(|a, b| a.state == b.state);
        runs.map(|run| (run[0].state, run.len())).collect()
    }
}

#[test]
fn alone_on_a_path() {
    let run = Run::new(&link(1.0), "bbr", 1, 1).run(20);
    assert!(run.share() >= 0.90, "{} {:?}", run.share(), run.states());
    // Five round trips double ten packets to the path's 333, one more shows it, three that it is
    // full; with a queue they are up to 80 ms.
    let states = run.states();
    assert_eq!(states[0].0, "startup");
    assert!((24..=60).contains(&states[0].1), "{states:?}");
    assert_eq!(states[1].0, "drain");
    let times = |state| states.iter().filter(|(name, _)| *name == state).count();
    for state in ["probe down", "cruise", "refill", "probe up"] {
        assert!(times(state) >= 2, "{states:?}");
    }
    // The queue is empty between probes, so that the round trip is known without a search for it.
    assert_eq!(times("probe rtt"), 0, "{states:?}");
}

/// A window law would fill it.
#[test]
fn a_deep_queue_stays_short() {
    let run = Run::new(&link(8.0), "bbr", 1, 1).run(20);
    assert!(run.share() >= 0.90, "{} {:?}", run.share(), run.states());
    assert!(run.mean_queue() < 0.3, "{} on top of what is on the way", run.mean_queue());
    assert_eq!(run.overflow(), 0.0);
}

#[test]
fn a_short_queue_overflows_little() {
    let run = Run::new(&link(0.2), "bbr", 1, 1).run(20);
    assert!(run.overflow() < 0.02, "{}", run.overflow());
    assert!(run.share() >= 0.88, "{} {:?}", run.share(), run.states());
}

#[test]
fn random_loss_costs_little() {
    let noisy = LinkConfig { loss: "1%".parse().unwrap(), ..link(1.0) };
    let shares = [1, 2, 3].map(|seed| Run::new(&noisy, "bbr", 1, seed).run(15).share());
    assert!(shares.iter().sum::<f64>() / 3.0 >= 0.85, "{shares:?}");
    // Reno would have 1.22 / sqrt(1%) = 12 packets a round trip, of 333.
    assert!(shares.iter().all(|share| *share >= 0.80), "{shares:?}");
}

/// The law takes over from one that has filled the queue as far as the receiver lets it, and so first
/// sees a round trip of four times what it is without. It finds that, and the queue stays short.
#[test]
fn the_round_trip_is_found_behind_a_full_queue() {
    let mut run = Run::new(&link(8.0), "reno", 1, 1).run(2);
    let now = run.net.now;
    assert!(run.net.hosts[A].endpoint.set_law(now, run.sender, &"bbr".parse().unwrap()));
    let mut run = run.run(25);
    let filled = run.seen.drain(..200).map(|seen| seen.queue).fold(0.0, f64::max);
    assert!(filled > 3.0, "{filled}");
    // The queue itself looks like the path until it is probed: that takes its time.
    run.seen.drain(..1_500);
    assert!(run.mean_queue() < 0.5, "{} {:?}", run.mean_queue(), run.states());
}

#[test]
fn two_flows_share() {
    let run = Run::new(&link(1.0), "bbr", 2, 1).run(60);
    let [a, b] = [0, 1].map(|nth| run.flows[nth].read as f64);
    let jain = (a + b) * (a + b) / (2.0 * (a * a + b * b));
    assert!(jain > 0.9, "{jain} {a} {b}");
    assert!(run.share() >= 0.88, "{}", run.share());
}
