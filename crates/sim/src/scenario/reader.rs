//! Reads the tables of a scenario file: variables are put in, every key is known or reported.

use core::cell::{Cell, RefCell};
use core::fmt::Display;
use core::ops::Range;
use core::str::FromStr;
use core::time::Duration;
use std::collections::BTreeMap;

use farhaul_base::names::suggestion;
use farhaul_link::parse_duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::expression;
use super::files::{File, Files};
use super::problems::{Problem, line_of};

/// The values of variables.
pub(super) type Variables = BTreeMap<String, String>;

/// A file being read, with what has been found wrong so far.
pub(super) struct Reader<'a> {
    text: &'a str,
    variables: &'a Variables,
    files: &'a Files<'a>,
    problems: RefCell<Vec<Problem>>,
}

/// A table of the file.
pub(super) struct Section<'a> {
    reader: &'a Reader<'a>,
    /// What it is called in messages: `[[link]]`.
    name: &'static str,
    table: &'a DeTable<'a>,
    span: Range<usize>,
    /// Keys that have been asked for: these are the ones there are.
    known: RefCell<Vec<&'static str>>,
    finished: Cell<bool>,
}

/// A value as it stands in the file: a scalar's text with the variables put in, or a table or list.
pub(super) enum Item<'a> {
    Scalar(Scalar),
    Table(&'a DeTable<'a>, Range<usize>),
    List(Vec<Scalar>, Range<usize>),
}

/// A string, number or boolean as text, and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Scalar {
    pub text: String,
    pub span: Range<usize>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str, variables: &'a Variables, files: &'a Files<'a>) -> Self {
        Reader { text, variables, files, problems: RefCell::default() }
    }

    /// The text of a file that the scenario names.
    pub(super) fn file(&self, name: &str) -> File {
        self.files.get(name)
    }

    pub(super) fn problem(&self, span: &Range<usize>, message: impl Into<String>) {
        let line = Some(line_of(self.text, span));
        self.problems.borrow_mut().push(Problem { line, message: message.into() });
    }

    /// What is wrong with a value that was given beside the file.
    pub(super) fn problem_of_override(&self, name: &str, value: &str, message: impl Display) {
        let message = format!("--set {name}={value}: {message}");
        self.problems.borrow_mut().push(Problem { line: None, message });
    }

    /// Whether nothing wrong has been found so far: what was read is all there is.
    pub(super) fn is_right(&self) -> bool {
        self.problems.borrow().is_empty()
    }

    pub(super) fn into_problems(self) -> Vec<Problem> {
        self.problems.into_inner()
    }

    pub(super) fn section(
        &'a self,
        name: &'static str,
        table: &'a DeTable<'a>,
        span: Range<usize>,
    ) -> Section<'a> {
        let (known, finished) = (RefCell::default(), Cell::new(false));
        Section { reader: self, name, table, span, known, finished }
    }

    /// The scalar with variables put in; none, and a problem, if it is something else.
    pub(super) fn scalar(&self, value: &Spanned<DeValue<'_>>) -> Option<Scalar> {
        let span = value.span();
        let Some(raw) = scalar_text(value.get_ref()) else {
            let kind = value.get_ref().type_str();
            self.problem(&span, format!("a text or a number is needed here, not a {kind}"));
            return None;
        };
        match expression::evaluate(&raw, self.variables) {
            Ok(text) => Some(Scalar { text, span }),
            Err(message) => {
                self.problem(&span, message);
                None
            }
        }
    }
}

impl<'a> Section<'a> {
    pub(super) fn reader(&self) -> &'a Reader<'a> {
        self.reader
    }

    pub(super) fn span(&self) -> &Range<usize> {
        &self.span
    }

    /// What stands under `key`, unread.
    pub(super) fn raw(&self, key: &'static str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.known.borrow_mut().push(key);
        self.table.get(key)
    }

    /// What stands under `key`.
    pub(super) fn item(&self, key: &'static str) -> Option<Item<'a>> {
        let value = self.raw(key)?;
        match value.get_ref() {
            DeValue::Table(table) => Some(Item::Table(table, value.span())),
            DeValue::Array(list) => {
                let scalars = list.iter().filter_map(|item| self.reader.scalar(item)).collect();
                Some(Item::List(scalars, value.span()))
            }
            _ => self.reader.scalar(value).map(Item::Scalar),
        }
    }

    /// The text under `key`.
    pub(super) fn text(&self, key: &'static str) -> Option<Scalar> {
        match self.item(key)? {
            Item::Scalar(scalar) => Some(scalar),
            Item::Table(_, span) | Item::List(_, span) => {
                self.reader.problem(&span, format!("'{key}' takes one value"));
                None
            }
        }
    }

    /// The text under `key`, or a problem if there is none.
    pub(super) fn required(&self, key: &'static str) -> Option<Scalar> {
        if self.raw(key).is_none() {
            self.reader.problem(&self.span, format!("{} needs '{key}'", self.name));
            return None;
        }
        self.text(key)
    }

    /// The value under `key`, read by `parse`.
    pub(super) fn get<T, E: Display>(
        &self,
        key: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let scalar = self.text(key)?;
        self.parse(key, &scalar, parse)
    }

    /// The value under `key`, as its type reads itself.
    pub(super) fn value<T: FromStr<Err: Display>>(&self, key: &'static str) -> Option<T> {
        self.get(key, str::parse)
    }

    pub(super) fn duration(&self, key: &'static str) -> Option<Duration> {
        self.get(key, parse_duration)
    }

    /// The texts under `key`: one, or a list.
    pub(super) fn list(&self, key: &'static str) -> Vec<Scalar> {
        match self.item(key) {
            None => Vec::new(),
            Some(Item::Scalar(scalar)) => vec![scalar],
            Some(Item::List(scalars, _)) => scalars,
            Some(Item::Table(_, span)) => {
                self.reader.problem(&span, format!("'{key}' takes one value or a list"));
                Vec::new()
            }
        }
    }

    /// `scalar`, read by `parse`; what is wrong with it is reported with the key's name.
    pub(super) fn parse<T, E: Display>(
        &self,
        key: &str,
        scalar: &Scalar,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        match parse(&scalar.text) {
            Ok(value) => Some(value),
            Err(error) => {
                self.reader.problem(&scalar.span, format!("{key} = \"{}\": {error}", scalar.text));
                None
            }
        }
    }

    /// Reports the keys that nobody has asked for.
    pub(super) fn finish(self) {
        self.finished.set(true);
        let known = self.known.borrow();
        for key in self.table.keys().filter(|key| !known.contains(&key.get_ref().as_ref())) {
            let name = key.get_ref();
            let hint = suggestion(name, known.iter().copied());
            self.reader.problem(&key.span(), format!("{} has no key '{name}'; {hint}", self.name));
        }
    }
}

impl Drop for Section<'_> {
    fn drop(&mut self) {
        debug_assert!(self.finished.get(), "unknown keys of {} go unnoticed", self.name);
    }
}

/// A scalar as text, numbers as they stand.
fn scalar_text(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().replace('_', "")),
        DeValue::Float(number) => Some(number.as_str().replace('_', "")),
        DeValue::Boolean(value) => Some(value.to_string()),
        _ => None,
    }
}
