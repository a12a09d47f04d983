//! Hosts of which everything is known.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::*;

fn host(files: &[(&str, &str)], programs: &[(&str, &str)]) -> HostReport {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
        fs::write(path, text).unwrap();
    }
    let programs = programs.iter().map(|(line, text)| (line.to_string(), text.to_string()));
    let options = AuditOptions {
        root: Root::recorded(folder.path(), programs.collect::<BTreeMap<_, _>>()),
        folder: None,
        speed_time: Duration::ZERO,
        ..AuditOptions::default()
    };
    audit_host(&options, &mut |_| {})
}

const CPUINFO: &str = "processor\t: 0\nmodel name\t: Example 9000\nflags\t\t: fpu aes avx avx2 pni\n\n\
                       processor\t: 1\nmodel name\t: Example 9000\nflags\t\t: fpu aes avx avx2 pni\n";
const SNMP: &str = "Ip: Forwarding\nIp: 1\n\
                    Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors\n\
                    Udp: 1000 1 7 900 6 0\nUdpLite: InDatagrams\nUdpLite: 5\n";
const ROUTE: &str =
    "Iface\tDestination\tGateway\nens5\t00000000\t0100000A\nens6\t0000000A\t00000000\n";
const ETHTOOL: &str = "Features for ens5:\nrx-checksumming: on [fixed]\ntx-checksumming: on\n\
                       \ttx-checksum-ipv4: off [fixed]\ngeneric-segmentation-offload: on\n\
                       generic-receive-offload: off\ntx-udp-segmentation: off [fixed]\nodd line\n";

#[test]
fn a_server_is_read() {
    let report = host(
        &[
            ("proc/sys/kernel/hostname", "big-one\n"),
            ("proc/sys/kernel/osrelease", "6.1.0-18-amd64\n"),
            ("proc/sys/net/core/rmem_max", "212992\n"),
            ("proc/sys/net/core/wmem_max", "212992\n"),
            ("proc/sys/net/core/netdev_max_backlog", "1000\n"),
            ("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n"),
            ("proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t4194304\n"),
            ("proc/sys/net/ipv4/tcp_congestion_control", "cubic\n"),
            ("proc/sys/net/ipv4/tcp_available_congestion_control", "reno cubic bbr\n"),
            ("proc/sys/net/ipv4/tcp_window_scaling", "1\n"),
            ("proc/cpuinfo", CPUINFO),
            ("proc/loadavg", "1.50 0.75 0.50 2/300 4242\n"),
            ("proc/net/snmp", SNMP),
            ("proc/net/route", ROUTE),
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n"),
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", "acpi-cpufreq\n"),
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "1200000\n"),
            ("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "3600000\n"),
            ("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n"),
            ("sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq", "2400000\n"),
            ("sys/devices/system/cpu/cpufreq/scaling_governor", "not a processor\n"),
            ("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n"),
            ("sys/class/net/ens5/mtu", "9001\n"),
            ("sys/class/net/ens5/speed", "25000\n"),
            ("sys/class/net/ens5/operstate", "up\n"),
            ("sys/class/net/ens5/statistics/rx_dropped", "12\n"),
            ("sys/class/net/ens6/mtu", "1500\n"),
            ("sys/class/net/ens6/speed", "-1\n"),
            ("sys/class/net/ens6/operstate", "unknown\n"),
            ("sys/class/net/ens7/operstate", "down\n"),
            ("sys/class/net/lo/operstate", "unknown\n"),
        ],
        &[
            ("ethtool -k ens5", ETHTOOL),
            ("timedatectl show", "Timezone=UTC\nNTP=yes\nNTPSynchronized=no\n"),
        ],
    );
    assert_eq!((report.name.as_str(), report.kernel.as_str()), ("big-one", "6.1.0-18-amd64"));
    assert_eq!((report.sockets.rmem_max, report.sockets.backlog), (Some(212_992), Some(1000)));
    assert_eq!(report.sockets.granted, None, "no socket of a copy can be opened");
    assert_eq!((report.tcp.rmem_max, report.tcp.wmem_max), (Some(6_291_456), Some(4_194_304)));
    assert_eq!((report.tcp.law.as_str(), report.tcp.available.len()), ("cubic", 3));
    assert_eq!(report.tcp.window_scaling, Some(true));
    let cpu = &report.cpu;
    assert_eq!((cpu.model.as_str(), cpu.count, cpu.load), ("Example 9000", 2, Some(1.5)));
    assert_eq!(
        (&cpu.governors[..], &cpu.flags[..]),
        (
            &["powersave".to_owned()][..],
            &["aes".to_owned(), "avx".to_owned(), "avx2".to_owned()][..]
        )
    );
    assert_eq!((cpu.slowest_mhz, cpu.max_mhz), (Some(1200), Some(3600)));
    assert_eq!((cpu.frequency_driver.as_str(), cpu.virtual_machine), ("acpi-cpufreq", false));
    assert_eq!(report.udp, UdpCounters { received: Some(1000), full_buffers: Some(6) });
    let names: Vec<&str> = report.interfaces.iter().map(|i| i.name.as_str()).collect();
    assert_eq!(names, ["ens5", "ens6"]);
    let (first, second) = (&report.interfaces[0], &report.interfaces[1]);
    assert_eq!((first.mtu, first.speed_mbps, first.dropped), (Some(9001), Some(25_000), Some(12)));
    assert_eq!((first.default_route, second.default_route), (true, false));
    assert_eq!((second.speed_mbps, second.offloads.len()), (None, 0));
    let offload = |name| first.offload(name).map(|o| (o.on, o.fixed));
    assert_eq!(offload("generic-receive-offload"), Some((false, false)));
    assert_eq!(offload("tx-udp-segmentation"), Some((false, true)));
    assert_eq!(offload("tx-checksum-ipv4"), None);
    assert_eq!(report.clock.synchronised, Some(false));
    assert_eq!(
        (report.clock.told_by.as_str(), report.clock.source.as_str()),
        ("timedatectl", "tsc")
    );
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<HostReport>(&text).unwrap(), report);
}

