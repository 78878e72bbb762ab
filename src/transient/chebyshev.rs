//! Chebyshev method: Chebyshev polynomials of P instead of powers, for nearly self-adjoint P.
//!
//! Let a = αt with the [coefficients](super::numerics::chebyshev_coefficients) c_k and E_k = E (|S|
//! − k)⁺ of that module. Then π(t) = Σ c_k v_k where v_0 = π(0), v_1 = v_0 P and v_{k+1} = 2 v_k P
//! − v_{k−1}. With the rounding error δ_k of the computed v_{k+1}, the error of the sum up to K is
//! at most E_{K+1} ‖v_K‖ + E_K ‖v_{K+1}‖ + Σ_{k ≤ K} E_k ‖δ_k‖ for every chain:
//! `docs/certificate.md` has the proof. Norms are measured at every step. They stay near 1 if P is
//! nearly self-adjoint in some inner product. They grow exponentially if P has eigenvalues far from
//! the real axis. The expansion is abandoned if the last sum exceeds its share of ε.

use std::ops::Range;

use super::chain::statistics::MatrixStatistics;
use super::context::{Context, DEFAULT_VECTORS, DueTime, scaled, unscaled, vector_capacity};
use super::iteration::{Accumulators, IterateSum, Iteration, Which};
use super::numerics::chebyshev_coefficients::{RANGE, Series, products};
use super::session::RunSession;
use super::solution::{Bound, Expanded, Expansion, TimeResult};
use crate::kernel::Number;
use crate::{Invalid, Result};

/// Maximum number of steps between two checks of the norms.
const MOST_STEPS: u64 = 128;
/// Minimum number of steps between two checks of the norms, at the start of a recurrence.
const FEWEST_STEPS: u64 = 8;

/// True if the Chebyshev method is tried for this αt.
///
/// A uniformization run must first have taken as many steps as the expansion needs, without early
/// termination. If the expansion is abandoned at its end, the run takes at most a twentieth longer.
pub(super) fn is_worth(lambda: f64, epsilon: f64) -> bool {
    saves(lambda, epsilon, 32.0)
}

/// True if an expansion needs at most 1/`factor` of the αt steps of uniformization.
pub(super) fn saves(lambda: f64, epsilon: f64, factor: f64) -> bool {
    RANGE.contains(&lambda) && factor * products(lambda, epsilon) as f64 <= lambda
}

/// Requested time with an expansion that is still being summed.
struct OpenExpansion<T> {
    due: DueTime,
    target: IterateSum<T>,
    certificate: CertifiedSeries,
    /// Sums for each reward: its value at the time, and α times its value accumulated until then.
    rewards: Vec<(f64, f64)>,
}

/// Series of an expansion, and the error bound of its partial sums for initial vectors of norm ≤ 1.
pub(super) struct CertifiedSeries {
    pub(super) series: Series,
    /// Error bound to reach: ε, or the smallest bound that rounding permits.
    goal: f64,
    /// Part of the error bound that does not depend on the vectors v_k of the recurrence.
    fixed: f64,
    /// Part of the error bound from the rounding of the steps so far.
    steps: f64,
    /// Step at which the bound is checked next.
    pub(super) next: u64,
}

/// State of an expansion after a check.
pub(super) enum ExpansionState {
    Open,
    /// The sum is within its goal.
    Met(Bound),
    /// Norms or rounding exceed the goal.
    Hopeless,
}

/// Upper bounds of the norms of the recurrence's vectors v_0, v_1, …
pub(super) struct RecurrenceNorms(pub(super) Vec<f64>);

impl RecurrenceNorms {
    /// Adds a measured norm, raised by the rounding of its blockwise sum.
    fn push<T: Number>(&mut self, measured: f64) {
        self.0.push(measured * (1.0 + 12.0 * T::PRECISION.unit_roundoff() + 1e-8));
    }

    /// Returns the bounds for the last vector but one and for the last vector.
    fn last(&self) -> [f64; 2] {
        let n = self.0.len();
        [self.0[n - 2], self.0[n - 1]]
    }

    fn largest(&self) -> f64 {
        self.0.iter().copied().fold(0.0, f64::max)
    }

    /// Bounds the rounding error δ_k of the step that computes v_{k+1} from v_k.
    fn defect<T: Number>(&self, k: usize, statistics: &MatrixStatistics<T>) -> f64 {
        let step = statistics.step * self.0[k].max(1.0);
        match k {
            0 => step,
            // 2 v P − v is exactly twice the result of a step, and one subtraction.
            _ => 2.0 * step + T::PRECISION.unit_roundoff() * self.0[k + 1],
        }
    }
}

