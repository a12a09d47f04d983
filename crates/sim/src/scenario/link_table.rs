//! `[[link]]`: one link, as a rule in both directions.

use core::time::Duration;

use farhaul_link::{LinkConfig, QueueConfig, Rate};

use super::LinkSpec;
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
    let start = LinkSpec {
        name: String::new(),
        from: 0,
        to: 0,
        config: LinkConfig::default(),
        queue: "bdp".into(),
    };
    let forward = direction(section, start, true);
    let mut backward = forward.clone();
    match section.item("reverse") {
        None => {}
        Some(Item::Table(table, span)) => {
            let reverse = section.reader().section("reverse", table, span);
            backward = direction(&reverse, backward, false);
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

/// What one direction does to packets; `base` where the table says nothing.
fn direction(section: &Section<'_>, base: LinkSpec, rate_required: bool) -> LinkSpec {
    let mut spec = base;
    let config = &mut spec.config;
    let rate = if rate_required { section.required("rate") } else { section.text("rate") };
    if let Some(scalar) = rate {
        config.rate = match scalar.text.as_str() {
            "unlimited" => None,
            _ => section.parse("rate", &scalar, str::parse::<Rate>).or(config.rate),
        };
    }
    let changes = section.list("rate_changes");
    if !changes.is_empty() {
        let joined = changes.iter().map(|scalar| scalar.text.as_str()).collect::<Vec<_>>();
        let scalar = Scalar { text: joined.join(","), span: changes[0].span.clone() };
        let changes = section.parse("rate_changes", &scalar, str::parse);
        config.rate_changes = changes.unwrap_or_default();
    }
    config.delay = section.duration("delay").unwrap_or(config.delay);
    config.jitter = section.value("jitter").unwrap_or(config.jitter);
    config.reorder = section.value("reorder").or(config.reorder);
    config.duplicate = section.value("duplicate").unwrap_or(config.duplicate);
    config.corrupt = section.value("corrupt").unwrap_or(config.corrupt);
    let blackouts = section.list("blackouts");
    if !blackouts.is_empty() {
        let parse = |scalar| section.parse("blackouts", &scalar, str::parse);
        config.blackouts = blackouts.into_iter().filter_map(parse).collect();
    }
    if let Some(model) = text_or_table(section, "loss", "uniform") {
        config.loss = section.parse("loss", &model, str::parse).unwrap_or(config.loss.clone());
    }
    if let Some(model) = text_or_table(section, "queue", "droptail") {
        // The round trip that `bdp` refers to is known later; what else is wrong shows already.
        let parse = |text: &str| QueueConfig::parse(text, Duration::from_secs(1));
        if section.parse("queue", &model, parse).is_some() {
            spec.queue = model.text;
        }
    }
    spec
}

/// A model as its text form: `0.1%` or `ge:p=1%,r=30%` as they stand, and the table
/// `{ kind = "ge", p = "1%", r = "30%" }` as `ge:p=1%,r=30%`.
fn text_or_table(section: &Section<'_>, key: &'static str, default: &str) -> Option<Scalar> {
    let (table, span) = match section.item(key)? {
        Item::Scalar(scalar) => return Some(scalar),
        Item::List(_, span) => {
            section.reader().problem(&span, format!("'{key}' is a text or a table"));
            return None;
        }
        Item::Table(table, span) => (table, span),
    };
    let mut kind = default.to_owned();
    let mut fields = Vec::new();
    for (name, value) in table.iter() {
        let value = section.reader().scalar(value)?.text;
        match name.get_ref().as_ref() {
            "kind" => kind = value,
            "packets" if key == "queue" => fields.push(("limit", format!("{value}p"))),
            // Of RED `bytes` says what it counts.
            "bytes" if key == "queue" && value.parse::<u64>().is_ok() => {
                fields.push(("limit", format!("{value}B")));
            }
            name => fields.push((name, value)),
        }
    }
    match model_text(key, &kind, &fields) {
        Ok(text) => Some(Scalar { text, span }),
        Err(message) => {
            section.reader().problem(&span, message);
            None
        }
    }
}

/// The text form of a model with these parameters, or what parameters it has.
fn model_text(key: &str, kind: &str, fields: &[(&str, String)]) -> Result<String, String> {
    let only = |names: &str| Err(format!("{key} of kind '{kind}' takes {names} and nothing else"));
    match (key, kind, fields) {
        // These texts have no name, or a parameter without one.
        ("queue", "droptail", []) => Ok("bdp".into()),
        ("queue", "droptail", [("limit", value)]) => Ok(value.clone()),
        ("queue", "droptail", _) => only("one of 'packets', 'bytes' and 'limit'"),
        ("loss", "uniform", [("p", value)]) => Ok(value.clone()),
        ("loss", "ber", [("p", value)])
        | ("loss", "every", [("n", value)])
        | ("loss", "list", [("packets", value)]) => Ok(format!("{kind}:{value}")),
        ("loss", "uniform" | "ber", _) => only("'p'"),
        ("loss", "every", _) => only("'n'"),
        ("loss", "list", _) => only("'packets'"),
        (_, _, []) => Ok(kind.into()),
        // Whether these have such a parameter is for their text form to say.
        _ => {
            let fields: Vec<_> = fields.iter().map(|(k, v)| format!("{k}={v}")).collect();
            Ok(format!("{kind}:{}", fields.join(",")))
        }
    }
}
