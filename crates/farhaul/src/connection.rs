//! A blocking connection.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use farhaul_base::Time;
use farhaul_engine::{Chunks, CloseReason, ConnectionId, Frames, Mode, SendError, Stats, TagKeys};

use crate::endpoint::Endpoint;
use crate::error::{closed_error, end_of_input, send_error};
use crate::options::Options;
use crate::pool::BLOCK;
use crate::port::{PortHandle, State, lock};
use crate::waiting::{Hooks, Signal};

/// Received data is taken from the engine in pieces of about this size.
pub(crate) const READ_AHEAD: usize = 256 << 10;
/// How often a thread with a time-out looks whether another still reads.
const READER_LOOKS: Duration = Duration::from_millis(2);

/// A connection to a peer: a duplex stream of bytes, or of messages.
///
/// It can be shared between threads by reference or by [`Connection::clone`]; one may read while
/// another writes. Dropping the last handle closes it in the background, or breaks it off if that
/// happens because of a panic; [`Connection::close`] also waits until everything has been delivered.
#[derive(Clone)]
pub struct Connection {
    pub(crate) inner: Arc<Inner>,
}

/// Its ends, not the data that waits to be read.
impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("local", &self.local_addr())
            .field("peer", &self.inner.peer)
            .field("id", &self.inner.id.value())
            .finish()
    }
}

pub(crate) struct Inner {
    pub port: PortHandle,
    pub id: ConnectionId,
    pub hooks: Arc<Hooks>,
    peer: SocketAddr,
    mode: Mode,
    payload_size: usize,
    /// Taken from the engine, not read yet.
    chunks: Mutex<Chunks>,
    timeouts: Mutex<Timeouts>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Timeouts {
    read: Option<Duration>,
    write: Option<Duration>,
}

/// How a message is delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageOptions {
    /// It may be given up when it could not be delivered in this time; none: never.
    pub ttl: Option<Duration>,
    /// It is not delivered before messages sent earlier.
    pub in_order: bool,
}

impl Connection {
    /// Connects to `peer` from a port of its own.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::connect`].
    pub fn connect(peer: impl ToSocketAddrs, options: &Options) -> io::Result<Connection> {
        let mut last = None;
        for peer in peer.to_socket_addrs()? {
            // A family of addresses that this host lacks must not hide the other.
            let endpoint = Endpoint::bind(options.bind_towards(peer), options);
            match endpoint.and_then(|endpoint| endpoint.connect(peer, options)) {
                Ok(connection) => return Ok(connection),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| io::Error::other("the name has no address")))
    }

    /// Meets `peer`, which does the same towards `bind`: both sides connect, neither listens.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::connect`].
    pub fn rendezvous(
        bind: SocketAddr,
        peer: SocketAddr,
        options: &Options,
    ) -> io::Result<Connection> {
        Endpoint::bind(bind, options)?.rendezvous(peer, options)
    }

    /// Wraps a connection that is set up in the engine.
    pub(crate) fn new(port: PortHandle, id: ConnectionId) -> io::Result<Connection> {
        let mut state = port.lock();
        let connection = state.endpoint.connection(id).ok_or(io::ErrorKind::NotConnected)?;
        let (peer, mode) = (connection.peer(), connection.mode());
        let payload_size = connection.payload_size();
        let hooks = state.hooks(id);
        drop(state);
        let inner = Inner {
            port,
            id,
            hooks,
            peer,
            mode,
            payload_size,
            chunks: Mutex::default(),
            timeouts: Mutex::default(),
        };
        Ok(Connection { inner: Arc::new(inner) })
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> SocketAddr {
        self.inner.peer
    }

    /// The local address.
    pub fn local_addr(&self) -> SocketAddr {
        self.inner.port.socket.local_addr()
    }

    /// Stream or messages.
    pub fn mode(&self) -> Mode {
        self.inner.mode
    }

    /// Payload bytes of a full packet. Writes of whole multiples avoid copying at their ends.
    pub fn payload_size(&self) -> usize {
        self.inner.payload_size
    }

    /// Limits how long a read waits; none: for ever.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) {
        lock(&self.inner.timeouts).read = timeout;
    }

