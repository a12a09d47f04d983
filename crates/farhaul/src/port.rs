//! A UDP port: the engine's endpoint, the socket, and the thread that drives both.
//!
//! All state lies behind one lock, which is held for protocol work only: never during a system
//! call, and never while payload is copied. Any thread may send what is due (`transmit`); the
//! driver thread keeps the timers, receives, and sends what arrivals and timers release. A thread
//! that waits to read or to write does all that by itself meanwhile (`attend`), as long as the
//! port's other connections are quiet: what it then copies is in its processor's cache, and nobody
//! had to be woken.

mod attend;

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::Waker as TaskWaker;
use std::time::{Duration, Instant};

use farhaul_base::Time;
use farhaul_control::Groups;
use farhaul_engine::{ConnectionId, Endpoint, Events, Transmit};
use farhaul_udp::{MAX_SEGMENTS, UdpSocket, Waker};

use crate::options::Options;
use crate::pool::Pool;
use crate::receiver::{Receiver, gather_acks};
use crate::waiting::{Hooks, Signal, Tasks};

/// Receive calls in a row after which readers are told at last that there is something.
const CALLS_BEFORE_NOTICE: u32 = 4;
/// Send calls after which a thread leaves the rest to the driver, or the driver looks at what has
/// arrived.
const CALLS_PER_TURN: usize = 32;
/// How often the driver looks at its timers while the kernel has no room for what is to be sent.
const ROOM_WAIT: Duration = Duration::from_millis(10);
/// Bytes of kernel memory that a datagram of 1500 bytes takes in a receive buffer.
const KERNEL_PACKET: usize = 2304;

pub struct Port {
    pub socket: UdpSocket,
    pub pool: Pool,
    waker: Waker,
    state: Mutex<State>,
    /// Held while sending, so that packets leave in the order they were taken.
    transmit: Mutex<Outgoing>,
    /// Somebody wanted to send while another thread did.
    transmit_again: AtomicBool,
    /// Held while receiving, so that packets are handled in the order they came.
    receiver: Mutex<Receiver>,
    /// Ends the wait of a thread that attends the port.
    attendant: Waker,
    /// A thread that waits attends the port until then, nanoseconds; zero when none does.
    attended_until: AtomicU64,
    /// For when the driver's alarm is set, nanoseconds. The lock is for who sets it.
    alarm_at: AtomicU64,
    alarm: Mutex<()>,
    /// The driver attends until then, nanoseconds.
    shared_until: AtomicU64,
    /// The network's last word on a packet to be sent, and to whom, for error messages.
    send_error: Mutex<Option<(SocketAddr, io::Error)>>,
    /// For tests: the driver's next turn is its last.
    fails: AtomicBool,
}

/// What is being sent.
#[derive(Debug, Default)]
struct Outgoing {
    out: Transmit,
    /// Datagrams of it that are done with; the others wait for room in the kernel.
    done: usize,
}

/// How a thread's turn to send ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Everything due is sent, or another thread is at it.
    Done,
    /// There is more: the driver's to send.
    More,
    /// The kernel has no room: the driver's to wait for.
    Full,
}

/// What ends the driver's sleep, beside the waker and what is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sleep {
    /// An arrival.
    Arrival,
    /// An arrival that is not an acknowledgement's alone: those may wait for the pacing of what is sent.
    Data,
    /// Nothing else, for at most this time: something will arrive right away and may wait for more.
    Gather(Duration),
    /// Nothing else, and what is due neither: an attendant sees to it all.
    Attended,
}

pub struct State {
    pub endpoint: Endpoint,
    hooks: BTreeMap<ConnectionId, Arc<Hooks>>,
    /// Signals connections to accept.
    pub acceptable: Arc<Signal>,
    pub accept_tasks: Tasks,
    /// Somebody listens.
    pub listening: bool,
    /// The driver thread has failed: nothing will happen any more.
    failed: bool,
    /// Signals that a connection has gone.
    pub gone: Arc<Signal>,
    /// Handles of the application; without one the port closes when its connections are over.
    users: usize,
    /// The driver sleeps until then; zero while it is awake.
    asleep_until: Time,
    /// The same of a thread that attends the port.
    attendant_until: Time,
    /// Connections with something to read of which nobody was told yet.
    unread: Vec<ConnectionId>,
    /// Something was read: there may be a window to announce.
    was_read: bool,
    /// Tasks to be woken once the lock is released: a waker may run anything, even what takes it.
    woken: Vec<TaskWaker>,
}

