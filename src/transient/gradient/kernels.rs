//! The kernels of derivatives by every rate, and their CPU implementations.

use crate::kernel::cpu::Call;
use crate::kernel::cpu::simd::{Body, dispatch};
use crate::kernel::{Kernel, Real, fma, kernel};
use crate::parallel::*;
use crate::util::inline_array::array;

kernel! {
    /// Adds weighted values to a vector, and stores the sum as one of several vectors.
    pub(super) static ADJOINT_STORE = adjoint_store(rows, slots, functionals)(
        weights: &[T], values: &[T], x: &mut [T], all: &mut [T],
    );
    /// Adds the terms of up to [`STEPS`] steps to the derivatives by all rates.
    pub(super) static RATE_DERIVATIVES = rate_derivatives(rows, last)(
        starts: &[u32], columns: &[u32], x: &[T], b: &[T], derivatives: &mut [T],
    );
    /// Scans the rates out of each state: exit rates, weighted sums, and the smallest rates.
    pub(super) static ROW_SCAN = row_scan(rows)(
        starts: &[u32], columns: &[u32], order: &[u32], weights: &[T], rates: &[T], found: &mut [T],
    );
}

pub(crate) static KERNELS: [&Kernel; 3] = [&ADJOINT_STORE, &RATE_DERIVATIVES, &ROW_SCAN];

/// Maximum number of steps whose terms are added at once.
pub(super) const STEPS: usize = 8;
/// Number of rows that a thread processes at once.
const ROWS: usize = 1024;

/// Some elements of a vector, and of its copy.
struct AdjointStore<'a, T> {
    /// Weights and values to add.
    added: &'a [(T, &'a [T])],
    /// Index of the first element.
    first: usize,
    x: &'a mut [T],
    all: &'a mut [T],
}

impl<T: Real> Body for AdjointStore<'_, T> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        for (weight, values) in self.added {
            for (x, value) in self.x.iter_mut().zip(&values[self.first..]) {
                *x = fma::<T, LEVEL>(*weight, *value, *x);
            }
        }
        self.all.copy_from_slice(self.x);
    }
}

fn adjoint_store<T: Real>(_: &Call<'_>, p: adjoint_store::Params, b: adjoint_store::Bindings<'_, T>) {
    let (rows, count, step) = (p.rows as usize, p.functionals as usize, p.step as usize);
    let weights = if count == 0 { &[][..] } else { &b.weights[step * count..][..count] };
    let added: Vec<_> = weights.iter().copied().zip(b.values.chunks_exact(rows)).collect();
    let added: Vec<_> = added.into_iter().filter(|(weight, _)| *weight != T::ZERO).collect();
    let all = b.all[step % p.slots as usize * rows..][..rows].par_chunks_mut(ROWS);
    let blocks = b.x[..rows].par_chunks_mut(ROWS).zip(all).enumerate();
    blocks.for_each(|(k, (x, all))| dispatch(AdjointStore { added: &added, first: k * ROWS, x, all }));
}

/// Rows of a matrix from `first` on, and the derivatives of their entries.
struct DerivativeRows<'a, T> {
    first: usize,
    starts: &'a [u32],
    columns: &'a [u32],
    x: &'a [&'a [T]; STEPS],
    b: &'a [&'a [T]; STEPS],
    derivatives: &'a mut [T],
}

impl<T: Real> Body for DerivativeRows<'_, T> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        let Self { first, starts, columns, x, b, derivatives } = self;
        // Two steps per pass: processors prefetch only some tens of sequences of addresses.
        for k in (0..STEPS).step_by(2) {
            let mut left = derivatives.iter_mut().zip(columns);
            for (row, ends) in (first..).zip(starts.windows(2)) {
                let mass: [T; 2] = array(|j| x[k + j].get(row).copied().unwrap_or(T::ZERO));
                let own = [b[k][row], b[k + 1][row]];
                let entries = left.by_ref().take((ends[1] - ends[0]) as usize);
                if mass == [T::ZERO; 2] {
                    entries.for_each(drop);
                    continue;
                }
                for (derivative, &to) in entries {
                    let change: [T; 2] = array(|j| b[k + j][to as usize] - own[j]);
                    *derivative = *derivative + fma::<T, LEVEL>(mass[1], change[1], mass[0] * change[0]);
                }
            }
        }
    }
}

fn rate_derivatives<T: Real>(
    _: &Call<'_>,
    p: rate_derivatives::Params,
    b: rate_derivatives::Bindings<'_, T>,
) {
    let (rows, first) = (p.rows as usize, p.step as usize / STEPS * STEPS);
    let (last, step) = (p.last as usize, p.step as usize);
    // Steps after the current one have no terms.
    let x = array(|k| {
        let done = first + k <= step;
        if done { &b.x[(last - first - k) * rows..][..rows] } else { &[] }
    });
    let vectors = array(|k| &b.b[k * rows..][..rows]);
    let (starts, mut rest) = (&b.starts[..=rows], b.derivatives);
    let blocks = (0..rows).step_by(ROWS).map(|first| {
        let starts = &starts[first..=rows.min(first + ROWS)];
        let (from, to) = (starts[0] as usize, starts[starts.len() - 1] as usize);
        let (derivatives, after) = std::mem::take(&mut rest).split_at_mut(to - from);
        rest = after;
        DerivativeRows { first, starts, columns: &b.columns[from..to], x: &x, b: &vectors, derivatives }
    });
    blocks.collect::<Vec<_>>().into_par_iter().for_each(dispatch);
}

/// Scans the rates out of a state, each with the weight of its target.
///
/// Returns the sum of the rates, the weighted sum, and the smallest rate above 0: 0 if there is
/// none, and -1 if a rate is negative, infinite or NaN.
pub(super) fn scan_row<T: Real>(row: impl Iterator<Item = (T, T)>) -> [T; 3] {
    let zero = T::ZERO;
    let (mut sum, mut lost, mut weighted, mut least) = (zero, zero, zero, zero);
    for (rate, weight) in row {
        if !(rate >= zero && rate.wide().is_finite()) || least < zero {
            least = T::of(-1.0);
        } else if rate > zero && (least == zero || rate < least) {
            least = rate;
        }
        let next = sum + rate;
        lost = lost + if sum >= rate { (sum - next) + rate } else { (rate - next) + sum };
        sum = next;
        weighted = weighted + rate * weight;
    }
    [sum + lost, weighted, least]
}

fn row_scan<T: Real>(_: &Call<'_>, p: row_scan::Params, b: row_scan::Bindings<'_, T>) {
    let rows = p.rows as usize;
    let row = |i: usize| {
        let entries = b.starts[i] as usize..b.starts[i + 1] as usize;
        let rates = b.order[entries.clone()].iter().map(|&k| b.rates[k as usize]);
        scan_row(rates.zip(b.columns[entries].iter().map(|&to| b.weights[to as usize])))
    };
    let (sums, rest) = b.found.split_at_mut(rows);
    let (weighted, least) = rest.split_at_mut(rows);
    let places = sums.par_iter_mut().zip(weighted).zip(least).enumerate().with_min_len(ROWS);
    places.for_each(|(i, ((sum, weighted), least))| [*sum, *weighted, *least] = row(i));
}
