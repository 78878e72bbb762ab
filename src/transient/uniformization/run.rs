//! A uniformization run: computes x_0, x_1, … once, and all requested times on the way.

use std::collections::VecDeque;
use std::thread::{Builder, JoinHandle};

use crate::kernel::{Number, Precision};
use crate::transient::backward::values::{Equations, TransientSystem};
use crate::transient::chain::recurrent_classes::ClosedClasses;
use crate::transient::chebyshev;
use crate::transient::checkpoint::{Resumed, RunPhase, TimeProgress, UniformizationState};
use crate::transient::context::{Context, DueTime};
use crate::transient::iteration::extrapolation::{Extrapolation, transient_classes};
use crate::transient::iteration::quasi_stationary::{EarlyTermination, Shares, error_contribution, speed};
use crate::transient::iteration::schedule::{ErrorBudget, PlannedTime};
use crate::transient::iteration::{Accumulators, IterateSum, Iteration, Which, touched};
use crate::transient::krylov::exponential::{self, Budget};
use crate::transient::numerics::chebyshev_coefficients::products;
use crate::transient::problem::Method;
use crate::transient::session::RunSession;
use crate::transient::solution::{Expansion, Stopped};
use crate::{Progress, Result};

/// Steps between two measurements of the mass. In f32, later weights are divided by it.
const MASS_STEPS: u64 = 64;
/// Steps before the first convergence check, and minimum steps between two checks.
const CHECK_STEPS: u64 = 64;
/// Distance of convergence checks as a fraction of the steps so far.
///
/// It is larger if otherwise all checks would exceed [`CHECKS_BUDGET`].
const CHECK_SHARE: f64 = 1.0 / 16.0;
/// Share of the products of a full run that all convergence checks together may cost.
const CHECKS_BUDGET: f64 = 1.0 / 50.0;

/// Maximum number of transitions of a chain whose hitting times bound early termination.
///
/// These times are computed on the host, in seconds at most.
const MOST_TRANSITIONS: u64 = 1 << 22;
/// Requested relative error of the hitting times.
const ROUGH: f64 = 0.1;
/// Defect in fixed point below which hitting times are computed: the steady state is near.
const NEAR: f64 = 1e-6;

/// Share of the unavoidable rounding that early termination may cost if ε is out of reach.
const NEGLIGIBLE: f64 = 0.1;

/// A requested time with an open window.
struct Open<T> {
    /// Index among the `planned` times of the run.
    place: usize,
    target: IterateSum<T>,
    /// Step of the first stored weight.
    from: u64,
    /// Mass of an iterate by which the weights were divided; 1 unless in single precision.
    divisor: f64,
}

impl UniformizationState {
    /// Returns true if the stored state belongs to the `planned` times.
    pub(crate) fn fits(
        &self,
        planned: &[PlannedTime],
        vectors: &[Vec<f64>],
        states: usize,
        wanted: bool,
    ) -> bool {
        let same = |(kept, time): (&TimeProgress, &PlannedTime)| {
            kept.index == time.due.index && kept.rewards.len() == time.progress.rewards.len()
        };
        let within = |&(place, from, _): &(usize, u64, f64)| {
            planned.get(place).is_some_and(|time| (time.window.left..=time.window.right).contains(&from))
        };
        self.planned.len() == planned.len()
            && self.planned.iter().zip(planned).all(same)
            && self.waiting <= planned.len()
            && planned[self.waiting..].iter().all(|time| time.window.left >= self.steps)
            && self.open.iter().all(within)
            && self.open.len() <= self.accumulators.max(if wanted { 0 } else { planned.len() })
            && self.left_over.iter().all(|&place| place < planned.len())
            && self.until.is_none_or(|until| until > self.steps)
            && vectors.len() == 1 + if wanted { self.open.len() } else { 0 }
            && vectors.iter().all(|vector| vector.len() == states)
    }
}

