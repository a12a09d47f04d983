//! `farhaul lab race`: bulk flows of several systems over the same paths.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use farhaul_lab::race::{
    Cell, Figures, Race, Record, Run, System, quick, simulate, standard, to_90,
};
use farhaul_lab::report;
use serde::{Deserialize, Serialize};

use super::{CommonArgs, Summary, finish, make_folder, write};
use crate::demo::tcp_congestion_controls_offered;
use crate::exit::{Usage, interrupted};
use crate::interrupt::stop_flag;
use crate::output;
use crate::perf::Report as PerfReport;
use crate::progress::Progress;
use crate::transport::DEFAULT_LAW;
use crate::wan::Counters;

/// Where the far side listens.
const PORT: u16 = 9000;
/// Payload of a full packet of TCP with time stamps, and of UDT, bytes.
const TCP_PAYLOAD: f64 = 1_448.0;
const UDT_PAYLOAD: f64 = 1_456.0;
/// Limits of the kernel's TCP buffers in the namespaces: least, first and most bytes. The most is above
/// two bandwidth-delay products of the longest and fastest path, so that no limit but the congestion control's
/// counts.
const TCP_BUFFERS: &str = "4096 1048576 134217728";
/// Seconds between two points of a run's series.
const INTERVAL: &str = "0.1";
/// A run may take so many times as long as it sends, and this long besides: what was written has to
/// arrive.
const TIMES_LONGER: u32 = 3;
const LONGER: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Where runs are kept until the race is complete, and for `--resume`.
const RUNS_FILE: &str = "race-runs.json";

/// Race farhaul against TCP: one bulk flow at a time over the same emulated paths, in turns.
///
/// Measures goodput, the time to 90% of the steady rate, what is sent again, the queue that stands, and
/// processor time and memory of both ends, of each system on each path. Ends in a page with heat maps,
/// tables and the verdicts on farhaul's targets, wins and losses alike.
///
/// The paths lie between network namespaces (see `wan run`), so both ends are real kernels and processes; that
/// takes /dev/net/tun, and root or a system that lets users make namespaces. The kernel's TCP has
/// buffers for all of the path. --sim does the same in the simulator, with its own TCP.
///
/// Nothing else should run meanwhile: the page names the runs in which the emulator could not keep the time.
///
/// Returns 4 if a target is missed.
#[derive(Args, Debug)]
pub struct RaceArgs {
    /// A system: a law with its parameters, on farhaul's transport, or tcp:NAME, a congestion control of the
    /// kernel's TCP; may be given several times, and the verdicts are about the first [default: the
    /// default law, haul, and what the kernel's TCP has]
    #[arg(long, value_name = "LAW|tcp:NAME", value_delimiter = ';')]
    system: Vec<System>,
    /// A path: rate=1G,rtt=50ms and, if wanted, loss=1%, burst=5 (packets), jitter=2ms, queue=0.5 (bandwidth-delay
    /// products), blackout=3s+500ms, change=3s:100M+5s:1G; may be given several times [default: a standard set]
    #[arg(long, value_name = "KEY=VALUE,…")]
    path: Vec<Cell>,
    /// Runs of each system on each path
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// In the simulator
    #[arg(long)]
    sim: bool,
    /// Keep the runs that the folder has of a race that was interrupted, and do the others
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    common: CommonArgs,
}

/// Runs that are kept, and of which race they are.
#[derive(Serialize, Deserialize)]
struct Kept {
    ground: String,
    records: Vec<Record>,
}

