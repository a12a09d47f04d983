//! What a copy came to, and the receipt of it.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use farhaul_mover::transfer::limit::Evidence;
use farhaul_mover::transfer::stages::{STAGES, Stage};
use serde::{Deserialize, Serialize};

use super::side::Going;
use crate::units::{show_rate, show_size, show_time};

/// What one side has done, as it tells the other or its user.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Summary {
    pub files: u64,
    pub directories: u64,
    pub symlinks: u64,
    /// Bytes of all files, moved or not.
    pub bytes: u64,
    /// Files that were moved, or would be.
    pub moved_files: u64,
    /// Bytes of them, without what an earlier transfer had moved.
    pub moved_bytes: u64,
    /// Bytes that an earlier command had moved.
    pub resumed_bytes: u64,
    /// Bytes of content that went over connections, holes not counted.
    pub data_bytes: u64,
    /// Bytes of them that belong to files which are not complete.
    #[serde(skip)]
    pub part_bytes: u64,
    /// Files that were there, or were to stay.
    pub same_files: u64,
    /// Of those, files whose content was compared.
    #[serde(default)]
    pub compared_files: u64,
    /// Of those, files that were to stay whatever is in them.
    #[serde(default)]
    pub kept_files: u64,
    /// Special files that were left out, and the first of them with what they are.
    pub skipped: u64,
    pub left_out: Vec<String>,
    /// Files that became longer while they were copied, as far as they were announced.
    #[serde(default)]
    pub grown_files: u64,
    /// Entries of the target that were deleted, or would be.
    pub deleted: u64,
    /// Entries of the target that stay only as no more may be deleted.
    pub not_deleted: u64,
    /// Entries that could not be moved, and the first of them with the reasons.
    pub failed: u64,
    pub failures: Vec<String>,
}

impl Summary {
    /// Whether there was nothing but directories.
    pub fn is_nothing(&self) -> bool {
        self.files + self.symlinks + self.skipped + self.failed == 0
    }
}

/// What is printed at the end, and with `--json` alone.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// `true`: everything was moved, verified and is on the medium.
    pub ok: bool,
    /// Why not, if it ended before its time.
    pub error: Option<String>,
    pub dry_run: bool,
    #[serde(flatten)]
    pub summary: Summary,
    /// What a dry run would move, and delete.
    #[serde(flatten)]
    pub would: Option<Would>,
    /// All that was moved, or compared by digest, has been verified, and something was.
    pub verified: bool,
    /// What was moved is on the medium, as far as its file system tells: false if nothing was.
    pub on_disk: bool,
    /// What `same_files` are known by; `None`: there are none.
    pub same_by: Option<SameBy>,
    /// Content went to another host, and nobody on the way could read it.
    pub encrypted: bool,
    pub seconds: f64,
    pub bits_per_second: f64,
    /// With a dry run: how long it would take, at what the path seems to carry.
    pub estimate_seconds: Option<f64>,
    #[serde(flatten)]
    pub measured: Measured,
}

/// Why files are left as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SameBy {
    /// Their size and time of change are those of the source's.
    SizeAndTime,
    /// Their content is.
    Digest,
    /// Their names are there.
    Name,
    /// Some by the one, some by another: a mark of a copy that did not come to its end has files compared.
    Mixed,
}

impl SameBy {
    /// What the files of a summary are known by that stayed.
    pub fn of(summary: &Summary) -> Option<Self> {
        let Summary { same_files, compared_files, kept_files, .. } = *summary;
        match same_files {
            0 => None,
            same if compared_files >= same => Some(SameBy::Digest),
            same if kept_files >= same => Some(SameBy::Name),
            _ if compared_files + kept_files == 0 => Some(SameBy::SizeAndTime),
            _ => Some(SameBy::Mixed),
        }
    }
}

/// What a dry run would do. None: nobody knows.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Would {
    #[serde(rename = "would_move_files")]
    pub move_files: Option<u64>,
    #[serde(rename = "would_move_bytes")]
    pub move_bytes: Option<u64>,
    #[serde(rename = "would_delete")]
    pub delete: u64,
}

