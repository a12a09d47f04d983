//! The same for asynchronous programs: [`AsyncRead`], [`AsyncWrite`], asynchronous connect and
//! accept.
//!
//! The port's own thread does the work, so that no task has to be polled in time for the protocol
//! to keep its timers. Every operation may be cancelled by dropping its future: nothing that was
//! received is lost, and nothing is half-sent.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use farhaul_engine::{Chunks, ConnectionId, Mode, SendError, Stats};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::connection::{Connection as Blocking, Inner, MessageOptions};
use crate::endpoint::{Endpoint, Listener as BlockingListener};
use crate::error::{closed_error, connect_error, end_of_input, send_error};
use crate::options::Options;
use crate::port::{PortHandle, State};

/// A connection for asynchronous programs.
pub struct Connection {
    blocking: Blocking,
    /// Taken from the engine, not read yet.
    chunks: Chunks,
    /// With these, tasks wait that hold it exclusively: one reads, one writes.
    reader: u64,
    writer: u64,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.blocking.fmt(f)
    }
}

impl Connection {
    /// Connects to `peer` from a port of its own.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::connect`].
    pub async fn connect(peer: SocketAddr, options: &Options) -> io::Result<Connection> {
        let endpoint = Endpoint::bind(options.bind_towards(peer), options)?;
        Connection::start(&endpoint, peer, options, false).await
    }

    /// Meets `peer`, which does the same towards `bind`.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::connect`].
    pub async fn rendezvous(
        bind: SocketAddr,
        peer: SocketAddr,
        options: &Options,
    ) -> io::Result<Connection> {
        Connection::rendezvous_from(&Endpoint::bind(bind, options)?, peer, options).await
    }

    /// Meets `peer`, which does the same towards this port, from a port that is shared.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::connect`].
    pub async fn rendezvous_from(
        endpoint: &Endpoint,
        peer: SocketAddr,
        options: &Options,
    ) -> io::Result<Connection> {
        Connection::start(endpoint, peer, options, true).await
    }

    /// Connects to `peer` from a port that is shared.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::connect`].
    pub async fn connect_from(
        endpoint: &Endpoint,
        peer: SocketAddr,
        options: &Options,
    ) -> io::Result<Connection> {
        Connection::start(endpoint, peer, options, false).await
    }

    async fn start(
        endpoint: &Endpoint,
        peer: SocketAddr,
        options: &Options,
        rendezvous: bool,
    ) -> io::Result<Connection> {
        let id = endpoint.start(peer, options, rendezvous)?;
        let peer = farhaul_udp::canonical(peer);
        let mut attempt = Attempt { port: endpoint.port.clone(), id, peer, done: false };
        poll_fn(|cx| attempt.poll(cx)).await
    }

