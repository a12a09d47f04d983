//! Batched UDP sockets: segmentation and receive offload, arrival stamps, precise waiting.
//!
//! The library's system calls, and with them its `unsafe`.
//! A send call hands the kernel up to 64 KB of datagrams of one size, gathered from many slices; a
//! receive call takes several receive-offload buffers of up to 64 KB each. Where the kernel has no
//! offload, many datagrams still go in one call.

mod control;
mod errors;
mod receive;
mod send;
mod socket;
mod wait;

pub use errors::Unreachable;
pub use receive::{ReceiveSlots, Received};
pub use send::Sent;
pub use socket::{BufferSizes, Options, UdpSocket, canonical};
pub use wait::{Readiness, Waker, precise_sleep};

/// Bytes that one receive slot should hold: the largest receive-offload buffer.
pub const RECEIVE_SLOT: usize = 65_536;
/// Most datagrams in one send call (the kernel's `UDP_MAX_SEGMENTS` before 6.9).
pub const MAX_SEGMENTS: usize = 64;
/// Most bytes in one send call.
pub const MAX_SEND: usize = 65_507;
