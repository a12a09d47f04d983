//! Streams between two endpoints over every kind of path: what is read is what was written.

mod pair;

use core::time::Duration;

use farhaul_engine::{CloseReason, Config, Origins};
use farhaul_link::{Blackout, Displacement, LinkConfig, LossModel, Probability, Reorder};
use farhaul_wire::{AckSeq, Seq};
use pair::{A, B, Flow, Net, data, path, stream};

fn share(p: f64) -> Probability {
    Probability::new(p).unwrap()
}

/// Moves `bytes` from A to B within `limit` and closes; returns the net for a look.
fn transfer(net: &mut Net, config: Config, bytes: usize, limit: u64) -> Flow {
    let ids = net.connect(config.clone(), config);
    let mut flow = Flow::new(A, ids, data(9, bytes));
    let done = net.run_until(Duration::from_secs(limit), |net| flow.pump(net));
    assert!(done, "{} of {bytes} bytes in {limit} s; {:#?}", flow.read, net.stats(A, ids.0));
    flow
}

#[test]
fn a_clean_path() {
    let mut net = Net::new(&path(), 1);
    let flow = transfer(&mut net, stream(), 10 << 20, 3);
    let stats = net.stats(A, flow.ids[A]);
    assert!(stats.instant.rtt < Duration::from_millis(60), "{stats:#?}");
}
