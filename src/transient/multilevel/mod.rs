//! The long run of a chain: its limit, and expectations until some states are left.
//!
//! [`solver`] finds vectors by iteration, with [`hierarchy`] as preconditioner. Their errors are
//! bounded from residuals in double-double arithmetic. Let h bound the expected times until a state
//! z of a closed class is reached, or until transient states are left. The inequality −Qh ≥ w > 0
//! outside of z verifies h.
//!
//! * The stationary distribution: ‖x − π‖ ≤ 2 Σ_i |r_i| h_i for x with sum 1, where r = xQ.
//! * Expected times in transient states: Σ_i |r_i| bounds the error of absorption probabilities,
//!   and Σ_i |r_i| h_i that of rewards of at most 1.
//! * Expectations from each state: g_i + δ h_i, where −Qg ≥ |r| − δ in every element.
//!
//! `docs/certificate.md` has the proofs. All of this runs on the host of one process.

mod coarsest;
mod element;
mod hierarchy;
mod ordered_sweep;
mod solver;
mod subchain;
#[cfg(test)]
mod tests;

use solver::{HittingTimes, MultilevelSolver, TIGHTER};
pub(super) use subchain::near_order;
use subchain::{Equation, Pair, ROWS, Subchain, copied, largest, sum_rows};

use super::chain::recurrent_classes::{ClosedClasses, is_one_class};
use super::chain::transitions::{Transitions, places};
use super::envelope::Envelope;
use super::rate_derivative::others;
use super::solution::Bounded;
use crate::numerics::double_double::{CompensatedSum, UNIT};
use crate::parallel::*;
use crate::sparse::CsrMatrix;
use crate::util::memory::zeroed;
use crate::{Iterate, Progress, Result};

/// Fraction of the requested error at which an iteration ends.
const SHARE: f64 = 0.1;
/// Fraction of the requested error at which an iteration without a majorant ends.
const PLAIN_SHARE: f64 = 0.5;
/// Residual of a first, rough forward solution; for closed classes as a multiple of ε.
const ROUGH: f64 = 1e-3;

/// Limit distribution of a chain.
pub(super) struct ChainLimit {
    pub(super) values: Vec<f64>,
    /// Bound of the l1 error.
    pub(super) bound: f64,
    /// Number of multilevel cycles.
    pub(super) steps: u64,
}

/// Computes the limit from an initial distribution; `None` if no bound is found.
pub(super) fn limit(
    transitions: &dyn Transitions,
    initial: &[f64],
    epsilon: f64,
    observer: &mut dyn Progress,
) -> Result<Option<ChainLimit>> {
    let n = transitions.states();
    if n > 1 && is_one_class(transitions) {
        let states = near_order(transitions, (0..n as u32).collect());
        let place = places(n, &states);
        let found = Stationary::new(transitions, states, &place, epsilon, observer)?;
        // The initial probabilities may add up to 1 with a small error.
        let share = CompensatedSum::of(initial.iter().copied()).value();
        return Ok(found.map(|class| {
            let mut values = vec![0.0; n];
            class.states().iter().zip(&class.values).for_each(|(&s, x)| values[s as usize] = share * x);
            ChainLimit { values, bound: share * class.bound + 8.0 * UNIT, steps: class.solver.steps }
        }));
    }
    let classes = ClosedClasses::new(transitions, initial, initial);
    let class = classes.of_states(transitions);
    let count = classes.representatives.len();
    let mut members: Vec<Vec<u32>> = vec![Vec::new(); count + 1];
    for state in (0..n).filter(|&state| classes.reached[state]) {
        members[class[state].unwrap_or(count)].push(state as u32);
    }
    let passing = members.pop().unwrap_or_default();
    let mut found = ChainLimit { values: vec![0.0; n], bound: 8.0 * UNIT, steps: 0 };
    let mut shares = vec![CompensatedSum::default(); count];
    for (own, share) in members.iter().zip(&mut shares) {
        own.iter().for_each(|&state| share.add(initial[state as usize]));
    }
    if !passing.is_empty() {
        let passing = near_order(transitions, passing);
        let source = passing.iter().map(|&state| initial[state as usize]).collect();
        let Some(mut times) = Passage::new(transitions, passing, source, observer)? else { return Ok(None) };
        times.absorb(epsilon, observer)?;
        found.bound += times.loss() + 4.0 * UNIT;
        found.steps += times.solver.steps;
        times.arrivals(transitions, |state, rate| {
            if let Some(class) = class[state] {
                shares[class].add(rate);
            }
        });
    }
    let mut place = vec![u32::MAX; n];
    for (own, share) in members.into_iter().zip(shares) {
        let share = share.value().max(0.0);
        if let [state] = own[..] {
            found.values[state as usize] = share;
            continue;
        }
        let own = near_order(transitions, own);
        own.iter().zip(0..).for_each(|(&state, i)| place[state as usize] = i);
        let class = Stationary::new(transitions, own, &place, epsilon, observer)?;
        let Some(class) = class else { return Ok(None) };
        for (&state, x) in class.states().iter().zip(&class.values) {
            found.values[state as usize] = share * x;
            place[state as usize] = u32::MAX;
        }
        found.bound += share * class.bound;
        found.steps += class.solver.steps;
    }
    Ok(Some(found))
}

