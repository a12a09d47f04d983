//! What the equations of the sources predict, from the values of swept variables.

use crate::quantity::number;

/// The SYN interval, seconds.
const SYN: f64 = 0.01;
/// Bits of a full packet.
pub(super) const PACKET_BITS: f64 = 12_000.0;

/// What TCP's time-out has at least beyond the round trip, seconds.
const MIN_RTO: f64 = 0.2;

/// The prediction of an equation for these values of variables.
///
/// # Errors
/// There is no such equation, or it lacks a variable.
pub(super) fn predict(name: &str, values: &[(String, String)]) -> Result<f64, String> {
    let value = |variable: &str| {
        let found = values.iter().find(|(name, _)| name == variable);
        found
            .and_then(|(_, value)| number(value))
            .ok_or_else(|| format!("the equation '{name}' needs the variable '{variable}'"))
    };
    match name {
        // gu05 equation 3-12: throughput at the equilibrium, Mb/s.
        "gu05-3-12" => {
            let loss = value("loss")?;
            let stage = |increase: f64| 3.0 * (increase / loss).sqrt();
            Ok(stable_rate(value("rate")?, stage) / 1e6)
        }
        // The same, Mb/s, without the approximation of 3-10, and with the SYN interval's silence that
        // follows each congestion event (gu05 section 3.5.1), which 3-4 leaves out.
        "gu05-3-10" => {
            let loss = value("loss")?;
            let stage = |increase: f64| {
                4.5 * (-increase + (increase * increase + 4.0 / 9.0 * increase / loss).sqrt())
            };
            let rate = stable_rate(value("rate")?, stage);
            Ok(rate / (1.0 + loss * rate * SYN / PACKET_BITS) / 1e6)
        }
        // The simple model of TCP's throughput of gu05 equation 3-18, Mb/s.
        "mathis" => Ok((1.5 / value("loss")?).sqrt() * PACKET_BITS / value("rtt")? / 1e6),
        // Mean windows in packets. Reno with an ACK for each packet, losses at equal distances
        // (Mathis et al., 1997).
        "mathis-window" => Ok((1.5 / value("loss")?).sqrt()),
        // The same when a repair takes a round trip at half of the top W without growth: 1/p
        // packets, W/2 + 3 W²/8 + 3 W/4, in W/2 + 2 round trips.
        "reno-repair" => {
            let packets = 1.0 / value("loss")?;
            let top = ((1.5625 + 1.5 * packets).sqrt() - 1.25) / 0.75;
            Ok(packets / (top / 2.0 + 2.0))
        }
        // Reno at random losses with time-outs (Padhye et al., 1998), an ACK for each packet and
        // for every second one.
        "padhye" => Ok(padhye(value("loss")?, value("rtt")?, 1.0)),
        "padhye-delayed" => Ok(padhye(value("loss")?, value("rtt")?, 2.0)),
        // RFC 9438 §5.1, losses at equal distances; Reno where that is faster (§4.3).
        "cubic" => {
            let cubic = 1.054 * (value("rtt")? / value("loss")?).powf(0.75);
            Ok(cubic.max((1.5 / value("loss")?).sqrt()))
        }
        // What a flow that estimates the capacity rightly, and one that estimates it 1 + error times
        // too high, may get at most, the larger share over the smaller (gu05 end of section 3.4).
        "gu05-3-error" => Ok(most_unequal(value("error")?)),
        _ => Err(format!("there is no equation '{name}'")),
    }
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
        let at = |rate: &str, loss: &str| {
            let values = [("rate", rate), ("loss", loss)].map(|(n, v)| (n.into(), v.into()));
            predict("gu05-3-12", &values).unwrap()
        };
        // e = 9, k = 0: 3 / sqrt(1e-4) packets a SYN interval.
        assert!((at("1G", "1e-4") - 360.0).abs() < 1e-6);
        assert!((at("1G", "1e-2") - 36.0).abs() < 1e-6);
        // e = 8: the first stage's equilibrium is 114 Mb/s at 1e-4, beyond its end at 90; the
        // second's is 36, before its beginning.
        assert!((at("100M", "1e-4") - 90.0).abs() < 1e-6);
        let window = |name: &str, loss: &str, rtt: &str| {
            predict(name, &[("loss".into(), loss.into()), ("rtt".into(), rtt.into())]).unwrap()
        };
        assert!((window("mathis-window", "1e-4", "1s") - 122.47).abs() < 0.01);
        // A top of 14.75 packets: 100 in 9.37 round trips.
        assert!((window("reno-repair", "1%", "1s") - 10.67).abs() < 0.01);
        // 0.1 / (0.1 / 12.247 + 0.3 * 3 * sqrt(0.00375) * 0.010032).
        assert!((window("padhye", "1e-2", "100ms") - 11.47).abs() < 0.01);
        assert!(window("padhye-delayed", "1e-4", "100ms") < 86.61);
        // 1.054 * 1000^0.75; and Reno where it is faster.
        assert!((window("cubic", "1e-4", "100ms") - 187.43).abs() < 0.01);
        assert!((window("cubic", "1e-2", "1ms") - 12.247).abs() < 0.001);
        assert!(predict("gu05-3-12", &[]).is_err());
        for (error, bound) in [(5.0, 3.162), (1.0, 3.162), (0.5, 1.702), (-0.3, 1.0), (-0.8, 4.0)] {
            assert!((most_unequal(error) - bound).abs() < 1e-3, "{error}");
        }
        assert!(predict("e=mc2", &[]).is_err());
    }
}
