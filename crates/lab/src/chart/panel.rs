//! Curves on a canvas, alone or above each other.

use super::canvas::{Anchor, Area, Canvas, Colour, FAINT_INK, INK, Lettering, Point, Shape, WHITE};
use super::ticks::{Padding, Span, Ticks};
use super::{Chart, Panels, Series, Strip, Style, strip};

/// Width of all pictures, pixels.
pub const WIDTH: f64 = 960.0;
pub const MARGIN: f64 = 20.0;
/// Heights of the field of curves, alone and as one of several.
const ALONE: f64 = 400.0;
const AMONG: f64 = 190.0;
/// Height of the row of a thing that has a name.
const NAMED: f64 = 34.0;
/// Height of a row of the legend.
pub const ROW: f64 = 23.0;
/// Height of a line of small text.
const LINE: f64 = 17.0;
/// Room for a line of an upright title.
pub const UPRIGHT_LINE: f64 = 19.0;
/// What labels of references may take on the right.
const REFERENCE_ROOM: f64 = 130.0;
pub const SAMPLE: f64 = 34.0;
/// Height of the smallest column.
const LEAST_COLUMN: f64 = 3.0;

const FRAME: Colour = Colour(0x80, 0x80, 0x80);
const GRID: Colour = Colour(0xe2, 0xe2, 0xe2);
const FAINT_GRID: Colour = Colour(0xf2, 0xf2, 0xf2);
const REFERENCE: Colour = Colour(0x44, 0x44, 0x44);

const TITLE: Lettering = Lettering::new(21.0, INK).bold();
const PANEL_TITLE: Lettering = Lettering::new(15.0, INK).bold();
const SUBTITLE: Lettering = Lettering::new(14.0, FAINT_INK);
pub const LABEL: Lettering = Lettering::new(14.0, INK);
pub const TICK: Lettering = Lettering::new(13.0, INK);
const NOTE: Lettering = Lettering::new(12.0, REFERENCE);

/// Colours that the colour-blind can tell apart too (Okabe and Ito, 2008), without the yellow that
/// is lost on white; after those seven, wine, olive (Tol, 2021) and grey.
pub const PALETTE: [Colour; 10] = [
    Colour(0x00, 0x72, 0xb2),
    Colour(0xd5, 0x5e, 0x00),
    Colour(0x00, 0x9e, 0x73),
    Colour(0xcc, 0x79, 0xa7),
    Colour(0xe6, 0x9f, 0x00),
    Colour(0x56, 0xb4, 0xe9),
    Colour(0x22, 0x22, 0x22),
    Colour(0x88, 0x22, 0x55),
    Colour(0x99, 0x99, 0x33),
    Colour(0x99, 0x99, 0x99),
];

/// Marks, told apart without colours.
const MARKS: [Mark; 6] =
    [Mark::Disc, Mark::Square, Mark::Up, Mark::Diamond, Mark::Down, Mark::Cross];

#[derive(Clone, Copy, Debug)]
enum Mark {
    Disc,
    Square,
    Up,
    Diamond,
    Down,
    Cross,
}

/// A chart alone.
pub fn chart(chart: &Chart) -> Canvas {
    let x = Span::of(&chart.x, xs(chart), Padding(0.01));
    // Things by name have a row each.
    let height = if chart.y.names.is_empty() { ALONE } else { chart.y.names.len() as f64 * NAMED };
    draw((&chart.title, &chart.subtitle), std::slice::from_ref(chart), None, x, height)
}

/// Charts above each other.
pub fn panels(panels: &Panels) -> Canvas {
    let axis = panels.charts.first().map(|chart| chart.x.clone()).unwrap_or_default();
    let strip = panels.strip.as_ref();
    let ends = strip.into_iter().flat_map(strip::ends);
    let x = Span::of(&axis, panels.charts.iter().flat_map(xs).chain(ends), Padding(0.01));
    let height = if panels.charts.len() > 1 { AMONG } else { ALONE };
    draw((&panels.title, &panels.subtitle), &panels.charts, strip, x, height)
}

fn xs(chart: &Chart) -> impl Iterator<Item = f64> {
    chart.series.iter().flat_map(|series| &series.points).map(|point| point.0)
}

