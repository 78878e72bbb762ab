//! Chains: probabilities at finite times and limits, in double-word arithmetic.
//!
//! Probabilities are compared with scaling and squaring, limits with elimination.

use fastrand::Rng;
use kolmo::internals::Csr;
use kolmo::kernel::Precision;
use kolmo::sparse::MatrixFormat;
use kolmo::transient::{Initial, Method, Options, Solution, Status};
use kolmo::{Error, Result};

use super::double_word::DoubleWord;
use super::{cpu_lanes, run_all};
use crate::support::{Real, answer, chain, expect_error, problem, reward, run, within};

kinds! {
    Single Still Pair Sparse Dense Equal BirthDeath StiffBirthDeath PureBirth Ring Bipartite Star Tree Absorbing
    Classes NearlyAbsorbing NearlyDecomposable DominatingRate StiffRow WideRange Huge Tiny Subnormal
}

/// Returns a number whose logarithm is uniformly distributed.
pub(super) fn between(rng: &mut Rng, low: f64, high: f64) -> f64 {
    (low.ln() + rng.f64() * (high.ln() - low.ln())).exp()
}

/// Rates from each state (row) to every state (column).
pub(crate) type Rates = Vec<Vec<f64>>;

fn rates(kind: Kind, rng: &mut Rng) -> Rates {
    let n = match kind {
        Kind::Single => 1,
        Kind::Pair => 2,
        // Few states: probabilities stay in the range of the reference.
        Kind::WideRange => rng.usize(2..=5),
        _ => rng.usize(2..=16),
    };
    let mut rate = vec![vec![0.0; n]; n];
    let usual = |rng: &mut Rng| between(rng, 0.1, 10.0);
    let mut set = |i: usize, j: usize, r: f64| {
        if i != j {
            rate[i][j] = r;
        }
    };
    let line = |set: &mut dyn FnMut(usize, usize, f64), rng: &mut Rng, low: f64, high: f64| {
        for i in 1..n {
            set(i - 1, i, between(rng, low, high));
            set(i, i - 1, between(rng, low, high));
        }
    };
    let some =
        |set: &mut dyn FnMut(usize, usize, f64), rng: &mut Rng, of: std::ops::Range<usize>, low, high| {
            for i in of.clone() {
                for _ in 0..rng.usize(1..4) {
                    set(i, rng.usize(of.clone()), between(rng, low, high));
                }
            }
        };
    match kind {
        Kind::Single | Kind::Still => {}
        Kind::Pair => {
            set(0, 1, between(rng, 1e-12, 1e12));
            set(1, 0, between(rng, 1e-12, 1e12));
        }
        Kind::Sparse | Kind::Absorbing | Kind::Huge | Kind::Tiny | Kind::Subnormal => {
            some(&mut set, rng, 0..n, 0.1, 10.0);
        }
        Kind::Dense => (0..n * n).for_each(|k| set(k / n, k % n, usual(rng))),
        Kind::Equal => (0..n * n).for_each(|k| set(k / n, k % n, 1.0)),
        Kind::BirthDeath => line(&mut set, rng, 0.1, 10.0),
        Kind::StiffBirthDeath => line(&mut set, rng, 1e-6, 1e6),
        Kind::PureBirth => (1..n).for_each(|i| set(i - 1, i, usual(rng))),
        Kind::Ring => (0..n).for_each(|i| set(i, (i + 1) % n, 1.0)),
        Kind::Bipartite => {
            (0..n * n).filter(|k| (k / n + k % n) % 2 == 1).for_each(|k| set(k / n, k % n, usual(rng)));
        }
        Kind::Star => (1..n).for_each(|i| {
            set(0, i, usual(rng));
            set(i, 0, between(rng, 1e-3, 1e3));
        }),
        Kind::Tree => (1..n).for_each(|i| set((i - 1) / 2, i, usual(rng))),
        Kind::Classes | Kind::NearlyDecomposable => {
            let cut = n / 2;
            some(&mut set, rng, 0..cut.max(1), 0.1, 10.0);
            some(&mut set, rng, cut..n, 0.1, 10.0);
            if kind == Kind::Classes {
                set(0, cut, usual(rng));
            } else {
                set(0, cut, between(rng, 1e-12, 1e-6));
                set(cut, 0, between(rng, 1e-12, 1e-6));
            }
        }
        Kind::NearlyAbsorbing => {
            line(&mut set, rng, 0.1, 10.0);
            set(n - 1, n - 2, between(rng, 1e-12, 1e-6));
        }
        Kind::DominatingRate => {
            line(&mut set, rng, 0.1, 10.0);
            set(rng.usize(0..n), rng.usize(0..n), between(rng, 1e3, 1e9));
        }
        Kind::StiffRow => {
            line(&mut set, rng, 0.1, 10.0);
            let (row, factor) = (rng.usize(0..n), between(rng, 1e-9, 1e9));
            rate[row].iter_mut().for_each(|r| *r *= factor);
        }
        Kind::WideRange => line(&mut set, rng, 1e-60, 1e60),
    }
    if kind == Kind::Absorbing {
        (0..n).filter(|_| rng.u8(0..4) == 0).for_each(|i| rate[i].fill(0.0));
    }
    let unit = match kind {
        Kind::Huge => (f64::from(rng.u32(900..1015))).exp2(),
        Kind::Tiny => (-f64::from(rng.u32(900..1010))).exp2(),
        Kind::Subnormal => (-f64::from(rng.u32(1022..1060))).exp2(),
        _ => 1.0,
    };
    rate.iter_mut().flatten().for_each(|r| *r *= unit);
    rate
}

