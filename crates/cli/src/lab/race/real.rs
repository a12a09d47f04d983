//! A run of a race between network namespaces.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use farhaul_lab::race::program::{End, Measured, pointer};
use farhaul_lab::race::{Cell, Figures, Flow, Kind, Run, Sharing, System, steady, to_90};
use farhaul_lab::report;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

use super::place::Place;
use super::side::{Account, Order, Orders, Ran};
use crate::demo::tcp_congestion_control_may_be_offered;
use crate::exit::last_line;
use crate::interrupt::before_exit;
use crate::wan::Counters;

/// The far end, as `wan run` has it, and where the first flow's far side listens.
const FAR: &str = "10.77.0.2";
const FIRST_PORT: u16 = 9000;
/// A flow may take so many times as long as it sends, and this long besides: what was written has to
/// arrive.
const FLOW_LIMIT: (f64, f64) = (3.0, 30.0);
/// A copy has as much to bring as the line carries in a run's time; one that takes longer than this is stopped.
const COPY_LIMIT: (f64, f64) = (2.0, 10.0);
/// What both ends and the path may need beside that.
const LONGER: Duration = Duration::from_secs(90);
/// Share of the line that is payload, of what a copy brings.
const PAYLOAD: f64 = 0.95;
/// What a program may need in its buffers besides: the time in which its threads may be late, twice.
const BUFFERED_S: f64 = 0.2;
const LEAST_BUFFER: f64 = (1 << 20) as f64;
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long the process of the path may take to end once it was asked.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// Why a system cannot take part here.
pub fn absence(system: &System, place: &Place) -> Option<String> {
    let program = system.program();
    if let Kind::Tcp(name) = system.kind()
        && !tcp_congestion_control_may_be_offered(name)
    {
        return Some(format!("{system}: the kernel has no TCP congestion control '{name}'"));
    }
    let missing = program.needs.iter().find(|needed| place.find(needed).is_none());
    if let Some(missing) = missing {
        let how = if program.install.is_empty() { "install it" } else { &program.install };
        return Some(format!("{system}: there is no {missing}: {how}"));
    }
    if program.ssh {
        let missing = ["ssh", "sshd", "ssh-keygen"].into_iter().find(|p| place.find(p).is_none());
        if let Some(missing) = missing {
            return Some(format!(
                "{system}: there is no {missing}: install openssh-client and openssh-server"
            ));
        }
        if !rustix::process::geteuid().is_root() {
            return Some(format!(
                "{system}: its private sshd runs as root only: run the race as root"
            ));
        }
    }
    None
}

/// One run. The outer error is of this machine, the inner one of the run.
pub fn run_one(run: &Run<'_>, place: &mut Place, stop: &AtomicBool) -> Result<Result<Figures>> {
    let flows = run.cell.flows_of(run.system);
    // Memory that cannot hold what is copied is no reason to end the race.
    let setting = match Setting::new(run, &flows, place) {
        Ok(setting) => setting,
        Err(error) => return Ok(Err(error)),
    };
    let mut command = setting.command(run, &flows)?;
    command.env("PATH", &place.path);
    let limit = Duration::try_from_secs_f64(setting.limit_s).unwrap_or_default() + LONGER;
    let ran =
        finished(&mut command, limit, stop).and_then(|()| setting.figures(run, &flows, place));
    for target in &setting.targets {
        // What was copied takes memory.
        let _ = std::fs::remove_dir_all(target);
    }
    Ok(ran)
}

/// What a run needs before it begins, and where its results are.
struct Setting {
    near: Orders,
    far: Orders,
    folder: PathBuf,
    targets: Vec<PathBuf>,
    copied_bytes: u64,
    limit_s: f64,
    sysctl: Vec<String>,
}

impl Setting {
    fn new(run: &Run<'_>, flows: &[&System], place: &mut Place) -> Result<Setting> {
        let folder = place.at("run");
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir(&folder)?;
        let copied_bytes = copied_bytes(run.cell, flows);
        let seconds = run.cell.lasts().as_secs_f64();
        let limits = flows.iter().map(|system| {
            let (times, besides) = if system.is_copy() { COPY_LIMIT } else { FLOW_LIMIT };
            seconds * times + besides
        });
        let limit_s = limits.fold(0.0, f64::max);
        let done = folder.join("received");
        let ends = flows.iter().any(|system| !system.is_copy());
        let orders = |account: &str| Orders {
            commands: Vec::new(),
            limit_s,
            account: folder.join(account),
            tells: None,
            waits_for: None,
        };
        let mut setting = Setting {
            near: Orders { waits_for: ends.then(|| done.clone()), ..orders("near.json") },
            far: Orders {
                tells: Some(done),
                limit_s: limit_s + LONGER.as_secs_f64(),
                ..orders("far.json")
            },
            folder: folder.clone(),
            targets: Vec::new(),
            copied_bytes,
            limit_s,
            sysctl: Vec::new(),
        };
        for (number, system) in flows.iter().enumerate() {
            setting.add(run, number, system, place)?;
        }
        Ok(setting)
    }

