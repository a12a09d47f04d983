//! Values of settings: what they are, how they are written and read.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU8;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use farhaul::Law;
use farhaul_base::names::suggestion;
use farhaul_link::Rate;

use crate::units;
use farhaul_mover::transfer::pace::LEAST_RATE;

/// How values of type `T` are read and written; what [`Kind::show`] writes, [`Kind::parse`] reads.
pub struct Kind<T> {
    /// What may be written, for people.
    pub form: &'static str,
    /// Reads a value.
    pub parse: fn(&str) -> Result<T, String>,
    /// Writes a value.
    pub show: fn(&T) -> String,
}

/// Connections that carry data side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    /// As many as turn out to be of use.
    Auto,
    /// So many, 1 to [`MOST_STREAMS`].
    Count(NonZeroU8),
}

/// More connections than this carry nothing more.
pub const MOST_STREAMS: u8 = 32;

/// What data travels over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// UDP, or TCP where UDP does not pass.
    Auto,
    /// UDP or nothing.
    Udp,
    /// TCP or nothing.
    Tcp,
}

/// What is compared once a file has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// The digests of all its bytes, as they are on both sides.
    Full,
    /// Nothing beyond what the transport checks.
    None,
}

/// What beside the contents of files is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preserve {
    /// Permission bits.
    pub mode: bool,
    /// Times of last modification.
    pub times: bool,
    /// User and group.
    pub owner: bool,
    /// Extended attributes.
    pub xattrs: bool,
    /// Several names of one file.
    pub hardlinks: bool,
    /// Holes.
    pub sparse: bool,
}

/// Where connections go out from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Local {
    /// An address of this host.
    Address(IpAddr),
    /// A network interface by name.
    Interface(String),
}

/// An address at which others reach this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// UDP or TCP alone; [`Transport::Auto`]: both.
    pub transport: Transport,
    /// The address.
    pub address: IpAddr,
    /// The port; none: the one listened at.
    pub port: Option<u16>,
}

/// A range of ports, both ends included; `first` is at least 1 and at most `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// The lowest.
    pub first: u16,
    /// The highest.
    pub last: u16,
}

// Options and lists under names of their own: a derived parser of arguments takes `Option<Option<T>>` and
// `Option<Vec<T>>` for something else than an option with such a value.

/// Bits per second; none: no limit.
pub type RateLimit = Option<u64>;
/// Bytes; none: what the library takes.
pub type Memory = Option<u64>;
/// Where connections go out from; empty: wherever the system sends them.
pub type Locals = Vec<Local>;
/// Where others reach this host; empty: where it believes to be.
pub type Reachable = Vec<At>;
/// Ports to choose from; none: whichever the system gives.
pub type PortRange = Option<Ports>;

/// A congestion control law.
pub const LAW: Kind<Law> = Kind {
    form: "NAME[:KEY=VALUE,…]",
    parse: |text| text.parse::<Law>().map_err(|error| error.to_string()),
    show: Law::to_string,
};

/// Bits per second, or `none`.
pub const RATE: Kind<RateLimit> = Kind {
    form: "RATE or none",
    parse: |text| match text {
        "none" => Ok(None),
        _ => {
            let rate = units::rate(text)?;
            match rate < LEAST_RATE {
                true => Err(format!(
                    "{rate} bits a second is too little to copy by: at least {}",
                    exact_rate(LEAST_RATE)
                )),
                false => Ok(Some(rate)),
            }
        }
    },
    show: |rate| match rate {
        Some(bits) => exact_rate(*bits),
        None => "none".into(),
    },
};

/// Bytes, or `auto`.
pub const MEMORY: Kind<Memory> = Kind {
    form: "SIZE or auto",
    parse: |text| match text {
        "auto" => Ok(None),
        _ => within(units::size(text)?, 128 << 10, 1 << 40, "bytes").map(Some),
    },
    show: |size| size.map_or("auto".into(), exact_size),
};

/// A number of connections.
pub const STREAMS: Kind<Streams> = Kind {
    form: "auto or 1 to 32",
    parse: |text| match text {
        "auto" => Ok(Streams::Auto),
        _ => match text.parse::<NonZeroU8>() {
            Ok(count) if count.get() <= MOST_STREAMS => Ok(Streams::Count(count)),
            _ => Err(format!("write auto, or a number from 1 to {MOST_STREAMS}")),
        },
    },
    show: |streams| match streams {
        Streams::Auto => "auto".into(),
        Streams::Count(count) => count.to_string(),
    },
};

/// A transport.
pub const TRANSPORT: Kind<Transport> = Kind {
    form: "auto, udt or tcp",
    parse: |text| one_of(text, &TRANSPORTS),
    show: |value| name_of(value, &TRANSPORTS),
};
/// UDT is what data travels by over UDP.
const TRANSPORTS: [(&str, Transport); 4] = [
    ("auto", Transport::Auto),
    ("udt", Transport::Udp),
    ("tcp", Transport::Tcp),
    ("udp", Transport::Udp),
];

