//! The arithmetic of the number spaces against arithmetic that cannot wrap: all pairs near every edge,
//! and with FARHAUL_LONG=1 every number there is.

use farhaul_wire::{AckSeq, MsgNo, Seq};

const SPACE: i64 = 1 << 31;
const HALF: i64 = SPACE / 2;

/// Numbers within `reach` of where something wraps or changes its sign.
fn edges(reach: i64) -> Vec<i64> {
    let near = |edge: i64| (edge - reach..=edge + reach).map(|n| n.rem_euclid(SPACE));
    let mut numbers: Vec<i64> =
        [0, HALF / 2, HALF, HALF + HALF / 2].into_iter().flat_map(near).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

fn seq(number: i64) -> Seq {
    Seq::new(number as u32)
}

/// Signed steps from `b` to `a`, from -2^30 to 2^30 - 1.
fn distance(a: i64, b: i64) -> i64 {
    (a - b + HALF).rem_euclid(SPACE) - HALF
}

#[track_caller]
fn check(a: i64, b: i64) {
    let (x, y) = (seq(a), seq(b));
    let since = i64::from(x.since(y));
    assert_eq!(since, distance(a, b), "{a} since {b}");
    // Going there and back again.
    let steps = (a - b).rem_euclid(SPACE) as u32;
    assert_eq!((y.plus(steps), x.minus(steps)), (x, y), "{a}, {b}");
    let later = if since > 0 { x } else { y };
    assert_eq!(x.later(y), later, "{a}, {b}");
    if since != -HALF {
        assert_eq!(i64::from(y.since(x)), -since, "{a}, {b}");
        assert_eq!(y.later(x), later, "{a}, {b}");
    }
}

fn check_steps(a: i64) {
    let x = seq(a);
    assert_eq!(i64::from(x.value()), a);
    assert_eq!(i64::from(x.next().value()), (a + 1) % SPACE);
    assert_eq!(i64::from(x.prev().value()), (a - 1).rem_euclid(SPACE));
    assert_eq!((x.next().prev(), x.next().since(x), x.prev().since(x)), (x, 1, -1));
    assert_eq!(i64::from(AckSeq::new(a as u32).next().value()), (a + 1) % SPACE);
    // The space of messages is smaller: 29 bits, and without 0 and all ones when counting on.
    let message = MsgNo::new(a as u32);
    let value = a % (1 << 29);
    assert_eq!(i64::from(message.value()), value);
    let next = if value >= (1 << 29) - 2 { 1 } else { value + 1 };
    assert_eq!(i64::from(message.next().value()), next);
}

#[test]
fn all_pairs_near_every_edge() {
    let numbers = edges(200);
    for &a in &numbers {
        check_steps(a);
        numbers.iter().for_each(|b| check(a, *b));
    }
}

/// What has the highest bit set, too, as a word of the wire may.
#[test]
fn steps_of_any_size() {
    for a in edges(3) {
        for n in edges(100).into_iter().flat_map(|n| [n, n + SPACE]) {
            assert_eq!(i64::from(seq(a).plus(n as u32).value()), (a + n) % SPACE);
            assert_eq!(i64::from(seq(a).minus(n as u32).value()), (a - n).rem_euclid(SPACE));
            assert_eq!(i64::from(Seq::new(n as u32).value()), n % SPACE);
        }
    }
}

/// Every number against those at the edges; without FARHAUL_LONG, one in 65,537.
#[test]
#[allow(clippy::disallowed_methods, reason = "how long a test runs is no option of the crate")]
fn every_number() {
    let long = std::env::var_os("FARHAUL_LONG").is_some_and(|value| value == "1");
    let step = if long { 1 } else { 65_537 };
    let anchors = [0, 1, HALF - 1, HALF, SPACE - 1];
    for a in (0..SPACE).step_by(step) {
        check_steps(a);
        anchors.iter().for_each(|b| check(a, *b));
    }
}
