//! Receipts of copies, and checking them.

mod common;

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::Command;

use common::copy::{Place, WAYS, Way, bytes, place_or_skip};
use serde_json::Value;

fn receipt(place: &Place, name: &str) -> Value {
    serde_json::from_slice(&fs::read(place.path(name)).expect("a receipt")).expect("JSON")
}

fn sources(place: &Place) {
    place.write("from/small", "small");
    place.write("from/empty", "");
    place.write("from/sub/large", bytes((3 << 20) + 7, 1));
    place.write(Path::new("from").join(std::ffi::OsStr::from_bytes(b"no\xfftext\n")), "odd");
    let sparse = fs::File::create(place.path("from/sparse")).expect("a file");
    sparse.set_len(64 << 20).expect("a sparse file");
    sparse.write_all_at(b"data", 33 << 20).expect("room");
}

#[test]
fn every_file_of_every_copy_has_its_digest() {
    let place = place_or_skip!();
    sources(&place);
    for way in WAYS {
        let to = format!("to-{way:?}");
        // Moved; then all but one the same.
        for moved in [5, 1] {
            place.copy(way, &["--receipt", "r"], "from/", &to).well();
            let receipt = receipt(&place, "r");
            assert_eq!(receipt["farhaul_receipt"], 1);
            assert_eq!(receipt["complete"], true, "{way:?}");
            let files = receipt["files"].as_array().expect("files");
            assert_eq!(files.len(), 5, "{way:?} {files:?}");
            let was_moved = files.iter().filter(|file| file["outcome"] == "moved").count();
            assert_eq!(was_moved, moved, "{way:?} {files:?}");
            for file in files {
                let path = file["path"].as_str().expect("a path");
                let digest = file["digest"].as_str().unwrap_or_else(|| panic!("{way:?} {file}"));
                let content = match path {
                    "sparse" => {
                        assert_eq!(file["hash"], "blake3-sparse", "{way:?}");
                        continue;
                    }
                    path if path.contains("text") => {
                        assert_eq!(file["path_hex"], "6e6fff746578740a", "{way:?}");
                        b"odd".to_vec()
                    }
                    path => fs::read(place.path("from").join(path)).expect("a file"),
                };
                assert_eq!(file["hash"], "blake3", "{way:?}");
                assert_eq!(digest, blake3::hash(&content).to_hex().as_str(), "{way:?} {path}");
            }
            let verified = place.run(&["verify", "--json", "r", &to]).well().json();
            assert_eq!(
                (&verified["ok"], &verified["same"], &verified["complete"]),
                (&true.into(), &5.into(), &true.into()),
                "{way:?} {verified}"
            );
            fs::write(place.path(&to).join("small"), "other").expect("a file");
            fs::File::open(place.path(&to).join("small"))
                .and_then(|f| f.set_modified(std::time::SystemTime::UNIX_EPOCH))
                .expect("it is ours");
        }
    }
}

#[test]
fn what_has_changed_since_is_found() {
    let place = Place::here();
    sources(&place);
    place.cp(&["--receipt", "r", "from", "into/"]).well();
    let well = place.run(&["verify", "r", "into"]).well();
    assert!(well.text().contains("5 files are the same"), "{}", well.text());
    assert_eq!(place.run(&["verify", "-q", "r", "into"]).well().text(), "");
    let at = |name: &str| place.path("into/from").join(name);
    fs::remove_file(at("empty")).expect("it is there");
    fs::write(at("small"), "longer than before").expect("a file");
    let large = fs::File::options().write(true).open(at("sub/large")).expect("a file");
    large.write_all_at(b"x", 2 << 20).expect("room");
    let sparse = fs::File::options().write(true).open(at("sparse")).expect("a file");
    sparse.write_all_at(b"y", 50 << 20).expect("room");
    let done = place.run(&["verify", "r", "into"]).code(4);
    for line in [
        "from/empty: missing",
        "from/small: has 18 bytes, had 5",
        "from/sub/large: its content differs",
        "from/sparse: its content differs",
    ] {
        assert!(done.text().contains(line), "{line}: {}", done.text());
    }
    assert!(done.errors.contains("4 files are not what"), "{}", done.errors);
    let report = place.run(&["verify", "--json", "r", "into"]).code(4).json();
    let number = |name: &str| report[name].as_u64();
    assert_eq!(
        ["same", "missing", "differ", "unreadable"].map(number),
        [Some(1), Some(1), Some(3), Some(0)]
    );
    assert_eq!(report["problems"].as_array().map(Vec::len), Some(4));
    // A link to the same content is not the file, and nothing outside counts.
    fs::rename(at("sub"), place.path("moved")).expect("a rename");
    symlink(place.path("moved"), at("sub")).expect("a link");
    let report = place.run(&["verify", "--json", "r", "into"]).code(4).json();
    assert_eq!((&report["missing"], &report["differ"]), (&1.into(), &3.into()), "{report}");
}

