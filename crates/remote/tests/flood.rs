//! Floods of newcomers that say nothing, from one source and from a thousand, over TCP and UDT: a host
//! that means it comes in, memory stays bounded, and links that are there are not touched.
//!
//! The short form takes some seconds at 3,000 newcomers a second; with FARHAUL_LONG=1 it is 300, 3,000 and
//! 30,000. A rate that this machine does not reach is printed as it is.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::collections::VecDeque;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use farhaul_remote::{DialConfig, Dialer, Transport};
use farhaul_wire::{Control, Handshake, Packet, PeerIp, Request, Seq, SocketType};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use socket2::{Domain, Protocol, Socket, Type};

use common::{TIME, dial, here, listen, two};

/// Half a round trip of the host that means it, and how long it may take to come in.
const DELAY: Duration = Duration::from_millis(50);
const ENOUGH: Duration = Duration::from_secs(5);
/// Memory that a flood may cost, KiB. Thousands of descriptors are the system's.
const MOST_MEMORY: u64 = 64 << 10;
/// How long each flood lasts.
const SPAN: Duration = Duration::from_secs(4);
/// Hosts that mean it come in during each flood, at least.
const DIALS: usize = 5;
/// Sockets that a flooder holds at once.
const HELD: usize = 8_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flood {
    /// Connections that say nothing.
    Tcp,
    /// Requests for a cookie.
    HalfUdt,
    /// Connections that are agreed on, and say nothing.
    Udt,
}

/// The `n`th source of a flood.
fn source(n: u64) -> Ipv4Addr {
    Ipv4Addr::from(0x7f40_0001 + u32::try_from(n).unwrap())
}

/// Another source each time, which has never been there.
fn fresh_source() -> Ipv4Addr {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    Ipv4Addr::from(0x7f70_0001 + u32::try_from(NEXT.fetch_add(1, Ordering::Relaxed)).unwrap())
}

/// Calls `newcomer` with 0, 1, … at this rate until `stop`; how often it was.
fn paced(rate: u64, stop: &AtomicBool, mut newcomer: impl FnMut(u64)) -> u64 {
    let begun = Instant::now();
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        let due = (begun.elapsed().as_secs_f64() * rate as f64) as u64;
        // What was missed while another had the processor is not made up for.
        for n in count..due.min(count + 1_000) {
            newcomer(n);
        }
        count = count.max(due.min(count + 1_000));
        thread::sleep(Duration::from_millis(1));
    }
    count
}

fn flood_tcp(to: SocketAddr, rate: u64, sources: u64, stop: &AtomicBool) -> u64 {
    let mut held = VecDeque::new();
    let mut made = 0;
    paced(rate, stop, |n| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
        socket.set_nonblocking(true).unwrap();
        // Leaves nothing behind.
        socket.set_linger(Some(Duration::ZERO)).unwrap();
        socket.bind(&SocketAddr::from((source(n % sources), 0)).into()).unwrap();
        // One that is not accepted yet is under way.
        let _ = socket.connect(&to.into());
        made += 1;
        held.push_back(socket);
        if held.len() > HELD {
            held.pop_front();
        }
    });
    made
}

fn flood_udt(to: SocketAddr, rate: u64, sources: u64, whole: bool, stop: &AtomicBool) -> u64 {
    let sockets: Vec<UdpSocket> = (0..sources)
        .map(|n| {
            let socket = UdpSocket::bind((source(n), 0)).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket.connect(to).unwrap();
            socket
        })
        .collect();
    let mut made = 0;
    let send = |socket: &UdpSocket, handshake: &Handshake| {
        let mut packet = [0; farhaul_wire::HANDSHAKE_LEN];
        let len = Control::Handshake(*handshake).write(0, 0, &mut packet).unwrap();
        // A full buffer is the network's affair.
        let _ = socket.send(&packet[..len]);
    };
    paced(rate, stop, |n| {
        let socket = &sockets[(n % sources) as usize];
        let hello = Handshake {
            version: 4,
            socket_type: SocketType::Stream,
            isn: Seq::new(1_000),
            mss: 1500,
            flight_flag: 8192,
            request: Request::Hello,
            socket_id: 1 + n as u32 % 0x7fff_fff0,
            cookie: 0,
            peer_ip: PeerIp::NONE,
        };
        send(socket, &hello);
        made += u64::from(!whole);
        let mut buf = [0; 1500];
        while let (true, Ok(count)) = (whole, socket.recv(&mut buf)) {
            if let Ok(Packet::Control(packet)) = Packet::parse(&buf[..count])
                && let Control::Handshake(answer) = packet.body
                && answer.request == Request::Hello
            {
                send(socket, &Handshake { request: Request::Conclusion, ..answer });
                made += 1;
            }
        }
    });
    made
}

