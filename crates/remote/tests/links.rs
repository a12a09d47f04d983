//! Links between a dialer and a listener on this host, over UDT and TCP.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use farhaul_remote::{
    Context, DialConfig, DialFailure, Dialer, Kind, Link, LinkError, ListenConfig, Listening,
    Terms, Transport,
};
use farhaul_secure::{Identity, Trust};

use common::{TIME, dial, here, listen, other_terms, two};

const BOTH: [Transport; 2] = [Transport::Udp, Transport::Tcp];

/// Bytes that are not alike.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n * n / 7) as u8).collect()
}

/// Both ends of a new link.
fn linked(transport: Transport, plain: bool) -> (Link, Link, Listening) {
    let (near, far) = two(plain);
    let (listening, links) = listen(far);
    let dialer = Dialer::new(DialConfig { transport, ..here(&listening, near) });
    let near = dial(&dialer).unwrap();
    (near, links.recv_timeout(TIME).unwrap(), listening)
}

/// Sends each way at once and reads it on the other side.
fn exchange(near: Link, far: Link) {
    let sent = pattern(3_000_000);
    thread::scope(|scope| {
        for link in [near, far] {
            let sent = &sent;
            scope.spawn(move || {
                let (mut reader, mut writer, handle) = link.into_parts();
                let received = thread::spawn(move || {
                    let mut received = vec![0; 3_000_000];
                    reader.read_exact(&mut received).unwrap();
                    (reader, received)
                });
                writer.write_all(sent).unwrap();
                writer.flush().unwrap();
                let (mut reader, received) = received.join().unwrap();
                assert!(received == *sent, "what came is not what was sent");
                let rest = thread::spawn(move || reader.read_to_end(&mut Vec::new()));
                handle.close(TIME).unwrap();
                let rest = rest.join().unwrap();
                // A plain link over UDT has no end of one direction: its own close ends both.
                if !(handle.kind() == Kind::Udp && handle.cipher().is_none()) {
                    assert_eq!(rest.unwrap(), 0);
                }
            });
        }
    });
}

#[test]
fn links_carry_bytes_both_ways() {
    for transport in BOTH {
        for plain in [false, true] {
            let (near, far, _listening) = linked(transport, plain);
            for link in [&near, &far] {
                let handle = link.handle();
                assert_eq!(handle.cipher().is_none(), plain);
                assert_eq!(handle.kind() == Kind::Udp, transport == Transport::Udp);
                assert!(handle.peer().unwrap().ip().to_canonical().is_loopback());
            }
            exchange(near, far);
        }
    }
    let (near, far) = Link::pair().unwrap();
    assert_eq!((near.handle().kind(), near.handle().peer_key()), (Kind::Pipe, None));
    exchange(near, far);
}

#[test]
fn each_side_knows_the_other_and_what_it_has_sent() {
    let (near, far) = two(false);
    let keys = [near.identity.public_key(), far.identity.public_key()];
    let (listening, links) = listen(far);
    for transport in BOTH {
        let dialer = Dialer::new(DialConfig { transport, ..here(&listening, near.clone()) });
        let near = dial(&dialer).unwrap();
        let far = links.recv_timeout(TIME).unwrap();
        assert_eq!(far.handle().peer_key(), Some(keys[0]));
        assert_eq!(near.handle().peer_key(), Some(keys[1]));
        let (_, mut writer, handle) = near.into_parts();
        let before = handle.stats().bytes_sent;
        writer.write_all(&pattern(100_000)).unwrap();
        writer.flush().unwrap();
        let (mut reader, _writer, _) = far.into_parts();
        reader.read_exact(&mut vec![0; 100_000]).unwrap();
        assert!(handle.stats().bytes_sent >= before + 100_000);
        assert_eq!(handle.stats().rtt.is_zero(), transport == Transport::Tcp);
    }
}

