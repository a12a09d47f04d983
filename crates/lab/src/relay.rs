//! Scenarios on real sockets: the path is the relay's, both ends of the flow are the library's.
//!
//! A path in the simulator and one in the relay are the same code with the same seed; what may
//! differ is time, which the system's scheduler has a say in.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use farhaul::{Bytes, Connection, Law, Listener, Options};
use farhaul_link::{LinkConfig, QueueConfig};
use farhaul_sim::{FlowReport, Indices, LinkReport, Plan, Protocol, Report, Scenario, Spread};
use farhaul_wan::{DirectionStats, Relay, RelayConfig};

use crate::sweep::{Measured, Progress, label};

/// Bytes that the sending application writes at once.
const WRITE: usize = 1 << 18;

/// What a plan on real sockets has given.
#[derive(Clone, Debug)]
pub struct Real {
    /// A run for each point.
    pub measured: Vec<Measured>,
    /// What there is to know about the repeats, a line each.
    pub notes: Vec<String>,
}

/// What the path does, and what both ends are told.
#[derive(Clone, Debug)]
struct Task {
    links: [LinkConfig; 2],
    law: Law,
    mss: u32,
}

/// What the relay has counted until some moment: there and back.
type Counted = [DirectionStats; 2];

/// Runs each point of the plan `repeats` times, one after the other, and gives of each the run of
/// the median throughput, with what there is to know about them. None if `stop` was set meanwhile.
///
/// # Errors
/// A scenario is not one flow over one path, or the system refuses sockets.
pub fn run(
    plan: &Plan,
    repeats: u32,
    watch: &(dyn Fn(Progress) + Sync),
    stop: &AtomicBool,
) -> Result<Option<Real>, String> {
    let runs = plan.points() * u64::from(repeats.max(1));
    let mut all: Vec<Vec<(Measured, Counted)>> = vec![Vec::new(); plan.points() as usize];
    // Repeats of one point lie far apart, so that what disturbs for a while meets but one of them.
    for done in 0..runs {
        let point = done % plan.points();
        let chosen = plan.point(point).map_err(|problems| problems.to_string())?;
        let task = Task::of(&chosen.scenario)?;
        watch(Progress { runs: (done, runs), share: done as f64 / runs as f64, speed_up: 1.0 });
        let Some((report, counted)) = task
            .run(&chosen.scenario, stop)
            .map_err(|error| format!("through the relay: {error}"))?
        else {
            return Ok(None);
        };
        all[point as usize].push((Measured { point, values: chosen.values, report }, counted));
    }
    let mut notes = vec![format!(
        "Through the relay: the run of the median throughput of {repeats} at each point."
    )];
    for runs in &mut all {
        let throughput = |run: &(Measured, Counted)| run.0.report.flows[0].throughput_bps;
        runs.sort_by(|a, b| throughput(a).total_cmp(&throughput(b)));
        notes.push(note(runs));
    }
    let middle = |runs: Vec<(Measured, Counted)>| {
        let at = (runs.len() - 1) / 2;
        runs.into_iter().nth(at).map(|(measured, _)| measured)
    };
    Ok(Some(Real { measured: all.into_iter().filter_map(middle).collect(), notes }))
}

/// Whether a scenario can be run so.
///
/// # Errors
/// Why not.
pub fn check(scenario: &Scenario) -> Result<(), String> {
    Task::of(scenario).map(drop)
}

/// How far the repeats of a point are apart, and how well the relay kept its times.
fn note(runs: &[(Measured, Counted)]) -> String {
    let list = |of: &dyn Fn(&(Measured, Counted)) -> String| {
        runs.iter().map(of).collect::<Vec<_>>().join(", ")
    };
    let throughput =
        list(&|(measured, _)| format!("{:.2}", measured.report.flows[0].throughput_bps / 1e6));
    let drops = list(&|(measured, _)| measured.report.links[0].drops.to_string());
    let late =
        list(&|(_, [there, _])| format!("{:.1}", there.timing.max_late().as_secs_f64() * 1e3));
    let overflowed: u64 = runs.iter().flat_map(|(_, ways)| ways).map(|way| way.overflowed).sum();
    let missed = match overflowed {
        0 => String::new(),
        count => format!("; {count} datagrams lost before the relay could read them"),
    };
    format!(
        "{}: {throughput} Mb/s with {drops} drops; latest departure from the relay {late} ms late{missed}.",
        label(&runs[0].0.values)
    )
}

