//! Laws by name: `NAME[:key=value,…]`.

use core::fmt;
use core::str::FromStr;

use crate::{Cubic, Law, Reno, Udt, Udt4, UdtModule};

/// A law that can be made by name.
#[derive(Clone, Copy, Debug)]
pub struct LawInfo {
    /// Its name.
    pub name: &'static str,
    /// One line on what it is.
    pub summary: &'static str,
    /// The parameters it takes.
    pub params: &'static [Param],
}

/// A parameter of a law.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// Its key.
    pub key: &'static str,
    /// Its value when not given.
    pub default: &'static str,
    /// Smallest value; booleans are 0 (`false`) and 1 (`true`).
    pub min: f64,
    /// Largest value.
    pub max: f64,
    /// Meaning and unit.
    pub help: &'static str,
}

/// Every law there is, in the order to present them.
pub fn laws() -> &'static [LawInfo] {
    const LAWS: &[LawInfo] = &[Udt::INFO, Udt4::INFO, Reno::INFO, Cubic::INFO];
    LAWS
}

/// A law and its parameters, checked: what `--cc` takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    law: usize,
    values: Vec<f64>,
}

impl Spec {
    /// The law's name.
    pub fn name(&self) -> &'static str {
        laws()[self.law].name
    }

    /// Makes the law. `seed` feeds whatever randomness it uses.
    pub fn build(&self, seed: u64) -> Box<dyn Law> {
        match self.name() {
            "udt4" => Box::new(Udt4::new(seed)),
            "reno" => Box::new(Reno::aimd(
                self.value("window"),
                self.value("increase"),
                self.value("beta"),
            )),
            "cubic" => Box::new(Cubic::cubic(
                self.value("window"),
                self.value("c"),
                self.value("beta"),
                self.value("fast_convergence") != 0.0,
                self.value("friendly") != 0.0,
            )),
            "udt" if self.value("module") != 0.0 => Box::new(UdtModule::new(seed)),
            _ => Box::new(
                Udt::new(
                    seed,
                    self.value("window"),
                    self.value("noisy") != 0.0,
                    self.value("noise"),
                )
                .with_capacity_error(self.value("capacity_error")),
            ),
        }
    }

    fn value(&self, key: &str) -> f64 {
        let params = laws()[self.law].params;
        let index = params.iter().position(|p| p.key == key);
        self.values[index.expect("a parameter of this law")]
    }
}

impl Default for Spec {
    /// `udt` with its defaults.
    fn default() -> Self {
        Spec { law: 0, values: defaults(&laws()[0]) }
    }
}

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let law = laws()
            .iter()
            .position(|l| l.name == name)
            .ok_or_else(|| SpecError::UnknownLaw(name.to_owned()))?;
        let info = &laws()[law];
        let mut values = defaults(info);
        for pair in rest.split(',').filter(|p| !p.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, "true"));
            let index = info.params.iter().position(|p| p.key == key);
            let index = index.ok_or_else(|| SpecError::UnknownKey(info, key.to_owned()))?;
            let param = &info.params[index];
            values[index] = number(value)
                .filter(|v| (param.min..=param.max).contains(v))
                .ok_or_else(|| SpecError::BadValue(param, value.to_owned()))?;
        }
        Ok(Spec { law, values })
    }
}

impl fmt::Display for Spec {
    /// The text that parses to this value, defaults left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let info = &laws()[self.law];
        f.write_str(info.name)?;
        let default = defaults(info);
        let changed = (0..default.len()).filter(|&i| self.values[i] != default[i]);
        for (nth, i) in changed.enumerate() {
            let sep = if nth == 0 { ':' } else { ',' };
            let param = &info.params[i];
            if number(param.default).is_some() && matches!(param.default, "true" | "false") {
                write!(f, "{sep}{}={}", param.key, self.values[i] != 0.0)?;
            } else {
                write!(f, "{sep}{}={}", param.key, self.values[i])?;
            }
        }
        Ok(())
    }
}

fn defaults(info: &LawInfo) -> Vec<f64> {
    info.params.iter().map(|p| number(p.default).unwrap_or(0.0)).collect()
}

fn number(text: &str) -> Option<f64> {
    match text {
        "true" => Some(1.0),
        "false" => Some(0.0),
        _ => text.parse().ok(),
    }
}

/// Why a text is not a law.
#[derive(Clone, Debug)]
pub enum SpecError {
    /// No law has this name.
    UnknownLaw(String),
    /// The law has no such parameter.
    UnknownKey(&'static LawInfo, String),
    /// The value is not a number, or out of range.
    BadValue(&'static Param, String),
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpecError::UnknownLaw(name) => {
                let known: Vec<_> = laws().iter().map(|l| l.name).collect();
                write!(f, "no congestion control law is named '{name}'; use {}", known.join(", "))
            }
            SpecError::UnknownKey(law, key) => {
                let known: Vec<_> = law.params.iter().map(|p| p.key).collect();
                let known = if known.is_empty() { "none".into() } else { known.join(", ") };
                write!(f, "law '{}' has no parameter '{key}'; it takes {known}", law.name)
            }
            SpecError::BadValue(param, value) => {
                let Param { key, min, max, .. } = param;
                write!(
                    f,
                    "parameter '{key}' cannot be '{value}'; give a number from {min} to {max}"
                )
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
            for param in law.params {
                assert!(number(param.default).is_some(), "{} {}", law.name, param.key);
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
            ("reno:window=3", "initial_window: 3.0"),
            ("reno:increase=3,beta=0.8", "Aimd { increase: 3.0, beta: 0.8"),
            ("cubic:c=2,beta=0.6", "c: 2.0, beta: 0.6"),
            ("cubic:fast_convergence=false", "fast_convergence: false, friendly: true"),
            ("cubic:friendly=false", "fast_convergence: true, friendly: false"),
        ];
        for (text, part) in cases {
            assert!(built(text).contains(part), "{text}: {}", built(text));
        }
    }

    #[test]
    fn parameters_are_checked() {
        let spec: Spec = "udt:noisy,window=2".parse().unwrap();
        assert_eq!(spec.value("noisy"), 1.0);
        assert_eq!(spec.value("window"), 2.0);
        assert_eq!(spec.to_string().parse::<Spec>().unwrap(), spec);
        let message = |text: &str| text.parse::<Spec>().unwrap_err().to_string();
        assert!(message("reno9").contains("use udt, udt4"));
        assert!(message("udt:loud=1").contains("it takes window"));
        assert!(message("udt:window=many").contains("'window' cannot be 'many'"));
        assert!(message("udt:window=0").contains("from 1 to"));
        assert!(message("udt:noise=NaN").contains("cannot be"));
    }
}