/// What to compare.
pub const VERIFY: Kind<Verify> = Kind {
    form: "full or none",
    parse: |text| one_of(text, &VERIFIES),
    show: |value| name_of(value, &VERIFIES),
};
const VERIFIES: [(&str, Verify); 2] = [("full", Verify::Full), ("none", Verify::None)];

/// [`TRANSPORT`] for the command line, whose words shells complete.
pub fn transports() -> impl TypedValueParser<Value = Transport> {
    words(&TRANSPORTS)
}

/// [`VERIFY`] for the command line.
pub fn verifies() -> impl TypedValueParser<Value = Verify> {
    words(&VERIFIES)
}

fn words<T: Copy + Send + Sync>(
    known: &'static [(&'static str, T)],
) -> impl TypedValueParser<Value = T> {
    let names = PossibleValuesParser::new(known.iter().map(|(name, _)| *name));
    names.try_map(|text| one_of(&text, known))
}

/// Yes or no.
pub const SWITCH: Kind<bool> = Kind {
    form: "true or false",
    parse: |text| {
        const WORDS: [(&str, bool); 8] = [
            ("true", true),
            ("false", false),
            ("yes", true),
            ("no", false),
            ("on", true),
            ("off", false),
            ("1", true),
            ("0", false),
        ];
        let found = WORDS.iter().find(|(word, _)| *word == text.to_ascii_lowercase());
        found.map(|(_, value)| *value).ok_or_else(|| "write true or false".into())
    },
    show: bool::to_string,
};

/// A time above zero.
pub const TIME: Kind<Duration> = Kind {
    form: "TIME",
    parse: |text| match units::time(text)? {
        Duration::ZERO => Err("it must be above zero".into()),
        time => Ok(time),
    },
    show: exact_time,
};

/// The size of the largest packet, bytes.
pub const MSS: Kind<u32> = Kind {
    form: "BYTES",
    parse: |text| {
        let bytes = text.parse::<u32>().map_err(|_| "write a number of bytes, like 1500")?;
        within(bytes, 96, 65_535, "bytes")
    },
    show: u32::to_string,
};

/// A command or a path: any text but an empty one.
pub const WORDS: Kind<String> = Kind {
    form: "TEXT",
    parse: |text| match text.trim() {
        "" => Err("it must not be empty".into()),
        _ if text.contains(['\0', '\n']) => Err("it must be one line".into()),
        text => Ok(text.to_owned()),
    },
    show: String::clone,
};

/// What to keep.
pub const PRESERVE: Kind<Preserve> = Kind {
    form: "list of mode, times, owner, xattrs, hardlinks, sparse; or all, none",
    parse: preserve,
    show: |kept| {
        let names: Vec<_> = kept.parts().iter().filter(|(_, on)| *on).map(|(n, _)| *n).collect();
        if names.is_empty() { "none".into() } else { names.join(",") }
    },
};

/// Where connections go out from; empty: wherever the system sends them.
pub const LOCALS: Kind<Locals> = Kind {
    form: "list of addresses and interfaces, or any",
    parse: |text| match text {
        "any" => Ok(Vec::new()),
        _ => items(text).map(local).collect(),
    },
    show: |locals| {
        let names: Vec<_> = locals.iter().map(Local::to_string).collect();
        if names.is_empty() { "any".into() } else { names.join(",") }
    },
};

/// Where others reach this host; empty: where it believes to be.
pub const REACHABLE: Kind<Reachable> = Kind {
    form: "list of [udp/|tcp/]ADDRESS[:PORT], or auto",
    parse: |text| match text {
        "auto" => Ok(Vec::new()),
        _ => items(text).map(at).collect(),
    },
    show: |all| {
        let names: Vec<_> = all.iter().map(At::to_string).collect();
        if names.is_empty() { "auto".into() } else { names.join(",") }
    },
};

/// Ports to choose from; none: whichever the system gives.
pub const PORTS: Kind<PortRange> = Kind {
    form: "PORT, FIRST-LAST or any",
    parse: |text| if text == "any" { Ok(None) } else { ports(text).map(Some) },
    show: |ports| match ports {
        None => "any".into(),
        Some(Ports { first, last }) if first == last => first.to_string(),
        Some(Ports { first, last }) => format!("{first}-{last}"),
    },
};

