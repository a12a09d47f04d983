//! Each model of a link against its closed form.

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::{Probe, drain};
use farhaul_base::Time;
use farhaul_link::{Link, LinkConfig, LossModel, Profile, QueueConfig, Rate};

/// A link that was offered `count` packets of `bytes`, one every `every_ns` from time 0 on.
fn offered(config: LinkConfig, count: u64, bytes: usize, every_ns: u64) -> Link<Probe> {
    let mut link = Link::new(config, 11);
    for id in 0..count {
        // A full queue is part of some tests; the link counts it.
        let _ = link.offer(Time::from_nanos(id * every_ns), Probe::new(id, bytes));
    }
    link
}

fn rate(text: &str) -> Option<Rate> {
    Some(text.parse().expect("a rate"))
}

fn ids(arrivals: &[(Time, Probe)]) -> Vec<u64> {
    arrivals.iter().map(|(_, probe)| probe.id).collect()
}

/// A share of `count` events within five standard deviations of the binomial distribution.
fn plausible(events: u64, count: u64, p: f64) -> bool {
    let (n, k) = (count as f64, events as f64);
    (k - n * p).abs() <= 5.0 * (n * p * (1.0 - p)).sqrt()
}

#[test]
fn a_perfect_wire_changes_nothing() {
    let mut link = offered(LinkConfig::default(), 100, 1_500, 10);
    let out = drain(&mut link);
    assert_eq!(ids(&out), (0..100).collect::<Vec<_>>());
    assert!(out.iter().all(|(at, probe)| at.as_nanos() == probe.id * 10));
    assert_eq!(link.next_event(), None);
}

#[test]
fn delay_is_added_after_the_transmission() {
    let config =
        LinkConfig { rate: rate("12M"), delay: Duration::from_millis(40), ..LinkConfig::default() };
    // 1 ms a packet, offered at once: 41 ms, 42 ms, …
    let out = drain(&mut offered(config, 5, 1_500, 0));
    let times: Vec<u64> = out.iter().map(|(at, _)| at.as_micros()).collect();
    assert_eq!(times, [41_000, 42_000, 43_000, 44_000, 45_000]);
}

#[test]
fn the_rate_holds_over_a_million_packets() {
    let config = LinkConfig { rate: rate("7M"), ..LinkConfig::default() };
    let mut link = Link::new(config, 1);
    let mut last = Time::ZERO;
    for id in 0..1_000_000 {
        link.offer(last, Probe::new(id, 1_400)).unwrap();
        if let Some((at, _)) = link.next_event().and_then(|at| link.poll(at)) {
            last = at;
        }
    }
    // 11,200 bits at 7 Mb/s are 1.6 ms; each packet was offered when the former had arrived.
    assert_eq!(last, Time::from_secs(1_600));
}

#[test]
fn a_queue_of_packets_keeps_that_many() {
    let queue = QueueConfig::Packets(10);
    let config = LinkConfig { rate: rate("12M"), queue, ..LinkConfig::default() };
    let mut link = offered(config, 25, 1_500, 0);
    assert_eq!(link.stats().dropped_queue, 15);
    assert_eq!(link.stats().queue.packets, 10);
    assert_eq!(ids(&drain(&mut link)), (0..10).collect::<Vec<_>>());
}

/// Twice the rate comes in: half of it leaves, the rest is dropped once the queue is full.
#[test]
fn an_overloaded_queue_drops_the_surplus() {
    let queue = QueueConfig::Packets(50);
    let config = LinkConfig { rate: rate("12M"), queue, ..LinkConfig::default() };
    // 1 ms a packet out, 0.5 ms in: packets 0 … 1999 in the first second.
    let mut link = offered(config, 2_000, 1_500, 500_000);
    let stats = link.stats();
    // At the last offer (999.5 ms) 999 have left, and the queue is full.
    assert_eq!((stats.queue.packets, stats.queue.packets_max), (50, 50));
    assert_eq!(stats.dropped_queue, 2_000 - 999 - 50);
    let out = drain(&mut link);
    assert_eq!(out.len(), 1_049);
    assert_eq!(out.last().unwrap().0, Time::from_millis(1_049));
}

