//! Whatever a source says and sends: nothing outside the target directory is made, changed or removed.
//!
//! The input is a list of frames: a byte that says what it is, two for its length, and the bytes of a
//! message or of what a lane carries.

#![no_main]

use std::fs;
use std::sync::Arc;
use std::thread;

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

fn feed(sink: &Sink<'_>, mut bytes: &[u8]) {
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
        } else {
            let (reader, writer) = (&mut &frame[..], &mut std::io::sink());
            let keep = || true;
            let lane = Lane { number: 1, reader, writer, handle: &NoHandle, keep: &keep };
            if let Err(LaneEnd::Fatal(_)) = sink.lane(lane) {
                return;
            }
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
        durable: false,
        preserve: Preserve { hard_links: true, ..Preserve::default() },
        max_bytes: Some(1 << 24),
        ..SinkOptions::new(target)
    };
    let sink = Sink::new(options, Box::new(drop), Arc::default(), &|_| {}).expect("a directory");
    thread::scope(|threads| {
        let worker = threads.spawn(|| sink.work());
        feed(&sink, bytes);
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
