//! Expectations until some states are left, by elimination within an envelope.
//!
//! Let T be states that are left almost surely, w_ij the rates between them, w_i∞ those out of T,
//! and S_i the sum of both. The values h_i = (ρ_i + Σ_j w_ij h_j) / S_i are the expected rewards at
//! the rates ρ until T is left. Eliminating state k adds w_ik w_kj / S_k to w_ij, w_ik w_k∞ / S_k
//! to w_i∞ and w_ik ρ_k / S_k to ρ_i. There are no subtractions. States are numbered such that
//! neighbours are near each other. Row i has columns from its first neighbour to the last neighbour
//! of any state up to i; elimination stays within these.
//!
//! `docs/certificate.md` bounds the relative error. If a double leaves its range, the elimination
//! is repeated with [`Scaled`] numbers; their range is not exceeded.

use crate::parallel::*;
use crate::transient::chain::csr::Csr;
use crate::transient::chain::transitions::{TransitionList, Transitions, exit_rate, places};
use crate::util::quantity::{exponent, power, times_power_of_two};
use crate::{Iterate, Progress, Result};

/// Maximum number of states to eliminate.
const MOST_STATES: usize = 1 << 21;
/// Maximum number of stored numbers of an envelope.
const MOST_NUMBERS: u64 = 1 << 24;
/// Maximum number of operations of an elimination.
const MOST_WORK: u64 = 1 << 34;
/// Operations of an elimination that takes less time than any iteration.
const SHORT_WORK: u64 = 1 << 27;
/// Maximum number of states that are reordered.
const MOST_ORDERED: usize = 1 << 14;
/// States are reordered if elimination costs more than this many passes over the transitions.
const LONG: u64 = 64;
/// Smallest nonzero double in the usable range; its inverse is the largest.
const LEAST: f64 = 1.2e-271;

/// A nonnegative number: a double, or one with a wider exponent.
trait Positive: Copy + Send + Sync {
    const ZERO: Self;
    fn of(value: f64) -> Self;
    /// Converts to the nearest double: 0 or infinite if out of range.
    fn double(self) -> f64;
    fn is_zero(self) -> bool;
    /// Returns true if relative errors of further operations may exceed the unit roundoff u.
    fn is_lost(self) -> bool;
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    fn over(self, other: Self) -> Self;
    /// Computes a compensated sum.
    fn sum(terms: impl Iterator<Item = Self> + Clone) -> Self;
}

impl Positive for f64 {
    const ZERO: Self = 0.0;
    fn of(value: f64) -> Self {
        value
    }
    fn double(self) -> f64 {
        self
    }
    fn is_zero(self) -> bool {
        self == 0.0
    }
    fn is_lost(self) -> bool {
        // NaN is lost, too.
        self != 0.0 && !(LEAST..=1.0 / LEAST).contains(&self)
    }
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self + other
    }
    #[inline(always)]
    fn times(self, other: Self) -> Self {
        self * other
    }
    #[inline(always)]
    fn over(self, other: Self) -> Self {
        self / other
    }
    fn sum(terms: impl Iterator<Item = Self> + Clone) -> Self {
        exit_rate(terms)
    }
}

/// A nonnegative number `fraction · 2^exponent` with a 64-bit exponent.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Scaled {
    /// 0, or at least 1 and below 2.
    fraction: f64,
    exponent: i64,
}

impl Scaled {
    fn new(value: f64, scale: i64) -> Self {
        if value == 0.0 {
            return Self::ZERO;
        }
        let size = exponent(value);
        Self { fraction: times_power_of_two(value, -size), exponent: scale + i64::from(size) }
    }
}

