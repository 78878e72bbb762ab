//! Rows of a step on the CPU: the code that all formats of the matrix share.

use crate::kernel::Number;
use crate::kernel::cpu::Call;
use crate::kernel::cpu::simd::{At, fused};
use crate::parallel::*;
use crate::util::inline_array::array;

/// Declares kernels of steps, with the parameters and arrays that all of them share.
///
/// * `window_first`, `window_end`: steps with terms that are added to the sum.
/// * `weights`: step of the first weight.
/// * `rows`: end of the chunk's rows.
/// * `first_row`: first row of the chunk in the part.
/// * `own`: index of the part's first row in x.
/// * `begin`: first row of the chunk that is computed.
///
/// The second kernel is for some rows of a chunk, the third for Chebyshev's recurrence.
macro_rules! steps {
    ($($(#[$doc:meta])* static $constant:ident, $some:ident, $recurrence:ident =
        $name:ident $(+ $library:ident)*
        ($($param:ident),*)($($matrix:tt)*) $(.$with:ident($value:expr))?;)+) => {
        kernel! {$(
            $(#[$doc])*
            pub(crate) static $constant = $name + step $(+ $library)* + tail + float(
                window_first, window_end, weights, rows, first_row, own, begin, $($param),*
            )(
                $($matrix)*, exit: &[T], scalars: &[T], x: &[T], y: &mut [T], acc: &mut [T],
            ) in q64 $(.$with($value))?;
        )+}

        $(
        pub(super) static $some: $crate::kernel::Kernel = $constant.with($crate::transient::step::rows::SOME);
        pub(crate) static $recurrence: $crate::kernel::Kernel =
            $constant.with($crate::transient::step::rows::RECURRENCE);

        impl<'a, T> $name::Bindings<'a, T> {
            /// Returns the arrays of a step without its matrix.
            pub(crate) fn shared(self, p: &$name::Params) -> $crate::transient::step::rows::StepArgs<'a, T> {
                let $name::Params { step, window_first, window_end, weights, rows, .. } = *p;
                let $name::Params { first_row, own, begin, .. } = *p;
                $crate::transient::step::rows::StepArgs {
                    p: $crate::transient::step::rows::StepParams {
                        step, window_first, window_end, weights, rows, first_row, own, begin
                    },
                    exit: self.exit,
                    scalars: self.scalars,
                    x: self.x,
                    y: self.y,
                    acc: self.acc,
                }
            }
        })+
    };
}
pub(super) use steps;

/// Parameters shared by the steps of all formats.
pub(crate) struct StepParams {
    pub(super) step: u32,
    pub(super) window_first: u32,
    pub(super) window_end: u32,
    pub(super) weights: u32,
    pub(super) rows: u32,
    pub(super) first_row: u32,
    pub(super) own: u32,
    pub(super) begin: u32,
}

/// Arguments shared by the steps of all formats, without the matrix.
pub(crate) struct StepArgs<'a, T> {
    pub(crate) p: StepParams,
    pub(super) exit: &'a [T],
    pub(super) scalars: &'a [T],
    pub(crate) x: &'a [T],
    pub(super) y: &'a mut [T],
    pub(super) acc: &'a mut [T],
}

/// Kernel constants of a step for some rows of a chunk.
pub(super) const SOME: &[(&str, f64)] = &[("SOME", 1.0)];
/// Kernel constants of Chebyshev's recurrence: y becomes 2 x P − y.
pub(super) const RECURRENCE: &[(&str, f64)] = &[("RECURRENCE", 1.0)];

/// Vectors of a step, restricted to the rows that it computes.
pub(crate) struct StepRows<'a, T> {
    /// Exit rates E of the rows.
    pub(crate) exit: &'a [T],
    /// Elements of x for these rows.
    pub(crate) own: &'a [T],
    /// Output y; for Chebyshev's recurrence it contains the vector before x on input.
    pub(crate) y: &'a mut [T],
    /// Accumulator, the weight of x, and the weight of y if the same step adds y.
    pub(crate) acc: Option<(&'a mut [T], T, Option<T>)>,
    pub(crate) inverse_alpha: T,
    /// True for the recurrence: y becomes 2 x P − y.
    pub(crate) recurrence: bool,
}

