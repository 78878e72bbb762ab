//! Derivatives of a functional of transient probabilities by every rate.
//!
//! Let F = Σ_k x_k c_k with x_k = π(0) Pᵏ and column vectors c_k, the weighted values of the times
//! whose windows include k. With b_{m−1} = c_m + P b_m, b_R = 0 after the last term R,
//!
//! dF/dq_ij = (1/α) Σ_m x_m(i) (b_m(j) − b_m(i)), and dF/dπ(0) = b_{−1}.
//!
//! The iterates x_m are stored. If memory does not suffice for all of them, every √R-th is stored,
//! and those between two of them are computed again. Both directions run on the first lane, by the
//! step of uniformization. The terms of eight steps are added to the derivatives at once.

use std::slice::from_ref;

use bytemuck::Zeroable;

use super::kernels::{ADJOINT_STORE, RATE_DERIVATIVES, STEPS, adjoint_store, rate_derivatives};
use super::{Bounded, PoissonTime, U, check_machine, check_times, uniformized};

use crate::kernel::{Number, Precision};
use crate::lane::{Buffer, Lane, Launch, Program, expect_memory};
use crate::parallel::*;
use crate::sparse::{CsrMatrix, HybLayout};
use crate::transient::chain::csr::Csr;
use crate::transient::chain::scan::{lengths, statistics};
use crate::transient::chain::statistics::MatrixStatistics;
use crate::transient::chain::transitions::Transitions;
use crate::transient::columns::{ActionRequest, ByRows, of_rows};
use crate::transient::partition::most_elements;
use crate::transient::partition::subdomain::Region;
use crate::transient::problem::{Options, Problem, check};
use crate::transient::step::chunk::{LanePart, StepSum};
use crate::transient::step::matrix::{MatrixSource, PartMatrix};
use crate::transient::step::vector_kernels::{SCALE, scale};
use crate::transient::{Initial, Reward};
use crate::util::memory::zeroed;
use crate::{Invalid, Machine, Progress, Result};

/// Term of a functional: an expectation at a time, or accumulated until then.
#[derive(Debug, Clone, Copy)]
pub struct Functional<'a> {
    /// Finite time.
    pub time: f64,
    /// Value of each state.
    pub values: &'a [f64],
    /// True if the values are rates, accumulated until the time.
    pub accumulated: bool,
}

/// A functional, and its derivatives by all rates and all initial probabilities.
#[derive(Debug, Clone, PartialEq)]
pub struct Adjoint {
    /// Value of the functional.
    pub value: f64,
    /// Derivative by the rate of each entry of the matrix. The bound is that of each derivative.
    ///
    /// The derivatives g_ij include the effect of a rate on the diagonal of the generator. Those of
    /// diagonal entries are 0. For any changes dq_ij of the rates, the error of Σ g_ij dq_ij is at
    /// most `rates.bound` times the largest Σ_j |dq_ij| of a row i.
    pub rates: Bounded,
    /// Derivative by each initial probability. The bound is that of each derivative.
    ///
    /// It is the value of the functional for a chain that starts in that state.
    pub initial: Bounded,
}

