//! Walks straight from A in compressed rows, without a table, an order, sweeps or a certificate: what they cost does not
//! depend on the size of the system. What is known of L is what the rows that walks met say; their intervals are
//! conditional on the others being no worse.

use std::sync::Mutex;

use rayon::prelude::*;

use super::chains::{Round, Task, Watch};
use super::kernels::BLOCK;
use super::sequence::philox::philox;
use super::sequence::{Points, Sequence, Stream};
use crate::kernel::{Precision, Real, kernel};
use crate::lane::cpu::Call;
use crate::lane::cpu::simd::{Body, dispatch, fused};
use crate::lane::{Buffer, Lane, Program};
use crate::number::exponent;
use crate::ranks::Ranks;
use crate::sparse::CsrMatrix;
use crate::{Error, Result};

kernel! {
    /// Sums of walks over blocks, and the largest row sum, the largest |f| and the most entries of a row that they met.
    pub static WALK_LAZY = walk_lazy + random + walk_block + tree(
        groups, first, end, per_task, first_point, end_point, length, cut, sequence, scramble,
        tabled, seed_low, seed_high, given,
    )(
        starts: &[u32], columns: &[u32], values: &[T], rhs: &[T], tasks: &[[u32; 4]], table: &[u32],
        out: &mut [[T; 4]],
    );
}

/// The number of entries that stands for a row without a diagonal entry: columns are counted in 32 bits.
const NO_DIAGONAL: f64 = 8_589_934_592.0;

/// Compressed rows, wherever they lie.
pub(super) trait Rows: Sync {
    /// Where row i begins and ends.
    fn range(&self, i: usize) -> std::ops::Range<usize>;
    /// Column and value of an entry.
    fn entry(&self, e: usize) -> (u32, f64);
    /// b_i.
    fn rhs(&self, i: usize) -> f64;
}

/// The arrays of a launch.
struct Launched<'a, T> {
    starts: &'a [u32],
    columns: &'a [u32],
    values: &'a [T],
    rhs: &'a [T],
}

impl<T: Real> Rows for Launched<'_, T> {
    #[inline(always)]
    fn range(&self, i: usize) -> std::ops::Range<usize> {
        self.starts[i] as usize..self.starts[i + 1] as usize
    }

    #[inline(always)]
    fn entry(&self, e: usize) -> (u32, f64) {
        (self.columns[e], self.values[e].wide())
    }

    #[inline(always)]
    fn rhs(&self, i: usize) -> f64 {
        self.rhs[i].wide()
    }
}

/// The walks of one block: θ, the largest row sum, the largest |f| and the most entries of a row of each.
pub(super) struct LazyBlock<'a, T, R> {
    pub(super) rows: &'a R,
    pub(super) given: bool,
    pub(super) points: &'a Points,
    pub(super) stream: Stream,
    pub(super) row: u32,
    pub(super) first_point: u32,
    pub(super) walks: usize,
    pub(super) length: u32,
    pub(super) cut: T,
    pub(super) out: &'a mut [[T; 4]; BLOCK],
}

/// Dimensions whose coordinates are made at a time.
const DIMENSIONS: usize = 16;