fn ys(chart: &Chart) -> impl Iterator<Item = f64> {
    let references = chart.references.iter().map(|reference| reference.value);
    let ends = chart.series.iter().flat_map(|series| {
        series.points.iter().enumerate().flat_map(|(index, &(_, y))| {
            let error = series.errors.get(index).copied().filter(|e| e.is_finite());
            let error = error.unwrap_or(0.0).abs();
            [y - error, y, y + error]
        })
    });
    ends.chain(references)
}

/// The title and the line under it; where they end.
pub fn draw_head(canvas: &mut Canvas, title: &str, subtitle: &str) -> f64 {
    let mut y = MARGIN - 4.0;
    for line in TITLE.wrap(title, WIDTH - 2.0 * MARGIN) {
        y += 26.0;
        canvas.text((MARGIN, y - 6.0), line, TITLE);
    }
    for line in SUBTITLE.wrap(subtitle, WIDTH - 2.0 * MARGIN) {
        y += 20.0;
        canvas.text((MARGIN, y - 4.0), line, SUBTITLE);
    }
    y + 8.0
}

fn draw(
    (title, subtitle): (&str, &str),
    charts: &[Chart],
    strip: Option<&Strip>,
    x: Span,
    height: f64,
) -> Canvas {
    let mut canvas = Canvas::new(WIDTH, 0.0, title);
    let mut top = draw_head(&mut canvas, title, subtitle);
    let all: Vec<(&Chart, Span, Ticks)> = charts
        .iter()
        .map(|chart| {
            let y = Span::of(&chart.y, ys(chart), Padding(0.05));
            let ticks = y.ticks(&chart.y, ((height + 110.0) / 55.0) as usize);
            (chart, y, ticks)
        })
        .collect();
    // All fields begin and end at the same places, so that what happens at once is in line.
    let left = all.iter().map(|(_, _, ticks)| left_of(ticks, height)).fold(0.0, f64::max);
    let left = strip.map_or(left, |strip| left.max(strip::left_of(strip)));
    let right = WIDTH - all.iter().map(|(chart, ..)| right_of(chart)).fold(0.0, f64::max);
    let x_axis = charts.first().map(|chart| &chart.x);
    let x_ticks = x_axis.map(|axis| x.ticks(axis, ((right - left) / 75.0) as usize));
    if let Some(strip) = strip {
        top = strip::draw(&mut canvas, strip, x, Area { left, top, right, bottom: top });
    }
    for (chart, y, y_ticks) in &all {
        if charts.len() > 1 {
            for line in PANEL_TITLE.wrap(&chart.title, WIDTH - 2.0 * MARGIN) {
                top += 20.0;
                canvas.text((MARGIN, top - 5.0), line, PANEL_TITLE);
            }
        }
        top = draw_legend(&mut canvas, chart, top) + 8.0;
        let area = Area { left, top, right, bottom: top + height };
        let field = Field { area, x, y: *y };
        if let Some(strip) = strip {
            strip::shade(&mut canvas, strip, x, area);
        }
        if let Some(x_ticks) = &x_ticks {
            field.draw_grid(&mut canvas, x_ticks, y_ticks);
        }
        field.draw_references(&mut canvas, chart);
        for (index, series) in chart.series.iter().enumerate() {
            field.draw_series(&mut canvas, series, Look::of(series, index));
        }
        top = area.bottom + 16.0;
    }
    if let Some(ticks) = x_ticks {
        let area = Area { left, top, right, bottom: top - 16.0 };
        top = draw_below(&mut canvas, &ticks, |value| left + x.at(value) * (right - left), area);
    }
    finish(canvas, top + 6.0)
}

/// Gives the canvas its height, which is known only at the end.
pub fn finish(mut canvas: Canvas, height: f64) -> Canvas {
    canvas.height = height.ceil();
    if let Some(Shape::Box { area, .. }) = canvas.shapes.first_mut() {
        area.bottom = canvas.height;
    }
    canvas
}

/// Where a field of that height begins, behind the numbers and the name beside it.
pub fn left_of(ticks: &Ticks, height: f64) -> f64 {
    let lines = LABEL.wrap(&ticks.title, height).len();
    MARGIN + lines as f64 * UPRIGHT_LINE + widest(ticks) + 14.0
}

/// Width of the widest number.
pub fn widest(ticks: &Ticks) -> f64 {
    ticks.major.iter().map(|(_, text)| TICK.width(text)).fold(0.0, f64::max)
}