/// One pass over the iterates, and the requested times that are computed from them.
pub(crate) struct Uniformization<'a, 'p, T> {
    context: &'a Context<'a, T>,
    iteration: Iteration<'a, T>,
    /// Requested times, ascending by the first step of their windows.
    planned: &'p mut [PlannedTime],
    /// Indices of planned times with windows that have not opened.
    waiting: VecDeque<usize>,
    open: Vec<Open<T>>,
    /// Accumulators that are not in use.
    free: Vec<Accumulators<T>>,
    /// Number of accumulators that may still be allocated.
    spare: usize,
    accumulators: usize,
    /// Step of the next convergence check.
    check: u64,
    /// Step at which a resumed run next opens or closes a window, measures or checks.
    until: Option<u64>,
    /// Matrix–vector products of earlier runs.
    before: u64,
    /// True if the probabilities themselves are requested.
    vectors: bool,
    /// Host memory that receives results of the lanes.
    host: Vec<f64>,
    /// Thread that allocates `host`.
    allocation: Option<JoinHandle<Vec<f64>>>,
    /// Indices of planned times for which there was no accumulator.
    left_over: Vec<usize>,
    /// True if Chebyshev's expansion may take over: it has not been tried.
    pub(crate) expands: bool,
    /// Matrix–vector products of the next attempt by Krylov's method, if it may be tried.
    pub(crate) krylov: Option<u64>,
    expansion: Option<Expansion>,
    /// Bound of the expected number of steps to one state of each closed class, once computed.
    hitting_time: Option<f64>,
    /// Matrix–vector products spent on refinements.
    refined: u64,
    /// Transient class of each state, and the number of classes.
    ///
    /// `None` before the search, `Some(None)` unless there are several classes.
    classes: Option<Option<(Vec<u8>, usize)>>,
}

/// The extrapolation that ended the run.
struct Ending<'a, T> {
    extrapolated: Extrapolation<'a, T>,
    /// Early termination of each transient class.
    terminations: Vec<EarlyTermination>,
    /// l1 distance of the extrapolation's vector to the iterate.
    shift: f64,
}

/// Result of a uniformization run.
pub(crate) struct RunOutcome {
    /// Number of matrix–vector products.
    pub(crate) steps: u64,
    /// Indices of planned times for which there was no accumulator.
    pub(crate) left_over: Vec<usize>,
    /// Result of Chebyshev's or Krylov's method, if it took over.
    pub(crate) expansion: Option<Expansion>,
}

