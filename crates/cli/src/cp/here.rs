//! A copy within this host: both sides in this process, over pipes.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use farhaul_mover::Cancel;
use farhaul_mover::transfer::link::{self, Purpose};
use farhaul_mover::transfer::session::{self, Dial, Links, greet};
use farhaul_remote::Link;
use farhaul_remote::bootstrap::fresh;

use super::cancel_on_interrupt;
use super::job::Job;
use super::links::adapt;
use super::plan::Plan;
use super::show::{Show, progress_line};
use super::side::{self, Finished, Surroundings, Wish};

/// Both sides in this process, over pipes.
pub fn run(plan: &Plan, show: &Show) -> Result<Finished> {
    let cancel = Cancel::default();
    let _registered = cancel_on_interrupt(&cancel, None);
    let (_, _, id) = fresh()?;
    let (give, accepted) = channel();
    let pipes = Pipes { give: Mutex::new(give) };
    let (source, sink) = (Job::Source(plan.source.clone()), Job::Sink(plan.sink.clone()));
    let terms = &plan.terms;
    std::thread::scope(|threads| {
        let sinks_cancel = cancel.clone();
        let sink = threads.spawn(move || {
            let around = Surroundings {
                session: id.0,
                cancel: sinks_cancel,
                // What the user is to know it tells the source.
                observe: &|_| {},
                show: &mut |_| Wish::None,
                service: None,
            };
            side::run(&sink, terms, Links::Accept(accepted), around)
        });
        let finished = side::run(
            &source,
            terms,
            Links::Dial(&pipes),
            Surroundings {
                session: id.0,
                cancel,
                observe: &|event| show.event(&event),
                show: &mut |going| {
                    show.progress(&progress_line(going));
                    Wish::None
                },
                service: None,
            },
        );
        drop(pipes);
        match sink.join() {
            // The sink knows better why it does not go on.
            Ok(Finished { result: Err(error), .. }) if finished.result.is_err() => {
                Ok(Finished { result: Err(error), ..finished })
            }
            Ok(_) => Ok(finished),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Connections within this process.
struct Pipes {
    give: Mutex<Sender<(Purpose, link::Link)>>,
}

impl Dial for Pipes {
    fn dial(&self, _way: session::Way) -> Result<link::Link, session::NoLink> {
        let (near, far) = Link::pair()?;
        let give = self.give.lock().unwrap_or_else(PoisonError::into_inner).clone();
        std::thread::spawn(move || {
            let mut far = adapt(far, 0);
            if let Ok(join) = greet(&mut far) {
                // Nobody takes it any more when the copy is over.
                let _ = give.send((join.purpose, far));
            }
        });
        Ok(adapt(near, 0))
    }
}
