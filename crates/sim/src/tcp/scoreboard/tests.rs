#![allow(clippy::single_range_in_vec_init, reason = "lists of ranges, some of one")]

use std::collections::BTreeSet;

use farhaul_base::Rng;

use super::*;

const MS: fn(u64) -> Time = Time::from_millis;

fn sent(segments: u64) -> Scoreboard {
    let mut board = Scoreboard::default();
    for number in 0..segments {
        assert_eq!(board.send_new(MS(number)), number);
    }
    board
}

fn ack(board: &mut Scoreboard, next: u64, blocks: &[Range<u64>]) -> (Delivery, Vec<Range<u64>>) {
    let delivery = board.acknowledge(MS(1_000), next, blocks.iter().cloned());
    let mut lost = Vec::new();
    board.detect(|run| lost.push(run));
    (delivery, lost)
}

#[test]
fn three_later_segments_tell_of_a_loss() {
    let mut board = sent(10);
    assert_eq!(ack(&mut board, 2, &[]).0.acked, 2);
    for next in [4, 5] {
        assert_eq!(ack(&mut board, 2, &[3..next]).1, []);
        assert!(!board.is_missing_one());
    }
    assert_eq!(board.pipe(), 6, "limited transmit: what has arrived makes room");
    let (delivery, lost) = ack(&mut board, 2, &[3..6]);
    assert_eq!((delivery.acked, delivery.delivered, lost), (0, 1, vec![2..3]));
    assert!(board.is_missing_one());
    assert_eq!((board.pipe(), board.outstanding()), (4, 8));
    assert_eq!(board.resend_lost(), Some(2));
    assert_eq!((board.resend_lost(), board.pipe()), (None, 5));
    let (delivery, _) = ack(&mut board, 6, &[]);
    assert_eq!((delivery.acked, delivery.delivered, delivery.newest), (4, 1, None), "Karn's rule");
    assert_eq!((board.pipe(), board.una(), board.is_missing_one()), (4, 6, false));
}

#[test]
fn losses_are_found_in_runs_and_sent_again_in_order() {
    let mut board = sent(20);
    let (_, lost) = ack(&mut board, 1, &[8..9, 12..14]);
    assert_eq!(lost, [1..8]);
    let (_, lost) = ack(&mut board, 1, &[19..20, 8..9, 12..14]);
    assert_eq!(lost, [9..12]);
    let order: Vec<u64> = core::iter::from_fn(|| board.resend_lost()).collect();
    assert_eq!(order, [1, 2, 3, 4, 5, 6, 7, 9, 10, 11]);
    // One that arrives after all is not sent again.
    let mut board = sent(10);
    ack(&mut board, 0, &[3..6]);
    ack(&mut board, 0, &[1..2, 3..6]);
    let order: Vec<u64> = core::iter::from_fn(|| board.resend_lost()).collect();
    assert_eq!(order, [0, 2]);
}

#[test]
fn the_wait_for_a_repair_is_no_round_trip() {
    let mut board = sent(6);
    board.lose_all();
    assert_eq!(board.resend_lost(), Some(0));
    // The others had arrived; no ACK had come through.
    let (delivery, _) = ack(&mut board, 6, &[]);
    assert_eq!((delivery.acked, delivery.delivered, delivery.newest), (6, 6, None));
}

#[test]
fn a_retransmission_is_lost_when_three_sent_after_it_have_arrived() {
    let mut board = sent(6);
    ack(&mut board, 0, &[1..6]);
    assert_eq!(board.resend_lost(), Some(0));
    (6..10).for_each(|number| assert_eq!(board.send_new(MS(500)), number));
    assert_eq!(ack(&mut board, 0, &[1..8]).1, []);
    assert_eq!(ack(&mut board, 0, &[1..9]).1, [0..1]);
    assert_eq!(board.pipe(), 1);
    assert_eq!((board.resend_lost(), board.pipe()), (Some(0), 2));
    assert_eq!(ack(&mut board, 10, &[]).0.acked, 10);
    assert_eq!(board.pipe(), 0);
}