/// A relay of TCP that keeps what the client sends.
fn tap(to: std::net::SocketAddr) -> (std::net::SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&seen);
    thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut server = TcpStream::connect(to).unwrap();
        let (mut back, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        thread::spawn(move || std::io::copy(&mut back, &mut to_client));
        let mut buf = [0; 4096];
        while let Ok(count @ 1..) = client.read(&mut buf) {
            kept.lock().unwrap().extend_from_slice(&buf[..count]);
            server.write_all(&buf[..count]).unwrap();
        }
    });
    (at, seen)
}

#[test]
fn only_a_plain_link_shows_what_it_carries() {
    for plain in [false, true] {
        let (near, far) = two(plain);
        let (listening, links) = listen(far);
        let (at, seen) = tap(([127, 0, 0, 1], listening.tcp_port().unwrap()).into());
        let link = dial(&Dialer::new(DialConfig::new(Vec::new(), vec![at], near))).unwrap();
        let (_, mut writer, _handle) = link.into_parts();
        writer.write_all(b"a text that is easily found").unwrap();
        writer.flush().unwrap();
        let (mut reader, _, _far) = links.recv_timeout(TIME).unwrap().into_parts();
        reader.read_exact(&mut [0; 27]).unwrap();
        let seen = seen.lock().unwrap();
        let found = seen.windows(14).any(|part| part == b"that is easily");
        assert_eq!(found, plain);
    }
}

#[test]
fn who_does_not_belong_is_refused_with_the_reason() {
    let stranger = Arc::new(Identity::generate().unwrap());
    for transport in BOTH {
        let (near, far) = two(false);
        let (listening, links) = listen(far);
        let error = |terms: Terms| {
            let dialer = Dialer::new(DialConfig { transport, ..here(&listening, terms) });
            dial(&dialer).unwrap_err()
        };
        let trust = Trust::Only(stranger.public_key());
        let wrong_server = error(Terms { trust, ..near.clone() });
        assert!(wrong_server.is_authentication(), "{wrong_server}");
        assert!(wrong_server.to_string().contains("somebody else"), "{wrong_server}");
        let wrong_client = error(Terms { identity: Arc::clone(&stranger), ..near.clone() });
        assert!(wrong_client.is_authentication(), "{wrong_client}");
        assert!(wrong_client.to_string().contains("does not accept"), "{wrong_client}");
        let context = Context::new(b"another".to_vec());
        let wrong_secret = error(Terms { context, ..near.clone() });
        assert!(wrong_secret.is_authentication(), "{wrong_secret}");
        assert!(wrong_secret.to_string().contains("secret"), "{wrong_secret}");
        let plain = error(Terms { plain: true, ..near.clone() });
        assert_eq!(plain.failure, DialFailure::Plain, "{plain}");
        assert!(plain.to_string().contains("--plain"), "{plain}");
        // Whoever was let in after all would have come before this one.
        let dialer = Dialer::new(DialConfig { transport, ..here(&listening, near) });
        let link = dial(&dialer).unwrap();
        drop(links.recv_timeout(TIME).unwrap());
        assert!(links.try_recv().is_err());
        drop(link);
    }
}

/// A TLS alert in plain text, access_denied (RFC 8446 §6), framed as a message of a handshake.
const FORGED_ALERT: [u8; 9] = [0, 7, 0x15, 3, 3, 0, 2, 2, 49];

/// Passes on what a server says as far as its consent, which ends the handshake, and holds the rest back until the
/// test is over.
fn holding_consent_back(to: std::net::SocketAddr) -> std::net::SocketAddr {
    let relay = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = relay.local_addr().unwrap();
    thread::spawn(move || {
        let (mut near, _) = relay.accept().unwrap();
        let mut far = TcpStream::connect(to).unwrap();
        let (mut from, mut into) = (near.try_clone().unwrap(), far.try_clone().unwrap());
        thread::spawn(move || std::io::copy(&mut from, &mut into));
        loop {
            let mut length = [0; 2];
            far.read_exact(&mut length).unwrap();
            let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
            if message.is_empty() {
                thread::park();
            }
            far.read_exact(&mut message).unwrap();
            near.write_all(&[&length[..], &message].concat()).unwrap();
        }
    });
    at
}

