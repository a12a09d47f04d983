//! A run of which everything is written down.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;
use farhaul_lab::sweep::{self, Measured};
use farhaul_sim::{Capture, Filter, NodeId, Plan, Scenario, Simulation, Trace};

use crate::exit::{Usage, interrupted};
use crate::interrupt::stop_flag;
use crate::progress::Progress;

/// Standard output as a file's name.
const STDOUT: &str = "-";

/// What to write down, and where.
#[derive(Args, Debug)]
#[command(next_help_heading = "Traces of a single run")]
pub struct TraceArgs {
    /// Write what happens to each packet to FILE, one line an event: time, event, place, flow,
    /// direction, protocol, bytes, what the packet says. - is standard output; the result is then
    /// printed to standard error
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Only these events: flow=udt-1,event=drop,kind=nak|ack,link=bottleneck,from=2s,to=3s. A comma
    /// means and, | means or; there are event, kind, protocol, flow, direction, link, node, from
    /// and to
    #[arg(long, value_name = "KEY=VALUE,…", requires = "trace")]
    trace_filter: Option<String>,
    /// Write what passes at a node to FILE, for Wireshark and tcpdump; - is standard output
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// That node; the first flow's sender's if not given
    #[arg(long, value_name = "NODE", requires = "pcap")]
    pcap_at: Option<String>,
    /// Write no more than so many bytes of each packet to the capture
    #[arg(long, value_name = "N", requires = "pcap", default_value_t = SNAP_LEN)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=65_535))]
    snaplen: u32,
}

const SNAP_LEN: u32 = Capture::<File>::SNAP_LEN;

type Out = BufWriter<Box<dyn Write + Send>>;

/// An observer that is at work, and where it writes to.
struct Writing<T> {
    observer: Arc<Mutex<T>>,
    path: PathBuf,
}

impl TraceArgs {
    /// Whether anything is to be written.
    pub fn is_on(&self) -> bool {
        self.trace.is_some() || self.pcap.is_some()
    }

    /// The files of the trace and of the capture, if they are to be files.
    pub fn files(&self) -> [Option<&Path>; 2] {
        [&self.trace, &self.pcap].map(|path| path.as_deref().filter(|path| !is_stdout(path)))
    }

    /// Whether standard output is taken.
    pub fn takes_stdout(&self) -> bool {
        [&self.trace, &self.pcap].into_iter().flatten().any(|path| is_stdout(path))
    }

    /// Runs the only one of `points` and writes. None: whoever read standard output has gone.
    ///
    /// If the scenario compares with a run of TCP alone, that one is not written about.
    pub fn run(&self, plan: &Plan, points: &[u64], json: bool) -> Result<Option<Measured>> {
        let &[number] = points else {
            let count = points.len();
            let message = format!(
                "--trace and --pcap are for a single run, and these are {count}: choose one with \
                 --point N"
            );
            return Err(Usage(message).into());
        };
        if self.takes_stdout() && json {
            let message = "a trace and --json cannot both go to standard output";
            return Err(Usage(message.into()).into());
        }
        if [&self.trace, &self.pcap].into_iter().flatten().filter(|path| is_stdout(path)).count()
            > 1
        {
            let message = "--trace and --pcap cannot both go to standard output";
            return Err(Usage(message.into()).into());
        }
        let point = plan.point(number).map_err(|problems| Usage(problems.to_string()))?;
        let began = Instant::now();
        let mut run = point.scenario.start();
        let (trace, capture) = self.begin(&point.scenario, run.simulation_mut())?;
        // Lines on the terminal would be torn by it.
        let torn = self.takes_stdout() && io::stdout().is_terminal();
        let bar = if torn { Progress::hidden() } else { Progress::new() };
        let stop = stop_flag();
        let failed = || {
            trace.as_ref().is_some_and(|writing| writing.lock().failed())
                || capture.as_ref().is_some_and(|writing| writing.lock().failed())
        };
        while !failed() && run.step() && !stop.load(Ordering::Relaxed) {
            let (simulated, whole) = run.progress();
            let (simulated, whole) = (simulated.as_secs_f64(), whole.as_secs_f64());
            let progress = sweep::Progress {
                runs: (0, 1),
                share: simulated / whole,
                speed_up: simulated / began.elapsed().as_secs_f64().max(1e-9),
            };
            bar.show_sweep(progress, whole);
        }
        drop(bar);
        let ends = [
            trace.map(|writing| writing.end(|trace| trace.finish())),
            capture.map(|writing| writing.end(|capture| capture.finish())),
        ];
        for end in ends.into_iter().flatten() {
            if !end? {
                return Ok(None);
            }
        }
        if stop.load(Ordering::Relaxed) {
            return Err(interrupted().into());
        }
        drop(stop);
        let mut report = run.finish();
        report.wall_seconds = Some(began.elapsed().as_secs_f64());
        Ok(Some(Measured { point: number, values: point.values, report }))
    }

    /// Opens the files, when everything has been checked, and has them written.
    #[expect(clippy::type_complexity, reason = "one of each")]
    fn begin(
        &self,
        scenario: &Scenario,
        simulation: &mut Simulation,
    ) -> Result<(Option<Writing<Trace<Out>>>, Option<Writing<Capture<Out>>>)> {
        let text = self.trace_filter.as_deref().unwrap_or_default();
        let filter = Filter::parse(text, scenario)
            .map_err(|error| Usage(format!("--trace-filter: {error}")))?;
        let node = match &self.pcap_at {
            Some(name) => {
                scenario.node(name).map_err(|error| Usage(format!("--pcap-at: {error}")))?
            }
            None => NodeId(scenario.flows.first().map_or(0, |flow| flow.from as u32)),
        };
        let trace = self
            .trace
            .as_deref()
            .map(|path| Writing::begin(path, |out| Trace::new(scenario, filter.clone(), out)));
        let trace = trace.transpose()?;
        let capture = self.pcap.as_deref().map(|path| {
            Writing::begin(path, |out| Capture::new(scenario, node, self.snaplen, out))
        });
        let capture = capture.transpose()?;
        if let Some(writing) = &trace {
            simulation.observe(Box::new(Arc::clone(&writing.observer)));
        }
        if let Some(writing) = &capture {
            simulation.observe(Box::new(Arc::clone(&writing.observer)));
        }
        Ok((trace, capture))
    }
}

impl<T> Writing<T> {
    fn begin(path: &Path, make: impl FnOnce(Out) -> T) -> Result<Self> {
        let out: Box<dyn Write + Send> = if is_stdout(path) {
            Box::new(io::stdout())
        } else {
            let file = File::create(path);
            Box::new(file.with_context(|| format!("cannot write {}", path.display()))?)
        };
        let observer = Arc::new(Mutex::new(make(BufWriter::with_capacity(1 << 16, out))));
        Ok(Writing { observer, path: path.to_owned() })
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        self.observer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether all has been written; false if nobody reads it any more.
    fn end(&self, finish: impl FnOnce(&mut T) -> io::Result<()>) -> Result<bool> {
        match finish(&mut self.lock()) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe && is_stdout(&self.path) => {
                Ok(false)
            }
            Err(error) => {
                Err(error).with_context(|| format!("cannot write {}", self.path.display()))
            }
        }
    }
}

fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == STDOUT
}
