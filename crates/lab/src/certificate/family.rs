//! Families of scenarios that are drawn, and what a law is given for them.

use std::collections::BTreeMap;

use farhaul_control::{Spec, own_laws};
use farhaul_sim::{Plan, Report};
use serde::Deserialize;

use super::draw::{self, Draw, Drawn};
use super::scale::{self, score, to_tenths};
use super::{PAIR_PREFIX, Part, Scenario, Scored};
use crate::chart::Scale;
use crate::experiment::data::Ground;
use crate::experiment::metric::{Metric, flow_named};
use crate::experiment::well_formed::Names;
use crate::statistics::mean;
use crate::sweep::Measured;

/// Scenarios of a kind.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Family {
    pub name: String,
    /// Of RFC 9743, which asks for it.
    section: String,
    /// What is measured, in a line.
    what: String,
    /// A scenario file without `[set]`: its variables are those of `draw`, and `law`.
    scenario: String,
    draw: BTreeMap<String, Draw>,
    /// Scenarios of a certificate; the reduced battery has one.
    draws: usize,
    /// A scenario is worth the least of these: what is gained in one at the cost of another counts for
    /// nothing.
    measure: Vec<Measure>,
}

/// A measurement on a scale.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Measure {
    metric: Metric,
    /// What is worth 100 points.
    best: f64,
    /// What is worth none.
    worst: f64,
    #[serde(default)]
    scale: Scale,
}

/// Two flows, one of the law and one of another, on scenarios that are drawn.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pairs {
    section: String,
    /// As of a family, with two flows, `own` and `other`, and the variables `protocol` and `other` besides.
    scenario: String,
    draw: BTreeMap<String, Draw>,
    draws: usize,
    /// TCPs to be paired with, besides the laws that there are.
    tcp: Vec<String>,
    /// Laws with which nothing can share.
    without: Vec<String>,
}

/// What all pairs' scenarios are drawn by: a law meets each other one on the same paths.
const PAIRS: &str = "pairs";

/// What a law is paired with.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Other {
    pub name: String,
    protocol: String,
    law: String,
}

impl Family {
    pub(super) fn drawn(&self, seed: u64, quick: bool) -> Vec<Drawn> {
        draw::scenarios(seed, &self.name, &self.draw, if quick { 1 } else { self.draws })
    }

    pub(super) fn read(&self, drawn: &Drawn, law: &str) -> Result<Plan, String> {
        let mut values = drawn.values.clone();
        values.push((super::battery::LAW.to_owned(), law.to_owned()));
        parse("family", &self.name, &self.scenario, &values, drawn.seed)
    }

    /// `runs`: of each scenario drawn, in their order.
    pub(super) fn judge(&self, drawn: &[Drawn], runs: &[&Measured]) -> Scored {
        let one = |(drawn, run): (&Drawn, &&Measured)| {
            let of = |measure: &Measure| {
                let value = measure.metric.of(&run.report);
                let points = score(value, (measure.best, measure.worst), measure.scale);
                (measure.metric.name.clone(), value, points)
            };
            let measured: Vec<_> = self.measure.iter().map(of).collect();
            let least = measured.iter().map(|(.., points)| *points).reduce(f64::min);
            Scenario {
                values: drawn.values.iter().cloned().collect(),
                seed: drawn.seed,
                measured: measured.into_iter().map(|(name, value, _)| (name, value)).collect(),
                score: least.unwrap_or(0.0),
            }
        };
        let scenarios = drawn.iter().zip(runs).map(one).collect();
        of_points(Part::Family, &self.name, &self.section, &self.what, scenarios)
    }

    /// # Errors
    /// The first thing that is wrong.
    pub(super) fn check(&self) -> Result<(), String> {
        let wrong = |error: &str| format!("family '{}': {error}", self.name);
        if self.name.trim().is_empty() || self.what.trim().is_empty() || self.section.is_empty() {
            return Err(wrong("it has no name or section, or does not tell what is measured"));
        }
        if self.measure.is_empty() || self.draws == 0 {
            return Err(wrong("it has no 'measure', or no 'draws'"));
        }
        for Measure { best, worst, scale, .. } in &self.measure {
            scale::check((*best, *worst), *scale).map_err(wrong)?;
        }
        check_draws(&self.draw).map_err(|error| wrong(&error))?;
        for seed in 0..SEEDS_CHECKED {
            for drawn in self.drawn(seed, false) {
                let plan = self.read(&drawn, &Spec::default().to_string())?;
                let names = Names::of(&plan, Ground::Simulator)?;
                for measure in &self.measure {
                    names.check_metric(&measure.metric).map_err(|error| wrong(&error))?;
                }
            }
        }
        Ok(())
    }
}

/// Seeds with which a battery is tried.
pub(super) const SEEDS_CHECKED: u64 = 20;

impl Pairs {
    pub(super) fn drawn(&self, seed: u64, quick: bool) -> Vec<Drawn> {
        draw::scenarios(seed, PAIRS, &self.draw, if quick { 1 } else { self.draws })
    }

    /// What a law is paired with: the TCPs, every law that comes with farhaul, and itself. Laws of users do not
    /// count: with a law a user could add others that give way to it.
    pub(super) fn others(&self, law: &Spec) -> Vec<Other> {
        let tcp = self.tcp.iter().map(|law| {
            let protocol = format!("tcp-{law}");
            Other { name: protocol.replacen('-', " ", 1), protocol, law: law.clone() }
        });
        let fair = |name: &&str| !self.without.iter().any(|without| without == name);
        let known = own_laws().iter().map(|law| law.name).filter(fair);
        let other = |name: String, law: String| Other { name, protocol: "udt".into(), law };
        let mut others: Vec<Other> =
            tcp.chain(known.map(|name| other(name.to_owned(), name.to_owned()))).collect();
        let text = law.to_string();
        if fair(&law.name()) && others.iter().all(|other| other.law != text) {
            others.push(other("itself".into(), text));
        }
        others
    }

