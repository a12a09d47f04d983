//! The process at an end of the path: runs what it is told to, watches what arrives, and accounts for all
//! processes below it.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use farhaul_lab::report;
use nix::sys::resource::{UsageWho, getrusage};
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process_group, set_child_subreaper, wait,
};
use serde::{Deserialize, Serialize};

use crate::interrupt::stop_flag;

/// How often it is looked whether something has ended.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// How often it is looked what has arrived.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);
/// How long the other end may take to tell what it has received, once this one has sent all: a lost word that it is over is
/// made up for by a time-out.
const PEER_WITHIN: Duration = Duration::from_secs(20);
/// How long what a command has left behind may take to end. The path gives an end 2 s after it has asked.
const ENDS_WITHIN: Duration = Duration::from_secs(1);
/// Of a command's standard output or error so much is kept.
const MOST_OUTPUT: usize = 8 << 20;
/// Read and written at a time.
const CHUNK: usize = 1 << 16;

/// What the process is told.
#[derive(Args, Debug)]
pub struct SideArgs {
    /// Orders, as JSON
    #[arg(value_name = "FILE")]
    orders: PathBuf,
}

/// What an end is to do.
#[derive(Debug, Serialize, Deserialize)]
pub struct Orders {
    /// All at the same time.
    pub commands: Vec<Order>,
    /// What has not ended after so many seconds is ended.
    pub limit_s: f64,
    /// Where the account goes.
    pub account: PathBuf,
    /// What is written when all commands have ended that end by themselves.
    pub tells: Option<PathBuf>,
    /// What is waited for when all commands have ended.
    pub waits_for: Option<PathBuf>,
}

/// A command for `sh`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Order {
    pub text: String,
    /// It has bytes without end at its standard input for so many seconds.
    pub feeds_s: Option<f64>,
    /// What it writes to its standard output is counted, and not kept.
    pub counts: bool,
    /// Where it brings files.
    pub folder: Option<PathBuf>,
    /// It does not end by itself.
    pub stays: bool,
}

/// What has become of a command.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Ran {
    /// From its start to its end, or to the limit.
    pub seconds: f64,
    /// None: it was ended.
    pub code: Option<i32>,
    pub output: String,
    pub errors: String,
    /// Bytes that had arrived after so many seconds.
    pub arrived: Vec<(f64, u64)>,
}

/// What an end has done.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Account {
    /// In the order of the commands.
    pub ran: Vec<Ran>,
    /// Of all processes that the commands have begun, by the kernel's account.
    pub cpu_s: f64,
    /// The most memory that one of them has had resident.
    pub peak_rss_bytes: u64,
}

/// Runs the orders.
pub fn run(args: &SideArgs) -> Result<()> {
    let text = fs::read(&args.orders).with_context(|| args.orders.display().to_string())?;
    let orders: Orders = serde_json::from_slice(&text).context("orders for an end of the path")?;
    // What a command leaves behind is accounted for here.
    set_child_subreaper(Some(getpid())).context("orphans cannot be adopted")?;
    let stop = stop_flag();
    let mut side = Side::start(&orders)?;
    side.watch(&orders, &stop);
    if let Some(file) = &orders.waits_for {
        let deadline = Instant::now() + PEER_WITHIN;
        while !file.exists() && Instant::now() < deadline && !stop.load(Ordering::Relaxed) {
            thread::sleep(LOOK_EVERY);
        }
    }
    side.settle();
    let account = serde_json::to_vec(&side.account()?)?;
    report::write_whole(&orders.account, &account).context("the account cannot be written")
}

struct Side {
    began: Instant,
    tasks: Vec<Task>,
}

/// A command that was started.
struct Task {
    order: Order,
    process: Option<Pid>,
    /// Set when it ends, or is ended.
    seconds: Option<f64>,
    code: Option<i32>,
    output: Stream,
    errors: Stream,
    sampled: Vec<(f64, u64)>,
    _feeder: Option<JoinHandle<()>>,
}

impl Side {
    fn start(orders: &Orders) -> Result<Side> {
        let began = Instant::now();
        let tasks = orders.commands.iter().map(|order| Task::start(order, began));
        Ok(Side { began, tasks: tasks.collect::<Result<_>>()? })
    }

