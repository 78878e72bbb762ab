//! Krylov's method: curves in the space of a few products, one after the other, each for as long as its error allows.
//!
//! With (P − I) V = V H + w eᵀ + F, time in units of 1/α, and û a curve near the solution of û' = H û from e₁, y = V û begins at the first of the
//! vectors and errs by at most
//!
//! ∫ ‖V (û' − H û)‖ + ‖w‖ |û_m| + Σ_j ‖F_j‖ |û_j| ds
//!
//! in l1, with the constant 1 for every chain: `docs/certificate.md` has the proof. Nothing is asked of the vectors, neither that they are orthogonal
//! nor how H was found; F is what the recurrence was rounded by, and the integrals are [bounded](super::projected) from
//! polynomials. The vectors of the first product also tell whether a [stop](super::stop) serves all that is ahead.

use super::basis::{Basis, Recurrence};
use super::bound::MatrixStatistics;
use super::built::Built;
use super::cost;
use super::iteration::{Accumulators, Iteration};
use super::problem::Observer;
use super::projected::Projected;
use super::solution::{Bound, Expanded, Expansion, Stopped, TimeResult};
use super::stop::{Shares, Stop};
use super::sweep::{Curve, value};
use super::sweeps::{room, scaled, unscaled};
use crate::kernel::{Number, Precision};
use crate::{Error, Result};

/// Most and fewest vectors of a space.
const MOST: usize = 40;
const FEWEST: usize = 8;
/// The share of a bound that is left to what spaces lack. It costs few products to make that small, and a stop, which sees it as well, comes sooner.
const TIGHT: f64 = 0.1;
/// Less than this many products of a sweep are left to it.
const SHORT: f64 = 4.0 * MOST as f64;

/// A time point on its way.
struct Open {
    /// The place among the times asked for.
    index: usize,
    lambda: f64,
    /// The bound that is to be reached: ε, or what rounding lets it be.
    goal: f64,
    /// The part of the bound that is there from the beginning.
    fixed: f64,
    /// What a sweep rounds by.
    rounds: f64,
}

impl Open {
    fn new<T: Number>(built: &Built<'_, T>, index: usize, lambda: f64) -> Self {
        let fixed = built.statistics.rounding(lambda, 0, 0) + built.initial_error;
        let rounds = built.statistics.step * lambda + fixed;
        Self { index, lambda, goal: built.options.epsilon, fixed, rounds }
    }

    fn room(&self) -> f64 {
        self.goal - self.fixed
    }
}

/// A time as an unevaluated sum of two doubles.
#[derive(Debug, Clone, Copy, Default)]
struct Clock {
    high: f64,
    low: f64,
}

impl Clock {
    fn advance(&mut self, by: f64) {
        let sum = self.high + by;
        let virtual_by = sum - self.high;
        self.low += (self.high - (sum - virtual_by)) + (by - virtual_by);
        (self.high, self.low) = (sum + self.low, self.low - ((sum + self.low) - sum));
    }

    /// How long it is to a time, known to four units.
    fn until(self, time: f64) -> f64 {
        (time - self.high) - self.low
    }
}

/// What may be spent, in products.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    /// This much in any case.
    products: f64,
    /// More than that as long as all together are predicted to be fewer than these.
    pays: f64,
}

/// Products that a sweep tries it with first; after that with four times as many.
pub(super) const FIRST_TRY: u64 = 4 * MOST as u64;
/// A try costs at most this share of what is ahead of a sweep: all of them together a thirtieth.
const TRY_SHARE: f64 = 40.0;

/// True if a sweep of αt steps is long enough to try it.
pub(super) fn is_worth<T: Number>(statistics: &MatrixStatistics<T>, states: usize, lambda: f64) -> bool {
    T::PRECISION == Precision::F64
        && FIRST_TRY as f64 * cost::krylov(statistics, states) * TRY_SHARE <= lambda
}

impl Budget {
    /// Of a try with some products by a sweep that has done some steps and is to do others; none where those do not allow for it.
    pub(super) fn of<T>(built: &Built<'_, T>, products: u64, done: u64, ahead: f64) -> Option<Self> {
        let cost = cost::krylov(&built.statistics, built.problem.transitions.states());
        let products = products as f64;
        let most = (ahead / TRY_SHARE).min(done as f64);
        (products * cost <= most).then_some(Self { products, pays: 0.5 * ahead / cost })
    }
}

