//! Hosts that take their time: what reaches the network, and what a scenario may say of them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use farhaul_base::Time;
use farhaul_sim::{Event, EventKind, HostProfile, Observer, Plan, Report};

fn scenario(top: &str, rest: &str) -> String {
    format!(
        "duration = \"4s\"\nmeasure_from = \"1s\"\n{top}\n\
         [[link]]\nname = \"l\"\nfrom = \"a\"\nto = \"b\"\nrate = \"100M\"\ndelay = \"10ms\"\n\
         {rest}\n"
    )
}

const UDT: &str = "[[flow]]\nname = \"f\"\nfrom = \"a\"\nto = \"b\"\ncc = \"bbr\"";
const TCP: &str = "[[flow]]\nname = \"f\"\nfrom = \"a\"\nto = \"b\"\nprotocol = \"tcp-cubic\"";

fn run(text: &str) -> Report {
    let plan = Plan::parse(text, &[], None).unwrap_or_else(|problems| panic!("{problems}"));
    plan.point(0).expect("a point").scenario.run()
}

fn problems(text: &str) -> String {
    Plan::parse(text, &[], None).expect_err("something is wrong").to_string()
}

#[test]
fn a_host_without_noise_changes_nothing() {
    for flow in [UDT, TCP] {
        let plain = run(&scenario("", flow));
        assert_eq!(plain, run(&scenario("hosts = \"none\"", flow)));
        assert_ne!(plain, run(&scenario("hosts = \"quiet\"", flow)));
    }
}

#[test]
fn noisy_runs_are_functions_of_the_seed() {
    for (name, _) in HostProfile::all() {
        let udt = UDT.replace("\"f\"", "\"g\"");
        let text = scenario(&format!("hosts = \"{name}\""), &format!("{udt}\n{TCP}"));
        assert_eq!(run(&text), run(&text), "{name}");
    }
}

/// When the sender of the first flow has sent.
#[derive(Default)]
struct Sends(Vec<Time>);

impl Observer for Sends {
    fn event(&mut self, event: &Event<'_>) {
        if event.kind == EventKind::Sent && event.packet.from.0 == 0 {
            self.0.push(event.at);
        }
    }
}

#[test]
fn a_stalled_sender_is_silent() {
    let node = "[[node]]\nname = \"a\"\nstall_every = \"200ms\"\nstall = \"30ms\"";
    let silences = |text: &str| {
        let plan = Plan::parse(text, &[], None).unwrap_or_else(|problems| panic!("{problems}"));
        let mut run = plan.point(0).expect("a point").scenario.start();
        let sends = Arc::new(Mutex::new(Sends::default()));
        run.simulation_mut().observe(Box::new(Arc::clone(&sends)));
        while run.step() {}
        let sends = &sends.lock().expect("no panic").0;
        // The set-up and the start are silent for a round trip, and no longer.
        let long = sends.windows(2).filter(|pair| pair[1] - pair[0] >= Duration::from_millis(30));
        (long.count() as u64, run.finish())
    };
    for flow in [UDT, TCP] {
        let (silent, report) = silences(&scenario("", &format!("{node}\n{flow}")));
        assert_eq!(silent, report.hosts[0].stalls, "{flow}");
        assert!((10..30).contains(&silent), "{flow}: {silent}");
        let (silent, plain) = silences(&scenario("", flow));
        assert_eq!(silent, 0, "{flow}");
        assert!(report.flows[0].bytes > plain.flows[0].bytes / 2, "{flow}");
    }
}

#[test]
fn thinned_acks_are_fewer() {
    let acks = |node: &str| run(&scenario("", &format!("{node}\n{TCP}"))).packets;
    let thin = acks("[[node]]\nname = \"b\"\nack_hold = \"2ms\"");
    let all = acks("");
    // At 100 Mb/s there are some eight ACKs in 2 ms beside seventeen segments.
    assert!(thin < all * 8 / 10, "{thin} of {all}");
}

