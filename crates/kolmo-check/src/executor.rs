//! Execution of planned computations, and the answers that they give.

use std::sync::Arc;

use crate::answer::Answer;
use crate::gradient::{self, AnswerDerivatives, Differentiated, RateDerivatives};
use crate::qualitative::Decided;
use crate::reduced::Reduction;
use crate::source::listed;
use crate::state_sets::{States, mask, members};
use crate::uniformization::{
    Begun, Measure, PhaseRates, ResultsOrLoss, RunStage, TimedMeasure, UniformizationRun, complete, rounding,
};
use kolmo::transient::{
    Bound as Parts, Chain, Initial, Options, Reward, Status, Total, Transitions, may_reach, reachability,
    until_absorption,
};
use kolmo::{Error, Machine, Progress, Result};

/// Requested computations on one chain in which a set of states is made absorbing.
#[derive(Debug)]
pub(crate) struct AbsorbingRun<T> {
    pub(crate) absorbing: States,
    pub(crate) initial: Initial,
    pub(crate) asked: Vec<T>,
}

/// Expected rewards and times until absorption.
///
/// A request is the index of its answer, and of its reward; `None` for the expected time.
pub(crate) type Absorbed = AbsorbingRun<(usize, Option<usize>)>;

/// Moves these requests to a uniformization run at time ∞, instead of linear systems.
pub(crate) type Reached = AbsorbingRun<(usize, States)>;

/// Path formula that graph analysis may decide, with probability 0 or 1.
#[derive(Debug)]
pub(crate) struct PathQuery {
    pub(crate) answer: usize,
    pub(crate) initial: Initial,
    pub(crate) left: States,
    pub(crate) right: States,
    pub(crate) times: (f64, f64),
}

/// Computations to run, and the answers known so far.
#[derive(Default)]
pub(crate) struct Needs {
    pub(crate) sweeps: Vec<UniformizationRun>,
    pub(crate) absorbed: Vec<Absorbed>,
    pub(crate) reached: Vec<Reached>,
    pub(crate) paths: Vec<PathQuery>,
    pub(crate) rewards: Vec<Reward>,
    /// Upper bound of each reward structure's absolute values in any state.
    pub(crate) limits: Vec<f64>,
    pub(crate) answers: Vec<Answer>,
    /// Phases of a schedule; none if the rates are constant.
    pub(crate) phases: Vec<PhaseRates>,
    /// Derivatives of rates and rewards by the constants of the gradient.
    pub(crate) gradient: Vec<RateDerivatives>,
    /// Boundary states. `allowed` is the probability that may be lost in them.
    pub(crate) edge: Vec<u32>,
    pub(crate) allowed: f64,
}

impl Needs {
    fn differentiated(&self) -> Differentiated<'_> {
        Differentiated { rewards: &self.rewards, gradient: &self.gradient }
    }

    /// Returns the largest requested time of all uniformization runs.
    pub(crate) fn horizon(&self) -> f64 {
        self.sweeps.iter().flat_map(|run| &run.asked).fold(0.0, |most, asked| most.max(asked.time))
    }

    /// Returns a value that is equal for answers of the same run, time and quantity.
    ///
    /// `None` if the answer needs no run.
    pub(crate) fn request(&self, answer: usize) -> Option<impl PartialEq> {
        self.sweeps.iter().find_map(|run| {
            let asked = run.asked.iter().find(|asked| asked.answer == answer)?;
            Some((&run.absorbing, &run.initial, &run.later, asked.time, &asked.what))
        })
    }
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
    /// Derivatives of the answers, if requested.
    pub(crate) derivatives: AnswerDerivatives,
}

/// Planned computations of a chain, with the results so far.
struct ChainWork {
    transitions: Arc<dyn Transitions>,
    needs: Needs,
    /// Index of each path formula's answer, and its qualitative result.
    decided: Vec<(usize, Arc<Decided>)>,
    solved: Solved,
    /// True if boundary states have more than the allowed probability; further runs are skipped.
    exceeded: bool,
}