/// Stationary distribution of a closed class.
pub(super) struct Stationary {
    solver: MultilevelSolver,
    /// Bounds of the expected times to the most probable state.
    times: Vec<f64>,
    /// Multiple of the distribution, before it is rounded to doubles.
    pair: Pair,
    /// Probabilities in the order of [`states`](Self::states).
    pub(super) values: Vec<f64>,
    /// Bound of the l1 error.
    pub(super) bound: f64,
}

impl Stationary {
    /// Computes the distribution; `None` if it finds no error bound. `place` is that of [`places`].
    pub(super) fn new(
        transitions: &dyn Transitions,
        states: Vec<u32>,
        place: &[u32],
        epsilon: f64,
        observer: &mut dyn Progress,
    ) -> Result<Option<Self>> {
        let n = states.len();
        let Some(chain) = Subchain::new(transitions, states, place, true) else { return Ok(None) };
        let mut solver = MultilevelSolver::new(chain, vec![0.0; n].into(), None, observer)?;
        let (mut x, zero) = ([solver.start()], zeroed(n));
        solver.improve(
            Equation::Forward,
            std::slice::from_ref(&zero),
            &mut x,
            observer,
            |_, _, _, r, x| {
                let sum = sum_rows(n, |i| x.high[i]);
                Ok(sum_rows(n, |i| r[i]) / (ROUGH * epsilon * sum.abs()))
            },
        )?;
        let [x] = x;
        let likely = (0..n).fold(0, |most, i| if x.high[i] > x.high[most] { i } else { most });
        let known = x.high[likely] > 0.0;
        if !known {
            return Ok(None);
        }
        let found = solver.hitting_times(Some((likely, &x)), observer)?;
        let mut times = found.map_or(Vec::new(), |found| found.times);
        if times.is_empty() {
            if solver.ended || !observer.iterate(Iterate::default())? {
                return Ok(None);
            }
            let mut others = solver.chain.states.clone();
            others.remove(likely);
            let place = |state: u32| match place[state as usize] as usize {
                own if own < likely => own as u32,
                own if own == likely || own >= n => u32::MAX,
                own => own as u32 - 1,
            };
            let Some(envelope) = Envelope::of(transitions, &others, place)? else { return Ok(None) };
            let unit = vec![1.0 / solver.chain.scale; n - 1];
            let found = envelope.values(&[unit], &mut || observer.progress(0, 0))?;
            let Some(found) = found else { return Ok(None) };
            times.extend(found.columns[0].iter().map(|time| time + found.bound(*time)));
            times.insert(likely, 0.0);
        }
        let size = |x: &Pair| sum_rows(n, |i| x.high[i]) * (1.0 - 1e-9);
        let found = solver.certified((zero, x), &times, epsilon, size, observer)?;
        let Some((error, x)) = found else { return Ok(None) };
        let rows = |k: usize| (k * ROWS..n.min((k + 1) * ROWS)).flat_map(|i| [x.high[i], x.low[i]]);
        let blocks = (0..n.div_ceil(ROWS)).into_par_iter().map(|k| CompensatedSum::of(rows(k)));
        let blocks: Vec<CompensatedSum> = blocks.collect();
        let sum = CompensatedSum::of(blocks.iter().flat_map(|block| [block.sum, block.lost])).value();
        // Negative elements are raised to 0.
        let raised = sum_rows(n, |i| (-x.high[i]).max(0.0)) / sum;
        let mut values = copied(&x.high);
        values.par_iter_mut().with_min_len(ROWS).for_each(|x| *x = (*x / sum).max(0.0));
        let bound = error + raised * (1.0 + 1e-9) + 4.0 * UNIT;
        Ok(bound.is_finite().then_some(Self { solver, times, pair: x, values, bound }))
    }

