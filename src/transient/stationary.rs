//! The steady state, with a certificate.
//!
//! Let z be one state of each closed class that can be reached, and H the largest expected number of steps from any
//! state that can be reached until one of them is met. Then lim x Pᵏ differs from x by at most 2·H·‖xP − x‖ in l1: paths from x and from the limit are
//! the same in law once they have met a z, the flow of xP − x into each class is zero because the probability of
//! ending there is harmonic, and what happens before lasts H steps at most in expectation.
//!
//! H is bounded by a second iteration, [backwards](super::meeting), which ends with a vector that falls by a known number at least in
//! every step in expectation. No guess is made from two iterates that happen to be close, which a chain of slow and fast parts
//! would fool.
//!
//! The choice of z decides how large H is: the most probable state of its class, as a first sweep finds it, is met
//! soon; the empty state of a saturated queue is not in a lifetime.
//!
//! Where finite times were served before, it begins with the last of their iterates: the limit of x_k is that of x_0.
//!
//! Where states are absorbing, the curve of a [stop](super::stop) may end the first sweep: it shows where all that can still be
//! left ends up, however slowly.
//!
//! A small chain is not iterated for long: its states are [eliminated](super::elimination) before more multiplications are
//! done than that costs, at once where these are fewer than the first sweep takes.
//!
//! On ranks each follows the transitions of its own states, forwards on its lanes and backwards on the host.

use super::bound::LAZY;
use super::built::{Built, total};
use super::checkpoint::{Certificate, Checkpointer, Phase, StationaryState};
use super::classes::{Classes, Known};
use super::elimination;
use super::iteration::{Iteration, Which};
use super::meeting::expected_steps;
use super::problem::Observer;
use super::solution::{Bound, RewardValue, TimeResult};
use super::stop::Stop;
use super::sweep::LastIterate;
use crate::Result;
use crate::kernel::{Number, Precision};

/// Steps, and the distance of two iterates, at which the first sweep has seen where the probability gathers.
const FIRST_STEPS: u64 = 1 << 14;
pub(super) const FIRST_DISTANCE: f64 = 1e-6;
/// Transitions followed backwards before the certificate is given up: about a minute's work.
const MOST_WORK: u64 = 1 << 35;
/// Multiplications after which the sweep is given up.
const MOST_STEPS: u64 = 1 << 31;

impl StationaryState {
    /// Goes to x_to, `until` or from here on, in legs whose ends may be kept; then measures the distance.
    fn advance<T: Number>(
        &mut self,
        iteration: &mut Iteration<'_, T>,
        most: u64,
        observer: &mut dyn Observer,
        checkpointer: &mut Checkpointer<'_>,
    ) -> Result<()> {
        let to = self.until.take().unwrap_or_else(|| self.steps + (self.steps / 16).clamp(16, most));
        loop {
            let leg = checkpointer.next_stop(self.steps, to);
            iteration.advance(leg, &[], &mut checkpointer.defer_interrupt(observer))?;
            checkpointer.record_pace(leg - self.steps);
            self.steps = leg;
            if leg == to {
                break;
            }
            checkpointer.save_if_due(|| Ok((self.phase(Some(to)), vec![iteration.kept()?])))?;
        }
        // The sum of n magnitudes in blocks of 256 and then in double precision has a relative error below this.
        let slack = 1.0 + 12.0 * T::PRECISION.unit_roundoff() + 1e-9;
        self.distance = iteration.distance()? * slack;
        Ok(())
    }

    fn phase(&self, until: Option<u64>) -> Phase {
        Phase::Stationary(Self { until, ..self.clone() })
    }
}

/// First steps from an iterate that may be near the steady state.
const NEAR_STEPS: u64 = 16;

/// Serves the infinite times, from the `last` iterate of finite ones if there is one; returns the number of multiplications and of states
/// that were eliminated.
pub(super) fn run<T: Number>(
    built: &Built<'_, T>,
    which: &[usize],
    last: Option<LastIterate>,
    times: &mut [Option<TimeResult>],
    observer: &mut dyn Observer,
    checkpointer: &mut Checkpointer<'_>,
) -> Result<(u64, usize)> {
    let (transitions, ranks) = (built.problem.transitions, built.parts.ranks);
    let n = transitions.states();
    // Multiplications beyond which elimination is cheaper.
    let worth = elimination::worth(n, built.statistics.nnz);
    let mut found = (Vec::new(), Bound::default(), 0);
    let mut eliminated = 0;
    let first = worth.is_some_and(|worth| worth <= FIRST_STEPS);
    if !first {
        found = iterate(built, last, worth.unwrap_or(MOST_STEPS), observer, checkpointer)?;
    }
    if first || (worth.is_some() && found.1.total() > built.options.epsilon) {
        if let Some((limit, bound)) = eliminate(built, observer)? {
            (found.0, found.1, eliminated) = (limit, bound, n);
        } else {
            // Rates span too many orders: however long it takes.
            found = iterate(built, None, MOST_STEPS, observer, checkpointer)?;
        }
    }
    let (limit, bound, terms) = found;
    for &index in which {
        let rewards = built.problem.rewards.iter().map(|r| {
            let mut sum = [0.0];
            ranks.ordered_reduce(&mut sum, |sum| {
                r.values.iter().zip(&limit).for_each(|(r, p)| sum[0] += r * p);
            });
            let [instantaneous] = sum;
            // A reward that goes on sums to infinity. Whether one that may be zero in the limit has a finite sum,
            // and which, the limit does not tell.
            let most = ranks.all_reduce_max(r.values.iter().fold(0.0f64, |m, r| m.max(r.abs())));
            let error = bound.total() * most;
            let cumulative =
                if instantaneous.abs() > error { instantaneous * f64::INFINITY } else { f64::NAN };
            RewardValue { name: r.name.clone(), instantaneous, cumulative }
        });
        let result = TimeResult {
            time: built.problem.times[index],
            alpha_t: f64::INFINITY,
            window: (0, terms),
            bound,
            rewards: rewards.collect(),
            ..TimeResult::default()
        };
        checkpointer.finished(index, &result);
        times[index] = Some(result);
        if built.problem.vectors {
            observer.result(index, &limit)?;
            checkpointer.delivered(index, &limit);
        }
    }
    Ok((terms, eliminated))
}

