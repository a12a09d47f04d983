//! A UDP port: the engine's endpoint, the socket, and the thread that drives both.
//!
//! All state lies behind one lock, which is held for protocol work only: never during a system
//! call, and never while payload is copied. Any thread may send what is due (`transmit`); the
//! driver thread receives, keeps the timers, and sends what arrivals and timers release.

use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker as TaskWaker;
use std::time::{Duration, Instant};

use farhaul_base::Time;
use farhaul_engine::{ConnectionId, Endpoint, Events, Transmit};
use farhaul_udp::{MAX_SEGMENTS, ReceiveSlots, Received, UdpSocket, Waker};

use crate::options::Options;
use crate::pool::{BLOCK, Block, Pool};

/// Buffers in one receive call: many while they hold single datagrams, few while receive offload
/// fills them, so that what was received is handled while it is in the cache.
const SMALL_SLOTS: usize = 16;
const LARGE_SLOTS: usize = 2;
/// While packets come thick and one by one, arrivals are left to gather for so long: a wake-up for
/// each would cost more than all the rest.
const GATHER: Duration = Duration::from_micros(200);
/// What arrives in that time must fit the kernel's buffer with ease.
const GATHER_BUFFER: usize = 1 << 20;
/// A receive buffer is kept by reference if it is at least half full.
const RETAIN_FROM: usize = BLOCK / 2;
/// Receive calls in a row after which readers are told at last that there is something.
const CALLS_BEFORE_NOTICE: u32 = 4;
/// Bytes of kernel memory that a datagram of 1500 bytes takes in a receive buffer.
const KERNEL_PACKET: usize = 2304;

#[derive(Debug)]
pub struct Port {
    pub socket: UdpSocket,
    pub pool: Pool,
    origin: Instant,
    waker: Waker,
    state: Mutex<State>,
    /// Held while sending, so that packets leave in the order they were taken.
    transmit: Mutex<Transmit>,
    /// Somebody wanted to send while another thread did.
    transmit_again: AtomicBool,
    /// The network's last word on a packet to be sent, for error messages.
    send_error: Mutex<Option<io::Error>>,
}

#[derive(Debug)]
pub struct State {
    pub endpoint: Endpoint,
    hooks: BTreeMap<ConnectionId, Arc<Hooks>>,
    /// Signals connections to accept.
    pub acceptable: Arc<Signal>,
    pub accept_wakers: Vec<TaskWaker>,
    /// Signals that a connection has gone.
    pub gone: Arc<Signal>,
    /// Handles of the application; without one the port closes when its connections are over.
    users: usize,
    /// The driver sleeps until then; zero while it is awake.
    asleep_until: Time,
    /// Connections with something to read of which nobody was told yet.
    unread: Vec<ConnectionId>,
}

/// A condition under the port's lock. Signalling it costs nothing while nobody waits.
#[derive(Debug, Default)]
pub struct Signal {
    condition: Condvar,
    waiting: AtomicUsize,
}

impl Signal {
    /// Waits for the signal, at most until `deadline`; the time-out of a call is an error.
    pub fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        deadline: Option<Instant>,
    ) -> io::Result<MutexGuard<'a, State>> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let result = match deadline.map(|at| at.saturating_duration_since(Instant::now())) {
            None => Ok(self.condition.wait(state).unwrap_or_else(PoisonError::into_inner)),
            Some(Duration::ZERO) => {
                Err(io::Error::new(io::ErrorKind::TimedOut, "the time-out of the call is over"))
            }
            Some(left) => Ok(self
                .condition
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0),
        };
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        result
    }

    fn notify(&self) {
        // Both sides hold the lock, so that nobody begins to wait in between.
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.condition.notify_all();
        }
    }
}

/// Who waits for what on a connection.
#[derive(Debug, Default)]
pub struct Hooks {
    pub readable: Signal,
    pub writable: Signal,
    tasks: Mutex<TaskHooks>,
}

#[derive(Debug, Default)]
struct TaskHooks {
    readers: Vec<TaskWaker>,
    writers: Vec<TaskWaker>,
}

impl Hooks {
    /// Wakes `task` when there may be something to read.
    #[cfg(feature = "tokio")]
    pub fn wake_reader(&self, task: &TaskWaker) {
        register(&mut lock(&self.tasks).readers, task);
    }

    /// Wakes `task` when there may be room to write, or the connection is set up or over.
    #[cfg(feature = "tokio")]
    pub fn wake_writer(&self, task: &TaskWaker) {
        register(&mut lock(&self.tasks).writers, task);
    }

    fn notify_readers(&self) {
        self.readable.notify();
        lock(&self.tasks).readers.drain(..).for_each(TaskWaker::wake);
    }

    fn notify_writers(&self) {
        self.writable.notify();
        lock(&self.tasks).writers.drain(..).for_each(TaskWaker::wake);
    }
}

