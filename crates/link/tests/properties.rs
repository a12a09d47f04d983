//! What must hold for any link under any load.

mod common;

use std::time::Duration;

use common::{Probe, drain};
use farhaul_base::{Rng, Time};
use farhaul_link::{
    Blackout, CoDel, DelayChange, DelayChanges, DeliveryTrace, Displacement, DualPi2, FqCoDel,
    GilbertElliott, Jitter, JitterShape, Link, LinkConfig, LossModel, Pie, Policer, Probability,
    Profile, QueueConfig, QueueLimit, Rate, RateChange, RateChanges, Red, Reorder, Slots,
};
use proptest::prelude::*;

fn probability() -> impl Strategy<Value = Probability> {
    prop_oneof![Just(0.0), 0.0..=1.0, Just(1.0)]
        .prop_map(|p| Probability::new(p).expect("within [0, 1]"))
}

fn span(longest_us: u64) -> impl Strategy<Value = Duration> {
    prop_oneof![Just(0), 0..longest_us].prop_map(Duration::from_micros)
}

fn limit() -> impl Strategy<Value = QueueLimit> {
    prop_oneof![
        Just(QueueLimit::Unlimited),
        (0..50u32).prop_map(QueueLimit::Packets),
        (0..50_000u64).prop_map(QueueLimit::Bytes),
        span(50_000).prop_map(|rtt| QueueLimit::Bdp { rtt }),
    ]
}

fn red() -> impl Strategy<Value = Red> {
    let thresholds = (prop::option::of(0.0..20.0), prop::option::of(0.1..20.0));
    let thresholds = thresholds.prop_map(|(min, above): (Option<f64>, Option<f64>)| {
        (min, above.map(|above| min.unwrap_or(0.0) + above))
    });
    let weight =
        prop::option::of((1e-6..=1.0).prop_map(|w| Probability::new(w).expect("in range")));
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (limit(), thresholds, weight, probability(), flags, 1..3_000u32, span(20_000)).prop_map(
        |(limit, (min, max), weight, max_p, (gentle, wait, bytes), mean, target)| {
            let mean = mean.try_into().expect("not zero");
            Red { limit, min, max, weight, max_p, gentle, wait, mean, bytes, target }
        },
    )
}

fn codel() -> impl Strategy<Value = CoDel> {
    (limit(), target(), 1..50_000u64).prop_map(|(limit, target, interval)| CoDel {
        limit,
        target,
        interval: Duration::from_micros(interval),
    })
}

fn fq_codel() -> impl Strategy<Value = FqCoDel> {
    (codel(), 1..20u32, 1..4_000u32).prop_map(|(codel, flows, quantum)| FqCoDel {
        limit: codel.limit,
        flows: flows.try_into().expect("not zero"),
        quantum: quantum.try_into().expect("not zero"),
        target: codel.target,
        interval: codel.interval,
    })
}

/// No text asks for a target of 0.
fn target() -> impl Strategy<Value = Duration> {
    (1..20_000u64).prop_map(Duration::from_micros)
}

fn queue() -> impl Strategy<Value = QueueConfig> {
    prop_oneof![
        2 => limit().prop_map(QueueConfig::from),
        1 => red().prop_map(QueueConfig::Red),
        1 => codel().prop_map(QueueConfig::CoDel),
        1 => (limit(), target()).prop_map(|(limit, target)| QueueConfig::Pie(Pie { limit, target })),
        1 => fq_codel().prop_map(QueueConfig::FqCoDel),
        1 => (limit(), target()).prop_map(|(limit, target)| {
            QueueConfig::DualPi2(DualPi2 { limit, target, ..DualPi2::default() })
        }),
    ]
}

fn rate() -> impl Strategy<Value = Option<Rate>> {
    prop::option::of(1_000u64..1_000_000_000)
        .prop_map(|rate| rate.and_then(Rate::from_bits_per_second))
}

