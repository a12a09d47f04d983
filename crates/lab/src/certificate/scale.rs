//! From measurements to points.

use farhaul_base::math::ln;
use serde::Deserialize;

use crate::chart::Scale;

/// What stands for the points of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Take {
    Min,
    Max,
    Mean,
}

impl Take {
    /// None unless each point has a value.
    pub(super) fn of(self, values: &[Option<f64>]) -> Option<f64> {
        let values: Vec<f64> = values.iter().copied().collect::<Option<_>>()?;
        match self {
            Take::Min => values.into_iter().reduce(f64::min),
            Take::Max => values.into_iter().reduce(f64::max),
            Take::Mean => crate::statistics::mean(&values),
        }
    }
}

/// Whether points can be given from `best` to `worst`.
///
/// # Errors
/// Why not.
pub(super) fn check((best, worst): (f64, f64), scale: Scale) -> Result<(), &'static str> {
    if !best.is_finite() || !worst.is_finite() || best == worst {
        Err("'best' and 'worst' are no scale")
    } else if scale == Scale::Log && best.min(worst) <= 0.0 {
        Err("a logarithmic scale has no zero")
    } else {
        Ok(())
    }
}

/// Points, 0 to 100 and to a tenth, for a value; 0 for none.
pub(super) fn score(value: Option<f64>, (best, worst): (f64, f64), scale: Scale) -> f64 {
    let Some(value) = value.filter(|value| !value.is_nan()) else { return 0.0 };
    let value = value.clamp(best.min(worst), best.max(worst));
    let share = match scale {
        Scale::Linear => (value - worst) / (best - worst),
        Scale::Log => ln(value / worst) / ln(best / worst),
    };
    to_tenths(100.0 * share)
}

pub(super) fn to_tenths(points: f64) -> f64 {
    // Plus zero: none are not "-0".
    (points * 10.0).round() / 10.0 + 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_lie_between_best_and_worst() {
        let linear = |value: f64| score(Some(value), (100.0, 0.0), Scale::Linear);
        assert_eq!([-5.0, 0.0, 12.34, 100.0, 130.0].map(linear), [0.0, 0.0, 12.3, 100.0, 100.0]);
        let fewer = |value: f64| score(Some(value), (1.0, 5.0), Scale::Linear);
        assert_eq!([0.0, 1.0, 2.0, 5.0, 6.0].map(fewer), [100.0, 100.0, 75.0, 0.0, 0.0]);
        assert!(fewer(5.0).is_sign_positive(), "no -0");
        let log = |value: f64| score(Some(value), (0.1, 10.0), Scale::Log);
        assert_eq!([0.0, 0.1, 1.0, 10.0, 1e9].map(log), [100.0, 100.0, 50.0, 0.0, 0.0]);
    }

    #[test]
    fn what_is_missing_is_the_worst() {
        for value in [None, Some(f64::NAN)] {
            assert_eq!(score(value, (1.0, 10.0), Scale::Log), 0.0);
        }
        assert_eq!(score(Some(f64::INFINITY), (1.0, 10.0), Scale::Log), 0.0);
    }

    #[test]
    fn one_value_stands_for_all_points() {
        let values = [Some(3.0), Some(1.0), Some(2.0)];
        let taken = [Take::Min, Take::Max, Take::Mean].map(|take| take.of(&values));
        assert_eq!(taken, [Some(1.0), Some(3.0), Some(2.0)]);
        assert_eq!(Take::Min.of(&[Some(1.0), None]), None);
        assert_eq!(Take::Max.of(&[]), None);
    }
}
