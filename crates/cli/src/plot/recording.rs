//! A trace as it is read: what each connection did, in no more memory than a picture needs.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::BufRead;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::numbers::{Count, Numbers, Quantity};
use crate::qlog::{Connection, Header, NAMES, Reader, Record, Role, Sample, SequenceError};

/// Points of a stream; when there are more, neighbours become one.
const MOST_POINTS: usize = 1024;
/// As many as `farhaul perf` makes.
const MOST_STREAMS: usize = 256;
const MOST_STATES: usize = 64;
/// Letters of a name that are kept.
const LONGEST_NAME: usize = 80;
/// A year, milliseconds.
const LAST_TIME: f64 = 365.0 * 86_400e3;

/// A trace.
#[derive(Debug)]
pub struct Recording {
    /// What was traced, by whom: `client` or `server`.
    pub title: String,
    pub side: String,
    pub role: Role,
    /// The law that was asked for, with its parameters; may be empty.
    pub cc: String,
    /// In the order in which they begin.
    pub streams: Vec<Stream>,
    /// What laws did, by the numbers of [`Point::state`].
    pub states: Vec<State>,
    /// The first and the last sample's time, seconds.
    pub span: (f64, f64),
}

/// What a law did, in its own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub law: String,
    /// Empty if the law does not say.
    pub state: String,
}

/// One connection.
#[derive(Debug)]
pub struct Stream {
    pub id: String,
    pub points: Vec<Point>,
    /// Of all samples.
    pub total: Numbers,
    /// Smallest and largest round-trip time, seconds.
    pub rtt_range: Option<(f64, f64)>,
    /// Seconds in each state.
    pub time_in: Vec<f64>,
    /// Samples that make a point.
    stride: usize,
    /// Those of the last one.
    filled: usize,
}

/// What a connection did from one time to another.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// Seconds.
    pub from: f64,
    pub to: f64,
    /// That in which the law was longest, and how long, seconds.
    pub state: usize,
    state_time: f64,
    pub numbers: Numbers,
}

impl Recording {
    /// Reads a trace.
    ///
    /// # Errors
    /// If it is none, or is damaged.
    pub fn read(source: impl BufRead) -> Result<Self, SequenceError> {
        let mut reader = Reader::new(source);
        let mut recording = match reader.next()?.map(header) {
            Some(Ok(header)) => Recording::begin(&header),
            Some(Err(what)) => return Err(reader.damaged(what)),
            None => return Err(reader.damaged("there is no header")),
        };
        let mut last = 0.0;
        let mut places = HashMap::new();
        while let Some(text) = reader.next()? {
            let taken = recording.take(text, &mut last, &mut places);
            taken.map_err(|what| reader.damaged(what))?;
        }
        if recording.streams.is_empty() {
            let name = NAMES.sample;
            let what = format!("there is no '{name}' up to here: is it a trace of farhaul perf?");
            return Err(reader.damaged(what));
        }
        Ok(recording)
    }

    fn begin(header: &Header) -> Self {
        Recording {
            title: short(&header.title),
            side: short(header.side()),
            role: Role::Sender,
            cc: String::new(),
            streams: Vec::new(),
            states: Vec::new(),
            span: (f64::INFINITY, 0.0),
        }
    }

    /// Takes an event. `last`: the time of the one before; `places`: of streams, by their names.
    fn take(
        &mut self,
        text: &str,
        last: &mut f64,
        places: &mut HashMap<String, usize>,
    ) -> Result<(), String> {
        let Record { time, name, group_id, .. } = parse::<Record<'_, IgnoredAny>>(text)?;
        if !(0.0..=LAST_TIME).contains(&time) {
            return Err(format!("a time of {time} ms"));
        }
        if time < *last {
            return Err(format!("it is of {time} ms, and the one before it of {last} ms"));
        }
        *last = time;
        if name == NAMES.connection {
            let data = parse::<Record<'_, Connection<'_>>>(text)?.data;
            (self.role, self.cc) = (data.role, short(&data.cc));
        } else if name == NAMES.sample {
            let data = parse::<Record<'_, Sample<'_>>>(text)?.data;
            if !data.is_sane() {
                return Err("a number is negative, or greater than can be".into());
            }
            let place = self.place(group_id, places)?;
            self.add(time / 1e3, place, &data)?;
        }
        // Everything else is either told by samples as well or by somebody else.
        Ok(())
    }

    fn place(
        &mut self,
        id: Cow<'_, str>,
        places: &mut HashMap<String, usize>,
    ) -> Result<usize, String> {
        if let Some(place) = places.get(id.as_ref()) {
            return Ok(*place);
        }
        if self.streams.len() == MOST_STREAMS {
            return Err(format!("there are more than {MOST_STREAMS} connections"));
        }
        self.streams.push(Stream::new(short(&id)));
        places.insert(id.into_owned(), self.streams.len() - 1);
        Ok(self.streams.len() - 1)
    }

    fn add(&mut self, time: f64, place: usize, sample: &Sample<'_>) -> Result<(), String> {
        let state = self.state(sample)?;
        let seconds = sample.interval_ms / 1e3;
        let point = Point {
            from: time - seconds,
            to: time,
            state,
            state_time: seconds,
            numbers: Numbers::of(sample, seconds),
        };
        self.streams[place].push(point, self.states.len());
        self.span = (self.span.0.min(time), self.span.1.max(time));
        Ok(())
    }

