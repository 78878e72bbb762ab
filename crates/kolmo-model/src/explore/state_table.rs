//! Set of known states: one bit per cell for few cells, else hash tables with locks.
//!
//! A state gets a token when it is found, and its number when all states are known.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use foldhash::fast::FixedState;
use rayon::prelude::*;
use std::hash::{BuildHasher, Hasher};

use super::dense_index::Cells;
use super::layout::StateKey;
use super::program::ones;

/// Number of rows of a segment, a power of two.
pub(super) const ROWS: usize = 1 << 12;

pub(super) enum VisitedSet<const W: usize> {
    Bits(Bits),
    Shards(Shards<W>),
}

/// Scratch memory with which one thread looks up states.
#[derive(Default)]
pub(super) struct Lookup {
    hashes: Vec<u64>,
    starts: Vec<u32>,
    sorted: Vec<u32>,
}

/// Error: more states than tokens, which have 32 bits.
#[derive(Debug)]
pub(super) struct TableFull;

impl<const W: usize> VisitedSet<W> {
    pub(super) fn new(cells: Option<Cells>, threads: usize) -> Self {
        if let Some(cells) = cells {
            let pages = (cells.count() as usize).div_ceil(PAGE_CELLS);
            let pages = (0..pages).map(|_| OnceLock::new()).collect();
            return Self::Bits(Bits { cells, pages, used: AtomicUsize::new(0) });
        }
        let count = (threads * 32).next_power_of_two().clamp(64, 4096);
        let all = (0..count).map(|_| Mutex::new(HashTable { slots: Vec::new(), len: 0 })).collect();
        let (hasher, bytes) = (FixedState::with_seed(0), AtomicUsize::new(0));
        Self::Shards(Shards { all, bits: count.trailing_zeros(), hasher, bytes })
    }

    /// Looks up tokens (provisional numbers) of states, and appends new states to `fresh`.
    pub(super) fn resolve(
        &self,
        keys: &[StateKey<W>],
        tokens: &mut Vec<u32>,
        fresh: &mut Vec<(StateKey<W>, u32)>,
        lookup: &mut Lookup,
    ) -> Result<(), TableFull> {
        match self {
            Self::Bits(bits) => {
                tokens.clear();
                for key in keys {
                    let cell = bits.cells.of(key);
                    if bits.insert(cell) {
                        fresh.push((*key, cell as u32));
                    }
                    tokens.push(cell as u32);
                }
                Ok(())
            }
            Self::Shards(shards) => shards.resolve(keys, tokens, fresh, lookup),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Bits(bits) => bits.bytes(),
            Self::Shards(shards) => shards.bytes.load(Ordering::Relaxed),
        }
    }
}

const PAGE_WORDS: usize = 512;
const PAGE_CELLS: usize = PAGE_WORDS * 64;

type Page = Box<[AtomicU64; PAGE_WORDS]>;

/// Set of known states: one bit per cell of [`Cells`], in pages allocated at first use.
pub(super) struct Bits {
    cells: Cells,
    pages: Vec<OnceLock<Page>>,
    used: AtomicUsize,
}

impl Bits {
    /// Size in bytes, including that of the [`CellRanks`] made from the bits.
    pub(super) fn bytes(&self) -> usize {
        self.pages.len() * 16 + self.used.load(Ordering::Relaxed) * PAGE_CELLS / 8 * 3
    }

    /// Sets a bit. Returns true if it was not set.
    #[inline]
    fn insert(&self, cell: u64) -> bool {
        let cell = cell as usize;
        let page = self.pages[cell / PAGE_CELLS].get_or_init(|| {
            self.used.fetch_add(1, Ordering::Relaxed);
            Box::new([const { AtomicU64::new(0) }; PAGE_WORDS])
        });
        let (word, bit) = (&page[cell / 64 % PAGE_WORDS], 1 << (cell % 64));
        word.load(Ordering::Relaxed) & bit == 0 && word.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }
}

/// Open-addressing hash table with linear probing, from states to tokens.
///
/// All slots that a list of states needs are read before the first lookup, so that cache misses
/// overlap. General-purpose tables do not offer this.
struct HashTable<const W: usize> {
    slots: Vec<(StateKey<W>, u32)>,
    len: usize,
}

