//! Medians of a race, and whether farhaul's targets are met.

use std::time::Duration;

use super::{Cell, Figures, Race, System};
use crate::experiment::VERSION;
use crate::number::{fixed, significant};
use crate::report::{Check, Outcome, Verdict};
use crate::statistics::median;

/// A cell is lost by more than this share of another's goodput.
pub(super) const LOST_BY: f64 = 0.03;
/// A system within this share of the best is one of the best: two runs of one system are further apart.
pub(super) const LEVEL: f64 = 0.01;
/// The share of the cells in which the subject is to be one of the best.
const BEST_IN: f64 = 0.8;
/// The TCP that the targets name.
const REFERENCE: &str = "tcp:bbr";
/// Share of the line that a flow is to have at losses up to so many percent.
const SHARES: [(f64, f64); 3] = [(0.1, 0.92), (1.0, 0.85), (3.0, 0.6)];
/// And with jitter up to so much, without losses.
const JITTER: Duration = Duration::from_millis(2);
const SHARE_WITH_JITTER: f64 = 0.9;
/// Of a full packet, what is payload on the wire.
pub(super) const PAYLOAD: f64 = 1_456.0 / 1_500.0;
/// The subject's queue is to be at most this share of the reference's.
const QUEUE_SHARE: f64 = 0.25;
/// Queues shorter than this are the measurement's own, milliseconds.
const LEAST_QUEUE_MS: f64 = 0.5;
/// What equal flows are to reach of Jain's index.
const JAIN: f64 = 0.95;
/// What a flow is to have of its fair share beside one CUBIC, on queues of so many bandwidth-delay products, and
/// beside one BBR.
const BESIDE_CUBIC: (f64, f64) = (0.5, 1.5);
const CUBIC_QUEUES: (f64, f64) = (1.0, 4.0);
const BESIDE_BBR: f64 = 0.5;
/// Cells that a check names.
pub(super) const NAMED: usize = 12;

/// What a check finds in a cell.
enum Found {
    /// A value, and whether it is as it should be.
    Judged(f64, bool),
    /// There is something to judge, and no run of it counts.
    Unknown,
    /// The check is not about such cells.
    NotMeant,
}

impl Race {
    /// Medians, checks, pictures and tables of what has been run so far. `quick`: it was the reduced
    /// race; `took`: how long it took.
    pub fn outcome(&self, quick: bool, took: Duration) -> Outcome {
        Outcome {
            id: "race".into(),
            source: "measured here".into(),
            title: format!("The race: bulk flows over {} paths, {}", self.cells.len(), self.ground),
            shows: self.summary(),
            charts: self.pictures(),
            tables: self.tables(),
            checks: self.checks(),
            notes: self.notes(),
            quick,
            version: VERSION.into(),
            experiment: String::new(),
            command: self.command.clone(),
            seconds: took.as_secs_f64(),
        }
    }

    /// The median of a quantity over the runs that kept the time; none if there is no such run that shows it.
    pub(super) fn median(
        &self,
        cell: &Cell,
        system: &System,
        of: impl Fn(&Figures) -> Option<f64>,
    ) -> Option<f64> {
        self.median_of(cell, system, |figures| figures.time_kept.then(|| of(figures)).flatten())
    }

    /// As [`median`](Self::median), of all runs: for what is marked as such only.
    pub(super) fn median_of(
        &self,
        cell: &Cell,
        system: &System,
        of: impl Fn(&Figures) -> Option<f64>,
    ) -> Option<f64> {
        let (cell, system) = (cell.to_string(), system.to_string());
        let same = |record: &&super::Record| record.cell == cell && record.system == system;
        let figures = self.records.iter().filter(same).filter_map(|r| r.result.as_ref().ok());
        median(&figures.filter_map(of).collect::<Vec<f64>>())
    }

    pub(super) fn goodput(&self, cell: &Cell, system: &System) -> Option<f64> {
        self.median(cell, system, |figures| Some(figures.goodput_bps))
    }

    /// The cells with one flow at a time, in which goodputs are compared.
    pub(super) fn single(&self) -> impl Iterator<Item = &Cell> {
        self.cells.iter().filter(|cell| !cell.is_shared())
    }

