//! Queues as text.

use core::fmt;
use core::num::NonZeroU32;
use core::str::FromStr;
use core::time::Duration;

use farhaul_base::units::parse_fields;

use crate::{
    CoDel, DualPi2, FqCoDel, ParseError, Pie, QueueConfig, QueueLimit, Red, parse_duration,
    parse_size,
};

impl QueueConfig {
    /// As [`FromStr`], and `bdp` alone, also as a `limit=`, means the product with `rtt`.
    ///
    /// # Errors
    /// If the text is none of the forms of [`QueueConfig`].
    pub fn parse(text: &str, rtt: Duration) -> Result<Self, ParseError> {
        parse(text, Some(rtt))
    }
}

impl FromStr for QueueConfig {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        parse(text, None)
    }
}

/// The form that [`FromStr`] reads; of RED, CoDel and the like what differs from the defaults.
impl fmt::Display for QueueConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueueConfig::Red(red) => red.fmt(f),
            QueueConfig::CoDel(codel) => codel.fmt(f),
            QueueConfig::Pie(pie) => pie.fmt(f),
            QueueConfig::FqCoDel(flows) => flows.fmt(f),
            QueueConfig::DualPi2(pair) => pair.fmt(f),
            _ => self.limit().fmt(f),
        }
    }
}

impl fmt::Display for QueueLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueueLimit::Unlimited => f.write_str("unlimited"),
            QueueLimit::Packets(packets) => write!(f, "{packets}p"),
            QueueLimit::Bytes(bytes) => write!(f, "{bytes}B"),
            QueueLimit::Bdp { rtt } => write!(f, "bdp:{rtt:?}"),
        }
    }
}

impl fmt::Display for Red {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = Red::default();
        let mut fields = Fields::begin(f, "red")?;
        fields.put("limit", self.limit, default.limit)?;
        if let Some(min) = self.min {
            fields.write("min", min)?;
        }
        if let Some(max) = self.max {
            fields.write("max", max)?;
        }
        if let Some(weight) = self.weight {
            fields.write("weight", weight)?;
        }
        fields.put("maxp", self.max_p, default.max_p)?;
        fields.put("gentle", self.gentle, default.gentle)?;
        fields.put("wait", self.wait, default.wait)?;
        if self.mean != default.mean {
            fields.write("mean", format_args!("{}B", self.mean))?;
        }
        fields.put("bytes", self.bytes, default.bytes)?;
        if self.target != default.target {
            fields.write("target", format_args!("{:?}", self.target))?;
        }
        Ok(())
    }
}

impl fmt::Display for CoDel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = CoDel::default();
        let mut fields = Fields::begin(f, "codel")?;
        fields.put("limit", self.limit, default.limit)?;
        if self.target != default.target {
            fields.write("target", format_args!("{:?}", self.target))?;
        }
        if self.interval != default.interval {
            fields.write("interval", format_args!("{:?}", self.interval))?;
        }
        Ok(())
    }
}

impl fmt::Display for Pie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = Pie::default();
        let mut fields = Fields::begin(f, "pie")?;
        fields.put("limit", self.limit, default.limit)?;
        fields.time("target", self.target, default.target)
    }
}

impl fmt::Display for FqCoDel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = FqCoDel::default();
        let mut fields = Fields::begin(f, "fq_codel")?;
        fields.put("limit", self.limit, default.limit)?;
        fields.put("flows", self.flows, default.flows)?;
        if self.quantum != default.quantum {
            fields.write("quantum", format_args!("{}B", self.quantum))?;
        }
        fields.time("target", self.target, default.target)?;
        fields.time("interval", self.interval, default.interval)
    }
}

impl fmt::Display for DualPi2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = DualPi2::default();
        let mut fields = Fields::begin(f, "dualpi2")?;
        fields.put("limit", self.limit, default.limit)?;
        fields.time("target", self.target, default.target)?;
        fields.put("coupling", self.coupling, default.coupling)
    }
}

/// Writes `kind:name=value,name=value`.
struct Fields<'f, 'b> {
    f: &'f mut fmt::Formatter<'b>,
    separator: char,
}

impl<'f, 'b> Fields<'f, 'b> {
    fn begin(f: &'f mut fmt::Formatter<'b>, kind: &str) -> Result<Self, fmt::Error> {
        f.write_str(kind)?;
        Ok(Fields { f, separator: ':' })
    }

    fn put<T: fmt::Display + PartialEq>(
        &mut self,
        name: &str,
        value: T,
        default: T,
    ) -> fmt::Result {
        if value == default { Ok(()) } else { self.write(name, value) }
    }

    fn time(&mut self, name: &str, value: Duration, default: Duration) -> fmt::Result {
        if value == default { Ok(()) } else { self.write(name, format_args!("{value:?}")) }
    }

