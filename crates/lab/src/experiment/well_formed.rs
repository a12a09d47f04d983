//! What may be wrong with an experiment's file, found without running it.

use std::collections::{BTreeMap, BTreeSet};

use farhaul_sim::Plan;

use super::data::{
    Bounds, ChartKind, ChartSpec, CheckSpec, Experiment, Ground, Numbers, TableSpec, Value, Version,
};
use super::judge::matches;
use super::metric::{About, Metric};
use crate::relay;

/// What checks, charts and tables may refer to in a version of a plan.
pub(crate) struct Names {
    /// The swept variables with their values, at each point.
    points: Vec<Vec<(String, String)>>,
    flows: BTreeSet<String>,
    links: BTreeSet<String>,
}

/// A version of an experiment.
struct Form<'a> {
    experiment: &'a Experiment,
    version: Version,
    /// By the names of the plans.
    plans: BTreeMap<&'a str, Names>,
}

/// Whether this version of the experiment is well-formed: what is named is there, and each check has
/// something to judge by.
///
/// # Errors
/// The first thing that is wrong.
pub(super) fn check(experiment: &Experiment, version: Version) -> Result<(), String> {
    let mut plans = BTreeMap::new();
    for spec in &experiment.plan {
        let names = Names::of(&experiment.read_plan(spec, version)?, spec.on)?;
        if plans.insert(&*spec.name, names).is_some() {
            return Err(format!("there are two plans '{}'", spec.name));
        }
    }
    let swept =
        |name: &String| plans.values().any(|names: &Names| names.check_variable(name).is_ok());
    if let Some(name) = experiment.variables.keys().find(|name| !swept(name)) {
        return Err(format!("'variables': '{name}' is not swept"));
    }
    let form = Form { experiment, version, plans };
    for check in experiment.check.iter().filter(|check| check.is_due(version)) {
        form.check(check).map_err(|error| format!("check '{}': {error}", check.what))?;
    }
    for chart in &experiment.chart {
        form.chart(chart).map_err(|error| format!("chart '{}': {error}", chart.title))?;
    }
    let mut shown = experiment.chart.iter().map(|chart| form.shows(chart));
    if !shown.any(|shows| shows) {
        return Err("no chart shows any of its points".into());
    }
    for table in &experiment.table {
        form.table(table).map_err(|error| format!("table '{}': {error}", table.title))?;
    }
    Ok(())
}

