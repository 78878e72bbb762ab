//! The kernels of the partition method and their CPU twins.

use rayon::prelude::*;

use super::unit::{Number, Unit, fma};
use crate::kernel::{Kernel, kernel};
use crate::lane::cpu::Call;
use crate::lane::cpu::simd::{Body, dispatch};

/// Tiles become units.
pub static REDUCE: Kernel = kernel!(tridiagonal_reduce);
/// Units become units of the next level.
pub static MERGE: Kernel = kernel!(tridiagonal_merge);
/// The interface system.
pub static INTERFACE: Kernel = kernel!(tridiagonal_interface);
/// From the unknowns next to the next level's units to those next to this level's.
pub static EXPAND: Kernel = kernel!(tridiagonal_expand);
/// A tile's unknowns.
pub static SOLVE: Kernel = kernel!(tridiagonal_solve);

/// Every kernel of this engine.
pub static ALL: [&Kernel; 7] = [
    &REDUCE,
    &MERGE,
    &INTERFACE,
    &EXPAND,
    &SOLVE,
    &super::block_kernels::BLOCK_REDUCE,
    &super::block_kernels::BLOCK_SOLVE,
];

/// Rows of a tile.
pub const TILE: usize = 2048;
/// Units that one workgroup joins to one.
pub const FAN: usize = 256;

/// In flags: a row's diagonal is smaller than the sum of its neighbours. The bits below count pivots that are next to
/// nothing against their row.
pub const NOT_DOMINANT: u32 = 1 << 31;

/// Flags of two parts.
pub(super) fn both(a: u32, b: u32) -> u32 {
    ((a | b) & NOT_DOMINANT) | ((a & !NOT_DOMINANT) + (b & !NOT_DOMINANT))
}

/// Rows that the twins eliminate at the same time, one a vector lane.
const LANES: usize = 16;
/// Rows of each of them in a tile.
const RUN: usize = TILE / LANES;
/// Rows that are brought into the order of the vector lanes at a time: a cache line of f64.
const TURN: usize = 8;

/// What a tile's rows are made of.
#[derive(Clone, Copy)]
struct Rows<'a, T> {
    dl: &'a [T],
    d: &'a [T],
    du: &'a [T],
    rhs: &'a [T],
}

/// Where a chunk lies in its systems.
#[derive(Clone, Copy)]
struct Place {
    n: usize,
    first: usize,
    ring: bool,
}

/// The ends of diagonals that lie inside of a tile, set to zero.
struct Cut<T> {
    dl: [T; TILE],
    du: [T; TILE],
}

impl<T: Number> Cut<T> {
    /// A copy of the two diagonals, if the tile that begins at `row` holds an end of a system.
    fn of(rows: Rows<'_, T>, row: usize, place: Place) -> Option<Box<Self>> {
        let (n, len) = (place.n, rows.d.len());
        let start = (place.first + row) % n;
        if place.ring || (start != 0 && start + len < n) {
            return None;
        }
        let mut cut = Box::new(Self { dl: [T::ZERO; TILE], du: [T::ZERO; TILE] });
        cut.dl[..len].copy_from_slice(rows.dl);
        cut.du[..len].copy_from_slice(rows.du);
        // The first row of a system that lies at or behind the tile's first.
        let mut at = (n - start) % n;
        if at > 0 && at <= len {
            cut.du[at - 1] = T::ZERO;
        }
        while at < len {
            cut.dl[at] = T::ZERO;
            if at + n <= len {
                cut.du[at + n - 1] = T::ZERO;
            }
            at += n;
        }
        Some(cut)
    }
}

/// `W` runs of rows, eliminated downwards side by side.
struct Sweep<T, const W: usize> {
    units: [[T; W]; 6],
    /// Least |b| − |a| − |c|, and how often |pivot| ≤ small·(|a| + |b| + |c|).
    dominance: [T; W],
    pivots: [T; W],
}

impl<T: Number, const W: usize> Sweep<T, W> {
    #[inline(always)]
    fn new() -> Self {
        let (zero, minus) = ([T::ZERO; W], [T::of(-1.0); W]);
        Self { units: [zero, zero, minus, zero, minus, zero], dominance: [T::of(1.0); W], pivots: zero }
    }

