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

/// Gives from a byte to some thousands at a time, and a time-out between them.
struct Slow<'a>(&'a [u8], usize);

impl Read for Slow<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.1 += 1;
        if self.1.is_multiple_of(2) {
            return Err(ErrorKind::WouldBlock.into());
        }
        let count = self.0.len().min(out.len()).min((self.1 % 7 + 1).pow(4));
        out[..count].copy_from_slice(&self.0[..count]);
        self.0 = &self.0[count..];
        Ok(count)
    }
}

proptest! {
    #[test]
    fn what_is_written_is_what_is_read(
        writes in prop::collection::vec(
            prop::option::of(
                (any::<u8>(), prop_oneof![8 => 0..3000usize, 1 => AT_ONCE - 2..400_000])
                    .prop_map(|(first, size)| (0..size).map(|n| first ^ (n % 251) as u8).collect())
            ),
            0..20,
        )
    ) {
        let wire = sealed(&writes);
        let data: Vec<u8> = writes.into_iter().flatten().flatten().collect();
        prop_assert_eq!(&opened(&wire[..]).unwrap(), &data);
        // In pieces, with time-outs in between.
        let mut opener = Opener::new(Slow(&wire, 0), &sessions().1);
        let (mut read, mut part) = (Vec::new(), [0; 2000]);
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
    // Four alike, and the end.
    assert_eq!(wire.len(), data.len() + 5 * (HEADER + TAG));
    assert_eq!(opened(&wire[..]).unwrap(), data);
}

#[test]
fn large_data_with_what_waits_is_sealed_at_once_and_opened_in_any_pieces() {
    for waiting in [0, 1, 16, AHEAD, AHEAD + 1, MAX_RECORD - 1] {
        let data: Vec<u8> = (0..(1 << 20) + 53).map(|n| (n % 251) as u8).collect();
        let mut sealer = Sealer::new(Vec::new(), &sessions().0);
        sealer.write_all(&vec![9; waiting]).unwrap();
        sealer.write_all(&data).unwrap();
        // Nothing waits any more, and nothing was sealed twice.
        let records = 4 + usize::from(waiting > 0);
        assert_eq!(sealer.stream.len(), waiting + data.len() + records * (HEADER + TAG));
        let wire = sealer.finish().unwrap();
        for piece in [1 << 10, 100_000, MAX_RECORD, 2 << 20] {
            let mut opener = Opener::new(&wire[..], &sessions().1);
            let (mut read, mut part) = (Vec::new(), vec![0; piece]);
            loop {
                match opener.read(&mut part).unwrap() {
                    0 => break,
                    count => read.extend_from_slice(&part[..count]),
                }
            }
            assert!(read[..waiting].iter().all(|byte| *byte == 9));
            assert!(read[waiting..] == data, "{waiting} {piece}");
        }
    }
}

#[test]
fn blocks_read_as_they_were_written_are_not_copied() {
    let data = vec![5; 1 << 20];
    let mut sealer = Sealer::new(Vec::new(), &sessions().0);
    for _ in 0..2 {
        sealer.write_all(&[1; 16]).unwrap();
        sealer.write_all(&data).unwrap();
    }
    let wire = sealer.finish().unwrap();
    let mut opener = Opener::new(&wire[..], &sessions().1);
    let mut out = vec![0; data.len()];
    for _ in 0..2 {
        opener.read_exact(&mut out[..16]).unwrap();
        let mut filled = 0;
        while filled < out.len() {
            filled += opener.read(&mut out[filled..]).unwrap();
            assert!(opener.unread.is_empty(), "a record was kept for later");
        }
        assert!(out == data);
    }
    assert_eq!(opener.read(&mut out).unwrap(), 0);
}

#[test]
fn of_a_forged_record_nothing_is_given_out() {
    let mut wire = sealed(&[Some(vec![7; 100_000])]);
    wire[50_000] ^= 1;
    let mut opener = Opener::new(&wire[..], &sessions().1);
    let mut out = vec![1; 200_000];
    assert_eq!(opener.read(&mut out).unwrap_err().kind(), ErrorKind::InvalidData);
    assert!(!out.contains(&7));
}

#[test]
fn what_a_side_has_sealed_it_does_not_take_for_the_peers() {
    let wire = sealed(&[Some(vec![1; 10])]);
    let (here, there) = sessions();
    let read = |session| Opener::new(&wire[..], session).read(&mut [0; 100]);
    assert_eq!(read(here).unwrap_err().kind(), ErrorKind::InvalidData);
    assert_eq!(read(there).unwrap(), 10);
}

/// Takes so many bytes, and then none.
#[derive(Debug)]
struct Limited(usize);

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        if taken == 0 { Err(ErrorKind::TimedOut.into()) } else { Ok(taken) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn nothing_is_written_behind_a_record_that_was_cut() {
    let mut sealer = Sealer::new(Limited(10), &sessions().0);
    sealer.write_all(b"some").unwrap();
    assert_eq!(sealer.flush().unwrap_err().kind(), ErrorKind::TimedOut);
    sealer.stream.0 = 1 << 20;
    assert_eq!(sealer.write_all(b"more").unwrap_err().kind(), ErrorKind::BrokenPipe);
    assert_eq!(sealer.write_all(&[0; AT_ONCE]).unwrap_err().kind(), ErrorKind::BrokenPipe);
    assert_eq!(sealer.finish().unwrap_err().kind(), ErrorKind::BrokenPipe);
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
