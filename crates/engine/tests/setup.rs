//! Connection set-up between client and server.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod lone;
mod pair;

use core::time::Duration;

use farhaul_engine::{Config, ConnectError, ConnectionId, Invitation};
use farhaul_link::LinkConfig;
use farhaul_wire::{Control, Handshake, PeerIp, Request, Seq, SocketType};
use lone::{Lone, client_hello, packet};
use pair::{A, B, Flow, Net, data, message, path, stream};

fn lossy(list: &str) -> LinkConfig {
    LinkConfig { loss: list.parse().unwrap(), ..path() }
}

/// Connects A to a listening B, and returns what became of it.
fn outcome(net: &mut Net, config: Config, limit: Duration) -> Result<ConnectionId, ConnectError> {
    let peer = net.hosts[B].addr;
    let id = net.hosts[A].endpoint.connect(net.now, peer, config).unwrap();
    let mut failure = None;
    net.run_until(limit, |net| {
        let endpoint = &mut net.hosts[A].endpoint;
        failure = endpoint.take_failure(id);
        failure.is_some() || endpoint.connection(id).is_some()
    });
    failure.map_or(Ok(id), Err)
}

/// What B has accepted.
fn accepted(net: &mut Net) -> Vec<ConnectionId> {
    core::iter::from_fn(|| net.hosts[B].endpoint.accept()).collect()
}

fn works(net: &mut Net, ids: (ConnectionId, ConnectionId)) {
    for from in [A, B] {
        let mut flow = Flow::new(from, ids, data(7, 20_000));
        assert!(net.run_until(Duration::from_secs(20), |net| flow.pump(net)), "{}", flow.read);
    }
}

#[test]
fn takes_two_round_trips() {
    let mut net = Net::new(&path(), 1);
    let begun = net.now;
    let ids = net.connect(stream(), stream());
    let took = net.now - begun;
    assert!((Duration::from_millis(40)..Duration::from_millis(41)).contains(&took), "{took:?}");
    assert_eq!(net.datagrams, 4);
    let rtt = net.stats(A, ids.0).instant.rtt;
    assert!((Duration::from_millis(20)..Duration::from_millis(21)).contains(&rtt), "{rtt:?}");
    works(&mut net, ids);
}

#[test]
fn an_invitation_takes_one() {
    let invitation = |key| Some(Invitation::new([key; 16]));
    let invited = |said: u8| {
        let mut net = Net::new(&path(), 1);
        let begun = net.now;
        let listener = Config { invitation: invitation(77), ..stream() };
        let ids = net.connect(Config { invitation: invitation(said), ..stream() }, listener);
        let (took, datagrams) = (net.now - begun, net.datagrams);
        works(&mut net, ids);
        (took, datagrams)
    };
    let (took, datagrams) = invited(77);
    assert!((Duration::from_millis(20)..Duration::from_millis(21)).contains(&took), "{took:?}");
    assert_eq!(datagrams, 2);
    // Who says another asks for a cookie after some silence.
    let (took, _) = invited(78);
    assert!((Duration::from_secs(1)..Duration::from_millis(1100)).contains(&took), "{took:?}");
}

/// Nothing is taken for an invitation where there is none.
#[test]
fn without_an_invitation_only_cookies_count() {
    let mut net = Net::new(&path(), 1);
    let begun = net.now;
    let invitation = Some(Invitation::new([1; 16]));
    let ids = net.connect(Config { invitation, ..stream() }, stream());
    assert!(net.now - begun > Duration::from_secs(1));
    works(&mut net, ids);
}

/// Whichever of the first packets are lost, one connection comes about, and it works.
#[test]
fn any_packet_of_it_may_be_lost() {
    let lists = ["list:1", "list:2", "list:1-2", "list:1-3", "list:2-4", "list:1,3,5", "list:1-7"];
    for (seed, ab) in lists.into_iter().chain(["none"]).enumerate() {
        for ba in lists.into_iter().chain(["none"]) {
            let mut net = Net::asymmetric(lossy(ab), lossy(ba), seed as u64);
            let config = Config { connect_timeout: Some(Duration::from_secs(30)), ..stream() };
            let ids = net.connect(config, stream());
            works(&mut net, ids);
            assert_eq!(net.hosts[B].endpoint.len(), 1, "{ab} {ba}");
        }
    }
}

