//! Groups of connections: senders on ways of their own to one receiver.

use std::fmt::Write;

use farhaul_sim::indices::jain;
use farhaul_sim::{Plan, Report};

/// Senders, each with its round trip to the receiver in ms, when it starts and when it stops, and
/// its law, behind one link of `rate`; `measure`: from when to when, s.
fn run(rate: &str, senders: &[(u32, f64, f64, &str)], measure: (f64, f64)) -> Report {
    let (from, to) = measure;
    let mut text = format!(
        "duration = \"{to}s\"\nmeasure_from = \"{from}s\"\nsample = \"500ms\"\n\
         [[link]]\nname = \"narrow\"\nfrom = \"router\"\nto = \"receiver\"\nrate = \"{rate}\"\n\
         delay = \"1ms\"\nqueue = {{ kind = \"droptail\", packets = 300 }}\n"
    );
    for (nth, (rtt_ms, start, stop, law)) in senders.iter().enumerate() {
        let delay_us = rtt_ms * 500 - 1_000;
        write!(
            text,
            "[[link]]\nfrom = \"s{nth}\"\nto = \"router\"\nrate = \"10G\"\ndelay = \"{delay_us}us\"\n\
             [[flow]]\nname = \"f{nth}\"\nfrom = \"s{nth}\"\nto = \"receiver\"\ncc = \"{law}\"\n\
             start = \"{start}s\"\nstop = \"{stop}s\"\n"
        )
        .expect("there is memory");
    }
    run_text(&text)
}

fn run_text(text: &str) -> Report {
    let plan = Plan::parse(text, &[], None).unwrap_or_else(|wrong| panic!("{wrong}\n{text}"));
    plan.point(0).expect("its only point").scenario.run()
}

fn rates(report: &Report) -> Vec<f64> {
    report.flows.iter().map(|flow| flow.throughput_bps).collect()
}

fn loss(report: &Report) -> f64 {
    let sent: u64 = report.flows.iter().map(|flow| flow.packets_sent).sum();
    report.links[0].drops as f64 / sent as f64
}

/// 2 to 64 senders with equal and with very different round trips: the link is full, the shares are
/// equal, and little is lost.
#[test]
fn gtp_shares_a_receiver_whatever_the_round_trips() {
    let mut losses = Vec::new();
    for (count, rate, bits) in
        [(2, "200M", 200e6), (3, "200M", 200e6), (8, "400M", 400e6), (64, "400M", 400e6)]
    {
        for unequal in [false, true] {
            let rtt = |nth: u32| if unequal { 5 + 45 * nth / (count - 1) } else { 20 };
            let senders: Vec<_> = (0..count).map(|nth| (rtt(nth), 0.0, 12.0, "gtp")).collect();
            let report = run(rate, &senders, (6.0, 12.0));
            let rates = rates(&report);
            let (sum, fair) = (rates.iter().sum::<f64>() / bits, jain(&rates).unwrap_or(0.0));
            let what = format!("{count} flows, unequal: {unequal}: {sum} {fair} {}", loss(&report));
            assert!(sum > 0.85, "{what}");
            assert!(fair > 0.98, "{what}");
            assert!(loss(&report) < 0.015, "{what}");
            losses.push(loss(&report));
        }
    }
    // A single run varies by a quarter with the instants of its ACKs.
    let mean = losses.iter().sum::<f64>() / losses.len() as f64;
    assert!(mean < 0.007, "{losses:?}");
}

/// Who joins has a fair share half a second later, and what one leaves is taken up in as long;
/// hardly a packet is lost by either.
#[test]
fn gtp_flows_join_and_leave() {
    for (stay, rate, bits) in
        [(2, "200M", 200.0), (3, "200M", 200.0), (8, "400M", 400.0), (64, "400M", 400.0)]
    {
        let mut senders: Vec<_> =
            (0..stay).map(|nth| (10 + 40 * nth / (stay - 1), 0.0, 20.0, "gtp")).collect();
        let without = loss(&run(rate, &senders, (0.0, 20.0)));
        senders.push((30, 10.0, 15.0, "gtp"));
        let report = run(rate, &senders, (0.0, 20.0));
        let more = loss(&report) - without;
        assert!(more < 0.002, "{stay} flows: joining and leaving cost {more}");
        // Half a second each; a second is measured, for a hole whose repair is lost as well moves what is
        // delivered in order by some hundred milliseconds.
        for (half, flows) in [(18, stay), (21, stay + 1), (28, stay + 1), (31, stay), (38, stay)] {
            let fair = 0.97 * bits / f64::from(flows);
            for flow in &report.flows[..flows as usize] {
                let found = (flow.series[half] + flow.series[half + 1]) / 2e6;
                let what = format!("{} of {flows} in half-seconds {half} and on", flow.name);
                assert!((found / fair - 1.0).abs() < 0.2, "{what}: {found}, not {fair}");
            }
        }
    }
}

