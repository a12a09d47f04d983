//! Gates: what a law owes to others on a network, in scenarios that are drawn.

use std::collections::BTreeMap;

use farhaul_control::Spec;
use farhaul_sim::Plan;
use serde::Deserialize;

use super::draw::{self, Draw, Drawn};
use super::family::{SEEDS_CHECKED, check_draws, parse};
use super::scale::{self, score};
use super::{Part, Scenario, Scored};
use crate::chart::Scale;
use crate::experiment::data::Ground;
use crate::experiment::metric::Metric;
use crate::experiment::well_formed::Names;
use crate::statistics::mean;
use crate::sweep::Measured;

/// What runs in the place of a law to compare with.
const TCP: Subject<'static> = Subject { protocol: "tcp-cubic", law: "cubic" };

/// A condition: a law that does not meet it has no score.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Gate {
    pub name: String,
    /// Of RFC 9743, which asks for it.
    section: String,
    /// What is measured, in a line.
    what: String,
    /// A scenario file without `[set]`: its variables are those of `draw`, `law` and `protocol`.
    scenario: String,
    draw: BTreeMap<String, Draw>,
    /// Scenarios of a certificate; the reduced battery has one.
    draws: usize,
    /// What is measured in each; the mean counts.
    metric: Metric,
    /// The measurement counts as a multiple of this.
    divide: f64,
    #[serde(default)]
    unit: String,
    /// What is worth 100 points.
    best: f64,
    /// What is worth none.
    worst: f64,
    /// The least that is to be reached.
    at_least: Option<f64>,
    /// At most so many times what TCP CUBIC has in the place of the law.
    times_tcp: Option<f64>,
}

/// Whose flows run in a gate.
#[derive(Clone, Copy, Debug)]
struct Subject<'a> {
    protocol: &'a str,
    law: &'a str,
}

impl Gate {
    pub(super) fn drawn(&self, seed: u64, quick: bool) -> Vec<Drawn> {
        draw::scenarios(seed, &self.name, &self.draw, if quick { 1 } else { self.draws })
    }

    /// What is to be run: each scenario with the law, and then each with a TCP if it is the measure.
    ///
    /// # Errors
    /// What is wrong with the scenario.
    pub(super) fn read(&self, drawn: &[Drawn], law: &str) -> Result<Vec<Plan>, String> {
        let tcp = self.times_tcp.map(|_| TCP);
        let subjects = [Subject { protocol: "udt", law }].into_iter().chain(tcp);
        let all = subjects.flat_map(|subject| drawn.iter().map(move |one| (subject, one)));
        all.map(|(Subject { protocol, law }, one)| {
            let mut values = one.values.clone();
            let own = [(super::battery::LAW, law), ("protocol", protocol)];
            values.extend(own.map(|(name, value)| (name.to_owned(), value.to_owned())));
            parse("gate", &self.name, &self.scenario, &values, one.seed)
        })
        .collect()
    }

    /// How many runs [`Gate::read`] gives of so many scenarios.
    pub(super) fn runs(&self, drawn: usize) -> usize {
        if self.times_tcp.is_some() { 2 * drawn } else { drawn }
    }

    /// `runs`: of what [`Gate::read`] has given.
    pub(super) fn judge(&self, drawn: &[Drawn], runs: &[&Measured]) -> Scored {
        let value = |run: &&Measured| Some(self.metric.of(&run.report)? / self.divide);
        let values: Vec<Option<f64>> = runs.iter().map(value).collect();
        // One that could not be measured makes the whole unknown, and what is unknown reaches nothing.
        let mean_of =
            |values: &[Option<f64>]| mean(&values.iter().copied().collect::<Option<Vec<f64>>>()?);
        let (own, tcp) = values.split_at(drawn.len());
        let measured = mean_of(own);
        let points = |value| score(value, (self.best, self.worst), Scale::Linear);
        let scenario = |(drawn, value): (&Drawn, &Option<f64>)| Scenario {
            values: drawn.values.iter().cloned().collect(),
            seed: drawn.seed,
            measured: [(self.metric.name.clone(), *value)].into(),
            score: points(*value),
        };
        let times = |times: f64| mean_of(tcp).map_or(f64::NAN, |tcp| tcp * times);
        Scored {
            part: Part::Gate,
            name: self.name.clone(),
            section: self.section.clone(),
            what: self.what.clone(),
            measured,
            unit: self.unit.clone(),
            best: self.best,
            worst: self.worst,
            score: points(measured),
            gate: self.at_least.or_else(|| self.times_tcp.map(times)),
            scenarios: drawn.iter().zip(own).map(scenario).collect(),
        }
    }

    /// # Errors
    /// The first thing that is wrong.
    pub(super) fn check(&self) -> Result<(), String> {
        let Gate { best, worst, .. } = *self;
        let wrong = |error: &str| format!("gate '{}': {error}", self.name);
        if self.name.trim().is_empty() || self.what.trim().is_empty() || self.section.is_empty() {
            return Err(wrong("it has no name or section, or does not tell what is measured"));
        }
        if self.draws == 0 || !self.divide.is_normal() {
            return Err(wrong("it has no 'draws', or 'divide' is no number to divide by"));
        }
        scale::check((best, worst), Scale::Linear).map_err(wrong)?;
        match (self.at_least, self.times_tcp) {
            (Some(least), None) if best > worst && (worst..=best).contains(&least) => {}
            (None, Some(times)) if best < worst && times > 0.0 && times.is_finite() => {}
            _ => {
                return Err(wrong(
                    "write 'at_least', where more is better, or 'times_tcp', where less is",
                ));
            }
        }
        check_draws(&self.draw).map_err(|error| wrong(&error))?;
        for seed in 0..SEEDS_CHECKED {
            for plan in self.read(&self.drawn(seed, true), &Spec::default().to_string())? {
                let names = Names::of(&plan, Ground::Simulator)?;
                names.check_metric(&self.metric).map_err(|error| wrong(&error))?;
            }
        }
        Ok(())
    }
}