impl<T: Real, R: Rows> Body for LazyBlock<'_, T, R> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        let fma = match fused(LEVEL) {
            true => T::fma::<true>,
            false => T::fma::<false>,
        };
        let size = |a: T| a.distance(T::ZERO);
        let mut coordinates = [0u32; BLOCK * DIMENSIONS];
        let mut state = [self.row; BLOCK];
        let mut weight = [T::of(1.0); BLOCK];
        let mut live: [u16; BLOCK] = std::array::from_fn(|i| i as u16);
        let mut walking = self.walks;
        let mut j = 0;
        while walking > 0 {
            let place = j as usize % DIMENSIONS;
            if place == 0 && j < self.length {
                let dimensions = (self.length - j).min(DIMENSIONS as u32);
                let out = &mut coordinates[..dimensions as usize * self.walks];
                self.points.fill(self.stream, self.first_point, j..j + dimensions, out);
            }
            let mut kept = 0;
            for k in 0..walking {
                let i = live[k] as usize;
                let row = state[i];
                let range = self.rows.range(row as usize);
                let mut diagonal = T::of(f64::from(u8::from(self.given)));
                let mut sum = T::ZERO;
                for e in range.clone() {
                    let (column, a) = self.rows.entry(e);
                    let a = T::of(a);
                    if !self.given && column == row {
                        diagonal = a;
                    } else {
                        sum = sum.plus(size(a));
                    }
                }
                let [theta, worst, largest, longest] = &mut self.out[i];
                if diagonal == T::ZERO {
                    *longest = T::of(NO_DIAGONAL);
                    continue;
                }
                let entries = T::of(range.len() as f64);
                if entries > *longest {
                    *longest = entries;
                }
                // The quotients of f32 numbers in f64 round to those in f32.
                let over = |a: T, b: T| T::of(a.wide() / b.wide());
                let f = over(T::of(self.rows.rhs(row as usize)), diagonal);
                *theta = fma(weight[i], f, *theta);
                if size(f) > *largest {
                    *largest = size(f);
                }
                let norm = over(sum, size(diagonal));
                if norm > *worst {
                    *worst = norm;
                }
                if j == self.length {
                    continue;
                }
                let mut w = weight[i].times(norm);
                if size(w) <= self.cut {
                    continue;
                }
                let u = coordinates[place * self.walks + i];
                let fraction = T::of(f64::from(u)).plus(T::of(0.5)).times(T::of(2.328_306_436_538_696_3e-10));
                let aim = fraction.times(sum);
                let (mut reached, mut next, mut positive) = (T::ZERO, row, true);
                for e in range {
                    let (column, a) = self.rows.entry(e);
                    if (!self.given && column == row) || a == 0.0 {
                        continue;
                    }
                    (next, positive) = (column, a > 0.0);
                    reached = reached.plus(size(T::of(a)));
                    if reached > aim {
                        break;
                    }
                }
                if positive != (self.given || diagonal < T::ZERO) {
                    w = T::of(-1.0).times(w);
                }
                weight[i] = w;
                state[i] = next;
                live[kept] = i as u16;
                kept += 1;
            }
            walking = kept;
            j += 1;
        }
    }
}

/// The sum of a block's θ as a tree, and the largest of the rest.
pub(super) fn fold<T: Real>(values: &mut [[T; 4]; BLOCK]) -> [T; 4] {
    let larger = |a: T, b: T| if b > a { b } else { a };
    let mut half = BLOCK / 2;
    while half > 0 {
        let (low, high) = values.split_at_mut(half);
        for (l, h) in low.iter_mut().zip(high) {
            *l = [l[0].plus(h[0]), larger(l[1], h[1]), larger(l[2], h[2]), larger(l[3], h[3])];
        }
        half /= 2;
    }
    values[0]
}

fn walk_lazy<T: Real>(_: &Call<'_>, p: walk_lazy::Params, b: walk_lazy::Bindings<'_, T>) {
    let walk_lazy::Bindings { starts, columns, values, rhs, tasks, table, out, .. } = b;
    let rows = Launched { starts, columns, values, rhs };
    let walk_lazy::Params { groups, end, per_task, length, .. } = p;
    let first = (p.first + p.step * groups).min(end);
    let (begin, stop, given) = (p.first_point, p.end_point, p.given == 1);
    let cut = T::of(f64::from(f32::from_bits(p.cut)));
    let points = Points::of_call(p.sequence, p.scramble, p.tabled, [p.seed_low, p.seed_high], table);
    let out = &mut out[first as usize..(first + groups).min(end) as usize];
    out.par_iter_mut().enumerate().for_each(|(k, out)| {
        let block = first + k as u32;
        let [row, key, component, replicate] = tasks[(block / per_task) as usize];
        let first_point = begin + block % per_task * BLOCK as u32;
        let mut values = [[T::ZERO; 4]; BLOCK];
        dispatch(LazyBlock {
            rows: &rows,
            given,
            points: &points,
            stream: Stream { key, component, replicate },
            row,
            first_point,
            walks: (stop - first_point).min(BLOCK as u32) as usize,
            length,
            cut,
            out: &mut values,
        });
        *out = fold(&mut values);
    });
}

