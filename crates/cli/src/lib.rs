//! The `farhaul` command, for `farhaul` itself and for programs that bring congestion control laws
//! of their own: [`run`] is the whole command with them (see `docs/writing-a-law.md`).

#![forbid(unsafe_code)]

/// Writes a line to standard error, as `eprintln!` does, which panics once nothing reads there: a pipe into
/// `head`, a supervisor that has gone. Then the line is lost, and the work is not.
macro_rules! tell {
    ($($what:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($what)*);
    }};
}

mod agent;
mod cc;
mod config;
mod cp;
mod demo;
mod doctor;
mod exit;
mod files;
mod greeting;
mod interrupt;
mod keys;
mod lab;
mod manual;
mod output;
#[doc(hidden)]
pub mod parsers;
mod perf;
mod picture;
mod pipe;
mod places;
mod plot;
mod progress;
mod qlog;
mod serve;
mod sim;
mod tables;
mod transfer;
mod transport;
mod units;
mod usage;
mod verify;
mod wan;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
pub use farhaul_control as control;
use farhaul_control::LawInfo;

/// Moves big data over long, fat and lossy networks.
#[derive(Parser, Debug)]
#[command(name = "farhaul", version, about, long_about = None, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    #[command(hide = true)]
    Agent(agent::AgentArgs),
    Demo(Box<demo::DemoArgs>),
    Cp(Box<cp::CpArgs>),
    Serve(serve::ServeArgs),
    Verify(verify::VerifyArgs),
    Doctor(Box<doctor::DoctorArgs>),
    Send(Box<transfer::SendArgs>),
    Recv(Box<transfer::RecvArgs>),
    Perf(Box<perf::PerfArgs>),
    Pipe(Box<pipe::PipeArgs>),
    Plot(plot::PlotArgs),
    #[command(subcommand)]
    Cc(cc::CcCommand),
    #[command(subcommand)]
    Config(config::ConfigCommand),
    #[command(subcommand)]
    Key(keys::KeyCommand),
    #[command(subcommand)]
    Lab(lab::LabCommand),
    #[command(subcommand)]
    Sim(sim::SimCommand),
    #[command(subcommand)]
    Wan(wan::WanCommand),
    Completions(manual::CompletionsArgs),
    Man(manual::ManArgs),
}

/// Runs the command that the process was called with. `laws` can be chosen by name beside those
/// that come with farhaul, wherever a law is chosen.
pub fn run(laws: &[&'static LawInfo]) -> ExitCode {
    for law in laws {
        if !farhaul_control::register(law) {
            tell!("farhaul: there is a law '{}' already; give yours another name", law.name);
            return ExitCode::from(2);
        }
    }
    let cli = Cli::parse();
    let result = match &cli.command {
        Command::Agent(args) => agent::run(args),
        Command::Demo(args) => demo::run(args),
        Command::Cp(args) => cp::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Verify(args) => verify::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Send(args) => transfer::send(args),
        Command::Recv(args) => transfer::recv(args),
        Command::Perf(args) => perf::run(args),
        Command::Pipe(args) => pipe::run(args),
        Command::Plot(args) => plot::run(args),
        Command::Cc(command) => cc::run(command),
        Command::Config(command) => config::run(command),
        Command::Key(command) => keys::run(command),
        Command::Lab(command) => lab::run(command),
        Command::Sim(command) => sim::run(command),
        Command::Wan(command) => wan::run(command),
        Command::Completions(args) => manual::completions(args, Cli::command()),
        Command::Man(args) => manual::man(args, Cli::command()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let text = exit::describe(&error);
            // Who has said it otherwise has no text; nor is there one for a command's own exit code.
            if !text.is_empty() && !error.is::<exit::Passed>() {
                tell!("farhaul: {}", exit::escaped(&text));
            }
            ExitCode::from(exit::code(&error))
        }
    }
}