impl Form<'_> {
    fn check(&self, check: &CheckSpec) -> Result<(), String> {
        // The reduced version lacks values that the full one has.
        let strict = self.version == Version::Full || check.version.is_some();
        let names = self.names(check.plan.as_ref())?;
        names.check_metric(&check.metric)?;
        let points = names.select(&check.only, strict)?;
        if points.is_empty() {
            return Err("it is about no point".into());
        }
        for known in &check.known {
            names.select(&known.only, strict)?;
            expects_something(check, &known.bounds())?;
            if !is_bounded(&check.bounds(), &known.bounds()) {
                return Err("an explanation has no bound on a side where the check has one".into());
            }
        }
        if check.known.first().is_some_and(|known| known.because.trim().is_empty()) {
            return Err("its first explanation gives no reason".into());
        }
        if check.published.is_empty() && check.each.is_none() {
            return Err("it does not tell what was published".into());
        }
        if check.reason.trim().is_empty() {
            return Err("it does not tell why the tolerance is what it is".into());
        }
        if let Some(against) = &check.against {
            let other = self.names(against.plan.as_ref().or(check.plan.as_ref()))?;
            other.check_metric(&check.metric)?;
            against.only.iter().try_for_each(|(name, value)| other.check_value(name, value))?;
        }
        match (&check.each, &check.by) {
            (Some(each), Some(by)) => self.check_numbers(each, by, names)?,
            (None, None) => {}
            _ => return Err("'each' and 'by' go together".into()),
        }
        if check.equation.is_some_and(|e| points.iter().any(|values| e.predict(values).is_none())) {
            return Err("the equation lacks a variable".into());
        }
        let targets = [check.near.is_some(), check.equation.is_some(), check.each.is_some()];
        if targets.into_iter().filter(|is| *is).count() > 1 {
            return Err("only one of 'near', 'equation' and 'each' says what is expected".into());
        }
        if check.spread && (check.equation.is_some() || check.each.is_some()) {
            return Err("a spread has no point that an equation or 'each' could be about".into());
        }
        expects_something(check, &check.bounds())
    }

    fn chart(&self, chart: &ChartSpec) -> Result<(), String> {
        let names = self.names(chart.plan.as_ref())?;
        let strict = self.version == Version::Full;
        let points = names.select(&chart.only, strict)?;
        if strict && points.is_empty() {
            return Err("there is nothing to draw".into());
        }
        let (x, y) = (chart.x.is_some(), chart.y.is_some());
        let rows = !chart.published.is_empty()
            && chart.published.len() == chart.value.len()
            && chart.published.iter().all(|published| y || published.each.is_none());
        let wanted = match chart.kind {
            ChartKind::Grid => x && y && chart.value.len() == 1,
            ChartKind::Curves => x && !y && !chart.value.is_empty(),
            ChartKind::Time => !x && !y && chart.value.is_empty(),
            ChartKind::Rows => !x && rows,
        };
        if !wanted {
            let keys = "'x', 'y', 'value' and 'published'";
            return Err(format!("for its kind it has too many or too few of {keys}"));
        }
        if chart.kind != ChartKind::Time && chart.label.is_empty() {
            return Err("its values' axis has no 'label'".into());
        }
        for name in chart.x.iter().chain(&chart.y) {
            names.check_variable(name)?;
            if !self.experiment.variables.contains_key(name) {
                return Err(format!("'variables' does not tell what '{name}' is called"));
            }
        }
        chart.value.iter().try_for_each(|metric| names.check_metric(metric))?;
        if let Some(prefix) = chart.panels.iter().find(|prefix| !names.has_flows(prefix)) {
            return Err(format!("there is no flow '{prefix}'"));
        }
        for published in &chart.published {
            let rows = chart.kind == ChartKind::Rows;
            match (&published.each, published.equation, &published.against) {
                (Some(each), None, None) => {
                    let by = if rows { chart.y.as_ref() } else { chart.x.as_ref() };
                    self.check_numbers(each, by.ok_or("nothing says what numbers are by")?, names)?;
                }
                (None, Some(equation), None) if !rows => {
                    if points.iter().any(|point| equation.predict(point).is_none()) {
                        return Err("the equation lacks a variable".into());
                    }
                }
                (None, None, Some(against)) if rows => {
                    let other = self.names(against.plan.as_ref().or(chart.plan.as_ref()))?;
                    let mut values = against.only.iter();
                    values.try_for_each(|(name, value)| other.check_value(name, value))?;
                    chart.value.iter().try_for_each(|metric| other.check_metric(metric))?;
                }
                _ => {
                    let one = "'each', or for curves 'equation', or for rows 'against'";
                    return Err(format!("what is published has one of {one}"));
                }
            }
        }
        Ok(())
    }

    /// Whether the chart has points to show in this version.
    fn shows(&self, chart: &ChartSpec) -> bool {
        let points = self.names(chart.plan.as_ref());
        points.is_ok_and(|names| names.points.iter().any(|values| matches(&chart.only, values)))
    }

    fn table(&self, table: &TableSpec) -> Result<(), String> {
        let names = self.names(table.plan.as_ref())?;
        for column in &table.columns {
            names.check_metric(&column.metric)?;
            if let Some(published) = &column.published {
                let first = names.points.first().and_then(|values| values.first());
                let (name, _) = first.ok_or("numbers are published by a variable that is swept")?;
                self.check_numbers(published, name, names)?;
            }
        }
        Ok(())
    }

    fn names(&self, plan: Option<&String>) -> Result<&Names, String> {
        let spec = self.experiment.plan_of(plan).ok_or("there is no such plan")?;
        Ok(&self.plans[&*spec.name])
    }

    fn numbers(&self, name: &String) -> Result<&Numbers, String> {
        let numbers = self.experiment.numbers(Some(name));
        numbers.ok_or_else(|| format!("there are no published numbers '{name}'"))
    }

    /// Whether the published numbers of that name are by the values of that variable.
    fn check_numbers(&self, name: &String, variable: &str, names: &Names) -> Result<(), String> {
        let numbers = self.numbers(name)?;
        names.check_variable(variable)?;
        if self.version == Version::Full {
            return numbers.keys().try_for_each(|value| names.check_value(variable, value));
        }
        if numbers.keys().any(|value| names.check_value(variable, value).is_ok()) {
            return Ok(());
        }
        Err(format!("none of the numbers '{name}' is for a value of '{variable}'"))
    }
}

