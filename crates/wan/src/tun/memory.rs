//! The memory of the packets under way.

use std::mem;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// From this size on a frame keeps the buffer that it was read into; smaller ones are copied, so that little
/// packets do not hold large buffers.
const KEPT_FROM_BYTES: usize = 16 << 10;
/// Buffers that are kept for reuse.
const MOST_SPARE: usize = 256;

/// Counts the bytes that are held, and keeps buffers for reuse.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    held: AtomicU64,
    spare: Mutex<Vec<Vec<u8>>>,
}

/// Bytes that were read. They count as held until they are dropped.
#[derive(Debug, Default)]
pub(super) struct Bytes {
    buffer: Vec<u8>,
    length: usize,
    memory: Option<Memory>,
}

impl Memory {
    /// A buffer of `length` bytes.
    pub(super) fn buffer(&self, length: usize) -> Vec<u8> {
        let spare = self.0.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        spare.filter(|spare| spare.len() == length).unwrap_or_else(|| vec![0; length])
    }

    /// The first `length` bytes of `buffer`, which is another one afterwards if there were many.
    pub(super) fn take(&self, buffer: &mut Vec<u8>, length: usize) -> Bytes {
        let length = length.min(buffer.len());
        let buffer = if length < KEPT_FROM_BYTES {
            buffer[..length].to_vec()
        } else {
            let next = self.buffer(buffer.len());
            mem::replace(buffer, next)
        };
        self.0.held.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        Bytes { buffer, length, memory: Some(self.clone()) }
    }

    /// How many bytes are held.
    pub(super) fn held(&self) -> u64 {
        self.0.held.load(Ordering::Relaxed)
    }
}

impl From<Vec<u8>> for Bytes {
    /// Bytes that nothing counts.
    fn from(buffer: Vec<u8>) -> Self {
        Bytes { length: buffer.len(), buffer, memory: None }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        let Some(Memory(shared)) = &self.memory else { return };
        shared.held.fetch_sub(self.buffer.len() as u64, Ordering::Relaxed);
        if self.buffer.len() >= KEPT_FROM_BYTES {
            let mut spare = shared.spare.lock().unwrap_or_else(PoisonError::into_inner);
            if spare.len() < MOST_SPARE {
                spare.push(mem::take(&mut self.buffer));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_buffers_are_used_again_and_all_are_counted() {
        let memory = Memory::default();
        let mut buffer = memory.buffer(40_000);
        buffer[..3].copy_from_slice(b"one");
        let small = memory.take(&mut buffer, 3);
        assert_eq!((&*small, memory.held()), (&b"one"[..], 3));
        let place = buffer.as_ptr();
        let large = memory.take(&mut buffer, 30_000);
        assert_eq!((large.len(), memory.held()), (30_000, 40_003));
        assert_ne!(buffer.as_ptr(), place);
        drop((small, large));
        assert_eq!(memory.held(), 0);
        let _ = memory.take(&mut buffer, 40_000);
        assert_eq!(buffer.as_ptr(), place);
    }
}
