//! Paths with known properties, in virtual time. With FARHAUL_LONG=1, more token buckets.

#![allow(clippy::unwrap_used, clippy::expect_fun_call, reason = "a test may panic")]

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use farhaul_base::{Rng, Time};
use farhaul_link::{Link, LinkConfig, Packet, QueueConfig};

use farhaul_doctor::path::*;
use farhaul_doctor::{HostReport, Severity, StageKind, advise};

const OVERHEAD: usize = 28;

#[derive(Clone, Debug)]
struct Datagram(Vec<u8>);

impl Packet for Datagram {
    fn wire_len(&self) -> usize {
        self.0.len() + OVERHEAD
    }

    fn corruptible_bits(&self) -> usize {
        self.0.len() * 8
    }

    fn flip_bit(&mut self, bit: usize) {
        self.0[bit / 8] ^= 1 << (bit % 8);
    }
}

/// A token bucket before a link, with a queue behind it or none (a policer).
struct Bucket {
    bits_per_second: f64,
    burst: f64,
    limit: usize,
    tokens: f64,
    /// When the tokens were counted, and before which nothing leaves.
    at: Time,
    /// When each run of datagrams leaves: one, or what left the host in one call of the system.
    queue: VecDeque<(Time, Vec<Datagram>)>,
    waiting: usize,
}

impl Bucket {
    fn new(bits_per_second: f64, burst: usize, limit: usize) -> Self {
        let (burst, queue) = (burst as f64, VecDeque::new());
        Bucket { bits_per_second, burst, limit, tokens: burst, at: Time::ZERO, queue, waiting: 0 }
    }

    fn offer(&mut self, now: Time, run: Vec<Datagram>) {
        let wire_len = wire_len(&run);
        let (bytes, from) = (wire_len as f64, now.max(self.at));
        let per_second = self.bits_per_second / 8.0;
        let tokens = self.tokens + (from - self.at).as_secs_f64() * per_second;
        let tokens = tokens.min(self.burst);
        let wait = Duration::from_secs_f64((bytes - tokens).max(0.0) / per_second);
        if (wait.is_zero() && from == now) || self.waiting + wire_len <= self.limit {
            self.at = from + wait;
            self.tokens = (tokens - bytes).max(0.0);
            self.waiting += wire_len;
            self.queue.push_back((self.at, run));
        }
    }
}

fn wire_len(run: &[Datagram]) -> usize {
    run.iter().map(Packet::wire_len).sum()
}

/// One direction: a link that takes packets up to an MTU, whole or in pieces.
struct Direction {
    link: Link<Datagram>,
    mtu: usize,
    /// Packets that are too large arrive in pieces, if they may be cut.
    cuts: bool,
    bucket: Option<Bucket>,
    /// The bucket takes what leaves the host in one call of the system in one piece, as that of Linux does
    /// behind segmentation offload.
    gathers: bool,
    gathered: Vec<Datagram>,
}

impl Direction {
    fn new(config: LinkConfig, mtu: usize, seed: u64) -> Self {
        let (bucket, gathered) = (None, Vec::new());
        Direction {
            link: Link::new(config, seed),
            mtu,
            cuts: false,
            bucket,
            gathers: false,
            gathered,
        }
    }

    /// Over Ethernet of 1 Gb/s.
    fn behind(bucket: Bucket, seed: u64) -> Self {
        let config = LinkConfig {
            rate: Some("1G".parse().unwrap()),
            delay: Duration::from_millis(10),
            ..LinkConfig::default()
        };
        Direction { bucket: Some(bucket), ..Direction::new(config, 1500, seed) }
    }

    /// To a host that takes a piece as it left, and gives all its datagrams one time.
    fn in_pieces(bucket: Bucket, seed: u64) -> Self {
        let config = LinkConfig { delay: Duration::from_millis(10), ..LinkConfig::default() };
        Direction { bucket: Some(bucket), gathers: true, ..Direction::new(config, 1500, seed) }
    }

    /// Of which `together` leave in one call.
    fn offer(&mut self, at: Time, bytes: &[u8], whole: bool, together: u32) {
        if bytes.len() + OVERHEAD > self.mtu && (whole || !self.cuts) {
            return;
        }
        let datagram = Datagram(bytes.to_vec());
        match &mut self.bucket {
            Some(_) if self.gathers => {
                self.gathered.push(datagram);
                if self.gathered.len() >= together as usize {
                    self.flush(at);
                }
            }
            Some(bucket) => bucket.offer(at, vec![datagram]),
            // A full queue drops it, as it should.
            None => _ = self.link.offer(at, datagram),
        }
    }

