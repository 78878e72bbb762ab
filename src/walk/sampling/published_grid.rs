//! Launch grid of the published method: groups of threads, group sums, then a second reduction.
//!
//! It is by S. Lai, J. Jin, M. Guo, X. Lin, "GPU-based Monte Carlo methods for solving linear
//! algebraic equations", ISCC 2015.

use super::kernels::{BLOCK, Block, Source, access, cut, plus, walk};
use crate::kernel::block_sums::tree;
use crate::kernel::cpu::Call;
use crate::kernel::cpu::simd::dispatch;
use crate::kernel::{Kernel, Real, kernel};
use crate::parallel::*;
use crate::walk::options::Grid;
use crate::walk::sequence::Stream;
use crate::{Invalid, Result};

kernel! {
    /// Walks from one row distributed over a grid.
    pub(crate) static WALK_GRID = walk_grid + walk_params + chain + random + tree(like walk)(
        rows: &[u32], tasks: &[[u32; 4]], table: &[u32], out: &mut [T],
    );
}

/// Variants of [`WALK_GRID`] for other group sizes.
static SIZED: [Kernel; 5] = [
    WALK_GRID.with(&[("GROUP", 32.0)]),
    WALK_GRID.with(&[("GROUP", 64.0)]),
    WALK_GRID.with(&[("GROUP", 128.0)]),
    WALK_GRID.with(&[("GROUP", 512.0)]),
    WALK_GRID.with(&[("GROUP", 1024.0)]),
];

/// Kernels for other group sizes.
pub(crate) fn sizes() -> impl Iterator<Item = &'static Kernel> {
    SIZED.iter()
}

impl Grid {
    /// Returns the kernel for groups of this size.
    ///
    /// # Errors
    /// [`Invalid`] for an unsupported size, and for no groups or more than 65535.
    pub fn kernel(self) -> Result<&'static Kernel> {
        let Self { groups, size } = self;
        Invalid::Argument("groups").unless((1..=65_535).contains(&groups), || {
            format!("`groups` {groups} is out of range: expected 1 to 65535")
        })?;
        std::iter::once(&WALK_GRID).chain(&SIZED).find(|k| k.group() == size).ok_or_else(|| {
            Invalid::Argument("group_size")
                .error(format!("invalid `group_size` {size}: expected 32, 64, 128, 256, 512 or 1024"))
        })
    }
}

fn walk_grid<T: Real>(call: &Call<'_>, p: walk::Params, b: walk_grid::Bindings<'_, T>) {
    let walk_grid::Bindings { rows, tasks, table, out, .. } = b;
    let (groups, size) = (p.groups, call.group());
    let (begin, stop, length, cut) = (p.first_point, p.end_point, p.length, cut::<T>(&p));
    let access = access(&p, table);
    // θ of up to a block of points from `first_point` on.
    let walks = |task: [u32; 4], first_point: u32, walks: usize, theta: &mut [[T; 1]; BLOCK]| {
        let [row, key, component, replicate] = task;
        let source = match &access {
            Some(points) => Source::Access(points, Stream { key, component, replicate }),
            None => Source::Buffer(&table[(first_point - begin) as usize..], p.stride as usize),
        };
        *theta = [[T::ZERO; 1]; BLOCK];
        dispatch(Block { rows, columns: &[], source, row, first_point, walks, length, cut, theta });
    };
    out[..groups as usize].par_iter_mut().enumerate().for_each(|(group, out)| {
        let mut sums = vec![[T::ZERO; 1]; size as usize];
        let mut theta = [[T::ZERO; 1]; BLOCK];
        let mut first = u64::from(begin) + group as u64 * u64::from(size);
        while first < u64::from(stop) {
            for (piece, sums) in sums.chunks_mut(BLOCK).enumerate() {
                let at = first + (piece * BLOCK) as u64;
                let count = u64::from(stop).saturating_sub(at).min(sums.len() as u64) as usize;
                if count > 0 {
                    walks(tasks[0], at as u32, count, &mut theta);
                    sums[..count].iter_mut().zip(&theta).for_each(|(s, t)| s[0] = s[0] + t[0]);
                }
            }
            first += u64::from(groups) * u64::from(size);
        }
        *out = tree(&mut sums, plus)[0];
    });
}
