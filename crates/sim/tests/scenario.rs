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

#[test]
fn cases_are_variables_that_go_together() {
    let text = "duration = \"$time\"\n[set]\ntime = \"1s\"\n[sweep]\nrtt = [\"1ms\", \"2ms\"]\n\
        [[case]]\nname = \"slow\"\nrate = \"10M\"\n\
        [[case]]\nname = \"fast\"\nrate = \"1G\"\ntime = \"3s\"\n\
        [[link]]\nfrom = \"a\"\nto = \"b\"\nrate = \"$rate\"\ndelay = \"$rtt / 2\"\n\
        [[flow]]\nname = \"$case\"\nfrom = \"a\"\nto = \"b\"\n";
    let sweep = plan(text).expect("a plan");
    assert_eq!(sweep.swept().collect::<Vec<_>>(), ["case", "rtt"]);
    assert_eq!(sweep.points(), 4);
    let at = |point| sweep.point(point).expect("a point");
    let (slow, fast) = (at(1), at(2));
    assert_eq!((slow.values[0].as_str(), slow.values[1].as_str()), ("slow", "2ms"));
    assert_eq!((slow.scenario.duration.as_secs(), fast.scenario.duration.as_secs()), (1, 3));
    assert_eq!(fast.scenario.flows[0].name, "fast");
    let rate = fast.scenario.links[0].config.rate.expect("a rate");
    assert_eq!(rate.bits_per_second(), 1_000_000_000);

    let only = |case: &str| Plan::parse(text, &[("case".into(), case.into())], None);
    assert_eq!(only("fast").expect("a plan").points(), 2);
    let error = only("fst").unwrap_err().to_string();
    assert!(error.contains("there is no case 'fst'; did you mean 'fast'?"), "{error}");
    let error = plan(&text.replace("\"fast\"", "\"slow\"")).unwrap_err().to_string();
    assert!(error.contains("a case needs a 'name' of its own"), "{error}");
}
