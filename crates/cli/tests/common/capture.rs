//! What Wireshark's dissector makes of a session.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use super::tap::Seen;

/// A frame as `tshark` shows it; numbers only where it found the field.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    /// `raw:ip:udp:udt` and what it saw inside.
    pub protocols: String,
    pub control: Option<bool>,
    pub kind: Option<u32>,
    pub malformed: bool,
    /// Fields that belong to single types.
    pub request: Option<i32>,
    pub version: Option<u32>,
    pub acknowledged: Option<u32>,
    pub rtt: Option<u32>,
    pub rate: Option<u32>,
    /// What a NAK names.
    pub missing: Option<String>,
    pub sequence: Option<u32>,
    pub message: Option<u32>,
}

const FIELDS: [&str; 12] = [
    "frame.protocols",
    "udt.iscontrol",
    "udt.type",
    "_ws.malformed",
    "udt.hs.reqtype",
    "udt.hs.version",
    "udt.ack_seqno",
    "udt.rtt",
    "udt.rate",
    "_ws.expert.message",
    "udt.seqno",
    "udt.msgno",
];

/// Has `tshark` dissect what a tap saw between `client` and `server`. The error says why it cannot
/// be run.
pub fn dissect(
    seen: &[Seen],
    client: SocketAddr,
    server: SocketAddr,
    folder: &Path,
) -> Result<Vec<Frame>, String> {
    let file = folder.join("session.pcap");
    fs::write(&file, pcap(seen, client, server)).expect("a file in the test's folder");
    Ok(fields(&file, &FIELDS, &[])?.iter().map(|values| frame(values)).collect())
}

/// The values of `fields` in each frame of a capture file, as `tshark` prints them. `options` are
/// more arguments for it. The error says why it cannot be run.
pub fn fields(file: &Path, fields: &[&str], options: &[&str]) -> Result<Vec<Vec<String>>, String> {
    let mut command = Command::new("tshark");
    command.arg("-n").args(options).arg("-r").arg(file).args(["-T", "fields", "-E", "separator=|"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().map_err(|error| format!("tshark cannot be run: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let values = |line: &str| {
        let values: Vec<String> = line.split('|').map(str::to_owned).collect();
        assert_eq!(values.len(), fields.len(), "{line}");
        values
    };
    Ok(text.lines().map(values).collect())
}

fn frame(fields: &[String]) -> Frame {
    let text = |index: usize| Some(fields[index].clone()).filter(|text| !text.is_empty());
    Frame {
        protocols: fields[0].clone(),
        control: text(1).map(|t| t == "1" || t == "True"),
        kind: text(2).and_then(|t| number(&t)),
        malformed: !fields[3].is_empty(),
        request: text(4).and_then(|t| t.parse().ok()),
        version: text(5).and_then(|t| number(&t)),
        acknowledged: text(6).and_then(|t| number(&t)),
        rtt: text(7).and_then(|t| number(&t)),
        rate: text(8).and_then(|t| number(&t)),
        missing: text(9),
        sequence: text(10).and_then(|t| number(&t)),
        message: text(11).and_then(|t| number(&t)),
    }
}

fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The capture file: IP packets, as the file format of libpcap has them (link type 101).
fn pcap(seen: &[Seen], client: SocketAddr, server: SocketAddr) -> Vec<u8> {
    let mut out = Vec::new();
    let header: [u32; 6] = [0xa1b2_c3d4, 2 | 4 << 16, 0, 0, 262_144, 101];
    header.iter().for_each(|word| out.extend(word.to_le_bytes()));
    for datagram in seen {
        let (from, to) = if datagram.forward { (client, server) } else { (server, client) };
        let packet = ip_packet(from, to, &datagram.bytes);
        let (seconds, micros) = (datagram.at.as_secs() as u32, datagram.at.subsec_micros());
        let len = packet.len() as u32;
        [seconds, micros, len, len].iter().for_each(|word| out.extend(word.to_le_bytes()));
        out.extend(packet);
    }
    out
}

fn ip_packet(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let (SocketAddr::V4(from), SocketAddr::V4(to)) = (from, to) else {
        panic!("captures are made over IPv4");
    };
    let udp_len = 8 + payload.len() as u16;
    let mut out = vec![0x45, 0];
    out.extend((20 + udp_len).to_be_bytes());
    // No identification, no fragments, 64 hops, UDP, no checksum.
    out.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    out.extend(from.ip().octets());
    out.extend(to.ip().octets());
    for word in [from.port(), to.port(), udp_len, 0] {
        out.extend(word.to_be_bytes());
    }
    out.extend(payload);
    out
}
