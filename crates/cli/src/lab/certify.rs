//! `farhaul lab certify`: control laws put through one battery.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use farhaul_control::{Spec, laws};
use farhaul_lab::certificate::{Battery, Certificate, Matrix, overview};
use farhaul_lab::experiment::Options;
use farhaul_lab::sweep;
use serde::Serialize;

use super::{CommonArgs, fresh_seed, make_folder};
use crate::exit::{Failed, interrupted};
use crate::interrupt::stop_flag;
use crate::output;
use crate::progress::{self, Progress};
use crate::units;

/// Laws beside each other in a table for a terminal.
const SIDE_BY_SIDE: usize = 6;

/// Put control laws through one battery: a page of scores, a picture as SVG and PNG, a table as CSV
/// and JSON.
///
/// Two gates come first: what a thin link has left for TCP, and what is lost there. A law that misses one has no overall
/// score. The score is of scenarios that are drawn anew each time, by section of RFC 9743, and of pairs: one flow of the law
/// beside one of each other law and of TCP, where the lesser share counts. Fixed plans are measured beside, and do not count.
/// The laws bbr, cubic and copa go through the same for comparison. Each answer has 0 to 100 points. Several laws are also put
/// side by side, with a table of all pairs (certificates.json, .csv, .svg, .png).
///
/// If a law misses a gate, the exit code is 4, except with --quick, whose runs are too short for a verdict.
#[derive(Args, Debug)]
pub struct CertifyArgs {
    /// Which law, with its parameters; may be given several times. See `farhaul cc list`
    #[arg(long, value_name = "NAME", required_unless_present = "all")]
    cc: Vec<Spec>,
    /// All of them, with their defaults
    #[arg(long, conflicts_with = "cc")]
    all: bool,
    /// Draw scenarios from this number, to repeat a certificate or to compare with one; else from a fresh one, which the
    /// certificate tells
    #[arg(long, value_name = "N", value_parser = units::seed, allow_hyphen_values = true)]
    seed: Option<u64>,
    #[command(flatten)]
    common: CommonArgs,
}

/// Laws that every certificate is compared with, in the same run.
const BASELINES: [&str; 3] = ["bbr", "cubic", "copa"];

