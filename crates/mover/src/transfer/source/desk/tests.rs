//! Files under way, as lanes and the sink see them.

use super::*;
use crate::frame::Timestamp;
use crate::transfer::tree_hash::Node;

fn seen(size: u64) -> Seen {
    let (attributes, origin) = (Attributes::default(), Origin::default());
    Seen { size, sparse: false, attributes, origin }
}

fn desk(sizes: &[u64]) -> Desk {
    let mut desk = Desk::new(true, Arc::default());
    for (file, size) in sizes.iter().enumerate() {
        let path = PathBuf::from(format!("f{file}"));
        let place = Place { source: 0, path: path.as_path().into() };
        desk.announce(file as u64, path, place, seen(*size));
    }
    desk
}

fn take_all(desk: &mut Desk, file: u64) {
    let verdict = Verdict::Take { have: Vec::new() };
    assert_eq!(desk.verdict(file, verdict, false), Ok(None));
}

fn opened() -> Arc<Opened> {
    Arc::new(Opened::of(tempfile::tempfile().unwrap()))
}

fn piece(job: &Job, chunk: Option<u64>) -> Piece {
    let offset = chunk.unwrap_or(0) * CHUNK;
    let (entry, version) = (job.file, job.version);
    let length = job.seen.size.saturating_sub(offset).min(CHUNK) as u32;
    Piece { entry, offset, length, whole: chunk.is_none(), version, hash: [1; 32] }
}

/// Opens the file that is next and returns its job.
fn open(desk: &mut Desk) -> Job {
    let Some(Work::Open(job)) = desk.work() else { panic!("nothing to open") };
    assert!(desk.opened(&job, opened(), &[]).is_empty());
    job
}

/// The chunk that is next.
fn chunk(desk: &mut Desk) -> Option<u64> {
    match desk.work() {
        Some(Work::Chunk(_, _, chunk, _)) => Some(chunk),
        None => None,
        work => panic!("{work:?}"),
    }
}

#[test]
fn small_files_travel_together_and_are_over_with_their_block() {
    let mut desk = desk(&[10, 0, 20, CHUNK]);
    for file in 0..4 {
        take_all(&mut desk, file);
    }
    let Some(Work::Bundle(jobs)) = desk.work() else { panic!("no bundle") };
    assert_eq!(jobs.len(), 3, "the fourth does not fit beside them");
    let pieces: Vec<Piece> = jobs.iter().map(|job| piece(job, None)).collect();
    let number = desk.number();
    desk.sent(number, 0, &pieces);
    let (bytes, over) = desk.stored(number);
    assert_eq!((bytes, over.len()), (30, 3));
    assert_eq!(desk.stored(number), (0, Vec::new()), "confirmed twice");
    assert!(!desk.is_empty());
    assert!(matches!(desk.work(), Some(Work::Bundle(jobs)) if jobs.len() == 1));
}

#[test]
fn each_chunk_is_given_out_once_and_the_end_told_once() {
    let mut desk = desk(&[3 * CHUNK + 1]);
    take_all(&mut desk, 0);
    let job = open(&mut desk);
    let taken: Vec<u64> = std::iter::from_fn(|| chunk(&mut desk)).collect();
    assert_eq!(taken, [0, 1, 2, 3]);
    for chunk in [2, 0, 3] {
        desk.read(&job, chunk, [2; 32]);
        assert_eq!(desk.next(&job), Next::Nothing);
    }
    desk.read(&job, 1, [2; 32]);
    let Next::End(Some(digest)) = desk.next(&job) else { panic!("not the end") };
    assert_eq!(desk.next(&job), Next::Nothing);
    let over = desk.remove(0, None).unwrap();
    assert_eq!((over.digest, over.resumed), (Some(digest), 0));
    assert!(desk.is_empty());
}

#[test]
fn what_the_sink_has_is_not_sent() {
    let mut desk = desk(&[4 * CHUNK]);
    let have =
        vec![Node { level: 1, index: 0, cv: [5; 32] }, Node { level: 0, index: 3, cv: [6; 32] }];
    assert_eq!(desk.verdict(0, Verdict::Take { have }, false), Ok(None));
    let job = open(&mut desk);
    assert_eq!(chunk(&mut desk), Some(2));
    assert_eq!(chunk(&mut desk), None);
    desk.read(&job, 2, [7; 32]);
    assert!(matches!(desk.next(&job), Next::End(Some(_))));
    assert_eq!(desk.remove(0, None).unwrap().resumed, 3 * CHUNK);
}

