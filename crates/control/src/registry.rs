//! Laws by name: `NAME[:key=value,…]`.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr};
use core::str::FromStr;
use std::sync::{PoisonError, RwLock};

use farhaul_base::names::suggestion;
use farhaul_base::units::{Rate, parse_duration};

use crate::governor::made;
use crate::{
    Bbr, Bic, Blast, CongestionManager, Copa, Cubic, Fast, GroupControl, Gtp, Haul, HighSpeed, Law,
    Ledbat, Reno, Scalable, Udt, Udt4, Vegas, Westwood,
};

/// A law that can be made by name.
#[derive(Debug)]
pub struct LawInfo {
    /// Its name.
    pub name: &'static str,
    /// One line on what it is good for.
    pub summary: &'static str,
    /// Where it is published.
    pub source: &'static str,
    /// The parameters it takes.
    pub params: &'static [Param],
    /// How it is made.
    pub make: Make,
}

/// How a law is made from its parameters.
#[derive(Clone, Copy, Debug)]
pub enum Make {
    /// One for each connection; the number feeds whatever randomness it uses.
    Law(fn(&Values, u64) -> Box<dyn Law>),
    /// One group for all connections of a host.
    Group(fn(&Values) -> Box<dyn GroupControl>),
}

/// A parameter of a law.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// Its key.
    pub key: &'static str,
    /// How its value is written.
    pub kind: Kind,
    /// Its value when not given, in the kind's unit; of flags 0 (`false`) or 1 (`true`).
    pub default: f64,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
    /// The unit of a plain number, as people write it; empty where it has none.
    pub unit: &'static str,
    /// Its meaning.
    pub help: &'static str,
}

/// How the value of a parameter is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`; the key alone is `true`.
    Flag,
    /// A number.
    Number,
    /// Bits per second: `800M`.
    Rate,
    /// Seconds inside, `10ms` outside.
    Time,
}

impl Param {
    /// A switch.
    pub const fn flag(key: &'static str, default: bool, help: &'static str) -> Self {
        let default = if default { 1.0 } else { 0.0 };
        Param { key, kind: Kind::Flag, default, min: 0.0, max: 1.0, unit: "", help }
    }

    /// A number from `range.0` to `range.1`.
    pub const fn number(
        key: &'static str,
        default: f64,
        range: (f64, f64),
        unit: &'static str,
        help: &'static str,
    ) -> Self {
        Param { key, kind: Kind::Number, default, min: range.0, max: range.1, unit, help }
    }

    /// A rate in bits per second.
    pub const fn rate(key: &'static str, default: f64, help: &'static str) -> Self {
        Param { key, kind: Kind::Rate, default, min: 8e3, max: 1e12, unit: "b/s", help }
    }

    /// A time; `default` and `range` in seconds.
    pub const fn time(
        key: &'static str,
        default: f64,
        range: (f64, f64),
        help: &'static str,
    ) -> Self {
        let (min, max) = range;
        Param { key, kind: Kind::Time, default, min, max, unit: "s", help }
    }

    /// The same with another smallest value.
    pub const fn from(self, min: f64) -> Self {
        Param { min, ..self }
    }

    /// The value as it is written.
    pub fn show(&self, value: f64) -> String {
        match self.kind {
            Kind::Flag => (value != 0.0).to_string(),
            Kind::Number => value.to_string(),
            Kind::Rate => {
                Rate::from_bits_per_second(value as u64).map_or("0".into(), |rate| rate.to_string())
            }
            Kind::Time if value < 1.0 => format!("{}ms", (value * 1e9).round() / 1e6),
            Kind::Time => format!("{value}s"),
        }
    }

    fn read(&self, text: &str) -> Option<f64> {
        let value = match self.kind {
            Kind::Flag => f64::from(u8::from(text.parse::<bool>().ok()?)),
            Kind::Number => text.parse().ok()?,
            Kind::Rate if text == "0" => 0.0,
            Kind::Rate => text.parse::<Rate>().ok()?.bits_per_second() as f64,
            Kind::Time => parse_duration(text).ok()?.as_secs_f64(),
        };
        (self.min..=self.max).contains(&value).then_some(value)
    }

    /// What may be written.
    fn expected(&self) -> String {
        let (min, max) = (self.show(self.min), self.show(self.max));
        match self.kind {
            Kind::Flag => "true or false".to_owned(),
            Kind::Number => format!("a number from {min} to {max}"),
            Kind::Rate => format!("a rate from {min} to {max}, like 800M"),
            Kind::Time => format!("a time from {min} to {max}, like 10ms"),
        }
    }
}

