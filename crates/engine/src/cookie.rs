//! Cookies: a listener's proof, without state, that a client receives at the address it claims.

use core::hash::{Hash, Hasher};
use core::net::SocketAddr;
use core::time::Duration;

use farhaul_base::Time;
use farhaul_wire::Handshake;
use siphasher::sip::SipHasher24;

/// A cookie is good in the period it was made in and in the next.
const PERIOD: Duration = Duration::from_secs(60);
/// No cookie is good for longer.
pub const COOKIE_LIFE: Duration = Duration::from_secs(2 * PERIOD.as_secs());

/// Makes and checks cookies with a secret key that changes each period.
#[derive(Debug)]
pub struct CookieJar {
    secret: [u64; 2],
    started: Time,
}

impl CookieJar {
    pub fn new(now: Time, secret: [u64; 2]) -> Self {
        CookieJar { secret, started: now }
    }

    /// The cookie for the client that sent `request` from `from`.
    pub fn make(&self, now: Time, from: SocketAddr, request: &Handshake) -> u32 {
        self.of_period(self.period(now), from, request)
    }

    /// Whether the cookie that `request` returns is this period's or the last's.
    pub fn check(&self, now: Time, from: SocketAddr, request: &Handshake) -> bool {
        let period = self.period(now);
        let good = |p| self.of_period(p, from, request) == request.cookie;
        good(period) || period.checked_sub(1).is_some_and(good)
    }

    fn period(&self, now: Time) -> u64 {
        (now - self.started).as_secs() / PERIOD.as_secs()
    }

    fn of_period(&self, period: u64, from: SocketAddr, request: &Handshake) -> u32 {
        // The period's own key, so that none is in use for long.
        let mut hasher = SipHasher24::new_with_keys(self.secret[0], self.secret[1]);
        period.hash(&mut hasher);
        let mut hasher = SipHasher24::new_with_keys(hasher.finish(), self.secret[1]);
        from.ip().to_canonical().hash(&mut hasher);
        (from.port(), request.isn.value(), request.socket_id).hash(&mut hasher);
        // Zero means "no cookie" in a client's first packet.
        (hasher.finish() as u32).max(1)
    }
}

#[cfg(test)]
mod tests {
    use farhaul_wire::{PeerIp, Request, Seq, SocketType};

    use super::*;

    fn request(cookie: u32) -> Handshake {
        Handshake {
            version: 4,
            socket_type: SocketType::Stream,
            isn: Seq::new(77),
            mss: 1500,
            flight_flag: 8192,
            request: Request::Conclusion,
            socket_id: 5,
            cookie,
            peer_ip: PeerIp::NONE,
        }
    }

    #[test]
    fn good_for_this_period_and_the_next_and_no_one_else() {
        let from: SocketAddr = "10.0.0.1:4000".parse().unwrap();
        let jar = CookieJar::new(Time::ZERO, [1, 2]);
        let made_at = Time::from_secs(59);
        let good = request(jar.make(made_at, from, &request(0)));
        assert!(jar.check(made_at, from, &good));
        assert!(jar.check(Time::from_secs(119), from, &good));
        assert!(!jar.check(Time::from_secs(120), from, &good));
        assert!(!jar.check(made_at, "10.0.0.1:4001".parse().unwrap(), &good));
        assert!(!jar.check(made_at, "10.0.0.2:4000".parse().unwrap(), &good));
        assert!(!jar.check(made_at, from, &Handshake { socket_id: 6, ..good }));
        assert!(!jar.check(made_at, from, &request(good.cookie ^ 1)));
        let other = CookieJar::new(Time::ZERO, [1, 3]);
        assert!(!other.check(made_at, from, &good));
    }
}
