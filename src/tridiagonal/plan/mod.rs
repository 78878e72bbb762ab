//! Plan: systems of one shape on some lanes, for any number of solutions.
//!
//! The rows are divided into chunks, one per lane, or more if the memory of the lanes does not hold
//! them all. Each chunk passes through stage 1 (reduction to
//! [`ReducedBlock`](super::kernels::reduced_block::ReducedBlock)s, or to the reduced system of its
//! blocks) and stage 3 (back substitution from its interface values). In between, one lane solves
//! the interface system of all chunks on all ranks.
//!
//! Copies and kernels of different lanes overlap. Every unknown depends on every row, so that there
//! is a barrier between the two stages. If couplings decay fast enough, there is no barrier, and
//! one pass over the rows suffices (`one_pass`).
//!
//! The merge tree of reduced blocks depends on the total number of rows alone. The result therefore
//! has the same bits for any number of lanes, chunks and ranks.

mod chunking;

use std::ops::Range;
use std::time::Instant;

use serde::Serialize;

use self::chunking::{Chunking, Chunks};
use super::chunk::{Pace, SystemChunk, Upload, places};
use super::kernels::number::Number;
use super::kernels::row_memory::{Arrays, padded};
use super::kernels::tiles::all_flags;
use super::one_pass::{NEIGHBOUR_ROWS, OnePass, windows};
use super::options::PlanOptions;
use super::reduction::interface_buffers::InterfaceEquations;
use super::reduction::interface_system::InterfaceSystem;
use super::scheme::Scheme;
use super::system::row_range::RowSpan;
use crate::lane::{Buffer, HostArray, Lane, Launch, Program};
use crate::{Invalid, Result};

/// Seconds of a solution, from host to host.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Stages {
    /// Seconds of stage 2: the interface system of all chunks, on one lane.
    pub interface: f64,
    /// Total elapsed seconds.
    pub total: f64,
}

/// Chunks of systems on lanes, with their arrays on the host.
#[derive(Debug)]
pub struct Plan<'a, T> {
    span: RowSpan,
    options: PlanOptions,
    chunks: Vec<SystemChunk<'a, T>>,
    interface: InterfaceSystem<'a, T>,
    passes: Passes<T>,
    /// Host arrays dl, d, du, b and x, with the rows around the local ones that windows need. For
    /// each right-hand side, b and x are as long as a diagonal.
    arrays: [HostArray<T>; 5],
}

/// Number of passes over the rows that the diagonals require.
#[derive(Debug)]
enum Passes<T> {
    Unknown,
    /// One pass: overlapping tiles are solved independently, and an error bound is certified.
    ///
    /// Chosen if the rows at sampled positions are sufficiently dominant. A solution with an
    /// uncertified tile is repeated in two passes.
    One(OnePass<T>),
    Two,
}

/// Input arrays of a plan, to be filled by the caller.
#[derive(Debug)]
pub struct Inputs<'p, T> {
    /// Lower diagonals.
    pub dl: &'p mut [T],
    /// Diagonals.
    pub d: &'p mut [T],
    /// Upper diagonals.
    pub du: &'p mut [T],
    /// First right-hand side of each system.
    pub b: &'p mut [T],
}

impl<'a, T: Number> Plan<'a, T> {
    /// Creates a plan in tiles or whole systems, with default options.
    pub fn new(lanes: &'a [Lane], n: usize, batch: usize, cyclic: bool) -> Result<Self> {
        Self::with(lanes, n, batch, cyclic, &PlanOptions::default())
    }

    /// Allocates memory for `batch` concatenated systems of `n` rows each, in equal chunks on the
    /// lanes.
    ///
    /// A cyclic system must be the only one, and is solved in tiles. Fails if there is no row, or
    /// the memory of a lane does not suffice: [`crate::Error::OutOfMemory`] names the sizes.
    pub fn with(
        lanes: &'a [Lane],
        n: usize,
        batch: usize,
        cyclic: bool,
        options: &PlanOptions,
    ) -> Result<Self> {
        Self::of(lanes, RowSpan::whole(n, batch, cyclic), options)
    }

