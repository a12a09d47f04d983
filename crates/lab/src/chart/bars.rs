//! Bars from the left to the right, on a canvas.

use super::canvas::{Anchor, Area, Canvas, Colour, FAINT_INK, INK, Lettering};
use super::panel::{LABEL, MARGIN, PALETTE, WIDTH, draw_below, draw_head, finish};
use super::ticks::{Padding, Span};
use super::{Bar, Bars};

/// Height of a row, and of the bar in it.
const ROW: f64 = 32.0;
const BAR: f64 = 16.0;
/// More between the bars and one that sums them up.
const APART: f64 = 12.0;
/// What names may take on the left, and notes on the right.
const ROOM: f64 = 220.0;
const GAP: f64 = 12.0;

const TRACK: Colour = Colour(0xee, 0xf0, 0xf2);
const GRID: Colour = Colour(0xff, 0xff, 0xff);
const NOTE: Lettering = Lettering::new(13.0, FAINT_INK);
const VALUE: Lettering = LABEL.bold();

/// A row for each bar: its name, the bar over all that it could be, its value and its note.
pub fn bars(bars: &Bars) -> Canvas {
    let mut canvas = Canvas::new(WIDTH, 0.0, &bars.title);
    let top = draw_head(&mut canvas, &bars.title, &bars.subtitle) + 8.0;
    let rows: Vec<Row> = bars.bars.iter().map(Row::of).collect();
    let widest = |width: fn(&Row) -> f64| rows.iter().map(width).fold(0.0, f64::max);
    let left = MARGIN + widest(|row| lettering(row.strong).width(&row.name)) + GAP;
    let notes = WIDTH - MARGIN - widest(|row| NOTE.width(&row.note));
    let values = notes - if notes < WIDTH - MARGIN { GAP + 6.0 } else { 0.0 };
    let right = values - widest(|row| VALUE.width(&row.value)) - GAP;

    let span = Span::of(&bars.value, bars.bars.iter().map(|bar| bar.value), Padding(0.0));
    let at = |value: f64| left + span.at(value).clamp(0.0, 1.0) * (right - left);
    let ticks = span.ticks(&bars.value, ((right - left) / 110.0) as usize);
    let mut y = top;
    for row in &rows {
        y += if row.strong && y > top { APART } else { 0.0 };
        let middle = y + ROW / 2.0;
        let base = middle + LABEL.drop();
        let track = Area { left, right, top: middle - BAR / 2.0, bottom: middle + BAR / 2.0 };
        canvas.text((left - GAP, base), &*row.name, lettering(row.strong).anchor(Anchor::End));
        canvas.fill(track, TRACK);
        for (value, _) in &ticks.major {
            let x = at(*value);
            canvas.line((x, track.top), (x, track.bottom), GRID, 1.0);
        }
        if row.length.is_finite() {
            let fill = if row.strong { INK } else { PALETTE[0] };
            canvas.fill(Area { right: at(row.length), ..track }, fill);
        }
        canvas.text((values, base), &*row.value, VALUE.anchor(Anchor::End));
        canvas.text((WIDTH - MARGIN, base), &*row.note, NOTE.anchor(Anchor::End));
        y += ROW;
    }
    let field = Area { left, top, right, bottom: y - 6.0 };
    let end = draw_below(&mut canvas, &ticks, at, field);
    finish(canvas, end + 6.0)
}

/// A bar with its texts as they are shown.
struct Row {
    name: String,
    length: f64,
    value: String,
    note: String,
    strong: bool,
}

impl Row {
    fn of(bar: &Bar) -> Self {
        Row {
            name: lettering(bar.strong).cut(&bar.name, ROOM),
            length: bar.value,
            value: crate::number::significant(bar.value, 3),
            note: NOTE.cut(&bar.note, ROOM),
            strong: bar.strong,
        }
    }
}

fn lettering(strong: bool) -> Lettering {
    if strong { LABEL.bold() } else { LABEL }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::canvas::Shape;
    use crate::chart::panel::tests::assert_readable;
    use crate::chart::{Axis, Figure};

    fn example() -> Bars {
        let bar = |name: &str, value: f64, note: &str| Bar {
            name: name.into(),
            value,
            note: note.into(),
            strong: false,
        };
        Bars {
            title: "A law".into(),
            subtitle: "All it can do".into(),
            value: Axis::linear("score", "").between(0.0, 100.0),
            bars: vec![
                bar("all", 100.0, "100 %"),
                bar("half", 50.0, "1.5 s"),
                bar("none", 0.0, "never"),
                bar("more", 250.0, ""),
                bar("unknown", f64::NAN, ""),
                Bar { strong: true, ..bar("mean", 50.0, "") },
            ],
        }
    }

    #[test]
    fn bars_are_as_long_as_their_values() {
        let canvas = bars(&example());
        assert_readable(&canvas);
        let boxes = |colour: Colour| {
            let width = move |shape: &Shape| match shape {
                Shape::Box { area, fill } if *fill == colour => Some(area.width()),
                _ => None,
            };
            canvas.shapes.iter().filter_map(width).collect::<Vec<f64>>()
        };
        let whole = boxes(TRACK);
        assert_eq!(whole.len(), 6);
        // What is beyond the axis ends with it; what is no number has no bar.
        assert_eq!(boxes(PALETTE[0]), [whole[0], whole[0] / 2.0, 0.0, whole[0]]);
        assert_eq!(boxes(INK), [whole[0] / 2.0]);
    }

    #[test]
    fn each_bar_has_its_texts() {
        let svg = Figure::from(example()).svg();
        roxmltree::Document::parse(&svg).unwrap();
        for text in [">half<", ">50<", ">1.5 s<", ">never<", ">mean<", ">score<", ">100<"] {
            assert!(svg.contains(text), "{text} in {svg}");
        }
    }

    #[test]
    fn long_and_no_texts_are_readable_too() {
        let mut long = example();
        for bar in &mut long.bars {
            bar.name = "a name of very many words ".repeat(5);
            bar.note = "a note of very many words ".repeat(5);
        }
        assert_readable(&bars(&long));
        assert!(Figure::from(Bars::default()).svg().ends_with("</svg>\n"));
    }
}
