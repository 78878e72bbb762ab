//! The limit of a small or banded chain by elimination of its states, with an error bound.
//!
//! State k is eliminated by w_ij += w_ik w_kj / S_k, S_k = Σ_{j<k} w_kj. The new rates w are those
//! of the chain observed outside of state k alone. One column of w is for the exit. Nothing is
//! subtracted, and a band stays a band.
//!
//! Transient states are eliminated first. Then in each closed class all states but one, z, are
//! eliminated; excursions start and end in z. In the back substitution x_k = (b_k + Σ_{i<k} x_i
//! w_ik) / S_k is the expected time in k, where b are the shares with which excursions start.
//!
//! The rounding is bounded as by C. O'Cinneide, "Entrywise perturbation theory and error analysis
//! for Markov chains", Numerische Mathematik 65, 1993, doi:10.1007/BF01385743, with the changed
//! rows counted at each stage. If that bound exceeds ε, or rates leave the range of normal numbers,
//! the limit of a class is bounded by its residual in double-double arithmetic and the expected
//! number of steps to z. `docs/certificate.md` has the proofs.

use crate::numerics::double_double::UNIT;
use crate::parallel::*;
use crate::transient::chain::recurrent_classes::ClosedClasses;
use crate::transient::chain::transitions::{Transitions, exit_rate, places};
use crate::transient::multilevel::by_residual;
use crate::util::memory::expect_memory;
use crate::util::quantity::{exponent, times_power_of_two};

/// Maximum number of states eliminated without a band; their rates take 128 MiB.
pub(crate) const MOST_STATES: usize = 4096;

/// Maximum number of states eliminated within a band.
pub(super) const MOST_BANDED: usize = 1 << 20;
/// Maximum number of closed classes of a chain with more than [`MOST_STATES`] states.
const MOST_CLASSES: usize = 64;
/// Maximum number of rates that an elimination stores.
const MOST_NUMBERS: usize = 1 << 27;
/// Maximum number of operations of an elimination.
const MOST_WORK: u64 = (MOST_STATES as u64).pow(3) / 3;

/// Operations of an elimination that takes less time than any iteration.
const SHORT_WORK: u64 = 1 << 27;

/// Minimum number of rates that a thread updates per stage.
const SHARE: usize = 65_536;

/// Smallest rate, for α in [1, 2), that is far enough from underflow.
const LEAST: f64 = 1.2e-271;

/// A chain, and the requested bound of its limit.
#[derive(Clone, Copy)]
pub(crate) struct GthInput<'a> {
    pub(crate) transitions: &'a dyn Transitions,
    /// Power of two by which all rates are multiplied.
    pub(crate) scale: f64,
    /// Requested bound of the l1 error.
    pub(crate) enough: f64,
}

type Cancel<'a> = &'a mut dyn FnMut() -> crate::Result<()>;

/// An order of some states for elimination.
#[derive(Debug, Clone)]
struct EliminationOrder {
    states: Vec<u32>,
    /// Half-width of the band of transitions between the states in this order.
    band: usize,
}

impl EliminationOrder {
    fn new(transitions: &dyn Transitions, states: Vec<u32>, place: &mut [u32]) -> Self {
        states.iter().zip(0..).for_each(|(&state, i)| place[state as usize] = i);
        let (mut band, mut row) = (0, Vec::new());
        for (i, &state) in states.iter().enumerate() {
            let row = transitions.leaving(state as usize, &mut row);
            let inside = row.iter().map(|&(to, _)| place[to as usize]).filter(|&j| j != u32::MAX);
            band = inside.map(|j| i.abs_diff(j as usize)).fold(band, usize::max);
        }
        states.iter().for_each(|&state| place[state as usize] = u32::MAX);
        Self { states, band }
    }

