//! Hosts and paths made up, and what must come first.

use super::*;
use crate::host::{Buffers, Clock, Disk, Interface, Offload, Speeds};
use crate::path::{Load, Reach, Rtt, Way};

const GIGA: f64 = 1e9;

/// A host with nothing to complain about: 25 Gb/s and more everywhere.
fn sound(name: &str) -> HostReport {
    let mut host =
        HostReport { name: name.into(), kernel: "6.1.0".into(), ..HostReport::default() };
    host.cpu.count = 8;
    host.cpu.governors = vec!["performance".into()];
    (host.cpu.slowest_mhz, host.cpu.max_mhz) = (Some(3000), Some(3000));
    host.cpu.load = Some(0.5);
    host.sockets.granted = Some(Buffers {
        receive: 64 << 20,
        send: 16 << 20,
        limited: false,
        segmentation: true,
        receive_offload: true,
    });
    (host.tcp.rmem_max, host.tcp.wmem_max) = (Some(128 << 20), Some(128 << 20));
    host.tcp.law = "bbr".into();
    let on = |name: &str| Offload { name: name.into(), on: true, fixed: false };
    host.interfaces = vec![Interface {
        name: "eth0".into(),
        mtu: Some(1500),
        speed_mbps: Some(25_000),
        default_route: true,
        dropped: None,
        offloads: vec![on("generic-receive-offload"), on("tx-checksumming")],
    }];
    (host.udp.received, host.udp.full_buffers) = (Some(1_000_000), Some(0));
    host.disk = Some(Disk {
        folder: format!("/{name}"),
        free: 1 << 40,
        write: Some(30.0 * GIGA),
        read: Some(40.0 * GIGA),
        ..Disk::default()
    });
    let speed = Some(30.0 * GIGA);
    host.speeds = Speeds { aes_seal: speed, aes_open: speed, hash: speed, ..Speeds::default() };
    host.clock = Clock { synchronised: Some(true), told_by: "chrony".into(), source: "tsc".into() };
    host
}

/// 10 Gb/s, 80 ms, without loss.
fn clean_path() -> PathReport {
    let way = Way { sent: 1000, mtu: Some(1500), capacity: Some(10.0 * GIGA), ..Way::default() };
    PathReport {
        reach: Reach::Both,
        rtt: Some(Rtt { min_ms: 80.0, median_ms: 80.0, p95_ms: 81.0, samples: 1000 }),
        forward: way,
        back: way,
        load: Some(steady(0)),
        clock_offset_ms: Some(0.1),
        clock_error_ms: Some(40.0),
        bytes_sent: 1,
    }
}

/// 9 Gb/s, of which so many of 20,000 packets are lost.
fn steady(lost: u32) -> Load {
    let share = f64::from(20_000 - lost) / 20_000.0;
    let (offered, delivered) = (9.0 * GIGA, Some(9.0 * GIGA * share));
    Load { offered, delivered, sent: 20_000, lost, dropped: 0 }
}

/// A case: what is wrong, and what must come first.
struct Case {
    name: &'static str,
    change: fn(&mut HostReport, &mut HostReport, &mut PathReport),
    severity: Severity,
    host: Option<Side>,
    command: Option<&'static str>,
    gain: Option<f64>,
    bottleneck: &'static str,
}

/// 10 Gb/s without the headers, and what the law leaves.
const PATH: f64 = 10.0 * GIGA * 0.97 * 1456.0 / 1500.0;

fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "a receiver with the usual small buffers",
            change: |_, peer, _| set_receive(peer, 425_984),
            severity: Severity::Limits,
            host: Some(Side::Peer),
            command: Some("sysctl -w net.core.rmem_max=8388608 net.core.wmem_max=8388608"),
            // 213 kB each 5 ms, and then the path.
            gain: Some(PATH / (212_992.0 * 8.0 / 0.005)),
            bottleneck: "limited by the peer's socket buffers: about 341 Mb/s",
        },
        Case {
            name: "a slow destination",
            change: |_, peer, _| peer.disk.as_mut().unwrap().write = Some(1.2 * GIGA),
            severity: Severity::Limits,
            host: Some(Side::Peer),
            command: None,
            gain: Some(PATH / (1.2 * GIGA)),
            bottleneck: "limited by the peer's disk, which is written: about 1.20 Gb/s",
        },
        Case {
            name: "a slow source",
            change: |local, _, _| local.disk.as_mut().unwrap().read = Some(0.8 * GIGA),
            severity: Severity::Limits,
            host: Some(Side::Local),
            command: None,
            gain: Some(PATH / (0.8 * GIGA)),
            bottleneck: "limited by this host's disk, which is read: about 800 Mb/s",
        },
        Case {
            name: "UDP is dropped, and TCP's buffers are small",
            change: |local, peer, path| {
                *path = PathReport { reach: Reach::Nothing, ..PathReport::default() };
                local.tcp.wmem_max = Some(4 << 20);
                peer.tcp.rmem_max = Some(6 << 20);
            },
            severity: Severity::Blocks,
            host: None,
            command: Some("farhaul cp --transport tcp …"),
            gain: None,
            bottleneck: "Nothing gets through: the network path stops it",
        },
        Case {
            name: "a tunnel on the way that loses what is too large",
            change: |_, _, path| {
                (path.forward.mtu, path.forward.fragments) = (Some(1400), Some(false));
            },
            severity: Severity::Blocks,
            host: None,
            command: Some("farhaul cp --mss 1400 …"),
            gain: None,
            bottleneck: "Nothing gets through: the network path stops it",
        },
        Case {
            name: "a card with a small MTU",
            change: |local, _, path| {
                local.interfaces[0].mtu = Some(1400);
                (path.forward.mtu, path.forward.fragments) = (Some(1400), Some(true));
            },
            severity: Severity::Helps,
            host: None,
            command: Some("farhaul cp --mss 1400 …"),
            gain: Some(1.0),
            bottleneck: "limited by this host's processor, which sends packets: about 1.35 Gb/s",
        },
        Case {
            name: "a receiver that joins nothing, on a path that is faster",
            change: |_, peer, path| {
                peer.interfaces[0].offloads[0].on = false;
                path.forward.capacity = Some(24.0 * GIGA);
            },
            severity: Severity::Limits,
            host: Some(Side::Peer),
            command: Some("ethtool -K eth0 gro on"),
            gain: Some(2.4 * PATH / (14.0 * GIGA)),
            bottleneck: "limited by the peer's processor, which receives packets: about 14.0 Gb/s",
        },
        Case {
            name: "a sender without checksums",
            change: |local, _, _| local.interfaces[0].offloads[1].on = false,
            severity: Severity::Limits,
            host: Some(Side::Local),
            command: Some("ethtool -K eth0 tx on"),
            gain: Some(PATH / 2.7e9),
            bottleneck: "limited by this host's processor, which sends packets: about 2.70 Gb/s",
        },
        Case {
            name: "a processor that is kept slow",
            change: |local, _, _| {
                local.cpu.governors = vec!["powersave".into()];
                local.cpu.frequency_driver = "acpi-cpufreq".into();
                (local.cpu.slowest_mhz, local.cpu.max_mhz) = (Some(1000), Some(3000));
                local.speeds.hash = Some(2.0 * GIGA);
            },
            severity: Severity::Limits,
            host: Some(Side::Local),
            command: Some("cpupower frequency-set -g performance"),
            gain: Some(3.0),
            bottleneck: "limited by this host's processor, which hashes: about 2.00 Gb/s",
        },
        Case {
            name: "an old kernel",
            change: |local, _, _| {
                local.kernel = "4.4.0".into();
                local.sockets.granted.as_mut().unwrap().segmentation = false;
            },
            severity: Severity::Limits,
            host: Some(Side::Local),
            command: None,
            gain: Some(PATH / 2.7e9),
            bottleneck: "limited by this host's processor, which sends packets: about 2.70 Gb/s",
        },
    ]
}

fn set_receive(host: &mut HostReport, receive: u64) {
    let granted = host.sockets.granted.as_mut().unwrap();
    (granted.receive, granted.limited) = (receive, true);
}

fn diagnose(change: fn(&mut HostReport, &mut HostReport, &mut PathReport)) -> Diagnosis {
    let (mut local, mut peer, mut path) = (sound("here"), sound("there"), clean_path());
    change(&mut local, &mut peer, &mut path);
    advise(&local, Some(&peer), Some(&path))
}

