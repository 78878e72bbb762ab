//! Colours on light and on dark backgrounds, and the CSS variables for them in a page.

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

/// Index of the colour of published results and reference values.
pub(crate) const REFERENCE: usize = SERIES.len() - 1;

/// Variables: name, value on a light background, value on a dark background.
const VARIABLES: [(&str, &str, &str); 11] = [
    ("--paper", PAPER, "#0D1117"),
    ("--ink", INK, "#E6EDF3"),
    ("--muted", MUTED, "#9DA7B1"),
    ("--grid", GRID, "#30363D"),
    ("--c0", SERIES[0], "#4EA8DE"),
    ("--c1", SERIES[1], "#F0883E"),
    ("--c2", SERIES[2], "#3FC9A0"),
    ("--c3", SERIES[3], "#E09CC4"),
    ("--c4", SERIES[4], "#F2C14E"),
    ("--c5", SERIES[5], "#8AD0F5"),
    ("--c6", SERIES[6], "#BFA68A"),
];

/// Returns the colour of series `index`.
pub(crate) fn series(index: usize) -> &'static str {
    SERIES[index % SERIES.len()]
}

/// Returns CSS that defines the variables of a page, light and dark.
pub(crate) fn variables() -> String {
    let of = |values: fn(&(&str, &'static str, &'static str)) -> &'static str| -> String {
        VARIABLES
            .iter()
            .fold(String::new(), |css, variable| format!("{css}{}:{};", variable.0, values(variable)))
    };
    format!(":root{{{}}}\n@media (prefers-color-scheme: dark){{:root{{{}}}}}\n", of(|v| v.1), of(|v| v.2))
}

/// Replaces the colours of an SVG by variables.
pub(super) fn with_variables(svg: &str) -> String {
    let replaced =
        |svg: String, (name, light, _): &(&str, &str, &str)| svg.replace(light, &format!("var({name})"));
    VARIABLES.iter().fold(svg.to_owned(), replaced)
}

/// Returns CSS that replaces the light colours of a separate picture in dark mode.
///
/// Programs without dark mode show the light colours.
pub(super) fn dark_style() -> String {
    let mut css = "<style>@media (prefers-color-scheme:dark){".to_owned();
    for (_, light, dark) in VARIABLES {
        let _ = write!(css, "[fill=\"{light}\"]{{fill:{dark}}}[stroke=\"{light}\"]{{stroke:{dark}}}");
    }
    css + "}</style>\n"
}