#[test]
fn any_packet_of_it_may_come_twice_late_or_out_of_order() {
    let duplicate = LinkConfig { duplicate: "100%".parse().unwrap(), ..path() };
    let reorder = LinkConfig { reorder: Some("50%:300ms".parse().unwrap()), ..duplicate.clone() };
    let jitter = LinkConfig { jitter: "900ms:reorder".parse().unwrap(), ..duplicate.clone() };
    for (seed, link) in [duplicate, reorder, jitter].into_iter().enumerate() {
        for seed in [seed as u64, 10 + seed as u64] {
            let mut net = Net::new(&link, seed);
            let ids = net.connect(stream(), stream());
            works(&mut net, ids);
            net.run_for(Duration::from_secs(3));
            assert_eq!(accepted(&mut net), []);
            assert_eq!((net.hosts[A].endpoint.len(), net.hosts[B].endpoint.len()), (1, 1));
        }
    }
}

/// A cookie serves beyond the end of the period it was made in.
#[test]
fn cookies_straddle_their_periods() {
    for after in [59_900, 59_950, 59_965, 59_985, 59_999, 119_970] {
        let mut net = Net::new(&path(), after);
        net.run_for(Duration::from_millis(after));
        let begun = net.now;
        net.connect(stream(), stream());
        assert!(net.now - begun < Duration::from_millis(41), "{after}");
    }
}

/// A cookie that has grown too old is refused in silence; the client asks for another.
#[test]
fn a_cookie_too_old_is_replaced() {
    // The cookie arrives, and then nothing gets through for longer than it lasts.
    let link = LinkConfig { blackouts: vec!["10ms+130s".parse().unwrap()], ..path() };
    let mut net = Net::asymmetric(link, path(), 2);
    net.hosts[B].endpoint.listen(stream(), 4).unwrap();
    let config = Config { connect_timeout: Some(Duration::from_secs(200)), ..stream() };
    let a = outcome(&mut net, config, Duration::from_secs(200)).unwrap();
    assert!((130.0..132.5).contains(&net.now.as_secs_f64()), "{:?}", net.now);
    let b = accepted(&mut net)[0];
    works(&mut net, (a, b));
}

/// The set-up takes two round trips; over satellites and full buffers that is more than the time in which a first answer
/// is expected.
#[test]
fn over_round_trips_of_seconds() {
    for (seed, rtt_ms) in [(1, 1_600), (2, 2_000), (3, 2_900)] {
        let link = LinkConfig { delay: Duration::from_millis(rtt_ms / 2), ..path() };
        let mut net = Net::new(&link, seed);
        let ids = net.connect(stream(), stream());
        works(&mut net, ids);
    }
    // The second request is lost.
    let link = LinkConfig { delay: Duration::from_millis(1_000), ..lossy("list:9") };
    let mut net = Net::new(&link, 4);
    let ids = net.connect(stream(), stream());
    works(&mut net, ids);
}

#[test]
fn nobody_answers() {
    let mut net = Net::new(&path(), 1);
    let begun = net.now;
    let result = outcome(&mut net, stream(), Duration::from_secs(60));
    assert_eq!(result, Err(ConnectError::TimedOut));
    assert_eq!(net.now - begun, Duration::from_secs(3));
    assert_eq!(net.datagrams, 12, "a request each 250 ms");
    assert_eq!(net.hosts[B].endpoint.counters().unknown_id, 12);
    assert!(net.hosts[A].endpoint.is_empty());
    let config = Config { connect_timeout: Some(Duration::from_secs(10)), ..stream() };
    let begun = net.now;
    assert_eq!(outcome(&mut net, config, Duration::from_secs(60)), Err(ConnectError::TimedOut));
    assert_eq!(net.now - begun, Duration::from_secs(10));
}

#[test]
fn a_stream_and_messages_do_not_connect() {
    let mut net = Net::new(&path(), 1);
    net.hosts[B].endpoint.listen(message(), 4).unwrap();
    let result = outcome(&mut net, stream(), Duration::from_secs(60));
    assert_eq!(result, Err(ConnectError::Mode));
    assert!(net.now.as_secs_f64() < 0.05, "no waiting: {:?}", net.now);
    assert_eq!(net.hosts[B].endpoint.counters().refused, 1);
    assert!(net.hosts[B].endpoint.is_empty());
}

