//! Search for repeated rows and values in a matrix.
//!
//! One parallel pass over the rows. A row with a known list of pairs (column − row, value) costs a
//! comparison or a lookup; only new lists are examined. The search for one kind of repetition ends
//! once its numbers cannot count the distinct items.

use std::hash::BuildHasher;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use foldhash::fast::FixedState;
use indexmap::IndexSet;

use super::patterns::Patterns;
use super::{Repeats, RowSource, column_bits};
use crate::kernel::Number;
use crate::parallel::*;
use crate::util::memory::zeroed;

/// Largest number of patterns (distinct rows): their numbers have two bytes.
pub const MOST_PATTERNS: usize = 1 << 16;

type KeySet<K> = IndexSet<K, FixedState>;

/// Returns the largest number of distinct values that fit into a word next to a column index.
pub fn most_values(columns: usize) -> usize {
    match column_bits(columns) {
        bits if bits < 32 => 1 << (32 - bits),
        _ => 0,
    }
}

/// Message that a kind of repetition has too many distinct items.
pub type TooManyItems = String;

/// Result of a search for repetition in rows.
#[derive(Debug)]
pub struct Repetition<T> {
    /// Tables of distinct rows, with the number of each row's pattern.
    pub patterns: Result<Patterns<T>, TooManyItems>,
    /// Distinct values, the first of which is 0.
    pub values: Result<Vec<T>, TooManyItems>,
}

/// Rows to search.
pub struct RowSet<'a, T> {
    /// Repeated rows; their widths and exit rates repeat, too.
    pub repeats: &'a Repeats,
    /// Element of the vector that corresponds to row 0.
    pub own: usize,
    /// Exit rate of each row.
    pub exit: &'a [T],
    /// Largest number of ELL entries of each row.
    ///
    /// Patterns with different widths are distinct, because the width determines the order of
    /// additions.
    pub width: &'a (dyn Fn(usize) -> u32 + Sync),
    /// Callback that appends the entries of a row.
    pub row: RowSource<'a, T>,
}

/// Flags of searches that ended because of too many distinct items.
struct Over {
    patterns: AtomicBool,
    exits: AtomicBool,
    values: AtomicBool,
    /// Lists so far, to end the search for patterns before a task alone has too many.
    seen: SeenHashes,
}

/// Set of hashes of the lists of all tasks. Its size is at most the number of distinct lists.
struct SeenHashes {
    /// One bit per hash; empty if there are too few rows to exceed [`MOST_PATTERNS`].
    bits: Vec<AtomicU64>,
    count: AtomicUsize,
}

/// Number of hashes: about 75 000 distinct lists have 65 537 different ones.
const HASHES: usize = 1 << 18;

impl SeenHashes {
    fn new(rows: usize) -> Self {
        let words = if rows > MOST_PATTERNS { HASHES / 64 } else { 0 };
        let bits = std::iter::repeat_with(AtomicU64::default).take(words).collect();
        Self { bits, count: AtomicUsize::new(0) }
    }

    /// Adds a list that is new to a task; returns true if there are too many.
    fn add(&self, list: &[u64]) -> bool {
        let hash = FixedState::default().hash_one(list) as usize % HASHES;
        let (word, mask) = (self.bits.get(hash / 64), 1 << (hash % 64));
        let is_new = |word: &AtomicU64| {
            word.load(Ordering::Relaxed) & mask == 0 && word.fetch_or(mask, Ordering::Relaxed) & mask == 0
        };
        word.is_some_and(is_new) && self.count.fetch_add(1, Ordering::Relaxed) >= MOST_PATTERNS
    }
}

/// Repetition that one task found in its rows.
struct TaskRepetition<'a> {
    over: &'a Over,
    most_values: usize,
    /// Distinct lists: length of the ELL part, then offset and value's bits of each entry.
    lists: KeySet<Box<[u64]>>,
    /// Distinct pairs of a list's number and the bits of an exit rate.
    full: KeySet<(u32, u64)>,
    /// Number of each row's list, or of its pair in `full` if `full_ids`.
    ids: Vec<u16>,
    full_ids: bool,
    values: KeySet<u64>,
    /// Number, list and exit rate of the last row.
    last: (u16, Vec<u64>, u64),
}