    /// The blocking form of the same connection. What was taken by an unfinished read of this one
    /// is not seen by it.
    pub fn as_blocking(&self) -> &Blocking {
        &self.blocking
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> SocketAddr {
        self.blocking.peer_addr()
    }

    /// The local address.
    pub fn local_addr(&self) -> SocketAddr {
        self.blocking.local_addr()
    }

    /// What the performance monitor tells; see [`Blocking::stats`].
    ///
    /// # Errors
    ///
    /// The connection is closed.
    pub fn stats(&self, clear: bool) -> io::Result<Stats> {
        self.blocking.stats(clear)
    }

    /// What the kernel has dropped at the port; see [`Blocking::kernel_dropped`].
    pub fn kernel_dropped(&self) -> u32 {
        self.blocking.kernel_dropped()
    }

    /// Sends all of `data`, by reference.
    ///
    /// # Errors
    ///
    /// As writing.
    pub async fn send_bytes(&self, data: Bytes) -> io::Result<()> {
        let waiting = Waiting::new(&self.blocking.inner);
        poll_fn(|cx| self.poll_send(cx, waiting.key, |_, c| c.send_bytes(data.clone()))).await
    }

    /// Receives the next piece of the stream, by reference. None at its end.
    ///
    /// # Errors
    ///
    /// As reading.
    pub async fn recv_chunk(&mut self) -> io::Result<Option<Bytes>> {
        poll_fn(|cx| self.poll_fill(cx)).await?;
        Ok(self.chunks.pop())
    }

    /// Sends a message.
    ///
    /// # Errors
    ///
    /// As the blocking [`send_message`](Blocking::send_message).
    pub async fn send_message(
        &self,
        data: impl Into<Bytes>,
        how: MessageOptions,
    ) -> io::Result<()> {
        let data = data.into();
        let waiting = Waiting::new(&self.blocking.inner);
        poll_fn(|cx| {
            self.poll_send(cx, waiting.key, |now, c| {
                c.send_message(now, data.clone(), how.ttl, how.in_order)
            })
        })
        .await
    }

    /// Receives a message. None when the peer has closed.
    ///
    /// # Errors
    ///
    /// As reading.
    pub async fn recv_message(&mut self) -> io::Result<Option<Vec<u8>>> {
        self.blocking.inner.check_mode(Mode::Message)?;
        poll_fn(|cx| {
            let inner = &self.blocking.inner;
            let mut state = inner.port.lock();
            let mut chunks = Chunks::default();
            if inner.update_locked(&mut state, |_, c| c.read_message(&mut chunks)) == Some(true) {
                drop(state);
                inner.port.flush_after_read();
                let mut message = vec![0; chunks.len()];
                chunks.copy_to(&mut message);
                return Poll::Ready(Ok(Some(message)));
            }
            match inner.ended(&state) {
                Some(result) => Poll::Ready(result.map(|()| None)),
                None => {
                    inner.hooks.readers().add(self.reader, cx.waker());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Waits until everything written has been acknowledged by the peer.
    ///
    /// # Errors
    ///
    /// The connection broke before.
    pub async fn wait_acknowledged(&self) -> io::Result<()> {
        let inner = &self.blocking.inner;
        let waiting = Waiting::new(inner);
        poll_fn(|cx| {
            let state = inner.port.lock();
            match state.endpoint.connection(inner.id) {
                Some(c) if c.flushed() => Poll::Ready(Ok(())),
                Some(c) if c.close_reason().is_none() => {
                    inner.until_writable(&state, waiting.key, cx)
                }
                Some(c) => Poll::Ready(Err(closed_error(c.close_reason()))),
                None => Poll::Ready(Err(closed_error(None))),
            }
        })
        .await
    }

    /// Closes, and waits as the blocking [`close`](Blocking::close) does.
    ///
    /// # Errors
    ///
    /// Not everything was acknowledged.
    pub async fn close(self) -> io::Result<()> {
        self.blocking.shutdown();
        poll_fn(|cx| self.poll_over(cx)).await
    }

    fn poll_send(
        &self,
        cx: &mut Context<'_>,
        key: u64,
        send: impl FnOnce(farhaul_base::Time, &mut farhaul_engine::Connection) -> Result<(), SendError>,
    ) -> Poll<io::Result<()>> {
        let inner = &self.blocking.inner;
        let mut state = inner.port.lock();
        let result = inner.update_locked(&mut state, send);
        if result == Some(Err(SendError::Full)) {
            return inner.until_writable(&state, key, cx);
        }
        drop(state);
        inner.port.flush();
        Poll::Ready(match result {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(send_error(error)),
            None => Err(closed_error(None)),
        })
    }

    /// Takes received data if there is none at hand; ready without any at the end of the stream.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.chunks.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let inner = &self.blocking.inner;
        inner.check_mode(Mode::Stream)?;
        let mut state = inner.port.lock();
        let chunks = &mut self.chunks;
        inner.update_locked(&mut state, |_, c| c.read(crate::connection::READ_AHEAD, chunks));
        if !self.chunks.is_empty() {
            drop(state);
            inner.port.flush_after_read();
            return Poll::Ready(Ok(()));
        }
        match inner.ended(&state) {
            Some(result) => Poll::Ready(result),
            None => {
                inner.hooks.readers().add(self.reader, cx.waker());
                Poll::Pending
            }
        }
    }

    fn poll_over(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let inner = &self.blocking.inner;
        let state = inner.port.lock();
        match state.endpoint.connection(inner.id) {
            Some(c) if !c.is_over() => inner.until_writable(&state, self.writer, cx),
            Some(c) if !c.flushed() => Poll::Ready(Err(closed_error(c.close_reason()))),
            _ => Poll::Ready(Ok(())),
        }
    }
}

impl From<Blocking> for Connection {
    fn from(blocking: Blocking) -> Self {
        Connection { blocking, chunks: Chunks::default(), reader: new_key(), writer: new_key() }
    }
}

impl Inner {
    /// What a reader gets when there is nothing to read; none while something may still come.
    fn ended(&self, state: &State) -> Option<io::Result<()>> {
        if let Err(error) = state.check() {
            return Some(Err(error));
        }
        match state.endpoint.connection(self.id).map(|c| c.close_reason()) {
            Some(None) => None,
            Some(reason) => Some(end_of_input(reason)),
            None => Some(end_of_input(None)),
        }
    }

    /// Waits with `key` until there may be room to write, or the connection is over.
    fn until_writable(
        &self,
        state: &State,
        key: u64,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        state.check()?;
        self.hooks.writers().add(key, cx.waker());
        Poll::Pending
    }
}

/// A key of its own for what a task waits with.
fn new_key() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A call that may wait to write beside others; given up, it leaves nothing behind.
struct Waiting<'a> {
    inner: &'a Inner,
    key: u64,
}

impl<'a> Waiting<'a> {
    fn new(inner: &'a Inner) -> Self {
        Waiting { inner, key: new_key() }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.inner.hooks.writers().remove(self.key);
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        match self.poll_fill(cx) {
            Poll::Ready(Ok(())) => {
                let count = self.chunks.copy_to(buf.initialize_unfilled());
                buf.advance(count);
                Poll::Ready(Ok(()))
            }
            other => other,
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let inner = &self.blocking.inner;
        let (mut written, count) = inner.copy_in(buf);
        self.poll_send(cx, self.writer, |_, c| written.send(c)).map_ok(|()| count)
    }

    /// Does nothing: what is written is on its way. See [`Connection::wait_acknowledged`].
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Closes both directions, for the protocol knows no half: ready when everything was
    /// acknowledged and the peer knows.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.blocking.shutdown();
        self.poll_over(cx)
    }
}

/// A connection being set up; given up if its future is dropped.
struct Attempt {
    port: PortHandle,
    id: ConnectionId,
    peer: SocketAddr,
    done: bool,
}

impl Attempt {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Connection>> {
        let mut state = self.port.lock();
        if let Some(error) = state.endpoint.take_failure(self.id) {
            self.done = true;
            state.remove_hooks(self.id);
            drop(state);
            return Poll::Ready(Err(connect_error(error, self.port.take_send_error(self.peer))));
        }
        if state.endpoint.connection(self.id).is_none() {
            state.check()?;
            state.hooks(self.id).writers().add(0, cx.waker());
            return Poll::Pending;
        }
        drop(state);
        self.done = true;
        Poll::Ready(Blocking::new(self.port.clone(), self.id).map(Connection::from))
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.done {
            self.port.update(|now, state| {
                state.remove_hooks(self.id);
                state.endpoint.release(now, self.id, true);
            });
        }
    }
}

/// Accepts connections in asynchronous programs.
#[derive(Debug)]
pub struct Listener {
    blocking: Arc<BlockingListener>,
}

impl Listener {
    /// Listens at `addr`.
    ///
    /// # Errors
    ///
    /// The address cannot be bound, or an option is out of range.
    pub fn bind(addr: SocketAddr, options: &Options) -> io::Result<Listener> {
        Ok(BlockingListener::bind(addr, options)?.into())
    }

    /// The local address.
    pub fn local_addr(&self) -> SocketAddr {
        self.blocking.local_addr()
    }

    /// The port that it listens at, for connections from there as well.
    pub fn endpoint(&self) -> &Endpoint {
        &self.blocking.endpoint
    }

    /// Waits for a connection. Dropping the future loses none.
    ///
    /// # Errors
    ///
    /// The port has failed, which is a bug.
    pub async fn accept(&self) -> io::Result<Connection> {
        let port = &self.blocking.endpoint.port;
        let waiting = Accepting { port, key: new_key() };
        poll_fn(|cx| {
            let mut state = port.lock();
            match state.endpoint.accept() {
                Some(id) => {
                    drop(state);
                    Poll::Ready(Blocking::new(port.clone(), id).map(Connection::from))
                }
                None => {
                    state.check()?;
                    state.accept_tasks.add(waiting.key, cx.waker());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

/// A call that waits for a connection; given up, it leaves nothing behind.
struct Accepting<'a> {
    port: &'a PortHandle,
    key: u64,
}

impl Drop for Accepting<'_> {
    fn drop(&mut self) {
        self.port.lock().accept_tasks.remove(self.key);
    }
}

impl From<BlockingListener> for Listener {
    fn from(blocking: BlockingListener) -> Self {
        Listener { blocking: Arc::new(blocking) }
    }
}
