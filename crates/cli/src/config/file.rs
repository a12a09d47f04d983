//! The user's settings file: values for all hosts, and sections for some.

use std::path::Path;

use farhaul_base::names::suggestion;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::catalogue::CATALOGUE;
use crate::exit::Usage;
use crate::tables::{self, Problems, Section};

/// A file that has been checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ConfigFile {
    general: Vec<Entry>,
    /// Exact names before patterns, each in the order of the file.
    hosts: Vec<HostSection>,
}

/// A value in the file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    name: &'static str,
    pub text: String,
    /// Counted from 1.
    pub line: usize,
}

#[derive(Clone, Debug, PartialEq)]
struct HostSection {
    /// A name, or a pattern with `*` and `?`, in lower case.
    pattern: String,
    /// Where its first mention is.
    line: usize,
    entries: Vec<Entry>,
}

impl ConfigFile {
    /// Reads the file at `path`; none if there is none.
    ///
    /// # Errors
    /// It cannot be read, or something is wrong with it, of whatever host.
    pub(super) fn read(path: &Path) -> Result<Option<ConfigFile>, Usage> {
        let Some(text) = tables::read(path)? else { return Ok(None) };
        Self::parse(path, &text).map(Some)
    }

    /// Reads `text`, which stands in the file at `path`.
    pub(super) fn parse(path: &Path, text: &str) -> Result<ConfigFile, Usage> {
        let table = tables::parse(path, text)?;
        let problems = Problems::new(path, text);
        let general = entries(&problems, &table, &["host"]);
        let top = Section::new(&problems, "", &table, 0..0);
        let mut hosts: Vec<HostSection> = Vec::new();
        for (name, span, table) in top.tables("host") {
            let pattern = name.to_lowercase();
            if hosts.iter().any(|section| section.pattern == pattern) {
                problems.add(&span, format!("[host.\"{name}\"] is there already"));
            }
            let line = problems.line(&span);
            hosts.push(HostSection { pattern, line, entries: entries(&problems, table, &[]) });
        }
        problems.finish()?;
        hosts.sort_by_key(|section| (is_pattern(&section.pattern), section.line));
        Ok(ConfigFile { general, hosts })
    }

    /// The value of the setting `name` for `host`, and the pattern of its section: of the host's
    /// name, or else of the first pattern that fits and has one, or else of the top of the file.
    pub(super) fn find(&self, name: &str, host: Option<&str>) -> Option<(&Entry, Option<&str>)> {
        let host = host.map(bare);
        let of_host = host.and_then(|host| {
            let fitting = self.hosts.iter().filter(|section| fits(&section.pattern, &host));
            fitting
                .filter_map(|section| Some((entry(&section.entries, name)?, &section.pattern)))
                .next()
        });
        match of_host {
            Some((entry, pattern)) => Some((entry, Some(pattern))),
            None => Some((entry(&self.general, name)?, None)),
        }
    }
}

fn entry<'a>(entries: &'a [Entry], name: &str) -> Option<&'a Entry> {
    entries.iter().find(|entry| entry.name == name)
}

/// The settings in `table`; keys that are none, beside `others`, are problems.
fn entries(problems: &Problems<'_>, table: &DeTable<'_>, others: &[&'static str]) -> Vec<Entry> {
    let mut entries = Vec::new();
    for (key, value) in table {
        let name: &str = key.get_ref();
        if others.contains(&name) {
            continue;
        }
        match CATALOGUE.iter().find(|info| info.name == name) {
            Some(info) => {
                if let Some(text) = checked(problems, info, value) {
                    let line = problems.line(&key.span());
                    entries.push(Entry { name: info.name, text, line });
                }
            }
            None => {
                let known = CATALOGUE.iter().map(|info| info.name).chain(others.iter().copied());
                let hint = suggestion(name, known);
                problems.add(&key.span(), format!("there is no setting '{name}'; {hint}"));
            }
        }
    }
    entries
}

fn checked(
    problems: &Problems<'_>,
    info: &super::catalogue::Info,
    value: &Spanned<DeValue<'_>>,
) -> Option<String> {
    let text = problems.text(info.name, value)?;
    match (info.check)(&text) {
        Ok(()) => Some(text),
        Err(why) => {
            problems.add(&value.span(), format!("{} = \"{text}\": {why}", info.name));
            None
        }
    }
}

/// The host alone, without a user and the brackets of an IPv6 address, in lower case.
fn bare(host: &str) -> String {
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let inner = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    inner.unwrap_or(host).to_lowercase()
}

fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?'])
}