/// The values of a law's parameters.
#[derive(Clone, Debug)]
pub struct Values {
    info: &'static LawInfo,
    values: Vec<f64>,
}

impl Values {
    /// The value of the parameter `key`: a rate in bits per second, a time in seconds.
    ///
    /// # Panics
    /// If the law declares no such parameter.
    pub fn get(&self, key: &str) -> f64 {
        let index = self.info.params.iter().position(|p| p.key == key);
        self.values[index.expect("a parameter of this law")]
    }

    /// Whether the flag `key` is set.
    ///
    /// # Panics
    /// If the law declares no such parameter.
    pub fn is(&self, key: &str) -> bool {
        self.get(key) != 0.0
    }
}

/// The laws that come with farhaul, in the order to present them.
const OWN: &[&LawInfo] = &[
    &Udt::INFO,
    &Udt4::INFO,
    &Blast::INFO,
    &Reno::INFO,
    &Cubic::INFO,
    &Scalable::INFO,
    &HighSpeed::INFO,
    &Bic::INFO,
    &Westwood::INFO,
    &Vegas::INFO,
    &Fast::INFO,
    &Ledbat::INFO,
    &Copa::INFO,
    &Bbr::INFO,
    &Gtp::INFO,
    &Haul::INFO,
    &CongestionManager::INFO,
];

/// Laws of users.
static ADDED: RwLock<Vec<&'static LawInfo>> = RwLock::new(Vec::new());

/// The laws that come with farhaul, in the order to present them: without those of users.
pub fn own_laws() -> &'static [&'static LawInfo] {
    OWN
}

/// Every law that can be made by name, in the order to present them.
pub fn laws() -> Vec<&'static LawInfo> {
    let added = ADDED.read().unwrap_or_else(PoisonError::into_inner);
    OWN.iter().chain(added.iter()).copied().collect()
}

/// Makes a law known by its name from now on, in the whole process, for every tool. A name that is
/// taken is not taken again: returns whether it was free, or is this very law's.
pub fn register(info: &'static LawInfo) -> bool {
    let mut added = ADDED.write().unwrap_or_else(PoisonError::into_inner);
    match OWN.iter().chain(added.iter()).find(|known| known.name == info.name) {
        Some(known) => core::ptr::eq(*known, info),
        None => {
            added.push(info);
            true
        }
    }
}

/// A law and its parameters, checked: what `--cc` takes.
#[derive(Clone, Debug)]
pub struct Spec(Values);

impl Spec {
    /// A law with its defaults, whether it is registered or not.
    pub fn of(info: &'static LawInfo) -> Self {
        Spec(Values { info, values: info.params.iter().map(|p| p.default).collect() })
    }

    /// The law's name.
    pub fn name(&self) -> &'static str {
        self.0.info.name
    }

    /// What the law is.
    pub fn info(&self) -> &'static LawInfo {
        self.0.info
    }

    /// The values of its parameters.
    pub(crate) fn values(&self) -> &Values {
        &self.0
    }

    /// Makes the law, without a group: one that belongs in a group is alone in one of its own.
    /// `seed` feeds whatever randomness it uses.
    pub fn build(&self, seed: u64) -> Box<dyn Law> {
        made(|| match self.0.info.make {
            Make::Law(make) => make(&self.0, seed),
            Make::Group(make) => make(&self.0).join(IpAddr::V4(Ipv4Addr::UNSPECIFIED), seed),
        })
    }
}

/// The same law with the same parameters.
impl PartialEq for Spec {
    fn eq(&self, other: &Spec) -> bool {
        self.name() == other.name() && self.0.values == other.0.values
    }
}

impl Default for Spec {
    /// `udt` with its defaults.
    fn default() -> Self {
        Spec::of(&Udt::INFO)
    }
}

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let info = laws().into_iter().find(|law| law.name == name);
        let info = info.ok_or_else(|| SpecError::UnknownLaw(name.to_owned()))?;
        let mut spec = Spec::of(info);
        let mut given = vec![false; info.params.len()];
        for pair in rest.split(',').filter(|p| !p.is_empty()) {
            let (key, value) = pair.split_once('=').unzip();
            let key = key.unwrap_or(pair);
            let index = info.params.iter().position(|p| p.key == key);
            let index = index.ok_or_else(|| SpecError::UnknownKey(info, key.to_owned()))?;
            let param = &info.params[index];
            if core::mem::replace(&mut given[index], true) {
                return Err(SpecError::Twice(param));
            }
            let value = match value {
                None if param.kind == Kind::Flag => "true",
                value => value.ok_or(SpecError::NoValue(param))?,
            };
            spec.0.values[index] =
                param.read(value).ok_or_else(|| SpecError::BadValue(param, value.to_owned()))?;
        }
        Ok(spec)
    }
}

