//! A block device in memory: a medium, and a volatile cache above it.
//!
//! A write is in the cache when it is answered and on the medium when a flush that came after it has
//! been answered, as the block layer has it. Power that fails takes any of the writes that no flush
//! covers, whole or in part, in any order.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use farhaul_base::Rng;

use crate::tree::is_content;

/// What is stored is kept in blocks of this many bytes.
pub const BLOCK: usize = 4096;
/// A write may be torn between sectors of this many bytes.
const SECTOR: usize = 512;

type Block = Arc<[u8; BLOCK]>;
type Blocks = HashMap<u64, Block>;

/// What a disk holds at one moment. Blocks that are not there are zeros.
#[derive(Clone, Debug, Default)]
pub struct Image(Blocks);

/// What the disk is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Writing content of files, as [`is_content`] knows it.
    WriteContent,
    /// Writing anything else: what the file system keeps for itself.
    WriteOther,
    /// Waiting until all that was written is on the medium.
    Flush,
}

/// How a request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The medium cannot be written (EIO).
    Io,
    /// A pool that the disk takes its blocks from is used up (ENOSPC).
    NoSpace,
}

/// Requests that fail: of those that are one of `operations`, `skip` pass and the next `count` fail.
#[derive(Clone, Debug)]
pub struct Fault {
    /// What it concerns.
    pub operations: Vec<Operation>,
    /// Requests that pass first.
    pub skip: u64,
    /// Requests that fail then.
    pub count: u64,
    /// How.
    pub failure: Failure,
}

/// What power takes of the writes that no flush covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// All of them.
    Unflushed,
    /// None: the cache is part of a snapshot.
    Nothing,
    /// Some, chosen by this seed: those from one on, or any, and one may be torn.
    Some(u64),
}

/// The moment at which the disk takes an image, and what of it survives.
#[derive(Clone, Copy, Debug)]
struct Shot {
    /// So many writes have been answered since the disk was made.
    at: u64,
    loss: Loss,
}

#[derive(Clone, Debug)]
struct Write {
    offset: u64,
    /// Zeros if there is none.
    data: Option<Vec<u8>>,
    length: u64,
}

#[derive(Debug, Default)]
struct State {
    /// As who reads it sees it.
    current: Blocks,
    medium: Blocks,
    /// In order; what no flush covers.
    pending: Vec<Write>,
    writes: u64,
    flushes: u64,
    failed: Failed,
    faults: Vec<Fault>,
    /// The pool has so many blocks.
    pool: Option<usize>,
    shot: Option<Shot>,
    taken: Option<Image>,
    /// Writes and flushes are not answered.
    stalled: bool,
}

/// What has happened to a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Writes answered, those that failed not included.
    pub writes: u64,
    /// Flushes answered, likewise.
    pub flushes: u64,
    /// Requests that failed.
    pub failed: Failed,
    /// Blocks that are in use.
    pub blocks: usize,
}

/// Requests that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failed {
    /// Writes of content.
    pub content: u64,
    /// Other writes.
    pub other: u64,
    /// Flushes.
    pub flushes: u64,
}

impl Failed {
    /// All of them.
    pub fn all(self) -> u64 {
        self.content + self.other + self.flushes
    }

    fn count(&mut self, operation: Operation) {
        match operation {
            Operation::WriteContent => self.content += 1,
            Operation::WriteOther => self.other += 1,
            Operation::Flush => self.flushes += 1,
        }
    }
}

/// A disk. All calls may come from several threads at once.
#[derive(Debug)]
pub struct Disk {
    size: u64,
    state: Mutex<State>,
    /// A write has been answered.
    written: Condvar,
    /// The disk answers again.
    answers: Condvar,
}

