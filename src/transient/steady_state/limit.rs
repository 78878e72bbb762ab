//! The steady state: a short elimination, multilevel aggregation, or a long elimination.
//!
//! The result of the first method whose bound meets ε is returned, else the one with the smallest
//! bound. All methods run on the host, in every precision. With several ranks, rank 0 computes the
//! distribution and sends each rank its states, so the results are bitwise those of one process.

use std::ops::Range;

use super::gth::{self, GthInput, GthPlan};
use crate::transient::backward::absorption::until_absorption;
use crate::transient::chain::recurrent_classes::ClosedClasses;
use crate::transient::chain::{Absorbing, Reward};
use crate::transient::checkpoint::RunPhase;
use crate::transient::multilevel;
use crate::transient::problem::{Options, Problem};
use crate::transient::session::RunSession;
use crate::transient::solution::{Bound, RewardValue, TimeResult};
use crate::{Invalid, Machine, Progress, Result, Status};

/// Chain whose limit is computed, and this rank's states.
pub(crate) struct LimitProblem<'a> {
    pub(crate) machine: &'a Machine,
    /// Problem; its rewards are restricted to this rank's states.
    pub(crate) problem: &'a Problem<'a>,
    pub(crate) options: &'a Options,
    /// Power of two that brings the largest exit rate near 1.
    pub(crate) scale: f64,
    /// States of this rank.
    pub(crate) rows: Range<usize>,
    /// Initial probabilities of this rank's states.
    pub(crate) initial: &'a [f64],
}

/// Cost and accuracy of the computation for infinite time.
pub(crate) struct Served {
    pub(crate) terms: u64,
    /// Number of eliminated states.
    pub(crate) eliminated: usize,
    /// True if all accumulated rewards meet ε.
    pub(crate) met: bool,
}

/// Limit distribution, and the cost of computing it.
struct LimitDistribution {
    values: Vec<f64>,
    /// Bound of the l1 error.
    bound: f64,
    /// Number of multilevel cycles.
    terms: u64,
    /// Number of eliminated states.
    eliminated: usize,
}

