//! The sessions that run: whose they are, and how many there may be.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use farhaul_mover::transfer::TransferError;
use farhaul_mover::transfer::link::{Link, Purpose};
use farhaul_remote::Injection;
use farhaul_secure::PublicKey;

use super::admit::{Basis, Refusal};
use super::meter::Meter;

/// A session that nobody has joined for so long makes way for others.
const UNUSED: Duration = Duration::from_secs(15);
/// Between two looks at whether a client is still there.
const LOOK: Duration = Duration::from_millis(20);

/// How long sessions that are in the way of a new one may take.
#[derive(Clone, Copy, Debug)]
pub struct EvictionTimes {
    /// To be gone, if they have just ended.
    pub end: Duration,
    /// To be gone, if they have been told to end: with their last word and what they write.
    pub leave: Duration,
    /// To be heard of: a client that is there says something each second.
    pub silence: Duration,
    /// To connect anew, if nothing was heard.
    pub probe: Duration,
}

/// Which session.
pub type Id = [u8; 16];

/// A session that runs.
#[derive(Debug)]
pub struct Running {
    /// Whose it is: nobody else may join it.
    pub key: PublicKey,
    /// What is done in it; alike in sessions that do the same.
    pub order: blake3::Hash,
    /// What has to stay allowed.
    pub basis: Basis,
    /// Where its connections go.
    pub give: Sender<(Purpose, Link)>,
    /// Its connections.
    pub meter: Arc<Meter>,
    /// Whether data was injected into one of them.
    pub injection: Injection,
    /// Has it begin all connections anew.
    pub reconnect: Arc<AtomicBool>,
    /// Why it is to end.
    pub end: Mutex<Option<TransferError>>,
    /// Control channels that it has had.
    pub controls: AtomicU64,
    ends: AtomicBool,
    over: AtomicBool,
    since: Instant,
}

impl Running {
    /// One that begins now.
    pub fn new(
        key: PublicKey,
        order: blake3::Hash,
        basis: Basis,
        give: Sender<(Purpose, Link)>,
        meter: Meter,
    ) -> Self {
        Running {
            key,
            order,
            basis,
            give,
            meter: Arc::new(meter),
            injection: Injection::default(),
            reconnect: Arc::default(),
            end: Mutex::default(),
            controls: AtomicU64::new(0),
            ends: AtomicBool::new(false),
            over: AtomicBool::new(false),
            since: Instant::now(),
        }
    }

    /// Ends it; the first reason counts.
    pub fn end(&self, why: TransferError) {
        if !self.ends.swap(true, Ordering::AcqRel) {
            *self.end.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        }
    }

    /// Whether its client has gone, for the time being or for good.
    fn is_alone(&self) -> bool {
        let used = self.controls.load(Ordering::Acquire) > 0 || self.since.elapsed() > UNUSED;
        used && self.meter.links() == 0
    }

    /// Whether nothing has come from its client since then. One that has not come yet is waited for.
    fn is_silent(&self, since: Instant) -> bool {
        self.controls.load(Ordering::Acquire) > 0 && self.meter.heard() < since
    }

    /// Finds out whether its client is there, in at most `time`: its connections are broken, and who
    /// is there makes new ones at once. A session that ends by itself meanwhile has answered.
    fn answers(&self, time: Duration) -> bool {
        if self.is_alone() {
            return false;
        }
        let before = self.controls.load(Ordering::Acquire);
        self.reconnect.store(true, Ordering::Release);
        let deadline = Instant::now() + time;
        while Instant::now() < deadline {
            let came = self.controls.load(Ordering::Acquire) > before;
            if came || self.over.load(Ordering::Acquire) {
                return true;
            }
            std::thread::sleep(LOOK);
        }
        false
    }
}

/// Why another session is ended.
fn superseded() -> TransferError {
    TransferError::Stopped("its client had gone, and has begun anew".into())
}

