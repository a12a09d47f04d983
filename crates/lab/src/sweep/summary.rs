//! One table of a sweep: a row for each combination of values, means over the seeds.

use farhaul_sim::Report;

use super::Measured;
use crate::statistics::interval_95;
use crate::table::{Cell, Column, Table};

/// A column of measurements.
struct Metric {
    name: &'static str,
    unit: &'static str,
    of: fn(&Report) -> Option<f64>,
}

const METRICS: &[Metric] = &[
    Metric { name: "throughput", unit: "Mb/s", of: |r| Some(r.indices.efficiency_bps / 1e6) },
    Metric { name: "utilisation", unit: "", of: |r| r.links.first()?.utilisation },
    // One flow is always fair to itself.
    Metric { name: "fairness", unit: "", of: |r| r.indices.jain.filter(|_| r.flows.len() > 1) },
    Metric { name: "stability", unit: "", of: |r| r.indices.stability },
    Metric { name: "TCP friendliness", unit: "", of: |r| r.indices.tcp_friendliness },
    Metric { name: "loss", unit: "", of: loss },
    Metric { name: "RTT", unit: "ms", of: rtt },
    Metric { name: "queue", unit: "packets", of: |r| Some(r.links.first()?.queue.mean) },
];

/// Share of all flows' data packets that were lost.
fn loss(report: &Report) -> Option<f64> {
    let sent: u64 = report.flows.iter().map(|flow| flow.packets_sent).sum();
    let lost: f64 = report.flows.iter().map(|f| f.loss_rate * f.packets_sent as f64).sum();
    (sent > 0).then(|| lost / sent as f64)
}

/// Mean over the flows, milliseconds.
fn rtt(report: &Report) -> Option<f64> {
    let means: Vec<f64> = report.flows.iter().filter_map(|f| Some(f.rtt_ms?.mean)).collect();
    (!means.is_empty()).then(|| means.iter().sum::<f64>() / means.len() as f64)
}

/// The table of `measured`, runs in the plan's order: those with the same values make one row, with
/// the interval of confidence where there is more than one. Columns without a value are left out.
pub fn summary(title: &str, measured: &[Measured]) -> Table {
    let groups: Vec<&[Measured]> = measured.chunk_by(|a, b| a.values == b.values).collect();
    let present = |metric: &&Metric| measured.iter().any(|m| (metric.of)(&m.report).is_some());
    let metrics: Vec<&Metric> = METRICS.iter().filter(present).collect();
    let names = measured.first().map_or(&[][..], |first| &first.values);
    let columns = names.iter().map(|(name, _)| Column::new(name, ""));
    let columns = columns.chain(metrics.iter().map(|m| Column::new(m.name, m.unit)));
    let row = |group: &&[Measured]| {
        let values = group[0].values.iter().map(|(_, value)| Cell::Text(value.clone()));
        let cells = metrics.iter().map(|metric| {
            let sample: Vec<f64> = group.iter().filter_map(|m| (metric.of)(&m.report)).collect();
            match (sample.as_slice(), interval_95(&sample)) {
                ([], _) => Cell::Missing,
                (_, Some(interval)) => interval.into(),
                ([value, ..], None) => Cell::Number(*value),
            }
        });
        values.chain(cells).collect()
    };
    Table {
        title: title.to_owned(),
        columns: columns.collect(),
        rows: groups.iter().map(row).collect(),
    }
}
