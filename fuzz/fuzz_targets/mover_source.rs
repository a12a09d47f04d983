//! Whatever a sink says, in whatever order: a source does not panic, ends when it is told to, and sends no
//! more than it was asked for.
//!
//! The input is a byte of options and a list of frames: a byte that says what it is, two for its length, and
//! the bytes of a message. Messages of some kinds are also made from the kind alone, so that floods of them
//! are short inputs.

#![no_main]

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use farhaul_mover::transfer::block::{BLOCK_HEADER, MAX_DATA, MAX_PIECES, PIECE_HEADER};
use farhaul_mover::transfer::interrupt::Interrupt;
use farhaul_mover::transfer::link::LinkHandle;
use farhaul_mover::transfer::message::{Message, Verdict};
use farhaul_mover::transfer::session::Session;
use farhaul_mover::transfer::source::{Source, SourceOptions, Sources};
use farhaul_mover::transfer::tree_hash::Node;
use farhaul_mover::transfer::{Flow, Lane, LaneEnd, Role};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

/// Lanes at once.
const LANES: u32 = 3;
/// What is sent without a message of the sink's: as many blocks as the tree has.
const BLOCKS: u64 = 16;
const BLOCK: u64 = (BLOCK_HEADER + MAX_PIECES * PIECE_HEADER + MAX_DATA) as u64;

struct NoHandle;

impl LinkHandle for NoHandle {
    fn abort(&self) {}

    fn describe(&self) -> String {
        "memory".into()
    }
}

/// Counts what is sent, and fails once, as a connection does.
struct Out<'a> {
    sent: &'a AtomicU64,
    fails: bool,
}

impl io::Write for Out<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if std::mem::take(&mut self.fails) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Small files, one of three chunks, one with holes, a directory and a link; the same for all inputs.
fn tree() -> &'static TempDir {
    static TREE: OnceLock<TempDir> = OnceLock::new();
    TREE.get_or_init(|| {
        let tree = tempfile::tempdir().expect("a temporary directory");
        let at = |name: &str| tree.path().join(name);
        fs::create_dir(at("d")).expect("a directory");
        fs::write(at("d/small"), b"hello").expect("a file");
        fs::write(at("empty"), b"").expect("a file");
        fs::write(at("large"), vec![7; 5 << 19]).expect("a file");
        let sparse = File::create(at("sparse")).expect("a file");
        sparse.set_len(6 << 20).expect("a length");
        sparse.write_all_at(b"data", 4 << 20).expect("data");
        std::os::unix::fs::symlink("small", at("d/link")).expect("a link");
        tree
    })
}

/// A message that the kind alone tells.
fn made(kind: u8, number: u64) -> Option<Message> {
    let (file, chunk) = (number % 8, number / 8 % 8);
    Some(match kind {
        2 => Message::Damaged { file, chunk },
        3 => Message::Stored { block: number },
        4 => Message::Finished { file },
        5 => Message::Verdict { file, verdict: Verdict::Take { have: Vec::new() } },
        6 => {
            let node = Node { level: chunk as u8, index: number, cv: [0; 32] };
            Message::Verdict { file, verdict: Verdict::Take { have: vec![node; 3] } }
        }
        7 => Message::Verdict { file, verdict: Verdict::Compare { digest: [7; 32] } },
        8 => Message::Failed { entry: file, text: "no".into() },
        _ => return None,
    })
}

/// How many messages were heard.
fn feed(source: &Source<'_>, mut bytes: &[u8]) -> u64 {
    let mut heard = 0;
    while let [kind, high, low, rest @ ..] = bytes {
        let number = u16::from_be_bytes([*high, *low]);
        bytes = rest;
        let message = match kind {
            0 => {
                let (frame, rest) = rest.split_at(usize::from(number).min(rest.len()));
                bytes = rest;
                match Message::decode(frame) {
                    Ok(message) => message,
                    Err(_) => continue,
                }
            }
            // Lanes and the walk get on.
            1 => {
                thread::sleep(Duration::from_micros(300));
                continue;
            }
            kind => match made(*kind, number.into()) {
                Some(message) => message,
                None => continue,
            },
        };
        heard += 1;
        match source.message(message) {
            Ok(Flow::Continue) => {}
            Ok(Flow::Over) | Err(_) => return heard,
        }
    }
    heard
}

fuzz_target!(|bytes: &[u8]| {
    let Some((flags, bytes)) = bytes.split_first() else { return };
    let options = SourceOptions {
        verify: flags & 1 == 0,
        dry_run: flags & 2 > 0,
        sparse: flags & 4 == 0,
        hard_links: flags & 8 > 0,
        // Its thread is not waited for to its very end, which looks like a leak.
        count: false,
        ..SourceOptions::default()
    };
    let what = Sources::Paths(vec![tree().path().to_owned()]);
    let session = Session::default();
    let source = Source::new(what, options, &session, &|_| {}).expect("the tree");
    let sent = AtomicU64::new(0);
    let heard = thread::scope(|threads| {
        let mut works = vec![threads.spawn(|| source.announce_everything())];
        for number in 0..LANES {
            let (source, sent) = (&source, &sent);
            works.push(threads.spawn(move || {
                let mut out = Out { sent, fails: flags & 32 > 0 && number == 0 };
                let (reader, writer) = (&mut io::empty(), &mut out);
                let keep = || true;
                let (handle, interrupt) = (&NoHandle, &Interrupt::default());
                let lane = Lane { number, reader, writer, handle, interrupt, keep: &keep };
                if let Err(LaneEnd::Fatal(error)) = source.lane(lane) {
                    panic!("files of one's own do not end a transfer: {error}");
                }
            }));
        }
        let heard = feed(&source, bytes);
        source.stop();
        // All the way: a thread that has not quite ended looks like a leak.
        works.into_iter().for_each(|work| work.join().expect("no panic"));
        heard
    });
    // A message may be answered with all of one file: the verdict.
    let most = (heard + 1) * BLOCKS * BLOCK;
    assert!(sent.into_inner() <= most, "{heard} messages");
});
