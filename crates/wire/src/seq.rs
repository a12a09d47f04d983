//! The three number spaces of the protocol. None has a total order, so none implements `Ord`.

/// A data sequence number: 31 bits, one step per data packet, wrapping from 2^31 - 1 to 0.
///
/// Two numbers compare by [`Seq::since`], which is meaningful while they are less than 2^30 apart.
///
/// ```
/// use farhaul_wire::Seq;
///
/// let last = Seq::new(Seq::MAX);
/// assert_eq!(last.next(), Seq::new(0));
/// assert_eq!(last.plus(3).since(last), 3);
/// assert_eq!(last.since(last.plus(3)), -3);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seq(u32);

impl Seq {
    /// The largest value, 2^31 - 1.
    pub const MAX: u32 = 0x7fff_ffff;

    /// The number with the low 31 bits of `v`.
    #[inline]
    pub const fn new(v: u32) -> Self {
        Seq(v & Self::MAX)
    }

    /// The value, `0 ..= Seq::MAX`.
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// The number after this one.
    #[inline]
    pub const fn next(self) -> Self {
        self.plus(1)
    }

    /// The number before this one.
    #[inline]
    pub const fn prev(self) -> Self {
        self.minus(1)
    }

    /// The number `n` steps on, modulo 2^31.
    #[inline]
    pub const fn plus(self, n: u32) -> Self {
        Seq::new(self.0.wrapping_add(n))
    }

    /// The number `n` steps back, modulo 2^31.
    #[inline]
    pub const fn minus(self, n: u32) -> Self {
        Seq::new(self.0.wrapping_sub(n))
    }

    /// Signed steps from `earlier` to `self`, modulo 2^31: `-2^30 ..= 2^30 - 1`. Numbers exactly
    /// half the space apart are at -2^30 either way round.
    #[inline]
    pub const fn since(self, earlier: Seq) -> i32 {
        // Bit 30 of the difference is the sign: move it to bit 31 and extend it back.
        (self.0.wrapping_sub(earlier.0) << 1) as i32 >> 1
    }

    /// The later of two numbers that are less than half the space apart.
    #[inline]
    pub const fn later(self, other: Seq) -> Seq {
        if self.since(other) > 0 { self } else { other }
    }

    /// The number in `word`, or `None` if bit 31 is set, where the wire gives it another meaning.
    pub(crate) const fn checked(word: u32) -> Option<Self> {
        if word <= Self::MAX { Some(Seq(word)) } else { None }
    }
}

/// An ACK sequence number: 31 bits, 1 for the first numbered ACK, one step per numbered ACK,
/// wrapping from 2^31 - 1 to 0. Compared for equality only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AckSeq(u32);

impl AckSeq {
    /// What a light ACK carries in place of a number.
    pub const LIGHT: AckSeq = AckSeq(0);
    /// The number of a connection's first numbered ACK.
    pub const FIRST: AckSeq = AckSeq(1);

    /// The number with the low 31 bits of `v`.
    #[inline]
    pub const fn new(v: u32) -> Self {
        AckSeq(v & Seq::MAX)
    }

    /// The value, `0 ..= 2^31 - 1`.
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// The number after this one.
    #[inline]
    pub const fn next(self) -> Self {
        AckSeq::new(self.0.wrapping_add(1))
    }

    /// The number in `word`, or `None` if bit 31 is set.
    pub(crate) const fn checked(word: u32) -> Option<Self> {
        if word <= Seq::MAX { Some(AckSeq(word)) } else { None }
    }
}

/// A message number: 29 bits, one step per message sent. Compared for equality only.
///
/// Senders use `1 ..= 0x1fff_fffe`. The two other values of the field, 0 and `0x1fff_ffff`, can
/// arrive all the same: stock peers put 0 into drop requests for messages long gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MsgNo(u32);

impl MsgNo {
    /// The number of a connection's first message.
    pub const FIRST: MsgNo = MsgNo(1);
    /// The last number before the space starts again at [`MsgNo::FIRST`].
    pub const LAST: MsgNo = MsgNo(0x1fff_fffe);

    /// The number with the low 29 bits of `v`.
    #[inline]
    pub const fn new(v: u32) -> Self {
        MsgNo(v & 0x1fff_ffff)
    }

    /// The value, `0 ..= 2^29 - 1`.
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// The number after this one; [`MsgNo::FIRST`] after [`MsgNo::LAST`].
    #[inline]
    pub const fn next(self) -> Self {
        if self.0 >= Self::LAST.0 { Self::FIRST } else { MsgNo(self.0 + 1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_numbers_wrap() {
        assert_eq!(Seq::new(u32::MAX).value(), Seq::MAX);
        assert_eq!(Seq::new(0x8000_0005).value(), 5);
        assert_eq!(Seq::new(Seq::MAX).next().value(), 0);
        assert_eq!(Seq::new(0).prev().value(), Seq::MAX);
        assert_eq!(Seq::new(Seq::MAX - 1).plus(4).value(), 2);
        assert_eq!(Seq::new(2).minus(4).value(), Seq::MAX - 1);
        // Steps are taken modulo 2^31 whatever their size.
        assert_eq!(Seq::new(7).plus(u32::MAX).value(), 6);
        assert_eq!(Seq::new(7).minus(1 << 31).value(), 7);
    }

    #[test]
    fn distance_has_a_sign_and_wraps() {
        const HALF: u32 = 1 << 30;
        let since = |a: u32, b: u32| Seq::new(a).since(Seq::new(b));
        assert_eq!(since(5, 5), 0);
        assert_eq!(since(0, Seq::MAX), 1);
        assert_eq!(since(Seq::MAX, 0), -1);
        assert_eq!(since(2, Seq::MAX - 2), 5);
        assert_eq!(since(HALF - 1, 0), (1 << 30) - 1);
        assert_eq!(since(HALF, 0), -(1 << 30));
        assert_eq!(since(0, HALF), -(1 << 30));
        assert_eq!(since(HALF + 1, 0), -(1 << 30) + 1);
    }

    #[test]
    fn the_later_of_two() {
        for (a, b) in [(4, 5), (Seq::MAX, 0), (5, 5)] {
            let (a, b) = (Seq::new(a), Seq::new(b));
            assert_eq!((a.later(b), b.later(a)), (b, b));
        }
    }

    #[test]
    fn ack_numbers_wrap_through_zero() {
        assert_eq!(AckSeq::FIRST.value(), 1);
        assert_eq!(AckSeq::FIRST.next().value(), 2);
        assert_eq!(AckSeq::new(Seq::MAX).next().value(), 0);
        assert_eq!(AckSeq::new(0).next(), AckSeq::FIRST);
    }

    #[test]
    fn message_numbers_skip_zero_and_all_ones() {
        assert_eq!(MsgNo::FIRST.next().value(), 2);
        assert_eq!(MsgNo::new(0x1fff_fffd).next(), MsgNo::LAST);
        assert_eq!(MsgNo::LAST.next(), MsgNo::FIRST);
        assert_eq!(MsgNo::new(0x1fff_ffff).next(), MsgNo::FIRST);
        assert_eq!(MsgNo::new(0).next(), MsgNo::FIRST);
        assert_eq!(MsgNo::new(u32::MAX).value(), 0x1fff_ffff);
    }
}
