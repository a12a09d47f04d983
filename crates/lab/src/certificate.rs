//! Certificates of control laws: one battery for all of them, and scores.
//!
//! The battery is a file of data, `certificate.toml`, of four parts. *Gates* are for the sake of others on the
//! network: a law that misses one has no score. *Families* are scenarios that a section of RFC 9743 asks for, and
//! *pairs* are flows of the law and of another one side by side; the score is their mean. All three are drawn from a
//! seed that is given when the certificate is made, so that no law can be fitted to them. The *reference* are fixed
//! plans, the same for every certificate, which do not count. There is no score for the reduced battery.
//!
//! | file | subject |
//! |---|---|
//! | `battery.rs` | the file, and its run |
//! | `draw.rs` | values that are drawn from the seed |
//! | `gate.rs` | gates |
//! | `family.rs` | families and pairs |
//! | `scale.rs` | from measurements to points |
//! | `overview.rs` | certificates of several laws side by side |
//! | `matrix.rs` | what laws leave each other |

mod battery;
mod draw;
mod family;
mod gate;
mod matrix;
mod overview;
mod scale;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use battery::Battery;
pub use matrix::Matrix;
pub use overview::overview;

use crate::chart::{Axis, Bar, Bars, Figure};
use crate::experiment::VERSION;
use crate::number::{fixed, significant};
use crate::report::{FileError, write_whole};
use crate::statistics::mean;
use crate::table::{Cell, Column, Table};

/// What a law has come to in the battery.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Certificate {
    /// The law with its parameters, as `--cc` takes it.
    pub law: String,
    /// What it is good for, in its own words.
    pub summary: String,
    /// Where it is published.
    pub source: String,
    /// Whether the battery was the reduced one.
    pub quick: bool,
    /// What scenarios are drawn from.
    pub seed: u64,
    /// What its parts come to.
    #[serde(flatten)]
    pub means: Means,
    /// In the order of the battery.
    pub items: Vec<Scored>,
    /// Laws to compare with, which went through the same in the same run.
    pub baselines: Vec<Baseline>,
    /// How to do it again.
    pub command: String,
    /// The version of farhaul that made it.
    pub version: String,
    /// What the battery was: [`Battery::hash`].
    pub battery: String,
}

/// What the names of pairs begin with; the other law follows.
const PAIR_PREFIX: &str = "with ";

/// What the parts of a certificate come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Means {
    /// The mean of `families` and `pairs`; none if a gate is missed, and from the reduced battery.
    pub overall: Option<f64>,
    /// The mean of the families' scores.
    pub families: Option<f64>,
    /// The mean of the pairs' scores.
    pub pairs: Option<f64>,
    /// The mean of the fixed plans' scores, which does not count.
    pub reference: Option<f64>,
}

/// A law that certificates are compared with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Baseline {
    /// The law.
    pub law: String,
    /// What the parts of its certificate come to.
    #[serde(flatten)]
    pub means: Means,
    /// Points by the item's name.
    pub scores: BTreeMap<String, f64>,
}

/// A part of the battery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// What a law owes to others on a network.
    Gate,
    /// The same plans for every certificate.
    #[default]
    Reference,
    /// Scenarios that are drawn.
    Family,
    /// Two flows, one of the law and one of another, on paths that are drawn.
    Pair,
}

impl Means {
    /// Of these items, each mean to a tenth.
    fn of(items: &[Scored], quick: bool) -> Means {
        let part = |part: Part| {
            let of = items.iter().filter(|item| item.part == part);
            mean(&of.map(|item| item.score).collect::<Vec<_>>()).map(scale::to_tenths)
        };
        let (families, pairs) = (part(Part::Family), part(Part::Pair));
        let drawn = families.zip(pairs).map(|(families, pairs)| (families + pairs) / 2.0);
        let counts = !quick && items.iter().all(Scored::holds);
        Means {
            overall: drawn.filter(|_| counts).map(scale::to_tenths),
            families,
            pairs,
            reference: part(Part::Reference),
        }
    }
}