impl Would {
    /// Takes it out of a summary of a dry run, in which nothing was done. Of a `stream` nothing was read,
    /// and it counts as there; if it is not `taken` whatever is there, it is not known whether it would be.
    pub fn take(summary: &mut Summary, stream: bool, taken: bool) -> Self {
        let take = std::mem::take::<u64>;
        let delete = take(&mut summary.deleted);
        let (files, bytes) = (take(&mut summary.moved_files), take(&mut summary.moved_bytes));
        if stream {
            let files = if summary.failed > 0 { 0 } else { take(&mut summary.same_files) };
            let move_files = (taken || files == 0).then_some(files);
            return Would { move_files, move_bytes: (files == 0).then_some(0), delete };
        }
        Would { move_files: Some(files), move_bytes: Some(bytes), delete }
    }
}

/// How a copy went, as a side knows it that has connections.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    /// From the first connection on.
    pub transfer_seconds: f64,
    pub transport: Option<String>,
    /// None where nothing was measured or counted.
    pub rtt_ms: Option<f64>,
    pub packets_sent: Option<u64>,
    pub retransmitted: Option<u64>,
    /// Control packets of UDT that the peer had not sent, seen by this side: an attempt to
    /// disturb the copy.
    #[serde(default)]
    pub forged_packets: u64,
    /// Connections that broke before the copy was over, and were replaced.
    #[serde(default)]
    pub reconnects: u64,
    /// What held it up most of the time; none if it was too short to tell, or nothing stands out.
    pub limited_by: Option<String>,
    /// Share of their time that the lanes of each side spent in each stage.
    pub source_stages: Stages,
    pub sink_stages: Stages,
    /// What each part would do alone.
    pub rates: Rates,
}

impl Measured {
    /// Of a side that has ended.
    pub fn of(going: &Going) -> Self {
        let ended = going.ended.unwrap_or_else(Instant::now);
        let counted = going.packets_sent > 0;
        let transfer_seconds = going.connected.map_or(0.0, |at| (ended - at).as_secs_f64());
        Measured {
            transfer_seconds,
            transport: going.path.clone(),
            rtt_ms: (!going.rtt.is_zero()).then_some(going.rtt.as_secs_f64() * 1e3),
            packets_sent: counted.then_some(going.packets_sent),
            retransmitted: counted.then_some(going.retransmitted),
            forged_packets: going.forged,
            reconnects: going.reconnects,
            limited_by: going.limit().map(|limit| limit.to_string()),
            source_stages: Stages::of(&going.overall.source),
            sink_stages: Stages::of(&going.overall.sink),
            rates: Rates::of(
                &going.overall,
                going.progress.moved,
                transfer_seconds,
                going.capacity,
            ),
        }
    }
}

/// Bits a second of one lane's work in each part by itself, and what the path seems to carry. None:
/// too little of it to tell.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Rates {
    pub source_disk: Option<f64>,
    pub source_hash: Option<f64>,
    pub cipher: Option<f64>,
    pub network: Option<f64>,
    pub sink_hash: Option<f64>,
    pub destination_disk: Option<f64>,
}

impl Rates {
    /// Of times in which `moved` bytes were dealt with. The path's `capacity` is estimated from how
    /// packets arrive, which token buckets and batches deceive: no less than what was achieved in
    /// `seconds` is told.
    pub fn of(evidence: &Evidence, moved: u64, seconds: f64, capacity: f64) -> Self {
        // Less than this is noise.
        const LEAST: u64 = 1000;
        let rate = |times: &[u64; STAGES], stage: Stage| {
            let time = times[stage as usize];
            (time >= LEAST && moved > 0).then(|| moved as f64 * 8.0 / (time as f64 / 1e6))
        };
        Rates {
            source_disk: rate(&evidence.source, Stage::Read),
            source_hash: rate(&evidence.source, Stage::Hash),
            cipher: rate(&evidence.source, Stage::Seal),
            network: (capacity > 0.0).then(|| match seconds > 0.0 {
                true => capacity.max(moved as f64 * 8.0 / seconds),
                false => capacity,
            }),
            sink_hash: rate(&evidence.sink, Stage::Hash),
            destination_disk: rate(&evidence.sink, Stage::Write),
        }
    }

    /// Those that are known, for people.
    fn show(&self) -> String {
        let all = [
            ("reading", self.source_disk),
            ("hashing", self.source_hash),
            ("sealing", self.cipher),
            ("the path", self.network),
            ("checking", self.sink_hash),
            ("writing", self.destination_disk),
        ];
        let known = all
            .iter()
            .filter_map(|(name, rate)| rate.map(|rate| format!("{name} {}", show_rate(rate))));
        known.collect::<Vec<_>>().join(", ")
    }
}

