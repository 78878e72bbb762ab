//! The sweep: x_0, x_1, … once, every time point served on the way.

use std::collections::VecDeque;
use std::thread::{Builder, JoinHandle};

use crate::Result;
use crate::kernel::{Number, Precision};
use crate::transient::backward::hitting_time::meeting;
use crate::transient::chebyshev;
use crate::transient::checkpoint::{Certificate, Changed, Checkpointer, Phase, Resumed, SweepState};
use crate::transient::context::Built;
use crate::transient::iteration::extrapolation;
use crate::transient::iteration::extrapolation::Curve;
use crate::transient::iteration::quasi_stationary::{Shares, Stop, price};
use crate::transient::iteration::schedule::{LastIterate, Planned, Room};
use crate::transient::iteration::{Accumulators, Iteration, Target, Which, touched};
use crate::transient::krylov::exponential;
use crate::transient::krylov::exponential::Budget;
use crate::transient::numerics::chebyshev_coefficients::products;
use crate::transient::numerics::poisson::{Weights, Window};
use crate::transient::problem::Method;
use crate::transient::problem::Observer;
use crate::transient::profile::Activity;
use crate::transient::solution::{Expansion, Stopped, TimeResult};
use crate::transient::steady_state::power_iteration::{self, FIRST_DISTANCE};

/// Single precision measures the mass this often while a window is open, and divides weights by it.
const MASS_STEPS: u64 = 64;
/// Steps before the first look whether the sweep can stop, and between two of them at least.
const CHECK_STEPS: u64 = 64;
/// A look follows after this share more steps, so that little is swept too far, or after more, so that all looks together take at most
/// a fiftieth of the products of a sweep that never stops.
const CHECK_SHARE: f64 = 1.0 / 16.0;
const LOOKS_SHARE: f64 = 1.0 / 50.0;

/// Transitions followed backwards before a better bound of a stop is given up.
const MOST_WORK: u64 = 1 << 32;

/// The share of what rounds anyway that a stop may cost where ε is out of reach.
const NEGLIGIBLE: f64 = 0.1;

/// A time point whose window is open.
struct Open<T> {
    /// The place among the planned.
    place: usize,
    target: Target<T>,
    /// Step of the first weight held, and what the weights were divided by.
    from: u64,
    divisor: f64,
}

