//! Whether one tree has what another has: names, kinds, sizes and every byte.

use std::collections::BTreeMap;
use std::fs::{self, File, FileType};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// How `target` differs from `source`, in words; nothing if it does not. What `target` has besides
/// is a difference only if they are to be `alike`.
///
/// That something cannot be read is a difference in `target` and an error in `source`.
pub fn compare(source: &Path, target: &Path, alike: bool) -> io::Result<Vec<String>> {
    let wanted = listing(source)?;
    let found = match listing(target) {
        Ok(found) => found,
        Err(error) => return Ok(vec![format!("{}: {error}", target.display())]),
    };
    let mut differences = Vec::new();
    for (name, kind) in &wanted {
        let what = match found.get(name) {
            None => Some("is missing".to_owned()),
            Some(other) if other != kind => Some("is of another kind".to_owned()),
            Some(_) if kind.is_symlink() => {
                let same = fs::read_link(source.join(name))? == fs::read_link(target.join(name))?;
                (!same).then(|| "leads elsewhere".to_owned())
            }
            Some(_) if kind.is_file() => content(&source.join(name), &target.join(name))?,
            Some(_) => None,
        };
        differences.extend(what.map(|what| format!("{} {what}", name.display())));
    }
    if alike {
        let more = found.keys().filter(|name| !wanted.contains_key(*name));
        differences.extend(more.map(|name| format!("{} should not be there", name.display())));
    }
    Ok(differences)
}

fn listing(root: &Path) -> io::Result<BTreeMap<PathBuf, FileType>> {
    let mut found = BTreeMap::new();
    let mut todo = vec![PathBuf::new()];
    while let Some(directory) = todo.pop() {
        for entry in fs::read_dir(root.join(&directory))? {
            let entry = entry?;
            let (name, kind) = (directory.join(entry.file_name()), entry.file_type()?);
            if kind.is_dir() {
                todo.push(name.clone());
            }
            found.insert(name, kind);
        }
    }
    Ok(found)
}

/// How the second file's content differs from the first's.
fn content(source: &Path, target: &Path) -> io::Result<Option<String>> {
    let wanted = fs::read(source)?;
    let mut found = Vec::with_capacity(wanted.len());
    if let Err(error) = File::open(target).and_then(|mut file| file.read_to_end(&mut found)) {
        return Ok(Some(format!("cannot be read: {error}")));
    }
    if wanted.len() != found.len() {
        return Ok(Some(format!("has {} bytes, not {}", found.len(), wanted.len())));
    }
    if wanted == found {
        return Ok(None);
    }
    let wrong = wanted.iter().zip(&found).filter(|(wanted, found)| wanted != found).count();
    let first = wanted.iter().zip(&found).position(|(wanted, found)| wanted != found);
    let zeros = wanted.iter().zip(&found).all(|(wanted, found)| wanted == found || *found == 0);
    let zeros = if zeros { ", all zeros" } else { "" };
    let first = first.unwrap_or_default();
    Ok(Some(format!("has {wrong} wrong bytes of {}{zeros}, from {first} on", wanted.len())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn every_difference_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        for root in [&a, &b] {
            fs::create_dir_all(root.join("inner")).unwrap();
            for name in ["same", "inner/content", "size", "kind", "missing"] {
                fs::write(root.join(name), [7; 5000]).unwrap();
            }
            symlink("same", root.join("link")).unwrap();
        }
        assert_eq!(compare(&a, &b, true).unwrap(), [] as [String; 0]);
        let mut changed = [7; 5000];
        changed[4000] = 0;
        fs::write(b.join("inner/content"), changed).unwrap();
        fs::write(b.join("size"), [7; 4999]).unwrap();
        for name in ["kind", "missing", "link"] {
            fs::remove_file(b.join(name)).unwrap();
        }
        fs::create_dir(b.join("kind")).unwrap();
        symlink("size", b.join("link")).unwrap();
        fs::write(b.join("more"), "").unwrap();
        assert_eq!(compare(&a, &b, false).unwrap().len(), 5);
        let all = compare(&a, &b, true).unwrap();
        assert_eq!(all.len(), 6, "{all:?}");
        assert!(all[0].ends_with("has 1 wrong bytes of 5000, all zeros, from 4000 on"), "{all:?}");
        assert_eq!(compare(&a, &dir.path().join("c"), false).unwrap().len(), 1);
    }
}
