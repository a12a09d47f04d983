//! A side that connects does not wait for answers that it does not need.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use farhaul_mover::Cancel;
use farhaul_mover::transfer::channel::Channel;
use farhaul_mover::transfer::link::{Link, LinkHandle, Purpose};
use farhaul_mover::transfer::message::Message;
use farhaul_mover::transfer::session::{Dial, Links, NoLink, Options, Session, Way, greet};
use farhaul_mover::transfer::{Flow, Lane, LaneEnd, Role, TransferError};

/// Longer than anything takes that works.
const HANGS: Duration = Duration::from_secs(30);

struct Pipe(UnixStream);

impl LinkHandle for Pipe {
    fn abort(&self) {
        // One that is closed already needs no closing.
        let _ = self.0.shutdown(Shutdown::Both);
    }

    fn describe(&self) -> String {
        "a pipe".into()
    }
}

fn link(stream: &UnixStream) -> Link {
    let clone = || stream.try_clone().unwrap();
    Link { reader: Box::new(clone()), writer: Box::new(clone()), handle: Arc::new(Pipe(clone())) }
}

/// Hands the other end of each connection to the test.
struct Pipes(Mutex<Sender<Link>>);

impl Dial for Pipes {
    fn dial(&self, _: Way) -> Result<Link, NoLink> {
        let (near, far) = UnixStream::pair().unwrap();
        let _ = self.0.lock().unwrap().send(link(&far));
        Ok(link(&near))
    }
}

struct Idle;

impl Role for Idle {
    fn message(&self, _: Message) -> Result<Flow, TransferError> {
        Ok(Flow::Continue)
    }

    fn lane(&self, _: Lane<'_>) -> Result<(), LaneEnd> {
        Ok(())
    }

    fn connected(&self, _: bool) -> Result<(), TransferError> {
        Ok(())
    }

    fn carried(&self) -> BTreeMap<u32, u64> {
        BTreeMap::new()
    }

    fn stop(&self) {}
}

/// The peer answers nothing, and hears all the same what there is to be said: a round trip earlier than if that waited
/// for its consent.
#[test]
fn what_is_to_be_said_comes_with_the_first_connection() {
    let (session, cancel) = (Session::default(), Cancel::default());
    let options = Options { session: [7; 16], outage: HANGS, lanes: 1, cancel: cancel.clone() };
    session.channel.say(&Message::LeftOut { count: 5 });
    let (give, links) = channel();
    let pipes = Pipes(Mutex::new(give));
    let heard = thread::scope(|scope| {
        let running = scope.spawn(|| session.run(&Idle, Links::Dial(&pipes), &options, &|_| {}));
        let heard = loop {
            let mut link = links.recv_timeout(HANGS).unwrap();
            if !matches!(greet(&mut link).unwrap().purpose, Purpose::Control { received: 0 }) {
                continue;
            }
            let channel = Channel::default();
            let generation = channel.attach(0).unwrap();
            let mut heard = None;
            let read = channel.read(generation, &mut *link.reader, &mut |message| {
                heard = Some(message);
                Ok(false)
            });
            read.unwrap().unwrap();
            link.handle.abort();
            break heard;
        };
        cancel.cancel();
        let ended = running.join().unwrap();
        assert!(matches!(ended, Err(TransferError::Interrupted)), "{ended:?}");
        heard
    });
    assert_eq!(heard, Some(Message::LeftOut { count: 5 }));
}
