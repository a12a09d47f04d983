//! What the equations of the sources predict, from the values of swept variables.

use serde::Deserialize;

use crate::quantity::number;

/// The SYN interval, seconds.
const SYN: f64 = 0.01;
/// Bits of a full packet.
pub(super) const PACKET_BITS: f64 = 12_000.0;

/// What TCP's time-out has at least beyond the round trip, seconds.
const MIN_RTO: f64 = 0.2;

/// An equation, as files name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(super) enum Equation {
    /// gu05 equation 3-12: throughput at the equilibrium, Mb/s.
    #[serde(rename = "gu05-3-12")]
    Equilibrium,
    /// The same, Mb/s, without the approximation of 3-10, and with the SYN interval's silence that
    /// follows each congestion event (gu05 section 3.5.1), which 3-4 leaves out.
    #[serde(rename = "gu05-3-10")]
    EquilibriumWithSilence,
    /// What a flow that estimates the capacity rightly, and one that estimates it 1 + error times
    /// too high, may get at most, the larger share over the smaller (gu05 end of section 3.4).
    #[serde(rename = "gu05-3-error")]
    MostUnequal,
    /// Mean windows in packets, as all below. Reno with an ACK for each packet, losses at equal
    /// distances (Mathis et al., 1997).
    #[serde(rename = "mathis-window")]
    Mathis,
    /// The same when a repair takes a round trip at half of the top W without growth: 1/p packets,
    /// W/2 + 3 W²/8 + 3 W/4, in W/2 + 2 round trips.
    #[serde(rename = "reno-repair")]
    RenoRepair,
    /// AIMD in general, `increase` packets a round trip and the share `beta` of the window after a
    /// loss, losses at equal distances (Floyd, Handley and Padhye, 2000).
    #[serde(rename = "aimd")]
    Aimd,
    /// Reno at random losses with time-outs (Padhye et al., 1998), an ACK for each packet and for
    /// every second one.
    #[serde(rename = "padhye")]
    Padhye,
    #[serde(rename = "padhye-delayed")]
    PadhyeDelayed,
    /// RFC 9438 §5.1, losses at equal distances; Reno where that is faster (§4.3).
    #[serde(rename = "cubic")]
    Cubic,
}

impl Equation {
    /// The prediction for these values of variables; none if one that it needs is missing.
    pub(super) fn predict(self, values: &[(String, String)]) -> Option<f64> {
        let value = |variable: &str| {
            let (_, value) = values.iter().find(|(name, _)| name == variable)?;
            number(value)
        };
        Some(match self {
            Equation::Equilibrium => {
                let loss = value("loss")?;
                let stage = |increase: f64| 3.0 * (increase / loss).sqrt();
                stable_rate(value("rate")?, stage) / 1e6
            }
            Equation::EquilibriumWithSilence => {
                let loss = value("loss")?;
                let stage = |increase: f64| {
                    4.5 * (-increase + (increase * increase + 4.0 / 9.0 * increase / loss).sqrt())
                };
                let rate = stable_rate(value("rate")?, stage);
                rate / (1.0 + loss * rate * SYN / PACKET_BITS) / 1e6
            }
            Equation::MostUnequal => most_unequal(value("error")?),
            Equation::Mathis => mathis(value("loss")?),
            Equation::Aimd => {
                let (increase, beta) = (value("increase")?, value("beta")?);
                (increase * (1.0 + beta) / (2.0 * (1.0 - beta) * value("loss")?)).sqrt()
            }
            Equation::RenoRepair => {
                let packets = 1.0 / value("loss")?;
                let top = ((1.5625 + 1.5 * packets).sqrt() - 1.25) / 0.75;
                packets / (top / 2.0 + 2.0)
            }
            Equation::Padhye => padhye(value("loss")?, value("rtt")?, 1.0),
            Equation::PadhyeDelayed => padhye(value("loss")?, value("rtt")?, 2.0),
            Equation::Cubic => {
                let cubic = 1.054 * (value("rtt")? / value("loss")?).powf(0.75);
                cubic.max(mathis(value("loss")?))
            }
        })
    }
}

fn mathis(p: f64) -> f64 {
    (1.5 / p).sqrt()
}

