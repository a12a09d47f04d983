//! Many flows on a link that has room for hardly a packet of each, and a TCP beside them: no law may
//! take a link from others there or fill it with packets that are lost (RFC 9743 §5.1.1).

use farhaul_control::laws;
use farhaul_sim::{Plan, Report};

/// 10 Mb/s, on which those of before the measurement have settled.
fn run(link: &str, flows: &[String]) -> Report {
    let mut text =
        "duration = \"40s\"\nmeasure_from = \"10s\"\n[[link]]\nfrom = \"a\"\nto = \"b\"\n\
                    rate = \"10M\"\n"
            .to_owned();
    text += link;
    for (flow, keys) in flows.iter().enumerate() {
        text += &format!(
            "\n[[flow]]\nname = \"f{flow}\"\nfrom = \"a\"\nto = \"b\"\nstart = \"{}ms\"\n{keys}\n",
            100 * flow
        );
    }
    let plan = Plan::parse(&text, &[], None).expect("a scenario");
    plan.point(0).expect("its only point").scenario.run()
}

/// Eight flows of a law and one CUBIC of TCP on 10 Mb/s, a delay of one or so milliseconds, ten packets: what
/// TCP has of its fair share, and what the others lose.
fn beside_tcp(law: &str, delay_us: u32) -> (f64, f64) {
    let mut flows = vec![law.to_owned(); 8];
    flows.push("protocol = \"tcp-cubic\"".to_owned());
    let report = run(&format!("delay = \"{delay_us}us\"\nqueue = \"10p\""), &flows);
    let share = report.flows[8].packet_throughput_bps / (10e6 / 9.0);
    (share, lost(&report, 8))
}

/// Fifty flows on 10 Mb/s, 20 ms, fifty packets: how much of the link is used, and what is lost.
fn fifty(law: &str) -> (f64, f64) {
    let report = run("delay = \"10ms\"\nqueue = \"50p\"", &vec![law.to_owned(); 50]);
    (report.links[0].utilisation.unwrap_or_default(), lost(&report, 50))
}

fn lost(report: &Report, flows: usize) -> f64 {
    let flows = &report.flows[..flows];
    let sent: f64 = flows.iter().map(|flow| flow.packets_sent as f64).sum();
    flows.iter().map(|flow| flow.loss_rate * flow.packets_sent as f64).sum::<f64>() / sent
}

const TCP: &str = "protocol = \"tcp-cubic\"";

/// What TCP has of its fair share beside a law: the mean of three delays, for where nine flows take
/// turns at ten packets one run is a matter of chance.
fn tcp_share(law: &str) -> f64 {
    [1_000, 1_300, 1_700].map(|delay| beside_tcp(law, delay).0).iter().sum::<f64>() / 3.0
}

fn check(law: &str) {
    let keys = format!("cc = \"{law}\"");
    let (share, (used, lost)) = (tcp_share(&keys), fifty(&keys));
    let most_lost = 1.25 * fifty(TCP).1;
    let verdict =
        format!("{law}: TCP has {share:.2}; fifty use {used:.2}, lose {lost:.3} of {most_lost:.3}");
    eprintln!("{verdict}");
    // Receivers that grant rates, of gtp, leave some of the link free.
    assert!(share >= 0.5 && lost <= most_lost && used > 0.6, "{verdict}");
}

#[test]
fn the_default_law_leaves_tcp_its_share() {
    check("bbr");
}

#[test]
fn haul_leaves_tcp_its_share() {
    check("haul");
}

#[test]
fn cubic_leaves_tcp_its_share() {
    check("cubic");
}

#[test]
fn udt_leaves_tcp_its_share() {
    check("udt");
}

/// All others, but `blast`, which says that it has no congestion control; with FARHAUL_LONG=1.
#[test]
#[allow(clippy::disallowed_methods, reason = "how much is tested, not what comes of it")]
fn every_law_leaves_tcp_its_share() {
    if std::env::var_os("FARHAUL_LONG").is_none_or(|value| value != "1") {
        return;
    }
    for law in laws() {
        match law.name {
            "blast" | "bbr" | "haul" | "cubic" | "udt" => {}
            _ => check(law.name),
        }
    }
}
