//! The target directory: everything that a peer can make the receiver write goes through here.
//!
//! Each level of the tree is an open directory, and every call names one checked component
//! relative to it, without following links. Whatever stands in the target before or comes into it
//! meanwhile, no call can reach outside (CWE-22, CWE-59).

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, chmod, fchmod, fstat, fsync, futimens, mkdirat, openat, renameat,
    statat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;

use crate::frame::Attributes;
use crate::inode::{self, Kind};
use crate::name::Name;
use crate::temporary::TemporaryNames;

/// The bits of a mode that are always kept: permissions and sticky.
const PLAIN_MODE: u32 = 0o1777;
/// The set-user-ID and set-group-ID bits, kept only if asked for.
const SET_ID: u32 = 0o6000;
const SET_GROUP_ID: u32 = 0o2000;

/// How entries are stored.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Policy {
    /// Keep set-user-ID and set-group-ID bits.
    pub(crate) keep_set_id: bool,
    /// Wait until everything is on the medium.
    pub(crate) durable: bool,
}

/// The target directory and the way down to the present one.
///
/// When it is dropped, directories still open get their attributes as far as possible.
#[derive(Debug)]
pub(crate) struct Target {
    root: Rc<OwnedFd>,
    levels: Vec<Level>,
    temporary: TemporaryNames,
    policy: Policy,
}

#[derive(Debug)]
struct Level {
    directory: Rc<OwnedFd>,
    attributes: Attributes,
    /// The set-group-ID bit that the directory has here, often inherited: it is the target's
    /// rule for new files and not the sender's to clear.
    set_group_id: u32,
}

/// Gives the owner of the directory `name` all rights, as an earlier transfer may have left it with
/// none. It is reached through a descriptor, and so never through a link.
pub(crate) fn allow_reading(here: &OwnedFd, name: Name<'_>) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = openat(here, name.bytes(), flags, Mode::empty())?;
    let mode = fstat(&directory)?.st_mode & 0o7777;
    let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
    chmod(path, Mode::from_raw_mode(mode | 0o700))?;
    Ok(())
}

impl Target {
    /// Opens `into`, which may be reached through links, and makes it if need be.
    pub(crate) fn open(into: &Path, policy: Policy) -> io::Result<Self> {
        std::fs::create_dir_all(into)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = Rc::new(openat(CWD, into, flags, Mode::empty())?);
        let temporary = TemporaryNames::new();
        Ok(Target { root, levels: Vec::new(), temporary, policy })
    }

    /// How many directories below the target the present one is.
    pub(crate) fn depth(&self) -> usize {
        self.levels.len()
    }

