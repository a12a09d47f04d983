use super::losses::in_flight_at_loss;
use std::collections::VecDeque;

use super::*;
use crate::{Arrival, Delivery, Trace};

/// A path of constant rate and delay with a queue without bound, and the law at its beginning. Each
/// packet is acknowledged.
struct Path {
    law: Bbr,
    knobs: Knobs,
    now: f64,
    /// When the link is free, seconds.
    free: f64,
    rate: f64,
    delay: f64,
    /// When the next packet may leave.
    ready: f64,
    sent: u32,
    /// When each is acknowledged, its record, and whether it is lost.
    flight: VecDeque<Record>,
    acked: u64,
    lost: u64,
    known: (f64, f64),
    lose_every: u32,
    /// Packets lost, and when they have been repaired.
    holes: VecDeque<(u32, f64)>,
    /// The phases, and the time each began.
    phases: Vec<(Phase, f64)>,
}

#[derive(Clone, Copy)]
struct Record {
    seq: u32,
    sent: f64,
    acked: f64,
    tag: u64,
    known: (f64, f64),
    delivered: u64,
    lost_before: u64,
    in_flight: u32,
    lost: bool,
}

/// What the draft tolerates.
const DRAFT: Tolerated = Tolerated { loss: 0.02, own_loss: 0.0, queue: 10.0 };

impl Path {
    fn new(rate: f64, delay: f64) -> Self {
        let mut path = Path {
            law: Bbr::new(10.0, DRAFT, Duration::from_secs(5), 1),
            knobs: Knobs::default(),
            now: 0.0,
            free: 0.0,
            rate,
            delay,
            ready: 0.0,
            sent: 0,
            flight: VecDeque::new(),
            acked: 0,
            lost: 0,
            known: (0.0, 0.0),
            lose_every: 0,
            holes: VecDeque::new(),
            phases: vec![(Phase::Startup, 0.0)],
        };
        let view = path.view();
        path.law.init(&view, &mut path.knobs);
        path
    }

    fn view(&self) -> View {
        View {
            now: Time::from_nanos((self.now * 1e9) as u64),
            rtt: Duration::from_secs_f64(self.delay),
            in_flight: self.flight.len() as u32,
            largest_sent: Seq::new(self.sent).prev(),
            delivered: self.acked,
            trace: Trace {
                packets_sent: u64::from(self.sent),
                packets_lost: self.lost,
                ..Trace::default()
            },
            ..View::default()
        }
    }

    fn note_phase(&mut self) {
        let phase = self.law.phase;
        if self.phases.last().is_none_or(|last| last.0 != phase) {
            self.phases.push((phase, self.now));
        }
    }

    fn send(&mut self) {
        if self.flight.is_empty() {
            self.known = (self.now, self.now);
        }
        self.free = self.free.max(self.now) + 1.0 / self.rate;
        self.sent += 1;
        let seq = self.sent - 1;
        let mut record = Record {
            seq,
            sent: self.now,
            acked: self.free + self.delay,
            tag: 0,
            known: self.known,
            delivered: self.acked,
            lost_before: self.lost,
            in_flight: self.flight.len() as u32 + 1,
            lost: self.lose_every > 0 && seq.is_multiple_of(self.lose_every),
        };
        self.flight.push_back(record);
        let view = self.view();
        let packet =
            SentPacket { seq: Seq::new(seq), len: 1456, timestamp: 0, retransmission: false };
        record.tag = self.law.on_packet_sent(&packet, &view, &mut self.knobs);
        if let Some(last) = self.flight.back_mut() {
            *last = record;
        }
        self.ready = self.now.max(self.ready) + self.knobs.period_ns / 1e9;
    }

