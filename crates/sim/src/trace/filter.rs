//! Which events a trace shows.

use core::error::Error;
use core::fmt;

use farhaul_base::Time;
use farhaul_base::names::suggestion;
use farhaul_link::parse_duration;

use super::summary::KINDS;
use super::{name, printed};
use crate::network::{LinkId, NodeId};
use crate::observer::{Event, EventKind};
use crate::scenario::Scenario;

const KEYS: [&str; 9] =
    ["event", "kind", "protocol", "flow", "direction", "link", "node", "from", "to"];
const EVENTS: [&str; 10] = [
    "send",
    "arrive",
    "receive",
    "drop",
    "drop-policer",
    "drop-full",
    "drop-early",
    "drop-loss",
    "drop-blackout",
    "drop-host",
];

/// Which events are shown: those that meet all conditions.
///
/// Written `flow=udt-1,event=drop,kind=nak|ack,link=bottleneck,from=2s,to=3s`: a comma means and,
/// `|` or. The keys are
///
/// - `event`: `send`, `arrive`, `receive`, `drop` or one of `drop-policer`, `drop-full`, `drop-early`,
///   `drop-loss`, `drop-blackout`, `drop-host`;
/// - `kind`: `data`, `ack`, `ack2`, `nak`, `handshake`, `shutdown`, `keep-alive`, `drop-request`,
///   `syn`, `reset`, `filler`, `damaged`, `other`;
/// - `protocol`: `udt`, `tcp`, `cbr`;
/// - `flow`: its name;
/// - `direction`: `>` or `forward` from the flow's sender, `<` or `back` to it;
/// - `link`: what is put on that link, is dropped by it or comes out of it; `node`: what happens
///   there;
/// - `from`, `to`: a time; the latter does not belong to the span any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    conditions: Vec<Condition>,
}

/// Met if one of the values is the event's.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    /// Names out of [`EVENTS`].
    Event(Vec<&'static str>),
    Kind(Vec<&'static str>),
    Protocol(Vec<&'static str>),
    Flow(Vec<u32>),
    /// 0 from the sender, 1 to it, as agents are numbered.
    Direction(Vec<u32>),
    Link(Vec<LinkId>),
    Node(Vec<NodeId>),
    From(Time),
    To(Time),
}

/// What is wrong with a filter, and what there is to choose from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterError(String);

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for FilterError {}

impl Filter {
    /// Reads a filter of events of `scenario`; an empty text lets all pass.
    ///
    /// # Errors
    /// If a condition is none, or names what there is not.
    pub fn parse(text: &str, scenario: &Scenario) -> Result<Filter, FilterError> {
        let conditions = text.split(',').map(str::trim).filter(|_| !text.trim().is_empty());
        let conditions = conditions.map(|condition| parse(condition, scenario));
        let filter =
            Filter { conditions: conditions.collect::<Result<_, _>>().map_err(FilterError)? };
        let (from, to) = filter.span();
        if from >= to {
            let message = format!("nothing is shown from {from:?} on and before {to:?}");
            return Err(FilterError(message));
        }
        Ok(filter)
    }

    /// From when to when events are shown.
    fn span(&self) -> (Time, Time) {
        self.conditions.iter().fold(
            (Time::ZERO, Time::MAX),
            |(from, to), condition| match condition {
                Condition::From(time) => (from.max(*time), to),
                Condition::To(time) => (from, to.min(*time)),
                _ => (from, to),
            },
        )
    }

    /// Whether an event is shown.
    pub fn passes(&self, event: &Event<'_>) -> bool {
        self.conditions.iter().all(|condition| condition.meets(event))
    }
}

fn parse(condition: &str, scenario: &Scenario) -> Result<Condition, String> {
    let Some((key, values)) = condition.split_once('=') else {
        let keys = KEYS.join(", ");
        return Err(format!("'{condition}' is no condition: write key=value; the keys are {keys}"));
    };
    let (key, text) = (key.trim(), values.trim());
    let values = || text.split('|').map(str::trim);
    let words = |known: &[&'static str]| {
        let find = |value| known.iter().find(|name| **name == value).copied();
        let found = |value| find(value).ok_or_else(|| unknown(key, value, known.iter().copied()));
        values().map(found).collect::<Result<Vec<_>, String>>()
    };
    let time = || {
        let time = parse_duration(text).map_err(|error| format!("{key}: {error}"))?;
        Ok::<_, String>(Time::ZERO + time)
    };
    Ok(match key {
        "event" => Condition::Event(words(&EVENTS)?),
        "kind" => Condition::Kind(words(&KINDS)?),
        "protocol" => Condition::Protocol(words(&["udt", "tcp", "cbr"])?),
        "flow" => {
            let names = scenario.flows.iter().map(|flow| flow.name.as_str());
            Condition::Flow(numbers(key, values(), names)?)
        }
        "direction" => {
            let number = |value| match value {
                ">" | "forward" => Ok(0),
                "<" | "back" => Ok(1),
                _ => Err(unknown(key, value, ["forward", "back"].into_iter())),
            };
            Condition::Direction(values().map(number).collect::<Result<_, _>>()?)
        }
        "link" => {
            let names = scenario.links.iter().map(|link| link.name.as_str());
            let numbers = numbers(key, values(), names)?;
            Condition::Link(numbers.into_iter().map(LinkId).collect())
        }
        "node" => {
            let numbers = numbers(key, values(), scenario.nodes.iter().map(String::as_str))?;
            Condition::Node(numbers.into_iter().map(NodeId).collect())
        }
        "from" => Condition::From(time()?),
        "to" => Condition::To(time()?),
        _ => {
            let hint = suggestion(key, KEYS.into_iter());
            return Err(format!("no key '{key}'; {hint}"));
        }
    })
}

/// The numbers of those names, of which there may be several of the same.
fn numbers<'a>(
    key: &str,
    values: impl Iterator<Item = &'a str>,
    names: impl Iterator<Item = &'a str> + Clone,
) -> Result<Vec<u32>, String> {
    let mut numbers = Vec::new();
    for value in values {
        let is_it = |name: &str| name == value || printed(name) == value;
        let found = (0..).zip(names.clone()).filter(|(_, name)| is_it(name));
        let before = numbers.len();
        numbers.extend(found.map(|(number, _)| number));
        if numbers.len() == before {
            return Err(unknown(key, value, names));
        }
    }
    Ok(numbers)
}

fn unknown<'a>(key: &str, value: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    format!("no {key} '{value}'; {}", suggestion(value, known))
}