    fn write(&mut self, name: &str, value: impl fmt::Display) -> fmt::Result {
        write!(self.f, "{}{name}={value}", self.separator)?;
        self.separator = ',';
        Ok(())
    }
}

/// `rtt` is for `bdp` without a time.
fn parse(text: &str, rtt: Option<Duration>) -> Result<QueueConfig, ParseError> {
    let trimmed = text.trim();
    match trimmed.split_once(':').unwrap_or((trimmed, "")) {
        ("red", fields) => parse_red(fields, rtt).map(QueueConfig::Red),
        ("codel", fields) => parse_codel(fields, rtt).map(QueueConfig::CoDel),
        ("pie", fields) => parse_pie(fields, rtt).map(QueueConfig::Pie),
        ("fq_codel", fields) => parse_fq_codel(fields, rtt).map(QueueConfig::FqCoDel),
        ("dualpi2", fields) => parse_dual_pi2(fields, rtt).map(QueueConfig::DualPi2),
        _ => parse_limit(trimmed, rtt)?.map(QueueConfig::from).ok_or_else(|| {
            let expected = "a queue (write unlimited, 100p, 64kB, bdp:80ms, or red, codel, pie, fq_codel \
                            or dualpi2, these also with parameters: red:limit=100p,min=5,max=15)";
            ParseError::new(text, expected)
        }),
    }
}

/// `None` if it is none of the forms.
fn parse_limit(text: &str, rtt: Option<Duration>) -> Result<Option<QueueLimit>, ParseError> {
    if text == "unlimited" {
        return Ok(Some(QueueLimit::Unlimited));
    }
    if text == "bdp" {
        let rtt = rtt.ok_or_else(|| {
            let expected = "complete: a queue of the bandwidth-delay product needs the round-trip \
                            time (write bdp:80ms)";
            ParseError::new(text, expected)
        })?;
        return Ok(Some(QueueLimit::Bdp { rtt }));
    }
    if let Some(rtt) = text.strip_prefix("bdp:") {
        return Ok(Some(QueueLimit::Bdp { rtt: parse_duration(rtt)? }));
    }
    let limit = if text.ends_with('B') {
        Some(QueueLimit::Bytes(parse_size(text)?))
    } else {
        text.strip_suffix('p').unwrap_or(text).parse().map(QueueLimit::Packets).ok()
    };
    match limit {
        // It would be taken for one of a packet: an idle link takes any.
        Some(QueueLimit::Packets(0) | QueueLimit::Bytes(0)) => {
            let expected = "a queue that holds a packet (write 1p for one that holds only the packet \
                            in transmission)";
            Err(ParseError::new(text, expected))
        }
        limit => Ok(limit),
    }
}

