//! `farhaul cp` whose processes are killed at random moments: nothing is lost, nothing doubled, and
//! little of what had been moved is moved again.

mod common;

use std::fs;

use common::copying::{Scene, assert_same, kill, make_tree, relay_at, wait_until};
use common::path::Path;
use common::process::Process;
use farhaul_base::Rng;
use farhaul_wan::RelayHandle;

/// A scene, or the test is skipped.
macro_rules! scene_or_skip {
    () => {
        match Scene::new() {
            Ok(scene) => scene,
            Err(why) => common::skip!("{why}"),
        }
    };
}

const PATH: Path = Path::new("200M", 4);
/// What may be on its way, or not be confirmed, when something is killed.
const IN_FLIGHT: u64 = 24 << 20;

/// Bytes that a relay has passed on, both ways.
fn passed(relay: &RelayHandle) -> u64 {
    let stats = relay.stats();
    stats.forward.sent_bytes + stats.backward.sent_bytes
}

/// Kills one process after another while a tree is copied, always with the same command.
fn killed_again_and_again(push: bool, seed: u64) {
    let _turn = common::turn();
    let scene = scene_or_skip!();
    let kills = if common::long() { 50 } else { 6 };
    let large = kills * (6 << 20);
    let (source, target) = (scene.path("source"), scene.path("target"));
    make_tree(&source, large, seed);
    fs::create_dir(&target).expect("a directory");
    let (from, to) = match push {
        true => (format!("{}/", scene.here("source")), scene.there("target")),
        false => (format!("{}/", scene.there("source")), scene.here("target")),
    };
    let args = ["--json", "--outage", "100s", "--transport", "udp", &from, &to];
    let mut relay = scene.relay(PATH);
    let at = relay.local_addr();
    scene.far_behind(Some(at), None, "");
    let mut rng = Rng::new(seed);
    let mut all = 0;
    let mut run = scene.start(&args);
    for number in 0..kills {
        let until = rng.below(2 * large / kills);
        wait_until("so much data", || passed(&relay) >= until || !is_running(&run));
        match number % 3 {
            _ if !is_running(&run) => {}
            0 => {
                kill(run.id());
                drop(run);
                run = scene.start(&args);
            }
            1 => kill(scene.agent()),
            _ => {
                all += passed(&relay);
                relay.stop().expect("it was there");
                relay = relay_at(at, PATH, scene.direct());
                continue;
            }
        }
        all += passed(&relay);
        relay.stop().expect("it was there");
        relay = relay_at(at, PATH, scene.direct());
    }
    let report = run.finish_well().json();
    all += passed(&relay);
    assert_eq!(report["ok"], true, "{report}");
    assert_same(&source, &target);
    let most = (large + (8 << 20)) * 11 / 10 + kills * IN_FLIGHT;
    assert!(all <= most, "{all} bytes were moved, {most} would be much: {report}");
    // The same again finds everything there.
    let report = scene.start(&args).finish_well().json();
    assert_eq!(
        (&report["moved_bytes"], &report["moved_files"]),
        (&0.into(), &0.into()),
        "{report}"
    );
}

fn is_running(run: &Process) -> bool {
    // One that has ended is there until somebody asks how.
    let stat = fs::read_to_string(format!("/proc/{}/stat", run.id())).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.starts_with('Z') && !rest.is_empty())
}

#[test]
fn a_copy_to_another_host_survives_kills() {
    killed_again_and_again(true, 1);
}

#[test]
fn a_copy_from_another_host_survives_kills() {
    killed_again_and_again(false, 2);
}
