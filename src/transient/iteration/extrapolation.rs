//! Extrapolation after [early termination](super::quasi_stationary), on the host.
//!
//! The transient states may consist of several classes, none of which leads to another. The
//! extrapolations of all classes are then added, and so are their error bounds.
//!
//! If the rounding of a step would cost too much, the extrapolation uses a double-double vector q.
//! Its residual r = qP − μq, with the decay factor μ of the class, is computed in double-double
//! arithmetic, so that no step adds rounding. The vector q is corrected by Σ_{i<N} r P^i until the
//! residual is small. If P is periodic, (I + P)/2 and half the sum are used instead.
//! `docs/certificate.md` has the proof.

use super::quasi_stationary::{EarlyTermination, Shares};
use super::{Iteration, Which};
use crate::kernel::{Number, Precision};
use crate::numerics::double_double::CompensatedSum;
use crate::parallel::*;
use crate::transient::chain::recurrent_classes::last_classes;
use crate::transient::context::{Context, total};
use crate::util::memory::expect_memory;
use crate::{Error, Progress, Result};

/// Number of states that a thread processes at once.
const ROWS: usize = 4096;
/// Maximum number of corrections of a double-double vector.
///
/// Each takes 1/`CORRECTIONS` of the steps that led to the vector.
const CORRECTIONS: u64 = 4;
/// Maximum number of steps of a correction; one weight for each step is stored.
const MOST_STEPS: u64 = 1 << 20;

/// Maximum number of transient classes with an extrapolation each.
const MOST_CLASSES: usize = 64;
/// Maximum number of stored elements of the flows of all classes.
const MOST_NUMBERS: usize = 1 << 27;
/// Class index of a state that is in no class.
const NO_CLASS: u8 = u8::MAX;

/// A reward evaluated on the extrapolation.
///
/// It has a value for the mass absorbed so far. For each transient class it has the values for its
/// vector and for its absorption flow per step.
pub(crate) struct ExtrapolatedReward {
    absorbing: f64,
    classes: Vec<[f64; 2]>,
}

impl ExtrapolatedReward {
    /// Returns the reward's value, given [`Shares::at`] or [`Shares::until`] for each class.
    pub(crate) fn value(&self, shares: impl Iterator<Item = [f64; 3]> + Clone) -> f64 {
        let rest = shares.clone().next().map_or(0.0, |[rest, ..]| rest * self.absorbing);
        let classes = self.classes.iter().zip(shares);
        classes.fold(rest, |sum, ([own, flow], [_, shrunk, grown])| sum + shrunk * own + grown * flow)
    }
}

/// The extrapolation, as one vector and one absorption flow for each transient class.
pub(crate) struct Extrapolation<'a, T> {
    context: &'a Context<'a, T>,
    /// Vectors of all classes on their states; mass absorbed so far on absorbing states.
    x: Vec<f64>,
    /// Class of each state; empty if all transient states are one class.
    class: Vec<u8>,
    /// For each class the absorption flow per step; empty if there are no absorbing states.
    flow: Vec<Vec<f64>>,
    pub(crate) rewards: Vec<ExtrapolatedReward>,
}

/// Additional error of a refined extrapolation, and the cost of the refinement.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Refinement {
    /// l1 distance of the refined vector to the iterate that it replaces.
    pub(crate) shift: f64,
    /// Matrix–vector products of the refinement.
    pub(crate) steps: u64,
}

impl<'a, T: Number> Extrapolation<'a, T> {
    /// Builds the extrapolation for one class from the last two iterates.
    pub(crate) fn new(context: &'a Context<'a, T>, iteration: &Iteration<'_, T>) -> Result<Self> {
        let x = iteration.iterate(Which::Before)?;
        let mut flow = Vec::new();
        if !context.statistics.non_absorbing.all() {
            let mut newest = iteration.newest()?;
            newest.par_iter_mut().zip(&x).for_each(|(y, x)| *y -= x);
            flow.push(newest);
        }
        Ok(Self { context, x, class: Vec::new(), flow, rewards: Vec::new() })
    }