    /// Until all commands have ended that end by themselves, the time is over, or this process is asked to end. An end
    /// that tells the other one waits for the last.
    fn watch(&mut self, orders: &Orders, stop: &AtomicBool) {
        let limit = Duration::try_from_secs_f64(orders.limit_s).unwrap_or(Duration::MAX);
        let (mut sampled, mut told) = (None, false);
        while !stop.load(Ordering::Relaxed) {
            self.reap();
            let now = self.began.elapsed();
            if sampled.is_none_or(|before| now >= before + SAMPLE_EVERY) {
                sampled = Some(now);
                self.tasks.iter_mut().for_each(|task| task.sample(now));
            }
            let ended = self.tasks.iter().all(|task| task.order.stays || task.seconds.is_some());
            if ended && !told {
                told = true;
                if let Some(file) = &orders.tells {
                    // What it says is that it is there.
                    let _ = fs::write(file, "");
                }
            }
            // An end that tells another stays until it is asked to end.
            if (ended && orders.tells.is_none()) || now >= limit {
                break;
            }
            thread::sleep(LOOK_EVERY);
        }
        let now = self.began.elapsed();
        for task in &mut self.tasks {
            task.sample(now);
            task.end(Signal::TERM);
        }
    }

    /// Takes notice of all processes that have ended. Whether there are others.
    fn reap(&mut self) -> bool {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((process, status))) => self.note(process, status),
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    fn note(&mut self, process: Pid, status: WaitStatus) {
        let seconds = self.began.elapsed().as_secs_f64();
        let found = self.tasks.iter_mut().find(|task| task.process == Some(process));
        if let Some(task) = found {
            // A command that was ended at the limit has no code.
            task.code = task.seconds.is_none().then(|| code(status));
            task.seconds.get_or_insert(seconds);
        }
    }