impl fmt::Display for Spec {
    /// The text that parses to this value, defaults left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        let pairs = self.0.info.params.iter().zip(&self.0.values);
        for (nth, (param, value)) in pairs.filter(|(p, v)| p.default != **v).enumerate() {
            let separator = if nth == 0 { ':' } else { ',' };
            write!(f, "{separator}{}={}", param.key, param.show(*value))?;
        }
        Ok(())
    }
}

/// Why a text is not a law.
#[derive(Clone, Debug)]
pub enum SpecError {
    /// No law has this name.
    UnknownLaw(String),
    /// The law has no such parameter.
    UnknownKey(&'static LawInfo, String),
    /// The value is not of the parameter's kind, or out of range.
    BadValue(&'static Param, String),
    /// The parameter is there without one.
    NoValue(&'static Param),
    /// The parameter is there more than once.
    Twice(&'static Param),
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpecError::UnknownLaw(name) => {
                let hint = suggestion(name, laws().into_iter().map(|law| law.name));
                write!(f, "no congestion control law is named '{name}'; {hint}")
            }
            SpecError::UnknownKey(law, key) if law.params.is_empty() => {
                write!(f, "law '{}' has no parameter '{key}'; it takes none", law.name)
            }
            SpecError::UnknownKey(law, key) => {
                let hint = suggestion(key, law.params.iter().map(|p| p.key));
                write!(f, "law '{}' has no parameter '{key}'; {hint}", law.name)
            }
            SpecError::BadValue(param, value) => {
                let expected = param.expected();
                write!(f, "parameter '{}' cannot be '{value}'; give {expected}", param.key)
            }
            SpecError::NoValue(param) => {
                write!(
                    f,
                    "parameter '{0}' has no value; {0}= wants {1}",
                    param.key,
                    param.expected()
                )
            }
            SpecError::Twice(param) => {
                write!(f, "parameter '{}' is there twice; give it once", param.key)
            }
        }
    }
}

impl core::error::Error for SpecError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_law_builds_under_its_name() {
        for law in laws() {
            let spec: Spec = law.name.parse().unwrap();
            assert_eq!(spec.build(1).name(), law.name);
            assert_eq!(spec.to_string(), law.name);
            assert!(!law.summary.is_empty() && !law.source.is_empty(), "{}", law.name);
            for param in law.params {
                let text = param.show(param.default);
                assert_eq!(param.read(&text), Some(param.default), "{} {text}", law.name);
                assert!(!param.help.is_empty());
            }
        }
    }

    #[test]
    fn parameters_reach_the_law() {
        let built = |text: &str| format!("{:?}", text.parse::<Spec>().unwrap().build(1));
        let cases = [
            ("udt:module", "UdtModule"),
            ("udt:window=2", "initial_window: 2.0"),
            ("udt:noisy,noise=0.1", "share: 0.1"),
            ("udt:capacity_error=0.5", "capacity_factor: 1.5"),
            ("blast:rate=800M", "rate: 800000000.0"),
            ("gtp:first=2M,interval=50ms,capacity=1G,tolerance=0.5", "rate: 2000000.0"),
            ("cm:window=4", "window: 4.0"),
            ("reno:window=3", "initial_window: 3.0"),
            ("reno:acks=32", "ack_interval: 32"),
            ("reno:increase=3,beta=0.8", "Aimd { increase: 3.0, beta: 0.8"),
            ("cubic:c=2,beta=0.6", "c: 2.0, beta: 0.6"),
            ("cubic:fast_convergence=false", "fast_convergence: false, friendly: true"),
            ("cubic:friendly=false", "fast_convergence: true, friendly: false"),
            ("scalable:window=3", "initial_window: 3.0"),
            ("scalable:low_window=38,a=0.02,b=0.2", "low_window: 38.0, a: 0.02, b: 0.2"),
            ("hstcp:window=3", "initial_window: 3.0"),
            ("hstcp:low_window=50", "low_window: 50.0, high_window: 83000.0, high_decrease: 0.1"),
            ("hstcp:high_window=1e5,high_decrease=0.2", "100000.0, high_decrease: 0.2"),
            ("bic:window=3", "initial_window: 3.0"),
            ("bic:s_max=16,s_min=0.1,b=0.2", "s_max: 16.0, s_min: 0.1, b: 0.2, low_window: 14.0"),
            ("bic:low_window=38", "low_window: 38.0, fast_convergence: true"),
            ("bic:fast_convergence=false", "fast_convergence: false"),
            ("westwood:window=3", "initial_window: 3.0"),
            ("westwood:plus=false", "plus: false"),
            ("vegas:window=3", "initial_window: 3.0"),
            ("vegas:alpha=2,beta=4,gamma=5", "alpha: 2.0, beta: 4.0, gamma: 5.0, rates: false"),
            ("vegas:rates", "rates: true"),
            ("fast:window=3", "initial_window: 3.0"),
            ("fast:alpha=8,gamma=0.25,beta=0.875", "alpha: 8.0, gamma: 0.25, beta: 0.875"),
            ("ledbat:window=3", "initial_window: 3.0, slow_start: false"),
            ("ledbat:target=25ms,gain=0.5", "target: 0.025, gain: 0.5"),
            ("ledbat:base_history=3", "base_history: 3"),
            ("ledbat:slow_start", "slow_start: true"),
            ("copa:window=3", "initial_window: 3.0"),
            ("copa:delta=0.1,competitive=false", "default_delta: 0.1, competitive: false"),
            ("cubic", "hystart: Some("),
            ("cubic:hystart=false", "hystart: None"),
            ("bbr:window=3", "initial_window: 3.0"),
            ("bbr:loss=0.1", "Tolerated { loss: 0.1, own_loss: 0.05, queue: 0.25 }"),
            ("bbr:own_loss=0,queue=10", "Tolerated { loss: 0.02, own_loss: 0.0, queue: 10.0 }"),
            ("bbr:probe_rtt=10s", "interval: 10s"),
        ];
        for (text, part) in cases {
            assert!(built(text).contains(part), "{text}: {}", built(text));
        }
    }

    #[test]
    fn parameters_are_checked() {
        let spec: Spec = "udt:noisy,window=2".parse().unwrap();
        assert!(spec.0.is("noisy"));
        assert_eq!(spec.0.get("window"), 2.0);
        assert_eq!(spec.to_string(), "udt:window=2,noisy=true");
        assert_eq!(spec.to_string().parse::<Spec>().unwrap(), spec);
        let message = |text: &str| text.parse::<Spec>().unwrap_err().to_string();
        assert!(message("reno9").ends_with("did you mean 'reno'?"));
        assert!(message("zzzzzz").contains("there are udt, udt4"));
        assert!(message("udt:loud=1").contains("there are window"));
        assert!(message("udt:windo=1").ends_with("did you mean 'window'?"));
        assert!(message("udt:window=many").contains("'window' cannot be 'many'"));
        assert!(message("udt:window=0").contains("from 1 to"));
        assert!(message("udt:noise=NaN").contains("cannot be"));
        assert!(message("udt:noisy=1").ends_with("give true or false"));
        assert!(
            message("udt:window").starts_with("parameter 'window' has no value; window= wants")
        );
        assert!(message("udt:window=1,window=2").contains("'window' is there twice"));
    }

    #[test]
    fn values_are_written_with_their_units() {
        let rate = Param::rate("rate", 1e6, "a rate");
        assert_eq!(rate.read("800M"), Some(800e6));
        assert_eq!(rate.show(2.5e9), "2.5G");
        assert_eq!(rate.read("1"), None, "less than a byte a millisecond");
        let time = Param::time("target", 0.1, (0.001, 10.0), "a time");
        assert_eq!(time.read("25ms"), Some(0.025));
        assert_eq!((time.show(0.025), time.show(2.0)), ("25ms".into(), "2s".into()));
        assert_eq!(time.expected(), "a time from 1ms to 10s, like 10ms");
    }

    #[derive(Debug)]
    struct Mine;

    impl Law for Mine {
        fn name(&self) -> &'static str {
            "mine"
        }
    }

    #[test]
    fn users_register_their_own() {
        static MINE: LawInfo = LawInfo {
            name: "mine",
            summary: "does nothing",
            source: "this test",
            params: &[],
            make: Make::Law(|_, _| Box::new(Mine)),
        };
        static TAKEN: LawInfo = LawInfo {
            name: "udt",
            summary: "does nothing",
            source: "this test",
            params: &[],
            make: Make::Law(|_, _| Box::new(Mine)),
        };
        assert!(register(&MINE) && register(&MINE), "twice is once");
        assert!(!register(&TAKEN));
        assert_eq!("mine".parse::<Spec>().unwrap().build(0).name(), "mine");
        let error = "mine:a=1".parse::<Spec>().unwrap_err().to_string();
        assert!(error.ends_with("it takes none"));
    }
}
