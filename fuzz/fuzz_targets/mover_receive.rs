//! Whatever a sender says: nothing outside the target directory is made, changed or removed, and
//! nothing of what is in it but by the names sent.

#![no_main]

use std::fs;
use std::io::{Cursor, Read};

use farhaul_mover::frame::{Preamble, Role, VERSION};
use farhaul_mover::{ReceiveOptions, receive};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let base = tempfile::tempdir().expect("a temporary directory");
    let (inside, outside) = (base.path().join("inside"), base.path().join("outside"));
    fs::write(&outside, b"not yours").expect("a file");
    let options = ReceiveOptions { max_bytes: Some(1 << 20), ..ReceiveOptions::default() };
    let stream = Cursor::new(Preamble { version: VERSION, role: Role::Sender }.encode()).chain(bytes);
    let _ = receive(&inside, (stream, std::io::sink()), &options, &mut |_| {});
    assert_eq!(fs::read(&outside).expect("the file outside"), b"not yours");
    for entry in fs::read_dir(base.path()).expect("the directory") {
        let name = entry.expect("an entry").file_name();
        assert!(name == "inside" || name == "outside", "{name:?}");
    }
});
