//! Connections of a listener that are agreed on, and begin with their first data.

use core::time::Duration;
use std::collections::BTreeMap;

use farhaul_base::Time;
use farhaul_base::newcomers::{Crowd, Source, Tally};

use super::super::Client;
use crate::handshake::Agreement;

/// The first data must come within this time.
const FIRST_DATA: Duration = Duration::from_secs(10);

/// What is kept of a connection until then.
#[derive(Debug)]
pub struct Promise {
    pub client: Client,
    pub agreement: Agreement,
    /// It came with the listener's invitation, and may have come from anywhere.
    pub invited: bool,
}

/// Of those that came with an invitation so many are kept: twice what a copy has connections. A copy of an invitation
/// could otherwise fill all places, from as many addresses as it likes.
const MOST_INVITED: usize = 64;

/// Of a limited number, by source.
#[derive(Debug)]
pub struct Promises {
    invited: usize,
    crowd: Crowd<(Time, u32, Promise)>,
    /// Their numbers in the crowd by socket ID.
    numbers: BTreeMap<u32, u64>,
    given_up: Tally,
}

impl Promises {
    pub fn new(most: usize, seed: u64) -> Self {
        let crowd = Crowd::new(most, seed);
        Promises { invited: 0, crowd, numbers: BTreeMap::new(), given_up: Tally::default() }
    }

    /// Whether there is room for one that comes with an invitation; others need none.
    pub fn takes_invited(&self) -> bool {
        self.invited < MOST_INVITED
    }

    pub fn get(&self, id: u32) -> Option<&Promise> {
        let number = self.numbers.get(&id)?;
        self.crowd.get(*number).map(|(.., promise)| promise)
    }

    /// Whose requests wait.
    pub fn clients(&self) -> impl Iterator<Item = Client> {
        self.crowd.iter().map(|(_, (.., promise))| promise.client)
    }

    /// One more; returns the one that had to go for it.
    pub fn add(&mut self, now: Time, id: u32, promise: Promise) -> Option<Promise> {
        self.invited += usize::from(promise.invited);
        let source = Source::of(promise.client.addr);
        let (number, gone) = self.crowd.enter(source, (now + FIRST_DATA, id, promise));
        self.numbers.insert(id, number);
        gone.map(|(source, (_, id, promise))| {
            self.numbers.remove(&id);
            self.given_up.add(source, 1);
            self.invited -= usize::from(promise.invited);
            promise
        })
    }

    /// Its first data has come.
    pub fn take(&mut self, id: u32) -> Option<Promise> {
        let number = self.numbers.remove(&id)?;
        let (.., promise) = self.crowd.leave(number)?;
        self.invited -= usize::from(promise.invited);
        Some(promise)
    }

    /// Its client has left.
    pub fn give_up(&mut self, id: u32) -> Option<Client> {
        let Promise { client, .. } = self.take(id)?;
        self.given_up.add(Source::of(client.addr), 1);
        Some(client)
    }

    /// Whose time is over; one a call.
    pub fn expire(&mut self, now: Time) -> Option<Client> {
        let (_, (until, id, _)) = self.crowd.oldest()?;
        let (until, id) = (*until, *id);
        if until <= now { self.give_up(id) } else { None }
    }

    pub fn take_given_up(&mut self) -> Tally {
        core::mem::take(&mut self.given_up)
    }
}