impl Positive for Scaled {
    const ZERO: Self = Self { fraction: 0.0, exponent: i64::MIN / 4 };
    fn of(value: f64) -> Self {
        Self::new(value, 0)
    }
    fn double(self) -> f64 {
        times_power_of_two(self.fraction, self.exponent.clamp(-3000, 3000) as i32)
    }
    fn is_zero(self) -> bool {
        self.fraction == 0.0
    }
    fn is_lost(self) -> bool {
        !self.fraction.is_finite()
    }
    fn plus(self, other: Self) -> Self {
        let (large, small) = if self.exponent >= other.exponent { (self, other) } else { (other, self) };
        match small.exponent - large.exponent {
            // The smaller term is less than 2^-1000 of the sum.
            ..-1000 => large,
            shift => Self::new(large.fraction + small.fraction * power(shift as i32), large.exponent),
        }
    }
    fn times(self, other: Self) -> Self {
        Self::new(self.fraction * other.fraction, self.exponent + other.exponent)
    }
    fn over(self, other: Self) -> Self {
        Self::new(self.fraction / other.fraction, self.exponent - other.exponent)
    }
    fn sum(terms: impl Iterator<Item = Self> + Clone) -> Self {
        let top = terms.clone().map(|term| term.exponent).max().unwrap_or(0);
        let shifted = terms.map(|term| term.fraction * power((term.exponent - top).max(-1000) as i32));
        Self::new(exit_rate(shifted), top)
    }
}

/// An order of the states, and the column range of each row in this order.
struct Skyline {
    /// State at each row of the elimination order.
    order: Vec<u32>,
    /// Row of each state in the elimination order.
    place: Vec<u32>,
    /// First column of each row within the envelope.
    first: Vec<u32>,
    /// Last column of each row within the envelope.
    last: Vec<u32>,
    /// Number of operations of an elimination.
    work: u64,
}

impl Skyline {
    /// Computes the envelope for an order of the states.
    fn new(chain: &Csr, order: Vec<u32>) -> Self {
        let mut place = vec![0; order.len()];
        order.iter().zip(0..).for_each(|(&state, k)| place[state as usize] = k);
        let (mut row, mut reach) = (Vec::new(), 0);
        let ends = |(k, &state): (u32, &u32)| {
            row.clear();
            chain.outgoing(state as usize, &mut row);
            chain.incoming(state as usize, &mut row);
            let near = || row.iter().map(|&(other, _)| place[other as usize]).chain([k]);
            reach = near().fold(reach, u32::max);
            (near().fold(k, u32::min), reach)
        };
        let (first, last): (Vec<u32>, Vec<u32>) = (0..).zip(&order).map(ends).unzip();
        let work = (0..).zip(&last).map(|(k, &last)| u64::from(last - k).pow(2) + 1).sum();
        Self { order, place, first, last, work }
    }
}

/// Returns the states in the reverse Cuthill–McKee order, so that neighbours are near each other.
///
/// The search of each component starts at the end of a longest path of levels, and neighbours
/// ascend by degree. Sources: E. Cuthill, J. McKee, "Reducing the bandwidth of sparse symmetric
/// matrices", Proc. ACM 1969, doi:10.1145/800195.805928; A. George, J. W. H. Liu, 1981.
fn reverse_cuthill_mckee(chain: &Csr) -> Vec<u32> {
    let n = chain.states();
    let near = |state: u32, row: &mut Vec<(u32, f64)>| {
        row.clear();
        chain.incoming(state as usize, row);
        chain.outgoing(state as usize, row);
    };
    let (mut seen, mut order, mut row) = (vec![false; n], Vec::with_capacity(n), Vec::new());
    let mut search = |from: u32, seen: &mut [bool], order: &mut Vec<u32>| {
        let mut next = order.len();
        seen[from as usize] = true;
        order.push(from);
        while let Some(&state) = order.get(next) {
            next += 1;
            near(state, &mut row);
            let fresh = row.iter().map(|&(to, _)| to).filter(|&to| !seen[to as usize]);
            let mut fresh: Vec<u32> = fresh.collect();
            fresh.sort_by_cached_key(|&to| {
                near(to, &mut row);
                (row.len(), to)
            });
            order.extend(fresh.into_iter().filter(|&to| !std::mem::replace(&mut seen[to as usize], true)));
        }
    };
    for root in 0..n as u32 {
        if !seen[root as usize] {
            let first = order.len();
            // The last state found is at the end of a long path; the second search starts there.
            search(root, &mut seen, &mut order);
            let end = order[order.len() - 1];
            order.drain(first..).for_each(|state| seen[state as usize] = false);
            search(end, &mut seen, &mut order);
        }
    }
    order.reverse();
    order
}

/// States that are left almost surely, in an order for which elimination is short.
pub(crate) struct Envelope {
    chain: Csr,
    /// Rate from each state out of the set of states to be left.
    out: Vec<f64>,
    skyline: Skyline,
}

