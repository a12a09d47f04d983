//! Source and sink over connections within this process, which break as often as a test wants.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::Shutdown;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use farhaul_mover::transfer::link::{Link, LinkHandle, Purpose};
use farhaul_mover::transfer::session::{Dial, Links, NoLink, Options, Session, Way, greet};
use farhaul_mover::transfer::sink::{Sink, SinkOptions, SinkTarget};
use farhaul_mover::transfer::source::{Source, SourceOptions, SourceReport, Sources};
use farhaul_mover::transfer::{Event, Observer, TransferError};
use farhaul_mover::{Cancel, LeftOut};

/// Connections that end after so many bytes in either direction, one after the other; those that
/// come later do not.
struct Breaking {
    give: Mutex<Sender<(Purpose, Link)>>,
    limits: Mutex<Vec<usize>>,
    meddle: Meddle,
}

/// Is called whenever the side that dials is about to write, with the number of bytes.
type Meddle = Arc<dyn Fn(usize) + Send + Sync>;

struct Pipe(UnixStream);

impl LinkHandle for Pipe {
    fn abort(&self) {
        // One that is closed already needs no closing.
        let _ = self.0.shutdown(Shutdown::Both);
    }

    fn describe(&self) -> String {
        "a pipe".into()
    }
}

/// One direction with an end.
struct Limited {
    stream: UnixStream,
    left: Arc<Mutex<usize>>,
    meddle: Meddle,
}

impl Limited {
    fn allowed(&self, want: usize) -> io::Result<usize> {
        let mut left = self.left.lock().unwrap();
        if *left == 0 {
            let _ = self.stream.shutdown(Shutdown::Both);
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let some = want.min(*left);
        *left -= some;
        Ok(some)
    }
}

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (self.meddle)(bytes.len());
        let some = self.allowed(bytes.len())?;
        self.stream.write(&bytes[..some])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Limited {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.read(bytes)
    }
}

fn link(stream: UnixStream, limit: usize, meddle: &Meddle) -> Link {
    let left = Arc::new(Mutex::new(limit));
    let half = |stream: &UnixStream| Limited {
        stream: stream.try_clone().unwrap(),
        left: Arc::clone(&left),
        meddle: Arc::clone(meddle),
    };
    Link {
        reader: Box::new(half(&stream)),
        writer: Box::new(half(&stream)),
        handle: Arc::new(Pipe(stream)),
    }
}

impl Dial for Breaking {
    fn dial(&self, _: Way) -> Result<Link, NoLink> {
        let limit = self.limits.lock().unwrap().pop().unwrap_or(usize::MAX);
        let (near, far) = UnixStream::pair()?;
        let give = self.give.lock().unwrap().clone();
        thread::spawn(move || {
            let nothing: Meddle = Arc::new(|_| {});
            let mut far = link(far, limit, &nothing);
            if let Ok(join) = greet(&mut far) {
                let _ = give.send((join.purpose, far));
            }
        });
        Ok(link(near, limit, &self.meddle))
    }
}

/// What came of both sides.
struct Ran {
    source: Result<SourceReport, TransferError>,
    sink: Result<(), TransferError>,
    events: Vec<String>,
    /// As the sink knows it.
    left_out: LeftOut,
}

/// Moves `paths` into `target`; `limits` as of [`Breaking`], the first last. `push`: whether the source
/// dials.
fn run(paths: &[PathBuf], target: &Path, limits: Vec<usize>, push: bool) -> Ran {
    run_as(
        Sources::Paths(paths.to_vec()),
        SourceOptions::default(),
        SinkOptions::new(SinkTarget::Path { path: target.to_owned(), directory: true }),
        limits,
        push,
    )
}

fn run_as(
    sources: Sources,
    source_options: SourceOptions,
    sink_options: SinkOptions,
    limits: Vec<usize>,
    push: bool,
) -> Ran {
    run_watched(sources, source_options, sink_options, limits, push, [&|_| {}; 2])
}