/// A chain, usually in double words; rates are scaled so that the largest exit rate is below 2.
pub(crate) struct Reference<T = DoubleWord> {
    n: usize,
    /// P = I + Q/2 by rows, and the rates.
    p: Vec<T>,
    rate: Vec<T>,
    /// Exponent of the power of two that scales the rates.
    exponent: i32,
}

/// Returns x · 2^exponent, in steps that do not leave the range.
fn scaled(mut x: f64, mut exponent: i32) -> f64 {
    while exponent != 0 {
        let step = exponent.clamp(-900, 900);
        x *= f64::from(step).exp2();
        exponent -= step;
    }
    x
}

impl<T: Real> Reference<T> {
    pub(crate) fn new(rates: &Rates) -> Self {
        let n = rates.len();
        let largest = rates.iter().map(|row| row.iter().map(|r| r / 2.0).sum::<f64>()).fold(0.0, f64::max);
        let exponent = if largest > 0.0 { -(largest.log2().floor() as i32) - 2 } else { 0 };
        let rate: Vec<T> = rates.iter().flatten().map(|&r| scaled(r, exponent).into()).collect();
        let mut p: Vec<T> = rate.iter().map(|&r| r * T::from(0.5)).collect();
        for i in 0..n {
            let out: T = p[i * n..(i + 1) * n].iter().copied().sum();
            p[i * n + i] = T::from(1.0) - out;
        }
        Self { n, p, rate, exponent }
    }

    fn product(&self, a: &[T], b: &[T]) -> Vec<T> {
        let n = self.n;
        let entry = |k: usize| (0..n).map(|j| a[k / n * n + j] * b[j * n + k % n]).sum();
        (0..n * n).map(entry).collect()
    }

    /// Returns π(t) and a bound of its error. All terms are positive, so relative errors add up.
    pub(crate) fn at(&self, initial: &[f64], t: f64) -> (Vec<T>, f64) {
        self.from(&initial.iter().map(|&p| p.into()).collect::<Vec<T>>(), t)
    }

    /// Returns π(t) as [`at`](Self::at), from an initial distribution in the numbers of the chain.
    pub(crate) fn from(&self, initial: &[T], t: f64) -> (Vec<T>, f64) {
        let (n, (matrix, doubt)) = (self.n, self.matrix(t));
        let result = (0..n).map(|j| (0..n).map(|i| initial[i] * matrix[i * n + j]).sum()).collect();
        (result, doubt)
    }

