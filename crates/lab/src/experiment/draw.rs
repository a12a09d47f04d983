//! Charts and tables of measurements.

use farhaul_sim::{FlowReport, Report};

use super::Runs;
use super::data::{ChartKind, ChartSpec, ColumnSpec, Experiment, PlanSpec, TableSpec};
use super::equation::Equation;
use super::judge::{counterpart, matches};
use crate::chart::{Axis, Chart, Figure, Grid, Panels, Scale, Series};
use crate::quantity::number;
use crate::statistics::Average;
use crate::sweep::{Measured, RunColumn, axis, named_curves, summary, table};
use crate::table::{Cell, Column, Table};

/// All charts but those that have nothing to show in this version.
pub(super) fn charts(experiment: &Experiment, runs: &Runs) -> Vec<Figure> {
    let draw = |chart: &ChartSpec| {
        let all = experiment.runs_of(chart.plan.as_ref(), runs).iter();
        let measured: Vec<&Measured> =
            all.filter(|run| matches(&chart.only, &run.values)).collect();
        let first = measured.first()?;
        Some(match chart.kind {
            ChartKind::Grid => grid(experiment, chart, &measured),
            ChartKind::Curves => over_variable(experiment, chart, &measured),
            ChartKind::Time => over_time(chart, &first.report),
            ChartKind::Rows => rows(experiment, chart, &measured, runs),
        })
    };
    experiment.chart.iter().filter_map(draw).collect()
}

/// The experiment's tables; of each plan one with the usual measurements if it names none.
pub(super) fn tables(experiment: &Experiment, runs: &Runs) -> Vec<Table> {
    if experiment.table.is_empty() {
        let alone = experiment.plan.len() == 1;
        let usual = |plan: &PlanSpec| {
            let title = if alone { &experiment.title } else { &plan.name };
            summary(title, experiment.runs_of(Some(&plan.name), runs))
        };
        return experiment.plan.iter().map(usual).collect();
    }
    let draw = |spec: &TableSpec| {
        let columns = spec.columns.iter().flat_map(|column| columns(experiment, column));
        let measured = experiment.runs_of(spec.plan.as_ref(), runs);
        table(&spec.title, measured, |name| experiment.called(name), columns.collect())
    };
    experiment.table.iter().map(draw).collect()
}

/// What is measured, and what is published if anything is.
fn columns<'a>(experiment: &'a Experiment, spec: &'a ColumnSpec) -> Vec<RunColumn<'a>> {
    let measured = Column::new(&*spec.name, &*spec.unit);
    let cell = |runs: &[Measured]| Cell::of_sample(&spec.metric.sample(runs), spec.average);
    let mut columns = vec![RunColumn::new(measured, cell)];
    if let Some(numbers) = experiment.numbers(spec.published.as_ref()) {
        let published = Column::new(format!("{}, published", spec.name), &*spec.unit);
        columns.push(RunColumn::new(published, |runs| {
            let first = runs[0].values.first();
            first.and_then(|(_, value)| numbers.get(value)).copied().into()
        }));
    }
    columns
}

