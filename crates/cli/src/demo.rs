//! `farhaul demo`: the main job on one machine.

mod compare;
mod mover;
mod process;
mod progress;
mod report;
mod series;
mod stop;
mod tcp;
mod tree;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use farhaul::Law;
use farhaul_link::LinkConfig;

use crate::exit::{self, Failed, Usage};
use crate::output;
use crate::transport::DEFAULT_LAW;
use crate::units::{self, show_size};
use crate::wan::PathArgs;

use mover::{Moved, Plan};
use progress::Progress;
use report::{PathReport, Report, Run, files_in};
use stop::Stop;
use tcp::side::SideArgs;
pub use tcp::{
    may_be_offered as tcp_congestion_control_may_be_offered,
    offered as tcp_congestion_controls_offered, usual as usual_tcp_congestion_control,
};

/// TCP is stopped when it has taken so many times as long as farhaul,
const TCP_TIMES_LONGER: f64 = 2.0;
/// or so long in any case; but it has at least the other time, to leave its slow start.
const TCP_LONGEST_S: f64 = 30.0;
const TCP_SHORTEST_S: f64 = 3.0;
/// The slowest path, bits per second: the smallest tree, 1 MB, takes more than a minute over it.
const LEAST_RATE: u64 = 100_000;
/// A path that loses this share of its packets, or more, is none: of four questions no more than one
/// gets its answer.
const MOST_LOSS: f64 = 0.5;
/// Of a full packet, which loses most where bits are lost.
const PACKET_BITS: u64 = 1_500 * 8;

/// See the main job done: a tree of files over an emulated wide-area path.
///
/// Makes a tree of files, moves it between two processes over a path with the rate, delay and loss
/// given here, compares both trees, and then sees what the kernel's TCP makes of an equivalent path.
/// Draws the throughput of both. Needs no privileges and no second machine. Both trees are in the
/// system's directory for temporary files ($TMPDIR) until the end.
///
/// The path is 200 Mb/s and 80 ms there and back, and loses 0.1% of all packets at random. --cc udt
/// shows what UDT's own law makes of it, and --cc udt:noisy its option for such paths.
#[derive(Args, Debug)]
#[command(
    mut_arg("rate", |arg| arg.default_value("200M").help("Rate")),
    mut_arg("delay", |arg| arg.default_value("40ms")),
    mut_arg("loss", |arg| arg.default_value("0.1%")),
)]
pub struct DemoArgs {
    /// Data in the tree
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = "250MB")]
    size: u64,
    /// Congestion control law, with parameters
    #[arg(long, value_name = "NAME[:KEY=VALUE,…]", default_value = DEFAULT_LAW)]
    cc: Law,
    /// The tree, and what is random about the path, follow from this
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = units::seed, allow_hyphen_values = true)]
    seed: u64,
    /// Where the plot goes; made if there is none
    #[arg(long, value_name = "DIR", default_value = "farhaul-demo")]
    out: PathBuf,
    /// Do not compare with the kernel's TCP
    #[arg(long)]
    no_tcp: bool,
    /// TCP congestion controls to compare with [default: the kernel's default, and cubic]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', conflicts_with = "no_tcp")]
    tcp_cc: Vec<String>,
    /// Keep both trees
    #[arg(long)]
    keep: bool,
    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
    /// Print one JSON document at the end
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    path: PathArgs,
    #[command(flatten)]
    tcp_side: SideArgs,
}