/// A part's name and mean, and the means of the laws to compare with.
type PartMean = (&'static str, Option<f64>, Vec<Option<f64>>);

/// A drawn scenario, and what a law has come to in it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Scenario {
    /// What was drawn.
    pub values: BTreeMap<String, String>,
    /// The seed of its run.
    pub seed: u64,
    /// What was measured, by the name of the measurement; of a pair, what each has of its fair share.
    pub measured: BTreeMap<String, Option<f64>>,
    /// Points, 0 to 100: those of the measurement that is worth least.
    pub score: f64,
}

/// A law's measurement and score in an item of the battery.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Scored {
    /// What it belongs to.
    pub part: Part,
    /// The item.
    pub name: String,
    /// Of RFC 9743, which asks for it; may be empty.
    pub section: String,
    /// What is measured, in a line.
    pub what: String,
    /// What was measured; none where it never came to be.
    pub measured: Option<f64>,
    /// Of what is measured; may be empty.
    pub unit: String,
    /// What is worth 100 points.
    pub best: f64,
    /// What is worth none.
    pub worst: f64,
    /// Points, 0 to 100, to a tenth.
    pub score: f64,
    /// What must be reached, if the item is a gate: at least this where more is better, else at most.
    pub gate: Option<f64>,
    /// What was drawn; `measured` is the least of their points, and the score their mean.
    pub scenarios: Vec<Scenario>,
}

impl Scored {
    /// Whether the item is no gate, or one that is reached.
    pub fn holds(&self) -> bool {
        let reaches = |gate: f64| {
            let more = self.best > self.worst;
            self.measured.is_some_and(|value| if more { value >= gate } else { value <= gate })
        };
        self.gate.is_none_or(reaches)
    }

    /// What was measured, with its unit.
    pub fn shown(&self) -> String {
        match self.measured {
            None => "never".into(),
            Some(value) => format!("{} {}", significant(value, 3), self.unit).trim_end().to_owned(),
        }
    }
}

/// The name of the files of that law's certificate, without their endings: letters, digits and `-`,
/// `_`, `.`.
fn file_name(law: &str) -> String {
    let plain = |c: char| match c {
        '=' => '_',
        c if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') => c,
        _ => '-',
    };
    format!("certificate-{}", law.chars().map(plain).collect::<String>())
}

impl Certificate {
    /// Takes these laws' certificates to compare with, but for that of the law itself.
    pub fn compare_with(&mut self, others: &[Certificate]) {
        let others = others.iter().filter(|other| other.law != self.law);
        let baseline = |other: &Certificate| Baseline {
            law: other.law.clone(),
            means: other.means,
            scores: other.items.iter().map(|item| (item.name.clone(), item.score)).collect(),
        };
        self.baselines = others.map(baseline).collect();
    }

    /// The means of the parts, with their names and those of the laws to compare with.
    fn part_means(&self) -> Vec<PartMean> {
        let of = |name, mean: fn(&Means) -> Option<f64>| {
            let others = self.baselines.iter().map(|baseline| mean(&baseline.means)).collect();
            (name, mean(&self.means), others)
        };
        let means: [PartMean; 3] = [
            of("families", |means| means.families),
            of("pairs", |means| means.pairs),
            of("reference", |means| means.reference),
        ];
        means.into_iter().filter(|(_, mean, _)| mean.is_some()).collect()
    }

    /// The item's points of the laws to compare with.
    fn compared(&self, item: &str) -> Vec<Option<f64>> {
        self.baselines.iter().map(|baseline| baseline.scores.get(item).copied()).collect()
    }

    /// Whether this version would put the law through the same battery.
    pub fn is_current(&self) -> bool {
        (self.version.as_str(), &self.battery) == (VERSION, &Battery::hash())
    }