    /// Builds the extrapolation for several classes from the last iterate but one, without flows.
    pub(crate) fn of_classes(
        context: &'a Context<'a, T>,
        iteration: &Iteration<'_, T>,
        class: Vec<u8>,
    ) -> Result<Self> {
        let x = iteration.iterate(Which::Before)?;
        Ok(Self { context, x, class, flow: Vec::new(), rewards: Vec::new() })
    }

    /// Returns the class of a state, `None` if it is in no class.
    fn class_of(&self, state: usize) -> Option<usize> {
        let non_absorbing = &self.context.statistics.non_absorbing;
        match self.class.get(state) {
            Some(&NO_CLASS) => None,
            Some(&class) => Some(class.into()),
            None => (non_absorbing.all() || non_absorbing.contains(state)).then_some(0),
        }
    }

    /// Returns true if a state is absorbing.
    fn absorbing(&self, state: usize) -> bool {
        let non_absorbing = &self.context.statistics.non_absorbing;
        !non_absorbing.all() && !non_absorbing.contains(state)
    }

    /// Computes all rewards on the extrapolation's vectors.
    pub(crate) fn collect_rewards(&mut self, rewards: &[(&'a [f64], f64)], classes: usize) {
        let ranks = self.context.parts.ranks;
        let sum = |values: &[f64], (reward, scale): &(&[f64], f64), among: &dyn Fn(usize) -> bool| {
            let products = |(i, (p, r)): (usize, (&f64, &f64))| if among(i) { r * scale * p } else { 0.0 };
            let products: Vec<f64> = values.iter().zip(*reward).enumerate().map(products).collect();
            total(&products, ranks)
        };
        let reward_of = |reward: &(&'a [f64], f64)| {
            let absorbing = sum(&self.x, reward, &|i| self.absorbing(i));
            let class = |class: usize| {
                let own = sum(&self.x, reward, &|i| self.class_of(i) == Some(class));
                let flow = self.flow.get(class).map(|flow| sum(flow, reward, &|i| self.absorbing(i)));
                [own, flow.unwrap_or(0.0)]
            };
            ExtrapolatedReward { absorbing, classes: (0..classes).map(class).collect() }
        };
        self.rewards = rewards.iter().map(reward_of).collect();
    }

    /// Divides all vectors and absorption flows by `mass`, which normalises them.
    pub(crate) fn divide(&mut self, mass: f64) {
        for values in std::iter::once(&mut self.x).chain(&mut self.flow) {
            values.par_iter_mut().for_each(|p| *p /= mass);
        }
    }

    /// Returns the number of states.
    pub(crate) fn len(&self) -> usize {
        self.x.len()
    }

    /// Adds the extrapolation to a result, weighted with the [`Shares`] of each class.
    pub(crate) fn add_to(&self, result: &mut [f64], shares: &[Shares]) {
        let add = |(i, p): (usize, &mut f64)| match self.class_of(i) {
            Some(class) => *p += shares[class].at[1] * self.x[i],
            None if self.absorbing(i) => {
                let flows = self.flow.iter().zip(shares);
                *p += flows.fold(shares[0].at[0] * self.x[i], |p, (flow, s)| p + s.at[2] * flow[i]);
            }
            None => {}
        };
        result.par_iter_mut().enumerate().with_min_len(4096).for_each(add);
    }
}

/// Finds several transient classes that lead only into themselves or to absorbing states.
///
/// Returns the class of each state (see
/// [`recurrent_classes`](crate::transient::chain::recurrent_classes)), and the number of classes.
/// Transient states in no class must have lost their probability.
pub(crate) fn transient_classes<T: Number>(context: &Context<'_, T>) -> Option<(Vec<u8>, usize)> {
    let (non_absorbing, n) = (&context.statistics.non_absorbing, context.initial.len());
    if non_absorbing.all() {
        return None;
    }
    let absorbing = |state: usize| !non_absorbing.contains(state);
    let (class, count) = last_classes(context.problem.transitions, &context.initial, &absorbing);
    let several = (2..=MOST_CLASSES).contains(&count) && count * n <= MOST_NUMBERS;
    several.then(|| {
        (class.into_iter().map(|class| class.map_or(NO_CLASS, |class| class as u8)).collect(), count)
    })
}

/// Decay rates, defects and flows of double-double vectors q, one for each transient class.
struct ClassResidual {
    /// For each class the decay rate 1 − μ per step.
    decays: Vec<f64>,
    /// For each class a bound on the l1 norm of the residual qP − μq.
    defects: Vec<f64>,
    /// For each class the flow into absorbing states per step.
    flow: Vec<Vec<f64>>,
    /// The residual qP − μq, each class with its own μ.
    residual: Vec<f64>,
}

impl<T: Number> Extrapolation<'_, T> {
    /// Returns true if an extrapolation can be refined in double-double arithmetic.
    ///
    /// The residual is computed from all transitions, in double precision on one process, and takes
    /// memory.
    pub(crate) fn refines(context: &Context<'_, T>) -> bool {
        let room = || {
            expect_memory(80 * context.initial.len() as u64, || {
                "an extrapolation in double-double".to_owned()
            })
        };
        T::PRECISION == Precision::F64 && !context.parts.ranks.is_distributed() && room().is_ok()
    }

    /// Improves the vector of each class in double-double arithmetic.
    ///
    /// `terminations` has the decay and the defect of the vector of each class, and receives those
    /// of the new one. The shift is the distance of the new vector from the iterate. Corrections
    /// end when `enough` accepts terminations and shift, or when they make no progress. `steps` is
    /// the number of steps to the current vector. The iterates on the lanes are overwritten.
    pub(crate) fn refine(
        &mut self,
        steps: u64,
        before: u64,
        terminations: &mut [EarlyTermination],
        enough: impl Fn(&[EarlyTermination], f64) -> bool,
        observer: &mut dyn Progress,
    ) -> Result<Refinement> {
        let number = |(state, &sum)| match self.class_of(state) {
            Some(_) => CompensatedSum { sum, lost: 0.0 },
            None => CompensatedSum::default(),
        };
        let mut vector: Vec<CompensatedSum> = self.x.iter().enumerate().map(number).collect();
        let mut current = self.residual_of(&vector, terminations.len());
        let mut found = Refinement::default();
        let steps = (steps / CORRECTIONS).clamp(64, MOST_STEPS);
        let mut halved = false;
        let mut iteration = self.correcting(1.0, before)?;
        for left in (0..=CORRECTIONS).rev() {
            found.shift = self.shift(&vector);
            for (class, termination) in terminations.iter_mut().enumerate() {
                (termination.decay, termination.defect, termination.rounding) =
                    (current.decays[class], current.defects[class], 0.0);
            }
            if left == 0 || enough(terminations, found.shift) {
                break;
            }
            // The sum with (I + P)/2 has half the weight of the sum with P.
            let factor = if halved { 0.5 } else { 1.0 };
            let next = match correct(&mut iteration, &vector, &current.residual, factor, steps, observer) {
                Err(Error::OutOfMemory { .. }) => break,
                next => next?,
            };
            found.steps += steps;
            let then = self.residual_of(&next, terminations.len());
            let sum = |current: &ClassResidual| current.defects.iter().sum::<f64>();
            // NaN is no progress, either.
            if sum(&then) < 0.5 * sum(&current) {
                (vector, current) = (next, then);
            } else if !halved && self.alternates(&then.residual) {
                // P is periodic, or nearly so; (I + P)/2 is not.
                halved = true;
                iteration = self.correcting(0.5, before + found.steps)?;
            } else {
                break;
            }
        }
        for (state, q) in vector.iter().enumerate() {
            if !self.absorbing(state) {
                self.x[state] = q.value().max(0.0);
            }
        }
        self.flow = current.flow;
        Ok(found)
    }

    /// Allocates an iteration for corrections with the matrix P (`share` 1) or (I + P)/2 (½).
    fn correcting(&self, share: f64, before: u64) -> Result<Iteration<'_, T>> {
        let Context { machine, parts, statistics, .. } = self.context;
        let inverse_alpha = T::of(share * statistics.inverse_alpha.wide());
        Iteration::new(&machine.lanes, parts, inverse_alpha, &[], (before, before), false)
    }

