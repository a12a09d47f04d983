//! Who was ahead and who behind, in words.

use super::judge::{LOST_BY, NAMED, listed};
use super::{Kind, Race, Record, System};
use crate::number::{fixed, significant};
use crate::table::{Cell, Column, Table};

/// Cells that are named where the page begins; the pictures show all.
const NAMED_FIRST: usize = 5;

impl Race {
    /// What the page begins with: wins and losses alike, then what it is all about.
    pub(super) fn summary(&self) -> String {
        let mut sentences: Vec<String> = Vec::new();
        let compared = self.single().next().is_some();
        for subject in self.subjects().filter(|_| compared) {
            if let Some(reference) = self.reference(subject) {
                sentences.push(self.tally(subject, Some(reference)));
            }
            if self.rivals(subject).next().is_some() {
                sentences.push(self.tally(subject, None));
            }
        }
        sentences.extend(self.subjects().filter_map(|subject| self.shares_told(subject)));
        let runs = match self.rounds {
            1 => "one run".into(),
            rounds => format!("{rounds} runs"),
        };
        sentences.push(format!(
            "One bulk flow at a time unless a path says otherwise, {runs} of each system on each path, in \
             turns; medians; {}.",
            self.ground
        ));
        sentences.join(" ")
    }

    /// `X is ahead of Y in 9 of 12 cells, level in 2, behind by more than 3% in 1: 0.9 (…).`
    fn tally(&self, subject: &System, reference: Option<&System>) -> String {
        let (mut ahead, mut cells, mut unknown, mut lost) = (0, 0, 0, Vec::new());
        for cell in self.single() {
            let beside = match reference {
                Some(reference) => self
                    .goodput(cell, subject)
                    .zip(self.goodput(cell, reference))
                    .map(|(own, other)| (own / other, String::new())),
                None => self.lead(cell, subject).map(|lead| (lead.0, format!(" of {}", lead.1))),
            };
            let Some((ratio, of)) = beside else {
                unknown += 1;
                continue;
            };
            cells += 1;
            ahead += usize::from(ratio >= 1.0);
            if ratio < 1.0 - LOST_BY {
                lost.push((ratio, format!("{}{of} ({cell})", significant(rounded_down(ratio), 3))));
            }
        }
        lost.sort_by(|a, b| a.0.total_cmp(&b.0));
        let lost: Vec<String> = lost.into_iter().map(|(_, text)| text).collect();
        let kind = if subject.is_copy() { "copies" } else { "flows" };
        let other = match reference {
            Some(reference) => reference.to_string(),
            None => format!("the best of all other {kind}"),
        };
        let level = cells - ahead - lost.len();
        let percent = fixed(LOST_BY * 1e2, 0);
        let mut text = format!("{subject} is ahead of {other} in {ahead} of {cells} cells");
        if level > 0 {
            text += &format!(", behind by no more than {percent}% in {level}");
        }
        text += &format!(", behind by more than {percent}% in {}", lost.len());
        if !lost.is_empty() {
            text += &format!(": {}", listed(&lost, ", ", NAMED_FIRST));
        }
        if unknown > 0 {
            text += &format!("; in {unknown} more no run of one of them counts");
        }
        text + "."
    }

    /// What the subject gets of each path that flows share. None if there is none, or nothing is known.
    fn shares_told(&self, subject: &System) -> Option<String> {
        let told = |cell: &super::Cell| {
            let sharing = |of: fn(super::Sharing) -> f64| {
                self.median(cell, subject, |figures| figures.sharing.map(of))
            };
            match &cell.against {
                Some(other) => {
                    let share = significant(sharing(|sharing| sharing.share)?, 2);
                    Some(format!("{share} of its fair share beside {other} ({cell})"))
                }
                None => {
                    let jain = significant(sharing(|sharing| sharing.jain)?, 2);
                    Some(format!("Jain's index {jain} ({cell})"))
                }
            }
        };
        let shared = self.cells.iter().filter(|cell| cell.is_shared());
        let told: Vec<String> = shared.filter_map(told).collect();
        (!told.is_empty()).then(|| {
            format!("Where flows share a path, {subject} has: {}.", listed(&told, ", ", NAMED))
        })
    }

