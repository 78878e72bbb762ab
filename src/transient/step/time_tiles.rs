//! Blocking in time: a CPU takes several steps of some rows while their data is in its caches.
//!
//! A step of a large chain streams its matrix and its vectors from memory. Rows of queues,
//! birth-death processes and grids read only elements near their own. Such rows are cut into tiles.
//! Step s of tile j follows step s − 1 of tile j + `lag`, the last one that it reads. At most
//! [`CACHED`] steps of tiles lie between two steps of a tile, so that caches still hold its data.
//! All rows that read a tile of an iterate precede the step that overwrites it, so two iterates
//! suffice, and every row gets the same bits as without tiles.

use std::ops::Range;
use std::sync::Mutex;
use std::time::Instant;

use crate::Result;
use crate::lane::{Lane, LaneBatch, Launch, Program};
use crate::parallel::*;
use crate::transient::chain::transitions::Transitions;

/// Bytes of matrix and vectors of a tile for each thread. Their step takes far longer than starting
/// a loop.
const TILE: usize = 1 << 20;
/// Number of rows of a thread that kernels cut into equal pieces.
const PIECES: usize = 8 * 1024;
/// Number of tiles below which the caches may hold the chain without blocking.
const FEWEST: usize = 32;
/// Maximum number of tiles between two steps of a tile. A trial finds out if caches hold them.
const CACHED: usize = 12;
/// Number of single steps that are timed at once; enough that threads stay awake between them.
const SINGLE: u64 = 16;
/// Number of timed blocks, and of timed runs of [`SINGLE`] steps.
const TRIALS: usize = 2;

/// Tiles of the rows of a chain for blocking in time.
#[derive(Debug)]
pub(crate) struct TimeTiles {
    /// Number of rows of the chain.
    total: usize,
    /// Number of rows of a tile; the last one may have fewer.
    rows: usize,
    /// Number of tiles before and behind a tile that its rows read.
    lag: usize,
    /// Number of steps of a block.
    depth: u64,
    trial: Mutex<Trial>,
}

/// Times of single steps and of blocks.
#[derive(Debug, Clone, Copy)]
struct Trial {
    /// Number of blocks and of runs of [`SINGLE`] steps so far.
    runs: usize,
    /// Least seconds per single step, and per step in a block.
    least: [f64; 2],
}

impl TimeTiles {
    /// Cuts a chain with `bytes` of matrix and vectors into tiles.
    ///
    /// Returns `None` if the chain is too small, or if its rows read elements too far away.
    pub(crate) fn new(transitions: &dyn Transitions, bytes: u64) -> Option<Self> {
        let total = transitions.states();
        let per_row = (bytes as usize).checked_div(total)?.max(1);
        let rows = (TILE / per_row / PIECES).max(1) * PIECES * threads();
        if total.div_ceil(rows) < FEWEST {
            return None;
        }
        let lag = reach(transitions, CACHED / 2 * rows)?.div_ceil(rows).max(1);
        let trial = Trial { runs: 0, least: [f64::INFINITY; 2] };
        Some(Self { total, rows, lag, depth: (CACHED / lag) as u64, trial: Mutex::new(trial) })
    }

    /// Returns tiles that are taken without a trial.
    #[cfg(test)]
    pub(crate) fn untried(total: usize, rows: usize, lag: usize, depth: u64) -> Self {
        let trial = Trial { runs: 2 * TRIALS + 1, least: [1.0, 0.0] };
        Self { total, rows, lag, depth, trial: Mutex::new(trial) }
    }

    /// Returns the rows of every tile.
    fn rows(&self) -> impl Iterator<Item = Range<usize>> {
        (0..self.total).step_by(self.rows).map(|first| first..(first + self.rows).min(self.total))
    }

