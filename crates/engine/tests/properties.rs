//! For any path and any behaviour of the applications: what is read is what was written, as far as
//! it goes, and all of it in the end.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod pair;

use core::time::Duration;
use std::collections::BTreeSet;

use bytes::Bytes;
use farhaul_engine::{Chunks, CloseReason, Config, Frames, Mode, Origins, SendError};
use farhaul_link::{
    Blackout, Displacement, Jitter, LinkConfig, LossModel, Probability, QueueConfig, Rate, Reorder,
};
use farhaul_wire::{AckSeq, HEADER_LEN, Seq};
use pair::{A, B, Net, data};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// The same cases on every run.
fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(0x7fff_fffe),
        max_shrink_iters: 200,
        ..ProptestConfig::default()
    }
}

fn shares(most: f64) -> impl Strategy<Value = Probability> {
    prop_oneof![2 => Just(0.0), 1 => 0.0..most].prop_map(|p| Probability::new(p).unwrap())
}

fn milliseconds(most: u64) -> impl Strategy<Value = Duration> {
    (0..=most * 1_000).prop_map(Duration::from_micros)
}

fn displacements() -> impl Strategy<Value = Displacement> {
    let positions = (0u32..40, milliseconds(200));
    prop_oneof![
        milliseconds(50).prop_map(Displacement::Delay),
        positions.prop_map(|(packets, at_most)| Displacement::Positions { packets, at_most }),
    ]
}

fn blackouts() -> impl Strategy<Value = Vec<Blackout>> {
    let blackout = (milliseconds(8_000), milliseconds(8_000))
        .prop_map(|(start, length)| Blackout { start, length, every: None });
    vec(blackout, 0..3)
}

/// One direction of a path.
fn links() -> impl Strategy<Value = LinkConfig> {
    let rate = prop_oneof![
        Just(None),
        (1_000_000u64..1_000_000_000).prop_map(Rate::from_bits_per_second),
    ];
    let queue =
        prop_oneof![Just(QueueConfig::Unlimited), (2u32..400).prop_map(QueueConfig::Packets)];
    let order = option::of((shares(1.0), displacements()));
    let jitter = (milliseconds(20), any::<bool>()).prop_map(|(size, overtake)| Jitter {
        size,
        overtake,
        ..Jitter::default()
    });
    let troubles = (shares(0.3), jitter, order, shares(0.5), blackouts());
    (rate, milliseconds(100), queue, troubles).prop_map(
        |(rate, delay, queue, (loss, jitter, order, duplicate, blackouts))| LinkConfig {
            rate,
            delay,
            jitter,
            queue,
            loss: LossModel::Uniform(loss),
            reorder: order.map(|(probability, by)| Reorder { probability, by }),
            duplicate,
            blackouts,
            ..LinkConfig::default()
        },
    )
}

#[derive(Clone, Debug)]
struct Path {
    links: [LinkConfig; 2],
    seed: u64,
    /// How often the hosts look for packets.
    interval: Duration,
}

fn paths() -> impl Strategy<Value = Path> {
    let interval = prop_oneof![Just(Duration::ZERO), milliseconds(5)];
    (links(), links(), any::<u32>(), interval).prop_map(|(ab, ba, seed, interval)| Path {
        links: [ab, ba],
        seed: u64::from(seed),
        interval,
    })
}

/// Options of one side; counters often start just before their wraps.
fn configs(mode: Mode) -> impl Strategy<Value = Config> {
    let origins = prop_oneof![
        Just(Origins::default()),
        (0u32..100, 0u32..1_000_000, 0u32..10).prop_map(|(isn, timestamp, few)| Origins {
            isn: Some(Seq::new(Seq::MAX).minus(isn)),
            timestamp: u32::MAX - timestamp,
            message: 0x1fff_fffe - few,
            ack: Some(AckSeq::new(Seq::MAX - few)),
        }),
    ];
    let mss = prop_oneof![2 => Just(1_500), 1 => 200u32..9_000];
    let receive_memory = prop_oneof![Just(512 << 20), Just(256 << 10)];
    let law = prop_oneof![Just("udt"), Just("udt4"), Just("udt:noisy,noise=0.4")];
    (mss, origins, receive_memory, law, 1u32..=64).prop_map(
        move |(mss, origins, receive_memory, law, max_segments)| Config {
            mss,
            mode,
            origins,
            receive_memory,
            law: law.parse().unwrap(),
            max_segments,
            connect_timeout: Some(Duration::from_secs(300)),
            linger: Duration::from_secs(3_600),
            ..Config::default()
        },
    )
}