    fn add(
        &mut self,
        run: &Run<'_>,
        number: usize,
        system: &System,
        place: &mut Place,
    ) -> Result<()> {
        let program = system.program();
        let port = FIRST_PORT + number as u16;
        let seconds = run.cell.lasts().as_secs_f64();
        let target = place.target(number)?;
        let source = match program.is_copy() {
            true => place.source(self.copied_bytes)?,
            false => PathBuf::new(),
        };
        let this = std::env::current_exe().context("this program's own file is not known")?;
        let sshd = if program.ssh { place.ssh(FAR, port)? } else { String::new() };
        let ssh_config = place.ssh_config(port);
        let value = |name: &str| {
            let shown = |path: &Path| path.display().to_string();
            let text = match name {
                "far" => FAR.to_owned(),
                "port" => port.to_string(),
                "seconds" => seconds.to_string(),
                "rate" => run.cell.rate.bits_per_second().to_string(),
                "rtt_ms" => (run.cell.rtt.as_secs_f64() * 1e3).to_string(),
                "buffer" => buffer(run.cell).to_string(),
                "source" => shown(&source),
                "target" => shown(&target),
                "user" => "root".into(),
                "ssh" => format!("ssh -F {}", shell_words::quote(&shown(&ssh_config))),
                "ssh_config" => shown(&ssh_config),
                "ssh_key" => shown(&place.ssh_key()),
                "farhaul" => shown(&this),
                _ => return None,
            };
            Some(shell_words::quote(&text).into_owned())
        };
        let option = system.option().map(shell_words::quote);
        let text = |end| program.command(end, option.as_deref(), value);
        let (counts, is_copy) = (program.measured == Measured::Output, program.is_copy());
        self.near.commands.push(Order {
            text: text(End::Near),
            feeds_s: counts.then_some(seconds),
            folder: is_copy.then(|| target.clone()),
            ..Order::default()
        });
        let far = match program.far.is_empty() {
            true => sshd,
            // Both end with the run.
            false if program.ssh => format!("{sshd} & {}", text(End::Far)),
            false => text(End::Far),
        };
        self.far.commands.push(Order { text: far, counts, stays: is_copy, ..Order::default() });
        self.targets.push(target);
        for parameter in &program.sysctl {
            if !self.sysctl.contains(parameter) {
                self.sysctl.push(parameter.clone());
            }
        }
        Ok(())
    }

    /// `wan run` with a process of ours at each end.
    fn command(&self, run: &Run<'_>, flows: &[&System]) -> Result<Command> {
        let program = std::env::current_exe().context("this program's own file is not known")?;
        let mut files = Vec::new();
        for (name, orders) in [("near-orders", &self.near), ("far-orders", &self.far)] {
            let file = self.folder.join(name);
            let text = serde_json::to_vec(orders)?;
            report::write_whole(&file, &text).context("the orders for an end of the path")?;
            files.push(file);
        }
        let words = [program.as_path(), Path::new("lab"), Path::new("side"), &files[1]];
        let far = shell_words::join(words.map(|word| word.display().to_string()));
        let mut command = Command::new(&program);
        command.args(path_arguments(run, &self.counters()));
        for parameter in &self.sysctl {
            command.arg("--sysctl").arg(parameter);
        }
        command.arg("--far").arg(format!("exec {far}"));
        for number in 0..flows.len() {
            command.arg("--far-port").arg((FIRST_PORT + number as u16).to_string());
        }
        command.arg("--").arg(&program).args(["lab", "side"]).arg(&files[0]);
        Ok(command)
    }

    fn counters(&self) -> PathBuf {
        self.folder.join("counters.json")
    }

