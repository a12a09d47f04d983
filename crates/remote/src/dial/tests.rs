#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use farhaul_secure::{Identity, Trust};

use super::*;
use crate::secured::{Context, LinkError};

fn dialer(udp: &[&str], tcp: &[&str]) -> Dialer {
    let identity = Arc::new(Identity::generate().unwrap());
    let trust = Trust::Only(identity.public_key());
    let terms = Terms { identity, trust, context: Context::default(), plain: false };
    let parse = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    Dialer::new(DialConfig::new(parse(udp), parse(tcp), terms))
}

fn order(dialer: &Dialer, local: Option<IpAddr>) -> Vec<(String, u128)> {
    let attempts = dialer.attempts(dialer.config.transport, local);
    attempts.iter().map(|a| (a.to_string(), a.after.as_millis())).collect()
}

fn begun(text: &str, after: u128) -> (String, u128) {
    (text.to_owned(), after)
}

#[test]
fn udp_begins_and_tcp_follows() {
    let mut dialer = dialer(&["10.0.0.1:1", "10.0.0.2:1"], &["10.0.0.1:2"]);
    let udp = [begun("UDP to 10.0.0.1:1", 0), begun("UDP to 10.0.0.2:1", 150)];
    let tcp = begun("TCP to 10.0.0.1:2", 1000);
    assert_eq!(order(&dialer, None), [&udp[..], std::slice::from_ref(&tcp)].concat());
    dialer.config.transport = Transport::Udp;
    assert_eq!(order(&dialer, None), udp);
    dialer.config.transport = Transport::Tcp;
    assert_eq!(order(&dialer, None), [begun("TCP to 10.0.0.1:2", 0)]);
}

#[test]
fn each_link_begins_at_its_own_interface() {
    let mut dialer = dialer(&["10.0.0.1:1", "[fd00::1]:1"], &[]);
    dialer.config.bind = ["10.1.0.1", "10.2.0.1"].map(|text| text.parse().unwrap()).to_vec();
    let expected = [
        begun("UDP to 10.0.0.1:1 from 10.2.0.1", 0),
        begun("UDP to 10.0.0.1:1 from 10.1.0.1", 3000),
    ];
    assert_eq!(order(&dialer, Some(dialer.config.bind[1])), expected, "IPv6 is out of reach");
    dialer.config.candidates.remove(0);
    let error = dialer.dial(Duration::from_secs(1), &AtomicBool::new(false)).unwrap_err();
    assert_eq!(error.failure, DialFailure::NoCandidate);
}

#[test]
fn a_failure_is_told_by_who_came_farthest() {
    let attempts =
        dialer(&["10.0.0.1:1", "10.0.0.2:1"], &["10.0.0.1:2"]).attempts(Transport::Auto, None);
    let connect = |kind: io::ErrorKind| LinkError::Connect(kind.into());
    let of = |errors: [LinkError; 3]| {
        DialError::of(&attempts.iter().copied().zip(errors).collect::<Vec<_>>())
    };
    let (silent, refused) = (io::ErrorKind::TimedOut, io::ErrorKind::ConnectionRefused);
    let error = of([connect(silent), connect(silent), connect(silent)]);
    assert_eq!(error.failure, DialFailure::NoAnswer);
    let error = of([connect(silent), connect(silent), connect(refused)]);
    assert_eq!(error.failure, DialFailure::Refused);
    assert!(!error.is_authentication());
    let error = of([connect(silent), LinkError::Refused, connect(refused)]);
    assert!(error.is_authentication());
    let text = error.to_string();
    assert!(text.contains("UDP to 10.0.0.2:1: the peer does not accept"), "{text}");
    assert!(text.contains("TCP to 10.0.0.1:2: connection refused"), "{text}");
    let error = of([connect(silent), LinkError::Plain { here: true }, LinkError::Refused]);
    assert_eq!(error.failure, DialFailure::Plain);
}

#[test]
fn a_stranger_speaks_for_its_own_address_only() {
    let attempts =
        dialer(&["10.0.0.1:1", "10.0.0.2:1"], &["10.0.0.1:2"]).attempts(Transport::Auto, None);
    let of = |errors: [LinkError; 3]| {
        DialError::of(&attempts.iter().copied().zip(errors).collect::<Vec<_>>()).failure
    };
    let key = Identity::generate().unwrap().public_key();
    let stranger = || LinkError::Stranger(key);
    let failed = |kind: io::ErrorKind| LinkError::Connect(kind.into());
    let (silent, refused) = (io::ErrorKind::TimedOut, io::ErrorKind::ConnectionRefused);
    // UDP to .1, UDP to .2, TCP to .1: the peer may be at .2.
    assert_eq!(of([stranger(), failed(silent), failed(silent)]), DialFailure::NoAnswer);
    assert_eq!(of([LinkError::Secret, failed(silent), failed(silent)]), DialFailure::NoAnswer);
    // No place is left where it could be: at .1 is the stranger, at .2 nothing listens.
    assert_eq!(of([failed(silent), failed(refused), stranger()]), DialFailure::NotAuthenticated);
    assert_eq!(of([stranger(), stranger(), failed(silent)]), DialFailure::NotAuthenticated);
    // The peer's own word is final, whatever else is there.
    assert_eq!(of([stranger(), LinkError::Refused, failed(silent)]), DialFailure::Denied);
}

#[test]
fn what_anybody_can_write_is_no_refusal() {
    let attempts = dialer(&["10.0.0.1:1"], &[]).attempts(Transport::Auto, None);
    for error in [LinkError::Alert("AccessDenied".into()), LinkError::Protocol("?".into())] {
        let error = DialError::of(&[(attempts[0], error)]);
        assert_eq!(error.failure, DialFailure::Refused);
        assert!(!error.is_authentication());
    }
}

#[test]
fn names_have_addresses_or_an_error_that_names_them() {
    assert_eq!(resolve("127.0.0.1", 7).unwrap(), ["127.0.0.1:7".parse().unwrap()]);
    let error = resolve("no such host", 7).unwrap_err();
    assert_eq!(error.failure, DialFailure::Name("no such host".into()));
    assert!(error.to_string().starts_with("cannot find the address of 'no such host': "));
}
