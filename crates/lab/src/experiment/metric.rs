//! Measurements by name.

use farhaul_sim::{FlowReport, Report, indices};
use serde::Deserialize;

use super::equation::PACKET_BITS;
use crate::statistics::mean;
use crate::sweep::Measured;

/// A measurement, as files name it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Metric {
    /// Its name in the file.
    pub name: String,
    what: What,
}

/// What is measured. Flows are the bulk flows unless they are named: neither of constant rate nor
/// short transfers.
#[derive(Clone, Debug, PartialEq)]
enum What {
    /// `throughput`: all flows' payload, Mb/s.
    Throughput,
    /// `packets`: the same in whole packets, Mb/s, as the dissertation counts.
    Packets,
    /// `share`: `packets` over the rate of the first link.
    Share,
    /// `arrival_share`: as `share`, of what arrives, in whatever order: never more than all.
    ArrivalShare,
    /// `share_whole`: `share` over the whole run, the start included.
    ShareWhole,
    /// `flow:F`: the flow named F in whole packets, Mb/s.
    Flow(String),
    /// `share:F`: the same over the rate of the first link.
    ShareOf(String),
    /// `ratio:A:B`: mean throughput of the flows whose names begin with A over that of those with B.
    Ratio(String, String),
    /// `utilisation`, `utilisation:L`: of the first link, of link L.
    Utilisation(Option<String>),
    /// `fairness`: Jain's index of what is delivered in order.
    Fairness,
    /// `stability`: the stability index of the same.
    Stability,
    /// `arrival_fairness`, `arrival_stability`: the same indices of what arrives, in whatever order.
    ArrivalFairness,
    ArrivalStability,
    /// `friendliness`: the TCP friendliness index.
    Friendliness,
    /// `loss`: share of the data packets sent that were lost.
    Loss,
    /// `loss:F`: the same share of the flow named F.
    LossOf(String),
    /// `lost`: data packets lost.
    Lost,
    /// `rtt`: mean of the flows' smoothed RTT, ms.
    Rtt,
    /// `window`: mean window, packets: whole packets delivered a second, times `rtt`.
    Window,
    /// `queue`: mean fill of the first link's, packets.
    Queue,
    /// `queue_delay`: how long a packet waits in the first link's queue, ms: its mean fill over its rate.
    QueueDelay,
    /// `peak_queue:L`: the largest fill of link L, packets, in the whole run.
    PeakQueue(String),
    /// `drops`: of the first link, packets.
    Drops,
    /// `time_to:S`: seconds until the throughput first reaches the share S of the first link.
    TimeTo(f64),
    /// `reach:S:T`: seconds from the instant T, in seconds, to the end of the first sample from which
    /// on what arrives of all flows is the share S of the first link for a second, on average.
    Reach(f64, f64),
    /// `join:F:S`: the same from the start of the flow named F, of what arrives of it.
    Join(String, f64),
    /// `slowdown:F`: how long the flow named F took for its bytes, as a multiple of what the first link needs to
    /// send them and two round trips, one of which sets it up. Of a flow that does not end, for what
    /// it has delivered.
    Slowdown(String),
    /// `tracking`: mean of 1 - |throughput - free| / free over the samples, free being what the
    /// flows of constant rate leave of the first link.
    Tracking,
    /// `response_up:S`, `response_down:S`: the longest time, s, from a rise or fall of what is free
    /// to the end of the first sample within the share 1 - S of it; up to the next change if there
    /// is none.
    ResponseUp(f64),
    ResponseDown(f64),
    /// `speed`: simulated packets a second of wall time.
    Speed,
}

