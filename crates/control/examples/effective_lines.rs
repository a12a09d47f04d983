//! How long each law is, beside the length of the same law in table 5-1 of the UDT dissertation:
//! `cargo run -p farhaul-control --example effective_lines`. Fails if a law is more than 1.2 times as
//! long; the tests of this file do as well.
//!
//! An effective line is a line, as rustfmt breaks them, inside the body of a function, the value of
//! a constant or the fields of a type, that is not
//!
//! - blank, a comment or an attribute,
//! - closing punctuation alone (`}`, `})?;`),
//! - part of a test or of a `use` or `mod`,
//! - part of a signature, or of the head of a type, an `impl` or a trait,
//! - part of the registration: the constants of type `LawInfo` and `Param`, and `NAME`,
//! - part of a constructor that only sets fields: a function without `self` that returns `Self`, and
//!   in which nothing is computed, chosen or repeated.
//!
//! The dissertation counts semicolons. These are fewer than lines: the head of an `if` has none, nor
//! has what a long expression takes beyond its first line.
//!
//! The base that TCP's laws share and the timing class of those that go by the delay are shown in rows
//! of their own, as the dissertation has its timing class; [`ABOUT_THE_BASE`] says what is in the base.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

/// So many times the dissertation's count may a law have.
const LIMIT: f64 = 1.2;

/// The row that the dissertation does not have.
const BASE: &str = "base of TCP's";
const ABOUT_THE_BASE: &str = "\
The dissertation's laws are derived from its TCP of 28 semicolons (section 5.3.2), which counts duplicate
ACKs, grows, halves and times out. Ours are rules on a common base, which TCP's own law is as well. The
base also answers a window of losses once, by a recovery point (RFC 6582), divides an ACK at the
threshold, does not grow a window that nothing tests (RFC 7661), leaves the threshold when a
retransmission is lost (RFC 5681), takes over a running connection, and names its state for traces.";

