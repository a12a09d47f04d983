//! Attending a port: a thread that waits to read or to write receives, keeps the timers and sends
//! meanwhile, in the driver's place.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use farhaul_base::Time;
use farhaul_engine::ConnectionId;

use super::{Port, Turn, release};
use crate::receiver::Receiver;

/// A thread that attends the port is expected to come back so soon; after that the driver does it
/// again.
const ATTENDANT_RETURNS: Duration = Duration::from_millis(1);
/// How often the driver looks whether one still does.
pub(super) const ATTENDANT_CHECK: Duration = Duration::from_micros(500);
/// What arrives in that time must fit the kernel's buffer with ease.
const ATTENDED_BUFFER: usize = 1 << 20;
/// A thread attends so long with nothing arriving before it leaves that to the driver.
const PATIENCE: Duration = Duration::from_millis(2);
/// When other connections than the attendant's have something to do, the driver attends to all of
/// them for so long.
const SHARED: Duration = Duration::from_millis(20);

impl Port {
    /// Whether a thread that waits attends the port, or is about to.
    pub(super) fn is_attended(&self) -> bool {
        let at = self.attended_at.load(Ordering::Relaxed);
        at != 0 && self.now() - Time::from_nanos(at) < ATTENDANT_RETURNS
    }

    /// A thread that waits for connection `own` receives, keeps the timers and sends, once; false
    /// if that is not its to do: the driver or another thread does, or other connections need the
    /// driver's care. `idle_since`: since when nothing has come.
    pub fn attend(&self, own: ConnectionId, idle_since: &mut Option<Instant>) -> bool {
        if self.socket.buffers().receive < ATTENDED_BUFFER
            || self.now().as_nanos() < self.shared_until.load(Ordering::Relaxed)
        {
            return false;
        }
        let Ok(mut receiver) = self.receiver.try_lock() else { return false };
        if let Some(wait) = receiver.should_gather(self) {
            std::thread::sleep(wait);
        }
        if !self.attend_once(own, &mut receiver) {
            return false;
        }
        let due = self.next_due();
        if receiver.received_something() {
            *idle_since = None;
            return true;
        }
        let since = *idle_since.get_or_insert_with(Instant::now);
        if since.elapsed() > PATIENCE {
            // The driver takes over and wakes this thread when there is something.
            self.stop_attending();
            return false;
        }
        let due = due.map_or(ATTENDANT_CHECK, |at| at - self.now());
        self.socket.wait_arrival(due.min(ATTENDANT_CHECK)).is_ok()
    }

    /// A thread that has just written looks whether something has come, if it attends the port now
    /// and then.
    pub fn look_in(&self, own: ConnectionId) {
        if self.is_attended()
            && let Ok(mut receiver) = self.receiver.try_lock()
            && self.attend_once(own, &mut receiver)
        {
            self.next_due();
        }
    }

    /// Receives and handles what has come and is due; false if the driver is to do so from now on.
    fn attend_once(&self, own: ConnectionId, receiver: &mut Receiver) -> bool {
        let now = self.now();
        self.attended_at.store(now.as_nanos().max(1), Ordering::Relaxed);
        receiver.receive(self);
        let mut state = self.lock();
        state.endpoint.handle_timeout(receiver.timers_until(now));
        let others = state.dispatch(true, Some(own));
        let failed = state.check().is_err();
        release(state);
        let turn = self.transmit();
        if others {
            let until = now + SHARED;
            self.shared_until.store(until.as_nanos(), Ordering::Relaxed);
        }
        if others || failed || turn != Turn::Done {
            self.stop_attending();
            return false;
        }
        true
    }

    /// Nobody attends from now on: a thread that did is about to wait for something else.
    pub fn leave(&self) {
        if self.is_attended() {
            self.stop_attending();
        }
    }

    fn stop_attending(&self) {
        self.attended_at.store(0, Ordering::Relaxed);
        self.waker.wake();
    }
}
