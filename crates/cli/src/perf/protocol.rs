//! What the two sides of a test say to each other.
//!
//! The control connection carries lines of JSON: the [`Request`], an [`Answer`] at once and another
//! when the test begins, how much was sent and received as [`Total`]s, and the report of the
//! listening side. A data connection begins with a [header](Request::header) and carries anything after it.

use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::channel::Channel;

/// Bytes of the header of a data connection.
pub const HEADER: usize = 64;

const MAGIC: &str = "farhaul perf 1";
const DATA: &str = "farhaul perf data ";
/// The longest line of the control connection, bytes: a report with many intervals.
const MAX_LINE: usize = 1 << 20;
/// The longest first line of either side, bytes.
const MAX_FIRST_LINE: usize = 1 << 10;
/// The longest test, a year: what a peer asks for must stay within a clock's range.
const MAX_SECONDS: f64 = 365.0 * 86_400.0;
const MOST_STREAMS: u32 = 256;

/// What to measure: the first line of a control connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    magic: String,
    /// Tells the data connections of one test from those of another.
    pub token: String,
    pub streams: u32,
    /// The listening side sends.
    pub reverse: bool,
    pub seconds: f64,
    pub bytes: Option<u64>,
}

/// What the listening side says to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It comes after the test that is running.
    Busy,
    /// It comes next.
    Heard,
    /// It has come: now the data connections.
    Ready,
}

/// The sender has sent so much on each connection, or the receiver has received it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Total {
    pub bytes: Vec<u64>,
}

/// How a connection to the listening side begins.
pub enum Opening {
    Control(Request),
    Data([u8; HEADER]),
}

impl Request {
    pub fn new(streams: u32, reverse: bool, time: Duration, bytes: Option<u64>) -> Self {
        let (magic, token) = (MAGIC.into(), format!("{:016x}", token()));
        Request { magic, token, streams, reverse, seconds: time.as_secs_f64(), bytes }
    }

    fn is_sane(&self) -> bool {
        self.magic == MAGIC
            && (1..=MOST_STREAMS).contains(&self.streams)
            && (0.0..=MAX_SECONDS).contains(&self.seconds)
    }

    /// What each stream carries of the bytes that are asked for, if they are: together exactly
    /// that.
    pub fn share(&self, index: u32) -> Option<u64> {
        let streams = u64::from(self.streams);
        self.bytes.map(|n| n / streams + u64::from(u64::from(index) < n % streams))
    }

    /// The first bytes of data connection `index`.
    pub fn header(&self, index: u32) -> [u8; HEADER] {
        let mut out = [b' '; HEADER];
        let text = format!("{DATA}{} {index}", self.token);
        let len = text.len().min(HEADER);
        out[..len].copy_from_slice(&text.as_bytes()[..len]);
        out
    }
}

/// Reads how a connection begins, which may take so long.
///
/// # Errors
/// If it is nothing that belongs to a test.
pub fn read_opening(channel: &mut Channel, patience: Duration) -> Result<Opening> {
    let deadline = Some(Instant::now() + patience);
    let mut out = [0; HEADER];
    read_by(channel, &mut out[..1], deadline)?;
    let opening = if out[0] == DATA.as_bytes()[0] {
        read_by(channel, &mut out[1..], deadline)?;
        out.starts_with(DATA.as_bytes()).then_some(Opening::Data(out))
    } else if out[0] == b'{' {
        let request: Request = read_line(channel, vec![b'{'], MAX_FIRST_LINE, deadline)?;
        request.is_sane().then_some(Opening::Control(request))
    } else {
        None
    };
    match opening {
        Some(opening) => Ok(opening),
        None => bail!(STRANGE),
    }
}

/// Reads what the listening side says first, which may take so long.
///
/// # Errors
/// If it is no answer.
pub fn read_first_answer(channel: &mut Channel, patience: Duration) -> Result<Answer> {
    read_line(channel, Vec::new(), MAX_FIRST_LINE, Some(Instant::now() + patience))
}

/// Writes one line of JSON.
pub fn send_line<T: Serialize>(channel: &mut Channel, message: &T) -> Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    channel.write_all(&line)?;
    Ok(())
}

/// Reads one line of JSON, however long it takes to come.
pub fn receive_line<T: DeserializeOwned>(channel: &mut Channel) -> Result<T> {
    read_line(channel, Vec::new(), MAX_LINE, None)
}

const STRANGE: &str = "the peer does not speak the protocol of farhaul perf";

fn read_line<T: DeserializeOwned>(
    channel: &mut Channel,
    mut line: Vec<u8>,
    longest: usize,
    deadline: Option<Instant>,
) -> Result<T> {
    let mut byte = [0];
    loop {
        read_by(channel, &mut byte, deadline)?;
        if byte[0] == b'\n' {
            return serde_json::from_slice(&line).context(STRANGE);
        }
        line.push(byte[0]);
        if line.len() > longest {
            bail!(STRANGE);
        }
    }
}

/// Fills `out`, until `deadline`.
fn read_by(channel: &mut Channel, out: &mut [u8], deadline: Option<Instant>) -> Result<()> {
    let mut filled = 0;
    while filled < out.len() {
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            bail!(LATE);
        }
        channel.set_read_timeout(left)?;
        match channel.read(&mut out[filled..]) {
            Ok(0) => bail!("the peer closed the connection in the middle of the test"),
            Ok(count) => filled += count,
            Err(error) if deadline.is_some() && is_late(&error) => bail!(LATE),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    if deadline.is_some() {
        channel.set_read_timeout(None)?;
    }
    Ok(())
}

const LATE: &str = "the peer has said nothing in time";

/// Sockets of the kernel say that it would block.
fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock)
}

fn token() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(streams: u32, bytes: u64) -> Request {
        Request::new(streams, false, Duration::from_secs(1), Some(bytes))
    }

    #[test]
    fn shares_add_up_and_differ_by_one_at_most() {
        for (streams, bytes) in [(1, 0), (3, 10), (7, 1_000_000), (256, 255), (256, u64::MAX)] {
            let request = request(streams, bytes);
            let shares: Vec<u64> = (0..streams).filter_map(|i| request.share(i)).collect();
            assert_eq!(shares.iter().sum::<u64>(), bytes);
            assert!(shares.is_sorted_by(|a, b| a >= b), "{shares:?}");
            assert!(shares[0] - shares[shares.len() - 1] <= 1, "{shares:?}");
        }
        let timed = Request { bytes: None, ..request(2, 0) };
        assert_eq!(timed.share(0), None);
    }

    #[test]
    fn requests_outside_their_ranges_are_refused() {
        assert!(request(256, 1).is_sane());
        let bad = [
            Request { streams: 0, ..request(1, 1) },
            Request { streams: 257, ..request(1, 1) },
            Request { seconds: -1.0, ..request(1, 1) },
            Request { seconds: f64::INFINITY, ..request(1, 1) },
            Request { seconds: f64::NAN, ..request(1, 1) },
            Request { magic: "farhaul perf 0".into(), ..request(1, 1) },
        ];
        bad.iter().for_each(|request| assert!(!request.is_sane(), "{request:?}"));
    }

    #[test]
    fn headers_name_the_test_and_the_connection() {
        let (one, other) = (request(256, 1), request(256, 1));
        assert_ne!(one.header(0), other.header(0));
        assert_ne!(one.header(1), one.header(11));
        assert!(one.header(255).trim_ascii_end().ends_with(b" 255"), "nothing is cut off");
    }
}