/// The system as its owner has it.
#[derive(Debug, Clone, Copy)]
pub struct Rough<'a> {
    /// A, or L itself.
    pub matrix: &'a CsrMatrix,
    /// b, or f.
    pub rhs: &'a [f64],
    /// Whether they are L and f.
    pub given: bool,
    /// Powers of 2 that the right-hand side is walked on times.
    pub powers: [f64; 3],
}

impl Rough<'_> {
    /// a_ii, or 1 where the matrix is L, and Σ_j |a_ij| of the others.
    fn sums(&self, i: usize) -> (f64, f64) {
        let (mut diagonal, mut sum) = (f64::from(u8::from(self.given)), 0.0);
        for (j, a) in self.range(i).map(|e| self.entry(e)) {
            match !self.given && j as usize == i {
                true => diagonal = a,
                false => sum += a.abs(),
            }
        }
        (diagonal, sum)
    }
}

impl Rows for Rough<'_> {
    #[inline(always)]
    fn range(&self, i: usize) -> std::ops::Range<usize> {
        self.matrix.starts()[i]..self.matrix.starts()[i + 1]
    }

    #[inline(always)]
    fn entry(&self, e: usize) -> (u32, f64) {
        (self.matrix.column()[e], self.matrix.value()[e])
    }

    #[inline(always)]
    fn rhs(&self, i: usize) -> f64 {
        let [one, two, three] = self.powers;
        self.rhs[i] * one * two * three
    }
}

/// What the rows that walks met say of L and f.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Met {
    /// Largest row sum of |L|.
    pub norm: f64,
    /// Largest |f|.
    pub f: f64,
    /// Entries of the longest row, the diagonal's among them.
    pub longest: f64,
}

impl Met {
    pub(super) const NOTHING: Self = Self { norm: 0.0, f: 0.0, longest: 0.0 };

    pub(super) fn and(self, other: Self) -> Self {
        Self {
            norm: self.norm.max(other.norm),
            f: self.f.max(other.f),
            longest: self.longest.max(other.longest),
        }
    }

    /// An error if walks met what they cannot walk on.
    fn check(self) -> Result<Self> {
        let fail = |reason: &str| Err(Error::Invalid(format!("a row that walks met {reason}")));
        if self.longest >= NO_DIAGONAL {
            return fail("has no diagonal entry, or 0 there; without --lazy the message names it");
        }
        if !(self.norm.is_finite() && self.f.is_finite()) {
            return fail("has an entry that is no finite number; without --lazy the message names it");
        }
        Ok(self)
    }
}

/// A few short walks from each of some rows; `see` gets the rows that they meet, with their diagonal entries and the sums
/// of the others.
fn scout(
    rough: &Rough<'_>,
    rows: &[u32],
    seed: u64,
    mut see: impl FnMut(usize, f64, f64) -> Result<()>,
) -> Result<()> {
    const WALKS: u32 = 16;
    const STEPS: u32 = 64;
    const MOST: usize = 64;
    let key = [seed as u32, (seed >> 32) as u32];
    for &first in rows.iter().take(MOST) {
        for walk in 0..WALKS {
            let mut row = first;
            for step in 0..STEPS {
                let i = row as usize;
                let entries = rough
                    .range(i)
                    .map(|e| rough.entry(e))
                    .filter(|&(j, a)| (rough.given || j != row) && a != 0.0);
                let (diagonal, sum) = rough.sums(i);
                see(i, diagonal, sum)?;
                let word = philox([walk, step, first, 0x7363_6f75], key)[0];
                let mut left = f64::from(word) / 4_294_967_296.0 * sum;
                let mut next = None;
                for (j, a) in entries {
                    next = Some(j);
                    left -= a.abs();
                    if left < 0.0 {
                        break;
                    }
                }
                match next {
                    Some(next) => row = next,
                    None => break,
                }
            }
        }
    }
    Ok(())
}