impl<T: Number> StepRows<'_, T> {
    /// Completes a step for the rows `here`, from their sums s = Σ rate × x over transitions in
    /// and their exit rates E.
    ///
    /// Computes y = x + (s − E x)/α, and adds to the accumulator.
    #[inline(always)]
    pub(crate) fn finish<const LEVEL: u8>(
        &mut self,
        here: std::ops::Range<usize>,
        sums: &[T::Sum],
        exit: &[T],
    ) {
        let whole = here.len() / GROUP * GROUP;
        for at in (0..whole).step_by(GROUP) {
            self.rows::<GROUP, LEVEL>(here.start + at, &sums[at..], &exit[at..]);
        }
        for at in whole..here.len() {
            self.rows::<1, LEVEL>(here.start + at, &sums[at..], &exit[at..]);
        }
    }

    /// Completes `N` rows from `row` on.
    ///
    /// Their numbers are copied out of the vectors first. Otherwise the compiler could not exclude
    /// that y and the accumulator overlap, and would not vectorize.
    #[inline(always)]
    fn rows<const N: usize, const LEVEL: u8>(&mut self, row: usize, sums: &[T::Sum], exit: &[T]) {
        let own: [T; N] = first(&self.own[row..]);
        let (sums, exit): ([T::Sum; N], [T; N]) = (first(sums), first(exit));
        let mut y = T::stepped_rows(At::<LEVEL>::of_body(), &sums, &exit, &own, self.inverse_alpha);
        if self.recurrence {
            let before: [T; N] = first(&self.y[row..]);
            y = array(|i| T::recurred(y[i], before[i]));
        }
        self.y[row..][..N].copy_from_slice(&y);
        if let Some((acc, weight, next)) = &mut self.acc {
            let acc = &mut acc[row..][..N];
            let mut sum = T::weighted_rows(At::<LEVEL>::of_body(), *weight, &own, &first(acc));
            if let Some(next) = next {
                sum = T::weighted_rows(At::<LEVEL>::of_body(), *next, &y, &sum);
            }
            acc.copy_from_slice(&sum);
        }
    }
}

/// Number of rows that [`StepRows::finish`] computes at once.
const GROUP: usize = 16;

/// Returns the first `N` numbers.
#[inline(always)]
fn first<V: Copy, const N: usize>(numbers: &[V]) -> [V; N] {
    *numbers.first_chunk().expect("a group has as many rows")
}

#[inline(always)]
pub(crate) fn weighted<T: Number, const LEVEL: u8>(w: T, a: T, sum: T) -> T {
    if fused(LEVEL) { T::weighted::<true>(w, a, sum) } else { T::weighted::<false>(w, a, sum) }
}

/// Runs `body` on rows of a step's chunk in parallel, from row `first` of the chunk on.
pub(crate) fn each<T: Number>(
    call: &Call<'_>,
    size: usize,
    shared: StepArgs<'_, T>,
    body: impl Fn(usize, StepRows<'_, T>) + Sync,
) {
    let StepArgs { p, exit, scalars, x, y, acc } = shared;
    let (own, begin) = (p.own as usize, p.begin as usize);
    let rows = p.rows as usize - begin;
    let first_row = p.first_row as usize + begin;
    // If the matrix itself contains E, `exit` is only a placeholder.
    let exit = exit.get(first_row..first_row + rows).unwrap_or_default();
    let own_x = &x[own + first_row..][..rows];
    let recurrence = call.is("RECURRENCE");
    let block = |first: usize, y: &mut [T], acc: Option<(&mut [T], T, Option<T>)>| {
        let here = first..first + y.len();
        let exit = exit.get(here.clone()).unwrap_or_default();
        let (own, inverse_alpha) = (&own_x[here], scalars[0]);
        body(begin + first, StepRows { exit, own, y, acc, inverse_alpha, recurrence });
    };
    let y = &mut y[own + first_row..][..rows];
    match terms(p.step, p.window_first..p.window_end, p.weights) {
        Some(terms) => {
            let (weight, next) = terms.weights(scalars);
            let acc = &mut acc[first_row..][..rows];
            if call.parallel() {
                let both = y.par_chunks_mut(size).zip(acc.par_chunks_mut(size)).enumerate();
                both.for_each(|(i, (y, acc))| block(i * size, y, Some((acc, weight, next))));
            } else {
                block(0, y, Some((acc, weight, next)));
            }
        }
        None if call.parallel() => {
            y.par_chunks_mut(size).enumerate().for_each(|(i, y)| block(i * size, y, None));
        }
        None => block(0, y, None),
    }
}

/// Poisson terms that step k adds to its sum: w_k x_k, and possibly that of step k + 1.
///
/// Adding two terms at once saves a pass over the accumulator.
pub(crate) struct PoissonTerms {
    weight: usize,
    both: bool,
}

impl PoissonTerms {
    /// Returns the weight of this step's term, and that of the next if added, from `scalars`.
    pub(crate) fn weights<T: Number>(&self, scalars: &[T]) -> (T, Option<T>) {
        (scalars[self.weight], self.both.then(|| scalars[self.weight + 1]))
    }
}

/// Returns the terms of step `k` in a window; the first weight is that of step `weights`.
///
/// Even steps also add the next step's term. Odd steps add their own only if the step before did
/// not.
pub(crate) fn terms(k: u32, window: std::ops::Range<u32>, weights: u32) -> Option<PoissonTerms> {
    let even = k.is_multiple_of(2);
    let open = window.contains(&k) && (even || k == window.start);
    open.then(|| PoissonTerms { weight: (1 + k - weights) as usize, both: even && k + 1 < window.end })
}