    /// Chooses between the ascending order and breadth first from `root` by the narrower band.
    ///
    /// Breadth-first order is the method of E. Cuthill and J. McKee, 1969.
    fn best(transitions: &dyn Transitions, states: Vec<u32>, root: Option<u32>) -> Self {
        if states.is_empty() {
            return Self { states, band: 0 };
        }
        let mut place = vec![u32::MAX; transitions.states()];
        let natural = Self::new(transitions, states, &mut place);
        // A tridiagonal order in which `root` precedes the first state is kept.
        let first = root.is_none_or(|root| natural.states.first().is_none_or(|&first| root < first));
        if natural.band <= 1 && first {
            return natural;
        }
        let mut fresh = vec![false; place.len()];
        natural.states.iter().for_each(|&state| fresh[state as usize] = true);
        let mut found: Vec<u32> = Vec::with_capacity(natural.states.len());
        let mut row = Vec::new();
        let mut visit = |from: u32, found: &mut Vec<u32>, fresh: &mut [bool]| {
            row.clear();
            transitions.outgoing(from as usize, &mut row);
            transitions.incoming(from as usize, &mut row);
            let near = row.iter().map(|&(to, _)| to);
            found.extend(near.filter(|&to| std::mem::take(&mut fresh[to as usize])));
        };
        root.iter().for_each(|&root| visit(root, &mut found, &mut fresh));
        let mut next = 0;
        for &begin in &natural.states {
            if std::mem::take(&mut fresh[begin as usize]) {
                found.push(begin);
            }
            while next < found.len() {
                visit(found[next], &mut found, &mut fresh);
                next += 1;
            }
        }
        let breadth = Self::new(transitions, found, &mut place);
        let margin = if first { 2 * breadth.band } else { breadth.band };
        if 2 * natural.band < margin || (first && natural.band <= margin) { natural } else { breadth }
    }

    fn stride(&self) -> usize {
        self.states.len().min(2 * self.band + 1)
    }

    fn work(&self) -> u64 {
        let (m, band) = (self.states.len() as u64, self.band.min(self.states.len()) as u64);
        // Σ min(k, b)² over k < m.
        (m - band) * band * band + band.pow(3) / 3
    }

    /// Returns true if time and memory suffice for the elimination.
    fn fits(&self) -> bool {
        let numbers = self.states.len().saturating_mul(self.stride());
        let room = || expect_memory(8 * numbers as u64, || "rates of an elimination".to_owned()).is_ok();
        self.work() <= MOST_WORK && numbers <= MOST_NUMBERS && room()
    }
}

/// Rates between eliminated states, each row as it was when its state was eliminated.
struct Eliminated {
    m: usize,
    band: usize,
    stride: usize,
    /// Rates of each row within its band.
    values: Vec<f64>,
    /// For each state, its rate out of the set when the state was eliminated.
    end: Vec<f64>,
    /// S_k: the sum of the rates from state k to the remaining states and to the exit.
    sums: Vec<f64>,
    /// Number of states with changed rates, summed over all stages.
    changed: u64,
    /// True if no rate has left the range of normal numbers, so that relative errors are known.
    exact: bool,
}

/// Expected times, each a fraction and an exponent of two, with their errors.
struct ScaledTimes {
    values: Vec<(f64, i32)>,
    /// Bounds of the relative errors, in units of 6u (u: unit roundoff).
    errors: Vec<f64>,
    /// True if no share of the initial mass has left the range of normal numbers.
    exact: bool,
}

impl Eliminated {
    /// Eliminates the states of an order, with rates times `scale`.
    ///
    /// `None` if all rates out of a state have underflowed. `check` is called regularly and may end
    /// the work with an error.
    fn new(from: GthInput<'_>, order: &EliminationOrder, check: Cancel<'_>) -> crate::Result<Option<Self>> {
        let GthInput { transitions, scale, .. } = from;
        let (m, band, stride) = (order.states.len(), order.band, order.stride());
        let place = places(transitions.states(), &order.states);
        let mut all = Self {
            m,
            band,
            stride,
            values: vec![0.0; m * stride],
            end: vec![0.0; m],
            sums: vec![0.0; m],
            changed: 0,
            exact: true,
        };
        let mut row = Vec::new();
        for (i, &state) in order.states.iter().enumerate() {
            let row = transitions.leaving(state as usize, &mut row);
            let at = i * stride - all.first(i);
            for &(to, rate) in row.iter().filter(|t| place[t.0 as usize] != u32::MAX) {
                all.values[at + place[to as usize] as usize] += rate * scale;
            }
            let ends = row.iter().filter(|t| place[t.0 as usize] == u32::MAX);
            all.end[i] = exit_rate(ends.map(|&(_, rate)| rate * scale));
        }
        for k in (0..m).rev() {
            if k % 64 == 0 {
                check()?;
            }
            if !all.eliminate(k) {
                return Ok(None);
            }
        }
        Ok(Some(all))
    }

    /// Returns the first stored column of a row.
    fn first(&self, row: usize) -> usize {
        row.saturating_sub(self.band).min(self.m - self.stride)
    }

