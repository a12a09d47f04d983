//! Pictures as PNG.

use tiny_skia::{
    Color, FillRule, LineJoin, Mask, Paint, Path, PathBuilder, Pixmap, Rect, Stroke, StrokeDash,
    Transform,
};
use ttf_parser::OutlineBuilder;

use super::canvas::{Anchor, Canvas, Colour, Lettering, Point, Shape};
use super::font;

/// Pixels of the file for each pixel of the picture, so that letters are sharp.
pub const SCALE: u32 = 2;

/// `canvas` as a file of RGB pixels.
pub fn file(canvas: &Canvas) -> Vec<u8> {
    let side = |length: f64| (length.ceil() as u32).clamp(1, 8000) * SCALE;
    let (width, height) = (side(canvas.width), side(canvas.height));
    let mut pixels = Pixmap::new(width, height).expect("both sides are between one and 16000");
    pixels.fill(Color::WHITE);
    for shape in &canvas.shapes {
        draw(&mut pixels, shape);
    }
    encode(&pixels)
}

fn draw(pixels: &mut Pixmap, shape: &Shape) {
    let scale = Transform::from_scale(SCALE as f32, SCALE as f32);
    match shape {
        Shape::Box { area, fill } => {
            let sides = [area.left, area.top, area.right, area.bottom].map(|side| side as f32);
            if let Some(rect) = Rect::from_ltrb(sides[0], sides[1], sides[2], sides[3]) {
                pixels.fill_rect(rect, &paint(*fill), scale, None);
            }
        }
        Shape::Path { points, colour, width, dash } => {
            let stroke = Stroke {
                width: *width as f32,
                line_join: LineJoin::Round,
                dash: dash.and_then(|[on, off]| StrokeDash::new(vec![on as f32, off as f32], 0.0)),
                ..Stroke::default()
            };
            if let Some(path) = lines(points, false) {
                pixels.stroke_path(&path, &paint(*colour), &stroke, scale, None);
            }
        }
        Shape::Polygon { points, fill } => {
            if let Some(path) = lines(points, true) {
                pixels.fill_path(&path, &paint(*fill), FillRule::Winding, scale, None);
            }
        }
        Shape::Disc { centre, radius, fill } => {
            let disc = PathBuilder::from_circle(centre.0 as f32, centre.1 as f32, *radius as f32);
            if let Some(path) = disc {
                pixels.fill_path(&path, &paint(*fill), FillRule::Winding, scale, None);
            }
        }
        Shape::Text { at, content, lettering } => write(pixels, *at, content, lettering),
    }
}

fn write(pixels: &mut Pixmap, at: Point, content: &str, lettering: &Lettering) {
    let width = lettering.width(content);
    let begin = match lettering.anchor {
        Anchor::Start => 0.0,
        Anchor::Middle => -width / 2.0,
        Anchor::End => -width,
    };
    let turn = if lettering.upwards { -90.0 } else { 0.0 };
    let place = Transform::from_scale(SCALE as f32, SCALE as f32)
        .pre_translate(at.0 as f32, at.1 as f32)
        .pre_rotate(turn);
    let letter = |x: f64, scale: f64| Outline { path: PathBuilder::new(), x: begin + x, scale };
    let colour = paint(lettering.colour);
    font::outlines(content, lettering.weight, lettering.size, letter, |outline| {
        if let Some(path) = outline.path.finish() {
            pixels.fill_path(&path, &colour, FillRule::Winding, place, None::<&Mask>);
        }
    });
}

/// A letter as a path. Fonts count upwards, pictures downwards.
struct Outline {
    path: PathBuilder,
    x: f64,
    scale: f64,
}

impl Outline {
    fn at(&self, x: f32, y: f32) -> (f32, f32) {
        ((self.x + f64::from(x) * self.scale) as f32, (-f64::from(y) * self.scale) as f32)
    }
}

impl OutlineBuilder for Outline {
    fn move_to(&mut self, x: f32, y: f32) {
        let to = self.at(x, y);
        self.path.move_to(to.0, to.1);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        let to = self.at(x, y);
        self.path.line_to(to.0, to.1);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        let (by, to) = (self.at(x1, y1), self.at(x, y));
        self.path.quad_to(by.0, by.1, to.0, to.1);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        let (by, then, to) = (self.at(x1, y1), self.at(x2, y2), self.at(x, y));
        self.path.cubic_to(by.0, by.1, then.0, then.1, to.0, to.1);
    }

    fn close(&mut self) {
        self.path.close();
    }
}

fn lines(points: &[Point], closed: bool) -> Option<Path> {
    let mut path = PathBuilder::new();
    for (index, point) in points.iter().enumerate() {
        let (x, y) = (point.0 as f32, point.1 as f32);
        if index == 0 { path.move_to(x, y) } else { path.line_to(x, y) }
    }
    if closed {
        path.close();
    }
    path.finish()
}

fn paint(Colour(red, green, blue): Colour) -> Paint<'static> {
    let mut paint = Paint::default();
    paint.set_color_rgba8(red, green, blue, 255);
    paint
}

fn encode(pixels: &Pixmap) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, pixels.width(), pixels.height());
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::High);
    // Nothing is transparent, as the canvas is filled first.
    let rgb: Vec<u8> =
        pixels.data().chunks_exact(4).flat_map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect();
    let mut writer = encoder.write_header().expect("a vector takes all it is given");
    writer.write_image_data(&rgb).expect("the data has the length of the picture");
    writer.finish().expect("a vector takes all it is given");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::canvas::{Area, INK};

    #[test]
    fn a_file_has_the_size_and_the_colours_of_the_picture() {
        let mut canvas = Canvas::new(30.0, 20.0, "");
        canvas.fill(
            Area { left: 0.0, top: 0.0, right: 10.0, bottom: 10.0 },
            Colour(0x00, 0x72, 0xb2),
        );
        canvas.text((15.0, 18.0), "M", Lettering::new(12.0, INK));
        let file = file(&canvas);
        let mut reader = png::Decoder::new(std::io::Cursor::new(&file)).read_info().unwrap();
        let mut data = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut data).unwrap();
        assert_eq!((info.width, info.height), (60, 40));
        assert_eq!(info.color_type, png::ColorType::Rgb);
        assert_eq!(data[..3], [0x00, 0x72, 0xb2]);
        assert_eq!(data[data.len() - 3..], [0xff; 3]);
        assert!(data[60 * 3 * 20..].chunks(3).any(|pixel| pixel == [0x22; 3]), "no letter");
    }
}