impl CertifiedSeries {
    /// Starts an expansion with the error bound `fixed`; `step` bounds the rounding of a step.
    pub(super) fn new(lambda: f64, epsilon: f64, fixed: f64, step: f64) -> Self {
        let goal = epsilon.max(2.0 * (step * lambda + fixed));
        let mut new = Self { series: Series::new(lambda), goal, fixed, steps: 0.0, next: 0 };
        new.next = new.last_term(0, 1.0) + 1;
        new
    }

    /// Predicts the first term from `k` on with an error bound below `goal`, for norms ≤ `norm`.
    fn last_term(&self, k: u64, norm: f64) -> u64 {
        let budget = self.goal - self.fixed - self.steps;
        let excess = &self.series.excess[k as usize..];
        let place = excess.partition_point(|&excess| 2.0 * excess * norm > 0.9 * budget);
        self.within(k + place as u64)
    }

    /// Limits `k`, so that term k and the next term, which the check needs, have coefficients.
    fn within(&self, k: u64) -> u64 {
        k.min(self.series.coefficients.len() as u64 - 2)
    }

    /// Adds the rounding of some steps, and checks the sum of the terms before their end.
    ///
    /// The vector after the last step has the last of `norms`.
    pub(super) fn check<T: Number>(
        &mut self,
        steps: Range<u64>,
        norms: &RecurrenceNorms,
        statistics: &MatrixStatistics<T>,
    ) -> ExpansionState {
        let to = steps.end;
        for k in steps.start as usize..to as usize {
            self.steps += norms.defect(k, statistics) * self.series.excess[k];
        }
        let out_of_terms = to as usize + 1 >= self.series.coefficients.len();
        // NaN norms leave no budget either.
        let budget = self.goal - self.fixed - self.steps;
        let hopeless = budget.is_nan() || budget < 0.0 || out_of_terms;
        if to < self.next && !hopeless {
            return ExpansionState::Open;
        }
        let bound = self.bound::<T>(to - 1, norms);
        if bound.total() <= self.goal {
            return ExpansionState::Met(bound);
        }
        if hopeless {
            return ExpansionState::Hopeless;
        }
        let [own, next] = norms.last();
        self.next = self.within(self.last_term(to, own.max(next)).max(to + to / 64)) + 1;
        ExpansionState::Open
    }

    /// Returns the larger of two weighted means of the norms up to term `k`.
    ///
    /// The weights are the coefficients c_k, or their integrals divided by αt.
    fn weighted_norm(&self, k: u64, norms: &RecurrenceNorms, lambda: f64) -> f64 {
        let terms = norms.0.iter().take(k as usize + 1).enumerate();
        let (sum, integral) = terms.fold((0.0, 0.0), |(sum, integral), (k, norm)| {
            (sum + self.series.coefficients[k] * norm, integral + self.series.integral(k) * norm)
        });
        // These are sums of positive terms, so their relative error is small.
        f64::max(sum, integral / lambda) * (1.0 + 1e-8)
    }

    /// Returns the error bound after term `k`; v_{k+1} is the last of `norms`.
    fn bound<T: Number>(&self, k: u64, norms: &RecurrenceNorms) -> Bound {
        let u = T::PRECISION.unit_roundoff();
        let [own, next] = norms.last();
        let excess = &self.series.excess[k as usize..];
        let truncation = excess[1] * own + excess[0] * next;
        let terms = || self.series.coefficients.iter().zip(&norms.0).take(k as usize + 1).map(|(c, n)| c * n);
        let all: f64 = terms().sum();
        // Each partial sum is below the sum of its terms. It is also below the result plus the sum
        // of the remaining terms.
        let (mut before, mut partial) = (0.0, 0.0);
        for term in terms() {
            before += term;
            partial += before.min(1.0 + self.goal + (all - before).max(0.0) + 1e-9 * all);
        }
        // Three roundings per term: the stored coefficient, its product, and the addition.
        let sum = u * (3.0 * all + 1.01 * partial) + self.series.doubt * norms.largest();
        Bound { truncation, rounding: 1.001 * (self.steps + sum) + self.fixed, ..Bound::default() }
    }
}

impl<T: Number> OpenExpansion<T> {
    fn new(context: &Context<'_, T>, iteration: &Iteration<'_, T>, due: DueTime) -> Result<Self> {
        let (statistics, problem) = (&context.statistics, context.problem);
        let fixed = statistics.rounding(due.lambda, 0, 0) + context.initial_error;
        let certificate = CertifiedSeries::new(due.lambda, context.options.epsilon, fixed, statistics.step);
        let coefficients = &certificate.series.coefficients;
        let acc = if problem.vectors { iteration.accumulators()? } else { Accumulators::none() };
        let mut target = iteration.target(coefficients.len(), acc)?;
        iteration.weigh(&mut target, 0, coefficients, 1.0)?;
        let rewards = vec![(0.0, 0.0); problem.rewards.len()];
        Ok(Self { due, target, certificate, rewards })
    }

