//! A report for people.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use crate::advice::{Severity, Side};
use crate::host::{HostReport, Offload};
use crate::path::{PathReport, Reach, Way};
use crate::{Advice, Diagnosis};

/// All that there is to tell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The host where this was asked for.
    pub local: HostReport,
    /// The other.
    pub peer: Option<HostReport>,
    /// What the user calls it. Its own name, which it tells, may be the same as the local one's.
    #[serde(default)]
    pub peer_called: Option<String>,
    /// The path between them.
    pub path: Option<PathReport>,
    /// What that means.
    pub diagnosis: Diagnosis,
}

impl Report {
    /// A report with what follows from its parts.
    pub fn new(local: HostReport, peer: Option<HostReport>, path: Option<PathReport>) -> Self {
        let diagnosis = crate::advise(&local, peer.as_ref(), path.as_ref());
        Report { local, peer, peer_called: None, path, diagnosis }
    }

    /// With what the user calls the peer.
    #[must_use]
    pub fn of_peer(self, name: impl Into<String>) -> Self {
        Report { peer_called: Some(name.into()), ..self }
    }

    fn peer_name(&self) -> Option<&str> {
        let own = || Some(self.peer.as_ref()?.name.as_str());
        self.peer_called.as_deref().or_else(own).filter(|name| !name.is_empty())
    }
}

/// Writes a report as text: a short table for each host and the path, then the advice.
///
/// # Errors
/// Those of `out`.
pub fn show(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    show_host("this host", &report.local.name, &report.local, out)?;
    if let Some(peer) = &report.peer {
        let own = clean(&peer.name);
        let name = match &report.peer_called {
            Some(called) if !own.is_empty() && *called != own => format!("{called} ({own})"),
            Some(called) => called.clone(),
            None => own,
        };
        show_host("the peer", &name, peer, out)?;
    }
    if let Some(path) = &report.path {
        show_path(path, out)?;
    }
    let diagnosis = &report.diagnosis;
    if !diagnosis.bottleneck.is_empty() {
        writeln!(out, "{}.\n", diagnosis.bottleneck)?;
    }
    if diagnosis.advice.iter().all(|advice| advice.command.is_none()) {
        writeln!(out, "No command would make it faster.")?;
    }
    for (number, advice) in diagnosis.advice.iter().enumerate() {
        show_advice(number + 1, advice, report, out)?;
    }
    Ok(())
}

fn show_host(which: &str, name: &str, host: &HostReport, out: &mut dyn Write) -> io::Result<()> {
    // Another host's words must not steer this one's terminal.
    let name = clean(name);
    writeln!(out, "{which}{}{name}", if name.is_empty() { "" } else { ": " })?;
    let mut line = |name: &str, text: String| match text.is_empty() {
        true => Ok(()),
        false => writeln!(out, "  {name:<11}{text}"),
    };
    line(
        "system",
        [prefixed("Linux ", &host.kernel), prefixed("farhaul ", &host.farhaul)].concat_with(", "),
    )?;
    let cpu = &host.cpu;
    let processor = [
        if cpu.count > 0 {
            format!("{} × {}", cpu.count, clean(&cpu.model))
        } else {
            String::new()
        },
        prefixed("governor ", &cpu.governors.join(", ")),
        cpu.load.map(|load| format!("load {load:.2}")).unwrap_or_default(),
        cpu.flags.join(" "),
    ];
    line("processor", processor.concat_with(", "))?;
    let speeds = &host.speeds;
    let told = |name: &str, speed: Option<f64>| {
        speed.map(|s| format!("{name} {}", rate(s))).unwrap_or_default()
    };
    let cores = [
        told("AES-256-GCM", speeds.aes_seal),
        told("ChaCha20", speeds.chacha_seal),
        told("BLAKE3", speeds.hash),
        told("copy", speeds.copy),
    ];
    line("one core", cores.concat_with(", "))?;
    if let Some(disk) = &host.disk {
        let parts = [
            [clean(&disk.folder), prefixed("on ", &disk.kind)].concat_with(" "),
            told("read", disk.read),
            told("write", disk.write),
            format!("{} free", size(disk.free)),
        ];
        line("disk", parts.concat_with(", "))?;
    }
    let buffers = host.sockets.granted.map(|granted| {
        let has = |has: bool| if has { "yes" } else { "no" };
        format!(
            "receive {}, send {}, segmentation {}, receive offload {}",
            size(granted.receive),
            size(granted.send),
            has(granted.segmentation),
            has(granted.receive_offload)
        )
    });
    line("UDP socket", buffers.unwrap_or_default())?;
    let counters = host.udp.received.zip(host.udp.full_buffers);
    line(
        "UDP",
        counters
            .map(|(all, full)| format!("{all} received, {full} dropped for want of buffer"))
            .unwrap_or_default(),
    )?;
    let tcp = [
        clean(&host.tcp.law),
        host.tcp.rmem_max.map(|max| format!("receive up to {}", size(max))).unwrap_or_default(),
        host.tcp.wmem_max.map(|max| format!("send up to {}", size(max))).unwrap_or_default(),
    ];
    line("TCP", tcp.concat_with(", "))?;
    for card in &host.interfaces {
        let off = |offload: &&Offload| !offload.on;
        let missing: Vec<String> =
            card.offloads.iter().filter(off).map(|o| clean(&o.name)).collect();
        let parts = [
            card.mtu.map(|mtu| format!("MTU {mtu}")).unwrap_or_default(),
            card.speed_mbps.map(|mbps| rate(f64::from(mbps) * 1e6)).unwrap_or_default(),
            if card.default_route { "default route".to_owned() } else { String::new() },
            card.dropped.filter(|n| *n > 0).map(|n| format!("{n} dropped")).unwrap_or_default(),
            prefixed("without ", &missing.join(", ")),
        ];
        line(&clean(&card.name), parts.concat_with(", "))?;
    }
    let clock = match host.clock.synchronised {
        Some(true) => format!("synchronised, says {}", clean(&host.clock.told_by)),
        Some(false) => format!("not synchronised, says {}", clean(&host.clock.told_by)),
        None => "nobody says whether it is synchronised".to_owned(),
    };
    line("clock", clock)?;
    for failure in &host.failures {
        line("failed", clean(failure))?;
    }
    writeln!(out)
}

