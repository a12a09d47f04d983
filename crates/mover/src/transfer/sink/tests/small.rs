//! Many small files: the fast path.

use super::*;

#[test]
fn many_small_files_arrive_over_many_lanes() {
    const FILES: u64 = 4000;
    let dir = tempfile::tempdir().unwrap();
    let data = noise(4096);
    run(into(dir.path()), |source| {
        source.directory("d");
        for number in 0..FILES {
            source.announce(&format!("{number}"), data.len() as u64);
        }
        source.leave();
        // The directory is file 0.
        source.verdict(FILES);
        let blocks: Vec<Vec<u8>> = (0..FILES / 250)
            .map(|block| {
                let first = block * 250 + 1;
                let mut filled = Block::default();
                filled.clear(block + 1);
                for file in first..first + 250 {
                    let fill = |room: &mut [u8]| {
                        room.copy_from_slice(&data);
                        Ok::<_, ()>((data.len(), whole_piece(file, &data)))
                    };
                    filled.add(data.len(), fill).unwrap();
                }
                let mut bytes = Vec::new();
                filled.write_to(&mut bytes).unwrap();
                Block::default().write_to(&mut bytes).unwrap();
                bytes
            })
            .collect();
        // Two of each, at the same time: they meet.
        let source = &*source;
        thread::scope(|threads| {
            for lane in 0..4 {
                let blocks = blocks.iter().skip(lane % 2).step_by(2);
                threads.spawn(move || {
                    for block in blocks {
                        source.lane(block).unwrap();
                    }
                });
            }
        });
        assert_eq!(source.sink.progress().files, FILES);
    })
    .1
    .unwrap();
    let content: Vec<_> = tree(&dir.path().join("d")).into_values().collect();
    assert_eq!(content.len() as u64, FILES);
    assert!(content.iter().all(|content| content.as_ref() == Some(&data)));
}
