//! Big-endian words to and from bytes.

use crate::HEADER_LEN;

/// The four words of a header.
#[inline]
pub(crate) const fn from_header(header: &[u8; HEADER_LEN]) -> [u32; 4] {
    let bits = u128::from_be_bytes(*header);
    [(bits >> 96) as u32, (bits >> 64) as u32, (bits >> 32) as u32, bits as u32]
}

/// The header made of four words.
#[inline]
pub(crate) const fn to_header(words: [u32; 4]) -> [u8; HEADER_LEN] {
    let [a, b, c, d] = words;
    let bits = (a as u128) << 96 | (b as u128) << 64 | (c as u128) << 32 | d as u128;
    bits.to_be_bytes()
}

/// Fills `out` with `words` from its start, as far as both go.
pub(crate) fn put(out: &mut [u8], words: &[u32]) {
    for (bytes, word) in out.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *bytes = word.to_be_bytes();
    }
}