    pub(super) fn states(&self) -> &[u32] {
        &self.solver.chain.states
    }

    /// Computes the derivative y of the distribution: yQ = −π dQ, Σ y = 0.
    ///
    /// `rates` is dQ, for all states of the chain. `None` if no bound is found. π and π dQ are
    /// pairs, as N = (−Q)⁻¹ multiplies their errors. The residual g of π contributes
    /// Σ |g_i| w_i, where w_i bounds ‖e_i N dQ N‖.
    pub(super) fn derivative(
        &mut self,
        rates: &CsrMatrix,
        epsilon: f64,
        observer: &mut dyn Progress,
    ) -> Result<Option<Bounded>> {
        let Self { solver, times, pair, values, bound } = self;
        let (states, scale, n) = (solver.chain.states.clone(), solver.chain.scale, times.len());
        let place = places(rates.rows(), &states);
        let moves = |i: usize| {
            let changes = others(rates, states[i] as usize).filter(|(_, change)| *change != 0.0);
            changes.map(|(j, change)| (place[j as usize], change * scale))
        };
        let (mut moved, mut terms, mut any) = (vec![0.0; n], vec![0usize; n], 0.0);
        for i in 0..n {
            let mut ratio = 0.0f64;
            for (j, change) in moves(i) {
                moved[i] += change.abs() * (times[i] + times[j as usize]);
                ratio = ratio.max((change / solver.chain.links.rate(i as u32, j)).abs());
                (terms[i], terms[j as usize]) = (terms[i] + 1, terms[j as usize] + 1);
            }
            any += 2.002 * ratio * times[i];
        }
        let most = 1.001 * largest(&moved);
        let weights: Vec<f64> = times.iter().map(|time| any.min(most * time)).collect();
        let whole = |x: &Pair| sum_rows(n, |i| x.high[i]) * (1.0 - 1e-9);
        let found = solver.certified((zeroed(n), pair.clone()), &weights, epsilon, whole, observer)?;
        let Some((given, refined)) = found else { return Ok(None) };
        *pair = refined;
        let total = CompensatedSum::of(pair.high.iter().chain(&pair.low).copied()).value();
        let defects = solver.chain.defects(Equation::Forward, &vec![0.0; n], pair);
        let off = 8.0 * UNIT + 1.001 * sum_rows(n, |i| defects[i] * times[i]) / total;
        // The right-hand side is a sum of products in double-double arithmetic.
        let (mut flow, mut rounding) = (vec![CompensatedSum::default(); n], 0.0);
        let terms = 2.0 * terms.iter().copied().fold(3, usize::max) as f64;
        for i in 0..n {
            let (high, low) = (pair.high[i], pair.low[i]);
            for (j, change) in moves(i) {
                for (k, change) in [(j as usize, change), (i, -change)] {
                    flow[k].add_product(high, change);
                    flow[k].lost += low * change;
                }
                rounding += 4.0 * f64::MIN_POSITIVE * (1.0 + times[i] + times[j as usize]);
            }
            let error = (2.0 * terms * UNIT).powi(2) * high.abs() + 4.0 * terms * UNIT * low.abs();
            rounding += error * moved[i];
        }
        // The most probable state, whose equation follows from all others.
        let end = times.iter().position(|time| *time == 0.0).unwrap_or_default();
        flow[end] = CompensatedSum::default();
        let rest = CompensatedSum::of(flow.iter().flat_map(|flow| [flow.sum, flow.lost]));
        flow[end] = CompensatedSum { sum: -rest.sum, lost: -rest.lost };
        let (f, low) = flow.into_iter().map(CompensatedSum::parts).unzip();
        let size = |x: &Pair| sum_rows(n, |i| x.high[i].abs()).max(total);
        solver.low = low;
        let found = solver.certified((f, Pair::of(zeroed(n))), times, epsilon, size, observer);
        solver.low = Vec::new();
        let Some((error, x)) = found? else { return Ok(None) };
        // A multiple of π makes the sum 0.
        let (sum, size) = (CompensatedSum::of(x.high.iter().chain(&x.low).copied()).value(), size(&x));
        let mut y = vec![0.0; rates.rows()];
        let all = states.iter().zip(x.high.iter().zip(&*values));
        all.for_each(|(&state, (x, value))| y[state as usize] = (x - sum * value) / total);
        let lost = error * size + given * total + 2.0 * rounding + sum.abs() * *bound;
        let lost = lost + (8.0 * UNIT + off) * (size + sum.abs());
        let bound = 1.001 * lost / (total * (1.0 - off));
        Ok((off < 0.5 && bound.is_finite()).then_some(Bounded { values: y, bound }))
    }
}

