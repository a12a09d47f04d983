//! What sealing costs: records of both ciphers, and a handshake.
//!
//! `cargo bench -p farhaul-secure --features known-keys`

use std::hint::black_box;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;

use divan::Bencher;
use divan::counter::BytesCount;
use farhaul_secure::{Cipher, Identity, Opener, Role, Sealer, Session, Trust, handshake};

fn main() {
    divan::main();
}

const CIPHERS: [Cipher; 2] = [Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305];
/// What a lane writes and reads at once.
const BLOCK: usize = 1 << 20;
const BLOCKS: usize = 16;
const SECRET: [u8; 32] = [7; 32];

/// Writes `BLOCKS` blocks in records of `record` bytes.
fn seal(to: impl Write, session: &Session, record: usize, block: &[u8]) {
    let mut sealer = Sealer::new(to, session);
    for _ in 0..BLOCKS {
        for part in block.chunks(record) {
            sealer.write_all(part).expect("room");
            sealer.flush().expect("room");
        }
    }
    sealer.finish().expect("room");
}

#[divan::bench(args = CIPHERS, consts = [64 << 10, 256 << 10])]
fn seal_records<const RECORD: usize>(bencher: Bencher, cipher: Cipher) {
    let session = Session::with_known_keys(Role::Client, cipher, SECRET);
    let block = vec![5; BLOCK];
    bencher
        .counter(BytesCount::new(BLOCKS * BLOCK))
        .bench_local(|| seal(io::sink(), &session, RECORD, black_box(&block)));
}

/// As a lane writes: whole blocks, each with a header of its own.
#[divan::bench(args = CIPHERS)]
fn seal_blocks(bencher: Bencher, cipher: Cipher) {
    let session = Session::with_known_keys(Role::Client, cipher, SECRET);
    let block = vec![5; BLOCK + 53];
    bencher.counter(BytesCount::new(BLOCKS * BLOCK)).bench_local(|| {
        let mut sealer = Sealer::new(io::sink(), &session);
        for _ in 0..BLOCKS {
            sealer.write_all(&[3; 16]).expect("room");
            sealer.write_all(black_box(&block)).expect("room");
        }
        sealer.finish().expect("room");
    });
}

fn open(bencher: Bencher, cipher: Cipher, record: usize, piece: usize) {
    let session = Session::with_known_keys(Role::Client, cipher, SECRET);
    let mut wire = Vec::new();
    seal(&mut wire, &session, record, &vec![5; BLOCK]);
    let session = Session::with_known_keys(Role::Server, cipher, SECRET);
    let mut out = vec![0; piece];
    bencher.counter(BytesCount::new(BLOCKS * BLOCK)).bench_local(|| {
        let mut opener = Opener::new(&wire[..], &session);
        for _ in 0..BLOCKS * BLOCK / piece {
            opener.read_exact(&mut out).expect("what was sealed");
            black_box(&out);
        }
    });
}

#[divan::bench(args = CIPHERS, consts = [64 << 10, 256 << 10])]
fn open_into_blocks<const RECORD: usize>(bencher: Bencher, cipher: Cipher) {
    open(bencher, cipher, RECORD, BLOCK);
}

#[divan::bench(args = CIPHERS, consts = [64 << 10, 256 << 10])]
fn open_into_pieces<const RECORD: usize>(bencher: Bencher, cipher: Cipher) {
    open(bencher, cipher, RECORD, 16 << 10);
}

/// Both sides, over a local socket.
#[divan::bench]
fn handshakes(bencher: Bencher) {
    let [client, server] = [0, 1].map(|_| Identity::generate().expect("a key"));
    let of_client = Trust::Only(client.public_key());
    let of_server = Trust::Only(server.public_key());
    bencher.bench_local(|| {
        let (near, far) = UnixStream::pair().expect("two sockets");
        thread::scope(|scope| {
            scope.spawn(|| {
                handshake(&far, Role::Server, &server, &of_client, b"").expect("a session")
            });
            handshake(&near, Role::Client, &client, &of_server, b"").expect("a session")
        })
    });
}
