//! `farhaul serve` and clients that it knows, and that mean no good.

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use common::process::{LIMIT, status, wait};
use common::raw::{Control, Raw, order, read_job, with_two, write_job};
use common::server::{EXPORTS, Site, keep_off_midnight, signal};
use farhaul_mover::frame::Attributes;
use farhaul_mover::transfer::block::{Block, Piece};
use farhaul_mover::transfer::journal::Origin;
use farhaul_mover::transfer::link::{Link, LinkHandle, Opened, Purpose};
use farhaul_mover::transfer::message::{Entry, Message, Verdict, What};
use farhaul_mover::transfer::pace::LEAST_RATE;
use farhaul_mover::transfer::session::{MAX_LANES, join};
use farhaul_mover::transfer::tree_hash::{CHUNK, whole};
use serde_json::json;

/// A session that sends as slowly as it can be asked to, over all lanes that there may be.
fn slow_session(client: &Raw, outage_ms: u64) -> (Control, Vec<Arc<dyn LinkHandle>>) {
    let mut order = order("out", read_job("big"));
    order["terms"]["rate"] = json!(LEAST_RATE);
    order["terms"]["lanes"] = json!(MAX_LANES);
    order["terms"]["outage_ms"] = json!(outage_ms);
    let (link, opened) = client.ask(&order);
    let Opened::Yes { session } = opened else { panic!("{opened:?}") };
    let control = Control::join(link, session);
    let lane = |number| join(client.link(), session, Purpose::Lane { number }).expect("his").0;
    let lanes: Vec<_> = (1..=MAX_LANES).map(lane).collect();
    control.hear(|message| matches!(message, Message::Entry(_)).then_some(())).expect("a file");
    let verdict = Verdict::Take { have: Vec::new() };
    control.say(&Message::Verdict { file: 0, verdict });
    // Once some have brought more than the head of a block, all wait for their turns: for half a minute.
    let (came, comes) = mpsc::channel();
    let mut handles = Vec::new();
    for Link { mut reader, handle, .. } in lanes {
        handles.push(handle);
        let came = came.clone();
        thread::spawn(move || {
            if reader.read_exact(&mut [0; 512]).is_ok() {
                let _ = came.send(());
            }
            let _ = std::io::copy(&mut reader, &mut std::io::sink());
        });
    }
    (0..2).for_each(|_| comes.recv_timeout(LIMIT).expect("data"));
    (control, handles)
}

