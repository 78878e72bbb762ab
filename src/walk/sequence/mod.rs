//! Sequences of points in the unit cube, as fractions of 2³², with access by point and dimension.
//!
//!  | [`Sequence`] | source | dimensions | scrambles |
//!  |---|---|---|---|
//!  | [`sobol`] | Sobol' 1967, Joe and Kuo 2008 | 21201 | Owen, shift, none |
//!  | [`halton`] | Halton 1960 | 6542 | shift, none |
//!  | [`faure`] | Faure 1982 | 65521 | shift, none |
//!  | Philox4x32-10 | Salmon et al. 2011 | 2³² | random, none needed |
//!  | [`mtgp32`] | Saito and Matsumoto 2013 | any | random, none needed |
//!
//! A coordinate is a `u32`, the fraction times 2³² rounded down. Walks compare it with a
//! distribution function in this unit. Dimensions beyond the number in the table use Philox. Points
//! and dimensions are numbered from 0, and point 0 is part of every sequence.
//!
//! A [`Stream`] is one randomisation, selected by a 64-bit seed, a component and a replicate.
//! Replicates of a sequence are independent, and any part of a stream can be computed separately.
//! [`Points`] computes them on the host, and the kernel `sequence` on a lane ([`fill`]). Its
//! functions are also part of the kernel of walks. MTGP32 has no random access: [`mtgp32`] fills a
//! buffer.

pub mod faure;
pub mod halton;
pub mod mtgp32;
pub mod sobol;
mod source;
mod stream;

use std::ops::Range;

use strum::{Display, EnumString, VariantNames};

use self::stream::words;
use crate::kernel::cpu::Call;
use crate::kernel::cpu::simd::{Body, dispatch};
use crate::kernel::{Kernel, Precision, Real, kernel};
use crate::lane::{Buffer, Lane};
use crate::numerics::philox;
use crate::parallel::*;
use crate::{Error, Invalid, Result};

pub(crate) use source::PointBuffer;
pub use source::PointSource;
pub use stream::{Stream, dimension_key, mix_bits};

kernel! {
    /// Computes coordinates of points of a sequence.
    pub static SEQUENCE = sequence + random(
        sequence, scramble, tabled, base, key, seed_low, seed_high, component, replicate,
        first_point, points, first_dimension, dimensions, out,
    )(
        table: &[u32], out: &mut [u32],
    );
}

/// All kernels of this module.
pub static KERNELS: [&Kernel; 2] = [&SEQUENCE, &mtgp32::MTGP32];

/// Sequence of the points of walks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Display, EnumString, VariantNames)]
#[strum(serialize_all = "lowercase", parse_err_ty = Error, parse_err_fn = unknown_sequence)]
pub enum Sequence {
    /// Sobol's sequence ([`sobol`]).
    Sobol,
    /// Halton's sequence ([`halton`]).
    Halton,
    /// Faure's sequence ([`faure`]).
    Faure,
    /// Random numbers of Philox.
    Philox,
    /// Random numbers of MTGP32 ([`mtgp32`]), one buffer at a time.
    Mtgp32,
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
    /// Random shift of each dimension: of binary digits for Sobol, modulo 1 for Halton and Faure.
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
        match self {
            Self::Sobol => Scramble::Owen,
            Self::Halton | Self::Faure => Scramble::Shift,
            Self::Philox | Self::Mtgp32 => Scramble::None,
        }
    }

    /// True if streams differ with this scramble, so that their spread estimates the error.
    pub fn varies(self, scramble: Scramble) -> bool {
        scramble != Scramble::None || matches!(self, Self::Philox | Self::Mtgp32)
    }

    /// Sequences with random access, at their codes in kernel parameters.
    const CODES: [Self; 4] = [Self::Sobol, Self::Halton, Self::Faure, Self::Philox];

    /// Code of a sequence with random access in kernel parameters.
    pub(crate) fn code(self) -> u32 {
        Self::CODES.iter().position(|&other| other == self).unwrap_or(3) as u32
    }
}

impl Scramble {
    /// Scrambles at their codes in kernel parameters.
    const CODES: [Self; 3] = [Self::None, Self::Owen, Self::Shift];

    /// Code of the scramble in kernel parameters.
    pub(crate) fn code(self) -> u32 {
        self as u32
    }
}

