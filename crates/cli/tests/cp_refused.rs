//! What `farhaul cp` says where it cannot do what is asked, and what it does nevertheless.

mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::copy::{Done, Place, WAYS, Way, bytes, names, place_or_skip};
use common::skip;
use serde_json::json;

const NOBODY: u32 = 65_534;

fn mode(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
}

/// Whether tests can be somebody without privileges, here and on the other host.
fn nobody() -> Result<(), String> {
    let id = Command::new("id").arg("-u").output().map_err(|error| error.to_string())?;
    if id.stdout.trim_ascii() != b"0" {
        return Err("only root can be somebody else".into());
    }
    let mut setpriv = Command::new("setpriv");
    setpriv.args(["--reuid=65534", "--clear-groups", env!("CARGO_BIN_EXE_farhaul"), "--version"]);
    match setpriv.output() {
        Ok(output) if output.status.success() => Ok(()),
        other => Err(format!("farhaul cannot be run by another user: {other:?}")),
    }
}

/// A copy by somebody without privileges: the side that matters is theirs.
fn unprivileged(place: &Place, way: Way, flags: &[&str], from: &str, to: &str) -> Done {
    let farhaul = env!("CARGO_BIN_EXE_farhaul");
    let home = place.text("far-home");
    let far = format!(
        "HOME={home}; export HOME; exec setpriv --reuid=65534 --clear-groups '{farhaul}' \"$@\""
    );
    let far = place.script("nobody", &far);
    let (from, to) = place.named(way, from, to);
    let mut command =
        place.command(&[&["cp", "--remote-farhaul", &far], flags, &[&from, &to]].concat());
    if way == Way::Local {
        command.uid(NOBODY);
    }
    Done::of(command)
}

#[test]
fn what_may_not_be_read_is_listed_and_the_rest_is_done() {
    let place = place_or_skip!();
    if let Err(why) = nobody() {
        skip!("{why}");
    }
    mode(place.path(""), 0o755);
    place.write("from/ok", "fine");
    place.write("from/secret", "no");
    place.write("from/large", bytes(3 << 20, 1));
    place.write("from/closed/f", "no");
    place.write("from/sub/ok", "fine");
    mode(place.path("from/secret"), 0o600);
    mode(place.path("from/large"), 0o600);
    mode(place.path("from/closed"), 0o700);
    for way in [Way::Local, Way::Pull, Way::Between] {
        let to = format!("to-{way:?}");
        place.write(format!("{to}/closed/old"), "stays: nobody knows whether the source has it");
        place.write(format!("{to}/old"), "goes");
        mode(place.path(&to), 0o777);
        mode(place.path(&to).join("closed"), 0o777);
        let done =
            unprivileged(&place, way, &["--delete", "--receipt", "r", "--json"], "from/", &to);
        let receipt = place.path("r");
        // Somebody else cannot write a receipt where this test is.
        let done = match way {
            Way::Local => unprivileged(&place, way, &["--delete", "--json"], "from/", &to),
            _ => done,
        };
        let done = done.code(5);
        for name in ["secret", "large", "closed"] {
            let told = done
                .errors
                .lines()
                .any(|line| line.contains(name) && line.contains("ermission denied"));
            assert!(told, "{way:?} {name}: {}", done.errors);
        }
        assert!(done.errors.contains("3 entries could not be copied"), "{}", done.errors);
        let report = done.json();
        assert_eq!((&report["ok"], &report["failed"]), (&false.into(), &3.into()), "{way:?}");
        assert_eq!(report["failures"].as_array().map(Vec::len), Some(3), "{way:?} {report}");
        let found = names(&place.path(&to));
        for name in ["ok", "sub/ok", "closed/old"] {
            assert!(found.contains(&name.to_owned()), "{way:?} {name}: {found:?}");
        }
        for name in ["secret", "large", "closed/f"] {
            assert!(!found.contains(&name.to_owned()), "{way:?} {name}: {found:?}");
        }
        if way != Way::Local {
            let receipt = fs::read(&receipt).expect("a receipt");
            let receipt: serde_json::Value = serde_json::from_slice(&receipt).expect("JSON");
            assert_eq!(
                (&receipt["complete"], &receipt["summary"]["failed"]),
                (&false.into(), &3.into())
            );
            assert_eq!(receipt["files"].as_array().map(Vec::len), Some(2), "{way:?}");
        }
    }
}

