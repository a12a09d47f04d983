//! `farhaul serve` and `farhaul cp` with it: real processes on the loopback interface.

mod common;

use std::fs;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::home::Home;
use common::process::{LIMIT, Process};
use common::raw::{Raw, order, read_job, with_two, write_job};
use common::server::{EXPORTS, Site, signal};
use farhaul_mover::frame::AbortReason;
use farhaul_mover::transfer::link::{Opened, Purpose};
use farhaul_mover::transfer::session::{NoLink, join, open};
use farhaul_secure::Identity;
use serde_json::{Value, json};

/// Bytes that are no pattern for what packs or skips.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).expect("a directory");
    let name = |entry: io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
    let mut names: Vec<_> = entries.map(|entry| name(entry).into_string().expect("text")).collect();
    names.sort();
    names
}

#[test]
fn what_is_not_there_is_wrong_use_as_over_ssh() {
    let site = Site::new(EXPORTS);
    let _server = site.serve();
    let here = site.path("here/new");
    let missing = site.cp(&[&site.url("in/nowhere"), here.to_str().expect("text")]);
    assert_eq!(missing.code, Some(2), "{missing:#?}");
    assert!(!missing.errors.contains("os error"), "{missing:#?}");
    site.write("in/d/f", "f");
    std::os::unix::fs::symlink("d", site.path("in/link")).expect("a link");
    let through = site.cp(&[&site.url("in/link/f"), here.to_str().expect("text")]);
    assert_eq!(through.code, Some(2), "{through:#?}");
    assert!(through.errors.contains("symbolic link is in the way"), "{through:#?}");
}

#[test]
fn files_go_both_ways_and_are_counted() {
    let site = Site::new(EXPORTS);
    let server = site.serve();
    let data = noise(3_000_000);
    site.write("here/tree/sub/big", &data);
    let tree = site.write("here/tree/small", "small");
    let tree = tree.trim_end_matches("/small");
    let told = site.cp(&["--json", tree, &site.url("in")]).well();
    let report: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!((&report["ok"], &report["encrypted"]), (&json!(true), &json!(true)));
    assert!(report["transport"].as_str().is_some_and(|path| path.starts_with("UDP")), "{report}");
    assert_eq!(site.read("in/tree/sub/big"), data);
    let back = site.path("here/back");
    let back = back.to_str().expect("text");
    let fetched = site.cp(&["--transport", "tcp", "--cc", "cubic", &site.url("in/tree/"), back]);
    assert!(fetched.errors.contains("the server sends by its own law"), "{fetched:#?}");
    fetched.well();
    assert_eq!(site.read("here/back/sub/big"), data);
    assert_eq!(site.read("here/back/small"), b"small");
    // Of the whole export without its name; nothing is moved that is there.
    let report = site.cp(&["--json", &site.url("in"), site.path("here").to_str().unwrap()]).well();
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!((&report["same_files"], &report["moved_files"]), (&json!(2), &json!(0)), "{report}");

    let of = |name: &str, labels: &str| {
        site.metric(&format!("farhaul_{name}{{client=\"alice\",export=\"in\"{labels}}}"))
    };
    site.wait_metric("farhaul_sessions_total{client=\"alice\",export=\"in\",outcome=\"done\"}", 3);
    assert_eq!(of("received_bytes_total", ""), 3_000_005);
    assert_eq!(of("sent_bytes_total", ""), 3_000_005);
    assert_eq!(of("files_total", ",direction=\"in\""), 2);
    assert_eq!(of("files_total", ",direction=\"out\""), 2);
    assert_eq!(of("active_sessions", ""), 0);
    let health: Value = serde_json::from_str(&site.get("/health")).expect("JSON");
    assert_eq!(health["status"], "ok");
    assert!(site.get("/").contains("<th>Sessions ended<td>3"));
    signal(&server, "-TERM");
    let ended = server.finish_well();
    let line = |text: &str| ended.errors.iter().find(|line| line.contains(text));
    let opened = line("session-opened").expect("a line");
    assert!(opened.contains("client=alice export=in direction=in address=127.0.0.1:"), "{opened}");
    let over = line("session-ended").expect("a line");
    assert!(over.contains("outcome=done files=2 bytes=3000005 failed=0 seconds="), "{over}");
    assert!(line(" stopped").is_some());
}

