//! Rows as numbers of patterns.

use std::ops::Range;

use indexmap::IndexSet;

use super::SLICE;
use crate::kernel::Number;

/// Entries of a pattern's ELL part that its word can tell.
const MOST_ELL: u64 = 255;
/// Entries of a group, which a thread reads at once.
pub const GROUP: usize = 4;
/// Distinct values that a device keeps close at hand.
pub const MOST_VALUES: usize = 256;

/// Every row as the number of its pattern.
///
/// The words are, in this order,
///
/// * one for each pattern: 512·start + 256·(whether it has COO entries) + number n of its ELL entries. Entry k < n is
///   element k mod 4 of group 64·(start + ⌊k/4⌋) + id mod 64, so that threads of neighbouring rows read
///   neighbouring groups where their patterns have neighbouring numbers;
/// * one more pointer than there are patterns to their COO entries, if any has some;
/// * the COO entries;
/// * from a multiple of 4 on, the groups.
///
/// An entry is one word: column minus row, from the least one counted, above the number of the value.
#[derive(Debug)]
pub struct Patterns<T> {
    /// One number a row.
    pub ids: Vec<u16>,
    /// Number of patterns.
    pub count: usize,
    /// The words.
    pub words: Vec<u32>,
    /// First group of the words.
    pub groups: usize,
    /// Bits of a value's number in an entry.
    pub value_bits: u32,
    /// The least column minus row, modulo 2³².
    pub least: u32,
    /// The exit rate of each pattern, or 0 if it lies apart, padded to whole slices; then the distinct values, 0 first,
    /// as many as an entry can name.
    pub values: Vec<T>,
    /// True if exit rates would make too many patterns, or more than they save.
    pub exit_apart: bool,
}

impl<T: Number> Patterns<T> {
    /// The tables of these (list, bits of the exit rate), no rows yet. A list is the ELL part's length, then column
    /// minus row modulo 2³² and the bits of the value of each entry.
    ///
    /// # Errors
    /// What has too many of something.
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
                "{} distinct rates and columns from {} to {} beside the row: more than 32 bits an entry",
                numbers.len(),
                reach.0,
                reach.1
            ));
        }
        let least = reach.0 as u32;
        let word = |offset: u32, value: u64| {
            let number = numbers.get_index_of(&value).expect("every value has its number");
            // Shifted in 64 bits: one value takes all 32 for offsets.
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

    /// Bytes that a step moves for `rows` rows: numbers, tables, and exit rates that lie apart.
    pub fn bytes(&self, rows: usize) -> u64 {
        let real = T::PRECISION.bytes();
        let apart = if self.exit_apart { rows as u64 * real } else { 0 };
        rows as u64 * self.id_bytes() + 4 * self.words.len() as u64 + self.values.len() as u64 * real + apart
    }

    /// Place of the pointers in the words.
    pub fn pointers(&self) -> usize {
        self.count
    }

    /// Place of the distinct values behind the exit rates.
    pub fn dictionary(&self) -> usize {
        self.count.next_multiple_of(SLICE)
    }

    /// The tables.
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

    /// Bytes of a pattern's number.
    pub fn id_bytes(&self) -> u64 {
        if self.count <= 256 { 1 } else { 2 }
    }
}

/// The tables of [`Patterns`], wherever they lie.
#[derive(Clone, Copy)]
pub struct Tables<'a, T> {
    /// See [`Patterns::words`].
    pub words: &'a [u32],
    /// See [`Patterns::pointers`].
    pub pointers: usize,
    /// See [`Patterns::groups`].
    pub groups: usize,
    /// See [`Patterns::value_bits`].
    pub value_bits: u32,
    /// See [`Patterns::least`].
    pub least: u32,
    /// See [`Patterns::values`].
    pub values: &'a [T],
    /// See [`Patterns::dictionary`].
    pub dictionary: usize,
}

impl<T: Number> Tables<'_, T> {
    /// Column minus row modulo 2³², and value, of the entries of a pattern's ELL part.
    #[inline(always)]
    pub fn ell(&self, id: u16) -> impl Iterator<Item = (u32, T)> + '_ {
        let word = self.words[id as usize] as usize;
        let first = self.groups + word / 512 * SLICE + id as usize % SLICE;
        (0..word % 256).map(move |k| self.entry(GROUP * (first + k / GROUP * SLICE) + k % GROUP))
    }

    /// Where its other entries lie.
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

    /// Column minus row modulo 2³², and value, of the entry at this place.
    #[inline(always)]
    pub fn entry(&self, place: usize) -> (u32, T) {
        let word = self.words[place];
        let number = word & ((1 << self.value_bits) - 1);
        let offset = self.least.wrapping_add((u64::from(word) >> self.value_bits) as u32);
        (offset, self.values[self.dictionary + number as usize])
    }

    /// The pattern's exit rate, unless exit rates lie apart.
    #[inline(always)]
    pub fn exit(&self, id: u16) -> T {
        self.values[id as usize]
    }
}
