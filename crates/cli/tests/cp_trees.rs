//! What of a tree arrives, whichever way it is copied.

mod common;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use common::copy::{Place, WAYS, Way, bytes, names, place_or_skip, tree};
use common::{long, skip};

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
}

fn touch(path: &Path, seconds_ago: u64) {
    let time = SystemTime::now() - Duration::from_secs(seconds_ago);
    let file = fs::File::open(path).expect("it is there");
    file.set_times(fs::FileTimes::new().set_modified(time).set_accessed(time)).expect("it is ours");
}

/// Names, kinds, modes and times of every sort.
fn odd_tree(place: &Place, top: &str) {
    let top = Path::new(top);
    for (n, name) in
        ["naïve ☃.txt", "-rf", "line\nbreak", "sp ace", "*?[a]", "'\"$x`\\", "a:b", "~"]
            .iter()
            .enumerate()
    {
        place.write(top.join(name), format!("content {n}"));
    }
    place.write(top.join(OsStr::from_bytes(b"no\xff\xfetext")), "x");
    place.write(top.join("n".repeat(255)), "the longest name");
    place.write(top.join("empty"), "");
    place.write(top.join("one-chunk"), bytes(1 << 20, 1));
    place.write(top.join("chunk-and-one"), bytes((1 << 20) + 1, 2));
    place.write(top.join("large"), bytes(5 << 20, 3));
    let top = place.path(top);
    fs::create_dir_all(top.join("hollow/hollower")).expect("a directory");
    fs::create_dir(top.join("-dir")).expect("a directory");
    for (text, name) in [
        ("nowhere/at/all", "dangling"),
        ("hollow", "to-directory"),
        ("/etc/hostname", "absolute"),
        ("../../../..", "up"),
        ("hollow/", "with-slash"),
    ] {
        symlink(text, top.join(name)).expect("a link");
    }
    mode(&top.join("-rf"), 0o400);
    mode(&top.join("empty"), 0o000);
    mode(&top.join("large"), 0o751);
    place.write(top.join("read-only/sub/file"), "in a directory that nobody writes to");
    mode(&top.join("hollow"), 0o710);
    for (ago, name) in [(1_000_000_000, "large"), (86_400, "sp ace"), (5_000, "hollow/hollower")] {
        touch(&top.join(name), ago);
    }
    // In the future, as after a clock was set back.
    let ahead = SystemTime::now() + Duration::from_secs(400 * 86_400);
    let file = fs::File::open(top.join("one-chunk")).expect("a file");
    file.set_times(fs::FileTimes::new().set_modified(ahead)).expect("it is ours");
    for name in ["read-only/sub", "read-only", "hollow", ""] {
        touch(&top.join(name), 77_777);
    }
    mode(&top.join("read-only/sub"), 0o555);
    mode(&top.join("read-only"), 0o500);
}

#[test]
fn odd_names_modes_times_and_links_arrive_every_way() {
    let place = place_or_skip!();
    odd_tree(&place, "from");
    let wanted = tree(&place.path("from"));
    for way in WAYS {
        let to = format!("to-{way:?}");
        fs::create_dir(place.path(&to)).expect("a directory");
        place.copy(way, &[], "from", &to).well();
        let found = tree(&place.path(&to).join("from"));
        for (path, known) in &wanted {
            let same = found.get(path) == Some(known);
            assert!(same, "{way:?} {path:?}: {known:?} is {:?}", found.get(path));
        }
        assert_eq!(found.len(), wanted.len(), "{way:?}");
        // Again: nothing is to be done, not even in directories that are read-only.
        let again = place.copy(way, &["--json"], "from", &to).well().json();
        assert_eq!(
            (&again["moved_files"], &again["moved_bytes"], &again["failed"]),
            (&0.into(), &0.into(), &0.into()),
            "{way:?} {again}"
        );
        assert_eq!(tree(&place.path(&to).join("from")), wanted, "{way:?}");
    }
}