/// A greedy flow and `slow` others with `options`, all of them members, at an estimated capacity of
/// 100 Mb/s: what each brings from 10 s to 20 s.
fn beside_slow_ones(law: &str, slow: usize, options: &str) -> Vec<f64> {
    let mut text = String::from(
        "duration = \"20s\"\nmeasure_from = \"10s\"\n\
         [[link]]\nfrom = \"a\"\nto = \"b\"\nrate = \"100M\"\ndelay = \"10ms\"\n\
         queue = \"bdp\"\n",
    );
    for nth in 0..=slow {
        let options = if nth == 0 { "" } else { options };
        write!(
            text,
            "[[flow]]\nname = \"f{nth}\"\nfrom = \"a\"\nto = \"b\"\ncc = \"{law}\"\n{options}\n"
        )
        .expect("there is memory");
    }
    rates(&run_text(&text))
}

/// Senders that are slower than their share from the beginning leave the rest to the others.
#[test]
fn gtp_gives_away_what_a_sender_cannot_use() {
    for law in ["gtp", "gtp:first=8k"] {
        for (slow, size, every, uses) in
            [(1, "1kB", "1s", 8e3), (30, "1kB", "1s", 8e3), (1, "12kB", "10ms", 9.6e6)]
        {
            let messages = format!("messages = {{ size = \"{size}\", every = \"{every}\" }}");
            let rates = beside_slow_ones(law, slow, &messages);
            let rest = 97e6 - uses * slow as f64;
            assert!(rates[0] > 0.97 * rest, "{law}, {slow} with {size}: {}", rates[0]);
            assert!(rates[1] > 0.97 * uses, "{law}, {slow} with {size}: {}", rates[1]);
        }
    }
}

/// From the least first rate, the group comes to all of its receiver too.
#[test]
fn gtp_finds_the_capacity_from_any_first_rate() {
    for others in [1, 3, 30] {
        let rates = beside_slow_ones("gtp:first=8k", others, "");
        assert!(rates.iter().sum::<f64>() > 90e6, "{others}: {rates:?}");
        assert!(jain(&rates).unwrap_or(0.0) > 0.98, "{others}: {rates:?}");
    }
}

/// Eight connections to one host under `cm` take as much as one NewReno; to eight hosts, as eight.
#[test]
fn cm_makes_one_flow_of_many_to_the_same_host() {
    let beside = |law: &str| {
        let mut text = String::from(
            "duration = \"60s\"\nmeasure_from = \"20s\"\n\
             [[link]]\nfrom = \"a\"\nto = \"b\"\nrate = \"50M\"\ndelay = \"10ms\"\n\
             queue = \"bdp\"\n\
             [[flow]]\nname = \"alone\"\nfrom = \"a\"\nto = \"b\"\ncc = \"reno\"\n",
        );
        for nth in 0..8 {
            write!(text, "[[flow]]\nname = \"f{nth}\"\nfrom = \"a\"\nto = \"b\"\ncc = \"{law}\"\n")
                .expect("there is memory");
        }
        let rates = rates(&run_text(&text));
        (rates[0] / rates.iter().sum::<f64>(), jain(&rates[1..]).unwrap_or(0.0))
    };
    let (share, fair) = beside("cm");
    assert!((0.35..0.65).contains(&share), "half for the one beside them: {share}");
    assert!(fair > 0.9, "{fair}");
    let (share, _) = beside("reno");
    assert!(share < 0.25, "a ninth where they do not share: {share}");
}
