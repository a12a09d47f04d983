//! Messages in order, each once, over a connection that may break and be replaced.
//!
//! Frames on the stream: eight bytes, how many frames this side has received; four bytes of length;
//! a message. Frames without a message only confirm. What is not confirmed is kept; a new connection
//! begins with how much each side has received, and the other goes on from there.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::error::TransferError;
use super::memory::{Account, allocated};
use super::message::{MAX_MESSAGE, Message};

const HEADER: usize = 12;
/// A side that has nothing to say says so.
const QUIET: Duration = Duration::from_secs(1);
/// After so many frames the peer is told that they have come.
const CONFIRM_EACH: u64 = 512;
/// The most bytes that wait to be confirmed. The windows of the transfer keep it far below, unless
/// the peer does not read.
const MAX_WAITING: usize = 64 << 20;
/// How much is handed to the stream at once, bytes: what is sealed together is opened together, and a young
/// connection takes round trips for more than this.
const AT_ONCE: usize = 12 << 10;

/// One side's end of the channel.
#[derive(Debug, Default)]
pub struct Channel {
    state: Mutex<State>,
    changed: Condvar,
    memory: Arc<Account>,
}

#[derive(Debug, Default)]
struct State {
    /// Frames that are not confirmed.
    waiting: VecDeque<Vec<u8>>,
    waiting_bytes: usize,
    /// The number of the first of them.
    first: u64,
    /// Frames up to this one matter to the end of a transfer.
    weighty: u64,
    /// The number of the next to be written to the present connection.
    next: u64,
    /// Frames that have come.
    received: u64,
    /// What the peer was last told of that.
    confirmed: u64,
    /// The peer is to be told of it at once.
    urgent: bool,
    /// The first words have been taken: what the peer has heard of them is not known until it says so.
    begun: bool,
    /// Counts connections: a thread that serves an older one ends.
    generation: u64,
    attached: bool,
    heard: Option<Instant>,
    /// What was heard last is being dealt with, and nothing else is heard meanwhile.
    handling: bool,
}

