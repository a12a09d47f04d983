//! The half of the bootstrap that runs on the other host: standard input and output as lines.
//!
//! **When ssh goes away.** A transfer rides through an outage, so an agent must outlive the ssh that
//! started it. Without a terminal (`ssh -T`, as [`SshCommand`](crate::SshCommand) has it) sshd
//! signals nobody when its connection breaks: the agent reads the end of its input
//! ([`Received::Closed`]) and writing its output fails, which Rust reports as an error rather than by
//! SIGPIPE. So nothing is to be done about SIGHUP, and an agent does best without a handler:
//! `ctrlc` with its feature `termination` could not tell SIGHUP from a wish to end. Whether
//! `Closed` means the end is the caller's to decide: while the peer of the transfer still answers,
//! it does not. A controller that is interrupted says so over its links, for Ctrl-C at its terminal
//! ends its ssh as well.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::bootstrap::{Answer, GREETING_PREFIX, Greeting};
use crate::lines::{MAX_LINE, MAX_WAITING, Received, deliver, line, read_line, shown, write};
use crate::lock;

/// Why an agent does not do what it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The exit code of the controller's command.
    pub code: u8,
    /// Why, for people.
    pub text: String,
}

impl From<String> for Refusal {
    /// It failed.
    fn from(text: String) -> Self {
        Refusal { code: 1, text }
    }
}

/// Why an agent cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Nobody wrote a first line.
    #[error(
        "nothing came on standard input: `farhaul agent` is started by farhaul over ssh, not by hand"
    )]
    NoController,
    /// The first line is none of a controller.
    #[error(
        "the first line of standard input is not from farhaul: {0}; `farhaul agent` is started by \
         farhaul over ssh, not by hand"
    )]
    Malformed(String),
    /// The caller cannot serve; the controller has been told.
    #[error("{0}")]
    Refused(String, u8),
    /// Standard input or output failed.
    #[error("the connection to the controller failed: {0}")]
    Stream(#[source] io::Error),
}

/// The controller, as its agent sees it.
#[derive(Debug)]
pub struct Controller {
    sender: ControllerSender,
    received: Receiver<Received>,
}

/// Writes to the controller, from any thread.
#[derive(Clone)]
pub struct ControllerSender(Arc<Mutex<dyn Write + Send>>);

impl Controller {
    /// Messages of the controller in their order; the last is [`Received::Closed`]. After it,
    /// receiving fails.
    pub fn received(&self) -> &Receiver<Received> {
        &self.received
    }

    /// A way to write to the controller.
    pub fn sender(&self) -> ControllerSender {
        self.sender.clone()
    }

    /// Both, for threads of their own.
    pub fn into_parts(self) -> (ControllerSender, Receiver<Received>) {
        (self.sender, self.received)
    }
}

impl ControllerSender {
    /// Writes a message in one line.
    ///
    /// # Errors
    ///
    /// The controller is gone; or the message is longer than 1 MiB.
    pub fn send(&self, message: &impl Serialize) -> io::Result<()> {
        let line = line("", message)?;
        write(&mut *lock(&self.0), &line)
    }
}

impl core::fmt::Debug for ControllerSender {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ControllerSender").finish_non_exhaustive()
    }
}

/// Reads the controller's first line, answers it with the greeting that `answer` makes of it, and
/// goes on as a [`Controller`]. Why `answer` does not do it is told to the controller and to the caller.
///
/// # Errors
///
/// See [`AgentError`].
pub fn serve_stdio<T: DeserializeOwned, S, E: Into<Refusal>>(
    answer: impl FnOnce(T) -> Result<(Greeting, S), E>,
) -> Result<(S, Controller), AgentError> {
    serve(io::stdin(), io::stdout(), answer)
}

