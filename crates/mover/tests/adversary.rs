//! Source and sink where something on the path answers in place of the peer, or lies about what has
//! arrived.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use farhaul_mover::Cancel;
use farhaul_mover::transfer::link::{Link, LinkHandle, Purpose};
use farhaul_mover::transfer::session::{Dial, Links, NoLink, Options, Session, Way, greet};
use farhaul_mover::transfer::sink::{Sink, SinkOptions, SinkTarget};
use farhaul_mover::transfer::source::{Source, SourceOptions, Sources};
use farhaul_mover::transfer::{Event, TransferError};

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

/// Every connection that was made, to be cut at once.
type All = Arc<Mutex<Vec<UnixStream>>>;

/// A direction that cuts all connections after so many bytes, as a path that breaks does.
struct Limited {
    stream: UnixStream,
    left: usize,
    all: All,
}

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.left == 0 {
            for stream in self.all.lock().unwrap().drain(..) {
                let _ = stream.shutdown(Shutdown::Both);
            }
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let some = bytes.len().min(self.left);
        self.left -= some;
        self.stream.write(&bytes[..some])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn link(stream: UnixStream, left: usize, all: &All) -> Link {
    let all = Arc::clone(all);
    all.lock().unwrap().push(stream.try_clone().unwrap());
    Link {
        reader: Box::new(stream.try_clone().unwrap()),
        writer: Box::new(Limited { stream: stream.try_clone().unwrap(), left, all }),
        handle: Arc::new(Pipe(stream)),
    }
}

/// What a dial comes to.
#[derive(Clone, Copy)]
enum Answer {
    /// The peer, over a connection on which the path breaks after so many bytes of the dialer.
    Peer(usize),
    /// Something that has not shown that it is the peer.
    Stranger,
    /// The peer's own no.
    Refusal,
}

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
            Some(Answer::Peer(limit)) => *limit,
            Some(Answer::Stranger) => return Err(NoLink::Unproven(refused())),
            Some(Answer::Refusal) => return Err(NoLink::Refused(refused())),
            None => usize::MAX,
        };
        let (near, far) = UnixStream::pair()?;
        let (give, all) = (self.give.lock().unwrap().clone(), Arc::clone(&self.all));
        thread::spawn(move || {
            let mut far = link(far, usize::MAX, &all);
            if let Ok(join) = greet(&mut far) {
                let _ = give.send((join.purpose, far));
            }
        });
        Ok(link(near, limit, &self.all))
    }
}

/// Moves a file of some size over one lane; the end of the dialing source, how often it told that
/// something else has answered, and whether the file arrived.
fn run(size: usize, answers: Vec<Answer>) -> (Result<(), TransferError>, u32, bool) {
    let dir = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| dir.path().join(name));
    fs::create_dir(&to).unwrap();
    let content: Vec<u8> = (0..size).map(|n| (n * n / 7) as u8).collect();
    fs::write(&from, &content).unwrap();
    let (give, accepted) = channel();
    let (dialed, all) = Default::default();
    let dial = Path { give: Mutex::new(give), answers, dialed, all };
    let options = Options {
        session: [7; 16],
        outage: Duration::from_secs(60),
        lanes: 1,
        cancel: Cancel::default(),
    };
    let told = AtomicU32::new(0);
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
        threads.spawn(|| drop(theirs.run(&sink, Links::Accept(accepted), &options, &|_| {})));
        let ended = ours.run(&source, Links::Dial(&dial), &options, &observe);
        // A sink that has never been reached would wait for the outage time.
        stopping.cancel();
        ended
    });
    let arrived = fs::read(to.join("from")).is_ok_and(|copy| copy == content);
    (ended, told.into_inner(), arrived)
}

/// The first two dials are the control channel's and the lane's, in any order.
#[test]
fn strangers_that_answer_later_are_like_no_answer_and_told_once() {
    let mut answers = vec![Answer::Peer(100_000); 2];
    // The lane may dial once before it is known that the control channel is gone, too.
    answers.extend([Answer::Stranger; 5]);
    answers.extend([Answer::Peer(100_000); 2]);
    answers.extend([Answer::Stranger; 5]);
    let (ended, told, arrived) = run(3_000_000, answers);
    ended.unwrap();
    assert!(arrived);
    assert_eq!(told, 1);
}

#[test]
fn a_stranger_at_first_ends_the_transfer() {
    let (ended, _, arrived) = run(1000, vec![Answer::Stranger; 2]);
    assert_eq!(ended.unwrap_err().exit_code(), 3);
    assert!(!arrived);
}

#[test]
fn the_peers_own_refusal_is_final_at_any_time() {
    let mut answers = vec![Answer::Peer(100_000); 2];
    answers.extend([Answer::Refusal; 4]);
    let (ended, _, _) = run(3_000_000, answers);
    assert_eq!(ended.unwrap_err().exit_code(), 3);
}