/// Adds `task` to those to be woken, once.
#[cfg(feature = "tokio")]
pub fn register(wakers: &mut Vec<TaskWaker>, task: &TaskWaker) {
    if !wakers.iter().any(|w| w.will_wake(task)) {
        wakers.push(task.clone());
    }
}

impl State {
    pub fn hooks(&mut self, id: ConnectionId) -> Arc<Hooks> {
        Arc::clone(self.hooks.entry(id).or_default())
    }

    pub fn remove_hooks(&mut self, id: ConnectionId) {
        self.hooks.remove(&id);
    }

    /// Passes on what has happened. Readers are told at `drained`, or the thread that is woken
    /// would compete with the one that still receives.
    fn dispatch(&mut self, drained: bool) {
        while let Some((id, events)) = self.endpoint.poll_event() {
            let Events { connected, readable, writable, flushed, closed, .. } = events;
            let Some(hooks) = self.hooks.get(&id) else { continue };
            if writable || flushed || closed || connected {
                hooks.notify_writers();
            }
            if closed || connected {
                hooks.notify_readers();
            } else if readable && !self.unread.contains(&id) {
                self.unread.push(id);
            }
        }
        if drained {
            for id in self.unread.drain(..) {
                if let Some(hooks) = self.hooks.get(&id) {
                    hooks.notify_readers();
                }
            }
        }
        if self.endpoint.acceptable() > 0 {
            self.acceptable.notify();
            self.accept_wakers.drain(..).for_each(TaskWaker::wake);
        }
        self.gone.notify();
    }
}

