//! Looking through the sources: what they come to, so that a transfer has an end in sight, and whether
//! there is anything in them at all.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::inode::{self, Kind};
use crate::sources::Source;
use crate::temporary::is_ours;
use crate::transfer::source::arrives;
use crate::transfer::source::filter::Filter;
use crate::walk::{Found, Step, Walk};

/// What a scan found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

/// Counts regular files and their bytes. Ends early with `None` once `stop` is set. Entries that
/// cannot be read are not counted: the transfer will say so.
pub(crate) fn scan(sources: &[Source], filter: &Filter, stop: &AtomicBool) -> Option<Totals> {
    let mut totals = Totals::default();
    for source in sources {
        let mut walk = Walk::new(source.clone());
        while let Some(step) = walk.next() {
            if stop.load(Ordering::Relaxed) {
                return None;
            }
            let Some(found) = taken(source, filter, &walk, step) else { continue };
            match found.kind {
                Kind::Directory => drop(walk.enter(&found)),
                Kind::File => {
                    totals.files += 1;
                    totals.bytes = totals.bytes.saturating_add(inode::size(&found.stat));
                }
                Kind::Symlink | Kind::Special(_) => {}
            }
        }
    }
    Some(totals)
}

/// Whether a source has a file or a link that is to be copied, be it in a directory of it. Directories
/// alone are nothing: they are what is left of a file system that is not mounted, or whose files are all
/// left out.
pub(crate) fn holds_something(source: &Source, filter: &Filter, stop: &AtomicBool) -> bool {
    let mut walk = Walk::new(source.clone());
    while let Some(step) = walk.next() {
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        let Some(found) = taken(source, filter, &walk, step) else { continue };
        match found.kind {
            Kind::Directory => drop(walk.enter(&found)),
            Kind::File | Kind::Symlink => return true,
            Kind::Special(_) => {}
        }
    }
    false
}

/// What a step of the walk comes to, if it is not left out.
fn taken(source: &Source, filter: &Filter, walk: &Walk, step: Step) -> Option<Found> {
    let Step::Found(found) = step else { return None };
    let directory = found.kind == Kind::Directory;
    let wanted = filter.is_empty() || filter.takes(&arrives(source, walk.path()), directory);
    (wanted && !is_ours(walk.name(&found).bytes())).then_some(found)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::sources::resolve;

    #[test]
    fn files_are_counted_and_links_are_not() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        fs::write(dir.path().join("a"), [0; 10]).unwrap();
        fs::write(dir.path().join(".farhaul-1.part"), [0; 10]).unwrap();
        fs::write(dir.path().join("d/b"), [0; 300]).unwrap();
        symlink("a", dir.path().join("l")).unwrap();
        let sources = resolve(&[dir.path().to_owned(), dir.path().join("a")]).unwrap();
        let totals = scan(&sources, &Filter::default(), &AtomicBool::new(false));
        assert_eq!(totals, Some(Totals { files: 3, bytes: 320 }));
        assert_eq!(scan(&sources, &Filter::default(), &AtomicBool::new(true)), None);
    }

    #[test]
    fn directories_and_what_is_left_out_are_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let holds = |excluded: &str| {
            let mut filter = Filter::default();
            filter.add(excluded, false).unwrap();
            let stop = AtomicBool::new(false);
            let found = [dir.path().to_owned(), dir.path().join("")].map(|path| {
                let source = resolve(&[path]).unwrap().remove(0);
                holds_something(&source, &filter, &stop)
            });
            assert_eq!(found[0], found[1]);
            found[0]
        };
        assert!(!holds("none"));
        fs::create_dir_all(dir.path().join("d/e")).unwrap();
        fs::write(dir.path().join("d/.farhaul-1.part"), "").unwrap();
        drop(std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap());
        assert!(!holds("none"));
        symlink("nowhere", dir.path().join("d/e/l")).unwrap();
        assert!(holds("none") && !holds("l") && !holds("d/"));
        fs::write(dir.path().join("f"), "").unwrap();
        assert!(holds("l") && holds("f"));
    }
}