#[test]
fn nobody_is_taken_for_another() {
    let site = Site::new(EXPORTS);
    let server = site.serve();
    site.write("out/f", "content");
    let (url, here) = (site.url("out/f"), site.path("here/f"));
    let here = here.to_str().expect("text");
    // A server that is not known, and nobody to ask.
    let told = site.home.run(&["cp", &url, here]).refused(3);
    assert!(told.contains(&format!("--server-key {}", site.key)), "{told}");
    assert!(!site.home.path("known_servers").exists());
    // Another key than the server has.
    let told = site.home.run(&["cp", "--server-key", &site.client, &url, here]).refused(3);
    assert!(told.contains(&site.key), "{told}");
    // A client that the server does not know.
    let stranger = Home::new();
    let key = stranger.run(&["key", "new"]).well();
    let told = stranger.run(&["cp", "--server-key", &site.key, &url, here]).refused(3);
    assert!(told.contains(&format!("farhaul key allow {}", key.trim())), "{told}");
    assert!(site.metric("farhaul_refused_connections_total{reason=\"key\"}") > 0);
    let logged = server.wait_error_line("reason=key");
    assert!(logged.contains(" address=127.0.0.1:") && logged.contains(key.trim()), "{logged}");
    assert!(!Path::new(here).exists());
    // Once accepted, the server is known, and another in its place is not taken for it.
    site.home.run(&["cp", "--accept-new-server", &url, here]).well();
    fs::remove_file(here).expect("it was copied");
    site.home.run(&["cp", &url, here]).well();
    let known = site.home.read("known_servers");
    assert_eq!(known, format!("{}  {}\n", site.address, site.key));
    site.home.write("known_servers", &known.replace(&site.key, &site.client));
    let told = site.home.run(&["cp", &url, here]).refused(3);
    assert!(told.contains(&format!("somebody else answers there, with the key {}", site.key)));
    let place = site.home.path("known_servers");
    let known = format!("it is known with {} ({}:1)", site.client, place.display());
    assert!(told.contains(&known), "{told}");
    assert!(told.trim_end().ends_with(&format!("run: farhaul key forget {}", site.address)));
    site.home.run(&["key", "forget", &site.address.to_string()]).well();
    assert_eq!(site.home.read("known_servers"), "");
    // Flags about servers where there is none.
    site.home.run(&["cp", "--server-key", &site.key, here, "x"]).refused(2);
    site.home.run(&["cp", &url, &site.url("in/f")]).refused(2);
}