impl SweepState {
    /// True if it is one of these times.
    pub(crate) fn fits(
        &self,
        planned: &[Planned],
        vectors: &[Vec<f64>],
        states: usize,
        wanted: bool,
    ) -> bool {
        let same = |(kept, time): (&Changed, &Planned)| {
            kept.index == time.index && kept.rewards.len() == time.rewards.len()
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

/// One pass over the iterates, and the time points that it serves.
pub(crate) struct Sweep<'a, 'p, T> {
    built: &'a Built<'a, T>,
    iteration: Iteration<'a, T>,
    /// Ascending in the first step of their windows.
    planned: &'p mut [Planned],
    /// Places whose windows have not opened.
    waiting: VecDeque<usize>,
    open: Vec<Open<T>>,
    /// Accumulators that are not in use, and how many more may be allocated.
    free: Vec<Accumulators<T>>,
    spare: usize,
    accumulators: usize,
    /// The step at which to look next whether the sweep can stop.
    check: u64,
    /// Where the steps to the next decision end, after a resumption in their middle.
    until: Option<u64>,
    /// Multiplications of sweeps before.
    before: u64,
    /// True if the probabilities themselves are wanted.
    vectors: bool,
    /// Room for results on the host, and what makes it.
    host: Vec<f64>,
    room: Option<JoinHandle<Vec<f64>>>,
    /// Places that found no accumulator.
    left_over: Vec<usize>,
    /// True if Chebyshev's expansion may take over: it has not been tried.
    pub(crate) expands: bool,
    /// The products that Krylov's method is tried with next, if it may be.
    pub(crate) krylov: Option<u64>,
    expansion: Option<Expansion>,
    expanded: Vec<Option<TimeResult>>,
    /// H of the steady state, where the sweep goes on to it.
    certificate: Option<Certificate>,
    /// Multiplications that curves were corrected by.
    refined: u64,
    /// The parts of what can be left and their number, once they were looked for, if there are several.
    parts: Option<Option<(Vec<u8>, usize)>>,
}

/// What stands in the place of all later iterates.
struct Ending<'a, T> {
    curve: Curve<'a, T>,
    /// One a part.
    stops: Vec<Stop>,
    /// How far the vector of the curve lies from the iterate.
    shift: f64,
}

/// What a sweep came to.
pub(crate) struct Swept {
    /// Its multiplications.
    pub(crate) steps: u64,
    /// Places that found no accumulator.
    pub(crate) left_over: Vec<usize>,
    /// What Chebyshev's expansion did, if it took over.
    pub(crate) expansion: Option<Expansion>,
    /// The results of times that it served, at their places among the times asked for.
    pub(super) expanded: Vec<Option<TimeResult>>,
    /// Where it has ended, if the steady state goes on from there.
    pub(crate) last: Option<LastIterate>,
}

impl<'a, 'p, T: Number> Sweep<'a, 'p, T> {
    /// A sweep from the iterate that `iteration` starts with. `accumulators`, at least one, is how many windows may be
    /// open at once; a time that finds none free is left for another sweep.
    pub(crate) fn new(
        built: &'a Built<'a, T>,
        iteration: Iteration<'a, T>,
        planned: &'p mut [Planned],
        accumulators: usize,
        before: u64,
    ) -> Self {
        let vectors = built.problem.vectors;
        let end = planned.iter().map(Planned::right).max().unwrap_or(0);
        let worth = built.options.method != Method::Uniformization
            && !built.costs.is_short(end)
            && looks_in(built, end) >= 1.0;
        let check = if worth { CHECK_STEPS } else { u64::MAX };
        let waiting = (0..planned.len()).collect();
        let (open, free, left_over) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            built,
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
            room: None,
            left_over,
            expands: built.expands,
            krylov: (built.expands && T::PRECISION == Precision::F64)
                .then_some(exponential::first_try(&built.costs)),
            expansion: None,
            expanded: vec![None; built.problem.times.len()],
            certificate: None,
            refined: 0,
            parts: None,
        }
    }

    /// A sweep that goes on from a state that [fits](SweepState::fits).
    pub(crate) fn resume(
        built: &'a Built<'a, T>,
        mut iteration: Iteration<'a, T>,
        planned: &'p mut [Planned],
        kept: Resumed<SweepState>,
    ) -> Result<Self> {
        let Resumed { state, vectors: values } = kept;
        iteration.resume(state.steps, &values[0])?;
        for (time, kept) in planned.iter_mut().zip(state.planned) {
            time.steady_state = kept.steady_state;
            (time.steps, time.truncation) = (kept.steps, kept.truncation);
            time.normalisation = kept.normalisation;
            time.rewards = kept.rewards;
        }
        let mut sweep = Self::new(built, iteration, planned, state.accumulators, state.before);
        sweep.waiting = (state.waiting..sweep.planned.len()).collect();
        (sweep.check, sweep.until, sweep.left_over) = (state.check, state.until, state.left_over);
        for (i, (place, from, divisor)) in state.open.into_iter().enumerate() {
            let acc = sweep.accumulators()?.unwrap_or_else(Accumulators::none);
            sweep.planned[place].weighted(built);
            let weights = held(&sweep.planned[place]);
            let mut target = sweep.iteration.target(weights.values.len(), acc)?;
            let ahead = &weights.values[(from - weights.left) as usize..];
            sweep.iteration.weigh(&mut target, from, ahead, divisor)?;
            if sweep.vectors {
                sweep.iteration.fill(&target.acc, &values[1 + i])?;
            }
            sweep.open.push(Open { place, target, from, divisor });
        }
        Ok(sweep)
    }

    /// The state that [`resume`](Self::resume) takes; `until` is where the present steps end.
    fn state(&self, until: Option<u64>) -> Result<(Phase, Vec<Vec<f64>>)> {
        let mut values = vec![self.iteration.kept()?];
        if self.vectors {
            for o in &self.open {
                values.push(self.iteration.kept_sum(&o.target.acc)?);
            }
        }
        let kept = |time: &Planned| Changed {
            index: time.index,
            steady_state: time.steady_state,
            steps: time.steps,
            truncation: time.truncation,
            normalisation: time.normalisation,
            rewards: time.rewards.clone(),
        };
        let state = SweepState {
            before: self.before,
            steps: self.iteration.steps(),
            until,
            check: self.check,
            accumulators: self.accumulators,
            waiting: self.waiting.front().copied().unwrap_or(self.planned.len()),
            left_over: self.left_over.clone(),
            open: self.open.iter().map(|o| (o.place, o.from, o.divisor)).collect(),
            planned: self.planned.iter().map(kept).collect(),
        };
        Ok((Phase::Sweep(state), values))
    }

    const SINGLE: bool = matches!(T::PRECISION, Precision::F32);

    /// Serves the planned times, or as many as there are accumulators for.
    pub(crate) fn run(
        mut self,
        observer: &mut dyn Observer,
        checkpointer: &mut Checkpointer<'_>,
    ) -> Result<Swept> {
        let steps = self.sweep(observer, checkpointer)?;
        let kept = self.goes_on(checkpointer).then(|| self.iteration.kept()).transpose()?;
        let Self { left_over, expansion, expanded, certificate, .. } = self;
        let last = kept.map(|kept| LastIterate { steps: self.iteration.steps(), kept, certificate });
        Ok(Swept { steps, left_over, expansion, expanded, last })
    }

    /// True if the steady state is asked for, too, and found from the last iterate: a run that is resumed goes on from what its checkpoint
    /// has, and is to give the same bits.
    fn goes_on(&self, checkpointer: &Checkpointer<'_>) -> bool {
        self.built.problem.is_endless() && checkpointer.is_idle()
    }

    fn sweep(&mut self, observer: &mut dyn Observer, checkpointer: &mut Checkpointer<'_>) -> Result<u64> {
        let clock = &self.built.parts.clock;
        loop {
            let to = match self.until.take() {
                Some(until) => until,
                None => {
                    checkpointer.save_if_due(|| self.state(None))?;
                    clock.time(Activity::Start, || self.open_windows())?;
                    let Some(end) = self.end() else {
                        return Ok(self.iteration.steps());
                    };
                    if clock.time(Activity::Results, || self.close_windows(end, observer, checkpointer))? {
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
                let leg = checkpointer.next_stop(k, to);
                let targets: Vec<&Target<T>> = self.open.iter().map(|o| &o.target).collect();
                let rewards = clock.time(Activity::Products, || {
                    self.iteration.advance(leg, &targets, &mut checkpointer.defer_interrupt(observer))
                })?;
                self.credit(k, &rewards);
                checkpointer.record_pace(leg - k);
                if leg == to {
                    break;
                }
                checkpointer.save_if_due(|| self.state(Some(to)))?;
            }

            let Some(end) = self.end() else { continue };
            // What ends soon by itself is not worth the curve.
            if to >= self.check && end - to > (to / 16).max(CHECK_STEPS / 2) {
                self.check = next_look(to, end, looks_in(self.built, end));
                let goes_on = self.goes_on(checkpointer);
                if let Some(stop) = clock.time(Activity::Looks, || self.stop(goes_on, observer))? {
                    clock.time(Activity::Results, || self.finish_with(stop, observer, checkpointer))?;
                    return Ok(self.iteration.steps() + self.refined);
                }
                // With the last look before a power of two.
                if to.ilog2() < self.check.ilog2() && looks_at_parts(self.built, to, end) {
                    let found = clock.time(Activity::Looks, || self.stop_parts(observer))?;
                    if let Some(mut ending) = found {
                        ending.curve.collect_rewards(self.iteration.rewards(), ending.stops.len());
                        self.go_on_along(&ending, 1.0, observer, checkpointer)?;
                        return Ok(self.iteration.steps() + self.refined);
                    }
                }
                self.expand(observer)?;
            }
        }
    }

    /// The last term of all windows that are open or wait.
    fn end(&self) -> Option<u64> {
        self.remaining().map(|place| self.planned[place].right()).max()
    }

    /// Where the steps from here end: with a window that opens or closes, a mass or a distance to measure, rewards to
    /// collect.
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
            self.planned[place].weighted(self.built);
            let weights = held(&self.planned[place]);
            assert_eq!(weights.left, self.iteration.steps(), "a window opens with its first step");
            let mut target = self.iteration.target(weights.values.len(), acc)?;
            self.iteration.weigh(&mut target, weights.left, &weights.values, 1.0)?;
            let from = weights.left;
            if self.vectors {
                self.make_room();
            }
            self.open.push(Open { place, target, from, divisor: 1.0 });
        }
        Ok(())
    }

    /// Accumulators for one more window, if there may be any.
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

    /// Closes the windows that end with x_k, its term included; says whether there were any.
    fn close_windows(
        &mut self,
        end: u64,
        observer: &mut dyn Observer,
        checkpointer: &mut Checkpointer<'_>,
    ) -> Result<bool> {
        let k = self.iteration.steps();
        let closing = |o: &Open<T>, planned: &[Planned]| planned[o.place].right() == k;
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
            self.deliver(o, observer, checkpointer)?;
        }
        Ok(true)
    }

