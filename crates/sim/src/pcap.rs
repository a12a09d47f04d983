//! What passes at a node, as a capture file for Wireshark and tcpdump.

mod frame;

use std::io::{self, Write};

use farhaul_base::names::suggestion;
use farhaul_link::Packet as _;

use crate::network::NodeId;
use crate::observer::{Event, EventKind, Observer};
use crate::output::Output;
use crate::scenario::Scenario;

use frame::Frames;

/// Classic libpcap with nanoseconds.
const MAGIC: u32 = 0xa1b2_3c4d;
const VERSION: [u16; 2] = [2, 4];
/// Frames are IP packets.
const LINKTYPE_RAW: u32 = 101;

/// Writes what passes at a node to a capture file: what its agents send, before any queue of the
/// node, and what comes out of the links that lead there. What goes on from there is seen once, as
/// it comes.
///
/// The n-th agent has the address 10.0.0.0 + n, as UDT's handshakes say; flow n is from agent 2n to
/// agent 2n + 1. UDT is on UDP port 9000, TCP on 5001 at the receiver, the ports of senders beginning
/// at 10000; constant rates are UDP to port 9 (discard). What the models do not have is made up:
/// payload of TCP and constant rates is zeros, TCP's numbers begin at 0, its senders' window is
/// 65535 bytes, and the ACK that ends the set-up and the FIN of receivers are missing. UDP has no
/// checksum, but a wrong one in datagrams that were damaged, which are zeros besides.
#[derive(Debug)]
pub struct Capture<W> {
    node: NodeId,
    snap_len: u32,
    frames: Frames,
    record: Vec<u8>,
    out: Output<W>,
}

impl<W: Write> Capture<W> {
    /// Bytes of each packet that are enough for headers and UDT's control packets.
    pub const SNAP_LEN: u32 = 96;

    /// At `node` of a simulation that runs `scenario`, of each packet at most `snap_len` bytes.
    /// Buffer `out`: each packet is written on its own.
    pub fn new(scenario: &Scenario, node: NodeId, snap_len: u32, out: W) -> Self {
        let mut record = Vec::new();
        record.extend(MAGIC.to_le_bytes());
        VERSION.iter().for_each(|number| record.extend(number.to_le_bytes()));
        // Time zone, accuracy: always 0.
        [0, 0, snap_len, LINKTYPE_RAW].iter().for_each(|word| record.extend(word.to_le_bytes()));
        let mut out = Output::new(out);
        out.write(&record);
        Capture { node, snap_len, frames: Frames::new(scenario), record, out }
    }

    /// Whether writing has failed. The simulation goes on, and nothing more is written.
    pub fn failed(&self) -> bool {
        self.out.failed()
    }

    /// Writes out what is buffered.
    ///
    /// # Errors
    /// The first failure to write.
    pub fn finish(&mut self) -> io::Result<()> {
        self.out.finish()
    }
}

impl<W: Write + Send> Observer for Capture<W> {
    fn event(&mut self, event: &Event<'_>) {
        let passes = matches!(event.kind, EventKind::Sent | EventKind::Arrived);
        if !passes || event.node != self.node {
            return;
        }
        let nanos = event.at.as_nanos();
        let len = event.packet.wire_len() as u32;
        let stored = len.min(self.snap_len);
        let record = &mut self.record;
        record.clear();
        for word in [(nanos / 1_000_000_000) as u32, (nanos % 1_000_000_000) as u32, stored, len] {
            record.extend(word.to_le_bytes());
        }
        let end = record.len() + stored as usize;
        self.frames.write(record, event.packet, end);
        record.resize(end, 0);
        self.out.write(record);
    }
}

impl Scenario {
    /// A node by its name.
    ///
    /// # Errors
    /// A text that says which nodes there are.
    pub fn node(&self, name: &str) -> Result<NodeId, String> {
        let found = self.nodes.iter().position(|known| known == name);
        found.map(|number| NodeId(number as u32)).ok_or_else(|| {
            let hint = suggestion(name, self.nodes.iter().map(String::as_str));
            format!("no node '{name}'; {hint}")
        })
    }
}
