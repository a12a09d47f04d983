//! A law at work: it is told of events, what it sets is kept within limits, and if it panics,
//! nothing but its own connection comes to harm.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{Knobs, Law, SHORTEST_WAIT, View};

/// A law and what it has set.
#[derive(Debug)]
pub struct Governor {
    law: Box<dyn Law>,
    knobs: Knobs,
    watches_packets: bool,
    /// What the law said when it panicked: it is told of nothing more.
    failure: Option<String>,
}

impl Governor {
    /// `law` with knobs at their defaults. Tell it of [`Law::init`] first.
    pub fn new(law: Box<dyn Law>) -> Self {
        let mut governor =
            Governor { law, knobs: Knobs::default(), watches_packets: false, failure: None };
        governor.ask_what_it_watches();
        governor
    }

    fn ask_what_it_watches(&mut self) {
        let law = self.law.as_ref();
        match catch_unwind(AssertUnwindSafe(|| law.watches_packets())) {
            Ok(watches) => self.watches_packets = watches,
            Err(panic) => self.fail(panic.as_ref()),
        }
    }

    /// Tells the law of an event. What it has set is within its limits afterwards.
    #[inline]
    pub fn tell<T: Default>(
        &mut self,
        view: &View,
        event: impl FnOnce(&mut dyn Law, &View, &mut Knobs) -> T,
    ) -> T {
        if self.failure.is_some() {
            return T::default();
        }
        let timer = self.knobs.timer;
        let (law, knobs) = (self.law.as_mut(), &mut self.knobs);
        // Law and knobs may be left in any state by a panic: neither is looked at again.
        let told = catch_unwind(AssertUnwindSafe(|| event(law, view, knobs)));
        self.knobs.contain(view.now);
        if self.knobs.timer != timer {
            // Only a new one: one that is nearly due would be put off by each event.
            self.knobs.timer = self.knobs.timer.map(|at| at.max(view.now + SHORTEST_WAIT));
        }
        told.unwrap_or_else(|panic| {
            self.fail(panic.as_ref());
            T::default()
        })
    }

    /// Puts `law` in the place of the one at work. Window and period stay what they are until the
    /// new law changes them.
    pub fn replace(&mut self, law: Box<dyn Law>, view: &View) {
        self.tell(view, |law, view, knobs| law.close(view, knobs));
        self.dismiss(law);
        self.ask_what_it_watches();
        let Knobs { window, period_ns, pause_until, messages, .. } =
            core::mem::take(&mut self.knobs);
        self.knobs = Knobs { window, period_ns, pause_until, messages, ..Knobs::default() };
        self.tell(view, |law, view, knobs| law.init(view, knobs));
    }

    /// The law at work.
    pub fn law(&self) -> &dyn Law {
        self.law.as_ref()
    }

    /// The law's name and state, for who looks on. Both are empty once the law has failed.
    pub fn describe(&mut self) -> (&'static str, &'static str) {
        if self.failure.is_some() {
            return Default::default();
        }
        let law = self.law.as_ref();
        // A law may panic here as well as in its handlers.
        let told = catch_unwind(AssertUnwindSafe(|| (law.name(), law.state())));
        told.unwrap_or_else(|panic| {
            self.fail(panic.as_ref());
            Default::default()
        })
    }

    /// Whether the law wants to be told of each packet.
    pub fn watches_packets(&self) -> bool {
        self.watches_packets
    }

    /// What the law has set, within its limits.
    pub fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    /// To take out messages and timers, and for hosts with a say of their own.
    pub fn knobs_mut(&mut self) -> &mut Knobs {
        &mut self.knobs
    }

    /// What the law said when it panicked, if it did.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Puts `law` in the place of the one at work, which may panic even when it is dropped.
    fn dismiss(&mut self, law: Box<dyn Law>) {
        let before = core::mem::replace(&mut self.law, law);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(before))) {
            self.fail(panic.as_ref());
        }
    }

    #[cold]
    fn fail(&mut self, panic: &(dyn core::any::Any + Send)) {
        self.failure = Some(text_of(panic));
        self.watches_packets = false;
        self.knobs = Knobs::default();
    }
}

impl Drop for Governor {
    fn drop(&mut self) {
        self.dismiss(Box::new(Broken(String::new())));
    }
}

/// The law that `make` makes, or one that fails as soon as it is told of anything: whoever makes laws
/// has other connections to look after.
pub(crate) fn made(make: impl FnOnce() -> Box<dyn Law>) -> Box<dyn Law> {
    let made = catch_unwind(AssertUnwindSafe(make));
    made.unwrap_or_else(|panic| Box::new(Broken(text_of(panic.as_ref()))))
}

/// Stands for a law that could not be made: what that said.
#[derive(Debug)]
struct Broken(String);

impl Law for Broken {
    fn name(&self) -> &'static str {
        "broken"
    }

    fn init(&mut self, _view: &View, _knobs: &mut Knobs) {
        std::panic::resume_unwind(Box::new(core::mem::take(&mut self.0)));
    }
}

/// What was said in a panic.
fn text_of(panic: &(dyn core::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests;