impl Task {
    fn of(scenario: &Scenario) -> Result<Task, String> {
        let [there, back] = scenario.links.as_slice() else {
            return Err("a relay has one link, in both directions".into());
        };
        let [flow] = scenario.flows.as_slice() else {
            return Err("one flow goes through a relay".into());
        };
        let Protocol::Udt(config) = &flow.protocol else {
            return Err("only UDT goes through a relay".into());
        };
        if (flow.from, flow.to) != (there.from, there.to) || !flow.start.is_zero() {
            return Err("the flow goes along the link from the start".into());
        }
        let round_trip = there.config.delay + back.config.delay;
        let link = |spec: &farhaul_sim::LinkSpec| {
            let queue = QueueConfig::parse(&spec.queue, round_trip).map_err(|e| e.to_string())?;
            Ok::<_, String>(LinkConfig { queue, ..spec.config.clone() })
        };
        Ok(Task { links: [link(there)?, link(back)?], law: config.law.clone(), mss: config.mss })
    }

    /// Sends for as long as the scenario says. None: stopped.
    fn run(
        &self,
        scenario: &Scenario,
        stop: &AtomicBool,
    ) -> std::io::Result<Option<(Report, Counted)>> {
        let options = Options::new().law(self.law.clone()).mss(self.mss);
        let listener = Listener::bind("127.0.0.1:0", &options)?;
        let mut config = RelayConfig::new(([127, 0, 0, 1], 0).into(), listener.local_addr());
        [config.forward, config.backward] = self.links.clone();
        // The seeds of both directions follow from it as they do in the simulator.
        config.seed = scenario.seed;
        let relay = Relay::bind(config)?.spawn()?;
        let began = Instant::now();
        let sender = Connection::connect(relay.local_addr(), &options)?;
        let receiver = listener.accept()?;
        let received = AtomicU64::new(0);
        let mut record = Record::default();
        let finished = thread::scope(|scope| {
            scope.spawn(|| {
                let block = Bytes::from(vec![0; WRITE]);
                while sender.send_bytes(block.clone()).is_ok() {}
            });
            scope.spawn(|| {
                while let Ok(Some(chunk)) = receiver.recv_chunk() {
                    received.fetch_add(chunk.len() as u64, Ordering::Relaxed);
                }
            });
            let counted = || {
                let stats = relay.stats();
                [stats.forward, stats.backward]
            };
            let finished = record.follow(scenario, began, stop, &|| Moment {
                at: began.elapsed(),
                bytes: received.load(Ordering::Relaxed),
                counted: counted(),
                stats: sender.stats(false).ok(),
            });
            sender.abort();
            receiver.abort();
            finished
        });
        relay.stop()?;
        let counted = record.edges[2].counted;
        Ok(finished.then(|| (record.report(scenario, self), counted)))
    }
}

/// How things stand at some time after the beginning.
#[derive(Clone, Debug, Default)]
struct Moment {
    at: Duration,
    /// Payload delivered.
    bytes: u64,
    counted: Counted,
    stats: Option<farhaul::Stats>,
}

/// What was seen of a run.
#[derive(Debug, Default)]
struct Record {
    samples: Vec<Moment>,
    /// The start and the end of measuring, and the end of the run.
    edges: [Moment; 3],
}

impl Record {
    /// Looks at each sample and edge until the end. False: stopped.
    fn follow(
        &mut self,
        scenario: &Scenario,
        began: Instant,
        stop: &AtomicBool,
        look: &dyn Fn() -> Moment,
    ) -> bool {
        let edges = [scenario.measure.0, scenario.measure.1, scenario.duration];
        loop {
            if stop.load(Ordering::Relaxed) {
                return false;
            }
            let sampled = scenario.sample * (self.samples.len() as u32 + 1);
            let missing = |n: &usize| self.edges[*n].at.is_zero();
            let edge = (0..3).filter(missing).min_by_key(|n| edges[*n]);
            let next = edge.map_or(sampled, |n| edges[n].min(sampled));
            thread::sleep(next.saturating_sub(began.elapsed()));
            let moment = look();
            if next == sampled {
                self.samples.push(moment.clone());
            }
            for (n, at) in edges.into_iter().enumerate() {
                if at == next {
                    self.edges[n] = moment.clone();
                }
            }
            if next >= scenario.duration {
                return true;
            }
        }
    }

