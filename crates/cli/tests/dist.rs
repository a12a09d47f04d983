//! What lies in `dist` for those who install a server.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use common::skip;

const UNIT: &str = include_str!("../../../dist/farhaul-serve.service");

/// The keys of the unit's [Service], with their values.
fn service() -> BTreeMap<&'static str, Vec<&'static str>> {
    let (_, rest) = UNIT.split_once("[Service]\n").expect("a section");
    let (section, _) = rest.split_once("\n[Install]").expect("the next section");
    let mut keys = BTreeMap::<_, Vec<_>>::new();
    for line in section.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (key, value) = line.split_once('=').expect(line);
        keys.entry(key).or_default().push(value);
    }
    keys
}

#[test]
fn the_unit_confines_the_server() {
    let service = service();
    for (key, value) in [
        ("NoNewPrivileges", "yes"),
        ("ProtectSystem", "strict"),
        ("ProtectHome", "yes"),
        ("PrivateDevices", "yes"),
        ("MemoryDenyWriteExecute", "yes"),
        ("RestrictSUIDSGID", "yes"),
        ("KeyringMode", "private"),
        ("LimitCORE", "0"),
        ("MemoryMax", "2G"),
        ("TasksMax", "4096"),
        ("CapabilityBoundingSet", ""),
        ("DynamicUser", "no"),
        ("ExecReload", "/bin/kill -HUP $MAINPID"),
    ] {
        assert_eq!(service.get(key), Some(&vec![value]), "{key}");
    }
    // What the server takes from itself it must be allowed to.
    let calls = service["SystemCallFilter"].join(" ");
    for call in
        ["landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self", "seccomp"]
    {
        assert!(calls.split(' ').any(|here| here == call), "{call}");
    }
    assert!(service["ExecStart"][0].ends_with("farhaul serve --config /etc/farhaul/serve.toml"));
    // The sample's export that can be written to is one that the unit lets it write to.
    let sample = include_str!("../../../dist/serve.toml");
    assert!(sample.contains(&format!("path = \"{}\"", service["ReadWritePaths"][0])));
}

#[test]
fn systemd_has_nothing_against_the_unit() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("farhaul-serve.service");
    // Nothing is installed here.
    let unit = UNIT.replace("/usr/bin/farhaul serve", "/bin/true serve");
    let unit: String = unit.split_inclusive('\n').filter(|l| !l.starts_with("Docu")).collect();
    fs::write(&path, unit).expect("a file");
    let verified = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path).output();
    let Ok(verified) = verified else { skip!("no systemd-analyze") };
    let told = String::from_utf8_lossy(&verified.stderr);
    // What it says of units of this host is not meant.
    let told: Vec<_> = told.lines().filter(|line| line.contains("farhaul")).collect();
    assert!(told.is_empty(), "{told:#?}");
}