    /// Creates a plan as [`Plan::with`] does, for the rows of `span`, which may be those of one
    /// rank. All ranks create it with equal options, and call its methods together.
    pub(crate) fn of(lanes: &'a [Lane], span: RowSpan, options: &PlanOptions) -> Result<Self> {
        let RowSpan { n, batch, rows, cyclic, .. } = span;
        let Some(home) = lanes.first().filter(|_| span.all() > 0) else {
            return Invalid::Shape.fail(format!(
                "{batch} systems of {n} rows on {} lanes: expected at least 1 of each",
                lanes.len()
            ));
        };
        if cyclic && (batch > 1 || options.pivot) {
            return Invalid::Unsupported.fail(format!(
                "a plan for {batch} cyclic systems{} is not supported: expected one, in tiles",
                if options.pivot { " with row exchanges" } else { "" }
            ));
        }
        if rows.min(n) >= 1 << 31 {
            return Invalid::TooLarge.fail(format!(
                "{} rows of a system are out of range: expected at most {} in one process; use \
                 several ranks",
                rows.min(n),
                (1u64 << 31) - 1
            ));
        }
        // A lane that works in these arrays reads and writes whole groups of rows.
        let neighbours: usize = span.neighbours(NEIGHBOUR_ROWS).iter().sum();
        let on_host = if options.resident { 0 } else { padded(rows + neighbours) };
        let rhs = options.rhs.max(1);
        let host = |(what, of): (&str, usize)| options.host_array(home, what, of * on_host);
        let made = || {
            let [dl, d, du, b, x] = [("dl", 1), ("d", 1), ("du", 1), ("b", rhs), ("x", rhs)].map(host);
            Ok([dl?, d?, du?, b?, x?])
        };
        let arrays = span.ranks.all_ok(made())?;
        let interface = InterfaceSystem::none(span.ranks, home);
        let (options, passes) = (PlanOptions { rhs, ..*options }, Passes::Unknown);
        let mut plan = Self { span, options, chunks: Vec::new(), interface, passes, arrays };
        plan.relane(lanes)?;
        Ok(plan)
    }

    /// Switches to one system of the first `n` rows on other lanes, in the existing host arrays.
    /// Fails if there is no row, or more rows than the plan was created for, and like
    /// [`Plan::relane`].
    pub fn reshape(&mut self, lanes: &'a [Lane], n: usize) -> Result<()> {
        let most = self.arrays[0].len();
        if n == 0 || n > most {
            return Invalid::TooLarge.fail(format!("{n} rows are out of range in a plan made for {most}"));
        }
        self.span = RowSpan::whole(n, 1, false);
        self.relane(lanes)
    }

    /// Moves the systems to other lanes.
    /// Fails if there is no lane. After an error of a device, `relane` must succeed before the next
    /// solution.
    pub fn relane(&mut self, lanes: &'a [Lane]) -> Result<()> {
        let Some(home) = lanes.first() else {
            return Invalid::Shape
                .fail(format!("{} rows without a lane: expected at least 1 lane", self.span.rows));
        };
        let ranks = self.span.ranks;
        // Freed first, as the devices may not hold the old and the new chunks together.
        self.chunks.clear();
        self.interface = InterfaceSystem::none(ranks, home);
        self.passes = Passes::Unknown;
        let cut = Chunking::new(lanes, self.span, &self.options, &self.arrays, self.here(0).start);
        let Chunks { chunks, rank_reduction, stage2, items, shape } = ranks.all_ok(cut.chunks())?;
        let single_chunk = chunks.len() == 1 && !ranks.is_distributed();
        let own = chunks.last().map_or(0, |last| last.items.end);
        let sent = rank_reduction.as_ref().map_or(own, |reduction| reduction.items());
        let room = if ranks.is_root() { own.max(items) } else { own };
        let options = &self.options;
        let what = "the interface system";
        let numbers = |len| options.host_array::<T>(home, what, len);
        let flags = |len| options.host_array::<u32>(home, what, len);
        let items = if single_chunk { [0; 2] } else { [sent, room] };
        let equations = ranks.all_ok(InterfaceEquations::new(shape, items, numbers, flags))?;
        self.chunks = chunks;
        self.interface = InterfaceSystem {
            single_chunk,
            rank_reduction,
            stage2,
            equations,
            ..InterfaceSystem::none(ranks, home)
        };
        Ok(())
    }

    /// Number of local rows of all systems.
    pub fn rows(&self) -> usize {
        self.span.rows
    }

    /// Number of chunks: one per lane that has rows, or more.
    pub fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// True if the lanes do not hold all rows at once, so that two passes upload rows twice.
    pub fn streamed(&self) -> bool {
        self.chunks.iter().any(|chunk| chunk.shared)
    }

    /// True if inputs and unknowns are page-locked.
    pub fn locked(&self) -> bool {
        self.arrays[0].locked()
    }