/// What a measurement is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About<'a> {
    /// The flow of that name.
    Flow(&'a str),
    /// The flows whose names begin so.
    Flows(&'a str),
    /// The link of that name.
    Link(&'a str),
}

impl TryFrom<String> for Metric {
    type Error = String;

    fn try_from(name: String) -> Result<Metric, String> {
        let number = |text: &str, what: &str| {
            let read = text.parse().ok().filter(|number: &f64| number.is_finite());
            read.ok_or_else(|| format!("'{name}': write {what}"))
        };
        let share = |text: &str| number(text, "a share, as 0.9");
        let parts: Vec<&str> = name.split(':').collect();
        let what = match parts.as_slice() {
            ["throughput"] => What::Throughput,
            ["packets"] => What::Packets,
            ["share"] => What::Share,
            ["arrival_share"] => What::ArrivalShare,
            ["share", flow] => What::ShareOf((*flow).into()),
            ["share_whole"] => What::ShareWhole,
            ["flow", flow] => What::Flow((*flow).into()),
            ["ratio", above, below] => What::Ratio((*above).into(), (*below).into()),
            ["utilisation"] => What::Utilisation(None),
            ["utilisation", link] => What::Utilisation(Some((*link).into())),
            ["fairness"] => What::Fairness,
            ["stability"] => What::Stability,
            ["arrival_fairness"] => What::ArrivalFairness,
            ["arrival_stability"] => What::ArrivalStability,
            ["friendliness"] => What::Friendliness,
            ["loss"] => What::Loss,
            ["loss", flow] => What::LossOf((*flow).into()),
            ["lost"] => What::Lost,
            ["rtt"] => What::Rtt,
            ["window"] => What::Window,
            ["queue"] => What::Queue,
            ["queue_delay"] => What::QueueDelay,
            ["peak_queue", link] => What::PeakQueue((*link).into()),
            ["drops"] => What::Drops,
            ["time_to", text] => What::TimeTo(share(text)?),
            ["reach", text, at] => What::Reach(share(text)?, number(at, "seconds, as 12.5")?),
            ["join", flow, text] => What::Join((*flow).into(), share(text)?),
            ["slowdown", flow] => What::Slowdown((*flow).into()),
            ["tracking"] => What::Tracking,
            ["response_up", text] => What::ResponseUp(share(text)?),
            ["response_down", text] => What::ResponseDown(share(text)?),
            ["speed"] => What::Speed,
            _ => return Err(format!("there is no measurement '{name}'")),
        };
        Ok(Metric { name, what })
    }
}

impl Metric {
    /// Its values for the runs that have one.
    pub(crate) fn sample<'a>(&self, runs: impl IntoIterator<Item = &'a Measured>) -> Vec<f64> {
        runs.into_iter().filter_map(|run| self.of(&run.report)).collect()
    }

    /// Its name as it may stand in a legend.
    pub(crate) fn shown(&self) -> String {
        self.name.replace(':', " ")
    }

    /// What it is about, if it names flows or a link.
    pub(crate) fn refers_to(&self) -> Vec<About<'_>> {
        match &self.what {
            What::Flow(name)
            | What::ShareOf(name)
            | What::Join(name, _)
            | What::LossOf(name)
            | What::Slowdown(name) => vec![About::Flow(name)],
            What::Ratio(above, below) => vec![About::Flows(above), About::Flows(below)],
            What::Utilisation(Some(link)) | What::PeakQueue(link) => vec![About::Link(link)],
            _ => Vec::new(),
        }
    }

    /// Its value; none where there is nothing to measure.
    pub(crate) fn of(&self, report: &Report) -> Option<f64> {
        let bulk = |flow: &&FlowReport| flow.transfers.is_none() && flow.protocol != "cbr";
        let flows: Vec<&FlowReport> = report.flows.iter().filter(bulk).collect();
        let packets = || flows.iter().map(|flow| flow.packet_throughput_bps).sum::<f64>() / 1e6;
        let link = report.links.first();
        let rate = link.and_then(|link| link.rate_bps);
        match &self.what {
            What::Throughput => {
                Some(flows.iter().map(|flow| flow.throughput_bps).sum::<f64>() / 1e6)
            }
            What::Packets => Some(packets()),
            What::Share => Some(packets() * 1e6 / rate?),
            What::ArrivalShare => {
                let arrived = |flow: &&FlowReport| {
                    let samples: Vec<f64> = flow.in_packets(&flow.arrivals).collect();
                    measured(report, flow, &samples).iter().sum::<f64>()
                };
                // Of each flow while it was there, over all of the time.
                let (from, to) = report.measured_s;
                let bits = flows.iter().map(arrived).sum::<f64>() * report.sample_s;
                Some(bits / (to - from) / rate?)
            }
            What::ShareWhole => {
                let whole: f64 = flows.iter().map(|flow| mean_of_series(flow)).sum();
                Some(whole / rate?)
            }
            What::Flow(name) => Some(flow_named(report, name)?.packet_throughput_bps / 1e6),
            What::ShareOf(name) => Some(flow_named(report, name)?.packet_throughput_bps / rate?),
            What::Ratio(above, below) => {
                let mean_of = |prefix: &str| {
                    let flows = report.flows.iter().filter(|flow| flow.name.starts_with(prefix));
                    let values: Vec<f64> = flows.map(|flow| flow.packet_throughput_bps).collect();
                    mean(&values)
                };
                Some(mean_of(above)? / mean_of(below).filter(|below| *below > 0.0)?)
            }
            What::Utilisation(None) => link?.utilisation,
            What::Utilisation(Some(name)) => {
                report.links.iter().find(|link| link.name == *name)?.utilisation
            }
            What::Fairness => {
                let throughputs: Vec<f64> = flows.iter().map(|flow| flow.throughput_bps).collect();
                indices::jain(&throughputs)
            }
            What::Stability => {
                let samples: Vec<&[f64]> =
                    flows.iter().map(|f| measured(report, f, &f.series)).collect();
                indices::stability(&samples)
            }
            What::ArrivalFairness => {
                let sums: Vec<f64> =
                    flows.iter().map(|f| measured(report, f, &f.arrivals).iter().sum()).collect();
                indices::jain(&sums)
            }
            What::ArrivalStability => {
                let samples: Vec<&[f64]> =
                    flows.iter().map(|f| measured(report, f, &f.arrivals)).collect();
                indices::stability(&samples)
            }
            What::Friendliness => report.indices.tcp_friendliness,
            What::Loss => loss(&flows),
            What::LossOf(name) => Some(flow_named(report, name)?.loss_rate),
            What::Lost => Some(lost(&flows).round()),
            What::Rtt => mean_rtt(&flows),
            What::Window => {
                let in_flight = packets() * 1e6 / PACKET_BITS * mean_rtt(&flows)? / 1e3;
                Some(in_flight / flows.len() as f64)
            }
            What::Queue => Some(link?.queue.mean),
            What::QueueDelay => Some(link?.queue.mean * PACKET_BITS / rate? * 1e3),
            What::PeakQueue(name) => {
                Some(report.links.iter().find(|link| link.name == *name)?.queue.max as f64)
            }
            What::Drops => Some(link?.drops as f64),
            What::TimeTo(share) => time_to(report, share * rate?),
            What::Reach(share, from) => reach(report, &flows, *from, share * rate?),
            What::Slowdown(name) => slowdown(report, flow_named(report, name)?, rate?),
            What::Join(name, share) => {
                let flow = flow_named(report, name)?;
                reach(report, &[flow], flow.start_s, share * rate?)
            }
            What::Tracking => tracking(report, rate?),
            What::ResponseUp(share) => response(report, rate?, *share, true),
            What::ResponseDown(share) => response(report, rate?, *share, false),
            What::Speed => report.wall_seconds.map(|wall| report.packets as f64 / wall.max(1e-9)),
        }
    }
}