#[test]
fn what_stands_in_place_of_a_file_is_told() {
    let place = Place::here();
    for name in ["from/link", "from/pipe", "from/directory", "from/same"] {
        place.write(name, "content");
    }
    place.cp(&["--receipt", "r", "from/", "into"]).well();
    for name in ["link", "pipe", "directory"] {
        fs::remove_file(place.path("into").join(name)).expect("it was copied");
    }
    symlink("same", place.path("into/link")).expect("a link");
    fs::create_dir(place.path("into/directory")).expect("a directory");
    for name in ["into/pipe", "receipt-pipe"] {
        let fifo = Command::new("mkfifo").arg(place.path(name)).status();
        assert!(fifo.expect("mkfifo").success());
    }
    let done = place.run(&["verify", "r", "into"]).code(4);
    for line in ["link: is a symbolic link", "pipe: is a named pipe", "directory: is a directory"] {
        assert!(done.text().contains(line), "{line}: {}", done.text());
    }
    assert!(done.text().contains("1 file is the same (7 B); 3 differ"), "{}", done.text());
    let report = place.run(&["verify", "--json", "r", "into"]).code(4).json();
    assert_eq!((&report["differ"], &report["missing"]), (&3.into(), &0.into()), "{report}");
    let problems = report["problems"].as_array().expect("problems");
    assert!(problems.iter().all(|problem| problem["problem"] == "kind"), "{report}");
    // To which nobody writes.
    for (receipt, told) in [("receipt-pipe", "named pipe"), ("nowhere", "No such file")] {
        let done = place.run(&["verify", "--json", receipt, "into"]).code(2);
        let report = done.json();
        let error = report["error"].as_str().expect("a reason");
        assert!(report["ok"] == false && error.contains(told), "{report}");
    }
}

#[test]
fn receipts_lead_nowhere_else_and_bad_ones_are_told() {
    let place = Place::here();
    place.write("secret", "s");
    fs::create_dir(place.path("dir")).expect("a directory");
    let digest = blake3::hash(b"s").to_hex();
    for path in ["../secret", "/etc/hostname", "dir/../../secret", "", "."] {
        let file = serde_json::json!({ "path": path, "size": 1, "digest": digest.as_str() });
        let whole = serde_json::json!({ "farhaul_receipt": 1, "files": [file], "complete": true });
        place.write("r", whole.to_string());
        let report = place.run(&["verify", "--json", "r", "dir"]).code(4).json();
        assert_eq!(report["same"], 0, "{path}: {report}");
        assert_eq!(report["missing"].as_u64().max(report["differ"].as_u64()), Some(1), "{path}");
    }
    for (text, told) in [
        ("", "no receipt"),
        ("{\"farhaul_receipt\":1,\"files\":[", "no receipt"),
        ("{\"farhaul_receipt\":7}", "form 7"),
        (
            "{\"farhaul_receipt\":1,\"files\":[{\"path\":\"x\",\"size\":1,\"digest\":\"zz\"}]}",
            "no digest",
        ),
    ] {
        place.write("bad", text);
        let done = place.run(&["verify", "bad", "dir"]).code(2);
        assert!(done.errors.contains(told), "{text}: {}", done.errors);
    }
    place.run(&["verify", "nowhere", "dir"]).code(2);
    place.run(&["verify", "r", "nowhere"]).code(2);
}

#[test]
fn a_single_file_is_checked_under_any_name() {
    let place = place_or_skip!();
    place.write("f", "content");
    for way in [Way::Push, Way::Pull] {
        let to = format!("renamed-{way:?}");
        place.copy(way, &["--receipt", "r"], "f", &to).well();
        place.run(&["verify", "r", &to]).well();
        fs::write(place.path(&to), "c0ntent").expect("a file");
        place.run(&["verify", "r", &to]).code(4);
    }
    place.write("g", "g");
    place.cp(&["--receipt", "r", "f", "g", "two/"]).well();
    let several = place.run(&["verify", "r", "two/f"]).code(2);
    assert!(several.errors.contains("name the directory"), "{}", several.errors);
}

#[test]
fn without_digests_only_sizes_are_compared_and_that_is_told() {
    let place = Place::here();
    place.write("from/f", "content");
    place.write("from/kept", "new");
    place.write("to/kept", "older");
    let flags = ["--verify", "none", "--skip-existing", "--receipt", "r", "from/", "to"];
    place.cp(&flags).well();
    let done = place.run(&["verify", "r", "to"]).well();
    for text in ["1 file is the same", "1 without a digest", "1 not checked"] {
        assert!(done.text().contains(text), "{text}: {}", done.text());
    }
    // In a place where nothing can be written, before anything is copied.
    for (receipt, told) in [
        ("nowhere/r", "receipt nowhere/r: there is no directory nowhere"),
        ("to", "receipt to: it is a directory"),
        ("/dev/null", "receipt /dev/null: it is no regular file"),
    ] {
        let done = place.cp(&["--receipt", receipt, "from/", "new"]).code(2);
        assert!(done.errors.contains(told), "{}", done.errors);
        assert!(!place.path("new").exists());
    }
}

/// Who has b3sum needs no farhaul.
#[test]
fn b3sum_prints_the_digests() {
    let place = Place::here();
    place.write("from/f", bytes((2 << 20) + 3, 1));
    place.cp(&["--receipt", "r", "from/", "to"]).well();
    let output = match Command::new("b3sum").arg("--no-names").arg(place.path("to/f")).output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        // The same function by the reference implementation.
        Err(_) => blake3::hash(&fs::read(place.path("to/f")).expect("a file")).to_hex().to_string(),
    };
    assert_eq!(receipt(&place, "r")["files"][0]["digest"], output);
}