/// As [`serve_stdio`], on any pair of streams.
///
/// # Errors
///
/// See [`AgentError`].
pub fn serve<T: DeserializeOwned, S, E: Into<Refusal>>(
    input: impl Read + Send + 'static,
    mut output: impl Write + Send + 'static,
    answer: impl FnOnce(T) -> Result<(Greeting, S), E>,
) -> Result<(S, Controller), AgentError> {
    let mut input = BufReader::new(input);
    let mut greet = |greeting: &Greeting| say(&mut output, GREETING_PREFIX, greeting);
    let refused = |refusal: Refusal| AgentError::Refused(refusal.text, refusal.code);
    let answered =
        first(&mut input).and_then(|first| answer(first).map_err(|why| refused(why.into())));
    let state = match answered {
        Ok((greeting, state)) => {
            greet(&greeting)?;
            state
        }
        Err(error) => {
            if !matches!(error, AgentError::NoController) {
                // Whom it cannot be told, nobody is there.
                let code = match &error {
                    AgentError::Refused(_, code) => Some(*code),
                    _ => None,
                };
                let _ = greet(&Greeting { code, ..Greeting::refusal(error.to_string()) });
            }
            return Err(error);
        }
    };
    go_on(input, output, state)
}

/// As [`serve_stdio`], for an agent that knows how to listen before the controller's first line has come: it
/// greets at once, and what `answer` makes of that line follows.
///
/// # Errors
///
/// See [`AgentError`].
pub fn serve_stdio_early<T: DeserializeOwned, O, S, E: Into<Refusal>>(
    open: impl FnOnce() -> Result<(Greeting, O), E>,
    answer: impl FnOnce(T, O) -> Result<S, E>,
) -> Result<(S, Controller), AgentError> {
    serve_early(io::stdin(), io::stdout(), open, answer)
}

/// As [`serve_stdio_early`], on any pair of streams.
///
/// # Errors
///
/// See [`AgentError`].
pub fn serve_early<T: DeserializeOwned, O, S, E: Into<Refusal>>(
    input: impl Read + Send + 'static,
    mut output: impl Write + Send + 'static,
    open: impl FnOnce() -> Result<(Greeting, O), E>,
    answer: impl FnOnce(T, O) -> Result<S, E>,
) -> Result<(S, Controller), AgentError> {
    let refused = |refusal: Refusal| AgentError::Refused(refusal.text, refusal.code);
    let opened = match open() {
        Ok((greeting, opened)) => {
            say(&mut output, GREETING_PREFIX, &greeting)?;
            opened
        }
        Err(why) => {
            let why = why.into();
            let greeting = Greeting { code: Some(why.code), ..Greeting::refusal(why.text.clone()) };
            say(&mut output, GREETING_PREFIX, &greeting)?;
            return Err(refused(why));
        }
    };
    let mut input = BufReader::new(input);
    let answered = first(&mut input)
        .and_then(|first| answer(first, opened).map_err(|why| refused(why.into())));
    match answered {
        Ok(state) => {
            say(&mut output, "", &Answer::Ready)?;
            go_on(input, output, state)
        }
        Err(error) => {
            if !matches!(error, AgentError::NoController) {
                let code = match &error {
                    AgentError::Refused(_, code) => *code,
                    _ => 1,
                };
                // Whom it cannot be told, nobody is there.
                let _ = say(&mut output, "", &Answer::Refused { text: error.to_string(), code });
            }
            Err(error)
        }
    }
}

fn say(output: &mut impl Write, prefix: &str, message: &impl Serialize) -> Result<(), AgentError> {
    line(prefix, message).and_then(|line| write(output, &line)).map_err(AgentError::Stream)
}

/// Both know each other: further lines are messages.
fn go_on<S>(
    input: impl BufRead + Send + 'static,
    output: impl Write + Send + 'static,
    state: S,
) -> Result<(S, Controller), AgentError> {
    let (told, received) = mpsc::sync_channel(MAX_WAITING);
    thread::Builder::new()
        .name("farhaul-controller".into())
        .spawn(move || deliver(input, &told))
        .map_err(AgentError::Stream)?;
    let sender = ControllerSender(Arc::new(Mutex::new(output)));
    Ok((state, Controller { sender, received }))
}

