//! Figures: curves, heat maps, bars and panels above each other, as SVG and as PNG.
//!
//! Both forms are drawn from one list of shapes, with the metrics of an embedded font. They are the
//! same bytes for the same data. Legends and labels lie outside the data.

use serde::{Deserialize, Serialize};

use crate::number::{list_or_nan, or_nan, pairs_or_nan};

mod bars;
mod canvas;
mod font;
mod grid;
mod panel;
mod png;
mod strip;
mod svg;
mod ticks;

/// A picture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Figure {
    /// Curves over common axes.
    Chart(Chart),
    /// Values over two quantities.
    Grid(Grid),
    /// Charts above each other.
    Panels(Panels),
    /// Bars from the left to the right.
    Bars(Bars),
}

/// Curves and points over common axes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Chart {
    /// What is seen.
    pub title: String,
    /// Under what conditions; may be empty.
    pub subtitle: String,
    /// What runs to the right.
    pub x: Axis,
    /// What runs upwards.
    pub y: Axis,
    /// Curves, from the back to the front.
    pub series: Vec<Series>,
    /// Limits.
    pub references: Vec<Reference>,
}

/// A quantity that a picture spans.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Axis {
    /// Its name.
    pub label: String,
    /// Its unit; may be empty. `s`, `b/s`, `B`, `B/s` and `Hz` get prefixes as numbers demand:
    /// give seconds and bits a second as they are. Others, such as `Mb/s`, are left alone.
    pub unit: String,
    /// How it is laid out.
    pub scale: Scale,
    /// From where to where; from the data if none. Data outside is not seen.
    pub range: Option<(f64, f64)>,
    /// What 0, 1, 2 and so on stand for, if not for themselves.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
}

/// How numbers are laid out along an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// Equal differences have equal lengths. Begins at zero unless the data is far from it.
    #[default]
    Linear,
    /// Equal ratios have equal lengths. Numbers that are not positive are not seen.
    Log,
}

/// Points that belong together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// In the order in which they are connected. One that is not finite interrupts the line.
    #[serde(deserialize_with = "pairs_or_nan")]
    pub points: Vec<(f64, f64)>,
    /// Half the heights of the error bars, one for each point; empty for none.
    #[serde(deserialize_with = "list_or_nan")]
    pub errors: Vec<f64>,
    /// What is drawn.
    pub style: Style,
    /// Dashed lines and hollow marks, as for what others have published.
    pub dashed: bool,
    /// Which colour of the palette; by its place among the series if none. Gives what is published
    /// the colour of what is measured.
    pub colour: Option<usize>,
}

/// What is drawn of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Style {
    /// A line through the points.
    #[default]
    Line,
    /// A line, and marks; of very many points only some have one.
    Both,
    /// Marks alone.
    Points,
    /// Columns from zero, each around its point and as wide as points are apart: for what is
    /// counted over equal spans.
    Columns,
}

/// A limit: a line from left to right.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reference {
    /// Where it lies on the y axis.
    pub value: f64,
    /// What it is, written at its end.
    pub label: String,
}

/// Values over two quantities, each a coloured cell with its number: a surface seen from above.
///
/// Cells are of one size, in ascending order, whatever the distances of their quantities: values
/// that grow by a constant factor lie as on logarithmic axes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Grid {
    /// What is seen.
    pub title: String,
    /// Under what conditions; may be empty.
    pub subtitle: String,
    /// What runs to the right; its range is not used. Where it has names, values are their numbers.
    pub x: Axis,
    /// What runs upwards; the same holds for it.
    pub y: Axis,
    /// Values of x, ascending.
    pub xs: Vec<f64>,
    /// Values of y, ascending.
    pub ys: Vec<f64>,
    /// A row for each of `ys`, with a value for each of `xs`; those missing are empty cells.
    pub cells: Vec<Vec<Option<f64>>>,
    /// What the values are; its range, if any, is what the colours span.
    pub value: Axis,
    /// Whether two colours part at the middle of that range, as for what is ahead and behind.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub diverging: bool,
}

/// Charts above each other that share what runs to the right. Their x axes must have one unit and
/// scale, those of the first chart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Panels {
    /// What is seen.
    pub title: String,
    /// Under what conditions; may be empty.
    pub subtitle: String,
    /// From the top to the bottom.
    pub charts: Vec<Chart>,
    /// What held meanwhile, above the charts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strip: Option<Strip>,
}

/// What held from where to where, as coloured bars in rows: the states, say, of several machines.
/// If there is only one row, the charts below are shaded in its colours too.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Strip {
    /// What is seen, before the names of the kinds; may be empty.
    pub title: String,
    /// Names of what may hold, for the legend, in the order of the colours.
    pub kinds: Vec<String>,
    /// From the top to the bottom.
    pub rows: Vec<Row>,
}

