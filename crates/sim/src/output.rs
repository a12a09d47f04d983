//! Where observers write to: the first failure ends it, and is kept.

use std::io::{self, Write};

#[derive(Debug)]
pub(crate) struct Output<W> {
    out: W,
    error: Option<io::Error>,
}

impl<W: Write> Output<W> {
    pub(crate) fn new(out: W) -> Self {
        Output { out, error: None }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        if self.error.is_none() {
            self.error = self.out.write_all(bytes).err();
        }
    }

    pub(crate) fn failed(&self) -> bool {
        self.error.is_some()
    }

    /// Writes out what is buffered. The first failure, if there was one.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        match self.error.take() {
            Some(error) => Err(error),
            None => self.out.flush(),
        }
    }
}