/// Expected rewards from each state until the set is left.
pub(crate) struct ExpectedRewards {
    /// One column per reward, one value per state; infinite if out of the range of doubles.
    pub(crate) columns: Vec<Vec<f64>>,
    /// Bound on the relative error of each value that is a normal double.
    pub(crate) relative: f64,
}

impl ExpectedRewards {
    /// Returns the bound on the absolute error of `value`, an element of `columns`.
    pub(crate) fn bound(&self, value: f64) -> f64 {
        if value.is_infinite() { f64::INFINITY } else { value * self.relative + f64::MIN_POSITIVE }
    }
}

impl Envelope {
    /// Prepares the elimination of the states `passing`.
    ///
    /// No transition may lead back to them from other states. `None` if elimination would take too
    /// much time or memory.
    pub(crate) fn new(transitions: &dyn Transitions, passing: &[u32]) -> Result<Option<Self>> {
        let place = places(transitions.states(), passing);
        Self::of(transitions, passing, |state| place[state as usize])
    }

    /// Prepares the elimination, given the place of each state in `passing`, or `u32::MAX`.
    pub(crate) fn of(
        transitions: &dyn Transitions,
        passing: &[u32],
        place: impl Fn(u32) -> u32,
    ) -> Result<Option<Self>> {
        let m = passing.len();
        if m == 0 || m > MOST_STATES {
            return Ok(None);
        }
        let mut row = Vec::new();
        if m > MOST_ORDERED {
            // Work in the given order, before rows are stored.
            let mut last: Vec<u32> = (0..m as u32).collect();
            for (i, &state) in (0..).zip(passing) {
                let row = transitions.leaving(state as usize, &mut row);
                let inside = row.iter().map(|&(to, _)| place(to)).filter(|&j| j != u32::MAX);
                inside.for_each(|j| last[i.min(j) as usize] = last[i.min(j) as usize].max(i.max(j)));
            }
            let (mut reach, mut work) = (0, 0);
            for (k, last) in (0u32..).zip(last) {
                reach = last.max(reach);
                work += u64::from(reach - k).pow(2) + 1;
            }
            if work > MOST_WORK {
                return Ok(None);
            }
        }
        let (mut list, mut out) = (TransitionList::default(), Vec::with_capacity(m));
        for (i, &state) in (0..).zip(passing) {
            let row = transitions.leaving(state as usize, &mut row);
            let inside = row.iter().map(|&(to, rate)| (i, place(to), rate));
            list.extend(inside.filter(|(_, to, _)| *to != u32::MAX));
            let outside = row.iter().filter(|(to, _)| place(*to) == u32::MAX);
            out.push(exit_rate(outside.map(|(_, rate)| *rate)));
        }
        let entries = list.rate.len() as u64;
        let chain = Csr::from_list(m, list)?;
        let natural = Skyline::new(&chain, (0..m as u32).collect());
        let shorter = match natural.work > LONG * entries && m <= MOST_ORDERED {
            true => {
                let narrow = Skyline::new(&chain, reverse_cuthill_mckee(&chain));
                if narrow.work < natural.work { narrow } else { natural }
            }
            false => natural,
        };
        let lengths = shorter.first.iter().zip(&shorter.last).map(|(first, last)| last - first + 1);
        let fits = shorter.work <= MOST_WORK && lengths.map(u64::from).sum::<u64>() <= MOST_NUMBERS;
        Ok(fits.then_some(Self { chain, out, skyline: shorter }))
    }

    /// Computes expected rewards until the states are left.
    ///
    /// `reward_rates` has a column for each reward, with a nonnegative rate for each state in the
    /// given order. `check` is called regularly and may end the work with an error. `None` if the
    /// states are not left almost surely, or if the error bound would be too large.
    pub(crate) fn values(
        &self,
        reward_rates: &[Vec<f64>],
        check: &mut (dyn FnMut() -> Result<()> + Send),
    ) -> Result<Option<ExpectedRewards>> {
        match self.eliminate::<f64>(reward_rates, check)? {
            Some(values) => Ok(Some(values)),
            None => self.eliminate::<Scaled>(reward_rates, check),
        }
    }

