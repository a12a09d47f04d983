#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::thread;

use proptest::prelude::*;

use super::*;
use crate::{Identity, Role, Trust, handshake};

/// One session for all tests: a handshake is slow without optimisation.
fn sessions() -> &'static (Session, Session) {
    static SESSIONS: OnceLock<(Session, Session)> = OnceLock::new();
    SESSIONS.get_or_init(|| {
        let (client, server) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let (near, far) = UnixStream::pair().unwrap();
        let (clients, servers) = (client.public_key(), server.public_key());
        let other = thread::spawn(move || {
            handshake(&far, Role::Server, &server, &Trust::Only(clients), b"").unwrap()
        });
        let near = handshake(&near, Role::Client, &client, &Trust::Only(servers), b"").unwrap();
        (near, other.join().unwrap())
    })
}

/// What is on the wire for these writes; `None` is a flush.
fn sealed(writes: &[Option<Vec<u8>>]) -> Vec<u8> {
    let mut sealer = Sealer::new(Vec::new(), &sessions().0);
    for write in writes {
        match write {
            Some(data) => sealer.write_all(data).unwrap(),
            None => sealer.flush().unwrap(),
        }
    }
    sealer.finish().unwrap()
}

fn opened(wire: impl Read) -> io::Result<Vec<u8>> {
    let mut data = Vec::new();
    Opener::new(wire, &sessions().1).read_to_end(&mut data).map(|_| data)
}

/// Gives a byte or a few at a time, and a time-out between them.
struct Slow<'a>(&'a [u8], usize);

impl Read for Slow<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.1 += 1;
        if self.1.is_multiple_of(2) {
            return Err(ErrorKind::WouldBlock.into());
        }
        let count = self.0.len().min(out.len()).min(self.1 % 7 + 1);
        out[..count].copy_from_slice(&self.0[..count]);
        self.0 = &self.0[count..];
        Ok(count)
    }
}

proptest! {
    #[test]
    fn what_is_written_is_what_is_read(
        writes in prop::collection::vec(
            prop::option::of(prop::collection::vec(any::<u8>(), 0..3000)), 0..20)
    ) {
        let wire = sealed(&writes);
        let data: Vec<u8> = writes.into_iter().flatten().flatten().collect();
        prop_assert_eq!(&opened(&wire[..]).unwrap(), &data);
        // In pieces, with time-outs in between.
        let mut opener = Opener::new(Slow(&wire, 0), &sessions().1);
        let (mut read, mut part) = (Vec::new(), [0; 100]);
        loop {
            match opener.read(&mut part) {
                Ok(0) => break,
                Ok(count) => read.extend_from_slice(&part[..count]),
                Err(error) => prop_assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        prop_assert_eq!(read, data);
    }

    #[test]
    fn no_changed_bit_goes_unnoticed(at in any::<prop::sample::Index>(), bit in 0..8) {
        let mut wire = sealed(&[Some(vec![1; 300]), None, Some(vec![2; 300])]);
        let at = at.index(wire.len());
        wire[at] ^= 1u8 << bit;
        let error = opened(&wire[..]).unwrap_err();
        prop_assert!(
            matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof),
            "{error:?}"
        );
    }

    #[test]
    fn no_end_but_the_peers_is_one(cut in any::<prop::sample::Index>()) {
        let wire = sealed(&[Some(vec![1; 300]), None, Some(vec![2; 300])]);
        let error = opened(&wire[..cut.index(wire.len())]).unwrap_err();
        prop_assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    }
}

#[test]
fn large_writes_fill_records() {
    let data = vec![5; 3 * MAX_RECORD + 10];
    let wire = sealed(&[Some(data.clone())]);
    // Three full ones, the rest, and the end.
    assert_eq!(wire.len(), data.len() + 5 * (HEADER + TAG));
    assert_eq!(opened(&wire[..]).unwrap(), data);
}

#[test]
fn records_in_another_order_or_twice_are_forged() {
    let wire = sealed(&[Some(vec![1; 10]), None, Some(vec![2; 10])]);
    let (first, rest) = wire.split_at(HEADER + 10 + TAG);
    let second = &rest[..first.len()];
    for wire in [[second, first], [first, first]] {
        assert_eq!(opened(&wire.concat()[..]).unwrap_err().kind(), ErrorKind::InvalidData);
    }
}

#[test]
fn nothing_is_read_beyond_a_forgery() {
    let mut opener =
        Opener::new(&b"\0\0\0\x20not what the peer would have sent"[..], &sessions().1);
    for _ in 0..2 {
        let error = opener.read(&mut [0; 10]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    }
}

#[test]
fn a_length_without_bounds_takes_no_memory() {
    let mut opener = Opener::new(&b"\xff\xff\xff\xff"[..], &sessions().1);
    assert_eq!(opener.read(&mut [0; 10]).unwrap_err().kind(), ErrorKind::InvalidData);
    assert!(opener.record.capacity() < 100);
}