impl State {
    pub fn hooks(&mut self, id: ConnectionId) -> Arc<Hooks> {
        Arc::clone(self.hooks.entry(id).or_default())
    }

    pub fn remove_hooks(&mut self, id: ConnectionId) {
        self.hooks.remove(&id);
    }

    /// Whether waiting makes sense.
    ///
    /// # Errors
    ///
    /// The port's thread has failed.
    pub fn check(&self) -> io::Result<()> {
        if self.failed {
            return Err(io::Error::other("the thread that drives the port has failed"));
        }
        Ok(())
    }

    /// Lets all who wait on a connection look again.
    pub fn notify(&mut self, id: ConnectionId) {
        if let Some(hooks) = self.hooks.get(&id) {
            hooks.notify_readers(&mut self.woken);
            hooks.notify_writers(&mut self.woken);
        }
    }

    /// Nothing will happen any more: ends all waiting.
    fn fail(&mut self) {
        self.failed = true;
        for hooks in self.hooks.values() {
            hooks.notify_readers(&mut self.woken);
            hooks.notify_writers(&mut self.woken);
        }
        self.acceptable.notify();
        self.accept_tasks.take(&mut self.woken);
        self.gone.notify();
    }

    /// Passes on what has happened; returns whether any of it concerns another connection than
    /// `own`. Readers are told at `drained`, or the thread that is woken would compete with the one
    /// that still receives.
    fn dispatch(&mut self, drained: bool, own: Option<ConnectionId>) -> bool {
        let mut others = false;
        while let Some((id, events)) = self.endpoint.poll_event() {
            others |= own != Some(id);
            let Events { connected, readable, writable, flushed, closed, .. } = events;
            let Some(hooks) = self.hooks.get(&id) else { continue };
            if writable || flushed || closed || connected {
                hooks.notify_writers(&mut self.woken);
            }
            if closed || connected {
                hooks.notify_readers(&mut self.woken);
            } else if readable && !self.unread.contains(&id) {
                self.unread.push(id);
            }
        }
        if drained {
            for id in self.unread.drain(..) {
                if let Some(hooks) = self.hooks.get(&id) {
                    hooks.notify_readers(&mut self.woken);
                }
            }
        }
        if self.endpoint.acceptable() > 0 {
            self.acceptable.notify();
            self.accept_tasks.take(&mut self.woken);
        }
        self.gone.notify();
        others
    }
}

/// A mutex whose holder panicked still guards consistent data here: nothing is left half-done
/// under it but by a bug, and that one has been reported already.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Releases the lock and wakes those that `dispatch` found.
fn release(mut state: MutexGuard<'_, State>) {
    let woken = core::mem::take(&mut state.woken);
    drop(state);
    woken.into_iter().for_each(TaskWaker::wake);
}

/// The origin of the time of all ports: laws of one group compare what each is told.
static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
/// What laws of the connections of this process share.
static GROUPS: LazyLock<Groups> = LazyLock::new(Groups::default);

fn now() -> Time {
    Time::from_nanos(ORIGIN.elapsed().as_nanos() as u64)
}

impl Port {
    /// Opens a port and starts its thread.
    pub fn open(addr: SocketAddr, options: &Options) -> io::Result<PortHandle> {
        let pool = Pool::default();
        let socket = UdpSocket::bind(addr, &options.udp)?;
        let seed = getrandom::u64().map_err(io::Error::other)?;
        let mut endpoint = Endpoint::new(now(), seed);
        endpoint.share_groups(&GROUPS);
        let port = Arc::new(Port {
            socket,
            pool: pool.clone(),
            waker: Waker::new()?,
            state: Mutex::new(State {
                endpoint,
                hooks: BTreeMap::new(),
                acceptable: Arc::default(),
                accept_tasks: Tasks::default(),
                listening: false,
                failed: false,
                gone: Arc::default(),
                users: 1,
                asleep_until: Time::ZERO,
                attendant_until: Time::ZERO,
                unread: Vec::new(),
                was_read: false,
                woken: Vec::new(),
            }),
            transmit: Mutex::default(),
            transmit_again: AtomicBool::new(false),
            receiver: Mutex::new(Receiver::new(&pool)),
            attendant: Waker::new()?,
            attended_until: AtomicU64::new(0),
            alarm_at: AtomicU64::new(0),
            alarm: Mutex::new(()),
            shared_until: AtomicU64::new(0),
            send_error: Mutex::new(None),
            fails: AtomicBool::new(false),
        });
        let driven = Driver(Arc::clone(&port));
        std::thread::Builder::new().name("farhaul".into()).spawn(move || driven.0.drive())?;
        Ok(PortHandle(port))
    }