/// Serves those of the finite times that it can within ε, or as near to that as rounding lets it come; the others stay without a
/// result.
///
/// # Errors
/// As [`solve`](super::solve()); and with `strict` for a time that is given up.
pub(super) fn run<T: Number>(
    built: &Built<'_, T>,
    strict: bool,
    budget: Option<Budget>,
    which: &[usize],
    times: &mut [Option<TimeResult>],
    observer: &mut dyn Observer,
) -> Result<Expansion> {
    let mut open = Vec::with_capacity(which.len());
    for &index in which {
        let lambda = built.statistics.lambda(built.problem.times[index])?;
        if lambda > SHORT {
            open.push(Open::new(built, index, lambda));
        }
    }
    open.sort_by(|a, b| a.lambda.total_cmp(&b.lambda));
    let asked = open.len();
    let mut expansion = Expansion {
        method: Expanded::Krylov,
        terms: 0,
        restarts: 0,
        norm: 0.0,
        weighted_norm: 0.0,
        given_up: asked,
    };
    let why = match asked {
        0 => None,
        _ => Run::new(built, open, expansion)?.solve(budget, times, observer, &mut expansion)?,
    };
    match why {
        Some(why) if strict => Err(Error::Invalid(format!(
            "the Krylov method gave up {} of {asked} times: {why}; leave --strict out for a sweep to serve them, or use --method auto",
            expansion.given_up
        ))),
        _ => Ok(expansion),
    }
}

struct Run<'a, T> {
    built: &'a Built<'a, T>,
    basis: Basis<'a, T>,
    rewards: Vec<(&'a [f64], f64)>,
    acc: Accumulators<T>,
    /// Room for results on the host.
    host: Vec<f64>,
    /// Ascending.
    open: Vec<Open>,
    now: Clock,
    /// How long the last curve was.
    length: f64,
    /// What the curve errs by so far.
    truncation: f64,
    rounding: f64,
    /// Of each reward what is earned so far, times α.
    earned: Vec<f64>,
}

impl<'a, T: Number> Run<'a, T> {
    fn new(built: &'a Built<'a, T>, open: Vec<Open>, expansion: Expansion) -> Result<Self> {
        let (machine, statistics) = (built.machine, &built.statistics);
        let rewards = scaled(built);
        let progress = (expansion.terms, expansion.terms + MOST as u64);
        let mut iteration =
            Iteration::new(&machine.lanes, &built.parts, statistics.inverse_alpha, &rewards, progress)?;
        iteration.start_in(&built.initial, built.beginning())?;
        let acc = if built.problem.vectors { iteration.accumulators()? } else { Accumulators::none() };
        let states = built.problem.transitions.states();
        let basis = Basis::new(iteration, MOST.min(room(built, MOST as u64)), states, statistics.step)?;
        let earned = vec![0.0; rewards.len()];
        let now = Clock::default();
        Ok(Self {
            built,
            basis,
            rewards,
            acc,
            host: Vec::new(),
            open,
            now,
            length: 0.0,
            truncation: 0.0,
            rounding: 0.0,
            earned,
        })
    }

