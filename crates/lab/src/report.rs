//! What experiments have shown: their results, and the page about all of them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::chart::Figure;
use crate::table::Table;

mod files;
mod page;

pub use files::write_whole;
use files::{Unfinished, remove};
pub use page::page;

/// What an experiment has shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Outcome {
    /// Its name, also that of its files: small letters, digits and `-`, `_`, `.`, beginning with a
    /// letter or a digit.
    pub id: String,
    /// What it reproduces: `gu05 Figure 4-2`.
    pub source: String,
    /// What it is about.
    pub title: String,
    /// What is to be seen, one paragraph.
    pub shows: String,
    /// Its pictures.
    pub charts: Vec<Figure>,
    /// Its numbers.
    pub tables: Vec<Table>,
    /// What was published beside what was measured.
    pub checks: Vec<Check>,
    /// What else there is to know, a paragraph each.
    pub notes: Vec<String>,
    /// Whether it is from the reduced version.
    pub quick: bool,
    /// The farhaul that has run it.
    pub version: String,
    /// What the experiment's file was: [`Experiment::hash`](crate::experiment::Experiment::hash).
    pub experiment: String,
    /// How to do it again.
    pub command: String,
    /// How long it took.
    pub seconds: f64,
}

/// A published statement beside what was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Check {
    /// The quantity or statement.
    pub what: String,
    /// What the source says.
    pub published: String,
    /// What was found.
    pub measured: String,
    /// How far they may be apart.
    pub tolerance: String,
    /// Whether they agree.
    pub verdict: Verdict,
    /// Why the tolerance is what it is, and why what is out of it is; may be empty.
    pub reason: String,
}

/// Whether what was measured agrees with what was published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It does.
    Pass,
    /// It does not, for a known reason.
    Explained,
    /// It does not.
    #[default]
    Fail,
}

/// Why a file could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The outcome's name would not be a file's.
    #[error("{0:?} is no name for files: small letters, digits and -_. only")]
    Name(String),
    /// The system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which file or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file holds something else.
    #[error("{}: no outcome: {source}", path.display())]
    Content {
        /// Which file.
        path: PathBuf,
        /// Where it departs.
        source: serde_json::Error,
    },
}

/// Makes what is in a file.
type Make<'a> = Box<dyn Fn() -> Vec<u8> + 'a>;

impl Verdict {
    /// `pass`, `explained` or `FAIL`.
    pub fn shown(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Explained => "explained",
            Verdict::Fail => "FAIL",
        }
    }
}

impl Outcome {
    /// The worst of the checks; none if nothing was checked.
    pub fn verdict(&self) -> Option<Verdict> {
        self.checks.iter().map(|check| check.verdict).max()
    }

    /// As JSON, from which it can be read again to the last bit; numbers that are not finite become
    /// `null`.
    pub fn json(&self) -> String {
        let text = serde_json::to_string_pretty(self);
        text.expect("an outcome has nothing that JSON cannot hold") + "\n"
    }

    /// Writes `ID.json`, for each chart `ID.svg` and `ID.png`, for each table `ID.csv`; those after
    /// the first are `ID-2.svg` and so on. The folder is made if there is none. If it has an earlier
    /// `ID.json`, the pictures and tables of that one which are not written anew are removed. Returns
    /// what was written, `ID.json` first.
    ///
    /// All is written under other names first, and `ID.json` gets its own last: where it is, the rest
    /// is whole.
    ///
    /// # Errors
    /// If the name is unfit for files, before anything is written, or if the system refuses; what the
    /// folder had before is then there still, or lacks its `ID.json`.
    pub fn write(&self, folder: &Path) -> Result<Vec<PathBuf>, FileError> {
        self.check_name()?;
        fs::create_dir_all(folder).map_err(|source| FileError::io(folder, source))?;
        let json = self.file(folder, 0, "json");
        let earlier = Outcome::read(&json);
        let files = self.files(folder).into_iter().map(|(path, make)| {
            let file = Unfinished::write(&path, &make())?;
            Ok((path, file))
        });
        let files: Vec<(PathBuf, Unfinished)> = files.collect::<Result<_, FileError>>()?;
        remove(&json)?;
        let written = files.iter().map(|(path, _)| path.clone()).collect();
        for (path, file) in files.into_iter().rev() {
            file.finish(&path)?;
        }
        if let Ok(earlier) = earlier {
            self.remove_others(folder, &earlier)?;
        }
        Ok(written)
    }

    /// Whether all that [`write`](Self::write) writes is in the folder.
    pub fn is_whole(&self, folder: &Path) -> bool {
        let there = |path: &Path| fs::metadata(path).is_ok_and(|file| file.len() > 0);
        self.files(folder).iter().all(|(path, _)| there(path))
    }

