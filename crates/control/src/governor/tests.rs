use core::time::Duration;

use farhaul_base::Time;
use farhaul_wire::Seq;

use super::*;
use crate::{CustomMessage, LONGEST_WAIT, MOST_MESSAGES, MOST_WINDOW, SHORTEST_WAIT, SYN};

/// Sets what it is told to.
#[derive(Debug)]
struct Puppet(fn(&mut Knobs));

impl Law for Puppet {
    fn name(&self) -> &'static str {
        "puppet"
    }

    fn watches_packets(&self) -> bool {
        true
    }

    fn on_ack(&mut self, _next: Seq, _view: &View, knobs: &mut Knobs) {
        (self.0)(knobs);
    }
}

fn after(set: fn(&mut Knobs)) -> Governor {
    let mut governor = Governor::new(Box::new(Puppet(set)));
    ack(&mut governor);
    governor
}

fn ack(governor: &mut Governor) {
    let view = View { now: Time::from_secs(5), ..View::default() };
    governor.tell(&view, |law, view, knobs| law.on_ack(Seq::new(1), view, knobs));
}

#[test]
fn windows_and_periods_are_kept_within_limits() {
    let window = |set| after(set).knobs().window;
    assert_eq!(window(|k| k.window = f64::NAN), 0.0);
    assert_eq!(window(|k| k.window = -5.0), 0.0);
    assert_eq!(window(|k| k.window = f64::INFINITY), MOST_WINDOW);
    assert_eq!(window(|k| k.window = 3.5), 3.5);
    let longest = LONGEST_WAIT.as_nanos() as f64;
    let period = |set| after(set).knobs().period_ns;
    assert_eq!(period(|k| k.period_ns = f64::NAN), longest);
    assert_eq!(period(|k| k.period_ns = f64::INFINITY), longest);
    assert_eq!(period(|k| k.period_ns = -1.0), 0.0);
    assert_eq!(period(|k| k.period_ns = 12_000.0), 12_000.0);
}

#[test]
fn times_and_messages_are_kept_within_limits() {
    let governor = after(|k| {
        k.pause_until = Time::MAX;
        k.ack_period = Duration::ZERO;
        k.rto = Some(Duration::ZERO);
        k.rtt = Some(Duration::MAX);
        let message = CustomMessage { subtype: 1, info: 0, payload: Vec::new() };
        k.messages = vec![message; 1000];
    });
    let knobs = governor.knobs();
    assert_eq!(knobs.pause_until, Time::from_secs(6));
    assert_eq!((knobs.ack_period, knobs.rto), (SHORTEST_WAIT, Some(SHORTEST_WAIT)));
    assert_eq!(knobs.rtt, Some(Duration::from_secs(60)));
    assert_eq!(knobs.messages.len(), MOST_MESSAGES);
    assert_eq!(after(|k| k.ack_period = Duration::MAX).knobs().ack_period, SYN);
}

#[test]
fn a_panic_is_the_last_that_is_heard_of_a_law() {
    let mut governor = after(|k| {
        k.window = 1e9;
        panic!("window of {}", k.window)
    });
    assert_eq!(governor.failure(), Some("window of 1000000000"));
    assert!(!governor.watches_packets());
    assert_eq!(governor.knobs().window, Knobs::default().window);
    ack(&mut governor);
    assert_eq!(governor.failure(), Some("window of 1000000000"), "it is told of nothing more");
}

#[test]
fn another_law_begins_where_the_last_one_ended() {
    let mut governor = after(|k| {
        (k.window, k.period_ns) = (300.0, 5_000.0);
        (k.ack_interval, k.rto) = (2, Some(Duration::from_secs(1)));
        k.timer = Some(Time::from_secs(9));
    });
    governor.replace(Box::new(Puppet(|_| ())), &View::default());
    let knobs = governor.knobs();
    assert_eq!((knobs.window, knobs.period_ns), (300.0, 5_000.0));
    assert_eq!((knobs.ack_interval, knobs.rto, knobs.timer), (0, None, None));
}

/// Panics when it is asked how it is.
#[derive(Debug)]
struct Shy;

impl Law for Shy {
    fn name(&self) -> &'static str {
        "shy"
    }

    fn state(&self) -> &'static str {
        panic!("none of your business")
    }
}

#[test]
fn a_law_is_described_until_it_fails() {
    assert_eq!(after(|_| {}).describe(), ("puppet", ""));
    assert_eq!(after(|_| panic!("no more")).describe(), ("", ""));
    let mut shy = Governor::new(Box::new(Shy));
    assert_eq!(shy.describe(), ("", ""));
    assert_eq!(shy.failure(), Some("none of your business"));
}

/// Panics wherever it is asked to by its number.
#[derive(Debug)]
struct Fragile(u32);

impl Law for Fragile {
    fn name(&self) -> &'static str {
        "fragile"
    }

    fn watches_packets(&self) -> bool {
        assert_ne!(self.0, 1, "watches");
        false
    }
}

impl Drop for Fragile {
    fn drop(&mut self) {
        assert_ne!(self.0, 2, "dropped");
    }
}

#[test]
fn a_panic_outside_the_handlers_is_one_of_its_own_connection() {
    let watching = Governor::new(Box::new(Fragile(1)));
    assert!(watching.failure().unwrap().contains("watches"));
    let mut leaving = Governor::new(Box::new(Fragile(2)));
    assert_eq!(leaving.failure(), None);
    leaving.replace(Box::new(Puppet(|_| ())), &View::default());
    assert!(leaving.failure().unwrap().contains("dropped"));
    drop(Governor::new(Box::new(Fragile(2))));

    let mut unmade = Governor::new(made(|| panic!("no such value")));
    unmade.tell(&View::default(), |law, view, knobs| law.init(view, knobs));
    assert_eq!(unmade.failure(), Some("no such value"));
}

#[test]
fn a_timer_is_not_for_at_once_and_is_not_put_off() {
    let mut governor = after(|k| k.timer = Some(Time::ZERO));
    let at = Time::from_secs(5) + SHORTEST_WAIT;
    assert_eq!(governor.knobs().timer, Some(at));
    let later = View { now: Time::from_secs(5) + SHORTEST_WAIT / 2, ..View::default() };
    governor.tell(&later, |_, _, _| ());
    assert_eq!(governor.knobs().timer, Some(at));
}
