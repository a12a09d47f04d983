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
/// Height of the title and the line under it.
const HEAD: i32 = 72;
/// Height of a row of the legend.
const ROW: i32 = 24;
const MARGIN: i32 = 24;

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
    let mut document = String::new();
    let root = SVGBackend::with_string(&mut document, SIZE).into_drawing_area();
    draw(plot, &root).map_err(|e| anyhow!("the plot cannot be drawn: {e}"))?;
    drop(root);
    Ok(document)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

fn draw(plot: &Plot, root: &Area<'_>) -> Drawn {
    root.fill(&WHITE)?;
    let title = text(22, &INK).font.style(FontStyle::Bold).color(&INK);
    root.draw_text(&plot.title, &title, (MARGIN, 16))?;
    let subtitle = fitted(root, &plot.subtitle, text(15, &FAINT_INK))?;
    root.draw_text(&plot.subtitle, &subtitle, (MARGIN, 46))?;
    let rows = draw_legend(plot, root)?;
    draw_curves(plot, &root.margin(HEAD + rows * ROW + 8, 8, MARGIN, MARGIN))?;
    root.present()?;
    Ok(())
}

/// Rows above the curves, where they hide none of them. Returns how many.
fn draw_legend(plot: &Plot, root: &Area<'_>) -> Result<i32, Box<dyn std::error::Error>> {
    const SAMPLE: i32 = 28;
    const GAP: i32 = 30;
    let style = text(15, &INK).pos(Pos::new(HPos::Left, VPos::Center));
    let levels = plot.levels.iter().map(|level| (&level.label, None));
    let entries = curves(plot).map(|(line, c)| (&line.label, Some(c))).chain(levels);
    let (mut x, mut row) = (MARGIN, 0);
    for (label, colour) in entries {
        // The library guesses widths, as the reader's fonts are not known; the gap allows for that.
        let width = SAMPLE + 8 + root.estimate_text_size(label, &style)?.0 as i32 + GAP;
        if x + width > SIZE.0 as i32 && x > MARGIN {
            (x, row) = (MARGIN, row + 1);
        }
        let y = HEAD + row * ROW + ROW / 2;
        match colour {
            Some(colour) => {
                let ends = [(x, y), (x + SAMPLE, y)];
                root.draw(&PathElement::new(ends, colour.stroke_width(3)))?;
            }
            None => {
                for from in (x..x + SAMPLE).step_by(11) {
                    let ends = [(from, y), (from + 6, y)];
                    root.draw(&PathElement::new(ends, INK.stroke_width(2)))?;
                }
            }
        }
        root.draw_text(label, &style, (x + SAMPLE + 8, y))?;
        x += width;
    }
    Ok(row + 1)
}

fn text(size: u32, colour: &RGBColor) -> TextStyle<'static> {
    (FONT, size).into_font().color(colour)
}

/// `style`, made smaller if `content` would be wider than the picture.
fn fitted<'a>(
    root: &Area<'_>,
    content: &str,
    style: TextStyle<'a>,
) -> Result<TextStyle<'a>, Box<dyn std::error::Error>> {
    let width = f64::from(root.estimate_text_size(content, &style)?.0);
    let room = f64::from(SIZE.0 as i32 - 2 * MARGIN);
    if width <= room {
        return Ok(style);
    }
    let font = style.font.resize(style.font.get_size() * room / width);
    Ok(TextStyle { font, ..style })
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
    let label = text(15, &INK);
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

    /// The places of all texts that contain `part`.
    fn places(text: &str, part: &str) -> Vec<(i32, i32)> {
        let number = |tag: &str, name: &str| {
            let (_, rest) = tag.split_once(&format!("{name}=\"")).unwrap();
            rest.split('"').next().unwrap().parse().unwrap()
        };
        let texts = text.split("<text ").skip(1).filter(|tag| tag.contains(part));
        texts.map(|tag| (number(tag, "x"), number(tag, "y"))).collect()
    }

    #[test]
    fn a_long_legend_has_rows() {
        let line = |number| Line { label: format!("a rather long label {number}"), points: vec![] };
        let long = Plot { lines: (0..12).map(line).collect(), ..plot() };
        let labels = places(&svg(&long).unwrap(), "a rather long label");
        assert_eq!(labels.len(), 12);
        assert!(labels.iter().all(|&(x, _)| x < SIZE.0 as i32 - 100), "{labels:?}");
        let mut distinct = labels.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 12, "{labels:?}");
        assert!(labels[11].1 > labels[0].1);
    }

    #[test]
    fn a_long_subtitle_is_made_smaller() {
        let size = |subtitle: &str| {
            let text = svg(&Plot { subtitle: subtitle.into(), ..plot() }).unwrap();
            let (before, _) = text.split_once(subtitle).unwrap();
            let (_, size) = before.rsplit_once("font-size=\"").unwrap();
            size.split('"').next().unwrap().parse::<f64>().unwrap()
        };
        let short = size("short");
        assert!(size(&"long ".repeat(60)) < short / 1.5);
    }

    #[test]
    fn ticks_are_short() {
        assert_eq!([tick(0.0), tick(150.0), tick(0.5), tick(2.25)], ["0", "150", "0.5", "2.25"]);
    }
}