    /// Its files, `ID.json` first, and how each is made.
    fn files(&self, folder: &Path) -> Vec<(PathBuf, Make<'_>)> {
        let at = |index: usize, ending: &str| self.file(folder, index, ending);
        let mut files: Vec<(PathBuf, Make<'_>)> =
            vec![(at(0, "json"), Box::new(|| self.json().into_bytes()))];
        for (index, figure) in self.charts.iter().enumerate() {
            files.push((at(index, "svg"), Box::new(|| figure.svg().into_bytes())));
            files.push((at(index, "png"), Box::new(|| figure.png())));
        }
        for (index, table) in self.tables.iter().enumerate() {
            files.push((at(index, "csv"), Box::new(|| table.csv().into_bytes())));
        }
        files
    }

    /// Removes the files of the pictures and tables that `earlier` had and this outcome has not.
    fn remove_others(&self, folder: &Path, earlier: &Outcome) -> Result<(), FileError> {
        let charts = || self.charts.len()..earlier.charts.len();
        let pictures = ["svg", "png"].into_iter().flat_map(|end| charts().map(move |n| (n, end)));
        let tables = (self.tables.len()..earlier.tables.len()).map(|n| (n, "csv"));
        for (index, ending) in pictures.chain(tables) {
            remove(&self.file(folder, index, ending))?;
        }
        Ok(())
    }

    /// The name of its file with that ending and number, from 0.
    fn file(&self, folder: &Path, index: usize, ending: &str) -> PathBuf {
        let number = if index == 0 { String::new() } else { format!("-{}", index + 1) };
        folder.join(format!("{}{number}.{ending}", self.id))
    }

    /// Reads what [`write`](Self::write) has written as `ID.json`.
    ///
    /// # Errors
    /// If the file cannot be read or holds no outcome with a fit name.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let text = fs::read_to_string(path).map_err(|source| FileError::io(path, source))?;
        let outcome: Outcome = serde_json::from_str(&text)
            .map_err(|source| FileError::Content { path: path.to_owned(), source })?;
        outcome.check_name()?;
        Ok(outcome)
    }

    fn check_name(&self) -> Result<(), FileError> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let fit = self.id.starts_with(plain)
            && self.id.chars().all(|c| plain(c) || matches!(c, '-' | '_' | '.'));
        if fit { Ok(()) } else { Err(FileError::Name(self.id.clone())) }
    }
}

impl FileError {
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        FileError::Io { path: path.to_owned(), source }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::chart::{Axis, Chart, Grid, Panels, Reference, Series};
    use crate::table::{Cell, Column};

    pub(crate) fn outcome() -> Outcome {
        let chart = Chart {
            title: "A chart".into(),
            x: Axis::log("RTT", "s"),
            y: Axis::linear("throughput", "b/s").between(0.0, 1e9),
            series: vec![
                Series::both("measured", vec![(0.001, 1.0 / 3.0 * 1e9), (0.1, f64::NAN)])
                    .with_errors(vec![1e7, 0.0]),
            ],
            references: vec![Reference::new(1e9, "link")],
            ..Chart::default()
        };
        let grid = Grid {
            xs: vec![1.0, 10.0],
            ys: vec![0.1],
            cells: vec![vec![Some(0.1 + 0.2), None]],
            ..Grid::default()
        };
        let panels = Panels { charts: vec![chart.clone(); 2], ..Panels::default() };
        Outcome {
            id: "figure-4-2".into(),
            source: "gu05 Figure 4-2".into(),
            title: "Fairness <of> flows".into(),
            shows: "Flows & more.".into(),
            charts: vec![chart.into(), grid.into(), panels.into()],
            tables: vec![Table {
                title: "Rates".into(),
                columns: vec![Column::new("rate", "Mb/s")],
                rows: vec![vec![Cell::from(1.5)]],
            }],
            checks: vec![
                Check {
                    what: "fairness index".into(),
                    published: "> 0.99".into(),
                    measured: "0.997".into(),
                    tolerance: "none".into(),
                    verdict: Verdict::Pass,
                    reason: String::new(),
                },
                Check {
                    what: "loss".into(),
                    published: "0.1 %".into(),
                    measured: "0.2 %".into(),
                    verdict: Verdict::Explained,
                    reason: "another queue".into(),
                    ..Check::default()
                },
            ],
            notes: vec!["A note.".into()],
            quick: false,
            version: "1.2.3".into(),
            experiment: "abc".into(),
            command: "farhaul lab run figure-4-2".into(),
            seconds: 12.5,
        }
    }

    #[test]
    fn json_gives_the_same_pictures() {
        let outcome = outcome();
        let read: Outcome = serde_json::from_str(&outcome.json()).unwrap();
        assert_eq!(read.json(), outcome.json());
        for (figure, again) in outcome.charts.iter().zip(&read.charts) {
            assert_eq!(figure.svg(), again.svg());
        }
        assert_eq!(read.charts[1], outcome.charts[1]);
        assert_eq!(read.checks, outcome.checks);
    }

