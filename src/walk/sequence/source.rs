//! Source of the points of a run: computed in the kernel of walks, or in advance into buffers.

use super::mtgp32::{GENERATORS, Mtgp32};
use super::{Points, Scramble, Sequence, Stream, fill};
use crate::Result;
use crate::kernel::Kernel;
use crate::lane::{Buffer, Lane};

/// Points of a stream in a buffer: coordinate d of the i-th point is word d · stride + i.
#[derive(Clone, Copy)]
pub(crate) struct PointBuffer<'a> {
    pub(crate) words: &'a Buffer<u32>,
    pub(crate) stride: u32,
}

/// Source of the points of all chains.
#[derive(Debug)]
pub struct PointSource {
    pub(crate) scramble: Scramble,
    pub(crate) seed: u64,
    dimensions: u32,
    /// Points by random access; none for MTGP32.
    pub(crate) points: Option<Points>,
    /// True if points are computed in advance, into a buffer.
    pub(crate) buffered: bool,
}

impl PointSource {
    /// Prepares points of `dimensions` dimensions.
    ///
    /// Points of Halton, Faure and MTGP32 are computed in advance, into buffers.
    pub fn new(sequence: Sequence, scramble: Scramble, dimensions: u32, seed: u64) -> Result<Self> {
        if sequence == Sequence::Mtgp32 {
            return Ok(Self { scramble, seed, dimensions, points: None, buffered: true });
        }
        let buffered = !matches!(sequence, Sequence::Sobol | Sequence::Philox);
        let points = Some(Points::new(sequence, scramble, dimensions, seed)?);
        Ok(Self { scramble, seed, dimensions, points, buffered })
    }

    /// Number of dimensions of the sequence itself; all further ones use Philox.
    pub fn tabled(&self) -> u32 {
        match &self.points {
            Some(points) if points.sequence != Sequence::Philox => points.tabled,
            _ => self.dimensions,
        }
    }

    pub(crate) fn stream(&self, component: u32, replicate: u32) -> Stream {
        Stream::new(self.seed, component, replicate)
    }

    /// Uploads the table from which a kernel computes points; for buffered points a placeholder.
    pub(crate) fn upload(&self, lane: &Lane) -> Result<Buffer<u32>> {
        match &self.points {
            Some(points) if !self.buffered => points.upload(lane),
            _ => lane.alloc("no table of a sequence", 4),
        }
    }

    /// Calls `walk` with the points of a stream in order, in pieces that fit a buffer of the lane.
    pub(crate) fn pieces(
        &self,
        lane: &Lane,
        stream: Stream,
        (begin, end): (u32, u32),
        dimensions: u32,
        mut walk: impl FnMut((u32, u32), Option<PointBuffer<'_>>) -> Result<()>,
    ) -> Result<()> {
        if !self.buffered {
            return walk((begin, end), None);
        }
        let mut generators = match self.points {
            Some(_) => None,
            None => Some(Mtgp32::of_stream(lane, stream, GENERATORS, dimensions)?),
        };
        // Pieces are whole blocks of walks, so that buffers do not change any sum.
        let bytes = lane.device().limits.binding.min(if lane.device().on_host_cores() {
            16 << 20
        } else {
            256 << 20
        });
        let fit = (bytes / (4 * u64::from(dimensions) * u64::from(Kernel::GROUP))).max(1);
        let most = u32::try_from(fit).map_or(u32::MAX / 2, |fit| fit.saturating_mul(Kernel::GROUP));
        // MTGP32 starts at its first point: points of earlier rounds are computed again to reach
        // later ones.
        let mut first = if generators.is_some() { 0 } else { begin };
        while first < end {
            let count = (if first < begin { begin } else { end } - first).min(most);
            // Words are read four at a time.
            let stride = count.next_multiple_of(4);
            let words = match (&mut generators, &self.points) {
                (Some(generators), _) => generators.fill(lane, stride)?,
                (None, Some(points)) => fill(lane, points, stream, first, stride, 0..dimensions)?,
                (None, None) => unreachable!("a sequence without random access has generators"),
            };
            if first >= begin {
                walk((first, first + count), Some(PointBuffer { words: &words, stride }))?;
            }
            first += count;
        }
        Ok(())
    }
}