/// Shares of time, 0 to 1.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Stages {
    pub idle: f64,
    pub read: f64,
    pub hash: f64,
    pub seal: f64,
    pub send: f64,
    pub receive: f64,
    pub write: f64,
    pub limit: f64,
    pub find: f64,
}

impl Stages {
    /// Of times spent.
    pub fn of(times: &[u64; farhaul_mover::transfer::stages::STAGES]) -> Self {
        let [idle, read, hash, seal, send, receive, write, limit, find] =
            farhaul_mover::transfer::limit::shares(times);
        Stages { idle, read, hash, seal, send, receive, write, limit, find }
    }

    /// The stages that count, for people.
    fn show(&self) -> String {
        let all = [
            ("finding files", self.find),
            ("waiting for the other side", self.idle),
            ("reading", self.read),
            ("hashing", self.hash),
            ("sealing", self.seal),
            ("waiting for the network", self.send),
            ("receiving", self.receive),
            ("writing", self.write),
            ("held back by a rate limit", self.limit),
        ];
        let some = all.iter().filter(|(_, share)| *share >= 0.01);
        let text: Vec<String> =
            some.map(|(name, share)| format!("{name} {:.0}%", share * 100.0)).collect();
        text.join(", ")
    }
}

impl Report {
    /// What there is beside files.
    fn others(&self) -> String {
        let Summary { directories, symlinks, .. } = self.summary;
        let directories = counted(directories, "directory", "directories");
        format!("{directories}, {}", counted(symlinks, "link", "links"))
    }

    /// The special files, the first of them by name.
    fn show_left_out(&self, out: &mut dyn Write) -> io::Result<()> {
        const NAMED: usize = 5;
        let Summary { skipped, left_out, .. } = &self.summary;
        if *skipped == 0 {
            return Ok(());
        }
        let named: Vec<&str> = left_out.iter().take(NAMED).map(String::as_str).collect();
        let more = skipped.saturating_sub(named.len() as u64);
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        let count = counted(*skipped, "special file", "special files");
        writeln!(out, "left out {count}: {}{more}", named.join("; "))
    }