    /// The page for a terminal: name, summary, source, and a table with bars. What the items mean is
    /// told by [`Certificate::legend`].
    pub fn text(&self) -> String {
        let (name, summary, source) = (&self.law, &self.summary, &self.source);
        let reduced = if self.quick { "  the reduced battery\n" } else { "" };
        // Right-aligned, as numbers are.
        let points = |score: Option<f64>| match score {
            Some(score) => Cell::from(format!("{:>5}", fixed(score, 0))),
            None => "none".into(),
        };
        let row = |name: &str, section: &str, measured: String, score, others: Vec<Option<f64>>| {
            let mut cells: Vec<Cell> =
                vec![name.into(), section.into(), measured.into(), points(score)];
            cells.extend(others.into_iter().map(points));
            cells.push(score.map_or(Cell::Missing, |score| blocks(score).into()));
            cells
        };
        let mut rows: Vec<Vec<Cell>> = Vec::new();
        for item in &self.items {
            let others = self.compared(&item.name);
            rows.push(row(&item.name, &item.section, item.shown(), Some(item.score), others));
        }
        for (name, mean, others) in self.part_means() {
            rows.push(row(name, "", String::new(), mean, others));
        }
        let others = self.baselines.iter().map(|baseline| baseline.means.overall).collect();
        rows.push(row("overall", "", self.why_none(), self.means.overall, others));
        let laws = self.baselines.iter().map(|baseline| &*baseline.law);
        let columns = ["item", "RFC 9743", "measured", "score"].into_iter().chain(laws).chain([""]);
        let columns = columns.map(|name| Column::new(name, "")).collect();
        let table = Table { title: String::new(), columns, rows };
        let seed = self.seed;
        format!(
            "{name}: {summary}\n  from {source}\n  drawn from seed {seed}\n{reduced}\n{}",
            table.text()
        )
    }

    /// The gates that the law misses, by name. With one there is no overall score.
    pub fn missed(&self) -> Vec<&str> {
        self.items.iter().filter(|item| !item.holds()).map(|item| &*item.name).collect()
    }

    /// Why there is no overall score; empty if there is one.
    pub fn why_none(&self) -> String {
        let missed = self.missed();
        match self.means.overall {
            Some(_) => String::new(),
            None if missed.is_empty() => "reduced battery".into(),
            None => format!("missed: {}", missed.join(", ")),
        }
    }

    /// What its items mean, a line each.
    pub fn legend(&self) -> String {
        let row = |item: &Scored| vec![Cell::from(&*item.name), Cell::from(&*item.what)];
        let columns = ["item", "what is measured"].map(|name| Column::new(name, "")).into();
        let rows = self.items.iter().map(row).collect();
        Table { title: String::new(), columns, rows }.text()
    }

    /// All that is known about each item, and the mean.
    pub fn table(&self) -> Table {
        const SCORE: usize = 7;
        let mut headings: Vec<&str> = vec![
            "item",
            "RFC 9743",
            "what is measured",
            "measured",
            "unit",
            "best",
            "worst",
            "score",
            "gate",
        ];
        headings.extend(self.baselines.iter().map(|baseline| &*baseline.law));
        let row = |item: &Scored| -> Vec<Cell> {
            let Scored { name, section, what, measured, unit, best, worst, score, gate, .. } = item;
            let mut cells: Vec<Cell> = vec![
                (&**name).into(),
                (&**section).into(),
                (&**what).into(),
                (*measured).into(),
                (&**unit).into(),
                (*best).into(),
                (*worst).into(),
                (*score).into(),
                (*gate).into(),
            ];
            cells.extend(self.compared(name).into_iter().map(Cell::from));
            cells
        };
        let mut rows: Vec<Vec<Cell>> = self.items.iter().map(row).collect();
        let overall = self.baselines.iter().map(|baseline| baseline.means.overall).collect();
        for (name, mean, others) in
            self.part_means().into_iter().chain([("overall", self.means.overall, overall)])
        {
            let mut cells = vec![Cell::Missing; headings.len()];
            (cells[0], cells[SCORE]) = (name.into(), mean.into());
            others.into_iter().enumerate().for_each(|(n, mean)| cells[SCORE + 2 + n] = mean.into());
            rows.push(cells);
        }
        Table {
            title: format!("The law {}", self.law),
            columns: headings.into_iter().map(|name| Column::new(name, "")).collect(),
            rows,
        }
    }