    /// Until all processes below have ended, with force in the end.
    fn settle(&mut self) {
        let asked = Instant::now();
        let mut killed = false;
        while self.reap() && asked.elapsed() < ENDS_WITHIN * 3 / 2 {
            if asked.elapsed() >= ENDS_WITHIN && !killed {
                killed = true;
                self.tasks.iter_mut().for_each(|task| task.end(Signal::KILL));
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    fn account(self) -> Result<Account> {
        let used = getrusage(UsageWho::RUSAGE_CHILDREN).context("the kernel's account")?;
        let seconds =
            |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
        Ok(Account {
            cpu_s: seconds(used.user_time()) + seconds(used.system_time()),
            peak_rss_bytes: u64::try_from(used.max_rss()).unwrap_or(0) << 10,
            ran: self.tasks.into_iter().map(Task::ran).collect(),
        })
    }
}

/// As a shell tells it.
fn code(status: WaitStatus) -> i32 {
    status.exit_status().or_else(|| Some(128 + status.terminating_signal()?)).unwrap_or(1)
}

impl Task {
    fn start(order: &Order, began: Instant) -> Result<Task> {
        let mut command = Command::new("/bin/sh");
        let input = if order.feeds_s.is_some() { Stdio::piped() } else { Stdio::null() };
        command.arg("-c").arg(&order.text).process_group(0);
        command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot run /bin/sh")?;
        let feeder = order.feeds_s.and_then(|seconds| feed(&mut child, seconds));
        Ok(Task {
            process: i32::try_from(child.id()).ok().and_then(Pid::from_raw),
            output: Stream::read(child.stdout.take(), order.counts.then_some(began)),
            errors: Stream::read(child.stderr.take(), None),
            order: order.clone(),
            seconds: None,
            code: None,
            sampled: Vec::new(),
            _feeder: feeder,
        })
    }

    fn sample(&mut self, now: Duration) {
        if let Some(folder) = &self.order.folder
            && self.seconds.is_none()
        {
            self.sampled.push((now.as_secs_f64(), stored(folder)));
        }
    }

    fn end(&mut self, signal: Signal) {
        if let (Some(process), true) = (self.process, self.code.is_none()) {
            let _ = kill_process_group(process, signal);
        }
    }

    fn ran(self) -> Ran {
        let arrived = if self.order.counts { self.output.counted() } else { self.sampled };
        Ran {
            seconds: self.seconds.unwrap_or_default(),
            code: self.code,
            output: self.output.text(),
            errors: self.errors.text(),
            arrived,
        }
    }
}

/// Bytes that are stored below a folder: of what was only announced, nothing is.
fn stored(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => stored(&entry.path()),
        Ok(found) => found.len().min(found.blocks() * 512),
        Err(_) => 0,
    };
    entries.map(size).sum()
}

/// For how long it writes to the command's standard input.
fn feed(child: &mut Child, seconds: f64) -> Option<JoinHandle<()>> {
    let mut input = child.stdin.take()?;
    let time = Duration::try_from_secs_f64(seconds).ok()?;
    Some(thread::spawn(move || {
        let block: Vec<u8> = (0..CHUNK).map(|at| (at * 31 + (at >> 8)) as u8).collect();
        let began = Instant::now();
        while began.elapsed() < time && input.write_all(&block).is_ok() {}
    }))
}

/// What comes out of a command.
struct Stream {
    kept: Arc<Mutex<Kept>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Kept {
    text: Vec<u8>,
    counted: Vec<(f64, u64)>,
    bytes: u64,
}

impl Stream {
    /// Reads to the end; counts from that time on, or keeps what comes.
    fn read(from: Option<impl Read + Send + 'static>, counts: Option<Instant>) -> Stream {
        let kept = Arc::new(Mutex::new(Kept::default()));
        let keeps = Arc::clone(&kept);
        let thread = from.map(|mut from| {
            thread::spawn(move || {
                let mut buffer = vec![0; CHUNK];
                while let Ok(length @ 1..) = from.read(&mut buffer) {
                    lock(&keeps).add(&buffer[..length], counts);
                }
            })
        });
        Stream { kept, thread }
    }

    /// What was read; an orphan that holds the other end is not waited for.
    fn text(self) -> String {
        let deadline = Instant::now() + ENDS_WITHIN / 4;
        let reads = || self.thread.as_ref().is_some_and(|thread| !thread.is_finished());
        while reads() && Instant::now() < deadline {
            thread::sleep(LOOK_EVERY);
        }
        String::from_utf8_lossy(&lock(&self.kept).text).into_owned()
    }

    fn counted(&self) -> Vec<(f64, u64)> {
        lock(&self.kept).counted.clone()
    }
}

impl Kept {
    fn add(&mut self, new: &[u8], counts: Option<Instant>) {
        let Some(began) = counts else {
            let room = MOST_OUTPUT.saturating_sub(self.text.len());
            self.text.extend_from_slice(&new[..new.len().min(room)]);
            return;
        };
        self.bytes += new.len() as u64;
        let now = began.elapsed().as_secs_f64();
        match self.counted[..] {
            // The last point moves on until it is an interval after the one before.
            [.., (before, _), ref mut last] if now < before + SAMPLE_EVERY.as_secs_f64() => {
                *last = (now, self.bytes);
            }
            _ => self.counted.push((now, self.bytes)),
        }
    }
}

fn lock(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_has_a_point_an_interval() {
        let mut kept = Kept::default();
        let began = Instant::now();
        for _ in 0..100 {
            kept.add(&[0; 10], Some(began));
        }
        assert_eq!((kept.bytes, kept.counted.last().map(|point| point.1)), (1_000, Some(1_000)));
        assert!(kept.counted.len() < 10 && kept.text.is_empty());
        kept.add(b"text", None);
        assert_eq!(kept.text, b"text");
    }

    #[test]
    fn what_is_announced_is_not_stored() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = fs::File::create(folder.path().join("file")).expect("a file");
        file.set_len(1 << 20).expect("a length");
        assert_eq!(stored(folder.path()), 0);
        fs::create_dir(folder.path().join("below")).expect("a folder");
        fs::write(folder.path().join("below/file"), [1; 5_000]).expect("a file");
        assert_eq!(stored(folder.path()), 5_000);
        assert_eq!(stored(Path::new("/no/such")), 0);
    }
}