    /// What both ends and the path have counted.
    fn figures(&self, run: &Run<'_>, flows: &[&System], place: &Place) -> Result<Figures> {
        let (near, far) = (account(&self.near.account)?, account(&self.far.account)?);
        let text = std::fs::read_to_string(self.counters()).context("the path's counters")?;
        let path: Counters = serde_json::from_str(&text).context("the path's counters")?;
        let mut found = Vec::new();
        for (number, system) in flows.iter().enumerate() {
            let ends = near.ran.get(number).zip(far.ran.get(number));
            let (near, far) = ends.context("an end has not told of all flows")?;
            let copied = || place.is_copied(&self.targets[number]).then_some(self.copied_bytes);
            found
                .push(Received::by(system, near, far, copied).with_context(|| system.to_string())?);
        }
        let own = &found[..run.cell.flows.min(found.len())];
        let payload = |(received, system): (&Received, &&System)| {
            received.bytes as f64 / system.program().payload
        };
        let needed: f64 = found.iter().zip(flows).map(payload).sum();
        let entered = path.forward.received as f64;
        let bytes: u64 = own.iter().map(|received| received.bytes).sum();
        // Beside another system it is not known whose it is.
        let alone = run.cell.against.is_none();
        let series: Vec<Flow> = found.iter().map(|received| received.series.clone()).collect();
        Ok(Figures {
            goodput_bps: own.iter().map(Received::bits_per_second).sum(),
            to_90_s: to_90(&series[0]),
            steady_bps: steady(&series[0]),
            again: if entered > 0.0 { (1.0 - needed / entered).max(0.0) } else { 0.0 },
            retransmitted: own.iter().map(|received| received.retransmitted).sum(),
            queue_ms: path.forward.queue_mean_ms,
            cpu_s_per_gb: (alone && bytes > 0)
                .then(|| (near.cpu_s + far.cpu_s) / (bytes as f64 / 1e9)),
            memory_bytes: alone.then(|| near.peak_rss_bytes.max(far.peak_rss_bytes) as f64),
            time_kept: path.forward.time_kept && path.backward.time_kept,
            stopped: own.iter().any(|received| received.stopped),
            sharing: Sharing::of(run.cell, &series),
        })
    }
}

/// What has arrived of one flow.
#[derive(Debug, Default, PartialEq)]
struct Received {
    bytes: u64,
    seconds: f64,
    series: Flow,
    retransmitted: Option<f64>,
    stopped: bool,
}

impl Received {
    /// `copied`: the size of the file, if it is in the target, whole.
    fn by(
        system: &System,
        near: &Ran,
        far: &Ran,
        copied: impl Fn() -> Option<u64>,
    ) -> Result<Received> {
        match near.code {
            Some(0) => {}
            Some(code) => bail!("{} (exit code {code})", last_line(&near.errors)),
            None if system.is_copy() => {}
            None => bail!("it had not ended after {:.0} s", near.seconds),
        }
        match &system.program().measured {
            Measured::Reports { bytes, seconds, series, retransmitted } => {
                let documents = Documents::of(near, far);
                let number = |value: &str| documents.at(value).and_then(Value::as_f64);
                let missing =
                    |value: &str| format!("no number {value}: {}", last_line(&far.errors));
                let series = series.as_deref().and_then(|value| documents.at(value));
                Ok(Received {
                    bytes: number(bytes).with_context(|| missing(bytes))? as u64,
                    seconds: number(seconds).with_context(|| missing(seconds))?,
                    series: series.map(rates).unwrap_or_default(),
                    retransmitted: retransmitted.as_deref().and_then(number),
                    stopped: false,
                })
            }
            Measured::Output => {
                let first = far.arrived.first().context("nothing has arrived")?.0;
                let points = far.arrived.iter().map(|(at, bytes)| (at - first, *bytes));
                let points: Vec<(f64, u64)> = points.collect();
                let (seconds, bytes) = points.last().copied().unwrap_or_default();
                Ok(Received { bytes, seconds, series: differences(&points), ..Received::default() })
            }
            Measured::Folder => {
                let stopped = near.code.is_none();
                let bytes = match stopped {
                    true => near.arrived.last().map_or(0, |(_, bytes)| *bytes),
                    false => copied().context("the copy is not what was copied")?,
                };
                let series = differences(&near.arrived);
                Ok(Received { bytes, seconds: near.seconds, series, retransmitted: None, stopped })
            }
        }
    }

    fn bits_per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.bytes as f64 * 8.0 / self.seconds } else { 0.0 }
    }
}

/// What both ends have printed.
struct Documents {
    near: Value,
    far: Value,
}