#[test]
fn what_helps_most_comes_first() {
    for case in cases() {
        let found = diagnose(case.change);
        let first = &found.advice[0];
        assert_eq!(first.severity, case.severity, "{}: {found:#?}", case.name);
        assert_eq!(first.command.as_deref(), case.command, "{}", case.name);
        assert_eq!(first.host, case.host, "{}", case.name);
        match (first.gain, case.gain) {
            (Some(gain), Some(expected)) => {
                assert!((gain / expected - 1.0).abs() < 0.01, "{}: {gain}, {expected}", case.name);
            }
            (gain, expected) => assert_eq!(gain, expected, "{}", case.name),
        }
        assert!(found.bottleneck.ends_with(case.bottleneck), "{}: {}", case.name, found.bottleneck);
    }
}

#[test]
fn sound_hosts_are_limited_by_the_path_and_told_nothing_to_do() {
    let found = diagnose(|_, _, _| {});
    assert!((found.expected.unwrap() / PATH - 1.0).abs() < 1e-9);
    assert_eq!(
        found.bottleneck,
        "A transfer would be limited by the network path: about 9.42 Gb/s"
    );
    assert!(found.advice.iter().all(|advice| advice.command.is_none()), "{found:#?}");
    assert!(found.advice.iter().all(|advice| advice.severity >= Severity::Helps), "{found:#?}");
    assert!(found.stages.windows(2).all(|pair| pair[0].rate <= pair[1].rate));
}

/// One after the other, each with what is left to gain.
#[test]
fn several_limits_are_mended_in_their_order() {
    let found = diagnose(|local, peer, _| {
        set_receive(peer, 425_984);
        peer.disk.as_mut().unwrap().write = Some(1.2 * GIGA);
        local.cpu.governors = vec!["powersave".into()];
        local.cpu.slowest_mhz = None;
        local.speeds.hash = Some(3.0 * GIGA);
        local.clock.synchronised = Some(false);
    });
    let order: Vec<_> = found.advice.iter().map(|a| (a.severity, a.host)).collect();
    let (limits, here, there) = (Severity::Limits, Some(Side::Local), Some(Side::Peer));
    assert_eq!(&order[..3], [(limits, there), (limits, there), (limits, here)], "{found:#?}");
    assert!(found.advice[0].found.contains("426 kB"));
    assert!(found.advice[1].found.contains("writing to /there"));
    assert!(found.advice[2].found.contains("powersave"));
    let rates: Vec<f64> = found.advice.iter().map(|a| a.expected.unwrap() / GIGA).collect();
    assert!((rates[0] - 1.2).abs() < 0.01 && (rates[1] - 3.0).abs() < 0.01, "{rates:?}");
    assert!((rates[2] - 3.9).abs() < 0.01, "an unknown frequency: {rates:?}");
    let clock = found.advice.last().unwrap();
    assert_eq!(clock.command.as_deref(), Some("chronyc makestep"));
    assert_eq!((clock.severity, clock.gain), (Severity::Note, Some(1.0)));
}

/// Neither of two equal limits helps alone; both are told, and the second has the gain.
#[test]
fn equal_limits_do_not_hide_each_other() {
    let found = diagnose(|local, peer, path| {
        path.forward.capacity = Some(24.0 * GIGA);
        for host in [local, peer] {
            host.cpu.governors = vec!["powersave".into()];
            (host.cpu.slowest_mhz, host.cpu.max_mhz) = (Some(1000), Some(2000));
            host.speeds.hash = Some(2.0 * GIGA);
        }
    });
    let first_two: Vec<_> = found.advice[..2].iter().map(|a| a.command.as_deref()).collect();
    assert_eq!(first_two, [Some("cpupower frequency-set -g performance"); 2], "{found:#?}");
    let gains: f64 = found.advice[..2].iter().map(|advice| advice.gain.unwrap()).product();
    assert!((gains - 2.0).abs() < 1e-9, "{gains}");
}

#[test]
fn nothing_is_promised_of_a_path_that_nobody_has_seen() {
    let found = diagnose(|local, peer, path| {
        (local.tcp.wmem_max, peer.tcp.rmem_max) = (Some(4 << 20), Some(6 << 20));
        local.tcp.law = "cubic".into();
        *path = PathReport::default();
    });
    assert_eq!(found.expected, None);
    assert!(found.bottleneck.starts_with("Nothing has answered"), "{}", found.bottleneck);
    let first = &found.advice[0];
    assert_eq!((first.severity, first.gain), (Severity::Blocks, None));
    assert!(first.command.as_ref().is_some_and(|command| command.contains("--respond")));
    let tcp = |advice: &Advice| advice.command.as_ref().is_some_and(|c| c.contains("tcp"));
    assert!(!found.advice.iter().any(tcp), "{found:#?}");
}

