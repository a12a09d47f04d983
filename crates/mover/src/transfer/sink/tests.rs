//! A sink between a scripted source and a real directory.

mod attributes;
mod files;
mod hostile;
mod marks;
mod places;
mod small;
mod streams;
mod trees;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::frame::{Attributes, Timestamp};
use crate::transfer::block::{Block, Piece};
use crate::transfer::event::Outcome;
use crate::transfer::interrupt::Interrupt;
use crate::transfer::journal::Origin;
use crate::transfer::link::LinkHandle;
use crate::transfer::message::{Entry, Verdict, What};
use crate::transfer::tree_hash::{CHUNK, ChunkTree, leaf, whole};

/// What both sides of a test have in common.
#[derive(Default)]
struct World {
    said: Mutex<Vec<Message>>,
    changed: Condvar,
    told: Mutex<Vec<String>>,
}

/// A source that says what a test wants.
struct Script<'a> {
    sink: &'a Sink<'a>,
    world: &'a World,
    entries: u64,
    blocks: u64,
    tally: Tally,
}

struct NoHandle;

impl LinkHandle for NoHandle {
    fn abort(&self) {}

    fn describe(&self) -> String {
        "memory".into()
    }
}

const TIME: Timestamp = Timestamp { seconds: 1_000_000_000, nanoseconds: 123_456_789 };
const ORIGIN: Origin = Origin { changed: TIME, inode: 5 };

fn attributes(mode: u16) -> Attributes {
    Attributes { mode, accessed: TIME, modified: TIME }
}

fn into(path: &Path) -> SinkOptions {
    SinkOptions::new(SinkTarget::Path { path: path.into(), directory: true })
}