impl Preserve {
    fn parts(&self) -> [(&'static str, bool); 6] {
        [
            ("mode", self.mode),
            ("times", self.times),
            ("owner", self.owner),
            ("xattrs", self.xattrs),
            ("hardlinks", self.hardlinks),
            ("sparse", self.sparse),
        ]
    }

    fn set(&mut self, name: &str) -> bool {
        let part = match name {
            "mode" => &mut self.mode,
            "times" => &mut self.times,
            "owner" => &mut self.owner,
            "xattrs" => &mut self.xattrs,
            "hardlinks" => &mut self.hardlinks,
            "sparse" => &mut self.sparse,
            _ => return false,
        };
        *part = true;
        true
    }
}

impl fmt::Display for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Local::Address(address) => address.fmt(f),
            Local::Interface(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.transport {
            Transport::Auto => {}
            Transport::Udp => f.write_str("udp/")?,
            Transport::Tcp => f.write_str("tcp/")?,
        }
        match self.port {
            Some(port) => SocketAddr::new(self.address, port).fmt(f),
            None => self.address.fmt(f),
        }
    }
}

fn at(text: &str) -> Result<At, String> {
    let (transport, rest) = match text.split_once('/') {
        None => (Transport::Auto, text),
        Some(("udp", rest)) => (Transport::Udp, rest),
        Some(("tcp", rest)) => (Transport::Tcp, rest),
        Some((other, _)) => return Err(format!("'{other}/' is neither udp/ nor tcp/")),
    };
    let with_port = rest.parse::<SocketAddr>().map(|at| (at.ip(), Some(at.port())));
    let (address, port) =
        with_port.or_else(|_| rest.parse().map(|ip| (ip, None))).map_err(|_| {
            format!("'{rest}' is no address, as 192.0.2.1, 192.0.2.1:9000 or [2001:db8::1]:9000")
        })?;
    if address.is_unspecified() || port == Some(0) {
        return Err(format!("nobody can reach '{rest}'"));
    }
    Ok(At { transport, address, port })
}

fn preserve(text: &str) -> Result<Preserve, String> {
    let mut kept = Preserve::default();
    // A list in a file may have no items.
    if text.is_empty() || text == "none" {
        return Ok(kept);
    }
    let all = kept.parts().map(|(name, _)| name);
    if text == "all" {
        for name in all {
            kept.set(name);
        }
        return Ok(kept);
    }
    for item in items(text) {
        if matches!(item, "all" | "none") {
            return Err(format!("'{item}' stands alone"));
        }
        if !kept.set(item) {
            return Err(format!("there is no '{item}'; {}", suggestion(item, all.into_iter())));
        }
    }
    Ok(kept)
}

fn local(text: &str) -> Result<Local, String> {
    if let Ok(address) = text.parse() {
        return Ok(Local::Address(address));
    }
    // As the kernel has it: at most 15 bytes, no slash, no space.
    let name = (1..=15).contains(&text.len())
        && !matches!(text, "." | "..")
        && text.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'/' | b':'));
    // What looks like an address, but is none, was to be one.
    let number = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if name && !number {
        return Ok(Local::Interface(text.to_owned()));
    }
    Err(format!("'{text}' is neither an address, as 192.0.2.1, nor an interface, as eth0"))
}

fn ports(text: &str) -> Result<Ports, String> {
    let bad = || format!("'{text}' is no range of ports; write 9000-9100");
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let port = |text: &str| text.trim().parse::<u16>().map_err(|_| bad());
    let (first, last) = (port(first)?, port(last)?);
    if first == 0 || first > last { Err(bad()) } else { Ok(Ports { first, last }) }
}

fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim)
}

