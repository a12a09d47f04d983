//! What a race has shown.

use std::time::Duration;

use super::{Cell, Figures, Race, System};
use crate::chart::{Axis, Figure, Grid};
use crate::experiment::VERSION;
use crate::number::{fixed, significant};
use crate::report::{Check, Outcome, Verdict};
use crate::statistics::median;
use crate::table::{self, Column, Table};

/// A cell is lost by more than this share of the reference's goodput.
const LOST_BY: f64 = 0.03;
/// A system within this share of the best is one of the best: two runs of one system are further apart.
const LEVEL: f64 = 0.01;
/// The share of the cells in which the subject is to be one of the best.
const BEST_IN: f64 = 0.8;
/// The TCP that the targets name.
const REFERENCE: &str = "tcp:bbr";
/// Share of the line that a flow is to have at losses up to so many percent.
const SHARES: [(f64, f64); 3] = [(0.1, 0.92), (1.0, 0.85), (3.0, 0.6)];
/// Of a full packet, what is payload on the wire.
const PAYLOAD: f64 = 1_456.0 / 1_500.0;
/// The subject's queue is to be at most this share of the reference's.
const QUEUE_SHARE: f64 = 0.25;
/// Queues shorter than this are the measurement's own, milliseconds.
const LEAST_QUEUE_MS: f64 = 0.5;
/// Cells that a check names.
const NAMED: usize = 12;

/// A quantity of the tables.
struct Quantity {
    title: &'static str,
    unit: &'static str,
    of: fn(&Figures) -> Option<f64>,
}

const QUANTITIES: [Quantity; 6] = [
    Quantity { title: "Goodput", unit: "Mb/s", of: |f| Some(f.goodput_bps / 1e6) },
    Quantity { title: "Time to 90% of the steady rate", unit: "s", of: |f| f.to_90_s },
    Quantity {
        title: "Packets that the payload does not need",
        unit: "%",
        of: |f| Some(f.again * 1e2),
    },
    Quantity { title: "Mean time in the queue", unit: "ms", of: |f| Some(f.queue_ms) },
    Quantity { title: "Processor time of both ends", unit: "s/GB", of: |f| f.cpu_s_per_gb },
    Quantity {
        title: "Most memory of an end",
        unit: "MB",
        of: |f| f.memory_bytes.map(|bytes| bytes / 1e6),
    },
];

impl Race {
    /// Medians, checks, pictures and tables of what has been run so far. `quick`: it was the reduced
    /// race; `took`: how long it took.
    pub fn outcome(&self, quick: bool, took: Duration) -> Outcome {
        let mut charts = Vec::new();
        charts.extend(self.map_of_wins());
        charts.push(self.map_of_shares());
        Outcome {
            id: "race".into(),
            source: "measured here".into(),
            title: format!("The race: bulk flows over {} paths, {}", self.cells.len(), self.ground),
            shows: self.shows(),
            charts,
            tables: QUANTITIES.iter().filter_map(|quantity| self.table(quantity)).collect(),
            checks: self.checks(),
            notes: self.notes(),
            quick,
            version: VERSION.into(),
            experiment: String::new(),
            command: self.command.clone(),
            seconds: took.as_secs_f64(),
        }
    }

    fn shows(&self) -> String {
        let names: Vec<String> = self.systems.iter().map(System::to_string).collect();
        format!(
            "One flow from memory to memory at a time, {} of each system on each path, in turns; medians. \
             The systems are {}: a law's name alone is farhaul's transport with that law, tcp: the \
             kernel's TCP or, in the simulator, its TCP.",
            match self.rounds {
                1 => "one run".into(),
                rounds => format!("{rounds} runs"),
            },
            names.join(", "),
        )
    }

    /// The median of a quantity; none if no run has shown it.
    fn median(&self, cell: &Cell, system: &System, of: fn(&Figures) -> Option<f64>) -> Option<f64> {
        let (cell, system) = (cell.to_string(), system.to_string());
        let same = |record: &&super::Record| record.cell == cell && record.system == system;
        let figures = self.records.iter().filter(same).filter_map(|r| r.result.as_ref().ok());
        median(&figures.filter_map(of).collect::<Vec<f64>>())
    }

