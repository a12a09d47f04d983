//! Any bytes in place of a handshake are refused, whichever side reads them, and little is said.

#![no_main]

use std::io::{self, Read, Write};
use std::sync::LazyLock;

use farhaul_secure::{Identity, Role, Trust, handshake};
use libfuzzer_sys::fuzz_target;

/// Of whoever is trusted: nobody has this one's private half.
static PEER: LazyLock<Trust> =
    LazyLock::new(|| Trust::Only(Identity::generate().expect("a key").public_key()));
static OWN: LazyLock<Identity> = LazyLock::new(|| Identity::generate().expect("a key"));

struct Stream<'a> {
    input: &'a [u8],
    written: usize,
}

impl Read for Stream<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.input.read(out)
    }
}

impl Write for Stream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.written += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fuzz_target!(|bytes: &[u8]| {
    let [first, bytes @ ..] = bytes else { return };
    let role = if first & 1 == 0 { Role::Client } else { Role::Server };
    let mut framed = Vec::new();
    if first & 2 != 0 {
        // A frame that holds the rest, so that lengths need not be guessed.
        framed.extend((bytes.len().min(0xffff) as u16).to_be_bytes());
    }
    framed.extend_from_slice(bytes);
    let mut stream = Stream { input: &framed, written: 0 };
    let result = handshake(&mut stream, role, &OWN, &PEER, b"context");
    assert!(result.is_err());
    assert!(stream.written < 8192, "{} bytes", stream.written);
});