/// Whether `name` is as `pattern` says: `*` stands for any characters, `?` for one.
fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    // Where the last star is, and which part of the name it stands for ends there.
    let mut star = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match star {
                // It stands for one more.
                Some((at, end)) => {
                    star = Some((at, end + 1));
                    p = at + 1;
                    n = end + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ConfigFile, String> {
        ConfigFile::parse(Path::new("c.toml"), text).map_err(|error| error.0)
    }

    #[test]
    fn patterns_fit() {
        for (pattern, name) in [
            ("a", "a"),
            ("*", ""),
            ("*.example.org", "a.b.example.org"),
            ("n??e*", "node17"),
            ("*a*b", "xaabyab"),
        ] {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("a", "b"), ("", "a"), ("?", ""), ("*.org", "org"), ("a*b", "abc")]
        {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
        // No time beyond the product of the lengths.
        assert!(!fits(&"*a".repeat(60), &"a".repeat(59)));
    }

    #[test]
    fn the_nearest_section_decides() {
        let file = parse(
            "rate = \"1G\"\nstreams = 2\n\
             [host.\"*.org\"]\nstreams = 4\nmss = 9000\n\
             [host.\"*.example.org\"]\nstreams = 8\nplain = true\n\
             [host.\"A.example.org\"]\nrate = \"2G\"\n",
        )
        .expect("a file");
        let found = |name, host| {
            let (entry, section) = file.find(name, host)?;
            Some((entry.text.as_str(), entry.line, section))
        };
        let a = Some("me@a.EXAMPLE.org");
        assert_eq!(found("rate", a), Some(("2G", 10, Some("a.example.org"))));
        assert_eq!(found("streams", a), Some(("4", 4, Some("*.org"))), "the first that fits");
        assert_eq!(found("plain", a), Some(("true", 8, Some("*.example.org"))));
        assert_eq!(found("rate", Some("b.org")), Some(("1G", 1, None)));
        assert_eq!(found("streams", Some("c.net")), Some(("2", 2, None)));
        assert_eq!(found("streams", None), Some(("2", 2, None)));
        assert_eq!(found("verify", a), None);
    }

    #[test]
    fn addresses_are_hosts_too() {
        let file = parse("[host.\"2001:db8::1\"]\nmss = 9000\n").expect("a file");
        assert!(file.find("mss", Some("[2001:DB8::1]")).is_some());
    }

    #[test]
    fn lists_are_lists_or_texts() {
        let file = parse("preserve = [\"mode\", \"owner\"]\nbind = []\n");
        assert!(file.is_err_and(|told| told.starts_with("c.toml:2: bind = \"\": ")));
        let file = parse("preserve = []\nbind = [\"eth0\", \"192.0.2.1\"]").expect("a file");
        assert_eq!(file.general[0].text, "eth0,192.0.2.1");
    }

    #[test]
    fn all_that_is_wrong_is_told() {
        let told = parse(
            "raet = 1\nstreams = 99\nhots = 1\n\
             [host.a]\nverify = \"ful\"\nhost = 1\n[host.A]\n",
        )
        .expect_err("much is wrong");
        let lines: Vec<_> = told.lines().collect();
        assert_eq!(lines[0], "c.toml:1: there is no setting 'raet'; did you mean 'rate'?");
        assert!(lines[1].starts_with("c.toml:2: streams = \"99\": "), "{told}");
        assert_eq!(lines[2], "c.toml:3: there is no setting 'hots'; did you mean 'host'?");
        assert_eq!(lines[3], "c.toml:5: verify = \"ful\": did you mean 'full'?");
        assert!(lines[4].starts_with("c.toml:6: there is no setting 'host'"), "{told}");
        assert!(lines[5].contains("[host."), "{told}");
        assert_eq!(lines.len(), 6);
    }
}
