//! A block that can be read has pieces that fill it, and is written as it came.

#![no_main]

use farhaul_mover::transfer::block::{BLOCK_HEADER, Block, MAX_DATA, MAX_PIECES, PIECE_HEADER};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let (mut block, mut rest) = (Block::default(), bytes);
    loop {
        let before = rest;
        match block.read_from(&mut rest) {
            Ok(true) => {}
            Ok(false) => {
                assert_eq!(before.len() - rest.len(), BLOCK_HEADER);
                assert!(block.pieces().is_empty());
                continue;
            }
            Err(_) => return,
        }
        let taken = &before[..before.len() - rest.len()];
        assert!((1..=MAX_PIECES).contains(&block.pieces().len()));
        let data: usize = block
            .each()
            .map(|(piece, data)| {
                assert_eq!(piece.length as usize, data.len());
                assert!(piece.offset <= i64::MAX as u64);
                data.len()
            })
            .sum();
        assert!(data <= MAX_DATA);
        assert_eq!(data + block.pieces().len() * PIECE_HEADER + BLOCK_HEADER, taken.len());
        let mut again = Vec::new();
        block.write_to(&mut again).expect("room");
        assert_eq!(again, taken);
    }
});
