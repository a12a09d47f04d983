//! What every law goes through.

use farhaul_control::{Spec, laws};
use farhaul_sim::{Ended, Plan};
use serde::Deserialize;

use super::scale::{Take, score, to_tenths};
use super::{Certificate, Scored};
use crate::chart::Scale;
use crate::experiment::data::{Ground, PlanSpec, Version};
use crate::experiment::metric::Metric;
use crate::experiment::well_formed::Names;
use crate::experiment::{Options, VERSION};
use crate::statistics::mean;
use crate::sweep::{Measured, Progress, run_plans};

/// The battery's file.
const FILE: &str = include_str!("../../certificate.toml");
/// The variable of the plans that is the law.
const LAW: &str = "law";

/// Plans, and what is measured in them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Battery {
    plan: Vec<PlanSpec>,
    item: Vec<Item>,
}

/// A measurement on a scale.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Item {
    name: String,
    /// What is measured, in a line.
    what: String,
    /// The law without which the item is left out.
    needs: Option<String>,
    /// Where it is measured.
    plan: String,
    metric: Metric,
    /// What stands for the points of the plan.
    take: Take,
    /// The measurement counts as a multiple of this.
    divide: Option<f64>,
    unit: String,
    /// What is worth 100 points.
    best: f64,
    /// What is worth none.
    worst: f64,
    #[serde(default)]
    scale: Scale,
    /// What must be reached: at least this where more is better, else at most.
    gate: Option<f64>,
}

impl Battery {
    /// The one of all certificates.
    ///
    /// # Panics
    /// Never: a test reads it.
    pub fn standard() -> Battery {
        Battery::parse(FILE).expect("a test reads it")
    }

    /// What tells another battery from this one.
    pub fn hash() -> String {
        blake3::hash(FILE.as_bytes()).to_hex().to_string()
    }

    fn parse(text: &str) -> Result<Battery, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }

    /// Puts a law through it. None if it was stopped. `watch` is told how far it has come.
    ///
    /// The result is a function of the law and the version alone.
    ///
    /// # Errors
    /// What is wrong with a plan, which a test tells beforehand; or that the law panicked.
    pub fn run(
        &self,
        law: &Spec,
        options: &Options<'_>,
        watch: &(dyn Fn(Progress) + Sync),
    ) -> Result<Option<Certificate>, String> {
        let Options { quick, jobs, stop } = *options;
        let version = if quick { Version::Reduced } else { Version::Full };
        let law_text = law.to_string();
        let due: Vec<&PlanSpec> = self.due_plans().collect();
        let read = |spec: &&PlanSpec| self.read(spec, version, &law_text);
        let plans = due.iter().map(read).collect::<Result<Vec<Plan>, String>>()?;
        let Some(runs) = run_plans(&plans, jobs, watch, stop) else { return Ok(None) };
        let mut flows = runs.iter().flatten().flat_map(|run| &run.report.flows);
        if flows.any(|flow| flow.ended == Some(Ended::LawFailed)) {
            return Err("the law panicked; a law that fails gets no certificate".into());
        }
        let items: Vec<Scored> = self
            .due_items()
            .map(|item| {
                let place = due.iter().position(|plan| plan.name == item.plan);
                item.judge(place.map_or(&[], |place| runs[place].as_slice()))
            })
            .collect();
        let scores: Vec<f64> = items.iter().map(|item| item.score).collect();
        let scored = !quick && items.iter().all(Scored::holds);
        let info = law.info();
        Ok(Some(Certificate {
            command: format!(
                "farhaul lab certify --cc {law_text}{}",
                if quick { " --quick" } else { "" }
            ),
            law: law_text,
            version: VERSION.into(),
            battery: Battery::hash(),
            summary: info.summary.to_owned(),
            source: info.source.to_owned(),
            quick,
            overall: scored.then(|| to_tenths(mean(&scores).unwrap_or(0.0))),
            items,
        }))
    }

    /// The items that can be measured with the laws that there are.
    fn due_items(&self) -> impl Iterator<Item = &Item> {
        let known = |name: &String| laws().into_iter().any(|law| law.name == name);
        self.item.iter().filter(move |item| item.needs.as_ref().is_none_or(known))
    }

    /// The plans that these items are about.
    fn due_plans(&self) -> impl Iterator<Item = &PlanSpec> {
        self.plan.iter().filter(|plan| self.due_items().any(|item| item.plan == plan.name))
    }

    fn read(&self, spec: &PlanSpec, version: Version, law: &str) -> Result<Plan, String> {
        spec.read(&self.plan, version, &[(LAW.to_owned(), law.to_owned())])
    }

    /// Whether the file is well-formed, in both versions: each plan is there, has a law that is not
    /// swept and is used; each item's measurement is of something that is there, and its scale leads
    /// from one number to another.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), String> {
        for (index, spec) in self.plan.iter().enumerate() {
            if self.plan[..index].iter().any(|other| other.name == spec.name) {
                return Err(format!("there are two plans '{}'", spec.name));
            }
            if !self.item.iter().any(|item| item.plan == spec.name) {
                return Err(format!("plan '{}': no item is about it", spec.name));
            }
            if spec.on != Ground::Simulator {
                return Err(format!("plan '{}': only simulations repeat", spec.name));
            }
        }
        for (index, item) in self.item.iter().enumerate() {
            let wrong = |error: &str| format!("item '{}': {error}", item.name);
            if self.item[..index].iter().any(|other| other.name == item.name) {
                return Err(wrong("there are two of them"));
            }
            item.check().map_err(wrong)?;
            if !self.plan.iter().any(|plan| plan.name == item.plan) {
                return Err(wrong(&format!("there is no plan '{}'", item.plan)));
            }
        }
        for spec in self.due_plans() {
            for version in [Version::Full, Version::Reduced] {
                let plan = self.read(spec, version, &Spec::default().to_string())?;
                let names = Names::of(&plan, Ground::Simulator)?;
                for item in self.due_items().filter(|item| item.plan == spec.name) {
                    let wrong = |error: String| format!("item '{}': {error}", item.name);
                    names.check_metric(&item.metric).map_err(wrong)?;
                }
            }
        }
        Ok(())
    }
}

