//! Trouble on either side of a transfer between honest peers: both end, both say why, and what
//! did arrive is whole.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::thread;

use farhaul_mover::frame::MAX_DEPTH;
use farhaul_mover::{
    Cancel, Event, ReceiveError, ReceiveOptions, SendError, SendOptions, Special, receive, send,
};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use common::{assert_no_leftovers, paths, transfer, transfer_with};

const MB: usize = 1 << 20;

struct Place {
    dir: tempfile::TempDir,
    from: PathBuf,
    into: PathBuf,
}

/// A directory `from` with a small file and a directory `into` yet to be made.
fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    let (from, into) = (dir.path().join("from"), dir.path().join("into"));
    fs::create_dir(&from).unwrap();
    fs::write(from.join("small"), "small").unwrap();
    Place { dir, from, into }
}

fn dense(path: &Path, length: usize) {
    fs::write(path, vec![9; length]).unwrap();
}

fn without_counting() -> SendOptions {
    SendOptions { count: false, ..SendOptions::default() }
}

/// Runs `act` once, in the middle of the file `big`, and expects that this file alone fails.
fn change_while_read(act: impl Fn(&Path)) {
    let place = place();
    let big = place.from.join("big");
    dense(&big, 4 * MB);
    let mut acted = false;
    let mut said = Vec::new();
    let (sent, received) = transfer_with(
        std::slice::from_ref(&place.from),
        &place.into,
        &without_counting(),
        &ReceiveOptions::default(),
        |event| match event {
            Event::Progress(progress) if progress.current == big && !acted => {
                acted = true;
                act(&big);
            }
            Event::Failed(failure) => said.push(failure.to_string()),
            _ => {}
        },
        |_| {},
    );
    assert!(acted);
    let Err(SendError::Incomplete { failures, summary }) = sent else { panic!("{sent:?}") };
    assert_eq!(summary.tally.files, 1);
    assert_eq!(failures.count, 1);
    assert_eq!(said, [format!("{}: changed while it was being read", big.display())]);
    let Err(ReceiveError::Incomplete { failures, .. }) = received else { panic!("{received:?}") };
    assert_eq!(failures.count, 1);
    assert_eq!(paths(&place.into), [PathBuf::from("from"), "from/small".into()]);
}

#[test]
fn a_file_that_shrinks_while_it_is_read_fails_alone() {
    change_while_read(|big| File::options().write(true).open(big).unwrap().set_len(1000).unwrap());
}

#[test]
fn a_file_that_grows_and_is_rewritten_fails_alone() {
    // Seen by its content alone, as if the clock were too coarse to tell: one that only grows is sent.
    change_while_read(|big| {
        let file = File::options().write(true).open(big).unwrap();
        let modified = file.metadata().unwrap().modified().unwrap();
        file.write_all_at(b"x", 0).unwrap();
        file.write_all_at(b"x", 5 * MB as u64).unwrap();
        file.set_modified(modified).unwrap();
    });
}

#[test]
fn a_file_rewritten_while_it_is_read_fails_alone() {
    change_while_read(|big| {
        let file = File::options().write(true).open(big).unwrap();
        file.write_all_at(b"x", 0).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
    });
}

