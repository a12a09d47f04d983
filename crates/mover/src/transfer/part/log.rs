//! The journal as a file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::transfer::journal::{HEADER, Header, RECORD, Record, Replay, Replayed, Seal};

/// Records read at once.
const BATCH: usize = 1024;

/// An open journal that can be appended to.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) file: File,
    header: Header,
    seal: Seal,
    /// Records in it.
    pub(super) records: u64,
    /// The first of them, which are on the medium with what they speak of.
    pub(super) synced: u64,
}

impl Log {
    /// Makes `file` the journal `header`, whatever it was.
    pub(super) fn begin(file: File, header: Header) -> io::Result<Self> {
        // Not half of the old and half of the new, should we end here.
        file.set_len(0)?;
        file.write_all_at(&header.encode(), 0)?;
        Ok(Log { file, header, seal: header.seal(), records: 0, synced: 0 })
    }

    /// Goes on after the sound records of `file`.
    pub(super) fn resume(file: File, header: Header, replayed: &Replayed) -> io::Result<Self> {
        let Replayed { records, synced, .. } = *replayed;
        let log = Log { file, header, seal: header.seal(), records, synced };
        // What is behind the sound ones must not become part of the journal again.
        if log.file.metadata()?.len() != log.length() {
            log.file.set_len(log.length())?;
        }
        Ok(log)
    }

    /// Bytes of the journal.
    fn length(&self) -> u64 {
        HEADER as u64 + self.records * RECORD as u64
    }

    /// Appends all of `records` in one write. If it fails, none of them counts.
    pub(super) fn append(&mut self, records: &[Record]) -> io::Result<()> {
        let encode = |(number, record): (u64, &Record)| record.encode(self.seal, number);
        let bytes: Vec<[u8; RECORD]> = (self.records..).zip(records).map(encode).collect();
        if let Err(error) = self.file.write_all_at(bytes.as_flattened(), self.length()) {
            // The next append overwrites what is there of them, if they cannot be cut off.
            let _ = self.file.set_len(self.length());
            return Err(error);
        }
        self.records += records.len() as u64;
        Ok(())
    }

    /// Notes that the first `records` and what they speak of are on the medium.
    pub(super) fn note_synced(&mut self, records: u64) -> io::Result<()> {
        let is_last = records == self.records;
        self.append(&[Record::Synced { records }])?;
        self.synced = if is_last { self.records } else { records };
        Ok(())
    }

    /// Forgets what is not known to be on the medium.
    pub(super) fn roll_back(&mut self) -> io::Result<()> {
        self.records = self.synced;
        self.file.set_len(self.length())?;
        self.append(&[Record::Synced { records: self.synced }])
    }

    /// Whether the file is what was written here and nothing else.
    pub(super) fn is_untouched(&self) -> io::Result<bool> {
        Ok(read_header(&self.file)? == Some(self.header)
            && self.file.metadata()?.len() == self.length())
    }
}

/// The header of the journal `file`; `None` if it has none that is sound.
pub(super) fn read_header(file: &File) -> io::Result<Option<Header>> {
    let mut bytes = [0; HEADER];
    let length = read_full_at(file, &mut bytes, 0)?;
    Ok(Header::decode(&bytes[..length]))
}

/// The records of the journal `file`, whose header is `header`: [`Replay::finish`].
pub(super) fn read(file: &File, header: Header, believed: bool) -> io::Result<Replayed> {
    let mut replay = Replay::new(header);
    let mut bytes = vec![0; BATCH * RECORD];
    let mut offset = HEADER as u64;
    loop {
        let length = read_full_at(file, &mut bytes, offset)?;
        let (records, _) = bytes[..length].as_chunks();
        let sound = records.iter().all(|record| replay.take(record));
        if !sound || length < bytes.len() {
            return Ok(replay.finish(&header.identity, believed));
        }
        offset += length as u64;
    }
}

/// Reads until `buffer` is full or the file ends.
fn read_full_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match file.read_at(&mut buffer[length..], offset + length as u64) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Timestamp;
    use crate::transfer::journal::{Epoch, FileId, Identity, Origin};
    use crate::transfer::tree_hash::{CHUNK, Node};

    #[test]
    fn what_did_not_get_to_the_medium_is_taken_back() {
        let modified = Timestamp::default();
        let (size, origin) = (5000 * CHUNK, Origin::default());
        let identity = Identity { size, modified, origin, sparse: false, verify: true };
        let (part, epoch) = (FileId::default(), Epoch { boot: [1; 16], mount: (2, 3) });
        let header = Header { identity, name: [0; 32], epoch, part, nonce: [0; 8] };
        let chunk = |index| Record::Proved(Node::chunk(index, [7; 32]));
        let file = tempfile::tempfile().unwrap();
        let mut log = Log::begin(file.try_clone().unwrap(), header).unwrap();
        let synced: Vec<Record> = (0..3000).map(chunk).collect();
        log.append(&synced).unwrap();
        log.note_synced(3000).unwrap();
        log.append(&(3000..3010).map(chunk).collect::<Vec<_>>()).unwrap();
        let read = || {
            let header = read_header(&file).unwrap().unwrap();
            let replayed = super::read(&file, header, true).unwrap();
            let first = |tree: &crate::transfer::tree_hash::ChunkTree| {
                tree.nodes().first().and_then(|node| node.chunks()).map(|chunks| chunks.start)
            };
            let sure = replayed.sure.missing().next().map(|gap| gap.start);
            (sure, first(&replayed.claims), replayed.records)
        };
        assert_eq!(read(), (Some(3000), Some(3000), 3011));
        assert!(log.is_untouched().unwrap());
        log.roll_back().unwrap();
        assert_eq!(read(), (Some(3000), None, 3002));
        assert!(log.is_untouched().unwrap());
    }
}
