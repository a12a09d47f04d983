#![allow(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::json;

use super::*;
use crate::bootstrap::{self, Hello};

/// Starts what the shell script `there` does in place of ssh and the other host.
fn start(there: &str) -> Result<Remote, SshError> {
    let command = SshCommand { words: ["sh", "-c", there].map(String::from).to_vec() };
    let hello = json!({ "secret": "0123456789abcdef0123456789abcdef" });
    Remote::start(&command, "there", "farhaul", &hello, &AtomicBool::new(false))
}

fn greeting_line(more: &str) -> String {
    format!("FARHAUL1 {{\"version\":\"{VERSION}\",\"protocol\":{PROTOCOL}{more}}}")
}

fn error(there: &str) -> String {
    start(there).unwrap_err().to_string()
}

#[test]
fn commands_are_split_as_a_shell_does() {
    let words = |text| SshCommand::parse(text).unwrap().words;
    assert_eq!(
        words("ssh -p 22 -i 'a b' \"c d\" e\\ f"),
        ["ssh", "-p", "22", "-i", "a b", "c d", "e f"]
    );
    for bad in ["", "  ", "ssh 'x"] {
        assert!(matches!(SshCommand::parse(bad), Err(SshError::Command(_))), "{bad}");
    }
    assert!(SshCommand::parse("/usr/bin/ssh -4").unwrap().is_ssh());
    assert!(!SshCommand::parse("sshpass ssh").unwrap().is_ssh());
}

#[test]
fn the_remote_path_is_one_word_there() {
    let args = |command: &SshCommand, remote: &str| -> Vec<String> {
        let command = command.command("host", remote, &[]);
        command.get_args().map(|arg| arg.to_str().unwrap().to_owned()).collect()
    };
    let ssh = SshCommand::parse("ssh -p 7").unwrap();
    assert_eq!(args(&ssh, "farhaul"), ["-p", "7", "-T", "--", "host", "farhaul agent"]);
    let other = SshCommand::parse("in-container --fast").unwrap();
    assert_eq!(args(&other, "a b;c"), ["--fast", "host", "'a b;c' agent"]);
    assert_eq!(args(&other, "~/my bin/farhaul")[2], "~/'my bin/farhaul' agent");
}

/// The controller knows where to dial before the agent has read anything, and hears afterwards whether it serves.
#[test]
fn an_agent_that_was_told_how_to_listen_greets_before_it_reads() {
    let start = |answer: &str| {
        // The order is not read before the greeting has been heard: `go` says that it was.
        let there = format!(
            "echo '{}'; read -r hello; read -r go; echo '{answer}'; read -r end",
            greeting_line(",\"udp_port\":7")
        );
        let words = ["sh", "-c", &there].map(String::from).to_vec();
        let command = SshCommand { words };
        let arguments = ["--listen".to_owned(), "{\"udp\": true}".to_owned()];
        let stop = AtomicBool::new(false);
        let how = ("farhaul", &arguments[..]);
        let mut remote = Remote::start_early(&command, "there", how, &json!({}), &stop).unwrap();
        assert_eq!(remote.greeting().udp_port, Some(7));
        remote.sender().send(&json!("go")).unwrap();
        remote.answer(&stop)
    };
    assert!(start("{\"answer\":\"ready\"}").is_ok());
    let refused = start("{\"answer\":\"refused\",\"text\":\"there is no such file\",\"code\":2}");
    assert!(matches!(refused, Err(SshError::Agent { code: 2, .. })), "{refused:?}");
    for other in ["[]", "{}", "{\"answer\":\"perhaps\"}"] {
        assert!(matches!(start(other), Err(SshError::NoGreeting { .. })), "{other}");
    }
    let command = SshCommand::parse("in-container").unwrap();
    let words = command.command("host", "farhaul", &["--listen".into(), "{\"a b\": 1}".into()]);
    let last = words.get_args().last().unwrap().to_str().unwrap();
    assert_eq!(last, "farhaul agent --listen '{\"a b\": 1}'");
}

