use super::*;

const MS: fn(u64) -> Time = Time::from_millis;

fn receiver() -> Receiver {
    Receiver::new(&TcpConfig::default())
}

/// The ACK that leaves at `ms`: its number and blocks as ranges.
fn ack(receiver: &mut Receiver, ms: u64) -> Option<(u64, Vec<(u64, u64)>)> {
    match receiver.turn(MS(ms)).0? {
        Kind::Ack { next, blocks, .. } => {
            let present = blocks.iter().take_while(|block| block.len > 0);
            let range = |block: &Block| {
                let start = next + u64::from(block.gap);
                (start, start + u64::from(block.len))
            };
            Some((next, present.map(range).collect()))
        }
        other => panic!("not an ACK: {other:?}"),
    }
}

fn data(receiver: &mut Receiver, ms: u64, number: u64) {
    receiver.receive(MS(ms), number, 1_460, false);
}

#[test]
fn every_second_segment_or_after_40_ms() {
    let mut receiver = receiver();
    data(&mut receiver, 0, 0);
    assert_eq!(receiver.turn(MS(0)), (None, Some(MS(40))));
    data(&mut receiver, 5, 1);
    assert_eq!(ack(&mut receiver, 5), Some((2, vec![])));
    data(&mut receiver, 6, 2);
    assert_eq!(ack(&mut receiver, 45), None);
    assert_eq!(ack(&mut receiver, 46), Some((3, vec![])));
    assert_eq!(receiver.turn(MS(100)), (None, None));
    receiver.receive(MS(100), 3, 60, true);
    assert_eq!(ack(&mut receiver, 100), Some((4, vec![])), "the end");
    assert_eq!((receiver.done(), receiver.bytes()), (Some(4), 3 * 1_460 + 60));
}

/// RFC 2018 §4: the block of the segment that arrived last comes first, then the ones before.
#[test]
fn blocks_are_the_most_recent() {
    let mut receiver = receiver();
    let mut after = |number| {
        data(&mut receiver, 0, number);
        ack(&mut receiver, 0).expect("at once while segments are missing")
    };
    assert_eq!(after(2), (0, vec![(2, 3)]));
    assert_eq!(after(4), (0, vec![(4, 5), (2, 3)]));
    assert_eq!(after(6), (0, vec![(6, 7), (4, 5), (2, 3)]));
    assert_eq!(after(8), (0, vec![(8, 9), (6, 7), (4, 5)]));
    assert_eq!(after(5), (0, vec![(4, 7), (8, 9)]), "two grew together");
    assert_eq!(after(2), (0, vec![(2, 3), (4, 7), (8, 9)]), "a duplicate is reported");
    assert_eq!(after(0), (1, vec![(2, 3), (4, 7), (8, 9)]));
    assert_eq!(after(1), (3, vec![(4, 7), (8, 9)]));
    assert_eq!(after(3), (7, vec![(8, 9)]));
    assert_eq!(after(7), (9, vec![]));
    assert_eq!((receiver.bytes(), receiver.duplicates()), (9 * 1_460, 1));
}

#[test]
fn duplicates_are_acknowledged_at_once() {
    let mut receiver = receiver();
    data(&mut receiver, 0, 0);
    data(&mut receiver, 0, 0);
    assert_eq!(ack(&mut receiver, 0), Some((1, vec![])));
    assert_eq!((receiver.bytes(), receiver.duplicates()), (1_460, 1));
}

#[test]
fn the_short_last_segment_may_come_first() {
    let mut receiver = receiver();
    receiver.receive(MS(0), 1, 100, true);
    assert_eq!((receiver.done(), receiver.bytes()), (None, 0));
    data(&mut receiver, 0, 0);
    assert_eq!((receiver.done(), receiver.bytes()), (Some(2), 1_560));
}

#[test]
fn what_lies_beyond_the_window_is_dropped() {
    let config = TcpConfig { receive_window: 10 * 1_460, ..TcpConfig::default() };
    let mut receiver = Receiver::new(&config);
    data(&mut receiver, 0, 10);
    assert_eq!(ack(&mut receiver, 0), Some((0, vec![])));
    data(&mut receiver, 0, 9);
    assert_eq!(ack(&mut receiver, 0), Some((0, vec![(9, 10)])));
}
