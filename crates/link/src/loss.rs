//! Which packets the wire loses.

mod spacing;

use core::num::NonZeroU64;
use core::ops::RangeInclusive;

use farhaul_base::Rng;

use self::spacing::Spacing;
use crate::Probability;

/// Which packets the wire loses. Blackouts are apart, see [`Blackout`](crate::Blackout).
///
/// Written `none`, `0.1%`, `ber:1e-7`, `ge:p=1%,r=30%` (with `good=` and `bad=` for the loss in
/// each state), `ge:loss=1%,burst=5`, `every:100`, `gauss:mean=1000,sd=100`, `poisson:mean=1000`,
/// `list:3,7-9`.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum LossModel {
    /// None.
    #[default]
    None,
    /// Each packet with the same probability, whatever its size.
    Uniform(Probability),
    /// Each bit is wrong with this probability, and one wrong bit loses the packet: a packet of n
    /// bits is lost with 1 - (1 - p)^n.
    PerBit(Probability),
    /// In bursts.
    GilbertElliott(GilbertElliott),
    /// The n-th packet, the 2n-th, and so on.
    Periodic {
        /// n.
        every: NonZeroU64,
    },
    /// At distances from a Gaussian distribution: the n-th packet after the last one lost (or from
    /// the first on) is lost, n being drawn for each loss, rounded, and at least 1.
    Gaussian {
        /// Mean distance in packets, finite and at least 1.
        mean: f64,
        /// Standard deviation in packets, finite and at least 0.
        sd: f64,
    },
    /// As a Poisson process: at independent, exponentially distributed distances, which in whole
    /// packets is the geometric distribution. Each packet is then lost with the same probability of
    /// 1/`mean`, so that statistically this is [`Uniform`](LossModel::Uniform), drawn once a loss.
    Poisson {
        /// Mean distance in packets, finite and at least 1.
        mean: f64,
    },
    /// These packets, by their number in the order of transmission; the first is 1.
    Scripted(Vec<RangeInclusive<u64>>),
}

/// Two states, a good one and a bad one; the chance of a move is taken after each packet
/// (Gilbert 1960, Elliott 1963). It starts in the good state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GilbertElliott {
    /// From good to bad.
    pub p: Probability,
    /// From bad to good.
    pub r: Probability,
    /// Loss while the state is good; 0 in Gilbert's simple model.
    pub loss_good: Probability,
    /// Loss while the state is bad; 1 in Gilbert's simple model.
    pub loss_bad: Probability,
}

/// A loss model at work.
#[derive(Clone, Debug)]
pub(crate) struct LossProcess {
    rng: Rng,
    /// Packets judged so far.
    judged: u64,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    None,
    Uniform(Probability),
    /// `last` keeps the packet size met last and the loss computed for it.
    PerBit {
        bit_error: f64,
        last: (usize, f64),
    },
    GilbertElliott {
        model: GilbertElliott,
        bad: bool,
    },
    Periodic(NonZeroU64),
    /// `next` is the number of the next packet lost.
    Spaced {
        spacing: Spacing,
        next: u64,
    },
    /// Sorted, apart from each other, the next one last.
    Scripted(Vec<RangeInclusive<u64>>),
}

impl GilbertElliott {
    /// Gilbert's simple model (all is lost in the bad state, nothing in the good one) with a mean
    /// `loss` and a mean `burst` of lost packets in a row. `None` if `burst` is below 1, or if so
    /// much loss cannot come in such short bursts, or if `loss` is 1.
    pub fn from_loss_and_burst(loss: Probability, burst: f64) -> Option<Self> {
        // loss = p / (p + r) and burst = 1 / r.
        let r = Probability::new(burst.recip()).filter(|_| burst.is_finite())?;
        let p = Probability::new(r.value() * loss.value() / (1.0 - loss.value()))?;
        Some(GilbertElliott { p, r, loss_good: Probability::ZERO, loss_bad: Probability::ONE })
    }

