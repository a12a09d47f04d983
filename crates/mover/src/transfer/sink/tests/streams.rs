//! What comes without a size, and what goes to standard output.

use super::*;

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl io::Write for Shared {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        lock(&self.0).write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn piece(entry: u64, offset: u64, data: &[u8]) -> Piece {
    Piece { entry, offset, length: 0, whole: false, version: 0, hash: whole(data) }
}

fn stream(source: &mut Script<'_>) -> u64 {
    let file = source.entry(b"s", 0o644, What::Stream);
    assert_eq!(source.verdict(file), Verdict::Take { have: Vec::new() });
    source.send(&[(piece(file, 3, b"def"), b"def")]).unwrap();
    source.send(&[(piece(file, 0, b"abc"), b"abc")]).unwrap();
    source.send(&[(piece(file, 0, b"abc"), b"abc")]).unwrap();
    file
}

#[test]
fn a_stream_becomes_a_file() {
    let dir = tempfile::tempdir().unwrap();
    run(into(dir.path()), |source| {
        let file = stream(source);
        source.file_end(file, b"abcdefgh").unwrap();
        assert!(!dir.path().join("s").exists());
        source.send(&[(piece(file, 6, b"gh"), b"gh")]).unwrap();
        source.finished(file);
        source.tally.bytes = 8;
        source.end();
    })
    .1
    .unwrap();
    assert_eq!(fs::read(dir.path().join("s")).unwrap(), b"abcdefgh");
    assert_eq!(names(dir.path()), ["s"]);
}

#[test]
fn a_stream_that_breaks_off_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    run(into(dir.path()), |source| {
        stream(source);
    })
    .1
    .unwrap();
    let left = names(dir.path());
    assert!(left.iter().all(|name| name.contains("unsynced")), "{left:?}");
}

#[test]
fn streams_are_bounded_like_files() {
    let dir = tempfile::tempdir().unwrap();
    let options = SinkOptions { max_bytes: Some(5), ..into(dir.path()) };
    run(options, |source| {
        let file = source.entry(b"s", 0o644, What::Stream);
        source.verdict(file);
        let end = source.send(&[(piece(file, 0, b"abcdef"), b"abcdef")]);
        assert!(matches!(end, Err(LaneEnd::Fatal(TransferError::Io { .. }))), "{end:?}");
    })
    .1
    .unwrap();
}

#[test]
fn files_go_to_standard_output_one_after_the_other() {
    let out = Shared::default();
    let target = SinkTarget::Standard(Box::new(out.clone()));
    let data = noise(2 * CHUNK as usize + 9);
    run(SinkOptions::new(target), |source| {
        let big = source.announce("big", data.len() as u64);
        let small = source.announce("small", 4);
        let directory = source.directory("d");
        assert!(source.failed(directory).contains("standard output"));
        source.leave();
        source.verdict(big);
        for index in [2, 1, 0] {
            source.chunk(big, index, &data).unwrap();
        }
        source.file_end(big, &data).unwrap();
        source.finished(big);
        source.verdict(small);
        source.send(&[(whole_piece(small, b"tail"), b"tail")]).unwrap();
        assert_eq!(source.end().1, 1);
    })
    .1
    .unwrap();
    let out = lock(&out.0);
    assert!(out[..data.len()] == data && &out[data.len()..] == b"tail");
}

#[test]
fn holes_are_zeros_on_standard_output() {
    let out = Shared::default();
    let target = SinkTarget::Standard(Box::new(out.clone()));
    let data = noise(CHUNK as usize);
    let size = 2 * CHUNK + 10;
    run(SinkOptions::new(target), |source| {
        let file = source.entry(b"f", 0o644, What::File { size, sparse: true, origin: ORIGIN });
        source.verdict(file);
        source.say(Message::Zeros { file, first: 1, count: 2 }).unwrap();
        let hash = leaf(size, true, 0, &data);
        let piece = Piece { hash, ..chunk_piece(file, size, 0, &data) };
        source.send(&[(piece, &data)]).unwrap();
        let mut tree = ChunkTree::new(size, true);
        tree.insert(0, hash);
        tree.insert_zeros(1, 2).unwrap();
        source.say(Message::FileEnd { file, digest: tree.root(), size }).unwrap();
        source.finished(file);
        source.end();
    })
    .1
    .unwrap();
    let out = lock(&out.0);
    assert!(out[..CHUNK as usize] == data && out.len() as u64 == size);
    assert!(out[CHUNK as usize..].iter().all(|byte| *byte == 0));
}