/// Passes on later what comes, in order.
fn later<T: Send + 'static>(mut give: impl FnMut(T) -> bool + Send + 'static) -> mpsc::Sender<T> {
    let (to, from) = mpsc::channel::<(Instant, T)>();
    thread::spawn(move || {
        for (at, item) in from {
            thread::sleep((at + DELAY).saturating_duration_since(Instant::now()));
            if !give(item) {
                return;
            }
        }
    });
    let (outer, inner) = mpsc::channel::<T>();
    thread::spawn(move || inner.into_iter().try_for_each(|item| to.send((Instant::now(), item))));
    outer
}

/// A path of TCP with a delay, each connection from a source of its own.
fn slow_tcp(to: SocketAddr) -> SocketAddr {
    let front = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = front.local_addr().unwrap();
    thread::spawn(move || {
        for near in front.incoming() {
            let near = near.unwrap();
            let far = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
            far.bind(&SocketAddr::from((fresh_source(), 0)).into()).unwrap();
            thread::spawn(move || {
                // As long as the connection takes that passes through here.
                thread::sleep(DELAY);
                if far.connect(&to.into()).is_err() {
                    return;
                }
                let far = TcpStream::from(far);
                for (mut from, mut to) in [
                    (near.try_clone().unwrap(), far.try_clone().unwrap()),
                    (far.try_clone().unwrap(), near.try_clone().unwrap()),
                ] {
                    thread::spawn(move || {
                        let mut onto = to.try_clone().unwrap();
                        let pass = later(move |bytes: Vec<u8>| onto.write_all(&bytes).is_ok());
                        let mut buf = [0; 4096];
                        while let Ok(count @ 1..) = from.read(&mut buf) {
                            if pass.send(buf[..count].to_vec()).is_err() {
                                break;
                            }
                        }
                        thread::sleep(2 * DELAY);
                        let _ = to.flush();
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
            });
        }
    });
    at
}

/// The same of UDP, for one client.
fn slow_udp(to: SocketAddr) -> SocketAddr {
    let front = UdpSocket::bind("127.0.0.1:0").unwrap();
    let back = UdpSocket::bind((fresh_source(), 0)).unwrap();
    back.connect(to).unwrap();
    let at = front.local_addr().unwrap();
    let client = Arc::new(Mutex::new(None));
    let (outward, inward) = (back.try_clone().unwrap(), front.try_clone().unwrap());
    let onward = later(move |bytes: Vec<u8>| {
        let _ = outward.send(&bytes);
        true
    });
    let known = Arc::clone(&client);
    let home = later(move |bytes: Vec<u8>| {
        if let Some(client) = *known.lock().unwrap() {
            let _ = inward.send_to(&bytes, client);
        }
        true
    });
    thread::spawn(move || {
        let mut buf = [0; 65_536];
        while let Ok((count, from)) = front.recv_from(&mut buf) {
            *client.lock().unwrap() = Some(from);
            if onward.send(buf[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    thread::spawn(move || {
        let mut buf = [0; 65_536];
        while let Ok(count) = back.recv(&mut buf) {
            if home.send(buf[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    at
}

/// Of this process, KiB.
fn memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn threads() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

fn withstands(flood: Flood, rate: u64, sources: u64) {
    let (near, far) = two(false);
    let (listening, links) = listen(far);
    let transport = if flood == Flood::Tcp { Transport::Tcp } else { Transport::Udp };
    // A link that is there already, as of a copy that runs.
    let known = Dialer::new(DialConfig { transport, ..here(&listening, near.clone()) });
    let (mut reader, _writer, _handle) = dial(&known).unwrap().into_parts();
    let (_reader, mut writer, _far) = links.recv_timeout(TIME).unwrap().into_parts();
    let port = match flood {
        Flood::Tcp => listening.tcp_port(),
        _ => listening.udp_port(),
    };
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port.unwrap()));
    let before = memory();
    let stop = AtomicBool::new(false);
    let (most, most_threads) = (AtomicU64::new(0), AtomicU64::new(0));
    let begun = Instant::now();
    let mut took = Vec::new();
    let made = thread::scope(|scope| {
        let flooding = scope.spawn(|| match flood {
            Flood::Tcp => flood_tcp(to, rate, sources, &stop),
            Flood::HalfUdt => flood_udt(to, rate, sources, false, &stop),
            Flood::Udt => flood_udt(to, rate, sources, true, &stop),
        });
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                most.fetch_max(memory(), Ordering::Relaxed);
                most_threads.fetch_max(threads() as u64, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(50));
            }
        });
        // Whatever fails, the flood ends.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            thread::sleep(SPAN / 4);
            while begun.elapsed() < SPAN || took.len() < DIALS {
                // From afar, from a source not seen before.
                let mut config = here(&listening, near.clone());
                match flood {
                    Flood::Tcp => config.tcp_candidates = vec![slow_tcp(to)],
                    _ => config.candidates = vec![slow_udp(to)],
                }
                let dialer = Dialer::new(DialConfig { transport, ..config });
                let dialed = Instant::now();
                let link = dialer.dial(ENOUGH, &AtomicBool::new(false));
                took.push(dialed.elapsed());
                let _near =
                    link.unwrap_or_else(|error| panic!("{flood:?} {rate}/s of {sources}: {error}"));
                let _far = links.recv_timeout(TIME).unwrap();
                // As a copy that has lost its connection dials its agent.
                let _again = known.dial(ENOUGH, &AtomicBool::new(false)).unwrap();
                let _accepted = links.recv_timeout(TIME).unwrap();
                writer.write_all(b"on").unwrap();
                writer.flush().unwrap();
                reader.read_exact(&mut [0; 2]).unwrap();
            }
        }));
        stop.store(true, Ordering::Relaxed);
        let made = flooding.join().unwrap();
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        made
    });
    let real = made as f64 / begun.elapsed().as_secs_f64();
    let grown = most.into_inner().saturating_sub(before);
    let unfinished = listening.take_unfinished();
    took.sort();
    // Of the last minute: what else the machine does counts as well.
    let load = fs::read_to_string("/proc/loadavg").unwrap();
    let load = load.split(' ').next().unwrap();
    println!(
        "measured: {flood:?} {rate}/s (real: {real:.0}/s) of {sources}: {} dials, median {:.2?}, the longest {:.2?}; \
         memory +{grown} KiB, {} threads, {} unfinished of {} sources; load {load}",
        took.len(),
        took[took.len() / 2],
        took[took.len() - 1],
        most_threads.into_inner(),
        unfinished.total,
        unfinished.sources.len(),
    );
    assert!(grown < MOST_MEMORY, "{grown} KiB");
    assert!(unfinished.sources.len() <= 64);
    if flood != Flood::HalfUdt && rate * SPAN.as_secs() > 5_000 {
        assert!(unfinished.total > 0);
    }
}

/// One test, or the floods would meet each other.
#[test]
fn floods_of_newcomers_keep_nobody_out() {
    // As the server does: its share of silent connections follows the limit.
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard.min(65_536), hard).unwrap();
    let long = std::env::var_os("FARHAUL_LONG").is_some_and(|value| value == "1");
    if !long {
        withstands(Flood::Tcp, 3_000, 1);
        withstands(Flood::Tcp, 3_000, 1_000);
        withstands(Flood::Udt, 3_000, 1_000);
        return;
    }
    // More sources than there are places, each with one: chance decides which goes.
    withstands(Flood::Udt, 30_000, 16_000);
    for flood in [Flood::Tcp, Flood::HalfUdt, Flood::Udt] {
        for rate in [300, 3_000, 30_000] {
            for sources in [1, 1_000] {
                withstands(flood, rate, sources);
            }
        }
    }
}
