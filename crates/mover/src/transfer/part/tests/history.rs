//! Whatever happens to a partial file between its transfers.

use std::fs;

use proptest::prelude::*;

use super::*;
use crate::transfer::journal::{HEADER, RECORD};

/// What may happen to a transfer.
#[derive(Clone, Debug)]
enum Step {
    Write(prop::sample::Index),
    Zeros(prop::sample::Index, prop::sample::Index),
    Sync,
    /// The process ends, and the journal loses its end.
    CutJournal(prop::sample::Index),
    /// The process ends while it appends.
    Garbage(Vec<u8>),
    /// The process ends while it writes this chunk.
    HalfChunk(prop::sample::Index),
    /// Somebody cuts the part.
    CutPart(prop::sample::Index),
    /// The machine ends: what was not synced is garbage, though the journal may be there.
    Reboot,
    LosePart,
    LoseJournal,
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        8 => index().prop_map(Step::Write),
        3 => (index(), index()).prop_map(|(first, count)| Step::Zeros(first, count)),
        2 => Just(Step::Sync),
        1 => index().prop_map(Step::CutJournal),
        1 => prop::collection::vec(any::<u8>(), 1..100).prop_map(Step::Garbage),
        1 => index().prop_map(Step::HalfChunk),
        1 => index().prop_map(Step::CutPart),
        2 => Just(Step::Reboot),
        1 => Just(Step::LosePart),
        1 => Just(Step::LoseJournal),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever happens in between, the file that gets the name is the source's, and nothing that
    /// is on the medium is sent again after an ordinary end or a power failure.
    #[test]
    fn any_history_ends_with_the_content(
        zero in prop::collection::vec(any::<bool>(), 1..7),
        rest in 0..CHUNK,
        sparse: bool,
        verify: bool,
        steps in prop::collection::vec(step(), 0..24),
    ) {
        let place = Place::new();
        let mut content = Content::new(&zero, rest, sparse);
        content.identity.verify = verify;
        let chunks = content.chunks();
        let mut epoch = EPOCH;
        let (mut part, _) = place.open(content.identity);
        // The chunks on the medium, and those of which the journal still says so.
        let mut on_medium: Vec<u64> = Vec::new();
        let mut noted: Vec<u64> = Vec::new();
        for step in steps {
            let there: Vec<u64> = (0..chunks).filter(|index| part.has(*index)).collect();
            // What must still be there afterwards.
            let mut kept = there.clone();
            match &step {
                Step::Write(index) => {
                    content.write(&part, index.index(chunks as usize) as u64).unwrap();
                    continue;
                }
                Step::Zeros(first, count) => {
                    let first = first.index(zero.len());
                    let run = zero[first..].iter().take_while(|zero| **zero).count();
                    let count = count.index(run + 1) as u64;
                    prop_assert_eq!(part.zeros(first as u64, count).is_ok(), sparse);
                    continue;
                }
                Step::Sync => {
                    part.sync().unwrap();
                    on_medium.clone_from(&there);
                    noted = there;
                    continue;
                }
                _ => drop(part),
            }
            let journal = File::options().write(true).open(place.path(".journal")).unwrap();
            let file = File::options().write(true).open(place.path(".part")).unwrap();
            let (journal_length, length) =
                (journal.metadata().unwrap().len(), file.metadata().unwrap().len());
            match step {
                Step::CutJournal(at) => {
                    let at = at.index(journal_length as usize + 1) as u64;
                    journal.set_len(at).unwrap();
                    let whole = at.saturating_sub(HEADER as u64) / RECORD as u64 * RECORD as u64;
                    if whole + (HEADER as u64) < journal_length {
                        kept.clear();
                    }
                }
                Step::Garbage(bytes) => journal.write_all_at(&bytes, journal_length).unwrap(),
                Step::HalfChunk(index) => {
                    let index = index.index(chunks as usize) as u64;
                    if !there.contains(&index) {
                        let half = content.chunk(index).len() / 2;
                        file.write_all_at(&vec![99; half], index * CHUNK).unwrap();
                    }
                }
                Step::CutPart(at) => {
                    let at = at.index(length as usize + 1) as u64;
                    file.set_len(at).unwrap();
                    kept.clear(); // subtrees lose all when they lose a chunk
                    if at == length {
                        kept = there;
                    }
                }
                Step::Reboot => {
                    epoch.boot[0] += 1;
                    for index in (0..chunks).filter(|index| !on_medium.contains(index)) {
                        let garbage = vec![99; content.chunk(index).len()];
                        file.write_all_at(&garbage, index * CHUNK).unwrap();
                    }
                    kept.retain(|index| verify && on_medium.contains(index));
                }
                Step::LosePart => {
                    fs::remove_file(place.path(".part")).unwrap();
                    kept.clear();
                }
                Step::LoseJournal => {
                    fs::remove_file(place.path(".journal")).unwrap();
                    kept.clear();
                }
                Step::Write(_) | Step::Zeros(..) | Step::Sync => unreachable!(),
            }
            if !verify {
                // Only what was waited for is sure, and there is nothing to compare the rest with.
                kept.retain(|index| noted.contains(index));
            }
            let (again, opened) = place.open_in(epoch, content.identity).unwrap();
            part = again;
            let lost = prove(&part);
            if verify || opened == Opened::New {
                on_medium = (0..chunks).filter(|index| part.has(*index)).collect();
            }
            noted.retain(|index| part.has(*index));
            if let Opened::New | Opened::Again = opened {
                on_medium.clear();
                noted.clear();
                prop_assert!(lost.is_empty());
            }
            for index in kept {
                prop_assert!(part.has(index), "lost {index} by {opened:?}");
            }
        }
        content.complete(&part, &place);
    }
}