    /// Who a system is compared with: what is no farhaul, and of the same kind. A command that copies a file has to
    /// start, and a flow from memory to memory has not.
    pub(super) fn rivals<'a>(&'a self, subject: &'a System) -> impl Iterator<Item = &'a System> {
        self.systems.iter().filter(move |system| {
            !system.is_own() && *system != subject && system.is_copy() == subject.is_copy()
        })
    }

    /// The subject's goodput over that of the best of its rivals, and who that is. None if it is unknown, or if a rival
    /// has run and no run of it counts: it may be the best.
    pub(super) fn lead<'a>(
        &'a self,
        cell: &Cell,
        subject: &'a System,
    ) -> Option<(f64, &'a System)> {
        let of = |rival: &'a System| Some((self.goodput(cell, rival)?, rival));
        let ran = |rival: &System| self.median_of(cell, rival, |f| Some(f.goodput_bps)).is_some();
        if self.rivals(subject).any(|rival| ran(rival) && of(rival).is_none()) {
            return None;
        }
        let best = self.rivals(subject).filter_map(of).max_by(|a, b| a.0.total_cmp(&b.0))?;
        Some((self.goodput(cell, subject)? / best.0, best.1))
    }

    /// The first flow of the systems, and the first command that copies files, if it is farhaul's.
    pub(super) fn subjects(&self) -> impl Iterator<Item = &System> {
        let flow = self.systems.iter().find(|system| !system.is_copy());
        let copy = self.systems.iter().find(|system| system.is_copy());
        flow.into_iter().chain(copy.filter(|copy| copy.is_own()))
    }

    /// The system that the targets are measured by, if it takes part and is not the subject.
    pub(super) fn reference(&self, subject: &System) -> Option<&System> {
        let reference = self.systems.iter().find(|system| system.to_string() == REFERENCE);
        reference.filter(|reference| *reference != subject && !subject.is_copy())
    }

    fn checks(&self) -> Vec<Check> {
        let mut checks = Vec::new();
        for subject in self.subjects() {
            if let Some(reference) = self.reference(subject) {
                checks.extend(self.never_behind(subject, reference));
                checks.extend(self.short_queues(subject, reference));
            }
            if self.rivals(subject).next().is_some() && self.single().next().is_some() {
                checks.push(self.best_of_all(subject));
            }
            if !subject.is_copy() {
                let whole = "its start included";
                let later = "in the second half of a run";
                checks.extend(self.fills_the_line(subject, whole, |f| Some(f.goodput_bps)));
                checks.extend(self.fills_the_line(subject, later, |f| f.steady_bps));
                checks.extend(self.sends_once(subject));
                checks.extend(self.shares(subject));
            }
        }
        checks.extend(self.all_ran());
        checks
    }

    fn never_behind(&self, subject: &System, reference: &System) -> Option<Check> {
        let ratio =
            |cell: &Cell| Some(self.goodput(cell, subject)? / self.goodput(cell, reference)?);
        self.check(
            format!("{subject} over {reference}, goodput"),
            format!("at least {} in every cell", 1.0 - LOST_BY),
            |cell| match ratio(cell) {
                _ if cell.is_shared() => Found::NotMeant,
                Some(ratio) => Found::Judged(ratio, ratio >= 1.0 - LOST_BY),
                None => Found::Unknown,
            },
        )
    }

    fn short_queues(&self, subject: &System, reference: &System) -> Option<Check> {
        let queue = |cell: &Cell, system| self.median(cell, system, |f| Some(f.queue_ms));
        self.check(
            format!("mean queue of {subject} over that of {reference}"),
            format!("at most {QUEUE_SHARE}, or {LEAST_QUEUE_MS} ms"),
            |cell| match (queue(cell, subject), queue(cell, reference)) {
                _ if cell.is_shared() => Found::NotMeant,
                (Some(own), Some(other)) => {
                    Found::Judged(own / other, own <= (QUEUE_SHARE * other).max(LEAST_QUEUE_MS))
                }
                _ => Found::Unknown,
            },
        )
    }

    fn best_of_all(&self, subject: &System) -> Check {
        let leads: Vec<f64> =
            self.single().filter_map(|cell| self.lead(cell, subject)).map(|lead| lead.0).collect();
        let won = leads.iter().filter(|lead| **lead >= 1.0 - LEVEL).count();
        let share = won as f64 / leads.len().max(1) as f64;
        let what = if subject.is_copy() { "all copies" } else { "all flows" };
        Check {
            what: format!("cells in which {subject} is the best of {what}, to 1%"),
            published: "the target".into(),
            measured: format!("{won} of {}", leads.len()),
            tolerance: format!("at least {}%", fixed(BEST_IN * 1e2, 0)),
            verdict: verdict(share >= BEST_IN),
            reason: String::new(),
        }
    }

    /// What a flow is to have of the line, the start included.
    /// A start that doubles from ten packets takes ten round trips, which no run of a few seconds makes good on long
    /// paths: so both are told, with the start and without.
    fn fills_the_line(
        &self,
        subject: &System,
        when: &str,
        rate: fn(&Figures) -> Option<f64>,
    ) -> Option<Check> {
        let wanted = |cell: &Cell| {
            let smooth = Cell { jitter: Duration::ZERO, ..cell.clone() };
            if cell.is_plain() {
                let found = SHARES.iter().find(|(loss, _)| cell.loss <= *loss);
                return found.map(|(_, share)| *share);
            }
            let quiet = smooth.is_plain() && cell.loss == 0.0 && cell.jitter <= JITTER;
            quiet.then_some(SHARE_WITH_JITTER)
        };
        self.check(
            format!("share of the line of {subject}, without headers, {when}"),
            "at least 0.92 up to 0.1% of loss, 0.85 up to 1%, 0.6 up to 3%, 0.9 with jitter up to 2 ms".into(),
            |cell| match (wanted(cell), self.median(cell, subject, rate)) {
                (None, _) => Found::NotMeant,
                (Some(least), Some(rate)) => {
                    let share = rate / (PAYLOAD * cell.line_bps());
                    Found::Judged(share, share >= least)
                }
                _ => Found::Unknown,
            },
        )
    }

    fn sends_once(&self, subject: &System) -> Option<Check> {
        self.check(
            format!("packets that {subject} sends again where none is lost"),
            "none".into(),
            |cell| {
                let lossless = cell.is_plain() && cell.loss == 0.0;
                match self.median(cell, subject, |figures| figures.retransmitted) {
                    _ if !lossless => Found::NotMeant,
                    Some(packets) => Found::Judged(packets, packets == 0.0),
                    None => Found::Unknown,
                }
            },
        )
    }

    /// How the subject shares a path with itself, with CUBIC and with BBR, as far as there are such paths.
    fn shares(&self, subject: &System) -> Vec<Check> {
        let share = |cell: &Cell| self.median(cell, subject, |f| Some(f.sharing?.share));
        let jain = |cell: &Cell| self.median(cell, subject, |f| Some(f.sharing?.jain));
        let beside = |cell: &Cell, name: &str| {
            cell.flows == 1 && cell.against.as_ref().is_some_and(|other| other.to_string() == name)
        };
        let in_range = |(low, high): (f64, f64), value: f64| (low..=high).contains(&value);
        let found = |meant: bool, value: Option<f64>, holds: &dyn Fn(f64) -> bool| match value {
            _ if !meant => Found::NotMeant,
            Some(value) => Found::Judged(value, holds(value)),
            None => Found::Unknown,
        };
        let equal = |cell: &Cell| cell.flows > 1 && cell.against.is_none();
        let cubic = |cell: &Cell| beside(cell, "tcp:cubic") && in_range(CUBIC_QUEUES, cell.queue);
        let bbr = |cell: &Cell| beside(cell, REFERENCE);
        let (low, high) = BESIDE_CUBIC;
        let checks = [
            self.check(
                format!("Jain's index of equal flows of {subject}, after 10 s"),
                format!("at least {JAIN}"),
                |cell| found(equal(cell), jain(cell), &|jain| jain >= JAIN),
            ),
            self.check(
                format!("fair share of {subject} beside one tcp:cubic, after 10 s"),
                format!("from {low} to {high}"),
                |cell| found(cubic(cell), share(cell), &|share| in_range(BESIDE_CUBIC, share)),
            ),
            self.check(
                format!("fair share of {subject} beside one {REFERENCE}, after 10 s"),
                format!("at least {BESIDE_BBR}"),
                |cell| found(bbr(cell), share(cell), &|share| share >= BESIDE_BBR),
            ),
        ];
        checks.into_iter().flatten().collect()
    }

    /// A check of one value of each cell; those that fail are named, and so are those of which nothing is known. None
    /// if it is about none of the cells.
    fn check(
        &self,
        what: String,
        tolerance: String,
        judge: impl Fn(&Cell) -> Found,
    ) -> Option<Check> {
        let (mut held, mut failed, mut unknown) = (0, Vec::new(), Vec::new());
        for cell in &self.cells {
            match judge(cell) {
                Found::Judged(_, true) => held += 1,
                Found::Judged(value, false) => {
                    failed.push(format!("{} ({cell})", significant(value, 4)));
                }
                Found::Unknown => unknown.push(cell.to_string()),
                Found::NotMeant => {}
            }
        }
        if held == 0 && failed.is_empty() && unknown.is_empty() {
            return None;
        }
        let mut measured = format!("holds in {held} of {} cells", held + failed.len());
        if !failed.is_empty() {
            measured += &format!("; not in {}", listed(&failed, "; ", NAMED));
        }
        if !unknown.is_empty() {
            measured += &format!("; no run counts in {}", listed(&unknown, "; ", NAMED));
        }
        Some(Check {
            what,
            published: "the target".into(),
            measured,
            tolerance,
            verdict: verdict(failed.is_empty() && held > 0),
            reason: String::new(),
        })
    }

    /// A failed check if some runs of farhaul or the kernel's TCP have failed. Those of other programs are noted.
    fn all_ran(&self) -> Option<Check> {
        let failed = self.failed(false);
        (!failed.is_empty()).then(|| Check {
            what: "all runs".into(),
            published: "the target".into(),
            measured: format!("{} failed: {}", failed.len(), listed(&failed, "; ", NAMED)),
            tolerance: "none fails".into(),
            verdict: Verdict::Fail,
            reason: String::new(),
        })
    }
}

