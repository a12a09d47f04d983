//! Source and sink where something on the path answers in place of the peer, or lies about what has
//! arrived.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use farhaul_mover::Cancel;
use farhaul_mover::transfer::link::{Link, LinkFacts, LinkHandle, Purpose};
use farhaul_mover::transfer::session::{Dial, Links, NoLink, Options, Session, Way, greet};
use farhaul_mover::transfer::sink::{Sink, SinkOptions, SinkTarget};
use farhaul_mover::transfer::source::{Source, SourceOptions, Sources};
use farhaul_mover::transfer::{Event, TransferError};

/// What one direction of a connection carries.
#[derive(Default)]
struct Carried {
    /// Bytes that were read at the far end.
    read: AtomicU64,
    /// Bytes that were thrown away and acknowledged.
    swallowed: AtomicU64,
    /// Bytes that something between the ends has taken.
    taken: AtomicU64,
    /// Since when the far end has been waiting for more.
    waiting: Mutex<Option<Instant>>,
    /// The connection is over.
    cut: AtomicBool,
}

struct Pipe {
    stream: UnixStream,
    out: Arc<Carried>,
    into: Arc<Carried>,
    /// As over TCP: what is told as acknowledged is what was taken.
    takes: bool,
}

impl LinkHandle for Pipe {
    fn abort(&self) {
        // One that is closed already needs no closing.
        let _ = self.stream.shutdown(Shutdown::Both);
        // The far side hears of it by its stream alone, if it reads or writes.
        self.out.cut.store(true, Ordering::Release);
    }

    fn facts(&self) -> LinkFacts {
        let read = |carried: &Carried| carried.read.load(Ordering::Acquire);
        let swallowed = self.out.swallowed.load(Ordering::Acquire);
        let waiting = *self.into.waiting.lock().unwrap();
        let (acknowledged, lag) = match self.takes {
            true => (self.out.taken.load(Ordering::Acquire), LAG),
            false => (read(&self.out) + swallowed, Duration::ZERO),
        };
        LinkFacts {
            acknowledged: Some(acknowledged),
            arrived: Some(read(&self.into)),
            lag,
            waited: waiting.map(|since| since.elapsed()).unwrap_or_default(),
            ..LinkFacts::default()
        }
    }

    fn describe(&self) -> String {
        "a pipe".into()
    }
}

/// Every connection that was made, to be cut at once.
type All = Arc<Mutex<Vec<UnixStream>>>;

/// A direction on which something happens after so many bytes.
struct Limited {
    stream: UnixStream,
    left: usize,
    /// Then what is written is acknowledged and thrown away; else all connections are cut, as by a path
    /// that breaks.
    swallows: bool,
    carried: Arc<Carried>,
    all: All,
}

/// Counts what it reads.
struct Counting(UnixStream, Arc<Carried>);

impl Read for Counting {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        *self.1.waiting.lock().unwrap() = Some(Instant::now());
        let result = self.0.read(bytes);
        *self.1.waiting.lock().unwrap() = None;
        let count = result?;
        self.1.read.fetch_add(count as u64, Ordering::Release);
        Ok(count)
    }
}

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.left == 0 && self.swallows {
            self.carried.swallowed.fetch_add(bytes.len() as u64, Ordering::Release);
            self.carried.taken.fetch_add(bytes.len() as u64, Ordering::Release);
            return Ok(bytes.len());
        }
        if self.left == 0 {
            for stream in self.all.lock().unwrap().drain(..) {
                let _ = stream.shutdown(Shutdown::Both);
            }
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let some = bytes.len().min(self.left);
        self.left -= some;
        let count = self.stream.write(&bytes[..some])?;
        self.carried.taken.fetch_add(count as u64, Ordering::Release);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.carried.cut.load(Ordering::Acquire) {
            true => Err(io::ErrorKind::ConnectionAborted.into()),
            false => Ok(()),
        }
    }
}

