//! Scan of all transitions before a run: row lengths, exit rates, and the rounding of a step.

use std::cell::RefCell;
use std::ops::Range;

use super::absorbing_states::NonAbsorbing;
use super::statistics::{MatrixStatistics, scale_of, scale_rates};
use super::transitions::{Transitions, exit_rate};
use crate::kernel::{Number, Precision};
use crate::parallel::*;
use crate::ranks::Ranks;
use crate::transient::rounding::{column_rounding, exit_share, fixed_rounding, inverse_below, step_rounding};
use crate::util::memory::zeroed;
use crate::{Invalid, Result};

/// Appends a row of the stored matrix to `entries`, with columns mapped by `place`.
pub(crate) fn append_entries<T: Number>(
    transitions: &dyn Transitions,
    statistics: &MatrixStatistics<T>,
    row: usize,
    place: impl Fn(u32) -> u32,
    entries: &mut Vec<(u32, T)>,
) {
    thread_local! {
        static RATES: RefCell<Vec<(u32, f64)>> = const { RefCell::new(Vec::new()) };
    }
    RATES.with_borrow_mut(|rates| {
        let rates = transitions.entering(row, rates);
        entries.extend(rates.iter().map(|&(column, rate)| (place(column), statistics.entry(rate))));
    });
}

/// Error of a step in discrete time by the rounding of its probabilities to doubles: 8 u.
///
/// Products and quotients of few numbers, such as 0.1 or 1/3, are within it.
pub(crate) const PROBABILITIES: f64 = 4.0 * f64::EPSILON;

/// Number of rows that a thread processes at once.
const ROWS: usize = 4096;

/// Returns the number of transitions into each state of `rows`.
pub(crate) fn lengths(transitions: &dyn Transitions, rows: Range<usize>) -> Vec<u32> {
    let mut lengths: Vec<u32> = zeroed(rows.len());
    let repeats = transitions.repeats_among(&rows);
    repeats.places(&mut lengths, ROWS).into_par_iter().for_each_init(Vec::new, |row, (first, lengths)| {
        for (i, length) in lengths.iter_mut().enumerate() {
            *length = transitions.entering(rows.start + first + i, row).len() as u32;
        }
    });
    repeats.copy(&mut lengths);
    lengths
}

/// Returns the exit rate of a state as stored, from its outgoing transitions `row`.
///
/// In single precision it is the sum of the stored rates, so that no mass is lost to the rounding
/// of rates. `exact` is the sum of the rates as given. In `discrete` time it is at most 1.
fn diagonal_of<T: Number>(row: &[(u32, f64)], exact: f64, discrete: bool) -> T {
    let sum = match T::PRECISION {
        Precision::F32 => exit_rate(row.iter().map(|&(_, r)| T::of(r).wide())),
        Precision::F64 | Precision::Q64 => exact,
    };
    T::of(if discrete { sum.min(1.0) } else { sum })
}

/// Converts statistics in double precision to fixed point.
fn fixed<T: Number>(
    transitions: &dyn Transitions,
    found: MatrixStatistics<f64>,
    ranks: Ranks,
) -> Result<MatrixStatistics<T>> {
    let MatrixStatistics { rows, lengths, non_absorbing, shares, nnz, alpha, scale, discrete, .. } = found;
    // Slightly above every exit rate, so that the shares of about a million transitions can be
    // rounded up. In discrete time the largest share is 1 − 2⁻⁶⁴ instead.
    let divisor = alpha * scale * (1.0 + (-40f64).exp2());
    let divisor = if alpha == 0.0 || discrete { 1.0 } else { divisor };
    let mut exit: Vec<T> = zeroed(rows.len());
    let most = exit_shares(transitions, &rows, &mut exit, scale, (divisor, discrete));
    let most = ranks.all_reduce_max(most.unwrap_or(f64::INFINITY));
    if most.is_infinite() {
        return Invalid::TooLarge.fail(
            "a state has more than ten million transitions, too many for the rounding of q64; use \
             `precision` f64",
        );
    }
    // In discrete time an entry is a unit smaller, and a state that is left surely keeps a unit.
    let (step, vector) = fixed_rounding(transitions.states(), if discrete { 1.5 * most + 1.0 } else { most });
    let inverse_alpha = T::ZERO;
    Ok(MatrixStatistics {
        rows,
        lengths,
        exit,
        non_absorbing,
        shares,
        nnz,
        alpha,
        scale,
        inverse_alpha,
        divisor,
        discrete,
        step,
        vector,
        steps: f64::INFINITY,
    })
}

