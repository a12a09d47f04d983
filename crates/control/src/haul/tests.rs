use super::*;
use crate::tcp_like::tests::lost;
use crate::{Arrival, Delivery};

/// A path that delivers `rate` packets a second after `base` seconds, with a queue without end, and
/// the law at its other side: one ACK a packet, round trips as the window makes them.
struct Path {
    law: Haul,
    knobs: Knobs,
    now: f64,
    next: u32,
    delivered: u64,
    lost: u64,
}

impl Path {
    fn new() -> Self {
        let (mut law, mut knobs) = (Haul::new(32.0, 0.27), Knobs::default());
        law.init(&View::default(), &mut knobs);
        Path { law, knobs, now: 1.0, next: 0, delivered: 0, lost: 0 }
    }

    fn view(&self, rtt: f64, window: u32) -> View {
        let seq = Seq::new(self.next);
        let delivery = Delivery {
            packets: window.into(),
            interval: Duration::from_secs_f64(rtt),
            app_limited: false,
            delivered_before: self.delivered.saturating_sub(u64::from(window)),
            in_flight: window,
            lost_before: 0,
        };
        let rtt = Duration::from_secs_f64(rtt);
        View {
            now: Time::from_nanos((self.now * 1e9) as u64),
            rtt,
            in_flight: window,
            largest_acked: seq,
            largest_sent: seq.plus(window),
            delivered: self.delivered,
            newest: Some(Arrival { seq, rtt, forward: None, tag: 0, delivery: Some(delivery) }),
            trace: crate::Trace { packets_lost: self.lost, ..crate::Trace::default() },
            ..View::default()
        }
    }

    /// One round trip, with a queue of `queue` seconds beside the base of 40 ms.
    fn round(&mut self, queue: f64) {
        let rtt = 0.04 + queue;
        let window = self.knobs.window as u32;
        for _ in 0..window {
            self.now += rtt / f64::from(window);
            self.next += 1;
            self.delivered += 1;
            let view = self.view(rtt, window);
            self.law.on_ack(Seq::new(self.next), &view, &mut self.knobs);
        }
    }

    /// For `seconds`, a bottleneck of `rate` of its own.
    fn alone(&mut self, rate: f64, seconds: f64) {
        let end = self.now + seconds;
        while self.now < end {
            self.round((self.knobs.window / rate - 0.04).max(0.0));
        }
    }
}

/// A host pauses for 90 ms on a path of 50 µs, and a long hole is all that there is to send: its pace is that
/// of the path, not that of the pause.
#[test]
fn a_pause_does_not_set_the_pace_of_a_long_repair() {
    let mut path = Path::new();
    let round = |path: &mut Path, rtt: f64, fresh: bool| {
        path.now += rtt;
        path.next += 1;
        path.delivered += 1;
        let mut view = path.view(rtt, 1000);
        if !fresh {
            view.newest = None;
        }
        path.law.on_ack(Seq::new(path.next), &view, &mut path.knobs);
    };
    for _ in 0..2000 {
        round(&mut path, 50e-6, true);
    }
    // The pause, and news after it.
    path.now += 0.09;
    let view = path.view(0.09, 1000);
    path.law.on_timeout(&view, &mut path.knobs);
    round(&mut path, 0.09, false);
    round(&mut path, 0.09, true);
    let view = View { newest: None, ..path.view(50e-6, 1000) };
    path.law.on_loss(&lost(path.next + 1, path.next + 900), &view, &mut path.knobs);
    let paused = path.knobs.period_ns;
    // Half a second of packets sent again, each after the other, 0.5 ms a round trip.
    for _ in 0..800 {
        round(&mut path, 0.5e-3, false);
    }
    assert!(paused > 1e6, "it was slow: {paused}");
    assert!(path.knobs.period_ns < 0.5e6, "{} after {paused}", path.knobs.period_ns);
}

#[test]
fn the_share_is_the_root_of_the_rate() {
    let law = Haul::new(32.0, 0.27);
    // 10 Mb/s, 100 Mb/s, 1 Gb/s and 10 Gb/s in packets of 1500 bytes.
    let shares = [833.3, 8333.3, 83_333.0, 833_333.0].map(|rate| law.share(rate).round());
    assert_eq!(shares, [8.0, 25.0, 78.0, 246.0]);
}