#[test]
fn a_queue_of_bytes_counts_bytes() {
    let queue = QueueConfig::Bytes(3_100);
    let config = LinkConfig { rate: rate("12M"), queue, ..LinkConfig::default() };
    let mut link = Link::new(config, 1);
    let mut offer = |id, bytes| link.offer(Time::ZERO, Probe::new(id, bytes)).is_ok();
    assert!(offer(0, 1_500) && offer(1, 1_500));
    assert!(!offer(2, 1_500));
    assert!(offer(3, 100));
    assert!(!offer(4, 1));
    assert_eq!(link.stats().queue.bytes, 3_100);
}

#[test]
fn an_idle_link_takes_any_packet() {
    for queue in [QueueConfig::Bytes(10), QueueConfig::Packets(0)] {
        let config = LinkConfig { rate: rate("12M"), queue, ..LinkConfig::default() };
        let mut link = offered(config, 5, 1_500, 600_000);
        assert_eq!(link.stats().dropped_queue, 2, "{queue}");
        assert_eq!(ids(&drain(&mut link)), [0, 2, 4], "{queue}");
    }
}

/// A queue of the bandwidth-delay product takes one round trip to drain.
#[test]
fn a_bdp_queue_holds_a_round_trip() {
    let queue = QueueConfig::Bdp { rtt: Duration::from_millis(80) };
    let config = LinkConfig { rate: rate("200M"), queue, ..LinkConfig::default() };
    let mut link = offered(config, 5_000, 1_000, 0);
    assert_eq!(link.stats().queue.bytes, 2_000_000);
    assert_eq!(drain(&mut link).last().unwrap().0, Time::from_millis(80));
}

#[test]
fn a_transmission_that_ends_makes_room_for_what_comes_then() {
    let queue = QueueConfig::Packets(1);
    let config = LinkConfig { rate: rate("12M"), queue, ..LinkConfig::default() };
    let mut link = Link::new(config, 1);
    assert!(link.offer(Time::ZERO, Probe::new(0, 1_500)).is_ok());
    assert!(link.offer(Time::from_nanos(999_999), Probe::new(1, 1_500)).is_err());
    assert!(link.offer(Time::from_millis(1), Probe::new(2, 1_500)).is_ok());
}

/// Half as much again as the link carries, for a minute, into a queue of 12 Mb/s.
fn overloaded(queue: &str) -> Link<Probe> {
    let queue = queue.parse().expect("a queue");
    let config = LinkConfig { rate: rate("12M"), queue, ..LinkConfig::default() };
    offered(config, 90_000, 1_500, 666_667)
}

/// A third must go; RED lets it go before the queue is full, about where the probability of a drop
/// makes it so: at a gap of 3 packets, 1.5/p of them, p is 0.5, and the average is
/// max (1 + (0.5 - 0.1) / 0.9).
#[test]
fn red_holds_the_queue_where_its_probability_balances_the_load() {
    let stats = overloaded("red:limit=1000p,min=5,max=15,weight=0.002").stats();
    assert_eq!(stats.dropped_queue, 0);
    let share = stats.dropped_early as f64 / stats.offered as f64;
    assert!((share - 1.0 / 3.0).abs() < 0.01, "{share}");
    let waiting = stats.queue.mean_packets(Duration::from_secs(60)) - 1.0;
    assert!((18.0..27.0).contains(&waiting), "{waiting}");
    // A limit below that is what drops.
    let stats = overloaded("red:limit=10p,min=50,max=150").stats();
    assert_eq!((stats.dropped_early, stats.queue.packets_max), (0, 10));
    assert!(stats.dropped_queue > 29_000);
}

