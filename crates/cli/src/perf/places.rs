//! How many connections to a listener are heard at the same time, and how many of them are of one source.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Connections that are heard or wait to be taken, at most; more stay with the listener, which answers no more
/// than it has room for. Enough for all streams of one test and as many strangers.
const MOST: usize = 512;
/// And so many of one source: half, so that a host that opens connections and says nothing leaves room for others.
const MOST_OF_SOURCE: usize = MOST / 2;

#[derive(Default)]
pub struct Places {
    taken: Mutex<Taken>,
    freed: Condvar,
}

#[derive(Default)]
struct Taken {
    all: usize,
    of: HashMap<IpAddr, usize>,
}

/// A connection's place, free again when it is dropped.
pub struct Place {
    places: Arc<Places>,
    source: Option<IpAddr>,
}

impl Places {
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a place and takes it.
    pub fn take(this: &Arc<Self>) -> Place {
        let free = this.freed.wait_while(this.taken(), |taken| taken.all >= MOST);
        free.unwrap_or_else(PoisonError::into_inner).all += 1;
        Place { places: Arc::clone(this), source: None }
    }
}

impl Place {
    /// Gives the place to a connection from `peer`; false: its source has as many as one may have.
    pub fn give(&mut self, peer: IpAddr) -> bool {
        let source = source(peer);
        let mut taken = self.places.taken();
        let has = taken.of.entry(source).or_default();
        let room = *has < MOST_OF_SOURCE;
        if room {
            *has += 1;
            drop(taken);
            self.source = Some(source);
        }
        room
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        taken.all -= 1;
        if let Some(source) = self.source
            && let Some(has) = taken.of.get_mut(&source)
        {
            *has -= 1;
            if *has == 0 {
                taken.of.remove(&source);
            }
        }
        self.places.freed.notify_one();
    }
}

/// What one host can send from: an IPv4 address, or a /64 of IPv6, of which a host has all addresses (RFC 4291 2.5.1).
fn source(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(four) => four.into(),
        IpAddr::V6(six) => {
            let [a, b, c, d, ..] = six.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(places: &Arc<Places>, peer: &str) -> Option<Place> {
        let mut place = Places::take(places);
        place.give(peer.parse().expect("an address")).then_some(place)
    }

    #[test]
    fn one_source_leaves_room_for_another() {
        let places = Arc::default();
        let mut held: Vec<_> = (0..MOST_OF_SOURCE).map(|_| given(&places, "10.0.0.1")).collect();
        assert!(held.iter().all(Option::is_some));
        assert!(given(&places, "10.0.0.1").is_none());
        assert!(given(&places, "::ffff:10.0.0.1").is_none());
        assert!(given(&places, "10.0.0.2").is_some());
        held.pop();
        assert!(given(&places, "10.0.0.1").is_some());
        drop(held);
        let taken = places.taken();
        assert_eq!((taken.all, taken.of.len()), (0, 0));
    }

    #[test]
    fn all_addresses_of_a_network_of_ipv6_are_one_source() {
        assert_eq!(
            source("2001:db8::1".parse().unwrap()),
            source("2001:db8::2:3".parse().unwrap())
        );
        assert_ne!(
            source("2001:db8::1".parse().unwrap()),
            source("2001:db8:0:1::1".parse().unwrap())
        );
    }
}
