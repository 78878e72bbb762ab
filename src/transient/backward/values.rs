//! Values of every state: of questions that are asked wherever a chain may begin.
//!
//! Columns in the place of rows: for a value f of each state, (e^{Qt} f)(i) is what f is expected to be at t from state i. With
//! P = I + Q/α that is Σ_k P(N = k) P^k f, N Poisson with mean αt, and as the rows of P are distributions no P^k f exceeds the
//! largest |f|. So bounds are those of uniformization with the largest value in the place of the l1 norm.
//!
//! What is summed until some states are reached is h = Σ_k P^k b on the others, b what a step earns. Let a = P^m b and c be a
//! number with c (a − Pa) ≥ a everywhere: then l + c a, l = Σ_{k<m} P^k b, has at least b more than its image under P, so it is h
//! or more; with c' (a − Pa) ≤ a, l + c' a is h or less. Both come together once a has the shape in which it shrinks. States
//! are [eliminated](super::envelope) where that is shorter.
//!
//! On the host, in double precision.

use super::envelope::Envelope;
use super::hitting_time::Stochastic;
use crate::lane::expect_memory;
use crate::parallel::*;
use crate::transient::chain::recurrent_classes::Classes;
use crate::transient::chain::transitions::Transitions;
use crate::transient::numerics::poisson::{Weights, Window, expected_excess};
use crate::transient::problem::Observer;
use crate::{Error, Result};

/// States that a thread works on at once.
const ROWS: usize = 4096;
/// Steps between two looks whether to go on.
const CHECK_STEPS: u64 = 32;
/// Largest αt.
const MOST_ALPHA_T: f64 = 1e13;
/// Multiplications after which what is summed without end is given up.
const MOST_STEPS: u64 = 1 << 24;
const U: f64 = 0.5 * f64::EPSILON;

/// A value of each state, and bounds on their errors.
#[derive(Debug, Clone, PartialEq)]
pub struct StateValues {
    /// One a state.
    pub values: Vec<f64>,
    /// Of each a bound on its error.
    pub bounds: Vec<f64>,
}

/// A chain whose values are asked for from every state.
pub struct Backward {
    chain: Stochastic,
    /// States that lead to each: where the list of each ends, and the lists.
    from: (Vec<usize>, Vec<u32>),
    alpha: f64,
    /// Bound on the error of a step, of values of at most 1.
    rounding: f64,
}

/// The chain with rates of P, in the unit of time 1/α.
impl Transitions for Backward {
    fn states(&self) -> usize {
        self.chain.stay.len()
    }

    fn incoming(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        let (ends, from) = &self.from;
        for &before in &from[ends[state]..ends[state + 1]] {
            let own = self.chain.row(before as usize).find(|(to, _)| *to as usize == state);
            row.extend(own.map(|(_, rate)| (before, rate)));
        }
    }

    fn outgoing(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        row.extend(self.chain.row(state));
    }
}

impl std::fmt::Debug for Backward {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Backward({} states)", self.states())
    }
}

