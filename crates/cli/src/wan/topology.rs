//! A network from a scenario file.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;
use farhaul_base::names::suggestion;
use farhaul_sim::{Plan, Scenario};
use farhaul_wan::tun::{MOST_HOSTS, Topology, TopologyLink};

use super::counters::Names;
use crate::exit::Usage;
use crate::sim::read_scenario;

/// The nodes and links of the scenario in `file`, with values put in for its variables. Hosts are where its flows
/// begin and end, and where `wanted` says so. The seed is the scenario's.
pub fn read<'a>(
    file: &Path,
    set: &[(String, String)],
    wanted: impl Iterator<Item = &'a str>,
) -> Result<(Topology, Names, u64)> {
    let scenario = scenario(file, set)?;
    let mut hosts: BTreeSet<usize> =
        scenario.flows.iter().flat_map(|flow| [flow.from, flow.to]).collect();
    for name in wanted {
        let found = scenario.nodes.iter().position(|node| node == name);
        hosts.insert(found.ok_or_else(|| {
            let hint = suggestion(name, scenario.nodes.iter().map(String::as_str));
            Usage(format!("there is no node '{name}' in {}; {hint}", file.display()))
        })?);
    }
    if hosts.len() > MOST_HOSTS {
        let message = format!(
            "{}: flows begin and end at {} nodes, and {MOST_HOSTS} hosts are the most: take fewer",
            file.display(),
            hosts.len()
        );
        return Err(Usage(message).into());
    }
    let links = scenario.links.iter().zip(scenario.link_configs());
    let links = links.map(|(link, config)| TopologyLink { from: link.from, to: link.to, config });
    let topology = Topology {
        nodes: scenario.nodes.len(),
        links: links.collect(),
        access_rate: None,
        hosts: hosts.iter().copied().collect(),
    };
    let names = Names {
        hosts: hosts.iter().map(|&node| scenario.nodes[node].clone()).collect(),
        links: scenario.links.iter().map(|link| link.name.clone()).collect(),
        path: false,
    };
    Ok((topology, names, scenario.seed))
}

fn scenario(file: &Path, set: &[(String, String)]) -> Result<Scenario> {
    let name = file.display();
    let text = read_scenario(file).map_err(|error| Usage(format!("{name}: {error}")))?;
    let problems = |problems: farhaul_sim::Problems| {
        let lines = problems.to_string().replace('\n', "\n  ");
        Usage(format!("{name} cannot be made:\n  {lines}"))
    };
    let plan = Plan::parse(&text, set, None).map_err(problems)?;
    let swept: Vec<&str> = plan.swept().collect();
    if plan.points() > 1 && !swept.is_empty() {
        let message = format!(
            "{name} is a sweep over {}: choose a value of each with --set",
            swept.join(", ")
        );
        return Err(Usage(message).into());
    }
    Ok(plan.point(0).map_err(problems)?.scenario)
}
