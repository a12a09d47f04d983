//! Charts and tables of measurements.

use farhaul_sim::{FlowReport, Report};

use super::Runs;
use super::data::{ChartKind, ChartSpec, Experiment};
use super::equation::Equation;
use super::judge::matches;
use super::metric::Metric;
use crate::chart::{Axis, Chart, Figure, Grid, Panels, Series};
use crate::quantity::{number, unit};
use crate::statistics::{interval_95, mean};
use crate::sweep::{Measured, summary};
use crate::table::{Cell, Column, Table};

/// All charts.
pub(super) fn charts(experiment: &Experiment, runs: &Runs) -> Vec<Figure> {
    let draw = |chart: &ChartSpec| {
        let all = experiment.runs_of(chart.plan.as_ref(), runs).iter();
        let measured: Vec<&Measured> =
            all.filter(|run| matches(&chart.only, &run.values)).collect();
        match chart.kind {
            ChartKind::Grid => grid(chart, &measured),
            ChartKind::Curves => curves(experiment, chart, &measured),
            ChartKind::Time => over_time(chart, &measured),
        }
    };
    experiment.chart.iter().map(draw).collect()
}

/// The experiment's tables; of each plan one with the usual measurements if it names none.
pub(super) fn tables(experiment: &Experiment, runs: &Runs) -> Vec<Table> {
    if experiment.table.is_empty() {
        let plans = experiment.plan.iter();
        return plans.map(|plan| summary(&plan.name, &runs[&plan.name])).collect();
    }
    let mut tables = Vec::new();
    for spec in &experiment.table {
        let measured = experiment.runs_of(spec.plan.as_ref(), runs);
        let names = measured.first().map_or(&[][..], |first| &first.values);
        let mut columns: Vec<Column> =
            names.iter().map(|(name, _)| Column::new(name, "")).collect();
        for column in &spec.columns {
            columns.push(Column::new(&*column.name, &*column.unit));
            if column.published.is_some() {
                columns.push(Column::new(format!("{}, published", column.name), &*column.unit));
            }
        }
        let mut rows = Vec::new();
        for group in measured.chunk_by(|a, b| a.values == b.values) {
            let values = &group[0].values;
            let mut row: Vec<Cell> =
                values.iter().map(|(_, value)| Cell::Text(value.clone())).collect();
            for column in &spec.columns {
                let sample = sample(&column.metric, group.iter());
                row.push(match (interval_95(&sample), mean(&sample)) {
                    (Some(interval), _) => interval.into(),
                    (None, Some(value)) => Cell::Number(value),
                    (None, None) => Cell::Missing,
                });
                if column.published.is_some() {
                    let numbers = experiment.numbers(column.published.as_ref());
                    let known = values.first().and_then(|(_, value)| numbers?.get(value));
                    row.push(known.copied().into());
                }
            }
            rows.push(row);
        }
        tables.push(Table { title: spec.title.clone(), columns, rows });
    }
    tables
}

fn sample<'a>(metric: &Metric, runs: impl Iterator<Item = &'a Measured>) -> Vec<f64> {
    runs.filter_map(|run| metric.of(&run.report)).collect()
}

/// The value of a swept variable, as it stands in the scenario.
fn value<'a>(run: &'a Measured, variable: &str) -> Option<&'a str> {
    let found = run.values.iter().find(|(name, _)| name == variable);
    found.map(|(_, value)| value.as_str())
}

/// An axis for a swept variable: logarithmic if its values are all positive and span more than a
/// factor of 20.
fn axis(variable: &str, values: &[&str]) -> Axis {
    let numbers = || values.iter().filter_map(|text| number(text));
    let (low, high) = (numbers().reduce(f64::min), numbers().reduce(f64::max));
    let base = values.first().map_or("", |text| unit(text));
    match (low, high) {
        (Some(low), Some(high)) if low > 0.0 && high / low > 20.0 => Axis::log(variable, base),
        _ => Axis::linear(variable, base),
    }
}

