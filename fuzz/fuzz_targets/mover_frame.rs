//! A frame of the mover that decodes encodes to the bytes that it came from.

#![no_main]

use farhaul_mover::frame::Frame;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    while let Ok(Some((frame, taken))) = Frame::decode(rest) {
        let mut again = Vec::new();
        frame.encode(&mut again);
        assert_eq!(again, &rest[..taken]);
        rest = &rest[taken..];
    }
});
