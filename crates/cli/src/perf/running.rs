//! The connections of the test that is running, and the user's wish to end it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;

use super::channel::Channel;
use crate::exit;
use crate::interrupt::{self, on_interrupt};

/// The test that is running. Clones are the same.
#[derive(Clone, Default)]
pub struct Running(Arc<State>);

#[derive(Default)]
struct State {
    interrupted: AtomicBool,
    channels: Mutex<Vec<Channel>>,
}

impl Running {
    /// Ends the connections when the user interrupts, and whatever waits for them fails; where
    /// there are none, the process.
    pub fn end_on_interrupt() -> Self {
        let running = Running::default();
        let this = running.clone();
        on_interrupt(move || {
            this.0.interrupted.store(true, Ordering::SeqCst);
            let channels = this.channels();
            if channels.is_empty() {
                interrupt::end();
            }
            channels.iter().for_each(Channel::abort);
        });
        running
    }

    /// `channel` belongs to the test now.
    ///
    /// # Errors
    /// If the test has been interrupted.
    pub fn add(&self, channel: &Channel) -> Result<()> {
        self.channels().push(channel.clone());
        // Looked at after it was added: either this or the interruption ends it.
        self.check()
    }

    /// # Errors
    /// If the test has been interrupted.
    pub fn check(&self) -> Result<()> {
        match self.is_interrupted() {
            true => Err(exit::interrupted().into()),
            false => Ok(()),
        }
    }

    pub fn is_interrupted(&self) -> bool {
        self.0.interrupted.load(Ordering::SeqCst)
    }

    /// The test is over. After a failure returns when the peer knows, or has been told often enough.
    /// Whatever failed after an interruption, failed because of that.
    pub fn conclude(&self, result: Result<()>) -> Result<()> {
        let channels = std::mem::take(&mut *self.channels());
        let result = self.check().and(result);
        if result.is_err() {
            channels.iter().for_each(Channel::abort);
            // The failure to tell is that of a peer that is gone.
            channels.into_iter().for_each(|channel| drop(channel.close()));
        }
        result
    }

    fn channels(&self) -> MutexGuard<'_, Vec<Channel>> {
        self.0.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
