//! Proof that walks converge: bounds of spectral radii, each with the vector that proves it.
//!
//! For a positive vector v and a matrix M without negative entries, min_i (Mv)_i/v_i ≤ ρ(M) ≤ max_i
//! (Mv)_i/v_i (Collatz 1942, Wielandt 1950, doi:10.1007/BF02230720). With M = |L| and V = diag(v)
//! the upper bound is ‖V⁻¹LV‖∞. A vector that proves convergence is thus a scaling that makes every
//! row sum of |L| smaller than 1.

use crate::lane::Lane;
use crate::parallel::*;
use crate::sparse::RowSource;
use crate::walk::bicgstab::solver::{Bicgstab, ProgressFn};
use crate::walk::options::Splitting;
use crate::walk::splitting::{ROWS, Split, up};
use crate::{Error, Result};

/// Largest number of products with |L| of a solve: `SOLVE_PRODUCTS` + `EDGES` · √n.
///
/// √n is the edge of a square grid. A product carries information from the boundary one point
/// further.
const SOLVE_PRODUCTS: usize = 600;
const EDGES: usize = 2;
/// Products per row in a solve with a small matrix: a chain of n rows needs `CHAIN` · n.
///
/// The products read at most `MOST_ENTRIES` entries in all, which takes about a second.
const CHAIN: usize = 4;
const MOST_ENTRIES: usize = 1 << 28;
/// Largest number of inverse iterations, each a solve with I − |L| by BiCGSTAB.
///
/// The vector of each proves a sharper upper bound of the spectral radius ρ(|L|).
const SOLVES: usize = 3;
/// Number of products of the shifted power iteration.
const POWERS: usize = 64;

/// Certificate of convergence of walks.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// Splitting of the system, with `Auto` resolved.
    pub splitting: Splitting,
    /// Maximum row sum ‖L‖∞ of |L|, without scaling.
    pub row_norm: f64,
    /// Row with the largest sum of |l_ij|.
    pub worst_row: usize,
    /// Vector v with |L| v ≤ `norm` · v; `None` if all its entries are 1.
    pub vector: Option<Vec<f64>>,
    /// True if walks run on the scaled matrix V⁻¹LV with V = diag(v).
    pub scaled: bool,
    /// Norm max_i (|L|v)_i / v_i of L with the vector v, rounded up and below 1.
    pub norm: f64,
    /// Number of products with |L| spent on the vector.
    pub products: usize,
}

impl Certificate {
    /// Creates a certificate without vector, for the norm ‖L‖∞ of a row.
    pub(crate) fn of_norm(splitting: Splitting, norm: f64, worst_row: usize) -> Self {
        Self { splitting, row_norm: norm, worst_row, vector: None, scaled: false, norm, products: 0 }
    }

    /// Returns entry v_i of the vector v that proves convergence.
    #[inline]
    pub fn scale(&self, i: usize) -> f64 {
        self.vector.as_ref().map_or(1.0, |v| v[i])
    }

    /// Returns entry v_i of the certificate's vector if walks run on the scaled system, else 1.
    #[inline]
    pub fn walk_scale(&self, i: usize) -> f64 {
        if self.scaled { self.scale(i) } else { 1.0 }
    }

    /// Returns g_i / v_i (v: certificate's vector) if walks run on the scaled system, else g_i.
    #[inline(always)]
    pub fn on_walks(&self, i: usize, g: f64) -> f64 {
        if self.scaled { g / self.scale(i) } else { g }
    }

    /// Returns the norm max_i |g_i| / v_i with the certificate's vector v.
    pub fn scaled_norm(&self, g: &[f64]) -> f64 {
        g.par_iter()
            .enumerate()
            .with_min_len(ROWS)
            .map(|(i, g)| g.abs() / self.scale(i))
            .reduce(|| 0.0, f64::max)
    }
}

/// Bounds of a spectral radius.
#[derive(Debug, Clone)]
pub struct Bounds {
    /// Vector that proves the upper bound, at most 1 in each entry.
    pub vector: Vec<f64>,
    /// Lower bound of the spectral radius.
    pub lower: f64,
    /// Upper bound of the spectral radius.
    pub upper: f64,
    /// Number of matrix–vector products spent on the bounds.
    pub products: usize,
}

