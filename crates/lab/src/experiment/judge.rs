//! Expectations held against measurements.

use std::collections::BTreeMap;

use super::data::{Aggregate, Bounds, CheckSpec, Experiment, Value};
use super::metric::measure;
use super::{Runs, equation};
use crate::report::{Check, Verdict};
use crate::statistics::mean;
use crate::sweep::Measured;

/// Significant digits of what is told.
const DIGITS: usize = 4;

/// A value with the point that it was measured at.
struct Found<'a> {
    values: &'a [(String, String)],
    value: f64,
    /// What it should be, where that is a number of its own.
    expected: Option<f64>,
}

/// Judges everything.
pub(super) fn checks(
    experiment: &Experiment,
    runs: &Runs,
    quick: bool,
) -> Result<Vec<Check>, String> {
    let due = experiment.check.iter().filter(|check| check.quick || !quick);
    due.map(|check| {
        let measured = &runs[experiment.plan_name(&check.plan)?];
        judge(check, measured).map_err(|message| format!("{}: {message}", check.what))
    })
    .collect()
}

/// Whether names of plans, measurements and equations are right, and there is something to judge
/// by.
pub(super) fn well_formed(experiment: &Experiment) -> Result<(), String> {
    for check in &experiment.check {
        experiment.plan_name(&check.plan)?;
        let Bounds { at_least, at_most, near, within, at_most_times } = check.bounds();
        let limits = at_least.is_some() || at_most.is_some();
        let target = near.is_some() || check.equation.is_some() || !check.each.is_empty();
        let relative = target && within.or(at_most_times).is_some();
        if !limits && !relative {
            return Err(format!("check '{}' expects nothing", check.what));
        }
        if check.each.is_empty() != check.by.is_none() {
            return Err(format!("check '{}': 'each' and 'by' go together", check.what));
        }
    }
    Ok(())
}

fn judge(check: &CheckSpec, measured: &[Measured]) -> Result<Check, String> {
    let mut found = points(check, measured)?;
    if let Some(aggregate) = check.aggregate {
        let values: Vec<f64> = found.iter().map(|found| found.value).collect();
        let one = match aggregate {
            Aggregate::Min => values.iter().copied().reduce(f64::min),
            Aggregate::Max => values.iter().copied().reduce(f64::max),
            Aggregate::Mean => mean(&values),
            Aggregate::Sum => Some(values.iter().sum()),
            Aggregate::Spread => {
                let (low, high) = (
                    values.iter().copied().reduce(f64::min),
                    values.iter().copied().reduce(f64::max),
                );
                low.zip(high).filter(|(low, _)| *low > 0.0).map(|(low, high)| high / low)
            }
        };
        // The point where it is so is worth telling.
        let place = found.iter().find(|found| Some(found.value) == one);
        let values = place.map_or(&[][..], |found| found.values);
        found = one.map(|value| Found { values, value, expected: None }).into_iter().collect();
    }
    let verdicts: Vec<(Verdict, Option<&str>)> =
        found.iter().map(|found| verdict(check, found)).collect();
    let any = |wanted: Verdict| verdicts.iter().any(|(verdict, _)| *verdict == wanted);
    // Where nothing could be measured, nothing is as expected.
    let worst = if any(Verdict::Fail) || verdicts.is_empty() {
        Verdict::Fail
    } else if any(Verdict::Explained) {
        Verdict::Explained
    } else {
        Verdict::Pass
    };
    let mut reason = check.reason.trim().to_owned();
    let mut told: Vec<&str> = Vec::new();
    for because in verdicts.iter().filter_map(|(_, because)| *because) {
        if !told.contains(&because) {
            told.push(because);
            reason = format!("{reason} {}", because.trim()).trim().to_owned();
        }
    }
    Ok(Check {
        what: check.what.clone(),
        published: published(check),
        measured: describe(&found, &verdicts),
        tolerance: tolerance(&check.bounds()),
        verdict: worst,
        reason,
    })
}

/// The measurement at each point that the check is about, means over the seeds.
fn points<'a>(check: &CheckSpec, measured: &'a [Measured]) -> Result<Vec<Found<'a>>, String> {
    let mut found = Vec::new();
    for group in measured.chunk_by(|a, b| a.values == b.values) {
        let values = group[0].values.as_slice();
        if !matches(&check.only, values) {
            continue;
        }
        let mut sample = Vec::new();
        for run in group {
            sample.extend(measure(&check.metric, &run.report)?);
        }
        let expected = match (&check.by, &check.equation) {
            (Some(by), _) => {
                let value = values.iter().find(|(name, _)| name == by).map(|(_, value)| value);
                match value.and_then(|value| check.each.get(value)) {
                    // A point of which nothing was published.
                    None => continue,
                    expected => expected.copied(),
                }
            }
            (None, Some(name)) => Some(equation::predict(name, values)?),
            (None, None) => check.near,
        };
        found.extend(mean(&sample).map(|value| Found { values, value, expected }));
    }
    Ok(found)
}

