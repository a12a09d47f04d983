//! What a run or a sweep looks like.

use farhaul_lab::chart::{Axis, Chart, Figure, Series};
use farhaul_lab::quantity::number;
use farhaul_lab::sweep::{Measured, axis, curves};
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
    let measured: Vec<&Measured> = measured.iter().collect();
    if measured.iter().any(|run| run.value(variable).and_then(number).is_none()) {
        return None;
    }
    let mut series = curves(&measured, variable, |run| Some(run.report.indices.efficiency_bps));
    for curve in series.iter_mut().filter(|curve| curve.name.is_empty()) {
        curve.name = "throughput".into();
    }
    Some(Figure::from(Chart {
        title: name.to_owned(),
        x: axis(variable, &measured),
        y: Axis::linear("throughput", "b/s"),
        series,
        ..Chart::default()
    }))
}