    /// The engine's time.
    pub fn now(&self) -> Time {
        now()
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Does something with the state, sends what follows, and wakes the driver if a timer is now
    /// due before it wakes by itself.
    pub fn update<R>(&self, action: impl FnOnce(Time, &mut State) -> R) -> R {
        let mut state = self.lock();
        let now = self.now();
        let result = action(now, &mut state);
        let news = state.dispatch(true, None);
        release(state);
        self.flush();
        if news && self.is_attended() {
            // The thread that attends may wait for just that.
            self.attendant.wake();
        }
        result
    }

    /// Sends what is due, and sees to it that a thread wakes for what is due next.
    pub fn flush(&self) {
        if self.transmit() != Turn::Done {
            self.keeper().wake();
            return;
        }
        self.next_due();
    }

    /// Wakes the thread that keeps the timers if it would sleep beyond the next.
    fn next_due(&self) {
        let state = self.lock();
        let due = state.endpoint.poll_timeout();
        let attended = self.is_attended();
        let until = if attended { state.attendant_until } else { state.asleep_until };
        drop(state);
        if due.is_some_and(|at| at < until) {
            let keeper = if attended { &self.attendant } else { &self.waker };
            keeper.wake();
        }
    }

    /// Wakes the thread that keeps the timers and receives.
    fn keeper(&self) -> &Waker {
        if self.is_attended() { &self.attendant } else { &self.waker }
    }

    /// After a read: only an opened window makes something to send, which the driver does if it is
    /// awake.
    pub fn flush_after_read(&self) {
        let mut state = self.lock();
        let asleep = state.asleep_until > Time::ZERO;
        state.was_read |= !asleep;
        drop(state);
        if asleep {
            self.flush();
        }
    }

    /// Packets that may come at once: what fits half the kernel's receive buffer.
    pub fn burst_room(&self) -> u32 {
        let fits = self.socket.buffers().receive / 2 / KERNEL_PACKET;
        u32::try_from(fits).unwrap_or(u32::MAX).max(32)
    }

    /// What the network last said when a packet to `peer` could not be sent.
    pub fn take_send_error(&self, peer: SocketAddr) -> Option<io::Error> {
        lock(&self.send_error).take_if(|(to, _)| *to == peer).map(|(_, error)| error)
    }

    /// Sends what is due, without waiting. If another thread is at it, that one goes on.
    fn transmit(&self) -> Turn {
        let mut calls = 0;
        self.transmit_again.store(true, Ordering::SeqCst);
        while self.transmit_again.load(Ordering::SeqCst) {
            let mut outgoing = match self.transmit.try_lock() {
                Ok(outgoing) => outgoing,
                Err(TryLockError::Poisoned(outgoing)) => outgoing.into_inner(),
                Err(TryLockError::WouldBlock) => return Turn::Done,
            };
            self.transmit_again.store(false, Ordering::SeqCst);
            loop {
                if !self.send(&mut outgoing) {
                    return Turn::Full;
                }
                if calls == CALLS_PER_TURN {
                    return Turn::More;
                }
                let Outgoing { out, done } = &mut *outgoing;
                if !self.lock().endpoint.poll_transmit(self.now(), out) {
                    *done = out.segments();
                    break;
                }
                *done = 0;
                calls += 1;
            }
        }
        Turn::Done
    }

    /// Sends what is left of `outgoing`; false if the kernel has no room for it.
    fn send(&self, outgoing: &mut Outgoing) -> bool {
        let Outgoing { out, done } = outgoing;
        let count = out.segments().min(MAX_SEGMENTS);
        if *done >= count {
            return true;
        }
        let mut slices = [IoSlice::new(&[]); 2 * MAX_SEGMENTS];
        for (pair, (header, payload)) in slices.chunks_mut(2).zip(out.datagrams()) {
            pair[0] = IoSlice::new(header);
            pair[1] = IoSlice::new(payload);
        }
        let sent = self.socket.send(out.to(), out.segment_size(), &slices[2 * *done..2 * count]);
        *done += sent.datagrams;
        if let Some(error) = sent.error {
            // Like a loss: the protocol makes up for it, or gives the connection up.
            *lock(&self.send_error) = Some((out.to(), error));
        }
        *done >= count
    }

    /// Has the driver thread panic, to test what becomes of those that depend on it.
    pub fn fail_driver(&self) {
        self.fails.store(true, Ordering::Relaxed);
        self.waker.wake();
    }

    /// The driver thread.
    fn drive(&self) {
        farhaul_udp::precise_sleep();
        let mut calls = 0;
        loop {
            assert!(!self.fails.load(Ordering::Relaxed), "a failure that a test has asked for");
            if self.is_attended() {
                if self.sleep(Sleep::Attended) {
                    return;
                }
                continue;
            }
            let mut receiver = lock(&self.receiver);
            self.attended_until.store(0, Ordering::SeqCst);
            let drained = receiver.receive(self);
            let gather = receiver.should_gather(self);
            let arrivals = if receiver.sees_acks_only() { Sleep::Data } else { Sleep::Arrival };
            let timers_until = receiver.timers_until(self.now());
            drop(receiver);
            calls = if drained { 0 } else { (calls + 1) % CALLS_BEFORE_NOTICE };
            let mut state = self.lock();
            state.endpoint.handle_timeout(timers_until);
            state.dispatch(calls == 0, None);
            release(state);
            let turn = self.transmit();
            let pause = gather.map_or(arrivals, Sleep::Gather);
            if drained && turn == Turn::Done && self.sleep(pause) {
                return;
            }
            if drained && turn == Turn::Full {
                // An error here could only be a bug, and ends in another look at everything.
                let _ = self.socket.wait_room(ROOM_WAIT);
            }
        }
    }

    /// Sleeps; true if there is nothing left to drive.
    fn sleep(&self, how: Sleep) -> bool {
        let mut state = self.lock();
        if core::mem::take(&mut state.was_read) && how != Sleep::Attended {
            return false;
        }
        if state.users == 0 && state.endpoint.is_empty() {
            return true;
        }
        let now = self.now();
        let deadline = match how {
            Sleep::Attended => Time::MAX,
            _ => state.endpoint.poll_timeout().unwrap_or(Time::MAX),
        };
        if deadline <= now {
            return false;
        }
        state.asleep_until = deadline;
        let acks = (how == Sleep::Data).then(|| gather_acks(now, &state.endpoint)).flatten();
        let how = acks.map_or(how, Sleep::Gather);
        drop(state);
        let timeout = (deadline != Time::MAX).then(|| deadline - now);
        let result = match how {
            Sleep::Arrival | Sleep::Data => self.socket.wait(&self.waker, timeout).map(drop),
            Sleep::Gather(wait) => {
                self.socket.gather(&self.waker, Some(timeout.map_or(wait, |t| t.min(wait))))
            }
            Sleep::Attended => {
                self.set_alarm();
                self.socket.gather(&self.waker, None)
            }
        };
        // An error here could only be a bug; a pause keeps it from burning the processor.
        if result.is_err() {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.lock().asleep_until = Time::ZERO;
        false
    }
}

/// The driver thread's share of a port: should the thread fail, nobody waits for it.
struct Driver(Arc<Port>);

impl Drop for Driver {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut state = self.0.lock();
            state.fail();
            release(state);
        }
    }
}

