//! A handshake that parses is rebuilt to the same bytes.

#![no_main]

use farhaul_wire::{Handshake, PeerIp};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|payload: &[u8]| {
    let Ok(handshake) = Handshake::parse(payload) else { return };
    assert_eq!(handshake.to_bytes(), payload);
    assert!(handshake.socket_id >> 31 == 0);
    assert_eq!(PeerIp::from(handshake.peer_ip.to_ip(true)), handshake.peer_ip);
    let v4 = PeerIp::from(handshake.peer_ip.to_ip(false)).to_wire();
    assert_eq!(v4[..4], handshake.peer_ip.to_wire()[..4]);
    assert_eq!(v4[4..], [0; 12]);
});