    /// The share of packets that is lost in the long run.
    pub fn mean_loss(&self) -> f64 {
        let (p, r) = (self.p.value(), self.r.value());
        if p == 0.0 {
            return self.loss_good.value();
        }
        let bad = p / (p + r);
        bad * self.loss_bad.value() + (1.0 - bad) * self.loss_good.value()
    }
}

impl LossModel {
    /// The share of packets of `bits` that is lost in the long run, from 0 to 1.
    pub fn mean_loss(&self, bits: u64) -> f64 {
        match self {
            // A list comes to its end.
            LossModel::None | LossModel::Scripted(_) => 0.0,
            LossModel::Uniform(p) => p.value(),
            LossModel::PerBit(p) => any_of(p.value(), bits),
            LossModel::GilbertElliott(model) => model.mean_loss(),
            LossModel::Periodic { every } => 1.0 / every.get() as f64,
            LossModel::Gaussian { mean, sd } => spacing::mean_at_least_one(*mean, *sd).recip(),
            LossModel::Poisson { mean } => mean.max(1.0).recip(),
        }
    }
}

impl LossProcess {
    pub(crate) fn new(model: &LossModel, mut rng: Rng) -> Self {
        let mut spaced = |spacing: Spacing| {
            let next = spacing.draw(&mut rng);
            State::Spaced { spacing, next }
        };
        let state = match model {
            LossModel::None => State::None,
            LossModel::Uniform(p) => State::Uniform(*p),
            LossModel::PerBit(p) => State::PerBit { bit_error: p.value(), last: (0, 0.0) },
            LossModel::GilbertElliott(model) => State::GilbertElliott { model: *model, bad: false },
            LossModel::Periodic { every } => State::Periodic(*every),
            LossModel::Gaussian { mean, sd } => spaced(Spacing::gaussian(*mean, *sd)),
            LossModel::Poisson { mean } => spaced(Spacing::geometric(*mean)),
            LossModel::Scripted(ranges) => State::Scripted(next_last(ranges)),
        };
        LossProcess { rng, judged: 0, state }
    }

    /// Whether the next packet, of `bytes`, is lost.
    pub(crate) fn loses(&mut self, bytes: usize) -> bool {
        self.judged += 1;
        match &mut self.state {
            State::None => false,
            State::Uniform(p) => self.rng.chance(p.value()),
            State::PerBit { bit_error, last } => {
                if last.0 != bytes {
                    *last = (bytes, any_of(*bit_error, bytes as u64 * 8));
                }
                self.rng.chance(last.1)
            }
            State::GilbertElliott { model, bad } => {
                let (loss, leave) =
                    if *bad { (model.loss_bad, model.r) } else { (model.loss_good, model.p) };
                let lost = self.rng.chance(loss.value());
                *bad ^= self.rng.chance(leave.value());
                lost
            }
            State::Periodic(every) => self.judged.is_multiple_of(every.get()),
            State::Spaced { spacing, next } => {
                let lost = self.judged == *next;
                if lost {
                    *next = next.saturating_add(spacing.draw(&mut self.rng));
                }
                lost
            }
            State::Scripted(ranges) => {
                while ranges.last().is_some_and(|range| *range.end() < self.judged) {
                    ranges.pop();
                }
                ranges.last().is_some_and(|range| range.contains(&self.judged))
            }
        }
    }
}

/// The ranges without the empty ones, merged where they overlap, the first to come last.
fn next_last(ranges: &[RangeInclusive<u64>]) -> Vec<RangeInclusive<u64>> {
    let mut sorted: Vec<_> = ranges.iter().filter(|range| !range.is_empty()).cloned().collect();
    sorted.sort_by_key(|range| *range.start());
    let mut merged: Vec<RangeInclusive<u64>> = Vec::with_capacity(sorted.len());
    for range in sorted {
        match merged.last_mut() {
            Some(last) if range.start() <= last.end() => {
                *last = *last.start()..=*last.end().max(range.end());
            }
            _ => merged.push(range),
        }
    }
    merged.reverse();
    merged
}

