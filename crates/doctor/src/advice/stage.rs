//! The stages of a transfer, and how fast each is.

use serde::{Deserialize, Serialize};

use crate::path::Reach;
use crate::{HostReport, PathReport};

/// Payload that a socket's buffer must hold: what arrives while the receiver waits for its turn.
const PAUSE_SECONDS: f64 = 5e-3;
/// Of a kernel buffer's bytes, the share that is payload.
const PAYLOAD_SHARE: f64 = 0.5;
/// Without segmentation offload, packets of 1500 bytes: about as much as one core sends, one by one.
const UNSEGMENTED: f64 = 2.7e9;
/// Without receive offload, packets of 1500 bytes.
const UNJOINED: f64 = 14e9;
/// UDT's and UDP's headers in each packet, with IPv4's.
const HEADERS: f64 = 44.0;
/// What the default law makes of a link without loss, and what it gives up for each share of loss up to
/// that which it takes for the path's own (`own_loss` of `bbr`; docs/doctor.md).
const LAW_SHARE: f64 = 0.97;
const LAW_LOSS: f64 = 1.0;
const LAW_TOLERATES: f64 = 0.05;
/// The round trip taken where none is known, seconds: another continent.
const FAR: f64 = 0.1;
/// Part of a TCP buffer that is window.
const WINDOW_SHARE: f64 = 0.5;

/// One of the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Where this was asked for.
    Local,
    /// The other.
    Peer,
}

/// A part of a transfer that has a rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// Which.
    pub kind: StageKind,
    /// Where; `None`: between the hosts.
    pub host: Option<Side>,
    /// Bits per second.
    pub rate: f64,
}

/// The parts of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StageKind {
    /// Reading the source.
    DiskRead,
    /// Writing the destination.
    DiskWrite,
    /// Hashing what is read or written.
    Hash,
    /// Encrypting.
    Seal,
    /// Decrypting.
    Open,
    /// The network card.
    Card,
    /// Sending packets.
    Send,
    /// Receiving packets.
    Receive,
    /// The receiving socket's buffer.
    Buffer,
    /// The path between the hosts.
    Path,
    /// TCP's windows.
    Windows,
}

impl Stage {
    /// What to say of it if it is the slowest.
    pub(super) fn sentence(&self) -> String {
        let whose = match self.host {
            Some(Side::Local) => "this host's",
            Some(Side::Peer) => "the peer's",
            None => "the",
        };
        let what = match self.kind {
            StageKind::DiskRead => "disk, which is read",
            StageKind::DiskWrite => "disk, which is written",
            StageKind::Hash => "processor, which hashes",
            StageKind::Seal => "processor, which encrypts",
            StageKind::Open => "processor, which decrypts",
            StageKind::Card => "network card",
            StageKind::Send => "processor, which sends packets",
            StageKind::Receive => "processor, which receives packets",
            StageKind::Buffer => "socket buffers",
            StageKind::Path => "network path",
            StageKind::Windows => "TCP windows",
        };
        if self.rate <= 0.0 {
            return format!("Nothing gets through: {whose} {what} stops it");
        }
        let rate = crate::show::rate(self.rate);
        format!("A transfer would be limited by {whose} {what}: about {rate}")
    }
}

/// Two hosts, a path and how the transfer is done.
#[derive(Clone, Debug)]
pub(super) struct Situation {
    pub local: HostReport,
    pub peer: Option<HostReport>,
    pub path: Option<PathReport>,
    /// Bytes of a packet.
    pub mss: u16,
    pub tcp: bool,
}

impl Situation {
    pub fn new(local: HostReport, peer: Option<HostReport>, path: Option<PathReport>) -> Self {
        Situation { local, peer, path, mss: 1500, tcp: false }
    }

    /// Where the data goes to.
    pub fn sink(&self) -> (Side, &HostReport) {
        match &self.peer {
            Some(peer) => (Side::Peer, peer),
            None => (Side::Local, &self.local),
        }
    }

