//! What the demonstration has shown: for a person, as JSON, as a picture and as a table of numbers.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use anyhow::{Context, Result};
use farhaul_lab::chart::{Axis, Chart, Figure, Reference, Series as Curve};
use farhaul_link::{Jitter, LinkConfig, LossModel, Probability, Rate};
use serde::Serialize;

use super::compare::Comparison;
use super::series::{SAMPLE_EVERY_S, Series};
use super::tree::Made;
use crate::units::{show_rate, show_size};

/// The document that `--json` prints.
#[derive(Debug, Serialize)]
pub struct Report {
    pub seed: u64,
    pub path: PathReport,
    /// The tree that was made.
    pub tree: Made,
    pub farhaul: Run,
    /// Kernel TCP, once for each congestion control.
    pub tcp: Vec<Run>,
    /// Why there is less in `tcp` than was asked for.
    pub tcp_not_compared: Vec<String>,
    /// Whether both trees are the same.
    pub verified: bool,
    pub comparison: Comparison,
    pub plot: String,
    pub csv: String,
    /// Where both trees are, if they were kept.
    pub kept: Option<String>,
}

/// The path that was emulated.
#[derive(Debug, Serialize)]
pub struct PathReport {
    pub description: String,
    /// Of the way there; none if it has no limit.
    pub bits_per_second: Option<u64>,
    pub rtt_ms: f64,
    pub loss: String,
}

/// One transfer.
#[derive(Debug, Serialize)]
pub struct Run {
    pub name: String,
    pub cc: String,
    /// Data that arrived; holes are not sent.
    pub bytes: u64,
    pub seconds: f64,
    /// False if it was stopped at the limit of its time.
    pub complete: bool,
    pub bits_per_second: f64,
    /// Goodput over the path's rate.
    pub share_of_line: Option<f64>,
    pub packets_sent: u64,
    pub retransmitted: u64,
    /// Packets that the emulation, not the path, has lost: the machine is too slow.
    pub overflowed: u64,
    /// IP bytes that have left the path, since the first.
    pub series: Series,
}

impl PathReport {
    /// Of the links there and back.
    pub fn new([there, back]: &[LinkConfig; 2]) -> Self {
        PathReport {
            description: describe(there, back),
            bits_per_second: there.rate.map(Rate::bits_per_second),
            rtt_ms: (there.delay + back.delay).as_secs_f64() * 1e3,
            loss: there.loss.to_string(),
        }
    }
}

impl Run {
    /// Goodput and share of the line from what is known.
    pub fn with_rates(self, path: &PathReport) -> Self {
        let bits_per_second = self.bytes as f64 * 8.0 / self.seconds.max(1e-9);
        let share_of_line = path.bits_per_second.map(|rate| bits_per_second / rate as f64);
        Run { bits_per_second, share_of_line, ..self }
    }
}

impl Report {
    /// Writes the picture and the numbers behind it.
    pub fn write_files(&self) -> Result<()> {
        let write = |path: &str, text: &str| fs::write(path, text).context(path.to_owned());
        write(&self.plot, &Figure::from(self.picture()).svg())?;
        write(&self.csv, &self.table())
    }

    /// For a person.
    pub fn show(&self, out: &mut dyn io::Write) -> io::Result<()> {
        out.write_all(self.text().as_bytes())
    }

    fn text(&self) -> String {
        let mut out = String::new();
        let mut line = |text: String| {
            out.push_str(&text);
            out.push('\n');
        };
        line(format!("path  {}", self.path.description));
        line(format!(
            "tree  {} files, {} directories, {} links, {} of data",
            self.tree.files,
            self.tree.directories,
            self.tree.symlinks,
            show_size(self.tree.data_bytes)
        ));
        line(String::new());
        rows(&self.runs().map(cells).collect::<Vec<_>>()).into_iter().for_each(&mut line);
        line(String::new());
        if self.farhaul.cc.contains("noisy") {
            line(
                "noisy: the law's option for paths that lose packets without being congested"
                    .into(),
            );
        }
        for tcp in &self.tcp {
            line(format!(
                "{} has {:.1} times the goodput of {}",
                self.farhaul.name,
                self.farhaul.bits_per_second / tcp.bits_per_second.max(1.0),
                tcp.name
            ));
        }
        for why in &self.tcp_not_compared {
            line(format!("kernel TCP not compared: {why}"));
        }
        for run in self.runs().filter(|run| run.overflowed > 0) {
            line(format!(
                "the machine is too slow: {} packets of {} were lost before the path",
                run.overflowed, run.name
            ));
        }
        line(self.verdict());
        self.comparison.differences.iter().for_each(|difference| line(format!("  {difference}")));
        line(format!("plot: {}", self.plot));
        line(format!("data: {}", self.csv));
        if let Some(kept) = &self.kept {
            line(format!("trees: {kept}"));
        }
        out
    }