fn connected(path: Path, a: Config, b: Config) -> (Net, [farhaul_engine::ConnectionId; 2]) {
    let [ab, ba] = path.links;
    let mut net = Net::asymmetric(ab, ba, path.seed);
    net.interval = path.interval;
    net.hosts[B].endpoint.listen(b, 16).unwrap();
    let peer = net.hosts[B].addr;
    let a = net.hosts[A].endpoint.connect(net.now, peer, a).unwrap();
    let mut accepted = None;
    let done = net.run_until(Duration::from_secs(300), |net| {
        accepted = accepted.or_else(|| net.hosts[B].endpoint.accept());
        accepted.is_some() && net.hosts[A].endpoint.connection(a).is_some()
    });
    assert!(done, "no connection");
    (net, [a, accepted.unwrap()])
}

/// One direction of a stream: what is written, piece by piece with pauses, and what has come out.
#[derive(Debug)]
struct Stream {
    from: usize,
    pieces: Vec<(usize, Duration)>,
    next: usize,
    written: Vec<u8>,
    read: usize,
}

/// The whole packets of `piece`.
fn frames(piece: &[u8], payload: usize) -> Frames {
    let packets = piece.len() / payload;
    let mut memory = vec![0; packets * (HEADER_LEN + payload)];
    for (to, from) in Frames::payloads(&mut memory, payload).zip(piece.chunks_exact(payload)) {
        to.copy_from_slice(from);
    }
    Frames::new(memory, payload, packets)
}

impl Stream {
    fn new(from: usize, pieces: Vec<(usize, Duration)>) -> Self {
        Stream { from, pieces, next: 0, written: Vec::new(), read: 0 }
    }

    /// Writes the next piece, if there is room; returns how long to wait then.
    fn write(&mut self, net: &mut Net, ids: [farhaul_engine::ConnectionId; 2]) -> Option<Duration> {
        let &(len, pause) = self.pieces.get(self.next)?;
        let mut piece = data(self.next as u64, len);
        // Every second one in frames, of which there are whole ones only.
        let framed = self.next % 2 == 1;
        let sent = net.update(self.from, ids[self.from], |c| {
            if framed {
                let frames = frames(&piece, c.payload_size());
                piece.truncate(frames.len());
                c.send_frames(&mut Some(frames))
            } else {
                c.send_bytes(Bytes::from(piece.clone()))
            }
        });
        if sent.is_ok() {
            self.written.extend(piece);
            self.next += 1;
        }
        Some(pause)
    }

    /// Reads up to about `most` bytes, which must be those written.
    fn read(&mut self, net: &mut Net, ids: [farhaul_engine::ConnectionId; 2], most: usize) {
        let to = 1 - self.from;
        let mut chunks = Chunks::default();
        net.update(to, ids[to], |c| c.read(most, &mut chunks));
        let mut got = vec![0; chunks.len()];
        chunks.copy_to(&mut got);
        let expected = self.written.get(self.read..self.read + got.len());
        assert_eq!(expected, Some(&got[..]), "at byte {}", self.read);
        self.read += got.len();
    }

    fn is_through(&self) -> bool {
        self.next == self.pieces.len() && self.read == self.written.len()
    }
}

fn pieces(most: usize) -> impl Strategy<Value = Vec<(usize, Duration)>> {
    vec((prop_oneof![1usize..100, 1usize..20_000], milliseconds(30)), 0..most)
}

