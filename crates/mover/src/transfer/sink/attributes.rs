//! What entries keep beside their content.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, Stat, Timestamps, Uid, XattrFlags, chmod, chownat, fchmod, fchown,
    fsetxattr, fstat, futimens, openat, setxattr, utimensat,
};
use rustix::io::Errno;

use super::options::Preserve;
use crate::frame::Attributes;
use crate::inode;
use crate::transfer::message::Extra;

/// The bits of a mode that are always kept: permissions and sticky.
const PLAIN_MODE: u32 = 0o1777;
/// The set-user-ID and set-group-ID bits.
const SET_ID: u32 = 0o6000;

/// What is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy {
    pub(super) preserve: Preserve,
    pub(super) keep_set_id: bool,
    /// What modes may have.
    pub(super) mask: u32,
    pub(super) umask: u32,
}

impl Policy {
    /// The mode of a new entry.
    pub(super) fn mode(&self, attributes: &Attributes) -> u32 {
        let mode = u32::from(attributes.mode) & self.mask;
        match (self.preserve.mode, self.keep_set_id) {
            (true, true) => mode & (PLAIN_MODE | SET_ID),
            (true, false) => mode & PLAIN_MODE,
            (false, _) => mode & 0o777 & !self.umask,
        }
    }

    /// The mode of a file that takes the place of one with mode `before`.
    pub(super) fn file_mode(&self, attributes: &Attributes, before: Option<u32>) -> u32 {
        match before {
            Some(before) if !self.preserve.mode => before & 0o777,
            _ => self.mode(attributes),
        }
    }

    fn times(&self, attributes: &Attributes) -> Option<Timestamps> {
        self.preserve.times.then(|| inode::timestamps(attributes))
    }

    /// Gives an open file or directory everything. All of it is tried; the first error counts.
    pub(super) fn set(
        &self,
        file: impl AsFd,
        mode: u32,
        attributes: &Attributes,
        extra: Option<&Extra>,
    ) -> io::Result<()> {
        let file = file.as_fd();
        let mut result = Ok(());
        let mut keep = |kept: io::Result<()>| {
            if result.is_ok() {
                result = kept;
            }
        };
        // The owner first: a change of it takes set-ID bits and capabilities away.
        if let Some(extra) = extra {
            if let (true, Some((user, group))) = (self.preserve.owner, extra.owner) {
                keep(fchown(file, user_of(user), group_of(group)).map_err(owner_error));
            }
            if self.preserve.xattrs {
                for (name, value) in &extra.xattrs {
                    let set = |name: &str| fsetxattr(file, name, value, XattrFlags::empty());
                    keep(self.set_xattr(name, set));
                }
            }
        }
        keep(fchmod(file, Mode::from_raw_mode(mode)).map_err(io::Error::from));
        // Times last: everything else changes them, or may.
        if let Some(times) = self.times(attributes) {
            keep(futimens(file, &times).map_err(io::Error::from));
        }
        result
    }

    /// Gives a file that stays what differs.
    pub(super) fn correct(
        &self,
        directory: &OwnedFd,
        name: &[u8],
        attributes: &Attributes,
        extra: Option<&Extra>,
    ) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(directory, name, flags, Mode::empty())?;
        let stat = fstat(&file)?;
        if inode::kind(&stat) != inode::Kind::File {
            return Err(io::Error::other("it was replaced meanwhile"));
        }
        // A descriptor of this kind is reached by its path alone.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        if let Some(extra) = extra {
            if let (true, Some((user, group))) = (self.preserve.owner, extra.owner)
                && (stat.st_uid, stat.st_gid) != (user, group)
            {
                let flags = AtFlags::EMPTY_PATH;
                chownat(&file, "", user_of(user), group_of(group), flags).map_err(owner_error)?;
            }
            if self.preserve.xattrs {
                for (name, value) in &extra.xattrs {
                    let set =
                        |name: &str| setxattr(path.as_str(), name, value, XattrFlags::empty());
                    self.set_xattr(name, set)?;
                }
            }
        }
        let before = stat.st_mode & 0o7777;
        let mode = if self.preserve.mode { self.mode(attributes) } else { before };
        if before != mode {
            chmod(path.as_str(), Mode::from_raw_mode(mode))?;
        }
        if let Some(times) = self.times(attributes)
            && !same_time(&stat, attributes)
        {
            utimensat(rustix::fs::CWD, path.as_str(), &times, AtFlags::empty())?;
        }
        Ok(())
    }

    /// Whether [`Policy::correct`] would find anything.
    pub(super) fn differs(
        &self,
        stat: &Stat,
        attributes: &Attributes,
        extra: Option<&Extra>,
    ) -> bool {
        let mode = self.preserve.mode && stat.st_mode & 0o7777 != self.mode(attributes);
        let times = self.preserve.times && !same_time(stat, attributes);
        mode || times || (extra.is_some() && (self.preserve.owner || self.preserve.xattrs))
    }

    /// Gives a symbolic link its times and owner.
    pub(super) fn set_link(
        &self,
        directory: &OwnedFd,
        name: &[u8],
        attributes: &Attributes,
        extra: Option<&Extra>,
    ) -> io::Result<()> {
        if let (true, Some((user, group))) =
            (self.preserve.owner, extra.and_then(|extra| extra.owner))
        {
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            chownat(directory, name, user_of(user), group_of(group), flags).map_err(owner_error)?;
        }
        if let Some(times) = self.times(attributes) {
            utimensat(directory, name, &times, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }

    fn set_xattr(
        &self,
        name: &[u8],
        set: impl FnOnce(&str) -> rustix::io::Result<()>,
    ) -> io::Result<()> {
        let text = String::from_utf8_lossy(name);
        let unkept = |why: &str| {
            let name = crate::report::printable(name);
            io::Error::other(format!("the extended attribute {name} was not kept: {why}"))
        };
        let class = [&b"user."[..], b"security.", b"trusted."];
        if text.len() != name.len() || !class.iter().any(|class| name.starts_with(class)) {
            return Err(unkept("only those of users, security and trusted are"));
        }
        if name == b"security.capability" && !self.keep_set_id {
            return Err(unkept("it gives rights, as set-user-ID bits do"));
        }
        set(&text).map_err(|error| unkept(&io::Error::from(error).to_string()))
    }
}

fn owner_error(error: Errno) -> io::Error {
    let error = io::Error::from(error);
    io::Error::new(error.kind(), format!("the owner was not kept: {error}"))
}

/// The highest number means "leave it" to the kernel, and no user.
fn user_of(number: u32) -> Option<Uid> {
    (number != u32::MAX).then(|| Uid::from_raw(number))
}

fn group_of(number: u32) -> Option<Gid> {
    (number != u32::MAX).then(|| Gid::from_raw(number))
}

/// Whether a file was last changed when `attributes` say; to the second where the file system does
/// not know it better.
pub(super) fn same_time(stat: &Stat, attributes: &Attributes) -> bool {
    let here = inode::attributes(stat).modified;
    let there = attributes.modified;
    here.seconds == there.seconds
        && (here.nanoseconds == there.nanoseconds || here.nanoseconds == 0)
}

/// The umask of this process.
pub(super) fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o022)
}