/// Three flights: the client's, the server's, and the client's again, with its first words.
#[test]
fn the_first_words_of_an_eager_dialer_come_with_the_end_of_its_handshake() {
    let (near, far) = two(false);
    let (listening, links) = listen(far);
    let to = ([127, 0, 0, 1], listening.tcp_port().unwrap()).into();
    let mut config = DialConfig::new(Vec::new(), vec![holding_consent_back(to)], near);
    config.eager = true;
    let (_reader, mut writer, _handle) = dial(&Dialer::new(config)).unwrap().into_parts();
    writer.write_all(b"first words").unwrap();
    writer.flush().unwrap();
    let (mut reader, _writer, _handle) = links.recv_timeout(TIME).unwrap().into_parts();
    let mut words = [0; 11];
    reader.read_exact(&mut words).unwrap();
    assert_eq!(&words, b"first words");
}

#[test]
fn nothing_is_read_from_a_peer_that_does_not_know_the_secret() {
    let (mut near, far) = two(false);
    near.context = Context::new(b"another secret".to_vec());
    let (listening, links) = listen(far);
    for transport in [Transport::Udp, Transport::Tcp] {
        let mut config = here(&listening, near.clone());
        (config.transport, config.eager) = (transport, true);
        let (mut reader, mut writer, _handle) = dial(&Dialer::new(config)).unwrap().into_parts();
        let _ = writer.write_all(b"for another").and_then(|()| writer.flush());
        let error = reader.read(&mut [0; 8]).unwrap_err();
        let why = error.downcast::<LinkError>().unwrap();
        assert_eq!(why.failure(), DialFailure::NotAuthenticated, "{transport}: {why}");
        let again = reader.read(&mut [0; 8]).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::NotConnected, "{transport}");
    }
    assert!(links.try_recv().is_err(), "nor does the peer hear anything");
}

#[test]
fn a_forged_alert_is_no_refusal() {
    for transport in BOTH {
        let (near, _) = two(false);
        let local: std::net::SocketAddr = ([127, 0, 0, 1], 0).into();
        let at = match transport {
            Transport::Tcp => {
                let listener = TcpListener::bind(local).unwrap();
                let at = listener.local_addr().unwrap();
                thread::spawn(move || {
                    for stream in listener.incoming() {
                        let mut stream = stream.unwrap();
                        stream.write_all(&FORGED_ALERT).unwrap();
                        let _ = stream.read_to_end(&mut Vec::new());
                    }
                });
                at
            }
            _ => {
                let listener = farhaul::Listener::bind(local, &farhaul::Options::new()).unwrap();
                let at = listener.local_addr();
                thread::spawn(move || {
                    while let Ok(mut stream) = listener.accept() {
                        stream.write_all(&FORGED_ALERT).unwrap();
                        let _ = stream.read_to_end(&mut Vec::new());
                    }
                });
                at
            }
        };
        let config = DialConfig { transport, ..DialConfig::new(vec![at], vec![at], near) };
        let error = dial(&Dialer::new(config)).unwrap_err();
        assert_eq!(error.failure, DialFailure::Refused, "{transport}: {error}");
        assert!(!error.is_authentication());
    }
}

#[test]
fn a_stranger_at_a_wrong_address_does_not_keep_the_peer_away() {
    for transport in BOTH {
        let (near, far) = two(false);
        let (stranger, _strange) = listen(two(false).1);
        let (listening, links) = listen(far);
        let mut config = DialConfig { transport, ..here(&stranger, near) };
        let peer = here(&listening, config.terms.clone());
        config.candidates.extend(peer.candidates);
        config.tcp_candidates.extend(peer.tcp_candidates);
        let _link = dial(&Dialer::new(config.clone())).unwrap();
        links.recv_timeout(TIME).unwrap();
        // Where it is away, its address has not answered: nothing is known of it.
        let kept = UdpSocket::bind("127.0.0.2:0").unwrap();
        let silent = kept.local_addr().unwrap();
        if transport == Transport::Udp {
            config.candidates = vec![config.candidates[0], silent];
            let dialer = Dialer::new(config);
            let error = dialer.dial(Duration::from_secs(2), &AtomicBool::new(false)).unwrap_err();
            assert_eq!(error.failure, DialFailure::NoAnswer, "{error}");
            assert!(error.stranger, "and it is told what has answered: {error}");
        }
    }
}