impl<'a, 'p, T: Number> Uniformization<'a, 'p, T> {
    /// Prepares a run from the iterate with which `iteration` starts.
    ///
    /// At most `accumulators` windows (at least one) may be open at once. A time without a free
    /// accumulator is left for another run.
    pub(crate) fn new(
        context: &'a Context<'a, T>,
        iteration: Iteration<'a, T>,
        planned: &'p mut [PlannedTime],
        accumulators: usize,
        before: u64,
    ) -> Self {
        let vectors = context.problem.vectors;
        let end = planned.iter().map(PlannedTime::right).max().unwrap_or(0);
        let worth = context.options.method != Method::Uniformization
            && !context.costs.is_short(end)
            && affordable_checks(context, end) >= 1.0;
        let check = if worth { CHECK_STEPS } else { u64::MAX };
        let waiting = (0..planned.len()).collect();
        let (open, free, left_over) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            context,
            iteration,
            planned,
            waiting,
            open,
            free,
            spare: accumulators,
            accumulators,
            check,
            until: None,
            before,
            vectors,
            host: Vec::new(),
            allocation: None,
            left_over,
            expands: context.expands,
            krylov: (context.expands && T::PRECISION == Precision::F64)
                .then_some(exponential::first_try(&context.costs)),
            expansion: None,
            hitting_time: None,
            refined: 0,
            classes: None,
        }
    }

    /// Resumes a run from a state that [fits](UniformizationState::fits).
    pub(crate) fn resume(
        context: &'a Context<'a, T>,
        mut iteration: Iteration<'a, T>,
        planned: &'p mut [PlannedTime],
        kept: Resumed<UniformizationState>,
    ) -> Result<Self> {
        let Resumed { state, vectors: values } = kept;
        iteration.resume(state.steps, &values[0])?;
        planned.iter_mut().zip(state.planned).for_each(|(time, kept)| time.progress = kept);
        let mut run = Self::new(context, iteration, planned, state.accumulators, state.before);
        run.waiting = (state.waiting..run.planned.len()).collect();
        (run.check, run.until, run.left_over) = (state.check, state.until, state.left_over);
        for (i, (place, from, divisor)) in state.open.into_iter().enumerate() {
            let acc = run.accumulators()?.unwrap_or_else(Accumulators::none);
            run.open_window(place, from, divisor, acc)?;
            if run.vectors {
                run.iteration.fill(&run.open[i].target.acc, &values[1 + i])?;
            }
        }
        Ok(run)
    }

    /// Returns the state for [`resume`](Self::resume); `until` is the step of the next decision.
    fn state(&self, until: Option<u64>) -> Result<(RunPhase, Vec<Vec<f64>>)> {
        let mut values = vec![self.iteration.snapshot()?];
        if self.vectors {
            for o in &self.open {
                values.push(self.iteration.snapshot_sum(&o.target.acc)?);
            }
        }
        let state = UniformizationState {
            before: self.before + self.refined,
            steps: self.iteration.steps(),
            until,
            check: self.check,
            accumulators: self.accumulators,
            waiting: self.waiting.front().copied().unwrap_or(self.planned.len()),
            left_over: self.left_over.clone(),
            open: self.open.iter().map(|o| (o.place, o.from, o.divisor)).collect(),
            planned: self.planned.iter().map(|time| time.progress.clone()).collect(),
        };
        Ok((RunPhase::Uniformization(state), values))
    }

    const SINGLE: bool = matches!(T::PRECISION, Precision::F32);

    /// Computes the results for the planned times that have accumulators.
    pub(crate) fn run(mut self, session: &mut RunSession<'_, '_>) -> Result<RunOutcome> {
        let steps = self.iterate(session)?;
        Ok(RunOutcome { steps, left_over: self.left_over, expansion: self.expansion })
    }

    /// Takes steps until all times have results; returns the matrix–vector products.
    fn iterate(&mut self, session: &mut RunSession<'_, '_>) -> Result<u64> {
        loop {
            let to = match self.until.take() {
                Some(until) => until,
                None => {
                    session.checkpointer.save_if_due(|| self.state(None))?;
                    self.open_windows()?;
                    let Some(end) = self.end() else {
                        return Ok(self.iteration.steps());
                    };
                    if self.close_windows(end, session)? {
                        continue;
                    }
                    if Self::SINGLE && !self.open.is_empty() {
                        self.normalise()?;
                    }
                    self.next_decision(end)
                }
            };
            loop {
                let k = self.iteration.steps();
                let leg = session.checkpointer.next_stop(k, to);
                let targets: Vec<&IterateSum<T>> = self.open.iter().map(|o| &o.target).collect();
                let rewards = self.iteration.advance(leg, &targets, session)?;
                self.credit(k, &rewards);
                session.checkpointer.record_pace(leg - k);
                if leg == to {
                    break;
                }
                session.checkpointer.save_if_due(|| self.state(Some(to)))?;
            }

            let Some(end) = self.end() else { continue };
            // A run that ends soon does not need early termination.
            if to >= self.check && end - to > (to / 16).max(CHECK_STEPS / 2) {
                self.check = next_check(to, end, affordable_checks(self.context, end));
                if let Some(termination) = self.termination(session)? {
                    self.finish_with(termination, session)?;
                    return Ok(self.iteration.steps() + self.refined);
                }
                // Classes are checked with the last convergence check before a power of two.
                if to.ilog2() < self.check.ilog2()
                    && checks_classes(self.context, to, end)
                    && let Some(mut ending) = self.terminate_by_class(session)?
                {
                    let classes = ending.terminations.len();
                    ending.extrapolated.collect_rewards(self.iteration.rewards(), classes);
                    self.extrapolate(&ending, 1.0, session)?;
                    return Ok(self.iteration.steps() + self.refined);
                }
                self.expand(session)?;
            }
        }
    }

    /// Returns the last term of all windows that are open or waiting.
    fn end(&self) -> Option<u64> {
        self.remaining().map(|place| self.planned[place].right()).max()
    }

    /// Returns the next step at which to open or close a window, or check mass or convergence.
    ///
    /// With rewards, the host also collects them after a limited number of steps.
    fn next_decision(&self, end: u64) -> u64 {
        let k = self.iteration.steps();
        let mut to = end.min(k.saturating_add(self.iteration.most_steps()));
        if let Some(&next) = self.waiting.front() {
            to = to.min(self.planned[next].window.left);
        }
        for o in &self.open {
            to = to.min(self.planned[o.place].right());
        }
        if Self::SINGLE && !self.open.is_empty() {
            to = to.min(k + MASS_STEPS);
        }
        if end - k > CHECK_STEPS {
            to = to.min(self.check.max(k + 1));
        }
        to
    }

    /// Opens the windows that have begun.
    fn open_windows(&mut self) -> Result<()> {
        while let Some(&place) = self.waiting.front() {
            if self.planned[place].window.left > self.iteration.steps() {
                break;
            }
            self.waiting.pop_front();
            let Some(acc) = self.accumulators()? else {
                self.left_over.push(place);
                continue;
            };
            assert_eq!(self.planned[place].window.left, self.iteration.steps(), "opens with its first step");
            self.open_window(place, self.planned[place].window.left, 1.0, acc)?;
            if self.vectors {
                self.allocate_ahead();
            }
        }
        Ok(())
    }

    /// Opens a window with the weights from step `from` on, divided by a mass.
    fn open_window(&mut self, place: usize, from: u64, divisor: f64, acc: Accumulators<T>) -> Result<()> {
        let weights = self.planned[place].weighted(self.context);
        let mut target = self.iteration.target(weights.values.len(), acc)?;
        let ahead = &weights.values[(from - weights.left) as usize..];
        self.iteration.weigh(&mut target, from, ahead, divisor)?;
        self.open.push(Open { place, target, from, divisor });
        Ok(())
    }

    /// Returns accumulators for one more window, if available.
    fn accumulators(&mut self) -> Result<Option<Accumulators<T>>> {
        if !self.vectors {
            return Ok(Some(Accumulators::none()));
        }
        if let Some(acc) = self.free.pop() {
            return Ok(Some(acc));
        }
        if self.spare == 0 {
            return Ok(None);
        }
        self.spare -= 1;
        self.iteration.accumulators().map(Some)
    }

    /// Closes the windows that end with x_k, including that term; true if there were any.
    fn close_windows(&mut self, end: u64, session: &mut RunSession<'_, '_>) -> Result<bool> {
        let k = self.iteration.steps();
        let closing = |o: &Open<T>, planned: &[PlannedTime]| planned[o.place].right() == k;
        if !self.open.iter().any(|o| closing(o, self.planned)) {
            return Ok(false);
        }
        if Self::SINGLE {
            self.normalise()?;
        }
        // The rewards of x_k are collected by the next step; after the last there is none.
        if k == end {
            let rewards = self.iteration.rewards_of(Which::Newest)?;
            self.credit(k, &rewards);
        }
        let (done, open) = std::mem::take(&mut self.open).into_iter().partition(|o| closing(o, self.planned));
        self.open = open;
        for o in done {
            self.iteration.add(&o.target, Which::Newest)?;
            if self.vectors {
                let mut host = self.host();
                let result = self.iteration.download(&o.target.acc, &mut host)?;
                session.result(self.planned[o.place].due.index, result)?;
                self.host = host;
                self.free.push(o.target.acc);
            }
        }
        Ok(true)
    }

    /// Starts a thread that allocates host memory for results while devices compute.
    ///
    /// This pays for many states, if no lane is on the host.
    fn allocate_ahead(&mut self) {
        const MANY: usize = 1 << 20;
        let states = self.context.parts.rows.len();
        let at_hand = self.context.machine.lanes.iter().any(|lane| lane.device().on_host_cores());
        if self.host.is_empty() && self.allocation.is_none() && states >= MANY && !at_hand {
            let thread = Builder::new().name("kolmo-room".to_owned());
            self.allocation = thread.spawn(move || touched(states)).ok();
        }
    }

    /// Takes the host memory for results, waiting for its allocation; may be empty.
    fn host(&mut self) -> Vec<f64> {
        match self.allocation.take() {
            Some(allocation) => allocation.join().unwrap_or_default(),
            None => std::mem::take(&mut self.host),
        }
    }

    /// Adds the rewards of the steps from `first` on, one row for each, to every planned time.
    fn credit(&mut self, first: u64, rewards: &[f64]) {
        let count = self.context.problem.rewards.len();
        for (k, rewards) in (first..).zip(rewards.chunks(count.max(1))) {
            self.planned.iter_mut().for_each(|time| time.credit(k, rewards));
        }
    }

    /// Single precision: divides weights from step k on by the mass of x_k, which it measures.
    ///
    /// Rounding scales iterates by a drifting factor. The drift is measured and included in the
    /// bound.
    fn normalise(&mut self) -> Result<()> {
        let (mass, k) = (self.iteration.mass()?, self.iteration.steps());
        for o in &mut self.open {
            let time = &mut self.planned[o.place];
            let from = k.max(time.window.left);
            let passed = (from - time.window.left) as usize;
            let next = &time.weighted(self.context).values[passed..];
            let drifted = next.iter().take(MASS_STEPS as usize).sum::<f64>() * (mass - 1.0).abs();
            self.iteration.weigh(&mut o.target, from, next, mass)?;
            time.progress.normalisation += drifted;
            (o.from, o.divisor) = (from, mass);
        }
        Ok(())
    }

    /// Returns early termination after x_{k−1}, if every remaining time is then within ε.
    ///
    /// In fixed point the defect hardly falls below the rounding of a step. So long runs end early
    /// only by the bound of hitting times.
    fn termination(&mut self, observer: &mut dyn Progress) -> Result<Option<EarlyTermination>> {
        let step = self.context.statistics.step;
        let mut termination = EarlyTermination::after_last(&self.iteration, step)?;
        if T::PRECISION == Precision::Q64 && termination.defect <= NEAR {
            self.bound_by_hitting_time(&mut termination, observer)?;
        }
        Ok(self
            .remaining()
            .all(|place| termination.serves(&self.planned[place], step))
            .then_some(termination))
    }

    /// Tries to compute the waiting times by Chebyshev's method, once, or by Krylov's method.
    fn expand(&mut self, session: &mut RunSession<'_, '_>) -> Result<()> {
        let (context, k) = (self.context, self.iteration.steps());
        let Some(lambda) = self.waiting.back().map(|&last| self.planned[last].due.lambda) else {
            return Ok(());
        };
        let epsilon = context.options.epsilon;
        // Tried after as many steps as the expansion takes.
        let chebyshev =
            self.expands && chebyshev::is_worth(lambda, epsilon) && k >= products(lambda, epsilon);
        let products = self.krylov.filter(|_| !chebyshev);
        let budget = products.and_then(|products| Budget::of(&context.costs, products, k, lambda - k as f64));
        if !chebyshev && budget.is_none() {
            return Ok(());
        }
        // The expansion overwrites the iterates.
        let newest = self.iteration.snapshot()?;
        let times: Vec<DueTime> = self.waiting.iter().map(|&place| self.planned[place].due).collect();
        let expansion = if chebyshev {
            self.expands = false;
            chebyshev::run(context, false, &times, session)?
        } else {
            let expansion = exponential::run(context, false, budget, &times, session)?;
            // An attempt without memory for its vectors would fail again.
            self.krylov = products.map(|products| 4 * products).filter(|_| expansion.terms > 0);
            expansion
        };
        let before = self.expansion.map_or(0, |before| before.terms);
        self.expansion = Some(Expansion { terms: before + expansion.terms, ..expansion });
        self.waiting.retain(|&place| !session.is_served(self.planned[place].due.index));
        self.iteration.resume(k, &newest)
    }

    /// Returns the indices of the times without a result.
    fn remaining(&self) -> impl Iterator<Item = usize> {
        self.open.iter().map(|o| o.place).chain(self.waiting.iter().copied())
    }

    /// Returns true if, with an extrapolation, a remaining time would exceed its error bound.
    ///
    /// `shift` is the distance of its vector to the iterate. If the bound is out of reach, or with
    /// `as_little`, a small share of the unavoidable rounding is allowed instead.
    fn misses(&self, terminations: &[EarlyTermination], shift: f64, as_little: bool) -> bool {
        let met = |place: usize| {
            let time = &self.planned[place];
            let [error, rounding] = error_contribution(terminations, time.due.lambda);
            let steps = self.context.statistics.step * time.due.lambda.min(terminations[0].step as f64);
            let ErrorBudget { left, rounded } = time.budget(terminations, shift + steps);
            let (allowed, little) = (left - steps, NEGLIGIBLE * (rounded + steps));
            shift + error + rounding
                <= if allowed <= 0.0 || as_little { allowed.max(little) } else { allowed }
        };
        !self.remaining().all(met)
    }

    /// Ends the run with an extrapolation of all later iterates.
    fn finish_with(
        &mut self,
        mut termination: EarlyTermination,
        session: &mut RunSession<'_, '_>,
    ) -> Result<()> {
        self.bound_by_hitting_time(&mut termination, session)?;
        let mass = if Self::SINGLE { self.iteration.mass()? } else { 1.0 };
        let mut extrapolated = Extrapolation::new(self.context, &self.iteration)?;
        let (mut terminations, mut shift) = (vec![termination], 0.0);
        if self.misses(&terminations, shift, false) && Extrapolation::refines(self.context) {
            shift = self.refine(&mut extrapolated, &mut terminations, session)?;
        }
        extrapolated.collect_rewards(self.iteration.rewards(), 1);
        extrapolated.divide(mass);
        self.extrapolate(&Ending { extrapolated, terminations, shift }, mass, session)
    }

    /// Extrapolates several classes after x_{k−1}; `None` unless all remaining times meet ε.
    fn terminate_by_class(&mut self, observer: &mut dyn Progress) -> Result<Option<Ending<'a, T>>> {
        let classes = self.classes.get_or_insert_with(|| transient_classes(self.context));
        let Some((class, count)) = classes.clone() else { return Ok(None) };
        let mut extrapolated = Extrapolation::of_classes(self.context, &self.iteration, class)?;
        let step = self.iteration.steps() - 1;
        let termination =
            EarlyTermination { step, decay: 0.0, mass: 1.0, defect: 0.0, rounding: 0.0, most: f64::INFINITY };
        let mut terminations = vec![termination; count];
        let shift = self.refine(&mut extrapolated, &mut terminations, observer)?;
        Ok((!self.misses(&terminations, shift, false)).then_some(Ending {
            extrapolated,
            terminations,
            shift,
        }))
    }

    /// Refines an extrapolation until all times are within their bounds, or it does not help.
    ///
    /// Returns the distance of the refined vector to the iterate.
    fn refine(
        &mut self,
        extrapolated: &mut Extrapolation<'_, T>,
        terminations: &mut [EarlyTermination],
        observer: &mut dyn Progress,
    ) -> Result<f64> {
        // Refinement overwrites the iterates.
        let (k, newest) = (self.iteration.steps(), self.iteration.snapshot()?);
        let before = self.iteration.progress.0 + k;
        // As many steps again reduce a defect d to about d². If that is not enough, the run goes on
        // first.
        let hopeless = |terminations: &[EarlyTermination], shift: f64| {
            let squared: Vec<EarlyTermination> = terminations
                .iter()
                .map(|termination| EarlyTermination { defect: termination.defect.powi(2), ..*termination })
                .collect();
            self.misses(&squared, shift, true)
        };
        let enough = |terminations: &[EarlyTermination], shift: f64| {
            !self.misses(terminations, shift, false) || hopeless(terminations, shift)
        };
        let refinement = extrapolated.refine(k, before, terminations, enough, observer)?;
        self.refined += refinement.steps;
        self.iteration.resume(k, &newest)?;
        Ok(refinement.shift)
    }

    /// Computes all remaining times from an extrapolation of an iterate with the given mass.
    fn extrapolate(
        &mut self,
        Ending { extrapolated, terminations, shift }: &Ending<'_, T>,
        mass: f64,
        session: &mut RunSession<'_, '_>,
    ) -> Result<()> {
        let open = std::mem::take(&mut self.open).into_iter().map(|o| (o.place, Some(o.target)));
        let waiting = std::mem::take(&mut self.waiting).into_iter().map(|place| (place, None));
        let decays = terminations.iter().map(|termination| termination.decay).filter(|decay| *decay > 0.0);
        let slowest = decays.reduce(f64::min).unwrap_or(0.0);
        for (place, target) in open.chain(waiting) {
            let time = &mut self.planned[place];
            if terminations.iter().all(|termination| time.averages(termination)) {
                let steps = self.context.statistics.step * time.due.lambda.min(terminations[0].step as f64);
                time.speed = Some(speed(terminations, time.due.lambda, shift + steps));
            } else {
                time.weighted(self.context);
            }
            let shares: Vec<Shares> =
                terminations.iter().map(|termination| termination.shares(time)).collect();
            let [error, rounding] = error_contribution(terminations, time.due.lambda);
            time.progress.steps = terminations[0].step;
            time.progress.steady_state = shift + error;
            // Shares are known to a few units, and so are their factors.
            time.termination_rounding = rounding + 16.0 * f64::EPSILON;
            time.progress.truncation = match &time.weights {
                Some(weights) if !time.is_averaged() => {
                    // The masses of all classes together are at most 1.
                    let (beyond, doubt) = weights.above();
                    let most = shares.iter().map(|shares| shares.beyond).fold(0.0, f64::max);
                    (time.progress.truncation - beyond).max(0.0) + doubt + most
                }
                _ => 0.0,
            };
            time.progress.normalisation += shares[0].at[0] * (mass - 1.0).abs();
            time.stopped = Some(Stopped { step: terminations[0].step, mu: 1.0 - slowest });
            for ((instant, cumulative), reward) in time.progress.rewards.iter_mut().zip(&extrapolated.rewards)
            {
                *instant += reward.value(shares.iter().map(|shares| shares.at));
                *cumulative += reward.value(shares.iter().map(|shares| shares.until));
            }
            if self.vectors {
                let mut host = self.host();
                let mut result = match target {
                    Some(target) => self.iteration.downloaded(&target.acc, host)?,
                    None => {
                        host.clear();
                        host.resize(extrapolated.len(), 0.0);
                        host
                    }
                };
                extrapolated.add_to(&mut result, &shares);
                session.result(self.planned[place].due.index, &result)?;
                self.host = result;
            }
        }
        Ok(())
    }

    /// Bounds the error of early termination by expected hitting times.
    ///
    /// This is done only if no state is absorbing and a bound would otherwise be missed.
    fn bound_by_hitting_time(
        &mut self,
        termination: &mut EarlyTermination,
        observer: &mut dyn Progress,
    ) -> Result<()> {
        let statistics = &self.context.statistics;
        if statistics.non_absorbing.all()
            && statistics.nnz <= MOST_TRANSITIONS
            && self.misses(&[*termination], 0.0, false)
        {
            let holding = statistics.mean_holding();
            let steps = match self.hitting_time {
                Some(steps) => steps,
                None => *self.hitting_time.insert(self.longest_time(observer)? / holding),
            };
            termination.most = 2.0 * steps;
        }
        Ok(())
    }

    /// Bounds the expected time from any reachable state to one state of each closed class.
    ///
    /// That state is the most probable one of its class. Rank 0 computes the bound for all ranks.
    /// It is infinite if no bound is found.
    fn longest_time(&self, observer: &mut dyn Progress) -> Result<f64> {
        let (context, newest) = (self.context, self.iteration.newest()?);
        let (transitions, ranks) = (context.problem.transitions, context.parts.ranks);
        let [initial, probable] = [&context.initial, &newest].map(|own| ranks.gather_to_root(own));
        let mut longest = || {
            let ClosedClasses { representatives, reached } =
                ClosedClasses::new(transitions, &initial, &probable);
            let mut ends: Vec<bool> = reached.iter().map(|reached| !reached).collect();
            representatives.iter().for_each(|&state| ends[state] = true);
            let (none, ones) = (vec![0.0; ends.len()], vec![1.0; ends.len()]);
            let equations = Equations::new(transitions);
            let mut system = TransientSystem::of_transient(&equations, &ends)?;
            let found = system.totals(&ends, &none, &[&ones], ROUGH, observer)?.swap_remove(0);
            let most = found.values.iter().zip(&found.bounds).map(|(time, bound)| time + bound);
            Ok(most.fold(0.0, f64::max) * (1.0 + 8.0 * f64::EPSILON))
        };
        let found = ranks.all_ok(if ranks.is_root() { longest() } else { Ok(0.0) })?;
        Ok(ranks.all_reduce_max(found))
    }
}

