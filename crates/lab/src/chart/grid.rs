//! Values over two quantities on a canvas.

use super::canvas::{Anchor, Area, Canvas, Colour, INK, Lettering, WHITE};
use super::panel::{
    LABEL, MARGIN, TICK, UPRIGHT_LINE, WIDTH, draw_below, draw_beside, draw_head, finish, left_of,
    widest,
};
use super::ticks::{Padding, Span, Ticks, is_base, written_with};
use super::{Axis, Grid};
use crate::number::{exponent, fixed, titled};

const EMPTY: Colour = Colour(0xec, 0xec, 0xec);
/// Width of the bar that tells what the colours mean.
const BAR: f64 = 18.0;
/// Height of all rows, if each is then between the other two.
const HEIGHT: f64 = 380.0;
const LEAST_ROW: f64 = 26.0;
const MOST_ROW: f64 = 64.0;

/// From low to high: viridis (Smith and van der Walt, 2015), which grows evenly lighter for all eyes
/// and in print without colours.
const COLOURS: [Colour; 9] = [
    Colour(0x44, 0x01, 0x54),
    Colour(0x47, 0x2d, 0x7b),
    Colour(0x3b, 0x52, 0x8b),
    Colour(0x2c, 0x72, 0x8e),
    Colour(0x21, 0x91, 0x8c),
    Colour(0x28, 0xae, 0x80),
    Colour(0x5e, 0xc9, 0x62),
    Colour(0xad, 0xdc, 0x30),
    Colour(0xfd, 0xe7, 0x25),
];

/// From below the middle to above it: vik without its darkest ends (Crameri, 2018), which is even for all eyes.
const PARTING: [Colour; 7] = [
    Colour(0x9c, 0x46, 0x14),
    Colour(0xc9, 0x7a, 0x49),
    Colour(0xe6, 0xbb, 0x9c),
    Colour(0xf4, 0xf2, 0xef),
    Colour(0x9f, 0xc3, 0xd6),
    Colour(0x4f, 0x8f, 0xb2),
    Colour(0x12, 0x5c, 0x8c),
];

/// A heat map.
pub fn grid(grid: &Grid) -> Canvas {
    let mut canvas = Canvas::new(WIDTH, 0.0, &grid.title);
    let top = draw_head(&mut canvas, &grid.title, &grid.subtitle) + 8.0;
    let (columns, rows) = (grid.xs.len().max(1), grid.ys.len().max(1));
    let row = (HEIGHT / rows as f64).clamp(LEAST_ROW, MOST_ROW);
    let bottom = top + row * rows as f64;

    let x_ticks = ticks(&grid.x, &grid.xs);
    let y_ticks = ticks(&grid.y, &grid.ys);
    let value = Span::of(&grid.value, values(grid), Padding(0.0));
    let bar_ticks = value.ticks(&grid.value, ((bottom - top) / 45.0) as usize);
    let value_lines = LABEL.wrap(&bar_ticks.title, bottom - top);
    let left = left_of(&y_ticks, bottom - top);
    let bar_title = value_lines.len() as f64 * UPRIGHT_LINE;
    let bar_right = WIDTH - MARGIN - bar_title - widest(&bar_ticks) - 16.0;
    let area = Area { left, top, right: bar_right - BAR - 24.0, bottom };

    let column = area.width() / columns as f64;
    let texts = Texts::of(grid, column - 6.0);
    let colours = Colours(if grid.diverging { &PARTING } else { &COLOURS });
    for y in 0..grid.ys.len() {
        for x in 0..grid.xs.len() {
            let cell = Area {
                left: left + x as f64 * column,
                top: bottom - (y + 1) as f64 * row,
                right: left + (x + 1) as f64 * column - 1.0,
                bottom: bottom - y as f64 * row - 1.0,
            };
            texts.draw(&mut canvas, cell, grid.cell(x, y), |number| colours.at(value.at(number)));
        }
    }
    draw_beside(&mut canvas, &y_ticks, |index| bottom - (index + 0.5) * row, area);
    let below = |index: f64| left + (index + 0.5) * column;
    let end = match grid.x.names.is_empty() {
        true => draw_below(&mut canvas, &x_ticks, below, area),
        false => draw_names(&mut canvas, x_ticks, below, area),
    };
    let bar = Area { left: bar_right - BAR, right: bar_right, ..area };
    draw_bar(&mut canvas, bar, value, &colours, (&bar_ticks, value_lines));
    finish(canvas, end + 6.0)
}

fn values(grid: &Grid) -> impl Iterator<Item = f64> {
    (0..grid.ys.len())
        .flat_map(|y| (0..grid.xs.len()).map(move |x| (x, y)))
        .filter_map(|(x, y)| grid.cell(x, y))
}

