//! Kernels of the partition method in tiles, and their CPU implementations.

use super::alignment::ChunkPlace;
pub use super::alignment::{TILE, UNIT};
use super::number::{Number, fma};
use super::reduced_block::ReducedBlock;
use crate::kernel::cpu::Call;
use crate::kernel::cpu::simd::{Body, UNFUSED, dispatch, stream, streamed, transpose};
use crate::kernel::{Precision, kernel};
use crate::parallel::*;
use crate::util::inline_array::array;

kernel! {
    /// Stage 1: reduces each unit of 128 rows to a reduced block.
    pub static REDUCE = tridiagonal_reduce + pairs + rows + units + pivots(rows, n, first, cyclic, small)(
        dl: &[T], d: &[T], du: &[T], rhs: &[T], units: &mut [T], flags: &mut [u32],
    );
    /// Joins up to 2^levels reduced blocks each to one reduced block of the next level.
    pub static MERGE = tridiagonal_merge + units + pivots(count, small, levels)(
        units: &mut [T], flags: &[u32], above: &mut [T], flags_above: &mut [u32],
    );
    /// Stage 2: joins all reduced blocks to one, and solves for the interface values.
    pub static INTERFACE = tridiagonal_interface + units + pivots(count, share, width, cyclic, small)(
        units: &[T], flags: &[u32], ends: &[T], nodes: &mut [T], values: &mut [T], above: &mut [T],
        flags_above: &mut [u32],
    );
    /// Computes the interface values of a level of the merge tree from those of the level above.
    pub static EXPAND = tridiagonal_expand + units(count, levels)(units: &[T], above: &[T], values: &mut [T]);
    /// Stage 3: computes the unknowns of each unit of 128 rows from its interface values.
    pub static SOLVE = tridiagonal_solve + pairs + rows + units + pivots(rows, n, first, cyclic)(
        dl: &[T], d: &[T], du: &[T], rhs: &[T], values: &[T], x: &mut [T],
    );
}

/// Maximum number of reduced blocks that one workgroup joins to one.
pub const FAN: usize = 256;

/// Flag of a row with |d| < |dl| + |du|. The bits below count pivots that are
/// negligible against their row.
pub const NOT_DOMINANT: u32 = 1 << 31;

pub(crate) fn both(a: u32, b: u32) -> u32 {
    ((a | b) & NOT_DOMINANT) | ((a & !NOT_DOMINANT) + (b & !NOT_DOMINANT))
}

pub(crate) fn all_flags(flags: impl IntoIterator<Item = u32>) -> u32 {
    flags.into_iter().fold(0, both)
}

/// Number of 128-row units that the CPU implementation eliminates together, one per vector lane.
pub(crate) const LANES: usize = 8;
/// Rows of a strip, the [`LANES`] units that a thread eliminates at the same time.
const STRIP: usize = LANES * UNIT;
/// Minimum number of consecutive strips per thread.
const STRIPS: usize = 16;
/// Minimum chunk size in rows at which unknowns are not expected to stay in cache.
pub(crate) const UNCACHED: usize = 1 << 21;
/// Rows that are transposed to vector-lane order at a time: a cache line of f64.
pub(crate) const TURN: usize = 8;

/// Diagonals and right-hand side of some consecutive rows.
#[derive(Clone, Copy)]
pub(crate) struct Diagonals<'a, T> {
    pub(crate) dl: &'a [T],
    pub(crate) d: &'a [T],
    pub(crate) du: &'a [T],
    pub(crate) rhs: &'a [T],
}

impl<'a, T> Diagonals<'a, T> {
    pub(crate) fn part(self, here: std::ops::Range<usize>) -> Self {
        Self {
            dl: &self.dl[here.clone()],
            d: &self.d[here.clone()],
            du: &self.du[here.clone()],
            rhs: &self.rhs[here],
        }
    }
}

/// Numbers of two consecutive rows for back substitution, for each of the [`LANES`] units.
///
/// With x the unknown after the two rows, the upper unknown is e − h·x and the lower e′ − h′·x. The
/// order is e, h, e′, h′.
pub(crate) type BackSubstitution<T> = [[T; LANES]; 4];

