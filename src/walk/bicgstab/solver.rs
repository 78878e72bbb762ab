//! BiCGSTAB for (I − M) x = b on a lane.
//!
//! BiCGSTAB is by H. A. van der Vorst, "Bi-CGSTAB: a fast and smoothly converging variant of Bi-CG
//! for the solution of nonsymmetric linear systems", SIAM Journal on Scientific and Statistical
//! Computing 13, 1992, doi:10.1137/0913035.
//!
//! The lane has the matrix in HYB format, and computes the scalars. An iteration is a few launches
//! without synchronisation. The host reads the scalars after every sixteen iterations. All lanes
//! add in one order, so they return equal bits if they round a fused product once. The result is
//! not proved: a caller checks it by another product with the matrix on the host.

use super::kernels::{
    ACTIVE, BICGSTAB_DIRECTION, BICGSTAB_HALF, BICGSTAB_PRODUCT, BICGSTAB_SCALARS, BICGSTAB_WHOLE, ENOUGH,
    ITERATIONS, RHO, SCALARS, bicgstab_direction, bicgstab_half, bicgstab_product, bicgstab_scalars,
    bicgstab_whole,
};
use crate::kernel::Precision;
use crate::lane::{Arg, Buffer, Lane, Launch, Program};
use crate::parallel::*;
use crate::sparse::{BLOCK, Hyb, HybLayout, RowSource, SLICE, cut};
use crate::walk::splitting::Split;
use crate::{Error, Result};

/// Number of rows that a thread processes at a time on the host.
const ROWS: usize = 4096;

/// Number of iterations between two convergence checks.
///
/// A check takes little time compared with this many iterations. Iterations after convergence take
/// little time as well, since their launches return at once.
const CHECK_INTERVAL: usize = 16;

/// Stored entries from which a device saves more time than it takes to prepare kernels (tens of
/// ms).
const MANY: u64 = 1 << 17;

/// Largest number of entries of a chunk of the matrix, which bounds its copy on the host.
const CHUNK: u64 = 1 << 24;

/// Callback that gets the number of products so far.
///
/// An error or `false` ends the work. With `false` the current iterate is used.
pub(crate) type ProgressFn<'a> = &'a mut (dyn FnMut(usize) -> Result<bool> + Send);

/// Some rows of the matrix on a lane.
#[derive(Debug)]
struct MatrixChunk {
    first: usize,
    rows: usize,
    slices: Buffer<u32>,
    columns: Buffer<u32>,
    values: Buffer<f64>,
}

/// A matrix M on a lane, with launches that solve (I − M) x = b.
#[derive(Debug)]
pub(crate) struct Bicgstab {
    lane: Lane,
    n: usize,
    iteration: Vec<Launch>,
    x: Buffer<f64>,
    /// Residual, search direction and shadow residual, which are b at first.
    rights: [Buffer<f64>; 3],
    scalars: Buffer<f64>,
    #[expect(dead_code, reason = "charged to the lane for as long as launches have it")]
    others: (Vec<MatrixChunk>, [Buffer<f64>; 3], Buffer<[f64; 2]>),
}

impl Bicgstab {
    /// Prepares a matrix of n rows, which `row` returns with ascending columns.
    ///
    /// The norm of a residual is its largest absolute entry, times the row's weight if there are
    /// `weights`. The matrix is on `lane`, or on the host if the lane has no f64 or too little
    /// memory, or would gain nothing.
    pub(crate) fn new(
        lane: &Lane,
        n: usize,
        row: RowSource<'_, f64>,
        weights: Option<&[f64]>,
    ) -> Result<Self> {
        let mut lengths = vec![0u32; n];
        lengths.par_chunks_mut(ROWS).enumerate().for_each(|(k, lengths)| {
            let mut entries = Vec::new();
            for (i, length) in (k * ROWS..).zip(lengths) {
                entries.clear();
                row(i, &mut entries);
                *length = entries.len() as u32;
            }
        });
        let layout = HybLayout::new(&lengths, Precision::F64.bytes());
        let device = lane.device();
        // CPU lanes are left out to prevent a deadlock. A thread that holds the queue of a CPU lane
        // may meanwhile work on another solution, which waits for that queue.
        if !device.host && device.f64 && layout.stored() >= MANY {
            match Self::on(lane, n, &layout, row, weights, CHUNK) {
                Err(Error::OutOfMemory { .. }) => {}
                made => return made,
            }
        }
        Self::on(&Lane::at_hand(), n, &layout, row, weights, CHUNK)
    }