    /// Returns true if a step changes the sign of a residual rather than preserving it.
    fn alternates(&self, residual: &[f64]) -> bool {
        let (statistics, transitions) = (&self.context.statistics, self.context.problem.transitions);
        let rate_of_step = statistics.scale * statistics.inverse_alpha.wide();
        let rows = |row: &mut Vec<(u32, f64)>, chunk: usize| {
            let (mut flipped, mut changed) = (0.0, 0.0);
            for state in
                (chunk * ROWS..residual.len().min((chunk + 1) * ROWS)).filter(|&s| !self.absorbing(s))
            {
                let into = transitions.entering(state, row).iter();
                let arrives: f64 = into.map(|&(from, rate)| residual[from as usize] * rate).sum();
                let out = transitions.leaving(state, row).iter();
                let leaves: f64 = out.map(|&(_, rate)| rate).sum::<f64>() * residual[state];
                let moved = (arrives - leaves) * rate_of_step;
                flipped += (2.0 * residual[state] + moved).abs();
                changed += moved.abs();
            }
            [flipped, changed]
        };
        let chunks = (0..residual.len().div_ceil(ROWS)).into_par_iter().map_init(Vec::new, rows);
        let sums: Vec<[f64; 2]> = chunks.collect();
        let [flipped, changed] = sums.iter().fold([0.0; 2], |all, own| [all[0] + own[0], all[1] + own[1]]);
        flipped < changed
    }

