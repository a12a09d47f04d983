//! What the kernel lets the root of a user namespace set by rtnetlink only (rtnetlink(7)).

use std::io::{self, Read};
use std::net::IpAddr;

use socket2::{Domain, Protocol, Socket, Type};

/// Header of a message, and of one about a device.
const HEADER_BYTES: usize = 16;
const DEVICE_BYTES: usize = 16;

/// Kinds of attributes of an address, and its flag that no other host is asked whether it has it
/// (rtnetlink(7), linux/if_addr.h).
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_F_NODAD: u8 = 2;

/// Sets how many packets wait in the device `name`, of the calling thread's namespace, until they
/// are read.
pub(super) fn set_queue_length(name: &str, packets: u32) -> io::Result<()> {
    ask(&change_queue_length(name, packets))
}

/// Gives the device with the number `index`, of the calling thread's namespace, an address in a network of
/// `prefix` bits, all of which it then reaches.
pub(super) fn add_address(index: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
    ask(&new_address(index, address, prefix))
}

/// Has the kernel do what the message says.
fn ask(message: &[u8]) -> io::Result<()> {
    let route = Protocol::from(libc::NETLINK_ROUTE);
    let mut socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, Some(route))?;
    socket.send(message)?;
    let mut answer = [0; 4096];
    let length = socket.read(&mut answer)?;
    outcome(&answer[..length])
}

/// The message that asks for it.
fn change_queue_length(name: &str, packets: u32) -> Vec<u8> {
    // All zeros: the device is found by its name, and of its flags none is changed.
    let mut message = vec![0; HEADER_BYTES + DEVICE_BYTES];
    add_attribute(&mut message, libc::IFLA_IFNAME, &[name.as_bytes(), b"\0"].concat());
    add_attribute(&mut message, libc::IFLA_TXQLEN, &packets.to_ne_bytes());
    finish(message, libc::RTM_NEWLINK, 0)
}

fn new_address(index: u32, address: IpAddr, prefix: u8) -> Vec<u8> {
    let (family, octets) = match address {
        IpAddr::V4(address) => (libc::AF_INET, address.octets().to_vec()),
        IpAddr::V6(address) => (libc::AF_INET6, address.octets().to_vec()),
    };
    let mut message = vec![0; HEADER_BYTES];
    message.extend([family as u8, prefix, IFA_F_NODAD, 0]);
    message.extend(index.to_ne_bytes());
    add_attribute(&mut message, IFA_LOCAL, &octets);
    add_attribute(&mut message, IFA_ADDRESS, &octets);
    finish(message, libc::RTM_NEWADDR, libc::NLM_F_CREATE | libc::NLM_F_EXCL)
}

/// The message with its header, which asks for an answer.
fn finish(mut message: Vec<u8>, kind: u16, flags: libc::c_int) -> Vec<u8> {
    let flags = (flags | libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
    let length = message.len() as u32;
    message[0..4].copy_from_slice(&length.to_ne_bytes());
    message[4..6].copy_from_slice(&kind.to_ne_bytes());
    message[6..8].copy_from_slice(&flags.to_ne_bytes());
    message
}

/// Length and kind in 16 bits each, the value, and zeros up to a multiple of four.
fn add_attribute(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = 4 + value.len() as u16;
    message.extend_from_slice(&length.to_ne_bytes());
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(value);
    message.resize(message.len().next_multiple_of(4), 0);
}

/// What an answer says: a number behind the header, zero or a negated error.
fn outcome(answer: &[u8]) -> io::Result<()> {
    let strange = || io::Error::new(io::ErrorKind::InvalidData, "an answer that is none");
    let kind = answer.get(4..6).ok_or_else(strange)?;
    let number = answer.get(HEADER_BYTES..HEADER_BYTES + 4).ok_or_else(strange)?;
    if kind != (libc::NLMSG_ERROR as u16).to_ne_bytes() {
        return Err(strange());
    }
    match i32::from_ne_bytes(number.try_into().map_err(|_| strange())?) {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_as_long_as_it_says() {
        for name in ["a", "wan0", "fifteen-letters"] {
            let message = change_queue_length(name, 20_000);
            assert_eq!(message.len() as u32, u32::from_ne_bytes(message[..4].try_into().unwrap()));
            assert_eq!(message.len() % 4, 0);
            assert!(message.ends_with(&20_000u32.to_ne_bytes()));
        }
    }

    #[test]
    fn an_address_is_four_or_sixteen_bytes() {
        for (address, bytes) in [("10.77.0.1", 4), ("fd77::1", 16)] {
            let message = new_address(7, address.parse().unwrap(), 16);
            assert_eq!(message.len(), HEADER_BYTES + 8 + 2 * (4 + bytes), "{address}");
            assert_eq!(message[20..24], 7u32.to_ne_bytes());
        }
    }

    #[test]
    fn answers_are_understood() {
        let answer = |kind: u16, number: i32| {
            let mut bytes = vec![0; HEADER_BYTES];
            bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
            bytes.extend(number.to_ne_bytes());
            bytes
        };
        assert!(outcome(&answer(libc::NLMSG_ERROR as u16, 0)).is_ok());
        let refused = outcome(&answer(libc::NLMSG_ERROR as u16, -libc::EPERM)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        let strange = [answer(7, 0), vec![], vec![0; 5], answer(2, 0)[..18].to_vec()];
        for bytes in strange {
            assert_eq!(outcome(&bytes).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
    }

    #[test]
    fn the_kernel_understands() {
        let error = set_queue_length("nosuchdevice", 100).unwrap_err();
        // As root it looks for the device; others are refused before.
        let known = [Some(libc::ENODEV), Some(libc::EPERM)];
        assert!(known.contains(&error.raw_os_error()), "{error}");
    }
}
