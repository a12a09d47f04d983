//! Tests of `farhaul doctor`: a host alone, a path of which everything is known, a host over ssh.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use common::path::Path;
use common::process::Process;
use serde_json::Value;

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

#[test]
fn a_host_is_looked_at_and_left_as_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().to_str().expect("a name");
    let ended = Process::farhaul(&["doctor", "--json", "--dir", dir]).finish_well();
    let report = ended.json();
    let local = &report["local"];
    assert!(local["kernel"].as_str().is_some_and(|kernel| !kernel.is_empty()), "{local}");
    assert!(number(&local["sockets"]["granted"]["receive"]) > 0.0);
    for speed in ["aes_seal", "aes_open", "hash", "copy"] {
        assert!(number(&local["speeds"][speed]) > 1e6, "{speed}: {local}");
    }
    for speed in ["read", "write"] {
        assert!(number(&local["disk"][speed]) > 0.0, "{speed}: {local}");
    }
    assert!(number(&report["diagnosis"]["expected"]) > 0.0);
    assert!(report["peer"].is_null() && report["path"].is_null());
    assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 0);
    for told in ["settings", "processor", "disk"] {
        assert!(ended.errors.iter().any(|line| line.ends_with(told)), "{told}: {ended:#?}");
    }
}

#[test]
fn a_folder_that_is_not_there_is_told_in_the_report() {
    let ended = Process::farhaul(&["doctor", "--dir", "/no/such/folder"]).finish_well();
    let told = ended.line("  failed");
    assert!(told.contains("/no/such/folder") && told.contains("No such file"), "{ended:#?}");
}

/// What the relay does is what the doctor finds.
#[test]
fn a_path_of_which_everything_is_known() {
    let _turn = common::turn();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("secret");
    write_secret(&file, "0123456789abcdef0123456789abcdef\n");
    let file = file.to_str().expect("a name");
    let responder =
        Process::farhaul(&["doctor", "--respond", "127.0.0.1:0", "--secret-file", file]);
    let relay = Path::new("50M", 20).loss("2%").to(responder.listening_at());
    let at = relay.local_addr().to_string();
    let args = ["doctor", "--path", &at, "--secret-file", file, "--no-disk", "--json"];
    let report = Process::farhaul(&args).finish_well().json();
    let path = &report["path"];
    assert_eq!(path["reach"], "both");
    // A busy machine adds to it, and takes nothing off.
    let rtt = number(&path["rtt"]["min_ms"]);
    assert!((39.9..60.0).contains(&rtt), "{path}");
    for way in ["forward", "back"] {
        // Loopback takes any size, and the relay does too.
        assert_eq!(path[way]["mtu"], 9000, "{path}");
        let lost = number(&path[way]["lost"]) / number(&path[way]["sent"]);
        assert!((0.002..0.06).contains(&lost), "{path}");
    }
    let capacity = number(&path["forward"]["capacity"]);
    assert!((35e6..65e6).contains(&capacity), "{path}");
    assert!(number(&path["clock_offset_ms"]).abs() < 20.0, "one clock: {path}");
    let advice = report["diagnosis"]["advice"].as_array().expect("a list");
    let told =
        |text: &str| advice.iter().any(|a| a["found"].as_str().is_some_and(|f| f.contains(text)));
    assert!(told("of packets are lost there"), "{advice:#?}");
    let bottleneck = report["diagnosis"]["bottleneck"].as_str().expect("a text");
    assert!(bottleneck.contains("the network path"), "{bottleneck}");

    responder.interrupt();
    let ended = responder.finish();
    assert!(ended.errors.iter().any(|line| line.contains("questions were answered")), "{ended:#?}");
}

/// For its owner alone.
fn write_secret(file: &std::path::Path, text: &str) {
    fs::write(file, text).expect("a file");
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).expect("a mode");
}

#[test]
fn whoever_has_another_secret_gets_no_answer() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        let file = folder.path().join(name);
        write_secret(&file, text);
        file.to_str().expect("a name").to_owned()
    };
    let (ours, theirs) = (file("a", "0123456789abcdef"), file("b", "fedcba9876543210"));
    let responder =
        Process::farhaul(&["doctor", "--respond", "127.0.0.1:0", "--secret-file", &ours]);
    let at = responder.listening_at().to_string();
    let args = ["doctor", "--path", &at, "--secret-file", &theirs, "--no-disk"];
    let ended = Process::farhaul(&args).finish();
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    let all = ended.lines.join("\n");
    assert!(all.contains("no answer came") && all.contains("doctor --respond"), "{all}");
    // Nothing is promised of a path that nobody has seen.
    assert!(all.contains("Whether TCP passes was not tried"), "{all}");
    assert!(!all.contains("--transport tcp") && !all.contains("net.ipv4.tcp"), "{all}");
    let last = ended.errors.last().expect("a line");
    assert!(last.contains(&format!("nothing has answered at {at}")), "{last}");
}