proptest! {
    #![proptest_config(config(1_000))]

    #[test]
    fn streams(
        path in paths(),
        a in configs(Mode::Stream),
        b in configs(Mode::Stream),
        there in pieces(12),
        back in pieces(6),
        reads in (1usize..50_000, milliseconds(50)),
    ) {
        let (mut net, ids) = connected(path, a, b);
        let mut flows = [Stream::new(A, there), Stream::new(B, back)];
        let limit = net.now + Duration::from_secs(3_000);
        while !flows.iter().all(Stream::is_through) {
            prop_assert!(net.now < limit, "{flows:?} {:#?}", net.stats(A, ids[A]));
            let mut pause = reads.1.max(Duration::from_micros(100));
            for flow in &mut flows {
                if let Some(wait) = flow.write(&mut net, ids) {
                    pause = pause.min(wait.max(Duration::from_micros(100)));
                }
            }
            net.run_for(pause);
            for flow in &mut flows {
                flow.read(&mut net, ids, reads.0);
            }
        }
        // A writes once more and closes: all of it arrives.
        let mut last = Stream::new(A, vec![(30_000, Duration::ZERO)]);
        last.write(&mut net, ids);
        let now = net.now;
        net.update(A, ids[A], |c| c.close(now));
        let over = net.run_until(Duration::from_secs(3_000), |net| {
            last.read(net, ids, reads.0);
            net.update(A, ids[A], |c| c.close_reason()).is_some()
        });
        prop_assert!(over);
        prop_assert_eq!(net.update(A, ids[A], |c| c.close_reason()), Some(CloseReason::Local));
        while last.read < 30_000 && net.hosts[B].endpoint.connection(ids[B]).unwrap().readable() {
            last.read(&mut net, ids, reads.0);
        }
        prop_assert_eq!(last.read, 30_000);
        net.run_for(Duration::from_secs(100));
        prop_assert!(net.update(B, ids[B], |c| c.close_reason()).is_some());
    }
}

#[derive(Clone, Debug)]
struct Message {
    len: usize,
    ttl: Option<Duration>,
    in_order: bool,
    pause: Duration,
}

fn messages() -> impl Strategy<Value = Vec<Message>> {
    // The smallest receive buffer is 32 packets, the smallest packet 156 bytes.
    let len = prop_oneof![Just(0), 1usize..100, 1usize..4_900];
    let message = (len, option::of(milliseconds(300)), any::<bool>(), milliseconds(20));
    let message =
        message.prop_map(|(len, ttl, in_order, pause)| Message { len, ttl, in_order, pause });
    vec(message, 1..40)
}

proptest! {
    #![proptest_config(config(1_000))]

    #[test]
    fn whole_messages(
        path in paths(),
        a in configs(Mode::Message),
        b in configs(Mode::Message),
        messages in messages(),
    ) {
        let (mut net, ids) = connected(path, a, b);
        let mut got: Vec<u32> = Vec::new();
        let mut read = |net: &mut Net| -> Result<(), TestCaseError> {
            for bytes in net.read_messages(B, ids[B]) {
                let (head, body) = bytes.split_first_chunk().expect("its number");
                let n = u32::from_be_bytes(*head);
                let expected = data(u64::from(n), messages[n as usize].len);
                prop_assert!(body == expected, "message {n} is whole");
                prop_assert!(!got.contains(&n), "message {n} comes once");
                got.push(n);
            }
            Ok(())
        };
        let limit = net.now + Duration::from_secs(3_000);
        let mut next = 0;
        while next < messages.len() {
            prop_assert!(net.now < limit);
            let Message { len, ttl, in_order, pause } = messages[next];
            let mut bytes = (next as u32).to_be_bytes().to_vec();
            bytes.extend(data(next as u64, len));
            let now = net.now;
            match net.update(A, ids[A], |c| c.send_message(now, bytes.into(), ttl, in_order)) {
                Ok(()) => next += 1,
                Err(error) => {
                    prop_assert_eq!(error, SendError::Full);
                    net.run_for(Duration::from_millis(20));
                }
            }
            net.run_for(pause);
            read(&mut net)?;
        }
        let flushed = net.run_until(Duration::from_secs(3_000), |net| {
            read(net).expect("a whole message, once");
            net.update(A, ids[A], |c| c.flushed())
        });
        prop_assert!(flushed, "{:#?}", net.stats(A, ids[A]));
        read(&mut net)?;
        let arrived: BTreeSet<u32> = got.iter().copied().collect();
        for (n, message) in messages.iter().enumerate() {
            prop_assert!(message.ttl.is_some() || arrived.contains(&(n as u32)), "{n} is missing");
        }
        // Nothing that came earlier than a message in order was written later.
        for (at, n) in got.iter().enumerate() {
            if messages[*n as usize].in_order {
                prop_assert!(got[at..].iter().all(|later| later >= n), "{n} came too early: {got:?}");
            }
        }
        let instant = net.stats(B, ids[B]).instant;
        prop_assert_eq!((instant.receive_buffer.0, instant.receive_memory), (0, 0));
    }
}
