//! stub
/// stub
pub const CHUNK: u64 = 1 << 20;
/// stub
pub type Cv = [u8; 32];
/// stub
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Node {
    /// l
    pub level: u8,
    /// i
    pub index: u64,
    /// c
    pub cv: Cv,
}