#[test]
fn bad_usage_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let short = folder.path().join("short");
    write_secret(&short, "guess me");
    let short = short.to_str().expect("a name");
    let open = folder.path().join("open");
    write_secret(&open, "0123456789abcdef");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).expect("a mode");
    let open = open.to_str().expect("a name");
    let cases: [(&[&str], i32, &str); 8] = [
        (&["--path", "127.0.0.1:9"], 2, "--secret-file"),
        (&["--path", "127.0.0.1:9", "--secret-file", short], 2, "16 or more"),
        (
            &["--path", "127.0.0.1:9", "--secret-file", "/no/such/file"],
            2,
            "there is no file /no/such/file",
        ),
        (&["--path", "127.0.0.1:9", "--secret-file", open], 2, "chmod 600 "),
        (&["--path", "nowhere", "--secret-file", short], 2, "16 or more"),
        (&["--", "-oProxyCommand=x"], 2, "is no host"),
        (&["farhaul://host:4200/export"], 2, "is the address of a server"),
        (&["host", "--respond", "127.0.0.1:0"], 2, "cannot be used with"),
    ];
    for (args, code, text) in cases {
        let ended = Process::farhaul(&[&["doctor"], args].concat()).finish();
        assert_eq!(ended.code, Some(code), "{args:?}: {ended:#?}");
        let told = ended.errors.join("\n");
        assert!(told.contains(text), "{args:?}: {told}");
    }
}

/// A program in ssh's place runs the other host's farhaul on this one.
#[test]
fn a_host_over_ssh() {
    let _turn = common::turn();
    let folder = tempfile::tempdir().expect("a folder");
    let ssh = folder.path().join("as-if");
    fs::write(&ssh, "#!/bin/sh\necho Welcome to $1\nexec sh -c \"$2\"\n").expect("a file");
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).expect("mine");
    let ssh = ssh.to_str().expect("a name");
    let farhaul = env!("CARGO_BIN_EXE_farhaul");
    let args = ["doctor", "127.0.0.1", "--ssh", ssh, "--remote-farhaul", farhaul, "--no-disk"];
    let report = Process::farhaul(&[&args[..], &["--json"]].concat()).finish_well().json();
    assert_eq!(report["peer"]["kernel"], report["local"]["kernel"]);
    assert!(report["peer"]["disk"].is_null());
    assert_eq!(report["peer_called"], "127.0.0.1");
    assert_eq!(report["path"]["reach"], "both");
    assert_eq!(report["path"]["forward"]["sent"], 1000);

    let missing = ["doctor", "127.0.0.1", "--ssh", ssh, "--remote-farhaul", "/no/such/farhaul"];
    let ended = Process::farhaul(&missing).finish();
    assert_ne!(ended.code, Some(0), "{ended:#?}");
    assert!(ended.errors.join("\n").contains("/no/such/farhaul"), "{ended:#?}");

    // As of farhaul cp, the environment and the settings count, too.
    let config = folder.path().join("config.toml");
    fs::write(&config, "remote-farhaul = \"/of/settings\"\n").expect("a file");
    for (variable, told) in [("", "/of/settings"), ("/of/environment", "/of/environment")] {
        let mut command = std::process::Command::new(farhaul);
        command.args(["doctor", "127.0.0.1"]).env("FARHAUL_SSH", ssh);
        command.env("FARHAUL_CONFIG", &config).env("FARHAUL_REMOTE_FARHAUL", variable);
        let output = command.output().expect("it runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_ne!(output.status.code(), Some(0), "{errors}");
        assert!(errors.contains(told), "{told}: {errors}");
    }
}

#[test]
fn an_agent_is_nothing_to_start_by_hand() {
    let ended = Process::farhaul(&["agent"]).finish();
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    assert!(ended.errors.join("\n").contains("not by hand"), "{ended:#?}");
}