    /// Returns the transition matrix at time t by rows, and a bound of the error of each row.
    pub(crate) fn matrix(&self, t: f64) -> (Vec<T>, f64) {
        let n = self.n;
        let lambda = 2.0 * scaled(t, -self.exponent);
        let squarings = if lambda > 1.0 { lambda.log2().ceil() as i32 } else { 0 };
        let each = T::from(scaled(lambda, -squarings));
        // Σ λ^k/k! P^k; its rows add up to e^λ.
        let one = |k: usize| if k / n == k % n { T::from(1.0) } else { T::from(0.0) };
        let mut term: Vec<T> = (0..n * n).map(one).collect();
        let mut sum = term.clone();
        for k in 1..30 {
            let factor = each / T::from(f64::from(k));
            term = self.product(&term, &self.p).into_iter().map(|x| x * factor).collect();
            sum.iter_mut().zip(&term).for_each(|(s, &x)| *s = *s + x);
        }
        for row in sum.chunks_mut(n) {
            let mass: T = row.iter().copied().sum();
            row.iter_mut().for_each(|x| *x = *x / mass);
        }
        for _ in 0..squarings {
            sum = self.product(&sum, &sum);
        }
        // 30 terms leave 1/30!, each product and sum at most 2⁻¹⁰⁰; squaring doubles the error so
        // far.
        (sum, f64::from(squarings).exp2() * (n as f64 + 40.0) * (-98f64).exp2() + 1e-32)
    }

    /// Returns the limit by eliminating states.
    ///
    /// Transient states are eliminated first, then all but one state (the representative) of each
    /// closed class.
    pub(super) fn limit(&self, initial: &[f64]) -> Vec<T> {
        let n = self.n;
        let mut reach: Vec<Vec<bool>> =
            (0..n).map(|i| (0..n).map(|j| i == j || self.rate[i * n + j].size() > 0.0).collect()).collect();
        for k in 0..n {
            for i in 0..n {
                for j in 0..n {
                    reach[i][j] |= reach[i][k] && reach[k][j];
                }
            }
        }
        let closed = |i: usize| (0..n).all(|j| !reach[i][j] || reach[j][i]);
        let representative = |i: usize| closed(i) && (0..i).all(|j| !(reach[i][j] && reach[j][i]));
        let mut order: Vec<usize> = (0..n).filter(|&i| !closed(i)).collect();
        order.extend((0..n).filter(|&i| closed(i) && !representative(i)));
        let mut w = self.rate.clone();
        let mut share: Vec<T> = initial.iter().map(|&p| p.into()).collect();
        let mut left: Vec<bool> = vec![true; n];
        let mut sums = vec![T::from(1.0); n];
        for &k in &order {
            left[k] = false;
            let to: Vec<usize> = (0..n).filter(|&j| left[j] && w[k * n + j].size() > 0.0).collect();
            let sum: T = to.iter().map(|&j| w[k * n + j]).sum();
            sums[k] = sum;
            for &j in &to {
                let v = w[k * n + j] / sum;
                for i in (0..n).filter(|&i| left[i] && i != j) {
                    w[i * n + j] = w[i * n + j] + w[i * n + k] * v;
                }
                if !closed(k) {
                    share[j] = share[j] + share[k] * v;
                }
            }
        }
        // The probability of each closed class is collected in its representative.
        let mut x = vec![T::from(0.0); n];
        for z in (0..n).filter(|&i| representative(i)) {
            let class: Vec<usize> = (0..n).filter(|&i| reach[z][i]).collect();
            let mass: T = class.iter().map(|&i| share[i]).sum();
            x[z] = T::from(1.0);
            for &k in order.iter().rev().filter(|k| class.contains(k)) {
                let known: T = class
                    .iter()
                    .filter(|&&i| x[i].size() > 0.0 && i != k)
                    .map(|&i| x[i] * w[i * n + k])
                    .sum();
                x[k] = known / sums[k];
            }
            let sum: T = class.iter().map(|&i| x[i]).sum();
            class.iter().for_each(|&i| x[i] = x[i] / sum * mass);
        }
        x
    }
}

/// Returns a chain with these rates.
pub(super) fn made(rates: &Rates) -> Csr {
    let row = |(i, row): (usize, &Vec<f64>)| {
        let positive = row.iter().enumerate().filter(|(_, rate)| **rate > 0.0);
        positive.map(|(j, &rate)| (i as u32, j as u32, rate)).collect::<Vec<_>>()
    };
    chain(rates.len(), &rates.iter().enumerate().flat_map(row).collect::<Vec<_>>())
}