/// Runs the command.
pub fn run(args: &DemoArgs) -> Result<()> {
    let links = args.path.links().map_err(|e| Usage(e.to_string()))?;
    if args.tcp_side.is_asked() {
        return tcp::side::run(&args.tcp_side, links, args.seed);
    }
    if args.size < tree::MIN_BYTES {
        let least = show_size(tree::MIN_BYTES);
        return Err(Usage(format!("the tree must have {least} or more")).into());
    }
    check_path(&links)?;
    if let Some(unknown) = args.tcp_cc().find(|cc| !tcp::may_be_offered(cc)) {
        let offered = tcp::offered().join(", ");
        let message = format!("the kernel has no TCP congestion control '{unknown}'");
        return Err(Usage(format!("{message}; it has {offered}")).into());
    }
    let stop = Stop::on_interrupt();
    let report = match demonstrate(args, &stop) {
        // Whatever failed, failed because of that.
        Err(_) if stop.is_set() => return Err(exit::interrupted().into()),
        done => done?,
    };
    output::emit(args.json, &report, Report::show)?;
    if report.verified {
        return Ok(());
    }
    Err(Failed { code: 4, message: "the trees differ".into() }.into())
}

fn demonstrate(args: &DemoArgs, stop: &Stop) -> Result<Report> {
    let links = args.path.links()?;
    let out = std::path::absolute(&args.out)?;
    fs::create_dir_all(&out).map_err(|e| Usage(format!("{}: {e}", out.display())))?;
    let mut work = tempfile::Builder::new().prefix("farhaul-demo-").tempdir()?;
    let (source, target) = (work.path().join("tree"), work.path().join("received"));

    args.say(&format!("making a tree with {} of data", show_size(args.size)));
    let tree = tree::make(&source, args.size, args.seed, stop)
        .with_context(|| format!("cannot make a tree at {}", source.display()))?;

    let path = PathReport::new(&links);
    args.say(&format!("moving it with {} over {}", law_name(&args.cc), path.description));
    let farhaul = move_tree(args, &source, &target, &path, stop)?;

    args.say("comparing both trees");
    let comparison = compare::compare(&source, &target.join("tree"), stop)?;

    let mut tcp = Vec::new();
    let mut tcp_not_compared = Vec::new();
    for cc in args.tcp_congestion_controls() {
        match run_tcp(args, cc.as_deref(), &farhaul, &path, stop) {
            Ok(run) => tcp.push(run),
            Err(error) => {
                stop.check()?;
                let why = format!("{error:#}");
                if !tcp_not_compared.contains(&why) {
                    tcp_not_compared.push(why);
                }
            }
        }
    }
    if args.keep {
        work.disable_cleanup(true);
    }
    let (plot, csv) = files_in(&out);
    let report = Report {
        seed: args.seed,
        path,
        tree,
        farhaul,
        tcp,
        tcp_not_compared,
        verified: comparison.different == 0,
        comparison,
        plot,
        csv,
        kept: args.keep.then(|| work.path().display().to_string()),
    };
    report.write_files()?;
    Ok(report)
}

fn move_tree(
    args: &DemoArgs,
    source: &Path,
    target: &Path,
    path: &PathReport,
    stop: &Stop,
) -> Result<Run> {
    let links = args.path.links()?;
    let plan = Plan { source, target, cc: &args.cc, links, seed: args.seed, quiet: args.quiet };
    let Moved { sender, series, relay } = mover::transfer(&plan, stop)?;
    let run = Run {
        name: format!("farhaul ({})", law_name(&args.cc)),
        cc: law_name(&args.cc),
        bytes: sender.data_bytes,
        seconds: sender.seconds,
        complete: true,
        bits_per_second: 0.0,
        share_of_line: None,
        packets_sent: sender.packets_sent,
        retransmitted: sender.retransmitted,
        overflowed: relay.forward.overflowed,
        series,
    };
    Ok(run.with_rates(path))
}