#[test]
fn exports_are_used_as_they_allow() {
    let others = Identity::generate().expect("a key").public_key();
    let hers = format!(
        "{EXPORTS}[client.bob]\nkey = \"{others}\"\n\
         [export.bobs]\npath = \"DIR/out\"\naccess = \"read-write\"\nclients = \"bob\"\n"
    );
    let site = Site::new(&hers);
    let _server = site.serve();
    let file = site.write("here/f", "new");
    site.write("out/f", "content");
    let refused = |args: &[&str], why: &str| {
        let told = site.cp(args).refused(3);
        assert!(told.contains(why), "{told}");
    };
    let to = |export: &str| site.url(export);
    refused(&[&file, &to("out/g")], "the export 'out' is for reading only");
    refused(&[&file, &to("none/g")], "there is no export 'none' for this client");
    refused(&[&file, &to("bobs/g")], "there is no export 'bobs' for this client");
    refused(&[&to("box/f"), &file], "the export 'box' is not for reading");
    refused(&["--overwrite", &file, &to("box/f")], "leave --overwrite out");
    refused(&["--delete", &file, &to("box/f")], "leave --delete out");
    refused(&["--preserve", "owner", &file, &to("in/f")], "this export does not keep owners");
    refused(&["--keep-set-id", &file, &to("in/f")], "leave --keep-set-id");
    assert_eq!((names(&site.path("in")), names(&site.path("out"))), (vec![], vec!["f".into()]));
    // What is left there stays as it is for who may only leave files, and only for them.
    site.cp(&[&file, &to("box/f")]).well();
    site.write("here/f", "changed by now");
    let left = site.cp(&["--json", &file, &to("box/f")]);
    assert!(left.errors.contains("f: not stored: there is something of that name"), "{left:#?}");
    let report: Value = serde_json::from_str(&left.output).expect("JSON");
    assert_eq!((left.code, &report["failed"], &report["ok"]), (Some(5), &json!(1), &json!(false)));
    site.cp(&["--skip-existing", &file, &to("box/f")]).well();
    // A link whose name is taken was not stored either.
    fs::create_dir(site.path("here/links")).expect("a directory");
    std::os::unix::fs::symlink("elsewhere", site.path("here/links/f")).expect("a link");
    let links = format!("{}/", site.path("here/links").display());
    let left = site.cp(&["--json", &links, &to("box/")]);
    let report: Value = serde_json::from_str(&left.output).expect("JSON");
    assert_eq!((left.code, &report["failed"], &report["ok"]), (Some(5), &json!(1), &json!(false)));
    site.cp(&["--skip-existing", &links, &to("box/")]).well();
    assert_eq!(site.read("in/f"), b"new");
    site.cp(&[&file, &to("in/f")]).well();
    assert_eq!(site.read("in/f"), b"changed by now");
    let empty = site.path("here/empty");
    fs::create_dir(&empty).expect("a directory");
    let empty = format!("{}/", empty.display());
    assert_eq!(site.cp(&["--delete", &empty, &to("in/")]).code, Some(5));
    assert_eq!(names(&site.path("in")), ["f"]);
    site.cp(&["--delete", "--allow-empty-source", &empty, &to("in/")]).well();
    assert_eq!(names(&site.path("in")), Vec::<String>::new());
}

#[test]
fn nothing_outside_of_an_export_is_reached() {
    let (site, bob, _) = with_two(EXPORTS);
    let _server = site.serve();
    site.write("secret/key", "secret");
    symlink("../secret", site.path("out/leak")).expect("a link");
    symlink("../secret", site.path("in/leak")).expect("a link");
    symlink("/etc/passwd", site.path("in/passwd")).expect("a link");
    let (here, file) = (site.path("here"), site.write("here/f", "mine"));
    let here = here.to_str().expect("text");
    // Through links of the server's.
    site.cp(&[&site.url("out/leak/key"), here]).refused(2);
    // Nor is it told where exports are.
    for missing in [site.url("out/none"), site.url("out/none/none")] {
        let told = site.cp(&[&missing, here]).refused(2);
        assert!(!told.contains("/proc") && !told.contains(" /"), "{told}");
    }
    site.cp(&[&site.url("out/leak/"), here]).refused(2);
    site.cp(&[&file, &site.url("in/leak/key")]).refused(1);
    site.cp(&[&file, &site.url("in/leak/")]).refused(2);
    assert_eq!(site.read("secret/key"), b"secret");
    assert_eq!(names(&site.path("secret")), ["key"]);
    // A link as such is one; what it leads to is not sent, and what comes takes its place.
    site.cp(&[&site.url("out"), here]).well();
    assert!(site.path("here/leak").is_symlink());
    site.cp(&[&file, &site.url("in/passwd")]).well();
    assert!(!site.path("in/passwd").is_symlink());
    // By what a client of another make might say.
    let bob = Raw::new(&site, bob);
    for path in ["..", "../secret/key", "/etc/passwd", "a/../../secret/key", "/"] {
        for (export, job) in [("out", read_job(path)), ("in", write_job(path))] {
            let (_, opened) = bob.ask(&order(export, job));
            let Opened::No { reason, why } = opened else { panic!("{path} was granted") };
            assert_eq!(reason, AbortReason::Refused);
            assert!(why.contains("leads out of the export"), "{why}");
        }
    }
    for export in ["", "..", "../out", "/", "out/"] {
        let (_, opened) = bob.ask(&order(export, read_job("")));
        assert!(matches!(opened, Opened::No { reason: AbortReason::Refused, .. }), "{export}");
    }
    let (_, opened) = bob.ask(&json!({"export": "out"}));
    assert!(matches!(opened, Opened::No { reason: AbortReason::Refused, .. }));
}