/// A row of table 5-1: the law, its count, and the files that have it here.
type Row = (&'static str, usize, &'static [&'static str]);

const TABLE: [Row; 9] = [
    ("TCP NewReno", 28, &["reno.rs"]),
    ("Scalable TCP", 11, &["scalable.rs"]),
    ("HighSpeed TCP", 8, &["hstcp.rs"]),
    ("BIC TCP", 38, &["bic.rs"]),
    ("TCP Westwood", 27, &["westwood.rs"]),
    ("TCP Vegas", 37, &["vegas.rs"]),
    ("FAST TCP", 31, &["fast.rs"]),
    ("timing class", 36, &["rounds.rs"]),
    (BASE, 0, &["tcp_like.rs"]),
];

/// What a line belongs to, by the brackets around it.
#[derive(Clone, Copy, PartialEq)]
enum Within {
    /// Items, or an `impl` or a trait.
    Items,
    /// An item whose lines count but for its head.
    Counted,
    /// An item whose lines do not.
    Skipped,
    /// A signature: whether the body counts is known at its end.
    Signature,
}

/// The effective lines of a file.
fn effective_lines(source: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let (mut within, mut depth, mut outside) = (Within::Items, 0, 0);
    let mut signature = String::new();
    let mut is_test = false;
    let lines: Vec<&str> = source.lines().collect();
    for (number, line) in lines.iter().enumerate() {
        let code = without_comments(line);
        let text = code.trim();
        if text.is_empty() || text.starts_with('#') {
            is_test |= text == "#[cfg(test)]";
            continue;
        }
        let begins = within == Within::Items;
        if begins {
            outside = depth;
            within = kind(text, core::mem::take(&mut is_test));
            signature.clear();
        }
        depth += brackets(text);
        match within {
            Within::Items => {}
            Within::Signature => {
                signature += text;
                if text.ends_with('{') {
                    let copies = is_copying_constructor(&signature, &lines[number + 1..]);
                    within = if copies { Within::Skipped } else { Within::Counted };
                    continue;
                }
            }
            // The head of a constant has its value, that of a type nothing that counts.
            Within::Counted if (!begins || text.contains(" = ")) && !is_closing(text) => {
                found.push(line.trim());
            }
            Within::Counted | Within::Skipped => {}
        }
        if depth == outside && (text.ends_with(';') || text.ends_with('}')) {
            within = Within::Items;
        }
    }
    found
}

/// What the item is that begins with this line.
fn kind(text: &str, is_test: bool) -> Within {
    let text = text.strip_prefix("pub(crate) ").or(text.strip_prefix("pub ")).unwrap_or(text);
    let text = if text.starts_with("const fn") { &text[6..] } else { text };
    let word = text.split([' ', '<', '(']).next().unwrap_or_default();
    let registers = ["const NAME", ": LawInfo", ": Param"].iter().any(|part| text.contains(part));
    match word {
        _ if is_test => Within::Skipped,
        "use" | "mod" | "type" => Within::Skipped,
        "const" | "static" if registers => Within::Skipped,
        "const" | "static" | "struct" | "enum" => Within::Counted,
        "fn" => Within::Signature,
        // impl, trait, and the brackets that close them.
        _ => Within::Items,
    }
}

fn is_copying_constructor(signature: &str, rest: &[&str]) -> bool {
    let mut depth = 1;
    let body = rest.iter().take_while(|line| {
        depth += brackets(&without_comments(line));
        depth > 0
    });
    let computes = [" + ", " - ", " * ", " / ", "if ", "match ", "for ", "while ", "loop "];
    signature.contains("-> Self")
        && !signature.contains("self")
        && !body.into_iter().any(|line| computes.iter().any(|part| line.contains(part)))
}

/// The line without its comment and without what its strings say.
fn without_comments(line: &str) -> String {
    let mut code = String::new();
    for (nth, part) in line.split('"').enumerate() {
        if nth % 2 == 1 {
            code += "\"\"";
        } else if let Some((before, _)) = part.split_once("//") {
            return code + before;
        } else {
            code += part;
        }
    }
    code
}

/// Brackets opened, less those closed.
fn brackets(text: &str) -> i32 {
    let one = |c| i32::from("([{".contains(c)) - i32::from(")]}".contains(c));
    text.chars().map(one).sum()
}

fn is_closing(text: &str) -> bool {
    text.chars().all(|c| ")]};,?".contains(c))
}

/// The table: what it is, the dissertation's count and ours.
fn counts() -> Vec<(&'static str, usize, usize)> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let lines = |file: &&str| {
        let text = fs::read_to_string(source.join(file)).unwrap_or_default();
        effective_lines(&text).len()
    };
    let row = |&(law, theirs, files): &Row| (law, theirs, files.iter().map(lines).sum());
    TABLE.iter().map(row).collect()
}

fn ratio(theirs: usize, ours: usize) -> f64 {
    ours as f64 / theirs as f64
}

fn is_too_long(&(law, theirs, ours): &(&str, usize, usize)) -> bool {
    law != BASE && ratio(theirs, ours) > LIMIT
}

fn main() -> ExitCode {
    println!("{:<14} {:>12} {:>5} {:>6}", "law", "dissertation", "ours", "ratio");
    let counts = counts();
    for row @ &(law, theirs, ours) in &counts {
        if law == BASE {
            println!("{law:<14} {:>12} {ours:>5}", "");
            continue;
        }
        let verdict = if is_too_long(row) { "  too long" } else { "" };
        println!("{law:<14} {theirs:>12} {ours:>5} {:>6.2}{verdict}", ratio(theirs, ours));
    }
    println!("\n{ABOUT_THE_BASE}");
    if counts.iter().any(is_too_long) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_law_is_much_longer_than_in_the_dissertation() {
        let counts = counts();
        assert!(counts.iter().all(|(_, _, ours)| *ours > 0), "{counts:?}");
        let long: Vec<_> = counts.into_iter().filter(is_too_long).collect();
        assert!(long.is_empty(), "{long:?}");
    }

    #[test]
    fn what_counts_and_what_does_not() {
        let source = r#"
//! A law.

use crate::{
    Rule, View,
};

/// Counts, its comment does not.
const STEP: f64 = 1.0;

/// Its head and its end do not count.
#[derive(Debug)]
pub struct Law {
    /// A field does.
    gain: f64, // as here
}

pub type Alias = Base<Law>;

impl Law {
    pub(crate) const INFO: LawInfo = LawInfo {
        name: Law::NAME,
        make: Make::Law(|values, _| {
            Box::new(Law::new(values.get("gain")))
        }),
    };

    pub fn new(gain: f64) -> Self {
        Law { gain }
    }

    fn computed(gain: f64) -> Self {
        Law { gain: gain / 2.0 }
    }
}

impl Rule for Law {
    const NAME: &'static str = "law";

    fn observe(&mut self, _acked: u32) {}

    fn avoid(
        &mut self,
        window: f64,
    ) -> f64 {
        if window < 1.0 {
            // Not this "{".
            return f64::from("}{".len() as u32);
        } else {
            window + self.gain
        }
    }

    #[cfg(test)]
    fn gain(&self) -> f64 {
        self.gain
    }
}

#[cfg(test)]
mod tests;
"#;
        let expected = [
            "const STEP: f64 = 1.0;",
            "gain: f64, // as here",
            "Law { gain: gain / 2.0 }",
            "if window < 1.0 {",
            "return f64::from(\"}{\".len() as u32);",
            "} else {",
            "window + self.gain",
        ];
        assert_eq!(effective_lines(source), expected);
    }
}
