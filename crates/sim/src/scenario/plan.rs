//! A scenario file with its variables: one scenario for each point of its sweep.

use std::collections::BTreeMap;

use farhaul_base::names::suggestion;
use toml::de::{DeTable, DeValue};

use super::duplicates::{self, duplicates};
use super::files::{self, File, Files};
use super::problems::{Problem, Problems, line_of};
use super::reader::{Reader, Scalar, Variables};
use super::{Scenario, tables};

/// A scenario file that has been checked.
#[derive(Clone, Debug)]
pub struct Plan {
    text: String,
    /// Variables with one value.
    set: Variables,
    /// Variables with several, in the order in which they vary: the last fastest.
    sweep: Vec<(String, Vec<String>)>,
    /// The variables that each value of the swept variable `case` brings along.
    cases: BTreeMap<String, Variables>,
    seeds: u64,
    seed: Option<u64>,
    /// The files that it names.
    files: BTreeMap<String, File>,
}

/// One run of a plan.
#[derive(Clone, Debug)]
pub struct Point {
    /// The swept variables with their values, in the order of [`Plan::swept`].
    pub values: Vec<(String, String)>,
    /// Which of the seeds, from 0.
    pub repetition: u64,
    /// What to simulate.
    pub scenario: Scenario,
}

/// The variable that names the cases.
const CASE: &str = "case";
/// The most points that a plan may have.
const MOST_POINTS: u64 = 1_000_000;
/// The most links and flows that all its points may have together.
const MOST_PARTS: usize = 5_000_000;
/// The most samples of them that all its points may have together: results are kept until the end.
const MOST_VALUES: u64 = 100_000_000;
/// After so many problems the rest of a sweep is not looked at.
const ENOUGH_PROBLEMS: usize = 1_000;

impl Plan {
    /// Reads a scenario that names no files. `overrides` go before its `[set]`, `[sweep]` and `[[case]]`: a value, or
    /// `[a, b]` for several to sweep over. `seed` goes before its seed.
    ///
    /// # Errors
    /// Everything that is wrong with it, at any point of its sweep.
    pub fn parse(
        text: &str,
        overrides: &[(String, String)],
        seed: Option<u64>,
    ) -> Result<Plan, Problems> {
        Plan::parse_file(text, overrides, seed, &files::nothing)
    }

    /// As [`Plan::parse`]; a file that the scenario names is what `load` says, or an error that says why
    /// it cannot be read. Each is loaded once.
    ///
    /// # Errors
    /// As `parse`.
    pub fn parse_file(
        text: &str,
        overrides: &[(String, String)],
        seed: Option<u64>,
        load: &dyn Fn(&str) -> Result<String, String>,
    ) -> Result<Plan, Problems> {
        let files = Files::new(load);
        let document = document(text)?;
        let mut plan = Plan {
            text: text.to_owned(),
            set: Variables::new(),
            sweep: Vec::new(),
            cases: BTreeMap::new(),
            seeds: 1,
            seed,
            files: BTreeMap::new(),
        };
        let mut problems = plan.read_variables(&document, overrides);
        if problems.is_empty() && plan.points() > MOST_POINTS {
            let message = format!("the sweep has {} points; at most {MOST_POINTS}", plan.points());
            problems.push(Problem { line: None, message });
        }
        if problems.is_empty() {
            // What is wrong at one value of a variable may be right at another.
            let (mut parts, mut values) = (0, 0u64);
            for point in 0..plan.combinations() {
                match plan.scenario(&document, &files, point, 0) {
                    Ok(scenario) => {
                        parts += scenario.links.len() + scenario.flows.len();
                        let of_seeds = scenario.values().saturating_mul(plan.seeds);
                        values = values.saturating_add(of_seeds);
                    }
                    Err(found) => problems.extend(found),
                }
                if problems.len() > ENOUGH_PROBLEMS {
                    break;
                }
                if parts > MOST_PARTS {
                    let message = "the links and flows of all points are too many: sweep less";
                    problems.push(Problem { line: None, message: message.into() });
                    break;
                }
                if values > MOST_VALUES {
                    let message = format!(
                        "the samples of flows and links at all points are more than {MOST_VALUES}: \
                         take a longer 'sample', or sweep less"
                    );
                    problems.push(Problem { line: None, message });
                    break;
                }
            }
        }
        plan.files = files.into_read();
        if problems.is_empty() { Ok(plan) } else { Err(Problems::of(problems)) }
    }

    /// The names of the swept variables.
    pub fn swept(&self) -> impl Iterator<Item = &str> {
        self.sweep.iter().map(|(name, _)| name.as_str())
    }

