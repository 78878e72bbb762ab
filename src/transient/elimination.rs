//! The limit of a small chain by elimination of its states, with its proof.
//!
//! State k is eliminated by w_ij += w_ik w_kj / S_k, S_k = Σ_{j<k} w_kj: the rates w of the chain that is watched outside
//! of k alone. States that are left for ever come first and hand their initial probability on, so that each closed
//! class gets its share; then each class is taken down to one state, and x_k = Σ_{i<k} x_i w_ik / S_k on the way back
//! (W. Grassmann, M. Taksar, D. Heyman, "Regenerative analysis and steady state distributions for Markov chains",
//! Operations Research 33(5), 1985, doi:10.1287/opre.33.5.1107). Nothing is subtracted.
//!
//! # Rounding
//! A rate of a stage is computed from those of the stage before by a sum that is compensated, a quotient, a product and
//! an addition of positive numbers: a relative error of at most 6u. So the stage is exact for rates that differ by such
//! factors. By the Markov chain tree theorem a stationary probability is a quotient of two sums over spanning trees, and the
//! probability of ending in a class one of two sums over spanning forests, with a positive product of m rates for each
//! tree or forest of m + 1 states. Factors of 1 ± 6u in each rate move such a quotient by a factor of (1 ± 6u)^{2m} at most
//! (this is C. O'Cinneide's bound, "Entrywise perturbation theory and error analysis for Markov chains", Numerische
//! Mathematik 65, 1993, doi:10.1007/BF01385743). Stages of m = 1, 2, … states and the way back, 6u a state, add up to
//! a relative error of at most 6u m(m + 2) for a class or a set of transient states of m. A rate that leaves the range of
//! normal numbers ends the elimination without an answer.

use super::classes::Classes;
use super::transitions::Transitions;
use crate::number::{exponent, times_power_of_two};
use crate::parallel::*;

/// Most states that are eliminated: their rates take 128 MiB.
pub(super) const MOST_STATES: usize = 4096;

/// Rates below this, beside an α in [1, 2), are too near the end of the range.
const LEAST: f64 = 1.2e-271;

/// Multiplications by a matrix of `nnz` entries that cost what elimination of n states does.
pub(super) fn worth(n: usize, nnz: u64) -> Option<u64> {
    (n <= MOST_STATES).then(|| (n as u64).pow(3) / (3 * nnz.max(1)))
}

/// Rates between states, one row each, with columns for where one can end behind those of the states.
struct Rates {
    columns: usize,
    values: Vec<f64>,
}

impl Rates {
    /// Those between `states`, in their order, in the unit of `scale`; `end` names further columns.
    fn new(
        transitions: &dyn Transitions,
        scale: f64,
        states: &[u32],
        ends: usize,
        end: impl Fn(u32) -> usize,
    ) -> Self {
        let mut place = vec![u32::MAX; transitions.states()];
        states.iter().zip(0..).for_each(|(&state, i)| place[state as usize] = i);
        let columns = states.len() + ends;
        let mut values = vec![0.0; states.len() * columns];
        let mut row = Vec::new();
        for (&state, values) in states.iter().zip(values.chunks_mut(columns.max(1))) {
            row.clear();
            transitions.outgoing(state as usize, &mut row);
            for &(to, rate) in &row {
                let column = match place[to as usize] {
                    u32::MAX => states.len() + end(to),
                    place => place as usize,
                };
                values[column] += rate * scale;
            }
        }
        Self { columns, values }
    }

    /// Eliminates state `k`, the last that is left. Returns its probabilities of going to each other state first, and to
    /// each end, and S_k.
    fn eliminate(&mut self, k: usize, states: usize) -> Option<(Vec<f64>, f64)> {
        let columns = self.columns;
        let (left, own) = self.values.split_at_mut(k * columns);
        let mut to = own[..columns].to_vec();
        to[k..states].fill(0.0);
        let sum = super::transitions::exit_rate(to.iter().copied());
        for v in to.iter_mut().filter(|v| **v > 0.0) {
            *v /= sum;
            if *v < LEAST {
                return None;
            }
        }
        let absorb = |row: &mut [f64]| {
            let rate = row[k];
            let mut lost = false;
            if rate > 0.0 {
                for (w, &v) in row.iter_mut().zip(&to) {
                    *w += rate * v;
                    lost |= v > 0.0 && *w < LEAST;
                }
            }
            lost
        };
        // A thread's share is worth its start.
        let lost = left.par_chunks_mut(columns.max(1)).with_min_len(1 + 65_536 / columns.max(1)).map(absorb);
        (sum.is_normal() && !lost.reduce(|| false, |a, b| a | b)).then_some((to, sum))
    }
}

