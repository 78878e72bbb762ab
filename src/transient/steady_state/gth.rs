//! The limit of a small or narrow chain by elimination of its states, with its proof.
//!
//! State k is eliminated by w_ij += w_ik w_kj / S_k, S_k = Σ_{j<k} w_kj: the rates w of the chain that is watched outside
//! of k alone, one column of which is for where it ends. Nothing is subtracted, and what was banded stays so. States that are left
//! for ever come first; then each class without one of its states z, which ends its excursions. On the way back
//! x_k = (b_k + Σ_{i<k} x_i w_ik) / S_k is the time that is spent in k, b the shares that excursions begin with
//! (W. Grassmann, M. Taksar, D. Heyman, "Regenerative analysis and steady state distributions for Markov chains",
//! Operations Research 33(5), 1985, doi:10.1287/opre.33.5.1107).
//!
//! # Rounding
//! A rate of a stage is computed from those of the stage before by a sum that is compensated, a quotient, a product and
//! an addition of positive numbers: a relative error of at most 6u. So the stage is exact for rates that differ by such
//! factors. By the Markov chain tree theorem a time is a quotient of two sums over spanning forests, with a positive product
//! of rates, one of each state at most, for each forest. Factors of 1 ± 6u in the rates of r states move such a quotient by a factor of
//! (1 ± 6u)^{2r} at most (this is C. O'Cinneide's bound, "Entrywise perturbation theory and error analysis for Markov chains", Numerische
//! Mathematik 65, 1993, doi:10.1007/BF01385743), and factors in the shares by one more. r is counted at each stage: no more than lead to k, and
//! none in a chain of births and deaths. The way back adds 6u for each state on the longest path that a time is
//! computed along. Nothing is known so of rates that leave the range of normal numbers.
//!
//! Where that is more than ε, or not known, the limit of a class is bounded as that of an iteration: by its residual in twice the digits, and the expected steps to z,
//! which the same rates give, and an inequality [proves](crate::transient::backward::hitting_time).

use crate::lane::cpu::expect_memory;
use crate::parallel::*;
use crate::transient::backward::hitting_time::Stochastic;
use crate::transient::chain::recurrent_classes::Classes;
use crate::transient::chain::transitions::{Transitions, exit_rate};
use crate::transient::numerics::double_double::{Exact, UNIT};
use crate::util::quantity::{exponent, times_power_of_two};

/// Most states that are eliminated whatever leads where: their rates take 128 MiB.
pub(crate) const MOST_STATES: usize = 4096;

/// Most states of a band, its numbers, and the operations that it takes.
pub(super) const MOST_BANDED: usize = 1 << 20;
const MOST_CLASSES: usize = 64;
const MOST_NUMBERS: usize = 1 << 27;
const MOST_WORK: u64 = (MOST_STATES as u64).pow(3) / 3;

/// Numbers of a thread's share.
const SHARE: usize = 65_536;

/// Rates below this, beside an α in [1, 2), are too near the end of the range.
const LEAST: f64 = 1.2e-271;
/// An order of some states.
#[derive(Debug, Clone)]
struct Order {
    states: Vec<u32>,
    /// Half the width of the band that their rates lie in.
    band: usize,
}

impl Order {
    fn new(transitions: &dyn Transitions, states: Vec<u32>, place: &mut [u32]) -> Self {
        states.iter().zip(0..).for_each(|(&state, i)| place[state as usize] = i);
        let (mut band, mut row) = (0, Vec::new());
        for (i, &state) in states.iter().enumerate() {
            row.clear();
            transitions.outgoing(state as usize, &mut row);
            let inside = row.iter().map(|&(to, _)| place[to as usize]).filter(|&j| j != u32::MAX);
            band = inside.map(|j| i.abs_diff(j as usize)).fold(band, usize::max);
        }
        states.iter().for_each(|&state| place[state as usize] = u32::MAX);
        Self { states, band }
    }

