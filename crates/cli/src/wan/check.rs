//! `farhaul wan check`: how well this machine emulates.

use std::io::{self, Write};
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use farhaul_link::Rate;
use farhaul_wan::check::{self, CapacityCheck, DelayCheck, RateCheck};
use farhaul_wan::tun::isolate;
use serde::Serialize;

use super::site::no_path;
use crate::exit::{Passed, interrupted};
use crate::{interrupt, output};

/// One-way delays that are measured, and with how many echoes each.
const DELAYS_US: [(u64, u16); 4] = [(500, 200), (5_000, 200), (25_000, 60), (100_000, 20)];
/// Rates that are measured, bits/s, each for this time.
const RATES: [u64; 3] = [10_000_000, 100_000_000, 1_000_000_000];
const RATE_LASTS: Duration = Duration::from_secs(1);
/// Rates that a flow of TCP is to carry, bits/s, each for this time.
const CAPACITIES: [u64; 4] = [100_000_000, 1_000_000_000, 5_000_000_000, 10_000_000_000];
const CAPACITY_LASTS: Duration = Duration::from_secs(2);

/// Measure how well this machine emulates: the error of delays and rates, and what one flow of the kernel's TCP
/// gets through links of several rates.
///
/// Takes some 20 seconds, on a machine that should have nothing else to do. Returns 0 if delays are kept to 0.05 ms on
/// average and to 0.5 ms for 99 packets in a hundred, and rates to 1%; 1 if not; 125 if there can be no path. The
/// capacity is only told: paths up to the largest rate that is carried in time can be emulated here.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    passed: bool,
    delays: Vec<Delay>,
    rates: Vec<RateRow>,
    capacities: Vec<Capacity>,
    /// The largest rate that TCP got while time was kept, bits/s.
    capacity: Option<u64>,
}

#[derive(Serialize)]
struct Delay {
    delay_ms: f64,
    echoes: usize,
    mean_error_ms: f64,
    p99_error_ms: f64,
    max_error_ms: f64,
    passed: bool,
}

#[derive(Serialize)]
struct RateRow {
    rate: u64,
    measured: f64,
    error_percent: f64,
    passed: bool,
}

#[derive(Serialize)]
struct Capacity {
    rate: u64,
    goodput: f64,
    mean_error_ms: f64,
    p99_error_ms: f64,
    time_kept: bool,
    carried: bool,
}

/// Runs the command.
pub fn run(args: &CheckArgs) -> Result<()> {
    // Before there is a second thread.
    isolate().map_err(no_path)?;
    let stop = interrupt::stop_flag();
    let going_on = || {
        if stop.load(Ordering::Relaxed) { Err(interrupted()) } else { Ok(()) }
    };
    let (mut delays, mut rates, mut capacities) = (Vec::new(), Vec::new(), Vec::new());
    for (delay_us, echoes) in DELAYS_US {
        going_on()?;
        let delay = Duration::from_micros(delay_us);
        delays.push(check::delay(delay, echoes).map_err(no_path)?);
    }
    for rate in RATES.into_iter().filter_map(Rate::from_bits_per_second) {
        going_on()?;
        rates.push(check::rate(rate, RATE_LASTS).map_err(no_path)?);
    }
    for rate in CAPACITIES.into_iter().filter_map(Rate::from_bits_per_second) {
        going_on()?;
        capacities.push(check::capacity(Some(rate), CAPACITY_LASTS).map_err(no_path)?);
    }
    let report = Report::new(&delays, &rates, &capacities);
    output::emit(args.json, &report, Report::show)?;
    if report.passed { Ok(()) } else { Err(Passed(1).into()) }
}

impl Report {
    fn new(delays: &[DelayCheck], rates: &[RateCheck], capacities: &[CapacityCheck]) -> Self {
        let bits = |check: &CapacityCheck| check.rate.map_or(0, Rate::bits_per_second);
        Report {
            passed: delays.iter().all(DelayCheck::passes) && rates.iter().all(RateCheck::passes),
            delays: delays.iter().map(Delay::from).collect(),
            rates: rates.iter().map(RateRow::from).collect(),
            capacity: capacities.iter().filter(|check| check.passes()).map(bits).max(),
            capacities: capacities.iter().map(|check| Capacity::of(check, bits(check))).collect(),
        }
    }

    fn show(&self, out: &mut dyn Write) -> io::Result<()> {
        let verdict = |good: bool| if good { "ok" } else { "not kept" };
        writeln!(out, "delay, one way                    error: mean       99%       max")?;
        for row in &self.delays {
            writeln!(
                out,
                "{:>11.1} ms {:>29.3} ms {:>6.3} ms {:>6.3} ms  {}",
                row.delay_ms,
                row.mean_error_ms,
                row.p99_error_ms,
                row.max_error_ms,
                verdict(row.passed)
            )?;
        }
        writeln!(out, "rate             measured        error")?;
        for row in &self.rates {
            let (rate, measured) = (row.rate as f64 / 1e6, row.measured / 1e6);
            let error = row.error_percent;
            let verdict = verdict(row.passed);
            writeln!(out, "{rate:>9.0} Mb/s {measured:>10.2} Mb/s {error:>8.3}%  {verdict}")?;
        }
        writeln!(out, "link             one TCP flow    error: mean     99%")?;
        for row in &self.capacities {
            writeln!(
                out,
                "{:>9.0} Mb/s {:>10.0} Mb/s {:>11.3} ms {:>7.3} ms  {}",
                row.rate as f64 / 1e6,
                row.goodput / 1e6,
                row.mean_error_ms,
                row.p99_error_ms,
                if row.carried { "carried in time" } else { "too fast for this machine" }
            )?;
        }
        match self.capacity {
            Some(rate) => writeln!(out, "This machine emulates up to {} Mb/s.", rate / 1_000_000),
            None => writeln!(out, "This machine is too slow, or too busy, to emulate."),
        }
    }
}

impl From<&DelayCheck> for Delay {
    fn from(check: &DelayCheck) -> Self {
        Delay {
            delay_ms: milliseconds(check.delay),
            echoes: check.echoes,
            mean_error_ms: milliseconds(check.mean_error),
            p99_error_ms: milliseconds(check.p99_error),
            max_error_ms: milliseconds(check.max_error),
            passed: check.passes(),
        }
    }
}

impl From<&RateCheck> for RateRow {
    fn from(check: &RateCheck) -> Self {
        RateRow {
            rate: check.rate.bits_per_second(),
            measured: check.measured,
            error_percent: check.error() * 100.0,
            passed: check.passes(),
        }
    }
}

impl Capacity {
    fn of(check: &CapacityCheck, rate: u64) -> Self {
        Capacity {
            rate,
            goodput: check.goodput,
            mean_error_ms: milliseconds(check.mean_error),
            p99_error_ms: milliseconds(check.p99_error),
            time_kept: check.time_kept,
            carried: check.passes(),
        }
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
