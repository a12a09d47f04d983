//! Options that every command with a connection takes.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use farhaul::{Endpoint, Law, Options};

use crate::exit::Usage;
use crate::units;

/// Transport options.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Transport options")]
pub struct TransportArgs {
    /// Congestion control law, with parameters: udt, udt:noisy, udt4
    #[arg(long, value_name = "NAME[:KEY=VALUE,…]", default_value = "udt")]
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
pub fn resolve(text: &str, default: &str) -> Result<SocketAddr> {
    let full = match text.strip_prefix(':') {
        Some(port) => format!("{default}:{port}"),
        None if text.parse::<u16>().is_ok() => format!("{default}:{text}"),
        None => text.to_owned(),
    };
    let mut found = full
        .to_socket_addrs()
        .map_err(|e| Usage(format!("'{text}' is not an address ({e}); write HOST:PORT")))?;
    found.next().ok_or_else(|| Usage(format!("'{text}' has no address")).into())
}

/// Says once, where it matters, that the kernel grants only small buffers.
pub fn report_kernel_buffers(endpoint: &Endpoint) {
    let buffers = endpoint.kernel_buffers();
    // A quarter of what is asked for is plenty on any path that this program was seen to fill.
    if buffers.limited && buffers.receive < (2 << 20) {
        eprintln!(
            "farhaul: the kernel grants a receive buffer of {} only; bursts are kept short. \
             Raise it with: sysctl -w net.core.rmem_max=8388608 net.core.wmem_max=8388608",
            units::show_size(buffers.receive as u64)
        );
    }
}
