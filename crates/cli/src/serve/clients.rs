//! Clients of a server: the list of allowed keys, and what the server's file says beside it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use farhaul_secure::PublicKey;
use serde::Serialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Limits;
use super::config::Client;
use crate::exit::Usage;
use crate::keys::{allow_list, store};
use crate::tables::{self, Section};

/// What the server's file says about clients. Together with a list of allowed keys it tells which
/// clients there are, so that the list can be read again without the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    /// The list of allowed keys.
    pub list: Option<PathBuf>,
    /// What is granted where nothing else is said.
    pub general: Limits,
    /// The sections `[client.NAME]`.
    pub sections: BTreeMap<String, Stated>,
}

/// A section `[client.NAME]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Stated {
    /// Its key, if that is not in the list.
    pub key: Option<PublicKey>,
    /// What is granted to it.
    pub limits: Limits,
}

impl Rules {
    /// The clients with these allowed keys. A name or a key that the file has itself is taken from
    /// the file.
    pub fn clients(&self, listed: Vec<allow_list::Allowed>) -> BTreeMap<String, Client> {
        let own = |(name, stated): (&String, &Stated)| {
            let client = Client { key: stated.key?, limits: stated.limits };
            Some((name.clone(), client))
        };
        let mut clients: BTreeMap<_, _> = self.sections.iter().filter_map(own).collect();
        for allow_list::Allowed { name, key, limits, .. } in listed {
            if clients.contains_key(&name) || clients.values().any(|client| client.key == key) {
                continue;
            }
            let stated = self.sections.get(&name);
            let limits = stated.map_or(limits, |stated| stated.limits.or(&limits));
            clients.insert(name, Client { key, limits });
        }
        for client in clients.values_mut() {
            client.limits = client.limits.or(&self.general);
        }
        clients
    }

    /// The clients by the list as it stands now. Where lines of it are wrong, or others may write to it, those of
    /// `known` stay whose keys are still in it; where it is gone, none of its clients.
    ///
    /// # Errors
    /// It cannot be read, or is no file.
    pub fn listed_again(
        &self,
        known: &BTreeMap<String, Client>,
    ) -> Result<BTreeMap<String, Client>, Usage> {
        let Some(list) = &self.list else { return Ok(known.clone()) };
        let listed = match store::read_if_there(list) {
            Ok(Some(text)) => allow_list::parse(list, &text),
            Ok(None) => Ok(Vec::new()),
            Err(error) => Err(error),
        };
        if let Ok(listed) = listed {
            return Ok(self.clients(listed));
        }
        let keys = allow_list::keys_in(&store::read_unguarded(list)?);
        let own = |name: &String| self.sections.get(name).is_some_and(|own| own.key.is_some());
        let stays = |(name, client): &(&String, &Client)| own(name) || keys.contains(&client.key);
        let stay = known.iter().filter(stays);
        Ok(stay.map(|(name, client)| (name.clone(), client.clone())).collect())
    }
}

/// A place in a server's file that names a client.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Mention {
    /// The file.
    pub file: PathBuf,
    /// Its line, counted from 1.
    pub line: usize,
    /// What stands there: `[export.NAME] clients` or `[client.NAME]`.
    pub what: String,
    /// Whether a key stands there that lets the client in still.
    pub has_key: bool,
}

/// Where the server's file at `path` names the client `name` or `key`, in the order of the file.
///
/// # Errors
/// There is no such file, or it cannot be read, or is no TOML.
pub fn mentions(path: &Path, name: &str, key: &PublicKey) -> Result<Vec<Mention>, Usage> {
    let text = store::read_if_there(path)?
        .ok_or_else(|| Usage(format!("there is no file {}", path.display())))?;
    let table = tables::parse(path, &text)?;
    let mut found = Vec::new();
    let mut add = |start: usize, what: String, has_key| {
        let line = tables::line_of(&text, &(start..start));
        found.push(Mention { file: path.to_owned(), line, what, has_key });
    };
    for (export, _, section) in sections(&table, "export") {
        let Some(clients) = section.get("clients") else { continue };
        let one = std::slice::from_ref(clients);
        let names = match clients.get_ref() {
            DeValue::Array(names) => names.iter(),
            _ => one.iter(),
        };
        if names.filter_map(text_of).flat_map(|names| names.split(',')).any(|n| n.trim() == name) {
            add(clients.span().start, format!("[export.{export}] clients"), false);
        }
    }
    for (client, start, section) in sections(&table, "client") {
        let own = section.get("key").and_then(text_of);
        let same_key = own.is_some_and(|own| own.parse() == Ok(*key));
        if client == name || same_key {
            add(start, format!("[client.{client}]"), own.is_some());
        }
    }
    found.sort_by_key(|mention| mention.line);
    Ok(found)
}

/// The list of allowed keys that the server's file at `path` names; none if there is no such file, or
/// it names none.
///
/// # Errors
/// The file cannot be read, or is no TOML.
pub fn list_of(path: &Path) -> Result<Option<PathBuf>, Usage> {
    let Some(text) = store::read_if_there(path)? else { return Ok(None) };
    let table = tables::parse(path, &text)?;
    let list = table.get("allowed-keys").and_then(text_of);
    Ok(list.map(|list| path.parent().unwrap_or(Path::new("")).join(list)))
}

fn sections<'a>(
    table: &'a DeTable<'a>,
    kind: &str,
) -> impl Iterator<Item = (&'a str, usize, &'a DeTable<'a>)> {
    let tables = table.get(kind).and_then(|value| value.get_ref().as_table());
    tables.into_iter().flatten().filter_map(|(name, value)| {
        let section = value.get_ref().as_table()?;
        Some((name.get_ref().as_ref(), name.span().start, section))
    })
}

fn text_of<'a>(value: &'a Spanned<DeValue<'_>>) -> Option<&'a str> {
    value.get_ref().as_str()
}

/// The limits in a section of the file.
pub(super) fn read_limits(section: &Section<'_>) -> Limits {
    Limits {
        rate: section.get("rate", crate::units::rate_limit),
        connections: section.get("connections", super::limits::count),
        bytes_per_day: section.get("bytes-per-day", crate::units::size),
        bytes: section.get("bytes", crate::units::size),
        entries: section.get("entries", crate::serve::limits::count).map(u64::from),
    }
}
