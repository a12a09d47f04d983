//! Streams that stop at any byte, are damaged anywhere, or carry good frames in any order.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;

use farhaul_mover::ReceiveError;
use farhaul_mover::digest::ContentHasher;
use farhaul_mover::frame::Frame;
use proptest::prelude::*;

use common::{Script, assert_no_leftovers, frames, paths, place};

fn varied() -> Script {
    Script::new()
        .frame(Frame::Totals { files: 3, bytes: 420 })
        .directory("d")
        .file("f", &[7; 250])
        .directory("e")
        .link("l", "../outside/secret")
        .leave()
        .leave()
        .file("empty", b"")
        .begin("s", 170)
        .frame(Frame::Data(&[1; 70]))
        .frame(Frame::Hole { length: 100 })
        .frame(Frame::FileEnd {
            digest: {
                let mut hasher = ContentHasher::default();
                hasher.data(&[1; 70]);
                hasher.hole(100);
                hasher.finish()
            },
        })
        .end()
}

/// Covers every frame boundary and every place within a frame.
#[test]
fn a_sender_that_vanishes_at_any_byte_leaves_nothing_unfinished() {
    let script = varied();
    let place = place();
    assert!(script.play(&place.into).0.is_ok());
    let end = *script.starts.last().unwrap();
    for cut in 0..script.bytes.len() {
        fs::remove_dir_all(&place.into).unwrap();
        fs::create_dir(&place.into).unwrap();
        let cut_short = Script::from_bytes(&script.bytes[..cut]);
        let (received, answer) = cut_short.play(&place.into);
        assert!(matches!(received, Err(ReceiveError::PeerVanished)), "cut at {cut}: {received:?}");
        assert_eq!(frames(&answer), [], "nobody is there to hear anything");
        assert_no_leftovers(&place.into);
        // Files that are there are whole.
        for (path, size) in [("d/f", 250), ("empty", 0), ("s", 170)] {
            if let Ok(meta) = fs::metadata(place.into.join(path)) {
                assert_eq!(meta.len(), size, "cut at {cut}");
            }
        }
        assert!(place.into.join("s").exists() || cut < end, "complete files stay");
    }
    place.assert_safe();
}

proptest! {
    #![proptest_config(common::seeded(1500))]

    /// A good script with some bytes changed, taken out or put in.
    #[test]
    fn scripts_gone_bad_do_no_harm(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..3), 1..6),
    ) {
        let mut bytes = varied().bytes;
        for (at, value, what) in edits {
            let at = at.index(bytes.len());
            match what {
                0 => bytes[at] = value,
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, value),
            }
        }
        let place = place();
        let script = Script::from_bytes(&bytes);
        let (received, _) = script.play(&place.into);
        prop_assert!(!matches!(received, Err(ReceiveError::Interrupted)));
        let left = paths(&place.into);
        let unfinished = left.iter().any(|path| path.to_string_lossy().contains(".farhaul-"));
        prop_assert!(!unfinished, "{left:?}");
        let outside = fs::read(place.dir.path().join("outside/secret")).unwrap();
        prop_assert_eq!(outside, b"untouched");
        let all = paths(place.dir.path());
        prop_assert_eq!(all.iter().filter(|path| !path.starts_with("into")).count(), 3);
    }

    /// Frames that are good each, in an order that makes no sense.
    #[test]
    fn frames_in_any_order_do_no_harm(order in prop::collection::vec(0usize..12, 0..25)) {
        let place = place();
        let outside = place.outside();
        let mut script = Script::new();
        for which in order {
            script = match which {
                0 => script.directory("a"),
                1 | 2 => script.leave(),
                3 => script.link("a", &outside),
                4 => script.file("secret", b"mine"),
                5 => script.begin("a", 10),
                6 => script.frame(Frame::Data(b"12345")),
                7 => script.frame(Frame::Hole { length: 5 }),
                8 => script.frame(Frame::FileEnd { digest: [0; 32] }),
                9 => script.frame(Frame::FileDropped),
                10 => script.directory("sub"),
                _ => script.link("sub", ".."),
            };
        }
        let (received, _) = script.end().play(&place.into);
        prop_assert!(!matches!(received, Err(ReceiveError::PeerVanished)), "the end was reached");
        assert_no_leftovers(&place.into);
        let outside = fs::read(place.dir.path().join("outside/secret")).unwrap();
        prop_assert_eq!(outside, b"untouched");
        let all = paths(place.dir.path());
        prop_assert_eq!(all.iter().filter(|path| !path.starts_with("into")).count(), 3);
    }
}
