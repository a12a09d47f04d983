//! Curves over a swept variable.

use super::Measured;
use crate::chart::{Axis, Series};
use crate::quantity::{number, unit};
use crate::statistics::Average;

/// An axis for a swept variable: logarithmic if its values are all positive and span more than a
/// factor of 20.
pub fn axis(variable: &str, measured: &[&Measured]) -> Axis {
    let texts = || measured.iter().filter_map(|run| run.value(variable));
    let numbers = || texts().filter_map(number);
    let (low, high) = (numbers().reduce(f64::min), numbers().reduce(f64::max));
    let base = texts().map(unit).find(|unit| !unit.is_empty()).unwrap_or("");
    match (low, high) {
        (Some(low), Some(high)) if low > 0.0 && high / low > 20.0 => Axis::log(variable, base),
        _ => Axis::linear(variable, base),
    }
}

/// What is measured of the runs, in the plan's order, over a swept variable: a curve for each
/// combination of the other variables' values, named by them. Means over the seeds, with the
/// interval of confidence where there is more than one. What has no number has no point.
pub fn curves(
    measured: &[&Measured],
    variable: &str,
    of: impl Fn(&Measured) -> Option<f64>,
) -> Vec<Series> {
    named_curves(measured, variable, |run| run.label_without(variable), Average::Mean, of)
}

/// As [`curves`]: runs of one `name` make a curve, and that average stands for the seeds.
pub(crate) fn named_curves(
    measured: &[&Measured],
    variable: &str,
    name: impl Fn(&Measured) -> String,
    average: Average,
    of: impl Fn(&Measured) -> Option<f64>,
) -> Vec<Series> {
    let mut curves: Vec<Series> = Vec::new();
    for runs in measured.chunk_by(|a, b| a.values == b.values) {
        let sample: Vec<f64> = runs.iter().filter_map(|run| of(run)).collect();
        let x = runs[0].value(variable).and_then(number);
        let (Some(x), Some(y)) = (x, average.of(&sample)) else { continue };
        let name = name(runs[0]);
        let known = curves.iter().position(|curve| curve.name == name).unwrap_or_else(|| {
            curves.push(Series::both(name, Vec::new()));
            curves.len() - 1
        });
        curves[known].points.push((x, y));
        let error = average.interval(&sample).map_or(0.0, |interval| interval.half_width);
        curves[known].errors.push(error);
    }
    for curve in &mut curves {
        if curve.errors.iter().all(|error| *error == 0.0) {
            curve.errors.clear();
        }
    }
    curves
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::Scale;
    use crate::experiment::metric::tests::one_flow;

    /// Runs with these values of `x` and `k`; what they measured is the number of the run.
    fn runs(values: &[(&str, &str)]) -> Vec<Measured> {
        let report = one_flow();
        let run = |(point, (x, k)): (usize, &(&str, &str))| {
            let values = [("x", x), ("k", k)].map(|(n, v)| (n.to_owned(), (*v).to_owned()));
            Measured { point: point as u64, values: values.into(), report: report.clone() }
        };
        values.iter().enumerate().map(run).collect()
    }

    #[test]
    fn an_axis_shows_all_values_zero_and_negative_ones_too() {
        let scale = |values: &[&str]| {
            let runs = runs(&values.iter().map(|value| (*value, "")).collect::<Vec<_>>());
            axis("x", &runs.iter().collect::<Vec<_>>()).scale
        };
        assert_eq!(scale(&["10us", "1ms", "1s"]), Scale::Log);
        assert_eq!(scale(&["1M", "20M"]), Scale::Linear);
        assert_eq!(scale(&["-0.8", "0.2", "8"]), Scale::Linear);
        assert_eq!(scale(&["0", "0.1", "100"]), Scale::Linear);
        assert_eq!(scale(&["bdp"]), Scale::Linear);
    }

    #[test]
    fn runs_with_the_same_other_values_make_a_curve() {
        let runs = runs(&[("1", "a"), ("1", "a"), ("1", "b"), ("2", "a"), ("bdp", "a")]);
        let runs: Vec<&Measured> = runs.iter().collect();
        let curves = curves(&runs, "x", |run| (run.point != 2).then_some(run.point as f64));
        assert_eq!(curves.len(), 1);
        assert_eq!(
            (curves[0].name.as_str(), &*curves[0].points),
            ("k a", &[(1.0, 0.5), (2.0, 3.0)][..])
        );
        assert!(curves[0].errors[0] > 6.0 && curves[0].errors[1] == 0.0, "{:?}", curves[0].errors);
    }
}