/// With somebody who is told of the events of the source, and of the sink.
fn run_watched(
    sources: Sources,
    source_options: SourceOptions,
    sink_options: SinkOptions,
    limits: Vec<usize>,
    push: bool,
    observers: [Observer<'_>; 2],
) -> Ran {
    let nothing: Meddle = Arc::new(|_| {});
    run_meddled(sources, source_options, sink_options, (limits, 3), push, observers, nothing)
}

fn run_meddled(
    sources: Sources,
    source_options: SourceOptions,
    sink_options: SinkOptions,
    (limits, lanes): (Vec<usize>, u32),
    push: bool,
    [of_source, of_sink]: [Observer<'_>; 2],
    meddle: Meddle,
) -> Ran {
    let (give, accepted) = channel();
    let dial = Breaking { give: Mutex::new(give), limits: Mutex::new(limits), meddle };
    let options = Options {
        session: [7; 16],
        outage: Duration::from_secs(60),
        lanes,
        cancel: Cancel::default(),
    };
    let events = Mutex::new(Vec::new());
    let observe = |event: Event<'_>| {
        if !matches!(event, Event::Note(_)) {
            events.lock().unwrap().push(format!("{event:?}"));
        }
        of_source(event);
    };
    let (ours, theirs) = (Session::default(), Session::default());
    let source = Source::new(sources, source_options, &ours, &observe).unwrap();
    let say = Box::new(|message| theirs.channel.say(&message));
    let sink = Sink::new(sink_options, say, Arc::clone(&theirs.stages), of_sink).unwrap();
    let (for_source, for_sink) = match push {
        true => (Links::Dial(&dial), Links::Accept(accepted)),
        false => (Links::Accept(accepted), Links::Dial(&dial)),
    };
    let (moved, stored) = thread::scope(|threads| {
        threads.spawn(|| source.announce_everything());
        threads.spawn(|| {
            if let Err(error) = sink.work() {
                theirs.end(Err(error));
            }
        });
        let moved = threads.spawn(|| ours.run(&source, for_source, &options, &observe));
        let stored = theirs.run(&sink, for_sink, &options, &|_| {});
        (moved.join().unwrap(), stored)
    });
    let report = source.report();
    let left_out = sink.left_out();
    drop((source, sink));
    let events = events.into_inner().unwrap();
    Ran { source: moved.map(|()| report), sink: stored, events, left_out }
}

/// Every entry below `root` with everything that is kept of it.
fn listing(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let data = path.symlink_metadata().unwrap();
            let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
            let content = if data.is_symlink() {
                format!("-> {}", fs::read_link(&path).unwrap().display())
            } else if data.is_dir() {
                open.push(path.clone());
                format!("/ {:o} {}", data.mode() & 0o7777, data.mtime())
            } else {
                let digest = blake3::hash(&fs::read(&path).unwrap());
                format!(
                    "{digest} {:o} {} {}",
                    data.mode() & 0o7777,
                    data.mtime(),
                    data.mtime_nsec()
                )
            };
            found.push(format!("{name} {content}"));
        }
    }
    found.sort();
    found
}

fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new_keyed(&[seed as u8; 32]).finalize_xof().fill(&mut bytes);
    bytes
}