/// The first of them, and how many more there are.
pub(super) fn listed(names: &[String], between: &str, most: usize) -> String {
    let shown = names[..names.len().min(most)].join(between);
    match names.len().saturating_sub(most) {
        0 => shown,
        more => format!("{shown}{between}and {more} more"),
    }
}

fn verdict(holds: bool) -> Verdict {
    if holds { Verdict::Pass } else { Verdict::Fail }
}

#[cfg(test)]
mod tests {
    use super::super::{Record, Sharing};
    use super::*;

    fn race(goodputs: &[(&str, f64)]) -> Race {
        let systems: Vec<System> =
            goodputs.iter().map(|(name, _)| name.parse().expect("a system")).collect();
        let mut race = Race::new(systems, vec![Cell::new(100_000_000, 10, 0.0)], 1);
        for (name, goodput_bps) in goodputs {
            let figures = Figures {
                goodput_bps: *goodput_bps,
                steady_bps: Some(*goodput_bps),
                retransmitted: Some(0.0),
                time_kept: true,
                ..Figures::default()
            };
            let cell = race.cells[0].to_string();
            race.note(Record { cell, system: (*name).into(), round: 0, result: Ok(figures) });
        }
        race
    }

    fn verdicts(race: &Race) -> Vec<Verdict> {
        race.checks().iter().map(|check| check.verdict).collect()
    }

