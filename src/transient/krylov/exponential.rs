//! Restarted Krylov method: each approximation is used for as long as its error bound allows.
//!
//! Let (P − I) V = V H + w eᵀ + F, time in units of 1/α, and let û approximate the solution of û' =
//! H û from e₁. Then y = V û starts at the first of the vectors. `docs/certificate.md` bounds its
//! error for any vectors and any H, by integrals that come [from
//! polynomials](super::projected_ode). After the first product of each space, [early
//! termination](crate::transient::iteration::quasi_stationary) is checked for all remaining times.

use super::arnoldi::{Basis, Recurrence};
use super::projected_ode::Projected;
use crate::kernel::Number;
use crate::numerics::double_double::CompensatedSum;
use crate::transient::context::{Context, DueTime, scaled, unscaled, vector_capacity};
use crate::transient::cost_model::{Costs, MOST_VECTORS};
use crate::transient::iteration::extrapolation::Extrapolation;
use crate::transient::iteration::quasi_stationary::{EarlyTermination, Shares};
use crate::transient::iteration::{Accumulators, Iteration, Which};
use crate::transient::session::RunSession;
use crate::transient::solution::{Bound, Expanded, Expansion, Stopped, TimeResult};
use crate::{Invalid, Result};

/// Minimum number of vectors of a Krylov space.
const FEWEST: usize = 8;
/// Largest share of the bound used for truncation of the Krylov spaces.
///
/// A small share costs few products. The convergence check includes this error, so early
/// termination comes sooner.
const TIGHT: f64 = 0.1;
/// Times with fewer steps αt are left to uniformization.
const SHORT: f64 = 4.0 * MOST_VECTORS as f64;

/// A requested time that is not reached yet.
#[derive(Clone, Copy)]
struct OpenTime {
    due: DueTime,
    /// Requested bound: ε, or more if rounding makes ε unreachable.
    goal: f64,
    /// Part of the error bound at the start: initial vector, and the rounding of λ = αt.
    fixed: f64,
    /// Bound of the l1 rounding error of a uniformization run to this time.
    rounds: f64,
}

impl OpenTime {
    fn new<T: Number>(context: &Context<'_, T>, due: DueTime) -> Self {
        let fixed = context.statistics.rounding(due.lambda, 0, 0) + context.initial_error;
        let rounds = context.statistics.step * due.lambda + fixed;
        Self { due, goal: context.options.epsilon, fixed, rounds }
    }

    fn error_budget(&self) -> f64 {
        self.goal - self.fixed
    }

    /// Returns true if early termination at `now`, with the error `spent` so far, meets the goal.
    fn serves(&self, termination: &EarlyTermination, now: ExactTime, spent: f64) -> bool {
        let grown = shares(termination, now.until(self.due.lambda)).at[2];
        spent + (termination.defect + termination.rounding) * grown + 64.0 * f64::EPSILON
            <= 0.99 * self.error_budget()
    }

    /// Returns the allowed bound: ε, or more if rounding makes ε unreachable for uniformization.
    fn loosened(&self) -> f64 {
        if self.rounds > self.goal { 4.0 * self.rounds } else { self.goal }
    }
}

/// Time αt as an unevaluated sum of two doubles.
#[derive(Debug, Clone, Copy, Default)]
struct ExactTime(CompensatedSum);

impl ExactTime {
    /// Returns the time, rounded to a double.
    fn now(self) -> f64 {
        self.0.sum
    }

    fn advance(&mut self, by: f64) {
        self.0.add(by);
        let CompensatedSum { sum, lost } = self.0;
        self.0 = CompensatedSum { sum: sum + lost, lost: lost - ((sum + lost) - sum) };
    }

    /// Returns the duration from this time to `time`, with an error of at most four ulps.
    fn until(self, time: f64) -> f64 {
        (time - self.0.sum) - self.0.lost
    }
}

/// Allowed cost of the Krylov method, in matrix–vector products.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    /// Matrix–vector products that are allowed in any case.
    products: f64,
    /// Limit of all predicted products, if each Krylov space covers as much time as recent ones.
    ///
    /// More products are allowed if the prediction is lower and rounding permits.
    pays: f64,
    /// Limit of all predicted products, if Krylov spaces cover longer and longer intervals.
    ///
    /// It is lower than `pays`, because a prediction from growing intervals may be too optimistic.
    little: f64,
}

