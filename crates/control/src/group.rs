//! Group control: several connections of a host under one hand (gu05 §5.3.5).

use core::fmt::Debug;
use core::net::IpAddr;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::governor::made;
use crate::{Law, Make, Spec};

/// What several connections of one host have in common. Each that joins gets a law of its own,
/// which shares with the others whatever the group likes to share.
pub trait GroupControl: Debug + Send {
    /// A connection to `peer` begins: the law that is to govern it. The law's
    /// [`Law::close`] tells that it leaves. `seed` feeds whatever randomness it uses.
    fn join(&mut self, peer: IpAddr, seed: u64) -> Box<dyn Law>;
}

/// The groups of a host: connections with the same law and the same parameters are together. What
/// is cloned is the same.
#[derive(Clone, Debug, Default)]
pub struct Groups(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    groups: Vec<(Spec, Box<dyn GroupControl>)>,
    /// Other addresses of peers, and the one by which each peer is known.
    addresses: BTreeMap<IpAddr, IpAddr>,
}

impl Groups {
    /// `address` is another one of the peer `host`: connections to both are to one host.
    pub fn add_address(&self, address: IpAddr, host: IpAddr) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.addresses.insert(address, host);
    }

    /// Makes the law for a connection to `peer`.
    pub fn build(&self, spec: &Spec, peer: IpAddr, seed: u64) -> Box<dyn Law> {
        let Make::Group(make) = spec.info().make else { return spec.build(seed) };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Known { groups, addresses } = &mut *known;
        let peer = addresses.get(&peer).copied().unwrap_or(peer);
        made(|| {
            let index = groups.iter().position(|(other, _)| other == spec).unwrap_or_else(|| {
                groups.push((spec.clone(), make(spec.values())));
                groups.len() - 1
            });
            groups[index].1.join(peer, seed)
        })
    }
}

/// Divides `capacity` among `demands` so that none gets more than it wants, and nobody who gets
/// less than that could be given more but at the cost of one who has no more than he has: max-min
/// fairness, by filling up from the smallest demand. A demand may be infinite.
pub fn max_min(capacity: f64, demands: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..demands.len()).collect();
    order.sort_by(|a, b| demands[*a].total_cmp(&demands[*b]));
    let mut shares = vec![0.0; demands.len()];
    let mut left = capacity.max(0.0);
    for (nth, index) in order.iter().enumerate() {
        let equal = left / (demands.len() - nth) as f64;
        shares[*index] = demands[*index].clamp(0.0, equal);
        left -= shares[*index];
    }
    shares
}

#[cfg(test)]
mod tests {
    use farhaul_base::Rng;

    use super::*;

    #[test]
    fn small_demands_are_met_and_the_rest_is_divided() {
        assert_eq!(max_min(10.0, &[2.0, 8.0, 10.0]), [2.0, 4.0, 4.0]);
        assert_eq!(max_min(10.0, &[f64::INFINITY; 4]), [2.5; 4]);
        assert_eq!(max_min(10.0, &[1.0, 2.0]), [1.0, 2.0], "nobody gets what he does not want");
        assert_eq!(max_min(0.0, &[1.0]), [0.0]);
        assert_eq!(max_min(5.0, &[]), Vec::<f64>::new());
    }

    #[test]
    fn what_max_min_fairness_promises() {
        let mut rng = Rng::new(1);
        for _ in 0..1_000 {
            let capacity = rng.unit() * 100.0;
            let count = 1 + rng.below(20) as usize;
            let mut demands: Vec<f64> = (0..count).map(|_| rng.unit() * 20.0).collect();
            let shares = max_min(capacity, &demands);
            let (given, wanted): (f64, f64) = (shares.iter().sum(), demands.iter().sum());
            assert!(given <= capacity * (1.0 + 1e-12));
            assert!((given - capacity.min(wanted)).abs() < 1e-9);
            let most = shares.iter().fold(0.0, |a: f64, b| a.max(*b));
            for (share, demand) in shares.iter().zip(&demands) {
                assert!(*share <= *demand);
                assert!(*share == *demand || (share - most).abs() < 1e-9);
            }
            // Whoever asks first has nothing of it.
            demands.reverse();
            let turned = max_min(capacity, &demands);
            assert!(shares.iter().zip(turned.iter().rev()).all(|(a, b)| (a - b).abs() < 1e-9));
        }
    }
}
