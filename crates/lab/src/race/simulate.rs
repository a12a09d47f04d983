//! A run of a race in the simulator.

use farhaul_sim::Plan;

use super::cell::PACKET_BITS;
use super::{Cell, Figures, Run, System, to_90};

/// Seconds of a sample of the series.
const SAMPLE_S: f64 = 0.1;

/// Runs it in virtual time, with the simulator's own TCP where a kernel's is named.
///
/// # Errors
/// Why the run is none: the simulator's TCP has no such congestion control.
pub fn simulate(run: &Run<'_>) -> Result<Figures, String> {
    let plan = Plan::parse(&scenario(run), &[], None).map_err(|problems| problems.to_string())?;
    let point = plan.point(0).map_err(|problems| problems.to_string())?;
    let report = point.scenario.run();
    let (Some(flow), Some(link)) = (report.flows.first(), report.links.first()) else {
        return Err("the simulator reports no flow".into());
    };
    let ends = (1..).map(|sample| f64::from(sample) * SAMPLE_S);
    let series: Vec<(f64, f64)> = ends.zip(flow.arrivals.iter().copied()).collect();
    let sent = (flow.packets_sent as f64).max(1.0);
    Ok(Figures {
        goodput_bps: flow.throughput_bps,
        to_90_s: to_90(&series),
        again: flow.retransmitted as f64 / sent,
        retransmitted: Some(flow.retransmitted as f64),
        queue_ms: link.queue.mean * PACKET_BITS / run.cell.rate.bits_per_second() as f64 * 1e3,
        cpu_s_per_gb: None,
        memory_bytes: None,
        time_kept: true,
    })
}

fn scenario(run: &Run<'_>) -> String {
    let Run { cell, system, round } = run;
    let who = match system {
        System::Farhaul(law) => format!("cc = \"{law}\""),
        System::Tcp(name) => format!("protocol = \"tcp-{name}\""),
    };
    format!(
        "seed = {}\nduration = \"{}ms\"\nsample = \"{SAMPLE_S}s\"\n\
         [[link]]\nfrom = \"a\"\nto = \"b\"\n{}\
         [[flow]]\nfrom = \"a\"\nto = \"b\"\n{who}\n",
        round + 1,
        cell.lasts().as_millis(),
        link(cell),
    )
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
                let text = scenario(&Run { cell: &cell, system, round: 0 });
                assert!(Plan::parse(&text, &[], None).is_ok(), "{text}");
            }
        }
    }

    #[test]
    fn a_flow_that_fills_its_path_is_seen_to() {
        let cell = Cell::new(10_000_000, 10, 0.0);
        let system = "tcp:cubic".parse().expect("a system");
        let figures = simulate(&Run { cell: &cell, system: &system, round: 0 }).expect("figures");
        assert!((9e6..10e6).contains(&figures.goodput_bps), "{figures:?}");
        assert!(figures.to_90_s.is_some_and(|time| time < 2.0), "{figures:?}");
        assert!(figures.queue_ms > 0.1, "{figures:?}");
        let unknown = "tcp:nosuch".parse().expect("a name");
        assert!(simulate(&Run { cell: &cell, system: &unknown, round: 0 }).is_err());
    }
}
