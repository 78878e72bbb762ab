//! Set of the non-absorbing states of a rank.

use std::ops::Range;

use crate::kernel::Number;
use crate::parallel::*;
use crate::ranks::Ranks;

/// Number of rows per word of the bit set.
const BITS: usize = u32::BITS as usize;

/// Bit set of this rank's non-absorbing states.
#[derive(Debug, Clone, Default)]
pub struct NonAbsorbing {
    rows: Range<usize>,
    words: Vec<u32>,
    /// Number of set bits, which is the number of non-absorbing states of this rank.
    count: usize,
    /// True if no state of any rank is absorbing.
    all: bool,
}

impl NonAbsorbing {
    /// Finds the non-absorbing states among `rows`, which are whole blocks of 256 rows.
    ///
    /// `exit` are their stored exit rates. One that is 0 may have underflowed. `leaves(i)` is true
    /// if state i has transitions.
    pub(crate) fn new<T: Number>(
        rows: Range<usize>,
        exit: &[T],
        leaves: &(dyn Fn(usize) -> bool + Sync),
        ranks: Ranks,
    ) -> Self {
        let first = rows.start;
        let word = |(w, exit): (usize, &[T])| {
            let bit =
                |(i, rate): (usize, &T)| u32::from(*rate != T::ZERO || leaves(first + w * BITS + i)) << i;
            exit.iter().enumerate().map(bit).fold(0, |word, bit| word | bit)
        };
        let words: Vec<u32> = exit.par_chunks(BITS).enumerate().with_min_len(128).map(word).collect();
        let count = words.par_iter().map(|word| word.count_ones() as usize).reduce(|| 0, |a, b| a + b);
        let all = ranks.all_reduce_sum((rows.len() - count) as u64) == 0;
        Self { rows, words, count, all }
    }

    /// Returns the number of this rank's non-absorbing states.
    pub(crate) fn count(&self) -> u64 {
        self.count as u64
    }

    /// True if no state of any rank is absorbing.
    pub fn all(&self) -> bool {
        self.all
    }

    /// True if state number `state` of this rank, counted from 0, is not absorbing.
    #[inline(always)]
    pub fn contains(&self, state: usize) -> bool {
        self.words[state / BITS] >> (state % BITS) & 1 == 1
    }

    /// Returns the words of the bit set for `rows`, which are whole blocks of 256 rows.
    pub(crate) fn words(&self, rows: &Range<usize>) -> &[u32] {
        &self.words[(rows.start - self.rows.start) / BITS..(rows.end - self.rows.start).div_ceil(BITS)]
    }
}
