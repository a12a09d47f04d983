//! Queue disciplines against what their RFCs say of them, with sources that do not answer.

mod common;

use std::collections::BTreeMap;

use common::Probe;
use farhaul_base::Time;
use farhaul_link::{Ecn, Link, LinkConfig, LinkStats};

/// A source of constant rate: packets of `bytes`, one every `every_us`.
#[derive(Clone, Copy)]
struct Source {
    bytes: usize,
    every_us: u64,
    ecn: Ecn,
}

/// For each source the delays of its packets that arrived in the second half of `seconds`, in
/// milliseconds, and how many of them were marked.
type Seen = BTreeMap<u64, (Vec<f64>, usize)>;

/// 12 Mb/s: a packet of 1500 bytes takes a millisecond.
fn run(queue: &str, sources: &[Source], seconds: u64) -> (Seen, LinkStats) {
    let config = LinkConfig {
        rate: Some("12M".parse().expect("a rate")),
        queue: queue.parse().expect("a queue"),
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, 3);
    let mut offers: Vec<(u64, u64, Source)> = Vec::new();
    for (flow, source) in (0..).zip(sources) {
        offers.extend((0..seconds * 1_000_000 / source.every_us).map(|n| {
            // Not all at the same time.
            (n * source.every_us + 37 * flow, flow, *source)
        }));
    }
    offers.sort_by_key(|(at, flow, _)| (*at, *flow));
    let mut seen = Seen::new();
    let mut take = |link: &mut Link<Probe>, now: Time| {
        while let Some((at, probe)) = link.poll(now) {
            let sent = Time::from_micros(probe.id);
            if sent > Time::from_micros(seconds * 500_000) {
                let (delays, marked) = seen.entry(probe.flow).or_default();
                delays.push((at - sent).as_secs_f64() * 1e3);
                *marked += usize::from(probe.ecn == Ecn::Marked);
            }
        }
    };
    for (at, flow, source) in offers {
        let at_time = Time::from_micros(at);
        take(&mut link, at_time);
        let _ = link.offer(at_time, Probe::new(at, source.bytes).of(flow, source.ecn));
    }
    take(&mut link, Time::from_micros(seconds * 1_000_000));
    (seen, link.stats())
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

const BULK: Source = Source { bytes: 1_500, every_us: 900, ecn: Ecn::NotCapable };

/// Of 11% too much, that share is dropped, and the delay is what is aimed at (RFC 8033 §4.1).
#[test]
fn pie_holds_its_target() {
    for target_ms in [15.0, 40.0] {
        let (seen, stats) = run(&format!("pie:target={target_ms}ms"), &[BULK], 120);
        let delay = mean(&seen[&0].0);
        assert!((delay / target_ms - 1.0).abs() < 0.35, "{target_ms} ms: {delay}");
        let dropped = stats.dropped_early as f64 / stats.offered as f64;
        assert!((0.08..0.13).contains(&dropped), "{dropped}");
    }
}

/// What can be marked is not dropped while the probability is low: a source that is 4% too fast, and
/// does not heed the marks, is marked as often as another is dropped.
#[test]
fn pie_marks_what_it_would_drop() {
    let slight = Source { every_us: 965, ..BULK };
    let (_, dropping) = run("pie:limit=400p", &[slight], 60);
    let (_, marking) = run("pie:limit=400p", &[Source { ecn: Ecn::Ect0, ..slight }], 60);
    assert!(dropping.marked == 0 && dropping.dropped_early > 500, "{dropping:?}");
    assert!(marking.marked > 500, "{marking:?}");
}

#[test]
fn codel_and_red_mark_what_is_capable() {
    for queue in ["codel:limit=400p", "red:limit=400p,min=5,max=200", "fq_codel:limit=400p"] {
        let (_, plain) = run(queue, &[BULK], 20);
        let (seen, marked) = run(queue, &[Source { ecn: Ecn::Ect0, ..BULK }], 20);
        assert!(plain.marked == 0 && plain.dropped_early > 0, "{queue}: {plain:?}");
        assert!(marked.marked > 0, "{queue}: {marked:?}");
        assert!(seen[&0].1 > 0 && marked.dropped_early < plain.dropped_early, "{queue}");
    }
}

/// A thin flow beside fast ones that do not answer has the delay of its own turn (RFC 8290 §1.3), where
/// CoDel alone gives it theirs.
#[test]
fn fq_codel_isolates_a_thin_flow() {
    let thin = Source { bytes: 200, every_us: 20_000, ecn: Ecn::NotCapable };
    let sources = [BULK, BULK, BULK, thin];
    let (flows, _) = run("fq_codel:limit=1000p", &sources, 20);
    let (one, _) = run("codel:limit=1000p", &sources, 20);
    let (apart, together) = (mean(&flows[&3].0), mean(&one[&3].0));
    assert!(apart < 2.5, "{apart} ms");
    assert!(together > 100.0, "{together} ms");
    assert_eq!(flows[&3].0.len(), 500, "none is lost");
    // The others share what is left.
    let counts: Vec<usize> = (0..3).map(|flow| flows[&flow].0.len()).collect();
    assert!(counts.iter().all(|n| (3_200..3_350).contains(n)), "{counts:?}");
}

/// Where there is no room the longest queue gives way, and not the one that comes.
#[test]
fn fq_codel_drops_from_the_longest() {
    let slow = Source { every_us: 5_000, ..BULK };
    let (seen, stats) = run("fq_codel:limit=20p,target=1s,interval=10s", &[BULK, BULK, slow], 20);
    assert_eq!(seen[&2].0.len(), 2_000, "none is lost");
    assert!(stats.dropped_queue > 1_000 && stats.queue.packets_max <= 20, "{stats:?}");
}

/// The low-latency queue has a delay of about a millisecond while the classic one has its target, and what is in it is
/// marked and not dropped (RFC 9332 §2.4, §2.5).
#[test]
fn dualpi2_keeps_the_delay_of_one_queue_low() {
    let classic = Source { every_us: 1_800, ..BULK };
    let low = Source { every_us: 2_400, ecn: Ecn::Ect1, ..BULK };
    let (seen, stats) = run("dualpi2:limit=1000p", &[classic, low], 60);
    let [classic, low] = [&seen[&0], &seen[&1]];
    let mut delays = low.0.clone();
    delays.sort_by(f64::total_cmp);
    assert!(mean(&delays) < 3.0 && delays[delays.len() * 99 / 100] < 4.0, "{}", mean(&delays));
    // 0.97 of the link are asked for; no queue stands.
    assert!(mean(&classic.0) < 15.0, "{}", mean(&classic.0));
    assert_eq!(stats.dropped(), 0);
    // More than there is: the classic queue drops, the other one is marked.
    let (seen, stats) = run(
        "dualpi2:limit=1000p",
        &[Source { every_us: 1_550, ..BULK }, Source { every_us: 2_400, ecn: Ecn::Ect1, ..BULK }],
        120,
    );
    let (classic, low) = (mean(&seen[&0].0), mean(&seen[&1].0));
    assert!((10.0..25.0).contains(&classic), "{classic} ms");
    assert!(low < 3.0, "{low} ms");
    assert!(seen[&1].1 > 0 && stats.dropped_early > 100, "{stats:?}");
    let coupled = seen[&1].1 as f64 / seen[&1].0.len() as f64;
    // A tenth of the classic packets is dropped: 2 √0.1 is some 0.6.
    assert!((0.3..0.8).contains(&coupled), "{coupled}");
}

#[test]
fn dualpi2_marks_classic_packets_that_are_capable() {
    let source = Source { every_us: 960, ecn: Ecn::Ect0, ..BULK };
    let (seen, stats) = run("dualpi2:limit=4000p", &[source], 60);
    assert!(seen[&0].1 > 100, "{stats:?}");
}

/// No source heeds the marks: then either queue drops.
#[test]
fn dualpi2_drops_when_marks_do_not_help() {
    let low = Source { every_us: 600, ecn: Ecn::Ect1, ..BULK };
    let (_, stats) = run("dualpi2:limit=1000p", &[low], 60);
    assert!(stats.dropped_early > 1_000, "{stats:?}");
}
