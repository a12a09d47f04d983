//! Blocks of memory that come back when the last reference to their contents goes.

use std::sync::{Arc, Mutex};

use bytes::Bytes;

use crate::port::lock;

/// A block: the largest receive-offload buffer, and a full send call.
pub const BLOCK: usize = farhaul_udp::RECEIVE_SLOT;
/// Blocks kept for reuse.
const MAX_FREE: usize = 128;

/// Free blocks.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    free: Arc<Mutex<Vec<Box<[u8]>>>>,
}

impl Pool {
    /// A block whose contents are anything.
    pub fn take(&self) -> Block {
        let data = lock(&self.free).pop();
        let data = data.unwrap_or_else(|| vec![0; BLOCK].into_boxed_slice());
        Block { len: data.len(), data, pool: self.clone() }
    }
}

/// A block in use.
#[derive(Debug)]
pub struct Block {
    data: Box<[u8]>,
    len: usize,
    pool: Pool,
}

impl Block {
    /// All of its memory, to be written.
    pub fn space(&mut self) -> &mut [u8] {
        &mut self.data
    }

    /// Its first `len` bytes, shared by reference count.
    pub fn share(mut self, len: usize) -> Bytes {
        self.len = len.min(self.data.len());
        Bytes::from_owner(self)
    }
}

/// What is shared of it, or all of it where it is not.
impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        &self.data[..self.len]
    }
}

impl AsMut<[u8]> for Block {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.data[..self.len]
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let data = core::mem::take(&mut self.data);
        let mut free = lock(&self.pool.free);
        if free.len() < MAX_FREE {
            free.push(data);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_come_back_when_the_last_reference_goes() {
        let pool = Pool::default();
        let mut block = pool.take();
        block.space()[..3].copy_from_slice(b"abc");
        let bytes = block.share(3);
        let part = bytes.slice(1..);
        drop(bytes);
        assert_eq!(pool.free.lock().unwrap().len(), 0);
        assert_eq!(&part[..], b"bc");
        drop(part);
        assert_eq!(pool.free.lock().unwrap().len(), 1);
        assert_eq!(pool.take().space()[0], b'a');
    }
}