/// Bounds the l1 error of a stationary distribution x, by expected times to the last of its states.
///
/// `times` computes these for all other states, for rates that are multiplied by its argument.
pub(super) fn by_residual(
    transitions: &dyn Transitions,
    states: Vec<u32>,
    x: Vec<f64>,
    times: impl FnOnce(f64) -> Vec<f64>,
) -> Option<f64> {
    let n = states.len();
    let place = places(transitions.states(), &states);
    let chain = Subchain::new(transitions, states, &place, true)?;
    let mut times = times(chain.scale);
    times.push(0.0);
    // −Qh ≥ 1 − lacks outside of the last state.
    let lacks = chain.defects(Equation::Backward, &vec![1.0; n], &Pair::of(times.clone()));
    let lacks = lacks[..n - 1].iter().copied().fold(0.0, f64::max);
    let defects = chain.defects(Equation::Forward, &vec![0.0; n], &Pair::of(x));
    let sum: f64 = defects.iter().zip(&times).map(|(defect, time)| defect * time).sum();
    let bound = (2.0 * sum / (1.0 - lacks) + 4.0 * UNIT) * (1.0 + 1e-9);
    (lacks < 0.9 && bound.is_finite()).then_some(bound)
}

/// Expected times in transient states, from an initial distribution.
pub(super) struct Passage {
    solver: MultilevelSolver,
    times: Pair,
}

impl Passage {
    /// Prepares the states `passing`, which are left almost surely and never re-entered.
    ///
    /// `source` has the initial probability of each of them.
    pub(super) fn new(
        transitions: &dyn Transitions,
        passing: Vec<u32>,
        source: Vec<f64>,
        observer: &mut dyn Progress,
    ) -> Result<Option<Self>> {
        let place = places(transitions.states(), &passing);
        let Some(chain) = Subchain::new(transitions, passing, &place, true) else { return Ok(None) };
        drop(place);
        let solver = MultilevelSolver::new(chain, source.into(), Some(Equation::Forward), observer)?;
        let times = solver.start();
        Ok(Some(Self { solver, times }))
    }

    /// Bounds the error of the probability that the states are left into any given set.
    pub(super) fn loss(&self) -> f64 {
        let ones = vec![1.0; self.times.high.len()];
        self.solver.weighted_defect(&self.times, &ones)
    }

    /// Solves for the expected times until [`loss`](Self::loss) is within ε, if possible.
    pub(super) fn absorb(&mut self, epsilon: f64, observer: &mut dyn Progress) -> Result<()> {
        let (source, times) = ([self.solver.source.to_vec()], std::slice::from_mut(&mut self.times));
        self.solver.target = SHARE * epsilon;
        self.solver.improve(Equation::Forward, &source, times, observer, |_, _, _, r, _| {
            Ok(sum_rows(r.len(), |i| r[i]) / (SHARE * epsilon))
        })?;
        Ok(())
    }

    /// Returns the number of multilevel cycles so far.
    pub(super) fn steps(&self) -> u64 {
        self.solver.steps
    }

    /// Calls `arrive(state, n)` with the expected number n of arrivals by each transition.
    ///
    /// Transitions of states without a rate out of the set are skipped.
    pub(super) fn arrivals(&self, transitions: &dyn Transitions, mut arrive: impl FnMut(usize, f64)) {
        let chain = &self.solver.chain;
        let mut row = Vec::new();
        for (i, &state) in chain.states.iter().enumerate() {
            if chain.links.kill[i] == 0.0 {
                continue;
            }
            let row = transitions.leaving(state as usize, &mut row);
            row.iter().for_each(|&(to, rate)| arrive(to as usize, self.times.high[i] * (rate * chain.scale)));
        }
    }
}

/// Values from each state with the smallest error bound so far.
struct Best {
    /// Largest error bound divided by the requested error.
    excess: f64,
    v: Vec<f64>,
    /// Bounds of the errors if `tight`, else of the residuals.
    errors: Vec<f64>,
    /// True if a majorant of the errors is computed.
    tight: bool,
}

/// Values of states, and bounds of their errors.
pub(super) type Values = (Vec<f64>, Vec<f64>);

/// Levels for expected rewards from each of some states that are left almost surely.
pub(super) struct Expectations {
    solver: MultilevelSolver,
    times: HittingTimes,
    /// Bound of the relative error of reward rates.
    rounding: f64,
}