#[test]
fn what_may_not_be_written_or_deleted_is_listed() {
    let place = place_or_skip!();
    if let Err(why) = nobody() {
        skip!("{why}");
    }
    mode(place.path(""), 0o755);
    place.write("from/sub/f", "f");
    place.write("from/g", "g");
    fs::create_dir(place.path("ours")).expect("a directory");
    for way in [Way::Local, Way::Push, Way::Between] {
        let to = format!("to-{way:?}");
        // A directory of somebody else's in one that may be written to.
        place.write(format!("{to}/sub/old"), "cannot be deleted");
        mode(place.path(&to), 0o777);
        let done = unprivileged(&place, way, &["--delete"], "from/", &to).code(5);
        for name in ["sub/f", "sub/old"] {
            assert!(done.errors.contains(name), "{way:?} {name}: {}", done.errors);
        }
        assert!(done.errors.contains("not deleted"), "{way:?} {}", done.errors);
        assert_eq!(names(&place.path(&to)), ["g", "sub", "sub/old"], "{way:?}");
        // Nothing at all may be written.
        let done = unprivileged(&place, way, &[], "from/g", "ours");
        assert!(done.code == Some(5) && done.errors.contains("Permission denied"), "{done:?}");
        let done = unprivileged(&place, way, &[], "from/", "ours/new").code(1);
        assert!(done.errors.contains("Permission denied"), "{way:?} {}", done.errors);
        let dry = unprivileged(&place, way, &["-n"], "from/", "ours/new").code(1);
        assert!(dry.errors.contains("Permission denied"), "{way:?} {}", dry.errors);
    }
}

#[test]
fn what_is_below_a_directory_that_cannot_be_made_counts_as_failed() {
    let place = place_or_skip!();
    if let Err(why) = nobody() {
        skip!("{why}");
    }
    mode(place.path(""), 0o755);
    for name in ["g", "tree/a", "tree/b", "tree/sub/c"] {
        place.write(format!("from/{name}"), name);
    }
    fs::create_dir(place.path("ours")).expect("a directory");
    for way in [Way::Local, Way::Push, Way::Between] {
        let done = unprivileged(&place, way, &["--json"], "from/", "ours").code(5);
        let report = done.json();
        assert_eq!((&report["failed"], &report["moved_files"]), (&6.into(), &0.into()), "{report}");
        assert_eq!((&report["ok"], &report["verified"]), (&false.into(), &false.into()), "{way:?}");
        assert_eq!(report["failures"].as_array().map(Vec::len), Some(2), "{way:?} {report}");
        assert!(done.errors.contains("6 entries could not"), "{way:?} {}", done.errors);
        let done = unprivileged(&place, way, &[], "from/", "ours").code(5);
        assert!(!done.text().contains("on disk"), "{way:?} {}", done.text());
        // Everything was to go there.
        let done = unprivileged(&place, way, &["--json"], "from/tree", "ours").code(1);
        let error = done.json()["error"].to_string();
        assert!(error.contains("ours/tree: Permission denied"), "{way:?} {error}");
        assert!(names(&place.path("ours")).is_empty(), "{way:?}");
    }
}

#[test]
fn a_source_that_is_missing_keeps_no_other_back() {
    let place = place_or_skip!();
    place.write("one", "1");
    place.write("tree/two", "2");
    for way in WAYS {
        let to = format!("to-{way:?}");
        place.write(format!("{to}/old"), "stays: it may be in what is missing");
        let (_, target) = place.named(way, "", &to);
        let sources =
            ["one", "nowhere", "tree/", "missing/"].map(|name| place.named(way, name, "").0);
        let [one, nowhere, tree, missing] = sources.each_ref().map(String::as_str);
        let flags = ["--delete", "--json", "--receipt", "r"];
        let done = place.cp(&[&flags[..], &[one, nowhere, tree, missing, &target]].concat());
        let done = done.code(5);
        assert_eq!(names(&place.path(&to)), ["old", "one", "two"], "{way:?}");
        for name in ["nowhere: No such file", "missing/: No such file", "2 entries could not"] {
            assert_eq!(done.errors.matches(name).count(), 1, "{way:?} {name}: {}", done.errors);
        }
        let report = done.json();
        assert_eq!((&report["failed"], &report["moved_files"]), (&2.into(), &2.into()), "{way:?}");
        let receipt = fs::read(place.path("r")).expect("a receipt");
        let receipt: serde_json::Value = serde_json::from_slice(&receipt).expect("JSON");
        assert_eq!(receipt["complete"], false, "{way:?}");
        // If there is nothing else, it is no copy.
        let (odd, _) = place.named(way, "od\u{1b}[31md", "");
        let none = place.cp(&[nowhere, &odd, &target]).code(2);
        assert_eq!(none.errors.matches("No such file").count(), 1, "{way:?} {}", none.errors);
        let (pattern, _) = place.named(way, "*.dat", "");
        for (source, told) in [(&odd, "31md"), (&pattern, "patterns are not expanded")] {
            let none = place.cp(&[source, &target]).code(2);
            assert!(none.errors.contains(told), "{way:?} {}", none.errors);
            assert!(!none.errors.contains('\u{1b}'), "{way:?} names do not steer the terminal");
        }
    }
}

