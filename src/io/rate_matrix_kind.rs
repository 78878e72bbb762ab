//! Classification of a chain's matrix as rates R or generator Q = R − diag(R·1).

use super::*;
use crate::sparse::csr::EntryPieces;

/// Tolerance of a generator's row sum, relative to its diagonal entry: files with six digits.
const GENERATOR_TOLERANCE: f64 = 1e-5;

/// Tolerance of row sums of 1; tables of probabilities may be printed with four digits.
const STOCHASTIC_TOLERANCE: f64 = 1e-3;

/// Largest entry accepted as a probability, which may be rounded to six digits.
const LARGEST_PROBABILITY: f64 = 1.0 + 1e-5;

/// Reads the chain of a matrix file, see [`chain`]; duplicate entries are not yet added.
/// Fails like [`read_matrix`] and [`chain`].
pub fn read_chain(path: &Path) -> Result<ChainFile> {
    let (matrix, notes) = system::entries(path)?;
    let mut chain = chain(path, matrix)?;
    chain.warnings.splice(0..0, notes);
    Ok(chain)
}

/// Reads `matrix` as a chain; entry (i, j) is the rate from state i to state j.
///
/// A negative diagonal entry makes it a generator: its off-diagonal entries are the rates, and each
/// row has to sum to 0 within 1e-5 of its diagonal entry. Otherwise every entry is a rate,
/// self-loops included. A matrix with all row sums equal to 1 gets a warning.
///
/// # Errors
/// [`Error::File`] with `path` for a matrix that is not square, is empty or has too many rows. Also
/// for an off-diagonal entry that is negative, for an entry that is not finite, and for row sums of
/// a generator that are not zero.
pub fn chain(path: &Path, matrix: Coo) -> Result<ChainFile> {
    let Coo { rows, columns, row, column, value } = matrix;
    let entries = |piece: usize| {
        let piece = piece * PIECE..row.len().min((piece + 1) * PIECE);
        piece.map(|entry| (row[entry], column[entry], value[entry]))
    };
    let content = content(rows, columns, (row.len().div_ceil(PIECE), entries));
    let content = content.map_err(|reason| Error::file(path, reason))?;
    let warnings = if content == Content::Stochastic { vec![looks_stochastic(path)] } else { Vec::new() };
    let mut transitions = TransitionList { from: row, to: column, rate: value };
    if content == Content::Generator {
        transitions.drop_still();
    }
    Ok(ChainFile { states: rows, transitions, warnings, ..ChainFile::default() })
}

/// Kind of a chain's matrix: rates, probabilities or a generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Rates R.
    Rates,
    /// Rates that sum to 1 in every row, as the probabilities of a discrete-time chain do.
    Stochastic,
    /// Generator Q.
    Generator,
}

/// Number of entries that a thread reads at once.
const PIECE: usize = 1 << 14;

/// Classifies a chain's matrix by the rules of [`chain`].
///
/// `entries` returns each of `pieces` parts of the entries, and may be called several times; the
/// order of entries is arbitrary. The error is the reason why it is not a chain's matrix, as in
/// [`chain`].
pub fn content<E: Iterator<Item = (u32, u32, f64)>>(
    rows: usize,
    columns: usize,
    (pieces, entries): (usize, impl Fn(usize) -> E + Sync),
) -> Result<Content, String> {
    if rows != columns {
        return Err(format!("{rows} rows and {columns} columns: expected a square matrix"));
    }
    if rows == 0 {
        return Err("0 rows: expected at least one state".into());
    }
    if rows as u64 > MOST_STATES {
        return Err(format!("number of states {rows} is out of range: expected at most {MOST_STATES}"));
    }
    let (mut generator, mut count, mut total, mut largest) = (false, 0, 0.0, 0.0f64);
    let found: Vec<_> = (0..pieces).into_par_iter().map(|piece| Extent::of(rows, entries(piece))).collect();
    for extent in found {
        let extent = extent?;
        generator |= extent.negative;
        count += extent.count;
        total += extent.total;
        largest = largest.max(extent.largest);
    }
    let stochastic = may_be_stochastic(rows, total) && largest <= LARGEST_PROBABILITY;
    if !generator && !stochastic {
        return Ok(Content::Rates);
    }
    let sums = MatrixSums::of(rows, count, (pieces, &entries));
    if generator {
        check_generator(&sums, (0..pieces).flat_map(entries)).map(|()| Content::Generator)
    } else if rows > 1 && sums.row.len() == rows && sums.row.iter().all(|&[sum, _]| is_one(sum)) {
        Ok(Content::Stochastic)
    } else {
        Ok(Content::Rates)
    }
}

/// Number, signs, sum and largest value of some entries of a chain's matrix.
struct Extent {
    /// True if an entry is negative.
    negative: bool,
    count: usize,
    total: f64,
    largest: f64,
}