/// Computes a functional of transient probabilities, and its derivatives by every rate.
///
/// The functional is the sum of `functionals`. Row i of `rates` has the rates out of state i; zeros
/// may be stored, and diagonal entries have no effect. If the iterates of all R steps take more
/// than `memory` bytes, or half of the free memory, only about 2√R iterates are stored at once.
///
/// # Errors
/// [`Invalid`] for rates that are negative or not finite, for values of another shape or that are
/// not finite, for times that are not finite, for a precision other than f64, and for several
/// ranks; [`crate::Error::OutOfMemory`]; errors of the observer.
pub fn adjoint(
    machine: &Machine,
    rates: &CsrMatrix,
    initial: &Initial,
    functionals: &[Functional<'_>],
    options: &Options,
    memory: Option<u64>,
    observer: &mut dyn Progress,
) -> Result<Adjoint> {
    check_machine(machine)?;
    let n = rates.rows();
    Invalid::Shape.unless(rates.columns() == n, || {
        format!("`rates` is a matrix of {n} rows and {} columns: expected a square matrix", rates.columns())
    })?;
    if let Some((from, to, rate)) = rates.entries().find(|&(i, j, r)| i != j && !(0.0..1e300).contains(&r)) {
        return Invalid::Number("rates")
            .fail(format!("the rate {from} -> {to} is {rate:e}: expected a number from 0 to below 1e300"));
    }
    Invalid::Unsupported.unless(u32::try_from(rates.nnz()).is_ok(), || {
        format!("derivatives by {} rates are not supported: expected fewer than 2^32", rates.nnz())
    })?;
    let chain = Csr::from_rates(rates);
    let task = AdjointTask { initial, functionals, options, memory };
    task.check(&chain)?;
    let request = ActionRequest { backward: true, ..ActionRequest::new(&chain, &[], &[], options.epsilon) };
    let by_rows = ByRows(request);
    let statistics = uniformized(statistics(&chain)?, &task.times());
    let lengths = lengths(&by_rows, 0..n);
    let own = machine.of_thread();
    let lane = &own.as_ref().unwrap_or(machine).lanes[0];
    let matrix = |rows: &dyn Transitions, statistics: &MatrixStatistics<f64>| {
        let layout = HybLayout::new(&statistics.lengths, Precision::F64.bytes());
        let region = Region::whole(n, &statistics.lengths);
        let source = MatrixSource::new(lane, rows, statistics, &layout, &region, from_ref(&region), 1);
        source.build(options.format)
    };
    let matrices = |[forward, back]: &[MatrixStatistics<f64>; 2]| {
        Ok([matrix(&chain, forward)?, matrix(&by_rows, back)?])
    };
    let work = || {
        let structure = RateStructure::new(lane, rates)?;
        let (mut found, derivatives) =
            task.run(lane, structure, (statistics, lengths), matrices, observer)?;
        found.rates.values = zeroed(rates.nnz());
        lane.download(&derivatives, 0, &mut found.rates.values)?;
        Ok(found)
    };
    // Waking other threads takes longer than the steps of a small chain.
    if n <= ALONE && lane.device().host { alone(work) } else { work() }
}

/// Functionals to differentiate, and the options of the run.
#[derive(Clone, Copy)]
pub(super) struct AdjointTask<'a> {
    pub(super) initial: &'a Initial,
    pub(super) functionals: &'a [Functional<'a>],
    pub(super) options: &'a Options,
    /// Maximum memory for iterates in bytes.
    pub(super) memory: Option<u64>,
}