    /// An ACK, or the report of a loss, which is repaired a round trip later.
    fn news(&mut self, record: Record) {
        self.now = record.acked;
        if record.lost {
            self.lost += 1;
            self.holes.push_back((record.seq, self.now + self.delay));
            let range = LossRange::single(Seq::new(record.seq));
            let view = self.view();
            self.law.on_loss(&[range], &view, &mut self.knobs);
        } else {
            self.acked += 1;
            let interval = (record.sent - record.known.0).max(self.now - record.known.1);
            self.known = (record.sent, self.now);
            let newest = Arrival {
                seq: Seq::new(record.seq),
                rtt: Duration::from_secs_f64(self.now - record.sent),
                forward: None,
                tag: record.tag,
                delivery: Some(Delivery {
                    packets: self.acked - record.delivered,
                    interval: Duration::from_secs_f64(interval),
                    app_limited: false,
                    delivered_before: record.delivered,
                    in_flight: record.in_flight,
                    lost_before: record.lost_before,
                }),
            };
            let view = View { newest: Some(newest), ..self.view() };
            while self.holes.front().is_some_and(|hole| hole.1 <= self.now) {
                self.holes.pop_front();
            }
            let next = self.holes.front().map_or(record.seq + 1, |hole| hole.0);
            self.law.on_ack(Seq::new(next), &view, &mut self.knobs);
        }
        self.note_phase();
    }

    /// Data without end until `until`, seconds.
    fn run(&mut self, until: f64) {
        loop {
            let open = (self.flight.len() as f64) < self.knobs.window.floor();
            let send = if open { self.ready.max(self.now) } else { f64::INFINITY };
            let ack = self.flight.front().map_or(f64::INFINITY, |record| record.acked);
            let timer = self.knobs.timer.map_or(f64::INFINITY, |at| at.as_nanos() as f64 / 1e9);
            if send.min(ack).min(timer) > until {
                self.now = until;
                return;
            }
            if timer <= send.min(ack) {
                self.now = timer;
                self.knobs.timer = None;
                let view = self.view();
                self.law.on_timer(&view, &mut self.knobs);
                self.note_phase();
            } else if send < ack {
                self.now = send;
                self.send();
            } else if let Some(record) = self.flight.pop_front() {
                self.news(record);
            }
        }
    }
}

/// 1,000 packets a second, 100 ms: 100 packets on the way.
fn path() -> Path {
    Path::new(1_000.0, 0.1)
}

#[test]
fn it_begins_at_a_guess_and_then_at_the_first_round_trip() {
    let mut path = path();
    // 2.77 * 10 packets in a millisecond: the window is the limit.
    assert!((path.law.pacing_rate - 27_700.0).abs() < 1e-6);
    assert_eq!((path.knobs.window, path.knobs.ack_interval), (10.0, ACK_INTERVAL));
    path.run(0.1015);
    let rtt = path.law.min_rtt.get().expect("a sample").as_secs_f64();
    assert!((rtt - 0.101).abs() < 1e-4, "{rtt}");
    assert!((path.law.pacing_rate - 27.7 / rtt).abs() < 1e-3, "{}", path.law.pacing_rate);
}

/// Startup doubles until the path is full, three round trips show that it is, Drain takes the
/// queue away, and the circle of four begins.
#[test]
fn the_phases_follow_each_other() {
    let mut path = path();
    while path.phases.len() < 6 && path.now < 5.0 {
        path.run(path.now + 0.01);
    }
    // The queue is empty at the end of Drain, so that Down is over with the same ACK.
    let expected =
        [Phase::Startup, Phase::Drain, Phase::Cruise, Phase::Refill, Phase::Up, Phase::Down];
    let phases: Vec<Phase> = path.phases.iter().map(|(phase, _)| *phase).collect();
    assert_eq!(phases, expected);
    // 10, 20, 40, 80 packets in 0.4 s, the full path seen a round trip later, and three more, which
    // the queue makes up to twice as long.
    let drain = path.phases[1].1;
    assert!((0.7..1.3).contains(&drain), "{:?}", path.phases);
    let bandwidth = path.law.bandwidth();
    assert!((bandwidth / 1_000.0 - 1.0).abs() < 0.02, "{bandwidth}");
    // Two to three seconds after the probe before, and a round trip to fill the path.
    let wait = path.phases[3].1 - path.phases[2].1;
    assert!((2.0..3.1).contains(&wait), "{:?}", path.phases);
    let refill = path.phases[4].1 - path.phases[3].1;
    assert!((0.1..0.22).contains(&refill), "{:?}", path.phases);
}