    /// Why it was given up, if it was.
    fn solve(
        mut self,
        budget: Option<Budget>,
        times: &mut [Option<TimeResult>],
        observer: &mut dyn Observer,
        expansion: &mut Expansion,
    ) -> Result<Option<String>> {
        let room = self.basis.room();
        if room < FEWEST {
            return Ok(Some(format!(
                "the devices have memory for {room} more vectors, and it takes {FEWEST}"
            )));
        }
        let last = self.open.last().map_or(0.0, |open| open.lambda);
        // As many products as a sweep would take are no progress.
        let Budget { products, pays: most } = budget.unwrap_or(Budget { products: last, pays: 0.0 });
        while !self.open.is_empty() {
            let terms = self.basis.iteration.steps();
            let reached = self.now.high;
            // Curves become longer, so that this is more than it will be.
            let all = terms as f64 + room as f64 * ((last - reached) / self.length).ceil().max(1.0);
            let pays = all < most;
            if terms as f64 + room as f64 > products && !pays {
                let share = 100.0 * reached / last;
                return Ok(Some(format!(
                    "{terms} products got to {share:.1} % of the time, a sweep takes {last:.0}"
                )));
            }
            self.basis.iteration.progress =
                (0, all.min(products.max(most)).max(terms as f64 + room as f64) as u64);
            let mut stop = None;
            let (open, built, now) = (&self.open, self.built, self.now);
            let spent = self.truncation + self.rounding;
            let mut look = |iteration: &Iteration<'_, T>| -> Result<bool> {
                stop = serving(built, iteration, open, now, spent)?;
                Ok(stop.is_some())
            };
            let recurrence = self.basis.span(room, observer, &mut look)?;
            expansion.terms = self.basis.iteration.steps();
            if let Some(stop) = stop {
                self.finish(stop, times, observer)?;
                expansion.given_up = 0;
                return Ok(None);
            }
            let Some(recurrence) = recurrence else { break };
            expansion.restarts += 1;
            let goes_on = self.go_on(&recurrence, times, observer, expansion)?
                || (self.loosen() && self.go_on(&recurrence, times, observer, expansion)?);
            if !goes_on {
                return Ok(Some(format!(
                    "rounding of at most {:.1e} at {:.1} % of the time leaves no room for more",
                    self.rounding,
                    100.0 * self.now.high / last
                )));
            }
        }
        Ok(None)
    }

    /// Asks for what rounding lets the bound be where it keeps a sweep from ε, too; says whether that is more than before.
    fn loosen(&mut self) -> bool {
        let mut more = false;
        for open in &mut self.open {
            let goal = open.goal.max(if open.rounds > open.goal { 4.0 * open.rounds } else { 0.0 });
            more |= goal > open.goal;
            open.goal = goal;
        }
        more
    }

    /// Goes on by the curve of a space, and serves the times on the way.
    fn go_on(
        &mut self,
        recurrence: &Recurrence,
        times: &mut [Option<TimeResult>],
        observer: &mut dyn Observer,
        expansion: &mut Expansion,
    ) -> Result<bool> {
        let last = self.open.last().map_or(0.0, |open| open.lambda);
        let room = self.open.iter().map(Open::room).fold(f64::INFINITY, f64::min);
        let (now, wanted) = (self.now, self.now.until(last));
        // Half of it evenly over time, half over its logarithm: fast parts die out early.
        let share = |time: f64| 0.5 * (time / last + time.ln_1p() / last.ln_1p()).min(2.0);
        // What the combinations round by that end this curve.
        let combined = 64.0 * self.unit() * recurrence.norms.iter().sum::<f64>().min(8.0);
        let (lacking, spent) = (self.truncation, self.truncation + self.rounding + combined);
        let mut curve = Projected::new(recurrence);
        // No number is not allowed, either.
        curve.extend(wanted, |error, time| {
            let room = 0.99 * room * share(now.high + time);
            spent + error.total() <= room && lacking + error.truncation <= TIGHT * room
        });
        if curve.pieces.is_empty() {
            return Ok(false);
        }
        let end = curve.end();
        let error = curve.error();
        while let Some(open) = self.open.first() {
            let local = now.until(open.lambda);
            if local > end {
                break;
            }
            let values = curve.values(local, 4.0 * self.unit() * local + 1e-24 * open.lambda);
            let multiples: Vec<(usize, f64)> = values.at.iter().copied().enumerate().collect();
            let size: f64 = multiples.iter().map(|&(j, u)| u.abs() * recurrence.norms[j]).sum();
            expansion.norm = expansion.norm.max(size);
            expansion.weighted_norm = expansion.norm;
            let rounding = self.rounding
                + error.rounding
                + values.rounding
                + self.combined(&multiples, recurrence, size);
            let bound = Bound {
                truncation: self.truncation + error.truncation,
                rounding: 1.001 * rounding + open.fixed,
                ..Bound::default()
            };
            let met = bound.total() <= open.goal;
            if !met {
                return Ok(false);
            }
            let sums: Vec<(f64, f64)> = (0..self.earned.len())
                .map(|r| {
                    let of = |factors: &[f64]| -> f64 {
                        factors.iter().zip(&recurrence.rewards).map(|(u, rewards)| u * rewards[r]).sum()
                    };
                    (of(&values.at), self.earned[r] + of(&values.until))
                })
                .collect();
            let result = TimeResult {
                window: (0, self.basis.iteration.steps()),
                bound,
                rewards: unscaled(self.built, &sums, &self.rewards),
                ..TimeResult::default()
            };
            self.deliver(times, observer, result, |run, host| run.basis.sum(&multiples, &run.acc, host))?;
            expansion.given_up -= 1;
        }
        if self.open.is_empty() {
            return Ok(true);
        }
        let values = curve.values(end, 0.0);
        let multiples: Vec<(usize, f64)> = values.at.iter().copied().enumerate().collect();
        let size: f64 = multiples.iter().map(|&(j, u)| u.abs() * recurrence.norms[j]).sum();
        expansion.norm = expansion.norm.max(size);
        expansion.weighted_norm = expansion.norm;
        self.truncation += error.truncation;
        self.rounding += error.rounding + values.rounding + self.combined(&multiples, recurrence, size);
        for (r, earned) in self.earned.iter_mut().enumerate() {
            *earned +=
                values.until.iter().zip(&recurrence.rewards).map(|(u, rewards)| u * rewards[r]).sum::<f64>();
        }
        self.now.advance(end);
        self.length = end;
        self.basis.replace_newest(&multiples)?;
        Ok(true)
    }

    fn unit(&self) -> f64 {
        T::PRECISION.unit_roundoff()
    }

    fn combined(&self, multiples: &[(usize, f64)], recurrence: &Recurrence, size: f64) -> f64 {
        self.basis.rounding_of(multiples, &recurrence.norms, size)
    }

    /// Gives the first of the open times its result.
    fn deliver(
        &mut self,
        times: &mut [Option<TimeResult>],
        observer: &mut dyn Observer,
        result: TimeResult,
        vector: impl for<'b> FnOnce(&'b Self, &'b mut Vec<f64>) -> Result<&'b [f64]>,
    ) -> Result<()> {
        let open = self.open.remove(0);
        if self.built.problem.vectors {
            let mut host = std::mem::take(&mut self.host);
            observer.result(open.index, vector(self, &mut host)?)?;
            self.host = host;
        }
        let time = self.built.problem.times[open.index];
        times[open.index] = Some(TimeResult { time, alpha_t: open.lambda, ..result });
        Ok(())
    }

    /// Serves all times that are open by a stop behind the first of the last two iterates.
    fn finish(
        &mut self,
        stop: Stop,
        times: &mut [Option<TimeResult>],
        observer: &mut dyn Observer,
    ) -> Result<()> {
        let curve = Curve::new(self.built, &self.basis.iteration, 1.0)?;
        while let Some(open) = self.open.first() {
            let ahead = self.now.until(open.lambda);
            let shares = shares(&stop, ahead);
            let grown = shares.at[2];
            let bound = Bound {
                truncation: self.truncation,
                steady_state: stop.defect * grown,
                rounding: 1.001 * (self.rounding + stop.rounding * grown) + open.fixed + 32.0 * f64::EPSILON,
                ..Bound::default()
            };
            let sums: Vec<(f64, f64)> = curve
                .rewards
                .iter()
                .zip(&self.earned)
                .map(|(reward, earned)| (value(reward, shares.at), earned + value(reward, shares.until)))
                .collect();
            let result = TimeResult {
                window: (0, stop.step),
                bound,
                rewards: unscaled(self.built, &sums, &self.rewards),
                stopped: Some(Stopped { step: stop.step, mu: 1.0 - stop.leak }),
                ..TimeResult::default()
            };
            self.deliver(times, observer, result, |_, result| {
                result.clear();
                result.resize(curve.len(), 0.0);
                curve.add_to(result, &shares);
                Ok(result)
            })?;
        }
        Ok(())
    }
}

