//! The paths of a race.

use core::fmt;
use core::str::FromStr;
use std::time::Duration;

use farhaul_link::{Blackout, LossModel, Rate, RateChanges, parse_duration};

/// A path, as `rate=1G,rtt=50ms,loss=1%,jitter=2ms,queue=1`: what is left out is zero or, of the queue,
/// one bandwidth-delay product. Further keys: `blackout=3s+500ms` and `change=3s:100M`, one or several
/// with `+` between, and `burst=5`, the mean number of packets that are lost together.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Of the bottleneck, both ways.
    pub rate: Rate,
    /// Without a queue, there and back.
    pub rtt: Duration,
    /// On the way there, in percent.
    pub loss: f64,
    /// Packets lost together on average; 1: each by itself.
    pub burst: f64,
    /// Added to each packet's delay, uniform from 0; the order is kept.
    pub jitter: Duration,
    /// In bandwidth-delay products.
    pub queue: f64,
    /// When the wire is cut.
    pub blackout: Option<Blackout>,
    /// When the rate changes.
    pub changes: RateChanges,
}

/// What is wrong with the text of a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} in the path '{text}': give rate=1G,rtt=50ms and, if wanted, loss=1%, burst=5, jitter=2ms, queue=0.5, blackout=3s+500ms, change=3s:100M"
)]
pub struct CellError {
    text: String,
    what: String,
}

/// A queue has room for so many packets, however short the path.
const LEAST_QUEUE: f64 = 10.0;
/// Where none is given.
const LEAST_RATE: Rate = Rate::from_bits_per_second(1).expect("above 0");
/// Bits of a full packet.
pub(super) const PACKET_BITS: f64 = 12_000.0;
/// A run lasts so long at least, and so many round trips.
const LASTS: Duration = Duration::from_secs(6);
const LASTS_ROUND_TRIPS: u32 = 60;

impl Cell {
    /// A path of that rate, in bits a second, and round trip that loses so many percent.
    pub fn new(rate: u64, rtt_ms: u64, loss: f64) -> Self {
        Cell {
            rate: Rate::from_bits_per_second(rate).unwrap_or(LEAST_RATE),
            rtt: Duration::from_millis(rtt_ms),
            loss,
            burst: 1.0,
            jitter: Duration::ZERO,
            queue: 1.0,
            blackout: None,
            changes: RateChanges::default(),
        }
    }

    /// Packets that the queue holds, ten at least.
    pub fn queue_packets(&self) -> u64 {
        let product = self.rate.bits_per_second() as f64 * self.rtt.as_secs_f64() / PACKET_BITS;
        (self.queue * product).round().max(LEAST_QUEUE) as u64
    }

    /// The loss model on the way there.
    pub fn loss_model(&self) -> String {
        match (self.loss, self.burst) {
            (0.0, _) => "none".into(),
            (loss, 1.0) => format!("{loss}%"),
            (loss, burst) => format!("ge:loss={loss}%,burst={burst}"),
        }
    }

    /// How long a run lasts.
    pub fn lasts(&self) -> Duration {
        LASTS.max(self.rtt * LASTS_ROUND_TRIPS)
    }

    /// Nothing but rate and round trip, loss and a queue of one bandwidth-delay product.
    pub fn is_plain(&self) -> bool {
        let plain = Cell::new(self.rate.bits_per_second(), 1, self.loss);
        *self == Cell { rtt: self.rtt, ..plain }
    }

    /// What the line can deliver on average over a run, bits a second of whole packets.
    pub fn line_bps(&self) -> f64 {
        let lasts = self.lasts();
        let mut at = Duration::ZERO;
        let (mut rate, mut bits) = (self.rate.bits_per_second() as f64, 0.0);
        for change in self.changes.changes().iter().filter(|change| change.at < lasts) {
            bits += rate * (change.at - at).as_secs_f64();
            (at, rate) = (change.at, change.rate.bits_per_second() as f64);
        }
        bits += rate * (lasts - at).as_secs_f64();
        bits / lasts.as_secs_f64()
    }
}

/// Rates, round trips and losses, and what else may befall two of them.
pub fn standard() -> Vec<Cell> {
    let mut cells = Vec::new();
    for rate in [10_000_000, 100_000_000, 1_000_000_000] {
        for rtt in [1, 10, 50, 100, 200] {
            for loss in [0.0, 0.1, 1.0, 2.0] {
                cells.push(Cell::new(rate, rtt, loss));
            }
        }
    }
    for rate in [100_000_000, 1_000_000_000] {
        let cell = Cell::new(rate, 50, 0.0);
        let tenth = rate / 10;
        let others = [
            "queue=0.1".to_owned(),
            "queue=5".into(),
            "jitter=1ms".into(),
            "jitter=3ms".into(),
            "jitter=3ms,loss=1".into(),
            "loss=1,burst=5".into(),
            "blackout=2s+1s".into(),
            format!("change=2s:{tenth}+4s:{rate}"),
        ];
        cells.extend(others.iter().map(|keys| cell.changed(keys).expect("a path of our own")));
    }
    cells
}

/// A few of each kind.
pub fn quick() -> Vec<Cell> {
    let gigabit = Cell::new(1_000_000_000, 50, 0.0);
    let mut cells = vec![
        Cell::new(10_000_000, 50, 0.0),
        Cell::new(100_000_000, 10, 0.1),
        Cell::new(100_000_000, 100, 1.0),
        Cell::new(1_000_000_000, 1, 1.0),
        Cell::new(1_000_000_000, 10, 1.0),
        gigabit.clone(),
        Cell::new(1_000_000_000, 100, 0.1),
    ];
    cells.push(Cell { jitter: Duration::from_millis(2), ..gigabit });
    cells
}

