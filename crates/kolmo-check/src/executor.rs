//! Execution of planned computations, and the answers that they give.

use std::sync::Arc;

use crate::answer::Answer;
use crate::qualitative::Decided;
use crate::source::listed;
use crate::state_sets::members;
use crate::uniformization::{Quantity, Request, Set, UniformizationRun, cumulative_error, rounding};
use kolmo::transient::{
    Bound as Parts, Chain, Initial, Options, Reward, Status, Total, Transitions, may_reach, reachability,
    until_absorption,
};
use kolmo::{Error, Machine, Progress, Result};

/// Requests of one chain with absorbing states.
#[derive(Debug)]
pub(crate) struct Run<T> {
    pub(crate) absorbing: Set,
    pub(crate) initial: Initial,
    pub(crate) asked: Vec<T>,
}

/// Expected rewards and times until absorption.
///
/// A request is the index of its answer, and of its reward; `None` for the expected time.
pub(crate) type Absorbed = Run<(usize, Option<usize>)>;

/// Probabilities of ever reaching some sets of states.
pub(crate) type Reached = Run<(usize, Set)>;

/// Path formula that graph analysis may decide, with probability 0 or 1.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) answer: usize,
    pub(crate) initial: Initial,
    pub(crate) left: Set,
    pub(crate) right: Set,
    pub(crate) times: (f64, f64),
}

/// Computations to run, and the answers known so far.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    pub(crate) sweeps: Vec<UniformizationRun>,
    pub(crate) absorbed: Vec<Absorbed>,
    pub(crate) reached: Vec<Reached>,
    pub(crate) paths: Vec<Path>,
    pub(crate) rewards: Vec<Reward>,
    /// Upper bound of each reward structure's absolute values in any state.
    pub(crate) limits: Vec<f64>,
    pub(crate) answers: Vec<Answer>,
    /// Boundary states. `allowed` is the probability that may be lost in them.
    pub(crate) edge: Vec<u32>,
    pub(crate) allowed: f64,
}

/// Answers, and statistics of the computations.
#[derive(Debug)]
pub(crate) struct Solved {
    pub(crate) answers: Vec<Answer>,
    /// Reason why an answer is not available, by answer.
    pub(crate) refused: Vec<Option<String>>,
    pub(crate) status: Status,
    pub(crate) sweeps: usize,
    pub(crate) terms: u64,
    /// Maximum of each error term over all runs.
    pub(crate) bound: Parts,
    /// Maximum probability in each boundary state over all runs.
    pub(crate) left: Vec<f64>,
}