impl Channel {
    /// One whose frames that wait are charged to `memory`.
    pub fn with_memory(memory: Arc<Account>) -> Self {
        let (state, changed) = Default::default();
        Channel { state, changed, memory }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says something, now or when there is a connection. Never waits.
    pub fn say(&self, message: &Message) {
        let mut frame = Vec::new();
        message.encode(&mut frame);
        debug_assert!(frame.len() <= MAX_MESSAGE, "messages are bounded where they are made");
        frame.shrink_to_fit();
        self.memory.note(kept(&frame));
        let mut state = self.lock();
        state.waiting_bytes += frame.len();
        state.waiting.push_back(frame);
        if !matches!(
            message,
            Message::Pulse(_)
                | Message::Lanes { .. }
                | Message::LaneBroken { .. }
                | Message::Acknowledged { .. }
        ) {
            state.weighty = state.first + state.waiting.len() as u64;
        }
        drop(state);
        self.changed.notify_all();
    }

    /// How many frames have come.
    pub fn received(&self) -> u64 {
        self.lock().received
    }

    /// Whether the peer is so far behind that it cannot mean well.
    pub fn is_overfull(&self) -> bool {
        self.lock().waiting_bytes > MAX_WAITING
    }

    /// Since when the peer has said nothing on the present connection; none if it is not listened to.
    pub fn heard(&self) -> Option<Instant> {
        let state = self.lock();
        state.heard.filter(|_| !state.handling)
    }

    /// What there is to be said so far, for the first connection, written to it before the peer has answered; and how many
    /// frames that is. Nothing the second time: what a peer has heard on a connection that broke is known only when
    /// it tells.
    pub fn first_words(&self) -> (Vec<u8>, u64) {
        let mut state = self.lock();
        let mut bytes = Vec::new();
        if !std::mem::replace(&mut state.begun, true) && !state.waiting.is_empty() {
            state.take(&mut bytes);
        }
        (bytes, state.next)
    }

    /// A new connection, to a peer that has received so many frames. Returns its generation, for
    /// [`Channel::write`] and [`Channel::read`].
    ///
    /// # Errors
    ///
    /// The peer has received what was never said, or forgotten what it confirmed.
    pub fn attach(&self, received: u64) -> Result<u64, TransferError> {
        self.attach_after(received, 0)
    }

    /// The same, where frames up to `said` are on their way on it.
    ///
    /// # Errors
    ///
    /// As of [`Channel::attach`].
    pub fn attach_after(&self, received: u64, said: u64) -> Result<u64, TransferError> {
        let mut state = self.lock();
        self.memory.give(state.confirm(received)?);
        state.begun = true;
        state.next = received.max(said);
        state.generation += 1;
        state.attached = true;
        state.handling = false;
        state.heard = Some(Instant::now());
        let generation = state.generation;
        drop(state);
        self.changed.notify_all();
        Ok(generation)
    }

    /// The present connection has failed.
    pub fn detach(&self, generation: u64) {
        let mut state = self.lock();
        if state.generation == generation {
            state.attached = false;
            state.heard = None;
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Writes what is to be said to the connection of this generation, until it is another's turn.
    ///
    /// # Errors
    ///
    /// Those of the stream.
    pub fn write(&self, generation: u64, stream: &mut dyn Write) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(AT_ONCE + HEADER);
        let mut written = Instant::now();
        loop {
            let mut state = self.lock();
            loop {
                if state.generation != generation || !state.attached {
                    return Ok(());
                }
                let quiet = written.elapsed();
                let news = state.next < state.first + state.waiting.len() as u64;
                if news
                    || state.urgent
                    || state.received - state.confirmed >= CONFIRM_EACH
                    || quiet >= QUIET
                {
                    break;
                }
                state = self
                    .changed
                    .wait_timeout(state, QUIET - quiet)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0;
            }
            let urgent = state.urgent;
            state.take(&mut bytes);
            drop(state);
            stream.write_all(&bytes)?;
            stream.flush()?;
            if urgent {
                self.lock().urgent = false;
                self.changed.notify_all();
            }
            written = Instant::now();
            bytes.clear();
        }
    }

    /// Reads the connection of this generation and hands over what is said on it, until it ends.
    ///
    /// # Errors
    ///
    /// Of the outer result those of the stream, of the inner one what ends the transfer.
    pub fn read(
        &self,
        generation: u64,
        stream: &mut dyn Read,
        handle: &mut dyn FnMut(Message) -> Result<bool, TransferError>,
    ) -> io::Result<Result<(), TransferError>> {
        let mut frame = Vec::new();
        loop {
            let mut header = [0; HEADER];
            stream.read_exact(&mut header)?;
            let confirmed = u64::from_be_bytes(*header.first_chunk().expect("eight bytes"));
            let length = u32::from_be_bytes(*header.last_chunk().expect("four bytes")) as usize;
            if length > MAX_MESSAGE {
                return Ok(Err(TransferError::Violation("a message that is too long".into())));
            }
            frame.resize(length, 0);
            stream.read_exact(&mut frame)?;
            let mut state = self.lock();
            if state.generation != generation {
                return Ok(Ok(())); // this is no longer the connection that counts
            }
            state.heard = Some(Instant::now());
            match state.confirm(confirmed) {
                Ok(freed) => self.memory.give(freed),
                Err(error) => return Ok(Err(error)),
            }
            if length == 0 {
                continue;
            }
            // Counted before it is handled: should the connection break meanwhile, it has been heard.
            state.received += 1;
            state.handling = true;
            let due = state.received - state.confirmed >= CONFIRM_EACH;
            drop(state);
            if due {
                self.changed.notify_all();
            }
            let handled =
                Message::decode(&frame).map_err(TransferError::from).and_then(&mut *handle);
            let mut state = self.lock();
            state.handling = false;
            state.heard = state.heard.map(|_| Instant::now());
            drop(state);
            match handled {
                Ok(true) => {}
                Ok(false) => return Ok(Ok(())),
                Err(error) => return Ok(Err(error)),
            }
        }
    }

    /// Tells the peer at once what has come.
    pub fn confirm(&self) {
        self.lock().urgent = true;
        self.changed.notify_all();
    }

    /// Waits until the peer has confirmed everything that matters, and has been told what it was to be
    /// told; false if there is no connection any more, or it takes too long.
    pub fn wait_confirmed(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut state = self.lock();
        while state.first < state.weighty || state.urgent {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || !state.attached {
                return false;
            }
            state =
                self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl State {
    /// The peer has received so many frames; what is not kept any more.
    fn confirm(&mut self, received: u64) -> Result<usize, TransferError> {
        if received < self.first || received > self.first + self.waiting.len() as u64 {
            return Err(TransferError::Violation("it confirms what was not said".into()));
        }
        let mut freed = 0;
        while self.first < received {
            let frame = self.waiting.pop_front().unwrap_or_default();
            self.waiting_bytes -= frame.len();
            freed += kept(&frame);
            self.first += 1;
        }
        Ok(freed)
    }

    /// The next frames for the connection; one without a message if there are none.
    fn take(&mut self, out: &mut Vec<u8>) {
        self.confirmed = self.received;
        let confirmed = self.confirmed.to_be_bytes();
        let from = (self.next - self.first) as usize;
        for frame in self.waiting.iter().skip(from) {
            if !out.is_empty() && out.len() + frame.len() > AT_ONCE {
                break;
            }
            out.extend_from_slice(&confirmed);
            out.extend_from_slice(&(frame.len() as u32).to_be_bytes());
            out.extend_from_slice(frame);
            self.next += 1;
        }
        if out.is_empty() {
            out.extend_from_slice(&confirmed);
            out.extend_from_slice(&[0; 4]);
        }
    }
}

/// What a frame that waits takes of memory.
fn kept(frame: &Vec<u8>) -> usize {
    allocated(frame.len()) + 2 * size_of_val(frame)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::*;

    fn said(number: u64) -> Message {
        Message::Stored { block: number }
    }

    /// Both ends over one connection that breaks after `limit` bytes in the direction a to b. What b
    /// has heard is appended to `heard`.
    fn over(a: &Channel, b: &Channel, limit: usize, heard: &mut Vec<u64>) {
        let (near, far) = UnixStream::pair().unwrap();
        let at_a = a.attach(b.received()).unwrap();
        let at_b = b.attach(a.received()).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut limited = Limited { stream: &near, left: limit };
                let _ = a.write(at_a, &mut limited);
                a.detach(at_a);
                near.shutdown(std::net::Shutdown::Both).unwrap();
            });
            let _ = b.read(at_b, &mut &far, &mut |message| {
                let Message::Stored { block } = message else { panic!("{message:?}") };
                heard.push(block);
                Ok(true)
            });
            b.detach(at_b);
        });
    }

    struct Limited<'a> {
        stream: &'a UnixStream,
        left: usize,
    }