fn right_of(chart: &Chart) -> f64 {
    let labels = chart.references.iter().map(|reference| &reference.label);
    let lines = labels.flat_map(|label| NOTE.wrap(label, REFERENCE_ROOM));
    let widest = lines.map(|line| NOTE.width(&line)).fold(0.0, f64::max);
    if widest > 0.0 { widest + 8.0 + MARGIN } else { MARGIN + 14.0 }
}

/// Rows above the field, where they hide nothing; where they end.
fn draw_legend(canvas: &mut Canvas, chart: &Chart, top: f64) -> f64 {
    const GAP: f64 = 26.0;
    let named = chart.series.iter().enumerate().filter(|(_, series)| !series.name.is_empty());
    let (mut x, mut y) = (MARGIN, top);
    let mut any = false;
    for (index, series) in named {
        let text = LABEL.cut(&series.name, WIDTH - 2.0 * MARGIN - SAMPLE - 8.0);
        let width = SAMPLE + 8.0 + LABEL.width(&text);
        if x + width > WIDTH - MARGIN && x > MARGIN {
            (x, y) = (MARGIN, y + ROW);
        }
        let middle = y + ROW / 2.0;
        let look = Look::of(series, index);
        let sample = Area { left: x, top: middle - 6.0, right: x + SAMPLE, bottom: middle + 6.0 };
        look.draw_sample(canvas, series.style, sample);
        canvas.text((x + SAMPLE + 8.0, middle + LABEL.drop()), text, LABEL);
        x += width + GAP;
        any = true;
    }
    if any { y + ROW } else { y }
}

/// Numbers and name of what runs to the right, under a field; where they end.
pub fn draw_below(
    canvas: &mut Canvas,
    ticks: &Ticks,
    place: impl Fn(f64) -> f64,
    field: Area,
) -> f64 {
    let places: Vec<(f64, f64)> =
        ticks.major.iter().map(|(value, text)| (place(*value), TICK.width(text) / 2.0)).collect();
    // Every one, every second and so on, until they have room.
    let fit = |every: &usize| {
        let shown: Vec<_> = places.iter().step_by(*every).collect();
        shown.windows(2).all(|pair| pair[0].0 + pair[0].1 + 4.0 <= pair[1].0 - pair[1].1)
    };
    let every = (1..=places.len()).find(fit).unwrap_or(1);
    for ((x, _), (_, text)) in places.iter().zip(&ticks.major).step_by(every) {
        canvas.text((*x, field.bottom + 20.0), text.clone(), TICK.anchor(Anchor::Middle));
    }
    let mut y = field.bottom + 26.0;
    let middle = (field.left + field.right) / 2.0;
    for line in LABEL.wrap(&ticks.title, field.width()) {
        y += LINE + 1.0;
        canvas.text((middle, y - 2.0), line, LABEL.anchor(Anchor::Middle));
    }
    y + 6.0
}

/// Numbers and name of what runs upwards, beside a field.
pub fn draw_beside(canvas: &mut Canvas, ticks: &Ticks, place: impl Fn(f64) -> f64, field: Area) {
    let mut free = f64::INFINITY;
    for (value, text) in &ticks.major {
        let y = place(*value);
        if y + TICK.size / 2.0 > free {
            continue;
        }
        free = y - TICK.size / 2.0 - 3.0;
        let at = (field.left - 9.0, y + TICK.drop());
        canvas.text(at, text.clone(), TICK.anchor(Anchor::End));
    }
    let middle = (field.top + field.bottom) / 2.0;
    for (index, line) in LABEL.wrap(&ticks.title, field.height()).into_iter().enumerate() {
        let x = MARGIN + index as f64 * UPRIGHT_LINE + 10.0;
        canvas.text((x, middle), line, LABEL.anchor(Anchor::Middle).upwards());
    }
}

/// Where curves are drawn.
struct Field {
    area: Area,
    x: Span,
    y: Span,
}

impl Field {
    /// Where a point lies; not finite if nowhere.
    fn place(&self, (x, y): (f64, f64)) -> Point {
        (
            self.area.left + self.x.at(x) * self.area.width(),
            self.area.bottom - self.y.at(y) * self.area.height(),
        )
    }

