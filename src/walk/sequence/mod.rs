//! Sequences of points in the unit cube, as fractions of 2³², with access by point and dimension.
//!
//!  | [`Sequence`] | source | dimensions | scrambles |
//!  |---|---|---|---|
//!  | [`sobol`] | Sobol' 1967, Joe and Kuo 2008 | 21201 | Owen, shift, none |
//!  | Philox4x32-10 | Salmon et al. 2011 | 2³² | random, none needed |
//!
//! A coordinate is a `u32`, the fraction times 2³² rounded down. Walks compare it with a
//! distribution function in this unit. Dimensions beyond the number in the table use Philox. Points
//! and dimensions are numbered from 0, and point 0 is part of every sequence.
//!
//! A [`Stream`] is one randomisation, selected by a 64-bit seed, a component and a replicate.
//! Replicates of a sequence are independent, and any part of a stream can be computed separately.
//! [`Points`] computes them on the host. The kernel of walks computes them on a lane.

pub mod sobol;
mod stream;

use std::ops::Range;

use strum::{Display, EnumString, VariantNames};

use self::stream::{dimension_key, words};
use crate::lane::{Buffer, Lane};
use crate::numerics::philox;
use crate::{Error, Invalid, Result};

pub use stream::Stream;

/// Sequence of the points of walks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Display, EnumString, VariantNames)]
#[strum(serialize_all = "lowercase", parse_err_ty = Error, parse_err_fn = unknown_sequence)]
pub enum Sequence {
    /// Sobol's sequence ([`sobol`]).
    Sobol,
    /// Random numbers of Philox.
    Philox,
}

/// Randomisation that makes replicates of a quasi-random sequence independent.
///
/// Random sequences ignore it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Display, EnumString, VariantNames)]
#[strum(serialize_all = "lowercase", parse_err_ty = Error, parse_err_fn = unknown_scramble)]
pub enum Scramble {
    /// The sequence without randomisation, equal for all streams.
    None,
    /// Nested uniform scrambling of Sobol (Owen 1995; [`sobol::owen_reversed`]).
    Owen,
    /// Random shift of each dimension, by binary digits.
    ///
    /// R. Cranley, T. N. L. Patterson, SIAM Journal on Numerical Analysis 13, 1976,
    /// doi:10.1137/0713071.
    Shift,
}

fn unknown_sequence(name: &str) -> Error {
    Invalid::name::<Sequence>("sequence", name)
}

fn unknown_scramble(name: &str) -> Error {
    Invalid::name::<Scramble>("scramble", name)
}

impl Sequence {
    /// Default scramble, by which replicates differ.
    pub fn default_scramble(self) -> Scramble {
        if self == Self::Sobol { Scramble::Owen } else { Scramble::None }
    }

    /// True if streams differ with this scramble, so that their spread estimates the error.
    pub fn varies(self, scramble: Scramble) -> bool {
        scramble != Scramble::None || self == Self::Philox
    }
}

impl Scramble {
    /// Scrambles, indexed by their codes in kernel parameters.
    const CODES: [Self; 3] = [Self::None, Self::Owen, Self::Shift];

    /// Code of the scramble in kernel parameters.
    pub(crate) fn code(self) -> u32 {
        self as u32
    }
}

/// Points of a sequence, in all its streams.
#[derive(Debug, Clone)]
pub struct Points {
    pub(crate) scramble: Scramble,
    seed: u64,
    /// Number of dimensions in the table; all further ones use Philox.
    pub tabled: u32,
    /// Table of the kernel: [`sobol::table`], empty for Philox.
    table: Vec<u32>,
}

impl Points {
    /// Prepares points of `dimensions` dimensions; a walk needs one dimension per step.
    pub fn new(sequence: Sequence, scramble: Scramble, dimensions: u32, seed: u64) -> Self {
        let tabled = if sequence == Sequence::Sobol { dimensions.min(sobol::DIMENSIONS) } else { 0 };
        Self { scramble, seed, tabled, table: sobol::table(tabled) }
    }

    /// Reconstructs the points from launch parameters and a table, for CPU implementations.
    pub(crate) fn of_call(scramble: u32, tabled: u32, key: [u32; 2], table: &[u32]) -> Self {
        Self {
            scramble: Scramble::CODES[scramble as usize],
            seed: u64::from(key[1]) << 32 | u64::from(key[0]),
            tabled,
            table: table.to_vec(),
        }
    }

    /// Returns the stream of a component and replicate.
    pub fn stream(&self, component: u32, replicate: u32) -> Stream {
        Stream::new(self.seed, component, replicate)
    }

    /// Returns the seed as Philox's key.
    #[inline(always)]
    pub fn key(&self) -> [u32; 2] {
        words(self.seed)
    }