#[test]
fn red_leaves_a_link_alone_that_keeps_up() {
    let queue = "red:min=0,max=0.1,gentle=false".parse().unwrap();
    let config = LinkConfig { rate: rate("12M"), queue, ..LinkConfig::default() };
    let mut link = offered(config, 10_000, 1_500, 1_000_000);
    assert_eq!(drain(&mut link).len(), 10_000);
}

/// CoDel's drops become more and more frequent: n of them take 100 ms times the sum of 1/sqrt(k) for
/// k below n, which is 200 ms sqrt(n) - 146 ms. They come as packets leave, so that those let in and
/// dropped are in the account.
#[test]
fn codel_drops_follow_its_control_law() {
    let queue = "codel:limit=10000p".parse().unwrap();
    let config = LinkConfig { rate: rate("12M"), queue, ..LinkConfig::default() };
    // 10 s; three come while two leave.
    let mut link = offered(config, 15_000, 1_500, 666_667);
    let stats = link.stats();
    assert_eq!(stats.dropped_queue, 0);
    // The wait reaches 5 ms after 15 ms, and an interval later the first is dropped.
    let root: f64 = (10.0 - 0.115 + 0.146) / 0.2;
    let expected = root * root;
    let dropped = stats.dropped_early as f64;
    assert!((dropped - expected).abs() < 0.01 * expected, "{dropped}, not {expected}");
    assert_eq!(stats.queue.packets, 15_000 - 9_999 - stats.dropped_early);
    let out = drain(&mut link);
    assert_eq!(out.len() as u64 + link.stats().dropped(), 15_000);
}

/// A load that stays below the rate is not dropped however long it lasts.
#[test]
fn codel_leaves_short_waits_alone() {
    let queue = "codel".parse().unwrap();
    let config = LinkConfig { rate: rate("12M"), queue, ..LinkConfig::default() };
    let mut link = Link::new(config, 1);
    for id in 0..20_000 {
        // Four at once every 4.1 ms: the last of them waits 3 ms.
        let at = Time::from_micros(id / 4 * 4_100);
        link.offer(at, Probe::new(id, 1_500)).unwrap();
    }
    drain(&mut link);
    assert_eq!(link.stats().dropped(), 0);
}

#[test]
fn a_rate_that_changes() {
    let config = LinkConfig {
        rate: rate("12M"),
        rate_changes: "10ms:24M,20ms:6M/40ms".parse().unwrap(),
        ..LinkConfig::default()
    };
    let rates = [0, 10, 20, 49, 50, 60].map(|ms| config.rate_at(Time::from_millis(ms)));
    assert_eq!(rates, ["12M", "24M", "6M", "6M", "24M", "6M"].map(rate));
    // 10 packets in 10 ms, 20 in the next, 15 in 30 ms, 20 in 10 ms, and 15 in 30 ms again.
    let out = drain(&mut offered(config, 80, 1_500, 0));
    let at = |n: usize| out[n - 1].0.as_micros();
    assert_eq!(
        [10, 11, 30, 31, 45, 65, 80].map(at),
        [10_000, 10_500, 20_000, 22_000, 50_000, 60_000, 90_000]
    );
}

/// The queue's randomness is its own: what the wire does is the same whatever the queue. These drop
/// nothing, so that the same packets come to the wire; RED draws for each of them nevertheless.
#[test]
fn the_queue_draws_apart_from_the_wire() {
    let arrived = |queue: &str| {
        let config = LinkConfig {
            rate: rate("1G"),
            queue: queue.parse().unwrap(),
            loss: "5%".parse().unwrap(),
            jitter: "1ms:reorder".parse().unwrap(),
            ..LinkConfig::default()
        };
        let mut link = offered(config, 5_000, 1_500, 0);
        let out = drain(&mut link);
        let stats = link.stats();
        assert_eq!((stats.queue.packets_max, stats.dropped_early), (5_000, 0), "{queue}");
        assert!(stats.dropped_loss > 0, "{queue}");
        out
    };
    let tail = arrived("unlimited");
    assert_eq!(tail, arrived("red:min=0,max=1000000,maxp=0%"));
    assert_eq!(tail, arrived("codel:target=1000s"));
}

