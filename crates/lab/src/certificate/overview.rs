//! Certificates of several laws side by side.

use super::{Certificate, Matrix, Scored};
use crate::chart::{Axis, Figure, Grid};
use crate::experiment::VERSION;
use crate::number::fixed;
use crate::report::Outcome;
use crate::table::{Cell, Column, Table};

const OVERALL: &str = "overall";
/// Laws beside each other in a map, which leave their names room.
const SIDE_BY_SIDE: usize = 8;

/// What the battery has shown of these laws: maps of scores and of pairs, a table of scores and measurements,
/// items below each other and laws beside each other, and one of pairs.
pub fn overview(certificates: &[Certificate]) -> Outcome {
    let items = items(certificates);
    let quick = certificates.iter().any(|certificate| certificate.quick);
    let mut notes: Vec<String> =
        items.iter().map(|item| format!("{}: {}.", item.name, item.what)).collect();
    if quick {
        notes.push(
            "The reduced battery: shorter runs, and no gigabit link for a flow alone.".into(),
        );
    }
    let laws: String =
        certificates.iter().map(|certificate| format!(" --cc {}", certificate.law)).collect();
    // Certificates of several seeds are no comparison; those that are read again may be.
    let seed = certificates.first().map(|first| first.seed);
    let seed = seed.filter(|seed| certificates.iter().all(|one| one.seed == *seed));
    let seed = seed.map(|seed| format!(" --seed {seed}")).unwrap_or_default();
    let pairs = Matrix::of(certificates);
    let scores = certificates.chunks(SIDE_BY_SIDE).map(|part| map(part, &items));
    let charts = scores.chain(pairs.maps(SIDE_BY_SIDE)).collect();
    let mut tables = vec![table(certificates, &items)];
    if !pairs.is_empty() {
        tables.push(pairs.table());
    }
    Outcome {
        id: "certificates".into(),
        source: "the battery of `lab certify`".into(),
        title: "Certificates of the control laws".into(),
        shows: "Each law through one battery: what was measured, and points from 0 to 100 \
                between the worst and the best of each item. A measurement that never came to be is \
                worth nothing. Gates are what a law owes to others on a network: one that misses any has no overall \
                score, which is the mean of families of drawn scenarios and of pairs with other laws. Fixed plans are a \
                reference and do not count. No law can have all points: what is gained in one item is \
                often lost in another."
            .into(),
        charts,
        tables,
        notes,
        quick,
        command: format!("farhaul lab certify{laws}{seed}{}", if quick { " --quick" } else { "" }),
        version: VERSION.into(),
        ..Outcome::default()
    }
}

/// All items of the certificates, each once.
fn items(certificates: &[Certificate]) -> Vec<&Scored> {
    let mut items: Vec<&Scored> = Vec::new();
    for item in certificates.iter().flat_map(|certificate| &certificate.items) {
        if items.iter().all(|known| known.name != item.name) {
            items.push(item);
        }
    }
    items
}

fn item<'a>(certificate: &'a Certificate, name: &str) -> Option<&'a Scored> {
    certificate.items.iter().find(|item| item.name == name)
}

fn map(certificates: &[Certificate], items: &[&Scored]) -> Figure {
    // Upwards, so the first is the last.
    let mut names: Vec<String> = items.iter().map(|item| item.name.clone()).collect();
    names.push(OVERALL.into());
    names.reverse();
    let cell = |name: &str, certificate: &Certificate| match name {
        OVERALL => certificate.means.overall,
        name => item(certificate, name).map(|item| item.score),
    };
    let row = |name: &String| certificates.iter().map(|one| cell(name, one)).collect();
    let places = |count: usize| (0..count).map(|place| place as f64).collect();
    Figure::from(Grid {
        title: "Scores of the control laws".into(),
        cells: names.iter().map(row).collect(),
        xs: places(certificates.len()),
        ys: places(names.len()),
        x: Axis::named(certificates.iter().map(|certificate| certificate.law.clone()).collect()),
        y: Axis::named(names),
        value: Axis::linear("score", "").between(0.0, 100.0),
        ..Grid::default()
    })
}

fn table(certificates: &[Certificate], items: &[&Scored]) -> Table {
    let row = |name: &str, cell: &dyn Fn(&Certificate) -> Cell| {
        std::iter::once(name.into()).chain(certificates.iter().map(cell)).collect::<Vec<Cell>>()
    };
    let of = |name: &str| {
        row(name, &|certificate| {
            let shown = |item: &Scored| format!("{} ({})", fixed(item.score, 0), item.shown());
            item(certificate, name).map(shown).into()
        })
    };
    let mut rows: Vec<Vec<Cell>> = items.iter().map(|item| of(&item.name)).collect();
    rows.push(row(OVERALL, &|certificate| match certificate.means.overall {
        Some(overall) => fixed(overall, 0).into(),
        None => format!("none ({})", certificate.why_none()).into(),
    }));
    let laws = certificates.iter().map(|certificate| &*certificate.law);
    Table {
        title: "Scores, and what was measured".into(),
        columns: std::iter::once("item").chain(laws).map(|name| Column::new(name, "")).collect(),
        rows,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::certificate;
    use super::*;

    #[test]
    fn laws_stand_side_by_side() {
        let mut other = certificate("blast:rate=5M");
        other.items.remove(0);
        let outcome = overview(&[certificate("udt"), other]);
        assert_eq!((&*outcome.id, outcome.quick, outcome.verdict()), ("certificates", false, None));
        assert_eq!(
            outcome.tables[0].text(),
            "Scores, and what was measured\n\n\
             item      udt            blast:rate=5M\n\
             start     100 (0.333 s)  -\n\
             recovery  0 (never)      0 (never)\n\
             fairness  50 (0.5)       50 (0.5)\n\
             overall   50             50\n"
        );
        let Figure::Grid(map) = &outcome.charts[0] else { panic!("no map") };
        assert_eq!(map.y.names, ["overall", "fairness", "recovery", "start"]);
        assert_eq!(
            (map.cell(0, 3), map.cell(1, 3), map.cell(1, 0)),
            (Some(99.6), None, Some(49.9))
        );
        assert!(outcome.notes.contains(&"start: what start means.".to_owned()));
    }

    #[test]
    fn many_laws_have_several_maps() {
        let many: Vec<Certificate> = (0..9).map(|n| certificate(&format!("law{n}"))).collect();
        let outcome = overview(&many);
        assert_eq!((outcome.charts.len(), outcome.tables.len()), (2, 1));
        let Figure::Grid(last) = &outcome.charts[1] else { panic!("no map") };
        assert_eq!(last.x.names, ["law8"]);
    }

    #[test]
    fn one_reduced_certificate_makes_it_reduced() {
        let quick = Certificate { quick: true, ..certificate("udt") };
        let outcome = overview(&[quick, certificate("reno")]);
        assert!(outcome.quick);
        let command = "farhaul lab certify --cc udt --cc reno --seed 7 --quick";
        assert_eq!(outcome.command, command);
    }
}