/// Working memory of a strip of rows: off-diagonals that are zero at ends of systems, and numbers
/// for back substitution.
struct StripScratch<T> {
    dl: Box<[T]>,
    du: Box<[T]>,
    back: Box<[BackSubstitution<T>]>,
}

impl<T: Number> StripScratch<T> {
    fn new() -> Self {
        let numbers = || vec![T::ZERO; STRIP].into_boxed_slice();
        Self { dl: numbers(), du: numbers(), back: vec![[[T::ZERO; LANES]; 4]; UNIT / 2].into_boxed_slice() }
    }

    /// Copies the two off-diagonals of the strip that begins at `row`, and sets them to zero at
    /// ends of systems. False, without a copy, if the strip has no such end.
    fn cut(&mut self, rows: Diagonals<'_, T>, row: usize, place: ChunkPlace) -> bool {
        let (n, len) = (place.n, rows.d.len());
        let start = (place.first + row) % n;
        if place.cyclic || (start != 0 && start + len < n) {
            return false;
        }
        let (dl, du) = (&mut self.dl[..len], &mut self.du[..len]);
        dl.copy_from_slice(rows.dl);
        du.copy_from_slice(rows.du);
        // The first row of a system at or after the strip's first row.
        let mut at = (n - start) % n;
        if at > 0 && at <= len {
            du[at - 1] = T::ZERO;
        }
        while at < len {
            dl[at] = T::ZERO;
            if at + n <= len {
                du[at + n - 1] = T::ZERO;
            }
            at += n;
        }
        true
    }
}

/// Forward elimination of `W` units (runs of 128 rows) side by side.
struct UnitElimination<T, const W: usize> {
    units: [[T; W]; 6],
    /// Minimum of |b| − |a| − |c| over rows with coefficients a, b, c. `pivots` counts pivots of at
    /// most small·(|a| + |b| + |c|).
    dominance: [T; W],
    pivots: [T; W],
}

impl<T: Number, const W: usize> UnitElimination<T, W> {
    #[inline(always)]
    fn new() -> Self {
        let (zero, minus) = ([T::ZERO; W], [T::of(-1.0); W]);
        let units = [zero, zero, minus, zero, minus, zero];
        Self { units, dominance: [T::of(1.0); W], pivots: zero }
    }

    /// Eliminates the next two rows (a, b, c; right-hand side r) of each unit, with one division.
    #[inline(always)]
    fn pair<const LEVEL: u8>(&mut self, [a, b, c, r]: [&[[T; W]; 2]; 4], small: T) {
        let [u0, u1, u2, u3, u4, u5] = &mut self.units;
        for j in 0..W {
            let rest = [a[0][j].size() + c[0][j].size(), a[1][j].size() + c[1][j].size()];
            let excess = [b[0][j].size() - rest[0], b[1][j].size() - rest[1]];
            let excess = if excess[0] < excess[1] { excess[0] } else { excess[1] };
            self.dominance[j] = if excess < self.dominance[j] { excess } else { self.dominance[j] };
            let weight = (rest[0] + b[0][j].size()) * (rest[1] + b[1][j].size());
            let ([a0, a1], [b0, b1], [c0, c1]) = ([a[0][j], a[1][j]], [b[0][j], b[1][j]], [c[0][j], c[1][j]]);
            let pivot = fma::<T, LEVEL>(-a0, u5[j], b0);
            let sum = fma::<T, LEVEL>(-a0, u3[j], r[0][j]);
            let left = -a0 * u4[j];
            let det = fma::<T, LEVEL>(pivot, b1, -a1 * c0);
            let few = det.size() <= small * weight;
            self.pivots[j] = self.pivots[j] + if few { T::of(1.0) } else { T::ZERO };
            let inverse = T::of(1.0) / det;
            let (above, below) = (b1 * inverse, pivot * inverse);
            let (c0, a1) = (c0 * inverse, a1 * inverse);
            let e = fma::<T, LEVEL>(above, sum, -c0 * r[1][j]);
            u0[j] = fma::<T, LEVEL>(-u2[j], e, u0[j]);
            u1[j] = fma::<T, LEVEL>(-u2[j], above * left, u1[j]);
            u2[j] = u2[j] * c0 * c1;
            u3[j] = fma::<T, LEVEL>(below, r[1][j], -a1 * sum);
            u4[j] = -a1 * left;
            u5[j] = below * c1;
        }
    }

