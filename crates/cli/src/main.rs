//! The `farhaul` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    farhaul_cli::run(&[])
}