    /// Returns the states before `k` within the band of `k`.
    fn before(&self, k: usize) -> std::ops::Range<usize> {
        k.saturating_sub(self.band)..k
    }

    /// Returns the rates from `k` to the states before `k` within the band.
    fn row(&self, k: usize) -> &[f64] {
        let (before, at) = (self.before(k), k * self.stride - self.first(k));
        &self.values[at + before.start..at + before.end]
    }

    /// Returns the rate from `i` to a later state `k` at the elimination of `k`.
    fn rate(&self, i: usize, k: usize) -> f64 {
        self.values[i * self.stride + k - self.first(i)]
    }

    /// Eliminates state `k`, the last remaining one; false if its rates have underflowed.
    fn eliminate(&mut self, k: usize) -> bool {
        let sum = exit_rate(self.row(k).iter().copied().chain([self.end[k]]));
        self.sums[k] = sum;
        let to: Vec<f64> = self.row(k).iter().map(|w| w / sum).collect();
        let end = self.end[k] / sum;
        let lost = |v: f64| v > 0.0 && v < LEAST;
        if !sum.is_normal() {
            return false;
        }
        self.exact &= !(to.iter().copied().any(lost) || lost(end));
        let (before, stride, band) = (self.before(k), self.stride, self.band);
        let targets = to.iter().filter(|v| **v > 0.0).count() + usize::from(end > 0.0);
        let last = self.m - stride;
        let absorb = |(i, (row, own_end)): (usize, (&mut [f64], &mut f64))| {
            let i = before.start + i;
            let first = i.saturating_sub(band).min(last);
            let rate = row[k - first];
            let mut bad = false;
            if rate > 0.0 {
                for (w, &v) in row[before.start - first..k - first].iter_mut().zip(&to) {
                    *w += rate * v;
                    bad |= v > 0.0 && *w < LEAST;
                }
                *own_end += rate * end;
                bad |= lost(*own_end);
            }
            // A state k that leads only back to state i changes no rate of i.
            let changed = rate > 0.0 && targets > usize::from(to[i - before.start] > 0.0);
            (bad, u64::from(changed))
        };
        let rows = &mut self.values[before.start * stride..k * stride];
        let ends = &mut self.end[before.clone()];
        let both = |a: (bool, u64), b: (bool, u64)| (a.0 | b.0, a.1 + b.1);
        // Threads are used only if each has enough work to justify its start.
        let (bad, changed) = match SHARE / (before.len() + 1) {
            least if least < before.len() => {
                let rows = rows.par_chunks_mut(stride).zip(ends).enumerate().with_min_len(1 + least);
                rows.map(absorb).reduce(|| (false, 0), both)
            }
            _ => rows.chunks_mut(stride.max(1)).zip(ends).enumerate().map(absorb).fold((false, 0), both),
        };
        self.changed += changed;
        self.exact &= !bad;
        true
    }

    /// Returns the expected time in each state until the exit, for the given initial shares.
    fn times(&self, mut share: Vec<f64>) -> ScaledTimes {
        let (mut handed, mut exact) = (0u64, self.exact);
        for k in (0..self.m).rev().filter(|&k| self.band > 0 && k > 0) {
            let own = share[k];
            if own > 0.0 {
                let (before, sum) = (self.before(k), self.sums[k]);
                let mut any = false;
                for (share, &w) in share[before].iter_mut().zip(self.row(k)).filter(|(_, w)| **w > 0.0) {
                    *share += own * (w / sum);
                    any = true;
                    exact &= *share >= LEAST;
                }
                handed += u64::from(any);
            }
        }
        let stages = (2 * self.changed + handed) as f64;
        let mut values: Vec<(f64, i32)> = Vec::with_capacity(self.m);
        let mut errors: Vec<f64> = Vec::with_capacity(self.m);
        for (k, &share) in share.iter().enumerate() {
            // States that do not lead here may be more probable by any number of orders of
            // magnitude.
            let contributes = |&i: &usize| self.rate(i, k) > 0.0 && values[i].0 > 0.0;
            let before = || self.before(k).filter(contributes);
            let own = (share > 0.0).then_some(0);
            let top = before().map(|i| values[i].1).chain(own).max().unwrap_or(0);
            let times = |i: usize| times_power_of_two(values[i].0, values[i].1 - top) * self.rate(i, k);
            let own = times_power_of_two(share, -top);
            let value = exit_rate(before().map(times).chain([own])) / self.sums[k];
            let longest = before().map(|i| errors[i]).fold(stages, f64::max);
            let size = if value > 0.0 { exponent(value) } else { 0 };
            values.push((times_power_of_two(value, -size), size + top));
            errors.push(longest + 1.0);
        }
        ScaledTimes { values, errors, exact }
    }

