//! Assembly of the chain, row by row in the order of states.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rayon::prelude::*;

use super::layout::StateKey;
use super::program::{CompiledModel, PackedRows, Scratch};
use super::search::{Searched, Segment};
use super::state_table::{Bits, CellRanks, ROWS, Shards, VisitedSet, numbered};
use super::{News, TransitionMatrix};
use crate::{Error, Result};

/// The chain of explored states, numbered in the order of the packed states.
#[derive(Clone, Debug)]
pub(super) struct Assembled {
    pub(super) chain: TransitionMatrix,
    pub(super) self_loops: Vec<(u32, f64)>,
    pub(super) deadlocks: Vec<u32>,
    pub(super) initial: Vec<u32>,
    pub(super) edge: Vec<u32>,
}

/// Number of rows per parallel task.
pub(super) const TASK: usize = 1 << 10;

pub(super) fn assemble<const W: usize>(
    program: &CompiledModel<'_>,
    store: VisitedSet<W>,
    searched: Searched<W>,
    news: &News<'_>,
) -> Result<(Vec<StateKey<W>>, Assembled)> {
    match store {
        VisitedSet::Bits(bits) => rows_again(program, bits, searched, news),
        VisitedSet::Shards(shards) => rows_kept(shards, searched, news),
    }
}

fn expect_numbers(segments: usize, states: usize) -> Result<()> {
    if segments <= 1 << 20 && states < u32::MAX as usize {
        return Ok(());
    }
    Err(Error::Size(format!("the model has {states} states, and numbers of states have 32 bits")))
}

/// Computes every state's row again, in the order of states, and writes it to the chain.
fn rows_again<const W: usize>(
    program: &CompiledModel<'_>,
    bits: Bits,
    searched: Searched<W>,
    news: &News<'_>,
) -> Result<(Vec<StateKey<W>>, Assembled)> {
    let Searched { found, initial, edge, .. } = searched;
    let explored: usize = found.iter().map(Vec::len).sum();
    let count = explored + edge.len();
    let entries: u64 = found.iter().flatten().map(|(_, length)| u64::from(*length)).sum();
    expect_numbers(0, count)?;
    let needed = entries as usize * 12 + count * (size_of::<StateKey<W>>() + 8 + 8) + bits.bytes();
    news.options.check_memory(needed, (count as u64, entries), String::new)?;
    let ranks = CellRanks::new(bits);
    let offsets = offsets_of(found, &ranks, count);
    let edge = edge.into_iter().map(|(_, token)| token).collect();
    let (initial, edge) = in_order(initial, edge, |cell| ranks.of_cell(cell));
    let states = ranks.states::<W>();
    let (mut columns, mut rates) = (vec![0; entries as usize], vec![0.0; entries as usize]);
    let tasks = shares(&offsets, &mut columns).into_iter().zip(shares(&offsets, &mut rates));
    let tasks: Vec<_> = states.chunks(TASK).zip(tasks).enumerate().collect();
    let work = |task: usize, states: &[StateKey<W>], mut columns: &mut [u32], mut rates: &mut [f64]| {
        let (mut scratch, mut rows, mut row) = (Scratch::default(), PackedRows::default(), Vec::new());
        let mut loops = Vec::new();
        for (state, key) in (task * TASK..).zip(states) {
            let length = (offsets[state + 1] - offsets[state]) as usize;
            if length == 0 && edge.binary_search(&(state as u32)).is_ok() {
                continue;
            }
            rows.clear();
            program
                .all_successors(key, &mut scratch, &mut rows)
                .map_err(|trouble| trouble.error(program, &scratch.values))?;
            if rows.self_loop > 0.0 {
                loops.push((state as u32, rows.self_loop));
            }
            assert_eq!(rows.keys.len(), length, "a state leads to the same states again");
            let (own, own_rates);
            ((own, columns), (own_rates, rates)) = (columns.split_at_mut(length), rates.split_at_mut(length));
            own.iter_mut().zip(&rows.keys).for_each(|(column, key)| *column = ranks.of(key));
            own_rates.copy_from_slice(&rows.rates);
            sort_row(own, own_rates, &mut row);
        }
        news.tell(count as u64, entries)?;
        Ok(loops)
    };
    let loops =
        tasks.into_par_iter().map(|(task, (states, (columns, rates)))| work(task, states, columns, rates));
    let self_loops = loops.collect::<Result<Vec<_>>>()?.concat();
    let chain = TransitionMatrix { offsets: Arc::new(offsets), columns: Arc::new(columns), rates };
    let deadlocks = deadlocks(&self_loops, &edge, &chain);
    Ok((states, Assembled { chain, self_loops, deadlocks, initial, edge }))
}