#[test]
fn a_slash_means_the_contents_and_a_file_may_get_a_new_name() {
    let place = place_or_skip!();
    place.write("from/a/f", "f");
    place.write("from/b", "b");
    for way in WAYS {
        let to = |name: &str| format!("{way:?}-{name}");
        for target in ["into", "trailing", "old"] {
            fs::create_dir(place.path(to(target))).expect("a directory");
        }
        place.copy(way, &[], "from", &to("into")).well();
        assert_eq!(names(&place.path(to("into"))), ["from", "from/a", "from/a/f", "from/b"]);
        place.copy(way, &[], "from/", &to("contents")).well();
        assert_eq!(names(&place.path(to("contents"))), ["a", "a/f", "b"]);
        place.copy(way, &[], "from/.", &to("dot")).well();
        assert_eq!(names(&place.path(to("dot"))), ["a", "a/f", "b"]);
        place.copy(way, &[], "from", &to("new/")).well();
        assert_eq!(names(&place.path(to("new"))), ["from", "from/a", "from/a/f", "from/b"]);
        place.copy(way, &[], "from/b", &to("renamed")).well();
        assert_eq!(fs::read(place.path(to("renamed"))).expect("a file"), b"b");
        place.copy(way, &[], "from/b", &to("old")).well();
        place.copy(way, &[], "from/b", &format!("{}/", to("trailing"))).well();
        for directory in ["old", "trailing"] {
            assert_eq!(names(&place.path(to(directory))), ["b"], "{way:?} {directory}");
        }
    }
}

#[test]
fn several_sources_go_into_one_directory() {
    let place = place_or_skip!();
    place.write("from/a/f", "f");
    place.write("from/b", "b");
    place.write("from/c/g", "g");
    let wanted = ["a", "a/f", "b", "g"];
    let sources = |far: bool| {
        ["from/a", "from/b", "from/c/"]
            .map(|name| if far { place.far(name) } else { place.text(name) })
    };
    for way in WAYS {
        let to = format!("to-{way:?}");
        let from = sources(matches!(way, Way::Pull | Way::Between));
        let to_far = matches!(way, Way::Push | Way::Between);
        let target = if to_far { place.far(&to) } else { place.text(&to) };
        let [a, b, c] = &from;
        place.cp(&[a, b, c, &target]).well();
        assert_eq!(names(&place.path(&to)), wanted, "{way:?}");
    }
    let [a, b, c] = sources(false);
    let clash = place.cp(&[&a, &a, &place.text("x")]).code(2);
    assert!(clash.errors.contains("both"), "{}", clash.errors);
    let mixed = place.cp(&[&a, &place.far("from/b"), &place.text("x")]).code(2);
    assert!(mixed.errors.contains("on one host"), "{}", mixed.errors);
    place.write("file", "");
    let file = place.cp(&[&b, &c, &place.text("file")]);
    assert_eq!(file.code, Some(2), "{}", file.errors);
    assert!(file.errors.contains("no directory"), "{}", file.errors);
}

#[test]
fn remote_paths_begin_at_home_and_hosts_may_have_users() {
    let place = place_or_skip!();
    place.write("f", "content");
    let user = Command::new("id").arg("-un").output().expect("id").stdout;
    let user = String::from_utf8_lossy(&user).trim().to_owned();
    let f = place.text("f");
    for (target, arrived) in [
        ("127.0.0.1:", "far-home/f"),
        ("127.0.0.1:~/tilde", "far-home/tilde"),
        ("127.0.0.1:relative", "far-home/relative"),
        ("127.0.0.1:./dot", "far-home/dot"),
        (&format!("{user}@127.0.0.1:user"), "far-home/user"),
        (&format!("{user}@localhost:by-name"), "far-home/by-name"),
    ] {
        place.cp(&[&f, target]).well();
        assert_eq!(fs::read(place.path(arrived)).expect(target), b"content");
    }
    let back = place.text("back");
    for source in ["127.0.0.1:~/tilde", "127.0.0.1:relative"] {
        place.cp(&["--overwrite", source, &back]).well();
        assert_eq!(fs::read(&back).expect("a file"), b"content");
        fs::remove_file(&back).expect("it is ours");
    }
    // All of the home.
    place.cp(&["127.0.0.1:", &back]).well();
    assert!(names(Path::new(&back)).contains(&"tilde".to_owned()));
}

#[test]
fn addresses_of_version_6_stand_in_brackets() {
    let Ok(place) = Place::with_host_at("::1") else { skip!("no sshd at ::1") };
    place.write("f", bytes(3 << 20, 1));
    let (f, back) = (place.text("f"), place.text("back"));
    place.cp(&[&f, &format!("[::1]:{}", place.text("there"))]).well();
    place.cp(&[&format!("[::1]:{}", place.text("there")), &back]).well();
    assert_eq!(fs::read(back).expect("a file"), bytes(3 << 20, 1));
}

