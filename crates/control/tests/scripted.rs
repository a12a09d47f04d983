//! Every law through one script of events, and what it set after each, as stored in `scripted.txt`:
//! a change that was not meant shows. `FARHAUL_UPDATE_HASHES=1` writes the file anew.

#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::disallowed_methods, reason = "the trace is in a file")]

use core::fmt::Write;
use core::time::Duration;

use farhaul_base::Time;
use farhaul_control::{Arrival, Delivery, Governor, Spec, View, laws};
use farhaul_wire::{LossRange, Seq};

/// A path of 50 ms and 2000 packets a second; in each step a quarter of a round trip of packets.
struct Script {
    governor: Governor,
    view: View,
    next: u32,
    told: String,
}

impl Script {
    fn new(law: &Spec) -> Self {
        let view = View {
            now: Time::from_secs(1),
            rtt: Duration::from_millis(50),
            rtt_min: Duration::from_millis(50),
            arrival_rate: 1_000.0,
            delivery_rate: 1_000.0,
            capacity: 2_000.0,
            ..View::default()
        };
        Script { governor: Governor::new(law.build(1)), view, next: 0, told: String::new() }
    }

    fn note(&mut self, event: &str) {
        let state = self.governor.describe().1;
        let knobs = self.governor.knobs();
        let (window, period_us) = (knobs.window, knobs.period_ns / 1e3);
        writeln!(self.told, "  {event:<8} {window:>14.3} {period_us:>14.3} [{state}]").unwrap();
    }

    fn init(&mut self) {
        self.governor.tell(&self.view, |law, view, knobs| law.init(view, knobs));
        self.note("init");
    }

    /// `packets` arrive, the newest of them after `rtt_ms`.
    fn ack(&mut self, packets: u32, rtt_ms: f64) {
        self.view.now += Duration::from_secs_f64(f64::from(packets) / 2_000.0);
        self.next += packets;
        let newest = Seq::new(self.next - 1);
        let window = self.governor.knobs().window.min(400.0) as u32;
        self.view.delivered += u64::from(packets);
        self.view.trace.packets_sent += u64::from(packets);
        self.view.trace.acks += 1;
        self.view.in_flight = window;
        self.view.largest_acked = newest;
        self.view.largest_sent = newest.plus(window);
        let delivery = Delivery {
            packets: 50,
            interval: Duration::from_millis(25),
            app_limited: false,
            delivered_before: self.view.delivered.saturating_sub(100),
            in_flight: window,
            lost_before: self.view.trace.packets_lost,
        };
        let rtt = Duration::from_secs_f64(rtt_ms / 1e3);
        self.view.newest =
            Some(Arrival { seq: newest, rtt, forward: None, tag: 0, delivery: Some(delivery) });
        let next = Seq::new(self.next);
        self.governor.tell(&self.view, |law, view, knobs| law.on_ack(next, view, knobs));
        self.view.newest = None;
        self.note("ack");
    }

    fn lose(&mut self, packets: u32) {
        let first = Seq::new(self.next + 1);
        let lost = [LossRange { first, last: first.plus(packets - 1) }];
        self.view.trace.packets_lost += u64::from(packets);
        self.view.trace.naks += 1;
        self.governor.tell(&self.view, |law, view, knobs| law.on_loss(&lost, view, knobs));
        self.note("loss");
    }

    fn time_out(&mut self) {
        self.view.now += Duration::from_secs(1);
        self.governor.tell(&self.view, |law, view, knobs| law.on_timeout(view, knobs));
        self.note("timeout");
    }
}

/// A start without a queue, a queue that grows, losses, recovery, a time-out, and what follows.
fn trace(law: &Spec) -> String {
    let mut script = Script::new(law);
    script.init();
    (0..8).for_each(|_| script.ack(25, 50.0));
    (0..8).for_each(|step| script.ack(25, 52.0 + 3.0 * f64::from(step)));
    script.lose(3);
    (0..8).for_each(|_| script.ack(25, 60.0));
    script.time_out();
    (0..8).for_each(|_| script.ack(10, 50.0));
    assert_eq!(script.governor.failure(), None, "{law}");
    script.told
}

#[test]
fn every_law_does_what_it_did() {
    let mut all = String::from("law, event, window (packets), period (us), state\n");
    for info in laws() {
        let law = Spec::of(info);
        write!(all, "\n{}\n{}", info.name, trace(&law)).unwrap();
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scripted.txt");
    if std::env::var_os("FARHAUL_UPDATE_HASHES").is_some() {
        std::fs::write(path, &all).unwrap();
    }
    let stored = std::fs::read_to_string(path).unwrap();
    let mut law = "";
    for (was, is) in stored.lines().zip(all.lines()) {
        law = if is.starts_with(' ') { law } else { is };
        assert_eq!(was, is, "{law}");
    }
    assert_eq!(stored.len(), all.len());
}