/// Counts the entries before each row, from the lengths of rows with known cells.
fn offsets_of(found: Vec<Vec<(u32, u32)>>, ranks: &CellRanks, count: usize) -> Vec<u64> {
    let lengths: Vec<AtomicU32> = (0..count).map(|_| AtomicU32::new(0)).collect();
    found.into_par_iter().flatten_iter().for_each(|(cell, length)| {
        lengths[ranks.of_cell(cell) as usize].store(length, Ordering::Relaxed);
    });
    summed(lengths.into_iter().map(AtomicU32::into_inner))
}

/// Sorts a row by columns; `row` is scratch memory.
fn sort_row(columns: &mut [u32], rates: &mut [f64], row: &mut Vec<(u32, f64)>) {
    if columns.is_sorted() {
        return;
    }
    row.clear();
    row.extend(columns.iter().copied().zip(rates.iter().copied()));
    row.sort_unstable_by_key(|(column, _)| *column);
    for ((column, rate), entry) in columns.iter_mut().zip(rates).zip(row) {
        (*column, *rate) = *entry;
    }
}

/// Assembles the rows that the search has stored.
fn rows_kept<const W: usize>(
    shards: Shards<W>,
    searched: Searched<W>,
    news: &News<'_>,
) -> Result<(Vec<StateKey<W>>, Assembled)> {
    let Searched { mut segments, initial, edge, .. } = searched;
    let count: usize = segments.iter().map(|s| s.sources.len()).sum();
    let entries: usize = segments.iter().map(|s| s.targets.len()).sum();
    expect_numbers(segments.len(), count)?;
    let per_state = size_of::<StateKey<W>>() + 4 + 4 + 8;
    let needed = entries * 20 + count * per_state;
    news.options.check_memory(needed, (count as u64, entries as u64), String::new)?;

    let mut loops = Vec::new();
    for segment in &segments {
        loops.extend(segment.loops.iter().map(|(row, rate)| (segment.sources[*row as usize], *rate)));
    }
    let found = segments.iter_mut().map(|segment| std::mem::take(&mut segment.sources)).collect();
    let (states, places, numbers) = numbered(shards, found);
    let edge = edge.into_iter().map(|(_, token)| token).collect();
    Ok((states, renumbered(segments, loops, (initial, edge), &places, numbers)))
}

/// Gathers the rows of segments in the order of states. `numbers` has the number of each token.
fn renumbered(
    mut segments: Vec<Segment>,
    loops: Vec<(u32, f64)>,
    (initial, edge): (Vec<u32>, Vec<u32>),
    places: &[u32],
    numbers: Vec<u32>,
) -> Assembled {
    // Rows are sorted in place, segment by segment.
    segments.par_iter_mut().for_each_init(Vec::new, |row: &mut Vec<(u32, f64)>, segment| {
        segment.targets.iter_mut().for_each(|token| *token = numbers[*token as usize]);
        for ends in segment.starts.windows(2) {
            let range = ends[0] as usize..ends[1] as usize;
            sort_row(&mut segment.targets[range.clone()], &mut segment.rates[range], row);
        }
    });
    let (initial, edge) = in_order(initial, edge, |token| numbers[token as usize]);
    let offsets = summed(places.iter().map(|place| {
        let (starts, row) = (&segments[*place as usize / ROWS].starts, *place as usize % ROWS);
        starts[row + 1] - starts[row]
    }));
    let mut self_loops: Vec<(u32, f64)> =
        loops.into_iter().map(|(token, rate)| (numbers[token as usize], rate)).collect();
    self_loops.sort_unstable_by_key(|(state, _)| *state);
    drop(numbers);
    // Rates come first since they take the most memory: segments free theirs before columns are
    // allocated.
    let mut starts = Vec::with_capacity(segments.len());
    let (mut targets, mut rates) = (Vec::with_capacity(segments.len()), Vec::with_capacity(segments.len()));
    for segment in segments {
        starts.push(segment.starts);
        targets.push(segment.targets);
        rates.push(segment.rates);
    }
    let rates = gathered(rates, &starts, places, &offsets);
    let columns = gathered(targets, &starts, places, &offsets);
    let chain = TransitionMatrix { offsets: Arc::new(offsets), columns: Arc::new(columns), rates };
    let deadlocks = deadlocks(&self_loops, &edge, &chain);
    Assembled { chain, self_loops, deadlocks, initial, edge }
}

