//! Which key a server had when it was met: a line each, `HOST:PORT  ed25519:HEX`, and comments.
//!
//! A key comes in by being named (`--server-key`) or by an explicit yes when a server is met first.
//! One that changes is never taken silently.

use std::path::Path;

use anyhow::Result;
use farhaul_secure::PublicKey;

use super::store;
use crate::exit::{Failed, Usage};

/// Its name among farhaul's files of a user.
pub const FILE: &str = "known_servers";

/// What is known of a server before it is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// It must have this key: it was named.
    Only(PublicKey),
    /// It must have this key: it is known with it, from this line of the file.
    Known(PublicKey, usize),
    /// It is not known: whoever answers is to be asked about ([`admit`]).
    Unknown,
}

/// What the user says about a server that is met first.
pub enum Consent<'a> {
    /// Its key is taken as it is.
    Given,
    /// None: it is refused.
    Withheld,
    /// They are asked, with this text; yes is true.
    Ask(&'a mut dyn FnMut(&str) -> bool),
}

/// What to expect of the server at `address`: the key `pinned` on the command line, or else the one
/// in the file at `path`.
///
/// # Errors
/// The file is wrong, or knows the server with another key than `pinned`.
pub fn expected(path: &Path, address: &str, pinned: Option<PublicKey>) -> Result<Expected> {
    let known = parse(path, &store::read(path)?)?;
    let found = known.iter().find(|server| server.address == normal(address));
    match (pinned, found) {
        (Some(pinned), Some(found)) if found.key != pinned => {
            Err(changed(path, found, pinned).into())
        }
        (Some(key), _) => Ok(Expected::Only(key)),
        (None, Some(found)) => Ok(Expected::Known(found.key, found.line)),
        (None, None) => Ok(Expected::Unknown),
    }
}

/// Takes the server at `address`, which has shown that it holds `key`, if it is known with it, or
/// if the user consents; then it is known from now on.
///
/// # Errors
/// It is known with another key, or not known and nobody consents: exit code 3.
pub fn admit(path: &Path, address: &str, key: PublicKey, consent: Consent<'_>) -> Result<()> {
    let check = |text: &str| -> Result<bool> {
        let known = parse(path, text)?;
        match known.iter().find(|server| server.address == normal(address)) {
            Some(found) if found.key == key => Ok(true),
            Some(found) => Err(changed(path, found, key).into()),
            None => Ok(false),
        }
    };
    if check(&store::read(path)?)? {
        return Ok(());
    }
    let question = format!("The server {address} is not known yet. Its key is {key}. Trust it?");
    let yes = match consent {
        Consent::Given => true,
        Consent::Withheld => false,
        Consent::Ask(ask) => ask(&question),
    };
    if !yes {
        let message = format!(
            "the server {address} is not known, and its key {key} was not accepted; \
             if it is the right one, say --server-key {key}"
        );
        return Err(Failed { code: 3, message }.into());
    }
    store::update(path, |text| {
        // Another process may have met it meanwhile.
        if check(text)? {
            return Ok((None, ()));
        }
        let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        Ok((Some(format!("{text}{end}{}  {key}\n", normal(address))), ()))
    })
}

/// Forgets the server at `address`. Whether it was known.
///
/// # Errors
/// The file is wrong or cannot be written.
pub fn forget(path: &Path, address: &str) -> Result<bool> {
    store::update(path, |text| {
        let known = parse(path, text)?;
        let Some(found) = known.iter().find(|server| server.address == normal(address)) else {
            return Ok((None, false));
        };
        let rest = text.split_inclusive('\n').enumerate();
        let rest = rest.filter(|(index, _)| index + 1 != found.line).map(|(_, line)| line);
        Ok((Some(rest.collect()), true))
    })
}

/// A server that is known.
pub(crate) struct Server {
    address: String,
    key: PublicKey,
    /// Counted from 1.
    line: usize,
}

fn changed(path: &Path, known: &Server, key: PublicKey) -> Failed {
    let Server { address, key: old, line } = known;
    let remedy = remedy(path, *line, address, *old);
    let message = format!("the server {address} has the key {key}, but {remedy}");
    Failed { code: 3, message }
}

/// What to say of a server that answers with another key than the one it is known with.
pub fn remedy(path: &Path, line: usize, address: &str, known: PublicKey) -> String {
    format!(
        "it is known with {known} ({}:{line}): it may be another that pretends. If it has a new key, \
         run: farhaul key forget {address}",
        path.display()
    )
}

/// Names of hosts are the same in capitals.
fn normal(address: &str) -> String {
    address.trim().to_lowercase()
}

