//! What walks are held against: Jacobi's iteration and conjugate gradients on the same lane, and a local push.

use std::collections::VecDeque;
use std::time::Instant;

use rayon::prelude::*;

use crate::Result;
use crate::kernel::{Real, kernel};
use crate::lane::cpu::Call;
use crate::lane::{Buffer, Lane};
use crate::transient::kernels::{ACCUMULATE, ADD, BLOCK_DOT, SCALE, accumulate, add, block_dot, scale};
use crate::walk::splitting::Split;

kernel! {
    /// One sweep x → f + L x over compressed rows.
    pub(crate) static CSR_SWEEP = csr_sweep + tree(rows)(
        starts: &[u32], columns: &[u32], values: &[T], f: &[T], x: &[T], y: &mut [T], changes: &mut [T],
    );
}

fn csr_sweep<T: Real>(_: &Call<'_>, p: csr_sweep::Params, b: csr_sweep::Bindings<'_, T>) {
    let csr_sweep::Bindings { starts, columns, values, f, x, changes, .. } = b;
    let y = &mut b.y[..p.rows as usize];
    let block = |(block, (y, change)): (usize, (&mut [T], &mut T))| {
        *change = T::ZERO;
        for (k, y) in y.iter_mut().enumerate() {
            let i = block * 256 + k;
            let mut s = f[i];
            for e in starts[i] as usize..starts[i + 1] as usize {
                s = T::fma::<true>(values[e], x[columns[e] as usize], s);
            }
            *y = s;
            let here = s.distance(x[i]);
            if here > *change {
                *change = here;
            }
        }
    };
    y.par_chunks_mut(256).zip(changes).enumerate().with_min_len(8).for_each(block);
}

/// How a competitor did.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    /// Seconds from the matrix in the host's memory to the answer, and the part that went to copying it.
    pub(super) seconds: f64,
    pub(super) upload: f64,
    /// Sweeps, iterations, or pushes over the number of unknowns.
    pub(super) steps: f64,
    /// The component.
    pub(super) estimate: f64,
    /// The bound of its error.
    pub(super) bound: f64,
}

/// L or another matrix on a lane.
struct OnLane<T> {
    starts: Buffer<u32>,
    columns: Buffer<u32>,
    values: Buffer<T>,
    changes: Buffer<T>,
}

impl<T: Real> OnLane<T> {
    /// Rows of `entries` entries each, which `row` gives in order.
    fn new<I: Iterator<Item = (u32, f64)>>(
        lane: &Lane,
        n: usize,
        entries: impl Fn(usize) -> usize + Sync,
        row: impl Fn(usize) -> I + Sync,
    ) -> Result<Self> {
        const ROWS: usize = 1024;
        let mut starts = vec![0u32; n + 1];
        for i in 0..n {
            starts[i + 1] = starts[i] + entries(i) as u32;
        }
        let nnz = starts[n] as usize;
        let (mut columns, mut values) = (vec![0u32; nnz], vec![T::ZERO; nnz]);
        let (mut rest_columns, mut rest_values) = (&mut columns[..], &mut values[..]);
        let mut blocks = Vec::new();
        for first in (0..n).step_by(ROWS) {
            let count = (starts[n.min(first + ROWS)] - starts[first]) as usize;
            let (columns, behind) = rest_columns.split_at_mut(count);
            rest_columns = behind;
            let (values, behind) = rest_values.split_at_mut(count);
            rest_values = behind;
            blocks.push((first, columns, values));
        }
        blocks.into_par_iter().for_each(|(first, columns, values)| {
            let entries = (first..n.min(first + ROWS)).flat_map(&row);
            for ((c, v), (j, value)) in columns.iter_mut().zip(values).zip(entries) {
                (*c, *v) = (j, T::of(value));
            }
        });
        Ok(Self {
            starts: lane.alloc_with("starts of rows", &starts)?,
            columns: lane.alloc_with("columns", &columns)?,
            values: lane.alloc_with("entries", &values)?,
            changes: lane.alloc("changes", n.div_ceil(256))?,
        })
    }

    fn sweep(
        &self,
        lane: &Lane,
        n: usize,
        f: &Buffer<T>,
        x: &Buffer<T>,
        y: &Buffer<T>,
    ) -> Result<crate::lane::Launch> {
        let args = csr_sweep::Args {
            starts: self.starts.arg(),
            columns: self.columns.arg(),
            values: self.values.arg(),
            f: f.arg(),
            x: x.arg(),
            y: y.arg(),
            changes: self.changes.arg(),
        };
        lane.bind(&CSR_SWEEP, T::PRECISION, n, csr_sweep::Params { step: 0, rows: n as u32 }, args)
    }
}