/// A tree with something of everything.
fn tree(root: &Path) {
    fs::create_dir_all(root.join("a/b/c")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    fs::write(root.join("nothing"), "").unwrap();
    fs::write(root.join("a/one chunk"), pattern(1 << 20, 1)).unwrap();
    fs::write(root.join("a/b/large"), pattern((5 << 20) + 12_345, 2)).unwrap();
    fs::write(root.join("a/b/exact"), pattern(3 << 20, 3)).unwrap();
    for number in 0..300 {
        let name = format!("a/b/c/small {number}");
        fs::write(root.join(name), pattern(number * 13, number as u64)).unwrap();
    }
    symlink("b/large", root.join("a/link")).unwrap();
    symlink("nowhere", root.join("dangling")).unwrap();
    let sparse = fs::File::create(root.join("sparse")).unwrap();
    sparse.set_len(40 << 20).unwrap();
    sparse.write_all_at(&pattern(100_000, 9), 20 << 20).unwrap();
    fs::set_permissions(root.join("a/b/exact"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::set_permissions(root.join("empty"), fs::Permissions::from_mode(0o750)).unwrap();
}

#[test]
fn a_tree_arrives_whoever_dials() {
    for push in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir(&from).unwrap();
        tree(&from);
        let ran = run(slice::from_ref(&from), &to, Vec::new(), push);
        let report = ran.source.unwrap();
        ran.sink.unwrap();
        assert_eq!(report.moved_files, 305);
        assert_eq!(report.failures.count, 0);
        assert_eq!(listing(&to.join("from")), listing(&from));
        assert_eq!(ran.events.len(), 305, "each file is told once");
        // Again: nothing is to be done.
        let again = run(slice::from_ref(&from), &to, Vec::new(), push).source.unwrap();
        assert_eq!((again.moved_files, again.same_files), (0, 305));
    }
}

#[test]
fn connections_that_break_cost_nothing_but_time() {
    // Where a connection breaks: in the first frames, in messages, in blocks. Later ones last longer,
    // or it would never end.
    let seeds: [&[usize]; 4] = [
        &[3, 50, 400, 4000, 40_000, 400_000],
        &[1_500_000, 1_000_000, 2_000_000, 700_000, 1_048_700],
        &[60, 61, 62, 63, 64, 65, 66, 67, 300_000],
        &[100_000; 12],
    ];
    for (seed, limits) in seeds.into_iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir(&from).unwrap();
        tree(&from);
        let ran = run(slice::from_ref(&from), &to, limits.to_vec(), seed % 2 == 0);
        let report = ran.source.unwrap_or_else(|error| panic!("{seed}: {error}"));
        ran.sink.unwrap();
        assert_eq!(report.moved_files, 305, "{seed}");
        assert_eq!(listing(&to.join("from")), listing(&from), "{seed}");
        assert_eq!(ran.events.len(), 305, "{seed}: each file is told once");
    }
}

#[test]
fn contents_go_into_the_target_and_names_do_not_clash() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    fs::create_dir(&from).unwrap();
    tree(&from);
    let mut contents = from.clone().into_os_string();
    contents.push("/");
    run(&[contents.into()], &to, Vec::new(), true).source.unwrap();
    assert_eq!(listing(&to), listing(&from));
}

#[test]
fn a_stream_arrives_and_its_digest_is_that_of_all() {
    for length in [0, 5, 1 << 20, (3 << 20) + 7] {
        let dir = tempfile::tempdir().unwrap();
        let data = pattern(length, 4);
        let sources = Sources::Stream {
            name: b"stream".to_vec(),
            stream: Box::new(io::Cursor::new(data.clone())),
        };
        let to = dir.path().join("to");
        let target = SinkTarget::Path { path: to.clone(), directory: false };
        let limits = vec![1_300_000, 900_000];
        let ran = run_as(sources, SourceOptions::default(), SinkOptions::new(target), limits, true);
        ran.source.unwrap();
        ran.sink.unwrap();
        assert_eq!(fs::read(&to).unwrap(), data);
        let digest = format!("{:?}", <[u8; 32]>::from(blake3::hash(&data)));
        assert!(ran.events[0].contains(&digest), "{:?}", ran.events);
    }
}

#[test]
fn a_dry_run_touches_nothing_and_counts_everything() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    fs::create_dir(&from).unwrap();
    tree(&from);
    let target = SinkTarget::Path { path: to.clone(), directory: true };
    let ran = run_as(
        Sources::Paths(vec![from]),
        SourceOptions { dry_run: true, ..SourceOptions::default() },
        SinkOptions { dry_run: true, ..SinkOptions::new(target) },
        Vec::new(),
        true,
    );
    let report = ran.source.unwrap();
    assert_eq!(report.moved_files, 305);
    assert!(report.moved_bytes > 45 << 20);
    assert!(!to.exists());
}

