//! Matrix format that stores each row as the number of its pattern.

use std::ops::Range;

use indexmap::IndexSet;

use super::SLICE;
use crate::kernel::Number;

/// Largest number of ELL entries of a pattern: its word has 8 bits for it.
const MOST_ELL: u64 = 255;
/// Number of entries in a group, which a thread reads at once.
pub const GROUP: usize = 4;
/// Largest number of distinct values in the tables of patterns.
pub const MOST_VALUES: usize = 256;

/// Every row as the number of its pattern, with tables of the patterns.
///
/// The words are, in this order,
///
/// * One for each pattern: 512·start + 256·c + n, where n is the number of its ELL entries, c is 1
///   if it has COO entries, else 0, and start gives the place of its ELL entries (see below).
/// * One more pointer than there are patterns to their COO entries, if there are any.
/// * The COO entries.
/// * From a multiple of 4 on, the groups of ELL entries.
///
/// Entry k < n of pattern id is element k mod 4 of group 64·(start + ⌊k/4⌋) + id mod 64. So threads
/// of neighbouring rows read neighbouring groups if their patterns have neighbouring numbers.
///
/// An entry is one word: the value's number in the low bits, and above it column minus row, counted
/// from `least`.
#[derive(Debug)]
pub struct Patterns<T> {
    /// Pattern number of each row.
    pub ids: Vec<u16>,
    /// Number of patterns.
    pub count: usize,
    /// Words of the tables.
    pub words: Vec<u32>,
    /// Index in `words` of the first group of ELL entries.
    pub groups: usize,
    /// Number of bits of a value's number in an entry.
    pub value_bits: u32,
    /// Smallest column minus row, modulo 2³².
    pub least: u32,
    /// Exit rate of each pattern, padded to whole slices, then the distinct values, 0 first.
    ///
    /// Exit rates stored separately are 0 here. Distinct values are padded with 0 to
    /// 2^`value_bits`.
    pub values: Vec<T>,
    /// True if exit rates are stored separately.
    ///
    /// This is the case if they would make too many patterns, or patterns that cost more than they
    /// save.
    pub exit_apart: bool,
}

impl<T: Number> Patterns<T> {
    /// Builds the tables of these patterns (list, bits of the exit rate), without rows.
    ///
    /// A list is the length of the ELL part, then column minus row modulo 2³² and the bits of the
    /// value of each entry. The error is the quantity that exceeds its limit.
    pub fn new(patterns: &[(&[u64], u64)], exit_apart: bool) -> Result<Self, String> {
        if let Some((list, _)) = patterns.iter().find(|(list, _)| list[0] > MOST_ELL) {
            return Err(format!("more than {MOST_ELL} entries in the ELL part of a row: {}", list[0]));
        }
        let entries = || patterns.iter().flat_map(|(list, _)| list[1..].chunks_exact(2));
        let mut numbers: IndexSet<u64> = IndexSet::from([T::ZERO.bits()]);
        numbers.extend(entries().map(|entry| entry[1]));
        if numbers.len() > MOST_VALUES {
            return Err(format!("more than {MOST_VALUES} distinct rates"));
        }
        // Padding has offset 0.
        let reach = entries().fold((0, 0), |(least, greatest), entry| {
            let offset = entry[0] as u32 as i32;
            (offset.min(least), offset.max(greatest))
        });
        let bits = |most: u32| u32::BITS - most.leading_zeros();
        let value_bits = bits(numbers.len() as u32 - 1);
        if value_bits + bits(reach.1.abs_diff(reach.0)) > u32::BITS {
            return Err(format!(
                "{} distinct rates and column offsets from {} to {}: more than 32 bits an entry",
                numbers.len(),
                reach.0,
                reach.1
            ));
        }
        let least = reach.0 as u32;
        let word = |offset: u32, value: u64| {
            let number = numbers.get_index_of(&value).expect("values are numbered");
            // Shifted in 64 bits: with a single value, all 32 bits are for offsets.
            ((u64::from(offset.wrapping_sub(least)) << value_bits) as u32) | number as u32
        };
        let words = |list: &[u64]| list.chunks_exact(2).map(|e| word(e[0] as u32, e[1])).collect::<Vec<_>>();

        let mut values = vec![T::ZERO; patterns.len().next_multiple_of(SLICE)];
        for (value, &(_, exit)) in values.iter_mut().zip(patterns) {
            *value = T::from_bits(exit);
        }
        values.extend(numbers.iter().map(|&value| T::from_bits(value)));
        values.resize(patterns.len().next_multiple_of(SLICE) + (1 << value_bits), T::ZERO);

        let (mut heads, mut groups) = (Vec::with_capacity(patterns.len()), Vec::new());
        let (mut pointers, mut tails) = (Vec::with_capacity(patterns.len() + 1), Vec::new());
        for slice in patterns.chunks(SLICE) {
            let start = groups.len();
            let most = slice.iter().map(|(list, _)| list[0] as usize).max().unwrap_or(0);
            groups.resize(start + most.div_ceil(GROUP) * SLICE, [word(0, T::ZERO.bits()); GROUP]);
            for (lane, (list, _)) in slice.iter().enumerate() {
                let (ell, coo) = list[1..].split_at(2 * list[0] as usize);
                let coo_bit = if coo.is_empty() { 0 } else { 256 };
                heads.push((start / SLICE) as u32 * 512 + coo_bit + list[0] as u32);
                for (k, word) in words(ell).into_iter().enumerate() {
                    groups[start + k / GROUP * SLICE + lane][k % GROUP] = word;
                }
                pointers.push(tails.len() as u32);
                tails.extend(words(coo));
            }
        }
        pointers.push(tails.len() as u32);
        let mut words = heads;
        if !tails.is_empty() {
            let first = (words.len() + pointers.len()) as u32;
            words.extend(pointers.iter().map(|pointer| first + pointer));
            words.append(&mut tails);
        }
        words.resize(words.len().next_multiple_of(GROUP), 0);
        let first_group = words.len() / GROUP;
        words.extend(groups.into_flattened());
        Ok(Self {
            ids: Vec::new(),
            count: patterns.len(),
            words,
            groups: first_group,
            value_bits,
            least,
            values,
            exit_apart,
        })
    }

