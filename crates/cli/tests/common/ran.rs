//! `farhaul`, or a program like it, in a directory, to its end.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// How it ended.
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub errors: String,
}

/// Runs `farhaul COMMAND ARGS` in `directory`.
pub fn farhaul(directory: &Path, command: &str, args: &[&str]) -> Ran {
    run(Path::new(env!("CARGO_BIN_EXE_farhaul")), directory, &[&[command], args].concat())
}

/// Runs `program ARGS` in `directory`.
pub fn run(program: &Path, directory: &Path, args: &[&str]) -> Ran {
    let output = Command::new(program).args(args).current_dir(directory).output();
    let output = output.unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Ran { code: output.status.code(), out: text(output.stdout), errors: text(output.stderr) }
}

/// The JSON that it prints.
pub fn json(directory: &Path, command: &str, args: &[&str]) -> Value {
    let ran = farhaul(directory, command, args);
    assert_eq!(ran.code, Some(0), "{args:?}: {}", ran.errors);
    serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{args:?}: {error}: {}", ran.out))
}
