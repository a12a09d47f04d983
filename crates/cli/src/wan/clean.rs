//! `farhaul wan clean`: what is left of networks whose `wan run` was killed.

use std::fs;
use std::io::{self, Write};

use anyhow::{Context, Result};
use clap::Args;
use farhaul_wan::tun::{Leftover, leftovers};
use serde::Serialize;

use super::site::END_WITHIN;
use crate::output;

/// End what a killed `wan run` has left running.
///
/// The namespaces of `wan run` have no names and last as long as processes in them. This finds those whose `wan run`
/// is no more, by a mark in the environment of what it has started (FARHAUL_WAN), and ends all processes in them;
/// with these the namespaces go. It touches nothing else, and no network at work. Another user's are found by root.
#[derive(Args, Debug)]
pub struct CleanArgs {
    /// Only tell what would be ended
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    namespaces: Vec<Namespace>,
    ended: bool,
}

#[derive(Serialize)]
struct Namespace {
    processes: Vec<Process>,
}

#[derive(Serialize)]
struct Process {
    id: i32,
    command: String,
}

/// Runs the command.
pub fn run(args: &CleanArgs) -> Result<()> {
    let found = leftovers().context("cannot look for what is left")?;
    let report =
        Report { namespaces: found.iter().map(Namespace::of).collect(), ended: !args.dry_run };
    if !args.dry_run {
        for leftover in &found {
            leftover.end(END_WITHIN).context("cannot end what is left")?;
        }
    }
    output::emit(args.json, &report, Report::show)
}

impl Namespace {
    fn of(leftover: &Leftover) -> Namespace {
        let process = |&id: &i32| {
            let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            let words: Vec<_> = line
                .split(|&byte| byte == 0)
                .filter(|word| !word.is_empty())
                .map(|word| String::from_utf8_lossy(word).escape_debug().to_string())
                .collect();
            Process { id, command: words.join(" ") }
        };
        Namespace { processes: leftover.processes.iter().map(process).collect() }
    }
}

impl Report {
    fn show(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.namespaces.is_empty() {
            return writeln!(out, "nothing is left");
        }
        let verb = if self.ended { "ended" } else { "would end" };
        for process in self.namespaces.iter().flat_map(|namespace| &namespace.processes) {
            writeln!(out, "{verb} process {}: {}", process.id, process.command)?;
        }
        let count = self.namespaces.len();
        writeln!(out, "{count} namespace{} of killed runs", if count == 1 { "" } else { "s" })
    }
}