    fn report(&self, scenario: &Scenario, task: &Task) -> Report {
        let [from, to, end] = &self.edges;
        let span = (to.at - from.at).as_secs_f64();
        let throughput = (to.bytes - from.bytes) as f64 * 8.0 / span;
        let spec = &scenario.flows[0];
        let sent = end.stats.map(|stats| stats.total.counters).unwrap_or_default();
        let of_sent = |count: u64| count as f64 / sent.packets_sent.max(1) as f64;
        let rtts = self.samples.iter().filter_map(|moment| moment.stats);
        let rtts: Vec<f64> = rtts.map(|stats| stats.instant.rtt.as_secs_f64() * 1e3).collect();
        let mut before = Moment::default();
        let mut series = Vec::new();
        for now in &self.samples {
            let span = (now.at - before.at).as_secs_f64();
            series.push((now.bytes - before.bytes) as f64 * 8.0 / span);
            before = now.clone();
        }
        let flow = FlowReport {
            arrivals: Vec::new(),
            name: spec.name.clone(),
            protocol: spec.protocol.name(),
            cc: spec.protocol.law(),
            start_s: 0.0,
            stop_s: scenario.duration.as_secs_f64(),
            ended: None,
            bytes: end.bytes,
            throughput_bps: throughput,
            packet_throughput_bps: throughput / spec.protocol.payload_share(),
            loss_rate: of_sent(sent.send_lost),
            packets_sent: sent.packets_sent,
            retransmitted: sent.packets_retransmitted,
            rtt_ms: Spread::of(&rtts),
            messages: None,
            transfers: None,
            series,
        };
        let links = (0..2).map(|way| {
            let at = |moment: &Moment| moment.counted[way].link;
            let name = scenario.links[way].name.clone();
            let queues = self.samples.iter().map(|moment| at(moment).queue.packets).collect();
            let measured = (from.at, to.at);
            LinkReport::new(name, &task.links[way], measured, [from, to, end].map(at), queues)
        });
        Report {
            title: scenario.title.clone(),
            seed: scenario.seed,
            duration_s: scenario.duration.as_secs_f64(),
            sample_s: scenario.sample.as_secs_f64(),
            measured_s: scenario.measured_s(),
            links: links.collect(),
            hosts: Vec::new(),
            indices: Indices {
                efficiency_bps: throughput,
                jain: Some(1.0),
                stability: None,
                tcp_friendliness: None,
            },
            flows: vec![flow],
            events: 0,
            packets: end.counted.iter().map(|way| way.received).sum(),
            wall_seconds: Some(end.at.as_secs_f64()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "duration = \"700ms\"\nmeasure_from = \"200ms\"\nsample = \"100ms\"\n\
        [[link]]\nfrom = \"a\"\nto = \"b\"\nrate = \"10M\"\ndelay = \"5ms\"\n\
        [[flow]]\nfrom = \"a\"\nto = \"b\"\n";

    #[test]
    fn a_scenario_runs_on_real_sockets() {
        let plan = Plan::parse(TEXT, &[], None).unwrap();
        let stop = AtomicBool::new(false);
        let Real { measured, notes } = run(&plan, 1, &|_| {}, &stop).unwrap().unwrap();
        let report = &measured[0].report;
        assert_eq!((measured.len(), report.flows[0].series.len(), notes.len()), (1, 7, 2));
        let rate = report.flows[0].throughput_bps;
        assert!((1e6..10.5e6).contains(&rate), "{rate}");
        assert!(report.flows[0].packets_sent > 100 && report.links[0].queue.max > 0);
    }

    #[test]
    fn what_a_relay_cannot_do_is_said() {
        let error = |text: &str| {
            let plan = Plan::parse(text, &[], None).unwrap();
            check(&plan.point(0).unwrap().scenario).unwrap_err()
        };
        let tcp = format!("{TEXT}protocol = \"tcp-cubic\"\n");
        assert_eq!(error(&tcp), "only UDT goes through a relay");
        let two = format!("{TEXT}count = 2\n");
        assert_eq!(error(&two), "one flow goes through a relay");
    }
}
