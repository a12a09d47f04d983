//! Fuzzing by simulation: a random scenario from a seed, and what must hold in it.
//!
//! The scenario is a text, as a file would hold it: [`scenario`] writes it, [`check`] runs it twice
//! and looks at everything after each step.

mod generate;

use core::panic::AssertUnwindSafe;
use core::time::Duration;
use std::panic::catch_unwind;

use farhaul_base::Time;
use farhaul_link::LinkStats;

use crate::build::{receiver, sender};
use crate::network::LinkId;
use crate::run::Run;
use crate::scenario::{Plan, Protocol, Scenario};
use crate::simulation::{Agent, Sent, Simulation};

pub use generate::scenario;

/// How long nothing should be under way any more once everything has been delivered.
const QUIET_AFTER: Duration = Duration::from_secs(400);
/// A receive-offload buffer and what a queue of them may hold beyond the limit.
const BUFFER_SLACK: usize = (1 << 20) + 65_536;

/// What one seed has shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    /// Turns of links and agents.
    pub events: u64,
    /// Packets that agents sent.
    pub packets: u64,
    /// Payload bytes delivered, of all flows.
    pub bytes: u64,
    /// Simulated time.
    pub simulated: Duration,
}

/// Everything that two runs must have in common.
#[derive(Clone, Debug, PartialEq)]
struct Trace {
    checked: Checked,
    delivered: Vec<u64>,
    sent: Vec<Sent>,
    links: Vec<LinkStats>,
}

/// Runs the scenario of `seed`, all of whose flows end, twice, and looks whether what must hold does:
/// UDT delivers the bytes that were sent in their order; what is to be delivered is, before the
/// scenario's time is over; buffers keep to their limits; every packet that a link took is accounted
/// for; afterwards nothing is under way; both runs are the same. None if `stop` says so before they
/// have ended.
///
/// # Errors
/// What did not hold, and when; also if it panicked.
pub fn check(seed: u64, stop: &dyn Fn() -> bool) -> Result<Option<Checked>, String> {
    let point = Plan::parse(&scenario(seed), &[], None).and_then(|plan| plan.point(0));
    let scenario = point.map_err(|problems| problems.to_string())?.scenario;
    let run = || match catch_unwind(AssertUnwindSafe(|| run(&scenario, stop))) {
        Ok(trace) => trace,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(format!("panicked: {}", text.unwrap_or("no text")))
        }
    };
    let Some(first) = run()? else { return Ok(None) };
    let Some(second) = run()? else { return Ok(None) };
    if first != second {
        return Err(format!("two runs differ:\n{first:?}\n{second:?}"));
    }
    Ok(Some(first.checked))
}

/// None: stopped.
fn run(scenario: &Scenario, stop: &dyn Fn() -> bool) -> Result<Option<Trace>, String> {
    let mut run = scenario.start();
    for flow in 0..scenario.flows.len() {
        if let Agent::Udt(agent) = run.simulation_mut().agent_mut(receiver(flow)) {
            agent.verify();
        }
    }
    let mut done: Option<Time> = None;
    while done.is_none_or(|at| run.simulation_mut().now() < at + QUIET_AFTER) {
        if stop() {
            return Ok(None);
        }
        if !run.step() {
            return match done {
                Some(_) => Err("the scenario's time is too short to see it end".into()),
                None => {
                    Err(format!("not everything was delivered: {}", unfinished(scenario, &mut run)))
                }
            };
        }
        let simulation = run.simulation_mut();
        let now = simulation.now();
        inspect(scenario, simulation).map_err(|what| format!("at {now:?}: {what}"))?;
        if done.is_none() && (0..scenario.flows.len()).all(|n| is_done(scenario, simulation, n)) {
            done = Some(now);
        }
    }
    let simulation = run.simulation_mut();
    let links: Vec<LinkStats> = links(scenario, simulation).collect();
    if let Some(busy) = links.iter().position(|link| link.queue.packets + link.in_flight > 0) {
        let name = &scenario.links[busy].name;
        return Err(format!("{name} is not empty {QUIET_AFTER:?} after the last delivery"));
    }
    let flows = 0..scenario.flows.len();
    let delivered: Vec<u64> =
        flows.clone().map(|n| simulation.agent(receiver(n)).delivered()).collect();
    let now = simulation.now();
    let checked = Checked {
        events: simulation.events(),
        packets: simulation.packets(),
        bytes: delivered.iter().sum(),
        simulated: now - Time::ZERO,
    };
    let sent = flows.map(|n| simulation.agent_mut(sender(n)).sent(now)).collect();
    Ok(Some(Trace { checked, delivered, sent, links }))
}