impl AdjointTask<'_> {
    pub(super) fn times(&self) -> Vec<f64> {
        self.functionals.iter().map(|functional| functional.time).collect()
    }

    /// Checks everything but the rates of the chain.
    pub(super) fn check(&self, chain: &dyn Transitions) -> Result<()> {
        // The check of rewards also applies to values.
        let reward = |f: &Functional<'_>| Reward { name: "values".to_owned(), values: f.values.to_vec() };
        let (values, times): (Vec<Reward>, _) = (self.functionals.iter().map(reward).collect(), self.times());
        check(&Problem::new(chain, self.initial, &times).rewards(&values), self.options)?;
        check_times(&times)
    }

    /// Computes the functional and its derivatives; those by rates stay on the lane.
    ///
    /// `lengths` are the numbers of transitions out of each state. `matrices` returns the matrices
    /// of steps forward and backward with these statistics.
    pub(super) fn run(
        self,
        lane: &Lane,
        structure: RateStructure,
        (mut forward, lengths): (MatrixStatistics<f64>, Vec<u32>),
        matrices: impl FnOnce(&[MatrixStatistics<f64>; 2]) -> Result<[PartMatrix<f64>; 2]>,
        observer: &mut dyn Progress,
    ) -> Result<(Adjoint, Buffer<f64>)> {
        let (Self { initial, functionals, options, memory }, n) = (self, lengths.len());
        let epsilon = |time: f64| (0.0625 * options.epsilon / time.max(1.0)).max(1e-290);
        let due = self.times().into_iter().map(|time| PoissonTime::new(&forward, time, epsilon(time)));
        let due = due.collect::<Result<Vec<_>>>()?;
        let start = initial.probabilities(n)?;
        let last = due.iter().map(|due| due.right).max().unwrap_or(0);
        forward.steps = last as f64;
        let back = of_rows(MatrixStatistics { lengths, ..forward.clone() });
        let statistics = [forward, back];
        let entries = structure.columns.len();
        expect_memory((entries * 48 + n * 128) as u64, || format!("derivatives by {entries} rates"))?;
        let errors = AdjointErrors {
            longest: structure.longest as f64,
            forward: [initial.rounding(), 1.001 * statistics[0].step],
            backward: 1.001 * statistics[1].step,
            ..AdjointErrors::default()
        };
        let holding = statistics[0].mean_holding();
        let [forward, back] = matrices(&statistics)?;
        let inverse_alpha = statistics[0].inverse_alpha;
        let steps = [Steps::new(lane, n, forward, inverse_alpha)?, Steps::new(lane, n, back, inverse_alpha)?];
        let largest = |f: &Functional<'_>| f.values.iter().fold(0.0f64, |most, v| v.abs().max(most));
        let largest = functionals.iter().map(largest).collect();
        let run = AdjointRun { structure, functionals, largest, due, last, holding, errors };
        run.run(lane, steps, &start, memory, observer)
    }
}

/// Rows of the rate matrix on a lane, without the rates.
#[derive(Debug, Clone)]
pub(super) struct RateStructure {
    pub(super) starts: Buffer<u32>,
    pub(super) columns: Buffer<u32>,
    /// Length of the longest row.
    longest: usize,
}

impl RateStructure {
    pub(super) fn new<V: Copy + Zeroable + Send + Sync>(lane: &Lane, matrix: &CsrMatrix<V>) -> Result<Self> {
        let starts: Vec<u32> = matrix.starts().iter().map(|&start| start as u32).collect();
        let longest = matrix.starts().windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0);
        let columns = lane.alloc_with("columns", matrix.column())?;
        Ok(Self { starts: lane.alloc_with("starts of rows", &starts)?, columns, longest })
    }
}

/// Number of states up to which one thread takes all steps.
const ALONE: usize = 512;

/// Two vectors on a lane, and the launches of a step from one to the other.
struct Steps {
    /// The matrix and the vectors.
    part: LanePart<f64>,
    /// Launches of the steps that read vector 0 or vector 1.
    launches: [Vec<Launch>; 2],
}

impl Steps {
    fn new(lane: &Lane, n: usize, matrix: PartMatrix<f64>, inverse_alpha: f64) -> Result<Self> {
        let PartMatrix { chunks, exit, .. } = matrix;
        let x = [lane.alloc("a vector", n)?, lane.alloc("a vector", n)?];
        let scalars = lane.alloc_with("1/α", &[inverse_alpha])?;
        // Placeholders: the steps add to no sum.
        let (acc, non_absorbing) = (lane.alloc::<f64>("a sum", 1)?, lane.alloc("bits", 1)?);
        let sum =
            StepSum { scalars: scalars.arg(), acc: acc.arg(), window: 0..0, weights: 0, recurrence: false };
        let part = LanePart { lane: 0, rows: 0..n, computed: 0..n, own: 0, x, non_absorbing, exit, chunks };
        let step = |source| {
            let launches =
                part.chunks.iter().map(|chunk| chunk.step(lane, &part, source, &sum, 0..chunk.rows));
            launches.collect::<Result<Vec<_>>>()
        };
        let launches = [step(0)?, step(1)?];
        Ok(Self { part, launches })
    }

    /// Returns the launches of a step from vector `source` to the other one.
    fn step(&self, source: usize) -> impl Iterator<Item = &Launch> {
        self.launches[source].iter()
    }
}