/// Runs the command.
pub fn run(args: &RaceArgs) -> Result<()> {
    make_folder(&args.common.out)?;
    let began = Instant::now();
    let mut race = Race::new(systems(args)?, cells(args), args.runs);
    race.ground =
        if args.sim { "simulated".into() } else { "real packets between two kernels".into() };
    race.command = command(args);
    let file = args.common.out.join(RUNS_FILE);
    if args.resume {
        take_up(&mut race, &file)?;
    }
    let stop = stop_flag();
    if args.sim {
        simulate_all(&mut race, args, &stop)?;
    } else {
        run_all(&mut race, &file, &stop)?;
    }
    let outcome = race.outcome(args.common.quick, began.elapsed());
    let mut files = write(&outcome, &args.common.out)?;
    let page = args.common.out.join("race.html");
    let text = report::page("The race", std::slice::from_ref(&outcome));
    report::write_whole(&page, text.as_bytes()).context("cannot write the page")?;
    files.push(page.clone());
    // What was kept is in the outcome's files now.
    let _ = std::fs::remove_file(&file);
    if let Some(table) = outcome.tables.first().filter(|_| !args.common.json) {
        output::emit(false, table, |table, out| writeln!(out, "{}", table.text()))?;
    }
    finish(Summary { outcomes: vec![outcome], files, page: Some(page) }, &args.common)
}

fn systems(args: &RaceArgs) -> Result<Vec<System>> {
    if !args.system.is_empty() {
        return Ok(args.system.clone());
    }
    let mut systems = vec![System::Farhaul(DEFAULT_LAW.parse()?)];
    if !args.common.quick {
        systems.push(System::Farhaul("haul".parse()?));
    }
    let tcps = match args.sim {
        true => vec!["bbr".to_owned(), "cubic".to_owned()],
        false => tcp_congestion_controls_offered(),
    };
    // Reno is CUBIC on short paths, and nowhere ahead on others.
    let tcps = tcps.into_iter().filter(|name| name != "reno").map(System::Tcp);
    systems.extend(tcps);
    Ok(systems)
}

fn cells(args: &RaceArgs) -> Vec<Cell> {
    match (args.path.is_empty(), args.common.quick) {
        (false, _) => args.path.clone(),
        (true, true) => quick(),
        (true, false) => standard(),
    }
}

/// How to do it again.
fn command(args: &RaceArgs) -> String {
    let mut text = String::from("farhaul lab race");
    for system in &args.system {
        text += &format!(" --system '{system}'");
    }
    for path in &args.path {
        text += &format!(" --path {path}");
    }
    text += &format!(" --runs {}", args.runs);
    for (given, option) in [(args.sim, " --sim"), (args.common.quick, " --quick")] {
        text += if given { option } else { "" };
    }
    text
}

/// Takes over what the file has.
fn take_up(race: &mut Race, file: &Path) -> Result<()> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| file.display().to_string()),
    };
    let kept: Kept = serde_json::from_str(&text).with_context(|| {
        format!("{}: no runs of a race: remove it, or leave out --resume", file.display())
    })?;
    if kept.ground != race.ground {
        let message = format!(
            "{} has runs of another race ({}): leave out --resume, or take another folder",
            file.display(),
            kept.ground
        );
        return Err(Usage(message).into());
    }
    kept.records.into_iter().for_each(|record| race.note(record));
    Ok(())
}

fn keep(race: &Race, file: &Path) -> Result<()> {
    let kept = Kept { ground: race.ground.clone(), records: race.records().to_vec() };
    let text = serde_json::to_vec(&kept)?;
    report::write_whole(file, &text).context("cannot keep the runs")
}

fn record(run: &Run<'_>, result: Result<Figures, String>) -> Record {
    Record { cell: run.cell.to_string(), system: run.system.to_string(), round: run.round, result }
}

fn simulate_all(race: &mut Race, args: &RaceArgs, stop: &AtomicBool) -> Result<()> {
    let runs = race.runs();
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let shown = Progress::new();
    let work = || {
        while !stop.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(run) = runs.get(number) else { return };
            shown.show(number as f64 / runs.len() as f64, || line(run, number, runs.len()));
            let record = record(run, simulate(run));
            done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(record);
        }
    };
    let jobs = args.common.jobs.unwrap_or_else(farhaul_lab::sweep::processors).max(1);
    thread::scope(|scope| (0..jobs).for_each(|_| drop(scope.spawn(work))));
    drop(shown);
    if stop.load(Ordering::Relaxed) {
        return Err(interrupted().into());
    }
    let done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    done.into_iter().for_each(|record| race.note(record));
    Ok(())
}