/// The probability of at least one of `n` independent events of probability `p`: 1 - (1 - p)^n.
///
/// By doubling, in multiplications and additions only: small values keep their digits, and the
/// result is the same on every machine, which a library's power function does not promise.
fn any_of(p: f64, n: u64) -> f64 {
    let either = |a: f64, b: f64| a + b - a * b;
    let (mut result, mut doubled, mut rest) = (0.0, p, n);
    while rest > 0 {
        if rest & 1 == 1 {
            result = either(result, doubled);
        }
        doubled = either(doubled, doubled);
        rest >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probability(value: f64) -> Probability {
        Probability::new(value).unwrap()
    }

    fn losses(model: &LossModel, packets: u64, bytes: usize) -> Vec<u64> {
        let mut process = LossProcess::new(model, Rng::new(7));
        (1..=packets).filter(|_| process.loses(bytes)).collect()
    }

    /// The share lost, and the mean length of runs of losses.
    fn share_and_burst(model: &LossModel, packets: u64) -> (f64, f64) {
        let lost = losses(model, packets, 1_500);
        let runs = 1 + lost.windows(2).filter(|pair| pair[0] + 1 != pair[1]).count();
        (lost.len() as f64 / packets as f64, lost.len() as f64 / runs as f64)
    }

    fn near(value: f64, expected: f64, relative: f64) -> bool {
        (value - expected).abs() <= relative * expected
    }

    #[test]
    fn none_and_all() {
        assert!(losses(&LossModel::None, 1_000, 1_500).is_empty());
        assert_eq!(losses(&LossModel::Uniform(Probability::ONE), 1_000, 1_500).len(), 1_000);
        assert!(losses(&LossModel::Uniform(Probability::ZERO), 1_000, 1_500).is_empty());
    }

    /// Independent losses: the share is p, and runs have a mean length of 1 / (1 - p).
    #[test]
    fn uniform_share_and_runs() {
        let (share, burst) = share_and_burst(&LossModel::Uniform(probability(0.1)), 1_000_000);
        assert!(near(share, 0.1, 0.02), "{share}");
        assert!(near(burst, 1.0 / 0.9, 0.02), "{burst}");
    }

    #[test]
    fn bit_errors_follow_the_size() {
        let model = LossModel::PerBit(probability(1e-5));
        for bytes in [40, 1_500, 9_000] {
            let share = losses(&model, 1_000_000, bytes).len() as f64 / 1e6;
            let expected = 1.0 - crate::series::power(1.0 - 1e-5, 8 * bytes as u64);
            assert!(near(share, expected, 0.05), "{bytes} B: {share}, not {expected}");
        }
    }

    #[test]
    fn any_of_keeps_small_digits() {
        assert_eq!(any_of(0.5, 2), 0.75);
        assert_eq!(any_of(0.5, 3), 0.875);
        assert_eq!(any_of(1.0, 9), 1.0);
        assert_eq!(any_of(0.3, 0), 0.0);
        assert!(near(any_of(1e-18, 12_000), 1.2e-14, 1e-12));
    }

    #[test]
    fn gilbert_elliott_stationary_share_and_burst() {
        let model = GilbertElliott::from_loss_and_burst(probability(0.02), 5.0).unwrap();
        assert!(near(model.mean_loss(), 0.02, 1e-12));
        let (share, burst) = share_and_burst(&LossModel::GilbertElliott(model), 2_000_000);
        assert!(near(share, 0.02, 0.03), "{share}");
        assert!(near(burst, 5.0, 0.03), "{burst}");

        let general = GilbertElliott {
            p: probability(0.01),
            r: probability(0.09),
            loss_good: probability(0.001),
            loss_bad: probability(0.5),
        };
        assert!(near(general.mean_loss(), 0.1 * 0.5 + 0.9 * 0.001, 1e-12));
        let (share, _) = share_and_burst(&LossModel::GilbertElliott(general), 2_000_000);
        assert!(near(share, general.mean_loss(), 0.03), "{share}");
    }

    #[test]
    fn impossible_bursts() {
        let model = |loss, burst| GilbertElliott::from_loss_and_burst(probability(loss), burst);
        assert!(model(0.1, 0.9).is_none());
        assert!(model(1.0, 5.0).is_none());
        // 90 % lost in runs of 2 would need gaps of less than one packet.
        assert!(model(0.9, 2.0).is_none());
        assert!(model(0.1, f64::INFINITY).is_none());
        assert!(model(0.0, 1.0).is_some());
    }

    /// Distances from loss to loss: their mean and standard deviation.
    fn distances(model: &LossModel) -> (f64, f64) {
        let lost = losses(model, 2_000_000, 1_500);
        let gaps: Vec<f64> = lost.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let square =
            gaps.iter().map(|gap| (gap - mean) * (gap - mean)).sum::<f64>() / gaps.len() as f64;
        (mean, square.sqrt())
    }

    #[test]
    fn gaussian_distances() {
        let (mean, sd) = distances(&LossModel::Gaussian { mean: 200.0, sd: 20.0 });
        assert!(near(mean, 200.0, 0.01) && near(sd, 20.0, 0.03), "{mean} {sd}");
        // Without deviation it is periodic.
        let every = LossModel::Gaussian { mean: 4.0, sd: 0.0 };
        assert_eq!(losses(&every, 20, 1), [4, 8, 12, 16, 20]);
        assert_eq!(every.mean_loss(1), 0.25);
        // Many distances below 1 make the mean longer.
        for (mean, sd) in [(10.0, 1.0), (10.0, 10.0), (1.0, 5.0), (3.0, 100.0)] {
            let model = LossModel::Gaussian { mean, sd };
            let (share, _) = share_and_burst(&model, 2_000_000);
            assert!(near(share, model.mean_loss(1), 0.02), "{mean} {sd}: {share}");
        }
    }

    /// Mean m and standard deviation sqrt(m (m - 1)), as the geometric distribution has them.
    #[test]
    fn poisson_distances() {
        for m in [1.5f64, 3.0, 10.0, 200.0] {
            let model = LossModel::Poisson { mean: m };
            let (mean, sd) = distances(&model);
            assert!(near(mean, m, 0.03), "{mean}");
            assert!(near(sd, (m * (m - 1.0)).sqrt(), 0.05), "{m}: {sd}");
            assert_eq!(model.mean_loss(1), 1.0 / m);
        }
        assert_eq!(losses(&LossModel::Poisson { mean: 1.0 }, 1_000, 1).len(), 1_000);
    }

    /// Values that no text gives.
    #[test]
    fn strange_distances_do_no_harm() {
        for (mean, sd) in [(f64::NAN, 1.0), (-5.0, f64::NAN), (1.0, f64::INFINITY), (0.0, 0.0)] {
            losses(&LossModel::Gaussian { mean, sd }, 1_000, 1);
            losses(&LossModel::Poisson { mean }, 1_000, 1);
        }
        assert!(losses(&LossModel::Poisson { mean: f64::INFINITY }, 1_000, 1).is_empty());
        assert!(losses(&LossModel::Gaussian { mean: 1e300, sd: 1.0 }, 1_000, 1).is_empty());
    }

    #[test]
    fn periodic_and_scripted() {
        let every = LossModel::Periodic { every: NonZeroU64::new(4).unwrap() };
        assert_eq!(losses(&every, 3, 1), []);
        assert_eq!(losses(&every, 12, 1).len(), 3);
        let numbers = |model| {
            let mut process = LossProcess::new(&model, Rng::new(0));
            (1..=20u64).filter(|_| process.loses(1)).collect::<Vec<_>>()
        };
        assert_eq!(numbers(every), [4, 8, 12, 16, 20]);
        // Unsorted, overlapping, one empty.
        #[allow(clippy::reversed_empty_ranges)]
        let ranges = vec![7..=9, 3..=3, 8..=12, 5..=4, 8..=8];
        assert_eq!(numbers(LossModel::Scripted(ranges)), [3, 7, 8, 9, 10, 11, 12]);
    }
}
