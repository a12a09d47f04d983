//! A random scenario file, all of whose flows end.

use core::fmt::Write;

use farhaul_base::Rng;

use crate::host::HostProfile;

/// The scenario of `seed`, as a file. It is the same on every machine.
pub fn scenario(seed: u64) -> String {
    let later = Rng::new(seed ^ LATER);
    let mut writer = Writer { rng: Rng::new(seed), later, text: String::new() };
    writer.write(seed);
    writer.text
}

/// What the seed of later draws differs in.
const LATER: u64 = 0x6c61_7465;

struct Writer {
    rng: Rng,
    /// What has been added to scenarios since is drawn from here: the rest is what it was.
    later: Rng,
    text: String,
}

impl Writer {
    fn write(&mut self, seed: u64) {
        let nodes = 2 + self.rng.below(5);
        self.line(format_args!("title = \"random scenario {seed}\""));
        // Runs end long before, unless something is stuck.
        self.line(format_args!("duration = \"4000s\"\nsample = \"250ms\"\nseed = {seed}\n"));
        self.later(Self::hosts);
        for node in 1..nodes {
            let to = self.rng.below(node);
            self.link(node, to, true);
        }
        if nodes > 2 {
            for _ in 0..self.rng.below(3) {
                let from = self.rng.below(nodes);
                let to = (from + 1 + self.rng.below(nodes - 1)) % nodes;
                let both = self.rng.chance(0.7);
                self.link(from, to, both);
            }
        }
        let flows = 1 + self.rng.below(5);
        for _ in 0..flows {
            let from = self.rng.below(nodes);
            let to = (from + 1 + self.rng.below(nodes - 1)) % nodes;
            self.flow(from, to);
        }
    }

    /// What `draw` draws is not taken from the stream of the rest.
    fn later<T>(&mut self, draw: impl FnOnce(&mut Self) -> T) -> T {
        core::mem::swap(&mut self.rng, &mut self.later);
        let drawn = draw(self);
        core::mem::swap(&mut self.rng, &mut self.later);
        drawn
    }

    fn line(&mut self, line: core::fmt::Arguments<'_>) {
        // Writing to a text does not fail.
        let _ = writeln!(self.text, "{line}");
    }

