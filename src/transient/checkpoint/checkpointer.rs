//! Saves the state of a run periodically, and restores it in a run that resumes.

use std::fs::File;
use std::ops::Range;
use std::time::{Duration, Instant};

use super::file::{Contents, StoredCheckpoint};
use super::identity::Identity;
use super::state::{RunPhase, RunState};
use super::store::{BusyGuard, Checkpoint};
use crate::ranks::Ranks;
use crate::transient::problem::{Observer, Options, Problem};
use crate::transient::solution::TimeResult;
use crate::{Error, Machine, Result};

/// Target time between two possible saves, short enough for a user who interrupts.
const LEG: Duration = Duration::from_millis(200);
/// Longest time that an interruption waits for the next possible save.
const PATIENCE: Duration = Duration::from_millis(500);

/// Requests of a rank when the state can be saved: continue, save, or save and end.
const CONTINUE: u8 = 0;
const SAVE: u8 = 1;
const INTERRUPT: u8 = 2;

/// Phase to resume, with its vectors.
pub(crate) struct Resumed<S> {
    pub(crate) state: S,
    pub(crate) vectors: Vec<Vec<f64>>,
}

/// Saves the state of a run, if a checkpoint is requested.
pub struct Checkpointer<'a> {
    active: Option<Active<'a>>,
}

struct Active<'a> {
    checkpoint: &'a mut Checkpoint,
    ranks: Ranks,
    /// States owned by this rank; empty until they are known.
    rows: Range<usize>,
    identity: Identity,
    state: RunState,
    delivered: Vec<(usize, Vec<f64>)>,
    /// Saved state to resume from, until the rows are known.
    resumable: Option<StoredCheckpoint<File>>,
    /// Phase to resume, until it is taken.
    resumed: Option<Resumed<RunPhase>>,
    /// Time at which the observer interrupted the run, if it did.
    interrupted: Option<Instant>,
    /// Number of steps until the state can be saved next, adapted to [`LEG`] of time.
    leg: u64,
    /// Start time of the current steps, after which the state can be saved next.
    began: Instant,
}

impl<'a> Checkpointer<'a> {
    /// Creates a checkpointer that saves nothing.
    pub fn none() -> Self {
        Self { active: None }
    }

    /// True if no checkpoint is requested, so that the checkpointer saves nothing.
    pub(crate) fn is_idle(&self) -> bool {
        self.active.is_none()
    }

    /// Creates a checkpointer for a run, which resumes from the checkpoint's content, if any.
    pub(crate) fn new(
        checkpoint: &'a mut Checkpoint,
        machine: &Machine,
        problem: &Problem<'_>,
        options: &Options,
    ) -> Result<Self> {
        let (lanes, ranks) = (&machine.lanes, machine.ranks);
        let identity = Identity::of(machine, problem, options);
        let backends: Vec<&str> = lanes.iter().map(|lane| lane.device().backend).collect();
        let mut backends: Vec<String> = ranks
            .all_gather_text(&backends.join("\n"))
            .iter()
            .flat_map(|all| all.lines())
            .map(str::to_owned)
            .collect();
        backends.dedup();
        let fresh = RunState { backends, terms: 0, times: Vec::new(), phase: RunPhase::Done };
        checkpoint.last = Instant::now();
        let resumable = checkpoint.resumable.take();
        let state = match &resumable {
            None => fresh,
            Some(StoredCheckpoint { head, .. }) => {
                let differences = head.identity.differences(&identity);
                let kept = &head.state;
                if !differences.is_empty() {
                    let reason = format!(
                        "the checkpoint belongs to another run, which differs in {}; use equal options, or \
                         delete the checkpoint or name another to start afresh",
                        differences.join(" and ")
                    );
                    return Err(Error::file(&checkpoint.path, reason));
                }
                if kept.backends != fresh.backends {
                    checkpoint.note = Some(format!(
                        "the checkpoint was made on {}: the answer keeps its bound, but need not \
                         have the bits of a run on {} alone",
                        kept.backends.join(", "),
                        fresh.backends.join(", ")
                    ));
                }
                checkpoint.resumed = Some(kept.terms());
                let places = problem.times.len();
                let mut known = kept.times.iter().map(|(place, _)| place).chain(&head.delivered);
                if known.any(|&place| place >= places) {
                    return Err(unusable(checkpoint));
                }
                RunState { backends: fresh.backends, ..kept.clone() }
            }
        };
        let active = Active {
            checkpoint,
            ranks,
            rows: 0..0,
            identity,
            state,
            delivered: Vec::new(),
            resumable,
            resumed: None,
            interrupted: None,
            leg: 1,
            began: Instant::now(),
        };
        Ok(Self { active: Some(active) })
    }

    /// Sets this rank's states, and reads their part of the checkpoint.
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

    /// Delivers the saved results: times of earlier phases, and probabilities.
    ///
    /// Returns the matrix–vector products of these phases.
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

