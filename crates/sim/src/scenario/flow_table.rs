//! `[[flow]]`: one flow, or several of a kind.

use core::ops::Range;
use core::time::Duration;

use farhaul_base::names::suggestion;
use farhaul_control::{Spec, laws};
use farhaul_engine::{Config, Mode, ReorderTolerance};
use farhaul_link::{Rate, parse_duration, parse_size};
use toml::de::{DeTable, DeValue};

use super::reader::{Item, Scalar, Section};
use super::tables::Nodes;
use super::{FlowSpec, Protocol};
use crate::packet::UDP_HEADERS;
use crate::tcp::TcpConfig;
use crate::udt::{LEAST_MESSAGE, MOST_MESSAGE, MessageSpec};

/// Flows that a scenario may have.
pub(super) const MOST_FLOWS: usize = 100_000;
/// Changes of the rate that the constant-rate flows of one table may have.
const MOST_PHASES: usize = 1_000_000;
/// How often a schedule may be repeated.
const MOST_TIMES: u32 = 10_000;
/// Bytes of a packet with all headers, where nothing else is said.
const PACKET_SIZE: u32 = 1500;

/// The keys that depend on the protocol.
const KEYS: [&str; 8] =
    ["options", "messages", "arrivals", "rate", "schedule", "repeat", "times", "packet_size"];

/// Reads a flow, or as many as `count` says. `before`: flows read so far.
pub(super) fn read(section: &Section<'_>, nodes: &Nodes, before: usize) -> Option<Vec<FlowSpec>> {
    let from = node(section, nodes, "from");
    let to = node(section, nodes, "to");
    let name = section.text("name").map(|name| name.text);
    let start = section.duration("start").unwrap_or_default();
    let stop = section.duration("stop");
    let stagger = section.duration("stagger").unwrap_or_default();
    // A sweep may go down to none of them; who writes that there is none has no use for the table.
    let may_be_none = section.raw("count").is_some_and(
        |count| matches!(count.get_ref(), DeValue::String(text) if text.contains('$')),
    );
    let count = section.text("count").and_then(|scalar| {
        section.parse("count", &scalar, |text| match text.parse::<f64>() {
            Ok(0.0) if !may_be_none => {
                Err("there would be no flow: leave the table out, or give a variable".to_owned())
            }
            Ok(count) if (0.0..=MOST_FLOWS as f64).contains(&count) && count.fract() == 0.0 => {
                Ok(count as usize)
            }
            _ => Err(format!("give a whole number of flows up to {MOST_FLOWS}")),
        })
    });
    let bytes = section.get("bytes", |text| match bytes(text) {
        // One protocol would send a packet for it and another none.
        Ok(0) => Err("there is nothing to send: give at least 1".to_owned()),
        bytes => bytes,
    });
    let mut protocol = protocol(section);
    if protocol.is_none() {
        // What this one would take may not have been asked for: no key is a wrong one.
        for key in KEYS {
            section.raw(key);
        }
    }
    let messages = protocol.as_mut().and_then(|protocol| messages(section, protocol));
    let (from, to, protocol) = (from?, to?, protocol?);
    if from == to {
        section.reader().problem(section.span(), "a flow is from one node to another");
        return None;
    }
    if stop.is_some_and(|stop| stop <= start) {
        section.reader().problem(section.span(), "'stop' must be later than 'start'");
    }
    if matches!(protocol, Protocol::TcpArrivals { .. }) && bytes.is_none() {
        section
            .reader()
            .problem(section.span(), "'arrivals' needs 'bytes': the size of a transfer");
    }
    let count = count.unwrap_or(1);
    if let Protocol::Cbr { phases, .. } = &protocol
        && phases.len() * count > MOST_PHASES
    {
        let message = format!("more than {MOST_PHASES} changes of rate in all: take fewer");
        section.reader().problem(section.span(), message);
        return None;
    }
    let flow = |index: usize| FlowSpec {
        name: match &name {
            Some(name) if count == 1 => name.clone(),
            Some(name) => format!("{name}-{}", index + 1),
            None => format!("{}-{}", protocol.name(), before + index + 1),
        },
        from,
        to,
        start: start + stagger * index as u32,
        stop,
        bytes,
        messages,
        protocol: protocol.clone(),
    };
    Some((0..count).map(flow).collect())
}

