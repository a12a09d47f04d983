//! Files that decide who is let in, or that are secret: read only if nobody else can have had their hands
//! on them.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::process::geteuid;

use super::store::quoted;
use crate::exit::Usage;
use crate::files::directory_of;

const WRITABLE_BY_OTHERS: u32 = 0o022;
const OPEN_TO_OTHERS: u32 = 0o077;
/// In such a directory nobody replaces files of others.
const STICKY: u32 = 0o1000;
const ROOT: u32 = 0;

/// What others must not do with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Change it.
    Written,
    /// Change or read it.
    Secret,
}

/// Opens the regular file at `path`, which must belong to root or to the user that runs this, in a
/// directory that does, too; and others must not be able to do what `guard` says. None if there is no
/// such file. It waits for nobody: a named pipe is refused.
///
/// # Errors
/// It cannot be opened, is something else than a file, or is open to others: with the remedy.
pub fn open(path: &Path, guard: Guard) -> Result<Option<File>, Usage> {
    let unreadable = |error: io::Error| Usage(format!("cannot read {}: {error}", path.display()));
    let file = match open_at_once(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };
    // Of the file that is open: another may have taken its name meanwhile.
    let known = file.metadata().map_err(unreadable)?;
    if !known.is_file() {
        return Err(Usage(format!("cannot read {}: it is no regular file", path.display())));
    }
    check(path, &known, guard)?;
    let mut directories = vec![directory_of(path).to_owned()];
    if let Ok(real) = path.canonicalize() {
        directories.push(directory_of(&real).to_owned());
    }
    directories.dedup();
    for directory in directories {
        let known = fs::metadata(&directory).map_err(unreadable)?;
        check_owner(&directory, &known)?;
        let mode = known.mode();
        if mode & WRITABLE_BY_OTHERS != 0 && mode & STICKY == 0 {
            return Err(Usage(format!(
                "{} can be written by others (mode {:04o}), who could put another file in the place \
                 of {}; check it, then run: chmod go-w {}",
                directory.display(),
                mode & 0o7777,
                path.display(),
                shell(&directory)
            )));
        }
    }
    Ok(Some(file))
}

/// Opens it for reading without waiting for whoever may write to a pipe.
pub fn open_at_once(path: &Path) -> io::Result<File> {
    let at_once = (OFlags::NONBLOCK | OFlags::NOCTTY).bits();
    OpenOptions::new().read(true).custom_flags(at_once.cast_signed()).open(path)
}

fn check(path: &Path, known: &Metadata, guard: Guard) -> Result<(), Usage> {
    check_owner(path, known)?;
    let (shown, mode) = (path.display(), known.mode() & 0o7777);
    match guard {
        Guard::Written if mode & WRITABLE_BY_OTHERS != 0 => Err(Usage(format!(
            "{shown} can be written by others (mode {mode:04o}), who could let themselves in; check \
             it, then run: chmod go-w {}",
            shell(path)
        ))),
        Guard::Secret if mode & OPEN_TO_OTHERS != 0 => Err(Usage(format!(
            "{shown} is open to others (mode {mode:04o}), but it is secret; run: chmod 600 {}",
            shell(path)
        ))),
        _ => Ok(()),
    }
}

fn check_owner(path: &Path, known: &Metadata) -> Result<(), Usage> {
    let own = geteuid().as_raw();
    if [own, ROOT].contains(&known.uid()) {
        return Ok(());
    }
    let whose = if own == ROOT { "root" } else { "root or the user that runs farhaul" };
    Err(Usage(format!(
        "{} belongs to another user (uid {}), who can change it: it must belong to {whose}; check it, \
         then run: chown {own} {}",
        path.display(),
        known.uid(),
        shell(path)
    )))
}

fn shell(path: &Path) -> String {
    quoted(&path.display().to_string())
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("a mode");
    }

    fn told(path: &Path, guard: Guard) -> String {
        open(path, guard).expect_err("it is refused").0
    }

    #[test]
    fn what_others_can_reach_is_refused_with_the_remedy() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a list");
        assert!(open(&path, Guard::Written).is_ok_and(|file| file.is_none()));
        fs::write(&path, "text").expect("a file");
        for (mode, written, secret) in [
            (0o600, true, true),
            (0o640, true, false),
            (0o664, false, false),
            (0o602, false, false),
        ] {
            set(&path, mode);
            assert_eq!(open(&path, Guard::Written).is_ok(), written, "{mode:o}");
            assert_eq!(open(&path, Guard::Secret).is_ok(), secret, "{mode:o}");
        }
        let why = told(&path, Guard::Written);
        assert!(why.contains("mode 0602") && why.ends_with("a list'"), "{why}");
        assert!(why.contains("chmod go-w '"), "{why}");
        assert!(told(&path, Guard::Secret).contains("chmod 600 '"));
    }

    #[test]
    fn who_can_replace_it_can_change_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let (open_to_all, closed) = (dir.path().join("open"), dir.path().join("closed"));
        fs::create_dir(&open_to_all).expect("a directory");
        fs::create_dir(&closed).expect("a directory");
        let path = open_to_all.join("list");
        fs::write(&path, "text").expect("a file");
        set(&path, 0o600);
        set(&open_to_all, 0o777);
        let why = told(&path, Guard::Written);
        assert!(why.contains("mode 0777") && why.ends_with(&shell(&open_to_all)), "{why}");
        // By whatever name.
        let link = closed.join("list");
        symlink(&path, &link).expect("a link");
        assert!(open(&link, Guard::Written).is_err());
        set(&open_to_all, 0o1777);
        assert!(open(&link, Guard::Secret).is_ok());
    }

    #[test]
    fn what_belongs_to_others_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("list");
        fs::write(&path, "text").expect("a file");
        set(&path, 0o600);
        if chown(&path, Some(12_345), None).is_err() {
            tell!("left out: only root can give files away");
            return;
        }
        for guard in [Guard::Written, Guard::Secret] {
            let why = told(&path, guard);
            assert!(why.contains("uid 12345") && why.contains("chown 0 "), "{why}");
        }
    }

    #[test]
    fn nobody_is_waited_for() {
        let dir = tempfile::tempdir().expect("a directory");
        let pipe = dir.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
        assert!(made.success());
        assert!(told(&pipe, Guard::Secret).ends_with("is no regular file"));
        assert!(told(dir.path(), Guard::Written).ends_with("is no regular file"));
    }
}
