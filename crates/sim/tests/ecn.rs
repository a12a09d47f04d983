//! TCP over queues that mark, and over paths that change.

use farhaul_sim::{Plan, Report};

fn run(text: &str) -> Report {
    let plan = Plan::parse(text, &[], None).unwrap_or_else(|problems| panic!("{problems}"));
    plan.point(0).expect("a point").scenario.run()
}

/// 20 Mb/s and 20 ms for half a minute, of which the last twenty seconds count; `flows` are the laws and
/// the ECN of each.
fn shared(queue: &str, flows: &[(&str, &str)]) -> Report {
    let mut text = format!(
        "duration = \"30s\"\nmeasure_from = \"10s\"\n[[link]]\nfrom = \"a\"\nto = \"b\"\n\
         rate = \"20M\"\ndelay = \"10ms\"\nqueue = \"{queue}\"\n"
    );
    for (law, ecn) in flows {
        text += &format!(
            "[[flow]]\nfrom = \"a\"\nto = \"b\"\nprotocol = \"tcp-{law}\"\n\
             options = {{ ecn = \"{ecn}\" }}\n"
        );
    }
    run(&text)
}

/// Of the forward link, in milliseconds: 20 Mb/s are 1667 packets a second.
fn delay_ms(report: &Report) -> f64 {
    report.links[0].queue.mean / 1.667
}

fn retransmitted(report: &Report) -> u64 {
    report.flows.iter().map(|flow| flow.retransmitted).sum()
}

/// RFC 8033 §1: the delay is about the target whatever the number of flows; so with RFC 8289.
#[test]
fn the_target_is_held_with_few_and_many_flows() {
    for flows in [2, 8, 16] {
        let flows = vec![("reno", "off"); flows];
        let pie = delay_ms(&shared("pie:limit=1000p", &flows));
        assert!((6.0..24.0).contains(&pie), "PIE, {} flows: {pie} ms", flows.len());
        let codel = delay_ms(&shared("codel:limit=1000p", &flows));
        assert!((2.0..20.0).contains(&codel), "CoDel, {} flows: {codel} ms", flows.len());
    }
}

/// What is marked need not be sent again, and the queue is as short.
#[test]
fn marks_stand_for_losses() {
    for queue in ["codel:limit=1000p", "pie:limit=1000p", "fq_codel", "dualpi2:limit=1000p"] {
        let dropped = shared(queue, &[("reno", "off"), ("reno", "off")]);
        let marked = shared(queue, &[("reno", "classic"), ("reno", "classic")]);
        assert!(retransmitted(&dropped) > 5, "{queue}: {}", retransmitted(&dropped));
        assert!(marked.links[0].marked > 5, "{queue}: {}", marked.links[0].marked);
        // In slow start PIE's probability is beyond what it marks at (RFC 8033 §5.1).
        let drops_all = queue.starts_with("pie");
        let drops = marked.links[0].drops_early;
        assert!(drops_all || drops <= dropped.links[0].drops_early / 4, "{queue}: {drops}");
        let (with, without) = (delay_ms(&marked), delay_ms(&dropped));
        assert!(with < 2.0 * without + 5.0, "{queue}: {with} and {without} ms");
        assert!(marked.links[0].utilisation.is_some_and(|share| share > 0.85), "{queue}");
    }
}

/// Two scalable flows alone keep DualPI2's queue at a millisecond or two and the link full; two classic
/// ones have the classic queue's target (RFC 9332 §1.1).
#[test]
fn scalable_flows_have_a_short_queue() {
    let scalable = shared("dualpi2:limit=1000p", &[("reno", "l4s"), ("reno", "l4s")]);
    let classic = shared("dualpi2:limit=1000p", &[("reno", "off"), ("reno", "off")]);
    let (low, high) = (delay_ms(&scalable), delay_ms(&classic));
    assert!(low < 3.0, "{low} ms");
    assert!((6.0..25.0).contains(&high), "{high} ms");
    assert!(scalable.links[0].utilisation.is_some_and(|share| share > 0.9), "{scalable:?}");
    assert_eq!(scalable.links[0].drops_early, 0);
}

