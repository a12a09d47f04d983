//! The guide to laws of one's own: its code is that of the example, and the example does what the
//! guide says.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

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
fn gentle(args: &[&str], directory: &Path) -> (Option<i32>, String, String) {
    let command = PathBuf::from(env!("CARGO_BIN_EXE_farhaul"));
    let example = command.with_file_name("examples").join("gentle");
    let output = Command::new(&example).args(args).current_dir(directory).output();
    let output = output.unwrap_or_else(|error| {
        panic!("{}: {error}; `cargo build --example gentle`", example.display())
    });
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn the_example_is_the_command_with_a_law_more() {
    let folder = tempfile::tempdir().expect("a folder");
    let (code, out, errors) = gentle(&["cc", "list", "gentle", "--json"], folder.path());
    assert_eq!(code, Some(0), "{errors}");
    let listed: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(listed["laws"][0]["parameters"][0]["key"], "queue");
    assert_eq!(listed["laws"][0]["parameters"][0]["default"], "20");

    let scenario = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/try-a-law.toml");
    let scenario = scenario.to_str().expect("text");
    let args = ["sim", "run", scenario, "--set", "law=gentle:queue=30", "--json"];
    let (code, out, errors) = gentle(&args, folder.path());
    assert_eq!(code, Some(0), "{errors}");
    let report: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(report["flows"][0]["cc"], "gentle:queue=30");
    let series = report["flows"][0]["series"].as_array().expect("samples");
    let alone: Vec<f64> = series[..series.len() / 2].iter().filter_map(|v| v.as_f64()).collect();
    let mean = alone[alone.len() / 2..].iter().sum::<f64>() / (alone.len() / 2) as f64;
    assert!(mean > 90e6, "alone it fills the link: {mean}");

    let (code, _, errors) = gentle(&["sim", "run", scenario, "--set", "law=gentel"], folder.path());
    assert_eq!(code, Some(2));
    assert!(errors.contains("did you mean 'gentle'?"), "{errors}");
}
