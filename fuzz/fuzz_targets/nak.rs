//! A loss list that parses holds forward ranges only, and encodes to a list of the same ranges.

#![no_main]

use farhaul_wire::{Control, LossReport, LossRange, encode_losses};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|payload: &[u8]| {
    let Ok(list) = LossReport::parse(payload) else { return };
    let ranges: Vec<LossRange> = list.ranges().collect();
    let (least, most) = list.ranges().size_hint();
    assert!((least..=most.expect("the list is finite")).contains(&ranges.len()));
    for range in &ranges {
        let steps = range.last.since(range.first);
        assert!(steps >= 0);
        assert_eq!(range.len(), steps as u32 + 1);
    }

    let mut datagram = vec![0; 16 + payload.len()];
    assert_eq!(Control::Nak(list).write(0, 1, &mut datagram), Some(16 + payload.len()));
    assert_eq!(&datagram[16..], payload);

    // The encoder may need less room: one word for a range of one packet that came in two.
    let mut out = vec![0; payload.len()];
    let (bytes, taken) = encode_losses(&ranges, &mut out);
    assert_eq!(taken, ranges.len());
    let again = LossReport::parse(&out[..bytes]).expect("what was encoded parses");
    assert!(again.ranges().eq(ranges.iter().copied()));

    // Split over packets of two words, the list is the same too.
    let mut left = ranges.as_slice();
    while !left.is_empty() {
        let mut out = [0; 8];
        let (bytes, taken) = encode_losses(left, &mut out);
        let part = LossReport::parse(&out[..bytes]).expect("what was encoded parses");
        assert!(part.ranges().eq(left[..taken].iter().copied()));
        left = &left[taken..];
    }
});