/// So many bytes, with or without a unit.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    text.parse().or_else(|_| parse_size(text)).map_err(|error| error.to_string())
}

fn node(section: &Section<'_>, nodes: &Nodes, key: &'static str) -> Option<usize> {
    let scalar = section.required(key)?;
    let found = nodes.find(&scalar.text);
    if found.is_none() {
        let hint = suggestion(&scalar.text, nodes.names());
        let message = format!("no link leads to a node '{}'; {hint}", scalar.text);
        section.reader().problem(&scalar.span, message);
    }
    found
}

fn protocol(section: &Section<'_>) -> Option<Protocol> {
    let name = section.text("protocol");
    let law = section.text("cc");
    let kind = name.as_ref().map_or("udt", |name| name.text.as_str());
    match kind {
        "udt" => {
            let mut config = udt_options(section)?;
            if let Some(law) = law {
                config.law = section.parse("cc", &law, str::parse::<Spec>)?;
            }
            Some(Protocol::Udt(Box::new(config)))
        }
        "cbr" => {
            if let Some(law) = law {
                section.reader().problem(&law.span, "a constant rate has no 'cc'");
            }
            cbr(section)
        }
        _ => {
            let Some(tcp) = tcp_law(kind) else {
                let tcps: Vec<String> =
                    laws().iter().map(|law| format!("tcp-{}", law.name)).collect();
                let known = ["udt", "cbr", "tcp-newreno"].into_iter();
                let hint = suggestion(kind, known.chain(tcps.iter().map(String::as_str)));
                let span = name.as_ref().map_or(section.span(), |name| &name.span);
                section.reader().problem(span, format!("no protocol '{kind}'; {hint}"));
                return None;
            };
            let law = match law {
                Some(law) => section.parse("cc", &law, str::parse::<Spec>)?,
                None => tcp,
            };
            let tcp = tcp_options(section, "options", law);
            match section.value::<f64>("arrivals") {
                None => Some(Protocol::Tcp(tcp)),
                Some(per_second) if per_second > 0.0 && per_second <= 1e6 => {
                    Some(Protocol::TcpArrivals { tcp, per_second })
                }
                Some(_) => {
                    let message = "'arrivals' is a number of transfers a second above 0";
                    section.reader().problem(section.span(), message);
                    None
                }
            }
        }
    }
}

/// The law that a protocol's name means: `tcp-newreno`, or `tcp-` and the name of any law.
fn tcp_law(protocol: &str) -> Option<Spec> {
    match protocol.strip_prefix("tcp-")? {
        "newreno" => "reno".parse().ok(),
        law => law.parse().ok(),
    }
}

/// `tcp_friendliness = "tcp-newreno"`, with the options of those flows in `tcp_options`.
pub(super) fn friendliness(top: &Section<'_>) -> Option<(TcpConfig, Range<usize>)> {
    let Some(name) = top.text("tcp_friendliness") else {
        if let Some(options) = top.raw("tcp_options") {
            top.reader().problem(&options.span(), "'tcp_options' needs 'tcp_friendliness'");
        }
        return None;
    };
    let Some(law) = tcp_law(&name.text) else {
        let message = format!("'{}' is no TCP; write tcp-newreno or tcp-cubic", name.text);
        top.reader().problem(&name.span, message);
        return None;
    };
    Some((tcp_options(top, "tcp_options", law), name.span))
}