fn grid(experiment: &Experiment, chart: &ChartSpec, measured: &[&Measured]) -> Figure {
    let (x, y) = (chart.x.as_deref().unwrap_or(""), chart.y.as_deref().unwrap_or(""));
    let texts = |variable: &str| {
        let mut texts: Vec<&str> = Vec::new();
        for text in measured.iter().filter_map(|run| run.value(variable)) {
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        texts
    };
    let (xs, ys) = (texts(x), texts(y));
    let cell = |column: &str, row: &str| {
        let here = |run: &&&Measured| run.value(x) == Some(column) && run.value(y) == Some(row);
        let runs = measured.iter().filter(here).copied();
        chart.value.first().and_then(|metric| chart.average.of(&metric.sample(runs)))
    };
    let cells = ys.iter().map(|row| xs.iter().map(|column| cell(column, row)).collect());
    let numbers = |texts: &[&str]| texts.iter().filter_map(|text| number(text)).collect();
    Figure::from(Grid {
        title: chart.title.clone(),
        subtitle: chart.subtitle.clone(),
        x: variable_axis(experiment, x, measured),
        y: variable_axis(experiment, y, measured),
        xs: numbers(&xs),
        ys: numbers(&ys),
        cells: cells.collect(),
        value: values_axis(chart),
        ..Grid::default()
    })
}

fn over_variable(experiment: &Experiment, chart: &ChartSpec, measured: &[&Measured]) -> Figure {
    let variable = chart.x.as_deref().unwrap_or("");
    let mut but = fixed(measured);
    but.push(variable);
    let name = |run: &Measured| experiment.label(&run.values, &but);
    let mut series = Vec::new();
    for metric in &chart.value {
        let value = |run: &Measured| metric.of(&run.report);
        let mut found = named_curves(measured, variable, name, chart.average, value);
        for curve in &mut found {
            if chart.value.len() > 1 {
                curve.name = joined(&metric.shown(), &curve.name);
            } else if curve.name.is_empty() {
                curve.name.clone_from(&chart.label);
            }
        }
        series.append(&mut found);
    }
    let mut others = Vec::new();
    for published in &chart.published {
        others.extend(match published.equation {
            None => {
                let numbers = experiment.numbers(published.each.as_ref()).into_iter().flatten();
                let mut points: Vec<(f64, f64)> =
                    numbers.filter_map(|(x, y)| Some((number(x)?, *y))).collect();
                points.sort_by(|a, b| a.0.total_cmp(&b.0));
                let series = Series::published(&*published.name, points);
                vec![if published.points { series.points() } else { series }]
            }
            Some(equation) => predicted(&published.name, equation, name, variable, measured),
        });
    }
    if others.len() == series.len() {
        // In pairs: what is published has the colour of what is measured.
        others = others.into_iter().enumerate().map(|(n, other)| other.in_colour(n)).collect();
    }
    series.append(&mut others);
    Figure::from(Chart {
        title: chart.title.clone(),
        subtitle: chart.subtitle.clone(),
        x: variable_axis(experiment, variable, measured),
        y: values_axis(chart),
        series,
        references: chart.references.clone(),
    })
}

/// A row for each value at each point, the first at the top; in it what is measured, and below that
/// what is published or measured elsewhere.
fn rows(experiment: &Experiment, chart: &ChartSpec, measured: &[&Measured], runs: &Runs) -> Figure {
    const APART: f64 = 0.16;
    let points: Vec<&[&Measured]> = measured.chunk_by(|a, b| a.values == b.values).collect();
    // A row alone is named by its point, which no other tells.
    let alone = points.len() * chart.value.len() == 1;
    let but = if alone { Vec::new() } else { fixed(measured) };
    let count = points.len() * chart.value.len();
    let (mut names, mut found, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for at in &points {
        for (index, metric) in chart.value.iter().enumerate() {
            let place = (count - 1 - names.len()) as f64;
            let label = experiment.label(&at[0].values, &but);
            let enough = chart.value.len() == 1 && !label.is_empty();
            names.push(if enough { label } else { joined(&metric.shown(), &label) });
            let sample = metric.sample(at.iter().copied());
            found.extend(chart.average.of(&sample).map(|value| (value, place + APART)));
            let other = chart.published.get(index).and_then(|published| {
                if let Some(against) = &published.against {
                    let there =
                        experiment.runs_of(against.plan.as_ref().or(chart.plan.as_ref()), runs);
                    let there = counterpart(&at[0].values, against, there);
                    return chart.average.of(&metric.sample(there));
                }
                let by = at[0].value(chart.y.as_deref()?)?;
                experiment.numbers(published.each.as_ref())?.get(by).copied()
            });
            others.extend(other.map(|value| (value, place - APART)));
        }
    }
    names.reverse();
    let other = chart.published.first().map_or("", |published| &published.name);
    Figure::from(Chart {
        title: chart.title.clone(),
        subtitle: chart.subtitle.clone(),
        x: values_axis(chart),
        y: Axis::named(names),
        series: vec![
            Series::both("measured", found).points(),
            Series::published(other, others).points(),
        ],
        ..Chart::default()
    })
}

/// The variables that have one value in all of these runs, which no legend need tell.
fn fixed<'a>(measured: &[&'a Measured]) -> Vec<&'a str> {
    let Some(first) = measured.first() else { return Vec::new() };
    let same = |(name, value): &&(String, String)| {
        measured.iter().all(|run| run.value(name) == Some(value.as_str()))
    };
    first.values.iter().filter(same).map(|(name, _)| name.as_str()).collect()
}

/// The axis of a swept variable.
fn variable_axis(experiment: &Experiment, variable: &str, measured: &[&Measured]) -> Axis {
    Axis { label: experiment.called(variable), ..axis(variable, measured) }
}

/// The curves of an equation at the points measured: one for all where it does not depend on the
/// other variables.
fn predicted(
    name: &str,
    equation: Equation,
    label: impl Fn(&Measured) -> String,
    variable: &str,
    measured: &[&Measured],
) -> Vec<Series> {
    let mut points = measured.to_vec();
    points.dedup_by_key(|run| &run.values);
    let value = |run: &Measured| equation.predict(&run.values);
    let mut curves = named_curves(&points, variable, label, Average::Mean, value);
    let alike = curves.windows(2).all(|pair| pair[0].points == pair[1].points);
    curves.truncate(if alike { 1 } else { usize::MAX });
    let name = |curve: &Series| if alike { name.to_owned() } else { joined(name, &curve.name) };
    curves.into_iter().map(|curve| Series::published(name(&curve), curve.points)).collect()
}

fn joined(name: &str, label: &str) -> String {
    if label.is_empty() { name.to_owned() } else { format!("{name}, {label}") }
}

