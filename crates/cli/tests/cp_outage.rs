//! `farhaul cp` over paths that break, for a while or for good.

mod common;

use std::fs;
use std::process::Command;
use std::time::Duration;

use common::copying::{Scene, make_file, relay_at, wait_until};
use common::path::Path;
use common::process::{Ended, Process};
use farhaul_link::Blackout;
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

const PATH: Path = Path::new("100M", 5);
const SIZE: u64 = 40 << 20;

fn command(scene: &Scene, push: bool) -> (String, String) {
    match push {
        true => (scene.here("file"), scene.there("copy")),
        false => (scene.there("file"), scene.here("copy")),
    }
}

fn start(scene: &Scene, push: bool, more: &[&str]) -> Process {
    let (from, to) = command(scene, push);
    scene.start(&[&["--json"], more, &[&from, &to]].concat())
}

fn passed(relay: &RelayHandle) -> u64 {
    relay.stats().forward.sent_bytes + relay.stats().backward.sent_bytes
}

fn told(ended: &Ended, text: &str) -> bool {
    ended.errors.iter().any(|line| line.contains(text))
}

fn assert_copied(scene: &Scene, ended: &Ended) {
    let report = ended.json();
    let number = |name: &str| report[name].as_u64().expect("a number");
    assert_eq!(number("moved_bytes") + number("resumed_bytes"), SIZE, "{ended:#?}");
    let [from, to] = ["file", "copy"].map(|name| fs::read(scene.path(name)).expect(name));
    assert!(from == to, "the copy differs");
}

/// The relay goes and comes again, with other ports towards the other side: as an address of this
/// side that has changed, or a translator of addresses that has forgotten everything.
#[test]
fn an_outage_is_ridden_out_and_another_address_does_no_harm() {
    let _turn = common::turn();
    for push in [true, false] {
        let scene = scene_or_skip!();
        make_file(&scene.path("file"), SIZE, 3);
        let relay = scene.relay(PATH);
        let at = relay.local_addr();
        scene.far_behind(Some(at), None, "");
        let run = start(&scene, push, &[]);
        wait_until("so much data", || passed(&relay) > SIZE / 3);
        relay.stop().expect("it was there");
        run.wait_error_line("connection lost");
        let _relay = relay_at(at, PATH, scene.direct());
        run.wait_error_line("connected again");
        let ended = run.finish_well();
        assert_eq!(scene.agents(), 1, "the same agent goes on");
        assert_copied(&scene, &ended);
    }
}

/// The path is cut and the ports stay.
#[test]
fn a_short_outage_does_not_even_break_connections() {
    let _turn = common::turn();
    let scene = scene_or_skip!();
    make_file(&scene.path("file"), SIZE, 3);
    let mut config = RelayConfig::new(([127, 0, 0, 1], 0).into(), scene.direct());
    let (start_at, length) = (Duration::from_secs(3), Duration::from_secs(3));
    let blackout = Blackout { start: start_at, length, every: Some(Duration::from_secs(8)) };
    config.forward.blackouts = vec![blackout];
    config.backward.blackouts = vec![blackout];
    config.forward.rate = Some("60M".parse().expect("a rate"));
    config.forward.delay = Duration::from_millis(5);
    let relay = Relay::bind(config).and_then(Relay::spawn).expect("a relay");
    scene.far_behind(Some(relay.local_addr()), None, "");
    let ended = start(&scene, true, &[]).finish_well();
    assert!(relay.stats().forward.link.dropped_blackout > 0, "it was cut");
    assert!(!told(&ended, "connection lost"), "{ended:#?}");
    assert_copied(&scene, &ended);
}

#[test]
fn an_outage_that_is_too_long_ends_the_copy_and_the_next_goes_on() {
    let _turn = common::turn();
    for push in [true, false] {
        let scene = scene_or_skip!();
        make_file(&scene.path("file"), SIZE, 3);
        let relay = scene.relay(PATH);
        let at = relay.local_addr();
        scene.far_behind(Some(at), None, "");
        let run = start(&scene, push, &["--outage", "2s"]);
        wait_until("so much data", || passed(&relay) > SIZE / 2);
        relay.stop().expect("it was there");
        let ended = run.finish();
        assert_eq!(ended.code, Some(1), "{ended:#?}");
        assert!(told(&ended, "no connection for 2 s"), "{ended:#?}");
        let relay = relay_at(at, PATH, scene.direct());
        let ended = start(&scene, push, &[]).finish_well();
        assert_copied(&scene, &ended);
        let resumed = ended.json()["resumed_bytes"].as_u64().expect("a number");
        assert!(resumed > SIZE / 10, "{ended:#?}");
        assert!(passed(&relay) < (SIZE - resumed) * 11 / 10 + (3 << 20), "{ended:#?}");
    }
}

/// The last thing that a copy waits for is that everything is on the medium. A system call that is
/// made slow gives the time to cut the path in just then.
#[test]
fn a_path_that_breaks_at_the_very_end_loses_nothing() {
    let _turn = common::turn();
    if Command::new("strace").arg("-V").output().is_err() {
        common::skip!("there is no strace");
    }
    let slow = [
        "strace",
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        "trace=syncfs",
        "-e",
        "inject=syncfs:delay_enter=6000000",
    ];
    for push in [true, false] {
        let scene = scene_or_skip!();
        make_file(&scene.path("file"), SIZE, 3);
        let relay = scene.relay(PATH);
        let at = relay.local_addr();
        let (from, to) = command(&scene, push);
        let args = ["--json", "--outage", "2s", &from, &to];
        let run = if push {
            scene.far_behind(Some(at), None, &slow.join(" "));
            scene.start(&args)
        } else {
            scene.far_behind(Some(at), None, "");
            scene.start_below(&slow, &args)
        };
        wait_until("the copy", || scene.path("copy").exists());
        relay.stop().expect("it was there");
        let ended = run.finish();
        assert_eq!(ended.code, Some(1), "what is not confirmed is not done: {ended:#?}");
        assert!(told(&ended, "no connection for 2 s"), "{ended:#?}");
        let _relay = relay_at(at, PATH, scene.direct());
        scene.far_behind(Some(at), None, "");
        let report = start(&scene, push, &[]).finish_well().json();
        assert_eq!((&report["ok"], &report["moved_bytes"]), (&true.into(), &0.into()), "{report}");
        let [from, to] = ["file", "copy"].map(|name| fs::read(scene.path(name)).expect(name));
        assert!(from == to, "the copy differs");
    }
}
