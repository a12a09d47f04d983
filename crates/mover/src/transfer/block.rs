//! What a lane carries: blocks, each of a few pieces of files.
//!
//! ```text
//! block   number u64 | pieces u32 | bytes u32 | (piece | data) …
//! piece   entry u64 | offset u64 | length u32 | version and whole u8 | hash [32]
//! ```
//!
//! All big-endian. A block without pieces is the end of the lane. `bytes` is the sum of what follows.

use std::io::{self, Read, Write};

use super::tree_hash::{CHUNK, Cv};

/// The most data in a block, bytes.
pub const MAX_DATA: usize = CHUNK as usize;
/// The most pieces in a block.
pub const MAX_PIECES: usize = 1024;
/// Bytes of a block before its pieces.
pub const BLOCK_HEADER: usize = 16;
/// Bytes of a piece before its data.
pub const PIECE_HEADER: usize = 53;

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The entry.
    pub entry: u64,
    /// Where in the file it begins: a multiple of [`CHUNK`], but for streams.
    pub offset: u64,
    /// How long it is, bytes: up to a chunk.
    pub length: u32,
    /// It is all of the file.
    pub whole: bool,
    /// Of which version of the file it is: how often it has been announced anew, modulo 128.
    pub version: u8,
    /// Of a whole file its digest, else the chunk's chaining value. Zeros without verification.
    pub hash: Cv,
}

/// Why bytes are no block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a block with a bad {0}")]
pub struct BadBlock(&'static str);

impl From<BadBlock> for io::Error {
    fn from(bad: BadBlock) -> Self {
        io::Error::new(io::ErrorKind::InvalidData, bad)
    }
}

/// The front of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its number.
    pub number: u64,
    /// How many pieces; 0 at the end of the lane.
    pub pieces: u32,
    /// Bytes that follow.
    pub bytes: u32,
}

impl Header {
    /// Its bytes.
    pub fn encode(&self) -> [u8; BLOCK_HEADER] {
        let mut out = [0; BLOCK_HEADER];
        out[..8].copy_from_slice(&self.number.to_be_bytes());
        out[8..12].copy_from_slice(&self.pieces.to_be_bytes());
        out[12..].copy_from_slice(&self.bytes.to_be_bytes());
        out
    }

    /// The header that `bytes` are.
    ///
    /// # Errors
    ///
    /// [`BadBlock`]: more pieces or bytes than a block may have, or fewer bytes than its pieces need.
    pub fn decode(bytes: &[u8; BLOCK_HEADER]) -> Result<Self, BadBlock> {
        let number = u64::from_be_bytes(*bytes[..8].first_chunk().expect("eight bytes"));
        let pieces = u32::from_be_bytes(*bytes[8..12].first_chunk().expect("four bytes"));
        let length = u32::from_be_bytes(*bytes[12..].first_chunk().expect("four bytes"));
        let count = pieces as usize;
        if count > MAX_PIECES {
            return Err(BadBlock("number of pieces"));
        }
        let headers = count * PIECE_HEADER;
        if !(headers..=headers + MAX_DATA).contains(&(length as usize))
            || (count == 0 && length > 0)
        {
            return Err(BadBlock("length"));
        }
        Ok(Header { number, pieces, bytes: length })
    }
}

impl Piece {
    /// Its header's bytes.
    pub fn encode(&self) -> [u8; PIECE_HEADER] {
        let mut out = [0; PIECE_HEADER];
        out[..8].copy_from_slice(&self.entry.to_be_bytes());
        out[8..16].copy_from_slice(&self.offset.to_be_bytes());
        out[16..20].copy_from_slice(&self.length.to_be_bytes());
        out[20] = u8::from(self.whole) | self.version << 1;
        out[21..].copy_from_slice(&self.hash);
        out
    }

    /// The piece whose header `bytes` are.
    ///
    /// # Errors
    ///
    /// [`BadBlock`]: an offset beyond what files can have.
    pub fn decode(bytes: &[u8; PIECE_HEADER]) -> Result<Self, BadBlock> {
        let entry = u64::from_be_bytes(*bytes[..8].first_chunk().expect("eight bytes"));
        let offset = u64::from_be_bytes(*bytes[8..16].first_chunk().expect("eight bytes"));
        let length = u32::from_be_bytes(*bytes[16..20].first_chunk().expect("four bytes"));
        let (whole, version) = (bytes[20] & 1 == 1, bytes[20] >> 1);
        if offset > i64::MAX as u64 - MAX_DATA as u64 || (whole && offset > 0) {
            return Err(BadBlock("offset"));
        }
        let hash = *bytes[21..].first_chunk().expect("the rest");
        Ok(Piece { entry, offset, length, whole, version, hash })
    }
}

/// A block being filled, or one that has come: its bytes as they travel, without the header.
#[derive(Debug, Default)]
pub struct Block {
    /// Its number.
    pub number: u64,
    pieces: Vec<Piece>,
    /// As long as the longest so far: to clear and fill it with zeros for each block takes time.
    bytes: Vec<u8>,
    /// How much of that is of this block.
    end: usize,
}

impl Block {
    /// Empties it for other content.
    pub fn clear(&mut self, number: u64) {
        self.number = number;
        self.pieces.clear();
        self.end = 0;
    }

    /// Has room for so many bytes, which may hold anything.
    fn reserve(&mut self, bytes: usize) {
        if self.bytes.len() < bytes {
            self.bytes.resize(bytes, 0);
        }
    }

