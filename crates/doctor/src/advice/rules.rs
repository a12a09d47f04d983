//! What is looked for, a function each.

use super::remedy::Remedy;
use super::stage::{Side, Situation};
use super::{Severity, commands};
use crate::host::Interface;
use crate::show::{rate, size};
use crate::{HostReport, PathReport};

/// What farhaul's sockets ask for, bytes.
pub const SOCKET_BUFFER: u64 = 8 << 20;
/// What is enough: a quarter of that, as the kernel counts.
const ENOUGH: u64 = 2 << 20;
/// A share of datagrams that were dropped for want of buffers, from which on it matters.
const DROPPED: f64 = 1e-3;
/// TCP's largest buffers for far and fast paths, bytes.
const TCP_BUFFER: u64 = 128 << 20;
/// Frequency governors that do not follow the load.
const STUCK: [&str; 2] = ["powersave", "userspace"];
/// Drivers whose `powersave` follows it all the same.
const FOLLOWING: [&str; 2] = ["intel_pstate", "amd-pstate-epp"];
/// Less room is told, bytes.
const LITTLE_ROOM: u64 = 1 << 30;
/// A loss that a healthy path does not have.
const LOSSY: f64 = 0.005;
/// Clocks that differ by more are told, ms.
const CLOCKS_MS: f64 = 1000.0;

pub(super) fn all(situation: &Situation) -> Vec<Remedy> {
    let mut found = Vec::new();
    found.extend(udp_blocked(situation));
    found.extend(no_answer(situation));
    found.extend(oversize(situation));
    found.extend(jumbo(situation));
    found.extend(tires(situation));
    found.extend(overrun(situation));
    found.extend(source_disk(situation));
    found.extend(sink_disk(situation));
    for (side, host) in situation.hosts() {
        found.extend(buffers(side, host));
        found.extend(governor(side, host));
        for card in host.interfaces.iter().filter(|card| card.default_route) {
            found.extend(offload(side, card, "generic-receive-offload", "gro"));
            found.extend(offload(side, card, "tx-checksumming", "tx"));
        }
        found.extend(old_kernel(side, host));
        if situation.udp_blocked() {
            found.extend(tcp_buffers(side, host));
        }
        found.extend(room(side, host));
        found.extend(busy(side, host));
        found.extend(clock(side, host));
    }
    found.extend(tcp_law(situation));
    found.extend(situation.path.as_ref().and_then(lossy));
    found.extend(situation.path.as_ref().and_then(clocks_differ));
    found
}

fn udp_blocked(situation: &Situation) -> Option<Remedy> {
    use crate::path::Reach;
    let found = match situation.path.as_ref()?.reach {
        Reach::Both | Reach::NoAnswer => return None,
        Reach::ForwardOnly => "UDP reaches the peer, but its answers do not come back",
        Reach::Nothing => "nothing that was sent over UDP has reached the peer",
    };
    let why = "farhaul's own transport runs over UDP, which a firewall drops: open the UDP port of the \
               listening side. Until then TCP may pass, which was not tried and is slow over long paths \
               that lose packets";
    let remedy = Remedy::note(None, found.to_owned(), why).command(commands::over_tcp());
    Some(remedy.mend(|situation| situation.tcp = true))
}

/// Nothing is known of the path, so that nothing would mend it.
fn no_answer(situation: &Situation) -> Option<Remedy> {
    let why = "the responder may not run on the other host, or have another secret, or a firewall may drop \
               UDP: find out which. Whether TCP passes was not tried";
    let remedy = Remedy::note(None, "no answer came over UDP".to_owned(), why);
    let remedy = remedy.command(commands::respond());
    situation.no_answer().then_some(Remedy { severity: Severity::Blocks, ..remedy })
}

