//! Which entries of a tree are left out.

use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};

/// Rules in the order in which they were given: the first that matches decides, and what none
/// matches is taken. A directory that is left out is not looked into.
///
/// As in rsync, a pattern with a slash at its beginning is matched from the top of the transfer, one
/// with a slash inside against the end of the path, one without against the name alone; a slash at
/// its end restricts it to directories. `*` does not match a slash, `**` does; `?` is one byte.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug)]
struct Rule {
    matcher: GlobMatcher,
    include: bool,
    directories_only: bool,
}

/// A pattern that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{pattern}' is no pattern: {why}")]
pub struct BadPattern {
    pattern: String,
    why: String,
}

impl Filter {
    /// Adds a rule after the others.
    ///
    /// # Errors
    ///
    /// [`BadPattern`].
    pub fn add(&mut self, pattern: &str, include: bool) -> Result<(), BadPattern> {
        let bad = |why: String| BadPattern { pattern: pattern.to_owned(), why };
        let directories_only = pattern.ends_with('/');
        let body = pattern.trim_end_matches('/');
        if body.is_empty() {
            return Err(bad("it matches nothing".into()));
        }
        let glob = match body.strip_prefix('/') {
            Some(anchored) => anchored.to_owned(),
            None => format!("**/{body}"),
        };
        let matcher = GlobBuilder::new(&glob)
            .literal_separator(true)
            .backslash_escape(true)
            .build()
            .map_err(|error| bad(error.kind().to_string()))?
            .compile_matcher();
        self.rules.push(Rule { matcher, include, directories_only });
        Ok(())
    }

    /// Whether an entry is taken. `path`: from the top of the transfer.
    pub fn takes(&self, path: &Path, directory: bool) -> bool {
        self.rules
            .iter()
            .find(|rule| (directory || !rule.directories_only) && rule.matcher.is_match(path))
            .is_none_or(|rule| rule.include)
    }

    /// Whether everything is taken.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(rules: &[(&str, bool)]) -> Filter {
        let mut filter = Filter::default();
        for (pattern, include) in rules {
            filter.add(pattern, *include).unwrap();
        }
        filter
    }

    #[test]
    fn patterns_match_as_in_rsync() {
        for (pattern, path, directory, matched) in [
            ("*.o", "a/b/c.o", false, true),
            ("*.o", "c.o", false, true),
            ("*.o", "c.oo", false, false),
            ("/c.o", "c.o", false, true),
            ("/c.o", "a/c.o", false, false),
            ("b/*.o", "a/b/c.o", false, true),
            ("b/*.o", "b/x/c.o", false, false),
            ("b/**", "a/b/x/c.o", false, true),
            ("tmp/", "a/tmp", true, true),
            ("tmp/", "a/tmp", false, false),
            ("[ab].c", "x/b.c", false, true),
        ] {
            let taken = filter(&[(pattern, false)]).takes(Path::new(path), directory);
            assert_eq!(!taken, matched, "{pattern} {path}");
        }
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let filter = filter(&[("keep.o", true), ("*.o", false)]);
        assert!(filter.takes(Path::new("a/keep.o"), false));
        assert!(!filter.takes(Path::new("a/other.o"), false));
        assert!(filter.takes(Path::new("a/other.c"), false));
    }

    #[test]
    fn what_is_no_pattern_is_told() {
        for pattern in ["", "/", "a[", "{a"] {
            let error = Filter::default().add(pattern, false).unwrap_err();
            assert!(error.to_string().contains("no pattern"), "{error}");
        }
    }
}