#[test]
fn polling_ahead_of_a_late_offer_does_not_empty_the_queue_early() {
    let config = LinkConfig {
        rate: rate("12M"),
        delay: Duration::from_millis(10),
        queue: QueueConfig::Packets(1),
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, 1);
    assert!(link.offer(Time::from_millis(20), Probe::new(0, 1_500)).is_ok());
    assert!(link.poll(Time::from_millis(22)).is_none());
    // Stamped before that poll, within the transmission of the first packet.
    assert!(link.offer(Time::from_micros(20_500), Probe::new(1, 1_500)).is_err());
}

#[test]
fn losses_use_up_the_rate() {
    let loss: LossModel = "10%".parse().unwrap();
    let config = LinkConfig { rate: rate("12M"), loss, ..LinkConfig::default() };
    let mut link = offered(config, 20_000, 1_500, 0);
    let out = drain(&mut link);
    let stats = link.stats();
    assert!(plausible(stats.dropped_loss, 20_000, 0.1), "{stats:?}");
    assert_eq!(out.len() as u64, 20_000 - stats.dropped_loss);
    assert_eq!(stats.transmitted_bytes, 20_000 * 1_500);
    // Each survivor comes out when its place in the transmissions ends.
    assert!(out.iter().all(|(at, probe)| at.as_micros() == (probe.id + 1) * 1_000));
}

#[test]
fn planned_losses_count_transmissions() {
    let loss: LossModel = "list:1,3-4".parse().unwrap();
    let out = drain(&mut offered(LinkConfig { loss, ..LinkConfig::default() }, 6, 100, 10));
    assert_eq!(ids(&out), [1, 4, 5]);
}

#[test]
fn a_blackout_loses_what_is_sent_in_it() {
    let config = LinkConfig {
        rate: rate("12M"),
        delay: Duration::from_millis(7),
        blackouts: vec!["5ms+3ms/10ms".parse().unwrap()],
        ..LinkConfig::default()
    };
    let mut link = offered(config, 20, 1_500, 1_000_000);
    let out = drain(&mut link);
    // Packet n ends at n + 1 ms; cut from 5, 6, 7 and 15, 16, 17 ms.
    let expected: Vec<u64> = (0..20).filter(|n| !(4..7).contains(&(n % 10))).collect();
    assert_eq!(ids(&out), expected);
    assert_eq!(link.stats().dropped_blackout, 6);
}

#[test]
fn jitter_is_uniform() {
    let config = LinkConfig {
        delay: Duration::from_millis(20),
        jitter: "10ms:reorder".parse().unwrap(),
        ..LinkConfig::default()
    };
    let mut link = offered(config, 100_000, 100, 1_000);
    let out = drain(&mut link);
    let extra = |(at, probe): &(Time, Probe)| at.as_nanos() - 20_000_000 - probe.id * 1_000;
    assert!(out.iter().all(|arrival| extra(arrival) <= 10_000_000));
    let mean = out.iter().map(extra).sum::<u64>() as f64 / 100_000.0;
    // The standard deviation of the mean is 9.1 us.
    assert!((mean - 5e6).abs() < 50e3, "{mean}");
    assert!(out.iter().any(|arrival| extra(arrival) < 1_000_000));
    assert!(out.iter().any(|arrival| extra(arrival) > 9_000_000));
    let mut highest = 0;
    let late = ids(&out).into_iter().filter(|id| {
        highest = highest.max(*id);
        *id < highest
    });
    let late = late.count() as u64;
    assert!(late > 0);
    assert_eq!(late, link.stats().reordered);
}

#[test]
fn jitter_keeps_the_order_unless_told() {
    let config = LinkConfig { jitter: "10ms".parse().unwrap(), ..LinkConfig::default() };
    let mut link = offered(config, 10_000, 100, 1_000);
    let out = drain(&mut link);
    assert_eq!(ids(&out), (0..10_000).collect::<Vec<_>>());
    assert_eq!(link.stats().reordered, 0);
    assert!(out.windows(2).all(|pair| pair[0].0 <= pair[1].0));
}

