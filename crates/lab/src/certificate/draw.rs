//! Values that are drawn from a certification's seed.

use std::collections::BTreeMap;

use farhaul_base::Rng;
use farhaul_base::math::{exp, ln};
use serde::Deserialize;

use crate::number::significant;

/// What a variable's value is drawn from.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub(super) enum Draw {
    /// One of these, each as likely.
    Of {
        /// The values.
        of: Vec<String>,
    },
    /// A number from a range.
    Range {
        /// The least.
        from: f64,
        /// The most.
        to: f64,
        /// What stands behind the number.
        #[serde(default)]
        unit: String,
        /// Evenly over the logarithms.
        #[serde(default)]
        log: bool,
        /// Whole numbers only.
        #[serde(default)]
        whole: bool,
    },
}

impl Draw {
    /// A value, to four digits: what is shown is what was simulated.
    fn value(&self, rng: &mut Rng) -> String {
        match self {
            Draw::Of { of } => of[rng.below(of.len() as u64) as usize].clone(),
            Draw::Range { from, to, unit, whole: true, .. } => {
                let number = *from as u64 + rng.below((to - from) as u64 + 1);
                format!("{number}{unit}")
            }
            Draw::Range { from, to, unit, log: true, .. } => {
                let number = exp(ln(*from) + (ln(*to) - ln(*from)) * rng.unit());
                format!("{}{unit}", significant(number, 4))
            }
            Draw::Range { from, to, unit, .. } => {
                let number = from + (to - from) * rng.unit();
                format!("{}{unit}", significant(number, 4))
            }
        }
    }

    /// # Errors
    /// Why nothing can be drawn from it.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        match self {
            Draw::Of { of } if of.is_empty() => Err("'of' has no values"),
            Draw::Of { .. } => Ok(()),
            Draw::Range { from, to, .. } if !(0.0 <= *from && from < to && to.is_finite()) => {
                Err("write 'from' and 'to', from 0 upwards")
            }
            Draw::Range { from, log: true, .. } if *from == 0.0 => {
                Err("logarithms have no zero to begin with")
            }
            Draw::Range { from, to, whole: true, .. }
                if from.fract() != 0.0 || to.fract() != 0.0 =>
            {
                Err("'from' and 'to' are to be whole numbers")
            }
            Draw::Range { .. } => Ok(()),
        }
    }
}

/// A scenario as it was drawn.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Drawn {
    /// The variables with their values, in the order of their names.
    pub values: Vec<(String, String)>,
    /// The seed of what is random in it.
    pub seed: u64,
}

/// So many scenarios, a function of the certification's seed and of `name` alone: neither of what else
/// is drawn, nor of the law, so that all laws meet the same.
pub(super) fn scenarios(
    seed: u64,
    name: &str,
    draw: &BTreeMap<String, Draw>,
    count: usize,
) -> Vec<Drawn> {
    let hash = blake3::hash(name.as_bytes());
    let own = hash.as_bytes()[..8].iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
    let mut rng = Rng::new(Rng::new(seed).next_u64() ^ own);
    let one = |_| {
        let mut rng = rng.fork();
        let values = draw.iter().map(|(name, draw)| (name.clone(), draw.value(&mut rng)));
        // Short enough to be typed.
        Drawn { values: values.collect(), seed: u64::from(rng.next_u32()) }
    };
    (0..count).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws() -> BTreeMap<String, Draw> {
        let text = r#"
            count = { from = 2, to = 5, whole = true }
            host = { of = ["none", "vm"] }
            loss = { from = 0, to = 3, unit = "%" }
            rate = { from = 1, to = 100, unit = "M", log = true }
        "#;
        toml::from_str(text).expect("draws")
    }

    #[test]
    fn the_same_seed_draws_the_same_and_another_other_ones() {
        let drawn = |seed: u64, name: &str| scenarios(seed, name, &draws(), 4);
        assert_eq!(drawn(7, "loss"), drawn(7, "loss"));
        assert_ne!(drawn(7, "loss"), drawn(8, "loss"));
        assert_ne!(drawn(7, "loss"), drawn(7, "delay"));
        // More of them are the same ones and others.
        assert_eq!(scenarios(7, "loss", &draws(), 9)[..4], drawn(7, "loss"));
    }

    #[test]
    fn values_are_within_their_ranges() {
        let (mut below_ten, mut hosts) = (0, Vec::new());
        for drawn in scenarios(1, "all", &draws(), 400) {
            let value = |name: &str| {
                let found = drawn.values.iter().find(|(known, _)| known == name);
                found.expect("a value").1.clone()
            };
            let number = |name: &str, unit: char| -> f64 {
                value(name).trim_end_matches(unit).parse().expect("a number")
            };
            assert!((0.0..=3.0).contains(&number("loss", '%')));
            assert!([2.0, 3.0, 4.0, 5.0].contains(&number("count", ' ')));
            let rate = number("rate", 'M');
            assert!((1.0..=100.0).contains(&rate), "{rate}");
            below_ten += u32::from(rate < 10.0);
            hosts.push(value("host"));
        }
        assert!((150..250).contains(&below_ten), "{below_ten} of 400 in the lower decade");
        hosts.sort();
        hosts.dedup();
        assert_eq!(hosts, ["none", "vm"]);
    }

    #[test]
    fn ranges_that_are_none_are_told() {
        let check = |text: &str| {
            let draw: BTreeMap<String, Draw> = toml::from_str(text).expect("a draw");
            draw["x"].check().is_ok()
        };
        assert!(check("x = { from = 0, to = 3 }") && check("x = { of = ['a'] }"));
        for wrong in [
            "x = { of = [] }",
            "x = { from = 3, to = 3 }",
            "x = { from = -1, to = 3 }",
            "x = { from = 0, to = 3, log = true }",
            "x = { from = 0.5, to = 3, whole = true }",
        ] {
            assert!(!check(wrong), "{wrong}");
        }
    }
}
