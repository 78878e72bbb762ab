//! Filters: values of a property in several states, aggregated to one or listed.

use crate::answer::{Answer, Verdict};
use crate::source::{is_truth, refuse};
use crate::state_sets::members;
use crate::state_values::{EachState, Everywhere};
use crate::sums;
use kolmo::Result;
use kolmo_model::FilterKind;
use kolmo_model::properties::Formula;

impl EachState<'_> {
    /// Returns the states of a filter. Fails if there are none.
    pub(crate) fn among(&self, kind: FilterKind, states: Option<&Formula>) -> Result<Vec<u32>> {
        self.expect_whole("the filter refers to unexplored states")?;
        let among = match states {
            Some(states) => members(&self.sure(states)?),
            None => (0..self.states() as u32).collect(),
        };
        match among.len() {
            0 => refuse("no state is in the filter"),
            n if n > 1 && kind == FilterKind::State => {
                refuse(format!("filter(state, …) needs one state, found {n}"))
            }
            _ => Ok(among),
        }
    }

    /// Aggregates the values of a formula over the states `among`, by a filter of this kind.
    pub(crate) fn over(&self, kind: FilterKind, formula: &Formula, among: &[u32]) -> Result<Verdict> {
        let count = |set: &[bool]| among.iter().filter(|state| set[**state as usize]).count();
        let one = |sure: bool, possible: bool| (f64::from(u8::from(sure)), f64::from(u8::from(possible)));
        let first = among[0] as usize;
        match kind {
            FilterKind::ForAll | FilterKind::Exists | FilterKind::Count => {
                let truths = self.truths(formula)?;
                let (must, may) = (count(&truths.must), count(&truths.may));
                Ok(match kind {
                    FilterKind::ForAll => Verdict::truth(one(must == among.len(), may == among.len())),
                    FilterKind::Exists => Verdict::truth(one(must > 0, may > 0)),
                    _ => Verdict::Number(Answer::within((must as f64, may as f64))),
                })
            }
            FilterKind::First | FilterKind::State if is_truth(formula) => {
                let truths = self.truths(formula)?;
                Ok(Verdict::truth(one(truths.must[first], truths.may[first])))
            }
            FilterKind::First | FilterKind::State => {
                let found = self.numbers(formula)?;
                Ok(Verdict::Number(Answer::new(found.values[first], found.bounds[first])))
            }
            FilterKind::Min | FilterKind::Max | FilterKind::Sum | FilterKind::Average => {
                Ok(Verdict::Number(aggregated(kind, &self.numbers(formula)?, among)))
            }
            _ => refuse("a filter with several values cannot be nested; make it a property of its own"),
        }
    }

    /// Named values of a filter with several: minimum and maximum for `range`, else those of
    /// states.
    pub(crate) fn listed(
        &self,
        kind: FilterKind,
        formula: &Formula,
        states: Option<&Formula>,
    ) -> Result<Vec<(String, Verdict)>> {
        let among = self.among(kind, states)?;
        if kind == FilterKind::Range {
            let ends = [("min", FilterKind::Min), ("max", FilterKind::Max)];
            let end = |(name, kind): (&str, _)| Ok((name.to_owned(), self.over(kind, formula, &among)?));
            return ends.into_iter().map(end).collect();
        }
        let ranges = self.ranges(formula)?;
        let all = || among.iter().map(|&state| ranges[state as usize]);
        let least = all().fold(f64::INFINITY, |least, range| least.min(range.1));
        let most = all().fold(f64::NEG_INFINITY, |most, range| most.max(range.0));
        // States that may have the least or largest value within the bounds.
        let shown = |&&state: &&u32| match (kind, ranges[state as usize]) {
            (FilterKind::ArgMin, (low, _)) => low <= least,
            (FilterKind::ArgMax, (_, high)) => high >= most,
            (FilterKind::Print, range) => range != (0.0, 0.0),
            _ => true,
        };
        let found = |&state: &u32| {
            let range = ranges[state as usize];
            let truth = is_truth(formula);
            let found = if truth { Verdict::truth(range) } else { Verdict::Number(Answer::within(range)) };
            (self.name_of(state as usize), found)
        };
        Ok(among.iter().filter(shown).map(found).collect())
    }
}

/// Minimum, maximum, sum or mean of the values of some states.
fn aggregated(kind: FilterKind, found: &Everywhere, among: &[u32]) -> Answer {
    let all = || among.iter().map(|&state| (found.values[state as usize], found.bounds[state as usize]));
    let (value, error) = match kind {
        FilterKind::Min | FilterKind::Max => {
            let pick = |values: &mut dyn Iterator<Item = f64>| match kind {
                FilterKind::Min => values.fold(f64::INFINITY, f64::min),
                _ => values.fold(f64::NEG_INFINITY, f64::max),
            };
            let value = pick(&mut all().map(|(value, _)| value));
            let low = pick(&mut all().map(|(value, bound)| value - bound));
            let high = pick(&mut all().map(|(value, bound)| value + bound));
            let exact = value.is_infinite() || (low == high && all().all(|(_, bound)| bound == 0.0));
            let rounding = f64::EPSILON * (low.abs() + high.abs());
            (value, if exact { 0.0 } else { (value - low).max(high - value) + rounding })
        }
        _ => {
            let (value, rounding) = sums::sum(all().map(|(value, _)| value));
            let errors = sums::at_most(all().map(|(_, bound)| bound).chain([rounding]));
            match kind {
                FilterKind::Average => {
                    let count = among.len() as f64;
                    let (mean, rounding) = sums::quotient(value, count);
                    (mean, errors / count * (1.0 + 4.0 * f64::EPSILON) + rounding)
                }
                _ => (value, errors),
            }
        }
    };
    match all().any(|(value, _)| value.is_infinite()) {
        true if value.is_infinite() => Answer::new(value, 0.0),
        _ if value.is_finite() && !error.is_nan() => Answer::new(value, error),
        // The sum of finite numbers overflows.
        _ => Answer::new(value.clamp(-f64::MAX, f64::MAX), f64::INFINITY),
    }
}