    #[inline(always)]
    fn row<const LEVEL: u8>(&mut self, a: &[T; W], b: &[T; W], c: &[T; W], d: &[T; W], small: T) {
        let [u0, u1, u2, u3, u4, u5] = &mut self.units;
        for j in 0..W {
            let (a, b, c, d) = (a[j], b[j], c[j], d[j]);
            let rest = a.size() + c.size();
            let pivot = fma::<T, LEVEL>(-a, u5[j], b);
            let excess = b.size() - rest;
            self.dominance[j] = if excess < self.dominance[j] { excess } else { self.dominance[j] };
            let small = pivot.size() <= small * (rest + b.size());
            self.pivots[j] = self.pivots[j] + if small { T::of(1.0) } else { T::ZERO };
            let inverse = T::of(1.0) / pivot;
            let e = fma::<T, LEVEL>(-a, u3[j], d) * inverse;
            let g = -a * u4[j] * inverse;
            let h = c * inverse;
            u0[j] = fma::<T, LEVEL>(-u2[j], e, u0[j]);
            u1[j] = fma::<T, LEVEL>(-u2[j], g, u1[j]);
            u2[j] = -u2[j] * h;
            u3[j] = e;
            u4[j] = g;
            u5[j] = h;
        }
    }

    fn unit(&self, j: usize) -> ([T; 6], u32) {
        let loose = self.dominance[j] < T::ZERO;
        let count = self.pivots[j].wide() as u32;
        (array(|k| self.units[k][j]), count | if loose { NOT_DOMINANT } else { 0 })
    }
}

pub(crate) type Turned<T> = [[T; LANES]; TURN];

/// Transposes rows `at … at + 7` of runs that begin `stride` rows apart: one row of all runs
/// becomes a vector.
#[inline(always)]
pub(crate) fn turn<T: Number, const LEVEL: u8>(source: &[T], at: usize, stride: usize, out: &mut Turned<T>) {
    let own = &source[at..][..(LANES - 1) * stride + TURN];
    transpose::<LEVEL, T>(array(|j| own[j * stride..].first_chunk().expect("runs have as many rows")), out);
}

/// Stage 1 of a strip of up to 1024 rows: from rows to reduced blocks.
struct StripReduction<'a, T> {
    rows: Diagonals<'a, T>,
    small: T,
    units: &'a mut [T],
    flags: &'a mut [u32],
}

impl<T: Number> Body for StripReduction<'_, T> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        let Diagonals { dl, d, du, rhs } = self.rows;
        let out = self.units.chunks_exact_mut(6).zip(self.flags);
        if d.len() < STRIP {
            for (k, (unit, flags)) in out.enumerate() {
                let mut elimination = UnitElimination::<T, 1>::new();
                for i in k * UNIT..d.len().min((k + 1) * UNIT) {
                    elimination.row::<LEVEL>(&[dl[i]], &[d[i]], &[du[i]], &[rhs[i]], self.small);
                }
                let numbers;
                (numbers, *flags) = elimination.unit(0);
                unit.copy_from_slice(&numbers);
            }
            return;
        }
        let mut elimination = UnitElimination::<T, LANES>::new();
        let zero: Turned<T> = [[T::ZERO; LANES]; TURN];
        let (mut a, mut b, mut c, mut r) = (zero, zero, zero, zero);
        for at in (0..UNIT).step_by(TURN) {
            turn::<T, LEVEL>(dl, at, UNIT, &mut a);
            turn::<T, LEVEL>(d, at, UNIT, &mut b);
            turn::<T, LEVEL>(du, at, UNIT, &mut c);
            turn::<T, LEVEL>(rhs, at, UNIT, &mut r);
            let pairs = a.as_chunks().0.iter().zip(b.as_chunks().0);
            for ((a, b), (c, r)) in pairs.zip(c.as_chunks().0.iter().zip(r.as_chunks().0)) {
                elimination.pair::<LEVEL>([a, b, c, r], self.small);
            }
        }
        for (j, (unit, flags)) in out.enumerate() {
            let numbers;
            (numbers, *flags) = elimination.unit(j);
            unit.copy_from_slice(&numbers);
        }
    }
}

