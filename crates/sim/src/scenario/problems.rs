//! What is wrong with a scenario file, and in which line.

use core::fmt;
use core::ops::Range;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Counted from 1; none of what does not stand in the file.
    pub line: Option<usize>,
    /// What is wrong there, and what to write instead.
    pub message: String,
}

/// Everything that is wrong with a file; never empty, in the order of the lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Problem { line, message }) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            f.write_str(separator)?;
            if let Some(line) = line {
                write!(f, "line {line}: ")?;
            }
            f.write_str(message)?;
        }
        Ok(())
    }
}

impl core::error::Error for Problems {}

impl Problems {
    /// `found` in the order of lines, each once.
    pub(super) fn of(mut found: Vec<Problem>) -> Self {
        found.sort();
        found.dedup();
        Problems(found)
    }
}

/// The line of `text` in which `span` begins.
pub(super) fn line_of(text: &str, span: &Range<usize>) -> usize {
    let before = &text.as_bytes()[..span.start.min(text.len())];
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_count_from_one() {
        let text = "a = 1\nb = 2\n";
        assert_eq!([0, 5, 6, 99].map(|at| line_of(text, &(at..at + 1))), [1, 1, 2, 3]);
    }
}