/// Throughput at equilibrium in bits/s. `stage`: packets a SYN interval at the equilibrium of a stage
/// of that increase, as in gu05 equation 3-12 (3-13 as printed is ten times too large against it).
///
/// The equilibrium of stage k counts where it lies within the stage, which is while 10^(e-k-1) to
/// 10^(e-k) bits/s are free. Between a stage whose equilibrium lies above it and the next, whose
/// equilibrium lies below, the rate is held at the border of the two.
fn stable_rate(capacity: f64, stage: impl Fn(f64) -> f64) -> f64 {
    let mut power = 1.0;
    while power < capacity {
        power *= 10.0;
    }
    let mut begin = 0.0;
    loop {
        // Increase a SYN interval at this stage, packets (3-11): 10^(e - k - 9).
        let increase = power / 1e9;
        let equilibrium = stage(increase) * PACKET_BITS / SYN;
        let end = capacity - power / 10.0;
        if equilibrium <= end || power < 10.0 {
            return equilibrium.clamp(begin, capacity);
        }
        (begin, power) = (end.max(0.0), power / 10.0);
    }
}

/// The full model's mean window, packets, at a loss rate `p` with `b` packets an ACK. The time-out
/// is the simulator's: the round trip and its minimum, without deviation.
fn padhye(p: f64, rtt: f64, b: f64) -> f64 {
    let rto = rtt + MIN_RTO;
    let time_outs = rto * (3.0 * (3.0 * b * p / 8.0).sqrt()).min(1.0) * p * (1.0 + 32.0 * p * p);
    rtt / (rtt * (2.0 * b * p / 3.0).sqrt() + time_outs)
}

/// The bound of gu05 section 3.4 for an error above -0.9 and below 9. (The last row's condition is
/// printed as epsilon <= 0.5 for epsilon <= -0.5.)
fn most_unequal(error: f64) -> f64 {
    if error >= 1.0 {
        10f64.sqrt()
    } else if error > 0.0 {
        let middle = 11.0 + 2.0 * 10f64.sqrt();
        (middle + 9.0 * error) / (middle - 9.0 * error)
    } else if error > -0.5 {
        1.0
    } else {
        -error / (1.0 + error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        use Equation::{Aimd, Cubic, Equilibrium, Mathis, Padhye, PadhyeDelayed, RenoRepair};
        let at = |rate: &str, loss: &str| {
            let values = [("rate", rate), ("loss", loss)].map(|(n, v)| (n.into(), v.into()));
            Equilibrium.predict(&values).unwrap()
        };
        // e = 9, k = 0: 3 / sqrt(1e-4) packets a SYN interval.
        assert!((at("1G", "1e-4") - 360.0).abs() < 1e-6);
        assert!((at("1G", "1e-2") - 36.0).abs() < 1e-6);
        // e = 8: the first stage's equilibrium is 114 Mb/s at 1e-4, beyond its end at 90; the
        // second's is 36, before its beginning.
        assert!((at("100M", "1e-4") - 90.0).abs() < 1e-6);
        let window = |equation: Equation, loss: &str, rtt: &str| {
            equation.predict(&[("loss".into(), loss.into()), ("rtt".into(), rtt.into())]).unwrap()
        };
        assert!((window(Mathis, "1e-4", "1s") - 122.47).abs() < 0.01);
        let aimd = |increase: &str, beta: &str| {
            let values = [("increase", increase), ("beta", beta), ("loss", "1e-4")];
            Aimd.predict(&values.map(|(name, value)| (name.into(), value.into()))).unwrap()
        };
        // Reno; and four times its increase, which is twice its window.
        assert!((aimd("1", "0.5") - 122.47).abs() < 0.01);
        assert!((aimd("4", "0.5") - 244.95).abs() < 0.01);
        assert!((aimd("1", "0.875") - 273.86).abs() < 0.01);
        // A top of 14.75 packets: 100 in 9.37 round trips.
        assert!((window(RenoRepair, "1%", "1s") - 10.67).abs() < 0.01);
        // 0.1 / (0.1 / 12.247 + 0.3 * 3 * sqrt(0.00375) * 0.010032).
        assert!((window(Padhye, "1e-2", "100ms") - 11.47).abs() < 0.01);
        assert!(window(PadhyeDelayed, "1e-4", "100ms") < 86.61);
        // 1.054 * 1000^0.75; and Reno where it is faster.
        assert!((window(Cubic, "1e-4", "100ms") - 187.43).abs() < 0.01);
        assert!((window(Cubic, "1e-2", "1ms") - 12.247).abs() < 0.001);
        assert_eq!(Equilibrium.predict(&[("loss".into(), "1%".into())]), None);
        for (error, bound) in [(5.0, 3.162), (1.0, 3.162), (0.5, 1.702), (-0.3, 1.0), (-0.8, 4.0)] {
            assert!((most_unequal(error) - bound).abs() < 1e-3, "{error}");
        }
    }
}