/// The exponent of the largest |f| that a few walks meet, 0 where they meet none.
pub(super) fn size(rough: &Rough<'_>, rows: &[u32], seed: u64) -> Result<i32> {
    let mut largest = None;
    scout(rough, rows, seed, |i, diagonal, _| {
        let b = rough.rhs[i];
        if b != 0.0 && diagonal != 0.0 {
            largest = largest.max(Some(exponent(b) - exponent(diagonal)));
        }
        Ok(())
    })?;
    Ok(largest.unwrap_or(0))
}

/// What a few walks meet.
pub(super) fn first_look(rough: &Rough<'_>, rows: &[u32], seed: u64) -> Result<Met> {
    let mut met = Met::NOTHING;
    scout(rough, rows, seed, |i, diagonal, sum| {
        let longest = if diagonal == 0.0 { NO_DIAGONAL } else { rough.range(i).len() as f64 };
        // Not the greater of the two: a NaN has to stay.
        let here = Met { norm: sum / diagonal.abs(), f: (rough.rhs(i) / diagonal).abs(), longest }.check()?;
        met = met.and(here);
        Ok(())
    })?;
    Ok(met)
}

/// The least |a| that is not 0.
///
/// # Errors
/// [`Error::Invalid`] for one that f32 does not hold to its 24 bits.
pub(super) fn least_in_f32(matrix: &CsrMatrix) -> Result<f64> {
    let normal = |a: f64| a == 0.0 || (a.abs() as f32).is_normal();
    if let Some(a) = matrix.value().par_iter().find_first(|&&a| !normal(a)) {
        return Err(Error::Invalid(format!(
            "the matrix has an entry {a:e}, which is none of f32's numbers; use --precision f64, or leave out --lazy"
        )));
    }
    let size = |&a: &f64| if a == 0.0 { f64::INFINITY } else { a.abs() };
    Ok(matrix.value().par_iter().map(size).reduce(|| f64::INFINITY, f64::min))
}

/// Lanes that walk on the compressed rows. CPUs walk on those of the host, devices on a copy.
pub(super) struct LazyChains<'a> {
    lanes: &'a [Lane],
    precision: Precision,
    rough: Rough<'a>,
    points: &'a Points,
    copies: Vec<Option<Copy>>,
    ranks: Ranks,
}

/// The arrays on a device.
struct Copy {
    starts: Buffer<u32>,
    columns: Buffer<u32>,
    numbers: Numbers,
    table: Buffer<u32>,
}

/// Values and right-hand side in a run's precision.
enum Numbers {
    Single(Buffer<f32>, Buffer<f32>),
    Double(Buffer<f64>, Buffer<f64>),
}

