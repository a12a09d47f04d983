//! The guide to laws of one's own: its code is that of the example, and the example does what the
//! guide says.

mod common;

use std::path::Path;

use common::ran::{self, Ran};

const GUIDE: &str = include_str!("../../../docs/writing-a-law.md");
const EXAMPLE: &str = include_str!("../examples/gentle.rs");

#[test]
fn the_guide_shows_the_example() {
    let code = GUIDE.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next());
    let code = code.expect("the guide has code");
    assert!(EXAMPLE.ends_with(code), "docs/writing-a-law.md and examples/gentle.rs differ");
    let lines = code.lines().filter(|line| !line.trim().is_empty()).count();
    assert!(lines < 60, "less than a page: {lines}");
}

/// The example, which `cargo test` of the whole package builds beside the command.
fn gentle(directory: &Path, args: &[&str]) -> Ran {
    let example = Path::new(env!("CARGO_BIN_EXE_farhaul")).with_file_name("examples/gentle");
    assert!(example.exists(), "`cargo build --example gentle`");
    ran::run(&example, directory, args)
}

#[test]
fn the_example_is_the_command_with_a_law_more() {
    let folder = tempfile::tempdir().expect("a folder");
    let ran = gentle(folder.path(), &["cc", "list", "gentle", "--json"]);
    assert_eq!(ran.code, Some(0), "{}", ran.errors);
    let listed: serde_json::Value = serde_json::from_str(&ran.out).expect("JSON");
    assert_eq!(listed["laws"][0]["parameters"][0]["key"], "queue");
    assert_eq!(listed["laws"][0]["parameters"][0]["default"], "20");

    let scenario = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/try-a-law.toml");
    let scenario = scenario.to_str().expect("text");
    let args = ["sim", "run", scenario, "--set", "law=gentle:queue=30", "--json"];
    let ran = gentle(folder.path(), &args);
    assert_eq!(ran.code, Some(0), "{}", ran.errors);
    let report: serde_json::Value = serde_json::from_str(&ran.out).expect("JSON");
    assert_eq!(report["flows"][0]["cc"], "gentle:queue=30");
    let series = report["flows"][0]["series"].as_array().expect("samples");
    let alone: Vec<f64> = series[..series.len() / 2].iter().filter_map(|v| v.as_f64()).collect();
    let mean = alone[alone.len() / 2..].iter().sum::<f64>() / (alone.len() / 2) as f64;
    assert!(mean > 90e6, "alone it fills the link: {mean}");

    let ran = gentle(folder.path(), &["sim", "run", scenario, "--set", "law=gentel"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.errors.contains("did you mean 'gentle'?"), "{}", ran.errors);
}
