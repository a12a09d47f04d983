//! Payload laid out as it will lie on the wire, with room for a header before each packet.
//!
//! A send call that gathers headers and payloads makes the kernel copy piece by piece, which on
//! some machines takes several times as long as copying the same bytes in one run. Whoever has to
//! copy payload anyway, from a caller's buffer or out of a file, copies it into frames, and the
//! headers are written between when the packets leave.

use core::fmt::Debug;
use std::sync::Arc;

use farhaul_wire::HEADER_LEN;

/// Memory that frames lie in; dropped when the last packet in it has been acknowledged.
pub trait Memory: AsRef<[u8]> + AsMut<[u8]> + Debug + Send + Sync {}

impl<T: AsRef<[u8]> + AsMut<[u8]> + Debug + Send + Sync> Memory for T {}

/// Full packets of a stream, one after the other, each behind the room for its header.
#[derive(Debug)]
pub struct Frames {
    pub(crate) memory: Arc<dyn Memory>,
    pub(crate) payload_size: usize,
    pub(crate) packets: usize,
}

impl Frames {
    /// Packets with `payload_size` bytes that fit in `space` bytes of memory.
    pub fn fitting(payload_size: usize, space: usize) -> usize {
        space / (HEADER_LEN + payload_size)
    }

    /// The payloads of packets in `memory`, to be filled.
    pub fn payloads(memory: &mut [u8], payload_size: usize) -> impl Iterator<Item = &mut [u8]> {
        memory.chunks_exact_mut(HEADER_LEN + payload_size).map(|frame| &mut frame[HEADER_LEN..])
    }

    /// The first `packets` packets in `memory`, which [`Frames::payloads`] has filled.
    ///
    /// # Panics
    ///
    /// They do not fit in it.
    pub fn new(memory: impl Memory + 'static, payload_size: usize, packets: usize) -> Self {
        assert!(packets <= Frames::fitting(payload_size, memory.as_ref().len()));
        Frames { memory: Arc::new(memory), payload_size, packets }
    }

    /// Payload bytes.
    pub fn len(&self) -> usize {
        self.packets * self.payload_size
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
