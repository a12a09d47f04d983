//! `[[link]]`: one link, as a rule in both directions.

use core::time::Duration;

use farhaul_base::names::suggestion;
use farhaul_link::{DeliveryTrace, LinkConfig, Profile, QueueConfig, Rate};

use super::LinkSpec;
use super::flow_table::bytes;
use super::reader::{Item, Scalar, Section};
use super::tables::Nodes;

/// Reads a link and, unless `both = false`, its other direction. `before`: links read so far.
pub(super) fn read(
    section: &Section<'_>,
    nodes: &mut Nodes,
    before: usize,
) -> Option<Vec<LinkSpec>> {
    let from = section.required("from");
    let to = section.required("to");
    let name = section.text("name").map(|name| name.text);
    let both = section.value::<bool>("both").unwrap_or(true);
    let profile: Option<Profile> = section.value("profile");
    let start = LinkSpec {
        name: String::new(),
        from: 0,
        to: 0,
        config: LinkConfig::default(),
        queue: "bdp".into(),
    };
    let forward = direction(section, start, profile, true);
    let mut backward = forward.clone();
    match section.item("reverse") {
        None => {}
        Some(Item::Table(table, span)) => {
            let reverse = section.reader().section("reverse", table, span);
            backward = direction(&reverse, backward, profile, false);
            reverse.finish();
            if !both {
                let message = "'reverse' describes a direction that 'both = false' leaves out";
                section.reader().problem(section.span(), message);
            }
        }
        Some(Item::Scalar(scalar)) => {
            let message = "'reverse' is a table of what differs: reverse = { rate = \"1M\" }";
            section.reader().problem(&scalar.span, message);
        }
        Some(Item::List(_, span)) => section.reader().problem(&span, "'reverse' is a table"),
    }
    let (from, to) = (from?, to?);
    if from.text == to.text {
        section.reader().problem(&to.span, "a link joins two different nodes");
        return None;
    }
    let (from, to) = (nodes.number(&from.text), nodes.number(&to.text));
    let name = name.unwrap_or_else(|| format!("link{}", before + 1));
    let mut links = vec![LinkSpec { name: name.clone(), from, to, ..forward }];
    if both {
        links.push(LinkSpec { name: format!("{name}-back"), from: to, to: from, ..backward });
    }
    Some(links)
}

/// What one direction does to packets; `base` where the table says nothing, and `profile` where that does not.
fn direction(
    section: &Section<'_>,
    base: LinkSpec,
    profile: Option<Profile>,
    rate_required: bool,
) -> LinkSpec {
    let mut spec = base;
    let config = &mut spec.config;
    let traced = read_trace(section);
    let needs_rate = rate_required && section.raw("trace").is_none();
    let rate = if needs_rate { section.required("rate") } else { section.text("rate") };
    if let (Some(scalar), Some(_)) = (&rate, section.raw("trace")) {
        section.reader().problem(&scalar.span, "a trace is the rate: leave one of them out");
    } else if let Some(scalar) = rate {
        config.trace = None;
        config.rate = match scalar.text.as_str() {
            "unlimited" => None,
            _ => section.parse("rate", &scalar, str::parse::<Rate>).or(config.rate),
        };
    }
    if let Some(trace) = traced {
        (config.rate, config.trace) = (None, Some(trace));
    }
    if let Some(changes) = joined(section, "rate_changes") {
        let read = section.parse("rate_changes", &changes, str::parse);
        config.rate_changes = read.unwrap_or_default();
        if config.trace.is_some() && !config.rate_changes.is_empty() {
            section.reader().problem(&changes.span, "a trace is the rate, which has no changes");
        }
    }
    if let Some(changes) = joined(section, "delay_changes") {
        let read = section.parse("delay_changes", &changes, str::parse);
        config.delay_changes = read.unwrap_or_default();
    }
    if let Some(policer) = section.text("policer") {
        config.policer = match policer.text.as_str() {
            "none" => None,
            _ => section.parse("policer", &policer, str::parse),
        };
    }
    config.delay = section.duration("delay").unwrap_or(config.delay);
    config.jitter = section.value("jitter").unwrap_or(config.jitter);
    config.slots = match section.text("slots") {
        None => config.slots,
        Some(slots) if slots.text == "none" => None,
        Some(slots) => section.parse("slots", &slots, str::parse),
    };
    config.reorder = section.value("reorder").or(config.reorder);
    config.duplicate = section.value("duplicate").unwrap_or(config.duplicate);
    config.corrupt = section.value("corrupt").unwrap_or(config.corrupt);
    let blackouts = section.list("blackouts");
    if !blackouts.is_empty() {
        let parse = |scalar| section.parse("blackouts", &scalar, str::parse);
        config.blackouts = blackouts.into_iter().filter_map(parse).collect();
    }
    if let Some(model) = text_or_table(section, "loss", LOSSES) {
        config.loss = section.parse("loss", &model, str::parse).unwrap_or(config.loss.clone());
    }
    if let Some(profile) = profile {
        profile.apply(config);
    }
    if let Some(model) = text_or_table(section, "queue", QUEUES) {
        // The round trip that `bdp` refers to is known later; what else is wrong shows already.
        let parse = |text: &str| QueueConfig::parse(text, Duration::from_secs(1));
        if section.parse("queue", &model, parse).is_some() {
            spec.queue = model.text;
        }
    }
    spec
}

/// A list of changes as the text that has commas between them; none if the key is not there.
fn joined(section: &Section<'_>, key: &'static str) -> Option<Scalar> {
    let changes = section.list(key);
    let span = changes.first()?.span.clone();
    let texts: Vec<&str> = changes.iter().map(|scalar| scalar.text.as_str()).collect();
    Some(Scalar { text: texts.join(","), span })
}