    /// Runs steps in blocks, or one by one with `program`; the first runs try which is faster.
    ///
    /// `prepare` returns the launches of some rows in steps with even and with odd numbers.
    pub(crate) fn run(
        &self,
        lane: &Lane,
        prepare: impl Fn(Range<usize>) -> Result<[Vec<Launch>; 2]>,
        program: &Program<'_>,
        steps: Range<u64>,
        watch: &mut (dyn FnMut(u64) -> Result<()> + Send),
    ) -> Result<()> {
        let mut prepared = Vec::new();
        let mut k = steps.start;
        while k < steps.end {
            let (left, done) = (steps.end - k, k - steps.start);
            let Trial { runs, least } = *lock(&self.trial);
            let trying = runs <= 2 * TRIALS && left >= self.depth.max(SINGLE);
            let blocked = if trying { runs.is_multiple_of(2) } else { least[1] < least[0] };
            if !(trying || blocked && left >= self.depth) {
                return lane.run(program, k, left, &mut |further| watch(done + further));
            }
            if blocked && prepared.is_empty() {
                prepared = self.rows().map(&prepare).collect::<Result<Vec<_>>>()?;
            }
            let began = Instant::now();
            let count = if blocked { self.depth } else { SINGLE };
            if blocked {
                let of_tile = |(step, tile): (u64, usize)| {
                    let launches: &[Launch] = &prepared[tile][((k + step) % 2) as usize];
                    launches.iter().map(move |launch| (step, launch))
                };
                let launches: Vec<_> = self.order().flat_map(of_tile).collect();
                // An interruption waits for the time of a step.
                for some in launches.chunks(launches.len().div_ceil(self.depth as usize)) {
                    lane.submit(&LaneBatch { launches: some.to_vec(), ..LaneBatch::default() }, k)?;
                    watch(done)?;
                }
            } else {
                lane.run(program, k, count, &mut |_| Ok(()))?;
            }
            if trying {
                let mut trial = lock(&self.trial);
                // The first block wakes the threads, and gets the pages of the vectors.
                if trial.runs > 0 {
                    let least = &mut trial.least[usize::from(blocked)];
                    *least = least.min(began.elapsed().as_secs_f64() / count as f64);
                }
                trial.runs += 1;
            }
            k += count;
            watch(k - steps.start)?;
        }
        Ok(())
    }

    /// Returns the (step, tile) pairs of a block in their order.
    fn order(&self) -> impl Iterator<Item = (u64, usize)> {
        let Self { lag, depth, .. } = *self;
        let tiles = self.total.div_ceil(self.rows);
        let at_front = move |front: usize| {
            let tile = move |step: u64| Some((step, front.checked_sub(step as usize * lag)?));
            (0..depth).filter_map(tile).filter(move |&(_, tile)| tile < tiles)
        };
        (0..tiles + (depth as usize - 1) * lag).flat_map(at_front)
    }
}

/// Returns the largest distance between a row and an element that it reads; `None` above `most`.
fn reach(transitions: &dyn Transitions, most: usize) -> Option<usize> {
    const ROWS: usize = 1 << 14;
    let total = transitions.states();
    let of_rows = |piece: usize| {
        let (mut row, mut reach) = (Vec::new(), 0);
        for state in piece * ROWS..((piece + 1) * ROWS).min(total) {
            let entering = transitions.entering(state, &mut row);
            for (source, _) in entering.first().into_iter().chain(entering.last()) {
                reach = reach.max(state.abs_diff(*source as usize));
            }
            if reach > most {
                return None;
            }
        }
        Some(reach)
    };
    (0..total.div_ceil(ROWS)).into_par_iter().map(of_rows).reduce(|| Some(0), |a, b| Some(a?.max(b?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_follow_the_steps_that_they_read_and_overwrite() {
        for (tiles, lag, depth) in [(1, 1, 2), (5, 1, 4), (7, 3, 4), (40, 2, 16), (6, 9, 3)] {
            let blocking = TimeTiles::untried(10 * tiles - 1, 10, lag, depth);
            // Number of steps that each tile has taken: it holds the last two iterates.
            let mut taken = vec![0; tiles];

            for (step, tile) in blocking.order() {
                assert_eq!(taken[tile], step, "tile {tile}");
                for near in &taken[tile.saturating_sub(lag)..tiles.min(tile + lag + 1)] {
                    assert!((step..=step + 1).contains(near), "{near} steps near step {step} of {tile}");
                }
                taken[tile] += 1;
            }

            assert!(taken.iter().all(|&taken| taken == depth), "{taken:?}");
        }
    }
}
