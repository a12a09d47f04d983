//! `farhaul config`: which settings are in force, and where they come from.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};
use farhaul_base::names::nearest;
use serde::Serialize;

use super::{CATALOGUE, FILE_VARIABLE, FlagLayer, Origin, Settings, Shown, file_path};
use crate::exit::Usage;
use crate::output;
use crate::places::{PREFIX, Surroundings};

/// Settings of cp: which are in force, and where they come from.
#[derive(Subcommand, Debug)]
pub enum ConfigCommand {
    Show(ShowArgs),
    Path(PathArgs),
}

/// Show the settings in force.
///
/// A flag goes before its variable of the environment, FARHAUL_ and its name; that before the
/// settings file: its section for the host, [host."NAME"] or one with * and ?, then its top. The
/// output can serve as a settings file.
#[derive(Args, Debug)]
pub struct ShowArgs {
    /// For this host; without it, for those that no section is for
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// Say where each comes from
    #[arg(long)]
    origin: bool,
    /// Print the result as JSON, with origins
    #[arg(long)]
    json: bool,
}

/// Print where the settings file is, or would be.
#[derive(Args, Debug)]
pub struct PathArgs {
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Found {
    path: PathBuf,
    exists: bool,
}

/// Runs `farhaul config`.
pub fn run(command: &ConfigCommand) -> Result<()> {
    let surroundings = Surroundings::of_process();
    match command {
        ConfigCommand::Show(args) => {
            hint_at_unknown();
            let settings = Settings::load(&FlagLayer::default(), args.host.as_deref())?;
            let items: Vec<Item> = settings.shown().into_iter().map(Item::of).collect();
            output::emit(args.json, &items, |items, out| show(items, args.origin, out))
        }
        ConfigCommand::Path(args) => {
            let path = file_path(&surroundings).ok_or_else(|| {
                let why = "there is no settings file: neither HOME nor XDG_CONFIG_HOME is set";
                Usage(format!("{why} to an absolute path, nor does {FILE_VARIABLE} name one"))
            })?;
            let found = Found { exists: path.exists(), path };
            output::emit(args.json, &found, |found, out| writeln!(out, "{}", found.path.display()))
        }
    }
}

/// Variables are not ours alone, so unknown ones are no errors; but some are misspelt.
pub fn hint_at_unknown() {
    let surroundings = Surroundings::of_process();
    let settings = CATALOGUE.iter().map(super::Info::variable);
    let known: Vec<String> = settings.chain([FILE_VARIABLE.to_owned()]).collect();
    // The beginning is alike in all.
    let tail = |name: &str| name.strip_prefix(PREFIX).unwrap_or(name).to_owned();
    let tails: Vec<String> = known.iter().map(|name| tail(name)).collect();
    for name in surroundings.names().filter(|name| known.iter().all(|known| known != name)) {
        if let Some(meant) = nearest(&tail(name), tails.iter().map(String::as_str)) {
            tell!("farhaul: {name} is no setting; did you mean {PREFIX}{meant}?");
        }
    }
}

/// A setting as it is printed.
#[derive(Serialize)]
struct Item {
    name: &'static str,
    /// As it is written in files.
    value: String,
    #[serde(flatten)]
    origin: Place,
    #[serde(skip)]
    told: String,
    help: &'static str,
}

/// Its origin in JSON.
#[derive(Serialize)]
#[serde(tag = "origin", rename_all = "lowercase")]
enum Place {
    Flag,
    Environment { variable: String },
    File { path: String, line: usize, section: Option<String> },
    Default,
}

impl Item {
    fn of(shown: Shown) -> Item {
        let told = shown.origin.to_string();
        let origin = match shown.origin {
            Origin::Flag => Place::Flag,
            Origin::Environment(variable) => Place::Environment { variable },
            Origin::File { path, line, section } => {
                Place::File { path: path.display().to_string(), line, section }
            }
            Origin::Default => Place::Default,
        };
        Item { name: shown.info.name, value: shown.value, origin, told, help: shown.info.help }
    }
}

fn show(items: &[Item], origin: bool, out: &mut dyn Write) -> io::Result<()> {
    for Item { name, value, told, .. } in items {
        let line = format!("{name} = {}", quoted(value));
        if origin {
            writeln!(out, "{line:<40} # {}", told.escape_debug())?;
        } else {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

/// As TOML has it.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted + "\""
}
