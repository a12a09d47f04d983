//! Settings from the environment and the user's file, as `farhaul config` shows them.

mod common;

use std::fs;

use common::home::Home;
use serde_json::Value;

const FILE: &str = "config.toml";

#[test]
fn the_file_is_found_and_shown_with_origins() {
    let home = Home::new();
    let path = home.path(FILE);
    let ended = home.run(&["config", "path"]);
    assert_eq!(ended.well(), format!("{}\n", path.display()));
    let found: Value =
        serde_json::from_str(&home.run(&["config", "path", "--json"]).well()).expect("JSON");
    assert_eq!((&found["path"], &found["exists"]), (&path.to_str().into(), &false.into()));
    home.write(FILE, "rate = \"1G\"\n[host.\"*.example.org\"]\nstreams = 4\n");
    let shown = home.run(&["config", "show", "--host", "a.example.org", "--origin"]).well();
    let line = |name: &str| shown.lines().find(|line| line.starts_with(name)).expect(name);
    assert!(line("rate = \"1G\"").ends_with(&format!("# {}:1", path.display())), "{shown}");
    assert!(line("streams = \"4\"").contains(":3, [host.\\\"*.example.org\\\"]"), "{shown}");
    assert!(line("verify = \"full\"").ends_with("# default"), "{shown}");
}

#[test]
fn what_is_shown_can_serve_as_the_file() {
    let home = Home::new();
    home.write(FILE, "ssh = 'ssh -o \"A B\" \\\\'\npreserve = []\nbind = [\"eth0\"]\noutage = 5\n");
    let first = home.run(&["config", "show"]).well();
    assert!(first.contains("outage = \"5s\"") && first.contains("preserve = \"none\""), "{first}");
    home.write(FILE, &first);
    assert_eq!(home.run(&["config", "show"]).well(), first);
}

#[test]
fn json_has_every_setting() {
    let home = Home::new();
    home.write("other.toml", "[host.h]\nplain = true\n");
    let other = home.path("other.toml");
    let other = other.to_str().expect("a text");
    let variables = [("FARHAUL_CONFIG", other), ("FARHAUL_MSS", "9000"), ("FARHAUL_RAET", "1")];
    let ended = home.run_with(&["config", "show", "--host", "me@h", "--json"], &variables);
    assert_eq!(ended.errors, "farhaul: FARHAUL_RAET is no setting; did you mean FARHAUL_RATE?\n");
    let items: Vec<Value> = serde_json::from_str(&ended.well()).expect("JSON");
    assert_eq!(items.len(), 18);
    let item = |name: &str| items.iter().find(|item| item["name"] == name).expect(name);
    let plain = item("plain");
    assert_eq!((&plain["value"], &plain["origin"]), (&"true".into(), &"file".into()));
    assert_eq!((&plain["path"], &plain["line"]), (&other.into(), &2.into()));
    assert_eq!(plain["section"], "h");
    let mss = item("mss");
    assert_eq!((&mss["value"], &mss["origin"]), (&"9000".into(), &"environment".into()));
    assert_eq!(mss["variable"], "FARHAUL_MSS");
    assert_eq!(item("cc")["origin"], "default");
    let path = home.run_with(&["config", "path"], &variables).well();
    assert_eq!(path.trim_end(), other);
}

#[test]
fn what_is_wrong_is_bad_usage() {
    let home = Home::new();
    let path = home.path(FILE);
    home.write(FILE, "raet = 1\n[host.a]\nstreams = 99\n");
    let told = home.run(&["config", "show"]).refused(2);
    let first = format!("{}:1: there is no setting 'raet'; did you mean 'rate'?", path.display());
    assert!(told.contains(&first), "{told}");
    assert!(told.contains(":3: streams = \"99\": write auto"), "hosts not asked for too: {told}");
    home.write(FILE, "rate = = 1\n");
    let told = home.run(&["config", "show"]).refused(2);
    assert!(told.contains(&format!("{}:1: ", path.display())), "{told}");
    fs::remove_file(&path).expect("a file");
    fs::create_dir(&path).expect("a directory");
    let told = home.run(&["config", "show"]).refused(2);
    assert!(told.contains("cannot read") && told.contains(FILE), "{told}");
    fs::remove_dir(&path).expect("a directory");
    let told = home.run_with(&["config", "show"], &[("FARHAUL_VERIFY", "ful")]).refused(2);
    assert_eq!(told, "farhaul: FARHAUL_VERIFY=ful: did you mean 'full'?\n");
    let told = home.run_with(&["config", "show"], &[("FARHAUL_CONFIG", "/nowhere")]).refused(2);
    assert!(told.contains("/nowhere"), "{told}");
}
