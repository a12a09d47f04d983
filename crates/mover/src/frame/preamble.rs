//! The first bytes in each direction.

/// The first bytes in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preamble {
    /// The protocol version that this side speaks.
    pub version: u16,
    /// What this side is going to do.
    pub role: Role,
}

impl Preamble {
    /// Its length in bytes.
    pub const SIZE: usize = 16;
    /// The high bit in the first byte keeps text protocols from ever matching.
    const MAGIC: [u8; 8] = *b"\xffARHAULM";

    /// The preamble's bytes.
    pub fn encode(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..8].copy_from_slice(&Self::MAGIC);
        bytes[8..10].copy_from_slice(&self.version.to_be_bytes());
        bytes[10] = self.role as u8;
        bytes
    }

    /// Reads a preamble; `None` when these are not the first bytes of this protocol. The last five
    /// bytes are left to later versions and not looked at.
    pub fn decode(bytes: [u8; Self::SIZE]) -> Option<Self> {
        let role = match bytes[10] {
            0 => Role::Sender,
            1 => Role::Receiver,
            _ => return None,
        };
        let version = u16::from_be_bytes([bytes[8], bytes[9]]);
        bytes.starts_with(&Self::MAGIC).then_some(Preamble { version, role })
    }
}

/// A side of the transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It sends files.
    Sender = 0,
    /// It stores them.
    Receiver = 1,
}
