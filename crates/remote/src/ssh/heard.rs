//! What ssh says on standard error, handed on to ours.
//!
//! ssh is not given our own standard error: it would set that to non-blocking, and with it whatever else
//! is the same pipe or terminal, such as our standard output.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::lock;

/// How long to wait for the end of what an ssh says that has ended itself: what it has started may hold
/// its standard error and live on, as a shared connection's master does.
const REST: Duration = Duration::from_secs(1);
const BUFFER: usize = 4096;

/// Something is being handed on.
#[derive(Clone, Debug)]
pub(super) struct Heard(Arc<(Mutex<State>, Condvar)>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Listening,
    Saying,
    Over,
    /// It has been waited for long enough.
    LeftAlone,
}

impl Heard {
    /// Hands on what is read `from` there, by a thread of its own, until its end.
    ///
    /// # Errors
    ///
    /// There can be no thread.
    pub(super) fn new(
        mut from: impl Read + Send + 'static,
        mut to: impl Write + Send + 'static,
    ) -> io::Result<Self> {
        let heard = Heard(Arc::new((Mutex::new(State::Listening), Condvar::new())));
        let told = heard.clone();
        let hand_on = move || {
            let mut buffer = [0; BUFFER];
            loop {
                let count = match from.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(count) => count,
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(_) => break,
                };
                told.set(State::Saying);
                // If nobody listens, ssh is to go on all the same.
                let _ = to.write_all(&buffer[..count]).and_then(|()| to.flush());
                told.set(State::Listening);
            }
            told.set(State::Over);
        };
        thread::Builder::new().name("farhaul-ssh-said".into()).spawn(hand_on)?;
        Ok(heard)
    }

    fn set(&self, state: State) {
        let (now, changed) = &*self.0;
        let mut now = lock(now);
        if *now != State::LeftAlone {
            *now = state;
        }
        changed.notify_all();
    }

    /// Waits until all has been handed on that an ssh said which has ended.
    pub(super) fn wait(&self) {
        let (state, changed) = &*self.0;
        let mut until = Instant::now() + REST;
        let mut now = lock(state);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match *now {
                State::Over | State::LeftAlone => return,
                State::Listening if left.is_zero() => {
                    *now = State::LeftAlone;
                    return;
                }
                // However long our own standard error takes.
                State::Saying => {
                    now = changed.wait(now).unwrap_or_else(PoisonError::into_inner);
                    until = Instant::now() + REST;
                }
                State::Listening => {
                    let waited = changed.wait_timeout(now, left);
                    now = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }
}
