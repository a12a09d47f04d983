//! What an endpoint hands to the network.

use core::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use std::sync::Arc;

use bytes::Bytes;
use farhaul_wire::HEADER_LEN;

use crate::frames::Memory;

/// Datagrams for one destination, all of one size but for a last shorter one, so that they map to
/// one segmentation-offload call. Payloads are held by reference.
///
/// A value is filled by [`Endpoint::poll_transmit`](crate::Endpoint::poll_transmit) and reused:
/// once its vectors have grown, filling it allocates nothing.
#[derive(Debug)]
pub struct Transmit {
    to: SocketAddr,
    headers: Vec<[u8; HEADER_LEN]>,
    pieces: Vec<Piece>,
    /// The blocks that the pieces lie in, each cloned once a run of pieces.
    blocks: Vec<Block>,
    /// The run whose block is to follow: the block's running number, and the run's first piece.
    open: Option<(u32, usize)>,
    /// Bodies of control packets.
    control: Vec<u8>,
    segment_size: usize,
    len: usize,
}

/// The payload of one datagram.
#[derive(Clone, Copy, Debug)]
struct Piece {
    source: Source,
    start: u32,
    len: u32,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    Control,
    /// The header is in `headers`.
    Block(u32),
    /// The header lies before the payload.
    Frame(u32),
}

/// What payload lies in.
#[derive(Clone, Debug)]
pub(crate) enum Block {
    Bytes(Bytes),
    Frames(Arc<dyn Memory>),
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        match self {
            Block::Bytes(bytes) => bytes,
            Block::Frames(memory) => (**memory).as_ref(),
        }
    }
}

impl Transmit {
    /// An empty one, to be filled.
    pub fn new() -> Self {
        Transmit {
            to: SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)),
            headers: Vec::new(),
            pieces: Vec::new(),
            blocks: Vec::new(),
            open: None,
            control: Vec::new(),
            segment_size: 0,
            len: 0,
        }
    }

    /// Where the datagrams go.
    pub fn to(&self) -> SocketAddr {
        self.to
    }

    /// How many datagrams.
    pub fn segments(&self) -> usize {
        self.headers.len()
    }

    /// Bytes of each datagram but the last, which may be shorter.
    pub fn segment_size(&self) -> usize {
        self.segment_size
    }

    /// Bytes in all.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.headers.is_empty()
    }

    /// Each datagram as header and payload. Packets of [`Frames`](crate::Frames) that follow each
    /// other lie in memory one behind the other.
    pub fn datagrams(&self) -> impl Iterator<Item = (&[u8; HEADER_LEN], &[u8])> {
        self.headers.iter().zip(&self.pieces).map(|(header, piece)| {
            let (start, len) = (piece.start as usize, piece.len as usize);
            match piece.source {
                Source::Control => (header, &self.control[start..start + len]),
                Source::Block(block) => {
                    (header, &self.blocks[block as usize].as_ref()[start..start + len])
                }
                Source::Frame(block) => {
                    let frame = &self.blocks[block as usize].as_ref()[start - HEADER_LEN..];
                    match frame.split_first_chunk() {
                        Some((header, payload)) => (header, &payload[..len]),
                        None => (header, &[][..]),
                    }
                }
            }
        })
    }

    /// Each datagram as header and payload, the payload by reference where the sender holds it so.
    pub fn packets(&self) -> impl Iterator<Item = ([u8; HEADER_LEN], Bytes)> {
        self.headers.iter().zip(&self.pieces).map(|(header, piece)| {
            let range = piece.start as usize..(piece.start + piece.len) as usize;
            let copy = |bytes: &[u8]| Bytes::copy_from_slice(bytes);
            let payload = match piece.source {
                Source::Control => copy(&self.control[range]),
                Source::Block(block) | Source::Frame(block) => match &self.blocks[block as usize] {
                    Block::Bytes(bytes) => bytes.slice(range),
                    Block::Frames(memory) => copy(&(**memory).as_ref()[range]),
                },
            };
            (*header, payload)
        })
    }

    pub(crate) fn clear(&mut self, to: SocketAddr) {
        self.to = to;
        self.headers.clear();
        self.pieces.clear();
        self.blocks.clear();
        self.open = None;
        self.control.clear();
        self.segment_size = 0;
        self.len = 0;
    }

    /// Whether a datagram with `payload` bytes may follow what is here.
    pub(crate) fn fits(&self, payload: usize) -> bool {
        let size = HEADER_LEN + payload;
        // The last one here must be full for another to follow.
        self.headers.is_empty()
            || (size <= self.segment_size && self.len == self.segment_size * self.headers.len())
    }

    /// The running number of the block that the packets before lie in, while it is not cloned.
    pub(crate) fn open_block(&self) -> Option<u32> {
        self.open.map(|(number, _)| number)
    }

    /// Adds a data packet with the bytes `start .. start + len` of block `number`, which is given to
    /// [`Transmit::close_block`] after the last packet in it.
    pub(crate) fn push_data(
        &mut self,
        header: [u8; HEADER_LEN],
        number: u32,
        start: u32,
        len: u32,
    ) {
        self.open.get_or_insert((number, self.pieces.len()));
        let source = Source::Block(self.blocks.len() as u32);
        self.push(header, Piece { source, start, len });
    }

    /// Gives the block that the last packets lie in. In frames their headers are written, unless an
    /// earlier run, which holds the block, would see it.
    pub(crate) fn close_block(&mut self, block: &mut Block) {
        let Some((_, first)) = self.open.take() else { return };
        if let Block::Frames(memory) = block
            && let Some(memory) = Arc::get_mut(memory)
        {
            let memory = memory.as_mut();
            for (header, piece) in self.headers[first..].iter().zip(&mut self.pieces[first..]) {
                let start = piece.start as usize;
                memory[start - HEADER_LEN..start].copy_from_slice(header);
                piece.source = Source::Frame(self.blocks.len() as u32);
            }
        }
        self.blocks.push(block.clone());
    }

    /// Adds a control packet, given whole.
    pub(crate) fn push_control(&mut self, packet: &[u8]) {
        let Some((header, body)) = packet.split_first_chunk() else { return };
        let start = self.control.len() as u32;
        self.control.extend_from_slice(body);
        self.push(*header, Piece { source: Source::Control, start, len: body.len() as u32 });
    }

    fn push(&mut self, header: [u8; HEADER_LEN], piece: Piece) {
        let size = HEADER_LEN + piece.len as usize;
        if self.headers.is_empty() {
            self.segment_size = size;
        }
        self.len += size;
        self.headers.push(header);
        self.pieces.push(piece);
    }
}

impl Default for Transmit {
    fn default() -> Self {
        Transmit::new()
    }
}