/// `trace`: a list of milliseconds, or the name of a file of them.
fn read_trace(section: &Section<'_>) -> Option<DeliveryTrace> {
    let (text, span) = match section.item("trace")? {
        Item::Scalar(name) => match section.reader().file(&name.text) {
            Ok(text) => (text.to_string(), name.span),
            Err(error) => {
                section.reader().problem(&name.span, format!("trace: {error}"));
                return None;
            }
        },
        Item::List(stamps, span) => {
            let texts: Vec<&str> = stamps.iter().map(|stamp| stamp.text.as_str()).collect();
            (texts.join(" "), span)
        }
        Item::Table(_, span) => {
            section
                .reader()
                .problem(&span, "'trace' is a list of milliseconds or the name of a file");
            return None;
        }
    };
    match text.parse() {
        Ok(trace) => Some(trace),
        Err(error) => {
            section.reader().problem(&span, format!("trace: {error}"));
            None
        }
    }
}

/// The kinds of a model, each with the keys that its table has beside `kind`; the first is meant
/// where there is none.
type Kinds = &'static [(&'static str, &'static [&'static str])];

const QUEUES: Kinds = &[
    ("droptail", &["packets", "bytes", "limit"]),
    (
        "red",
        &[
            "packets", "bytes", "limit", "min", "max", "weight", "maxp", "gentle", "wait", "mean",
            "target",
        ],
    ),
    ("codel", &["packets", "bytes", "limit", "target", "interval"]),
    ("pie", &["packets", "bytes", "limit", "target"]),
    ("fq_codel", &["packets", "bytes", "limit", "flows", "quantum", "target", "interval"]),
    ("dualpi2", &["packets", "bytes", "limit", "target", "coupling"]),
];

const LOSSES: Kinds = &[
    ("uniform", &["p"]),
    ("none", &[]),
    ("ber", &["p"]),
    ("ge", &["p", "r", "good", "bad", "loss", "burst"]),
    ("every", &["n"]),
    ("gauss", &["mean", "sd"]),
    ("poisson", &["mean"]),
    ("list", &["packets"]),
];

/// A model as its text form: `0.1%` or `ge:p=1%,r=30%` as they stand, and the table
/// `{ kind = "ge", p = "1%", r = "30%" }` as `ge:p=1%,r=30%`.
fn text_or_table(section: &Section<'_>, key: &'static str, kinds: Kinds) -> Option<Scalar> {
    let reader = section.reader();
    let (table, span) = match section.item(key)? {
        Item::Scalar(scalar) => return Some(scalar),
        Item::List(_, span) => {
            reader.problem(&span, format!("'{key}' is a text or a table"));
            return None;
        }
        Item::Table(table, span) => (table, span),
    };
    let kind = match table.get("kind") {
        Some(kind) => reader.scalar(kind)?,
        None => Scalar { text: kinds[0].0.to_owned(), span: span.clone() },
    };
    let Some((_, keys)) = kinds.iter().find(|(name, _)| *name == kind.text) else {
        let hint = suggestion(&kind.text, kinds.iter().map(|(name, _)| *name));
        reader.problem(&kind.span, format!("there is no {key} of kind '{}'; {hint}", kind.text));
        return None;
    };
    let (kind, mut right) = (kind.text, true);
    let mut fields = Vec::new();
    for (name, value) in table.iter().filter(|(name, _)| name.get_ref() != "kind") {
        let name_span = name.span();
        let name = name.get_ref().as_ref();
        if !keys.contains(&name) {
            let hint = suggestion(name, ["kind"].into_iter().chain(keys.iter().copied()));
            let message = format!("{key} of kind '{kind}' has no key '{name}'; {hint}");
            reader.problem(&name_span, message);
            right = false;
            continue;
        }
        let Some(value) = reader.scalar(value) else {
            right = false;
            continue;
        };
        match name {
            "packets" if key == "queue" => fields.push(("limit", format!("{}p", value.text))),
            // Of RED `bytes` may also say what it counts.
            "bytes" if kind != "red" || !matches!(&*value.text, "true" | "false") => {
                match section.parse("bytes", &value, bytes) {
                    Some(bytes) => fields.push(("limit", format!("{bytes}B"))),
                    None => right = false,
                }
            }
            name => fields.push((name, value.text)),
        }
    }
    if !right {
        return None;
    }
    match model_text(key, &kind, &fields) {
        Ok(text) => Some(Scalar { text, span }),
        Err(message) => {
            reader.problem(&span, message);
            None
        }
    }
}

/// The text form of a model with these parameters, or which of them it needs.
fn model_text(key: &str, kind: &str, fields: &[(&str, String)]) -> Result<String, String> {
    let needs = |names: &str| Err(format!("{key} of kind '{kind}' needs {names}"));
    match (key, kind, fields) {
        // These texts have no name, or a parameter without one.
        ("queue", "droptail", []) => Ok("bdp".into()),
        ("queue", "droptail", [(_, value)]) => Ok(value.clone()),
        ("queue", "droptail", _) => needs("only one of 'packets', 'bytes' and 'limit'"),
        ("loss", "uniform", [(_, value)]) => Ok(value.clone()),
        ("loss", "ber" | "every" | "list", [(_, value)]) => Ok(format!("{kind}:{value}")),
        ("loss", "uniform" | "ber", _) => needs("'p'"),
        ("loss", "every", _) => needs("'n'"),
        ("loss", "list", _) => needs("'packets'"),
        (_, _, []) => Ok(kind.into()),
        // Whether all are there that it needs is for the text form to say.
        _ => {
            let fields: Vec<_> = fields.iter().map(|(k, v)| format!("{k}={v}")).collect();
            Ok(format!("{kind}:{}", fields.join(",")))
        }
    }
}
