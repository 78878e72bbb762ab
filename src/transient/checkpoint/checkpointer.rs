//! Keeps a run's state while it works, and gives it back to a run that goes on.

use std::ops::Range;
use std::time::{Duration, Instant};

use super::file::Contents;
use super::identity::Identity;
use super::state::{Phase, State, StationaryState, SubdividedState, UniformizationState};
use super::store::{BusyGuard, Checkpoint, Resumable};
use crate::ranks::Ranks;
use crate::transient::problem::Order;
use crate::transient::problem::{Observer, Options, Problem};
use crate::transient::solution::TimeResult;
use crate::{Error, Machine, Result};

/// Time between two moments at which the state can be kept: short against the patience of a user who interrupts.
const LEG: Duration = Duration::from_millis(200);
/// Longest that an interruption waits for such a moment.
const PATIENCE: Duration = Duration::from_millis(500);

/// A rank's wish at the end of a leg.
const CONTINUE: u8 = 0;
const SAVE: u8 = 1;
const INTERRUPT: u8 = 2;

/// A phase to go on with, and its vectors.
pub(crate) struct Resumed<S> {
    pub(crate) state: S,
    pub(crate) vectors: Vec<Vec<f64>>,
}

/// Keeps a run's state, if it is asked to.
pub struct Checkpointer<'a> {
    active: Option<Active<'a>>,
}

struct Active<'a> {
    checkpoint: &'a mut Checkpoint,
    ranks: Ranks,
    /// This rank's states, once they are known.
    rows: Range<usize>,
    identity: Identity,
    state: State,
    delivered: Vec<(usize, Vec<f64>)>,
    /// The state to go on from, until the rows are known.
    resumable: Option<Resumable>,
    /// The phase to go on with, until it is taken over.
    resumed: Option<Resumed<Phase>>,
    /// When the observer interrupted.
    interrupted: Option<Instant>,
    /// Steps of the next leg, and when the present one began.
    leg: u64,
    began: Instant,
}

impl<'a> Checkpointer<'a> {
    /// Keeps nothing.
    pub fn none() -> Self {
        Self { active: None }
    }

    /// True if it keeps nothing.
    pub(crate) fn is_idle(&self) -> bool {
        self.active.is_none()
    }

    /// Keeps a run in its checkpoint, and takes over what that holds.
    pub(crate) fn new(
        checkpoint: &'a mut Checkpoint,
        machine: &Machine,
        problem: &Problem<'_>,
        options: &Options,
    ) -> Result<Self> {
        let (lanes, ranks) = (&machine.lanes, machine.ranks);
        // Sums over ranks are made by the thread that asked, not in a lane's.
        let identity = match ranks.is_distributed() {
            true => Identity::of(machine, problem, options)?,
            false => lanes[0].host(|| Identity::of(machine, problem, options))?,
        };
        let backends: Vec<&str> = lanes.iter().map(|lane| lane.device().backend).collect();
        let mut backends: Vec<String> = ranks
            .all_gather_text(&backends.join("\n"))
            .iter()
            .flat_map(|all| all.lines())
            .map(str::to_owned)
            .collect();
        backends.dedup();
        let fresh = State { order: options.order, backends, terms: 0, times: Vec::new(), phase: Phase::Done };
        checkpoint.last = Instant::now();
        let resumable = checkpoint.resumable.take();
        let state = match &resumable {
            None => fresh,
            Some(resumable) => {
                let (contents, mut differences) =
                    (resumable.state(), resumable.identity().differences(&identity));
                if options.order != Order::Auto && options.order != contents.order {
                    let (one, other) = (contents.order.name(), options.order.name());
                    differences.push(format!("the order of states (there {one}, here {other})"));
                }
                if !differences.is_empty() {
                    return Err(Error::File {
                        path: checkpoint.path.clone(),
                        reason: format!(
                            "the checkpoint belongs to another run, which differs in {}; use equal \
                             options, or delete the checkpoint or name another to start afresh",
                            differences.join(" and ")
                        ),
                    });
                }
                if contents.backends != fresh.backends {
                    checkpoint.note = Some(format!(
                        "the checkpoint was made on {}: the answer keeps its bound, but need not have the bits of a run \
                         on {} alone",
                        contents.backends.join(", "),
                        fresh.backends.join(", ")
                    ));
                }
                checkpoint.resumed = Some(contents.terms());
                let places = problem.times.len();
                let known = contents.times.iter().map(|(place, _)| *place).chain(resumable.delivered());
                if known.into_iter().any(|place| place >= places) {
                    return Err(unusable(checkpoint));
                }
                State { backends: fresh.backends, ..contents.clone() }
            }
        };
        let (interrupted, leg, began) = (None, 1, Instant::now());
        let active = Active {
            checkpoint,
            ranks,
            rows: 0..0,
            identity,
            state,
            delivered: Vec::new(),
            resumable,
            resumed: None,
            interrupted,
            leg,
            began,
        };
        Ok(Self { active: Some(active) })
    }