/// Stores each state's exit probability per step; returns the largest number of transitions.
///
/// That is the maximum over states of the transitions out of one. `None` if an exit probability
/// does not fit into 64 bits, except in discrete time.
fn exit_shares<T: Number>(
    transitions: &dyn Transitions,
    rows: &Range<usize>,
    exit: &mut [T],
    scale: f64,
    (divisor, discrete): (f64, bool),
) -> Option<f64> {
    let most = |(first, exit): (usize, &mut [T])| {
        let (first, mut most) = (rows.start + first, Some(0.0f64));
        transitions.each_outgoing(first..first + exit.len(), |state, row| {
            let leave = exit_share(row.iter().map(|&(_, rate)| rate * scale), divisor);
            exit[state - first] = T::from_bits(leave.unwrap_or(u64::MAX));
            most = most.filter(|_| leave.is_some() || discrete).map(|most| most.max(row.len() as f64));
        });
        most
    };
    let repeats = transitions.repeats_among(rows);
    let most = repeats.places(exit, ROWS).into_par_iter().map(most);
    let most = most.reduce(|| Some(0.0), |a, b| Some(a?.max(b?)));
    repeats.copy(exit);
    most
}

impl<T: Number> MatrixStatistics<T> {
    /// Extends the statistics to all rows of `hull`, which includes the known rows.
    pub(crate) fn widen(&mut self, transitions: &dyn Transitions, hull: Range<usize>) {
        let (scale, divisor, discrete) = (self.scale, self.divisor, self.discrete);
        let exits = |rows: Range<usize>| -> Vec<T> {
            let one = |row: &mut Vec<(u32, f64)>, state: usize| {
                row.clear();
                transitions.outgoing(state, row);
                scale_rates(row, scale);
                match T::PRECISION {
                    Precision::Q64 => {
                        let leave = exit_share(row.iter().map(|&(_, rate)| rate), divisor);
                        T::from_bits(leave.unwrap_or(u64::MAX))
                    }
                    _ => diagonal_of(row, exit_rate(row.iter().map(|&(_, r)| r)), discrete),
                }
            };
            rows.into_par_iter().with_min_len(ROWS).map_init(Vec::new, one).collect()
        };
        let (before, after) = (hull.start..self.rows.start, self.rows.end..hull.end);
        self.lengths.splice(0..0, lengths(transitions, before.clone()));
        self.lengths.extend(lengths(transitions, after.clone()));
        self.exit.splice(0..0, exits(before));
        self.exit.extend(exits(after));
        self.rows = hull;
    }
}

/// Scans the transitions for a run in precision `T`.
/// Fails with [`Invalid`] for an exit rate that overflows a double.
pub fn statistics<T: Number>(transitions: &dyn Transitions) -> Result<MatrixStatistics<T>> {
    statistics_of_rows(transitions, 0..transitions.states(), Ranks::ALONE)
}

/// Scans the transitions out of `rows`, the own rows of each rank. Collective.
pub(crate) fn statistics_of_rows<T: Number>(
    transitions: &dyn Transitions,
    rows: Range<usize>,
    ranks: Ranks,
) -> Result<MatrixStatistics<T>> {
    if T::PRECISION == Precision::Q64 {
        return fixed(transitions, statistics_of_rows::<f64>(transitions, rows, ranks)?, ranks);
    }
    let lengths = lengths(transitions, rows.clone());
    let scanned = &mut |exit: &mut [T], scale: f64| {
        Ok(scan::<T>(transitions, &rows, &lengths, exit, scale).over(ranks))
    };
    let leaves = |state: usize| {
        let mut row = Vec::new();
        transitions.outgoing(state, &mut row);
        !row.is_empty()
    };
    let entries = lengths.par_iter().map(|&l| u64::from(l)).reduce(|| 0, |a, b| a + b);
    let (states, discrete) = (transitions.states(), transitions.is_discrete());
    let found = statistics_of_scan((rows.clone(), states), entries, discrete, ranks, &leaves, scanned)?;
    Ok(MatrixStatistics { lengths, ..found })
}