    /// Sends what was gathered.
    fn flush(&mut self, at: Time) {
        let run = std::mem::take(&mut self.gathered);
        if let Some(bucket) = self.bucket.as_mut().filter(|_| !run.is_empty()) {
            bucket.offer(at, run);
        }
    }

    fn next_event(&self) -> Option<Time> {
        let leaves = self.bucket.as_ref().and_then(|bucket| Some(bucket.queue.front()?.0));
        [leaves, self.link.next_event()].into_iter().flatten().min()
    }

    fn poll(&mut self, now: Time) -> Option<(Time, Datagram)> {
        if let Some(bucket) = &mut self.bucket {
            while bucket.queue.front().is_some_and(|(at, _)| *at <= now) {
                let (at, run) = bucket.queue.pop_front().expect("it is there");
                bucket.waiting -= wire_len(&run);
                for datagram in run {
                    let _ = self.link.offer(at, datagram);
                }
            }
        }
        self.link.poll(now)
    }
}

/// 200 Mb/s, 80 ms.
fn long_fat() -> LinkConfig {
    LinkConfig {
        rate: Some("200M".parse().unwrap()),
        delay: Duration::from_millis(40),
        queue: QueueConfig::Bdp { rtt: Duration::from_millis(80) },
        ..LinkConfig::default()
    }
}

fn secret() -> Secret {
    Secret::new(b"0123456789abcdef").unwrap()
}

/// Measures, with a responder whose clock is `ahead`; the report and the time it took.
fn measure(forward: Direction, back: Direction, ahead: Duration) -> (PathReport, Duration) {
    measure_paused(forward, back, ahead, |now| now)
}

/// With a responder that has its turn only when `turn` says, told when something has come for it.
fn measure_paused(
    mut forward: Direction,
    mut back: Direction,
    ahead: Duration,
    mut turn: impl FnMut(Time) -> Time,
) -> (PathReport, Duration) {
    let begin = Time::from_secs(1_000);
    let mut prober = Prober::new(ProbeConfig::default(), secret(), 7, begin);
    let mut responder = Responder::new(secret());
    let from: SocketAddr = "10.0.0.1:5".parse().unwrap();
    let (mut now, mut out) = (begin, Vec::new());
    let mut waiting: VecDeque<(Time, Time, Datagram)> = VecDeque::new();
    loop {
        while prober.poll(now, &mut out) {
            let (together, whole) = prober.manner();
            forward.offer(now, &out, whole, together);
        }
        forward.flush(now);
        let Some(timeout) = prober.next_timeout() else { break };
        let turn_at = waiting.front().map(|(at, ..)| *at);
        let events = [forward.next_event(), back.next_event(), turn_at];
        now = events.into_iter().flatten().fold(timeout, Time::min).max(now);
        while let Some((at, datagram)) = forward.poll(now) {
            waiting.push_back((turn(at), at, datagram));
        }
        while waiting.front().is_some_and(|(at, ..)| *at <= now) {
            let (at, came, datagram) = waiting.pop_front().expect("it is there");
            let answer = responder.handle(came + ahead, at + ahead, from, &datagram.0, &mut out);
            if let Some(together) = answer {
                assert!(out.len() <= datagram.0.len());
                back.offer(at, &out, true, together);
            }
        }
        back.flush(now);
        while let Some((at, datagram)) = back.poll(now) {
            prober.handle(at, &datagram.0);
        }
        assert!(now - begin < Duration::from_secs(60), "it does not end: {prober:?}");
    }
    (prober.report().expect("it is done").clone(), now - begin)
}

fn both_ways(config: LinkConfig, mtu: usize) -> (PathReport, Duration) {
    let (there, back) = (Direction::new(config.clone(), mtu, 1), Direction::new(config, mtu, 2));
    measure(there, back, Duration::from_millis(350))
}

/// Whether the long runs are wanted too.
fn long() -> bool {
    std::env::var_os("FARHAUL_LONG").is_some_and(|value| value == "1")
}

#[track_caller]
fn near(value: f64, expected: f64, tolerance: f64) {
    assert!((value - expected).abs() <= tolerance * expected.abs(), "{value}, not {expected}");
}