#[test]
fn a_file_that_is_there_in_full_ends_when_it_is_opened() {
    let mut desk = desk(&[2 * CHUNK]);
    let have = (0..2).map(|index| Node { level: 0, index, cv: [5; 32] }).collect();
    assert_eq!(desk.verdict(0, Verdict::Take { have }, false), Ok(None));
    let job = open(&mut desk);
    assert!(matches!(desk.next(&job), Next::End(Some(_))));
}

#[test]
fn what_a_broken_lane_carried_is_sent_again() {
    let mut desk = desk(&[2 * CHUNK, 5]);
    take_all(&mut desk, 0);
    take_all(&mut desk, 1);
    let Some(Work::Bundle(jobs)) = desk.work() else { panic!("no bundle") };
    let (first, second) = (desk.number(), desk.number());
    desk.sent(first, 7, &[piece(&jobs[0], None)]);
    let job = open(&mut desk);
    for at in 0..2 {
        assert_eq!(chunk(&mut desk), Some(at));
        desk.read(&job, at, [3; 32]);
    }
    desk.sent(second, 7, &[piece(&job, Some(0))]);
    let third = desk.number();
    desk.sent(third, 8, &[piece(&job, Some(1))]);
    desk.lane_broke(7);
    let work = desk.work();
    let expected = piece(&job, Some(0)).hash;
    assert!(matches!(work, Some(Work::Chunk(_, _, 0, Some(hash))) if hash == expected), "{work:?}");
    assert!(matches!(desk.work(), Some(Work::Bundle(jobs)) if jobs[0].file == 1));
    assert!(desk.work().is_none(), "the other lane's block is not lost");
}

#[test]
fn a_file_that_changes_begins_anew_but_not_for_ever() {
    let mut desk = desk(&[2 * CHUNK]);
    for version in 0..ATTEMPTS {
        take_all(&mut desk, 0);
        let job = open(&mut desk);
        assert_eq!(job.version, version);
        assert_eq!(chunk(&mut desk), Some(0));
        let number = desk.number();
        desk.sent(number, 0, &[piece(&job, Some(0))]);
        let modified = Timestamp { seconds: i64::from(version) + 1, nanoseconds: 0 };
        let now = Seen {
            attributes: Attributes { modified, ..Attributes::default() },
            ..seen(2 * CHUNK)
        };
        let changed = desk.changed(&job, now);
        if version + 1 == ATTEMPTS {
            assert!(matches!(changed, Some(Err(_))));
            assert!(desk.is_empty());
        } else {
            assert!(matches!(changed, Some(Ok(_))));
            assert!(desk.changed(&job, now).is_none(), "another lane saw it, too");
            // What was under way of it is nobody's business any more.
            desk.read(&job, 0, [0; 32]);
            desk.lane_broke(0);
            assert!(desk.work().is_none());
        }
    }
}

#[test]
fn zeros_are_told_and_not_sent() {
    let mut desk = Desk::new(true, Arc::default());
    let place = Place { source: 0, path: Path::new("s").into() };
    let sparse = Seen { sparse: true, ..seen(10 * CHUNK) };
    desk.announce(0, "s".into(), place, sparse);
    take_all(&mut desk, 0);
    let Some(Work::Open(job)) = desk.work() else { panic!("nothing to open") };
    assert_eq!(desk.opened(&job, opened(), &[2..3, 9..10]), [0..2, 3..9]);
    assert_eq!(chunk(&mut desk), Some(2));
    assert_eq!(chunk(&mut desk), Some(9));
    assert_eq!(chunk(&mut desk), None);
}

#[test]
fn a_peer_that_says_what_cannot_be_is_refused() {
    let mut desk = desk(&[2 * CHUNK]);
    let take = || Verdict::Take { have: Vec::new() };
    assert!(desk.verdict(9, take(), false).is_err(), "not announced");
    let bad = vec![Node { level: 3, index: 1, cv: [0; 32] }];
    assert!(desk.verdict(0, Verdict::Take { have: bad }, false).is_err());
    take_all(&mut desk, 0);
    assert!(desk.verdict(0, take(), false).is_err(), "twice");
    desk.damaged(0, 1 << 60);
    desk.damaged(77, 0);
    assert!(matches!(desk.work(), Some(Work::Open(_))), "chunks that cannot be are not sent");
}