/// The flow of that name, if there is one.
pub(crate) fn flow_named<'a>(report: &'a Report, name: &str) -> Option<&'a FlowReport> {
    report.flows.iter().find(|flow| flow.name == name)
}

/// Data packets that the flows lost.
fn lost(flows: &[&FlowReport]) -> f64 {
    flows.iter().map(|flow| flow.loss_rate * flow.packets_sent as f64).sum()
}

/// Share of the flows' data packets that were lost; none if none were sent.
pub(crate) fn loss(flows: &[&FlowReport]) -> Option<f64> {
    let sent: u64 = flows.iter().map(|flow| flow.packets_sent).sum();
    (sent > 0).then(|| lost(flows) / sent as f64)
}

/// Mean of the flows' smoothed round-trip times, milliseconds.
pub(crate) fn mean_rtt(flows: &[&FlowReport]) -> Option<f64> {
    let means: Vec<f64> = flows.iter().filter_map(|flow| Some(flow.rtt_ms?.mean)).collect();
    mean(&means)
}

/// Those of a flow's samples that were taken while it was measured.
fn measured<'a>(report: &Report, flow: &FlowReport, series: &'a [f64]) -> &'a [f64] {
    flow.measured(series, report.sample_s, report.measured_s)
}

/// What the flows have together in each sample, in whole packets; as many samples as the longest of
/// their `series` has.
fn together<'a>(
    flows: impl IntoIterator<Item = &'a FlowReport>,
    series: impl Fn(&FlowReport) -> &[f64],
) -> Vec<f64> {
    let mut sums = Vec::new();
    for flow in flows {
        let series = series(flow);
        sums.resize(sums.len().max(series.len()), 0.0);
        flow.in_packets(series).zip(&mut sums).for_each(|(sample, sum)| *sum += sample);
    }
    sums
}

