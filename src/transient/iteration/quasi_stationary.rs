//! Early termination: later iterates are extrapolated from x_m, with a proved l1 error bound.
//!
//! T is the set of the states that are not absorbing. Let x be the iterate after m steps, μ any
//! number in \[½, 1\], d ≥ ‖(xP)_T − μ x_T‖ in l1, and S_j = 1 + μ + … + μ^{j−1}. The extrapolation
//! of x P^j is z_j = μ^j x on T, and z_j = x + S_j (xP − x) on the absorbing states. Let N be the
//! Poisson number of steps at a time, J = (N − m)⁺, and g the rounding of a step. The error at the
//! time is at most (d + g) S_{E J}. With μ = 1 z_j is the steady state; if then no state is
//! absorbing, the error is also at most 2 H (d + g), where H bounds the expected number of steps to
//! one state of each closed class. `docs/certificate.md` has the proofs.

use super::Iteration;
use super::schedule::{ErrorBudget, PlannedTime};
use crate::Result;
use crate::kernel::{Number, Precision};
use crate::transient::numerics::poisson::{deviance, expected_excess};
use crate::transient::rounding::drift;

/// Least αt at which closed forms replace some 10⁵ or more weights after early termination.
const LONG: f64 = (1u64 << 30) as f64;
/// Share of ε above which the rounding of weights matters.
const FELT: f64 = 1.0 / 16.0;
/// −ln of a probability that is negligible against rounding, even after multiplication by 2⁶⁴.
const IMPOSSIBLE: f64 = 800.0;

/// The extrapolation z_j ≈ x_m P^j for j ≥ 0, with its error terms.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EarlyTermination {
    /// Number m of steps before the extrapolation starts.
    pub(crate) step: u64,
    /// Decay rate 1 − μ per step, exactly.
    pub(crate) decay: f64,
    /// Bound of the probability that x_m has on all transient states, or on one class of them.
    pub(crate) mass: f64,
    /// Bound of ‖ŷ − μ x_m‖ on non-absorbing states; ŷ: next iterate, its rounding not counted.
    pub(crate) defect: f64,
    /// Bound of the rounding errors in `defect`.
    pub(crate) rounding: f64,
    /// Upper bound of all sums 1 + μ + … + μ^j, from expected hitting times; infinite if unknown.
    pub(crate) most: f64,
}

/// Expectations over the number N of steps at a time, restricted to N > m, with J = N − m.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Shares {
    /// Expectations on N > m: of 1, of μ^J, and of S_J = 1 + μ + … + μ^{J−1}, for J = N − m.
    pub(crate) at: [f64; 3],
    /// Expected sums over the steps j = m + 1 … N − 1: of 1, of μ^{j−m}, of S_{j−m}.
    pub(crate) until: [f64; 3],
    /// Error of counting every step N > R as N = R + 1 (R: last term of the window).
    pub(crate) beyond: f64,
}

/// Returns two sums over classes for αt = λ: of errors from defects, and of those from rounding.
pub(crate) fn error_contribution(terminations: &[EarlyTermination], lambda: f64) -> [f64; 2] {
    terminations.iter().fold([0.0; 2], |[error, rounding], termination| {
        let amplification = termination.amplification(lambda);
        [error + termination.defect * amplification, rounding + termination.rounding * amplification]
    })
}

/// Bound of the l1 norm of the derivative of E x_N by λ, for a Poisson(λ) number N of steps.
///
/// The derivative is E x_N (P − I). For each early termination, x_m is the iterate on one class,
/// and z_j is its extrapolation by j steps. The iterate has an l1 error of at most `error`. The
/// bound is the smaller of two, since P lengthens nothing: ‖x_m (P − I)‖, and
/// E ‖z_J (P − I)‖ + 2 E ‖x_N − z_J‖ with J = N − m. On the transient states ‖z_j (P − I)‖ is at
/// most μ^j ((1 − μ) ‖x_m‖ + d) for the defect d; the absorbing states receive no more than these
/// lose. Fewer than m steps are as good as impossible.
pub(crate) fn speed(terminations: &[EarlyTermination], lambda: f64, error: f64) -> f64 {
    let of_class = |termination: &EarlyTermination| {
        let EarlyTermination { step, decay, mass, .. } = *termination;
        let defect = termination.defect + termination.rounding;
        // 1 − 10⁻⁹: also where λ is a little smaller.
        let exponent = decay * lambda * (1.0 - 1e-9) + step as f64 * (-decay).ln_1p();
        let faded = decay * mass * (-exponent).exp();
        (decay * mass).min(1.001 * faded + 2.0 * defect * termination.amplification(lambda)) + defect
    };
    2.0 * (terminations.iter().map(of_class).sum::<f64>() + error)
}

impl EarlyTermination {
    /// Builds the extrapolation after the iterate x_m before the newest one, ŷ.
    ///
    /// μ is the ratio of their masses on T. `step` bounds the rounding of a step.
    pub(crate) fn after_last<T: Number>(iteration: &Iteration<'_, T>, step: f64) -> Result<Self> {
        let u = T::PRECISION.unit_roundoff();
        let masses = iteration.non_absorbing_masses()?;
        let mass = masses.map_or(1.0, |[before, _]| 1.001 * before);
        let mu = match masses {
            // In this range 1 − μ is exact.
            Some([before, now]) if before > 0.0 => {
                let mu = (now / before).clamp(0.5, 1.0);
                if T::PRECISION == Precision::F32 { T::of(mu).wide() } else { mu }
            }
            // No transient mass is left.
            Some(_) => 0.5,
            // T is the whole state space.
            None => 1.0,
        };
        // The sum of n magnitudes in blocks of 256, then compensated, has a relative error below
        // this. A magnitude is that of a difference of two numbers, one of which is a product. If
        // the product is rounded separately, this costs 2u of both. Underflow costs far less than
        // another u.
        let slack = 1.0 + 12.0 * u + 1e-9;
        Ok(Self {
            step: iteration.steps() - 1,
            decay: 1.0 - mu,
            mass,
            defect: iteration.defect(mu)? * slack,
            rounding: step + 3.0 * u,
            most: f64::INFINITY,
        })
    }