    #[test]
    fn a_subject_that_leads_passes() {
        let race = race(&[("bbr", 92e6), ("tcp:bbr", 91e6), ("tcp:cubic", 90e6)]);
        assert_eq!(verdicts(&race), [Verdict::Pass; 6]);
    }

    #[test]
    fn a_subject_that_is_behind_fails() {
        let race = race(&[("bbr", 87e6), ("tcp:bbr", 91e6)]);
        let (pass, fail) = (Verdict::Pass, Verdict::Fail);
        let expected = [fail, pass, fail, fail, fail, pass];
        assert_eq!(verdicts(&race), expected);
        assert!(race.checks()[0].measured.contains("0.956"), "{:?}", race.checks()[0]);
    }

    #[test]
    fn a_race_of_which_nothing_is_known_passes_nothing() {
        let systems = ["bbr", "tcp:bbr"].map(|name| name.parse().expect("a system")).into();
        let race = Race::new(systems, vec![Cell::new(1_000, 10, 0.0)], 1);
        assert_eq!(verdicts(&race), [Verdict::Fail; 6]);
    }

    #[test]
    fn a_run_that_failed_is_told() {
        let mut race = race(&[("bbr", 95e6)]);
        let cell = race.cells[0].to_string();
        race.note(Record { cell, system: "bbr".into(), round: 1, result: Err("no path".into()) });
        assert_eq!(verdicts(&race).last(), Some(&Verdict::Fail));
        let outcome = race.outcome(true, Duration::from_secs(1));
        assert!(outcome.tables[0].rows.len() == 1 && !outcome.charts.is_empty());
    }