/// Returns the number of products that a run's first attempt may take: four Krylov spaces.
///
/// Each later attempt may take four times as many as the one before. The remaining steps of the run
/// may limit any attempt to half.
pub(crate) fn first_try(costs: &Costs) -> u64 {
    4 * costs.vectors() as u64
}

/// Divisor that limits one attempt to a share of the remaining steps of the run.
///
/// All attempts together take less than a thirtieth of the run.
const TRY_SHARE: f64 = 64.0;
/// Divisor of the remaining steps that yields [`Budget::little`].
const LITTLE_SHARE: f64 = 20.0;

/// Returns true if a uniformization run of `lambda` steps is long enough for an attempt.
pub(crate) fn is_worth(costs: &Costs, lambda: f64) -> bool {
    0.5 * first_try(costs) as f64 * costs.krylov() * TRY_SHARE <= lambda
}

impl Budget {
    /// Returns the budget of an attempt with `products`, or at least half as many.
    ///
    /// The run has done `done` steps and has `ahead` steps left. `None` if these do not allow an
    /// attempt.
    pub(crate) fn of(costs: &Costs, products: u64, done: u64, ahead: f64) -> Option<Self> {
        let (cost, products) = (costs.krylov(), products as f64);
        let allowed = products.min(ahead / TRY_SHARE / cost);
        let tried = 2.0 * allowed >= products && allowed * cost <= done as f64;
        tried.then_some(Self {
            products: allowed,
            pays: 0.5 * ahead / cost,
            little: ahead / LITTLE_SHARE / cost,
        })
    }
}

/// Computes results for finite times within ε, or as close to ε as rounding allows.
///
/// The other times stay without a result. With `strict`, a time that is given up is an error.
pub(crate) fn run<T: Number>(
    context: &Context<'_, T>,
    strict: bool,
    budget: Option<Budget>,
    times: &[DueTime],
    session: &mut RunSession<'_, '_>,
) -> Result<Expansion> {
    let long = times.iter().filter(|due| due.lambda > SHORT);
    let mut open: Vec<OpenTime> = long.map(|&due| OpenTime::new(context, due)).collect();
    open.sort_by(|a, b| a.due.lambda.total_cmp(&b.due.lambda));
    let asked = open.len();
    let expansion = Expansion::new(Expanded::Krylov, 0.0, asked);
    if open.is_empty() {
        return Ok(expansion);
    }
    let mut run = KrylovRun::new(context, open, expansion)?;
    match run.solve(budget, session)? {
        Some(why) if strict => Invalid::NotConverged.fail(format!(
            "the Krylov method gave up {} of {asked} times: {why}; leave `strict` out for a \
             uniformization run to serve them, or use `method` auto",
            run.expansion.given_up
        )),
        _ => Ok(run.expansion),
    }
}

/// Prediction of the remaining cost, from the time intervals covered by the spaces so far.
struct Ahead {
    /// Number of Krylov spaces if each covers as much time as those of the later half.
    steady: f64,
    /// Number of Krylov spaces if intervals keep growing as so far; less than a factor of 2 is
    /// ignored.
    growing: f64,
    /// Predicted rounding error at the last time.
    rounding: f64,
}

impl Ahead {
    /// Predicts the cost up to the time `last`.
    ///
    /// `reached` has, after each space, the time reached and the accumulated rounding error.
    fn new(reached: &[(f64, f64)], last: f64) -> Self {
        let spaces = reached.len();
        let behind = |spaces: usize| spaces.checked_sub(1).map_or((0.0, 0.0), |place| reached[place]);
        let half = (spaces / 2).max(1);
        let [(begin, _), (middle, rounded), (now, rounding)] =
            [spaces.saturating_sub(2 * half), spaces.saturating_sub(half), spaces].map(behind);
        let later = now - middle;
        let (blocks, growth) = ((last - now) / later, later / (middle - begin));
        let growing = match growth >= 2.0 && growth.is_finite() {
            // Number of terms of a geometric series with this sum.
            true => (blocks * (growth - 1.0) / growth).ln_1p() / growth.ln(),
            false => blocks,
        };
        Self {
            steady: half as f64 * blocks,
            growing: half as f64 * growing,
            rounding: rounding + blocks * (rounding - rounded),
        }
    }
}

