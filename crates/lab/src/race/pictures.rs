//! Heat maps and tables of a race.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Cell, Figures, Ground, Race, System};
use crate::chart::{Axis, Figure, Grid};
use crate::number::significant;
use crate::table::{self, Column, Table};

/// More round trips than this make no map, but a list.
const MOST_COLUMNS: usize = 12;
/// What the colours of a ratio span.
const RATIOS: (f64, f64) = (0.5, 2.0);

/// A quantity of the maps and tables.
struct Quantity {
    title: &'static str,
    unit: &'static str,
    of: fn(&Cell, &Figures) -> Option<f64>,
    /// What the colours of its map span, where that is the same for all races.
    range: Option<(f64, f64)>,
    log: bool,
    /// Whether it is goodput, which begins with the command if that is a copy.
    of_goodput: bool,
}

const QUANTITIES: [Quantity; 10] = [
    Quantity {
        title: "Goodput",
        unit: "Mb/s",
        of: |_, f| Some(f.goodput_bps / 1e6),
        range: None,
        log: true,
        of_goodput: true,
    },
    Quantity {
        title: "Share of the line",
        unit: "%",
        of: |cell, f| Some(f.goodput_bps / cell.line_bps() * 1e2),
        range: Some((0.0, 100.0)),
        log: false,
        of_goodput: true,
    },
    Quantity {
        title: "Share of the line after the start",
        unit: "%",
        of: |cell, f| Some(f.steady_bps? / cell.line_bps() * 1e2),
        range: Some((0.0, 100.0)),
        log: false,
        of_goodput: false,
    },
    Quantity {
        title: "Time to 90% of the steady rate",
        unit: "s",
        of: |_, f| f.to_90_s,
        range: Some((0.1, 10.0)),
        log: true,
        of_goodput: false,
    },
    Quantity {
        title: "Packets that the payload does not need",
        unit: "%",
        of: |_, f| Some(f.again * 1e2),
        range: Some((0.0, 10.0)),
        log: false,
        of_goodput: false,
    },
    Quantity {
        title: "Mean time in the queue",
        unit: "ms",
        of: |_, f| Some(f.queue_ms),
        range: Some((0.1, 300.0)),
        log: true,
        of_goodput: false,
    },
    Quantity {
        title: "Processor time of both ends",
        unit: "s/GB",
        of: |_, f| f.cpu_s_per_gb,
        range: Some((0.3, 30.0)),
        log: true,
        of_goodput: false,
    },
    Quantity {
        title: "Most memory of a process",
        unit: "MB",
        of: |_, f| f.memory_bytes.map(|bytes| bytes / 1e6),
        range: Some((3.0, 300.0)),
        log: true,
        of_goodput: false,
    },
    Quantity {
        title: "Jain's index of flows that share a path",
        unit: "",
        of: |_, f| Some(f.sharing?.jain),
        range: Some((0.5, 1.0)),
        log: false,
        of_goodput: false,
    },
    Quantity {
        title: "Share of its fair share of a path that flows share",
        unit: "",
        of: |_, f| Some(f.sharing?.share),
        range: Some(RATIOS),
        log: true,
        of_goodput: false,
    },
];

impl Race {
    pub(super) fn pictures(&self) -> Vec<Figure> {
        let mut charts = Vec::new();
        for subject in self.subjects() {
            charts.extend(self.reference(subject).and_then(|other| self.map(subject, Some(other))));
            charts.extend(self.map(subject, None));
            charts.extend(self.ratios(subject));
        }
        charts.extend(QUANTITIES.iter().filter_map(|quantity| self.heat_map(quantity)));
        charts.into_iter().map(Figure::Grid).collect()
    }

    pub(super) fn tables(&self) -> Vec<Table> {
        let tables = QUANTITIES.iter().filter_map(|quantity| self.table(quantity));
        tables.chain([self.systems_table()]).collect()
    }

