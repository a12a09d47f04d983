//! Sockets, interfaces and what the kernel counts.

use std::net::Ipv4Addr;

use farhaul_udp::{Options, UdpSocket};
use serde::{Deserialize, Serialize};

use crate::Root;

/// UDP sockets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sockets {
    /// The largest receive buffer that a program may ask for, bytes.
    pub rmem_max: Option<u64>,
    /// The largest send buffer.
    pub wmem_max: Option<u64>,
    /// What farhaul's sockets are granted.
    pub granted: Option<Buffers>,
    /// Packets that may wait for the kernel between the card and the protocols.
    pub backlog: Option<u64>,
}

/// What a socket of farhaul's has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Buffers {
    /// Receive buffer, bytes as the kernel counts them: about half is payload.
    pub receive: u64,
    /// Send buffer.
    pub send: u64,
    /// It is less than was asked for.
    pub limited: bool,
    /// The kernel splits what is sent (UDP_SEGMENT).
    pub segmentation: bool,
    /// The kernel joins what arrives (UDP_GRO).
    pub receive_offload: bool,
}

/// TCP's settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tcp {
    /// Largest receive buffer, bytes.
    pub rmem_max: Option<u64>,
    /// Largest send buffer.
    pub wmem_max: Option<u64>,
    /// Congestion control.
    pub law: String,
    /// What could be chosen without loading a module.
    pub available: Vec<String>,
    /// Whether windows above 64 KiB can be announced.
    pub window_scaling: Option<bool>,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Bytes of IP.
    pub mtu: Option<u32>,
    /// Mb/s; `None` if it does not say, as virtual ones.
    pub speed_mbps: Option<u32>,
    /// Whether the default route leaves here.
    pub default_route: bool,
    /// Arrivals that the card or the kernel had no room for.
    pub dropped: Option<u64>,
    /// What `ethtool` says; empty if that is not there.
    pub offloads: Vec<Offload>,
}

/// A feature of a card.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offload {
    /// As `ethtool` calls it.
    pub name: String,
    /// Whether it is at work.
    pub on: bool,
    /// It cannot be changed.
    pub fixed: bool,
}

/// What the kernel has counted of UDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UdpCounters {
    /// Datagrams received.
    pub received: Option<u64>,
    /// Dropped because a socket's buffer was full.
    pub full_buffers: Option<u64>,
}

/// The features that matter, with the short name by which `ethtool -K` changes each.
pub(crate) const FEATURES: [(&str, &str); 5] = [
    ("generic-receive-offload", "gro"),
    ("generic-segmentation-offload", "gso"),
    ("tx-udp-segmentation", "tx-udp-segmentation"),
    ("tx-checksumming", "tx"),
    ("rx-checksumming", "rx"),
];

impl Interface {
    /// Whether a feature is at work; `None`: unknown.
    pub fn offload(&self, name: &str) -> Option<&Offload> {
        self.offloads.iter().find(|offload| offload.name == name)
    }
}

pub(super) fn sockets(root: &Root) -> Sockets {
    let core = |name: &str| root.number(&format!("/proc/sys/net/core/{name}"));
    Sockets {
        rmem_max: core("rmem_max"),
        wmem_max: core("wmem_max"),
        granted: root.is_system().then(granted).flatten(),
        backlog: core("netdev_max_backlog"),
    }
}

fn granted() -> Option<Buffers> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0).into(), &Options::default()).ok()?;
    let buffers = socket.buffers();
    Some(Buffers {
        receive: buffers.receive as u64,
        send: buffers.send as u64,
        limited: buffers.limited,
        segmentation: socket.send_offload(1200),
        receive_offload: socket.receive_offload(),
    })
}

pub(super) fn tcp(root: &Root) -> Tcp {
    let setting = |name: &str| root.read(&format!("/proc/sys/net/ipv4/{name}"));
    // Least, default and largest.
    let largest = |name: &str| setting(name)?.split_whitespace().nth(2)?.parse().ok();
    let available = setting("tcp_available_congestion_control").unwrap_or_default();
    Tcp {
        rmem_max: largest("tcp_rmem"),
        wmem_max: largest("tcp_wmem"),
        law: setting("tcp_congestion_control").unwrap_or_default(),
        available: available.split_whitespace().map(str::to_owned).collect(),
        window_scaling: setting("tcp_window_scaling").map(|text| text != "0"),
    }
}

pub(super) fn interfaces(root: &Root) -> Vec<Interface> {
    let routes = root.read("/proc/net/route").unwrap_or_default();
    let routes6 = root.read("/proc/net/ipv6_route").unwrap_or_default();
    let default_route = |name: &str| {
        let v4 = routes.lines().skip(1).any(|line| {
            let mut fields = line.split_whitespace();
            fields.next() == Some(name) && fields.next() == Some("00000000")
        });
        v4 || routes6.lines().any(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let any = fields.first().is_some_and(|to| to.bytes().all(|byte| byte == b'0'));
            any && fields.get(1) == Some(&"00") && fields.last() == Some(&name)
        })
    };
    let read = |name: String| {
        let folder = format!("/sys/class/net/{name}");
        let state = root.read(&format!("{folder}/operstate")).unwrap_or_default();
        // Tunnels and the like do not say that they are up.
        if name == "lo" || !matches!(state.as_str(), "up" | "unknown") {
            return None;
        }
        let speed = root.number::<i64>(&format!("{folder}/speed"));
        let features = root.run("ethtool", &["-k", &name]);
        Some(Interface {
            mtu: root.number(&format!("{folder}/mtu")),
            speed_mbps: speed.and_then(|mbps| u32::try_from(mbps).ok()).filter(|mbps| *mbps > 0),
            default_route: default_route(&name),
            dropped: root.number(&format!("{folder}/statistics/rx_dropped")),
            offloads: features.map(|text| offloads(&text)).unwrap_or_default(),
            name,
        })
    };
    // A host of containers has hundreds.
    root.list("/sys/class/net").into_iter().filter_map(read).take(32).collect()
}

/// Reads what `ethtool -k` prints: `generic-receive-offload: off [fixed]`.
fn offloads(text: &str) -> Vec<Offload> {
    let read = |line: &str| {
        let (name, value) = line.trim().split_once(':')?;
        FEATURES.iter().find(|(known, _)| *known == name)?;
        let mut words = value.split_whitespace();
        let on = match words.next()? {
            "on" => true,
            "off" => false,
            _ => return None,
        };
        Some(Offload { name: name.to_owned(), on, fixed: words.any(|word| word == "[fixed]") })
    };
    text.lines().filter_map(read).collect()
}

pub(super) fn udp_counters(root: &Root) -> UdpCounters {
    let text = root.read("/proc/net/snmp").unwrap_or_default();
    // A line of names, then one of values.
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else {
        return UdpCounters::default();
    };
    let value = |name: &str| {
        let at = names.split_whitespace().position(|known| known == name)?;
        values.split_whitespace().nth(at)?.parse().ok()
    };
    UdpCounters { received: value("InDatagrams"), full_buffers: value("RcvbufErrors") }
}