/// Returns an initial distribution, and its probabilities rounded to doubles.
pub(super) fn initial(n: usize, rng: &mut Rng) -> (Initial, Vec<f64>) {
    match rng.u8(0..3) {
        0 => {
            let state = rng.usize(0..n);
            (Initial::State(state), (0..n).map(|i| f64::from(u8::from(i == state))).collect())
        }
        1 => {
            let all: Vec<u32> = (0..n as u32).collect();
            (Initial::Uniform(all), vec![1.0 / n as f64; n])
        }
        _ => {
            let raw: Vec<f64> = (0..n).map(|_| rng.f64()).collect();
            let sum: f64 = raw.iter().sum();
            let p: Vec<f64> = raw.into_iter().map(|x| x / sum).collect();
            (Initial::Distribution(p.clone()), p)
        }
    }
}

/// Largest αt of a case, which limits its cost.
const MOST: f64 = 3e3;

/// Bounds and errors found in f64.
type Seen = std::sync::Mutex<Vec<(f64, f64)>>;

#[expect(clippy::neg_cmp_op_on_partial_ord, reason = "what is no number fails, too")]
fn case(kind: Kind, seed: u64, seen: &Seen) -> std::result::Result<(), String> {
    let mut rng = Rng::with_seed(seed ^ (kind as u64) << 32);
    let rates = rates(kind, &mut rng);
    let n = rates.len();
    let (initial, p0) = initial(n, &mut rng);
    let reference = Reference::new(&rates);
    let chain = made(&rates);
    let alpha = rates.iter().map(|row| row.iter().sum::<f64>()).fold(0.0, f64::max);
    let mut times = vec![0.0, f64::INFINITY];
    for _ in 0..2 {
        let t = between(&mut rng, 1e-3, MOST) / if alpha > 0.0 { alpha } else { 1.0 };
        if t.is_finite() {
            times.push(t);
        }
    }
    let epsilon = between(&mut rng, 1e-12, 1e-3);
    let single = rng.u8(0..3) == 0;
    let precision = if single { Precision::F32 } else { Precision::F64 };
    let method = match rng.u8(0..6) {
        0 | 1 => Method::Uniformization,
        2 | 3 => Method::Chebyshev { strict: false },
        _ => Method::Auto,
    };
    let options = Options::default().epsilon(epsilon).method(method);
    let [one, two] = &[1, 2].map(|count| cpu_lanes(count, precision));
    let what = format!("n = {n}, alpha = {alpha:e}, {precision}, {method:?}, epsilon {epsilon:e}");
    let problem = problem(&chain, &initial, &times);
    let (results, solution) = answer(one, &problem, &options).map_err(|e| format!("{what}: {e}"))?;
    let mut met = true;
    for ((&t, result), time) in times.iter().zip(&results).zip(&solution.times) {
        let (exact, doubt) = match t.is_infinite() {
            true => (reference.limit(&p0), (n as f64 + 40.0) * 1e-27),
            false => reference.at(&p0, t),
        };
        let error = error(result, &exact);
        let bound = time.bound.total();
        // The reference starts from the doubles nearest to thirds.
        let thirds = 0.5 * f64::EPSILON;
        let at = format!("{what}, t = {t:e}: error {error:e}, bound {bound:e}");
        if !(error <= bound + doubt + thirds) {
            return Err(format!("{at}, reference good to {doubt:e}: the bound is broken"));
        }
        if !(bound <= 2.0) || result.iter().any(|p| !(*p >= 0.0)) || time.contradiction.is_some() {
            return Err(format!("{at}: not a distribution with a bound, {:?}", time.contradiction));
        }
        if t.is_infinite() && n <= 16 && bound > 1e-11 {
            return Err(format!("{at}: a small chain's limit is eliminated"));
        }
        met &= bound <= epsilon;
        if !single && t > 0.0 && t.is_finite() && error > 1e-15 {
            seen.lock().expect("no case panicked").push((bound, error));
        }
    }
    if met != (solution.status == Status::Met) {
        return Err(format!("{what}: status {:?}, bounds met: {met}", solution.status));
    }
    // Format and number of lanes must not change a bit.
    let format = MatrixFormat::STORED[rng.usize(0..3)];
    let other = options.format(format);
    let split = options.split.halo_depth(Some([1, 4, 16, 64][rng.usize(0..4)]));
    for (machine, options) in [(two, &options.split(split)), (one, &other)] {
        match answer(machine, &problem, options) {
            Ok((again, _)) if again == results => {}
            Ok(_) => {
                let lanes = machine.lanes.len();
                return Err(format!("{what}: other bits with {:?} on {lanes} lanes", options.format));
            }
            // The format does not fit the chain.
            Err(Error::Invalid(..)) if options.format != MatrixFormat::Auto => {}
            Err(e) => return Err(format!("{what}: {e}")),
        }
    }
    Ok(())
}