    /// Replaces reward rates `visits` by the expected rewards from each state until the exit.
    fn visits(&self, visits: &mut [f64]) {
        for k in (0..self.m).rev() {
            let visit = visits[k] / self.sums[k];
            self.before(k).for_each(|i| visits[i] += self.rate(i, k) * visit);
        }
        for k in 0..self.m {
            let (before, own) = visits.split_at_mut(k);
            let there = self.row(k).iter().zip(&before[self.before(k)]).map(|(rate, value)| rate * value);
            own[0] = exit_rate(there.chain([own[0]])) / self.sums[k];
        }
    }
}

/// An order of elimination for all reachable states of a chain.
pub(crate) struct GthPlan {
    passing: EliminationOrder,
    /// For each closed class the state z that is kept, and the order of the others.
    classes: Vec<(usize, EliminationOrder)>,
}

impl GthPlan {
    /// Finds an order of elimination within the limits of time and memory, if there is one.
    pub(crate) fn new(transitions: &dyn Transitions, classes: &ClosedClasses) -> Option<Self> {
        let n = transitions.states();
        // The search for the order of a class reads all states.
        if n > MOST_BANDED || (n > MOST_STATES && classes.representatives.len() > MOST_CLASSES) {
            return None;
        }
        let class = classes.of_states(transitions);
        let mut members: Vec<Vec<u32>> = vec![Vec::new(); classes.representatives.len() + 1];
        for state in (0..n).filter(|&state| classes.reached[state]) {
            members[class[state].map_or(0, |class| 1 + class)].push(state as u32);
        }
        let mut members = members.into_iter();
        let passing = EliminationOrder::best(transitions, members.next().unwrap_or_default(), None);
        let of_class = |(states, &one): (Vec<u32>, &usize)| (one, without(transitions, states, one));
        let plan = Self { passing, classes: members.zip(&classes.representatives).map(of_class).collect() };
        let mut orders = std::iter::once(&plan.passing).chain(plan.classes.iter().map(|(_, order)| order));
        (orders.all(EliminationOrder::fits) && plan.work() <= MOST_WORK).then_some(plan)
    }

    fn work(&self) -> u64 {
        self.passing.work() + self.classes.iter().map(|(_, order)| order.work()).sum::<u64>()
    }

    /// True if the elimination is shorter than any iteration.
    pub(crate) fn is_short(&self) -> bool {
        self.work() <= SHORT_WORK
    }

    /// Computes the limit from an initial distribution, and a bound of its l1 error.
    ///
    /// `None` if rates span too many orders of magnitude. `check` is called regularly and may end
    /// the work with an error.
    pub(crate) fn limit(
        &self,
        from: GthInput<'_>,
        initial: &[f64],
        check: Cancel<'_>,
    ) -> crate::Result<Option<(Vec<f64>, f64)>> {
        let GthInput { transitions, scale, .. } = from;
        let rates = Eliminated::new(from, &self.passing, check)?;
        let Some(rates) = rates.filter(|rates| rates.exact) else { return Ok(None) };
        let share = self.passing.states.iter().map(|&state| initial[state as usize]).collect();
        let times = rates.times(share);
        // Expected times in transient states are in the range of doubles.
        let passed: Vec<f64> = times.values.iter().map(|&(x, size)| times_power_of_two(x, size)).collect();
        let mut arriving = vec![0.0; initial.len()];
        let mut row = Vec::new();
        for (&state, time) in self.passing.states.iter().zip(&passed) {
            let row = transitions.leaving(state as usize, &mut row);
            row.iter().for_each(|&(to, rate)| arriving[to as usize] += time * (rate * scale));
        }
        let most = times.errors.iter().copied().fold(0.0, f64::max);
        // Rounding of sums of products of nonnegative numbers, one for each transition into a
        // class.
        let ways = self.passing.states.len() as f64;
        let mut bound = if ways > 0.0 { 1.001 * UNIT * (6.0 * most + ways + 8.0) } else { 0.0 };
        let mut limit = vec![0.0; initial.len()];
        for (one, order) in &self.classes {
            let states = || order.states.iter().map(|&state| state as usize).chain([*one]);
            let share = exit_rate(states().map(|state| initial[state] + arriving[state]));
            let Some((x, rounding)) = stationary(from, *one, order, check)? else { return Ok(None) };
            x.into_iter().for_each(|(state, x)| limit[state as usize] = share * x);
            bound += share * rounding;
        }
        // Rounding of a share times a probability, and underflow of the shares.
        bound += 8.0 * UNIT + f64::MIN_POSITIVE * (initial.len() as f64).powi(2);
        Ok(Some((limit, bound)))
    }
}

