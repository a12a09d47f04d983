//! What `farhaul cp` says that it has done, and has not.

mod common;

use std::fs;
use std::os::unix::fs::FileExt;

use common::copy::{WAYS, bytes, place_or_skip};
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
