//! How many newcomers there may be that have begun to speak and have not shown yet who they are.
//!
//! Each takes a thread and some arithmetic. Threads are counted until they have ended, so that there are never
//! more than [`THREADS`] of either kind and [`THREADS_OF_SOURCE`]. Places are shared by source ([`Crowd`]), and sources from
//! which a peer has authenticated lately have places of their own, so that strangers cannot keep out those
//! who were here before. Before a thread is begun, a bucket of tokens by source, and one for all strangers,
//! sheds what comes too fast.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use farhaul::newcomers::{Crowd, Recent, Source, Tally};

/// Places of strangers, and as many of those that have authenticated lately.
const PLACES: usize = 64;
/// Of these, those of one source.
const PLACES_OF_SOURCE: usize = 28;
/// Threads of strangers, and as many of the others: those that had to go end in a moment, and until then there
/// are a few more than places.
const THREADS: usize = PLACES + 8;
/// Threads of one source, of both kinds together.
const THREADS_OF_SOURCE: usize = PLACES_OF_SOURCE + 4;
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
    /// Threads of strangers and of the others that have not ended.
    threads: [usize; 2],
    /// The same by source.
    threads_of: BTreeMap<Source, usize>,
    /// When a peer from there has last authenticated.
    lately: Recent<Instant>,
    buckets: Recent<Bucket>,
    all_strangers: Bucket,
    tally: Tally,
}

impl<T> Gate<T> {
    pub fn new(now: Instant, seed: u64) -> Self {
        Gate {
            strangers: Crowd::new(PLACES, seed).of_each_source(PLACES_OF_SOURCE),
            known: Crowd::new(PLACES, !seed).of_each_source(PLACES_OF_SOURCE),
            threads: [0; 2],
            threads_of: BTreeMap::new(),
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
        let threads = &mut self.threads[usize::from(known)];
        let own = self.threads_of.get(&source).copied().unwrap_or(0);
        let room = *threads < THREADS && own < THREADS_OF_SOURCE;
        if !(may && room && (known || self.all_strangers.take(now, OF_STRANGERS))) {
            self.tally.add(source, 1);
            return Entered::Shed(newcomer);
        }
        *threads += 1;
        self.threads_of.insert(source, own + 1);
        let crowd = if known { &mut self.known } else { &mut self.strangers };
        let (number, gone) = crowd.enter(source, newcomer);
        let gone = gone.map(|(source, gone)| {
            self.tally.add(source, 1);
            gone
        });
        Entered::In(Place { source, known, number }, gone)
    }

    /// It is a newcomer no more; false if it had to go meanwhile. To be called once for each that is in, also
    /// for those that had to go: its thread ends, or is counted elsewhere.
    pub fn leave(&mut self, place: Place, authenticated: bool, now: Instant) -> bool {
        let threads = &mut self.threads[usize::from(place.known)];
        *threads = threads.saturating_sub(1);
        match self.threads_of.get_mut(&place.source) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(self.threads_of.remove(&place.source)),
        }
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

    /// A gate, and the threads of those that are in.
    struct Threads {
        gate: Gate<u32>,
        places: BTreeMap<u32, Place>,
        most: usize,
        begun: usize,
    }

    impl Threads {
        fn new(begun: Instant) -> Self {
            Threads { gate: Gate::new(begun, 1), places: BTreeMap::new(), most: 0, begun: 0 }
        }

        /// A newcomer; one that has to go for it ends at once.
        fn enter(&mut self, from: SocketAddr, number: u32, now: Instant) -> Option<Place> {
            let Entered::In(place, gone) = self.gate.enter(from, number, now) else { return None };
            self.begun += 1;
            self.places.insert(number, place);
            self.most = self.most.max(self.places.len());
            if let Some(gone) = gone.and_then(|gone| self.places.remove(&gone)) {
                assert!(!self.gate.leave(gone, false, now), "it had to go");
            }
            Some(place)
        }
    }

    #[test]
    fn a_source_that_floods_is_shed_and_its_own_go() {
        let begun = Instant::now();
        let mut all = Threads::new(begun);
        let honest = all.enter(address(9), u32::MAX, begun).expect("it is in");
        for n in 0..30_000 {
            let now = begun + Duration::from_secs(1) * n / 30_000;
            all.enter(address(1), n, now);
        }
        assert!((91..=98).contains(&all.begun), "{}", all.begun);
        assert!(all.gate.leave(honest, true, begun));
        assert_eq!(all.gate.newcomers().count(), PLACES_OF_SOURCE);
        let tally = all.gate.take_tally();
        assert_eq!(tally.total, 30_000 - PLACES_OF_SOURCE as u64);
        assert_eq!(tally.sources.len(), 1);
    }

    #[test]
    fn threads_are_bounded_also_where_those_that_had_to_go_do_not_end() {
        let begun = Instant::now();
        let mut gate = Gate::new(begun, 1);
        let mut places = Vec::new();
        for n in 0..3_000 {
            let now = begun + Duration::from_secs(1) * n / 3_000;
            if let Entered::In(place, _) = gate.enter(address(1 + n % 2), n, now) {
                places.push(place);
            }
        }
        assert_eq!(places.len(), 2 * THREADS_OF_SOURCE);
        for n in 0..3_000 {
            if let Entered::In(place, _) = gate.enter(address(n), n, begun) {
                places.push(place);
            }
        }
        assert_eq!(places.len(), THREADS);
        for place in places {
            gate.leave(place, false, begun);
        }
        assert_eq!((gate.threads, gate.threads_of.len()), ([0; 2], 0));
        assert_eq!(gate.newcomers().count(), 0);
    }

    #[test]
    fn a_thousand_strangers_do_not_keep_out_who_was_here_before() {
        let begun = Instant::now();
        let mut all = Threads::new(begun);
        let place = all.enter(address(5_000), u32::MAX, begun).expect("it is in");
        assert!(all.gate.leave(place, true, begun));
        all.places.clear();
        let mut places = Vec::new();
        for n in 0..30_000 {
            let now = begun + Duration::from_secs(1) * n / 30_000;
            all.enter(address(n % 1_000), n, now);
            if n % 3_000 == 0 {
                places.push(all.enter(address(5_000), 1_000_000 + n, now).expect("it is in"));
            }
        }
        assert!(all.begun < 811, "{}", all.begun);
        assert!(all.most <= PLACES + 1 + places.len(), "{}", all.most);
        let later = begun + Duration::from_secs(1);
        assert!(places.into_iter().all(|place| all.gate.leave(place, true, later)));
        assert!(all.gate.buckets.len() <= SOURCES && all.gate.lately.len() == 1);
        assert!(!all.gate.is_known(Source::of(address(5_000)), later + LATELY));
    }

    #[test]
    fn a_network_of_ipv6_is_one_source() {
        let begun = Instant::now();
        let mut all = Threads::new(begun);
        let of = |network: u16, host: u16| -> SocketAddr {
            (std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, network, 0, 0, 0, host), 1).into()
        };
        let mut begin = |network, hosts: u16| {
            let number = |host| u32::from(network) << 16 | u32::from(host);
            let all = (0..hosts).map(|n| all.enter(of(network, n), number(n), begun));
            all.filter(Option::is_some).count()
        };
        assert_eq!(begin(1, 3_000), OF_SOURCE.burst as usize);
        assert_eq!(begin(2, 1), 1);
        assert_eq!(all.gate.take_tally().sources.len(), 1);
    }
}
