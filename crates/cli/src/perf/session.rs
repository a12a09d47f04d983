//! The course of a test.
//!
//! The connecting side opens a control connection and says what to measure, then the data
//! connections, each of which begins with a fixed header. The sender tells over the control
//! connection how much it has sent; the receiver, when it has all of it; and the listening side
//! ends with its report.

use std::io::Write;
use std::net::SocketAddr;

use anyhow::{Context, Result, bail};

use super::PerfArgs;
use super::arrivals::Arrivals;
use super::channel::{Acceptor, Channel, Connector};
use super::measure::Measurement;
use super::protocol::{Answer, Request, read_first_answer, receive_line, send_line};
use super::report::Report;
use super::running::Running;
use super::tracer::TraceFile;
use crate::exit::{self, Failed};
use crate::output;
use crate::qlog::Vantage;

/// The connecting side.
pub fn connect(args: &PerfArgs, peer: SocketAddr) -> Result<()> {
    let trace = open_trace(args, Vantage::Client)?;
    let running = Running::end_on_interrupt();
    let connector = Connector::new(args, peer);
    let how = Measurement { args, running: &running, trace: trace.as_ref() };
    let result = if args.is_raw() {
        connector.connect().and_then(|channel| raw(&how, channel))
    } else {
        ask_for_test(&how, &connector)
    };
    running.conclude(result)?;
    trace.map_or(Ok(()), |trace| trace.conclude())
}

/// The trace's file, if there is to be one: before anybody is bothered.
fn open_trace(args: &PerfArgs, vantage: Vantage) -> Result<Option<TraceFile>> {
    args.trace.as_deref().map(|path| TraceFile::create(path, vantage)).transpose()
}

/// The listening side.
pub fn serve(args: &PerfArgs, addr: SocketAddr) -> Result<()> {
    let trace = open_trace(args, Vantage::Server)?;
    let acceptor = Acceptor::bind(args, addr)?;
    let local = acceptor.local_addr()?;
    let running = Running::end_on_interrupt();
    let how = Measurement { args, running: &running, trace: trace.as_ref() };
    tell!("farhaul: listening at {local}");
    let mut incoming = match args.is_raw() {
        true => Incoming::Raw(acceptor),
        false => Incoming::Tests(Arrivals::start(acceptor, args.greeting.greeting_timeout)),
    };
    loop {
        let result = match &mut incoming {
            Incoming::Raw(acceptor) => {
                let channel = acceptor.accept()?;
                // Asked now: the kernel forgets it when the peer has gone.
                let peer = channel.peer();
                raw(&how, channel).with_context(|| with(&peer))
            }
            Incoming::Tests(arrivals) => {
                let (request, control) = arrivals.next_test()?;
                let peer = control.peer();
                serve_test(&how, arrivals, &request, control).with_context(|| with(&peer))
            }
        };
        let result = running.conclude(result);
        if args.once || running.is_interrupted() {
            result?;
            return trace.map_or(Ok(()), |trace| trace.conclude());
        }
        if let Err(error) = result {
            tell!("farhaul: {}", exit::describe(&error));
        }
    }
}

/// What comes to the listening side.
enum Incoming {
    Tests(Arrivals),
    /// Data without a word about it.
    Raw(Acceptor),
}

fn with(peer: &str) -> String {
    format!("the test with {peer} has failed")
}

fn serve_test(
    how: &Measurement<'_>,
    arrivals: &mut Arrivals,
    request: &Request,
    mut control: Channel,
) -> Result<()> {
    how.running.add(&control)?;
    send_line(&mut control, &Answer::Ready)?;
    let data = arrivals.data(request, how.running)?;
    let report = how.test(&mut control, &data, request, request.reverse)?;
    send_line(&mut control, &report)?;
    control.close().ok();
    output::emit(how.args.json, &report, Report::show)
}

fn ask_for_test(how: &Measurement<'_>, connector: &Connector<'_>) -> Result<()> {
    let Measurement { args, running, .. } = how;
    let mut control = connector.connect()?;
    running.add(&control)?;
    let request = Request::new(args.parallel, args.reverse, args.time, args.bytes);
    send_line(&mut control, &request)?;
    let first = read_first_answer(&mut control, args.greeting.greeting_timeout);
    match first.map_err(|error| no_listener(&control, &error))? {
        Answer::Busy => tell!("farhaul: waiting for the end of the test that is running there"),
        Answer::Heard => {}
        Answer::Ready => bail!("the peer is ready before it has heard"),
    }
    // However long the tests before this one take.
    let answer: Answer = receive_line(&mut control)?;
    if answer != Answer::Ready {
        bail!("the listening side is not ready");
    }
    let mut data = Vec::new();
    for index in 0..args.parallel {
        let mut channel = connector.connect()?;
        running.add(&channel)?;
        channel.write_all(&request.header(index))?;
        data.push(channel);
    }
    let sends = !args.reverse;
    let mut report = how.test(&mut control, &data, &request, sends)?;
    let result: Report = receive_line(&mut control)?;
    report.peer = Some(Box::new(result));
    control.close().ok();
    output::emit(args.json, &report, Report::show)
}

fn raw(how: &Measurement<'_>, channel: Channel) -> Result<()> {
    let report = how.raw(channel)?;
    output::emit(how.args.json, &report, Report::show)
}

/// The error for a peer that did not answer to a request as it should.
fn no_listener(control: &Channel, error: &anyhow::Error) -> Failed {
    let (peer, why) = (control.peer(), exit::describe(error));
    let message =
        format!("{why}; is {peer} a `farhaul perf --listen` without --sink and --source?");
    Failed { code: 1, message }
}