/// Derives the statistics of `rows`, of `states` in all, from a scan of the transitions.
///
/// Collective. The lengths of the result are empty; `entries` is their sum. `leaves(i)` is true if
/// state i has a transition. `scan(exit, c)` scans the rates times c, and writes the stored exit
/// rates.
pub(crate) fn statistics_of_scan<T: Number>(
    (rows, states): (Range<usize>, usize),
    entries: u64,
    discrete: bool,
    ranks: Ranks,
    leaves: &(dyn Fn(usize) -> bool + Sync),
    scan: &mut dyn FnMut(&mut [T], f64) -> Result<Scan>,
) -> Result<MatrixStatistics<T>> {
    let mut exit: Vec<T> = zeroed(rows.len());
    let mut found = scan(&mut exit, 1.0)?;
    let alpha = if discrete && found.exact > 0.0 { 1.0 } else { found.exact };
    if discrete && found.exact > 1.0 + 1e-12 {
        let sum = found.exact;
        return Invalid::Number("probabilities")
            .fail(format!("the probabilities of leaving a state sum to {sum}: expected at most 1"));
    }
    if !alpha.is_finite() {
        return Invalid::Number("rates").fail(format!(
            "the sum of a state's rates is above {:e}, the largest double; give rates per a \
             shorter unit of time",
            f64::MAX
        ));
    }
    let scale = scale_of(alpha);
    // Scaling is exact if the stored numbers are far from the limits of the range, as is usual.
    // Then no second scan is needed.
    let low = T::NEGLIGIBLE.wide();
    match alpha == 0.0 || (alpha * low <= 1.0 && found.least >= low && found.least * scale >= low) {
        true => {
            exit.par_iter_mut().for_each(|rate| *rate = T::of(rate.wide() * scale));
            (found.stored, found.scaled) = (found.stored * scale, found.scaled * scale);
        }
        false => found = scan(&mut exit, scale)?,
    }
    let inverse_alpha = inverse_below::<T>(if discrete { alpha } else { found.stored });
    let non_absorbing = NonAbsorbing::new(rows.clone(), &exit, leaves, ranks);
    let nnz = ranks.all_reduce_sum(entries + non_absorbing.count());
    let u = T::PRECISION.unit_roundoff();
    let mut step = step_rounding(found.scaled, inverse_alpha, nnz, states);
    if discrete {
        step += PROBABILITIES;
    }
    let shares = Vec::new();
    let divisor = 1.0;
    Ok(MatrixStatistics {
        rows,
        lengths: Vec::new(),
        exit,
        non_absorbing,
        shares,
        nnz,
        alpha,
        scale,
        inverse_alpha,
        divisor,
        discrete,
        step,
        vector: u,
        steps: f64::INFINITY,
    })
}

/// Extreme rates and exit rates found by a scan of all transitions.
#[derive(Clone, Copy)]
pub(crate) struct Scan {
    /// Largest exit rate as stored; `exact` is the largest unrounded one.
    pub(crate) stored: f64,
    pub(crate) exact: f64,
    /// Smallest rate; infinity if there is none.
    pub(crate) least: f64,
    /// Largest [`column_rounding`] of a state, from which the rounding of a step is bounded.
    pub(crate) scaled: f64,
}

impl Scan {
    pub(crate) const NOTHING: Self = Self { stored: 0.0, exact: 0.0, least: f64::INFINITY, scaled: 0.0 };

    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            stored: self.stored.max(other.stored),
            exact: self.exact.max(other.exact),
            least: self.least.min(other.least),
            scaled: self.scaled.max(other.scaled),
        }
    }

    /// Combines the results of all ranks: maxima, and the minimum for `least`.
    fn over(self, ranks: Ranks) -> Self {
        let [stored, exact, scaled] =
            [self.stored, self.exact, self.scaled].map(|largest| ranks.all_reduce_max(largest));
        Self { stored, exact, scaled, least: -ranks.all_reduce_max(-self.least) }
    }
}

/// Scans the transitions out of `rows` with rates multiplied by `scale`, and stores exit rates.
fn scan<T: Number>(
    transitions: &dyn Transitions,
    rows: &Range<usize>,
    lengths: &[u32],
    exit: &mut [T],
    scale: f64,
) -> Scan {
    let (single, discrete) = (T::PRECISION == Precision::F32, transitions.is_discrete());
    let repeats = transitions.repeats_among(rows);
    let found = repeats
        .places(exit, ROWS)
        .into_par_iter()
        .map_init(Default::default, |(other, scaled): &mut (Vec<_>, Vec<_>), (first, exit)| {
            let mut length = |to: usize| match rows.contains(&to) {
                true => f64::from(lengths[to - rows.start]),
                false => transitions.entering(to, other).len() as f64,
            };
            let mut found = Scan::NOTHING;
            let first = rows.start + first;
            transitions.each_outgoing(first..first + exit.len(), |state, row| {
                let row = match scale == 1.0 {
                    true => row,
                    false => {
                        scaled.clear();
                        scaled.extend_from_slice(row);
                        scale_rates(scaled, scale);
                        &scaled[..]
                    }
                };
                let out = &mut exit[state - first];
                let exact = exit_rate(row.iter().map(|&(_, r)| r));
                // If the sum overflows, its compensation is NaN.
                let exact = if exact.is_nan() { f64::INFINITY } else { exact };
                *out = diagonal_of(row, exact, discrete);
                let rows: f64 = row.iter().map(|&(to, r)| r * (length(to as usize) + 3.0)).sum();
                let storage: f64 = match single {
                    true => row.iter().map(|&(_, r)| (T::of(r).wide() - r).abs()).sum(),
                    false => 0.0,
                };
                found = found.and(Scan {
                    stored: out.wide(),
                    exact,
                    least: row.iter().fold(f64::INFINITY, |least, &(_, r)| least.min(r)),
                    scaled: column_rounding::<T>(rows, storage, exact, out.wide()),
                });
            });
            found
        })
        .reduce(|| Scan::NOTHING, Scan::and);
    repeats.copy(exit);
    found
}
