use proptest::prelude::*;

use super::*;

/// Bytes that differ everywhere, fast to make.
fn content(size: usize) -> Vec<u8> {
    let mut data = vec![0; size];
    blake3::Hasher::new().update(b"content").finalize_xof().fill(&mut data);
    data
}

fn cut(data: &[u8]) -> Vec<&[u8]> {
    data.chunks(CHUNK as usize).collect()
}

fn leaves(data: &[u8], sparse: bool) -> Vec<Cv> {
    let size = data.len() as u64;
    let leaf = |(index, chunk)| leaf(size, sparse, index as u64, chunk);
    cut(data).into_iter().enumerate().map(leaf).collect()
}

/// Chunk numbers below `total` in an order that `seed` says.
fn shuffled(total: u64, seed: u64) -> Vec<u64> {
    let mut order: Vec<u64> = (0..total).collect();
    order
        .sort_by_key(|n| *blake3::hash(&[n.to_le_bytes(), seed.to_le_bytes()].concat()).as_bytes());
    order
}

fn assert_consistent(tree: &ChunkTree) {
    let nodes = tree.nodes();
    let mut at = 0;
    let mut gaps = Vec::new();
    for node in &nodes {
        let chunks = node.chunks().unwrap();
        assert!(chunks.start >= at && chunks.end <= tree.chunks());
        if at < chunks.start {
            gaps.push(at..chunks.start);
        }
        at = chunks.end;
    }
    if at < tree.chunks() {
        gaps.push(at..tree.chunks());
    }
    assert_eq!(tree.missing().collect::<Vec<_>>(), gaps);
    assert_eq!(tree.is_complete(), gaps.is_empty());
    let mut again = tree.clone();
    (again.subtrees, again.present) = (BTreeMap::new(), 0);
    for node in nodes.iter().rev() {
        again.insert_node(*node).unwrap();
    }
    assert_eq!((again.nodes(), again.root()), (nodes, tree.root()));
    assert_eq!(again.present_bytes(), tree.present_bytes());
}

