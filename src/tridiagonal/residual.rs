//! Residuals of unknowns, computed in one pass over the rows on all threads.

use std::collections::BTreeMap;
use std::ops::Range;

use super::extended_range::Wide;
use super::kernels::tiles::Diagonals;
use super::system::System;
use super::system::row_range::RowSpan;
use super::system::view::{PIECE, View};
use crate::kernel::cpu::simd::{Body, dispatch};
use crate::parallel::*;
use crate::util::quantity::{exponent, times_power_of_two};
use crate::{Progress, Result};

/// Normwise and componentwise backward error of unknowns.
#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Serialize)]
pub struct Residual {
    /// Normwise backward error (Rigal, Gaches 1967): maximum over systems and right-hand sides of
    /// ‖b − A·x‖ / (‖A‖·‖x‖ + ‖b‖) in the maximum norm.
    pub normwise: f64,
    /// Componentwise backward error (Oettli, Prager 1964): max_i |b − A·x|_i / (|A|·|x| + |b|)_i.
    ///
    /// An error up to 2⁻¹⁰⁷⁴, the distance of doubles there, does not count in unknowns below
    /// 2⁻¹⁰²². Only such unknowns can make this error smaller than the normwise one.
    pub componentwise: f64,
}

/// Normwise error that another correction is not expected to lower.
const NORMWISE: f64 = 2.0 * f64::EPSILON;
/// Componentwise error that another correction is not expected to lower.
///
/// Three roundings of unknowns, each of its own product, and four of the residual are 3.5 ε.
const COMPONENTWISE: f64 = 8.0 * f64::EPSILON;
/// Componentwise error up to which the first solution of dominant rows is not corrected.
///
/// A correction takes as long as the solution. Elimination without exchanges leaves three roundings
/// times |A⁻¹|·|A|, which is at most 21 if diagonals exceed the sum of their neighbours by a tenth.
/// Elimination with pivoting leaves as much or more.
const DOMINANT: f64 = 64.0 * f64::EPSILON;

impl Residual {
    /// Returns the limit of the componentwise error if `tolerance` limits the normwise one.
    pub fn componentwise_limit(tolerance: f64) -> f64 {
        tolerance.max(1e-8)
    }

    /// True if the normwise error is at most `tolerance` and the componentwise one at most
    /// [`Residual::componentwise_limit`].
    pub fn within(self, tolerance: f64) -> bool {
        self.normwise <= tolerance && self.componentwise <= Self::componentwise_limit(tolerance)
    }

    /// True if unknowns of a right-hand side are below 2⁻¹⁰²², where doubles have fewer digits.
    ///
    /// It is derived from a normwise error above the componentwise one. There is no other cause,
    /// since norms have a wider range than doubles.
    pub fn underflows(self) -> bool {
        self.normwise > 2.0 * self.componentwise.max(NORMWISE)
    }

    /// True if a correction is not expected to lower either error; for a first solution of dominant
    /// rows: not by enough to justify its time.
    pub(super) fn settled(self, dominant: bool) -> bool {
        self.normwise <= NORMWISE && self.fine(dominant)
    }

    /// True if the componentwise error is as small as elimination with pivoting and corrections is
    /// expected to make it. If `dominant`, it may be as large as after a first solution.
    pub(super) fn fine(self, dominant: bool) -> bool {
        self.componentwise <= if dominant { DOMINANT } else { COMPONENTWISE }
    }

    /// Measure of quality that corrections reduce: the product of the normwise and the
    /// componentwise error, each at least its attainable limit.
    pub(super) fn excess(self) -> f64 {
        self.normwise.max(NORMWISE) * self.componentwise.max(COMPONENTWISE)
    }

    /// True if an unknown is infinite or NaN, which no correction changes.
    pub(super) fn is_infinite(self) -> bool {
        !self.componentwise.is_finite()
    }

