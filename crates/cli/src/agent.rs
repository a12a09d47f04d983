//! `farhaul agent`: the half of a command that runs on another host, started over ssh.

use anyhow::Result;
use clap::Args;
use farhaul_remote::agent::serve_stdio;
use farhaul_remote::bootstrap::Hello;
use serde::{Deserialize, Serialize};

use crate::doctor;

/// Serve farhaul on another host. It starts this over ssh; by hand it is of no use.
#[derive(Args, Debug)]
pub struct AgentArgs {}

/// What an agent is to do: the body of its controller's first line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Task {
    Doctor(doctor::DoctorTask),
}

/// Runs the command.
pub fn run(_: &AgentArgs) -> Result<()> {
    let (patient, controller) = serve_stdio(|hello: Hello| {
        hello.check()?;
        let task = serde_json::from_value(hello.body)
            .map_err(|error| format!("this version does not know what to do: {error}"))?;
        match task {
            Task::Doctor(task) => doctor::prepare(task),
        }
    })?;
    doctor::serve(patient, &controller)
}