impl LimitProblem<'_> {
    /// Computes the results for the infinite times with the indices `which`.
    ///
    /// If the observer interrupts, the checkpoint keeps the results of finite times.
    pub(crate) fn run(&self, which: &[usize], session: &mut RunSession<'_, '_>) -> Result<Served> {
        session.checkpointer.resume(|phase| matches!(phase, RunPhase::Finite).then_some(()))?;
        session.checkpointer.save_if_due(|| Ok((RunPhase::Finite, Vec::new())))?;
        let found = self.serve(which, session);
        session.checkpointer.save_on_interrupt(found, || Ok((RunPhase::Finite, Vec::new())))
    }

    fn serve(&self, which: &[usize], session: &mut RunSession<'_, '_>) -> Result<Served> {
        let LimitDistribution { values, bound, terms, eliminated } = self.limit(session)?;
        let bound = Bound { rounding: bound + self.problem.initial.rounding(), ..Bound::default() };
        let (rewards, met) = self.rewards(&values, bound, session)?;
        for &index in which {
            if self.problem.vectors {
                session.result(index, &values)?;
            }
            let result = TimeResult {
                time: self.problem.times[index],
                alpha_t: f64::INFINITY,
                window: (0, terms),
                bound,
                rewards: rewards.clone(),
                ..TimeResult::default()
            };
            session.serve(index, result);
        }
        Ok(Served { terms, eliminated, met })
    }

    /// Computes the limit on this rank's states.
    fn limit(&self, session: &mut RunSession<'_, '_>) -> Result<LimitDistribution> {
        let ranks = self.machine.ranks;
        let initial = ranks.gather_to_root(self.initial);
        let found = if ranks.is_root() { self.on_host(&initial, session).map(Some) } else { Ok(None) };
        let found = ranks.all_ok(found)?;
        let numbers = found
            .as_ref()
            .map_or([0.0; 3], |found| [found.bound, found.terms as f64, found.eliminated as f64]);
        let [bound, terms, eliminated] = ranks.all_gather(&numbers)[0][..] else {
            unreachable!("three numbers")
        };
        let all_rows = ranks.all_gather(&[self.rows.start, self.rows.end]);
        let values = ranks.scatter_from_root(self.rows.len(), |rank| {
            found
                .as_ref()
                .map_or(Vec::new(), |found| found.values[all_rows[rank][0]..all_rows[rank][1]].to_vec())
        });
        Ok(LimitDistribution { values, bound, terms: terms as u64, eliminated: eliminated as usize })
    }

    /// Computes the limit from the initial probabilities of all states.
    fn on_host(&self, initial: &[f64], session: &mut RunSession<'_, '_>) -> Result<LimitDistribution> {
        let (transitions, epsilon) = (self.problem.transitions, self.options.epsilon);
        let plan = match transitions.states() <= gth::MOST_BANDED {
            true => GthPlan::new(transitions, &ClosedClasses::new(transitions, initial, initial)),
            false => None,
        };
        // Any distribution has an l1 error of at most 2.
        let mut best = LimitDistribution { values: initial.to_vec(), bound: 2.0, terms: 0, eliminated: 0 };
        let short = plan.as_ref().is_some_and(GthPlan::is_short);
        if let Some(plan) = plan.as_ref().filter(|_| short) {
            best = best.or(self.eliminated(plan, initial, session)?);
        }
        if best.bound > epsilon {
            let found = multilevel::limit(transitions, initial, epsilon, session)?;
            best = best.or(found.map(|multilevel::ChainLimit { values, bound, steps }| LimitDistribution {
                values,
                bound,
                terms: steps,
                eliminated: 0,
            }));
        }
        if let Some(plan) = plan.filter(|_| !short && best.bound > epsilon && !session.is_ended()) {
            best = best.or(self.eliminated(&plan, initial, session)?);
        }
        Ok(best)
    }

    /// Computes the limit by elimination; `None` if it fails.
    fn eliminated(
        &self,
        plan: &GthPlan,
        initial: &[f64],
        observer: &mut dyn Progress,
    ) -> Result<Option<LimitDistribution>> {
        let transitions = self.problem.transitions;
        let from = GthInput { transitions, scale: self.scale, enough: self.options.epsilon };
        let found = plan.limit(from, initial, &mut || observer.progress(0, 0))?;
        let eliminated = transitions.states();
        Ok(found.map(|(values, bound)| LimitDistribution { values, bound, terms: 0, eliminated }))
    }

    /// Returns the rewards of the limit, and true if all accumulated rewards meet ε.
    fn rewards(
        &self,
        limit: &[f64],
        bound: Bound,
        observer: &mut dyn Progress,
    ) -> Result<(Vec<RewardValue>, bool)> {
        let (problem, ranks) = (self.problem, self.machine.ranks);
        let mut found = Vec::with_capacity(problem.rewards.len());
        // Rewards that may be zero in the limit; their accumulated values are computed separately.
        let mut unknown = Vec::new();
        for (place, reward) in problem.rewards.iter().enumerate() {
            let mut sum = [0.0];
            ranks.ordered_reduce(&mut sum, |sum| {
                reward.values.iter().zip(limit).for_each(|(r, p)| sum[0] += r * p);
            });
            let [instantaneous] = sum;
            let most = ranks.all_reduce_max(reward.values.iter().fold(0.0f64, |m, r| m.max(r.abs())));
            let cumulative = match instantaneous.abs() > bound.total() * most {
                true => instantaneous * f64::INFINITY,
                false if most == 0.0 => 0.0,
                false => {
                    unknown.push(place);
                    f64::NAN
                }
            };
            found.push(RewardValue { name: reward.name.clone(), instantaneous, cumulative });
        }
        let mut met = true;
        if !unknown.is_empty() {
            let rewards: Vec<&Reward> = unknown.iter().map(|&place| &problem.rewards[place]).collect();
            let (totals, all) = self.totals(&rewards, observer)?;
            met = all;
            unknown.into_iter().zip(totals).for_each(|(place, total)| found[place].cumulative = total);
        }
        Ok((found, met))
    }

    /// Computes rewards accumulated over an infinite horizon, and returns true if they meet ε.
    ///
    /// A value is infinite if a state of a closed class has a reward. Otherwise it is the value
    /// accumulated until a closed class is entered.
    fn totals(&self, rewards: &[&Reward], observer: &mut dyn Progress) -> Result<(Vec<f64>, bool)> {
        let (problem, transitions) = (self.problem, self.problem.transitions);
        let refused = |reward: &Reward, why: &str| {
            let what = format!("the accumulated reward '{}' at time inf is unknown: {why}", reward.name);
            Invalid::Reward.fail(what + "; give a finite time")
        };
        if self.machine.ranks.is_distributed() {
            return refused(rewards[0], "several ranks are not supported");
        }
        let classes = ClosedClasses::new(transitions, self.initial, self.initial);
        let class = classes.of_states(transitions);
        let closed: Vec<u32> =
            (0..class.len() as u32).filter(|&state| class[state as usize].is_some()).collect();
        let (mut totals, mut passing) = (vec![f64::INFINITY; rewards.len()], Vec::new());
        for (place, (reward, total)) in rewards.iter().zip(&mut totals).enumerate() {
            let values = || closed.iter().map(|&state| reward.values[state as usize]);
            match [values().any(|value| value > 0.0), values().any(|value| value < 0.0)] {
                [true, false] => {}
                [false, true] => *total = f64::NEG_INFINITY,
                [false, false] => passing.push(place),
                [true, true] => {
                    return refused(reward, "the reward rates in the limit have both signs and cancel");
                }
            }
        }
        if passing.is_empty() {
            return Ok((totals, true));
        }
        let absorbing = Absorbing::new(transitions, &closed);
        let own: Vec<Reward> = passing.iter().map(|&place| rewards[place].clone()).collect();
        let Self { machine, options, .. } = *self;
        let found = until_absorption(machine, &absorbing, problem.initial, &closed, &own, options, observer)?;
        passing.iter().zip(&found.rewards).for_each(|(&place, total)| totals[place] = total.value);
        Ok((totals, found.status == Status::Met))
    }
}

impl LimitDistribution {
    /// Returns the limit with the smaller bound, and the larger number of cycles.
    fn or(self, other: Option<Self>) -> Self {
        let Some(other) = other else { return self };
        let terms = self.terms.max(other.terms);
        let best = if other.bound < self.bound { other } else { self };
        Self { terms, ..best }
    }
}
