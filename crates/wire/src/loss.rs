//! The loss list of a NAK.
//!
//! A word with bit 31 clear names one lost packet. A word with bit 31 set starts a range, and the
//! next word, with bit 31 clear, ends it, both inclusive. A range may run over the wrap.

use core::iter::FusedIterator;

use crate::control::header;
use crate::{HEADER_LEN, ParseError, Seq};

const RANGE: u32 = 1 << 31;

/// The type of a NAK, as the header carries it.
pub(crate) const NAK: u16 = 3;

/// Lost packets `first ..= last`, in sequence order, so never empty. Both ends are on the same
/// half of the number circle: `last.since(first) >= 0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LossRange {
    /// The first lost packet.
    pub first: Seq,
    /// The last lost packet.
    pub last: Seq,
}

impl LossRange {
    /// The range of one packet.
    #[inline]
    pub const fn single(seq: Seq) -> Self {
        LossRange { first: seq, last: seq }
    }

    /// How many packets the range holds, at least 1.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a range is never empty")]
    pub const fn len(self) -> u32 {
        self.last.minus(self.first.value()).value() + 1
    }
}

/// The loss list of a NAK, checked when it was parsed, so that reading it cannot fail.
///
/// Ranges come in the sender's order, and may overlap or repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossReport<'a> {
    words: &'a [[u8; 4]],
}

impl<'a> LossReport<'a> {
    /// Parses the payload of a NAK.
    ///
    /// # Errors
    ///
    /// [`ParseError::NakLength`] unless the payload is one or more whole words;
    /// [`ParseError::NakRangeOpen`], [`ParseError::NakRangeEnd`] and
    /// [`ParseError::NakRangeOrder`] for a range that lacks its end, has the flag on it, or runs
    /// backwards. libudt reads past the end of the packet in the first case and breaks the
    /// connection in the last.
    pub fn parse(payload: &'a [u8]) -> Result<LossReport<'a>, ParseError> {
        let (words, rest) = payload.as_chunks();
        if words.is_empty() || !rest.is_empty() {
            return Err(ParseError::NakLength(payload.len()));
        }
        let mut left = words.iter().map(|bytes| u32::from_be_bytes(*bytes));
        while let Some(word) = left.next() {
            if word & RANGE == 0 {
                continue;
            }
            let first = Seq::new(word);
            let end = left.next().ok_or(ParseError::NakRangeOpen(first))?;
            let last = Seq::checked(end).ok_or(ParseError::NakRangeEnd(end))?;
            if last.since(first) < 0 {
                return Err(ParseError::NakRangeOrder { first, last });
            }
        }
        Ok(LossReport { words })
    }

    /// The ranges, at least one.
    #[inline]
    pub fn ranges(&self) -> LossRanges<'a> {
        LossRanges { words: self.words }
    }

    /// The list as it is on the wire.
    #[inline]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.words.as_flattened()
    }
}

impl<'a> IntoIterator for LossReport<'a> {
    type Item = LossRange;
    type IntoIter = LossRanges<'a>;

    fn into_iter(self) -> LossRanges<'a> {
        self.ranges()
    }
}

/// The ranges of a [`LossReport`].
#[derive(Clone, Debug)]
pub struct LossRanges<'a> {
    words: &'a [[u8; 4]],
}

impl Iterator for LossRanges<'_> {
    type Item = LossRange;

    #[inline]
    fn next(&mut self) -> Option<LossRange> {
        let (word, rest) = self.words.split_first()?;
        let word = u32::from_be_bytes(*word);
        let first = Seq::new(word);
        if word & RANGE == 0 {
            self.words = rest;
            return Some(LossRange::single(first));
        }
        let (end, rest) = rest.split_first()?;
        self.words = rest;
        Some(LossRange { first, last: Seq::new(u32::from_be_bytes(*end)) })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.words.len().div_ceil(2), Some(self.words.len()))
    }
}

impl FusedIterator for LossRanges<'_> {}

/// Encodes `ranges` into `out` as far as they fit and returns the bytes written and the ranges
/// taken. What is left goes into the next packet: `&ranges[taken..]`.
///
/// Every range must run forwards, as [`LossRange`] says; this is asserted in debug builds, because
/// a stock peer drops the connection over one that does not.
///
/// ```
/// use farhaul_wire::{LossReport, LossRange, Seq, encode_losses};
///
/// let ranges = [
///     LossRange::single(Seq::new(7)),
///     LossRange { first: Seq::new(9), last: Seq::new(12) },
/// ];
/// let mut out = [0; 8];
/// // The second range needs two words, and only one is left.
/// assert_eq!(encode_losses(&ranges, &mut out), (4, 1));
/// assert_eq!(LossReport::parse(&out[..4])?.ranges().next(), Some(ranges[0]));
/// # Ok::<(), farhaul_wire::ParseError>(())
/// ```
pub fn encode_losses(ranges: &[LossRange], out: &mut [u8]) -> (usize, usize) {
    let mut words = out.as_chunks_mut::<4>().0.iter_mut();
    let (mut bytes, mut taken) = (0, 0);
    for LossRange { first, last } in ranges {
        debug_assert!(last.since(*first) >= 0, "loss range {first:?}..={last:?} runs backwards");
        if first == last {
            let Some(word) = words.next() else { break };
            *word = first.value().to_be_bytes();
            bytes += 4;
        } else {
            let (Some(start), Some(end)) = (words.next(), words.next()) else { break };
            *start = (first.value() | RANGE).to_be_bytes();
            *end = last.value().to_be_bytes();
            bytes += 8;
        }
        taken += 1;
    }
    (bytes, taken)
}

/// Writes a whole NAK to the start of `out` and returns its length and the ranges taken, as
/// [`encode_losses`] does. Both are 0 if there are no ranges or `out` has no room for the first,
/// for there is no empty NAK.
pub fn write_nak(
    ranges: &[LossRange],
    timestamp: u32,
    dest: u32,
    out: &mut [u8],
) -> (usize, usize) {
    let Some((head, list)) = out.split_first_chunk_mut() else { return (0, 0) };
    let (bytes, taken) = encode_losses(ranges, list);
    if taken == 0 {
        return (0, 0);
    }
    *head = header(NAK, 0, 0, timestamp, dest);
    (HEADER_LEN + bytes, taken)
}
