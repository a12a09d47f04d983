//! How many threads clients cost `farhaul serve`: docs/security.md has the arithmetic.

mod common;

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::home::Home;
use common::process::{Process, status, wait};
use common::raw::{Control, Raw, order, read_job, with_two};
use common::server::{EXPORTS, Site, signal};
use farhaul_mover::transfer::link::{Opened, Purpose};
use farhaul_mover::transfer::session::{MAX_LANES, join};
use serde_json::json;

/// Sessions of a client, by the configuration and without it.
const SESSIONS: usize = 16;
/// Threads of a server with one client that takes all it can, from one address.
const MOST_THREADS: u64 = 256;
/// How long the copies wait for a server that does not answer them. On a busy machine they all have connected by then.
const OUTAGE: Duration = Duration::from_secs(30);

/// Runs `act` and returns its result with the most threads that the server had meanwhile.
fn watched<T>(server: &Process, act: impl FnOnce() -> T) -> (T, u64) {
    let (most, over) = (AtomicU64::new(0), AtomicBool::new(false));
    struct Over<'a>(&'a AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let done = thread::scope(|threads| {
        threads.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                most.fetch_max(status(server, "Threads"), Ordering::Relaxed);
                thread::sleep(Duration::from_millis(5));
            }
        });
        let _over = Over(&over);
        act()
    });
    (done, most.into_inner())
}

#[test]
fn copies_with_many_lanes_at_once_have_no_more_threads_than_their_client_may() {
    // Another client, behind the same address.
    let other = Home::new();
    let key = other.run(&["key", "new"]).well();
    let site = Site::new(&format!(
        "{EXPORTS}[client.other]\nkey = \"{}\"\n[limits]\nconnections = {SESSIONS}\n",
        key.trim()
    ));
    let server = site.serve();
    let idle = status(&server, "Threads");
    let big = site.write("here/big", vec![7; 60 << 20]);
    let small = site.write("here/small", vec![8; 1 << 20]);
    let streams = MAX_LANES.to_string();
    let outage = format!("{}s", OUTAGE.as_secs());
    let (copies, most) = watched(&server, || {
        let copies: Vec<_> = (0..SESSIONS)
            .map(|n| {
                let args = ["--streams", &streams, "--rate", "2M", "--outage", &outage];
                let url = site.url(&format!("in/big{n}"));
                site.start_cp(&[&args[..], &[&big, &url]].concat())
            })
            .collect();
        for n in 0..4 {
            // It ends, though the first client has all that it may have; how fast depends on the machine.
            let began = Instant::now();
            let url = site.url(&format!("in/small{n}"));
            other.run(&["cp", "--server-key", &site.key, &small, &url]).well();
            eprintln!("another client's copy took {:.1?}", began.elapsed());
        }
        let active = "farhaul_active_sessions{client=\"alice\",export=\"in\"}";
        site.wait_metric(active, SESSIONS as u64);
        let moved = "farhaul_received_bytes_total{client=\"alice\",export=\"in\"}";
        site.wait_metric(moved, 8 << 20);
        copies
    });
    eprintln!("{idle} threads without a client, at most {most} with {SESSIONS} copies");
    assert!(most < MOST_THREADS, "{most} threads");
    let handshakes = site.metric("farhaul_unfinished_handshakes_total");
    eprintln!("{handshakes} handshakes were not finished");

    copies.iter().for_each(|copy| signal(copy, "-KILL"));
    copies.into_iter().for_each(|copy| drop(copy.finish()));
    // The time of silence, the outage that the copies have asked for, and a moment.
    let began = Instant::now();
    let gone = || status(&server, "Threads") <= idle + 1;
    wait("threads are there", Duration::from_secs(10 + 5) + OUTAGE, gone);
    eprintln!("they were gone {:.1?} after their clients", began.elapsed());
    other.run(&["cp", "--server-key", &site.key, &small, &site.url("in/last")]).well();
}

#[test]
fn whatever_a_client_opens_it_has_no_more_threads() {
    let (site, bob, _) = with_two(EXPORTS);
    let server = site.serve();
    site.write("out/f", "f");
    let small = site.write("here/small", "small");
    let bob = Raw::new(&site, bob);
    let idle = status(&server, "Threads");
    let (held, most) = watched(&server, || {
        let sessions: Vec<_> = (0..SESSIONS)
            .map(|_| {
                let mut order = order("out", read_job("f"));
                order["terms"]["lanes"] = json!(MAX_LANES);
                let (link, opened) = bob.ask(&order);
                let Opened::Yes { session } = opened else { panic!("{opened:?}") };
                (Control::join(link, session), session)
            })
            .collect();
        let mut links = Vec::new();
        for (n, (_, session)) in sessions.iter().enumerate() {
            let lanes = if n < 2 { MAX_LANES + 8 } else { 4 };
            for number in 1..=lanes {
                links.extend(join(bob.link(), *session, Purpose::Lane { number }));
            }
        }
        assert_eq!(links.len(), SESSIONS + 48, "one for each session, and further ones");
        for (control, session) in &sessions {
            let received = control.channel.received();
            for _ in 0..3 {
                links.extend(join(bob.link(), *session, Purpose::Control { received }));
            }
        }
        // Those that do not say which session they are for, and those that do not finish their handshake.
        let silent: Vec<_> = (0..60).filter_map(|_| bob.try_link()).collect();
        let unfinished: Vec<_> = (0..200)
            .map(|_| {
                let mut stream = TcpStream::connect(site.address).expect("a connection");
                let _ = stream.write_all(&[22]);
                stream
            })
            .collect();
        // Alice, from the same address.
        let began = Instant::now();
        site.cp(&[&small, &site.url("in/")]).well();
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        (sessions, links, silent, unfinished)
    });
    eprintln!("{} links were taken; at most {most} threads, {idle} before", held.1.len());
    assert!(most < MOST_THREADS, "{most} threads");
}
