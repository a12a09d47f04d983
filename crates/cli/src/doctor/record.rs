//! `farhaul doctor --record`: this host's noise as a host profile of the simulator.

use std::io::Write;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;
use farhaul_doctor::Root;
use farhaul_doctor::noise::{self, Noise, Times};
use farhaul_sim::{Batch, HostProfile, Quantiles};
use serde::Serialize;

use crate::exit::{Usage, interrupted};
use crate::{interrupt, output};

/// What was measured, and the table that a scenario takes.
#[derive(Serialize)]
struct Recorded {
    name: String,
    kernel: String,
    noise: Noise,
    table: String,
}

/// Measures for `time`, and prints the profile `name`.
pub fn record(name: &str, time: Duration, json: bool) -> Result<()> {
    let wrong = |why: &str| Usage(format!("--record {name}: {why}"));
    if HostProfile::named(name).is_some() {
        return Err(wrong("the simulator has a profile of that name: give another").into());
    }
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') || name.is_empty() {
        return Err(wrong("give a name of letters, digits, - and _").into());
    }
    let (stop, root) = (interrupt::stop_flag(), Root::system());
    tell!(
        "farhaul: measuring timers, waking and stalls for {time:?}: run nothing else for a host at rest"
    );
    let measured = noise::measure(time, &root, &|_| !stop.load(Ordering::Relaxed))?;
    let noise = measured.ok_or_else(interrupted)?;
    let kernel = root.read("/proc/sys/kernel/osrelease").unwrap_or_default();
    let table = profile(name, &noise).to_string();
    let recorded = Recorded { name: name.to_owned(), kernel, noise, table };
    output::emit(json, &recorded, show)
}

fn show(recorded: &Recorded, out: &mut dyn Write) -> std::io::Result<()> {
    let Recorded { kernel, noise, table, .. } = recorded;
    writeln!(
        out,
        "# Recorded by farhaul doctor {} on Linux {kernel}: {} timers, {} datagrams and {} stalls in \
         {:.0} s.",
        env!("CARGO_PKG_VERSION"),
        noise.timer.count,
        noise.wake.count,
        noise.stall.count,
        noise.seconds
    )?;
    out.write_all(table.as_bytes())
}

/// The profile that a scenario takes.
fn profile(name: &str, noise: &Noise) -> HostProfile {
    let micros = |us: u32| Duration::from_micros(u64::from(us));
    HostProfile {
        name: name.to_owned(),
        timer: quantiles(&noise.timer),
        wake: quantiles(&noise.wake),
        coalesce: Quantiles::always(noise.coalesce_us.map_or(Duration::ZERO, micros)),
        batch: Batch(noise.batch.max(1)),
        stall_every: noise
            .stall_every_s
            .map_or(Duration::ZERO, |every| Duration::from_millis((every * 1e3).max(1.0) as u64)),
        stall: quantiles(&noise.stall),
        ..HostProfile::default()
    }
}

/// To a tenth of a microsecond, which is more than such measurements tell.
fn quantiles(times: &Times) -> Quantiles {
    let rounded = |ns: u64| Duration::from_nanos((ns + 50) / 100 * 100);
    let points = times.quantiles.iter().map(|(share, ns)| (*share, rounded(*ns))).collect();
    Quantiles::new(points).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use farhaul_sim::Plan;

    use super::*;

    #[test]
    fn what_is_recorded_is_what_a_scenario_takes() {
        let times = |longest: u64| Times {
            count: 1_000,
            quantiles: vec![(0.0, 3_012), (0.5, 60_000), (0.99, 150_049), (1.0, longest)],
        };
        let noise = Noise {
            timer: times(900_000),
            wake: times(800_000),
            stall: Times { count: 3, quantiles: vec![(0.0, 1_000_000), (1.0, 7_000_000)] },
            stall_every_s: Some(2.5),
            batch: 44,
            coalesce_us: Some(50),
            ..Noise::default()
        };
        let recorded = profile("mine", &noise);
        let text = format!(
            "duration = \"1s\"\nhosts = \"mine\"\n{recorded}[[link]]\nfrom = \"a\"\nto = \"b\"\n\
             rate = \"1M\"\n[[flow]]\nfrom = \"a\"\nto = \"b\"\n"
        );
        let plan = Plan::parse(&text, &[], None).unwrap_or_else(|problems| panic!("{problems}"));
        let hosts = plan.point(0).expect("a point").scenario.hosts;
        assert_eq!(hosts, [recorded.clone(), recorded.clone()]);
        assert_eq!(recorded.timer.to_string(), "0%:3µs,50%:60µs,99%:150µs,100%:900µs");
        assert_eq!(recorded.stall.to_string(), "1ms..7ms");
        assert_eq!(recorded.check(), Ok(()));
    }

    #[test]
    fn names_that_are_taken_or_none() {
        for name in ["quiet", "none", "", "two words", "a\"b"] {
            let refused = record(name, Duration::ZERO, false).expect_err("no such name");
            assert!(refused.downcast_ref::<Usage>().is_some(), "{name}: {refused}");
        }
    }
}