    fn eliminate<N: Positive>(
        &self,
        reward_rates: &[Vec<f64>],
        check: &mut (dyn FnMut() -> Result<()> + Send),
    ) -> Result<Option<ExpectedRewards>> {
        let m = self.skyline.order.len();
        let mut rows: Vec<EnvelopeRow<N>> = (0..m).map(|k| self.row(k, reward_rates)).collect();
        let (mut sums, mut changed) = (Vec::with_capacity(m), 0u64);
        for k in 0..m {
            if k % 64 == 0 {
                check()?;
            }
            let window = k + 1..self.skyline.last[k] as usize + 1;
            let (left, right) = rows.split_at_mut(k + 1);
            let own = &left[k];
            let rates = &own.rates[k + 1 - own.first..window.end - own.first];
            let sum = N::sum(rates.iter().copied().chain([own.tail[0]]));
            if sum.is_zero() || sum.is_lost() {
                return Ok(None);
            }
            let to: Vec<N> = rates.iter().map(|rate| rate.over(sum)).collect();
            let tail: Vec<N> = own.tail.iter().map(|rate| rate.over(sum)).collect();
            if to.iter().chain(&tail).any(|v| v.is_lost()) {
                return Ok(None);
            }
            let eliminate = |row: &mut EnvelopeRow<N>| row.eliminate(k, &to, &tail);
            let window = &mut right[..window.len()];
            let both = |a: [u64; 2], b: [u64; 2]| [a[0] + b[0], a[1] + b[1]];
            // Threads are used only if each has enough work to justify its start.
            let [rows, lost] = match window.len() {
                0..=255 => window.iter_mut().map(eliminate).fold([0; 2], both),
                len => {
                    let share = window.par_iter_mut().with_min_len(1 + 65_536 / len);
                    share.map(eliminate).reduce(|| [0; 2], both)
                }
            };
            if lost > 0 {
                return Ok(None);
            }
            changed += rows;
            sums.push(sum);
        }
        let mut columns = Vec::new();
        for c in 0..reward_rates.len() {
            let mut values = vec![N::ZERO; m];
            for k in (0..m).rev() {
                let row = &rows[k];
                let later = &row.rates[k + 1 - row.first..];
                let terms = later.iter().zip(&values[k + 1..]).map(|(rate, value)| rate.times(*value));
                values[k] = N::sum(terms.chain([row.tail[1 + c]])).over(sums[k]);
                if values[k].is_lost() {
                    return Ok(None);
                }
            }
            let mut column = vec![0.0; m];
            self.skyline.order.iter().zip(values).for_each(|(&i, value)| column[i as usize] = value.double());
            columns.push(column);
        }
        let roundings = 6.0 * (2.0 * changed as f64 + 2.0 * m as f64 + 2.0);
        // If the sum of the relative errors is at most 1e-3, their product is at most 1.001 times
        // the sum.
        let relative = 1.001 * 0.5 * f64::EPSILON * roundings;
        Ok((relative < 1e-3).then_some(ExpectedRewards { columns, relative }))
    }

    /// Builds row k: rates within the envelope, the rate out of the set, and the reward rates.
    fn row<N: Positive>(&self, k: usize, reward_rates: &[Vec<f64>]) -> EnvelopeRow<N> {
        let (first, state) = (self.skyline.first[k] as usize, self.skyline.order[k] as usize);
        let mut rates = vec![N::ZERO; self.skyline.last[k] as usize + 1 - first];
        let mut row = Vec::new();
        self.chain.outgoing(state, &mut row);
        for (to, rate) in row {
            rates[self.skyline.place[to as usize] as usize - first] = N::of(rate);
        }
        let tail = [self.out[state]].into_iter().chain(reward_rates.iter().map(|column| column[state]));
        EnvelopeRow { first, rates, tail: tail.map(N::of).collect() }
    }
}

/// Solves by iteration, or eliminates if that is shorter or the iteration's result is not `met`.
///
/// `None` if neither finds a result.
pub(super) fn solved_or_eliminated<R>(
    envelope: Option<&Envelope>,
    observer: &mut dyn Progress,
    solve: impl FnOnce(&mut dyn Progress) -> Result<Option<R>>,
    met: impl FnOnce(&R) -> bool,
    eliminate: impl FnOnce(&Envelope, &mut dyn Progress) -> Result<Option<R>>,
) -> Result<Option<R>> {
    // A short elimination takes less time than any iteration.
    let short = envelope.is_some_and(|envelope| envelope.skyline.work <= SHORT_WORK);
    let solved = if short { None } else { solve(observer)? };
    match (solved, envelope) {
        (Some(found), _) if met(&found) => Ok(Some(found)),
        (solved, Some(envelope)) => {
            let goes_on = short || observer.iterate(Iterate::default())?;
            let found = if goes_on { eliminate(envelope, observer)? } else { None };
            Ok(found.or(solved))
        }
        (solved, None) => Ok(solved),
    }
}