    fn holds(&self, (x, y): Point) -> bool {
        (self.area.left - 0.5..=self.area.right + 0.5).contains(&x)
            && (self.area.top - 0.5..=self.area.bottom + 0.5).contains(&y)
    }

    fn draw_grid(&self, canvas: &mut Canvas, x_ticks: &Ticks, y_ticks: &Ticks) {
        let Area { left, top, right, bottom } = self.area;
        let x_at = |value: f64| left + self.x.at(value) * self.area.width();
        let y_at = |value: f64| bottom - self.y.at(value) * self.area.height();
        for x in x_ticks.minor.iter().map(|value| x_at(*value)) {
            canvas.line((x, top), (x, bottom), FAINT_GRID, 1.0);
        }
        for y in y_ticks.minor.iter().map(|value| y_at(*value)) {
            canvas.line((left, y), (right, y), FAINT_GRID, 1.0);
        }
        for x in x_ticks.major.iter().map(|(value, _)| x_at(*value)) {
            canvas.line((x, top), (x, bottom), GRID, 1.0);
            canvas.line((x, bottom), (x, bottom + 5.0), FRAME, 1.0);
        }
        for y in y_ticks.major.iter().map(|(value, _)| y_at(*value)) {
            canvas.line((left, y), (right, y), GRID, 1.0);
            canvas.line((left - 5.0, y), (left, y), FRAME, 1.0);
        }
        canvas.path(vec![(left, top), (left, bottom), (right, bottom)], FRAME, 1.0, None);
        draw_beside(canvas, y_ticks, y_at, self.area);
    }

    fn draw_references(&self, canvas: &mut Canvas, chart: &Chart) {
        let Area { left, right, bottom, .. } = self.area;
        let dash = Some([7.0, 5.0]);
        let mut labels = Vec::new();
        for reference in &chart.references {
            let y = bottom - self.y.at(reference.value) * self.area.height();
            if self.holds((left, y)) {
                canvas.path(vec![(left, y), (right, y)], REFERENCE, 1.2, dash);
                labels.push((y, NOTE.wrap(&reference.label, REFERENCE_ROOM)));
            }
        }
        // Labels beside the ends of their lines, moved down where they would overlap.
        labels.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut free = f64::NEG_INFINITY;
        for (y, lines) in labels {
            let height = lines.len() as f64 * 14.0;
            let begin = (y - height / 2.0).max(free);
            for (index, line) in lines.into_iter().enumerate() {
                let base = begin + 11.0 + index as f64 * 14.0;
                canvas.text((right + 8.0, base), line, NOTE);
            }
            free = begin + height + 2.0;
        }
    }

    fn draw_series(&self, canvas: &mut Canvas, series: &Series, look: Look) {
        let places: Vec<Point> = series.points.iter().map(|point| self.place(*point)).collect();
        if series.style == Style::Columns {
            return self.draw_columns(canvas, &places, look);
        }
        if series.style != Style::Points {
            for part in clipped(&places, self.area) {
                look.draw_line(canvas, part);
            }
        }
        for (&(x, y), &error) in series.points.iter().zip(&series.errors) {
            self.draw_error(canvas, (x, y), error.abs(), look.colour);
        }
        // Marks that touch each other are a thick line.
        let every = match series.style {
            Style::Line | Style::Columns => return,
            Style::Both => places.len().div_ceil(40).max(1),
            Style::Points => 1,
        };
        for place in places.iter().step_by(every).filter(|place| self.holds(**place)) {
            look.draw_mark(canvas, *place);
        }
    }

    fn draw_columns(&self, canvas: &mut Canvas, places: &[Point], look: Look) {
        let Area { left, top, right, bottom } = self.area;
        let zero = self.place((self.x.low, 0.0)).1;
        // On a logarithmic axis zero lies nowhere.
        let base = if zero.is_finite() { zero.clamp(top, bottom) } else { bottom };
        let apart = places.windows(2).map(|pair| pair[1].0 - pair[0].0).filter(|dx| *dx > 0.0);
        // Wide enough to be seen, and alone not wider than a thumb.
        let half = apart.fold(24.0, f64::min).max(1.0) / 2.0;
        for &(x, y) in places.iter().filter(|place| place.0.is_finite() && place.1.is_finite()) {
            let (begin, end) = ((x - half).max(left), (x + half).min(right));
            if begin >= end || y == base {
                continue;
            }
            // One among thousands is seen all the same.
            let y = if y < base { y.min(base - LEAST_COLUMN) } else { y.max(base + LEAST_COLUMN) };
            let (high, low) = (y.min(base).max(top), y.max(base).min(bottom));
            if high < low {
                canvas.fill(Area { left: begin, top: high, right: end, bottom: low }, look.colour);
            }
        }
    }

