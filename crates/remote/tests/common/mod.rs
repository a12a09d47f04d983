//! What tests of links share.

#![allow(dead_code, reason = "each test program uses a part")]

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use farhaul_remote::{
    Context, DialConfig, DialError, Dialer, Link, ListenConfig, Listening, Terms,
};
use farhaul_secure::{Identity, Trust};

/// Longer than anything takes that works.
pub const TIME: Duration = Duration::from_secs(20);

/// Terms of two sides that trust each other.
pub fn two(plain: bool) -> (Terms, Terms) {
    let [near, far] = [0, 1].map(|_| Arc::new(Identity::generate().expect("a key")));
    let terms = |own: &Arc<Identity>, other: &Identity| Terms {
        identity: Arc::clone(own),
        trust: Trust::Only(other.public_key()),
        context: Context::new(b"a secret and a session".to_vec()),
        plain,
    };
    (terms(&near, &far), terms(&far, &near))
}

/// As `terms`, of another side.
pub fn other_terms(terms: &Terms) -> Terms {
    Terms { identity: Arc::new(Identity::generate().expect("a key")), ..terms.clone() }
}

/// A listener, and the links that come.
pub fn listen(terms: Terms) -> (Listening, Receiver<Link>) {
    let (to, links) = mpsc::channel();
    let deliver = move |link| drop(to.send(link));
    (Listening::bind(&ListenConfig::new(terms), deliver).expect("ports"), links)
}

/// How to dial it over loopback.
pub fn here(listening: &Listening, terms: Terms) -> DialConfig {
    let at =
        |port: Option<u16>| port.map(|port| ([127, 0, 0, 1], port).into()).into_iter().collect();
    DialConfig::new(at(listening.udp_port()), at(listening.tcp_port()), terms)
}

/// With time enough.
pub fn dial(dialer: &Dialer) -> Result<Link, DialError> {
    dialer.dial(TIME, &AtomicBool::new(false))
}
