//! Whatever a source says and sends: nothing outside the target directory is made, changed or removed.
//!
//! The input is a byte of options and a list of frames: a byte that says what it is, two for its length, and
//! the bytes of a message or of what a lane carries: one that ends with the frame, or, by option, one of
//! several that work beside each other and get their bytes frame by frame.

#![no_main]

use std::fs;
use std::io::Read;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use farhaul_mover::transfer::interrupt::Interrupt;
use farhaul_mover::transfer::link::LinkHandle;
use farhaul_mover::transfer::message::Message;
use farhaul_mover::transfer::sink::{Preserve, Sink, SinkOptions, SinkTarget};
use farhaul_mover::transfer::{Flow, Lane, LaneEnd, Role};
use libfuzzer_sys::fuzz_target;

struct NoHandle;

impl LinkHandle for NoHandle {
    fn abort(&self) {}

    fn describe(&self) -> String {
        "memory".into()
    }
}

/// Lanes beside each other.
const LANES: usize = 3;

/// What a lane reads: the pieces that come, until there are no more.
struct Pieces {
    from: Receiver<Vec<u8>>,
    piece: Vec<u8>,
}

impl Read for Pieces {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        while self.piece.is_empty() {
            match self.from.recv() {
                Ok(piece) => self.piece = piece,
                Err(_) => return Ok(0),
            }
        }
        let length = self.piece.len().min(out.len());
        out[..length].copy_from_slice(&self.piece[..length]);
        self.piece.drain(..length);
        Ok(length)
    }
}

/// Works a lane; whether the transfer can go on.
fn work(sink: &Sink<'_>, number: u32, reader: &mut (dyn Read + Send)) -> bool {
    let keep = || true;
    let writer = &mut std::io::sink();
    let (handle, interrupt) = (&NoHandle, &Interrupt::default());
    let lane = Lane { number, reader, writer, handle, interrupt, keep: &keep };
    !matches!(sink.lane(lane), Err(LaneEnd::Fatal(_)))
}

/// Of `lanes` there may be none: then each frame of theirs is one of its own.
fn feed(sink: &Sink<'_>, lanes: &[SyncSender<Vec<u8>>], mut bytes: &[u8]) {
    while let [kind, high, low, rest @ ..] = bytes {
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(rest.len());
        let (frame, rest) = rest.split_at(length);
        bytes = rest;
        if kind & 1 == 0 {
            let Ok(message) = Message::decode(frame) else { continue };
            match sink.message(message) {
                Ok(Flow::Continue) => {}
                Ok(Flow::Over) | Err(_) => return,
            }
        } else if let Some(lane) = lanes.get(usize::from(kind >> 1) % LANES) {
            // One that has ended takes nothing more.
            let _ = lane.send(frame.to_vec());
        } else if !work(sink, 1, &mut &frame[..]) {
            return;
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((flags, bytes)) = bytes.split_first() else { return };
    let base = tempfile::tempdir().expect("a temporary directory");
    let (inside, outside) = (base.path().join("inside"), base.path().join("outside"));
    fs::write(&outside, b"not yours").expect("a file");
    let target = SinkTarget::Path { path: inside.clone(), directory: true };
    let options = SinkOptions {
        delete: flags & 1 > 0,
        dry_run: flags & 2 > 0,
        verify: flags & 4 > 0,
        durable: flags & 8 > 0,
        preserve: Preserve { hard_links: true, ..Preserve::default() },
        max_bytes: Some(1 << 24),
        ..SinkOptions::new(target)
    };
    let sink = Sink::new(options, Box::new(drop), Arc::default(), &|_| {}).expect("a directory");
    thread::scope(|threads| {
        let worker = threads.spawn(|| sink.work());
        let (mut lanes, mut works) = (Vec::new(), Vec::new());
        for number in 0..if flags & 16 > 0 { LANES } else { 0 } {
            let (to, from) = sync_channel(64);
            lanes.push(to);
            let sink = &sink;
            works.push(threads.spawn(move || {
                work(sink, number as u32, &mut Pieces { from, piece: Vec::new() });
            }));
        }
        feed(&sink, &lanes, bytes);
        // They deal with what has come before they end.
        drop(lanes);
        works.into_iter().for_each(|work| work.join().expect("no panic"));
        sink.stop();
        let _ = worker.join().expect("no panic");
    });
    drop(sink);
    assert_eq!(fs::read(&outside).expect("the file outside"), b"not yours");
    for entry in fs::read_dir(base.path()).expect("the directory") {
        let name = entry.expect("an entry").file_name();
        assert!(name == "inside" || name == "outside", "{name:?}");
    }
});