    fn draw_error(&self, canvas: &mut Canvas, (x, y): (f64, f64), error: f64, colour: Colour) {
        let (x_at, high) = self.place((x, y + error));
        let (_, low) = self.place((x, y - error));
        let Area { top, bottom, .. } = self.area;
        // On a logarithmic axis, a bar to zero or below ends at the axis.
        let to = if low.is_nan() { bottom } else { low.min(bottom) };
        let seen = x_at.is_finite() && self.holds((x_at, top)) && high <= bottom && to >= top;
        if !seen {
            return;
        }
        canvas.line((x_at, high.max(top)), (x_at, to), colour, 1.3);
        for end in [high, low].into_iter().filter(|end| (top..=bottom).contains(end)) {
            canvas.line((x_at - 4.5, end), (x_at + 4.5, end), colour, 1.3);
        }
    }
}

/// How a series is told from the others.
#[derive(Clone, Copy, Debug)]
struct Look {
    colour: Colour,
    mark: Mark,
    dashed: bool,
}

impl Look {
    fn of(series: &Series, index: usize) -> Self {
        let number = series.colour.unwrap_or(index);
        Look {
            colour: PALETTE[number % PALETTE.len()],
            mark: MARKS[number % MARKS.len()],
            dashed: series.dashed,
        }
    }

    fn draw_line(&self, canvas: &mut Canvas, points: Vec<Point>) {
        canvas.path(points, self.colour, 2.0, self.dashed.then_some([7.0, 4.0]));
    }

    /// What stands for the series in a legend.
    fn draw_sample(&self, canvas: &mut Canvas, style: Style, area: Area) {
        let Area { left, top, right, bottom } = area;
        let middle = (top + bottom) / 2.0;
        if style == Style::Columns {
            return canvas.fill(area, self.colour);
        }
        if style != Style::Points {
            self.draw_line(canvas, vec![(left, middle), (right, middle)]);
        }
        if style != Style::Line {
            self.draw_mark(canvas, ((left + right) / 2.0, middle));
        }
    }

    /// Hollow if dashed.
    fn draw_mark(&self, canvas: &mut Canvas, at: Point) {
        self.mark.draw(canvas, at, 4.6, self.colour);
        if self.dashed {
            self.mark.draw(canvas, at, 2.6, WHITE);
        }
    }
}

impl Mark {
    fn draw(self, canvas: &mut Canvas, (x, y): Point, size: f64, fill: Colour) {
        let mut polygon = |corners: &[Point]| {
            let points =
                corners.iter().map(|corner| (x + corner.0 * size, y + corner.1 * size)).collect();
            canvas.shapes.push(Shape::Polygon { points, fill });
        };
        match self {
            Mark::Disc => canvas.shapes.push(Shape::Disc { centre: (x, y), radius: size, fill }),
            Mark::Square => polygon(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
            Mark::Up => polygon(&[(0.0, -1.2), (1.1, 0.8), (-1.1, 0.8)]),
            Mark::Down => polygon(&[(0.0, 1.2), (1.1, -0.8), (-1.1, -0.8)]),
            Mark::Diamond => polygon(&[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)]),
            Mark::Cross => polygon(&[
                (0.0, -0.45),
                (0.65, -1.1),
                (1.1, -0.65),
                (0.45, 0.0),
                (1.1, 0.65),
                (0.65, 1.1),
                (0.0, 0.45),
                (-0.65, 1.1),
                (-1.1, 0.65),
                (-0.45, 0.0),
                (-1.1, -0.65),
                (-0.65, -1.1),
            ]),
        }
    }
}