    /// The number of the state that `sample` tells.
    fn state(&mut self, sample: &Sample<'_>) -> Result<usize, String> {
        let (law, state) = (short(&sample.law), short(&sample.state));
        let told = State { law, state };
        if let Some(known) = self.states.iter().position(|known| *known == told) {
            return Ok(known);
        }
        if self.states.len() == MOST_STATES {
            return Err(format!("the laws have more than {MOST_STATES} states"));
        }
        self.states.push(told);
        Ok(self.states.len() - 1)
    }

    /// What a state is called: by the law too, if there are several.
    pub fn state_name(&self, index: usize) -> String {
        let Some(State { law, state }) = self.states.get(index) else { return String::new() };
        let several = self.states.iter().any(|other| other.law != *law);
        match (several, state.is_empty()) {
            (true, false) => format!("{law}: {state}"),
            (_, true) => law.clone(),
            (false, false) => state.clone(),
        }
    }

    /// Only the connection `id`, if there is one.
    pub fn only(mut self, id: &str) -> Option<Self> {
        self.streams.retain(|stream| stream.id == id);
        (!self.streams.is_empty()).then_some(self)
    }
}

impl Stream {
    fn new(id: String) -> Self {
        Stream {
            id,
            points: Vec::new(),
            total: Numbers::default(),
            rtt_range: None,
            time_in: Vec::new(),
            stride: 1,
            filled: 0,
        }
    }

    fn push(&mut self, point: Point, states: usize) {
        self.total.add(&point.numbers, 1.0);
        self.time_in.resize(states, 0.0);
        self.time_in[point.state] += point.state_time;
        if let Some(rtt) = point.numbers.mean(Quantity::Rtt) {
            let (low, high) = self.rtt_range.unwrap_or((rtt, rtt));
            self.rtt_range = Some((low.min(rtt), high.max(rtt)));
        }
        match self.points.last_mut() {
            Some(last) if self.filled < self.stride => {
                last.extend(&point);
                self.filled += 1;
            }
            _ => {
                if self.points.len() == MOST_POINTS {
                    self.halve();
                }
                self.points.push(point);
                self.filled = 1;
            }
        }
    }

    /// Makes one of each two neighbours.
    fn halve(&mut self) {
        self.stride *= 2;
        let merged = self.points.chunks(2).map(|pair| {
            let mut first = pair[0];
            pair[1..].iter().for_each(|next| first.extend(next));
            first
        });
        self.points = merged.collect();
    }
}

impl Point {
    fn extend(&mut self, next: &Point) {
        self.to = next.to;
        self.numbers.add(&next.numbers, 1.0);
        if self.state == next.state {
            self.state_time += next.state_time;
        } else if next.state_time > self.state_time {
            (self.state, self.state_time) = (next.state, next.state_time);
        }
    }
}

impl Numbers {
    /// What `sample` tells of an interval of so many seconds.
    fn of(sample: &Sample<'_>, seconds: f64) -> Self {
        let mut out = Numbers::default();
        let mut mean = |quantity, value: Option<f64>| out.observe(quantity, value, seconds);
        mean(Quantity::Window, Some(sample.window.into()));
        mean(Quantity::FlowWindow, Some(sample.flow_window.into()));
        mean(Quantity::InFlight, Some(sample.in_flight.into()));
        mean(Quantity::Paced, sample.paced_bps);
        mean(Quantity::Sent, Some(sample.sent_bps));
        mean(Quantity::Delivered, Some(sample.delivered_bps));
        mean(Quantity::Received, Some(sample.received_bps));
        mean(Quantity::Capacity, sample.capacity_bps);
        mean(Quantity::Rtt, sample.rtt_ms.map(|ms| ms / 1e3));
        mean(Quantity::MinRtt, sample.min_rtt_ms.map(|ms| ms / 1e3));
        for (count, packets) in [
            (Count::Sent, sample.sent),
            (Count::Received, sample.received),
            (Count::Lost, sample.lost),
            (Count::Retransmitted, sample.retransmitted),
            (Count::Missing, sample.missing),
            (Count::Timeouts, sample.timeouts),
        ] {
            out.count(count, packets as f64);
        }
        out
    }
}

fn header(text: &str) -> Result<Header, String> {
    let header: Header = parse(text).map_err(|what| format!("it is no header of qlog: {what}"))?;
    match header.problem() {
        Some(problem) => Err(problem),
        None => Ok(header),
    }
}

fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| {
        // Its lines are those of the record, not of the file.
        let (line, column) = (error.line(), error.column());
        let what = error.to_string();
        let what = what.trim_end_matches(&format!(" at line {line} column {column}"));
        match line {
            0 | 1 => format!("{what}, at its column {column}"),
            _ => format!("{what}, at column {column} of its line {line}"),
        }
    })
}

/// The beginning of a name.
fn short(name: &str) -> String {
    name.chars().take(LONGEST_NAME).collect()
}

#[cfg(test)]
mod tests;
