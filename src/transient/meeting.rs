//! The expected time until a chain meets one of some states, bounded: the certificate of a steady state.
//!
//! With a_0 = 1 outside of the targets and a_{m+1} = P a_m there, a_m is the probability of not having met any in m
//! steps, and H = Σ a_m. Two bounds of what is behind step m: the powers of ρ = max a_m; and the shape of the last
//! step, for a way so slow that ρ stays near 1: h = Σ_{l<m} a_l + c a_m has h − Ph ≥ 1 as soon as c ≥ a_m / (a_m − a_{m+1})
//! everywhere, and H is the least such h. Values round by a few units of themselves in a step, which is at most that many of
//! Σ max a_l in the 1.
//!
//! An iteration backwards, on the host: each rank holds P by rows of its own states, and gets from the others, after
//! each step, the values that these rows read. The bits are those of one process.

use super::classes::Known;
use super::problem::Observer;
use super::transitions::Transitions;
use crate::Result;
use crate::parallel::*;
use crate::ranks::Ranks;

/// P = I + Q/α by rows, for as long as the certificate takes: built-in models would generate each row thousands of
/// times over.
pub(super) struct Stochastic {
    pub(super) starts: Vec<usize>,
    /// Places of targets: the rank's own states, and behind them those of others that it reads.
    pub(super) to: Vec<u32>,
    probability: Vec<f64>,
    /// The probability of staying.
    pub(super) stay: Vec<f64>,
}

const ROWS: usize = 4096;

impl Stochastic {
    pub(super) fn new(transitions: &dyn Transitions, alpha: f64, states: std::ops::Range<usize>) -> Self {
        let (first, end) = (states.start, states.end);
        let blocks = (0..states.len().div_ceil(ROWS)).into_par_iter();
        let blocks = blocks
            .map(|b| Self::rows(transitions, alpha, first + b * ROWS..(first + (b + 1) * ROWS).min(end)));
        let mut all = Self { starts: vec![0], to: Vec::new(), probability: Vec::new(), stay: Vec::new() };
        for block in blocks.collect::<Vec<_>>() {
            let before = all.to.len();
            all.starts.extend(block.starts[1..].iter().map(|start| before + start));
            all.to.extend(block.to);
            all.probability.extend(block.probability);
            all.stay.extend(block.stay);
        }
        all
    }

    fn rows(transitions: &dyn Transitions, alpha: f64, states: std::ops::Range<usize>) -> Self {
        let mut rows = Self { starts: vec![0], to: Vec::new(), probability: Vec::new(), stay: Vec::new() };
        let mut row = Vec::new();
        for state in states {
            row.clear();
            transitions.outgoing(state, &mut row);
            rows.to.extend(row.iter().map(|&(to, _)| to));
            rows.probability.extend(row.iter().map(|&(_, rate)| rate / alpha));
            let rate: f64 = row.iter().map(|&(_, rate)| rate).sum();
            rows.stay.push(1.0 - (rate / alpha).min(1.0));
            rows.starts.push(rows.to.len());
        }
        rows
    }

    /// The probabilities of going elsewhere.
    pub(super) fn row(&self, state: usize) -> impl Iterator<Item = (u32, f64)> {
        let row = self.starts[state]..self.starts[state + 1];
        self.to[row.clone()].iter().copied().zip(self.probability[row].iter().copied())
    }

    /// (P a)(state).
    pub(super) fn apply(&self, state: usize, a: &[f64]) -> f64 {
        let row = self.starts[state]..self.starts[state + 1];
        let moved =
            self.to[row.clone()].iter().zip(&self.probability[row]).map(|(&to, p)| p * a[to as usize]);
        self.stay[state] * a[state] + moved.sum::<f64>()
    }
}

/// Values of other ranks' states, behind one's own in a vector.
struct Beyond {
    ranks: Ranks,
    /// Of each rank, how many of its values are read here; and the places of those that it reads.
    read: Vec<usize>,
    asked: Vec<Vec<u32>>,
}

impl Beyond {
    /// Renumbers the targets of a chain's rows.
    fn new(known: &Known<'_>, chain: &mut Stochastic) -> Self {
        let (ranks, own) = (known.ranks, known.rows.clone());
        let mut others: Vec<u32> =
            chain.to.iter().copied().filter(|&to| !own.contains(&(to as usize))).collect();
        others.sort_unstable();
        others.dedup();
        // Ascending, so by ranks.
        let mut wanted: Vec<Vec<u32>> = vec![Vec::new(); ranks.size()];
        others.iter().for_each(|&state| wanted[known.owner(state as usize)].push(state));
        chain.to.par_iter_mut().for_each(|to| {
            *to = match own.contains(&(*to as usize)) {
                true => *to - own.start as u32,
                false => (own.len() + others.partition_point(|other| other < to)) as u32,
            };
        });
        let read = wanted.iter().map(Vec::len).collect();
        let mut asked = ranks.all_to_all(wanted);
        asked.iter_mut().flatten().for_each(|state| *state -= own.start as u32);
        Self { ranks, read, asked }
    }

    fn len(&self) -> usize {
        self.read.iter().sum()
    }

    /// Brings the values behind one's own up to date.
    fn update(&self, values: &mut [f64]) {
        if !self.ranks.is_distributed() {
            return;
        }
        let pick = |places: &Vec<u32>| -> Vec<u32> {
            let values: Vec<f64> = places.iter().map(|&place| values[place as usize]).collect();
            bytemuck::cast_slice(&values).to_vec()
        };
        let arrived = self.ranks.all_to_all(self.asked.iter().map(pick).collect()).concat();
        let own = values.len() - self.len();
        bytemuck::cast_slice_mut::<f64, u32>(&mut values[own..]).copy_from_slice(&arrived);
    }
}