    /// Limits how long a write waits for room; none: for ever.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) {
        lock(&self.inner.timeouts).write = timeout;
    }

    /// Limits the sending rate, bits/s with headers, 8000 and up (less counts as 8000); none: no
    /// limit.
    pub fn set_max_bandwidth(&self, bits_per_second: Option<u64>) {
        self.inner.update(|_, c| c.set_max_bandwidth(bits_per_second));
    }

    /// The peer has shown who it is: it may send more than
    /// [`Options::stranger_memory`](crate::Options::stranger_memory) from now on.
    pub fn welcome(&self) {
        self.inner.update(|_, c| c.welcome());
    }

    /// Both sides share keys that no third party knows: the peer's tagged control packets are understood
    /// from now on. To be called before the peer can know that this side has the keys.
    pub fn set_tag_keys(&self, keys: TagKeys) {
        self.inner.update(|_, c| c.set_tag_keys(keys));
    }

    /// Control packets are authenticated from now on, in both directions: to be called when the peer
    /// has shown that it has the keys, on both sides. See
    /// [`authenticate`](farhaul_engine::Connection::authenticate) of the engine.
    pub fn authenticate(&self) {
        self.inner.update(|now, c| c.authenticate(now));
    }

    /// Data packets are to bear tags as well, as in
    /// [`authenticate_data`](farhaul_engine::Connection::authenticate_data) of the engine.
    pub fn authenticate_data(&self) {
        self.inner.update(|now, c| c.authenticate_data(now));
    }

    /// Replaces the congestion control law.
    pub fn set_law(&self, law: &farhaul_control::Spec) {
        let id = self.inner.id;
        self.inner.port.update(|now, state| state.endpoint.set_law(now, id, law));
    }

    /// What the performance monitor tells; `clear`: [`Stats::recent`] begins anew.
    ///
    /// # Errors
    ///
    /// The connection is closed.
    pub fn stats(&self, clear: bool) -> io::Result<Stats> {
        let inner = &self.inner;
        let now = inner.port.now();
        let mut state = inner.port.lock();
        state
            .endpoint
            .update(inner.id, |c| c.stats(now, clear))
            .ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// What the kernel has dropped at the port, which connections may share; see
    /// [`Endpoint::kernel_dropped`](crate::Endpoint::kernel_dropped).
    pub fn kernel_dropped(&self) -> u32 {
        self.inner.port.socket.dropped()
    }

    /// Sends all of `data`, which is kept by reference until it is acknowledged, not copied.
    /// Waits while the send buffer is full.
    ///
    /// # Errors
    ///
    /// As writing.
    pub fn send_bytes(&self, data: Bytes) -> io::Result<()> {
        let deadline = self.inner.write_deadline();
        self.inner.send_when_room(deadline, |_, c| c.send_bytes(data.clone()))
    }

    /// Receives the next piece of the stream, by reference into the buffer it was received in.
    /// None at the end of the stream.
    ///
    /// # Errors
    ///
    /// As reading: [`io::ErrorKind::ConnectionReset`] if the peer broke off before the end of what
    /// it had to send, which a stock peer does not tell from a close.
    pub fn recv_chunk(&self) -> io::Result<Option<Bytes>> {
        let deadline = self.inner.read_deadline();
        let mut chunks = self.inner.reader(deadline)?;
        if chunks.is_empty() && !self.inner.fill(&mut chunks, READ_AHEAD, deadline)? {
            return Ok(None);
        }
        Ok(chunks.pop())
    }

    /// Sends a message. Waits while the send buffer has no room for it.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] if it is larger than what the peer can take, or the
    /// connection is a stream; else as writing.
    pub fn send_message(&self, data: impl Into<Bytes>, how: MessageOptions) -> io::Result<()> {
        let data = data.into();
        let deadline = self.inner.write_deadline();
        self.inner.send_when_room(deadline, |now, c| {
            c.send_message(now, data.clone(), how.ttl, how.in_order)
        })
    }

    /// Receives a message. None when the peer has closed.
    ///
    /// # Errors
    ///
    /// As reading.
    pub fn recv_message(&self) -> io::Result<Option<Vec<u8>>> {
        let inner = &self.inner;
        inner.check_mode(Mode::Message)?;
        let deadline = inner.read_deadline();
        let mut chunks = inner.reader(deadline)?;
        let mut found = false;
        inner.wait_readable(deadline, |state| {
            found = inner.update_locked(state, |_, c| c.read_message(&mut chunks)) == Some(true);
            found
        })?;
        if !found {
            return Ok(None);
        }
        inner.port.flush_after_read();
        let mut message = vec![0; chunks.len()];
        chunks.copy_to(&mut message);
        Ok(Some(message))
    }

    /// Waits until everything written has been acknowledged by the peer.
    ///
    /// # Errors
    ///
    /// The connection broke before.
    pub fn wait_acknowledged(&self) -> io::Result<()> {
        let inner = &self.inner;
        let mut waiting = Waiting::default();
        let mut state = inner.port.lock();
        loop {
            match state.endpoint.connection(inner.id) {
                Some(c) if c.flushed() => return Ok(()),
                Some(c) if c.close_reason().is_none() => {}
                Some(c) => return Err(closed_error(c.close_reason())),
                None => return Err(closed_error(None)),
            }
            state = inner.wait(state, |hooks| &hooks.writable, None, &mut waiting)?;
        }
    }

    /// Closes, and waits until the peer has acknowledged everything and knows, or the linger time
    /// is over. Other handles of the connection can read what had been received.
    ///
    /// # Errors
    ///
    /// Not everything was acknowledged.
    pub fn close(self) -> io::Result<()> {
        let inner = &self.inner;
        self.shutdown();
        inner.port.leave();
        let mut state = inner.port.lock();
        let gone = Arc::clone(&state.gone);
        loop {
            let reason = match state.endpoint.connection(inner.id) {
                Some(c) if !c.is_over() => None,
                Some(c) => Some((c.close_reason(), c.flushed())),
                None => return Ok(()),
            };
            match reason {
                None => {}
                Some((_, true)) => return Ok(()),
                Some((reason, false)) => return Err(closed_error(reason)),
            }
            state = gone.wait(state, None)?;
        }
    }

    /// Begins to close without waiting: what was written is still delivered, in the background, and
    /// what had been received can still be read.
    pub fn shutdown(&self) {
        self.inner.end(|now, c| c.close(now));
    }

    /// Closes at once: data not yet acknowledged may be lost. The peer reads what has arrived and then
    /// fails with [`io::ErrorKind::ConnectionReset`]; a stock peer reads the end of the stream, as
    /// after a close.
    pub fn abort(&self) {
        self.inner.end(|now, c| c.abort(now));
    }

    /// Whether the peer has closed and said how much had reached it, as farhaul peers do: what was
    /// written and not among that is lost, and nothing else.
    pub fn has_account(&self) -> bool {
        let state = self.inner.port.lock();
        state.endpoint.connection(self.inner.id).is_some_and(|c| c.has_account())
    }

    /// Why the connection is over; none while it is not.
    pub fn close_reason(&self) -> Option<CloseReason> {
        let state = self.inner.port.lock();
        match state.endpoint.connection(self.inner.id) {
            Some(c) => c.close_reason(),
            None => Some(CloseReason::Local),
        }
    }
}