impl Extent {
    fn of(states: usize, entries: impl Iterator<Item = (u32, u32, f64)>) -> Result<Self, String> {
        let mut extent = Self { negative: false, count: 0, total: 0.0, largest: 0.0 };
        for (i, j, x) in entries {
            if i.max(j) as usize >= states {
                return Err(format!("entry ({i}, {j}), counted from 0: expected indices below {states}"));
            }
            if !x.is_finite() {
                return Err(format!("entry ({i}, {j}), counted from 0, is {x}: expected a finite rate"));
            }
            if x < 0.0 && i != j {
                return Err(format!(
                    "entry ({i}, {j}), counted from 0, is {x}: expected a rate ≥ 0; set it to 0 if \
                     it is a rounding error, or change the sign of a matrix −Q"
                ));
            }
            extent.negative |= x < 0.0;
            extent.count += 1;
            extent.total += x;
            extent.largest = extent.largest.max(x);
        }
        Ok(extent)
    }
}

/// Row sums and diagonal of a matrix.
///
/// If there are few entries, only states with entries in their row or column are stored: a file's
/// header must not decide how much memory is allocated.
struct MatrixSums {
    /// State of each element of `row`, ascending; `None` if all states are stored.
    states: Option<Vec<u32>>,
    /// Sum of each row, and its diagonal entry.
    row: Vec<[f64; 2]>,
}

impl MatrixSums {
    /// Computes row sums and diagonal from `count` entries in pieces.
    fn of<E: Iterator<Item = (u32, u32, f64)>>(
        rows: usize,
        count: usize,
        (pieces, entries): (usize, impl Fn(usize) -> E + Sync),
    ) -> Self {
        let states = (rows / 8 > count).then(|| {
            let mut states: Vec<u32> = (0..pieces).flat_map(&entries).flat_map(|(i, j, _)| [i, j]).collect();
            states.sort_unstable();
            states.dedup();
            states
        });
        let len = states.as_ref().map_or(rows, Vec::len);
        let mut sums = Self { states, row: Vec::new() };
        let placed = |piece| entries(piece).map(|(i, j, x)| (sums.position(i) as u32, i == j, x));
        let mut row = vec![[0.0; 2]; len];
        EntryPieces::new(len, pieces, placed).add_to(&mut row, |[sum, diagonal], is_diagonal, x| {
            *sum += x;
            *diagonal += if is_diagonal { x } else { 0.0 };
        });
        sums.row = row;
        sums
    }

    fn position(&self, state: u32) -> usize {
        match &self.states {
            None => state as usize,
            Some(states) => states.binary_search(&state).expect("every entry's row and column is listed"),
        }
    }

    fn state(&self, position: usize) -> usize {
        self.states.as_ref().map_or(position, |states| states[position] as usize)
    }

    /// True if a sum is not zero relative to the diagonal entry at a position.
    fn is_nonzero(&self, sum: f64, k: usize) -> bool {
        sum.abs() > GENERATOR_TOLERANCE * self.row[k][1].abs()
    }
}

/// Returns the warning about a matrix that may belong to a discrete-time chain.
pub(crate) fn looks_stochastic(path: &Path) -> String {
    format!(
        "{}: the rates of every state sum to 1: is this a discrete-time chain (a DTMC)? Its entries are read as rates; \
         `discrete` reads them as probabilities of a step",
        path.display()
    )
}

fn check_generator(sums: &MatrixSums, entries: impl Iterator<Item = (u32, u32, f64)>) -> Result<(), String> {
    let Some(k) = (0..sums.row.len()).find(|&k| sums.is_nonzero(sums.row[k][0], k)) else {
        return Ok(());
    };
    let (state, [sum, diagonal]) = (sums.state(k), sums.row[k]);
    let mut columns = vec![0.0; sums.row.len()];
    entries.for_each(|(_, j, x)| columns[sums.position(j)] += x);
    Err(if (0..columns.len()).all(|k| !sums.is_nonzero(columns[k], k)) {
        format!(
            "the matrix looks transposed: its columns sum to 0, its rows do not (row {state}, counted from 0, sums to {sum:e}); write the transpose"
        )
    } else {
        format!(
            "row {state}, counted from 0, sums to {sum:e} with the diagonal entry {diagonal:e}; \
             a matrix with a negative diagonal is a generator, whose rows sum to 0 within 1e-5 of the diagonal entry; leave the diagonal out to give the rates alone"
        )
    })
}

/// True if the rates may be probabilities: at least two states, rates ≤ 1, row sums near 1.
pub(crate) fn is_stochastic(states: usize, list: &TransitionList) -> bool {
    // Requires n ≤ number of transitions: a file's header must not decide how much memory is
    // allocated.
    if states < 2 || states > list.rate.len() {
        return false;
    }
    let parts: Vec<f64> = list.rate.par_chunks(1 << 12).map(|rates| rates.iter().sum::<f64>()).collect();
    if !may_be_stochastic(states, parts.iter().sum())
        || list.rate.iter().any(|&rate| rate > LARGEST_PROBABILITY)
    {
        return false;
    }
    let mut sums = vec![0.0; states];
    list.from.iter().zip(&list.rate).for_each(|(&from, rate)| sums[from as usize] += rate);
    sums.iter().all(|&sum| is_one(sum))
}