    /// One more row of each run; gives what it leaves for the way back.
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

    fn unit(&self, j: usize) -> Unit<T> {
        Unit { u: std::array::from_fn(|k| self.units[k][j]) }
    }

    fn flags(&self) -> u32 {
        let loose = !self.dominance.iter().all(|&v| v >= T::ZERO);
        let count: f64 = self.pivots.iter().map(|v| v.wide()).sum();
        count as u32 | if loose { NOT_DOMINANT } else { 0 }
    }
}

/// Rows `at … at + 7` of each run, turned so that one row of all runs is a vector.
#[inline(always)]
fn turn<T: Number>(source: &[T], at: usize, out: &mut Turned<T>) {
    let source = &source[..TILE];
    for j in 0..LANES {
        let run = &source[j * RUN + at..][..TURN];
        for r in 0..TURN {
            out[r][j] = run[r];
        }
    }
}

type Turned<T> = [[T; LANES]; TURN];

/// What a thread of the CPU lane keeps for the way back through a tile: x_i = e − g·x_left − h·x_{i+1}.
struct Back<T>(Box<[[[T; LANES]; 3]]>);

impl<T: Number> Back<T> {
    fn new() -> Self {
        Self(vec![[[T::ZERO; LANES]; 3]; RUN].into_boxed_slice())
    }
}

/// One tile up to its unit.
struct Up<'a, T> {
    rows: Rows<'a, T>,
    small: T,
    unit: &'a mut [T],
    flags: &'a mut u32,
}

impl<T: Number> Body for Up<'_, T> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        let (unit, flags) = if self.rows.d.len() == TILE {
            let sweep = eliminate::<T, LEVEL>(self.rows, self.small, |_, _| {});
            let mut flags = sweep.flags();
            let (whole, _) = join_runs::<T, LEVEL>(&sweep, self.small, &mut flags);
            (whole, flags)
        } else {
            let sweep = eliminate_ragged::<T, LEVEL>(self.rows, self.small, |_, _| {});
            (sweep.unit(0), sweep.flags())
        };
        self.unit.copy_from_slice(&unit.u);
        *self.flags = flags;
    }
}

/// One tile down to its unknowns, from those next to it.
struct Down<'a, T> {
    rows: Rows<'a, T>,
    outer: [T; 2],
    back: &'a mut Back<T>,
    x: &'a mut [T],
}

impl<T: Number> Body for Down<'_, T> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        let [left, right] = self.outer;
        if self.rows.d.len() < TILE {
            let back = self.back.0.as_flattened_mut().as_flattened_mut();
            eliminate_ragged::<T, LEVEL>(self.rows, T::ZERO, |i, row| {
                back[3 * i..3 * i + 3].copy_from_slice(&row)
            });
            let mut next = right;
            for (x, row) in self.x.iter_mut().zip(back.chunks_exact(3)).rev() {
                next = fma::<T, LEVEL>(-row[2], next, fma::<T, LEVEL>(-row[1], left, row[0]));
                *x = next;
            }
            return;
        }
        let back = &mut self.back.0[..RUN];
        let sweep = eliminate::<T, LEVEL>(self.rows, T::ZERO, |i, row| back[i] = row);
        let (_, nodes) = join_runs::<T, LEVEL>(&sweep, T::ZERO, &mut 0);
        let (mut lefts, mut next) = ([left; LANES], [right; LANES]);
        let mut after = right;
        for j in (0..LANES).rev() {
            next[j] = after;
            (lefts[j], after) = nodes[j].between::<LEVEL>(left, after);
        }
        let x = &mut self.x[..TILE];
        let mut turned: Turned<T> = [[T::ZERO; LANES]; TURN];
        for at in (0..RUN).step_by(TURN).rev() {
            for r in (0..TURN).rev() {
                let [e, g, h] = &back[at + r];
                for j in 0..LANES {
                    next[j] = fma::<T, LEVEL>(-h[j], next[j], fma::<T, LEVEL>(-g[j], lefts[j], e[j]));
                }
                turned[r] = next;
            }
            for j in 0..LANES {
                let run = &mut x[j * RUN + at..][..TURN];
                for r in 0..TURN {
                    run[r] = turned[r][j];
                }
            }
        }
    }
}

