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

    /// Returns the rates of an entry's class, and x of its column, for W chains.
    ///
    /// # Safety
    /// `word` is an entry of a matrix whose [`Self::expect_long`] has accepted `table` and `x`.
    #[inline(always)]
    unsafe fn factors<'a, const W: usize>(
        word: u64,
        (table, x): (&'a [[f64; W]], &'a [[f64; W]]),
    ) -> (&'a [f64; W], &'a [f64; W]) {
        let (class, column) = ((word >> 32) as usize, word as u32 as usize);
        // SAFETY: `new` and `reclassify` alone write words, and keep columns below `columns`, and
        // classes below `classes`. The array and the table are at least as long.
        unsafe { (table.get_unchecked(class), x.get_unchecked(column)) }
    }

    /// Panics if the table or x is too short for the entries.
    fn expect_long<const W: usize>(&self, (table, x): (&[[f64; W]], &[[f64; W]])) {
        assert!(x.len() >= self.columns && table.len() >= self.classes, "a short vector or table");
    }

    /// Returns the rates of the first [`GROUP`] of some entries, and the sums of rate × x over the
    /// others, entry k in sum k mod [`GROUP`], for W chains.
    ///
    /// `table` has the rates of each class. The number of entries is a multiple of [`GROUP`].
    /// Panics if there are none, or if `table` or `x` is too short.
    #[inline(always)]
    pub(crate) fn products<'a, const W: usize, const LEVEL: u8>(
        &self,
        entries: Range<usize>,
        (table, x): (&'a [[f64; W]], &'a [[f64; W]]),
    ) -> ([&'a [f64; W]; GROUP], [[f64; W]; GROUP]) {
        self.expect_long((table, x));
        let (groups, rest) = self.words[entries].as_chunks::<GROUP>();
        debug_assert!(rest.is_empty(), "entries of a part of a group");
        let (first, others) = groups.split_first().expect("a group of entries");
        // Sums of a fixed number stay in registers.
        let mut sums = [[0.0; W]; GROUP];
        for words in others {
            sums = array(|i| {
                // SAFETY: a word of this matrix; the lengths are checked above.
                let (rate, x) = unsafe { Self::factors(words[i], (table, x)) };
                array(|c| fma::<f64, LEVEL>(rate[c], x[c], sums[i][c]))
            });
        }
        // SAFETY: as above.
        (array(|i| unsafe { Self::factors(first[i], (table, x)) }.0), sums)
    }

    /// Returns the sums of rate × x over some entries, as in [`Self::products`], of any number.
    #[inline(always)]
    pub(crate) fn products_of_any<const W: usize, const LEVEL: u8>(
        &self,
        entries: Range<usize>,
        (table, x): (&[[f64; W]], &[[f64; W]]),
    ) -> [[f64; W]; GROUP] {
        self.expect_long((table, x));
        let mut sums = [[0.0; W]; GROUP];
        for (k, word) in self.words[entries].iter().enumerate() {
            // SAFETY: a word of this matrix; the lengths are checked above.
            let (rate, x) = unsafe { Self::factors(*word, (table, x)) };
            let sum = &mut sums[k % GROUP];
            *sum = array(|c| fma::<f64, LEVEL>(rate[c], x[c], sum[c]));
        }
        sums
    }
}