#[test]
fn waits_for_a_rate_end_with_their_client_and_with_the_server() {
    let (site, bob, _) = with_two(&format!("grace = \"0s\"\n{EXPORTS}"));
    let server = site.serve();
    site.write("out/big", vec![7; 40 << 20]);
    let bob = Raw::new(&site, bob);
    let before = status(&server, "Threads");
    let lanes = u64::from(MAX_LANES);
    let slow = slow_session(&bob, 2_000);
    wait("lanes", Duration::from_secs(20), || status(&server, "Threads") >= before + lanes);
    // The session waits for its client for two seconds.
    slow.1.iter().for_each(|lane| lane.abort());
    drop(slow);
    let gone = || status(&server, "Threads") <= before;
    wait("its threads are there", Duration::from_secs(10), gone);

    let _slow = slow_session(&bob, 3_600_000);
    wait("lanes", Duration::from_secs(20), || status(&server, "Threads") >= before + lanes);
    signal(&server, "-TERM");
    let began = Instant::now();
    server.finish_well();
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

#[test]
fn a_copy_at_the_least_rate_is_interrupted_at_once() {
    let site = Site::new(EXPORTS);
    let _server = site.serve();
    let data = vec![7; 40 << 20];
    let [big, _] = ["here/big", "out/big"].map(|name| site.write(name, &data));
    let rate = (LEAST_RATE / 1000).to_string() + "k";
    let lanes = MAX_LANES.to_string();
    let start = |from: &str, to: &str| {
        let copy = site.start_cp(&["--rate", &rate, "--streams", &lanes, from, to]);
        let all = || status(&copy, "Threads") > u64::from(MAX_LANES);
        wait("lanes", Duration::from_secs(20), all);
        copy
    };
    let back = site.path("here/back");
    let push = start(&big, &site.url("in/"));
    let pull = start(&site.url("out/big"), back.to_str().expect("text"));
    // Until the lanes wait for their second turns, of which the last comes in half a minute; nothing that
    // can be seen from outside tells.
    thread::sleep(Duration::from_secs(4));
    for copy in [push, pull] {
        copy.interrupt();
        let began = Instant::now();
        assert_eq!(copy.finish().code, Some(130));
        assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
    }
    // A rate below it is no rate.
    site.cp(&["--rate", "10", &big, &site.url("in/")]).refused(2);
}

/// Announces streams, brings what is far ahead of each of them, and then files without end.
fn greedy_session(client: &Raw, number: usize, until: Instant) -> Option<()> {
    let mut order = order("in", write_job(&format!("greedy{number}/")));
    order["job"]["sink"]["directory"] = json!(true);
    let (link, opened) = client.try_ask(&order)?;
    let Opened::Yes { session } = opened else { return None };
    let control = Control::join(link, session);
    let entry = |name: String, what| {
        let attributes = Attributes::default();
        Message::Entry(Entry { name: name.into_bytes(), attributes, extra: None, what })
    };
    const STREAMS: u64 = 128;
    (0..STREAMS).for_each(|stream| control.say(&entry(format!("s{stream}"), What::Stream)));
    let mut taken = 0;
    control.hear(|message| {
        taken += u64::from(matches!(message, Message::Verdict { .. }));
        (taken == STREAMS).then_some(())
    })?;
    thread::scope(|threads| {
        for lane in 1..=8u32 {
            threads.spawn(move || {
                let link = client.try_link()?;
                let (mut link, _) = join(link, session, Purpose::Lane { number: lane }).ok()?;
                let data = vec![lane as u8; CHUNK as usize];
                for at in 1..u64::MAX {
                    let entry = (at * 8 + u64::from(lane)) % STREAMS;
                    let offset = (1 + at / (STREAMS / 8)) * CHUNK;
                    let hash = whole(&data);
                    let piece = Piece { entry, offset, length: 0, whole: false, version: 0, hash };
                    let mut block = Block::default();
                    block.clear(at);
                    let fill = |room: &mut [u8]| {
                        room[..data.len()].copy_from_slice(&data);
                        Ok::<_, ()>((data.len(), piece))
                    };
                    block.add(data.len(), fill).ok()?;
                    if Instant::now() > until || block.write_to(&mut link.writer).is_err() {
                        return Some(());
                    }
                }
                None
            });
        }
    });
    let origin = Origin::default();
    for number in 0..60_000 {
        control
            .say(&entry(format!("f{number}"), What::File { size: 9 << 20, sparse: false, origin }));
    }
    // It ends, and says why; what is left of sixteen may find room after others have ended.
    let until = until.max(Instant::now()) + Duration::from_secs(2);
    let over = |message| matches!(message, Message::Abort { .. }) || Instant::now() > until;
    control.hear(|message| over(message).then_some(()))
}

#[test]
fn hostile_sessions_leave_room_for_an_honest_client() {
    let (site, bob, _) = with_two(EXPORTS);
    let server = site.serve();
    let bob = &Raw::new(&site, bob);
    let big = site.write("here/big", vec![9; 20 << 20]);
    let most = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    thread::scope(|threads| {
        threads.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                most.fetch_max(status(&server, "Threads"), Ordering::Relaxed);
                thread::sleep(Duration::from_millis(20));
            }
        });
        let until = Instant::now() + Duration::from_secs(10);
        let greedy: Vec<_> = (0..16)
            .map(|number| threads.spawn(move || greedy_session(bob, number, until)))
            .collect();
        server.wait_error_line("session-opened");
        site.cp(&[&big, &site.url("in/honest")]).well();
        greedy.into_iter().for_each(|session| drop(session.join()));
        site.cp(&["--overwrite", &big, &site.url("in/honest")]).well();
        over.store(true, Ordering::Relaxed);
    });
    server.wait_error_line("this side keep more than");
    assert_eq!(site.read("in/honest"), site.read("here/big"));
    let (peak, threads) = (status(&server, "VmHWM"), most.into_inner());
    eprintln!("at most {} MB and {threads} threads", peak * 1024 / 1_000_000);
    assert!(peak * 1024 < 512_000_000, "{peak} KiB");
    assert!(threads < 256, "{threads} threads");
}