impl Disk {
    /// An empty disk of `size` bytes, a multiple of [`BLOCK`].
    pub fn new(size: u64) -> Arc<Disk> {
        assert!(size.is_multiple_of(BLOCK as u64), "whole blocks");
        Arc::new(Disk {
            size,
            state: Mutex::default(),
            written: Condvar::new(),
            answers: Condvar::new(),
        })
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Once the disk answers.
    fn lock_answering(&self) -> MutexGuard<'_, State> {
        let waited = self.answers.wait_while(self.lock(), |state| state.stalled);
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on no write and no flush is answered, until [`Disk::answer`] or [`Disk::mend`].
    pub fn stall(&self) {
        self.lock().stalled = true;
    }

    /// The disk answers again, what waits first.
    pub fn answer(&self) {
        self.lock().stalled = false;
        self.answers.notify_all();
    }

    /// Reads from `offset` until `out` is full or the disk ends; tells how much.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> usize {
        let length = (self.size.saturating_sub(offset)).min(out.len() as u64) as usize;
        let state = self.lock();
        read(&state.current, offset, &mut out[..length]);
        length
    }

    /// Writes, or fails.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), Failure> {
        let write = Write { offset, length: data.len() as u64, data: Some(data.to_vec()) };
        let content = contents(offset, data);
        self.take(write, if content { Operation::WriteContent } else { Operation::WriteOther })
    }

    /// Makes a range zeros: a discard.
    pub fn discard(&self, offset: u64, length: u64) -> Result<(), Failure> {
        self.take(Write { offset, data: None, length }, Operation::WriteOther)
    }

    fn take(&self, write: Write, operation: Operation) -> Result<(), Failure> {
        if write.offset.checked_add(write.length).is_none_or(|end| end > self.size) {
            return Err(Failure::NoSpace);
        }
        let mut state = self.lock_answering();
        state.meet(operation)?;
        if let (Some(pool), true) = (state.pool, write.data.is_some()) {
            let fresh = blocks_of(&write).filter(|block| !state.current.contains_key(block));
            if state.current.len() + fresh.count() > pool {
                state.failed.count(operation);
                return Err(Failure::NoSpace);
            }
        }
        put(&mut state.current, &write);
        state.pending.push(write);
        state.writes += 1;
        if let Some(shot) = state.shot.filter(|shot| state.writes >= shot.at) {
            state.taken = Some(state.image(shot.loss));
            state.shot = None;
        }
        drop(state);
        self.written.notify_all();
        Ok(())
    }

    /// Puts all that was written before on the medium, or fails and changes nothing.
    pub fn flush(&self) -> Result<(), Failure> {
        let mut state = self.lock_answering();
        state.meet(Operation::Flush)?;
        let State { medium, pending, flushes, .. } = &mut *state;
        for write in pending.drain(..) {
            put(medium, &write);
        }
        *flushes += 1;
        Ok(())
    }

    /// Has requests fail, besides those that fail already.
    pub fn inject(&self, fault: Fault) {
        self.lock().faults.push(fault);
    }

    /// Nothing fails any more, everything is answered, and there is no pool.
    pub fn mend(&self) {
        let mut state = self.lock();
        state.faults.clear();
        state.pool = None;
        drop(state);
        self.answer();
    }

    /// The disk takes its blocks from a pool that has so many beyond those in use.
    pub fn limit(&self, blocks: usize) {
        let mut state = self.lock();
        state.pool = Some(state.current.len() + blocks);
    }

    /// What has happened so far.
    pub fn counts(&self) -> Counts {
        let state = self.lock();
        let State { writes, flushes, failed, .. } = *state;
        Counts { writes, flushes, failed, blocks: state.current.len() }
    }

    /// What the disk holds, or would after losing power at this moment.
    pub fn image(&self, loss: Loss) -> Image {
        self.lock().image(loss)
    }

    /// Takes such an image as soon as `writes` more have been answered: [`Disk::taken`] has it.
    pub fn arm(&self, writes: u64, loss: Loss) {
        let mut state = self.lock();
        let at = state.writes + writes.max(1);
        state.shot = Some(Shot { at, loss });
        state.taken = None;
    }

    /// The image that [`Disk::arm`] asked for. None will be taken after this.
    pub fn taken(&self) -> Option<Image> {
        let mut state = self.lock();
        state.shot = None;
        state.taken.take()
    }

    /// Waits until an armed image has been taken, but no longer than `limit`.
    pub fn wait_taken(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut state = self.lock();
        while state.taken.is_none() {
            let Some(rest) = until.checked_duration_since(Instant::now()) else { return false };
            let waited = self.written.wait_timeout(state, rest);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Replaces everything; the cache is empty then.
    pub fn load(&self, image: Image) {
        let mut state = self.lock();
        state.medium = image.0.clone();
        state.current = image.0;
        state.pending.clear();
    }
}

impl State {
    fn meet(&mut self, operation: Operation) -> Result<(), Failure> {
        for fault in &mut self.faults {
            if !fault.operations.contains(&operation) {
                continue;
            }
            if fault.skip > 0 {
                fault.skip -= 1;
            } else if fault.count > 0 {
                fault.count -= 1;
                self.failed.count(operation);
                return Err(fault.failure);
            }
        }
        Ok(())
    }

    fn image(&self, loss: Loss) -> Image {
        let seed = match loss {
            Loss::Nothing => return Image(self.current.clone()),
            Loss::Unflushed => return Image(self.medium.clone()),
            Loss::Some(seed) => seed,
        };
        let mut rng = Rng::new(seed);
        let mut blocks = self.medium.clone();
        // All of it up to a moment, or as a cache that sorts would have left it.
        let end = rng.below(self.pending.len() as u64 + 1) as usize;
        let kept = if rng.chance(0.5) { 1.0 } else { rng.unit() };
        for (number, write) in self.pending.iter().enumerate() {
            let within = number < end || kept < 1.0;
            if within && rng.chance(kept) {
                put(&mut blocks, write);
            } else if number == end
                && let Some(data) = &write.data
            {
                let sectors = rng.below((data.len() / SECTOR) as u64 + 1) as usize;
                let torn = data[..sectors * SECTOR].to_vec();
                let length = torn.len() as u64;
                put(&mut blocks, &Write { offset: write.offset, data: Some(torn), length });
            }
        }
        Image(blocks)
    }
}

/// Whether a write has content of files.
fn contents(offset: u64, data: &[u8]) -> bool {
    let first = (BLOCK - (offset as usize % BLOCK)) % BLOCK;
    data.get(first..).is_some_and(|blocks| blocks.chunks(BLOCK).any(is_content))
}

fn blocks_of(write: &Write) -> std::ops::Range<u64> {
    write.offset / BLOCK as u64..(write.offset + write.length).div_ceil(BLOCK as u64)
}

fn put(blocks: &mut Blocks, write: &Write) {
    for number in blocks_of(write) {
        let start = number * BLOCK as u64;
        let from = write.offset.max(start);
        let to = (write.offset + write.length).min(start + BLOCK as u64);
        let place = (from - start) as usize..(to - start) as usize;
        match &write.data {
            None if place.len() == BLOCK => drop(blocks.remove(&number)),
            None => {
                if let Some(block) = blocks.get_mut(&number) {
                    Arc::make_mut(block)[place].fill(0);
                }
            }
            Some(data) => {
                let block = blocks.entry(number).or_insert_with(|| Arc::new([0; BLOCK]));
                let data = &data[(from - write.offset) as usize..(to - write.offset) as usize];
                Arc::make_mut(block)[place].copy_from_slice(data);
            }
        }
    }
}

fn read(blocks: &Blocks, offset: u64, out: &mut [u8]) {
    let mut at = 0;
    while at < out.len() {
        let number = (offset + at as u64) / BLOCK as u64;
        let within = (offset + at as u64) as usize % BLOCK;
        let length = (BLOCK - within).min(out.len() - at);
        let piece = &mut out[at..at + length];
        match blocks.get(&number) {
            Some(block) => piece.copy_from_slice(&block[within..within + length]),
            None => piece.fill(0),
        }
        at += length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Operation; 3] = [Operation::WriteContent, Operation::WriteOther, Operation::Flush];

    fn at(image: &Image, offset: u64, length: usize) -> Vec<u8> {
        let mut out = vec![0; length];
        read(&image.0, offset, &mut out);
        out
    }

    #[test]
    fn what_no_flush_covers_is_lost_with_power() {
        let disk = Disk::new(1 << 20);
        disk.write(100, &[1; 5000]).unwrap();
        disk.flush().unwrap();
        disk.write(200, &[2; 8192]).unwrap();
        disk.discard(0, 150).unwrap();
        let expected = |from: usize, to: usize| (from..to).map(|at| u8::from(at >= 100));
        let image = disk.image(Loss::Unflushed);
        assert!(at(&image, 0, 5100).into_iter().eq(expected(0, 5100)));
        let image = disk.image(Loss::Nothing);
        assert_eq!(at(&image, 149, 52), [vec![0], vec![1; 50], vec![2]].concat());
        let mut read = vec![9; 10];
        assert_eq!(disk.read((1 << 20) - 4, &mut read), 4);
        disk.load(disk.image(Loss::Unflushed));
        assert_eq!(disk.read(0, &mut read), 10);
        assert_eq!(read, [0; 10]);
    }

    #[test]
    fn some_writes_survive_and_one_may_be_torn() {
        let disk = Disk::new(1 << 20);
        for block in 0..16 {
            disk.write(block * 4096, &[7; 4096]).unwrap();
        }
        let of = |seed| at(&disk.image(Loss::Some(seed)), 0, 16 * 4096);
        assert_eq!(of(5), of(5), "a seed says it all");
        let images: Vec<_> = (0..200).map(of).collect();
        let whole = |sector: &[u8]| sector.iter().all(|byte| *byte == sector[0]);
        assert!(images.iter().all(|image| image.chunks(SECTOR).all(whole)));
        let torn = |image: &Vec<u8>| !image.chunks(BLOCK).all(whole);
        let gaps = |image: &Vec<u8>| {
            let there = |number: usize| image[number * BLOCK] == 7;
            (1..16).any(|number| there(number) && !there(number - 1))
        };
        assert!(images.iter().any(torn) && images.iter().any(gaps));
        assert!(images.iter().any(|image| image.iter().all(|byte| *byte == 0)));
        assert!(images.iter().any(|image| image.iter().all(|byte| *byte == 7)));
    }

    #[test]
    fn the_requests_that_are_named_fail() {
        let disk = Disk::new(1 << 20);
        let operations = vec![Operation::Flush];
        disk.inject(Fault { operations, skip: 1, count: 2, failure: Failure::Io });
        disk.write(0, &[1; 512]).unwrap();
        let flushes = [(); 4].map(|()| disk.flush().is_ok());
        assert_eq!(flushes, [true, false, false, true]);
        disk.inject(Fault { operations: ALL.into(), skip: 0, count: 9, failure: Failure::NoSpace });
        assert_eq!(disk.write(0, &[2; 512]), Err(Failure::NoSpace));
        assert_eq!(at(&disk.image(Loss::Nothing), 0, 1), [1], "nothing of it is there");
        disk.mend();
        disk.write(0, &[2; 512]).unwrap();
        let Counts { writes, flushes, failed, blocks } = disk.counts();
        assert_eq!((writes, flushes, blocks), (2, 2, 1));
        assert_eq!(failed, Failed { content: 0, other: 1, flushes: 2 });
    }

    #[test]
    fn a_pool_that_is_used_up_takes_nothing_new() {
        let disk = Disk::new(1 << 20);
        disk.write(0, &[1; 4096]).unwrap();
        disk.limit(1);
        disk.write(8192, &[1; 4096]).unwrap();
        assert_eq!(disk.write(4096, &[1; 4096]), Err(Failure::NoSpace));
        disk.write(0, &[3; 4096]).unwrap();
        disk.discard(8192, 4096).unwrap();
        disk.write(4096, &[1; 4096]).unwrap();
        disk.limit(10);
        disk.write(65536, &[1; 40960]).unwrap();
    }

    #[test]
    fn an_image_is_taken_at_the_write_that_was_named() {
        let disk = Disk::new(1 << 20);
        disk.arm(3, Loss::Nothing);
        assert!(disk.taken().is_none());
        disk.arm(3, Loss::Nothing);
        for block in 0..5 {
            disk.write(block * 4096, &[1; 4096]).unwrap();
        }
        assert!(disk.wait_taken(Duration::ZERO));
        assert_eq!(disk.taken().map(|image| image.0.len()), Some(3));
    }
}
