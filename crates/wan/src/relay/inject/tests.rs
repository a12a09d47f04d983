#![allow(clippy::unwrap_used, reason = "a test may panic")]

use super::*;

const CLIENT: u32 = 7;
const SERVER: u32 = 9;
const ISN: Seq = Seq::new(1000);

fn flow() -> FlowKey {
    FlowKey::default()
}

fn control(dest: u32, body: Control<'_>) -> Vec<u8> {
    let mut out = vec![0; body.datagram_len()];
    body.write(5, dest, &mut out).unwrap();
    out
}

fn data(dest: u32, place: u32) -> Vec<u8> {
    let header = DataHeader {
        seq: ISN.plus(place),
        boundary: Boundary::SOLO,
        in_order: true,
        message: MsgNo::new(1),
        timestamp: 5,
        dest,
    };
    [&header.to_bytes()[..], b"content"].concat()
}

fn conclusion() -> Vec<u8> {
    control(
        CLIENT,
        Control::Handshake(Handshake {
            version: Handshake::VERSION,
            socket_type: SocketType::Stream,
            isn: ISN,
            mss: 1500,
            flight_flag: 8192,
            request: Request::Conclusion,
            socket_id: SERVER,
            cookie: 0,
            peer_ip: PeerIp::NONE,
        }),
    )
}

fn injector(kinds: &[Forged]) -> Injector {
    Injector::new(&InjectConfig { kinds: kinds.to_vec(), per_second: 1000.0 }, 1)
}

/// One that has seen a connection on which the client has sent a thousand packets, of which the server
/// has acknowledged 900.
fn midway(kinds: &[Forged]) -> Injector {
    let mut injector = injector(kinds);
    injector.observe(Time::ZERO, flow(), false, &conclusion());
    for place in 0..1000 {
        injector.observe(Time::ZERO, flow(), true, &data(SERVER, place));
    }
    let ack = Ack { next: ISN.plus(900), detail: None };
    let ack = Control::Ack { ack_seq: AckSeq::new(3), ack };
    injector.observe(Time::ZERO, flow(), false, &control(CLIENT, ack));
    injector
}

#[test]
fn what_is_forged_names_a_connection_that_lives() {
    for kind in Forged::ALL.into_iter().filter(|kind| *kind != Forged::Alert) {
        let mut injector = midway(&[kind]);
        let forged = injector.poll(Time::from_millis(1000));
        assert_eq!(injector.stats().of(kind), forged.len() as u64);
        assert_eq!(injector.stats().total(), forged.len() as u64);
        assert!(forged.len() > 300, "{kind}: {}", forged.len());
        for injected in forged {
            let to = if injected.forward { SERVER } else { CLIENT };
            match Packet::parse(&injected.payload).unwrap() {
                Packet::Data(header, _) => {
                    assert_eq!((kind, header.dest), (Forged::Data, to));
                    let newest = if injected.forward { 999 } else { -1 };
                    assert!((newest + 1..=newest + 64).contains(&header.seq.since(ISN)));
                }
                Packet::Control(control) => {
                    assert_eq!(control.dest, to, "{kind}");
                    match (kind, control.body) {
                        // Of what the client has sent, and what the server has not: its first place.
                        (Forged::Ack, Control::Ack { ack, .. }) => {
                            let place = ack.next.since(ISN);
                            let newest = if injected.forward { 0 } else { 1000 };
                            assert!((newest - 63..=newest).contains(&place), "{place}");
                        }
                        (Forged::Window, Control::Ack { ack, .. }) => {
                            assert!(ack.detail.unwrap().available < 4);
                        }
                        (Forged::Shutdown, Control::Shutdown { .. })
                        | (Forged::Nak, Control::Nak(_))
                        | (Forged::Drop, Control::DropRequest { .. })
                        | (Forged::Handshake, Control::Handshake(_))
                        | (Forged::Replay, _) => {}
                        other => panic!("{other:?}"),
                    }
                }
            }
        }
    }
}

#[test]
fn nothing_is_forged_where_nothing_is_known_or_lives() {
    let mut silent = injector(&Forged::ALL);
    assert_eq!(silent.poll(Time::from_secs(5)), []);
    let mut over = midway(&[Forged::Shutdown]);
    assert_ne!(over.poll(Time::from_secs(1)), []);
    over.poll(Time::from_secs(2));
    assert_eq!(over.poll(Time::from_secs(20)), []);
    let mut strange = injector(&Forged::ALL);
    for bytes in [&b""[..], b"GET / HTTP/1.1", &[0xff; 100]] {
        strange.observe(Time::ZERO, flow(), true, bytes);
    }
    assert_eq!(strange.poll(Time::from_secs(1)), []);
}

#[test]
fn an_alert_is_the_first_data_of_a_new_connection() {
    let mut injector = injector(&[Forged::Alert]);
    assert_eq!(injector.poll(Time::from_secs(1)), []);
    injector.observe(Time::from_secs(1), flow(), false, &conclusion());
    let forged = injector.poll(Time::from_secs(1));
    let [injected] = &forged[..] else { panic!("{forged:?}") };
    assert!(!injected.forward);
    let Ok(Packet::Data(header, payload)) = Packet::parse(&injected.payload) else {
        panic!("{injected:?}")
    };
    assert_eq!((header.dest, header.seq, payload), (CLIENT, ISN, &ALERT[..]));
}

#[test]
fn the_same_seed_forges_the_same() {
    let run = || midway(&Forged::ALL).poll(Time::from_secs(1));
    assert_eq!(run(), run());
}

#[test]
fn what_is_watched_is_bounded() {
    let mut injector = injector(&Forged::ALL);
    for id in 1..3000 {
        injector.observe(Time::ZERO, flow(), true, &data(id, 0));
    }
    assert_eq!(injector.ends.len(), MAX_ENDS);
    // Those that have been silent make room.
    injector.observe(Time::from_secs(60), flow(), true, &data(5000, 0));
    assert_eq!(injector.ends.len(), 1);
}

#[test]
fn names_of_kinds() {
    for kind in Forged::ALL {
        assert_eq!(kind.name().parse(), Ok(kind));
    }
    assert!("acks".parse::<Forged>().is_err());
}
