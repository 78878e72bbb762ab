//! Blocking in time: a CPU takes several steps of some rows while their data is in its caches.
//!
//! A step of a large chain streams its matrix and its vectors from memory. Rows of queues,
//! birth-death processes and grids read only elements near their own. Such rows are cut into tiles.
//! Step s of tile j follows step s − 1 of tile j + `lag`, so it finds the data of its tile in the
//! caches. All rows that read a tile of an iterate precede the step that overwrites it, so two
//! iterates suffice, and every row gets the same bits as without tiles.

use std::ops::Range;
use std::sync::Mutex;
use std::time::Instant;

use crate::Result;
use crate::lane::{Batch, Lane, Launch, Program};
use crate::parallel::*;
use crate::transient::chain::transitions::Transitions;

/// Bytes of matrix and vectors of a tile for each thread: many times the cost of a loop's start.
const TILE: usize = 1 << 20;
/// Number of tiles below which the caches may hold the chain without blocking.
const FEWEST: usize = 32;
/// Number of tiles that caches hold. A block has as many steps if its lag is 1.
const CACHED: usize = 12;
/// Number of timed blocks, and of as many single steps, before the faster way is taken.
const TRIALS: usize = 2;

/// Tiles of the rows of a chain for blocking in time.
#[derive(Debug)]
pub(crate) struct TimeTiles {
    /// Number of rows of the chain.
    total: usize,
    /// Number of rows of a tile; the last one may have fewer.
    rows: usize,
    /// Rows of tile j read only elements of the tiles j − lag to j + lag.
    lag: usize,
    /// Number of steps of a block.
    depth: u64,
    trial: Mutex<Trial>,
}

/// Times of single steps and of blocks.
#[derive(Debug)]
struct Trial {
    /// Number of runs so far, of both kinds.
    runs: usize,
    /// Least seconds of as many steps as a block has: one by one, and in a block.
    least: [f64; 2],
}

impl TimeTiles {
    /// Cuts a chain with `bytes` of matrix and vectors into tiles.
    ///
    /// Returns `None` if the chain is too small, or if its rows read elements too far away.
    pub(crate) fn new(transitions: &dyn Transitions, bytes: u64) -> Option<Self> {
        let total = transitions.states();
        let per_row = (bytes as usize).checked_div(total)?.max(1);
        // Whole units of the threads' work.
        let rows = (TILE / per_row).next_multiple_of(1024) * threads();
        if total.div_ceil(rows) < FEWEST {
            return None;
        }
        let lag = reach(transitions, CACHED / 2 * rows)?.div_ceil(rows).max(1);
        Some(Self::of(total, rows, lag, (CACHED / lag) as u64))
    }

    /// Returns tiles of `rows` rows; a block has `depth` steps.
    pub(crate) fn of(total: usize, rows: usize, lag: usize, depth: u64) -> Self {
        let trial = Trial { runs: 0, least: [f64::INFINITY; 2] };
        Self { total, rows, lag, depth, trial: Mutex::new(trial) }
    }

    /// Returns the rows of every tile.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Range<usize>> {
        (0..self.total).step_by(self.rows).map(|first| first..(first + self.rows).min(self.total))
    }

    /// Runs steps in blocks, or one by one with `program` if that is faster.
    ///
    /// `launches` has for each tile its launches in even and in odd steps.
    pub(crate) fn run(
        &self,
        lane: &Lane,
        launches: &[[Vec<Launch>; 2]],
        program: &Program<'_>,
        steps: Range<u64>,
        watch: &mut (dyn FnMut(u64) -> Result<()> + Send),
    ) -> Result<()> {
        let mut k = steps.start;
        while k < steps.end {
            let (left, done, runs) = (steps.end - k, k - steps.start, lock(&self.trial).runs);
            let blocked = match runs > 2 * TRIALS {
                true => lock(&self.trial).least.is_sorted_by(|single, block| single > block),
                false => runs.is_multiple_of(2),
            };
            let depth = if blocked || runs <= 2 * TRIALS { self.depth.min(left) } else { left };
            let began = Instant::now();
            if blocked {
                let of_tile = |(step, tile): (u64, usize)| {
                    let launches: &[Launch] = &launches[tile][((k + step) % 2) as usize];
                    launches.iter().map(move |launch| (step, launch))
                };
                let launches = self.order(depth).flat_map(of_tile).collect();
                lane.submit(&Batch { launches, ..Batch::default() }, k)?;
            } else {
                lane.run(program, k, depth, &mut |further| watch(done + further))?;
            }
            let mut trial = lock(&self.trial);
            // The first block wakes the threads.
            if trial.runs > 0 && depth == self.depth {
                let least = &mut trial.least[usize::from(blocked)];
                *least = least.min(began.elapsed().as_secs_f64());
            }
            trial.runs += usize::from(depth == self.depth);
            drop(trial);
            k += depth;
            watch(k - steps.start)?;
        }
        Ok(())
    }

    /// Returns the (step, tile) pairs of a block of `depth` steps in their order.
    fn order(&self, depth: u64) -> impl Iterator<Item = (u64, usize)> {
        let (tiles, lag) = (self.total.div_ceil(self.rows), self.lag);
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
            let blocking = TimeTiles::of(10 * tiles - 1, 10, lag, depth);
            // Number of steps that each tile has taken: it holds the last two iterates.
            let mut taken = vec![0; tiles];

            for (step, tile) in blocking.order(depth) {
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