/// Times are compared with each other, and with no clock.
#[test]
fn a_clock_that_was_set_back_on_one_side_makes_no_difference() {
    let place = place_or_skip!();
    let mut faketime = Command::new("faketime");
    faketime.args(["1 year ago", env!("CARGO_BIN_EXE_farhaul"), "--version"]);
    if !faketime.output().is_ok_and(|output| output.status.success()) {
        skip!("no faketime");
    }
    place.write("from/small", "small");
    place.write("from/sub/large", bytes(3 << 20, 1));
    for (way, shift) in
        [(Way::Push, "1 year ago"), (Way::Pull, "1 year ago"), (Way::Push, "next year")]
    {
        let to = format!("{way:?}, {shift}");
        let far = format!(
            "FAKETIME_DONT_FAKE_MONOTONIC=1 exec faketime '{shift}' '{}' \"$@\"",
            env!("CARGO_BIN_EXE_farhaul")
        );
        let far = place.script("far-in-time", &far);
        let flags = ["--remote-farhaul", &far, "--json"];
        place.copy(way, &flags, "from", &format!("{to}/")).well();
        let again = place.copy(way, &flags, "from", &format!("{to}/")).well().json();
        assert_eq!(again["moved_files"], 0, "{way:?} {shift} {again}");
        assert_eq!(tree(&place.path(&to).join("from")), tree(&place.path("from")), "{way:?}");
    }
}

/// Blocks in use, bytes.
fn used(path: &Path) -> u64 {
    fs::metadata(path).expect("it is there").blocks() * 512
}

#[test]
fn a_huge_sparse_file_travels_as_its_data_and_stays_sparse() {
    let place = place_or_skip!();
    const SIZE: u64 = 20 << 30;
    let file = fs::File::create(place.path("disk")).expect("a file");
    file.set_len(SIZE).expect("a sparse file");
    if used(&place.path("disk")) > 1 << 20 {
        skip!("the file system has no holes");
    }
    for (offset, text) in [(0, "first"), (7 << 30, "middle"), (SIZE - 4, "last")] {
        file.write_all_at(text.as_bytes(), offset).expect("room");
    }
    let hollow = fs::File::create(place.path("hollow")).expect("a file");
    hollow.set_len(SIZE).expect("a sparse file");
    for way in WAYS {
        let to = format!("to-{way:?}");
        fs::create_dir(place.path(&to)).expect("a directory");
        for name in ["disk", "hollow"] {
            let done = place.copy(way, &["--json"], name, &to).well().json();
            assert_eq!(done["bytes"], SIZE, "{way:?} {done}");
            let path = place.path(&to).join(name);
            assert_eq!(fs::metadata(&path).expect("it is there").len(), SIZE);
            assert!(used(&path) < 16 << 20, "{way:?} {name}: {}", used(&path));
        }
        let copy = fs::File::open(place.path(&to).join("disk")).expect("a file");
        let mut room = [0; 4];
        for (offset, text) in [(0, b"firs"), (7 << 30, b"midd"), (SIZE - 4, b"last")] {
            copy.read_exact_at(&mut room, offset).expect("it is that long");
            assert_eq!(&room, text, "{way:?}");
        }
    }
}

#[test]
fn many_small_files_arrive() {
    let place = place_or_skip!();
    let count = if long() { 50_000 } else { 5_000 };
    for n in 0..count {
        let name = format!("from/{}/{n}", n % 50);
        match n < 50 {
            true => drop(place.write(name, n.to_string())),
            false => fs::write(place.path(name), n.to_string()).expect("a file"),
        }
    }
    for way in [Way::Push, Way::Pull] {
        let to = format!("to-{way:?}");
        let done = place.copy(way, &["--json"], "from/", &to).well().json();
        assert_eq!(done["moved_files"], count);
        for n in 0..count {
            let copy = fs::read_to_string(place.path(format!("{to}/{}/{n}", n % 50)));
            assert_eq!(copy.expect("it is there"), n.to_string());
        }
        let again = place.copy(way, &["--json"], "from/", &to).well().json();
        assert_eq!((&again["moved_files"], &again["same_files"]), (&0.into(), &count.into()));
    }
}

