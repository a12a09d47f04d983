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
        _ => over_variable(name, measured).map(Figure::from),
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

fn over_variable(name: &str, measured: &[Measured]) -> Option<Chart> {
    let (variable, _) = measured.first()?.values.last()?;
    let measured: Vec<&Measured> = measured.iter().collect();
    if measured.iter().any(|run| run.value(variable).and_then(number).is_none()) {
        return None;
    }
    let mut series = curves(&measured, variable, |run| Some(run.report.indices.efficiency_bps));
    for curve in series.iter_mut().filter(|curve| curve.name.is_empty()) {
        curve.name = "throughput".into();
    }
    let mut x = Axis { label: readable(variable), ..axis(variable, &measured) };
    if measured.iter().all(|run| run.value(variable).is_some_and(|value| value.ends_with('%'))) {
        x.unit = "%".into();
        for (share, _) in series.iter_mut().flat_map(|curve| &mut curve.points) {
            *share *= 100.0;
        }
    }
    Some(Chart {
        title: name.to_owned(),
        x,
        y: Axis::linear("throughput", "b/s"),
        series,
        ..Chart::default()
    })
}

/// What an axis over a variable is called: variables have short names.
fn readable(variable: &str) -> String {
    match variable {
        "rtt" => "round-trip time".into(),
        "ber" => "bit error rate".into(),
        "loss" => "loss rate".into(),
        _ => variable.replace('_', " "),
    }
}

#[cfg(test)]
mod tests {
    use farhaul_sim::Plan;

    use super::*;

    /// The axis of a plot over `variable`.
    fn axis_over(variable: &str, values: &[&str]) -> (Axis, Vec<f64>) {
        let text = "duration = \"10ms\"\n[[link]]\nfrom = \"a\"\nto = \"b\"\nrate = \"1M\"\n\
            [[flow]]\nfrom = \"a\"\nto = \"b\"\n";
        let plan = Plan::parse(text, &[], None).expect("a plan");
        let report = plan.point(0).expect("a point").scenario.run();
        let run = |(point, value): (usize, &&str)| Measured {
            point: point as u64,
            values: vec![(variable.to_owned(), (*value).to_owned())],
            report: report.clone(),
        };
        let measured: Vec<Measured> = values.iter().enumerate().map(run).collect();
        let chart = over_variable("x", &measured).expect("numbers");
        let places = chart.series[0].points.iter().map(|(x, _)| *x).collect();
        (chart.x, places)
    }

    #[test]
    fn axes_have_readable_names_and_units() {
        let (axis, places) = axis_over("rtt", &["1ms", "2ms"]);
        assert_eq!(
            (&*axis.label, &*axis.unit, places),
            ("round-trip time", "s", vec![0.001, 0.002])
        );
        let (axis, places) = axis_over("loss", &["1%", "2%"]);
        assert_eq!((&*axis.label, &*axis.unit, places), ("loss rate", "%", vec![1.0, 2.0]));
        let (axis, _) = axis_over("cross_traffic", &["1M", "2M"]);
        assert_eq!((&*axis.label, &*axis.unit), ("cross traffic", "b/s"));
    }
}
