//! A congestion control law of one's own, in the whole `farhaul` command: `docs/writing-a-law.md`
//! builds it step by step.

use std::process::ExitCode;

use farhaul_cli::control::{Knobs, Law, LawInfo, LossRange, Make, Param, Seq, View};

/// Keeps a few packets waiting in the network: enough to have it always busy, and no more.
#[derive(Debug)]
struct Gentle {
    /// How many, packets.
    queue: f64,
    /// Losses of packets sent before this one have had their answer.
    answered: Seq,
}

impl Law for Gentle {
    fn name(&self) -> &'static str {
        INFO.name
    }

    fn init(&mut self, view: &View, knobs: &mut Knobs) {
        knobs.window = view.start_window(10.0);
        knobs.ack_interval = 2;
        self.answered = view.largest_acked;
    }

    fn on_ack(&mut self, _next: Seq, view: &View, knobs: &mut Knobs) {
        let Some(newest) = view.newest else { return };
        // A packet that took twice as long as the fastest one: half of the window was waiting.
        let delay = 1.0 - view.rtt_min.as_secs_f64() / newest.rtt.as_secs_f64();
        let waiting = knobs.window * delay;
        knobs.window += ((self.queue - waiting) / knobs.window).clamp(-1.0, 1.0);
    }

    fn on_loss(&mut self, lost: &[LossRange], view: &View, knobs: &mut Knobs) {
        if lost.iter().any(|range| range.last.since(self.answered) > 0) {
            knobs.window *= 0.8;
            self.answered = view.largest_sent;
        }
    }

    fn on_timeout(&mut self, _view: &View, knobs: &mut Knobs) {
        knobs.window = 2.0;
    }
}

static INFO: LawInfo = LawInfo {
    name: "gentle",
    summary: "keeps a few packets waiting in the network",
    source: "docs/writing-a-law.md",
    params: &[Param::number("queue", 20.0, (1.0, 1e4), "packets", "how many may wait")],
    make: Make::Law(|values, _| {
        Box::new(Gentle { queue: values.get("queue"), answered: Seq::new(0) })
    }),
};

fn main() -> ExitCode {
    farhaul_cli::run(&[&INFO])
}
