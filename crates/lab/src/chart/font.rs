//! The letters of pictures: DejaVu Sans, embedded, so that no font need be installed.
//!
//! Its licence (Bitstream Vera and public domain) allows embedding and asks that its name not be
//! used for altered versions; this one is unaltered.

use std::sync::LazyLock;

use ttf_parser::{Face, GlyphId, OutlineBuilder};

/// Fonts for those who show SVG: DejaVu Sans, then such as are about as wide.
pub const FAMILY: &str = "DejaVu Sans, Verdana, Helvetica, Arial, sans-serif";

/// Thickness of letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    Regular,
    Bold,
}

static REGULAR: LazyLock<Face<'static>> = LazyLock::new(|| face(dejavu::sans::regular()));
static BOLD: LazyLock<Face<'static>> = LazyLock::new(|| face(dejavu::sans::bold()));

fn face(data: &'static [u8]) -> Face<'static> {
    Face::parse(data, 0).expect("the embedded font is whole")
}

fn of(weight: Weight) -> &'static Face<'static> {
    match weight {
        Weight::Regular => &REGULAR,
        Weight::Bold => &BOLD,
    }
}

/// Width of `text` at `size` pixels a height.
pub fn width(text: &str, weight: Weight, size: f64) -> f64 {
    let face = of(weight);
    text.chars().map(|c| advance(face, glyph(face, c), size)).sum()
}

/// Gives `outline` the letters of `text`, each with its distance from the beginning, pixels. The
/// outline itself is in units of which one is `scale` pixels, upwards.
pub fn outlines<B: OutlineBuilder>(
    text: &str,
    weight: Weight,
    size: f64,
    mut letter: impl FnMut(f64, f64) -> B,
    mut done: impl FnMut(B),
) {
    let face = of(weight);
    let scale = size / f64::from(face.units_per_em());
    let mut x = 0.0;
    for c in text.chars() {
        let glyph = glyph(face, c);
        let mut builder = letter(x, scale);
        if face.outline_glyph(glyph, &mut builder).is_some() {
            done(builder);
        }
        x += advance(face, glyph, size);
    }
}

/// The letter for `c`; a box if the font has none.
fn glyph(face: &Face<'_>, c: char) -> GlyphId {
    face.glyph_index(c).unwrap_or(GlyphId(0))
}

fn advance(face: &Face<'_>, glyph: GlyphId, size: f64) -> f64 {
    f64::from(face.glyph_hor_advance(glyph).unwrap_or(0)) * size / f64::from(face.units_per_em())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_have_their_widths() {
        let width = |text| width(text, Weight::Regular, 10.0);
        assert!(width("W") > width("i"));
        assert!((width("ab") - width("a") - width("b")).abs() < 1e-9);
        assert!((width("0") - 6.36).abs() < 0.01, "{}", width("0"));
        assert!(super::width("bold", Weight::Bold, 10.0) > width("bold"));
        for c in "µ±×→−…".chars() {
            assert!(of(Weight::Regular).glyph_index(c).is_some(), "{c}");
        }
    }
}
