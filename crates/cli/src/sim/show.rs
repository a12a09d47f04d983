//! One run's results for a person.

use std::io::{self, Write};

use farhaul_lab::table::{Cell, Column, Table};
use farhaul_sim::{Indices, Report};

use crate::units::show_rate;

/// Prints flows, links and indices.
pub fn report(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    if !report.title.is_empty() {
        writeln!(out, "{}\n", report.title)?;
    }
    writeln!(out, "{}\n{}", flows(report).text(), links(report).text())?;
    ended(out, "", report)?;
    let Indices { efficiency_bps, jain, stability, tcp_friendliness } = report.indices;
    writeln!(out, "efficiency {}", show_rate(efficiency_bps))?;
    let named = [
        ("fairness (Jain)", jain.filter(|_| report.flows.len() > 1)),
        ("stability", stability),
        ("TCP friendliness", tcp_friendliness),
    ];
    for (name, value) in named.into_iter().filter_map(|(name, value)| Some((name, value?))) {
        writeln!(out, "{name} {value:.4}")?;
    }
    if tcp_friendliness.is_some() && report.flows.iter().all(|flow| flow.protocol != "udt") {
        writeln!(out, "no flow is UDT: the run that TCP friendliness compares with is the same")?;
    }
    let wall = report.wall_seconds.unwrap_or_default();
    let speed_up = report.duration_s / wall.max(1e-9);
    writeln!(
        out,
        "{} s simulated in {wall:.2} s ({speed_up:.1} times real time), {} packets, seed {}",
        report.duration_s, report.packets, report.seed
    )
}

/// A line, beginning with `run`, for each flow whose connection ended too early.
pub fn ended(out: &mut dyn Write, run: &str, report: &Report) -> io::Result<()> {
    for flow in &report.flows {
        if let Some(ended) = flow.ended {
            writeln!(out, "{run}{}: {ended}", flow.name)?;
        }
    }
    Ok(())
}

fn flows(report: &Report) -> Table {
    let columns = ["flow", "protocol", "throughput", "loss", "RTT", "sent", "again"];
    let units = ["", "", "", "%", "ms", "packets", "packets"];
    let rows = report.flows.iter().map(|flow| {
        vec![
            Cell::Text(flow.name.clone()),
            // The law that a protocol's name already says is not said again.
            Cell::Text(match &flow.cc {
                Some(cc) if !flow.protocol.ends_with(cc.as_str()) => {
                    format!("{} {cc}", flow.protocol)
                }
                _ => flow.protocol.clone(),
            }),
            Cell::Text(show_rate(flow.throughput_bps)),
            Cell::Number(flow.loss_rate * 100.0),
            flow.rtt_ms.map_or(Cell::Missing, |rtt| Cell::Number(rtt.mean)),
            Cell::Text(flow.packets_sent.to_string()),
            Cell::Text(flow.retransmitted.to_string()),
        ]
    });
    table(&columns, &units, rows.collect())
}

fn links(report: &Report) -> Table {
    let columns = ["link", "utilisation", "dropped", "mean queue", "longest queue"];
    let units = ["", "%", "packets", "packets", "packets"];
    let rows = report.links.iter().map(|link| {
        vec![
            Cell::Text(link.name.clone()),
            link.utilisation.map_or(Cell::Missing, |share| Cell::Number(share * 100.0)),
            Cell::Text(link.drops.to_string()),
            Cell::Number(link.queue.mean),
            Cell::Text(link.queue.max.to_string()),
        ]
    });
    table(&columns, &units, rows.collect())
}

fn table(columns: &[&str], units: &[&str], rows: Vec<Vec<Cell>>) -> Table {
    let columns = columns.iter().zip(units).map(|(name, unit)| Column::new(*name, *unit));
    Table { title: String::new(), columns: columns.collect(), rows }
}