    /// Runs with each combination of values.
    pub fn seeds(&self) -> u64 {
        self.seeds
    }

    /// Runs altogether.
    pub fn points(&self) -> u64 {
        self.combinations().saturating_mul(self.seeds)
    }

    /// A run by its number: the seeds of one combination of values follow each other.
    ///
    /// # Errors
    /// None that [`Plan::parse`] has not found.
    pub fn point(&self, number: u64) -> Result<Point, Problems> {
        let (combination, repetition) = (number / self.seeds, number % self.seeds);
        let document = document(&self.text)?;
        let files = Files::known(self.files.clone());
        let scenario = self.scenario(&document, &files, combination, repetition);
        let scenario = scenario.map_err(Problems::of)?;
        Ok(Point { values: self.values(combination), repetition, scenario })
    }

    fn combinations(&self) -> u64 {
        self.sweep.iter().fold(1, |count, (_, values)| count.saturating_mul(values.len() as u64))
    }

    /// The swept variables at one combination.
    fn values(&self, combination: u64) -> Vec<(String, String)> {
        let mut rest = combination;
        let mut chosen: Vec<_> = self
            .sweep
            .iter()
            .rev()
            .map(|(name, values)| {
                let count = values.len() as u64;
                let value = &values[(rest % count) as usize];
                rest /= count;
                (name.clone(), value.clone())
            })
            .collect();
        chosen.reverse();
        chosen
    }

    fn scenario(
        &self,
        document: &DeTable<'_>,
        files: &Files<'_>,
        combination: u64,
        repetition: u64,
    ) -> Result<Scenario, Vec<Problem>> {
        let mut variables = self.set.clone();
        let swept = self.values(combination);
        let case = swept.iter().find(|(name, _)| name == CASE);
        variables.extend(
            case.and_then(|(_, case)| self.cases.get(case))
                .into_iter()
                .flatten()
                .map(|(name, value)| (name.clone(), value.clone())),
        );
        variables.extend(swept);
        let mut scenario = tables::read(&self.text, document, &variables, files)?;
        scenario.seed = self.seed.unwrap_or(scenario.seed).wrapping_add(repetition);
        Ok(scenario)
    }

