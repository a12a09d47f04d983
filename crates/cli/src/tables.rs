//! Reads TOML files that people write: every key is known or told, with its line.

use std::cell::RefCell;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use farhaul_base::names::suggestion;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::exit::Usage;
use crate::keys::strict::open_at_once;

/// No file that people write is longer, bytes.
const LONGEST_FILE: u64 = 1 << 20;

/// The text of the file at `path`; none if there is no such file.
///
/// # Errors
/// It cannot be read, is longer than 1 MiB, or is no UTF-8; or it is a pipe, at which this might wait.
pub fn read(path: &Path) -> Result<Option<String>, Usage> {
    let unreadable = |error: io::Error| Usage(format!("cannot read {}: {error}", path.display()));
    let file = match open_at_once(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };
    let kind = file.metadata().map_err(unreadable)?.file_type();
    // Somebody who wants no settings may name /dev/null.
    if !kind.is_file() && !kind.is_char_device() {
        return Err(Usage(format!("cannot read {}: it is no regular file", path.display())));
    }
    text(path, file).map(Some)
}

/// The text of `file`, which is at `path`.
///
/// # Errors
/// It cannot be read, is longer than 1 MiB, or is no UTF-8.
pub fn text(path: &Path, file: File) -> Result<String, Usage> {
    let text = String::from_utf8(bytes(path, file)?);
    text.map_err(|_| Usage(format!("{} is not a text in UTF-8", path.display())))
}

/// What is in `file`, which is at `path`.
///
/// # Errors
/// It cannot be read, or is longer than 1 MiB.
pub fn bytes(path: &Path, file: File) -> Result<Vec<u8>, Usage> {
    let mut bytes = Vec::new();
    let read = file.take(LONGEST_FILE + 1).read_to_end(&mut bytes);
    read.map_err(|error| Usage(format!("cannot read {}: {error}", path.display())))?;
    if bytes.len() as u64 > LONGEST_FILE {
        return Err(Usage(format!("{} is longer than 1 MiB: it is no such file", path.display())));
    }
    Ok(bytes)
}

/// The tables of `text`, which stands in the file at `path`.
///
/// # Errors
/// It is no TOML: the line, and what is wrong there.
pub fn parse<'a>(path: &Path, text: &'a str) -> Result<DeTable<'a>, Usage> {
    DeTable::parse(text).map(Spanned::into_inner).map_err(|error| {
        let line = line_of(text, &error.span().unwrap_or(0..0));
        Usage(format!("{}:{line}: {}", path.display(), error.message().replace('\n', "; ")))
    })
}

/// The line of `text` in which `span` begins, counted from 1.
pub fn line_of(text: &str, span: &Range<usize>) -> usize {
    let before = &text.as_bytes()[..span.start.min(text.len())];
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

/// What is wrong with a file, gathered so that everything is told at once.
pub struct Problems<'a> {
    path: &'a Path,
    text: &'a str,
    found: RefCell<Vec<(usize, String)>>,
    warnings: RefCell<Vec<(usize, String)>>,
}

/// A name in the file may have line ends in it, and a problem is one line.
fn one_line(message: String) -> String {
    if !message.contains(['\n', '\r']) {
        return message;
    }
    message.replace('\n', "\\n").replace('\r', "\\r")
}

impl<'a> Problems<'a> {
    /// Nothing so far.
    pub fn new(path: &'a Path, text: &'a str) -> Self {
        Problems { path, text, found: RefCell::default(), warnings: RefCell::default() }
    }

    /// The line in which `span` begins.
    pub fn line(&self, span: &Range<usize>) -> usize {
        line_of(self.text, span)
    }

    /// Something is wrong at `span`.
    pub fn add(&self, span: &Range<usize>, message: impl Into<String>) {
        self.found.borrow_mut().push((self.line(span), one_line(message.into())));
    }

    /// What stands at `span` has no effect, but the rest of the file has.
    pub fn warn(&self, span: &Range<usize>, message: impl Into<String>) {
        self.warnings.borrow_mut().push((self.line(span), one_line(message.into())));
    }

