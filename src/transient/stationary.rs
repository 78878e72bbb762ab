//! The steady state, with a certificate.
//!
//! Let z be one state of each closed class that can be reached, and H the largest expected number of steps from any
//! state that can be reached until one of them is met. Then lim x Pᵏ differs from x by at most 2·H·‖xP − x‖ in l1: paths from x and from the limit are
//! the same in law once they have met a z, the flow of xP − x into each class is zero because the probability of
//! ending there is harmonic, and what happens before lasts H steps at most in expectation.
//!
//! H is bounded by a second iteration, backwards: a_0 = 1 outside of z, a_{m+1}(i) = Σ_j P_ij a_m(j), a(z) = 0,
//! is the probability of having met no z in m steps; when its largest value is ρ < 1, H ≤ Σ_{l<m} max a_l / (1 − ρ).
//! No guess is made from two iterates that happen to be close, which a chain of slow and fast parts would fool.
//!
//! The choice of z decides how large H is: the most probable state of its class, as a first sweep finds it, is met
//! soon; the empty state of a saturated queue is not in a lifetime.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::chain::Transitions;
use super::checkpoint::{Keeper, Phase};
use super::iteration::Iteration;
use super::solve::{Bound, Built, Observer, RewardValue, TimeResult};
use crate::Result;
use crate::kernel::Real;

/// Steps, and the distance of two iterates, at which the first sweep has seen where the probability gathers.
const FIRST_STEPS: u64 = 1 << 14;
const FIRST_DISTANCE: f64 = 1e-6;
/// Transitions followed backwards before the certificate is given up: about a minute's work.
const MOST_WORK: u64 = 1 << 35;
/// Multiplications after which the sweep is given up.
const MOST_STEPS: u64 = 1 << 31;

/// What is kept of the iteration, beside x_k.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct StationaryState {
    /// k, and where the steps before the next look at the distance end, if not at k.
    pub(super) steps: u64,
    until: Option<u64>,
    /// The last distance; the smallest of the second sweep, and how long it has not become smaller.
    distance: f64,
    best: f64,
    stalled: u32,
    certificate: Option<Certificate>,
}

/// What the first sweep and the iteration backwards found.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Certificate {
    /// H, if it has a bound.
    meeting: Option<f64>,
    /// Closed classes.
    classes: usize,
}

impl StationaryState {
    /// Goes to x_to, `until` or from here on, in legs whose ends may be kept; then measures the distance.
    fn advance<T: Real>(
        &mut self,
        iteration: &mut Iteration<'_, T>,
        most: u64,
        observer: &mut dyn Observer,
        keeper: &mut Keeper<'_>,
    ) -> Result<()> {
        let to = self.until.take().unwrap_or_else(|| self.steps + (self.steps / 16).clamp(16, most));
        loop {
            let leg = keeper.leg(self.steps, to);
            iteration.advance(leg, &[], &mut keeper.patient(observer))?;
            keeper.walked(leg - self.steps);
            self.steps = leg;
            if leg == to {
                break;
            }
            keeper.offer(|| Ok((self.phase(Some(to)), vec![iteration.newest()?])))?;
        }
        // The sum of n magnitudes in blocks of 256 and then in double precision has a relative error below this.
        let slack = 1.0 + 12.0 * T::PRECISION.unit_roundoff() + 1e-9;
        self.distance = iteration.distance()? * slack;
        Ok(())
    }

    fn phase(&self, until: Option<u64>) -> Phase {
        Phase::Stationary(Self { until, ..self.clone() })
    }
}

