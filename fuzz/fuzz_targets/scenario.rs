//! Whatever a scenario file says: it is read or refused, and what is read can be begun.

#![no_main]

use farhaul_sim::Plan;
use libfuzzer_sys::fuzz_target;

/// More than this only takes longer.
const MOST_FLOWS: usize = 50;
const MOST_LINKS: usize = 50;
const MOST_STEPS: usize = 3;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    // A long sweep is read at each of its points.
    if text.len() > 4_096 {
        return;
    }
    match Plan::parse(text, &[], None) {
        Err(problems) => {
            let lines = 1 + text.lines().count();
            assert!(!problems.0.is_empty());
            let known = |line: usize| (1..=lines).contains(&line);
            assert!(problems.0.iter().all(|problem| problem.line.is_none_or(known)));
        }
        Ok(plan) => {
            assert!(plan.points() > 0);
            let last = plan.point(plan.points() - 1).expect("it has been read before");
            assert_eq!(last.values.len(), plan.swept().count());
            let first = plan.point(0).expect("it has been read before").scenario;
            if first.flows.len() > MOST_FLOWS || first.links.len() > MOST_LINKS {
                return;
            }
            // Steps of no time: only what happens at the very beginning.
            let mut short = first;
            short.sample = core::time::Duration::from_nanos(1);
            let mut run = short.start();
            for _ in 0..MOST_STEPS {
                run.step();
            }
        }
    }
});
