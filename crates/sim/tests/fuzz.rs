//! Random networks, faults, options and flows: what must hold in all of them.

use farhaul_sim::fuzz;

/// Few, for these run without optimisation; `farhaul sim fuzz` runs as many as there is time for.
const RUNS: u64 = 150;

#[test]
fn random_scenarios() {
    let failures: Vec<String> = (0..RUNS)
        .filter_map(|seed| {
            let error = fuzz::check(seed, &|| false).err()?;
            Some(format!("{error}\n  again: farhaul sim fuzz --seed {seed} --runs 1"))
        })
        .collect();
    assert!(failures.is_empty(), "{} of {RUNS}:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn a_scenario_is_a_function_of_its_seed() {
    assert_eq!(fuzz::scenario(7), fuzz::scenario(7));
    assert_ne!(fuzz::scenario(7), fuzz::scenario(8));
}