    /// Maximum of each of the two errors over two residuals.
    pub fn max(self, other: Self) -> Self {
        // A NaN residual counts as infinite.
        let max = |a: f64, b: f64| if a.is_nan() || b.is_nan() { f64::INFINITY } else { a.max(b) };
        Self {
            normwise: max(self.normwise, other.normwise),
            componentwise: max(self.componentwise, other.componentwise),
        }
    }
}

/// Maximum of two numbers; NaN if one of them is NaN.
#[inline(always)]
fn larger(a: f64, b: f64) -> f64 {
    if b > a || b.is_nan() { b } else { a }
}

/// Norms that determine a [`Residual`]: of some rows as doubles, or of systems as [`AllNorms`].
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Norms<N = f64> {
    r: N,
    a: N,
    x: N,
    b: N,
    component: f64,
}

/// Norms in the extended range of [`Wide`].
pub(super) type AllNorms = Norms<Wide>;

impl Norms {
    #[inline(always)]
    pub(super) fn join(self, other: Self) -> Self {
        Self {
            r: larger(self.r, other.r),
            a: larger(self.a, other.a),
            x: larger(self.x, other.x),
            b: larger(self.b, other.b),
            component: larger(self.component, other.component),
        }
    }

    /// True if a product or norm may have over- or underflowed in rows with the unknowns `x`. False
    /// if an unknown is not finite: both errors are then infinite in any case.
    pub(super) fn unsure(&self, x: &[f64]) -> bool {
        if !self.x.is_finite() {
            return false;
        }
        let all = self.a * self.x + self.b;
        let tiny = || x.iter().any(|x| x.abs() < TINY);
        all.is_nan() || all >= HUGE || self.component.is_nan() || (self.component > COMPONENTWISE && tiny())
    }

    /// Converts the norms to the extended range of [`Wide`].
    pub(super) fn wide(self) -> AllNorms {
        let Self { r, a, x, b, component } = self;
        Norms { r: r.into(), a: a.into(), x: x.into(), b: b.into(), component }
    }
}

impl AllNorms {
    #[inline(always)]
    pub(super) fn with(self, other: Self) -> Self {
        Self {
            r: self.r.larger(other.r),
            a: self.a.larger(other.a),
            x: self.x.larger(other.x),
            b: self.b.larger(other.b),
            component: larger(self.component, other.component),
        }
    }

    /// Maxima of |x| and |b|.
    pub(super) fn sizes(&self) -> [f64; 2] {
        [self.x, self.b].map(Wide::to_f64)
    }

    pub(super) fn residual(self) -> Residual {
        let normwise = match self.r == Wide::default() {
            true => 0.0,
            false => (self.r / (self.a * self.x + self.b)).to_f64(),
        };
        let bad = |v: f64| if v.is_nan() { f64::INFINITY } else { v };
        Residual { normwise: bad(normwise), componentwise: bad(self.component) }
    }

    /// Returns the norms as doubles, for the exchange between ranks.
    fn numbers(self) -> [f64; 9] {
        let [[r, r2], [a, a2], [x, x2], [b, b2]] = [self.r, self.a, self.x, self.b].map(Wide::parts);
        [r, r2, a, a2, x, x2, b, b2, self.component]
    }

    /// Restores norms from the result of [`AllNorms::numbers`].
    fn of_numbers([r, r2, a, a2, x, x2, b, b2, component]: [f64; 9]) -> Self {
        let wide = |mantissa: f64, exponent: f64| Wide::new(mantissa, exponent as i32);
        Self { r: wide(r, r2), a: wide(a, a2), x: wide(x, x2), b: wide(b, b2), component }
    }
}

