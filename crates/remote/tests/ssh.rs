//! The bootstrap over a real ssh, with this test program itself as the agent.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
#[path = "../../cli/tests/common/sshd.rs"]
mod sshd;

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc};
use std::thread;

use farhaul_remote::bootstrap::{self, Expected, Greeting, Hello, Start};
use farhaul_remote::{
    DialConfig, Dialer, Link, ListenConfig, Listening, Received, Remote, SshCommand, SshError,
    Terms, Transport, agent, configured_hostname,
};
use farhaul_secure::{Identity, Trust};
use serde_json::{Value, json};
use tempfile::TempDir;

use common::{TIME, dial};
use sshd::Sshd;

/// Set where this program is the agent.
const AGENT: &str = "FARHAUL_TEST_AGENT";

/// An sshd and the command that reaches it, or none and the reason told.
fn ssh() -> Option<(Sshd, SshCommand)> {
    match Sshd::start() {
        Ok(sshd) => {
            let command = SshCommand::parse(&sshd.ssh_command).unwrap();
            Some((sshd, command))
        }
        Err(why) => {
            assert!(std::env::var_os("FARHAUL_NO_SKIP").is_none(), "must not be skipped: {why}");
            let thread = std::thread::current();
            let line = format!("\nskipped: {}: {why}\n", thread.name().unwrap_or("test"));
            std::io::stderr().write_all(line.as_bytes()).unwrap();
            None
        }
    }
}