struct KrylovRun<'a, T> {
    context: &'a Context<'a, T>,
    expansion: Expansion,
    basis: Basis<'a, T>,
    rewards: Vec<(&'a [f64], f64)>,
    acc: Accumulators<T>,
    /// Memory for results on the host.
    host: Vec<f64>,
    /// Requested times that are not reached yet, in ascending order.
    open: Vec<OpenTime>,
    now: ExactTime,
    /// For each space the time reached, and a bound on the rounding error accumulated until then.
    reached: Vec<(f64, f64)>,
    /// Bound of the l1 truncation error of the Krylov spaces used so far.
    truncation: f64,
    /// Bound on the l1 rounding error accumulated so far.
    rounding: f64,
    /// True if refinement may be tried when rounding prevents early termination.
    refines: bool,
    /// For each reward the value accumulated so far, times α.
    accumulated: Vec<f64>,
    /// Sum of the l1 norms of the terms of ∫ x so far, from which accumulated rewards come.
    norms: f64,
}

impl<'a, T: Number> KrylovRun<'a, T> {
    fn new(context: &'a Context<'a, T>, open: Vec<OpenTime>, expansion: Expansion) -> Result<Self> {
        let statistics = &context.statistics;
        let rewards = scaled(context);
        let progress = (expansion.terms, expansion.terms + MOST_VECTORS as u64);
        let lanes = &context.machine.lanes;
        let mut iteration =
            Iteration::new(lanes, &context.parts, statistics.inverse_alpha, &rewards, progress, false)?;
        iteration.start(&context.initial, context.beginning())?;
        let acc = if context.problem.vectors { iteration.accumulators()? } else { Accumulators::none() };
        let states = context.problem.transitions.states();
        let most = MOST_VECTORS.min(vector_capacity(context, MOST_VECTORS as u64));
        Ok(Self {
            context,
            expansion,
            basis: Basis::new(iteration, most, states, statistics.step)?,
            acc,
            host: Vec::new(),
            open,
            now: ExactTime::default(),
            reached: Vec::new(),
            truncation: 0.0,
            rounding: 0.0,
            refines: Extrapolation::refines(context),
            accumulated: vec![0.0; rewards.len()],
            rewards,
            norms: 0.0,
        })
    }