/// Points of a sequence with random access, in all its streams.
#[derive(Debug, Clone)]
pub struct Points {
    /// Sequence of the points.
    pub sequence: Sequence,
    scramble: Scramble,
    seed: u64,
    /// Number of dimensions in the table; all further ones use Philox.
    pub tabled: u32,
    /// Base of Faure's digits.
    base: u32,
    /// Table of the kernel: [`sobol::table`] for Sobol, the bases for Halton.
    table: Vec<u32>,
}

impl Points {
    /// Prepares points of `dimensions` dimensions; a walk needs one dimension per step.
    pub fn new(sequence: Sequence, scramble: Scramble, dimensions: u32, seed: u64) -> Result<Self> {
        Invalid::Unsupported.unless(sequence != Sequence::Mtgp32, || {
            "mtgp32 has no random access to its numbers; use philox, or a buffer of numbers of mtgp32"
                .to_owned()
        })?;
        let digits = matches!(sequence, Sequence::Halton | Sequence::Faure);
        Invalid::Argument("scramble").unless(!digits || scramble != Scramble::Owen, || {
            format!("the scramble owen is not supported for {sequence}: expected shift or none")
        })?;
        let most = match sequence {
            Sequence::Sobol => sobol::DIMENSIONS,
            Sequence::Halton => halton::DIMENSIONS,
            Sequence::Faure => faure::DIMENSIONS,
            Sequence::Philox | Sequence::Mtgp32 => 0,
        };
        let tabled = dimensions.min(most);
        let (table, base) = match sequence {
            Sequence::Sobol => (sobol::table(tabled), 0),
            Sequence::Halton => (halton::primes().take(tabled as usize).collect(), 0),
            Sequence::Faure => (Vec::new(), faure::base(tabled)),
            Sequence::Philox | Sequence::Mtgp32 => (Vec::new(), 0),
        };
        Ok(Self { sequence, scramble, seed, tabled, base, table })
    }

