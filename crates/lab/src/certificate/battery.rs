//! What every law goes through.

use farhaul_control::{Spec, laws};
use farhaul_sim::{Ended, Plan};
use serde::Deserialize;

use super::draw::Drawn;
use super::family::{Family, Other, Pairs};
use super::gate::Gate;
use super::scale::{self, Take, score};
use super::{Certificate, Means, Part, Scored};
use crate::chart::Scale;
use crate::experiment::data::{Ground, PlanSpec, Version};
use crate::experiment::metric::Metric;
use crate::experiment::well_formed::Names;
use crate::experiment::{Options, VERSION};
use crate::sweep::{Measured, Progress, run_plans};

/// The battery's file.
const FILE: &str = include_str!("../../certificate.toml");
/// The variable of the plans that is the law.
pub(super) const LAW: &str = "law";

/// Gates, families of scenarios and pairs, which are drawn; plans, and what is measured in them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Battery {
    gate: Vec<Gate>,
    plan: Vec<PlanSpec>,
    item: Vec<Item>,
    family: Vec<Family>,
    pairs: Pairs,
}

/// A measurement on a scale.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Item {
    name: String,
    /// Of RFC 9743, if it asks for it.
    #[serde(default)]
    section: String,
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
}

/// What was run for a law, in the order of the runs.
struct Due<'a> {
    gates: Vec<(&'a Gate, Vec<Drawn>)>,
    plans: Vec<&'a PlanSpec>,
    families: Vec<(&'a Family, Vec<Drawn>)>,
    others: Vec<Other>,
    /// The same for all pairs.
    paired: Vec<Drawn>,
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

    /// Puts a law through it, on what is drawn from `seed`. None if it was stopped. `watch` is told how far it
    /// has come.
    ///
    /// The result is a function of the law, the seed, the laws that there are and the version alone.
    ///
    /// # Errors
    /// What is wrong with a plan, which a test tells beforehand; or that the law panicked.
    pub fn run(
        &self,
        law: &Spec,
        seed: u64,
        options: &Options<'_>,
        watch: &(dyn Fn(Progress) + Sync),
    ) -> Result<Option<Certificate>, String> {
        let Options { quick, jobs, stop } = *options;
        let version = if quick { Version::Reduced } else { Version::Full };
        let law_text = law.to_string();
        let due = Due {
            gates: self.gate.iter().map(|one| (one, one.drawn(seed, quick))).collect(),
            plans: self.due_plans().collect(),
            families: self.family.iter().map(|one| (one, one.drawn(seed, quick))).collect(),
            others: self.pairs.others(law),
            paired: self.pairs.drawn(seed, quick),
        };
        let plans = self.plans(&due, version, &law_text)?;
        let Some(runs) = run_plans(&plans, jobs, watch, stop) else { return Ok(None) };
        let mut flows = runs.iter().flatten().flat_map(|run| &run.report.flows);
        if flows.any(|flow| flow.ended == Some(Ended::LawFailed)) {
            return Err("the law panicked; a law that fails gets no certificate".into());
        }
        let items = self.judge(&due, &runs);
        let info = law.info();
        Ok(Some(Certificate {
            command: format!(
                "farhaul lab certify --cc {law_text} --seed {seed}{}",
                if quick { " --quick" } else { "" }
            ),
            law: law_text,
            version: VERSION.into(),
            battery: Battery::hash(),
            summary: info.summary.to_owned(),
            source: info.source.to_owned(),
            quick,
            seed,
            means: Means::of(&items, quick),
            items,
            baselines: Vec::new(),
        }))
    }

    /// What is to be run: the gates, the plans, the drawn families, and the pairs.
    fn plans(&self, due: &Due<'_>, version: Version, law: &str) -> Result<Vec<Plan>, String> {
        let mut plans = Vec::new();
        for (gate, drawn) in &due.gates {
            plans.extend(gate.read(drawn, law)?);
        }
        let fixed = due.plans.iter().map(|spec| self.read(spec, version, law));
        let drawn = due.families.iter();
        let drawn = drawn.flat_map(|(family, drawn)| drawn.iter().map(|one| family.read(one, law)));
        let pair = |other| due.paired.iter().map(move |drawn| self.pairs.read(drawn, law, other));
        for plan in fixed.chain(drawn).chain(due.others.iter().flat_map(pair)) {
            plans.push(plan?);
        }
        Ok(plans)
    }

    /// `runs`: of what [`Battery::plans`] has given.
    fn judge(&self, due: &Due<'_>, runs: &[Vec<Measured>]) -> Vec<Scored> {
        let gate_runs = due.gates.iter().map(|(gate, drawn)| gate.runs(drawn.len())).sum();
        let (gates, rest) = runs.split_at(gate_runs);
        let (fixed, drawn) = rest.split_at(due.plans.len());
        let of_plan = |name: &str| {
            let place = due.plans.iter().position(|plan| plan.name == name);
            place.map_or(&[][..], |place| fixed[place].as_slice())
        };
        let (mut items, mut gates) = (Vec::new(), gates.iter().flatten());
        for (gate, scenarios) in &due.gates {
            let runs: Vec<_> = gates.by_ref().take(gate.runs(scenarios.len())).collect();
            items.push(gate.judge(scenarios, &runs));
        }
        items.extend(self.due_items().map(|item| item.judge(&of_plan)));
        let mut drawn = drawn.iter().flatten();
        for (family, scenarios) in &due.families {
            let runs: Vec<&Measured> = drawn.by_ref().take(scenarios.len()).collect();
            items.push(family.judge(scenarios, &runs));
        }
        for other in &due.others {
            let runs: Vec<&Measured> = drawn.by_ref().take(due.paired.len()).collect();
            items.push(self.pairs.judge(other, &due.paired, &runs));
        }
        items
    }

    /// The items that can be measured with the laws that there are.
    fn due_items(&self) -> impl Iterator<Item = &Item> {
        let known = |name: &String| laws().into_iter().any(|law| law.name == name);
        self.item.iter().filter(move |item| item.needs.as_ref().is_none_or(known))
    }

    /// The plans that these items are about.
    fn due_plans(&self) -> impl Iterator<Item = &PlanSpec> {
        self.plan.iter().filter(|plan| self.due_items().any(|item| item.is_about(plan)))
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
            if !self.item.iter().any(|item| item.is_about(spec)) {
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
                for item in self.due_items().filter(|item| item.is_about(spec)) {
                    let wrong = |error: String| format!("item '{}': {error}", item.name);
                    names.check_metric(&item.metric).map_err(wrong)?;
                }
            }
        }
        for (index, gate) in self.gate.iter().enumerate() {
            if self.gate[..index].iter().any(|other| other.name == gate.name) {
                return Err(format!("gate '{}': there are two of them", gate.name));
            }
            gate.check()?;
        }
        for (index, family) in self.family.iter().enumerate() {
            if self.family[..index].iter().any(|other| other.name == family.name) {
                return Err(format!("family '{}': there are two of them", family.name));
            }
            family.check()?;
        }
        self.pairs.check()
    }
}