    fn on(
        lane: &Lane,
        n: usize,
        layout: &HybLayout,
        row: RowSource<'_, f64>,
        weights: Option<&[f64]>,
        most: u64,
    ) -> Result<Self> {
        let vector = || lane.alloc::<f64>("a vector of BiCGSTAB", n);
        let (own_x, rights, own_q, own_t) =
            (vector()?, [vector()?, vector()?, vector()?], vector()?, vector()?);
        let own_weights = lane.alloc_with("the weights of BiCGSTAB", weights.unwrap_or_default())?;
        let blocks = n.div_ceil(BLOCK);
        let own_sums = lane.alloc::<[f64; 2]>("the sums of BiCGSTAB", blocks)?;
        let own_scalars = lane.alloc::<f64>("the scalars of BiCGSTAB", SCALARS)?;
        let mut chunks = Vec::new();
        let most = (lane.device().limits.binding / Precision::F64.bytes()).min(most);
        for slices in cut(layout, 0..layout.widths.len(), most) {
            let first = slices.start * SLICE;
            let hyb = Hyb::build(layout, slices, n, row);
            chunks.push(MatrixChunk {
                first,
                rows: hyb.rows,
                slices: lane.alloc_with("the slices of BiCGSTAB's matrix", &hyb.slices)?,
                columns: lane.alloc_with("the columns of BiCGSTAB's matrix", &hyb.columns)?,
                values: lane.alloc_with("the values of BiCGSTAB's matrix", &hyb.values)?,
            });
        }

        let (rows, f64) = (n as u32, Precision::F64);
        let [r, d, shadow] = rights.each_ref().map(Buffer::arg);
        let [x, q, t, w, scalars] = [&own_x, &own_q, &own_t, &own_weights, &own_scalars].map(Buffer::arg);
        let sums = own_sums.arg();
        let mut iteration = Vec::new();
        let product = |launches: &mut Vec<Launch>, x: Arg<'_>, z: Arg<'_>, y: Arg<'_>| -> Result<()> {
            for MatrixChunk { first, rows, slices, columns, values } in &chunks {
                let (rows, first_row) = (*rows as u32, *first as u32);
                let params = bicgstab_product::Params { rows, first_row, ..Default::default() };
                let (slices, columns, values) = (slices.arg(), columns.arg(), values.arg());
                let args = bicgstab_product::Args { slices, columns, values, scalars, x, z, y, sums };
                launches.push(lane.bind(&BICGSTAB_PRODUCT, f64, rows as usize, params, args)?);
            }
            Ok(())
        };
        let scalar = |stage: u32| {
            let params = bicgstab_scalars::Params { blocks: blocks as u32, stage, ..Default::default() };
            lane.bind(&BICGSTAB_SCALARS, f64, BLOCK, params, bicgstab_scalars::Args { sums, scalars })
        };
        product(&mut iteration, d, shadow, q)?;
        iteration.push(scalar(0)?);
        let params = bicgstab_half::Params { rows, ..Default::default() };
        iteration.push(lane.bind(&BICGSTAB_HALF, f64, n, params, bicgstab_half::Args { scalars, q, r })?);
        product(&mut iteration, r, r, t)?;
        iteration.push(scalar(1)?);
        let weighted = u32::from(weights.is_some());
        let params = bicgstab_whole::Params { rows, weighted, ..Default::default() };
        let args = bicgstab_whole::Args { scalars, d, t, shadow, w, x, r, sums };
        iteration.push(lane.bind(&BICGSTAB_WHOLE, f64, n, params, args)?);
        iteration.push(scalar(2)?);
        let params = bicgstab_direction::Params { rows, ..Default::default() };
        let args = bicgstab_direction::Args { scalars, r, q, d };
        iteration.push(lane.bind(&BICGSTAB_DIRECTION, f64, n, params, args)?);
        let others = (chunks, [own_q, own_t, own_weights], own_sums);
        let (x, scalars, lane) = (own_x, own_scalars, lane.clone());
        Ok(Self { lane, n, iteration, x, rights, scalars, others })
    }

    /// Returns an approximate x and the number of products.
    ///
    /// The iteration ends once the residual's norm is at most `enough`, after `most` products, or
    /// if `progress` returns `false`. The caller has to check the error of x.
    pub(crate) fn solve(
        &self,
        b: &[f64],
        enough: f64,
        most: usize,
        progress: ProgressFn<'_>,
    ) -> Result<(Vec<f64>, usize)> {
        let mut scalars = [0.0; SCALARS];
        // Added in one order, for any number of threads.
        let squares = b.par_chunks(ROWS).map(|b| b.iter().map(|b| b * b).sum::<f64>());
        scalars[RHO] = squares.collect::<Vec<f64>>().into_iter().sum();
        (scalars[ENOUGH], scalars[ACTIVE]) = (enough, 1.0);
        self.rights.iter().try_for_each(|right| self.lane.upload(b, right, 0))?;
        self.lane.clear(&self.x)?;
        self.lane.upload(&scalars, &self.scalars, 0)?;
        let mut used = 0;
        while used + 2 <= most && scalars[ACTIVE] != 0.0 && progress(used)? {
            let count = CHECK_INTERVAL.min((most - used) / 2);
            let watch = &mut |done| progress(used + 2 * done);
            let done = self.repeat(used / 2, count, watch)?;
            self.lane.download(&self.scalars, 0, &mut scalars)?;
            used = 2 * scalars[ITERATIONS] as usize;
            if done < count {
                break;
            }
        }
        let mut x = vec![0.0; self.n];
        self.lane.download(&self.x, 0, &mut x)?;
        Ok((x, used))
    }

    /// Runs iterations up to `count` times, and returns the approximate number of times.
    ///
    /// `progress` gets the number of times so far, and ends the work if it returns `false`.
    fn repeat(&self, first: usize, count: usize, progress: ProgressFn<'_>) -> Result<usize> {
        let program = Program { cycle: vec![self.iteration.iter().collect()] };
        let mut ended = None;
        let mut watch = |done: u64| {
            let done = done as usize;
            if progress(done)? {
                return Ok(());
            }
            ended = Some(done);
            Err(Error::Interrupted)
        };
        let ran = self.lane.run(&program, first as u64, count as u64, &mut watch);
        ended.map_or(ran.map(|()| count), Ok)
    }
}

