//! `farhaul verify`: whether a directory still holds what a receipt says.

use std::fs::File;
use std::io::{self, BufReader, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::Result;
use clap::Args;
use farhaul_mover::printable_path;
use farhaul_mover::transfer::check::{self, Found, Tree, Wanted};
use serde::Serialize;

use crate::cp::receipt::read::{Entry, read};
use crate::exit::{self, Failed, Usage, interrupted};
use crate::progress::Progress;
use crate::units::show_size;
use crate::{interrupt, output};

/// Files that wait for a thread.
const WAITING: usize = 1024;
/// The most problems that the JSON document lists; all are counted.
const LISTED: usize = 10_000;

/// Check the files of a directory against the receipt of a copy.
///
/// Every file that the receipt of `farhaul cp --receipt` lists must be there, with the same size and the
/// same BLAKE3 digest. Files that it does not list are not looked at.
#[derive(Args, Debug)]
pub struct VerifyArgs {
    /// The receipt
    #[arg(value_name = "RECEIPT")]
    receipt: PathBuf,
    /// Where the files are: the target of the copy; or the file, if the receipt has only one
    #[arg(value_name = "DIR")]
    target: PathBuf,
    /// Print nothing but what is wrong
    #[arg(short, long)]
    quiet: bool,
    /// Print one JSON document at the end
    #[arg(long)]
    json: bool,
}

/// What came of it.
#[derive(Debug, Default, Serialize)]
struct Report {
    /// Every file that is to be checked is what it was.
    ok: bool,
    /// Why not all could be checked.
    error: Option<String>,
    /// The copy was complete.
    complete: bool,
    /// Files that are what they were, and their bytes.
    same: u64,
    bytes: u64,
    missing: u64,
    /// Files of another size or another content, and what is no file any more.
    differ: u64,
    unreadable: u64,
    /// Files of which the receipt has no digest: only their sizes were compared.
    only_size: u64,
    /// Files that the copy had left as they were: nothing is known of them.
    not_checked: u64,
    /// The first of those that are not what they were.
    problems: Vec<Problem>,
}

#[derive(Clone, Debug, Serialize)]
struct Problem {
    path: String,
    /// `missing`, `kind`, `size`, `digest` or `unreadable`.
    problem: &'static str,
    /// For people.
    text: String,
}

/// Where the files are.
enum Place {
    Tree(Tree),
    /// The only one.
    File(PathBuf),
}

/// A file to be checked.
struct Task {
    path: PathBuf,
    wanted: Wanted,
}

/// Runs the command.
pub fn run(args: &VerifyArgs) -> Result<()> {
    let told = match verify(args) {
        Ok(report) => return conclude(&report),
        Err(Failure { error, told: true }) => return Err(error),
        Err(Failure { error, told: false }) => error,
    };
    if args.json {
        // Programs are told, too. It has failed anyway.
        let report = Report { error: Some(exit::describe(&told)), ..Report::default() };
        let _ = output::emit(true, &report, show);
    }
    Err(told)
}

/// Whether standard output has been tried already.
struct Failure {
    error: anyhow::Error,
    told: bool,
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure { error: error.into(), told: false }
    }
}

