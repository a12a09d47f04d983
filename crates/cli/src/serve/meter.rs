//! What a server does to a client's connections: it counts them and what they carry, and paces lanes.
//!
//! What goes out is held back before it is written. What comes in is held back after it was read: the
//! transport's window then holds the client. Control channels are counted and not held back, for they must
//! not wait behind the lanes: these wait for what they have taken of the rate.

use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use farhaul_mover::transfer::interrupt::Interrupt;
use farhaul_mover::transfer::link::{Link, LinkFacts, LinkHandle, Purpose};
use farhaul_mover::transfer::memory;
use farhaul_mover::transfer::pace::Pace;
use farhaul_mover::transfer::sink::Helpers;

use super::Limits;
use super::accounts::{Account, UsedUp, today};

/// Lanes that a client has over all its sessions, beyond the first of each session. Each costs a thread and
/// memory.
const FURTHER_LANES: usize = 48;
/// Control channels of a session: one, and one that takes its place. Each costs two threads.
const CONTROLS_OF_SESSION: usize = 2;
/// Control channels that a client has over all its sessions, beyond the first of each session.
const FURTHER_CONTROLS: usize = 8;
/// Connections of a client that have not said yet which session they are for, or wait for one to begin. Each costs
/// a thread.
const GREETED: usize = 24;

/// What the connections of a session have in common.
#[derive(Debug)]
pub struct Meter {
    account: Arc<Account>,
    granted: Mutex<Granted>,
    /// When anything came from the client.
    heard: Mutex<Instant>,
    lanes: Arc<AtomicUsize>,
    controls: Arc<AtomicUsize>,
    /// Entries that were counted.
    entries: AtomicU64,
}

/// What an entry counts beside what is said of it, bytes: its inode.
const ENTRY: u64 = 256;

/// What may change while the session runs.
#[derive(Debug)]
struct Granted {
    limits: Limits,
    pace: Option<Arc<Pace>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One that is counted as long as this is there.
#[derive(Debug)]
pub struct Place(Arc<AtomicUsize>);

impl Place {
    /// One more of these, of which there may be `most`.
    fn take(count: &Arc<AtomicUsize>, most: usize) -> Option<Place> {
        let more = |now: usize| (now < most).then_some(now + 1);
        let taken = count.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        taken.ok().map(|_| Place(Arc::clone(count)))
    }