fn run_tcp(
    args: &DemoArgs,
    cc: Option<&str>,
    farhaul: &Run,
    path: &PathReport,
    stop: &Stop,
) -> Result<Run> {
    let longest = (farhaul.seconds * TCP_TIMES_LONGER).clamp(TCP_SHORTEST_S, TCP_LONGEST_S);
    let name = format!("kernel TCP ({})", cc.unwrap_or("default"));
    args.say(&format!("{name} over an equivalent path, for {longest:.0} s at most"));
    let mut progress = Progress::new(&name, farhaul.bytes, args.quiet);
    let limit = Duration::from_secs_f64(longest);
    let (outcome, series) = tcp::transfer(cc, farhaul.bytes, limit, &mut progress, stop)?;
    drop(progress);
    if !outcome.buffers_raised {
        args.say("the kernel's limits for TCP buffers could not be raised; they may slow TCP down");
    }
    let run = Run {
        name: format!("kernel TCP ({})", outcome.cc),
        cc: outcome.cc,
        bytes: outcome.bytes,
        seconds: outcome.seconds,
        complete: outcome.complete,
        bits_per_second: 0.0,
        share_of_line: None,
        packets_sent: outcome.packets_sent,
        retransmitted: outcome.retransmitted,
        overflowed: outcome.overflowed,
        series,
    };
    Ok(run.with_rates(path))
}

impl DemoArgs {
    fn say(&self, what: &str) {
        if !self.quiet {
            tell!("farhaul: {what}");
        }
    }

    fn tcp_congestion_controls(&self) -> Vec<Option<String>> {
        if self.no_tcp {
            Vec::new()
        } else if self.tcp_cc().next().is_none() {
            tcp::congestion_controls()
        } else {
            self.tcp_cc().map(|cc| Some(cc.to_owned())).collect()
        }
    }

    /// The names given, without the empty ones.
    fn tcp_cc(&self) -> impl Iterator<Item = &str> {
        self.tcp_cc.iter().map(|cc| cc.trim()).filter(|cc| !cc.is_empty())
    }
}

/// Refuses a path over which nothing could arrive while anybody waits for it.
fn check_path(links: &[LinkConfig; 2]) -> Result<()> {
    let refuse =
        |what: String| Err(Usage(format!("nothing could arrive over a path {what}")).into());
    for link in links {
        if let Some(rate) = link.rate.filter(|rate| rate.bits_per_second() < LEAST_RATE) {
            let least = units::show_rate(LEAST_RATE as f64);
            return refuse(format!("with a rate of {rate}bit/s; the least is {least}"));
        }
        for (what, share) in
            [("loses", link.loss.mean_loss(PACKET_BITS)), ("damages", link.corrupt.value())]
        {
            if share >= MOST_LOSS {
                let (share, most) = (share * 100.0, MOST_LOSS * 100.0);
                let text =
                    format!("that {what} {share:.0}% of all packets; it must be below {most}%");
                return refuse(text);
            }
        }
    }
    Ok(())
}

/// `udt:noisy`: a parameter without a value is true.
fn law_name(law: &Law) -> String {
    law.to_string().replace("=true", "")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        demo: DemoArgs,
    }

    fn parse(arguments: &[&str]) -> DemoArgs {
        Cli::try_parse_from(["demo"].iter().chain(arguments)).unwrap().demo
    }

    fn path(arguments: &[&str]) -> PathReport {
        PathReport::new(&parse(arguments).path.links().unwrap())
    }

    #[test]
    fn a_law_is_named_as_it_is_chosen() {
        let name = law_name(&parse(&["--cc", "udt:noisy"]).cc);
        assert_eq!(name, "udt:noisy");
        assert_eq!(name.parse::<Law>().unwrap(), parse(&["--cc", "udt:noisy=true"]).cc);
    }

    #[test]
    fn empty_names_are_left_out() {
        let names = |text: &str| parse(&["--tcp-cc", text]).tcp_congestion_controls();
        assert_eq!(names(",reno,,"), [Some("reno".to_owned())]);
        assert_eq!(names(",,"), tcp::congestion_controls());
    }

    #[test]
    fn the_path_has_defaults_of_its_own() {
        assert_eq!(path(&[]).description, "200 Mb/s, RTT 80 ms, loss 0.1% each way, queue 2.00 MB");
        let other = path(&["--rate", "1G", "--delay", "5ms", "--loss", "none", "--queue", "100p"]);
        assert_eq!(other.description, "1 Gb/s, RTT 10 ms, queue 100p");
    }
}