fn task(repeats: &Repeats) -> usize {
    const FEWEST: usize = 1 << 14;
    let rows: usize = repeats.looked_at(usize::MAX).iter().map(Range::len).sum();
    rows.div_ceil(4 * threads()).max(FEWEST)
}

/// Searches rows for repetition; at most `most_values` distinct values can be numbered.
pub fn find<T: Number>(rows: &RowSet<'_, T>, most_values: usize) -> Repetition<T> {
    let seen = SeenHashes::new(rows.repeats.rows());
    let over = Over { patterns: false.into(), exits: false.into(), values: false.into(), seen };
    let found: Vec<TaskRepetition<'_>> = rows
        .repeats
        .looked_at(task(rows.repeats))
        .into_par_iter()
        .map(|here| TaskRepetition::look(rows, here, most_values, &over))
        .collect();

    let mut values = KeySet::default();
    values.insert(T::ZERO.bits());
    if !given_up(&over.values) {
        found.iter().for_each(|f| values.extend(f.values.iter().copied()));
    }
    let values = match values.len() > most_values || given_up(&over.values) {
        true => Err(format!("more than {most_values} distinct rates")),
        false => Ok(values.iter().map(|&v| T::from_bits(v)).collect()),
    };
    let patterns = match given_up(&over.patterns) {
        true => Err(format!("more than {MOST_PATTERNS} different rows")),
        false => patterns(&found, rows.repeats, given_up(&over.exits)),
    };
    Repetition { patterns, values }
}

fn given_up(flag: &AtomicBool) -> bool {
    flag.load(Ordering::Relaxed)
}

fn give_up(flag: &AtomicBool) {
    flag.store(true, Ordering::Relaxed);
}

impl<'a> TaskRepetition<'a> {
    fn look<T: Number>(rows: &RowSet<'_, T>, here: Range<usize>, most_values: usize, over: &'a Over) -> Self {
        let mut found = Self {
            over,
            most_values,
            lists: KeySet::default(),
            full: KeySet::default(),
            ids: Vec::with_capacity(here.len()),
            full_ids: true,
            values: KeySet::default(),
            last: (0, Vec::new(), 0),
        };
        let (mut entries, mut list) = (Vec::new(), Vec::new());
        for row in here {
            if given_up(&over.patterns) && given_up(&over.values) {
                break;
            }
            entries.clear();
            (rows.row)(row, &mut entries);
            list.clear();
            list.push(u64::from((rows.width)(row).min(entries.len() as u32)));
            let place = (rows.own + row) as u32;
            for &(column, value) in &entries {
                list.extend([u64::from(column.wrapping_sub(place)), value.bits()]);
            }
            if given_up(&over.patterns) || !found.known(&list, rows.exit[row].bits()) {
                found.examine(&list);
            }
        }
        found
    }

    /// Numbers a row by its `list` (see `lists`); returns true if an earlier row has this list.
    fn known(&mut self, list: &[u64], exit: u64) -> bool {
        if list == self.last.1 && (exit == self.last.2 || !self.full_ids) {
            self.ids.push(self.last.0);
            return true;
        }
        let (number, new) = match self.lists.get_index_of(list) {
            Some(number) => (number, false),
            None => {
                if self.over.seen.add(list) {
                    give_up(&self.over.patterns);
                }
                self.lists.insert_full(list.into())
            }
        };
        if number >= MOST_PATTERNS || given_up(&self.over.patterns) {
            give_up(&self.over.patterns);
            (self.lists, self.full, self.ids) = (KeySet::default(), KeySet::default(), Vec::new());
            return false;
        }
        let mut id = number;
        if self.full_ids {
            id = self.full.insert_full((number as u32, exit)).0;
            if id >= MOST_PATTERNS || given_up(&self.over.exits) {
                give_up(&self.over.exits);
                let full = std::mem::take(&mut self.full);
                self.ids.iter_mut().for_each(|id| *id = full[*id as usize].0 as u16);
                self.full_ids = false;
                id = number;
            }
        }
        self.ids.push(id as u16);
        let (last, last_list, last_exit) = &mut self.last;
        (*last, *last_exit) = (id as u16, exit);
        last_list.clear();
        last_list.extend_from_slice(list);
        !new
    }