/// Stage 3 of a strip of up to 1024 rows: from interface values to unknowns.
struct StripSolution<'a, T> {
    rows: Diagonals<'a, T>,
    values: &'a [T],
    back: &'a mut [BackSubstitution<T>],
    x: &'a mut [T],
    /// True if x is written with stores past the caches, which need not read the cache lines first.
    past: bool,
}

/// Eliminates two rows of every unit with one division, given x = e − h·x′ for the unknown x before
/// them and the next one x′.
/// Updates e and h to the second row. Returns the numbers for back substitution, and the
/// determinants.
#[inline(always)]
pub(crate) fn descend<T: Number, const LEVEL: u8>(
    [a, b, c, r]: [&[[T; LANES]; 2]; 4],
    e: &mut [T; LANES],
    h: &mut [T; LANES],
) -> (BackSubstitution<T>, [T; LANES]) {
    let (mut back, mut dets) = ([[T::ZERO; LANES]; 4], [T::ZERO; LANES]);
    for j in 0..LANES {
        let pivot = fma::<T, LEVEL>(-a[0][j], h[j], b[0][j]);
        let sum = fma::<T, LEVEL>(-a[0][j], e[j], r[0][j]);
        dets[j] = fma::<T, LEVEL>(pivot, b[1][j], -a[1][j] * c[0][j]);
        let inverse = T::of(1.0) / dets[j];
        let (upper, lower) = (b[1][j] * inverse, pivot * inverse);
        let (c0, a1) = (c[0][j] * inverse, a[1][j] * inverse);
        back[0][j] = fma::<T, LEVEL>(upper, sum, -c0 * r[1][j]);
        back[1][j] = -c0 * c[1][j];
        e[j] = fma::<T, LEVEL>(lower, r[1][j], -a1 * sum);
        h[j] = lower * c[1][j];
        (back[2][j], back[3][j]) = (e[j], h[j]);
    }
    (back, dets)
}

