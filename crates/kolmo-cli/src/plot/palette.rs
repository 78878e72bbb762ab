//! Colours on light and on dark backgrounds.

use std::fmt::Write;

/// Colour of text and axes.
pub(crate) const INK: &str = "#24292E";
/// Colour of secondary text.
pub(crate) const MUTED: &str = "#6A737D";
/// Colour of grid lines.
pub(crate) const GRID: &str = "#E1E4E8";
/// Colour of the background.
pub(crate) const PAPER: &str = "#FFFFFF";

/// Colours of series, distinguishable with colour vision deficiency.
///
/// From M. Okabe, K. Ito, "Color universal design", 2008, without yellow, which is invisible as a
/// line on white.
pub(crate) const SERIES: [&str; 8] =
    ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F6A55", MUTED];

/// Index of the colour of reference values.
pub(crate) const REFERENCE: usize = SERIES.len() - 1;

/// Pairs of colours: on a light background, and on a dark one.
const DARK: [(&str, &str); 11] = [
    (PAPER, "#0D1117"),
    (INK, "#E6EDF3"),
    (MUTED, "#9DA7B1"),
    (GRID, "#30363D"),
    (SERIES[0], "#4EA8DE"),
    (SERIES[1], "#F0883E"),
    (SERIES[2], "#3FC9A0"),
    (SERIES[3], "#E09CC4"),
    (SERIES[4], "#F2C14E"),
    (SERIES[5], "#8AD0F5"),
    (SERIES[6], "#BFA68A"),
];

/// Returns the colour of series `index`.
pub(crate) fn series(index: usize) -> &'static str {
    SERIES[index % SERIES.len()]
}

/// Returns CSS that replaces the light colours of a separate picture in dark mode.
pub(super) fn dark_style() -> String {
    let mut css = "<style>@media (prefers-color-scheme:dark){".to_owned();
    for (light, dark) in DARK {
        let _ = write!(css, "[fill=\"{light}\"]{{fill:{dark}}}[stroke=\"{light}\"]{{stroke:{dark}}}");
    }
    css + "}</style>\n"
}