impl Needs {
    /// Runs the planned computations, and returns all answers with statistics.
    pub(crate) fn solve(
        self,
        chain: Chain,
        machine: &Machine,
        options: &Options,
        watch: &mut dyn Progress,
    ) -> Result<Solved> {
        let Self { mut sweeps, absorbed, mut reached, paths, rewards, limits, answers, edge, allowed } = self;
        let transitions: Arc<dyn Transitions> = chain.transitions.into();
        let left = vec![0.0; edge.len()];
        let bound = Parts::default();
        let refused = vec![None; answers.len()];
        let mut solved = Solved { answers, refused, status: Status::Met, sweeps: 0, terms: 0, bound, left };
        let decided = decide_paths(&paths, &*transitions, &edge, &mut solved.answers);
        // The sets of paths take memory during the runs.
        let paths: Vec<usize> = paths.into_iter().map(|path| path.answer).collect();
        let open = |answer: usize| solved.answers[answer].error > 0.0;
        sweeps.iter_mut().for_each(|sweep| sweep.asked.retain(|asked| open(asked.answer)));
        sweeps.retain(|sweep| !sweep.asked.is_empty());
        reached.iter_mut().for_each(|reached| reached.asked.retain(|(answer, _)| open(*answer)));
        reached.retain(|reached| !reached.asked.is_empty());
        for reached in reached {
            let reached = reached.narrowed(&paths, &decided);
            let chain = Chain::new("a chain", Box::new(transitions.clone())).absorbing(&reached.absorbing);
            let found = reached.solve(&*chain.transitions, machine, options, watch, &mut solved);
            let all = reached.asked.iter().map(|(answer, _)| *answer);
            if solved.kept(found, all)? == Some(false) {
                reached.sweep_with(&mut sweeps);
            }
        }
        for sweep in &sweeps {
            let own = Chain::new(&*chain.name, Box::new(transitions.clone()));
            let found = sweep.solve(own, &rewards, (&edge, allowed), machine, options, watch);
            let found = match solved.kept(found, sweep.asked.iter().map(|asked| asked.answer))? {
                None => continue,
                Some(Ok(found)) => found,
                Some(Err(left)) => {
                    solved.left = left;
                    return Ok(solved);
                }
            };
            solved.left.iter_mut().zip(&found.left).for_each(|(most, left)| *most = most.max(*left));
            solved.bound = solved.bound.worst(&found.solution.bound);
            solved.sweeps += 1 + usize::from(sweep.later.is_some());
            solved.terms += found.solution.terms;
            if found.solution.status == Status::NotMet {
                solved.status = Status::NotMet;
            }
            for ((asked, sum), place) in sweep.asked.iter().zip(&found.sums).zip(&found.places) {
                let result = &found.solution.times[*place];
                let (total, loss) = (result.bound.total(), result.bound.loss);
                let rounding = rounding(&found.solution, result, machine.precision);
                let value = |k: usize| &result.rewards[found.reward_place(k)];
                solved.answers[asked.answer] = match asked.what {
                    Quantity::States(_) => {
                        // Clamping to [0, 1] brings the value closer to the exact probability.
                        let value = (sum - found.early).clamp(0.0, 1.0);
                        // A sum of several probabilities is rounded, and so is a difference.
                        let rounded = asked.is_sum() || found.early > 0.0;
                        let rounding = if rounded { f64::EPSILON * (sum + found.early) } else { 0.0 };
                        Answer { value, error: total + rounding, loss, inside: false }
                    }
                    Quantity::Instantaneous(k) => Answer {
                        value: if found.vectors { *sum } else { value(k).instantaneous },
                        error: limits[k] * (total + rounding),
                        loss: limits[k] * loss,
                        inside: false,
                    },
                    Quantity::Cumulative(k) => Answer {
                        value: value(k).cumulative,
                        error: limits[k]
                            * cumulative_error(result, rounding, &found.solution, machine.precision),
                        loss: limits[k] * asked.time * loss,
                        inside: false,
                    },
                };
            }
        }
        for absorbed in &absorbed {
            let chain = Chain::new("a chain", Box::new(transitions.clone())).absorbing(&absorbed.absorbing);
            let found = absorbed.solve(&*chain.transitions, &rewards, machine, options, watch, &mut solved);
            solved.kept(found, absorbed.asked.iter().map(|(answer, _)| *answer))?;
        }
        for (path, decided) in paths.iter().zip(&decided) {
            let answer = &mut solved.answers[*path];
            answer.inside = answer.error > 0.0 && decided.others;
        }
        Ok(solved)
    }
}

impl Solved {
    /// Returns the result, or `None` after recording why these answers are rejected.
    fn kept<T>(&mut self, found: Result<T>, answers: impl Iterator<Item = usize>) -> Result<Option<T>> {
        match found {
            Err(Error::Invalid(_, why)) => {
                answers.for_each(|answer| self.refused[answer] = Some(why.clone()));
                Ok(None)
            }
            other => other.map(Some),
        }
    }
}

/// Decides path formulas by the graph, in their order, and sets answers that are 0 or 1.
fn decide_paths(
    paths: &[Path],
    transitions: &dyn Transitions,
    edge: &[u32],
    answers: &mut [Answer],
) -> Vec<Arc<Decided>> {
    let mut all: Vec<Arc<Decided>> = Vec::new();
    for (k, path) in paths.iter().enumerate() {
        let (from, to) = path.times;
        let kind = |(from, to): (f64, f64)| (from > 0.0, from == to, to == 0.0, to.is_infinite());
        let same = |other: &Path| {
            Arc::ptr_eq(&other.left, &path.left)
                && Arc::ptr_eq(&other.right, &path.right)
                && kind(other.times) == kind(path.times)
        };
        let decided = match paths[..k].iter().position(same) {
            Some(place) => all[place].clone(),
            None => {
                let whole = |set: &[u32]| {
                    let mut all = vec![false; transitions.states()];
                    set.iter().for_each(|&state| all[state as usize] = true);
                    all
                };
                let search = |targets: &[bool], through: &[bool]| may_reach(transitions, targets, through);
                let (left, right) = (whole(&path.left), whole(&path.right));
                Arc::new(Decided::until(
                    &search,
                    (&left, &right),
                    (from, to),
                    (edge, transitions.is_discrete()),
                ))
            }
        };
        let begins = listed(&path.initial);
        let in_all = |set: &[bool]| begins.iter().all(|&state| set[state as usize]);
        if in_all(&decided.never) || in_all(&decided.surely) {
            answers[path.answer] = Answer::new(f64::from(u8::from(in_all(&decided.surely))), 0.0);
        }
        all.push(decided);
    }
    all
}

