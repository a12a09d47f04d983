//! `farhaul agent`: the half of a command that runs on another host, started over ssh.

use anyhow::Result;
use clap::Args;
use farhaul_remote::agent::{AgentError, Refusal, serve_stdio};
use farhaul_remote::bootstrap::Hello;
use serde::{Deserialize, Serialize};

use crate::cp::agent as copying;
use crate::cp::job::Order;
use crate::doctor;
use crate::exit::Failed;

/// Serve farhaul on another host. It starts this over ssh; by hand it is of no use.
#[derive(Args, Debug)]
pub struct AgentArgs {}

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

/// Runs the command.
pub fn run(_: &AgentArgs) -> Result<()> {
    let (ready, controller) = serve_stdio(|hello: Hello| {
        hello.check().map_err(|text| Refusal { code: 3, text })?;
        let task = serde_json::from_value(hello.body.clone())
            .map_err(|error| format!("this version does not know what to do: {error}"))?;
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
    .map_err(|error| match error {
        // The controller says it; here it would be said twice.
        AgentError::Refused(_, code) => Failed { code, message: String::new() }.into(),
        error => anyhow::Error::from(error),
    })?;
    match ready {
        Ready::Copy(ready) => copying::serve(*ready, controller),
        Ready::Doctor(patient) => doctor::serve(patient, &controller),
    }
}
