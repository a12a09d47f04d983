//! Measurements by name.
//!
//! | name | what |
//! |---|---|
//! | `throughput` | all bulk flows' payload, Mb/s |
//! | `packets` | the same in whole packets, Mb/s, as the dissertation counts |
//! | `share` | `packets` over the rate of the first link |
//! | `share_whole` | the same over the whole run, the start included |
//! | `share:F` | the same for the flows whose names begin with F |
//! | `flow:F` | the flow named F in whole packets, Mb/s |
//! | `ratio:A:B` | mean throughput of the flows A… over that of the flows B… |
//! | `utilisation`, `utilisation:L` | of the first link, of link L |
//! | `fairness`, `fairness:F` | Jain's index of all bulk flows, of the flows F… |
//! | `stability`, `stability:F` | the same for the stability index |
//! | `arrival_fairness`, `arrival_stability`, with `:F` | the same indices of what arrives, in whatever order; the others take what is delivered in order |
//! | `friendliness` | the TCP friendliness index |
//! | `loss`, `retransmitted` | share of the data packets sent |
//! | `lost` | data packets lost |
//! | `rtt` | mean of the flows' smoothed RTT, ms |
//! | `queue`, `drops` | of the first link, packets |
//! | `time_to:S` | seconds until the throughput first reaches the share S of the first link |
//! | `tracking` | mean of 1 - |throughput - free| / free over the samples, free being what the flows of constant rate leave of the first link |
//! | `response_up:S`, `response_down:S` | the longest time, s, from a rise or fall of what is free to the end of the first sample within the share 1 - S of it; up to the next change if there is none |
//! | `window` | mean window, packets: whole packets delivered a second, times `rtt` |
//! | `speed` | simulated packets a second of wall time |
//! | `transfers_ms` | mean duration of short transfers, ms |

use super::equation::PACKET_BITS;
use farhaul_sim::{FlowReport, Report, indices};

/// The measurement of that name; none where there is nothing to measure.
///
/// # Errors
/// There is no such measurement.
pub(super) fn measure(name: &str, report: &Report) -> Result<Option<f64>, String> {
    let (kind, rest) = name.split_once(':').unwrap_or((name, ""));
    let bulk = |flow: &&FlowReport| flow.transfers.is_none() && flow.protocol != "cbr";
    let named = |flow: &&FlowReport| {
        if rest.is_empty() { bulk(flow) } else { flow.name.starts_with(rest) }
    };
    let flows: Vec<&FlowReport> = report.flows.iter().filter(named).collect();
    let packets = || flows.iter().map(|flow| flow.packet_throughput_bps).sum::<f64>() / 1e6;
    let first_rate = report.links.first().and_then(|link| link.rate_bps);
    let sent: u64 = flows.iter().map(|flow| flow.packets_sent).sum();
    let lost: f64 = flows.iter().map(|flow| flow.loss_rate * flow.packets_sent as f64).sum();
    let of_sent = |count: f64| (sent > 0).then(|| count / sent as f64);
    let link = report.links.iter().find(|link| rest.is_empty() || link.name == rest);
    Ok(match kind {
        "throughput" => Some(flows.iter().map(|flow| flow.throughput_bps).sum::<f64>() / 1e6),
        "packets" => Some(packets()),
        "share" => first_rate.map(|rate| packets() * 1e6 / rate),
        "share_whole" => {
            let whole: f64 = flows.iter().map(|flow| mean_of_series(flow)).sum();
            first_rate.map(|rate| whole / rate)
        }
        "flow" => {
            let flow = report.flows.iter().find(|flow| flow.name == rest);
            flow.map(|flow| flow.packet_throughput_bps / 1e6)
        }
        "ratio" => {
            let (above, below) = rest.split_once(':').ok_or("write ratio:A:B")?;
            let mean = |prefix: &str| {
                let flows = report.flows.iter().filter(|flow| flow.name.starts_with(prefix));
                let values: Vec<f64> = flows.map(|flow| flow.packet_throughput_bps).collect();
                crate::statistics::mean(&values)
            };
            match (mean(above), mean(below)) {
                (Some(above), Some(below)) if below > 0.0 => Some(above / below),
                _ => None,
            }
        }
        "utilisation" => link.and_then(|link| link.utilisation),
        "queue" => link.map(|link| link.queue.mean),
        "drops" => link.map(|link| link.drops as f64),
        "fairness" => {
            let throughputs: Vec<f64> = flows.iter().map(|flow| flow.throughput_bps).collect();
            indices::jain(&throughputs)
        }
        "stability" => {
            let samples: Vec<&[f64]> =
                flows.iter().map(|f| measured(report, f, &f.series)).collect();
            indices::stability(&samples)
        }
        "arrival_fairness" | "arrival_stability" => {
            let samples: Vec<&[f64]> =
                flows.iter().map(|f| measured(report, f, &f.arrivals)).collect();
            if kind == "arrival_stability" {
                indices::stability(&samples)
            } else {
                let sums: Vec<f64> = samples.iter().map(|samples| samples.iter().sum()).collect();
                indices::jain(&sums)
            }
        }
        "friendliness" => report.indices.tcp_friendliness,
        "loss" => of_sent(lost),
        "lost" => Some(lost.round()),
        "retransmitted" => of_sent(flows.iter().map(|flow| flow.retransmitted as f64).sum()),
        "rtt" => {
            let means: Vec<f64> = flows.iter().filter_map(|flow| Some(flow.rtt_ms?.mean)).collect();
            crate::statistics::mean(&means)
        }
        "window" => {
            let rtts: Vec<f64> = flows.iter().filter_map(|flow| Some(flow.rtt_ms?.mean)).collect();
            crate::statistics::mean(&rtts)
                .map(|rtt| packets() * 1e6 / PACKET_BITS * rtt / 1e3 / flows.len() as f64)
        }
        "speed" => report.wall_seconds.map(|seconds| report.packets as f64 / seconds.max(1e-9)),
        "time_to" => {
            let share: f64 = rest.parse().map_err(|_| format!("'{name}': write time_to:0.9"))?;
            first_rate.and_then(|rate| time_to(report, share * rate))
        }
        "tracking" => first_rate.and_then(|rate| tracking(report, rate)),
        "response_up" | "response_down" => {
            let share: f64 = rest.parse().map_err(|_| format!("'{name}': write {kind}:0.9"))?;
            first_rate.and_then(|rate| response(report, rate, share, kind == "response_up"))
        }
        "transfers_ms" => {
            let means = report.flows.iter().filter_map(|flow| Some(flow.transfers?.mean_s * 1e3));
            crate::statistics::mean(&means.collect::<Vec<_>>())
        }
        _ => return Err(format!("there is no measurement '{name}'")),
    })
}