    /// Reads `[set]`, `[sweep]` and `[[case]]`.
    fn read_variables(
        &mut self,
        document: &DeTable<'_>,
        overrides: &[(String, String)],
    ) -> Vec<Problem> {
        let none = Variables::new();
        let files = Files::new(&files::nothing);
        let reader = Reader::new(&self.text, &none, &files);
        let mut set = Variables::new();
        let mut sweep: Vec<(usize, String, Vec<String>)> = Vec::new();
        let mut seeds = None;
        for (table, swept) in [("set", false), ("sweep", true)] {
            let Some(value) = document.get(table) else { continue };
            let DeValue::Table(entries) = value.get_ref() else {
                reader.problem(&value.span(), format!("[{table}] must be a table of variables"));
                continue;
            };
            for (key, value) in entries.iter() {
                let (name, span) = (key.get_ref().to_string(), value.span());
                let scalars: Vec<Scalar> = match value.get_ref() {
                    DeValue::Array(list) if swept => {
                        list.iter().filter_map(|v| reader.scalar(v)).collect()
                    }
                    _ => reader.scalar(value).into_iter().collect(),
                };
                let texts = scalars.iter().map(|scalar| &*scalar.text);
                for (place, earlier) in duplicates(texts) {
                    let Scalar { text, span } = &scalars[place];
                    reader.problem(span, duplicates::message(&name, text, earlier));
                }
                let values: Vec<String> = scalars.into_iter().map(|s| s.text).collect();
                if values.is_empty() {
                    reader.problem(&span, format!("'{name}' has no values"));
                } else if swept && name == "seeds" {
                    match values[0].parse::<u64>() {
                        Ok(count) if count > 0 && values.len() == 1 => seeds = Some(count),
                        _ => reader.problem(&span, "'seeds' is how many runs each point has"),
                    }
                } else if swept {
                    if set.contains_key(&name) {
                        let message = format!("'{name}' is under [set] too: leave one of them out");
                        reader.problem(&key.span(), message);
                    }
                    sweep.push((key.span().start, name, values));
                } else {
                    set.extend(values.into_iter().map(|value| (name.clone(), value)));
                }
            }
        }
        // As they stand in the file, whatever the order of the parser's map.
        sweep.sort();
        let (names, mut cases) = read_cases(document, &reader);
        for (start, name, _) in &sweep {
            if *name == CASE && !names.is_empty() || cases.values().any(|c| c.contains_key(name)) {
                let message = format!("'{name}' is in a [[case]] too: leave one of them out");
                reader.problem(&(*start..*start), message);
            }
        }
        if !names.is_empty() {
            sweep.insert(0, (0, CASE.to_owned(), names));
        }
        for (name, value) in overrides {
            let values = listed(value);
            let wrong = |message: String| reader.problem_of_override(name, value, message);
            if name == "seeds" {
                match values.iter().map(|one| one.parse::<u64>()).collect::<Vec<_>>().as_slice() {
                    [Ok(count)] if *count > 0 => seeds = Some(*count),
                    _ => wrong("'seeds' is how many runs each point has".into()),
                }
                continue;
            }
            for (place, earlier) in duplicates(values.iter().map(String::as_str)) {
                wrong(duplicates::message(name, &values[place], earlier));
            }
            let place = sweep.iter().position(|(_, swept, _)| swept == name);
            // What a case has would go before it.
            let in_cases = cases.values_mut().filter_map(|case| case.remove(name)).count() > 0;
            if place.is_none() && !in_cases && !set.contains_key(name) {
                let known = set.keys().chain(sweep.iter().map(|(_, swept, _)| swept));
                let known = known.chain(cases.values().flat_map(Variables::keys));
                let hint = match known.clone().next() {
                    Some(_) => suggestion(name, known.map(String::as_str)),
                    None => "give it one under [set] or [sweep]".into(),
                };
                wrong(format!("the file has no variable '{name}'; {hint}"));
            }
            match (place, values.as_slice()) {
                (_, []) => wrong(format!("'{name}' has no values")),
                (None, [one]) => drop(set.insert(name.clone(), one.clone())),
                (Some(place), _) => sweep[place].2 = values,
                (None, _) => {
                    set.remove(name);
                    sweep.push((usize::MAX, name.clone(), values));
                }
            }
        }
        let chosen = sweep.iter().filter(|(_, name, _)| name == CASE && !cases.is_empty());
        for case in chosen.flat_map(|(_, _, chosen)| chosen) {
            if !cases.contains_key(case) {
                let hint = suggestion(case, cases.keys().map(String::as_str));
                let message = format!("there is no case '{case}'; {hint}");
                reader.problem_of_override(CASE, case, message);
            }
        }
        let problems = reader.into_problems();
        self.seeds = seeds.unwrap_or(1);
        self.sweep = sweep.into_iter().map(|(_, name, values)| (name, values)).collect();
        self.set = set;
        self.cases = cases;
        problems
    }
}

/// Reads `[[case]]`: variables that go together, by name, and the names in their order.
fn read_cases(
    document: &DeTable<'_>,
    reader: &Reader<'_>,
) -> (Vec<String>, BTreeMap<String, Variables>) {
    let (mut names, mut all) = (Vec::new(), BTreeMap::new());
    let Some(value) = document.get(CASE) else { return (names, all) };
    let DeValue::Array(cases) = value.get_ref() else {
        reader.problem(&value.span(), "write [[case]], each with its name");
        return (names, all);
    };
    for case in cases.iter() {
        let DeValue::Table(entries) = case.get_ref() else {
            reader.problem(&case.span(), "write [[case]], each with its name");
            continue;
        };
        let mut variables = Variables::new();
        for (key, value) in entries.iter() {
            let value = reader.scalar(value).map(|scalar| scalar.text);
            variables.extend(value.map(|value| (key.get_ref().to_string(), value)));
        }
        match variables.remove("name") {
            Some(name) if !names.contains(&name) => {
                all.insert(name.clone(), variables);
                names.push(name);
            }
            _ => reader.problem(&case.span(), "a case needs a 'name' of its own"),
        }
    }
    (names, all)
}

/// The values of `[a, b]`, or the one value.
fn listed(text: &str) -> Vec<String> {
    let trimmed = text.trim();
    match trimmed.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        None => vec![trimmed.to_owned()],
        Some(list) => {
            list.split(',').map(|value| value.trim().to_owned()).filter(|v| !v.is_empty()).collect()
        }
    }
}

/// The tables of a file.
fn document(text: &str) -> Result<DeTable<'_>, Problems> {
    DeTable::parse(text).map(toml::Spanned::into_inner).map_err(|error| {
        let line = Some(line_of(text, &error.span().unwrap_or(0..0)));
        Problems(vec![Problem { line, message: error.message().to_owned() }])
    })
}
