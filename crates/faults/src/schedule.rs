//! Copies onto a volume that fails, by seed, and the one law they must keep: what a copy has
//! reported as done, with exit code 0, is on the medium and equals its source.

use std::fmt;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use farhaul_base::Rng;
use tempfile::TempDir;

use crate::check::compare;
use crate::disk::{Disk, Failure, Fault, Image, Loss, Operation};
use crate::run::{Copy, End, Injection, LIMIT};
use crate::tree::{Shape, Source};
use crate::volume::{FileSystem, Volume};

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Theme {
    /// Processes are killed, power fails, file systems go away, and come back.
    Power,
    /// The disk takes its blocks from a pool that is too small, and grows later.
    Thin,
    /// The disk or a system call fails.
    Errors,
    /// The volume is replaced by a snapshot of an earlier moment, in the same boot; partial files
    /// are damaged.
    Snapshot,
}

/// One schedule.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// The program.
    pub farhaul: PathBuf,
    /// Where copies go to.
    pub file_system: FileSystem,
    /// What goes wrong.
    pub theme: Theme,
    /// Says everything else, as far as threads and the kernel's timing allow.
    pub seed: u64,
}

/// How often what happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Copies that were started.
    pub runs: u64,
    /// Those that ended with exit code 0; what they report was compared with the medium.
    pub done: u64,
    /// Those that ended with another exit code.
    pub failed: u64,
    /// Those that were killed.
    pub killed: u64,
    /// Requests that the disk refused.
    pub refused: u64,
    /// Times that the volume was mounted again, from whatever image.
    pub mounts: u64,
    /// Times that the file system had to be repaired before.
    pub repaired: u64,
    /// Partial files that were damaged.
    pub damaged: u64,
}

impl std::ops::AddAssign for Figures {
    fn add_assign(&mut self, other: Self) {
        self.runs += other.runs;
        self.done += other.done;
        self.failed += other.failed;
        self.killed += other.killed;
        self.refused += other.refused;
        self.mounts += other.mounts;
        self.repaired += other.repaired;
        self.damaged += other.damaged;
    }
}

/// What must not be.
#[derive(Clone, Debug)]
pub struct Violation {
    /// In which schedule.
    pub schedule: Schedule,
    /// What it was.
    pub what: Broken,
    /// What had happened before, in order.
    pub history: Vec<String>,
}

/// What has been broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A copy ended with exit code 0 and the medium differs from its source, in these ways.
    Law(Vec<String>),
    /// A copy did not end in time.
    Overdue,
    /// Nothing fails any more, and the copy still does.
    Stuck,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Schedule { file_system, theme, seed, .. } = &self.schedule;
        writeln!(f, "{theme:?} on {}, seed {seed}:", file_system.name())?;
        for line in &self.history {
            writeln!(f, "  {line}")?;
        }
        match &self.what {
            Broken::Law(differences) => {
                writeln!(f, "  the copy ended with 0, and on the medium")?;
                for difference in differences.iter().take(8) {
                    writeln!(f, "    {difference}")?;
                }
                write!(f, "  ({} differences)", differences.len())
            }
            Broken::Overdue => write!(f, "  the copy did not end in {} s", LIMIT.as_secs()),
            Broken::Stuck => write!(f, "  nothing fails any more, and the copy still does"),
        }
    }
}

/// Why a schedule ended.
enum Stop {
    Broken(Broken),
    /// The test itself could not go on.
    Io(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Stop::Io(error)
    }
}

impl Schedule {
    /// Runs it. An error is the machine's, not farhaul's.
    pub fn run(&self) -> io::Result<Result<Figures, Violation>> {
        let mut scene = Scene::new(self)?;
        let ended = scene.run();
        match ended {
            Ok(()) => {
                scene.figures.refused = scene.volume.disk().counts().failed.all();
                scene.figures.repaired = scene.volume.repaired();
                Ok(Ok(scene.figures))
            }
            Err(Stop::Broken(what)) => {
                let history = std::mem::take(&mut scene.history);
                Ok(Err(Violation { schedule: self.clone(), what, history }))
            }
            Err(Stop::Io(error)) => {
                let history = scene.history.join("\n  ");
                let text = format!("{self:?}: {error}\n  {history}");
                Err(io::Error::new(error.kind(), text))
            }
        }
    }
}

/// What is copied where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Job {
    /// The content of a source into the target.
    Whole(usize),
    /// A source as a directory into the directory above the target.
    Above,
    /// A directory of a source into that of the target.
    Below,
}