#[test]
fn a_greeting_is_found_behind_noise_and_messages_follow() {
    let there = format!(
        "echo Welcome; echo; read -r hello; echo '{}'; read -r message; \
         echo \"{{\\\"echo\\\":$message}}\"; echo logout",
        greeting_line(",\"udp_port\":7,\"later\":1")
    );
    let remote = start(&there).unwrap();
    assert_eq!(remote.greeting().udp_port, Some(7));
    remote.sender().send(&json!([1, "two"])).unwrap();
    let all: Vec<_> = remote.received().iter().collect();
    let message = Received::Message(json!({ "echo": [1, "two"] }));
    assert_eq!(all, [message, Received::Closed(None)]);
    assert!(remote.close(END_TIME).unwrap().success());
}

#[test]
fn each_failure_says_what_to_do() {
    let text = error("exit 127");
    assert!(text.contains("no 'farhaul' on there") && text.contains("--remote-farhaul"), "{text}");
    assert!(error("exit 126").contains("cannot be executed"));
    assert!(error("exit 255").contains("ssh could not run a command on there"));
    assert!(error("exit 2").contains("older version"));
    assert!(error("kill -9 $$").contains("signal: 9"));
    let text = error("printf '\\033[2Jnothing for you\\n'; exit 1");
    assert!(text.contains("exit 1") && text.contains("'\u{fffd}[2Jnothing for you'"), "{text}");
    let text = error("echo 'FARHAUL1 {\"version\":\"7.1\",\"protocol\":99}'");
    assert!(text.contains("7.1") && text.contains(VERSION) && text.contains("install"), "{text}");
    let text = error("echo 'FARHAUL1 {'");
    assert!(text.contains("garbled"), "{text}");
    let text = error(&format!("echo '{}'", greeting_line(",\"error\":\"disk is full\"")));
    assert_eq!(text, "farhaul on there: disk is full");
}

#[test]
fn noise_is_bounded_and_secrets_are_not_echoed() {
    assert!(error("while :; do echo noise; done").contains("begins with 'noise'"));
    assert!(error("yes | tr -d '\\n'").contains("did not begin"));
    let echoes = [
        "head -n 1",
        "read -r hello; echo \"sh: $hello: not found\"",
        // As a terminal does that is 40 columns wide.
        "echo \"\\$ $(head -c 30)\"; head -n 1",
    ];
    for echo in echoes {
        let text = error(&format!("{echo}; echo and more; exit 1"));
        assert!(text.contains("'and more'") && !text.contains("0123456789abcdef"), "{text}");
    }
}