    /// Returns a coordinate of a point.
    #[inline(always)]
    pub fn value(&self, stream: Stream, point: u32, dimension: u32) -> u32 {
        if dimension >= self.tabled {
            let counter = [point, dimension >> 2, stream.component, stream.replicate];
            return philox::philox(counter, self.key())[(dimension & 3) as usize];
        }
        let words = &self.table[sobol::WORDS * dimension as usize..];
        self.scrambled_sobol(sobol::sobol_reversed(words, point), dimension_key(stream.key, dimension))
    }

    /// Returns a coordinate of Sobol's sequence from its bits in reverse order.
    #[inline(always)]
    fn scrambled_sobol(&self, reversed: u32, key: u32) -> u32 {
        match self.scramble {
            Scramble::None => reversed.reverse_bits(),
            Scramble::Owen => sobol::owen_reversed(reversed, key).reverse_bits(),
            Scramble::Shift => reversed.reverse_bits() ^ key,
        }
    }

    /// Computes coordinates of consecutive points in some dimensions.
    ///
    /// `out[d · points + i]` is coordinate `dimensions.start + d` of point `first_point + i`.
    /// `points` is the length of `out` over the number of dimensions.
    ///
    /// This is much faster than separate calls of [`value`](Self::value). Sobol is fastest if
    /// `first_point` is a multiple of 16, Philox if the dimensions are whole blocks of four. Call
    /// it from code that is compiled for this processor.
    #[inline(always)]
    pub fn fill(&self, stream: Stream, first_point: u32, dimensions: Range<u32>, out: &mut [u32]) {
        if dimensions.is_empty() {
            return;
        }
        let points = out.len() / dimensions.len();
        assert_eq!(points * dimensions.len(), out.len(), "whole dimensions are filled");
        let tabled = dimensions.start.max(self.tabled.min(dimensions.end));
        let (quasi, random) = out.split_at_mut((tabled - dimensions.start) as usize * points);
        if points == 0 {
            return;
        }
        for (dimension, row) in (dimensions.start..tabled).zip(quasi.chunks_exact_mut(points)) {
            self.fill_sobol(stream, first_point, dimension, row);
        }
        self.fill_philox(stream, first_point, tabled, points, random);
    }

    /// Fills sixteen points at a time, whose numbers share all but the last four bits.
    #[inline(always)]
    fn fill_sobol(&self, stream: Stream, first_point: u32, dimension: u32, row: &mut [u32]) {
        const LANES: usize = 16;
        let words = &self.table[sobol::WORDS * dimension as usize..][..sobol::WORDS];
        let key = dimension_key(stream.key, dimension);
        let mut low = [0; LANES];
        for (i, low) in low.iter_mut().enumerate() {
            *low = (0..4).fold(0, |x, k| x ^ words[k] & 0u32.wrapping_sub((i >> k & 1) as u32));
        }
        let mut at = 0;
        while at < row.len() {
            let point = first_point + at as u32;
            let skip = (point % LANES as u32) as usize;
            let high = sobol::sobol_reversed(words, point - skip as u32);
            let here = (LANES - skip).min(row.len() - at);
            let block = &mut row[at..at + here];
            match <&mut [u32; LANES]>::try_from(&mut *block) {
                Ok(block) => {
                    for (x, low) in block.iter_mut().zip(&low) {
                        *x = self.scrambled_sobol(high ^ low, key);
                    }
                }
                Err(_) => {
                    for (x, low) in block.iter_mut().zip(&low[skip..]) {
                        *x = self.scrambled_sobol(high ^ low, key);
                    }
                }
            }
            at += here;
        }
    }

    /// Fills four dimensions at a time, the words of one Philox block.
    #[inline(always)]
    fn fill_philox(&self, stream: Stream, first_point: u32, first: u32, points: usize, out: &mut [u32]) {
        let (mut dimension, mut rest) = (first, out);
        while !rest.is_empty() {
            let word = (dimension & 3) as usize;
            let rows = (4 - word).min(rest.len() / points);
            let (here, next) = rest.split_at_mut(rows * points);
            for (i, point) in (0..points).zip(first_point..=u32::MAX) {
                let counter = [point, dimension >> 2, stream.component, stream.replicate];
                let words = philox::philox(counter, self.key());
                for row in 0..rows {
                    here[row * points + i] = words[word + row];
                }
            }
            dimension += rows as u32;
            rest = next;
        }
    }

    /// Copies the kernel's table to a lane.
    pub fn upload(&self, lane: &Lane) -> Result<Buffer<u32>> {
        // The kernel binds four words at least.
        let words = if self.table.is_empty() { &[0; 4][..] } else { &self.table };
        lane.alloc_with("the table of a sequence", words)
    }
}