    pub(super) fn read(&self, drawn: &Drawn, law: &str, other: &Other) -> Result<Plan, String> {
        let mut values = drawn.values.clone();
        let own =
            [(super::battery::LAW, law), ("protocol", &other.protocol), ("other", &other.law)];
        values.extend(own.map(|(name, value)| (name.to_owned(), value.to_owned())));
        parse("the", PAIRS, &self.scenario, &values, drawn.seed)
    }

    pub(super) fn judge(&self, other: &Other, drawn: &[Drawn], runs: &[&Measured]) -> Scored {
        let one = |(drawn, run): (&Drawn, &&Measured)| {
            let shares = shares(&run.report);
            let measured =
                [("own", shares.map(|(own, _)| own)), ("other", shares.map(|(_, other)| other))];
            Scenario {
                values: drawn.values.iter().cloned().collect(),
                seed: drawn.seed,
                measured: measured.map(|(name, share)| (name.to_owned(), share)).into(),
                score: to_tenths(100.0 * shares.map_or(0.0, least_share)),
            }
        };
        let scenarios = drawn.iter().zip(runs).map(one).collect();
        let what = format!(
            "the lesser of what the law and {} have, in percent of the fair share, side by side",
            other.name
        );
        let name = format!("{PAIR_PREFIX}{}", other.name);
        of_points(Part::Pair, &name, &self.section, &what, scenarios)
    }

    /// # Errors
    /// The first thing that is wrong.
    pub(super) fn check(&self) -> Result<(), String> {
        let wrong = |error: &str| format!("pairs: {error}");
        if self.draws == 0 || self.section.is_empty() {
            return Err(wrong("there is no section, or no 'draws'"));
        }
        check_draws(&self.draw).map_err(|error| wrong(&error))?;
        let law = Spec::default();
        let (others, law) = (self.others(&law), law.to_string());
        for seed in 0..SEEDS_CHECKED {
            for (drawn, other) in self.drawn(seed, true).iter().zip(others.iter().cycle()) {
                let names = Names::of(&self.read(drawn, &law, other)?, Ground::Simulator)?;
                for metric in ["flow:own", "flow:other"] {
                    let metric = Metric::try_from(metric.to_owned())?;
                    names.check_metric(&metric).map_err(|error| wrong(&error))?;
                }
            }
        }
        Ok(())
    }
}

/// What the two flows have of their fair shares, half of the first link each; 1 is fair.
fn shares(report: &Report) -> Option<(f64, f64)> {
    let fair = report.links.first()?.rate_bps? / 2.0;
    let share = |name: &str| Some(flow_named(report, name)?.packet_throughput_bps / fair);
    Some((share("own")?, share("other")?))
}

/// Neither a law that starves others nor one that is starved shares: 1 where both have what is theirs, 0 where
/// either has nothing.
fn least_share((own, other): (f64, f64)) -> f64 {
    own.min(other).clamp(0.0, 1.0)
}

pub(super) fn check_draws(draws: &BTreeMap<String, Draw>) -> Result<(), String> {
    let check = |(name, draw): (&String, &Draw)| {
        draw.check().map_err(|error| format!("variable '{name}': {error}"))
    };
    draws.iter().try_for_each(check)
}

/// The plan of a scenario with these values; `part` and `name` say what it is of.
pub(super) fn parse(
    part: &str,
    name: &str,
    scenario: &str,
    values: &[(String, String)],
    seed: u64,
) -> Result<Plan, String> {
    // The scenario has no values of its own: what is drawn becomes its `[set]`. A text in JSON is one in TOML.
    let mut text = format!("{scenario}\n[set]\n");
    for (variable, value) in values {
        text += &format!("{variable} = {}\n", serde_json::Value::from(value.as_str()));
    }
    let plan = Plan::parse(&text, &[], Some(seed));
    let plan = plan.map_err(|problems| format!("{part} '{name}': {problems}"))?;
    match plan.points() {
        1 => Ok(plan),
        _ => Err(format!("{part} '{name}': it is drawn, so nothing can be swept")),
    }
}

/// The item of scenarios that have points: their mean counts, and the least of them is shown.
fn of_points(
    part: Part,
    name: &str,
    section: &str,
    what: &str,
    scenarios: Vec<Scenario>,
) -> Scored {
    let points: Vec<f64> = scenarios.iter().map(|scenario| scenario.score).collect();
    Scored {
        part,
        name: name.to_owned(),
        section: section.to_owned(),
        what: what.to_owned(),
        measured: points.iter().copied().reduce(f64::min),
        unit: "at worst".into(),
        best: 100.0,
        worst: 0.0,
        score: to_tenths(mean(&points).unwrap_or(0.0)),
        gate: None,
        scenarios,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lesser_share_counts() {
        assert_eq!(least_share((1.0, 1.0)), 1.0);
        assert!(least_share((1.9, 0.1)) < 0.11, "it starves the other");
        assert!(least_share((0.1, 1.9)) < 0.11, "it is starved");
        assert_eq!(least_share((1.02, 1.01)), 1.0, "never more than all");
    }
}