#[test]
fn a_copy_of_a_moment_is_held_to_its_quota() {
    // Shorter than the pause between two looks at a session: what it says is counted as it is heard.
    let site = Site::new(&format!("{EXPORTS}[limits]\nbytes = \"40kB\"\n"));
    let _server = site.serve();
    let links = site.path("here/links");
    fs::create_dir_all(&links).expect("a directory");
    for number in 0..20 {
        symlink("x".repeat(4000), links.join(format!("l{number}"))).expect("a link");
    }
    let told = site.cp(&[links.to_str().expect("text"), &site.url("in/")]).refused(1);
    assert!(told.contains("what this client may move is used up"), "{told}");
    let stored = fs::read_dir(site.path("in/links")).map_or(0, Iterator::count);
    assert!(stored < 20, "{stored}");
}

#[test]
fn a_box_gives_nothing_of_what_is_there() {
    let (site, bob, _) = with_two(&format!("{EXPORTS}[limits]\nentries = 100\n"));
    let server = site.serve();
    let bob = Raw::new(&site, bob);
    // Alice's, of which bob knows the names.
    site.write("in/report", "alice's");
    site.write("in/dir/secret", "alice's");
    let known = |name: &str| fs::metadata(site.path(name)).expect("it is there");
    let before = [known("in/report"), known("in/dir/secret")];

    // Whatever reads, compares or replaces is refused.
    let refused = |order: &serde_json::Value| match bob.ask(order).1 {
        Opened::No { why, .. } => why,
        Opened::Yes { .. } => panic!("granted: {order}"),
    };
    refused(&order("box", read_job("report")));
    for (key, value) in [
        ("existing", json!("checksum")),
        ("existing", json!("overwrite")),
        ("delete", json!(true)),
        ("keep_set_id", json!(true)),
        ("path", json!("../out/f".as_bytes())),
        ("path", json!("/etc/f".as_bytes())),
    ] {
        let mut order = order("box", write_job("x"));
        order["job"]["sink"][key] = value;
        refused(&order);
    }

    let ask = |path: &str| {
        let mut order = order("box", write_job(path));
        order["job"]["sink"]["directory"] = json!(true);
        order["job"]["sink"]["want_digests"] = json!(true);
        order["terms"]["preserve"]["hard_links"] = json!(true);
        let (link, opened) = bob.ask(&order);
        let Opened::Yes { session } = opened else { panic!("{opened:?}") };
        Control::join(link, session)
    };
    let entry = |name: &str, what| {
        let (attributes, name) = (Attributes::default(), name.as_bytes().to_vec());
        Message::Entry(Entry { name, attributes, extra: None, what })
    };
    let origin = Origin::default();
    let file = |name: &str, size| entry(name, What::File { size, sparse: false, origin });
    let control = ask("");
    control.say(&file("report", 7));
    let verdict = control.hear(|message| match message {
        Message::Verdict { verdict, .. } => Some(verdict),
        _ => None,
    });
    let Some(Verdict::Skip { digest, .. }) = verdict else { panic!("{verdict:?}") };
    assert!(digest.is_none(), "nothing of its content");
    let failed = |number: u64| {
        control.hear(|message| match message {
            Message::Failed { entry, text } => (entry == number).then_some(text),
            _ => None,
        })
    };
    control.say(&entry("stolen", What::HardLink { to: 0 }));
    assert!(failed(1).is_some());
    // Through a link of its own: it is no way into anything.
    let out = site.path("out").to_str().expect("text").as_bytes().to_vec();
    control.say(&entry("way", What::Symlink(out)));
    control.say(&entry("dir", What::Directory));
    control.say(&entry("secret", What::Symlink(b"elsewhere".to_vec())));
    control.say(&Message::Leave { complete: true });
    control.say(&entry("way", What::Directory));
    assert!(failed(5).is_some());
    drop(control);
    let mut order = order("box", write_job("way/f"));
    order["job"]["sink"]["directory"] = json!(true);
    refused(&order);

    for (name, before) in ["in/report", "in/dir/secret"].into_iter().zip(before) {
        let now = known(name);
        use std::os::unix::fs::MetadataExt as _;
        let of = |meta: &fs::Metadata| (meta.nlink(), meta.ctime(), meta.ctime_nsec(), meta.ino());
        assert_eq!(of(&now), of(&before), "{name}");
    }
    assert!(!site.path("in/stolen").exists() && !site.path("out/f").exists());
    // It still serves.
    let mine = site.write("here/mine", "mine");
    site.cp(&[&mine, &site.url("box/")]).well();
    drop(server);
}

