//! What the tests of this crate share: transfers over a socket pair, pictures of trees, and
//! hand-written senders.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses its part of this")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;

use proptest::test_runner::{Config as ProptestConfig, RngSeed};

use farhaul_mover::digest::{ContentHasher, Transcript};
use farhaul_mover::frame::{Attributes, Frame, Preamble, Role, Tally, Timestamp, VERSION};
use farhaul_mover::name::Name;
use farhaul_mover::{
    Event, ReceiveError, ReceiveOptions, SendError, SendOptions, Summary, receive, send,
};

/// The same cases in every run.
pub fn seeded(cases: u32) -> ProptestConfig {
    let rng_seed = RngSeed::Fixed(0x6661_7268);
    ProptestConfig { cases, rng_seed, failure_persistence: None, ..ProptestConfig::default() }
}

pub type Sent = Result<Summary, SendError>;
pub type Received = Result<Summary, ReceiveError>;

/// A transfer between two threads, both options default.
pub fn transfer(paths: &[PathBuf], into: &Path) -> (Sent, Received) {
    transfer_with(paths, into, &SendOptions::default(), &ReceiveOptions::default(), |_| {}, |_| {})
}

/// A transfer between two threads. Each side closes its end of the stream when it is done.
pub fn transfer_with(
    paths: &[PathBuf],
    into: &Path,
    send_options: &SendOptions,
    receive_options: &ReceiveOptions,
    mut sender_saw: impl FnMut(Event<'_>),
    mut receiver_saw: impl FnMut(Event<'_>) + Send,
) -> (Sent, Received) {
    let (near, far) = UnixStream::pair().unwrap();
    thread::scope(|scope| {
        let receiver =
            scope.spawn(move || receive(into, (&far, &far), receive_options, &mut receiver_saw));
        let sent = send(paths, (&near, &near), send_options, &mut sender_saw);
        drop(near);
        (sent, receiver.join().unwrap())
    })
}

/// Everything about one entry that a transfer keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub mode: u32,
    pub accessed: (i64, i64),
    pub modified: (i64, i64),
    pub content: Content,
}

#[derive(Clone, PartialEq, Eq)]
pub enum Content {
    File(Vec<u8>),
    Directory,
    Link(PathBuf),
    Other,
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Content::File(bytes) => {
                write!(f, "File({} bytes, {})", bytes.len(), blake3::hash(bytes).to_hex())
            }
            Content::Directory => f.write_str("Directory"),
            Content::Link(target) => write!(f, "Link({target:?})"),
            Content::Other => f.write_str("Other"),
        }
    }
}

pub type Tree = BTreeMap<PathBuf, Entry>;

/// A picture of everything below `root`; access times are taken before reading changes them.
pub fn picture(root: &Path) -> Tree {
    let mut tree = Tree::new();
    add_to_picture(root, Path::new(""), &mut tree);
    tree
}

fn add_to_picture(root: &Path, below: &Path, tree: &mut Tree) {
    let names: Vec<_> =
        fs::read_dir(root.join(below)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    for name in names {
        let relative = below.join(name);
        let path = root.join(&relative);
        let meta = fs::symlink_metadata(&path).unwrap();
        let content = if meta.is_dir() {
            add_to_picture(root, &relative, tree);
            Content::Directory
        } else if meta.is_symlink() {
            Content::Link(fs::read_link(&path).unwrap())
        } else if meta.is_file() {
            Content::File(fs::read(&path).unwrap())
        } else {
            Content::Other
        };
        let entry = Entry {
            mode: meta.mode() & 0o7777,
            accessed: (meta.atime(), meta.atime_nsec()),
            modified: (meta.mtime(), meta.mtime_nsec()),
            content,
        };
        tree.insert(relative, entry);
    }
}

/// The same without access times, which reading changes.
pub fn without_access_times(mut tree: Tree) -> Tree {
    tree.values_mut().for_each(|entry| entry.accessed = (0, 0));
    tree
}

/// Fails if an unfinished entry was left anywhere below `root`.
#[track_caller]
pub fn assert_no_leftovers(root: &Path) {
    let left: Vec<_> = paths(root)
        .into_iter()
        .filter(|path| path.file_name().unwrap().as_bytes().starts_with(b".farhaul-"))
        .collect();
    assert!(left.is_empty(), "left over: {left:?}");
}

/// Every path below `root`, sorted; none if there is no `root`.
pub fn paths(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut todo = vec![PathBuf::new()];
    while let Some(below) = todo.pop() {
        let Ok(directory) = fs::read_dir(root.join(&below)) else { continue };
        for entry in directory {
            let entry = entry.unwrap();
            let path = below.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                todo.push(path.clone());
            }
            found.push(path);
        }
    }
    found.sort();
    found
}

/// A directory with the target `into` and, beside it, something to attack.
pub struct Place {
    pub dir: tempfile::TempDir,
    pub into: PathBuf,
    before: Tree,
}

