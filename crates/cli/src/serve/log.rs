//! The log of a server: a line for each event, as text or JSON, with nothing in it that a peer could
//! end a line or steer a terminal with.

use std::fmt::Write as _;
use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Map, Number, Value};

/// How lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `TIME LEVEL EVENT KEY=VALUE …`.
    Text,
    /// An object with `time`, `level`, `event` and the fields.
    Json,
}

impl Format {
    /// As they are written in configurations.
    pub const NAMES: [(&'static str, Format); 2] = [("text", Format::Text), ("json", Format::Json)];
}

/// How much an event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// As it should be.
    Info,
    /// Somebody should look at it.
    Warning,
    /// Something that was asked for was not done.
    Error,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Level::Info => "info",
            Level::Warning => "warning",
            Level::Error => "error",
        }
    }
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Field<'a> {
    /// A text, from whomever.
    Text(&'a str),
    /// A count.
    Count(u64),
    /// A measured number; one that is not finite is left out.
    Number(f64),
    /// Yes or no.
    Flag(bool),
}

impl<'a> From<&'a str> for Field<'a> {
    fn from(text: &'a str) -> Self {
        Field::Text(text)
    }
}

impl From<u64> for Field<'_> {
    fn from(count: u64) -> Self {
        Field::Count(count)
    }
}

/// Lines that strangers cause: so many at once, and then one in so long.
const BURST: u32 = 10;
const PAUSE: Duration = Duration::from_secs(1);

/// Bounds how often something is written down.
#[derive(Debug)]
pub struct Bound(Mutex<Allowance>);

#[derive(Debug)]
struct Allowance {
    lines: u32,
    /// When it was last filled up.
    since: Instant,
    /// Lines that were left out since the last one.
    hidden: u64,
}

impl Bound {
    /// With everything before it.
    pub fn new(now: Instant) -> Self {
        Bound(Mutex::new(Allowance { lines: BURST, since: now, hidden: 0 }))
    }

    /// Whether a line may be written: then how many were left out since the last one. It is counted.
    pub fn ask(&self, now: Instant) -> Option<u64> {
        let mut allowance = self.filled(now);
        match allowance.lines.checked_sub(1) {
            None => {
                allowance.hidden = allowance.hidden.saturating_add(1);
                None
            }
            Some(left) => {
                allowance.lines = left;
                Some(std::mem::take(&mut allowance.hidden))
            }
        }
    }

    /// How many were left out, if there are some and a line about them may be written.
    pub fn rest(&self, now: Instant) -> Option<u64> {
        let mut allowance = self.filled(now);
        if allowance.hidden == 0 || allowance.lines == 0 {
            return None;
        }
        allowance.lines -= 1;
        Some(std::mem::take(&mut allowance.hidden))
    }

    fn filled(&self, now: Instant) -> std::sync::MutexGuard<'_, Allowance> {
        let mut allowance = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while allowance.lines < BURST && now.saturating_duration_since(allowance.since) >= PAUSE {
            allowance.lines += 1;
            allowance.since += PAUSE;
        }
        if allowance.lines == BURST {
            allowance.since = now;
        }
        allowance
    }
}

/// Where lines go.
pub struct Log {
    format: Format,
    out: Mutex<Box<dyn Write + Send>>,
}

impl Log {
    /// To `out`.
    pub fn new(format: Format, out: Box<dyn Write + Send>) -> Self {
        Log { format, out: Mutex::new(out) }
    }