#[test]
fn few_files_are_open_at_a_time() {
    let mut desk = desk(&[2 * CHUNK; OPEN + 10]);
    for file in 0..(OPEN + 10) as u64 {
        take_all(&mut desk, file);
    }
    let mut jobs = Vec::new();
    while let Some(Work::Open(job)) = desk.work() {
        jobs.push(job);
    }
    assert_eq!(jobs.len(), OPEN);
    desk.remove(jobs[0].file, None);
    assert!(matches!(desk.work(), Some(Work::Open(_))));
}

#[test]
fn a_small_file_that_was_damaged_is_sent_again() {
    let mut desk = desk(&[10, 20]);
    take_all(&mut desk, 0);
    take_all(&mut desk, 1);
    let Some(Work::Bundle(jobs)) = desk.work() else { panic!("no bundle") };
    let pieces: Vec<Piece> = jobs.iter().map(|job| piece(job, None)).collect();
    let number = desk.number();
    desk.sent(number, 0, &pieces);
    // The sink says so before it says that it is done with the block.
    desk.damaged(1, 0);
    let (bytes, over) = desk.stored(number);
    assert_eq!((bytes, over.len()), (10, 1), "what was damaged is not proved");
    assert!(matches!(desk.work(), Some(Work::Bundle(jobs)) if jobs[0].file == 1));
}

#[test]
fn only_chunks_that_arrived_whole_are_proved() {
    let mut desk = desk(&[2 * CHUNK + 5]);
    take_all(&mut desk, 0);
    let job = open(&mut desk);
    let mut blocks = Vec::new();
    while let Some(chunk) = chunk(&mut desk) {
        blocks.push(desk.number());
        desk.sent(blocks[blocks.len() - 1], 0, &[piece(&job, Some(chunk))]);
    }
    desk.damaged(0, 1);
    let proved: Vec<u64> = blocks.into_iter().map(|block| desk.stored(block).0).collect();
    assert_eq!(proved, [CHUNK, 0, 5]);
}

#[test]
fn what_the_sink_has_lost_is_sent_again_and_no_more_than_it_had() {
    for (opened_before, ended) in [(false, false), (true, false), (true, true)] {
        let mut desk = desk(&[5 * CHUNK + 7]);
        let node = |index| Node::chunk(index, [1; 32]);
        let have = vec![node(1), node(2), node(5)];
        assert_eq!(desk.verdict(0, Verdict::Take { have }, false), Ok(None));
        assert!(desk.lost(0, 5, 2).is_err(), "beyond the end");
        assert!(desk.lost(0, 0, 3).is_err(), "more than it had");
        let mut sent = Vec::new();
        let job = opened_before.then(|| open(&mut desk));
        if ended {
            let job = job.as_ref().unwrap();
            while let Some(chunk) = chunk(&mut desk) {
                desk.read(job, chunk, [1; 32]);
                sent.push(chunk);
            }
            assert!(matches!(desk.next(job), Next::End(Some(_))));
        }
        desk.lost(0, 1, 1).unwrap();
        desk.lost(0, 5, 1).unwrap();
        assert_eq!(desk.get(0).map(|pending| pending.resumed), Some(CHUNK));
        assert!(desk.lost(0, 1, 2).is_err(), "more than is left");
        let job = job.unwrap_or_else(|| open(&mut desk));
        let mut ends = 0;
        while let Some(chunk) = chunk(&mut desk) {
            desk.read(&job, chunk, [1; 32]);
            sent.push(chunk);
            ends += usize::from(matches!(desk.next(&job), Next::End(_)));
        }
        assert_eq!(ends, usize::from(!ended), "the end is told once");
        sent.sort_unstable();
        assert_eq!(sent, [0, 1, 3, 4, 5]);
    }
    let mut desk = desk(&[10]);
    desk.lost(0, 0, 1).unwrap();
    desk.lost(9, 0, 1).unwrap();
}

#[test]
fn a_sink_that_wants_everything_again_is_bounded() {
    let memory = Arc::new(Account::new(64 << 10));
    let mut desk = Desk::new(true, Arc::clone(&memory));
    let path = PathBuf::from("f");
    let place = Place { source: 0, path: path.as_path().into() };
    desk.announce(0, path, place, seen(5000 * CHUNK));
    take_all(&mut desk, 0);
    open(&mut desk);
    // The same again and again is wanted once.
    for _ in 0..10_000 {
        desk.damaged(0, 7);
    }
    assert!(memory.used() > 0 && memory.used() < 1000, "{}", memory.used());
    assert!(matches!(desk.work(), Some(Work::Chunk(_, _, 7, _))));
    assert_eq!(memory.used(), 0);
    (0..5000).for_each(|chunk| desk.damaged(0, chunk));
    assert!(memory.check().is_err(), "{}", memory.used());
}
