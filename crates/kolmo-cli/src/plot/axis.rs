//! Axes: ranges, ticks and their labels.

use super::{SUPERSCRIPTS, scientific, short};

pub(crate) struct Axis {
    /// Name of the quantity, with its unit.
    pub(super) label: String,
    /// True for a logarithmic axis; values of 0 and below are left out.
    log: bool,
}

impl Axis {
    pub(crate) fn linear(label: impl Into<String>) -> Self {
        Self { label: label.into(), log: false }
    }

    pub(crate) fn log(label: impl Into<String>) -> Self {
        Self { log: true, ..Self::linear(label) }
    }

    /// Position of a value on the axis; `None` if the axis cannot show it.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        let place = if self.log { value.log10() } else { value };
        place.is_finite().then_some(place)
    }

    /// Range that contains the positions, with ticks.
    pub(super) fn range(&self, places: impl Iterator<Item = f64>) -> Ticked {
        let (least, most) = places.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), p| (a.min(p), b.max(p)));
        if least > most {
            return Ticked { least: 0.0, most: 1.0, ticks: vec![0.0, 1.0] };
        }
        let (mut least, mut most) = (least, most);
        if !self.log {
            // A linear axis includes 0, for probabilities.
            least = least.min(0.0);
        }
        let span = if most > least { most - least } else { least.abs().max(1.0) };
        let margin = 0.06 * span;
        most += margin;
        if self.log || least < 0.0 {
            least -= margin;
        }
        let ticks = if self.log { decades(least, most) } else { steps(least, most) };
        Ticked { least, most, ticks }
    }

    /// Labels of the ticks: all plain numbers, or all with powers of ten.
    pub(super) fn labels(&self, ticks: &[f64]) -> Vec<String> {
        let values = ticks.iter().map(|place| if self.log { 10f64.powf(*place) } else { *place });
        let texts: Vec<String> = values.clone().map(short).collect();
        match texts.iter().any(|text| text.contains(SUPERSCRIPTS)) {
            true => values.map(scientific).collect(),
            false => texts,
        }
    }
}

/// Range of an axis with its ticks.
#[derive(Debug, Clone)]
pub(super) struct Ticked {
    least: f64,
    most: f64,
    pub(super) ticks: Vec<f64>,
}

impl Ticked {
    /// Maps a position on the axis to a coordinate between `from` and `to`.
    pub(super) fn at(&self, place: f64, from: f64, to: f64) -> f64 {
        from + (place - self.least) / (self.most - self.least) * (to - from)
    }
}

/// Round numbers between two limits.
fn steps(least: f64, most: f64) -> Vec<f64> {
    let raw = (most - least) / 5.0;
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|&s| s >= raw).unwrap_or(raw);
    let first = (least / step).ceil() as i64;
    let last = (most / step).floor() as i64;
    // Rounds multiples of a rounded step, which may differ in the last digit.
    (first..=last).map(|k| (k as f64 * step / power).round() * power).collect()
}

/// Exponents of powers of ten between two exponents; also of 2 and 5 times these if there are few.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(steps(0.0, 1.06), [0.0, 0.5, 1.0]);
        assert_eq!(steps(-0.3, 10.3), [0.0, 5.0, 10.0]);
        assert_eq!(decades(-6.2, 0.1), [-6.0, -4.0, -2.0, 0.0]);
        let log = |ticks: &[f64]| Axis::log("").labels(ticks);
        assert_eq!(log(&decades(2.9, 4.2)), ["1000", "2000", "5000", "10000"]);
        assert_eq!(log(&decades(3.9, 5.2)), ["10⁴", "2·10⁴", "5·10⁴", "10⁵"]);
        assert_eq!(log(&decades(1.0, 1.2)), ["10", "12", "14"]);
    }

    #[test]
    fn values_have_places_in_the_range_of_an_axis() {
        assert_eq!(Axis::log("").place(0.0), None);
        assert_eq!(Axis::log("").place(-1.0), None);
        assert_eq!(Axis::linear("").place(f64::NAN), None);
        assert_eq!(Axis::log("").place(100.0), Some(2.0));
        // The range of a single value is not empty.
        let Ticked { least, most, ticks } = Axis::linear("").range([3.0].into_iter());
        assert!(least <= 0.0 && most >= 3.0 && ticks.len() > 1);
    }
}
