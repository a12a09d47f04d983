//! Many flows on a link that has room for hardly a packet of each, and a TCP beside them: no law may
//! take a link from others there or fill it with packets that are lost (RFC 9743 §5.1.1).

use farhaul_control::own_laws;
use farhaul_sim::{Plan, Report};

/// Flows that begin one after another on `link`; those of before the measurement have settled.
fn run(hosts: &str, link: &str, flows: &[String]) -> Report {
    let mut text = format!(
        "duration = \"40s\"\nmeasure_from = \"10s\"\nhosts = \"{hosts}\"\n[[link]]\nfrom = \"a\"\nto = \"b\"\n"
    );
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

/// Hosts without noise, and a virtual machine's.
const HOSTS: [&str; 2] = ["none", "vm"];
const TCP: &str = "protocol = \"tcp-cubic\"";

/// Eight flows and one CUBIC of TCP on 10 Mb/s, a delay of one or so milliseconds, ten packets: what TCP has of its
/// fair share. The mean of three delays, for where nine flows take turns at ten packets one run is a matter of chance.
fn tcp_share(flow: &str) -> f64 {
    let mut flows = vec![flow.to_owned(); 8];
    flows.push(TCP.to_owned());
    let share = |hosts: &str, delay_us: u32| {
        let report = run(
            hosts,
            &format!("rate = \"10M\"\ndelay = \"{delay_us}us\"\nqueue = \"10p\""),
            &flows,
        );
        report.flows[8].packet_throughput_bps / (10e6 / 9.0)
    };
    let delays = [1_000, 1_300, 1_700];
    let all = HOSTS.iter().flat_map(|hosts| delays.map(|delay| share(hosts, delay)));
    all.sum::<f64>() / (HOSTS.len() * delays.len()) as f64
}

/// Fifty flows on 10 Mb/s, 20 ms, fifty packets: how much of the link is used, and what is lost; means of the hosts.
fn fifty(flow: &str) -> (f64, f64) {
    let one = |hosts: &&str| {
        let report = run(
            hosts,
            "rate = \"10M\"\ndelay = \"10ms\"\nqueue = \"50p\"",
            &vec![flow.to_owned(); 50],
        );
        (report.links[0].utilisation.unwrap_or_default(), lost(&report))
    };
    let all: Vec<(f64, f64)> = HOSTS.iter().map(one).collect();
    let mean = |of: fn(&(f64, f64)) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
    (mean(|(used, _)| *used), mean(|(_, lost)| *lost))
}

/// The share of all packets sent that was lost.
fn lost(report: &Report) -> f64 {
    let sent: f64 = report.flows.iter().map(|flow| flow.packets_sent as f64).sum();
    report.flows.iter().map(|flow| flow.loss_rate * flow.packets_sent as f64).sum::<f64>() / sent
}

/// Every law that comes with farhaul but `blast`, which says that it has no congestion control.
#[test]
fn every_law_leaves_tcp_its_share_and_loses_hardly_more_than_tcp() {
    let most_lost = 1.25 * fifty(TCP).1;
    let mut missed = Vec::new();
    for law in own_laws().iter().map(|law| law.name).filter(|name| *name != "blast") {
        let flow = format!("cc = \"{law}\"");
        let (share, (used, lost)) = (tcp_share(&flow), fifty(&flow));
        let verdict = format!(
            "{law}: TCP has {share:.2}; fifty use {used:.2}, lose {lost:.3} of {most_lost:.3}"
        );
        eprintln!("{verdict}");
        // Receivers that grant rates, of gtp, leave some of the link free.
        if share < 0.5 || lost > most_lost || used < 0.6 {
            missed.push(verdict);
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

/// Where even two packets of each are twice what the path and its queue hold.
#[test]
fn many_connections_of_one_manager_send_as_one() {
    let lost_on_half = |flow: &str| {
        let link = "rate = \"5M\"\ndelay = \"10ms\"\nqueue = \"50p\"";
        lost(&run("none", link, &vec![flow.to_owned(); 50]))
    };
    let (lost, tcp) = (lost_on_half("cc = \"cm\""), lost_on_half(TCP));
    assert!(lost <= 1.25 * tcp, "{lost:.3} lost, TCP {tcp:.3}");
}

#[test]
fn a_law_without_congestion_control_is_found_out() {
    let (share, (_, lost)) = (tcp_share("cc = \"blast\""), fifty("cc = \"blast\""));
    assert!(share < 0.1 && lost > 0.9, "TCP has {share:.2}; fifty lose {lost:.3}");
}