/// Those of a flow's samples that were taken while it was measured.
fn measured<'a>(report: &Report, flow: &FlowReport, series: &'a [f64]) -> &'a [f64] {
    let from = flow.start_s.max(report.measured_s.0);
    let to = flow.stop_s.min(report.measured_s.1);
    let first = (from / report.sample_s - 1e-9).ceil().max(0.0) as usize;
    let last = (to / report.sample_s + 1e-9).floor().max(0.0) as usize;
    series.get(first..last.min(series.len())).unwrap_or_default()
}

/// A flow's throughput in whole packets in each sample.
fn packet_series(flow: &FlowReport) -> impl Iterator<Item = f64> {
    let factor = if flow.throughput_bps > 0.0 {
        flow.packet_throughput_bps / flow.throughput_bps
    } else {
        1.0
    };
    flow.series.iter().map(move |sample| sample * factor)
}

/// A flow's mean throughput in whole packets over the whole run.
fn mean_of_series(flow: &FlowReport) -> f64 {
    let samples: Vec<f64> = packet_series(flow).collect();
    crate::statistics::mean(&samples).unwrap_or(0.0)
}

/// Seconds from the first flow's start to the end of the first sample in which the flows together
/// reach `rate`.
fn time_to(report: &Report, rate: f64) -> Option<f64> {
    let samples = report.flows.iter().map(|flow| flow.series.len()).max()?;
    let mut sums = vec![0.0; samples];
    for flow in &report.flows {
        packet_series(flow).zip(&mut sums).for_each(|(sample, sum)| *sum += sample);
    }
    let reached = sums.iter().position(|sum| *sum >= rate)?;
    let start = report.flows.iter().map(|flow| flow.start_s).reduce(f64::min)?;
    Some((reached + 1) as f64 * report.sample_s - start)
}

/// What others leave free of a link of `rate`, and what the flows use of it, in the samples that
/// were measured.
fn free_and_used(report: &Report, rate: f64) -> Vec<(f64, f64)> {
    let (from, to) = report.measured_s;
    let range = (from / report.sample_s).ceil() as usize..(to / report.sample_s) as usize;
    let sums = |constant: bool| {
        let mut sums = vec![0.0; range.end];
        for flow in report.flows.iter().filter(|flow| (flow.protocol == "cbr") == constant) {
            packet_series(flow).zip(&mut sums).for_each(|(sample, sum)| *sum += sample);
        }
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
    crate::statistics::mean(&quality)
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
pub(super) mod tests {
    use super::*;

    /// Of a scenario that is simulated.
    pub(in crate::experiment) fn report(text: &str) -> Report {
        let plan = farhaul_sim::Plan::parse(text, &[], None).expect("a plan");
        let mut run = plan.point(0).expect("a point").scenario.start();
        while run.step() {}
        run.finish()
    }

    #[test]
    fn of_a_flow_beside_a_constant_rate() {
        let report = report(
            "duration = \"10s\"\nsample = \"500ms\"\n[[link]]\nfrom = \"a\"\nto = \"b\"\n\
             rate = \"10M\"\ndelay = \"5ms\"\n[[flow]]\nname = \"udt\"\nfrom = \"a\"\nto = \"b\"\n\
             [[flow]]\nprotocol = \"cbr\"\nfrom = \"a\"\nto = \"b\"\n\
             schedule = [\"0s:0\", \"4s:5M\", \"7s:0\"]\n",
        );
        let value = |name: &str| measure(name, &report).expect("a name").expect("a value");
        assert!((0.5..=1.0).contains(&value("tracking")), "{}", value("tracking"));
        // It yields at once; what it takes back, it takes until the next change at most.
        assert!(value("response_down:0.8") <= 1.0, "{}", value("response_down:0.8"));
        assert!((0.5..=3.0).contains(&value("response_up:0.8")), "{}", value("response_up:0.8"));
        assert_eq!(value("arrival_fairness"), 1.0);
        assert!(measure("response_up:x", &report).is_err());
        // What has arrived has been delivered by the end, but for the last gap.
        let sum = |series: &[f64]| series.iter().sum::<f64>();
        let flow = &report.flows[0];
        assert!((sum(&flow.arrivals) / sum(&flow.series) - 1.0).abs() < 0.02);
    }
}