/// As [`draw_below`], of names: where they have no room beside each other, they are put on several lines in turn.
fn draw_names(
    canvas: &mut Canvas,
    mut ticks: Ticks,
    place: impl Fn(f64) -> f64,
    field: Area,
) -> f64 {
    const LINE: f64 = 16.0;
    let names: Vec<(f64, String)> = std::mem::take(&mut ticks.major);
    let fit = |lines: &usize| {
        names.windows(lines + 1).all(|names| {
            let [(first, one), .., (last, other)] = names else { return true };
            let widths = (TICK.width(one) + TICK.width(other)) / 2.0;
            place(*last) - place(*first) >= widths + 4.0
        })
    };
    let lines = (1..names.len()).find(fit).unwrap_or(1);
    for (index, (at, name)) in names.iter().enumerate() {
        let y = field.bottom + 20.0 + (index % lines) as f64 * LINE;
        canvas.text((place(*at), y), name.clone(), TICK.anchor(Anchor::Middle));
    }
    let bottom = field.bottom + (lines - 1) as f64 * LINE;
    draw_below(canvas, &ticks, place, Area { bottom, ..field })
}

/// The quantity's values at the places of their cells.
fn ticks(axis: &Axis, values: &[f64]) -> Ticks {
    let text = |value: &f64| match axis.names.get(*value as usize) {
        Some(name) => name.clone(),
        None => written_with(*value, &axis.unit, 3),
    };
    let major = values.iter().enumerate().map(|(place, v)| (place as f64, text(v))).collect();
    // Seconds stand beside each number.
    let unit = if axis.unit == "s" { "" } else { &axis.unit };
    Ticks { major, minor: Vec::new(), title: titled(&axis.label, unit) }
}

/// How numbers are written into cells.
struct Texts {
    size: f64,
    unit: String,
    /// Significant ones.
    digits: usize,
    /// So many in all cells, if their numbers are of one size.
    decimals: Option<usize>,
}

impl Texts {
    /// As large and with as many digits as cells have room for.
    fn of(grid: &Grid, room: f64) -> Self {
        let largest = values(grid).fold(0.0, |largest: f64, value| largest.max(value.abs()));
        let alike = values(grid).all(|value| value == 0.0 || value.abs() >= largest / 50.0);
        // Of what is ahead or behind, one is where it matters: 0.97 beside 21.9.
        let alike = alike
            && !grid.diverging
            && (1e-3..1e6).contains(&largest)
            && !is_base(&grid.value.unit);
        let with = |size: f64, digits: usize| {
            let unit = grid.value.unit.clone();
            let decimals = usize::try_from(digits as i32 - 1 - exponent(largest)).unwrap_or(0);
            Texts { size, unit, digits, decimals: alike.then_some(decimals) }
        };
        let sizes = [(13.0, 3), (11.0, 3), (10.0, 3), (10.0, 2), (9.0, 2), (8.0, 2)];
        let mut all = sizes.into_iter().map(|(size, digits)| with(size, digits));
        let fits = |texts: &Texts| {
            let lettering = Lettering::new(texts.size, INK);
            values(grid).all(|value| lettering.width(&texts.text(value)) <= room)
        };
        all.find(fits).unwrap_or_else(|| with(7.0, 2))
    }

    fn text(&self, value: f64) -> String {
        match self.decimals {
            Some(decimals) => fixed(value, decimals),
            None => written_with(value, &self.unit, self.digits),
        }
    }

    fn draw(
        &self,
        canvas: &mut Canvas,
        cell: Area,
        value: Option<f64>,
        colour: impl Fn(f64) -> Colour,
    ) {
        let fill = value.map_or(EMPTY, colour);
        canvas.fill(cell, fill);
        let text = value.map_or("–".to_owned(), |value| self.text(value));
        let lettering = Lettering::new(self.size, over(fill)).anchor(Anchor::Middle);
        let x = (cell.left + cell.right) / 2.0;
        let y = (cell.top + cell.bottom) / 2.0 + lettering.drop();
        canvas.text((x, y), text, lettering);
    }
}

fn draw_bar(
    canvas: &mut Canvas,
    bar: Area,
    span: Span,
    colours: &Colours,
    (ticks, title): (&Ticks, Vec<String>),
) {
    const STEPS: usize = 96;
    let step = bar.height() / STEPS as f64;
    for index in 0..STEPS {
        let bottom = bar.bottom - index as f64 * step;
        // A little over the next, so that no light shows between them.
        let top = (bottom - step - 0.5).max(bar.top);
        let fill = colours.at((index as f64 + 0.5) / STEPS as f64);
        canvas.fill(Area { top, bottom, ..bar }, fill);
    }
    for (value, text) in &ticks.major {
        let y = bar.bottom - span.at(*value) * bar.height();
        canvas.line((bar.right, y), (bar.right + 4.0, y), INK, 1.0);
        canvas.text((bar.right + 7.0, y + TICK.drop()), text.clone(), TICK);
    }
    let middle = (bar.top + bar.bottom) / 2.0;
    for (index, line) in title.into_iter().enumerate() {
        let x = bar.right + 7.0 + widest(ticks) + 18.0 + index as f64 * UPRIGHT_LINE;
        canvas.text((x, middle), line, LABEL.anchor(Anchor::Middle).upwards());
    }
}