#[test]
fn a_full_backlog_is_silent_until_some_are_accepted() {
    let mut net = Net::new(&path(), 1);
    net.hosts[B].endpoint.listen(stream(), 2).unwrap();
    let second = Duration::from_secs(1);
    let first = outcome(&mut net, stream(), second).unwrap();
    outcome(&mut net, stream(), second).unwrap();
    let hasty = Config { connect_timeout: Some(second / 2), ..stream() };
    assert_eq!(outcome(&mut net, hasty, second), Err(ConnectError::TimedOut));
    assert_eq!(net.hosts[B].endpoint.counters().refused, 2);
    // One that is accepted makes room for a client that has asked in vain.
    let peer = net.hosts[B].addr;
    let late = net.hosts[A].endpoint.connect(net.now, peer, stream()).unwrap();
    net.run_for(Duration::from_millis(600));
    assert!(net.hosts[A].endpoint.connection(late).is_none());
    let oldest = net.hosts[B].endpoint.accept().unwrap();
    let found = |net: &mut Net| net.hosts[A].endpoint.connection(late).is_some();
    assert!(net.run_until(second / 2, found));
    assert_eq!(net.hosts[B].endpoint.acceptable(), 2);
    works(&mut net, (first, oldest));
}

/// Listening anew, with other options, leaves those that wait where they are.
#[test]
fn listening_again_keeps_who_waits() {
    let mut net = Net::new(&path(), 1);
    net.hosts[B].endpoint.listen(stream(), 2).unwrap();
    let a = outcome(&mut net, stream(), Duration::from_secs(1)).unwrap();
    net.hosts[B].endpoint.listen(message(), 2).unwrap();
    let b = net.hosts[B].endpoint.accept().unwrap();
    works(&mut net, (a, b));
}

/// The answers of a peer that is not ours, one by one.
#[test]
fn refusals_by_their_reasons() {
    let refusal = |reply: Handshake| {
        let mut lone = Lone::new(3);
        let now = lone.now;
        let id = lone.endpoint.connect(now, lone.peer, stream()).unwrap();
        let sent = lone.pull();
        let Control::Handshake(hello) = lone::controls(&sent)[0] else { panic!("{sent:?}") };
        let reply = Handshake { isn: hello.isn, ..reply };
        lone.push(&packet(id.value(), &Control::Handshake(reply)));
        lone.endpoint.take_failure(id)
    };
    let rejected = Handshake { request: Request::Rejected, ..client_hello() };
    assert_eq!(refusal(rejected), Some(ConnectError::Refused));
    let version = Handshake { version: 5, ..rejected };
    assert_eq!(refusal(version), Some(ConnectError::Version(5)));
    let mode = Handshake { socket_type: SocketType::Message, ..rejected };
    assert_eq!(refusal(mode), Some(ConnectError::Mode));
    let other = Handshake { request: Request::Other(1_001), ..rejected };
    assert_eq!(refusal(other), Some(ConnectError::Refused));
    let negative = Handshake { request: Request::Other(-7), ..rejected };
    assert_eq!(refusal(negative), None);
}

/// An answer with another sequence number belongs to somebody else's request.
#[test]
fn an_answer_to_another_request() {
    let mut lone = Lone::new(3);
    let id = lone.endpoint.connect(lone.now, lone.peer, stream()).unwrap();
    let sent = lone.pull();
    let Control::Handshake(hello) = lone::controls(&sent)[0] else { panic!("{sent:?}") };
    let reply = Handshake { isn: hello.isn.next(), request: Request::Conclusion, ..client_hello() };
    let stranger = "10.0.0.9:1000".parse().unwrap();
    lone.push_from(stranger, &packet(id.value(), &Control::Handshake(reply)));
    assert_eq!(lone.endpoint.take_failure(id), None, "not from the peer");
    assert_eq!(lone.endpoint.counters().wrong_address, 1);
    lone.push(&packet(id.value(), &Control::Handshake(reply)));
    assert_eq!(lone.endpoint.take_failure(id), Some(ConnectError::Security));
}

/// A stock server that is asked again answers from the connection: version and type are 0.
#[test]
fn a_late_answer_of_version_0() {
    let mut lone = Lone::new(3);
    let id = lone.endpoint.connect(lone.now, lone.peer, stream()).unwrap();
    let sent = lone.pull();
    let Control::Handshake(hello) = lone::controls(&sent)[0] else { panic!("{sent:?}") };
    let answer = Handshake {
        version: 0,
        socket_type: SocketType::Other(0),
        isn: hello.isn,
        mss: 1_400,
        flight_flag: 25_600,
        request: Request::Conclusion,
        socket_id: 77,
        cookie: 0,
        peer_ip: PeerIp::NONE,
    };
    lone.push(&packet(id.value(), &Control::Handshake(answer)));
    assert_eq!(lone.endpoint.connection(id).unwrap().payload_size(), 1_356);
}

