//! Trial of a matrix format on a CPU: steps of some rows in the middle of the part.
//!
//! The fastest format depends on the rows and on the processor: on its loads and gathers, its
//! caches and its memory. Between two steps the trial reads as many other bytes as the rest of the
//! part has, so that the rows come from the cache or memory that a whole step reads them from.

use std::hint::black_box;
use std::time::Instant;

use super::chunk::{Chunk, Part, Sum};
use super::matrix::{Choice, Source};
use crate::Result;
use crate::kernel::Number;
use crate::kernel::cpu::PARALLEL_ITEMS;
use crate::lane::Program;
use crate::parallel::*;
use crate::sparse::BLOCK;
use crate::transient::partition::subdomain::Kind;

/// Most rows of a trial; an eighth of the part's rows, if those suffice for all threads.
const ROWS: usize = 1 << 18;
/// Fewest rows of a trial, and for each thread.
const FEWEST: usize = PARALLEL_ITEMS;
const OF_THREAD: usize = 2048;
/// Bytes of other data that replace those of the trial in all caches, and in the caches of a core.
const ALL_CACHES: usize = 48 << 20;
const CORE: usize = 4 << 20;
/// Number of timed runs of a trial, and steps of each, on all rows or on some.
const WHOLE: (u64, u64) = (2, 16);
const PARTIAL: (u64, u64) = (4, 1);

impl<T: Number> Source<'_, T> {
    /// Returns the number of bytes that are read between two steps of the trial of a format.
    fn others(&self, choice: &Choice<T>, count: usize) -> usize {
        let vectors = 3 * T::PRECISION.bytes() * self.rows() as u64;
        let rest = (self.bytes(choice) + vectors) as f64 * (1.0 - count as f64 / self.rows() as f64);
        if rest as usize >= ALL_CACHES { ALL_CACHES } else { CORE.min(rest as usize) }
    }

    /// Returns the seconds of a step in each format, the least of several.
    ///
    /// # Errors
    /// Lack of memory for three vectors and the rows of the trial.
    pub(super) fn trial(&self, choices: &[&Choice<T>]) -> Result<Vec<f64>> {
        let (lane, n) = (self.lane, self.rows());
        let count = (n / 8).min(ROWS).max(FEWEST).max(OF_THREAD * threads()).min(n);
        let first = (n - count) / 2 / BLOCK * BLOCK;
        let others = choices.iter().map(|choice| self.others(choice, count)).max().unwrap_or(0);
        let others = vec![1u64; others / size_of::<u64>()];
        let vector = |len| lane.alloc("a vector of a trial", len);
        // Untouched memory of these vectors takes no pages.
        let mut part = Part {
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
        let mut all = Vec::new();
        for choice in choices {
            let (_, stored) = self.stored(choice, first..first + count, &[])?;
            part.chunks = vec![Chunk { kind: Kind::Interior, first, rows: count, sends: None, stored }];
            let sum = || Sum {
                scalars: scalars.arg(),
                acc: acc.arg(),
                window: 0..0,
                weights: 0,
                recurrence: false,
            };
            let step = |source| part.chunks[0].step(lane, &part, source, &sum(), 0..count, None);
            let steps = [step(0)?, step(1)?];
            let program = Program { cycle: steps.iter().map(|step| vec![step]).collect() };
            let (runs, steps) = if count == n { WHOLE } else { PARTIAL };
            let others = &others[..self.others(choice, count) / size_of::<u64>()];
            let mut least = f64::INFINITY;
            for run in 0..=runs {
                let sum = others.par_chunks(1 << 13).map(|some| some.iter().sum()).reduce(|| 0, u64::max);
                black_box(sum);
                let began = Instant::now();
                let work = || lane.run(&program, run * steps, steps, &mut |_| Ok(()));
                if n < PARALLEL_ITEMS {
                    alone(work)?
                } else {
                    work()?
                }
                // The first run brings the rows into the caches, and wakes threads.
                if run > 0 {
                    least = least.min(began.elapsed().as_secs_f64() / steps as f64);
                }
            }
            all.push(least * n as f64 / count as f64);
        }
        Ok(all)
    }
}
