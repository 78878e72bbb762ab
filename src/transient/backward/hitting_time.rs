//! Upper bounds of expected hitting times: a certificate of steady states.
//!
//! Let P be the transition matrix of a step, and let v be 0 at the targets, with (v − Pv)_i ≥ w > 0
//! at all other states i. In each step v falls by at least w in expectation. So the expected
//! hitting time is at most max v / w. The accuracy of v does not matter: only this inequality is
//! computed with its rounding.
//!
//! v comes from Gauss–Seidel sweeps within blocks of 256 states, alternately ascending and
//! descending. They start at h = 0 and approach the solution from below. If h would rise for a long
//! time, the last increase d extrapolates it: v = h + c d with the least c for which the inequality
//! holds with w = 9/10.
//!
//! The sweeps run on the host. Each rank holds P by rows of its own states, and receives the values
//! of remote states that these rows read after each sweep. Blocks do not depend on the number of
//! ranks, so the results are bitwise those of one process.

use std::ops::Range;

use crate::kernel::Number;
use crate::parallel::*;
use crate::ranks::Ranks;
use crate::sparse::{BLOCK, CsrMatrix};
use crate::transient::chain::recurrent_classes::{Classes, LocalGraph};
use crate::transient::chain::transitions::Transitions;
use crate::transient::context::Context;
use crate::{Iterate, Progress, Result};

/// P = I + Q/α by rows (Q: generator, α: uniformization rate), stored for the sweeps.
///
/// Built-in models would otherwise generate each row thousands of times.
pub(crate) struct Stochastic {
    /// P without its diagonal. Columns: the rank's own states, then remote states it reads.
    pub(crate) moves: CsrMatrix,
}

const ROWS: usize = 4096;

impl Stochastic {
    pub(crate) fn new(transitions: &dyn Transitions, alpha: f64, states: Range<usize>) -> Self {
        let moves = CsrMatrix::from_rows(states.len(), transitions.states(), |i, row| {
            transitions.outgoing(states.start + i, row);
            row.iter_mut().for_each(|(_, rate)| *rate /= alpha);
        });
        Self { moves }
    }

    /// Iterates over the transitions of a row without its diagonal: state and probability.
    pub(crate) fn row(&self, state: usize) -> impl Iterator<Item = (u32, f64)> {
        let (to, probability) = self.moves.row(state);
        to.iter().copied().zip(probability.iter().copied())
    }

    /// Returns the largest number of transitions out of a state.
    pub(crate) fn longest(&self) -> usize {
        self.moves.starts().windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0)
    }

    /// Bounds the rounding error of (v − Pv), relative to the sum of its terms' magnitudes.
    fn rounding(&self) -> f64 {
        (self.longest() as f64 + 4.0) * f64::EPSILON
    }

    /// Computes element `state` of v − Pv, and the sum of the magnitudes of its terms.
    fn falls(&self, state: usize, v: &[f64]) -> (f64, f64) {
        self.row(state).fold((0.0, 0.0), |(sum, magnitude), (to, p)| {
            let term = p * (v[state] - v[to as usize]);
            (sum + term, magnitude + term.abs())
        })
    }

    /// Makes one Gauss–Seidel sweep of v = 1 + Pv within each block.
    ///
    /// States with `met` true (targets, unreached) are left out; `old` has values outside of a
    /// block.
    fn sweep(&self, met: &[bool], old: &[f64], new: &mut [f64], ascending: bool) {
        let block = |(block, values): (usize, &mut [f64])| {
            let first = block * BLOCK;
            values.copy_from_slice(&old[first..first + values.len()]);
            for k in 0..values.len() {
                let k = if ascending { k } else { values.len() - 1 - k };
                if met[first + k] {
                    continue;
                }
                let (mut sum, mut leave) = (1.0, 0.0);
                for (to, p) in self.row(first + k) {
                    let inside = values.get((to as usize).wrapping_sub(first)).copied();
                    sum += p * inside.unwrap_or_else(|| old[to as usize]);
                    leave += p;
                }
                values[k] = sum / leave;
            }
        };
        match new.len() {
            0..=ROWS => new.chunks_mut(BLOCK).enumerate().for_each(block),
            _ => new.par_chunks_mut(BLOCK).enumerate().with_min_len(ROWS / BLOCK).for_each(block),
        }
    }

    /// Returns the maximum of `of(state)` over states for which `met` is false, at least 0.
    fn largest(&self, met: &[bool], of: impl Fn(usize) -> f64 + Sync) -> f64 {
        let of_block = |block: usize| {
            let states = block * ROWS..((block + 1) * ROWS).min(met.len());
            states.filter(|&state| !met[state]).map(&of).fold(0.0, f64::max)
        };
        (0..met.len().div_ceil(ROWS)).into_par_iter().map(of_block).reduce(|| 0.0, f64::max)
    }
}

