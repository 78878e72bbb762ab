//! Device memory and launches for banded systems on any number of lanes.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use super::windows::{BandedWindows, Width, WindowMemory};
use super::{Banded, BandedSystem};
use crate::kernel::Precision;
use crate::lane::{Buffer, Lane, Program};
use crate::parallel::at_once;
use crate::tridiagonal::host::scaling::convert_times;
use crate::tridiagonal::kernels::number::Number;
use crate::{Error, Invalid, Result};

/// Plan for solving banded systems in windows on lanes.
///
/// Each solution uploads a right-hand side and downloads the unknowns. If the lanes hold all rows
/// at once, the matrix stays on them.
#[derive(Debug)]
pub struct BandedPlan<'a, T> {
    lanes: &'a [Lane],
    width: Width,
    parts: Vec<WindowPart<T>>,
    /// True if the matrix is on the lanes.
    filled: bool,
}

#[derive(Debug)]
struct WindowPart<T> {
    lane: usize,
    own: Range<usize>,
    /// Block rows in memory: those of the windows of this part, and of the tile before it. The
    /// border to that tile is then checked as well.
    held: Range<usize>,
    memory: Arc<WindowMemory<T>>,
    windows: BandedWindows,
}

/// [`WindowPart`]s that one lane solves, each with its slice of the unknowns.
type LaneWork<'p, T> = Vec<(&'p WindowPart<T>, &'p mut [f64])>;

impl<'a, T: Number> BandedPlan<'a, T> {
    /// Allocates memory and creates launches for the rows of `system`.
    ///
    /// Returns `None` if a check of sampled rows finds that windows do not suffice. Fails with
    /// [`Error::OutOfMemory`] if the memory of a lane does not suffice.
    pub fn new(lanes: &'a [Lane], system: &BandedSystem) -> Result<Option<Self>> {
        Self::of(lanes, &system.view())
    }

    pub(super) fn of(lanes: &'a [Lane], view: &Banded<'_>) -> Result<Option<Self>> {
        Width::of::<T>(lanes, view)?.map(|width| Self::with(lanes, view, width)).transpose()
    }

    /// Returns a plan with the widest windows; `None` if this plan has them already.
    pub(super) fn wider(self, view: &Banded<'_>) -> Result<Option<Self>> {
        let (lanes, width) = (self.lanes, self.width);
        drop(self);
        let widest = Width::widest(view);
        (width != widest).then(|| Self::with(lanes, view, widest)).transpose()
    }

    /// Creates one part per lane, or more if the lanes do not hold all rows at once.
    fn with(lanes: &'a [Lane], view: &Banded<'_>, width: Width) -> Result<Self> {
        let tiles = view.rows().div_ceil(2).div_ceil(width.tile);
        let mut parts = lanes.len();
        loop {
            match Self::cut(lanes, view, width, tiles.div_ceil(parts)) {
                Err(Error::OutOfMemory { .. }) if parts < tiles => parts *= 2,
                parts => return Ok(Self { lanes, width, parts: parts?, filled: false }),
            }
        }
    }

    fn cut(lanes: &[Lane], view: &Banded<'_>, width: Width, tiles: usize) -> Result<Vec<WindowPart<T>>> {
        let (blocks, beside, tile) = (view.rows().div_ceil(2), width.beside(), width.tile);
        let size = tiles * tile;
        let mut memories = Vec::new();
        let part = |number: usize| {
            let own = number * size..blocks.min((number + 1) * size);
            let start = own.start.saturating_sub(tile);
            let start = if number == 0 { 0 } else { start };
            let held = start.saturating_sub(beside)..blocks.min(own.end + beside);
            let lane = &lanes[number % lanes.len()];
            if number < lanes.len() {
                let capacity = blocks.min(size + tile + 2 * beside);
                memories.push(Arc::new(WindowMemory::new(lane, view.form, capacity)?));
            }
            let memory = memories[number % lanes.len()].clone();
            let solved = start - held.start..own.end - held.start;
            let windows = BandedWindows::new(lane, &memory, held.len(), solved, width)?;
            Ok(WindowPart { lane: number % lanes.len(), own, held, memory, windows })
        };
        (0..blocks.div_ceil(size)).map(part).collect()
    }

    /// Number of parts into which the rows are divided.
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Device memory in bytes.
    pub fn device_bytes(&self) -> u64 {
        // The memory that several parts share on a lane counts for the first of them.
        let memory = |k: usize| {
            let own = &self.parts[k].memory;
            if self.parts[..k].iter().any(|part| Arc::ptr_eq(&part.memory, own)) { 0 } else { own.bytes() }
        };
        (0..self.parts.len()).map(|k| memory(k) + self.parts[k].windows.bytes()).sum()
    }

