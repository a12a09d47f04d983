//! What held from where to where: coloured bars in rows, above charts and behind them.

use super::canvas::{Anchor, Area, Canvas, Colour};
use super::panel::{LABEL, MARGIN, PALETTE, ROW, SAMPLE, TICK, WIDTH};
use super::ticks::Span;
use super::{Row, Strip};

/// Height of a bar, and what is free below it.
const BAR: f64 = 14.0;
const FREE: f64 = 3.0;
/// What the names of rows may take on the left.
const NAME_ROOM: f64 = 90.0;
/// Shares of white in the colours of bars and of the shades behind charts. Curves have the colours
/// themselves and must be seen before them.
const BAR_WHITE: f64 = 0.45;
const SHADE_WHITE: f64 = 0.87;
/// The palette of the curves, from colours on that the first curves do not have, and without black
/// and grey, before which nothing would be seen.
const COLOURS: [usize; 8] = [4, 5, 3, 8, 2, 7, 0, 1];

/// Where spells begin and end.
pub fn ends(strip: &Strip) -> impl Iterator<Item = f64> {
    strip.rows.iter().flat_map(|row| &row.spells).flat_map(|spell| [spell.from, spell.to])
}

/// Where bars begin, behind the names of their rows.
pub fn left_of(strip: &Strip) -> f64 {
    let names = strip.rows.iter().map(|row| TICK.width(&TICK.cut(&row.name, NAME_ROOM)));
    MARGIN + names.fold(0.0, f64::max) + 9.0
}

/// The legend, and the bars between the left and the right of `area`, from its top on; where they
/// end.
pub fn draw(canvas: &mut Canvas, strip: &Strip, x: Span, area: Area) -> f64 {
    let mut top = draw_legend(canvas, strip, area.top) + 6.0;
    for row in &strip.rows {
        let bar = Area { top, bottom: top + BAR, ..area };
        let name = TICK.cut(&row.name, NAME_ROOM);
        let base = (bar.top + bar.bottom) / 2.0 + TICK.drop();
        canvas.text((area.left - 9.0, base), name, TICK.anchor(Anchor::End));
        fill(canvas, row, x, bar, BAR_WHITE);
        top = bar.bottom + FREE;
    }
    top + 6.0
}

/// The colours of the only row behind a chart.
pub fn shade(canvas: &mut Canvas, strip: &Strip, x: Span, area: Area) {
    if let [only] = strip.rows.as_slice() {
        fill(canvas, only, x, area, SHADE_WHITE);
    }
}

fn fill(canvas: &mut Canvas, row: &Row, x: Span, area: Area, white: f64) {
    for spell in &row.spells {
        let place = |value: f64| {
            let place = area.left + x.at(value) * area.width();
            place.clamp(area.left, area.right)
        };
        let (left, right) = (place(spell.from), place(spell.to));
        // What is short is seen all the same, unless it lies outside.
        let right = if left < right { right.max(left + 0.75).min(area.right) } else { right };
        if left < right {
            canvas.fill(Area { left, right, ..area }, colour(spell.kind).paler(white));
        }
    }
}

fn draw_legend(canvas: &mut Canvas, strip: &Strip, top: f64) -> f64 {
    const GAP: f64 = 20.0;
    const SIDE: f64 = SAMPLE / 2.0;
    let (mut x, mut y) = (MARGIN, top);
    let middle = |y: f64| y + ROW / 2.0;
    let title = LABEL.cut(&strip.title, WIDTH / 3.0);
    if !title.is_empty() {
        canvas.text((x, middle(y) + LABEL.drop()), title.clone(), LABEL);
        x += LABEL.width(&title) + GAP;
    }
    for (kind, name) in strip.kinds.iter().enumerate() {
        let name = LABEL.cut(name, WIDTH - 2.0 * MARGIN - SIDE - 8.0);
        let width = SIDE + 8.0 + LABEL.width(&name);
        if x + width > WIDTH - MARGIN && x > MARGIN {
            (x, y) = (MARGIN, y + ROW);
        }
        let at = middle(y);
        let area = Area { left: x, top: at - 6.0, right: x + SIDE, bottom: at + 6.0 };
        canvas.fill(area, colour(kind).paler(BAR_WHITE));
        canvas.text((x + SIDE + 8.0, at + LABEL.drop()), name, LABEL);
        x += width + GAP;
    }
    if strip.kinds.is_empty() && strip.title.is_empty() { y } else { y + ROW }
}

fn colour(kind: usize) -> Colour {
    PALETTE[COLOURS[kind % COLOURS.len()]]
}

#[cfg(test)]
mod tests {
    use super::super::canvas::Shape;
    use super::super::{Scale, Spell};
    use super::*;

    const AREA: Area = Area { left: 100.0, top: 0.0, right: 200.0, bottom: 50.0 };
    const X: Span = Span { low: 0.0, high: 10.0, scale: Scale::Linear };

    fn boxes(spells: &[(f64, f64)]) -> Vec<(f64, f64)> {
        let spells = spells.iter().map(|&(from, to)| Spell { from, to, kind: 0 }).collect();
        let mut canvas = Canvas::new(300.0, 50.0, "");
        fill(&mut canvas, &Row { spells, ..Row::default() }, X, AREA, 0.5);
        let sides = |shape: &Shape| match shape {
            Shape::Box { area, .. } => (area.left, area.right),
            other => panic!("{other:?}"),
        };
        canvas.shapes.iter().skip(1).map(sides).collect()
    }

    #[test]
    fn bars_lie_where_they_belong_and_within_the_field() {
        assert_eq!(boxes(&[(0.0, 2.5), (2.5, 20.0)]), [(100.0, 125.0), (125.0, 200.0)]);
        assert_eq!(boxes(&[(-3.0, -1.0), (11.0, 12.0), (4.0, 4.0), (5.0, f64::NAN)]), []);
        // Hardly wide enough to be seen, but seen.
        assert_eq!(boxes(&[(5.0, 5.000_1)]), [(150.0, 150.75)]);
    }

    #[test]
    fn kinds_have_colours_however_many_there_are() {
        assert_ne!(colour(0), colour(1));
        assert_eq!(colour(0), colour(COLOURS.len()));
        assert_eq!(colour(usize::MAX), colour(usize::MAX % COLOURS.len()));
    }
}