    /// Input arrays, to be filled before [`Plan::solve`].
    pub fn inputs(&mut self) -> Inputs<'_, T> {
        let here = self.here(0);
        let [dl, d, du, b, _] = self.arrays.each_mut().map(|array| &mut array[here.clone()]);
        Inputs { dl, d, du, b }
    }

    /// Right-hand side `number`, to be filled.
    pub fn b(&mut self, number: usize) -> &mut [T] {
        let here = self.here(number);
        &mut self.arrays[3][here]
    }

    /// Unknowns of right-hand side `number`.
    pub fn x_of(&self, number: usize) -> &[T] {
        &self.arrays[4][self.here(number)]
    }

    /// Range of the local rows of right-hand side `number` in the host's arrays.
    fn here(&self, number: usize) -> Range<usize> {
        let start = number * self.arrays[0].len() + self.span.neighbours(NEIGHBOUR_ROWS)[0];
        start..start + self.span.rows
    }

    /// Arrays dl, d, du and b, as filled by the caller.
    pub fn given(&self) -> [&[T]; 4] {
        std::array::from_fn(|k| &self.arrays[k][self.here(0)])
    }

    /// Unknowns of the first right-hand side, after [`Plan::solve`].
    pub fn x(&self) -> &[T] {
        self.x_of(0)
    }

    /// Arrays of the only chunk on its lane, for a caller that fills them on the device.
    pub fn on_device(&mut self) -> &Arrays<T> {
        &self.chunks[0].memory.arrays
    }

    /// Returns [`NOT_DOMINANT`](super::kernels::tiles::NOT_DOMINANT) if a row is not dominant, plus
    /// the number of small pivots of all chunks.
    pub fn flags(&self) -> Result<u32> {
        if let Passes::One(_) = self.passes {
            // Certified rows are dominant.
            return Ok(0);
        }
        let known = || {
            let chunks = self.chunks.iter().map(|chunk| chunk.solve.flags(chunk.lane));
            let chunks = chunks.collect::<Result<Vec<u32>>>()?;
            Ok(all_flags(chunks.into_iter().chain([self.interface.flags()?])))
        };
        let ranks = self.span.ranks;
        let known = ranks.all_ok(known())?;
        Ok(all_flags(ranks.all_gather(&[known]).into_iter().flatten()))
    }

    /// Device memory in bytes.
    pub fn device_bytes(&self) -> u64 {
        let memory = |chunk: &SystemChunk<'a, T>| if chunk.evicted { 0 } else { chunk.memory.bytes() };
        self.chunks.iter().map(|chunk| memory(chunk) + chunk.solve.bytes()).sum::<u64>()
            + self.interface.bytes()
            + if let Passes::One(one_pass) = &self.passes { one_pass.bytes() } else { 0 }
    }

    /// Solves with all lanes working concurrently, so that their stages overlap.
    pub fn solve(&mut self, upload: Upload) -> Result<Stages> {
        // CUDA queues accept all operations at once. Other lanes need a thread each, as do staged
        // copies.
        let queues = self.chunks.iter().all(|chunk| chunk.lane.device().queued_copies);
        let pace = Pace { threads: !queues || self.options.pageable };
        let started = Instant::now();
        let done = self.passes(pace, upload);
        // Also after an error, no copy may still access the arrays.
        let finished = self.chunks.iter().try_for_each(|chunk| chunk.lane.finish());
        let stages = done?;
        finished?;
        Ok(Stages { total: started.elapsed().as_secs_f64(), ..stages })
    }

    /// Solves in one pass over the rows if that seems to suffice and is certified, otherwise in
    /// two.
    fn passes(&mut self, pace: Pace, upload: Upload) -> Result<Stages> {
        let ranks = self.span.ranks;
        if upload == Upload::All {
            let [dl, d, du, _] = self.given();
            let overlap =
                self.overlap(|rows| Ok([dl, d, du].map(|array| self.span.of_all(array, rows.clone()))))?;
            self.choose(overlap)?;
        }
        let (here, stride) = (self.here(0), self.arrays[0].len());
        let Passes::One(one_pass) = &mut self.passes else { return self.two(pace, upload) };
        let [inputs @ .., x] = &mut self.arrays;
        let changed = match upload {
            Upload::All => &mut inputs[..],
            Upload::RightHandSide => &mut inputs[3..],
        };
        if ranks.is_distributed() {
            let arrays = changed.iter_mut().flat_map(|array| array.chunks_mut(stride));
            arrays.for_each(|array| self.span.exchange(NEIGHBOUR_ROWS, array));
        }
        let solved = one_pass.solve(&self.chunks, pace, inputs, (x, here), upload);
        if ranks.all_reduce_min(u64::from(ranks.all_ok(solved)?)) == 1 {
            return Ok(Stages::default());
        }
        // The lanes hold rows in the layout of windows.
        self.passes = Passes::Two;
        self.two(pace, Upload::All)
    }

    /// Solves in two passes for all right-hand sides: together if systems are whole, otherwise one
    /// after another. Each right-hand side is swapped into the arrays of the first one.
    fn two(&mut self, pace: Pace, upload: Upload) -> Result<Stages> {
        let rhs = self.options.rhs;
        if rhs == 1 || self.scheme() != Scheme::Tiles && !self.options.pivot {
            return self.stages(pace, rhs, upload);
        }
        let (stride, mut stages) = (self.arrays[0].len(), Stages::default());
        for k in (0..rhs).rev() {
            let swap = |array: &mut [T]| {
                let (first, others) = array.split_at_mut(stride);
                if k > 0 {
                    first.swap_with_slice(&mut others[(k - 1) * stride..k * stride]);
                }
            };
            swap(&mut self.arrays[3]);
            let upload = if k + 1 == rhs { upload } else { Upload::RightHandSide };
            let solved = self.stages(pace, 1, upload);
            self.arrays[3..].iter_mut().for_each(|array| swap(array));
            stages = solved?;
        }
        Ok(stages)
    }

    fn scheme(&self) -> Scheme {
        let RowSpan { n, cyclic, .. } = self.span;
        Scheme::of(n, self.span.all(), cyclic, self.options.pivot)
    }

    /// Executes the stages for `rhs` right-hand sides.
    fn stages(&mut self, pace: Pace, rhs: usize, upload: Upload) -> Result<Stages> {
        let ranks = self.span.ranks;
        let (here, stride) = (self.here(0), self.arrays[0].len());
        let Self { chunks, interface, arrays: [inputs @ .., x], .. } = self;
        let inputs = &*inputs;
        let xs = places(&mut x[..rhs * stride], stride, here, chunks);
        if let Some(launches) = interface.launches() {
            let solved = pace.run(
                chunks.iter().zip(xs).collect(),
                [&|chunk, x| {
                    chunk.upload(inputs, rhs, upload)?;
                    chunk.lane.enqueue(&chunk.launches(&launches))?;
                    chunk.download(0, x)
                }],
            );
            return ranks.all_ok(solved).map(|()| Stages::default());
        }
        let equations = interface.of_chunks(chunks.iter().map(|chunk| chunk.items.len()));
        let reduced = pace.run(
            chunks.iter().zip(equations).collect(),
            [
                &|chunk, _| chunk.upload(inputs, rhs, upload),
                &|chunk, _| chunk.lane.enqueue(&chunk.solve.up()),
                &|chunk, to| to.take().map_or(Ok(()), |to| chunk.solve.fetch(chunk.lane, to)),
            ],
        );
        ranks.all_ok(reduced.and_then(|()| interface.reduce()))?;
        let seconds = interface.solve()?;
        let expanded = interface.expand();
        let (single_chunk, equations) = (interface.single_chunk, &interface.equations);
        let back = || {
            pace.run(
                chunks.iter().zip(xs).rev().collect(),
                [
                    &|chunk, _| {
                        if chunk.evicted {
                            chunk.upload(inputs, 1, Upload::All)?;
                        }
                        if single_chunk {
                            Ok(())
                        } else {
                            chunk.solve.send(chunk.lane, &equations.values[equations.values_of(&chunk.items)])
                        }
                    },
                    &|chunk, _| chunk.lane.enqueue(&chunk.solve.down()),
                    &|chunk, x| chunk.download(0, x),
                ],
            )
        };
        ranks.all_ok(expanded.and_then(|()| back()))?;
        Ok(Stages { interface: seconds, total: 0.0 })
    }

    /// Solves the system on the device `times` times without copies, and returns the seconds per
    /// solution.
    ///
    /// It takes one pass over the rows if that seems to suffice and is certified afterwards,
    /// otherwise two. Fails if a device is lost, or there is more than one chunk, or it needs the
    /// host.
    pub fn solve_resident(&mut self, times: u64) -> Result<f64> {
        if !self.interface.single_chunk || self.interface.launches().is_none() {
            return Invalid::Unsupported.fail(format!(
                "{} chunks{}: resident data are solved on one lane, in tiles",
                self.chunks.len(),
                if self.options.pivot { " in blocks" } else { "" }
            ));
        }
        if let Passes::Unknown = self.passes {
            let SystemChunk { lane, memory, .. } = &self.chunks[0];
            let Arrays { dl, d, du, .. } = &memory.arrays;
            let overlap = self.overlap(|rows| {
                let read = |array: &Buffer<T>| {
                    let mut numbers = vec![T::ZERO; rows.len()];
                    lane.download(array, rows.start, &mut numbers).map(|()| numbers)
                };
                Ok([read(dl)?, read(d)?, read(du)?])
            })?;
            self.choose(overlap)?;
        }
        if let Passes::One(one_pass) = &self.passes {
            let (lane, windows) = (self.chunks[0].lane, one_pass.single());
            let seconds = self.repeat(windows.launches(), times)?;
            let mut bad = vec![0; windows.groups()];
            windows.fetch(lane, &mut bad)?;
            lane.finish()?;
            if bad.iter().all(|&tiles| tiles == 0) {
                return Ok(seconds);
            }
            self.passes = Passes::Two;
        }
        if self.options.rhs > 1 && self.scheme() == Scheme::Tiles {
            return Invalid::NotConverged.fail(format!(
                "one pass does not suffice, and with two {} right-hand sides cannot be repeated on \
                 the device: expected one",
                self.options.rhs
            ));
        }
        let stage2 = self.interface.launches().unwrap_or_default();
        self.repeat(self.chunks[0].launches(&stage2), times)
    }

    /// Selects the two-pass method until the plan gets other diagonals from the host, or other
    /// lanes.
    pub fn two_passes(&mut self) {
        self.passes = Passes::Two;
    }

    /// Seconds per repetition of launches on the only lane.
    fn repeat(&self, launches: Vec<&Launch>, times: u64) -> Result<f64> {
        let program = Program { cycle: vec![launches] };
        let started = Instant::now();
        self.chunks[0].lane.run(&program, 0, times, &mut |_| Ok(()))?;
        Ok(started.elapsed().as_secs_f64() / times as f64)
    }

    /// Overlap of windows, if one pass over the rows seems to suffice; `None` otherwise. `read`
    /// returns dl, d and du of rows, counted over all ranks.
    fn overlap(&self, read: impl FnMut(Range<usize>) -> Result<[Vec<T>; 3]>) -> Result<Option<usize>> {
        let RowSpan { n, cyclic, .. } = self.span;
        // Whole systems have a one-pass method of their own; the ends of a cyclic system are
        // neighbours.
        let in_tiles = !cyclic && self.scheme() == Scheme::Tiles;
        if in_tiles { windows::overlap(n, self.span.all(), read) } else { Ok(None) }
    }

    /// Selects the one-pass method with windows of this overlap, or two passes if it is `None`.
    fn choose(&mut self, overlap: Option<usize>) -> Result<()> {
        match (overlap, &self.passes) {
            (None, _) => self.passes = Passes::Two,
            (Some(overlap), Passes::One(one_pass)) if one_pass.overlap == overlap => {}
            (Some(overlap), _) => {
                let origin = self.span.first - self.here(0).start;
                let host = |len| self.options.host_array(self.interface.home, "certificates", len);
                let one_pass = OnePass::new(&self.chunks, self.span, origin, overlap, host);
                self.passes = Passes::One(self.span.ranks.all_ok(one_pass)?);
            }
        }
        Ok(())
    }

    /// True if the last solution took one pass over the rows and is certified; false if it took
    /// two.
    pub fn is_one_pass(&self) -> bool {
        matches!(self.passes, Passes::One(_))
    }

    /// Downloads the unknowns that [`Plan::solve_resident`] left on the device to [`Plan::x`].
    /// Fails if the device is lost, or the plan has no arrays on the host.
    pub fn fetch(&mut self) -> Result<()> {
        if self.options.resident {
            return Invalid::Unsupported.fail("a plan without arrays on the host has no unknowns there");
        }
        let (here, stride) = (self.here(0), self.arrays[0].len());
        let xs = places(&mut self.arrays[4], stride, here, &self.chunks);
        self.chunks.iter().zip(xs).try_for_each(|(chunk, mut x)| {
            chunk.download(0, &mut x)?;
            chunk.lane.finish()
        })
    }
}