impl<'a> LazyChains<'a> {
    pub(super) fn new(
        lanes: &'a [Lane],
        precision: Precision,
        rough: Rough<'a>,
        points: &'a Points,
        ranks: Ranks,
    ) -> Result<Self> {
        if !matches!(points.sequence(), Sequence::Sobol | Sequence::Philox) {
            return Err(Error::Invalid(format!(
                "--lazy makes the points of sobol and philox as it goes; {} needs a buffer of them",
                points.sequence()
            )));
        }
        let copy = |lane: &Lane| -> Result<Option<Copy>> {
            if lane.device().host {
                return Ok(None);
            }
            let nnz = rough.matrix.nnz();
            let starts: Vec<u32> =
                rough.matrix.starts().iter().map(|&s| u32::try_from(s).unwrap_or(u32::MAX)).collect();
            if nnz > u32::MAX as usize {
                return Err(Error::Invalid(format!("--lazy: {nnz} entries, more than 2^32 − 1 on a device")));
            }
            let values = rough.matrix.value();
            let rhs: Vec<f64> = (0..rough.rhs.len()).into_par_iter().map(|i| rough.rhs(i)).collect();
            let single = |all: &[f64]| all.par_iter().map(|&x| x as f32).collect::<Vec<f32>>();
            Ok(Some(Copy {
                starts: lane.alloc_with("starts of rows", &starts)?,
                columns: lane.alloc_with("columns", rough.matrix.column())?,
                numbers: match precision {
                    Precision::F32 => Numbers::Single(
                        lane.alloc_with("entries", &single(values))?,
                        lane.alloc_with("a right-hand side", &single(&rhs))?,
                    ),
                    Precision::F64 => Numbers::Double(
                        lane.alloc_with("entries", values)?,
                        lane.alloc_with("a right-hand side", &rhs)?,
                    ),
                },
                table: points.upload(lane)?,
            }))
        };
        let copies = lanes.iter().map(copy).collect::<Result<_>>()?;
        Ok(Self { lanes, precision, rough, points, copies, ranks })
    }

    /// The sum of θ of each task, and what was met. Ranks take tasks in equal shares, and so do their lanes.
    pub(super) fn sums(&self, tasks: &[Task], round: Round, watch: Watch<'_>) -> Result<(Vec<f64>, Met)> {
        let watch = Mutex::new(watch);
        let own = self.ranks.share(tasks.len() as u64);
        let tasks = &tasks[own.start as usize..own.end as usize];
        let share = tasks.len().div_ceil(self.lanes.len()).max(1);
        let parts: Vec<Result<Vec<[f64; 4]>>> = std::thread::scope(|scope| {
            let watch = &watch;
            let all: Vec<_> = tasks
                .chunks(share)
                .enumerate()
                .map(|(k, tasks)| {
                    scope.spawn(move || match self.precision {
                        Precision::F32 => self.part::<f32>(k, tasks, round, watch),
                        Precision::F64 => self.part::<f64>(k, tasks, round, watch),
                    })
                })
                .collect();
            all.into_iter().map(|t| t.join().expect("walks do not panic")).collect()
        });
        let per_task = ((round.points.1 - round.points.0) as usize).div_ceil(BLOCK);
        let (mut sums, mut met) = (Vec::with_capacity(tasks.len()), Met::NOTHING);
        for part in parts {
            for blocks in part?.chunks(per_task) {
                sums.push(blocks.iter().map(|b| b[0]).sum());
                met = blocks.iter().fold(met, |m, b| m.and(Met { norm: b[1], f: b[2], longest: b[3] }));
            }
        }
        let sums = self.ranks.all_gather(&sums).concat();
        // Not the greatest: a NaN has to stay.
        for [norm, f, longest] in self.ranks.all_gather(&[[met.norm, met.f, met.longest]]).concat() {
            met = met.and(Met { norm, f, longest });
        }
        if let Some(sum) = sums.iter().find(|s: &&f64| !s.is_finite()) {
            return Err(Error::Invalid(format!(
                "walks add up to {sum}: a row that they met has an entry that is no finite number, or they diverge"
            )));
        }
        Ok((sums, met.check()?))
    }