    #[test]
    fn files_are_named_by_the_outcome() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("made");
        let written = outcome().write(&place).unwrap();
        let names: Vec<_> =
            written.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(
            names,
            [
                "figure-4-2.json",
                "figure-4-2.svg",
                "figure-4-2.png",
                "figure-4-2-2.svg",
                "figure-4-2-2.png",
                "figure-4-2-3.svg",
                "figure-4-2-3.png",
                "figure-4-2.csv"
            ]
        );
        let read = Outcome::read(&written[0]).unwrap();
        assert_eq!(read.json(), outcome().json());
    }

    #[test]
    fn what_an_earlier_outcome_has_left_goes() {
        let folder = tempfile::tempdir().unwrap();
        let names = || -> BTreeSet<String> {
            let files = fs::read_dir(folder.path()).unwrap();
            files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
        };
        let others = ["figure-4-2-4.svg", "figure-4-21.svg", "figure-4-2.txt", "figure-4-2-2.csv"];
        for other in others {
            fs::write(folder.path().join(other), "").unwrap();
        }
        outcome().write(folder.path()).unwrap();
        assert_eq!(names().len(), 8 + others.len());
        let mut less = outcome();
        less.charts.truncate(1);
        less.tables.clear();
        less.write(folder.path()).unwrap();
        let own = ["figure-4-2.json", "figure-4-2.svg", "figure-4-2.png"];
        let expected = own.into_iter().chain(others).map(str::to_owned).collect();
        assert_eq!(names(), expected);
    }

    /// With one picture, which takes less time to draw.
    fn small() -> Outcome {
        Outcome { charts: outcome().charts.split_off(2), ..outcome() }
    }

    #[test]
    fn a_result_that_could_not_be_written_whole_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let json = small().write(folder.path()).unwrap().remove(0);
        let before = fs::read(&json).unwrap();
        let changed = Outcome { title: "Another".into(), ..small() };
        // As if the disk were full before all is written: what there was is there still.
        let full = folder.path().join(".figure-4-2.csv.part");
        fs::create_dir(&full).unwrap();
        assert!(matches!(changed.write(folder.path()), Err(FileError::Io { .. })));
        assert_eq!(fs::read(&json).unwrap(), before);
        fs::remove_dir(&full).unwrap();
        let left = fs::read_dir(folder.path()).unwrap();
        let left: Vec<_> = left.map(|file| file.unwrap().file_name()).collect();
        assert!(!left.iter().any(|name| name.to_str().unwrap().ends_with(".part")), "{left:?}");
        // A file cannot take its place: nothing says that the mixture of old and new is a result.
        let picture = folder.path().join("figure-4-2.svg");
        fs::remove_file(&picture).unwrap();
        fs::create_dir(&picture).unwrap();
        assert!(matches!(changed.write(folder.path()), Err(FileError::Io { .. })));
        assert!(!json.exists());
    }

    #[test]
    fn a_result_without_all_of_its_files_is_not_whole() {
        let folder = tempfile::tempdir().unwrap();
        let paths = small().write(folder.path()).unwrap();
        assert_eq!(paths.len(), 4);
        for path in paths {
            let data = fs::read(&path).unwrap();
            assert!(small().is_whole(folder.path()));
            fs::write(&path, "").unwrap();
            assert!(!small().is_whole(folder.path()), "{path:?} is empty");
            fs::remove_file(&path).unwrap();
            assert!(!small().is_whole(folder.path()), "{path:?}");
            fs::write(&path, data).unwrap();
        }
    }

    #[test]
    fn a_name_does_not_lead_out_of_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        for id in ["", "../x", "a/b", ".hidden", "A", "a b"] {
            let outcome = Outcome { id: id.into(), ..Outcome::default() };
            assert!(matches!(outcome.write(folder.path()), Err(FileError::Name(_))), "{id}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn files_that_hold_something_else_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        assert!(matches!(Outcome::read(&path), Err(FileError::Io { .. })));
        fs::write(&path, "[1]").unwrap();
        assert!(matches!(Outcome::read(&path), Err(FileError::Content { .. })));
        fs::write(&path, "{\"id\": \"../x\"}").unwrap();
        assert!(matches!(Outcome::read(&path), Err(FileError::Name(_))));
    }

    #[test]
    fn the_worst_check_is_the_verdict() {
        assert_eq!(outcome().verdict(), Some(Verdict::Explained));
        assert_eq!(Outcome::default().verdict(), None);
        assert!(Verdict::Fail > Verdict::Explained && Verdict::Explained > Verdict::Pass);
    }
}
