//! What a side of a copy is to do, in a form that goes to the other host. What a side does not know of it
//! is refused, never passed over: it may be what a newer version restricts.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use farhaul::{Law, Options};
use farhaul_mover::transfer::sink::{CopyId, Existing, Preserve};
use farhaul_mover::transfer::{adapt, session};
use serde::{Deserialize, Serialize};

/// What all lanes together may take where the user sets nothing, bytes; of what is received half is
/// for the data itself. Two lanes fill a path of 1 Gb/s and 190 ms; more are opened where that helps. With
/// all of it in use a side stays below 200 MiB, which leaves something of the 256 MB that it may take.
const RECEIVE_MEMORY: u64 = 192 << 20;
const SEND_MEMORY: u64 = 96 << 20;
/// But a lane not less than this.
const LEAST_MEMORY: u64 = 4 << 20;

/// A path or a name as bytes: not all are text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bytes(Vec<u8>);

impl From<&Path> for Bytes {
    fn from(path: &Path) -> Self {
        Bytes(path.as_os_str().as_bytes().to_vec())
    }
}

impl Bytes {
    /// As a path. What follows a `~/` at its beginning, or nothing, is below the home directory.
    pub fn path_at_home(&self) -> PathBuf {
        let path = PathBuf::from(OsString::from_vec(self.0.clone()));
        let home = || std::env::var_os("HOME").map(PathBuf::from);
        match self.0.as_slice() {
            b"" => ".".into(),
            b"~" => home().unwrap_or(path),
            [b'~', b'/', rest @ ..] => match home() {
                Some(home) => home.join(Path::new(std::ffi::OsStr::from_bytes(rest))),
                None => path,
            },
            _ => path,
        }
    }

    /// As a path, as it is.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(OsString::from_vec(self.0.clone()))
    }
}

/// What both sides of a copy are told alike.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    /// Verify everything.
    pub verify: bool,
    /// Move nothing.
    pub dry_run: bool,
    /// How long to go on without connection, ms.
    pub outage_ms: u64,
    /// Lanes to begin with.
    pub lanes: u32,
    /// The number of lanes stays as it is.
    pub fixed_lanes: bool,
    /// The law of the source's sending side.
    pub cc: String,
    /// Of UDT, bytes.
    pub mss: u32,
    /// Of UDT, bytes.
    pub receive_memory: Option<u64>,
    /// Of UDT, bytes.
    pub send_memory: Option<u64>,
    /// The most that the source sends, bits/s.
    pub rate: Option<u64>,
    /// What is kept of entries beside their content.
    pub preserve: Kept,
    /// Data goes unsealed.
    pub plain: bool,
}

/// [`Preserve`], for the other host.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    pub mode: bool,
    pub times: bool,
    pub owner: bool,
    pub xattrs: bool,
    pub hard_links: bool,
    pub sparse: bool,
}

impl From<Kept> for Preserve {
    fn from(kept: Kept) -> Self {
        let Kept { mode, times, owner, xattrs, hard_links, sparse } = kept;
        Preserve { mode, times, owner, xattrs, hard_links, sparse }
    }
}

impl Terms {
    /// How the transfer is driven.
    pub fn session(&self, id: [u8; 16], cancel: farhaul_mover::Cancel) -> session::Options {
        let outage = Duration::from_millis(self.outage_ms);
        session::Options { session: id, outage, lanes: self.lanes, cancel }
    }

    /// The options of UDT.
    ///
    /// # Errors
    ///
    /// This host does not know the law.
    pub fn transport(&self) -> Result<Options, String> {
        self.wire().options()
    }

    /// What they say of UDT.
    pub fn wire(&self) -> Wire {
        Wire {
            cc: self.cc.clone(),
            mss: self.mss,
            receive_memory: self.receive_memory.unwrap_or(self.share(RECEIVE_MEMORY)),
            send_memory: self.send_memory.unwrap_or(self.share(SEND_MEMORY)),
        }
    }

