//! Threads that attend the port while they wait: no wake-up is lost, no timer forgotten, nobody
//! starves. Real time bounds how long a test may hang; sleeps stand for an application that
//! computes.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use farhaul::{Connection, Endpoint, Listener, Options};

/// Longer than any of this takes on the slowest machine.
const FOR_EVER: Duration = Duration::from_secs(60);

fn any() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// Fails instead of hanging for ever.
fn in_time<R: Send + 'static>(body: impl FnOnce() -> R + Send + 'static) -> R {
    let (done, result) = mpsc::channel();
    let thread = thread::spawn(move || drop(done.send(body())));
    match result.recv_timeout(FOR_EVER) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("something waits for ever"),
        Err(mpsc::RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => unreachable!("the result is sent before the thread ends"),
        },
    }
}

/// `count` connections from one port to one port.
fn pairs(count: usize, options: &Options) -> Vec<(Connection, Connection)> {
    let listener = Listener::bind(any(), options).unwrap();
    let endpoint = Endpoint::bind(any(), options).unwrap();
    (0..count)
        .map(|_| {
            let a = endpoint.connect(listener.local_addr(), options).unwrap();
            (a, listener.accept().unwrap())
        })
        .collect()
}

fn pair() -> (Connection, Connection) {
    pairs(1, &Options::new()).remove(0)
}

/// Reproducible bytes: the one at `at` of stream `seed`.
fn byte(seed: u64, at: usize) -> u8 {
    ((at as u64 ^ seed << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

fn data(seed: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| byte(seed, at)).collect()
}

/// Reads `len` bytes of stream `seed`, as they come.
fn expect(mut connection: &Connection, seed: u64, len: usize) {
    let mut buf = vec![0; 100_000];
    let mut at = 0;
    while at < len {
        let most = buf.len().min(len - at);
        let got = connection.read(&mut buf[..most]).unwrap();
        assert_ne!(got, 0, "the stream ends after {at} bytes of {len}");
        for (i, b) in buf[..got].iter().enumerate() {
            assert_eq!(*b, byte(seed, at + i), "byte {} of {len}", at + i);
        }
        at += got;
    }
}

/// Gives back every byte.
fn echo(mut connection: &Connection) {
    let mut buf = [0; 1];
    while connection.read(&mut buf).unwrap() == 1 {
        connection.write_all(&buf).unwrap();
    }
}

fn ping_pong(mut connection: &Connection, rounds: usize) {
    for round in 0..rounds {
        let ping = [byte(7, round)];
        connection.write_all(&ping).unwrap();
        let mut pong = [0];
        connection.read_exact(&mut pong).unwrap();
        assert_eq!(pong, ping);
    }
}

/// Every round trip waits for hand-overs on both sides: one that is missed shows as a time-out.
#[test]
fn a_byte_to_and_fro() {
    in_time(|| {
        let (a, b) = pair();
        thread::scope(|scope| {
            scope.spawn(|| echo(&b));
            ping_pong(&a, 2_000);
            a.shutdown();
        });
    });
}

/// The thread that reads attends, and wakes the one that writes, and the other way round.
#[test]
fn one_thread_asks_and_another_hears() {
    in_time(|| {
        let (a, b) = pair();
        let (heard, next) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| echo(&b));
            let a = &a;
            scope.spawn(move || {
                let mut buf = [0];
                for round in 0..2_000 {
                    (&mut &*a).read_exact(&mut buf).unwrap();
                    assert_eq!(buf[0], byte(7, round));
                    heard.send(()).unwrap();
                }
            });
            for round in 0..2_000 {
                (&mut &*a).write_all(&[byte(7, round)]).unwrap();
                next.recv().unwrap();
            }
            a.shutdown();
        });
    });
}

#[test]
fn many_talk_over_one_port() {
    in_time(|| {
        let pairs = pairs(8, &Options::new());
        thread::scope(|scope| {
            for (a, b) in &pairs {
                scope.spawn(|| echo(b));
                scope.spawn(|| {
                    ping_pong(a, 300);
                    a.shutdown();
                });
            }
        });
    });
}

