//! Counting the sources beside the transfer, so that it has an end in sight.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::inode::{self, Kind};
use crate::sources::Source;
use crate::temporary::is_ours;
use crate::transfer::source::arrives;
use crate::transfer::source::filter::Filter;
use crate::walk::{Step, Walk};

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
            let Step::Found(found) = step else { continue };
            let directory = found.kind == Kind::Directory;
            if !filter.is_empty() && !filter.takes(&arrives(source, walk.path()), directory) {
                continue;
            }
            if is_ours(walk.name(&found).bytes()) {
                continue; // it is left out
            }
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
}