    /// For people.
    pub fn show(&self, verbose: bool, out: &mut dyn Write) -> io::Result<()> {
        let s = &self.summary;
        if let Some(would) = &self.would {
            let size = would
                .move_bytes
                .map_or("of unknown size".into(), |bytes| format!("({})", show_size(bytes)));
            write!(out, "would copy {} {size}", files(would.move_files.unwrap_or(1)))?;
            if would.move_files.is_none() {
                write!(out, ", unless it is there")?;
            }
            if s.same_files > 0 {
                write!(out, "; {} there already", files_are(s.same_files))?;
            }
            if s.directories + s.symlinks > 0 {
                write!(out, "; {}", self.others())?;
            }
            writeln!(out)?;
            if would.delete > 0 {
                writeln!(out, "would delete {}", counted(would.delete, "entry", "entries"))?;
            }
            if s.not_deleted > 0 {
                let more = counted(s.not_deleted, "more entry", "more entries");
                writeln!(out, "would leave {more} for --max-delete")?;
            }
            if s.failed > 0 {
                writeln!(out, "could not copy {}", counted(s.failed, "entry", "entries"))?;
            }
            self.show_left_out(out)?;
            return match self.estimate_seconds {
                Some(seconds) if seconds < 1.0 => writeln!(out, "it would take less than 1 s"),
                Some(seconds) => writeln!(out, "it would take about {}", duration(seconds)),
                None if would.move_bytes.is_none() => Ok(()),
                None => writeln!(
                    out,
                    "how long it would take is not known: --rate says what to reckon with"
                ),
            };
        }
        write!(out, "copied {}, {}", files(s.moved_files), show_size(s.moved_bytes))?;
        if s.data_bytes < s.moved_bytes / 100 * 99 {
            write!(out, " ({} without holes)", show_size(s.data_bytes))?;
        }
        write!(out, " in {}", duration(self.seconds))?;
        if s.data_bytes > 0 {
            write!(out, " ({})", show_rate(self.bits_per_second))?;
        }
        let none = s.failed > 0 && s.moved_files == 0;
        // Of those, too, nobody knows then how many are there.
        if s.directories + s.symlinks > 0 && !none {
            write!(out, "; {}", self.others())?;
        }
        if s.resumed_bytes > 0 {
            write!(out, "; {} were there from before", show_size(s.resumed_bytes))?;
        }
        if let Some(same_by) = self.same_by {
            let known = match same_by {
                SameBy::SizeAndTime => "unchanged by size and time".to_owned(),
                SameBy::Digest => "unchanged by content".to_owned(),
                SameBy::Name => "left as they were".to_owned(),
                SameBy::Mixed => {
                    format!("unchanged, {} of them by content", files(s.compared_files))
                }
            };
            write!(out, "; {} {known}", files(s.same_files))?;
        }
        if s.deleted > 0 {
            write!(out, "; {} deleted", s.deleted)?;
        }
        if s.not_deleted > 0 {
            write!(out, "; {} not deleted", s.not_deleted)?;
        }
        if s.failed > 0 {
            write!(out, "; {} failed", s.failed)?;
        }
        let over = self.ok || s.failed > 0;
        let end = match (self.verified, self.on_disk) {
            _ if !over => "; not complete",
            _ if none => "; no file was copied",
            (true, true) => "; verified and on disk",
            (true, false) => "; verified",
            (false, true) => "; on disk, not verified",
            (false, false) if s.moved_files > 0 => "; not verified",
            (false, false) => "",
        };
        writeln!(out, "{end}")?;
        self.show_left_out(out)?;
        if verbose {
            let Measured { limited_by, rtt_ms, packets_sent, retransmitted, .. } = &self.measured;
            let nothing = "nothing that stands out";
            writeln!(out, "limited by: {}", limited_by.as_deref().unwrap_or(nothing))?;
            let sides = [
                ("sender:  ", self.measured.source_stages.show()),
                ("receiver:", self.measured.sink_stages.show()),
                ("alone:   ", self.measured.rates.show()),
            ];
            for (side, shown) in sides.iter().filter(|(_, shown)| !shown.is_empty()) {
                writeln!(out, "{side} {shown}")?;
            }
            if let (Some(transport), Some(rtt_ms)) = (&self.measured.transport, rtt_ms) {
                write!(out, "{transport}, rtt {rtt_ms:.1} ms")?;
                if let (Some(again), Some(sent)) = (retransmitted, packets_sent) {
                    let share = *again as f64 * 100.0 / *sent as f64;
                    write!(out, ", retransmitted {share:.2}%")?;
                }
                if self.measured.forged_packets > 0 {
                    let count = self.measured.forged_packets;
                    write!(out, ", {}", counted(count, "forged packet", "forged packets"))?;
                }
                if self.measured.reconnects > 0 {
                    let count = self.measured.reconnects;
                    write!(out, ", {}", counted(count, "reconnect", "reconnects"))?;
                }
                writeln!(out)?;
            }
        }
        Ok(())
    }
}

fn counted(count: u64, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

fn files(count: u64) -> String {
    counted(count, "file", "files")
}

fn files_are(count: u64) -> String {
    counted(count, "file is", "files are")
}

fn duration(seconds: f64) -> String {
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if seconds >= 60.0 => show_time(time),
        Ok(_) => format!("{seconds:.1} s"),
        Err(_) => "a very long time".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_files_are_known_by_is_told_of_all_of_them() {
        let known = |same_files, compared_files, kept_files| {
            SameBy::of(&Summary { same_files, compared_files, kept_files, ..Summary::default() })
        };
        assert_eq!(known(0, 0, 0), None);
        assert_eq!(known(3, 0, 0), Some(SameBy::SizeAndTime));
        assert_eq!(known(3, 3, 0), Some(SameBy::Digest));
        assert_eq!(known(3, 0, 3), Some(SameBy::Name));
        assert_eq!(known(3, 1, 0), Some(SameBy::Mixed));
        assert_eq!(known(3, 1, 2), Some(SameBy::Mixed));
    }

    /// A path that was estimated at less than has gone over it carries at least that.
    #[test]
    fn the_path_carries_what_was_achieved() {
        let network = |moved, seconds, capacity| {
            Rates::of(&Evidence::default(), moved, seconds, capacity).network
        };
        assert_eq!(network(21_000_000, 4.0, 19.43e6), Some(42e6));
        assert_eq!(network(21_000_000, 4.0, 50e6), Some(50e6));
        assert_eq!(network(21_000_000, 0.0, 50e6), Some(50e6));
        assert_eq!(network(21_000_000, 4.0, 0.0), None);
    }
}