impl Documents {
    fn of(near: &Ran, far: &Ran) -> Documents {
        Documents { near: document(&near.output), far: document(&far.output) }
    }

    fn at(&self, value: &str) -> Option<&Value> {
        let (end, place) = pointer(value)?;
        match end {
            End::Near => self.near.pointer(place),
            End::Far => self.far.pointer(place),
        }
    }
}

/// All of it, or its last line.
fn document(text: &str) -> Value {
    let last = || text.trim_end().lines().last().unwrap_or_default();
    serde_json::from_str(text).or_else(|_| serde_json::from_str(last())).unwrap_or_default()
}

/// Of an array of `end` and `bits_per_second`.
fn rates(series: &Value) -> Flow {
    let number = |part: &Value, name: &str| part.get(name).and_then(Value::as_f64);
    let parts = series.as_array().into_iter().flatten();
    parts
        .filter_map(|part| Some((number(part, "end")?, number(part, "bits_per_second")?)))
        .collect()
}

/// Rates between points of time and bytes.
fn differences(points: &[(f64, u64)]) -> Flow {
    let pairs = points.windows(2).filter(|pair| pair[1].0 > pair[0].0);
    pairs
        .map(|pair| {
            let bits = pair[1].1.saturating_sub(pair[0].1) as f64 * 8.0;
            (pair[1].0, bits / (pair[1].0 - pair[0].0))
        })
        .collect()
}

fn account(file: &Path) -> Result<Account> {
    let text = std::fs::read(file).context("an end has given no account")?;
    serde_json::from_slice(&text).context("an end's account is not understood")
}

/// As much as the line carries in a run's time; of several flows, each as much.
fn copied_bytes(cell: &Cell, flows: &[&System]) -> u64 {
    let all = cell.line_bps() * PAYLOAD * cell.lasts().as_secs_f64() / 8.0;
    // A flow that is alone in the end has the whole line.
    let share = if flows.len() > 1 { 0.75 } else { 1.0 };
    (all * share) as u64
}

/// Bytes that the path and its queue hold twice over, and what a program's threads may be late.
fn buffer(cell: &Cell) -> u64 {
    let rtt = cell.rtt.as_secs_f64();
    let seconds = 2.0 * rtt * (1.0 + cell.queue) + BUFFERED_S;
    (cell.rate.bits_per_second() as f64 / 8.0 * seconds).max(LEAST_BUFFER) as u64
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
    arguments
}

/// Waits until the command has ended, well.
fn finished(command: &mut Command, limit: Duration, stop: &AtomicBool) -> Result<()> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    // A signal to the group is for this process: the child ends when it is asked, and takes its namespaces with it.
    command.process_group(0);
    // What is done before the exit waits until it is known what it has to end, and then nothing else is started.
    let started: Arc<Mutex<Option<Pid>>> = Arc::default();
    let ended = Arc::clone(&started);
    let _cleanup = before_exit(move || {
        let process = ended.lock().unwrap_or_else(PoisonError::into_inner);
        end_at_once(*process);
        std::mem::forget(process);
    });
    let mut child = {
        let mut started = started.lock().unwrap_or_else(PoisonError::into_inner);
        let child = command.spawn().context("a process for the path cannot be started")?;
        *started = pid(&child);
        child
    };
    let errors = child.stderr.take().map(|mut from| {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            // What was read until an error is all that there is.
            let _ = from.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        })
    });
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
    let errors = errors.and_then(|reader| reader.join().ok()).unwrap_or_default();
    match status {
        Some(status) if status.success() => Ok(()),
        Some(status) => bail!("{} ({status})", last_line(&errors)),
        None => bail!("the run had not ended after {limit:?}"),
    }
}