fn oversize(situation: &Situation) -> Option<Remedy> {
    let in_pieces = situation.oversize()?;
    let Some(mtu) = situation.mtu() else {
        let found = "packets of 1200 bytes and more do not pass".to_owned();
        let why = "farhaul's packets over UDP have at least so many";
        let remedy = Remedy::note(None, found, why).command(commands::over_tcp());
        return Some(remedy.mend(|situation| situation.tcp = true));
    };
    let found =
        format!("packets above {mtu} bytes do not pass whole; farhaul sends {}", situation.mss);
    let why = if in_pieces {
        "each is cut in two, without offload, and lost if either part is"
    } else {
        "they are lost without a word, so that a transfer begins and then stands still"
    };
    let remedy = Remedy::note(None, found, why).command(commands::with_mss(mtu));
    let remedy = if in_pieces { remedy.hint() } else { remedy };
    Some(remedy.mend(move |situation| situation.mss = mtu))
}

fn jumbo(situation: &Situation) -> Option<Remedy> {
    let mtu = situation.path.as_ref()?.forward.mtu?;
    if situation.udp_blocked() || mtu < 4000 {
        return None;
    }
    let found = format!("packets of {mtu} bytes pass");
    let why = "larger packets take less of both processors and spend less on headers";
    let remedy = Remedy::note(None, found, why).helps().command(commands::with_mss(mtu));
    Some(remedy.mend(move |situation| situation.mss = mtu))
}

/// Under load the path loses much more than without. The default law finds its rate by itself: over
/// token buckets with short queues a lower `--rate` was slower.
fn tires(situation: &Situation) -> Option<Remedy> {
    let path = situation.path.as_ref()?;
    let load = path.load?;
    if load.loss() < 0.02 || load.loss() < 5.0 * path.forward.loss() {
        return None;
    }
    let found = format!(
        "a steady {} loses {:.1}% of its packets, a slow stream {:.2}%",
        rate(load.offered),
        100.0 * load.loss(),
        100.0 * path.forward.loss()
    );
    let why = "the path loses large packets, or what comes fast, below the rate that it carries: a \
               cable, a wireless hop or other traffic may be the cause";
    Some(Remedy::note(None, found, why))
}

/// What the receiving host drops is no fault of the path.
fn overrun(situation: &Situation) -> Option<Remedy> {
    let load = situation.path.as_ref()?.load.filter(|load| load.dropped() >= DROPPED)?;
    let found = format!(
        "of a steady {} the receiving host dropped {:.1}% for want of a buffer",
        rate(load.offered),
        100.0 * load.dropped()
    );
    let why = "the path has delivered them: the host was slower than the path, or busy";
    let side = situation.peer.as_ref().map(|_| Side::Peer);
    Some(Remedy::note(side, found, why))
}

fn source_disk(situation: &Situation) -> Option<Remedy> {
    let disk = situation.local.disk.as_ref()?;
    let found = format!("reading {} gives {}", disk.folder, rate(disk.read?));
    let why =
        "the source cannot be sent faster than it is read: from memory or another disk it could";
    Some(Remedy::note(Some(Side::Local), found, why).only_as_limit().mend(|situation| {
        if let Some(disk) = &mut situation.local.disk {
            disk.read = None;
        }
    }))
}

fn sink_disk(situation: &Situation) -> Option<Remedy> {
    let (side, host) = situation.sink();
    let disk = host.disk.as_ref()?;
    let found = format!("writing to {} takes {}", disk.folder, rate(disk.write?));
    let why =
        "what arrives faster waits in memory, and then at the sender: to another disk it need not";
    Some(Remedy::note(Some(side), found, why).only_as_limit().mend(move |situation| {
        if let Some(disk) = &mut situation.host_mut(side).disk {
            disk.write = None;
        }
    }))
}