/// A share of a port. The port closes when the last one is gone and its connections are over.
pub struct PortHandle(Arc<Port>);

/// The address alone: the state holds secrets, and the data of users.
impl std::fmt::Debug for PortHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Port").field(&self.0.socket.local_addr()).finish()
    }
}

impl std::ops::Deref for PortHandle {
    type Target = Port;

    fn deref(&self) -> &Port {
        &self.0
    }
}

impl Clone for PortHandle {
    fn clone(&self) -> Self {
        self.0.lock().users += 1;
        PortHandle(Arc::clone(&self.0))
    }
}

impl Drop for PortHandle {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.users -= 1;
        let last = state.users == 0;
        drop(state);
        if last {
            self.0.waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_a_driver_that_has_failed() {
        let addr = "127.0.0.1:0".parse().unwrap();
        let port = Port::open(addr, &Options::new()).unwrap();
        let waiting = std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let mut state = port.lock();
                let signal = Arc::clone(&state.acceptable);
                loop {
                    match signal.wait(state, None) {
                        Ok(again) => state = again,
                        Err(error) => return error,
                    }
                }
            });
            let driver = Driver(Arc::clone(&port.0));
            scope
                .spawn(move || {
                    let _driver = driver;
                    // As a panic, but without its report.
                    std::panic::resume_unwind(Box::new(()));
                })
                .join()
                .unwrap_err();
            waiter.join().unwrap()
        });
        assert!(waiting.to_string().contains("failed"));
    }
}