/// A whole tile downwards, in runs side by side.
#[inline(always)]
fn eliminate<T: Number, const LEVEL: u8>(
    rows: Rows<'_, T>,
    small: T,
    mut keep: impl FnMut(usize, [[T; LANES]; 3]),
) -> Sweep<T, LANES> {
    let mut sweep = Sweep::<T, LANES>::new();
    let zero: Turned<T> = [[T::ZERO; LANES]; TURN];
    let (mut a, mut b, mut c, mut d) = (zero, zero, zero, zero);
    for at in (0..RUN).step_by(TURN) {
        turn(rows.dl, at, &mut a);
        turn(rows.d, at, &mut b);
        turn(rows.du, at, &mut c);
        turn(rows.rhs, at, &mut d);
        for r in 0..TURN {
            sweep.row::<LEVEL>(&a[r], &b[r], &c[r], &d[r], small);
            keep(at + r, [sweep.units[3], sweep.units[4], sweep.units[5]]);
        }
    }
    sweep
}

/// A tile of any length, one row after the other.
#[inline(always)]
fn eliminate_ragged<T: Number, const LEVEL: u8>(
    rows: Rows<'_, T>,
    small: T,
    mut keep: impl FnMut(usize, [T; 3]),
) -> Sweep<T, 1> {
    let mut sweep = Sweep::<T, 1>::new();
    for i in 0..rows.d.len() {
        sweep.row::<LEVEL>(&[rows.dl[i]], &[rows.d[i]], &[rows.du[i]], &[rows.rhs[i]], small);
        keep(i, [sweep.units[3][0], sweep.units[4][0], sweep.units[5][0]]);
    }
    sweep
}

/// The runs of a tile as one unit, and what gives the unknowns at the left end of each run.
#[inline(always)]
fn join_runs<T: Number, const LEVEL: u8>(
    sweep: &Sweep<T, LANES>,
    small: T,
    flags: &mut u32,
) -> (Unit<T>, [Unit<T>; LANES]) {
    let mut nodes = [Unit::EMPTY; LANES];
    let mut whole = Unit::EMPTY;
    for (j, node) in nodes.iter_mut().enumerate() {
        let det;
        (whole, *node, det) = whole.join::<LEVEL>(&sweep.unit(j));
        *flags += u32::from(det.size() <= small);
    }
    (whole, nodes)
}

/// The share of a row below which a pivot is small: 4^−s.
pub(super) fn small<T: Number>(s: u32) -> T {
    let root = T::of(f64::from(1u32 << s));
    T::of(1.0) / (root * root)
}

/// A chunk's diagonals, by tiles.
struct Chunk<'a, T> {
    all: [&'a [T]; 4],
    rows: usize,
    place: Place,
}

impl<'a, T: Number> Chunk<'a, T> {
    fn of(call: &Call<'a>) -> Self {
        let place =
            Place { n: call.param(2) as usize, first: call.param(3) as usize, ring: call.param(4) == 1 };
        Self { all: [0, 1, 2, 3].map(|binding| call.read::<T>(binding)), rows: call.param(1) as usize, place }
    }

    fn tiles(&self) -> usize {
        self.rows.div_ceil(TILE)
    }

