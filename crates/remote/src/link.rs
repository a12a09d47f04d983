//! A link: a stream of bytes in both directions with one known peer.

use core::{fmt, mem};
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use farhaul_secure::{Opener, PublicKey, Sealer, Session};

use crate::lock;
use crate::secured::{Confirmation, LinkError};
use crate::wire::{Core, Raw, Wire};

/// What is gathered before it is read or written where nothing is sealed, bytes.
const BUFFER: usize = 256 << 10;

/// What carries a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// UDT over UDP.
    Udp,
    /// TCP.
    Tcp,
    /// A socket within this host.
    Pipe,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Udp => "UDP",
            Kind::Tcp => "TCP",
            Kind::Pipe => "a local socket",
        })
    }
}

/// A duplex stream of bytes with a peer that has shown who it is.
///
/// Dropping all parts and handles of a link closes it in the background; what is still buffered in
/// the writer may then be lost, and the peer of a sealed link sees that its end is missing. See
/// [`LinkHandle::close`].
#[derive(Debug)]
pub struct Link {
    shared: Arc<Shared>,
}

/// The reading half of a [`Link`].
#[derive(Debug)]
pub struct LinkReader(Arc<Shared>);

/// The writing half of a [`Link`]. What is written is sent when there is enough of it, or with
/// [`Write::flush`].
#[derive(Debug)]
pub struct LinkWriter(Arc<Shared>);

/// What is done with a link from any thread.
#[derive(Clone, Debug)]
pub struct LinkHandle(Arc<Shared>);

/// What a link's transport tells of itself; zero where it tells nothing, as TCP of most.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkStats {
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Bytes handed to the network: of UDT payload with retransmissions, of TCP what the system has
    /// taken.
    pub bytes_sent: u64,
    /// Data packets sent, retransmissions included.
    pub packets_sent: u64,
    /// Data packets sent again.
    pub packets_retransmitted: u64,
    /// Share of the packets sent since the last query that were lost, 0 to 1.
    pub loss: f64,
    /// Payload sent since the last query, bits/s.
    pub send_rate: f64,
    /// Estimated capacity of the path to the peer, bits/s.
    pub capacity: f64,
    /// Packets that the congestion control lets be in flight.
    pub congestion_window: u32,
    /// Packets that the peer is ready to take.
    pub flow_window: u32,
    /// Packets in flight.
    pub in_flight: u32,
    /// Control packets that bore the peer's address and were not the peer's, or came again. They
    /// changed nothing. Zero where they are not told from others: of a plain link.
    pub forged: u64,
    /// The peer's window, not the network, is what limits this side now: its reader is slow.
    pub blocked_by_peer: bool,
    /// Data packets of UDT that the peer is said to have acknowledged, and those that have come here without a
    /// gap before them. As an acknowledgement follows what it covers, the peer's second number is never
    /// below this side's first, asked before it. Of TCP, whose acknowledgements the system does not tell, bytes that
    /// it has taken, and bytes that were read: the peer's second number may be below, but not for long. None where
    /// the transport does not tell.
    pub acknowledged: Option<u64>,
    /// See [`LinkStats::acknowledged`].
    pub arrived: Option<u64>,
    /// For how long this side's reader has been waiting for the peer; of TCP only.
    pub waited: Duration,
}

/// Whether data was injected into a link of a session. All links that share it have the peer tag its data
/// packets from then on, which costs both sides time, so that no link of another session shares it: a client
/// that sends what does not open slows nothing but its own.
#[derive(Clone, Debug, Default)]
pub struct Injection(Arc<AtomicBool>);