    /// Enters the directory `name`, made if there is none. Anything else of that name, a link to a
    /// directory included, is an error.
    pub(crate) fn enter(&mut self, name: Name<'_>, attributes: Attributes) -> io::Result<()> {
        let here = Rc::clone(self.present());
        match mkdirat(&here, name.bytes(), Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = match openat(&here, name.bytes(), flags, Mode::empty()) {
            Err(Errno::ACCESS) => {
                allow_reading(&here, name)?;
                openat(&here, name.bytes(), flags, Mode::empty())?
            }
            opened => opened?,
        };
        let mode = fstat(&directory)?.st_mode & 0o7777;
        if mode & 0o700 != 0o700 {
            // One that an earlier transfer left without write permission. If it is not ours to
            // change, the entries below will say so.
            let _ = fchmod(&directory, Mode::from_raw_mode(mode | 0o700));
        }
        let set_group_id = mode & SET_GROUP_ID;
        self.levels.push(Level { directory: Rc::new(directory), attributes, set_group_id });
        Ok(())
    }

    /// Leaves the present directory, which now gets its mode and times; it is left in any case.
    /// `Ok(Some(_))`: those could not be set.
    ///
    /// # Panics
    ///
    /// At the top.
    pub(crate) fn leave(&mut self) -> io::Result<Option<io::Error>> {
        let level = self.levels.pop().expect("the caller entered a directory");
        let mode = self.mode(level.attributes) | level.set_group_id;
        // Times come last: every entry made inside changed them.
        let set = fchmod(&level.directory, Mode::from_raw_mode(mode))
            .and_then(|()| futimens(&level.directory, &inode::timestamps(&level.attributes)));
        if self.policy.durable {
            fsync(&level.directory)?;
        }
        Ok(set.err().map(io::Error::from))
    }

    /// Begins a file under a temporary name. That `name` can be taken is checked now, so that a
    /// file is not sent in vain.
    pub(crate) fn begin_file(&mut self, name: Name<'_>) -> io::Result<PartFile> {
        self.check_free(name)?;
        let directory = Rc::clone(self.present());
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (temporary, file) = self
            .temporary
            .make(|temporary| openat(&directory, temporary, flags, Mode::RUSR | Mode::WUSR))?;
        Ok(PartFile { directory, temporary, file: file.into(), offset: 0, kept: false })
    }

    /// Gives a complete file its attributes and then its name. Whatever stood there, except a
    /// directory, is replaced. `Ok(Some(_))`: stored, but the attributes could not be set.
    pub(crate) fn finish_file(
        &self,
        mut part: PartFile,
        name: Name<'_>,
        attributes: Attributes,
    ) -> io::Result<Option<io::Error>> {
        part.end_last_hole()?;
        let set = fchmod(&part.file, Mode::from_raw_mode(self.mode(attributes)))
            .and_then(|()| futimens(&part.file, &inode::timestamps(&attributes)));
        if self.policy.durable {
            part.file.sync_all()?;
        }
        part.rename(name)?;
        Ok(set.err().map(io::Error::from))
    }

    /// Makes a symbolic link, with `target` as its text, whatever that is: nobody here follows it.
    /// `Ok(Some(_))`: made, but its times could not be set.
    pub(crate) fn symlink(
        &mut self,
        name: Name<'_>,
        target: &[u8],
        attributes: Attributes,
    ) -> io::Result<Option<io::Error>> {
        self.check_free(name)?;
        let here = Rc::clone(self.present());
        let (temporary, ()) =
            self.temporary.make(|temporary| symlinkat(target, &here, temporary))?;
        let times = inode::timestamps(&attributes);
        let set = utimensat(&here, temporary.as_str(), &times, AtFlags::SYMLINK_NOFOLLOW);
        if let Err(error) = renameat(&here, temporary.as_str(), &here, name.bytes()) {
            let _ = unlinkat(&here, temporary.as_str(), AtFlags::empty());
            return Err(error.into());
        }
        Ok(set.err().map(io::Error::from))
    }

    /// Puts the names in the target itself on the medium, if that was asked for.
    pub(crate) fn finish(&self) -> io::Result<()> {
        if self.policy.durable {
            fsync(&self.root)?;
        }
        Ok(())
    }

    fn check_free(&self, name: Name<'_>) -> io::Result<()> {
        match statat(self.present(), name.bytes(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if inode::kind(&stat) == Kind::Directory => Err(Errno::ISDIR.into()),
            _ => Ok(()), // any other trouble shows when the entry is made
        }
    }

    fn mode(&self, attributes: Attributes) -> u32 {
        let kept = if self.policy.keep_set_id { PLAIN_MODE | SET_ID } else { PLAIN_MODE };
        u32::from(attributes.mode) & kept
    }

    fn present(&self) -> &Rc<OwnedFd> {
        self.levels.last().map_or(&self.root, |level| &level.directory)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        while !self.levels.is_empty() {
            // Nobody is left to tell.
            let _ = self.leave();
        }
    }
}

/// A file that is not complete yet, under a temporary name. Dropped, it disappears.
#[derive(Debug)]
pub(crate) struct PartFile {
    directory: Rc<OwnedFd>,
    temporary: String,
    file: File,
    offset: u64,
    kept: bool,
}

impl PartFile {
    /// Writes the next bytes.
    pub(crate) fn write(&mut self, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, self.offset)?;
        self.offset += data.len() as u64;
        Ok(())
    }

    /// Leaves the next `length` bytes out. The caller keeps the sum within 2^63 - 1.
    pub(crate) fn skip(&mut self, length: u64) {
        self.offset += length;
    }

    /// Writing alone does not reach a hole at the end.
    fn end_last_hole(&self) -> io::Result<()> {
        if self.file.metadata()?.len() < self.offset {
            self.file.set_len(self.offset)?;
        }
        Ok(())
    }

    fn rename(&mut self, name: Name<'_>) -> io::Result<()> {
        renameat(&self.directory, self.temporary.as_str(), &self.directory, name.bytes())?;
        self.kept = true;
        Ok(())
    }
}

impl Drop for PartFile {
    fn drop(&mut self) {
        if !self.kept {
            // Nobody is left to tell.
            let _ = unlinkat(&self.directory, self.temporary.as_str(), AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests;
