//! The steady state, with a certificate.
//!
//! Let z be one state of each closed class and H the largest expected number of steps from any state until one of
//! them is met. Then lim x Pᵏ differs from x by at most 2·H·‖xP − x‖ in l1: paths from x and from the limit are
//! the same in law once they have met a z, the flow of xP − x into each class is zero because the probability of
//! ending there is harmonic, and what happens before lasts H steps at most in expectation.
//!
//! H is bounded by a second iteration, backwards: a_0 = 1 outside of z, a_{m+1}(i) = Σ_j P_ij a_m(j), a(z) = 0,
//! is the probability of having met no z in m steps; when its largest value is ρ < 1, H ≤ Σ_{l<m} max a_l / (1 − ρ).
//! No guess is made from two iterates that happen to be close, which a chain of slow and fast parts would fool.

use rayon::prelude::*;

use super::chain::Transitions;
use super::iteration::Iteration;
use super::solve::{Bound, Built, Observer, RewardValue, TimeResult};
use crate::kernel::Real;
use crate::{Error, Result};

/// Multiplications after which either iteration is given up.
const MOST: u64 = 1 << 31;

pub(super) fn run<T: Real>(
    built: &Built<'_, T>,
    which: &[usize],
    times: &mut [Option<TimeResult>],
    observer: &mut dyn Observer,
) -> Result<u64> {
    let transitions = built.problem.transitions;
    // Nine tenths of 1/α leave every state a probability of staying: a periodic chain converges too.
    let inverse_alpha = T::of(0.9 * built.survey.inverse_alpha.wide());
    let alpha = 1.0 / inverse_alpha.wide();
    let meeting = built.lanes[0].host(|| {
        let targets = closed_class_states(transitions);
        expected_steps(transitions, alpha, &targets, observer)
    })?;
    let epsilon = built.options.epsilon;
    // What a step's own rounding does to the residual cannot be iterated away.
    let floor = 2.0 * meeting * built.survey.step;
    let target = (epsilon - floor).max(0.25 * epsilon) * 0.9;

    let mut iteration = Iteration::new(built.lanes, &built.parts, inverse_alpha, &[], (0, 0))?;
    iteration.start(&built.initial)?;
    let mut next = 16u64;
    let mut best = f64::INFINITY;
    let mut stalled = 0;
    let steady_state = loop {
        iteration.advance(iteration.steps() + next, &[], observer)?;
        let distance = iteration.distance()? * (1.0 + 1e-9 + 12.0 * T::PRECISION.unit_roundoff());
        let bound = 2.0 * meeting * distance;
        if bound <= target {
            break bound;
        }
        // A distance that no longer falls has reached rounding, or the chain is periodic.
        stalled = if distance < 0.999 * best { 0 } else { stalled + 1 };
        best = best.min(distance);
        if stalled >= 8 || iteration.steps() > MOST {
            break bound;
        }
        next = (iteration.steps() / 16).clamp(16, 1 << 16);
    };
    let terms = iteration.steps();
    let mut limit = iteration.newest()?;
    // The mass has drifted with rounding by a measured amount; the limit's is 1.
    let mass = super::chain::exit_rate(limit.iter().copied());
    limit.iter_mut().for_each(|p| *p /= mass);
    // One closed class: the limit does not depend on the way there, only on the last residual. Several: rounding
    // on the way shifted mass between them.
    let u = T::PRECISION.unit_roundoff();
    let on_the_way = built.survey.step * terms as f64;
    let rounding = floor + on_the_way.min(2.0) + 2.0 * (mass - 1.0).abs() + 4.0 * u;
    for &index in which {
        let rewards = built.problem.rewards.iter().map(|r| {
            let instantaneous = r.values.iter().zip(&limit).map(|(r, p)| r * p).sum::<f64>();
            let cumulative = if instantaneous == 0.0 { 0.0 } else { instantaneous * f64::INFINITY };
            RewardValue { name: r.name.clone(), instantaneous, cumulative }
        });
        times[index] = Some(TimeResult {
            time: built.problem.times[index],
            alpha_t: f64::INFINITY,
            window: (0, terms),
            bound: Bound { truncation: 0.0, steady_state, rounding },
            mass: None,
            rewards: rewards.collect(),
        });
        if built.problem.vectors {
            observer.result(index, &limit)?;
        }
    }
    Ok(terms)
}

/// One state of each closed class of communicating states: of each strongly connected component that is never
/// left (R. Tarjan, "Depth-first search and linear graph algorithms", SIAM J. Comput. 1, 1972).
fn closed_class_states(transitions: &dyn Transitions) -> Vec<usize> {
    const UNSEEN: u32 = u32::MAX;
    let n = transitions.states();
    let (mut number, mut low) = (vec![UNSEEN; n], vec![0u32; n]);
    let mut component = vec![false; n]; // assigned to a finished component
    let mut stack: Vec<u32> = Vec::new();
    let mut closed = Vec::new();
    let mut counter = 0;
    /// A state on the current path, its transitions, and the next of them to follow.
    type Visit = (u32, Vec<(u32, f64)>, usize);
    let mut path: Vec<Visit> = Vec::new();
    let mut leaves = vec![false; n];
    for root in 0..n {
        if number[root] != UNSEEN {
            continue;
        }
        let mut enter = Some(root as u32);
        loop {
            if let Some(state) = enter.take() {
                number[state as usize] = counter;
                low[state as usize] = counter;
                counter += 1;
                stack.push(state);
                let mut row = Vec::new();
                transitions.outgoing(state as usize, &mut row);
                path.push((state, row, 0));
            }
            let Some((state, row, next)) = path.last_mut() else { break };
            let s = *state as usize;
            if let Some(&(to, _)) = row.get(*next) {
                *next += 1;
                let to_place = to as usize;
                if number[to_place] == UNSEEN {
                    enter = Some(to);
                } else if component[to_place] {
                    leaves[s] = true;
                } else {
                    low[s] = low[s].min(number[to_place]);
                }
                continue;
            }
            if low[s] == number[s] {
                let mut left = false;
                while let Some(member) = stack.pop() {
                    component[member as usize] = true;
                    left |= leaves[member as usize];
                    if member as usize == s {
                        break;
                    }
                }
                if !left {
                    closed.push(s);
                }
                leaves[s] = left;
            }
            path.pop();
            if let Some((parent, _, _)) = path.last() {
                let p = *parent as usize;
                if component[s] {
                    leaves[p] = true;
                } else {
                    low[p] = low[p].min(low[s]);
                }
            }
        }
    }
    closed
}

