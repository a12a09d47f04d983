//! `hosts`, `[[host]]` and what `[[node]]` says of its host.

use std::collections::BTreeMap;

use farhaul_base::names::suggestion;

use super::reader::{Scalar, Section};
use crate::host::HostProfile;

/// The profiles that a scenario has.
#[derive(Default)]
pub(super) struct Hosts {
    /// Those that it describes itself.
    own: Vec<HostProfile>,
    /// Of nodes that say nothing of theirs.
    usual: HostProfile,
    /// Of the others, by their numbers.
    of_nodes: BTreeMap<usize, HostProfile>,
}

impl Hosts {
    /// Reads a `[[host]]`: a profile with a name of its own, `like` another but for what it says.
    pub(super) fn read_own(&mut self, section: &Section<'_>) {
        let base = section.text("like").and_then(|like| self.find(section, &like));
        let name = section.required("name");
        let profile = own_keys(section, base.unwrap_or_default());
        let (Some(name), Some(mut profile)) = (name, profile) else { return };
        if HostProfile::named(&name.text).is_some() {
            let message = format!("'{}' is a profile that there is: give another name", name.text);
            section.reader().problem(&name.span, message);
        } else if self.own.iter().any(|own| own.name == name.text) {
            let message = format!("there is another host named '{}'", name.text);
            section.reader().problem(&name.span, message);
        } else {
            profile.name = name.text;
            self.own.push(profile);
        }
    }

    /// Reads the scenario's `hosts`.
    pub(super) fn read_usual(&mut self, top: &Section<'_>) {
        let usual = top.text("hosts").and_then(|name| self.find(top, &name));
        self.usual = usual.unwrap_or_default();
    }

    /// Reads what a `[[node]]` says of its host.
    pub(super) fn read_node(&mut self, section: &Section<'_>, number: Option<usize>) {
        let base = section.text("host").map(|name| self.find(section, &name));
        let named = base.is_some();
        let base = base.flatten().unwrap_or_else(|| self.usual.clone());
        let before = base.clone();
        if let (Some(number), Some(profile)) = (number, own_keys(section, base))
            && (named || profile != before)
        {
            self.of_nodes.insert(number, profile);
        }
    }

    /// The profile of each of so many nodes.
    pub(super) fn of(&self, nodes: usize) -> Vec<HostProfile> {
        (0..nodes).map(|node| self.of_nodes.get(&node).unwrap_or(&self.usual).clone()).collect()
    }

    fn find(&self, section: &Section<'_>, name: &Scalar) -> Option<HostProfile> {
        let own = self.own.iter().find(|own| own.name == name.text).cloned();
        let found = own.or_else(|| HostProfile::named(&name.text));
        if found.is_none() {
            let own = self.own.iter().map(|own| own.name.as_str());
            let known = HostProfile::all().map(|(name, _)| name).chain(own);
            let hint = suggestion(&name.text, known);
            let message = format!("there is no host profile '{}'; {hint}", name.text);
            section.reader().problem(&name.span, message);
        }
        found
    }
}

/// `base` with what the table says otherwise; none if something is wrong with that.
fn own_keys(section: &Section<'_>, mut profile: HostProfile) -> Option<HostProfile> {
    let mut right = true;
    for key in HostProfile::KEYS {
        if let Some(scalar) = section.text(key) {
            right &= section.parse(key, &scalar, |text| profile.set(key, text)).is_some();
        }
    }
    if let (true, Err(message)) = (right, profile.check()) {
        section.reader().problem(section.span(), message);
        right = false;
    }
    right.then_some(profile)
}