impl Item {
    /// Whether it is measured in that plan.
    fn is_about(&self, plan: &PlanSpec) -> bool {
        self.plan == plan.name
    }

    fn judge<'a>(&self, runs: &dyn Fn(&str) -> &'a [Measured]) -> Scored {
        let one = |run: &Measured| Some(self.metric.of(&run.report)? / self.divide.unwrap_or(1.0));
        let measured = self.take.of(&runs(&self.plan).iter().map(one).collect::<Vec<_>>());
        Scored {
            part: Part::Reference,
            section: self.section.clone(),
            scenarios: Vec::new(),
            name: self.name.clone(),
            what: self.what.clone(),
            measured,
            unit: self.unit.clone(),
            best: self.best,
            worst: self.worst,
            score: score(measured, (self.best, self.worst), self.scale),
            gate: None,
        }
    }

    fn check(&self) -> Result<(), &'static str> {
        let Item { best, worst, .. } = *self;
        if self.name.trim().is_empty() || self.what.trim().is_empty() {
            return Err("it has no name, or does not tell what is measured");
        }
        scale::check((best, worst), self.scale)?;
        if self.divide.is_some_and(|by| !by.is_normal()) {
            Err("'divide' is no number to divide by")
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use farhaul_control::own_laws;

    use super::super::scale::to_tenths;
    use super::*;

    #[test]
    fn the_battery_is_well_formed() {
        let battery = Battery::parse(FILE).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(battery.check(), Ok(()));
    }

    const SMALL: &str = r#"
[[gate]]
name = "beside it"
section = "5.1.1"
what = "what a TCP has"
draws = 2
metric = "share:tcp"
divide = 1.0
best = 1
worst = 0
at_least = 0.1
scenario = '''
duration = "4s"
measure_from = "1s"
[[link]]
name = "l"
from = "a"
to = "b"
rate = "$rate"
delay = "5ms"
[[flow]]
name = "law"
from = "a"
to = "b"
protocol = "$protocol"
cc = "$law"
[[flow]]
name = "tcp"
from = "a"
to = "b"
protocol = "tcp-cubic"
'''
[gate.draw]
rate = { from = 2, to = 6, unit = "M" }

[[gate]]
name = "lost"
section = "5.1.1"
what = "what it loses"
draws = 2
metric = "loss"
divide = 0.01
unit = "%"
best = 0
worst = 60
times_tcp = 5
scenario = '''
duration = "4s"
[[link]]
name = "l"
from = "a"
to = "b"
rate = "3M"
delay = "5ms"
queue = "$queue"
[[flow]]
name = "law"
from = "a"
to = "b"
protocol = "$protocol"
cc = "$law"
count = 4
'''
[gate.draw]
queue = { from = 6, to = 10, unit = "p", whole = true }

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

[[family]]
name = "lossy"
section = "6.4"
what = "the share with losses"
draws = 2
measure = [
    { metric = "utilisation", best = 1, worst = 0 },
    { metric = "queue", best = 1, worst = 40 },
]
scenario = '''
duration = "2s"
[[link]]
name = "l"
from = "a"
to = "b"
rate = "$rate"
delay = "5ms"
loss = "$loss"
[[flow]]
name = "f"
from = "a"
to = "b"
cc = "$law"
'''
[family.draw]
loss = { from = 0, to = 3, unit = "%" }
rate = { from = 2, to = 6, unit = "M" }

[pairs]
section = "5.2.1"
draws = 1
tcp = ["cubic"]
without = ["blast"]
scenario = '''
duration = "4s"
measure_from = "2s"
[[link]]
name = "l"
from = "a"
to = "b"
rate = "$rate"
delay = "5ms"
[[flow]]
name = "own"
from = "a"
to = "b"
cc = "$law"
[[flow]]
name = "other"
from = "a"
to = "b"
protocol = "$protocol"
cc = "$other"
'''
[pairs.draw]
rate = { from = 3, to = 8, unit = "M" }
"#;

    fn certify(text: &str, law: &str, seed: u64, quick: bool, jobs: usize) -> Certificate {
        let stop = AtomicBool::new(false);
        let options = Options { quick, jobs, stop: &stop };
        let battery = Battery::parse(text).expect("a battery");
        let law = law.parse().expect("a law");
        battery.run(&law, seed, &options, &|_| {}).expect("plans").expect("a certificate")
    }

    fn of_part(certificate: &Certificate, part: Part) -> Vec<&Scored> {
        certificate.items.iter().filter(|item| item.part == part).collect()
    }

    #[test]
    fn a_law_goes_through_it() {
        let certificate = certify(SMALL, "udt:window=8", 5, false, 1);
        assert_eq!(certificate.law, "udt:window=8");
        assert_eq!(certificate.command, "farhaul lab certify --cc udt:window=8 --seed 5");
        // What needs another law is left out; what never came is worth nothing.
        let fixed = of_part(&certificate, Part::Reference);
        let [share, late] = fixed.as_slice() else { panic!("{certificate:?}") };
        assert!(share.measured.is_some_and(|share| (50.0..=100.0).contains(&share)), "{share:?}");
        assert_eq!(share.score, to_tenths(share.measured.unwrap_or(0.0)));
        assert_eq!((late.measured, late.score, late.shown()), (None, 0.0, "never".to_owned()));
        assert_eq!(certificate.means.reference, Some(to_tenths(share.score / 2.0)));
        // One of each law but blast, of TCP CUBIC, and of itself.
        let pairs = of_part(&certificate, Part::Pair);
        assert_eq!(pairs.len(), own_laws().len() + 1);
        assert!(pairs.iter().all(|pair| pair.section == "5.2.1" && pair.scenarios.len() == 1));
        // What is fixed does not count.
        let (families, pairs) =
            (certificate.means.families.expect("some"), certificate.means.pairs.expect("some"));
        assert_eq!(certificate.means.overall, Some(to_tenths((families + pairs) / 2.0)));
        // The same, whatever the number of threads; the reduced version is another.
        assert_eq!(certify(SMALL, "udt:window=8", 5, false, 3).json(), certificate.json());
        let quick = certify(SMALL, "udt:window=8", 5, true, 1);
        assert!(quick.quick && quick.command.ends_with(" --seed 5 --quick"));
        assert_ne!(of_part(&quick, Part::Reference), fixed);
        assert_eq!(quick.means.overall, None);
    }

    #[test]
    fn a_scenario_is_worth_the_least_of_its_measurements() {
        // It fills the link, and the queue as well.
        let certificate = certify(SMALL, "blast:rate=20M", 5, false, 2);
        let families = of_part(&certificate, Part::Family);
        let [lossy] = families.as_slice() else { panic!("{certificate:?}") };
        assert_eq!((lossy.section.as_str(), lossy.scenarios.len()), ("6.4", 2));
        for scenario in &lossy.scenarios {
            let queue = scenario.measured["queue"].expect("a queue");
            let share = scenario.measured["utilisation"].expect("a share");
            let points = score(Some(queue), (1.0, 40.0), Scale::Linear);
            assert!(points + 20.0 < 100.0 * share, "{scenario:?}");
            assert_eq!(scenario.score, points);
        }
    }

    #[test]
    fn scenarios_and_scores_follow_from_the_seed() {
        let drawn = |seed: u64| certify(SMALL, "udt", seed, false, 2);
        let values = |certificate: &Certificate| -> Vec<_> {
            let scenarios = certificate.items.iter().flat_map(|item| &item.scenarios);
            scenarios.map(|scenario| (scenario.values.clone(), scenario.seed)).collect()
        };
        let (first, again, other) = (drawn(1), drawn(1), drawn(2));
        assert_eq!(first, again);
        assert!(values(&first).iter().zip(&values(&other)).all(|(one, other)| one != other));
        assert_ne!(first.means.families, other.means.families);
        assert_eq!(of_part(&first, Part::Reference), of_part(&other, Part::Reference));
        // All laws meet the same.
        assert_eq!(values(&certify(SMALL, "reno", 1, false, 2)), values(&first));
    }

    #[test]
    fn what_starves_others_or_is_starved_has_nothing_of_a_pair() {
        let with_cubic = |law: &str| {
            let certificate = certify(SMALL, law, 3, false, 2);
            let pair = certificate.items.iter().find(|item| item.name == "with tcp cubic");
            let Scored { score, scenarios, .. } = pair.expect("a pair").clone();
            let share = |name: &str| scenarios[0].measured[name].expect("a share");
            (score, share("own"), share("other"))
        };
        let (score, own, other) = with_cubic("blast:rate=8M");
        assert!(
            own > 2.0 * other && other < 0.4 && score < 40.0,
            "it starves TCP: {score} {own} {other}"
        );
        let (score, own, other) = with_cubic("blast:rate=100k");
        assert!(own < 0.2 && other > 1.5 && score < 20.0, "it is starved: {score} {own} {other}");
        let (score, own, other) = with_cubic("cubic");
        assert!(score > 40.0, "they share: {score} {own} {other}");
    }

    #[test]
    fn a_law_that_misses_a_gate_has_no_score() {
        let gated = |law: &str, least: &str| {
            let text = SMALL.replacen("at_least = 0.1", &format!("at_least = {least}"), 1);
            certify(&text, law, 1, false, 2)
        };
        let (passes, misses) = (gated("udt", "0"), gated("udt", "1"));
        assert!(passes.means.overall.is_some() && passes.why_none().is_empty());
        assert_eq!((misses.means.overall, &*misses.why_none()), (None, "missed: beside it"));
        assert!(misses.means.families.is_some() && misses.means.pairs.is_some());
        // What takes all that there is leaves nothing, and loses most of it.
        let blast = gated("blast:rate=20M", "0.1");
        assert_eq!(blast.why_none(), "missed: beside it, lost");
    }

    #[test]
    fn gates_are_drawn_and_the_mean_of_their_scenarios_counts() {
        let gate = |seed: u64, law: &str| -> Scored {
            of_part(&certify(SMALL, law, seed, false, 2), Part::Gate)[0].clone()
        };
        let (first, again, other) = (gate(1, "udt"), gate(1, "reno"), gate(2, "udt"));
        let rates = |gate: &Scored| -> Vec<String> {
            gate.scenarios.iter().map(|scenario| scenario.values["rate"].clone()).collect()
        };
        assert_eq!(rates(&first).len(), 2);
        assert_eq!(rates(&first), rates(&again), "all laws meet the same");
        assert!(rates(&first).iter().zip(rates(&other)).all(|(one, other)| *one != other));
        let each = first.scenarios.iter().map(|scenario| scenario.measured["share:tcp"]);
        let each: Vec<f64> = each.collect::<Option<_>>().expect("shares");
        assert_eq!(first.measured, Some((each[0] + each[1]) / 2.0));
    }

    #[test]
    fn a_gate_may_be_what_a_tcp_has_in_the_same_run() {
        let gate = |law: &str, times: f64| {
            let text = SMALL.replacen("times_tcp = 5", &format!("times_tcp = {times}"), 1);
            let item = of_part(&certify(&text, law, 1, false, 2), Part::Gate)[1].clone();
            (item.measured.expect("a loss"), item.gate.expect("a gate"), item.holds())
        };
        let ((lost, limit, _), (_, twice, _)) = (gate("udt", 1.0), gate("udt", 2.0));
        assert!((twice / limit - 2.0).abs() < 1e-9 && limit > 0.5, "{limit} {twice}");
        let share = lost / limit;
        assert!(gate("udt", 1.1 * share).2 && !gate("udt", 0.9 * share).2, "{share}");
        // It is TCP's, whatever the law.
        assert_eq!(gate("blast:rate=20M", 1.0).1, limit);
    }

    #[test]
    fn a_law_of_parameters_is_paired_with_itself_too() {
        let names = |law: &str| -> Vec<String> {
            let certificate = certify(SMALL, law, 1, true, 2);
            of_part(&certificate, Part::Pair).iter().map(|pair| pair.name.clone()).collect()
        };
        let (plain, own) = (names("udt"), names("udt:window=8"));
        assert!(plain.contains(&"with udt".to_owned()) && !plain.contains(&"with itself".into()));
        assert_eq!(own[..plain.len()], plain);
        assert_eq!(own[plain.len()..], ["with itself"]);
        assert!(
            !names("blast:rate=1M").contains(&"with itself".into()),
            "with it nothing can share"
        );
    }

    #[test]
    fn it_can_be_stopped() {
        let stop = AtomicBool::new(true);
        let options = Options { quick: true, jobs: 1, stop: &stop };
        let battery = Battery::parse(SMALL).expect("a battery");
        assert_eq!(battery.run(&Spec::default(), 1, &options, &|_| {}), Ok(None));
    }

    #[test]
    fn what_is_wrong_with_a_battery_is_told() {
        assert_eq!(Battery::parse(SMALL).and_then(|battery| battery.check()), Ok(()));
        let cases = [
            ("metric = \"utilisation:l\"", "metric = \"utilisation:x\"", "there is no link 'x'"),
            ("metric = \"utilisation:l\"", "metric = \"goodness\"", "no measurement 'goodness'"),
            ("take = \"mean\"", "take = \"median\"", "unknown variant `median`"),
            (
                "\"mean\"\ndivide = 0.01",
                "\"mean\"\ndivide = 0",
                "item 'share': 'divide' is no number",
            ),
            (
                "best = 100\nworst = 0\n",
                "best = 1\nworst = 1\n",
                "item 'share': 'best' and 'worst'",
            ),
            ("worst = 10\n", "worst = 0\n", "item 'late': a logarithmic scale has no zero"),
            ("at_least = 0.1", "at_least = 1.1", "gate 'beside it': write 'at_least'"),
            ("at_least = 0.1", "times_tcp = 1", "gate 'beside it': write 'at_least'"),
            ("times_tcp = 5", "times_tcp = 0", "gate 'lost': write 'at_least'"),
            ("times_tcp = 5\n", "", "gate 'lost': write 'at_least'"),
            ("divide = 1.0", "divide = 0", "gate 'beside it': it has no 'draws'"),
            ("share:tcp", "share:tpc", "gate 'beside it': 'share:tpc': there is no flow"),
            ("protocol = \"$protocol\"", "protocol = \"$protocols\"", "gate 'beside it': "),
            ("name = \"lost\"", "name = \"beside it\"", "gate 'beside it': there are two of them"),
            ("what = \"the share\"", "what = \"\"", "item 'share': it has no name"),
            ("name = \"late\"", "name = \"share\"", "item 'share': there are two of them"),
            ("plan = \"one\"\nmetric = \"reach", "plan = \"1\"\nmetric = \"reach", "no plan '1'"),
            ("name = \"two\"\nlike", "name = \"one\"\nlike", "there are two plans 'one'"),
            ("plan = \"two\"", "plan = \"one\"", "plan 'two': no item is about it"),
            ("name = \"one\"\n", "name = \"one\"\non = \"relay\"\n", "only simulations repeat"),
            ("law = \"udt\"\n", "rate = \"1M\"\n", "has no variable 'law'"),
            ("draws = 2\nmeasure", "draws = 0\nmeasure", "family 'lossy': it has no 'measure'"),
            ("section = \"6.4\"", "section = \"\"", "family 'lossy': it has no name or section"),
            ("to = 3, unit", "to = 0, unit", "family 'lossy': variable 'loss': write 'from'"),
            ("metric = \"queue\"", "metric = \"flow:g\"", "family 'lossy': 'flow:g': there is no"),
            ("loss = \"$loss\"", "loss = \"$lost\"", "family 'lossy': "),
            ("name = \"other\"", "name = \"othr\"", "pairs: 'flow:other': there is no flow"),
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