/// Beside each other they share the link, where in one queue the scalable one would take all, and the
/// scalable one's round trip is shorter (RFC 9332 §1.1, §2.1).
#[test]
fn scalable_and_classic_flows_share() {
    let report = shared("dualpi2:limit=1000p", &[("reno", "l4s"), ("reno", "classic")]);
    let [scalable, classic] = report.flows.as_slice() else { panic!("two flows") };
    let ratio = scalable.throughput_bps / classic.throughput_bps;
    assert!((0.3..3.5).contains(&ratio), "{ratio}");
    let rtt = |flow: &farhaul_sim::FlowReport| flow.rtt_ms.expect("a round trip").mean;
    assert!(rtt(scalable) + 3.0 < rtt(classic), "{} {}", rtt(scalable), rtt(classic));
}

const LINK: &str = "duration = \"4s\"\n[[link]]\nname = \"l\"\nfrom = \"a\"\nto = \"b\"\n";
const FLOW: &str = "[[flow]]\nfrom = \"a\"\nto = \"b\"\nprotocol = \"cbr\"\nrate = \"20M\"\n";

#[test]
fn a_policer_and_a_trace_in_a_scenario() {
    let report = run(&format!("{LINK}rate = \"1G\"\npolicer = \"10M:30kB\"\n{FLOW}"));
    let share = report.links[0].drops_policer as f64 / report.flows[0].packets_sent as f64;
    assert!((0.48..0.52).contains(&share), "{share}");
    // Ten opportunities in ten milliseconds, from a list and from a file: 12 Mb/s.
    let stamps = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]";
    let listed = format!("{LINK}trace = {stamps}\nqueue = \"100p\"\n{FLOW}");
    let report = run(&listed);
    let rate = report.links[0].rate_bps.expect("a rate");
    assert!((rate / 12.032e6 - 1.0).abs() < 1e-3, "{rate}");
    assert!((11.5e6..12.1e6).contains(&report.flows[0].packet_throughput_bps));
    let load = |name: &str| match name {
        "up.trace" => Ok((1..=10).map(|ms| format!("{ms}\n")).collect::<String>()),
        _ => Err("no such file".to_owned()),
    };
    let named = listed.replace(stamps, "\"up.trace\"");
    let plan = Plan::parse_file(&named, &[], None, &load).expect("a scenario");
    assert_eq!(plan.point(0).expect("a point").scenario.run().flows, report.flows);
}

#[test]
fn wrong_paths_are_told_of() {
    for (keys, why) in [
        ("rate = \"1M\"\ntrace = [1, 2]", "leave one of them out"),
        ("trace = [2, 1]", "ascending"),
        ("trace = \"up.trace\"", "no file 'up.trace'"),
        ("trace = [1, 2]\nrate_changes = \"1s:1M\"", "has no changes"),
        ("rate = \"1M\"\npolicer = \"1M\"", "50M:64kB"),
        ("rate = \"1M\"\ndelay_changes = [\"2s:1ms\", \"1s:2ms\"]", "one after the other"),
        ("rate = \"1M\"\nqueue = { kind = \"fq_codl\" }", "did you mean 'fq_codel'?"),
        ("rate = \"1M\"\nqueue = { kind = \"pie\", interval = \"1s\" }", "no key 'interval'"),
        ("rate = \"1M\"\ndelay_change = \"none\"", "did you mean 'delay_changes'?"),
    ] {
        let text = format!("{LINK}{keys}\n{FLOW}");
        let found = Plan::parse(&text, &[], None).expect_err("something is wrong").to_string();
        assert!(found.contains(why), "{keys}: {found}");
    }
    let text = format!("{LINK}rate = \"1M\"\n{FLOW}").replace("cbr", "tcp-reno");
    let text = text.replace("rate = \"20M\"", "options = { ecn = \"on\" }");
    let found = Plan::parse(&text, &[], None).expect_err("no such ECN").to_string();
    assert!(found.contains("off, classic or l4s"), "{found}");
}