fn one_of<T: Copy>(text: &str, known: &[(&'static str, T)]) -> Result<T, String> {
    let found = known.iter().find(|(name, _)| *name == text);
    found
        .map(|(_, value)| *value)
        .ok_or_else(|| suggestion(text, known.iter().map(|(name, _)| *name)))
}

fn name_of<T: PartialEq>(value: &T, known: &[(&'static str, T)]) -> String {
    let found = known.iter().find(|(_, other)| other == value);
    found.map_or(String::new(), |(name, _)| (*name).to_owned())
}

fn within<T: PartialOrd + fmt::Display>(value: T, min: T, max: T, unit: &str) -> Result<T, String> {
    if min <= value && value <= max {
        return Ok(value);
    }
    Err(format!("it must be from {min} to {max} {unit}"))
}

/// `1.5G`, to the last bit.
pub fn exact_rate(bits_per_second: u64) -> String {
    Rate::from_bits_per_second(bits_per_second).map_or("0".into(), |rate| rate.to_string())
}

/// `64MiB`, to the last byte.
pub fn exact_size(bytes: u64) -> String {
    let units = [
        (1 << 40, "TiB"),
        (1_000_000_000_000, "TB"),
        (1 << 30, "GiB"),
        (1_000_000_000, "GB"),
        (1 << 20, "MiB"),
        (1_000_000, "MB"),
        (1 << 10, "KiB"),
        (1_000, "kB"),
    ];
    let whole = units.iter().find(|(unit, _)| bytes > 0 && bytes.is_multiple_of(*unit));
    whole.map_or_else(|| bytes.to_string(), |(unit, name)| format!("{}{name}", bytes / unit))
}

/// `60s`, to the last nanosecond.
pub fn exact_time(time: &Duration) -> String {
    let nanos = time.as_nanos();
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")];
    let whole = units.iter().find(|(unit, _)| nanos.is_multiple_of(*unit));
    whole.map_or_else(String::new, |(unit, name)| format!("{}{name}", nanos / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is written is read as the same.
    fn kept<T>(kind: Kind<T>, texts: &[&str]) {
        for text in texts {
            let value = (kind.parse)(text).expect(text);
            assert_eq!((kind.show)(&value), *text);
        }
    }

    #[test]
    fn values_are_read_as_they_are_written() {
        kept(LAW, &["haul", "udt"]);
        kept(RATE, &["none", "1.5G", "1.234567M", "8k"]);
        for (text, bits) in [("500Mb", 500), ("500Mbit", 500), ("500Mb/s", 500), ("50MB/s", 400)] {
            assert_eq!((RATE.parse)(text), Ok(Some(bits * 1_000_000)), "{text}");
        }
        assert_eq!((RATE.parse)("1MiB/s"), Ok(Some(8 << 20)));
        kept(MEMORY, &["auto", "64MiB", "100MB", "131073"]);
        kept(STREAMS, &["auto", "1", "32"]);
        kept(TRANSPORT, &["auto", "udt", "tcp"]);
        assert_eq!((TRANSPORT.parse)("udp"), Ok(Transport::Udp), "another name of udt");
        kept(VERIFY, &["full", "none"]);
        kept(SWITCH, &["true", "false"]);
        kept(TIME, &["60s", "1500ms", "7us", "1ns"]);
        kept(MSS, &["96", "9000"]);
        kept(WORDS, &["ssh -p 22"]);
        kept(PRESERVE, &["none", "mode,times,sparse", "owner"]);
        kept(LOCALS, &["any", "192.0.2.1,eth0,2001:db8::1"]);
        kept(REACHABLE, &["auto", "192.0.2.1,udp/[2001:db8::1]:9000,tcp/2001:db8::1"]);
        kept(PORTS, &["any", "9000", "9000-9100"]);
    }

    fn refused<T>(kind: Kind<T>, cases: &[(&str, &str)]) {
        for (text, why) in cases {
            match (kind.parse)(text) {
                Ok(value) => panic!("{text} is read as {}", (kind.show)(&value)),
                Err(told) => assert!(told.contains(why), "{text}: {told}"),
            }
        }
    }

    #[test]
    fn what_is_no_value_is_told() {
        refused(LAW, &[("hual", "haul")]);
        let low = [("10", "too little"), ("7999", "too little"), ("200MB", "not a rate")];
        refused(RATE, &low);
        refused(RATE, &[("fast", "not a rate"), ("0", ""), ("0B/s", "")]);
        refused(MEMORY, &[("1", "from 131072"), ("2TiB", "from"), ("x", "size")]);
        refused(STREAMS, &[("0", "1 to 32"), ("33", "1 to 32"), ("many", "auto")]);
        refused(TRANSPORT, &[("uddt", "did you mean 'udt'?")]);
        refused(VERIFY, &[("ful", "did you mean 'full'?")]);
        refused(SWITCH, &[("maybe", "true or false")]);
        refused(TIME, &[("0", "above zero"), ("soon", "")]);
        refused(MSS, &[("95", "from 96"), ("65536", "65535"), ("big", "1500")]);
        refused(WORDS, &[(" ", "empty"), ("a\nb", "one line")]);
        refused(
            PRESERVE,
            &[("owners", "did you mean 'owner'?"), ("mode,,", "no ''"), ("mode,all", "alone")],
        );
        refused(LOCALS, &[("256.1.1.1", "neither"), ("a b", "neither"), ("", "neither")]);
        refused(
            REACHABLE,
            &[("icmp/::1", "icmp/"), ("host:9", "no address"), ("0.0.0.0", "nobody"), ("", "")],
        );
        refused(PORTS, &[("0", ""), ("9-8", "range"), ("1-70000", ""), ("-", "")]);
    }

    #[test]
    fn words_stand_for_several() {
        let all = (PRESERVE.parse)("all").expect("a list");
        assert!(all.parts().iter().all(|(_, on)| *on));
        assert_eq!((PRESERVE.parse)(""), Ok(Preserve::default()), "an empty list");
        assert_eq!((SWITCH.parse)("Yes"), Ok(true));
        assert_eq!(exact_size(0), "0");
    }
}