impl Reached {
    /// Computes the answers by linear systems. Returns false if this takes too long.
    fn solve(
        &self,
        transitions: &dyn Transitions,
        machine: &Machine,
        options: &Options,
        watch: &mut dyn Progress,
        solved: &mut Solved,
    ) -> Result<bool> {
        let sets: Vec<&[u32]> = self.asked.iter().map(|(_, set)| &set[..]).collect();
        let found = reachability(machine, transitions, &self.initial, &sets, options.epsilon, watch)?;
        let Some(found) = found else { return Ok(false) };
        solved.sweeps += 1;
        solved.terms += found.iterations;
        for ((answer, _), Total { value, bound }) in self.asked.iter().zip(found.probabilities) {
            let bound = bound.min(1.0);
            if bound > options.epsilon {
                solved.status = Status::NotMet;
            }
            solved.bound = solved.bound.worst(&Parts { steady_state: bound, ..Parts::default() });
            solved.answers[*answer] = Answer::new(value.clamp(0.0, 1.0), bound);
        }
        Ok(true)
    }

    /// Makes states absorbing from which all requested probabilities are decided.
    fn narrowed(self, paths: &[usize], decided: &[Arc<Decided>]) -> Self {
        let of = |(answer, _): &(usize, Set)| {
            let place = paths.iter().position(|path| path == answer);
            &*decided[place.expect("a path of each probability that is asked for")]
        };
        let all: Vec<&Decided> = self.asked.iter().map(of).collect();
        let over = |s: usize| all.iter().all(|decided| decided.never[s] || decided.surely[s]);
        let ends: Vec<bool> = (0..all[0].never.len()).map(over).collect();
        let surely = |decided: &Decided| {
            let both: Vec<bool> = decided.surely.iter().zip(&ends).map(|(a, b)| *a && *b).collect();
            Arc::new(members(&both))
        };
        let asked = self.asked.iter().zip(&all).map(|((answer, _), decided)| (*answer, surely(decided)));
        Self { asked: asked.collect(), absorbing: Arc::new(members(&ends)), ..self }
    }

    /// Requests these probabilities from uniformization at time ∞, instead of linear systems.
    fn sweep_with(self, sweeps: &mut Vec<UniformizationRun>) {
        let Self { absorbing, initial, asked } = self;
        let asked = asked.into_iter().map(|(answer, set)| Request {
            answer,
            time: f64::INFINITY,
            what: Quantity::States(set),
        });
        let same = |sweep: &&mut UniformizationRun| {
            sweep.later.is_none() && Arc::ptr_eq(&sweep.absorbing, &absorbing) && sweep.initial == initial
        };
        match sweeps.iter_mut().find(same) {
            Some(sweep) => sweep.asked.extend(asked),
            None => {
                sweeps.push(UniformizationRun { absorbing, initial, later: None, asked: asked.collect() });
            }
        }
    }
}

impl Absorbed {
    fn solve(
        &self,
        transitions: &dyn Transitions,
        rewards: &[Reward],
        machine: &Machine,
        options: &Options,
        watch: &mut dyn Progress,
        solved: &mut Solved,
    ) -> Result<()> {
        let own: Vec<Reward> =
            self.asked.iter().filter_map(|(_, reward)| reward.map(|k| rewards[k].clone())).collect();
        let found =
            until_absorption(machine, transitions, &self.initial, &self.absorbing, &own, options, watch)?;
        solved.sweeps += 1;
        solved.terms += found.iterations;
        if found.status == Status::NotMet {
            solved.status = Status::NotMet;
        }
        let mut totals = found.rewards.into_iter();
        for (answer, reward) in &self.asked {
            let total = if reward.is_some() { totals.next() } else { Some(found.time) };
            let Total { value, bound } = total.expect("a total of each reward");
            solved.answers[*answer] = Answer::new(value, bound);
        }
        Ok(())
    }
}