/// Exchange of remote states' values, which are stored after the rank's own in a vector.
struct RemoteValues {
    ranks: Ranks,
    /// Number of values received from each rank.
    read: Vec<usize>,
    /// Local indices of the values sent to each rank.
    requested: Vec<Vec<u32>>,
}

impl RemoteValues {
    /// Renumbers the column indices of a chain's rows to local ones.
    fn new(known: &LocalGraph<'_>, chain: &mut Stochastic) -> Self {
        let (ranks, own) = (known.ranks, known.rows.clone());
        let read = chain.moves.column().iter().copied();
        let mut others: Vec<u32> = read.filter(|&to| !own.contains(&(to as usize))).collect();
        others.sort_unstable();
        others.dedup();
        // `others` is ascending, so it is ordered by ranks.
        let mut wanted: Vec<Vec<u32>> = vec![Vec::new(); ranks.size()];
        others.iter().for_each(|&state| wanted[known.owner(state as usize)].push(state));
        chain.moves.renumber(|to| match own.contains(&(to as usize)) {
            true => to - own.start as u32,
            false => (own.len() + others.partition_point(|&other| other < to)) as u32,
        });
        let read = wanted.iter().map(Vec::len).collect();
        let mut requested = ranks.all_to_all(wanted);
        requested.iter_mut().flatten().for_each(|state| *state -= own.start as u32);
        Self { ranks, read, requested }
    }

    fn len(&self) -> usize {
        self.read.iter().sum()
    }

    /// Updates the remote values at the end of `values`.
    fn update(&self, values: &mut [f64]) {
        if !self.ranks.is_distributed() {
            return;
        }
        let pick = |places: &Vec<u32>| -> Vec<u32> {
            let values: Vec<f64> = places.iter().map(|&place| values[place as usize]).collect();
            bytemuck::cast_slice(&values).to_vec()
        };
        let arrived = self.ranks.all_to_all(self.requested.iter().map(pick).collect()).concat();
        let own = values.len() - self.len();
        bytemuck::cast_slice_mut::<f64, u32>(&mut values[own..]).copy_from_slice(&arrived);
    }
}

/// Required lower bound w of v − Pv, the expected decrease per step outside of the targets.
const SHOWN: f64 = 0.9;
/// Sweeps before the first check for a certificate, and between checks.
const CHECK_SWEEPS: u64 = 16;

/// Probability per step of entering a target, about 2⁻⁶⁴, below which no useful bound exists.
///
/// The expected number of steps is at least its inverse, and multiplies rounding errors.
const LEAST_EXIT: f64 = 5.5e-20;

