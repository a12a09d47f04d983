//! What laws leave each other: the pairs of several certificates.

use serde::Serialize;

use super::{Certificate, PAIR_PREFIX, Part};
use crate::chart::{Axis, Figure, Grid};
use crate::number::fixed;
use crate::table::{Column, Table};

/// What the worse off of two flows has, for each law beside each other one.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Matrix {
    /// The laws that were certified.
    pub laws: Vec<String>,
    /// What each was beside: TCPs and laws, in the order of the battery.
    pub beside: Vec<String>,
    /// A row for each of `beside`, with a value for each of `laws`: the lesser share of the two, percent of what is
    /// fair, mean of the paths that were drawn. None where a certificate has no such pair.
    pub lesser_share: Vec<Vec<Option<f64>>>,
}

impl Matrix {
    /// The pairs of these certificates.
    pub fn of(certificates: &[Certificate]) -> Matrix {
        let pairs = |certificate: &Certificate| -> Vec<(String, f64)> {
            let pairs = certificate.items.iter().filter(|item| item.part == Part::Pair);
            let named = pairs.map(|item| {
                let name = item.name.strip_prefix(PAIR_PREFIX).unwrap_or(&item.name);
                (name.to_owned(), item.score)
            });
            named.collect()
        };
        let all: Vec<_> = certificates.iter().map(pairs).collect();
        let mut beside: Vec<String> = Vec::new();
        for (name, _) in all.iter().flatten() {
            if !beside.contains(name) {
                beside.push(name.clone());
            }
        }
        let share = |name: &String, pairs: &Vec<(String, f64)>| {
            pairs.iter().find(|(known, _)| known == name).map(|(_, share)| *share)
        };
        let row = |name: &String| all.iter().map(|pairs| share(name, pairs)).collect();
        Matrix {
            laws: certificates.iter().map(|certificate| certificate.law.clone()).collect(),
            lesser_share: beside.iter().map(row).collect(),
            beside,
        }
    }

    /// Whether there are no pairs.
    pub fn is_empty(&self) -> bool {
        self.beside.is_empty()
    }

    /// Laws beside each other, what they were paired with below each other.
    pub fn table(&self) -> Table {
        let row = |(name, shares): (&String, &Vec<Option<f64>>)| {
            let shares = shares.iter().map(|share| share.map(|share| fixed(share, 0)).into());
            std::iter::once(name.as_str().into()).chain(shares).collect()
        };
        let laws = self.laws.iter().map(String::as_str);
        Table {
            title: "Pairs: the lesser share of two flows, percent of what is fair".into(),
            columns: std::iter::once("beside").chain(laws).map(|n| Column::new(n, "")).collect(),
            rows: self.beside.iter().zip(&self.lesser_share).map(row).collect(),
        }
    }

    /// The same in colours, of so many laws beside each other at most.
    pub fn maps(&self, side_by_side: usize) -> Vec<Figure> {
        let places = |count: usize| (0..count).map(|place| place as f64).collect();
        let map = |(part, laws): (usize, &[String])| {
            let from = part * side_by_side;
            let cells = |shares: &Vec<Option<f64>>| shares[from..from + laws.len()].to_vec();
            Figure::from(Grid {
                title: "Pairs: the lesser share of two flows, percent of what is fair".into(),
                // Upwards, so the first is the last.
                cells: self.lesser_share.iter().rev().map(cells).collect(),
                xs: places(laws.len()),
                ys: places(self.beside.len()),
                x: Axis::named(laws.to_vec()),
                y: Axis::named(self.beside.iter().rev().cloned().collect()),
                value: Axis::linear("lesser share", "%").between(0.0, 100.0),
                ..Grid::default()
            })
        };
        match self.is_empty() {
            true => Vec::new(),
            false => self.laws.chunks(side_by_side).enumerate().map(map).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Scored;
    use super::super::tests::certificate;
    use super::*;

    fn paired(law: &str, pairs: &[(&str, f64)]) -> Certificate {
        let mut certificate = certificate(law);
        certificate.items.extend(pairs.iter().map(|(other, score)| Scored {
            part: Part::Pair,
            name: format!("{PAIR_PREFIX}{other}"),
            score: *score,
            ..Scored::default()
        }));
        certificate
    }

    fn matrix() -> Matrix {
        let udt = paired("udt", &[("tcp cubic", 40.4), ("udt", 97.0), ("vegas", 2.6)]);
        // A certificate from when there was no law `vegas`.
        let reno = paired("reno", &[("tcp cubic", 81.0), ("udt", 12.0)]);
        Matrix::of(&[udt, reno])
    }

    #[test]
    fn each_law_stands_beside_each_other() {
        let matrix = matrix();
        assert_eq!(matrix.laws, ["udt", "reno"]);
        assert_eq!(matrix.beside, ["tcp cubic", "udt", "vegas"]);
        let shares =
            [[Some(40.4), Some(81.0)], [Some(97.0), Some(12.0)], [Some(2.6), None]].map(Vec::from);
        assert_eq!(matrix.lesser_share, shares);
        let csv = matrix.table().csv();
        assert!(csv.ends_with("\r\ntcp cubic,40,81\r\nudt,97,12\r\nvegas,3,\r\n"), "{csv}");
    }

    #[test]
    fn maps_take_so_many_laws_each() {
        let maps = matrix().maps(1);
        let [Figure::Grid(first), Figure::Grid(second)] = maps.as_slice() else { panic!("maps") };
        assert_eq!(
            (&first.x.names[..], &second.x.names[..]),
            (&["udt".into()][..], &["reno".into()][..])
        );
        // The first pair is at the top.
        assert_eq!((first.cell(0, 2), first.cell(0, 0)), (Some(40.4), Some(2.6)));
        assert_eq!((second.cell(0, 2), second.cell(0, 0)), (Some(81.0), None));
    }

    #[test]
    fn certificates_without_pairs_have_none() {
        let matrix = Matrix::of(&[certificate("udt")]);
        assert!(matrix.is_empty() && matrix.maps(8).is_empty());
    }
}