/// The parts of a line that lie within `area`. Points that are not finite interrupt it.
fn clipped(points: &[Point], area: Area) -> Vec<Vec<Point>> {
    let mut parts: Vec<Vec<Point>> = Vec::new();
    // Whether the last part goes on where the next segment begins.
    let mut open = false;
    for pair in points.windows(2) {
        let Some((from, to)) = segment_within(pair[0], pair[1], area) else {
            open = false;
            continue;
        };
        match parts.last_mut() {
            Some(part) if open && from == pair[0] => part.push(to),
            _ => parts.push(vec![from, to]),
        }
        open = to == pair[1];
    }
    parts
}

/// The part of a segment within `area` (Liang and Barsky, 1984).
fn segment_within(from: Point, to: Point, area: Area) -> Option<(Point, Point)> {
    if ![from.0, from.1, to.0, to.1].into_iter().all(f64::is_finite) {
        return None;
    }
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let (mut begin, mut end) = (0.0, 1.0);
    let sides = [
        (-dx, from.0 - area.left),
        (dx, area.right - from.0),
        (-dy, from.1 - area.top),
        (dy, area.bottom - from.1),
    ];
    for (towards, distance) in sides {
        if towards == 0.0 {
            if distance < 0.0 {
                return None;
            }
        } else if towards < 0.0 {
            begin = f64::max(begin, distance / towards);
        } else {
            end = f64::min(end, distance / towards);
        }
    }
    let at = |share: f64| (from.0 + share * dx, from.1 + share * dy);
    let first = if begin == 0.0 { from } else { at(begin) };
    let last = if end == 1.0 { to } else { at(end) };
    (begin <= end).then_some((first, last))
}

#[cfg(test)]
pub mod tests {
    use super::super::{Axis, Figure, Reference, Row, Spell};
    use super::*;

    fn example() -> Chart {
        Chart {
            title: "Title & more".into(),
            subtitle: "200 Mb/s".into(),
            x: Axis::linear("time", "s"),
            y: Axis::linear("throughput", "b/s"),
            series: vec![
                Series::line("one", vec![(0.0, 0.0), (1.0, 1e8), (2.0, 1.5e8)]),
                Series::published("two", vec![(0.0, 0.0), (2.0, 2e7)]),
            ],
            references: vec![Reference::new(2e8, "line rate")],
        }
    }

    /// All texts with the boxes they fill, those that are upright.
    fn texts(canvas: &Canvas) -> Vec<(String, Area)> {
        let upright = |shape: &Shape| match shape {
            Shape::Text { at, content, lettering } if !lettering.upwards => {
                let width = lettering.width(content);
                let left = match lettering.anchor {
                    Anchor::Start => at.0,
                    Anchor::Middle => at.0 - width / 2.0,
                    Anchor::End => at.0 - width,
                };
                let top = at.1 - lettering.size * 0.73;
                Some((content.clone(), Area { left, top, right: left + width, bottom: at.1 }))
            }
            _ => None,
        };
        canvas.shapes.iter().filter_map(upright).collect()
    }

    /// That all texts are inside and none is over another.
    pub fn assert_readable(canvas: &Canvas) {
        let texts = texts(canvas);
        for (index, (text, a)) in texts.iter().enumerate() {
            assert!(
                a.left >= 0.0
                    && a.top >= 0.0
                    && a.right <= canvas.width
                    && a.bottom <= canvas.height,
                "{text} is cut off"
            );
            for (other, b) in &texts[index + 1..] {
                let apart = a.right <= b.left
                    || b.right <= a.left
                    || a.bottom <= b.top
                    || b.bottom <= a.top;
                assert!(apart, "{text} and {other} overlap");
            }
        }
    }

    #[test]
    fn everything_is_in_the_picture() {
        let text = Figure::from(example()).svg();
        roxmltree::Document::parse(&text).unwrap();
        for label in
            ["Title &amp; more", "200 Mb/s", "time (s)", "throughput (Mb/s)", "one", "line rate"]
        {
            assert!(text.contains(label), "{label} in {text}");
        }
        // Once in the legend and once as a curve; the second series has marks too.
        assert_eq!(text.matches("stroke=\"#0072b2\"").count(), 2, "{text}");
        assert_eq!(text.matches("stroke=\"#d55e00\"").count(), 2, "{text}");
        assert_eq!(text.matches("polygon").count(), 2 * 3, "{text}");
        assert_readable(&chart(&example()));
    }

    #[test]
    fn ten_curves_have_ten_colours() {
        let line = Series::line("", Vec::new());
        let colour = |index| Look::of(&line, index).colour;
        for index in 0..10 {
            assert!((0..index).all(|other| colour(other) != colour(index)), "{index}");
        }
    }