    fn goodput(&self, cell: &Cell, system: &System) -> Option<f64> {
        self.median(cell, system, |figures| Some(figures.goodput_bps))
    }

    /// The subject's goodput over that of the best of the others.
    fn lead(&self, cell: &Cell) -> Option<f64> {
        let (subject, others) = self.systems.split_first()?;
        let best = others.iter().filter_map(|other| self.goodput(cell, other)).reduce(f64::max)?;
        Some(self.goodput(cell, subject)? / best)
    }

    /// The subject beside the best of the others, by round trip and by rate and loss.
    fn map_of_wins(&self) -> Option<Figure> {
        let plain: Vec<&Cell> = self.cells.iter().filter(|cell| cell.is_plain()).collect();
        let subject = self.systems.first().filter(|_| self.systems.len() > 1)?;
        let mut columns: Vec<Duration> = plain.iter().map(|cell| cell.rtt).collect();
        let mut rows: Vec<(u64, u64)> = plain.iter().map(|cell| key(cell)).collect();
        columns.sort();
        columns.dedup();
        rows.sort_by_key(|(rate, loss)| (*rate, u64::MAX - loss));
        rows.dedup();
        let at = |row: &(u64, u64), rtt: &Duration| {
            let cell = plain.iter().find(|cell| cell.rtt == *rtt && key(cell) == *row)?;
            self.lead(cell)
        };
        let label = |row: &(u64, u64)| {
            let rate = plain.iter().find(|cell| key(cell) == *row).map(|cell| cell.rate);
            let rate = rate.map(|rate| rate.to_string()).unwrap_or_default();
            format!("{rate}b/s, {}%", row.1 as f64 / 1e6)
        };
        let milliseconds = |rtt: &Duration| format!("{} ms", rtt.as_secs_f64() * 1e3);
        (!rows.is_empty()).then(|| {
            Figure::Grid(Grid {
                title: format!("{subject} over the best of the others"),
                subtitle: format!("Goodput by round trip, and by rate and loss; {}", self.ground),
                x: Axis {
                    label: "round trip".into(),
                    ..Axis::named(columns.iter().map(milliseconds).collect())
                },
                y: Axis {
                    label: "rate, loss".into(),
                    ..Axis::named(rows.iter().map(label).collect())
                },
                xs: (0..columns.len()).map(|n| n as f64).collect(),
                ys: (0..rows.len()).map(|n| n as f64).collect(),
                cells: rows
                    .iter()
                    .map(|row| columns.iter().map(|rtt| at(row, rtt)).collect())
                    .collect(),
                value: Axis::linear("ratio", "").between(0.5, 1.5),
            })
        })
    }

    /// The share of the line of every system on every path.
    fn map_of_shares(&self) -> Figure {
        let names = self.systems.iter().map(System::to_string).collect();
        let rows: Vec<&Cell> = self.cells.iter().rev().collect();
        let share = |cell: &Cell, system: &System| {
            self.goodput(cell, system).map(|goodput| goodput / cell.line_bps())
        };
        Figure::Grid(Grid {
            title: "Share of the line".into(),
            subtitle: format!(
                "Payload over what the line can carry, start included; {}",
                self.ground
            ),
            x: Axis { label: "system".into(), ..Axis::named(names) },
            y: Axis {
                label: "path".into(),
                ..Axis::named(rows.iter().map(|cell| cell.to_string()).collect())
            },
            xs: (0..self.systems.len()).map(|n| n as f64).collect(),
            ys: (0..rows.len()).map(|n| n as f64).collect(),
            cells: rows
                .iter()
                .map(|cell| self.systems.iter().map(|system| share(cell, system)).collect())
                .collect(),
            value: Axis::linear("share of the line", "").between(0.0, 1.0),
        })
    }

    /// A row a path, a column a system. None where nothing was measured.
    fn table(&self, quantity: &Quantity) -> Option<Table> {
        let mut columns = vec![Column::new("path", "")];
        columns.extend(self.systems.iter().map(|s| Column::new(s.to_string(), quantity.unit)));
        let mut any = false;
        let rows = self
            .cells
            .iter()
            .map(|cell| {
                let values = self.systems.iter().map(|system| {
                    let value = self.median(cell, system, quantity.of);
                    any |= value.is_some();
                    table::Cell::from(value)
                });
                let mut row = vec![table::Cell::Text(cell.to_string())];
                row.extend(values);
                row
            })
            .collect();
        any.then(|| Table { title: quantity.title.into(), columns, rows })
    }

