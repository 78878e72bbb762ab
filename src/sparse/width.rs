//! Number of a row's entries in the ELL part.

use std::fmt;
use std::str::FromStr;

use super::SLICE;
use crate::parallel::*;
use crate::util::quantity::count;
use crate::{Error, Invalid, Result};

/// Rule for the ELL width.
///
/// All rules except `Auto` choose one width for the matrix. A slice with shorter rows only gets the
/// width of its longest row: this moves no entry, and saves padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WidthRule {
    /// Width of each slice that moves the fewest bytes.
    ///
    /// An entry of the COO part counts twice, because its row's thread fetches it alone. A row with
    /// a COO part counts four entries more for the mispredicted branch.
    #[default]
    Auto,
    /// Rule of CUSP: smallest width exceeded by fewer than n/3 of n rows, or fewer than 4096.
    ///
    /// (N. Bell, M. Garland, NVIDIA Technical Report NVR-2008-004, 2008.)
    Cusp,
    /// Mean row length, rounded up.
    Mean,
    /// Length of the longest row: no COO part.
    Max,
    /// Fixed width.
    Fixed(u32),
}

impl FromStr for WidthRule {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        Ok(match s {
            "auto" => Self::Auto,
            "cusp" => Self::Cusp,
            "mean" => Self::Mean,
            "max" => Self::Max,
            n => Self::Fixed(count(n).ok_or_else(|| {
                Invalid::Argument("ell_width").error(format!(
                    "invalid ELL width '{n}': expected auto, cusp, mean, max or a number of entries"
                ))
            })?),
        })
    }
}

impl fmt::Display for WidthRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cusp => f.write_str("cusp"),
            Self::Mean => f.write_str("mean"),
            Self::Max => f.write_str("max"),
            Self::Fixed(n) => write!(f, "{n}"),
        }
    }
}

impl WidthRule {
    /// Returns the width of a matrix with `rows_of[k]` rows of length k; `None` for `Auto`.
    fn uniform(self, rows_of: &[u64]) -> Option<u32> {
        let rows: u64 = rows_of.iter().sum();
        let longest = rows_of.iter().rposition(|&rows| rows > 0).unwrap_or(0) as u32;
        Some(match self {
            Self::Auto => return None,
            Self::Fixed(width) => width,
            Self::Max => longest,
            Self::Mean => {
                let entries: u64 = (0u64..).zip(rows_of).map(|(length, rows)| length * rows).sum();
                entries.div_ceil(rows.max(1)) as u32
            }
            Self::Cusp => {
                let mut longer = rows;
                (0u32..)
                    .zip(rows_of)
                    .find(|&(_, here)| {
                        longer -= here;
                        3 * longer < rows || longer < 4096
                    })
                    .map_or(0, |(width, _)| width)
            }
        })
    }

    /// Returns a rule with the width that this rule chooses for the rows of several matrices.
    ///
    /// `gather` takes the number of rows of each length in this matrix, and returns the numbers of
    /// all matrices.
    pub(crate) fn over(self, lengths: &[u32], gather: impl FnOnce(&[u64]) -> Vec<Vec<u64>>) -> Self {
        if self == Self::Auto {
            return self;
        }
        let mut all: Vec<u64> = Vec::new();
        for counts in gather(&rows_of(lengths)) {
            all.resize(all.len().max(counts.len()), 0);
            all.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        self.uniform(&all).map_or(self, Self::Fixed)
    }
}

fn rows_of(lengths: &[u32]) -> Vec<u64> {
    let longest = lengths.par_iter().map(|&length| length).reduce(|| 0, u32::max);
    let mut rows = vec![0; longest as usize + 1];
    for &length in lengths {
        rows[length as usize] += 1;
    }
    rows
}

/// Layout of a matrix: the ELL width and the number of COO entries of each slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// ELL width of each slice.
    pub widths: Vec<u32>,
    /// Number of COO entries of each slice.
    pub tails: Vec<u32>,
}

impl Layout {
    /// Lays out rows of these lengths; `value_bytes` is the size of one value.
    pub fn new(lengths: &[u32], rule: WidthRule, value_bytes: u64) -> Self {
        let uniform = if rule == WidthRule::Auto { None } else { rule.uniform(&rows_of(lengths)) };
        let slices: Vec<(u32, u32)> = lengths
            .par_chunks(SLICE)
            .map(|slice| {
                let longest = slice.iter().copied().max().unwrap_or(0);
                let width = uniform.map_or_else(|| fewest_bytes(slice, value_bytes), |w| w.min(longest));
                (width, tail(slice, width))
            })
            .collect();
        let widths = slices.par_iter().map(|&(width, _)| width).collect();
        Self { widths, tails: slices.par_iter().map(|&(_, tail)| tail).collect() }
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
    fn auto_moves_one_long_row_into_the_tail_and_no_equal_ones() {
        let mut lengths = [5; 128];
        lengths[7] = 80;
        let layout = Layout::new(&lengths, WidthRule::Auto, 8);
        assert_eq!((layout.widths, layout.tails), (vec![5, 5], vec![75, 0]));
    }

    #[test]
    fn cusp_takes_the_width_that_fewer_than_a_third_of_the_rows_exceed() {
        // 30 000 rows of each of the lengths 2, 4, 6, 8: widths 2 and 4 are exceeded by 3/4 and
        // 1/2, 6 by 1/4.
        let lengths: Vec<u32> = (0..120_000).map(|i| 2 * (i % 4) + 2).collect();

        assert_eq!(WidthRule::Cusp.uniform(&rows_of(&lengths)), Some(6));
        assert_eq!(WidthRule::Mean.uniform(&rows_of(&lengths)), Some(5));
        assert_eq!(WidthRule::Max.uniform(&rows_of(&lengths)), Some(8));
    }

    #[test]
    fn names_of_rules_are_read_back() {
        for rule in [WidthRule::Auto, WidthRule::Cusp, WidthRule::Mean, WidthRule::Max, WidthRule::Fixed(7)] {
            assert_eq!(rule.to_string().parse::<WidthRule>().unwrap(), rule);
        }
        assert!("wide".parse::<WidthRule>().is_err());
    }
}
