//! Memory: the hot path allocates nothing per packet, and no peer makes a receiver hold more than
//! its options say.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod lone;

use core::cell::Cell;
use core::time::Duration;
use std::alloc::{GlobalAlloc, Layout, System};

use bytes::Bytes;
use farhaul_base::Time;
use farhaul_engine::{Chunks, Config, ConnectionId, Endpoint, Mode, SendError, Transmit};
use farhaul_wire::{Boundary, Control, MsgNo};
use lone::{ISN, Lone, data_packet};

/// The system's allocator, which counts what each thread does.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static LIVE: Cell<i64> = const { Cell::new(0) };
}

fn note(allocations: u64, bytes: i64) {
    ALLOCATIONS.set(ALLOCATIONS.get() + allocations);
    LIVE.set(LIVE.get() + bytes);
}

// SAFETY: every call goes to the system's allocator as it came; the counters, which need neither
// initialisation nor destruction, allocate nothing themselves.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(1, layout.size() as i64);
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        note(0, -(layout.size() as i64));
        // SAFETY: the block came from `System`, through `alloc` or `realloc`, with this layout.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        note(1, new_size as i64 - layout.size() as i64);
        // SAFETY: as for `dealloc`, and the new size is the caller's responsibility.
        unsafe { System.realloc(block, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Two endpoints without a network between them: what one sends is copied into a buffer, as the
/// kernel would, and handed to the other.
struct Pair {
    now: Time,
    endpoints: [Endpoint; 2],
    ids: [ConnectionId; 2],
    transmit: Transmit,
    chunks: Chunks,
    read: usize,
    packets: u64,
    /// Allocations by the engine.
    allocations: u64,
}

const ADDRESSES: [&str; 2] = ["10.0.0.1:1", "10.0.0.2:2"];

impl Pair {
    fn new(mode: Mode) -> Self {
        let now = Time::from_millis(1);
        let [mut a, mut b] = [1, 2].map(|seed| Endpoint::new(now, seed));
        let config = Config { mode, ..Config::default() };
        b.listen(config.clone(), 1).unwrap();
        let id = a.connect(now, ADDRESSES[1].parse().unwrap(), config).unwrap();
        let mut pair = Pair {
            now,
            endpoints: [a, b],
            ids: [id; 2],
            transmit: Transmit::new(),
            chunks: Chunks::default(),
            read: 0,
            packets: 0,
            allocations: 0,
        };
        while pair.endpoints[1].acceptable() == 0 {
            pair.turn();
        }
        pair.ids[1] = pair.endpoints[1].accept().unwrap();
        pair
    }

    /// What the engine does counts.
    fn engine<R>(&mut self, side: usize, action: impl FnOnce(&mut Endpoint, &mut Self) -> R) -> R {
        let spare = Endpoint::new(Time::ZERO, 0);
        let mut endpoint = core::mem::replace(&mut self.endpoints[side], spare);
        let before = ALLOCATIONS.get();
        let result = action(&mut endpoint, self);
        self.allocations += ALLOCATIONS.get() - before;
        self.endpoints[side] = endpoint;
        result
    }

    /// A hundred microseconds: each side's timers, and everything on its way.
    fn turn(&mut self) {
        self.now += Duration::from_micros(100);
        for side in [0, 1] {
            self.engine(side, |endpoint, pair| endpoint.handle_timeout(pair.now));
            while self.engine(side, |e, pair| e.poll_transmit(pair.now, &mut pair.transmit)) {
                self.deliver(1 - side);
            }
            self.engine(side, |endpoint, _| while endpoint.poll_event().is_some() {});
        }
    }

    fn deliver(&mut self, to: usize) {
        let mut bytes = Vec::new();
        for (header, payload) in self.transmit.datagrams() {
            self.packets += u64::from(payload.len() > 1_000);
            bytes.extend_from_slice(header);
            bytes.extend_from_slice(payload);
        }
        let bytes = Bytes::from(bytes);
        // Its first clone makes a counter for those that share it: a matter of the buffer's.
        let _shared = bytes.clone();
        let from = ADDRESSES[1 - to].parse().unwrap();
        self.engine(to, |endpoint, pair| {
            let segment = pair.transmit.segment_size();
            endpoint.handle(pair.now, from, &bytes, segment, true);
            let chunks = &mut pair.chunks;
            loop {
                let read = endpoint.update(pair.ids[to], |c| match c.mode() {
                    Mode::Stream => {
                        c.read(usize::MAX, chunks);
                        false
                    }
                    Mode::Message => c.read_message(chunks),
                });
                pair.read += chunks.len();
                while chunks.pop().is_some() {}
                if read != Some(true) {
                    break;
                }
            }
        });
    }
}

/// Once its vectors have grown, the engine moves packets without allocating, the control packets
/// between them included.
#[test]
fn the_hot_path_allocates_nothing() {
    for mode in [Mode::Stream, Mode::Message] {
        let mut pair = Pair::new(mode);
        let block = Bytes::from(vec![5; 64 * 1_456]);
        let run = |pair: &mut Pair, turns: u32| {
            for _ in 0..turns {
                let block = block.clone();
                pair.engine(0, |endpoint, pair| {
                    let (id, now) = (pair.ids[0], pair.now);
                    let sent = endpoint.update(id, |c| match mode {
                        Mode::Stream => c.send_bytes(block),
                        Mode::Message => c.send_message(now, block, None, true),
                    });
                    assert!(matches!(sent, Some(Ok(()) | Err(SendError::Full))));
                });
                pair.turn();
            }
        };
        run(&mut pair, 2_000);
        (pair.allocations, pair.packets, pair.read) = (0, 0, 0);
        run(&mut pair, 6_000);
        assert!(pair.packets > 300_000 && pair.read > 400 << 20, "{} packets", pair.packets);
        // A heap of timers or a list of batches may grow once more.
        assert!(pair.allocations <= 4, "{mode:?}: {} in {}", pair.allocations, pair.packets);
    }
}

const MEMORY: usize = 8 << 20;

/// A receiver of `MEMORY`, and its bytes of heap before.
fn victim(mode: Mode) -> (Lone, ConnectionId, i64) {
    let config = Config { mode, receive_memory: MEMORY, ..Config::default() };
    let mut lone = Lone::new(1);
    lone.endpoint.listen(config, 8).unwrap();
    let id = lone.accept_mode(lone::PEER_ID, mode);
    let before = LIVE.get();
    (lone, id, before)
}

/// What the endpoint has grown by, slots and lists included, fits the option, half of which is for
/// the data itself.
fn check(lone: &Lone, before: i64) {
    let grown = LIVE.get() - before;
    let bound = (MEMORY + (2 << 20)) as i64;
    assert!(grown <= bound, "{grown} bytes for {MEMORY}, {} connections", lone.endpoint.len());
}

/// Large buffers, of each of which the peer gets a single small packet kept.
#[test]
fn large_buffers_are_not_held_for_small_packets() {
    let (mut lone, id, before) = victim(Mode::Stream);
    let slots = (MEMORY / 2 / 1_456) as u32;
    for n in 1..slots {
        let mut bytes = data_packet(id.value(), n, Boundary::SOLO, false, 1, &[1; 8]);
        let segment = bytes.len();
        // The rest of the buffer is for nobody.
        bytes.resize(64_000, 0xff);
        let bytes = Bytes::from(bytes);
        lone.endpoint.handle(lone.now, lone.peer, &bytes, segment, true);
        drop(bytes);
        check(&lone, before);
    }
    lone.pull();
}

/// Every other packet of the window, so that all of it waits for what does not come; the reports
/// are repeated for a while.
#[test]
fn a_window_full_of_holes() {
    for mode in [Mode::Stream, Mode::Message] {
        let (mut lone, id, before) = victim(mode);
        let slots = (MEMORY / 2 / 1_456) as u32;
        for n in (1..slots).step_by(2) {
            let bytes = data_packet(id.value(), n, Boundary::FIRST, false, n, &[1; 1_456]);
            lone.push(&bytes);
            check(&lone, before);
        }
        for _ in 0..200 {
            lone.now += Duration::from_millis(50);
            lone.endpoint.handle_timeout(lone.now);
            drop(lone.pull());
            check(&lone, before);
        }
    }
}

/// Reports of losses that nobody takes from the endpoint do not pile up.
#[test]
fn reports_that_are_not_sent() {
    let (mut lone, id, _) = victim(Mode::Stream);
    let slots = (MEMORY / 2 / 1_456) as u32;
    for n in (1..slots).step_by(2) {
        lone.push(&data_packet(id.value(), n, Boundary::SOLO, false, n, &[1; 1_456]));
    }
    let before = LIVE.get();
    for _ in 0..10_000 {
        lone.now += Duration::from_millis(100);
        lone.push_data(id, 1, b"again");
        assert!(LIVE.get() - before < 2 << 20, "{} bytes", LIVE.get() - before);
    }
    assert_eq!(lone.endpoint.connection(id).and_then(|c| c.close_reason()), None);
}

/// Packets of no length, packets far away, messages given up: what costs the peer nothing costs
/// little here.
#[test]
fn empty_packets_and_requests() {
    let (mut lone, id, before) = victim(Mode::Message);
    let slots = (MEMORY / 2 / 1_456) as u32;
    for n in (2..slots).rev() {
        lone.push(&data_packet(id.value(), n, Boundary::MIDDLE, false, n, &[]));
        if n % 64 == 0 {
            let (first, last) = (ISN.plus(n / 2), ISN.plus(n));
            let request = Control::DropRequest { message: MsgNo::new(n), first, last };
            lone.push_control(id, &request);
            drop(lone.pull());
        }
        check(&lone, before);
    }
}

/// Ten thousand handshakes from invented addresses.
#[test]
fn handshakes_leave_no_memory() {
    let (mut lone, _, before) = victim(Mode::Stream);
    for n in 0..10_000u32 {
        let from = core::net::SocketAddr::from(([10, 9, (n >> 8) as u8, n as u8], 1_000));
        let hello = farhaul_wire::Handshake { socket_id: n + 1, ..lone::client_hello() };
        lone.push_from(from, &lone::packet(0, &Control::Handshake(hello)));
    }
    assert!(LIVE.get() - before < 64 << 10, "the answers that wait: {}", LIVE.get() - before);
    drop(lone.pull());
    assert!(LIVE.get() - before < 64 << 10, "{}", LIVE.get() - before);
}