#[test]
fn a_directory_is_not_copied_into_itself() {
    let place = place_or_skip!();
    place.write("a/f", "f");
    place.write("a/b/g", "g");
    let before = common::copy::tree(&place.path("a"));
    for way in [Way::Local, Way::Push, Way::Pull] {
        for (from, to, told) in [
            ("a", "a", "into itself"),
            ("a", "a/b", "into itself"),
            ("a", "a/new", "into itself"),
            ("a/", "a/new", "into itself"),
            ("a", "", "onto itself"),
            ("a/", "a", "onto itself"),
        ] {
            let done = place.copy(way, &["--overwrite"], from, to).code(2);
            assert!(done.errors.contains(told), "{way:?} {from} {to}: {}", done.errors);
            assert_eq!(common::copy::tree(&place.path("a")), before, "{way:?} {from} {to}");
        }
        // Beside it, or where it is left out, is another matter.
        place.copy(way, &[], "a/b", &format!("b-{way:?}/")).well();
        place.copy(way, &["--exclude", "new"], "a/", "a/new").well();
        assert_eq!(names(&place.path("a/new")), ["b", "b/g", "f"], "{way:?}");
        fs::remove_dir_all(place.path("a/new")).expect("it was copied");
        fs::File::open(place.path("a"))
            .and_then(|a| {
                let known = &before[std::ffi::OsStr::new("")].modified;
                let since = Duration::new(known.0 as u64, known.1 as u32);
                a.set_modified(std::time::SystemTime::UNIX_EPOCH + since)
            })
            .expect("it is ours");
    }
}

#[test]
fn a_source_that_is_not_there_is_told_before_anything_begins() {
    let place = place_or_skip!();
    let touched = place.text("touched");
    let ssh = place.script("ssh-that-tells", &format!("touch {touched}; exit 1"));
    let done = place.cp(&["--ssh", &ssh, "nowhere", &place.far("to")]).code(2);
    assert!(done.errors.contains("nowhere"), "{}", done.errors);
    assert!(!Path::new(&touched).exists());
    place.cp(&["nowhere", "to"]).code(2);
    for to in [place.text("to"), place.far("to")] {
        let done = place.cp(&[&place.far("nowhere"), &to]).code(2);
        assert!(done.errors.contains("nowhere"), "{}", done.errors);
    }
    let report = place.cp(&["--json", &place.far("nowhere"), "to"]).code(2).json();
    assert_eq!(report["ok"], false);
    assert!(report["error"].as_str().is_some_and(|text| text.contains("nowhere")), "{report}");
    assert!(!place.path("to").exists());
}

#[test]
fn a_target_that_does_not_fit_is_told() {
    let place = place_or_skip!();
    place.write("from/name/f", "f");
    place.write("from/g", "g");
    for way in WAYS {
        let file = format!("file-{way:?}");
        place.write(&file, "a file");
        let done = place.copy(way, &[], "from", &file).code(2);
        assert!(done.errors.contains("no directory"), "{way:?} {}", done.errors);
        assert_eq!(fs::read(place.path(&file)).expect("a file"), b"a file");
        let above = place.copy(way, &[], "from/g", &format!("nowhere-{way:?}/below/it")).code(2);
        // By one side alone.
        assert_eq!(above.errors.matches("nowhere-").count(), 1, "{way:?} {}", above.errors);
        // Only one entry is in the way: the rest is done.
        let to = format!("to-{way:?}");
        place.write(format!("{to}/name"), "a file where a directory should be");
        let done = place.copy(way, &[], "from/", &to).code(5);
        assert!(done.errors.contains("name"), "{way:?} {}", done.errors);
        assert_eq!(names(&place.path(&to)), ["g", "name"], "{way:?}");
    }
}