    /// The subject beside another, or the best of its rivals: by round trip, and by rate and what befalls the path.
    /// None if the paths make no map.
    fn map(&self, subject: &System, other: Option<&System>) -> Option<Grid> {
        let cells: Vec<&Cell> = self.single().collect();
        let columns: Vec<Duration> =
            cells.iter().map(|cell| cell.rtt).collect::<BTreeSet<_>>().into_iter().collect();
        let rows: BTreeSet<Row> = cells.iter().map(|cell| Row::of(cell)).collect();
        // A map of paths that have nothing in common would be empty for the most part.
        if columns.len() > MOST_COLUMNS
            || rows.len() >= cells.len()
            || self.rivals(subject).next().is_none()
        {
            return None;
        }
        let ratio = |cell: &Cell| match other {
            Some(other) => Some(self.goodput(cell, subject)? / self.goodput(cell, other)?),
            None => self.lead(cell, subject).map(|lead| lead.0),
        };
        let at = |row: &Row, rtt: &Duration| {
            let found = cells.iter().find(|cell| cell.rtt == *rtt && Row::of(cell) == *row)?;
            ratio(found)
        };
        let milliseconds = |rtt: &Duration| format!("{} ms", rtt.as_secs_f64() * 1e3);
        let kind = if subject.is_copy() { "copies" } else { "flows" };
        let than = match other {
            Some(other) => shown(other, self.ground),
            None => format!("the best of all other {kind}"),
        };
        // From the top to the bottom.
        let rows: Vec<&Row> = rows.iter().rev().collect();
        Some(Grid {
            title: format!("{} over {than}", shown(subject, self.ground)),
            subtitle: format!(
                "Goodput of one over that of the other, start included: blue is ahead; {}",
                self.ground
            ),
            x: Axis {
                label: "round trip".into(),
                ..Axis::named(columns.iter().map(milliseconds).collect())
            },
            y: Axis::named(rows.iter().map(|row| row.label()).collect()),
            xs: (0..columns.len()).map(|n| n as f64).collect(),
            ys: (0..rows.len()).map(|n| n as f64).collect(),
            cells: rows
                .iter()
                .map(|row| columns.iter().map(|rtt| at(row, rtt)).collect())
                .collect(),
            value: ratio_axis(),
            diverging: true,
        })
    }

    /// The subject over each of its rivals, path by path.
    fn ratios(&self, subject: &System) -> Option<Grid> {
        let rivals: Vec<&System> = self.rivals(subject).collect();
        let cells: Vec<&Cell> = self.single().collect();
        let ratio = |cell: &Cell, rival: &System| {
            Some(self.goodput(cell, subject)? / self.goodput(cell, rival)?)
        };
        let title = format!("{} over each other", shown(subject, self.ground));
        let subtitle = format!("Ratio of goodputs, start included: blue is ahead; {}", self.ground);
        let grid = by_path(&cells, &rivals, ratio)?;
        Some(Grid { title, subtitle, value: ratio_axis(), diverging: true, ..grid })
    }

    /// A quantity of every system on every path that shows it.
    fn heat_map(&self, quantity: &Quantity) -> Option<Grid> {
        let value = |cell: &Cell, system: &System| {
            self.median(cell, system, |figures| (quantity.of)(cell, figures))
        };
        let systems: Vec<&System> = self.systems.iter().collect();
        let shows = |cell: &&Cell| systems.iter().any(|system| value(cell, system).is_some());
        let cells: Vec<&Cell> = self.cells.iter().filter(shows).collect();
        let grid = by_path(&cells, &systems, value)?;
        let axis = match quantity.log {
            true => Axis::log(quantity.title, ""),
            false => Axis::linear(quantity.title, ""),
        };
        let title = match quantity.unit {
            "" => quantity.title.to_owned(),
            unit => format!("{} ({unit})", quantity.title),
        };
        Some(Grid {
            title,
            subtitle: format!("Medians; {}", self.ground),
            value: Axis { range: quantity.range, ..axis },
            ..grid
        })
    }

    /// A row a path, a column a system. None where nothing was measured.
    fn table(&self, quantity: &Quantity) -> Option<Table> {
        let mut columns = vec![Column::new("path", "")];
        columns.extend(self.systems.iter().map(|s| Column::new(heading(s), quantity.unit)));
        let cell_of = |cell: &Cell, system: &System| {
            let of = |figures: &Figures| (quantity.of)(cell, figures);
            match self.median(cell, system, of) {
                Some(value) => table::Cell::Number(value),
                None => self.median_of(cell, system, of).map_or(table::Cell::Missing, |value| {
                    table::Cell::Text(format!("{} *", significant(value, 4)))
                }),
            }
        };
        let mut rows = Vec::new();
        for cell in &self.cells {
            let values: Vec<table::Cell> =
                self.systems.iter().map(|system| cell_of(cell, system)).collect();
            if values.iter().any(|value| *value != table::Cell::Missing) {
                rows.push([vec![table::Cell::Text(cell.to_string())], values].concat());
            }
        }
        // A reader of one table alone must not take one for the other.
        let copies = quantity.of_goodput && self.systems.iter().any(System::is_copy);
        let title = match copies {
            true => {
                format!("{}; of copies over the whole command, its start included", quantity.title)
            }
            false => quantity.title.to_owned(),
        };
        (!rows.is_empty()).then_some(Table { title, columns, rows })
    }
}

/// A row of the map: what paths have in common that differ in their round trips.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    rate: u64,
    /// Something else than losses alone.
    special: bool,
    /// In millionths of a percent: what can be put in order.
    loss: u64,
    rest: String,
}

