//! A lane that is tried beside others, where the side that was connected to learns of it late or early.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use farhaul_mover::Cancel;
use farhaul_mover::transfer::TransferError;
use farhaul_mover::transfer::link::{Link, LinkFacts, LinkHandle, Purpose};
use farhaul_mover::transfer::message::Message;
use farhaul_mover::transfer::session::{Dial, Links, NoLink, Options, Session, Way, greet};
use farhaul_mover::transfer::{Flow, Lane, LaneEnd, Role};

/// A test that waits longer for a step has failed.
const HANGS: Duration = Duration::from_secs(30);

/// A value that threads wait for.
#[derive(Default)]
struct Seen<T>(Mutex<T>, Condvar);

impl<T> Seen<T> {
    fn change(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
        self.1.notify_all();
    }

    /// Waits until it is so; false: it never was.
    fn wait(&self, so: impl Fn(&T) -> bool) -> bool {
        let value = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (_value, timeout) = self
            .1
            .wait_timeout_while(value, HANGS, |value| !so(value))
            .unwrap_or_else(PoisonError::into_inner);
        !timeout.timed_out()
    }
}

struct Pipe {
    stream: UnixStream,
    udp: bool,
}

impl LinkHandle for Pipe {
    fn abort(&self) {
        // One that is closed already needs no closing.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn facts(&self) -> LinkFacts {
        LinkFacts { udp: self.udp, ..LinkFacts::default() }
    }

    fn describe(&self) -> String {
        "a pipe".into()
    }
}

/// A writer that holds back what is written while its gate is shut, as a path with a long queue does.
struct Gated(UnixStream, Arc<Seen<bool>>);

impl Write for Gated {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        assert!(self.1.wait(|shut| !shut), "the gate is never opened");
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Connects the two sides; what the dialer says passes the gate, what lanes carry does not.
struct Pipes {
    give: Mutex<Sender<(Purpose, Link)>>,
    gate: Arc<Seen<bool>>,
}

impl Dial for Pipes {
    fn dial(&self, way: Way) -> Result<Link, NoLink> {
        let (near, far) = UnixStream::pair()?;
        let udp = way != Way::Tcp;
        // A trial goes another way than everything else does.
        let gate = if udp { Arc::clone(&self.gate) } else { Arc::default() };
        let link = |stream: UnixStream, gate| Link {
            reader: Box::new(stream.try_clone().unwrap()),
            writer: Box::new(Gated(stream.try_clone().unwrap(), gate)),
            handle: Arc::new(Pipe { stream, udp }),
        };
        let give = self.give.lock().unwrap().clone();
        let mut far = link(far, Arc::default());
        thread::spawn(move || {
            if let Ok(join) = greet(&mut far) {
                let _ = give.send((join.purpose, far));
            }
        });
        Ok(link(near, gate))
    }
}

/// Keeps its lanes until the test lets go of them, and shows which the session would keep.
#[derive(Default)]
struct Holding {
    /// What the session says of each lane that is there.
    kept: Seen<BTreeMap<u32, bool>>,
    over: Seen<bool>,
}

impl Role for Holding {
    fn message(&self, _: Message) -> Result<Flow, TransferError> {
        Ok(Flow::Continue)
    }

    fn lane(&self, lane: Lane<'_>) -> Result<(), LaneEnd> {
        while !*self.over.0.lock().unwrap() {
            let keep = (lane.keep)();
            self.kept.change(|kept| _ = kept.insert(lane.number, keep));
            thread::park_timeout(Duration::from_millis(5));
        }
        Ok(())
    }

    fn connected(&self, _: bool) -> Result<(), TransferError> {
        Ok(())
    }

    fn carried(&self) -> BTreeMap<u32, u64> {
        BTreeMap::new()
    }

    fn stop(&self) {
        self.over.change(|over| *over = true);
    }
}

/// Runs two sides, of one lane; the dialer's session, what the other side keeps, and the gate between them.
fn with_sides(test: impl FnOnce(&Session, &Holding, &Seen<bool>)) {
    let (give, accepted) = channel();
    let gate = Arc::<Seen<bool>>::default();
    let dial = Pipes { give: Mutex::new(give), gate: Arc::clone(&gate) };
    let options = Options { session: [7; 16], outage: HANGS, lanes: 1, cancel: Cancel::default() };
    let (ours, theirs) = (Session::default(), Session::default());
    let (near, far) = (Holding::default(), Holding::default());
    let run = |session: &Session, role: &Holding, links: Links<'_>| {
        drop(session.run(role, links, &options, &|_| {}));
    };
    thread::scope(|threads| {
        threads.spawn(|| run(&theirs, &far, Links::Accept(accepted)));
        threads.spawn(|| run(&ours, &near, Links::Dial(&dial)));
        // However the test ends, the threads are to end as well.
        struct End<'a>(&'a Cancel, &'a Seen<bool>);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.1.change(|shut| *shut = false);
                self.0.cancel();
            }
        }
        let _end = End(&options.cancel, &gate);
        assert!(far.kept.wait(|lanes| kept(lanes) == [true]), "one lane");
        test(&ours, &far, &gate);
    });
}

/// The lanes which the session on the far side would keep.
fn kept(kept: &BTreeMap<u32, bool>) -> Vec<bool> {
    kept.values().copied().collect()
}

#[test]
fn a_trial_beside_lanes_that_are_to_end_is_kept_however_late_the_word_of_it_comes() {
    with_sides(|ours, far, gate| {
        ours.want_lanes(3);
        assert!(far.kept.wait(|lanes| kept(lanes) == [true; 3]), "three lanes");
        // Two are to go, and take their time: the trial is there before the word that they are.
        gate.change(|shut| *shut = true);
        ours.want_lanes(1);
        ours.begin_trial();
        assert!(far.kept.wait(|lanes| kept(lanes) == [true; 4]), "and the trial");
        gate.change(|shut| *shut = false);
        let so = far.kept.wait(|lanes| kept(lanes) == [true, false, false, true]);
        assert!(so, "{:?}", far.kept.0.lock().unwrap());
    });
}

#[test]
fn a_trial_that_is_over_is_ended_though_there_is_room_for_it() {
    with_sides(|ours, far, _| {
        ours.want_lanes(2);
        assert!(far.kept.wait(|lanes| kept(lanes) == [true; 2]), "two lanes");
        ours.begin_trial();
        assert!(far.kept.wait(|lanes| kept(lanes) == [true; 3]), "and the trial");
        ours.want_lanes(4);
        ours.end_trial(false);
        // The trial is the third; the two that came later stay.
        let so = far.kept.wait(|lanes| kept(lanes) == [true, true, false, true, true]);
        assert!(so, "{:?}", far.kept.0.lock().unwrap());
    });
}
