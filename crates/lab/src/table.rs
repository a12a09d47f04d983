//! Tables as text for terminals, CSV and HTML.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::number::{or_nan, significant, titled, with_interval};
use crate::statistics::{Average, Interval};
use crate::xml::escape;

/// Rows of cells under named columns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Table {
    /// What is listed.
    pub title: String,
    /// From left to right.
    pub columns: Vec<Column>,
    /// From top to bottom. Cells that a row lacks are missing; those beyond the columns are not
    /// shown.
    pub rows: Vec<Vec<Cell>>,
}

/// What a column holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Column {
    /// Its heading.
    pub name: String,
    /// Of its numbers; may be empty.
    pub unit: String,
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cell {
    /// Words.
    Text(String),
    /// Shown with four significant digits; what is no number is shown as missing.
    Number(#[serde(deserialize_with = "or_nan")] f64),
    /// Nothing is known.
    Missing,
    /// A mean and half the width of its interval of confidence.
    WithInterval {
        /// The middle of the interval.
        #[serde(deserialize_with = "or_nan")]
        mean: f64,
        /// From the mean to either end.
        #[serde(deserialize_with = "or_nan")]
        half_width: f64,
    },
}

impl Column {
    /// A column of this name and unit; either may be empty.
    pub fn new(name: impl Into<String>, unit: impl Into<String>) -> Self {
        Column { name: name.into(), unit: unit.into() }
    }

    fn heading(&self) -> String {
        titled(&self.name, &self.unit)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Cell::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Cell::Text(text)
    }
}

impl From<f64> for Cell {
    fn from(number: f64) -> Self {
        Cell::Number(number)
    }
}

impl From<Interval> for Cell {
    fn from(Interval { mean, half_width }: Interval) -> Self {
        Cell::WithInterval { mean, half_width }
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Cell::Missing, Into::into)
    }
}

impl Cell {
    /// The average of a sample; a mean with its interval of confidence if there is more than one
    /// value.
    pub fn of_sample(sample: &[f64], average: Average) -> Self {
        average.interval(sample).map_or_else(|| average.of(sample).into(), Cell::from)
    }

    /// As people read it.
    pub fn shown(&self) -> String {
        match self {
            Cell::Text(text) => text.clone(),
            Cell::Number(number) => significant(*number, 4),
            Cell::Missing => "-".into(),
            Cell::WithInterval { mean, half_width } => with_interval(*mean, *half_width),
        }
    }

    fn is_text(&self) -> bool {
        matches!(self, Cell::Text(_))
    }

    fn has_interval(&self) -> bool {
        matches!(self, Cell::WithInterval { .. })
    }
}

const MISSING: Cell = Cell::Missing;

impl Table {
    /// Aligned columns for a terminal: words to the left, numbers to the right. Control characters
    /// in words become spaces.
    pub fn text(&self) -> String {
        let plain = |text: String| text.replace(char::is_control, " ");
        let mut lines = vec![self.columns.iter().map(|column| plain(column.heading())).collect()];
        lines.extend(self.rows.iter().map(|row| -> Vec<String> {
            self.cells(row).map(|cell| plain(cell.shown())).collect()
        }));
        let count = |text: &String| text.chars().count();
        let width = |column: usize| lines.iter().map(|line| count(&line[column])).max();
        let widths: Vec<usize> =
            (0..self.columns.len()).map(|column| width(column).unwrap_or(0)).collect();
        let words = self.words();
        let mut out = String::new();
        if !self.title.is_empty() {
            out.push_str(&plain(self.title.clone()));
            out.push_str("\n\n");
        }
        for line in &lines {
            let mut text = String::new();
            for (column, (cell, &width)) in line.iter().zip(&widths).enumerate() {
                // Writing to a string cannot fail.
                let _ = if words[column] {
                    write!(text, "{cell:<width$}  ")
                } else {
                    write!(text, "{cell:>width$}  ")
                };
            }
            out.push_str(text.trim_end());
            out.push('\n');
        }
        out
    }

    /// Comma-separated values (RFC 4180), the first line the headings, numbers in full. What is
    /// missing is empty. A column with intervals is followed by one of their half-widths.
    pub fn csv(&self) -> String {
        let mut out = String::new();
        let mut line = |fields: Vec<String>| {
            out.push_str(&fields.iter().map(|field| quoted(field)).collect::<Vec<_>>().join(","));
            out.push_str("\r\n");
        };
        let wide: Vec<bool> = (0..self.columns.len())
            .map(|index| self.column(index).any(Cell::has_interval))
            .collect();
        let mut headings = Vec::new();
        for (column, &wide) in self.columns.iter().zip(&wide) {
            headings.push(column.heading());
            if wide {
                headings.push(format!("± {}", column.heading()));
            }
        }
        line(headings);
        for row in &self.rows {
            let mut fields = Vec::new();
            for (cell, &wide) in self.cells(row).zip(&wide) {
                let (value, half_width) = match cell {
                    Cell::Text(text) => (text.clone(), String::new()),
                    Cell::Number(number) => (in_full(*number), String::new()),
                    Cell::Missing => (String::new(), String::new()),
                    Cell::WithInterval { mean, half_width } => {
                        (in_full(*mean), in_full(*half_width))
                    }
                };
                fields.push(value);
                if wide {
                    fields.push(half_width);
                }
            }
            line(fields);
        }
        out
    }