    /// Whether the trees are the same.
    pub fn verdict(&self) -> String {
        let Comparison { files, bytes, different, .. } = &self.comparison;
        if self.verified {
            format!("verified: {files} files, {} identical", show_size(*bytes))
        } else {
            format!("NOT verified: {different} entries differ")
        }
    }

    fn runs(&self) -> impl Iterator<Item = &Run> {
        std::iter::once(&self.farhaul).chain(&self.tcp)
    }

    fn picture(&self) -> Chart {
        // Means over two samples, and over more where the picture has no room for so many points.
        let longest = self.runs().map(|run| run.series.seconds()).fold(0.0, f64::max);
        let span = (longest / 200.0).max(2.0 * SAMPLE_EVERY_S);
        let span = if longest < 10.0 * SAMPLE_EVERY_S { SAMPLE_EVERY_S } else { span };
        let limit = |bits: u64| Reference::new(bits as f64, "line rate");
        Chart {
            title: "Throughput of farhaul and kernel TCP".into(),
            subtitle: self.path.description.clone(),
            x: Axis::linear("time", "s"),
            y: Axis::linear("through the path", "b/s"),
            series: self
                .runs()
                .map(|run| Curve::line(run.name.clone(), run.series.curve(span)))
                .collect(),
            references: self.path.bits_per_second.map(limit).into_iter().collect(),
        }
    }

    /// Comma-separated values, a row a sample.
    fn table(&self) -> String {
        let mut out = "run,start_s,end_s,bytes,megabits_per_second\n".to_owned();
        for run in self.runs() {
            for span in run.series.spans() {
                let rate = span.bits_per_second() / 1e6;
                // Writing to a string cannot fail.
                let _ = writeln!(
                    out,
                    "{},{:.3},{:.3},{},{rate:.3}",
                    run.name.replace(',', ";"),
                    span.start,
                    span.end,
                    span.bytes
                );
            }
        }
        out
    }
}

/// Where the picture and the numbers go.
pub fn files_in(directory: &Path) -> (String, String) {
    let name = |file: &str| directory.join(file).display().to_string();
    (name("throughput.svg"), name("throughput.csv"))
}

const HEADINGS: [&str; 5] = ["", "goodput", "of the line", "time", "retransmitted"];

fn cells(run: &Run) -> [String; 5] {
    let share = run.share_of_line.map_or("-".into(), |share| format!("{:.1}%", share * 100.0));
    let sent_again = run.retransmitted as f64 * 100.0 / run.packets_sent.max(1) as f64;
    let time = format!("{:.1} s", run.seconds);
    [
        run.name.clone(),
        show_rate(run.bits_per_second),
        share,
        if run.complete { time } else { format!("stopped after {time}, {}", show_size(run.bytes)) },
        format!("{} ({sent_again:.2}%)", run.retransmitted),
    ]
}

/// Aligned columns: names to the left, numbers to the right.
fn rows(cells: &[[String; 5]]) -> Vec<String> {
    let headings = HEADINGS.map(str::to_owned);
    let all: Vec<&[String; 5]> = std::iter::once(&headings).chain(cells).collect();
    let width = |column: usize| all.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; 5] = std::array::from_fn(|column| width(column).unwrap_or(0));
    all.iter()
        .map(|row| {
            let mut line = format!("{:<width$}", row[0], width = widths[0]);
            for (cell, width) in row.iter().zip(widths).skip(1) {
                // Writing to a string cannot fail.
                let _ = write!(line, "  {cell:>width$}");
            }
            line
        })
        .collect()
}

/// `200 Mb/s, RTT 80 ms, loss 0.1% each way, queue 2.00 MB`.
fn describe(there: &LinkConfig, back: &LinkConfig) -> String {
    let rate = |link: &LinkConfig| link.rate.map_or("any rate".into(), show_line_rate);
    let mut parts = vec![if there.rate == back.rate {
        rate(there)
    } else {
        format!("{} (back {})", rate(there), rate(back))
    }];
    parts.push(format!("RTT {} ms", (there.delay + back.delay).as_secs_f64() * 1e3));
    if there.loss != back.loss {
        parts.push(format!("loss {} (back {})", there.loss, back.loss));
    } else if there.loss != LossModel::None {
        parts.push(format!("loss {} each way", there.loss));
    }
    parts.push(match there.queue.limit_bytes(there.rate) {
        Some(bytes) => format!("queue {}", show_size(bytes)),
        None => format!("queue {}", there.queue),
    });
    if there.jitter != Jitter::default() {
        parts.push(format!("jitter {}", there.jitter));
    }
    parts.extend(there.reorder.map(|reorder| format!("reordering {reorder}")));
    if there.duplicate != Probability::ZERO {
        parts.push(format!("duplication {}", there.duplicate));
    }
    if there.corrupt != Probability::ZERO {
        parts.push(format!("corruption {}", there.corrupt));
    }
    parts.extend(there.blackouts.iter().map(|blackout| format!("cut {blackout}")));
    parts.join(", ")
}

