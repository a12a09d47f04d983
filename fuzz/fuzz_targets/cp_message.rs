//! A control message that decodes is the same when it is encoded and decoded again.

#![no_main]

use farhaul_mover::transfer::message::{MAX_MESSAGE, Message};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(message) = Message::decode(bytes) else { return };
    let mut again = Vec::new();
    message.encode(&mut again);
    assert!(again.len() <= bytes.len() + MAX_MESSAGE);
    assert_eq!(Message::decode(&again), Ok(message));
});
