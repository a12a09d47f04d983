use super::*;

const MS: fn(u64) -> Time = Time::from_millis;

/// A connection that is set up at 100 ms, RTT 100 ms.
fn open(config: &TcpConfig, bytes: Option<u64>) -> Sender {
    let mut sender = Sender::connect(MS(0), config, bytes, 1, &mut |kind| {
        assert_eq!(kind, Kind::Syn);
    });
    sender.receive(MS(100), &Segment::new(0, Kind::SynAck { window: 1_000 }));
    sender
}

/// The segments that leave, and when to come again.
fn turn(sender: &mut Sender, ms: u64) -> (Vec<u64>, Option<Time>) {
    let mut sent = Vec::new();
    let next = sender.turn(MS(ms), &mut |kind| match kind {
        Kind::Data { number, .. } => sent.push(number),
        other => panic!("not data: {other:?}"),
    });
    (sent, next)
}

fn ack(next: u64, block: Option<Range>) -> Kind {
    let mut blocks = [Block::default(); BLOCKS];
    if let Some((from, to)) = block {
        blocks[0] = Block { gap: (from - next) as u32, len: (to - from) as u32 };
    }
    Kind::Ack { next, window: 1_000, blocks }
}

type Range = (u64, u64);

#[test]
fn slow_start_from_the_initial_window() {
    let mut sender = open(&TcpConfig::default(), None);
    let (sent, next) = turn(&mut sender, 100);
    assert_eq!(sent, (0..10).collect::<Vec<_>>());
    // SRTT 100 ms, RTTVAR 50 ms: a time-out of 300 ms.
    assert_eq!(next, Some(MS(400)));
    sender.receive(MS(200), &Segment::new(0, ack(2, None)));
    assert_eq!(turn(&mut sender, 200).0, [10, 11, 12, 13]);
    assert_eq!(sender.window(), 12.0);
}

#[test]
fn limited_transmit_then_recovery_then_growth() {
    let mut sender = open(&TcpConfig::default(), None);
    turn(&mut sender, 100);
    sender.receive(MS(200), &Segment::new(0, ack(0, Some((1, 2)))));
    assert_eq!(turn(&mut sender, 200).0, [10], "a new segment for a duplicate ACK (RFC 3042)");
    sender.receive(MS(201), &Segment::new(0, ack(0, Some((1, 3)))));
    assert_eq!(turn(&mut sender, 201).0, [11]);
    sender.receive(MS(202), &Segment::new(0, ack(0, Some((1, 4)))));
    assert_eq!(turn(&mut sender, 202).0, [0]);
    assert_eq!((sender.window(), sender.stats().recoveries), (5.0, 1));
    sender.receive(MS(300), &Segment::new(0, ack(10, None)));
    assert_eq!(sender.window(), 5.0, "a partial ACK");
    sender.receive(MS(301), &Segment::new(0, ack(12, None)));
    assert_eq!(sender.window(), 5.0, "the full ACK");
    assert_eq!(turn(&mut sender, 301).0.len(), 5);
    sender.receive(MS(400), &Segment::new(0, ack(13, None)));
    assert_eq!(sender.window(), 5.2);
    let stats = sender.stats();
    assert_eq!((stats.segments_retransmitted, stats.segments_lost, stats.timeouts), (1, 1, 0));
}

