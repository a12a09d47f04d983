//! `farhaul cp` over a path on which packets are forged, and past strangers at the peer's addresses.

mod common;

use std::collections::VecDeque;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::copying::{Scene, make_file, relay_at, wait_until};
use common::path::Path;
use common::process::{Ended, Process};
use farhaul::{Listener, Options};
use farhaul_remote::{Context, ListenConfig, Listening, Terms};
use farhaul_secure::{Identity, Role, Trust, handshake};
use farhaul_wan::{Forged, InjectConfig, RelayConfig, RelayHandle};
use farhaul_wire::{Control, HANDSHAKE_LEN, Handshake, Packet, PeerIp, Request, Seq, SocketType};
use socket2::{Domain, Socket, Type};

/// A scene, or the test is skipped.
macro_rules! scene_or_skip {
    () => {
        match Scene::new() {
            Ok(scene) => scene,
            Err(why) => common::skip!("{why}"),
        }
    };
}

const PATH: Path = Path::new("100M", 5);
const SIZE: u64 = 16 << 20;
/// How long an attempt to connect takes that nothing answers.
const DIAL_TIME: Duration = Duration::from_secs(15);
/// A TLS alert in plain text, access_denied (RFC 8446 §6), framed as a message of a handshake.
const FORGED_ALERT: [u8; 9] = [0, 7, 0x15, 3, 3, 0, 2, 2, 49];

fn start(scene: &Scene, more: &[&str]) -> Process {
    make_file(&scene.path("file"), SIZE, 3);
    scene.start(&[&["--json"], more, &[&scene.here("file"), &scene.there("copy")]].concat())
}

/// Lengths of data packets of UDT, 16 bytes of which are the header, that may hold the first record of a listener, which seals 15
/// bytes. The end of its handshake before is shorter, and the rest longer.
const FIRST_RECORD: RangeInclusive<usize> = 16 + 24..=16 + 64;

/// Passes datagrams on between `cp` and `server`, and spoils whatever may be the first record on its way from there.
/// How many it has spoiled.
fn spoiler(server: SocketAddr) -> (SocketAddr, Arc<AtomicU64>) {
    let near = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let (at, spoiled) = (near.local_addr().expect("bound"), Arc::new(AtomicU64::new(0)));
    let count = Arc::clone(&spoiled);
    thread::spawn(move || {
        let (mut client, mut buf) = (None, [0; 2048]);
        // Until the test's process ends.
        while let Ok((len, from)) = near.recv_from(&mut buf) {
            let back = from == server;
            if !back {
                client = Some(from);
            }
            let Some(to) = (if back { client } else { Some(server) }) else { continue };
            let is_data = buf[0] & 0x80 == 0;
            if back && is_data && FIRST_RECORD.contains(&len) {
                buf[len - 1] ^= 1;
                count.fetch_add(1, Ordering::Relaxed);
            }
            let _ = near.send_to(&buf[..len], to);
        }
    });
    (at, spoiled)
}

/// How often it was told that what answers has not shown that it is the other side.
fn warnings(ended: &Ended) -> usize {
    ended.errors.iter().filter(|line| line.contains("has not shown that it is")).count()
}

fn assert_copied(scene: &Scene, ended: &Ended) {
    assert_eq!(ended.json()["ok"], true, "{ended:#?}");
    let [from, to] = ["file", "copy"].map(|name| fs::read(scene.path(name)).expect(name));
    assert!(from == to, "the copy differs");
}

/// How many connections had to be replaced.
fn reconnects(ended: &Ended) -> u64 {
    ended.json()["reconnects"].as_u64().expect("a number")
}

/// What a connection has carried one way that the proxy takes for a data connection.
const MUCH: u64 = 1 << 20;

