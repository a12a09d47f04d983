//! Authenticated control packets.
//!
//! Peers that share keys send each control packet in an envelope, which is a packet of the user-defined
//! type with a subtype of the engine's own, so that a peer without keys ignores it:
//!
//! | bytes | |
//! |---|---|
//! | 0–3 | control, user-defined type, subtype [`ENVELOPE`] |
//! | 4–7 | low half of the packet's number, which starts at 1 and never comes twice |
//! | 8–15 | time stamp and destination of the packet inside |
//! | 16–23 | type and additional information of the packet inside |
//! | 24– | its payload |
//! | last 8 | SipHash-2-4 of the whole number and of all bytes before |
//!
//! SipHash-2-4 is a MAC with a key of 128 bits and a tag of 64 made for inputs as short as these: a
//! forged packet passes with probability 2^-64, so that a million tries a second for a day succeed
//! once in two hundred million such days. It needs no nonce that must not repeat, as GMAC does, and no
//! crate that is not here already for cookies. Each direction of each connection has a key of its
//! own, which binds a tag to both. Numbers that were seen, or are older than the last [`WINDOW`], are
//! refused (as in RFC 4303 §3.4.3), so that a copy of an old packet does nothing.
//!
//! Data packets of a stream bear tags once the receiver asks for them, which costs time for each byte: their word
//! for flags and message number, which streams ignore, is then SipHash-1-3 of sequence number and payload.
//! What passes by chance, once in 2^32, is found where records are opened. The sender begins with any
//! packet; from the first with a good tag on, the receiver drops what has none, and has it sent again.

use core::fmt;
use core::hash::Hasher;
use core::time::Duration;

use farhaul_base::Time;
use farhaul_control::ENGINE_SUBTYPES;
use farhaul_wire::{Control, ControlPacket, HEADER_LEN, Packet, ParseError, Seq, is_control};
use siphasher::sip::{SipHasher13, SipHasher24};

/// The subtype of an envelope.
pub const ENVELOPE: u16 = ENGINE_SUBTYPES + 1;
/// Bytes that come before what is put into an envelope, and after it.
pub const FRONT: usize = 8;
const TAG: usize = 8;
/// Bytes that an envelope is longer by than what is in it.
pub const OVERHEAD: usize = FRONT + TAG;
/// An envelope's first word.
const MARK: [u8; 4] = [0xff, 0xff, (ENVELOPE >> 8) as u8, ENVELOPE as u8];
/// Packets that may be overtaken by so many others.
const WINDOW: u64 = u128::BITS as u64;
/// After this side has begun to tag, the peer may take so long to do so as well. It does when it hears
/// what this side said before: a round trip, or a few if packets are lost. What it sends without a
/// tag later counts as lost, which the protocol makes up for.
const TRANSITION: Duration = Duration::from_secs(2);
/// A peer that sends data without tags, though asked for them, is asked again after this time.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// Keys of a connection's control packets, one for each direction, known to the two sides alone.
#[derive(Clone, PartialEq, Eq)]
pub struct TagKeys {
    /// Of the packets that this side sends: what is `receive` at the peer.
    pub send: [u8; 16],
    /// Of those that the peer sends.
    pub receive: [u8; 16],
}

/// Not the keys.
impl fmt::Debug for TagKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TagKeys").finish_non_exhaustive()
    }
}

/// What a connection knows about the tags of its control packets.
#[derive(Debug, Default)]
pub struct Tags {
    keys: Option<TagKeys>,
    /// Since when everything sent is tagged.
    sending_since: Option<Time>,
    /// The peer has begun to tag, and leaves nothing untagged from there on.
    peer_tags: bool,
    /// Packets tagged so far.
    sent: u64,
    /// The highest number received, and which of those up to it, bit 0.
    newest: u64,
    seen: u128,
    data: DataTags,
}

/// What the receiver of a stream wants of data packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum DataTags {
    #[default]
    Unwanted,
    /// Asked for, last at this time.
    Asked(Time),
    /// Wanted of this packet and of later ones.
    From(Seq),
    /// Of all.
    Required,
}

impl Tags {
    /// Envelopes of the peer can be opened from now on.
    pub fn set_keys(&mut self, keys: TagKeys) {
        self.keys = Some(keys);
    }

