//! The connections of an agent, and whose turn it is.

use core::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use farhaul_base::Time;

/// Connections by number, each with the time of its next turn.
#[derive(Debug)]
pub struct Connections<T> {
    /// With the earliest time under which it is in the heap.
    map: BTreeMap<u32, (T, Time)>,
    turns: BinaryHeap<Reverse<(Time, u32)>>,
}

impl<T> Connections<T> {
    /// None.
    pub fn new() -> Self {
        Connections { map: BTreeMap::new(), turns: BinaryHeap::new() }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.map.values().map(|(value, _)| value)
    }

    /// One of them.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.map.get_mut(&number).map(|(value, _)| value)
    }

    /// Adds one, or puts it in place of another.
    pub fn insert(&mut self, number: u32, value: T) {
        self.map.insert(number, (value, Time::MAX));
    }

    /// Takes one away.
    pub fn remove(&mut self, number: u32) -> Option<T> {
        self.map.remove(&number).map(|(value, _)| value)
    }

    /// A connection has a turn at `at`, unless it has one before.
    pub fn ask(&mut self, number: u32, at: Time) {
        if let Some((_, earliest)) = self.map.get_mut(&number)
            && at < *earliest
        {
            *earliest = at;
            self.turns.push(Reverse((at, number)));
        }
    }

    /// Takes the next connection whose turn has come by `now`.
    pub fn due(&mut self, now: Time) -> Option<u32> {
        while let Some(&Reverse((at, number))) = self.turns.peek() {
            let earliest = self.map.get_mut(&number).map(|(_, earliest)| earliest);
            let current = earliest.filter(|earliest| **earliest == at);
            if current.is_some() && at > now {
                return None;
            }
            self.turns.pop();
            if let Some(earliest) = current {
                *earliest = Time::MAX;
                return Some(number);
            }
        }
        None
    }

    /// When the next turn is; call it after [`Connections::due`] has found none.
    pub fn next_turn(&self) -> Option<Time> {
        self.turns.peek().map(|Reverse((at, _))| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_come_once_and_in_order() {
        let at = Time::from_millis;
        let mut connections = Connections::new();
        for number in 0..3 {
            connections.insert(number, ());
        }
        connections.ask(0, at(5));
        connections.ask(1, at(3));
        connections.ask(0, at(2));
        connections.ask(2, at(4));
        assert_eq!(connections.due(at(1)), None);
        assert_eq!(connections.next_turn(), Some(at(2)));
        assert_eq!(connections.due(at(3)), Some(0));
        connections.remove(1);
        assert_eq!(connections.due(at(3)), None);
        assert_eq!((connections.next_turn(), connections.len()), (Some(at(4)), 2));
        assert_eq!(connections.due(at(9)), Some(2));
        assert_eq!(connections.due(at(9)), None, "5 ms is stale");
        assert_eq!(connections.next_turn(), None);
    }
}