    pub fn hosts(&self) -> impl Iterator<Item = (Side, &HostReport)> {
        [(Side::Local, &self.local)]
            .into_iter()
            .chain(self.peer.as_ref().map(|peer| (Side::Peer, peer)))
    }

    pub fn host_mut(&mut self, side: Side) -> &mut HostReport {
        match (side, &mut self.peer) {
            (Side::Peer, Some(peer)) => peer,
            _ => &mut self.local,
        }
    }

    /// Whether UDP is known not to pass.
    pub fn udp_blocked(&self) -> bool {
        let blocked = |path: &PathReport| matches!(path.reach, Reach::ForwardOnly | Reach::Nothing);
        self.path.as_ref().is_some_and(blocked)
    }

    /// Whether the path was asked and nobody has answered, for whatever reason.
    pub fn no_answer(&self) -> bool {
        self.path.as_ref().is_some_and(|path| path.reach == Reach::NoAnswer)
    }

    /// The largest packet that passes: as measured or, without a path, what the card takes.
    pub fn mtu(&self) -> Option<u16> {
        match &self.path {
            Some(path) => path.forward.mtu,
            None => self.card_mtu().and_then(|mtu| u16::try_from(mtu).ok()),
        }
    }

    /// Whether packets are larger than passes whole, and then whether they arrive all the same, in
    /// pieces. That is so unless it was tried in vain: no socket of farhaul's forbids it.
    pub fn oversize(&self) -> Option<bool> {
        let arrive = self.path.as_ref().and_then(|path| path.forward.fragments).unwrap_or(true);
        match self.mtu() {
            Some(mtu) => (self.mss > mtu).then_some(arrive),
            // Nothing is known to pass whole.
            None => (!arrive).then_some(false),
        }
    }

    fn card_mtu(&self) -> Option<u32> {
        let cards = self.local.interfaces.iter().filter(|card| card.default_route);
        cards.filter_map(|card| card.mtu).min()
    }

    /// The share of packets that the path loses, from the larger of the samples.
    pub fn loss(&self) -> f64 {
        let Some(path) = &self.path else { return 0.0 };
        let load = path.load.filter(|load| load.sent >= path.forward.sent);
        load.map_or(path.forward.loss(), |load| load.loss())
    }
}

/// The stages of which a rate is known.
pub(super) fn stages(situation: &Situation) -> Vec<Stage> {
    let (to, sink) = situation.sink();
    let source = &situation.local;
    let (here, there) = (Some(Side::Local), Some(to));
    let disk = |host: &HostReport| host.disk.clone().unwrap_or_default();
    let mut list = vec![
        (StageKind::DiskRead, here, disk(source).read),
        (StageKind::DiskWrite, there, disk(sink).write),
        (StageKind::Hash, here, source.speeds.hash),
        (StageKind::Seal, here, source.speeds.seal()),
        (StageKind::Open, there, sink.speeds.open()),
        (StageKind::Card, here, card(source)),
    ];
    if situation.peer.is_some() {
        list.push((StageKind::Hash, there, sink.speeds.hash));
        list.push((StageKind::Card, there, card(sink)));
    }
    if situation.tcp {
        list.push((StageKind::Windows, None, windows(situation)));
    } else {
        list.push((StageKind::Send, here, send(situation)));
        list.push((StageKind::Receive, there, receive(situation)));
        list.push((StageKind::Buffer, there, buffer(sink)));
        list.push((StageKind::Path, None, path(situation)));
    }
    // What a peer sends may be no number.
    list.into_iter()
        .filter_map(|(kind, host, rate)| Some((kind, host, rate.filter(|rate| rate.is_finite())?)))
        .map(|(kind, host, rate)| Stage { kind, host, rate: rate.max(0.0) })
        .collect()
}

/// The slowest stage's rate.
pub(super) fn expected(stages: &[Stage]) -> Option<f64> {
    stages.iter().map(|stage| stage.rate).min_by(f64::total_cmp)
}