    /// The order of some ascending states, or breadth first from `root` (E. Cuthill, J. McKee, 1969), whichever has the narrower band.
    fn best(transitions: &dyn Transitions, states: Vec<u32>, root: Option<u32>) -> Self {
        if states.is_empty() {
            return Self { states, band: 0 };
        }
        let mut place = vec![u32::MAX; transitions.states()];
        let natural = Self::new(transitions, states, &mut place);
        // A chain that begins at its first state has the order that it is given.
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

    /// True if there are time and memory for it.
    fn fits(&self) -> bool {
        let numbers = self.states.len().saturating_mul(self.stride());
        let room = || expect_memory(8 * numbers as u64, || "rates of an elimination".to_owned()).is_ok();
        self.work() <= MOST_WORK && numbers <= MOST_NUMBERS && room()
    }
}

/// Rates between states that were eliminated one after the other, each row as it was when its state was.
struct Eliminated {
    m: usize,
    band: usize,
    stride: usize,
    /// Of each row the columns of its band.
    values: Vec<f64>,
    /// Rates to where it ends.
    end: Vec<f64>,
    /// S_k.
    sums: Vec<f64>,
    /// States whose rates were changed, over all stages.
    changed: u64,
    /// True if no rate has left the range of normal numbers: relative errors are known.
    exact: bool,
}

/// Times, each a fraction and an exponent of two, and what they err by.
struct Times {
    values: Vec<(f64, i32)>,
    /// Bounds of the relative errors, in 6u.
    errors: Vec<f64>,
    /// True if no share has left the range of normal numbers.
    exact: bool,
}

impl Eliminated {
    /// Eliminates the states of an order, in the unit of `scale`; none where all ways on are lost. `check` is asked now and then
    /// whether to go on.
    fn new(
        transitions: &dyn Transitions,
        scale: f64,
        order: &Order,
        check: &mut dyn FnMut() -> crate::Result<()>,
    ) -> crate::Result<Option<Self>> {
        let (m, band, stride) = (order.states.len(), order.band, order.stride());
        let mut place = vec![u32::MAX; transitions.states()];
        order.states.iter().zip(0..).for_each(|(&state, i)| place[state as usize] = i);
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
            row.clear();
            transitions.outgoing(state as usize, &mut row);
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

    /// The first column that a row holds.
    fn first(&self, row: usize) -> usize {
        row.saturating_sub(self.band).min(self.m - self.stride)
    }

    /// The states before `k` that its band reaches.
    fn before(&self, k: usize) -> std::ops::Range<usize> {
        k.saturating_sub(self.band)..k
    }

    /// The rates from `k` to these.
    fn row(&self, k: usize) -> &[f64] {
        let (before, at) = (self.before(k), k * self.stride - self.first(k));
        &self.values[at + before.start..at + before.end]
    }

    /// The rate from `i` to a later state `k` when that was eliminated.
    fn rate(&self, i: usize, k: usize) -> f64 {
        self.values[i * self.stride + k - self.first(i)]
    }

    /// Eliminates state `k`, the last that is left; false where its rates have all left their range.
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
            // Going back to where it came from changes nothing.
            let changed = rate > 0.0 && targets > usize::from(to[i - before.start] > 0.0);
            (bad, u64::from(changed))
        };
        let rows = &mut self.values[before.start * stride..k * stride];
        let ends = &mut self.end[before.clone()];
        let both = |a: (bool, u64), b: (bool, u64)| (a.0 | b.0, a.1 + b.1);
        // A thread's share is worth its start.
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

    /// The time that is spent in each state until the end, from some shares.
    fn times(&self, mut share: Vec<f64>) -> Times {
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
            // A state that does not lead here may be any number of orders more likely.
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
        Times { values, errors, exact }
    }