#[test]
fn no_other_process_can_read_the_secret_of_arguments_or_environment() {
    let (identity, secret, session) = bootstrap::fresh().unwrap();
    let hello = Hello::new(Some(identity.public_key()), secret, session, json!({}));
    let text = serde_json::to_string(&hello).unwrap();
    let digits = text.split("\"secret\":\"").nth(1).unwrap()[..64].to_owned();
    // Tells what `ps` and /proc tell of it, as one line of JSON.
    let there = format!(
        "read -r hello; echo '{}'; \
         tr -c '[:alnum:]' ' ' </proc/$$/environ >\"$0\"; tr -c '[:alnum:]' ' ' </proc/$$/cmdline \
         >>\"$0\"; echo \"$hello\" >>\"$0\"; echo '[1]'",
        greeting_line("")
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    let words = ["sh", "-c", &there, file.path().to_str().unwrap()].map(String::from).to_vec();
    let stop = AtomicBool::new(false);
    let remote = Remote::start(&SshCommand { words }, "there", "farhaul", &hello, &stop).unwrap();
    assert_eq!(remote.received().recv().unwrap(), Received::Message(json!([1])));
    let told = std::fs::read_to_string(file.path()).unwrap();
    let (public, said) = told.split_once('{').unwrap();
    assert!(public.contains("farhaul") && said.contains(&digits), "{told}");
    // Not a part of it either.
    assert!(
        !digits
            .as_bytes()
            .windows(12)
            .any(|part| { public.contains(core::str::from_utf8(part).unwrap()) })
    );
}

#[test]
fn what_is_not_there_is_named() {
    let command = SshCommand::parse("/no/such/ssh").unwrap();
    let stop = AtomicBool::new(false);
    let result = Remote::start(&command, "there", "farhaul", &json!({}), &stop);
    assert!(matches!(result, Err(SshError::NotFound(name)) if name == "/no/such/ssh"));
}

#[test]
fn starting_can_be_stopped_and_dropping_ends_the_child() {
    let command = SshCommand::parse("sh -c 'exec sleep 1000'").unwrap();
    let stop = AtomicBool::new(true);
    let result = Remote::start(&command, "there", "farhaul", &json!({}), &stop);
    assert!(matches!(result, Err(SshError::Interrupted(_))));
    let there = format!("echo '{}'; exec sleep 1000", greeting_line(""));
    let mut remote = start(&there).unwrap();
    assert!(remote.exited().is_none());
    let id = remote.child.child.id();
    drop(remote);
    assert!(!Path::new(&format!("/proc/{id}")).exists(), "reaped");
}

/// Where what ssh says goes.
#[derive(Clone, Default)]
struct Shown(Arc<Mutex<Vec<u8>>>);

impl io::Write for Shown {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        lock(&self.0).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shown {
    fn text(&self) -> String {
        String::from_utf8(lock(&self.0).clone()).unwrap()
    }
}

fn start_showing(there: &str, shown: &Shown) -> Result<Remote, SshError> {
    let command = SshCommand { words: ["sh", "-c", there].map(String::from).to_vec() };
    let stop = AtomicBool::new(false);
    Remote::start_saying(&command, "there", ("farhaul", &[]), &json!({}), &stop, shown.clone())
}

#[test]
fn all_that_ssh_says_is_shown_before_its_failure() {
    let shown = Shown::default();
    // More than a pipe holds.
    let there = "head -c 200000 /dev/zero | tr '\\0' x >&2; echo last words >&2; exit 255";
    assert!(matches!(start_showing(there, &shown), Err(SshError::Failed(_))));
    let text = shown.text();
    assert_eq!(text.len(), 200_000 + "last words\n".len());
    assert!(text.ends_with("last words\n"));
    // A greeting that will not do ends it, too.
    let shown = Shown::default();
    let there = "echo a warning >&2; echo 'FARHAUL1 {\"version\":\"7.1\",\"protocol\":99}'";
    assert!(matches!(start_showing(there, &shown), Err(SshError::Version(_))));
    assert_eq!(shown.text(), "a warning\n");
}

#[test]
fn what_an_agent_says_is_shown_and_its_pipe_is_not_ours() {
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;
    let shown = Shown::default();
    // Which standard error it has; and what is said at the end.
    let there = format!(
        "stat -L -c %d:%i /proc/self/fd/2 >&2; echo '{}'; read -r rest; read -r end; \
         echo goodbye >&2",
        greeting_line("")
    );
    let remote = start_showing(&there, &shown).unwrap();
    assert!(remote.close(END_TIME).unwrap().success());
    let text = shown.text();
    let (inode, rest) = text.split_once('\n').unwrap();
    let ours = std::fs::File::from(io::stderr().as_fd().try_clone_to_owned().unwrap());
    let ours = ours.metadata().unwrap();
    assert_ne!(inode, format!("{}:{}", ours.dev(), ours.ino()));
    assert_eq!(rest, "goodbye\n");
}

/// As the master of a shared connection does.
#[test]
fn who_keeps_standard_error_keeps_nobody_waiting() {
    let shown = Shown::default();
    let there = "sleep 600 <&- >&- & echo $! >&2; echo why >&2; exit 255";
    assert!(matches!(start_showing(there, &shown), Err(SshError::Failed(_))));
    let text = shown.text();
    let (id, rest) = text.split_once('\n').unwrap();
    assert!(Command::new("kill").arg(id).status().unwrap().success(), "it lives on");
    assert_eq!(rest, "why\n");
}
