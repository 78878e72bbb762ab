//! Parallel search for all reachable states.
//!
//! Threads take states from a shared list in rounds. Within a round each thread continues with
//! the states that it finds. The order does not matter: states are numbered at the end.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

use super::News;
use super::endless::EndlessUpdates;
use super::layout::StateKey;
use super::program::{CompiledModel, PackedRows, Scratch, Trouble};
use super::state_table::{Lookup, ROWS, TableFull, VisitedSet};
use crate::{Error, Result};

/// Number of states that a thread takes at once.
const CHUNK: usize = 1024;

/// Maximum number of states per thread and round.
const ROUND: usize = 1 << 16;

/// Maximum number of unexplored states per round that are tested for an endless update.
const LOOKED_AT: usize = 64;

/// Number of found states from which progress names the largest variable without a range.
const MANY: u64 = 1 << 17;

/// Rows of at most [`ROWS`] states. Targets are tokens (see [`VisitedSet`]).
#[derive(Clone)]
pub(super) struct Segment {
    /// Tokens of the states.
    pub(super) sources: Vec<u32>,
    /// Start of each row, and the end of the last one.
    pub(super) starts: Vec<u32>,
    pub(super) targets: Vec<u32>,
    pub(super) rates: Vec<f64>,
    /// Rows with a self-loop, and its rate.
    pub(super) loops: Vec<(u32, f64)>,
}

impl Default for Segment {
    fn default() -> Self {
        let (targets, rates, loops) = (Vec::new(), Vec::new(), Vec::new());
        Self { sources: Vec::with_capacity(ROWS), starts: vec![0], targets, rates, loops }
    }
}

impl Segment {
    fn without_transitions<K>(states: &[(K, u32)]) -> Self {
        let sources = states.iter().map(|(_, token)| *token).collect();
        Self { sources, starts: vec![0; states.len() + 1], ..Self::default() }
    }

    /// Returns a copy of exact size, and clears the segment but keeps its memory.
    fn taken(&mut self) -> Self {
        let copy = self.clone();
        self.sources.clear();
        self.starts.truncate(1);
        self.targets.clear();
        self.rates.clear();
        self.loops.clear();
        copy
    }
}

/// Data shared by all threads of the search.
struct SearchState<'a, const W: usize> {
    program: &'a CompiledModel<'a>,
    store: &'a VisitedSet<W>,
    news: &'a News<'a>,
    states: AtomicU64,
    transitions: AtomicU64,
    bytes: AtomicUsize,
    explored: AtomicU64,
    stop: AtomicBool,
    /// Error that stopped the search. If several states have errors, it is that of the first one.
    failure: Mutex<Option<(Option<StateKey<W>>, Error)>>,
}

/// Data of one thread of the search.
#[derive(Default)]
struct SearchWorker<const W: usize> {
    scratch: Scratch,
    rows: PackedRows<W>,
    lookup: Lookup,
    tokens: Vec<u32>,
    taken: Vec<(StateKey<W>, u32)>,
    next: Vec<(StateKey<W>, u32)>,
    lengths: Vec<u32>,
    loops: Vec<(u32, f64)>,
    open: Segment,
    closed: Vec<Segment>,
    found: Vec<(u32, u32)>,
}

impl<const W: usize> SearchWorker<W> {
    /// Explores states of the shared list, and with `most` about as many states found from them.
    fn round(
        &mut self,
        shared: &SearchState<'_, W>,
        list: &[(StateKey<W>, u32)],
        cursor: &AtomicUsize,
        most: Option<usize>,
    ) {
        let mut done = 0;
        while most.is_none_or(|most| done < most) && !shared.stop.load(Ordering::Relaxed) {
            let start = cursor.fetch_add(CHUNK, Ordering::Relaxed);
            self.taken.clear();
            if start < list.len() {
                self.taken.extend_from_slice(&list[start..list.len().min(start + CHUNK)]);
            } else if most.is_some() {
                let keep = self.next.len().saturating_sub(CHUNK);
                self.taken.extend(self.next.drain(keep..));
            }
            if self.taken.is_empty() {
                return;
            }
            done += self.taken.len();
            if let Err((key, error)) = self.chunk(shared) {
                shared.fail(key, error);
            }
        }
    }

