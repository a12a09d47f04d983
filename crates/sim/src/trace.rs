//! Everything that happens to packets as text, a line each.

mod filter;
mod summary;

use std::io::{self, Write};

use farhaul_link::{Cause, Packet as _};

use crate::observer::{Event, EventKind, Observer};
use crate::output::Output;
use crate::scenario::Scenario;

pub use filter::{Filter, FilterError};

use summary::{Repeats, write_summary};

/// Writes a line for each event that a filter lets pass: fields with a space between them.
///
/// | field | |
/// |---|---|
/// | time | seconds, with nine decimals |
/// | event | `send`, `arrive` (at the end of a link), `receive` (an agent is handed it), `drop-policer`, `drop-full`, `drop-early`, `drop-loss`, `drop-blackout`, `drop-host` (the receiving host had no room) |
/// | place | the node that sends, receives or has no room, the link that drops or was crossed |
/// | flow | its name |
/// | direction | `>` from the flow's sender, `<` to it |
/// | protocol | `udt`, `tcp`, `cbr` |
/// | size | bytes, all headers included |
/// | summary | the rest: what the packet says, its kind first |
///
/// Spaces in names are written as `_`. Data that its agent has sent before ends with `again` where
/// it is sent; the headers of UDT and TCP do not tell, so elsewhere nothing does.
#[derive(Debug)]
pub struct Trace<W> {
    names: Names,
    filter: Filter,
    repeats: Repeats,
    line: Vec<u8>,
    out: Output<W>,
}

#[derive(Debug)]
struct Names {
    nodes: Vec<String>,
    links: Vec<String>,
    flows: Vec<String>,
}

impl<W: Write> Trace<W> {
    /// Of a simulation that runs `scenario`. Buffer `out`: each line is written on its own.
    pub fn new(scenario: &Scenario, filter: Filter, out: W) -> Self {
        let names = Names {
            nodes: scenario.nodes.iter().map(|name| printed(name)).collect(),
            links: scenario.links.iter().map(|link| printed(&link.name)).collect(),
            flows: scenario.flows.iter().map(|flow| printed(&flow.name)).collect(),
        };
        let (repeats, line) = (Repeats::default(), Vec::new());
        Trace { names, filter, repeats, line, out: Output::new(out) }
    }

    /// Whether writing has failed. The simulation goes on, and nothing more is written.
    pub fn failed(&self) -> bool {
        self.out.failed()
    }

    /// Writes out what is buffered.
    ///
    /// # Errors
    /// The first failure to write.
    pub fn finish(&mut self) -> io::Result<()> {
        self.out.finish()
    }

    fn write_line(&mut self, event: &Event<'_>, again: bool) -> io::Result<()> {
        let Trace { names, line, .. } = self;
        line.clear();
        let nanos = event.at.as_nanos();
        let (whole, part) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
        let place = match (event.kind, event.link) {
            (EventKind::Dropped(_) | EventKind::Arrived, Some(link)) => {
                names.links.get(link.0 as usize)
            }
            _ => names.nodes.get(event.node.0 as usize),
        };
        let place = place.map_or("?", String::as_str);
        let sender = event.packet.from.0;
        let flow = names.flows.get(sender as usize / 2).map_or("?", String::as_str);
        let direction = if sender.is_multiple_of(2) { '>' } else { '<' };
        let protocol = event.packet.content.protocol();
        let (kind, bytes) = (name(event.kind), event.packet.wire_len());
        write!(line, "{whole}.{part:09} {kind} {place} {flow} {direction} {protocol} {bytes} ")?;
        write_summary(line, &event.packet.content)?;
        if again {
            line.extend(b" again");
        }
        line.push(b'\n');
        Ok(())
    }
}

impl<W: Write + Send> Observer for Trace<W> {
    fn event(&mut self, event: &Event<'_>) {
        // Whatever the filter: what was sent before decides what is sent again.
        let again = event.kind == EventKind::Sent && self.repeats.sent(event.packet);
        if self.filter.passes(event) && self.write_line(event, again).is_ok() {
            self.out.write(&self.line);
        }
    }
}

/// An event as lines and filters call it.
fn name(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Sent => "send",
        EventKind::Arrived => "arrive",
        EventKind::Received => "receive",
        EventKind::Dropped(Cause::Policed) => "drop-policer",
        EventKind::Dropped(Cause::Full) => "drop-full",
        EventKind::Dropped(Cause::Early) => "drop-early",
        EventKind::Dropped(Cause::Loss) => "drop-loss",
        EventKind::Dropped(Cause::Blackout) => "drop-blackout",
        EventKind::Overrun => "drop-host",
    }
}

/// A name as one word.
fn printed(name: &str) -> String {
    let words: Vec<&str> = name.split_whitespace().collect();
    if words.is_empty() { "_".into() } else { words.join("_") }
}