    /// Bounds the l1 distance of a vector to the iterate that it replaces.
    ///
    /// The distance includes the rounding of the vector to nonnegative doubles for the result.
    fn shift(&self, vector: &[CompensatedSum]) -> f64 {
        let distance = |(state, (q, x)): (usize, (&CompensatedSum, &f64))| {
            let mut moved = *q;
            moved.add(-x);
            if self.absorbing(state) { 0.0 } else { moved.value().abs() + (-q.value()).max(0.0) }
        };
        let sum: f64 = vector.iter().zip(&self.x).enumerate().map(distance).sum();
        sum * (1.0 + 1e-6) + 2.0 * f64::EPSILON
    }

    /// Lists the nonzero flows into absorbing states (state, class, flow), in scaled rates.
    fn absorbed_flows(&self, vector: &[CompensatedSum], classes: usize) -> Vec<(usize, usize, f64)> {
        let (n, scale, transitions) =
            (vector.len(), self.context.statistics.scale, self.context.problem.transitions);
        let received = |row: &mut Vec<(u32, f64)>, chunk: usize| {
            let mut all: Vec<(usize, usize, f64)> = Vec::new();
            for state in (chunk * ROWS..n.min((chunk + 1) * ROWS)).filter(|&state| self.absorbing(state)) {
                let mut sums = vec![CompensatedSum::default(); classes];
                for &(from, rate) in transitions.entering(state, row).iter() {
                    if let Some(class) = self.class_of(from as usize) {
                        let q = vector[from as usize];
                        sums[class].add_product(q.sum, rate * scale);
                        sums[class].add_product(q.lost, rate * scale);
                    }
                }
                let some = sums.iter().enumerate().map(|(class, sum)| (state, class, sum.value()));
                all.extend(some.filter(|(_, _, value)| *value != 0.0));
            }
            all
        };
        let chunks = (0..n.div_ceil(ROWS)).into_par_iter();
        chunks.map_init(Vec::new, received).collect::<Vec<_>>().into_iter().flatten().collect()
    }