    fn examine(&mut self, list: &[u64]) {
        for entry in list[1..].chunks_exact(2) {
            if !given_up(&self.over.values) {
                self.values.insert(entry[1]);
                if self.values.len() > self.most_values {
                    give_up(&self.over.values);
                }
            }
        }
    }
}

/// Combines the tasks' patterns in the order of the rows.
fn patterns<T: Number>(
    found: &[TaskRepetition<'_>],
    repeats: &Repeats,
    exits_over: bool,
) -> Result<Patterns<T>, TooManyItems> {
    let rows = repeats.rows();
    let mut lists: KeySet<&[u64]> = KeySet::default();
    let mut full: KeySet<(u32, u64)> = KeySet::default();
    let mut maps = Vec::with_capacity(found.len());
    for f in found {
        let list_map: Vec<u32> = f.lists.iter().map(|list| lists.insert_full(list).0 as u32).collect();
        let lists_of_full = f.full.iter().map(|&(list, exit)| (list_map[list as usize], exit));
        maps.push(match (exits_over, f.full_ids) {
            (false, _) => lists_of_full.map(|pair| full.insert_full(pair).0 as u32).collect(),
            (true, true) => lists_of_full.map(|(list, _)| list).collect(),
            (true, false) => list_map,
        });
        if lists.len() > MOST_PATTERNS {
            return Err(format!("more than {MOST_PATTERNS} different rows"));
        }
    }
    let with_exit = |full: &KeySet<(u32, u64)>| {
        full.iter().map(|&(list, exit)| (lists[list as usize], exit)).collect::<Vec<_>>()
    };
    let mut table = Patterns::new(&with_exit(&full), false)?;
    let alone: Vec<_> = lists.iter().map(|&list| (list, 0)).collect();
    let apart = Patterns::new(&alone, true)?;
    if exits_over || full.len() > MOST_PATTERNS || apart.bytes(rows) < table.bytes(rows) {
        if !exits_over {
            let to_list = |id: &mut u32| *id = full[*id as usize].0;
            maps.iter_mut().for_each(|map: &mut Vec<u32>| map.iter_mut().for_each(to_list));
        }
        table = apart;
    }
    table.ids = zeroed(rows);
    for ((f, map), (_, out)) in found.iter().zip(&maps).zip(repeats.places(&mut table.ids, task(repeats))) {
        out.par_iter_mut()
            .zip(&f.ids)
            .with_min_len(1 << 16)
            .for_each(|(out, &id)| *out = map[id as usize] as u16);
    }
    repeats.copy(&mut table.ids);
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches rows given as lists, with an ELL part of width 2.
    fn look(rows: &[Vec<(u32, f64)>], exit: &[f64], most_values: usize) -> Repetition<f64> {
        let row = |i: usize, out: &mut Vec<(u32, f64)>| out.extend_from_slice(&rows[i]);
        let repeats = &Repeats::new(rows.len(), []);
        find(&RowSet { repeats, own: 0, exit, width: &|_| 2, row: &row }, most_values)
    }

    /// Restores rows from patterns: (ELL part without zeros, COO part, exit rate).
    #[expect(clippy::type_complexity, reason = "a row is what it is")]
    fn restore(p: &Patterns<f64>, rows: usize) -> Vec<(Vec<(u32, f64)>, Vec<(u32, f64)>, f64)> {
        let row = |i: usize| {
            let id = p.ids[i];
            let tables = p.tables();
            let at = |(offset, value): (u32, f64)| (offset.wrapping_add(i as u32), value);
            let (ell, coo) = (tables.ell(id).map(at), tables.coo(id).map(|e| at(tables.entry(e))));
            let stored = |(_, value): &(u32, f64)| *value != 0.0;
            (ell.filter(stored).collect(), coo.collect(), tables.exit(id))
        };
        (0..rows).map(row).collect()
    }

    #[test]
    fn rows_are_restored_from_their_patterns() {
        let n = 300_000u32;
        let rows: Vec<Vec<(u32, f64)>> = (0..n)
            .map(|i| {
                let mut row = Vec::new();
                if i > 0 && i % 5 != 0 {
                    row.push((i - 1, 2.0));
                }
                if i + 9 < n {
                    row.extend([(i + 7, 0.5), (i + 9, f64::from(i % 3 + 1))]);
                }
                row
            })
            .collect();
        let exit: Vec<f64> = (0..n).map(|i| f64::from(i % 4)).collect();

        let found = look(&rows, &exit, 100);

        let patterns = found.patterns.unwrap();
        assert!(!patterns.exit_apart);
        assert_eq!(patterns.id_bytes(), 1);
        for (i, (ell, coo, rate)) in restore(&patterns, rows.len()).into_iter().enumerate() {
            assert_eq!(rate, exit[i], "row {i}");
            let (expected, rest) = rows[i].split_at(rows[i].len().min(2));
            assert_eq!((&ell[..], &coo[..]), (expected, rest), "row {i}");
        }
        assert_eq!(found.values.unwrap().len(), 5, "0, 0.5, 1, 2 and 3");
    }

    #[test]
    fn a_search_ends_early_if_all_rows_differ() {
        let (rows, read) = (400_000, AtomicUsize::new(0));
        let row = |i: usize, out: &mut Vec<(u32, f64)>| {
            read.fetch_add(1, Ordering::Relaxed);
            out.push((i as u32, 1.0 + i as f64));
        };
        let (repeats, exit) = (&Repeats::new(rows, []), &vec![1.0; rows]);

        let found = find(&RowSet { repeats, own: 0, exit, width: &|_| 2, row: &row }, 1000);

        assert!(found.patterns.unwrap_err().contains("65536") && found.values.is_err());
        // After about 75 000 rows, one of at most 25 tasks has found more than 1000 values.
        assert!(read.into_inner() < 200_000);
    }

    #[test]
    fn exit_rates_that_differ_everywhere_lie_apart() {
        let rows: Vec<Vec<(u32, f64)>> = (0..200_000u32).map(|i| vec![(i + 1, 1.0)]).collect();
        let exit: Vec<f64> = (0..rows.len()).map(|i| i as f64).collect();

        let patterns = look(&rows, &exit, 100).patterns.unwrap();

        assert!(patterns.exit_apart);
        assert_eq!((patterns.count, patterns.id_bytes()), (1, 1));
        assert!(patterns.ids.iter().all(|&id| id == 0) && patterns.ids.len() == rows.len());
    }

    #[test]
    fn too_many_distinct_rows_or_values_are_errors() {
        // 65 537 distinct rows, with more than 250 values.
        let rows: Vec<Vec<(u32, f64)>> =
            (0..65_537u32).map(|i| vec![(i, f64::from(i % 250 + 1)), (i + 1 + i / 250, 1.0)]).collect();
        let exit = vec![1.0; rows.len()];

        let found = look(&rows, &exit, 250);

        assert!(found.patterns.unwrap_err().contains("65536"));
        assert!(found.values.unwrap_err().contains("250"), "251 with 0");
        let exactly = look(&rows[..65_536], &exit[..65_536], 251);
        assert_eq!(exactly.patterns.unwrap().count, 65_536);
        assert_eq!(exactly.values.unwrap().len(), 251);

        // Few rows, but more than 256 rates.
        let rows: Vec<Vec<(u32, f64)>> = (0..512u32).map(|i| vec![(i, f64::from(i / 2 + 1))]).collect();
        let found = look(&rows, &vec![1.0; rows.len()], 1000);
        assert!(found.patterns.unwrap_err().contains("256 distinct rates"));
    }
}