/// Row of the matrix that remains during elimination.
struct EnvelopeRow<N> {
    first: usize,
    rates: Vec<N>,
    /// Rate out of the set of states to be left, followed by the reward rates.
    tail: Vec<N>,
}

impl<N: Positive> EnvelopeRow<N> {
    /// Eliminates state k from this row, given row k divided by the exit rate of k.
    ///
    /// `to` are transition probabilities, `tail` exit and rewards. Returns two flags, 0 or 1: the
    /// row has changed, and a number has left the range of its type.
    fn eliminate(&mut self, k: usize, to: &[N], tail: &[N]) -> [u64; 2] {
        if self.first > k || self.rates[k - self.first].is_zero() {
            return [0, 0];
        }
        let rate = self.rates[k - self.first];
        let add = |own: &mut [N], some: &[N]| {
            own.iter_mut().zip(some).fold(false, |lost, (own, v)| {
                *own = own.plus(rate.times(*v));
                // A product may underflow to 0.
                lost | (!v.is_zero() & (own.is_lost() | own.is_zero()))
            })
        };
        let lost = add(&mut self.rates[k + 1 - self.first..], to) | add(&mut self.tail, tail);
        [1, u64::from(lost)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transient::chain::csr::tests::chain;

    /// A cycle whose numbering scatters neighbours has bandwidth two when reordered.
    #[test]
    fn states_of_a_scattered_cycle_are_put_next_to_their_neighbours() {
        let n = 1000;
        let name = |i: u32| (i * 7919 + 5) % n;
        let both = |i: u32| [(name(i), name((i + 1) % n), 1.0), (name(i), name((i + n - 1) % n), 2.0)];
        let ring = chain(n as usize, &(0..n).flat_map(both).collect::<Vec<_>>());
        let reach = |order: Vec<u32>| {
            let skyline = Skyline::new(&ring, order);
            (0..n).zip(skyline.first).map(|(k, first)| k - first).max()
        };

        let order = reverse_cuthill_mckee(&ring);
        let mut states = order.clone();
        states.sort_unstable();
        assert!(states.into_iter().eq(0..n), "every state once");
        assert!(reach((0..n).collect()) > Some(100), "the case is what it says");
        assert_eq!(reach(order), Some(2));
    }

    fn values(chain: &Csr, passing: &[u32], reward_rates: Vec<f64>) -> (Vec<f64>, f64) {
        let envelope = Envelope::new(chain, passing).unwrap().expect("a short elimination");
        let found = envelope.values(&[reward_rates], &mut || Ok(())).unwrap().expect("states that are left");
        let ExpectedRewards { mut columns, relative } = found;
        (columns.remove(0), relative)
    }

    /// Rates 1 up and 2 down: from i, n is reached before 0 with probability (2^i − 1)/(2^n − 1).
    #[test]
    fn a_gambler_of_thousands_matches_the_closed_form_beyond_the_range_of_doubles() {
        let n = 3000u32;
        let list: Vec<_> = (1..n).flat_map(|i| [(i, i + 1, 1.0), (i, i - 1, 2.0)]).collect();
        let passing: Vec<u32> = (1..n).collect();
        let reward_rates = passing.iter().map(|&i| if i + 1 == n { 1.0 } else { 0.0 }).collect();
        let (values, relative) = values(&chain(n as usize + 1, &list), &passing, reward_rates);
        assert!(relative < 1e-10, "{relative:e}");
        for (i, value) in passing.iter().zip(values) {
            let exact = times_power_of_two(1.0, *i as i32 - n as i32);
            // Subtracts 1 from numerator and denominator, unless that is below rounding.
            let exact = if *i < 60 { exact * (1.0 - power(-(*i as i32))) } else { exact };
            assert!((value - exact).abs() <= (relative + 4.0 * f64::EPSILON) * exact + f64::MIN_POSITIVE);
        }
    }

    /// A drift against the direction on 400 states: a mean time of 10^590 exceeds doubles.
    #[test]
    fn a_time_beyond_the_range_is_infinite_as_a_double_and_finite_as_a_wide_number() {
        let line = |n: u32| -> Csr {
            let up = (0..n).map(|i| (i, i + 1, 5.0));
            let list: Vec<_> = up.chain((1..n).map(|i| (i, i - 1, f64::from(i)))).collect();
            chain(n as usize + 1, &list)
        };
        let time = |n: u32| {
            let passing: Vec<u32> = (0..n).collect();
            values(&line(n), &passing, vec![1.0; n as usize])
        };
        let (long, relative) = time(400);
        assert!(long[0] == f64::INFINITY && long[399] > 1e300 && relative < 1e-11, "{}", long[399]);
        // The mean time from i to i + 1 is d_i = (1 + i d_{i−1})/5; all terms are positive.
        let (short, relative) = time(150);
        let steps = (0..150).scan(0.0, |d, i| {
            *d = (1.0 + f64::from(i) * *d) / 5.0;
            Some(*d)
        });
        let exact: f64 = steps.sum();
        assert!(exact > 1e100 && (short[0] / exact - 1.0).abs() < relative + 1e-13, "{} {exact}", short[0]);
    }

    #[test]
    fn wide_numbers_compute_as_doubles_within_the_range_of_doubles() {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut some = || times_power_of_two(1.0 + rng.f64(), rng.i32(-200..200));
        for _ in 0..1000 {
            let (a, b, c) = (some(), some(), some());
            let [x, y, z] = [a, b, c].map(Scaled::of);
            assert_eq!(x.plus(y).double(), a + b);
            assert_eq!(x.times(y).double(), a * b);
            assert_eq!(x.over(y).double(), a / b);
            assert_eq!(Scaled::sum([x, y, z, Scaled::ZERO].into_iter()).double(), exit_rate([a, b, c]));
        }
        assert_eq!(Scaled::of(5e-324).times(Scaled::of(5e-324)).double(), 0.0);
        assert_eq!(Scaled::of(1e300).times(Scaled::of(1e300)).over(Scaled::of(1e300)).double(), 1e300);
    }

    /// Doubles and wide numbers agree within the sum of both bounds, in any order of the states.
    #[test]
    fn values_of_random_chains_solve_their_equations() {
        for seed in 0..200 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let m = rng.usize(1..40) as u32;
            let mut list = Vec::new();
            for i in 0..m {
                for _ in 0..rng.usize(1..4) {
                    list.push((i, rng.u32(0..m), 10f64.powf(rng.f64() * 12.0 - 6.0)));
                }
                // Makes the set left almost surely.
                list.push((i, if i == 0 { m } else { rng.u32(0..i) }, 1.0));
            }
            list.sort_by_key(|t| (t.0, t.1));
            list.dedup_by_key(|t| (t.0, t.1));
            list.retain(|t| t.0 != t.1);
            let chain = chain(m as usize + 1, &list);
            let passing: Vec<u32> = (0..m).collect();
            let reward_rates: Vec<f64> = passing.iter().map(|_| rng.f64()).collect();
            let envelope = Envelope::new(&chain, &passing).unwrap().unwrap();
            let own = [reward_rates.clone()];
            let plain = envelope.eliminate::<f64>(&own, &mut || Ok(())).unwrap().expect("values");
            let wide = envelope.eliminate::<Scaled>(&own, &mut || Ok(())).unwrap().expect("values");
            for (i, &reward_rates) in reward_rates.iter().enumerate() {
                let (a, b) = (plain.columns[0][i], wide.columns[0][i]);
                assert!((a - b).abs() <= 2.0 * plain.bound(a), "seed {seed}, state {i}: {a} {b}");
                // The equation S_i h_i = ρ_i + Σ w_ij h_j; all of its terms are positive.
                let of = |t: &&(u32, u32, f64)| t.0 as usize == i;
                let exit: f64 = list.iter().filter(of).map(|t| t.2).sum();
                let inside = list.iter().filter(of).filter(|t| t.1 < m);
                let sum = reward_rates + inside.map(|t| t.2 * plain.columns[0][t.1 as usize]).sum::<f64>();
                let error = (2.0 * plain.relative + 1e-14) * (sum + exit * a);
                assert!((exit * a - sum).abs() <= error, "seed {seed}, state {i}");
            }
        }
    }
}
