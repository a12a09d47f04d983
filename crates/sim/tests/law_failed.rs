//! A law that panics ends its flow, and the report says so; the others go on.

use farhaul_base::Time;
use farhaul_control::{Knobs, Law, LawInfo, Make, Seq, View, register};
use farhaul_sim::{Ended, Plan};

/// Panics a second after it has begun.
#[derive(Debug)]
struct Doomed;

impl Law for Doomed {
    fn name(&self) -> &'static str {
        DOOMED.name
    }

    fn init(&mut self, view: &View, knobs: &mut Knobs) {
        (knobs.window, knobs.timer) = (20.0, Some(view.now));
    }

    fn on_ack(&mut self, _next: Seq, view: &View, _knobs: &mut Knobs) {
        assert!(view.now < Time::from_secs(1), "as it was bound to");
    }

    /// The shortest timer there is does not hold the simulation up.
    fn on_timer(&mut self, view: &View, knobs: &mut Knobs) {
        knobs.timer = Some(view.now);
    }
}

static DOOMED: LawInfo = LawInfo {
    name: "doomed",
    summary: "for a test",
    source: "this test",
    params: &[],
    make: Make::Law(|_, _| Box::new(Doomed)),
};

#[test]
fn the_flow_of_a_law_that_panics_has_failed_and_no_other() {
    assert!(register(&DOOMED));
    for protocol in ["cc = \"doomed\"", "protocol = \"tcp-doomed\""] {
        let text = format!(
            "duration = \"3s\"\n[[link]]\nfrom = \"a\"\nto = \"b\"\nrate = \"10M\"\ndelay = \"5ms\"\n\
             [[flow]]\nfrom = \"a\"\nto = \"b\"\n{protocol}\n[[flow]]\nfrom = \"a\"\nto = \"b\"\n"
        );
        let plan = Plan::parse(&text, &[], None).expect("a scenario");
        let report = plan.point(0).expect("its only point").scenario.run();
        let ended: Vec<_> = report.flows.iter().map(|flow| flow.ended).collect();
        assert_eq!(ended, [Some(Ended::LawFailed), None], "{protocol}");
        assert!(report.flows[0].bytes > 20_000, "{protocol}: {}", report.flows[0].bytes);
        let series = &report.flows[1].series;
        assert!(series.last().is_some_and(|rate| *rate > 1e6), "{protocol}: {series:?}");
    }
}
