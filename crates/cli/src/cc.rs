//! `farhaul cc`: the congestion control laws.

use std::io::{self, Write};

use anyhow::Result;
use clap::{Args, Subcommand};
use farhaul_control::{Kind, LawInfo, Make, Param, Spec, laws};
use serde::Serialize;

use crate::output;
use crate::transport::DEFAULT_LAW;

/// Congestion control laws: what `--cc` takes.
#[derive(Subcommand, Debug)]
pub enum CcCommand {
    List(ListArgs),
}

/// List the laws: what each is good for, where it is published, and its parameters.
///
/// A law is chosen as NAME or NAME:KEY=VALUE,KEY=VALUE with every --cc and as `cc` in scenarios.
#[derive(Args, Debug)]
pub struct ListArgs {
    /// Only these
    #[arg(value_name = "NAME")]
    names: Vec<Spec>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Runs `farhaul cc`.
pub fn run(command: &CcCommand) -> Result<()> {
    let CcCommand::List(args) = command;
    let wanted = |law: &LawInfo| {
        args.names.is_empty() || args.names.iter().any(|spec| spec.name() == law.name)
    };
    let listed = laws().into_iter().filter(|law| wanted(law));
    let listed = Listed { default: DEFAULT_LAW, laws: listed.map(law_of).collect() };
    output::emit(args.json, &listed, show)
}

#[derive(Serialize)]
struct Listed {
    /// The law of the tools where none is chosen.
    default: &'static str,
    laws: Vec<Law>,
}

#[derive(Serialize)]
struct Law {
    name: &'static str,
    summary: &'static str,
    source: &'static str,
    /// Connections of a host share it.
    group: bool,
    parameters: Vec<Parameter>,
}

#[derive(Serialize)]
struct Parameter {
    key: &'static str,
    /// `flag`, `number`, `rate` or `time`.
    kind: &'static str,
    /// As they are written.
    default: String,
    min: String,
    max: String,
    unit: &'static str,
    help: &'static str,
}

fn law_of(info: &'static LawInfo) -> Law {
    Law {
        name: info.name,
        summary: info.summary,
        source: info.source,
        group: matches!(info.make, Make::Group(_)),
        parameters: info.params.iter().map(parameter_of).collect(),
    }
}

fn parameter_of(param: &Param) -> Parameter {
    Parameter {
        key: param.key,
        kind: match param.kind {
            Kind::Flag => "flag",
            Kind::Number => "number",
            Kind::Rate => "rate",
            Kind::Time => "time",
        },
        default: param.show(param.default),
        min: param.show(param.min),
        max: param.show(param.max),
        unit: param.unit,
        help: param.help,
    }
}

fn show(listed: &Listed, out: &mut dyn Write) -> io::Result<()> {
    for (nth, law) in listed.laws.iter().enumerate() {
        if nth > 0 {
            writeln!(out)?;
        }
        let default = if law.name == listed.default { " (the default)" } else { "" };
        writeln!(out, "{}{default}: {}", law.name, law.summary)?;
        writeln!(out, "  from {}", law.source)?;
        if law.group {
            writeln!(out, "  one for all connections of a host together")?;
        }
        for Parameter { key, kind, default, min, max, unit, help } in &law.parameters {
            let of = if *kind == "flag" { String::new() } else { format!("; {min} to {max}") };
            // Rates and times carry their units.
            let unit = if *kind == "number" && !unit.is_empty() {
                format!(" {unit}")
            } else {
                String::new()
            };
            writeln!(out, "  {:<24}{help}{of}{unit}", format!("{key}={default}"))?;
        }
    }
    Ok(())
}