/// Numbers of the initial and of the boundary states, ascending.
///
/// `number` converts a token, a state's provisional number, to its final number.
fn in_order(mut initial: Vec<u32>, mut edge: Vec<u32>, number: impl Fn(u32) -> u32) -> (Vec<u32>, Vec<u32>) {
    for states in [&mut initial, &mut edge] {
        states.iter_mut().for_each(|state| *state = number(*state));
        states.sort_unstable();
    }
    (initial, edge)
}

/// Converts row lengths to offsets.
fn summed(lengths: impl ExactSizeIterator<Item = u32>) -> Vec<u64> {
    let mut offsets = Vec::with_capacity(lengths.len() + 1);
    offsets.push(0);
    lengths.for_each(|length| offsets.push(offsets[offsets.len() - 1] + u64::from(length)));
    offsets
}

/// Splits the entries of all rows into slices of [`TASK`] rows.
pub(super) fn shares<'a, T>(offsets: &[u64], mut entries: &'a mut [T]) -> Vec<&'a mut [T]> {
    let mut tasks = Vec::new();
    for start in (0..offsets.len() - 1).step_by(TASK) {
        let end = (start + TASK).min(offsets.len() - 1);
        let rows = entries.split_off_mut(..(offsets[end] - offsets[start]) as usize);
        tasks.push(rows.expect("entries of these rows"));
    }
    tasks
}

/// States without any transition, except boundary states: their transitions are unknown.
pub(super) fn deadlocks(loops: &[(u32, f64)], edge: &[u32], chain: &TransitionMatrix) -> Vec<u32> {
    let empty = |state: &u32| chain.row(*state as usize).all(|(_, rate)| rate == 0.0);
    let looped = |state: &u32| loops.binary_search_by_key(state, |(s, _)| *s).is_ok();
    let all = (0..chain.offsets.len() as u32 - 1).filter(empty);
    all.filter(|state| !looped(state) && edge.binary_search(state).is_err()).collect()
}

/// Copies rows from the segments of the search to one array, in the order of states.
fn gathered<T: Copy + Default + Send + Sync>(
    segments: Vec<Vec<T>>,
    starts: &[Vec<u32>],
    places: &[u32],
    offsets: &[u64],
) -> Vec<T> {
    let mut all = vec![T::default(); offsets[places.len()] as usize];
    let tasks: Vec<_> = places.chunks(TASK).zip(shares(offsets, &mut all)).collect();
    // Rows are scattered in memory: reading the bounds of 64 rows first overlaps their cache
    // misses.
    tasks.into_par_iter().for_each(|(places, mut rows)| {
        for places in places.chunks(64) {
            let mut found = [(0, 0, 0); 64];
            for (found, place) in found.iter_mut().zip(places) {
                let (segment, row) = (*place as usize / ROWS, *place as usize % ROWS);
                *found = (segment, starts[segment][row] as usize, starts[segment][row + 1] as usize);
            }
            for &(segment, from, to) in &found[..places.len()] {
                rows[..to - from].copy_from_slice(&segments[segment][from..to]);
                rows = &mut rows[to - from..];
            }
        }
    });
    all
}
