//! Quotas of `farhaul serve` hold for all sessions of a client together, however many there are at once.

mod common;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use common::pattern::Pattern;
use common::process::{LIMIT, wait};
use common::server::{EXPORTS, Site, keep_off_midnight, signal};

/// Sessions at once.
const SESSIONS: usize = 16;

/// What files below `directory` hold, bytes: what was written, not what sparse files announce.
fn stored(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).expect("a directory");
    entries
        .map(|entry| {
            let entry = entry.expect("an entry");
            let known = entry.metadata().expect("it is there");
            match known.is_dir() {
                true => stored(&entry.path()),
                false => known.len().min(known.blocks() * 512),
            }
        })
        .sum()
}

/// Sixteen copies at once of `bytes` each: what was stored, and what the account says that was used.
fn copies_at_once(quota: &str, bytes: usize, streams: &str) -> (u64, u64) {
    let site = Site::new(&format!(
        "state-directory = \"state\"\n{EXPORTS}[limits]\nbytes-per-day = \"{quota}\"\n\
         connections = {SESSIONS}\n"
    ));
    let server = site.serve();
    let copies: Vec<_> = (0..SESSIONS)
        .map(|number| {
            let mut content = vec![0; bytes];
            Pattern::new(number as u64).fill(&mut content);
            let from = site.write(&format!("here/f{number}"), content);
            let url = site.url(&format!("in/f{number}"));
            site.start_cp(&["--streams", streams, "--outage", "2s", &from, &url])
        })
        .collect();
    let ended: Vec<_> = copies.into_iter().map(|copy| copy.finish().code).collect();
    assert!(ended.contains(&Some(1)), "some are over the quota: {ended:?}");
    let active = "farhaul_active_sessions{client=\"alice\",export=\"in\"}";
    wait("sessions end", LIMIT, || site.metric(active) == 0);
    signal(&server, "-TERM");
    server.finish_well();
    let accounts = fs::read_to_string(site.path("state/accounts")).expect("the accounts");
    let used = accounts.split_whitespace().nth(2).expect("a number").parse().expect("a number");
    let stored = stored(&site.path("in"));
    eprintln!("{quota}: {stored} bytes stored, {used} used, ended with {ended:?}");
    (stored, used)
}

#[test]
fn copies_at_once_have_no_more_than_their_quota() {
    keep_off_midnight();
    for (quota, most, bytes, streams) in
        [("1MB", 1_000_000, 400_000, "8"), ("100kB", 100_000, 60_000, "1")]
    {
        let (stored, used) = copies_at_once(quota, bytes, streams);
        assert!(stored <= most, "{stored} bytes of {quota} are stored");
        assert!(used <= most, "{used} bytes of {quota} are used");
        assert!(used > most / 2, "it is not refused before: {used} of {quota}");
    }
}
