//! The file of an experiment.

use std::collections::BTreeMap;

use farhaul_sim::Plan;
use serde::Deserialize;

use super::Runs;
use super::equation::Equation;
use super::metric::Metric;
use crate::chart::Reference;
use crate::quantity::shown;
use crate::statistics::Average;
use crate::sweep::Measured;

/// An experiment, as its file describes it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// What it is called by.
    pub id: String,
    /// Where it was published.
    pub source: String,
    /// What it is about, in a line.
    pub title: String,
    /// What it shows, in a paragraph.
    pub shows: String,
    /// Minutes that it takes, about, on two processors.
    pub minutes: f64,
    /// What a reader of the result should know.
    #[serde(default)]
    pub notes: Vec<String>,
    /// What swept variables are called on axes, in legends and in tables, with the unit of those
    /// whose values have none: `round trip (ms)`.
    #[serde(default)]
    pub(super) variables: BTreeMap<String, String>,
    /// Published numbers by the value of a swept variable, under names that checks, charts and
    /// tables refer to them by.
    #[serde(default)]
    pub(super) published: BTreeMap<String, Numbers>,
    /// What is run.
    #[serde(default)]
    pub plan: Vec<PlanSpec>,
    /// What is expected.
    #[serde(default)]
    pub(super) check: Vec<CheckSpec>,
    /// What is drawn.
    #[serde(default)]
    pub(super) chart: Vec<ChartSpec>,
    /// What is listed.
    #[serde(default)]
    pub(super) table: Vec<TableSpec>,
    /// Of the file: BLAKE3 of its bytes, in hexadecimal digits.
    #[serde(skip)]
    pub hash: String,
}

/// Numbers by the value of a swept variable.
pub(super) type Numbers = BTreeMap<String, f64>;

/// A scenario with its sweep: its own, or that of another plan with other values.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanSpec {
    /// What checks and charts call it.
    pub name: String,
    /// The scenario file.
    pub scenario: Option<String>,
    /// In its place: the plan whose scenario it is, and whose reduced version unless there is
    /// another here.
    pub like: Option<String>,
    /// What that scenario's variables are here; several values are swept over.
    #[serde(default)]
    pub set: BTreeMap<String, Value>,
    /// What it is run on.
    #[serde(default)]
    pub on: Ground,
    /// Variables of the reduced version.
    #[serde(default)]
    pub quick: BTreeMap<String, Value>,
}

/// What a plan is run on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ground {
    /// The simulator.
    #[default]
    Simulator,
    /// Real sockets and the relay, see [`crate::relay`].
    Relay,
}

/// One value of a variable, or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// One.
    One(String),
    /// Several, to sweep over.
    Many(Vec<String>),
}

/// An expectation.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CheckSpec {
    /// What is expected, in words.
    pub what: String,
    /// Of which plan; the first.
    pub plan: Option<String>,
    pub metric: Metric,
    /// Only where swept variables have these values.
    #[serde(default, rename = "where")]
    pub only: BTreeMap<String, Value>,
    /// What stands for the seeds.
    #[serde(default)]
    pub average: Average,
    /// The value counts as a multiple of that at another point.
    pub against: Option<Against>,
    /// One value of all points, the largest over the smallest; else each point is checked.
    #[serde(default)]
    pub spread: bool,
    /// See [`Bounds`].
    pub at_least: Option<f64>,
    pub at_most: Option<f64>,
    pub near: Option<f64>,
    pub within: Option<f64>,
    /// The published numbers of this name are expected, by the value of the swept variable `by`.
    pub each: Option<String>,
    pub by: Option<String>,
    /// The equation that predicts the value.
    pub equation: Option<Equation>,
    /// At most so many times what is published or predicted.
    pub at_most_times: Option<f64>,
    /// The published statement, as a reader shall see it.
    #[serde(default)]
    pub published: String,
    /// Why the tolerance is what it is.
    #[serde(default)]
    pub reason: String,
    /// Deviations that have been looked into.
    #[serde(default)]
    pub known: Vec<Known>,
    /// The version of the experiment that it is judged in; both.
    pub version: Option<Version>,
}

/// A version of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Version {
    Full,
    Reduced,
}