    /// Blocks of some tasks on one lane.
    fn part<T: Real>(
        &self,
        lane: usize,
        tasks: &[Task],
        round: Round,
        watch: &Mutex<Watch<'_>>,
    ) -> Result<Vec<[f64; 4]>> {
        let (copy, lane) = (&self.copies[lane], &self.lanes[lane]);
        let per_task = (round.points.1 - round.points.0).div_ceil(BLOCK as u32);
        let count = per_task * tasks.len() as u32;
        let cut = T::of(f64::from(round.cut));
        let mut all = vec![[T::ZERO; 4]; count as usize];
        let told = |done: u64| {
            let walks = u64::from(round.points.1 - round.points.0);
            let all = tasks.len() as u64 * walks * u64::from(round.length);
            (watch.lock().unwrap_or_else(|e| e.into_inner()))(
                (done * BLOCK as u64 * u64::from(round.length)).min(all),
                all,
            )
        };
        let Some(copy) = copy else {
            // Pieces of a tenth of a second or so, between which an interruption is noticed.
            let piece =
                ((1u64 << 22) / (BLOCK as u64 * (u64::from(round.length) + 1))).clamp(16, 1 << 16) as usize;
            for (k, out) in all.chunks_mut(piece).enumerate() {
                lane.host(|| {
                    out.par_iter_mut().enumerate().for_each(|(i, out)| {
                        let block = (k * piece + i) as u32;
                        let task = tasks[(block / per_task) as usize];
                        let first_point = round.points.0 + block % per_task * BLOCK as u32;
                        let mut values = [[T::ZERO; 4]; BLOCK];
                        dispatch(LazyBlock {
                            rows: &self.rough,
                            given: self.rough.given,
                            points: self.points,
                            stream: self.points.stream(task.component, task.replicate),
                            row: task.row,
                            first_point,
                            walks: (round.points.1 - first_point).min(BLOCK as u32) as usize,
                            length: round.length,
                            cut,
                            out: &mut values,
                        });
                        *out = fold(&mut values);
                    });
                });
                told(((k + 1) * piece) as u64)?;
            }
            return Ok(all.into_iter().map(|b| b.map(T::wide)).collect());
        };
        let words: Vec<[u32; 4]> = tasks
            .iter()
            .map(|t| {
                let stream = self.points.stream(t.component, t.replicate);
                [t.row, stream.key, stream.component, stream.replicate]
            })
            .collect();
        let starts = lane.alloc_with::<u32>("starts of walks", bytemuck::cast_slice(&words))?;
        let out = lane.alloc::<T>("sums of walks", 4 * count as usize)?;
        let of_block = BLOCK as u64 * (u64::from(round.length) + 1);
        let (steps, least) = if lane.device().software { (1u64 << 22, 16) } else { (1 << 28, 2048) };
        let groups = ((steps / of_block) as u32).clamp(least, 1 << 16).min(count);
        let [seed_low, seed_high] = self.points.key();
        let params = walk_lazy::Params {
            step: 0,
            groups,
            first: 0,
            end: count,
            per_task,
            first_point: round.points.0,
            end_point: round.points.1,
            length: round.length,
            cut: round.cut.to_bits(),
            sequence: self.points.sequence().code(),
            scramble: self.points.scramble().code(),
            tabled: self.points.tabled(),
            seed_low,
            seed_high,
            given: u32::from(self.rough.given),
        };
        let (values, rhs) = match &copy.numbers {
            Numbers::Single(values, rhs) => (values.arg(), rhs.arg()),
            Numbers::Double(values, rhs) => (values.arg(), rhs.arg()),
        };
        let args = walk_lazy::Args {
            starts: copy.starts.arg(),
            columns: copy.columns.arg(),
            values,
            rhs,
            tasks: starts.arg(),
            table: copy.table.arg(),
            out: out.arg(),
        };
        let launch = lane.bind(&WALK_LAZY, T::PRECISION, groups as usize * BLOCK, params, args)?;
        let program = Program { cycle: vec![vec![&launch]] };
        let launches = u64::from(count.div_ceil(groups));
        lane.run(&program, 0, launches, &mut |done| told(done * u64::from(groups)))?;
        lane.download(&out, 0, bytemuck::cast_slice_mut(&mut all))?;
        Ok(all.into_iter().map(|b| b.map(T::wide)).collect())
    }
}
