//! Partial files on file systems of the kernel whose disk fails. A program of its own: it starts others,
//! which for a moment hold the locks of files that are open here.

use std::fs;
use std::sync::Arc;

use farhaul_faults::disk::{Failure, Fault, Loss, Operation};
use farhaul_faults::{FileSystem, Volume, volume};
use farhaul_mover::frame::Timestamp;
use farhaul_mover::name::Name;
use farhaul_mover::transfer::part::{Identity, Origin, PartFile};
use farhaul_mover::transfer::tree_hash::{CHUNK, leaf};
use rustix::fs::{CWD, Mode, OFlags, openat};

#[test]
fn what_is_written_again_after_a_failed_write_back_gets_to_the_medium() {
    if let Some(why) = volume::missing() {
        eprintln!("\nskipped: {why}");
        return;
    }
    // What the disk takes for content; its end is within a page.
    let mut data = b"farhaul content\n".repeat(3 << 16);
    data.truncate(data.len() - 1000);
    let size = data.len() as u64;
    let (modified, origin) = (Timestamp::default(), Origin::default());
    let identity = Identity { size, modified, origin, sparse: false, verify: true };
    for file_system in FileSystem::ALL {
        let mut volume = Volume::new(file_system, "").unwrap();
        let open = || {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let directory = Arc::new(openat(CWD, volume.path(), flags, Mode::empty()).unwrap());
            PartFile::open(directory, Name::new(b"file").unwrap(), identity, false).unwrap().0
        };
        let write = |part: &PartFile| {
            for (index, chunk) in data.chunks(CHUNK as usize).enumerate() {
                let cv = leaf(size, false, index as u64, chunk);
                part.write_chunk(index as u64, chunk, cv).unwrap();
            }
        };
        let part = open();
        write(&part);
        drop(part);
        let operations = vec![Operation::WriteContent];
        let fault = Fault { operations, skip: 0, count: u64::MAX, failure: Failure::NoSpace };
        volume.disk().inject(fault);
        assert!(!volume.write_back(), "{file_system:?}: the disk has refused it");
        volume.disk().mend();
        let part = open();
        part.forget(&part.nodes()).unwrap();
        write(&part);
        assert!(part.finish(|_| Ok(()), false).unwrap().is_none());
        drop(part);
        assert!(volume.write_back(), "{file_system:?}: nothing fails any more");
        volume.replace(volume.disk().image(Loss::Unflushed)).unwrap();
        let read = fs::read(volume.path().join("file")).unwrap();
        let wrong = read.iter().zip(&data).filter(|(read, data)| read != data).count();
        assert_eq!((read.len(), wrong), (data.len(), 0), "{file_system:?}");
    }
}