fn rate_changes() -> impl Strategy<Value = RateChanges> {
    let steps = prop::collection::vec((1..5_000_000u64, 1_000u64..1_000_000_000), 0..5);
    (steps, prop::option::of(1_000_000..10_000_000u64)).prop_map(|(steps, pause)| {
        let mut at = Duration::ZERO;
        let changes = steps.into_iter().map(|(step, rate)| {
            let rate = Rate::from_bits_per_second(rate).expect("not zero");
            let change = RateChange { at, rate };
            at += Duration::from_nanos(step);
            change
        });
        let changes = changes.collect();
        let every = pause.map(|pause| at + Duration::from_nanos(pause));
        RateChanges::new(changes, every).expect("in order")
    })
}

fn delay_changes() -> impl Strategy<Value = DelayChanges> {
    let steps = prop::collection::vec((1..5_000_000u64, span(30_000), any::<bool>()), 0..5);
    (steps, prop::option::of(1..10_000_000u64)).prop_map(|(steps, pause)| {
        let mut at = Duration::ZERO;
        let changes = steps.into_iter().map(|(step, delay, reorder)| {
            let change = DelayChange { at, delay, reorder };
            at += Duration::from_nanos(step);
            change
        });
        let changes = changes.collect();
        let every = pause.map(|pause| at + Duration::from_nanos(pause));
        DelayChanges::new(changes, every).expect("in order")
    })
}

fn delivery() -> impl Strategy<Value = Option<DeliveryTrace>> {
    let stamps = prop::collection::vec(0..30u32, 1..40).prop_map(|mut stamps| {
        stamps.sort_unstable();
        stamps.push(31);
        DeliveryTrace::new(stamps).expect("in order")
    });
    prop_oneof![3 => Just(None), 1 => stamps.prop_map(Some)]
}

fn policer() -> impl Strategy<Value = Option<Policer>> {
    let policer = (1_000_000u64..1_000_000_000, 1..20_000u64);
    let policer = policer.prop_map(|(rate, burst)| {
        let rate = Rate::from_bits_per_second(rate).expect("not zero");
        Policer { rate, burst }
    });
    prop_oneof![2 => Just(None), 1 => policer.prop_map(Some)]
}

fn loss() -> impl Strategy<Value = LossModel> {
    let bursts = (probability(), probability(), probability(), probability()).prop_map(
        |(p, r, loss_good, loss_bad)| {
            LossModel::GilbertElliott(GilbertElliott { p, r, loss_good, loss_bad })
        },
    );
    prop_oneof![
        Just(LossModel::None),
        probability().prop_map(LossModel::Uniform),
        (0.0..1e-3).prop_map(|p| LossModel::PerBit(Probability::new(p).expect("within [0, 1]"))),
        bursts,
        (1.0..100.0, 0.0..50.0).prop_map(|(mean, sd)| LossModel::Gaussian { mean, sd }),
        (1.0..100.0).prop_map(|mean| LossModel::Poisson { mean }),
        (1..20u64).prop_map(|n| LossModel::Periodic { every: n.try_into().expect("not zero") }),
        prop::collection::vec((0..100u64, 0..20u64), 0..5).prop_map(|ranges| {
            LossModel::Scripted(ranges.into_iter().map(|(at, n)| at..=at + n).collect())
        }),
    ]
}

fn reorder() -> impl Strategy<Value = Option<Reorder>> {
    let by = prop_oneof![
        span(5_000).prop_map(Displacement::Delay),
        (0..6u32, span(20_000))
            .prop_map(|(packets, at_most)| Displacement::Positions { packets, at_most }),
        (1..20u32).prop_map(|gap| Displacement::Ahead { gap }),
    ];
    prop::option::of((probability(), by).prop_map(|(probability, by)| Reorder { probability, by }))
}

fn jitter() -> impl Strategy<Value = Jitter> {
    let shape = prop_oneof![
        Just(JitterShape::Uniform),
        Just(JitterShape::Around),
        Just(JitterShape::Normal),
        Just(JitterShape::Pareto),
    ];
    (span(5_000), shape, probability(), any::<bool>()).prop_map(
        |(size, shape, correlation, overtake)| Jitter { size, shape, correlation, overtake },
    )
}

