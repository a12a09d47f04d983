//! Pictures as SVG.

use std::fmt::Write as _;

use super::canvas::{Anchor, Canvas, Colour, Point, Shape};
use super::font::{FAMILY, Weight};
use crate::number::fixed;
use crate::xml::escape;

/// `canvas` as a complete document, which may also stand inside an HTML page.
pub fn document(canvas: &Canvas) -> String {
    let (width, height) = (length(canvas.width), length(canvas.height));
    let title = escape(&canvas.title);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\" font-family=\"{FAMILY}\">\n\
         <title>{title}</title>\n"
    );
    for shape in &canvas.shapes {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{}", element(shape));
    }
    out.push_str("</svg>\n");
    out
}

fn element(shape: &Shape) -> String {
    match shape {
        Shape::Box { area, fill } => format!(
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>",
            length(area.left),
            length(area.top),
            length(area.width()),
            length(area.height()),
            hex(*fill)
        ),
        Shape::Path { points, colour, width, dash } => {
            let dash = dash.map_or(String::new(), |[on, off]| {
                format!(" stroke-dasharray=\"{} {}\"", length(on), length(off))
            });
            format!(
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" \
                 stroke-linejoin=\"round\"{dash}/>",
                corners(points),
                hex(*colour),
                length(*width)
            )
        }
        Shape::Polygon { points, fill } => {
            format!("<polygon points=\"{}\" fill=\"{}\"/>", corners(points), hex(*fill))
        }
        Shape::Disc { centre, radius, fill } => format!(
            "<circle cx=\"{}\" cy=\"{}\" r=\"{}\" fill=\"{}\"/>",
            length(centre.0),
            length(centre.1),
            length(*radius),
            hex(*fill)
        ),
        Shape::Text { at, content, lettering } => {
            let (x, y) = (length(at.0), length(at.1));
            let mut more = String::new();
            match lettering.anchor {
                Anchor::Start => {}
                Anchor::Middle => more.push_str(" text-anchor=\"middle\""),
                Anchor::End => more.push_str(" text-anchor=\"end\""),
            }
            if lettering.weight == Weight::Bold {
                more.push_str(" font-weight=\"bold\"");
            }
            if lettering.upwards {
                let _ = write!(more, " transform=\"rotate(-90 {x} {y})\"");
            }
            format!(
                "<text x=\"{x}\" y=\"{y}\" font-size=\"{}\" fill=\"{}\"{more}>{}</text>",
                length(lettering.size),
                hex(lettering.colour),
                escape(content)
            )
        }
    }
}

fn corners(points: &[Point]) -> String {
    let corner = |point: &Point| format!("{},{}", length(point.0), length(point.1));
    points.iter().map(corner).collect::<Vec<_>>().join(" ")
}

/// A number of pixels, to the hundredth.
fn length(value: f64) -> String {
    fixed(value, 2).trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn hex(Colour(red, green, blue): Colour) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::canvas::{INK, Lettering};

    #[test]
    fn a_document_is_well_formed_whatever_the_text() {
        let mut canvas = Canvas::new(100.0, 50.5, "<\"&'\u{1}");
        canvas.text((1.0, 2.0), "</text>&]]>", Lettering::new(10.0, INK).bold().upwards());
        canvas.path(vec![(0.0, 0.0), (1.0, -0.001)], INK, 1.5, Some([3.0, 2.0]));
        let text = document(&canvas);
        let tree = roxmltree::Document::parse(&text).unwrap();
        assert_eq!(tree.root_element().attribute("height"), Some("50.5"));
        let node = tree.descendants().find(|node| node.has_tag_name("text")).unwrap();
        assert_eq!(node.text(), Some("</text>&]]>"));
        let path = tree.descendants().find(|node| node.has_tag_name("polyline")).unwrap();
        assert_eq!(path.attribute("points"), Some("0,0 1,0"));
    }
}
