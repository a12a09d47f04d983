//! What a host says of a port that nothing listens at: the end of a set-up, a question to a peer that
//! stands.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod pair;

use core::time::Duration;

use farhaul_engine::{CloseReason, Config, ConnectError, ConnectionId};
use pair::{A, B, Flow, Net, data, path, stream};

/// Host `A` sends to a host that is not there, and hears of it: `news` makes what is quoted of what was
/// sent. When and why the set-up failed, if it did.
fn refused(
    config: Config,
    news: impl Fn(&[u8]) -> Vec<u8>,
) -> Option<(Duration, Option<ConnectError>)> {
    let mut net = Net::new(&path(), 1);
    net.hosts[B].deaf = true;
    net.hosts[A].log = Some(Vec::new());
    let peer = net.hosts[B].addr;
    let start = net.now;
    let id = net.hosts[A].endpoint.connect(net.now, peer, config).unwrap();
    let mut failure = None;
    let failed = net.run_until(Duration::from_secs(40), |net| {
        for sent in net.hosts[A].log.replace(Vec::new()).unwrap() {
            net.hosts[A].endpoint.on_unreachable(net.now, peer, &news(&sent));
        }
        failure = net.hosts[A].endpoint.take_failure(id);
        failure.is_some()
    });
    failed.then_some((net.now - start, failure))
}

#[test]
fn a_closed_port_ends_the_set_up_soon() {
    let (took, failure) = refused(stream(), <[u8]>::to_vec).unwrap();
    assert_eq!(failure, Some(ConnectError::Closed));
    assert!((450..=600).contains(&took.as_millis()), "{took:?}");
}

#[test]
fn what_does_not_quote_the_request_changes_nothing() {
    let forge = |how: u32| {
        move |sent: &[u8]| {
            let mut quoted = sent[..[0, 40, 44][how as usize]].to_vec();
            quoted.last_mut().into_iter().for_each(|byte| *byte ^= 1);
            quoted
        }
    };
    for how in 0..3 {
        let (took, failure) = refused(stream(), forge(how)).unwrap();
        assert_eq!((took, failure), (Duration::from_secs(3), Some(ConnectError::TimedOut)));
    }
    // A rendezvous waits for the other side to begin.
    let rendezvous = Config { rendezvous: true, ..stream() };
    let (took, failure) = refused(rendezvous, <[u8]>::to_vec).unwrap();
    assert_eq!((took, failure), (Duration::from_secs(30), Some(ConnectError::TimedOut)));
}

/// A server that starts four tenths of a second after its client.
#[test]
fn a_listener_that_is_late_is_found() {
    let mut net = Net::new(&path(), 1);
    net.hosts[A].log = Some(Vec::new());
    let peer = net.hosts[B].addr;
    let id = net.hosts[A].endpoint.connect(net.now, peer, stream()).unwrap();
    net.hosts[B].deaf = true;
    net.run_until(Duration::from_millis(400), |net| {
        for sent in net.hosts[A].log.replace(Vec::new()).unwrap() {
            net.hosts[A].endpoint.on_unreachable(net.now, peer, &sent);
        }
        false
    });
    net.hosts[B].deaf = false;
    net.hosts[B].endpoint.listen(stream(), 16).unwrap();
    let found =
        net.run_until(Duration::from_secs(2), |net| net.hosts[A].endpoint.connection(id).is_some());
    assert!(found);
}

fn reason(net: &mut Net, id: ConnectionId) -> Option<CloseReason> {
    net.hosts[A].endpoint.connection(id).and_then(|c| c.close_reason())
}

/// The peer's process is killed: each packet to it is answered so.
#[test]
fn a_peer_that_is_gone_is_noticed_within_seconds() {
    let mut net = Net::new(&path(), 2);
    let ids = net.connect(stream(), stream());
    let mut flow = Flow::new(A, ids, data(1, 1 << 20));
    assert!(net.run_until(Duration::from_secs(5), |net| flow.pump(net)));
    net.run_for(Duration::from_secs(1));
    net.hosts[B].deaf = true;
    net.hosts[A].log = Some(Vec::new());
    let (peer, killed) = (net.hosts[B].addr, net.now);
    let over = net.run_until(Duration::from_secs(40), |net| {
        for sent in net.hosts[A].log.replace(Vec::new()).unwrap() {
            net.hosts[A].endpoint.on_unreachable(net.now, peer, &sent[..20]);
        }
        reason(net, ids.0).is_some()
    });
    assert!(over);
    // The first packet to it is a keep-alive.
    let took = net.now - killed;
    assert!(took < Config::default().keep_alive + Duration::from_secs(4), "{took:?}");
    assert_eq!(reason(&mut net, ids.0), Some(CloseReason::TimedOut));
}

/// Such news of a peer that is there, forged by one that has seen a packet, only has it asked.
#[test]
fn a_peer_that_answers_stays() {
    let mut net = Net::new(&path(), 3);
    let ids = net.connect(stream(), stream());
    net.hosts[A].log = Some(Vec::new());
    let mut flow = Flow::new(A, ids, data(1, 100_000));
    assert!(net.run_until(Duration::from_secs(5), |net| flow.pump(net)));
    let sent = net.hosts[A].log.take().unwrap().pop().unwrap();
    let peer = net.hosts[B].addr;
    for _ in 0..1_000 {
        net.hosts[A].endpoint.on_unreachable(net.now, peer, &sent);
        net.run_for(Duration::from_millis(20));
    }
    assert_eq!(reason(&mut net, ids.0), None);
    let packets = net.datagrams;
    net.run_for(Duration::from_secs(10));
    assert!(net.datagrams - packets < 40, "it is asked while it is doubted only");
}