    /// Adds the rewards of the steps from `from` on to the sums; `width` numbers a step.
    fn account(&mut self, from: u64, rows: &[f64], width: usize) {
        let series = &self.certificate.series;
        for (k, row) in (from as usize..).zip(rows.chunks(width)) {
            let (coefficient, until) = (series.coefficients[k], series.integral(k));
            for ((instant, cumulative), reward) in self.rewards.iter_mut().zip(row) {
                *instant += coefficient * reward;
                *cumulative += until * reward;
            }
        }
    }
}

/// Computes results at finite times within ε, or within the bound that rounding permits.
///
/// Times that the method abandons stay without a result. With `strict`, they are an error.
pub(super) fn run<T: Number>(
    context: &Context<'_, T>,
    strict: bool,
    times: &[DueTime],
    session: &mut RunSession<'_, '_>,
) -> Result<Expansion> {
    // Smaller values gain nothing, and larger ones exceed the bound on rounding.
    let mut times: Vec<DueTime> = times.iter().filter(|due| RANGE.contains(&due.lambda)).copied().collect();
    times.sort_by(|a, b| a.lambda.total_cmp(&b.lambda));
    let mut expansion = Expansion::new(Expanded::Chebyshev, 1.0, 0);
    for some in times.chunks(vector_capacity(context, DEFAULT_VECTORS).max(1)) {
        expand(context, some, session, &mut expansion)?;
    }
    match times.iter().find(|due| !session.is_served(due.index)) {
        Some(due) if strict => Invalid::NotConverged.fail(format!(
            "the Chebyshev method gives up time {:e} after {} multiplications: the norms of its \
             vectors have grown to {:.1e}, as the chain is far from reversible; use `method` auto, \
             or leave `strict` out",
            due.time, expansion.terms, expansion.norm
        )),
        _ => Ok(expansion),
    }
}

/// Runs one recurrence for several times, which ascend.
fn expand<T: Number>(
    context: &Context<'_, T>,
    some: &[DueTime],
    session: &mut RunSession<'_, '_>,
    expansion: &mut Expansion,
) -> Result<()> {
    let (machine, statistics) = (context.machine, &context.statistics);
    let rewards = scaled(context);
    let all = some.last().map_or(0, |due| products(due.lambda, context.options.epsilon));
    let progress = (expansion.terms, expansion.terms + all);
    let mut iteration =
        Iteration::new(&machine.lanes, &context.parts, statistics.inverse_alpha, &rewards, progress, true)?;
    iteration.start(&context.initial, context.beginning())?;
    let open = some.iter().map(|&due| OpenExpansion::new(context, &iteration, due));
    let mut open: Vec<OpenExpansion<T>> = open.collect::<Result<_>>()?;
    let (mut norms, mut host) = (RecurrenceNorms(Vec::new()), Vec::new());
    while !open.is_empty() {
        let k = iteration.steps();
        let leg = k.clamp(FEWEST_STEPS, MOST_STEPS).min(iteration.most_steps());
        let next = open.iter().map(|o| o.certificate.next).min().unwrap_or(0);
        // The first step is no recurrence: v_1 = v_0 P.
        let to = if k == 0 { 1 } else { next.clamp(k + 1, k + leg) };
        let targets: Vec<&IterateSum<T>> = open.iter().map(|o| &o.target).collect();
        let rows = iteration.advance(to, &targets, session)?;
        iteration.recurrence = true;
        norms.0.truncate(k as usize);
        let newest = iteration.rewards_of(Which::Newest)?;
        for row in rows.chunks(newest.len()).chain([&newest[..]]) {
            norms.push::<T>(row.last().copied().unwrap_or(f64::NAN));
        }
        let mut still = Vec::new();
        for mut o in open {
            o.account(k, &rows, newest.len());
            match o.certificate.check(k..to, &norms, statistics) {
                ExpansionState::Open => still.push(o),
                ExpansionState::Hopeless => expansion.given_up += 1,
                ExpansionState::Met(bound) => {
                    let norm = o.certificate.weighted_norm(to - 1, &norms, o.due.lambda);
                    expansion.weighted_norm = expansion.weighted_norm.max(norm);
                    if context.problem.vectors {
                        session.result(o.due.index, iteration.download(&o.target.acc, &mut host)?)?;
                    }
                    let rewards = unscaled(context, &o.rewards, &rewards);
                    let result = TimeResult { window: (0, to - 1), bound, rewards, ..o.due.result() };
                    session.serve(o.due.index, result);
                }
            }
        }
        open = still;
    }
    expansion.terms += iteration.steps();
    expansion.norm = expansion.norm.max(norms.largest());
    Ok(())
}
