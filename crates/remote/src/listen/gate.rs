//! How many newcomers there may be that have begun to speak and have not shown yet who they are.
//!
//! Each takes a thread and some arithmetic. Places are shared by source ([`Crowd`]), and sources from
//! which a peer has authenticated lately have places of their own, so that strangers cannot keep out those
//! who were here before. Before a thread is begun, a bucket of tokens by source, and one for all strangers,
//! sheds what comes too fast.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use farhaul::newcomers::{Crowd, Recent, Source, Tally};

/// Places of strangers, and as many of those that have authenticated lately.
const PLACES: usize = 64;
/// How long a source counts as one that has authenticated lately: a host that is cut off comes back
/// within a day.
const LATELY: Duration = Duration::from_secs(24 * 3600);
/// Sources that are remembered, of either kind.
const SOURCES: usize = 4096;
/// What one source may begin: a copy with 32 connections at once, and again a second later.
const OF_SOURCE: Allowance = Allowance { burst: 64.0, rate: 32.0 };
/// The same for a source that has authenticated lately: many clients may share an address.
const OF_KNOWN: Allowance = Allowance { burst: 256.0, rate: 128.0 };
/// What all strangers together may begin. A handshake costs half a millisecond: a quarter of a processor.
const OF_STRANGERS: Allowance = Allowance { burst: 256.0, rate: 512.0 };

/// What a bucket holds, and how many tokens it gets a second.
#[derive(Clone, Copy)]
struct Allowance {
    burst: f64,
    rate: f64,
}

/// A bucket of tokens.
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Bucket {
    fn full(now: Instant, allowance: Allowance) -> Bucket {
        Bucket { tokens: allowance.burst, at: now }
    }

    /// Takes a token if there is one.
    fn take(&mut self, now: Instant, allowance: Allowance) -> bool {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = (self.tokens + passed * allowance.rate).min(allowance.burst);
        self.at = now;
        let some = self.tokens >= 1.0;
        if some {
            self.tokens -= 1.0;
        }
        some
    }
}

/// A newcomer's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    source: Source,
    known: bool,
    number: u64,
}

/// What becomes of a newcomer.
pub enum Entered<T> {
    /// It has this place; another had to go for it.
    In(Place, Option<T>),
    /// Too many have come, from its source or of all strangers.
    Shed(T),
}

/// The places, and what is remembered of sources.
pub struct Gate<T> {
    strangers: Crowd<T>,
    known: Crowd<T>,
    /// When a peer from there has last authenticated.
    lately: Recent<Instant>,
    buckets: Recent<Bucket>,
    all_strangers: Bucket,
    tally: Tally,
}

impl<T> Gate<T> {
    pub fn new(now: Instant, seed: u64) -> Self {
        Gate {
            strangers: Crowd::new(PLACES, seed),
            known: Crowd::new(PLACES, !seed),
            lately: Recent::new(SOURCES),
            buckets: Recent::new(SOURCES),
            all_strangers: Bucket::full(now, OF_STRANGERS),
            tally: Tally::default(),
        }
    }

    /// Whether a peer from there has authenticated lately.
    pub fn is_known(&self, source: Source, now: Instant) -> bool {
        let last = self.lately.peek(source);
        last.is_some_and(|last| now.saturating_duration_since(*last) < LATELY)
    }

    /// One that has come from `address`.
    pub fn enter(&mut self, address: SocketAddr, newcomer: T, now: Instant) -> Entered<T> {
        let source = Source::of(address);
        let known = self.is_known(source, now);
        let allowance = if known { OF_KNOWN } else { OF_SOURCE };
        let bucket = self.buckets.get_or(source, || Bucket::full(now, allowance));
        let may = bucket.take(now, allowance);
        if !may || !(known || self.all_strangers.take(now, OF_STRANGERS)) {
            self.tally.add(source, 1);
            return Entered::Shed(newcomer);
        }
        let crowd = if known { &mut self.known } else { &mut self.strangers };
        let (number, gone) = crowd.enter(source, newcomer);
        let gone = gone.map(|(source, gone)| {
            self.tally.add(source, 1);
            gone
        });
        Entered::In(Place { source, known, number }, gone)
    }

