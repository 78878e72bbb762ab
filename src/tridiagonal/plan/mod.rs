//! A plan: one system shape on some lanes, solved as often as wanted.
//!
//! The rows are cut into chunks, one a lane, or more where the lanes' memory does not hold them all. Each goes through
//! stage 1 (up to some [`ReducedBlock`](super::kernels::reduced_block::ReducedBlock)s, or to the reduced system of its blocks) and
//! stage 3 (down from its interface values); in between one lane solves the interface system of all chunks, those of other
//! ranks included. Copies and kernels of different lanes overlap; what cannot overlap is the barrier between the two stages,
//! since every unknown depends on every row. Where couplings fall off fast enough there is no barrier, and one pass over the
//! rows does it all (`one_pass`). Which reduced blocks are joined with which depends on the number of all rows
//! alone, so that lanes, chunks and ranks change no bit.

mod chunking;

use std::ops::Range;
use std::time::Instant;

use serde::Serialize;

use self::chunking::{Chunking, Chunks};
use super::chunk::{Chunk, Pace, Upload, places};
use super::kernels::number::Number;
use super::kernels::row_memory::{Arrays, padded};
use super::kernels::tiles::all_flags;
use super::one_pass::windows;
use super::one_pass::{NEIGHBOUR_ROWS, OnePass};
use super::options::PlanOptions;
use super::reduction::interface_buffers::Equations;
use super::reduction::interface_system::InterfaceSystem;
use super::scheme::Scheme;
use super::system::row_range::Span;
use crate::lane::{Buffer, HostArray, Lane, Launch, Program};
use crate::{Error, Result};

/// Seconds of the stages of a solution, host to host.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Stages {
    /// Diagonals and right-hand side to the devices.
    pub upload: f64,
    /// Stage 1: chunks become interface equations.
    pub reduce: f64,
    /// Interface equations to the host.
    pub units_down: f64,
    /// The interface system of all chunks, on one lane.
    pub interface: f64,
    /// Interface values to the devices.
    pub ends_up: f64,
    /// Stage 3: the unknowns of each chunk.
    pub solve: f64,
    /// Unknowns to the host.
    pub download: f64,
    /// From the first to the last; less than the sum where lanes overlap.
    pub total: f64,
}

/// Chunks of a system on lanes.
#[derive(Debug)]
pub struct Plan<'a, T> {
    span: Span,
    options: PlanOptions,
    chunks: Vec<Chunk<'a, T>>,
    interface: InterfaceSystem<'a, T>,
    passes: Passes<T>,
    /// dl, d, du, b and x on the host, with the rows around those here that windows need; b and x of each right-hand side, as
    /// long as a diagonal.
    arrays: [HostArray<T>; 5],
}

/// The passes over the rows that a plan's diagonals need.
#[derive(Debug)]
enum Passes<T> {
    /// Nobody has looked.
    Unknown,
    /// One, as far as a look at the diagonals says, and the certificates of the solutions so far.
    One(OnePass<T>),
    /// Two.
    Two,
}

/// The inputs of a plan, to be filled.
#[derive(Debug)]
pub struct Inputs<'p, T> {
    /// Lower diagonals.
    pub dl: &'p mut [T],
    /// Diagonals.
    pub d: &'p mut [T],
    /// Upper diagonals.
    pub du: &'p mut [T],
    /// The first right-hand side of each system.
    pub b: &'p mut [T],
}

impl<'a, T: Number> Plan<'a, T> {
    /// Makes a plan as [`Plan::with`], in tiles or whole systems.
    ///
    /// # Errors
    /// As [`Plan::with`].
    pub fn new(lanes: &'a [Lane], n: usize, batch: usize, cyclic: bool) -> Result<Self> {
        Self::with(lanes, n, batch, cyclic, &PlanOptions::default())
    }

    /// Memory for `batch` systems of `n` rows each, one behind the other, in equal chunks on the lanes. A cyclic
    /// system is one system, in tiles.
    ///
    /// # Errors
    /// If there is no row, or a lane's memory does not suffice: [`Error::OutOfMemory`] names the sizes.
    pub fn with(
        lanes: &'a [Lane],
        n: usize,
        batch: usize,
        cyclic: bool,
        options: &PlanOptions,
    ) -> Result<Self> {
        Self::of(lanes, Span::whole(n, batch, cyclic), options)
    }

