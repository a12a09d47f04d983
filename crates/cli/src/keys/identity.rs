//! The user's own key in its file: PKCS #8 as PEM, for the user alone.

use std::io::{self, Read};
use std::path::Path;

use anyhow::Context;
use farhaul_secure::Identity;
use pem_rfc7468::LineEnding;
use zeroize::Zeroizing;

use super::store;
use super::strict::{self, Guard};
use crate::exit::Usage;

/// Its name among farhaul's files of a user.
pub const FILE: &str = "identity";
/// What the PEM of a private key is labelled with (RFC 7468 §10).
const LABEL: &str = "PRIVATE KEY";
/// No key is longer as PEM, bytes.
const LONGEST: u64 = 4096;

/// The key in the file at `path`.
///
/// # Errors
/// There is no such file, it is open to others, or it holds no key: what to do about it.
pub fn load(path: &Path) -> Result<Identity, Usage> {
    let shown = path.display();
    let mut file = strict::open(path, Guard::Secret)?.ok_or_else(|| {
        Usage(format!("there is no identity in {shown}; make one with: farhaul key new"))
    })?;
    let unreadable = |error: io::Error| Usage(format!("cannot read {shown}: {error}"));
    // Room for all of it at once: what grows leaves copies behind.
    let mut pem = Zeroizing::new(Vec::with_capacity(LONGEST as usize + 1));
    file.by_ref().take(LONGEST + 1).read_to_end(&mut pem).map_err(unreadable)?;
    let none = || {
        Usage(format!(
            "{shown} holds no identity: it must be an Ed25519 key in PKCS #8, as PEM; \
             farhaul key new --force puts a new one in its place"
        ))
    };
    let (label, secret) = pem_rfc7468::decode_vec(&pem).map_err(|_| none())?;
    let secret = Zeroizing::new(secret);
    if label != LABEL || pem.len() as u64 > LONGEST {
        return Err(none());
    }
    Identity::from_pkcs8(&secret).map_err(|_| none())
}

/// Makes a new key and writes it to the file at `path`. Only with `force` one that is there already
/// is replaced.
///
/// # Errors
/// There is a file, or it cannot be written; then nothing has changed.
pub fn create(path: &Path, force: bool) -> anyhow::Result<Identity> {
    let identity = Identity::generate()?;
    let pem = pem_rfc7468::encode_string(LABEL, LineEnding::LF, identity.pkcs8());
    let pem = Zeroizing::new(pem.context("the new key cannot be written as PEM")?);
    store::write_new(path, pem.as_bytes(), 0o600, force).map_err(|error| {
        let shown = path.display();
        match error.kind() {
            io::ErrorKind::AlreadyExists => anyhow::Error::from(Usage(format!(
                "{shown} is there already; --force replaces it, and whoever knows the old key \
                 will not know you any more"
            ))),
            _ => anyhow::Error::from(error).context(format!("cannot write {shown}")),
        }
    })?;
    Ok(identity)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    #[test]
    fn a_key_is_kept_for_the_user_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("deep/er/identity");
        let made = create(&path, false).expect("a key");
        assert_eq!(load(&path).expect("the key").public_key(), made.public_key());
        assert_eq!(fs::metadata(&path).expect("a file").mode() & 0o777, 0o600);
        let again = create(&path, false).expect_err("it is there");
        assert!(again.downcast_ref::<Usage>().is_some_and(|told| told.0.contains("--force")));
        assert_eq!(load(&path).expect("the key").public_key(), made.public_key());
        let new = create(&path, true).expect("a key");
        assert_ne!(new.public_key(), made.public_key());
        assert_eq!(load(&path).expect("the key").public_key(), new.public_key());
        assert_eq!(fs::read_dir(dir.path().join("deep/er")).expect("files").count(), 1);
    }

    #[test]
    fn with_force_a_link_stays_a_link() {
        let dir = tempfile::tempdir().expect("a directory");
        let (link, file) = (dir.path().join("identity"), dir.path().join("elsewhere"));
        create(&file, false).expect("a key");
        std::os::unix::fs::symlink(&file, &link).expect("a link");
        let new = create(&link, true).expect("a key");
        assert!(link.is_symlink());
        assert_eq!(load(&file).expect("the key").public_key(), new.public_key());
    }

    #[test]
    fn what_is_open_to_others_is_refused_with_the_remedy() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("identity");
        create(&path, false).expect("a key");
        for mode in [0o640, 0o604, 0o620] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("a mode");
            let told = load(&path).expect_err("it is open").0;
            assert!(told.ends_with(&format!("chmod 600 {}", path.display())), "{told}");
        }
    }

    #[test]
    fn what_holds_no_key_is_refused_and_not_shown() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("identity");
        assert!(load(&path).is_err_and(|told| told.0.contains("farhaul key new")));
        assert!(load(dir.path()).is_err());
        let label = |label| pem_rfc7468::encode_string(label, LineEnding::LF, b"secret");
        let identity = Identity::generate().expect("a key");
        let other = pem_rfc7468::encode_string("KEY", LineEnding::LF, identity.pkcs8());
        for text in [
            "secret".to_owned(),
            String::new(),
            label(LABEL).expect("PEM"),
            other.expect("PEM"),
            "s".repeat(10_000),
        ] {
            store::write_new(&path, text.as_bytes(), 0o600, true).expect("a file");
            let told = load(&path).expect_err("it is no key").0;
            assert!(told.contains("holds no identity") && !told.contains("secret "), "{told}");
        }
    }
}
