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
            assert!(loss(&report) < 0.01, "{what}");
        }
    }
}

/// Who joins has a fair share soon after and costs the others no packets; what one leaves is taken
/// up at once.
#[test]
fn gtp_flows_join_and_leave() {
    let senders = [(10, 0.0, 30.0, "gtp"), (50, 0.0, 30.0, "gtp"), (30, 10.0, 20.0, "gtp")];
    let report = run("200M", &senders, (0.0, 30.0));
    // Half a second each; means of 2 s.
    let mean = |flow: usize, second: usize| {
        report.flows[flow].series[2 * second..2 * second + 4].iter().sum::<f64>() / 4.0 / 1e6
    };
    for (second, shares) in
        [(7, [97.0, 97.0, 0.0]), (12, [65.0; 3]), (17, [65.0; 3]), (22, [97.0, 97.0, 0.0])]
    {
        for (flow, share) in shares.into_iter().enumerate() {
            let found = mean(flow, second);
            assert!((found - share).abs() < 12.0, "flow {flow} at {second} s: {found}");
        }
    }
}

/// A sender that is slower than its share leaves the rest to the others.
#[test]
fn gtp_gives_away_what_a_sender_cannot_use() {
    let mut senders = vec![(20, 0.0, 12.0, "gtp"); 3];
    senders[1].3 = "blast:rate=10M";
    let rates = rates(&run("120M", &senders, (6.0, 12.0)));
    assert!(rates[0].min(rates[2]) > 46e6, "what the stranger leaves is shared: {rates:?}");
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