#[test]
fn an_empty_directory_on_which_nothing_is_mounted_deletes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path().canonicalize().unwrap();
    let (from, to) = (top.join("from"), top.join("to"));
    for path in ["from/a/data", "from/a/full", "from/empty", "to/a/data/d", "to/a/full", "to/empty"]
    {
        fs::create_dir_all(top.join(path)).unwrap();
    }
    fs::write(from.join("a/full/new"), "").unwrap();
    for path in ["a/data/d/old", "a/full/old", "empty/old"] {
        fs::write(to.join(path), "").unwrap();
    }
    let copy = |points: &[&str], allow_empty| {
        let target = SinkTarget::Path { path: to.clone(), directory: true };
        let mount_points = points.iter().map(|point| from.join(point)).collect();
        run_as(
            Sources::Paths(vec![from.join("")]),
            SourceOptions { mount_points, ..SourceOptions::default() },
            SinkOptions { delete: true, allow_empty, ..SinkOptions::new(target) },
            Vec::new(),
            true,
        )
    };
    let ran = copy(&["a/data", "a/full"], false);
    ran.sink.unwrap();
    assert_eq!(ran.source.unwrap().failures.count, 1, "{:?}", ran.events);
    assert!(to.join("a/data/d/old").exists());
    // What has entries is as it should be, and what is no mount point may be empty.
    assert!(!to.join("a/full/old").exists() && !to.join("empty/old").exists());
    let ran = copy(&["a/data"], true);
    ran.sink.unwrap();
    assert_eq!(ran.source.unwrap().failures.count, 0);
    assert!(to.join("a/data").exists() && !to.join("a/data/d").exists());
}

#[test]
fn what_cannot_be_read_fails_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    fs::create_dir(&from).unwrap();
    tree(&from);
    // A link in the place of a file between announcement and reading cannot be timed; a directory in
    // the way at the target can.
    fs::create_dir_all(to.join("from/a/b/large")).unwrap();
    let ran = run(slice::from_ref(&from), &to, Vec::new(), true);
    let report = ran.source.unwrap();
    assert_eq!(report.failures.count, 1);
    assert_eq!(report.moved_files, 304);
    assert!(ran.events.iter().any(|event| event.contains("Failed") && event.contains("large")));
    assert!(to.join("from/a/b/exact").is_file());
}

/// A stream whose reader panics once some has been read.
struct Panicking(u32);

impl Read for Panicking {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0 += 1;
        assert!(self.0 < 40, "a stream that panics");
        bytes.fill(1);
        Ok(bytes.len())
    }
}

#[test]
fn a_thread_that_panics_ends_the_transfer() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("small"), "some").unwrap();
    fs::write(source.join("large"), vec![7; 5 << 20]).unwrap();
    let options = |name: &str| {
        SinkOptions::new(SinkTarget::Path { path: dir.path().join(name), directory: true })
    };
    let panics: Observer<'_> = &|event| {
        assert!(!matches!(event, Event::File { .. }), "a panic of an observer");
    };
    let quiet: Observer<'_> = &|_| {};
    for push in [true, false] {
        for (at, watch) in [[panics, quiet], [quiet, panics]].into_iter().enumerate() {
            let paths = Sources::Paths(vec![source.clone()]);
            let name = format!("{push}{at}");
            let ran = run_watched(
                paths,
                SourceOptions::default(),
                options(&name),
                Vec::new(),
                push,
                watch,
            );
            let results = [ran.source.map(drop), ran.sink];
            let (own, other) = (results[at].as_ref(), results[1 - at].as_ref());
            let text = "internal error: a panic of an observer";
            let error = own.unwrap_err();
            assert!(error.to_string().starts_with(text) && error.exit_code() == 1, "{error}");
            // It may be the last word that the other one waits for.
            let told = other.err().map(ToString::to_string);
            assert!(told.as_ref().is_none_or(|told| told.contains(text)), "{told:?}");
        }
        let stream = Sources::Stream { name: b"x".to_vec(), stream: Box::new(Panicking(0)) };
        let ran = run_as(stream, SourceOptions::default(), options("x"), Vec::new(), push);
        let error = ran.source.unwrap_err().to_string();
        assert!(error.contains("internal error: nobody reads it any more"), "{error}");
        assert!(ran.sink.is_err() && !dir.path().join("x/x").exists());
    }
}