    /// What is earned from each state until the end, in the place of the rates at which it is, and a bound of the relative error.
    fn visits(&self, visits: &mut [f64]) -> f64 {
        let mut stages = 2 * self.changed;
        for k in (0..self.m).rev() {
            let visit = visits[k] / self.sums[k];
            let mut any = false;
            for i in self.before(k) {
                let rate = self.rate(i, k);
                visits[i] += rate * visit;
                any |= rate > 0.0;
            }
            stages += u64::from(any && visit != 0.0);
        }
        for k in 0..self.m {
            let (before, own) = visits.split_at_mut(k);
            let there = self.row(k).iter().zip(&before[self.before(k)]).map(|(rate, value)| rate * value);
            own[0] = exit_rate(there.chain([own[0]])) / self.sums[k];
        }
        1.001 * UNIT * 6.0 * (stages as f64 + self.m as f64 + 3.0)
    }
}

/// An order of all states that a chain can be in, for its limit.
pub(crate) struct Plan {
    passing: Order,
    /// Of each class the states but for one.
    classes: Vec<(usize, Order)>,
}

impl Plan {
    /// An order in which there are time and memory for elimination, if there is one.
    pub(crate) fn new(transitions: &dyn Transitions, classes: &Classes) -> Option<Self> {
        let n = transitions.states();
        // The search for an order of each class looks at all states.
        if n > MOST_BANDED || (n > MOST_STATES && classes.representatives.len() > MOST_CLASSES) {
            return None;
        }
        let class = classes.of_states(transitions);
        let mut members: Vec<Vec<u32>> = vec![Vec::new(); classes.representatives.len() + 1];
        for state in (0..n).filter(|&state| classes.reached[state]) {
            members[class[state].map_or(0, |class| 1 + class)].push(state as u32);
        }
        let mut members = members.into_iter();
        let passing = Order::best(transitions, members.next().unwrap_or_default(), None);
        let of_class = |(states, &one): (Vec<u32>, &usize)| (one, without(transitions, states, one));
        let plan = Self { passing, classes: members.zip(&classes.representatives).map(of_class).collect() };
        let mut orders = std::iter::once(&plan.passing).chain(plan.classes.iter().map(|(_, order)| order));
        (orders.all(Order::fits) && plan.work() <= MOST_WORK).then_some(plan)
    }

    fn work(&self) -> u64 {
        self.passing.work() + self.classes.iter().map(|(_, order)| order.work()).sum::<u64>()
    }

    /// Multiplications by a matrix of `nnz` entries that cost what it does.
    pub(crate) fn worth(&self, nnz: u64) -> u64 {
        self.work() / nnz.max(1)
    }