    /// Makes a plan as [`Plan::with`], for the rows of `span`, which may be those of a rank: a plan of several ranks is made
    /// by all of them, with the same options, and so is everything that it does.
    pub(crate) fn of(lanes: &'a [Lane], span: Span, options: &PlanOptions) -> Result<Self> {
        let Span { n, batch, rows, cyclic, .. } = span;
        let Some(home) = lanes.first().filter(|_| span.all() > 0) else {
            return Err(Error::Invalid(format!(
                "{batch} systems of {n} rows on {} lanes: expected at least 1 of each",
                lanes.len()
            )));
        };
        if cyclic && (batch > 1 || options.block.is_some()) {
            return Err(Error::Invalid(format!(
                "a plan for {batch} cyclic systems{} is not supported: expected one, in tiles",
                if options.block.is_some() { " in blocks" } else { "" }
            )));
        }
        if rows.min(n) >= 1 << 31 {
            return Err(Error::Invalid(format!(
                "{} rows of a system are out of range: expected at most {} in one process; use \
                 several ranks",
                rows.min(n),
                (1u64 << 31) - 1
            )));
        }
        let block = options.block.unwrap_or(3);
        if block < 3 {
            return Err(Error::Invalid(format!(
                "blocks of {block} rows are out of range: expected at least 3 rows"
            )));
        }
        // Where a lane works in these arrays, it reads and writes whole groups of rows.
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

    /// Goes on with one system of the first `n` rows on other lanes, in the memory that is there on the host.
    ///
    /// # Errors
    /// If there is no row, or there are more than the plan was made for; devices' errors, as of [`Plan::relane`].
    pub fn reshape(&mut self, lanes: &'a [Lane], n: usize) -> Result<()> {
        let most = self.arrays[0].len();
        if n == 0 || n > most {
            return Err(Error::Invalid(format!(
                "{n} rows are out of range in a plan made for \
                                               {most}"
            )));
        }
        self.span = Span::whole(n, 1, false);
        self.relane(lanes)
    }

    /// Goes on with the same systems on other lanes.
    ///
    /// # Errors
    /// If there is no lane; devices' errors, after which the plan must be given lanes again before it solves.
    pub fn relane(&mut self, lanes: &'a [Lane]) -> Result<()> {
        let Some(home) = lanes.first() else {
            return Err(Error::Invalid(format!(
                "{} rows without a lane: expected at least 1 lane",
                self.span.rows
            )));
        };
        let ranks = self.span.ranks;
        // The devices may hold no more than one of both.
        self.chunks.clear();
        self.interface = InterfaceSystem::none(ranks, home);
        self.passes = Passes::Unknown;
        let cut = Chunking::new(lanes, self.span, &self.options, &self.arrays, self.here().start);
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
        let equations = ranks.all_ok(Equations::new(shape, items, numbers, flags))?;
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

    /// Rows of one system.
    pub fn n(&self) -> usize {
        self.span.n
    }

    /// Rows of all systems; of those here, on several ranks.
    pub fn rows(&self) -> usize {
        self.span.rows
    }

    /// Chunks, one on each lane that has rows, or more.
    pub fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Whether the lanes do not hold all rows at once, so that each goes there twice.
    pub fn streamed(&self) -> bool {
        self.chunks.iter().any(|chunk| chunk.shared)
    }

    /// Whether inputs and unknowns are page-locked.
    pub fn locked(&self) -> bool {
        self.arrays[0].locked()
    }

    /// The inputs, to be filled before [`Plan::solve`].
    pub fn inputs(&mut self) -> Inputs<'_, T> {
        let here = self.here();
        let [dl, d, du, b, _] = self.arrays.each_mut().map(|array| &mut array[here.clone()]);
        Inputs { dl, d, du, b }
    }

    /// One of the right-hand sides, to be filled.
    pub fn b(&mut self, number: usize) -> &mut [T] {
        let here = self.of_number(number);
        &mut self.arrays[3][here]
    }

    /// The unknowns of one of the right-hand sides.
    pub fn x_of(&self, number: usize) -> &[T] {
        &self.arrays[4][self.of_number(number)]
    }

    /// The rows here of one of the right-hand sides in the host's arrays.
    fn of_number(&self, number: usize) -> Range<usize> {
        let (Range { start, end }, at) = (self.here(), number * self.arrays[0].len());
        at + start..at + end
    }

    /// dl, d, du and b, as filled.
    pub fn given(&self) -> [&[T]; 4] {
        std::array::from_fn(|k| &self.arrays[k][self.here()])
    }

    /// The unknowns of the first right-hand side, after [`Plan::solve`].
    pub fn x(&self) -> &[T] {
        self.x_of(0)
    }

    /// The rows here in the host's arrays.
    fn here(&self) -> Range<usize> {
        let [before, _] = self.span.neighbours(NEIGHBOUR_ROWS);
        before..before + self.span.rows
    }

    /// The arrays on the only lane: for data that a program brings there by itself.
    pub fn on_device(&mut self) -> &Arrays<T> {
        &self.chunks[0].memory.arrays
    }

    /// [`NOT_DOMINANT`](super::kernels::tiles::NOT_DOMINANT) and the number of small pivots of all chunks.
    ///
    /// # Errors
    /// If a device is lost.
    pub fn flags(&self) -> Result<u32> {
        if let Passes::One(_) = self.passes {
            // What is certified is dominant.
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

    /// Bytes on the devices.
    pub fn device_bytes(&self) -> u64 {
        let memory = |chunk: &Chunk<'a, T>| if chunk.evicted { 0 } else { chunk.memory.bytes() };
        self.chunks.iter().map(|chunk| memory(chunk) + chunk.solve.bytes()).sum::<u64>()
            + self.interface.bytes()
            + if let Passes::One(one_pass) = &self.passes { one_pass.bytes() } else { 0 }
    }

    /// Solves, with all lanes at work at the same time. Stages of different lanes overlap: `total` is the time that
    /// passed, the others are zero but for the interface; [`Plan::solve_by_stages`] measures them.
    ///
    /// # Errors
    /// If a device is lost.
    pub fn solve(&mut self, upload: Upload) -> Result<Stages> {
        // CUDA's queues take everything at once; others are worked on by a thread each, and so are copies through staging.
        let queues = self.chunks.iter().all(|chunk| chunk.lane.device().queued_copies);
        self.solve_at(Pace::Overlapped { threads: !queues || self.options.pageable }, upload)
    }

    /// Solves with one stage after the other on all lanes, and measures each: what the model of the lane count needs.
    ///
    /// # Errors
    /// If a device is lost, or the lanes do not hold all rows at once.
    pub fn solve_by_stages(&mut self, upload: Upload) -> Result<Stages> {
        if self.streamed() {
            return Err(Error::Invalid(format!(
                "{} rows in {} chunks are streamed through the lanes, so that their stages cannot \
                 be timed one by one",
                self.span.rows,
                self.chunks.len()
            )));
        }
        self.solve_at(Pace::ByStages, upload)
    }

    fn solve_at(&mut self, pace: Pace, upload: Upload) -> Result<Stages> {
        let started = Instant::now();
        let done = self.passes(pace, upload);
        // Whatever happened, no copy is left that still touches the arrays.
        let finished = self.chunks.iter().try_for_each(|chunk| chunk.lane.finish());
        let stages = done?;
        finished?;
        Ok(Stages { total: started.elapsed().as_secs_f64(), ..stages })
    }

    /// One pass over the rows where that seems to be enough and is certified, otherwise two; one stage after the other is
    /// for the latter. The seconds of stages as far as this pace measures them.
    fn passes(&mut self, pace: Pace, upload: Upload) -> Result<Stages> {
        let ranks = self.span.ranks;
        let overlapped = matches!(pace, Pace::Overlapped { .. });
        if overlapped && upload == Upload::All {
            let [dl, d, du, _] = self.given();
            let overlap =
                self.overlap(|rows| Ok([dl, d, du].map(|array| self.span.of_all(array, rows.clone()))))?;
            self.choose(overlap)?;
        }
        let (here, stride) = (self.here(), self.arrays[0].len());
        let Passes::One(one_pass) = &mut self.passes else { return self.two(pace, upload) };
        if overlapped {
            let [inputs @ .., x] = &mut self.arrays;
            let changed = match upload {
                Upload::All => &mut inputs[..],
                Upload::RightHandSide => &mut inputs[3..],
                Upload::Nothing => &mut [],
            };
            if ranks.is_distributed() {
                let arrays = changed.iter_mut().flat_map(|array| array.chunks_mut(stride));
                arrays.for_each(|array| self.span.exchange(NEIGHBOUR_ROWS, array));
            }
            let solved = one_pass.solve(&self.chunks, pace, inputs, (x, here), upload);
            if ranks.all_reduce_min(u64::from(ranks.all_ok(solved)?)) == 1 {
                return Ok(Stages::default());
            }
        }
        // The lanes hold rows as windows have them.
        self.passes = Passes::Two;
        self.two(pace, Upload::All)
    }

    /// The stages of a solution for all right-hand sides: together where systems are whole, otherwise one after the other, each
    /// in the place of the first.
    fn two(&mut self, pace: Pace, upload: Upload) -> Result<Stages> {
        let rhs = self.options.rhs;
        if rhs == 1 || self.scheme() != Scheme::Tiles && self.options.block.is_none() {
            return self.stages(pace, rhs, upload);
        }
        let (stride, mut stages) = (self.arrays[0].len(), Stages::default());
        for k in (0..rhs).rev() {
            let swap = |array: &mut [T]| {
                let (first, others) = array.split_at_mut(stride);
                others
                    .chunks_mut(stride)
                    .skip(k.wrapping_sub(1))
                    .take(1)
                    .for_each(|own| first.swap_with_slice(own));
            };
            swap(&mut self.arrays[3]);
            let upload = if k + 1 == rhs { upload } else { Upload::RightHandSide };
            let solved = self.stages(pace, 1, upload);
            self.arrays[3..].iter_mut().for_each(|array| swap(array));
            stages = solved?;
        }
        Ok(stages)
    }

    /// The way in which rows are worked on.
    fn scheme(&self) -> Scheme {
        let Span { n, cyclic, .. } = self.span;
        Scheme::of(n, self.span.all(), cyclic, self.options.blocking())
    }

    /// The stages of a solution for so many right-hand sides, and their seconds as far as this pace measures them.
    fn stages(&mut self, pace: Pace, rhs: usize, upload: Upload) -> Result<Stages> {
        let ranks = self.span.ranks;
        let (here, stride) = (self.here(), self.arrays[0].len());
        let Self { chunks, interface, arrays: [inputs @ .., x], .. } = self;
        let inputs = &*inputs;
        let xs = places(&mut x[..rhs * stride], stride, here, chunks);
        if let (Pace::Overlapped { .. }, Some(launches)) = (pace, interface.launches()) {
            let solved = pace.run(
                chunks.iter().zip(xs).collect(),
                [&|chunk, x| {
                    chunk.upload(inputs, rhs, upload)?;
                    chunk.lane.enqueue(&chunk.launches(&launches))?;
                    chunk.download(x)
                }],
            );
            return ranks.all_ok(solved).map(|_| Stages::default());
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
        let reduced = reduced.and_then(|seconds| interface.reduce().map(|()| seconds));
        let [upload, reduce, units_down] = ranks.all_ok(reduced)?;
        let seconds = interface.solve(self.options.pivot)?;
        let expanded = interface.expand();
        let (single_chunk, equations) = (interface.single_chunk, &interface.equations);
        let back = || {
            pace.run(
                chunks.iter().zip(xs).rev().collect(),
                [
                    &|chunk, _| {
                        chunk.upload_again(inputs)?;
                        if single_chunk { Ok(()) } else { chunk.send_values(equations) }
                    },
                    &|chunk, _| chunk.lane.enqueue(&chunk.solve.down()),
                    &|chunk, x| chunk.download(x),
                ],
            )
        };
        let [ends_up, solve, download] = ranks.all_ok(expanded.and_then(|()| back()))?;
        Ok(Stages { upload, reduce, units_down, interface: seconds, ends_up, solve, download, total: 0.0 })
    }

    /// Solves what is on the device `times` times, without any copy, and gives the seconds of one: in one pass over the
    /// rows where that seems to be enough and is certified afterwards, otherwise in two.
    ///
    /// # Errors
    /// If a device is lost, or there is more than one chunk, or it needs the host.
    pub fn solve_resident(&mut self, times: u64) -> Result<f64> {
        if !self.interface.single_chunk || self.interface.launches().is_none() {
            return Err(Error::Invalid(format!(
                "{} chunks{}: resident data are solved on one lane, in tiles",
                self.chunks.len(),
                if self.options.block.is_some() { " in blocks" } else { "" }
            )));
        }
        if let Passes::Unknown = self.passes {
            let Chunk { lane, memory, .. } = &self.chunks[0];
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
            return Err(Error::Invalid(format!(
                "one pass does not suffice, and with two {} right-hand sides cannot be repeated on \
                 the device: expected one",
                self.options.rhs
            )));
        }
        let stage2 = self.interface.launches().unwrap_or_default();
        self.repeat(self.chunks[0].launches(&stage2), times)
    }

    /// From here on the plan takes the two-pass method, until it gets other diagonals from the host, or other lanes.
    pub fn two_passes(&mut self) {
        self.passes = Passes::Two;
    }

    /// Seconds of launches on the only lane, repeated.
    fn repeat(&self, launches: Vec<&Launch>, times: u64) -> Result<f64> {
        let program = Program { cycle: vec![launches] };
        let started = Instant::now();
        self.chunks[0].lane.run(&program, 0, times, &mut |_| Ok(()))?;
        Ok(started.elapsed().as_secs_f64() / times as f64)
    }

    /// Rows that windows need around their tiles, if one pass over the rows seems to be enough. `read` gives dl, d and du of
    /// rows, counted over all.
    fn overlap(&self, read: impl FnMut(Range<usize>) -> Result<[Vec<T>; 3]>) -> Result<Option<usize>> {
        let Span { n, cyclic, .. } = self.span;
        // Whole systems have one pass of their own; the ends of a cyclic one are neighbours.
        let in_tiles = !cyclic && self.scheme() == Scheme::Tiles;
        if in_tiles { windows::overlap(n, self.span.all(), read) } else { Ok(None) }
    }

    /// Chooses one pass over the rows, with windows of this overlap, or two.
    fn choose(&mut self, overlap: Option<usize>) -> Result<()> {
        match (overlap, &self.passes) {
            (None, _) => self.passes = Passes::Two,
            (Some(overlap), Passes::One(one_pass)) if one_pass.overlap() == overlap => {}
            (Some(overlap), _) => {
                let origin = self.span.first - self.here().start;
                let host = |len| self.options.host_array(self.interface.home, "certificates", len);
                let one_pass = OnePass::new(&self.chunks, self.span, origin, overlap, host);
                self.passes = Passes::One(self.span.ranks.all_ok(one_pass)?);
            }
        }
        Ok(())
    }

    /// True if the last solution took one pass over the rows, which is certified then, and false if two.
    pub fn is_one_pass(&self) -> bool {
        matches!(self.passes, Passes::One(_))
    }

    /// Brings the unknowns that [`Plan::solve_resident`] left on the device to [`Plan::x`].
    ///
    /// # Errors
    /// If the device is lost, or the plan has no arrays on the host.
    pub fn fetch(&mut self) -> Result<()> {
        if self.options.resident {
            return Err(Error::Invalid("a plan without arrays on the host has no unknowns there".to_owned()));
        }
        let (here, stride) = (self.here(), self.arrays[0].len());
        let xs = places(&mut self.arrays[4], stride, here, &self.chunks);
        self.chunks.iter().zip(xs).try_for_each(|(chunk, mut x)| {
            chunk.download(&mut x)?;
            chunk.lane.finish()
        })
    }
}