#[test]
fn a_long_fat_path() {
    let (report, took) = both_ways(long_fat(), 1400);
    assert_eq!(report.reach, Reach::Both);
    let rtt = report.rtt.unwrap();
    near(rtt.min_ms, 80.0, 0.005);
    near(rtt.median_ms, 80.0, 0.005);
    near(rtt.p95_ms, 80.0, 0.005);
    assert_eq!(rtt.samples, 1000);
    for way in [report.forward, report.back] {
        assert_eq!((way.sent, way.lost, way.reordered), (1000, 0, 0.0));
        assert_eq!(way.mtu, Some(1400));
        near(way.capacity.unwrap(), 200e6, 0.01);
    }
    assert!(!report.forward.capacity_is_least);
    assert!(report.back.capacity_is_least, "what comes back is no faster than what went there");
    let load = report.load.unwrap();
    near(load.offered, 180e6, 0.02);
    assert_eq!(load.lost, 0);
    near(report.clock_offset_ms.unwrap(), 350.0, 0.001);
    near(report.clock_error_ms.unwrap(), 40.0, 0.01);
    assert!(took < Duration::from_secs(8), "{took:?}");
    assert!(report.bytes_sent < 60_000_000, "{report:?}");
}

#[test]
fn losses_are_told_by_direction() {
    let forward = LinkConfig { loss: "1%".parse().unwrap(), ..long_fat() };
    let back = LinkConfig { loss: "0.1%".parse().unwrap(), ..long_fat() };
    let there = Direction::new(forward, 1500, 1);
    let (report, _) = measure(there, Direction::new(back, 1500, 2), Duration::ZERO);
    // A thousand draws with 1%: three deviations are 0.95%.
    assert!((0.0005..0.0195).contains(&report.forward.loss()), "{report:?}");
    assert!(report.back.loss() < 0.004, "{report:?}");
    // Some 15,000 draws: three deviations are a quarter of a per cent.
    near(report.load.unwrap().loss(), 0.01, 0.3);
    assert_eq!((report.forward.mtu, report.back.mtu), (Some(1500), Some(1500)));
    near(report.forward.capacity.unwrap(), 200e6, 0.03);
}

#[test]
fn small_losses_leave_the_rest_as_it_is() {
    let config = LinkConfig { loss: "0.1%".parse().unwrap(), ..long_fat() };
    let (report, _) = both_ways(config, 1400);
    assert_eq!((report.forward.mtu, report.back.mtu), (Some(1400), Some(1400)));
    near(report.forward.capacity.unwrap(), 200e6, 0.02);
    near(report.load.unwrap().loss(), 0.001, 0.9);
}

#[test]
fn the_ways_may_differ() {
    let narrow = LinkConfig { rate: Some("20M".parse().unwrap()), ..long_fat() };
    let there = Direction::new(long_fat(), 1500, 1);
    let (report, _) = measure(there, Direction::new(narrow, 1280, 2), Duration::ZERO);
    assert_eq!((report.forward.mtu, report.back.mtu), (Some(1500), Some(1280)));
    near(report.forward.capacity.unwrap(), 200e6, 0.01);
    near(report.back.capacity.unwrap(), 20e6, 0.03);
    assert!(!report.back.capacity_is_least);
}

#[test]
fn reordering_is_seen() {
    let config = LinkConfig { reorder: Some("5%:3".parse().unwrap()), ..long_fat() };
    let there = Direction::new(config, 1500, 1);
    let (report, _) = measure(there, Direction::new(long_fat(), 1500, 2), Duration::ZERO);
    assert!((0.03..0.07).contains(&report.forward.reordered), "{report:?}");
    assert!(report.back.reordered < 0.02, "{report:?}");
    assert_eq!(report.forward.lost, 0);
}

#[test]
fn capacities_from_slow_to_fast() {
    for (rate, delay, bits) in
        [("1M", 20, 1e6), ("20M", 5, 20e6), ("1G", 10, 1e9), ("10G", 50, 10e9)]
    {
        let config = LinkConfig {
            rate: Some(rate.parse().unwrap()),
            delay: Duration::from_millis(delay),
            queue: QueueConfig::Packets(1000),
            ..LinkConfig::default()
        };
        let (report, took) = both_ways(config, 1500);
        near(report.forward.capacity.unwrap(), bits, 0.03);
        assert_eq!(report.forward.mtu, Some(1500), "{rate}");
        assert!(took < Duration::from_secs(12), "{rate}: {took:?}");
    }
}