    /// The warnings if nothing was wrong, `PATH:LINE: text` each, in the order of the file.
    ///
    /// # Errors
    /// A line for each problem, `PATH:LINE: what is wrong`, in the order of the file.
    pub fn finish(self) -> Result<Vec<String>, Usage> {
        let path = self.path.display();
        let told = |mut found: Vec<(usize, String)>| {
            found.sort();
            found.dedup();
            let told = found.iter().map(|(line, why)| format!("{path}:{line}: {why}"));
            told.collect::<Vec<_>>()
        };
        let found = told(self.found.into_inner());
        if found.is_empty() {
            return Ok(told(self.warnings.into_inner()));
        }
        Err(Usage(found.join("\n")))
    }

    /// The value as a text: a string, a number or a boolean as it is written, or a list of them
    /// joined with commas. None, and a problem, if it is something else.
    pub fn text(&self, name: &str, value: &Spanned<DeValue<'_>>) -> Option<String> {
        match value.get_ref() {
            DeValue::Array(list) => {
                let items: Vec<_> = list.iter().map(|item| self.scalar(name, item)).collect();
                items.into_iter().collect::<Option<Vec<_>>>().map(|items| items.join(","))
            }
            _ => self.scalar(name, value),
        }
    }

    fn scalar(&self, name: &str, value: &Spanned<DeValue<'_>>) -> Option<String> {
        match value.get_ref() {
            DeValue::String(text) => Some(text.to_string()),
            DeValue::Integer(number) if number.radix() == 10 => {
                Some(number.as_str().replace('_', ""))
            }
            DeValue::Float(number) => Some(number.as_str().replace('_', "")),
            DeValue::Boolean(value) => Some(value.to_string()),
            other => {
                let kind = other.type_str();
                self.add(
                    &value.span(),
                    format!("'{name}' takes a text or a number; this is of type {kind}"),
                );
                None
            }
        }
    }
}

/// A table whose keys are asked for one by one; the rest is told as unknown.
pub struct Section<'a> {
    problems: &'a Problems<'a>,
    /// What it is called in messages: `[export.data]`, or empty for the top of a file.
    name: String,
    table: &'a DeTable<'a>,
    span: Range<usize>,
    known: RefCell<Vec<&'static str>>,
}

impl<'a> Section<'a> {
    /// The table called `name`, which begins at `span`.
    pub fn new(
        problems: &'a Problems<'a>,
        name: impl Into<String>,
        table: &'a DeTable<'a>,
        span: Range<usize>,
    ) -> Self {
        Section { problems, name: name.into(), table, span, known: RefCell::default() }
    }

    /// What stands under `key`, unread.
    pub fn raw(&self, key: &'static str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.known.borrow_mut().push(key);
        self.table.get(key)
    }

    /// The value under `key`, read by `parse`.
    pub fn get<T, E: Display>(
        &self,
        key: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let value = self.raw(key)?;
        let text = self.problems.text(key, value)?;
        parse(&text)
            .map_err(|error| {
                self.problems.add(&value.span(), format!("{key} = \"{text}\": {error}"));
            })
            .ok()
    }

    /// The value under `key`, or a problem if there is none.
    pub fn required<T, E: Display>(
        &self,
        key: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        if self.raw(key).is_none() {
            self.wrong(format!("{} needs '{key}'", self.called()));
        }
        self.get(key, parse)
    }

    /// The tables below `key` in the order of the file, each with its name and where that stands.
    pub fn tables(&self, key: &'static str) -> Vec<(String, Range<usize>, &'a DeTable<'a>)> {
        let Some(value) = self.raw(key) else { return Vec::new() };
        let problems = self.problems;
        let DeValue::Table(tables) = value.get_ref() else {
            problems.add(&value.span(), format!("'{key}' is a section: write [{key}.NAME]"));
            return Vec::new();
        };
        let table = |(name, value): (&'a Spanned<_>, &'a Spanned<DeValue<'a>>)| {
            let called: &std::borrow::Cow<'_, str> = name.get_ref();
            let DeValue::Table(table) = value.get_ref() else {
                let message = format!("'{called}' is a section: write [{key}.{called}]");
                problems.add(&name.span(), message);
                return None;
            };
            Some((called.to_string(), name.span(), table))
        };
        let mut found: Vec<_> = tables.iter().filter_map(table).collect();
        found.sort_by_key(|(_, span, _)| span.start);
        found
    }