/// BiCGSTAB for the matrix L of a splitting, uploaded to a lane at its first use.
#[derive(Debug)]
pub struct Krylov<'a> {
    lane: &'a Lane,
    made: Option<Bicgstab>,
}

impl<'a> Krylov<'a> {
    /// Creates a solver without a matrix, which is uploaded at its first use.
    pub fn new(lane: &'a Lane) -> Self {
        Self { lane, made: None }
    }

    /// Returns the solver, which is prepared at the first call.
    ///
    /// Its norm of a residual is max_i |r_i| / v_i, with the `vector` v of the certificate.
    pub(crate) fn of(&mut self, split: &Split<'_>, vector: Option<&[f64]>) -> Result<&Bicgstab> {
        let made = match self.made.take() {
            Some(made) => made,
            None => {
                let weights: Option<Vec<f64>> = vector.map(|v| v.par_iter().map(|v| 1.0 / v).collect());
                let row = |i: usize, row: &mut Vec<(u32, f64)>| row.extend(split.row(i));
                Bicgstab::new(self.lane, split.unknowns(), &row, weights.as_deref())?
            }
        };
        Ok(self.made.insert(made))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::{DeviceSpec, OpenOptions};

    /// Returns the CPU lane, and a device's lane if there is one with f64.
    fn lanes() -> Vec<Lane> {
        let all = crate::lane::tests::pairs().into_iter().map(|[lane, _]| lane);
        all.filter(|lane| lane.device().f64).collect()
    }

    /// Returns row i of a grid of `edge` columns; every hundredth row has 70 more entries.
    ///
    /// Rows of |M| sum to 0.94 or less.
    fn entries(i: usize, n: usize, edge: usize, row: &mut Vec<(u32, f64)>) {
        let near = [i.wrapping_sub(edge), i.wrapping_sub(1), i + 1, i + edge];
        row.extend(near.into_iter().filter(|&j| j < n).map(|j| (j as u32, 0.2)));
        if i % 100 == 7 {
            row.extend((0..70).map(|k| ((k * n / 70) as u32, if k % 3 == 0 { -0.002 } else { 0.002 })));
            row.sort_unstable_by_key(|&(j, _)| j);
            row.dedup_by_key(|&mut (j, _)| j);
        }
    }

    /// Compares lanes on some hundred rows (one thread) and on many, in one chunk and in several.
    #[test]
    fn solutions_do_not_depend_on_the_lane() {
        for (edge, weighted) in [(23, false), (100, true)] {
            let n = edge * edge + 5;
            let row = |i: usize, row: &mut Vec<(u32, f64)>| entries(i, n, edge, row);
            let entries = |i: usize| {
                let mut entries = Vec::new();
                row(i, &mut entries);
                entries
            };
            let lengths: Vec<u32> = (0..n).map(|i| entries(i).len() as u32).collect();
            let layout = HybLayout::new(&lengths, 8);
            assert!(layout.tails.iter().any(|&tail| tail > 0), "long rows have a COO part");
            let b: Vec<f64> = (0..n).map(|i| ((i * 37) % 101) as f64 - 50.0).collect();
            let weights: Vec<f64> = (0..n).map(|i| 1.0 + (i % 4) as f64).collect();
            let weights = weighted.then_some(&weights[..]);
            let size = |i: usize, r: f64| r.abs() * weights.map_or(1.0, |w| w[i]);
            let mut all = Vec::new();
            for lane in lanes() {
                for most in [u64::MAX, 1000] {
                    let made = Bicgstab::on(&lane, n, &layout, &row, weights, most).expect("it fits");
                    // One launch per chunk and product, and six more.
                    assert_eq!(made.iteration.len() > 8, most == 1000);
                    // The solver is reused for several right-hand sides.
                    made.solve(&vec![1.0; n], 1e-3, 100, &mut |_| Ok(true)).expect("it runs");
                    let (x, used) = made.solve(&b, 1e-8, 1000, &mut |_| Ok(true)).expect("it runs");
                    let residual = (0..n).map(|i| {
                        let product: f64 = entries(i).iter().map(|&(j, m)| m * x[j as usize]).sum();
                        size(i, b[i] - x[i] + product)
                    });
                    let norm = residual.fold(0.0, f64::max);
                    // Each product rounds a row of at most 75 entries, for x below 50 / (1 − 0.94),
                    // with weights up to 4.
                    let rounding = used as f64 * 75.0 * f64::EPSILON * 4.0 * 50.0 / 0.06;
                    assert!(norm <= 1e-8 + rounding && (4..500).contains(&used), "{norm:e} {used}");
                    // Software adapters may round a fused product twice;
                    // `tests/command/cli_walk.rs` has their bits.
                    if lane.device().software {
                        continue;
                    }
                    all.push((used, x.into_iter().map(f64::to_bits).collect::<Vec<u64>>()));
                }
            }
            let used: Vec<usize> = all.iter().map(|one| one.0).collect();
            assert!(all.iter().all(|one| *one == all[0]), "{used:?}");
        }
    }

    #[test]
    fn devices_solve_large_systems_that_fit() {
        let of = |lane: &Lane, n: usize| {
            let row = |i: usize, row: &mut Vec<(u32, f64)>| entries(i, n, 100, row);
            let made = Bicgstab::new(lane, n, &row, None).expect("one of both");
            let (x, _) = made.solve(&vec![0.2; n], 1e-3, 100, &mut |_| Ok(true)).expect("it runs");
            assert!(x.iter().all(|x| (0.1..0.2 / 0.06).contains(x)), "{x:?}");
            made.lane.number() == lane.number()
        };
        let few = OpenOptions { memory_limit: Some(1 << 20), ..OpenOptions::default() };
        for lane in lanes() {
            let large = !lane.device().host;
            assert_eq!((of(&lane, 50), of(&lane, 40_000)), (false, large));
            let spec: DeviceSpec = lane.device().spec.parse().expect("its name");
            let (limited, _) = crate::lane::open(&[spec], &few).expect("it opened before");
            assert!(!of(&limited[0], 40_000));
        }
    }
}
