//! Keys that are taken out of the list of `farhaul serve`, with real processes on the loopback interface.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use common::home::Home;
use common::server::{Site, signal};
use serde_json::Value;

const EXPORTS: &str = "allowed-keys = \"allowed_keys\"
[limits]
rate = \"8M\"
[export.out]
path = \"DIR/out\"
access = \"read\"
clients = \"*\"
[export.in]
path = \"DIR/in\"
access = \"read-write\"
clients = [\"alice\", \"bob\"]
[client.bob]
bytes = \"1TB\"
";

/// A site whose list allows alice, who has a key of the list, and bob.
fn site() -> Site {
    let site = Site::new("");
    let list = site.path("allowed_keys");
    let bob = site.path("bob");
    let made = site.home.run(&["key", "new", "--identity", bob.to_str().expect("text")]).well();
    for (name, key) in [("alice", site.client.as_str()), ("bob", made.trim())] {
        let list = list.to_str().expect("text");
        site.home.run(&["key", "allow", key, "--name", name, "--allowed-keys", list]).well();
    }
    configure(&site, "");
    site
}

/// Writes the configuration with no client but those of the list; `more` stands behind it.
fn configure(site: &Site, more: &str) {
    site.configure(&format!("{EXPORTS}{more}"));
    let own = format!("[client.alice]\nkey = \"{}\"\n", site.client);
    let text = String::from_utf8(site.read("serve.toml")).expect("text");
    assert!(text.contains(&own));
    fs::write(site.path("serve.toml"), text.replace(&own, "")).expect("a file");
}

fn revoke(site: &Site, name: &str) -> String {
    let list = site.path("allowed_keys");
    site.home.run(&["key", "revoke", name, "--allowed-keys", list.to_str().expect("text")]).well()
}

fn noise() -> Vec<u8> {
    (0..8_000_000u64).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// Alice's running copy ends when her key is taken out, and she does not come in again, whatever is
/// wrong with the configuration.
fn is_out_after_a_reload(site: &Site, outcome: &str, change: impl FnOnce()) {
    let server = site.serve();
    let big = site.write("here/big", noise());
    let running = site.start_cp(&[&big, &site.url("in/big")]);
    site.wait_metric("farhaul_active_sessions{client=\"alice\",export=\"in\"}", 1);
    change();
    signal(&server, "-HUP");
    let reloads = format!("farhaul_config_reloads_total{{outcome=\"{outcome}\"}}");
    site.wait_metric(&reloads, 1);
    let ended = running.finish();
    assert_eq!(ended.code, Some(3), "{ended:#?}");
    site.write("out/f", "content");
    site.cp(&[&site.url("out/f"), &site.path("here/f").display().to_string()]).refused(3);
    // Bob is still let in.
    let bob = Home::new();
    fs::create_dir_all(bob.path("")).expect("a directory");
    fs::copy(site.path("bob"), bob.path("identity")).expect("his key");
    let (url, here) = (site.url("out/f"), site.path("here/of-bob").display().to_string());
    bob.run(&["cp", "--server-key", &site.key, &url, &here]).well();
}

#[test]
fn a_revoked_key_that_an_export_names_is_out_after_a_reload_and_a_restart() {
    let site = site();
    is_out_after_a_reload(&site, "done", || drop(revoke(&site, "alice")));
    let server = site.serve();
    let site_log = server.wait_error_line("config-warning");
    assert!(site_log.contains("'alice'"), "{site_log}");
    signal(&server, "-TERM");
    server.finish_well();
}

#[test]
fn a_revoked_key_is_out_even_if_the_configuration_is_no_toml() {
    let site = site();
    is_out_after_a_reload(&site, "failed", || {
        revoke(&site, "alice");
        configure(&site, "this is = = no TOML\n");
    });
}

#[test]
fn a_revoked_key_is_out_even_if_an_export_has_gone() {
    let site = site();
    is_out_after_a_reload(&site, "failed", || {
        revoke(&site, "alice");
        configure(
            &site,
            "[export.gone]\npath = \"DIR/gone\"\naccess = \"read\"\nclients = \"*\"\n",
        );
    });
}

#[test]
fn a_key_is_out_even_if_another_line_of_the_list_is_wrong() {
    let site = site();
    is_out_after_a_reload(&site, "failed", || {
        revoke(&site, "alice");
        let text = String::from_utf8(site.read("allowed_keys")).expect("text");
        // Bob's line, with a limit that there is not.
        fs::write(site.path("allowed_keys"), format!("{} rte=1\n", text.trim_end())).unwrap();
    });
}

#[test]
fn a_key_is_out_even_if_others_may_write_to_the_list() {
    let site = site();
    is_out_after_a_reload(&site, "failed", || {
        revoke(&site, "alice");
        let open = fs::Permissions::from_mode(0o666);
        fs::set_permissions(site.path("allowed_keys"), open).expect("its owner may");
    });
}

#[test]
fn a_key_is_out_even_if_the_list_is_no_text_and_was_wrong_before() {
    let site = site();
    let text = String::from_utf8(site.read("allowed_keys")).expect("text");
    is_out_after_a_reload(&site, "failed", || {
        fs::write(site.path("allowed_keys"), format!("nonsense\n{text}")).expect("a file");
        revoke(&site, "alice");
        let mut list = site.read("allowed_keys");
        list.extend(b"\xff\xfe\n");
        fs::write(site.path("allowed_keys"), list).expect("a file");
    });
}

#[test]
fn no_key_of_a_list_that_is_gone_is_let_in() {
    let site = site();
    let server = site.serve();
    site.write("out/f", "content");
    let (url, here) = (site.url("out/f"), site.path("here/f").display().to_string());
    site.cp(&[&url, &here]).well();
    fs::remove_file(site.path("allowed_keys")).expect("it is there");
    fs::remove_file(site.path("here/f")).expect("it is there");
    signal(&server, "-HUP");
    server.wait_error_line("keys-reloaded");
    site.cp(&[&url, &here]).refused(3);
}

#[test]
fn a_key_that_is_added_takes_effect_though_the_configuration_is_wrong() {
    let site = site();
    revoke(&site, "alice");
    let server = site.serve();
    site.write("out/f", "content");
    let (url, here) = (site.url("out/f"), site.path("here/f").display().to_string());
    site.cp(&[&url, &here]).refused(3);
    let list = site.path("allowed_keys").display().to_string();
    site.home.run(&["key", "allow", &site.client, "--name", "alice", "--into", &list]).well();
    configure(&site, "plan = true\n");
    signal(&server, "-HUP");
    server.wait_error_line("config-not-reloaded");
    server.wait_error_line("keys-reloaded");
    site.cp(&[&url, &here]).well();
}

#[test]
fn revoke_says_what_still_names_the_client() {
    let site = site();
    let list = site.path("allowed_keys").display().to_string();
    let json = site.home.run(&["key", "revoke", "bob", "--from", &list, "--json"]).well();
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let named: Vec<_> = json["still_named"].as_array().expect("a list").iter().collect();
    let whats: Vec<_> = named.iter().map(|named| named["what"].as_str().expect("text")).collect();
    assert_eq!(whats, ["[export.in] clients", "[client.bob]"], "{json}");
    let file = site.path("serve.toml").display().to_string();
    assert!(named.iter().all(|named| named["file"] == *file), "{json}");
    let text = String::from_utf8(site.read("serve.toml")).expect("text");
    let line = |named: &Value| text.lines().nth(named["line"].as_u64().unwrap() as usize - 1);
    assert_eq!(line(named[0]), Some("clients = [\"alice\", \"bob\"]"));
    assert_eq!(line(named[1]), Some("[client.bob]"));
    // The configuration is elsewhere, and another one names others.
    let elsewhere = site.write("conf/server.toml", text.replace("\"alice\"", "\"carol\""));
    let to = ["key", "revoke", "alice", "--from", &list, "--config", &elsewhere, "--json"];
    let json: Value = serde_json::from_str(&site.home.run(&to).well()).expect("JSON");
    assert_eq!(json["still_named"].as_array().map(Vec::len), Some(0), "{json}");
    // The file itself is right with names that no client has.
    let told = site.home.run(&["serve", "--check", "--config", &file]);
    assert_eq!((told.code, told.errors.lines().count()), (Some(0), 3), "{told:#?}");
}