/// All that run.
#[derive(Debug, Default)]
pub struct Sessions {
    all: Mutex<BTreeMap<Id, Arc<Running>>>,
    changed: Condvar,
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Id, Arc<Running>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds one, if the client has less than `of_client` and all have less than `of_all`; a session
    /// counts until its threads have ended. Where there are too many, the client's own that it has left
    /// make way, and what is about to end has its time for that.
    ///
    /// # Errors
    /// Which limit is reached.
    pub fn add(
        &self,
        id: Id,
        session: Arc<Running>,
        of_client: u32,
        of_all: u32,
        times: EvictionTimes,
    ) -> Result<(), Refusal> {
        let began = Instant::now();
        let mut all = self.lock();
        let ends = |other: &&Arc<Running>| other.ends.load(Ordering::Acquire);
        loop {
            let own: Vec<_> =
                all.values().filter(|other| other.key == session.key).cloned().collect();
            let fits = own.len() < of_client as usize;
            if fits && all.len() < of_all as usize {
                all.insert(id, session);
                return Ok(());
            }
            // What is ending already may be enough.
            let others = all.len() - own.len();
            let own: Vec<_> = own.iter().filter(|other| !ends(other)).collect();
            let others_end = all.values().filter(ends).count() - (all.len() - others - own.len());
            let enough =
                own.len() < of_client as usize && own.len() + others - others_end < of_all as usize;
            let alone = own.iter().filter(|other| !enough && other.is_alone());
            if let Some(left) = alone.min_by_key(|other| other.since) {
                left.end(superseded());
                continue;
            }
            let silent = || own.iter().find(|other| other.is_silent(began));
            let passed = began.elapsed();
            let wait = match enough {
                true => passed < times.leave,
                false => passed < times.end || (passed < times.silence && silent().is_some()),
            };
            if wait {
                let waited = self.changed.wait_timeout(all, LOOK);
                all = waited.unwrap_or_else(PoisonError::into_inner).0;
            } else if let Some(silent) = silent().filter(|_| !enough) {
                drop(all);
                if !silent.answers(times.probe) {
                    silent.end(superseded());
                }
                all = self.lock();
            } else if fits {
                let why = "the server has as many sessions as it takes; try again later";
                return Err(Refusal::limit("full", why));
            } else {
                let sessions = if of_client == 1 { "session" } else { "sessions" };
                let why = format!(
                    "this client has {of_client} {sessions} already, and may have no more at a \
                     time; try again when one has ended"
                );
                return Err(Refusal::limit("limit", why));
            }
        }
    }

    /// It has ended.
    pub fn remove(&self, id: &Id) {
        if let Some(session) = self.lock().remove(id) {
            session.over.store(true, Ordering::Release);
        }
        self.changed.notify_all();
    }

    /// The session `id` for the holder of `key`: whether others have such a one, it is not told.
    pub fn get(&self, id: &Id, key: &PublicKey) -> Option<Arc<Running>> {
        self.lock().get(id).filter(|session| session.key == *key).cloned()
    }

