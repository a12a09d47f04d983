//! What an axis spans and which of its numbers are written.

use super::{Axis, Scale};
use crate::number::{exponent, fixed, significant, titled};

/// From where to where an axis reaches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    pub low: f64,
    pub high: f64,
    pub scale: Scale,
}

/// What is written along an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Ticks {
    /// Values with their texts, ascending.
    pub major: Vec<(f64, String)>,
    /// Values without.
    pub minor: Vec<f64>,
    /// The name of the axis with the unit that the texts are in.
    pub title: String,
}

/// Room at the ends that the data leaves, as a share of its extent.
#[derive(Clone, Copy, Debug)]
pub struct Padding(pub f64);

impl Span {
    /// What `axis` spans for these values.
    pub fn of(axis: &Axis, values: impl Iterator<Item = f64>, padding: Padding) -> Self {
        let log = axis.scale == Scale::Log;
        let scale = axis.scale;
        if let Some((low, high)) = axis.range
            && low < high
            && low.is_finite()
            && high.is_finite()
            && (low > 0.0 || !log)
        {
            return Span { low, high, scale };
        }
        let usable = |value: &f64| value.is_finite() && (*value > 0.0 || !log);
        let (low, high) =
            values.filter(usable).fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                (low.min(value), high.max(value))
            });
        let (low, high) = match (low <= high, log) {
            // An empty picture still has axes.
            (false, false) => (0.0, 1.0),
            (false, true) => (1.0, 10.0),
            (true, false) => linear(low, high, padding.0),
            (true, true) => logarithmic(low, high, padding.0),
        };
        Span { low, high, scale }
    }

    /// Where `value` lies: 0 at the beginning, 1 at the end; no number if it has no place.
    pub fn at(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log if value > 0.0 => {
                (value / self.low).log10() / (self.high / self.low).log10()
            }
            Scale::Log => f64::NAN,
        }
    }

    fn holds(&self, value: f64) -> bool {
        // A step's multiples miss the end by rounding.
        (-1e-9..=1.0 + 1e-9).contains(&self.at(value))
    }

    /// At most about `room` numbers to be written.
    pub fn ticks(&self, axis: &Axis, room: usize) -> Ticks {
        if !axis.names.is_empty() {
            let major = axis.names.iter().enumerate().map(|(n, name)| (n as f64, name.clone()));
            return Ticks { major: major.collect(), minor: Vec::new(), title: axis.label.clone() };
        }
        match self.scale {
            Scale::Linear => self.linear_ticks(axis, room),
            Scale::Log => self.log_ticks(axis, room),
        }
    }

    fn linear_ticks(&self, axis: &Axis, room: usize) -> Ticks {
        // A step of a third of the extent leaves two numbers at least.
        let step = step((self.high - self.low) / room.max(3) as f64);
        let largest = self.low.abs().max(self.high.abs());
        let power = if is_base(&axis.unit) { prefix_power(largest, &axis.unit) } else { 0 };
        let factor = 10f64.powi(power);
        let decimals = usize::try_from(-exponent(step / factor)).unwrap_or(0);
        let plain = (1e-4..1e7).contains(&(largest / factor));
        let text = |value: f64| {
            if value == 0.0 && !plain {
                "0".to_owned()
            } else if plain {
                fixed(value / factor, decimals)
            } else {
                format!("{:e}", format!("{value:.5e}").parse::<f64>().unwrap_or(value))
            }
        };
        let unit = format!("{}{}", prefix(power), axis.unit);
        let major = self.multiples(step).map(|value| (value, text(value))).collect();
        Ticks { major, minor: Vec::new(), title: titled(&axis.label, &unit) }
    }

    fn multiples(&self, step: f64) -> impl Iterator<Item = f64> {
        let first = (self.low / step - 1e-9).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        // Bounded, for ranges whose ends cannot be told apart at this step.
        (first..=last).take(100).map(move |multiple| multiple as f64 * step)
    }

    fn log_ticks(&self, axis: &Axis, room: usize) -> Ticks {
        let (first, last) = (exponent(self.low), exponent(self.high));
        let decades = (first..=last).filter(|power| self.holds(power_of_ten(*power))).count();
        let mut written: Vec<f64> = Vec::new();
        let mut minor = Vec::new();
        let every = decades.div_ceil(room.max(2)).max(1) as i32;
        let fine = decades * 3 <= room + 3 && (self.high / self.low).log10() < 2.5;
        for power in first..=last {
            for digit in 1..=9 {
                let value = power_of_ten(power) * f64::from(digit);
                if !self.holds(value) {
                    continue;
                }
                if (digit == 1 && power.rem_euclid(every) == 0) || (fine && matches!(digit, 2 | 5))
                {
                    written.push(value);
                } else {
                    minor.push(value);
                }
            }
        }
        if written.len() < 2 || self.high / self.low < 10.0 {
            // Less than a decade: numbers as on a linear axis, where they lie on this one.
            minor.append(&mut written);
            let step = step((self.high - self.low) / room.clamp(2, 5) as f64);
            written = self.multiples(step).filter(|value| *value > 0.0).collect();
        }
        let title =
            if axis.unit == "s" { axis.label.clone() } else { titled(&axis.label, &axis.unit) };
        let major = written.into_iter().map(|v| (v, written_alone(v, &axis.unit))).collect();
        Ticks { major, minor, title }
    }
}