/// Writes `len` bytes of stream `seed` in pieces of ever changing sizes.
fn write_in_pieces(mut connection: &Connection, seed: u64, len: usize) {
    let all = data(seed, len);
    let mut rest = &all[..];
    let mut turn = 0;
    while !rest.is_empty() {
        // Mostly small, now and then more than a block.
        let size = match turn % 8 {
            0 => 200_000 + usize::from(byte(seed + 1, turn)),
            1 => 33_000 + 7 * usize::from(byte(seed + 2, turn)),
            _ => 1 + 9 * usize::from(byte(seed + 3, turn)),
        };
        let (piece, after) = rest.split_at(size.min(rest.len()));
        connection.write_all(piece).unwrap();
        rest = after;
        turn += 1;
    }
}

fn duplex(connections: usize, bytes: usize) {
    let pairs = pairs(connections, &Options::new());
    thread::scope(|scope| {
        for (index, (a, b)) in pairs.iter().enumerate() {
            let seed = 10 * index as u64;
            scope.spawn(move || write_in_pieces(a, seed, bytes));
            scope.spawn(move || write_in_pieces(b, seed + 1, bytes));
            scope.spawn(move || expect(a, seed + 1, bytes));
            scope.spawn(move || expect(b, seed, bytes));
        }
    });
    for (a, _b) in pairs {
        a.close().unwrap();
    }
}

#[test]
fn both_ways_at_once_on_one_connection() {
    in_time(|| duplex(1, 30_000_000));
}

#[test]
fn both_ways_at_once_on_two_connections_of_a_port() {
    in_time(|| duplex(2, 15_000_000));
}

/// Whole packets, laid out as on the wire, between pieces that are not.
#[test]
fn writes_around_whole_packets() {
    for mss in [96, 576, 1500, 9000, 32_000, 65_535] {
        in_time(move || {
            let (a, b) = pairs(1, &Options::new().mss(mss)).remove(0);
            let payload = a.payload_size();
            let block = 65_536 / (payload + 16);
            let counts = [1, 2, block.max(1), block + 1, 40_000 / payload + 1, 3 * block + 5];
            let sizes: Vec<usize> = counts
                .iter()
                .flat_map(|n| [n * payload - 1, n * payload, n * payload + 1])
                .chain([32_767, 32_768, 32_769, 65_535, 65_536, 65_537])
                .collect();
            let total = sizes.iter().sum();
            thread::scope(|scope| {
                scope.spawn(|| {
                    let all = data(3, total);
                    let mut at = 0;
                    for size in sizes {
                        (&mut &a).write_all(&all[at..at + size]).unwrap();
                        at += size;
                    }
                });
                expect(&b, 3, total);
            });
            a.close().unwrap();
        });
    }
}

/// A thread that attends and then computes has left the port without a word.
#[test]
fn one_that_computes_between_its_reads_holds_nobody_up() {
    in_time(|| {
        let pairs = pairs(2, &Options::new());
        let (busy, other) = (&pairs[0], &pairs[1]);
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                // Pieces that wait to be read, and more that come while the reader is away.
                let piece = [1; 10_000];
                while !over.load(Ordering::Relaxed) {
                    if (&mut &busy.1).write_all(&piece).is_err() {
                        break;
                    }
                }
                busy.1.shutdown();
            });
            scope.spawn(|| {
                let mut buf = [0; 50_000];
                while (&mut &busy.0).read(&mut buf).unwrap() > 0 {
                    thread::sleep(Duration::from_millis(20));
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                }
                busy.0.abort();
            });
            scope.spawn(|| echo(&other.1));
            ping_pong(&other.0, 1_000);
            over.store(true, Ordering::Relaxed);
            other.0.shutdown();
        });
    });
}

