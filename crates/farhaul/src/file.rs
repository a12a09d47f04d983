//! Files straight to and from a connection (the sendfile and recvfile of gu05 §2.3.3).

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use crate::connection::Connection;
use crate::error::WRITE_FAILED;
use crate::pool::BLOCK;

impl Connection {
    /// Sends `len` bytes of `file` from `offset` on, or what there is of them; returns how many.
    /// The peer sees bytes of the stream and nothing else.
    ///
    /// # Errors
    ///
    /// Reading failed, or as writing to the connection.
    pub fn send_file(&self, file: &mut File, offset: u64, len: u64) -> io::Result<u64> {
        file.seek(SeekFrom::Start(offset))?;
        let most = (BLOCK / self.payload_size()).max(1) * self.payload_size();
        let mut block = vec![0; most];
        let mut sent = 0;
        while sent < len {
            let want = (len - sent).min(most as u64) as usize;
            let got = read_full(file, &mut block[..want])?;
            if got == 0 {
                break;
            }
            (&*self).write_all(&block[..got])?;
            sent += got as u64;
        }
        Ok(sent)
    }

    /// Receives `len` bytes into `file` from `offset` on, or what the peer sends of them before it
    /// closes; returns how many. If they cannot be written the peer is told.
    ///
    /// # Errors
    ///
    /// Writing failed, or as reading from the connection.
    pub fn recv_file(&self, file: &mut File, offset: u64, len: u64) -> io::Result<u64> {
        file.seek(SeekFrom::Start(offset))?;
        let mut block = self.inner.port.pool.take();
        let mut received = 0;
        while received < len {
            let want = (len - received).min(BLOCK as u64) as usize;
            let got = (&*self).read(&mut block.space()[..want])?;
            if got == 0 {
                break;
            }
            if let Err(error) = file.write_all(&block.space()[..got]) {
                self.inner.update(|_, c| c.signal_error(WRITE_FAILED));
                return Err(error);
            }
            received += got as u64;
        }
        Ok(received)
    }
}

/// Reads until `buf` is full or the file ends.
fn read_full(file: &mut File, buf: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buf.len() {
        match file.read(&mut buf[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}