/// A queue of ten packets drops most of a train; what passes leaves at the link's rate all the same.
#[test]
fn short_queues_do_not_mislead() {
    let config = LinkConfig { queue: QueueConfig::Packets(10), ..long_fat() };
    let (report, _) = both_ways(config, 1500);
    near(report.forward.capacity.unwrap(), 200e6, 0.05);
    assert_eq!(report.load.unwrap().lost, 0);
}

/// What a bucket lets through at once is no rate: shapers with long queues and with short ones, policers
/// without, bursts from 16 kB to more than the trains are long.
#[test]
fn behind_a_token_bucket() {
    // The fastest of them are the slowest to test.
    let bits = if long() { &[5e6, 50e6, 200e6, 500e6][..] } else { &[5e6, 50e6] };
    let bursts =
        if long() { &[16_000, 64_000, 500_000, 4_000_000][..] } else { &[64_000, 300_000] };
    for &bits in bits {
        for &burst in bursts {
            for queue_ms in [0.0, 2.0, 50.0] {
                let limit = (bits / 8e3 * queue_ms) as usize;
                let bucket = || Bucket::new(bits, burst, limit);
                let (there, back) =
                    (Direction::behind(bucket(), 1), Direction::behind(bucket(), 2));
                let (report, took) = measure(there, back, Duration::ZERO);
                let case = format!("{bits}, {burst}, {queue_ms} ms: {report:#?}");
                let capacity = report.forward.capacity.expect(&case);
                assert!((capacity / bits - 1.0).abs() < 0.1, "{case}");
                assert!(!report.forward.capacity_is_least, "{case}");
                let load = report.load.expect(&case);
                assert!(load.loss() < 0.005, "{case}");
                assert!((0.85..0.96).contains(&(load.offered / bits)), "{case}");
                assert!(took < Duration::from_secs(20), "{took:?}: {case}");
            }
        }
    }
}

/// A queue takes as many bytes of a long train as of a short one. Were a long one to leave in larger pieces, only a
/// few would pass, at too few times to tell a rate.
#[test]
fn a_train_that_fills_the_queue_still_comes_in_many_pieces() {
    for (bits, burst, limit) in
        [(20e6, 64_000, 125_000), (50e6, 64_000, 125_000), (5e6, 30_000, 60_000)]
    {
        let bucket = || Bucket::new(bits, burst, limit);
        let (there, back) = (Direction::in_pieces(bucket(), 1), Direction::in_pieces(bucket(), 2));
        let (report, _) = measure(there, back, Duration::ZERO);
        let case = format!("{bits}, {burst}, {limit}: {report:#?}");
        for way in [report.forward, report.back] {
            let capacity = way.capacity.expect(&case);
            assert!((capacity / bits - 1.0).abs() < 0.1, "{case}");
        }
        assert!(!report.forward.capacity_is_least, "{case}");
    }
}

/// A responder that has its turn now and then only: what it sends late is told of its host, not of the
/// path.
#[test]
fn a_busy_responder_is_no_narrow_path() {
    for seed in 0..if long() { 100 } else { 10 } {
        let (mut rng, mut pause) = (Rng::new(seed), (Time::ZERO, Time::ZERO));
        let turn = |now: Time| {
            // Of every 25 ms or so it has 20.
            while now >= pause.1 {
                let from = pause.1.max(now) + Duration::from_secs_f64(rng.exponential(0.02));
                pause = (from, from + Duration::from_secs_f64(rng.exponential(0.005)));
            }
            if now < pause.0 { now } else { pause.1 }
        };
        let bucket = || Bucket::new(20e6, 64_000, 125_000);
        let (there, back) = (Direction::behind(bucket(), 1), Direction::behind(bucket(), 2));
        let (report, took) = measure_paused(there, back, Duration::ZERO, turn);
        near(report.forward.capacity.unwrap(), 20e6, 0.1);
        assert!(!report.forward.capacity_is_least, "{seed}: {report:#?}");
        let back = report.back.capacity.unwrap() / 20e6;
        assert!((0.4..1.1).contains(&back), "{seed}: {back}: {report:#?}");
        assert!(back > 0.9 || report.back.capacity_is_least, "{seed}: {report:#?}");
        assert!(took < Duration::from_secs(12), "{took:?}");
    }
}