fn buffers(side: Side, host: &HostReport) -> Option<Remedy> {
    let granted = host.sockets.granted?;
    let dropped = host.udp.full_buffers.unwrap_or(0) as f64;
    let share = dropped / (host.udp.received.unwrap_or(0) as f64 + dropped).max(1.0);
    let small = granted.limited && granted.receive < ENOUGH;
    if !(small || granted.limited && share > DROPPED) {
        return None;
    }
    let mut found = format!("UDP sockets are granted {} to receive", size(granted.receive));
    if share > DROPPED {
        found += &format!("; {:.2}% of all datagrams found such a buffer full", 100.0 * share);
    }
    let why = "while the receiver waits for its turn, packets must wait in the socket or are lost";
    let command =
        format!("sysctl -w net.core.rmem_max={SOCKET_BUFFER} net.core.wmem_max={SOCKET_BUFFER}");
    let remedy = Remedy::note(Some(side), found, why).helps().command(command);
    Some(remedy.mend(move |situation| {
        if let Some(granted) = &mut situation.host_mut(side).sockets.granted {
            // The kernel doubles what is asked for.
            granted.receive = granted.receive.max(2 * SOCKET_BUFFER);
        }
    }))
}

fn governor(side: Side, host: &HostReport) -> Option<Remedy> {
    let cpu = &host.cpu;
    let stuck = cpu.governors.iter().find(|governor| STUCK.contains(&governor.as_str()))?;
    if FOLLOWING.contains(&cpu.frequency_driver.as_str()) {
        return None;
    }
    let faster = match (cpu.slowest_mhz, cpu.max_mhz) {
        (Some(now), Some(max)) if now > 0 => (f64::from(max) / f64::from(now)).clamp(1.0, 4.0),
        _ => 1.3,
    };
    let mut found = format!("the frequency governor is '{stuck}'");
    if let (Some(now), Some(max)) = (cpu.slowest_mhz, cpu.max_mhz) {
        found += &format!(", a processor runs at {now} MHz of {max}");
    }
    let why = "the processor stays slow however much there is to encrypt, hash and send";
    let remedy = Remedy::note(Some(side), found, why).helps();
    let remedy = remedy.command("cpupower frequency-set -g performance");
    Some(remedy.mend(move |situation| {
        let speeds = &mut situation.host_mut(side).speeds;
        let rates = [
            &mut speeds.aes_seal,
            &mut speeds.aes_open,
            &mut speeds.chacha_seal,
            &mut speeds.chacha_open,
            &mut speeds.hash,
        ];
        rates.into_iter().flatten().for_each(|rate| *rate *= faster);
    }))
}

fn offload(side: Side, card: &Interface, feature: &'static str, short: &str) -> Option<Remedy> {
    if card.offload(feature).is_none_or(|offload| offload.on || offload.fixed) {
        return None;
    }
    let name = card.name.clone();
    let found = format!("{name} does without {feature}");
    let why = match short {
        "gro" => {
            "packets that arrive together are handled one by one, which takes the processor several times as long"
        }
        _ => {
            "without checksums of the card the kernel does not split large sends, and each packet is a call"
        }
    };
    let remedy = Remedy::note(Some(side), found, why).helps();
    let remedy = remedy.command(format!("ethtool -K {name} {short} on"));
    Some(remedy.mend(move |situation| {
        let cards = situation.host_mut(side).interfaces.iter_mut();
        let offloads = cards.filter(|card| card.name == name).flat_map(|card| &mut card.offloads);
        offloads.filter(|offload| offload.name == feature).for_each(|offload| offload.on = true);
    }))
}

fn old_kernel(side: Side, host: &HostReport) -> Option<Remedy> {
    let granted = host.sockets.granted?;
    if granted.segmentation && granted.receive_offload {
        return None;
    }
    let found = format!("the kernel ({}) has no UDP segmentation or receive offload", host.kernel);
    let why = "each packet is a call of its own; Linux 5.0 and later do dozens in one";
    Some(Remedy::note(Some(side), found, why).helps().mend(move |situation| {
        if let Some(granted) = &mut situation.host_mut(side).sockets.granted {
            (granted.segmentation, granted.receive_offload) = (true, true);
        }
    }))
}

