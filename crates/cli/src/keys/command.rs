//! `farhaul key`: the user's own key, and whose may connect.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, Subcommand};
use farhaul_mover::location::Location;
use farhaul_secure::PublicKey;
use serde::Serialize;

use super::{allow_list, identity, known_servers};
use crate::exit::Usage;
use crate::files::directory_of;
use crate::output;
use crate::places::Surroundings;
use crate::serve::Limits;
use crate::serve::clients::{self, Mention};

/// Keys: your own, those that may connect to farhaul serve, those of servers.
#[derive(Subcommand, Debug)]
pub enum KeyCommand {
    New(NewArgs),
    Show(ShowArgs),
    Allow(AllowArgs),
    List(ListArgs),
    Revoke(RevokeArgs),
    Forget(ForgetArgs),
}

/// Make a key of your own, and print its public half.
#[derive(Args, Debug)]
pub struct NewArgs {
    /// The file to write, for you alone [default: identity among farhaul's files]
    #[arg(long, alias = "into", value_name = "FILE")]
    identity: Option<PathBuf>,
    /// Replace a key that is there
    #[arg(long)]
    force: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Print the public half of your key, for others to allow.
#[derive(Args, Debug)]
pub struct ShowArgs {
    /// The file with the key [default: identity among farhaul's files]
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Allow a key to connect to farhaul serve.
#[derive(Args, Debug)]
pub struct AllowArgs {
    /// The public key, ed25519: and 64 hexadecimal digits, as farhaul key show prints it
    #[arg(value_name = "KEY")]
    key: PublicKey,
    /// Whose it is
    #[arg(long, value_name = "NAME")]
    name: String,
    /// What is granted: rate=RATE, connections=COUNT, bytes-per-day=SIZE, bytes=SIZE
    #[arg(long = "limit", value_name = "KEY=VALUE")]
    limits: Vec<String>,
    /// The list to add to [default: allowed_keys among farhaul's files]
    #[arg(long, alias = "into", value_name = "FILE")]
    allowed_keys: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// List the keys that may connect.
#[derive(Args, Debug)]
pub struct ListArgs {
    /// The list [default: allowed_keys among farhaul's files]
    #[arg(long, alias = "from", value_name = "FILE")]
    allowed_keys: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Allow a key no longer.
#[derive(Args, Debug)]
pub struct RevokeArgs {
    /// The key, or its name
    #[arg(value_name = "KEY|NAME")]
    whose: String,
    /// The list to take it out of [default: allowed_keys among farhaul's files]
    #[arg(long, alias = "from", value_name = "FILE")]
    allowed_keys: Option<PathBuf>,
    /// The server's configuration, to look for what still names the client
    /// [default: serve.toml beside the list, if it names that list]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Forget the key of a server, because it has a new one.
#[derive(Args, Debug)]
pub struct ForgetArgs {
    /// The server, as in farhaul://HOST:PORT
    #[arg(value_name = "HOST[:PORT]")]
    server: String,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Runs `farhaul key`.
pub fn run(command: &KeyCommand) -> Result<()> {
    match command {
        KeyCommand::New(args) => {
            let file = or_usual(&args.identity, identity::FILE)?;
            let made = identity::create(&file, args.force)?;
            print(args.json, made.public_key(), file)
        }
        KeyCommand::Show(args) => {
            let file = or_usual(&args.identity, identity::FILE)?;
            let key = identity::load(&file)?.public_key();
            print(args.json, key, file)
        }
        KeyCommand::Allow(args) => allow(args),
        KeyCommand::List(args) => list(args),
        KeyCommand::Forget(args) => forget(args),
        KeyCommand::Revoke(args) => revoke(args),
    }
}

/// A key that is not allowed any more.
#[derive(Serialize)]
struct Revoked {
    done: &'static str,
    name: String,
    public_key: String,
    /// What of the server's configuration still names the client.
    still_named: Vec<Mention>,
}

fn revoke(args: &RevokeArgs) -> Result<()> {
    let list = or_usual(&args.allowed_keys, allow_list::FILE)?;
    let gone = allow_list::revoke(&list, &args.whose)?;
    let mut still_named = Vec::new();
    if let Some(config) = args.config.clone().or_else(|| config_beside(&list)) {
        match clients::mentions(&config, &gone.name, &gone.key) {
            Ok(found) => still_named = found,
            // The key is out all the same.
            Err(Usage(why)) => tell!("farhaul: not looked for what still names it: {why}"),
        }
    }
    if let Some(wrong) = &gone.wrong {
        tell!(
            "farhaul: the list has other lines that are wrong: no key is added until they are mended:\n{wrong}"
        );
    }
    let public_key = gone.key.to_string();
    let revoked = Revoked { done: "revoked", name: gone.name, public_key, still_named };
    output::emit(args.json, &revoked, |Revoked { name, public_key, still_named, .. }, out| {
        writeln!(out, "revoked {name} ({public_key})")?;
        for Mention { file, line, what, has_key } in still_named {
            let note = if *has_key { ", with a key that still lets it in" } else { "" };
            writeln!(out, "still named in {}:{line}: {what}{note}", file.display())?;
        }
        Ok(())
    })
}

/// The configuration beside the list, unless it names another list. One that cannot be read may.
fn config_beside(list: &Path) -> Option<PathBuf> {
    let config = directory_of(list).join("serve.toml");
    let named = match clients::list_of(&config) {
        Ok(named) => named?.canonicalize().ok()? == list.canonicalize().ok()?,
        Err(_) => true,
    };
    named.then_some(config)
}

fn forget(args: &ForgetArgs) -> Result<()> {
    let url = format!("farhaul://{}/x", args.server);
    let address = match Location::parse(url.as_ref()) {
        Ok(Location::Served(served)) => served.address(),
        _ => {
            let server = &args.server;
            return Err(Usage(format!("'{server}' is no server: write HOST or HOST:PORT")).into());
        }
    };
    let file = or_usual(&None, known_servers::FILE)?;
    if !known_servers::forget(&file, &address)? {
        let file = file.display();
        return Err(Usage(format!("{file} knows no server {address}")).into());
    }
    let gone = Forgotten { done: "forgotten", server: address };
    output::emit(args.json, &gone, |gone, out| writeln!(out, "forgotten {}", gone.server))
}

/// A server that is not known any more.
#[derive(Serialize)]
struct Forgotten {
    done: &'static str,
    server: String,
}

fn or_usual(given: &Option<PathBuf>, name: &str) -> Result<PathBuf, Usage> {
    match given {
        Some(file) => Ok(file.clone()),
        None => Surroundings::of_process().file(name),
    }
}

#[derive(Serialize)]
struct Own {
    public_key: String,
    file: PathBuf,
}

fn print(json: bool, key: PublicKey, file: PathBuf) -> Result<()> {
    let own = Own { public_key: key.to_string(), file };
    output::emit(json, &own, |own, out| writeln!(out, "{}", own.public_key))
}

fn allow(args: &AllowArgs) -> Result<()> {
    let file = or_usual(&args.allowed_keys, allow_list::FILE)?;
    let mut limits = Limits::default();
    for word in &args.limits {
        limits.set(word).map_err(|why| Usage(format!("--limit {word}: {why}")))?;
    }
    let new = allow_list::allow(&file, args.key, &args.name, &limits)?;
    let what = if new { "allowed" } else { "unchanged" };
    let (name, public_key) = (args.name.clone(), args.key.to_string());
    done(args.json, Done { done: what, name, public_key })
}

/// What was done to a list.
#[derive(Serialize)]
struct Done {
    /// `allowed` or `unchanged`.
    done: &'static str,
    name: String,
    public_key: String,
}

fn done(json: bool, done: Done) -> Result<()> {
    output::emit(json, &done, |Done { done, name, public_key }, out| {
        let note = if *done == "unchanged" { ", was allowed already:" } else { "" };
        writeln!(out, "{done}{note} {name} ({public_key})")
    })
}

#[derive(Serialize)]
struct Listed {
    name: String,
    public_key: String,
    limits: Limits,
    line: usize,
}

fn list(args: &ListArgs) -> Result<()> {
    let file = or_usual(&args.allowed_keys, allow_list::FILE)?;
    let keys: Vec<Listed> = allow_list::load(&file)?
        .into_iter()
        .map(|allowed| Listed {
            name: allowed.name,
            public_key: allowed.key.to_string(),
            limits: allowed.limits,
            line: allowed.line,
        })
        .collect();
    output::emit(args.json, &keys, |keys, out| {
        keys.iter().try_for_each(|Listed { name, public_key, limits, .. }| {
            let limits: String = limits.words().iter().map(|word| format!("  {word}")).collect();
            writeln!(out, "{public_key}  {name}{limits}")
        })
    })
}