impl Inner {
    pub fn update<R>(
        &self,
        action: impl FnOnce(Time, &mut farhaul_engine::Connection) -> R,
    ) -> Option<R> {
        self.port.update(|now, state| state.endpoint.update(self.id, |c| action(now, c)))
    }

    /// Ends the connection, and lets those see it who wait in a call.
    fn end(&self, action: impl FnOnce(Time, &mut farhaul_engine::Connection)) {
        self.port.update(|now, state| {
            state.endpoint.update(self.id, |c| action(now, c));
            state.notify(self.id);
        });
    }

    /// Streams have bytes to read and message connections messages.
    pub fn check_mode(&self, mode: Mode) -> io::Result<()> {
        if self.mode == mode { Ok(()) } else { Err(send_error(SendError::WrongMode)) }
    }

    /// Does something with the state locked already; what follows is to be flushed later.
    pub fn update_locked<R>(
        &self,
        state: &mut State,
        action: impl FnOnce(Time, &mut farhaul_engine::Connection) -> R,
    ) -> Option<R> {
        let now = self.port.now();
        state.endpoint.update(self.id, |c| action(now, c))
    }

    /// Copies the beginning of `buf`, at most a block of it, in whole packets where there are many,
    /// so that consecutive writes make full ones. Returns also how much was copied.
    pub fn copy_in(&self, buf: &[u8]) -> (Written, usize) {
        let payload = self.payload_size;
        if buf.len() < BLOCK / 2 || Frames::fitting(payload, BLOCK) < 2 {
            let count = buf.len().min(BLOCK);
            return (Written::Bytes(Bytes::copy_from_slice(&buf[..count])), count);
        }
        // Bytes that complete the packet that the last write left.
        let tail_room = self.port.lock().endpoint.connection(self.id).map_or(0, |c| c.tail_room());
        if tail_room > 0 {
            return (Written::Bytes(Bytes::copy_from_slice(&buf[..tail_room])), tail_room);
        }
        let packets = Frames::fitting(payload, BLOCK).min(buf.len() / payload);
        let mut block = self.port.pool.take();
        for (to, from) in Frames::payloads(block.space(), payload).zip(buf.chunks_exact(payload)) {
            to.copy_from_slice(from);
        }
        (Written::Frames(Some(Frames::new(block, payload, packets))), packets * payload)
    }

    fn write_deadline(&self) -> Option<Instant> {
        lock(&self.timeouts).write.and_then(|t| Instant::now().checked_add(t))
    }

    /// Tries `send` until it finds room.
    fn send_when_room(
        &self,
        deadline: Option<Instant>,
        mut send: impl FnMut(Time, &mut farhaul_engine::Connection) -> Result<(), SendError>,
    ) -> io::Result<()> {
        let mut waiting = Waiting::default();
        let mut state = self.port.lock();
        loop {
            match self.update_locked(&mut state, &mut send) {
                Some(Ok(())) => break,
                Some(Err(SendError::Full)) => {}
                Some(Err(error)) => return Err(send_error(error)),
                None => return Err(closed_error(None)),
            }
            state = self.wait(state, |hooks| &hooks.writable, deadline, &mut waiting)?;
        }
        drop(state);
        self.port.flush();
        self.port.look_in(self.id);
        Ok(())
    }