/// How many stages let nothing through, and a minimum of the others that counts those near it, too.
pub(super) fn softly(stages: &[Stage]) -> (usize, f64) {
    let blocked = stages.iter().filter(|stage| stage.rate <= 0.0).count();
    let sum: f64 = stages.iter().filter(|s| s.rate > 0.0).map(|s| (s.rate / 1e9).powi(-8)).sum();
    (blocked, if sum > 0.0 { sum.powf(-0.125) * 1e9 } else { 0.0 })
}

/// Of the cards at which the default route leaves.
fn card(host: &HostReport) -> Option<f64> {
    let cards = host.interfaces.iter().filter(|interface| interface.default_route);
    cards.filter_map(|card| card.speed_mbps).min().map(|mbps| f64::from(mbps) * 1e6)
}

/// `None`: no limit that is known.
fn send(situation: &Situation) -> Option<f64> {
    let host = &situation.local;
    let segmented = host.sockets.granted.is_none_or(|granted| granted.segmentation);
    let checksummed = route_offload(host, "tx-checksumming");
    let limit = UNSEGMENTED * f64::from(situation.mss) / 1500.0;
    match situation.oversize() {
        Some(true) => Some(limit / 2.0),
        _ => (!segmented || checksummed == Some(false)).then_some(limit),
    }
}

fn receive(situation: &Situation) -> Option<f64> {
    let (_, host) = situation.sink();
    let socket = host.sockets.granted.is_none_or(|granted| granted.receive_offload);
    let joined = socket && route_offload(host, "generic-receive-offload") != Some(false);
    (!joined).then_some(UNJOINED * f64::from(situation.mss) / 1500.0)
}

/// Whether all cards of the default route do it; `None`: unknown.
fn route_offload(host: &HostReport, name: &str) -> Option<bool> {
    let cards = host.interfaces.iter().filter(|interface| interface.default_route);
    cards.filter_map(|card| Some(card.offload(name)?.on)).reduce(|a, b| a && b)
}

fn buffer(host: &HostReport) -> Option<f64> {
    let granted = host.sockets.granted?;
    Some(granted.receive as f64 * PAYLOAD_SHARE * 8.0 / PAUSE_SECONDS)
}

fn path(situation: &Situation) -> Option<f64> {
    let path = situation.path.as_ref()?;
    if situation.udp_blocked() || situation.oversize() == Some(false) {
        return Some(0.0);
    }
    let loss = match situation.oversize() {
        // Each fragment may be lost.
        Some(_) => situation.loss() * 2.0,
        None => situation.loss(),
    };
    let mss = f64::from(situation.mss);
    // A capacity that may be more does not limit anything that is known, unless losses do.
    let capacity = match path.forward.capacity {
        Some(capacity) if !path.forward.capacity_is_least => capacity,
        Some(capacity) if loss > LAW_TOLERATES => capacity,
        _ => return None,
    };
    Some(default_law(capacity, loss) * (mss - HEADERS) / mss)
}

/// What the default law sends over a path of `capacity` bits/s that loses this share of packets by chance. What is more
/// than it tolerates it answers: then it has about as much less as there is more.
fn default_law(capacity: f64, loss: f64) -> f64 {
    let tolerated = loss.min(LAW_TOLERATES);
    let kept = if loss > tolerated { tolerated / loss } else { 1.0 };
    capacity * (LAW_SHARE - LAW_LOSS * tolerated) * kept
}

fn windows(situation: &Situation) -> Option<f64> {
    let (_, sink) = situation.sink();
    let window = situation.local.tcp.wmem_max?.min(sink.tcp.rmem_max?) as f64 * WINDOW_SHARE;
    let rtt =
        situation.path.as_ref().and_then(|path| path.rtt).map_or(FAR, |rtt| rtt.min_ms * 1e-3);
    Some(window * 8.0 / rtt.max(1e-5))
}
