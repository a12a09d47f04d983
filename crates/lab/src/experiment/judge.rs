//! Expectations held against measurements.

use std::collections::BTreeMap;

use super::Runs;
use super::data::{Against, Bounds, CheckSpec, Experiment, Known, Numbers, Value, Version};
use crate::report::{Check, Verdict};
use crate::sweep::{Measured, groups, label};

/// Significant digits of what is told.
const DIGITS: usize = 4;

/// A value with the point that it was measured at.
struct Found<'a> {
    values: &'a [(String, String)],
    /// No number where nothing could be measured, which no bound holds for.
    value: f64,
    /// What it should be, where that is a number of its own.
    expected: Option<f64>,
}

/// Judges everything that this version of the experiment can be judged by.
pub(super) fn checks(experiment: &Experiment, runs: &Runs, version: Version) -> Vec<Check> {
    let due = experiment.check.iter().filter(|check| check.is_due(version));
    due.map(|check| {
        let plan = check.plan.as_ref();
        let other = check.against.as_ref().and_then(|against| against.plan.as_ref()).or(plan);
        let each = experiment.numbers(check.each.as_ref());
        judge(check, each, experiment.runs_of(plan, runs), experiment.runs_of(other, runs))
    })
    .collect()
}

/// `each`: the published numbers that the check is about, if there is more than one. `other`: the
/// runs to compare with.
fn judge(
    check: &CheckSpec,
    each: Option<&Numbers>,
    measured: &[Measured],
    other: &[Measured],
) -> Check {
    let mut found = points(check, each, measured, other);
    if check.spread {
        found = spread(&found).into_iter().collect();
    }
    let verdicts: Vec<Verdict> = found.iter().map(|found| verdict(check, found)).collect();
    let any = |wanted: Verdict| verdicts.contains(&wanted);
    // Where nothing could be measured, nothing is as expected.
    let worst = if any(Verdict::Fail) || verdicts.is_empty() {
        Verdict::Fail
    } else if any(Verdict::Explained) {
        Verdict::Explained
    } else {
        Verdict::Pass
    };
    let mut reason = check.reason.trim().to_owned();
    // In the order of the file, each reason and each bound once.
    let (mut bounds, mut because) = (Vec::new(), "");
    for (index, known) in check.known.iter().enumerate() {
        // Without a reason of its own it has that of the one before.
        because = if known.because.is_empty() { because } else { known.because.trim() };
        let used = |found: &Found<'_>| explanation(check, found) == Some(index);
        if !found.iter().any(used) {
            continue;
        }
        if !reason.contains(because) {
            reason = format!("{reason} {because}").trim().to_owned();
        }
        let (bound, at) = (tolerance(&known.bounds()), place(&known.only));
        bounds.push(if at.is_empty() { bound } else { format!("{bound} ({at})") });
    }
    let mut allowed = tolerance(&check.bounds());
    if !bounds.is_empty() {
        allowed = format!("{allowed}; explained: {}", bounds.join("; "));
    }
    Check {
        what: check.what.clone(),
        published: published(check, each),
        measured: describe(&check.bounds(), &found, &verdicts),
        tolerance: allowed,
        verdict: worst,
        reason,
    }
}

/// The measurement at each point that the check is about, one for all seeds.
fn points<'a>(
    check: &CheckSpec,
    each: Option<&Numbers>,
    measured: &'a [Measured],
    other: &[Measured],
) -> Vec<Found<'a>> {
    let mut found = Vec::new();
    for runs in groups(measured) {
        let values = runs[0].values.as_slice();
        if !matches(&check.only, values) {
            continue;
        }
        let mut value = average(check, runs);
        if let Some(against) = &check.against {
            let there = average(check, counterpart(values, against, other));
            value = if there == 0.0 { f64::NAN } else { value / there };
        }
        let expected = match (&check.by, &check.equation) {
            (Some(by), _) => {
                match runs[0].value(by).and_then(|value| each?.get(value)) {
                    // A point of which nothing was published.
                    None => continue,
                    Some(expected) => Some(*expected),
                }
            }
            (None, Some(equation)) => Some(equation.predict(values).unwrap_or(f64::NAN)),
            (None, None) => check.near,
        };
        found.push(Found { values, value, expected });
    }
    found
}