#[test]
fn tcp_is_mended_where_it_must_be_used_only() {
    let small = |local: &mut HostReport, peer: &mut HostReport, _: &mut PathReport| {
        (local.tcp.wmem_max, peer.tcp.rmem_max) = (Some(4 << 20), Some(6 << 20));
        local.tcp.law = "cubic".into();
        local.tcp.available = vec!["cubic".into()];
    };
    let found = diagnose(small);
    assert!(found.advice.iter().all(|advice| advice.command.is_none()), "{found:#?}");
    let found = diagnose(|local, peer, path| {
        (local.tcp.wmem_max, peer.tcp.rmem_max) = (Some(4 << 20), Some(6 << 20));
        local.tcp.law = "cubic".into();
        *path = PathReport { reach: Reach::Nothing, ..PathReport::default() };
    });
    let commands: Vec<&str> = found.advice.iter().filter_map(|a| a.command.as_deref()).collect();
    assert!(commands[0].contains("--transport tcp"));
    assert!(commands[1].contains("tcp_wmem") && commands[2].contains("tcp_wmem"), "{commands:?}");
    assert!(commands[3].starts_with("modprobe tcp_bbr && sysctl"), "{commands:?}");
    // Half of 4 MiB each 100 ms.
    assert!((found.advice[0].expected.unwrap() - 167.8e6).abs() < 1e6, "{found:#?}");
}

#[test]
fn what_is_fixed_or_follows_by_itself_is_left() {
    let found = diagnose(|local, peer, _| {
        local.cpu.governors = vec!["powersave".into()];
        local.cpu.frequency_driver = "intel_pstate".into();
        peer.cpu.governors = vec!["schedutil".into()];
        let gro = &mut peer.interfaces[0].offloads[0];
        (gro.on, gro.fixed) = (false, true);
        // Small, but nobody set a limit: it is what was asked for.
        peer.sockets.granted.as_mut().unwrap().receive = 1 << 20;
    });
    assert!(found.advice.iter().all(|advice| advice.command.is_none()), "{found:#?}");
}

#[test]
fn notes_are_told_with_what_was_found() {
    let found = diagnose(|local, peer, path| {
        local.disk.as_mut().unwrap().free = 500_000_000;
        peer.cpu.load = Some(20.0);
        (path.forward.lost, path.back.lost) = (10, 0);
        path.clock_offset_ms = Some(-3_600_000.0);
        set_receive(peer, 4 << 20);
        peer.udp.full_buffers = Some(20_000);
    });
    let told = |text: &str| found.advice.iter().any(|advice| advice.found.contains(text));
    for text in [
        "/here has 500 MB left",
        "20.0 processes want to run on 8",
        "1.00% of packets",
        "3600.0 s behind",
        "1.96% of all datagrams",
    ] {
        assert!(told(text), "{text}: {found:#?}");
    }
}

#[test]
fn a_host_alone_is_source_and_destination() {
    let mut host = sound("here");
    host.disk.as_mut().unwrap().write = Some(2.0 * GIGA);
    set_receive(&mut host, 425_984);
    let found = advise(&host, None, None);
    assert!(found.bottleneck.contains("this host's socket buffers"), "{}", found.bottleneck);
    assert!(found.advice[0].command.as_deref().unwrap().contains("rmem_max"));
    assert!((found.advice[0].expected.unwrap() / GIGA - 2.0).abs() < 1e-9);
    host.interfaces[0].mtu = Some(1400);
    host.sockets.granted = None;
    let found = advise(&host, None, None);
    let told = |advice: &Advice| advice.command.as_deref() == Some("farhaul cp --mss 1400 …");
    assert!(found.advice.iter().any(told), "{found:#?}");
    // Of nothing, nothing is said.
    assert_eq!(advise(&HostReport::default(), None, None), Diagnosis::default());
}