impl Injection {
    /// Whether there has been any.
    pub(crate) fn is_known(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

struct Shared {
    core: Arc<Core>,
    input: Mutex<Input>,
    /// None once it is closed.
    output: Mutex<Option<Output>>,
    peer: Option<PublicKey>,
    cipher: Option<&'static str>,
    /// Of the session that the link belongs to, once that is known.
    injection: OnceLock<Injection>,
    /// This link has answered an injection.
    answered: AtomicBool,
    /// The peer has said that it knows this side.
    confirmed: AtomicBool,
}

enum Input {
    /// What the peer has to say of this side comes first.
    Unconfirmed(Box<Confirmation>),
    /// It did not say it.
    Unusable,
    Sealed(Opener<Wire>),
    Plain(BufReader<Wire>),
}

enum Output {
    Sealed(Sealer<Wire>),
    Plain(BufWriter<Wire>),
}

impl Link {
    pub(crate) fn sealed(
        core: Arc<Core>,
        session: &Session,
        opener: Opener<Wire>,
        sealer: Sealer<Wire>,
    ) -> Link {
        Link::new(core, Some(session), Input::Sealed(opener), Output::Sealed(sealer))
    }

    pub(crate) fn unconfirmed(
        core: Arc<Core>,
        session: &Session,
        confirmation: Confirmation,
        sealer: Sealer<Wire>,
    ) -> Link {
        let input = Input::Unconfirmed(Box::new(confirmation));
        Link::new(core, Some(session), input, Output::Sealed(sealer))
    }

    /// Waits until the peer has said that it knows this side, and the secret.
    pub(crate) fn confirm(&self) -> Result<(), LinkError> {
        self.shared.confirm(&mut lock(&self.shared.input))
    }

    pub(crate) fn plain(core: Arc<Core>, session: Option<&Session>) -> Link {
        let input = Input::Plain(BufReader::with_capacity(BUFFER, Wire(Arc::clone(&core))));
        let output = Output::Plain(BufWriter::with_capacity(BUFFER, Wire(Arc::clone(&core))));
        Link::new(core, session, input, output)
    }

    fn new(core: Arc<Core>, session: Option<&Session>, input: Input, output: Output) -> Link {
        let sealed = matches!(input, Input::Sealed(_) | Input::Unconfirmed(_));
        let confirmed = !matches!(input, Input::Unconfirmed(_));
        let shared = Shared {
            core,
            input: Mutex::new(input),
            output: Mutex::new(Some(output)),
            peer: session.map(Session::peer),
            cipher: session.filter(|_| sealed).map(Session::cipher),
            injection: OnceLock::new(),
            answered: AtomicBool::new(false),
            confirmed: AtomicBool::new(confirmed),
        };
        Link { shared: Arc::new(shared) }
    }

    /// Both ends of a link within this process, neither sealed nor authenticated.
    ///
    /// # Errors
    ///
    /// The system has no more sockets for this process.
    pub fn pair() -> io::Result<(Link, Link)> {
        let (near, far) = UnixStream::pair()?;
        let link = |stream| Link::plain(Core::new(Raw::Pipe(Arc::new(stream)), None), None);
        Ok((link(near), link(far)))
    }

    /// A handle of this link.
    pub fn handle(&self) -> LinkHandle {
        LinkHandle(Arc::clone(&self.shared))
    }

    /// The halves, each for a thread, and a handle for whoever looks after them.
    pub fn into_parts(self) -> (LinkReader, LinkWriter, LinkHandle) {
        let handle = self.handle();
        (LinkReader(Arc::clone(&self.shared)), LinkWriter(self.shared), handle)
    }
}

impl LinkHandle {
    /// Ends the link at once: what is on its way may be lost. Whoever waits in a read or a write
    /// returns with [`ErrorKind::ConnectionAborted`].
    pub fn abort(&self) {
        self.0.core.abort();
    }

    /// Sends what is buffered and the end, waits until the peer has it, and then until the peer ends
    /// the link as well, all in at most `time`. Nobody should read or write any more; who does is
    /// ended with the link. What the peer still sends is dropped.
    ///
    /// UDT has no end of one direction: a plain link over it does not wait for the peer, which may
    /// find itself unable to send what it still has.
    ///
    /// # Errors
    ///
    /// The link broke, or `time` was over, before everything was delivered.
    pub fn close(&self, time: Duration) -> io::Result<()> {
        let (told, steps) = mpsc::channel();
        let shared = Arc::clone(&self.0);
        // On a thread of its own, for a writer may hold the stream for as long as the link stands.
        thread::Builder::new().name("farhaul-close".into()).spawn(move || {
            let delivered = shared.finish();
            let goes_on = delivered.is_ok();
            let _ = told.send(delivered);
            if goes_on {
                shared.wait_for_end();
            }
        })?;
        let deadline = Instant::now() + time;
        let result = steps.recv_timeout(time).unwrap_or_else(|_| {
            let text = format!("the peer has not taken everything within {time:?}");
            Err(io::Error::new(ErrorKind::TimedOut, text))
        });
        // It is delivered, whatever follows: the thread ends with the link.
        let left = deadline.saturating_duration_since(Instant::now());
        if result.is_err() || matches!(steps.recv_timeout(left), Err(RecvTimeoutError::Timeout)) {
            self.abort();
        }
        result
    }

    /// What carries it.
    pub fn kind(&self) -> Kind {
        self.0.core.raw.kind()
    }

    /// Whether the peer has said that it knows this side, and the secret. What dials [eagerly](crate::DialConfig::eager) has
    /// its links before.
    pub fn is_confirmed(&self) -> bool {
        self.0.confirmed.load(Ordering::Acquire)
    }

    /// The peer's address; none within this host.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.0.core.raw.peer()
    }

    /// Who the peer is; none within this process.
    pub fn peer_key(&self) -> Option<PublicKey> {
        self.0.peer
    }

    /// The cipher, as it is commonly written; none if nothing is sealed.
    pub fn cipher(&self) -> Option<&'static str> {
        self.0.cipher
    }