fn grid(chart: &ChartSpec, measured: &[&Measured]) -> Figure {
    let (x, y) = (chart.x.as_deref().unwrap_or(""), chart.y.as_deref().unwrap_or(""));
    let texts = |variable: &str| {
        let mut texts: Vec<&str> = Vec::new();
        for text in measured.iter().filter_map(|run| value(run, variable)) {
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        texts
    };
    let (xs, ys) = (texts(x), texts(y));
    let mut cells = Vec::new();
    for row in &ys {
        let mut line = Vec::new();
        for column in &xs {
            let here =
                |run: &&&Measured| value(run, x) == Some(column) && value(run, y) == Some(row);
            let here = || measured.iter().filter(here).copied();
            line.push(chart.value.first().and_then(|metric| mean(&sample(metric, here()))));
        }
        cells.push(line);
    }
    let numbers = |texts: &[&str]| texts.iter().filter_map(|text| number(text)).collect();
    let value = Axis::linear(&*chart.label, &*chart.unit);
    let value = chart.range.map_or(value.clone(), |(low, high)| value.between(low, high));
    Figure::from(Grid {
        title: chart.title.clone(),
        subtitle: String::new(),
        x: axis(x, &xs),
        y: axis(y, &ys),
        xs: numbers(&xs),
        ys: numbers(&ys),
        cells,
        value,
    })
}

fn curves(experiment: &Experiment, chart: &ChartSpec, measured: &[&Measured]) -> Figure {
    let variable = chart.x.as_deref().unwrap_or("");
    // In the order in which they come; the errors without one are 0.
    let mut series: Vec<Series> = Vec::new();
    for metric in &chart.value {
        for group in measured.chunk_by(|a, b| a.values == b.values) {
            let Some(x) = value(group[0], variable).and_then(number) else { continue };
            let sample = sample(metric, group.iter().copied());
            let Some(y) = mean(&sample) else { continue };
            let others = group[0].values.iter().filter(|(name, _)| name != variable);
            let mut name: Vec<String> = others.map(|(k, v)| format!("{k} {v}")).collect();
            if chart.value.len() > 1 || name.is_empty() {
                name.insert(0, metric.name.replace(':', " "));
            }
            let name = name.join(", ");
            let error = interval_95(&sample).map_or(0.0, |interval| interval.half_width);
            match series.iter_mut().find(|known| known.name == name) {
                Some(known) => {
                    known.points.push((x, y));
                    known.errors.push(error);
                }
                None => series.push(Series::both(name, vec![(x, y)]).with_errors(vec![error])),
            }
        }
    }
    let texts: Vec<&str> = measured.iter().filter_map(|run| value(run, variable)).collect();
    let label = match chart.label.as_str() {
        "" => chart.value.iter().map(|metric| &*metric.name).collect::<Vec<_>>().join(", "),
        label => label.to_owned(),
    };
    let y =
        if chart.log { Axis::log(label, &*chart.unit) } else { Axis::linear(label, &*chart.unit) };
    for curve in &mut series {
        if curve.errors.iter().all(|error| *error == 0.0) {
            curve.errors.clear();
        }
    }
    for published in &chart.published {
        series.extend(match &published.equation {
            None => {
                let numbers = experiment.numbers(published.each.as_ref()).into_iter().flatten();
                let mut points: Vec<(f64, f64)> =
                    numbers.filter_map(|(x, y)| Some((number(x)?, *y))).collect();
                points.sort_by(|a, b| a.0.total_cmp(&b.0));
                vec![Series::published(&*published.name, points)]
            }
            Some(equation) => predicted(&published.name, *equation, variable, measured),
        });
    }
    Figure::from(Chart {
        title: chart.title.clone(),
        x: axis(variable, &texts),
        y: chart.range.map_or(y.clone(), |(low, high)| y.between(low, high)),
        series,
        ..Chart::default()
    })
}

/// The curves of an equation at the points measured: one for all where it does not depend on the
/// other variables.
fn predicted(
    name: &str,
    equation: Equation,
    variable: &str,
    measured: &[&Measured],
) -> Vec<Series> {
    let mut series: Vec<Series> = Vec::new();
    for group in measured.chunk_by(|a, b| a.values == b.values) {
        let Some(x) = value(group[0], variable).and_then(number) else { continue };
        let Some(y) = equation.predict(&group[0].values) else { continue };
        let others = group[0].values.iter().filter(|(name, _)| name != variable);
        let others: Vec<String> = others.map(|(k, v)| format!("{k} {v}")).collect();
        let name = format!("{name}, {}", others.join(", "));
        match series.iter_mut().find(|known| known.name == name) {
            Some(known) => known.points.push((x, y)),
            None => series.push(Series::published(name, vec![(x, y)])),
        }
    }
    if series.windows(2).all(|pair| pair[0].points == pair[1].points) {
        series.truncate(1);
        series.iter_mut().for_each(|one| one.name = name.to_owned());
    }
    series
}

/// The flows' throughput over time in the first of the runs.
fn over_time(chart: &ChartSpec, measured: &[&Measured]) -> Figure {
    let Some(report) = measured.first().map(|run| &run.report) else {
        return Figure::from(Chart { title: chart.title.clone(), ..Chart::default() });
    };
    let curve = |flow: &FlowReport| {
        let series = if chart.arrivals { &flow.arrivals } else { &flow.series };
        Series::line(&*flow.name, samples(report, flow, series))
    };
    let panel = |title: String, prefix: &str| Chart {
        title,
        x: Axis::linear("time", "s"),
        y: Axis::linear("throughput", "b/s"),
        series: report.flows.iter().filter(|f| f.name.starts_with(prefix)).map(curve).collect(),
        ..Chart::default()
    };
    if chart.panels.is_empty() {
        return Figure::from(panel(chart.title.clone(), ""));
    }
    let charts = chart.panels.iter().map(|prefix| panel(prefix.clone(), prefix)).collect();
    Figure::from(Panels { title: chart.title.clone(), subtitle: String::new(), charts })
}

/// The middle of each sample interval, and the throughput in whole packets.
fn samples(report: &Report, flow: &FlowReport, series: &[f64]) -> Vec<(f64, f64)> {
    let factor = if flow.throughput_bps > 0.0 {
        flow.packet_throughput_bps / flow.throughput_bps
    } else {
        1.0
    };
    let at = |index: usize| (index as f64 + 0.5) * report.sample_s;
    series.iter().enumerate().map(|(index, y)| (at(index), y * factor)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::Scale;

    #[test]
    fn an_axis_shows_all_values_zero_and_negative_ones_too() {
        let scale = |values: &[&str]| axis("x", values).scale;
        assert_eq!(scale(&["10us", "1ms", "1s"]), Scale::Log);
        assert_eq!(scale(&["1M", "20M"]), Scale::Linear);
        assert_eq!(scale(&["-0.8", "0.2", "8"]), Scale::Linear);
        assert_eq!(scale(&["0", "0.1", "100"]), Scale::Linear);
        assert_eq!(scale(&["bdp"]), Scale::Linear);
    }
}
