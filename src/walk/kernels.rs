//! The kernels of walks and their CPU twins.

use rayon::prelude::*;

use super::sequence::{Points, Stream};
use super::table::{HEAD, UNIT};
use crate::kernel::{Kernel, Real, kernel};
use crate::lane::cpu::Call;
use crate::lane::cpu::simd::{Body, dispatch, fused, prefetch};

/// Sums of walks over blocks.
pub static WALK: Kernel = kernel!(walk);

/// Every kernel of this engine, those of its sequences aside.
pub static ALL: [&Kernel; 1] = [&WALK];

/// Walks of a block.
pub const BLOCK: usize = 256;

/// Dimensions whose coordinates are made at a time: their 16 KiB stay in the first cache.
const DIMENSIONS: usize = 16;

/// The target of the entry of a row that the fraction u falls on: the twin of `choose`.
#[inline(always)]
pub(super) fn choose(record: &[u32], u: u32) -> u32 {
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

/// The sum of two f32.
#[inline(always)]
fn number<T: Real>(high: u32, low: u32) -> T {
    T::of(f64::from(f32::from_bits(high))).plus(T::of(f64::from(f32::from_bits(low))))
}

/// The walks of one block. All of them take a step before any takes the next: while one waits for its row, which was
/// asked for a step ahead, the others have theirs.
struct Block<'a, T> {
    rows: &'a [u32],
    points: &'a Points,
    stream: Stream,
    row: u32,
    first_point: u32,
    walks: usize,
    length: u32,
    cut: T,
    theta: &'a mut [T; BLOCK],
}

impl<T: Real> Body for Block<'_, T> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        let fma = match fused(LEVEL) {
            true => T::fma::<true>,
            false => T::fma::<false>,
        };
        let mut u = [0u32; BLOCK * DIMENSIONS];
        let mut record = [self.row; BLOCK];
        let mut weight = [T::of(1.0); BLOCK];
        let mut live: [u16; BLOCK] = std::array::from_fn(|i| i as u16);
        let mut walking = self.walks;
        let mut first = 0;
        while first < self.length && walking > 0 {
            let dimensions = (self.length - first).min(DIMENSIONS as u32);
            let u = &mut u[..dimensions as usize * self.walks];
            self.points.fill(self.stream, self.first_point, first..first + dimensions, u);
            for u in u.chunks_exact(self.walks) {
                let mut kept = 0;
                for k in 0..walking {
                    let i = live[k] as usize;
                    let here = &self.rows[record[i] as usize * UNIT..];
                    self.theta[i] = fma(weight[i], number(here[0], here[1]), self.theta[i]);
                    let w = weight[i].times(number(here[2], here[3]));
                    if w.distance(T::ZERO) <= self.cut {
                        continue;
                    }
                    let next = choose(here, u[i].min(u32::MAX - 1));
                    weight[i] = if next >> 31 == 1 { T::of(-1.0).times(w) } else { w };
                    record[i] = next & (u32::MAX >> 1);
                    prefetch(self.rows, record[i] as usize * UNIT);
                    live[kept] = i as u16;
                    kept += 1;
                }
                walking = kept;
            }
            first += dimensions;
        }
        for &i in &live[..walking] {
            let i = i as usize;
            let here = &self.rows[record[i] as usize * UNIT..];
            self.theta[i] = fma(weight[i], number(here[0], here[1]), self.theta[i]);
        }
    }
}

/// The sum of a block as a tree: halves are added to halves, as the kernels' workgroups do.
fn tree<T: Real>(sums: &mut [T; BLOCK]) -> T {
    let mut half = BLOCK / 2;
    while half > 0 {
        let (low, high) = sums.split_at_mut(half);
        for (l, h) in low.iter_mut().zip(high) {
            *l = l.plus(*h);
        }
        half /= 2;
    }
    sums[0]
}

fn walk<T: Real>(call: &Call<'_>) {
    let (rows, tasks, table) = (call.read::<u32>(0), call.read::<[u32; 4]>(1), call.read::<u32>(2));
    let (groups, end, per_task) = (call.param(1), call.param(3), call.param(4));
    let first = (call.param(2) + call.param(0) * groups).min(end);
    let (begin, stop, length) = (call.param(5), call.param(6), call.param(7));
    let cut = T::of(f64::from(f32::from_bits(call.param(8))));
    let points = Points::of_call(call.param(9), call.param(10), call.param(11), [call.param(12), call.param(13)], table);
    let out = &mut call.write::<T>(3)[first as usize..(first + groups).min(end) as usize];
    out.par_iter_mut().enumerate().for_each(|(k, out)| {
        let block = first + k as u32;
        let task = tasks[(block / per_task) as usize];
        let first_point = begin + block % per_task * BLOCK as u32;
        let mut theta = [T::ZERO; BLOCK];
        dispatch(Block {
            rows,
            points: &points,
            stream: Stream { key: task[1], component: task[2], replicate: task[3] },
            row: task[0],
            first_point,
            walks: (stop - first_point).min(BLOCK as u32) as usize,
            length,
            cut,
            theta: &mut theta,
        });
        *out = tree(&mut theta);
    });
}