#[test]
fn after_a_time_out_all_is_lost_but_what_has_arrived() {
    let mut board = sent(8);
    ack(&mut board, 0, &[2..4, 6..7]);
    assert_eq!(board.resend_lost(), Some(0));
    assert_eq!(board.lose_all(), 5);
    assert_eq!(board.pipe(), 0);
    let order: Vec<u64> = core::iter::from_fn(|| board.resend_lost()).collect();
    assert_eq!(order, [0, 1, 4, 5, 7]);
    assert_eq!(board.pipe(), 5);
}

#[test]
fn without_new_data_what_may_be_lost_is_sent_again() {
    let mut board = sent(8);
    ack(&mut board, 0, &[1..2, 3..4, 6..7]);
    assert_eq!(board.resend_lost(), Some(0));
    // Only one later segment has arrived after each of these.
    assert_eq!(board.resend_doubtful(), Some(2));
    assert_eq!(board.resend_doubtful(), Some(4));
    assert_eq!(board.resend_doubtful(), Some(5));
    assert_eq!(board.resend_doubtful(), None);
    assert_eq!((board.resend_last(), board.resend_last()), (Some(7), None));
}

#[test]
fn round_trips_are_those_of_the_latest_segment() {
    let mut board = sent(10);
    assert_eq!(ack(&mut board, 3, &[]).0.newest.map(|n| n.1), Some(Duration::from_millis(998)));
    assert_eq!(ack(&mut board, 3, &[5..7]).0.newest.map(|n| n.1), Some(Duration::from_millis(994)));
    assert_eq!(ack(&mut board, 3, &[5..7]).0.newest, None, "nothing new");
    assert_eq!(ack(&mut board, 5, &[]).0.newest.map(|n| n.1), Some(Duration::from_millis(996)));
}

/// The counters and the boundary against a plain computation over the whole window.
#[test]
fn counters_agree_with_their_definitions() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let mut board = Scoreboard::default();
        let (mut una, mut sacked) = (0u64, BTreeSet::new());
        let mut lost = BTreeSet::new();
        let mut resent = BTreeSet::new();
        for _ in 0..300 {
            match rng.below(6) {
                0..=2 => {
                    board.send_new(Time::ZERO);
                }
                3 => {
                    if let Some(number) = board.resend_lost() {
                        assert!(lost.contains(&number) && resent.insert(number));
                    }
                }
                4 if rng.chance(0.05) => {
                    board.lose_all();
                    resent.clear();
                    lost = (una..board.end()).filter(|n| !sacked.contains(n)).collect();
                }
                _ => {
                    let end = board.end();
                    if rng.chance(0.2) {
                        una += rng.below(end - una + 1);
                    }
                    let start = una + rng.below(end - una + 1);
                    let block = start..(start + 1 + rng.below(3)).min(end).max(start);
                    let before = una.max(board.una());
                    let block = if block.start == before { block.end..block.end } else { block };
                    sacked.extend(block.clone());
                    board.acknowledge(Time::ZERO, una, core::iter::once(block));
                    for set in [&mut sacked, &mut lost, &mut resent] {
                        set.retain(|n| *n >= una);
                    }
                    lost.retain(|n| !sacked.contains(n));
                    resent.retain(|n| !sacked.contains(n));
                    let mut again = Vec::new();
                    board.detect(|run| again.extend(run));
                    for number in again {
                        resent.remove(&number);
                        lost.insert(number);
                    }
                    for number in una..end {
                        let above = sacked.range(number + 1..).count();
                        let known = sacked.contains(&number) || lost.contains(&number);
                        assert!(known || above < 3, "{number} is lost");
                    }
                }
            }
            let pipe = (una..board.end())
                .filter(|n| !sacked.contains(n))
                .map(|n| u64::from(!lost.contains(&n)) + u64::from(resent.contains(&n)))
                .sum::<u64>();
            assert_eq!((board.una(), board.pipe()), (una, pipe), "seed {seed}");
        }
    }
}