/// 0.99 of what is measured, times the phase's gain; twice what is on the way.
#[test]
fn rate_and_window_are_the_models() {
    let mut path = path();
    path.run(2.0);
    assert_eq!(path.law.phase, Phase::Cruise);
    let rate = 1e9 / path.knobs.period_ns;
    assert!((rate / (0.99 * path.law.bandwidth()) - 1.0).abs() < 1e-9, "{rate}");
    let product = path.law.product(path.law.bandwidth(), 1.0);
    assert!((product - 101.0).abs() < 3.0, "{product}");
    let expected = 2.0 * product + path.law.excess.get();
    assert!((path.knobs.window / expected - 1.0).abs() < 1e-9, "{}", path.knobs.window);
    // The queue is empty.
    assert!((path.flight.len() as f64) < 103.0, "{}", path.flight.len());
    let gains = [
        (Phase::Startup, 2.77, 2.0),
        (Phase::Drain, 0.5, 2.0),
        (Phase::Down, 0.9, 2.0),
        (Phase::Cruise, 1.0, 2.0),
        (Phase::Refill, 1.0, 2.0),
        (Phase::Up, 1.25, 2.25),
        (Phase::ProbeRtt, 1.0, 0.5),
    ];
    for (phase, pacing, window) in gains {
        assert_eq!((phase.pacing_gain(), phase.window_gain()), (pacing, window), "{phase:?}");
    }
}

/// The queue is drained after five seconds without a round trip about as short, for 200 ms at half of what
/// fits the path.
#[test]
fn a_longer_round_trip_is_believed_after_ten_seconds() {
    let mut path = path();
    path.run(3.0);
    // From here the way is 20 ms longer.
    path.delay = 0.12;
    path.run(14.5);
    let rtt = path.law.min_rtt.get().expect("a sample").as_secs_f64();
    assert!((rtt - 0.121).abs() < 1e-3, "{rtt}");
    let probes: Vec<usize> =
        (0..path.phases.len()).filter(|n| path.phases[*n].0 == Phase::ProbeRtt).collect();
    assert!(!probes.is_empty(), "{:?}", path.phases);
    let (began, ended) = (path.phases[probes[0]].1, path.phases[probes[0] + 1].1);
    assert!((8.0..9.1).contains(&began), "five seconds after the last at 3 s: {:?}", path.phases);
    // Half a round trip to come down to the window, 200 ms, at least a round trip.
    assert!((0.2..0.5).contains(&(ended - began)), "{:?}", path.phases);
    assert_eq!(path.phases[probes[0] + 1].0, Phase::Cruise);
    // And again, after four intervals in which the queue was empty.
    path.run(31.0);
    let again: Vec<f64> = path
        .phases
        .iter()
        .filter(|phase| phase.0 == Phase::ProbeRtt)
        .map(|phase| phase.1)
        .collect();
    assert!(again.len() >= 2 && again[1] - ended > 19.0, "{:?}", path.phases);
}

#[test]
fn little_is_in_flight_while_the_round_trip_is_measured() {
    let mut path = path();
    let mut until = 4.0;
    while path.law.phase != Phase::ProbeRtt && until < 24.0 {
        until += 0.01;
        path.run(until);
    }
    // The queue is empty between probes, and four intervals pass without a need.
    assert!((20.0..23.0).contains(&until), "{until}");
    path.run(until + 0.2);
    assert_eq!(path.law.phase, Phase::ProbeRtt, "{:?}", path.phases);
    assert!((path.flight.len() as f64) <= 51.0, "{}", path.flight.len());
    assert_eq!(path.law.state(), "probe rtt");
    // What is measured here is no bandwidth.
    path.run(until + 1.0);
    let bandwidth = path.law.bandwidth();
    assert!((bandwidth / 1_000.0 - 1.0).abs() < 0.02, "{bandwidth}");
}

