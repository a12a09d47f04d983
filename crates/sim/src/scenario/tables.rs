//! The tables of a scenario file.

use core::ops::Range;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use toml::de::{DeTable, DeValue};

use super::files::Files;
use super::host_table::Hosts;
use super::problems::Problem;
use super::reader::{Reader, Scalar, Section, Variables};
use super::{LinkSpec, Protocol, Scenario, flow_table, link_table};

/// Simulated time that a run may have: a year.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);
/// Samples that a run may have.
const MOST_SAMPLES: u128 = 1_000_000;
/// Samples of all flows and links together that a run may have: it keeps them, up to 24 bytes each.
const MOST_VALUES: u64 = 20_000_000;
/// Nodes that a network may have: each knows the way to each other.
const MOST_NODES: usize = 5_000;

/// Nodes by the order in which links name them.
#[derive(Default)]
pub(super) struct Nodes {
    names: Vec<String>,
    numbers: BTreeMap<String, usize>,
}

impl Nodes {
    /// The number of the node, new if it has not been named before.
    pub(super) fn number(&mut self, name: &str) -> usize {
        self.find(name).unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.numbers.insert(name.to_owned(), self.names.len() - 1);
            self.names.len() - 1
        })
    }

    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.numbers.get(name).copied()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.names.iter().map(String::as_str)
    }
}

/// Reads a scenario with the variables put in.
pub(super) fn read(
    text: &str,
    document: &DeTable<'_>,
    variables: &Variables,
    files: &Files<'_>,
) -> Result<Scenario, Vec<Problem>> {
    let reader = Reader::new(text, variables, files);
    let scenario = read_all(&reader, document);
    let problems = reader.into_problems();
    match scenario {
        Some(scenario) if problems.is_empty() => Ok(scenario),
        _ => Err(problems),
    }
}

fn read_all(reader: &Reader<'_>, document: &DeTable<'_>) -> Option<Scenario> {
    let top = reader.section("the scenario", document, 0..0);
    let title = top.text("title").map(|title| title.text);
    let seed = top.value("seed");
    let time = |scalar: Scalar, key| {
        let time = top.parse(key, &scalar, farhaul_link::parse_duration)?;
        Some((check(&top, &scalar.span, time, LONGEST)?, scalar.span))
    };
    let duration = top.required("duration").and_then(|scalar| time(scalar, "duration"));
    let sample = top.text("sample").and_then(|scalar| time(scalar, "sample"));
    let measure_from = top.duration("measure_from");
    let measure_to = top.duration("measure_to");
    let friendliness = flow_table::friendliness(&top);
    let (mut nodes, mut hosts) = (Nodes::default(), Hosts::default());
    each(&top, "host", "[[host]]", |section| hosts.read_own(section));
    hosts.read_usual(&top);
    each(&top, "node", "[[node]]", |section| {
        let number = section.required("name").map(|name| nodes.number(&name.text));
        hosts.read_node(section, number);
    });
    let (mut links, mut link_lines) = (Vec::new(), Vec::new());
    each(&top, "link", "[[link]]", |section| {
        links.extend(link_table::read(section, &mut nodes, links.len()).into_iter().flatten());
        link_lines.resize(links.len(), section.span().clone());
    });
    let names = links.iter().map(|link: &LinkSpec| &*link.name);
    same_names(reader, "link", names.zip(&link_lines));
    let (mut flows, mut lines) = (Vec::new(), Vec::new());
    each(&top, "flow", "[[flow]]", |section| {
        let new = flow_table::read(section, &nodes, flows.len()).unwrap_or_default();
        if flows.len() + new.len() > flow_table::MOST_FLOWS {
            let message = format!("more than {} flows: take fewer", flow_table::MOST_FLOWS);
            reader.problem(section.span(), message);
            return;
        }
        flows.extend(new);
        lines.resize(flows.len(), section.span().clone());
    });
    same_names(reader, "flow", flows.iter().map(|flow| &*flow.name).zip(&lines));
    // Read elsewhere.
    let _ = (top.raw("set"), top.raw("sweep"), top.raw("case"));
    for (missing, name) in [(links.is_empty(), "link"), (flows.is_empty(), "flow")] {
        if missing && !document.contains_key(name) {
            reader.problem(&(0..0), format!("the scenario needs at least one [[{name}]]"));
        }
    }
    top.finish();
    if nodes.names.len() > MOST_NODES {
        let line = link_lines.last().unwrap_or(&(0..0));
        reader.problem(line, format!("more than {MOST_NODES} nodes: take fewer"));
        return None;
    }
    let (duration, duration_line) = duration?;
    let hundredth = duration.div_f64(100.0).min(Duration::from_secs(1));
    // A run that is shorter than a hundred nanoseconds has samples too.
    let (sample, sample_line) =
        sample.unwrap_or((hundredth.max(Duration::from_nanos(1)), duration_line));
    if sample > duration {
        reader.problem(&sample_line, "'sample' must not be longer than 'duration'");
        return None;
    }
    if duration.as_nanos() / sample.as_nanos() > MOST_SAMPLES {
        let message = format!("more than {MOST_SAMPLES} samples: take a longer 'sample'");
        reader.problem(&sample_line, message);
        return None;
    }
    let measure = (measure_from.unwrap_or_default(), measure_to.unwrap_or(duration).min(duration));
    if measure.0 >= measure.1 {
        reader.problem(&(0..0), "nothing to measure: 'measure_from' is not before the end");
    }
    let scenario = Scenario {
        title: title.unwrap_or_default(),
        seed: seed.unwrap_or(1),
        duration,
        sample,
        measure,
        hosts: hosts.of(nodes.names.len()),
        nodes: nodes.names,
        links,
        flows,
        friendliness: friendliness.as_ref().map(|(tcp, _)| tcp.clone()),
    };
    if scenario.values() > MOST_VALUES {
        let message = format!(
            "the samples of {} flows and {} links are {}, more than {MOST_VALUES}: take a longer \
             'sample', or fewer flows",
            scenario.flows.len(),
            scenario.links.len(),
            scenario.values()
        );
        reader.problem(&sample_line, message);
        return None;
    }
    // Which flows there are is known only if all tables could be read.
    if let Some((_, line)) = friendliness
        && reader.is_right()
        && !scenario.flows.iter().any(|flow| matches!(flow.protocol, Protocol::Tcp(_)))
    {
        let message =
            "'tcp_friendliness' is the share of TCP flows beside UDT: there is no TCP flow";
        reader.problem(&line, message);
    }
    check_starts(reader, &scenario, &lines);
    check_queues(reader, &scenario, &link_lines);
    for ((flow, way), line) in scenario.flows.iter().zip(scenario.ways()).zip(&lines) {
        let message = match way {
            None => {
                let (from, to) = (&scenario.nodes[flow.from], &scenario.nodes[flow.to]);
                format!("no links lead from '{from}' to '{to}' and back")
            }
            Some(way) if flow.takes_all_it_can() && !scenario.takes_time(&way) => {
                "nothing on the way takes time: give a link a rate or a delay".into()
            }
            Some(_) => continue,
        };
        reader.problem(line, message);
    }
    Some(scenario)
}