    /// Computes results for all open times; returns the reason if some are given up.
    fn solve(&mut self, budget: Option<Budget>, session: &mut RunSession<'_, '_>) -> Result<Option<String>> {
        let capacity = self.basis.capacity();
        if capacity < FEWEST {
            return Ok(Some(format!(
                "the devices have memory for {capacity} more vectors, but {FEWEST} are needed"
            )));
        }
        // A larger space would have no further direction.
        let capacity = capacity.min(self.context.costs.vectors());
        let last = self.open.last().map_or(0.0, |open| open.due.lambda);
        // Without a budget the limit is the number of products of a uniformization run.
        let Budget { products, pays, little } =
            budget.unwrap_or(Budget { products: last, pays: 0.0, little: 0.0 });
        while !self.open.is_empty() {
            let terms = self.basis.iteration.steps();
            let reached = self.now.now();
            let Ahead { steady, growing, rounding } = Ahead::new(&self.reached, last);
            let [steady, growing] =
                [steady, growing].map(|spaces| terms as f64 + capacity as f64 * spaces.ceil());
            let fits = self.open.last().is_none_or(|open| rounding <= open.loosened() - open.fixed);
            let continues = (steady < pays && fits) || growing < little;
            if terms as f64 + capacity as f64 > products && !continues {
                let share = 100.0 * reached / last;
                return Ok(Some(format!(
                    "{terms} products reached {share:.1} % of the time, uniformization needs \
                     {last:.0}"
                )));
            }
            let most = if continues { products.max(pays) } else { products };
            self.basis.iteration.progress = (0, growing.min(most).max(terms as f64 + capacity as f64) as u64);
            let mut candidate = None;
            let (open, context, now, refines) = (&self.open, self.context, self.now, self.refines);
            let spent = self.truncation + self.rounding;
            let mut check_product = |iteration: &Iteration<'_, T>| -> Result<bool> {
                candidate = candidate_for(context, iteration, open, now, spent, refines)?;
                Ok(candidate.is_some())
            };
            let recurrence = self.basis.span(capacity, session, &mut check_product)?;
            self.expansion.terms = self.basis.iteration.steps();
            if let Some(candidate) = candidate {
                if self.finish(candidate, session)? {
                    self.expansion.given_up = 0;
                    return Ok(None);
                }
                self.refines = false;
                continue;
            }
            let Some(recurrence) = recurrence else { break };
            self.expansion.restarts += 1;
            let continues = self.advance(&recurrence, session)?
                || (self.loosen() && self.advance(&recurrence, session)?);
            if !continues {
                return Ok(Some(format!(
                    "rounding of at most {:.1e} at {:.1} % of the time exhausts the error budget",
                    self.rounding,
                    100.0 * self.now.now() / last
                )));
            }
        }
        Ok(None)
    }

    /// Raises goals that rounding makes unreachable for uniformization, too; true if one was
    /// raised.
    fn loosen(&mut self) -> bool {
        let mut more = false;
        for open in &mut self.open {
            let goal = open.loosened();
            more |= goal > open.goal;
            open.goal = goal;
        }
        more
    }

    /// Advances in one Krylov space and delivers the times reached; false if its bound is too
    /// large.
    fn advance(&mut self, recurrence: &Recurrence, session: &mut RunSession<'_, '_>) -> Result<bool> {
        let last = self.open.last().map_or(0.0, |open| open.due.lambda);
        let budget = self.open.iter().map(OpenTime::error_budget).fold(f64::INFINITY, f64::min);
        let (now, wanted) = (self.now, self.now.until(last));
        // Half of ε is spent evenly over time, half over its logarithm, since fast modes decay
        // early.
        let share = |time: f64| 0.5 * (time / last + time.ln_1p() / last.ln_1p()).min(2.0);
        // Rounding of the linear combination that ends this approximation.
        let combined = 64.0 * self.unit() * recurrence.norms.iter().sum::<f64>().min(8.0);
        let (lacking, spent) = (self.truncation, self.truncation + self.rounding + combined);
        let mut solution = Projected::new(recurrence);
        // NaN is not allowed, either.
        solution.extend(wanted, |error, time| {
            let allowed = 0.99 * budget * share(now.now() + time);
            spent + error.total() <= allowed && lacking + error.truncation <= TIGHT * allowed
        });
        if solution.pieces.is_empty() {
            return Ok(false);
        }
        let end = solution.end();
        let error = solution.error();
        while let Some(&open) = self.open.first() {
            let local = now.until(open.due.lambda);
            if local > end {
                break;
            }
            let values = solution.values(local, 4.0 * self.unit() * local + 1e-24 * open.due.lambda);
            let mean = (self.norms + weighted(&values.until, recurrence)) / open.due.lambda;
            let (multiples, size, combined) = self.combined(&values.at, recurrence);
            let rounding = self.rounding + error.rounding + values.rounding + combined;
            let bound = Bound {
                truncation: self.truncation + error.truncation,
                rounding: 1.001 * rounding + open.fixed,
                ..Bound::default()
            };
            self.expansion.weighted_norm = self.expansion.weighted_norm.max(size).max(mean);
            let met = bound.total() <= open.goal;
            if !met {
                return Ok(false);
            }
            let sums: Vec<(f64, f64)> = (self.accumulated.iter().enumerate())
                .map(|(r, sum)| (recurrence.reward(r, &values.at), sum + recurrence.reward(r, &values.until)))
                .collect();
            let result = TimeResult {
                window: (0, self.basis.iteration.steps()),
                bound,
                rewards: unscaled(self.context, &sums, &self.rewards),
                ..open.due.result()
            };
            self.deliver(session, result, |run, host| run.basis.sum(&multiples, &run.acc, host))?;
            self.expansion.given_up -= 1;
        }
        if self.open.is_empty() {
            return Ok(true);
        }
        let values = solution.values(end, 0.0);
        let (multiples, _, combined) = self.combined(&values.at, recurrence);
        self.norms += weighted(&values.until, recurrence);
        self.truncation += error.truncation;
        self.rounding += error.rounding + values.rounding + combined;
        for (r, accumulated) in self.accumulated.iter_mut().enumerate() {
            *accumulated += recurrence.reward(r, &values.until);
        }
        self.now.advance(end);
        self.reached.push((self.now.now(), self.rounding));
        self.basis.replace_newest(&multiples)?;
        Ok(true)
    }

    fn unit(&self) -> f64 {
        T::PRECISION.unit_roundoff()
    }

    /// Returns `factors` with their vectors' indices, and two bounds for their linear combination.
    ///
    /// These are the sum of the terms' l1 norms, and the l1 rounding error.
    fn combined(&mut self, factors: &[f64], recurrence: &Recurrence) -> (Vec<(usize, f64)>, f64, f64) {
        let multiples: Vec<(usize, f64)> = factors.iter().copied().enumerate().collect();
        let size = weighted(factors, recurrence);
        self.expansion.norm = self.expansion.norm.max(size);
        let rounding = self.basis.rounding_of(&multiples, &recurrence.norms, size);
        (multiples, size, rounding)
    }

    /// Delivers the result of the first open time.
    fn deliver(
        &mut self,
        session: &mut RunSession<'_, '_>,
        result: TimeResult,
        vector: impl for<'b> FnOnce(&'b Self, &'b mut Vec<f64>) -> Result<&'b [f64]>,
    ) -> Result<()> {
        let open = self.open.remove(0);
        if self.context.problem.vectors {
            let mut host = std::mem::take(&mut self.host);
            session.result(open.due.index, vector(self, &mut host)?)?;
            self.host = host;
        }
        session.serve(open.due.index, result);
        Ok(())
    }

    /// Ends all open times by early termination after the first of the last two iterates.
    ///
    /// Returns false if that is not enough even when refined; the iterate is then the newest again.
    fn finish(&mut self, candidate: TerminationCandidate, session: &mut RunSession<'_, '_>) -> Result<bool> {
        let mut extrapolated = Extrapolation::new(self.context, &self.basis.iteration)?;
        let (mut terminations, mut shift) = ([candidate.termination], 0.0);
        if !candidate.serves {
            let (terms, x) = (self.basis.iteration.steps(), self.basis.iteration.iterate(Which::Before)?);
            let (open, now, spent) = (&self.open, self.now, self.truncation + self.rounding);
            let enough = |terminations: &[EarlyTermination], shift: f64| {
                open.iter().all(|open| open.serves(&terminations[0], now, spent + shift))
            };
            let steps = corrections(now, terms);
            let refinement = extrapolated.refine(steps, terms, &mut terminations, enough, session)?;
            self.expansion.terms += refinement.steps;
            shift = refinement.shift;
            if !enough(&terminations, shift) {
                self.basis.iteration.resume(self.expansion.terms, &x)?;
                return Ok(false);
            }
        }
        let [termination] = terminations;
        extrapolated.collect_rewards(self.basis.iteration.rewards(), 1);
        while let Some(&open) = self.open.first() {
            let ahead = self.now.until(open.due.lambda);
            let shares = shares(&termination, ahead);
            // The extrapolation starts with the norm of a distribution, up to its error.
            let mean = (self.norms + ahead * (1.0 + self.truncation + self.rounding)) / open.due.lambda;
            self.expansion.weighted_norm = self.expansion.weighted_norm.max(mean);
            let grown = shares.at[2];
            let bound = Bound {
                truncation: self.truncation,
                steady_state: shift + termination.defect * grown,
                rounding: 1.001 * (self.rounding + termination.rounding * grown)
                    + open.fixed
                    + 32.0 * f64::EPSILON,
                ..Bound::default()
            };
            let sums: Vec<(f64, f64)> = extrapolated
                .rewards
                .iter()
                .zip(&self.accumulated)
                .map(|(reward, accumulated)| {
                    let value = |share| reward.value(std::iter::once(share));
                    (value(shares.at), accumulated + value(shares.until))
                })
                .collect();
            let result = TimeResult {
                window: (0, termination.step),
                bound,
                rewards: unscaled(self.context, &sums, &self.rewards),
                stopped: Some(Stopped { step: termination.step, mu: 1.0 - termination.decay }),
                ..open.due.result()
            };
            self.deliver(session, result, |_, result| {
                result.clear();
                result.resize(extrapolated.len(), 0.0);
                extrapolated.add_to(result, &[shares]);
                Ok(result)
            })?;
        }
        Ok(true)
    }
}