/// Returns the number of steps whose iterates are stored at once, of `last` steps.
///
/// `sizes`: numbers of states and of functionals.
fn piece_steps(lane: &Lane, last: u64, sizes: [usize; 2], memory: Option<u64>) -> u64 {
    let free = memory.unwrap_or(u64::MAX).min(lane.free_bytes().map_or(u64::MAX, |free| free / 2));
    let fit = (free / (8 * sizes[0] as u64)).max(4);
    let most = most_elements(lane, Precision::F64.bytes()).min(u32::MAX as usize);
    let most = (most / sizes[0].max(sizes[1])) as u64;
    if last <= fit.min(most) {
        return last.max(1);
    }
    // Whole groups of steps, so that bits do not depend on the memory.
    let group = STEPS as u64;
    let some = (last.isqrt() + 1).next_multiple_of(group);
    if most < group { most.max(1) } else { some.min(most / group * group) }
}

/// Launches of a run other than its steps, and their arrays.
struct Kernels {
    /// Store vector 0 or 1 of the forward steps as an iterate.
    stores: [Launch; 2],
    /// Add c_m to vector 0 or 1 of the backward steps, and store the sum.
    sums: [Launch; 2],
    /// Adds the terms of up to [`STEPS`] steps to the derivatives.
    terms: Launch,
    /// Multiplies the derivatives by 1/α.
    scale: Launch,
    /// Weights of the functionals in c_m, one row per step.
    weights: Buffer<f64>,
    derivatives: Buffer<f64>,
    /// Iterates, the b_m of eight steps, values, and 1/α.
    _arrays: [Buffer<f64>; 4],
}

impl Kernels {
    /// Prepares the kernels for up to `length` stored iterates.
    fn new(lane: &Lane, run: &AdjointRun<'_>, [forward, back]: [&Steps; 2], length: usize) -> Result<Self> {
        let RateStructure { starts, columns, .. } = &run.structure;
        let (n, count) = (starts.len() - 1, run.functionals.len());
        let iterates = lane.alloc("iterates", length * n)?;
        let ring = lane.alloc("vectors of eight steps", STEPS * n)?;
        let values: Vec<f64> = run.functionals.iter().flat_map(|f| f.values).copied().collect();
        let values = lane.alloc_with("values of states", &values)?;
        let weights = lane.alloc::<f64>("weights of values", length * count)?;
        let store = |x: &Buffer<f64>, count: usize, all: &Buffer<f64>| {
            let (slots, functionals) = ((all.len() / n) as u32, count as u32);
            let params = adjoint_store::Params { step: 0, rows: n as u32, slots, functionals };
            let (weights, values) = (weights.arg(), values.arg());
            let args = adjoint_store::Args { weights, values, x: x.arg(), all: all.arg() };
            lane.bind(&ADJOINT_STORE, Precision::F64, n, params, args)
        };
        let [x, b] = [&forward.part.x, &back.part.x];
        let stores = [store(&x[0], 0, &iterates)?, store(&x[1], 0, &iterates)?];
        let sums = [store(&b[0], count, &ring)?, store(&b[1], count, &ring)?];
        let derivatives = lane.alloc("derivatives by all rates", columns.len())?;
        let params = rate_derivatives::Params { rows: n as u32, ..Default::default() };
        let args = rate_derivatives::Args {
            starts: starts.arg(),
            columns: columns.arg(),
            x: iterates.arg(),
            b: ring.arg(),
            derivatives: derivatives.arg(),
        };
        let terms = lane.bind(&RATE_DERIVATIVES, Precision::F64, n, params, args)?;
        let factor = lane.alloc_with("1/α", &[run.holding])?;
        let params = scale::Params { rows: columns.len() as u32, ..Default::default() };
        let args = scale::Args { factors: factor.arg(), y: derivatives.arg() };
        let scale = lane.bind(&SCALE, Precision::F64, columns.len(), params, args)?;
        Ok(Self {
            stores,
            sums,
            terms,
            scale,
            weights,
            derivatives,
            _arrays: [iterates, ring, values, factor],
        })
    }
}