fn show_path(path: &PathReport, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "the path")?;
    let mut line = |name: &str, text: String| match text.is_empty() {
        true => Ok(()),
        false => writeln!(out, "  {name:<11}{text}"),
    };
    let reach = match path.reach {
        Reach::Both => "passes both ways",
        Reach::ForwardOnly => "reaches the peer, but nothing comes back",
        Reach::NoAnswer => "no answer came: nothing is known of the path",
        Reach::Nothing => "nothing reaches the peer",
    };
    line("UDP", reach.to_owned())?;
    if let Some(rtt) = path.rtt {
        let text = format!(
            "{:.2} ms at least, {:.2} in the middle, {:.2} at the 95th of a hundred",
            rtt.min_ms, rtt.median_ms, rtt.p95_ms
        );
        line("round trip", text)?;
    }
    if path.reach == Reach::Both {
        line("there", way(&path.forward))?;
        line("back", way(&path.back))?;
    }
    if let Some(load) = path.load {
        let (offered, lost) = (rate(load.offered), 100.0 * load.loss());
        let dropped = match load.dropped.min(load.lost) {
            0 => String::new(),
            dropped => format!("{dropped} dropped by the receiving host"),
        };
        let lost = format!("{lost:.2}% of {} packets lost at {offered}", load.sent);
        line("under load", [lost, dropped].concat_with(", "))?;
    }
    if let (Some(offset), Some(error)) = (path.clock_offset_ms, path.clock_error_ms) {
        line(
            "clocks",
            format!("the peer's is {offset:+.2} ms from this one, give or take {error:.2}"),
        )?;
    }
    writeln!(out)
}

fn way(way: &Way) -> String {
    let least = if way.capacity_is_least { "at least " } else { "" };
    [
        way.capacity.map(|bits| format!("{least}{}", rate(bits))).unwrap_or_default(),
        if way.sent > 0 {
            format!("{} of {} lost ({:.2}%)", way.lost, way.sent, 100.0 * way.loss())
        } else {
            String::new()
        },
        if way.reordered > 0.0 {
            format!("{:.2}% out of order", 100.0 * way.reordered)
        } else {
            String::new()
        },
        way.mtu.map_or("MTU below 1200 or unknown".to_owned(), |mtu| format!("MTU {mtu}")),
        match way.fragments {
            Some(true) => "larger packets pass in pieces".to_owned(),
            Some(false) => "larger packets are lost".to_owned(),
            None => String::new(),
        },
    ]
    .concat_with(", ")
}