/// How a run ends.
#[derive(Clone, Copy, Debug)]
enum Ending {
    /// By itself.
    Whole,
    /// Killed after so many milliseconds.
    After(u64),
    /// Killed when the disk has answered so many writes.
    AtWrite(u64),
    /// Killed then, and power fails.
    Cut(u64, Loss),
    /// By itself, but the volume becomes what it was then.
    Snapshot(u64),
    /// By itself; the file system is shut down after so many milliseconds, with its journal or not.
    ShutDown(u64, bool),
}

struct Scene<'a> {
    schedule: &'a Schedule,
    rng: Rng,
    volume: Volume,
    directory: TempDir,
    sources: Vec<Source>,
    history: Vec<String>,
    figures: Figures,
}

impl<'a> Scene<'a> {
    fn new(schedule: &'a Schedule) -> io::Result<Scene<'a>> {
        let mut rng = Rng::new(schedule.seed);
        let directory = tempfile::Builder::new().prefix("farhaul-scene-").tempdir()?;
        fs::create_dir(directory.path().join("home"))?;
        // What snapshots and damage concern are files that are under way for a while.
        let (large, medium) = match schedule.theme {
            Theme::Snapshot => (0.4, 4),
            _ => (0.12, 2),
        };
        let small = 20 + rng.below(60);
        let shape = Shape { small, medium: 1 + rng.below(medium), large: rng.chance(large) };
        let all = directory.path().join("all");
        let mut sources = vec![Source::new(all.join("a"), "", shape, rng.next_u64())?];
        if rng.chance(0.3) {
            let shape = Shape { small: 20, medium: 1, large: false };
            sources.push(Source::new(all.join("b"), "b-", shape, rng.next_u64())?);
        }
        let volume = Volume::new(schedule.file_system, "")?;
        fs::create_dir(volume.path().join("copies"))?;
        volume.write_back();
        let (history, figures) = (Vec::new(), Figures::default());
        Ok(Scene { schedule, rng, volume, directory, sources, history, figures })
    }

    fn disk(&self) -> &Disk {
        self.volume.disk()
    }

    fn note(&mut self, text: impl fmt::Display) {
        self.history.push(text.to_string());
    }

    fn run(&mut self) -> Result<(), Stop> {
        for round in 0..2 + self.rng.below(3) {
            if round > 0 && self.rng.chance(0.3) {
                let number = self.rng.below(self.sources.len() as u64) as usize;
                self.sources[number].change()?;
                self.note(format!("source {number} changes"));
            }
            let job = self.job(round == 0);
            self.arm();
            let ending = self.ending();
            let options = self.options();
            let done = self.round(job, ending, options)?;
            if !done && self.schedule.theme == Theme::Snapshot && self.rng.chance(0.5) {
                let seed = self.rng.next_u64();
                let target = self.volume.path().join("copies");
                let damaged = damage_parts(&target, &mut Rng::new(seed));
                self.figures.damaged += damaged;
                self.note(format!("{damaged} partial files are damaged"));
            }
            self.between()?;
        }
        self.disk().mend();
        self.note("nothing fails any more");
        for number in 0..self.sources.len() {
            self.complete(Job::Whole(number))?;
        }
        Ok(())
    }

    /// A copy when nothing fails any more. What an error has left of the mounted file system may not
    /// be of use, but once it is mounted again it must be.
    fn complete(&mut self, job: Job) -> Result<(), Stop> {
        for attempt in 0..4 {
            if attempt > 0 {
                self.remount()?;
            }
            if self.round(job, Ending::Whole, None)? {
                return Ok(());
            }
        }
        Err(Stop::Broken(Broken::Stuck))
    }

    fn job(&mut self, first: bool) -> Job {
        match self.rng.below(10) {
            _ if first => Job::Whole(0),
            0 => Job::Above,
            1 => Job::Below,
            2..5 if self.sources.len() > 1 => Job::Whole(1),
            _ => Job::Whole(0),
        }
    }

    /// Source and target directory of a job, and the arguments that name them.
    fn places(&self, job: Job) -> (PathBuf, PathBuf, [String; 2]) {
        let target = self.volume.path().join("copies/a");
        let (source, target) = match job {
            Job::Whole(number) => (self.sources[number].root().to_owned(), target),
            Job::Above => (self.sources[0].root().to_owned(), target),
            Job::Below => (self.sources[0].root().join("one"), target.join("one")),
        };
        let names = match job {
            Job::Above => [source.clone(), self.volume.path().join("copies")]
                .map(|path| path.display().to_string()),
            _ => [&source, &target].map(|path| format!("{}/", path.display())),
        };
        (source, target, names)
    }

    /// Faults of the disk during the next run.
    fn arm(&mut self) {
        use Operation::{Flush, WriteContent, WriteOther};
        let faulty = match self.schedule.theme {
            Theme::Power | Theme::Snapshot => self.rng.chance(0.1),
            Theme::Thin => {
                let blocks = self.rng.below(4000) as usize;
                self.disk().limit(blocks);
                self.note(format!("{blocks} blocks are left in the pool"));
                self.rng.chance(0.1)
            }
            Theme::Errors => self.rng.chance(0.8),
        };
        if !faulty {
            return;
        }
        let operations = match self.rng.below(8) {
            0..5 => vec![WriteContent],
            5 => vec![Flush],
            6 => vec![WriteOther],
            _ => vec![WriteContent, WriteOther, Flush],
        };
        let skip = if self.rng.chance(0.4) { 0 } else { self.rng.below(40) };
        let count = if self.rng.chance(0.2) { 1000 } else { 1 + self.rng.below(4) };
        let failure = if self.rng.chance(0.7) { Failure::Io } else { Failure::NoSpace };
        let fault = Fault { operations, skip, count, failure };
        self.note(format!("disk: {fault:?}"));
        self.disk().inject(fault);
    }

    fn loss(&mut self) -> Loss {
        match self.rng.below(3) {
            0 => Loss::Unflushed,
            _ => Loss::Some(self.rng.next_u64()),
        }
    }

    fn ending(&mut self) -> Ending {
        let writes = 1 + self.rng.below(60);
        let milliseconds = self.rng.below(700);
        match (self.schedule.theme, self.rng.below(10)) {
            (Theme::Power, 0..3) => Ending::Cut(writes, self.loss()),
            (Theme::Power, 3..5) => Ending::AtWrite(writes),
            (Theme::Power, 5..7) => Ending::ShutDown(milliseconds, self.rng.chance(0.5)),
            (Theme::Snapshot, 0..4) => Ending::Snapshot(writes),
            (Theme::Snapshot, 4..7) => Ending::After(milliseconds),
            (Theme::Thin | Theme::Errors, 0) => Ending::Cut(writes, self.loss()),
            (Theme::Thin | Theme::Errors, 1) => Ending::AtWrite(writes),
            (Theme::Thin | Theme::Errors, 2) => Ending::After(milliseconds),
            (Theme::Thin | Theme::Errors, _) => Ending::Whole,
            (_, 7..9) => Ending::After(milliseconds),
            _ => Ending::Whole,
        }
    }

    fn options(&mut self) -> Option<Vec<String>> {
        let mut options = Vec::new();
        for (chance, words) in [
            (0.15, &["--checksum"] as &[_]),
            (0.2, &["--delete"]),
            (0.05, &["--overwrite"]),
            (0.1, &["--preserve", "mode,times"]),
            (0.2, &["--preserve", "mode,times,sparse,hardlinks"]),
            (0.2, &["--streams", "4"]),
        ] {
            if self.rng.chance(chance) && !options.contains(&words[0].to_owned()) {
                options.extend(words.iter().map(|word| (*word).to_owned()));
            }
        }
        Some(options)
    }

    /// What a copy says of each file that it has dealt with.
    fn receipt(&self) -> PathBuf {
        self.directory.path().join("home/receipt")
    }

    /// A system call of the next run that fails or is its last.
    fn injection(&mut self) -> Option<Injection> {
        let chance = match self.schedule.theme {
            Theme::Errors => 0.5,
            Theme::Power | Theme::Snapshot => 0.15,
            Theme::Thin => 0.0,
        };
        if !self.rng.chance(chance) {
            return None;
        }
        let calls = CALLS[self.rng.below(CALLS.len() as u64) as usize];
        let what = match self.rng.below(4) {
            _ if self.schedule.theme != Theme::Errors => "signal=KILL",
            0 => "error=ENOSPC",
            1 => "signal=KILL",
            _ => "error=EIO",
        };
        // There are few of those that wait for the medium.
        let most = if calls.contains("sync") { 3 } else { 40 };
        let (first, on) = (1 + self.rng.below(most), self.rng.chance(0.2));
        Some(Injection { calls: calls.to_owned(), what: what.to_owned(), first, on })
    }

    /// A copy and how it ends; without options nothing is to go wrong. Whether it was done; then it
    /// has kept the law.
    fn round(
        &mut self,
        job: Job,
        ending: Ending,
        options: Option<Vec<String>>,
    ) -> Result<bool, Stop> {
        let (source, target, names) = self.places(job);
        let whole = matches!(ending, Ending::Whole);
        let injection = if whole && options.is_some() { self.injection() } else { None };
        let options = options.unwrap_or_default();
        let deletes = options.iter().any(|option| option == "--delete");
        let often = if self.schedule.theme == Theme::Snapshot { 0.8 } else { 0.5 };
        let nudges = self.rng.chance(often).then(|| 5 + self.rng.below(200));
        self.note(format!(
            "{job:?} {} until {ending:?}{}{}",
            options.join(" "),
            injection.as_ref().map(|it| format!(", {it:?}")).unwrap_or_default(),
            nudges.map(|it| format!(", a sync every {it} ms")).unwrap_or_default(),
        ));
        let copy = Copy {
            farhaul: self.schedule.farhaul.clone(),
            home: self.directory.path().join("home"),
            args: options
                .into_iter()
                .chain(["--receipt".to_owned(), self.receipt().display().to_string()])
                .chain(names)
                .collect(),
            injection,
        };
        self.figures.runs += 1;
        let (end, cut) = self.perform(&copy, ending, nudges)?;
        let told = match &end {
            End::Exit(0, text) => format!("ends with 0 {}", text.trim()),
            End::Exit(code, text) => {
                format!("ends with {code}: {}", text.lines().next().unwrap_or_default())
            }
            other => format!("{other:?}"),
        };
        let failed = self.disk().counts().failed;
        let failed = if failed.all() > 0 { format!("; so far {failed:?}") } else { String::new() };
        self.note(format!("  {told}{}{failed}", if cut { ", and power fails" } else { "" }));
        match end {
            End::Overdue => return Err(Stop::Broken(Broken::Overdue)),
            End::Exit(0, _) if !cut => {
                self.figures.done += 1;
                self.check(&source, &target, deletes)?;
                return Ok(true);
            }
            End::Exit(..) => self.figures.failed += 1,
            End::Killed => self.figures.killed += 1,
        }
        Ok(false)
    }

    /// How a run ended, and whether power failed before it did.
    fn perform(
        &mut self,
        copy: &Copy,
        ending: Ending,
        nudges: Option<u64>,
    ) -> Result<(End, bool), Stop> {
        match ending {
            Ending::AtWrite(writes) | Ending::Snapshot(writes) => {
                self.disk().arm(writes, Loss::Nothing);
            }
            Ending::Cut(writes, loss) => self.disk().arm(writes, loss),
            _ => {}
        }
        let over = AtomicBool::new(false);
        let volume = &self.volume;
        let end = std::thread::scope(|scope| {
            let nudging = scope.spawn(|| {
                while let Some(pause) = nudges
                    && !over.load(Ordering::Relaxed)
                {
                    std::thread::park_timeout(Duration::from_millis(pause));
                    volume.write_back();
                }
            });
            let end = copy.start().and_then(|run| match ending {
                Ending::Whole | Ending::Snapshot(_) => run.wait(LIMIT),
                Ending::After(milliseconds) => {
                    let (end, limit) = (run, Duration::from_millis(milliseconds));
                    end.wait(limit).map(|end| match end {
                        End::Overdue => End::Killed,
                        end => end,
                    })
                }
                Ending::AtWrite(_) | Ending::Cut(..) => {
                    run.wait_or(LIMIT, || volume.disk().wait_taken(Duration::ZERO))
                }
                Ending::ShutDown(milliseconds, flush) => {
                    let mut down = false;
                    let begun = std::time::Instant::now();
                    run.wait_or(LIMIT, || {
                        if !down && begun.elapsed() >= Duration::from_millis(milliseconds) {
                            volume.shut_down(flush);
                            down = true;
                        }
                        false
                    })
                }
            });
            over.store(true, Ordering::Relaxed);
            nudging.thread().unpark();
            end
        })?;
        let image = self.disk().taken();
        match (ending, image) {
            (Ending::Cut(..), Some(image)) => {
                self.replace(image)?;
                return Ok((end, true));
            }
            // A snapshot is not what a copy that was done has reported on.
            (Ending::Snapshot(_), Some(image)) if !end.is_done() || self.rng.chance(0.5) => {
                self.note("  a snapshot from within is mounted instead");
                self.replace(image)?;
                return Ok((end, true));
            }
            _ => {}
        }
        Ok((end, false))
    }

    /// A copy was done: whatever happens to the machine now, its source is on the medium.
    fn check(&mut self, source: &Path, target: &Path, alike: bool) -> Result<(), Stop> {
        self.disk().mend();
        let loss = match self.rng.below(4) {
            0 | 1 => Some(Loss::Unflushed),
            2 => Some(Loss::Some(self.rng.next_u64())),
            _ => None,
        };
        match loss {
            Some(loss) => {
                self.note(format!("power fails: {loss:?}"));
                let image = self.disk().image(loss);
                self.replace(image)?;
            }
            None => self.remount()?,
        }
        let mut differences = compare(source, target, alike)?;
        // What is kept for partial copies is no part of a copy.
        differences.retain(|text| !(text.contains(".farhaul-") && text.ends_with("not be there")));
        if differences.is_empty() {
            return Ok(());
        }
        let receipt = fs::read_to_string(self.receipt()).unwrap_or_default();
        for name in differences.iter().filter_map(|text| text.split(' ').next()).take(8) {
            let said = receipt.lines().find(|line| line.contains(&format!("{name}\"")));
            self.note(format!("the receipt: {}", said.unwrap_or(name)));
        }
        Err(Stop::Broken(Broken::Law(differences)))
    }

    /// Mounts an image. A file system that cannot write what it had begun is not mounted by the
    /// kernel, so nothing fails meanwhile.
    fn replace(&mut self, image: Image) -> Result<(), Stop> {
        self.figures.mounts += 1;
        self.disk().mend();
        Ok(self.volume.replace(image)?)
    }

    fn remount(&mut self) -> Result<(), Stop> {
        self.figures.mounts += 1;
        self.note("unmounted and mounted");
        self.volume.unmount()?;
        self.disk().mend();
        Ok(self.volume.mount()?)
    }

    /// What happens between two runs.
    fn between(&mut self) -> Result<(), Stop> {
        let target = self.volume.path().join("copies");
        for _ in 0..self.rng.below(3) {
            match self.rng.below(8) {
                0 => {
                    let well = self.volume.write_back();
                    self.note(format!("a sync, {well}"));
                }
                1 => {
                    self.note("caches are dropped");
                    self.volume.forget(&target);
                }
                2 => self.remount()?,
                3 => {
                    let loss = self.loss();
                    self.note(format!("power fails: {loss:?}"));
                    let image = self.disk().image(loss);
                    self.replace(image)?;
                }
                4 => {
                    self.note("modes are changed");
                    change_modes(&target);
                }
                _ => {}
            }
        }
        if self.rng.chance(0.6) {
            self.note("the disk is well again");
            self.disk().mend();
        }
        Ok(())
    }
}

/// System calls that wait for the medium, write, or change names, as strace knows them; those after
/// a `?` are not on all machines.
pub const CALLS: [&str; 11] = [
    "fsync",
    "fdatasync",
    "syncfs",
    "pwrite64",
    "pwritev",
    "write",
    "?rename,?renameat,renameat2",
    "?link,linkat",
    "?unlink,unlinkat",
    "ftruncate,fallocate",
    "?mkdir,mkdirat",
];

/// Everything below a directory that is a file, as far as it can be read.
fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files(&entry.path(), found),
            Ok(kind) if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
}

fn change_modes(directory: &Path) {
    let mut found = Vec::new();
    files(directory, &mut found);
    for path in found {
        // On a file system that is shut down nothing can be changed.
        let _ = fs::set_permissions(path, Permissions::from_mode(0o640));
    }
}

/// One bit of each partial file, at a place where it has content; how many.
fn damage_parts(directory: &Path, rng: &mut Rng) -> u64 {
    let mut found = Vec::new();
    files(directory, &mut found);
    found.retain(|path| path.extension().is_some_and(|end| end == "part"));
    found.sort();
    let damage = |path: &PathBuf| {
        let file = File::options().read(true).write(true).open(path)?;
        let modified = file.metadata()?.modified()?;
        let mut byte = [0];
        let at = rng.below(file.metadata()?.len().max(1));
        file.read_exact_at(&mut byte, at)?;
        byte[0] ^= 1;
        file.write_all_at(&byte, at)?;
        file.set_modified(modified)
    };
    found.iter().map(damage).filter(io::Result::is_ok).count() as u64
}
