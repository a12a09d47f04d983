//! What happened during some time: means by time, and counts.

/// What has a mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Packets.
    Window,
    FlowWindow,
    InFlight,
    /// Bits a second.
    Paced,
    Sent,
    Delivered,
    Received,
    Capacity,
    /// Seconds.
    Rtt,
    MinRtt,
}

/// What is counted: packets, and time-outs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    Sent,
    Received,
    Lost,
    Retransmitted,
    Missing,
    Timeouts,
}

/// Means and counts over some time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Numbers {
    means: [Mean; Quantity::MinRtt as usize + 1],
    counts: [f64; Count::Timeouts as usize + 1],
}

/// A mean by time.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: f64,
    seconds: f64,
}

impl Numbers {
    /// `quantity` was `value` for so long; nothing is known of it if there is none.
    pub fn observe(&mut self, quantity: Quantity, value: Option<f64>, seconds: f64) {
        if let Some(value) = value {
            let mean = &mut self.means[quantity as usize];
            mean.sum += value * seconds;
            mean.seconds += seconds;
        }
    }

    /// So much was counted.
    pub fn count(&mut self, count: Count, number: f64) {
        self.counts[count as usize] += number;
    }

    /// A share of what `other` tells happened too.
    pub fn add(&mut self, other: &Numbers, share: f64) {
        for (mean, more) in self.means.iter_mut().zip(&other.means) {
            mean.sum += more.sum * share;
            mean.seconds += more.seconds * share;
        }
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more * share;
        }
    }

    /// The mean over the time of which something is known.
    pub fn mean(&self, quantity: Quantity) -> Option<f64> {
        let Mean { sum, seconds } = self.means[quantity as usize];
        (seconds > 0.0).then_some(sum / seconds)
    }

    /// The value times seconds: of rates, bits.
    pub fn sum(&self, quantity: Quantity) -> f64 {
        self.means[quantity as usize].sum
    }

    /// How much was counted.
    pub fn counted(&self, count: Count) -> f64 {
        self.counts[count as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_by_time_and_counts_add_up() {
        let mut numbers = Numbers::default();
        assert_eq!(numbers.mean(Quantity::Rtt), None);
        numbers.observe(Quantity::Rtt, Some(1.0), 3.0);
        numbers.observe(Quantity::Rtt, None, 50.0);
        numbers.observe(Quantity::Rtt, Some(5.0), 1.0);
        numbers.count(Count::Lost, 6.0);
        assert_eq!(numbers.mean(Quantity::Rtt), Some(2.0));
        let mut sum = numbers;
        sum.add(&numbers, 0.5);
        assert_eq!(sum.mean(Quantity::Rtt), Some(2.0));
        assert_eq!((sum.sum(Quantity::Rtt), sum.counted(Count::Lost)), (12.0, 9.0));
        assert_eq!(sum.counted(Count::Sent), 0.0);
    }
}
