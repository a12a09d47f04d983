//! What a run or a sweep looks like.

use farhaul_lab::chart::{Axis, Chart, Figure, Series};
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
        let x = quantity(value)?;
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

/// The number that a value of a scenario means, in base units.
fn quantity(text: &str) -> Option<f64> {
    if let Ok(number) = text.parse::<f64>() {
        return Some(number);
    }
    let probability = text.parse::<farhaul_link::Probability>().ok().map(|p| p.value());
    let duration = || farhaul_link::parse_duration(text).ok().map(|d| d.as_secs_f64());
    let rate = || text.parse::<farhaul_link::Rate>().ok().map(|r| r.bits_per_second() as f64);
    let size = || farhaul_link::parse_size(text).ok().map(|bytes| bytes as f64);
    probability.or_else(duration).or_else(rate).or_else(size)
}

fn unit(text: &str) -> &'static str {
    if text.parse::<f64>().is_ok() || text.ends_with('%') {
        ""
    } else if farhaul_link::parse_duration(text).is_ok() {
        "s"
    } else if text.parse::<farhaul_link::Rate>().is_ok() {
        "b/s"
    } else {
        "B"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities() {
        let cases = [("3", 3.0, ""), ("1e-4", 1e-4, ""), ("0.1%", 0.001, ""), ("10ms", 0.01, "s")];
        for (text, value, base) in cases {
            assert_eq!((quantity(text), unit(text)), (Some(value), base), "{text}");
        }
        assert_eq!((quantity("1.5G"), unit("1.5G")), (Some(1.5e9), "b/s"));
        assert_eq!((quantity("64kB"), unit("64kB")), (Some(64e3), "B"));
        assert_eq!(quantity("udt"), None);
    }
}
