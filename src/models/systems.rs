//! Built-in systems A x = b.

use super::Parameters;
use crate::Result;
use crate::numerics::philox::philox;
use crate::parallel::*;
use crate::sparse::CsrMatrix;
use crate::util::memory::expect_memory;
use crate::walk::splitting::MOST_UNKNOWNS;

/// A built-in system.
#[derive(Debug, Clone)]
pub struct System {
    /// Normalised specification, such as `poisson2d:316,0.9`.
    pub name: String,
    /// Square matrix A.
    pub matrix: CsrMatrix,
    /// Right-hand side b: uniform in (0, 1) times the diagonal.
    pub rhs: Vec<f64>,
}

/// Names and parameters of the built-in systems, for help and messages.
pub const SYSTEMS: &str =
    "poisson2d:SIDE,RHO, poisson3d:SIDE,RHO and random-dominant:N,PER_ROW,RHO,positive or …,signed";

/// Returns the built-in system with the specification `spec`.
///
/// Random numbers depend on `seed`. Returns `None` if `spec` does not begin with one of the names
/// and a colon.
///
/// # Errors
/// [`Invalid`](crate::Error::Invalid) for invalid parameters,
/// [`OutOfMemory`](crate::Error::OutOfMemory) for a system that does not fit into memory.
///
/// ```
/// let system = kolmo::models::system("poisson2d:3,0.9", 0).unwrap()?;
/// assert_eq!(system.matrix.rows(), 9);
/// let (columns, values) = system.matrix.row(4);
/// assert_eq!(columns, [1, 3, 4, 5, 7]);
/// assert_eq!(values, [-1.0, -1.0, 4.0 / 0.9, -1.0, -1.0]);
/// # Ok::<(), kolmo::Error>(())
/// ```
pub fn system(spec: &str, seed: u64) -> Option<Result<System>> {
    let examples = ["poisson2d:316,0.9", "poisson3d:100,0.9", "random-dominant:100000,10,0.8,positive"];
    let parameters = Parameters::of(spec, &examples)?;
    Some(match parameters.name {
        "poisson2d" => poisson(&parameters, 2, seed),
        "poisson3d" => poisson(&parameters, 3, seed),
        _ => random_dominant(&parameters, seed),
    })
}

/// Builds a grid's matrix of side^d points: diagonal 2d/ρ (ρ = RHO ≤ 1), −1 per neighbour.
fn poisson(parameters: &Parameters<'_>, dimensions: u32, seed: u64) -> Result<System> {
    parameters.expect(&["SIDE", "RHO"])?;
    let most = (MOST_UNKNOWNS as f64).powf(1.0 / f64::from(dimensions)) as u64;
    let side = parameters.whole(0, "SIDE (points along an edge)", most)? as usize;
    let rho = parameters.share(1, true)?;
    let n = side.pow(dimensions);
    let per_row = 2 * dimensions as usize;
    room(parameters, n, per_row + 1)?;
    let diagonal = per_row as f64 / rho;
    let matrix = CsrMatrix::from_rows(n, n, |i, row| {
        let strides = (0..dimensions).map(|d| side.pow(d));
        for stride in strides.clone().rev() {
            if i / stride % side > 0 {
                row.push(((i - stride) as u32, -1.0));
            }
        }
        row.push((i as u32, diagonal));
        for stride in strides {
            if i / stride % side + 1 < side {
                row.push(((i + stride) as u32, -1.0));
            }
        }
    });
    let rhs = (0..n).map(|i| diagonal * uniform(seed, i)).collect();
    Ok(System { name: format!("poisson{dimensions}d:{side},{rho}"), matrix, rhs })
}