/// Reports each table of flows of which one begins when the run is over.
fn check_starts(reader: &Reader<'_>, scenario: &Scenario, lines: &[Range<usize>]) {
    let mut reported = None;
    for (flow, line) in scenario.flows.iter().zip(lines) {
        if flow.start >= scenario.duration && reported != Some(line) {
            let (name, start, end) = (&flow.name, flow.start, scenario.duration);
            let message = format!("'{name}' begins at {start:?}, and the run ends at {end:?}");
            reader.problem(line, message);
            reported = Some(line);
        }
    }
}

/// Reports each link whose queue holds less than a packet of a flow that it carries. It would do what
/// a queue of one packet does, which is not what it says.
fn check_queues(reader: &Reader<'_>, scenario: &Scenario, lines: &[Range<usize>]) {
    let limits: Vec<Option<u64>> = scenario.links.iter().map(LinkSpec::queue_bytes).collect();
    if limits.iter().all(Option::is_none) {
        return;
    }
    let mut reported = BTreeSet::new();
    for (flow, way) in scenario.flows.iter().zip(scenario.ways_there()) {
        let packet = u64::from(flow.largest_packet());
        for number in way.into_iter().flatten().map(|id| id.0 as usize) {
            if let Some(limit) = limits[number].filter(|limit| *limit < packet)
                && reported.insert(number)
            {
                let (link, flow) = (&scenario.links[number].name, &flow.name);
                let message = format!(
                    "the queue of '{link}' has {limit} bytes, and a packet of '{flow}' {packet}: \
                     write 1p if none is to wait"
                );
                reader.problem(&lines[number], message);
            }
        }
    }
}

/// Reports each name that is there before: results would not tell which is which.
fn same_names<'a>(
    reader: &Reader<'_>,
    what: &str,
    names: impl Iterator<Item = (&'a str, &'a Range<usize>)>,
) {
    let mut seen = BTreeSet::new();
    for (name, span) in names {
        if !seen.insert(name) {
            reader.problem(span, format!("there is another {what} named '{name}'"));
        }
    }
}

/// `value` if it is above 0 and at most `most`.
fn check(
    section: &Section<'_>,
    span: &Range<usize>,
    value: Duration,
    most: Duration,
) -> Option<Duration> {
    if value.is_zero() || value > most {
        section.reader().problem(span, format!("must be longer than 0 and at most {most:?}"));
        return None;
    }
    Some(value)
}

/// Reads each table of an array of tables.
fn each(
    top: &Section<'_>,
    key: &'static str,
    name: &'static str,
    mut read: impl FnMut(&Section<'_>),
) {
    let Some(value) = top.raw(key) else { return };
    let DeValue::Array(tables) = value.get_ref() else {
        top.reader().problem(&value.span(), format!("write {name}, with two brackets"));
        return;
    };
    for table in tables.iter() {
        let DeValue::Table(entries) = table.get_ref() else {
            top.reader().problem(&table.span(), format!("write {name}, each with its own keys"));
            continue;
        };
        let section = top.reader().section(name, entries, table.span());
        read(&section);
        section.finish();
    }
}