/// One end of a connection: its stream, what happens after how many bytes, what it carries out and in, and
/// whether it is as over TCP.
fn link(
    stream: UnixStream,
    (left, swallows): (usize, bool),
    takes: bool,
    [out, into]: [&Arc<Carried>; 2],
    all: &All,
) -> Link {
    let all = Arc::clone(all);
    all.lock().unwrap().push(stream.try_clone().unwrap());
    let clone = || stream.try_clone().unwrap();
    let (out, into) = (Arc::clone(out), Arc::clone(into));
    Link {
        reader: Box::new(Counting(clone(), Arc::clone(&into))),
        writer: Box::new(Limited {
            stream: clone(),
            left,
            swallows,
            carried: Arc::clone(&out),
            all,
        }),
        handle: Arc::new(Pipe { stream, out, into, takes }),
    }
}

/// What a dial comes to.
#[derive(Clone, Copy)]
enum Answer {
    /// The peer, over a connection on which the path breaks after so many bytes of the dialer.
    Peer(usize),
    /// The peer, over a connection on which what the dialer writes after so many bytes is acknowledged
    /// by something on the path and does not arrive.
    Forged(usize),
    /// The same over TCP: what the sender knows is what was taken.
    Swallowed(usize),
    /// Something that has not shown that it is the peer.
    Stranger,
    /// The peer's own no.
    Refusal,
}

/// Nothing happens to a connection.
const NEVER: (usize, bool) = (usize::MAX, false);
/// How long what was taken may be on its way.
const LAG: Duration = Duration::from_secs(1);
/// A transfer that hangs ends after this, longer than any takes that does not.
const HANGS: Duration = Duration::from_secs(100);

/// Answers dials by this list, then as the peer.
struct Path {
    give: Mutex<Sender<(Purpose, Link)>>,
    answers: Vec<Answer>,
    dialed: AtomicUsize,
    all: All,
}

impl Dial for Path {
    fn dial(&self, _: Way) -> Result<Link, NoLink> {
        let turn = self.dialed.fetch_add(1, Ordering::Relaxed);
        let refused = || io::Error::new(io::ErrorKind::PermissionDenied, "who is it");
        let limit = match self.answers.get(turn) {
            Some(Answer::Peer(limit)) => (*limit, false),
            Some(Answer::Forged(limit) | Answer::Swallowed(limit)) => (*limit, true),
            Some(Answer::Stranger) => return Err(NoLink::Unproven(refused())),
            Some(Answer::Refusal) => return Err(NoLink::Refused(refused())),
            None => NEVER,
        };
        let takes = matches!(self.answers.get(turn), Some(Answer::Swallowed(_)));
        let (near, far) = UnixStream::pair()?;
        let (to, from) = (Arc::<Carried>::default(), Arc::<Carried>::default());
        let (there, back) = (Arc::clone(&to), Arc::clone(&from));
        let (give, all) = (self.give.lock().unwrap().clone(), Arc::clone(&self.all));
        thread::spawn(move || {
            let mut far = link(far, NEVER, takes, [&back, &there], &all);
            if let Ok(join) = greet(&mut far) {
                let _ = give.send((join.purpose, far));
            }
        });
        Ok(link(near, limit, takes, [&to, &from], &self.all))
    }
}

/// What came of a transfer.
struct Ran {
    /// Of the source, which dials.
    ended: Result<(), TransferError>,
    /// How often it told that something else has answered.
    strangers: u32,
    /// How often the sink told that ACKs were forged.
    forgeries: u32,
    /// Whether the file arrived.
    arrived: bool,
}