    fn checks(&self) -> Vec<Check> {
        let Some(subject) = self.systems.first() else { return Vec::new() };
        let reference = self.systems.iter().find(|system| system.to_string() == REFERENCE);
        let mut checks = Vec::new();
        if let Some(reference) = reference.filter(|reference| *reference != subject) {
            checks.push(self.never_behind(subject, reference));
            checks.push(self.short_queues(subject, reference));
        }
        if self.systems.len() > 1 {
            checks.push(self.best_of_all(subject));
        }
        checks.push(self.fills_the_line(subject));
        checks.push(self.sends_once(subject));
        checks.extend(self.all_ran());
        checks
    }

    fn never_behind(&self, subject: &System, reference: &System) -> Check {
        let ratio =
            |cell: &Cell| Some(self.goodput(cell, subject)? / self.goodput(cell, reference)?);
        self.check(
            format!("{subject} over {reference}, goodput"),
            format!("at least {} in every cell", 1.0 - LOST_BY),
            |cell| ratio(cell).map(|ratio| (ratio, ratio >= 1.0 - LOST_BY)),
        )
    }

    fn short_queues(&self, subject: &System, reference: &System) -> Check {
        let queue = |cell: &Cell, system| self.median(cell, system, |f| Some(f.queue_ms));
        self.check(
            format!("mean queue of {subject} over that of {reference}"),
            format!("at most {QUEUE_SHARE}, or {LEAST_QUEUE_MS} ms"),
            |cell| {
                let (own, other) = (queue(cell, subject)?, queue(cell, reference)?);
                Some((own / other, own <= (QUEUE_SHARE * other).max(LEAST_QUEUE_MS)))
            },
        )
    }

    fn best_of_all(&self, subject: &System) -> Check {
        let leads: Vec<f64> = self.cells.iter().filter_map(|cell| self.lead(cell)).collect();
        let won = leads.iter().filter(|lead| **lead >= 1.0 - LEVEL).count();
        let share = won as f64 / leads.len().max(1) as f64;
        Check {
            what: format!("cells in which {subject} is the best of all, to 1%"),
            published: "the target".into(),
            measured: format!("{won} of {}", leads.len()),
            tolerance: format!("at least {}%", fixed(BEST_IN * 1e2, 0)),
            verdict: verdict(share >= BEST_IN),
            reason: String::new(),
        }
    }

    /// What a flow is to have of the line, the start included.
    fn fills_the_line(&self, subject: &System) -> Check {
        let wanted = |cell: &Cell| {
            let found = SHARES.iter().find(|(loss, _)| cell.loss <= *loss);
            found.filter(|_| cell.is_plain()).map(|(_, share)| *share)
        };
        self.check(
            format!("share of the line of {subject}, without headers, its start included"),
            "at least 0.92 up to 0.1% of loss, 0.85 up to 1%, 0.6 up to 3%".into(),
            |cell| {
                let share = self.goodput(cell, subject)? / (PAYLOAD * cell.line_bps());
                wanted(cell).map(|least| (share, share >= least))
            },
        )
    }

    fn sends_once(&self, subject: &System) -> Check {
        self.check(
            format!("packets that {subject} sends again where none is lost"),
            "none".into(),
            |cell| {
                let lossless = cell.is_plain() && cell.loss == 0.0;
                let again = self.median(cell, subject, |figures| figures.retransmitted);
                again.filter(|_| lossless).map(|packets| (packets, packets == 0.0))
            },
        )
    }