/// Token of an empty slot.
const FREE: u32 = u32::MAX;

impl<const W: usize> HashTable<W> {
    /// Index of the slot of a state, or of the empty slot for it.
    #[inline]
    fn place(&self, hash: u64, key: &StateKey<W>) -> usize {
        let mut place = self.first(hash);
        while self.slots[place].1 != FREE && self.slots[place].0 != *key {
            place = if place + 1 < self.slots.len() { place + 1 } else { 0 };
        }
        place
    }

    /// Index of the first slot for a hash: its lowest 32 bits, scaled to the number of slots.
    #[inline]
    fn first(&self, hash: u64) -> usize {
        ((u64::from(hash as u32) * self.slots.len() as u64) >> 32) as usize
    }

    /// Grows the table by a quarter or more so that at most four of five slots are in use.
    fn reserve(&mut self, more: usize, hash: impl Fn(&StateKey<W>) -> u64) {
        let needed = (self.len + more) * 5 / 4 + 1;
        if needed <= self.slots.len() {
            return;
        }
        let slots = vec![([0; W], FREE); needed * 5 / 4];
        for slot in std::mem::replace(&mut self.slots, slots) {
            if slot.1 != FREE {
                let place = self.place(hash(&slot.0), &slot.0);
                self.slots[place] = slot;
            }
        }
    }

    fn touch(&self, hashes: impl Iterator<Item = u64>) {
        std::hint::black_box(hashes.fold(0, |all, hash| all ^ self.slots[self.first(hash)].1));
    }

    fn bytes(&self) -> usize {
        self.slots.len() * size_of::<(StateKey<W>, u32)>()
    }
}

/// Hash tables of states, each with its own lock.
pub(super) struct Shards<const W: usize> {
    all: Vec<Mutex<HashTable<W>>>,
    bits: u32,
    hasher: FixedState,
    bytes: AtomicUsize,
}

