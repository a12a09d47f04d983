//! How much has gone through a path, over time.

use serde::{Deserialize, Serialize};

/// Time between two samples, seconds.
pub const SAMPLE_EVERY_S: f64 = 0.1;

/// A count of bytes at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Since the beginning.
    pub seconds: f64,
    /// So far.
    pub bytes: u64,
}

/// Samples in order of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Series {
    samples: Vec<Sample>,
}

/// The mean rate over a span.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    pub start: f64,
    pub end: f64,
    pub bytes: u64,
}

impl Series {
    /// Whether enough time has passed since the last sample.
    pub fn is_due(&self, seconds: f64) -> bool {
        self.samples.last().is_none_or(|last| seconds >= last.seconds + SAMPLE_EVERY_S)
    }

    /// Adds a sample. One that is not later than the last takes its place.
    pub fn push(&mut self, sample: Sample) {
        self.samples.pop_if(|last| last.seconds >= sample.seconds);
        self.samples.push(sample);
    }

    /// The series from where the bytes begin to flow, which becomes time zero.
    pub fn begin_with_bytes(&self) -> Series {
        let idle = self.samples.iter().take_while(|sample| sample.bytes == 0).count();
        let skipped = idle.saturating_sub(1);
        let origin = self.samples.get(skipped).map_or(0.0, |sample| sample.seconds);
        let shift = |sample: &Sample| Sample { seconds: sample.seconds - origin, ..*sample };
        Series { samples: self.samples[skipped..].iter().map(shift).collect() }
    }

    /// From sample to sample.
    pub fn spans(&self) -> impl Iterator<Item = Span> {
        self.samples.windows(2).map(|pair| Span {
            start: pair[0].seconds,
            end: pair[1].seconds,
            bytes: pair[1].bytes.saturating_sub(pair[0].bytes),
        })
    }

    /// A curve of the rate in bits a second, each point the mean over `span_s` seconds, about, and in their
    /// middle. Begins at zero.
    pub fn curve(&self, span_s: f64) -> Vec<(f64, f64)> {
        let mut points = vec![(0.0, 0.0)];
        let mut sum: Option<Span> = None;
        for span in self.spans() {
            let joined = match sum {
                Some(sum) => Span { start: sum.start, bytes: sum.bytes + span.bytes, ..span },
                None => span,
            };
            // Samples are taken a little late; half of one is allowed for.
            if joined.end - joined.start + SAMPLE_EVERY_S / 2.0 < span_s {
                sum = Some(joined);
            } else {
                points.push(((joined.start + joined.end) / 2.0, joined.bits_per_second()));
                sum = None;
            }
        }
        // What is left at the end counts if it is no sliver, whose rate would be a matter of chance.
        if let Some(rest) = sum.filter(|rest| rest.end - rest.start >= span_s / 2.0) {
            points.push(((rest.start + rest.end) / 2.0, rest.bits_per_second()));
        }
        points
    }

    /// The last sample's time.
    pub fn seconds(&self) -> f64 {
        self.samples.last().map_or(0.0, |sample| sample.seconds)
    }
}

impl Span {
    /// The mean rate.
    pub fn bits_per_second(&self) -> f64 {
        let seconds = self.end - self.start;
        if seconds > 0.0 { self.bytes as f64 * 8.0 / seconds } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples 0.1 s apart with these bytes.
    fn series(bytes: &[u64]) -> Series {
        let mut series = Series::default();
        for (index, &bytes) in bytes.iter().enumerate() {
            series.push(Sample { seconds: index as f64 * 0.1, bytes });
        }
        series
    }

    /// With rates in Mb/s.
    fn rounded(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
        let round = |value: f64| (value * 1e6).round() / 1e6;
        points.into_iter().map(|(x, y)| (round(x), round(y / 1e6))).collect()
    }

    #[test]
    fn curves_are_means_over_spans() {
        // 1 MB in 0.1 s is 80 Mb/s.
        let series = series(&[0, 1_000_000, 3_000_000, 3_000_000, 5_000_000]);
        let fine = [(0.0, 0.0), (0.05, 80.0), (0.15, 160.0), (0.25, 0.0), (0.35, 160.0)];
        assert_eq!(rounded(series.curve(0.1)), fine);
        assert_eq!(rounded(series.curve(0.2)), [(0.0, 0.0), (0.1, 120.0), (0.3, 80.0)]);
        // A third of a span is left, which is a sliver; two thirds are not.
        assert_eq!(rounded(series.curve(0.3)), [(0.0, 0.0), (0.15, 80.0)]);
        let longer = self::series(&[0, 1_000_000, 3_000_000, 3_000_000, 5_000_000, 5_000_000]);
        assert_eq!(rounded(longer.curve(0.3)), [(0.0, 0.0), (0.15, 80.0), (0.4, 80.0)]);
        assert_eq!(series.curve(10.0), [(0.0, 0.0)]);
    }

    #[test]
    fn time_begins_with_the_bytes() {
        let begun = series(&[0, 0, 0, 10, 20]).begin_with_bytes();
        assert_eq!(begun.spans().count(), 2);
        assert_eq!(begun.spans().next().unwrap().start, 0.0);
        assert!((begun.seconds() - 0.2).abs() < 1e-9);
        assert_eq!(series(&[5, 10]).begin_with_bytes(), series(&[5, 10]));
        assert_eq!(Series::default().begin_with_bytes(), Series::default());
    }

    #[test]
    fn samples_are_in_order_of_time() {
        let mut series = series(&[0, 1]);
        assert!(!series.is_due(0.15) && series.is_due(0.2));
        series.push(Sample { seconds: 0.1, bytes: 2 });
        assert_eq!(series.spans().map(|span| span.bytes).collect::<Vec<_>>(), [2]);
        assert!(Series::default().is_due(0.0));
    }
}