#[test]
fn what_is_left_out_is_told_and_a_file_that_is_has_failed() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    fs::create_dir_all(from.join(".farhaul-d.part")).unwrap();
    fs::write(from.join(".farhaul-d.part/lost"), "lost").unwrap();
    fs::write(from.join(".farhaul-notes.journal"), "mine").unwrap();
    symlink("x", from.join(".farhaul-l.part")).unwrap();
    // Marks of copies are no content.
    fs::create_dir(from.join(".farhaul-unsynced")).unwrap();
    fs::write(from.join("file"), "file").unwrap();
    for name in ["b-socket", "c-socket", ".farhaul-socket.part"] {
        std::os::unix::net::UnixListener::bind(from.join(name)).unwrap();
    }
    for push in [true, false] {
        let told = Mutex::new(0);
        let ran = run_watched(
            Sources::Paths(vec![from.clone()]),
            SourceOptions::default(),
            SinkOptions::new(SinkTarget::Path { path: to.clone(), directory: true }),
            Vec::new(),
            push,
            [&|_| {}, &|event| {
                *told.lock().unwrap() += u64::from(matches!(event, Event::Failed { .. }));
            }],
        );
        let report = ran.source.unwrap();
        ran.sink.unwrap();
        assert_eq!((report.failures.count, report.omitted, report.left_out.count), (3, 3, 3));
        assert_eq!(report.left_out.first.len(), 3);
        let of = |kind: &str| ran.events.iter().filter(|event| event.starts_with(kind)).count();
        assert_eq!((of("Failed"), of("Skipped")), (3, 3), "{:?}", ran.events);
        assert_eq!(*told.lock().unwrap(), 3, "the sink's user knows as well");
        let left_out = ran.left_out;
        assert_eq!((left_out.count, left_out.first), (3, report.left_out.first));
    }
    assert_eq!(fs::read_dir(to.join("from")).unwrap().count(), 1);
}

#[test]
fn a_directory_named_as_that_of_marks_is_left_out_in_silence_only_if_it_has_nothing_else() {
    const MARK: &str = ".farhaul-0123456789abcdef-1f.unsynced";
    type Fill = fn(&Path);
    let cases: [(&str, Fill, u64); 7] = [
        ("nothing", |_| {}, 0),
        ("a mark", |marks| fs::write(marks.join(MARK), "mark").unwrap(), 0),
        ("a file", |marks| fs::write(marks.join("thesis"), "mine").unwrap(), 1),
        (
            "both",
            |marks| {
                fs::write(marks.join(MARK), "mark").unwrap();
                fs::write(marks.join("thesis"), "mine").unwrap();
            },
            1,
        ),
        ("a directory", |marks| fs::create_dir(marks.join(MARK)).unwrap(), 1),
        ("a link", |marks| symlink("x", marks.join(MARK)).unwrap(), 1),
        (
            "another name of farhaul's own",
            |marks| fs::write(marks.join(".farhaul-0123456789abcdef-0.part"), "part").unwrap(),
            1,
        ),
    ];
    for (case, fill, failures) in cases {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        let marks = from.join("d/.farhaul-unsynced");
        fs::create_dir_all(&marks).unwrap();
        fs::write(from.join("d/file"), "file").unwrap();
        fill(&marks);
        let ran = run(slice::from_ref(&from), &to, Vec::new(), true);
        let report = ran.source.unwrap();
        ran.sink.unwrap();
        assert_eq!((report.failures.count, report.omitted), (failures, failures), "{case}");
        assert_eq!((report.left_out.count, report.moved_files), (0, 1), "{case}");
        let told = ran.events.iter().filter(|event| event.starts_with("Failed")).count();
        assert_eq!(told as u64, failures, "{case}: {:?}", ran.events);
        assert_eq!(fs::read_dir(to.join("from/d")).unwrap().count(), 1, "{case}");
    }
}