    fn deliver(
        &mut self,
        o: Open<T>,
        observer: &mut dyn Observer,
        checkpointer: &mut Checkpointer<'_>,
    ) -> Result<()> {
        if self.vectors {
            let mut host = self.host();
            let result = self.iteration.download(&o.target.acc, &mut host)?;
            observer.result(self.planned[o.place].index, result)?;
            checkpointer.delivered(self.planned[o.place].index, result);
            self.host = host;
            self.free.push(o.target.acc);
        }
        Ok(())
    }

    /// Begins to make room for results on the host, of states so many that it takes time: while devices multiply.
    fn make_room(&mut self) {
        const MANY: usize = 1 << 20;
        let states = self.built.parts.rows.len();
        let at_hand = self.built.machine.lanes.iter().any(|lane| lane.device().on_host_cores());
        if self.host.is_empty() && self.room.is_none() && states >= MANY && !at_hand {
            let thread = Builder::new().name("kolmo-room".to_owned());
            self.room = thread.spawn(move || touched(states)).ok();
        }
    }

    /// Room for results on the host, if it was made.
    fn host(&mut self) -> Vec<f64> {
        match self.room.take() {
            Some(room) => room.join().unwrap_or_default(),
            None => std::mem::take(&mut self.host),
        }
    }

    /// Adds the rewards of steps from `first` on, one row a step, to every time point.
    fn credit(&mut self, first: u64, rewards: &[f64]) {
        let Some(count) = self.planned.first().map(|time| time.rewards.len()).filter(|&count| count > 0)
        else {
            return;
        };
        for (k, rewards) in (first..).zip(rewards.chunks(count)) {
            for time in self.planned.iter_mut() {
                let (weight, beyond) = weight_and_tail(time, k);
                for ((instant, cumulative), reward) in time.rewards.iter_mut().zip(rewards) {
                    *instant += weight * reward;
                    *cumulative += beyond * reward;
                }
            }
        }
    }

