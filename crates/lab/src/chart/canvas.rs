//! What a picture consists of, before it becomes SVG or PNG.

use super::font::{self, Weight};

/// Red, green and blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Colour(pub u8, pub u8, pub u8);

impl Colour {
    /// Mixed with so much white, 0 to 1.
    pub fn paler(self, white: f64) -> Colour {
        let mix = |part: u8| (f64::from(part) * (1.0 - white) + 255.0 * white).round() as u8;
        Colour(mix(self.0), mix(self.1), mix(self.2))
    }
}

pub const WHITE: Colour = Colour(0xff, 0xff, 0xff);
pub const INK: Colour = Colour(0x22, 0x22, 0x22);
pub const FAINT_INK: Colour = Colour(0x5a, 0x5a, 0x5a);

/// A position, pixels from the upper left corner.
pub type Point = (f64, f64);

/// A box, pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Area {
    pub left: f64,
    pub top: f64,
    pub right: f64,
    pub bottom: f64,
}

impl Area {
    pub fn width(&self) -> f64 {
        self.right - self.left
    }

    pub fn height(&self) -> f64 {
        self.bottom - self.top
    }
}

/// Which part of a text is at its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// How a text looks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lettering {
    /// Height of the font, pixels.
    pub size: f64,
    pub weight: Weight,
    pub colour: Colour,
    pub anchor: Anchor,
    /// Turned to read upwards.
    pub upwards: bool,
}

impl Lettering {
    pub const fn new(size: f64, colour: Colour) -> Self {
        let weight = Weight::Regular;
        Lettering { size, weight, colour, anchor: Anchor::Start, upwards: false }
    }

    pub const fn bold(self) -> Self {
        Lettering { weight: Weight::Bold, ..self }
    }

    pub const fn anchor(self, anchor: Anchor) -> Self {
        Lettering { anchor, ..self }
    }

    pub const fn upwards(self) -> Self {
        Lettering { upwards: true, ..self }
    }

    /// Width of `text`, pixels.
    pub fn width(&self, text: &str) -> f64 {
        font::width(text, self.weight, self.size)
    }

    /// From the middle of the letters down to the line they stand on.
    pub fn drop(&self) -> f64 {
        self.size * 0.36
    }

    /// `text` in lines of at most `room` pixels. A word that is wider has a line of its own and is
    /// cut, with an ellipsis.
    pub fn wrap(&self, text: &str, room: f64) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for word in text.split_whitespace() {
            let word = self.cut(word, room);
            if let Some(last) = lines.last_mut() {
                let longer = format!("{last} {word}");
                if self.width(&longer) <= room {
                    *last = longer;
                    continue;
                }
            }
            lines.push(word);
        }
        lines
    }

    /// `text`, cut with an ellipsis if it is wider than `room`.
    pub fn cut(&self, text: &str, room: f64) -> String {
        if self.width(text) <= room {
            return text.to_owned();
        }
        let mut kept = text.to_owned();
        while kept.pop().is_some() {
            let shown = format!("{}…", kept.trim_end());
            if self.width(&shown) <= room {
                return shown;
            }
        }
        String::new()
    }
}

/// A part of a picture.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// A box filled with a colour.
    Box { area: Area, fill: Colour },
    /// Lines from point to point.
    Path { points: Vec<Point>, colour: Colour, width: f64, dash: Option<[f64; 2]> },
    /// A polygon, filled.
    Polygon { points: Vec<Point>, fill: Colour },
    /// A disc.
    Disc { centre: Point, radius: f64, fill: Colour },
    /// Text whose anchor stands on its base line at this position.
    Text { at: Point, content: String, lettering: Lettering },
}

/// A picture.
#[derive(Clone, Debug)]
pub struct Canvas {
    pub width: f64,
    pub height: f64,
    /// What the picture is called by those who do not see it.
    pub title: String,
    /// From the back to the front.
    pub shapes: Vec<Shape>,
}

impl Canvas {
    /// An empty, white picture.
    pub fn new(width: f64, height: f64, title: &str) -> Self {
        let mut canvas = Canvas { width, height, title: title.to_owned(), shapes: Vec::new() };
        canvas.fill(Area { left: 0.0, top: 0.0, right: width, bottom: height }, WHITE);
        canvas
    }

    pub fn fill(&mut self, area: Area, fill: Colour) {
        self.shapes.push(Shape::Box { area, fill });
    }

    pub fn line(&mut self, from: Point, to: Point, colour: Colour, width: f64) {
        self.shapes.push(Shape::Path { points: vec![from, to], colour, width, dash: None });
    }

    pub fn path(&mut self, points: Vec<Point>, colour: Colour, width: f64, dash: Option<[f64; 2]>) {
        if points.len() > 1 {
            self.shapes.push(Shape::Path { points, colour, width, dash });
        }
    }

    pub fn text(&mut self, at: Point, content: impl Into<String>, lettering: Lettering) {
        let content = content.into();
        if !content.is_empty() {
            self.shapes.push(Shape::Text { at, content, lettering });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_in_its_room() {
        let lettering = Lettering::new(14.0, INK);
        let text = "some words that need several lines, and onesingularlylongwordthatneverends";
        let lines = lettering.wrap(text, 120.0);
        assert!(lines.len() > 3);
        assert!(lines.iter().all(|line| lettering.width(line) <= 120.0), "{lines:?}");
        assert!(lines.last().unwrap().ends_with('…'), "{lines:?}");
        assert_eq!(lettering.wrap("short", 120.0), ["short"]);
        assert!(lettering.wrap("", 120.0).is_empty());
        assert_eq!(lettering.cut("anything", 1.0), "");
    }
}