/// Paths beyond what system calls take in one piece.
#[test]
fn deep_directories_arrive() {
    const DEEP: &str = "n=0; while [ $n -lt 200 ]; do";
    let place = place_or_skip!();
    let name = "d".repeat(40);
    let shell = |text: String| {
        let script = place.script("deep", &text);
        let ran = Command::new(script).current_dir(place.path("")).output().expect("a shell");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8_lossy(&ran.stdout).into_owned()
    };
    shell(format!(
        "set -e; mkdir from; cd from; {DEEP} mkdir {name}; cd -P {name}; n=$((n+1)); done; echo end >f"
    ));
    for way in WAYS {
        let to = format!("to-{way:?}");
        place.copy(way, &[], "from/", &to).well();
        let end =
            shell(format!("set -e; cd {to}; {DEEP} cd -P {name}; n=$((n+1)); done; cat f; ls -A"));
        assert_eq!(end, "end\nf\n", "{way:?}");
    }
}

#[test]
fn names_of_one_file_stay_that_if_wanted() {
    let place = place_or_skip!();
    place.write("from/a", bytes(2 << 20, 1));
    place.write("from/sub/s", "small");
    let at = |name: &str| place.path("from").join(name);
    fs::hard_link(at("a"), at("sub/b")).expect("a link");
    fs::hard_link(at("sub/s"), at("t")).expect("a link");
    for way in WAYS {
        let (linked, apart) = (format!("linked-{way:?}"), format!("apart-{way:?}"));
        place.copy(way, &["--preserve", "mode,times,hardlinks"], "from/", &linked).well();
        place.copy(way, &[], "from/", &apart).well();
        let number =
            |to: &str, name: &str| fs::metadata(place.path(to).join(name)).expect(name).ino();
        for (one, other) in [("a", "sub/b"), ("sub/s", "t")] {
            assert_eq!(number(&linked, one), number(&linked, other), "{way:?}");
            assert_ne!(number(&apart, one), number(&apart, other), "{way:?}");
        }
        // The target's own times are its own.
        let below = |top: &str| tree(&place.path(top)).into_iter().skip(1).collect::<Vec<_>>();
        assert_eq!(below(&linked), below("from"), "{way:?}");
        let again = ["--json", "--preserve", "mode,times,hardlinks"];
        let again = place.copy(way, &again, "from/", &linked).well().json();
        assert_eq!(again["moved_files"], 0, "{way:?} {again}");
    }
}

#[test]
fn extended_attributes_and_owners_are_kept_if_wanted() {
    let place = place_or_skip!();
    place.write("from/sub/f", "content");
    place.write("from/large", bytes(2 << 20, 1));
    let set = |name: &str, value: &str| {
        let path = place.path("from").join(name);
        Command::new("setfattr").args(["-n", "user.note", "-v", value]).arg(path).status()
    };
    for (name, value) in
        [("sub/f", "of a file"), ("large", "of a large"), ("sub", "of a directory")]
    {
        match set(name, value) {
            Ok(status) if status.success() => {}
            other => skip!("no setfattr, or no attributes here: {other:?}"),
        }
    }
    let root = fs::metadata(place.path("from")).expect("it is there").uid() == 0;
    if root {
        std::os::unix::fs::chown(place.path("from/sub/f"), Some(12_345), Some(54_321))
            .expect("root may");
        std::os::unix::fs::lchown(place.path("from/sub"), Some(12_345), None).expect("root may");
    }
    let get = |to: &str, name: &str| {
        let mut get = Command::new("getfattr");
        get.args(["-n", "user.note", "--only-values"]).arg(place.path(to).join(name));
        String::from_utf8_lossy(&get.output().expect("getfattr").stdout).into_owned()
    };
    for way in WAYS {
        let (kept, plain) = (format!("kept-{way:?}"), format!("plain-{way:?}"));
        place.copy(way, &["--preserve", "mode,times,owner,xattrs"], "from/", &kept).well();
        place.copy(way, &[], "from/", &plain).well();
        assert_eq!(get(&kept, "sub/f"), "of a file", "{way:?}");
        assert_eq!(get(&kept, "large"), "of a large", "{way:?}");
        assert_eq!(get(&kept, "sub"), "of a directory", "{way:?}");
        assert_eq!(get(&plain, "sub/f"), "", "{way:?}");
        let owner = |to: &str, name: &str| {
            let meta = fs::metadata(place.path(to).join(name)).expect(name);
            (meta.uid(), meta.gid())
        };
        if root {
            assert_eq!(owner(&kept, "sub/f"), (12_345, 54_321), "{way:?}");
            assert_eq!(owner(&kept, "sub").0, 12_345, "{way:?}");
            assert_eq!(owner(&plain, "sub/f"), (0, 0), "{way:?}");
        }
    }
}
