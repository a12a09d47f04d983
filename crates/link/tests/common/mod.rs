//! A packet without content, and links driven to the end.

use farhaul_base::Time;
use farhaul_link::{Ecn, Link, Packet};

/// Knows its number, its size and which of its bits were inverted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    pub id: u64,
    pub bytes: usize,
    pub flipped: Vec<usize>,
    pub flow: u64,
    pub ecn: Ecn,
}

impl Probe {
    pub fn new(id: u64, bytes: usize) -> Self {
        Probe { id, bytes, flipped: Vec::new(), flow: 0, ecn: Ecn::NotCapable }
    }

    #[allow(dead_code, reason = "not all tests have flows")]
    pub fn of(self, flow: u64, ecn: Ecn) -> Self {
        Probe { flow, ecn, ..self }
    }
}

impl Packet for Probe {
    fn wire_len(&self) -> usize {
        self.bytes
    }

    fn corruptible_bits(&self) -> usize {
        self.bytes * 8
    }

    fn flip_bit(&mut self, bit: usize) {
        assert!(bit < self.bytes * 8);
        self.flipped.push(bit);
    }

    fn ecn(&self) -> Ecn {
        self.ecn
    }

    fn mark(&mut self) {
        assert!(self.ecn.is_capable());
        self.ecn = Ecn::Marked;
    }

    fn flow(&self) -> u64 {
        self.flow
    }
}

/// Everything that is still to come out, polled at the times that the link asks for.
#[allow(dead_code, reason = "not all tests drive links to the end")]
pub fn drain(link: &mut Link<Probe>) -> Vec<(Time, Probe)> {
    let mut out = Vec::new();
    while let Some(at) = link.next_event() {
        while let Some(arrival) = link.poll(at) {
            out.push(arrival);
        }
    }
    out
}