impl<T: Number> Body for StripSolution<'_, T> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        let Diagonals { dl, d, du, rhs } = self.rows;
        if d.len() < STRIP {
            let back = self.back.as_flattened_mut().as_flattened_mut();
            for (k, values) in self.values.chunks_exact(2).enumerate() {
                let here = k * UNIT..d.len().min((k + 1) * UNIT);
                let (mut e, mut h) = (values[0], T::ZERO);
                for (i, back) in here.clone().zip(back.chunks_exact_mut(2)) {
                    // From x_{i−1} = e − h·x_i to x_i = e − h·x_{i+1}.
                    let inverse = T::of(1.0) / fma::<T, LEVEL>(-dl[i], h, d[i]);
                    (e, h) = (fma::<T, LEVEL>(-dl[i], e, rhs[i]) * inverse, du[i] * inverse);
                    (back[0], back[1]) = (e, h);
                }
                let mut next = values[1];
                for (x, back) in self.x[here].iter_mut().zip(back.chunks_exact(2)).rev() {
                    next = fma::<T, LEVEL>(-back[1], next, back[0]);
                    *x = next;
                }
            }
            return;
        }
        let (back, x) = (&mut self.back[..UNIT / 2], &mut self.x[..STRIP]);
        let (mut e, mut h, mut next) = ([T::ZERO; LANES], [T::ZERO; LANES], [T::ZERO; LANES]);
        for j in 0..LANES {
            (e[j], next[j]) = (self.values[2 * j], self.values[2 * j + 1]);
        }
        let zero: Turned<T> = [[T::ZERO; LANES]; TURN];
        let (mut a, mut b, mut c, mut r) = (zero, zero, zero, zero);
        for at in (0..UNIT).step_by(TURN) {
            turn::<T, LEVEL>(dl, at, UNIT, &mut a);
            turn::<T, LEVEL>(d, at, UNIT, &mut b);
            turn::<T, LEVEL>(du, at, UNIT, &mut c);
            turn::<T, LEVEL>(rhs, at, UNIT, &mut r);
            let pairs = a.as_chunks().0.iter().zip(b.as_chunks().0);
            let pairs = pairs.zip(c.as_chunks().0.iter().zip(r.as_chunks().0));
            for (((a, b), (c, r)), back) in pairs.zip(&mut back[at / 2..][..TURN / 2]) {
                (*back, _) = descend::<T, LEVEL>([a, b, c, r], &mut e, &mut h);
            }
        }
        let mut turned = zero;
        for at in (0..UNIT).step_by(TURN).rev() {
            for (k, back) in back[at / 2..][..TURN / 2].iter().enumerate().rev() {
                for j in 0..LANES {
                    turned[2 * k + 1][j] = fma::<T, LEVEL>(-back[3][j], next[j], back[2][j]);
                    turned[2 * k][j] = fma::<T, LEVEL>(-back[1][j], next[j], back[0][j]);
                }
                next = turned[2 * k];
            }
            for j in 0..LANES {
                let run = x[j * UNIT + at..].first_chunk_mut().expect("a strip has all rows of a unit");
                let own: [T; TURN] = array(|k| turned[k][j]);
                if self.past {
                    stream::<LEVEL, T>(run, &own);
                } else {
                    *run = own;
                }
            }
        }
        if self.past {
            streamed();
        }
    }
}

/// Exponent s of the threshold 4^−s, relative to its row, below which a pivot of dominant rows is
/// small.
///
/// Each row adds a few rounding errors to later pivots. The last pivot of a singular matrix of n
/// rows is therefore about √n rounding errors, in the worst case a multiple of n.
pub(crate) fn small_exponent(precision: Precision) -> u32 {
    if matches!(precision, Precision::F32) { 8 } else { 18 }
}

/// Exponent s of the threshold 4^−s, relative to its row, below which a pivot is replaced: 2⁻⁵⁰ in
/// double and 2⁻²² in single precision.
pub(crate) fn least_exponent(precision: Precision) -> u32 {
    if matches!(precision, Precision::F32) { 11 } else { 25 }
}

/// Threshold 4^−s, relative to its row, below which a pivot is small.
pub(crate) fn small<T: Number>(s: u32) -> T {
    let root = T::of(f64::from(1u32 << s));
    T::of(1.0) / (root * root)
}

struct Strips<'a, T> {
    all: Diagonals<'a, T>,
    rows: usize,
    place: ChunkPlace,
}

impl<'a, T: Number> Strips<'a, T> {
    fn new(all: Diagonals<'a, T>, [rows, n, first, cyclic]: [u32; 4]) -> Self {
        let place = ChunkPlace { n: n as usize, first: first as usize, cyclic: cyclic == 1 };
        Self { all, rows: rows as usize, place }
    }

    /// Returns a strip, its off-diagonals zero at ends of systems, and back-substitution memory.
    fn strip<'s>(
        &'s self,
        strip: usize,
        scratch: &'s mut StripScratch<T>,
    ) -> (Diagonals<'s, T>, &'s mut [BackSubstitution<T>]) {
        let here = strip * STRIP..((strip + 1) * STRIP).min(self.rows);
        let (first, len) = (here.start, here.len());
        let rows = self.all.part(here);
        let cut = scratch.cut(rows, first, self.place);
        let StripScratch { dl, du, back } = scratch;
        (if cut { Diagonals { dl: &dl[..len], du: &du[..len], ..rows } } else { rows }, back)
    }
}