    /// A `table` element.
    pub fn html(&self) -> String {
        let mut out = "<table>\n".to_owned();
        if !self.title.is_empty() {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "<caption>{}</caption>", escape(&self.title));
        }
        let words = self.words();
        let class = |column: usize| if words[column] { "" } else { " class=\"number\"" };
        out.push_str("<thead><tr>");
        for (index, column) in self.columns.iter().enumerate() {
            let heading = escape(&column.heading());
            let _ = write!(out, "<th scope=\"col\"{}>{heading}</th>", class(index));
        }
        out.push_str("</tr></thead>\n<tbody>\n");
        for row in &self.rows {
            out.push_str("<tr>");
            for (index, cell) in self.cells(row).enumerate() {
                let _ = write!(out, "<td{}>{}</td>", class(index), escape(&cell.shown()));
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</tbody>\n</table>\n");
        out
    }

    /// A row's cells, one for each column.
    fn cells<'a>(&'a self, row: &'a [Cell]) -> impl Iterator<Item = &'a Cell> {
        (0..self.columns.len()).map(|index| row.get(index).unwrap_or(&MISSING))
    }

    fn column(&self, index: usize) -> impl Iterator<Item = &Cell> {
        self.rows.iter().filter_map(move |row| row.get(index))
    }

    /// For each column whether it has words only, besides what is missing. It takes a look at every
    /// cell: ask once a table, not once a cell.
    fn words(&self) -> Vec<bool> {
        let has_words = |index| {
            let mut known = self.column(index).filter(|cell| **cell != Cell::Missing).peekable();
            known.peek().is_some() && known.all(Cell::is_text)
        };
        (0..self.columns.len()).map(has_words).collect()
    }
}

/// The shortest text that is this number and no other; empty if it is none.
fn in_full(number: f64) -> String {
    let size = number.abs();
    if !number.is_finite() {
        String::new()
    } else if size != 0.0 && !(1e-7..1e17).contains(&size) {
        format!("{number:e}")
    } else {
        number.to_string()
    }
}

fn quoted(field: &str) -> String {
    if field.contains(['"', ',', '\r', '\n']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        Table {
            title: "Rates & <more>".into(),
            columns: vec![
                Column::new("flow", ""),
                Column::new("rate", "Mb/s"),
                Column::new("loss", "%"),
            ],
            rows: vec![
                vec!["UDT".into(), 941.234.into(), 0.5.into()],
                vec![
                    "TCP, \"cubic\"\nüber".into(),
                    Interval { mean: 12.345, half_width: 1.23 }.into(),
                    Cell::Missing,
                ],
                vec!["short".into()],
            ],
        }
    }

    #[test]
    fn text_is_aligned() {
        assert_eq!(
            table().text(),
            "Rates & <more>\n\
             \n\
             flow               rate (Mb/s)  loss (%)\n\
             UDT                      941.2       0.5\n\
             TCP, \"cubic\" über   12.3 ± 1.2         -\n\
             short                        -         -\n"
        );
        assert_eq!(Table::default().text(), "\n");
    }

    /// In time proportional to the cells: looking at a whole column for each of them, this takes
    /// minutes.
    #[test]
    fn many_rows_are_no_trouble() {
        let row = vec!["UDT".into(), 941.2.into(), 0.5.into()];
        let table = Table { rows: vec![row; 50_000], ..table() };
        let lines = |text: String| text.lines().count();
        assert!(lines(table.text()) > 50_000 && lines(table.html()) > 50_000);
    }

    #[test]
    fn csv_quotes_what_needs_it() {
        assert_eq!(
            table().csv(),
            "flow,rate (Mb/s),± rate (Mb/s),loss (%)\r\n\
             UDT,941.234,,0.5\r\n\
             \"TCP, \"\"cubic\"\"\nüber\",12.345,1.23,\r\n\
             short,,,\r\n"
        );
        assert_eq!([in_full(1e300), in_full(1e-9), in_full(0.1)], ["1e300", "1e-9", "0.1"]);
    }

    #[test]
    fn html_is_well_formed() {
        let html = table().html();
        let tree = roxmltree::Document::parse(&html).unwrap();
        let cells = tree.descendants().filter(|node| node.has_tag_name("td"));
        assert_eq!(cells.count(), 9);
        assert!(html.contains("<caption>Rates &amp; &lt;more&gt;</caption>"), "{html}");
        assert!(html.contains("<td class=\"number\">12.3 ± 1.2</td>"), "{html}");
    }

    #[test]
    fn json_gives_the_same_table() {
        let table = table();
        let json = |table: &Table| serde_json::to_string(table).unwrap();
        assert_eq!(serde_json::from_str::<Table>(&json(&table)).unwrap(), table);
        let unknown = Table { rows: vec![vec![f64::NAN.into()]], ..table };
        let read: Table = serde_json::from_str(&json(&unknown)).unwrap();
        assert_eq!(read.rows[0][0].shown(), "-");
    }
}