/// The largest value over the smallest, no number unless each point has one above zero; none if
/// there is no point.
fn spread(found: &[Found<'_>]) -> Option<Found<'static>> {
    let values = || found.iter().map(|found| found.value);
    let (low, high) = (values().reduce(f64::min)?, values().reduce(f64::max)?);
    let whole = low > 0.0 && !values().any(f64::is_nan);
    Some(Found { values: &[], value: if whole { high / low } else { f64::NAN }, expected: None })
}

/// What stands for the measurement of all seeds; no number unless each of them has one.
fn average(check: &CheckSpec, runs: &[Measured]) -> f64 {
    let sample = check.metric.sample(runs);
    check.average.of(&sample).filter(|_| sample.len() == runs.len()).unwrap_or(f64::NAN)
}

/// The runs at the point that the one with these values is to be compared with; none if there is no
/// such point.
pub(super) fn counterpart<'a>(
    values: &[(String, String)],
    against: &Against,
    measured: &'a [Measured],
) -> &'a [Measured] {
    let wanted = |name: &String| {
        let here = values.iter().find(|(known, _)| known == name).map(|(_, value)| value);
        against.only.get(name).or(here)
    };
    let same = |run: &Measured| {
        run.values.iter().all(|(name, value)| wanted(name).is_none_or(|wanted| wanted == value))
    };
    groups(measured).find(|runs| same(&runs[0])).unwrap_or_default()
}

fn verdict(check: &CheckSpec, found: &Found<'_>) -> Verdict {
    if holds(&check.bounds(), found) {
        return Verdict::Pass;
    }
    if explanation(check, found).is_some() { Verdict::Explained } else { Verdict::Fail }
}

/// Which of the known deviations it is, if it is not as expected.
fn explanation(check: &CheckSpec, found: &Found<'_>) -> Option<usize> {
    let explains =
        |known: &Known| matches(&known.only, found.values) && holds(&known.bounds(), found);
    check.known.iter().position(explains).filter(|_| !holds(&check.bounds(), found))
}

fn holds(bounds: &Bounds, found: &Found<'_>) -> bool {
    let Bounds { at_least, at_most, near, within, at_most_times } = *bounds;
    let near = near.or(found.expected);
    !found.value.is_nan()
        && at_least.is_none_or(|least| found.value >= least)
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
        values.iter().any(|(known, value)| known == name && allowed.all().contains(value))
    })
}

