//! The `farhaul` command.

mod output;
mod perf;
mod transport;
mod units;
mod usage;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Moves big data over long, fat and lossy networks.
#[derive(Parser, Debug)]
#[command(version, about, long_about = None, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Perf(Box<perf::PerfArgs>),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match &cli.command {
        Command::Perf(args) => perf::run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("farhaul: {error:#}");
            ExitCode::from(1)
        }
    }
}
