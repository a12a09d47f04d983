//! What clients use up: their bytes and their share of the rate, over all their sessions.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use farhaul_mover::transfer::memory;
use farhaul_mover::transfer::pace::Pace;
use farhaul_mover::transfer::sink::Helpers;
use farhaul_secure::PublicKey;

use super::Limits;
use crate::exit::Usage;
use crate::keys::store;

/// Threads that the sinks of a client's sessions have together, beyond those that each needs.
const SECOND_WORKERS: usize = 4;

/// The accounts of all clients that have come so far, as long as the server runs.
#[derive(Debug, Default)]
pub struct Accounts {
    all: Mutex<HashMap<PublicKey, Arc<Account>>>,
    /// What all clients make the server keep.
    memory: Arc<memory::Account>,
    /// What stands in the file.
    saved: Mutex<String>,
}

/// What one client has used.
#[derive(Debug, Default)]
pub struct Account {
    used: Mutex<Used>,
    /// What all its sessions make the server keep.
    pub memory: Arc<memory::Account>,
    /// Threads that hear what its connections are for.
    pub greeted: Arc<AtomicUsize>,
    /// Lanes and control channels of its sessions, beyond the first of each session.
    pub further: Further,
    /// Threads of its sessions' sinks beyond those that each needs.
    pub second_workers: SecondWorkers,
    /// For the rate that it was made for.
    pace: Mutex<Option<(u64, Arc<Pace>)>>,
}

/// Connections beyond the first of each session, which no session is without.
#[derive(Debug, Default)]
pub struct Further {
    pub lanes: Arc<AtomicUsize>,
    pub controls: Arc<AtomicUsize>,
}

/// Threads by which the sinks of a client's sessions do several things at once.
#[derive(Debug)]
pub struct SecondWorkers(pub Arc<Helpers>);

impl Default for SecondWorkers {
    fn default() -> Self {
        SecondWorkers(Arc::new(Helpers::new(SECOND_WORKERS)))
    }
}

#[derive(Debug, Default)]
struct Used {
    /// Days since 1970.
    day: u64,
    /// Bytes of that day.
    today: u64,
    /// Bytes in all.
    total: u64,
}

/// A limit that is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsedUp {
    /// Until midnight UTC.
    Today,
    /// As long as the server runs.
    All,
}

impl std::fmt::Display for UsedUp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            UsedUp::Today => {
                "what this client may move a day is used up; it begins anew at midnight UTC"
            }
            UsedUp::All => "what this client may move is used up; ask who runs the server for more",
        })
    }
}

/// Today, UTC, as days since 1970.
pub fn today() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() / 86_400)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The file with what clients have used today, in the directory for what the server keeps.
const FILE: &str = "accounts";

impl Accounts {
    /// Takes up what the last server has written to `directory`.
    ///
    /// # Errors
    /// The file cannot be read, others may write to it, or it is none of a server's.
    pub fn load(&self, directory: &Path) -> Result<(), Usage> {
        let path = directory.join(FILE);
        let Some(text) = store::read_if_there(&path)? else { return Ok(()) };
        let mut all = lock(&self.all);
        for (number, line) in text.lines().enumerate() {
            let mut words = line.split(' ');
            let mut next = || words.next().unwrap_or_default();
            let (key, day, today) = (next().parse(), next().parse(), next().parse());
            let (Ok(key), Ok(day), Ok(today)) = (key, day, today) else {
                let (path, line) = (path.display(), number + 1);
                return Err(Usage(format!(
                    "{path}:{line}: not a client's account: remove the file, and the day is \
                     counted anew"
                )));
            };
            let used = Mutex::new(Used { day, today, total: 0 });
            all.insert(key, Arc::new(Account { used, ..self.fresh() }));
        }
        Ok(())
    }

    /// Writes what clients have used today to `directory`, if it has changed since.
    ///
    /// # Errors
    /// It cannot be written: the file is as it was.
    pub fn save(&self, directory: &Path) -> io::Result<()> {
        // First, so that no older text replaces a newer one.
        let mut saved = lock(&self.saved);
        let mut lines: Vec<String> = lock(&self.all)
            .iter()
            .map(|(key, account)| {
                let used = lock(&account.used);
                format!("{key} {} {}\n", used.day, used.today)
            })
            .collect();
        lines.sort();
        let text = lines.concat();
        if *saved != text {
            store::write_new(&directory.join(FILE), text.as_bytes(), 0o600, true)?;
            *saved = text;
        }
        Ok(())
    }

    fn fresh(&self) -> Account {
        let memory = memory::Account::below(Arc::clone(&self.memory), u64::MAX);
        Account { memory: Arc::new(memory), ..Account::default() }
    }

    /// That of the holder of `key`. Only keys that are allowed come here, so there are few.
    pub fn of(&self, key: PublicKey) -> Arc<Account> {
        Arc::clone(lock(&self.all).entry(key).or_insert_with(|| Arc::new(self.fresh())))
    }

    /// What all clients together and each may make the server keep, bytes.
    pub fn limit_memory(&self, all: u64, each: u64) {
        self.memory.set_limit(all);
        lock(&self.all).values().for_each(|account| account.memory.set_limit(each));
    }
}

impl Account {
    /// What all sessions of the client share to keep `rate`, bits/s, together.
    pub fn pace(&self, rate: Option<u64>) -> Option<Arc<Pace>> {
        let rate = rate?;
        let mut pace = lock(&self.pace);
        match &*pace {
            Some((same, pace)) if *same == rate => Some(Arc::clone(pace)),
            _ => Some(Arc::clone(&pace.insert((rate, Arc::new(Pace::new(rate)))).1)),
        }
    }

