//! Random walk on a cycle.

use crate::transient::chain::transitions::Transitions;

/// States 0 … N−1, with rate 1 from state i to (i + o) mod N for each offset o.
///
/// Every row of the generator has equally many entries at equal distances, except for the
/// wrap-around. The matrix thus has one diagonal per offset, and no format has to pad it.
#[derive(Debug, Clone)]
pub(super) struct Circulant {
    states: usize,
    /// Offsets in 1 … N−1, ascending.
    offsets: Vec<u32>,
}

impl Circulant {
    /// Creates the walk on `states` states with steps `offsets` mod N, all different and not 0.
    ///
    /// The error is the first offset that is 0 or equal to another one.
    pub(super) fn new(states: usize, offsets: &[i64]) -> Result<Self, i64> {
        let mut steps: Vec<(u32, i64)> =
            offsets.iter().map(|&o| (o.rem_euclid(states as i64) as u32, o)).collect();
        steps.sort_unstable();
        let twice = steps.windows(2).find(|pair| pair[0].0 == pair[1].0).map(|pair| pair[1].1);
        if let Some(o) = steps.first().filter(|(step, _)| *step == 0).map(|&(_, o)| o).or(twice) {
            return Err(o);
        }
        Ok(Self { states, offsets: steps.into_iter().map(|(step, _)| step).collect() })
    }

    /// Appends the states at the distances `steps` from `state`, ascending, each at rate 1.
    ///
    /// States beyond the last one wrap around and come first.
    fn row(
        &self,
        state: usize,
        steps: impl DoubleEndedIterator<Item = usize> + Clone,
        row: &mut Vec<(u32, f64)>,
    ) {
        debug_assert!(state < self.states, "state {state} of {}", self.states);
        let n = self.states;
        let wrapped = steps.clone().filter(|step| state + step >= n).map(|step| state + step - n);
        let straight = steps.filter(|step| state + step < n).map(|step| state + step);
        row.extend(wrapped.chain(straight).map(|other| (other as u32, 1.0)));
    }
}

impl Transitions for Circulant {
    fn states(&self) -> usize {
        self.states
    }

    fn incoming(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        self.row(state, self.offsets.iter().rev().map(|&o| self.states - o as usize), row);
    }

    fn outgoing(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        self.row(state, self.offsets.iter().map(|&o| o as usize), row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_or_repeated_offsets_are_errors() {
        assert_eq!(Circulant::new(6, &[1, 6]).unwrap_err(), 6);
        assert_eq!(Circulant::new(6, &[1, 3, -3]).unwrap_err(), 3);
    }
}
