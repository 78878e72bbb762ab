//! Kernel of lazy walks, which read A itself in compressed rows, and its arrays.

use super::observed::{NO_DIAGONAL, ObservedNorms, Rows, SystemView};
use crate::kernel::block_sums::tree;
use crate::kernel::cpu::Call;
use crate::kernel::cpu::simd::{Body, dispatch, fused};
use crate::kernel::{Precision, Real, kernel};
use crate::lane::{Buffer, Lane};
use crate::parallel::*;
use crate::util::inline_array::array;
use crate::walk::sampling::kernels::{BLOCK, cut, each_block, points, range, walk};
use crate::walk::sampling::launcher::{BlockKernel, Launcher, Part, RealBuffer, Round, Task, Work, arrays};
use crate::walk::sequence::{Points, Stream};
use crate::{Invalid, Progress, Result};

kernel! {
    /// Sums of walks over blocks, and norms of the rows that they met.
    ///
    /// The norms are the largest row sum, the largest |f| and the largest number of entries of a
    /// row.
    pub(crate) static WALK_LAZY = walk_lazy + walk_params + random + walk_block + tree(like walk)(
        starts: &[u32], columns: &[u32], values: &[T], rhs: &[T], tasks: &[[u32; 4]], table: &[u32],
        out: &mut [[T; 4]],
    );
}

/// Arrays of a launch of the kernel.
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

/// Walks of one block, with four results per walk.
///
/// They are θ, the largest row sum, the largest |f| and the largest number of entries of a row.
struct LazyBlock<'a, T, R> {
    rows: &'a R,
    given: bool,
    points: &'a Points,
    stream: Stream,
    row: u32,
    first_point: u32,
    walks: usize,
    length: u32,
    cut: T,
    out: &'a mut [[T; 4]; BLOCK],
}

/// Number of dimensions whose coordinates are computed at a time.
const DIMENSIONS: usize = 16;