impl Item {
    fn judge(&self, runs: &[Measured]) -> Scored {
        let one = |run: &Measured| Some(self.metric.of(&run.report)? / self.divide.unwrap_or(1.0));
        let measured = self.take.of(&runs.iter().map(one).collect::<Vec<_>>());
        Scored {
            name: self.name.clone(),
            what: self.what.clone(),
            measured,
            unit: self.unit.clone(),
            best: self.best,
            worst: self.worst,
            score: score(measured, (self.best, self.worst), self.scale),
            gate: self.gate,
        }
    }

    fn check(&self) -> Result<(), &'static str> {
        let Item { best, worst, .. } = *self;
        if self.name.trim().is_empty() || self.what.trim().is_empty() {
            Err("it has no name, or does not tell what is measured")
        } else if !best.is_finite() || !worst.is_finite() || best == worst {
            Err("'best' and 'worst' are no scale")
        } else if self.scale == Scale::Log && best.min(worst) <= 0.0 {
            Err("a logarithmic scale has no zero")
        } else if self.divide.is_some_and(|by| !by.is_normal()) {
            Err("'divide' is no number to divide by")
        } else if self.gate.is_some_and(|gate| gate.clamp(best.min(worst), best.max(worst)) != gate)
        {
            Err("'gate' is not on its scale")
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn the_battery_is_well_formed() {
        let battery = Battery::parse(FILE).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(battery.check(), Ok(()));
    }

    const SMALL: &str = r#"
[[plan]]
name = "one"
quick = { time = "1s" }
scenario = '''
duration = "$time"
[set]
law = "udt"
time = "2s"
[sweep]
rtt = ["10ms", "20ms"]
[[link]]
name = "l"
from = "a"
to = "b"
rate = "5M"
delay = "$rtt / 2"
[[flow]]
name = "f"
from = "a"
to = "b"
cc = "$law"
'''

[[item]]
name = "share"
what = "the share"
plan = "one"
metric = "utilisation:l"
take = "mean"
divide = 0.01
unit = "%"
best = 100
worst = 0

[[item]]
name = "late"
what = "when it has twice the link"
plan = "one"
metric = "reach:2:0"
take = "max"
unit = "s"
best = 1
worst = 10
scale = "log"

[[item]]
name = "beside"
what = "a law that is not there"
needs = "law-of-nobody"
plan = "two"
metric = "flow:f"
take = "min"
unit = ""
best = 1
worst = 0

[[plan]]
name = "two"
like = "one"
set = { law = "law-of-nobody" }
"#;

    #[test]
    fn a_law_goes_through_it() {
        let battery = Battery::parse(SMALL).expect("a battery");
        let stop = AtomicBool::new(false);
        let run = |quick: bool, jobs: usize| {
            let options = Options { quick, jobs, stop: &stop };
            let law = "udt:window=8".parse().expect("a law");
            battery.run(&law, &options, &|_| {}).expect("plans").expect("nobody stops it")
        };
        let certificate = run(false, 1);
        assert_eq!(certificate.law, "udt:window=8");
        assert_eq!(certificate.command, "farhaul lab certify --cc udt:window=8");
        // What needs another law is left out; what never came is worth nothing.
        let [share, late] = certificate.items.as_slice() else { panic!("{certificate:?}") };
        assert!(share.measured.is_some_and(|share| (50.0..=100.0).contains(&share)), "{share:?}");
        assert_eq!(share.score, to_tenths(share.measured.unwrap_or(0.0)));
        assert_eq!((late.measured, late.score, late.shown()), (None, 0.0, "never".to_owned()));
        assert_eq!(certificate.overall, Some(to_tenths(share.score / 2.0)));
        // The same, whoever runs it; the reduced version is another.
        assert_eq!(run(false, 3).json(), certificate.json());
        let quick = run(true, 1);
        assert!(quick.quick && quick.command.ends_with(" --quick"));
        assert_ne!(quick.items, certificate.items);
        assert_eq!(quick.overall, None);
    }

    #[test]
    fn a_law_that_misses_a_gate_has_no_score() {
        let gated = |gate: &str| {
            let text = SMALL.replacen("worst = 0\n", &format!("worst = 0\ngate = {gate}\n"), 1);
            let stop = AtomicBool::new(false);
            let options = Options { quick: false, jobs: 1, stop: &stop };
            let battery = Battery::parse(&text).expect("a battery");
            battery.run(&Spec::default(), &options, &|_| {}).expect("plans").expect("a certificate")
        };
        assert!(gated("1").overall.is_some());
        let missed = gated("100");
        assert_eq!((missed.overall, missed.why_none().as_str()), (None, "missed: share"));
    }

    #[test]
    fn it_can_be_stopped() {
        let stop = AtomicBool::new(true);
        let options = Options { quick: true, jobs: 1, stop: &stop };
        let battery = Battery::parse(SMALL).expect("a battery");
        assert_eq!(battery.run(&Spec::default(), &options, &|_| {}), Ok(None));
    }

    #[test]
    fn what_is_wrong_with_a_battery_is_told() {
        assert_eq!(Battery::parse(SMALL).and_then(|battery| battery.check()), Ok(()));
        let cases = [
            ("metric = \"utilisation:l\"", "metric = \"utilisation:x\"", "there is no link 'x'"),
            ("metric = \"utilisation:l\"", "metric = \"goodness\"", "no measurement 'goodness'"),
            ("take = \"mean\"", "take = \"median\"", "unknown variant `median`"),
            ("divide = 0.01", "divide = 0", "item 'share': 'divide' is no number"),
            ("best = 100\nworst = 0", "best = 1\nworst = 1", "item 'share': 'best' and 'worst'"),
            ("worst = 10\n", "worst = 0\n", "item 'late': a logarithmic scale has no zero"),
            ("worst = 0\n", "worst = 0\ngate = 101\n", "item 'share': 'gate' is not on its scale"),
            ("what = \"the share\"", "what = \"\"", "item 'share': it has no name"),
            ("name = \"late\"", "name = \"share\"", "item 'share': there are two of them"),
            ("plan = \"one\"\nmetric = \"reach", "plan = \"1\"\nmetric = \"reach", "no plan '1'"),
            ("name = \"two\"\nlike", "name = \"one\"\nlike", "there are two plans 'one'"),
            ("plan = \"two\"", "plan = \"one\"", "plan 'two': no item is about it"),
            ("name = \"one\"\n", "name = \"one\"\non = \"relay\"\n", "only simulations repeat"),
            ("law = \"udt\"\n", "rate = \"1M\"\n", "has no variable 'law'"),
            ("quick = { time", "quick = { times", "has no variable 'times'"),
        ];
        for (old, new, message) in cases {
            assert!(SMALL.contains(old), "{old}");
            let read = Battery::parse(&SMALL.replacen(old, new, 1));
            let error = read.and_then(|battery| battery.check()).expect_err(new);
            assert!(error.contains(message), "{new}: {error}");
        }
    }
}
