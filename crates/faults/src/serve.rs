//! Shows a disk to the kernel as the one file of a FUSE file system, past the kernel's cache.
//!
//! The server's thread touches nothing but the disk's memory, so that whatever waits for the disk, in
//! this process or another, never waits for itself.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, WriteFlags,
};

use crate::disk::{BLOCK, Disk, Failure};

/// What such a file system is called among what is mounted.
pub const SERVED: &str = "farhaul-disk";
/// The file's name.
const NAME: &str = "disk";
/// Its inode; the directory's is 1.
const INODE: u64 = 2;
const FOREVER: Duration = Duration::from_secs(1 << 30);
/// A write of more is several requests, of which each may fail. The kernel allows a mebibyte.
pub(crate) const MAX_REQUEST: u32 = 256 << 10;
/// Modes of fallocate(2) that make a range zeros.
const PUNCH_HOLE: i32 = 2;
const ZERO_RANGE: i32 = 16;

/// A disk that is a file, until this is dropped.
#[derive(Debug)]
pub struct Served {
    session: Option<BackgroundSession>,
    directory: tempfile::TempDir,
}

impl Served {
    /// Shows `disk`. An error means that the machine has no FUSE, or this user no right to mount.
    pub fn new(disk: Arc<Disk>) -> io::Result<Served> {
        let directory = tempfile::Builder::new().prefix("farhaul-disk-").tempdir()?;
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName(SERVED.to_owned())];
        let session = fuser::spawn_mount(Server::new(disk), directory.path(), &config)?;
        Ok(Served { session: Some(session), directory })
    }

    /// The file.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join(NAME)
    }

    /// The directory that it is alone in.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            // A lazy unmount ends the session even if something still has the file open.
            let _ =
                crate::run::quietly("umount", &["-l", &self.directory.path().to_string_lossy()]);
            drop(session);
        }
    }
}

struct Server {
    disk: Arc<Disk>,
    /// The last that has opened the file. What was opened before writes no more: a file system that
    /// was unmounted here lives on while another mount namespace has a copy of the mount, and would
    /// write beneath the one that is mounted next.
    opened: AtomicU64,
}

fn errno(failure: Failure) -> Errno {
    match failure {
        Failure::Io => Errno::EIO,
        Failure::NoSpace => Errno::ENOSPC,
    }
}

impl Server {
    fn new(disk: Arc<Disk>) -> Server {
        Server { disk, opened: AtomicU64::new(0) }
    }

    /// What `handle` asks the disk for, if it is the last that was opened.
    fn ask<T>(
        &self,
        handle: FileHandle,
        request: impl FnOnce(&Disk) -> Result<T, Failure>,
    ) -> Result<T, Errno> {
        match self.opened.load(Ordering::Relaxed) == handle.0 {
            true => request(&self.disk).map_err(errno),
            false => Err(Errno::EIO),
        }
    }

    fn about(&self, inode: INodeNo) -> Option<FileAttr> {
        let (kind, perm, size) = match inode {
            INodeNo::ROOT => (FileType::Directory, 0o700, 0),
            INodeNo(INODE) => (FileType::RegularFile, 0o600, self.disk.size()),
            _ => return None,
        };
        Some(FileAttr {
            ino: inode,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            flags: 0,
            blksize: BLOCK as u32,
        })
    }
}

impl Filesystem for Server {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let refused = |_| io::Error::from(io::ErrorKind::InvalidInput);
        config.set_max_write(MAX_REQUEST).map(drop).map_err(refused)
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.about(INodeNo(INODE)) {
            Some(about) if parent == INodeNo::ROOT && name == NAME => {
                reply.entry(&FOREVER, &about, Generation(0));
            }
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.about(inode) {
            Some(about) => reply.attr(&FOREVER, &about),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let handle = self.opened.fetch_add(1, Ordering::Relaxed) + 1;
        reply.opened(FileHandle(handle), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut data = vec![0; size as usize];
        let length = self.disk.read(offset, &mut data);
        reply.data(&data[..length]);
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.ask(handle, |disk| disk.write(offset, data)) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.ask(handle, Disk::flush) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        if mode & (PUNCH_HOLE | ZERO_RANGE) == 0 {
            return reply.error(Errno::EOPNOTSUPP);
        }
        match self.ask(handle, |disk| disk.discard(offset, length)) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }
}