/// The shares of what a stop is made of, in continuous time.
fn shares(stop: &Stop, ahead: f64) -> Shares {
    let (leak, shrunk) = (stop.leak, (-stop.leak * ahead).exp());
    let grown = if leak == 0.0 { ahead } else { -(-leak * ahead).exp_m1() / leak };
    let doubled = if leak == 0.0 { 0.5 * ahead * ahead } else { (ahead - grown) / leak };
    Shares { at: [1.0, shrunk, grown], until: [ahead, grown, doubled] }
}

/// The stop behind the iterate before the newest, if it serves all times that are open.
fn serving<T: Number>(
    built: &Built<'_, T>,
    iteration: &Iteration<'_, T>,
    open: &[Open],
    now: Clock,
    spent: f64,
) -> Result<Option<Stop>> {
    let masses = iteration.leavable_masses()?;
    let step = built.statistics.step;
    let stop = Stop::new::<T, _>(iteration.steps() - 1, masses, step, |mu| iteration.defect(mu))?;
    let serves = |open: &Open| {
        let grown = shares(&stop, now.until(open.lambda)).at[2];
        spent + (stop.defect + stop.rounding) * grown + 64.0 * f64::EPSILON <= 0.99 * open.room()
    };
    Ok(open.iter().all(serves).then_some(stop))
}