/// Returns the number of convergence checks that a run of `steps` steps can afford.
fn affordable_checks<T>(context: &Context<'_, T>, steps: u64) -> f64 {
    CHECKS_BUDGET * steps as f64 / context.costs.check()
}

/// Returns true if the run should check for several transient classes at this step.
///
/// There are three conditions:
/// * A run up to `end` can afford such a check before each power of two.
/// * Refinement is possible.
/// * The run has taken longer than a search for classes.
fn checks_classes<T: Number>(context: &Context<'_, T>, step: u64, end: u64) -> bool {
    let all = context.costs.class_check() * f64::from(end.max(2).ilog2());
    !context.statistics.non_absorbing.all()
        && all <= CHECKS_BUDGET * end as f64
        && context.costs.class_search() <= step as f64
        && Extrapolation::refines(context)
}

/// Returns the step of the next convergence check.
///
/// At most `checks` checks, at distances proportional to the steps, are made up to `end`.
fn next_check(step: u64, end: u64, checks: f64) -> u64 {
    let all = (end as f64 / CHECK_STEPS as f64).max(1.0);
    let share = CHECK_SHARE.max((all.ln() / checks).exp_m1());
    step.saturating_add(((step as f64 * share).ceil() as u64).max(CHECK_STEPS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_stay_within_their_budget_and_near_each_other() {
        for end in [1000, 10_000, 1_000_000, 1 << 40] {
            for afforded in [1.0, 2.5, 10.0, 1e3, 1e6] {
                let (mut at, mut checks) = (CHECK_STEPS, 0);
                while at < end {
                    checks += 1;
                    let next = next_check(at, end, afforded);
                    assert!(next >= at + CHECK_STEPS, "{next} behind {at}");
                    let near = afforded < 300.0 || next <= at + at.div_ceil(16).max(CHECK_STEPS);
                    assert!(near, "{next} behind {at}, {afforded} looks to {end}");
                    at = next;
                }
                assert!(f64::from(checks) <= afforded.ceil(), "{checks} looks to {end}, {afforded} afforded");
            }
        }
    }
}