/// The servers in `text`, which stands in the file at `path`.
///
/// # Errors
/// What is wrong in which lines.
pub(crate) fn parse(path: &Path, text: &str) -> Result<Vec<Server>, Usage> {
    let (mut known, mut wrong) = (Vec::<Server>::new(), Vec::new());
    for (index, line) in text.lines().enumerate() {
        let content = line.split_once('#').map_or(line, |(content, _)| content).trim();
        if content.is_empty() {
            continue;
        }
        let line = index + 1;
        match entry(content) {
            Ok((address, _)) if known.iter().any(|server| server.address == address) => {
                wrong.push(format!("{}:{line}: {address} is there already", path.display()));
            }
            Ok((address, key)) => known.push(Server { address, key, line }),
            Err(why) => wrong.push(format!("{}:{line}: {why}", path.display())),
        }
    }
    if wrong.is_empty() { Ok(known) } else { Err(Usage(wrong.join("\n"))) }
}

fn entry(content: &str) -> Result<(String, PublicKey), String> {
    let mut words = content.split_whitespace();
    let (address, key, rest) = (words.next(), words.next(), words.next());
    let (Some(address), Some(key), None) = (address, key, rest) else {
        return Err("a line is HOST:PORT and a key".into());
    };
    if !address.contains(':') {
        return Err(format!("'{address}' is not HOST:PORT"));
    }
    let key = key.parse::<PublicKey>().map_err(|error| error.to_string())?;
    Ok((normal(address), key))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use farhaul_secure::Identity;

    use super::*;
    use crate::exit;

    fn key() -> PublicKey {
        Identity::generate().expect("a key").public_key()
    }

    #[test]
    fn a_server_is_known_once_the_user_says_yes() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("new/known_servers");
        let a = key();
        assert_eq!(expected(&path, "h:1", None).expect("a file"), Expected::Unknown);
        let refused = admit(&path, "h:1", a, Consent::Withheld).expect_err("nobody said yes");
        assert_eq!(exit::code(&refused), 3);
        assert!(refused.to_string().ends_with(&format!("--server-key {a}")), "{refused}");
        let mut asked = Vec::new();
        let mut no = |question: &str| {
            asked.push(question.to_owned());
            false
        };
        assert!(admit(&path, "h:1", a, Consent::Ask(&mut no)).is_err());
        assert!(asked.len() == 1 && asked[0].contains(&a.to_string()), "{asked:?}");
        assert!(!path.exists(), "who is refused is not written down");
        admit(&path, "H:1", a, Consent::Ask(&mut |_| true)).expect("yes");
        assert_eq!(expected(&path, "h:1", None).expect("a file"), Expected::Known(a, 1));
        assert_eq!(expected(&path, "h:2", None).expect("a file"), Expected::Unknown);
        // Whoever is known is not asked about.
        let mut never = |_: &str| -> bool { panic!("it is known") };
        admit(&path, "h:1", a, Consent::Ask(&mut never)).expect("known");
        assert!(forget(&path, "h:1").expect("written") && !forget(&path, "h:1").expect("read"));
        assert_eq!(expected(&path, "h:1", None).expect("a file"), Expected::Unknown);
    }

    #[test]
    fn a_key_that_changes_is_refused_whatever_the_user_says() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("known_servers");
        let (a, b) = (key(), key());
        fs::write(&path, format!("# mine\nh:1 {a} # met in May")).expect("a file");
        let told = admit(&path, "h:1", b, Consent::Given).expect_err("another key");
        assert_eq!(exit::code(&told), 3);
        assert!(told.to_string().contains("known_servers:2"), "{told}");
        let told = expected(&path, "h:1", Some(b)).expect_err("another key");
        assert_eq!(exit::code(&told), 3);
        assert_eq!(expected(&path, "h:1", Some(a)).expect("the key"), Expected::Only(a));
        // The file has no line's end; comments stay.
        admit(&path, "[::1]:2", b, Consent::Given).expect("new");
        let text = fs::read_to_string(&path).expect("a file");
        assert_eq!(text, format!("# mine\nh:1 {a} # met in May\n[::1]:2  {b}\n"));
        assert_eq!(expected(&path, "x:1", Some(b)).expect("pinned"), Expected::Only(b));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let a = key();
        let text = format!("h:1 {a}\nh:1 {a}\nh {a}\nh:2\nh:3 key\n");
        let told = parse(Path::new("k"), &text).map(drop).expect_err("much is wrong").0;
        let lines: Vec<_> = told.lines().collect();
        assert_eq!(lines.len(), 4, "{told}");
        assert_eq!(lines[0], "k:2: h:1 is there already");
        assert_eq!(lines[1], "k:3: 'h' is not HOST:PORT");
        assert_eq!(lines[2], "k:4: a line is HOST:PORT and a key");
        assert!(lines[3].starts_with("k:5: a public key is"), "{told}");
    }
}