/// Whether what explains a deviation has a bound on each side where the check has one, so that there
/// always is a worse result that fails.
fn is_bounded(check: &Bounds, known: &Bounds) -> bool {
    let above = |b: &Bounds| b.at_most.or(b.within).or(b.at_most_times).is_some();
    let below = |b: &Bounds| b.at_least.or(b.within).is_some();
    (!above(check) || above(known)) && (!below(check) || below(known))
}

/// Whether these bounds can be broken.
fn expects_something(check: &CheckSpec, bounds: &Bounds) -> Result<(), String> {
    let Bounds { at_least, at_most, near, within, at_most_times } = bounds;
    let target = near.or(check.near).is_some() || check.equation.is_some() || check.each.is_some();
    if at_least.or(*at_most).is_some() || target && within.or(*at_most_times).is_some() {
        return Ok(());
    }
    Err("nothing is expected".into())
}

impl Names {
    pub(crate) fn of(plan: &Plan, on: Ground) -> Result<Names, String> {
        let (mut points, mut flows, mut links) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        for number in (0..plan.points()).step_by(plan.seeds() as usize) {
            let point = plan.point(number).map_err(|problems| problems.to_string())?;
            if on == Ground::Relay {
                relay::check(&point.scenario)?;
            }
            points.push(point.values);
            flows.extend(point.scenario.flows.into_iter().map(|flow| flow.name));
            links.extend(point.scenario.links.into_iter().map(|link| link.name));
        }
        Ok(Names { points, flows, links })
    }

    /// The points that have these values. `strict`: each of the values is to be one that is swept
    /// over, and not the variable alone.
    fn select(
        &self,
        only: &BTreeMap<String, Value>,
        strict: bool,
    ) -> Result<Vec<&Vec<(String, String)>>, String> {
        for (name, value) in only {
            self.check_variable(name)?;
            for value in value.all().iter().filter(|_| strict) {
                self.check_value(name, value)?;
            }
        }
        Ok(self.points.iter().filter(|values| matches(only, values)).collect())
    }

    fn check_variable(&self, name: &str) -> Result<(), String> {
        let swept = self.points.iter().flatten().any(|(known, _)| known == name);
        if swept { Ok(()) } else { Err(format!("'{name}' is not swept")) }
    }

    fn check_value(&self, name: &str, value: &str) -> Result<(), String> {
        self.check_variable(name)?;
        let has = self.points.iter().flatten().any(|(n, v)| n == name && v == value);
        if has { Ok(()) } else { Err(format!("'{name}' is never '{value}'")) }
    }

    /// Whether there is what the measurement is about.
    pub(crate) fn check_metric(&self, metric: &Metric) -> Result<(), String> {
        let missing = metric.refers_to().into_iter().find_map(|about| match about {
            About::Flow(name) => (!self.flows.contains(name)).then_some(("flow", name)),
            About::Flows(prefix) => (!self.has_flows(prefix)).then_some(("flow", prefix)),
            About::Link(name) => (!self.links.contains(name)).then_some(("link", name)),
        });
        match missing {
            Some((what, name)) => Err(format!("'{}': there is no {what} '{name}'", metric.name)),
            None => Ok(()),
        }
    }