    /// Each order of magnitude from `low` to `high` as often as each other.
    fn spread(&mut self, low: u64, high: u64) -> u64 {
        let octaves = (high / low.max(1)).ilog2() as u64;
        let octave = low << self.rng.below(octaves + 1);
        (octave + self.rng.below(octave)).min(high)
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.rng.below(of.len() as u64) as usize]
    }

    /// Half of the scenarios have hosts that take their time, all of a kind or the first one by itself.
    fn hosts(&mut self) {
        if self.rng.chance(0.5) {
            return;
        }
        let profiles: Vec<&str> = HostProfile::all().map(|(name, _)| name).collect();
        let profile = self.pick(&profiles);
        self.line(format_args!("hosts = \"{profile}\""));
        if self.rng.chance(0.5) {
            let batch = 1 + self.rng.below(64);
            self.line(format_args!("[[node]]\nname = \"n0\"\nbatch = {batch}"));
            let least = self.rng.below(2_000);
            let (most, longer) = (least + self.rng.below(2_000), self.rng.below(20_000));
            let times = format!("90%:{most}us,100%:{}us", most + longer);
            let key = self.pick(&["timer", "wake", "coalesce"]);
            self.line(format_args!("{key} = \"0%:{least}us,{times}\""));
            let (hold, ring) = (self.rng.below(5_000), self.spread(16, 4_000));
            self.line(format_args!("ack_hold = \"{hold}us\"\nring = {ring}"));
            let (every, length) = (self.spread(500, 20_000), 1 + self.rng.below(50));
            self.line(format_args!("stall_every = \"{every}ms\"\nstall = \"1ms..{length}ms\"\n"));
        }
    }

    fn link(&mut self, from: u64, to: u64, both: bool) {
        self.line(format_args!("[[link]]\nfrom = \"n{from}\"\nto = \"n{to}\"\nboth = {both}"));
        let most_lost = if self.rng.chance(0.5) { 5 } else { 1 };
        for line in self.direction(most_lost) {
            self.line(format_args!("{line}"));
        }
        if both && self.rng.chance(0.3) {
            let reverse = self.direction(most_lost).join(", ");
            self.line(format_args!("reverse = {{ {reverse} }}"));
        }
        self.text.push('\n');
    }

    /// `key = value`, one each; `most_lost` is the largest share of packets lost, percent.
    fn direction(&mut self, most_lost: u64) -> Vec<String> {
        let rate = format!("rate = \"{}k\"", self.spread(1_000, 60_000));
        let trace = self.later(|writer| writer.rng.chance(0.1).then(|| writer.trace()));
        let (traced, rate) = (trace.is_some(), trace.unwrap_or(rate));
        let mut lines = vec![
            rate,
            format!("delay = \"{}us\"", self.spread(10, 120_000)),
            format!("queue = {}", self.queue()),
        ];
        if self.rng.chance(0.6) {
            lines.push(format!("loss = {}", self.loss(most_lost)));
        }
        if self.rng.chance(0.3) {
            let order = self.pick(&["", ":reorder"]);
            let shape = self.later(|writer| {
                writer.pick(&["", "", ":around", ":normal", ":pareto:correlation=50%"])
            });
            lines.push(format!("jitter = \"{}us{shape}{order}\"", self.spread(10, 30_000)));
        }
        if self.later(|writer| writer.rng.chance(0.1)) {
            let length = self.later(|writer| writer.spread(10, 10_000));
            lines.push(format!("slots = \"{length}us-{}us\"", 2 * length));
        }
        if self.rng.chance(0.3) {
            let by = match self.rng.below(3) {
                0 => format!("{}us", self.spread(10, 50_000)),
                1 => format!("{}", 1 + self.rng.below(40)),
                _ => format!("{}/{}us", 1 + self.rng.below(40), self.spread(10, 200_000)),
            };
            let gap = self.later(|writer| {
                writer.rng.chance(0.2).then(|| format!("gap={}", 1 + writer.rng.below(40)))
            });
            let by = gap.unwrap_or(by);
            lines.push(format!("reorder = \"{}%:{by}\"", self.rng.below(50)));
        }
        if self.rng.chance(0.3) {
            lines.push(format!("duplicate = \"{}%\"", self.rng.below(30)));
        }
        if self.rng.chance(0.2) {
            lines.push(format!("corrupt = \"{}%\"", 0.1 * self.rng.below(10) as f64));
        }
        if self.rng.chance(0.25) {
            let (start, length) = (self.spread(10, 8_000), self.spread(10, 4_000));
            let (again, after) = (self.spread(10, 1_000), 20 + self.rng.below(30));
            // TCP's longest time-out, a minute, would meet each blackout of a divisor of it.
            let after = after + u64::from(60 % after == 0);
            let second = if self.rng.chance(0.5) {
                format!(", \"{again}ms+{length}ms/{after}s\"")
            } else {
                String::new()
            };
            lines.push(format!("blackouts = [\"{start}ms+{length}ms\"{second}]"));
        }
        if self.rng.chance(0.2) {
            let (first, second) = (self.spread(1_000, 60_000), self.spread(1_000, 60_000));
            let (at, between) = (1 + self.rng.below(3_000), 1 + self.rng.below(3_000));
            let cycle = match self.rng.chance(0.5) {
                true => format!("/{}ms", at + between + 1 + self.rng.below(3_000)),
                false => String::new(),
            };
            let changes = format!("{at}ms:{first}k,{}ms:{second}k{cycle}", at + between);
            if !traced {
                lines.push(format!("rate_changes = \"{changes}\""));
            }
        }
        self.later(|writer| writer.path(&mut lines));
        lines
    }

    /// A policer, and a delay that changes.
    fn path(&mut self, lines: &mut Vec<String>) {
        if self.rng.chance(0.15) {
            let (rate, burst) = (self.spread(1_000, 60_000), self.spread(20, 400));
            lines.push(format!("policer = \"{rate}k:{burst}kB\""));
        }
        if self.rng.chance(0.2) {
            let (first, second) = (self.spread(10, 120_000), self.spread(10, 120_000));
            let (at, between) = (1 + self.rng.below(3_000), 1 + self.rng.below(3_000));
            let order = self.pick(&["", ":reorder"]);
            let cycle = match self.rng.chance(0.5) {
                true => format!("/{}ms", at + between + 1 + self.rng.below(3_000)),
                false => String::new(),
            };
            let changes = format!("{at}ms:{first}us,{}ms:{second}us{order}{cycle}", at + between);
            lines.push(format!("delay_changes = \"{changes}\""));
        }
    }

    /// Opportunities to send, some megabits a second.
    fn trace(&mut self) -> String {
        let mut stamps: Vec<u64> =
            (0..20 + self.rng.below(40)).map(|_| self.rng.below(60)).collect();
        stamps.push(60);
        stamps.sort_unstable();
        let stamps: Vec<String> = stamps.iter().map(u64::to_string).collect();
        format!("trace = [{}]", stamps.join(", "))
    }

    /// A queue with room for at least two packets of any size that flows have.
    fn queue(&mut self) -> String {
        let earlier = self.earlier_queue();
        self.later(|writer| match writer.rng.below(8) {
            0 => format!("\"pie:limit={}p\"", writer.spread(10, 500)),
            1 => {
                let flows = 1 + writer.rng.below(64);
                format!("\"fq_codel:limit={}p,flows={flows}\"", writer.spread(10, 500))
            }
            2 => format!("\"dualpi2:limit={}p\"", writer.spread(10, 500)),
            _ => earlier,
        })
    }

    fn earlier_queue(&mut self) -> String {
        match self.rng.below(8) {
            0 | 1 => "\"bdp\"".into(),
            2 => format!("\"{}p\"", self.spread(2, 400)),
            3 => format!("\"{}kB\"", self.spread(20, 4_000)),
            4 => format!("{{ kind = \"droptail\", packets = {} }}", self.spread(2, 40)),
            5 => {
                let min = 2 + self.rng.below(20);
                let (max, limit) = (min + 1 + self.rng.below(40), self.spread(64, 500));
                let gentle = self.rng.chance(0.5);
                format!("\"red:limit={limit}p,min={min},max={max},gentle={gentle}\"")
            }
            6 => format!("\"codel:limit={}p\"", self.spread(10, 500)),
            _ => "\"unlimited\"".into(),
        }
    }

    fn loss(&mut self, most_lost: u64) -> String {
        let percent = most_lost as f64 * self.rng.unit();
        let every = 100 / most_lost;
        match self.rng.below(8) {
            0 | 1 => format!("\"{percent:.3}%\""),
            2 => format!(
                "{{ kind = \"ge\", loss = \"{percent:.3}%\", burst = {} }}",
                2 + self.rng.below(10)
            ),
            3 => "\"ber:5e-7\"".into(),
            4 => format!("\"every:{}\"", every + self.rng.below(1_000)),
            5 => {
                let (mean, sd) = (every + self.rng.below(1_000), self.rng.below(100));
                format!("\"gauss:mean={mean},sd={sd}\"")
            }
            6 => format!("\"poisson:mean={}\"", every + self.rng.below(1_000)),
            _ => {
                // A sender that is alone and backs off needs a minute for each of them.
                let first = 1 + self.rng.below(50);
                format!("\"list:{first},{}-{}\"", first + 2, first + 3 + self.rng.below(6))
            }
        }
    }

    fn flow(&mut self, from: u64, to: u64) {
        self.line(format_args!("[[flow]]\nfrom = \"n{from}\"\nto = \"n{to}\""));
        let start = self.rng.below(2_000);
        self.line(format_args!("start = \"{start}ms\""));
        match self.rng.below(8) {
            0..=3 => self.udt(start),
            4 | 5 => self.tcp(start),
            6 => self.transfers(start),
            _ => self.constant_rate(start),
        }
        self.text.push('\n');
    }

    /// So many bytes, or a time.
    fn amount(&mut self, start: u64) -> Option<u64> {
        if self.rng.chance(0.8) {
            let bytes = self.spread(1, 600_000);
            self.line(format_args!("bytes = {bytes}"));
            Some(bytes)
        } else {
            self.stop(start, 1_500);
            None
        }
    }

    fn stop(&mut self, start: u64, most: u64) {
        let stop = start + 100 + self.rng.below(most);
        self.line(format_args!("stop = \"{stop}ms\""));
    }

    fn udt(&mut self, start: u64) {
        let law = self.law(&["udt", "udt:module", "udt:noisy", "udt:noisy,noise=0.2"]);
        self.line(format_args!("protocol = \"udt\"\ncc = \"{law}\""));
        let bytes = self.amount(start);
        // Whoever sends nothing for a minute may have been told nothing for as long.
        let mut options =
            vec!["connect_timeout = \"120s\"".to_owned(), "linger = \"4000s\"".into()];
        let mut option = |chance: f64, rng: &mut Rng, text: String| {
            if rng.chance(chance) {
                options.push(text);
            }
        };
        let mss = match self.rng.below(3) {
            0 => 96 + self.rng.below(200),
            1 => 300 + self.rng.below(1_200),
            _ => 1_500 + self.rng.below(7_500),
        };
        let mss = if self.rng.chance(0.4) { mss } else { 1_500 };
        option(1.0, &mut self.rng, format!("mss = {mss}"));
        let window = self.spread(32, 4_096);
        option(0.3, &mut self.rng, format!("flow_window = {window}"));
        let memory = self.spread(64, 8_192);
        option(0.3, &mut self.rng, format!("send_memory = \"{memory}KiB\""));
        let memory = self.spread(128, 8_192);
        option(0.3, &mut self.rng, format!("receive_memory = \"{memory}KiB\""));
        let bandwidth = self.spread(200, 50_000);
        option(0.2, &mut self.rng, format!("max_bandwidth = \"{bandwidth}k\""));
        let room = self.spread(2, 720);
        option(0.3, &mut self.rng, format!("burst_room = {room}"));
        let segments = 1 + self.rng.below(64);
        option(0.3, &mut self.rng, format!("max_segments = {segments}"));
        let keep_alive = self.spread(200, 6_000);
        option(0.2, &mut self.rng, format!("keep_alive = \"{keep_alive}ms\""));
        let tolerance = self.rng.below(20);
        option(0.2, &mut self.rng, format!("reorder_tolerance = {tolerance}"));
        let options = options.join(", ");
        self.line(format_args!("options = {{ {options} }}"));
        if self.rng.chance(0.3) {
            // The smallest flow window takes the largest, and there are not too many: each is a
            // packet at least.
            self.messages(bytes.unwrap_or(0) / 2_000, 32 * (mss - 44));
        }
    }

    fn messages(&mut self, least: u64, most: u64) {
        let size = self.spread(8, most.min(50_000)).max(least);
        let mut text = format!("size = {size}, in_order = {}", self.rng.chance(0.5));
        if self.rng.chance(0.3) {
            // Not slower than would take minutes.
            let every = self.spread(1, 5) * size.max(100);
            write!(text, ", every = \"{every}us\"").expect("a string takes all");
        }
        if self.rng.chance(0.5) {
            let ttl = self.spread(5, 5_000);
            write!(text, ", ttl = \"{ttl}ms\"").expect("a string takes all");
        }
        self.line(format_args!("messages = {{ {text} }}"));
    }

    /// Any law by its name, or one of these.
    fn law(&mut self, others: &[&str]) -> String {
        let laws: Vec<&str> = farhaul_control::laws().iter().map(|law| law.name).collect();
        if self.rng.chance(0.7) { self.pick(&laws).into() } else { self.pick(others).into() }
    }

    fn tcp(&mut self, start: u64) {
        let protocol = self.pick(&["tcp-newreno", "tcp-cubic"]);
        self.line(format_args!("protocol = \"{protocol}\""));
        self.amount(start);
        let size = 200 + self.rng.below(8_000);
        let options = match self.rng.below(4) {
            0 => format!("packet_size = {size}"),
            1 => "delayed_ack = \"0s\"".into(),
            2 => "proportional = false".into(),
            _ => format!("receive_window = \"{}kB\"", self.spread(20, 2_000)),
        };
        let ecn = self.later(|writer| writer.pick(&["off", "off", "classic", "l4s"]));
        self.line(format_args!("options = {{ {options}, ecn = \"{ecn}\" }}"));
    }

    fn transfers(&mut self, start: u64) {
        let protocol = self.pick(&["tcp-newreno", "tcp-cubic"]);
        let (bytes, rate) = (self.spread(1, 30_000), 1 + self.rng.below(8));
        self.line(format_args!("protocol = \"{protocol}\"\nbytes = {bytes}\narrivals = {rate}"));
        self.stop(start, 3_000);
    }

    fn constant_rate(&mut self, start: u64) {
        self.line(format_args!("protocol = \"cbr\""));
        let (rate, size) = (self.spread(50, 400), 64 + self.rng.below(1_437));
        self.line(format_args!("packet_size = {size}"));
        if self.rng.chance(0.5) {
            self.line(format_args!("rate = \"{rate}k\""));
        } else {
            let off = 100 + self.rng.below(500);
            let cycle = off + 1 + self.rng.below(500);
            self.line(format_args!("schedule = [\"0s:{rate}k\", \"{off}ms:0\"]"));
            self.line(format_args!("repeat = \"{cycle}ms\""));
        }
        self.stop(start, 8_000);
    }
}