fn show_advice(
    number: usize,
    advice: &Advice,
    report: &Report,
    out: &mut dyn Write,
) -> io::Result<()> {
    let gain = match (advice.severity, advice.gain) {
        (Severity::Blocks, _) => "needed".to_owned(),
        (Severity::Limits, Some(gain)) => {
            let then =
                advice.expected.map(|bits| format!(", to {}", rate(bits))).unwrap_or_default();
            format!("× {gain:.2}{then}")
        }
        (Severity::Helps, _) => "helps".to_owned(),
        _ => "note".to_owned(),
    };
    let host = advice.host.map(|side| match (side, report.peer_name()) {
        (Side::Peer, Some(name)) => format!("on {}: ", clean(name)),
        (Side::Peer, None) => "on the peer: ".to_owned(),
        (Side::Local, _) if report.peer.is_some() => "on this host: ".to_owned(),
        (Side::Local, _) => String::new(),
    });
    let host = host.unwrap_or_default();
    writeln!(out, "{number}. [{gain}] {host}{}", clean(&advice.found))?;
    writeln!(out, "   {}.", clean(&advice.why))?;
    match &advice.command {
        Some(command) => writeln!(out, "   $ {}", clean(command)),
        None => Ok(()),
    }
}

/// `9.43 Gb/s`.
pub(crate) fn rate(bits_per_second: f64) -> String {
    let (scaled, prefix) = match bits_per_second {
        v if v >= 1e9 => (v / 1e9, "G"),
        v if v >= 1e6 => (v / 1e6, "M"),
        v if v >= 1e3 => (v / 1e3, "k"),
        v => return format!("{v:.0} b/s"),
    };
    format!("{} {prefix}b/s", three_digits(scaled))
}

/// `1.25 GB`.
pub(crate) fn size(bytes: u64) -> String {
    let (scaled, prefix) = match bytes as f64 {
        v if v >= 1e12 => (v / 1e12, "T"),
        v if v >= 1e9 => (v / 1e9, "G"),
        v if v >= 1e6 => (v / 1e6, "M"),
        v if v >= 1e3 => (v / 1e3, "k"),
        v => return format!("{v:.0} B"),
    };
    format!("{} {prefix}B", three_digits(scaled))
}

fn three_digits(value: f64) -> String {
    let decimals = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.decimals$}")
}

/// Without control characters, and not without end.
fn clean(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(300).collect()
}

fn prefixed(prefix: &str, text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("{prefix}{}", clean(text)) }
}

trait ConcatWith {
    /// Joins what is not empty.
    fn concat_with(&self, separator: &str) -> String;
}

impl<const N: usize> ConcatWith for [String; N] {
    fn concat_with(&self, separator: &str) -> String {
        let full: Vec<&str> = self.iter().map(String::as_str).filter(|s| !s.is_empty()).collect();
        full.join(separator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities() {
        assert_eq!(
            [rate(0.0), rate(1_500.0), rate(9.434e9), rate(12.3e9), rate(999.4e6)].join(" "),
            "0 b/s 1.50 kb/s 9.43 Gb/s 12.3 Gb/s 999 Mb/s"
        );
        assert_eq!([size(12), size(425_984), size(1_250_000_000)].join(" "), "12 B 426 kB 1.25 GB");
    }

    /// The peer tells its own name.
    #[test]
    fn a_peer_does_not_steer_the_terminal() {
        let peer = HostReport { name: "\x1b[2Jevil\n".into(), ..HostReport::default() };
        let mut out = Vec::new();
        show(&Report::new(HostReport::default(), Some(peer), None), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("the peer: [2Jevil\n") && !text.contains('\x1b'), "{text}");
    }

    /// Hosts that call themselves alike are told apart.
    #[test]
    fn a_peer_is_called_what_the_user_calls_it() {
        let host = |free| HostReport {
            name: "vm".into(),
            disk: Some(crate::host::Disk { free, ..Default::default() }),
            ..HostReport::default()
        };
        let report = Report::new(host(1 << 40), Some(host(5)), None);
        let lines = |report: &Report| {
            let mut out = Vec::new();
            show(report, &mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            let told = |line: &&str| line.starts_with("the peer") || line.contains("] on ");
            text.lines().filter(told).map(str::to_owned).collect::<Vec<_>>()
        };
        let called = lines(&report.clone().of_peer("backup"));
        assert_eq!(called[0], "the peer: backup (vm)");
        assert!(called[1].contains("on backup: "), "{called:?}");
        assert_eq!(lines(&report)[0], "the peer: vm");
    }

    #[test]
    fn nothing_known_is_short() {
        let mut out = Vec::new();
        show(&Report::new(HostReport::default(), None, None), &mut out).unwrap();
        let expected = "this host\n  clock      nobody says whether it is synchronised\n\n\
                        No command would make it faster.\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