/// New connections come to a port that readers of others attend.
#[test]
fn an_acceptor_and_readers_share_a_port() {
    in_time(|| {
        let options = Options::new();
        let listener = Listener::bind(any(), &options).unwrap();
        let addr = listener.local_addr();
        thread::scope(|scope| {
            scope.spawn(|| {
                let first = Connection::connect(addr, &options).unwrap();
                scope.spawn(move || ping_pong(&first, 1_000));
                for _ in 0..20 {
                    ping_pong(&Connection::connect(addr, &options).unwrap(), 5);
                }
            });
            for _ in 0..21 {
                let accepted = listener.accept().unwrap();
                scope.spawn(move || echo(&accepted));
            }
        });
    });
}

#[test]
fn reading_times_out_and_goes_on() {
    in_time(|| {
        let (a, b) = pair();
        let mut buf = [0; 10];
        for wait in [1, 100, 700, 1_500, 3_000, 20_000].map(Duration::from_micros) {
            a.set_read_timeout(Some(wait));
            let start = Instant::now();
            assert_eq!((&a).read(&mut buf).unwrap_err().kind(), ErrorKind::TimedOut);
            assert!(start.elapsed() >= wait);
            // What comes next is not missed, although nobody attends any more.
            a.set_read_timeout(None);
            (&b).write_all(b"now").unwrap();
            (&a).read_exact(&mut buf[..3]).unwrap();
            assert_eq!(&buf[..3], b"now");
        }
    });
}

#[test]
fn writing_times_out_and_goes_on() {
    in_time(|| {
        let options = Options::new().send_memory(64 << 10).receive_memory(128 << 10);
        let (a, b) = pairs(1, &options).remove(0);
        let all = data(5, 1 << 20);
        let mut written = 0;
        for wait in [1, 700, 1_500, 20_000].map(Duration::from_micros) {
            a.set_write_timeout(Some(wait));
            loop {
                let start = Instant::now();
                match (&a).write(&all[written..]) {
                    Ok(count) => written += count,
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::TimedOut);
                        assert!(start.elapsed() >= wait);
                        break;
                    }
                }
            }
        }
        assert!(written < all.len(), "the buffers are small");
        a.set_write_timeout(None);
        thread::scope(|scope| {
            scope.spawn(|| (&mut &a).write_all(&all[written..]).unwrap());
            expect(&b, 5, all.len());
        });
    });
}

/// A reader and a writer wait, both of a kind that may attend; `end` comes from a third thread.
fn ended_by(
    end: impl Fn(&Connection, &Connection) + Send + Copy + 'static,
    reads: fn(&std::io::Result<usize>) -> bool,
) {
    for pause in [0, 300, 1_200, 5_000] {
        in_time(move || {
            let options = Options::new()
                .send_memory(64 << 10)
                .receive_memory(128 << 10)
                .linger(Duration::from_millis(100));
            let (a, b) = pairs(1, &options).remove(0);
            thread::scope(|scope| {
                let reader = scope.spawn(|| (&mut &a).read(&mut [0; 10]));
                let writer = scope.spawn(|| (&mut &a).write_all(&vec![0; 4 << 20]));
                thread::sleep(Duration::from_micros(pause));
                end(&a, &b);
                let read = reader.join().unwrap();
                assert!(reads(&read), "{read:?}");
                writer.join().unwrap().unwrap_err();
            });
        });
    }
}

fn closed_here(read: &std::io::Result<usize>) -> bool {
    read.as_ref()
        .is_err_and(|error| matches!(error.kind(), ErrorKind::NotConnected | ErrorKind::TimedOut))
}

#[test]
fn closed_by_another_thread() {
    ended_by(|a, _| a.shutdown(), closed_here);
}

#[test]
fn aborted_by_another_thread() {
    ended_by(|a, _| a.abort(), closed_here);
}

#[test]
fn ended_by_the_peer() {
    let reset = |read: &std::io::Result<usize>| {
        read.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
    };
    ended_by(|_, b| b.abort(), reset);
}

