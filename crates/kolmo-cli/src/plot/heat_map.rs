//! Heat maps: values over two quantities, shown by colour.

use super::lines::{LABELS, PLOT};
use super::{Canvas, Label, SMALL, WIDTH, palette, short};

/// Heat map of a value over two constants, with columns and rows of equal sizes.
pub(crate) struct HeatMap {
    pub(crate) title: String,
    /// Name of the horizontal constant.
    pub(crate) x: String,
    /// Name of the vertical constant.
    pub(crate) y: String,
    /// Values of both constants (x, y), and the value to show.
    pub(crate) cells: Vec<(f64, f64, f64)>,
}

/// Red, green and blue from the least to the largest value: viridis (van der Walt, Smith, 2015).
const SCALE: [[f64; 3]; 5] =
    [[68.0, 1.0, 84.0], [59.0, 82.0, 139.0], [33.0, 145.0, 140.0], [94.0, 201.0, 98.0], [253.0, 231.0, 37.0]];

/// Colour of a value by its place in the range, from 0 (least) to 1 (largest).
fn color(share: f64) -> String {
    let at = share.clamp(0.0, 1.0) * (SCALE.len() - 1) as f64;
    let below = (at as usize).min(SCALE.len() - 2);
    let [r, g, b] =
        [0, 1, 2].map(|k| SCALE[below][k] + (at - below as f64) * (SCALE[below + 1][k] - SCALE[below][k]));
    format!("#{:02X}{:02X}{:02X}", r.round() as u8, g.round() as u8, b.round() as u8)
}

/// Returns the distinct values in ascending order.
fn distinct(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut all: Vec<f64> = values.collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    all
}

/// Number of rectangles in the legend.
const STEPS: usize = 32;

impl HeatMap {
    pub(crate) fn svg(&self) -> String {
        let mut canvas = Canvas::default();
        let top = canvas.title(&self.title) + 16.0;
        let (left, right, bottom) = (LABELS.0, WIDTH - 84.0, top + PLOT);
        let (xs, ys) = (distinct(self.cells.iter().map(|c| c.0)), distinct(self.cells.iter().map(|c| c.1)));
        let values = distinct(self.cells.iter().map(|c| c.2).filter(|value| value.is_finite()));
        let (least, most) = (values.first().copied().unwrap_or(0.0), values.last().copied().unwrap_or(1.0));
        let (wide, high) = ((right - left) / xs.len() as f64, PLOT / ys.len() as f64);
        let place = |all: &[f64], value: f64| all.partition_point(|other| *other < value) as f64;
        for &(x, y, value) in self.cells.iter().filter(|cell| cell.2.is_finite()) {
            let share = if most > least { (value - least) / (most - least) } else { 0.5 };
            let at = (left + wide * place(&xs, x), bottom - high * (place(&ys, y) + 1.0));
            canvas.rectangle(at, (wide, high), &color(share));
        }
        let label = |anchor| Label::new(SMALL, palette::INK, anchor);
        for (k, x) in xs.iter().enumerate().step_by(xs.len().div_ceil(6)) {
            canvas.text((left + wide * (k as f64 + 0.5), bottom + 10.0), label("middle"), &short(*x));
        }
        for (k, y) in ys.iter().enumerate().step_by(ys.len().div_ceil(8)) {
            canvas.text((left - 5.0, bottom - high * (k as f64 + 0.5)), label("end"), &short(*y));
        }
        canvas.open("legend");
        for k in 0..STEPS {
            let (step, share) = (PLOT / STEPS as f64, (k as f64 + 0.5) / STEPS as f64);
            canvas.rectangle((right + 8.0, bottom - step * (k + 1) as f64), (10.0, step), &color(share));
        }
        for share in [0.0, 0.5, 1.0] {
            let text = short(least + share * (most - least));
            canvas.text((right + 22.0, bottom - share * PLOT), label("start"), &text);
        }
        canvas.close();
        canvas.text((6.0, top - 12.0), Label::new(SMALL, palette::MUTED, "start"), &self.y);
        let below = Label::new(SMALL, palette::MUTED, "middle");
        canvas.text(((left + right) / 2.0, bottom + 26.0), below, &self.x);
        canvas.finish(bottom + LABELS.1, &self.title)
    }
}
