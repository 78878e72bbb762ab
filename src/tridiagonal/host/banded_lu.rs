//! Gaussian elimination with partial pivoting of banded matrices on the host, as LAPACK's `dgbtrf`
//! and `dgbtrs`.
//!
//! The pivot row is exchanged with the row below that has the largest element, which doubles the
//! upper bandwidth.

use std::ops::{Add, Div, Mul};

use crate::numerics::double_word::DoubleWord;

/// Number type of an elimination: double or double-double.
pub(crate) trait LuScalar:
    Copy + From<f64> + Add<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
    fn minus_product(self, a: Self, b: Self) -> Self;
    /// Returns |self|, rounded to a double.
    fn size(self) -> f64;
}

impl LuScalar for f64 {
    fn minus_product(self, a: Self, b: Self) -> Self {
        self - a * b
    }

    fn size(self) -> f64 {
        self.abs()
    }
}

impl LuScalar for DoubleWord {
    fn minus_product(self, a: Self, b: Self) -> Self {
        self + -(a * b)
    }

    fn size(self) -> f64 {
        self.hi.abs()
    }
}

/// LU factors of a matrix with `W` diagonals, as many below the main diagonal as above.
pub(crate) struct BandedFactors<T, const W: usize> {
    /// Offset from each pivot row of the row exchanged with it, and the factors of the rows below.
    lower: Vec<(usize, [T; W])>,
    upper: Vec<[T; W]>,
}

impl<T: LuScalar, const W: usize> BandedFactors<T, W> {
    const BANDWIDTH: usize = W / 2;

    /// Factors a matrix of `n` rows. `row` returns the elements of a row, its diagonal element in
    /// the middle. The error is the row of a zero pivot.
    pub(crate) fn new(n: usize, row: impl Fn(usize) -> [T; W]) -> Result<Self, usize> {
        let (zero, bandwidth) = (T::from(0.0), Self::BANDWIDTH);
        // The first rows, beginning with column 0.
        let mut active: Vec<[T; W]> = (0..n.min(bandwidth + 1))
            .map(|i| {
                let mut own = row(i);
                own.rotate_left(bandwidth - i);
                own[W - (bandwidth - i)..].fill(zero);
                own
            })
            .collect();
        let (mut lower, mut upper) = (Vec::with_capacity(n), Vec::with_capacity(n));
        for i in 0..n {
            let mut largest = 0;
            for k in 1..active.len() {
                if active[k][0].size() > active[largest][0].size() {
                    largest = k;
                }
            }
            if active[largest][0].size() == 0.0 {
                return Err(i);
            }
            active.swap(0, largest);
            let (pivot, mut factors) = (active[0], [zero; W]);
            for (own, factor) in active[1..].iter_mut().zip(&mut factors) {
                *factor = own[0] / pivot[0];
                for j in 1..W {
                    own[j - 1] = own[j].minus_product(*factor, pivot[j]);
                }
                own[W - 1] = zero;
            }
            lower.push((largest, factors));
            upper.push(pivot);
            active.remove(0);
            if i + bandwidth + 1 < n {
                active.push(row(i + bandwidth + 1));
            }
        }
        Ok(Self { lower, upper })
    }

    pub(crate) fn solve(&self, b: &mut [T]) {
        for (i, (largest, factors)) in self.lower.iter().enumerate() {
            b.swap(i, i + largest);
            let (own, below) = b[i..].split_first_mut().expect("a row");
            below
                .iter_mut()
                .zip(&factors[..Self::BANDWIDTH])
                .for_each(|(b, &f)| *b = b.minus_product(f, *own));
        }
        for (i, own) in self.upper.iter().enumerate().rev() {
            let known = own[1..].iter().zip(&b[i + 1..]);
            let behind = known.fold(T::from(0.0), |sum, (&u, &x)| sum + u * x);
            b[i] = b[i].minus_product(T::from(1.0), behind) / own[0];
        }
    }

    pub(crate) fn least_pivot(&self) -> usize {
        let size = |i: &usize| self.upper[*i][0].size();
        (0..self.upper.len()).min_by(|a, b| size(a).total_cmp(&size(b))).unwrap_or(0)
    }
}

/// Solves several right-hand sides of a matrix (see [`BandedFactors::new`]) in place. Returns the
/// row of a zero pivot, if any.
pub(crate) fn solve<const W: usize>(
    n: usize,
    row: impl Fn(usize) -> [f64; W],
    b: &mut [Vec<f64>],
) -> Option<usize> {
    match BandedFactors::new(n, row) {
        Ok(factors) => {
            b.iter_mut().for_each(|b| factors.solve(b));
            None
        }
        Err(row) => Some(row),
    }
}