#[test]
fn what_receive_offload_takes_together_is_acknowledged_once() {
    let packets = |node: &str| run(&scenario("", &format!("{node}\n{TCP}"))).packets;
    let merged = packets("[[node]]\nname = \"b\"\ncoalesce = \"1ms\"\nbatch = 44");
    let gathered = packets("[[node]]\nname = \"b\"\ncoalesce = \"1ms\"");
    assert!(merged < gathered * 8 / 10, "{merged} of {gathered}");
}

#[test]
fn a_small_interface_overruns() {
    let report = run(&scenario(
        "",
        &format!("[[node]]\nname = \"b\"\ncoalesce = \"2ms\"\nring = 10\n{UDT}"),
    ));
    assert!(report.flows[0].loss_rate > 0.01, "{}", report.flows[0].loss_rate);
    let host = &report.hosts[0];
    assert_eq!(host.name, "b");
    assert!(host.overruns > 100, "{host:?}");
}

#[test]
fn profiles_of_the_scenario() {
    let own = "[[host]]\nname = \"mine\"\nlike = \"quiet\"\nbatch = 7";
    let text = scenario("hosts = \"mine\"", &format!("{own}\n{UDT}"));
    let plan = Plan::parse(&text, &[], None).unwrap_or_else(|problems| panic!("{problems}"));
    let scenario_of = plan.point(0).expect("a point").scenario;
    let quiet = HostProfile::named("quiet").expect("a profile");
    for host in &scenario_of.hosts {
        assert_eq!((host.name.as_str(), host.batch.0), ("mine", 7));
        assert_eq!(host.timer, quiet.timer);
    }
    // What is written is read back.
    let written = scenario_of.hosts[0].to_string();
    let text = scenario("hosts = \"mine\"", &format!("{written}\n{UDT}"));
    let again = Plan::parse(&text, &[], None).expect("a scenario").point(0).expect("a point");
    assert_eq!(again.scenario.hosts, scenario_of.hosts);
    // A node may differ from the others.
    let node = "[[node]]\nname = \"b\"\nhost = \"none\"\ntimer = \"1ms\"";
    let text = scenario("hosts = \"quiet\"", &format!("{node}\n{UDT}"));
    let hosts = Plan::parse(&text, &[], None).expect("a scenario").point(0).expect("a point");
    let [b, a] = hosts.scenario.hosts.as_slice() else { panic!("two nodes") };
    assert_eq!((b.timer.to_string(), b.batch.0), ("1ms".into(), 1));
    assert_eq!(*a, quiet);
}

#[test]
fn wrong_hosts_are_told_of() {
    let found = problems(&scenario("hosts = \"quit\"", UDT));
    assert!(found.contains("did you mean 'quiet'?"), "{found}");
    let found = problems(&scenario("", &format!("[[node]]\nname = \"a\"\ntimr = \"1ms\"\n{UDT}")));
    assert!(found.contains("did you mean 'timer'?"), "{found}");
    let found = problems(&scenario("", &format!("[[host]]\nname = \"vm\"\nbtch = 1\n{UDT}")));
    assert!(found.contains("did you mean 'batch'?"), "{found}");
    for (host, why) in [
        ("name = \"quiet\"", "give another name"),
        ("batch = 0\nname = \"x\"", "whole number of packets"),
        ("stall = \"1ms\"\nname = \"x\"", "belong together"),
        ("batch = 2", "needs 'name'"),
        ("like = \"nosuch\"\nname = \"x\"", "no host profile 'nosuch'"),
    ] {
        let found = problems(&scenario("", &format!("[[host]]\n{host}\n{UDT}")));
        assert!(found.contains(why), "{host}: {found}");
    }
}

/// After a stall a sender makes up for little of it at once: a queue of a millisecond would not hold more.
#[test]
fn a_stalled_sender_floods_no_short_queue() {
    let node = "[[node]]\nname = \"a\"\nstall_every = \"100ms\"\nstall = \"8ms\"";
    let text = scenario("", &format!("{node}\n{UDT}")).replace(
        "rate = \"100M\"\ndelay = \"10ms\"",
        "rate = \"1G\"\ndelay = \"0.5ms\"\nqueue = 83",
    );
    let report = run(&text);
    let flow = &report.flows[0];
    assert!(flow.loss_rate < 0.01, "{}", flow.loss_rate);
    assert!(flow.bytes > 250_000_000, "{}", flow.bytes);
}
