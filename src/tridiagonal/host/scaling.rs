//! Scaling of right-hand sides to the range of a precision.

use crate::kernel::Precision;
use crate::parallel::*;
use crate::tridiagonal::kernels::number::Number;
use crate::util::quantity::{exponent, times_power_of_two};

/// Returns the maximum of |v|, computed on all threads.
pub(crate) fn largest(v: &[f64]) -> f64 {
    let more = |m: f64, v: f64| if v.abs() > m { v.abs() } else { m };
    let blocks = v.par_chunks(1 << 14).map(|part| part.iter().fold(0.0, |m, &v| more(m, v)));
    blocks.reduce(|| 0.0, more)
}

/// Maximum |exponent| of right-hand sides that need no scaling in this precision. Half of the range
/// is left for intermediate results.
pub(crate) fn headroom(precision: Precision) -> i32 {
    if matches!(precision, Precision::F32) { 60 } else { 500 }
}

/// Returns k such that 2^k scales numbers of this maximum to size 1; 0 if they need no scaling.
pub(crate) fn shift(largest: f64, headroom: i32) -> i32 {
    match exponent(largest) {
        _ if largest == 0.0 => 0,
        k if k.abs() > headroom => -k,
        _ => 0,
    }
}

/// Converts numbers to another precision, on all threads.
pub(crate) fn convert<S: Number, T: Number>(from: &[S], to: &mut [T]) {
    convert_times(from, to, 0);
}

/// Converts v·2^k to another precision, on all threads.
pub(crate) fn convert_times<S: Number, T: Number>(from: &[S], to: &mut [T], k: i32) {
    const BLOCK: usize = 1 << 14;
    let blocks = to.par_chunks_mut(BLOCK).zip(from.par_chunks(BLOCK));
    blocks.for_each(|(to, from)| match k {
        0 => to.iter_mut().zip(from).for_each(|(to, from)| *to = T::of(from.wide())),
        k => to.iter_mut().zip(from).for_each(|(to, from)| *to = T::of(times_power_of_two(from.wide(), k))),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_numbers_are_shifted_and_zero_is_not() {
        assert_eq!((shift(0.0, 500), shift(1e-200, 500), shift(1e-200, 60)), (0, -exponent(1e-200), 665));
    }
}
