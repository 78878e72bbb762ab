//! The kernels of derivatives by every rate, and their CPU implementations.

use crate::kernel::cpu::Call;
use crate::kernel::cpu::simd::{Body, dispatch};
use crate::kernel::{Kernel, Real, fma, kernel};
use crate::parallel::*;
use crate::util::inline_array::array;

kernel! {
    /// Adds weighted values to a vector, and stores the sum as one of several vectors.
    pub(super) static ADJOINT_STORE = adjoint_store(rows, slots, functionals, apart, pitch)(
        weights: &[T], values: &[T], x: &mut [T], all: &mut [T],
    );
    /// Adds the terms of up to [`STEPS`] steps to the derivatives by all rates.
    pub(super) static RATE_DERIVATIVES = rate_derivatives(rows, last)(
        starts: &[u32], columns: &[u32], x: &[T], b: &[[T; 2]], derivatives: &mut [T],
    );
}

pub(crate) static KERNELS: [&Kernel; 2] = [&ADJOINT_STORE, &RATE_DERIVATIVES];

/// Maximum number of steps whose terms are added at once.
pub(super) const STEPS: usize = 8;
/// Number of rows that a thread processes at once.
const ROWS: usize = 1024;

/// Some elements of a vector, and of its copy.
struct Store<'a, T> {
    /// Weights and values to add.
    added: &'a [(T, &'a [T])],
    first: usize,
    x: &'a mut [T],
    /// Elements of the copy, `pitch` numbers apart.
    all: &'a mut [T],
    pitch: usize,
}

impl<T: Real> Body for Store<'_, T> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        for (weight, values) in self.added {
            for (x, value) in self.x.iter_mut().zip(&values[self.first..]) {
                *x = fma::<T, LEVEL>(*weight, *value, *x);
            }
        }
        match self.pitch {
            1 => self.all.copy_from_slice(self.x),
            pitch => self.all.iter_mut().step_by(pitch).zip(self.x).for_each(|(to, x)| *to = *x),
        }
    }
}

fn adjoint_store<T: Real>(_: &Call<'_>, p: adjoint_store::Params, b: adjoint_store::Bindings<'_, T>) {
    let (rows, count, step) = (p.rows as usize, p.functionals as usize, p.step as usize);
    let weights = if count == 0 { &[][..] } else { &b.weights[step * count..][..count] };
    let added: Vec<_> = weights.iter().copied().zip(b.values.chunks_exact(rows)).collect();
    let added: Vec<_> = added.into_iter().filter(|(weight, _)| *weight != T::ZERO).collect();
    let (apart, pitch) = (p.apart as usize, p.pitch as usize);
    let all = b.all[step % p.slots as usize * apart..][..(rows - 1) * pitch + 1].par_chunks_mut(ROWS * pitch);
    let blocks = b.x[..rows].par_chunks_mut(ROWS).zip(all).enumerate();
    blocks.for_each(|(k, (x, all))| dispatch(Store { added: &added, first: k * ROWS, x, all, pitch }));
}

/// Rows of a matrix from `first` on, and the derivatives of their entries.
struct Terms<'a, T> {
    first: usize,
    starts: &'a [u32],
    columns: &'a [u32],
    x: &'a [&'a [T]; STEPS],
    b: &'a [[T; STEPS]],
    derivatives: &'a mut [T],
}

impl<T: Real> Body for Terms<'_, T> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        let Self { first, starts, columns, x, b, derivatives } = self;
        let mut left = derivatives.iter_mut().zip(columns);
        for (row, ends) in (first..).zip(starts.windows(2)) {
            let mass: [T; STEPS] = array(|k| x[k].get(row).copied().unwrap_or(T::ZERO));
            let own = &b[row];
            let entries = left.by_ref().take((ends[1] - ends[0]) as usize);
            if mass.iter().all(|mass| *mass == T::ZERO) {
                entries.for_each(drop);
                continue;
            }
            for (derivative, &to) in entries {
                let other = &b[to as usize];
                let change: [T; STEPS] = array(|k| other[k] - own[k]);
                let half: [T; STEPS / 2] =
                    array(|k| fma::<T, LEVEL>(mass[k + 4], change[k + 4], mass[k] * change[k]));
                *derivative = *derivative + ((half[0] + half[2]) + (half[1] + half[3]));
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
    let vectors = b.b.as_flattened().as_chunks().0;
    let (starts, mut rest) = (&b.starts[..=rows], b.derivatives);
    let blocks = (0..rows).step_by(ROWS).map(|first| {
        let starts = &starts[first..=rows.min(first + ROWS)];
        let (from, to) = (starts[0] as usize, starts[starts.len() - 1] as usize);
        let (derivatives, after) = std::mem::take(&mut rest).split_at_mut(to - from);
        rest = after;
        Terms { first, starts, columns: &b.columns[from..to], x: &x, b: vectors, derivatives }
    });
    blocks.collect::<Vec<_>>().into_par_iter().for_each(dispatch);
}