fn tridiagonal_reduce<T: Number>(
    _: &Call<'_>,
    p: tridiagonal_reduce::Params,
    b: tridiagonal_reduce::Bindings<'_, T>,
) {
    let all = Diagonals { dl: b.dl, d: b.d, du: b.du, rhs: b.rhs };
    let strips = Strips::new(all, [p.rows, p.n, p.first, p.cyclic]);
    let (small, count) = (small(p.small), strips.rows.div_ceil(UNIT));
    let units = b.units[..6 * count].par_chunks_mut(6 * LANES);
    let parts = units.zip(b.flags[..count].par_chunks_mut(LANES));
    parts.enumerate().with_min_len(STRIPS).for_each_init(
        StripScratch::new,
        |scratch, (strip, (units, flags))| {
            let (rows, _) = strips.strip(strip, scratch);
            dispatch(StripReduction { rows, small, units, flags });
        },
    );
}

fn tridiagonal_solve<T: Number>(
    _: &Call<'_>,
    p: tridiagonal_solve::Params,
    b: tridiagonal_solve::Bindings<'_, T>,
) {
    let all = Diagonals { dl: b.dl, d: b.d, du: b.du, rhs: b.rhs };
    let strips = Strips::new(all, [p.rows, p.n, p.first, p.cyclic]);
    let values = b.values[..2 * strips.rows.div_ceil(UNIT)].par_chunks(2 * LANES);
    let past = strips.rows >= UNCACHED;
    let x = b.x[..strips.rows].par_chunks_mut(STRIP);
    x.zip(values).enumerate().with_min_len(STRIPS).for_each_init(
        StripScratch::new,
        |scratch, (strip, (x, values))| {
            let (rows, back) = strips.strip(strip, scratch);
            dispatch(StripSolution { rows, values, back, x, past });
        },
    );
}

/// Joins up to 2^levels reduced blocks to one in a binary tree; missing blocks are empty.
///
/// Returns the joined block, and the combined `flags` of the blocks: [`NOT_DOMINANT`], and the
/// number of negligible pivots. Determinants of joins up to `small` count as negligible pivots.
///
/// A block of `units` that is the left part of a join is replaced by the equations of the two
/// unknowns at the boundary of that join, for back substitution.
fn join_all<T: Number>(units: &mut [T], flags: &[u32], levels: u32, small: T) -> (ReducedBlock<T>, u32) {
    let count = flags.len();
    let mut tree: Vec<ReducedBlock<T>> = units.chunks_exact(6).map(ReducedBlock::of).collect();
    tree.resize(1 << levels, ReducedBlock::empty());
    let mut bad = all_flags(flags.iter().copied());
    for half in (0..levels).map(|level| 1usize << level) {
        for start in (0..count).step_by(2 * half) {
            let (left, right) = (start + half - 1, start + 2 * half - 1);
            let (whole, between, det) = tree[left].join::<UNFUSED>(&tree[right]);
            bad += u32::from(det.size() <= small);
            (tree[left], tree[right]) = (between, whole);
        }
    }
    units.chunks_exact_mut(6).zip(&tree).for_each(|(unit, node)| unit.copy_from_slice(&node.u));
    (tree[tree.len() - 1], bad)
}

