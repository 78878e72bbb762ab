//! The chain by rows, from segments in the order in which states were found.

use rayon::prelude::*;

use super::layout::Key;
use super::search::{ROWS, Searched};
use super::store::{Numbers, Store, numbered};
use super::{Chain, Options};
use crate::{Error, Result};

/// What exploring finds, with states in their order.
pub(super) struct Assembled<const W: usize> {
    pub(super) states: Vec<Key<W>>,
    pub(super) chain: Chain,
    pub(super) self_loops: Vec<(u32, f64)>,
    pub(super) deadlocks: Vec<u32>,
    pub(super) initial: Vec<u32>,
    pub(super) edge: Vec<u32>,
}

/// Rows that one thread assembles at once.
const TASK: usize = 1 << 14;

pub(super) fn assemble<const W: usize>(
    store: Store<W>,
    searched: Searched<W>,
    options: &Options<'_>,
) -> Result<Assembled<W>> {
    let Searched { mut segments, initial, edge } = searched;
    let count: usize = segments.iter().map(|s| s.sources.len()).sum();
    let entries: usize = segments.iter().map(|s| s.targets.len()).sum();
    if segments.len() > 1 << 20 || count >= u32::MAX as usize {
        return Err(Error::Size(format!("the model has {count} states, and numbers of states have 32 bits")));
    }
    let per_state = size_of::<Key<W>>() + 4 + 4 + 8;
    let needed = entries * 24 + count * per_state;
    options.check_memory(needed, count as u64, entries as u64)?;

    // Places of rows: a segment's number, and the row in it.
    let lists: Vec<(usize, Vec<(Key<W>, u32)>)> =
        segments.iter_mut().map(|s| std::mem::take(&mut s.sources)).enumerate().collect();
    let mut firsts = Vec::with_capacity(lists.len());
    let mut flat = Vec::with_capacity(count);
    for (s, list) in lists {
        firsts.push(flat.len());
        flat.extend(
            list.into_iter().enumerate().map(|(r, (key, token))| (key, token, (s * ROWS + r) as u32)),
        );
    }
    let mut loops = Vec::new();
    for (segment, first) in segments.iter().zip(firsts) {
        loops.extend(segment.loops.iter().map(|(row, rate)| (flat[first + *row as usize].1, *rate)));
    }
    let (states, places, numbers) = numbered(store, flat);

    let mut offsets = vec![0_u64; count + 1];
    offsets[1..].par_iter_mut().zip(&places).for_each(|(length, place)| {
        let (starts, row) = (&segments[*place as usize / ROWS].starts, *place as usize % ROWS);
        *length = u64::from(starts[row + 1] - starts[row]);
    });
    for k in 0..count {
        offsets[k + 1] += offsets[k];
    }
    let mut columns = vec![0_u32; entries];
    let mut rates = vec![0.0_f64; entries];
    let mut tasks = Vec::new();
    {
        let (mut columns, mut rates) = (&mut columns[..], &mut rates[..]);
        for start in (0..count).step_by(TASK) {
            let end = (start + TASK).min(count);
            let length = (offsets[end] - offsets[start]) as usize;
            let (c, r);
            (c, columns) = columns.split_at_mut(length);
            (r, rates) = rates.split_at_mut(length);
            tasks.push((&places[start..end], c, r));
        }
    }
    // Rows lie anywhere in memory, and so do numbers of states: each loop waits for one of these, for many rows at once.
    tasks.into_par_iter().for_each_init(Vec::new, |row: &mut Vec<(u32, f64)>, (places, columns, rates)| {
        let mut at = 0;
        for places in places.chunks(64) {
            let mut found = [(0, 0, 0); 64];
            for (found, place) in found.iter_mut().zip(places) {
                let starts = &segments[*place as usize / ROWS].starts;
                let row = *place as usize % ROWS;
                *found = (*place as usize / ROWS, starts[row] as usize, starts[row + 1] as usize);
            }
            let (first, mut end) = (at, at);
            for &(segment, from, to) in &found[..places.len()] {
                let segment = &segments[segment];
                columns[end..end + to - from].copy_from_slice(&segment.targets[from..to]);
                rates[end..end + to - from].copy_from_slice(&segment.rates[from..to]);
                end += to - from;
            }
            columns[first..end].iter_mut().for_each(|token| *token = numbers.get(*token));
            for &(_, from, to) in &found[..places.len()] {
                let range = at..at + to - from;
                at = range.end;
                row.clear();
                row.extend(columns[range.clone()].iter().copied().zip(rates[range.clone()].iter().copied()));
                row.sort_unstable_by_key(|(column, _)| *column);
                for (k, (column, rate)) in range.zip(&*row) {
                    (columns[k], rates[k]) = (*column, *rate);
                }
            }
        }
    });
    let sorted = |tokens: Vec<u32>| {
        let mut all: Vec<u32> = tokens.into_iter().map(|token| numbers.get(token)).collect();
        all.sort_unstable();
        all
    };
    let (initial, edge) = (sorted(initial), sorted(edge.into_iter().map(|(_, token)| token).collect()));
    let (self_loops, mut deadlocks) = loops_and_deadlocks(&numbers, loops, &offsets);
    // Nobody has looked at what they lead to.
    deadlocks.retain(|state| edge.binary_search(state).is_err());
    Ok(Assembled { states, chain: Chain { offsets, columns, rates }, self_loops, deadlocks, initial, edge })
}

/// Self-loops by their states' numbers, and the states without any transition.
fn loops_and_deadlocks(
    numbers: &Numbers,
    loops: Vec<(u32, f64)>,
    offsets: &[u64],
) -> (Vec<(u32, f64)>, Vec<u32>) {
    let mut loops: Vec<(u32, f64)> =
        loops.into_iter().map(|(token, rate)| (numbers.get(token), rate)).collect();
    loops.sort_unstable_by_key(|(state, _)| *state);
    let empty = |state: &usize| offsets[*state] == offsets[*state + 1];
    let looped = |state: &u32| loops.binary_search_by_key(state, |(s, _)| *s).is_ok();
    let deadlocks = (0..offsets.len() - 1)
        .filter(empty)
        .map(|state| state as u32)
        .filter(|state| !looped(state))
        .collect();
    (loops, deadlocks)
}