    fn residual_of(&self, vector: &[CompensatedSum], classes: usize) -> ClassResidual {
        let (statistics, transitions) = (&self.context.statistics, self.context.problem.transitions);
        let (scale, inverse_alpha) = (statistics.scale, statistics.inverse_alpha.wide());
        let (n, mut flow) = (vector.len(), Vec::new());
        let (mut flows, mut masses) =
            (vec![CompensatedSum::default(); classes], vec![CompensatedSum::default(); classes]);
        if !statistics.non_absorbing.all() {
            flow = vec![vec![0.0; n]; classes];
            for (state, class, value) in self.absorbed_flows(vector, classes) {
                flow[class][state] = value * inverse_alpha;
                flows[class].add(value);
            }
        }
        for (state, q) in vector.iter().enumerate() {
            if let Some(class) = self.class_of(state) {
                masses[class].add(q.sum);
                masses[class].add(q.lost);
            }
        }
        let decay = |(flow, mass): (&CompensatedSum, &CompensatedSum)| match mass.value() > 0.0 {
            true => (flow.value() / mass.value()).clamp(0.0, 0.5 / inverse_alpha),
            false => 0.0,
        };
        let decays: Vec<f64> = flows.iter().zip(&masses).map(decay).collect();
        let mut residual = vec![0.0; n];
        let rows = |row: &mut Vec<(u32, f64)>, (chunk, residual): (usize, &mut [f64])| {
            let mut defects = vec![0.0; classes];
            for (state, residual) in (chunk * ROWS..).zip(residual) {
                let Some(class) = self.class_of(state) else { continue };
                let (mut sum, mut all, mut terms) = (CompensatedSum::default(), 0.0, 0);
                let mut add = |q: CompensatedSum, factor: f64| {
                    sum.add_product(q.sum, factor);
                    sum.add_product(q.lost, factor);
                    all += (q.sum.abs() + q.lost.abs()) * factor.abs();
                    terms += 2;
                };
                let into = transitions.entering(state, row).iter();
                for &(from, rate) in into.filter(|t| self.class_of(t.0 as usize) == Some(class)) {
                    add(vector[from as usize], rate * scale);
                }
                let out = transitions.leaving(state, row).iter();
                out.for_each(|&(_, rate)| add(vector[state], -rate * scale));
                add(vector[state], decays[class]);
                // Each operation loses less than the least normal number by underflow.
                let underflow = 4.0 * terms as f64 * f64::MIN_POSITIVE;
                defects[class] += sum.magnitude(terms, 1.001 * all) + underflow;
                *residual = sum.value() * inverse_alpha;
            }
            defects
        };
        let chunks = residual.par_chunks_mut(ROWS).enumerate();
        let found: Vec<Vec<f64>> = chunks.map_init(Vec::new, rows).collect();
        let mut defects = vec![0.0; classes];
        found.iter().for_each(|own| defects.iter_mut().zip(own).for_each(|(sum, own)| *sum += own));
        let bound = |sum: f64| sum * inverse_alpha * (1.0 + 1e-9);
        ClassResidual {
            decays: decays.iter().map(|decay| decay * inverse_alpha).collect(),
            defects: defects.into_iter().map(bound).collect(),
            flow,
            residual,
        }
    }
}

/// Computes q + `factor` Σ_{i<N} r P^i, with the matrix P of the iteration.
fn correct<T: Number>(
    iteration: &mut Iteration<'_, T>,
    vector: &[CompensatedSum],
    residual: &[f64],
    factor: f64,
    steps: u64,
    observer: &mut dyn Progress,
) -> Result<Vec<CompensatedSum>> {
    // The residual is scaled to norm 1, to avoid underflow.
    let size = residual.iter().map(|r| r.abs()).sum::<f64>().max(f64::MIN_POSITIVE);
    let begin: Vec<f64> = residual.iter().map(|r| r / size).collect();
    let done = iteration.progress.0 + iteration.steps();
    iteration.start(&begin, None)?;
    iteration.progress = (done, done + steps);
    let mut target = iteration.target(steps as usize, iteration.accumulators()?)?;
    iteration.weigh(&mut target, 0, &vec![1.0; steps as usize], 1.0)?;
    iteration.advance(steps, &[&target], observer)?;
    let sum = iteration.downloaded(&target.acc, Vec::new())?;
    let corrected = |(q, e): (&CompensatedSum, &f64)| {
        let mut q = *q;
        q.add(size * factor * e);
        q
    };
    Ok(vector.iter().zip(&sum).map(corrected).collect())
}