/// Moves a file of some size over one lane.
fn run(size: usize, answers: Vec<Answer>) -> Ran {
    let dir = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| dir.path().join(name));
    fs::create_dir(&to).unwrap();
    let content: Vec<u8> = (0..size).map(|n| (n * n / 7) as u8).collect();
    fs::write(&from, &content).unwrap();
    let (give, accepted) = channel();
    let (dialed, all) = Default::default();
    let dial = Path { give: Mutex::new(give), answers, dialed, all };
    let options = Options { session: [7; 16], outage: HANGS, lanes: 1, cancel: Cancel::default() };
    let (told, forgeries) = (AtomicU32::new(0), AtomicU32::new(0));
    let of_sink = |event: Event<'_>| {
        if matches!(event, Event::Note(text) if text.contains("are replaced")) {
            forgeries.fetch_add(1, Ordering::Relaxed);
        }
    };
    let observe = |event: Event<'_>| {
        if matches!(event, Event::Note(text) if text.contains("who is it")) {
            told.fetch_add(1, Ordering::Relaxed);
        }
    };
    let (ours, theirs) = (Session::default(), Session::default());
    let sources = Sources::Paths(vec![from]);
    let source = Source::new(sources, SourceOptions::default(), &ours, &observe).unwrap();
    let say = Box::new(|message| theirs.channel.say(&message));
    let target = SinkTarget::Path { path: to.clone(), directory: true };
    let sink = Sink::new(SinkOptions::new(target), say, Arc::clone(&theirs.stages), &|_| {});
    let sink = sink.unwrap();
    let stopping = options.cancel.clone();
    let ended = thread::scope(|threads| {
        threads.spawn(|| source.announce_everything());
        threads.spawn(|| {
            if let Err(error) = sink.work() {
                theirs.end(Err(error));
            }
        });
        threads.spawn(|| drop(theirs.run(&sink, Links::Accept(accepted), &options, &of_sink)));
        let (over, wait) = channel::<()>();
        let hung = stopping.clone();
        threads.spawn(move || {
            if wait.recv_timeout(HANGS) == Err(RecvTimeoutError::Timeout) {
                hung.cancel();
            }
        });
        let ended = ours.run(&source, Links::Dial(&dial), &options, &observe);
        drop(over);
        // A sink that has never been reached would wait for the outage time.
        stopping.cancel();
        ended
    });
    let arrived = fs::read(to.join("from")).is_ok_and(|copy| copy == content);
    let (strangers, forgeries) = (told.into_inner(), forgeries.into_inner());
    Ran { ended, strangers, forgeries, arrived }
}

/// The first two dials are the control channel's and the lane's, in any order.
#[test]
fn strangers_that_answer_later_are_like_no_answer_and_told_once() {
    let mut answers = vec![Answer::Peer(100_000); 2];
    // The lane may dial once before it is known that the control channel is gone, too.
    answers.extend([Answer::Stranger; 5]);
    answers.extend([Answer::Peer(100_000); 2]);
    answers.extend([Answer::Stranger; 5]);
    let ran = run(3_000_000, answers);
    ran.ended.unwrap();
    assert!(ran.arrived);
    assert_eq!((ran.strangers, ran.forgeries), (1, 0));
}

#[test]
fn a_stranger_at_first_ends_the_transfer() {
    let ran = run(1000, vec![Answer::Stranger; 2]);
    assert_eq!(ran.ended.unwrap_err().exit_code(), 3);
    assert!(!ran.arrived);
}

#[test]
fn the_peers_own_refusal_is_final_at_any_time() {
    let mut answers = vec![Answer::Peer(100_000); 2];
    answers.extend([Answer::Refusal; 4]);
    let ran = run(3_000_000, answers);
    assert_eq!(ran.ended.unwrap_err().exit_code(), 3);
}

/// Only a lane carries so much: the control channel stays well.
#[test]
fn a_lane_whose_acknowledgements_are_forged_is_replaced() {
    for answers in [vec![Answer::Forged(200_000); 2], vec![Answer::Forged(200_000); 5]] {
        let ran = run(3_000_000, answers);
        ran.ended.unwrap();
        assert!(ran.arrived);
        assert_eq!(ran.forgeries, 1, "told once");
    }
}

/// An acknowledgement of TCP's is no proof that it is forged. One lane and the control channel are dialed first.
#[test]
fn a_lane_that_takes_data_which_does_not_arrive_is_replaced() {
    for answers in [vec![Answer::Swallowed(200_000); 2], vec![Answer::Swallowed(200_000); 4]] {
        let ran = run(3_000_000, answers);
        ran.ended.unwrap();
        assert!(ran.arrived);
        assert_eq!(ran.forgeries, 1, "told once");
    }
}
