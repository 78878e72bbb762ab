//! Scaling and squaring in double-double arithmetic, for small chains at long times.
//!
//! Uniformization rounds in each of αt steps. For few states, e^{Qt} = (e^{Qh})^(2^s) with
//! h = t/2^s takes s matrix products. Their rounding is negligible in double-double arithmetic.
//!
//! A reward r is one more column of the generator, A = [[Q, r], [0, 0]]: e^{At} = [[S, G], [0, 1]]
//! with S = e^{Qt} and G = ∫ e^{Qs} r ds from 0 to t. See N. J. Higham, "The scaling and squaring
//! method for the matrix exponential revisited", SIAM Review 51(4), 2009, doi:10.1137/090768539.
//!
//! # Error
//! Norms are largest row sums of magnitudes, so ‖S‖ = 1, and ‖G‖ ≤ t for rewards of at most 1. Let
//! m be the number of rows and c = 8 (m + 2) 2⁻¹⁰⁶. A computed product differs from AB by at most
//! c |A||B| in each element. Relative to |A||B|, each of the m terms has a rounding error of
//! 7 · 2⁻¹⁰⁶, and each partial sum one of 3 · 2⁻¹⁰⁶.
//!
//! * Squaring with errors e of S and f of G: e' = e (2 + e) + c (1 + e)², and
//!   f' = 2f + e (h + f) + c (2 + e)(h + f), where ‖G‖ ≤ h.
//! * The Taylor polynomial of degree K = 12 of e^{Ah}, ‖Ah‖ ≤ 2⁻⁷, by Horner's rule: truncation is
//!   at most 2⁻¹²⁰ for S and 2⁻¹¹² h for G. The steps and the stored A round by at most
//!   (2K + 1) c and (4K + 1) c h.
//! * Underflow adds less than 10⁻²⁵⁰.
//!
//! # Discrete time
//! The same holds for A = [[P, r], [0, I]] and Aᵏ = [[Pᵏ, G], [0, I]] with G = Σ Pʲ r over j < k.
//! A is stored with an error of at most c. The vector v = π(0) Aᵏ is a product with those powers of
//! A that make up k. Each changes an error e_v by at most e + e_v e + c (1 + e_v)(1 + e), and that
//! of the rewards by f + e_v (h + f) + c (2 + e_v)(h + f), where h is at most k. Given
//! probabilities that were rounded to doubles have an error δ in their row, and no power of a
//! stochastic matrix amplifies errors. So v is wrong by at most δ times the expected number of
//! steps from such rows, and the rewards by k times that.

use super::chain::Reward;
use super::chain::scan::PROBABILITIES;
use super::chain::statistics::{MatrixStatistics, scale_of};
use super::problem::{Method, Options, Problem};
use super::session::RunSession;
use super::solution::{Bound, RewardValue, TimeResult};
use crate::Result;
use crate::kernel::{Number, Precision};
use crate::numerics::double_double::UNIT;
use crate::numerics::double_word::DoubleWord;

/// Largest number of states for which matrices are squared.
const MOST_STATES: usize = 32;

/// Maximum number of multiplications, below 0.2 seconds in a release build.
const MOST_WORK: usize = 1 << 26;

/// Degree of the Taylor polynomial.
const DEGREE: u32 = 12;

/// Square matrix in double-double arithmetic, stored by rows.
pub(super) struct DoubleDoubleMatrix {
    m: usize,
    pub(super) values: Vec<DoubleWord>,
}

impl DoubleDoubleMatrix {
    pub(super) fn zero(m: usize) -> Self {
        Self { m, values: vec![DoubleWord::from(0.0); m * m] }
    }

    fn add_identity(&mut self) {
        let one = DoubleWord::from(1.0);
        self.values.iter_mut().step_by(self.m + 1).for_each(|value| *value = *value + one);
    }

    /// Returns the Taylor polynomial of the exponential function, for a norm of at most 2⁻⁷.
    pub(super) fn taylor(&self) -> Self {
        let mut sum = Self::zero(self.m);
        sum.add_identity();
        for k in (1..=DEGREE).rev() {
            sum = self.product(&sum);
            let divisor = DoubleWord::from(f64::from(k));
            sum.values.iter_mut().for_each(|value| *value = *value / divisor);
            sum.add_identity();
        }
        sum
    }

    pub(super) fn product(&self, other: &Self) -> Self {
        let mut all = Self::zero(self.m);
        for (row, sums) in self.values.chunks_exact(self.m).zip(all.values.chunks_exact_mut(self.m)) {
            add_rows(sums, row, other);
        }
        all
    }
}

