//! What a host does to time: named profiles, and what they are made of.

use core::fmt;
use core::time::Duration;

use super::Quantiles;

/// How a host departs from one that does everything at once and to the nanosecond. The default does
/// not.
///
/// [`fmt::Display`] writes the table that a scenario takes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostProfile {
    /// Its name.
    pub name: String,
    /// By how much a process that sleeps until a time is woken late.
    pub timer: Quantiles,
    /// From the interrupt to the process's reading what has arrived. TCP works in the kernel, at the
    /// interrupt, and knows no such time.
    pub wake: Quantiles,
    /// From the first packet that waits in the interface to the interrupt: interrupt coalescing, or a
    /// radio's waiting for its turn. All that has come by then is handed over.
    pub coalesce: Quantiles,
    /// Packets that receive offload hands over as one, to be answered by one ACK: TCP's acknowledges
    /// them together. At least 1.
    pub batch: Batch,
    /// Packets that wait in the interface at most; what comes beyond is lost. `None`: any number.
    pub ring: Option<u32>,
    /// Mean time from one stall to the next, which is random (a Poisson process); zero: there is none.
    /// In a stall the host does nothing: it neither receives nor sends, and its timers are late.
    pub stall_every: Duration,
    /// How long a stall is.
    pub stall: Quantiles,
    /// How long a cumulative ACK is held back for a later one to take its place: what some modems and
    /// radios do with TCP's. UDT's light ACKs are treated alike. Zero: none is.
    pub ack_hold: Duration,
}

/// Packets that are handed over as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch(pub u32);

impl Default for Batch {
    fn default() -> Self {
        Batch(1)
    }
}

impl HostProfile {
    /// The name of the host without noise.
    pub const NONE: &'static str = "none";

    /// The keys of its table beside `name`.
    pub const KEYS: [&'static str; 8] =
        ["timer", "wake", "coalesce", "batch", "ring", "stall_every", "stall", "ack_hold"];

    /// Whether it does nothing to time.
    pub fn is_none(&self) -> bool {
        let HostProfile { timer, wake, coalesce, batch, ring, stall_every, ack_hold, .. } = self;
        timer.is_zero()
            && wake.is_zero()
            && coalesce.is_zero()
            && batch.0 <= 1
            && ring.is_none()
            && stall_every.is_zero()
            && ack_hold.is_zero()
    }

    /// The profile of that name.
    pub fn named(name: &str) -> Option<HostProfile> {
        PROFILES.iter().find(|known| known.name == name).map(Known::profile)
    }

    /// The names that there are, and what each stands for in a line.
    pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> + Clone {
        PROFILES.iter().map(|known| (known.name, known.about))
    }

    /// Reads the value of one of [`KEYS`](Self::KEYS).
    ///
    /// # Errors
    /// What the key takes instead; also if there is no such key.
    pub fn set(&mut self, key: &str, text: &str) -> Result<(), String> {
        let quantiles = || text.parse::<Quantiles>().map_err(|error| error.to_string());
        let duration = || farhaul_link::parse_duration(text).map_err(|error| error.to_string());
        match key {
            "timer" => self.timer = quantiles()?,
            "wake" => self.wake = quantiles()?,
            "coalesce" => self.coalesce = quantiles()?,
            "batch" => self.batch = Batch(count(text)?),
            "ring" if text == "unlimited" => self.ring = None,
            "ring" => {
                let count = count(text).map_err(|error| format!("{error}, or write unlimited"))?;
                self.ring = Some(count);
            }
            "stall_every" => self.stall_every = duration()?,
            "stall" => self.stall = quantiles()?,
            "ack_hold" => self.ack_hold = duration()?,
            _ => return Err(format!("there is no key '{key}'")),
        }
        Ok(())
    }

    /// What is wrong with it though each of its values is right.
    ///
    /// # Errors
    /// What to write instead.
    pub fn check(&self) -> Result<(), String> {
        let (every, stall) = (self.stall_every, &self.stall);
        if every.is_zero() != stall.is_zero() {
            return Err("'stall_every' and 'stall' belong together: give both, or neither".into());
        }
        if !every.is_zero() && stall.mean() >= every {
            return Err("its stalls are longer than the times between them: make them rarer".into());
        }
        Ok(())
    }
}

fn count(text: &str) -> Result<u32, String> {
    let count = text.parse().ok().filter(|count| *count >= 1);
    count.ok_or_else(|| format!("give a whole number of packets from 1 to {}", u32::MAX))
}

/// The table of a scenario, as `[[host]]` has it; keys that do nothing are left out.
impl fmt::Display for HostProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "[[host]]\nname = \"{}\"", self.name)?;
        let times = [("timer", &self.timer), ("wake", &self.wake), ("coalesce", &self.coalesce)];
        for (key, times) in times.into_iter().filter(|(_, times)| !times.is_zero()) {
            writeln!(f, "{key} = \"{times}\"")?;
        }
        if self.batch != Batch::default() {
            writeln!(f, "batch = {}", self.batch.0)?;
        }
        if let Some(ring) = self.ring {
            writeln!(f, "ring = {ring}")?;
        }
        if !self.stall_every.is_zero() {
            writeln!(f, "stall_every = \"{:?}\"\nstall = \"{}\"", self.stall_every, self.stall)?;
        }
        if !self.ack_hold.is_zero() {
            writeln!(f, "ack_hold = \"{:?}\"", self.ack_hold)?;
        }
        Ok(())
    }
}

