//! How a transfer begins: what is checked before, and peers that never say a word.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::io::{self, ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::thread;

use farhaul_mover::frame::{Preamble, Role, VERSION};
use farhaul_mover::{
    Cancel, Event, ReceiveError, ReceiveOptions, SendError, SendOptions, check_sources, receive,
    send,
};

use common::{Sink, assert_no_leftovers, place};

/// Says something, and nothing more until the time-out is over.
struct Silent<'a>(&'a [u8], ErrorKind);

impl Read for Silent<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self.0.read(out)? {
            0 => Err(self.1.into()),
            n => Ok(n),
        }
    }
}

#[test]
fn a_peer_that_does_not_begin_in_time_is_told_from_one_that_is_gone() {
    let place = place();
    let file = place.dir.path().join("outside/secret");
    let preamble = |role| Preamble { version: VERSION, role }.encode();
    let (sender, receiver) = (preamble(Role::Sender), preamble(Role::Receiver));
    for kind in [ErrorKind::TimedOut, ErrorKind::WouldBlock] {
        for said in 0..Preamble::SIZE {
            let mut seen = 0;
            let stream = (Silent(&receiver[..said], kind), Sink);
            let options = SendOptions::default();
            let sent = send(std::slice::from_ref(&file), stream, &options, &mut |_| seen += 1)
                .unwrap_err();
            assert!(matches!(sent, SendError::PeerSilent), "after {said} bytes: {sent}");
            assert_eq!((sent.exit_code(), seen), (1, 0));

            let stream = (Silent(&sender[..said], kind), Sink);
            let options = ReceiveOptions::default();
            let received = receive(&place.into, stream, &options, &mut |_| seen += 1).unwrap_err();
            assert!(matches!(received, ReceiveError::PeerSilent), "after {said} bytes: {received}");
            assert_eq!((received.exit_code(), seen), (1, 0));
        }
    }
    // Later it is a broken stream as any other.
    let (stream, options) = ((Silent(&sender, ErrorKind::TimedOut), Sink), Default::default());
    let received = receive(&place.into, stream, &options, &mut |_| {}).unwrap_err();
    assert!(matches!(received, ReceiveError::Stream(_)), "{received}");
    place.assert_arrived(&[]);
}

#[test]
fn an_interruption_explains_the_silence() {
    let place = place();
    let cancel = Cancel::default();
    cancel.cancel();
    let stream = (Silent(b"", ErrorKind::TimedOut), Sink);
    let options = ReceiveOptions { cancel: cancel.clone(), ..ReceiveOptions::default() };
    let received = receive(&place.into, stream, &options, &mut |_| {}).unwrap_err();
    assert!(matches!(received, ReceiveError::Interrupted), "{received}");
    let stream = (Silent(b"", ErrorKind::TimedOut), Sink);
    let options = SendOptions { cancel, ..SendOptions::default() };
    let sent = send(&[place.dir.path().to_owned()], stream, &options, &mut |_| {}).unwrap_err();
    assert!(matches!(sent, SendError::Interrupted), "{sent}");
}

#[test]
fn both_sides_hear_of_the_greeting_once_and_first() {
    let place = place();
    let file = place.dir.path().join("outside/secret");
    let (near, far) = UnixStream::pair().unwrap();
    let greetings = |seen: &[bool]| (seen[0], seen.iter().filter(|greeted| **greeted).count());
    let (mut here, mut there) = (Vec::new(), Vec::new());
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let options = ReceiveOptions::default();
            receive(&place.into, (&far, &far), &options, &mut |event| {
                there.push(matches!(event, Event::Greeted));
            })
        });
        send(&[file], (&near, &near), &SendOptions::default(), &mut |event| {
            here.push(matches!(event, Event::Greeted));
        })
        .unwrap();
        receiver.join().unwrap().unwrap();
    });
    assert!(here.len() > 1 && there.len() > 1, "{here:?}, {there:?}");
    assert_eq!((greetings(&here), greetings(&there)), ((true, 1), (true, 1)));
    place.assert_arrived(&["secret"]);
}

#[test]
fn sources_can_be_checked_before_there_is_a_stream() {
    let place = place();
    let at = |path: &str| place.dir.path().join(path);
    fs::create_dir(at("other")).unwrap();
    fs::write(at("other/secret"), "").unwrap();
    std::os::unix::fs::symlink("nowhere", at("link")).unwrap();
    assert!(check_sources(&[at("outside"), at("outside/secret"), at("link")]).is_ok());
    let code = |paths: &[&str]| {
        let paths: Vec<_> = paths.iter().map(|path| at(path)).collect();
        check_sources(&paths).unwrap_err().exit_code()
    };
    for bad in
        [&[][..], &["nowhere"], &["outside/.."], &["outside/secret", "other/secret"], &["link/"]]
    {
        assert_eq!(code(bad), 2, "{bad:?}");
    }
    assert_no_leftovers(place.dir.path());
}