fn line(run: &Run<'_>, number: usize, all: usize) -> String {
    format!("{} of {all} runs, {} over {}", number + 1, run.system, run.cell)
}

fn run_all(race: &mut Race, file: &Path, stop: &AtomicBool) -> Result<()> {
    let planned = race.clone();
    let runs: Vec<Run<'_>> = planned.runs().into_iter().filter(|run| !planned.has(run)).collect();
    let shown = Progress::new();
    for (number, run) in runs.iter().enumerate() {
        shown.show(number as f64 / runs.len() as f64, || line(run, number, runs.len()));
        let result = run_one(run, stop)?;
        if stop.load(Ordering::Relaxed) {
            return Err(interrupted().into());
        }
        race.note(record(run, result.map_err(|error| format!("{error:#}"))));
        keep(race, file)?;
    }
    Ok(())
}

/// One run between namespaces. The outer error is of this machine, the inner one of the run.
fn run_one(run: &Run<'_>, stop: &AtomicBool) -> Result<Result<Figures>> {
    let folder = tempfile::tempdir()?;
    let counters = folder.path().join("counters.json");
    let program = std::env::current_exe().context("this program's own file is not known")?;
    let mut command = Command::new(&program);
    command.args(path_arguments(run, &counters));
    let protocol = match run.system {
        System::Farhaul(_) => "udt",
        System::Tcp(_) => "tcp",
    };
    let far = format!(
        "exec {} perf --listen 10.77.0.2:{PORT} --once --protocol {protocol} --json \
         --interval {INTERVAL} > /dev/null",
        quoted(&program)
    );
    command.arg("--far").arg(far).args(["--far-port", &PORT.to_string(), "--"]);
    command.arg(&program).args(["perf", &format!("10.77.0.2:{PORT}"), "--json"]);
    command.args(["--interval", INTERVAL, "--protocol", protocol]);
    command.arg("--time").arg(run.cell.lasts().as_secs_f64().to_string());
    match run.system {
        System::Farhaul(law) => command.arg("--cc").arg(law.to_string()),
        System::Tcp(name) => command.arg("--tcp-cc").arg(name),
    };
    let limit = run.cell.lasts() * TIMES_LONGER + LONGER;
    Ok(finished(&mut command, limit, stop).and_then(|out| figures(run, &out, &counters)))
}

fn path_arguments(run: &Run<'_>, counters: &Path) -> Vec<String> {
    let cell = run.cell;
    let microseconds = |time: Duration| format!("{}us", time.as_micros());
    let mut arguments: Vec<String> = ["wan", "run", "--back-loss", "none"].map(String::from).into();
    let mut add = |option: &str, value: String| arguments.extend([option.to_owned(), value]);
    add("--rate", cell.rate.to_string());
    add("--delay", microseconds(cell.rtt / 2));
    add("--queue", format!("{}p", cell.queue_packets()));
    add("--loss", cell.loss_model());
    add("--seed", (run.round + 1).to_string());
    add("--counters", counters.display().to_string());
    if !cell.jitter.is_zero() {
        add("--jitter", microseconds(cell.jitter));
    }
    if let Some(blackout) = &cell.blackout {
        add("--blackout", blackout.to_string());
    }
    if !cell.changes.is_empty() {
        add("--rate-changes", cell.changes.to_string());
    }
    if let System::Tcp(_) = run.system {
        add("--sysctl", format!("net.ipv4.tcp_rmem={TCP_BUFFERS}"));
        add("--sysctl", format!("net.ipv4.tcp_wmem={TCP_BUFFERS}"));
    }
    arguments
}

/// As one word of `sh`.
fn quoted(path: &Path) -> String {
    shell_words::quote(&path.display().to_string()).into_owned()
}

