//! What `farhaul cp` is called with.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory};
use farhaul::Law;

use super::served;
use crate::config::FlagLayer;
use crate::config::value::{self, Locals, Memory, PortRange, Preserve, RateLimit, Streams, Verify};

/// Copy files and trees to or from another host, or between two.
///
/// HOST is whatever ssh reaches by that name; farhaul must be installed there. Data goes directly over
/// UDP, or TCP where UDP does not pass, encrypted and verified. A farhaul:// is at a host that runs farhaul
/// serve, which is reached without ssh and knows you by your key (farhaul key). A directory is copied with all in it;
/// with a slash at its end only its contents are. Files of the same size and time are taken to be the
/// same. Whatever interrupts a copy, the same command goes on where it ended.
#[derive(Args, Debug)]
#[command(override_usage = "farhaul cp [OPTIONS] <SRC>... <DST>")]
pub struct CpArgs {
    /// What to copy (SRC), and at last where to (DST): PATH, [USER@]HOST:PATH, farhaul://HOST[:PORT]/EXPORT/PATH, or -
    /// for standard input or output
    #[arg(value_name = "PATH", required = true, num_args = 1..)]
    pub paths: Vec<OsString>,
    /// Only say what would be done; with -v also which entries would be deleted
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Leave out what matches: *.o by name, /x from the top, x/ directories; the first rule that matches counts
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    /// Take what matches, whatever a later --exclude says
    #[arg(long, value_name = "PATTERN")]
    pub include: Vec<String>,
    /// Delete what is in the target's directories and not in the source's; what --exclude leaves out stays
    #[arg(long)]
    pub delete: bool,
    /// With --delete: delete also what --exclude leaves out
    #[arg(long, requires = "delete")]
    pub delete_excluded: bool,
    /// With --delete: delete at most so many entries; if more would go, they stay and the copy ends with 5
    #[arg(long, value_name = "N", requires = "delete")]
    pub max_delete: Option<u64>,
    /// With --delete: delete also where a source has no file or link to copy, and may only be not mounted
    #[arg(long, requires = "delete")]
    pub allow_empty_source: bool,
    /// Compare files by their digests, not by size and time
    #[arg(long, conflicts_with_all = ["skip_existing", "overwrite"])]
    pub checksum: bool,
    /// Leave alone what is there under the same name, whatever it is
    #[arg(long, visible_alias = "no-clobber", conflicts_with = "overwrite")]
    pub skip_existing: bool,
    /// Copy also files that seem to be the same
    #[arg(long)]
    pub overwrite: bool,
    /// Keep set-user-ID and set-group-ID bits
    #[arg(long)]
    pub keep_set_id: bool,
    /// Write a receipt: every file with its digest, for farhaul verify
    #[arg(long, value_name = "FILE")]
    pub receipt: Option<PathBuf>,
    /// Do not count files and bytes beforehand: no estimate of the time left
    #[arg(long)]
    pub no_count: bool,
    /// Show nothing but failures, and that data is not encrypted
    #[arg(short, long)]
    pub quiet: bool,
    /// Show every file, and what limited the copy
    #[arg(short, long)]
    pub verbose: bool,
    /// Print one JSON document at the end
    #[arg(long, conflicts_with = "json_stream")]
    pub json: bool,
    /// Print a JSON document for each event: start, interval, file, failed, deleted, would_delete, note, end
    #[arg(long)]
    pub json_stream: bool,
    #[command(flatten)]
    pub server: served::ServerArgs,
    #[command(flatten)]
    pub settings: SettingArgs,
}