/// Runs a script against a sink; what the worker's end was, too.
fn run<T>(
    options: SinkOptions,
    script: impl FnOnce(&mut Script<'_>) -> T,
) -> (T, Result<(), TransferError>, World) {
    run_on(options, |directory| rustix::fs::syncfs(directory), script)
}

/// The same on file systems whose sync this is.
fn run_on<T>(
    options: SinkOptions,
    syncfs: fn(&OwnedFd) -> rustix::io::Result<()>,
    script: impl FnOnce(&mut Script<'_>) -> T,
) -> (T, Result<(), TransferError>, World) {
    let world = World::default();
    let (result, worked) = {
        let say = Box::new(|message: Message| {
            // Only what could be sent is said.
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            assert!(matches!(message, Message::Failed { .. }) || Message::decode(&bytes).is_ok());
            lock(&world.said).push(message);
            world.changed.notify_all();
        });
        let observe = |event: Event<'_>| lock(&world.told).push(tell(&event));
        let mut sink = Sink::new(options, say, Arc::default(), &observe).unwrap();
        sink.syncfs = syncfs;
        thread::scope(|threads| {
            let worker = threads.spawn(|| sink.work());
            let mut source = Script {
                sink: &sink,
                world: &world,
                entries: 0,
                blocks: 0,
                tally: Tally::default(),
            };
            let guard = Stop(&sink);
            let result = script(&mut source);
            drop(guard);
            (result, worker.join().unwrap())
        })
    };
    (result, worked, world)
}

/// So that a script that panics does not leave a worker behind.
struct Stop<'a>(&'a Sink<'a>);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

fn tell(event: &Event<'_>) -> String {
    match event {
        Event::File { path, outcome, .. } => {
            let outcome = match outcome {
                Outcome::Moved { resumed: 0 } => "moved".to_owned(),
                Outcome::Moved { resumed } => format!("moved after {resumed}"),
                Outcome::Same { .. } => "same".to_owned(),
                Outcome::Kept => "kept".to_owned(),
            };
            format!("{} {outcome}", path.display())
        }
        Event::Failed { failure, .. } => format!("failed {failure}"),
        Event::Deleted { path } => format!("deleted {}", path.display()),
        Event::Note(text) => format!("note {text}"),
        other => format!("{other:?}"),
    }
}

impl World {
    /// Waits for something that the sink says, and takes it.
    fn wait<T>(&self, wanted: impl Fn(&Message) -> Option<T>) -> T {
        let until = Instant::now() + Duration::from_secs(20);
        let mut said = lock(&self.said);
        loop {
            let found = said.iter().enumerate().find_map(|(at, m)| wanted(m).map(|t| (at, t)));
            if let Some((at, found)) = found {
                said.remove(at);
                return found;
            }
            assert!(Instant::now() < until, "it only said {said:?}");
            said = self.changed.wait_timeout(said, Duration::from_millis(100)).unwrap().0;
        }
    }

    fn told(&self) -> Vec<String> {
        let mut told = lock(&self.told).clone();
        told.sort();
        told
    }
}

impl Script<'_> {
    fn say(&self, message: Message) -> Result<Flow, TransferError> {
        self.sink.message(message)
    }

    fn entry(&mut self, name: &[u8], mode: u16, what: What) -> u64 {
        self.try_entry(name, mode, what).unwrap()
    }

    fn try_entry(&mut self, name: &[u8], mode: u16, what: What) -> Result<u64, TransferError> {
        let number = self.entries;
        self.entries += 1;
        match &what {
            What::Directory => self.tally.directories += 1,
            What::Symlink(_) => self.tally.symlinks += 1,
            What::File { size, .. } => {
                self.tally.files += 1;
                self.tally.bytes = self.tally.bytes.saturating_add(*size);
            }
            _ => self.tally.files += 1,
        }
        let entry = Entry { name: name.into(), attributes: attributes(mode), extra: None, what };
        self.say(Message::Entry(entry)).map(|_| number)
    }

    fn directory(&mut self, name: &str) -> u64 {
        self.entry(name.as_bytes(), 0o755, What::Directory)
    }

    fn leave(&self) {
        self.say(Message::Leave { complete: true }).unwrap();
    }

    fn announce(&mut self, name: &str, size: u64) -> u64 {
        self.entry(name.as_bytes(), 0o644, What::File { size, sparse: false, origin: ORIGIN })
    }

    fn verdict(&self, file: u64) -> Verdict {
        self.world.wait(|message| match message {
            Message::Verdict { file: other, verdict } if *other == file => Some(verdict.clone()),
            _ => None,
        })
    }

    /// Announces a small file and sends it.
    fn small(&mut self, name: &str, data: &[u8]) -> u64 {
        let file = self.announce(name, data.len() as u64);
        assert_eq!(self.verdict(file), Verdict::Take { have: Vec::new() });
        self.send(&[(whole_piece(file, data), data)]).unwrap();
        file
    }

    /// Sends one block over a lane of its own.
    fn send(&mut self, pieces: &[(Piece, &[u8])]) -> Result<(), LaneEnd> {
        let mut block = Block::default();
        self.blocks += 1;
        block.clear(self.blocks);
        for (piece, data) in pieces {
            let fill = |room: &mut [u8]| {
                room.copy_from_slice(data);
                Ok::<_, ()>((data.len(), *piece))
            };
            block.add(data.len(), fill).unwrap();
        }
        let mut bytes = Vec::new();
        block.write_to(&mut bytes).unwrap();
        block.clear(0);
        block.write_to(&mut bytes).unwrap();
        self.lane(&bytes)?;
        let number = self.blocks;
        self.world.wait(|m| (*m == Message::Stored { block: number }).then_some(()));
        Ok(())
    }

    fn lane(&self, mut bytes: &[u8]) -> Result<(), LaneEnd> {
        let reader = &mut bytes;
        let writer = &mut io::sink();
        let keep = || true;
        self.sink.lane(Lane {
            number: 1,
            reader,
            writer,
            handle: &NoHandle,
            interrupt: &Interrupt::default(),
            keep: &keep,
        })
    }

    /// Sends a chunk of a file.
    fn chunk(&mut self, file: u64, index: u64, data: &[u8]) -> Result<(), LaneEnd> {
        let at = (index * CHUNK) as usize;
        let chunk = &data[at..data.len().min(at + CHUNK as usize)];
        let piece = chunk_piece(file, data.len() as u64, index, chunk);
        self.send(&[(piece, chunk)])
    }

    fn file_end(&self, file: u64, data: &[u8]) -> Result<Flow, TransferError> {
        let digest = Some(blake3::hash(data).into());
        self.say(Message::FileEnd { file, digest, size: data.len() as u64 })
    }

    fn finished(&self, file: u64) {
        self.world.wait(|m| (*m == Message::Finished { file }).then_some(()));
    }

    fn failed(&self, file: u64) -> String {
        self.world.wait(|message| match message {
            Message::Failed { entry, text } if *entry == file => Some(text.clone()),
            _ => None,
        })
    }

    fn end(&mut self) -> (Tally, u64, u64) {
        self.end_with(true)
    }

    /// Says the end, and hears the receipt: tally, failed, deleted.
    fn end_with(&mut self, complete: bool) -> (Tally, u64, u64) {
        self.say(Message::End { tally: self.tally, omitted: 0, complete }).unwrap();
        let receipt = self.world.wait(|message| match message {
            Message::Receipt { tally, failed, deleted } => Some((*tally, *failed, *deleted)),
            _ => None,
        });
        assert_eq!(receipt.0, self.tally);
        assert_eq!(self.say(Message::Done).unwrap(), Flow::Over);
        receipt
    }
}

fn whole_piece(entry: u64, data: &[u8]) -> Piece {
    Piece { entry, offset: 0, length: 0, whole: true, version: 0, hash: whole(data) }
}

fn chunk_piece(entry: u64, size: u64, index: u64, data: &[u8]) -> Piece {
    let hash = leaf(size, false, index, data);
    Piece { entry, offset: index * CHUNK, length: 0, whole: false, version: 0, hash }
}

/// Bytes that differ everywhere.
fn noise(length: usize) -> Vec<u8> {
    let mut data = vec![0; length];
    blake3::Hasher::new().finalize_xof().fill(&mut data);
    data
}

fn is_violation<T: std::fmt::Debug>(result: Result<T, LaneEnd>) -> bool {
    matches!(result, Err(LaneEnd::Fatal(TransferError::Violation(_))))
}

/// All paths below a directory with content: none for directories.
fn tree(root: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut todo = vec![root.to_path_buf()];
    while let Some(directory) = todo.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let kind = path.symlink_metadata().unwrap();
            let content = if kind.is_file() { Some(fs::read(&path).unwrap()) } else { None };
            if kind.is_dir() {
                todo.push(path.clone());
            }
            found.insert(path.strip_prefix(root).unwrap().to_path_buf(), content);
        }
    }
    found
}

fn names(root: &Path) -> Vec<String> {
    tree(root).keys().map(|path| path.display().to_string()).collect()
}