pub fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    let into = dir.path().join("into");
    fs::create_dir_all(dir.path().join("outside/sub")).unwrap();
    fs::write(dir.path().join("outside/secret"), "untouched").unwrap();
    let before = picture(dir.path());
    fs::create_dir(&into).unwrap();
    Place { dir, into, before }
}

impl Place {
    pub fn outside(&self) -> String {
        self.dir.path().join("outside").to_str().unwrap().to_owned()
    }

    /// Nothing but the target changed, and nothing unfinished is left in it.
    #[track_caller]
    pub fn assert_safe(&self) {
        assert_no_leftovers(&self.into);
        let mut after = picture(self.dir.path());
        after.retain(|path, _| !path.starts_with("into"));
        assert_eq!(without_access_times(after), without_access_times(self.before.clone()));
    }

    #[track_caller]
    pub fn assert_arrived(&self, expected: &[&str]) {
        self.assert_safe();
        let expected: Vec<PathBuf> = expected.iter().map(PathBuf::from).collect();
        assert_eq!(paths(&self.into), expected);
    }
}

/// What a hand-written sender says. Frames are recorded as an honest sender would.
#[derive(Clone, Default)]
pub struct Script {
    pub bytes: Vec<u8>,
    /// Where each frame begins.
    pub starts: Vec<usize>,
    tally: Tally,
    frames: Vec<u8>,
    size: u64,
}

impl Script {
    pub fn new() -> Self {
        let preamble = Preamble { version: VERSION, role: Role::Sender };
        Script { bytes: preamble.encode().to_vec(), ..Script::default() }
    }

    /// Bytes instead of frames.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Script { bytes: bytes.to_vec(), ..Script::default() }
    }

    pub fn frame(mut self, frame: Frame<'_>) -> Self {
        self.starts.push(self.bytes.len());
        let start = self.bytes.len();
        frame.encode(&mut self.bytes);
        match frame {
            Frame::Data(_) | Frame::Hole { .. } | Frame::Totals { .. } => {}
            Frame::End { .. } | Frame::Abort { .. } | Frame::Done => {}
            _ => self.frames.extend_from_slice(&self.bytes[start..]),
        }
        match frame {
            Frame::Directory { .. } => self.tally.directories += 1,
            Frame::Symlink { .. } => self.tally.symlinks += 1,
            Frame::File { size, .. } => self.size = size,
            Frame::FileEnd { .. } => {
                self.tally.files += 1;
                self.tally.bytes += self.size;
            }
            _ => {}
        }
        self
    }

    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.starts.push(self.bytes.len());
        self.bytes.extend_from_slice(bytes);
        self
    }

    pub fn directory(self, as_name: &str) -> Self {
        self.frame(Frame::Directory { name: name(as_name), attributes: attributes(0o755) })
    }

    pub fn leave(self) -> Self {
        self.frame(Frame::Leave)
    }

    pub fn link(self, as_name: &str, target: &str) -> Self {
        let target = target.as_bytes();
        self.frame(Frame::Symlink { name: name(as_name), attributes: attributes(0o777), target })
    }

    pub fn begin(self, as_name: &str, size: u64) -> Self {
        self.frame(Frame::File { name: name(as_name), attributes: attributes(0o644), size })
    }

    pub fn file(self, as_name: &str, content: &[u8]) -> Self {
        let mut script = self.begin(as_name, content.len() as u64);
        let mut hasher = ContentHasher::default();
        for piece in content.chunks(100) {
            hasher.data(piece);
            script = script.frame(Frame::Data(piece));
        }
        script.frame(Frame::FileEnd { digest: hasher.finish() })
    }

    /// The end that an honest sender of all this would announce.
    pub fn end(self) -> Self {
        let end = self.honest_end();
        self.frame(end)
    }

    pub fn honest_end(&self) -> Frame<'static> {
        let mut transcript = Transcript::default();
        transcript.frame(&self.frames);
        Frame::End { tally: self.tally, omitted: 0, transcript: transcript.digest() }
    }

    /// Plays it to a receiver. What the receiver answered comes with its result.
    pub fn play(&self, into: &Path) -> (Received, Vec<u8>) {
        self.play_with(into, &ReceiveOptions::default())
    }

    pub fn play_with(&self, into: &Path, options: &ReceiveOptions) -> (Received, Vec<u8>) {
        let mut answer = Vec::new();
        let received = receive(into, (&self.bytes[..], &mut answer), options, &mut |_| {});
        (received, answer)
    }
}

pub fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

pub fn attributes(mode: u16) -> Attributes {
    let time = Timestamp { seconds: 1_700_000_000, nanoseconds: 42 };
    Attributes { mode, accessed: time, modified: time }
}

/// Splits what a side said into its frames, after the preamble.
pub fn frames(mut said: &[u8]) -> Vec<Frame<'_>> {
    said = said.get(Preamble::SIZE..).unwrap_or_default();
    let mut frames = Vec::new();
    while let Some((frame, used)) = Frame::decode(said).unwrap() {
        frames.push(frame);
        said = &said[used..];
    }
    assert!(said.is_empty(), "half a frame at the end");
    frames
}

/// A stream that takes everything.
pub struct Sink;

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