fn tcp_buffers(side: Side, host: &HostReport) -> Option<Remedy> {
    let (receive, send) = (host.tcp.rmem_max?, host.tcp.wmem_max?);
    if receive.min(send) >= TCP_BUFFER / 4 {
        return None;
    }
    let found = format!("TCP's buffers grow to {} and {}", size(receive), size(send));
    let why = "a TCP connection carries no more than a window of that a round trip";
    let command = format!(
        "sysctl -w net.ipv4.tcp_rmem='4096 131072 {TCP_BUFFER}' net.ipv4.tcp_wmem='4096 65536 {TCP_BUFFER}'"
    );
    let remedy = Remedy::note(Some(side), found, why).helps().command(command);
    Some(remedy.mend(move |situation| {
        let tcp = &mut situation.host_mut(side).tcp;
        tcp.rmem_max = tcp.rmem_max.max(Some(TCP_BUFFER));
        tcp.wmem_max = tcp.wmem_max.max(Some(TCP_BUFFER));
    }))
}

/// Of the side that sends, and only if TCP it must be.
fn tcp_law(situation: &Situation) -> Option<Remedy> {
    let tcp = &situation.local.tcp;
    if !situation.udp_blocked() || tcp.law.is_empty() || tcp.law.starts_with("bbr") {
        return None;
    }
    let found = format!("TCP's congestion control is '{}'", tcp.law);
    let why =
        "it takes every lost packet for congestion; over long paths BBR is many times as fast";
    let load =
        if tcp.available.iter().any(|law| law == "bbr") { "" } else { "modprobe tcp_bbr && " };
    let command = format!("{load}sysctl -w net.ipv4.tcp_congestion_control=bbr");
    Some(Remedy::note(Some(Side::Local), found, why).helps().command(command))
}

fn room(side: Side, host: &HostReport) -> Option<Remedy> {
    let disk = host.disk.as_ref().filter(|disk| disk.free < LITTLE_ROOM)?;
    let found = format!("{} has {} left", disk.folder, size(disk.free));
    Some(Remedy::note(Some(side), found, "a transfer that is larger fails"))
}

fn busy(side: Side, host: &HostReport) -> Option<Remedy> {
    let load = host.cpu.load?;
    let count = f64::from(host.cpu.count);
    if count < 1.0 || load <= count {
        return None;
    }
    let found = format!("{load:.1} processes want to run on {count} processors");
    Some(Remedy::note(
        Some(side),
        found,
        "other programs slow the transfer, and what was measured here",
    ))
}

fn clock(side: Side, host: &HostReport) -> Option<Remedy> {
    let clock = &host.clock;
    if clock.synchronised != Some(false) {
        return None;
    }
    let found = format!("the clock is not synchronised, says {}", clock.told_by);
    let why = "times of files that are written here mean little elsewhere";
    let command =
        if clock.told_by == "chrony" { "chronyc makestep" } else { "timedatectl set-ntp true" };
    Some(Remedy::note(Some(side), found, why).command(command))
}

fn lossy(path: &PathReport) -> Option<Remedy> {
    let (forward, back) = (path.forward.loss(), path.back.loss());
    if forward.max(back) < LOSSY {
        return None;
    }
    let found = format!(
        "without load {:.2}% of packets are lost there, {:.2}% on the way back",
        100.0 * forward,
        100.0 * back
    );
    let why = "farhaul keeps most of the rate, TCP does not; a healthy path loses nothing: a cable, a \
               wireless hop or an overloaded link may be the cause";
    Some(Remedy::note(None, found, why))
}

fn clocks_differ(path: &PathReport) -> Option<Remedy> {
    let (offset, error) = (path.clock_offset_ms?, path.clock_error_ms?);
    if offset.abs() < CLOCKS_MS.max(error) {
        return None;
    }
    let way = if offset > 0.0 { "ahead of" } else { "behind" };
    let found = format!("the peer's clock is {:.1} s {way} this one", offset.abs() / 1e3);
    Some(Remedy::note(None, found, "one of both is wrong, and files' times with it"))
}
