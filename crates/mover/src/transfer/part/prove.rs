//! Reading again what a journal claims.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::{PartFile, Standing, State};
use crate::transfer::journal::{Identity, Record};
use crate::transfer::medium::{Medium, Room};
use crate::transfer::place;
use crate::transfer::tree_hash::{CHUNK, ChunkTree, Node, ZEROS, leaf};

/// About so many chunks are looked at in one go, so that others have their turn.
const STEP: u64 = 64;

/// What came of a look at some of the claims.
#[derive(Debug, Default)]
pub struct Proof {
    /// Chunks that were not what the journal says, in order: they are missing now.
    pub lost: Vec<Range<u64>>,
    /// Bytes of them.
    pub lost_bytes: u64,
    /// Bytes that are what the journal says.
    pub held: u64,
    /// There are more claims, and no other thread looks at them.
    pub more: bool,
}

impl PartFile {
    /// Reads some of what the journal claims from the medium, past the cache: what holds is there from
    /// now on, and what does not, or cannot be read, is missing, and the journal says so.
    ///
    /// To be called until there is no [more](Proof::more); one thread at a time looks, and it may be any.
    /// Others write meanwhile. An error means that the file cannot be used; one of kind
    /// [`WouldBlock`](io::ErrorKind::WouldBlock), that it was [let go](Self::unlock) of.
    pub fn prove(&self) -> io::Result<Proof> {
        let mut state = self.lock();
        state.check()?;
        if state.proving || state.unproved.is_empty() {
            return Ok(Proof::default());
        }
        state.proving = true;
        let nodes = some(&state.unproved);
        let (identity, generation) = (state.identity, state.generation);
        let (medium, file) = (state.medium.clone(), Arc::clone(&state.file));
        drop(state);
        let looked: io::Result<_> = (|| {
            let medium = match medium {
                Some(medium) => medium,
                None => self.medium(&file)?,
            };
            let mut room = Room::new();
            let mut hold = Vec::with_capacity(nodes.len());
            for node in &nodes {
                hold.push(holds(&medium, &file, &mut room, &identity, node)?);
            }
            Ok((medium, hold))
        })();
        let mut state = self.lock();
        if state.generation != generation {
            return Ok(Proof::default()); // it was begun anew meanwhile
        }
        state.proving = false;
        let (medium, hold) = looked?;
        // Before anything is noted: another transfer may have the file by now.
        state.check()?;
        let noted = state.note(&nodes, &hold);
        match noted {
            Ok(proof) => {
                state.medium = proof.more.then_some(medium);
                Ok(proof)
            }
            Err(error) => {
                state.standing = Standing::Failed;
                Err(error)
            }
        }
    }

    /// Takes claims among `nodes` for lost: they are missing from now on. To be called before the first
    /// [look](Self::prove).
    pub fn forget(&self, nodes: &[Node]) -> io::Result<()> {
        let mut state = self.lock();
        state.check()?;
        let claimed = |node: &&Node| {
            node.chunks().is_some_and(|chunks| state.unproved.contains(chunks.start))
        };
        let claimed: Vec<Node> = nodes.iter().filter(claimed).copied().collect();
        let hold = vec![false; claimed.len()];
        state.note(&claimed, &hold).map(drop)
    }

    /// The partial file, to be read past the cache.
    fn medium(&self, file: &std::fs::File) -> io::Result<Arc<Medium>> {
        let medium = Medium::open(&self.names.directory, self.names.part.as_bytes())?;
        medium.flush();
        match medium.is(file)? {
            true => Ok(Arc::new(medium)),
            false => Err(io::Error::other("another program removed or replaced the partial file")),
        }
    }
}

impl State {
    /// Takes in what became of claims.
    fn note(&mut self, nodes: &[Node], hold: &[bool]) -> io::Result<Proof> {
        let mut proof = Proof::default();
        let before = self.unproved.present_bytes();
        let mut held = self.identity.tree();
        for (node, holds) in nodes.iter().zip(hold) {
            let chunks = self.tree.place(node).map_err(io::Error::other)?;
            if *holds {
                let _ = held.insert_node(*node);
                continue;
            }
            match proof.lost.last_mut() {
                Some(last) if last.end == chunks.start => last.end = chunks.end,
                _ => proof.lost.push(chunks),
            }
        }
        let record = |range: &Range<u64>| Record::Lost {
            first: range.start,
            count: range.end - range.start,
        };
        let records: Vec<Record> = proof.lost.iter().map(record).collect();
        self.log.append(&records)?;
        for (node, holds) in nodes.iter().zip(hold) {
            self.unproved.remove(node.chunks().unwrap_or_default());
            if *holds {
                let _ = self.tree.insert_node(*node); // the two trees are disjoint
            }
        }
        proof.held = held.present_bytes();
        let gone = before.wrapping_sub(self.unproved.present_bytes());
        proof.lost_bytes = gone.wrapping_sub(proof.held);
        proof.more = !self.unproved.is_empty();
        Ok(proof)
    }
}

/// The first of some claims.
fn some(claims: &ChunkTree) -> Vec<Node> {
    let mut chunks = 0;
    let more = |node: &Node| {
        let before = chunks;
        // Zeros cost nothing, however many.
        chunks += if node.cv == ZEROS { 1 } else { 1 << node.level };
        before < STEP
    };
    claims.each_node().take_while(more).collect()
}

/// Whether the medium has the content of `node`, of which nothing but a claim is known; zeros are made.
/// What cannot be read does not hold.
fn holds(
    medium: &Medium,
    file: &std::fs::File,
    room: &mut Room,
    identity: &Identity,
    node: &Node,
) -> io::Result<bool> {
    let mut read = identity.tree();
    let Ok(chunks) = read.place(node) else { return Ok(false) };
    if node.cv == ZEROS && identity.sparse {
        place::punch(file, chunks.start * CHUNK, (chunks.end * CHUNK).min(identity.size))?;
        return Ok(true);
    }
    let mut at = chunks.start;
    while at < chunks.end {
        let offset = at * CHUNK;
        if identity.sparse {
            let data = place::next_data(medium.file(), offset, identity.size);
            let zeros =
                if data >= identity.size { chunks.end } else { data / CHUNK }.min(chunks.end);
            if zeros > at {
                let _ = read.insert_zeros(at, zeros - at);
                at = zeros;
                continue;
            }
        }
        let Ok(data) = medium.read(room, offset, read.chunk_length(at) as usize) else {
            return Ok(false);
        };
        read.insert(at, leaf(identity.size, identity.sparse, at, data));
        at += 1;
    }
    Ok(read.each_node().eq([*node]))
}