/// Computes the interface values of 2^levels units from `ends`, those of the block that joins them
/// all, and from the `nodes` that [`join_all`] left.
fn back_substitute<T: Number>(nodes: &[T], levels: u32, ends: [T; 2], values: &mut [T]) {
    // After the last unit: the first unknown there is x_right of the root.
    let behind = ReducedBlock { u: [T::ZERO, T::ZERO, T::ZERO, T::ZERO, T::ZERO, T::of(-1.0)] };
    let (count, last) = (values.len() / 2, (1usize << levels) - 1);
    // Unknowns on the left and right side of each unit's right end.
    let mut sides = vec![(T::ZERO, T::ZERO); last + 1];
    let left_of = |sides: &[(T, T)], unit: usize| if unit > 0 { sides[unit - 1].0 } else { ends[0] };
    let right_of = |sides: &[(T, T)], unit: usize| if unit < last { sides[unit].1 } else { ends[1] };
    for half in (0..levels).rev().map(|level| 1usize << level) {
        for start in (0..count).step_by(2 * half) {
            let (middle, end) = (start + half - 1, start + 2 * half - 1);
            let node = nodes.get(6 * middle..6 * middle + 6).map_or(behind, ReducedBlock::of);
            let (left, right) = (left_of(&sides, start), right_of(&sides, end));
            sides[middle] = node.between::<UNFUSED>(left, right);
        }
    }
    for (unit, values) in values.chunks_exact_mut(2).enumerate() {
        values.copy_from_slice(&[left_of(&sides, unit), right_of(&sides, unit)]);
    }
}

fn tridiagonal_merge<T: Number>(
    _: &Call<'_>,
    p: tridiagonal_merge::Params,
    b: tridiagonal_merge::Bindings<'_, T>,
) {
    let (count, small, levels) = (p.count as usize, small(p.small), p.levels);
    let (units, flags) = (&mut b.units[..6 * count], &b.flags[..count]);
    let (above, flags_above) = (b.above, b.flags_above);
    let (fan, wholes) = (1usize << levels, FAN >> levels);
    let parts = units.par_chunks_mut(6 * FAN).zip(flags.par_chunks(FAN));
    let parts = parts.zip(above.par_chunks_mut(6 * wholes)).zip(flags_above.par_chunks_mut(wholes));
    parts.for_each(|(((units, flags), above), bad)| {
        let groups = units.chunks_mut(6 * fan).zip(flags.chunks(fan));
        for (((units, flags), above), bad) in groups.zip(above.chunks_exact_mut(6)).zip(bad) {
            let whole;
            (whole, *bad) = join_all(units, flags, levels, small);
            above.copy_from_slice(&whole.u);
        }
    });
}

fn tridiagonal_expand<T: Number>(
    _: &Call<'_>,
    p: tridiagonal_expand::Params,
    b: tridiagonal_expand::Bindings<'_, T>,
) {
    let (count, levels) = (p.count as usize, p.levels);
    let (units, above) = (&b.units[..6 * count], b.above);
    let values = b.values[..2 * count].par_chunks_mut(2 * FAN);
    let (fan, wholes) = (1usize << levels, FAN >> levels);
    values.zip(units.par_chunks(6 * FAN)).zip(above.par_chunks(2 * wholes)).for_each(
        |((values, nodes), ends)| {
            let groups = values.chunks_mut(2 * fan).zip(nodes.chunks(6 * fan)).zip(ends.chunks_exact(2));
            groups.for_each(|((values, nodes), ends)| {
                back_substitute(nodes, levels, [ends[0], ends[1]], values);
            });
        },
    );
}

fn tridiagonal_interface<T: Number>(
    _: &Call<'_>,
    p: tridiagonal_interface::Params,
    b: tridiagonal_interface::Bindings<'_, T>,
) {
    let [count, share, width] = [p.count, p.share, p.width].map(|n| n as usize);
    let (levels, cyclic, small) = ((share * width).ilog2(), p.cyclic == 1, small(p.small));
    let (units, flags) = (&b.units[..6 * count], &b.flags[..count]);
    let (nodes, values) = (&mut b.nodes[..6 * count], &mut b.values[..2 * count]);
    nodes.copy_from_slice(units);
    let (whole, mut bad) = join_all(nodes, flags, levels, small);
    let mut ends = [b.ends[0], b.ends[1]];
    if cyclic {
        let (closed, det) = whole.closed();
        let [_, u1, _, _, _, u5] = whole.u;
        bad += u32::from(det.size() <= small * (u1.size() + u5.size() + T::of(1.0)));
        ends = closed;
    }
    b.above[..6].copy_from_slice(&whole.u);
    b.flags_above[0] = bad;
    back_substitute(nodes, levels, ends, values);
}
