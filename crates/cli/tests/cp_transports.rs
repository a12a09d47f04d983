//! What `farhaul cp` does where UDP does not pass, or is held back.

mod common;

use std::fs;
use std::time::Duration;

use common::copying::{Scene, make_file, wait_until};
use common::path::Path;
use common::process::{Ended, Process};
use farhaul_link::QueueConfig;
use farhaul_wan::{Relay, RelayConfig, RelayHandle};

/// A scene, or the test is skipped.
macro_rules! scene_or_skip {
    () => {
        match Scene::new() {
            Ok(scene) => scene,
            Err(why) => common::skip!("{why}"),
        }
    };
}

const SIZE: u64 = 30 << 20;
const NOTHING: Path = Path::new("100M", 5).loss("100%");

fn start(scene: &Scene, more: &[&str]) -> Process {
    start_with(scene, SIZE, more)
}

fn start_with(scene: &Scene, size: u64, more: &[&str]) -> Process {
    make_file(&scene.path("file"), size, 3);
    scene.start(&[&["--json"], more, &[&scene.here("file"), &scene.there("copy")]].concat())
}

fn lines(ended: &Ended, text: &str) -> usize {
    ended.errors.iter().filter(|line| line.contains(text)).count()
}

fn assert_copied(scene: &Scene, ended: &Ended, transport: &str) {
    let report = ended.json();
    let way = report["transport"].as_str().expect("a text");
    assert!(way.starts_with(transport), "{ended:#?}");
    let [from, to] = ["file", "copy"].map(|name| fs::read(scene.path(name)).expect(name));
    assert!(from == to, "the copy differs");
}

#[test]
fn where_udp_is_blocked_tcp_is_taken_and_told_once() {
    let _turn = common::turn();
    let scene = scene_or_skip!();
    let relay = scene.relay(NOTHING);
    scene.far_behind(Some(relay.local_addr()), Some(scene.direct()), "");
    let ended = start(&scene, &[]).finish_well();
    assert!(relay.stats().forward.received > 0, "UDP was tried");
    assert_eq!(lines(&ended, "UDP does not pass: going on over TCP"), 1, "{ended:#?}");
    assert_copied(&scene, &ended, "TCP");
}

#[test]
fn where_udp_is_blocked_later_tcp_is_taken() {
    let _turn = common::turn();
    let scene = scene_or_skip!();
    let relay = scene.relay(Path::new("50M", 5));
    scene.far_behind(Some(relay.local_addr()), Some(scene.direct()), "");
    let run = start(&scene, &[]);
    wait_until("so much data", || relay.stats().forward.sent_bytes > SIZE / 5);
    relay.stop().expect("it was there");
    let ended = run.finish_well();
    assert_eq!(lines(&ended, "UDP does not pass: going on over TCP"), 1, "{ended:#?}");
    assert_copied(&scene, &ended, "TCP");
    // Those of UDP, which were many, are not TCP's, which are not counted.
    let report = ended.json();
    // The control channel, and a data connection at least.
    assert!(report["reconnects"].as_u64().expect("a number") >= 2, "{report}");
    assert!(report["retransmitted"].is_null() && report["packets_sent"].is_null(), "{report}");
}

#[test]
fn a_transport_that_is_asked_for_is_taken_or_nothing() {
    let _turn = common::turn();
    let scene = scene_or_skip!();
    let relay = scene.relay(Path::new("100M", 5));
    scene.far_behind(Some(relay.local_addr()), Some(scene.direct()), "");
    let ended = start(&scene, &["--transport", "tcp"]).finish_well();
    assert_eq!(relay.stats().forward.received, 0, "no UDP");
    assert_eq!(ended.json()["reconnects"], 0, "{ended:#?}");
    assert_copied(&scene, &ended, "TCP");
    fs::remove_file(scene.path("copy")).expect("it is there");
    let ended = start(&scene, &["--transport", "udp"]).finish_well();
    assert!(relay.stats().forward.sent_bytes > SIZE, "all of it over UDP");
    assert_copied(&scene, &ended, "UDP");
    assert_eq!(ended.json()["reconnects"], 0, "{ended:#?}");
    fs::remove_file(scene.path("copy")).expect("it is there");
    let blocked = scene.relay(NOTHING);
    scene.far_behind(Some(blocked.local_addr()), Some(scene.direct()), "");
    let ended = start(&scene, &["--transport", "udp"]).finish();
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    assert_eq!(lines(&ended, "nobody answers: a firewall may be in the way"), 1, "{ended:#?}");
    assert_eq!(lines(&ended, "--listen-ports FIRST-LAST"), 1, "{ended:#?}");
    assert!(!scene.path("copy").exists());
}

/// A path that lets 5 Mb/s of UDP pass each way and drops the rest.
fn policed(scene: &Scene) -> RelayHandle {
    let mut config = RelayConfig::new(([127, 0, 0, 1], 0).into(), scene.direct());
    let delay = Duration::from_millis(5);
    for way in [&mut config.forward, &mut config.backward] {
        way.rate = Some("5M".parse().expect("a rate"));
        way.queue = QueueConfig::parse("40p", 2 * delay).expect("a queue");
        way.delay = delay;
    }
    Relay::bind(config).and_then(Relay::spawn).expect("a relay")
}

#[test]
fn where_udp_is_held_back_everything_goes_to_tcp() {
    let _turn = common::turn();
    let scene = scene_or_skip!();
    let relay = policed(&scene);
    scene.far_behind(Some(relay.local_addr()), Some(scene.direct()), "");
    // A lane on trial is not to carry everything before it has been judged.
    let ended = start_with(&scene, 2 * SIZE, &["--rate", "40M"]).finish_well();
    assert_eq!(
        lines(&ended, "continuing over TCP (--transport udt keeps to UDP)"),
        1,
        "{ended:#?}"
    );
    assert_eq!(ended.errors.len(), 1, "no more lines than this: {ended:#?}");
    let udp = relay.stats().forward.sent_bytes;
    assert!(udp < SIZE / 2, "{udp} bytes went over UDP");
    assert_copied(&scene, &ended, "TCP");
}

#[test]
fn where_udp_is_held_back_downloads_go_to_tcp() {
    let _turn = common::turn();
    let scene = scene_or_skip!();
    let relay = policed(&scene);
    scene.far_behind(Some(relay.local_addr()), Some(scene.direct()), "");
    make_file(&scene.path("file"), 2 * SIZE, 3);
    let command = ["--json", "--rate", "40M", &scene.there("file"), &scene.here("copy")];
    let ended = scene.start(&command).finish_well();
    assert_eq!(
        lines(&ended, "continuing over TCP (--transport udt keeps to UDP)"),
        1,
        "{ended:#?}"
    );
    let udp = relay.stats().backward.sent_bytes;
    assert!(udp < SIZE / 2, "{udp} bytes went over UDP");
    assert_copied(&scene, &ended, "TCP");
}