pub(super) fn run<T: Real>(
    built: &Built<'_, T>,
    which: &[usize],
    times: &mut [Option<TimeResult>],
    observer: &mut dyn Observer,
    keeper: &mut Keeper<'_>,
) -> Result<u64> {
    let transitions = built.problem.transitions;
    // Nine tenths of 1/α leave every state a probability of staying: a periodic chain converges too.
    let inverse_alpha = T::of(0.9 * built.survey.inverse_alpha.wide());
    let alpha = 1.0 / inverse_alpha.wide();
    let mut iteration = Iteration::new(built.lanes, &built.parts, inverse_alpha, &[], (0, 0))?;
    let mut s = StationaryState {
        steps: 0,
        until: None,
        distance: f64::INFINITY,
        best: f64::INFINITY,
        stalled: 0,
        certificate: None,
    };
    match keeper.stationary()? {
        None => iteration.start(&built.initial)?,
        Some(kept) => {
            s = kept.state;
            match &kept.vectors[..] {
                [x] if x.len() == built.initial.len() && s.until.is_none_or(|until| until > s.steps) => {
                    iteration.resume(s.steps, x)?;
                }
                _ => return Err(keeper.unusable()),
            }
        }
    }
    let certificate = match s.certificate {
        Some(certificate) => certificate,
        None => {
            while s.until.is_some() || (s.distance > FIRST_DISTANCE && s.steps < FIRST_STEPS) {
                keeper.offer(|| Ok((s.phase(s.until), vec![iteration.newest()?])))?;
                s.advance(&mut iteration, 1 << 10, observer, keeper)?;
            }
            let probable = iteration.newest()?;
            let reached = reachable(transitions, &built.initial);
            let (targets, observed) = (closed_class_states(transitions, &reached, &probable), &mut *observer);
            let most = (MOST_WORK / built.survey.nnz.max(1)).max(1 << 16);
            let meeting = built.lanes[0]
                .host(|| expected_steps(transitions, alpha, &targets, &reached, most, observed));
            let meeting = keeper.rescue(meeting, || Ok((s.phase(None), vec![probable])))?;
            Certificate { meeting, classes: targets.len() }
        }
    };
    s.certificate = Some(certificate);
    let Certificate { meeting, classes } = certificate;

    // Without a certificate the distance of two distributions is at most 2, whatever they are.
    let bound_of = |distance: f64| meeting.map_or(2.0, |meeting| (2.0 * meeting * distance).min(2.0));
    // What a step's own rounding does to the residual cannot be iterated away.
    let floor = meeting.map_or(0.0, |meeting| 2.0 * meeting * built.survey.step);
    let target = (built.options.epsilon - floor).max(0.25 * built.options.epsilon) * 0.9;
    // A distance that no longer falls has reached rounding.
    while s.until.is_some() || (bound_of(s.distance) > target && s.stalled < 8 && s.steps < MOST_STEPS) {
        keeper.offer(|| Ok((s.phase(s.until), vec![iteration.newest()?])))?;
        s.advance(&mut iteration, 1 << 16, observer, keeper)?;
        s.stalled = if s.distance < 0.999 * s.best { 0 } else { s.stalled + 1 };
        s.best = s.best.min(s.distance);
    }
    let steady_state = bound_of(s.distance);
    let terms = iteration.steps();
    let mut limit = iteration.newest()?;
    // The mass has drifted with rounding by a measured amount; the limit's is 1.
    let mass = super::chain::exit_rate(limit.iter().copied());
    limit.iter_mut().for_each(|p| *p /= mass);
    // One closed class: the limit does not depend on the way there, only on the last residual. Several: rounding
    // on the way shifted mass between them.
    let on_the_way = match classes {
        1 => 0.0,
        _ => (built.survey.step * terms as f64).min(2.0),
    };
    let rounding = floor + on_the_way + 2.0 * (mass - 1.0).abs() + 4.0 * T::PRECISION.unit_roundoff();
    for &index in which {
        let rewards = built.problem.rewards.iter().map(|r| {
            let instantaneous = r.values.iter().zip(&limit).map(|(r, p)| r * p).sum::<f64>();
            // A reward that goes on sums to infinity. Whether one that may be zero in the limit has a finite sum,
            // and which, the limit does not tell.
            let error = (steady_state + rounding) * r.values.iter().fold(0.0f64, |m, r| m.max(r.abs()));
            let cumulative =
                if instantaneous.abs() > error { instantaneous * f64::INFINITY } else { f64::NAN };
            RewardValue { name: r.name.clone(), instantaneous, cumulative }
        });
        let result = TimeResult {
            time: built.problem.times[index],
            alpha_t: f64::INFINITY,
            window: (0, terms),
            bound: Bound { truncation: 0.0, steady_state, rounding },
            mass: None,
            rewards: rewards.collect(),
        };
        keeper.finished(index, &result);
        times[index] = Some(result);
        if built.problem.vectors {
            observer.result(index, &limit)?;
            keeper.delivered(index, &limit);
        }
    }
    Ok(terms)
}

/// The states that can be reached from where the chain begins.
fn reachable(transitions: &dyn Transitions, initial: &[f64]) -> Vec<bool> {
    let mut reached: Vec<bool> = initial.iter().map(|&p| p > 0.0).collect();
    let mut open: Vec<u32> = (0..initial.len() as u32).filter(|&s| reached[s as usize]).collect();
    let mut row = Vec::new();
    while let Some(state) = open.pop() {
        row.clear();
        transitions.outgoing(state as usize, &mut row);
        for &(to, _) in &row {
            if !reached[to as usize] {
                reached[to as usize] = true;
                open.push(to);
            }
        }
    }
    reached
}