/// `200 Mb/s`.
fn show_line_rate(rate: Rate) -> String {
    let text = rate.to_string();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    format!("{digits} {}b/s", &text[digits.len()..])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::demo::series::Sample;

    fn run(name: &str, bytes: u64, seconds: f64) -> Run {
        let mut series = Series::default();
        series.push(Sample { seconds: 0.0, bytes: 0 });
        series.push(Sample { seconds, bytes });
        Run {
            name: name.into(),
            cc: "some".into(),
            bytes,
            seconds,
            complete: true,
            bits_per_second: 0.0,
            share_of_line: None,
            packets_sent: 1000,
            retransmitted: 5,
            overflowed: 0,
            series,
        }
    }

    fn links() -> [LinkConfig; 2] {
        let link = LinkConfig {
            rate: Rate::from_bits_per_second(200_000_000),
            delay: Duration::from_millis(40),
            queue: "bdp:80ms".parse().unwrap(),
            loss: "0.1%".parse().unwrap(),
            ..LinkConfig::default()
        };
        [link.clone(), link]
    }

    fn report() -> Report {
        let path = PathReport::new(&links());
        let (plot, csv) = files_in(Path::new("/out"));
        Report {
            seed: 1,
            tree: Made {
                files: 3,
                directories: 1,
                symlinks: 0,
                bytes: 25_000_000,
                data_bytes: 25_000_000,
            },
            farhaul: run("farhaul (udt)", 25_000_000, 1.25).with_rates(&path),
            tcp: vec![
                Run { complete: false, ..run("kernel TCP (cubic)", 2_500_000, 2.5) }
                    .with_rates(&path),
            ],
            path,
            tcp_not_compared: Vec::new(),
            verified: true,
            comparison: Comparison { files: 3, bytes: 25_000_000, ..Comparison::default() },
            plot,
            csv,
            kept: None,
        }
    }

    #[test]
    fn paths_are_described() {
        let [there, mut back] = links();
        assert_eq!(
            describe(&there, &back),
            "200 Mb/s, RTT 80 ms, loss 0.1% each way, queue 2.00 MB"
        );
        back.rate = Rate::from_bits_per_second(1_500_000);
        back.loss = LossModel::None;
        assert_eq!(
            describe(&there, &back),
            "200 Mb/s (back 1.5 Mb/s), RTT 80 ms, loss 0.1% (back none), queue 2.00 MB"
        );
        let wire = LinkConfig::default();
        assert_eq!(describe(&wire, &wire), "any rate, RTT 0 ms, queue unlimited");
    }

    #[test]
    fn a_person_sees_who_was_faster() {
        let text = report().text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[3],
            "                        goodput  of the line                          time  retransmitted"
        );
        assert_eq!(
            lines[4],
            "farhaul (udt)       160.00 Mb/s        80.0%                         1.2 s      5 (0.50%)"
        );
        assert_eq!(
            lines[5],
            "kernel TCP (cubic)    8.00 Mb/s         4.0%  stopped after 2.5 s, 2.50 MB      5 (0.50%)"
        );
        assert!(text.contains("farhaul (udt) has 20.0 times the goodput of kernel TCP (cubic)"));
        assert!(text.contains("verified: 3 files, 25.00 MB identical"));
        assert!(text.contains("plot: /out/throughput.svg"));
        assert!(!text.contains("not compared") && !text.contains("too slow"));
    }

    #[test]
    fn a_person_sees_what_went_wrong() {
        let mut report = report();
        report.verified = false;
        report.comparison.different = 2;
        report.comparison.differences = vec!["/a: missing".into(), "/b: another mode".into()];
        report.tcp_not_compared = vec!["/dev/net/tun: no".into()];
        report.farhaul.overflowed = 7;
        let text = report.text();
        for part in [
            "NOT verified: 2 entries differ",
            "  /b: another mode",
            "kernel TCP not compared: /dev/net/tun: no",
            "7 packets of farhaul (udt) were lost before the path",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn numbers_are_behind_the_picture() {
        let table = report().table();
        assert_eq!(
            table.lines().nth(1),
            Some("farhaul (udt),0.000,1.250,25000000,160.000"),
            "{table}"
        );
        assert_eq!(table.lines().count(), 3);
        let picture = report().picture();
        assert_eq!(picture.series.len(), 2);
        assert_eq!(picture.references[0].value, 200e6);
    }
}
