//! The sender's ear: what the receiver says while the sender is busy sending.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::digest::Digest;
use crate::error::Violation;
use crate::frame::{AbortReason, Frame, Tally};
use crate::report::{Failure, Side, printable};
use crate::stream::{FrameReader, ReadError};

/// What the sending and the listening thread tell each other.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Entries announced so far; set by the sending side before the peer can know of them.
    announced: AtomicU64,
    /// The end is about to be said.
    ended: AtomicBool,
    /// The peer has said its last word, or cannot say any.
    silent: AtomicBool,
    /// Entries that the peer could not store, not yet shown to the caller.
    failures: Mutex<Vec<Failure>>,
}

/// The peer's last word.
#[derive(Debug)]
pub(crate) enum LastWord {
    Receipt { tally: Tally, failed: u64, transcript: Digest },
    Abort { reason: AbortReason, text: Vec<u8> },
    Violation(Violation),
    Closed,
    Stream(io::Error),
}

impl Shared {
    /// The most failures that wait to be shown. The listener must never wait for the sender: the
    /// sender may wait for the receiver, and that for the listener. What is over is only counted,
    /// by the receipt.
    const WAITING: usize = 1000;

    pub(crate) fn announce_entry(&self) {
        self.announced.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn announced(&self) -> u64 {
        self.announced.load(Ordering::Acquire)
    }

    pub(crate) fn announce_end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.silent.load(Ordering::Acquire)
    }

    pub(crate) fn take_failures(&self) -> Vec<Failure> {
        std::mem::take(&mut *self.failures.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn add_failure(&self, text: String) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() < Self::WAITING {
            failures.push(Failure { side: Side::Peer, text });
        }
    }
}

/// Reads what the receiver says until its last word.
pub(crate) fn listen<R: Read>(mut reader: FrameReader<R>, shared: &Shared) -> LastWord {
    let mut first_unreported = 0;
    let last = loop {
        match reader.next() {
            Ok(received) => match received.frame {
                Frame::Failed { entry, text } => {
                    // Numbers only grow and stay below what was announced, so that even a hostile
                    // receiver cannot go on for ever.
                    if entry < first_unreported || entry >= shared.announced() {
                        break LastWord::Violation(Violation::EntryOrder);
                    }
                    first_unreported = entry + 1;
                    shared.add_failure(printable(text));
                }
                Frame::Receipt { tally, failed, transcript } => {
                    break if shared.ended.load(Ordering::Acquire) {
                        LastWord::Receipt { tally, failed, transcript }
                    } else {
                        LastWord::Violation(Violation::EarlyReceipt)
                    };
                }
                Frame::Abort { reason, text } => {
                    break LastWord::Abort { reason, text: text.to_vec() };
                }
                _ => break LastWord::Violation(Violation::Unexpected),
            },
            Err(ReadError::Closed) => break LastWord::Closed,
            Err(ReadError::Stream(error)) => break LastWord::Stream(error),
            Err(ReadError::Violation(violation)) => break LastWord::Violation(violation),
        }
    };
    shared.silent.store(true, Ordering::Release);
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::MAX_REPLY;

    fn hear(shared: &Shared, frames: &[Frame<'_>]) -> LastWord {
        let mut bytes = Vec::new();
        for frame in frames {
            frame.encode(&mut bytes);
        }
        listen(FrameReader::new(&bytes[..], MAX_REPLY), shared)
    }

    fn failed(entry: u64) -> Frame<'static> {
        Frame::Failed { entry, text: b"x\x1b" }
    }

    const RECEIPT: Frame<'static> = Frame::Receipt {
        tally: Tally { files: 1, directories: 0, symlinks: 0, bytes: 2 },
        failed: 0,
        transcript: [1; 32],
    };

    #[test]
    fn failures_are_passed_on_in_a_printable_form() {
        let shared = Shared::default();
        (0..5).for_each(|_| shared.announce_entry());
        let last = hear(&shared, &[failed(0), failed(4)]);
        assert!(matches!(last, LastWord::Closed));
        assert!(shared.is_silent());
        let texts: Vec<String> = shared.take_failures().into_iter().map(|f| f.text).collect();
        assert_eq!(texts, ["x\u{fffd}", "x\u{fffd}"]);
        assert!(shared.take_failures().is_empty());
    }

    #[test]
    fn failures_of_nothing_are_a_violation() {
        for frames in [&[failed(2)][..], &[failed(1), failed(1)], &[failed(1), failed(0)]] {
            let shared = Shared::default();
            (0..2).for_each(|_| shared.announce_entry());
            let last = hear(&shared, frames);
            assert!(matches!(last, LastWord::Violation(Violation::EntryOrder)), "{frames:?}");
        }
    }

    #[test]
    fn a_receipt_counts_after_the_end_only() {
        let shared = Shared::default();
        let early = hear(&shared, &[RECEIPT]);
        assert!(matches!(early, LastWord::Violation(Violation::EarlyReceipt)));
        shared.announce_end();
        assert!(matches!(hear(&shared, &[RECEIPT]), LastWord::Receipt { failed: 0, .. }));
    }

    #[test]
    fn a_receiver_may_not_say_what_a_sender_says() {
        for frame in
            [Frame::Leave, Frame::Done, Frame::Data(b"x"), Frame::Totals { files: 0, bytes: 0 }]
        {
            let last = hear(&Shared::default(), &[frame]);
            assert!(matches!(last, LastWord::Violation(Violation::Unexpected)), "{frame:?}");
        }
    }

    #[test]
    fn waiting_failures_are_bounded() {
        let shared = Shared::default();
        let frames: Vec<_> = (0..3000).map(failed).collect();
        frames.iter().for_each(|_| shared.announce_entry());
        hear(&shared, &frames);
        assert_eq!(shared.take_failures().len(), Shared::WAITING);
    }
}