    /// Single precision: measures the mass of x_k and divides the weights from step k on by it. Iterates are
    /// scaled by a number that drifts with rounding; the drift is measured, not estimated, and goes into the bound.
    fn normalise(&mut self) -> Result<()> {
        let (mass, k) = (self.iteration.mass()?, self.iteration.steps());
        for o in &mut self.open {
            let time = &mut self.planned[o.place];
            let from = k.max(time.window.left);
            let next = &held(time).values[(from - time.window.left) as usize..];
            let drifted = next.iter().take(MASS_STEPS as usize).sum::<f64>() * (mass - 1.0).abs();
            self.iteration.weigh(&mut o.target, from, next, mass)?;
            time.normalisation += drifted;
            (o.from, o.divisor) = (from, mass);
        }
        Ok(())
    }

    /// The stop behind x_{k−1}, if it leaves every remaining time within its bound. What the steady state will need anyway, if the sweep
    /// `goes_on` to it, bounds it, too.
    fn stop(&mut self, goes_on: bool, observer: &mut dyn Observer) -> Result<Option<Stop>> {
        let (iteration, step) = (&self.iteration, self.built.statistics.step);
        let masses = iteration.leavable_masses()?;
        let all_leavable = masses.is_none();
        let mut stop = Stop::new::<T, _>(iteration.steps() - 1, masses, step, |mu| iteration.defect(mu))?;
        if goes_on && all_leavable && self.certificate.is_none() && stop.defect <= FIRST_DISTANCE {
            let most = power_iteration::most_sweeps(self.built);
            self.certificate = Some(self.certificate(most, observer)?);
        }
        if let Some(steps) = self.certificate.and_then(|certificate| certificate.meeting) {
            stop.most = 2.0 * steps;
        }
        Ok(self.remaining().all(|place| stop.serves(&self.planned[place], step)).then_some(stop))
    }