    fn chunk(
        &mut self,
        shared: &SearchState<'_, W>,
    ) -> std::result::Result<(), (Option<StateKey<W>>, Error)> {
        self.rows.clear();
        self.lengths.clear();
        self.loops.clear();
        for (k, (key, _)) in self.taken.iter().enumerate() {
            let before = self.rows.keys.len();
            let done = shared.program.all_successors(key, &mut self.scratch, &mut self.rows);
            done.map_err(|trouble| (Some(*key), trouble.error(shared.program, &self.scratch.values)))?;
            self.lengths.push((self.rows.keys.len() - before) as u32);
            if self.rows.self_loop > 0.0 {
                self.loops.push((k as u32, self.rows.self_loop));
            }
        }
        let found = self.next.len();
        (shared.store.resolve(&self.rows.keys, &mut self.tokens, &mut self.next, &mut self.lookup))
            .map_err(|TableFull| (None, Error::Size("the model has more than 2^32 states".into())))?;
        match shared.store {
            VisitedSet::Bits(_) => {
                let tokens = self.taken.iter().map(|(_, token)| *token);
                self.found.extend(tokens.zip(self.lengths.iter().copied()));
            }
            VisitedSet::Shards(_) => self.keep(),
        }
        let fresh = (self.next.len() - found) as u64;
        let states = fresh + shared.states.fetch_add(fresh, Ordering::Relaxed);
        let transitions = self.tokens.len() as u64;
        let transitions = transitions + shared.transitions.fetch_add(transitions, Ordering::Relaxed);
        let kept = self.taken.len() * 8 + self.tokens.len() * 12;
        let kept = kept + shared.bytes.fetch_add(kept, Ordering::Relaxed);
        let taken = self.taken.len() as u64;
        let explored = taken + shared.explored.fetch_add(taken, Ordering::Relaxed);
        // Vectors of open states may have twice the capacity that they need.
        let open = states.saturating_sub(explored) as usize * 2 * size_of::<(StateKey<W>, u32)>();
        shared.watch((states, transitions), kept + open, &self.taken).map_err(|error| (None, error))
    }

    /// Copies the rows of the current chunk of states to the open segment.
    fn keep(&mut self) {
        let (mut row, mut at) = (0, 0);
        while row < self.taken.len() {
            let open = &mut self.open;
            let count = (self.taken.len() - row).min(ROWS - open.sources.len());
            let base = open.sources.len() as u32;
            let from = at;
            for length in &self.lengths[row..row + count] {
                at += *length as usize;
                open.starts.push((open.targets.len() + at - from) as u32);
            }
            open.sources.extend(self.taken[row..row + count].iter().map(|(_, token)| *token));
            open.targets.extend_from_slice(&self.tokens[from..at]);
            open.rates.extend_from_slice(&self.rows.rates[from..at]);
            let rows = row as u32..(row + count) as u32;
            let loops = self.loops.iter().filter(|(k, _)| rows.contains(k));
            open.loops.extend(loops.map(|(k, rate)| (k - rows.start + base, *rate)));
            row += count;
            if open.sources.len() == ROWS {
                self.closed.push(open.taken());
            }
        }
    }
}

impl Trouble {
    /// Makes an error that names the command and the state.
    pub(super) fn error(self, program: &CompiledModel<'_>, values: &[i64]) -> Error {
        let instance = program.instance;
        let place = instance.model.0.source.place(self.span);
        Error::State(format!("{place}: in the state {}, {}", instance.describe(values), self.what))
    }
}

impl<const W: usize> SearchState<'_, W> {
    fn fail(&self, key: Option<StateKey<W>>, error: Error) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        // Errors in a state replace errors without one, and errors in later states.
        if failure.as_ref().is_none_or(|(known, _)| key.is_some() && (known.is_none() || key < *known)) {
            *failure = Some((key, error));
        }
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Checks the memory limit, reports progress, and fails if the caller interrupts.
    fn watch(&self, found: (u64, u64), kept: usize, taken: &[(StateKey<W>, u32)]) -> Result<()> {
        let reached = || match self.program.reached(taken) {
            Some((variable, value)) => {
                let name = &self.program.instance.variables[variable].name;
                format!("'{name}' has no range and has reached {value}: give it one, ")
            }
            None => String::new(),
        };
        self.news.options.check_memory(kept + self.store.bytes(), found, reached)?;
        self.news.tell(found.0, found.1)
    }

    /// Stops the search if one of some unexplored states proves that the model is infinite.
    ///
    /// Also notes the extreme value of a variable without a range, for progress reports.
    fn look_for_an_end(&self, endless: &EndlessUpdates<'_>, list: &[(StateKey<W>, u32)]) {
        let some = list.iter().step_by(list.len().div_ceil(LOOKED_AT).max(1));
        let mut values = Vec::new();
        for (key, _) in some {
            self.program.layout.unpack(key, &mut values);
            if let Some((variable, span)) = endless.proof(&values) {
                let name = &self.program.instance.variables[variable].name;
                let what = format!(
                    "this command changes '{name}', which has no range, again and again without end; bound it by a guard, \
                     give it a range, or `truncate` the model"
                );
                return self.fail(Some(*key), Trouble { what, span }.error(self.program, &values));
            }
        }
        if self.states.load(Ordering::Relaxed) >= MANY {
            let reached = self.program.reached(&list[..list.len().min(CHUNK)]);
            *self.news.reached.lock().unwrap_or_else(PoisonError::into_inner) = reached;
        }
    }
}

/// Results of a search: explored states, tokens of the initial states, and boundary states.
pub(super) struct Searched<const W: usize> {
    /// Per thread: dense index (cell) and row length of each explored state; empty without cells.
    pub(super) found: Vec<Vec<(u32, u32)>>,
    /// All rows of transitions, if states are in hash tables instead of a dense index.
    ///
    /// Looking states up again would take longer than storing the rows.
    pub(super) segments: Vec<Segment>,
    pub(super) initial: Vec<u32>,
    /// Boundary states: known but not explored.
    pub(super) edge: Vec<(StateKey<W>, u32)>,
}

