//! Manual pages and completions, as those who install them get them.

mod common;

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use common::home::Home;
use common::skip;

#[test]
fn pages_are_written_and_mandoc_has_nothing_against_them() {
    let home = Home::new();
    let directory = home.path("man/man1");
    let said = home.run(&["man", "--into", directory.to_str().expect("a text")]).well();
    let files: Vec<_> = fs::read_dir(&directory)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    assert!(said.starts_with(&format!("{} pages in ", files.len())), "{said}");
    assert!(files.len() > 20 && files.contains(&directory.join("farhaul-key-new.1")));
    let page = home.run(&["man", "key", "new"]).well();
    assert_eq!(page, fs::read_to_string(directory.join("farhaul-key-new.1")).expect("a page"));
    let lint = Command::new("mandoc").args(["-T", "lint", "-W", "warning"]).args(&files).output();
    let Ok(lint) = lint else { skip!("no mandoc") };
    let told = String::from_utf8_lossy(&lint.stdout);
    // There is no date, so that the same program has the same pages; and what lists values leaves
    // more room than it needs.
    let known = ["missing date", "skipping paragraph macro: br"];
    let known = |line: &&str| known.iter().any(|known| line.contains(known));
    let told: Vec<_> = told.lines().filter(|line| !known(line)).collect();
    assert!(told.is_empty(), "{told:#?}");
}

#[test]
fn the_synopsis_says_what_options_take() {
    let page = Home::new().run(&["man", "serve"]).well();
    let (_, synopsis) = page.split_once(".SH SYNOPSIS\n").expect("a synopsis");
    let line = synopsis.lines().next().expect("a line").replace('\\', "");
    assert!(line.contains("--config <FILE>") && !line.contains("<fB"), "{line}");
}

#[test]
fn a_page_that_is_not_there_is_told() {
    let home = Home::new();
    let told = home.run(&["man", "key", "nwe"]).refused(2);
    assert!(told.contains("did you mean 'new'?"), "{told}");
    assert!(home.run(&["man", "key", "--into", "x"]).refused(2).contains("--into"));
}

#[test]
fn shells_take_the_completions() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = home.run(&["completions", shell]).well();
        assert!(script.contains("farhaul") && script.contains("revoke"), "{shell}");
    }
    let script = home.run(&["completions", "bash"]).well();
    for (option, words) in [("--transport", "auto udt tcp udp"), ("--verify", "full none")] {
        let (_, rest) = script.split_once(&format!("{option})\n")).expect("the option is known");
        let line = rest.lines().next().expect("a line");
        assert!(line.contains(&format!("compgen -W \"{words}\"")), "{option}: {line}");
    }
    assert!(home.run(&["completions", "tcsh"]).refused(2).contains("bash"));
    let bash = Command::new("bash").arg("-n").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Ok(mut bash) = bash else { skip!("no bash") };
    let script = home.run(&["completions", "bash"]).well();
    let mut input = bash.stdin.take().expect("a pipe");
    input.write_all(script.as_bytes()).expect("bash reads it all");
    drop(input);
    let ended = bash.wait_with_output().expect("its end");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}