    /// Gives `work` a tile whose rows at the ends of systems have no neighbour beyond.
    fn tile(&self, tile: usize, work: impl FnOnce(Rows<'_, T>)) {
        let here = tile * TILE..(tile * TILE + TILE).min(self.rows);
        let [dl, d, du, rhs] = self.all.map(|a| &a[here.clone()]);
        let rows = Rows { dl, d, du, rhs };
        match Cut::of(rows, tile * TILE, self.place) {
            Some(cut) => work(Rows { dl: &cut.dl[..dl.len()], du: &cut.du[..du.len()], ..rows }),
            None => work(rows),
        }
    }
}

fn tridiagonal_reduce<T: Number>(call: &Call<'_>) {
    let chunk = Chunk::<T>::of(call);
    let small = small(call.param(5));
    let units = call.write::<T>(4)[..6 * chunk.tiles()].par_chunks_exact_mut(6);
    units.zip(call.write::<u32>(5)).enumerate().with_min_len(8).for_each(|(tile, (unit, flags))| {
        chunk.tile(tile, |rows| dispatch(Up { rows, small, unit, flags }));
    });
}

fn tridiagonal_solve<T: Number>(call: &Call<'_>) {
    let chunk = Chunk::<T>::of(call);
    let outer = call.read::<T>(4);
    let x = call.write::<T>(5)[..chunk.rows].par_chunks_mut(TILE);
    x.enumerate().with_min_len(8).for_each_init(Back::new, |back, (tile, x)| {
        let outer = [outer[2 * tile], outer[2 * tile + 1]];
        chunk.tile(tile, |rows| dispatch(Down { rows, outer, back, x }));
    });
}

/// Joins units in order; in the place of each stays what gives the unknowns at its left end.
fn join_all<T: Number>(units: &[T], nodes: &mut [T], flags: &[u32], small: T) -> (Unit<T>, u32) {
    let (mut whole, mut bad) = (Unit::EMPTY, 0);
    for ((unit, node), flags) in units.chunks_exact(6).zip(nodes.chunks_exact_mut(6)).zip(flags) {
        let (joined, between, det) = whole.join::<{ crate::lane::cpu::simd::PORTABLE }>(&Unit::of(unit));
        bad = both(bad, *flags) + u32::from(det.size() <= small);
        node.copy_from_slice(&between.u);
        whole = joined;
    }
    (whole, bad)
}

/// The unknowns next to each unit, from those next to all of them.
fn spread<T: Number>(nodes: &[T], [left, mut right]: [T; 2], outer: &mut [T]) {
    for (node, outer) in nodes.chunks_exact(6).zip(outer.chunks_exact_mut(2)).rev() {
        let (before, first) = Unit::of(node).between::<{ crate::lane::cpu::simd::PORTABLE }>(left, right);
        outer.copy_from_slice(&[before, right]);
        right = first;
    }
}

fn tridiagonal_merge<T: Number>(call: &Call<'_>) {
    let (count, small) = (call.param(1) as usize, small(call.param(2)));
    let (units, flags) = (&mut call.write::<T>(0)[..6 * count], &call.read::<u32>(1)[..count]);
    let (above, flags_above) = (call.write::<T>(2), call.write::<u32>(3));
    let parts = units.par_chunks_mut(6 * FAN).zip(flags.par_chunks(FAN));
    parts.zip(above.par_chunks_exact_mut(6)).zip(flags_above).for_each(|(((units, flags), above), bad)| {
        let from = units.to_vec();
        let whole;
        (whole, *bad) = join_all(&from, units, flags, small);
        above.copy_from_slice(&whole.u);
    });
}

fn tridiagonal_expand<T: Number>(call: &Call<'_>) {
    let count = call.param(1) as usize;
    let (units, above) = (&call.read::<T>(0)[..6 * count], call.read::<T>(1));
    let outer = call.write::<T>(2)[..2 * count].par_chunks_mut(2 * FAN);
    outer.zip(units.par_chunks(6 * FAN)).zip(above.par_chunks_exact(2)).for_each(|((outer, nodes), ends)| {
        spread(nodes, [ends[0], ends[1]], outer);
    });
}

fn tridiagonal_interface<T: Number>(call: &Call<'_>) {
    let (count, ring, small) = (call.param(1) as usize, call.param(3) == 1, small(call.param(4)));
    let (units, flags) = (&call.read::<T>(0)[..6 * count], call.read::<u32>(1));
    let (nodes, outer) = (&mut call.write::<T>(3)[..6 * count], &mut call.write::<T>(4)[..2 * count]);
    let (whole, mut bad) = join_all(units, nodes, flags, small);
    let given = call.read::<T>(2);
    let mut ends = [given[0], given[1]];
    if ring {
        let (closed, det) = whole.ring();
        let [_, u1, _, _, _, u5] = whole.u;
        bad += u32::from(det.size() <= small * (u1.size() + u5.size() + T::of(1.0)));
        ends = closed;
    }
    call.write::<T>(5)[..6].copy_from_slice(&whole.u);
    call.write::<u32>(6)[0] = bad;
    spread(nodes, ends, outer);
}
