//! Streams: independent randomizations of a sequence.

use super::philox;

/// One randomization of a sequence, made by [`Points::stream`](super::Points::stream).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    /// A word of Philox's counter.
    pub component: u32,
    /// Another.
    pub replicate: u32,
    /// What the dimensions' scrambles are made from.
    pub key: u32,
}

/// The lower and the upper half.
#[inline(always)]
pub(super) fn words(seed: u64) -> [u32; 2] {
    [seed as u32, (seed >> 32) as u32]
}

impl Stream {
    pub(crate) fn new(seed: u64, component: u32, replicate: u32) -> Self {
        // A counter that no coordinate has: there are 2³⁰ blocks of dimensions.
        let key = philox::philox([u32::MAX, u32::MAX, component, replicate], words(seed))[0];
        Self { component, replicate, key }
    }
}

/// A bijection of 32 bits whose outputs look independent (C. Wellons, "Prospecting for hash functions", 2018).
#[inline(always)]
pub fn mix_bits(bits: u32) -> u32 {
    let mut x = bits;
    x ^= x >> 16;
    x = x.wrapping_mul(0x7feb_352d);
    x ^= x >> 15;
    x = x.wrapping_mul(0x846c_a68b);
    x ^ x >> 16
}

/// The seed of one dimension's scramble.
#[inline(always)]
pub fn dimension_key(key: u32, dimension: u32) -> u32 {
    mix_bits(key.wrapping_add(dimension.wrapping_mul(0x9e37_79b9)))
}
