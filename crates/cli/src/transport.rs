//! Options that every command with a connection takes.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use farhaul::{BufferSizes, Endpoint, Law, Options};

use crate::exit::{Failed, Usage};
use crate::units;

/// The law where `--cc` chooses none: docs/default-law.md tells why.
pub const DEFAULT_LAW: &str = "bbr";

/// Transport options.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Transport options")]
pub struct TransportArgs {
    /// Congestion control law for what this side sends, with parameters; `farhaul cc list` lists
    /// them. Laws of the receiver, such as gtp, want to be chosen on both sides
    #[arg(long, value_name = "NAME[:KEY=VALUE,…]", default_value = DEFAULT_LAW)]
    pub cc: Law,
    /// Maximum segment size, bytes: the MTU of the path
    #[arg(long, value_name = "BYTES", default_value_t = 1500)]
    pub mss: u32,
    /// Send at most so fast, headers included
    #[arg(long, value_name = "RATE", value_parser = units::rate)]
    pub max_bandwidth: Option<u64>,
    /// Memory for received data that waits to be read
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub receive_memory: Option<u64>,
    /// Memory for data that is not acknowledged yet
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub send_memory: Option<u64>,
    /// How long to wait at the end until everything is acknowledged
    #[arg(long, value_name = "TIME", value_parser = units::time)]
    pub linger: Option<Duration>,
    /// How long to try to connect
    #[arg(long, value_name = "TIME", value_parser = units::time)]
    pub connect_timeout: Option<Duration>,
    /// Silence of the peer after which it counts as gone
    #[arg(long, value_name = "TIME", value_parser = units::time)]
    pub peer_timeout: Option<Duration>,
    /// Do without the kernel's segmentation and receive offload
    #[arg(long)]
    pub no_offload: bool,
}

impl TransportArgs {
    /// The options of the library.
    pub fn options(&self) -> Options {
        let mut options =
            Options::new().law(self.cc.clone()).mss(self.mss).offload(!self.no_offload);
        if let Some(rate) = self.max_bandwidth {
            options = options.max_bandwidth(rate);
        }
        if let Some(bytes) = self.receive_memory {
            options = options.receive_memory(bytes as usize);
        }
        if let Some(bytes) = self.send_memory {
            options = options.send_memory(bytes as usize);
        }
        if let Some(time) = self.linger {
            options = options.linger(time);
        }
        if let Some(time) = self.connect_timeout {
            options = options.connect_timeout(time);
        }
        if let Some(time) = self.peer_timeout {
            options = options.peer_timeout(time);
        }
        options
    }
}

/// The address that `text` names: `HOST:PORT`, `[V6]:PORT`, or `:PORT` and `PORT` for `default`.
///
/// # Errors
/// [`Usage`] if it is no address; [`Failed`] if it is one and its name cannot be resolved.
pub fn resolve(text: &str, default: &str) -> Result<SocketAddr> {
    let full = match text.strip_prefix(':') {
        Some(port) => format!("{default}:{port}"),
        None if text.parse::<u16>().is_ok() => format!("{default}:{text}"),
        None => text.to_owned(),
    };
    if let Ok(addr) = full.parse() {
        return Ok(addr);
    }
    let malformed = || Usage(format!("'{text}' is not an address; write HOST:PORT"));
    let (host, port) = full.rsplit_once(':').ok_or_else(malformed)?;
    let port: u16 = port.parse().map_err(|_| malformed())?;
    // The system takes some forms of numbers that are no names, such as 127.1.
    match (host, port).to_socket_addrs() {
        Ok(mut found) => found.next().ok_or_else(|| unknown(host, "it has no address")),
        Err(_) if !is_name(host) => Err(malformed().into()),
        Err(error) => Err(unknown(host, &error.to_string())),
    }
}

fn unknown(host: &str, why: &str) -> anyhow::Error {
    let message = format!("cannot find the address of '{host}': {why}");
    Failed { code: 1, message }.into()
}

/// Whether `host` may be the name of a host: labels of letters, digits and hyphens (RFC 1123, 2.1),
/// or of anything outside ASCII. The last is not a number, or it would be an IPv4 address.
fn is_name(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_') || !c.is_ascii();
    let label = |label: &str| (1..=63).contains(&label.len()) && label.chars().all(fits);
    let number = |label: &str| label.chars().all(|c| c.is_ascii_digit());
    host.split('.').all(label) && !host.split('.').next_back().is_some_and(number)
}