/// The limit of this rank's states by elimination, which every rank does by itself.
fn eliminate<T: Number>(
    built: &Built<'_, T>,
    observer: &mut dyn Observer,
) -> Result<Option<(Vec<f64>, Bound)>> {
    let (transitions, ranks, rows) = (built.problem.transitions, built.parts.ranks, &built.parts.rows);
    let n = transitions.states();
    transitions.acquire_rows(&(0..n));
    let initial: Vec<f64> = ranks.all_gather(&built.initial).concat();
    let classes = Classes::new(transitions, &initial, &initial);
    let mut check = || ranks.all_ok(observer.progress(0, 0));
    let found = elimination::limit(transitions, built.statistics.scale, &initial, &classes, &mut check)?;
    transitions.acquire_rows(rows);
    Ok(found.map(|(limit, rounding)| {
        let rounding = rounding + built.initial_error;
        (limit[rows.clone()].to_vec(), Bound { rounding, ..Bound::default() })
    }))
}

/// Sweeps backwards after which the certificate is given up.
pub(super) fn most_sweeps<T: Number>(built: &Built<'_, T>) -> u64 {
    (MOST_WORK / built.statistics.nnz.max(1)).max(1 << 16)
}

/// Bound of the expected steps of P = I + Q/α to one state of each closed class, `probable` deciding which, and the number of these
/// classes; no bound where `most` sweeps do not show one.
pub(super) fn meeting<T: Number>(
    built: &Built<'_, T>,
    alpha: f64,
    probable: &[f64],
    most: u64,
    observer: &mut dyn Observer,
) -> Result<(Option<f64>, usize)> {
    let (transitions, ranks) = (built.problem.transitions, built.parts.ranks);
    let known = Known::new(transitions, ranks, built.parts.rows.clone());
    let Classes { representatives, reached } = known.closed_classes(&built.initial, probable);
    let mut bound = || expected_steps(&known, alpha, &representatives, &reached, most, observer);
    // Sums over ranks are made by the thread that asked, not in a lane's.
    let found = if ranks.is_distributed() { bound() } else { built.machine.lanes[0].host(bound) };
    Ok((found?, representatives.len()))
}

/// The end of the curve of a [`Stop`], where everything is absorbed that can still be, if its bound is met.
fn absorbed<T: Number>(
    built: &Built<'_, T>,
    iteration: &Iteration<'_, T>,
) -> Result<Option<(Vec<f64>, Bound)>> {
    let Some(masses) = iteration.leavable_masses()? else { return Ok(None) };
    let (terms, step) = (iteration.steps(), built.statistics.step);
    let stop = Stop::new::<T, _>(terms - 1, Some(masses), step, |mu| iteration.defect(mu))?;
    if stop.leak == 0.0 {
        return Ok(None);
    }
    let endless = 1.0 / stop.leak;
    let bound = Bound {
        steady_state: stop.defect * endless,
        rounding: step * terms as f64 + stop.rounding * endless + 16.0 * f64::EPSILON + built.initial_error,
        ..Bound::default()
    };
    if bound.total() > built.options.epsilon {
        return Ok(None);
    }
    let (mut limit, newest) = (iteration.iterate(Which::Before)?, iteration.newest()?);
    for (i, (p, newest)) in limit.iter_mut().zip(newest).enumerate() {
        *p = if built.statistics.leavable.contains(i) { 0.0 } else { *p + (newest - *p) * endless };
    }
    Ok(Some((limit, bound)))
}

