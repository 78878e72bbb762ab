//! The stop of a sweep: a curve in the place of all later iterates, with a bound on what it errs by.
//!
//! A state that is never left is absorbing; T is the set of all others. Let x be the iterate after m steps, μ any number in
//! \[½, 1\], d ≥ ‖(xP)_T − μ x_T‖ in l1, and S_j = 1 + μ + … + μ^{j−1}. In the place of x P^j stands
//!
//! z_j = μ^j x on T, z_j = x + S_j (xP − x) on the absorbing states,
//!
//! which errs by at most d S_j: one step takes z_j to z_{j+1} but for μ^j ((xP)_T − μ x_T), and P lengthens nothing. At
//! time t a number N of steps has been taken that is Poisson with mean αt, so the error is at most d E S_J, J = (N − m)⁺,
//! and that at most d S_{E J}, since S is concave. What is computed is ŷ = xP + r with ‖r‖ ≤ g, the rounding of a step;
//! both d and the flow xP − x are taken from it, which makes g S_{E J} more, and no more however long the time is. μ = 1 is
//! the steady state. Where nothing is absorbing 2 H d with H from [`hitting_time`](crate::transient::backward::hitting_time) bounds ‖x P^j − x‖, too.
//! `docs/certificate.md` has the proofs.

use super::schedule::{ErrorBudget, Planned};
use crate::kernel::{Number, Precision};
use crate::transient::numerics::poisson::{deviance, expected_excess};

/// The αt from which on no weights are held where a stop does without: they would be some 10⁵ or more.
const LONG: f64 = (1u64 << 30) as f64;
/// The share of ε above which the rounding of weights counts.
const FELT: f64 = 1.0 / 16.0;
/// −ln of a probability that vanishes beside what doubles round by, also with a factor of 2⁶⁴.
const IMPOSSIBLE: f64 = 800.0;

/// A curve in the place of the iterates behind x_m.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EarlyTermination {
    /// m.
    pub(crate) step: u64,
    /// 1 − μ, exactly.
    pub(crate) decay: f64,
    /// Bound of ‖ŷ − μ x_m‖ on the states that can be left, what its own computation rounds by aside.
    pub(crate) defect: f64,
    /// Bound of what rounding adds to that.
    pub(crate) rounding: f64,
    /// Bound of S_j for every j, from elsewhere.
    pub(crate) most: f64,
}

/// Expectations over the steps N at a time, where these are more than m: J = N − m, or 0 outside.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Shares {
    /// P(N > m), E μ^J, E S_J.
    pub(crate) at: [f64; 3],
    /// Sums over the steps m + 1 … N − 1: of 1, of μ^{j−m}, of S_{j−m}.
    pub(crate) until: [f64; 3],
    /// Bound of what it costs that steps beyond the last weight count as the next.
    pub(crate) beyond: f64,
}

/// What curves, each with its stop, err by at a time together, and what rounding adds to that.
pub(crate) fn error_contribution(terminations: &[EarlyTermination], lambda: f64) -> [f64; 2] {
    terminations.iter().fold([0.0; 2], |[error, rounding], termination| {
        let amplification = termination.amplification(lambda);
        [error + termination.defect * amplification, rounding + termination.rounding * amplification]
    })
}

impl EarlyTermination {
    /// The stop behind x_m, from the probability in T of x_m and of ŷ, or where T is everything, and a measurement of ‖ŷ − μ x_m‖.
    pub(crate) fn new<T: Number, E>(
        step: u64,
        masses: Option<[f64; 2]>,
        rounding: f64,
        defect: impl FnOnce(f64) -> Result<f64, E>,
    ) -> Result<Self, E> {
        let u = T::PRECISION.unit_roundoff();
        let mu = match masses {
            // In this range 1 − μ is exact.
            Some([before, now]) if before > 0.0 => {
                let mu = (now / before).clamp(0.5, 1.0);
                if T::PRECISION == Precision::F32 { T::of(mu).wide() } else { mu }
            }
            // There is nothing left to shrink.
            Some(_) => 0.5,
            None => 1.0,
        };
        // The sum of n magnitudes in blocks of 256 and then compensated has a relative error below this. A magnitude is
        // that of a difference of two numbers of which one is a product: 2u of both where that is rounded apart, and what
        // underflows is far below a third.
        let slack = 1.0 + 12.0 * u + 1e-9;
        let defect = defect(mu)? * slack;
        let rounding = rounding + 3.0 * u;
        Ok(Self { step, decay: 1.0 - mu, defect, rounding, most: f64::INFINITY })
    }

    /// S_j, also between whole numbers.
    pub(crate) fn growth(&self, j: f64) -> f64 {
        match self.decay {
            0.0 => j,
            decay => -(j * (-decay).ln_1p()).exp_m1() / decay,
        }
    }

    /// Bound of E S_J at a time.
    pub(super) fn amplification(&self, lambda: f64) -> f64 {
        self.growth(expected_excess(lambda, self.step)).min(self.most)
    }

    /// True if stopping here leaves a time within ε, or as near to it as rounding lets it come. `step` bounds the
    /// rounding of a step.
    pub(crate) fn serves(&self, time: &Planned, step: f64) -> bool {
        let amplification = self.amplification(time.lambda);
        let error = self.defect * amplification;
        let rounding = step * time.lambda.min(self.step as f64) + self.rounding * amplification;
        let budget = time.budget(self).left;
        let out_of_reach = budget < rounding && budget < step * time.lambda;
        error <= time.steady_allowance.max(budget - rounding)
            || (out_of_reach && self.defect <= self.rounding)
    }

    /// The shares at a time, of the steps that its weights are about; beyond the last of them N counts as the next.
    pub(crate) fn shares(&self, time: &Planned) -> Shares {
        let Some(weights) = time.weights.as_ref().filter(|_| !time.is_averaged) else {
            return self.mean_shares(time.lambda);
        };
        let (m, left, right) = (self.step, weights.left, time.right());
        let (beyond, _) = weights.above();
        let j = (right + 1 - m) as f64;
        let shrunk = 1.0 - self.decay * self.growth(j);
        let further = self.decay * expected_excess(time.lambda, right + 1);
        let rewards = !time.rewards.is_empty();
        let mut shares = Shares { beyond: 2.0 * shrunk * beyond.min(further), ..Shares::default() };
        let first = left.max(m + 1);
        let weights = &weights.values[(first - left) as usize..];
        // The smallest first.
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

    /// The shares over all numbers of steps, those before the stop included, which are as good as impossible: in closed form, as
    /// E μ^N = e^{−(1 − μ) λ}.
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

impl Planned {
    /// True if a curve behind a stop is averaged over all steps without weights: these would be many, or round by much, and
    /// fewer steps than those before the stop are as good as impossible, also where the curve is followed backwards.
    pub(crate) fn averages(&self, termination: &EarlyTermination) -> bool {
        let felt = self.summed.rounded - self.averaged.rounded >= FELT * self.epsilon;
        let backwards = -(termination.step as f64) * (-termination.decay).ln_1p();
        (felt || self.lambda >= LONG)
            && (termination.step as f64) < self.lambda
            && deviance(self.lambda, termination.step.max(1)) - backwards >= IMPOSSIBLE
    }

    /// What is left of ε behind a stop.
    pub(crate) fn budget(&self, termination: &EarlyTermination) -> ErrorBudget {
        if self.averages(termination) { self.averaged } else { self.summed }
    }
}
