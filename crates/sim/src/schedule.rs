//! What happens next, and when.

use core::cmp::Reverse;
use std::collections::BinaryHeap;

use farhaul_base::Time;

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// The link of this number.
    Link(u32),
    /// The agent of this number.
    Agent(u32),
    /// The host at the node of this number, if it takes its time.
    Host(u32),
}

/// Turns in order of time; those at the same time in the order in which they were asked for.
#[derive(Debug, Default)]
pub struct Schedule {
    heap: BinaryHeap<Reverse<(Time, u64, Who)>>,
    /// The earliest turn of each link, agent and host in the heap: of several, the others are stale.
    links: Vec<Time>,
    agents: Vec<Time>,
    hosts: Vec<Time>,
    asked: u64,
}

impl Schedule {
    /// For so many links, agents and hosts.
    pub fn new(links: usize, agents: usize, hosts: usize) -> Self {
        Schedule {
            links: vec![Time::MAX; links],
            agents: vec![Time::MAX; agents],
            hosts: vec![Time::MAX; hosts],
            ..Schedule::default()
        }
    }

    fn earliest(&mut self, who: Who) -> &mut Time {
        match who {
            Who::Link(number) => &mut self.links[number as usize],
            Who::Agent(number) => &mut self.agents[number as usize],
            Who::Host(number) => &mut self.hosts[number as usize],
        }
    }

    /// `who` has a turn at `at`, unless it has one before.
    pub fn ask(&mut self, at: Time, who: Who) {
        let earliest = self.earliest(who);
        if at < *earliest {
            *earliest = at;
            self.asked += 1;
            self.heap.push(Reverse((at, self.asked, who)));
        }
    }

    /// Takes the next turn, if it is by `until`.
    pub fn next(&mut self, until: Time) -> Option<(Time, Who)> {
        while let Some(&Reverse((at, _, who))) = self.heap.peek() {
            if at > until {
                return None;
            }
            self.heap.pop();
            if *self.earliest(who) == at {
                *self.earliest(who) = Time::MAX;
                return Some((at, who));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_come_in_order_and_once() {
        let at = Time::from_millis;
        let mut schedule = Schedule::new(2, 1, 0);
        schedule.ask(at(5), Who::Link(1));
        schedule.ask(at(3), Who::Link(0));
        schedule.ask(at(5), Who::Agent(0));
        schedule.ask(at(2), Who::Link(1));
        schedule.ask(at(9), Who::Link(1));
        assert_eq!(schedule.next(at(4)), Some((at(2), Who::Link(1))));
        assert_eq!(schedule.next(at(4)), Some((at(3), Who::Link(0))));
        assert_eq!(schedule.next(at(4)), None);
        schedule.ask(at(5), Who::Link(1));
        assert_eq!(schedule.next(at(9)), Some((at(5), Who::Link(1))));
        assert_eq!(schedule.next(at(9)), Some((at(5), Who::Agent(0))));
        assert_eq!(schedule.next(at(9)), None);
    }
}