/// Checks everything and prints what came of it.
fn verify(args: &VerifyArgs) -> Result<Report, Failure> {
    let shown = args.receipt.display();
    refuse_pipe(&args.receipt)?;
    let receipt = File::open(&args.receipt).map_err(|error| Usage(format!("{shown}: {error}")))?;
    let length = receipt.metadata().map_or(0, |metadata| metadata.len());
    let place = place(&args.target)?;
    let stop = interrupt::stop_flag();
    let progress = if args.quiet { Progress::hidden() } else { Progress::new() };
    let report = Mutex::new(Report::default());
    let (give, tasks) = sync_channel(WAITING);
    let tasks = Mutex::new(tasks);
    let threads = thread::available_parallelism().map_or(1, |count| count.get());
    let work = |tasks: &Mutex<Receiver<Task>>| {
        loop {
            // Bound here, so that the lock is not held while a file is read.
            let task = tasks.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(task) = task else { return };
            let found = place.check(&task, &stop);
            if stop.load(Ordering::Relaxed) {
                continue;
            }
            let problem = count(&report, &task, found);
            if let Some(problem) = problem.filter(|_| !args.json) {
                let line = format!("{}: {}\n", problem.path, problem.text);
                // Who does not read it still gets the exit code.
                progress.print_beside(|| drop(output::print(line.as_bytes())));
            }
        }
    };
    let about = thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| work(&tasks));
        }
        let mut files: u64 = 0;
        let input = BufReader::new(Counted { file: receipt, read: 0, length, progress: &progress });
        let about = read(input, |entry| {
            files += 1;
            if files > 1 && matches!(place, Place::File(_)) {
                return Err("it lists several files: name the directory they are in".into());
            }
            if stop.load(Ordering::Relaxed) {
                return Err("interrupted".into());
            }
            let kept = entry.outcome == "kept";
            let task = task(entry)?;
            let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
            match (kept, task.wanted.digest) {
                (true, _) => report.not_checked += 1,
                (false, None) => report.only_size += 1,
                _ => {}
            }
            drop(report);
            // Workers end with their sender only.
            if kept { Ok(()) } else { give.send(task).map_err(|_| "nobody checks".into()) }
        });
        // Which ends the threads.
        drop(give);
        about
    });
    drop(progress);
    if stop.load(Ordering::Relaxed) {
        return Err(interrupted().into());
    }
    let about = about.map_err(|error| -> anyhow::Error {
        match error.is_io() {
            true => anyhow::Error::from(error).context(format!("cannot read {shown}")),
            false => Usage(format!("{shown} is no receipt of farhaul cp: {error}")).into(),
        }
    })?;
    let mut report = report.into_inner().unwrap_or_else(PoisonError::into_inner);
    report.complete = about.complete;
    report.ok = report.missing + report.differ + report.unreadable == 0;
    if args.json || !args.quiet {
        let written = output::emit(args.json, &report, show);
        written.map_err(|error| Failure { error, told: true })?;
    }
    Ok(report)
}

/// Opening a named pipe to which nobody writes would wait for ever; one of a shell, `<(…)`, has no name.
fn refuse_pipe(receipt: &Path) -> Result<(), Usage> {
    let named = receipt.canonicalize().and_then(std::fs::metadata);
    if named.is_ok_and(|known| known.file_type().is_fifo()) {
        return Err(Usage(format!("{} is a named pipe and no receipt", receipt.display())));
    }
    Ok(())
}

fn conclude(report: &Report) -> Result<()> {
    let wrong = report.missing + report.differ;
    let files = |count: u64| if count == 1 { "file is" } else { "files are" };
    if wrong > 0 {
        let message = format!("{wrong} {} not what the receipt says", files(wrong));
        return Err(Failed { code: 4, message }.into());
    }
    if report.unreadable > 0 {
        let count = report.unreadable;
        let message = format!("{count} {} not readable", files(count));
        return Err(Failed { code: 1, message }.into());
    }
    Ok(())
}

fn show(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let Report { same, bytes, missing, differ, unreadable, only_size, not_checked, .. } = report;
    let files = if *same == 1 { "file is" } else { "files are" };
    write!(out, "{same} {files} the same ({})", show_size(*bytes))?;
    for (count, text) in [
        (missing, "missing"),
        (differ, if *differ == 1 { "differs" } else { "differ" }),
        (unreadable, "could not be read"),
        (only_size, "without a digest: only sizes compared"),
        (not_checked, "not checked, as the copy had left them as they were"),
    ] {
        if *count > 0 {
            write!(out, "; {count} {text}")?;
        }
    }
    writeln!(out)?;
    if !report.complete {
        writeln!(out, "the copy of this receipt was not complete: other files may be missing")?;
    }
    Ok(())
}

fn place(target: &Path) -> Result<Place> {
    let wrong = |error: io::Error| Usage(format!("{}: {error}", target.display()));
    match std::fs::metadata(target).map_err(wrong)?.is_file() {
        true => Ok(Place::File(target.to_owned())),
        false => Ok(Place::Tree(Tree::open(target).map_err(wrong)?)),
    }
}