/// Cut packets arrive: a hint, and no more.
#[test]
fn a_path_that_cuts_packets_is_no_obstacle() {
    let found = diagnose(|_, _, path| {
        (path.forward.mtu, path.forward.fragments) = (Some(1280), Some(true));
        path.forward.capacity = Some(GIGA);
    });
    assert!(found.expected.unwrap() > 0.9 * GIGA, "{found:#?}");
    let told = |advice: &&Advice| advice.command.as_deref() == Some("farhaul cp --mss 1280 …");
    assert_eq!(found.advice.iter().find(told).unwrap().severity, Severity::Helps, "{found:#?}");
    // Nor where the path is fast, and what cutting costs there is not measured.
    let found = diagnose(|_, _, path| {
        (path.forward.mtu, path.forward.fragments) = (Some(1280), Some(true));
        path.forward.capacity_is_least = true;
    });
    assert_eq!(found.advice.iter().find(told).unwrap().severity, Severity::Helps, "{found:#?}");
    // Not tried is not lost.
    let found = diagnose(|_, _, path| path.forward.mtu = Some(1280));
    assert!(found.expected.unwrap() > GIGA, "{found:#?}");
}

#[test]
fn where_only_small_packets_pass_tcp_may() {
    let found = diagnose(|_, _, path| {
        (path.forward.mtu, path.forward.fragments) = (None, Some(false));
    });
    assert_eq!(found.expected, Some(0.0));
    let first = &found.advice[0];
    assert_eq!(first.severity, Severity::Blocks, "{found:#?}");
    assert_eq!(first.command.as_deref(), Some("farhaul cp --transport tcp …"));
}

/// What the path loses by chance costs what it costs the default law; no rate helps against it.
#[test]
fn losses_cost_what_they_cost_the_law() {
    let share = |loss: f64| {
        let (mut local, peer, mut path) = (sound("here"), sound("there"), clean_path());
        local.disk = None;
        path.load = Some(steady((20_000.0 * loss) as u32));
        path.forward.capacity = Some(0.1 * GIGA);
        path.rtt = Some(Rtt { min_ms: 20.0, ..path.rtt.unwrap() });
        let found = advise(&local, Some(&peer), Some(&path));
        let commands = found.advice.iter().filter(|advice| advice.command.is_some());
        assert_eq!(commands.count(), 0, "{found:#?}");
        found.expected.unwrap() / (0.1 * GIGA)
    };
    // `bbr` in the simulator: 100 Mb/s, a round trip of 20 ms, a queue of 300 kB.
    for (loss, measured) in
        [(0.001, 0.91), (0.01, 0.925), (0.02, 0.927), (0.05, 0.885), (0.1, 0.579)]
    {
        let told = share(loss);
        assert!((0.7..1.1).contains(&(told / measured)), "{loss}: {told}, {measured}");
    }
}

/// The host's own drops are not the path's loss.
#[test]
fn what_the_receiving_host_drops_is_not_the_paths_loss() {
    let found = diagnose(|_, _, path| {
        path.load = Some(Load { dropped: 6_000, ..steady(6_000) });
    });
    assert!((found.expected.unwrap() / PATH - 1.0).abs() < 1e-9, "{found:#?}");
    let host = |advice: &&Advice| advice.host == Some(Side::Peer) && advice.command.is_none();
    assert_eq!(found.advice.iter().filter(host).count(), 1, "{found:#?}");
}

#[test]
fn jumbo_frames_help_where_they_pass() {
    let found = diagnose(|local, peer, path| {
        path.forward.mtu = Some(9000);
        for host in [local, peer] {
            host.interfaces[0].mtu = Some(9000);
        }
    });
    let first = &found.advice[0];
    assert_eq!(first.command.as_deref(), Some("farhaul cp --mss 9000 …"));
    assert_eq!(first.severity, Severity::Helps);
}

/// What the peer sends may be anything.
#[test]
fn odd_numbers_do_no_harm() {
    let found = diagnose(|_, peer, path| {
        peer.speeds.hash = Some(f64::NAN);
        peer.speeds.aes_open = Some(-5.0);
        peer.disk.as_mut().unwrap().write = Some(f64::INFINITY);
        peer.sockets.granted.as_mut().unwrap().receive = u64::MAX;
        (peer.udp.received, peer.udp.full_buffers) = (Some(u64::MAX), Some(u64::MAX));
        path.forward.capacity = Some(f64::NAN);
        path.forward.mtu = Some(u16::MAX);
        path.rtt = Some(Rtt { min_ms: f64::NAN, median_ms: 0.0, p95_ms: 0.0, samples: 0 });
    });
    assert_eq!(found.expected, Some(0.0));
    serde_json::to_string(&found).unwrap();
}
