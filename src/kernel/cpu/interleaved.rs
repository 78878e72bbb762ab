//! Sums of rate × x for several chains at once, on interleaved vectors.

#![expect(unsafe_code, reason = "two checks of each entry would take a fifth of the time")]

use std::ops::Range;

use crate::kernel::fma;
use crate::util::inline_array::array;

/// Number of sums to which entries are added in turn: their additions overlap.
pub(crate) const GROUP: usize = 4;

/// Column and class of each entry of a matrix; all entries of a class have the same rate.
#[derive(Debug)]
pub(crate) struct ClassifiedEntries {
    /// Column in the low half, class in the high half.
    words: Vec<u64>,
    /// Upper bounds of all columns and of all classes.
    columns: usize,
    classes: usize,
}

impl ClassifiedEntries {
    /// Creates entries of class 0 with the given columns.
    pub(crate) fn new(columns: &[u32]) -> Self {
        let words = columns.iter().map(|&column| u64::from(column)).collect();
        Self { words, columns: columns.iter().max().map_or(0, |&most| most as usize + 1), classes: 1 }
    }

    /// Replaces each entry's class by the one that `class` returns, from its index and its class.
    pub(crate) fn reclassify(&mut self, mut class: impl FnMut(usize, u32) -> u32) {
        for (entry, word) in self.words.iter_mut().enumerate() {
            let new = class(entry, (*word >> 32) as u32);
            self.classes = self.classes.max(new as usize + 1);
            *word = u64::from(new) << 32 | u64::from(*word as u32);
        }
    }

    /// Returns the classes of the first [`GROUP`] of some entries.
    #[inline(always)]
    pub(crate) fn first_classes(&self, entries: &Range<usize>) -> [usize; GROUP] {
        let words = &self.words[entries.start..][..GROUP];
        array(|i| (words[i] >> 32) as usize)
    }

    /// Adds rate × x of entries to sums, entry k to sum k mod [`GROUP`], for W chains.
    ///
    /// `table` has the rates of each class. Panics if `table` or `x` is too short.
    #[inline(always)]
    pub(crate) fn add_products<const W: usize, const LEVEL: u8>(
        &self,
        entries: Range<usize>,
        (table, x): (&[[f64; W]], &[[f64; W]]),
        sums: &mut [[f64; W]; GROUP],
    ) {
        assert!(x.len() >= self.columns && table.len() >= self.classes, "a short vector or table");
        let product = |word: u64, sum: &[f64; W]| {
            let (class, column) = ((word >> 32) as usize, word as u32 as usize);
            // SAFETY: `new` and `reclassify` alone write words, and keep columns below `columns`,
            // and classes below `classes`. The array and the table are at least as long.
            let (rate, x) = unsafe { (table.get_unchecked(class), x.get_unchecked(column)) };
            array(|c| fma::<f64, LEVEL>(rate[c], x[c], sum[c]))
        };
        let (groups, rest) = self.words[entries].as_chunks::<GROUP>();
        for words in groups {
            *sums = array(|i| product(words[i], &sums[i]));
        }
        for (sum, word) in sums.iter_mut().zip(rest) {
            *sum = product(*word, sum);
        }
    }
}
