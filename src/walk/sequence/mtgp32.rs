//! MTGP32: Mersenne Twisters that compute 256 words at a time, one generator per workgroup.
//!
//! M. Saito, M. Matsumoto, "Variants of Mersenne Twister suitable for graphic processors", ACM
//! Transactions on Mathematical Software 39(2), 2013, doi:10.1145/2427023.2427029. The state has N
//! = 351 words, of which the first counts only 13 bits. With the parameters pos, sh1, sh2 and two
//! tables of 16 words,
//!
//! y = (x_k & mask) ⊕ x_{k+1}, y ⊕= y « sh1, y ⊕= x_{k+pos} » sh2, x_{k+N} = y ⊕ tbl\[y mod 16\], t
//! = x_{k+pos−1}, t ⊕= t » 16, t ⊕= t » 8, output k = x_{k+N} ⊕ tmp\[t mod 16\].
//!
//! The period is 2¹¹²¹³ − 1. As pos ≤ 351 − 256, the next 256 words do not depend on each other.
//! Generators with different parameters are assumed to be independent. 200 parameter sets were
//! published (`data/LICENSE-MTGP32`).
//!
//! There is no random access. A [`Mtgp32`] fills buffers from the first point on. Of G generators,
//! generator g has blocks g, g + G, g + 2G, … of 256 points. For each block it computes 256 words
//! for dimension 0, then 256 for dimension 1, and so on. A point's coordinates thus depend on the
//! numbers of dimensions and of generators, and on nothing else.

use std::sync::OnceLock;

use super::stream::{Stream, dimension_key};
use crate::kernel::cpu::Call;
use crate::kernel::cpu::simd::{Body, dispatch};
use crate::kernel::{Precision, Real, kernel};
use crate::lane::{Buffer, Lane};
use crate::parallel::*;
use crate::{Invalid, Result};

kernel! {
    /// Computes random words of MTGP32.
    pub static MTGP32 = mtgp32(groups, first_block, end_point, dimensions, points)(
        sets: &[u32], states: &mut [u32], out: &mut [u32],
    );
}

/// Number of published parameter sets, the largest number of generators of a run.
pub const SETS: u32 = 200;
/// Number of generators of a run, that of the published measurements.
pub const GENERATORS: u32 = 84;
/// Number of words of a generator's state.
pub const STATE: usize = 351;
/// Words that a generator computes at a time, and points per block.
pub const BLOCK: usize = 256;

const MASK: u32 = 0xfff8_0000;

/// Parameters of a generator; table entries are XOR sums of entries 1, 2, 4 and 8, which are
/// stored.
#[derive(Debug, Clone, Copy)]
struct Parameters {
    pos: usize,
    sh1: u32,
    sh2: u32,
    tbl: [u32; 4],
    tmp: [u32; 4],
}

/// Returns the published parameter sets.
fn parameters() -> &'static [Parameters] {
    static PARAMETERS: OnceLock<Vec<Parameters>> = OnceLock::new();
    PARAMETERS.get_or_init(|| {
        let lines = include_str!("data/mtgp32-11213.csv").lines();
        let set = |line: &str| {
            let fields: Vec<&str> = line.split(',').collect();
            let decimal = |i: usize| fields[i].parse().expect("the crate's own table has decimal numbers");
            let word =
                |i: usize| u32::from_str_radix(fields[i], 16).expect("the crate's own table has words");
            Parameters {
                pos: decimal(1) as usize,
                sh1: decimal(2),
                sh2: decimal(3),
                tbl: std::array::from_fn(|k| word(4 + k)),
                tmp: std::array::from_fn(|k| word(8 + k)),
            }
        };
        lines.filter(|line| !line.starts_with(['#', 'i'])).map(set).collect()
    })
}

/// Returns the XOR sum of the words at the 1-bits of `bits`.
#[inline(always)]
fn entry(table: &[u32; 4], bits: u32) -> u32 {
    (0..4).fold(0, |x, k| x ^ table[k] & 0u32.wrapping_sub(bits >> k & 1))
}

impl Parameters {
    fn state(&self, seed: u32) -> [u32; STATE] {
        // Parameters are part of the state, so that generators with equal seeds differ from the
        // start.
        let hidden = self.tbl[2] ^ self.tbl[3] << 16;
        let byte = hidden.wrapping_add(hidden >> 16);
        let byte = byte.wrapping_add(byte >> 8) & 0xff;
        let mut x = [byte * 0x0101_0101; STATE];
        (x[0], x[1]) = (seed, hidden);
        for i in 1..STATE {
            x[i] ^= (x[i - 1] ^ x[i - 1] >> 30).wrapping_mul(1_812_433_253).wrapping_add(i as u32);
        }
        x
    }
}

/// Generator on the host.
struct Generator {
    set: Parameters,
    /// State, and space for the next words.
    x: [u32; STATE + BLOCK],
}

impl Generator {
    fn new(set: Parameters, state: &[u32]) -> Self {
        let mut x = [0; STATE + BLOCK];
        x[..STATE].copy_from_slice(state);
        Self { set, x }
    }

    /// Computes the next 256 words, and stores as many of them as `out` holds.
    #[inline(always)]
    fn round(&mut self, out: &mut [u32]) {
        let Parameters { pos, sh1, sh2, tbl, tmp } = self.set;
        let (old, new) = self.x.split_at_mut(STATE);
        let (here, next, far) = (&old[..BLOCK], &old[1..][..BLOCK], &old[pos..][..BLOCK]);
        for (((new, &here), &next), &far) in new.iter_mut().zip(here).zip(next).zip(far) {
            let mut y = here & MASK ^ next;
            y ^= y << sh1;
            y ^= far >> sh2;
            *new = y ^ entry(&tbl, y);
        }
        for ((out, &new), &t) in out.iter_mut().zip(&*new).zip(&old[pos - 1..]) {
            let t = t ^ t >> 16;
            *out = new ^ entry(&tmp, t ^ t >> 8);
        }
        self.x.copy_within(BLOCK.., 0);
    }
}

