//! Number of a row's entries in the ELL part.

use super::SLICE;
use crate::parallel::*;

/// Layout of a matrix: the ELL width and the number of COO entries of each slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HybLayout {
    /// ELL width of each slice.
    pub widths: Vec<u32>,
    /// Number of COO entries of each slice.
    pub tails: Vec<u32>,
}

impl HybLayout {
    /// Lays out rows of these lengths; `value_bytes` is the size of one value.
    ///
    /// A slice gets the width that moves the fewest bytes. An entry of the COO part counts twice,
    /// because its row's thread fetches it alone. A row with a COO part counts four entries more
    /// for the mispredicted branch.
    pub fn new(lengths: &[u32], value_bytes: u64) -> Self {
        let slice = |slice: &[u32]| {
            let width = fewest_bytes(slice, value_bytes);
            (width, tail(slice, width))
        };
        let (widths, tails) = lengths.par_chunks(SLICE).map(slice).collect::<Vec<_>>().into_iter().unzip();
        Self { widths, tails }
    }

    /// Returns the number of stored entries, including padding.
    pub fn stored(&self) -> u64 {
        self.stored_in(0..self.widths.len())
    }

    /// Returns the number of stored entries of some slices, including padding.
    pub fn stored_in(&self, slices: std::ops::Range<usize>) -> u64 {
        let ell: u64 = self.widths[slices.clone()].iter().map(|&w| u64::from(w) * SLICE as u64).sum();
        ell + self.tails[slices].iter().map(|&t| u64::from(t)).sum::<u64>()
    }
}

fn tail(slice: &[u32], width: u32) -> u32 {
    slice.iter().map(|&l| l.saturating_sub(width)).sum()
}

fn fewest_bytes(slice: &[u32], value_bytes: u64) -> u32 {
    let entry = value_bytes + 4;
    let longest = slice.iter().copied().max().unwrap_or(0);
    let pointers = 4 * (SLICE as u64 + 1);
    let bytes = |width: u32| {
        let longer = slice.iter().filter(|&&l| l > width).count() as u64;
        let tail = u64::from(tail(slice, width));
        u64::from(width) * SLICE as u64 * entry
            + (2 * tail + 4 * longer) * entry
            + if tail > 0 { pointers } else { 0 }
    };
    // The cost first falls and then rises with the width, so the search stops when it rises.
    // Otherwise a slice with a few rows of thousands of entries would try each width.
    let mut best = (bytes(0), 0);
    for width in 1..=longest {
        let cost = bytes(width);
        if cost <= best.0 {
            best = (cost, width);
        } else if width > best.1 + 8 {
            break;
        }
    }
    let whole = bytes(longest);
    if whole <= best.0 { longest } else { best.1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_long_row_moves_into_the_tail_and_equal_ones_do_not() {
        let mut lengths = [5; 128];
        lengths[7] = 80;
        let layout = HybLayout::new(&lengths, 8);
        assert_eq!((layout.widths, layout.tails), (vec![5, 5], vec![75, 0]));
    }
}