/// Decides on which system walks run, and proves that they converge.
///
/// BiCGSTAB runs on `lane`, and its result is proved on the host. Fails with [`Error::Divergent`],
/// the worst row, the bounds and a suggestion. `progress` must not return `false`.
pub fn certify(
    split: &Split<'_>,
    wanted: Splitting,
    lane: &Lane,
    progress: ProgressFn<'_>,
) -> Result<Certificate> {
    let n = split.unknowns();
    let (worst_row, row_norm) = split.statistics.worst;
    let auto = wanted == Splitting::Auto;
    let splitting = match (auto, row_norm < 1.0) {
        (true, true) => Splitting::Jacobi,
        (true, false) => Splitting::ScaledJacobi,
        (false, _) => wanted,
    };
    let scaled = splitting == Splitting::ScaledJacobi;
    let plain = Certificate { scaled, ..Certificate::of_norm(splitting, row_norm, worst_row) };
    if row_norm < 1.0 && !scaled {
        return Ok(plain);
    }
    let refuse = |what, matrix, bounds: &Bounds, and, remedy: &str| Error::Divergent {
        what,
        row: worst_row,
        sum: row_norm,
        matrix,
        lower: bounds.lower,
        upper: bounds.upper,
        and,
        remedy: remedy.to_owned(),
    };
    let row = |i: usize, row: &mut Vec<(u32, f64)>| row.extend(split.row(i).map(|(j, l)| (j, l.abs())));
    let product = |first: usize, v: &[f64], out: &mut [f64]| split.absolute(first, v, out);
    let bounds = bounds((lane, n, &row), product, |i| split.entries(i) + 3, progress)?;
    if bounds.upper >= 1.0 && bounds.lower >= 1.0 {
        let remedy = match splitting {
            Splitting::Given => "give a matrix L that is smaller",
            _ if bounds.lower <= 1.0 + NO_LOSS => NO_ABSORPTION,
            _ => "precondition or reorder the system so that its diagonal dominates, or solve it as a whole",
        };
        return Err(refuse("random walks would diverge", "|L|", &bounds, "", remedy));
    }
    if bounds.upper >= 1.0 {
        let remedy = match bounds.lower >= 1.0 - NO_LOSS {
            true => NO_ABSORPTION,
            false => "precondition the system, or solve it as a whole",
        };
        return Err(refuse("the convergence of random walks is not proved", "|L|", &bounds, "", remedy));
    }
    let mut products = bounds.products;
    // The second moments have the entries |l_ij| times the sum of row i. Their spectral radius is
    // at most the largest row sum times that of |L|.
    let variance = row_norm * bounds.upper * (1.0 + 2.0 * f64::EPSILON);
    if !scaled && row_norm > 1.0 && variance >= 1.0 {
        let square = second_moments(split, lane, progress)?;
        products += square.products;
        let remedy = match splitting {
            Splitting::Jacobi => "use `splitting` scaled-jacobi, whose walks have a finite variance",
            _ => "scale the unknowns so that each row sum is below 1, or use `splitting` scaled-jacobi",
        };
        let refuse = |what| Err(refuse(what, "the second moments", &square, ", and walks converge", remedy));
        if square.upper >= 1.0 {
            return refuse(match square.lower >= 1.0 {
                true => "the variance of random walks would be infinite",
                false => "a finite variance of random walks is not proved",
            });
        }
    }
    Ok(Certificate { vector: Some(bounds.vector), norm: bounds.upper, products, ..plain })
}

/// Maximum distance of the bounds from 1 by rounding, for a matrix with row sums of 1.
const NO_LOSS: f64 = 1e-9;
const NO_ABSORPTION: &str = "walks never end where nothing is lost, as for effective conductances (a Laplacian) or absorption \
                            without mortality: fix a node's value, leave out absorbing states, or solve the whole system, by \
                            conjugate gradients where it is symmetric";