    impl Write for Limited<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.left == 0 {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            let some = bytes.len().min(self.left);
            self.left -= some;
            (&mut &*self.stream).write(&bytes[..some])
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn each_message_is_heard_once_and_in_order_however_often_connections_break() {
        let (a, b) = (Channel::default(), Channel::default());
        let mut heard = Vec::new();
        let mut said_so_far = 0;
        for limit in [0, 5, 12, 13, 40, 41, 42, 1000, 77, 3, 100_000] {
            for _ in 0..20 {
                a.say(&said(said_so_far));
                said_so_far += 1;
            }
            // The writer says nothing more once all is said, so that the last limits are reached by
            // what confirms.
            over(&a, &b, limit.min(14 * 20), &mut heard);
        }
        while heard.len() < said_so_far as usize {
            over(&a, &b, 500, &mut heard);
        }
        assert_eq!(heard, (0..said_so_far).collect::<Vec<_>>());
    }

    #[test]
    fn first_words_are_said_once_and_heard_once() {
        let (a, b) = (Channel::default(), Channel::default());
        let (none, _) = Channel::default().first_words();
        assert_eq!(none, []);
        (0..3).for_each(|number| a.say(&said(number)));
        let (words, count) = a.first_words();
        assert_eq!(count, 3);
        // More is said before the peer has answered, on the same connection.
        a.say(&said(3));
        assert_eq!(a.first_words().0, [], "what is heard of the first words is not known");
        let generation = a.attach_after(b.received(), count).unwrap();
        let mut stream = words;
        stream.extend(written(&a, generation));
        let at_b = b.attach(0).unwrap();
        let mut heard = Vec::new();
        let _ = b.read(at_b, &mut &stream[..], &mut |message| {
            let Message::Stored { block } = message else { panic!("{message:?}") };
            heard.push(block);
            Ok(true)
        });
        assert_eq!(heard, [0, 1, 2, 3]);
    }

    /// What a channel writes first to its present connection.
    fn written(channel: &Channel, generation: u64) -> Vec<u8> {
        struct Once<'a>(&'a Channel, u64, Vec<u8>);
        impl Write for Once<'_> {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.2.extend_from_slice(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                self.0.detach(self.1);
                Ok(())
            }
        }
        let mut out = Once(channel, generation, Vec::new());
        channel.write(generation, &mut out).unwrap();
        out.2
    }

    #[test]
    fn a_peer_that_confirms_what_was_not_said_is_refused() {
        let channel = Channel::default();
        channel.say(&said(0));
        assert!(channel.attach(2).is_err());
        channel.attach(1).unwrap();
        assert!(channel.attach(0).is_err(), "it had that");
    }

    #[test]
    fn an_older_connection_does_not_count_any_more() {
        let channel = Channel::default();
        let old = channel.attach(0).unwrap();
        let new = channel.attach(0).unwrap();
        channel.say(&said(1));
        let mut out = Vec::new();
        channel.write(old, &mut out).unwrap();
        assert_eq!(out, []);
        let mut frame = vec![0; HEADER];
        said(5).encode(&mut frame);
        frame[HEADER - 1] = (frame.len() - HEADER) as u8;
        let read = channel.read(old, &mut &frame[..], &mut |_| panic!("not heard")).unwrap();
        assert!(read.is_ok());
        channel.detach(old);
        assert!(channel.heard().is_some(), "the new one is still there");
        channel.detach(new);
        assert!(!channel.wait_confirmed(Duration::from_secs(60)));
    }

    #[test]
    fn too_much_that_waits_is_seen() {
        let channel = Channel::default();
        let text = "x".repeat(1000);
        let failed = Message::Failed { entry: 0, text };
        while channel.lock().waiting_bytes <= MAX_WAITING {
            assert!(!channel.is_overfull());
            channel.say(&failed);
        }
        assert!(channel.is_overfull());
    }
}