fn slots() -> impl Strategy<Value = Option<Slots>> {
    let length = 1..5_000u64;
    let slots = (length.clone(), length).prop_map(|(one, other)| Slots {
        least: Duration::from_micros(one.min(other)),
        most: Duration::from_micros(one.max(other)),
    });
    prop::option::of(slots)
}

fn config() -> impl Strategy<Value = LinkConfig> {
    let timing = (
        (rate(), rate_changes(), delivery(), policer()),
        (span(30_000), delay_changes()),
        jitter(),
        slots(),
    );
    let blackout = (span(50_000), span(5_000), prop::option::of(span(20_000)))
        .prop_map(|(start, length, every)| Blackout { start, length, every });
    let blackouts = prop::collection::vec(blackout, 0..3);
    (timing, queue(), loss(), reorder(), probability(), probability(), blackouts).prop_map(
        |(
            ((rate, rate_changes, trace, policer), (delay, delay_changes), jitter, slots),
            queue,
            loss,
            reorder,
            duplicate,
            corrupt,
            blackouts,
        )| LinkConfig {
            rate,
            rate_changes,
            trace,
            policer,
            delay,
            delay_changes,
            jitter,
            slots,
            queue,
            loss,
            reorder,
            duplicate,
            corrupt,
            blackouts,
        },
    )
}

/// Times (ascending) and sizes of offers.
fn offers() -> impl Strategy<Value = Vec<(Time, usize)>> {
    prop::collection::vec((prop_oneof![Just(0u64), 0..200_000u64], 0..3_000usize), 0..300).prop_map(
        |steps| {
            let mut now = 0;
            let timed = steps.into_iter().map(|(step, bytes)| {
                now += step;
                (Time::from_nanos(now), bytes)
            });
            timed.collect()
        },
    )
}

/// Offers all; between offers polls at every event (`eager`) or not at all.
fn run(
    config: &LinkConfig,
    seed: u64,
    offers: &[(Time, usize)],
    eager: bool,
) -> (Link<Probe>, Vec<(Time, Probe)>) {
    let mut link = Link::new(config.clone(), seed);
    let mut out = Vec::new();
    for (id, (at, bytes)) in offers.iter().enumerate() {
        while eager && let Some(event) = link.next_event().filter(|event| event < at) {
            while let Some(arrival) = link.poll(event) {
                assert_eq!(arrival.0, event, "an arrival before the announced event");
                out.push(arrival);
            }
        }
        let _ = link.offer(*at, Probe::new(id as u64, *bytes));
    }
    out.extend(drain(&mut link));
    (link, out)
}