/// The last iterate of a sweep from the beginning, or from the `last` of one before, that ends at the steady state or after `most`
/// multiplications, its bound, and their number.
fn iterate<T: Number>(
    built: &Built<'_, T>,
    last: Option<LastIterate>,
    most: u64,
    observer: &mut dyn Observer,
    checkpointer: &mut Checkpointer<'_>,
) -> Result<(Vec<f64>, Bound, u64)> {
    let ranks = built.parts.ranks;
    // Nine tenths of 1/α leave every state a probability of staying: a periodic chain converges too.
    let inverse_alpha = T::of(LAZY * built.statistics.inverse_alpha.wide());
    let alpha = match T::PRECISION {
        // Its matrix is made so.
        Precision::Q64 => built.statistics.divisor,
        _ => 1.0 / inverse_alpha.wide(),
    };
    let mut iteration = Iteration::new(&built.machine.lanes, &built.parts, inverse_alpha, &[], (0, 0))?;
    let mut s = StationaryState {
        steps: 0,
        until: None,
        distance: f64::INFINITY,
        best: f64::INFINITY,
        stalled: 0,
        certificate: None,
    };
    let mut before = 0;
    match (checkpointer.stationary()?, last) {
        (None, None) => iteration.start_in(&built.initial, built.beginning())?,
        (None, Some(last)) => {
            iteration.resume(last.steps, &last.kept)?;
            (before, s.steps, s.until) = (last.steps, last.steps, Some(last.steps + NEAR_STEPS));
            // The same time in shorter steps.
            let shorter = built.statistics.mean_holding() * alpha / built.statistics.scale;
            let in_steps = |steps: f64| steps * shorter * (1.0 + 4.0 * f64::EPSILON);
            s.certificate =
                last.certificate.map(|known| Certificate { meeting: known.meeting.map(in_steps), ..known });
        }
        (Some(kept), _) => {
            s = kept.state;
            match &kept.vectors[..] {
                [x] if x.len() == built.initial.len() && s.until.is_none_or(|until| until > s.steps) => {
                    iteration.resume(s.steps, x)?;
                }
                _ => return Err(checkpointer.unusable()),
            }
        }
    }
    let certificate = match s.certificate {
        Some(certificate) => certificate,
        None => {
            let moves = |s: &StationaryState| s.distance > FIRST_DISTANCE || built.parts.absorbing;
            while s.until.is_some() || (moves(&s) && s.steps - before < FIRST_STEPS.min(most)) {
                checkpointer.save_if_due(|| Ok((s.phase(s.until), vec![iteration.kept()?])))?;
                s.advance(&mut iteration, 1 << 10, observer, checkpointer)?;
                if let Some((limit, bound)) = absorbed(built, &iteration)? {
                    return Ok((limit, bound, iteration.steps() - before));
                }
            }
            let probable = iteration.newest()?;
            let most = most_sweeps(built).min(most);
            let found = meeting(built, alpha / built.statistics.scale, &probable, most, observer);
            let found =
                checkpointer.save_on_interrupt(found, || Ok((s.phase(None), vec![iteration.kept()?])))?;
            Certificate { meeting: found.0, classes: found.1 }
        }
    };
    s.certificate = Some(certificate);
    let Certificate { meeting, classes } = certificate;

    // Without a certificate the distance of two distributions is at most 2, whatever they are.
    let bound_of = |distance: f64| meeting.map_or(2.0, |meeting| (2.0 * meeting * distance).min(2.0));
    // What a step's own rounding does to the residual cannot be iterated away.
    let floor = meeting.map_or(0.0, |meeting| 2.0 * meeting * built.statistics.step);
    let target = (built.options.epsilon - floor).max(0.25 * built.options.epsilon) * 0.9;
    // A distance that is no more than two steps' rounding and no longer falls will not: one that falls slowly does.
    while s.until.is_some() || (bound_of(s.distance) > target && s.stalled < 8 && s.steps - before < most) {
        checkpointer.save_if_due(|| Ok((s.phase(s.until), vec![iteration.kept()?])))?;
        s.advance(&mut iteration, 1 << 16, observer, checkpointer)?;
        if let Some((limit, bound)) = absorbed(built, &iteration)? {
            return Ok((limit, bound, iteration.steps() - before));
        }
        let falls = s.distance < 0.999 * s.best || s.distance > 2.0 * built.statistics.step;
        s.stalled = if falls { 0 } else { s.stalled + 1 };
        s.best = s.best.min(s.distance);
    }
    let steady_state = bound_of(s.distance);
    let terms = iteration.steps();
    let mut limit = iteration.newest()?;
    // The mass has drifted with rounding by a measured amount; the limit's is that of the beginning.
    let (mass, initial) = (total(&limit, ranks), total(&built.initial, ranks));
    limit.iter_mut().for_each(|p| *p = *p / mass * initial);
    // One closed class: the limit does not depend on the way there, only on the last residual. Several: rounding
    // on the way shifted mass between them.
    let on_the_way = match classes {
        1 => 0.0,
        _ => (built.statistics.step * terms as f64).min(2.0),
    };
    let rounding = floor
        + on_the_way
        + 2.0 * (mass - initial).abs()
        + 4.0 * T::PRECISION.unit_roundoff()
        + built.initial_error;
    Ok((limit, Bound { steady_state, rounding, ..Bound::default() }, terms - before))
}