/// Its accounts would be written over by the other's.
#[test]
fn a_second_server_with_the_same_state_directory_does_not_begin() {
    let site = Site::new(&format!("state-directory = \"state\"\n{EXPORTS}"));
    let server = site.serve();
    let mut second = Command::new(env!("CARGO_BIN_EXE_farhaul"));
    let ended = second.arg("serve").arg("--config").arg(site.path("serve.toml")).output();
    let ended = ended.expect("farhaul");
    assert_eq!(ended.status.code(), Some(2), "{}", String::from_utf8_lossy(&ended.stderr));
    // It ends with the process, however that ends.
    signal(&server, "-KILL");
    server.finish();
    let server = site.serve();
    signal(&server, "-TERM");
    server.finish_well();
}

#[test]
fn links_are_counted_and_the_day_outlives_the_server() {
    keep_off_midnight();
    let config = format!(
        "state-directory = \"state\"\n{EXPORTS}[limits]\nbytes-per-day = \"100kB\"\nentries = 3000\n"
    );
    let site = Site::new(&config);
    let server = site.serve();
    // More than a megabyte of texts, and no data.
    let links = site.path("here/links");
    fs::create_dir_all(&links).expect("a directory");
    for number in 0..400 {
        symlink("x".repeat(4000), links.join(format!("l{number}"))).expect("a link");
    }
    let args = [links.to_str().expect("text"), &site.url("in/")];
    let used_up = || {
        let told = site.cp(&args).refused(1);
        assert!(told.contains("what this client may move a day is used up"), "{told}");
    };
    used_up();
    used_up();
    let accounts = site.path("state/accounts");
    let written = || {
        let text = fs::read_to_string(&accounts).unwrap_or_default();
        text.split_whitespace().nth(2).is_some_and(|used| used.parse::<u64>().unwrap() >= 100_000)
    };
    wait("written down", Duration::from_secs(20), written);
    // Not only by one that ends as it should.
    signal(&server, "-KILL");
    server.finish();
    let server = site.serve();
    used_up();
    signal(&server, "-TERM");
    server.finish_well();
    let server = site.serve();
    used_up();
    signal(&server, "-TERM");
    server.finish_well();

    // A session announces no more than it may.
    site.configure(&format!("{EXPORTS}[limits]\nentries = 300\n"));
    let _server = site.serve();
    let told = site.cp(&args).refused(1);
    assert!(told.contains("more entries than"), "{told}");
}
