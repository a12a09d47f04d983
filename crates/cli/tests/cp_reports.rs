//! What `farhaul cp` says that it has done, and has not.

mod common;

use std::fs;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

use common::copy::{Done, Place, WAYS, bytes, place_or_skip};
use common::copying::{Scene, make_file, wait_until};
use serde_json::{Value, json};

/// These members of a report.
fn of<const N: usize>(report: &Value, names: [&str; N]) -> [Value; N] {
    names.map(|name| report[name].clone())
}

#[test]
fn only_what_this_command_has_compared_is_verified() {
    let place = place_or_skip!();
    place.write("from/f", "content");
    let members = ["moved_files", "same_files", "verified", "on_disk", "same_by"];
    for way in WAYS {
        let to = format!("to-{way:?}");
        let first = place.copy(way, &["--json"], "from/", &to).well().json();
        let expected = [json!(1), json!(0), json!(true), json!(true), json!(null)];
        assert_eq!(of(&first, members), expected, "{way:?}");
        // By size and time, whatever is in it.
        let file = fs::File::options().write(true).open(place.path(&to).join("f")).expect("it");
        let time = file.metadata().and_then(|data| data.modified()).expect("a time");
        file.write_all_at(b"C", 0).expect("it is ours");
        file.set_modified(time).expect("it is ours");
        let again = place.copy(way, &["--json"], "from/", &to).well().json();
        let expected = [json!(0), json!(1), json!(false), json!(false), json!("size_and_time")];
        assert_eq!(of(&again, members), expected, "{way:?}");
        let told = place.copy(way, &[], "from/", &to).well().text();
        assert!(!told.contains("verified") && !told.contains("on disk"), "{way:?} {told}");
        place.copy(way, &["--checksum"], "from/", &to).well();
        let compared = place.copy(way, &["--checksum", "--json"], "from/", &to).well().json();
        let expected = [json!(0), json!(1), json!(true), json!(false), json!("digest")];
        assert_eq!(of(&compared, members), expected, "{way:?}");
        let kept = place.copy(way, &["--skip-existing", "--json"], "from/", &to).well().json();
        let expected = [json!(0), json!(1), json!(false), json!(false), json!("name")];
        assert_eq!(of(&kept, members), expected, "{way:?}");
    }
    // Standard output is no disk.
    let out = place.cp(&["--no-progress", &place.far("from/f"), "-"]).well();
    assert!(out.errors.contains("verified") && !out.errors.contains("disk"), "{}", out.errors);
}

/// `farhaul cp` from and to there, where no file system takes what was written.
fn without_syncfs(place: &Place, args: &[&str]) -> Done {
    let inner = place.command(&[&["cp"], args].concat());
    let mut command = Command::new("strace");
    command.args(["-f", "--seccomp-bpf", "-qqq", "-o", "/dev/null", "-e", "trace=syncfs"]);
    command.args(["-e", "inject=syncfs:error=EIO", "--"]);
    command.arg(inner.get_program()).args(inner.get_args()).stdin(Stdio::null());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    Done::of(command)
}

/// What a copy that failed has left a mark for is compared, and the rest is known by size and time.
#[test]
fn what_a_mark_covers_and_the_rest_are_known_by_different_signs() {
    let place = Place::here();
    if !farhaul_faults::run::has("strace") {
        common::skip!("no strace");
    }
    let [a, b, to] = ["from/a", "from/b", "to/"].map(|name| place.text(name));
    place.write("from/a", "a");
    place.write("from/b", "b");
    fs::create_dir(place.path("to")).expect("a directory");
    place.cp(&[&a, &to]).well();
    let failed = without_syncfs(&place, &["--json", &b, &to]);
    assert_eq!(failed.code, Some(1), "{}", failed.errors);
    let report = place.cp(&["--json", &a, &b, &to]).well().json();
    let members = ["same_by", "same_files", "compared_files", "kept_files", "moved_files"];
    let expected = [json!("mixed"), json!(2), json!(1), json!(0), json!(0)];
    assert_eq!(of(&report, members), expected, "{report}");
    // The mark goes with the copy that had left it.
    place.cp(&[&b, &to]).well();
    let report = place.cp(&["--json", &a, &b, &to]).well().json();
    assert_eq!(report["same_by"], "size_and_time", "{report}");
}

/// The advice is at the end of a text of the far side, which comes whole however long the path in it is.
#[test]
fn a_long_text_of_the_far_side_comes_whole() {
    let place = place_or_skip!();
    place.write("from/f", "content");
    let to = format!("{}/{}/deep/", "x".repeat(200), "y".repeat(200));
    let said = WAYS.map(|way| {
        let report = place.copy(way, &["--json"], "from/f", &to).code(2).json();
        report["error"].as_str().expect("a text").to_owned()
    });
    let here = said[0].as_str();
    assert!(here.len() > 400 && said.iter().all(|text| text.ends_with(here)), "{said:#?}");
}

#[test]
fn rates_count_no_holes() {
    let place = place_or_skip!();
    let content = bytes(1 << 20, 3);
    place.write("from/sparse", "");
    let file = fs::File::options().write(true).open(place.path("from/sparse")).expect("a file");
    file.set_len(1 << 30).expect("a hole");
    file.write_all_at(&content, 512 << 20).expect("it is ours");
    for way in WAYS {
        let to = format!("to-{way:?}");
        let report = place.copy(way, &["--json"], "from/", &to).well().json();
        assert_eq!(
            of(&report, ["moved_bytes", "data_bytes"]),
            [json!(1_u64 << 30), json!(1 << 20)]
        );
        let number = |name: &str| report[name].as_f64().expect("a number");
        let rate = number("data_bytes") * 8.0 / number("seconds");
        assert!((number("bits_per_second") - rate).abs() <= rate / 1e6, "{way:?} {report}");
    }
}

/// The second of two copies into one file says that it waits, and ends well with the same content.
#[test]
fn a_second_copy_into_the_same_file_says_that_it_waits() {
    let _turn = common::turn();
    let scene = match Scene::new() {
        Ok(scene) => scene,
        Err(why) => common::skip!("{why}"),
    };
    make_file(&scene.path("file"), 12 << 20, 3);
    fs::create_dir(scene.path("to")).expect("a directory");
    let (from, to) = (scene.here("file"), scene.here("to/copy"));
    let first = scene.start(&["--json", "--rate", "12M", &from, &to]);
    let begun = || fs::read_dir(scene.path("to")).is_ok_and(|mut entries| entries.next().is_some());
    wait_until("the first has begun", begun);
    let second = scene.start(&["--json", &from, &to]);
    second.wait_error_line("another copy is writing it");
    for ended in [first.finish_well(), second.finish_well()] {
        assert_eq!(ended.json()["ok"], true, "{ended:#?}");
    }
    let [sent, came] = ["file", "to/copy"].map(|name| fs::read(scene.path(name)).expect(name));
    assert!(sent == came, "the copy differs");
}