impl<T: Real, R: Rows> Body for LazyBlock<'_, T, R> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        let fma = match fused(LEVEL) {
            true => T::fma::<true>,
            false => T::fma::<false>,
        };
        let at_hand = AtHand::now();
        let mut coordinates = [0u32; BLOCK * DIMENSIONS];
        let mut state = [self.row; BLOCK];
        let mut weight = [T::of(1.0); BLOCK];
        let mut live: [u16; BLOCK] = array(|i| i as u16);
        let mut walking = self.walks;
        let mut j = 0;
        while walking > 0 {
            let place = j as usize % DIMENSIONS;
            if place == 0 && j < self.length {
                let dimensions = (self.length - j).min(DIMENSIONS as u32);
                let out = &mut coordinates[..dimensions as usize * self.walks];
                self.points.fill(self.stream, self.first_point, j..j + dimensions, out);
                at_hand.step(walking as u64 * u64::from(dimensions));
            }
            let mut kept = 0;
            for k in 0..walking {
                let i = live[k] as usize;
                let row = state[i];
                let (diagonal, sum) = self.rows.sums::<T>(row, self.given);
                let [theta, worst, largest, longest] = &mut self.out[i];
                if diagonal == T::ZERO {
                    *longest = T::of(NO_DIAGONAL);
                    continue;
                }
                let entries = T::of(self.rows.range(row as usize).len() as f64);
                if entries > *longest {
                    *longest = entries;
                }
                // Quotients of f32 numbers, computed in f64 and then rounded, equal those in f32.
                let over = |a: T, b: T| T::of(a.wide() / b.wide());
                let f = over(T::of(self.rows.rhs(row as usize)), diagonal);
                *theta = fma(weight[i], f, *theta);
                if f.abs() > *largest {
                    *largest = f.abs();
                }
                let norm = over(sum, diagonal.abs());
                if norm > *worst {
                    *worst = norm;
                }
                if j == self.length {
                    continue;
                }
                let mut w = weight[i] * norm;
                if w.abs() <= self.cut {
                    continue;
                }
                let u = coordinates[place * self.walks + i];
                let fraction = (T::of(f64::from(u)) + T::of(0.5)) * T::of(2.328_306_436_538_696_3e-10);
                let (next, positive) = self.rows.choose(row, self.given, fraction * sum);
                if positive != (self.given || diagonal < T::ZERO) {
                    w = -w;
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

/// Adds the θ of two walks, and takes the maximum of their other results.
fn join<T: Real>(a: [T; 4], b: [T; 4]) -> [T; 4] {
    let larger = |a: T, b: T| if b > a { b } else { a };
    [a[0] + b[0], larger(a[1], b[1]), larger(a[2], b[2]), larger(a[3], b[3])]
}

/// Computes the blocks of a launch on the given rows.
fn blocks<T: Real, R: Rows>(
    rows: &R,
    given: bool,
    points: &Points,
    p: &walk::Params,
    tasks: &[[u32; 4]],
    out: &mut [[T; 4]],
) {
    let (length, cut) = (p.length, cut(p));
    each_block(p, tasks, out, |row, stream, first_point, walks| {
        let mut values = [[T::ZERO; 4]; BLOCK];
        let out = &mut values;
        dispatch(LazyBlock { rows, given, points, stream, row, first_point, walks, length, cut, out });
        tree(&mut values, join)
    });
}

fn walk_lazy<T: Real>(_: &Call<'_>, p: walk::Params, b: walk_lazy::Bindings<'_, T>) {
    let walk_lazy::Bindings { starts, columns, values, rhs, tasks, table, out, .. } = b;
    let rows = Launched { starts, columns, values, rhs };
    blocks(&rows, p.given == 1, &points(&p, table), &p, tasks, &mut out[range(&p)]);
}

/// System of lazy walks on a lane: the host's arrays for a CPU, a copy for a device.
pub(super) struct LazyTables<'a> {
    view: SystemView<'a>,
    points: &'a Points,
    device: Option<DeviceSystem>,
}

/// Copies of the arrays on a device.
struct DeviceSystem {
    starts: Buffer<u32>,
    columns: Buffer<u32>,
    values: RealBuffer,
    rhs: RealBuffer,
    sequence: Buffer<u32>,
}

impl<'a> LazyTables<'a> {
    pub(super) fn new(
        lane: &Lane,
        precision: Precision,
        view: SystemView<'a>,
        points: &'a Points,
    ) -> Result<Self> {
        if lane.device().host {
            return Ok(Self { view, points, device: None });
        }
        let nnz = view.matrix.nnz();
        if nnz > u32::MAX as usize {
            return Invalid::TooLarge.fail(format!(
                "{nnz} entries are out of range with `lazy`: expected at most 2^32 − 1 on a device"
            ));
        }
        let starts: Vec<u32> = view.matrix.starts().iter().map(|&s| s as u32).collect();
        let rhs: Vec<f64> = (0..view.rhs.len()).into_par_iter().map(|i| view.rhs(i)).collect();
        let device = DeviceSystem {
            starts: lane.alloc_with("starts of rows", &starts)?,
            columns: lane.alloc_with("columns", view.matrix.column())?,
            values: RealBuffer::new(lane, precision, "entries", view.matrix.value())?,
            rhs: RealBuffer::new(lane, precision, "a right-hand side", &rhs)?,
            sequence: points.upload(lane)?,
        };
        Ok(Self { view, points, device: Some(device) })
    }
}

impl BlockKernel for LazyTables<'_> {
    fn values(&self) -> usize {
        4
    }

    fn bind<'b, T: Real>(
        &'b self,
        lane: &Lane,
        params: walk::Params,
        part: &Part<'b>,
    ) -> Result<Work<'b, T>> {
        let (tasks, given) = (part.tasks, self.view.given);
        let Some(device) = &self.device else {
            return Ok(Work::Host(Box::new(move |params, out| {
                blocks::<T, _>(&self.view, given, self.points, params, tasks, bytemuck::cast_slice_mut(out));
            })));
        };
        let params = walk::Params { given: u32::from(given), ..params };
        let (starts, sums) = arrays::<T>(lane, tasks, 4 * params.end as usize)?;
        let args = walk_lazy::Args {
            starts: device.starts.arg(),
            columns: device.columns.arg(),
            values: device.values.arg(),
            rhs: device.rhs.arg(),
            tasks: starts.arg(),
            table: device.sequence.arg(),
            out: sums.arg(),
        };
        let launch = lane.bind(&WALK_LAZY, T::PRECISION, params.groups as usize * BLOCK, params, args)?;
        Ok(Work::Launch(launch, sums))
    }
}

/// Returns the sum of θ per task, and the norms of the rows that its walks met.
pub(super) fn sums(
    launcher: &Launcher<'_, LazyTables<'_>>,
    tasks: &[Task],
    round: Round,
    watch: &mut dyn Progress,
) -> Result<(Vec<f64>, ObservedNorms)> {
    let words: Vec<[u32; 4]> = tasks.iter().map(|task| launcher.words(task, task.row)).collect();
    let (mut sums, mut observed) = (Vec::with_capacity(tasks.len()), ObservedNorms::NOTHING);
    let take = |blocks: &[f64]| {
        let (blocks, _) = blocks.as_chunks::<4>();
        sums.push(blocks.iter().map(|b| b[0]).sum::<f64>());
        for &[_, norm, f, longest] in blocks {
            observed = observed.and(ObservedNorms { norm, f, longest });
        }
    };
    match launcher.precision {
        Precision::F32 => launcher.blocks::<f32>(&words, round, watch, take)?,
        Precision::F64 | Precision::Q64 => launcher.blocks::<f64>(&words, round, watch, take)?,
    }
    if let Some(sum) = sums.iter().find(|s| !s.is_finite()) {
        return Invalid::Number("matrix").fail(format!(
            "the walks sum to {sum}: a row that they met has an entry that is not finite, or they \
             diverge"
        ));
    }
    Ok((sums, observed.check()?))
}