/// The `options` of a UDT flow.
fn udt_options(section: &Section<'_>) -> Option<Config> {
    let mut config = Config::default();
    let Some((table, span)) = options(section, "options", "mss") else { return Some(config) };
    let options = section.reader().section("options", table, span.clone());
    if let Some(mss) = options.value("mss") {
        config.mss = mss;
    }
    config.flow_window = options.value("flow_window").or(config.flow_window);
    config.max_bandwidth =
        options.value("max_bandwidth").map(Rate::bits_per_second).or(config.max_bandwidth);
    let memory = |key| options.get(key, parse_size).and_then(|bytes| usize::try_from(bytes).ok());
    config.send_memory = memory("send_memory").unwrap_or(config.send_memory);
    config.receive_memory = memory("receive_memory").unwrap_or(config.receive_memory);
    config.peer_timeout = options.duration("peer_timeout").unwrap_or(config.peer_timeout);
    config.keep_alive = options.duration("keep_alive").unwrap_or(config.keep_alive);
    config.connect_timeout = options.duration("connect_timeout").or(config.connect_timeout);
    config.linger = options.duration("linger").unwrap_or(config.linger);
    config.burst_room = options.value("burst_room").unwrap_or(config.burst_room);
    config.max_segments = options.value("max_segments").unwrap_or(config.max_segments);
    config.back_off = options.value("back_off").unwrap_or(config.back_off);
    config.reorder_tolerance =
        options.get("reorder_tolerance", reorder_tolerance).unwrap_or(config.reorder_tolerance);
    options.finish();
    if let Err(error) = config.validate() {
        section.reader().problem(&span, error.to_string());
        return None;
    }
    Some(config)
}

/// So many packets, or so many at most, as reordering has been seen.
fn reorder_tolerance(text: &str) -> Result<ReorderTolerance, String> {
    let (adaptive, number) = match text.strip_prefix("adaptive:") {
        Some(number) => (true, number),
        None => (false, text),
    };
    match number.parse() {
        Ok(most) if adaptive => Ok(ReorderTolerance::Adaptive(most)),
        Ok(packets) => Ok(ReorderTolerance::Fixed(packets)),
        Err(_) => Err("give packets, or adaptive:PACKETS".into()),
    }
}

/// The messages of a UDT flow, if it sends any: its mode is then theirs.
fn messages(section: &Section<'_>, protocol: &mut Protocol) -> Option<MessageSpec> {
    let Protocol::Udt(config) = protocol else { return None };
    let (table, span) = options(section, "messages", "size")?;
    let reader = section.reader();
    let table = reader.section("messages", table, span.clone());
    let size = table.required("size").and_then(|size| table.parse("size", &size, bytes));
    let every = table.duration("every");
    let ttl = table.duration("ttl");
    let in_order = table.value("in_order").unwrap_or(true);
    table.finish();
    let size = size?;
    let most = config.largest_message().min(MOST_MESSAGE as usize) as u64;
    if !(u64::from(LEAST_MESSAGE)..=most).contains(&size) {
        let message = format!("a message has from {LEAST_MESSAGE} to {most} bytes");
        reader.problem(&span, message);
        return None;
    }
    if every.is_some_and(|every| every.is_zero()) {
        reader.problem(&span, "'every' must be longer than 0");
        return None;
    }
    config.mode = Mode::Message;
    Some(MessageSpec { size: size as u32, every, ttl, in_order })
}

/// The options of TCP flows under `key`.
fn tcp_options(section: &Section<'_>, key: &'static str, law: Spec) -> TcpConfig {
    let mut tcp = TcpConfig { law, ..TcpConfig::default() };
    let Some((table, span)) = options(section, key, "packet_size") else { return tcp };
    let options = section.reader().section(key, table, span.clone());
    tcp.packet_size = options.value("packet_size").unwrap_or(tcp.packet_size);
    if let Some(delay) = options.duration("delayed_ack") {
        tcp.delayed_ack = Some(delay).filter(|delay| !delay.is_zero());
    }
    tcp.min_rto = options.duration("min_rto").unwrap_or(tcp.min_rto);
    tcp.receive_window = options.get("receive_window", parse_size).unwrap_or(tcp.receive_window);
    tcp.proportional = options.value("proportional").unwrap_or(tcp.proportional);
    tcp.ecn = options.value("ecn").unwrap_or(tcp.ecn);
    options.finish();
    let wrong = if !(96..=65_535).contains(&tcp.packet_size) {
        Some("'packet_size' is from 96 to 65535 bytes")
    } else if tcp.min_rto.is_zero() {
        Some("'min_rto' must be longer than 0")
    } else {
        tcp.warning()
    };
    if let Some(message) = wrong {
        section.reader().problem(&span, message);
    }
    tcp
}

