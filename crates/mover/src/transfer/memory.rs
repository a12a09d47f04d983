//! One account of what a peer makes this side keep in memory.
//!
//! Everything that grows with what a peer says is charged here at its real size: structures, the heap
//! behind them and what the allocator adds. A transfer that would go beyond its limit ends
//! ([`TransferError::Memory`]); where less will do, such as books that only make something better, it does with
//! less ([`Account::spare`]). Accounts may have one above them, for all transfers of a client and of a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::error::TransferError;

/// What a transfer may keep where nothing else is said, bytes: ten times what an honest peer needs. Data that waits
/// in transports is apart.
pub const DEFAULT_LIMIT: u64 = 512 << 20;
/// What an allocation costs beside its content, bytes.
const ALLOCATION: usize = 24;
/// What an entry of a map costs beside key and value, bytes: maps are half full after they have grown.
const MAP_ENTRY: usize = 24;

/// How much is kept, and how much may be.
#[derive(Debug)]
pub struct Account {
    limit: AtomicU64,
    used: AtomicU64,
    exceeded: AtomicBool,
    above: Option<Arc<Account>>,
}

impl Default for Account {
    fn default() -> Self {
        Account::new(DEFAULT_LIMIT)
    }
}

/// That there is no room, and what the limit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeded {
    /// The limit that was reached, bytes.
    pub limit: u64,
}

impl From<Exceeded> for TransferError {
    fn from(Exceeded { limit }: Exceeded) -> Self {
        TransferError::Memory { limit }
    }
}

impl Account {
    /// At most so many bytes.
    pub fn new(limit: u64) -> Self {
        Self::new_below(None, limit)
    }

    fn new_below(above: Option<Arc<Account>>, limit: u64) -> Self {
        let (used, exceeded) = Default::default();
        Account { limit: AtomicU64::new(limit), used, exceeded, above }
    }

    /// The same, and what it takes counts in `above`, too, until it is dropped.
    pub fn below(above: Arc<Account>, limit: u64) -> Self {
        Self::new_below(Some(above), limit)
    }

    /// Another limit from now on; what is kept already stays.
    pub fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// What is kept, bytes.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes `bytes`, while no more than `part` halves of each limit are used.
    fn take_within(&self, bytes: usize, part: u64) -> Result<(), Exceeded> {
        let bytes = bytes as u64;
        let limit = self.limit.load(Ordering::Relaxed);
        let most = limit / 2 * part;
        let more = |used: u64| used.checked_add(bytes).filter(|used| *used <= most);
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.map_err(|_| Exceeded { limit })?;
        if let Some(above) = &self.above
            && let Err(exceeded) = above.take_within(bytes as usize, part)
        {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            return Err(exceeded);
        }
        Ok(())
    }

    /// Takes `bytes` for what the transfer cannot do without.
    ///
    /// # Errors
    ///
    /// There is no room: the transfer ends soon, see [`Account::check`].
    pub fn take(&self, bytes: usize) -> Result<(), Exceeded> {
        let taken = self.take_within(bytes, 2);
        if taken.is_err() {
            self.exceeded.store(true, Ordering::Relaxed);
        }
        taken
    }

    /// Takes `bytes` for what can be done without, if half of the limit is left for the rest.
    #[must_use]
    pub fn spare(&self, bytes: usize) -> bool {
        self.take_within(bytes, 1).is_ok()
    }

    /// Takes `bytes` that are there already; the transfer ends if that is too much.
    pub fn note(&self, bytes: usize) {
        if self.take(bytes).is_err() {
            self.force(bytes as u64);
        }
    }

    fn force(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        if let Some(above) = &self.above {
            above.force(bytes);
        }
    }

    /// Gives back what was taken.
    pub fn give(&self, bytes: usize) {
        let less = |used: u64| Some(used.saturating_sub(bytes as u64));
        let _ = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        if let Some(above) = &self.above {
            above.give(bytes);
        }
    }

    /// Whether there has been room for everything so far.
    ///
    /// # Errors
    ///
    /// There has not.
    pub fn check(&self) -> Result<(), Exceeded> {
        match self.exceeded.load(Ordering::Relaxed) {
            true => Err(Exceeded { limit: self.limit.load(Ordering::Relaxed) }),
            false => Ok(()),
        }
    }

    /// Takes `bytes` until the charge is dropped.
    ///
    /// # Errors
    ///
    /// As [`Account::take`].
    pub fn charge(self: &Arc<Self>, bytes: usize) -> Result<Charge, Exceeded> {
        self.take(bytes)?;
        Ok(Charge { account: Arc::clone(self), bytes })
    }

    /// As [`Account::spare`], until the charge is dropped.
    pub fn spare_charge(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        self.spare(bytes).then(|| Charge { account: Arc::clone(self), bytes })
    }
}

impl Drop for Account {
    /// What was not given back is gone with the transfer.
    fn drop(&mut self) {
        if let Some(above) = &self.above {
            above.give(*self.used.get_mut() as usize);
        }
    }
}

/// What is given back when it is dropped.
#[derive(Debug)]
pub struct Charge {
    account: Arc<Account>,
    bytes: usize,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.give(self.bytes);
    }
}

/// What an allocation of `bytes` costs.
pub(super) const fn allocated(bytes: usize) -> usize {
    bytes + ALLOCATION
}

/// What an entry of a map costs, of these sizes.
pub(super) const fn mapped(bytes: usize) -> usize {
    2 * bytes + MAP_ENTRY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_given_back() {
        let above = Arc::new(Account::new(100));
        let account = Arc::new(Account::below(Arc::clone(&above), 80));
        let charge = account.charge(60).unwrap();
        assert_eq!((account.used(), above.used()), (60, 60));
        assert!(!account.spare(1), "half is for what cannot be done without");
        assert!(account.check().is_ok());
        assert_eq!(account.take(21), Err(Exceeded { limit: 80 }));
        assert_eq!((account.used(), above.used()), (60, 60));
        assert!(account.check().is_err());
        drop(charge);
        assert_eq!((account.used(), above.used()), (0, 0));
        account.take(30).unwrap();
        let other = Account::below(Arc::clone(&above), 80);
        assert_eq!(other.take(71), Err(Exceeded { limit: 100 }), "the one above has no room");
        assert_eq!(other.used(), 0);
        other.take(70).unwrap();
        drop(account);
        assert_eq!(above.used(), 70, "what a transfer has not given back is gone with it");
        other.note(50);
        assert!((other.used(), above.used()) == (120, 120) && other.check().is_err());
    }
}