    #[test]
    fn a_picture_is_the_same_each_time() {
        let figure = Figure::from(example());
        assert_eq!(figure.svg(), figure.svg());
        assert_eq!(figure.png(), figure.png());
    }

    #[test]
    fn a_picture_of_nothing_is_one_too() {
        let empty = Chart { series: Vec::new(), references: Vec::new(), ..example() };
        assert!(Figure::from(empty.clone()).svg().contains("time (s)"));
        let point = Series::both("point", vec![(0.0, 0.0)]);
        assert!(Figure::from(Chart { series: vec![point], ..empty }).svg().contains("point"));
        assert!(Figure::from(Panels::default()).svg().starts_with("<svg"));
        assert_readable(&chart(&Chart::default()));
    }

    #[test]
    fn long_and_many_texts_stay_apart_and_inside() {
        let line = |number| Series::both(format!("a rather long label {number}"), vec![(1.0, 2.0)]);
        let level = |value: f64| Reference::new(value, format!("a limit that is {value}"));
        let crowded = Chart {
            title: "A title of very many words ".repeat(8),
            subtitle: "A long description of conditions ".repeat(10),
            x: Axis::log("a quantity", "s"),
            series: (0..12).map(line).collect(),
            references: [5.0, 5.01, 5.02].map(level).into(),
            ..example()
        };
        assert_readable(&chart(&crowded));
        let several = Panels { charts: vec![crowded; 3], ..Panels::default() };
        assert_readable(&panels(&several));
    }

    #[test]
    fn panels_are_in_line() {
        let wide = Chart { y: Axis::linear("", ""), ..example() };
        let canvas = panels(&Panels { charts: vec![example(), wide], ..Panels::default() });
        let frames: Vec<&Vec<Point>> = canvas
            .shapes
            .iter()
            .filter_map(|shape| match shape {
                Shape::Path { points, colour: FRAME, .. } if points.len() == 3 => Some(points),
                _ => None,
            })
            .collect();
        assert_eq!(frames.len(), 2);
        assert_eq!(frames[0][0].0, frames[1][0].0);
        assert_eq!(frames[0][2].0, frames[1][2].0);
        assert!(frames[0][2].1 < frames[1][0].1);
        // What they share is written once.
        let named = |(text, _): &(String, Area)| text == "time (s)";
        assert_eq!(texts(&canvas).iter().filter(|text| named(text)).count(), 1);
    }

    fn strip(rows: usize) -> Strip {
        let spells = [(0.0, 1.5, 0), (1.5, 2.0, 1)];
        let spells = spells.map(|(from, to, kind)| Spell { from, to, kind });
        let row = |number| Row { name: format!("row {number}"), spells: spells.into() };
        Strip {
            title: "state".into(),
            kinds: vec!["slow start".into(), "avoidance".into()],
            rows: (1..=rows).map(row).collect(),
        }
    }

    #[test]
    fn what_held_meanwhile_is_in_line_with_the_curves() {
        let boxes = |rows| {
            let charts = vec![example(); 2];
            let strip = Some(strip(rows));
            let canvas = panels(&Panels { charts, strip, ..Panels::default() });
            assert_readable(&canvas);
            let named = |name: &str| texts(&canvas).iter().any(|(text, _)| text == name);
            assert!(named("state") && named("avoidance") && named("row 1"));
            let boxes = canvas.shapes.iter().filter_map(|shape| match shape {
                Shape::Box { area, .. } => Some(*area),
                _ => None,
            });
            // Behind the background and two colours of the legend.
            boxes.skip(3).collect::<Vec<Area>>()
        };
        // Two bars, and the same behind each of the charts.
        let one = boxes(1);
        assert_eq!(one.len(), 2 * 3, "{one:?}");
        for pair in one.chunks(2) {
            assert_eq!((pair[0].left, pair[0].right), (one[0].left, one[0].right));
            assert_eq!(pair[0].right, pair[1].left);
        }
        assert!(one[2].height() > 100.0);
        assert_eq!(boxes(3).len(), 2 * 3, "with several rows nothing is shaded");
    }