proptest! {
    #[test]
    fn packets_are_conserved(config in config(), offers in offers(), seed: u64, stop: u64) {
        let mut link = Link::new(config, seed);
        let mut dice = Rng::new(stop);
        let mut out = 0;
        for (id, (at, bytes)) in offers.iter().enumerate() {
            let before = link.stats();
            let admitted = link.offer(*at, Probe::new(id as u64, *bytes)).is_ok();
            let after = link.stats();
            let policed = after.dropped_policer - before.dropped_policer;
            let dropped = policed + after.dropped_queue - before.dropped_queue;
            if matches!(link.config().queue, QueueConfig::FqCoDel(_)) {
                // What is dropped may be another packet.
                prop_assert!(dropped >= u64::from(!admitted));
            } else if matches!(link.config().queue, QueueConfig::Red(_) | QueueConfig::Pie(_)) {
                let early = after.dropped_early - before.dropped_early;
                prop_assert_eq!(dropped + early, u64::from(!admitted));
            } else {
                prop_assert_eq!(dropped, u64::from(!admitted));
            }
            if dice.chance(0.3) && link.poll(*at).is_some() {
                out += 1;
            }
            let stats = link.stats();
            prop_assert_eq!(
                stats.offered + stats.duplicated,
                stats.passed + stats.dropped() + stats.queue.packets + stats.in_flight
            );
        }
        out += drain(&mut link).len() as u64;
        let stats = link.stats();
        prop_assert_eq!(stats.offered, offers.len() as u64);
        prop_assert_eq!(stats.passed, out);
        prop_assert_eq!(out + stats.dropped(), stats.offered + stats.duplicated);
        prop_assert_eq!((stats.queue.packets, stats.queue.bytes), (0, 0));
        prop_assert_eq!((stats.in_flight, stats.in_flight_bytes), (0, 0));
    }

    #[test]
    fn polling_makes_no_difference(config in config(), offers in offers(), seed: u64) {
        let (eager, eager_out) = run(&config, seed, &offers, true);
        let (lazy, lazy_out) = run(&config, seed, &offers, false);
        prop_assert_eq!(eager_out, lazy_out);
        prop_assert_eq!(eager.stats(), lazy.stats());
    }

    /// Whoever keeps and foresees losses sees each of them, in order, and changes nothing.
    #[test]
    fn losses_can_be_watched(config in config(), offers in offers(), seed: u64, dice: u64) {
        let mut plain = Link::new(config.clone(), seed);
        let mut watched = plain.clone();
        watched.keep_lost(true);
        let mut dice = Rng::new(dice);
        let (mut latest, mut lost, mut refused) = (Time::ZERO, 0, 0);
        let mut take = |link: &mut Link<Probe>, now| {
            if dice.chance(0.7) {
                link.foresee(now);
            }
            while let Some(loss) = link.take_lost() {
                assert!(latest <= loss.at && loss.at <= now, "{latest:?} {loss:?} {now:?}");
                (latest, lost) = (loss.at, lost + 1);
            }
        };
        for (id, (at, bytes)) in offers.iter().enumerate() {
            while let Some(event) = plain.next_event().filter(|event| event <= at) {
                take(&mut watched, event);
                prop_assert_eq!(watched.next_event(), Some(event));
                prop_assert_eq!(watched.poll(event), plain.poll(event));
            }
            take(&mut watched, *at);
            prop_assert_eq!(watched.next_event(), plain.next_event());
            let offered = watched.try_offer(*at, Probe::new(id as u64, *bytes));
            refused += u64::from(offered.is_err());
            let offered = offered.map_err(|lost| lost.packet);
            prop_assert_eq!(offered, plain.offer(*at, Probe::new(id as u64, *bytes)));
            prop_assert_eq!(watched.next_event(), plain.next_event());
        }
        prop_assert_eq!(drain(&mut watched), drain(&mut plain));
        take(&mut watched, Time::MAX);
        prop_assert_eq!(watched.stats(), plain.stats());
        prop_assert_eq!(lost + refused, plain.stats().dropped());
    }

    #[test]
    fn nothing_is_early_and_the_rate_holds(config in config(), offers in offers(), seed: u64) {
        let config = LinkConfig { duplicate: Probability::ZERO, reorder: None, ..config };
        let config = LinkConfig { jitter: Jitter::default(), slots: None, ..config };
        let (delay_changes, trace) = (DelayChanges::default(), None);
        let config = LinkConfig { delay_changes, trace, ..config };
        let (_, out) = run(&config, seed, &offers, true);
        let delay = config.delay;
        let changed = config.rate_changes.changes().iter().map(|change| change.rate);
        let fastest = config.rate.and_then(|rate| changed.chain([rate]).max());
        let transmission = |bytes: usize| {
            fastest.map_or(0, |rate| bytes as u64 * 8_000_000_000 / rate.bits_per_second())
        };
        for (at, probe) in &out {
            let (offered, bytes) = offers[probe.id as usize];
            prop_assert!(*at >= offered + delay + Duration::from_nanos(transmission(bytes)));
        }
        // Between two arrivals there is time for the later packet.
        for pair in out.windows(2) {
            prop_assert!(pair[0].1.id < pair[1].1.id);
            let gap = pair[1].0.nanos_since(pair[0].0);
            prop_assert!(gap + 1 >= transmission(pair[1].1.bytes));
        }
    }

    /// Whatever the changes, a packet takes as long as there is room for its bits.
    #[test]
    fn a_packet_takes_as_long_as_its_bits(
        config in config(),
        at in 0..50_000_000u64,
        bytes in 1..3_000usize,
    ) {
        let (rate, rate_changes) = (config.rate, config.rate_changes);
        let config = LinkConfig { rate, rate_changes, ..LinkConfig::default() };
        let at = Time::from_nanos(at);
        let mut link = Link::new(config.clone(), 1);
        link.offer(at, Probe::new(0, bytes)).expect("the queue is unlimited");
        let end = link.next_end().expect("a transmission");
        let (bits, before_end) = (bytes as f64 * 8.0, Time::from_nanos(end.as_nanos() - 1));
        match config.bits_between(at, end) {
            None => prop_assert_eq!(end, at),
            Some(room) => {
                prop_assert!(room > bits - 1e-3, "{room}, not {bits}");
                let room = config.bits_between(at, before_end).expect("as before");
                prop_assert!(room < bits + 1e-3, "{room}, not {bits}");
            }
        }
    }

    #[test]
    fn the_queue_keeps_its_limit(config in config(), offers in offers(), seed: u64) {
        let (link, _) = run(&config, seed, &offers, true);
        let depth = link.stats().queue;
        if let QueueLimit::Packets(limit) = config.queue.limit() {
            prop_assert!(depth.packets_max <= u64::from(limit.max(1)));
        }
        if let Some(limit) = config.queue.limit_bytes(config.first_rate()) {
            let largest = offers.iter().map(|(_, bytes)| *bytes as u64).max().unwrap_or(0);
            prop_assert!(depth.bytes_max <= limit.max(largest));
        }
    }

    #[test]
    fn texts_never_panic_and_are_read_back(text in "[ -~µ]{0,24}", config in config()) {
        let _ = text.parse::<Rate>();
        let _ = text.parse::<Probability>();
        let _ = text.parse::<QueueConfig>();
        for kind in ["red:", "red:limit=", "codel:", "gauss:", "poisson:"] {
            let _ = format!("{kind}{text}").parse::<QueueConfig>();
            let _ = format!("{kind}{text}").parse::<LossModel>();
        }
        let _ = text.parse::<LossModel>();
        let _ = text.parse::<RateChanges>();
        let _ = text.parse::<Jitter>();
        let _ = text.parse::<Slots>();
        let _ = text.parse::<Profile>();
        let _ = text.parse::<Reorder>();
        let _ = text.parse::<Blackout>();
        // No text asks for a queue of nothing.
        if config.queue.limit() != QueueLimit::Packets(0) {
            prop_assert_eq!(config.queue.to_string().parse(), Ok(config.queue));
        }
        prop_assert_eq!(config.rate_changes.to_string().parse(), Ok(config.rate_changes));
        prop_assert_eq!(config.jitter.to_string().parse(), Ok(config.jitter));
        if let Some(slots) = config.slots {
            prop_assert_eq!(slots.to_string().parse(), Ok(slots));
        }
        prop_assert_eq!(config.duplicate.to_string().parse(), Ok(config.duplicate));
        if let Some(reorder) = config.reorder {
            let nothing = match reorder.by {
                Displacement::Delay(delay) => delay.is_zero(),
                Displacement::Positions { packets, at_most } => packets == 0 || at_most.is_zero(),
                Displacement::Ahead { .. } => false,
            };
            let read: Result<Reorder, _> = reorder.to_string().parse();
            prop_assert_eq!(read.ok(), Some(reorder).filter(|_| !nothing));
        }
        if let Some(rate) = config.rate {
            prop_assert_eq!(rate.to_string().parse(), Ok(rate));
        }
        if !matches!(config.loss, LossModel::Scripted(_)) {
            prop_assert_eq!(config.loss.to_string().parse(), Ok(config.loss));
        }
    }
}