    pub(super) fn tile(&self) -> usize {
        2 * self.width.tile
    }

    /// Makes the next solution upload the matrix again.
    pub fn forget(&mut self) {
        self.filled = false;
    }

    /// Solves for a right-hand side, and returns true if the unknowns are certified.
    ///
    /// The matrix of `system` must be equal in all calls, unless [`Self::forget`] is called before.
    pub fn solve(&mut self, system: &BandedSystem, b: &[f64], x: &mut [f64]) -> Result<bool> {
        self.run(&system.view(), (b, 0), x)
    }

    /// Solves for the scaled right-hand side b·2^k, and returns true if the unknowns are certified.
    pub(super) fn run(&mut self, view: &Banded<'_>, (b, k): (&[f64], i32), x: &mut [f64]) -> Result<bool> {
        let matrix = !self.filled || self.parts.len() > self.lanes.len();
        let mut work: Vec<LaneWork<'_, T>> = self.lanes.iter().map(|_| Vec::new()).collect();
        let mut rest = x;
        for part in &self.parts {
            let (own, behind) = rest.split_at_mut((2 * part.own.len()).min(rest.len()));
            work[part.lane].push((part, own));
            rest = behind;
        }
        let all = |(lane, work): (&Lane, LaneWork<'_, T>)| {
            work.into_iter().try_fold(true, |good, (part, x)| {
                part.bring(lane, view, (b, k), matrix)?;
                lane.launch(&part.windows.launches(), 0)?;
                part.take(lane, x)?;
                Ok(good & part.windows.are_certified(lane)?)
            })
        };
        let certified = at_once(self.lanes.iter().zip(work), all);
        self.filled = true;
        certified.into_iter().try_fold(true, |all, one| Ok(all & one?))
    }

    /// Solves the system on the only lane `times` times, without copies. Returns the seconds per
    /// solution, and true if it is certified. Fails if the device is lost, or there is more than
    /// one part.
    pub fn solve_resident(&self, times: u64) -> Result<(f64, bool)> {
        let [part] = &self.parts[..] else {
            return Invalid::Unsupported
                .fail(format!("{} parts: resident data are solved on one lane", self.parts.len()));
        };
        let (lane, program) = (&self.lanes[0], Program { cycle: vec![part.windows.launches()] });
        let started = Instant::now();
        lane.run(&program, 0, times, &mut |_| Ok(()))?;
        let seconds = started.elapsed().as_secs_f64() / times as f64;
        Ok((seconds, part.windows.are_certified(lane)?))
    }
}

/// Uploads numbers times 2^k to a lane, converted to `T`.
fn send<T: Number>(lane: &Lane, from: &[f64], k: i32, to: &Buffer<T>) -> Result<()> {
    if T::PRECISION == Precision::F64 && k == 0 {
        return lane.upload(bytemuck::cast_slice(from), to, 0);
    }
    let mut own = vec![T::ZERO; from.len()];
    convert_times(from, &mut own, k);
    lane.upload(&own, to, 0)
}

impl<T: Number> WindowPart<T> {
    /// Uploads a right-hand side times 2^k, and the matrix if `matrix` is set.
    fn bring(&self, lane: &Lane, view: &Banded<'_>, (b, k): (&[f64], i32), matrix: bool) -> Result<()> {
        let here = 2 * self.held.start..b.len().min(2 * self.held.end);
        let odd = here.len() % 2 == 1;
        if matrix {
            let width = view.form.width();
            for (which, (from, to)) in view.arrays.iter().zip(&self.memory.matrix).enumerate() {
                send(lane, &from[width * here.start..width * here.end], 0, to)?;
                if odd {
                    // The row after the last one.
                    lane.upload(&[T::of(f64::from(u8::from(which == 2)))], to, here.len())?;
                }
            }
        }
        send(lane, &b[here.clone()], k, &self.memory.b)?;
        if odd { lane.upload(&[T::ZERO], &self.memory.b, here.len()) } else { Ok(()) }
    }

    /// Downloads the unknowns of the part's own rows.
    fn take(&self, lane: &Lane, x: &mut [f64]) -> Result<()> {
        let at = 2 * (self.own.start - self.held.start);
        if T::PRECISION == Precision::F64 {
            return lane.download(&self.memory.x, at, bytemuck::cast_slice_mut::<f64, T>(x));
        }
        let mut own = vec![T::ZERO; x.len()];
        lane.download(&self.memory.x, at, &mut own)?;
        convert_times(&own, x, 0);
        Ok(())
    }
}