/// Another point to compare with.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Against {
    /// Of which plan; the same.
    pub plan: Option<String>,
    /// Variables that have other values there; the rest are the same as far as they are there.
    #[serde(default, rename = "where")]
    pub only: BTreeMap<String, String>,
}

/// Limits of a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// From here up.
    pub at_least: Option<f64>,
    /// Up to here.
    pub at_most: Option<f64>,
    /// Around this value, or a published or predicted one, by the share `within`.
    pub near: Option<f64>,
    pub within: Option<f64>,
    /// Up to so many times a published or predicted value.
    pub at_most_times: Option<f64>,
}

/// A deviation that has an explanation: where, how far, and why.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Known {
    #[serde(default, rename = "where")]
    pub only: BTreeMap<String, Value>,
    /// See [`Bounds`].
    pub at_least: Option<f64>,
    pub at_most: Option<f64>,
    pub near: Option<f64>,
    pub within: Option<f64>,
    pub at_most_times: Option<f64>,
    /// That of the one before, if there is none here.
    #[serde(default)]
    pub because: String,
}

/// A chart.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChartSpec {
    pub kind: ChartKind,
    pub title: String,
    /// Under what conditions, or what was published about it in words.
    #[serde(default)]
    pub subtitle: String,
    pub plan: Option<String>,
    /// The swept variable along x, and for a grid that along y; else the rest makes the curves. For
    /// rows, y is the variable that published numbers are by.
    pub x: Option<String>,
    pub y: Option<String>,
    /// Measurements, each a set of curves; one for a grid. For rows, each has one at each point.
    #[serde(default)]
    pub value: Vec<Metric>,
    /// What the values are called on the axis, and their unit.
    #[serde(default)]
    pub label: String,
    #[serde(default)]
    pub unit: String,
    /// Whether the values' axis is logarithmic.
    #[serde(default)]
    pub log: bool,
    /// The range of the values' axis.
    pub range: Option<(f64, f64)>,
    #[serde(default, rename = "where")]
    pub only: BTreeMap<String, Value>,
    /// Over time: a panel for each group of flows whose names begin so; all in one without.
    #[serde(default)]
    pub panels: Vec<String>,
    /// Over time: what arrives, in whatever order, and not what is delivered in order.
    #[serde(default)]
    pub arrivals: bool,
    /// What stands for the seeds.
    #[serde(default)]
    pub average: Average,
    #[serde(default)]
    pub published: Vec<Published>,
    /// Published bounds: lines from left to right.
    #[serde(default)]
    pub references: Vec<Reference>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ChartKind {
    Grid,
    Curves,
    Time,
    /// Things by name, from the top: what is measured beside what is published.
    Rows,
}

/// A published curve. For rows, the one for each of the values, in their order.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Published {
    pub name: String,
    /// The published numbers of this name, by the value of the variable along x.
    pub each: Option<String>,
    /// In their place: the equation that gives them.
    pub equation: Option<Equation>,
    /// In their place, for rows: the measurement at another point.
    pub against: Option<Against>,
    /// Marks alone, without a line through them.
    #[serde(default)]
    pub points: bool,
}

/// A table: a row for each point of a plan.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TableSpec {
    pub title: String,
    pub plan: Option<String>,
    pub columns: Vec<ColumnSpec>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ColumnSpec {
    pub name: String,
    #[serde(default)]
    pub unit: String,
    pub metric: Metric,
    /// What stands for the seeds.
    #[serde(default)]
    pub average: Average,
    /// The published numbers of this name, by the value of the first swept variable.
    pub published: Option<String>,
}

impl Experiment {
    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn parse(text: &str) -> Result<Experiment, String> {
        let read: Experiment = toml::from_str(text).map_err(|error| error.to_string())?;
        let hash = blake3::hash(text.as_bytes()).to_hex().to_string();
        Ok(Experiment { hash, ..read })
    }

    /// A version of a plan.
    pub(super) fn read_plan(&self, spec: &PlanSpec, version: Version) -> Result<Plan, String> {
        spec.read(&self.plan, version, &[])
    }

    /// The published numbers of that name; none if none are asked for.
    pub(super) fn numbers(&self, name: Option<&String>) -> Option<&Numbers> {
        self.published.get(name?)
    }

    /// What a swept variable is called.
    pub(super) fn called(&self, variable: &str) -> String {
        self.variables.get(variable).map_or(variable, String::as_str).to_owned()
    }

