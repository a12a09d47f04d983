//! What a run or a sweep looks like.

use farhaul_lab::chart::{Axis, Chart, Figure, Series};
use farhaul_lab::quantity::{number, unit};
use farhaul_lab::sweep::Measured;
use farhaul_sim::Report;

/// More flows than this are drawn together.
const MOST_LINES: usize = 12;

/// The throughput over time of one run, or over the last swept variable of several; none if that is
/// no number.
pub fn of(name: &str, measured: &[Measured]) -> Option<Figure> {
    match measured {
        [] => None,
        [only] => Some(over_time(name, &only.report)),
        _ => over_variable(name, measured),
    }
}

fn over_time(name: &str, report: &Report) -> Figure {
    let at = |index: usize| (index as f64 + 0.5) * report.sample_s;
    let points = |series: &[f64]| series.iter().enumerate().map(|(n, y)| (at(n), *y)).collect();
    let series = if report.flows.len() <= MOST_LINES {
        report.flows.iter().map(|flow| Series::line(&*flow.name, points(&flow.series))).collect()
    } else {
        let samples = report.flows.iter().map(|flow| flow.series.len()).max().unwrap_or(0);
        let sum = |n: usize| report.flows.iter().filter_map(|flow| flow.series.get(n)).sum();
        let sums: Vec<f64> = (0..samples).map(sum).collect();
        vec![Series::line(format!("{} flows together", report.flows.len()), points(&sums))]
    };
    let title = if report.title.is_empty() { name } else { &report.title };
    Figure::from(Chart {
        title: title.to_owned(),
        x: Axis::linear("time", "s"),
        y: Axis::linear("throughput", "b/s"),
        series,
        ..Chart::default()
    })
}

fn over_variable(name: &str, measured: &[Measured]) -> Option<Figure> {
    let (variable, _) = measured.first()?.values.last()?;
    let mut series: Vec<Series> = Vec::new();
    for same in measured.chunk_by(|a, b| a.values == b.values) {
        let (_, value) = same[0].values.last()?;
        let x = number(value)?;
        let sum: f64 = same.iter().map(|m| m.report.indices.efficiency_bps).sum();
        let others = &same[0].values[..same[0].values.len() - 1];
        let others: Vec<String> = others.iter().map(|(k, v)| format!("{k} {v}")).collect();
        let line = if others.is_empty() { "throughput".into() } else { others.join(", ") };
        let point = (x, sum / same.len() as f64);
        match series.iter_mut().find(|series| series.name == line) {
            Some(found) => found.points.push(point),
            None => series.push(Series::both(line, vec![point])),
        }
    }
    let xs = || series.iter().flat_map(|series| &series.points).map(|(x, _)| *x);
    let (low, high) = (xs().reduce(f64::min)?, xs().reduce(f64::max)?);
    let x = if low > 0.0 && high / low >= 50.0 {
        Axis::log(variable, unit(&measured[0].values.last()?.1))
    } else {
        Axis::linear(variable, unit(&measured[0].values.last()?.1))
    };
    let y = Axis::linear("throughput", "b/s");
    Some(Figure::from(Chart { title: name.to_owned(), x, y, series, ..Chart::default() }))
}
