//! The laboratory: published experiments run again, and what they have shown.
//!
//! - [`experiment`]: experiments as files of data, run and judged;
//! - [`certificate`]: a control law put through one battery, drawn from a seed, and given scores;
//! - [`sweep`]: runs all points of a plan on all processors, and makes tables and curves of them;
//! - [`relay`]: runs a plan on real sockets;
//! - [`quantity`]: values of scenarios as numbers;
//! - [`race`]: bulk flows of several systems over the same paths, and who was ahead;
//! - [`statistics`]: means and intervals of confidence;
//! - [`chart`]: curves, heat maps, bars and panels as SVG and PNG;
//! - [`table`]: tables as text, CSV and HTML;
//! - [`report`]: what an experiment has shown, its files and the page about all of them.
//!
//! Pictures, tables and pages are the same bytes for the same data on every machine: nothing is read
//! from the system, no font either. So are the results of simulations, but for the wall time that
//! they took; those on real sockets are not.
//!
//! ```
//! use farhaul_lab::chart::{Axis, Chart, Figure, Reference, Series};
//!
//! let figure = Figure::from(Chart {
//!     title: "Throughput over a long path".into(),
//!     x: Axis::linear("time", "s"),
//!     y: Axis::linear("throughput", "b/s"),
//!     series: vec![
//!         Series::line("UDT", vec![(0.0, 0.0), (1.0, 7.2e8), (2.0, 9.4e8)]),
//!         Series::published("published", vec![(0.0, 0.0), (2.0, 9.5e8)]),
//!     ],
//!     references: vec![Reference::new(1e9, "link rate")],
//!     ..Chart::default()
//! });
//! assert!(figure.svg().starts_with("<svg"));
//! assert_eq!(&figure.png()[1..4], b"PNG");
//! ```

pub mod certificate;
pub mod chart;
pub mod experiment;
mod number;
pub mod quantity;
pub mod race;
pub mod relay;
pub mod report;
pub mod statistics;
pub mod sweep;
pub mod table;
mod xml;
