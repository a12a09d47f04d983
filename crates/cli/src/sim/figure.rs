//! What a run or a sweep looks like.

use farhaul_lab::chart::{Axis, Chart, Figure, Series};
use farhaul_lab::quantity::number;
use farhaul_lab::sweep::{Measured, axis, curves};
use farhaul_sim::Report;

/// More flows than this are drawn together.
const MOST_LINES: usize = 12;

/// More names than this are no picture any more.
const MOST_NAMES: usize = 200;

/// The throughput over time of one run, or of several over the last swept variable of which all
/// values are numbers; if there is none, over the last one, whose values are names.
///
/// # Errors
/// Why there is none.
pub fn of(title: &str, measured: &[Measured]) -> Result<Figure, String> {
    let all: Vec<&Measured> = match measured {
        [only] => return Ok(over_time(title, &only.report)),
        _ => measured.iter().collect(),
    };
    let Some(first) = all.first() else { return Err("there are no runs".into()) };
    // Over what is the same everywhere a plot shows nothing.
    let varies = |name: &&String| all.iter().any(|run| run.value(name) != first.value(name));
    let variables: Vec<&String> =
        first.values.iter().map(|(name, _)| name).filter(varies).collect();
    let numbers = |name: &&&String| {
        all.iter().all(|run| run.value(name).is_some_and(|v| number(v).is_some()))
    };
    if let Some(variable) = variables.iter().rev().find(numbers) {
        return Ok(over_numbers(title, variable, &all).into());
    }
    match variables.last() {
        Some(variable) => over_names(title, variable, &all).map(Figure::from),
        None => Err("the runs differ in their seeds only".into()),
    }
}

fn over_time(title: &str, report: &Report) -> Figure {
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
    Figure::from(Chart {
        title: title.to_owned(),
        x: Axis::linear("time", "s"),
        y: Axis::linear("throughput", "b/s"),
        series,
        ..Chart::default()
    })
}

fn over_numbers(title: &str, variable: &str, measured: &[&Measured]) -> Chart {
    let mut series = curves(measured, variable, |run| Some(run.report.indices.efficiency_bps));
    for curve in series.iter_mut().filter(|curve| curve.name.is_empty()) {
        curve.name = "throughput".into();
    }
    let mut x = Axis { label: readable(variable), ..axis(variable, measured) };
    if measured.iter().all(|run| run.value(variable).is_some_and(|value| value.ends_with('%'))) {
        x.unit = "%".into();
        for (share, _) in series.iter_mut().flat_map(|curve| &mut curve.points) {
            *share *= 100.0;
        }
    }
    Chart {
        title: title.to_owned(),
        x,
        y: Axis::linear("throughput", "b/s"),
        series,
        ..Chart::default()
    }
}

/// A row for each value, from the top in their order, where there is room for long names, and a mark
/// for each run.
fn over_names(title: &str, variable: &str, measured: &[&Measured]) -> Result<Chart, String> {
    let mut names: Vec<&str> = Vec::new();
    for value in measured.iter().filter_map(|run| run.value(variable)) {
        if !names.contains(&value) {
            names.push(value);
        }
        if names.len() > MOST_NAMES {
            return Err(format!(
                "'{variable}' has more than {MOST_NAMES} values that are no numbers"
            ));
        }
    }
    names.reverse();
    let mut series: Vec<Series> = Vec::new();
    for run in measured {
        let row =
            run.value(variable).and_then(|value| names.iter().position(|name| *name == value));
        let Some(row) = row else { continue };
        let name = run.label_without(variable);
        let known = series.iter().position(|one| one.name == name).unwrap_or_else(|| {
            series.push(Series::both(name, Vec::new()).points());
            series.len() - 1
        });
        series[known].points.push((run.report.indices.efficiency_bps, row as f64));
    }
    let names = names.into_iter().map(str::to_owned).collect();
    Ok(Chart {
        title: title.to_owned(),
        x: Axis::linear("throughput", "b/s"),
        y: Axis { label: readable(variable), ..Axis::named(names) },
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

    /// A run for each list of values of these variables.
    fn runs(variables: &[&str], values: &[&[&str]]) -> Vec<Measured> {
        let text = "duration = \"10ms\"\n[[link]]\nfrom = \"a\"\nto = \"b\"\nrate = \"1M\"\n\
            [[flow]]\nfrom = \"a\"\nto = \"b\"\n";
        let plan = Plan::parse(text, &[], None).expect("a plan");
        let report = plan.point(0).expect("a point").scenario.run();
        let owned = |text: &&str| (*text).to_owned();
        let run = |(point, values): (usize, &&[&str])| Measured {
            point: point as u64,
            values: variables.iter().map(owned).zip(values.iter().map(owned)).collect(),
            report: report.clone(),
        };
        values.iter().enumerate().map(run).collect()
    }

    fn chart(measured: &[Measured]) -> Chart {
        let Figure::Chart(chart) = of("x", measured).expect("a plot") else { panic!("no chart") };
        chart
    }

    /// The axis of a plot over `variable`.
    fn axis_over(variable: &str, values: &[&str]) -> (Axis, Vec<f64>) {
        let values: Vec<[&str; 1]> = values.iter().map(|value| [*value]).collect();
        let values: Vec<&[&str]> = values.iter().map(|value| &value[..]).collect();
        let chart = chart(&runs(&[variable], &values));
        let places = chart.series[0].points.iter().map(|(x, _)| *x).collect();
        (chart.x, places)
    }

    /// Over numbers if a variable has some, else by name.
    #[test]
    fn what_a_plot_is_over() {
        let names = |chart: &Chart| -> Vec<String> {
            chart.series.iter().map(|series| series.name.clone()).collect()
        };
        let values: [&[&str]; 4] =
            [&["1%", "false"], &["1%", "true"], &["2%", "false"], &["2%", "true"]];
        let over_loss = chart(&runs(&["loss", "noisy"], &values));
        assert_eq!(over_loss.x.label, "loss rate");
        assert_eq!(names(&over_loss), ["noisy false", "noisy true"]);
        let values: [&[&str]; 4] =
            [&["bdp", "udt"], &["bdp", "tcp"], &["5p", "udt"], &["5p", "tcp"]];
        let by_name = chart(&runs(&["queue", "protocol"], &values));
        assert_eq!(
            (&*by_name.y.label, &*by_name.y.names),
            ("protocol", &["tcp", "udt"].map(String::from)[..])
        );
        assert_eq!(names(&by_name), ["queue bdp", "queue 5p"]);
        let rows: Vec<f64> = by_name.series[0].points.iter().map(|point| point.1).collect();
        assert_eq!(rows, [1.0, 0.0]);
        // Over what does not vary there is nothing to see.
        let values: [&[&str]; 2] = [&["udt", "5ms"], &["tcp", "5ms"]];
        assert_eq!(chart(&runs(&["protocol", "rtt"], &values)).y.label, "protocol");
        assert!(of("x", &runs(&[], &[&[], &[]])).is_err_and(|why| why.contains("seeds only")));
        let many: Vec<String> = (0..300).map(|n| format!("name {n}")).collect();
        let many: Vec<[&str; 1]> = many.iter().map(|name| [name.as_str()]).collect();
        let many: Vec<&[&str]> = many.iter().map(|name| &name[..]).collect();
        assert!(of("x", &runs(&["y"], &many)).is_err_and(|why| why.contains("more than 200")));
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
