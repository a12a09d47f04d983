//! Something that could be done, and what would be different then.

use super::Severity;
use super::stage::{Side, Situation};

/// Advice that was not tried yet.
pub(super) struct Remedy {
    /// If it gains nothing.
    pub severity: Severity,
    pub host: Option<Side>,
    pub found: String,
    pub why: String,
    pub command: Option<String>,
    pub mend: Box<dyn Fn(&mut Situation)>,
    /// Not worth a word where it is no limit.
    pub only_as_limit: bool,
    /// Never more than something that helps: what it would gain is not measured.
    pub hint: bool,
}

impl Remedy {
    /// Good to know; changes no rate.
    pub fn note(host: Option<Side>, found: String, why: &str) -> Self {
        Remedy {
            severity: Severity::Note,
            host,
            found,
            why: why.to_owned(),
            command: None,
            mend: Box::new(|_| {}),
            only_as_limit: false,
            hint: false,
        }
    }

    /// Worth doing even where it gains nothing at once.
    pub fn helps(self) -> Self {
        Remedy { severity: Severity::Helps, ..self }
    }

    /// Something that helps, and never limits.
    pub fn hint(self) -> Self {
        Remedy { severity: Severity::Helps, hint: true, ..self }
    }

    /// Something without a remedy, which is said of the limit only.
    pub fn only_as_limit(self) -> Self {
        Remedy { only_as_limit: true, ..self }
    }

    pub fn command(self, command: impl Into<String>) -> Self {
        Remedy { command: Some(command.into()), ..self }
    }

    pub fn mend(self, mend: impl Fn(&mut Situation) + 'static) -> Self {
        Remedy { mend: Box::new(mend), ..self }
    }
}