/// From zero, unless the data is far from it.
fn linear(low: f64, high: f64, padding: f64) -> (f64, f64) {
    let extent = high - low;
    if low >= 0.0 && (low <= high * 0.5 || extent == 0.0) {
        return if high > 0.0 { (0.0, high * (1.0 + padding)) } else { (0.0, 1.0) };
    }
    if extent == 0.0 {
        return (low - low.abs(), low + low.abs());
    }
    let high_end = if high <= 0.0 && high >= low * 0.5 { 0.0 } else { high + extent * padding };
    (low - extent * padding, high_end)
}

/// To the next power of ten, if that is near.
fn logarithmic(low: f64, high: f64, padding: f64) -> (f64, f64) {
    const NEAR: f64 = 0.25;
    let (low, high) = (low.log10(), high.log10());
    let pad = if high > low { ((high - low) * padding).min(0.15) } else { 0.3 };
    let (mut low, mut high) = (low - pad, high + pad);
    if low - low.floor() < NEAR {
        low = low.floor();
    }
    if high.ceil() - high < NEAR {
        high = high.ceil();
    }
    // Within what a number can be.
    (10f64.powf(low.max(-300.0)), 10f64.powf(high.min(300.0)))
}

/// The next of 1, 2 and 5 times a power of ten that is not less.
fn step(least: f64) -> f64 {
    if !(least.is_finite() && least > 0.0) {
        return 1.0;
    }
    let power = power_of_ten(exponent(least));
    let digit = [1.0, 2.0, 5.0].into_iter().find(|digit| digit * power >= least * (1.0 - 1e-9));
    digit.unwrap_or(10.0) * power
}

/// The number nearest to a power of ten, which `powi` may miss.
fn power_of_ten(power: i32) -> f64 {
    format!("1e{power}").parse().unwrap_or(f64::NAN)
}

/// Whether `unit` takes prefixes.
pub fn is_base(unit: &str) -> bool {
    matches!(unit, "s" | "b/s" | "bit/s" | "B" | "B/s" | "Hz")
}

/// The power of ten of the prefix that suits `value`. Seconds are not counted in thousands.
fn prefix_power(value: f64, unit: &str) -> i32 {
    let most = if unit == "s" { 0 } else { 12 };
    let power = if value == 0.0 { 0 } else { exponent(value).div_euclid(3) * 3 };
    power.clamp(-12, most)
}

fn prefix(power: i32) -> &'static str {
    match power {
        -12 => "p",
        -9 => "n",
        -6 => "µ",
        -3 => "m",
        3 => "k",
        6 => "M",
        9 => "G",
        12 => "T",
        _ => "",
    }
}

/// A number that stands for itself: `10 ms`, `100k`, `0.01`.
pub fn written_alone(value: f64, unit: &str) -> String {
    written_with(value, unit, 6)
}