/// Returns an error unless there are enough parameter sets for `groups` groups.
pub(crate) fn expect_groups(groups: usize) -> Result<()> {
    Invalid::TooLarge.unless((1..=SETS as usize).contains(&groups), || {
        format!(
            "{groups} groups of mtgp32 are out of range: expected 1 to {SETS}, one for each parameter set"
        )
    })
}

/// Generators on a lane, which produce the points of a sequence in order.
#[derive(Debug)]
pub struct Mtgp32 {
    groups: u32,
    dimensions: u32,
    /// Number of the next block of points.
    block: u32,
    sets: Buffer<u32>,
    states: Buffer<u32>,
}

impl Mtgp32 {
    /// Creates one generator per seed for points of `dimensions` dimensions.
    ///
    /// Generator g has the published parameter set g.
    pub fn new(lane: &Lane, seeds: &[u32], dimensions: u32) -> Result<Self> {
        expect_groups(seeds.len())?;
        let mut words = Vec::new();
        let mut states = Vec::new();
        for (set, &seed) in parameters().iter().zip(seeds) {
            words.extend([set.pos as u32, set.sh1, set.sh2, 0]);
            words.extend(set.tbl);
            words.extend(set.tmp);
            states.extend(set.state(seed));
        }
        Ok(Self {
            groups: seeds.len() as u32,
            dimensions,
            block: 0,
            sets: lane.alloc_with("parameters of MTGP32", &words)?,
            states: lane.alloc_with("states of MTGP32", &states)?,
        })
    }

    pub(super) fn of_stream(lane: &Lane, stream: Stream, groups: u32, dimensions: u32) -> Result<Self> {
        let seeds: Vec<u32> = (0..groups).map(|g| dimension_key(stream.key, g)).collect();
        Self::new(lane, &seeds, dimensions)
    }

    /// Computes the next `count` points on the lane of the generators.
    ///
    /// `out[d · count + i]` is coordinate d of the i-th of these points. The rest of the last block
    /// of 256 points is skipped.
    pub fn fill(&mut self, lane: &Lane, count: u32) -> Result<Buffer<u32>> {
        let first = u64::from(self.block) * BLOCK as u64;
        let end = first + u64::from(count);
        let values = u64::from(count) * u64::from(self.dimensions);
        Invalid::TooLarge.unless(end <= u64::from(u32::MAX - BLOCK as u32) && values < 1 << 32, || {
            format!(
                "mtgp32: points {first} to {end} of {} dimensions are out of range: expected at most 2^32 - 257 points, \
                 and fewer than 2^32 values at once",
                self.dimensions
            )
        })?;
        let out = lane.alloc("points of a sequence", values as usize)?;
        if !out.is_empty() {
            let params = mtgp32::Params {
                step: 0,
                groups: self.groups,
                first_block: self.block,
                end_point: end as u32,
                dimensions: self.dimensions,
                points: count,
            };
            let args = mtgp32::Args { sets: self.sets.arg(), states: self.states.arg(), out: out.arg() };
            let items = self.groups as usize * BLOCK;
            lane.launch(&[&lane.bind(&MTGP32, Precision::F32, items, params, args)?], 0)?;
            self.block += count.div_ceil(BLOCK as u32);
        }
        Ok(out)
    }
}

/// Output blocks of one generator, each of up to 256 words, dimension by dimension.
struct Blocks<'a> {
    state: &'a mut [u32],
    set: Parameters,
    /// All blocks of dimension 0, then all of dimension 1, and so on.
    blocks: Vec<&'a mut [u32]>,
    dimensions: usize,
}

impl Body for Blocks<'_> {
    #[inline(always)]
    fn run<const LEVEL: u8>(mut self) {
        let mut generator = Generator::new(self.set, self.state);
        let blocks = self.blocks.len() / self.dimensions;
        for block in 0..blocks {
            for d in 0..self.dimensions {
                generator.round(self.blocks[d * blocks + block]);
            }
        }
        self.state.copy_from_slice(&generator.x[..STATE]);
    }
}

fn mtgp32<T: Real>(_: &Call<'_>, p: mtgp32::Params, b: mtgp32::Bindings<'_, T>) {
    let (groups, first_block) = (p.groups as usize, p.first_block as usize);
    let (dimensions, points) = (p.dimensions as usize, p.points as usize);
    let out = &mut b.out[..dimensions * points];
    let mut blocks: Vec<Vec<&mut [u32]>> = (0..groups).map(|_| Vec::new()).collect();
    for row in out.chunks_exact_mut(points) {
        for (block, words) in row.chunks_mut(BLOCK).enumerate() {
            blocks[(first_block + block) % groups].push(words);
        }
    }
    let sets = b.sets.chunks_exact(12).map(|set| Parameters {
        pos: set[0] as usize,
        sh1: set[1],
        sh2: set[2],
        tbl: std::array::from_fn(|k| set[4 + k]),
        tmp: std::array::from_fn(|k| set[8 + k]),
    });
    let states = b.states.chunks_exact_mut(STATE);
    let generators = blocks.into_iter().zip(sets).zip(states);
    let generators = generators.map(|((blocks, set), state)| Blocks { state, set, blocks, dimensions });
    generators.collect::<Vec<_>>().into_par_iter().for_each(dispatch);
}