/// The most probable state of each closed class of communicating states that is reached: of each strongly connected
/// component that is never left (R. Tarjan, "Depth-first search and linear graph algorithms", SIAM J. Comput. 1,
/// 1972).
fn closed_class_states(transitions: &dyn Transitions, reached: &[bool], probable: &[f64]) -> Vec<usize> {
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
        if number[root] != UNSEEN || !reached[root] {
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
                let (mut left, mut best) = (false, s);
                while let Some(member) = stack.pop() {
                    let member = member as usize;
                    component[member] = true;
                    left |= leaves[member];
                    if probable[member] > probable[best] {
                        best = member;
                    }
                    if member == s {
                        break;
                    }
                }
                if !left {
                    closed.push(best);
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

/// P = I + Q/α by rows, for as long as the certificate takes: built-in models would generate each row thousands of
/// times over.
struct Stochastic {
    starts: Vec<usize>,
    to: Vec<u32>,
    probability: Vec<f64>,
    /// The probability of staying.
    stay: Vec<f64>,
}

const ROWS: usize = 4096;

impl Stochastic {
    fn new(transitions: &dyn Transitions, alpha: f64) -> Self {
        let n = transitions.states();
        let blocks = (0..n.div_ceil(ROWS)).into_par_iter();
        let blocks = blocks.map(|b| Self::rows(transitions, alpha, b * ROWS..((b + 1) * ROWS).min(n)));
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

    /// (P a)(state).
    fn apply(&self, state: usize, a: &[f64]) -> f64 {
        let row = self.starts[state]..self.starts[state + 1];
        let moved =
            self.to[row.clone()].iter().zip(&self.probability[row]).map(|(&to, p)| p * a[to as usize]);
        self.stay[state] * a[state] + moved.sum::<f64>()
    }
}

/// An upper bound of the expected number of steps of P = I + Q/α from any reached state to the targets; none if `most`
/// steps do not show one.
fn expected_steps(
    transitions: &dyn Transitions,
    alpha: f64,
    targets: &[usize],
    reached: &[bool],
    most: u64,
    observer: &mut dyn Observer,
) -> Result<Option<f64>> {
    let n = transitions.states();
    // Paths never see a state that is not reached; it counts as met.
    let mut met: Vec<bool> = reached.iter().map(|&r| !r).collect();
    targets.iter().for_each(|&z| met[z] = true);
    let mut a: Vec<f64> = met.iter().map(|&met| if met { 0.0 } else { 1.0 }).collect();
    let mut next = vec![0.0; n];
    let (mut largest, mut sum) = (a.iter().copied().fold(0.0, f64::max), 0.0);
    let chain = Stochastic::new(transitions, alpha);
    let mut steps = 0u64;
    let mut best = f64::INFINITY;
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
        largest = match n {
            0..=ROWS => block((0, &mut next)),
            _ => next.par_chunks_mut(ROWS).enumerate().map(block).reduce(|| 0.0, f64::max),
        };
        std::mem::swap(&mut a, &mut next);
        steps += 1;
        // The largest value falls monotonically; rounding of a few units in each of the steps is covered twice.
        let rho = largest * (1.0 + 64.0 * f64::EPSILON * steps as f64);
        if rho < 1.0 {
            let bound = sum / (1.0 - rho);
            // Going on pays while it halves what the certificate costs in precision.
            if rho < 0.5 || (steps.is_multiple_of(1024) && bound > 0.9 * best) {
                return Ok(Some(bound));
            }
            if steps.is_multiple_of(1024) {
                best = bound;
            }
        }
        if steps.is_multiple_of(64) {
            observer.progress(0, 0)?;
        }
        if steps >= most {
            return Ok((rho < 1.0).then(|| sum / (1.0 - rho)));
        }
    }
    Ok(Some(sum))
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

        let mut found = closed_class_states(&chain, &[true; 7], &[0.0, 0.0, 0.1, 0.2, 0.0, 0.0, 0.0]);
        found.sort_unstable();
        assert_eq!(found, [3, 4, 6], "the more probable of 2 and 3");

        let reached = reachable(&chain, &[0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(
            closed_class_states(&chain, &reached, &[0.5; 7]).len(),
            1,
            "4 and 6 are not reached from 2"
        );
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

        let bound = expected_steps(&chain, 2.0, &[0], &[true; 10], 1 << 20, &mut Silent).unwrap().unwrap();

        // h(i) = i (2·10 − 1 − i) steps of the chain with holding probability 1/2 at the far end: h(9) = 90.
        assert!((90.0..=400.0).contains(&bound), "{bound}");
    }
}