    /// Gets to know which states' probabilities are this rank's, and reads what the checkpoint holds of them.
    pub(crate) fn set_rows(&mut self, rows: &Range<usize>) -> Result<()> {
        let Some(active) = &mut self.active else { return Ok(()) };
        active.rows = rows.clone();
        if let Some(resumable) = active.resumable.take() {
            let Contents { state, delivered, vectors, .. } =
                active.ranks.all_ok(resumable.rows(rows.clone()))?;
            active.delivered = delivered;
            active.resumed = Some(Resumed { state: state.phase, vectors });
        }
        Ok(())
    }

    /// The order that the states had before, if the run goes on.
    pub(crate) fn order(&self) -> Option<Order> {
        self.active.as_ref().filter(|a| a.resumable.is_some()).map(|a| a.state.order)
    }

    /// Notes the order chosen.
    pub(crate) fn set_order(&mut self, order: Order) {
        if let Some(active) = self.active.as_mut().filter(|a| a.state.order == Order::Auto) {
            active.state.order = order;
        }
    }

    /// Tells what was delivered before: times of phases that are over, and probabilities. Returns the
    /// multiplications of these phases.
    pub(crate) fn replay(
        &self,
        times: &mut [Option<TimeResult>],
        observer: &mut dyn Observer,
    ) -> Result<u64> {
        let Some(active) = &self.active else { return Ok(0) };
        for (place, time) in &active.state.times {
            times[*place] = Some(time.clone());
        }
        for (place, probabilities) in &active.delivered {
            observer.result(*place, probabilities)?;
        }
        Ok(active.state.terms)
    }

    /// Notes a result that was delivered.
    pub(crate) fn delivered(&mut self, place: usize, probabilities: &[f64]) {
        if let Some(active) = &mut self.active {
            active.delivered.push((place, probabilities.to_vec()));
        }
    }

    /// Notes the end of a time.
    pub(crate) fn finished(&mut self, place: usize, time: &TimeResult) {
        if let Some(active) = &mut self.active {
            active.state.times.push((place, time.clone()));
        }
    }

    /// Notes the end of a phase that took so many multiplications.
    pub(crate) fn ended(&mut self, terms: u64) {
        if let Some(active) = &mut self.active {
            active.state.terms += terms;
        }
    }

    fn resume<S>(&mut self, of: impl FnOnce(Phase) -> Option<S>) -> Result<Option<Resumed<S>>> {
        let Some(active) = &mut self.active else { return Ok(None) };
        let Some(resumed) = active.resumed.take() else { return Ok(None) };
        match of(resumed.state) {
            Some(state) => Ok(Some(Resumed { state, vectors: resumed.vectors })),
            None => Err(unusable(active.checkpoint)),
        }
    }

    /// The sweep to go on with.
    pub(crate) fn uniformization(&mut self) -> Result<Option<Resumed<UniformizationState>>> {
        self.resume(|phase| if let Phase::Uniformization(state) = phase { Some(state) } else { None })
    }

    /// The steady state to go on with.
    pub(crate) fn stationary(&mut self) -> Result<Option<Resumed<StationaryState>>> {
        self.resume(|phase| if let Phase::Stationary(state) = phase { Some(state) } else { None })
    }

    /// The intervals to go on with.
    pub(crate) fn subdivided(&mut self) -> Result<Option<Resumed<SubdividedState>>> {
        self.resume(|phase| if let Phase::Subdivided(state) = phase { Some(state) } else { None })
    }

    /// That what was taken over does not fit the run.
    pub(crate) fn unusable(&self) -> Error {
        match &self.active {
            Some(active) => unusable(active.checkpoint),
            None => unreachable!("only what was taken over can fail to fit"),
        }
    }