#[test]
fn the_start_doubles_and_ends_with_a_queue() {
    let mut path = Path::new();
    path.round(0.0);
    assert_eq!((path.knobs.window, path.law.state()), (64.0, "start"));
    path.round(0.0);
    assert_eq!(path.knobs.window, 128.0);
    // Paced: 1.4 windows a round trip.
    assert!((path.knobs.period_ns - 0.04e9 / (1.4 * 128.0)).abs() < 1.0, "{:?}", path.knobs);
    // 128 packets in 50 ms are 2560 a second, whose share is 13.7 packets; 25 waited. What it has
    // in flight fills the path for 40 of 50 ms.
    path.round(0.010);
    assert_eq!(path.law.state(), "hold");
    let filled = 128.0 * 0.04 / 0.05;
    assert!((filled..filled + 20.0).contains(&path.law.window), "{}", path.law.window);
}

#[test]
fn alone_it_keeps_its_share_in_the_queue() {
    for rate in [833.0, 8333.0, 83_333.0] {
        let mut path = Path::new();
        path.alone(rate, 2.5);
        let queued = path.law.window - 0.04 * rate;
        let share = 0.27 * f64::sqrt(rate);
        assert!((0.8..1.25).contains(&(queued / share)), "{rate}: {queued} of {share}");
    }
}

#[test]
fn steps_grow_where_the_queue_is_empty() {
    let mut path = Path::new();
    path.alone(8333.0, 1.0);
    // The first rounds go by while it looks: to others that do so it must seem.
    let windows = [0; 16].map(|_| {
        path.round(0.0);
        path.law.window
    });
    let growth: Vec<f64> = windows.windows(2).map(|pair| pair[1] / pair[0]).collect();
    assert!(growth[0] < 1.06, "a share a round trip at first: {growth:?}");
    assert!(growth[14] > 1.2, "and then more and more: {growth:?}");
    assert!(growth.iter().all(|ratio| *ratio < 2.75), "{growth:?}");
}

#[test]
fn few_losses_are_chance_and_many_leave_what_arrived() {
    let mut path = Path::new();
    path.alone(8333.0, 1.0);
    let window = path.law.window;
    path.lost += 3;
    path.alone(8333.0, 0.2);
    assert!((path.law.window / window - 1.0).abs() < 0.05, "{window} {}", path.law.window);
    assert!((path.law.scale - 1.0).abs() < 1e-9);
    path.lost += 60;
    path.alone(8333.0, 0.06);
    assert_eq!(path.law.scale, 0.5);
    assert!(path.law.window < 0.97 * window, "{window} {}", path.law.window);
}

#[test]
fn a_queue_that_never_drains_makes_it_compete() {
    let mut path = Path::new();
    path.alone(8333.0, 4.0);
    assert_eq!(path.law.state(), "hold");
    // Somebody keeps 30 ms of queue, and packets are lost.
    let mut seen = Vec::new();
    for _ in 0..150 {
        path.round(0.03);
        let view = path.view(0.07, 10);
        let range = lost(path.next + 1, path.next + 1);
        if seen.is_empty() {
            path.law.on_loss(&range, &view, &mut path.knobs);
        }
        if seen.last() != Some(&path.law.state()) {
            seen.push(path.law.state());
        }
    }
    let before = seen.split(|state| *state == "compete").next().unwrap();
    assert_eq!(before, ["hold", "look"].repeat(3), "{seen:?}");
    assert_eq!(path.law.phase, Phase::Compete);
    // Once it does drain, at looks in a row, it stops to.
    path.alone(8333.0, 15.0);
    assert_ne!(path.law.phase, Phase::Compete);
}

#[test]
fn after_a_silence_it_goes_on_with_the_rate_that_there_was() {
    let mut path = Path::new();
    path.alone(8333.0, 2.0);
    let rate = path.law.rate;
    assert!((rate / 8333.0 - 1.0).abs() < 0.1, "{rate}");
    let view = path.view(0.04, 300);
    path.law.on_timeout(&view, &mut path.knobs);
    assert!(path.knobs.window < 10.0, "{:?}", path.knobs);
    path.now += 2.0;
    // The first to arrive left before: its time is that of the silence.
    path.delivered += 1;
    path.next += 1;
    let view = path.view(2.0, 300);
    path.law.on_ack(Seq::new(path.next), &view, &mut path.knobs);
    assert!((path.law.window - rate * 0.04).abs() < 1.0, "{}", path.law.window);
    assert!(path.law.delays.standing < 0.05, "{:?}", path.law.delays);
}