/// Pushes `file` to `to` while `meddle` is done to it whenever the source writes: it is told how much has
/// been written before, and with this. Connections break as of [`Breaking`].
fn push_meddled(
    file: &Path,
    to: &Path,
    limits: &[usize],
    meddle: impl Fn(&fs::File, usize, usize) + Send + Sync + 'static,
) -> Ran {
    push_meddled_over(3, file, to, limits, meddle)
}

/// Over so many lanes; over one, chunks are read and sent in order.
fn push_meddled_over(
    lanes: u32,
    file: &Path,
    to: &Path,
    limits: &[usize],
    meddle: impl Fn(&fs::File, usize, usize) + Send + Sync + 'static,
) -> Ran {
    let handle = fs::File::options().read(true).write(true).open(file).unwrap();
    let written = Mutex::new(0);
    let meddle: Meddle = Arc::new(move |more| {
        let mut written = written.lock().unwrap();
        let before = *written;
        *written += more;
        meddle(&handle, before, *written);
    });
    run_meddled(
        Sources::Paths(vec![file.into()]),
        SourceOptions::default(),
        SinkOptions::new(SinkTarget::Path { path: to.into(), directory: true }),
        (limits.to_vec(), lanes),
        true,
        [&|_| {}; 2],
        meddle,
    )
}

fn append(mut file: &fs::File) {
    file.seek(SeekFrom::End(0)).unwrap();
    file.write_all(b"one more line\n").unwrap();
}

#[test]
fn a_file_that_grows_all_the_time_arrives_as_it_was_announced() {
    for (length, limits) in [
        (0, &[][..]),
        (1000, &[][..]),
        (1 << 20, &[][..]),
        ((5 << 20) + 7, &[][..]),
        ((5 << 20) + 7, &[1_500_000, 1_000_000, 2_000_000, 700_000, 1_048_700][..]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("log"), dir.path().join("to"));
        let content = pattern(length, 5);
        fs::write(&from, &content).unwrap();
        let ran = push_meddled(&from, &to, limits, |file, _, _| append(file));
        let report = ran.source.unwrap();
        ran.sink.unwrap();
        assert_eq!((report.failures.count, report.grown_files), (0, 1), "{length}");
        // It may have grown before it was looked at for the first time.
        let (arrived, whole) = (fs::read(to.join("log")).unwrap(), fs::read(&from).unwrap());
        assert_eq!((report.moved_files, report.tally.bytes), (1, arrived.len() as u64));
        assert!(arrived.len() >= length && arrived.len() < whole.len(), "{length}");
        assert!(whole.starts_with(&content) && whole.starts_with(&arrived), "{length}");
        // The next copy takes the rest.
        let again = run(slice::from_ref(&from), &to, Vec::new(), true).source.unwrap();
        assert_eq!((again.moved_files, again.grown_files), (1, 0), "{length}");
        assert!(fs::read(to.join("log")).unwrap() == fs::read(&from).unwrap());
    }
}

