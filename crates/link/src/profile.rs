//! What other emulators do if nothing else is said, to repeat what was measured with them.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use crate::{JitterShape, LinkConfig, ParseError, QueueConfig, Slots};

/// An emulator whose habits a link has.
///
/// Written `dummynet` or `netem`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// FreeBSD's `ipfw pipe`: packets move at the ticks of a timer, of 1 ms with `kern.hz=1000`, and
    /// 50 packets wait.
    Dummynet,
    /// Linux's `tc qdisc … netem`: 1000 packets wait; jitter is around the delay and lets packets overtake.
    /// Netem's limit counts those on the wire too, which here are not counted.
    Netem,
}

/// A tick of a kernel with `kern.hz=1000`.
const DUMMYNET_TICK: Duration = Duration::from_millis(1);

impl Profile {
    const ALL: [(Profile, &str); 2] = [(Profile::Dummynet, "dummynet"), (Profile::Netem, "netem")];

    /// The queue if none is given.
    pub fn queue(self) -> QueueConfig {
        QueueConfig::Packets(match self {
            Profile::Dummynet => 50,
            Profile::Netem => 1_000,
        })
    }

    /// Gives `link` what this emulator has beside its queue, where it says nothing else.
    pub fn apply(self, link: &mut LinkConfig) {
        match self {
            Profile::Dummynet => {
                link.slots = link.slots.or(Some(Slots::every(DUMMYNET_TICK)));
            }
            Profile::Netem => {
                if link.jitter.shape == JitterShape::Uniform {
                    link.jitter.shape = JitterShape::Around;
                }
                link.jitter.overtake = true;
            }
        }
    }
}

impl FromStr for Profile {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let known = Self::ALL.iter().find(|(_, name)| *name == text.trim());
        let expected = "the profile of an emulator (write dummynet or netem)";
        known.map(|(profile, _)| *profile).ok_or_else(|| ParseError::new(text, expected))
    }
}

/// The form that [`FromStr`] reads.
impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = Self::ALL.iter().find(|(profile, _)| profile == self);
        f.write_str(known.map_or("", |(_, name)| name))
    }
}