/// A program for the other host, by a name that a shell would take apart.
fn script(folder: &TempDir, text: &str) -> String {
    let path: PathBuf = folder.path().join("a far; haul");
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// This test program as an agent. What its test harness prints is the noise of a shell.
fn agent_script(folder: &TempDir) -> String {
    let own = std::env::current_exe().unwrap();
    let command = format!(
        "[ \"$1\" = agent ] || exit 9\n{AGENT}=1 exec '{}' --exact agent_process --ignored --nocapture",
        own.display()
    );
    script(folder, &command)
}

fn start(ssh: &SshCommand, remote: &str, hello: &Hello) -> Result<Remote, SshError> {
    Remote::start(ssh, "127.0.0.1", remote, hello, &AtomicBool::new(false))
}

/// What an agent answers to a script.
fn failure(ssh: &SshCommand, text: &str) -> SshError {
    let folder = tempfile::tempdir().unwrap();
    let (_, secret, session) = bootstrap::fresh().unwrap();
    let hello = Hello::new(None, secret, session, Value::Null);
    start(ssh, &script(&folder, text), &hello).unwrap_err()
}

fn next(remote: &Remote) -> Received {
    remote.received().recv_timeout(TIME).unwrap()
}

/// What the other side echoes of `text`.
fn echoed(link: Link, text: &[u8]) {
    let (mut reader, mut writer, handle) = link.into_parts();
    writer.write_all(text).unwrap();
    writer.flush().unwrap();
    let mut back = vec![0; text.len()];
    reader.read_exact(&mut back).unwrap();
    assert_eq!(back, text);
    handle.close(TIME).unwrap();
}

/// Sends back what comes until the end; returns how much it was.
fn echo(link: Link) -> u64 {
    let (mut reader, mut writer, handle) = link.into_parts();
    let (mut count, mut buf) = (0, [0; 1 << 10]);
    while let Ok(read @ 1..) = reader.read(&mut buf) {
        writer.write_all(&buf[..read]).unwrap();
        writer.flush().unwrap();
        count += read as u64;
    }
    let _ = handle.close(TIME);
    count
}

/// The agent of other tests, in a process of its own.
#[test]
#[ignore = "the agent of the other tests, which start it"]
fn agent_process() {
    assert!(std::env::var_os(AGENT).is_some(), "only other tests start this");
    let (to, links) = mpsc::channel();
    let answer = |hello: Hello| {
        hello.check()?;
        let (identity, ..) = bootstrap::fresh().map_err(|error| error.to_string())?;
        let (expected, key) = (Expected::new(), identity.public_key());
        if let Some(peer) = hello.key {
            expected.set(peer);
        }
        let (trust, context) = (expected.trust(), hello.context());
        let terms = Terms { identity, trust, context, plain: hello.plain };
        let deliver = move |link| drop(to.send(link));
        let listening = Listening::bind(&ListenConfig::new(terms.clone()), deliver)
            .map_err(|error| error.to_string())?;
        let greeting = Greeting {
            udp_port: listening.udp_port(),
            tcp_port: listening.tcp_port(),
            addresses: listening.addresses(),
            ..Greeting::new(key)
        };
        Ok::<_, String>((greeting, (hello.body, terms, expected, listening)))
    };
    let ((body, terms, expected, _listening), controller) = agent::serve_stdio(answer).unwrap();
    let (sender, received) = controller.into_parts();
    if body["outlives"] == true {
        // As in an outage: the controller goes, the transfer does not.
        let link = links.recv_timeout(TIME).unwrap();
        assert_eq!(received.iter().last(), Some(Received::Closed(None)));
        // Whether it fails or not, it ends nothing.
        let _ = sender.send(&"gone");
        echo(link);
    } else if body["third_party"] == true {
        let Ok(Received::Message(start)) = received.recv_timeout(TIME) else { panic!("a start") };
        match serde_json::from_value(start).unwrap() {
            Start::Listen { peer_key } => {
                expected.set(peer_key);
                sender.send(&"ready").unwrap();
                let count = echo(links.recv_timeout(TIME).unwrap());
                sender.send(&json!({ "echoed": count })).unwrap();
            }
            Start::Dial { peer_key, udp, tcp } => {
                let terms = Terms { trust: Trust::Only(peer_key), ..terms };
                let dialer = Dialer::new(DialConfig::new(udp, tcp, terms));
                echoed(dial(&dialer).unwrap(), b"from one agent to another");
                sender.send(&"done").unwrap();
            }
        }
    } else {
        sender.send(&json!({ "started": body })).unwrap();
        thread::spawn(move || {
            received.iter().last();
            std::process::exit(0);
        });
        for link in links.iter().take(2) {
            echo(link);
        }
    }
    std::process::exit(0);
}

/// A controller's hello, and the terms of links with the agent it has greeted.
fn hello(body: Value) -> (Hello, impl Fn(&Remote) -> Terms) {
    let (identity, secret, session) = bootstrap::fresh().unwrap();
    let hello = Hello::new(Some(identity.public_key()), secret, session, body);
    let context = hello.context();
    let terms = move |remote: &Remote| Terms {
        identity: Arc::clone(&identity),
        trust: Trust::Only(remote.greeting().key.unwrap()),
        context: context.clone(),
        plain: false,
    };
    (hello, terms)
}

#[test]
fn an_agent_is_started_found_and_linked_with() {
    let Some((_sshd, ssh)) = ssh() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (hello, terms) = hello(json!({ "role": "sink" }));
    let mut remote = start(&ssh, &agent_script(&folder), &hello).unwrap();
    assert_eq!(next(&remote), Received::Message(json!({ "started": { "role": "sink" } })));
    let (udp, tcp) = remote.candidates();
    assert_eq!(udp[0].ip().to_string(), "127.0.0.1", "where ssh went: {udp:?}");
    let tcp = tcp.iter().find(|addr| addr.ip().is_loopback()).copied().expect("a loopback address");
    for transport in [Transport::Udp, Transport::Tcp] {
        // One candidate each: the agent takes two links, and on a slow host several would answer.
        let config = DialConfig::new(vec![udp[0]], vec![tcp], terms(&remote));
        let dialer = Dialer::new(DialConfig { transport, ..config });
        echoed(dial(&dialer).unwrap(), b"there and back");
    }
    assert_eq!(next(&remote), Received::Closed(None));
    assert!(remote.exited().is_none_or(|status| status.success()));
    assert!(remote.close(TIME).unwrap().success());
}

#[test]
fn who_only_knows_the_ports_is_not_let_in() {
    let Some((_sshd, ssh)) = ssh() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (hello, terms) = hello(Value::Null);
    let remote = start(&ssh, &agent_script(&folder), &hello).unwrap();
    let (udp, tcp) = remote.candidates();
    let identity = Arc::new(Identity::generate().unwrap());
    let terms = Terms { identity, ..terms(&remote) };
    let error = dial(&Dialer::new(DialConfig::new(udp, tcp, terms))).unwrap_err();
    assert!(error.is_authentication(), "{error}");
}

#[test]
fn an_agent_outlives_the_ssh_that_started_it() {
    let Some((_sshd, ssh)) = ssh() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (hello, terms) = hello(json!({ "outlives": true }));
    let remote = start(&ssh, &agent_script(&folder), &hello).unwrap();
    let (udp, tcp) = remote.candidates();
    let link = dial(&Dialer::new(DialConfig::new(udp, tcp, terms(&remote)))).unwrap();
    drop(remote);
    let (mut reader, mut writer, handle) = link.into_parts();
    writer.write_all(b"still there?").unwrap();
    writer.flush().unwrap();
    let mut back = [0; 12];
    reader.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"still there?");
    handle.close(TIME).unwrap();
}

