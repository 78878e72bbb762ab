//! Small arrays built in registers.
//!
//! The standard library's `from_fn` and `map` call functions that other codegen units cannot
//! inline; a vector loop that calls them is several times slower.

/// Builds the array `[of(0), of(1), …]`.
#[inline(always)]
pub(crate) fn array<T: Copy, const N: usize>(mut of: impl FnMut(usize) -> T) -> [T; N] {
    let mut all = [of(0); N];
    for (k, one) in all.iter_mut().enumerate().skip(1) {
        *one = of(k);
    }
    all
}

/// Applies `of` to each element of an array.
#[inline(always)]
pub(crate) fn each<S: Copy, T: Copy, const N: usize>(from: [S; N], mut of: impl FnMut(S) -> T) -> [T; N] {
    array(|k| of(from[k]))
}