#[test]
fn dense_files_of_every_size_have_the_plain_digest() {
    let chunk = CHUNK as usize;
    let data = content(9 * chunk + 1);
    let mut sizes = vec![0, 1, 1023, 1024, 1025, chunk - 1];
    for n in 1..=9 {
        sizes.extend([n * chunk, n * chunk + 1, n * chunk - 1]);
    }
    for size in sizes {
        let data = &data[..size];
        let mut tree = ChunkTree::new(size as u64, false);
        for (index, cv) in leaves(data, false).into_iter().enumerate() {
            assert_eq!(tree.root(), None);
            assert!(tree.insert(index as u64, cv));
        }
        assert_eq!(tree.root(), Some(blake3::hash(data).into()), "{size}");
        assert_eq!(tree.present_bytes(), size as u64);
        assert_consistent(&tree);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_order_gives_the_plain_digest(chunks in 1..14u64, rest in 0..CHUNK, seed: u64) {
        let data = content((chunks * CHUNK - rest) as usize);
        let leaves = leaves(&data, false);
        let mut tree = ChunkTree::new(data.len() as u64, false);
        for index in shuffled(leaves.len() as u64, seed) {
            prop_assert!(!tree.contains(index));
            prop_assert!(tree.insert(index, leaves[index as usize]));
            prop_assert!(!tree.insert(index, leaves[index as usize]), "twice");
            assert_consistent(&tree);
        }
        prop_assert_eq!(tree.root(), Some(blake3::hash(&data).into()));
    }

    /// Whatever of the zeros comes as data, as ranges, or as ranges over what is there.
    #[test]
    fn zeros_left_out_are_zeros_sent(
        kinds in prop::collection::vec(any::<bool>(), 1..14),
        rest in 0..CHUNK,
        ranges in prop::collection::vec((0..14u64, 1..14u64), 0..6),
        seed: u64,
    ) {
        let mut data = content(kinds.len() * CHUNK as usize);
        for (chunk, zero) in data.chunks_mut(CHUNK as usize).zip(&kinds) {
            if *zero {
                chunk.fill(0);
            }
        }
        data.truncate(data.len() - rest as usize);
        let size = data.len() as u64;
        let leaves = leaves(&data, true);
        let mut sent = ChunkTree::new(size, true);
        for index in shuffled(leaves.len() as u64, seed) {
            prop_assert!(sent.insert(index, leaves[index as usize]));
            assert_consistent(&sent);
        }
        let mut left_out = ChunkTree::new(size, true);
        let order = shuffled(leaves.len() as u64, !seed);
        for index in &order {
            if !kinds[*index as usize] {
                left_out.insert(*index, leaves[*index as usize]);
            }
            for (first, count) in &ranges {
                // Only ranges whose data is there already: zeros do not replace it.
                let there = |at| kinds.get(at as usize) == Some(&true) || left_out.contains(at);
                if (*first..first + count).all(there) {
                    left_out.insert_zeros(*first, *count).unwrap();
                }
                assert_consistent(&left_out);
            }
        }
        let total = left_out.chunks();
        left_out.insert_zeros(0, total).unwrap();
        prop_assert_eq!(left_out.root(), sent.root());
        prop_assert!(left_out.root().is_some());
    }

    /// Nodes from a stranger: refused or taken, never a panic, never counted twice.
    #[test]
    fn any_node_is_taken_or_refused(
        size: u64,
        sparse: bool,
        nodes in prop::collection::vec((any::<u8>(), 0..70u32, any::<u64>()), 0..20),
        zeros in prop::collection::vec((any::<u64>(), 0..64u32, any::<u64>()), 0..10),
    ) {
        let mut tree = ChunkTree::new(size, sparse);
        for (level, shift, index) in nodes {
            let node = Node { level: level % 66, index: index.checked_shr(shift).unwrap_or(0), cv: [7; 32] };
            let _ = tree.insert_node(node);
        }
        for (first, shift, count) in zeros {
            let _ = tree.insert_zeros(first >> shift, count >> shift);
        }
        assert_consistent(&tree);
    }
}

#[test]
fn an_exabyte_of_zeros_costs_nothing() {
    for size in [i64::MAX as u64, 1 << 60, (1 << 60) + 1, u64::MAX] {
        let mut tree = ChunkTree::new(size, true);
        assert!(tree.insert(5, [7; 32]));
        tree.insert_zeros(0, 1 << 40).unwrap();
        assert!(tree.nodes().len() <= 2, "{}", tree.nodes().len());
        let total = tree.chunks();
        tree.insert_zeros(3, total - 3).unwrap();
        assert!(tree.is_complete() && tree.nodes().len() < 128);
        assert_eq!(tree.present_bytes(), size);
        assert!(tree.root().is_some());
        assert_consistent(&tree);
    }
}

#[test]
fn size_place_and_kind_show_in_the_digest() {
    let all_zeros = |size| {
        let mut tree = ChunkTree::new(size, true);
        tree.insert_zeros(0, tree.chunks()).unwrap();
        tree.root().unwrap()
    };
    let with = |index| {
        let mut tree = ChunkTree::new(8 * CHUNK, true);
        tree.insert(index, chunk_cv(index, &[1; CHUNK as usize]));
        tree.insert_zeros(0, 8).unwrap();
        tree.root().unwrap()
    };
    let all = [
        all_zeros(0),
        all_zeros(1),
        all_zeros(CHUNK),
        all_zeros(CHUNK + 1),
        all_zeros(8 * CHUNK),
        with(0),
        with(1),
        with(7),
        whole(&[]),
        whole(&[0]),
    ];
    for (i, one) in all.iter().enumerate() {
        assert!(!all[..i].contains(one), "{i} collides");
    }
}

#[test]
fn what_has_no_place_is_refused() {
    let mut tree = ChunkTree::new(4 * CHUNK, false);
    let node = |level, index| Node { level, index, cv: [1; 32] };
    assert_eq!(tree.insert_node(node(2, 0)), Err(BadNode::Root));
    assert_eq!(tree.insert_node(node(0, 4)), Err(BadNode::OutOfRange));
    assert_eq!(tree.insert_node(node(1, u64::MAX)), Err(BadNode::OutOfRange));
    assert_eq!(tree.insert_node(node(255, 0)), Err(BadNode::OutOfRange));
    assert_eq!(tree.insert_zeros(0, 1), Err(BadNode::Dense));
    tree.insert_node(node(0, 1)).unwrap();
    assert_eq!(tree.insert_node(node(1, 0)), Err(BadNode::Overlap));
    assert_eq!(tree.insert_node(node(0, 1)), Err(BadNode::Overlap));
    tree.insert_node(node(1, 1)).unwrap();
    assert_eq!(tree.insert_node(node(0, 3)), Err(BadNode::Overlap));
    assert!(!tree.insert(4, [0; 32]) && !tree.insert(u64::MAX, [0; 32]));
    let mut tree = ChunkTree::new(4 * CHUNK, true);
    assert_eq!(tree.insert_zeros(1, 4), Err(BadNode::OutOfRange));
    assert_eq!(tree.insert_zeros(1, u64::MAX), Err(BadNode::OutOfRange));
    assert_eq!(tree.insert_zeros(4, 0), Ok(()));
}

#[test]
fn an_unverified_tree_knows_what_is_there_and_no_root() {
    let mut tree = ChunkTree::unverified(3 * CHUNK);
    assert!(tree.insert(1, [9; 32]));
    tree.insert_zeros(2, 1).unwrap();
    assert!(tree.missing().eq(std::iter::once(0..1)));
    assert!(tree.nodes().iter().all(|node| node.cv == ZEROS));
    tree.insert(0, [9; 32]);
    assert!(tree.is_complete());
    assert_eq!(tree.root(), None);
}

#[test]
fn zeros_are_told_from_the_rest() {
    assert!(is_zero(&[]));
    for length in [1, 2, 4096, CHUNK as usize] {
        let mut data = vec![0; length];
        assert!(is_zero(&data));
        for at in [0, length / 2, length - 1] {
            data[at] = 1;
            assert!(!is_zero(&data), "{length} {at}");
            data[at] = 0;
        }
    }
}