#[test]
fn errors_of_adversarial_chains_are_within_their_bounds() {
    let seen = Seen::default();
    run_all(KINDS, 3, |kind, seed| case(kind, seed, &seen));
    let seen = seen.into_inner().expect("no case panicked");
    let loose = seen.iter().filter(|(bound, error)| bound / error > 1e4).count();
    assert!(100 * loose <= seen.len(), "{loose} of {} bounds are more than 10^4 times the error", seen.len());
}

/// Returns the rates of a chain that is given by its transitions (from, to, rate).
pub(super) fn small(n: usize, transitions: &[(usize, usize, f64)]) -> Rates {
    let mut rates = vec![vec![0.0; n]; n];
    transitions.iter().for_each(|&(i, j, rate)| rates[i][j] = rate);
    rates
}

/// Returns π(t) from state 0, and the solution.
fn from_first(
    rates: &Rates,
    precision: Precision,
    t: f64,
    options: &Options,
) -> Result<(Vec<f64>, Solution)> {
    let (chain, initial) = (made(rates), Initial::State(0));
    let (mut results, solution) =
        answer(&cpu_lanes(1, precision), &problem(&chain, &initial, &[t]), options)?;
    Ok((results.remove(0), solution))
}

pub(super) fn error(result: &[f64], exact: &[DoubleWord]) -> f64 {
    exact.iter().zip(result).map(|(&e, &r)| (e - r.into()).abs().to_f64()).sum()
}

#[test]
fn rates_at_either_end_of_the_range_are_solved_or_rejected() {
    let options = Options::default().epsilon(1e-6);
    // Exit rates that overflow.
    let over = small(3, &[(0, 1, 9e307), (0, 2, 9e307), (1, 0, 1.0), (2, 1, 3.0)]);
    expect_error(from_first(&over, Precision::F64, 1.0, &options), "1.7976931348623157e308");
    // Rates whose inverse overflows in one of the precisions, and αt from 0 to the steady state.
    for (rate, t) in [(1e-310, 1.0), (1e-310, 1e308), (5e-324, f64::INFINITY), (2e-39, 1e39), (1e300, 1e-300)]
    {
        let pair = small(2, &[(0, 1, rate), (1, 0, rate)]);
        for precision in [Precision::F64, Precision::F32] {
            let (result, solution) = from_first(&pair, precision, t, &options).expect("an answer");
            let (reference, start) = (Reference::new(&pair), [1.0, 0.0]);
            let exact = if t.is_infinite() { reference.limit(&start) } else { reference.at(&start, t).0 };
            let bound = solution.times[0].bound.total();
            let error = error(&result, &exact);
            assert!(error <= bound + 1e-30, "{rate:e} {t:e} {precision}: {result:?}, {bound:e}");
            assert!(bound <= if precision == Precision::F64 { 1e-6 } else { 1e-4 }, "{bound:e}");
        }
    }
}

#[test]
fn probabilities_do_not_underflow_with_the_unit_of_time() {
    // A ring in single precision; with rates near the smallest normal number, rate · probability is
    // subnormal.
    let n = 20_000u32;
    let every_other = (0..n).map(|i| f64::from(i % 2) * 2.0 / f64::from(n)).collect();
    let initial = Initial::Distribution(every_other);
    let options = Options::default().epsilon(1e-3);
    let bound = |rate: f64| {
        let ring: Vec<_> = (0..n).map(|i| (i, (i + 1) % n, rate)).collect();
        let (machine, ring) = (cpu_lanes(1, Precision::F32), chain(n as usize, &ring));
        let (results, solution) = run(&machine, &ring, &initial, &[40.0 / rate], &options);
        // Neighbours mix: all probabilities are equal up to e^{−80}.
        let bound = solution.times[0].bound.total();
        within(&results[0], &vec![1.0 / f64::from(n); n as usize], bound, rate);
        bound
    };
    // The unit of time does not matter, except for the rounding of 10^−38 itself.
    approx::assert_abs_diff_eq!(bound(1e-38) / bound(1.0), 1.0, epsilon = 0.1);
}