#[test]
fn special_files_are_left_out_and_told() {
    let place = place();
    mknodat(CWD, place.from.join("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let _socket = UnixListener::bind(place.from.join("socket")).unwrap();
    let mut skipped = Vec::new();
    let (sent, received) = transfer_with(
        &[place.from.join("."), "/dev/null".into()],
        &place.into,
        &SendOptions::default(),
        &ReceiveOptions::default(),
        |event| {
            if let Event::Skipped { path, what } = event {
                skipped.push((path.file_name().unwrap().to_owned(), what));
            }
        },
        |_| {},
    );
    let summary = sent.unwrap();
    assert_eq!((summary.skipped, summary.tally.files), (3, 1));
    assert_eq!(received.unwrap().tally, summary.tally);
    skipped.sort_by(|a, b| a.0.cmp(&b.0));
    let expected = [
        ("null".into(), Special::CharacterDevice),
        ("pipe".into(), Special::Fifo),
        ("socket".into(), Special::Socket),
    ];
    assert_eq!(skipped, expected);
    assert_eq!(paths(&place.into), [PathBuf::from("small")]);
}

#[test]
fn a_directory_too_deep_fails_alone() {
    let place = place();
    let mut deep = place.from.clone();
    for _ in 0..MAX_DEPTH {
        deep.push("d");
    }
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("lost"), "").unwrap();
    let (sent, received) = transfer(std::slice::from_ref(&place.from), &place.into);
    let Err(SendError::Incomplete { failures, summary }) = sent else { panic!("{sent:?}") };
    assert_eq!((failures.count, summary.tally.directories), (1, MAX_DEPTH as u64));
    let Err(ReceiveError::Incomplete { failures, .. }) = received else { panic!("{received:?}") };
    assert_eq!(failures.count, 1);
    assert!(place.into.join("from/small").exists());
    assert_eq!(paths(&place.into).len(), MAX_DEPTH + 1);
}

#[test]
fn entries_that_cannot_be_stored_are_told_on_both_sides() {
    let place = place();
    fs::create_dir(place.from.join("d")).unwrap();
    dense(&place.from.join("d/f"), 3 * MB);
    fs::create_dir_all(place.into.join("from/small")).unwrap();
    fs::write(place.into.join("from/d"), "in the way").unwrap();
    let (mut at_sender, mut at_receiver) = (Vec::new(), Vec::new());
    let (sent, received) = transfer_with(
        std::slice::from_ref(&place.from),
        &place.into,
        &SendOptions::default(),
        &ReceiveOptions::default(),
        |event| {
            if let Event::Failed(failure) = event {
                at_sender.push(failure.to_string())
            }
        },
        |event| {
            if let Event::Failed(failure) = event {
                at_receiver.push(failure.to_string())
            }
        },
    );
    let Err(SendError::Incomplete { failures, .. }) = sent else { panic!("{sent:?}") };
    assert_eq!(failures.count, 3, "the directory, the file in it, the small one");
    let Err(ReceiveError::Incomplete { failures, summary }) = received else {
        panic!("{received:?}")
    };
    assert_eq!((failures.count, summary.tally.files), (3, 0));
    at_sender.sort();
    at_receiver.sort();
    let told: Vec<String> = at_receiver.iter().map(|text| format!("peer: {text}")).collect();
    assert_eq!(at_sender, told);
    assert!(at_receiver[0].starts_with("from/d: Not a directory"), "{at_receiver:?}");
    assert!(at_receiver[1].starts_with("from/small: Is a directory"), "{at_receiver:?}");
    assert_eq!(fs::read(place.into.join("from/d")).unwrap(), b"in the way");
}

/// With far more on its way than the stream holds, so that a sender that only writes, or a
/// receiver that stops reading, would wait for ever.
#[test]
fn a_refusal_in_the_middle_reaches_a_busy_sender() {
    let place = place();
    for n in 0..5 {
        dense(&place.from.join(n.to_string()), 8 * MB);
    }
    let options = ReceiveOptions { max_bytes: Some(20 * MB as u64), ..ReceiveOptions::default() };
    let sources = std::slice::from_ref(&place.from);
    let (sent, received) =
        transfer_with(sources, &place.into, &without_counting(), &options, |_| {}, |_| {});
    assert!(matches!(received, Err(ReceiveError::OverLimit { .. })), "{received:?}");
    let error = sent.unwrap_err();
    assert!(matches!(error, SendError::Refused { .. }), "{error}");
    assert_eq!(error.exit_code(), 3);
    assert_no_leftovers(place.dir.path());
}

#[test]
fn a_cancelled_sender_ends_both() {
    let place = place();
    dense(&place.from.join("big"), 8 * MB);
    let cancel = Cancel::default();
    let options = SendOptions { cancel: cancel.clone(), ..SendOptions::default() };
    let (sent, received) = transfer_with(
        std::slice::from_ref(&place.from),
        &place.into,
        &options,
        &ReceiveOptions::default(),
        |event| {
            if matches!(event, Event::Progress(p) if p.data_bytes >= MB as u64) {
                cancel.cancel()
            }
        },
        |_| {},
    );
    let error = sent.unwrap_err();
    assert!(matches!(error, SendError::Interrupted), "{error}");
    assert_eq!(error.exit_code(), 130);
    match received {
        Err(ReceiveError::Remote { message }) => assert_eq!(message, "interrupted"),
        other => panic!("{other:?}"),
    }
    assert!(!place.into.join("from/big").exists());
    assert_no_leftovers(place.dir.path());
}

#[test]
fn a_cancelled_receiver_ends_both() {
    let place = place();
    dense(&place.from.join("big"), 16 * MB);
    let cancel = Cancel::default();
    let options = ReceiveOptions { cancel: cancel.clone(), ..ReceiveOptions::default() };
    let (sent, received) = transfer_with(
        std::slice::from_ref(&place.from),
        &place.into,
        &SendOptions::default(),
        &options,
        |_| {},
        |event| {
            if matches!(event, Event::Progress(p) if p.data_bytes >= MB as u64) {
                cancel.cancel()
            }
        },
    );
    let error = received.unwrap_err();
    assert!(matches!(error, ReceiveError::Interrupted), "{error}");
    assert_eq!(error.exit_code(), 130);
    match sent {
        Err(SendError::Remote { message }) => assert_eq!(message, "interrupted"),
        other => panic!("{other:?}"),
    }
    assert!(!place.into.join("from/big").exists());
    assert_no_leftovers(place.dir.path());
}

#[test]
fn an_observer_that_panics_leaves_nobody_waiting() {
    let place = place();
    dense(&place.from.join("big"), 8 * MB);
    let (near, far) = UnixStream::pair().unwrap();
    let into = place.into.clone();
    let receiver = thread::spawn(move || {
        receive(&into, (&far, &far), &ReceiveOptions::default(), &mut |_| {})
    });
    let sources = [place.from.clone()];
    let sending = AssertUnwindSafe(|| {
        send(&sources, (&near, &near), &without_counting(), &mut |event| {
            assert!(!matches!(event, Event::Progress(p) if p.data_bytes > 0), "the observer's");
        })
    });
    let panic = catch_unwind(sending).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"the observer's"));
    match receiver.join().unwrap() {
        Err(ReceiveError::Remote { message }) => assert_eq!(message, "the sender failed"),
        other => panic!("{other:?}"),
    }
    assert_no_leftovers(place.dir.path());
}