#[test]
fn a_file_that_is_rewritten_and_grows_is_not_taken_for_one_that_only_grows() {
    for (length, at) in [(5 << 20, 24), (12 << 20, (2 << 20) + 77)] {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("base"), dir.path().join("to"));
        fs::write(&from, pattern(length, 6)).unwrap();
        let ran = push_meddled(&from, &to, &[], move |file, written, _| {
            file.write_all_at(&written.to_le_bytes(), at).unwrap();
            append(file);
        });
        let report = ran.source.unwrap();
        ran.sink.unwrap();
        assert_eq!((report.failures.count, report.omitted, report.moved_files), (1, 1, 0));
        let failures = ran.events.iter().filter(|event| event.starts_with("Failed")).count();
        assert_eq!(failures, 1, "{:?}", ran.events);
        assert_eq!(listing(&to), [] as [String; 0]);
    }
}

#[test]
fn one_byte_that_is_overwritten_behind_the_reader_of_a_growing_file_is_noticed() {
    const CHUNK: usize = 1 << 20;
    for seed in 0..3 {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("base"), dir.path().join("to"));
        let content = pattern(12 * CHUNK, seed);
        fs::write(&from, &content).unwrap();
        let random = pattern(8, seed + 100);
        // Neither at an end of the file nor at a seventh of it, where samples would lie.
        let chunk = [2, 5][usize::from(random[0]) % 2];
        let within = u32::from_le_bytes([random[1], random[2], random[3], 0]) as usize;
        let at = chunk * CHUNK + within % CHUNK;
        let other = [!content[at]];
        // By then the chunk has been read: with more lanes, one of them might have taken it and had no turn yet.
        let when = (chunk + 5) * CHUNK;
        let ran = push_meddled_over(1, &from, &to, &[], move |file, before, with| {
            if before < when && with >= when {
                file.write_all_at(&other, at as u64).unwrap();
                append(file);
            }
        });
        let report = ran.source.unwrap();
        ran.sink.unwrap();
        assert_eq!((report.failures.count, report.moved_files), (0, 1), "{seed}");
        // Sent again, and at rest then.
        let (arrived, whole) = (fs::read(to.join("base")).unwrap(), fs::read(&from).unwrap());
        assert!(whole.len() > content.len(), "{seed}: nothing was done to the file");
        assert!(arrived == whole, "{seed}: byte {at}, {} of {}", arrived.len(), whole.len());
        assert_eq!((report.grown_files, report.tally.bytes), (0, whole.len() as u64), "{seed}");
    }
}

#[test]
fn a_sparse_file_that_grows_arrives_as_it_was_announced() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("image"), dir.path().join("to"));
    let made = fs::File::create(&from).unwrap();
    for at in [2, 7] {
        made.write_all_at(&pattern(100_000, at), at << 20).unwrap();
    }
    made.set_len((12 << 20) + 5).unwrap();
    let ran = push_meddled(&from, &to, &[], |file, _, _| append(file));
    let report = ran.source.unwrap();
    ran.sink.unwrap();
    assert_eq!((report.failures.count, report.grown_files, report.moved_files), (0, 1, 1));
    let (arrived, whole) = (fs::read(to.join("image")).unwrap(), fs::read(&from).unwrap());
    assert!(arrived.len() > 12 << 20 && whole.starts_with(&arrived), "{}", arrived.len());
}

#[test]
fn a_log_that_is_cut_is_read_once_more() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("log"), dir.path().join("to"));
    fs::write(&from, pattern(5 << 20, 7)).unwrap();
    // When the first chunk leaves; at most as many have been read as there are lanes.
    let ran = push_meddled(&from, &to, &[], |file, before, with| {
        const SOME: usize = 600 << 10;
        if before < SOME && with >= SOME {
            file.set_len(0).unwrap();
        }
        if with >= SOME {
            append(file);
        }
    });
    let report = ran.source.unwrap();
    ran.sink.unwrap();
    assert_eq!((report.failures.count, report.moved_files), (0, 1));
    let (old, new) = (fs::read(to.join("log")).unwrap(), fs::read(&from).unwrap());
    assert!(new.starts_with(&old), "{} of {} bytes", old.len(), new.len());
}
