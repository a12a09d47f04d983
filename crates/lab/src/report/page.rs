//! Outcomes as one page that needs nothing else.

use std::fmt::Write as _;

use super::{Check, Outcome, Verdict};
use crate::number::significant;
use crate::xml::escape;

const STYLE: &str = include_str!("page.css");

/// An HTML page that stands alone: pictures and style are inside, there are no scripts. Begins with
/// an index of all outcomes and their verdicts; then a section for each.
pub fn page(title: &str, outcomes: &[Outcome]) -> String {
    let title = escape(title);
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
    );
    index(&mut out, outcomes);
    for (number, outcome) in outcomes.iter().enumerate() {
        section(&mut out, number, outcome);
    }
    out.push_str("</body>\n</html>\n");
    out
}

// Writing to a string cannot fail, so what `write!` returns is ignored throughout.

fn index(out: &mut String, outcomes: &[Outcome]) {
    let checks = || outcomes.iter().flat_map(|outcome| &outcome.checks);
    let count = |verdict| checks().filter(|check| check.verdict == verdict).count();
    let _ = writeln!(
        out,
        "<p>{}, {}: {} pass, {} explained, {} fail.</p>",
        counted(outcomes.len(), "experiment"),
        counted(checks().count(), "check"),
        count(Verdict::Pass),
        count(Verdict::Explained),
        count(Verdict::Fail)
    );
    out.push_str(
        "<div class=\"wide\"><table class=\"index\">\n<thead><tr><th scope=\"col\">Id</th>\
         <th scope=\"col\">Source</th><th scope=\"col\">Title</th><th scope=\"col\" class=\"number\">Checks</th>\
         <th scope=\"col\">Verdict</th></tr></thead>\n<tbody>\n",
    );
    for (number, outcome) in outcomes.iter().enumerate() {
        let passed = |check: &&Check| check.verdict == Verdict::Pass;
        let passed = outcome.checks.iter().filter(passed).count();
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td>{}</td><td><a href=\"#{}\">{}</a></td>\
             <td class=\"number\">{passed} of {}</td>{}</tr>",
            escape(&outcome.id),
            escape(&outcome.source),
            anchor(number),
            escape(heading(outcome)),
            outcome.checks.len(),
            verdict(outcome.verdict())
        );
    }
    out.push_str("</tbody>\n</table></div>\n");
}

fn section(out: &mut String, number: usize, outcome: &Outcome) {
    let _ = writeln!(
        out,
        "<section id=\"{}\">\n<h2>{}</h2>\n<p class=\"source\">{}: {}{}</p>",
        anchor(number),
        escape(heading(outcome)),
        escape(&outcome.id),
        escape(&outcome.source),
        outcome.verdict().map_or(String::new(), |verdict| format!(", {}", word(verdict)))
    );
    paragraph(out, &outcome.shows);
    checks(out, &outcome.checks);
    for figure in &outcome.charts {
        let _ = writeln!(out, "<figure>\n{}</figure>", figure.svg());
    }
    for table in &outcome.tables {
        let _ = writeln!(out, "<div class=\"wide\">{}</div>", table.html());
    }
    outcome.notes.iter().for_each(|note| paragraph(out, note));
    let mut again = Vec::new();
    if !outcome.command.is_empty() {
        again.push(format!("<code>{}</code>", escape(&outcome.command)));
    }
    if outcome.seconds > 0.0 {
        again.push(format!("took {} s", significant(outcome.seconds, 3)));
    }
    if !outcome.version.is_empty() {
        again.push(format!("with farhaul {}", escape(&outcome.version)));
    }
    if !again.is_empty() {
        let _ = writeln!(out, "<p class=\"again\">{}</p>", again.join(" "));
    }
    out.push_str("</section>\n");
}

fn checks(out: &mut String, checks: &[Check]) {
    if checks.is_empty() {
        return;
    }
    out.push_str("<div class=\"wide\"><table class=\"checks\">\n<thead><tr>");
    for heading in ["What", "Published", "Measured", "Tolerance", "Verdict", "Reason"] {
        let _ = write!(out, "<th scope=\"col\">{heading}</th>");
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for check in checks {
        out.push_str("<tr>");
        for text in [&check.what, &check.published, &check.measured, &check.tolerance] {
            let _ = write!(out, "<td>{}</td>", escape(text));
        }
        let _ = writeln!(
            out,
            "{}<td>{}</td></tr>",
            verdict(Some(check.verdict)),
            escape(&check.reason)
        );
    }
    out.push_str("</tbody>\n</table></div>\n");
}

fn paragraph(out: &mut String, text: &str) {
    if !text.is_empty() {
        let _ = writeln!(out, "<p>{}</p>", escape(text));
    }
}

/// A table's cell, with words as well as a colour.
fn verdict(verdict: Option<Verdict>) -> String {
    let Some(verdict) = verdict else { return "<td>not checked</td>".into() };
    format!("<td>{}</td>", word(verdict))
}

fn word(verdict: Verdict) -> String {
    let text = verdict.shown();
    format!("<span class=\"verdict {}\">{text}</span>", text.to_ascii_lowercase())
}

fn heading(outcome: &Outcome) -> &str {
    if outcome.title.is_empty() { &outcome.id } else { &outcome.title }
}

/// By number, as names may be given twice.
fn anchor(number: usize) -> String {
    format!("outcome-{}", number + 1)
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::outcome;

    #[test]
    fn a_page_is_whole_and_well_formed() {
        let hostile = "<script>alert('x')</script> & \"";
        let other = Outcome {
            id: "other".into(),
            title: hostile.into(),
            source: hostile.into(),
            shows: hostile.into(),
            notes: vec![hostile.into()],
            command: hostile.into(),
            checks: vec![Check { what: hostile.into(), ..Check::default() }],
            ..Outcome::default()
        };
        let html = page(hostile, &[outcome(), other]);
        let body = html.strip_prefix("<!DOCTYPE html>\n").unwrap();
        let tree = roxmltree::Document::parse(body).unwrap();
        let named = |name: &'static str| {
            tree.descendants().filter(move |node| node.tag_name().name() == name)
        };
        assert_eq!(named("script").count(), 0);
        assert_eq!(named("svg").count(), 3);
        assert_eq!(named("section").count(), 2);
        for link in named("a") {
            let id = link.attribute("href").unwrap().strip_prefix('#').unwrap();
            assert!(tree.descendants().any(|node| node.attribute("id") == Some(id)), "{id}");
        }
        assert!(!html.contains("src=") && !html.contains("url("), "needs something else");
        assert!(html.contains("2 experiments, 3 checks: 1 pass, 1 explained, 1 fail."));
        assert!(html.contains("<tr><td>figure-4-2</td><td>gu05 Figure 4-2</td>"));
        let explained = "<span class=\"verdict explained\">explained</span>";
        assert!(html.contains(&format!("figure-4-2: gu05 Figure 4-2, {explained}</p>")));
        assert!(html.contains("<td><span class=\"verdict fail\">FAIL</span></td>"));
        // What is published and what is measured stand side by side, then how far they may be
        // apart, whether they are, and why.
        assert!(html.contains(&format!(
            "<td>0.1 %</td><td>0.2 %</td><td></td><td>{explained}</td><td>another queue</td>"
        )));
        assert!(html.contains("<td>&gt; 0.99</td><td>0.997</td>"));
        assert!(
            html.contains("<code>farhaul lab run figure-4-2</code> took 12.5 s with farhaul 1.2.3")
        );
    }
}