#[test]
fn the_other_side_must_be_farhaul_of_this_protocol() {
    let place = place_or_skip!();
    place.write("f", "content");
    let real = env!("CARGO_BIN_EXE_farhaul");
    let to = place.far("there");
    let with = |far: &str| place.cp(&["--remote-farhaul", far, "f", &to]);
    let missing = with("/nowhere/farhaul").code(1);
    assert!(missing.errors.contains("install farhaul there"), "{}", missing.errors);
    let other = place.script(
        "other",
        "read line; echo 'FARHAUL1 {\"version\":\"9.8.7\",\"protocol\":99,\"more\":[]}'",
    );
    let other = with(&other).code(3);
    assert!(other.errors.contains("9.8.7"), "{}", other.errors);
    let wrong_key = place.script(
        "wrong-key",
        &format!(
            "'{real}' \"$@\" | sed -u 's/ed25519:[0-9a-f]*/ed25519:{}/'",
            "c7a16061e8e746ee39fe76b03f40016cd74eb1eef10fb6e4cffb0cefc023c5b0"
        ),
    );
    let wrong_key = with(&wrong_key).code(3);
    assert!(!place.path("there").exists());
    assert!(
        wrong_key.errors.contains("key") || wrong_key.errors.contains("authentic"),
        "{}",
        wrong_key.errors
    );
    // The right key, and another secret: the peer itself shows that it is not meant, and nothing is waited for.
    let wrong_secret = place.script(
        "wrong-secret",
        &format!(
            "sed -u 's/\"secret\":\"[0-9a-f]*/\"secret\":\"{}/' | '{real}' \"$@\"",
            "0".repeat(64)
        ),
    );
    let wrong_secret = with(&wrong_secret).code(3);
    assert!(!place.path("there").exists());
    assert!(!wrong_secret.errors.contains("trying again"), "{}", wrong_secret.errors);
    let silent = place.script("silent", "exit 7");
    let silent = with(&silent).code(1);
    assert!(silent.errors.contains("exit 7"), "{}", silent.errors);
    let noisy = place.script(
        "noisy",
        &format!("echo 'Welcome!'; echo; printf 'no line end'; echo; exec '{real}' \"$@\""),
    );
    with(&noisy).well();
    assert_eq!(fs::read(place.path("there")).expect("a file"), b"content");
    for (ssh, code, told) in [
        ("/nowhere/ssh", 1, "/nowhere/ssh"),
        ("'", 2, "no command"),
        ("sh -c 'exit 255'", 1, "its own message"),
    ] {
        let done = place.cp(&["--ssh", ssh, "f", &to]).code(code);
        assert!(done.errors.contains(told), "{ssh}: {}", done.errors);
    }
    let option = place.cp(&["f", "-oProxyCommand=touch x:there"]);
    assert_ne!(option.code, Some(0));
    assert!(!place.path("x").exists());
}

#[test]
fn data_goes_unsealed_only_if_both_sides_want_that() {
    let place = place_or_skip!();
    place.write("f", "content");
    for way in [Way::Push, Way::Pull, Way::Between] {
        let _ = fs::remove_file(place.path("far-home/.config/farhaul/config.toml"));
        let to = format!("there-{way:?}");
        let refused = place.copy(way, &["--plain"], "f", &to).code(3);
        assert!(refused.errors.contains("not encrypted"), "{way:?} {}", refused.errors);
        assert!(refused.errors.contains("plain = true"), "{way:?} {}", refused.errors);
        assert!(!place.path(&to).exists());
        place.write("far-home/.config/farhaul/config.toml", "plain = true\n");
        // That it is allowed there does not mean that it is wanted here.
        let sealed = place.copy(way, &["--json"], "f", &format!("{to}-sealed")).well();
        assert_eq!(sealed.json()["encrypted"], true, "{way:?}");
        assert!(!sealed.errors.contains("NOT ENCRYPTED"), "{way:?}");
        let plain = place.copy(way, &["--plain", "--json"], "f", &to).well();
        assert_eq!(plain.json()["encrypted"], false, "{way:?}");
        assert!(plain.errors.contains("NOT ENCRYPTED"), "{way:?} {}", plain.errors);
        assert_eq!(fs::read(place.path(&to)).expect("a file"), b"content");
    }
}

/// How much of a copy was under way when this line of `--json-stream` was written, bytes.
fn moved(line: &str) -> u64 {
    let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
    if line["event"] == "interval" { line["moved"].as_u64().expect("a number") } else { 0 }
}