#[test]
fn who_is_asked_to_goes_on_unsealed_only_while_that_is_allowed() {
    for transport in BOTH {
        let (near, far) = two(false);
        let config = ListenConfig { ports: 0..=0, ..ListenConfig::new(far) };
        let allowed = Arc::clone(&config.plain_if_asked);
        let (give, links) = std::sync::mpsc::channel();
        let listening = Listening::bind(&config, move |link| drop(give.send(link))).unwrap();
        let dialed = |plain: bool| {
            let terms = Terms { plain, ..near.clone() };
            dial(&Dialer::new(DialConfig { transport, ..here(&listening, terms) }))
        };
        assert_eq!(dialed(true).unwrap_err().failure, DialFailure::Plain);
        allowed.store(true, Ordering::Relaxed);
        for plain in [true, false] {
            let (near, far) = (dialed(plain).unwrap(), links.recv_timeout(TIME).unwrap());
            for handle in [near.handle(), far.handle()] {
                assert_eq!(handle.cipher().is_none(), plain);
            }
            exchange(near, far);
        }
        allowed.store(false, Ordering::Relaxed);
        assert_eq!(dialed(true).unwrap_err().failure, DialFailure::Plain);
    }
}

#[test]
fn tcp_is_taken_where_udp_is_blocked() {
    let (near, far) = two(false);
    let (listening, links) = listen(far);
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let dialer = Dialer::new(DialConfig {
        candidates: vec![silent.local_addr().unwrap()],
        silence: TIME,
        ..here(&listening, near)
    });
    let first = dial(&dialer).unwrap();
    assert_eq!(first.handle().kind(), Kind::Tcp);
    links.recv_timeout(TIME).unwrap();
    // The way is known now: in less time than UDP has, which the first dial waited for.
    let second = dialer.dial(Duration::from_secs(2), &AtomicBool::new(false)).unwrap();
    assert_eq!(second.handle().kind(), Kind::Tcp);
}

#[test]
fn udp_is_preferred_and_all_links_leave_from_one_port() {
    let (near, far) = two(false);
    let (listening, links) = listen(far);
    assert_eq!(listening.udp_port(), listening.tcp_port());
    let dialer = Dialer::new(here(&listening, near));
    let mut ports = Vec::new();
    for _ in 0..3 {
        let link = dial(&dialer).unwrap();
        assert_eq!(link.handle().kind(), Kind::Udp);
        ports.push(links.recv_timeout(TIME).unwrap().handle().peer().unwrap().port());
    }
    assert!(ports.iter().all(|port| *port == ports[0]), "{ports:?}");
    dialer.reset();
    let _link = dial(&dialer).unwrap();
    assert_ne!(links.recv_timeout(TIME).unwrap().handle().peer().unwrap().port(), ports[0]);
}

#[test]
fn links_leave_from_each_local_address_in_turn() {
    let (near, far) = two(false);
    let (listening, links) = listen(far);
    for transport in BOTH {
        let bind = ["127.0.0.2", "127.0.0.3"].map(|text| text.parse().unwrap()).to_vec();
        let dialer = Dialer::new(DialConfig { transport, bind, ..here(&listening, near.clone()) });
        let from = [0, 1, 2].map(|_| {
            let _link = dial(&dialer).unwrap();
            let peer = links.recv_timeout(TIME).unwrap().handle().peer().unwrap();
            peer.ip().to_canonical().to_string()
        });
        assert_eq!(from, ["127.0.0.2", "127.0.0.3", "127.0.0.2"]);
    }
}