impl Row {
    fn of(cell: &Cell) -> Row {
        let rest = if cell.is_plain() {
            String::new()
        } else {
            let same = |key: &&str| !key.starts_with("rate=") && !key.starts_with("rtt=");
            let text = cell.to_string();
            text.split(',').filter(same).collect::<Vec<_>>().join(", ").replace('=', " ")
        };
        let special = !rest.is_empty();
        let loss = (cell.loss * 1e6).round() as u64;
        Row { rate: cell.rate.bits_per_second(), special, loss, rest }
    }

    fn label(&self) -> String {
        let (amount, unit) = match self.rate {
            rate if rate >= 1_000_000_000 => (rate as f64 / 1e9, "Gb/s"),
            rate => (rate as f64 / 1e6, "Mb/s"),
        };
        let what = match self.rest.as_str() {
            "" => format!("{}%", self.loss as f64 / 1e6),
            rest => rest.to_owned(),
        };
        format!("{} {unit}, {what}", significant(amount, 3))
    }
}

/// Rows are paths, from the top to the bottom in their order, and columns systems.
fn by_path(
    cells: &[&Cell],
    systems: &[&System],
    value: impl Fn(&Cell, &System) -> Option<f64>,
) -> Option<Grid> {
    let rows: Vec<&&Cell> = cells.iter().rev().collect();
    let values: Vec<Vec<Option<f64>>> = rows
        .iter()
        .map(|cell| systems.iter().map(|system| value(cell, system)).collect())
        .collect();
    values.iter().flatten().any(Option::is_some).then(|| Grid {
        x: Axis::named(systems.iter().map(|system| heading(system)).collect()),
        y: Axis::named(rows.iter().map(|cell| cell.to_string().replace(',', " ")).collect()),
        xs: (0..systems.len()).map(|n| n as f64).collect(),
        ys: (0..rows.len()).map(|n| n as f64).collect(),
        cells: values,
        ..Grid::default()
    })
}

fn ratio_axis() -> Axis {
    let (low, high) = RATIOS;
    Axis::log("ratio", "").between(low, high)
}

/// With a word where it is a whole copy.
fn heading(system: &System) -> String {
    format!("{system}{}", if system.is_copy() { " (copy)" } else { "" })
}

/// As a stranger reads it.
fn shown(system: &System, ground: Ground) -> String {
    match (system.kind(), ground) {
        (super::Kind::Tcp(name), Ground::Emulator) => format!("kernel TCP ({name})"),
        (super::Kind::Tcp(name), Ground::Simulator) => format!("the simulator's TCP ({name})"),
        (super::Kind::Farhaul(law), _) => format!("farhaul ({law})"),
        (super::Kind::Program, _) if system.is_own() => format!("farhaul {system}"),
        _ => system.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Record;
    use super::*;

    fn race(cells: Vec<Cell>, time_kept: bool) -> Race {
        let systems = ["bbr", "tcp:bbr", "tcp:cubic"].map(|name| name.parse().expect("a system"));
        let mut race = Race::new(systems.into(), cells, 1);
        for cell in race.cells.clone() {
            for (system, goodput_bps) in [("bbr", 9.1e6), ("tcp:bbr", 9e6), ("tcp:cubic", 9.5e6)] {
                let figures = Figures { goodput_bps, time_kept, ..Figures::default() };
                let (cell, system) = (cell.to_string(), system.to_owned());
                race.note(Record { cell, system, round: 0, result: Ok(figures) });
            }
        }
        race
    }

    #[test]
    fn paths_that_differ_in_their_round_trips_make_a_map() {
        let plain = Cell::new(10_000_000, 50, 0.0);
        let jitter = plain.changed("jitter=3ms").expect("a path");
        let race = race(vec![plain, Cell::new(10_000_000, 100, 0.0), jitter], true);
        let map = race.map(&race.systems[0], None).expect("a map");
        assert_eq!(map.x.names, ["50 ms", "100 ms"]);
        assert_eq!(map.y.names, ["10 Mb/s, jitter 3ms", "10 Mb/s, 0%"]);
        let expected = 9.1 / 9.5;
        assert_eq!(map.cells, [[Some(expected), None], [Some(expected); 2]]);
        let pictures = race.pictures();
        let titles: Vec<&str> = pictures.iter().map(Figure::title).collect();
        assert_eq!(titles[0], "farhaul (bbr) over kernel TCP (bbr)");
        assert!(titles.contains(&"Share of the line (%)"), "{titles:?}");
    }

    #[test]
    fn what_does_not_count_is_marked_and_not_drawn() {
        let race = race(vec![Cell::new(10_000_000, 50, 0.0)], false);
        assert_eq!(race.tables()[0].rows[0][1], table::Cell::Text("9.1 *".into()));
        assert_eq!(race.pictures(), []);
    }
}