    #[test]
    fn columns_stand_on_zero() {
        let columns = |y: Axis, points: &[(f64, f64)]| {
            let series = vec![Series::columns("", points.to_vec())];
            let chart = chart(&Chart {
                x: Axis::linear("", "").between(0.0, 4.0),
                y,
                series,
                ..Chart::default()
            });
            let fills = chart.shapes.iter().skip(1).filter_map(|shape| match shape {
                Shape::Box { area, .. } => Some(*area),
                _ => None,
            });
            fills.collect::<Vec<Area>>()
        };
        let linear = Axis::linear("", "").between(-1.0, 3.0);
        let found = columns(linear, &[(1.0, 2.0), (2.0, -1.0), (3.0, 0.0), (3.5, f64::NAN)]);
        let [up, down] = found[..] else { panic!("{found:?}") };
        assert_eq!(up.bottom, down.top);
        assert!((up.height() / down.height() - 2.0).abs() < 1e-9);
        let log = Axis::log("", "").between(1.0, 100.0);
        let found = columns(log, &[(1.0, 10.0), (3.0, 100.0)]);
        assert!((found[1].height() / found[0].height() - 2.0).abs() < 1e-9, "{found:?}");
        assert_eq!(found[0].bottom, found[1].bottom);
        let small = columns(Axis::linear("", "").between(0.0, 1e6), &[(1.0, 1.0), (2.0, 0.0)]);
        let [one] = small[..] else { panic!("{small:?}") };
        assert_eq!(one.height(), LEAST_COLUMN);
    }

    #[test]
    fn things_by_name_have_a_row_each() {
        let names: Vec<String> = (0..30).map(|n| format!("a case with a long name {n}")).collect();
        let points = (0..30).map(|n| (f64::from(n), f64::from(n))).collect();
        let rows = Chart {
            x: Axis::linear("throughput", "Mb/s"),
            y: Axis::named(names.clone()),
            series: vec![Series::published("published", points).points()],
            references: Vec::new(),
            ..example()
        };
        let canvas = chart(&rows);
        assert_readable(&canvas);
        let texts = texts(&canvas);
        let place =
            |name: &String| texts.iter().find(|(text, _)| text == name).map(|(_, at)| at.top);
        let places: Vec<f64> = names.iter().filter_map(place).collect();
        assert_eq!(places.len(), 30);
        assert!(places.windows(2).all(|pair| pair[0] > pair[1]), "upwards");
        // Marks alone: no line, also in the legend.
        let svg = Figure::from(rows).svg();
        assert!(!svg.contains("stroke=\"#0072b2\""), "{svg}");
    }

    #[test]
    fn lines_end_at_the_edge_of_the_field() {
        let area = Area { left: 0.0, top: 0.0, right: 10.0, bottom: 10.0 };
        let zigzag = [
            (-5.0, 5.0),
            (5.0, 5.0),
            (5.0, 25.0),
            (5.0, 2.0),
            (f64::NAN, 1.0),
            (6.0, 1.0),
            (7.0, 1.0),
        ];
        assert_eq!(
            clipped(&zigzag, area),
            [
                vec![(0.0, 5.0), (5.0, 5.0), (5.0, 10.0)],
                vec![(5.0, 10.0), (5.0, 2.0)],
                vec![(6.0, 1.0), (7.0, 1.0)],
            ]
        );
        assert!(clipped(&[(-1.0, -1.0), (-1.0, 11.0)], area).is_empty());
    }

    #[test]
    fn bars_of_errors_end_at_the_edge_too() {
        let mut canvas = Canvas::new(10.0, 10.0, "");
        let before = canvas.shapes.len();
        let span = |scale| Span { low: 1.0, high: 100.0, scale };
        let field = Field {
            area: Area { left: 0.0, top: 0.0, right: 100.0, bottom: 100.0 },
            x: span(crate::chart::Scale::Linear),
            y: span(crate::chart::Scale::Log),
        };
        field.draw_error(&mut canvas, (50.0, 10.0), 20.0, INK);
        let Shape::Path { points, .. } = &canvas.shapes[before] else { panic!("no bar") };
        assert_eq!(points[1].1, 100.0);
        // The bar and its upper end.
        assert_eq!(canvas.shapes.len(), before + 2);
        field.draw_error(&mut canvas, (50.0, f64::NAN), 1.0, INK);
        assert_eq!(canvas.shapes.len(), before + 2);
    }
}