/// The table under `key`; `example` is an option that there may be in it.
fn options<'a>(
    section: &Section<'a>,
    key: &'static str,
    example: &str,
) -> Option<(&'a DeTable<'a>, Range<usize>)> {
    match section.item(key)? {
        Item::Table(table, span) => Some((table, span)),
        Item::Scalar(Scalar { span, .. }) | Item::List(_, span) => {
            let message = format!("'{key}' is a table: {key} = {{ {example} = 1500 }}");
            section.reader().problem(&span, message);
            None
        }
    }
}

/// `rate`, as a rule, or `schedule = ["0s:50M", "10s:0", …]`, again and again with `repeat`.
fn cbr(section: &Section<'_>) -> Option<Protocol> {
    if let Some(bytes) = section.raw("bytes") {
        let message = "a constant rate has no 'bytes': say when it stops";
        section.reader().problem(&bytes.span(), message);
    }
    let packet_size = section.value::<u32>("packet_size").unwrap_or(PACKET_SIZE);
    let rate = section.get("rate", rate_or_silence);
    let schedule = section.list("schedule");
    let repeat = section.duration("repeat");
    let times = section.get("times", |text| match text.parse() {
        Ok(times @ 1..=MOST_TIMES) => Ok(times),
        _ => Err(format!("give a number from 1 to {MOST_TIMES}")),
    });
    let phase = |scalar: &Scalar| {
        section.parse("schedule", scalar, |text| {
            let (at, rate) = text.split_once(':').ok_or("write 10s:50M, or 10s:0 for silence")?;
            let at = parse_duration(at).map_err(|error| error.to_string())?;
            Ok::<_, String>((at, rate_or_silence(rate)?))
        })
    };
    let once: Vec<(Duration, Option<Rate>)> = match (rate, schedule.is_empty()) {
        (Some(rate), true) => vec![(Duration::ZERO, rate)],
        (None, false) => schedule.iter().map(phase).collect::<Option<_>>()?,
        _ => {
            let message = "a constant rate needs either 'rate' or 'schedule'";
            section.reader().problem(section.span(), message);
            return None;
        }
    };
    if !once.windows(2).all(|pair| pair[0].0 < pair[1].0) {
        section.reader().problem(section.span(), "the times of 'schedule' must ascend");
        return None;
    }
    if !(UDP_HEADERS..=65_535).contains(&packet_size) {
        let message = format!("'packet_size' is from {UDP_HEADERS} to 65535 bytes");
        section.reader().problem(section.span(), message);
        return None;
    }
    let mut phases = once.clone();
    if let Some(repeat) = repeat {
        if once.last().is_some_and(|(at, _)| *at >= repeat) {
            section.reader().problem(section.span(), "'repeat' must be later than the schedule");
            return None;
        }
        let rounds = times.unwrap_or(100);
        if once.len() * rounds as usize > MOST_PHASES {
            let message = format!("more than {MOST_PHASES} changes of rate in all: take fewer");
            section.reader().problem(section.span(), message);
            return None;
        }
        for round in 1..rounds {
            phases.extend(once.iter().map(|(at, rate)| (*at + repeat * round, *rate)));
        }
    } else if times.is_some() {
        section.reader().problem(section.span(), "'times' needs 'repeat'");
    }
    Some(Protocol::Cbr { packet_size, phases })
}

fn rate_or_silence(text: &str) -> Result<Option<Rate>, String> {
    match text.trim() {
        "0" => Ok(None),
        text => text.parse().map(Some).map_err(|error: farhaul_link::ParseError| error.to_string()),
    }
}
