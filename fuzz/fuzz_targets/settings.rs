//! Whatever stands in a file that people write: it is right, or each thing that is wrong is told on one
//! line, with the line it is in.

#![no_main]

use farhaul_cli::parsers::{File, read};
use libfuzzer_sys::fuzz_target;

const FILES: [File; 4] = [File::Serve, File::Settings, File::AllowedKeys, File::KnownServers];

fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    let file = FILES[usize::from(*first) % FILES.len()];
    let read = read(file, text);
    let Err(told) = read else { return };
    assert!(!told.is_empty());
    let lines = text.lines().count().max(1);
    for line in told.lines() {
        let place = line.strip_prefix("/etc/farhaul/file:").expect("it says where");
        let (number, why) = place.split_once(": ").expect("and what");
        let number: usize = number.parse().expect("a line");
        // What stands behind the last line's end counts as one more.
        assert!((1..=lines + 1).contains(&number), "line {number} of {lines}");
        assert!(!why.is_empty());
    }
});