    /// For a connection that has not said yet what it is for, if the client may have one more of these.
    pub fn greeted(account: &Account) -> Option<Place> {
        Place::take(&account.greeted, GREETED)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The places of a connection of a session: one of its kind in the session, and, unless it is the only one
/// there, one of its client's.
#[derive(Debug)]
struct Places {
    _here: Place,
    _further: Option<Place>,
}

impl Places {
    fn take(
        here: &Arc<AtomicUsize>,
        most: usize,
        further: &Arc<AtomicUsize>,
        most_further: usize,
    ) -> Option<Places> {
        let alone = Place::take(here, 1);
        if alone.is_some() {
            return alone.map(|here| Places { _here: here, _further: None });
        }
        let further = Place::take(further, most_further)?;
        Place::take(here, most).map(|here| Places { _here: here, _further: Some(further) })
    }
}

impl Meter {
    /// Of a session of a client with these limits.
    pub fn new(account: Arc<Account>, limits: Limits) -> Self {
        let pace = account.pace(limits.rate);
        let granted = Mutex::new(Granted { limits, pace });
        let (lanes, controls, entries) = Default::default();
        Meter { account, granted, heard: Mutex::new(Instant::now()), lanes, controls, entries }
    }

    /// From now on these limits hold.
    pub fn set(&self, limits: Limits) {
        let pace = self.account.pace(limits.rate);
        *lock(&self.granted) = Granted { limits, pace };
    }

    /// What a session of the client may keep.
    pub fn memory(&self) -> Arc<memory::Account> {
        Arc::new(memory::Account::below(Arc::clone(&self.account.memory), u64::MAX))
    }

    /// Threads that the client's sinks have beyond those that they need.
    pub fn second_workers(&self) -> &Arc<Helpers> {
        &self.account.second_workers.0
    }

    /// The most entries that a session may announce.
    pub fn max_entries(&self) -> Option<u64> {
        lock(&self.granted).limits.entries
    }

    /// When anything came from the client, or it connected.
    pub fn heard(&self) -> Instant {
        *lock(&self.heard)
    }

    fn pace(&self) -> Option<Arc<Pace>> {
        lock(&self.granted).pace.clone()
    }

    /// Connections that there are now.
    pub fn links(&self) -> usize {
        self.lanes.load(Ordering::Acquire) + self.controls.load(Ordering::Acquire)
    }

    /// Whether more may be moved.
    ///
    /// # Errors
    /// Which limit is used up.
    pub fn check(&self) -> Result<(), UsedUp> {
        let limits = lock(&self.granted).limits;
        self.account.check(&limits, today())
    }

    /// Puts a connection under this meter; gives it back if the session or the client has as many of its kind as
    /// it may have. A session has `most_lanes` at most.
    pub fn take(
        self: &Arc<Self>,
        link: Link,
        purpose: Purpose,
        most_lanes: usize,
    ) -> Result<Link, Link> {
        let lane = !matches!(purpose, Purpose::Control { .. });
        let further = &self.account.further;
        let place = match lane {
            true => Places::take(&self.lanes, most_lanes, &further.lanes, FURTHER_LANES),
            false => Places::take(
                &self.controls,
                CONTROLS_OF_SESSION,
                &further.controls,
                FURTHER_CONTROLS,
            ),
        };
        let Some(place) = place else { return Err(link) };
        *lock(&self.heard) = Instant::now();
        let place = Arc::new(place);
        let Link { reader, writer, handle } = link;
        let held = Arc::<AtomicU64>::default();
        let interrupt = Arc::<Interrupt>::default();
        let (held_too, interrupt_too) = (Arc::clone(&held), Arc::clone(&interrupt));
        let handle = Arc::new(Handle { inner: handle, held: held_too, interrupt: interrupt_too });
        let metered = |inner| Metered {
            inner,
            held: Arc::clone(&held),
            interrupt: Arc::clone(&interrupt),
            meter: Arc::clone(self),
            lane,
            _place: Arc::clone(&place),
        };
        let reader = Box::new(metered(Half::Reader(reader)));
        let writer = Box::new(metered(Half::Writer(writer)));
        Ok(Link { reader, writer, handle })
    }

    /// Counts entries that the client has had made, by how many there are by now.
    pub fn entries(&self, announced: u64) {
        let before = self.entries.fetch_max(announced, Ordering::Relaxed);
        let bytes = announced.saturating_sub(before).saturating_mul(ENTRY);
        // Whether there was so much left is asked by who acts upon the entry.
        let _ = self.take_bytes(bytes);
    }

    /// Takes so many bytes of what the client may move.
    fn take_bytes(&self, bytes: u64) -> Result<(), UsedUp> {
        let limits = lock(&self.granted).limits;
        self.account.take(bytes, &limits, today())
    }

    /// The same for what lanes carry: it comes to nothing where there is less. The session is ended for it soon; until
    /// then nothing more passes.
    fn take_for_lane(&self, bytes: usize) -> io::Result<()> {
        self.take_bytes(bytes as u64).map_err(used_up)
    }

    /// Counts what a control channel carries: it is not held up, so that it can tell of the end, but
    /// lanes wait for what it takes of the rate.
    fn note(&self, bytes: usize) {
        // What is said when all is used up is not acted upon, but for the end.
        let _ = self.take_bytes(bytes as u64);
        if let Some(pace) = self.pace() {
            pace.spend(bytes);
        }
    }

    /// How much of `wanted` bytes lanes may read; some.
    fn room(&self, wanted: usize) -> io::Result<usize> {
        let limits = lock(&self.granted).limits;
        let left = self.account.left(&limits, today());
        if left == 0 {
            self.account.check(&limits, today()).map_err(used_up)?;
        }
        Ok(wanted.min(usize::try_from(left.max(1)).unwrap_or(usize::MAX)))
    }
}

fn used_up(used: UsedUp) -> io::Error {
    io::Error::other(used.to_string())
}

enum Half {
    Reader(Box<dyn Read + Send>),
    Writer(Box<dyn Write + Send>),
}

struct Metered {
    inner: Half,
    meter: Arc<Meter>,
    /// What a control channel carries counts and is not held back.
    lane: bool,
    /// For how long the rate has held the link back, µs.
    held: Arc<AtomicU64>,
    /// Ends waits for the rate when the link is given up.
    interrupt: Arc<Interrupt>,
    _place: Arc<Places>,
}

impl Metered {
    fn held(&self, time: Duration) {
        self.held.fetch_add(time.as_micros() as u64, Ordering::Relaxed);
    }
}

/// The handle of a link that is paced.
struct Handle {
    inner: Arc<dyn LinkHandle>,
    held: Arc<AtomicU64>,
    interrupt: Arc<Interrupt>,
}

impl LinkHandle for Handle {
    fn abort(&self) {
        self.inner.abort();
        self.interrupt.raise();
    }

    fn set_max_rate(&self, bits_per_second: Option<u64>) {
        self.inner.set_max_rate(bits_per_second);
    }

    fn held_back(&self) -> Duration {
        Duration::from_micros(self.held.load(Ordering::Relaxed))
    }

    fn facts(&self) -> LinkFacts {
        self.inner.facts()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}

impl Read for Metered {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let Half::Reader(reader) = &mut self.inner else { return Err(wrong_half()) };
        let meter = &self.meter;
        // Several lanes may have the same room: what each has read it takes, or it is not given out.
        let room = if self.lane { meter.room(buf.len())? } else { buf.len() };
        let buf = &mut buf[..room];
        let (count, held) = match meter.pace().filter(|_| self.lane) {
            Some(pace) => pace.read(reader, buf, &self.interrupt)?,
            None => (reader.read(buf)?, Duration::ZERO),
        };
        if count > 0 {
            *lock(&meter.heard) = Instant::now();
        }
        if self.lane {
            meter.take_for_lane(count)?;
        } else {
            meter.note(count);
        }
        self.held(held);
        Ok(count)
    }
}

impl Write for Metered {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let Half::Writer(writer) = &mut self.inner else { return Err(wrong_half()) };
        let meter = &self.meter;
        if !self.lane {
            let count = writer.write(buf)?;
            meter.note(count);
            return Ok(count);
        }
        meter.take_for_lane(buf.len())?;
        let (count, held) = match meter.pace() {
            Some(pace) => pace.write(writer, buf, &self.interrupt)?,
            None => (writer.write(buf)?, Duration::ZERO),
        };
        meter.account.give_back((buf.len() - count) as u64);
        self.held(held);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.inner {
            Half::Writer(writer) => writer.flush(),
            Half::Reader(_) => Err(wrong_half()),
        }
    }
}

fn wrong_half() -> io::Error {
    io::ErrorKind::Unsupported.into()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    struct Nothing;

    impl LinkHandle for Nothing {
        fn abort(&self) {}
        fn describe(&self) -> String {
            "nothing".into()
        }
    }

    fn link(bytes: usize) -> Link {
        Link {
            reader: Box::new(io::Cursor::new(vec![7; bytes])),
            writer: Box::new(io::sink()),
            handle: Arc::new(Nothing),
        }
    }

    const LANE: Purpose = Purpose::Lane { number: 1 };

    #[test]
    fn connections_are_counted_while_they_are_there() {
        let meter = Arc::new(Meter::new(Arc::default(), Limits::default()));
        let first = meter.take(link(0), LANE, 2).expect("room");
        let second = meter.take(link(0), LANE, 2).expect("room");
        assert!(meter.take(link(0), LANE, 2).is_err());
        assert_eq!(meter.links(), 2);
        drop(first);
        assert_eq!(meter.links(), 1);
        let Link { reader, writer, .. } = second;
        drop(reader);
        assert_eq!(meter.links(), 1, "half of it is there");
        drop(writer);
        assert_eq!(meter.links(), 0);
    }

    #[test]
    fn no_session_is_without_its_first_connections_and_further_ones_are_bounded() {
        let account = Arc::<Account>::default();
        let meters: Vec<_> = (0..16)
            .map(|_| Arc::new(Meter::new(Arc::clone(&account), Limits::default())))
            .collect();
        let take = |purpose: Purpose| -> Vec<Vec<Link>> {
            let all = meters.iter().map(|meter| {
                (0..40).filter_map(|_| meter.take(link(0), purpose, 40).ok()).collect()
            });
            all.collect()
        };
        let lanes = take(LANE);
        let counts: Vec<_> = lanes.iter().map(Vec::len).collect();
        assert_eq!(counts[..2], [40, 10]);
        assert!(counts[2..].iter().all(|count| *count == 1), "{counts:?}");
        let controls = take(Purpose::Control { received: 0 });
        assert_eq!(controls.iter().map(Vec::len).sum::<usize>(), 16 + FURTHER_CONTROLS);
        assert!(controls.iter().all(|of| (1..=CONTROLS_OF_SESSION).contains(&of.len())));
        drop((lanes, controls));
        assert!(meters.iter().all(|meter| meter.links() == 0));
        assert_eq!(account.further.lanes.load(Ordering::Acquire), 0);
        assert_eq!(account.further.controls.load(Ordering::Acquire), 0);
    }

    #[test]
    fn lanes_end_when_the_bytes_are_used_up_and_control_channels_do_not() {
        let limits = Limits { bytes: Some(100), ..Limits::default() };
        let account = Arc::<Account>::default();
        let meter = Arc::new(Meter::new(Arc::clone(&account), limits));
        let mut lane = meter.take(link(1000), LANE, 9).expect("room");
        let mut buf = [0; 60];
        assert_eq!(lane.reader.read(&mut buf).expect("bytes"), 60);
        assert!(lane.writer.write(&buf).is_err());
        assert!(meter.check().is_err());
        let control = Purpose::Control { received: 0 };
        let mut control = meter.take(link(1000), control, 9).expect("room");
        assert_eq!(control.reader.read(&mut buf).expect("bytes"), 60);
        // Another session of the client finds the same.
        assert!(Meter::new(account, limits).check().is_err());
    }

    #[test]
    fn names_links_and_attributes_count_as_data_does() {
        let limits = Limits { bytes: Some(100_000), ..Limits::default() };
        let meter = Arc::new(Meter::new(Arc::default(), limits));
        let control = Purpose::Control { received: 0 };
        let mut control = meter.take(link(99_000), control, 9).expect("room");
        std::io::copy(&mut control.reader, &mut std::io::sink()).expect("bytes");
        assert!(meter.check().is_ok());
        meter.entries(3);
        meter.entries(3);
        assert!(meter.check().is_ok(), "each once");
        meter.entries(4);
        assert!(meter.check().is_err());
    }

    #[test]
    fn lanes_wait_for_what_control_channels_take_of_the_rate() {
        let limits = Limits { rate: Some(8_000_000), ..Limits::default() };
        let meter = Arc::new(Meter::new(Arc::default(), limits));
        let control = Purpose::Control { received: 0 };
        let mut control = meter.take(link(400_000), control, 9).expect("room");
        std::io::copy(&mut control.reader, &mut std::io::sink()).expect("bytes");
        assert_eq!(control.handle.held_back(), Duration::ZERO, "it is not held up itself");
        let mut lane = meter.take(link(1000), LANE, 9).expect("room");
        lane.reader.read_to_end(&mut Vec::new()).expect("bytes");
        assert!(lane.handle.held_back() > Duration::from_millis(100));
    }

    #[test]
    fn new_limits_hold_for_connections_that_are_there() {
        let meter = Arc::new(Meter::new(Arc::default(), Limits::default()));
        let mut lane = meter.take(link(1000), LANE, 9).expect("room");
        let mut buf = [0; 60];
        assert_eq!(lane.reader.read(&mut buf).expect("bytes"), 60);
        meter.set(Limits { bytes: Some(100), rate: Some(8_000_000), ..Limits::default() });
        assert!(meter.pace().is_some() && meter.check().is_ok());
        assert_eq!(lane.reader.read(&mut buf).expect("what is left"), 40);
        assert!(lane.reader.read(&mut buf).is_err());
        meter.set(Limits::default());
        assert!(meter.pace().is_none() && lane.reader.read(&mut buf).is_ok());
    }

    #[test]
    fn what_comes_in_is_held_back_as_what_goes_out() {
        let limits = Limits { rate: Some(8_000_000), ..Limits::default() };
        let meter = Arc::new(Meter::new(Arc::default(), limits));
        let began = Instant::now();
        let mut lane = meter.take(link(200_000), LANE, 9).expect("room");
        let mut all = Vec::new();
        lane.reader.read_to_end(&mut all).expect("bytes");
        let once = lane.handle.held_back();
        assert!(once > Duration::ZERO && once <= began.elapsed());
        lane.writer.write_all(&all).expect("written");
        assert!(lane.handle.held_back() > once);
        assert_eq!(all.len(), 200_000);
        // 400 kB at a megabyte a second, but for what may go at once at the beginning and the last step.
        assert!(began.elapsed() > Duration::from_millis(200), "{:?}", began.elapsed());
    }
}