    /// Values of swept variables in words, but for some variables: `link rate 1 Gb/s, round trip 10 ms`.
    /// Of a case, its name says enough.
    pub(super) fn label(&self, values: &[(String, String)], but: &[&str]) -> String {
        let text = |(name, value): &(String, String)| {
            let called = self.called(name);
            match called.strip_suffix(')').and_then(|called| called.rsplit_once(" (")) {
                _ if name == "case" => value.clone(),
                Some((called, unit)) => format!("{called} {value} {unit}"),
                None => format!("{called} {}", shown(value)),
            }
        };
        values
            .iter()
            .filter(|(name, _)| !but.contains(&name.as_str()))
            .map(text)
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// The plan that a check or chart refers to: the one of that name, else the first.
    pub(super) fn plan_of(&self, asked: Option<&String>) -> Option<&PlanSpec> {
        self.plan.iter().find(|plan| asked.is_none_or(|name| plan.name == *name))
    }

    /// What that plan has given.
    pub(super) fn runs_of<'a>(&self, asked: Option<&String>, runs: &'a Runs) -> &'a [Measured] {
        self.plan_of(asked).and_then(|plan| runs.get(&plan.name)).map_or(&[], Vec::as_slice)
    }
}

impl PlanSpec {
    /// A version of it; `all` are the plans that it may be like, and `values` go before those of
    /// all variables.
    pub(crate) fn read(
        &self,
        all: &[PlanSpec],
        version: Version,
        values: &[(String, String)],
    ) -> Result<Plan, String> {
        let wrong = |error: &str| format!("plan '{}': {error}", self.name);
        let (scenario, like) = match (&self.scenario, &self.like) {
            (Some(scenario), None) if self.set.is_empty() => (Some(scenario), self),
            (None, Some(name)) => {
                let like = all.iter().find(|plan| plan.name == *name);
                let like = like.ok_or_else(|| wrong(&format!("there is no plan '{name}'")))?;
                (like.scenario.as_ref(), like)
            }
            _ => return Err(wrong("write 'scenario', or 'like' with 'set'")),
        };
        let scenario = scenario.ok_or_else(|| wrong("the plan that it is like is like another"))?;
        let quick = if self.quick.is_empty() { &like.quick } else { &self.quick };
        let quick = quick.iter().filter(|_| version == Version::Reduced);
        let own = self.set.iter().chain(quick).map(|(name, value)| (name.clone(), value.text()));
        let changes: Vec<(String, String)> = own.chain(values.iter().cloned()).collect();
        Plan::parse(scenario, &changes, None).map_err(|problems| wrong(&problems.to_string()))
    }
}

impl CheckSpec {
    /// Whether it is judged in this version.
    pub(super) fn is_due(&self, version: Version) -> bool {
        self.version.is_none_or(|own| own == version)
    }

    pub(super) fn bounds(&self) -> Bounds {
        let CheckSpec { at_least, at_most, near, within, at_most_times, .. } = *self;
        Bounds { at_least, at_most, near, within, at_most_times }
    }
}

impl Known {
    pub(super) fn bounds(&self) -> Bounds {
        let Known { at_least, at_most, near, within, at_most_times, .. } = *self;
        Bounds { at_least, at_most, near, within, at_most_times }
    }
}

impl Value {
    /// As an override of a plan.
    fn text(&self) -> String {
        match self {
            Value::One(value) => value.clone(),
            Value::Many(values) => format!("[{}]", values.join(", ")),
        }
    }

    pub(super) fn all(&self) -> &[String] {
        match self {
            Value::One(one) => std::slice::from_ref(one),
            Value::Many(many) => many,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_in_words() {
        let text = "id = ''\nsource = ''\ntitle = ''\nshows = ''\nminutes = 1\n\
                    variables = { rate = 'link rate', wait = 'waiting time (ms)' }\n";
        let experiment = Experiment::parse(text).expect("a file");
        let values = [("rate", "10M"), ("wait", "4"), ("case", "one"), ("x", "1"), ("rtt", "1ms")];
        let values = values.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let label = experiment.label(&values, &["x"]);
        assert_eq!(label, "link rate 10 Mb/s, waiting time 4 ms, one, rtt 1 ms");
    }
}