    /// What took part.
    pub(super) fn systems_table(&self) -> Table {
        let row = |system: &System| {
            let measured = match system.is_copy() {
                true => "a whole command that copies a file",
                false => "a flow from memory to memory",
            };
            let texts = [system.to_string(), system.program().about.clone(), measured.into()];
            texts.map(Cell::Text).into()
        };
        let columns =
            ["system", "what it is", "what is measured"].map(|name| Column::new(name, ""));
        Table {
            title: "Systems".into(),
            columns: columns.into(),
            rows: self.systems.iter().map(row).collect(),
        }
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = vec![
            "Goodput counts from the opened connection to the end of the run, 6 s or 60 round trips, so that a slow start costs what it costs. A queue holds ten packets at least. \
             The share of the line is payload over all that the line carries, headers included."
                .to_owned(),
        ];
        if self.systems.iter().any(System::is_copy) {
            notes.push(
                "Copies are whole commands as a user runs them: their goodput counts from the start of the command to its end, with ssh's part and what is done at \
                 the end, so they are not compared with flows from memory to memory. The file has what the line carries in a run's time; it lies in memory, and so does the copy."
                    .into(),
            );
        }
        if self.cells.iter().any(super::Cell::is_shared) {
            notes.push(
                "Where flows share a path, they begin together and run 30 s; their shares count after 10 s. The fair share is an equal part of what the line can carry of payload."
                    .into(),
            );
        }
        if let Some(seed) = self.seed {
            notes.push(format!("The paths were drawn at random, from seed {seed}."));
        }
        notes.extend(self.remarks.iter().cloned());
        notes.extend(self.absent.iter().map(|why| format!("Not in the race: {why}.")));
        let failed = self.failed(true);
        if !failed.is_empty() {
            let all = listed(&failed, "; ", NAMED);
            notes.push(format!(
                "{} runs of other programs failed and do not count: {all}.",
                failed.len()
            ));
        }
        notes.extend(self.note_of(
            |figures| !figures.time_kept,
            "Time was not kept in {}: more than one packet in a hundred left over 0.5 ms late, or some were lost \
             because the machine was too slow. These runs do not count; a table shows the median of such runs, \
             marked *, where there is no other",
        ));
        notes.extend(self.note_of(
            |figures| figures.stopped,
            "Stopped before all had arrived, and counted to that moment: {}",
        ));
        notes
    }

    /// Runs that failed, of farhaul and the kernel's TCP or of other programs, each with the reason.
    pub(super) fn failed(&self, of_programs: bool) -> Vec<String> {
        let is_program = |name: &str| {
            let found = self.systems.iter().find(|system| system.to_string() == name);
            found.is_some_and(|system| *system.kind() == Kind::Program && !system.is_own())
        };
        let failed = self.records.iter().filter(|one| is_program(&one.system) == of_programs);
        let told = failed.filter_map(|record| {
            let why = record.result.as_ref().err()?;
            Some(format!("{} over {}: {why}", record.system, record.cell))
        });
        let mut told: Vec<String> = told.collect();
        told.sort();
        told
    }

    /// A note about the runs that are so, if there are any; `{}` stands for how many.
    fn note_of(&self, of: impl Fn(&super::Figures) -> bool, text: &str) -> Option<String> {
        let meant = |record: &&Record| record.result.as_ref().is_ok_and(&of);
        let mut found: Vec<String> = Vec::new();
        let mut count = 0;
        for record in self.records.iter().filter(meant) {
            count += 1;
            let name = format!("{} over {}", record.system, record.cell);
            if !found.contains(&name) {
                found.push(name);
            }
        }
        // The simulator's runs end in any order.
        found.sort();
        let all = format!("{count} of {} runs", self.records.len());
        (count > 0)
            .then(|| format!("{}: {}.", text.replace("{}", &all), listed(&found, "; ", NAMED)))
    }
}

/// To three decimals: what is missed by less is not told as reached.
fn rounded_down(ratio: f64) -> f64 {
    (ratio * 1e3).floor() / 1e3
}

#[cfg(test)]
mod tests {
    use super::super::{self as race, Figures};
    use super::*;

    #[test]
    fn wins_and_losses_are_told_alike() {
        let systems = ["bbr", "tcp:bbr"].map(|name| name.parse().expect("a system")).into();
        let cells: Vec<race::Cell> =
            [1, 2, 3].map(|rtt| race::Cell::new(10_000_000, rtt, 0.0)).into();
        let mut race = Race::new(systems, cells.clone(), 1);
        for (cell, own) in cells.iter().zip([9.5e6, 8.9e6, 8.7296e6]) {
            for (system, goodput_bps) in [("bbr", own), ("tcp:bbr", 9e6)] {
                let figures = Figures { goodput_bps, time_kept: true, ..Figures::default() };
                let (cell, system) = (cell.to_string(), system.to_owned());
                race.note(Record { cell, system, round: 0, result: Ok(figures) });
            }
        }
        let summary = race.summary();
        let expected = "bbr is ahead of tcp:bbr in 1 of 3 cells, behind by no more than 3% in 1, \
                        behind by more than 3% in 1: 0.969 (rate=10M,rtt=3ms).";
        assert!(summary.starts_with(expected), "{summary}");
    }

    #[test]
    fn what_does_not_count_is_noted() {
        let mut race = Race::new(
            vec!["scp".parse().expect("a system")],
            vec![race::Cell::new(10_000_000, 10, 0.0)],
            1,
        );
        let cell = race.cells[0].to_string();
        let figures = Figures { stopped: true, ..Figures::default() };
        race.note(Record { cell, system: "scp".into(), round: 0, result: Ok(figures) });
        race.absent.push("rclone is not installed".into());
        let failed = Err("no route".into());
        race.note(Record { cell: "x".into(), system: "scp".into(), round: 0, result: failed });
        race.seed = Some(77);
        let notes = race.notes().join("\n");
        for text in ["1 of 2 runs", "Stopped", "no route", "rclone is not installed", "seed 77"] {
            assert!(notes.contains(text), "{text}: {notes}");
        }
    }
}