    /// Returns the bytes of tables, pattern numbers and separate exit rates for `rows` rows.
    pub fn bytes(&self, rows: usize) -> u64 {
        let real = T::PRECISION.bytes();
        let apart = if self.exit_apart { rows as u64 * real } else { 0 };
        rows as u64 * self.id_bytes() + 4 * self.words.len() as u64 + self.values.len() as u64 * real + apart
    }

    /// Returns the index of the pointers in the words.
    pub fn pointers(&self) -> usize {
        self.count
    }

    /// Returns the index of the distinct values, which follow the exit rates.
    pub fn dictionary(&self) -> usize {
        self.count.next_multiple_of(SLICE)
    }

    /// Returns a view of the tables.
    pub fn tables(&self) -> Tables<'_, T> {
        Tables {
            words: &self.words,
            pointers: self.pointers(),
            groups: self.groups,
            value_bits: self.value_bits,
            least: self.least,
            values: &self.values,
            dictionary: self.dictionary(),
        }
    }

    /// Returns the size of a pattern's number in bytes.
    pub fn id_bytes(&self) -> u64 {
        if self.count <= 256 { 1 } else { 2 }
    }
}

/// View of the tables of [`Patterns`].
#[derive(Clone, Copy)]
pub struct Tables<'a, T> {
    /// Encoded patterns: headers, COO pointers and entries, ELL groups; see [`Patterns`].
    pub words: &'a [u32],
    /// Index of the pointers, see [`Patterns::pointers`].
    pub pointers: usize,
    /// Index of the first group, see [`Patterns::groups`].
    pub groups: usize,
    /// Bits of a value's number, see [`Patterns::value_bits`].
    pub value_bits: u32,
    /// Smallest column minus row, see [`Patterns::least`].
    pub least: u32,
    /// Exit rates and distinct values, see [`Patterns::values`].
    pub values: &'a [T],
    /// Index of the distinct values, see [`Patterns::dictionary`].
    pub dictionary: usize,
}

impl<T: Number> Tables<'_, T> {
    /// Iterates over a pattern's ELL entries: column minus row modulo 2³², and value.
    #[inline(always)]
    pub fn ell(&self, id: u16) -> impl Iterator<Item = (u32, T)> + '_ {
        let word = self.words[id as usize] as usize;
        let first = self.groups + word / 512 * SLICE + id as usize % SLICE;
        (0..word % 256).map(move |k| self.entry(GROUP * (first + k / GROUP * SLICE) + k % GROUP))
    }

    /// Returns the range of a pattern's COO entries in the words.
    #[inline(always)]
    pub fn coo(&self, id: u16) -> Range<usize> {
        match self.words[id as usize] & 256 {
            0 => 0..0,
            _ => {
                let ends = &self.words[self.pointers + id as usize..];
                ends[0] as usize..ends[1] as usize
            }
        }
    }

    /// Returns column minus row modulo 2³², and the value, of the entry at this index.
    #[inline(always)]
    pub fn entry(&self, place: usize) -> (u32, T) {
        let word = self.words[place];
        let number = word & ((1 << self.value_bits) - 1);
        let offset = self.least.wrapping_add((u64::from(word) >> self.value_bits) as u32);
        (offset, self.values[self.dictionary + number as usize])
    }

    /// Returns the pattern's exit rate, unless exit rates are stored separately.
    #[inline(always)]
    pub fn exit(&self, id: u16) -> T {
        self.values[id as usize]
    }
}