#[test]
fn a_file_that_hides_its_size_fails_instead_of_arriving_empty() {
    let hiding = Path::new("/proc/self/status");
    if fs::metadata(hiding).map_or(true, |meta| meta.len() > 0) {
        eprintln!("skipped: no procfs");
        return;
    }
    let place = place();
    let (sent, _) = transfer(&[hiding.into(), place.from.join("small")], &place.into);
    let Err(SendError::Incomplete { failures, .. }) = sent else { panic!("{sent:?}") };
    assert_eq!(failures.count, 1);
    assert!(failures.first[0].text.ends_with("has more content than its size says"));
    assert_eq!(paths(&place.into), [PathBuf::from("small")]);
}

#[test]
fn a_target_that_is_no_directory_is_told_to_the_sender() {
    let place = place();
    fs::write(&place.into, "a file").unwrap();
    let (sent, received) = transfer(std::slice::from_ref(&place.from), &place.into);
    assert!(matches!(received, Err(ReceiveError::Io { ref path, .. }) if *path == place.into));
    assert!(matches!(sent, Err(SendError::Remote { .. })), "{sent:?}");
    assert_eq!(fs::read(&place.into).unwrap(), b"a file");
}

/// A file system of its own, gone with the value.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        unmount(&self.0, UnmountFlags::DETACH).unwrap();
    }
}

#[test]
fn a_full_disk_stops_both_with_its_reason() {
    let place = place();
    dense(&place.from.join("big"), 8 * MB);
    fs::create_dir(&place.into).unwrap();
    let size = c"size=1m";
    if let Err(error) = mount("tmpfs", &place.into, "tmpfs", MountFlags::empty(), size) {
        eprintln!("skipped: a small file system cannot be mounted: {error}");
        return;
    }
    let _mounted = Mounted(place.into.clone());
    let (sent, received) = transfer(std::slice::from_ref(&place.from), &place.into);
    let error = received.unwrap_err();
    assert!(matches!(error, ReceiveError::Io { ref path, .. } if path == Path::new("from/big")));
    let error = sent.unwrap_err();
    assert!(matches!(error, SendError::Remote { .. }), "{error}");
    assert!(
        error.to_string().contains("from/big") && error.to_string().contains("No space"),
        "{error}"
    );
    assert!(!place.into.join("from/big").exists());
    assert_no_leftovers(&place.into);
}

#[test]
fn progress_only_grows_and_ends_at_the_totals() {
    let place = place();
    dense(&place.from.join("big"), 3 * MB);
    File::create(place.from.join("hole")).unwrap().set_len(1 << 30).unwrap();
    let total = (5 + 3 * MB + (1 << 30)) as u64;
    let check = |seen: &mut Vec<(u64, u64, u64)>, event: Event<'_>| {
        if let Event::Progress(p) = event {
            assert!(p.bytes_total.is_none_or(|bytes| bytes == total), "{p:?}");
            assert!(p.files_total.is_none_or(|files| files == 3), "{p:?}");
            seen.push((p.files_done, p.bytes_done, p.data_bytes));
        }
    };
    let (mut at_sender, mut at_receiver) = (Vec::new(), Vec::new());
    let (sent, received) = transfer_with(
        std::slice::from_ref(&place.from),
        &place.into,
        &SendOptions::default(),
        &ReceiveOptions::default(),
        |event| check(&mut at_sender, event),
        |event| check(&mut at_receiver, event),
    );
    let summary = sent.unwrap();
    received.unwrap();
    for seen in [at_sender, at_receiver] {
        assert!(seen.is_sorted(), "{seen:?}");
        assert!(seen.len() >= 3 * MB / (256 << 10), "{} times", seen.len());
        assert_eq!(seen.last(), Some(&(3, total, summary.data_bytes)));
    }
}