#[test]
fn a_host_that_tells_nothing_is_no_failure() {
    let expected =
        HostReport { farhaul: env!("CARGO_PKG_VERSION").to_owned(), ..HostReport::default() };
    assert_eq!(host(&[], &[]), expected);
}

#[test]
fn nonsense_is_left_out() {
    let report = host(
        &[
            ("proc/sys/net/core/rmem_max", "a lot\n"),
            ("proc/sys/net/ipv4/tcp_rmem", "4096 131072\n"),
            ("proc/loadavg", "nan\n"),
            ("proc/net/snmp", "Udp: InDatagrams RcvbufErrors\nUdp: 5\n"),
            ("proc/net/route", "\n"),
            ("sys/class/net/eth0/mtu", "99999999999999999999\n"),
            ("sys/class/net/eth0/speed", "\n"),
            ("sys/class/net/eth0/operstate", "up\n"),
        ],
        &[
            ("ethtool -k eth0", "generic-receive-offload\ngeneric-receive-offload: maybe\n:\n"),
            ("timedatectl show", "NTPSynchronized=perhaps\n"),
        ],
    );
    assert_eq!((report.sockets.rmem_max, report.tcp.rmem_max, report.cpu.load), (None, None, None));
    assert_eq!(report.udp, UdpCounters { received: Some(5), full_buffers: None });
    let expected = Interface { name: "eth0".into(), ..Interface::default() };
    assert_eq!(report.interfaces, [expected]);
    assert_eq!(report.clock.synchronised, None);
}

#[test]
fn clocks_are_told_of_by_whoever_keeps_them() {
    let told = |files: &[(&str, &str)], programs: &[(&str, &str)]| {
        let clock = host(files, programs).clock;
        (clock.synchronised, clock.told_by)
    };
    let file = [("run/systemd/timesync/synchronized", "")];
    assert_eq!(told(&file, &[]), (Some(true), "systemd-timesyncd".to_owned()));
    let chrony = |leap: &str| {
        format!("Reference ID    : 0A000001 ()\nStratum         : 3\nLeap status     : {leap}\n")
    };
    for (leap, right) in [("Normal", true), ("Not synchronised", false), ("Insert second", true)] {
        let told = told(&[], &[("chronyc -n tracking", &chrony(leap))]);
        assert_eq!(told, (Some(right), "chrony".to_owned()));
    }
    let yes = [("timedatectl show", "NTPSynchronized=yes\n")];
    assert_eq!(told(&[], &yes), (Some(true), "timedatectl".to_owned()));
}

/// What another host sends may be of another version: less, or more.
#[test]
fn reports_of_other_versions_are_read() {
    let report: HostReport =
        serde_json::from_str(r#"{"name":"a","cpu":{"count":4},"later":{"x":1}}"#).unwrap();
    assert_eq!((report.name.as_str(), report.cpu.count), ("a", 4));
}
