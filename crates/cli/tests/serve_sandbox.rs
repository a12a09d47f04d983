//! What a running server has given up, and what clients see of that.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use common::process::Process;
use common::server::{Site, signal};

const EXPORTS: &str = "
[export.out]
path = \"DIR/out\"
access = \"read\"
clients = \"*\"
[export.in]
path = \"DIR/in\"
access = \"read-write\"
clients = \"*\"
";

/// What the kernel says of each thread of a process.
fn of_threads(id: &str, name: &str) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{id}/task")).expect("it runs");
    let text = |task: fs::DirEntry| fs::read_to_string(task.path().join("status"));
    // One may have ended meanwhile.
    let texts = tasks.flatten().filter_map(|task| text(task).ok());
    let value = |text: String| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
        line.expect("it is told").parse().expect("a number")
    };
    texts.map(value).collect()
}

fn of_server(server: &Process, name: &str) -> Vec<u32> {
    of_threads(&server.id().to_string(), name)
}

#[test]
fn every_thread_of_a_server_is_confined_and_what_it_is_for_works() {
    let site = Site::new(EXPORTS);
    let server = site.serve();
    let told = server.wait_error_line(" sandbox ");
    assert!(!told.contains("seccomp=\"off"), "{told}");
    // It comes after the server has confined itself.
    site.write("out/late/f", "late");
    let here = site.write("here/f", "mine");
    site.cp(&[&here, &site.url("in/new/")]).well();
    site.cp(&[&site.url("out/late/f"), site.path("here/late").to_str().expect("text")]).well();
    assert_eq!((site.read("in/new/f"), site.read("here/late")), (b"mine".into(), b"late".into()));
    signal(&server, "-HUP");
    server.wait_error_line("config-reloaded");
    for (name, value) in [("Seccomp", 2), ("NoNewPrivs", 1)] {
        let all = of_server(&server, name);
        assert!(all.len() > 2 && all.iter().all(|here| *here == value), "{name}: {all:?}");
    }
}

#[test]
fn the_sandbox_can_be_left_out() {
    let site = Site::new(&format!("sandbox = false\n{EXPORTS}"));
    let server = site.serve();
    assert!(server.wait_error_line(" sandbox ").contains("warning"));
    let own = of_threads("self", "Seccomp")[0];
    assert!(of_server(&server, "Seccomp").iter().all(|here| *here == own));
    // What is in force is what it was started with.
    site.configure(EXPORTS);
    signal(&server, "-HUP");
    assert!(server.wait_error_line("config-reloaded").contains("need-a-restart=sandbox"));
}

#[test]
fn an_export_from_outside_waits_for_a_restart() {
    let site = Site::new(EXPORTS);
    let server = site.serve();
    let confined = !server.wait_error_line(" sandbox ").contains("landlock=\"off");
    let elsewhere = tempfile::tempdir().expect("a directory");
    fs::write(elsewhere.path().join("f"), "content").expect("a file");
    site.configure(&format!(
        "{EXPORTS}[export.late]\npath = {:?}\naccess = \"read\"\nclients = \"*\"\n",
        elsewhere.path()
    ));
    signal(&server, "-HUP");
    let (url, here) = (site.url("late/f"), site.path("here/f"));
    let copy = || site.cp(&[&url, here.to_str().expect("text")]);
    if confined {
        let told = server.wait_error_line("export-needs-a-restart");
        assert!(told.contains("export=late"), "{told}");
        let told = copy().refused(1);
        assert!(told.contains("'late'") && told.contains("restart the server"), "{told}");
    } else {
        eprintln!("skipped: no Landlock here");
    }
    signal(&server, "-TERM");
    server.finish_well();
    let _server = site.serve();
    copy().well();
}

#[test]
fn an_export_says_which_modes_may_come() {
    let site = Site::new(&format!("{EXPORTS}mode-mask = \"0750\"\n"));
    let _server = site.serve();
    let open = fs::Permissions::from_mode(0o1777);
    site.write("here/d/f", "content");
    fs::set_permissions(site.path("here/d/f"), open.clone()).expect("the owner may");
    fs::set_permissions(site.path("here/d"), open).expect("the owner may");
    let from = site.path("here/d");
    // The second time they stay as they are.
    for _ in 0..2 {
        site.cp(&[from.to_str().expect("text"), &site.url("in/")]).well();
        for name in ["in/d", "in/d/f"] {
            let mode = fs::metadata(site.path(name)).expect("it is there").permissions().mode();
            assert_eq!(mode & 0o7777, 0o750, "{name}");
        }
    }
}