    /// Serves the times that wait by Chebyshev's expansion, once, or Krylov's method, where that may pay.
    fn expand(&mut self, observer: &mut dyn Observer) -> Result<()> {
        let (built, k) = (self.built, self.iteration.steps());
        let Some(lambda) = self.waiting.back().map(|&last| self.planned[last].lambda) else { return Ok(()) };
        let epsilon = built.options.epsilon;
        // Behind as many steps as it takes.
        let chebyshev =
            self.expands && chebyshev::is_worth(lambda, epsilon) && k >= products(lambda, epsilon);
        let products = self.krylov.filter(|_| !chebyshev);
        let budget = products.and_then(|products| Budget::of(&built.costs, products, k, lambda - k as f64));
        if !chebyshev && budget.is_none() {
            return Ok(());
        }
        // It works in the place of the iterates.
        let newest = self.iteration.kept()?;
        let which: Vec<usize> = self.waiting.iter().map(|&place| self.planned[place].index).collect();
        let expansion = if chebyshev {
            self.expands = false;
            chebyshev::run(built, false, &which, &mut self.expanded, observer)?
        } else {
            let expansion = exponential::run(built, false, budget, &which, &mut self.expanded, observer)?;
            // One that had no memory would have none again.
            self.krylov = products.map(|products| 4 * products).filter(|_| expansion.terms > 0);
            expansion
        };
        let before = self.expansion.map_or(0, |before| before.terms);
        self.expansion = Some(Expansion { terms: before + expansion.terms, ..expansion });
        self.waiting.retain(|&place| self.expanded[self.planned[place].index].is_none());
        self.iteration.resume(k, &newest)
    }

    /// The places of times that are not served.
    fn remaining(&self) -> impl Iterator<Item = usize> {
        self.open.iter().map(|o| o.place).chain(self.waiting.iter().copied())
    }

    /// True if curves with these stops, whose vectors lie so far from the iterate, leave a time without its bound; or, where that is
    /// out of reach or needs as little, cost more than a share of what rounds anyway.
    fn misses(&self, stops: &[Stop], shift: f64, as_little: bool) -> bool {
        let met = |place: usize| {
            let time = &self.planned[place];
            let [error, rounding] = price(stops, time.lambda);
            let steps = self.built.statistics.step * time.lambda.min(stops[0].step as f64);
            let Room { left, rounded } = time.room(&stops[0]);
            let (allowed, little) = (left - steps, NEGLIGIBLE * (rounded + steps));
            shift + error + rounding
                <= if allowed <= 0.0 || as_little { allowed.max(little) } else { allowed }
        };
        !self.remaining().all(met)
    }

    /// Ends the sweep with a curve in the place of all later iterates.
    fn finish_with(
        &mut self,
        mut stop: Stop,
        observer: &mut dyn Observer,
        checkpointer: &mut Checkpointer<'_>,
    ) -> Result<()> {
        self.bound_by_meeting(&mut stop, &mut checkpointer.defer_interrupt(observer))?;
        let mass = if Self::SINGLE { self.iteration.mass()? } else { 1.0 };
        let mut curve = Curve::new(self.built, &self.iteration)?;
        let (mut stops, mut shift) = (vec![stop], 0.0);
        if self.misses(&stops, shift, false) && Curve::refines(self.built) {
            shift = self.refine(&mut curve, &mut stops, &mut checkpointer.defer_interrupt(observer))?;
        }
        curve.collect_rewards(self.iteration.rewards(), 1);
        curve.divide(mass);
        self.go_on_along(&Ending { curve, stops, shift }, mass, observer, checkpointer)
    }