/// A TCP proxy that may cut what goes through it, answer newcomers itself, and acknowledge what it does not
/// deliver.
struct Proxy {
    at: SocketAddr,
    forging: Arc<AtomicBool>,
    forged: Arc<AtomicU64>,
    passed: Arc<AtomicU64>,
    /// While this is set, whatever has carried much delivers nothing more, then and later.
    swallowing: Arc<AtomicBool>,
    swallowed: Arc<AtomicU64>,
    through: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    fn to(target: SocketAddr) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let proxy = Proxy {
            at: listener.local_addr().expect("bound"),
            forging: Arc::default(),
            forged: Arc::default(),
            passed: Arc::default(),
            swallowing: Arc::default(),
            swallowed: Arc::default(),
            through: Arc::default(),
        };
        let (forging, forged) = (Arc::clone(&proxy.forging), Arc::clone(&proxy.forged));
        let (passed, through) = (Arc::clone(&proxy.passed), Arc::clone(&proxy.through));
        let (swallowing, swallowed) = (Arc::clone(&proxy.swallowing), Arc::clone(&proxy.swallowed));
        thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(mut client) = client else { return };
                if forging.load(Ordering::Relaxed) {
                    client.write_all(&FORGED_ALERT).expect("the client listens");
                    forged.fetch_add(1, Ordering::Relaxed);
                    // Not before the client has read it.
                    thread::spawn(move || while matches!(client.read(&mut [0; 99]), Ok(1..)) {});
                    continue;
                }
                let Ok(server) = TcpStream::connect(target) else { continue };
                let clone = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
                for (mut from, mut to) in
                    [(clone(&client), clone(&server)), (clone(&server), clone(&client))]
                {
                    let (passed, swallowing, swallowed) =
                        (Arc::clone(&passed), Arc::clone(&swallowing), Arc::clone(&swallowed));
                    thread::spawn(move || {
                        let mut buf = [0; 1 << 14];
                        let (mut carried, mut swallows) = (0, false);
                        while let Ok(count @ 1..) = from.read(&mut buf) {
                            carried += count as u64;
                            swallows |= carried > MUCH && swallowing.load(Ordering::Relaxed);
                            if swallows {
                                swallowed.fetch_add(count as u64, Ordering::Relaxed);
                                continue;
                            }
                            if to.write_all(&buf[..count]).is_err() {
                                break;
                            }
                            passed.fetch_add(count as u64, Ordering::Relaxed);
                        }
                        let _ = to.shutdown(Shutdown::Write);
                    });
                }
                through.lock().expect("no panic").extend([client, server]);
            }
        });
        proxy
    }

    /// Ends all connections; those that follow are answered with a forged alert.
    fn cut_and_forge(&self) {
        self.forging.store(true, Ordering::Relaxed);
        for stream in self.through.lock().expect("no panic").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

#[test]
fn a_cut_and_a_forged_alert_over_tcp_do_not_end_a_copy() {
    let _turn = common::turn();
    let scene = scene_or_skip!();
    let proxy = Proxy::to(scene.direct());
    scene.far_behind(None, Some(proxy.at), "");
    let run = start(&scene, &["--transport", "tcp", "--rate", "50M"]);
    wait_until("so much data", || proxy.passed.load(Ordering::Relaxed) > SIZE / 4);
    proxy.cut_and_forge();
    wait_until("two forged answers", || proxy.forged.load(Ordering::Relaxed) >= 2);
    proxy.forging.store(false, Ordering::Relaxed);
    let ended = run.finish_well();
    assert_copied(&scene, &ended);
    // The control channel, and one data connection at least.
    assert!(reconnects(&ended) >= 2, "{ended:#?}");
    assert_eq!(scene.agents(), 1, "no other agent was started");
}

/// What is between the two sides acknowledges and does not deliver, as after a forged ACK, and all the time: the
/// system's own time-outs do not notice. The other connections stay well.
/// The agent has been dialed ahead of its first word: that it does not open is found out by the copy itself, and another way
/// is taken without a word of a stranger.
#[test]
fn first_records_that_are_spoiled_over_udp_send_a_copy_over_tcp() {
    let _turn = common::turn();
    let scene = scene_or_skip!();
    let (at, spoiled) = spoiler(scene.direct());
    scene.far_behind(Some(at), Some(scene.direct()), "");
    let ended = start(&scene, &[]).finish_well();
    assert!(spoiled.load(Ordering::Relaxed) > 0);
    assert!(ended.json()["transport"].as_str().expect("a text").starts_with("TCP"), "{ended:#?}");
    assert_copied(&scene, &ended);
}

#[test]
fn a_connection_over_tcp_that_swallows_data_is_replaced() {
    let _turn = common::turn();
    let scene = scene_or_skip!();
    let proxy = Proxy::to(scene.direct());
    scene.far_behind(None, Some(proxy.at), "");
    let run = start(&scene, &["--transport", "tcp", "--rate", "50M", "--outage", "120s"]);
    wait_until("so much data", || proxy.passed.load(Ordering::Relaxed) > SIZE / 4);
    proxy.swallowing.store(true, Ordering::Relaxed);
    wait_until("swallowed data", || proxy.swallowed.load(Ordering::Relaxed) > 0);
    proxy.swallowing.store(false, Ordering::Relaxed);
    let ended = run.finish_well();
    assert_copied(&scene, &ended);
    // Only data connections carry so much.
    let lost = ended.errors.iter().filter(|line| line.contains("connection lost")).count();
    assert!(lost == 0 && reconnects(&ended) >= 1, "{ended:#?}");
    assert_eq!(scene.agents(), 1, "no other agent was started");
}

#[test]
fn a_cut_and_a_forged_alert_over_udt_do_not_end_a_copy() {
    let _turn = common::turn();
    let scene = scene_or_skip!();
    let relay = scene.relay(PATH);
    let at = relay.local_addr();
    scene.far_behind(Some(at), None, "");
    let run = start(&scene, &["--transport", "udt", "--rate", "50M"]);
    wait_until("so much data", || relay.stats().forward.sent_bytes > SIZE / 4);
    relay.stop().expect("it was there");
    let forger = Listener::bind(at, &Options::new()).expect("the relay's port");
    for _ in 0..2 {
        let mut answered = forger.accept().expect("the copy dials again");
        answered.write_all(&FORGED_ALERT).expect("the copy listens");
        // Not before it has been read: the client ends the connection.
        let _ = answered.read_to_end(&mut Vec::new());
    }
    drop(forger);
    wait_until("the port is free", || UdpSocket::bind(at).is_ok());
    let _relay = relay_at(at, PATH, scene.direct());
    let ended = run.finish_well();
    assert_copied(&scene, &ended);
}

/// Another farhaul, with a key of its own, that listens there; when it was dialed.
fn stranger(at: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<Instant>>>) {
    let listener = Listener::bind(at, &Options::new()).expect("a port");
    let (at, dialed) = (listener.local_addr(), Arc::<Mutex<Vec<Instant>>>::default());
    let seen = Arc::clone(&dialed);
    thread::spawn(move || {
        let identity = Identity::generate().expect("a key");
        while let Ok(client) = listener.accept() {
            seen.lock().expect("no panic").push(Instant::now());
            let known = Trust::Known(Arc::new(|_| true));
            // It ends with the client's alert.
            let _ = handshake(client, Role::Server, &identity, &known, b"");
        }
    });
    (at, dialed)
}

#[test]
fn a_stranger_at_a_wrong_address_does_not_end_a_copy_while_the_peer_is_away() {
    let _turn = common::turn();
    let scene = scene_or_skip!();
    let relay = scene.relay(PATH);
    let at = relay.local_addr();
    let (wrong, dialed) = stranger(([127, 0, 0, 2], 0).into());
    scene.far(&[("FARHAUL_ADVERTISE", &format!("udp/{at},udp/{wrong}"))], "");
    let run = start(&scene, &["--transport", "udt", "--rate", "50M", "--outage", "120s"]);
    wait_until("so much data", || relay.stats().forward.sent_bytes > SIZE / 4);
    relay.stop().expect("it was there");
    let cut = Instant::now();
    // One whole dial, and the next: in each the stranger alone answers.
    let later = cut + DIAL_TIME;
    wait_until("two dials", || dialed.lock().expect("no panic").iter().any(|at| *at > later));
    let _relay = relay_at(at, PATH, scene.direct());
    let ended = run.finish_well();
    assert_copied(&scene, &ended);
    assert_eq!(scene.agents(), 1, "no other agent was started");
}

#[test]
fn a_stranger_in_the_peers_place_is_told_once_and_does_not_end_a_copy() {
    let _turn = common::turn();
    let scene = scene_or_skip!();
    let relay = scene.relay(PATH);
    let at = relay.local_addr();
    scene.far_behind(Some(at), None, "");
    let run = start(&scene, &["--transport", "udt", "--rate", "50M", "--outage", "120s"]);
    wait_until("so much data", || relay.stats().forward.sent_bytes > SIZE / 4);
    relay.stop().expect("it was there");
    let identity = Arc::new(Identity::generate().expect("a key"));
    let trust = Trust::Known(Arc::new(|_| true));
    let terms = Terms { identity, trust, context: Context::default(), plain: false };
    let config = ListenConfig { ports: at.port()..=at.port(), ..ListenConfig::new(terms) };
    let another = Listening::bind(&config, |_| {}).expect("the relay's port");
    run.wait_error_line("has not shown that it is");
    another.close();
    drop(another);
    wait_until("the port is free", || UdpSocket::bind(at).is_ok());
    let _relay = relay_at(at, PATH, scene.direct());
    let ended = run.finish_well();
    assert_copied(&scene, &ended);
    assert_eq!(warnings(&ended), 1, "{ended:#?}");
}

/// A path on which packets are forged, so many a second.
fn injecting(scene: &Scene, kinds: &[Forged], per_second: f64, seed: u64) -> RelayHandle {
    let mut config = RelayConfig::new(([127, 0, 0, 1], 0).into(), scene.direct());
    config.inject = Some(InjectConfig { kinds: kinds.to_vec(), per_second });
    Path { seed, ..PATH }.open(config)
}

/// The law: whatever is forged, a copy ends well, and nothing is changed. In the long form, with one packet a second
/// for a minute, of one kind or of any, it is less than 10% slower than a copy beside it in which nothing is forged.
#[test]
fn a_copy_past_an_injector_ends_well() {
    let _turn = common::turn();
    // Ten copies at a time are to be no load for the machine.
    let (size, rate, per_second, mut kinds) = match common::long() {
        true => (30 << 20, "4M", 1.0, Forged::ALL.map(|kind| vec![kind]).to_vec()),
        false => (SIZE, "20M", 10.0, Vec::new()),
    };
    kinds.push(Forged::ALL.to_vec());
    let copy = |kinds: &[Forged]| {
        let scene = Scene::new()?;
        let relay = injecting(&scene, kinds, per_second, 7);
        scene.far_behind(Some(relay.local_addr()), None, "");
        make_file(&scene.path("file"), size, 3);
        let (from, to) = (scene.here("file"), scene.there("copy"));
        let args = ["--json", "--transport", "udt", "--rate", rate, &from, &to];
        let ended = scene.start(&args).finish_well();
        assert_copied(&scene, &ended);
        let seconds = ended.json()["transfer_seconds"].as_f64().expect("a number");
        Ok::<_, String>((seconds, reconnects(&ended), relay.stats().forged.total()))
    };
    // Beside each other: what else the machine does is the same for all.
    let undisturbed = common::long().then_some(&[][..]);
    let copies = thread::scope(|threads| {
        let all = undisturbed.into_iter().chain(kinds.iter().map(Vec::as_slice));
        let running: Vec<_> = all.map(|kinds| (kinds, threads.spawn(|| copy(kinds)))).collect();
        let end = |(kinds, copy): (_, thread::ScopedJoinHandle<'_, _>)| {
            (kinds, copy.join().expect("it has told why"))
        };
        running.into_iter().map(end).collect::<Vec<(&[Forged], Result<_, String>)>>()
    });
    let (mut base, mut slow) = (None, Vec::new());
    for (kinds, copied) in copies {
        let (seconds, again, forged) = match copied {
            Ok(measured) => measured,
            Err(why) => common::skip!("{why}"),
        };
        let slower = base.map_or(0.0, |base: f64| seconds / base - 1.0);
        println!(
            "measured: {kinds:?}: {forged} forged, {again} reconnects, {seconds:.1} s, {:.1}% slower",
            slower * 100.0
        );
        if kinds.is_empty() {
            assert_eq!((again, forged), (0, 0), "nothing was forged");
            base = Some(seconds);
        } else {
            // An alert is forged where a connection begins only.
            let least = if kinds == [Forged::Alert] { 1 } else { 30 };
            assert!(forged >= least, "{kinds:?}: {forged}");
            slow.extend((slower >= 0.1).then_some((kinds, seconds)));
        }
    }
    assert!(slow.is_empty(), "instead of {base:?} s: {slow:?}");
}

/// The first costs a connection; then data packets bear tags, and those without are dropped and counted.
#[test]
fn forged_data_is_dropped_once_it_has_been_noticed() {
    let _turn = common::turn();
    let scene = scene_or_skip!();
    let relay = injecting(&scene, &[Forged::Data], 10.0, 5);
    scene.far_behind(Some(relay.local_addr()), None, "");
    make_file(&scene.path("file"), SIZE, 3);
    // Here is the receiver, which tells of what it has dropped.
    let (from, to) = (scene.there("file"), scene.here("copy"));
    let args = ["--json", "--transport", "udt", "--rate", "20M", &from, &to];
    let ended = scene.start(&args).finish_well();
    assert_copied(&scene, &ended);
    let dropped = ended.json()["forged_packets"].as_u64().expect("a number");
    let forged = relay.stats().forged.of(Forged::Data);
    // How many, depends on how long the copy takes: a new connection may be hit before it has tags.
    let again = reconnects(&ended);
    println!("measured: {again} reconnects, {dropped} of {forged} dropped");
    assert!(again >= 1, "the first costs a connection: {ended:#?}");
    assert!(again <= 2 + forged / 5, "{again} connections for {forged} forged packets: {ended:#?}");
    // Some go to the other side, some before the first has been noticed.
    assert!(forged >= 30 && dropped >= forged / 10, "{dropped} of {forged}");
    assert_eq!(scene.agents(), 1, "no other agent was started");
}

/// One forged ACK after the other: what each connection then misses is sent again over others.
#[test]
fn forged_acks_alone_do_not_hold_up_a_copy() {
    let _turn = common::turn();
    let scene = scene_or_skip!();
    let relay = injecting(&scene, &[Forged::Ack], 2.0, 3);
    scene.far_behind(Some(relay.local_addr()), None, "");
    let ended = start(&scene, &["--transport", "udt", "--rate", "20M"]).finish_well();
    assert_copied(&scene, &ended);
    assert!(relay.stats().forged.of(Forged::Ack) > 0);
}

/// Sources of a flood, of which one is the client's.
const FLOODERS: u8 = 64;

fn flooder(n: u64) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, 1 + (n % u64::from(FLOODERS)) as u8)
}