/// Jacobi's iteration until the bound change · norm / (1 − norm) is at most ε.
pub(super) fn jacobi<T: Real>(
    lane: &Lane,
    split: &Split<'_>,
    f: &[f64],
    norm: f64,
    component: usize,
    epsilon: f64,
) -> Result<Ended> {
    // Sweeps between two looks at the changes.
    const SWEEPS: u32 = 8;
    let n = split.unknowns();
    let from = Instant::now();
    let matrix = OnLane::<T>::new(lane, n, |i| split.entries(i), |i| split.row(i))?;
    let start: Vec<T> = f.par_iter().map(|&f| T::of(f)).collect();
    let (f, x, y) = (lane.alloc_with("f", &start)?, lane.alloc_with("x", &start)?, lane.alloc::<T>("y", n)?);
    let upload = from.elapsed().as_secs_f64();
    let launches = [matrix.sweep(lane, n, &f, &x, &y)?, matrix.sweep(lane, n, &f, &y, &x)?];
    let mut changes = vec![T::ZERO; n.div_ceil(256)];
    let mut sweeps = 0;
    let bound = loop {
        for k in 0..SWEEPS {
            lane.launch(&[&launches[k as usize % 2]], 0)?;
        }
        sweeps += SWEEPS;
        lane.download(&matrix.changes, 0, &mut changes)?;
        let change = changes.iter().map(|c| c.wide()).fold(0.0, f64::max);
        let bound = change * norm / (1.0 - norm);
        if bound <= epsilon || sweeps > 100_000 {
            break bound;
        }
    };
    let mut estimate = [T::ZERO];
    lane.download(&x, component, &mut estimate)?;
    let seconds = from.elapsed().as_secs_f64();
    Ok(Ended { seconds, upload, steps: f64::from(sweeps), estimate: estimate[0].wide(), bound })
}

/// Conjugate gradients on D^(-1/2) A D^(-1/2) of a symmetric A with a positive diagonal, until the bound
/// ‖D⁻¹ r‖ / (1 − norm) is at most ε; none of another matrix. Scalars go through the host.
pub(super) fn conjugate_gradients<T: Real>(
    lane: &Lane,
    split: &Split<'_>,
    b: &[f64],
    norm: f64,
    component: usize,
    epsilon: f64,
) -> Result<Option<Ended>> {
    let a = split.matrix();
    let n = split.unknowns();
    let entry = |i: usize, j: u32| {
        let (columns, values) = a.row(i);
        columns.binary_search(&j).map_or(0.0, |k| values[k])
    };
    let symmetric = (0..n).into_par_iter().all(|i| {
        let (columns, values) = a.row(i);
        columns.iter().zip(values).all(|(&j, &v)| entry(j as usize, i as u32) == v)
            && entry(i, i as u32) > 0.0
    });
    if !symmetric {
        return Ok(None);
    }
    let from = Instant::now();
    let scale: Vec<f64> = (0..n).into_par_iter().map(|i| 1.0 / entry(i, i as u32).sqrt()).collect();
    let matrix = OnLane::<T>::new(
        lane,
        n,
        |i| a.row(i).0.len(),
        |i| {
            let (columns, values) = a.row(i);
            let (own, scale) = (scale[i], &scale);
            columns.iter().zip(values).map(move |(&j, &v)| (j, v * own * scale[j as usize]))
        },
    )?;
    let right: Vec<T> = b.par_iter().zip(&scale).map(|(b, s)| T::of(b * s)).collect();
    let zero = lane.alloc::<T>("zero", n)?;
    let x = lane.alloc::<T>("x", n)?;
    let (r, d) = (lane.alloc_with("r", &right)?, lane.alloc_with("p", &right)?);
    let q = lane.alloc::<T>("q", n)?;
    // [unused, α, −α, β].
    let scalars = lane.alloc::<T>("scalars", 4)?;
    let sums = lane.alloc::<T>("sums", n.div_ceil(256))?;
    let upload = from.elapsed().as_secs_f64();
    let size = n as u32;
    let product = matrix.sweep(lane, n, &zero, &d, &q)?;
    let dot = |a: &Buffer<T>, b: &Buffer<T>| {
        let params = block_dot::Params { rows: size, ..Default::default() };
        let args = block_dot::Args { r: a.arg(), x: b.arg(), out: sums.arg() };
        lane.bind(&BLOCK_DOT, T::PRECISION, n, params, args)
    };
    let (dq, rr) = (dot(&d, &q)?, dot(&r, &r)?);
    // As the one term of a window: the step chooses the scalar.
    let add = |step: u32, a: &Buffer<T>, b: &Buffer<T>| {
        let params =
            accumulate::Params { window_first: step, window_end: step + 1, rows: size, ..Default::default() };
        let args = accumulate::Args { scalars: scalars.arg(), x: a.arg(), y: a.arg(), acc: b.arg() };
        lane.bind(&ACCUMULATE, T::PRECISION, n, params, args)
    };
    let (to_x, to_r) = (add(0, &d, &x)?, add(1, &q, &r)?);
    let params = scale::Params { first: 3, rows: size, ..Default::default() };
    let args = scale::Args { factors: scalars.arg(), y: d.arg() };
    let shrink = lane.bind(&SCALE, T::PRECISION, n, params, args)?;
    let params = add::Params { rows: size, ..Default::default() };
    let renew = lane.bind(&ADD, T::PRECISION, n, params, add::Args { x: r.arg(), acc: d.arg() })?;
    let sum = || -> Result<f64> {
        let mut blocks = vec![T::ZERO; n.div_ceil(256)];
        lane.download(&sums, 0, &mut blocks)?;
        Ok(blocks.into_iter().map(T::wide).sum())
    };
    let largest = scale.iter().copied().fold(0.0, f64::max);
    lane.launch(&[&rr], 0)?;
    let mut rho = sum()?;
    let mut iterations = 0;
    let bound = loop {
        let bound = rho.sqrt() * largest / (1.0 - norm);
        if bound <= epsilon || iterations > 10_000 {
            break bound;
        }
        lane.launch(&[&product, &dq], 0)?;
        let alpha = rho / sum()?;
        lane.upload(&[T::of(alpha), T::of(-alpha)], &scalars, 1)?;
        lane.launch(&[&to_x], 0)?;
        lane.launch(&[&to_r], 1)?;
        lane.launch(&[&rr], 0)?;
        let next = sum()?;
        lane.upload(&[T::of(next / rho)], &scalars, 3)?;
        rho = next;
        lane.launch(&[&shrink, &renew], 0)?;
        iterations += 1;
    };
    let mut estimate = [T::ZERO];
    lane.download(&x, component, &mut estimate)?;
    let seconds = from.elapsed().as_secs_f64();
    let estimate = estimate[0].wide() * scale[component];
    Ok(Some(Ended { seconds, upload, steps: f64::from(iterations), estimate, bound }))
}