/// Bounds the spectral radius for second moments of walks: entries |l_ij| times row sum i.
fn second_moments(split: &Split<'_>, lane: &Lane, progress: ProgressFn<'_>) -> Result<Bounds> {
    let sum = |i: usize| up(split.row_sum(i), split.entries(i) + 3);
    let row = |i: usize, row: &mut Vec<(u32, f64)>| {
        let sum = sum(i);
        row.extend(split.row(i).map(|(j, l)| (j, l.abs() * sum)));
    };
    let product = |first: usize, v: &[f64], out: &mut [f64]| {
        split.absolute(first, v, out);
        (first..).zip(out).for_each(|(i, y)| *y *= sum(i));
    };
    bounds((lane, split.unknowns(), &row), product, |i| split.entries(i) + 5, progress)
}

/// Bounds the spectral radius of a matrix without negative entries.
///
/// `row` returns its n rows, for BiCGSTAB on the lane. `product` computes rows of its product with
/// a vector, from a first row on, for the proof. `terms` is the number of operations per row of the
/// product.
fn bounds(
    (lane, n, row): (&Lane, usize, RowSource<'_, f64>),
    product: impl Fn(usize, &[f64], &mut [f64]) + Sync,
    terms: impl Fn(usize) -> usize + Sync,
    progress: ProgressFn<'_>,
) -> Result<Bounds> {
    let mut best = Bounds { vector: vec![1.0; n], lower: 0.0, upper: f64::INFINITY, products: 0 };
    let mut products = 0;
    let mut image = vec![0.0; n];
    let whole = |v: &[f64], image: &mut [f64]| {
        image.par_chunks_mut(ROWS).enumerate().for_each(|(k, image)| product(k * ROWS, v, image));
    };
    let ratios = |v: &[f64], image: &mut [f64]| {
        whole(v, image);
        let ratio = |i: usize| up(image[i] / v[i], terms(i) + 1);
        (0..n).into_par_iter().map(ratio).reduce(|| 0.0, f64::max)
    };

    // If ρ(M) < 1, (I − M) v = right has a positive solution, with (Mv)_i / v_i = 1 − right_i /
    // v_i. Right is 1 at first and then the last v, which is inverse iteration.
    let mut right = vec![1.0; n];
    let bicgstab = Bicgstab::new(lane, n, row, None)?;
    let of_chain = (CHAIN * n).min(MOST_ENTRIES / (0..n).map(&terms).sum::<usize>().max(1));
    let most = of_chain.max(SOLVE_PRODUCTS + EDGES * n.isqrt());
    for round in 0..SOLVES {
        // A quarter of the smallest entry: (Mv)_i < v_i for a positive v with any residual below
        // it.
        let enough = 0.25 * right.par_iter().map(|&v| v).reduce(|| f64::INFINITY, f64::min);
        let (v, used) = bicgstab.solve(&right, enough, most, progress)?;
        products += used;
        let top = v.par_iter().map(|&v| v).reduce(|| 0.0, f64::max);
        if !v.par_iter().all(|&v| v > 0.0 && v.is_finite() && v / top > f64::MIN_POSITIVE) {
            break;
        }
        let v: Vec<f64> = v.par_iter().map(|v| v / top).collect();
        let upper = ratios(&v, &mut image);
        products += 1;
        let gain = best.upper.ln() / upper.ln();
        if upper < best.upper {
            (best.upper, best.vector) = (upper, v.clone());
        }
        // A bound that shortens walks by less than a tenth is not worth another solve.
        if upper >= 1.0 || (round > 0 && gain > 0.9) {
            break;
        }
        right = v;
    }
    let steps = if best.upper < 1.0 { 0 } else { POWERS };
    let mut v = vec![1.0; n];
    for step in 0..steps {
        progress(products)?;
        let upper = ratios(&v, &mut image);
        products += 1;
        if upper < best.upper {
            (best.upper, best.vector) = (upper, v.clone());
        }
        // ρ(M) is at least that of any principal submatrix of M, as of the rows in which v is
        // large.
        let last = step + 1 == steps;
        for floor in [0.0, 1e-6, 1e-3, 1e-1] {
            if floor > 0.0 && !last {
                break;
            }
            let part: Vec<f64> = v.iter().map(|&v| if v >= floor { v } else { 0.0 }).collect();
            whole(&part, &mut image);
            products += usize::from(floor > 0.0);
            let down = |i: usize| image[i] / part[i] * (1.0 - (terms(i) + 1) as f64 * f64::EPSILON);
            let least = (0..n).filter(|&i| part[i] > 0.0).map(down);
            best.lower = best.lower.max(least.fold(f64::INFINITY, f64::min));
        }
        whole(&v, &mut image);
        // Shifted by the identity, so that bipartite graphs do not oscillate.
        v.par_iter_mut().zip(&image).for_each(|(v, y)| *v += y);
        let top = v.par_iter().map(|&v| v).reduce(|| 0.0, f64::max);
        v.par_iter_mut().for_each(|v| *v = (*v / top).max(f64::MIN_POSITIVE));
    }
    best.products = products;
    Ok(best)
}

/// Default half-width ε: a thousandth of max |f_i| / (1 − norm) for x = L x + f.
pub fn default_epsilon(f: &[f64], certificate: &Certificate) -> f64 {
    let largest = f.par_iter().map(|f| f.abs()).reduce(|| 0.0, f64::max);
    // x = 0 has no scale of its own.
    if largest > 0.0 { 1e-3 * largest / (1.0 - certificate.norm) } else { 1e-3 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sparse::CsrMatrix;

    /// Path of n states with weights `w` and −`w`: ρ(|L|) = 2 w cos(π/(n + 1)).
    fn path(n: usize, w: f64) -> CsrMatrix {
        CsrMatrix::from_rows(n, n, |i, row| {
            row.extend((i > 0).then(|| (i as u32 - 1, w)));
            row.extend((i + 1 < n).then_some((i as u32 + 1, -w)));
        })
    }

    fn certificate_of(matrix: &CsrMatrix, splitting: Splitting) -> Result<Certificate> {
        certify(&Split::new(matrix, splitting)?, splitting, &Lane::at_hand(), &mut |_| Ok(true))
    }

    #[test]
    fn row_norms_of_one_have_a_proved_norm_below_one() {
        for n in [60, 499, 999, 2001] {
            let matrix = path(n, 0.5);
            let certificate = certificate_of(&matrix, Splitting::Given).unwrap();
            let rho = (std::f64::consts::PI / (n as f64 + 1.0)).cos();
            let norm = certificate.norm;
            // The norm is an upper bound. Short paths have at least 0.8 of the decay rate −ln ρ.
            assert!(norm >= rho && norm < 1.0 && (n > 60 || norm.ln() < 0.8 * rho.ln()), "{norm} {rho}");
            let v = certificate.vector.as_ref().expect("a certificate");
            let mut image = vec![0.0; n];
            Split::new(&matrix, Splitting::Given).unwrap().absolute(0, v, &mut image);
            assert!(image.iter().zip(v).all(|(y, v)| *y <= norm * v), "the certificate holds");
            assert!(!certificate.scaled && certificate.row_norm > 1.0 - 1e-12);
        }
    }

    #[test]
    fn large_row_sums_may_have_a_finite_variance() {
        // ρ(|L|) = sqrt(4 · 0.2) < 1. The second moments have the entries 16 and 0.04 off the
        // diagonal and ρ = 0.8.
        let rows = [(1, 4.0), (0, 0.2)];
        let matrix = CsrMatrix::from_rows(2, 2, |i, row| row.push(rows[i]));
        assert!(certificate_of(&matrix, Splitting::Given).is_ok());
    }

    #[test]
    fn auto_scales_where_a_row_is_not_dominant() {
        // I − L of a path: inner row sums of |L| are 1, and ρ < 1.
        let matrix = CsrMatrix::from_rows(30, 30, |i, row| {
            let i = i as u32;
            let near = [(i.wrapping_sub(1), -1.0), (i, 2.0), (i + 1, -1.0)];
            row.extend(near.into_iter().filter(|entry| entry.0 < 30));
        });
        let Certificate { scaled, norm, splitting, .. } = certificate_of(&matrix, Splitting::Auto).unwrap();
        assert!(scaled && norm < 1.0 && splitting == Splitting::ScaledJacobi, "{scaled} {norm} {splitting}");
    }
}
