use std::fs::{self, File};
use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::chroot;
use std::process::Command;
use std::thread;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, dumpable_behavior};
use socket2::{Domain, Socket, Type};

use super::*;

fn denied<T>(result: std::io::Result<T>) -> bool {
    result.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

#[test]
fn a_confined_process_reaches_its_exports_and_runs_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str| dir.path().join(name);
    for name in ["etc", "out", "in/a", "in/b", "state", "other"] {
        fs::create_dir_all(at(name)).expect("a directory");
    }
    fs::write(at("other/secret"), "secret").expect("a file");
    let key = farhaul_secure::Identity::generate().expect("a key").public_key();
    let path = at("etc/serve.toml");
    let text = format!(
        "identity = \"identity\"\nstate-directory = {:?}\n[client.a]\nkey = \"{key}\"\n\
         [export.out]\npath = {:?}\naccess = \"read\"\nclients = \"*\"\n\
         [export.in]\npath = {:?}\naccess = \"read-write\"\nclients = \"*\"\n",
        at("state"),
        at("out"),
        at("in"),
    );
    fs::write(&path, text).expect("a file");
    let config = ServeConfig::load(&path).expect("it is right");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let listens = listener.local_addr().expect("it is bound");
    // Only this thread is confined, and what it makes.
    let confined = || {
        let (sandbox, holds) = Sandbox::enter_quietly(&config, &path).expect("it is not refused");
        let holds: std::collections::BTreeMap<_, _> = holds.into_iter().collect();
        assert_eq!(dumpable_behavior(), Ok(DumpableBehavior::NotDumpable));
        assert!(holds["core-dumps"].is_ok());
        if let Err(why) = &holds["seccomp"] {
            eprintln!("skipped: seccomp: {why}");
        } else {
            // Also files that Landlock knows nothing of.
            assert!(denied(Command::new("/bin/true").status()));
            assert!(denied(chroot(at("out"))));
            let fifo = mknodat(CWD, at("in/fifo"), FileType::Fifo, Mode::RUSR, 0);
            assert_eq!(fifo, Err(Errno::PERM));
            assert!(denied(Socket::new(Domain::PACKET, Type::RAW, None)));
            assert!(denied(Socket::new(Domain::VSOCK, Type::STREAM, None)));
        }
        UdpSocket::bind("127.0.0.1:0").expect("datagrams go on");
        if let Err(why) = &holds["landlock"] {
            eprintln!("skipped: Landlock: {why}");
            return;
        }
        for name in ["other/secret", "other"] {
            assert!(denied(File::open(at(name))), "{name}");
            // As do threads that come later.
            let later = thread::scope(|threads| threads.spawn(|| File::open(at(name))).join());
            assert!(denied(later.expect("no panic")), "{name}");
        }
        assert!(denied(File::open("/etc/passwd")));
        assert!(denied(fs::write(at("other/new"), "x")));
        assert!(denied(fs::remove_file(at("other/secret"))));
        assert!(denied(fs::write(at("out/new"), "x")) && denied(fs::write(&path, "x")));
        assert!(denied(fs::rename(at("in/a"), at("other/a"))));
        // What a server does, in files that come later as well.
        fs::write(at("in/a/new"), "content").expect("an export to write to");
        fs::rename(at("in/a/new"), at("in/b/new")).expect("within it");
        fs::hard_link(at("in/b/new"), at("in/a/other")).expect("within it");
        assert_eq!(fs::read(at("in/a/other")).expect("it can be read"), b"content");
        fs::write(at("state/accounts"), "x").expect("the state");
        assert!(ServeConfig::load(&path).is_ok(), "it is read again");
        fs::read_to_string("/proc/self/status").expect("what the kernel tells");
        assert!(TcpStream::connect(listens).is_err(), "a server connects to no host");
        assert!(sandbox.covers(&at("in/a"), true) && sandbox.covers(&at("out"), false));
        assert!(!sandbox.covers(&at("out"), true) && !sandbox.covers(&at("other"), false));
        assert_eq!(sandbox.outside(&config), Vec::<&str>::new());
    };
    thread::scope(|threads| threads.spawn(confined).join()).expect("it holds");
    fs::read(at("other/secret")).expect("others are as they were");
    fs::write(at("out/late"), "late").expect("others are as they were");
}

#[test]
fn without_a_sandbox_everything_is_reached() {
    let sandbox = Sandbox::default();
    assert!(sandbox.covers(Path::new("/"), true));
}