/// A round trip with losses leaves at least 0.7 of rate and window, and what was delivered.
#[test]
fn losses_lower_the_bounds_until_the_next_probe() {
    let mut path = path();
    path.run(2.0);
    assert_eq!(path.law.phase, Phase::Cruise);
    path.lose_every = 10;
    // Known a round trip later; the first round trip with losses has seen the rate before.
    path.run(2.45);
    path.lose_every = 0;
    let (bandwidth, shortterm) = (path.law.bounds.bandwidth, path.law.bounds.shortterm);
    assert!((850.0..990.0).contains(&bandwidth), "a tenth, once or twice: {bandwidth}");
    assert!((80.0..103.0).contains(&shortterm), "{shortterm}");
    assert!(path.law.bounds.longterm.is_infinite(), "nothing was probed");
    while path.law.phase != Phase::Up {
        path.run(path.now + 0.01);
    }
    assert!(path.law.bounds.bandwidth.is_infinite());
    assert!((path.law.bandwidth() / 1_000.0 - 1.0).abs() < 0.02);
}

/// A probe that loses more than 2% ends, and sets a bound for the long term.
#[test]
fn a_probe_that_loses_too_much_ends() {
    let mut path = path();
    path.run(2.0);
    while path.law.phase != Phase::Up {
        path.run(path.now + 0.01);
    }
    let began = path.now;
    path.lose_every = 20;
    while path.law.phase == Phase::Up {
        path.run(path.now + 0.01);
    }
    path.lose_every = 0;
    assert_eq!(path.law.phase, Phase::Down);
    assert!(path.now - began < 0.25, "{}", path.now - began);
    let longterm = path.law.bounds.longterm;
    assert!((70.0..130.0).contains(&longterm), "{longterm}");
    assert!(path.law.cycle.too_high);
    // In Cruise 15% of it are left to others.
    while path.law.phase != Phase::Cruise {
        path.run(path.now + 0.01);
    }
    path.run(path.now + 0.01);
    assert!(path.knobs.window <= 0.85 * path.law.bounds.longterm + 1e-9);
}

/// Six holes in a round trip, and more than 2% lost, end Startup.
#[test]
fn startup_ends_by_losses() {
    let mut path = Path::new(100_000.0, 0.1);
    path.lose_every = 10;
    path.run(1.0);
    assert_eq!(path.phases[1].0, Phase::Drain, "{:?}", path.phases);
    assert!(path.law.bounds.longterm.is_finite());
    assert!(!path.law.full_pipe.now, "the rate was still growing");
}

#[test]
fn a_time_out_leaves_what_is_in_flight_and_one() {
    let mut path = path();
    path.run(2.0);
    let window = path.knobs.window;
    let in_flight = path.flight.len() as f64;
    let view = path.view();
    path.law.on_timeout(&view, &mut path.knobs);
    assert_eq!(path.law.window, in_flight + 1.0);
    // UDT's engine is allowed a SYN interval's worth more while it repairs.
    assert!((path.knobs.window / (1.1 * (in_flight + 1.0)) - 1.0).abs() < 1e-9);
    path.run(2.5);
    assert!(path.knobs.window > 0.9 * window, "{window} {}", path.knobs.window);
}