/// Returns the elimination order with the narrower band, for a class without state `one`.
///
/// `one` is not eliminated: excursions start and end there. See [`EliminationOrder::best`].
fn without(transitions: &dyn Transitions, mut states: Vec<u32>, one: usize) -> EliminationOrder {
    states.retain(|&state| state as usize != one);
    states.sort_unstable();
    EliminationOrder::best(transitions, states, Some(one as u32))
}

type LimitAndBound = (Vec<(u32, f64)>, f64);

/// Computes the stationary distribution of a closed class, with a bound of its l1 error.
///
/// `one` is the state in which excursions start and end.
fn stationary(
    from: GthInput<'_>,
    one: usize,
    order: &EliminationOrder,
    check: Cancel<'_>,
) -> crate::Result<Option<LimitAndBound>> {
    if order.states.is_empty() {
        return Ok(Some((vec![(one as u32, 1.0)], 0.0)));
    }
    let Some((found, bound)) = excursions(from, one, order, check)? else { return Ok(None) };
    let likely = found.iter().fold((one as u32, 0.0), |most, &x| if x.1 > most.1 { x } else { most });
    if bound <= from.enough || likely.0 as usize == one {
        return Ok(Some((found, bound)).filter(|(_, bound)| bound.is_finite()));
    }
    // The most probable state is reached soon, and errors grow with the distance from it.
    let states = found.iter().map(|&(state, _)| state).collect();
    let order = without(from.transitions, states, likely.0 as usize);
    let again = match order.fits() {
        true => excursions(from, likely.0 as usize, &order, check)?,
        false => None,
    };
    let better = again.filter(|again| again.1 < bound).unwrap_or((found, bound));
    Ok(Some(better).filter(|(_, bound)| bound.is_finite()))
}

/// Computes the stationary distribution from excursions that start and end in state `one`.
fn excursions(
    from: GthInput<'_>,
    one: usize,
    order: &EliminationOrder,
    check: Cancel<'_>,
) -> crate::Result<Option<LimitAndBound>> {
    let GthInput { transitions, scale, enough } = from;
    let Some(rates) = Eliminated::new(from, order, check)? else { return Ok(None) };
    let mut row = Vec::new();
    transitions.outgoing(one, &mut row);
    let leaves = |&state: &u32| match row.binary_search_by_key(&state, |t| t.0) {
        Ok(at) => row[at].1 * scale,
        Err(_) => 0.0,
    };
    let ScaledTimes { values, errors, exact } = rates.times(order.states.iter().map(leaves).collect());
    // Probabilities may span more orders of magnitude than doubles.
    let top = values.iter().filter(|x| x.0 > 0.0).map(|x| x.1).fold(0, i32::max);
    let x: Vec<f64> = values.iter().map(|x| times_power_of_two(x.0, x.1 - top)).collect();
    let own = times_power_of_two(1.0, -top);
    let sum = exit_rate(x.iter().copied().chain([own]));
    let mut found: Vec<(u32, f64)> =
        order.states.iter().zip(&x).map(|(&state, x)| (state, x / sum)).collect();
    found.push((one as u32, own / sum));
    // Relative errors of numbers that are divided by their sum.
    let weighted: f64 = found.iter().zip(&errors).map(|(x, error)| x.1 * error).sum();
    let bound = if exact { 1.001 * UNIT * (12.0 * weighted + 8.0) } else { f64::INFINITY };
    if bound <= enough {
        return Ok(Some((found, bound)));
    }
    check()?;
    let (states, x): (Vec<u32>, Vec<f64>) = found.iter().copied().unzip();
    let residual = by_residual(transitions, states, x, |unit| {
        let mut times = vec![scale / unit; order.states.len()];
        rates.visits(&mut times);
        times
    });
    Ok(Some((found, residual.map_or(bound, |residual| residual.min(bound)))))
}