#[test]
fn a_peer_that_is_elsewhere_now_is_found_again() {
    let (near, far) = two(false);
    let (first, links) = listen(far.clone());
    let (second, later_links) = listen(far);
    let mut config = here(&first, near);
    config.transport = Transport::Tcp;
    config.tcp_candidates.push(([127, 0, 0, 1], second.tcp_port().unwrap()).into());
    let dialer = Dialer::new(config);
    let _link = dial(&dialer).unwrap();
    links.recv_timeout(TIME).unwrap();
    first.close();
    let _link = dial(&dialer).unwrap();
    later_links.recv_timeout(TIME).unwrap();
}

#[test]
fn nobody_there_is_told_and_dialing_can_be_stopped() {
    let (near, _) = two(false);
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let dialer =
        Dialer::new(DialConfig::new(vec![silent.local_addr().unwrap()], Vec::new(), near.clone()));
    let error = dialer.dial(Duration::from_millis(300), &AtomicBool::new(false)).unwrap_err();
    assert_eq!(error.failure, DialFailure::NoAnswer, "{error}");
    assert!(error.to_string().contains("UDP to 127.0.0.1:"), "{error}");
    let stop = AtomicBool::new(false);
    let error = thread::scope(|scope| {
        let dialing = scope.spawn(|| dialer.dial(Duration::from_secs(1000), &stop));
        // The dialer is at work now.
        silent.recv_from(&mut [0; 2000]).unwrap();
        stop.store(true, Ordering::Relaxed);
        dialing.join().unwrap().unwrap_err()
    });
    assert_eq!(error.failure, DialFailure::Interrupted);
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = dial(&Dialer::new(DialConfig::new(Vec::new(), vec![nobody], near))).unwrap_err();
    assert_eq!(error.failure, DialFailure::Refused, "{error}");
}

#[test]
fn an_abort_ends_what_waits() {
    for transport in BOTH {
        let (near, _far, _listening) = linked(transport, false);
        let (mut reader, mut writer, handle) = near.into_parts();
        let reading = thread::spawn(move || reader.read(&mut [0; 10]).unwrap_err().kind());
        let (full, filled) = std::sync::mpsc::channel();
        let writing = thread::spawn(move || {
            let data = pattern(1 << 20);
            loop {
                // Nobody reads, so it waits at last.
                if let Err(error) = writer.write_all(&data) {
                    return error.kind();
                }
                let _ = full.send(());
            }
        });
        filled.recv_timeout(TIME).unwrap();
        handle.abort();
        assert_eq!(reading.join().unwrap(), ErrorKind::ConnectionAborted);
        assert_eq!(writing.join().unwrap(), ErrorKind::ConnectionAborted);
    }
}

#[test]
fn an_end_that_nobody_told_is_no_end() {
    for transport in BOTH {
        let (near, far, _listening) = linked(transport, false);
        let (_, mut writer, handle) = near.into_parts();
        writer.write_all(b"so far").unwrap();
        writer.flush().unwrap();
        let (mut reader, _writer, _) = far.into_parts();
        reader.read_exact(&mut [0; 6]).unwrap();
        handle.abort();
        // UDT tells that the peer broke off, TCP that it has ended.
        let kind = reader.read(&mut [0; 1]).unwrap_err().kind();
        let ends = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset];
        assert!(ends.contains(&kind), "{transport:?}: {kind}");
    }
}

