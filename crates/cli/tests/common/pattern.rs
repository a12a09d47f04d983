//! The bytes that are sent: those of tests/interop/stock/pattern.hpp.

use std::io::{Read, Write};
use std::process::{ChildStdin, ChildStdout};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const BLOCK: usize = 64 << 10;

/// The outputs of SplitMix64 from `seed` on, 8 bytes each, little-endian.
pub struct Pattern {
    state: u64,
    word: [u8; 8],
    left: usize,
}

impl Pattern {
    pub fn new(seed: u64) -> Self {
        Pattern { state: seed, word: [0; 8], left: 0 }
    }

    /// The next bytes of the stream; calls may cut it anywhere.
    pub fn fill(&mut self, out: &mut [u8]) {
        let kept = self.left.min(out.len());
        out[..kept].copy_from_slice(&self.word[8 - self.left..][..kept]);
        self.left -= kept;
        let mut words = out[kept..].chunks_exact_mut(8);
        for word in &mut words {
            word.copy_from_slice(&self.next());
        }
        let rest = words.into_remainder();
        if !rest.is_empty() {
            self.word = self.next();
            rest.copy_from_slice(&self.word[..rest.len()]);
            self.left = 8 - rest.len();
        }
    }

    fn next(&mut self) -> [u8; 8] {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = self.state;
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)).to_le_bytes()
    }
}

/// `len` bytes of the stream of `seed`.
pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    Pattern::new(seed).fill(&mut out);
    out
}

/// Message `index` of the stock peer: the index in 8 bytes, little-endian, and the stream of that
/// seed.
pub fn message(index: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    let head = len.min(8);
    out[..head].copy_from_slice(&index.to_le_bytes()[..head]);
    Pattern::new(index).fill(&mut out[head..]);
    out
}

/// Writes `len` bytes of the stream of `seed`. The join gives the pipe back, still open.
pub fn feed(mut to: ChildStdin, seed: u64, len: u64) -> JoinHandle<std::io::Result<ChildStdin>> {
    thread::spawn(move || {
        let mut pattern = Pattern::new(seed);
        let mut block = vec![0; BLOCK];
        let mut left = len;
        while left > 0 {
            let count = left.min(BLOCK as u64) as usize;
            pattern.fill(&mut block[..count]);
            to.write_all(&block[..count])?;
            left -= count as u64;
        }
        Ok(to)
    })
}

/// Reads to the end and compares with the stream of a seed.
pub struct Checker {
    count: Arc<(Mutex<Count>, Condvar)>,
    thread: JoinHandle<Checked>,
}

#[derive(Default)]
struct Count {
    bytes: u64,
    /// The longest time between two reads so far, the wait for the first byte left out.
    longest_pause: Duration,
    ended: bool,
}

/// What a [`Checker`] saw.
#[derive(Debug)]
pub struct Checked {
    pub bytes: u64,
    /// The first byte that was not what it should be.
    pub wrong_at: Option<u64>,
}

impl Checker {
    pub fn start(mut from: ChildStdout, seed: u64) -> Self {
        let count = Arc::new((Mutex::new(Count::default()), Condvar::new()));
        let shared = Arc::clone(&count);
        let thread = thread::spawn(move || {
            let mut pattern = Pattern::new(seed);
            let (mut got, mut wanted) = (vec![0; BLOCK], vec![0; BLOCK]);
            let mut seen = Checked { bytes: 0, wrong_at: None };
            let mut last: Option<Instant> = None;
            loop {
                let len = from.read(&mut got).expect("a pipe can be read");
                let (mutex, condvar) = &*shared;
                let mut count = mutex.lock().expect("nobody panics with it");
                count.bytes += len as u64;
                count.ended = len == 0;
                let now = Instant::now();
                if let Some(last) = last.replace(now)
                    && len > 0
                {
                    count.longest_pause = count.longest_pause.max(now - last);
                }
                condvar.notify_all();
                drop(count);
                if len == 0 {
                    return seen;
                }
                pattern.fill(&mut wanted[..len]);
                if seen.wrong_at.is_none() && got[..len] != wanted[..len] {
                    let at = got.iter().zip(&wanted).position(|(a, b)| a != b);
                    seen.wrong_at = at.map(|at| seen.bytes + at as u64);
                }
                seen.bytes += len as u64;
            }
        });
        Checker { count, thread }
    }

    /// Waits until so many bytes have come, or the end has.
    pub fn wait_for(&self, bytes: u64) {
        let (mutex, condvar) = &*self.count;
        let count = mutex.lock().expect("nobody panics with it");
        drop(condvar.wait_while(count, |c| c.bytes < bytes && !c.ended).expect("as before"));
    }

    /// The longest time between two reads so far.
    pub fn longest_pause(&self) -> Duration {
        self.count.0.lock().expect("nobody panics with it").longest_pause
    }

    /// What was seen, at the end of the input.
    pub fn finish(self) -> Checked {
        self.thread.join().expect("the checking thread does not panic")
    }

    /// Fails unless exactly `bytes` bytes came, and the right ones.
    pub fn expect(self, bytes: u64) -> Checked {
        let seen = self.finish();
        assert_eq!(seen.wrong_at, None, "a wrong byte among the {} that came", seen.bytes);
        assert_eq!(seen.bytes, bytes, "bytes that came");
        seen
    }
}
