//! A run of a race in the simulator.

use farhaul_sim::Plan;

use super::cell::PACKET_BITS;
use super::{Cell, Figures, Flow, Kind, Run, Sharing, System, steady, to_90};

/// Seconds of a sample of the series.
const SAMPLE_S: f64 = 0.1;

/// Runs it in virtual time, with the simulator's own TCP where a kernel's is named; `hosts` is the profile
/// of both ends.
///
/// # Errors
/// Why the run is none: the simulator's TCP has no such congestion control, it is of a program, or there is no
/// such profile.
pub fn simulate(run: &Run<'_>, hosts: &str) -> Result<Figures, String> {
    let plan =
        Plan::parse(&scenario(run, hosts)?, &[], None).map_err(|problems| problems.to_string())?;
    let point = plan.point(0).map_err(|problems| problems.to_string())?;
    let report = point.scenario.run();
    let (Some(link), false) = (report.links.first(), report.flows.is_empty()) else {
        return Err("the simulator reports no flow".into());
    };
    let ends = || (1..).map(|sample| f64::from(sample) * SAMPLE_S);
    let flows: Vec<Flow> = report
        .flows
        .iter()
        .map(|flow| ends().zip(flow.arrivals.iter().copied()).collect())
        .collect();
    let own = &report.flows[..run.cell.flows.min(report.flows.len())];
    let sent = own.iter().map(|flow| flow.packets_sent as f64).sum::<f64>().max(1.0);
    let retransmitted = own.iter().map(|flow| flow.retransmitted as f64).sum::<f64>();
    Ok(Figures {
        goodput_bps: own.iter().map(|flow| flow.throughput_bps).sum(),
        to_90_s: to_90(&flows[0]),
        steady_bps: steady(&flows[0]),
        again: retransmitted / sent,
        retransmitted: Some(retransmitted),
        queue_ms: link.queue.mean * PACKET_BITS / run.cell.rate.bits_per_second() as f64 * 1e3,
        time_kept: true,
        sharing: Sharing::of(run.cell, &flows),
        ..Figures::default()
    })
}

fn scenario(run: &Run<'_>, hosts: &str) -> Result<String, String> {
    let Run { cell, system, round } = run;
    let mut text = format!(
        "seed = {}\nhosts = \"{hosts}\"\nduration = \"{}ms\"\nsample = \"{SAMPLE_S}s\"\n\
         [[link]]\nfrom = \"a\"\nto = \"b\"\n{}",
        round + 1,
        cell.lasts().as_millis(),
        link(cell),
    );
    for system in cell.flows_of(system) {
        text += &format!("[[flow]]\nfrom = \"a\"\nto = \"b\"\n{}\n", flow(system)?);
    }
    Ok(text)
}

fn flow(system: &System) -> Result<String, String> {
    match system.kind() {
        Kind::Farhaul(law) => Ok(format!("cc = \"{law}\"")),
        Kind::Tcp(name) => Ok(format!("protocol = \"tcp-{name}\"")),
        Kind::Program => Err(format!("the simulator has no {system}")),
    }
}

fn link(cell: &Cell) -> String {
    let mut text = format!(
        "rate = \"{}\"\ndelay = \"{}us\"\nqueue = \"{}p\"\nloss = \"{}\"\n\
         reverse = {{ loss = \"none\" }}\n",
        cell.rate,
        (cell.rtt / 2).as_micros(),
        cell.queue_packets(),
        cell.loss_model(),
    );
    if !cell.jitter.is_zero() {
        text += &format!("jitter = \"{}us\"\n", cell.jitter.as_micros());
    }
    if let Some(blackout) = &cell.blackout {
        text += &format!("blackouts = \"{blackout}\"\n");
    }
    if !cell.changes.is_empty() {
        let changes: Vec<String> =
            cell.changes.to_string().split(',').map(|change| format!("\"{change}\"")).collect();
        text += &format!("rate_changes = [{}]\n", changes.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::race::standard;

    #[test]
    fn every_path_is_a_scenario() {
        let systems = ["bbr", "tcp:cubic"].map(|text| text.parse::<System>().expect("a system"));
        for cell in standard() {
            for system in &systems {
                let text =
                    scenario(&Run { cell: &cell, system, round: 0 }, "vm").expect("a scenario");
                assert!(Plan::parse(&text, &[], None).is_ok(), "{text}");
            }
        }
    }

    #[test]
    fn a_flow_that_fills_its_path_is_seen_to() {
        let cell = Cell::new(10_000_000, 10, 0.0);
        let system = "tcp:cubic".parse().expect("a system");
        let run = Run { cell: &cell, system: &system, round: 0 };
        let figures = simulate(&run, "none").expect("figures");
        assert!((9e6..10e6).contains(&figures.goodput_bps), "{figures:?}");
        assert!(figures.to_90_s.is_some_and(|time| time < 2.0), "{figures:?}");
        assert!(figures.queue_ms > 0.1, "{figures:?}");
        for other in ["tcp:nosuch", "scp"] {
            let other = other.parse().expect("a name");
            assert!(simulate(&Run { cell: &cell, system: &other, round: 0 }, "none").is_err());
        }
    }

    #[test]
    fn flows_share_a_simulated_path() {
        let cell: Cell = "rate=10M,rtt=10ms,flows=2".parse().expect("a path");
        let system = "tcp:cubic".parse().expect("a system");
        let run = Run { cell: &cell, system: &system, round: 0 };
        let figures = simulate(&run, "none").expect("figures");
        let sharing = figures.sharing.expect("shared");
        assert!(sharing.jain > 0.8 && (0.8..1.05).contains(&sharing.share), "{sharing:?}");
    }
}