    /// Everything is tagged from now on, and soon required to be. Returns whether there are keys.
    pub fn start(&mut self, now: Time) -> bool {
        if self.keys.is_some() {
            self.sending_since.get_or_insert(now);
        }
        self.keys.is_some()
    }

    /// Whether everything sent is tagged.
    pub fn are_sent(&self) -> bool {
        self.sending_since.is_some()
    }

    /// Whether what comes without a tag is nothing of the peer's.
    pub fn are_required(&self, now: Time) -> bool {
        self.peer_tags || self.sending_since.is_some_and(|since| now - since >= TRANSITION)
    }

    /// Puts a control packet, which lies in `room` behind [`FRONT`] bytes and before as many as a tag
    /// has, into an envelope, if this side tags. Returns what to send.
    pub fn seal<'a>(&mut self, room: &'a mut [u8], len: usize) -> &'a [u8] {
        let end = FRONT + len;
        let (Some(keys), Some(_)) = (&self.keys, self.sending_since) else {
            return &room[FRONT..end];
        };
        self.sent += 1;
        // Time stamp and destination come where they are looked for.
        room[FRONT..FRONT + HEADER_LEN].rotate_left(HEADER_LEN / 2);
        room[..4].copy_from_slice(&MARK);
        room[4..8].copy_from_slice(&(self.sent as u32).to_be_bytes());
        let tag = tag(&keys.send, self.sent, &room[..end]);
        room[end..end + TAG].copy_from_slice(&tag.to_be_bytes());
        &room[..end + TAG]
    }

    /// Parses a datagram, out of its envelope if it comes in one; none if it is a control packet that
    /// the peer has not sent, or that has come before.
    pub fn open<'a>(
        &mut self,
        now: Time,
        datagram: &'a [u8],
    ) -> Option<Result<Packet<'a>, ParseError>> {
        if !is_control(datagram) || self.keys.is_none() {
            return Some(Packet::parse(datagram));
        }
        if datagram.first_chunk() == Some(&MARK) {
            return self.open_envelope(datagram);
        }
        (!self.are_required(now)).then(|| Packet::parse(datagram))
    }

    fn open_envelope<'a>(&mut self, envelope: &'a [u8]) -> Option<Result<Packet<'a>, ParseError>> {
        let keys = self.keys.as_ref()?;
        let (sealed, claimed) = envelope.split_last_chunk::<TAG>()?;
        let (outer, rest) = sealed.split_first_chunk::<HEADER_LEN>()?;
        let (kind, payload) = rest.split_first_chunk::<FRONT>()?;
        let number = self.whole_number(u32::from_be_bytes(*outer[4..].first_chunk()?));
        if !self.is_new(number)
            || tag(&keys.receive, number, sealed) != u64::from_be_bytes(*claimed)
        {
            return None;
        }
        self.note(number);
        self.peer_tags = true;
        let mut header = [0; HEADER_LEN];
        header[..FRONT].copy_from_slice(kind);
        header[FRONT..].copy_from_slice(&outer[FRONT..]);
        Some(ControlPacket::from_parts(&header, payload).map(Packet::Control))
    }

    /// The key of this side's data packets.
    pub fn data_key(&self) -> Option<DataKey> {
        self.keys.as_ref().map(|keys| DataKey::new(&keys.send))
    }

    /// Data packets are to bear tags. Returns whether there are keys, so that the peer is to be asked.
    pub fn want_data_tags(&mut self, now: Time) -> bool {
        let wanted = self.keys.is_some() && self.data == DataTags::Unwanted;
        if wanted {
            self.data = DataTags::Asked(now);
        }
        wanted
    }

    /// Whether the peer is to be asked again for tags, as it has sent none.
    pub fn asks_again(&mut self, now: Time) -> bool {
        match &mut self.data {
            DataTags::Asked(at) if now - *at >= ASK_AGAIN => {
                *at = now;
                true
            }
            _ => false,
        }
    }

    /// Whether a data packet is the peer's, as far as that is to be known; `next`: what is expected next.
    pub fn admits(&mut self, seq: Seq, word: u32, payload: &[u8], next: Seq) -> bool {
        let Some(keys) = self.keys.as_ref().filter(|_| self.data != DataTags::Unwanted) else {
            return true;
        };
        if let DataTags::From(first) = self.data {
            if next.since(first) > 0 {
                self.data = DataTags::Required;
            } else if seq.since(first) < 0 {
                return true;
            }
        }
        let good = DataKey::new(&keys.receive).tag(seq, payload) == word;
        match self.data {
            DataTags::Asked(_) if good => {
                self.data = DataTags::From(seq);
                true
            }
            DataTags::Asked(_) => true,
            _ => good,
        }
    }

    /// The number with this low half that is nearest to the highest received.
    fn whole_number(&self, low: u32) -> u64 {
        let ahead = low.wrapping_sub(self.newest as u32) as i32;
        self.newest.wrapping_add_signed(ahead.into())
    }

    fn is_new(&self, number: u64) -> bool {
        // Numbers before the first wrap to the highest ones, where no sender gets to.
        let age = self.newest.wrapping_sub(number) as i64;
        number != 0 && (age < 0 || (age < WINDOW as i64 && self.seen >> age & 1 == 0))
    }

    fn note(&mut self, number: u64) {
        match number.checked_sub(self.newest) {
            Some(ahead) => {
                let shift = u32::try_from(ahead).unwrap_or(u32::MAX);
                self.seen = self.seen.checked_shl(shift).unwrap_or(0) | 1;
                self.newest = number;
            }
            None => self.seen |= 1 << (self.newest - number),
        }
    }
}