impl Cell {
    /// This path with other values for some keys.
    ///
    /// # Errors
    /// A key or a value that there is not.
    pub fn changed(&self, keys: &str) -> Result<Cell, CellError> {
        let wrong = |what: String| CellError { text: keys.into(), what };
        let mut cell = self.clone();
        for pair in keys.split(',').filter(|pair| !pair.is_empty()) {
            let (key, value) =
                pair.split_once('=').ok_or_else(|| wrong(format!("no value for '{pair}'")))?;
            let bad = || wrong(format!("no {key} is '{value}'"));
            let number = |text: &str| {
                let number: Option<f64> = text.trim_end_matches('%').parse().ok();
                number.filter(|number| number.is_finite() && *number >= 0.0).ok_or_else(bad)
            };
            match key {
                "rate" => cell.rate = value.parse().map_err(|_| bad())?,
                "rtt" => cell.rtt = parse_duration(value).map_err(|_| bad())?,
                "loss" => cell.loss = number(value)?,
                "burst" => cell.burst = number(value)?,
                "jitter" => cell.jitter = parse_duration(value).map_err(|_| bad())?,
                "queue" => cell.queue = number(value)?,
                "blackout" => cell.blackout = Some(value.parse().map_err(|_| bad())?),
                "change" => cell.changes = value.replace('+', ",").parse().map_err(|_| bad())?,
                _ => return Err(wrong(format!("no key '{key}'"))),
            }
        }
        let model: Result<LossModel, _> = cell.loss_model().parse();
        if let Err(error) = model {
            return Err(wrong(error.to_string()));
        }
        if cell.rtt.is_zero() || cell.rtt > Duration::from_secs(10) {
            return Err(wrong("no rtt above 0 and up to 10 s".into()));
        }
        Ok(cell)
    }
}

impl FromStr for Cell {
    type Err = CellError;

    fn from_str(text: &str) -> Result<Self, CellError> {
        let missing = |what: &str| CellError { text: text.into(), what: what.into() };
        for (key, what) in [("rate=", "no rate"), ("rtt=", "no rtt")] {
            if !text.split(',').any(|pair| pair.starts_with(key)) {
                return Err(missing(what));
            }
        }
        Cell::new(1, 1, 0.0).changed(text)
    }
}

/// The form that [`FromStr`] reads.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rate={},rtt={}", self.rate, shown(self.rtt))?;
        if self.loss > 0.0 {
            write!(f, ",loss={}%", self.loss)?;
        }
        if self.burst != 1.0 {
            write!(f, ",burst={}", self.burst)?;
        }
        if !self.jitter.is_zero() {
            write!(f, ",jitter={}", shown(self.jitter))?;
        }
        if self.queue != 1.0 {
            write!(f, ",queue={}", self.queue)?;
        }
        if let Some(blackout) = &self.blackout {
            write!(f, ",blackout={blackout}")?;
        }
        if !self.changes.is_empty() {
            write!(f, ",change={}", self.changes.to_string().replace(',', "+"))?;
        }
        Ok(())
    }
}

/// In milliseconds, or microseconds where those are no whole ones.
fn shown(time: Duration) -> String {
    match time.as_micros() {
        us if us.is_multiple_of(1_000) => format!("{}ms", us / 1_000),
        us => format!("{us}us"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_read_as_it_is_written() {
        for cell in standard().iter().chain(&quick()) {
            let text = cell.to_string();
            assert_eq!(text.parse::<Cell>().as_ref(), Ok(cell), "{text}");
        }
        assert_eq!(Cell::new(100_000_000, 50, 1.0).to_string(), "rate=100M,rtt=50ms,loss=1%");
    }

    #[test]
    fn what_is_no_path_is_told() {
        for text in [
            "",
            "rate=1G",
            "rtt=1ms",
            "rate=1G,rtt=0ms",
            "rate=1G,rtt=11s",
            "rate=1G,rtt=1",
            "rate=x,rtt=1ms",
            "rate=1G,rtt=1ms,loss=101%",
            "rate=1G,rtt=1ms,loss=-1",
            "rate=1G,rtt=1ms,queue=NaN",
            "rate=1G,rtt=1ms,colour=red",
            "rate=1G,rtt=1ms,loss",
        ] {
            assert!(text.parse::<Cell>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_line_is_what_it_is_on_average() {
        let cell: Cell = "rate=100M,rtt=50ms,change=2s:10M+4s:100M".parse().unwrap();
        assert_eq!(cell.lasts(), Duration::from_secs(6));
        assert!((cell.line_bps() / 70e6 - 1.0).abs() < 1e-9, "{}", cell.line_bps());
        assert!((Cell::new(1_000, 1, 0.0).line_bps() / 1e3 - 1.0).abs() < 1e-9);
        assert_eq!(Cell::new(1_000, 200, 0.0).lasts(), Duration::from_secs(12));
    }

    #[test]
    fn the_queue_holds_its_share_of_the_product() {
        let mut cell = Cell::new(1_000_000_000, 12, 0.0);
        assert_eq!(cell.queue_packets(), 1_000);
        cell.queue = 0.1;
        assert_eq!(cell.queue_packets(), 100);
        assert_eq!(Cell::new(10_000_000, 1, 0.0).queue_packets(), 10);
        assert!(!cell.is_plain() && Cell::new(1, 2, 3.0).is_plain());
    }
}
