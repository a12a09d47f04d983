//! `farhaul serve` and a client with an attacker between them that injects packets.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use common::copying::make_file;
use common::path::Path;
use common::server::Site;
use farhaul_wan::{Forged, InjectConfig, RelayConfig};

/// Data that is injected on the way to a server has the session tagged, whose forged packets are then counted.
#[test]
fn a_server_asks_for_tags_on_the_data_of_an_attacked_session() {
    let site =
        Site::new("[export.in]\npath = \"DIR/in\"\naccess = \"read-write\"\nclients = \"*\"\n");
    let _server = site.serve();
    let mut config = RelayConfig::new(([127, 0, 0, 1], 0).into(), site.address);
    config.inject = Some(InjectConfig { kinds: vec![Forged::Data], per_second: 20.0 });
    let relay = Path { seed: 5, ..Path::new("100M", 5) }.open(config);
    let big = site.path("here/big");
    make_file(&big, 8 << 20, 3);
    let url = format!("farhaul://{}/in/big", relay.local_addr());
    let from = big.to_str().expect("text");
    site.cp(&["--transport", "udt", "--rate", "20M", from, &url]).well();
    assert_eq!(site.read("in/big"), site.read("here/big"));
    let forged = relay.stats().forged.of(Forged::Data);
    let counted = "farhaul_forged_packets_total{client=\"alice\",export=\"in\"}";
    // Nothing but data is forged, and without tags none of it is told from the peer's. How many are counted depends on
    // how many connections were hit before that.
    site.wait_metric(counted, 1);
    assert!(forged >= 30, "{forged}");
}

/// More than a handshake takes of the client, and less than the order of the test below.
const ORDER_BEGINS: usize = 16 << 10;

/// A TCP proxy that cuts the first connections, so many, within the client's order; how many it has cut.
fn cutting(target: SocketAddr, cuts: u32) -> (SocketAddr, Arc<AtomicU32>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (at, cut) = (listener.local_addr().expect("bound"), Arc::<AtomicU32>::default());
    let counted = Arc::clone(&cut);
    thread::spawn(move || {
        for client in listener.incoming() {
            let Ok(client) = client else { return };
            let Ok(server) = TcpStream::connect(target) else { continue };
            let clone = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
            let (mut from, mut to) = (clone(&server), clone(&client));
            thread::spawn(move || std::io::copy(&mut from, &mut to));
            let counted = Arc::clone(&counted);
            thread::spawn(move || {
                let (mut from, mut to, mut passed) = (client, server, 0);
                let mut buf = [0; 4096];
                while let Ok(count @ 1..) = from.read(&mut buf) {
                    passed += count;
                    let due = passed > ORDER_BEGINS
                        && counted
                            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |cut| {
                                (cut < cuts).then_some(cut + 1)
                            })
                            .is_ok();
                    if due || to.write_all(&buf[..count]).is_err() {
                        break;
                    }
                }
                for stream in [from, to] {
                    let _ = stream.shutdown(Shutdown::Both);
                }
            });
        }
    });
    (at, cut)
}

/// A shutdown can be forged before packets bear tags, and a reset over TCP at any time.
#[test]
fn a_server_whose_connection_was_cut_while_it_was_asked_is_asked_again() {
    let site =
        Site::new("[export.in]\npath = \"DIR/in\"\naccess = \"read-write\"\nclients = \"*\"\n");
    let _server = site.serve();
    let (at, cut) = cutting(site.address, 3);
    let from = site.write("here/file", "content");
    let url = format!("farhaul://{at}/in/file");
    // They make the order long.
    let patterns: Vec<String> = (0..500).map(|n| format!("{n:0>100}")).collect();
    let mut args = vec!["--transport", "tcp"];
    for pattern in &patterns {
        args.extend(["--exclude", pattern]);
    }
    args.extend([&*from, &*url]);
    site.cp(&args).well();
    assert_eq!(site.read("in/file"), b"content");
    assert_eq!(cut.load(Ordering::Relaxed), 3);
}