fn verdict<'a>(check: &'a CheckSpec, found: &Found<'_>) -> (Verdict, Option<&'a str>) {
    if holds(&check.bounds(), found) {
        return (Verdict::Pass, None);
    }
    let known = check
        .known
        .iter()
        .find(|known| matches(&known.only, found.values) && holds(&known.bounds(), found));
    match known {
        Some(known) => (Verdict::Explained, Some(&known.because)),
        None => (Verdict::Fail, None),
    }
}

fn holds(bounds: &Bounds, found: &Found<'_>) -> bool {
    let Bounds { at_least, at_most, near, within, at_most_times } = *bounds;
    let near = near.or(found.expected);
    at_least.is_none_or(|least| found.value >= least)
        && at_most.is_none_or(|most| found.value <= most)
        && match (near, within) {
            (Some(near), Some(share)) => (found.value - near).abs() <= share * near.abs(),
            _ => true,
        }
        && match (near, at_most_times) {
            (Some(near), Some(times)) => found.value <= times * near,
            _ => true,
        }
}

/// Whether a point has these values.
pub(super) fn matches(only: &BTreeMap<String, Value>, values: &[(String, String)]) -> bool {
    only.iter().all(|(name, allowed)| {
        values.iter().any(|(known, value)| known == name && allowed.has(value))
    })
}

fn published(check: &CheckSpec) -> String {
    if !check.published.is_empty() || check.each.is_empty() {
        return check.published.clone();
    }
    let mut pairs: Vec<(&String, &f64)> = check.each.iter().collect();
    pairs.sort_by(|a, b| {
        let number = |text: &str| crate::quantity::number(text).unwrap_or(f64::NAN);
        number(a.0).total_cmp(&number(b.0))
    });
    let pairs: Vec<String> =
        pairs.iter().map(|(k, v)| format!("{k}: {}", significant(**v))).collect();
    pairs.join(", ")
}

fn tolerance(bounds: &Bounds) -> String {
    let Bounds { at_least, at_most, within, at_most_times, .. } = bounds;
    let parts = [
        at_least.map(|least| format!("at least {}", significant(least))),
        at_most.map(|most| format!("at most {}", significant(most))),
        within.map(|share| format!("within {}%", significant(share * 100.0))),
        at_most_times.map(|times| format!("at most {} times", significant(times))),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// All values if they are few, else their range; and where it is not as expected.
fn describe(found: &[Found<'_>], verdicts: &[(Verdict, Option<&str>)]) -> String {
    const MOST_SHOWN: usize = 12;
    let place = |found: &Found<'_>| {
        let values: Vec<String> = found.values.iter().map(|(k, v)| format!("{k} {v}")).collect();
        values.join(", ")
    };
    let shown = |found: &Found<'_>| {
        let value = significant(found.value);
        let value = match found.expected {
            Some(expected) => format!("{value} for {}", significant(expected)),
            None => value,
        };
        if found.values.is_empty() { value } else { format!("{value} ({})", place(found)) }
    };
    let wrong = || {
        let wrong =
            found.iter().zip(verdicts).filter(|(_, (verdict, _))| *verdict != Verdict::Pass);
        wrong.map(|(found, _)| found)
    };
    if found.is_empty() {
        return "nothing".into();
    }
    if found.len() <= MOST_SHOWN {
        return found.iter().map(shown).collect::<Vec<_>>().join("; ");
    }
    let values = || found.iter().map(|found| found.value);
    let low = values().reduce(f64::min).unwrap_or(f64::NAN);
    let high = values().reduce(f64::max).unwrap_or(f64::NAN);
    let range = format!("{} to {} at {} points", significant(low), significant(high), found.len());
    let outside = wrong().count();
    if outside == 0 {
        return range;
    }
    let first: Vec<String> = wrong().take(MOST_SHOWN).map(shown).collect();
    format!("{range}; outside at {outside}: {}", first.join("; "))
}

fn significant(value: f64) -> String {
    crate::number::significant(value, DIGITS)
}
