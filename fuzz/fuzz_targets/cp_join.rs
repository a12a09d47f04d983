//! The first frame on a link is read whatever it is.

#![no_main]

use std::io::{self, Cursor};
use std::sync::Arc;

use farhaul_mover::transfer::link::{Link, LinkHandle};
use farhaul_mover::transfer::message::PROTOCOL;
use farhaul_mover::transfer::session::greet;
use libfuzzer_sys::fuzz_target;

struct Nothing;

impl LinkHandle for Nothing {
    fn abort(&self) {}

    fn describe(&self) -> String {
        String::new()
    }
}

fuzz_target!(|bytes: &[u8]| {
    let reader = Box::new(Cursor::new(bytes.to_vec()));
    let mut link = Link { reader, writer: Box::new(io::sink()), handle: Arc::new(Nothing) };
    if let Ok(join) = greet(&mut link) {
        assert_eq!(join.protocol, PROTOCOL);
    }
});