/// Builds N rows of PER_ROW entries in random columns, with a dominant diagonal.
///
/// Absolute values are uniform in (0.1, 1); the diagonal is their sum divided by ρ = RHO < 1.
fn random_dominant(parameters: &Parameters<'_>, seed: u64) -> Result<System> {
    parameters.expect(&["N", "PER_ROW", "RHO", "positive|signed"])?;
    let n = parameters.whole(0, "N (number of unknowns)", MOST_UNKNOWNS as u64)? as usize;
    let most = (n as u64 - 1).clamp(1, 1 << 16);
    let per_row = parameters.whole(1, "PER_ROW (entries of a row off the diagonal)", most)? as usize;
    let rho = parameters.share(2, false)?;
    let signed = match parameters.values[3] {
        "positive" => false,
        "signed" => true,
        _ => return Err(parameters.refuse("the fourth parameter", "positive or signed")),
    };
    if n < 2 {
        return Err(parameters.refuse("N (number of unknowns)", "2 or more"));
    }
    room(parameters, n, per_row + 1)?;
    let matrix = CsrMatrix::from_rows(n, n, |i, row| {
        let (mut words, mut count) = ([0; 4], 0);
        let mut next = || {
            let place = count % words.len();
            if place == 0 {
                words = philox([i as u32, (count / words.len()) as u32, 0, MATRIX], key(seed));
            }
            count += 1;
            words[place]
        };
        row.push((i as u32, 0.0));
        while row.len() <= per_row {
            // A column other than i, uniformly: the upper half of a product.
            let column = ((u64::from(next()) * (n as u64 - 1)) >> 32) as u32;
            let column = column + u32::from(column as usize >= i);
            let size = 0.1 + 0.9 * fraction(next());
            if let Err(place) = row.binary_search_by_key(&column, |e| e.0) {
                // L = −A off the diagonal: positive without signs.
                let negative = !signed || next() >> 31 == 1;
                row.insert(place, (column, if negative { -size } else { size }));
            }
        }
        let sum: f64 = row.iter().map(|e| e.1.abs()).sum();
        let own = row.partition_point(|e| (e.0 as usize) < i);
        row[own].1 = sum / rho;
    });
    let diagonal = |i: usize| {
        let (columns, values) = matrix.row(i);
        values[columns.partition_point(|&j| (j as usize) < i)]
    };
    let rhs = (0..n).into_par_iter().map(|i| diagonal(i) * uniform(seed, i)).collect();
    let kind = if signed { "signed" } else { "positive" };
    Ok(System { name: format!("random-dominant:{n},{per_row},{rho},{kind}"), matrix, rhs })
}

/// Last word of Philox's counter, which separates random numbers of matrices from all others.
const MATRIX: u32 = 1;
const RHS: u32 = 2;

pub(super) fn key(seed: u64) -> [u32; 2] {
    // Differs from the key of the walks' streams for this seed.
    [seed as u32 ^ 0x6b6f_6c6d, (seed >> 32) as u32 ^ 0x6f73_7973]
}

/// Converts a random word to a number in (0, 1).
fn fraction(word: u32) -> f64 {
    (f64::from(word) + 0.5) / 4_294_967_296.0
}

fn uniform(seed: u64, i: usize) -> f64 {
    fraction(philox([(i >> 2) as u32, 0, 0, RHS], key(seed))[i & 3])
}

/// Checks that the system fits into memory: 12 bytes per entry, twice during construction.
fn room(parameters: &Parameters<'_>, n: usize, per_row: usize) -> Result<()> {
    expect_memory(n as u64 * (16 + 24 * per_row as u64), || format!("the system {}", parameters.spec))
}

impl Parameters<'_> {
    /// Parses a number in (0, 1), or in (0, 1] with `closed`.
    fn share(&self, place: usize, closed: bool) -> Result<f64> {
        match self.values[place].parse::<f64>() {
            Ok(rho) if rho > 0.0 && (rho < 1.0 || (closed && rho == 1.0)) => Ok(rho),
            _ => {
                let range = if closed { "above 0 and at most 1" } else { "above 0 and below 1" };
                Err(self.refuse("RHO (row sums of |L|)", range))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_have_their_neighbours_and_row_sums() {
        let three = system("poisson3d:4,0.5", 0).unwrap().unwrap();
        assert_eq!((three.matrix.rows(), three.matrix.nnz()), (64, 64 + 2 * 3 * 48));
        // Point (1, 1, 1) is number 21.
        let (columns, values) = three.matrix.row(21);
        assert_eq!(columns, [5, 17, 20, 21, 22, 25, 37]);
        assert_eq!(values, [-1.0, -1.0, -1.0, 12.0, -1.0, -1.0, -1.0]);
        assert!(three.rhs.iter().all(|&b| b > 0.0 && b < 12.0));
    }

    #[test]
    fn random_systems_have_distinct_columns_and_exact_dominance() {
        for (kind, seed) in [("positive", 0), ("signed", 7)] {
            let s = system(&format!("random-dominant:500,12,0.8,{kind}"), seed).unwrap().unwrap();
            let mut plus = 0;
            for i in 0..500 {
                let (columns, values) = s.matrix.row(i);
                assert_eq!(columns.len(), 13);
                assert!(columns.windows(2).all(|w| w[0] < w[1]));
                let own = columns.iter().position(|&j| j as usize == i).expect("a diagonal entry");
                let off: f64 = values.iter().map(|v| v.abs()).sum::<f64>() - values[own];
                approx::assert_abs_diff_eq!(off / values[own], 0.8, epsilon = 1e-14);
                assert!(s.rhs[i] > 0.0 && s.rhs[i] < values[own]);
                plus += values.iter().filter(|v| **v > 0.0).count() - 1;
            }
            assert_eq!(plus > 0, kind == "signed", "{plus} positive entries off the diagonal");
            let again = system(&format!("random-dominant:500,12,0.8,{kind}"), seed).unwrap().unwrap();
            assert!(again.matrix == s.matrix && again.rhs == s.rhs);
            let other = system(&format!("random-dominant:500,12,0.8,{kind}"), seed + 1).unwrap().unwrap();
            assert!(other.matrix != s.matrix && other.rhs != s.rhs);
        }
    }
}
