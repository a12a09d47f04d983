//! Tables of a sweep: a row for each combination of values, means over the seeds.

use farhaul_sim::{FlowReport, Report};

use super::{Measured, groups};
use crate::experiment::metric::{loss, mean_rtt};
use crate::statistics::Average;
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
    Metric { name: "loss", unit: "", of: |r| loss(&all(r)) },
    Metric { name: "RTT", unit: "ms", of: |r| mean_rtt(&all(r)) },
    Metric { name: "queue", unit: "packets", of: |r| Some(r.links.first()?.queue.mean) },
];

fn all(report: &Report) -> Vec<&FlowReport> {
    report.flows.iter().collect()
}

/// The table of `measured`, runs in the plan's order: those with the same values make one row, with
/// the interval of confidence where there is more than one. Columns without a value are left out.
pub fn summary(title: &str, measured: &[Measured]) -> Table {
    let present = |metric: &&Metric| measured.iter().any(|m| (metric.of)(&m.report).is_some());
    let columns = METRICS.iter().filter(present).map(|metric| {
        RunColumn::new(Column::new(metric.name, metric.unit), |runs| {
            let sample: Vec<f64> = runs.iter().filter_map(|m| (metric.of)(&m.report)).collect();
            Cell::of_sample(&sample, Average::Mean)
        })
    });
    table(title, measured, str::to_owned, columns.collect())
}

/// A column of a table of runs, and what it has for the runs with the same values.
pub(crate) struct RunColumn<'a> {
    column: Column,
    cell: Box<CellOf<'a>>,
}

type CellOf<'a> = dyn Fn(&[Measured]) -> Cell + 'a;

impl<'a> RunColumn<'a> {
    pub(crate) fn new(column: Column, cell: impl Fn(&[Measured]) -> Cell + 'a) -> Self {
        RunColumn { column, cell: Box::new(cell) }
    }
}

/// The swept variables, which `named` gives their headings, then `columns`; a row for the runs with
/// the same values.
pub(crate) fn table(
    title: &str,
    measured: &[Measured],
    named: impl Fn(&str) -> String,
    columns: Vec<RunColumn<'_>>,
) -> Table {
    let variables = measured.first().map_or(&[][..], |first| &first.values);
    let row = |runs: &[Measured]| {
        let values = runs[0].values.iter().map(|(_, value)| Cell::Text(value.clone()));
        values.chain(columns.iter().map(|column| (column.cell)(runs))).collect()
    };
    let rows = groups(measured).map(row).collect();
    let variables = variables.iter().map(|(name, _)| Column::new(named(name), ""));
    let columns = variables.chain(columns.iter().map(|column| column.column.clone())).collect();
    Table { title: title.to_owned(), columns, rows }
}