#[test]
fn a_session_is_its_clients_alone() {
    let (site, bob, eve) = with_two(EXPORTS);
    let _server = site.serve();
    let (bob, eve) = (Raw::new(&site, bob), Raw::new(&site, eve));
    let (link, opened) = bob.ask(&order("in", write_job("f")));
    let Opened::Yes { session } = opened else { panic!("{opened:?}") };
    let control = Purpose::Control { received: 0 };
    for purpose in [control, Purpose::Lane { number: 1 }] {
        let refused = join(eve.link(), session, purpose).expect_err("it is another's");
        assert!(matches!(refused, NoLink::Forgotten(_)), "{refused}");
        let refused = join(bob.link(), [0; 16], purpose).expect_err("there is none");
        assert!(matches!(refused, NoLink::Forgotten(_)), "{refused}");
    }
    // On the connection it was asked on, and on another.
    join(link, session, control).expect("it is his");
    join(bob.link(), session, Purpose::Lane { number: 1 }).expect("it is his");
}

#[test]
fn who_says_nothing_is_not_waited_for() {
    let (site, bob, _) = with_two(EXPORTS);
    let _server = site.serve();
    let bob = Raw::new(&site, bob);
    let mut silent = bob.link();
    let read = silent.reader.read(&mut [0; 8]);
    assert!(!matches!(read, Ok(1..)), "{read:?}");
    site.wait_metric("farhaul_refused_connections_total{reason=\"timeout\"}", 1);
    // One transfer a connection.
    let (mut link, opened) = bob.ask(&order("in", write_job("f")));
    assert!(matches!(opened, Opened::Yes { .. }));
    let again = open(&mut link, order("in", write_job("g")).to_string().into_bytes());
    assert!(again.is_err());
    site.wait_metric("farhaul_refused_connections_total{reason=\"protocol\"}", 1);
}

#[test]
fn servers_are_reached_over_ipv6() {
    if TcpListener::bind("[::1]:0").is_err() {
        common::skip!("this host has no IPv6");
    }
    let site = Site::new(EXPORTS);
    let file = site.path("serve.toml");
    let text = fs::read_to_string(&file).expect("a file");
    let port = site.address.port();
    fs::write(&file, text.replace(&site.address.to_string(), &format!("[::]:{port}"))).unwrap();
    let _server = site.serve();
    site.write("out/f", "content");
    for (host, transport) in [("[::1]", "udp"), ("[::1]", "tcp"), ("127.0.0.1", "udp")] {
        let url = format!("farhaul://{host}:{port}/out/f");
        let here = site.path("here/f");
        site.cp(&["--transport", transport, &url, here.to_str().expect("text")]).well();
        assert_eq!(site.read("here/f"), b"content");
        fs::remove_file(here).expect("it was copied");
    }
}