    /// Reconstructs the points from the launch parameters and table of a kernel.
    ///
    /// The CPU implementations of kernels use it. The base of Faure's sequence is left at 0.
    pub(crate) fn of_call(sequence: u32, scramble: u32, tabled: u32, key: [u32; 2], table: &[u32]) -> Self {
        Self {
            sequence: Sequence::CODES[sequence as usize],
            scramble: Scramble::CODES[scramble as usize],
            seed: u64::from(key[1]) << 32 | u64::from(key[0]),
            tabled,
            base: 0,
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
        if self.sequence == Sequence::Philox || dimension >= self.tabled {
            let counter = [point, dimension >> 2, stream.component, stream.replicate];
            return philox::philox(counter, self.key())[(dimension & 3) as usize];
        }
        let key = dimension_key(stream.key, dimension);
        match self.sequence {
            Sequence::Sobol => {
                let words = &self.table[sobol::WORDS * dimension as usize..];
                self.scrambled_sobol(sobol::sobol_reversed(words, point), key)
            }
            Sequence::Halton => {
                halton::halton(point, self.table[dimension as usize]).wrapping_add(self.shift(key))
            }
            _ => faure::faure(point, dimension, self.base).wrapping_add(self.shift(key)),
        }
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

    /// Returns the shift of a dimension's fractions: `key` if the scramble is a shift, else 0.
    #[inline(always)]
    fn shift(&self, key: u32) -> u32 {
        if self.scramble == Scramble::Shift { key } else { 0 }
    }

    /// Computes coordinates of consecutive points in some dimensions.
    ///
    /// `out[d · points + i]` is coordinate `dimensions.start + d` of point `first_point + i`.
    /// `points` is the length of `out` over the number of dimensions.
    ///
    /// For Sobol and Philox this is much faster than separate calls of [`value`](Self::value).
    /// Sobol is fastest if `first_point` is a multiple of 16, Philox if the dimensions are whole
    /// blocks of four. Call it from code that is compiled for this processor, or through
    /// [`fill_host`](Self::fill_host).
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
            match self.sequence {
                Sequence::Sobol => self.fill_sobol(stream, first_point, dimension, row),
                _ => (first_point..=u32::MAX)
                    .zip(row)
                    .for_each(|(point, x)| *x = self.value(stream, point, dimension)),
            }
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

    /// Calls [`fill`](Self::fill) compiled for this processor.
    pub fn fill_host(&self, stream: Stream, first_point: u32, dimensions: Range<u32>, out: &mut [u32]) {
        struct Fill<'a>(&'a Points, Stream, u32, Range<u32>, &'a mut [u32]);
        impl Body for Fill<'_> {
            #[inline(always)]
            fn run<const LEVEL: u8>(self) {
                self.0.fill(self.1, self.2, self.3, self.4);
            }
        }
        dispatch(Fill(self, stream, first_point, dimensions, out));
    }

    /// Copies the kernel's table to a lane.
    pub fn upload(&self, lane: &Lane) -> Result<Buffer<u32>> {
        // The kernel reads four words at a time.
        let mut words = self.table.clone();
        words.resize(words.len().next_multiple_of(4).max(4), 0);
        lane.alloc_with("the table of a sequence", &words)
    }
}

/// Largest number of values of a launch: indices fit into 32 bits, also those of the last group.
const LAUNCH: u64 = 1 << 31;

/// Computes coordinates of points of a stream on a lane.
///
/// `out[d · points + i]` is coordinate `dimensions.start + d` of point `first_point + i`.
pub fn fill(
    lane: &Lane,
    points: &Points,
    stream: Stream,
    first_point: u32,
    count: u32,
    dimensions: Range<u32>,
) -> Result<Buffer<u32>> {
    Invalid::TooLarge.unless(u64::from(first_point) + u64::from(count) <= 1 << 32, || {
        format!("{count} points from number {first_point} on are out of range: a sequence has 2^32 points")
    })?;
    let (values, all) = (u64::from(count) * dimensions.len() as u64, dimensions.len());
    Invalid::TooLarge.unless(values < 1 << 32, || {
        format!("{count} points of {all} dimensions are out of range: expected fewer than 2^32 values")
    })?;
    let table = points.upload(lane)?;
    let out = lane.alloc("points of a sequence", values as usize)?;
    if out.is_empty() {
        return Ok(out);
    }
    let rows = (LAUNCH / u64::from(count)).clamp(1, u64::from(u32::MAX)) as u32;
    let [seed_low, seed_high] = points.key();
    for first in dimensions.clone().step_by(rows as usize) {
        let rows = rows.min(dimensions.end - first);
        let params = sequence::Params {
            step: 0,
            sequence: points.sequence.code(),
            scramble: points.scramble.code(),
            tabled: points.tabled,
            base: points.base,
            key: stream.key,
            seed_low,
            seed_high,
            component: stream.component,
            replicate: stream.replicate,
            first_point,
            points: count,
            first_dimension: first,
            dimensions: rows,
            out: (first - dimensions.start) * count,
        };
        let items = rows as usize * count as usize;
        let args = sequence::Args { table: table.arg(), out: out.arg() };
        let launch = lane.bind(&SEQUENCE, Precision::F32, items, params, args)?;
        lane.launch(&[&launch], 0)?;
    }
    Ok(out)
}

fn sequence<T: Real>(call: &Call<'_>, p: sequence::Params, b: sequence::Bindings<'_, T>) {
    let seed = [p.seed_low, p.seed_high];
    let points = Points { base: p.base, ..Points::of_call(p.sequence, p.scramble, p.tabled, seed, b.table) };
    let stream = Stream { key: p.key, component: p.component, replicate: p.replicate };
    let (first_point, count) = (p.first_point, p.points as usize);
    let (first, dimensions) = (p.first_dimension, p.dimensions);
    let out = &mut b.out[p.out as usize..][..count * dimensions as usize];
    let here = |from: u32, first_point: u32, out: &mut [u32], rows: u32| {
        points.fill_host(stream, first_point, from..from + rows, out);
    };
    if !call.parallel() {
        return here(first, first_point, out, dimensions);
    }
    // Rows are split into pieces; Philox computes four rows at once.
    const PIECE: usize = 1 << 14;
    let table_end = points.tabled.clamp(first, first + dimensions);
    let (quasi, random) = out.split_at_mut((table_end - first) as usize * count);
    quasi.par_chunks_mut(count).enumerate().for_each(|(dimension, row)| {
        let dimension = first + dimension as u32;
        row.par_chunks_mut(PIECE).enumerate().for_each(|(i, piece)| {
            here(dimension, first_point + (i * PIECE) as u32, piece, 1);
        });
    });
    random.par_chunks_mut(4 * count).enumerate().for_each(|(block, rows)| {
        here(table_end + 4 * block as u32, first_point, rows, (rows.len() / count) as u32);
    });
}
