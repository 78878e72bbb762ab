//! Streams: independent randomisations of a sequence.

use crate::numerics::philox;

/// One randomisation of a sequence, created by [`Points::stream`](super::Points::stream).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    /// Component number, a word of Philox's counter.
    pub component: u32,
    /// Replicate number, another word of Philox's counter.
    pub replicate: u32,
    /// Seed of the scrambles of all dimensions.
    pub key: u32,
}

/// Returns the lower and the upper 32 bits of a seed.
#[inline(always)]
pub(super) fn words(seed: u64) -> [u32; 2] {
    [seed as u32, (seed >> 32) as u32]
}

impl Stream {
    pub(crate) fn new(seed: u64, component: u32, replicate: u32) -> Self {
        // No coordinate has this counter: there are 2³⁰ blocks of dimensions.
        let key = philox::philox([u32::MAX, u32::MAX, component, replicate], words(seed))[0];
        Self { component, replicate, key }
    }
}

/// Returns the seed of a dimension's scramble.
#[inline(always)]
pub(super) fn dimension_key(key: u32, dimension: u32) -> u32 {
    // A bijective hash of 32 bits (C. Wellons, "Prospecting for hash functions", 2018).
    let mut x = key.wrapping_add(dimension.wrapping_mul(0x9e37_79b9));
    x ^= x >> 16;
    x = x.wrapping_mul(0x7feb_352d);
    x ^= x >> 15;
    x = x.wrapping_mul(0x846c_a68b);
    x ^ x >> 16
}