/// Bounds of the errors of a backward run.
#[derive(Debug, Clone, Copy, Default)]
struct AdjointErrors {
    /// Length of the longest row.
    longest: f64,
    /// l1 errors of π(0), and of each step from x_m to x_{m+1}.
    forward: [f64; 2],
    /// Error of each element of P b for |b| ≤ 1.
    backward: f64,
    /// Bound of the magnitudes of the elements of b_m.
    size: f64,
    /// Bound of the error of each element of b_m.
    error: f64,
    /// Sum of the errors of the terms x_m(i) (b_m(j) − b_m(i)) so far.
    terms: f64,
    /// Sum of the bounds of these terms.
    sizes: f64,
}

impl AdjointErrors {
    /// Adds the term of x_m and b_m, and advances to b_{m−1} = c_m + P b_m.
    ///
    /// `added` bounds the elements of c_m, a sum of `count` vectors.
    fn step(&mut self, m: u64, added: f64, count: usize) {
        let most = self.size + self.error;
        let [start, step] = self.forward;
        self.terms += 2.0 * self.error + (start + m as f64 * step) * 2.0 * most;
        self.sizes += 2.0 * most;
        self.error += (self.backward + U * count as f64) * (most + added) + 4.0 * U * added;
        self.error += f64::NEGLIGIBLE * (self.longest + 12.0);
        self.size += added;
    }
}

/// Backward recursion of the adjoint vectors, from the last Poisson term to the first.
struct AdjointRun<'a> {
    structure: RateStructure,
    functionals: &'a [Functional<'a>],
    /// Largest magnitude of the values of each functional.
    largest: Vec<f64>,
    due: Vec<PoissonTime>,
    /// Last term of all windows.
    last: u64,
    /// 1/α.
    holding: f64,
    errors: AdjointErrors,
}