impl Expectations {
    /// Prepares the states `passing`; `None` if no bound of the expected times is found.
    ///
    /// `rounding` bounds the relative errors of transition rates and of reward rates.
    pub(super) fn new(
        transitions: &dyn Transitions,
        passing: &[u32],
        rounding: (f64, f64),
        observer: &mut dyn Progress,
    ) -> Result<Option<Self>> {
        let n = passing.len();
        let place = places(transitions.states(), passing);
        let chain = Subchain::new(transitions, passing.to_vec(), &place, false);
        let Some(mut chain) = chain else { return Ok(None) };
        drop(place);
        chain.rounding = rounding.0;
        let source = vec![1.0 / n as f64; n].into();
        let mut solver = MultilevelSolver::new(chain, source, Some(Equation::Backward), observer)?;
        let times = solver.hitting_times(None, observer)?;
        Ok(times.map(|times| Self { solver, times, rounding: rounding.1 }))
    }

    /// Returns the number of multilevel cycles so far.
    pub(super) fn steps(&self) -> u64 {
        self.solver.steps
    }

    /// Computes expected rewards until the passing states are left, from each, with error bounds.
    ///
    /// Each column has the rates of one reward. The requested error is that of
    /// [`solve`](super::backward::values::TransientSystem::solve). `None` if no bound is found.
    pub(super) fn of(
        &mut self,
        columns: Vec<Vec<f64>>,
        (epsilon, least): (f64, f64),
        observer: &mut dyn Progress,
    ) -> Result<Option<Vec<Values>>> {
        let Self { solver, times: HittingTimes { times, longest }, rounding } = self;
        let n = times.len();
        // Without a majorant the bound far exceeds the error, so it may be close to the request.
        let share = if solver.is_plain() { PLAIN_SHARE } else { SHARE };
        solver.target = share * epsilon;
        // Columns that sum to the rates out of the states have solutions that sum to 1.
        let (links, scale) = (solver.chain.links.clone(), solver.chain.scale);
        let lacks = |i: usize| links.kill[i] - scale * columns.iter().map(|column| column[i]).sum::<f64>();
        let complete = columns.len() > 1 && (0..n).all(|i| lacks(i).abs() <= 1e-12 * links.exit[i]);
        drop(links);
        let mut rest = complete.then(|| vec![1.0; n]);
        let (count, mut found) = (columns.len(), Vec::with_capacity(columns.len()));
        let mut columns = columns.into_iter();
        while found.len() < count {
            let last = count - usize::from(complete);
            let some = if found.len() < last { solver.together.min(last - found.len()) } else { 1 };
            let mut f: Vec<Vec<f64>> = columns.by_ref().take(some).collect();
            f.iter_mut().flatten().for_each(|rate| *rate *= scale);
            let start = rest.take_if(|_| found.len() + 1 == count);
            let none = || Best { excess: f64::INFINITY, v: Vec::new(), errors: Vec::new(), tight: false };
            let mut best: Vec<Best> = f.iter().map(|_| none()).collect();
            solver.backward(&f, start, observer, |solver, observer, k, mut errors, v| {
                errors.iter_mut().zip(&f[k]).for_each(|(d, f)| *d += *rounding * f.abs());
                let (most, requested) = (largest(&errors), share * epsilon * largest(&v.high).max(least));
                let mut excess = most * *longest / requested;
                let tight = excess <= if solver.is_plain() { 1.0 } else { TIGHTER };
                if tight && solver.is_plain() {
                    errors.iter_mut().zip(&*times).for_each(|(error, time)| *error = most * time);
                } else if tight {
                    errors = solver.majorant(&errors, times, observer)?;
                    excess = largest(&errors) / requested;
                }
                if excess < best[k].excess {
                    best[k] = Best { excess, v: v.high.clone(), errors, tight };
                }
                Ok(excess)
            })?;
            drop(f);
            for Best { v, errors: mut bounds, tight, .. } in best {
                if !tight && v.len() == n {
                    bounds = solver.majorant(&bounds, times, observer)?;
                }
                bounds
                    .iter_mut()
                    .zip(&v)
                    .for_each(|(bound, v)| *bound = (*bound + 2.0 * UNIT * v.abs()) * (1.0 + 1e-9));
                if !(v.len() == n && bounds.iter().chain(&v).all(|value| value.is_finite())) {
                    return Ok(None);
                }
                rest.iter_mut().for_each(|rest| rest.iter_mut().zip(&v).for_each(|(rest, v)| *rest -= v));
                found.push((v, bounds));
            }
        }
        Ok(Some(found))
    }
}