    /// A lane's part of what all of them may take.
    fn share(&self, all: u64) -> u64 {
        let lanes = if self.fixed_lanes { self.lanes.max(1) } else { adapt::MOST };
        (all / u64::from(lanes)).max(LEAST_MEMORY)
    }

    /// See [`Wire::most_window`].
    pub fn most_window(&self) -> u32 {
        self.wire().most_window()
    }
}

/// How UDT is spoken: see [`Terms`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wire {
    pub cc: String,
    pub mss: u32,
    pub receive_memory: u64,
    pub send_memory: u64,
}

impl Wire {
    /// As options of UDT.
    ///
    /// # Errors
    ///
    /// This host does not know the law.
    pub fn options(&self) -> Result<Options, String> {
        let law: Law = self.cc.parse().map_err(|error| format!("--cc {}: {error}", self.cc))?;
        let options = Options::new().law(law).mss(self.mss);
        let (receive, send) = (self.receive_memory as usize, self.send_memory as usize);
        Ok(options.receive_memory(receive).send_memory(send))
    }

    /// The largest window that the memory of a receiver of UDT allows, packets.
    pub fn most_window(&self) -> u32 {
        let packets = self.receive_memory / 2 / u64::from(self.mss.max(1));
        u32::try_from(packets).unwrap_or(u32::MAX)
    }
}

/// How an agent listens that has no order yet. Everybody on its host can read it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listen {
    /// For UDT.
    pub udp: bool,
    /// For TCP.
    pub tcp: bool,
    /// Data goes unsealed.
    pub plain: bool,
    /// Ports that it may listen at.
    pub ports: Option<(u16, u16)>,
    /// How UDT is spoken.
    pub wire: Wire,
}

/// One side's part.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Job {
    /// Reads.
    Source(SourceJob),
    /// Writes.
    Sink(SinkJob),
}

/// What to read.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceJob {
    /// The sources.
    pub paths: Vec<Bytes>,
    /// Standard input instead of paths.
    pub stream: bool,
    /// Patterns, and whether what they match is taken.
    pub rules: Vec<(String, bool)>,
    /// Count beforehand.
    pub count: bool,
    /// The target is standard output, which no directory can go to.
    pub one_file: bool,
}

/// Where to write.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SinkJob {
    /// The target.
    pub path: Bytes,
    /// Standard output instead of a path.
    pub stream: bool,
    /// It must be a directory.
    pub directory: bool,
    /// What becomes of what is there.
    pub existing: OnExisting,
    /// Remove what the source does not have.
    pub delete: bool,
    /// Remove at most so many entries.
    pub max_delete: Option<u64>,
    /// Remove entries also where the source has nothing at all.
    pub allow_empty: bool,
    /// As of [`SourceJob::rules`]: what is left out by these is not removed.
    pub spared: Vec<(String, bool)>,
    /// Keep set-user-ID and set-group-ID bits.
    pub keep_set_id: bool,
    /// Take the digests of files that are not moved, too.
    pub want_digests: bool,
    /// Do not read again what an earlier copy has waited for to be on the medium.
    pub trust_partial: bool,
    /// What the copy is known by when it is run again.
    pub copy: CopyId,
}

/// [`Existing`], for the other host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExisting {
    #[default]
    Update,
    Overwrite,
    Keep,
    Checksum,
}

impl From<OnExisting> for Existing {
    fn from(existing: OnExisting) -> Self {
        match existing {
            OnExisting::Update => Existing::Update,
            OnExisting::Overwrite => Existing::Overwrite,
            OnExisting::Keep => Existing::Keep,
            OnExisting::Checksum => Existing::Checksum,
        }
    }
}

/// What a server is asked for. Paths are relative to the export.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServedOrder {
    /// The export's name.
    pub export: String,
    /// The server's part.
    pub job: Job,
    /// What both sides are told.
    pub terms: Terms,
}

/// What an agent is told first, beside what the bootstrap needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// Its part.
    pub job: Job,
    /// What both sides are told.
    pub terms: Terms,
    /// Ports that it may listen at.
    pub ports: Option<(u16, u16)>,
    /// Tell the controller how it goes: it has no part of its own.
    pub tell: bool,
    /// The directories of the controller's part.
    pub peer: Option<super::itself::Peer>,
}