impl AdjointRun<'_> {
    /// Returns the weight of the values of each functional in c_m.
    fn weights(&self, m: u64) -> impl Iterator<Item = f64> {
        self.functionals.iter().zip(&self.due).map(move |(functional, due)| match functional.accumulated {
            true => due.weights[1].of(m) * self.holding,
            false => due.weights[0].of(m),
        })
    }

    /// Bounds the errors of all steps from the last term down to 0.
    fn bound(&mut self) {
        let last = self.last;
        let added = |run: &Self, m| {
            let weights: Vec<f64> = run.weights(m).collect();
            let size = weights.iter().zip(&run.largest).map(|(weight, most)| weight * most).sum::<f64>();
            (size, weights.iter().filter(|weight| **weight != 0.0).count())
        };
        let window = |((f, due), most): ((&Functional<'_>, &PoissonTime), &f64)| match f.accumulated {
            true => due.len * self.holding * due.rounding[1] * most,
            false => due.rounding[0] * most,
        };
        let (size, count) = added(self, last);
        let windows: f64 = self.functionals.iter().zip(&self.due).zip(&self.largest).map(window).sum();
        self.errors.error = windows + (4.0 + count as f64) * U * size;
        self.errors.size = size;
        for m in (0..last).rev() {
            let (size, count) = added(self, m);
            self.errors.step(m, size, count);
        }
    }

    /// Computes the iterates from `start`, and runs backwards over them.
    fn run(
        mut self,
        lane: &Lane,
        [forward, back]: [Steps; 2],
        start: &[f64],
        memory: Option<u64>,
        observer: &mut dyn Progress,
    ) -> Result<(Adjoint, Buffer<f64>)> {
        let (n, last) = (start.len(), self.last);
        self.bound();
        let length = piece_steps(lane, last, [n, self.functionals.len()], memory);
        let pieces = last.div_ceil(length);
        // Pieces of `length` steps end at the last step; only the first piece may be shorter.
        let begin = |piece: u64| last.saturating_sub((pieces - piece) * length);
        let mut kept = vec![start.to_vec()];
        if pieces > 1 {
            expect_memory(pieces * 8 * n as u64, || format!("iterates of {n} states"))?;
        }
        let mut kernels = Kernels::new(lane, &self, [&forward, &back], length as usize)?;
        // All pieces but the last one are run forwards twice.
        let (mut before, work) = (0, 2 * last + if pieces > 1 { begin(pieces - 1) } else { 0 });
        let mut run = |cycle: Vec<Vec<&Launch>>, count: u64| {
            let done = before;
            before += count;
            lane.run(&Program { cycle }, 0, count, &mut |steps| observer.progress(done + steps, work))
        };
        for piece in 1..pieces {
            let steps = begin(piece) - begin(piece - 1);
            lane.upload(&kept[kept.len() - 1], &forward.part.x[0], 0)?;
            run(vec![forward.step(0).collect(), forward.step(1).collect()], steps)?;
            let mut x = zeroed(n);
            lane.download(&forward.part.x[steps as usize % 2], 0, &mut x)?;
            kept.push(x);
        }
        // Vector of `back` with the newest b.
        let mut now = 0;
        for piece in (0..pieces).rev() {
            let (first, x) = (begin(piece), &kept[piece as usize]);
            let steps = begin(piece + 1) - first;
            lane.upload(x, &forward.part.x[0], 0)?;
            let step = |source: usize| [&kernels.stores[source]].into_iter().chain(forward.step(source));
            run(vec![step(0).collect(), step(1).collect()], steps)?;
            let added: Vec<f64> = (first + 1..=first + steps).rev().flat_map(|m| self.weights(m)).collect();
            lane.upload(&added, &kernels.weights, 0)?;
            kernels.terms.set("last", steps as u32 - 1);
            let step = |k: usize| {
                let source = (now + k) % 2;
                let terms = (k == STEPS - 1).then_some(&kernels.terms);
                [&kernels.sums[source]].into_iter().chain(terms).chain(back.step(source)).collect()
            };
            run((0..STEPS).map(step).collect(), steps)?;
            if steps % STEPS as u64 != 0 {
                lane.launch(&[&kernels.terms], steps - 1)?;
            }
            now = (now + steps as usize) % 2;
        }
        lane.upload(&self.weights(0).collect::<Vec<_>>(), &kernels.weights, 0)?;
        lane.launch(&[&kernels.sums[now]], 0)?;
        if !self.structure.columns.is_empty() {
            lane.launch(&[&kernels.scale], 0)?;
        }
        let mut b = zeroed(n);
        lane.download(&back.part.x[now], 0, &mut b)?;
        Ok((self.result(start, b), kernels.derivatives))
    }

    /// Returns the value and its derivatives, without those by rates, with bounds of the errors.
    fn result(self, start: &[f64], b: Vec<f64>) -> Adjoint {
        let Self { functionals, largest, due, holding, errors, .. } = self;
        let (mut rates, mut initial) = (0.0, errors.error);
        for ((functional, due), size) in functionals.iter().zip(&due).zip(largest) {
            let time = due.time;
            let kind = usize::from(functional.accumulated);
            let scale = if functional.accumulated { time } else { 1.0 };
            rates +=
                2.0 * size * scale * (time * due.omitted[1 + kind] + due.drift() * (2.0 * time + holding));
            initial += size * scale * (due.omitted[kind] + 2.0 * due.drift() + 4.0 * U);
        }
        let steps = self.last as f64;
        let sums = U * (steps + 16.0) * errors.sizes;
        rates += holding * (errors.terms + sums) + errors.longest * f64::MIN_POSITIVE;
        // The factor covers terms of second order and the rounding of the bound.
        let growth = 1.002 * (4.0 * U * (errors.longest + 6.0) * steps).exp();
        Adjoint {
            value: start.iter().zip(&b).map(|(p, b)| p * b).sum(),
            rates: Bounded { values: Vec::new(), bound: growth * rates },
            initial: Bounded { values: b, bound: growth * initial },
        }
    }
}
