//! Attending a port: a thread that waits to read or to write receives, keeps the timers and sends
//! meanwhile, in the driver's place.
//!
//! It may leave without a word, to compute or for ever. So it says until when the driver may rely on it, and
//! puts off the driver's alarm each time; the driver sleeps until the alarm, and costs nothing while it is put off.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use farhaul_base::Time;
use farhaul_engine::ConnectionId;

use super::{Port, Turn, release};
use crate::receiver::{Receiver, gather_acks};

/// A thread that attends the port is expected to come back so soon after it has looked; after that the driver does
/// it again.
const ATTENDANT_RETURNS: Duration = Duration::from_millis(1);
/// The driver's alarm may be this much early or late: it is not set anew each time.
const ALARM_TOLERANCE: Duration = Duration::from_micros(500);
/// What arrives in that time must fit the kernel's buffer with ease.
const ATTENDED_BUFFER: usize = 1 << 20;
/// A thread attends so long with nothing arriving before it leaves that to the driver.
const IDLE_LIMIT: Duration = Duration::from_millis(2);
/// When other connections than the attendant's have something to do, the driver attends to all of
/// them for so long.
const SHARED: Duration = Duration::from_millis(20);

impl Port {
    /// Whether a thread that waits attends the port, or is about to.
    pub(super) fn is_attended(&self) -> bool {
        self.now().as_nanos() < self.attended_until.load(Ordering::SeqCst)
    }

    /// The driver may rely on this thread until then, and a little longer.
    fn attend_until(&self, until: Time) {
        let until = until + ATTENDANT_RETURNS;
        self.attended_until.store(until.as_nanos(), Ordering::SeqCst);
        let alarm = Time::from_nanos(self.alarm_at.load(Ordering::SeqCst));
        if alarm + ALARM_TOLERANCE < until || until + ALARM_TOLERANCE < alarm {
            self.set_alarm();
        }
    }

    /// Has the driver woken when the port is no longer attended. The driver itself calls this before it sleeps.
    pub(super) fn set_alarm(&self) {
        // The last one to set it has seen the last word of the attendant.
        let _turn = self.alarm.lock().unwrap_or_else(PoisonError::into_inner);
        let until = self.attended_until.load(Ordering::SeqCst);
        self.alarm_at.store(until, Ordering::SeqCst);
        self.waker.wake_after(Time::from_nanos(until) - self.now());
    }

    /// A thread that waits for connection `own` receives, keeps the timers and sends, once; false
    /// if that is not its to do: the driver or another thread does, or other connections need the
    /// driver's care. `idle_since`: since when nothing has come; `deadline`: it is not to wait for longer.
    pub fn attend(
        &self,
        own: ConnectionId,
        idle_since: &mut Option<Instant>,
        deadline: Option<Instant>,
    ) -> bool {
        if self.socket.buffers().receive < ATTENDED_BUFFER
            || self.now().as_nanos() < self.shared_until.load(Ordering::Relaxed)
        {
            return false;
        }
        let Ok(mut receiver) = self.receiver.try_lock() else { return false };
        if let Some(wait) = receiver.should_gather(self) {
            self.attend_until(self.now() + wait);
            if self.socket.gather(&self.attendant, Some(wait)).is_err() {
                return false;
            }
        }
        if !self.attend_once(own, &mut receiver) {
            return false;
        }
        if receiver.received_something() {
            *idle_since = None;
            return true;
        }
        let since = *idle_since.get_or_insert_with(Instant::now);
        let idle = IDLE_LIMIT.saturating_sub(since.elapsed());
        if idle.is_zero() {
            // The driver takes over and wakes this thread when there is something.
            self.stop_attending();
            return false;
        }
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        self.wait_for_news(&receiver, idle.min(left.unwrap_or(idle)))
    }

    /// Waits until something arrives, is due, or another thread has made something due; `longest` at most.
    fn wait_for_news(&self, receiver: &Receiver, longest: Duration) -> bool {
        let mut state = self.lock();
        let now = self.now();
        let due = state.endpoint.poll_timeout().map_or(longest, |at| at - now);
        let until = now + due.min(longest);
        state.attendant_until = until;
        let few = receiver.sees_acks_only();
        let gather = few.then(|| gather_acks(now, &state.endpoint)).flatten();
        drop(state);
        self.attend_until(until);
        let wait = due.min(longest);
        if wait.is_zero() {
            return true;
        }
        match gather {
            Some(time) => self.socket.gather(&self.attendant, Some(wait.min(time))).is_ok(),
            None => self.socket.wait(&self.attendant, Some(wait)).is_ok(),
        }
    }

    /// A thread that has just written looks whether something has come, if it attends the port now
    /// and then.
    pub fn look_in(&self, own: ConnectionId) {
        if self.is_attended()
            && let Ok(mut receiver) = self.receiver.try_lock()
        {
            self.attend_once(own, &mut receiver);
        }
    }

    /// Receives and handles what has come and is due; false if the driver is to do so from now on.
    fn attend_once(&self, own: ConnectionId, receiver: &mut Receiver) -> bool {
        let now = self.now();
        self.attend_until(now);
        receiver.receive(self);
        let mut state = self.lock();
        state.attendant_until = Time::ZERO;
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
        self.attended_until.store(0, Ordering::SeqCst);
        self.waker.wake();
    }
}