impl Place {
    fn check(&self, task: &Task, stop: &AtomicBool) -> Found {
        let stopped = || stop.load(Ordering::Relaxed);
        match self {
            Place::Tree(tree) => tree.check(&task.path, &task.wanted, &stopped),
            Place::File(path) => match File::open(path) {
                Ok(file) => check::check(file, &task.wanted, &stopped),
                Err(error) => Found::Unreadable(error),
            },
        }
    }
}

/// What an entry asks for; the error says what is wrong with it.
fn task(entry: Entry) -> Result<Task, String> {
    let Entry { path, path_hex, size, digest, hash, .. } = entry;
    let sparse = match hash.as_deref() {
        None | Some("blake3") => false,
        Some("blake3-sparse") => true,
        Some(other) => return Err(format!("{path}: there is no hash '{other}'")),
    };
    let digest = match digest {
        None => None,
        Some(text) => match blake3::Hash::from_hex(&text) {
            Ok(digest) => Some(digest.into()),
            Err(_) => return Err(format!("{path}: '{text}' is no digest")),
        },
    };
    let path = match path_hex {
        None => PathBuf::from(path),
        Some(hex) => from_hex(&hex).ok_or_else(|| format!("{path}: '{hex}' is no path"))?,
    };
    Ok(Task { path, wanted: Wanted { size, digest, sparse } })
}

fn from_hex(text: &str) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    let digits: Option<Vec<u8>> =
        text.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    let bytes = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    Some(std::ffi::OsString::from_vec(bytes).into())
}

fn count(report: &Mutex<Report>, task: &Task, found: Found) -> Option<Problem> {
    let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
    let size = task.wanted.size;
    let (counter, problem, text) = match found {
        Found::Same => {
            report.same += 1;
            report.bytes = report.bytes.saturating_add(size);
            return None;
        }
        Found::Missing => (&mut report.missing, "missing", "missing".to_owned()),
        Found::Other(what) => (&mut report.differ, "kind", format!("is {what}")),
        Found::Size(now) => {
            (&mut report.differ, "size", format!("has {now} bytes, had {size} when copied"))
        }
        Found::Content => (&mut report.differ, "digest", "its content differs".to_owned()),
        Found::Unreadable(error) => {
            (&mut report.unreadable, "unreadable", format!("cannot be read: {error}"))
        }
    };
    *counter += 1;
    let problem = Problem { path: printable_path(&task.path), problem, text };
    if report.problems.len() < LISTED {
        report.problems.push(problem.clone());
    }
    Some(problem)
}

/// A receipt that tells how much of it has been read.
struct Counted<'a> {
    file: File,
    read: u64,
    length: u64,
    progress: &'a Progress,
}

impl io::Read for Counted<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(room)?;
        self.read += read as u64;
        let share = self.read as f64 / self.length.max(1) as f64;
        self.progress.show(share.min(1.0), || "of the receipt".to_owned());
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn paths_that_are_no_text_come_in_digits() {
        let path = from_hex("61ff2f0a").expect("digits");
        assert_eq!(path.as_os_str().as_bytes(), b"a\xff/\n");
        assert!(
            from_hex("6").is_none() && from_hex("6g").is_none() && from_hex("\u{e9}").is_none()
        );
    }

    #[test]
    fn entries_that_cannot_be_are_refused() {
        let entry = |digest: Option<&str>, hash: Option<&str>| Entry {
            path: "p".into(),
            path_hex: None,
            size: 1,
            digest: digest.map(str::to_owned),
            hash: hash.map(str::to_owned),
            outcome: String::new(),
        };
        assert!(task(entry(Some("00"), None)).is_err_and(|told| told.contains("no digest")));
        assert!(task(entry(None, Some("md5"))).is_err_and(|told| told.contains("no hash 'md5'")));
        assert!(task(entry(None, None)).is_ok_and(|task| task.wanted.digest.is_none()));
    }
}