#[test]
fn closing_is_bounded_by_its_time() {
    for transport in BOTH {
        let (near, _far, _listening) = linked(transport, false);
        let (_, mut writer, handle) = near.into_parts();
        handle.set_max_rate(Some(8000));
        // More than can leave at this rate, and less than is sent at once.
        writer.write_all(&pattern(60_000)).unwrap();
        let error = handle.close(Duration::from_millis(200)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(writer.write(b"more").is_err());
    }
}

#[test]
fn tcp_keeps_to_a_rate_too() {
    let (near, far, _listening) = linked(Transport::Tcp, false);
    let (_, mut writer, handle) = near.into_parts();
    handle.set_max_rate(Some(80_000_000));
    let begun = Instant::now();
    let sending = thread::spawn(move || {
        writer.write_all(&pattern(2_000_000)).unwrap();
        writer.flush().unwrap();
        writer
    });
    let (mut reader, _, _far) = far.into_parts();
    reader.read_exact(&mut vec![0; 2_000_000]).unwrap();
    // 16 Mbit: the first slice leaves at once.
    assert!(begun.elapsed() >= Duration::from_millis(180), "{:?}", begun.elapsed());
    drop(sending.join().unwrap());
}

/// A relay of UDP for one client, which can be cut.
fn relay(to: u16, cut: Arc<AtomicBool>) -> std::net::SocketAddr {
    let front = UdpSocket::bind("127.0.0.1:0").unwrap();
    let back = UdpSocket::bind("127.0.0.1:0").unwrap();
    back.connect(("127.0.0.1", to)).unwrap();
    let at = front.local_addr().unwrap();
    thread::spawn(move || {
        let mut buf = [0; 2000];
        let (count, client) = front.recv_from(&mut buf).unwrap();
        back.send(&buf[..count]).unwrap();
        let (to_client, from_server) = (front.try_clone().unwrap(), back.try_clone().unwrap());
        let is_cut = Arc::clone(&cut);
        thread::spawn(move || {
            let mut buf = [0; 2000];
            while let (Ok(count), false) =
                (from_server.recv(&mut buf), is_cut.load(Ordering::SeqCst))
            {
                let _ = to_client.send_to(&buf[..count], client);
            }
        });
        while let (Ok((count, _)), false) = (front.recv_from(&mut buf), cut.load(Ordering::SeqCst))
        {
            let _ = back.send(&buf[..count]);
        }
    });
    at
}

#[test]
fn a_peer_that_falls_silent_is_noticed() {
    let (near, far) = two(false);
    let (listening, links) = listen(far);
    let cut = Arc::new(AtomicBool::new(false));
    let at = relay(listening.udp_port().unwrap(), Arc::clone(&cut));
    let dialer = Dialer::new(DialConfig {
        silence: Duration::from_secs(1),
        ..DialConfig::new(vec![at], Vec::new(), near)
    });
    let (mut reader, _writer, _) = dial(&dialer).unwrap().into_parts();
    let _far = links.recv_timeout(TIME).unwrap();
    cut.store(true, Ordering::SeqCst);
    let error = reader.read(&mut [0; 1]).unwrap_err();
    assert!(error.to_string().contains("nothing has come from the peer"), "{error}");
}

#[test]
fn strangers_disturb_nobody() {
    let (near, far) = two(false);
    let (listening, links) = listen(far);
    let port = listening.tcp_port().unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 1000], &[0; 64], b"\x40\x00"] {
        udp.send_to(garbage, ("127.0.0.1", listening.udp_port().unwrap())).unwrap();
        let mut stranger = TcpStream::connect(("127.0.0.1", port)).unwrap();
        // It may be dropped before it is done; whether by FIN or by RST does not matter.
        let _ = stranger.write_all(garbage);
        let _ = stranger.shutdown(std::net::Shutdown::Write);
        stranger.set_read_timeout(Some(TIME)).unwrap();
        let end = stranger.read_to_end(&mut Vec::new());
        assert!(!end.is_err_and(|error| error.kind() == ErrorKind::WouldBlock));
    }
    for transport in BOTH {
        let dialer = Dialer::new(DialConfig { transport, ..here(&listening, near.clone()) });
        dial(&dialer).unwrap();
        links.recv_timeout(TIME).unwrap();
    }
    assert!(links.try_recv().is_err());
}