/// The limit from some initial probabilities and a bound of its l1 error; none where rates span too many orders. `check` is
/// asked now and then whether to go on.
pub(super) fn limit(
    transitions: &dyn Transitions,
    scale: f64,
    initial: &[f64],
    classes: &Classes,
    check: &mut dyn FnMut() -> crate::Result<()>,
) -> crate::Result<Option<(Vec<f64>, f64)>> {
    let class = classes.of_states(transitions);
    let members = |of: Option<usize>| -> Vec<u32> {
        let among = |&s: &u32| classes.reached[s as usize] && class[s as usize] == of;
        (0..initial.len() as u32).filter(among).collect()
    };
    let ends = classes.representatives.len();
    let end =
        |state: u32| class[state as usize].expect("a state that is left for ever is among those that pass");
    let passing = members(None);
    let mut rates = Rates::new(transitions, scale, &passing, ends, end);
    let mut share = vec![0.0; passing.len() + ends];
    passing.iter().zip(&mut share).for_each(|(&state, share)| *share = initial[state as usize]);
    for class in 0..ends {
        let own = members(Some(class));
        share[passing.len() + class] =
            super::transitions::exit_rate(own.iter().map(|&state| initial[state as usize]));
    }
    for k in (0..passing.len()).rev() {
        if k % 64 == 0 {
            check()?;
        }
        let Some((to, _)) = rates.eliminate(k, passing.len()) else { return Ok(None) };
        let own = share[k];
        share.iter_mut().zip(to).for_each(|(share, to)| *share += own * to);
    }
    let stages = |m: usize| 6.0 * (m * (m + 2)) as f64;
    let mut roundings = 0.0f64;
    let mut limit = vec![0.0; initial.len()];
    for class in 0..ends {
        let states = members(Some(class));
        let Some(x) = stationary(transitions, scale, &states, check)? else { return Ok(None) };
        let share = share[passing.len() + class];
        states.iter().zip(x).for_each(|(&state, x)| limit[state as usize] = share * x);
        roundings = roundings.max(stages(states.len()));
    }
    // A share and a probability are multiplied; what a share underflows by is nothing beside the rest.
    let roundings = roundings + stages(passing.len()) + 8.0;
    Ok(Some((
        limit,
        1.001 * 0.5 * f64::EPSILON * roundings + f64::MIN_POSITIVE * (initial.len() as f64).powi(2),
    )))
}

/// The stationary distribution of a closed class.
fn stationary(
    transitions: &dyn Transitions,
    scale: f64,
    states: &[u32],
    check: &mut dyn FnMut() -> crate::Result<()>,
) -> crate::Result<Option<Vec<f64>>> {
    let m = states.len();
    let mut rates =
        Rates::new(transitions, scale, states, 0, |_| unreachable!("a closed class is never left"));
    let mut sums = vec![1.0; m];
    for k in (1..m).rev() {
        if k % 64 == 0 {
            check()?;
        }
        let Some((_, sum)) = rates.eliminate(k, m) else { return Ok(None) };
        sums[k] = sum;
    }
    // x = fraction · 2^exponent: probabilities may lie more orders apart than doubles reach.
    let mut x: Vec<(f64, i32)> = vec![(1.0, 0)];
    for (k, &sum) in sums.iter().enumerate().skip(1) {
        let from = |i: usize| rates.values[i * m + k];
        // A state that does not lead here may be any number of orders more probable.
        let before = || (0..k).filter(|&i| from(i) > 0.0);
        let top = before().map(|i| x[i].1).max().unwrap_or(0);
        let terms = before().map(|i| times_power_of_two(x[i].0, x[i].1 - top) * from(i));
        let value = super::transitions::exit_rate(terms) / sum;
        let size = exponent(value);
        x.push((times_power_of_two(value, -size), size + top));
    }
    let top = x.iter().map(|x| x.1).max().unwrap_or(0);
    let x: Vec<f64> =
        x.into_iter().map(|(fraction, size)| times_power_of_two(fraction, size - top)).collect();
    let sum = super::transitions::exit_rate(x.iter().copied());
    Ok(Some(x.into_iter().map(|x| x / sum).collect()))
}