/// Colours from the low end to the high one.
struct Colours(&'static [Colour]);

impl Colours {
    /// That of a share of the span.
    fn at(&self, share: f64) -> Colour {
        let Colours(colours) = self;
        if !share.is_finite() {
            return EMPTY;
        }
        let place = share.clamp(0.0, 1.0) * (colours.len() - 1) as f64;
        let index = (place as usize).min(colours.len() - 2);
        let (low, high) = (colours[index], colours[index + 1]);
        let part = place - index as f64;
        let mix =
            |a: u8, b: u8| (f64::from(a) + (f64::from(b) - f64::from(a)) * part).round() as u8;
        Colour(mix(low.0, high.0), mix(low.1, high.1), mix(low.2, high.2))
    }
}

/// Letters that can be read on `fill`: contrast by relative luminance, as WCAG 2.1 has it.
fn over(fill: Colour) -> Colour {
    let part = |part: u8| {
        let share = f64::from(part) / 255.0;
        if share <= 0.039_28 { share / 12.92 } else { ((share + 0.055) / 1.055).powf(2.4) }
    };
    let luminance = 0.2126 * part(fill.0) + 0.7152 * part(fill.1) + 0.0722 * part(fill.2);
    if luminance > 0.22 { INK } else { WHITE }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::Figure;

    fn example() -> Grid {
        Grid {
            title: "Utilisation".into(),
            x: Axis::log("link rate", "b/s"),
            y: Axis::log("RTT", "s"),
            xs: vec![1e6, 1e9],
            ys: vec![1e-3, 1e-1],
            cells: vec![vec![Some(0.5), Some(0.123)], vec![Some(0.999), None]],
            value: Axis::linear("utilisation", "").between(0.0, 1.0),
            ..Grid::default()
        }
    }

    #[test]
    fn each_cell_has_its_number() {
        let text = Figure::from(example()).svg();
        roxmltree::Document::parse(&text).unwrap();
        for label in [
            ">0.500<",
            ">0.123<",
            ">0.999<",
            ">–<",
            ">1M<",
            ">1G<",
            ">1 ms<",
            ">100 ms<",
            ">RTT<",
            ">link rate (b/s)<",
            ">utilisation<",
        ] {
            assert!(text.contains(label), "{label} in {text}");
        }
    }

    #[test]
    fn numbers_of_many_sizes_have_few_digits() {
        let throughput = Grid {
            cells: vec![vec![Some(1_234_567.0), Some(9.876e8)]],
            value: Axis::log("throughput", "b/s"),
            ..example()
        };
        let text = Figure::from(throughput).svg();
        assert!(text.contains(">1.23M<") && text.contains(">988M<"), "{text}");
        let ratio = Grid {
            cells: vec![vec![Some(0.012_34), Some(56.78)]],
            value: Axis::log("ratio", ""),
            ..example()
        };
        let text = Figure::from(ratio).svg();
        assert!(text.contains(">0.0123<") && text.contains(">56.8<"), "{text}");
    }

    #[test]
    fn things_by_name_have_rows_and_columns() {
        let named = |names: [&str; 2]| Axis::named(names.map(str::to_owned).into());
        let (xs, ys) = (vec![0.0, 1.0], vec![0.0, 1.0]);
        let grid = Grid { x: named(["one", "two"]), y: named(["a", "b"]), xs, ys, ..example() };
        let text = Figure::from(grid).svg();
        assert!([">one<", ">two<", ">a<", ">b<"].iter().all(|name| text.contains(name)), "{text}");
    }

    #[test]
    fn names_without_room_stand_on_several_lines() {
        let names: Vec<String> = (0..12).map(|n| format!("a long name {n}")).collect();
        let xs: Vec<f64> = (0..12).map(f64::from).collect();
        let row = vec![Some(0.97); 12];
        let grid = Grid { x: Axis::named(names.clone()), xs, cells: vec![row], ..example() };
        let text = Figure::from(grid).svg();
        assert!(names.iter().all(|name| text.contains(&format!(">{name}<"))), "{text}");
    }

    #[test]
    fn ratios_have_digits_where_they_turn() {
        let cells = vec![vec![Some(0.969), Some(21.9)]];
        let grid = Grid { cells, diverging: true, ..example() };
        let text = Figure::from(grid).svg();
        assert!(text.contains(">0.969<") && text.contains(">21.9<"), "{text}");
    }

    #[test]
    fn a_grid_of_nothing_is_a_picture_too() {
        assert!(Figure::from(Grid::default()).svg().ends_with("</svg>\n"));
        let ragged = Grid { cells: vec![vec![Some(f64::NAN)]], ..example() };
        assert_eq!(Figure::from(ragged).svg().matches(">–<").count(), 4);
    }

    #[test]
    fn colours_reach_from_end_to_end() {
        let colours = Colours(&COLOURS);
        assert_eq!(colours.at(0.0), COLOURS[0]);
        assert_eq!(colours.at(1.0), COLOURS[8]);
        assert_eq!(colours.at(7.0), COLOURS[8]);
        assert_eq!(colours.at(0.5), COLOURS[4]);
        assert_eq!(colours.at(f64::NAN), EMPTY);
        assert_eq!(Colours(&PARTING).at(0.5), PARTING[3]);
        assert_eq!((over(COLOURS[0]), over(COLOURS[8])), (WHITE, INK));
    }
}