/// The server takes nothing for granted that a client says.
#[test]
fn a_client_that_talks_nonsense_is_refused() {
    let conclude = |change: fn(&mut Handshake)| {
        let mut lone = Lone::new(3);
        lone.endpoint.listen(stream(), 4).unwrap();
        let mut hello = client_hello();
        change(&mut hello);
        let cookie = lone.ask(&hello).unwrap().cookie;
        let answer =
            lone.ask(&Handshake { request: Request::Conclusion, cookie, ..hello }).unwrap();
        (answer, lone.endpoint.counters().refused, lone.endpoint.len())
    };
    let (answer, refused, connections) = conclude(|_| {});
    assert_eq!((answer.request, refused, connections), (Request::Conclusion, 0, 1));
    assert_eq!((answer.isn, answer.mss), (lone::ISN, 1_500));
    let nonsense: [fn(&mut Handshake); 7] = [
        |h| h.mss = 75,
        |h| h.mss = 0,
        |h| h.flight_flag = 0,
        |h| h.socket_id = 0,
        |h| h.version = 3,
        |h| h.socket_type = SocketType::Other(9),
        |h| h.socket_type = SocketType::Message,
    ];
    for change in nonsense {
        let (answer, refused, connections) = conclude(change);
        assert_eq!((answer.request, refused, connections), (Request::Rejected, 1, 0));
    }
    let (answer, ..) = conclude(|h| {
        h.mss = u32::MAX;
        h.flight_flag = u32::MAX;
    });
    assert_eq!((answer.request, answer.mss), (Request::Conclusion, 1_500));
}

/// The same request gets the same answer for as long as its connection lives, whether or not
/// anybody still listens; old copies of it start nothing.
#[test]
fn repeated_requests() {
    let mut lone = Lone::new(1);
    lone.endpoint.listen(stream(), 8).unwrap();
    let hello = client_hello();
    let cookie = lone.ask(&hello).unwrap().cookie;
    let conclusion = Handshake { request: Request::Conclusion, cookie, ..hello };
    let answer = lone.ask(&conclusion).unwrap();
    let id = lone.endpoint.accept().unwrap();
    for _ in 0..3 {
        assert_eq!(lone.ask(&conclusion), Some(answer));
    }
    lone.endpoint.stop_listening(lone.now);
    assert_eq!(lone.ask(&conclusion), Some(answer));
    assert_eq!(
        lone.ask(&Handshake { isn: Seq::new(5), ..conclusion }),
        None,
        "its own cookie only"
    );
    assert_eq!((lone.endpoint.len(), lone.endpoint.acceptable()), (1, 0));

    lone.endpoint.listen(stream(), 8).unwrap();
    lone.push_control(id, &Control::Shutdown { code: 0 });
    lone.pull();
    assert_eq!(lone.ask(&conclusion), None, "over, and the application has not looked");
    lone.endpoint.release(lone.now, id, false);
    lone.pull();
    assert_eq!(lone.endpoint.len(), 0);
    assert_eq!(lone.ask(&conclusion), None, "over, and gone");
    assert_eq!((lone.endpoint.len(), lone.endpoint.acceptable()), (0, 0));
    // Another request from the same client is another matter.
    assert!(lone.ask(&Handshake { isn: Seq::new(5), ..hello }).is_some());
}

/// What the server sends at once may arrive before its answer.
#[test]
fn data_before_the_answer() {
    let link = LinkConfig { jitter: "60ms:reorder".parse().unwrap(), ..path() };
    for seed in 0..8 {
        let mut net = Net::asymmetric(path(), link.clone(), seed);
        net.hosts[B].endpoint.listen(stream(), 4).unwrap();
        let peer = net.hosts[B].addr;
        let a = net.hosts[A].endpoint.connect(net.now, peer, stream()).unwrap();
        assert!(
            net.run_until(Duration::from_secs(1), |net| net.hosts[B].endpoint.acceptable() == 1)
        );
        let b = accepted(&mut net)[0];
        let mut flow = Flow::new(B, (a, b), data(4, 50_000));
        let done = net.run_until(Duration::from_secs(5), |net| {
            net.hosts[A].endpoint.connection(a).is_some() && flow.pump(net)
        });
        assert!(done, "{}", flow.read);
    }
}