    /// Whether there are flows whose names begin so.
    fn has_flows(&self, prefix: &str) -> bool {
        self.flows.iter().any(|name| name.starts_with(prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
id = "x"
source = "s"
title = "t"
shows = "what"
minutes = 1
variables = { rate = "link rate", rtt = "round trip" }
published = { good = { 1M = 1, 2M = 2 }, bad = { 1M = 1, 3M = 3 } }

[[plan]]
name = "main"
quick = { rate = ["1M"] }
scenario = '''
duration = "1s"
[sweep]
rate = ["1M", "2M"]
rtt = ["1ms"]
[[link]]
name = "middle"
from = "a"
to = "b"
rate = "$rate"
delay = "$rtt / 2"
[[flow]]
name = "udt"
from = "a"
to = "b"
'''

[[check]]
what = "c"
metric = "flow:udt"
where = { rate = "1M" }
at_least = 1
published = "one"
reason = "none"

[[chart]]
kind = "curves"
title = "d"
x = "rate"
value = ["share"]
label = "share"
where = { rtt = "1ms" }

[[table]]
title = "e"
columns = [{ name = "rate", metric = "utilisation:middle" }]
"#;

    #[test]
    fn a_plan_may_be_like_another() {
        let like = "[[plan]]\nname = \"two\"\nlike = \"main\"\nset = { rate = \"3M\", rtt = [\"1ms\", \"2ms\"] }\n";
        let values = |quick: &str, version| {
            let file = FILE.replace("[[check]]", &format!("{like}{quick}[[check]]"));
            let experiment = Experiment::parse(&file).expect("a file");
            let plan = experiment.read_plan(&experiment.plan[1], version).expect("a plan");
            let names = Names::of(&plan, Ground::Simulator).expect("points");
            let point = |values: &Vec<(String, String)>| format!("{} {}", values[0].1, values[1].1);
            names.points.iter().map(point).collect::<Vec<_>>()
        };
        assert_eq!(values("", Version::Full), ["3M 1ms", "3M 2ms"]);
        // The reduced version is the other's, unless it has one of its own.
        assert_eq!(values("", Version::Reduced), ["1M 1ms", "1M 2ms"]);
        assert_eq!(values("quick = { rtt = \"5ms\" }\n", Version::Reduced), ["3M 5ms"]);
    }

    /// What is said about the file with one text in place of another.
    fn error(old: &str, new: &str) -> String {
        assert!(FILE.contains(old), "{old}");
        let read = Experiment::parse(&FILE.replacen(old, new, 1));
        read.and_then(|experiment| experiment.check()).expect_err(new)
    }

    #[test]
    fn what_is_wrong_is_told_without_running() {
        assert_eq!(Experiment::parse(FILE).and_then(|experiment| experiment.check()), Ok(()));
        const UNBOUNDED: &str = "check 'c': an explanation has no bound on a side";
        const CURVE: &str = "kind = \"curves\"";
        let at_least = "at_least = 1";
        let cases = [
            ("flow:udt", "flow:tcp", "check 'c': 'flow:tcp': there is no flow 'tcp'"),
            // A flow goes by its whole name, as when it is measured.
            ("flow:udt", "flow:ud", "check 'c': 'flow:ud': there is no flow 'ud'"),
            ("flow:udt", "ratio:ud:tcp", "check 'c': 'ratio:ud:tcp': there is no flow 'tcp'"),
            ("flow:udt", "flows", "there is no measurement 'flows'"),
            ("utilisation:middle", "utilisation:m", "table 'e': 'utilisation:m': there is no link"),
            ("quick = {", "like = \"x\"\nquick = {", "write 'scenario', or 'like' with 'set'"),
            ("quick = {", "set = { rate = \"1M\" }\nquick = {", "write 'scenario', or 'like'"),
            ("[[check]]", "[[plan]]\nname = \"two\"\n[[check]]", "plan 'two': write 'scenario'"),
            ("[[check]]", "[[plan]]\nname = \"two\"\nlike = \"x\"\n[[check]]", "no plan 'x'"),
            ("what = \"c\"", "what = \"c\"\nplan = \"other\"", "check 'c': there is no such plan"),
            ("{ rate = \"1M\" }", "{ rat = \"1M\" }", "check 'c': 'rat' is not swept"),
            ("{ rate = \"1M\" }", "{ rate = \"3M\" }", "check 'c': 'rate' is never '3M'"),
            ("{ rate = \"1M\" }", "{ rate = \"2M\" }", "check 'c': it is about no point"),
            (at_least, "", "check 'c': nothing is expected"),
            (at_least, "within = 0.1", "check 'c': nothing is expected"),
            (at_least, "at_least = 1\nby = \"rate\"", "check 'c': 'each' and 'by' go together"),
            (at_least, "by = \"rate\"\neach = \"bad\"\nwithin = 1", "'rate' is never '3M'"),
            (at_least, "by = \"rtt\"\neach = \"good\"\nwithin = 1", "'rtt' is never '1M'"),
            (
                at_least,
                "equation = \"cubic\"\nwithin = 1",
                "check 'c': the equation lacks a variable",
            ),
            (at_least, "equation = \"e=mc2\"\nwithin = 1", "unknown variant `e=mc2`"),
            (at_least, "spread = true\nby = \"rate\"\neach = \"good\"\nwithin = 1", "a spread"),
            (at_least, "at_least = 1\nknown = [{ because = \"\" }]", "nothing is expected"),
            (at_least, "at_least = 1\nagainst = { where = { rate = \"3M\" } }", "never '3M'"),
            ("at_least = 1", "at_least = 1\nknown = [{ at_most = 2, because = \"\" }]", UNBOUNDED),
            (
                "at_least = 1",
                "near = 1\nwithin = 0.1\nknown = [{ at_least = 1, because = \"\" }]",
                UNBOUNDED,
            ),
            (
                "at_least = 1",
                "at_least = 1\nknown = [{ at_least = 0 }]",
                "check 'c': its first explanation gives no reason",
            ),
            ("published = \"one\"", "", "check 'c': it does not tell what was published"),
            ("reason = \"none\"", "", "check 'c': it does not tell why the tolerance"),
            ("rtt = \"round", "rt = \"\", rtt = \"round", "'variables': 'rt' is not swept"),
            ("rate = \"link rate\", ", "", "chart 'd': 'variables' does not tell what 'rate'"),
            ("label = \"share\"", "", "chart 'd': its values' axis has no 'label'"),
            (CURVE, "kind = \"rows\"", "chart 'd': for its kind"),
            (
                CURVE,
                "kind = \"curves\"\npublished = [{ name = \"\", against = {} }]",
                "chart 'd': what is published has one of",
            ),
            (
                CURVE,
                "kind = \"curves\"\npublished = [{ name = \"\", each = \"bad\" }]",
                "chart 'd': 'rate' is never '3M'",
            ),
            ("x = \"rate\"", "x = \"rates\"", "chart 'd': 'rates' is not swept"),
            ("x = \"rate\"", "", "chart 'd': for its kind"),
            ("{ rtt = \"1ms\" }", "{ rtt = \"2ms\" }", "chart 'd': 'rtt' is never '2ms'"),
            (
                "{ rtt = \"1ms\" }",
                "{ rate = \"2M\" }",
                "reduced version: no chart shows any of its",
            ),
        ];
        for (old, new, message) in cases {
            let error = error(old, new);
            assert!(error.contains(message), "{new}: {error}");
        }
    }
}