fn parse_red(text: &str, rtt: Option<Duration>) -> Result<Red, ParseError> {
    let mut red = Red::default();
    parse_fields(text, RED_FIELDS, |name, value| {
        match name {
            "limit" => red.limit = limit_field(value, rtt)?,
            "min" => red.min = Some(threshold(value)?),
            "max" => red.max = Some(threshold(value)?),
            "weight" => red.weight = Some(value.parse()?),
            "maxp" => red.max_p = value.parse()?,
            "gentle" => red.gentle = flag(value)?,
            "wait" => red.wait = flag(value)?,
            "mean" => red.mean = mean(value)?,
            "bytes" => red.bytes = flag(value)?,
            "target" => red.target = parse_duration(value)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    if red.min.zip(red.max).is_some_and(|(min, max)| max <= min) {
        return Err(ParseError::new(text, "a RED queue: max must be above min"));
    }
    if red.weight.is_some_and(|weight| weight.value() == 0.0) {
        return Err(ParseError::new(text, "a RED queue: the weight must be above 0"));
    }
    Ok(red)
}

fn parse_codel(text: &str, rtt: Option<Duration>) -> Result<CoDel, ParseError> {
    let mut codel = CoDel::default();
    parse_fields(text, CODEL_FIELDS, |name, value| {
        match name {
            "limit" => codel.limit = limit_field(value, rtt)?,
            "target" => codel.target = parse_duration(value)?,
            "interval" => codel.interval = parse_duration(value)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let bad = "a CoDel queue: the target must be longer than 0 s (5ms is usual)";
    not_zero(codel.target, text, bad)?;
    let bad = "a CoDel queue: the interval must be longer than 0 s";
    not_zero(codel.interval, text, bad)?;
    Ok(codel)
}

fn parse_pie(text: &str, rtt: Option<Duration>) -> Result<Pie, ParseError> {
    let mut pie = Pie::default();
    parse_fields(text, PIE_FIELDS, |name, value| {
        match name {
            "limit" => pie.limit = limit_field(value, rtt)?,
            "target" => pie.target = parse_duration(value)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    not_zero(pie.target, text, "a PIE queue: the target must be longer than 0 s")?;
    Ok(pie)
}

fn parse_fq_codel(text: &str, rtt: Option<Duration>) -> Result<FqCoDel, ParseError> {
    let mut flows = FqCoDel::default();
    parse_fields(text, FQ_CODEL_FIELDS, |name, value| {
        match name {
            "limit" => flows.limit = limit_field(value, rtt)?,
            "flows" => flows.flows = number(value, FqCoDel::MOST_FLOWS, "queues from 1 to 65536")?,
            "quantum" => flows.quantum = mean(value)?,
            "target" => flows.target = parse_duration(value)?,
            "interval" => flows.interval = parse_duration(value)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let bad = "flow queues: the target must be longer than 0 s (5ms is usual)";
    not_zero(flows.target, text, bad)?;
    not_zero(flows.interval, text, "flow queues: the interval must be longer than 0 s")?;
    Ok(flows)
}

fn parse_dual_pi2(text: &str, rtt: Option<Duration>) -> Result<DualPi2, ParseError> {
    let mut pair = DualPi2::default();
    parse_fields(text, DUAL_PI2_FIELDS, |name, value| {
        match name {
            "limit" => pair.limit = limit_field(value, rtt)?,
            "target" => pair.target = parse_duration(value)?,
            "coupling" => pair.coupling = number(value, 100, "a coupling factor from 1 to 100")?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    not_zero(pair.target, text, "a DualPI2 queue: the target must be longer than 0 s")?;
    Ok(pair)
}

/// `bad` says what must be longer than no time at all.
fn not_zero(time: Duration, text: &str, bad: &'static str) -> Result<(), ParseError> {
    if time.is_zero() { Err(ParseError::new(text, bad)) } else { Ok(()) }
}

fn number(text: &str, most: u32, expected: &'static str) -> Result<NonZeroU32, ParseError> {
    let number: Option<NonZeroU32> = text.parse().ok();
    number.filter(|number| number.get() <= most).ok_or_else(|| ParseError::new(text, expected))
}

const PIE_FIELDS: &str =
    "a list of PIE parameters, each once (there are limit=100p and target=15ms)";
const FQ_CODEL_FIELDS: &str = "a list of FQ-CoDel parameters, each once (there are limit=10240p, \
                               flows=1024, quantum=1514B, target=5ms and interval=100ms)";
const DUAL_PI2_FIELDS: &str = "a list of DualPI2 parameters, each once (there are limit=100p, \
                               target=15ms and coupling=2)";
const RED_FIELDS: &str = "a list of RED parameters, each once (there are limit=100p, min=5, max=15, \
                          weight=0.002, maxp=10%, gentle=false, wait=false, mean=500B, bytes=true \
                          and target=5ms)";
const CODEL_FIELDS: &str =
    "a list of CoDel parameters, each once (there are limit=100p, target=5ms and interval=100ms)";

fn limit_field(text: &str, rtt: Option<Duration>) -> Result<QueueLimit, ParseError> {
    parse_limit(text, rtt)?.ok_or_else(|| {
        ParseError::new(text, "a limit of a queue (write unlimited, 100p, 64kB or bdp:80ms)")
    })
}

fn threshold(text: &str) -> Result<f64, ParseError> {
    /// More packets than any queue holds.
    const MOST: f64 = 1e15;
    let value: Option<f64> = text.parse().ok();
    value
        .filter(|value| (0.0..=MOST).contains(value))
        .ok_or_else(|| ParseError::new(text, "a threshold in packets (write 5 or 12.5)"))
}

fn flag(text: &str) -> Result<bool, ParseError> {
    text.parse().map_err(|_| ParseError::new(text, "true or false"))
}

fn mean(text: &str) -> Result<NonZeroU32, ParseError> {
    let bytes = parse_size(text)?;
    u32::try_from(bytes)
        .ok()
        .and_then(NonZeroU32::new)
        .ok_or_else(|| ParseError::new(text, "a mean size of packets (write 500B)"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Probability;

    const RTT: Duration = Duration::from_millis(80);

    fn parsed(text: &str) -> Result<QueueConfig, ParseError> {
        text.parse()
    }

    #[test]
    fn limits() {
        assert_eq!(parsed("unlimited"), Ok(QueueConfig::Unlimited));
        assert_eq!(parsed("100"), Ok(QueueConfig::Packets(100)));
        assert_eq!(parsed("64kB"), Ok(QueueConfig::Bytes(64_000)));
        assert_eq!(parsed("bdp:80ms"), Ok(QueueConfig::Bdp { rtt: RTT }));
        assert_eq!(QueueConfig::parse("bdp", RTT), Ok(QueueConfig::Bdp { rtt: RTT }));
        assert_eq!(QueueConfig::parse(" bdp ", RTT), Ok(QueueConfig::Bdp { rtt: RTT }));
        assert_eq!(QueueConfig::parse("7p", RTT), Ok(QueueConfig::Packets(7)));
        for bad in ["", "bdp", "bdp:", "0", "0p", "0B", "-1", "64k", "ten", "99999999999p", "xB"] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
        for text in ["unlimited", "100p", "64000B", "bdp:80ms"] {
            assert_eq!(parsed(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn red() {
        assert_eq!(parsed("red"), Ok(QueueConfig::Red(Red::default())));
        let all = "red:limit=100p,min=5,max=15,weight=0.002,maxp=0.1,gentle=false,wait=true,\
                   mean=1500B,bytes=true,target=1ms";
        let expected = Red {
            limit: QueueLimit::Packets(100),
            min: Some(5.0),
            max: Some(15.0),
            weight: Probability::new(0.002),
            gentle: false,
            mean: 1_500.try_into().unwrap(),
            bytes: true,
            target: Duration::from_millis(1),
            ..Red::default()
        };
        assert_eq!(parsed(all), Ok(QueueConfig::Red(expected)));
        assert_eq!(
            parsed(all).unwrap().to_string(),
            "red:limit=100p,min=5,max=15,weight=0.2%,gentle=false,mean=1500B,bytes=true,target=1ms"
        );
        let limited = Red { limit: QueueLimit::Bdp { rtt: RTT }, ..Red::default() };
        assert_eq!(QueueConfig::parse("red:limit=bdp", RTT), Ok(QueueConfig::Red(limited)));
        assert_eq!(parsed("red: limit = bdp:80ms"), Ok(QueueConfig::Red(limited)));
        let bad = [
            "red:min",
            "red:min=x",
            "red:min=-1",
            "red:max=inf",
            "red:min=5,min=6",
            "red:min=5,max=5",
            "red:weight=0",
            "red:weight=2",
            "red:gentle=maybe",
            "red:mean=0B",
            "red:mean=5",
            "red:mean=5GB",
            "red:limit=many",
            "red:limit=0p",
            "red:limit=bdp",
            "red:limit=red",
            "red:size=5",
            "red:min=5,",
            "reds",
        ];
        for bad in bad {
            assert!(parsed(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn codel() {
        assert_eq!(parsed("codel"), Ok(QueueConfig::CoDel(CoDel::default())));
        let text = "codel:limit=1000p,target=1ms,interval=20ms";
        let expected = CoDel {
            limit: QueueLimit::Packets(1_000),
            target: Duration::from_millis(1),
            interval: Duration::from_millis(20),
        };
        assert_eq!(parsed(text), Ok(QueueConfig::CoDel(expected)));
        assert_eq!(parsed(text).unwrap().to_string(), text);
        assert_eq!(parsed("codel:interval=100ms").unwrap().to_string(), "codel");
        let bad = [
            "codel:target=0",
            "codel:interval=0s",
            "codel:target=5",
            "codel:min=5",
            "codel:limit=bdp",
        ];
        for bad in bad {
            assert!(parsed(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn pie_and_the_queues_of_flows() {
        for text in [
            "pie",
            "pie:limit=100p,target=20ms",
            "fq_codel",
            "fq_codel:limit=500p,flows=16,quantum=300B,target=1ms,interval=20ms",
            "dualpi2",
            "dualpi2:limit=bdp:80ms,target=20ms,coupling=3",
        ] {
            assert_eq!(parsed(text).unwrap().to_string(), text);
        }
        assert_eq!(parsed("fq_codel").unwrap().limit(), QueueLimit::Packets(10_240));
        let bad = [
            "pie:interval=1s",
            "pie:target=0",
            "dualpi2:target=0",
            "fq_codel:flows=0",
            "fq_codel:flows=65537",
            "fq_codel:quantum=0B",
            "fq_codel:target=0",
            "fq_codel:interval=0s",
            "dualpi2:coupling=0",
            "dualpi2:coupling=1.5",
        ];
        for bad in bad {
            assert!(parsed(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn errors_say_what_there_is() {
        let error = |text| parsed(text).unwrap_err().to_string();
        assert!(error("pi").contains("red, codel, pie"), "{}", error("pi"));
        assert!(error("red:foo=1").contains("maxp=10%"), "{}", error("red:foo=1"));
        assert!(error("red:limit=bdp").contains("bdp:80ms"), "{}", error("red:limit=bdp"));
        assert!(error("codel:foo=1").contains("interval=100ms"), "{}", error("codel:foo=1"));
        for text in ["codel:target=0", "fq_codel:target=0"] {
            assert!(error(text).contains("target must be longer than 0 s (5ms"), "{}", error(text));
        }
    }
}
