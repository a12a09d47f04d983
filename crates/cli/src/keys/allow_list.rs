//! The keys that may connect: a line each, `ed25519:HEX  NAME  [KEY=VALUE …]`, and comments.

use std::path::Path;

use anyhow::Result;
use farhaul_secure::PublicKey;

use super::store;
use crate::exit::Usage;
use crate::serve::Limits;

/// Its name among farhaul's files of a user.
pub const FILE: &str = "allowed_keys";
/// No name is longer, bytes.
const LONGEST_NAME: usize = 64;

/// A key that may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// Whose it is, a name that no other key has.
    pub name: String,
    /// The key.
    pub key: PublicKey,
    /// What is granted to it.
    pub limits: Limits,
    /// Counted from 1.
    pub line: usize,
}

/// Whether `name` can be a client's: letters, digits and `-_.@`, at most 64 bytes, no dot first.
///
/// # Errors
/// What it may be.
pub fn check_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    let good = (1..=LONGEST_NAME).contains(&name.len())
        && name.chars().all(fits)
        && !name.starts_with(['.', '-']);
    if good {
        return Ok(());
    }
    Err(format!("'{name}' is no name: it is of letters, digits and -_.@, at most {LONGEST_NAME}"))
}

/// The keys in the file at `path`; none if there is no file.
///
/// # Errors
/// It cannot be read or others may write to it; or what is wrong in which lines.
pub fn load(path: &Path) -> Result<Vec<Allowed>, Usage> {
    parse(path, &store::read(path)?)
}

/// Adds a key to the file at `path`, behind what is there. Whether it was new.
///
/// # Errors
/// The key has another name, or the name another key; or the file is wrong or cannot be written.
pub fn allow(path: &Path, key: PublicKey, name: &str, limits: &Limits) -> Result<bool> {
    check_name(name).map_err(Usage)?;
    store::update(path, |text| {
        let known = parse(path, text)?;
        let place = |other: &Allowed| format!("{}:{}", path.display(), other.line);
        if let Some(other) = known.iter().find(|other| other.key == key) {
            if other.name == name && other.limits == *limits {
                return Ok((None, false));
            }
            let message = if other.name == name {
                format!("'{name}' has this key already, with other limits")
            } else {
                format!("this key is allowed already, as '{}'", other.name)
            };
            return Err(Usage(format!("{}: {message}; revoke it first", place(other))).into());
        }
        if let Some(other) = known.iter().find(|other| other.name == name) {
            let why = format!("'{name}' has another key; revoke it first, or take another name");
            return Err(Usage(format!("{}: {why}", place(other))).into());
        }
        let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        let limits = limits.words().iter().map(|word| format!("  {word}")).collect::<String>();
        Ok((Some(format!("{text}{end}{key}  {name}{limits}\n")), true))
    })
}

/// A key that was taken out of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revoked {
    /// Whose it was, by the first line that had it.
    pub name: String,
    /// The key.
    pub key: PublicKey,
    /// What is wrong with the rest of the list, if anything is: no key of it is added until that is mended.
    pub wrong: Option<String>,
}

/// Takes the key or the name `whose` out of the file at `path`, with every line that has that key, whatever
/// is wrong with other lines; comments stay.
///
/// # Errors
/// It is not there; or the file cannot be read or written, or is no text.
pub fn revoke(path: &Path, whose: &str) -> Result<Revoked> {
    store::update(path, |text| {
        let wanted = whose.parse::<PublicKey>().ok();
        let found = text.lines().filter_map(key_and_name).find(|(key, name)| match wanted {
            Some(wanted) => *key == wanted,
            None => *name == whose,
        });
        let Some((key, name)) = found else {
            let not_there = format!("{} allows neither a key nor a name '{whose}'", path.display());
            let error = parse(path, text).err().map_or(not_there.clone(), |Usage(wrong)| {
                format!("{not_there}, and lines of it are wrong:\n{wrong}")
            });
            return Err(Usage(error).into());
        };
        let others = |line: &&str| key_and_name(line).is_none_or(|(other, _)| other != key);
        let rest: String = text.split_inclusive('\n').filter(others).collect();
        let wrong = parse(path, &rest).err().map(|Usage(wrong)| wrong);
        Ok((Some(rest), Revoked { name: name.to_owned(), key, wrong }))
    })
}

/// The keys in `text`, which stands in the file at `path`.
///
/// # Errors
/// What is wrong in which lines.
pub(crate) fn parse(path: &Path, text: &str) -> Result<Vec<Allowed>, Usage> {
    let (mut known, mut wrong) = (Vec::<Allowed>::new(), Vec::new());
    for (index, line) in text.lines().enumerate() {
        let content = line.split_once('#').map_or(line, |(content, _)| content).trim();
        if content.is_empty() {
            continue;
        }
        let mut told = |why: String| wrong.push(format!("{}:{}: {why}", path.display(), index + 1));
        match entry(content) {
            Ok((key, name, limits)) => {
                let other = known.iter().find(|other| other.key == key || other.name == name);
                if let Some(other) = other {
                    let what = if other.key == key { "this key" } else { "this name" };
                    told(format!("{what} is in line {} already", other.line));
                } else {
                    known.push(Allowed { name, key, limits, line: index + 1 });
                }
            }
            Err(why) => told(why),
        }
    }
    if wrong.is_empty() { Ok(known) } else { Err(Usage(wrong.join("\n"))) }
}

