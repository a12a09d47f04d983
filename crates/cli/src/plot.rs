//! Quantities over time as an SVG picture.

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Size of the picture, pixels.
const SIZE: (u32, u32) = (960, 540);
/// What the axes and their text need around the curves, pixels.
const LEFT: u32 = 64;
const BOTTOM: u32 = 52;
/// Height of the title, the line under it and the legend.
const HEAD: u32 = 104;
const MARGIN: u32 = 24;

const FONT: &str = "sans-serif";
const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
const FAINT_INK: RGBColor = RGBColor(0x5a, 0x5a, 0x5a);
const GRID: RGBColor = RGBColor(0xe4, 0xe4, 0xe4);
/// Colours that the colour-blind can tell apart too (Okabe and Ito, 2008).
const COLOURS: [RGBColor; 5] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x56, 0xb4, 0xe9),
];

/// A picture of quantities over time. Both axes begin at zero.
#[derive(Clone, Debug, Default)]
pub struct Plot {
    /// What is seen.
    pub title: String,
    /// Under what conditions.
    pub subtitle: String,
    /// What runs to the right, with its unit.
    pub x_label: String,
    /// What runs upwards, with its unit.
    pub y_label: String,
    /// The curves.
    pub lines: Vec<Line>,
    /// Limits, drawn dashed across the picture.
    pub levels: Vec<Level>,
}

/// A curve.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its name in the legend.
    pub label: String,
    /// Its points, in ascending order of the first.
    pub points: Vec<(f64, f64)>,
}

/// A limit.
#[derive(Clone, Debug)]
pub struct Level {
    /// Its name in the legend.
    pub label: String,
    /// Its height.
    pub value: f64,
}

/// Draws `plot` as a complete SVG document.
///
/// # Errors
/// Only if the drawing library fails, which has no cause in the data.
pub fn svg(plot: &Plot) -> Result<String> {
    let mut text = String::new();
    let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
    draw(plot, &root).map_err(|e| anyhow!("the plot cannot be drawn: {e}"))?;
    drop(root);
    Ok(text)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

fn draw(plot: &Plot, root: &Area<'_>) -> Drawn {
    root.fill(&WHITE)?;
    let margin = MARGIN as i32;
    let title = (FONT, 22).into_font().style(FontStyle::Bold).color(&INK);
    root.draw_text(&plot.title, &title, (margin, 16))?;
    root.draw_text(&plot.subtitle, &(FONT, 15).into_font().color(&FAINT_INK), (margin, 46))?;
    draw_legend(plot, root)?;
    draw_curves(plot, &root.margin(HEAD, 8, MARGIN, MARGIN))?;
    root.present()?;
    Ok(())
}

/// A row above the curves, where it hides none of them.
fn draw_legend(plot: &Plot, root: &Area<'_>) -> Drawn {
    const Y: i32 = 84;
    const SAMPLE: i32 = 28;
    let style = (FONT, 15).into_font().color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
    let mut x = MARGIN as i32;
    let levels = plot.levels.iter().map(|level| (&level.label, None));
    for (label, colour) in curves(plot).map(|(line, c)| (&line.label, Some(c))).chain(levels) {
        let ends = [(x, Y), (x + SAMPLE, Y)];
        match colour {
            Some(colour) => root.draw(&PathElement::new(ends, colour.stroke_width(3)))?,
            None => {
                for dash in 0..3 {
                    let from = x + dash * 11;
                    let ends = [(from, Y), (from + 6, Y)];
                    root.draw(&PathElement::new(ends, INK.stroke_width(2)))?;
                }
            }
        }
        root.draw_text(label, &style, (x + SAMPLE + 8, Y))?;
        // The library guesses widths, as the reader's fonts are not known; the gap allows for that.
        let (width, _) = root.estimate_text_size(label, &style)?;
        x += SAMPLE + 8 + width as i32 + 30;
    }
    Ok(())
}

fn draw_curves(plot: &Plot, area: &Area<'_>) -> Drawn {
    let points = || plot.lines.iter().flat_map(|line| &line.points);
    let right = points().map(|point| point.0).fold(0.0, f64::max);
    let heights = points().map(|point| point.1).chain(plot.levels.iter().map(|level| level.value));
    let top = heights.fold(0.0, f64::max);
    // An empty picture still has axes.
    let right = if right > 0.0 { right * 1.01 } else { 1.0 };
    let top = if top > 0.0 { top * 1.08 } else { 1.0 };
    let mut chart = ChartBuilder::on(area)
        .x_label_area_size(BOTTOM)
        .y_label_area_size(LEFT)
        .build_cartesian_2d(0.0..right, 0.0..top)?;
    let label = (FONT, 15).into_font().color(&INK);
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(FAINT_INK)
        .x_labels(12)
        .y_labels(8)
        .x_label_formatter(&|x| tick(*x))
        .y_label_formatter(&|y| tick(*y))
        .label_style(label.clone())
        .axis_desc_style(label)
        .x_desc(&plot.x_label)
        .y_desc(&plot.y_label)
        .draw()?;
    for level in &plot.levels {
        let ends = [(0.0, level.value), (right, level.value)];
        chart.draw_series(DashedLineSeries::new(ends, 6, 5, INK.stroke_width(1)))?;
    }
    for (line, colour) in curves(plot) {
        let points = line.points.iter().copied();
        chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
    }
    Ok(())
}

fn curves(plot: &Plot) -> impl Iterator<Item = (&Line, RGBColor)> {
    plot.lines.iter().zip(COLOURS.into_iter().cycle())
}

/// The shortest text of a number on an axis: `150`, `0.5`.
fn tick(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot() -> Plot {
        Plot {
            title: "Title & more".into(),
            subtitle: "200 Mb/s".into(),
            x_label: "seconds".into(),
            y_label: "Mb/s".into(),
            lines: vec![
                Line { label: "one".into(), points: vec![(0.0, 0.0), (1.0, 100.0), (2.0, 150.0)] },
                Line { label: "two".into(), points: vec![(0.0, 0.0), (2.0, 20.0)] },
            ],
            levels: vec![Level { label: "line rate".into(), value: 200.0 }],
        }
    }

    fn hex(colour: RGBColor) -> String {
        format!("#{:02X}{:02X}{:02X}", colour.0, colour.1, colour.2)
    }

    #[test]
    fn everything_is_in_the_picture() {
        let text = svg(&plot()).unwrap();
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"), "{text}");
        for label in ["Title &amp; more", "200 Mb/s", "seconds", "one", "two", "line rate"] {
            assert!(text.contains(label), "{label} in {text}");
        }
        for colour in &COLOURS[..2] {
            // Once in the legend and once as a curve.
            assert_eq!(text.matches(&hex(*colour)).count(), 2, "{colour:?} in {text}");
        }
        assert_eq!(text, svg(&plot()).unwrap());
    }

    #[test]
    fn a_plot_of_nothing_is_a_picture_too() {
        let empty = Plot { lines: Vec::new(), levels: Vec::new(), ..plot() };
        assert!(svg(&empty).unwrap().contains("seconds"));
        let point = Line { label: "point".into(), points: vec![(0.0, 0.0)] };
        assert!(svg(&Plot { lines: vec![point], ..empty }).unwrap().contains("point"));
    }

    #[test]
    fn ticks_are_short() {
        assert_eq!([tick(0.0), tick(150.0), tick(0.5), tick(2.25)], ["0", "150", "0.5", "2.25"]);
    }
}