/// What the command has printed, once it has ended well.
fn finished(command: &mut Command, limit: Duration, stop: &AtomicBool) -> Result<String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("a process for the path cannot be started")?;
    let readers = (read(child.stdout.take()), read(child.stderr.take()));
    let deadline = Instant::now() + limit;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if stop.load(Ordering::Relaxed) || Instant::now() >= deadline {
            end(&mut child);
            break None;
        }
        thread::sleep(LOOK_EVERY);
    };
    let text = |reader: thread::JoinHandle<String>| reader.join().unwrap_or_default();
    let (out, errors) = (text(readers.0), text(readers.1));
    match status {
        Some(status) if status.success() => Ok(out),
        Some(status) => {
            let last = errors.lines().last().unwrap_or("no message");
            let last = last.strip_prefix("farhaul: ").unwrap_or(last);
            anyhow::bail!("{last} ({status})")
        }
        None => anyhow::bail!("the run had not ended after {limit:?}"),
    }
}

/// Asks it to end, as Ctrl-C would, so that it takes its namespaces with it.
fn end(child: &mut Child) {
    let asked = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(process) = asked {
        let _ = rustix::process::kill_process(process, rustix::process::Signal::INT);
    }
    let patience = Instant::now() + Duration::from_secs(5);
    while child.try_wait().is_ok_and(|ended| ended.is_none()) && Instant::now() < patience {
        thread::sleep(LOOK_EVERY);
    }
    let _ = child.kill();
    let _ = child.wait();
}

fn read(from: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read until an error is all that there is.
        let _ = from.map(|mut from| from.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// What both ends and the path have counted.
fn figures(run: &Run<'_>, out: &str, counters: &Path) -> Result<Figures> {
    let sender: PerfReport = serde_json::from_str(out).context("the sender's report")?;
    let receiver = sender.peer.as_deref().context("the receiver has not reported")?;
    let text = std::fs::read_to_string(counters).context("the path's counters")?;
    let path: Counters = serde_json::from_str(&text).context("the path's counters")?;
    let payload = match run.system {
        System::Farhaul(_) => UDT_PAYLOAD,
        System::Tcp(_) => TCP_PAYLOAD,
    };
    let (needed, entered) = (receiver.bytes as f64 / payload, path.forward.received as f64);
    let series: Vec<(f64, f64)> =
        receiver.intervals.iter().map(|part| (part.end, part.bits_per_second)).collect();
    let cpu = [&sender.cpu, &receiver.cpu].map(|cpu| cpu.user_s + cpu.system_s).iter().sum::<f64>();
    let memory = sender.peak_rss_bytes.max(receiver.peak_rss_bytes);
    Ok(Figures {
        goodput_bps: receiver.bits_per_second,
        to_90_s: to_90(&series),
        again: if entered > 0.0 { (1.0 - needed / entered).max(0.0) } else { 0.0 },
        retransmitted: sender.packets.map(|packets| packets.retransmitted as f64),
        queue_ms: path.forward.queue_mean_ms,
        cpu_s_per_gb: (receiver.bytes > 0).then(|| cpu / (receiver.bytes as f64 / 1e9)),
        memory_bytes: Some(memory as f64),
        time_kept: path.forward.time_kept && path.backward.time_kept,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_told_to_the_emulator() {
        let cell: Cell = "rate=1G,rtt=50ms,loss=1%,jitter=2ms,blackout=2s+1s,change=3s:100M"
            .parse()
            .expect("a path");
        let system = System::Tcp("bbr".into());
        let run = Run { cell: &cell, system: &system, round: 2 };
        let arguments = path_arguments(&run, Path::new("/c"));
        let pair = |option: &str| {
            let at = arguments.iter().position(|argument| argument == option).expect(option);
            arguments[at + 1].as_str()
        };
        assert_eq!((pair("--rate"), pair("--delay"), pair("--loss")), ("1G", "25000us", "1%"));
        assert_eq!((pair("--queue"), pair("--jitter"), pair("--seed")), ("4167p", "2000us", "3"));
        assert_eq!(pair("--rate-changes"), "3s:100M");
        assert_eq!(pair("--sysctl"), format!("net.ipv4.tcp_rmem={TCP_BUFFERS}"));
    }

    #[test]
    fn a_program_is_one_word_wherever_it_is() {
        assert_eq!(quoted(Path::new("/a b/it's")), r"'/a b/it'\''s'");
    }
}