/// Tags data packets of one direction.
#[derive(Clone, Copy)]
pub struct DataKey([u8; 16]);

/// Not the key.
impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DataKey(…)")
    }
}

impl DataKey {
    fn new(key: &[u8; 16]) -> Self {
        let half = |label: &[u8]| {
            let mut hasher = SipHasher24::new_with_key(key);
            hasher.write(label);
            hasher.finish().to_be_bytes()
        };
        let mut own = [0; 16];
        own[..8].copy_from_slice(&half(b"data tags, first half"));
        own[8..].copy_from_slice(&half(b"data tags, second half"));
        DataKey(own)
    }

    /// What a data packet bears in place of flags and message number.
    pub fn tag(&self, seq: Seq, payload: &[u8]) -> u32 {
        let mut hasher = SipHasher13::new_with_key(&self.0);
        hasher.write(&seq.value().to_be_bytes());
        hasher.write(payload);
        hasher.finish() as u32
    }
}

/// What a [`Control`] needs to be put into an envelope.
pub fn room_for(control: &Control<'_>) -> usize {
    control.datagram_len() + OVERHEAD
}

fn tag(key: &[u8; 16], number: u64, sealed: &[u8]) -> u64 {
    let mut hasher = SipHasher24::new_with_key(key);
    hasher.write(&number.to_be_bytes());
    hasher.write(sealed);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use farhaul_wire::AckSeq;

    use super::*;

    const NOW: Time = Time::from_secs(5);
    const DEST: u32 = 0x0123_4567;

    fn pair() -> (Tags, Tags) {
        let keys = TagKeys { send: [1; 16], receive: [2; 16] };
        let mirrored = TagKeys { send: keys.receive, receive: keys.send };
        let mut tags = [Tags::default(), Tags::default()];
        tags[0].set_keys(keys);
        tags[1].set_keys(mirrored);
        assert!(tags.iter_mut().all(|tags| tags.start(NOW)));
        let [a, b] = tags;
        (a, b)
    }

    fn seal(tags: &mut Tags, control: &Control<'_>) -> Vec<u8> {
        let mut room = vec![0; room_for(control)];
        let len = control.write(7, DEST, &mut room[FRONT..]).unwrap();
        tags.seal(&mut room, len).to_vec()
    }

    fn body<'a>(tags: &mut Tags, datagram: &'a [u8]) -> Option<Control<'a>> {
        match tags.open(NOW, datagram)?.unwrap() {
            Packet::Control(packet) => {
                assert_eq!((packet.timestamp, packet.dest), (7, DEST));
                Some(packet.body)
            }
            Packet::Data(..) => panic!("it was a control packet"),
        }
    }

    #[test]
    fn what_is_sealed_opens_once() {
        let (mut a, mut b) = pair();
        let payload = [5; 600];
        for control in [
            Control::KeepAlive,
            Control::Shutdown { code: 1 },
            Control::Ack2 { ack_seq: AckSeq::new(9) },
            Control::User { subtype: 3, info: 4, payload: &payload },
        ] {
            let envelope = seal(&mut a, &control);
            assert_eq!(envelope.len(), control.datagram_len() + OVERHEAD);
            assert_eq!(farhaul_wire::dest(&envelope), Some(DEST), "it finds its way");
            let outer = Packet::parse(&envelope).unwrap();
            let ignored = |p: &Packet<'_>| {
                matches!(p, Packet::Control(c)
                    if matches!(c.body, Control::User { subtype: ENVELOPE, .. }))
            };
            assert!(ignored(&outer), "a peer without keys ignores it");
            assert_eq!(body(&mut b, &envelope), Some(control));
            assert_eq!(body(&mut b, &envelope), None, "a copy");
            assert_eq!(body(&mut a, &envelope), None, "back to its sender");
        }
    }

    #[test]
    fn each_bit_counts() {
        let (mut a, mut b) = pair();
        assert!(body(&mut b, &seal(&mut a, &Control::KeepAlive)).is_some());
        let envelope = seal(&mut a, &Control::Ack2 { ack_seq: AckSeq::new(77) });
        for bit in 0..envelope.len() * 8 {
            let mut wrong = envelope.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            // A data packet is not the tags' affair.
            if is_control(&wrong) {
                assert_eq!(body(&mut b, &wrong), None, "bit {bit}");
            }
        }
        for len in 0..envelope.len() {
            assert!(len == 0 || b.open_envelope(&envelope[..len]).is_none(), "{len} bytes");
        }
        assert!(body(&mut b, &envelope).is_some(), "none of that changed anything");
    }

    #[test]
    fn numbers_are_taken_once_in_any_order_of_a_window() {
        let (mut a, mut b) = pair();
        let envelopes: Vec<_> = (0..300).map(|_| seal(&mut a, &Control::KeepAlive)).collect();
        let order = (0..300).rev().step_by(2).rev().chain((0..300).step_by(2));
        let taken = order.filter(|n| body(&mut b, &envelopes[*n]).is_some()).count();
        // All odd ones, and of the even ones those in the window.
        assert_eq!(taken, 150 + WINDOW as usize / 2);
        assert!(envelopes.iter().all(|envelope| body(&mut b, envelope).is_none()));
    }

    #[test]
    fn numbers_go_on_beyond_their_half_on_the_wire() {
        let (mut a, mut b) = pair();
        a.sent = u64::from(u32::MAX) - 2;
        let old = seal(&mut a, &Control::KeepAlive);
        // As if the numbers before had come as well.
        b.newest = a.sent - 1;
        assert!(body(&mut b, &old).is_some());
        let later: Vec<_> = (0..6).map(|_| seal(&mut a, &Control::KeepAlive)).collect();
        for n in [5, 0, 1, 2, 4, 3] {
            assert!(body(&mut b, &later[n]).is_some(), "{n}");
        }
        // What was sent 2^32 numbers before has another tag.
        assert_eq!(b.newest, u64::from(u32::MAX) + 5);
        a.sent = 99;
        assert_eq!(body(&mut b, &seal(&mut a, &Control::KeepAlive)), None);
    }

    #[test]
    fn untagged_packets_are_taken_until_the_peer_tags_or_its_time_is_over() {
        let (mut a, mut b) = pair();
        let mut plain = [0; 20];
        Control::KeepAlive.write(7, DEST, &mut plain).unwrap();
        assert!(b.open(NOW + (TRANSITION - Duration::from_nanos(1)), &plain).is_some());
        assert!(b.open(NOW + TRANSITION, &plain).is_none());
        assert!(body(&mut a, &plain).is_some());
        assert!(body(&mut a, &seal(&mut b, &Control::KeepAlive)).is_some());
        assert!(body(&mut a, &plain).is_none());
        let (_, mut silent) = pair();
        silent.sending_since = None;
        assert!(silent.open(NOW + 9 * TRANSITION, &plain).is_some(), "it has not begun");
        let mut without = Tags::default();
        assert!(!without.start(NOW));
        assert!(without.open(NOW + 9 * TRANSITION, &plain).is_some());
    }
}