/// A row of a strip.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Row {
    /// Written before it; may be empty.
    pub name: String,
    /// What held when; nothing where there is none.
    pub spells: Vec<Spell>,
}

/// A part of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spell {
    /// Where it begins, on the x axis of the charts.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
    /// Which of the strip's kinds held.
    pub kind: usize,
}

/// Values of things by name, each a bar from the left to the right.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bars {
    /// What is seen.
    pub title: String,
    /// Under what conditions; may be empty.
    pub subtitle: String,
    /// What the values are; its range is what a bar may span.
    pub value: Axis,
    /// From the top to the bottom.
    pub bars: Vec<Bar>,
}

/// A row of [`Bars`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bar {
    /// What it is about.
    pub name: String,
    /// How long it is. What is no number has none.
    #[serde(deserialize_with = "or_nan")]
    pub value: f64,
    /// What else is said, at the end of its row; may be empty.
    pub note: String,
    /// Whether it stands out, as a sum of others does.
    pub strong: bool,
}

impl Axis {
    /// Equal differences have equal lengths.
    pub fn linear(label: impl Into<String>, unit: impl Into<String>) -> Self {
        Axis { label: label.into(), unit: unit.into(), scale: Scale::Linear, ..Axis::default() }
    }

    /// Upwards or to the right, things of these names: the first is at 0, the next at 1.
    pub fn named(names: Vec<String>) -> Self {
        let range = Some((-0.5, names.len() as f64 - 0.5));
        Axis { names, range, ..Axis::default() }
    }

    /// Equal ratios have equal lengths.
    pub fn log(label: impl Into<String>, unit: impl Into<String>) -> Self {
        Axis { scale: Scale::Log, ..Axis::linear(label, unit) }
    }

    /// From `low` to `high`, whatever the data.
    pub fn between(self, low: f64, high: f64) -> Self {
        Axis { range: Some((low, high)), ..self }
    }
}

impl Series {
    /// A line through `points`.
    pub fn line(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Series { name: name.into(), points, ..Series::default() }
    }

    /// A line with marks.
    pub fn both(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Series { style: Style::Both, ..Series::line(name, points) }
    }

    /// Columns from zero, around `points`.
    pub fn columns(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Series { style: Style::Columns, ..Series::line(name, points) }
    }

    /// What others have found: a dashed line with hollow marks.
    pub fn published(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Series { dashed: true, ..Series::both(name, points) }
    }

    /// Marks alone.
    pub fn points(self) -> Self {
        Series { style: Style::Points, ..self }
    }

    /// With error bars of these half-heights.
    pub fn with_errors(self, errors: Vec<f64>) -> Self {
        Series { errors, ..self }
    }

    /// As a dashed line.
    pub fn dashed(self) -> Self {
        Series { dashed: true, ..self }
    }

    /// In the palette's colour of this number.
    pub fn in_colour(self, colour: usize) -> Self {
        Series { colour: Some(colour), ..self }
    }
}

impl Reference {
    /// A limit at `value` of the y axis.
    pub fn new(value: f64, label: impl Into<String>) -> Self {
        Reference { value, label: label.into() }
    }
}

impl From<Chart> for Figure {
    fn from(chart: Chart) -> Self {
        Figure::Chart(chart)
    }
}

impl From<Grid> for Figure {
    fn from(grid: Grid) -> Self {
        Figure::Grid(grid)
    }
}

impl From<Panels> for Figure {
    fn from(panels: Panels) -> Self {
        Figure::Panels(panels)
    }
}

impl From<Bars> for Figure {
    fn from(bars: Bars) -> Self {
        Figure::Bars(bars)
    }
}

impl Figure {
    /// What is seen.
    pub fn title(&self) -> &str {
        match self {
            Figure::Chart(chart) => &chart.title,
            Figure::Grid(grid) => &grid.title,
            Figure::Panels(panels) => &panels.title,
            Figure::Bars(bars) => &bars.title,
        }
    }

    /// A complete SVG document, which may also stand inside an HTML page.
    pub fn svg(&self) -> String {
        svg::document(&self.canvas())
    }

    /// A PNG file, with twice as many pixels each way as the SVG.
    pub fn png(&self) -> Vec<u8> {
        png::file(&self.canvas())
    }

    fn canvas(&self) -> canvas::Canvas {
        match self {
            Figure::Chart(chart) => panel::chart(chart),
            Figure::Grid(grid) => grid::grid(grid),
            Figure::Panels(panels) => panel::panels(panels),
            Figure::Bars(bars) => bars::bars(bars),
        }
    }
}

impl Grid {
    /// The value at these places of `xs` and `ys`, if there is one.
    pub fn cell(&self, column: usize, row: usize) -> Option<f64> {
        self.cells.get(row)?.get(column).copied().flatten().filter(|value| value.is_finite())
    }
}