/// As [`written_alone`], with so many significant digits.
pub fn written_with(value: f64, unit: &str, digits: usize) -> String {
    let counted = unit.is_empty() || unit == "packets";
    if is_base(unit) || (counted && value.abs() >= 1e4) {
        let power = prefix_power(value, unit);
        let number = significant(value / power_of_ten(power), digits.min(4));
        let space = if unit == "s" { " " } else { "" };
        let shown_unit = if unit == "s" { unit } else { "" };
        return format!("{number}{space}{}{shown_unit}", prefix(power));
    }
    significant(value, digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(axis: &Axis, values: &[f64]) -> Span {
        Span::of(axis, values.iter().copied(), Padding(0.05))
    }

    fn texts(axis: &Axis, values: &[f64], room: usize) -> Vec<String> {
        let ticks = span(axis, values).ticks(axis, room);
        ticks.major.into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn linear_axes_begin_at_zero_and_have_round_steps() {
        let axis = Axis::linear("", "");
        assert_eq!(texts(&axis, &[3.0, 190.0], 5), ["0", "50", "100", "150"]);
        assert_eq!(texts(&axis, &[0.0, 1.0], 6), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        // Far from zero it would show nothing.
        assert_eq!(texts(&axis, &[995.0, 1000.0], 6), ["995", "996", "997", "998", "999", "1000"]);
        assert_eq!(texts(&axis, &[-1.0, 1.0], 5), ["-1.0", "-0.5", "0.0", "0.5", "1.0"]);
        assert_eq!(texts(&axis, &[-5.0, -4.0, 0.0], 3), ["-4", "-2", "0"]);
        assert_eq!(texts(&axis, &[2.0, 2.0], 3), ["0", "1", "2"]);
        assert_eq!(texts(&axis, &[], 2), ["0.0", "0.5", "1.0"]);
        assert_eq!(texts(&axis, &[f64::NAN, f64::INFINITY], 2), ["0.0", "0.5", "1.0"]);
        assert_eq!(texts(&axis, &[0.0, 3e-6], 2), ["0", "2e-6"]);
        assert_eq!(texts(&axis, &[1.0, 40.1], 1), ["0", "20", "40"]);
    }

    #[test]
    fn linear_axes_choose_the_prefix() {
        let rate = Axis::linear("rate", "b/s");
        let ticks = span(&rate, &[0.0, 9.5e8]).ticks(&rate, 5);
        assert_eq!(ticks.title, "rate (Mb/s)");
        assert_eq!(ticks.major[1], (2e8, "200".into()));
        let time = Axis::linear("time", "s");
        assert_eq!(span(&time, &[0.0, 0.03]).ticks(&time, 5).title, "time (ms)");
        assert_eq!(span(&time, &[0.0, 5000.0]).ticks(&time, 5).title, "time (s)");
        let scaled = Axis::linear("rate", "Mb/s");
        assert_eq!(span(&scaled, &[0.0, 9500.0]).ticks(&scaled, 5).title, "rate (Mb/s)");
    }

    #[test]
    fn log_axes_have_powers_of_ten() {
        let rtt = Axis::log("RTT", "s");
        assert_eq!(
            texts(&rtt, &[1e-5, 1.0], 8),
            ["10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s"]
        );
        assert_eq!(span(&rtt, &[1e-5, 1.0]).ticks(&rtt, 8).title, "RTT");
        let rate = Axis::log("rate", "b/s");
        assert_eq!(texts(&rate, &[1e5, 1e10], 8), ["100k", "1M", "10M", "100M", "1G", "10G"]);
        assert_eq!(texts(&rate, &[1e5, 1e10], 3), ["1M", "100M", "10G"]);
        assert_eq!(
            texts(&Axis::log("loss", ""), &[1e-6, 1e-2], 8),
            ["1e-6", "1e-5", "0.0001", "0.001", "0.01"]
        );
        assert_eq!(
            texts(&Axis::log("", "Mb/s"), &[1.0, 1e4], 8),
            ["1", "10", "100", "1000", "10000"]
        );
        // A decade and a half has room for more.
        assert_eq!(texts(&rate, &[1e6, 5e7], 8), ["1M", "2M", "5M", "10M", "20M", "50M", "100M"]);
        // Less than a decade.
        assert_eq!(texts(&Axis::log("", ""), &[2.2, 4.4], 5), ["2.5", "3", "3.5", "4", "4.5"]);
        assert_eq!(texts(&Axis::log("", ""), &[11.0, 42.0], 5), ["10", "20", "30", "40"]);
        // What has no logarithm is left out.
        assert_eq!(texts(&Axis::log("", ""), &[0.0, -1.0], 5), ["1", "2", "5", "10"]);
    }

    #[test]
    fn values_lie_where_they_belong() {
        let linear = Span { low: 0.0, high: 10.0, scale: Scale::Linear };
        assert_eq!(linear.at(2.5), 0.25);
        let log = Span { low: 1.0, high: 100.0, scale: Scale::Log };
        assert_eq!(log.at(10.0), 0.5);
        assert!(log.at(0.0).is_nan());
        let fixed = Axis::log("", "").between(1.0, 100.0);
        assert_eq!(span(&fixed, &[5.0, 7000.0]), log);
        // A range that makes no sense is none.
        let senseless = Axis::log("", "").between(0.0, 100.0);
        assert!(span(&senseless, &[5.0, 7.0]).low > 1.0);
    }
}