fn first<T: DeserializeOwned>(input: &mut impl BufRead) -> Result<T, AgentError> {
    let line = match read_line(input, MAX_LINE) {
        Ok(Some(line)) if !line.is_empty() => line,
        Ok(_) => return Err(AgentError::NoController),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return Err(AgentError::Malformed(error.to_string()));
        }
        Err(error) => return Err(AgentError::Stream(error)),
    };
    serde_json::from_slice(&line).map_err(|error| AgentError::Malformed(shown(&error.to_string())))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::os::unix::net::UnixStream;

    use farhaul_secure::Identity;
    use serde_json::{Value, json};

    use super::*;

    /// What an agent says to `input`, and what it makes of it.
    fn serve_text(input: &str) -> (Result<u64, AgentError>, String) {
        let (mut near, far) = UnixStream::pair().unwrap();
        let input = io::Cursor::new(input.to_owned());
        let result = serve(input, far, |first: Value| {
            let number = first["number"].as_u64().ok_or("there is no number".to_owned())?;
            let key = Identity::generate().unwrap().public_key();
            Ok::<_, String>((Greeting { udp_port: Some(7), ..Greeting::new(key) }, number))
        });
        let result = result.map(|(number, controller)| {
            controller.sender().send(&json!({ "got": number })).unwrap();
            let last = controller.received().iter().last();
            assert_eq!(last, Some(Received::Closed(None)));
            number
        });
        let mut said = String::new();
        near.read_to_string(&mut said).unwrap();
        (result, said)
    }

    #[test]
    fn an_agent_greets_and_goes_on() {
        let (result, said) = serve_text("{\"number\":5}\n{\"more\":1}\n");
        assert_eq!(result.unwrap(), 5);
        let (first, second) = said.split_once('\n').unwrap();
        let greeting: Greeting =
            serde_json::from_str(first.strip_prefix(GREETING_PREFIX).unwrap()).unwrap();
        assert_eq!((greeting.udp_port, greeting.error), (Some(7), None));
        assert_eq!(second, "{\"got\":5}\n");
    }

    /// Its greeting is there before anything has been said to it, and its answer after.
    #[test]
    fn an_agent_that_knows_how_to_listen_greets_before_it_is_spoken_to() {
        for (order, code) in [(json!({"number": 5}), None), (json!({}), Some(2))] {
            let (near, far) = UnixStream::pair().unwrap();
            let input = far.try_clone().unwrap();
            let agent = thread::spawn(move || {
                let open = || Ok((Greeting::default(), 37));
                serve_early(input, far, open, |first: Value, opened: u64| {
                    let refusal = || Refusal { code: 2, text: "there is no number".into() };
                    first["number"].as_u64().map(|number| number + opened).ok_or_else(refusal)
                })
            });
            let mut lines = BufReader::new(near.try_clone().unwrap());
            let mut greeting = String::new();
            lines.read_line(&mut greeting).unwrap();
            assert!(greeting.starts_with(GREETING_PREFIX), "{greeting}");
            write(&mut &near, &line("", &order).unwrap()).unwrap();
            let mut answer = String::new();
            lines.read_line(&mut answer).unwrap();
            let answer: Answer = serde_json::from_str(&answer).unwrap();
            let said = match answer {
                Answer::Ready => None,
                Answer::Refused { code, .. } => Some(code),
            };
            assert_eq!(said, code);
            match agent.join().unwrap() {
                Ok((number, _)) => assert_eq!((number, code), (42, None)),
                Err(AgentError::Refused(_, refused)) => assert_eq!(code, Some(refused)),
                Err(error) => panic!("{error}"),
            }
        }
    }

    #[test]
    fn an_agent_that_cannot_serve_says_so() {
        let (result, said) = serve_text("{}\n");
        assert!(matches!(result, Err(AgentError::Refused(_, 1))));
        assert!(said.starts_with(GREETING_PREFIX) && said.contains("there is no number"), "{said}");
        let (result, said) = serve_text("ls\n");
        assert!(matches!(result, Err(AgentError::Malformed(_))));
        assert!(said.contains("not from farhaul"), "{said}");
        let (result, said) = serve_text("");
        assert!(matches!(result, Err(AgentError::NoController)));
        assert_eq!(said, "");
    }
}