#[test]
fn jitter_around_the_delay_is_early_as_well() {
    let config = LinkConfig {
        delay: Duration::from_millis(20),
        jitter: "5ms:around:reorder".parse().unwrap(),
        ..LinkConfig::default()
    };
    let mut link = offered(config, 10_000, 100, 1_000);
    let out = drain(&mut link);
    let took = |(at, probe): &(Time, Probe)| at.as_nanos() - probe.id * 1_000;
    assert!(out.iter().all(|arrival| (15_000_000..=25_000_000).contains(&took(arrival))));
    assert!(out.iter().any(|arrival| took(arrival) < 16_000_000));
    assert!(out.is_sorted_by_key(|(at, _)| *at), "each is handed out at its time");
}

#[test]
fn packets_arrive_at_the_ends_of_slots() {
    let config = LinkConfig {
        delay: Duration::from_micros(300),
        slots: Some("1ms".parse().unwrap()),
        ..LinkConfig::default()
    };
    let mut link = offered(config, 1_000, 100, 100_000);
    let out = drain(&mut link);
    assert_eq!(ids(&out), (0..1_000).collect::<Vec<_>>());
    for (at, probe) in &out {
        let arrives = probe.id * 100_000 + 300_000;
        assert_eq!(at.as_nanos(), arrives.next_multiple_of(1_000_000));
    }
}

#[test]
fn of_each_gap_the_last_packet_comes_early() {
    let config = LinkConfig {
        delay: Duration::from_millis(1),
        reorder: Some("100%:gap=5".parse().unwrap()),
        ..LinkConfig::default()
    };
    let mut link = offered(config, 100, 100, 100_000);
    let out = drain(&mut link);
    for (at, probe) in &out {
        let delay = if probe.id % 5 == 4 { 0 } else { 1_000_000 };
        assert_eq!(at.as_nanos(), probe.id * 100_000 + delay, "packet {}", probe.id);
    }
    assert_eq!(link.stats().reordered, 20);
}

#[test]
fn a_profile_fills_in_what_is_not_said() {
    let mut link = LinkConfig { jitter: "5ms".parse().unwrap(), ..LinkConfig::default() };
    Profile::Netem.apply(&mut link);
    assert_eq!(link.jitter.to_string(), "5ms:around:reorder");
    let mut link = LinkConfig { jitter: "5ms:normal".parse().unwrap(), ..LinkConfig::default() };
    Profile::Netem.apply(&mut link);
    assert_eq!(link.jitter.to_string(), "5ms:normal:reorder");
    let mut link = LinkConfig::default();
    Profile::Dummynet.apply(&mut link);
    assert_eq!(link.slots, Some("1ms".parse().unwrap()));
    let own = Some("10ms".parse().unwrap());
    let mut link = LinkConfig { slots: own, ..LinkConfig::default() };
    Profile::Dummynet.apply(&mut link);
    assert_eq!(link.slots, own);
    assert_eq!(Profile::Dummynet.queue().to_string(), "50p");
    for text in ["dummynet", "netem"] {
        assert_eq!(text.parse::<Profile>().unwrap().to_string(), text);
    }
    assert!("tc".parse::<Profile>().is_err());
}

#[test]
fn reordering_by_time_moves_the_chosen_share() {
    let config = LinkConfig {
        delay: Duration::from_millis(1),
        reorder: Some("5%:1ms".parse().unwrap()),
        ..LinkConfig::default()
    };
    let mut link = offered(config, 100_000, 100, 10_000);
    let out = drain(&mut link);
    let late = |(at, probe): &(Time, Probe)| at.as_micros() - 1_000 - probe.id * 10;
    assert!(out.iter().all(|arrival| late(arrival) == 0 || late(arrival) == 1_000));
    let share = out.iter().filter(|arrival| late(arrival) > 0).count() as u64;
    assert_eq!(share, link.stats().reordered);
    assert!(plausible(share, 100_000, 0.05), "{share}");
}