/// Passes TCP on and nothing else, and breaks it when asked to.
struct Passage {
    address: SocketAddr,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Passage {
    fn to(server: SocketAddr) -> Passage {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let streams = Arc::<Mutex<Vec<TcpStream>>>::default();
        let kept = Arc::clone(&streams);
        thread::spawn(move || {
            for near in listener.incoming() {
                let near = near.expect("a connection");
                let far = TcpStream::connect(server).expect("the server");
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let [mut from, mut to] =
                        [from, to].map(|end| end.try_clone().expect("a socket"));
                    thread::spawn(move || {
                        // Either end may go at any time.
                        let _ = io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
                kept.lock().expect("no panic").extend([near, far]);
            }
        });
        Passage { address, streams }
    }

    fn cut(&self) {
        for stream in self.streams.lock().expect("no panic").drain(..) {
            // It may be over.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

#[test]
fn tcp_is_taken_where_udp_does_not_pass_and_an_outage_is_outlived() {
    let site = Site::new(EXPORTS);
    let server = site.serve();
    let passage = Passage::to(site.address);
    let big = site.write("here/big", noise(6_000_000));
    let url = format!("farhaul://{}/in/big", passage.address);
    let running = site.start_cp(&["--rate", "16M", "--verbose", &big, &url]);
    running.wait_error_line("UDP does not pass: going on over TCP");
    site.wait_metric("farhaul_received_bytes_total{client=\"alice\",export=\"in\"}", 2_000_000);
    passage.cut();
    running.wait_error_line("connected again");
    running.finish_well();
    assert_eq!(site.read("in/big"), site.read("here/big"));
    server.wait_error_line("outcome=done");
    assert_eq!(
        site.metric("farhaul_sessions_total{client=\"alice\",export=\"in\",outcome=\"done\"}"),
        1
    );
}

#[test]
fn clients_get_no_more_than_their_limits() {
    let limits = |limits: &str| format!("{EXPORTS}[limits]\n{limits}\n");
    let site = Site::new(&limits("connections = 1"));
    let server = site.serve();
    let big = site.write("here/big", noise(4_000_000));
    let slow = site.start_cp(&["--rate", "8M", &big, &site.url("in/slow")]);
    server.wait_error_line("session-opened");
    // It may be done later, so that it has failed and was not refused.
    let told = site.cp(&[&big, &site.url("in/second")]).refused(1);
    assert!(told.contains("has 1 session already"), "{told}");
    assert_eq!(site.metric("farhaul_refused_connections_total{reason=\"limit\"}"), 1);
    slow.finish_well();
    site.wait_metric("farhaul_sessions_total{client=\"alice\",export=\"in\",outcome=\"done\"}", 1);
    site.cp(&[&big, &site.url("in/second")]).well();

    // Both directions count, and what was used before the limit does.
    site.configure(&limits("bytes = \"11MB\""));
    signal(&server, "-HUP");
    server.wait_error_line("config-reloaded");
    let told = site.cp(&[&big, &site.url("in/third")]).refused(1);
    assert!(told.contains("what this client may move is used up"), "{told}");
    let told = site.cp(&[&site.url("in/slow"), &big]).refused(1);
    assert!(told.contains("what this client may move is used up"), "{told}");
    assert!(!site.path("in/third").exists());
}

#[test]
fn the_rate_holds_in_both_directions() {
    let site = Site::new(&format!("{EXPORTS}[limits]\nrate = \"16M\"\n"));
    let _server = site.serve();
    let big = site.write("here/big", noise(3_000_000));
    let took = |args: &[&str]| {
        let began = Instant::now();
        site.cp(args).well();
        began.elapsed()
    };
    // One and a half seconds, but for what may go at once.
    let least = Duration::from_millis(1200);
    assert!(took(&[&big, &site.url("in/big")]) > least);
    let back = site.path("here/back");
    assert!(took(&[&site.url("in/big"), back.to_str().expect("text")]) > least);
    assert_eq!(site.read("here/back"), site.read("here/big"));
}

#[test]
fn the_configuration_is_read_again() {
    let site = Site::new(EXPORTS);
    let server = site.serve();
    site.write("out/f", "content");
    let (url, here) = (site.url("late/f"), site.path("here/f"));
    let here = here.to_str().expect("text");
    site.cp(&[&url, here]).refused(3);
    // A file that is wrong changes nothing.
    site.configure(&format!("{EXPORTS}[export.late]\npath = \"DIR/out\"\n"));
    signal(&server, "-HUP");
    let told = server.wait_error_line("config-not-reloaded");
    assert!(told.contains("[export.late] needs 'access'"), "{told}");
    site.cp(&[&site.url("out/f"), here]).well();
    let late = "[export.late]\npath = \"DIR/out\"\naccess = \"read\"\nclients = \"alice\"\n";
    site.configure(&format!("log = \"json\"\n{EXPORTS}{late}"));
    signal(&server, "-HUP");
    let told = server.wait_error_line("config-reloaded");
    assert!(told.contains("exports=4 need-a-restart=log"), "{told}");
    site.cp(&[&url, here]).well();
    assert_eq!(site.metric("farhaul_config_reloads_total{outcome=\"failed\"}"), 1);
    assert_eq!(site.metric("farhaul_config_reloads_total{outcome=\"done\"}"), 1);
    // Who is not allowed any more is in the middle of something.
    let big = site.write("here/big", noise(8_000_000));
    let running = site.start_cp(&["--rate", "8M", &big, &site.url("in/big")]);
    site.wait_metric("farhaul_active_sessions{client=\"alice\",export=\"in\"}", 1);
    let other = Identity::generate().expect("a key").public_key().to_string();
    let text = fs::read_to_string(site.path("serve.toml")).expect("a file");
    fs::write(site.path("serve.toml"), text.replace(&site.client, &other)).expect("a file");
    signal(&server, "-HUP");
    let ended = running.finish();
    assert_eq!(ended.code, Some(3), "{ended:#?}");
    site.cp(&[&url, here]).refused(3);
}

#[test]
fn running_copies_feel_the_new_configuration() {
    let limited = |rate: &str, exports: &str| format!("{exports}[limits]\nrate = \"{rate}\"\n");
    let site = Site::new(&limited("40M", EXPORTS));
    let server = site.serve();
    let big = site.write("here/big", noise(48_000_000));
    let received = "farhaul_received_bytes_total{client=\"alice\",export=\"in\"}";
    let reload = |config: &str| {
        let done = "farhaul_config_reloads_total{outcome=\"done\"}";
        let before = site.metric(done);
        site.configure(config);
        signal(&server, "-HUP");
        site.wait_metric(done, before + 1);
    };
    let without =
        EXPORTS.replace("[export.in]\npath = \"DIR/in\"", "[export.in2]\npath = \"DIR/in\"");
    let only_reading = EXPORTS.replace("\"read-write\"", "\"read\"");
    for (exports, why) in [
        (&without, "the export 'in' is not there for this client any more"),
        (&only_reading, "the export 'in' may not be changed so any more"),
    ] {
        reload(&limited("40M", EXPORTS));
        let before = site.metric(received);
        let running = site.start_cp(&[&big, &site.url("in/big")]);
        site.wait_metric(received, before + 1);
        reload(&limited("40M", exports));
        let ended = running.finish();
        assert_eq!(ended.code, Some(3), "{ended:#?}");
        assert!(ended.errors.last().is_some_and(|line| line.contains(why)), "{ended:#?}");
    }
    // What it may go on with goes on, as fast as it may now: at first it would take minutes.
    reload(&limited("2M", EXPORTS));
    let before = site.metric(received);
    let running = site.start_cp(&["--streams", "1", &big, &site.url("in/other")]);
    site.wait_metric(received, before + 1);
    reload(&limited("10G", EXPORTS));
    running.finish_well();
    assert_eq!(site.read("in/other"), site.read("here/big"));
}

#[test]
fn a_shutdown_lets_running_copies_end() {
    let site = Site::new(&format!("grace = \"60s\"\n{EXPORTS}"));
    let server = site.serve();
    let big = site.write("here/big", noise(4_000_000));
    let running = site.start_cp(&["--rate", "8M", &big, &site.url("in/big")]);
    server.wait_error_line("session-opened");
    signal(&server, "-TERM");
    server.wait_error_line(" stopping ");
    let told = site.cp(&[&big, &site.url("in/late")]).refused(1);
    assert!(told.contains("being stopped"), "{told}");
    running.finish_well();
    server.finish_well();
    assert_eq!(site.read("in/big"), site.read("here/big"));
}

#[test]
fn a_shutdown_does_not_wait_for_ever_and_a_second_signal_not_at_all() {
    let site = Site::new(&format!("grace = \"0s\"\n{EXPORTS}"));
    let server = site.serve();
    let big = site.write("here/big", noise(8_000_000));
    let running = site.start_cp(&["--rate", "8M", &big, &site.url("in/big")]);
    site.wait_metric("farhaul_received_bytes_total{client=\"alice\",export=\"in\"}", 2_000_000);
    signal(&server, "-TERM");
    let ended = running.finish();
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    let last = ended.errors.last().expect("a line");
    assert!(last.contains("the server is being stopped; the same command goes on"), "{last}");
    server.finish_well();

    site.configure(&format!("grace = \"60s\"\n{EXPORTS}"));
    let server = site.serve();
    let _running = site.start_cp(&["--rate", "8M", &big, &site.url("in/big")]);
    server.wait_error_line("session-opened");
    signal(&server, "-TERM");
    server.wait_error_line(" stopping ");
    signal(&server, "-INT");
    assert_eq!(server.finish().code, Some(130));
}

#[test]
fn a_copy_goes_on_with_a_server_that_was_killed() {
    let site = Site::new(EXPORTS);
    let server = site.serve();
    let big = site.write("here/big", noise(12_000_000));
    let args = ["--transport", "tcp", "--json", &big, &site.url("in/big")];
    let slow: Vec<_> = ["--rate", "16M"].iter().chain(&args).copied().collect();
    let running = site.start_cp(&slow);
    site.wait_metric("farhaul_received_bytes_total{client=\"alice\",export=\"in\"}", 6_000_000);
    signal(&server, "-KILL");
    drop(server);
    let _server = site.serve();
    // It knows nothing of the copy any more, and is asked for the rest.
    let ended = running.finish_well();
    let told = |text: &str| ended.errors.iter().any(|line| line.contains(text));
    assert!(told("asking for the rest of it"), "{ended:#?}");
    let report = ended.json();
    // This command has brought all of it, and little of it twice.
    let counts = (&report["moved_bytes"], &report["resumed_bytes"]);
    assert_eq!(counts, (&json!(12_000_000), &json!(0)), "{report}");
    assert!(report["data_bytes"].as_u64().is_some_and(|bytes| bytes < 20_000_000), "{report}");
    assert_eq!(site.read("in/big"), site.read("here/big"));
}

#[test]
fn a_client_that_was_killed_is_not_in_its_own_way() {
    let site = Site::new(&format!("{EXPORTS}[limits]\nconnections = 1\n"));
    let server = site.serve();
    let big = site.write("here/big", noise(12_000_000));
    for transport in ["tcp", "udp"] {
        let target = site.url(&format!("in/{transport}"));
        let args = ["--transport", transport, "--json", &big, &target];
        let slow: Vec<_> = ["--rate", "16M"].iter().chain(&args).copied().collect();
        let running = site.start_cp(&slow);
        let received = "farhaul_received_bytes_total{client=\"alice\",export=\"in\"}";
        site.wait_metric(received, site.metric(received) + 6_000_000);
        signal(&running, "-KILL");
        drop(running);
        let report: Value = serde_json::from_str(&site.cp(&args).well()).expect("JSON");
        let resumed = report["resumed_bytes"].as_u64();
        assert!(resumed.is_some_and(|bytes| bytes > 2_000_000), "{report}");
        assert_eq!(site.read(&format!("in/{transport}")), site.read("here/big"));
        site.wait_metric("farhaul_active_sessions{client=\"alice\",export=\"in\"}", 0);
    }
    // Whatever the next command is about.
    let running = site.start_cp(&["--transport", "udp", "--rate", "8M", &big, &site.url("in/x")]);
    let received = "farhaul_received_bytes_total{client=\"alice\",export=\"in\"}";
    site.wait_metric(received, site.metric(received) + 1);
    signal(&running, "-KILL");
    drop(running);
    site.cp(&[&big, &site.url("in/y")]).well();
    signal(&server, "-TERM");
    let ended = server.finish_well();
    let left = |line: &&String| line.contains("outcome=interrupted") && line.contains("begun anew");
    assert_eq!(ended.errors.iter().filter(left).count(), 3, "{ended:#?}");
}

#[test]
fn data_travels_unencrypted_only_where_that_is_allowed() {
    let site = Site::new(EXPORTS);
    let server = site.serve();
    site.write("out/f", "content");
    let (url, here) = (site.url("out/f"), site.path("here/f"));
    let args = ["--plain", &url, here.to_str().expect("text")];
    let told = site.cp(&args).refused(3);
    assert!(told.contains("--plain"), "{told}");
    site.configure(&format!("plain = true\n{EXPORTS}"));
    signal(&server, "-HUP");
    server.wait_error_line("config-reloaded");
    site.cp(&args).well();
    assert_eq!(site.read("here/f"), b"content");
    assert!(server.wait_error_line("session-opened").contains("plain=true"));
    // Others do not notice.
    site.cp(&["--overwrite", &url, here.to_str().expect("text")]).well();
    assert!(server.wait_error_line("plain=false").contains("session-opened"));
}

#[test]
fn the_file_is_checked_and_the_key_is_printed() {
    let site = Site::new(EXPORTS);
    let path = site.path("serve.toml");
    let path = path.to_str().expect("text");
    let told = site.home.run(&["serve", "--config", path, "--check"]).well();
    assert!(told.ends_with("is right: clients: 1, exports: 3\n"), "{told}");
    assert_eq!(
        site.home.run(&["serve", "--config", path, "--print-key"]).well(),
        site.key.clone() + "\n"
    );
    site.configure("plan = true");
    let told = site.home.run(&["serve", "--config", path, "--check"]).refused(2);
    assert!(told.contains("did you mean 'plain'?"), "{told}");
    assert!(site.home.run(&["serve", "--config", path]).refused(2).contains("serve.toml:4: "));
}

#[test]
fn files_that_others_can_write_are_not_served_by() {
    let site = Site::new(EXPORTS);
    let path = site.path("serve.toml");
    let config = path.to_str().expect("text");
    let check = |file: &str, command: &str| {
        let file = site.path(file);
        let mode = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode));
        mode(0o666).expect("a mode");
        let told = site.home.run(&["serve", "--config", config, "--check"]).refused(2);
        assert!(told.contains("mode 0666") && told.contains(command), "{told}");
        mode(0o600).expect("a mode");
    };
    check("serve.toml", &format!("chmod go-w {config}"));
    check("identity", "chmod 600 ");
    site.home.run(&["serve", "--config", config, "--check"]).well();
}

#[test]
fn the_service_manager_is_told() {
    let site = Site::new(EXPORTS);
    let socket = site.path("notify");
    let manager = UnixDatagram::bind(&socket).expect("a socket");
    manager.set_read_timeout(Some(LIMIT)).expect("a time-out");
    let mut command = Command::new(env!("CARGO_BIN_EXE_farhaul"));
    command.arg("serve").arg("--config").arg(site.path("serve.toml"));
    command.env("NOTIFY_SOCKET", &socket).env("WATCHDOG_USEC", "600000");
    let server = Process::with_lines(command, "farhaul serve".into(), LIMIT);
    let any = || {
        let mut state = [0; 64];
        let count = manager.recv(&mut state).expect("a state");
        String::from_utf8_lossy(&state[..count]).into_owned()
    };
    const ALIVE: &str = "WATCHDOG=1";
    let told = || std::iter::repeat_with(any).find(|state| state != ALIVE).expect("a state");
    assert_eq!(told(), "READY=1");
    // It is told again and again that all is well.
    assert_eq!((any(), any()), (ALIVE.into(), ALIVE.into()));
    signal(&server, "-HUP");
    assert_eq!((told(), told()), ("RELOADING=1".into(), "READY=1".into()));
    signal(&server, "-TERM");
    assert_eq!(told(), "STOPPING=1");
    server.finish_well();
}