/// Returns r = b − A·x of one row and its norms. `own` is the index of the diagonal element in
/// `coefficients`.
#[inline(always)]
pub(super) fn row<const K: usize>(coefficients: [f64; K], b: f64, x: [f64; K], own: usize) -> (f64, Norms) {
    // Each product has one rounding; the rounding of the sum is within the measured error.
    let (mut r, mut scale, mut a) = (b, 0.0, 0.0);
    for (k, (c, x)) in coefficients.into_iter().zip(x).enumerate() {
        r = if k == own { r } else { (-c).mul_add(x, r) };
        scale += (c * x).abs();
        a += c.abs();
    }
    r = (-coefficients[own]).mul_add(x[own], r);
    scale += b.abs();
    // Smaller products may have lost digits; NaN causes a second computation in extended range.
    let component = if scale < TINY { f64::NAN } else { r.abs() / scale };
    (r, Norms { r: r.abs(), a, x: x[own].abs(), b: b.abs(), component })
}

/// Minimum sum of a row's absolute products for which no product has lost digits. If the sum is
/// below [`HUGE`], none has overflowed.
const TINY: f64 = f64::MIN_POSITIVE * (1u64 << 62) as f64;
const HUGE: f64 = f64::MAX / 16.0;

/// Computes [`row`] in units of the largest product, for products beyond the range of doubles.
pub(super) fn row_in_range<const K: usize>(
    coefficients: [f64; K],
    b: f64,
    x: [f64; K],
    own: usize,
) -> (f64, AllNorms) {
    let (r, norms) = row(coefficients, b, x, own);
    let reach = x.iter().fold(0.0f64, |m, x| larger(m, x.abs()));
    if !reach.is_finite() || (!Norms { x: reach, ..norms }.unsure(&x)) {
        return (r, norms.wide());
    }
    let a = coefficients.iter().fold(Wide::default(), |a, c| a + c.abs().into());
    // b is the coefficient of an unknown of 1.
    let factors =
        || coefficients.into_iter().zip(x).chain([(-b, 1.0)]).filter(|&(c, x)| c != 0.0 && x != 0.0);
    let Some(largest) = factors().map(|(c, x)| exponent(c) + exponent(x)).max() else {
        return (0.0, Norms { r: 0.0, component: 0.0, ..norms }.wide());
    };
    let (mut sum, mut scale) = (0.0f64, 0.0);
    for (c, x) in factors().collect::<Vec<_>>().into_iter().rev() {
        let (c, x) = (times_power_of_two(c, exponent(x) - largest), times_power_of_two(x, -exponent(x)));
        sum = (-c).mul_add(x, sum);
        scale += (c * x).abs();
    }
    let coarse = coefficients.iter().zip(x).filter(|(_, x)| x.abs() < f64::MIN_POSITIVE);
    let coarse: f64 = coarse.map(|(c, _)| times_power_of_two(c.abs(), -1074 - largest)).sum();
    let component = (sum.abs() - coarse).max(0.0) / scale;
    let norms = AllNorms { r: Wide::new(sum.abs(), largest), a, component, ..norms.wide() };
    (times_power_of_two(sum, largest), norms)
}

const LANES: usize = 8;

/// Rows with neighbours on either side; `x` has one more element at either end.
struct InnerRows<'a> {
    rows: Diagonals<'a, f64>,
    x: &'a [f64],
    /// The residual of each row, or empty.
    r: &'a mut [f64],
    norms: &'a mut Norms,
}

impl Body for InnerRows<'_> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        let (Diagonals { dl, d, du, rhs }, rows) = (self.rows, self.rows.d.len());
        let (dl, du, rhs, x) = (&dl[..rows], &du[..rows], &rhs[..rows], &self.x[..rows + 2]);
        let one = |i: usize| row([dl[i], d[i], du[i]], rhs[i], [x[i], x[i + 1], x[i + 2]], 1);
        let mut all = [Norms::default(); LANES];
        let full = rows - rows % LANES;
        for first in (0..full).step_by(LANES) {
            let mut r = [0.0; LANES];
            for (j, all) in all.iter_mut().enumerate() {
                let norms;
                (r[j], norms) = one(first + j);
                *all = all.join(norms);
            }
            if !self.r.is_empty() {
                self.r[first..first + LANES].copy_from_slice(&r);
            }
        }
        for i in full..rows {
            let (r, norms) = one(i);
            all[0] = all[0].join(norms);
            if !self.r.is_empty() {
                self.r[i] = r;
            }
        }
        *self.norms = all.into_iter().fold(*self.norms, Norms::join);
    }
}