    /// The curve of several parts behind x_{k−1}, if it leaves every remaining time within its bound.
    fn stop_parts(&mut self, observer: &mut dyn Observer) -> Result<Option<Ending<'a, T>>> {
        let parts = self.parts.get_or_insert_with(|| extrapolation::parts(self.built));
        let Some((part, count)) = parts.clone() else { return Ok(None) };
        let mut curve = Curve::of_parts(self.built, &self.iteration, part)?;
        let step = self.iteration.steps() - 1;
        let stop = Stop { step, leak: 0.0, defect: 0.0, rounding: 0.0, most: f64::INFINITY };
        let mut stops = vec![stop; count];
        let shift = self.refine(&mut curve, &mut stops, observer)?;
        Ok((!self.misses(&stops, shift, false)).then_some(Ending { curve, stops, shift }))
    }

    /// Makes the vector of a curve better until no time misses its bound, or nothing helps. Returns how far it has moved.
    fn refine(
        &mut self,
        curve: &mut Curve<'_, T>,
        stops: &mut [Stop],
        observer: &mut dyn Observer,
    ) -> Result<f64> {
        // It works in the place of the iterates.
        let (k, newest) = (self.iteration.steps(), self.iteration.kept()?);
        let before = self.iteration.progress.0 + k;
        // As many steps again make of d about d²; where that is not enough more of them have to come first.
        let hopeless = |stops: &[Stop], shift: f64| {
            let squared: Vec<Stop> =
                stops.iter().map(|stop| Stop { defect: stop.defect.powi(2), ..*stop }).collect();
            self.misses(&squared, shift, true)
        };
        let enough = |stops: &[Stop], shift: f64| !self.misses(stops, shift, false) || hopeless(stops, shift);
        let refinement = curve.refine(k, before, stops, enough, observer)?;
        self.refined += refinement.steps;
        self.iteration.resume(k, &newest)?;
        Ok(refinement.shift)
    }

    /// Serves all times that are left by a curve, from an iterate of some mass.
    fn go_on_along(
        &mut self,
        Ending { curve, stops, shift }: &Ending<'_, T>,
        mass: f64,
        observer: &mut dyn Observer,
        checkpointer: &mut Checkpointer<'_>,
    ) -> Result<()> {
        let open = std::mem::take(&mut self.open).into_iter().map(|o| (o.place, Some(o.target)));
        let waiting = std::mem::take(&mut self.waiting).into_iter().map(|place| (place, None));
        let leaks = stops.iter().map(|stop| stop.leak).filter(|leak| *leak > 0.0);
        let slowest = leaks.reduce(f64::min).unwrap_or(0.0);
        for (place, target) in open.chain(waiting) {
            let time = &mut self.planned[place];
            time.is_averaged = stops.iter().all(|stop| time.averages(stop));
            if !time.is_averaged {
                time.weighted(self.built);
            }
            let shares: Vec<Shares> = stops.iter().map(|stop| stop.shares(time)).collect();
            let [error, rounding] = price(stops, time.lambda);
            time.steps = stops[0].step;
            time.steady_state = shift + error;
            // Shares are known to a few units, and so is what they are multiplied with.
            time.stop_rounding = rounding + 16.0 * f64::EPSILON;
            time.truncation = match &time.weights {
                Some(weights) if !time.is_averaged => {
                    // What all parts hold is no more than 1.
                    let (beyond, doubt) = weights.above();
                    let most = shares.iter().map(|shares| shares.beyond).fold(0.0, f64::max);
                    (time.truncation - beyond).max(0.0) + doubt + most
                }
                _ => 0.0,
            };
            time.normalisation += shares[0].at[0] * (mass - 1.0).abs();
            time.stopped = Some(Stopped { step: stops[0].step, mu: 1.0 - slowest });
            for ((instant, cumulative), reward) in time.rewards.iter_mut().zip(&curve.rewards) {
                *instant += reward.value(shares.iter().map(|shares| shares.at));
                *cumulative += reward.value(shares.iter().map(|shares| shares.until));
            }
            if self.vectors {
                let mut host = self.host();
                let mut result = match target {
                    Some(target) => self.iteration.downloaded(&target.acc, host)?,
                    None => {
                        host.clear();
                        host.resize(curve.len(), 0.0);
                        host
                    }
                };
                curve.add_to(&mut result, &shares);
                observer.result(self.planned[place].index, &result)?;
                checkpointer.delivered(self.planned[place].index, &result);
                self.host = result;
            }
        }
        Ok(())
    }

    /// Bounds what a stop amplifies by the expected steps to one state of each closed class, where nothing is absorbing
    /// and a bound would not be met without.
    fn bound_by_meeting(&self, stop: &mut Stop, observer: &mut dyn Observer) -> Result<()> {
        let built = self.built;
        if built.statistics.leavable.all() && self.certificate.is_none() && self.misses(&[*stop], 0.0, false)
        {
            // About as much work as was done, and not more than the host does in some seconds.
            let most = (4 * stop.step + (1 << 14)).min(MOST_WORK / built.statistics.nnz.max(1));
            let steps = self.certificate(most, observer)?.meeting;
            stop.most = steps.map_or(f64::INFINITY, |steps| 2.0 * steps);
        }
        Ok(())
    }

    /// H of the sweep's steps, if `most` sweeps backwards show it.
    fn certificate(&self, most: u64, observer: &mut dyn Observer) -> Result<Certificate> {
        let built = self.built;
        // They may have been given up.
        built.problem.transitions.acquire_rows(&built.parts.rows);
        let alpha = 1.0 / built.statistics.mean_holding();
        let (meeting, classes) = meeting(built, alpha, &self.iteration.newest()?, most, observer)?;
        Ok(Certificate { meeting, classes })
    }
}