/// The path's own losses are told from those of a stream that is too fast, and lower no capacity.
#[test]
fn losses_by_chance_are_not_those_of_a_bucket() {
    let lossy = LinkConfig { loss: "5%".parse().unwrap(), ..long_fat() };
    let (report, _) = both_ways(lossy.clone(), 1500);
    near(report.forward.capacity.unwrap(), 200e6, 0.06);
    near(report.load.unwrap().loss(), 0.05, 0.2);
    // Both at once.
    let mut there = Direction::new(lossy, 1500, 1);
    there.bucket = Some(Bucket::new(50e6, 4_000_000, 20_000));
    let (report, _) = measure(there, Direction::new(long_fat(), 1500, 2), Duration::ZERO);
    near(report.forward.capacity.unwrap(), 50e6, 0.1);
    near(report.load.unwrap().loss(), 0.05, 0.3);
}

#[test]
fn packets_that_are_cut_are_told_from_those_that_are_lost() {
    for cuts in [true, false] {
        for mtu in [1280, 1000] {
            let there = Direction { cuts, ..Direction::new(long_fat(), mtu, 1) };
            let back = Direction::new(long_fat(), 1500, 2);
            let (report, _) = measure(there, back, Duration::ZERO);
            let whole = (mtu == 1280).then_some(1280);
            assert_eq!((report.forward.mtu, report.forward.fragments), (whole, Some(cuts)));
            assert_eq!(report.back.fragments, None);
            near(report.forward.capacity.unwrap(), 200e6, 0.02);
        }
    }
    let (report, _) = both_ways(long_fat(), 1500);
    assert_eq!(report.forward.fragments, None);
}

/// What it would gain not to cut packets is not measured: no piece of advice promises more than the limit that
/// the diagnosis names.
#[test]
fn advice_promises_no_more_than_the_limit_of_a_path_that_cuts_packets() {
    let fast = LinkConfig { rate: Some("10G".parse().unwrap()), ..long_fat() };
    let there = Direction { cuts: true, ..Direction::new(fast.clone(), 1280, 1) };
    let (report, _) = measure(there, Direction::new(fast, 1500, 2), Duration::ZERO);
    assert_eq!(report.forward.fragments, Some(true));
    let found = advise(&HostReport::default(), None, Some(&report));
    let limit = found.expected.unwrap();
    assert_eq!(found.stages[0].kind, StageKind::Send, "{found:#?}");
    let smaller = found.advice.iter().find(|advice| advice.severity == Severity::Helps).unwrap();
    assert_eq!(smaller.gain, Some(1.0), "{found:#?}");
    assert!(found.advice.iter().all(|told| told.expected.unwrap() <= limit), "{found:#?}");
}

#[test]
fn jitter_and_damage_are_survived() {
    let config = LinkConfig {
        jitter: "5ms:reorder".parse().unwrap(),
        duplicate: "2%".parse().unwrap(),
        corrupt: "1%".parse().unwrap(),
        ..long_fat()
    };
    let (report, _) = both_ways(config, 1500);
    let rtt = report.rtt.unwrap();
    assert!((80.0..82.0).contains(&rtt.min_ms) && (84.0..86.0).contains(&rtt.median_ms), "{rtt:?}");
    assert!((86.0..90.1).contains(&rtt.p95_ms), "{rtt:?}");
    // Of small datagrams 80 of 200 bytes are protected: damage elsewhere does not matter.
    assert!(report.forward.loss() < 0.012, "{report:?}");
    near(report.forward.capacity.unwrap(), 200e6, 0.15);
}

#[test]
fn silence_is_told_within_its_time() {
    let cut = LinkConfig { loss: "100%".parse().unwrap(), ..LinkConfig::default() };
    let (report, took) = both_ways(cut, 1500);
    assert_eq!(report.reach, Reach::NoAnswer);
    assert_eq!(PathReport { bytes_sent: 0, ..report }, PathReport::default());
    assert!((4_750..5_500).contains(&took.as_millis()), "{took:?}");
}

#[test]
fn a_path_that_takes_small_packets_only_has_no_mtu() {
    let (report, _) = both_ways(long_fat(), 1000);
    assert_eq!((report.reach, report.forward.mtu), (Reach::Both, None));
    near(report.forward.capacity.unwrap(), 200e6, 0.02);
}

#[test]
fn a_path_that_dies_ends_the_measurement() {
    let dies = LinkConfig { blackouts: vec!["1001s+1000s".parse().unwrap()], ..long_fat() };
    let (report, took) = both_ways(dies, 1500);
    assert_eq!(report.reach, Reach::Both);
    assert!(report.rtt.unwrap().samples < 1000);
    assert_eq!(report.forward.capacity, None);
    assert!(took < Duration::from_secs(40), "{took:?}");
}
