//! The paths of a race.

use core::fmt;
use core::str::FromStr;
use std::time::Duration;

use farhaul_link::{Blackout, LossModel, Rate, RateChanges, parse_duration};

use super::System;

/// A path, as `rate=1G,rtt=50ms,loss=1%,jitter=2ms,queue=1`: what is left out is zero or, of the queue,
/// one bandwidth-delay product. Further keys: `blackout=3s+500ms` and `change=3s:100M`, one or several
/// with `+` between, and `burst=5`, the mean number of packets that are lost together. `flows=2` has so
/// many flows of one system on the path at the same time, `against=tcp:cubic` one beside one of another system
/// (`+` stands for the commas of a law's parameters).
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
    /// How many flows of a system there are at the same time.
    pub flows: usize,
    /// What runs beside them.
    pub against: Option<System>,
}

/// What is wrong with the text of a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} in the path '{text}': give rate=1G,rtt=50ms and, if wanted, loss=1%, burst=5, jitter=2ms, queue=0.5, blackout=3s+500ms, change=3s:100M, flows=2, against=tcp:cubic"
)]
pub struct CellError {
    text: String,
    what: String,
}

/// A queue has room for so many packets, however short the path.
const LEAST_QUEUE: f64 = 10.0;
/// Longer queues, in bandwidth-delay products or in packets, are like having no limit.
const MOST_QUEUE: f64 = 1_000.0;
const MOST_QUEUE_PACKETS: u64 = 1 << 24;
/// Where none is given.
const LEAST_RATE: Rate = Rate::from_bits_per_second(1).expect("above 0");
/// Bits of a full packet.
pub(super) const PACKET_BITS: f64 = 12_000.0;
/// A run lasts so long at least, and so many round trips.
const LASTS: Duration = Duration::from_secs(6);
const LASTS_ROUND_TRIPS: u32 = 60;
/// Where flows share a path, so long at least;
const SHARED_LASTS: Duration = Duration::from_secs(30);
/// what they get of it counts from then on.
pub(super) const SETTLED_AFTER: Duration = Duration::from_secs(10);
/// More flows than this take more processors than a path.
const MOST_FLOWS: usize = 16;

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
            flows: 1,
            against: None,
        }
    }

    /// Whether several flows are on the path at the same time.
    pub fn is_shared(&self) -> bool {
        self.flows > 1 || self.against.is_some()
    }

    /// Who runs on the path at the same time if `system` races: its flows, then what is against them.
    pub fn flows_of<'a>(&'a self, system: &'a System) -> Vec<&'a System> {
        let own = std::iter::repeat_n(system, self.flows);
        own.chain(self.against.as_ref()).collect()
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
        let least = if self.is_shared() { SHARED_LASTS } else { LASTS };
        least.max(self.rtt * LASTS_ROUND_TRIPS)
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

impl Cell {
    /// This path with other values for some keys.
    ///
    /// # Errors
    /// A key or a value that there is not, a key that is given twice, or one that has no effect.
    pub fn changed(&self, keys: &str) -> Result<Cell, CellError> {
        let wrong = |what: String| CellError { text: keys.into(), what };
        let mut cell = self.clone();
        let mut given = Vec::new();
        for pair in keys.split(',').filter(|pair| !pair.is_empty()) {
            let (key, value) =
                pair.split_once('=').ok_or_else(|| wrong(format!("no value for '{pair}'")))?;
            if given.contains(&key) {
                return Err(wrong(format!("{key} is given twice")));
            }
            given.push(key);
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
                "flows" => {
                    let count = value.parse().ok().filter(|count| (1..=MOST_FLOWS).contains(count));
                    cell.flows = count.ok_or_else(bad)?;
                }
                "against" => {
                    let system = value.replace('+', ",").parse::<System>();
                    let system = system.map_err(|why| wrong(why.to_string()))?;
                    cell.against = Some(system);
                }
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
        match cell.without_effect() {
            Some(what) => Err(wrong(what)),
            None => Ok(cell),
        }
    }

    /// What is asked for and would not be seen in a run.
    fn without_effect(&self) -> Option<String> {
        let lasts = self.lasts();
        let late = |what: &str, at: Duration| {
            (at >= lasts).then(|| {
                let (at, lasts) = (at.as_secs_f64(), lasts.as_secs_f64());
                format!("{what} after {at} s, and a run on this path ends after {lasts} s,")
            })
        };
        if self.burst != 1.0 && self.loss == 0.0 {
            return Some("burst without loss".into());
        }
        if self.queue > MOST_QUEUE || self.queue_packets() > MOST_QUEUE_PACKETS {
            let packets = self.queue_packets();
            return Some(format!(
                "a queue of {packets} packets ({MOST_QUEUE_PACKETS} packets or {MOST_QUEUE} bandwidth-delay products at most)"
            ));
        }
        let blackout = self.blackout.and_then(|blackout| late("a blackout", blackout.start));
        let mut changes = self.changes.changes().iter();
        blackout.or_else(|| changes.find_map(|change| late("a change of the rate", change.at)))
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
        if self.flows != 1 {
            write!(f, ",flows={}", self.flows)?;
        }
        if let Some(against) = &self.against {
            write!(f, ",against={}", against.to_string().replace(',', "+"))?;
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
    use super::super::paths::{quick, random, standard};
    use super::*;

    #[test]
    fn a_path_is_read_as_it_is_written() {
        for cell in standard().iter().chain(&quick()).chain(&random(200, 1)) {
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
            "rate=1G,rtt=1ms,flows=0",
            "rate=1G,rtt=1ms,flows=1000",
            "rate=1G,rtt=1ms,against=nosuch",
            "rate=1G,rtt=10ms,rtt=5ms",
            "rate=1G,rtt=1ms,burst=5",
            "rate=1G,rtt=1ms,loss=0,burst=5",
            "rate=1G,rtt=1ms,blackout=100s+1s",
            "rate=1G,rtt=1ms,blackout=6s+1s",
            "rate=1G,rtt=1ms,change=9999s:1M",
            "rate=1G,rtt=1ms,change=2s:1M+6s:1G",
            "rate=1G,rtt=1ms,queue=1e9",
            "rate=1000G,rtt=10s,queue=1000",
        ] {
            assert!(text.parse::<Cell>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_happens_within_a_run_is_taken() {
        for text in [
            "rate=1G,rtt=1ms,blackout=5999ms+1s",
            "rate=1G,rtt=200ms,blackout=11s+500ms",
            "rate=1G,rtt=1ms,flows=2,blackout=29s+500ms",
            "rate=1G,rtt=1ms,change=5s:1M",
            "rate=1G,rtt=1ms,queue=1000",
        ] {
            assert!(text.parse::<Cell>().is_ok(), "{text}");
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
    fn flows_that_share_a_path_have_time_to_settle() {
        let cell: Cell = "rate=10M,rtt=10ms,flows=2,against=tcp:cubic".parse().unwrap();
        let system = "bbr".parse().unwrap();
        let names: Vec<String> =
            cell.flows_of(&system).iter().map(|system| system.to_string()).collect();
        assert_eq!(names, ["bbr", "bbr", "tcp:cubic"]);
        assert!(cell.is_shared() && !cell.is_plain() && cell.lasts() > 2 * SETTLED_AFTER);
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
