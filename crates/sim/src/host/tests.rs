use bytes::Bytes;

use super::*;
use crate::simulation::AgentId;
use crate::tcp::{BLOCKS, Block};

fn host(values: &[(&str, &str)]) -> Host {
    let mut profile = HostProfile::default();
    values.iter().for_each(|(key, value)| profile.set(key, value).unwrap());
    assert_eq!(profile.check(), Ok(()));
    Host::new(profile, 1)
}

fn filler(number: u64) -> Packet {
    let content = Content::Filler { bytes: 1_500, number };
    Packet { from: AgentId(0), to: AgentId(1), content }
}

fn ack(from: u32, connection: u32, next: u64) -> Packet {
    let kind = Kind::Ack { next, window: 1, blocks: [Block::default(); BLOCKS] };
    let content = Content::Tcp(Segment::new(connection, kind));
    Packet { from: AgentId(from), to: AgentId(0), content }
}

fn acknowledged(packet: Option<Packet>) -> Option<u64> {
    match packet?.content {
        Content::Tcp(Segment { kind: Kind::Ack { next, .. }, .. }) => Some(next),
        _ => None,
    }
}

const US: fn(u64) -> Time = Time::from_micros;

#[test]
fn packets_wait_for_the_interrupt_together() {
    let mut host = host(&[("coalesce", "50us")]);
    host.arrive(US(100), filler(0)).unwrap();
    host.arrive(US(130), filler(1)).unwrap();
    assert_eq!(host.next_event(), Some(US(150)));
    assert!(host.take_arrived(US(149)).is_empty());
    assert_eq!(host.take_arrived(US(150)).len(), 2);
    // The next one begins a new wait.
    host.arrive(US(151), filler(2)).unwrap();
    assert_eq!(host.next_event(), Some(US(201)));
}

#[test]
fn a_full_interface_loses_what_comes() {
    let mut host = host(&[("coalesce", "1ms"), ("ring", "2")]);
    assert!(host.arrive(US(0), filler(0)).is_ok() && host.arrive(US(0), filler(1)).is_ok());
    assert!(host.arrive(US(1), filler(2)).is_err());
    assert_eq!(host.counts.overruns, 1);
    assert_eq!((host.packets().count(), host.take_arrived(US(1_000)).len()), (2, 2));
    assert!(host.arrive(US(1_001), filler(3)).is_ok());
}

#[test]
fn stalls_have_their_frequency_and_length() {
    let mut host = host(&[("stall_every", "100ms"), ("stall", "1ms..3ms")]);
    let mut stalled = 0u64;
    for us in (0..1_000_000_000u64).step_by(100) {
        stalled += 100 * u64::from(host.stalled(US(us)).is_some());
    }
    let stalls = host.counts.stalls;
    assert!((9_300..10_100).contains(&stalls), "{stalls}");
    let mean = stalled / stalls;
    assert!((1_950..2_050).contains(&mean), "{mean} µs");
}

#[test]
fn a_timer_that_is_asked_for_again_is_as_late_as_before() {
    let mut host = host(&[("timer", "100us..500us")]);
    let mut doze = Doze::default();
    host.sleep(US(0), Some(US(1_000)), &mut doze);
    let fire = doze.next().unwrap();
    assert!((US(1_100)..US(1_500)).contains(&fire), "{fire:?}");
    for now in 1..100 {
        host.sleep(US(now), Some(US(1_000)), &mut doze);
        assert_eq!(doze.next(), Some(fire));
    }
    // Another time is another sleep; what is due at once takes none.
    host.sleep(US(100), Some(US(200)), &mut doze);
    assert!(doze.next().unwrap() < US(701));
    host.sleep(US(100), Some(US(100)), &mut doze);
    assert_eq!(doze.next(), Some(US(100).plus_nanos(1)));
    host.sleep(US(100), None, &mut doze);
    assert_eq!(doze.next(), None);
}

#[test]
fn a_process_that_is_about_to_wake_is_not_woken_later() {
    let mut host = host(&[("wake", "100us")]);
    let mut doze = Doze::default();
    host.wake(US(10), &mut doze);
    host.wake(US(90), &mut doze);
    assert_eq!(doze.next(), Some(US(110)));
    doze.awake(US(110));
    assert_eq!(doze.next(), None);
}

#[test]
fn a_later_ack_takes_the_place_of_the_one_that_waits() {
    let mut host = host(&[("ack_hold", "1ms")]);
    assert!(host.hold(US(0), ack(1, 0, 5)).is_none());
    assert!(host.hold(US(400), ack(1, 0, 7)).is_none());
    // Another connection, and another agent.
    assert!(host.hold(US(500), ack(1, 1, 3)).is_none());
    assert!(host.hold(US(600), ack(3, 0, 9)).is_none());
    assert_eq!((host.next_event(), host.counts.thinned), (Some(US(1_000)), 1));
    assert!(host.release(US(999)).is_none());
    assert_eq!(acknowledged(host.release(US(1_000))), Some(7));
    assert_eq!(acknowledged(host.release(US(2_000))), Some(3));
    assert_eq!(acknowledged(host.release(US(2_000))), Some(9));
    assert!(host.release(US(9_000)).is_none());
}

#[test]
fn nothing_overtakes_the_ack_of_its_sender() {
    let mut host = host(&[("ack_hold", "1ms")]);
    assert!(host.hold(US(0), ack(0, 0, 5)).is_none());
    let data = filler(0);
    assert_eq!(acknowledged(host.release_of(&data)), Some(5));
    assert!(host.release_of(&data).is_none());
    assert!(host.hold(US(1), data).is_some());
}

/// The light ACK of `farhaul_wire`, and its full one.
#[test]
fn of_udt_light_acks_are_thinned() {
    let light = |payload: &'static [u8]| {
        let mut header = [0; 16];
        header[..2].copy_from_slice(&UDT_ACK);
        header[15] = 9;
        let content = Content::Udt { header, payload: Bytes::from_static(payload) };
        Packet { from: AgentId(1), to: AgentId(0), content }
    };
    assert_eq!(cumulative_ack(&light(&[0; 4])), Some(9));
    assert_eq!(cumulative_ack(&light(&[0; 24])), None);
    let ack = farhaul_wire::Ack { next: farhaul_wire::Seq::new(7), detail: None };
    let mut bytes = [0; 20];
    let control = farhaul_wire::Control::Ack { ack_seq: farhaul_wire::AckSeq::LIGHT, ack };
    assert_eq!(control.write(0, 9, &mut bytes), Some(20));
    let content = Content::Udt {
        header: bytes[..16].try_into().unwrap(),
        payload: Bytes::copy_from_slice(&bytes[16..]),
    };
    assert_eq!(cumulative_ack(&Packet { content, ..light(&[]) }), Some(9));
}
