//! `farhaul key` in a home of its own.

mod common;

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use common::home::Home;
use serde_json::Value;

fn is_public_key(text: &str) -> bool {
    let digits = text.strip_prefix("ed25519:");
    digits.is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit()))
}

#[test]
fn a_key_is_made_once_and_shown() {
    let home = Home::new();
    let told = home.run(&["key", "show"]).refused(2);
    assert!(told.contains("farhaul key new"), "{told}");
    let key = home.run(&["key", "new"]).well();
    assert!(is_public_key(key.trim_end()), "{key}");
    let mode = |name: &str| fs::metadata(home.path(name)).expect(name).mode() & 0o777;
    assert_eq!((mode("identity"), mode("")), (0o600, 0o700));
    assert_eq!(home.run(&["key", "show"]).well(), key);
    let told = home.run(&["key", "new"]).refused(2);
    assert!(told.contains("--force") && told.contains("identity"), "{told}");
    assert_eq!(home.run(&["key", "show"]).well(), key, "it is the same as before");
    let shown: Value = serde_json::from_str(&home.run(&["key", "show", "--json"]).well()).unwrap();
    assert_eq!(shown["public_key"], key.trim_end());
    assert_eq!(shown["file"], home.path("identity").to_str().unwrap());
    let new = home.run(&["key", "new", "--force"]).well();
    assert!(is_public_key(new.trim_end()) && new != key);
}

#[test]
fn no_command_prints_the_secret() {
    let home = Home::new();
    let mut printed = home.run(&["key", "new", "--json"]).well();
    let pem = home.read("identity");
    for args in [&["key", "show"][..], &["key", "show", "--json"], &["key", "list"]] {
        printed += &home.run(args).well();
    }
    printed += &home.run(&["key", "new"]).refused(2);
    let secret: Vec<_> = pem.lines().filter(|line| !line.starts_with('-')).collect();
    assert!(!secret.is_empty());
    for line in secret {
        assert!(!printed.contains(line));
    }
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    let home = Home::new();
    home.run(&["key", "new"]).well();
    let path = home.path("identity");
    fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("a mode");
    let told = home.run(&["key", "show"]).refused(2);
    assert!(told.trim_end().ends_with(&format!("chmod 600 {}", path.display())), "{told}");
    fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("a mode");
    home.write("identity", "no key");
    let told = home.run(&["key", "show"]).refused(2);
    assert!(told.contains("holds no identity") && !told.contains("no key\n"), "{told}");
}

#[test]
fn keys_are_allowed_listed_and_revoked() {
    let home = Home::new();
    let key = |name: &str| {
        let file = home.path(name);
        let key = home.run(&["key", "new", "--into", file.to_str().expect("a text")]).well();
        key.trim_end().to_owned()
    };
    let (a, b) = (key("a"), key("b"));
    assert_eq!(home.run(&["key", "list"]).well(), "");
    let done = home.run(&["key", "allow", &a, "--name", "alice", "--limit", "rate=1G"]).well();
    assert_eq!(done, format!("allowed alice ({a})\n"));
    home.run(&["key", "allow", &b, "--name", "bob"]).well();
    assert_eq!(home.read("allowed_keys"), format!("{a}  alice  rate=1G\n{b}  bob\n"));
    let again = home.run(&["key", "allow", &b, "--name", "bob"]).well();
    assert!(again.contains("already"), "{again}");
    let told = home.run(&["key", "allow", &a, "--name", "carol"]).refused(2);
    assert!(told.contains("already, as 'alice'"), "{told}");
    let told = home.run(&["key", "allow", &a, "--name", "a b"]).refused(2);
    assert!(told.contains("'a b' is no name"), "{told}");
    let told = home.run(&["key", "allow", "ed25519:12", "--name", "x"]).refused(2);
    assert!(told.contains("64 hexadecimal digits"), "{told}");
    let told = home.run(&["key", "allow", &a, "--name", "x", "--limit", "rte=1"]).refused(2);
    assert!(told.contains("did you mean 'rate'?"), "{told}");
    let listed = home.run(&["key", "list", "--json"]).well();
    let listed: Vec<Value> = serde_json::from_str(&listed).expect("JSON");
    assert_eq!(
        (&listed[0]["name"], &listed[1]["public_key"]),
        (&"alice".into(), &b.clone().into())
    );
    assert_eq!(listed[0]["limits"]["rate_bits_per_second"], 1_000_000_000);
    let done = home.run(&["key", "revoke", "alice"]).well();
    assert_eq!(done, format!("revoked alice ({a})\n"));
    assert!(home.run(&["key", "revoke", &a]).refused(2).contains("neither"));
    let allowed = home.run(&["key", "allow", &a, "--name", "alice", "--json"]).well();
    let allowed: Value = serde_json::from_str(&allowed).expect("JSON");
    assert_eq!((&allowed["done"], &allowed["public_key"]), (&"allowed".into(), &a.clone().into()));
    let revoked = home.run(&["key", "revoke", &a, "--json"]).well();
    let revoked: Value = serde_json::from_str(&revoked).expect("JSON");
    assert_eq!((&revoked["done"], &revoked["name"]), (&"revoked".into(), &"alice".into()));
    assert_eq!(home.run(&["key", "list"]).well(), home.read("allowed_keys"));
}

#[test]
fn without_a_home_a_file_must_be_named() {
    let home = Home::new();
    let nowhere = [("HOME", ""), ("XDG_CONFIG_HOME", "")];
    assert!(home.run_with(&["key", "show"], &nowhere).refused(2).contains("HOME"));
    let file = home.path("mine");
    let file = file.to_str().expect("a text");
    let key = home.run_with(&["key", "new", "--into", file], &nowhere).well();
    assert_eq!(home.run_with(&["key", "show", "--identity", file], &nowhere).well(), key);
}

/// Whoever opens a pipe waits for somebody who writes.
#[test]
fn nothing_waits_at_a_pipe() {
    let home = Home::new();
    home.run(&["key", "new"]).well();
    let pipe = home.path("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
    assert!(made.success());
    let pipe = pipe.to_str().expect("a text");
    for args in [
        &["key", "show", "--identity", pipe][..],
        &["key", "list", "--from", pipe],
        &["serve", "--check", "--config", pipe],
    ] {
        let told = home.run(args).refused(2);
        assert!(told.contains("is no regular file"), "{told}");
    }
    let told = home.run_with(&["config", "show"], &[("FARHAUL_CONFIG", pipe)]).refused(2);
    assert!(told.contains("is no regular file"), "{told}");
}