    /// Takes received data, waiting for some; false at the end of the stream.
    fn fill(&self, chunks: &mut Chunks, max: usize, deadline: Option<Instant>) -> io::Result<bool> {
        self.check_mode(Mode::Stream)?;
        self.wait_readable(deadline, |state| {
            self.update_locked(state, |_, c| c.read(max, chunks));
            !chunks.is_empty()
        })?;
        if !chunks.is_empty() {
            self.port.flush_after_read();
        }
        Ok(!chunks.is_empty())
    }

    /// When a read that begins now has waited long enough.
    fn read_deadline(&self) -> Option<Instant> {
        lock(&self.timeouts).read.and_then(|t| Instant::now().checked_add(t))
    }

    /// One thread reads at a time: the turn of this one. Another that waits for data may keep it for
    /// longer than this one's time-out.
    fn reader(&self, deadline: Option<Instant>) -> io::Result<MutexGuard<'_, Chunks>> {
        let Some(deadline) = deadline else { return Ok(lock(&self.chunks)) };
        loop {
            match self.chunks.try_lock() {
                Ok(chunks) => return Ok(chunks),
                Err(TryLockError::Poisoned(chunks)) => return Ok(chunks.into_inner()),
                Err(TryLockError::WouldBlock) => {}
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let text = "the time-out of the call is over, and another thread reads";
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            std::thread::sleep(left.min(READER_LOOKS));
        }
    }

    /// Waits until `take` finds something, or there is nothing more to come.
    fn wait_readable(
        &self,
        deadline: Option<Instant>,
        mut take: impl FnMut(&mut State) -> bool,
    ) -> io::Result<()> {
        let mut waiting = Waiting::default();
        let mut state = self.port.lock();
        loop {
            if take(&mut state) {
                return Ok(());
            }
            match state.endpoint.connection(self.id).map(|c| c.close_reason()) {
                Some(None) => {}
                Some(reason) => return end_of_input(reason),
                None => return end_of_input(None),
            }
            state = self.wait(state, |hooks| &hooks.readable, deadline, &mut waiting)?;
        }
    }

    /// Waits a little, or until `signal`; attends the port meanwhile if that is this thread's to do.
    fn wait<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        signal: impl FnOnce(&Hooks) -> &Signal,
        deadline: Option<Instant>,
        waiting: &mut Waiting,
    ) -> io::Result<MutexGuard<'a, State>> {
        if waiting.on_signal || deadline.is_some_and(|at| Instant::now() >= at) {
            let state = signal(&self.hooks).wait(state, deadline)?;
            *waiting = Waiting::default();
            return Ok(state);
        }
        drop(state);
        waiting.on_signal = !self.port.attend(self.id, &mut waiting.idle_since, deadline);
        Ok(self.port.lock())
    }
}

/// What was copied from a caller's buffer, to be sent.
#[derive(Debug)]
pub(crate) enum Written {
    Bytes(Bytes),
    Frames(Option<Frames>),
}

impl Written {
    /// Sends it if there is room.
    pub fn send(&mut self, connection: &mut farhaul_engine::Connection) -> Result<(), SendError> {
        match self {
            Written::Bytes(bytes) => connection.send_bytes(bytes.clone()),
            Written::Frames(frames) => connection.send_frames(frames),
        }
    }
}

/// How a call waits.
#[derive(Debug, Default)]
struct Waiting {
    /// Nothing has come since then.
    idle_since: Option<Instant>,
    /// Another thread attends the port and signals.
    on_signal: bool,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The peer must not take for whole what a panic has cut.
        let abort = std::thread::panicking();
        self.port.update(|now, state| {
            state.remove_hooks(self.id);
            state.endpoint.release(now, self.id, abort);
        });
    }
}

impl Read for &Connection {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let deadline = self.inner.read_deadline();
        let mut chunks = self.inner.reader(deadline)?;
        if chunks.is_empty() && !self.inner.fill(&mut chunks, READ_AHEAD, deadline)? {
            return Ok(0);
        }
        Ok(chunks.copy_to(buf))
    }
}

impl Write for &Connection {
    /// Copies as much of `buf` as one block holds and sends it; waits while there is no room.
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let inner = &self.inner;
        let (mut written, count) = inner.copy_in(buf);
        inner.send_when_room(inner.write_deadline(), |_, c| written.send(c))?;
        Ok(count)
    }

    /// Does nothing: what is written is on its way. See [`Connection::wait_acknowledged`].
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Connection {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }
}

impl Write for Connection {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self).write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self).flush()
    }
}
