//! What the two sides compare: a digest per file and one for the whole transfer.

use blake3::Hasher;

/// 32 bytes of BLAKE3.
pub type Digest = [u8; 32];

/// Separates the digest of a file with holes from that of any dense file.
const HOLES_CONTEXT: &str = "farhaul mover 1 file with holes";

/// The digest of one file, built while its bytes pass.
///
/// A file without holes has the plain BLAKE3 of its content, the one `b3sum` prints. A file with
/// holes has a keyed digest over (BLAKE3 of its data, BLAKE3 of the table of its data runs, its
/// size): holes then cost nothing, whatever their length, and a peer cannot make us hash an exabyte
/// of zeros. Runs are merged, so the digest does not depend on how the data was cut into frames.
#[derive(Debug, Default)]
pub struct ContentHasher {
    data: Hasher,
    runs: Hasher,
    /// Where the present run of data began; `None` outside a run.
    run_start: Option<u64>,
    offset: u64,
    holes: bool,
}

impl ContentHasher {
    /// Takes the next bytes of data.
    pub fn data(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.run_start.get_or_insert(self.offset);
        self.data.update(bytes);
        self.offset += bytes.len() as u64;
    }

    /// Takes a hole of `length` bytes. The caller keeps the sum of all lengths below 2^64.
    pub fn hole(&mut self, length: u64) {
        if length == 0 {
            return;
        }
        self.end_run();
        self.holes = true;
        self.offset += length;
    }

    /// The digest of what was taken; ready for the next file afterwards.
    pub fn finish(&mut self) -> Digest {
        let digest = if self.holes {
            self.end_run();
            let mut all = Hasher::new_derive_key(HOLES_CONTEXT);
            all.update(self.data.finalize().as_bytes());
            all.update(self.runs.finalize().as_bytes());
            all.update(&self.offset.to_be_bytes());
            all.finalize()
        } else {
            self.data.finalize()
        };
        self.data.reset();
        if self.holes {
            self.runs.reset();
        }
        self.run_start = None;
        self.offset = 0;
        self.holes = false;
        digest.into()
    }

    fn end_run(&mut self) {
        if let Some(start) = self.run_start.take() {
            self.runs.update(&start.to_be_bytes());
            self.runs.update(&(self.offset - start).to_be_bytes());
        }
    }
}

/// The digest of a transfer: every frame that says something about the tree, in order.
///
/// Each file's content digest is inside its closing frame, so this covers the ordered digests of
/// all files together with names, attributes, sizes and link targets.
#[derive(Debug, Default)]
pub struct Transcript {
    hasher: Hasher,
}

impl Transcript {
    /// Takes one frame as it is on the wire.
    pub fn frame(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
    }

    /// The digest of all frames so far.
    pub fn digest(&self) -> Digest {
        self.hasher.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(parts: &[(&[u8], u64)]) -> Digest {
        let mut hasher = ContentHasher::default();
        for (data, hole) in parts {
            hasher.data(data);
            hasher.hole(*hole);
        }
        hasher.finish()
    }

    #[test]
    fn dense_files_have_the_plain_digest() {
        let plain: Digest = blake3::hash(b"hello world").into();
        assert_eq!(digest(&[(b"hello ", 0), (b"world", 0)]), plain);
        // The published BLAKE3 of nothing.
        assert_eq!(digest(&[])[..4], [0xaf, 0x13, 0x49, 0xb9]);
    }

    #[test]
    fn cutting_does_not_matter() {
        let whole = digest(&[(b"abcdef", 4096), (b"gh", 8192)]);
        assert_eq!(
            digest(&[(b"abc", 0), (b"def", 96), (b"", 4000), (b"gh", 1), (b"", 8191)]),
            whole
        );
    }

    #[test]
    fn layout_and_size_matter() {
        let all = [
            digest(&[(b"ab", 10)]),
            digest(&[(b"ab", 11)]),
            digest(&[(b"", 10), (b"ab", 0)]),
            digest(&[(b"a", 10), (b"b", 0)]),
            digest(&[(b"", 12)]),
            digest(&[(b"ab\0\0\0\0\0\0\0\0\0\0", 0)]),
        ];
        for (i, one) in all.iter().enumerate() {
            assert!(!all[..i].contains(one), "layout {i} collides");
        }
    }

    #[test]
    fn a_hasher_is_ready_again_after_finish() {
        let mut hasher = ContentHasher::default();
        hasher.data(b"first");
        hasher.hole(5);
        hasher.finish();
        hasher.data(b"x");
        assert_eq!(hasher.finish(), digest(&[(b"x", 0)]));
        hasher.hole(7);
        assert_eq!(hasher.finish(), digest(&[(b"", 7)]));
    }

    #[test]
    fn exabyte_holes_cost_nothing() {
        let mut hasher = ContentHasher::default();
        hasher.hole(i64::MAX as u64);
        hasher.finish();
    }
}