    /// A check of one value of each cell; those that fail are named, the worst first where `judge`'s value
    /// tells.
    fn check(
        &self,
        what: String,
        tolerance: String,
        judge: impl Fn(&Cell) -> Option<(f64, bool)>,
    ) -> Check {
        let judged: Vec<(&Cell, f64, bool)> = self
            .cells
            .iter()
            .filter_map(|cell| judge(cell).map(|(value, holds)| (cell, value, holds)))
            .collect();
        let failed: Vec<String> = judged
            .iter()
            .filter(|(_, _, holds)| !holds)
            .map(|(cell, value, _)| format!("{} ({cell})", significant(*value, 3)))
            .collect();
        let mut measured =
            format!("holds in {} of {} cells", judged.len() - failed.len(), judged.len());
        if !failed.is_empty() {
            measured += &format!("; {}", failed[..failed.len().min(NAMED)].join("; "));
        }
        if failed.len() > NAMED {
            measured += &format!("; and {} more", failed.len() - NAMED);
        }
        Check {
            what,
            published: "the target".into(),
            measured,
            tolerance,
            verdict: verdict(failed.is_empty() && !judged.is_empty()),
            reason: String::new(),
        }
    }

    /// A failed check if some runs have failed.
    fn all_ran(&self) -> Option<Check> {
        let failed: Vec<String> = self
            .records
            .iter()
            .filter_map(|record| {
                let why = record.result.as_ref().err()?;
                Some(format!("{} over {}: {why}", record.system, record.cell))
            })
            .collect();
        (!failed.is_empty()).then(|| Check {
            what: "all runs".into(),
            published: "the target".into(),
            measured: format!("{} failed: {}", failed.len(), failed.join("; ")),
            tolerance: "none fails".into(),
            verdict: Verdict::Fail,
            reason: String::new(),
        })
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = vec![
            "Goodput counts from the opened connection to the end of the run, 6 s or 60 round trips, so that a slow start costs what it costs. A queue holds ten packets at least.".into(),
        ];
        let late: Vec<String> = self
            .records
            .iter()
            .filter(|record| record.result.as_ref().is_ok_and(|figures| !figures.time_kept))
            .map(|record| format!("{} over {}", record.system, record.cell))
            .collect();
        if !late.is_empty() {
            notes.push(format!(
                "Time was not kept in {} of {} runs: more than one packet in a hundred left over 0.5 ms \
                 late. They count all the same: {}.",
                late.len(),
                self.records.len(),
                late.join("; ")
            ));
        }
        notes
    }
}

/// Rate, and loss in millionths of a percent: what can be put in order.
fn key(cell: &Cell) -> (u64, u64) {
    (cell.rate.bits_per_second(), (cell.loss * 1e6).round() as u64)
}

fn verdict(holds: bool) -> Verdict {
    if holds { Verdict::Pass } else { Verdict::Fail }
}

#[cfg(test)]
mod tests {
    use super::super::Record;
    use super::*;

    fn race(goodputs: &[(&str, f64)]) -> Race {
        let systems: Vec<System> =
            goodputs.iter().map(|(name, _)| name.parse().expect("a system")).collect();
        let mut race = Race::new(systems, vec![Cell::new(100_000_000, 10, 0.0)], 1);
        for (name, goodput_bps) in goodputs {
            let figures = Figures {
                goodput_bps: *goodput_bps,
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
        assert_eq!(verdicts(&race), [Verdict::Pass; 5]);
    }

    #[test]
    fn a_subject_that_is_behind_fails() {
        let race = race(&[("bbr", 87e6), ("tcp:bbr", 91e6)]);
        let expected = [Verdict::Fail, Verdict::Pass, Verdict::Fail, Verdict::Fail, Verdict::Pass];
        assert_eq!(verdicts(&race), expected);
        assert!(race.checks()[0].measured.contains("0.956"), "{:?}", race.checks()[0]);
    }

    #[test]
    fn a_race_of_which_nothing_is_known_passes_nothing() {
        let systems = ["bbr", "tcp:bbr"].map(|name| name.parse().expect("a system")).into();
        let race = Race::new(systems, vec![Cell::new(1_000, 10, 0.0)], 1);
        assert_eq!(verdicts(&race), [Verdict::Fail; 5]);
    }

    #[test]
    fn a_run_that_failed_is_told() {
        let mut race = race(&[("bbr", 95e6)]);
        let cell = race.cells[0].to_string();
        race.note(Record { cell, system: "bbr".into(), round: 1, result: Err("no path".into()) });
        assert_eq!(verdicts(&race).last(), Some(&Verdict::Fail));
        let outcome = race.outcome(true, Duration::from_secs(1));
        assert_eq!((outcome.tables.len(), outcome.charts.len()), (3, 1));
        assert!(outcome.charts[0].svg().contains("Share of the line"));
    }
}