/// Adds the row vector `weights` · `matrix` to `sums`.
fn add_rows(sums: &mut [DoubleWord], weights: &[DoubleWord], matrix: &DoubleDoubleMatrix) {
    for (&weight, row) in weights.iter().zip(matrix.values.chunks_exact(matrix.m)) {
        if weight.hi != 0.0 {
            sums.iter_mut().zip(row).for_each(|(sum, &value)| *sum = *sum + weight * value);
        }
    }
}

/// Matrix exponential e^{At} of the generator, with its error bound.
struct Exponential {
    matrix: DoubleDoubleMatrix,
    /// Number s of squarings: e^{At} is the 2^s-th power of e^{At/2^s}.
    squarings: u32,
    /// Bound on the error of e^{Qt}, and on that of ∫ e^{Qs} r ds relative to t max |r|.
    error: f64,
}

/// Generator with all rewards, in units that bring α into [1, 2) and rewards to at most 1.
struct Generator<'a> {
    /// Scaled rates out of each state.
    rates: Vec<Vec<(u32, f64)>>,
    /// Rewards and the powers of two that scale them.
    rewards: Vec<(&'a [f64], f64)>,
    /// Largest row sum of |A|, rounded up.
    norm: f64,
}

/// Returns the error bounds of probabilities and of rewards after squaring a matrix of time `h`.
///
/// The arguments are the error of a product relative to its factors, and the bounds before.
fn squared(product: f64, error: f64, reward_error: f64, h: f64) -> (f64, f64) {
    let rewards = h + reward_error;
    (
        error * (2.0 + error) + product * (1.0 + error).powi(2),
        2.0 * reward_error + error * rewards + product * (2.0 + error) * rewards,
    )
}

impl Generator<'_> {
    /// Computes e^{At} for a time `t` in the unit of the scaled rates.
    fn exponential(&self, t: f64) -> Exponential {
        let (n, m) = (self.rates.len(), self.rates.len() + self.rewards.len());
        let squarings = (self.norm * t).log2().ceil().max(-7.0) as i32 + 7;
        let mut h = t * f64::from(-squarings).exp2();
        let scaled = |value: f64| DoubleWord::from(value) * DoubleWord::from(h);
        let mut step = DoubleDoubleMatrix::zero(m);
        for (state, (row, rates)) in step.values.chunks_exact_mut(m).zip(&self.rates).enumerate() {
            for &(to, rate) in rates {
                row[to as usize] = scaled(rate);
                row[state] = row[state] + -scaled(rate);
            }
            for (element, (reward, scale)) in row[n..].iter_mut().zip(&self.rewards) {
                *element = scaled(reward[state] * scale);
            }
        }
        let mut matrix = step.taylor();
        let product = 8.0 * (m as f64 + 2.0) * UNIT * UNIT;
        let degree = f64::from(DEGREE);
        let mut error = (-120f64).exp2() + (2.0 * degree + 1.0) * product;
        let mut reward_error = ((-112f64).exp2() + (4.0 * degree + 1.0) * product) * h;
        for _ in 0..squarings {
            matrix = matrix.product(&matrix);
            (error, reward_error) = squared(product, error, reward_error, h);
            h *= 2.0;
        }
        // The largest scaled reward is at least 1/2, unless the given one is subnormal. The factor
        // covers the rounding of the bound.
        let error = 1.001 * error.max(2.0 * reward_error / t) + 1e-250;
        Exponential { matrix, squarings: squarings as u32, error }
    }

    /// Returns the row vector `weights` · Aᵏ in discrete time, the squarings, and the error.
    ///
    /// One more reward counts the steps from states with rounded probabilities.
    fn power(&self, k: u64, weights: &[DoubleWord]) -> (Vec<DoubleWord>, u32, f64) {
        let (n, m) = (self.rates.len(), self.rates.len() + self.rewards.len() + 1);
        let mut matrix = DoubleDoubleMatrix::zero(m);
        matrix.add_identity();
        for (state, (row, rates)) in matrix.values.chunks_exact_mut(m).zip(&self.rates).enumerate() {
            for &(to, p) in rates {
                row[to as usize] = DoubleWord::from(p);
                row[state] = row[state] + -DoubleWord::from(p);
            }
            for (element, (reward, scale)) in row[n..].iter_mut().zip(&self.rewards) {
                *element = DoubleWord::from(reward[state] * scale);
            }
            // Probabilities such as 1/2 and 3/8 are exact. Rounded ones need more digits than f32
            // has.
            if rates.iter().any(|(_, p)| f64::from(*p as f32) != *p) {
                row[m - 1] = DoubleWord::from(1.0);
            }
        }
        let product = 8.0 * (m as f64 + 2.0) * UNIT * UNIT;
        let (mut error, mut reward_error, mut h) = (product, product, 1.0);
        let (mut own, mut own_reward) = (0.0, 0.0);
        let mut sums = weights.to_vec();
        sums.resize(m, DoubleWord::from(0.0));
        let squarings = k.ilog2();
        for bit in 0..=squarings {
            if k >> bit & 1 == 1 {
                let mut next = vec![DoubleWord::from(0.0); m];
                add_rows(&mut next, &sums, &matrix);
                sums = next;
                let most = k as f64 + reward_error;
                own_reward += reward_error + own * most + product * (2.0 + own) * most;
                own += error + own * error + product * (1.0 + own) * (1.0 + error);
            }
            if bit < squarings {
                matrix = matrix.product(&matrix);
                (error, reward_error) = squared(product, error, reward_error, h);
                h *= 2.0;
            }
        }
        let given = (1.01 * PROBABILITIES * (sums[m - 1].hi.max(0.0) + own_reward)).min(2.0);
        (sums, squarings, 1.001 * own.max(2.0 * own_reward / k as f64) + given + 1e-250)
    }
}

