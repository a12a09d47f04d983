//! The indices of the dissertation (gu05 chapter 4).

/// Efficiency: the flows' throughputs together. They must be averages over the same time: the
/// dissertation sums flows that are there together (as in gu05 Table 4-3).
pub fn efficiency(throughputs: &[f64]) -> f64 {
    // A sum of nothing is -0 otherwise.
    throughputs.iter().fold(0.0, |sum, throughput| sum + throughput)
}

/// Jain's fairness index: 1 if all throughputs are the same, 1/n if one flow has everything. None
/// without flows or throughput.
pub fn jain(throughputs: &[f64]) -> Option<f64> {
    let sum = efficiency(throughputs);
    let squares: f64 = throughputs.iter().map(|x| x * x).sum();
    (squares > 0.0).then(|| sum * sum / (throughputs.len() as f64 * squares))
}

/// Stability: each flow's standard deviation of the samples of its throughput over their mean,
/// averaged over the flows; 0 is the ideal. None without a flow that has two samples and something
/// sent.
pub fn stability(flows: &[&[f64]]) -> Option<f64> {
    let deviations: Vec<f64> = flows.iter().filter_map(|samples| deviation(samples)).collect();
    (!deviations.is_empty()).then(|| deviations.iter().sum::<f64>() / deviations.len() as f64)
}

/// Sample standard deviation over mean.
fn deviation(samples: &[f64]) -> Option<f64> {
    let count = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / count;
    if samples.len() < 2 || mean <= 0.0 {
        return None;
    }
    let squares: f64 = samples.iter().map(|x| (x - mean) * (x - mean)).sum();
    Some((squares / (count - 1.0)).sqrt() / mean)
}

/// TCP friendliness: the mean throughput of the TCP flows beside UDT, over the mean of all flows
/// when every one of them is TCP; 1 is the ideal, below 1 UDT overruns TCP. None without TCP flows.
pub fn tcp_friendliness(tcp_beside_udt: &[f64], tcp_alone: &[f64]) -> Option<f64> {
    let mean = |x: &[f64]| (!x.is_empty()).then(|| x.iter().sum::<f64>() / x.len() as f64);
    let fair_share = mean(tcp_alone).filter(|share| *share > 0.0)?;
    Some(mean(tcp_beside_udt)? / fair_share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        assert_eq!(efficiency(&[1.0, 2.0]), 3.0);
        assert!(efficiency(&[]).is_sign_positive());
        assert_eq!(jain(&[5.0, 5.0, 5.0]), Some(1.0));
        assert_eq!(jain(&[9.0, 0.0, 0.0]), Some(1.0 / 3.0));
        assert_eq!(jain(&[1.0, 3.0]), Some(16.0 / 20.0));
        assert_eq!((jain(&[]), jain(&[0.0])), (None, None));
        // Samples 1 and 3: mean 2, deviation √2; samples 4 and 4: none.
        assert_eq!(stability(&[&[1.0, 3.0], &[4.0, 4.0]]), Some(2f64.sqrt() / 2.0 / 2.0));
        assert_eq!(stability(&[&[1.0]]), None);
        assert_eq!(tcp_friendliness(&[1.0, 2.0], &[2.0, 4.0, 3.0]), Some(0.5));
        assert_eq!(tcp_friendliness(&[], &[2.0]), None);
    }
}