/// RFC 5681 §4.3: the loss of a retransmission is a second indication of congestion, that of others
/// which were sent before it was found is none.
#[test]
fn a_lost_retransmission_reduces_the_window_again() {
    let config = TcpConfig {
        proportional: false,
        law: "reno:window=40".parse().unwrap(),
        ..TcpConfig::default()
    };
    let mut sender = open(&config, None);
    assert_eq!(turn(&mut sender, 100).0.len(), 40);
    // Segments 0 and 1 are lost.
    sender.receive(MS(200), &Segment::new(0, ack(0, Some((2, 30)))));
    assert_eq!((sender.window(), sender.stats().recoveries), (20.0, 1));
    let (sent, _) = turn(&mut sender, 200);
    assert_eq!((sent[..3].to_vec(), sent.len()), (vec![0, 1, 40], 10));
    // Both retransmissions are lost too: the three new segments after them arrive.
    sender.receive(MS(300), &Segment::new(0, ack(0, Some((2, 42)))));
    assert_eq!(sender.window(), 20.0);
    sender.receive(MS(301), &Segment::new(0, ack(0, Some((2, 43)))));
    assert_eq!((sender.window(), sender.stats().recoveries), (10.0, 2));
    let (sent, _) = turn(&mut sender, 301);
    assert_eq!(sent[..2], [0, 1]);
    // It is over when what was sent before the second one is acknowledged.
    sender.receive(MS(400), &Segment::new(0, ack(47, None)));
    assert!(sender.recovery.is_some());
    sender.receive(MS(401), &Segment::new(0, ack(48, None)));
    assert!(sender.recovery.is_none());
    assert_eq!((sender.window(), sender.stats().timeouts), (10.0, 0));
}

#[test]
fn time_outs_double_and_end_recoveries() {
    let mut sender = open(&TcpConfig::default(), None);
    turn(&mut sender, 100);
    let (sent, next) = turn(&mut sender, 400);
    assert_eq!((sent, next), (vec![0], Some(MS(1_000))), "600 ms");
    assert_eq!(sender.window(), 1.0);
    let (sent, next) = turn(&mut sender, 1_000);
    assert_eq!((sent, next), (vec![0], Some(MS(2_200))), "1.2 s");
    // Two segments for one that is acknowledged; the time-out stays until there is a sample.
    sender.receive(MS(1_100), &Segment::new(0, ack(1, None)));
    assert_eq!(turn(&mut sender, 1_100), (vec![1, 2], Some(MS(2_300))));
    assert_eq!(sender.stats().segments_lost, 20);
    // Later losses of the same window are no news.
    sender.receive(MS(1_200), &Segment::new(0, ack(1, Some((5, 9)))));
    assert_eq!(sender.stats().recoveries, 0);
}

#[test]
fn an_idle_connection_begins_anew() {
    let mut sender = open(&TcpConfig::default(), None);
    turn(&mut sender, 100);
    sender.receive(MS(200), &Segment::new(0, ack(10, None)));
    assert_eq!(sender.window(), 20.0);
    // Nobody has asked it for more than its time-out.
    assert_eq!(turn(&mut sender, 600).0.len(), 10);
    assert_eq!(sender.window(), 10.0);
}

#[test]
fn the_last_segment_is_short_and_ends_the_connection() {
    let config = TcpConfig { packet_size: 1_040, ..TcpConfig::default() };
    let mut sender = open(&config, Some(2_500));
    let mut sent = Vec::new();
    sender.turn(MS(100), &mut |kind| sent.push(kind));
    assert_eq!(
        sent,
        [
            Kind::Data { number: 0, len: 1_000, last: false },
            Kind::Data { number: 1, len: 1_000, last: false },
            Kind::Data { number: 2, len: 500, last: true },
        ]
    );
    sender.receive(MS(200), &Segment::new(0, ack(3, None)));
    assert!(sender.is_done());
    assert_eq!(sender.turn(MS(200), &mut |_| panic!("nothing")), None);
}

#[test]
fn a_law_may_pace() {
    let config = TcpConfig { law: "udt".parse().unwrap(), ..TcpConfig::default() };
    let mut sender = open(&config, None);
    sender.governor.knobs_mut().period_ns = 2e6;
    assert_eq!(turn(&mut sender, 100), (vec![0], Some(MS(102))));
    assert_eq!(turn(&mut sender, 101), (vec![], Some(MS(102))));
    assert_eq!(turn(&mut sender, 102).0, [1]);
}

#[test]
fn acks_of_what_was_never_sent_are_ignored() {
    let mut sender = open(&TcpConfig::default(), None);
    turn(&mut sender, 100);
    sender.receive(MS(200), &Segment::new(0, ack(11, None)));
    sender.receive(MS(200), &Segment::new(0, ack(0, Some((9, 400)))));
    assert_eq!((sender.board.una(), sender.board.end()), (0, 10));
    assert_eq!(sender.window(), 10.0);
}
