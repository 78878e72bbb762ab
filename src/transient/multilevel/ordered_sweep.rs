//! Gauss–Seidel sweeps in row order by several threads.
//!
//! Threads take blocks of rows in order. A thread waits before it reads an unfinished element, so
//! the result equals that of a serial sweep. A block begins at a row without entries in the
//! [`NEAR`] rows before it. In a grid these are the starts of the lines.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::element::Element;
use crate::parallel::*;
use crate::sparse::CsrMatrix;
use crate::util::memory::zeroed;

/// Number of rows of an aligned group, in which at most one block begins.
const LEAST_ROWS: usize = 512;
/// Number of finished rows after which a thread publishes its progress.
///
/// It is also the distance within which a row counts as dependent on its neighbours.
const NEAR: usize = 64;

/// Blocks of rows for sweeps in one direction.
#[derive(Debug)]
pub(super) struct OrderedBlocks {
    ascending: bool,
    /// First row of each block, followed by the number of rows.
    starts: Vec<u32>,
    /// Index of the last block that begins in or before each group of [`LEAST_ROWS`] rows.
    last: Vec<u32>,
}

/// Number of finished rows of a block, alone in its cache line.
#[derive(Default)]
#[repr(align(128))]
struct Done(AtomicUsize);

impl OrderedBlocks {
    /// Divides the rows of a matrix into blocks for sweeps in one direction.
    pub(super) fn new(matrix: &CsrMatrix, ascending: bool) -> Self {
        let n = matrix.rows();
        let reads_near = |i: usize| {
            let near = if ascending { i.saturating_sub(NEAR)..i } else { i..i + NEAR };
            // In descending order, a block that ends before row i begins with row i − 1.
            let row = if ascending { i } else { i - 1 };
            matrix.row(row).0.iter().any(|&j| near.contains(&(j as usize)))
        };
        let first = |part: usize| {
            let rows = (part * LEAST_ROWS).max(1)..n.min((part + 1) * LEAST_ROWS);
            rows.into_iter().find(|&i| !reads_near(i)).map_or(u32::MAX, |i| i as u32)
        };
        let parts = (0..n.div_ceil(LEAST_ROWS)).into_par_iter().with_min_len(16);
        let firsts: Vec<u32> = parts.map(first).collect();
        let (mut starts, mut last) = (vec![0], Vec::with_capacity(firsts.len()));
        for first in firsts {
            starts.extend((first != u32::MAX).then_some(first));
            last.push(starts.len() as u32 - 1);
        }
        starts.push(n as u32);
        Self { ascending, starts, last }
    }

    /// Computes each element of v in order; `of` reads elements of v by [`Elements::get`].
    pub(super) fn run<E: Element>(&self, v: &mut [E], of: impl Fn(usize, &mut Elements<'_, E>) -> E + Sync) {
        let count = self.starts.len() - 1;
        let mut fresh = zeroed(v.len() * E::NUMBERS);
        let fresh = atomics(&mut fresh);
        let mut done: Vec<Done> = Vec::new();
        done.resize_with(count, Done::default);
        let (next, old, blocks) = (AtomicUsize::new(0), &*v, self);
        (0..threads()).into_par_iter().for_each(|_| {
            let mut elements =
                Elements { old, fresh, blocks, done: &done, finished: 0, open: 0..0, block: 0, row: 0 };
            loop {
                let turn = next.fetch_add(1, Ordering::Relaxed);
                if turn >= count {
                    return;
                }
                elements.block(self.at(turn), turn, &of);
            }
        });
        v.par_iter_mut().enumerate().with_min_len(4096).for_each(|(i, v)| *v = E::load(fresh, i));
    }

    /// Returns the index of the block that is computed in this turn, from 0.
    fn at(&self, turn: usize) -> usize {
        if self.ascending { turn } else { self.starts.len() - 2 - turn }
    }

    fn rows(&self, block: usize) -> std::ops::Range<usize> {
        self.starts[block] as usize..self.starts[block + 1] as usize
    }
}

/// View of a vector during a sweep; waits for unfinished elements.
pub(super) struct Elements<'a, E: Element> {
    /// Values before the sweep.
    old: &'a [E],
    /// Values computed by the sweep, in all threads.
    fresh: &'a [AtomicU64],
    blocks: &'a OrderedBlocks,
    done: &'a [Done],
    /// Number of leading turns that this thread knows to be finished.
    finished: usize,
    /// Range of elements in earlier blocks that may be unfinished.
    open: std::ops::Range<usize>,
    /// Indices of the current block and element.
    block: usize,
    row: usize,
}

impl<E: Element> Drop for Elements<'_, E> {
    /// Releases waiting threads if the computation of a block panics.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.done[self.block].0.store(usize::MAX, Ordering::Release);
        }
    }
}

impl<E: Element> Elements<'_, E> {
    /// Returns the new value of an element that the sweep visits earlier, else the old value.
    #[inline]
    pub(super) fn get(&mut self, j: u32) -> E {
        let j = j as usize;
        let is_new = if self.blocks.ascending { j < self.row } else { j > self.row };
        if !is_new {
            return self.old[j];
        }
        if j.wrapping_sub(self.open.start) < self.open.len() {
            self.wait(j);
        }
        E::load(self.fresh, j)
    }

    /// Waits until element j is finished.
    #[inline]
    fn wait(&self, j: usize) {
        let blocks = self.blocks;
        let mut block = blocks.last[j / LEAST_ROWS] as usize;
        block -= usize::from(blocks.starts[block] as usize > j);
        let rows = blocks.rows(block);
        let place = if blocks.ascending { j - rows.start } else { rows.end - 1 - j };
        let mut tries = 0u32;
        while self.done[block].0.load(Ordering::Acquire) <= place {
            tries += 1;
            if tries.is_multiple_of(256) { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
    }

    /// Computes the elements of a block.
    fn block(&mut self, block: usize, turn: usize, of: &impl Fn(usize, &mut Self) -> E) {
        let is_done = |turn: usize| {
            let block = self.blocks.at(turn);
            self.done[block].0.load(Ordering::Acquire) >= self.blocks.rows(block).len()
        };
        self.finished += (self.finished..turn).take_while(|&turn| is_done(turn)).count();
        let (rows, oldest) = (self.blocks.rows(block), self.blocks.rows(self.blocks.at(self.finished)));
        self.open = if self.blocks.ascending { oldest.start..rows.start } else { rows.end..oldest.end };
        let len = rows.len();
        self.block = block;
        for k in 0..len {
            let i = if self.blocks.ascending { rows.start + k } else { rows.end - 1 - k };
            self.row = i;
            of(i, self).store(self.fresh, i);
            if (k + 1) % NEAR == 0 || k + 1 == len {
                self.done[block].0.store(k + 1, Ordering::Release);
            }
        }
    }
}