    /// The limit from some initial probabilities and a bound of its l1 error, `enough` where that is in reach; none where rates span
    /// too many orders. `check` is asked now and then whether to go on.
    pub(crate) fn limit(
        &self,
        transitions: &dyn Transitions,
        scale: f64,
        initial: &[f64],
        enough: f64,
        check: &mut dyn FnMut() -> crate::Result<()>,
    ) -> crate::Result<Option<(Vec<f64>, f64)>> {
        let rates = Eliminated::new(transitions, scale, &self.passing, check)?;
        let Some(rates) = rates.filter(|rates| rates.exact) else { return Ok(None) };
        let share = self.passing.states.iter().map(|&state| initial[state as usize]).collect();
        let times = rates.times(share);
        // What is passed is never that long for its exponent to matter.
        let passed: Vec<f64> = times.values.iter().map(|&(x, size)| times_power_of_two(x, size)).collect();
        let mut arriving = vec![0.0; initial.len()];
        let mut row = Vec::new();
        for (&state, time) in self.passing.states.iter().zip(&passed) {
            row.clear();
            transitions.outgoing(state as usize, &mut row);
            row.iter().for_each(|&(to, rate)| arriving[to as usize] += time * (rate * scale));
        }
        let most = times.errors.iter().copied().fold(0.0, f64::max);
        // Sums of products of numbers of 0 or more, one for each way in.
        let ways = self.passing.states.len() as f64;
        let mut bound = if ways > 0.0 { 1.001 * UNIT * (6.0 * most + ways + 8.0) } else { 0.0 };
        let mut limit = vec![0.0; initial.len()];
        for (one, order) in &self.classes {
            let states = || order.states.iter().map(|&state| state as usize).chain([*one]);
            let share = exit_rate(states().map(|state| initial[state] + arriving[state]));
            let Some((x, rounding)) = stationary(transitions, scale, *one, order, enough, check)? else {
                return Ok(None);
            };
            x.into_iter().for_each(|(state, x)| limit[state as usize] = share * x);
            bound += share * rounding;
        }
        // A share and a probability are multiplied; what a share underflows by is nothing beside the rest.
        bound += 8.0 * UNIT + f64::MIN_POSITIVE * (initial.len() as f64).powi(2);
        Ok(Some((limit, bound)))
    }
}

/// The best order of a class without one state.
fn without(transitions: &dyn Transitions, mut states: Vec<u32>, one: usize) -> Order {
    states.retain(|&state| state as usize != one);
    states.sort_unstable();
    Order::best(transitions, states, Some(one as u32))
}

type Limit = (Vec<(u32, f64)>, f64);

/// The stationary distribution of a closed class: its states, `one` of them apart, and their probabilities; and a bound of its l1 error.
fn stationary(
    transitions: &dyn Transitions,
    scale: f64,
    one: usize,
    order: &Order,
    enough: f64,
    check: &mut dyn FnMut() -> crate::Result<()>,
) -> crate::Result<Option<Limit>> {
    if order.states.is_empty() {
        return Ok(Some((vec![(one as u32, 1.0)], 0.0)));
    }
    let Some((found, bound)) = excursions(transitions, scale, one, order, enough, check)? else {
        return Ok(None);
    };
    let likely = found.iter().fold((one as u32, 0.0), |most, &x| if x.1 > most.1 { x } else { most });
    if bound <= enough || likely.0 as usize == one {
        return Ok(Some((found, bound)).filter(|(_, bound)| bound.is_finite()));
    }
    // The most probable state is met soon, and errors grow with the distance from it.
    let states = found.iter().map(|&(state, _)| state).collect();
    let order = without(transitions, states, likely.0 as usize);
    let again = match order.fits() {
        true => excursions(transitions, scale, likely.0 as usize, &order, enough, check)?,
        false => None,
    };
    let better = again.filter(|again| again.1 < bound).unwrap_or((found, bound));
    Ok(Some(better).filter(|(_, bound)| bound.is_finite()))
}

/// The stationary distribution from excursions that begin and end in one state.
fn excursions(
    transitions: &dyn Transitions,
    scale: f64,
    one: usize,
    order: &Order,
    enough: f64,
    check: &mut dyn FnMut() -> crate::Result<()>,
) -> crate::Result<Option<Limit>> {
    let Some(rates) = Eliminated::new(transitions, scale, order, check)? else { return Ok(None) };
    let mut row = Vec::new();
    transitions.outgoing(one, &mut row);
    let leaves = |&state: &u32| match row.binary_search_by_key(&state, |t| t.0) {
        Ok(at) => row[at].1 * scale,
        Err(_) => 0.0,
    };
    let Times { values, errors, exact } = rates.times(order.states.iter().map(leaves).collect());
    // Probabilities may lie more orders apart than doubles reach.
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
    let residual = by_residual(transitions, scale, &rates, order, &found);
    Ok(Some((found, residual.map_or(bound, |residual| residual.min(bound)))))
}

/// Bound of the l1 error of a stationary distribution, its last state the one that the others' excursions end in: twice the expected steps
/// to that times its residual.
fn by_residual(
    transitions: &dyn Transitions,
    scale: f64,
    rates: &Eliminated,
    order: &Order,
    found: &[(u32, f64)],
) -> Option<f64> {
    let n = transitions.states();
    // α = 2 in the unit of the scale is more than the largest exit rate.
    let chain = Stochastic::new(transitions, 2.0 / scale, 0..n);
    let mut visits = vec![2.0; order.states.len()];
    let _ = rates.visits(&mut visits);
    let mut steps = vec![[0.0]; n];
    order.states.iter().zip(visits).for_each(|(&state, steps_there)| steps[state as usize] = [steps_there]);
    let longest = chain.shows(order.states.iter().map(|&state| state as usize), &steps)?;
    let mut x = vec![0.0; n];
    found.iter().for_each(|&(state, p)| x[state as usize] = p);
    let defect = |row: &mut Vec<(u32, f64)>, &(state, own): &(u32, f64)| {
        row.clear();
        transitions.incoming(state as usize, row);
        let arriving = row.len();
        transitions.outgoing(state as usize, row);
        let (mut sum, mut all) = (Exact::default(), 0.0);
        for (at, &(other, rate)) in row.iter().enumerate() {
            let p = if at < arriving { x[other as usize] } else { -own };
            sum.add_product(p, rate * scale);
            all += (p * rate * scale).abs();
        }
        // What underflows is less than the last in each of some operations.
        sum.magnitude(row.len(), 1.001 * all) + 4.0 * row.len() as f64 * f64::MIN_POSITIVE
    };
    let mut row = Vec::new();
    let residual: f64 = found.iter().map(|one| defect(&mut row, one)).sum();
    // The probabilities as doubles sum to 1 but for some roundings.
    Some((longest * residual + 4.0 * UNIT) * (1.0 + 1e-9))
}