/// Some 3,000 newcomers a second that connect and say nothing, until `stop`; how many there were.
fn flood(stop: &AtomicBool, mut newcomer: impl FnMut(u64)) -> u64 {
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        (count..count + 3).for_each(&mut newcomer);
        count += 3;
        thread::sleep(Duration::from_millis(1));
    }
    count
}

fn flood_tcp(to: SocketAddr, stop: &AtomicBool) -> u64 {
    let mut held = VecDeque::new();
    flood(stop, |n| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.set_nonblocking(true).expect("an option");
        // Leaves nothing behind.
        socket.set_linger(Some(Duration::ZERO)).expect("an option");
        socket.bind(&SocketAddr::from((flooder(n), 0)).into()).expect("an address");
        // It is under way.
        let _ = socket.connect(&to.into());
        held.push_back(socket);
        if held.len() > 300 {
            held.pop_front();
        }
    })
}

fn flood_udt(to: SocketAddr, stop: &AtomicBool) -> u64 {
    let sockets: Vec<UdpSocket> = (0..FLOODERS)
        .map(|n| {
            let socket = UdpSocket::bind((flooder(n.into()), 0)).expect("an address");
            socket.set_nonblocking(true).expect("an option");
            socket.connect(to).expect("a route");
            socket
        })
        .collect();
    let mut agreed = 0;
    flood(stop, |n| {
        let socket = &sockets[(n % u64::from(FLOODERS)) as usize];
        let send = |handshake: Handshake| {
            let mut packet = [0; HANDSHAKE_LEN];
            let len = Control::Handshake(handshake).write(0, 0, &mut packet).expect("room for it");
            // What the kernel has no room for is lost.
            let _ = socket.send(&packet[..len]);
        };
        send(Handshake {
            version: Handshake::VERSION,
            socket_type: SocketType::Stream,
            isn: Seq::new(1_000),
            mss: 1500,
            flight_flag: 8192,
            request: Request::Hello,
            socket_id: 1 + n as u32,
            cookie: 0,
            peer_ip: PeerIp::NONE,
        });
        let mut buf = [0; 1500];
        while let Ok(count) = socket.recv(&mut buf) {
            let Ok(Packet::Control(packet)) = Packet::parse(&buf[..count]) else { continue };
            match packet.body {
                Control::Handshake(answer) if answer.request == Request::Hello => {
                    send(Handshake { request: Request::Conclusion, ..answer });
                }
                Control::Handshake(_) => agreed += 1,
                _ => {}
            }
        }
    });
    agreed
}