    /// The scores as bars.
    pub fn figure(&self) -> Figure {
        let bar = |item: &Scored| Bar {
            name: item.name.clone(),
            value: item.score.round(),
            note: item.shown(),
            strong: false,
        };
        let mut bars: Vec<Bar> = self.items.iter().map(bar).collect();
        bars.push(Bar {
            name: "overall".into(),
            value: self.means.overall.unwrap_or(0.0).round(),
            note: self.why_none(),
            strong: true,
        });
        let reduced = if self.quick { " (the reduced battery)" } else { "" };
        Figure::from(Bars {
            title: format!("{}{reduced}", self.law),
            subtitle: self.summary.clone(),
            value: Axis::linear("score", "").between(0.0, 100.0),
            bars,
        })
    }

    /// As JSON, from which it can be read again to the last bit.
    pub fn json(&self) -> String {
        let text = serde_json::to_string_pretty(self);
        text.expect("a certificate has nothing that JSON cannot hold") + "\n"
    }

    /// Writes `certificate-LAW.json`, `.csv`, `.svg` and `.png` into a folder, which is made if there
    /// is none, each whole or not at all. Returns what was written.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn write(&self, folder: &Path) -> Result<Vec<PathBuf>, FileError> {
        fs::create_dir_all(folder).map_err(|source| FileError::io(folder, source))?;
        let figure = self.figure();
        let files = [
            ("json", self.json().into_bytes()),
            ("csv", self.table().csv().into_bytes()),
            ("svg", figure.svg().into_bytes()),
            ("png", figure.png()),
        ];
        let write = |(ending, data): (&str, Vec<u8>)| {
            let path = folder.join(format!("{}.{ending}", file_name(&self.law)));
            write_whole(&path, &data)?;
            Ok(path)
        };
        files.into_iter().map(write).collect()
    }

    /// The certificate of that law that [`write`](Self::write) has left in a folder; none if there is
    /// none, or something else.
    pub fn stored(folder: &Path, law: &str) -> Option<Certificate> {
        let text = fs::read_to_string(folder.join(format!("{}.json", file_name(law)))).ok()?;
        let certificate: Certificate = serde_json::from_str(&text).ok()?;
        Some(certificate).filter(|certificate| certificate.law == law)
    }
}