/// Checks before anything is sent that a socket at `bind` can reach `peer`.
///
/// The wildcard address of IPv6 reaches IPv4 too: its socket takes both families.
///
/// # Errors
/// [`Usage`] if the peer's port is 0, or the two addresses are of different families.
pub(crate) fn check_peer(peer: SocketAddr, bind: Option<SocketAddr>) -> Result<()> {
    if peer.port() == 0 {
        return Err(Usage(format!("{peer}: nobody listens at port 0")).into());
    }
    let Some(bind) = bind else { return Ok(()) };
    let reaches = match (bind.ip(), peer.ip()) {
        (IpAddr::V6(bind), IpAddr::V4(_)) => {
            bind.is_unspecified() || bind.to_ipv4_mapped().is_some()
        }
        (IpAddr::V4(_), IpAddr::V6(peer)) => peer.to_ipv4_mapped().is_some(),
        (IpAddr::V6(bind), IpAddr::V6(peer)) => {
            // A mapped address is one of IPv4, whatever it is written as.
            bind.is_unspecified()
                || bind.to_ipv4_mapped().is_some() == peer.to_ipv4_mapped().is_some()
        }
        (IpAddr::V4(_), IpAddr::V4(_)) => true,
    };
    if reaches {
        return Ok(());
    }
    let message = format!("{peer} cannot be reached from {bind}: one is IPv4, the other IPv6");
    Err(Usage(message).into())
}

/// Says once, where it matters, that the kernel grants only small buffers.
pub fn report_kernel_buffers(endpoint: &Endpoint) {
    if let Some(report) = small_buffers(endpoint.kernel_buffers()) {
        tell!("farhaul: {report}");
    }
}

/// What to say of buffers that are too small; a quarter of what is asked for is plenty on any path
/// that this program was seen to fill.
fn small_buffers(buffers: BufferSizes) -> Option<String> {
    (buffers.limited && buffers.receive < (2 << 20)).then(|| {
        format!(
            "the kernel grants a receive buffer of {} only; bursts are kept short. \
             Raise it with: sysctl -w net.core.rmem_max=8388608 net.core.wmem_max=8388608",
            units::show_size(buffers.receive as u64)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit;

    #[test]
    fn small_kernel_buffers_are_told() {
        let of = |receive, limited| small_buffers(BufferSizes { receive, send: 1 << 20, limited });
        let told = of(425_984, true).expect("the default of most systems is small");
        assert!(told.contains("rmem_max") && told.contains("42"), "{told}");
        assert_eq!(of(4 << 20, true), None, "less than asked for, but enough");
        assert_eq!(of(1 << 20, false), None, "as asked for");
    }

    #[test]
    fn addresses_have_short_forms() {
        let resolved = |text: &str| resolve(text, "127.0.0.1").expect(text).to_string();
        assert_eq!(resolved("10.1.2.3:4"), "10.1.2.3:4");
        assert_eq!(resolved(":9000"), "127.0.0.1:9000");
        assert_eq!(resolved("9000"), "127.0.0.1:9000");
        assert_eq!(resolved("[::1]:4"), "[::1]:4");
        assert_eq!(resolve(":7", "[::]").expect("an address").to_string(), "[::]:7");
    }

    #[test]
    fn what_is_no_address_is_bad_usage() {
        let bad = [
            "nowhere",
            "host:",
            "host:port",
            "host:70000",
            "host:-1",
            "",
            ":",
            "a b:9",
            "[::1:9",
            "[::g]:9",
            "256.1.1.1:9",
            "1.2.3.4.5:9",
            "a..b:9",
            ".a:9",
            "user@host:9",
            "a/b:9",
        ];
        for text in bad {
            let error = resolve(text, "localhost").expect_err(text);
            assert_eq!(exit::code(&error), 2, "{text}: {error}");
        }
    }

    #[test]
    fn a_peer_fits_the_local_address() {
        let checked = |peer: &str, bind: Option<&str>| {
            let bind = bind.map(|bind| bind.parse().expect("an address"));
            check_peer(peer.parse().expect("an address"), bind)
        };
        let fit = [
            ("10.1.2.3:4", None),
            ("10.1.2.3:4", Some("0.0.0.0:0")),
            ("10.1.2.3:4", Some("[::]:0")),
            ("10.1.2.3:4", Some("[::ffff:10.1.2.4]:0")),
            ("[::ffff:10.1.2.3]:4", Some("10.1.2.4:5")),
            ("[::ffff:10.1.2.3]:4", Some("[::]:5")),
            ("[::1]:4", Some("[::]:5")),
            ("[::1]:4", Some("[::1]:5")),
        ];
        for (peer, bind) in fit {
            assert!(checked(peer, bind).is_ok(), "{peer} from {bind:?}");
        }
        let misfit = [
            ("10.1.2.3:0", None),
            ("[::1]:0", Some("[::]:0")),
            ("10.1.2.3:4", Some("[::1]:0")),
            ("[::1]:4", Some("127.0.0.1:0")),
            ("[::1]:4", Some("0.0.0.0:0")),
            ("[::1]:4", Some("[::ffff:127.0.0.1]:0")),
            ("[::ffff:10.1.2.3]:4", Some("[::1]:0")),
        ];
        for (peer, bind) in misfit {
            let error = checked(peer, bind).expect_err(peer);
            assert_eq!(exit::code(&error), 2, "{peer} from {bind:?}: {error}");
        }
    }

    #[test]
    fn names_are_told_from_what_is_no_name() {
        for name in ["a", "host-1.example.org", "example.org.", "1.example", "_s.ex", "bücher.de"]
        {
            assert!(is_name(name), "{name}");
        }
        for other in ["", ".", "1.2.3", "example.1", "fe80::1", "a.-.b c", &"a".repeat(64)] {
            assert!(!is_name(other), "{other}");
        }
    }
}