/// Sums the l1 norms of the basis vectors, times `factors`.
fn weighted(factors: &[f64], recurrence: &Recurrence) -> f64 {
    factors.iter().zip(&recurrence.norms).map(|(factor, norm)| factor.abs() * norm).sum()
}

/// Returns the [`Shares`] of an extrapolation after a duration `ahead`, in continuous time.
fn shares(termination: &EarlyTermination, ahead: f64) -> Shares {
    let (decay, shrunk) = (termination.decay, (-termination.decay * ahead).exp());
    let grown = if decay == 0.0 { ahead } else { -(-decay * ahead).exp_m1() / decay };
    let doubled = if decay == 0.0 { 0.5 * ahead * ahead } else { (ahead - grown) / decay };
    Shares { at: [1.0, shrunk, grown], until: [ahead, grown, doubled], beyond: 0.0 }
}

/// Largest number of refinement steps: αt up to now, at most 16 times the products so far.
fn corrections(now: ExactTime, terms: u64) -> u64 {
    (now.now() as u64).min(16 * terms)
}

/// Possible early termination of the Krylov method.
struct TerminationCandidate {
    termination: EarlyTermination,
    /// True if early termination serves all open times; false if only a refinement may.
    serves: bool,
}

/// Returns an early termination after the last iterate but one.
///
/// `None` unless it serves all open times, or may serve them when refined.
fn candidate_for<T: Number>(
    context: &Context<'_, T>,
    iteration: &Iteration<'_, T>,
    open: &[OpenTime],
    now: ExactTime,
    spent: f64,
    refines: bool,
) -> Result<Option<TerminationCandidate>> {
    let termination = EarlyTermination::after_last(iteration, context.statistics.step)?;
    let all = |termination: &EarlyTermination| open.iter().all(|open| open.serves(termination, now, spent));
    if all(&termination) {
        return Ok(Some(TerminationCandidate { termination, serves: true }));
    }
    // Its rounding is too large. Corrections reduce a defect d to about d², and move the vector by
    // at most d per step.
    let moved = spent + termination.defect * corrections(now, iteration.steps()) as f64;
    let squared = EarlyTermination { defect: termination.defect.powi(2), rounding: 0.0, ..termination };
    let hopeful = refines
        && !all(&EarlyTermination { defect: 0.0, ..termination })
        && open.iter().all(|open| open.serves(&squared, now, moved));
    Ok(hopeful.then_some(TerminationCandidate { termination, serves: false }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_take_a_thirtieth_of_a_run_at_most() {
        for (states, entries, on_host) in
            [(3478, 14e3, true), (3478, 14e3, false), (200, 1e3, true), (1 << 25, 2e8, false)]
        {
            let costs = Costs::of(states, entries, on_host);
            for ahead in [1e4, 1e5, 3e5, 1e7, 1e9] {
                let (mut products, mut all) = (first_try(&costs), 0.0);
                while let Some(budget) = Budget::of(&costs, products, u64::MAX, ahead) {
                    assert!(budget.products >= 0.5 * products as f64 && is_worth(&costs, ahead));
                    all += budget.products * costs.krylov();
                    products *= 4;
                }
                assert!(all <= ahead / 30.0, "{states} states: {all} of {ahead}");
                assert_eq!(all > 0.0, is_worth(&costs, ahead), "{states} states, {ahead} steps");
            }
        }
        // A chain of thousands of states tries two spaces within 10⁵ steps if its lane is on the
        // host, after as many steps as the attempt costs.
        let costs = |on_host| Costs::of(3478, 14e3, on_host);
        assert!(is_worth(&costs(true), 1e5) && !is_worth(&costs(false), 1e5));
        let done = |done| Budget::of(&costs(true), 160, done, 1e5);
        assert!(done(1000).is_none() && done(2000).is_some_and(|budget| budget.products < 160.0));
    }

    /// Returns times reached with spaces of some lengths, and rounding errors of 1e-15 of them.
    fn reached(lengths: impl IntoIterator<Item = f64>) -> Vec<(f64, f64)> {
        let mut now = 0.0;
        let mut next = |length: f64| {
            now += length;
            (now, 1e-15 * now)
        };
        lengths.into_iter().map(&mut next).collect()
    }

    #[test]
    fn predicted_spaces_cover_constant_and_growing_lengths() {
        for (lengths, last, steady, growing) in [
            (vec![], 1e3, f64::INFINITY, f64::INFINITY),
            (vec![10.0], 1e3, 99.0, 99.0),
            (vec![10.0; 8], 1e3, 92.0, 92.0),
            // A slight increase does not count as growth.
            (vec![10.0, 10.0, 12.0, 12.0], 1e3, 79.7, 79.7),
            // Each space is twice as long as the one before: 1 + 2 + … + 512 = 1023.
            (vec![1.0, 2.0, 4.0, 8.0], 1023.0, 2.0 * 1008.0 / 12.0, 6.0),
        ] {
            let ahead = Ahead::new(&reached(lengths.clone()), last);

            let near = |value: f64, wanted: f64| (value - wanted).abs() < 0.1 || value == wanted;
            assert!(near(ahead.steady, steady), "{lengths:?}: {}", ahead.steady);
            assert!(near(ahead.growing, growing), "{lengths:?}: {}", ahead.growing);
            let missed = (ahead.rounding - 1e-15 * last).abs();
            assert!(lengths.is_empty() || missed < 1e-25 * last, "{lengths:?}: {:e}", ahead.rounding);
        }
    }
}