/// A deterministic local push on one thread of the host: x_m = p·f + r·x with r = e_m at first; the push of a row moves
/// r_i to p_i and r_i l_ij to r_j. The bound is ‖r‖₁ ‖f‖ / (1 − norm). None if it would take more work than `most`
/// entries.
pub(super) fn push(
    split: &Split<'_>,
    f: &[f64],
    norm: f64,
    component: usize,
    epsilon: f64,
    most: u64,
) -> Option<Ended> {
    let from = Instant::now();
    let n = split.unknowns();
    let largest = f.iter().fold(0.0f64, |m, f| m.max(f.abs())) / (1.0 - norm);
    let mut r = vec![0.0f64; n];
    let mut touched = vec![component as u32];
    let mut queued = vec![false; n];
    r[component] = 1.0;
    let (mut left, mut estimate, mut threshold) = (1.0f64, 0.0, 0.25f64);
    let (mut work, mut pushes) = (0u64, 0u64);
    let mut queue = VecDeque::new();
    while left * largest > epsilon {
        for &i in &touched {
            if r[i as usize].abs() > threshold && !queued[i as usize] {
                queued[i as usize] = true;
                queue.push_back(i);
            }
        }
        while let Some(i) = queue.pop_front() {
            let i = i as usize;
            queued[i] = false;
            let here = std::mem::take(&mut r[i]);
            left -= here.abs();
            estimate += here * f[i];
            pushes += 1;
            for (j, l) in split.row(i) {
                let j = j as usize;
                let before = r[j];
                if before == 0.0 {
                    touched.push(j as u32);
                }
                r[j] += here * l;
                left += r[j].abs() - before.abs();
                if r[j].abs() > threshold && !queued[j] {
                    queued[j] = true;
                    queue.push_back(j as u32);
                }
                work += 1;
            }
            if work > most {
                return None;
            }
            if left * largest <= epsilon {
                break;
            }
        }
        queue.iter().for_each(|&i| queued[i as usize] = false);
        queue.clear();
        touched.sort_unstable();
        touched.dedup();
        // The sum of what is left, without what rounding has made of it.
        left = touched.iter().map(|&i| r[i as usize].abs()).sum();
        threshold *= 0.25;
    }
    let seconds = from.elapsed().as_secs_f64();
    let bound = left * largest;
    Some(Ended { seconds, upload: 0.0, steps: pushes as f64 / n as f64, estimate, bound })
}