    /// Limits what this side sends, bits/s, 8000 and up (less counts as 8000); none: no limit.
    pub fn set_max_rate(&self, bits_per_second: Option<u64>) {
        self.0.core.set_max_rate(bits_per_second);
    }

    /// The link belongs to the session whose links share `injection`. Of several calls the first counts.
    pub fn share(&self, injection: &Injection) {
        let _ = self.0.injection.set(injection.clone());
        self.0.answer_injection();
    }

    /// What the transport tells. Rates are since the query before, so one asker is best.
    pub fn stats(&self) -> LinkStats {
        let core = &self.0.core;
        let connection = match &core.raw {
            Raw::Udp(connection) => connection,
            Raw::Tcp(_) => {
                let bytes_sent = core.bytes_sent();
                return LinkStats {
                    bytes_sent,
                    acknowledged: Some(bytes_sent),
                    arrived: Some(core.bytes_received()),
                    waited: core.waited(),
                    ..LinkStats::default()
                };
            }
            Raw::Pipe(_) => {
                return LinkStats { bytes_sent: core.bytes_sent(), ..LinkStats::default() };
            }
        };
        // A connection that is over has nothing to tell.
        let Ok(stats) = connection.stats(true) else { return LinkStats::default() };
        let (now, total) = (stats.instant, stats.total.counters);
        LinkStats {
            rtt: now.rtt,
            bytes_sent: total.bytes_sent,
            packets_sent: total.packets_sent,
            packets_retransmitted: total.packets_retransmitted,
            loss: stats.recent.send_loss_rate,
            send_rate: stats.recent.send_rate,
            capacity: now.capacity,
            congestion_window: now.congestion_window,
            flow_window: now.flow_window,
            in_flight: now.in_flight,
            forged: total.forged,
            blocked_by_peer: now.flow_window < now.congestion_window
                && now.in_flight >= now.flow_window,
            acknowledged: Some(total.packets_acked),
            arrived: Some(total.packets_in_order),
            waited: Duration::ZERO,
        }
    }
}

impl Shared {
    fn confirm(&self, input: &mut Input) -> Result<(), LinkError> {
        if !matches!(input, Input::Unconfirmed(_)) {
            return Ok(());
        }
        // Another who reads finds that there is nothing, should this fail.
        let Input::Unconfirmed(mut confirmation) = mem::replace(input, Input::Unusable) else {
            return Ok(());
        };
        if let Err(error) = confirmation.confirm(false) {
            // As where a record does not open: the next are confirmed before they are given out.
            if let Some(injection) = self.injection.get() {
                injection.0.store(true, Ordering::Relaxed);
            }
            return Err(error);
        }
        *input = Input::Sealed(confirmation.into_opener());
        self.confirmed.store(true, Ordering::Release);
        Ok(())
    }