/// Certificates and where they are.
pub struct Certified {
    pub certificates: Vec<Certificate>,
    pub files: Vec<PathBuf>,
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Printed {
    certificates: Vec<Certificate>,
    /// The gates that are missed, by law; laws that reach all are not there.
    missed: BTreeMap<String, Vec<String>>,
    /// What the laws leave each other.
    pairs: Matrix,
    files: Vec<PathBuf>,
}

/// Runs the command.
pub fn run(args: &CertifyArgs) -> Result<()> {
    let mut chosen: Vec<Spec> = Vec::new();
    for law in if args.all { every_law() } else { args.cc.clone() } {
        if !chosen.contains(&law) {
            chosen.push(law);
        }
    }
    let seed = args.seed.map_or_else(fresh_seed, Ok)?;
    let Certified { certificates, mut files } = certify(&chosen, seed, &args.common)?;
    if certificates.len() > 1 {
        let written = overview(&certificates).write(&args.common.out);
        files.extend(written.context("the laws side by side")?);
    }
    let pairs = Matrix::of(&certificates);
    let missed = missed_gates(&certificates);
    let printed = Printed { certificates, missed, pairs, files };
    output::emit(args.common.json, &printed, |Printed { certificates, files, .. }, out| {
        for certificate in certificates {
            writeln!(out, "{}", certificate.text())?;
        }
        if certificates.len() > 1 {
            for part in certificates.chunks(SIDE_BY_SIDE) {
                let tables = overview(part).tables;
                tables.iter().try_for_each(|table| writeln!(out, "{}", table.text()))?;
            }
        }
        // The items are the same for all.
        if let Some(certificate) = certificates.first() {
            writeln!(out, "{}", certificate.legend())?;
        }
        writeln!(out, "{} files in {}", files.len(), args.common.out.display())
    })?;
    verdict(&printed.missed, args.common.quick)
}

/// A failure if gates are missed. TCP has no time to come up in the reduced battery, whichever law is beside it.
fn verdict(missed: &BTreeMap<String, Vec<String>>, quick: bool) -> Result<()> {
    if quick || missed.is_empty() {
        return Ok(());
    }
    let laws = missed.iter().map(|(law, gates)| format!("{law} ({})", gates.join(", ")));
    let message = format!("gates missed: {}", laws.collect::<Vec<_>>().join("; "));
    Err(Failed { code: 4, message }.into())
}

/// The gates that are missed, by law.
fn missed_gates(certificates: &[Certificate]) -> BTreeMap<String, Vec<String>> {
    let gates = |one: &Certificate| one.missed().into_iter().map(str::to_owned).collect();
    let of = |one: &Certificate| (one.law.clone(), gates(one));
    certificates.iter().map(of).filter(|(_, gates): &(_, Vec<_>)| !gates.is_empty()).collect()
}

/// The certificates of all laws: those in the folder, unless all are to be made again, and the others
/// made, as are those of another version. A certificate of the reduced battery counts for the reduced
/// version only. All are drawn from one seed, that of the first in the folder, for only those compare.
pub fn all(common: &CommonArgs, again: bool) -> Result<Certified> {
    let fits = |certificate: &Certificate| {
        !again && certificate.is_current() && (common.quick || !certificate.quick)
    };
    let stored = |law: &Spec| Certificate::stored(&common.out, &law.to_string()).filter(fits);
    let (mut missing, mut known) = (Vec::new(), Vec::new());
    let stored: Vec<_> = every_law().into_iter().map(|law| (stored(&law), law)).collect();
    let seed = stored.iter().find_map(|(certificate, _)| Some(certificate.as_ref()?.seed));
    let seed = seed.map_or_else(fresh_seed, Ok)?;
    for (certificate, law) in stored {
        let certificate = certificate.filter(|certificate| certificate.seed == seed);
        if certificate.is_none() {
            missing.push(law);
        }
        known.push(certificate);
    }
    let Certified { certificates: made, files } = certify(&missing, seed, common)?;
    let mut made = made.into_iter();
    let all = known.into_iter().filter_map(|known| known.or_else(|| made.next()));
    Ok(Certified { certificates: all.collect(), files })
}

fn every_law() -> Vec<Spec> {
    laws().into_iter().map(Spec::of).collect()
}

fn certify(chosen: &[Spec], seed: u64, args: &CommonArgs) -> Result<Certified> {
    make_folder(&args.out)?;
    let stop = stop_flag();
    let options = args.options(&stop);
    let battery = Battery::standard();
    let mut certified = Certified { certificates: Vec::new(), files: Vec::new() };
    if chosen.is_empty() {
        return Ok(certified);
    }
    tell!("farhaul: the scenarios are drawn from seed {seed}");
    let mut baselines = Vec::new();
    for law in laws().into_iter().filter(|law| BASELINES.contains(&law.name)).map(Spec::of) {
        baselines.push(one(&battery, &law, seed, &options)?);
    }
    for law in chosen {
        let known = baselines.iter().find(|one| one.law == law.to_string());
        let mut certificate = match known {
            Some(known) => known.clone(),
            None => one(&battery, law, seed, &options)?,
        };
        certificate.compare_with(&baselines);
        let files = certificate.write(&args.out);
        certified.files.extend(files.with_context(|| format!("the certificate of {law}"))?);
        certified.certificates.push(certificate);
    }
    Ok(certified)
}

fn one(battery: &Battery, law: &Spec, seed: u64, options: &Options<'_>) -> Result<Certificate> {
    let shown = Progress::new();
    let watch = |now: sweep::Progress| {
        shown.show(now.share, || format!("{law}: {}", progress::line(now)));
    };
    let certificate = battery.run(law, seed, options, &watch);
    drop(shown);
    certificate.map_err(|message| anyhow!("{law}: {message}"))?.ok_or(interrupted().into())
}

#[cfg(test)]
mod tests {
    use farhaul_lab::certificate::Scored;

    use super::*;
    use crate::exit;

    /// The certificate of a law that reaches `measured` of a gate of a half.
    fn certificate(law: &str, measured: f64) -> Certificate {
        let name = "thin link".to_owned();
        let gate = Scored {
            name,
            measured: Some(measured),
            best: 1.0,
            gate: Some(0.5),
            ..Scored::default()
        };
        Certificate { law: law.into(), items: vec![gate], ..Certificate::default() }
    }

    #[test]
    fn a_missed_gate_is_told_by_law_and_fails() {
        let missed = missed_gates(&[certificate("kind", 0.6), certificate("rude", 0.1)]);
        assert_eq!(missed, BTreeMap::from([("rude".to_owned(), vec!["thin link".to_owned()])]));
        let failure = verdict(&missed, false).expect_err("a gate is missed");
        assert_eq!(exit::code(&failure), 4);
    }

    #[test]
    fn the_reduced_battery_has_no_verdict() {
        let missed = missed_gates(&[certificate("rude", 0.1)]);
        assert!(verdict(&missed, true).is_ok());
        assert!(verdict(&missed_gates(&[certificate("kind", 0.6)]), false).is_ok());
    }
}