/// A profile that has a name.
struct Known {
    name: &'static str,
    about: &'static str,
    values: &'static [(&'static str, &'static str)],
}

impl Known {
    fn profile(&self) -> HostProfile {
        let mut profile = HostProfile { name: self.name.to_owned(), ..HostProfile::default() };
        for (key, value) in self.values {
            profile.set(key, value).expect("a test reads them");
        }
        profile
    }
}

const QUIET: &[(&str, &str)] = &[
    ("timer", "0%:10us,25%:22us,50%:24us,90%:40us,99%:57us,99.9%:170us,100%:990us"),
    ("wake", "0%:6us,25%:7us,50%:12us,90%:19us,99%:28us,99.9%:82us,100%:230us"),
    ("batch", "44"),
];

/// Where each figure comes from is told in docs/simulator.md.
const PROFILES: &[Known] = &[
    Known {
        name: HostProfile::NONE,
        about: "everything at once and to the nanosecond",
        values: &[],
    },
    Known {
        name: "quiet",
        about: "a virtual machine of two processors at rest, without its stalls",
        values: QUIET,
    },
    Known {
        name: "vm",
        about: "the same machine as it is: nothing runs for 1 to 4 ms once a second",
        values: &[
            QUIET[0],
            QUIET[1],
            QUIET[2],
            ("stall_every", "1s"),
            ("stall", "0%:1ms,25%:1.6ms,50%:2.1ms,90%:4ms,100%:4ms"),
        ],
    },
    Known {
        name: "busy-vm",
        about: "the same machine with five others' compilers on its two processors",
        values: &[
            ("timer", "0%:9us,25%:18us,50%:21us,90%:31us,99%:45us,99.9%:170us,100%:900us"),
            ("wake", "0%:8us,25%:12us,50%:16us,90%:22us,99%:30us,99.9%:49us,100%:300us"),
            QUIET[2],
            ("stall_every", "37ms"),
            ("stall", "0%:1ms,25%:3.8ms,50%:3.9ms,90%:7.8ms,99%:9ms,100%:13ms"),
        ],
    },
    Known {
        name: "laptop-wifi",
        about: "a laptop on a radio that gathers packets, thins ACKs and looks for other networks",
        values: &[
            ("timer", "0%:20us,50%:60us,99%:300us,100%:1ms"),
            ("wake", "0%:10us,50%:30us,99%:200us,100%:1ms"),
            ("coalesce", "0%:50us,50%:400us,90%:2ms,99%:5ms,100%:12ms"),
            QUIET[2],
            ("stall_every", "15s"),
            ("stall", "10ms..50ms"),
            ("ack_hold", "1ms"),
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_read_and_right() {
        for (name, about) in HostProfile::all() {
            let profile = HostProfile::named(name).unwrap();
            assert_eq!(profile.check(), Ok(()), "{name}");
            assert_eq!(profile.is_none(), name == HostProfile::NONE);
            assert!(!about.is_empty());
        }
        assert_eq!(HostProfile::named("nosuch"), None);
    }

    #[test]
    fn what_goes_together() {
        let mut profile = HostProfile::default();
        profile.set("stall", "1ms..5ms").unwrap();
        assert!(profile.check().is_err());
        profile.set("stall_every", "2ms").unwrap();
        assert!(profile.check().is_err());
        profile.set("stall_every", "1s").unwrap();
        assert_eq!(profile.check(), Ok(()));
        for (key, bad) in [("batch", "0"), ("ring", "-1"), ("timer", "x"), ("nosuch", "1")] {
            assert!(profile.set(key, bad).is_err(), "{key}");
        }
        profile.set("ring", "unlimited").unwrap();
    }
}