impl<const W: usize> Shards<W> {
    #[inline]
    fn hash(&self, key: &StateKey<W>) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        key.iter().for_each(|word| hasher.write_u64(*word));
        hasher.finish()
    }

    /// Index of the table for a hash. Within a table the lowest 32 bits are used.
    #[inline]
    fn shard(&self, hash: u64) -> usize {
        (hash >> 40) as usize & (self.all.len() - 1)
    }

    fn lock(&self, shard: usize) -> MutexGuard<'_, HashTable<W>> {
        self.all[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn resolve(
        &self,
        keys: &[StateKey<W>],
        tokens: &mut Vec<u32>,
        fresh: &mut Vec<(StateKey<W>, u32)>,
        lookup: &mut Lookup,
    ) -> Result<(), TableFull> {
        // Keys are sorted by table, so that each table is locked once.
        let Lookup { hashes, starts, sorted } = lookup;
        hashes.clear();
        hashes.extend(keys.iter().map(|key| self.hash(key)));
        starts.clear();
        starts.resize(self.all.len() + 1, 0);
        hashes.iter().for_each(|hash| starts[self.shard(*hash) + 1] += 1);
        (0..self.all.len()).for_each(|s| starts[s + 1] += starts[s]);
        sorted.clear();
        sorted.resize(keys.len(), 0);
        for (k, hash) in hashes.iter().enumerate() {
            let next = &mut starts[self.shard(*hash)];
            sorted[*next as usize] = k as u32;
            *next += 1;
        }
        tokens.clear();
        tokens.resize(keys.len(), 0);
        let mut start = 0;
        for (shard, &end) in starts[..self.all.len()].iter().enumerate() {
            let list = &sorted[start..end as usize];
            start = end as usize;
            if list.is_empty() {
                continue;
            }
            let mut table = self.lock(shard);
            let before = table.bytes();
            table.reserve(list.len(), |key| self.hash(key));
            table.touch(list.iter().map(|k| hashes[*k as usize]));
            for &k in list {
                let key = keys[k as usize];
                let place = table.place(hashes[k as usize], &key);
                if table.slots[place].1 == FREE {
                    let token = (table.len as u64) << self.bits | shard as u64;
                    let token = u32::try_from(token).ok().filter(|token| *token != FREE).ok_or(TableFull)?;
                    table.slots[place] = (key, token);
                    table.len += 1;
                    fresh.push((key, token));
                }
                tokens[k as usize] = table.slots[place].1;
            }
            self.bytes.fetch_add(table.bytes() - before, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Words of a page, each with the number of bits set in all words before it.
type RankedPage = Box<[(u64, u32)]>;

/// State numbers by cell: the number of known states in lower cells.
pub(super) struct CellRanks {
    cells: Cells,
    pages: Vec<Option<RankedPage>>,
    count: usize,
}

impl CellRanks {
    pub(super) fn new(bits: Bits) -> Self {
        let mut before = 0;
        let pages = bits.pages.into_iter().map(|page| {
            page.into_inner().map(|page| {
                let ranks = page.iter().map(|word| {
                    let word = word.load(Ordering::Relaxed);
                    let rank = (word, before);
                    before += word.count_ones();
                    rank
                });
                ranks.collect()
            })
        });
        let pages = pages.collect();
        Self { cells: bits.cells, pages, count: before as usize }
    }

    #[inline]
    pub(super) fn of_cell(&self, cell: u32) -> u32 {
        let cell = cell as usize;
        let page = self.pages[cell / PAGE_CELLS].as_ref().expect("the state is known");
        let (bits, before) = page[cell / 64 % PAGE_WORDS];
        before + (bits & ((1 << (cell % 64)) - 1)).count_ones()
    }

    #[inline]
    pub(super) fn of<const W: usize>(&self, key: &StateKey<W>) -> u32 {
        self.of_cell(self.cells.of(key) as u32)
    }

    /// All states in their order.
    pub(super) fn states<const W: usize>(&self) -> Vec<StateKey<W>> {
        let mut all = vec![[0; W]; self.count];
        let (mut rest, mut tasks) = (&mut all[..], Vec::new());
        for (number, page) in self.pages.iter().enumerate() {
            let Some(page) = page else { continue };
            let count: u32 = page.iter().map(|(bits, _)| bits.count_ones()).sum();
            let states = rest.split_off_mut(..count as usize).expect("all states of the page");
            tasks.push((number * PAGE_CELLS, page, states));
        }
        tasks.into_par_iter().for_each(|(first, page, states)| {
            let mut states = states.iter_mut();
            for (word, (bits, _)) in page.iter().enumerate() {
                for cell in ones(word, *bits) {
                    let state = states.next().expect("as many as there are bits");
                    self.cells.state((first + cell) as u64, state);
                }
            }
        });
        all
    }
}

/// Numbers the states. `found` has the tokens of the states of each segment.
///
/// Returns the states in their order, the place of each state's row, and the number of each
/// token. A place is `segment * ROWS + row`.
pub(super) fn numbered<const W: usize>(
    shards: Shards<W>,
    found: Vec<Vec<u32>>,
) -> (Vec<StateKey<W>>, Vec<u32>, Vec<u32>) {
    let tables =
        shards.all.into_iter().map(|table| table.into_inner().unwrap_or_else(PoisonError::into_inner));
    let tables: Vec<_> = tables.collect();
    let most = tables.iter().map(|table| table.len).max().unwrap_or(0);
    let mut all = Vec::with_capacity(tables.iter().map(|table| table.len).sum());
    // Each table is freed as soon as its states are listed.
    tables
        .into_iter()
        .for_each(|table| all.extend(table.slots.into_iter().filter(|(_, token)| *token != FREE)));
    // Places of rows by token, then numbers of states.
    let mut by_token = vec![0; most << shards.bits];
    for (segment, tokens) in found.into_iter().enumerate() {
        (tokens.iter().enumerate())
            .for_each(|(row, t)| by_token[*t as usize] = (segment * ROWS + row) as u32);
    }
    all.par_sort_unstable_by_key(|(key, _)| *key);
    let numbers = all.iter().enumerate();
    let places = numbers.map(|(number, (_, t))| std::mem::replace(&mut by_token[*t as usize], number as u32));
    let places = places.collect();
    let mut states: Vec<_> = all.into_iter().map(|(key, _)| key).collect();
    states.shrink_to_fit();
    (states, places, by_token)
}