    /// Ends sessions of the same client that do the same and that it has left, so that they are not
    /// in its way; those whose client answers within `time` go on.
    pub fn make_way(&self, key: &PublicKey, order: &blake3::Hash, time: Duration) {
        let same: Vec<_> = {
            let all = self.lock();
            let same = |session: &&Arc<Running>| session.key == *key && session.order == *order;
            all.values().filter(same).cloned().collect()
        };
        for session in same.iter().filter(|session| !session.answers(time)) {
            session.end(superseded());
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// Does this to each.
    pub fn each(&self, mut act: impl FnMut(&Running)) {
        self.lock().values().for_each(|session| act(session));
    }

    /// Waits until there is none, for at most `time`.
    pub fn wait_none(&self, time: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.lock(), time, |all| !all.is_empty());
        waited.unwrap_or_else(PoisonError::into_inner).0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use farhaul_mover::transfer::link::LinkHandle;
    use farhaul_secure::Identity;

    use super::*;
    use crate::serve::Limits;

    const NOW: EvictionTimes = EvictionTimes {
        end: Duration::ZERO,
        leave: Duration::ZERO,
        silence: Duration::ZERO,
        probe: Duration::ZERO,
    };

    fn key() -> PublicKey {
        Identity::generate().expect("a key").public_key()
    }

    fn session(key: PublicKey, order: &str) -> Arc<Running> {
        let meter = Meter::new(Arc::default(), Limits::default());
        let basis = Basis::reads("x", "/x");
        Arc::new(Running::new(key, blake3::hash(order.as_bytes()), basis, channel().0, meter))
    }

    #[test]
    fn a_session_is_its_clients_alone() {
        let sessions = Sessions::default();
        let (a, b) = (key(), key());
        sessions.add([1; 16], session(a, "x"), 9, 9, NOW).expect("room");
        assert!(sessions.get(&[1; 16], &a).is_some());
        assert!(sessions.get(&[1; 16], &b).is_none());
        assert!(sessions.get(&[2; 16], &a).is_none());
        sessions.remove(&[1; 16]);
        assert!(sessions.get(&[1; 16], &a).is_none() && sessions.wait_none(Duration::ZERO));
    }

    #[test]
    fn limits_hold_and_what_was_left_makes_way() {
        let sessions = Sessions::default();
        let (a, b, c) = (key(), key(), key());
        let first = session(a, "x");
        sessions.add([1; 16], Arc::clone(&first), 1, 2, NOW).expect("room");
        let refused = sessions.add([2; 16], session(a, "y"), 1, 2, NOW).expect_err("too many");
        assert_eq!(refused.limit, Some("limit"));
        sessions.add([3; 16], session(b, "x"), 1, 2, NOW).expect("room");
        let refused = sessions.add([4; 16], session(c, "x"), 2, 2, NOW).expect_err("full");
        assert_eq!(refused.limit, Some("full"));
        // It has had a connection and has none now.
        first.controls.fetch_add(1, Ordering::AcqRel);
        assert!(sessions.add([4; 16], session(c, "x"), 2, 2, NOW).is_err(), "it is another's");
        // It is to make way, and counts until its threads have ended.
        let refused = sessions.add([2; 16], session(a, "y"), 1, 2, NOW).expect_err("it is there");
        assert_eq!(refused.limit, Some("limit"));
        assert!(first.end.lock().expect("no panic").is_some());
        sessions.remove(&[1; 16]);
        sessions.add([2; 16], session(a, "y"), 1, 2, NOW).expect("room");
    }

    #[test]
    fn what_makes_way_is_waited_for() {
        let sessions = Sessions::default();
        let a = key();
        let left = session(a, "x");
        left.controls.fetch_add(1, Ordering::AcqRel);
        let others = [session(a, "y"), session(a, "z")];
        sessions.add([1; 16], Arc::clone(&left), 3, 3, NOW).expect("room");
        for (id, other) in [[2; 16], [3; 16]].into_iter().zip(&others) {
            sessions.add(id, Arc::clone(other), 3, 3, NOW).expect("room");
        }
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while left.end.lock().expect("no panic").is_none() {
                    std::thread::yield_now();
                }
                sessions.remove(&[1; 16]);
            });
            let times = EvictionTimes { leave: Duration::from_secs(60), ..NOW };
            sessions.add([4; 16], session(a, "y"), 3, 3, times).expect("room");
        });
        // One was enough.
        assert!(others.iter().all(|other| other.end.lock().expect("no panic").is_none()));
    }

    #[test]
    fn what_is_not_heard_of_makes_way_though_its_connections_are_there() {
        struct Nothing;
        impl LinkHandle for Nothing {
            fn abort(&self) {}
            fn describe(&self) -> String {
                "nothing".into()
            }
        }
        let sessions = Sessions::default();
        let (a, b) = (key(), key());
        let first = session(a, "x");
        first.controls.fetch_add(1, Ordering::AcqRel);
        let link = Link {
            reader: Box::new(std::io::empty()),
            writer: Box::new(std::io::sink()),
            handle: Arc::new(Nothing),
        };
        let control = Purpose::Control { received: 0 };
        let _link = first.meter.take(link, control, 9).expect("room");
        sessions.add([1; 16], Arc::clone(&first), 1, 2, NOW).expect("room");
        sessions.add([2; 16], session(b, "y"), 1, 2, NOW).expect("room");
        assert!(!first.is_alone() && first.end.lock().expect("no panic").is_none());
        assert!(sessions.add([3; 16], session(a, "y"), 1, 2, NOW).is_err(), "it is there");
        assert!(first.end.lock().expect("no panic").is_some());
    }

    #[test]
    fn the_same_again_ends_what_nobody_answers_for() {
        let sessions = Sessions::default();
        let a = key();
        let [same, other] = ["x", "y"].map(|order| session(a, order));
        for (id, session) in [([1; 16], &same), ([2; 16], &other)] {
            session.controls.fetch_add(1, Ordering::AcqRel);
            sessions.add(id, Arc::clone(session), 9, 9, NOW).expect("room");
        }
        sessions.make_way(&a, &blake3::hash(b"x"), Duration::from_secs(60));
        assert!(same.end.lock().expect("no panic").is_some());
        assert!(other.end.lock().expect("no panic").is_none());
    }
}
