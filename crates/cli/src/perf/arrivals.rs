//! Connections to the listening side, sorted by how they begin.
//!
//! Each is heard by a thread of its own, so that one that says nothing holds up nobody.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::channel::{Acceptor, Channel};
use super::places::Places;
use super::protocol::{Answer, HEADER, Opening, Request, read_opening, send_line};
use super::running::Running;
use crate::exit::describe;

/// Tests that wait for their turn, at most.
const MOST_TESTS: usize = 512;
/// How soon an interruption is seen by what waits here.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What has arrived.
enum Arrival {
    Test(Request, Channel),
    Data([u8; HEADER], Channel),
    /// It belongs to no test; why.
    Stranger(String),
    /// There will be nothing more.
    Broken(io::Error),
}

/// Everything that arrives.
pub struct Arrivals {
    arrived: Receiver<Arrival>,
    waiting: VecDeque<(Request, Channel)>,
    /// Whether a test is running.
    busy: Arc<AtomicBool>,
    patience: Duration,
}

impl Arrivals {
    /// Takes what comes, and gives each connection so long to begin.
    pub fn start(acceptor: Acceptor, patience: Duration) -> Self {
        let (tell, arrived) = sync_channel(0);
        let busy = Arc::new(AtomicBool::new(false));
        let doorman = Doorman { tell, busy: Arc::clone(&busy), patience };
        thread::spawn(move || doorman.run(&acceptor));
        Arrivals { arrived, waiting: VecDeque::new(), busy, patience }
    }

    /// Waits for the next test.
    ///
    /// # Errors
    /// If there will be none.
    pub fn next_test(&mut self) -> Result<(Request, Channel)> {
        self.busy.store(false, Ordering::Relaxed);
        let test = loop {
            if let Some(test) = self.waiting.pop_front() {
                break test;
            }
            match self.arrived.recv()? {
                Arrival::Test(request, control) => break (request, control),
                Arrival::Data(_, channel) => turn_away(&channel),
                Arrival::Stranger(why) => tell!("farhaul: {why}"),
                Arrival::Broken(error) => return Err(error.into()),
            }
        };
        self.busy.store(true, Ordering::Relaxed);
        Ok(test)
    }

    /// Waits for the data connections of a test, in order.
    ///
    /// # Errors
    /// If none comes for too long, or the user interrupts.
    pub fn data(&mut self, request: &Request, running: &Running) -> Result<Vec<Channel>> {
        let mut data: Vec<Option<Channel>> = (0..request.streams).map(|_| None).collect();
        let mut deadline = Instant::now() + self.patience;
        while data.iter().any(Option::is_none) {
            running.check()?;
            match self.arrived.recv_timeout(LOOK_EVERY) {
                Ok(Arrival::Data(header, channel)) => {
                    let mut indices = 0..request.streams;
                    let index = indices.find(|i| request.header(*i) == header);
                    let place = index.and_then(|index| data.get_mut(index as usize));
                    match place {
                        Some(place @ None) => {
                            running.add(&channel)?;
                            *place = Some(channel);
                            deadline = Instant::now() + self.patience;
                        }
                        _ => turn_away(&channel),
                    }
                }
                Ok(Arrival::Test(..)) if self.waiting.len() >= MOST_TESTS => {}
                Ok(Arrival::Test(request, control)) => self.waiting.push_back((request, control)),
                Ok(Arrival::Stranger(why)) => tell!("farhaul: {why}"),
                Ok(Arrival::Broken(error)) => return Err(error.into()),
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
                Err(RecvTimeoutError::Timeout) => {
                    bail!("the peer has asked for a test and made no data connections");
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(data.into_iter().flatten().collect())
    }
}

/// A data connection of no test.
fn turn_away(channel: &Channel) {
    tell!("farhaul: from {}: a connection came that belongs to no test", channel.peer());
    channel.abort();
}

/// Hears what comes.
struct Doorman {
    tell: SyncSender<Arrival>,
    busy: Arc<AtomicBool>,
    patience: Duration,
}

impl Doorman {
    fn run(self, acceptor: &Acceptor) {
        let (this, places) = (Arc::new(self), Arc::default());
        loop {
            let mut place = Places::take(&places);
            let channel = match acceptor.accept() {
                Ok(channel) => channel,
                // It was gone before it was taken.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => {
                    // If nobody listens, nobody cares.
                    let _ = this.tell.send(Arrival::Broken(error));
                    return;
                }
            };
            // One of a source that has its share already, or that is gone.
            if !channel.source().is_some_and(|source| place.give(source)) {
                channel.abort();
                continue;
            }
            let doorman = Arc::clone(&this);
            thread::spawn(move || {
                let arrival = doorman.hear(channel);
                // It goes when the listener ends.
                let _ = doorman.tell.send(arrival);
                drop(place);
            });
        }
    }

    fn hear(&self, mut channel: Channel) -> Arrival {
        let heard = read_opening(&mut channel, self.patience).and_then(|opening| {
            if let Opening::Control(_) = opening {
                let busy = self.busy.load(Ordering::Relaxed);
                send_line(&mut channel, if busy { &Answer::Busy } else { &Answer::Heard })?;
            }
            Ok(opening)
        });
        match heard {
            Ok(Opening::Control(request)) => Arrival::Test(request, channel),
            Ok(Opening::Data(header)) => Arrival::Data(header, channel),
            Err(error) => {
                let (peer, why) = (channel.peer(), describe(&error));
                channel.abort();
                Arrival::Stranger(format!(
                    "from {peer}: {why}; is it a `farhaul perf` without --sink and --source?"
                ))
            }
        }
    }
}
