//! What the options of `farhaul cp` do.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use common::copy::{Done, Place, WAYS, Way, bytes, names, place_or_skip};
use common::copying::wait_until;
use serde_json::Value;

fn set_time(path: &Path, seconds: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let file = fs::File::options().write(true).open(path).expect("a file");
    file.set_modified(time).expect("it is ours");
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).expect("a file of text")
}

#[test]
fn standard_input_and_output_are_files() {
    let place = place_or_skip!();
    for (name, content) in
        [("empty", Vec::new()), ("small", b"a\0b\n".to_vec()), ("large", bytes((7 << 20) + 13, 7))]
    {
        for target in [place.far(name), place.text(&format!("near-{name}"))] {
            let mut command = place.command(&["cp", "-q", "-", &target]);
            let mut child = command.stdin(Stdio::piped()).spawn().expect("farhaul");
            child.stdin.take().expect("a pipe").write_all(&content).expect("it reads");
            assert!(child.wait().expect("its end").success(), "{name}");
            let back = place.cp(&["--no-progress", &target, "-"]).well();
            assert!(back.out == content, "{target}: {} bytes", back.out.len());
            assert!(back.errors.contains("verified"), "{}", back.errors);
        }
    }
    // How far it is shows although nobody knows how long it is.
    let slow = ["cp", "--json-stream", "--rate", "24M", "-", &place.far("slow")];
    let mut command = place.command(&slow);
    command.stdin(fs::File::open(place.path("large")).expect("a file"));
    let events = common::copy::Done::of(command).well().events();
    let far = events.iter().filter_map(|event| event["bytes"].as_u64()).max();
    assert!(far > Some(0), "{events:?}");
    // From there to there.
    let content = bytes(3 << 20, 9);
    place.write("f", &content);
    let both = place.cp(&["-q", &place.far("f"), "-"]).well();
    assert!(both.out == content);
    place.write("d/f", "content");
    let far_d = place.far("d");
    let far_slash = place.far("new/");
    for (args, told) in [
        (vec!["-", "127.0.0.1:"], "no name"),
        (vec!["-", "d"], "no name"),
        (vec!["-", "new/"], "no name"),
        (vec!["-", &far_slash], "no name"),
        (vec!["--json", "f", "-"], "both the copy and JSON"),
        (vec!["-", "f", "to/"], "alone"),
        (vec!["f", "f", "-"], "one file only"),
        (vec!["d/", "-"], "one file only"),
        (vec!["d", "-"], "one file only"),
        (vec![&far_d, "-"], "one file only"),
    ] {
        let told_so = place.cp(&args).code(2);
        assert!(told_so.errors.contains(told), "{args:?}: {}", told_so.errors);
        assert!(told_so.out.is_empty() || args[0] == "--json", "{args:?}");
    }
    // Who reads no more is no reason to hang.
    let mut command = place.command(&["cp", "-q", &place.far("large"), "-"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("farhaul");
    let mut some = [0; 10];
    child.stdout.take().expect("a pipe").read_exact(&mut some).expect("it writes");
    let ended = child.wait_with_output().expect("its end");
    assert_eq!(ended.status.code(), Some(1));
}

/// Nothing is read, and so nobody knows how much there is.
#[test]
fn a_dry_run_of_standard_input_would_copy_it() {
    let place = place_or_skip!();
    place.write("there", "content");
    for to in [place.text("new"), place.far("new"), place.far("there")] {
        let report = place.cp(&["-n", "--json", "-", &to]).well().json();
        assert_eq!(report["would_move_files"], 1, "{to} {report}");
        assert_eq!(report["same_files"], 0, "{to} {report}");
        assert!(report["would_move_bytes"].is_null(), "{to} {report}");
        let shown = place.cp(&["-n", "-", &to]).well().text();
        assert_eq!(shown.trim_end(), "would copy 1 file of unknown size", "{to}");
        let events = place.cp(&["-n", "--json-stream", "-", &to]).well().events();
        let file = events.iter().find(|event| event["event"] == "file").expect("a file");
        assert_eq!(file["outcome"], "would_move", "{to} {file}");
        assert!(file["size"].is_null(), "{to} {file}");
    }
    let kept = place.cp(&["-n", "--skip-existing", "-", &place.far("there")]).well();
    assert!(kept.text().contains("unless it is there"), "{}", kept.text());
    assert!(!place.path("new").exists());
}

#[test]
fn options_may_stand_between_paths() {
    let place = Place::here();
    place.write("a", "a");
    place.write("b", "b");
    place.write("to/old", "old");
    place.cp(&["a", "-q", "b", "--delete", "to/"]).well();
    assert_eq!(names(&place.path("to")), ["a", "b", "old"]);
    let told = place.cp(&["a", "-n", "new"]).well();
    assert!(told.text().contains("would copy 1 file (1 B)"), "{}", told.text());
    for args in [&["a"][..], &["-n", "a", "-v"], &[]] {
        let told = place.cp(args).code(2).errors;
        assert!(told.contains("were not provided"), "{args:?} {told}");
        assert!(told.contains("Usage: farhaul cp [OPTIONS] <SRC>... <DST>"), "{args:?} {told}");
    }
}

/// The recipe of docs/cp.md.
#[test]
fn files_of_a_kind_are_picked_from_a_tree() {
    let place = place_or_skip!();
    place.write("from/a.dat", "a");
    place.write("from/b.o", "b");
    place.write("from/sub/c.dat", "c");
    for way in WAYS {
        let to = format!("to-{way:?}");
        let rules = ["--include", "*/", "--include", "*.dat", "--exclude", "*"];
        let done = place.copy(way, &rules, "from", &format!("{to}/")).well();
        assert_eq!(
            names(&place.path(&to)),
            ["from", "from/a.dat", "from/sub", "from/sub/c.dat"],
            "{way:?}"
        );
        assert!(!done.errors.contains("no file to copy"), "{way:?} {}", done.errors);
        // This leaves out the directory itself.
        let nothing = place.copy(way, &rules[2..], "from", &format!("nothing-{way:?}/")).well();
        assert!(nothing.errors.contains("no file to copy"), "{way:?} {}", nothing.errors);
    }
}

/// Who reads both outputs by one pipe, and slowly, gets all of it: ssh has no part in that pipe.
#[test]
fn one_slow_pipe_takes_both_outputs() {
    /// What a pipe holds that nobody has enlarged.
    const PIPE: u64 = 64 << 10;
    let place = place_or_skip!();
    let content = bytes(8 << 20, 5);
    place.write("f", &content);
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    // As ssh does with its standard error, which is then that of whoever has the same.
    let nonblocking = "import fcntl,os; fcntl.fcntl(2, fcntl.F_SETFL, os.O_NONBLOCK)";
    let ssh = place.script(
        "ssh-nonblocking",
        &format!("python3 -c '{nonblocking}' || exit 9; shift $(($# - 1)); exec sh -c \"$1\""),
    );
    let mut command = place.command(&["cp", "-q", "--ssh", &ssh, &place.far("f"), "-"]);
    command.stdout(writer.try_clone().expect("another end")).stderr(writer);
    let mut child = command.spawn().expect("farhaul");
    drop(command);
    // Nothing is read before the pipe is full, or it has given up.
    wait_until("a full pipe", || {
        let waiting = rustix::io::ioctl_fionread(&reader).expect("a pipe");
        waiting >= PIPE || child.try_wait().expect("it is ours").is_some()
    });
    let mut all = Vec::new();
    reader.read_to_end(&mut all).expect("it ends");
    assert!(child.wait().expect("its end").success());
    assert!(all == content, "{} bytes", all.len());
}

#[test]
fn a_dry_run_tells_and_touches_nothing() {
    let place = place_or_skip!();
    place.write("from/new", bytes(5 << 20, 1));
    place.write("from/sub/same", "same");
    place.write("from/changed", "longer than before");
    symlink("x", place.path("from/link")).expect("a link");
    for way in WAYS {
        let to = format!("to-{way:?}");
        place.write(format!("{to}/sub/same"), "same");
        place.write(format!("{to}/changed"), "before");
        place.write(format!("{to}/surplus/f"), "f");
        for top in ["from", &to] {
            set_time(&place.path(top).join("sub/same"), 1_000_000_000);
        }
        let before = common::copy::tree(&place.path(&to));
        let flags = ["-n", "--delete", "--json", "--rate", "1M"];
        let told = place.copy(way, &flags, "from/", &to).well().json();
        let member = |name: &str| told[name].as_u64();
        assert_eq!(told["dry_run"], true);
        assert_eq!(
            ["files", "would_move_files", "would_move_bytes", "same_files", "would_delete"]
                .map(member),
            [Some(3), Some(2), Some((5 << 20) + 18), Some(1), Some(2)],
            "{way:?} {told}"
        );
        // Nothing was done.
        let done = ["moved_files", "moved_bytes", "deleted"].map(member);
        assert_eq!(done, [Some(0); 3], "{way:?} {told}");
        let claimed = (&told["verified"], &told["encrypted"]);
        assert_eq!(claimed, (&false.into(), &false.into()), "{way:?} {told}");
        let stream = place.copy(way, &["-n", "--delete", "--json-stream"], "from/", &to).well();
        let events = stream.events();
        let count = |kind: &str| events.iter().filter(|event| event["event"] == kind).count();
        assert_eq!((count("would_delete"), count("deleted")), (1, 0), "{way:?} {events:?}");
        let of_new = events.iter().find(|event| event["path"] == "new").expect("a file");
        assert_eq!(of_new["outcome"], "would_move", "{way:?}");
        // 5 MiB at 1 Mb/s.
        let estimate = told["estimate_seconds"].as_f64().expect("an estimate");
        assert!((estimate - 41.9).abs() < 0.1, "{way:?} {estimate}");
        let shown = place.copy(way, &["-n", "-v", "--delete", "--rate", "1M"], "from/", &to).well();
        for text in ["would copy 2 files", "would delete 2", "about 41.9 s"] {
            assert!(shown.text().contains(text), "{way:?} {text}: {}", shown.text());
        }
        for text in ["surplus", "changed"] {
            assert!(shown.errors.contains(text), "{way:?} {text}: {}", shown.errors);
        }
        assert_eq!(common::copy::tree(&place.path(&to)), before, "{way:?}");
        let new = place.copy(way, &["-n"], "from", &format!("nowhere-{way:?}")).well();
        assert!(!place.path(format!("nowhere-{way:?}")).exists());
        assert!(new.text().contains("would copy 3 files"), "{}", new.text());
        let known = new.text().contains("it would take ") || new.text().contains("not known");
        assert!(known, "{way:?} {}", new.text());
        if way == Way::Local {
            assert!(new.text().contains("not known"), "{}", new.text());
        }
    }
    let nothing = place.copy(Way::Push, &["-n", "--receipt", "r"], "from/", "to-Push").well();
    assert!(!place.path("r").exists(), "{}", nothing.text());
}

#[test]
fn the_first_rule_that_matches_counts() {
    let place = place_or_skip!();
    for name in ["keep.o", "drop.o", "main.c", "sub/top", "top", "tmp/f", "a/tmp/g", "a/build/x/y"]
    {
        place.write(Path::new("from").join(name), name);
    }
    let flags = ["--include", "keep.o", "--exclude=*.o", "--exclude", "/top", "--exclude", "tmp/"];
    for way in WAYS {
        let to = format!("to-{way:?}");
        let done = place.copy(way, &[&flags[..], &["--json"]].concat(), "from/", &to).well();
        let wanted =
            ["a", "a/build", "a/build/x", "a/build/x/y", "keep.o", "main.c", "sub", "sub/top"];
        assert_eq!(names(&place.path(&to)), wanted, "{way:?}");
        assert_eq!(done.json()["files"], 4, "{way:?}");
    }
    // The other way round nothing is left to keep.
    place.cp(&["--exclude", "*.o", "--include", "keep.o", "from/", "swapped"]).well();
    assert!(!place.path("swapped/keep.o").exists());
    // From the top of the transfer, which is above the directory.
    place.cp(&["--exclude", "/from/a", "--exclude", "/top", "from", "named/"]).well();
    assert!(!place.path("named/from/a").exists() && place.path("named/from/top").exists());
    let bad = place.cp(&["--exclude", "a[", "from/", "x"]).code(2);
    assert!(bad.errors.contains("'a[' is no pattern"), "{}", bad.errors);
}

#[test]
fn what_the_source_does_not_have_is_deleted_where_it_was_read() {
    let place = place_or_skip!();
    place.write("from/sub/f", "f");
    place.write("from/g", "g");
    place.write("from/excluded.o", "");
    for way in WAYS {
        let to = format!("to-{way:?}");
        for name in ["old", "sub/old", "sub/deep/er/old", "kept.o", "sub/kept.o"] {
            place.write(Path::new(&to).join(name), "old");
        }
        symlink("/etc", place.path(&to).join("sub/link")).expect("a link");
        let flags = ["--delete", "--exclude", "*.o", "--json-stream"];
        let done = place.copy(way, &flags, "from/", &to).well();
        let wanted = ["g", "kept.o", "sub", "sub/f", "sub/kept.o"];
        assert_eq!(names(&place.path(&to)), wanted, "{way:?} {}", done.text());
        let events = done.events();
        let deleted: Vec<&str> = events
            .iter()
            .filter(|event| event["event"] == "deleted")
            .map(|event| event["path"].as_str().expect("a path"))
            .collect();
        assert_eq!(deleted.len(), 4, "{way:?} {deleted:?}");
        assert_eq!(events.last().expect("the end")["deleted"], 6, "{way:?}");
    }
    // Without a slash only what is in the directory counts, not what is beside it.
    place.write("beside/other", "stays");
    place.write("beside/from/old", "goes");
    place.cp(&["--delete", "from", "beside"]).well();
    assert_eq!(
        names(&place.path("beside")),
        ["from", "from/excluded.o", "from/g", "from/sub", "from/sub/f", "other"]
    );
    // A single file deletes nothing.
    place.cp(&["--delete", "from/g", "beside"]).well();
    assert!(place.path("beside/other").exists());
    // Only if asked.
    place.cp(&["--delete", "--delete-excluded", "--exclude", "*.o", "from/", "to-Local"]).well();
    assert_eq!(names(&place.path("to-Local")), ["g", "sub", "sub/f"]);
}

#[test]
fn no_more_is_deleted_than_allowed() {
    let place = place_or_skip!();
    place.write("from/new", "new");
    for way in WAYS {
        let to = format!("to-{way:?}");
        for name in ["a", "b", "d/c", "d/e"] {
            place.write(Path::new(&to).join(name), "old");
        }
        let before = names(&place.path(&to));
        for (flag, deleted, left, code) in [("0", 0, 5, 5), ("2", 2, 3, 5), ("3", 3, 0, 0)] {
            let flags = ["--delete", "--max-delete", flag, "--json"];
            let would = place.copy(way, &[&flags[..], &["-n"]].concat(), "from/", &to).code(code);
            let would = would.json();
            let of_would = (&would["would_delete"], &would["not_deleted"]);
            assert_eq!(of_would, (&deleted.into(), &left.into()), "{way:?} {flag} {would}");
            let done = place.copy(way, &flags, "from/", &to).code(code).json();
            let of_done = (&done["deleted"], &done["not_deleted"], &done["ok"]);
            let ok = code == 0;
            assert_eq!(of_done, (&deleted.into(), &left.into(), &ok.into()), "{way:?} {done}");
            assert_eq!(done["failed"], 0, "{way:?} {flag} {done}");
            assert_eq!(read(place.path(&to).join("new")), "new", "{way:?} {flag}");
            if deleted == 0 {
                assert_eq!(names(&place.path(&to)).len(), before.len() + 1, "{way:?}");
            }
        }
        assert_eq!(names(&place.path(&to)), ["new"], "{way:?}");
    }
    assert!(place.cp(&["--max-delete", "3", "from/", "x"]).code(2).errors.contains("--delete"));
}

#[test]
fn an_empty_source_deletes_nothing_unless_told_to() {
    let place = place_or_skip!();
    fs::create_dir_all(place.path("from")).expect("a directory");
    place.write("other/new", "new");
    for way in WAYS {
        let to = format!("to-{way:?}");
        place.write(Path::new(&to).join("d/old"), "old");
        place.write(Path::new(&to).join("from/old"), "old");
        for from in ["from/", "from"] {
            for flags in [&["--delete", "--json"][..], &["-n", "--delete", "--json"]] {
                let done = place.copy(way, flags, from, &to).code(5).json();
                let counts = (&done["deleted"], &done["failed"]);
                assert_eq!(counts, (&0.into(), &1.into()), "{way:?} {from} {done}");
            }
        }
        let old = ["d", "d/old", "from", "from/old"];
        assert_eq!(names(&place.path(&to)), old, "{way:?}");
        // Not what is left out, and nothing where there is nothing to delete.
        let spared = ["--delete", "--exclude", "old", "--exclude", "d", "--exclude", "from"];
        place.copy(way, &spared, "from/", &to).well();
        let allowed = ["--delete", "--allow-empty-source", "--json"];
        let done = place.copy(way, &allowed, "from", &to).well().json();
        assert_eq!(done["deleted"], 1, "{way:?} {done}");
        place.copy(way, &["--delete"], "from", &to).well();
        let done = place.copy(way, &allowed, "from/", &to).well().json();
        assert_eq!(done["deleted"], 3, "{way:?} {done}");
        assert_eq!(names(&place.path(&to)), [""; 0], "{way:?}");
    }
    // One of several.
    place.write("several/old", "old");
    place.cp(&["--delete", "from/", "other/", "several"]).code(5);
    assert_eq!(names(&place.path("several")), ["new", "old"]);
    // A directory below that has become empty is no such case.
    fs::create_dir_all(place.path("whole/sub")).expect("a directory");
    place.write("whole/f", "f");
    place.write("there/sub/old", "old");
    place.cp(&["--delete", "whole/", "there"]).well();
    assert_eq!(names(&place.path("there")), ["f", "sub"]);
}

/// A source without a file or a link that is copied is as good as an empty one, whatever else is in it: the
/// target keeps what it has, at every depth.
#[test]
fn a_source_without_files_deletes_nothing_unless_told_to() {
    let place = place_or_skip!();
    for kept in ["lost+found", "dirs/d/e", "excluded", "special"] {
        fs::create_dir_all(place.path(kept)).expect("a directory");
    }
    place.write("excluded/f.tmp", "left out");
    place.write("excluded/d/f.tmp", "left out");
    fs::create_dir(place.path("mounted")).expect("a directory");
    fs::rename(place.path("lost+found"), place.path("mounted/lost+found")).expect("a directory");
    let fifo = Command::new("mkfifo").arg(place.path("special/pipe")).status();
    assert!(fifo.expect("mkfifo").success());
    let all = ["d", "d/e", "d/e/old", "d/old", "old"];
    for way in WAYS {
        for from in ["mounted", "dirs", "excluded", "special"] {
            let to = format!("to-{way:?}-{from}");
            for path in ["d/e/old", "d/old", "old"] {
                place.write(Path::new(&to).join(path), "old");
            }
            let from = format!("{from}/");
            for flags in [&["--json"][..], &["-n", "--json"]] {
                let flags = [&["--delete", "--exclude", "*.tmp"], flags].concat();
                let done = place.copy(way, &flags, &from, &to).code(5).json();
                assert_eq!((&done["deleted"], &done["ok"]), (&0.into(), &false.into()), "{done}");
            }
            let mut there = names(&place.path(&to));
            there.retain(|name| name != "lost+found");
            assert_eq!(there, all, "{way:?} {from}");
            let flags = ["--delete", "--exclude", "*.tmp", "--allow-empty-source", "--json"];
            let done = place.copy(way, &flags, &from, &to).well().json();
            assert!(done["deleted"].as_u64() >= Some(3), "{way:?} {from} {done}");
            let there = names(&place.path(&to));
            assert!(!there.iter().any(|name| name.ends_with("old")), "{way:?} {from} {there:?}");
        }
    }
    // A link is something.
    std::os::unix::fs::symlink("nowhere", place.path("mounted/link")).expect("a link");
    place.write("linked/old", "old");
    place.cp(&["--delete", "mounted/", "linked"]).well();
    assert_eq!(names(&place.path("linked")), ["link", "lost+found"]);
}

/// What `farhaul` does with this table as `/etc/fstab`, and in it mounted what `mount` mounts; none if there
/// can be no such place here.
fn with_table(place: &Place, table: &Path, mount: &str, args: &[&str]) -> Option<Done> {
    let inner = place.command(args);
    let script = r#"mount --bind "$0" /etc/fstab && eval "$1" || exit 99; shift; exec "$@""#;
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).arg(table).arg(mount);
    command.arg(inner.get_program()).args(inner.get_args()).stdin(Stdio::null());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.current_dir(place.path(""));
    let can = Path::new("/etc/fstab").is_file()
        && Command::new("unshare").args(["-m", "true"]).status().is_ok_and(|s| s.success());
    can.then(|| Done::of(command))
}

#[test]
fn a_mount_point_with_nothing_mounted_empties_nothing() {
    let place = Place::here();
    let data = fs::canonicalize(place.path("")).expect("it is there").join("from/data");
    fs::create_dir_all(&data).expect("a directory");
    place.write("from/f", "f");
    place.write("to/data/old", "old");
    let table = place.write("table", format!("LABEL=data {} ext4 noauto 0 0\n", data.display()));
    let args = ["cp", "--delete", "--json", "from/", "to"];
    let Some(done) = with_table(&place, &table, "true", &args) else {
        common::skip!("no mount namespaces, or no /etc/fstab");
    };
    let told = done.code(5).json();
    assert_eq!((&told["deleted"], &told["failed"]), (&0.into(), &1.into()), "{told}");
    assert_eq!(names(&place.path("to")), ["data", "data/old", "f"]);
    // What is mounted there, and is empty.
    let mount = format!("mount -t tmpfs none '{}'", data.display());
    with_table(&place, &table, &mount, &args).expect("it was so before").well();
    assert_eq!(names(&place.path("to")), ["data", "f"]);
}

#[test]
fn a_directory_that_cannot_be_read_deletes_nothing() {
    let place = Place::here();
    for name in ["from/sub/f", "to/sub/f", "to/sub/old", "to/old", "to/d/old", "from/d/f"] {
        place.write(name, name);
    }
    // Root may read everything, so that it is another user who copies.
    let mut paths = vec![place.path("")];
    while let Some(path) = paths.pop() {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("it is ours");
        if path.is_dir() {
            let entries = fs::read_dir(&path).expect("a directory");
            paths.extend(entries.map(|entry| entry.expect("an entry").path()));
        }
    }
    fs::set_permissions(place.path("from/sub"), fs::Permissions::from_mode(0o0)).expect("ours");
    let mut command = place.command(&["cp", "--delete", "--json", "from/", "to"]);
    command.uid(65_534);
    let done = common::copy::Done::of(command).code(5).json();
    fs::set_permissions(place.path("from/sub"), fs::Permissions::from_mode(0o755)).expect("ours");
    assert_eq!((&done["failed"], &done["deleted"]), (&1.into(), &1.into()), "{done}");
    // Neither in it nor beside it; elsewhere what is gone is deleted.
    assert_eq!(names(&place.path("to")), ["d", "d/f", "old", "sub", "sub/f", "sub/old"]);
}

#[test]
fn what_is_there_is_left_alone_compared_or_replaced() {
    let place = place_or_skip!();
    for (name, content) in
        [("same", "1111"), ("touched", "2222"), ("content", "3333"), ("new", "4")]
    {
        place.write(Path::new("from").join(name), content);
        set_time(&place.path("from").join(name), 1_500_000_000);
    }
    place.write("from/big", bytes(3 << 20, 1));
    for way in WAYS {
        let run = |flags: &[&str]| {
            let to = format!("to-{way:?}");
            let _ = fs::remove_dir_all(place.path(&to));
            for (name, content, time) in [
                ("same", "1111", 1_500_000_000),
                ("touched", "2222", 1_600_000_000),
                ("content", "xxxx", 1_500_000_000),
            ] {
                place.write(Path::new(&to).join(name), content);
                set_time(&place.path(&to).join(name), time);
            }
            let mut other = bytes(3 << 20, 1);
            other[2 << 20] ^= 1;
            place.write(Path::new(&to).join("big"), other);
            let done = place.copy(way, &[flags, &["--json"]].concat(), "from/", &to).well().json();
            let number = |name: &str| done[name].as_u64().expect("a number");
            let content = read(place.path(&to).join("content"));
            let big = fs::read(place.path(&to).join("big")).expect("a file") == bytes(3 << 20, 1);
            (number("moved_files"), number("same_files"), content, big)
        };
        // By size and time the wrong content is the same.
        assert_eq!(run(&[]), (3, 2, "xxxx".into(), true), "{way:?}");
        assert_eq!(run(&["--checksum"]), (3, 2, "3333".into(), true), "{way:?}");
        assert_eq!(run(&["--overwrite"]), (5, 0, "3333".into(), true), "{way:?}");
        assert_eq!(run(&["--skip-existing"]), (1, 4, "xxxx".into(), false), "{way:?}");
        assert_eq!(run(&["--no-clobber"]), (1, 4, "xxxx".into(), false), "{way:?}");
    }
    let both = place.cp(&["--checksum", "--overwrite", "from", "x"]).code(2);
    assert!(both.errors.contains("cannot be used with"), "{}", both.errors);
}

#[test]
fn programs_are_told_in_json() {
    let place = place_or_skip!();
    place.write("from/f", bytes(2 << 20, 1));
    place.write("from/g", "g");
    place.write("blocked/f/is/a/directory", "");
    for way in WAYS {
        let to = format!("to-{way:?}");
        let done = place.copy(way, &["--json"], "from/", &to).well();
        let report = done.json();
        for (member, wanted) in [
            ("ok", Value::from(true)),
            ("error", Value::Null),
            ("dry_run", false.into()),
            ("files", 2.into()),
            ("moved_files", 2.into()),
            ("moved_bytes", ((2 << 20) + 1).into()),
            ("failed", 0.into()),
            ("verified", true.into()),
            ("encrypted", (way != Way::Local).into()),
        ] {
            assert_eq!(report[member], wanted, "{way:?} {member}");
        }
        assert!(report["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0));
        assert!(report["source_stages"]["read"].is_number());
        if way != Way::Local {
            let transport = report["transport"].as_str().expect("there was one");
            assert!(transport.contains("127.0.0.1"), "{transport}");
        }
        let failing = place.copy(way, &["--json-stream"], "from/", "blocked").code(5);
        let events = failing.events();
        let of = |kind: &str| events.iter().filter(|e| e["event"] == kind).collect::<Vec<_>>();
        assert_eq!(events[0]["event"], "start", "{way:?}");
        assert!(events[0]["sources"].is_array() && events[0]["target"].is_string());
        assert_eq!(of("failed").len(), 1, "{way:?} {events:?}");
        let text = of("failed")[0]["text"].as_str().expect("a text");
        assert!(text.contains("in the way"), "{text}");
        let files = of("file");
        assert_eq!(files.len(), 1, "{way:?} {events:?}");
        assert_eq!((&files[0]["path"], &files[0]["size"]), (&"g".into(), &1.into()));
        let digest = blake3::hash(b"g").to_hex().to_string();
        let first = place.path("blocked/g");
        if files[0]["outcome"] == "moved" {
            assert_eq!(
                (&files[0]["digest"], &files[0]["hash"]),
                (&digest.into(), &"blake3".into())
            );
        }
        fs::remove_file(first).expect("it was copied");
        let end = events.last().expect("an end");
        assert_eq!(
            (&end["event"], &end["ok"], &end["failed"]),
            (&"end".into(), &false.into(), &1.into())
        );
        assert_eq!(end["failures"].as_array().map(Vec::len), Some(1), "{way:?}");
    }
    // Intervals come once a second: a copy that lasts has some.
    place.write("slow", bytes(1 << 20, 3));
    let slow = ["--json-stream", "--rate", "4M"];
    for way in [Way::Push, Way::Between] {
        let done = place.copy(way, &slow, "slow", &format!("slow-{way:?}")).well();
        let events = done.events();
        let interval = events.iter().find(|event| event["event"] == "interval");
        let interval = interval.expect("an interval");
        for member in ["seconds", "bits_per_second", "files", "bytes", "moved", "rtt_ms"] {
            assert!(interval[member].is_number(), "{way:?} {member}: {interval}");
        }
        assert_eq!(interval["total_bytes"], 1 << 20, "{way:?}");
        let end = events.last().expect("an end");
        assert!(end["packets_sent"].as_u64() > Some(0), "{way:?} {end}");
        assert!(end["source_stages"]["limit"].as_f64() > Some(0.0), "{way:?} {end}");
    }
}

/// Whatever the end is, and before anything has begun.
#[test]
fn every_end_is_told_in_json() {
    let place = place_or_skip!();
    place.write("f", "content");
    place.write("from/f", "content");
    let away = place.script("no-ssh", "exit 255");
    let far = place.far("to");
    for (args, code, told) in [
        (vec!["nowhere", "to"], 2, "nowhere"),
        (vec!["f", "no/such/to"], 2, "make it first"),
        (vec!["from", "f", "f"], 2, "more than one file"),
        (vec!["f", "-"], 2, "both the copy and JSON"),
        (vec!["--receipt", "nowhere/r", "f", "to"], 2, "receipt nowhere/r"),
        (vec!["--ssh", &away, "f", &far], 1, "its own message"),
        (vec!["--ssh", "/no/ssh", "f", &far], 1, "/no/ssh"),
        (vec!["--ssh", "/no/ssh", &far, &far], 1, "/no/ssh"),
    ] {
        for form in ["--json", "--json-stream"] {
            let done = place.cp(&[&[form], &args[..]].concat()).code(code);
            let end = match form {
                "--json" => done.json(),
                _ => done.events().pop().expect("an end"),
            };
            assert_eq!(end["ok"], false, "{args:?}");
            let error = end["error"].as_str().expect("a reason");
            assert!(error.contains(told), "{args:?} {error}");
            assert_eq!((&end["verified"], &end["encrypted"]), (&false.into(), &false.into()));
        }
    }
    // While ssh connects.
    let ssh = place.script("slow-ssh", "echo 'it runs' >&2; exec sleep 600");
    for args in [["f", &far], [&far, &far]] {
        let running = place.start(&["cp", "--json", "--ssh", &ssh, args[0], args[1]]);
        running.wait_error_line("it runs");
        running.interrupt();
        let ended = running.finish();
        assert_eq!(ended.code, Some(130), "{ended:#?}");
        let report = ended.json();
        let error = report["error"].as_str().expect("a reason");
        assert!(report["ok"] == false && error.contains("interrupted"), "{report}");
    }
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let place = Place::here();
    place.write("from/f", "content");
    place.cp(&["--receipt", "r", "from/", "to"]).well();
    for args in [
        &["cp", "--json", "from/", "to"][..],
        &["cp", "--json-stream", "from/", "to"],
        &["cp", "from/", "to"],
        &["verify", "--json", "r", "to"],
        &["verify", "r", "to"],
    ] {
        let Ok(full) = fs::OpenOptions::new().write(true).open("/dev/full") else {
            common::skip!("no /dev/full");
        };
        let mut command = place.command(args);
        command.stdout(full);
        let done = common::copy::Done::of(command).code(1);
        assert!(done.errors.contains("cannot write to standard output"), "{args:?} {done:?}");
        // Who reads no more has seen enough.
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = place.command(args);
        command.stdout(writer);
        common::copy::Done::of(command).well();
    }
}

#[test]
fn quiet_and_verbose_are_what_they_say() {
    let place = place_or_skip!();
    place.write("from/odd\u{1b}[31mname", "x");
    for way in WAYS {
        let verbose = place.copy(way, &["-v"], "from", &format!("v-{way:?}/")).well();
        assert!(verbose.errors.contains("[31mname"), "{}", verbose.errors);
        assert!(!verbose.errors.contains('\u{1b}'), "names do not steer the terminal");
        assert!(verbose.text().contains("copied 1 file,"), "{}", verbose.text());
        assert!(verbose.text().contains("limited by"), "{}", verbose.text());
        let quiet = place.copy(way, &["-q"], "from", &format!("q-{way:?}/")).well();
        assert_eq!((quiet.text().as_str(), quiet.errors.as_str()), ("", ""), "{way:?}");
    }
}

#[test]
fn a_variable_that_is_misspelt_is_told() {
    let place = Place::here();
    place.write("f", "content");
    for (flags, told) in [
        (&[][..], "farhaul: FARHAUL_RAET is no setting; did you mean FARHAUL_RATE?\n"),
        (&["-q"], ""),
    ] {
        let mut command = place.command(&[&["cp"], flags, &["f", "g"]].concat());
        command.env("FARHAUL_RAET", "1").env("FARHAUL_SOMETHING_ELSE", "2");
        assert_eq!(common::copy::Done::of(command).well().errors, told);
    }
}

#[test]
fn flags_come_before_the_environment_and_that_before_the_file() {
    let place = place_or_skip!();
    place.write("f", "content");
    let config = |text: &str| drop(place.write("home/.config/farhaul/config.toml", text));
    let push = |flags: &[&str], variables: &[(&str, &str)]| {
        let to = place.far("there");
        let args = [&["cp", "--overwrite", "--json"], flags, &["f", &to]].concat();
        let mut command = place.command(&args);
        command.envs(variables.iter().copied());
        common::copy::Done::of(command)
    };
    let transport = |done: common::copy::Done| {
        done.well().json()["transport"].as_str().expect("a transport")[..3].to_owned()
    };
    config("transport = \"udp\"\n[host.\"127.0.0.1\"]\ntransport = \"tcp\"\n");
    assert_eq!(transport(push(&[], &[])), "TCP");
    for name in ["udt", "udp"] {
        assert_eq!(transport(push(&[], &[("FARHAUL_TRANSPORT", name)])), "UDP");
    }
    let both = push(&["--transport", "tcp"], &[("FARHAUL_TRANSPORT", "udp")]);
    assert_eq!(transport(both), "TCP");
    config("transport = \"udp\"\n[host.other]\ntransport = \"tcp\"\n");
    assert_eq!(transport(push(&[], &[])), "UDP");
    let bad = push(&[], &[("FARHAUL_RATE", "fast")]).code(2);
    assert!(bad.errors.contains("FARHAUL_RATE"), "{}", bad.errors);
    config("colour = \"blue\"\n");
    let bad = push(&[], &[]).code(2);
    assert!(bad.errors.contains("colour") && bad.errors.contains("config.toml"), "{}", bad.errors);
    let law = push(&["--cc", "nonsense"], &[]).code(2);
    assert!(law.errors.contains("nonsense"), "{}", law.errors);
}

#[test]
fn holes_are_filled_if_they_are_not_to_be_kept() {
    use std::os::unix::fs::MetadataExt;
    let place = Place::here();
    fs::File::create(place.path("f")).and_then(|f| f.set_len(8 << 20)).expect("a sparse file");
    place.cp(&["f", "sparse"]).well();
    place.cp(&["--preserve", "mode,times", "f", "filled"]).well();
    let used = |name: &str| fs::metadata(place.path(name)).expect("a file").blocks() * 512;
    if used("f") < 1 << 20 {
        assert!(used("sparse") < 1 << 20, "{}", used("sparse"));
    }
    assert!(used("filled") >= 8 << 20, "{}", used("filled"));
}