/// Computes missing results at finite times where rounding takes over ε/2, for small chains.
pub(super) fn run<T: Number>(
    problem: &Problem<'_>,
    options: &Options,
    statistics: &MatrixStatistics<T>,
    initial: &[f64],
    session: &mut RunSession<'_, '_>,
) -> Result<()> {
    let (n, m) = (initial.len(), initial.len() + problem.rewards.len());
    if n > MOST_STATES || T::PRECISION != Precision::F64 || options.method != Method::Auto {
        return Ok(());
    }
    let mut which = Vec::new();
    let times = 0..problem.times.len();
    for index in times.filter(|&i| !session.is_served(i) && problem.times[i].is_finite()) {
        let lambda = statistics.lambda(problem.times[index])?;
        if statistics.rounding(lambda, 0, u64::MAX) > 0.5 * options.epsilon {
            which.push((index, lambda));
        }
    }
    if which.is_empty() || which.len().saturating_mul(64 * m * m * m) > MOST_WORK {
        return Ok(());
    }
    let rates = (0..n).map(|state| {
        let mut row = Vec::new();
        problem.transitions.outgoing(state, &mut row);
        row.iter_mut().for_each(|(_, rate)| *rate *= statistics.scale);
        row
    });
    let scaled = |values: &[f64]| 0.5 * scale_of(values.iter().fold(0.0, |most, v| v.abs().max(most)));
    let rewards = problem.rewards.iter().map(|r| (&r.values[..], scaled(&r.values)));
    let (rates, rewards): (Vec<_>, Vec<_>) = (rates.collect(), rewards.collect());
    let exit = |row: &Vec<(u32, f64)>| row.iter().map(|(_, rate)| rate).sum::<f64>();
    let norm = 2.001 * rates.iter().map(exit).fold(0.0, f64::max) + rewards.len() as f64;
    let generator = Generator { rates, rewards, norm };
    let weights: Vec<DoubleWord> = initial.iter().map(|&p| p.into()).collect();
    for (index, alpha_t) in which {
        let time = problem.times[index];
        let (sums, squarings, error) = if statistics.discrete {
            generator.power(time as u64, &weights)
        } else {
            let Exponential { matrix, squarings, error } = generator.exponential(time / statistics.scale);
            let mut sums = vec![DoubleWord::from(0.0); m];
            add_rows(&mut sums, &weights, &matrix);
            (sums, squarings, error)
        };
        // No exact probability is negative.
        let probabilities: Vec<f64> = sums[..n].iter().map(|sum| sum.hi.max(0.0)).collect();
        let value = |(k, reward): (usize, &Reward)| {
            let scale = generator.rewards[k].1;
            let add = |sum, (&value, &p): (&f64, &DoubleWord)| sum + DoubleWord::from(value * scale) * p;
            let sum = reward.values.iter().zip(&sums).fold(DoubleWord::from(0.0), add);
            RewardValue {
                name: reward.name.clone(),
                instantaneous: sum.hi / scale,
                cumulative: sums[n + k].hi * statistics.scale / scale,
            }
        };
        let result = TimeResult {
            time,
            alpha_t,
            squarings: Some(squarings),
            bound: Bound { rounding: error + 2.0 * UNIT + problem.initial.rounding(), ..Bound::default() },
            rewards: problem.rewards.iter().enumerate().map(value).collect(),
            ..TimeResult::default()
        };
        if problem.vectors {
            session.result(index, &probabilities)?;
        }
        session.serve(index, result);
    }
    Ok(())
}