/// Bounds the expected number of steps of P = I + Q/α from any reached state to the targets.
///
/// `None` if `most` sweeps yield no bound, or if every bound is above about 2⁶⁴. `reached` holds
/// this rank's states, `targets` those of all ranks.
///
/// # Errors
/// An error of the observer of any rank.
pub(crate) fn expected_steps(
    known: &LocalGraph<'_>,
    alpha: f64,
    targets: &[usize],
    reached: &[bool],
    most: u64,
    observer: &mut dyn Progress,
) -> Result<Option<f64>> {
    let (ranks, own) = (known.ranks, known.rows.clone());
    let n = own.len();
    assert!(n == 0 || own.start.is_multiple_of(BLOCK), "{} begins within a block of {BLOCK}", own.start);
    let mut chain = Stochastic::new(known.transitions, alpha, own.clone());
    let beyond = RemoteValues::new(known, &mut chain);
    // Paths never visit a state that is not reached; it counts as met.
    let mut met: Vec<bool> = reached.iter().map(|&r| !r).collect();
    targets.iter().filter(|&z| own.contains(z)).for_each(|&z| met[z - own.start] = true);
    // States of other ranks are assumed to be targets.
    let is_target = |to: u32| met.get(to as usize).is_none_or(|met| *met);
    let exit = chain.largest(&met, |state| {
        chain.row(state).filter(|(to, _)| is_target(*to)).map(|(_, p)| p).sum::<f64>()
    });
    let exit = ranks.all_reduce_max(exit);
    if exit < LEAST_EXIT && ranks.all_reduce_max(chain.largest(&met, |_| 1.0)) > 0.0 {
        return Ok(None);
    }
    let rounding = ranks.all_reduce_max(chain.rounding());
    let largest = |values: &[f64]| ranks.all_reduce_max(values[..n].iter().copied().fold(0.0, f64::max));
    let mut before = vec![0.0; n + beyond.len()];
    let (mut between, mut h) = (before.clone(), before.clone());
    let (mut check_at, mut best) = (CHECK_SWEEPS, f64::INFINITY);
    for sweep in (2..=most.max(2)).step_by(2) {
        std::mem::swap(&mut before, &mut h);
        chain.sweep(&met, &before, &mut between[..n], false);
        beyond.update(&mut between);
        chain.sweep(&met, &between, &mut h[..n], true);
        beyond.update(&mut h);
        if sweep.is_multiple_of(64)
            && !ranks.all_ok(observer.iterate(Iterate { steps: sweep, ..Iterate::default() }))?
        {
            return Ok(best.is_finite().then_some(best));
        }
        if sweep < check_at && sweep + 2 <= most {
            continue;
        }
        check_at = sweep + (sweep / 4).max(CHECK_SWEEPS);
        // The increase of h by the last two sweeps, and the multiple c of it that is needed.
        before.iter_mut().zip(&h).for_each(|(before, h)| *before = h - *before);
        let needed = chain.largest(&met, |state| {
            let lacks = SHOWN - chain.falls(state, &h).0;
            if lacks <= 0.0 { 0.0 } else { lacks / chain.falls(state, &before).0.max(0.0) }
        });
        let c = ranks.all_reduce_max(needed);
        if !c.is_finite() {
            continue;
        }
        before.iter_mut().zip(&h).for_each(|(v, h)| *v = h + c * *v);
        let missing = chain.largest(&met, |state| {
            let (falls, magnitude) = chain.falls(state, &before);
            let shown = falls - rounding * magnitude;
            if shown > 0.0 { 1.0 - shown } else { f64::INFINITY }
        });
        let shown = 1.0 - ranks.all_reduce_max(missing);
        let bound = largest(&before) / shown * (1.0 + rounding);
        before.copy_from_slice(&h);
        if !(shown > 0.0 && bound.is_finite()) {
            continue;
        }
        // h is a lower bound of the hitting times. Otherwise continuing pays while the bound still
        // falls by a tenth between checks.
        if bound <= 1.12 * largest(&h) || bound > 0.9 * best {
            return Ok(Some(bound.min(best)));
        }
        best = best.min(bound);
    }
    Ok(Some(best).filter(|bound| bound.is_finite()))
}

/// Bounds the expected number of steps of P = I + Q/α to one state of each closed class.
///
/// The representative of each class is its most probable state by `probable`. Also returns the
/// number of closed classes. There is no bound if `most` sweeps do not yield one.
pub(crate) fn bound_hitting_time<T: Number>(
    context: &Context<'_, T>,
    alpha: f64,
    probable: &[f64],
    most: u64,
    observer: &mut dyn Progress,
) -> Result<(Option<f64>, usize)> {
    let (transitions, ranks) = (context.problem.transitions, context.parts.ranks);
    let known = LocalGraph::new(transitions, ranks, context.parts.rows.clone());
    let Classes { representatives, reached } = known.closed_classes(&context.initial, probable);
    let found = expected_steps(&known, alpha, &representatives, &reached, most, observer)?;
    Ok((found, representatives.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transient::chain::csr::tests::chain;

    #[test]
    fn expected_steps_bound_a_walk_on_a_line_from_above() {
        // From state 9 of a birth–death chain with equal rates down to 0: 9·10 expected jumps. Each
        // takes two steps in the middle (α = 2), and one step's rate is lower at the end.
        let mut list = Vec::new();
        for i in 0..9u32 {
            list.push((i, i + 1, 1.0));
            list.push((i + 1, i, 1.0));
        }
        let chain = chain(10, &list);
        let known = LocalGraph::new(&chain, Ranks::ALONE, 0..10);

        let bound = expected_steps(&known, 2.0, &[0], &[true; 10], 1 << 20, &mut ()).unwrap().unwrap();

        // h(i) = i (2·10 − 1 − i) steps of the chain with holding probability 1/2 at the far end:
        // h(9) = 90.
        assert!((90.0..=400.0).contains(&bound), "{bound}");
    }

    #[test]
    fn a_long_hitting_time_is_bounded_in_few_sweeps() {
        // Rates 1 and 2 between states 0 and 1, and 1e-7 from each to state 2: α/1e-7 steps.
        let chain = chain(3, &[(0, 1, 1.0), (1, 0, 2.0), (0, 2, 1e-7), (1, 2, 1e-7)]);
        let known = LocalGraph::new(&chain, Ranks::ALONE, 0..3);

        let bound = expected_steps(&known, 2.0 + 1e-7, &[2], &[true; 3], 1000, &mut ()).unwrap().unwrap();

        let exact = (2.0 + 1e-7) / 1e-7;
        assert!(exact <= bound && bound < 1.12 * exact, "{bound}");
    }
}
