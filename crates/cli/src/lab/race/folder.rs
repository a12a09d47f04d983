//! The folder of a race, which is large and lies in memory: it goes with its race, also if that is interrupted twice, and
//! with the next race if it was killed.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::interrupt::{Registered, before_exit};

const PREFIX: &str = "farhaul-race-";
/// What still writes to a folder that goes may put files there meanwhile.
const ATTEMPTS: u32 = 50;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(10);

/// A folder that is removed with this value.
pub struct Folder {
    path: PathBuf,
    /// The kernel unlocks it when this process is no more, however it has ended.
    _lock: File,
    _cleanup: Registered,
}

impl Folder {
    /// Makes one in `parent`, and removes those there that races of this user have left.
    pub fn create(parent: &Path) -> io::Result<Folder> {
        remove_left(parent)?;
        // Before there is a folder, so that there is no moment in which a signal would leave it.
        let made: Arc<Mutex<Option<PathBuf>>> = Arc::default();
        let removed = Arc::clone(&made);
        let cleanup = before_exit(move || {
            let made = removed.lock().unwrap_or_else(PoisonError::into_inner);
            made.iter().for_each(|path| remove(path));
        });
        loop {
            let prefix = format!("{PREFIX}{}-", process::id());
            let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
            let path = tempfile::Builder::new().prefix(&prefix).tempdir_in(parent)?.keep();
            *made = Some(path.clone());
            // Another race that looks right now takes it for one that was left.
            if let Ok(Some(lock)) = lock(&path) {
                return Ok(Folder { path, _lock: lock, _cleanup: cleanup });
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Locks the folder; none if another process has, or it is gone.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let file = File::open(path)?;
    if file.try_lock().is_err() {
        return Ok(None);
    }
    let (locked, there) = (file.metadata()?, fs::symlink_metadata(path)?);
    Ok((locked.ino() == there.ino()).then_some(file))
}

/// Removes the folders of races that are no more.
fn remove_left(parent: &Path) -> io::Result<()> {
    let own = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(parent)?.flatten() {
        // Others' folders may be anything, and links may lead anywhere.
        let left = entry.file_name().to_string_lossy().starts_with(PREFIX)
            && entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == own);
        if left && let Ok(Some(_lock)) = lock(&entry.path()) {
            remove(&entry.path());
        }
    }
    Ok(())
}

fn remove(path: &Path) {
    for _ in 0..ATTEMPTS {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                thread::sleep(BETWEEN_ATTEMPTS);
            }
            _ => return,
        }
    }
    tell!("farhaul: cannot remove {}: remove it yourself", path.display());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_goes_with_its_race_or_with_the_next() {
        let parent = tempfile::tempdir().expect("a folder");
        let left = parent.path().join("farhaul-race-1-left");
        fs::create_dir_all(left.join("target-0")).expect("a folder");
        let other = parent.path().join("other");
        fs::create_dir(&other).expect("a folder");
        let one = Folder::create(parent.path()).expect("a folder");
        assert!(!left.exists() && other.exists());
        let another = Folder::create(parent.path()).expect("a folder");
        assert!(one.path().is_dir(), "that of a race at work stays");
        let paths = [one.path().to_owned(), another.path().to_owned()];
        drop((one, another));
        assert!(paths.iter().all(|path| !path.exists()));
    }

    #[test]
    fn links_are_not_followed() {
        let parent = tempfile::tempdir().expect("a folder");
        let target = parent.path().join("target");
        fs::create_dir(&target).expect("a folder");
        std::os::unix::fs::symlink(&target, parent.path().join("farhaul-race-1-link"))
            .expect("a link");
        drop(Folder::create(parent.path()).expect("a folder"));
        assert!(target.is_dir());
    }
}