#[test]
fn a_file_that_changes_once_arrives_as_it_is_then() {
    let place = place_or_skip!();
    for way in [Way::Push, Way::Pull] {
        let to = format!("to-{way:?}");
        let path = place.write("file", bytes(6 << 20, 1));
        let (from, target) = place.named(way, "file", &to);
        let running = place.start(&["cp", "--json-stream", "--rate", "16M", &from, &target]);
        // Some of it is under way, the rest is still to be read.
        running.wait_line_that(|line| moved(line) >= 1 << 20);
        let new = bytes((3 << 20) + 5, 2);
        fs::write(&path, &new).expect("a file");
        let ended = running.finish();
        assert_eq!(ended.code, Some(0), "{way:?} {ended:#?}");
        assert!(fs::read(place.path(&to)).expect("a file") == new, "{way:?}");
        let told = ended.errors.iter().any(|line| line.contains("sent again"));
        assert!(told, "{way:?} {ended:#?}");
    }
}

#[test]
fn a_file_that_always_changes_does_not_hold_up_the_rest() {
    let place = place_or_skip!();
    let path = place.write("from/changing", bytes(2 << 20, 1));
    place.write("from/ok", "fine");
    let over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            use std::io::Write;
            let mut file = fs::File::options().append(true).open(&path).expect("a file");
            // Until the copies are over, or it is larger than any test needs.
            for _ in 0..2_000_000 {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                file.write_all(b"more").expect("room");
            }
        });
        for way in [Way::Push, Way::Pull] {
            let to = format!("to-{way:?}");
            let done = place.copy(way, &[], "from/", &to);
            assert!(place.path(&to).join("ok").exists(), "{way:?} {done:?}");
            match done.code {
                Some(0) => assert!(place.path(&to).join("changing").exists()),
                Some(5) => {
                    assert!(done.errors.contains("changes all the time"), "{way:?} {done:?}");
                    assert!(!place.path(&to).join("changing").exists(), "{way:?}");
                }
                _ => panic!("{way:?} {done:?}"),
            }
        }
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_copy_that_was_interrupted_goes_on() {
    let place = place_or_skip!();
    let content = bytes(12 << 20, 1);
    place.write("file", &content);
    for way in WAYS {
        let to = format!("to-{way:?}");
        let (from, target) = place.named(way, "file", &to);
        let running = place.start(&["cp", "--json-stream", "--rate", "24M", &from, &target]);
        running.wait_line_that(|line| moved(line) >= 4 << 20);
        running.interrupt();
        let ended = running.finish();
        assert_eq!(ended.code, Some(130), "{way:?} {ended:#?}");
        let lost = ended.errors.iter().any(|line| line.contains("connection lost"));
        assert!(!lost, "{way:?} {ended:#?}");
        let end: serde_json::Value =
            serde_json::from_str(ended.lines.last().expect("an end")).expect("JSON");
        assert_eq!((&end["event"], &end["verified"]), (&"end".into(), &false.into()), "{way:?}");
        assert!(!place.path(&to).exists(), "{way:?}: under its name only when it is whole");
        let again = place.copy(way, &["--json", "--receipt", "r"], "file", &to).well().json();
        assert!(fs::read(place.path(&to)).expect("a file") == content, "{way:?}");
        assert!(again["resumed_bytes"].as_u64() > Some(0), "{way:?} {again}");
        let receipt = fs::read(place.path("r")).expect("a receipt");
        let receipt: serde_json::Value = serde_json::from_slice(&receipt).expect("JSON");
        let digest = blake3::hash(&content).to_hex().to_string();
        assert_eq!(receipt["files"][0]["digest"], digest, "{way:?} {receipt}");
        fs::remove_file(place.path("r")).expect("it is ours");
        let left: Vec<String> =
            names(&place.path("")).into_iter().filter(|name| name.contains(".farhaul-")).collect();
        assert!(left.is_empty(), "{way:?} {left:?}");
    }
}