/// The keys in a list that can be read, whatever else is wrong with their lines.
pub(crate) fn keys_in(list: &[u8]) -> Vec<PublicKey> {
    let lines = list.split(|byte| *byte == b'\n').map(String::from_utf8_lossy);
    lines.filter_map(|line| key_and_name(&line).map(|(key, _)| key)).collect()
}

/// The key and the name in a line, whatever else is wrong with it; the name may be empty.
fn key_and_name(line: &str) -> Option<(PublicKey, &str)> {
    let content = line.split_once('#').map_or(line, |(content, _)| content);
    let mut words = content.split_whitespace();
    Some((words.next()?.parse().ok()?, words.next().unwrap_or_default()))
}

fn entry(content: &str) -> Result<(PublicKey, String, Limits), String> {
    let mut words = content.split_whitespace();
    let key = words.next().unwrap_or_default().parse::<PublicKey>();
    let key = key.map_err(|error| error.to_string())?;
    let name = words.next().ok_or("behind the key there is no name")?;
    check_name(name)?;
    let mut limits = Limits::default();
    for word in words {
        limits.set(word)?;
    }
    Ok((key, name.to_owned(), limits))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use farhaul_secure::Identity;

    use super::*;

    fn key() -> PublicKey {
        Identity::generate().expect("a key").public_key()
    }

    fn wrong(result: Result<impl Sized>) -> String {
        let error = result.map(drop).expect_err("it is wrong");
        error.downcast_ref::<Usage>().expect("bad usage").0.clone()
    }

    #[test]
    fn keys_come_and_go_and_comments_stay() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("allowed_keys");
        let (a, b, c) = (key(), key(), key());
        let none = Limits::default();
        assert!(load(&path).is_ok_and(|known| known.is_empty()));
        assert!(allow(&path, a, "alice", &none).expect("written"));
        let text = fs::read_to_string(&path).expect("a file");
        // Somebody edits it, and leaves no line's end.
        fs::write(&path, format!("# mine\n\n{text}{b} bob rate=1G connections=2 # his")).unwrap();
        let mut limits = Limits::default();
        limits.set("bytes-per-day=1TB").expect("a limit");
        assert!(allow(&path, c, "carol", &limits).expect("written"));
        let known = load(&path).expect("keys");
        let names: Vec<_> = known.iter().map(|k| (k.name.as_str(), k.key, k.line)).collect();
        assert_eq!(names, [("alice", a, 3), ("bob", b, 4), ("carol", c, 5)]);
        assert_eq!(known[1].limits.words(), ["rate=1G", "connections=2"]);
        assert_eq!(known[2].limits, limits);
        assert_eq!(revoke(&path, "bob").expect("gone").key, b);
        assert_eq!(revoke(&path, &a.to_string()).expect("gone").name, "alice");
        let text = fs::read_to_string(&path).expect("a file");
        assert_eq!(text, format!("# mine\n\n{c}  carol  bytes-per-day=1TB\n"));
        assert!(wrong(revoke(&path, "bob")).contains("'bob'"));
    }

    #[test]
    fn twice_is_told() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("allowed_keys");
        let (a, none) = (key(), Limits::default());
        assert!(allow(&path, a, "alice", &none).expect("written"));
        let before = fs::read_to_string(&path).expect("a file");
        assert!(!allow(&path, a, "alice", &none).expect("nothing to do"));
        assert!(wrong(allow(&path, a, "bob", &none)).contains(":1: this key is allowed already"));
        assert!(wrong(allow(&path, key(), "alice", &none)).contains("'alice' has another key"));
        let limits = Limits { connections: Some(1), ..Limits::default() };
        assert!(wrong(allow(&path, a, "alice", &limits)).contains("with other limits"));
        assert_eq!(fs::read_to_string(&path).expect("a file"), before);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let (a, b) = (key(), key());
        let text = format!("{a} alice\nnonsense\n{b}\n{a} bob\n{b} alice\n{b} c speed=1\n{b} a/b");
        let told = parse(Path::new("k"), &text).expect_err("much is wrong").0;
        let lines: Vec<_> = told.lines().collect();
        assert_eq!(lines.len(), 6, "{told}");
        assert!(lines[0].starts_with("k:2: a public key is written as"), "{told}");
        assert_eq!(lines[1], "k:3: behind the key there is no name");
        assert_eq!(lines[2], "k:4: this key is in line 1 already");
        assert_eq!(lines[3], "k:5: this name is in line 1 already");
        assert!(lines[4].contains("'speed'"), "{told}");
        assert!(lines[5].contains("'a/b' is no name"), "{told}");
    }

    #[test]
    fn nothing_is_added_to_a_list_that_is_wrong() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("allowed_keys");
        fs::write(&path, "nonsense\n").expect("a file");
        assert!(allow(&path, key(), "alice", &Limits::default()).is_err());
        assert!(wrong(revoke(&path, "alice")).contains(":1: "));
        assert_eq!(fs::read_to_string(&path).expect("a file"), "nonsense\n");
    }

    #[test]
    fn a_key_goes_whatever_is_wrong_with_other_lines_and_wherever_it_stands() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("allowed_keys");
        let (a, b) = (key(), key());
        let kept = format!("nonsense\n# {a}  alice\n{b}  bob  speed=1\n");
        fs::write(&path, format!("{a}  alice\n{kept}{a}  again  rte=1\n{a}")).expect("a file");
        let gone = revoke(&path, "alice").expect("gone");
        assert_eq!((gone.name.as_str(), gone.key), ("alice", a));
        let wrong = gone.wrong.expect("lines are");
        assert_eq!(wrong.lines().count(), 2, "{wrong}");
        assert_eq!(fs::read_to_string(&path).expect("a file"), kept);
    }
}