/// Newcomers that say nothing, from the client's own address among others: the links that a copy has stay.
#[test]
fn a_flood_of_newcomers_leaves_a_copy_that_runs_its_links() {
    let _turn = common::turn();
    for transport in ["tcp", "udt"] {
        let scene = scene_or_skip!();
        let (proxy, relay) = (Proxy::to(scene.direct()), scene.relay(PATH));
        scene.far_behind(Some(relay.local_addr()), Some(proxy.at), "");
        let run = start(&scene, &["--transport", transport, "--rate", "40M"]);
        wait_until("some data", || {
            let passed = match transport {
                "tcp" => proxy.passed.load(Ordering::Relaxed),
                _ => relay.stats().forward.sent_bytes,
            };
            passed > SIZE / 8
        });
        let stop = AtomicBool::new(false);
        let (made, ended) = thread::scope(|threads| {
            let flood = threads.spawn(|| match transport {
                "tcp" => flood_tcp(scene.direct(), &stop),
                _ => flood_udt(scene.direct(), &stop),
            });
            let ended = run.finish();
            stop.store(true, Ordering::Relaxed);
            (flood.join().expect("it has told why"), ended)
        });
        println!("measured: {transport}: {made} newcomers during a copy");
        assert_eq!(ended.code, Some(0), "{ended:#?}");
        assert_copied(&scene, &ended);
        assert_eq!((reconnects(&ended), scene.agents()), (0, 1), "{ended:#?}");
        // More than there are places for those that speak, by far.
        assert!(made > 300, "{made}");
    }
}