/// Connections of one port, from one address and port, do not get in each other's way.
#[test]
fn many_connections_of_one_port() {
    let link = LinkConfig { loss: "1%".parse().unwrap(), ..path() };
    let mut net = Net::new(&link, 2);
    net.hosts[B].endpoint.listen(stream(), 100).unwrap();
    let peer = net.hosts[B].addr;
    let config = Config { connect_timeout: Some(Duration::from_secs(20)), ..stream() };
    let clients: Vec<_> = (0..50)
        .map(|_| net.hosts[A].endpoint.connect(net.now, peer, config.clone()).unwrap())
        .collect();
    assert!(net.run_until(Duration::from_secs(20), |net| {
        net.hosts[B].endpoint.acceptable() == 50
            && clients.iter().all(|id| net.hosts[A].endpoint.connection(*id).is_some())
    }));
    // Each client says who it is; then each has its answer from the right one.
    for id in &clients {
        let name = bytes::Bytes::from(id.value().to_be_bytes().to_vec());
        net.update(A, *id, |c| c.send_bytes(name)).unwrap();
    }
    let servers = accepted(&mut net);
    let mut pairs = Vec::new();
    net.run_for(Duration::from_secs(5));
    for id in servers {
        let name = net.read(B, id);
        let client = u32::from_be_bytes(name.try_into().unwrap());
        let a = clients.iter().find(|c| c.value() == client).unwrap();
        pairs.push((*a, id));
    }
    let mut flows: Vec<_> = pairs
        .iter()
        .enumerate()
        .map(|(i, ids)| Flow::new(i % 2, *ids, data(i as u64, 30_000)))
        .collect();
    let done = net.run_until(Duration::from_secs(60), |net| {
        flows.iter_mut().fold(true, |done, flow| flow.pump(net) & done)
    });
    assert!(done);
    for (a, _) in pairs {
        net.hosts[A].endpoint.release(net.now, a, false);
    }
    net.run_for(Duration::from_secs(10));
    assert_eq!(net.hosts[A].endpoint.len(), 0);
}

/// A client that begins anew on the same port connects, whatever is left of its former life; and
/// that ends.
#[test]
fn a_client_restarts_on_its_port() {
    let mut net = Net::new(&path(), 1);
    let old = net.connect(stream(), stream());
    let mut flow = Flow::new(B, old, data(1, 1 << 20));
    for _ in 0..20 {
        flow.pump(&mut net);
        net.step(farhaul_base::Time::MAX);
    }
    net.restart(A, 99);
    let new = net.connect(stream(), stream());
    works(&mut net, new);
    assert!(net.hosts[A].endpoint.counters().unknown_id > 0);
    net.run_for(Duration::from_secs(60));
    let reason = net.update(B, old.1, |c| c.close_reason());
    assert_eq!(reason, Some(farhaul_engine::CloseReason::TimedOut));
    works(&mut net, new);
}

#[test]
fn a_server_restarts_on_its_port() {
    let mut net = Net::new(&path(), 1);
    let old = net.connect(stream(), stream());
    net.restart(B, 99);
    let new = net.connect(stream(), stream());
    works(&mut net, new);
    net.run_for(Duration::from_secs(60));
    let reason = net.update(A, old.0, |c| c.close_reason());
    assert_eq!(reason, Some(farhaul_engine::CloseReason::TimedOut));
    works(&mut net, new);
}

/// Given up while it is being set up, a connection leaves nothing behind.
#[test]
fn giving_up() {
    let mut net = Net::new(&path(), 1);
    let peer = net.hosts[B].addr;
    for rendezvous in [false, true] {
        let config = Config { rendezvous, ..stream() };
        let id = net.hosts[A].endpoint.connect(net.now, peer, config).unwrap();
        net.run_for(Duration::from_millis(300));
        net.hosts[A].endpoint.release(net.now, id, false);
        assert!(net.hosts[A].endpoint.is_empty());
        let sent = net.datagrams;
        net.run_for(Duration::from_secs(40));
        assert_eq!(net.datagrams, sent);
    }
}

/// A client repeats its request after a second. The late answer to the first is no round trip of the second.
#[test]
fn an_answer_after_the_set_up_has_begun_anew_is_no_round_trip() {
    for delay_ms in [495, 500, 550, 600, 700] {
        let delay = Duration::from_millis(delay_ms);
        let mut net = Net::new(&LinkConfig { delay, ..path() }, 1);
        let (a, _) = net.connect(stream(), stream());
        let now = net.now;
        let least = net.update(A, a, |c| c.stats(now, false).instant.rtt_min);
        assert!(least.is_none_or(|least| least >= 2 * delay), "{delay_ms} ms: {least:?}");
    }
}