impl Backward {
    /// Takes the transitions into memory.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] where there is no room, [`Error::Invalid`] for an exit rate that is no double.
    pub fn new(transitions: &dyn Transitions) -> Result<Self> {
        let n = transitions.states();
        let mut exit = vec![0.0; n];
        transitions.exit_rates(0..n, &mut exit);
        let alpha = exit.iter().copied().fold(0.0, f64::max);
        if !alpha.is_finite() {
            return Err(Error::Invalid("the sum of a state's rates is above the largest double".into()));
        }
        expect_memory(n as u64 * 64, || format!("values of {n} states"))?;
        let chain = Stochastic::new(transitions, if alpha > 0.0 { alpha } else { 1.0 }, 0..n);
        let mut ends = vec![0; n + 1];
        chain.to.iter().for_each(|&to| ends[to as usize + 1] += 1);
        (0..n).for_each(|i| ends[i + 1] += ends[i]);
        let mut next = ends.clone();
        let mut from = vec![0; chain.to.len()];
        for state in 0..n {
            for &to in &chain.to[chain.starts[state]..chain.starts[state + 1]] {
                from[next[to as usize]] = state as u32;
                next[to as usize] += 1;
            }
        }
        let longest = chain.starts.windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0);
        let rounding = (2 * longest + 8) as f64 * U;
        Ok(Self { chain, from: (ends, from), alpha, rounding })
    }

    /// The sets of states that are never left once entered, and in which every state leads to every other.
    pub fn closed_classes(&self) -> Vec<Vec<u32>> {
        let even = vec![1.0; self.states()];
        let classes = Classes::new(self, &even, &even);
        let mut all = vec![Vec::new(); classes.representatives.len()];
        for (state, class) in (0u32..).zip(classes.of_states(self)) {
            if let Some(class) = class {
                all[class].push(state);
            }
        }
        all
    }

    /// States that may get to `targets` through states of `through` alone, the targets among them.
    pub fn may_reach(&self, targets: &[bool], through: &[bool]) -> Vec<bool> {
        let mut found = targets.to_vec();
        let mut open: Vec<u32> = (0u32..).zip(targets).filter(|(_, t)| **t).map(|(s, _)| s).collect();
        let (ends, from) = &self.from;
        while let Some(state) = open.pop() {
            for &before in &from[ends[state as usize]..ends[state as usize + 1]] {
                let place = before as usize;
                if through[place] && !std::mem::replace(&mut found[place], true) {
                    open.push(before);
                }
            }
        }
        found
    }

    /// P a on the states that are not `fixed`, and a on those. Tells the least and largest value, and the largest change.
    fn step(&self, a: &[f64], out: &mut [f64], fixed: &[bool]) -> [f64; 3] {
        let block = |(block, out): (usize, &mut [f64])| {
            let mut seen = [f64::INFINITY, f64::NEG_INFINITY, 0.0f64];
            for (state, out) in (block * ROWS..).zip(out) {
                *out = if fixed[state] { a[state] } else { self.chain.apply(state, a) };
                seen = [seen[0].min(*out), seen[1].max(*out), seen[2].max((*out - a[state]).abs())];
            }
            seen
        };
        let both = |a: [f64; 3], b: [f64; 3]| [a[0].min(b[0]), a[1].max(b[1]), a[2].max(b[2])];
        let none = || [f64::INFINITY, f64::NEG_INFINITY, 0.0];
        out.par_chunks_mut(ROWS).enumerate().map(block).reduce(none, both)
    }

    /// The value that is expected of `values` at a time from each state, `fixed` states being never left; the error is asked
    /// to be at most ε times the largest value.
    ///
    /// # Errors
    /// A time that takes too many multiplications; what the observer says.
    pub fn at(
        &self,
        values: &[f64],
        fixed: &[bool],
        time: f64,
        epsilon: f64,
        observer: &mut dyn Observer,
    ) -> Result<StateValues> {
        self.sum(values, fixed, time, epsilon, false, observer)
    }

    /// What is earned at the rates `rewards` until a time from each state.
    ///
    /// # Errors
    /// As [`at`](Self::at).
    pub fn until(
        &self,
        rewards: &[f64],
        time: f64,
        epsilon: f64,
        observer: &mut dyn Observer,
    ) -> Result<StateValues> {
        self.sum(rewards, &vec![false; rewards.len()], time, epsilon, true, observer)
    }

    /// Σ w_k P^k f with w_k = P(N = k), or P(N > k)/α where what is earned is asked for.
    fn sum(
        &self,
        values: &[f64],
        fixed: &[bool],
        time: f64,
        epsilon: f64,
        earned: bool,
        observer: &mut dyn Observer,
    ) -> Result<StateValues> {
        let n = values.len();
        let most = values.iter().fold(0.0f64, |most, v| v.abs().max(most));
        let lambda = self.alpha * time;
        if time == 0.0 || lambda == 0.0 || most == 0.0 {
            let factor = if earned { time } else { 1.0 };
            let values: Vec<f64> = values.iter().map(|v| v * factor).collect();
            let bounds = values.iter().map(|v| if earned { v.abs() * U } else { 0.0 }).collect();
            return Ok(StateValues { values, bounds });
        }
        if lambda > MOST_ALPHA_T {
            return Err(Error::Invalid(format!(
                "time {time:e} is out of range: it needs {lambda:.1e} multiplications, and at most \
                 {MOST_ALPHA_T:e} are supported"
            )));
        }
        let window = Window::new(lambda, 0.5 * epsilon);
        let weights = window.weights();
        let (left, right) = (weights.left, weights.left + weights.values.len() as u64 - 1);
        let tails = if earned { weights.tails() } else { Vec::new() };
        let weight = |k: u64| match (earned, k < left) {
            (true, true) => 1.0,
            (true, false) => tails[(k - left) as usize + 1],
            (false, true) => 0.0,
            (false, false) => weights.values[(k - left) as usize],
        };
        // Of all terms from k on.
        let whole = if earned { lambda } else { 1.0 };
        let (mut a, mut next, mut sum) = (values.to_vec(), vec![0.0; n], vec![0.0; n]);
        let (mut given, mut k, mut stop) = (0.0, 0, 0.0);
        loop {
            let w = weight(k);
            if w > 0.0 {
                sum.par_iter_mut().zip(&a).with_min_len(ROWS).for_each(|(sum, a)| *sum += w * a);
                given += w;
            }
            if k == right {
                break;
            }
            let [low, high, change] = self.step(&a, &mut next, fixed);
            std::mem::swap(&mut a, &mut next);
            k += 1;
            if k % CHECK_STEPS == 0 {
                observer.progress(k, right)?;
                // All later values lie between the least and the largest, and move by no more than one step does.
                // A change that is no more than rounding proves nothing more, however many steps follow.
                let noise = self.rounding * most;
                stop = (high - low).min((change + noise) * expected_excess(lambda, k));
                if stop <= 0.25 * epsilon * most || change <= noise {
                    let rest = (whole - given).max(0.0);
                    sum.par_iter_mut().zip(&a).with_min_len(ROWS).for_each(|(sum, a)| *sum += rest * a);
                    break;
                }
                stop = 0.0;
            }
        }
        let error = most * self.error(&weights, lambda, k, right, earned) + stop;
        let error = if earned { time * error } else { error };
        let scale = if earned { 1.0 / self.alpha } else { 1.0 };
        sum.iter_mut().for_each(|sum| *sum *= scale);
        Ok(StateValues { bounds: vec![error; n], values: sum })
    }

    /// Bound on the error of k steps of values of at most 1, the stop aside; of what is earned, for each unit of time.
    fn error(&self, weights: &Weights, lambda: f64, k: u64, right: u64, earned: bool) -> f64 {
        let steps = lambda.min(k as f64);
        // Steps; products and additions of a term; weights, and λ itself.
        let rounding = self.rounding * steps
            + 3.0 * U * k as f64
            + weights.rounding
            + 4.0 * f64::EPSILON * lambda.sqrt();
        let error = weights.truncation + rounding + 16.0 * U;
        // Σ P(N > k) behind the last term R shrinks by λ/(R + 2) or faster.
        let room = right as f64 + 2.0 - lambda;
        match earned {
            false => error,
            true if room > 0.0 => error + weights.truncation * (right as f64 + 2.0) / room / lambda,
            true => f64::INFINITY,
        }
    }

    /// What is earned at the rates `rewards` until a state of `ends` is reached, and the value there, from each state. From all
    /// others `ends` has to be reached almost surely. The error is asked to be at most ε times the largest value.
    ///
    /// # Errors
    /// What the observer says.
    pub fn totals(
        &self,
        ends: &[bool],
        values: &[f64],
        rewards: &[f64],
        epsilon: f64,
        observer: &mut dyn Observer,
    ) -> Result<StateValues> {
        let n = self.states();
        if let Some(reward) = rewards.iter().chain(values).find(|reward| **reward < 0.0) {
            return Err(Error::Invalid(format!(
                "reward {reward} is out of range: sums over all time need rewards ≥ 0"
            )));
        }
        let mut found = StateValues { values: vec![0.0; n], bounds: vec![0.0; n] };
        let passing: Vec<u32> = (0..n as u32).filter(|&s| !ends[s as usize]).collect();
        for state in (0..n).filter(|&s| ends[s]) {
            found.values[state] = values[state];
        }
        if passing.is_empty() {
            return Ok(found);
        }
        // Subnormal quotients have no relative error.
        let normal = passing.iter().all(|&s| self.chain.row(s as usize).all(|(_, p)| p.is_normal()));
        let envelope = if normal { Envelope::new(self, &passing)? } else { None };
        let worth = envelope.as_ref().map(|envelope| envelope.worth(self.chain.to.len() as u64));
        let met = match worth {
            Some(worth) if worth < CHECK_STEPS => false,
            worth => {
                self.iterate(ends, rewards, epsilon, worth.unwrap_or(MOST_STEPS), &mut found, observer)?
            }
        };
        let Some(envelope) = envelope.filter(|_| !met) else { return Ok(found) };
        let earned = self.first_term(ends, values, rewards);
        let earned: Vec<f64> = passing.iter().map(|&s| earned[s as usize]).collect();
        let mut check = || observer.progress(0, 0);
        let Some(totals) = envelope.values(&[earned], &mut check)? else {
            self.iterate(ends, rewards, epsilon, MOST_STEPS, &mut found, observer)?;
            return Ok(found);
        };
        // Rates are quotients, each rounded once, and the first term is a plain sum.
        let extra = self.rounding + (2 * passing.len() + 4) as f64 * U;
        for (&state, &total) in passing.iter().zip(&totals.columns[0]) {
            // A finite expectation that is no double.
            found.values[state as usize] = total.min(f64::MAX);
            found.bounds[state as usize] = totals.bound(total) + total * extra;
        }
        Ok(found)
    }

    /// b: what a step earns, and what it ends in.
    fn first_term(&self, ends: &[bool], values: &[f64], rewards: &[f64]) -> Vec<f64> {
        let there: Vec<f64> =
            ends.iter().zip(values).map(|(end, value)| if *end { *value } else { 0.0 }).collect();
        let earned = |s: usize| self.chain.apply(s, &there) + rewards[s] / self.alpha;
        (0..ends.len()).map(|s| if ends[s] { 0.0 } else { earned(s) }).collect()
    }

    /// The totals from below and from above; true if they are within ε.
    fn iterate(
        &self,
        ends: &[bool],
        rewards: &[f64],
        epsilon: f64,
        most: u64,
        found: &mut StateValues,
        observer: &mut dyn Observer,
    ) -> Result<bool> {
        let n = self.states();
        let mut a = self.first_term(ends, &found.values, rewards);
        let mut time: Vec<f64> = ends.iter().map(|end| if *end { 0.0 } else { 1.0 }).collect();
        let (mut next, mut sum, mut steps) = (vec![0.0; n], vec![0.0; n], vec![0.0; n]);
        let (mut k, mut check_at) = (0u64, CHECK_STEPS);
        loop {
            // The sums lack the terms at hand, of which the enclosures have at least one.
            k += 1;
            let checks = k >= check_at;
            self.step(&time, &mut next, ends);
            let longest = if checks { self.longest(&time, &next, &steps, k) } else { 0.0 };
            steps.iter_mut().zip(&time).for_each(|(sum, a)| *sum += a);
            std::mem::swap(&mut time, &mut next);
            self.step(&a, &mut next, ends);
            if checks {
                check_at = k + (k / 8).max(CHECK_STEPS);
                observer.progress(k, 0)?;
                let (half, high) = self.enclosed(&a, &next, &sum);
                let rounding = self.rounding * longest * high + 4.0 * U * k as f64 * high;
                let met = high.is_finite() && half + rounding <= epsilon * high;
                if met || k >= most {
                    let [least, largest] = self.ratios(&a, &next);
                    let middle = 0.5 * (least + largest);
                    let close = middle.is_finite();
                    for s in (0..n).filter(|&s| !ends[s]) {
                        found.values[s] = sum[s] + if close { middle * a[s] } else { least * a[s] };
                        found.bounds[s] = half + rounding;
                    }
                    return Ok(met);
                }
            }
            sum.iter_mut().zip(&a).for_each(|(sum, a)| *sum += a);
            std::mem::swap(&mut a, &mut next);
        }
    }

    /// A number that the expected steps do not exceed, also with what their own iteration has rounded by.
    fn longest(&self, time: &[f64], next: &[f64], steps: &[f64], k: u64) -> f64 {
        let longest = self.enclosed(time, next, steps).1;
        let room = 1.0 - self.rounding * longest - 4.0 * U * k as f64;
        if room > 0.0 { longest / room } else { f64::INFINITY }
    }

    /// c' and c of the head of this module.
    fn ratios(&self, a: &[f64], next: &[f64]) -> [f64; 2] {
        let of = |(a, next): (&f64, &f64)| {
            if *a == 0.0 && *next == 0.0 {
                return [f64::INFINITY, 1.0];
            }
            let slack = self.rounding * (a + next);
            let most = a / (a - next - slack).max(0.0);
            let falls = a - next + slack;
            [
                if falls > 0.0 { a / falls } else { f64::INFINITY },
                if most.is_nan() { f64::INFINITY } else { most },
            ]
        };
        let both = |a: [f64; 2], b: [f64; 2]| [a[0].min(b[0]), a[1].max(b[1])];
        let seen = a.par_iter().zip(next).with_min_len(ROWS).map(of);
        let [least, largest] = seen.reduce(|| [f64::INFINITY, 1.0], both);
        // One term more is never too much.
        [if least.is_finite() { least.max(1.0) } else { 1.0 }, largest]
    }

    /// Half of what the enclosures of all states are wide, at most, and the largest upper end.
    fn enclosed(&self, a: &[f64], next: &[f64], sum: &[f64]) -> (f64, f64) {
        let [least, largest] = self.ratios(a, next);
        let (mut widest, mut high) = (0.0f64, 0.0f64);
        for (a, sum) in a.iter().zip(sum) {
            if *a > 0.0 {
                widest = widest.max(0.5 * (largest - least) * a);
                high = high.max(sum + largest * a);
            } else {
                high = high.max(*sum);
            }
        }
        (widest, high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transient::chain::csr::Csr;
    use crate::transient::chain::transitions::TransitionList;

    struct Quiet;

    impl Observer for Quiet {}

    /// Two states that are rarely left: from the one the mean time is 2/q, from the other one more.
    #[test]
    fn totals_of_a_slowly_absorbed_chain_are_within_their_bounds() {
        for q in [1e-1, 1e-2] {
            let list = TransitionList { from: vec![0, 1, 1], to: vec![1, 0, 2], rate: vec![1.0, 1.0, q] };
            let backward = Backward::new(&Csr::from_list(3, list).expect("a chain")).expect("room");
            let ends = [false, false, true];
            let mut found = StateValues { values: vec![0.0; 3], bounds: vec![0.0; 3] };
            backward
                .iterate(&ends, &[1.0, 1.0, 0.0], 1e-9, MOST_STEPS, &mut found, &mut Quiet)
                .expect("no one stops it");
            for (state, wanted) in [2.0 / q + 1.0, 2.0 / q].into_iter().enumerate() {
                let (value, bound) = (found.values[state], found.bounds[state]);
                assert!(
                    (value - wanted).abs() <= bound + 4.0 * U * wanted && bound <= 1e-6 * wanted,
                    "q = {q}, state {state}: {value} ± {bound}, not {wanted}"
                );
            }
        }
    }
}