#[test]
fn two_agents_are_brought_together() {
    let Some((_sshd, ssh)) = ssh() else { return };
    let (_, secret, session) = bootstrap::fresh().unwrap();
    let body = json!({ "third_party": true });
    let hello = Hello::new(None, secret, session, body);
    let folder = tempfile::tempdir().unwrap();
    let remote = agent_script(&folder);
    let [listener, dialer] = [0, 1].map(|_| start(&ssh, &remote, &hello).unwrap());
    let key = |remote: &Remote| remote.greeting().key.unwrap();
    listener.sender().send(&Start::Listen { peer_key: key(&dialer) }).unwrap();
    assert_eq!(next(&listener), Received::Message(json!("ready")));
    let (udp, tcp): (Vec<SocketAddr>, Vec<SocketAddr>) = listener.candidates();
    dialer.sender().send(&Start::Dial { peer_key: key(&listener), udp, tcp }).unwrap();
    assert_eq!(next(&dialer), Received::Message(json!("done")));
    assert_eq!(next(&listener), Received::Message(json!({ "echoed": 25 })));
}

#[test]
fn what_goes_wrong_on_the_other_host_is_told() {
    let Some((sshd, ssh)) = ssh() else { return };
    let (_, secret, session) = bootstrap::fresh().unwrap();
    let hello = Hello::new(None, secret, session, Value::Null);
    let missing = start(&ssh, "/no/such/farhaul", &hello).unwrap_err();
    assert!(matches!(missing, SshError::NotInstalled { .. }), "{missing}");
    let error = failure(&ssh, "echo Welcome; echo 'FARHAUL1 {\"version\":\"9.9\",\"protocol\":0}'");
    assert!(matches!(&error, SshError::Version(text) if text.contains("9.9")), "{error}");
    let error = failure(&ssh, "echo 'Your password expires soon.'; exit 3");
    assert!(error.to_string().contains("'Your password expires soon.'"), "{error}");
    let nobody = ssh.words().join(" ").replace(&format!("-p {}", sshd.port), "-p 1");
    let nobody = SshCommand::parse(&nobody).unwrap();
    let unreachable = start(&nobody, "127.0.0.1", &hello).unwrap_err();
    assert!(matches!(unreachable, SshError::Failed(_)), "{unreachable}");
}

#[test]
fn a_greeting_is_found_behind_what_a_login_script_says() {
    let Some((_sshd, ssh)) = ssh() else { return };
    let folder = tempfile::tempdir().unwrap();
    let agent = agent_script(&folder);
    let noisy = tempfile::tempdir().unwrap();
    let remote = script(&noisy, &format!("echo Welcome; seq 500; exec '{agent}' \"$@\""));
    let (hello, _) = hello(Value::Null);
    let remote = start(&ssh, &remote, &hello).unwrap();
    assert!(remote.greeting().udp_port.is_some());
}

#[test]
fn ssh_tells_the_host_of_an_alias() {
    let Some((_sshd, ssh)) = ssh() else { return };
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config");
    fs::write(&config, "Host alias\n  HostName 192.0.2.7\n").unwrap();
    let with_alias = ssh.words().join(" ").replace("-F none", &format!("-F {}", show(&config)));
    let ssh = SshCommand::parse(&with_alias).unwrap();
    assert_eq!(configured_hostname(&ssh, "alias").as_deref(), Some("192.0.2.7"));
    assert_eq!(configured_hostname(&ssh, "me@other").as_deref(), Some("other"));
}

fn show(path: &Path) -> &str {
    path.to_str().unwrap()
}
