//! Trial of a matrix format on a CPU: steps of some rows in the middle of the part.
//!
//! The fastest format depends on the rows and on the processor: on its loads and gathers, its
//! caches and its memory. Between two steps the trial reads as many other bytes as the rest of the
//! part has, so that the rows come from the cache or memory that a whole step reads them from.

use std::hint::black_box;
use std::time::Instant;

use super::chunk::{Chunk, LanePart, StepSum};
use super::matrix::{Choice, MatrixSource};
use crate::Result;
use crate::kernel::Number;
use crate::kernel::cpu::PARALLEL_ITEMS;
use crate::lane::Program;
use crate::parallel::*;
use crate::sparse::BLOCK;
use crate::transient::partition::subdomain::RowKind;

/// Maximum number of rows of a trial.
///
/// Short runs try an eighth of the part's rows, but enough for all threads. Long runs try all rows.
const ROWS: usize = 1 << 18;
/// Number of steps of a run from which a trial of all rows pays.
///
/// A trial of rows in the middle may mislead. Their lengths, and the elements of x that they read,
/// differ from those of all rows.
const PAYS_WHOLE: f64 = 2000.0;
/// Fewest rows of a trial, and for each thread.
const FEWEST: usize = PARALLEL_ITEMS;
const OF_THREAD: usize = 2048;
/// Bytes of other data that replace those of the trial in all caches, and in the caches of a core.
const ALL_CACHES: usize = 48 << 20;
const CORE: usize = 4 << 20;
/// Number of timed runs of a trial, and steps of each: all rows if few, all rows, some rows.
const SMALL: (u64, u64) = (3, 16);
const WHOLE: (u64, u64) = (6, 2);
const PARTIAL: (u64, u64) = (6, 1);

impl<T: Number> MatrixSource<'_, T> {
    /// Returns the number of bytes that are read between two steps of the trial of a format.
    fn others(&self, choice: &Choice<T>, count: usize) -> usize {
        let vectors = 3 * T::PRECISION.bytes() * self.rows() as u64;
        let rest = (self.bytes(choice) + vectors) as f64 * (1.0 - count as f64 / self.rows() as f64);
        if rest as usize >= ALL_CACHES { ALL_CACHES } else { CORE.min(rest as usize) }
    }

    /// Returns the seconds of a step of some rows in each format, the least of several.
    ///
    /// # Errors
    /// Lack of memory for three vectors and the rows of the trial.
    pub(super) fn trial(&self, choices: &[&Choice<T>]) -> Result<Vec<f64>> {
        let (lane, n) = (self.lane, self.rows());
        let fewest = FEWEST.max(OF_THREAD * threads());
        let wanted = if self.statistics.steps >= PAYS_WHOLE { n } else { n / 8 };
        let count = wanted.clamp(fewest, ROWS.max(fewest)).min(n);
        let first = (n - count) / 2 / BLOCK * BLOCK;
        let others = choices.iter().map(|choice| self.others(choice, count)).max().unwrap_or(0);
        let others = vec![1u64; others / size_of::<u64>()];
        let vector = |len| lane.alloc("a vector of a trial", len);
        // Untouched memory of these vectors takes no pages.
        let mut part = LanePart {
            lane: 0,
            rows: self.region.rows.clone(),
            computed: self.region.computed.clone(),
            own: self.region.own(),
            x: [vector(self.region.len())?, vector(self.region.len())?],
            non_absorbing: lane.alloc("states that can be left", 1)?,
            exit: vector(n)?,
            chunks: Vec::new(),
        };
        let (scalars, acc) = (lane.alloc_with("scalars", &[self.statistics.inverse_alpha])?, vector(1)?);
        for choice in choices {
            let stored = self.stored(choice, first..first + count)?;
            part.chunks.push(Chunk { kind: RowKind::Interior, first, rows: count, stored });
        }
        let step = |chunk: &Chunk<T>, source| {
            let (scalars, acc, window) = (scalars.arg(), acc.arg(), 0..0);
            let sum = StepSum { scalars, acc, window, weights: 0, recurrence: false };
            chunk.step(lane, &part, source, &sum, 0..count)
        };
        let pairs = part.chunks.iter().map(|chunk| Ok([step(chunk, 0)?, step(chunk, 1)?]));
        let pairs = pairs.collect::<Result<Vec<_>>>()?;
        let (runs, steps) = match count == n {
            true if n < PARALLEL_ITEMS => SMALL,
            true => WHOLE,
            false => PARTIAL,
        };
        let mut least = vec![f64::INFINITY; choices.len()];
        // Formats alternate, so that other work on the machine slows them alike.
        for run in 0..=runs {
            for ((choice, pair), least) in choices.iter().zip(&pairs).zip(&mut least) {
                let others = &others[..self.others(choice, count) / size_of::<u64>()];
                let sums = others.par_chunks(1 << 13).map(|some| some.iter().sum());
                black_box(sums.reduce(|| 0, u64::max));
                let program = Program { cycle: pair.iter().map(|step| vec![step]).collect() };
                let work = |steps| {
                    let run = || lane.run(&program, run * steps, steps, &mut |_| Ok(()));
                    if n < PARALLEL_ITEMS { alone(run) } else { run() }
                };
                if count == n {
                    // Other formats have replaced the data in the caches.
                    work(1)?;
                }
                let began = Instant::now();
                work(steps)?;
                // The first run brings the rows into the caches, and wakes threads.
                if run > 0 {
                    *least = least.min(began.elapsed().as_secs_f64() / steps as f64);
                }
            }
        }
        Ok(least)
    }
}