/// With single packets held back, each comes right after the third that follows it.
#[test]
fn reordering_by_positions_counts_packets() {
    let config = LinkConfig { reorder: Some("2%:3/1s".parse().unwrap()), ..LinkConfig::default() };
    let mut link = offered(config, 50_000, 100, 10_000);
    let order = ids(&drain(&mut link));
    let place: BTreeMap<u64, usize> = order.iter().enumerate().map(|(at, id)| (*id, at)).collect();
    let mut late = 0;
    for id in 0..49_000u64 {
        let overtakers = (id + 1..id + 20).filter(|later| place[later] < place[&id]).count();
        // None for most, three for those held back, fewer never: neighbours that are held back
        // themselves do not count as overtakers.
        assert!(overtakers == 0 || overtakers >= 3, "{id}: {overtakers}");
        late += u64::from(overtakers > 0);
    }
    assert!(plausible(late, 49_000, 0.02), "{late}");
}

#[test]
fn a_packet_held_back_comes_by_its_deadline() {
    let config = LinkConfig {
        delay: Duration::from_millis(5),
        reorder: Some("100%:3/20ms".parse().unwrap()),
        ..LinkConfig::default()
    };
    // All are held back, so none is overtaken.
    let out = drain(&mut offered(config, 4, 100, 1_000_000));
    let times: Vec<u64> = out.iter().map(|(at, _)| at.as_micros()).collect();
    assert_eq!(times, [25_000, 26_000, 27_000, 28_000]);
    assert_eq!(ids(&out), [0, 1, 2, 3]);
}

/// Fewer pass in time than it is held back for, so each comes at its deadline; those that come
/// later change nothing about it, whether or not the link was polled in between.
#[test]
fn a_deadline_comes_before_the_next_packet() {
    let config =
        LinkConfig { reorder: Some("50%:1/5ms".parse().unwrap()), ..LinkConfig::default() };
    let mut link = offered(config, 1_000, 100, 10_000_000);
    let out = drain(&mut link);
    assert_eq!(ids(&out), (0..1_000).collect::<Vec<_>>());
    let late = |(at, probe): &(Time, Probe)| at.as_nanos() - probe.id * 10_000_000;
    assert!(out.iter().all(|arrival| late(arrival) == 0 || late(arrival) == 5_000_000));
    let held = out.iter().filter(|arrival| late(arrival) > 0).count() as u64;
    assert_eq!(held, link.stats().reordered);
}

#[test]
fn duplicates_come_with_the_first_copy() {
    let config = LinkConfig { duplicate: "10%".parse().unwrap(), ..LinkConfig::default() };
    let mut link = offered(config, 20_000, 100, 1_000);
    let out = drain(&mut link);
    let copies = out.windows(2).filter(|pair| pair[0] == pair[1]).count() as u64;
    assert_eq!(copies, link.stats().duplicated);
    assert_eq!(out.len() as u64, 20_000 + copies);
    assert!(plausible(copies, 20_000, 0.1), "{copies}");
}

#[test]
fn corruption_inverts_one_bit_anywhere() {
    let config = LinkConfig { corrupt: "25%".parse().unwrap(), ..LinkConfig::default() };
    let mut link = offered(config, 20_000, 4, 1_000);
    let mut hits = [0u64; 32];
    for (_, probe) in drain(&mut link) {
        assert!(probe.flipped.len() <= 1);
        probe.flipped.iter().for_each(|bit| hits[*bit] += 1);
    }
    let damaged: u64 = hits.iter().sum();
    assert_eq!(damaged, link.stats().corrupted);
    assert!(plausible(damaged, 20_000, 0.25), "{damaged}");
    assert!(hits.iter().all(|hits| plausible(*hits, 20_000, 0.25 / 32.0)), "{hits:?}");
}