    /// What is left on `day`, bytes.
    pub fn left(&self, limits: &Limits, day: u64) -> u64 {
        lock(&self.used).left(limits, day)
    }

    /// Takes `bytes` of what is left on `day`, at once for all sessions of the client; all that is left, where that
    /// is less. A date that goes back begins no day anew.
    ///
    /// # Errors
    /// There is less: which limit is used up.
    pub fn take(&self, bytes: u64, limits: &Limits, day: u64) -> Result<(), UsedUp> {
        let mut used = lock(&self.used);
        if used.day < day {
            (used.day, used.today) = (day, 0);
        }
        let taken = bytes.min(used.left(limits, day));
        used.today = used.today.saturating_add(taken);
        used.total = used.total.saturating_add(taken);
        match taken == bytes {
            true => Ok(()),
            false => used.check(limits, day),
        }
    }

    /// Gives back what was taken and not moved.
    pub fn give_back(&self, bytes: u64) {
        let mut used = lock(&self.used);
        used.today = used.today.saturating_sub(bytes);
        used.total = used.total.saturating_sub(bytes);
    }

    /// Whether anything is left on `day`.
    ///
    /// # Errors
    /// Which limit is used up.
    pub fn check(&self, limits: &Limits, day: u64) -> Result<(), UsedUp> {
        lock(&self.used).check(limits, day)
    }
}

impl Used {
    fn on(&self, day: u64) -> u64 {
        if self.day < day { 0 } else { self.today }
    }

    fn left(&self, limits: &Limits, day: u64) -> u64 {
        let of = |most: Option<u64>, used| most.map_or(u64::MAX, |most| most.saturating_sub(used));
        of(limits.bytes, self.total).min(of(limits.bytes_per_day, self.on(day)))
    }

    fn check(&self, limits: &Limits, day: u64) -> Result<(), UsedUp> {
        if limits.bytes.is_some_and(|most| self.total >= most) {
            return Err(UsedUp::All);
        }
        if limits.bytes_per_day.is_some_and(|most| self.on(day) >= most) {
            return Err(UsedUp::Today);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_begin_anew_and_the_sum_does_not() {
        let account = Account::default();
        let limits = Limits { bytes_per_day: Some(10), bytes: Some(25), ..Limits::default() };
        assert_eq!(account.check(&limits, 1), Ok(()));
        assert_eq!(account.take(9, &limits, 1), Ok(()));
        assert_eq!(account.check(&limits, 1), Ok(()));
        assert_eq!(account.take(1, &limits, 1), Ok(()));
        assert_eq!(account.check(&limits, 1), Err(UsedUp::Today));
        assert_eq!(account.check(&limits, 2), Ok(()));
        assert_eq!(account.take(9, &limits, 2), Ok(()));
        assert_eq!((account.check(&limits, 2), account.left(&limits, 2)), (Ok(()), 1));
        assert_eq!(account.take(u64::MAX, &limits, 3), Err(UsedUp::All));
        assert_eq!(lock(&account.used).total, 25, "no more than there was");
        assert_eq!(account.check(&limits, 4), Err(UsedUp::All));
        assert_eq!(account.check(&Limits::default(), 4), Ok(()));
    }

    #[test]
    fn what_was_used_today_outlives_the_server_and_clocks_that_go_back() {
        let dir = tempfile::tempdir().expect("a directory");
        let key = farhaul_secure::Identity::generate().expect("a key").public_key();
        let limits = Limits { bytes_per_day: Some(10), ..Limits::default() };
        let before = Accounts::default();
        before.load(dir.path()).expect("nothing is there yet");
        before.of(key).take(10, &limits, 7).expect("it is left");
        before.save(dir.path()).expect("written");
        let after = Accounts::default();
        after.load(dir.path()).expect("read");
        let account = after.of(key);
        assert_eq!(account.check(&limits, 7), Err(UsedUp::Today));
        assert_eq!(account.check(&limits, 6), Err(UsedUp::Today), "the clock went back");
        assert_eq!(account.take(1, &limits, 6), Err(UsedUp::Today));
        assert_eq!(account.check(&limits, 7), Err(UsedUp::Today));
        assert_eq!(account.check(&limits, 8), Ok(()));
        std::fs::write(dir.path().join(FILE), "x\n").expect("a file");
        assert!(Accounts::default().load(dir.path()).is_err());
    }

    #[test]
    fn what_many_take_at_once_is_no_more_than_there_is() {
        let account = Account::default();
        let limits = Limits { bytes: Some(1_000_003), ..Limits::default() };
        let taken: u64 = std::thread::scope(|threads| {
            let take =
                || (0..10_000).filter(|_| account.take(7, &limits, 1).is_ok()).count() as u64 * 7;
            let all: Vec<_> = (0..16).map(|_| threads.spawn(take)).collect();
            all.into_iter().map(|each| each.join().expect("no panic")).sum()
        });
        assert!((999_997..=1_000_003).contains(&taken), "{taken}");
        assert_eq!(lock(&account.used).total, 1_000_003);
        account.give_back(7);
        assert_eq!(account.left(&limits, 1), 7);
    }

    #[test]
    fn sessions_of_a_client_share_its_rate() {
        let accounts = Accounts::default();
        let key = || farhaul_secure::Identity::generate().expect("a key").public_key();
        let (a, b) = (key(), key());
        let pace = |key, rate| accounts.of(key).pace(Some(rate)).expect("a rate");
        assert!(Arc::ptr_eq(&pace(a, 1000), &pace(a, 1000)));
        assert!(!Arc::ptr_eq(&pace(a, 1000), &pace(b, 1000)));
        assert!(!Arc::ptr_eq(&pace(a, 1000), &pace(a, 2000)), "the rate has changed");
        assert!(accounts.of(a).pace(None).is_none());
    }
}