    #[test]
    fn runs_whose_time_was_not_kept_do_not_count() {
        let mut race = race(&[("bbr", 80e6), ("tcp:bbr", 91e6)]);
        let late = Figures { goodput_bps: 95e6, ..Figures::default() };
        let cell = race.cells[0].to_string();
        for round in 1..4 {
            race.note(Record { cell: cell.clone(), system: "bbr".into(), round, result: Ok(late) });
        }
        let [subject, reference] = &race.systems[..] else { panic!("two systems") };
        assert_eq!(race.goodput(&race.cells[0], subject), Some(80e6));
        assert_eq!(race.lead(&race.cells[0], subject).map(|lead| lead.1), Some(reference));
        // If there is no other run of it, the cell is not judged, and told.
        race.records.retain(|record| record.system != "bbr" || record.round > 0);
        let check = &race.checks()[0];
        assert_eq!(check.verdict, Verdict::Fail);
        assert!(check.measured.contains(&format!("no run counts in {cell}")), "{check:?}");
    }

    #[test]
    fn copies_are_compared_with_copies() {
        let race = race(&[("bbr", 92e6), ("tcp:bbr", 91e6), ("cp", 80e6), ("scp", 60e6)]);
        let names = |subject: &System| -> Vec<String> {
            race.rivals(subject).map(System::to_string).collect()
        };
        let subjects: Vec<&System> = race.subjects().collect();
        assert_eq!(subjects.iter().map(|s| s.to_string()).collect::<Vec<_>>(), ["bbr", "cp"]);
        assert_eq!(
            (names(subjects[0]), names(subjects[1])),
            (vec!["tcp:bbr".into()], vec!["scp".into()])
        );
    }

    #[test]
    fn flows_that_share_a_path_are_judged_by_their_shares() {
        let race = |keys: &str, sharing| {
            let cell: Cell = format!("rate=10M,rtt=10ms,{keys}").parse().expect("a path");
            let mut race = Race::new(vec!["bbr".parse().expect("a law")], vec![cell], 1);
            let figures = Figures { sharing: Some(sharing), time_kept: true, ..Figures::default() };
            let cell = race.cells[0].to_string();
            race.note(Record { cell, system: "bbr".into(), round: 0, result: Ok(figures) });
            race.shares(&race.systems[0]).iter().map(|check| check.verdict).collect::<Vec<_>>()
        };
        let with = |share, jain| Sharing { share, jain };
        assert_eq!(race("flows=2", with(0.9, 0.96)), [Verdict::Pass]);
        assert_eq!(race("flows=2", with(0.9, 0.94)), [Verdict::Fail]);
        assert_eq!(race("against=tcp:cubic", with(1.4, 0.8)), [Verdict::Pass]);
        assert_eq!(race("against=tcp:cubic", with(1.6, 0.8)), [Verdict::Fail]);
        assert_eq!(race("queue=5,against=tcp:cubic", with(1.6, 0.8)), []);
        assert_eq!(race("against=tcp:bbr", with(0.6, 0.8)), [Verdict::Pass]);
        assert_eq!(race("against=tcp:bbr", with(0.4, 0.8)), [Verdict::Fail]);
    }
}