fn published(check: &CheckSpec, each: Option<&Numbers>) -> String {
    let each = each.filter(|_| check.published.is_empty());
    let Some(each) = each else { return check.published.clone() };
    let mut pairs: Vec<(&String, &f64)> = each.iter().collect();
    pairs.sort_by(|a, b| {
        let number = |text: &str| crate::quantity::number(text).unwrap_or(f64::NAN);
        number(a.0).total_cmp(&number(b.0))
    });
    if let [(_, only)] = pairs.as_slice() {
        return significant(**only);
    }
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

/// The points that have these values: `rate 1M, rtt 10us or 100us`.
fn place(only: &BTreeMap<String, Value>) -> String {
    let any = |(name, value): (&String, &Value)| (name.clone(), value.all().join(" or "));
    label(&only.iter().map(any).collect::<Vec<_>>())
}

/// All values if they are few, else their range; and where it is not as expected, the worst first.
fn describe(bounds: &Bounds, found: &[Found<'_>], verdicts: &[Verdict]) -> String {
    const MOST_SHOWN: usize = 12;
    let shown = |found: &Found<'_>| {
        let value = significant(found.value);
        let value = match found.expected {
            Some(expected) => format!("{value} for {}", significant(expected)),
            None => value,
        };
        if found.values.is_empty() { value } else { format!("{value} ({})", label(found.values)) }
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
    let mut wrong: Vec<(Verdict, f64, &Found<'_>)> = found
        .iter()
        .zip(verdicts)
        .filter(|(_, verdict)| **verdict != Verdict::Pass)
        .map(|(found, verdict)| (*verdict, beyond(bounds, found), found))
        .collect();
    if wrong.is_empty() {
        return range;
    }
    wrong.sort_by(|a, b| b.0.cmp(&a.0).then(b.1.total_cmp(&a.1)));
    let worst: Vec<String> =
        wrong.iter().take(MOST_SHOWN).map(|(.., found)| shown(found)).collect();
    let more = match wrong.len() - worst.len() {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    format!("{range}; outside at {}: {}{more}", wrong.len(), worst.join("; "))
}

/// How far a value is beyond the bounds, as a factor: 2 is twice what is allowed, or half of it. No
/// bound holds for what is no number, which is farthest.
fn beyond(bounds: &Bounds, found: &Found<'_>) -> f64 {
    let Bounds { at_least, at_most, near, within, at_most_times } = *bounds;
    let (value, near) = (found.value, near.or(found.expected));
    if value.is_nan() {
        return f64::INFINITY;
    }
    let apart = near.zip(within).map(|(near, share)| {
        let (low, high) = (near - share * near.abs(), near + share * near.abs());
        (low / value).max(value / high)
    });
    let parts = [
        at_least.map(|least| least / value),
        at_most.map(|most| value / most),
        apart,
        near.zip(at_most_times).map(|(near, times)| value / (times * near)),
    ];
    parts.into_iter().flatten().fold(0.0, f64::max)
}

fn significant(value: f64) -> String {
    crate::number::significant(value, DIGITS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::metric::tests::one_flow;

    /// Runs at `n` = 1, 2, … in which the flow has so many Mb/s; there is no flow where it is none.
    fn measured(rates: &[Option<f64>]) -> Vec<Measured> {
        let report = one_flow();
        let run = |(index, rate): (usize, &Option<f64>)| {
            let mut report = report.clone();
            match rate {
                Some(rate) => report.flows[0].packet_throughput_bps = rate * 1e6,
                None => report.flows.clear(),
            }
            let values = vec![("n".to_owned(), (index + 1).to_string())];
            Measured { point: index as u64, values, report }
        };
        rates.iter().enumerate().map(run).collect()
    }

    fn judged(check: &str, measured: &[Measured]) -> Check {
        let text = format!("what = \"rate\"\nmetric = \"flow:udt\"\n{check}");
        let each = Numbers::from([("2".to_owned(), 4.1)]);
        judge(&toml::from_str(&text).expect("a check"), Some(&each), measured, measured)
    }

    #[test]
    fn verdicts() {
        use Verdict::{Explained, Fail, Pass};
        const KNOWN: &str = "[[known]]\nwhere = { n = \"2\" }\nat_least = 3\nbecause = \"Why.\"";
        let runs = measured(&[Some(8.0), Some(4.0)]);
        let cases = [
            ("at_least = 4", Pass, "8 (n 1); 4 (n 2)"),
            ("at_least = 5", Fail, "8 (n 1); 4 (n 2)"),
            ("at_most = 8", Pass, "8 (n 1); 4 (n 2)"),
            ("near = 6\nwithin = 0.34", Pass, "8 for 6 (n 1); 4 for 6 (n 2)"),
            ("near = 6\nwithin = 0.3", Fail, "8 for 6 (n 1); 4 for 6 (n 2)"),
            ("near = 4\nat_most_times = 2", Pass, "8 for 4 (n 1); 4 for 4 (n 2)"),
            ("at_least = 5\nwhere = { n = \"1\" }", Pass, "8 (n 1)"),
            ("at_least = 5\nwhere = { n = \"3\" }", Fail, "nothing"),
            ("by = \"n\"\neach = \"four\"\nwithin = 0.1", Pass, "4 for 4.1 (n 2)"),
            ("at_least = 2\nagainst = { where = { n = \"2\" } }\nwhere.n = \"1\"", Pass, "2 (n 1)"),
            ("at_most = 2\nspread = true", Pass, "2"),
            ("at_most = 1.9\nspread = true", Fail, "2"),
            (&format!("at_least = 5\n{KNOWN}"), Explained, "8 (n 1); 4 (n 2)"),
            // Another bound with the same reason.
            (
                &format!("at_least = 9\n{KNOWN}\n[[known]]\nwhere = {{ n = \"1\" }}\nat_least = 7"),
                Explained,
                "8 (n 1); 4 (n 2)",
            ),
            (&format!("at_least = 9\n{KNOWN}"), Fail, "8 (n 1); 4 (n 2)"),
        ];
        for (check, verdict, text) in cases {
            let judged = judged(check, &runs);
            assert_eq!((judged.verdict, judged.measured.as_str()), (verdict, text), "{check}");
            assert_eq!(judged.reason == "Why.", check.contains(KNOWN), "{check}");
        }
    }

    #[test]
    fn how_far_a_deviation_is_explained_is_told() {
        let known = |n: u32, more: &str| format!("[[known]]\nwhere = {{ n = \"{n}\" }}\n{more}\n");
        let check = format!(
            "at_most = 3\nreason = \"So.\"\n{}{}{}",
            known(3, "at_most = 9\nbecause = \"Not needed.\""),
            known(1, "at_most = 8\nbecause = \"Why.\""),
            known(2, "at_most = 4.5"),
        );
        let judged = judged(&check, &measured(&[Some(8.0), Some(4.0), Some(1.0)]));
        assert_eq!(judged.tolerance, "at most 3; explained: at most 8 (n 1); at most 4.5 (n 2)");
        assert_eq!(judged.reason, "So. Why.");
    }

    #[test]
    fn where_a_bound_of_an_explanation_holds_is_told() {
        let known = "[[known]]\nwhere = { n = [\"1\", \"2\"] }\nat_most = 9\nbecause = \"Why.\"";
        let judged = |known: &str| {
            judged(&format!("at_most = 3\n{known}"), &measured(&[Some(8.0), Some(4.0)])).tolerance
        };
        assert_eq!(judged(known), "at most 3; explained: at most 9 (n 1 or 2)");
        let everywhere = "[[known]]\nat_most = 9\nbecause = \"Why.\"";
        assert_eq!(judged(everywhere), "at most 3; explained: at most 9");
    }

    #[test]
    fn of_many_points_outside_the_worst_are_told_first_and_how_many_more_there_are() {
        let rates: Vec<Option<f64>> = (1..=20).map(|n| (n != 5).then_some(f64::from(n))).collect();
        let told = |check: &str| judged(check, &measured(&rates)).measured;
        assert_eq!(told("at_most = 20\nwhere.n = [\"1\", \"2\"]"), "1 (n 1); 2 (n 2)");
        let high = told("at_most = 3");
        let begin = "1 to 20 at 20 points; outside at 17: - (n 5); 20 (n 20); 19 (n 19); ";
        assert!(high.starts_with(begin), "{high}");
        assert!(high.ends_with("; 10 (n 10); and 5 more"), "{high}");
        let low = told("at_least = 17");
        assert!(low.contains("outside at 16: - (n 5); 1 (n 1); 2 (n 2); "), "{low}");
        // What fails comes before what is explained, however far that is.
        let known = "[[known]]\nwhere.n = [\"1\", \"5\"]\nat_least = 0\nbecause = \"Why.\"";
        let mixed = told(&format!("near = 11\nwithin = 0.8\n{known}"));
        let end = "outside at 4: - for 11 (n 5); 2 for 11 (n 2); 20 for 11 (n 20); 1 for 11 (n 1)";
        assert!(mixed.ends_with(end), "{mixed}");
    }

    #[test]
    fn a_point_without_a_value_fails() {
        let runs = measured(&[Some(8.0), None, Some(0.0)]);
        let known = "[[known]]\nat_least = 0\nbecause = \"Why.\"";
        let cases = [
            ("at_least = 0", "8 (n 1); - (n 2); 0 (n 3)"),
            ("at_most = 9", "8 (n 1); - (n 2); 0 (n 3)"),
            (&format!("at_most = 9\n{known}"), "8 (n 1); - (n 2); 0 (n 3)"),
            ("near = 8\nwithin = 9", "8 for 8 (n 1); - for 8 (n 2); 0 for 8 (n 3)"),
            ("at_most = 9\nspread = true", "-"),
            // Nothing to compare with, a division by nothing, no such point.
            ("at_most = 9\nwhere.n = \"1\"\nagainst = { where = { n = \"2\" } }", "- (n 1)"),
            ("at_most = 9\nwhere.n = \"1\"\nagainst = { where = { n = \"3\" } }", "- (n 1)"),
            ("at_most = 9\nwhere.n = \"1\"\nagainst = { where = { n = \"4\" } }", "- (n 1)"),
        ];
        for (check, text) in cases {
            let judged = judged(check, &runs);
            assert_eq!(
                (judged.verdict, judged.measured.as_str()),
                (Verdict::Fail, text),
                "{check}"
            );
        }
    }

    #[test]
    fn a_median_stands_for_the_seeds_if_asked_for() {
        let mut runs = measured(&[Some(1.0), Some(2.0), Some(30.0)]);
        for run in &mut runs {
            run.values = vec![("n".to_owned(), "1".to_owned())];
        }
        assert_eq!(judged("at_least = 1", &runs).measured, "11 (n 1)");
        assert_eq!(judged("at_least = 1\naverage = \"median\"", &runs).measured, "2 (n 1)");
    }

    #[test]
    fn a_seed_without_a_value_fails() {
        let mut runs = measured(&[Some(8.0), None]);
        runs[1].values = runs[0].values.clone();
        assert_eq!(judged("at_least = 1", &runs).measured, "- (n 1)");
        runs[1].report = measured(&[Some(4.0)])[0].report.clone();
        assert_eq!(judged("at_least = 1", &runs).measured, "6 (n 1)");
    }
}