/// What an agent tells its controller afterwards, and before if it was asked to.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Told {
    /// A line for the user.
    Note(String),
    /// Something failed, and the transfer goes on.
    Failed(String),
    /// An entry of the target was deleted, or would be.
    Deleted(Bytes),
    /// A file is over.
    File(FileLine),
    /// How it goes.
    Progress(ProgressLine),
    /// It is over.
    End {
        /// What was done.
        summary: Box<super::report::Summary>,
        /// How it went.
        measured: Box<super::report::Measured>,
        /// Why it ended before its time: the exit code and the text.
        error: Option<(u8, String)>,
    },
}

/// A file that is over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FileLine {
    /// Relative to the target.
    pub path: Bytes,
    /// Bytes.
    pub size: u64,
    /// In hexadecimal digits.
    pub digest: Option<String>,
    /// The digest is that of a file with holes.
    pub sparse: bool,
    /// `moved`, `same` or `kept`.
    pub outcome: String,
}

impl FileLine {
    /// What its digest is of, if it has one: `blake3`, which b3sum prints, or `blake3-sparse`, that of a
    /// file with holes.
    pub fn hash(&self) -> Option<&'static str> {
        self.digest.as_ref().map(|_| if self.sparse { "blake3-sparse" } else { "blake3" })
    }
}

/// How far it is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ProgressLine {
    pub files: u64,
    pub bytes: u64,
    pub moved: u64,
    pub total_files: Option<u64>,
    pub total_bytes: Option<u64>,
    pub rtt_ms: f64,
    pub retransmitted: f64,
    pub path: String,
    pub limit: String,
    pub current: String,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// All objects of `value`, each with a member more than it has, one at a time.
    fn with_one_more(value: &Value) -> Vec<Value> {
        let mut all = Vec::new();
        if let Value::Object(members) = value {
            let mut more = members.clone();
            more.insert("newer".to_owned(), json!(true));
            all.push(Value::Object(more));
            for (name, member) in members {
                for changed in with_one_more(member) {
                    let mut members = members.clone();
                    members.insert(name.clone(), changed);
                    all.push(Value::Object(members));
                }
            }
        }
        all
    }

    #[test]
    fn what_a_side_does_not_know_of_its_part_is_refused() {
        let terms = json!({
            "verify": true, "dry_run": false, "outage_ms": 1, "lanes": 1, "fixed_lanes": false,
            "cc": "bbr", "mss": 1500, "receive_memory": null, "send_memory": null, "rate": null,
            "preserve": {
                "mode": true, "times": true, "owner": false, "xattrs": false, "hard_links": false,
                "sparse": false,
            },
            "plain": false,
        });
        let source = json!({"source": {
            "paths": [[97]], "stream": false, "rules": [["*", true]], "count": false, "one_file": false,
        }});
        let sink = json!({"sink": {
            "path": [97], "stream": false, "directory": true, "existing": "update", "delete": false,
            "max_delete": null, "allow_empty": false, "spared": [], "keep_set_id": false,
            "want_digests": false, "trust_partial": false, "copy": CopyId::default(),
        }});
        for job in [source, sink] {
            let served = json!({"export": "data", "job": job, "terms": terms});
            assert!(serde_json::from_value::<ServedOrder>(served.clone()).is_ok());
            let more = with_one_more(&served);
            assert_eq!(
                more.len(),
                5,
                "an order, its job with its kind, its terms and what they keep"
            );
            for order in more {
                assert!(serde_json::from_value::<ServedOrder>(order.clone()).is_err(), "{order}");
            }
            let told =
                json!({"job": job, "terms": terms, "ports": [1, 2], "tell": true, "peer": null});
            assert!(serde_json::from_value::<Order>(told.clone()).is_ok());
            for order in with_one_more(&told) {
                assert!(serde_json::from_value::<Order>(order.clone()).is_err(), "{order}");
            }
        }
    }
}
