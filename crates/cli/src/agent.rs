//! `farhaul agent`: the half of a command that runs on another host, started over ssh.

use anyhow::Result;
use clap::Args;
use farhaul_remote::agent::{AgentError, Refusal, serve_stdio, serve_stdio_early};
use farhaul_remote::bootstrap::Hello;
use serde::{Deserialize, Serialize};

use crate::cp::agent as copying;
use crate::cp::job::{Listen, Order};
use crate::doctor;
use crate::exit::Failed;

/// Serve farhaul on another host. It starts this over ssh; by hand it is of no use.
#[derive(Args, Debug)]
pub struct AgentArgs {
    /// Listen so, in JSON, and greet before the order has come.
    #[arg(long, value_name = "HOW", hide = true)]
    listen: Option<String>,
}

/// What an agent is to do: the body of its controller's first line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Task {
    Copy(Box<Order>),
    Doctor(doctor::DoctorTask),
}

/// What is ready to be done.
enum Ready {
    Copy(Box<copying::Ready>),
    Doctor(doctor::Patient),
}

/// What the user hears of an order with something in it that this version does not know.
fn not_understood(hello: &Hello, error: &serde_json::Error) -> String {
    let (own, other) = (env!("CARGO_PKG_VERSION"), hello.version.as_str());
    format!(
        "farhaul on this host is version {own} and does not know all that version {other} on the other \
         side orders ({error}): install the same version on both hosts"
    )
}

/// Runs the command.
pub fn run(args: &AgentArgs) -> Result<()> {
    if let Some(how) = &args.listen {
        return run_early(how);
    }
    let (ready, controller) = serve_stdio(|hello: Hello| {
        hello.check().map_err(|text| Refusal { code: 3, text })?;
        let task = serde_json::from_value(hello.body.clone())
            .map_err(|error| not_understood(&hello, &error))?;
        Ok::<_, Refusal>(match task {
            Task::Copy(order) => {
                let (greeting, ready) = copying::prepare(&hello, *order)?;
                (greeting, Ready::Copy(Box::new(ready)))
            }
            Task::Doctor(task) => {
                let (greeting, patient) = doctor::prepare(task)?;
                (greeting, Ready::Doctor(patient))
            }
        })
    })
    .map_err(ended)?;
    match ready {
        Ready::Copy(ready) => copying::serve(*ready, controller),
        Ready::Doctor(patient) => doctor::serve(patient, &controller),
    }
}

/// One that listens before it knows what to do, which saves its controller round trips.
fn run_early(how: &str) -> Result<()> {
    let open = || {
        let how: Listen = serde_json::from_str(how).map_err(|error| {
            let text = format!("this version does not know how to listen so ({error})");
            Refusal { code: 3, text: format!("{text}: install the same version on both hosts") }
        })?;
        copying::open(&how)
    };
    let answer = |hello: Hello, opened: copying::Opened| {
        hello.check().map_err(|text| Refusal { code: 3, text })?;
        let task = serde_json::from_value(hello.body.clone())
            .map_err(|error| not_understood(&hello, &error))?;
        match task {
            Task::Copy(order) => copying::begin(&hello, *order, opened),
            Task::Doctor(_) => Err("a doctor does not listen".to_owned().into()),
        }
    };
    let (ready, controller) = serve_stdio_early(open, answer).map_err(ended)?;
    copying::serve(ready, controller)
}

fn ended(error: AgentError) -> anyhow::Error {
    match error {
        // The controller says it; here it would be said twice.
        AgentError::Refused(_, code) => Failed { code, message: String::new() }.into(),
        error => anyhow::Error::from(error),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json, to_value};

    use super::*;
    use crate::cp::job::{Job, Kept, SourceJob, Terms};

    fn task() -> Value {
        let preserve = Kept {
            mode: true,
            times: true,
            owner: false,
            xattrs: false,
            hard_links: false,
            sparse: true,
        };
        let terms = Terms {
            verify: true,
            dry_run: false,
            outage_ms: 1,
            lanes: 1,
            fixed_lanes: true,
            cc: "bbr".into(),
            mss: 1500,
            receive_memory: None,
            send_memory: None,
            rate: None,
            preserve,
            plain: false,
        };
        let job = Job::Source(SourceJob {
            paths: Vec::new(),
            stream: false,
            rules: Vec::new(),
            count: true,
            one_file: false,
        });
        let order = Order { job, terms, ports: None, tell: false, peer: None };
        to_value(Task::Copy(Box::new(order))).expect("JSON")
    }

    #[test]
    fn what_a_newer_version_restricts_is_refused_not_passed_over() {
        let parse = |task: Value| serde_json::from_value::<Task>(task);
        assert!(parse(task()).is_ok());
        for at in ["", "/job/source", "/terms", "/terms/preserve"] {
            let mut newer = task();
            newer.pointer_mut(at).expect("it is there")["less_than_before"] = json!(5);
            let error = parse(newer).expect_err("it is not known");
            assert!(error.to_string().contains("less_than_before"), "{at}: {error}");
        }
    }
}