/// Asks it to end, as Ctrl-C would, so that it takes its namespaces with it.
fn end(child: &mut Child) {
    if let Some(process) = pid(child) {
        let _ = kill_process(process, Signal::INT);
    }
    let deadline = Instant::now() + ENDS_WITHIN;
    while child.try_wait().is_ok_and(|ended| ended.is_none()) && Instant::now() < deadline {
        thread::sleep(LOOK_EVERY);
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// Asks it twice, upon which it kills what is in its namespaces.
fn end_at_once(process: Option<Pid>) {
    let Some(process) = process else { return };
    // One signal that comes twice may be delivered once.
    let _ = kill_process(process, Signal::INT);
    let _ = kill_process(process, Signal::TERM);
    let deadline = Instant::now() + ENDS_WITHIN;
    // The thread that has started it takes notice of its end.
    while test_kill_process(process).is_ok() && Instant::now() < deadline {
        thread::sleep(LOOK_EVERY);
    }
}

fn pid(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_told_to_the_emulator() {
        let cell: Cell = "rate=1G,rtt=50ms,loss=1%,jitter=2ms,blackout=2s+1s,change=3s:100M"
            .parse()
            .expect("a path");
        let system = "tcp:bbr".parse().expect("a system");
        let run = Run { cell: &cell, system: &system, round: 2 };
        let arguments = path_arguments(&run, Path::new("/c"));
        let pair = |option: &str| {
            let at = arguments.iter().position(|argument| argument == option).expect(option);
            arguments[at + 1].as_str()
        };
        assert_eq!((pair("--rate"), pair("--delay"), pair("--loss")), ("1G", "25000us", "1%"));
        assert_eq!((pair("--queue"), pair("--jitter"), pair("--seed")), ("4167p", "2000us", "3"));
        assert_eq!(pair("--rate-changes"), "3s:100M");
    }

    #[test]
    fn flows_that_share_a_path_have_ports_and_orders_of_their_own() {
        let cell: Cell = "rate=10M,rtt=10ms,against=tcp:cubic".parse().expect("a path");
        let system = "bbr".parse().expect("a system");
        let run = Run { cell: &cell, system: &system, round: 0 };
        let flows = cell.flows_of(&system);
        let mut place = Place::new(Path::new("/no/peers")).expect("a place");
        let setting = Setting::new(&run, &flows, &mut place).expect("a setting");
        let near: Vec<&str> = setting.near.commands.iter().map(|order| &*order.text).collect();
        assert!(near[0].contains("10.77.0.2:9000") && near[0].contains("--cc bbr"), "{near:?}");
        assert!(
            near[1].contains("10.77.0.2:9001") && near[1].contains("--tcp-cc cubic"),
            "{near:?}"
        );
        assert!(setting.sysctl.iter().any(|text| text.starts_with("net.ipv4.tcp_rmem=")));
        let command = setting.command(&run, &flows).expect("a command");
        let ports = command.get_args().filter(|argument| *argument == "--far-port").count();
        assert_eq!(ports, 2);
    }

    fn ran(code: Option<i32>, output: &str, arrived: &[(f64, u64)]) -> Ran {
        let (output, arrived) = (output.to_owned(), arrived.to_vec());
        Ran { seconds: 4.0, code, output, arrived, ..Ran::default() }
    }

    #[test]
    fn a_report_is_read_where_its_description_says() {
        let system: System = "libudt".parse().expect("a system");
        let near = ran(Some(0), r#"{"retransmitted": 7}"#, &[]);
        let text = r#"{"bytes": 1000, "seconds": 2.0, "intervals": [{"end": 1.0, "bits_per_second": 8.0}]}"#;
        let far = ran(Some(0), &format!("a word before\n{text}\n"), &[]);
        let received = Received::by(&system, &near, &far, || None).expect("figures");
        assert_eq!((received.bytes, received.bits_per_second()), (1_000, 4_000.0));
        assert_eq!((received.retransmitted, received.series), (Some(7.0), vec![(1.0, 8.0)]));
        let nothing = ran(Some(0), "", &[]);
        assert!(Received::by(&system, &near, &nothing, || None).is_err());
        assert!(Received::by(&system, &ran(Some(1), "", &[]), &far, || None).is_err());
        assert!(Received::by(&system, &ran(None, "", &[]), &far, || None).is_err());
    }

    #[test]
    fn a_copy_counts_if_it_is_whole_or_was_stopped() {
        let system: System = "scp".parse().expect("a system");
        let far = ran(Some(0), "", &[]);
        let near = |code| ran(code, "", &[(0.0, 0), (1.0, 100), (2.0, 300)]);
        let whole = Received::by(&system, &near(Some(0)), &far, || Some(400)).expect("figures");
        assert_eq!((whole.bytes, whole.seconds, whole.stopped), (400, 4.0, false));
        assert_eq!(whole.series, [(1.0, 800.0), (2.0, 1_600.0)]);
        let stopped = Received::by(&system, &near(None), &far, || None).expect("figures");
        assert_eq!((stopped.bytes, stopped.stopped), (300, true));
        assert!(Received::by(&system, &near(Some(0)), &far, || None).is_err());
    }
}