/// True if the sum of all rates is consistent with row sums of 1.
pub(crate) fn may_be_stochastic(states: usize, sum: f64) -> bool {
    is_one(sum / states as f64)
}

fn is_one(sum: f64) -> bool {
    (sum - 1.0).abs() <= STOCHASTIC_TOLERANCE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(n: usize, entries: &[(u32, u32, f64)]) -> Result<ChainFile> {
        let (row, column, value) = entries.iter().copied().collect();
        chain(Path::new("chain"), Coo { rows: n, columns: n, row, column, value })
    }

    fn reason(n: usize, entries: &[(u32, u32, f64)]) -> String {
        read(n, entries).unwrap_err().to_string()
    }

    #[test]
    fn rates_keep_self_loops() {
        let chain = read(2, &[(0, 1, 2.0), (1, 1, 3.0)]).unwrap();
        assert_eq!(chain.states, 2);
        assert_eq!(chain.transitions.rate, [2.0, 3.0]);
        assert!(chain.warnings.is_empty());
    }

    #[test]
    fn a_generator_loses_its_diagonal() {
        let chain = read(3, &[(0, 0, -2.0), (0, 1, 1.99999), (1, 0, 3.0), (1, 1, -3.0)]).unwrap();
        assert_eq!((&chain.transitions.from[..], &chain.transitions.to[..]), (&[0, 1][..], &[1, 0][..]));
        assert_eq!(chain.transitions.rate, [1.99999, 3.0]);
    }

    #[test]
    fn stochastic_matrices_get_a_warning() {
        let printed =
            [(0, 0, 0.9543), (0, 1, 0.0455), (1, 0, 0.0091), (1, 1, 0.9042), (1, 2, 0.0868), (2, 2, 1.0)];
        for (states, entries, warns) in [
            (3, &printed[..], true),
            (2, &[(0, 0, 0.5), (0, 1, 0.5), (1, 0, 1.0)], true),
            (3, &[(0, 1, 0.333333), (0, 2, 0.666666), (1, 0, 1.0), (2, 0, 1.0)], true),
            // Rates above 1.
            (3, &[(0, 1, 1.0005), (1, 2, 1.0005), (2, 0, 1.0005)], false),
            // A DTMC has no state without transitions.
            (2, &[(0, 1, 1.0)], false),
            (1, &[(0, 0, 1.0)], false),
        ] {
            let warnings = read(states, entries).unwrap().warnings;
            assert_eq!(warnings.len(), usize::from(warns), "{entries:?}: {warnings:?}");
            assert!(warnings.iter().all(|warning| warning.contains("discrete-time chain")), "{warnings:?}");
        }
    }

    #[test]
    fn matrices_that_are_not_of_a_chain_are_named() {
        for (states, entries, words) in [
            (2, &[(1, 0, f64::NAN)][..], "(1, 0)"),
            (2, &[(1, 1, f64::INFINITY)], "inf"),
            (u32::MAX as usize, &[], "4294967294"),
        ] {
            let reason = reason(states, entries);
            assert!(reason.contains(words), "{words}: {reason}");
        }
    }

    #[test]
    fn the_first_invalid_entry_of_many_pieces_is_named() {
        assert!(
            reason(2, &[(0, 1, 1.0), (1, 2, 1.0)])
                .contains("(1, 2), counted from 0: expected indices below 2")
        );
        let n = 3 * PIECE;
        let mut entries: Vec<_> = (0..n as u32).map(|i| (i, (i + 1) % n as u32, 0.5)).collect();
        assert!(read(n, &entries).unwrap().warnings.is_empty());
        (entries[n - 1].2, entries[PIECE + 7].2) = (f64::NAN, -1.0);

        assert!(reason(n, &entries).contains(&format!("({}, {})", PIECE + 7, PIECE + 8)));
        (entries[n - 1].2, entries[PIECE + 7].2) = (0.5, 0.5);
        // The last row of a generator does not sum to 0.
        entries.extend((0..n as u32 - 1).map(|i| (i, i, -0.5)));
        entries.push((n as u32 - 1, n as u32 - 1, -0.6));
        assert!(reason(n, &entries).contains(&format!("row {}", n - 1)));
    }

    #[test]
    fn many_states_with_few_entries_take_little_memory() {
        let n = MOST_STATES as usize;
        let last = (n - 1) as u32;
        assert_eq!(read(n, &[(last, last, -1.0), (last, 0, 1.0)]).unwrap().states, n);
        assert!(reason(n, &[(last, last, -1.0), (last, 0, 2.0)]).contains(&format!("row {last}")));
    }
}
