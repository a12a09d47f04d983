//! Numbers that nobody can guess from others that they have seen.

use farhaul_base::Rng;
use siphasher::sip::SipHasher24;

/// A keyed hash of a counter.
///
/// Peers see socket IDs and sequence numbers. From some of them the state of a fast generator can be
/// computed, and with it the IDs of other connections and the key of the cookies.
#[derive(Debug)]
pub struct Secrets {
    key: [u64; 2],
    count: u64,
}

impl Secrets {
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        Secrets { key: [rng.next_u64(), rng.next_u64()], count: 0 }
    }

    pub fn next_u64(&mut self) -> u64 {
        self.count += 1;
        SipHasher24::new_with_keys(self.key[0], self.key[1]).hash(&self.count.to_le_bytes())
    }

    /// 31 random bits.
    pub fn next_u31(&mut self) -> u32 {
        (self.next_u64() >> 33) as u32
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_makes_one_series_and_another_seed_another() {
        let series = |seed| {
            let mut secrets = Secrets::new(seed);
            (0..1_000).map(|_| secrets.next_u31()).collect::<Vec<_>>()
        };
        let (one, two) = (series(1), series(2));
        assert_eq!(one, series(1));
        assert_eq!(one.iter().chain(&two).collect::<BTreeSet<_>>().len(), 2_000);
        assert!(one.iter().all(|n| *n < 1 << 31) && one.iter().any(|n| *n >= 1 << 30));
    }
}