/// Limits of a partial exploration.
pub(super) struct SearchLimits<const W: usize> {
    /// States to explore first.
    pub(super) first: Vec<StateKey<W>>,
    /// Successors of `first` that are not to be explored, ascending.
    pub(super) closed: Vec<StateKey<W>>,
    /// Number of states at which no further level is explored.
    pub(super) least: u64,
}

/// Explores all states reachable from the initial ones, or as far as `limits` allows.
pub(super) fn search<const W: usize>(
    program: &CompiledModel<'_>,
    store: &VisitedSet<W>,
    initial: &[StateKey<W>],
    limits: Option<&SearchLimits<W>>,
    news: &News<'_>,
) -> Result<Searched<W>> {
    let shared = SearchState {
        program,
        store,
        news,
        states: AtomicU64::new(initial.len() as u64),
        transitions: AtomicU64::new(0),
        bytes: AtomicUsize::new(0),
        explored: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        failure: Mutex::new(None),
    };
    let mut workers: Vec<SearchWorker<W>> =
        (0..rayon::current_num_threads()).map(|_| SearchWorker::default()).collect();
    let (mut tokens, mut others, mut list) = (Vec::new(), Vec::new(), Vec::new());
    let too_many = |TableFull| Error::Size("there are more than 2^32 states".into());
    store.resolve(initial, &mut tokens, &mut list, &mut Lookup::default()).map_err(too_many)?;
    let edge = match limits {
        None => {
            in_any_order(&shared, &mut workers, list);
            Vec::new()
        }
        Some(limits) => {
            (store.resolve(&limits.first, &mut others, &mut list, &mut Lookup::default()))
                .map_err(too_many)?;
            shared.states.store(list.len() as u64, Ordering::Relaxed);
            by_levels(&shared, &mut workers, list, limits)
        }
    };
    if let Some((_, error)) = shared.failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let (mut found, mut segments) = (Vec::new(), Vec::new());
    for worker in workers {
        found.push(worker.found);
        segments.extend(worker.closed);
        segments.extend(Some(worker.open).filter(|open| !open.sources.is_empty()));
    }
    if let VisitedSet::Shards(_) = store {
        segments.extend(edge.chunks(ROWS).map(Segment::without_transitions));
    }
    Ok(Searched { found, segments, initial: tokens, edge })
}

/// Runs one round, with one worker or all. New states replace the explored ones in `list`.
fn round<const W: usize>(
    shared: &SearchState<'_, W>,
    workers: &mut [SearchWorker<W>],
    list: &mut Vec<(StateKey<W>, u32)>,
    alone: bool,
    most: Option<usize>,
) {
    let cursor = AtomicUsize::new(0);
    if alone {
        workers[0].round(shared, list, &cursor, most);
    } else {
        workers.par_iter_mut().with_max_len(1).for_each(|worker| worker.round(shared, list, &cursor, most));
    }
    let taken = cursor.into_inner().min(list.len());
    list.drain(..taken);
    workers.iter_mut().for_each(|worker| list.append(&mut worker.next));
}

/// Explores all states, in an order that depends on the threads.
fn in_any_order<const W: usize>(
    shared: &SearchState<'_, W>,
    workers: &mut [SearchWorker<W>],
    mut list: Vec<(StateKey<W>, u32)>,
) {
    let mut most = CHUNK;
    let endless = EndlessUpdates::new(shared.program.instance);
    while !list.is_empty() && !shared.stop.load(Ordering::Relaxed) {
        shared.look_for_an_end(&endless, &list);
        let alone = list.len() < CHUNK / 4 && most < ROUND;
        round(shared, workers, &mut list, alone, Some(most));
        most = (most * 2).min(ROUND);
        // With few open states one thread would do most of a long round.
        let share = (list.len() / workers.len()).clamp(1, CHUNK);
        if share < CHUNK && workers.len() > 1 {
            most = most.min(ROUND / 4);
        }
    }
}

/// Explores whole levels and returns the boundary states, for any number of threads.
fn by_levels<const W: usize>(
    shared: &SearchState<'_, W>,
    workers: &mut [SearchWorker<W>],
    mut list: Vec<(StateKey<W>, u32)>,
    limits: &SearchLimits<W>,
) -> Vec<(StateKey<W>, u32)> {
    let mut edge = Vec::new();
    let mut closed = &limits.closed[..];
    while !list.is_empty() && !shared.stop.load(Ordering::Relaxed) {
        let alone = list.len() < CHUNK;
        round(shared, workers, &mut list, alone, None);
        // Closed states are successors of the states explored first.
        if !closed.is_empty() {
            let (kept, open) = list.into_iter().partition(|(key, _)| closed.binary_search(key).is_ok());
            (edge, list, closed) = (kept, open, &[]);
        }
        if shared.states.load(Ordering::Relaxed) >= limits.least {
            break;
        }
    }
    edge.append(&mut list);
    edge
}