#[test]
fn small_limits_are_exact_however_stiff() {
    let mut options = Options::default().epsilon(1e-9);
    let slow = small(3, &[(0, 1, 1.0), (1, 0, 1.0), (1, 2, 1e-6), (2, 1, 1e-6)]);
    let (result, solution) = from_first(&slow, Precision::F64, f64::INFINITY, &options).expect("an answer");
    assert!(solution.status == Status::Met && solution.eliminated == 3, "{:?}", solution.bound);
    assert!(result.iter().all(|p| (p - 1.0 / 3.0).abs() <= solution.bound.total()), "{result:?}");
    // Probabilities further apart than the range of doubles: a valley of 10^−400 between two peaks.
    let n = 41;
    let rate = |i: usize| if i < 20 { 1e-20f64 } else { 1e20 };
    let mut valley = vec![vec![0.0; n]; n];
    for i in 1..n {
        (valley[i - 1][i], valley[i][i - 1]) = (rate(i - 1).min(1.0), (1.0 / rate(i - 1)).min(1.0));
    }
    options.epsilon = 1e-6;
    let (result, solution) = from_first(&valley, Precision::F64, f64::INFINITY, &options).expect("an answer");
    assert_eq!(solution.status, Status::Met, "{:?}", solution.bound);
    // 20 factors of 10^−20, then 20 of 10^20: both ends are equal, and hold all but 10^−20.
    assert!((result[0] - 0.5).abs() <= 1e-15 && (result[n - 1] - 0.5).abs() <= 1e-15, "{result:?}");
    // In single precision, too, the bound of the limit is at most 2.
    let (_, solution) = from_first(&slow, Precision::F32, f64::INFINITY, &options).expect("an answer");
    assert!(solution.bound.total() <= 2.0);
}

#[test]
fn a_converged_run_counts_the_rounding_of_its_steps() {
    let chain = small(3, &[(0, 1, 1.0), (1, 2, 1.0), (1, 0, 2.0), (2, 1, 2.0)]);
    let (result, solution) =
        from_first(&chain, Precision::F64, 1e9, &Options::default().epsilon(1e-6)).expect("an answer");
    let bound = solution.times[0].bound;
    within(&result, &[4.0 / 7.0, 2.0 / 7.0, 1.0 / 7.0], bound.total(), "t = 1e9");
    // The rounding is that of 64 steps, not 3·10⁹, and of the weights of a window of some 10⁶
    // terms.
    assert!(solution.terms < 1000 && bound.rounding < 1e-9, "{bound:?}");
}

#[test]
fn initial_probabilities_of_a_third_count_their_rounding() {
    let (chain, initial) = (chain(3, &[(0, 1, 1.0)]), Initial::Uniform(vec![0, 1, 2]));
    let (_, solution) = run(&cpu_lanes(1, Precision::F64), &chain, &initial, &[0.0], &Options::default());
    let bound = solution.times[0].bound.total();
    // 3 · |1/3 rounded − 1/3| = 2⁻⁵⁴.
    assert!((-54f64).exp2() <= bound && bound <= 2e-16, "{bound:e}");
}

#[test]
fn rewards_of_any_size_keep_their_digits_in_single_precision() {
    let (machine, initial) = (cpu_lanes(1, Precision::F32), Initial::State(0));
    let chain = chain(2, &[(0, 1, 1.0), (1, 0, 1.0)]);
    for size in [1e39, 1e300, 1e-45, 1e-300] {
        let rewards = [reward("r", 2, |i| if i == 0 { size } else { 0.0 })];
        let problem = problem(&chain, &initial, &[0.5]).rewards(&rewards).vectors(false);
        let options = Options::default().epsilon(1e-4);
        let (_, solution) = answer(&machine, &problem, &options).expect("an answer");
        let found = &solution.times[0].rewards[0];
        let exact = 0.5 * (1.0 + (-1f64).exp());
        approx::assert_abs_diff_eq!(found.instantaneous / size, exact, epsilon = solution.bound.total());
        let sum = 0.25 + 0.25 * (1.0 - (-1f64).exp());
        approx::assert_abs_diff_eq!(found.cumulative / size, sum, epsilon = 1e-4);
    }
    let rewards = [reward("r", 2, |_| 1e308)];
    let problem = problem(&chain, &initial, &[100.0]).rewards(&rewards).vectors(false);
    let found = answer(&machine, &problem, &Options::default());
    expect_error(found, "the accumulated reward 'r' at time 1e2");
}
