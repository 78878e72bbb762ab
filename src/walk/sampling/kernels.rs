//! Kernels of walks on chain tables, and their CPU implementations.

use crate::kernel::block_sums::tree;
use crate::kernel::cpu::Call;
use crate::kernel::cpu::simd::{Body, dispatch, prefetch_lines};
use crate::kernel::{Real, fma, kernel};
use crate::parallel::*;
use crate::util::inline_array::array;
use crate::walk::sequence::{Points, Stream};
use crate::walk::table::record_layout::{HEAD, UNIT};

kernel! {
    /// Computes sums over blocks of 256 walks, for one right-hand side.
    pub(crate) static WALK = walk + walk_params + chain + random + walk_block + tree(
        groups, first, end, per_task, first_point, end_point, length, cut, scramble, tabled,
        seed_low, seed_high,
    )(
        rows: &[u32], tasks: &[[u32; 4]], table: &[u32], out: &mut [T],
    );
    /// Computes sums over blocks of 256 walks, for [`COLUMNS`] right-hand sides.
    pub(crate) static WALK_COLUMNS = walk_columns + walk_params + chain + random + walk_block + tree(like walk)(
        rows: &[u32], tasks: &[[u32; 4]], table: &[u32], columns: &[[T; 4]], out: &mut [[T; 4]],
    );
}

pub(crate) const BLOCK: usize = 256;

/// Number of dimensions computed at a time: 16 KiB of coordinates, which fit the L1 cache.
const DIMENSIONS: usize = 16;

/// Returns the target of the entry of a record that the fraction u selects, as `choose` in WGSL.
#[inline(always)]
pub(crate) fn choose(record: &[u32], u: u32) -> u32 {
    let mut at = HEAD;
    if record[at] == 0 {
        let (mut low, mut high) = (0, record[at + 1] as usize - 1);
        while low < high {
            let middle = (low + high) / 2;
            if u < record[HEAD + 2 + 2 * middle] {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        return record[HEAD + 3 + 2 * low];
    }
    while u >= record[at] {
        at += 2;
    }
    record[at + 1]
}

/// Sum of two f32, given by their bits.
#[inline(always)]
pub(crate) fn number<T: Real>(high: u32, low: u32) -> T {
    T::of(f64::from(f32::from_bits(high))) + T::of(f64::from(f32::from_bits(low)))
}

/// Walks of one block of at most 256 points, for C right-hand sides (columns).
///
/// All walks take a step before any takes the next one. Each prefetches its next row, so that the
/// row is in cache when the walk's turn comes.
pub(crate) struct WalkBlock<'a, T, const C: usize> {
    pub(crate) rows: &'a [u32],
    /// Summand g of each row and column; if C is 1, it is in the records instead.
    pub(crate) columns: &'a [[T; C]],
    pub(crate) points: &'a Points,
    pub(crate) stream: Stream,
    pub(crate) row: u32,
    pub(crate) first_point: u32,
    pub(crate) walks: usize,
    pub(crate) length: u32,
    pub(crate) cut: T,
    pub(crate) theta: &'a mut [[T; C]; BLOCK],
}

impl<T: Real, const C: usize> Body for WalkBlock<'_, T, C> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        let (columns, at_hand) = (self.columns, AtHand::now());
        let tally = |theta: &mut [T; C], weight: T, here: &[u32]| {
            if C == 1 {
                theta[0] = fma::<T, LEVEL>(weight, number(here[0], here[1]), theta[0]);
            } else {
                for (theta, &g) in theta.iter_mut().zip(&columns[here[0] as usize]) {
                    *theta = fma::<T, LEVEL>(weight, g, *theta);
                }
            }
        };
        let mut made = [0u32; BLOCK * DIMENSIONS];
        let mut record = [self.row; BLOCK];
        let mut weight = [T::of(1.0); BLOCK];
        let mut live: [u16; BLOCK] = array(|i| i as u16);
        let mut walking = self.walks;
        let mut first = 0;
        while first < self.length && walking > 0 {
            let dimensions = (self.length - first).min(DIMENSIONS as u32);
            let coordinates = &mut made[..dimensions as usize * self.walks];
            self.points.fill(self.stream, self.first_point, first..first + dimensions, coordinates);
            let steps = walking as u64 * u64::from(dimensions);
            for u in coordinates.chunks(self.walks) {
                let mut kept = 0;
                for k in 0..walking {
                    let i = live[k] as usize;
                    let here = &self.rows[record[i] as usize * UNIT..];
                    tally(&mut self.theta[i], weight[i], here);
                    let w = weight[i] * number(here[2], here[3]);
                    if w.abs() <= self.cut {
                        continue;
                    }
                    let next = choose(here, u[i].min(u32::MAX - 1));
                    weight[i] = if next >> 31 == 1 { -w } else { w };
                    record[i] = next & (u32::MAX >> 1);
                    prefetch_lines::<2, _>(self.rows, record[i] as usize * UNIT);
                    live[kept] = i as u16;
                    kept += 1;
                }
                walking = kept;
            }
            first += dimensions;
            at_hand.step(steps);
        }
        for &i in &live[..walking] {
            let i = i as usize;
            tally(&mut self.theta[i], weight[i], &self.rows[record[i] as usize * UNIT..]);
        }
    }
}

/// Adds the sums of two walks, column by column.
pub(crate) fn plus<T: Real, const C: usize>(a: [T; C], b: [T; C]) -> [T; C] {
    array(|c| a[c] + b[c])
}

/// Computes the blocks of walks of a launch from the tables of records, tasks and the sequence.
fn blocks<T: Real, const C: usize>(
    p: walk::Params,
    (rows, tasks, table): (&[u32], &[[u32; 4]], &[u32]),
    columns: &[[T; C]],
    out: &mut [[T; C]],
) {
    let (length, cut) = (p.length, T::of(f64::from(f32::from_bits(p.cut))));
    let points = &Points::of_call(p.scramble, p.tabled, [p.seed_low, p.seed_high], table);
    let first = (p.first + p.step * p.groups).min(p.end);
    let out = &mut out[first as usize..(first + p.groups).min(p.end) as usize];
    out.par_iter_mut().enumerate().for_each(|(k, out)| {
        let number = first + k as u32;
        let [row, key, component, replicate] = tasks[(number / p.per_task) as usize];
        let first_point = p.first_point + number % p.per_task * BLOCK as u32;
        let walks = (p.end_point - first_point).min(BLOCK as u32) as usize;
        let stream = Stream { key, component, replicate };
        let theta = &mut [[T::ZERO; C]; BLOCK];
        dispatch(WalkBlock { rows, columns, points, stream, row, first_point, walks, length, cut, theta });
        *out = tree(theta, plus);
    });
}

fn walk<T: Real>(_: &Call<'_>, p: walk::Params, b: walk::Bindings<'_, T>) {
    blocks::<T, 1>(p, (b.rows, b.tasks, b.table), &[], bytemuck::cast_slice_mut(b.out));
}

fn walk_columns<T: Real>(_: &Call<'_>, p: walk::Params, b: walk_columns::Bindings<'_, T>) {
    blocks(p, (b.rows, b.tasks, b.table), b.columns, b.out);
}