    /// Writes a line about `event`, which happens now. Names of events and fields are the program's
    /// own, of letters, digits, `_` and `-`. That a line cannot be written is nobody's business.
    pub fn write(&self, level: Level, event: &str, fields: &[(&str, Field<'_>)]) {
        let line = line(self.format, SystemTime::now(), level, event, fields);
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        // In one call, so that lines of several processes stay whole.
        let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    }
}

fn line(
    format: Format,
    now: SystemTime,
    level: Level,
    event: &str,
    fields: &[(&str, Field<'_>)],
) -> String {
    match format {
        Format::Text => text_line(now, level, event, fields),
        Format::Json => json_line(now, level, event, fields),
    }
}

fn text_line(now: SystemTime, level: Level, event: &str, fields: &[(&str, Field<'_>)]) -> String {
    let mut line = format!("{} {} {event}", stamp(now), level.name());
    for (name, field) in fields {
        // Writing to a text does not fail.
        let _ = match field {
            Field::Text(text) => write!(line, " {name}={}", word(text)),
            Field::Count(count) => write!(line, " {name}={count}"),
            Field::Number(number) if number.is_finite() => write!(line, " {name}={number}"),
            Field::Number(_) => Ok(()),
            Field::Flag(flag) => write!(line, " {name}={flag}"),
        };
    }
    line + "\n"
}

fn json_line(now: SystemTime, level: Level, event: &str, fields: &[(&str, Field<'_>)]) -> String {
    let mut object = Map::new();
    object.insert("time".into(), stamp(now).into());
    object.insert("level".into(), level.name().into());
    object.insert("event".into(), event.into());
    for (name, field) in fields {
        let value = match field {
            Field::Text(text) => (*text).into(),
            Field::Count(count) => (*count).into(),
            Field::Number(number) => match Number::from_f64(*number) {
                Some(number) => Value::Number(number),
                None => continue,
            },
            Field::Flag(flag) => (*flag).into(),
        };
        object.insert((*name).to_owned(), value);
    }
    // Outside of texts JSON has none of these characters, so that they can be written otherwise.
    let json = Value::Object(object).to_string();
    let mut line = String::with_capacity(json.len() + 1);
    for c in json.chars() {
        if steers(c) {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                let _ = write!(line, "\\u{unit:04x}");
            }
        } else {
            line.push(c);
        }
    }
    line + "\n"
}

/// A text as one word: as it is, or in quotation marks if it must be.
fn word(text: &str) -> String {
    let plain = |c: char| !c.is_whitespace() && !steers(c) && !matches!(c, '"' | '\\' | '=');
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c if steers(c) => {
                let _ = write!(quoted, "\\u{{{:x}}}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

/// Whether a character does something to a terminal or to the order of others, instead of being seen.
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{200e}'
                | '\u{200f}'
                | '\u{061c}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
                | '\u{feff}'
        )
}

/// `2026-05-04T03:02:01.123Z`.
fn stamp(now: SystemTime) -> String {
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    // Years that begin in March end with the day that leap years add; 400 of them repeat.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = 400 * era + year + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        second / 3600,
        second / 60 % 60,
        second % 60,
        since.subsec_millis()
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(seconds * 1000 + 7)
    }

    #[test]
    fn who_knocks_for_ever_does_not_fill_the_log() {
        let start = Instant::now();
        let bound = Bound::new(start);
        let written = |now| (0..1000).filter(|_| bound.ask(now).is_some()).count();
        assert_eq!(written(start), BURST as usize);
        assert_eq!(bound.rest(start), None, "no line is left for it");
        assert_eq!(bound.ask(start + PAUSE), Some(1000 - u64::from(BURST)));
        assert_eq!(written(start + PAUSE), 0);
        assert_eq!(bound.rest(start + 3 * PAUSE), Some(1000));
        assert_eq!(bound.rest(start + 3 * PAUSE), None);
        assert_eq!(written(start + 1000 * PAUSE), BURST as usize);
    }

    #[test]
    fn times_are_dates() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.007Z"),
            (951_782_399, "2000-02-28T23:59:59.007Z"),
            (951_782_400, "2000-02-29T00:00:00.007Z"),
            (951_868_800, "2000-03-01T00:00:00.007Z"),
            (1_709_251_199, "2024-02-29T23:59:59.007Z"),
            (4_107_542_400, "2100-03-01T00:00:00.007Z"),
            (1_767_225_599, "2025-12-31T23:59:59.007Z"),
        ] {
            assert_eq!(stamp(at(seconds)), text);
        }
    }

    #[test]
    fn text_is_words() {
        let fields = [
            ("client", "alice".into()),
            ("path", "a b".into()),
            ("why", "".into()),
            ("bytes", 12u64.into()),
            ("seconds", Field::Number(0.5)),
            ("rate", Field::Number(f64::NAN)),
            ("plain", Field::Flag(false)),
        ];
        let line = line(Format::Text, at(0), Level::Warning, "session-ended", &fields);
        let expected = "1970-01-01T00:00:00.007Z warning session-ended client=alice path=\"a b\" \
                        why=\"\" bytes=12 seconds=0.5 plain=false\n";
        assert_eq!(line, expected);
    }

    const HOSTILE: &str = "a\n2026 info ok=1\x1b[2J\u{9b}\u{202e}\"\\=\u{7f}é";

    #[test]
    fn no_text_ends_a_line_or_steers_a_terminal() {
        let fields = [("path", HOSTILE.into())];
        for format in [Format::Text, Format::Json] {
            let line = line(format, at(0), Level::Info, "e", &fields);
            assert_eq!(line.find('\n'), Some(line.len() - 1), "{line:?}");
            assert!(!line.trim_end().chars().any(steers), "{line:?}");
        }
        let text = text_line(at(0), Level::Info, "e", &fields);
        let expected = r#"path="a\n2026 info ok=1\u{1b}[2J\u{9b}\u{202e}\"\\=\u{7f}é""#;
        assert!(text.trim_end().ends_with(expected), "{text}");
    }

    #[test]
    fn json_says_the_same() {
        let fields = [("path", HOSTILE.into()), ("n", Field::Count(u64::MAX))];
        let line = json_line(at(1), Level::Error, "refused", &fields);
        let read: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(read["path"], HOSTILE);
        assert_eq!(read["n"], u64::MAX);
        assert_eq!((&read["level"], &read["event"]), (&"error".into(), &"refused".into()));
        assert_eq!(read["time"], "1970-01-01T00:00:01.007Z");
    }

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("no panic").write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_of_threads_stay_whole() {
        let shared = Shared::default();
        let log = Log::new(Format::Text, Box::new(shared.clone()));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        log.write(Level::Info, "event", &[("text", "some words".into())]);
                    }
                });
            }
        });
        let text = String::from_utf8(shared.0.lock().expect("no panic").clone()).expect("UTF-8");
        assert_eq!(text.lines().count(), 200);
        assert!(
            text.lines().all(|line| line.ends_with("Z info event text=\"some words\"")),
            "{text}"
        );
    }
}