impl System {
    /// Computes r = b − A·x for one right-hand side, and returns its norms. `r` may be empty.
    pub fn residual(&self, b: &[f64], x: &[f64], r: &mut [f64]) -> Residual {
        View::from(self).residual(b, x, r)
    }
}

pub(super) const BLOCK: usize = 1 << 14;

/// Calls `one` in parallel for runs of `size` consecutive rows with their slice of r, and joins the
/// results. r has a number for each of `rows`, or is empty.
pub(super) fn joined<N: Default + Send>(
    rows: Range<usize>,
    size: usize,
    r: &mut [f64],
    one: impl Fn(Range<usize>, &mut [f64]) -> N + Sync,
    join: impl Fn(N, N) -> N + Sync,
) -> N {
    let run = |i: usize| rows.start + i * size..rows.end.min(rows.start + (i + 1) * size);
    match rows.len().div_ceil(size) {
        1 => one(rows, r),
        runs if r.is_empty() => {
            (0..runs).into_par_iter().map(|i| one(run(i), &mut [])).reduce(N::default, join)
        }
        _ => r.par_chunks_mut(size).enumerate().map(|(i, r)| one(run(i), r)).reduce(N::default, join),
    }
}

impl View<'_> {
    /// Computes r = b − A·x and its norms over all ranks, each with its own rows of b, x and r.
    pub(crate) fn residual(&self, b: &[f64], x: &[f64], r: &mut [f64]) -> Residual {
        let RowSpan { n, first, rows, ranks, .. } = self.span;
        let beyond = self.span.adjacent_values(x.first().zip(x.last()).map(|(&first, &last)| [first, last]));
        // The local rows: the end of a system, whole systems, and the beginning of a system.
        let head = rows.min((n - first % n) % n);
        let whole = (rows - head) / n * n;
        let (begun, rest) = r.split_at_mut(head.min(r.len()));
        let (inner, ended) = rest.split_at_mut(whole.min(rest.len()));
        let system = |here, r: &mut [f64]| self.norms(b, x, beyond, here, r).residual();
        let systems = joined(head..head + whole, n, inner, system, Residual::max);
        if !ranks.is_distributed() {
            return systems;
        }
        let mut mine = vec![systems.normwise, systems.componentwise];
        for (part, r) in [(0..head, begun), (head + whole..rows, ended)] {
            if !part.is_empty() {
                let norms = self.norms(b, x, beyond, part.clone(), r);
                mine.push(((first + part.start) / n) as f64);
                mine.extend(norms.numbers());
            }
        }
        let all = ranks.all_gather(&mine);
        let mut cut: BTreeMap<u64, AllNorms> = BTreeMap::new();
        let mut residual = Residual::default();
        for list in &all {
            residual = residual.max(Residual { normwise: list[0], componentwise: list[1] });
            for &[system, ref numbers @ ..] in list[2..].as_chunks::<10>().0 {
                let norms = cut.entry(system as u64).or_default();
                *norms = norms.with(AllNorms::of_numbers(*numbers));
            }
        }
        cut.into_values().map(AllNorms::residual).fold(residual, Residual::max)
    }

    /// Residual of whole systems, without r. For a single one, calls `watch` every 2²² rows.
    pub(super) fn residual_watched(
        &self,
        b: &[f64],
        x: &[f64],
        watch: &mut dyn Progress,
    ) -> Result<Residual> {
        let RowSpan { n, rows, .. } = self.span;
        let solved = rows as u64;
        watch.progress(solved, solved)?;
        if rows > n {
            return Ok(self.residual(b, x, &mut []));
        }
        let mut norms = AllNorms::default();
        for piece in (0..n).step_by(PIECE) {
            watch.progress(solved, solved)?;
            norms = norms.with(self.norms_of(b, x, piece..n.min(piece + PIECE)));
        }
        Ok(norms.residual())
    }

    /// Returns norms of some rows of a view of one system, with all its rows local.
    pub(super) fn norms_of(&self, b: &[f64], x: &[f64], rows: Range<usize>) -> AllNorms {
        let system = SystemRows { view: self, b, x, beyond: [0.0; 2], rows: 0..self.span.n };
        joined(rows, BLOCK, &mut [], |here, r| system.norms(here, r), AllNorms::with)
    }

    /// Computes the norms of `rows` of one system, and their residuals r unless `r` is empty.
    /// `beyond` are the unknowns before and after these rows.
    fn norms(&self, b: &[f64], x: &[f64], beyond: [f64; 2], rows: Range<usize>, r: &mut [f64]) -> AllNorms {
        let system = SystemRows { view: self, b, x, beyond, rows: rows.clone() };
        joined(rows, BLOCK, r, |here, r| system.norms(here, r), AllNorms::with)
    }
}