#[test]
fn newcomers_that_say_nothing_keep_nobody_out_and_end_with_the_listener() {
    let (near, far) = two(false);
    let (listening, links) = listen(far);
    let port = listening.tcp_port().unwrap();
    let silent: Vec<_> =
        (0..100).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    let dialer = Dialer::new(DialConfig { transport: Transport::Tcp, ..here(&listening, near) });
    dial(&dialer).unwrap();
    links.recv_timeout(TIME).unwrap();
    // They have time left.
    let last = silent.last().unwrap();
    last.set_nonblocking(true).unwrap();
    assert_eq!((&mut &*last).read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::WouldBlock);
    last.set_nonblocking(false).unwrap();
    // Closing does not wait for any of them.
    listening.close();
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    for mut stream in silent {
        stream.set_read_timeout(Some(TIME)).unwrap();
        let end = stream.read(&mut [0; 1]);
        assert!(!end.is_err_and(|error| error.kind() == ErrorKind::WouldBlock));
    }
}

/// A flooded peer closes connections before it has shown who it is: the dialer tries again.
#[test]
fn a_dialer_that_is_closed_too_early_dials_again() {
    for (closed, words) in [(3, &[][..]), (3, &FORGED_ALERT), (u32::MAX, &[])] {
        let (near, far) = two(false);
        let (listening, links) = listen(far);
        let to = (std::net::Ipv4Addr::LOCALHOST, listening.tcp_port().unwrap());
        let front = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = front.local_addr().unwrap();
        thread::spawn(move || {
            for nth in 0.. {
                let (mut near, _) = front.accept().unwrap();
                if nth < closed {
                    // Its first words have come.
                    near.read_exact(&mut [0]).unwrap();
                    let _ = near.write_all(words);
                    continue;
                }
                let mut far = TcpStream::connect(to).unwrap();
                let (mut back, mut to_near) = (far.try_clone().unwrap(), near.try_clone().unwrap());
                thread::spawn(move || std::io::copy(&mut back, &mut to_near));
                thread::spawn(move || std::io::copy(&mut near, &mut far));
            }
        });
        let dialer = Dialer::new(DialConfig::new(Vec::new(), vec![at], near));
        if closed == 3 {
            let _near = dial(&dialer).unwrap();
            links.recv_timeout(TIME).unwrap();
        } else {
            // Not for ever.
            let begun = Instant::now();
            assert_eq!(dial(&dialer).unwrap_err().failure, DialFailure::Unfinished);
            assert!(begun.elapsed() < TIME / 2);
        }
    }
}

#[test]
fn a_port_in_use_is_told_and_one_of_a_range_is_found() {
    let (_, far) = two(false);
    let (first, _links) = listen(far.clone());
    let taken = first.tcp_port().unwrap();
    let config = ListenConfig { ports: taken..=taken, ..ListenConfig::new(far.clone()) };
    let error = Listening::bind(&config, drop).unwrap_err();
    assert!(error.to_string().contains(&format!("port {taken} is in use")), "{error}");
    let range = taken..=taken.saturating_add(50);
    let config = ListenConfig { ports: range.clone(), ..ListenConfig::new(far.clone()) };
    let second = Listening::bind(&config, drop).unwrap();
    let port = second.udp_port().unwrap();
    assert!(port != taken && range.contains(&port) && second.tcp_port() == Some(port));
    let config = ListenConfig { udp: false, tcp: false, ..ListenConfig::new(far.clone()) };
    assert_eq!(Listening::bind(&config, drop).unwrap_err().kind(), ErrorKind::InvalidInput);
    let addresses = vec!["127.0.0.1".parse().unwrap()];
    let config =
        ListenConfig { addresses: addresses.clone(), tcp: false, ..ListenConfig::new(far) };
    let one = Listening::bind(&config, drop).unwrap();
    assert_eq!((one.addresses(), one.tcp_port()), (addresses, None));
}

#[test]
fn a_listener_that_knows_several_tells_them_apart() {
    let (near, far) = two(false);
    let other = other_terms(&near);
    let keys = [near.identity.public_key(), other.identity.public_key()];
    let trust = Trust::Known(Arc::new(move |key| keys.contains(key)));
    let (listening, links) = listen(Terms { trust, ..far });
    for (terms, key) in [near, other].into_iter().zip(keys) {
        dial(&Dialer::new(here(&listening, terms))).unwrap();
        assert_eq!(links.recv_timeout(TIME).unwrap().handle().peer_key(), Some(key));
    }
}