/// The time of content can be set back: what was proved of the old content is not taken up.
#[test]
fn a_source_that_changed_between_two_runs_is_not_mixed_with_what_it_was() {
    let place = place_or_skip!();
    let (old, new) = (bytes(8 << 20, 1), bytes(8 << 20, 2));
    for (way, flag) in [(Way::Local, "-v"), (Way::Push, "--checksum"), (Way::Pull, "--overwrite")] {
        let to = format!("to-{way:?}");
        let path = place.write("file", &old);
        let time = fs::metadata(&path).and_then(|known| known.modified()).expect("a time");
        let (from, target) = place.named(way, "file", &to);
        let running = place.start(&["cp", "--json-stream", "--rate", "24M", &from, &target]);
        running.wait_line_that(|line| moved(line) >= 3 << 20);
        running.interrupt();
        assert_eq!(running.finish().code, Some(130), "{way:?}");
        let partial = |name: &String| name.ends_with(".part");
        assert!(names(&place.path("")).iter().any(partial), "{way:?}: nothing to take up");
        let mut file = fs::File::options().write(true).open(&path).expect("a file");
        std::io::Write::write_all(&mut file, &new).expect("room");
        file.set_modified(time).expect("it is ours");
        let report = place.copy(way, &["--json", flag], "file", &to).well().json();
        assert!(fs::read(place.path(&to)).expect("a file") == new, "{way:?} {report}");
        assert_eq!(report["resumed_bytes"], 0, "{way:?} {report}");
    }
}

#[test]
fn special_files_are_left_out_and_told() {
    let place = place_or_skip!();
    place.write("from/f", "f");
    let fifo = Command::new("mkfifo").arg(place.path("from/pipe")).status();
    assert!(fifo.expect("mkfifo").success());
    symlink("pipe", place.path("from/link")).expect("a link");
    for way in WAYS {
        let to = format!("to-{way:?}");
        let done = place.copy(way, &["--json"], "from/", &to).well();
        assert_eq!(names(&place.path(&to)), ["f", "link"], "{way:?}");
        assert!(done.errors.contains("left out pipe: named pipe"), "{way:?} {}", done.errors);
        assert_eq!(done.errors.matches("left out").count(), 1, "{way:?} {}", done.errors);
        let report = done.json();
        let told = (&report["skipped"], &report["left_out"]);
        assert_eq!(told, (&1.into(), &json!(["pipe: named pipe"])), "{way:?}");
        let quiet = place.copy(way, &["-q"], "from/", &to).well();
        assert_eq!(quiet.errors, "", "{way:?}");
        let closing = place.copy(way, &[], "from/", &to).well().text();
        assert_eq!(closing.matches("pipe: named pipe").count(), 1, "{way:?} {closing}");
    }
}

/// One that is named itself was to be copied, and was not.
#[test]
fn a_special_file_that_is_named_is_a_failure() {
    let place = place_or_skip!();
    let fifo = Command::new("mkfifo").arg(place.path("pipe")).status();
    assert!(fifo.expect("mkfifo").success());
    place.write("f", "f");
    for way in WAYS {
        let to = format!("to-{way:?}");
        fs::create_dir(place.path(&to)).expect("a directory");
        let done = place.copy(way, &["--json"], "pipe", &to).code(5).json();
        let counts = (&done["failed"], &done["ok"], &done["skipped"]);
        assert_eq!(counts, (&1.into(), &false.into(), &0.into()), "{way:?} {done}");
        assert_eq!(names(&place.path(&to)), [""; 0], "{way:?}");
    }
    place.cp(&["pipe", "f", "to"]).code(5);
    assert_eq!(names(&place.path("to")), ["f"]);
}

#[test]
fn a_file_that_is_left_out_for_its_name_is_a_failure() {
    let place = place_or_skip!();
    place.write("from/f", "f");
    let reserved =
        [".farhaul-0123456789abcdef.part", ".farhaul-2-1.journal", ".farhaul-x.unsynced"];
    for name in reserved {
        place.write(format!("from/{name}"), "what another copy has left");
    }
    for way in WAYS {
        let to = format!("to-{way:?}");
        let report = place.copy(way, &["--json"], "from/", &to).code(5).json();
        assert_eq!(names(&place.path(&to)), ["f"], "{way:?}");
        let told = (&report["failed"], &report["skipped"], &report["ok"]);
        assert_eq!(told, (&3.into(), &0.into(), &false.into()), "{way:?} {report}");
        let failures = report["failures"].to_string();
        assert!(reserved.iter().all(|name| failures.contains(name)), "{way:?} {failures}");
        // Unless it is meant.
        place.copy(way, &["--exclude", ".farhaul-*"], "from/", &to).well();
    }
}

/// No test may leave agents behind: they end with their copies.
#[test]
fn nobody_waits_after_an_error() {
    let place = place_or_skip!();
    place.write("f", "f");
    let began = std::time::Instant::now();
    place.cp(&["f", &place.far("nowhere/at/all")]).code(2);
    assert!(began.elapsed() < Duration::from_secs(60));
}