/// Looks that a sweep of some steps affords.
fn looks_in<T>(built: &Built<'_, T>, steps: u64) -> f64 {
    LOOKS_SHARE * steps as f64 / built.costs.look()
}

/// True if a sweep up to `end` affords a look at the parts of its chain before each power of two, these can be told apart, and it has gone on for longer
/// than it takes to search for them.
fn looks_at_parts<T: Number>(built: &Built<'_, T>, step: u64, end: u64) -> bool {
    let all = built.costs.look_at_parts() * f64::from(end.max(2).ilog2());
    !built.statistics.leavable.all()
        && all <= LOOKS_SHARE * end as f64
        && built.costs.search_for_parts() <= step as f64
        && Curve::refines(built)
}

/// The step to look at behind one, so that `looks` of them at most, at distances that grow like the steps, are made up to `end`.
fn next_look(step: u64, end: u64, looks: f64) -> u64 {
    let all = (end as f64 / CHECK_STEPS as f64).max(1.0);
    let share = CHECK_SHARE.max((all.ln() / looks).exp_m1());
    step.saturating_add(((step as f64 * share).ceil() as u64).max(CHECK_STEPS))
}

/// The weights of a time whose window is open.
fn held(time: &Planned) -> &Weights {
    time.weights.as_ref().expect("an open window has its weights")
}

/// p_k and P(N > k) of a time point that rewards are wanted at.
fn weight_and_tail(time: &Planned, k: u64) -> (f64, f64) {
    let Window { left, right, .. } = time.window;
    match &time.weights {
        _ if k < left => (0.0, 1.0),
        Some(weights) if k <= right => {
            let i = (k - left) as usize;
            (weights.values[i], time.tails[i + 1])
        }
        _ => (0.0, 0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_no_more_than_a_sweep_affords_and_near_enough_to_each_other() {
        for end in [1000, 10_000, 1_000_000, 1 << 40] {
            for afforded in [1.0, 2.5, 10.0, 1e3, 1e6] {
                let (mut at, mut looks) = (CHECK_STEPS, 0);
                while at < end {
                    looks += 1;
                    let next = next_look(at, end, afforded);
                    assert!(next >= at + CHECK_STEPS, "{next} behind {at}");
                    let near = afforded < 300.0 || next <= at + at.div_ceil(16).max(CHECK_STEPS);
                    assert!(near, "{next} behind {at}, {afforded} looks to {end}");
                    at = next;
                }
                assert!(f64::from(looks) <= afforded.ceil(), "{looks} looks to {end}, {afforded} afforded");
            }
        }
    }
}
