//! A forwarder that writes down every datagram, and loses those it is told to.

use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::process::LIMIT;

/// A datagram as it came to the tap.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Since the tap was opened.
    pub at: Duration,
    /// From the client to the server.
    pub forward: bool,
    pub bytes: Vec<u8>,
    /// It went on.
    pub passed: bool,
}

/// Between a client, which talks to the tap, and a server.
pub struct Tap {
    front: Arc<UdpSocket>,
    back: Arc<UdpSocket>,
    state: Arc<(Mutex<State>, Condvar)>,
    threads: Vec<JoinHandle<()>>,
}

/// Whether to lose a datagram; `seen.passed` says nothing yet.
pub type Lose = Box<dyn FnMut(&Seen) -> bool + Send>;

struct State {
    since: Instant,
    client: Option<SocketAddr>,
    lose: Lose,
    seen: Vec<Seen>,
}

impl Tap {
    /// Opens a tap to `server` that loses what `lose` says.
    pub fn open(server: SocketAddr, lose: impl FnMut(&Seen) -> bool + Send + 'static) -> Tap {
        let socket = || Arc::new(UdpSocket::bind((server.ip(), 0)).expect("a free port"));
        let (front, back) = (socket(), socket());
        back.connect(server).expect("an address on this machine");
        let state =
            State { since: Instant::now(), client: None, lose: Box::new(lose), seen: Vec::new() };
        let state = Arc::new((Mutex::new(state), Condvar::new()));
        let ways =
            [(Arc::clone(&front), Arc::clone(&back)), (Arc::clone(&back), Arc::clone(&front))];
        let threads = ways.into_iter().zip([true, false]).map(|((from, to), forward)| {
            let state = Arc::clone(&state);
            thread::spawn(move || pass_on(&from, &to, forward, &state))
        });
        let threads = threads.collect();
        Tap { front, back, state, threads }
    }

    /// Where the client talks to.
    pub fn addr(&self) -> SocketAddr {
        self.front.local_addr().expect("a bound socket")
    }

    /// Waits until `what` has come.
    pub fn wait_for(&self, what: impl Fn(&Seen) -> bool) {
        let (mutex, condvar) = &*self.state;
        let state = mutex.lock().expect("nobody panics with it");
        let waited =
            condvar.wait_timeout_while(state, LIMIT, |state| !state.seen.iter().any(&what));
        assert!(!waited.expect("as before").1.timed_out(), "it never came");
    }

    /// Closes it. Returns what came.
    pub fn close(mut self) -> Vec<Seen> {
        self.end();
        std::mem::take(&mut self.state.0.lock().expect("nobody panics with it").seen)
    }

    fn end(&mut self) {
        // An empty datagram, which no UDT peer sends, ends a thread.
        let waker = UdpSocket::bind((self.addr().ip(), 0)).expect("a free port");
        waker.send_to(&[], self.addr()).expect("loopback takes it");
        // Connected sockets take datagrams from one address only.
        let back = self.back.local_addr().expect("a bound socket");
        self.back.connect(waker.local_addr().expect("a bound socket")).expect("a local address");
        waker.send_to(&[], back).expect("loopback takes it");
        for thread in self.threads.drain(..) {
            thread.join().expect("a tap's thread does not panic");
        }
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        if !self.threads.is_empty() && !thread::panicking() {
            self.end();
        }
    }
}

fn pass_on(from: &UdpSocket, to: &UdpSocket, forward: bool, shared: &(Mutex<State>, Condvar)) {
    let mut buffer = vec![0; 65_536];
    loop {
        let (len, source) = match from.recv_from(&mut buffer) {
            Ok((0, _)) => return,
            Ok(came) => came,
            // What an earlier datagram met, when nobody was there.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => continue,
            Err(error) => panic!("the tap cannot receive: {error}"),
        };
        let bytes = &buffer[..len];
        let mut state = shared.0.lock().expect("nobody panics with it");
        if forward {
            state.client = Some(source);
        }
        let at = state.since.elapsed();
        let mut seen = Seen { at, forward, bytes: bytes.to_vec(), passed: false };
        seen.passed = !(state.lose)(&seen);
        let passed = seen.passed;
        let client = state.client;
        state.seen.push(seen);
        shared.1.notify_all();
        drop(state);
        // What the network does not take is lost, like anything else here.
        match client {
            _ if !passed => {}
            _ if forward => drop(to.send(bytes)),
            Some(client) => drop(to.send_to(bytes, client)),
            None => {}
        }
    }
}

impl Seen {
    fn word(&self, index: usize) -> u32 {
        let bytes = self.bytes.get(4 * index..4 * index + 4).unwrap_or(&[0; 4]);
        u32::from_be_bytes(bytes.try_into().expect("four bytes"))
    }

    /// The sequence number of a data packet.
    pub fn data(&self) -> Option<u32> {
        (self.word(0) >> 31 == 0).then(|| self.word(0))
    }

    /// The type of a control packet.
    pub fn control(&self) -> Option<u32> {
        (self.word(0) >> 31 == 1).then(|| self.word(0) >> 16 & 0x7fff)
    }
}