/// Performs the planned computations of chains with equal patterns of transitions.
///
/// Returns the answers of each chain with statistics, or its error. `known` caches qualitative
/// results for the pattern. Uniformization runs of several chains use all lanes of `machine`, their
/// other computations CPU lanes and one lane per GPU. A single chain uses all lanes.
pub(crate) fn solve_all(
    batch: Vec<(Needs, Chain)>,
    known: &mut Decisions,
    (machine, options): (&Machine, &Options),
    watch: &mut dyn Progress,
) -> Vec<Result<Solved>> {
    let lanes = machine;
    let solver = (&if batch.len() == 1 { lanes.clone() } else { lanes.one_lane_per_gpu() }, options);
    let begin = |(needs, chain)| ChainWork::begin(needs, chain, known, solver, watch);
    let mut all: Vec<Result<ChainWork>> = batch.into_iter().map(begin).collect();
    let most = all.iter().flatten().map(|work| work.needs.sweeps.len()).max().unwrap_or(0);
    (0..most).for_each(|k| run_all(&mut all, k, solver, lanes, watch));
    all.into_iter().map(|work| work?.end(solver, watch)).collect()
}

/// Performs uniformization run number `k` of each chain, on all lanes of the machine `lanes`.
fn run_all(
    all: &mut [Result<ChainWork>],
    k: usize,
    (machine, options): (&Machine, &Options),
    lanes: &Machine,
    watch: &mut dyn Progress,
) {
    let (mut owners, mut begun, mut done) = (Vec::new(), Vec::new(), Vec::new());
    // These runs often differ only in their rates.
    let mut reduction = None;
    for (owner, work) in all.iter().enumerate() {
        let Ok(work) = work else { continue };
        let Some(run) = work.needs.sweeps.get(k).filter(|_| !work.exceeded) else { continue };
        match work.begin_run(run, &mut reduction, (machine, options), watch) {
            Ok(run) => (owners.push(owner), begun.push(run)).0,
            Err(error) => done.push((owner, Err(error))),
        }
    }
    let lanes = if begun.len() == 1 { machine } else { lanes };
    done.extend(owners.into_iter().zip(complete(begun, lanes, watch)));
    for (owner, found) in done {
        let Ok(work) = &mut all[owner] else { continue };
        if let Err(error) = work.take(k, found, machine) {
            all[owner] = Err(error);
        }
    }
}

impl ChainWork {
    /// Analyses path formulas on the graph, and solves linear systems for unbounded times.
    ///
    /// If a linear system takes too long, a uniformization run is planned instead.
    fn begin(
        mut needs: Needs,
        chain: Chain,
        known: &mut Decisions,
        (machine, options): (&Machine, &Options),
        watch: &mut dyn Progress,
    ) -> Result<Self> {
        let transitions: Arc<dyn Transitions> = chain.transitions.into();
        let mut solved = Solved {
            answers: std::mem::take(&mut needs.answers),
            refused: Vec::new(),
            status: Status::Met,
            sweeps: 0,
            terms: 0,
            bound: Parts::default(),
            left: vec![0.0; needs.edge.len()],
            derivatives: AnswerDerivatives::new(),
        };
        solved.refused.resize(solved.answers.len(), None);
        let mut paths = std::mem::take(&mut needs.paths);
        if !needs.phases.is_empty() {
            // The phases may have different patterns of transitions.
            paths.clear();
        }
        let decided = known.decide(&paths, &*transitions, &needs.edge, &mut solved.answers);
        // The solvers need memory: free the state sets of path formulas.
        drop(paths);
        known.forget();
        let open = |answer: usize| solved.answers[answer].error > 0.0;
        needs.sweeps.iter_mut().for_each(|sweep| sweep.asked.retain(|asked| open(asked.answer)));
        needs.sweeps.retain(|sweep| !sweep.asked.is_empty());
        needs.reached.iter_mut().for_each(|reached| reached.asked.retain(|(answer, _)| open(*answer)));
        needs.reached.retain(|reached| !reached.asked.is_empty());
        for reached in std::mem::take(&mut needs.reached) {
            let reached = reached.narrowed(&decided);
            let chain = Chain::new("a chain", Box::new(transitions.clone())).absorbing(&reached.absorbing);
            let found = reached.solve(&*chain.transitions, machine, options, watch, &mut solved);
            let all = reached.asked.iter().map(|(answer, _)| *answer);
            if solved.kept(found, all)? == Some(false) {
                reached.sweep_with(&mut needs.sweeps);
            } else if !needs.gradient.is_empty() {
                needs.reached.push(reached);
            }
        }
        Ok(Self { transitions, needs, decided, solved, exceeded: false })
    }

