//! Colours, and the variables that stand for them in a page.

use plotters::style::RGBColor;

/// Text and axes.
pub const INK: RGBColor = RGBColor(0x24, 0x29, 0x2E);
/// Text beside the point.
pub const MUTED: RGBColor = RGBColor(0x6A, 0x73, 0x7D);
/// Lines of a grid.
pub const GRID: RGBColor = RGBColor(0xE1, 0xE4, 0xE8);
/// The background of a file.
pub const PAPER: RGBColor = RGBColor(0xFF, 0xFF, 0xFF);

/// Colours of series, told apart by people who see fewer colours too (M. Okabe, K. Ito, "Color universal design", 2008;
/// yellow left out, which is no colour for lines on white).
pub const SERIES: [RGBColor; 8] = [
    RGBColor(0x00, 0x72, 0xB2),
    RGBColor(0xD5, 0x5E, 0x00),
    RGBColor(0x00, 0x9E, 0x73),
    RGBColor(0xCC, 0x79, 0xA7),
    RGBColor(0xE6, 0x9F, 0x00),
    RGBColor(0x56, 0xB4, 0xE9),
    RGBColor(0x7F, 0x6A, 0x55),
    MUTED,
];

/// Number of the colour of what others published, and of limits.
pub const REFERENCE: usize = SERIES.len() - 1;

/// Name of the variable, its value on light paper and on dark.
pub const VARIABLES: [(&str, RGBColor, RGBColor); 10] = [
    ("--ink", INK, RGBColor(0xE6, 0xED, 0xF3)),
    ("--muted", MUTED, RGBColor(0x9D, 0xA7, 0xB1)),
    ("--grid", GRID, RGBColor(0x30, 0x36, 0x3D)),
    ("--c0", SERIES[0], RGBColor(0x4E, 0xA8, 0xDE)),
    ("--c1", SERIES[1], RGBColor(0xF0, 0x88, 0x3E)),
    ("--c2", SERIES[2], RGBColor(0x3F, 0xC9, 0xA0)),
    ("--c3", SERIES[3], RGBColor(0xE0, 0x9C, 0xC4)),
    ("--c4", SERIES[4], RGBColor(0xF2, 0xC1, 0x4E)),
    ("--c5", SERIES[5], RGBColor(0x8A, 0xD0, 0xF5)),
    ("--c6", SERIES[6], RGBColor(0xBF, 0xA6, 0x8A)),
];

/// The colour of series number `index`.
pub fn series(index: usize) -> RGBColor {
    SERIES[index % SERIES.len()]
}

/// `#RRGGBB`.
pub fn hex(RGBColor(r, g, b): RGBColor) -> String {
    format!("#{r:02X}{g:02X}{b:02X}")
}

/// SVG with variables in the place of colours.
pub(super) fn variables(svg: &str) -> String {
    VARIABLES
        .iter()
        .fold(svg.to_owned(), |svg, (name, light, _)| svg.replace(&hex(*light), &format!("var({name})")))
}
