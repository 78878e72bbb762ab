//! Axes: ranges, ticks and their labels.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::coord::types::RangedCoordf64;

use super::short;

/// An axis of a chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// The quantity, with its unit.
    pub label: String,
    /// True for a logarithmic axis, which leaves out values of 0 and below.
    pub log: bool,
    /// True where ticks are powers of two.
    pub doubling: bool,
}

impl Axis {
    /// A linear axis.
    pub fn linear(label: impl Into<String>) -> Self {
        Self { label: label.into(), log: false, doubling: false }
    }

    /// A logarithmic axis.
    pub fn log(label: impl Into<String>) -> Self {
        Self { label: label.into(), log: true, doubling: false }
    }

    /// A logarithmic axis of things that come in powers of two.
    pub fn doubling(label: impl Into<String>) -> Self {
        Self { label: label.into(), log: true, doubling: true }
    }

    /// Where a value lies; none where it cannot be shown.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        let place = if self.log { value.log10() } else { value };
        place.is_finite().then_some(place)
    }

    /// Range around places, and ticks in it.
    pub(super) fn range(&self, places: impl Iterator<Item = f64>) -> Ticked {
        let (least, most) = places.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), p| (a.min(p), b.max(p)));
        if least > most {
            return Ticked { range: 0.0..1.0, ticks: vec![0.0, 1.0] };
        }
        let (mut least, mut most) = (least, most);
        if !self.log {
            // Bars and probabilities begin at 0.
            least = least.min(0.0);
        }
        let span = if most > least { most - least } else { least.abs().max(1.0) };
        let margin = 0.06 * span;
        most += margin;
        if self.log || least < 0.0 {
            least -= margin;
        }
        let ticks = match (self.log, self.doubling) {
            (false, _) => steps(least, most),
            (true, false) => decades(least, most),
            (true, true) => powers_of_two(least, most),
        };
        Ticked { range: least..most, ticks }
    }

    /// The label of a tick.
    pub(super) fn tick(&self, place: f64) -> String {
        short(if self.log { 10f64.powf(place) } else { place })
    }
}

/// A range with its ticks.
#[derive(Debug, Clone)]
pub(super) struct Ticked {
    range: Range<f64>,
    pub(super) ticks: Vec<f64>,
}

impl Ranged for Ticked {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        RangedCoordf64::from(self.range.clone()).map(value, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

/// Round numbers between two.
fn steps(least: f64, most: f64) -> Vec<f64> {
    let raw = (most - least) / 5.0;
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|&s| s >= raw).unwrap_or(raw);
    let first = (least / step).ceil() as i64;
    let last = (most / step).floor() as i64;
    // A multiple of a rounded step may miss its last digit.
    (first..=last).map(|k| (k as f64 * step / power).round() * power).collect()
}

/// Powers of ten between two exponents, or 1, 2 and 5 of them where these are few.
fn decades(least: f64, most: f64) -> Vec<f64> {
    let (first, last) = (least.ceil() as i64, most.floor() as i64);
    if last - first >= 2 {
        let every = ((last - first) / 6 + 1) as usize;
        return (first..=last).step_by(every).map(|k| k as f64).collect();
    }
    let of = |k: i64| [1.0f64, 2.0, 5.0].map(|m| k as f64 + m.log10());
    let ticks: Vec<f64> = (first - 1..=last).flat_map(of).filter(|p| (least..=most).contains(p)).collect();
    match ticks.len() {
        0..3 => steps(10f64.powf(least), 10f64.powf(most)).into_iter().map(f64::log10).collect(),
        _ => ticks,
    }
}

/// Powers of two between two exponents of ten, at most a dozen.
fn powers_of_two(least: f64, most: f64) -> Vec<f64> {
    let (first, last) = ((least / 2f64.log10()).ceil() as i64, (most / 2f64.log10()).floor() as i64);
    let every = ((last - first) / 12 + 1).max(1) as usize;
    (first..=last).step_by(every).map(|k| k as f64 * 2f64.log10()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(steps(0.0, 1.06), [0.0, 0.5, 1.0]);
        assert_eq!(steps(-0.3, 10.3), [0.0, 5.0, 10.0]);
        assert_eq!(decades(-6.2, 0.1), [-6.0, -4.0, -2.0, 0.0]);
        let few: Vec<String> = decades(2.9, 4.2).iter().map(|p| Axis::log("").tick(*p)).collect();
        assert_eq!(few, ["1000", "2000", "5000", "10000"]);
        let narrow: Vec<String> = decades(1.0, 1.2).iter().map(|p| Axis::log("").tick(*p)).collect();
        assert_eq!(narrow, ["10", "12", "14"]);
        let lanes = Axis::doubling("").range([0.0, 32f64.log10()].into_iter());
        let lanes: Vec<String> = lanes.ticks.iter().map(|p| Axis::log("").tick(*p)).collect();
        assert_eq!(lanes, ["1", "2", "4", "8", "16", "32"]);
    }

    #[test]
    fn what_a_logarithm_cannot_show_is_left_out() {
        assert_eq!(Axis::log("").place(0.0), None);
        assert_eq!(Axis::log("").place(-1.0), None);
        assert_eq!(Axis::linear("").place(f64::NAN), None);
        assert_eq!(Axis::log("").place(100.0), Some(2.0));
    }

    #[test]
    fn one_value_has_a_range() {
        let Ticked { range, ticks } = Axis::linear("").range([3.0].into_iter());

        assert!(range.contains(&3.0) && range.contains(&0.0) && ticks.len() > 1);
    }
}