/// Flags of what the environment and the settings file may say as well.
#[derive(Args, Debug)]
#[command(
    next_help_heading = "Settings, also in the environment and in ~/.config/farhaul/config.toml"
)]
pub struct SettingArgs {
    /// Congestion control law of the sending side; farhaul cc list lists them
    #[arg(long, value_name = value::LAW.form, value_parser = value::LAW.parse)]
    pub cc: Option<Law>,
    /// Send at most so fast, all connections together
    #[arg(long, value_name = value::RATE.form, value_parser = value::RATE.parse)]
    pub rate: Option<RateLimit>,
    /// Connections that carry data side by side
    #[arg(long, value_name = value::STREAMS.form, value_parser = value::STREAMS.parse)]
    pub streams: Option<Streams>,
    /// What data travels over: UDT over UDP (udp is the same), TCP, or UDT where it passes
    #[arg(long, value_name = value::TRANSPORT.form, value_parser = value::transports(), hide_possible_values = true)]
    pub transport: Option<value::Transport>,
    /// Command, with options, that starts the other side's farhaul
    #[arg(long, value_name = "COMMAND", value_parser = value::WORDS.parse)]
    pub ssh: Option<String>,
    /// Path of farhaul on the other side
    #[arg(long, value_name = "PATH", value_parser = value::WORDS.parse)]
    pub remote_farhaul: Option<String>,
    /// Take and compare digests, or do not
    #[arg(long, value_name = value::VERIFY.form, value_parser = value::verifies(), hide_possible_values = true)]
    pub verify: Option<Verify>,
    /// Take what is synced of partial files as it is, and do not read it again; then it is not verified
    #[arg(long)]
    pub trust_partial: bool,
    /// Do not encrypt data; the other side must allow it
    #[arg(long)]
    pub plain: bool,
    /// Keep trying for so long when the network is away
    #[arg(long, value_name = value::TIME.form, value_parser = value::TIME.parse)]
    pub outage: Option<Duration>,
    /// What beside contents is kept: mode, times, owner, xattrs, hardlinks, sparse
    #[arg(long, value_name = "LIST", value_parser = value::PRESERVE.parse)]
    pub preserve: Option<Preserve>,
    /// Maximum segment size, bytes: the MTU of the path
    #[arg(long, value_name = value::MSS.form, value_parser = value::MSS.parse)]
    pub mss: Option<u32>,
    /// Memory of a connection for received data that waits to be read
    #[arg(long, value_name = value::MEMORY.form, value_parser = value::MEMORY.parse)]
    pub receive_memory: Option<Memory>,
    /// Memory of a connection for data that is not acknowledged yet
    #[arg(long, value_name = value::MEMORY.form, value_parser = value::MEMORY.parse)]
    pub send_memory: Option<Memory>,
    /// Local addresses or interfaces that connections go out from, one after the other
    #[arg(long, visible_alias = "interface", value_name = "LIST", value_parser = value::LOCALS.parse)]
    pub bind: Option<Locals>,
    /// Ports that the other side may listen at
    #[arg(long, value_name = "FIRST-LAST", value_parser = value::PORTS.parse)]
    pub listen_ports: Option<PortRange>,
    /// Show no progress
    #[arg(long)]
    pub no_progress: bool,
}

impl CpArgs {
    /// Ends the command, as clap would, if there is no target. clap itself would want two paths without
    /// options between them.
    pub fn want_target(&self) {
        if self.paths.len() > 1 {
            return;
        }
        let mut command = crate::Cli::command();
        command.build();
        let cp = command.find_subcommand_mut("cp").expect("it is farhaul cp that runs");
        let text = "the following required arguments were not provided:\n  <DST>";
        cp.error(ErrorKind::MissingRequiredArgument, text).exit()
    }
}

impl SettingArgs {
    /// Those that were given.
    pub fn layer(&self) -> FlagLayer {
        FlagLayer {
            cc: self.cc.clone(),
            rate: self.rate,
            streams: self.streams,
            transport: self.transport,
            ssh: self.ssh.clone(),
            remote_farhaul: self.remote_farhaul.clone(),
            verify: self.verify,
            trust_partial: self.trust_partial.then_some(true),
            plain: self.plain.then_some(true),
            outage: self.outage,
            preserve: self.preserve,
            mss: self.mss,
            receive_memory: self.receive_memory,
            send_memory: self.send_memory,
            bind: self.bind.clone(),
            listen_ports: self.listen_ports,
            advertise: None,
            progress: self.no_progress.then_some(false),
        }
    }
}