    fn begin_run<'a>(
        &'a self,
        run: &'a UniformizationRun,
        reduction: &mut Option<Arc<Reduction>>,
        (machine, options): (&Machine, &Options),
        watch: &mut dyn Progress,
    ) -> Result<Begun<'a>> {
        let Needs { rewards, edge, allowed, phases, .. } = &self.needs;
        let stage = |(end, late), transitions: &Arc<dyn Transitions>, rewards| RunStage {
            end,
            late,
            transitions: transitions.clone(),
            rewards,
            given: Arc::default(),
        };
        let mut stages: Vec<RunStage<'_>> = Vec::new();
        let mut start: f64 = 0.0;
        for phase in phases {
            // The lower time bound of an interval splits the phase that contains it. A change that
            // may happen at this bound is moved before it.
            let split = run.later.as_ref().map(|(_, from)| *from);
            let (mut end, mut late) = phase.end;
            if let Some(from) = split.filter(|from| late > 0.0 && (from - end).abs() <= late) {
                end = (from * (1.0 - 4.0 * f64::EPSILON)).max(start.next_up());
                late += (end - phase.end.0).abs();
            }
            let split = split.filter(|from| (start..end).contains(from) && *from > start);
            let ends = split.map(|from| (from, 0.0)).into_iter().chain([(end, late)]);
            stages.extend(ends.map(|end| stage(end, &phase.transitions, &phase.rewards[..])));
            start = end;
        }
        if stages.is_empty() {
            stages.push(stage((f64::INFINITY, 0.0), &self.transitions, rewards));
        }
        run.begin(stages, (edge, *allowed), reduction, (machine, options), watch)
    }

    /// Enters the results of uniformization run number `k` into the answers.
    fn take(&mut self, k: usize, found: Result<ResultsOrLoss>, machine: &Machine) -> Result<()> {
        let Self { needs: Needs { sweeps, limits, .. }, solved, exceeded, .. } = self;
        let sweep = &sweeps[k];
        let found = match solved.kept(found, sweep.asked.iter().map(|asked| asked.answer))? {
            None => return Ok(()),
            Some(Ok(found)) => found,
            Some(Err(left)) => {
                (solved.left, *exceeded) = (left, true);
                return Ok(());
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
                Measure::States(_) => {
                    // Clamping to [0, 1] brings the value closer to the exact probability.
                    let value = (sum - found.early).clamp(0.0, 1.0);
                    // Sums of several probabilities and differences have a rounding error.
                    let rounded = asked.is_sum() || found.early > 0.0;
                    let rounding = if rounded { f64::EPSILON * (sum + found.early) } else { 0.0 };
                    Answer { value, error: total + rounding, loss, inside: false }
                }
                Measure::Instantaneous(k) => Answer {
                    value: if found.vectors { *sum } else { value(k).instantaneous },
                    error: limits[k] * (total + rounding),
                    loss: limits[k] * loss,
                    inside: false,
                },
                Measure::Cumulative(k) => Answer {
                    value: value(k).cumulative,
                    error: limits[k] * found.cumulative_error(*place, machine.precision),
                    loss: limits[k] * asked.time * loss,
                    inside: false,
                },
            };
        }
        Ok(())
    }

    /// Computes rewards and times until absorption, and completes the answers.
    fn end(mut self, (machine, options): (&Machine, &Options), watch: &mut dyn Progress) -> Result<Solved> {
        let (solved, needs) = (&mut self.solved, &self.needs);
        if self.exceeded {
            return Ok(self.solved);
        }
        for absorbed in &needs.absorbed {
            let chain = Chain::new("a chain", Box::new(self.transitions.clone()));
            let chain = chain.absorbing(&absorbed.absorbing);
            let found = absorbed.solve(&*chain.transitions, &needs.rewards, machine, options, watch, solved);
            solved.kept(found, absorbed.asked.iter().map(|(answer, _)| *answer))?;
        }
        if !needs.gradient.is_empty() {
            let of = &self.transitions;
            let mut take = |(status, found): (Status, AnswerDerivatives)| {
                solved.status = if status == Status::Met { solved.status } else { status };
                solved.derivatives.extend(found);
            };
            for run in needs.sweeps.iter().flat_map(|run| [(run, false), (run, true)]) {
                take(gradient::solve(run, of, needs.differentiated(), (machine, options), watch)?);
            }
            let reached = needs.reached.iter().flat_map(|AbsorbingRun { absorbing, initial, asked }| {
                asked
                    .iter()
                    .map(move |(answer, set)| (*answer, Some(&set[..]), None, &absorbing[..], initial))
            });
            let absorbed = needs.absorbed.iter().flat_map(|AbsorbingRun { absorbing, initial, asked }| {
                asked.iter().map(move |(answer, k)| (*answer, None, *k, &absorbing[..], initial))
            });
            for asked in reached.chain(absorbed) {
                take(gradient::solve_ever(asked, of, needs.differentiated(), options, watch)?);
            }
        }
        for (path, decided) in &self.decided {
            let answer = &mut solved.answers[*path];
            if answer.error == 0.0 {
                // The graph decides the answer, and rates do not change it.
                let zeros = vec![Ok(Answer::new(0.0, 0.0)); needs.gradient.len()];
                solved.derivatives.entry(*path).or_insert(zeros);
            }
            answer.inside = answer.error > 0.0 && decided.others;
        }
        Ok(self.solved)
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

/// Properties of a time interval, `from` to `to`, on which qualitative results depend.
///
/// True for: `from` > 0, `from` = `to`, `to` = 0, `to` = ∞.
type IntervalKind = [bool; 4];

/// Qualitative results on one graph, by the state sets of a formula and the kind of its interval.
#[derive(Debug)]
pub(crate) struct Decisions {
    all: Vec<(States, States, IntervalKind, Arc<Decided>)>,
    /// True if results are kept for further chains with this graph.
    kept: bool,
}

/// Maximum number of results that are kept for further chains.
const DECISIONS: usize = 64;

impl Decisions {
    /// Creates an empty cache. `kept`: results are kept for further chains with one graph.
    pub(crate) fn new(kept: bool) -> Self {
        Self { all: Vec::new(), kept }
    }

    /// Drops all results; required before a chain with another graph.
    pub(crate) fn clear(&mut self) {
        self.all.clear();
    }

    /// Drops all results, or all but the newest 64 if results are kept.
    fn forget(&mut self) {
        let kept = if self.kept { DECISIONS } else { 0 };
        self.all.drain(..self.all.len().saturating_sub(kept));
    }

    /// Computes qualitative results of path formulas, and sets answers that are exactly 0 or 1.
    ///
    /// Returns the index of each formula's answer with its result, in the order of `paths`.
    fn decide(
        &mut self,
        paths: &[PathQuery],
        transitions: &dyn Transitions,
        edge: &[u32],
        answers: &mut [Answer],
    ) -> Vec<(usize, Arc<Decided>)> {
        let equal = |a: &States, b: &States| Arc::ptr_eq(a, b) || a == b;
        let mut all = Vec::new();
        for PathQuery { answer, initial, left, right, times: (from, to) } in paths {
            let kind = [*from > 0.0, from == to, *to == 0.0, to.is_infinite()];
            let same = |(l, r, k, _): &&(States, States, IntervalKind, Arc<Decided>)| {
                *k == kind && equal(l, left) && equal(r, right)
            };
            let known = self.all.iter().find(same).map(|(.., decided)| decided.clone());
            let decided = known.unwrap_or_else(|| {
                let n = transitions.states();
                let search = |targets: &[bool], through: &[bool]| may_reach(transitions, targets, through);
                let sets = (&mask(left, n)[..], &mask(right, n)[..]);
                let decided = Decided::until(&search, sets, (*from, *to), (edge, transitions.is_discrete()));
                let decided = Arc::new(decided);
                self.all.push((left.clone(), right.clone(), kind, decided.clone()));
                decided
            });
            let begins = listed(initial);
            let in_all = |set: &[bool]| begins.iter().all(|&state| set[state as usize]);
            if in_all(&decided.never) || in_all(&decided.surely) {
                answers[*answer] = Answer::new(f64::from(u8::from(in_all(&decided.surely))), 0.0);
            }
            all.push((*answer, decided));
        }
        all
    }
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
    fn narrowed(self, decided: &[(usize, Arc<Decided>)]) -> Self {
        let of = |(answer, _): &(usize, States)| {
            let known = decided.iter().find(|(path, _)| path == answer);
            &*known.expect("a path of each probability that is asked for").1
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
        let asked = asked.into_iter().map(|(answer, set)| TimedMeasure {
            answer,
            time: f64::INFINITY,
            what: Measure::States(set),
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