fn links<'a>(
    scenario: &Scenario,
    simulation: &'a mut Simulation,
) -> impl Iterator<Item = LinkStats> + use<'a> {
    (0..scenario.links.len() as u32).map(|number| simulation.link_stats(LinkId(number)))
}

/// What must hold at any time.
fn inspect(scenario: &Scenario, simulation: &mut Simulation) -> Result<(), String> {
    for (number, stats) in links(scenario, simulation).enumerate() {
        let came = stats.offered + stats.duplicated;
        let went = stats.passed + stats.dropped();
        if came != went + stats.queue.packets + stats.in_flight {
            return Err(format!(
                "{}: packets unaccounted for: {stats:?}",
                scenario.links[number].name
            ));
        }
    }
    let now = simulation.now();
    for (number, flow) in scenario.flows.iter().enumerate() {
        let name = &flow.name;
        let delivered = simulation.agent(receiver(number)).delivered();
        let is_bulk = flow.protocol.is_bulk();
        let beyond = flow.messages.map_or(0, |messages| u64::from(messages.size) - 1);
        if let Some(bytes) = flow.bytes.filter(|bytes| is_bulk && delivered > *bytes + beyond) {
            return Err(format!("{name}: {delivered} bytes delivered of {bytes}"));
        }
        let Protocol::Udt(config) = &flow.protocol else { continue };
        for (end, agent) in [("sender", sender(number)), ("receiver", receiver(number))] {
            let Agent::Udt(agent) = simulation.agent_mut(agent) else { continue };
            if let Some(what) = agent.damaged() {
                return Err(format!("{name}: what was read is not what was written: {what}"));
            }
            let Some(stats) = agent.stats(now) else { continue };
            let (held, instant) = (stats.instant.receive_memory, stats.instant);
            // A window is of 32 packets at least, whatever the memory.
            let least = 32 * config.mss as usize;
            let most = (config.receive_memory / 2).max(least);
            let wrong = instant.send_buffer.0 > config.send_memory.max(least)
                || instant.receive_buffer.0 > most
                || held > 2 * most + BUFFER_SLACK;
            if wrong {
                return Err(format!("{name}: the {end} holds too much: {instant:?}"));
            }
            if stats.total.counters.invalid > 0 {
                return Err(format!(
                    "{name}: the {end} got what its peer should not send: {stats:?}"
                ));
            }
        }
    }
    Ok(())
}

/// Whether nothing more is to come of a flow.
fn is_done(scenario: &Scenario, simulation: &mut Simulation, number: usize) -> bool {
    let flow = &scenario.flows[number];
    if flow.messages.is_some_and(|messages| messages.ttl.is_some())
        && let Agent::Udt(agent) = simulation.agent_mut(sender(number))
        && agent.is_finished()
    {
        return true;
    }
    let delivered = simulation.agent(receiver(number)).delivered();
    let stopped = flow.stop.is_some_and(|stop| simulation.now() >= Time::ZERO + stop);
    match (&flow.protocol, simulation.agent(sender(number))) {
        (Protocol::Cbr { .. }, _) => stopped,
        (_, Agent::TcpSource(source)) if flow.bytes.is_none() || source.transfers().begun != 1 => {
            stopped && source.concurrent() == 0
        }
        _ => stopped || flow.bytes.is_some_and(|bytes| delivered >= bytes),
    }
}

/// The flows that have not ended, for the message.
fn unfinished(scenario: &Scenario, run: &mut Run) -> String {
    let simulation = run.simulation_mut();
    let now = simulation.now();
    let texts = (0..scenario.flows.len()).filter_map(|number| {
        if is_done(scenario, simulation, number) {
            return None;
        }
        let flow = &scenario.flows[number];
        let delivered = simulation.agent(receiver(number)).delivered();
        let sent = simulation.agent_mut(sender(number)).sent(now);
        Some(format!("{}: {delivered} of {:?} bytes, {sent:?}", flow.name, flow.bytes))
    });
    texts.collect::<Vec<_>>().join("; ")
}