    /// Reads what the peer has to say of this side first.
    fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        let mut input = lock(&self.input);
        self.confirm(&mut input).map_err(|error| match error {
            LinkError::Broken(error) => error,
            error => io::Error::new(ErrorKind::PermissionDenied, error),
        })?;
        input.read(buf)
    }

    /// Where data was injected into a link of the session, the peer is asked to tag its data packets.
    fn answer_injection(&self) {
        let injected = self.injection.get().is_some_and(Injection::is_known);
        let injected = injected && self.confirmed.load(Ordering::Acquire);
        if injected && self.cipher.is_some() && !self.answered.swap(true, Ordering::Relaxed) {
            self.core.authenticate_data();
        }
    }

    /// Sends the end, and waits until the peer has it.
    fn finish(&self) -> io::Result<()> {
        match lock(&self.output).take() {
            Some(Output::Sealed(sealer)) => drop(sealer.finish()?),
            Some(Output::Plain(mut writer)) => writer.flush()?,
            None => {}
        }
        match &self.core.raw {
            Raw::Udp(connection) => connection.wait_acknowledged(),
            Raw::Tcp(stream) => {
                stream.shutdown(Shutdown::Write)?;
                self.drain()
            }
            Raw::Pipe(stream) => {
                stream.shutdown(Shutdown::Write)?;
                self.drain()
            }
        }
    }

    /// What TCP has done by now: the system tells that all was taken only by the peer's own end.
    fn wait_for_end(&self) {
        if let Raw::Udp(connection) = &self.core.raw {
            if self.cipher.is_some() {
                // An error is an end as well.
                let _ = self.drain();
            }
            let _ = connection.clone().close();
        }
    }

    /// Reads until the peer ends the link as well, which it does when it has read the end. A piece
    /// at a time, so that others who read see the end, too.
    fn drain(&self) -> io::Result<()> {
        let mut piece = vec![0; 64 << 10];
        loop {
            match self.read(&mut piece) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                // It went without a word, having taken what came: otherwise it is a reset.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

impl Read for Input {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Input::Unconfirmed(_) | Input::Unusable => {
                Err(io::Error::new(ErrorKind::NotConnected, "the peer has not confirmed the link"))
            }
            Input::Sealed(opener) => opener.read(buf),
            Input::Plain(reader) => reader.read(buf),
        }
    }
}

/// Not what is under way in it.
impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("kind", &self.core.raw.kind())
            .field("peer", &self.core.raw.peer())
            .field("cipher", &self.cipher)
            .finish_non_exhaustive()
    }
}

impl Read for LinkReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let result = self.0.read(buf);
        let sealed = self.0.cipher.is_some();
        if sealed
            && result.as_ref().is_err_and(|error| error.kind() == ErrorKind::InvalidData)
            && let Some(injection) = self.0.injection.get()
        {
            // A record that does not open: this link is over, the others take precautions.
            injection.0.store(true, Ordering::Relaxed);
        }
        self.0.answer_injection();
        result
    }
}

impl LinkWriter {
    fn with<R>(&self, action: impl FnOnce(&mut dyn Write) -> io::Result<R>) -> io::Result<R> {
        match &mut *lock(&self.0.output) {
            Some(Output::Sealed(sealer)) => action(sealer),
            Some(Output::Plain(writer)) => action(writer),
            None => Err(io::Error::new(ErrorKind::NotConnected, "the link is closed")),
        }
    }
}

impl Write for LinkWriter {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.with(|out| out.write(buf))
    }

    fn write_all(&mut self, buf: &[u8]) -> io::Result<()> {
        self.with(|out| out.write_all(buf))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.with(|out| out.flush())
    }
}
