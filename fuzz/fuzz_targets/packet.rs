//! A datagram that parses can be rebuilt, and the rebuilt one means the same.

#![no_main]

use farhaul_wire::{Control, ControlPacket, Packet, dest, is_control};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|datagram: &[u8]| {
    let Ok(packet) = Packet::parse(datagram) else { return };
    let (control, id) = match packet {
        Packet::Data(header, _) => (false, header.dest),
        Packet::Control(packet) => (true, packet.dest),
    };
    assert_eq!((is_control(datagram), dest(datagram)), (control, Some(id)));

    // Rebuilding adds 4 bytes of padding at most; where there is a shorter form, it drops bytes.
    let mut out = vec![0; datagram.len().max(20)];
    let len = packet.write(&mut out).expect("room for the datagram and padding is enough");
    let again = Packet::parse(&out[..len]).expect("what was written parses");
    assert_eq!(again, as_it_arrives(packet));

    // What was written once is written the same for ever.
    let mut last = vec![0; len];
    assert_eq!(again.write(&mut last), Some(len));
    assert_eq!(out[..len], last);
});

/// An empty user payload arrives as padding; everything else as it was.
fn as_it_arrives(mut packet: Packet<'_>) -> Packet<'_> {
    if let Packet::Control(ControlPacket { body: Control::User { payload, .. }, .. }) = &mut packet
        && payload.is_empty()
    {
        *payload = &[0; 4];
    }
    packet
}