#[test]
fn a_packet_without_bits_is_not_damaged() {
    let config = LinkConfig { corrupt: "100%".parse().unwrap(), ..LinkConfig::default() };
    let mut link = offered(config, 10, 0, 1_000);
    assert!(drain(&mut link).iter().all(|(_, probe)| probe.flipped.is_empty()));
    assert_eq!(link.stats().corrupted, 0);
}

/// The draws of one impairment do not depend on whether another is on.
#[test]
fn impairments_draw_apart() {
    let loss: LossModel = "5%".parse().unwrap();
    let plain = LinkConfig { loss: loss.clone(), ..LinkConfig::default() };
    let busy = LinkConfig {
        loss,
        jitter: "1ms".parse().unwrap(),
        corrupt: "50%".parse().unwrap(),
        ..LinkConfig::default()
    };
    let arrived = |config| ids(&drain(&mut offered(config, 5_000, 100, 1_000)));
    assert_eq!(arrived(plain), arrived(busy));
}

#[test]
fn the_mean_queue_is_exact() {
    let config = LinkConfig { rate: rate("12M"), ..LinkConfig::default() };
    // Ten at once, 1 ms each: 10 + 9 + … + 1 packet-milliseconds.
    let mut link = offered(config, 10, 1_500, 0);
    link.advance(Time::from_millis(55));
    assert_eq!(link.stats().queue.packets, 0);
    assert_eq!(link.stats().queue.mean_packets(Duration::from_millis(55)), 1.0);
}

#[test]
fn a_delay_that_steps() {
    // 1 ms a packet from 0 on; the delay is 5 ms, from 3 ms on 9 ms, from 6 ms on 2 ms.
    let arrivals = |changes: &str| {
        let config = LinkConfig {
            delay: Duration::from_millis(5),
            delay_changes: changes.parse().expect("changes"),
            rate: rate("12M"),
            ..LinkConfig::default()
        };
        let out = drain(&mut offered(config, 8, 1_500, 0));
        out.iter().map(|(at, probe)| (at.as_micros() / 1_000, probe.id)).collect::<Vec<_>>()
    };
    // Behind the one that ended its transmission at 5 ms and has 9 ms to go.
    let kept = [(6, 0), (7, 1), (12, 2), (13, 3), (14, 4), (14, 5), (14, 6), (14, 7)];
    assert_eq!(arrivals("3ms:9ms,6ms:2ms"), kept);
    let overtaking = [(6, 0), (7, 1), (8, 5), (9, 6), (10, 7), (12, 2), (13, 3), (14, 4)];
    assert_eq!(arrivals("3ms:9ms,6ms:2ms:reorder"), overtaking);
}

#[test]
fn a_trace_is_the_rate() {
    let config = LinkConfig {
        trace: Some("2 4 4 10".parse().expect("a trace")),
        delay: Duration::from_millis(1),
        ..LinkConfig::default()
    };
    let mut link = offered(config, 6, 1_500, 0);
    let times: Vec<u64> = drain(&mut link).iter().map(|(at, _)| at.as_micros() / 1_000).collect();
    assert_eq!(times, [3, 5, 5, 11, 13, 15]);
    let capacity = link.config().bits_between(Time::ZERO, Time::from_millis(1_000));
    assert_eq!(capacity, Some(400.0 * 1_504.0 * 8.0));
}

#[test]
fn a_policer_drops_and_delays_nothing() {
    let config = LinkConfig {
        policer: Some("12M:15kB".parse().expect("a policer")),
        ..LinkConfig::default()
    };
    // Twice as fast as it allows.
    let mut link = offered(config, 2_000, 1_500, 500_000);
    let out = drain(&mut link);
    assert!(out.iter().all(|(at, probe)| at.as_nanos() == probe.id * 500_000));
    let stats = link.stats();
    assert_eq!((stats.dropped_policer, stats.dropped()), (2_000 - 1_009, 2_000 - 1_009));
    assert_eq!(out.len(), 1_009);
}
