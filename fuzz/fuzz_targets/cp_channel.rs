//! A control channel survives any bytes, hands over whole messages only, and believes no more
//! confirmations than there were messages.

#![no_main]

use farhaul_mover::transfer::channel::Channel;
use farhaul_mover::transfer::message::Message;
use libfuzzer_sys::fuzz_target;

const SAID: u64 = 3;

fuzz_target!(|bytes: &[u8]| {
    let channel = Channel::default();
    for block in 0..SAID {
        channel.say(&Message::Stored { block });
    }
    let generation = channel.attach(0).expect("a new channel");
    let mut heard = 0;
    let read = channel.read(generation, &mut &bytes[..], &mut |_| {
        heard += 1;
        Ok(true)
    });
    if let Ok(end) = read {
        assert!(end.is_err(), "only a violation ends it before the stream does");
    }
    assert!(heard <= channel.received());
    assert!(channel.received() <= bytes.len() as u64 / 12);
    // What the peer has not confirmed can be said again on another connection, and no more.
    assert!(channel.attach(SAID + 1).is_err());
    assert!(channel.attach(SAID).is_ok());
});