impl Condition {
    fn meets(&self, event: &Event<'_>) -> bool {
        let agent = event.packet.from.0;
        match self {
            Condition::Event(names) => {
                let dropped = matches!(event.kind, EventKind::Dropped(_) | EventKind::Overrun);
                (dropped && names.contains(&"drop")) || names.contains(&name(event.kind))
            }
            Condition::Kind(kinds) => kinds.contains(&event.packet.content.kind()),
            Condition::Protocol(names) => names.contains(&event.packet.content.protocol()),
            Condition::Flow(flows) => flows.contains(&(agent / 2)),
            Condition::Direction(directions) => directions.contains(&(agent % 2)),
            Condition::Link(links) => event.link.is_some_and(|link| links.contains(&link)),
            Condition::Node(nodes) => nodes.contains(&event.node),
            Condition::From(from) => event.at >= *from,
            Condition::To(to) => event.at < *to,
        }
    }
}

#[cfg(test)]
mod tests {
    use farhaul_link::Cause;

    use super::*;
    use crate::network::LinkId;
    use crate::packet::{Content, Packet};
    use crate::scenario::Plan;
    use crate::simulation::AgentId;

    fn scenario() -> Scenario {
        let text = "duration = \"1s\"\n[[link]]\nfrom = \"a\"\nto = \"b\"\nname = \"the link\"\n\
                    rate = \"1M\"\n[[flow]]\nfrom = \"a\"\nto = \"b\"\ncount = 2\nname = \"one\"";
        Plan::parse(text, &[], None).unwrap().point(0).unwrap().scenario
    }

    #[test]
    fn conditions() {
        let scenario = scenario();
        let event = |flow: u32, kind, at, test: &str| {
            let (from, to) = (AgentId(2 * flow), AgentId(2 * flow + 1));
            let packet = &Packet { from, to, content: Content::Filler { bytes: 100, number: 0 } };
            let (at, link, node) = (Time::from_millis(at), Some(LinkId(0)), NodeId(0));
            Filter::parse(test, &scenario).unwrap().passes(&Event { at, kind, link, node, packet })
        };
        let drop = EventKind::Dropped(Cause::Loss);
        let yes = ["", " ", "event=drop", "event=drop-loss|send", "flow=one-2", "kind=data|filler"];
        let more = ["link=the_link", "link=the link , node=a", "from=5ms,to=6ms", "direction=>"];
        for filter in yes.into_iter().chain(more) {
            assert!(event(1, drop, 5, filter), "{filter}");
        }
        let no = ["event=drop-full", "event=send", "flow=one-1", "kind=data", "link=the link-back"];
        let more = ["node=b", "from=6ms", "to=5ms", "direction=back", "flow=one-2,kind=ack"];
        for filter in no.into_iter().chain(more) {
            assert!(!event(1, drop, 5, filter), "{filter}");
        }
    }

    #[test]
    fn errors_name_what_there_is() {
        let scenario = scenario();
        let error = |text| Filter::parse(text, &scenario).unwrap_err().to_string();
        assert_eq!(error("flwo=one-1"), "no key 'flwo'; did you mean 'flow'?");
        assert_eq!(
            error("colour=red"),
            "no key 'colour'; there are event, kind, protocol, flow, direction, link, node, from, \
             to"
        );
        assert_eq!(error("flow=tcp"), "no flow 'tcp'; there are one-1, one-2");
        assert_eq!(error("event=dorp"), "no event 'dorp'; did you mean 'drop'?");
        assert_eq!(error("kind=data|shutdwn"), "no kind 'shutdwn'; did you mean 'shutdown'?");
        assert_eq!(error("direction=up"), "no direction 'up'; there are forward, back");
        assert!(error("drop").starts_with("'drop' is no condition: write key=value; the keys are"));
        assert!(error("from=2").starts_with("from: "), "{}", error("from=2"));
        assert!(error("flow=one-1,").contains("no condition"));
        assert_eq!(
            error("from=3s,to=2s"),
            "nothing is shown from 3.000000000s on and before 2.000000000s"
        );
        assert!(error("to=2s,node=a,from=2s").starts_with("nothing is shown"));
        assert!(error("to=0s").starts_with("nothing is shown"));
    }
}