/// A score as a bar of up to 25 characters, to an eighth of one.
fn blocks(score: f64) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    const EACH: f64 = 4.0;
    let eighths = (score.clamp(0.0, 100.0) / EACH * 8.0).round() as usize;
    format!("{}{}", "█".repeat(eighths / 8), PARTS[eighths % 8])
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn certificate(law: &str) -> Certificate {
        let item = |name: &str, measured: Option<f64>, unit: &str, score: f64| Scored {
            name: name.into(),
            what: format!("what {name} means"),
            measured,
            unit: unit.into(),
            best: 1.0,
            worst: 10.0,
            score,
            ..Scored::default()
        };
        Certificate {
            version: VERSION.into(),
            battery: Battery::hash(),
            law: law.into(),
            summary: "a law & more".into(),
            source: "a paper".into(),
            quick: false,
            seed: 7,
            means: Means {
                overall: Some(49.9),
                families: Some(60.0),
                pairs: Some(39.8),
                reference: None,
            },
            baselines: Vec::new(),
            items: vec![
                item("start", Some(1.0 / 3.0), "s", 99.6),
                item("recovery", None, "s", 0.0),
                item("fairness", Some(0.5), "", 50.0),
            ],
            command: format!("farhaul lab certify --cc {law}"),
        }
    }

    #[test]
    fn the_page_is_a_table_with_bars() {
        let text = certificate("udt").text();
        assert_eq!(
            text,
            "udt: a law & more\n  from a paper\n  drawn from seed 7\n\n\
             item      RFC 9743  measured  score\n\
             start               0.333 s     100  ████████████████████████▉\n\
             recovery            never         0\n\
             fairness            0.5          50  ████████████▌\n\
             families                         60  ███████████████\n\
             pairs                            40  ██████████\n\
             overall                          50  ████████████▌\n"
        );
        let quick = {
            let mut quick = Certificate { quick: true, ..certificate("udt") };
            quick.means.overall = None;
            quick
        };
        assert!(quick.text().contains("  drawn from seed 7\n  the reduced battery\n"));
        assert_eq!(quick.why_none(), "reduced battery");
        let legend = certificate("udt").legend();
        assert!(legend.contains("recovery  what recovery means\n"), "{legend}");
    }

    #[test]
    fn other_laws_stand_beside_it() {
        let mut other = certificate("copa");
        (other.items[0].score, other.means.overall, other.means.pairs) = (12.0, None, Some(33.0));
        let mut compared = certificate("udt");
        compared.compare_with(&[certificate("udt"), other]);
        let laws: Vec<&str> = compared.baselines.iter().map(|one| one.law.as_str()).collect();
        assert_eq!(laws, ["copa"], "not beside itself");
        assert_eq!(compared.compared("start"), [Some(12.0)]);
        assert_eq!(compared.compared("an item that it has not"), [None]);
        let csv = compared.table().csv();
        assert!(csv.contains("\r\npairs,,,,,,,39.8,,33\r\n"), "{csv}");
        assert!(csv.ends_with("\r\noverall,,,,,,,49.9,,\r\n"), "{csv}");
    }

    #[test]
    fn a_gate_is_reached_from_its_better_side() {
        let item = |best: f64, worst: f64, measured: Option<f64>| Scored {
            best,
            worst,
            measured,
            gate: Some(0.5),
            ..Scored::default()
        };
        assert!(item(1.0, 0.0, Some(0.5)).holds() && !item(1.0, 0.0, Some(0.49)).holds());
        assert!(item(0.0, 1.0, Some(0.5)).holds() && !item(0.0, 1.0, Some(0.51)).holds());
        assert!(!item(1.0, 0.0, None).holds(), "what was never measured");
        assert!(Scored::default().holds(), "no gate");
        let mut missed = certificate("udt");
        missed.items.push(Scored { name: "thin link".into(), ..item(1.0, 0.0, Some(0.1)) });
        missed.means.overall = None;
        assert_eq!(missed.why_none(), "missed: thin link");
    }

    #[test]
    fn bars_are_as_long_as_scores() {
        let all = [0.0, 0.2, 0.5, 4.0, 50.0, 99.0, 100.0, 120.0].map(blocks);
        let long = ["█".repeat(24) + "▊", "█".repeat(25), "█".repeat(25)];
        let short = ["", "", "▏", "█", "████████████▌"].map(str::to_owned);
        assert_eq!(all[..5], short);
        assert_eq!(all[5..], long);
    }

    #[test]
    fn files_have_safe_names() {
        assert_eq!(file_name("udt"), "certificate-udt");
        assert_eq!(file_name("blast:rate=800M,x=1.5"), "certificate-blast-rate_800M-x_1.5");
        assert_eq!(file_name("a/../b\\ c"), "certificate-a-..-b--c");
    }

    #[test]
    fn what_is_written_can_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("made");
        let certificate = certificate("udt:window=2,noisy=true");
        let written = certificate.write(&place).unwrap();
        let name = "certificate-udt-window_2-noisy_true";
        let names = ["json", "csv", "svg", "png"].map(|end| place.join(format!("{name}.{end}")));
        assert_eq!(written, names);
        assert!(names.iter().all(|path| fs::metadata(path).is_ok_and(|file| file.len() > 0)));
        assert_eq!(Certificate::stored(&place, &certificate.law), Some(certificate));
        assert_eq!(Certificate::stored(&place, "udt"), None);
        // The same name for files, but another law.
        assert_eq!(Certificate::stored(&place, "udt:window=2:noisy=true"), None);
        let csv = fs::read_to_string(&names[1]).unwrap();
        assert!(csv.contains("\r\nrecovery,,what recovery means,,s,1,10,0,\r\n"), "{csv}");
        assert!(csv.ends_with("\r\noverall,,,,,,,49.9,\r\n"), "{csv}");
    }
}