/// A mutex whose holder panicked still guards consistent data here: nothing is left half-done
/// under it but by a bug, and that one has been reported already.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Port {
    /// Opens a port and starts its thread.
    pub fn open(addr: std::net::SocketAddr, options: &Options) -> io::Result<PortHandle> {
        let socket = UdpSocket::bind(addr, &options.udp)?;
        let seed = getrandom::u64().map_err(io::Error::other)?;
        let port = Arc::new(Port {
            socket,
            pool: Pool::default(),
            origin: Instant::now(),
            waker: Waker::new()?,
            state: Mutex::new(State {
                endpoint: Endpoint::new(Time::ZERO, seed),
                hooks: BTreeMap::new(),
                acceptable: Arc::default(),
                accept_wakers: Vec::new(),
                gone: Arc::default(),
                users: 1,
                asleep_until: Time::ZERO,
                unread: Vec::new(),
            }),
            transmit: Mutex::new(Transmit::new()),
            transmit_again: AtomicBool::new(false),
            send_error: Mutex::new(None),
        });
        let driven = Arc::clone(&port);
        std::thread::Builder::new().name("farhaul".into()).spawn(move || driven.drive())?;
        Ok(PortHandle(port))
    }

    /// The engine's time.
    pub fn now(&self) -> Time {
        Time::from_nanos(self.origin.elapsed().as_nanos() as u64)
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Does something with the state, sends what follows, and wakes the driver if a timer is now
    /// due before it wakes by itself.
    pub fn update<R>(&self, action: impl FnOnce(Time, &mut State) -> R) -> R {
        let now = self.now();
        let mut state = self.lock();
        let result = action(now, &mut state);
        state.dispatch(true);
        drop(state);
        self.flush();
        result
    }

    /// Sends what is due, and sees to it that the driver wakes for what is due next.
    pub fn flush(&self) {
        self.transmit();
        let state = self.lock();
        let sleeping = state.asleep_until > Time::ZERO;
        let early = state.endpoint.poll_timeout().is_some_and(|at| at < state.asleep_until);
        drop(state);
        if sleeping && early {
            self.waker.wake();
        }
    }

    /// After a read: only an opened window makes something to send.
    pub fn flush_if_due(&self) {
        let now = self.now();
        if self.lock().endpoint.poll_timeout().is_some_and(|at| at <= now) {
            self.waker.wake();
        }
    }

    /// Packets a connection of this port can take at once: what fits half the kernel's receive
    /// buffer, at most what fits the cache.
    pub fn burst_room(&self, default: u32) -> u32 {
        let fits = self.socket.buffers().receive / 2 / KERNEL_PACKET;
        u32::try_from(fits).unwrap_or(u32::MAX).clamp(32, default)
    }

    /// What the network last said when a packet could not be sent.
    pub fn take_send_error(&self) -> Option<io::Error> {
        lock(&self.send_error).take()
    }

    /// Sends what is due. If another thread is at it, that one goes on.
    fn transmit(&self) {
        self.transmit_again.store(true, Ordering::SeqCst);
        while self.transmit_again.load(Ordering::SeqCst) {
            let Ok(mut out) = self.transmit.try_lock() else { return };
            self.transmit_again.store(false, Ordering::SeqCst);
            while self.lock().endpoint.poll_transmit(self.now(), &mut out) {
                self.send(&out);
            }
        }
    }

    fn send(&self, out: &Transmit) {
        let mut slices = [IoSlice::new(&[]); 2 * MAX_SEGMENTS];
        for (pair, (header, payload)) in slices.chunks_mut(2).zip(out.datagrams()) {
            pair[0] = IoSlice::new(header);
            pair[1] = IoSlice::new(payload);
        }
        let slices = &slices[..2 * out.segments().min(MAX_SEGMENTS)];
        while let Err(error) = self.socket.send(out.to(), out.segment_size(), slices) {
            if error.kind() == io::ErrorKind::WouldBlock && self.socket.wait_writable().is_ok() {
                continue;
            }
            // Like a loss: the protocol makes up for it, or gives the connection up.
            *lock(&self.send_error) = Some(error);
            break;
        }
    }

    /// The driver thread.
    fn drive(&self) {
        farhaul_udp::precise_sleep();
        let mut receiver = Receiver::new(&self.pool);
        let mut calls = 0;
        loop {
            let drained = receiver.receive(self);
            calls = if drained { 0 } else { (calls + 1) % CALLS_BEFORE_NOTICE };
            let mut state = self.lock();
            let now = self.now();
            if state.endpoint.poll_timeout().is_some_and(|at| at <= now) {
                state.endpoint.handle_timeout(now);
            }
            state.dispatch(calls == 0);
            drop(state);
            self.transmit();
            if drained && self.sleep(receiver.should_gather(self)) {
                return;
            }
        }
    }

    /// Sleeps until something arrives or is due; true if there is nothing left to drive. `gather`:
    /// something will arrive right away, and may wait a moment.
    fn sleep(&self, gather: bool) -> bool {
        let mut state = self.lock();
        if state.users == 0 && state.endpoint.is_empty() {
            return true;
        }
        let now = self.now();
        let deadline = state.endpoint.poll_timeout().unwrap_or(Time::MAX);
        if deadline <= now {
            return false;
        }
        state.asleep_until = deadline;
        drop(state);
        let timeout = (deadline != Time::MAX).then(|| deadline - now);
        let result = if gather {
            self.socket.gather(&self.waker, timeout.map_or(GATHER, |t| t.min(GATHER)))
        } else {
            self.socket.wait(&self.waker, timeout).map(drop)
        };
        // An error here could only be a bug; a pause keeps it from burning the processor.
        if result.is_err() {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.lock().asleep_until = Time::ZERO;
        false
    }
}

/// The driver's receive buffers.
struct Receiver {
    slots: ReceiveSlots,
    blocks: Vec<Block>,
    received: Vec<Received>,
    /// The last call brought receive-offload buffers.
    large: bool,
    /// When the last call brought something, and how often buffers come, per second, smoothed.
    last_at: Time,
    rate: f64,
}

impl Receiver {
    fn new(pool: &Pool) -> Self {
        Receiver {
            slots: ReceiveSlots::new(),
            blocks: (0..SMALL_SLOTS).map(|_| pool.take()).collect(),
            received: Vec::with_capacity(SMALL_SLOTS),
            large: false,
            last_at: Time::ZERO,
            rate: 0.0,
        }
    }

    /// Whether several buffers may be expected within [`GATHER`].
    fn should_gather(&self, port: &Port) -> bool {
        !self.large
            && self.rate * GATHER.as_secs_f64() >= 2.0
            && port.now() - self.last_at < 4 * GATHER
            && port.socket.buffers().receive >= GATHER_BUFFER
    }

    /// Takes what has arrived; true if that was all.
    fn receive(&mut self, port: &Port) -> bool {
        let count = if self.large { LARGE_SLOTS } else { SMALL_SLOTS };
        self.received.clear();
        let mut buffers: Vec<IoSliceMut<'_>> =
            self.blocks[..count].iter_mut().map(|b| IoSliceMut::new(b.space())).collect();
        let result = port.socket.receive(&mut self.slots, &mut buffers, &mut self.received);
        if result.is_err() || self.received.is_empty() {
            self.large = false;
            return true;
        }
        let now = port.now();
        let mut state = port.lock();
        for (index, received) in self.received.iter().enumerate() {
            if received.len == 0 {
                continue;
            }
            // The time of arrival, not of the call: what measures the path looks at it.
            let at =
                Time::from_nanos(now.as_nanos().saturating_sub(received.age.as_nanos() as u64));
            let retain = received.len >= RETAIN_FROM;
            let block = core::mem::replace(&mut self.blocks[index], port.pool.take());
            let bytes = block.share(received.len);
            state.endpoint.handle(at, received.from, &bytes, received.segment, retain);
        }
        drop(state);
        let gap = (now - self.last_at).as_secs_f64().max(1e-6);
        self.rate += (self.received.len() as f64 / gap - self.rate) / 8.0;
        self.last_at = now;
        self.large = self.received.iter().any(|r| r.len >= RETAIN_FROM);
        self.received.len() < count
    }
}

/// A share of a port. The port closes when the last one is gone and its connections are over.
#[derive(Debug)]
pub struct PortHandle(Arc<Port>);

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
