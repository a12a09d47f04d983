//! An opener survives any bytes and takes none of them for the peer's; what a sealer wrote is opened
//! whole, in any pieces, and no change of it goes unnoticed.

#![no_main]

use std::io::{Cursor, Read, Write};
use std::sync::LazyLock;

use farhaul_secure::{Cipher, Opener, Role, Sealer, Session};
use libfuzzer_sys::fuzz_target;

/// Bytes that differ from those beside them, and from those a record away.
static PATTERN: LazyLock<Vec<u8>> =
    LazyLock::new(|| (0..400_000).map(|n| (n % 251) as u8).collect());

fuzz_target!(|input: &[u8]| {
    let [first, second, bytes @ ..] = input else { return };
    let cipher = [Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305][usize::from(first & 1)];
    let piece = 64 << (second % 15);
    let session = |role| Session::with_known_keys(role, cipher, [3; 32]);
    // Whatever comes, nothing of it was sealed by the peer.
    let (read, ended) = open(bytes, &session(Role::Server), piece);
    assert!(read.is_empty() && !ended);

    let (wire, data) = seal(bytes, &session(Role::Client));
    assert_eq!(open(&wire, &session(Role::Server), piece), (data.clone(), true));
    let at = usize::from(*second) * 257 % wire.len();
    let mut changed = wire.clone();
    changed[at] ^= first | 1;
    let (read, ended) = open(&changed, &session(Role::Server), piece);
    assert!(!ended && data.starts_with(&read));
    let (read, ended) = open(&wire[..at], &session(Role::Server), piece);
    assert!(!ended && data.starts_with(&read));
});

/// What is in `wire`, and whether the peer ended it.
fn open(wire: &[u8], session: &Session, piece: usize) -> (Vec<u8>, bool) {
    let mut opener = Opener::new(wire, session);
    let (mut read, mut out) = (Vec::new(), vec![0; piece]);
    loop {
        match opener.read(&mut out) {
            Ok(0) => return (read, true),
            Ok(count) => read.extend_from_slice(&out[..count]),
            Err(_) => {
                assert!(opener.read(&mut out).is_err(), "nothing comes after an error");
                return (read, false);
            }
        }
    }
}

/// Writes as `script` says, and returns what is on the wire and what it should open to.
fn seal(script: &[u8], session: &Session) -> (Vec<u8>, Vec<u8>) {
    let mut sealer = Sealer::new(Cursor::new(Vec::new()), session);
    let mut data = Vec::new();
    for byte in script.iter().take(8) {
        let length = usize::from(byte & 0x3f) * [1, 100, 3000, 6000][usize::from(byte >> 6)];
        let part = &PATTERN[usize::from(*byte)..][..length];
        match byte & 1 {
            0 => sealer.write_all(part).expect("room"),
            _ => sealer.flush().and_then(|()| sealer.write_all(part)).expect("room"),
        }
        data.extend_from_slice(part);
    }
    (sealer.finish().expect("room").into_inner(), data)
}