    /// Records the probabilities that the observer has received for time number `place`.
    pub(crate) fn delivered(&mut self, place: usize, probabilities: &[f64]) {
        if let Some(active) = &mut self.active {
            active.delivered.push((place, probabilities.to_vec()));
        }
    }

    /// Records the bound and rewards of time number `place`, which is complete.
    pub(crate) fn finished(&mut self, place: usize, time: &TimeResult) {
        if let Some(active) = &mut self.active {
            active.state.times.push((place, time.clone()));
        }
    }

    /// Records the end of a phase that took `terms` matrix–vector products.
    pub(crate) fn ended(&mut self, terms: u64) {
        if let Some(active) = &mut self.active {
            active.state.terms += terms;
        }
    }

    /// Returns the phase to resume, if any; `of` selects its state.
    pub(crate) fn resume<S>(&mut self, of: impl FnOnce(RunPhase) -> Option<S>) -> Result<Option<Resumed<S>>> {
        let Some(active) = &mut self.active else { return Ok(None) };
        let Some(Resumed { state, vectors }) = active.resumed.take() else { return Ok(None) };
        match of(state) {
            Some(state) => Ok(Some(Resumed { state, vectors })),
            None => Err(unusable(active.checkpoint)),
        }
    }

    /// Returns the error that the restored state does not fit the run.
    pub(crate) fn unusable(&self) -> Error {
        match &self.active {
            Some(active) => unusable(active.checkpoint),
            None => unreachable!("only what was taken over can fail to fit"),
        }
    }

    /// Returns the step at which the state can be saved next, at most `to`.
    pub(crate) fn next_stop(&mut self, from: u64, to: u64) -> u64 {
        let Some(active) = &mut self.active else { return to };
        active.began = Instant::now();
        to.min(from.saturating_add(active.leg))
    }

    /// Adapts the number of steps until the next possible save to the time of the last `steps`.
    pub(crate) fn record_pace(&mut self, steps: u64) {
        if let Some(active) = &mut self.active {
            let took = active.began.elapsed().as_secs_f64().max(1e-6);
            // All ranks end their legs at one step.
            let fit = active.ranks.all_reduce_min((LEG.as_secs_f64() / took * steps as f64) as u64);
            active.leg = fit.clamp(1, active.leg.max(steps).saturating_mul(8));
        }
    }

    /// Defers an observer's interruption until the state can be saved, if checkpoints are kept.
    pub(crate) fn defer_interrupt(&mut self, agreed: Result<()>) -> Result<()> {
        match (agreed, &mut self.active) {
            (Err(Error::Interrupted), Some(active)) => {
                // A leg that takes far longer than planned is interrupted.
                let since = active.interrupted.get_or_insert_with(Instant::now);
                if since.elapsed() < PATIENCE { Ok(()) } else { Err(Error::Interrupted) }
            }
            (agreed, _) => agreed,
        }
    }

    /// Saves a state if it is due or the observer has interrupted; then returns the interruption.
    pub(crate) fn save_if_due(
        &mut self,
        state: impl FnOnce() -> Result<(RunPhase, Vec<Vec<f64>>)>,
    ) -> Result<()> {
        let Some(active) = &mut self.active else { return Ok(()) };
        // All ranks act on the most urgent request of any rank.
        let asked = match (active.interrupted, active.checkpoint.due()) {
            (Some(_), _) => INTERRUPT,
            (None, true) => SAVE,
            (None, false) => CONTINUE,
        };
        let asked = active.ranks.all_gather(&[asked]).concat().into_iter().max();
        if asked == Some(CONTINUE) {
            return Ok(());
        }
        active.save(state)?;
        if asked == Some(INTERRUPT) { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// Saves the state if `result` is an interruption by the observer, and returns `result`.
    pub(crate) fn save_on_interrupt<R>(
        &mut self,
        result: Result<R>,
        state: impl FnOnce() -> Result<(RunPhase, Vec<Vec<f64>>)>,
    ) -> Result<R> {
        if let (Some(active), Err(Error::Interrupted)) = (&mut self.active, &result) {
            active.save(state)?;
        }
        result
    }

    /// Saves the complete result.
    pub(crate) fn complete(&mut self) {
        if let Some(active) = &mut self.active
            && active.resumed.is_none()
        {
            active.write(RunPhase::Done, Vec::new());
        }
    }
}

impl Active<'_> {
    fn save(&mut self, state: impl FnOnce() -> Result<(RunPhase, Vec<Vec<f64>>)>) -> Result<()> {
        let _busy = BusyGuard::new();
        let (phase, vectors) = state()?;
        self.write(phase, vectors);
        Ok(())
    }

    fn write(&mut self, phase: RunPhase, vectors: Vec<Vec<f64>>) {
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
    let reason = "the checkpoint contradicts itself; delete it or name another to start afresh";
    Error::file(&checkpoint.path, reason)
}
