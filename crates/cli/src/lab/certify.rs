//! `farhaul lab certify`: control laws put through one battery.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use farhaul_control::{Spec, laws};
use farhaul_lab::certificate::{Battery, Certificate, overview};
use farhaul_lab::experiment::Options;
use farhaul_lab::sweep;
use serde::Serialize;

use super::{CommonArgs, make_folder};
use crate::exit::interrupted;
use crate::interrupt::stop_flag;
use crate::output;
use crate::progress::{self, Progress};

/// Laws beside each other in a table for a terminal.
const SIDE_BY_SIDE: usize = 6;

/// Put control laws through one battery: a page of scores, a picture as SVG and PNG, a table as CSV
/// and JSON.
///
/// The battery asks how much of a link a flow fills, how soon, and with how much queue and loss; how it
/// shares with its like and with TCP; and how it bears losses and cuts. Each answer has 0 to 100 points.
#[derive(Args, Debug)]
pub struct CertifyArgs {
    /// Which law, with its parameters; may be given several times. See `farhaul cc list`
    #[arg(long, value_name = "NAME", required_unless_present = "all")]
    cc: Vec<Spec>,
    /// All of them, with their defaults
    #[arg(long, conflicts_with = "cc")]
    all: bool,
    #[command(flatten)]
    common: CommonArgs,
}

/// Certificates and where they are.
#[derive(Serialize)]
pub struct Certified {
    pub certificates: Vec<Certificate>,
    pub files: Vec<PathBuf>,
}

/// Runs the command.
pub fn run(args: &CertifyArgs) -> Result<()> {
    let mut chosen: Vec<Spec> = Vec::new();
    for law in if args.all { every_law() } else { args.cc.clone() } {
        if !chosen.contains(&law) {
            chosen.push(law);
        }
    }
    let certified = certify(&chosen, &args.common)?;
    output::emit(args.common.json, &certified, |Certified { certificates, files }, out| {
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
    })
}

/// The certificates of all laws: those in the folder, unless all are to be made again, and the others
/// made, as are those of another version. A certificate of the reduced battery counts for the reduced
/// version only.
pub fn all(common: &CommonArgs, again: bool) -> Result<Certified> {
    let fits = |certificate: &Certificate| {
        !again && certificate.is_current() && (common.quick || !certificate.quick)
    };
    let stored = |law: &Spec| Certificate::stored(&common.out, &law.to_string()).filter(fits);
    let (mut missing, mut known) = (Vec::new(), Vec::new());
    for law in every_law() {
        let certificate = stored(&law);
        if certificate.is_none() {
            missing.push(law);
        }
        known.push(certificate);
    }
    let Certified { certificates: made, files } = certify(&missing, common)?;
    let mut made = made.into_iter();
    let all = known.into_iter().filter_map(|known| known.or_else(|| made.next()));
    Ok(Certified { certificates: all.collect(), files })
}

fn every_law() -> Vec<Spec> {
    laws().into_iter().map(Spec::of).collect()
}

fn certify(chosen: &[Spec], args: &CommonArgs) -> Result<Certified> {
    make_folder(&args.out)?;
    let stop = stop_flag();
    let options = args.options(&stop);
    let battery = Battery::standard();
    let mut certified = Certified { certificates: Vec::new(), files: Vec::new() };
    for law in chosen {
        let certificate = one(&battery, law, &options)?;
        let files = certificate.write(&args.out);
        certified.files.extend(files.with_context(|| format!("the certificate of {law}"))?);
        certified.certificates.push(certificate);
    }
    Ok(certified)
}

fn one(battery: &Battery, law: &Spec, options: &Options<'_>) -> Result<Certificate> {
    let shown = Progress::new();
    let watch = |now: sweep::Progress| {
        shown.show(now.share, || format!("{law}: {}", progress::line(now)));
    };
    let certificate = battery.run(law, options, &watch);
    drop(shown);
    certificate.map_err(|message| anyhow!("{law}: {message}"))?.ok_or(interrupted().into())
}