/// An upper bound of the expected number of steps of P = I + Q/α from any reached state to the targets; none if `most`
/// steps do not show one. `reached` is about this rank's states, `targets` are of all.
///
/// # Errors
/// What the observer of any rank says.
pub(super) fn expected_steps(
    known: &Known<'_>,
    alpha: f64,
    targets: &[usize],
    reached: &[bool],
    most: u64,
    observer: &mut dyn Observer,
) -> Result<Option<f64>> {
    let (ranks, own) = (known.ranks, known.rows.clone());
    let n = own.len();
    let mut chain = Stochastic::new(known.transitions, alpha, own.clone());
    let beyond = Beyond::new(known, &mut chain);
    // Paths never see a state that is not reached; it counts as met.
    let mut met: Vec<bool> = reached.iter().map(|&r| !r).collect();
    targets.iter().filter(|&z| own.contains(z)).for_each(|&z| met[z - own.start] = true);
    let mut a: Vec<f64> = met.iter().map(|&met| if met { 0.0 } else { 1.0 }).collect();
    a.resize(n + beyond.len(), 0.0);
    beyond.update(&mut a);
    let mut next = vec![0.0; n + beyond.len()];
    let (mut largest, mut sum) = (ranks.all_reduce_max(a.iter().copied().fold(0.0, f64::max)), 0.0);
    let mut steps = 0u64;
    let mut best = f64::INFINITY;
    // What a value may round by in a step, and the bound of all that shape has shown, with its next look.
    let longest = chain.starts.windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0);
    let rounding = (ranks.all_reduce_max(longest as f64) + 4.0) * f64::EPSILON;
    let (mut shaped, mut look) = (f64::INFINITY, 64);
    while largest > 0.0 {
        sum += largest;
        let block = |(block, out): (usize, &mut [f64])| {
            let mut largest = 0.0f64;
            for (state, out) in (block * ROWS..).zip(out) {
                if !met[state] {
                    *out = chain.apply(state, &a);
                    largest = largest.max(*out);
                }
            }
            largest
        };
        let here = &mut next[..n];
        largest = match n {
            0..=ROWS => block((0, here)),
            _ => here.par_chunks_mut(ROWS).enumerate().map(block).reduce(|| 0.0, f64::max),
        };
        if steps + 1 >= look {
            // h = Σ a_l + c a_m has h − Ph ≥ 1 but for rounding if c (a_m − a_{m+1}) ≥ a_m: then no expectation is above it.
            look = steps + 1 + (steps / 4).max(64);
            let before = ranks.all_reduce_max(a[..n].iter().copied().fold(0.0, f64::max));
            let of = |(a, next): (&f64, &f64)| match *a {
                0.0 => 0.0,
                a => a / (a - next * (1.0 + rounding)).max(0.0),
            };
            let c = ranks.all_reduce_max(a[..n].iter().zip(&next).map(of).fold(0.0, f64::max));
            let bound = (sum + c * before) / (1.0 - rounding * sum);
            if bound > 0.9 * shaped && shaped.is_finite() && rounding * sum < 0.5 {
                return Ok(Some(bound.min(shaped)));
            }
            if bound > 0.0 && rounding * sum < 0.5 {
                shaped = shaped.min(bound);
            }
        }
        largest = ranks.all_reduce_max(largest);
        beyond.update(&mut next);
        std::mem::swap(&mut a, &mut next);
        steps += 1;
        // The largest value falls monotonically; rounding of a few units in each of the steps is covered twice.
        let rho = largest * (1.0 + 64.0 * f64::EPSILON * steps as f64);
        if rho < 1.0 {
            let bound = sum / (1.0 - rho);
            // Going on pays while it halves what the certificate costs in precision.
            if rho < 0.5 || (steps.is_multiple_of(1024) && bound > 0.9 * best) {
                return Ok(Some(bound.min(shaped)));
            }
            if steps.is_multiple_of(1024) {
                best = bound;
            }
        }
        if steps.is_multiple_of(64) {
            ranks.all_ok(observer.progress(0, 0))?;
        }
        if steps >= most {
            let powers = if rho < 1.0 { sum / (1.0 - rho) } else { f64::INFINITY };
            return Ok(Some(powers.min(shaped)).filter(|bound| bound.is_finite()));
        }
    }
    Ok(Some(sum))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transient::csr::Csr;
    use crate::transient::transitions::TransitionList;

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
        Csr::from_list(n, list).unwrap()
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
        let known = Known::new(&chain, Ranks::ALONE, 0..10);

        let bound = expected_steps(&known, 2.0, &[0], &[true; 10], 1 << 20, &mut Silent).unwrap().unwrap();

        // h(i) = i (2·10 − 1 − i) steps of the chain with holding probability 1/2 at the far end: h(9) = 90.
        assert!((90.0..=400.0).contains(&bound), "{bound}");
    }

    #[test]
    fn a_slow_way_to_the_target_is_bounded_long_before_it_is_taken() {
        // 0 <-> 1 at rate 1 and 2, from either on to 2 at 1e-7: α/1e-7 steps.
        let chain = chain(3, &[(0, 1, 1.0), (1, 0, 2.0), (0, 2, 1e-7), (1, 2, 1e-7)]);
        let known = Known::new(&chain, Ranks::ALONE, 0..3);

        let bound = expected_steps(&known, 2.0 + 1e-7, &[2], &[true; 3], 1000, &mut Silent).unwrap().unwrap();

        let exact = (2.0 + 1e-7) / 1e-7;
        assert!(exact <= bound && bound < 1.01 * exact, "{bound}");
    }
}
