//! Scenario files: what they make, and what is said of wrong ones.

use farhaul_sim::{Plan, Problems, Protocol};

fn plan(text: &str) -> Result<Plan, Problems> {
    Plan::parse(text, &[], None)
}

/// The one scenario of `text` that has no sweep.
fn scenario(text: &str) -> farhaul_sim::Scenario {
    plan(text).expect("a scenario").point(0).expect("its only point").scenario
}

const LINK: &str = "duration = \"2s\"\n[[link]]\nfrom = \"a\"\nto = \"b\"\nrate = \"10M\"\n";

#[test]
fn one_flow_runs() {
    let scenario =
        scenario(&format!("{LINK}delay = \"5ms\"\n[[flow]]\nfrom = \"a\"\nto = \"b\"\n"));
    assert!(matches!(scenario.flows[0].protocol, Protocol::Udt(_)));
    let report = scenario.run();
    assert_eq!(report.flows[0].series.len(), 100);
    assert!(report.flows[0].throughput_bps > 6e6, "{report:?}");
    assert!(report.links[0].utilisation.is_some_and(|share| (0.6..=1.0).contains(&share)));
    assert_eq!(report.indices.jain, Some(1.0));
}
