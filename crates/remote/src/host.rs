//! Under which addresses a host may be reached.

use std::env;
use std::io::Read;
use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::{AddressFamily, SockaddrLike};

use crate::ssh::SshCommand;

/// The longest time and output of `ssh -G`.
const CONFIGURATION_TIME: Duration = Duration::from_secs(5);
const CONFIGURATION_MOST: u64 = 1 << 20;

/// The addresses at which others may reach this host, best first: the one that the ssh client of
/// this session has reached, then those of all interfaces that are up. Loopback comes last, and only
/// if that client is on this host; link-local addresses of IPv6, which need an interface, never.
pub fn own_addresses() -> Vec<IpAddr> {
    let connection = env::var("SSH_CONNECTION").unwrap_or_default();
    arrange(&connection, &all_addresses())
}

/// Those of the interface of this name, but for link-local ones.
pub fn interface_addresses(name: &str) -> Vec<IpAddr> {
    let mut found = addresses_where(|interface| interface.interface_name == name);
    found.retain(|address| !is_link_local(*address));
    found
}

/// Those of interfaces that are up.
fn all_addresses() -> Vec<IpAddr> {
    addresses_where(|interface| interface.flags.contains(InterfaceFlags::IFF_UP))
}

fn addresses_where(wanted: impl Fn(&InterfaceAddress) -> bool) -> Vec<IpAddr> {
    // Without them, the ssh client still knows one.
    let Ok(interfaces) = getifaddrs() else { return Vec::new() };
    interfaces
        .filter(wanted)
        .filter_map(|interface| {
            let address = interface.address?;
            match address.family()? {
                AddressFamily::Inet => address.as_sockaddr_in().map(|a| a.ip().into()),
                AddressFamily::Inet6 => address.as_sockaddr_in6().map(|a| a.ip().into()),
                _ => None,
            }
        })
        .collect()
}

/// `connection`: client's address and port, server's address and port, as sshd has them.
fn arrange(connection: &str, interfaces: &[IpAddr]) -> Vec<IpAddr> {
    let mut words = connection.split_ascii_whitespace();
    let address = |word: Option<&str>| {
        // An interface's name may follow.
        let word = word?.split('%').next()?;
        word.parse::<IpAddr>().ok().map(|address| address.to_canonical())
    };
    let client = address(words.next());
    let server = address(words.nth(1));
    let near = client.is_some_and(|client| client.is_loopback());
    let (loopback, others): (Vec<IpAddr>, Vec<IpAddr>) = server
        .into_iter()
        .chain(interfaces.iter().copied())
        .filter(|address| !is_link_local(*address) && !address.is_unspecified())
        .partition(IpAddr::is_loopback);
    let loopback = if near { loopback } else { Vec::new() };
    let mut found = Vec::new();
    for address in others.into_iter().chain(loopback) {
        if !found.contains(&address) {
            found.push(address);
        }
    }
    found
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// The name or address that ssh connects to for `host`, which may be an alias of its configuration.
/// None if that cannot be found out; the host itself is the best guess then.
pub fn configured_hostname(command: &SshCommand, host: &str) -> Option<String> {
    let [program, options @ ..] = command.words() else { return None };
    if !command.is_ssh() {
        return None;
    }
    let mut child = Command::new(program)
        .args(options)
        .args(["-G", "--", host])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let stdout = child.stdout.take()?;
    let (told, text) = mpsc::channel();
    let reader = thread::Builder::new().name("farhaul-ssh-G".into()).spawn(move || {
        let mut text = String::new();
        if stdout.take(CONFIGURATION_MOST).read_to_string(&mut text).is_ok() {
            let _ = told.send(text);
        }
    });
    let text = reader.ok().and_then(|_| text.recv_timeout(CONFIGURATION_TIME).ok());
    // What could not be ended is over.
    let _ = child.kill();
    let _ = child.wait();
    hostname(&text?)
}

/// The `hostname` of what `ssh -G` prints.
fn hostname(configuration: &str) -> Option<String> {
    let line = configuration.lines().find_map(|line| line.strip_prefix("hostname "))?;
    let name = line.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    fn arranged(connection: &str, interfaces: &[&str]) -> Vec<String> {
        let interfaces: Vec<_> = interfaces.iter().map(|text| text.parse().unwrap()).collect();
        arrange(connection, &interfaces).iter().map(IpAddr::to_string).collect()
    }

    const INTERFACES: [&str; 5] = ["127.0.0.1", "10.0.0.1", "fe80::1", "::1", "fd00::1"];

    #[test]
    fn the_address_that_ssh_reached_comes_first() {
        let connection = "192.0.2.1 5 203.0.113.9 22";
        assert_eq!(arranged(connection, &INTERFACES), ["203.0.113.9", "10.0.0.1", "fd00::1"]);
        let mapped = "::ffff:192.0.2.1 5 ::ffff:10.0.0.1 22";
        assert_eq!(arranged(mapped, &INTERFACES), ["10.0.0.1", "fd00::1"]);
    }

    #[test]
    fn loopback_is_for_those_on_it() {
        let expected = ["10.0.0.1", "fd00::1", "127.0.0.1", "::1"];
        assert_eq!(arranged("127.0.0.1 5 127.0.0.1 22", &INTERFACES), expected);
        for none in ["", "nonsense", "UNKNOWN 65535 UNKNOWN 65535"] {
            assert_eq!(arranged(none, &INTERFACES), ["10.0.0.1", "fd00::1"], "{none}");
        }
        assert_eq!(arranged("fe80::2%eth0 5 fe80::1%eth0 22", &["fe80::1"]), [""; 0]);
    }

    #[test]
    fn this_host_has_the_addresses_that_the_system_lists() {
        let found = all_addresses();
        assert!(found.iter().any(IpAddr::is_loopback), "{found:?}");
    }

    #[test]
    fn the_hostname_is_in_what_ssh_prints() {
        let text = "user me\nhostname 10.0.0.7\nport 22\nhostname other\n";
        assert_eq!(hostname(text).as_deref(), Some("10.0.0.7"));
        assert_eq!(hostname("user me\nhostname \n"), None);
    }

    #[test]
    fn only_ssh_is_asked_and_failure_is_tolerated() {
        let failing = SshCommand::parse("/no/such/folder/ssh -v").unwrap();
        assert!(failing.is_ssh());
        assert_eq!(configured_hostname(&failing, "host"), None);
        let other = SshCommand::parse("echo hostname x").unwrap();
        assert_eq!(configured_hostname(&other, "host"), None);
    }
}
