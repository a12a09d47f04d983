//! What one core does: sealing, opening, hashing, copying.

use std::hint::black_box;
use std::time::{Duration, Instant};

use aws_lc_rs::aead::{
    AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use serde::{Deserialize, Serialize};

/// As much as one sealed record holds.
const RECORD: usize = 256 << 10;
/// As much as is hashed at once: a mebibyte of a file.
const CHUNK: usize = 1 << 20;
/// Far beyond the caches of most processors.
const COPY: usize = 32 << 20;

/// Bits per second on one core; `None`: not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Speeds {
    /// Encrypting with AES-256-GCM.
    pub aes_seal: Option<f64>,
    /// Decrypting.
    pub aes_open: Option<f64>,
    /// Encrypting with ChaCha20-Poly1305.
    pub chacha_seal: Option<f64>,
    /// Decrypting.
    pub chacha_open: Option<f64>,
    /// BLAKE3.
    pub hash: Option<f64>,
    /// Copying memory that is in no cache.
    pub copy: Option<f64>,
}

impl Speeds {
    /// Encrypting with the faster cipher.
    pub fn seal(&self) -> Option<f64> {
        faster(self.aes_seal, self.chacha_seal)
    }

    /// Decrypting with the cipher that encrypts faster.
    pub fn open(&self) -> Option<f64> {
        faster(self.aes_open, self.chacha_open)
    }
}

fn faster(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.into_iter().chain(b).max_by(f64::total_cmp)
}

/// Measures each for `time`.
pub(super) fn measure(time: Duration) -> Speeds {
    let (aes_seal, aes_open) = cipher(&AES_256_GCM, time).unzip();
    let (chacha_seal, chacha_open) = cipher(&CHACHA20_POLY1305, time).unzip();
    let chunk = vec![0x5a; CHUNK];
    let hash = rate(time, CHUNK, || _ = black_box(blake3::hash(black_box(&chunk))));
    let from = vec![1u8; COPY];
    let mut to = vec![0u8; COPY];
    let copy = rate(time, COPY, || black_box(&mut to).copy_from_slice(black_box(&from)));
    Speeds { aes_seal, aes_open, chacha_seal, chacha_open, hash: Some(hash), copy: Some(copy) }
}

/// Sealing and opening. `None`: the cipher fails, which no known one does.
fn cipher(algorithm: &'static Algorithm, time: Duration) -> Option<(f64, f64)> {
    let key = LessSafeKey::new(UnboundKey::new(algorithm, &[7; 32]).ok()?);
    // What is sealed is no secret, so that one nonce will do.
    let nonce = || Nonce::assume_unique_for_key([0; 12]);
    let mut record = vec![0x5a; RECORD];
    let mut failed = false;
    let seal = rate(time / 2, RECORD, || {
        let tag = key.seal_in_place_separate_tag(nonce(), Aad::empty(), black_box(&mut record));
        failed |= tag.is_err();
    });
    let mut sealed = record;
    key.seal_in_place_append_tag(nonce(), Aad::empty(), &mut sealed).ok()?;
    let mut opened = vec![0; RECORD];
    let (body, tag) = sealed.split_at(RECORD);
    let open = rate(time / 2, RECORD, || {
        let result = key.open_separate_gather(nonce(), Aad::empty(), body, tag, &mut opened);
        failed |= result.is_err();
    });
    (!failed).then_some((seal, open))
}

/// Bits per second of a task of `bytes`, done over and over for `time`, the first time not counted.
fn rate(time: Duration, bytes: usize, mut task: impl FnMut()) -> f64 {
    task();
    let begin = Instant::now();
    let mut times = 0u32;
    loop {
        task();
        times += 1;
        let taken = begin.elapsed();
        if taken >= time {
            return f64::from(times) * bytes as f64 * 8.0 / taken.as_secs_f64().max(1e-9);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slow machine without optimisation still does a megabit a second.
    #[test]
    fn everything_is_measured() {
        let speeds = measure(Duration::from_millis(2));
        let all = [
            speeds.aes_seal,
            speeds.aes_open,
            speeds.chacha_seal,
            speeds.chacha_open,
            speeds.hash,
            speeds.copy,
        ];
        assert!(all.iter().all(|rate| rate.is_some_and(|rate| rate > 1e6)), "{speeds:?}");
    }

    #[test]
    fn the_faster_cipher_counts() {
        let speeds = Speeds { aes_seal: Some(1e9), chacha_seal: Some(4e9), ..Speeds::default() };
        assert_eq!((speeds.seal(), speeds.open()), (Some(4e9), None));
    }
}