/// Rows of one system with a right-hand side and its unknowns.
struct SystemRows<'a> {
    view: &'a View<'a>,
    b: &'a [f64],
    x: &'a [f64],
    /// Unknowns before the first and after the last of the rows.
    beyond: [f64; 2],
    rows: Range<usize>,
}

impl SystemRows<'_> {
    fn row(&self, i: usize) -> ([f64; 3], [f64; 3]) {
        let (View { span, dl, d, du, .. }, x) = (self.view, self.x);
        let (start, last) = (self.rows.start, self.rows.end - 1);
        let [before, behind] = if self.rows.len() == span.n { [x[last], x[start]] } else { self.beyond };
        let place = (span.first + i) % span.n;
        let left = if i > start { x[i - 1] } else { before };
        let right = if i < last { x[i + 1] } else { behind };
        let (dl, left) = if place > 0 || span.cyclic { (dl[i], left) } else { (0.0, 0.0) };
        let (du, right) = if place + 1 < span.n || span.cyclic { (du[i], right) } else { (0.0, 0.0) };
        ([dl, d[i], du], [left, x[i], right])
    }

    /// Computes the norms of a range of these rows, and their residuals r unless `r` is empty.
    fn norms(&self, Range { start: from, end: to }: Range<usize>, r: &mut [f64]) -> AllNorms {
        let (View { dl, d, du, .. }, b, x) = (self.view, self.b, self.x);
        let (start, last, kept) = (self.rows.start, self.rows.end - 1, !r.is_empty());
        let mut norms = Norms::default();
        let mut end = |i: usize, r: &mut [f64]| {
            let (coefficients, x) = self.row(i);
            let (own, row) = row(coefficients, b[i], x, 1);
            norms = norms.join(row);
            if let Some(r) = r.first_mut() {
                *r = own;
            }
        };
        let keep = |range: Range<usize>| if kept { range } else { 0..0 };
        if from == start {
            end(start, &mut r[keep(0..1)]);
        }
        if to == last + 1 && last > start {
            end(last, &mut r[keep(to - from - 1..to - from)]);
        }
        let (inner_from, inner_to) = (from.max(start + 1), to.min(last));
        if inner_from < inner_to {
            let here = inner_from..inner_to;
            let x = &x[here.start - 1..here.end + 1];
            let r = &mut r[keep(inner_from - from..inner_to - from)];
            dispatch(InnerRows { rows: Diagonals { dl, d, du, rhs: b }.part(here), x, r, norms: &mut norms });
        }
        if norms.unsure(&x[from.saturating_sub(1)..x.len().min(to + 1)]) {
            let mut all = AllNorms::default();
            for i in from..to {
                let (coefficients, x) = self.row(i);
                let (own, row) = row_in_range(coefficients, b[i], x, 1);
                all = all.with(row);
                if kept {
                    r[i - from] = own;
                }
            }
            return all;
        }
        norms.wide()
    }
}
