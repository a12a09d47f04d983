//! What an earlier transfer has left of a large file is read again, beside the new data that comes.

use std::io;
use std::sync::Arc;

use super::entry::{Pending, Work};
use super::{Job, Sink, lock, subtract};
use crate::report::printable;
use crate::transfer::error::TransferError;
use crate::transfer::message::Message;
use crate::transfer::stages::Stage;

impl Sink<'_> {
    /// Has it read, if there is something; the source has been told what there is.
    pub(super) fn prove_later(&self, pending: &Arc<Pending>) {
        let version = lock(&pending.inner).version;
        self.slow.push(Job::Prove { pending: Arc::clone(pending), version });
    }

    /// Reads some of it.
    pub(super) fn prove(&self, pending: &Arc<Pending>, version: u8) -> Result<(), TransferError> {
        let part = {
            let inner = lock(&pending.inner);
            match &inner.work {
                Work::Part(part) if inner.version == version => Arc::clone(part),
                _ => return Ok(()),
            }
        };
        let proof = match self.stages.during(Stage::Hash, || part.prove()) {
            Ok(proof) => proof,
            // The connection has gone; this is done when there is one again.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => {
                if lock(&pending.inner).version != version {
                    return Ok(());
                }
                return self.fail(pending, error);
            }
        };
        if proof.lost_bytes > 0 {
            let mut inner = lock(&pending.inner);
            if inner.version != version {
                return Ok(());
            }
            inner.resumed = inner.resumed.saturating_sub(proof.lost_bytes);
            inner.lost = inner.lost.saturating_add(proof.lost_bytes);
            let counted = inner.counted.min(proof.lost_bytes);
            inner.counted -= counted;
            subtract(&self.counts.bytes, counted);
            // With the lock held: nothing is said of a later version before.
            for range in proof.lost {
                let (file, count) = (pending.entry, range.end - range.start);
                self.say(Message::Lost { file, first: range.start, count });
            }
        }
        if proof.more {
            self.slow.push(Job::Prove { pending: Arc::clone(pending), version });
            return Ok(());
        }
        let lost = std::mem::take(&mut lock(&pending.inner).lost);
        if lost > 0 {
            let path = printable(pending.place.path().as_os_str().as_encoded_bytes());
            self.note(&format!(
                "{path}: {lost} bytes of the partial file are not what was written: sent again"
            ));
        }
        self.complete(pending)
    }
}