    /// Its pieces in order.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// How much data still fits.
    pub fn room(&self) -> usize {
        if self.pieces.len() >= MAX_PIECES {
            return 0;
        }
        MAX_DATA - (self.end - self.pieces.len() * PIECE_HEADER)
    }

    /// Adds a piece whose data `fill` puts into a slice of `want` bytes, at most [`Block::room`], which
    /// holds what was there before; it returns how much it put and the piece, whose length is set here. Nothing is added if it fails.
    ///
    /// # Errors
    ///
    /// Those of `fill`.
    pub fn add<E>(
        &mut self,
        want: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(usize, Piece), E>,
    ) -> Result<(), E> {
        debug_assert!(want <= self.room(), "a block has room for what is added");
        let data = self.end + PIECE_HEADER;
        self.reserve(data + want);
        let (length, mut piece) = fill(&mut self.bytes[data..data + want])?;
        piece.length = length as u32;
        self.bytes[self.end..data].copy_from_slice(&piece.encode());
        self.end = data + length;
        self.pieces.push(piece);
        Ok(())
    }

    /// Writes it; without pieces it says that the lane has ended.
    ///
    /// # Errors
    ///
    /// Those of the stream.
    pub fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        let header = Header {
            number: self.number,
            pieces: self.pieces.len() as u32,
            bytes: self.end as u32,
        };
        out.write_all(&header.encode())?;
        out.write_all(&self.bytes[..self.end])
    }

    /// Reads the next block of a lane into this one; false at the lane's end.
    ///
    /// # Errors
    ///
    /// Those of the stream; [`io::ErrorKind::InvalidData`] with [`BadBlock`] for what is no block.
    pub fn read_from(&mut self, stream: &mut impl Read) -> io::Result<bool> {
        let mut header = [0; BLOCK_HEADER];
        stream.read_exact(&mut header)?;
        let header = Header::decode(&header)?;
        self.clear(header.number);
        if header.pieces == 0 {
            return Ok(false);
        }
        let end = header.bytes as usize;
        self.reserve(end);
        stream.read_exact(&mut self.bytes[..end])?;
        self.pieces = pieces(&self.bytes[..end], header.pieces)?;
        self.end = end;
        Ok(true)
    }

    /// The pieces with their data.
    pub fn each(&self) -> impl Iterator<Item = (&Piece, &[u8])> {
        let mut at = 0;
        self.pieces.iter().map(move |piece| {
            let start = at + PIECE_HEADER;
            at = start + piece.length as usize;
            (piece, &self.bytes[start..at])
        })
    }
}

/// The pieces that fill `bytes` exactly.
fn pieces(bytes: &[u8], count: u32) -> Result<Vec<Piece>, BadBlock> {
    let mut rest = bytes;
    let mut pieces = Vec::with_capacity((count as usize).min(MAX_PIECES));
    for _ in 0..count {
        let (header, data) = rest.split_first_chunk().ok_or(BadBlock("length"))?;
        let piece = Piece::decode(header)?;
        rest = data.get(piece.length as usize..).ok_or(BadBlock("piece"))?;
        pieces.push(piece);
    }
    if rest.is_empty() { Ok(pieces) } else { Err(BadBlock("length")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(entry: u64, whole: bool) -> Piece {
        Piece { entry, offset: 0, length: 0, whole, version: 5, hash: [7; 32] }
    }

    fn filled(number: u64, data: &[&[u8]]) -> Block {
        let mut block = Block::default();
        block.clear(number);
        for (entry, data) in data.iter().enumerate() {
            let fill = |room: &mut [u8]| {
                room[..data.len()].copy_from_slice(data);
                Ok::<_, ()>((data.len(), piece(entry as u64, true)))
            };
            block.add(data.len(), fill).unwrap();
        }
        block
    }

    #[test]
    fn blocks_come_back() {
        let block = filled(9, &[b"one", b"", b"three"]);
        let mut bytes = Vec::new();
        block.write_to(&mut bytes).unwrap();
        filled(10, &[]).write_to(&mut bytes).unwrap();
        let (mut read, mut rest) = (Block::default(), &bytes[..]);
        assert!(read.read_from(&mut rest).unwrap());
        assert_eq!(read.number, 9);
        let data: Vec<_> = read.each().map(|(piece, data)| (piece.entry, data)).collect();
        assert_eq!(data, [(0, &b"one"[..]), (1, b""), (2, b"three")]);
        assert!(!read.read_from(&mut rest).unwrap(), "the lane's end");
        assert!(read.read_from(&mut rest).is_err(), "nothing after it");
    }

    #[test]
    fn what_could_not_be_filled_is_not_there() {
        let mut block = filled(0, &[b"x"]);
        let room = block.room();
        assert_eq!(block.add(10, |_| Err("unreadable")), Err("unreadable"));
        block.add(10, |_| Ok::<_, ()>((4, piece(1, false)))).unwrap();
        assert_eq!((block.room(), block.pieces()[1].length), (room - 4, 4));
    }

    #[test]
    fn lengths_that_do_not_fit_are_refused() {
        let mut bytes = Vec::new();
        filled(1, &[b"abc"]).write_to(&mut bytes).unwrap();
        let read = |bytes: &[u8]| Block::default().read_from(&mut &bytes[..]);
        assert!(read(&bytes).is_ok());
        for (at, value) in [(8, 0xff), (11, 2), (12, 0x7f), (15, 1), (35, 200), (24, 0xff)] {
            let mut bad = bytes.clone();
            bad[at] = value;
            assert!(read(&bad).is_err(), "byte {at}");
        }
        for end in 0..bytes.len() {
            assert!(read(&bytes[..end]).is_err());
        }
    }
}