    /// The table below `key`.
    pub fn table(&self, key: &'static str) -> Option<Section<'a>> {
        let value = self.raw(key)?;
        let DeValue::Table(table) = value.get_ref() else {
            self.problems.add(&value.span(), format!("'{key}' is a section: write [{key}]"));
            return None;
        };
        Some(Section::new(self.problems, format!("[{key}]"), table, value.span()))
    }

    /// Something is wrong with it as a whole.
    pub fn wrong(&self, message: impl Into<String>) {
        self.problems.add(&self.span, message);
    }

    /// What stands under `key` has no effect.
    pub fn warn(&self, key: &'static str, message: impl Into<String>) {
        let span = self.table.get(key).map_or(self.span.clone(), Spanned::span);
        self.problems.warn(&span, message);
    }

    /// Tells of the keys that nobody has asked for.
    pub fn finish(self) {
        let known = self.known.borrow();
        for key in self.table.keys().filter(|key| !known.contains(&key.get_ref().as_ref())) {
            let name = key.get_ref();
            let hint = suggestion(name, known.iter().copied());
            let message = format!("{} has no key '{name}'; {hint}", self.called());
            self.problems.add(&key.span(), message);
        }
    }

    fn called(&self) -> &str {
        if self.name.is_empty() { "the file" } else { &self.name }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems_of(text: &str) -> String {
        let path = Path::new("f.toml");
        let table = match parse(path, text) {
            Ok(table) => table,
            Err(error) => return error.0,
        };
        let problems = Problems::new(path, text);
        let top = Section::new(&problems, "", &table, 0..0);
        top.get("number", str::parse::<u8>);
        top.required("needed", str::parse::<String>);
        for (name, span, table) in top.tables("part") {
            let part = Section::new(&problems, format!("[part.{name}]"), table, span);
            part.get("size", crate::units::size);
            part.finish();
        }
        top.finish();
        problems.finish().err().map_or_else(String::new, |error| error.0)
    }

    #[test]
    fn everything_wrong_is_told_with_its_line() {
        assert_eq!(problems_of("needed = 1\nnumber = 7\n[part.a]\nsize = \"4k\"\n"), "");
        let told = problems_of("number = 300\n\nnumbr = 1\n[part.\"b c\"]\nsize = [[]]\nsiz = 1\n");
        let lines: Vec<_> = told.lines().collect();
        assert!(lines[0].starts_with("f.toml:1: number = \"300\": "), "{told}");
        assert_eq!(lines[1], "f.toml:1: the file needs 'needed'");
        assert_eq!(lines[2], "f.toml:3: the file has no key 'numbr'; did you mean 'number'?");
        assert_eq!(lines[3], "f.toml:5: 'size' takes a text or a number; this is of type array");
        assert_eq!(lines[4], "f.toml:6: [part.b c] has no key 'siz'; did you mean 'size'?");
        assert_eq!(lines.len(), 5);
        assert!(problems_of("a = 1\nb = = 2\n").starts_with("f.toml:2: "));
        assert!(problems_of("needed = 1\npart = 4").contains("f.toml:2: 'part' is a section"));
        assert!(problems_of("needed = 1\n[part]\nx = 4").contains("f.toml:3: 'x' is a section"));
    }

    #[test]
    fn files_are_read_or_the_reason_is_told() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("f");
        assert!(read(&path).is_ok_and(|text| text.is_none()));
        std::fs::write(&path, b"\xff").expect("a file");
        assert!(read(&path).is_err_and(|error| error.0.contains("UTF-8")));
        std::fs::write(&path, vec![b' '; (1 << 20) + 1]).expect("a file");
        assert!(read(&path).is_err_and(|error| error.0.contains("1 MiB")));
        assert!(read(dir.path()).is_err_and(|error| error.0.contains("no regular file")));
        std::fs::write(&path, "a = 1").expect("a file");
        assert_eq!(read(&path).expect("a text").as_deref(), Some("a = 1"));
    }
}