/// Passes datagrams on between a client and `server`, and loses data packets of the client's when
/// told to.
struct Path {
    addr: SocketAddr,
    to_lose: Arc<AtomicU32>,
    over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Path {
    fn to(server: SocketAddr) -> Path {
        let near = UdpSocket::bind(any()).unwrap();
        let addr = near.local_addr().unwrap();
        let (to_lose, over) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
        let (losing, ending) = (Arc::clone(&to_lose), Arc::clone(&over));
        let thread = thread::spawn(move || {
            near.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            let mut client = None;
            let mut buf = [0; 2048];
            while !ending.load(Ordering::Relaxed) {
                let Ok((len, from)) = near.recv_from(&mut buf) else { continue };
                if from == server {
                    client.map(|client| near.send_to(&buf[..len], client).unwrap());
                    continue;
                }
                client = Some(from);
                // The first bit of a control packet is 1.
                let lose = buf[0] & 0x80 == 0
                    && losing
                        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1))
                        .is_ok();
                if !lose {
                    near.send_to(&buf[..len], server).unwrap();
                }
            }
        });
        Path { addr, to_lose, over, thread: Some(thread) }
    }

    fn lose_next(&self, packets: u32) {
        self.to_lose.store(packets, Ordering::SeqCst);
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// A thread attends while the driver sleeps towards a distant timer, sets a nearer one, and leaves
/// for good: the driver has to know. The retransmission is due in some 100 ms; the distant timer is
/// that of the keep-alive, 3 s.
#[test]
fn a_timer_that_an_attendant_sets_is_kept_when_it_leaves() {
    in_time(|| {
        let listener = Listener::bind(any(), &Options::new()).unwrap();
        let path = Path::to(listener.local_addr());
        // One by one: the path does not split what the kernel joins.
        let options = Options::new().offload(false);
        let a = Connection::connect(path.addr, &options).unwrap();
        let b = listener.accept().unwrap();
        let mut longest = Duration::ZERO;
        thread::scope(|scope| {
            scope.spawn(|| echo(&b));
            for _ in 0..5 {
                ping_pong(&a, 20);
                // Until the timers of this exchange are over.
                thread::sleep(Duration::from_millis(100));
                a.set_read_timeout(Some(Duration::from_millis(1)));
                (&mut &a).read(&mut [0]).unwrap_err();
                path.lose_next(1);
                (&mut &a).write_all(b"x").unwrap();
                let start = Instant::now();
                // Computes, while the driver has all to do.
                while a.stats(false).unwrap().instant.in_flight > 0 && start.elapsed() < FOR_EVER {
                    thread::sleep(Duration::from_millis(5));
                }
                longest = longest.max(start.elapsed());
                a.set_read_timeout(None);
                (&mut &a).read_exact(&mut [0]).unwrap();
            }
            a.shutdown();
        });
        assert!(longest < Duration::from_millis(1_500), "acknowledged after {longest:?}");
    });
}

/// What a process of its own does while a reader waits for what does not come.
#[test]
fn a_reader_that_waits_costs_nothing() {
    const CHILD: &str = "FARHAUL_TEST_IDLE_READER";
    if std::env::var_os(CHILD).is_none() {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_reader_that_waits_costs_nothing", "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let text =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
        return;
    }
    in_time(|| {
        let (a, b) = pair();
        thread::scope(|scope| {
            scope.spawn(|| (&mut &a).read(&mut [0]).unwrap_err());
            scope.spawn(|| (&mut &b).read(&mut [0]).unwrap_err());
            // Until patience and the timers of the beginning are over.
            thread::sleep(Duration::from_millis(500));
            let before = sleeps();
            thread::sleep(Duration::from_secs(1));
            let woken = sleeps() - before;
            a.abort();
            assert!(woken < 20, "{woken} times");
        });
    });
}

/// How often any thread of this process has gone to sleep.
fn sleeps() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks
        .filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("status")).ok())
        .map(|status| {
            let line = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
            line.unwrap().trim().parse::<u64>().unwrap()
        })
        .sum()
}