    /// It is a newcomer no more; false if it had to go meanwhile.
    pub fn leave(&mut self, place: Place, authenticated: bool, now: Instant) -> bool {
        let crowd = if place.known { &mut self.known } else { &mut self.strangers };
        let in_time = crowd.leave(place.number).is_some();
        if in_time && authenticated {
            *self.lately.get_or(place.source, || now) = now;
        } else if in_time {
            self.tally.add(place.source, 1);
        }
        in_time
    }

    /// All that are in.
    pub fn newcomers(&self) -> impl Iterator<Item = &T> {
        self.strangers.iter().chain(self.known.iter()).map(|(_, newcomer)| newcomer)
    }

    /// `count` of this source came to nothing elsewhere.
    pub fn count(&mut self, source: Source, count: u64) {
        self.tally.add(source, count);
    }

    /// Those that came to nothing since this was last asked.
    pub fn take_tally(&mut self) -> Tally {
        core::mem::take(&mut self.tally)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: u32) -> SocketAddr {
        (std::net::Ipv4Addr::from(n), 1).into()
    }

    #[test]
    fn a_source_that_floods_is_shed_and_its_own_go() {
        let begun = Instant::now();
        let mut gate = Gate::new(begun, 1);
        let Entered::In(honest, None) = gate.enter(address(9), 0, begun) else {
            panic!("it is in")
        };
        let mut threads = 0;
        for n in 0..30_000u32 {
            let now = begun + Duration::from_secs(1) * n / 30_000;
            threads += u32::from(matches!(gate.enter(address(1), n, now), Entered::In(..)));
        }
        assert!((90..=97).contains(&threads), "{threads}");
        assert!(gate.leave(honest, true, begun));
        assert_eq!(gate.newcomers().count(), PLACES - 1);
        let tally = gate.take_tally();
        assert_eq!(tally.total, 30_000 - PLACES as u64 + 1);
        assert_eq!(tally.sources.len(), 1);
    }

    #[test]
    fn a_thousand_strangers_do_not_keep_out_who_was_here_before() {
        let begun = Instant::now();
        let mut gate = Gate::new(begun, 1);
        let Entered::In(place, _) = gate.enter(address(5_000), 0, begun) else {
            panic!("it is in")
        };
        assert!(gate.leave(place, true, begun));
        let (mut threads, mut places) = (0, Vec::new());
        for n in 0..30_000u32 {
            let now = begun + Duration::from_secs(1) * n / 30_000;
            threads += u32::from(matches!(gate.enter(address(n % 1_000), n, now), Entered::In(..)));
            if n % 3_000 == 0 {
                let Entered::In(place, None) = gate.enter(address(5_000), n, now) else {
                    panic!("it is in")
                };
                places.push(place);
            }
        }
        assert!(threads < 800, "{threads}");
        let later = begun + Duration::from_secs(1);
        assert!(places.into_iter().all(|place| gate.leave(place, true, later)));
        assert!(gate.buckets.len() <= SOURCES && gate.lately.len() == 1);
        assert!(!gate.is_known(Source::of(address(5_000)), later + LATELY));
    }

    #[test]
    fn a_network_of_ipv6_is_one_source() {
        let begun = Instant::now();
        let mut gate = Gate::new(begun, 1);
        let of = |network: u16, host: u16| -> SocketAddr {
            (std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, network, 0, 0, 0, host), 1).into()
        };
        let mut begin = |network, hosts: u16| {
            let all = (0..hosts).map(|n| gate.enter(of(network, n), n, begun));
            all.filter(|entered| matches!(entered, Entered::In(..))).count()
        };
        assert_eq!(begin(1, 3_000), OF_SOURCE.burst as usize);
        assert_eq!(begin(2, 1), 1);
        assert_eq!(gate.take_tally().sources.len(), 1);
    }
}