/// The axis of what is measured.
fn values_axis(chart: &ChartSpec) -> Axis {
    let scale = if chart.log { Scale::Log } else { Scale::Linear };
    let (label, unit) = (chart.label.clone(), chart.unit.clone());
    Axis { scale, range: chart.range, ..Axis::linear(label, unit) }
}

/// The flows' throughput over time in one run.
fn over_time(chart: &ChartSpec, report: &Report) -> Figure {
    let panel = |title: String, prefix: &str| {
        let curve = |flow: &FlowReport| {
            let series = if chart.arrivals { &flow.arrivals } else { &flow.series };
            // What the title says the legend need not say again.
            let name = if flow.name == title { "" } else { &flow.name };
            Series::line(name, samples(report, flow, series))
        };
        let flows = report.flows.iter().filter(|flow| flow.name.starts_with(prefix));
        Chart {
            x: Axis::linear("time", "s"),
            y: Axis::linear("throughput", "b/s"),
            series: flows.map(curve).collect(),
            title,
            references: chart.references.clone(),
            ..Chart::default()
        }
    };
    let subtitle = chart.subtitle.clone();
    if chart.panels.is_empty() {
        return Figure::from(Chart { subtitle, ..panel(chart.title.clone(), "") });
    }
    let charts = chart.panels.iter().map(|prefix| panel(prefix.clone(), prefix)).collect();
    Figure::from(Panels { title: chart.title.clone(), subtitle, charts, ..Panels::default() })
}

/// The middle of each sample interval, and the throughput in whole packets.
fn samples(report: &Report, flow: &FlowReport, series: &[f64]) -> Vec<(f64, f64)> {
    let at = |index: usize| (index as f64 + 0.5) * report.sample_s;
    flow.in_packets(series).enumerate().map(|(index, y)| (at(index), y)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::{Reference, Style};
    use crate::experiment::metric::tests::one_flow;

    const FILE: &str = r#"
id = "x"
source = "s"
title = "t"
shows = "what"
minutes = 1
variables = { rate = "link rate" }
[published]
rates = { 2M = 2, 1M = 1 }

[[plan]]
name = "main"

[[chart]]
kind = "curves"
title = "pairs"
x = "rate"
value = ["flow:udt"]
label = "throughput"
published = [{ name = "published", each = "rates" }]

[[chart]]
kind = "curves"
title = "more than one to one"
x = "rate"
value = ["packets", "share"]
published = [{ name = "published", each = "rates", points = true }]
references = [{ value = 0.5, label = "published: half" }]

[[chart]]
kind = "rows"
title = "measured and published"
y = "rate"
value = ["flow:udt"]
published = [{ name = "published", each = "rates" }]

[[chart]]
kind = "rows"
title = "measured here and there"
where = { rate = "1M" }
value = ["flow:udt", "share"]
published = [
    { name = "there", against = { where = { rate = "2M" } } },
    { name = "there", against = { where = { rate = "2M" } } },
]

[[chart]]
kind = "time"
title = "not in this version"
where = { rate = "3M" }
"#;

    #[test]
    fn charts_of_a_sweep() {
        let run = |(point, rate): (usize, &str)| {
            let values = vec![("rate".to_owned(), rate.to_owned())];
            Measured { point: point as u64, values, report: one_flow() }
        };
        let runs = ["1M", "2M"].into_iter().enumerate().map(run).collect();
        let runs = Runs::from([("main".to_owned(), runs)]);
        let charts = charts(&Experiment::parse(FILE).expect("a file"), &runs);
        let [Figure::Chart(pairs), Figure::Chart(more), Figure::Chart(rows), Figure::Chart(one)] =
            charts.as_slice()
        else {
            panic!("{charts:?}");
        };
        let names = |chart: &Chart| chart.series.iter().map(|s| s.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(pairs), ["throughput", "published"]);
        assert_eq!(pairs.series[1].points, [(1e6, 1.0), (2e6, 2.0)]);
        assert_eq!(pairs.series[1].colour, Some(0));
        assert_eq!(names(more), ["packets", "share", "published"]);
        assert_eq!(more.series[2].colour, None);
        assert_eq!((pairs.x.label.as_str(), more.series[2].style), ("link rate", Style::Points));
        assert_eq!(more.references, [Reference::new(0.5, "published: half")]);
        // From the top, so the first has the highest place.
        assert_eq!(rows.y.names, ["link rate 2 Mb/s", "link rate 1 Mb/s"]);
        assert_eq!(names(rows), ["measured", "published"]);
        assert_eq!(rows.series[1].points, [(1.0, 0.84), (2.0, -0.16)]);
        // What is the same everywhere need not be told.
        assert_eq!(one.y.names, ["share", "flow udt"]);
        let values = |series: &Series| series.points.iter().map(|p| p.0).collect::<Vec<_>>();
        assert_eq!(
            (one.series[1].name.as_str(), values(&one.series[1])),
            ("there", values(&one.series[0]))
        );
    }
}
