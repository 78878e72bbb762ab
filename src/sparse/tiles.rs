//! Tiles of neighbouring rows that recur in a matrix of row patterns.

pub use crate::kernel::twin::simd::TILE;

/// Places of a thread's table of tiles.
pub const PLACES: usize = 1 << 14;

/// The patterns of a tile's rows.
pub type Key = [u16; TILE];

/// Where a tile lies in a table of tiles.
#[inline(always)]
pub fn place(key: &Key) -> usize {
    const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
    let words: [u64; TILE / 4] = bytemuck::cast(*key);
    let mixed = words.iter().fold(0u64, |h, &w| (h.rotate_left(29) ^ w).wrapping_mul(ODD));
    (mixed >> (64 - PLACES.trailing_zeros())) as usize
}

/// Share of the tiles that a table of tiles, filled by an earlier pass over these rows, does not hold when they come
/// up again.
pub fn missed(ids: &[u16]) -> f64 {
    let mut table: Vec<Option<Key>> = vec![None; PLACES];
    let (tiles, _) = ids.as_chunks::<TILE>();
    let mut pass = || tiles.iter().filter(|&&key| table[place(&key)].replace(key) != Some(key)).count();
    pass();
    pass() as f64 / tiles.len().max(1) as f64
}