/// A flow's mean throughput in whole packets over the whole run.
fn mean_of_series(flow: &FlowReport) -> f64 {
    let samples: Vec<f64> = flow.in_packets(&flow.series).collect();
    mean(&samples).unwrap_or(0.0)
}

/// Seconds from the first flow's start to the end of the first sample in which the flows together
/// reach `rate`.
fn time_to(report: &Report, rate: f64) -> Option<f64> {
    let sums = together(&report.flows, |flow| &flow.series);
    let reached = sums.iter().position(|sum| *sum >= rate)?;
    let start = report.flows.iter().map(|flow| flow.start_s).reduce(f64::min)?;
    Some((reached + 1) as f64 * report.sample_s - start)
}

/// Seconds from the instant `from` to the end of the first sample that, as the second it begins does
/// on average, has `rate` of what arrives of the flows together.
fn reach(report: &Report, flows: &[&FlowReport], from: f64, rate: f64) -> Option<f64> {
    let sums = together(flows.iter().copied(), |flow| &flow.arrivals);
    let second = (1.0 / report.sample_s).round().max(1.0) as usize;
    // A hair's breadth is rounding.
    let first = (from / report.sample_s - 1e-9).ceil().max(0.0) as usize;
    let mut seconds = sums.get(first..)?.windows(second);
    let reached = |second: &[f64]| second[0] >= rate && mean(second).is_some_and(|m| m >= rate);
    let after = seconds.position(reached)?;
    Some((first + after + 1) as f64 * report.sample_s - from)
}

/// See [`What::Slowdown`]; none of a flow that has delivered nothing. The round trip is the shortest of all flows:
/// one that meets a queue from the beginning does not know it.
fn slowdown(report: &Report, flow: &FlowReport, rate: f64) -> Option<f64> {
    let rtts = report.flows.iter().filter_map(|flow| Some(flow.rtt_ms?.min));
    let rtt = rtts.reduce(f64::min)? / 1e3;
    let took = flow.stop_s - flow.start_s;
    (flow.bytes > 0).then(|| took / (flow.bytes as f64 * 8.0 / rate + 2.0 * rtt))
}

/// What others leave free of a link of `rate`, and what the flows use of it, in the samples that
/// were measured.
fn free_and_used(report: &Report, rate: f64) -> Vec<(f64, f64)> {
    let (from, to) = report.measured_s;
    let range = (from / report.sample_s).ceil() as usize..(to / report.sample_s) as usize;
    let sums = |constant: bool| {
        let flows = report.flows.iter().filter(|flow| (flow.protocol == "cbr") == constant);
        let mut sums = together(flows, |flow| &flow.series);
        // Where there are no such flows.
        sums.resize(range.end, 0.0);
        sums
    };
    let (taken, used) = (sums(true), sums(false));
    range.map(|n| (rate - taken[n], used[n])).collect()
}

