//! The chain by rows, from segments in the order in which states were found.

use rayon::prelude::*;

use super::layout::Key;
use super::search::Searched;
use super::store::{Numbers, ROWS, Store, numbered};
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
    let needed = entries * 20 + count * per_state;
    options.check_memory(needed, count as u64, entries as u64)?;

    let mut loops = Vec::new();
    for segment in &segments {
        loops.extend(segment.loops.iter().map(|(row, rate)| (segment.sources[*row as usize].1, *rate)));
    }
    let found = segments.iter_mut().map(|segment| std::mem::take(&mut segment.sources)).collect();
    let (states, places, numbers) = numbered(store, found);
    // Rows get their order where they stand, one segment after the other.
    segments.par_iter_mut().for_each_init(Vec::new, |row: &mut Vec<(u32, f64)>, segment| {
        segment.targets.iter_mut().for_each(|token| *token = numbers.get(*token));
        for ends in segment.starts.windows(2) {
            let range = ends[0] as usize..ends[1] as usize;
            let (targets, rates) = (&mut segment.targets[range.clone()], &mut segment.rates[range]);
            if targets.is_sorted() {
                continue;
            }
            row.clear();
            row.extend(targets.iter().copied().zip(rates.iter().copied()));
            row.sort_unstable_by_key(|(column, _)| *column);
            for (k, (column, rate)) in row.iter().enumerate() {
                (targets[k], rates[k]) = (*column, *rate);
            }
        }
    });
    let sorted = |tokens: Vec<u32>| {
        let mut all: Vec<u32> = tokens.into_iter().map(|token| numbers.get(token)).collect();
        all.sort_unstable();
        all
    };
    let (initial, edge) = (sorted(initial), sorted(edge.into_iter().map(|(_, token)| token).collect()));
    let mut offsets = vec![0_u64; count + 1];
    offsets[1..].par_iter_mut().zip(&places).for_each(|(length, place)| {
        let (starts, row) = (&segments[*place as usize / ROWS].starts, *place as usize % ROWS);
        *length = u64::from(starts[row + 1] - starts[row]);
    });
    for k in 0..count {
        offsets[k + 1] += offsets[k];
    }
    let (self_loops, mut deadlocks) = loops_and_deadlocks(&numbers, loops, &offsets);
    // Nobody has looked at what they lead to.
    deadlocks.retain(|state| edge.binary_search(state).is_err());
    drop(numbers);
    // First what takes most memory: the segments' own is given back before the rest is asked for.
    let mut starts = Vec::with_capacity(segments.len());
    let (mut targets, mut rates) = (Vec::with_capacity(segments.len()), Vec::with_capacity(segments.len()));
    for segment in segments {
        starts.push(segment.starts);
        targets.push(segment.targets);
        rates.push(segment.rates);
    }
    let rates = gathered(rates, &starts, &places, &offsets);
    let columns = gathered(targets, &starts, &places, &offsets);
    Ok(Assembled { states, chain: Chain { offsets, columns, rates }, self_loops, deadlocks, initial, edge })
}

/// Rows in the order of states, each from the place of its segment.
fn gathered<T: Copy + Default + Send + Sync>(
    segments: Vec<Vec<T>>,
    starts: &[Vec<u32>],
    places: &[u32],
    offsets: &[u64],
) -> Vec<T> {
    let mut all = vec![T::default(); offsets[places.len()] as usize];
    let (mut rest, mut tasks) = (&mut all[..], Vec::new());
    for (task, places) in places.chunks(TASK).enumerate() {
        let start = task * TASK;
        let (rows, behind) = rest.split_at_mut((offsets[start + places.len()] - offsets[start]) as usize);
        rest = behind;
        tasks.push((places, rows));
    }
    // Rows lie anywhere in memory: each loop waits for one place of many rows at once.
    tasks.into_par_iter().for_each(|(places, mut rows)| {
        for places in places.chunks(64) {
            let mut found = [(0, 0, 0); 64];
            for (found, place) in found.iter_mut().zip(places) {
                let (segment, row) = (*place as usize / ROWS, *place as usize % ROWS);
                *found = (segment, starts[segment][row] as usize, starts[segment][row + 1] as usize);
            }
            for &(segment, from, to) in &found[..places.len()] {
                let (row, behind) = std::mem::take(&mut rows).split_at_mut(to - from);
                row.copy_from_slice(&segments[segment][from..to]);
                rows = behind;
            }
        }
    });
    all
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