    /// The step up to which to go before the state is offered again, `to` at most.
    pub(crate) fn next_stop(&mut self, from: u64, to: u64) -> u64 {
        let Some(active) = &mut self.active else { return to };
        active.began = Instant::now();
        to.min(from.saturating_add(active.leg))
    }

    /// Takes note of how long a leg of so many steps took.
    pub(crate) fn record_pace(&mut self, steps: u64) {
        if let Some(active) = &mut self.active {
            let took = active.began.elapsed().as_secs_f64().max(1e-6);
            // Legs end where those of the other ranks do.
            let fit = active.ranks.all_reduce_min((LEG.as_secs_f64() / took * steps as f64) as u64);
            active.leg = fit.clamp(1, active.leg.max(steps).saturating_mul(8));
        }
    }

    /// An observer that lets the present leg come to its end when it interrupts.
    pub(crate) fn defer_interrupt<'b>(&'b mut self, observer: &'b mut dyn Observer) -> InterruptDeferred<'b> {
        InterruptDeferred {
            observer,
            interrupted: self.active.as_mut().map(|active| &mut active.interrupted),
        }
    }

    /// Keeps a state if that is due, or if the run is to be interrupted, which it then is.
    pub(crate) fn save_if_due(
        &mut self,
        state: impl FnOnce() -> Result<(Phase, Vec<Vec<f64>>)>,
    ) -> Result<()> {
        let Some(active) = &mut self.active else { return Ok(()) };
        // What one rank is asked for or finds due, all do.
        let asked = match (active.interrupted, active.checkpoint.due()) {
            (Some(_), _) => INTERRUPT,
            (None, true) => SAVE,
            (None, false) => CONTINUE,
        };
        let asked = active.ranks.all_gather(&[asked]).concat().into_iter().max();
        if asked == Some(CONTINUE) {
            return Ok(());
        }
        let _busy = BusyGuard::new();
        let (phase, vectors) = state()?;
        active.write(phase, vectors);
        if asked == Some(INTERRUPT) { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// Keeps a state in which the observer has just interrupted the work, and passes any error on.
    pub(crate) fn save_on_interrupt<R>(
        &mut self,
        result: Result<R>,
        state: impl FnOnce() -> Result<(Phase, Vec<Vec<f64>>)>,
    ) -> Result<R> {
        if let (Some(active), Err(Error::Interrupted)) = (&mut self.active, &result) {
            let _busy = BusyGuard::new();
            let (phase, vectors) = state()?;
            active.write(phase, vectors);
        }
        result
    }

    /// Keeps the whole answer.
    pub(crate) fn complete(&mut self) {
        if let Some(active) = &mut self.active
            && active.resumed.is_none()
        {
            active.write(Phase::Done, Vec::new());
        }
    }
}

impl Active<'_> {
    fn write(&mut self, phase: Phase, vectors: Vec<Vec<f64>>) {
        self.state.phase = phase;
        let contents = Contents {
            identity: self.identity.clone(),
            state: self.state.clone(),
            rows: self.rows.clone(),
            delivered: std::mem::take(&mut self.delivered),
            vectors,
        };
        self.checkpoint.write(&contents, self.ranks);
        self.delivered = contents.delivered;
    }
}

fn unusable(checkpoint: &Checkpoint) -> Error {
    Error::File {
        path: checkpoint.path.clone(),
        reason: "the checkpoint contradicts itself; delete it or name another to start afresh".to_owned(),
    }
}

/// See [`Checkpointer::patient`].
pub(crate) struct InterruptDeferred<'a> {
    observer: &'a mut dyn Observer,
    interrupted: Option<&'a mut Option<Instant>>,
}

impl Observer for InterruptDeferred<'_> {
    fn progress(&mut self, done: u64, all: u64) -> Result<()> {
        match (self.observer.progress(done, all), &mut self.interrupted) {
            (Err(Error::Interrupted), Some(since)) => {
                // A leg that takes longer than legs should is given up.
                let since = since.get_or_insert_with(Instant::now);
                if since.elapsed() < PATIENCE { Ok(()) } else { Err(Error::Interrupted) }
            }
            (agreed, _) => agreed,
        }
    }

    fn result(&mut self, index: usize, probabilities: &[f64]) -> Result<()> {
        self.observer.result(index, probabilities)
    }
}