/// How well the flows follow what others leave free of a link of `rate`: 1 is perfect.
fn tracking(report: &Report, rate: f64) -> Option<f64> {
    let samples = free_and_used(report, rate);
    let some_free = samples.iter().filter(|(free, _)| *free > 0.0);
    let quality: Vec<f64> =
        some_free.map(|(free, used)| 1.0 - (used - free).abs() / free).collect();
    mean(&quality)
}

/// The longest time that the flows took to come within the share `1 - share` of what is free, after
/// it rose, or fell, by a tenth of the link from one sample to the next.
fn response(report: &Report, rate: f64, share: f64, rises: bool) -> Option<f64> {
    let samples = free_and_used(report, rate);
    let step = |n: usize| (samples[n].0 - samples[n - 1].0) / rate;
    let changes: Vec<usize> = (1..samples.len()).filter(|n| step(*n).abs() > 0.1).collect();
    let ends = changes.iter().skip(1).copied().chain([samples.len()]);
    let times = changes.iter().zip(ends).filter(|(at, _)| (step(**at) > 0.0) == rises);
    times
        .map(|(at, end)| {
            let near = |(free, used): &(f64, f64)| (used - free).abs() <= (1.0 - share) * free;
            let after = &samples[*at..end];
            let taken = after.iter().position(near).map_or(after.len(), |found| found + 1);
            taken as f64 * report.sample_s
        })
        .reduce(f64::max)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// What a moment of a scenario with one flow, `udt`, over one link, `l`, has measured.
    pub(crate) fn one_flow() -> Report {
        report(
            "duration = \"100ms\"\n[[link]]\nname = \"l\"\nfrom = \"a\"\nto = \"b\"\n\
             rate = \"10M\"\n[[flow]]\nname = \"udt\"\nfrom = \"a\"\nto = \"b\"\n",
        )
    }

    fn report(text: &str) -> Report {
        let plan = farhaul_sim::Plan::parse(text, &[], None).expect("a plan");
        let mut run = plan.point(0).expect("a point").scenario.start();
        while run.step() {}
        run.finish()
    }

    fn metric(name: &str) -> Metric {
        name.to_owned().try_into().expect("a measurement")
    }

    #[test]
    fn what_is_no_measurement_is_told() {
        for name in [
            "speed:",
            "shares",
            "flow",
            "ratio:a",
            "time_to",
            "response_up:x",
            "reach:1",
            "reach:1:nan",
            "",
        ] {
            assert!(Metric::try_from(name.to_owned()).is_err(), "{name}");
        }
    }

    #[test]
    fn a_flow_or_link_that_is_not_there_has_no_value() {
        let report = one_flow();
        let names = ["flow:ud", "ratio:udt:tcp", "ratio:tcp:udt", "utilisation:x", "tracking:x"];
        for name in names.into_iter().chain(["join:ud:0.5", "peak_queue:x"]) {
            let value = Metric::try_from(name.to_owned()).ok().and_then(|m| m.of(&report));
            assert_eq!(value, None, "{name}");
        }
        assert_eq!(metric("ratio:u:udt").of(&report), Some(1.0));
        assert_eq!(metric("utilisation:l").of(&report), metric("utilisation").of(&report));
    }

    #[test]
    fn of_a_flow_beside_a_constant_rate() {
        let report = report(
            "duration = \"10s\"\nsample = \"500ms\"\n[[link]]\nfrom = \"a\"\nto = \"b\"\n\
             rate = \"10M\"\ndelay = \"5ms\"\n[[flow]]\nname = \"udt\"\nfrom = \"a\"\nto = \"b\"\n\
             [[flow]]\nprotocol = \"cbr\"\nfrom = \"a\"\nto = \"b\"\n\
             schedule = [\"0s:0\", \"4s:5M\", \"7s:0\"]\n",
        );
        let value = |name: &str| metric(name).of(&report).expect("a value");
        assert!((0.5..=1.0).contains(&value("tracking")), "{}", value("tracking"));
        // It yields at once; what it takes back, it takes until the next change at most.
        assert!(value("response_down:0.8") <= 1.0, "{}", value("response_down:0.8"));
        assert!((0.5..=3.0).contains(&value("response_up:0.8")), "{}", value("response_up:0.8"));
        assert_eq!(value("arrival_fairness"), 1.0);
        assert!((value("arrival_share") / value("share") - 1.0).abs() < 0.02);
        // What has arrived has been delivered by the end, but for the last gap.
        let sum = |series: &[f64]| series.iter().sum::<f64>();
        let flow = &report.flows[0];
        assert!((sum(&flow.arrivals) / sum(&flow.series) - 1.0).abs() < 0.02);
    }

    /// One flow, `udt`, of which so much has arrived in each sample of half a second.
    fn arriving(arrivals: &[f64]) -> Report {
        let mut report = one_flow();
        let flow = &mut report.flows[0];
        (flow.throughput_bps, flow.packet_throughput_bps) = (1.0, 1.0);
        flow.arrivals = arrivals.iter().map(|share| share * 10e6).collect();
        report.sample_s = 0.5;
        report
    }

    #[test]
    fn a_share_is_reached_once_it_is_held_for_a_second() {
        let report = arriving(&[0.0, 0.95, 0.1, 0.92, 0.9, 0.2, 0.4, 0.8, 1.0]);
        let value = |name: &str| metric(name).of(&report);
        assert_eq!(value("reach:0.9:0"), Some(2.0));
        assert_eq!(value("reach:0.9:1"), Some(1.0));
        // Sample 4 does not hold it, and after sample 8 there is no whole second.
        assert_eq!(value("reach:0.9:2"), None);
        assert_eq!(value("reach:0.8:2"), Some(2.0));
        // A sample that has begun by then does not count.
        assert_eq!(value("reach:0.9:0.6"), Some(1.4));
        assert_eq!(value("reach:0.9:100"), None);
        assert_eq!(value("join:udt:0.9"), Some(2.0));
    }

    #[test]
    fn a_flow_joins_from_its_start_on() {
        let mut report = arriving(&[0.0, 0.0, 0.0, 0.1, 0.4, 0.5]);
        report.flows[0].start_s = 1.0;
        let mut other = report.flows[0].clone();
        other.name = "other".into();
        other.arrivals = [1.0, 1.0, 0.9, 0.8, 0.6, 0.5].map(|share| share * 10e6).into();
        report.flows.insert(0, other);
        assert_eq!(metric("join:udt:0.4").of(&report), Some(1.5));
        assert_eq!(metric("join:udt:0.6").of(&report), None);
        // All flows together.
        assert_eq!(metric("reach:0.9:0").of(&report), Some(0.5));
    }

    #[test]
    fn the_largest_queue_is_that_of_the_link() {
        let mut report = one_flow();
        let mut other = report.links[0].clone();
        other.name = "access".into();
        other.queue.max = 77;
        report.links.push(other);
        assert_eq!(metric("peak_queue:access").of(&report), Some(77.0));
        let own = report.links[0].queue.max as f64;
        assert_eq!(metric("peak_queue:l").of(&report), Some(own));
    }

    #[test]
    fn a_packet_waits_for_those_before_it() {
        let mut report = one_flow();
        report.links[0].queue.mean = 50.0;
        // Another link's queue is not in the way.
        report.links.push(report.links[0].clone());
        report.links[1].queue.mean = 500.0;
        let wait = metric("queue_delay").of(&report).expect("a delay");
        assert!((wait - 60.0).abs() < 1e-9, "50 of 1500 bytes at 10 Mb/s: {wait} ms");
        report.links[0].rate_bps = Some(40e6);
        let wait = metric("queue_delay").of(&report).expect("a delay");
        assert!((wait - 15.0).abs() < 1e-9, "at 40 Mb/s: {wait} ms");
        report.links[0].rate_bps = None;
        assert_eq!(metric("queue_delay").of(&report), None, "a link without a rate");
    }

    #[test]
    fn a_wait_is_what_the_round_trip_has_grown_by() {
        let report = report(
            "duration = \"20s\"\nmeasure_from = \"10s\"\n[[link]]\nfrom = \"a\"\nto = \"b\"\n\
             rate = \"10M\"\ndelay = \"10ms\"\nqueue = \"60p\"\n[[flow]]\nfrom = \"a\"\nto = \"b\"\n\
             cc = \"cubic\"\n",
        );
        let (wait, rtt) = (metric("queue_delay").of(&report), metric("rtt").of(&report));
        let (wait, grown) = (wait.expect("a delay"), rtt.expect("a round trip") - 20.0);
        assert!(wait > 20.0 && (wait / grown - 1.0).abs() < 0.2, "{wait} ms of {grown} ms");
    }

    #[test]
    fn losses_of_a_flow_are_its_own() {
        let mut report = one_flow();
        (report.flows[0].loss_rate, report.flows[0].packets_sent) = (0.02, 3000);
        let mut call = report.flows[0].clone();
        (call.name, call.protocol) = ("call".into(), "cbr".into());
        (call.loss_rate, call.packets_sent) = (0.3, 10);
        report.flows.push(call);
        assert_eq!(metric("loss:call").of(&report), Some(0.3));
        assert_eq!(metric("loss:udt").of(&report), Some(0.02));
        // What has a constant rate is no bulk flow.
        assert_eq!(metric("loss").of(&report), Some(0.02));
        assert_eq!(metric("loss:cal").of(&report), None);
    }

    #[test]
    fn a_slowdown_is_a_multiple_of_the_least_time() {
        let mut report = one_flow();
        let flow = &mut report.flows[0];
        // A second on the line, and two round trips.
        (flow.bytes, flow.start_s, flow.stop_s) = (1_250_000, 3.0, 5.2);
        let rtt = |min: f64| Some(farhaul_sim::Spread { min, mean: 2.0 * min, max: 4.0 * min });
        flow.rtt_ms = rtt(50.0);
        let value = |report: &Report| metric("slowdown:udt").of(report);
        assert_eq!(value(&report), Some(2.0));
        // Another flow has seen a shorter round trip: that is the path's.
        let mut other = report.flows[0].clone();
        (other.name, other.rtt_ms) = ("other".into(), rtt(25.0));
        report.flows.push(other);
        let slower = value(&report).expect("a slowdown");
        assert!((slower - 2.2 / 1.05).abs() < 1e-9, "{slower}");
        report.flows[0].bytes = 0;
        assert_eq!(value(&report), None, "nothing has arrived");
        assert_eq!(metric("slowdown:short").of(&report), None);
    }

    #[test]
    fn a_short_flow_alone_is_slowed_by_its_start_and_more_by_another_flow() {
        let run = |beside: &str| {
            let report = report(&format!(
                "duration = \"20s\"\n[[link]]\nfrom = \"a\"\nto = \"b\"\nrate = \"10M\"\ndelay = \"10ms\"\n\
                 queue = \"100p\"\n[[flow]]\nname = \"short\"\nfrom = \"a\"\nto = \"b\"\n\
                 protocol = \"tcp-cubic\"\nbytes = \"200kB\"\nstart = \"5s\"\n{beside}"
            ));
            metric("slowdown:short").of(&report).expect("it has ended")
        };
        let alone = run("");
        let beside = run("[[flow]]\nname = \"long\"\nfrom = \"a\"\nto = \"b\"\ncc = \"cubic\"\n");
        assert!((1.0..2.5).contains(&alone), "{alone}");
        assert!(beside > 1.5 * alone, "{beside} beside another flow, {alone} alone");
    }
}