    /// Computes the geometric sum S_j = 1 + μ + … + μ^{j−1}, also for real j.
    pub(crate) fn growth(&self, j: f64) -> f64 {
        match self.decay {
            0.0 => j,
            decay => -(j * (-decay).ln_1p()).exp_m1() / decay,
        }
    }

    /// Bounds E S_J for αt = `lambda`: the factor by which a defect is multiplied in the error.
    pub(super) fn amplification(&self, lambda: f64) -> f64 {
        self.growth(expected_excess(lambda, self.step)).min(self.most)
    }

    /// Returns true if termination here gives a time's result within ε, or as close as possible.
    ///
    /// Rounding may make ε unreachable. `step` bounds the rounding of a step.
    pub(crate) fn serves(&self, time: &PlannedTime, step: f64) -> bool {
        let amplification = self.amplification(time.due.lambda);
        let error = self.defect * amplification;
        let passed = step * time.due.lambda.min(self.step as f64);
        let rounding = passed + self.rounding * amplification;
        let budget = time.budget(std::slice::from_ref(self), passed).left;
        let out_of_reach = budget < rounding && budget < step * time.due.lambda;
        error <= time.steady_allowance.max(budget - rounding)
            || (out_of_reach && self.defect <= self.rounding)
    }

    /// Returns the [`Shares`] from Poisson weights; beyond a window's last term R they count N as R
    /// + 1.
    pub(crate) fn shares(&self, time: &PlannedTime) -> Shares {
        let Some(weights) = time.weights.as_ref().filter(|_| !time.is_averaged()) else {
            return self.mean_shares(time.due.lambda);
        };
        let (m, left, right) = (self.step, weights.left, time.right());
        let (beyond, _) = weights.above();
        let j = (right + 1 - m) as f64;
        let shrunk = 1.0 - self.decay * self.growth(j);
        let further = self.decay * expected_excess(time.due.lambda, right + 1);
        let rewards = !time.progress.rewards.is_empty();
        let mut shares = Shares { beyond: 2.0 * shrunk * beyond.min(further), ..Shares::default() };
        let first = left.max(m + 1);
        let weights = &weights.values[(first - left) as usize..];
        // The smallest terms are added first.
        let inside = weights.iter().enumerate().rev().map(|(i, &weight)| (first + i as u64, weight));
        for (n, weight) in std::iter::once((right + 1, beyond)).chain(inside) {
            let j = (n - m) as f64;
            let grown = self.growth(j);
            let add = |sums: &mut [f64; 3], values: [f64; 3]| {
                sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += weight * value);
            };
            add(&mut shares.at, [1.0, 1.0 - self.decay * grown, grown]);
            if rewards {
                let doubled = match self.decay {
                    0.0 => 0.5 * j * (j - 1.0),
                    decay => (j - grown) / decay,
                };
                add(&mut shares.until, [j - 1.0, grown - 1.0, doubled]);
            }
        }
        shares
    }

    /// Returns the [`Shares`] over all numbers N of steps, as E μ^N = e^{−(1 − μ) λ}.
    ///
    /// This includes N ≤ m, which must have negligible probability.
    fn mean_shares(&self, lambda: f64) -> Shares {
        let (m, decay) = (self.step as f64, self.decay);
        let ahead = lambda - m;
        let exponent = decay * lambda + m * (-decay).ln_1p();
        let grown = if decay == 0.0 { ahead } else { -(-exponent).exp_m1() / decay };
        let doubled = if decay == 0.0 { 0.5 * (ahead * ahead + m) } else { (ahead - grown) / decay };
        let until = [ahead - 1.0, grown - 1.0, doubled];
        Shares { at: [1.0, (-exponent).exp(), grown], until, beyond: 0.0 }
    }
}

impl PlannedTime {
    /// Returns true if closed forms over all N replace the weights after early termination.
    ///
    /// Not in discrete time, where N is known. Otherwise there are two conditions:
    /// * The weights would be many, or their rounding would matter.
    /// * N ≤ m has negligible probability, also after multiplication by μ^{N−m} ≥ 1.
    pub(crate) fn averages(&self, termination: &EarlyTermination) -> bool {
        let felt = self.summed.rounded - self.averaged.rounded >= FELT * self.epsilon;
        let backwards = -(termination.step as f64) * (-termination.decay).ln_1p();
        !self.window.is_of_step()
            && (felt || self.due.lambda >= LONG)
            && (termination.step as f64) < self.due.lambda
            && deviance(self.due.lambda, termination.step.max(1)) - backwards >= IMPOSSIBLE
    }

    /// Returns the error budget after early terminations whose iterate has an l1 error of at most
    /// `error`.
    pub(crate) fn budget(&self, terminations: &[EarlyTermination], error: f64) -> ErrorBudget {
        if !self.averages(&terminations[0]) {
            return self.summed;
        }
        let drift = drift(self.due.lambda, speed(terminations, self.due.lambda, error));
        let ErrorBudget { left, rounded } = self.averaged;
        ErrorBudget { left: left - drift, rounded: rounded + drift }
    }
}