/// draft: `InflightAtLoss`.
#[test]
fn the_loss_is_placed_where_it_crossed_the_threshold() {
    // 2% of 100 packets are two: the third of them lost is one too many.
    assert!((in_flight_at_loss(0.02, 101.0, 3.0, 1.0) - 100.0).abs() < 1e-9);
    // A burst of 50, ten of 60 in flight before it: (0.02 * 60 - 1) / 0.98 of it would do.
    let expected = 60.0 + (0.02 * 60.0 - 1.0) / 0.98;
    assert!((in_flight_at_loss(0.02, 110.0, 51.0, 50.0) - expected).abs() < 1e-9);
}

#[test]
fn the_long_term_bound_grows_by_1_2_4_packets() {
    let mut law = Bbr::new(10.0, DRAFT, Duration::from_secs(5), 1);
    (law.phase, law.window_limited, law.bounds.longterm) = (Phase::Up, true, 100.0);
    for growth in [1.0, 2.0, 4.0, 8.0] {
        let before = law.bounds.longterm;
        law.window = before;
        law.steepen();
        law.raise_longterm(before);
        assert_eq!(law.bounds.longterm, before + growth);
    }
    law.window -= 1.0;
    law.raise_longterm(1_000.0);
    assert_eq!(law.bounds.longterm, 115.0, "the window is not what holds the rate");
}

#[test]
fn data_after_a_silence_is_paced_at_the_bandwidth() {
    let mut path = path();
    path.run(2.0);
    // Everything arrives, and the application has no more.
    let rest: Vec<Record> = path.flight.drain(..).collect();
    for record in rest {
        path.flight.clear();
        path.news(record);
    }
    path.law.app_limited = true;
    path.now += 10.0;
    path.send();
    assert!(path.law.idle_restart);
    let rate = 1e9 / path.knobs.period_ns;
    assert!((rate / (0.99 * path.law.bandwidth()) - 1.0).abs() < 1e-9, "{rate}");
    // The silence has drained the queue: no ProbeRTT for a sample that is old.
    path.run(path.now + 0.11);
    assert_ne!(path.law.phase, Phase::ProbeRtt);
}

#[test]
fn the_highest_of_the_last_periods_counts() {
    let mut filter = MaxFilter::default();
    assert_eq!(filter.get(), 0.0);
    for (now, value, highest) in
        [(1, 5.0, 5.0), (1, 3.0, 5.0), (2, 4.0, 5.0), (3, 2.0, 4.0), (3, 3.0, 4.0), (4, 1.0, 3.0)]
    {
        filter.push(now, 2, value);
        assert_eq!(filter.get(), highest, "{now} {value}");
    }
    filter.push(4, 2, 9.0);
    assert_eq!(filter.get(), 9.0);
}

/// A queue that stands between probes eases the rate down, and the rate comes back once the queue has gone; a
/// probe begins at the whole bandwidth and leaves most of what was eased.
#[test]
fn the_rate_eases_down_while_a_queue_stands() {
    let mut path = path();
    path.law.tolerated.queue = 0.25;
    path.run(2.0);
    assert_eq!((path.law.phase, path.law.ease.gain()), (Phase::Cruise, 1.0));
    // As if others filled it, less than what a probe makes.
    path.delay = 0.12;
    path.run(2.7);
    let gain = path.law.ease.gain();
    assert!((0.7..0.95).contains(&gain), "{gain}");
    assert_eq!(path.law.phase, Phase::Cruise);
    assert!((path.law.bandwidth() / (gain * path.law.max_bandwidth.get()) - 1.0).abs() < 1e-9);
    path.delay = 0.1;
    // News of the shorter way comes a round trip later.
    path.run(2.95);
    let gain = path.law.ease.gain();
    path.run(3.2);
    let eased = path.law.ease.gain();
    assert!(eased > gain, "{eased} {gain} {:?}", path.phases);
    path.law.ease.begin_probe();
    assert_eq!(path.law.ease.gain(), 1.0, "a probe begins");
    path.law.ease.end_probe();
    assert!((path.law.ease.gain() - (1.0 - 0.7 * (1.0 - eased))).abs() < 0.03);
}
