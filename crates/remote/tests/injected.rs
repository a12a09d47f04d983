//! An attacker on the path of a link sends packets: control packets are of no effect.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use farhaul_remote::{DialConfig, Dialer, Injection, Link, LinkReader, LinkWriter, Transport};

use common::{TIME, dial, here, listen, two};

/// The first word of tagged control packets.
const TAGGED: [u8; 4] = [0xff, 0xff, 0xff, 0x01];

/// Passes datagrams on between a client and `server`. After each that is tagged, it sends forged
/// packets of several kinds in the name of the same side.
struct Relay {
    addr: SocketAddr,
    /// Packets forged, towards the server and towards the client.
    forged: Arc<[AtomicU64; 2]>,
    /// Control packets that bore no tag after some had, or any tag.
    untagged: Arc<AtomicU64>,
    tagged: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
}

impl Relay {
    fn to(server: SocketAddr) -> Relay {
        let near = UdpSocket::bind("127.0.0.1:0").unwrap();
        let relay = Relay {
            addr: near.local_addr().unwrap(),
            forged: Arc::default(),
            untagged: Arc::default(),
            tagged: Arc::default(),
            over: Arc::default(),
        };
        let (forged, untagged) = (Arc::clone(&relay.forged), Arc::clone(&relay.untagged));
        let (tagged, over) = (Arc::clone(&relay.tagged), Arc::clone(&relay.over));
        near.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        thread::spawn(move || {
            let (mut client, mut buf) = (None, [0; 2048]);
            let mut has_tagged = [false; 2];
            while !over.load(Ordering::Relaxed) {
                let Ok((len, from)) = near.recv_from(&mut buf) else { continue };
                let packet = &buf[..len];
                let back = from == server;
                if !back {
                    client = Some(from);
                }
                let Some(to) = (if back { client } else { Some(server) }) else { continue };
                near.send_to(packet, to).unwrap();
                let way = usize::from(back);
                let is_control = packet[0] & 0x80 != 0;
                if packet.starts_with(&TAGGED) {
                    has_tagged[way] = true;
                    tagged.fetch_add(1, Ordering::Relaxed);
                    for forgery in forgeries(packet) {
                        forged[way].fetch_add(1, Ordering::Relaxed);
                        near.send_to(&forgery, to).unwrap();
                    }
                } else if is_control && has_tagged[way] {
                    untagged.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        relay
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Passes datagrams on between clients and `server`, and may change one of data on its way to the server.
struct Changer {
    addr: SocketAddr,
    /// The next datagram of data to the server is changed.
    change: Arc<AtomicBool>,
    /// Of data packets to the server: those bits of the word for flags and message number, of the first
    /// packet, that have been alike in all, all of them at first.
    alike: Arc<AtomicU32>,
    over: Arc<AtomicBool>,
}

impl Changer {
    fn to(server: SocketAddr) -> Changer {
        let near = UdpSocket::bind("127.0.0.1:0").unwrap();
        let changer = Changer {
            addr: near.local_addr().unwrap(),
            change: Arc::default(),
            alike: Arc::new(AtomicU32::new(u32::MAX)),
            over: Arc::default(),
        };
        let (change, alike) = (Arc::clone(&changer.change), Arc::clone(&changer.alike));
        let over = Arc::clone(&changer.over);
        near.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        thread::spawn(move || {
            let (mut client, mut first, mut buf) = (None, None, [0; 2048]);
            while !over.load(Ordering::Relaxed) {
                let Ok((len, from)) = near.recv_from(&mut buf) else { continue };
                let back = from == server;
                if !back {
                    client = Some(from);
                }
                let Some(to) = (if back { client } else { Some(server) }) else { continue };
                let packet = &mut buf[..len];
                if !back && packet[0] & 0x80 == 0 {
                    let word = u32::from_be_bytes(*packet[4..].first_chunk().unwrap());
                    let other = word ^ *first.get_or_insert(word);
                    alike.fetch_and(!other, Ordering::Relaxed);
                    if change.swap(false, Ordering::Relaxed) {
                        packet[len - 1] ^= 1;
                    }
                }
                near.send_to(packet, to).unwrap();
            }
        });
        changer
    }

    /// Whether data packets bear tags: without, the flags are the same in all.
    fn has_seen_tags(&self) -> bool {
        self.alike.load(Ordering::Relaxed) >> 29 != 0b111
    }
}

impl Drop for Changer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// A piece of data from one end of a link to the other; whether it has arrived.
fn pass(writer: &mut LinkWriter, reader: &mut LinkReader) -> bool {
    let data = [7; 20_000];
    let mut received = [0; 20_000];
    writer.write_all(&data).unwrap();
    writer.flush().unwrap();
    reader.read_exact(&mut received).is_ok() && received == data
}

/// One listener serves several sessions, as a server does: where data was injected into one of them, the
/// others do not pay for it.
#[test]
fn injected_data_has_the_links_of_its_own_session_tagged_and_no_others() {
    let (near_terms, far_terms) = two(false);
    let (listening, links) = listen(far_terms);
    let server = SocketAddr::from(([127, 0, 0, 1], listening.udp_port().unwrap()));
    let session = |links_wanted: usize| {
        let injection = Injection::default();
        let changers: Vec<_> = (0..links_wanted).map(|_| Changer::to(server)).collect();
        let both = changers.iter().map(|changer| {
            let config = here(&listening, near_terms.clone());
            let candidates = vec![changer.addr];
            let config = DialConfig { transport: Transport::Udp, candidates, ..config };
            let near = dial(&Dialer::new(config)).unwrap();
            let far = links.recv_timeout(TIME).unwrap();
            far.handle().share(&injection);
            (Link::into_parts(near), Link::into_parts(far))
        });
        let both: Vec<_> = both.collect();
        (changers, both)
    };
    let (attacked, mut own) = session(2);
    let (aside, mut others) = session(1);
    for (near, far) in own.iter_mut().chain(&mut others) {
        assert!(pass(&mut near.1, &mut far.0));
    }
    attacked[0].change.store(true, Ordering::Relaxed);
    let (near, far) = &mut own[0];
    assert!(!pass(&mut near.1, &mut far.0), "what was changed does not open");
    let deadline = Instant::now() + TIME;
    let (own, other) = (&mut own[1], &mut others[0]);
    while !attacked[1].has_seen_tags() {
        assert!(Instant::now() < deadline, "no tags");
        assert!(pass(&mut own.0.1, &mut own.1.0));
        assert!(pass(&mut other.0.1, &mut other.1.0));
    }
    for _ in 0..20 {
        assert!(pass(&mut other.0.1, &mut other.1.0));
    }
    assert!(!aside[0].has_seen_tags(), "the other session's data bears tags");
}

/// Made of a true packet: a shutdown, a light ACK, an ACK2, a copy, one with a changed tag.
fn forgeries(packet: &[u8]) -> Vec<Vec<u8>> {
    let plain = |kind: u8, body: &[u8]| {
        let head = [0x80, kind, 0, 0, 0, 0, 0, 1];
        [&head, &packet[8..16], body].concat()
    };
    let mut wrong = packet.to_vec();
    *wrong.last_mut().unwrap() ^= 1;
    vec![
        plain(5, &[0; 4]),
        plain(2, &[0x12, 0x34, 0x56, 0x78]),
        plain(6, &[0; 4]),
        packet.to_vec(),
        wrong,
    ]
}

#[test]
fn forged_control_packets_do_not_disturb_a_sealed_link() {
    for plain in [false, true] {
        let (near_terms, far_terms) = two(plain);
        let (listening, links) = listen(far_terms);
        let port = listening.udp_port().unwrap();
        let relay = Relay::to(([127, 0, 0, 1], port).into());
        let config = here(&listening, near_terms);
        let config =
            DialConfig { transport: Transport::Udp, candidates: vec![relay.addr], ..config };
        let near = dial(&Dialer::new(config)).unwrap();
        let far = links.recv_timeout(TIME).unwrap();
        let (near_handle, far_handle) = (near.handle(), far.handle());
        let data: Vec<u8> = (0..4_000_000_u64).map(|n| (n * n / 7) as u8).collect();
        thread::scope(|scope| {
            let (_near_reader, mut writer, _) = near.into_parts();
            let (mut reader, _far_writer, _) = far.into_parts();
            let sent = &data;
            scope.spawn(move || {
                writer.write_all(sent).unwrap();
                writer.flush().unwrap();
                writer
            });
            let mut received = vec![0; data.len()];
            reader.read_exact(&mut received).unwrap();
            assert!(received == data);
        });
        // Counts come with the packets, which may still be on their way.
        let counted = || [far_handle.stats().forged, near_handle.stats().forged];
        let injected = || [0, 1].map(|way| relay.forged[way].load(Ordering::Relaxed));
        let deadline = Instant::now() + TIME;
        while !plain && counted().iter().any(|count| *count < 20) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
        let tagged = relay.tagged.load(Ordering::Relaxed);
        assert_eq!(relay.untagged.load(Ordering::Relaxed), 0);
        if plain {
            assert_eq!((tagged, counted()), (0, [0, 0]), "as it always was");
        } else {
            assert!(tagged > 10);
            assert!(counted().iter().all(|count| *count >= 20), "{:?}", counted());
            // The network may have lost some.
            let (counted, injected) = (counted(), injected());
            assert!(counted[0] <= injected[0] && counted[1] <= injected[1]);
        }
        near_handle.abort();
        far_handle.abort();
    }
}