/// An upper bound of the expected number of steps of P = I + Q/α from any state to the targets.
fn expected_steps(
    transitions: &dyn Transitions,
    alpha: f64,
    targets: &[usize],
    observer: &mut dyn Observer,
) -> Result<f64> {
    let n = transitions.states();
    let mut target = vec![false; n];
    targets.iter().for_each(|&z| target[z] = true);
    let mut a: Vec<f64> = target.iter().map(|&z| if z { 0.0 } else { 1.0 }).collect();
    let mut next = vec![0.0; n];
    let (mut largest, mut sum) = (if targets.len() < n { 1.0 } else { 0.0 }, 0.0);
    let mut steps = 0u64;
    const ROWS: usize = 4096;
    let mut best = f64::INFINITY;
    while largest > 0.0 {
        sum += largest;
        largest = next
            .par_chunks_mut(ROWS)
            .enumerate()
            .map_init(Vec::new, |row, (chunk, out)| {
                let mut largest = 0.0f64;
                for (i, out) in out.iter_mut().enumerate() {
                    let state = chunk * ROWS + i;
                    if target[state] {
                        continue;
                    }
                    row.clear();
                    transitions.outgoing(state, row);
                    let (mut rate, mut reached) = (0.0, 0.0);
                    for &(to, r) in row.iter() {
                        rate += r;
                        reached += r * a[to as usize];
                    }
                    *out = a[state] * (1.0 - (rate / alpha).min(1.0)) + reached / alpha;
                    largest = largest.max(*out);
                }
                largest
            })
            .reduce(|| 0.0, f64::max);
        std::mem::swap(&mut a, &mut next);
        steps += 1;
        // The largest value falls monotonically; rounding of a few units in each of the steps is covered twice.
        let rho = largest * (1.0 + 64.0 * f64::EPSILON * steps as f64);
        if rho < 1.0 {
            let bound = sum / (1.0 - rho);
            // Going on pays while it halves what the certificate costs in precision.
            if rho < 0.5 || (steps.is_multiple_of(1024) && bound > 0.9 * best) {
                return Ok(bound);
            }
            if steps.is_multiple_of(1024) {
                best = bound;
            }
        }
        if steps.is_multiple_of(64) {
            observer.progress(0, 0)?;
        }
        if steps > MOST {
            return Err(Error::Invalid(format!(
                "no certificate for the steady state after {steps} steps: the chain mixes too slowly; ask for a \
                 finite time"
            )));
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transient::chain::TransitionList;
    use crate::transient::csr::Csr;

    struct Silent;
    impl Observer for Silent {
        fn progress(&mut self, _: u64, _: u64) -> Result<()> {
            Ok(())
        }
        fn result(&mut self, _: usize, _: &[f64]) -> Result<()> {
            Ok(())
        }
    }

    fn chain(n: usize, transitions: &[(u32, u32, f64)]) -> Csr {
        let list = TransitionList {
            from: transitions.iter().map(|t| t.0).collect(),
            to: transitions.iter().map(|t| t.1).collect(),
            rate: transitions.iter().map(|t| t.2).collect(),
        };
        Csr::from_list(n, &list).unwrap()
    }

    #[test]
    fn each_closed_class_has_one_representative() {
        // 0 <-> 1 -> 2 <-> 3, 1 -> 4 absorbing, 5 -> 0; 6 on its own.
        let chain = chain(
            7,
            &[(0, 1, 1.0), (1, 0, 1.0), (1, 2, 1.0), (2, 3, 1.0), (3, 2, 1.0), (1, 4, 1.0), (5, 0, 1.0)],
        );

        let mut found = closed_class_states(&chain);
        found.sort_unstable();

        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found.contains(&4) && found.contains(&6));
        assert!(found.contains(&2) ^ found.contains(&3));
    }

    #[test]
    fn expected_steps_bound_a_walk_on_a_line_from_above() {
        // From state 9 of a birth-death chain with equal rates down to 0: 9·10 expected jumps, of two rates each
        // step (α = 2), one at the end.
        let mut list = Vec::new();
        for i in 0..9u32 {
            list.push((i, i + 1, 1.0));
            list.push((i + 1, i, 1.0));
        }
        let chain = chain(10, &list);

        let bound = expected_steps(&chain, 2.0, &[0], &mut Silent).unwrap();

        // h(i) = i (2·10 − 1 − i) steps of the chain with holding probability 1/2 at the far end: h(9) = 90.
        assert!((90.0..=400.0).contains(&bound), "{bound}");
    }
}
