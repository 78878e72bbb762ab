//! Tiles of neighbouring rows that recur in a matrix of row patterns.

pub use crate::kernel::cpu::simd::TILE;

/// Number of slots in a thread's table of tiles.
pub const PLACES: usize = 1 << 14;

/// Pattern numbers of the rows of a tile, which are [`TILE`] neighbouring rows.
pub type TileKey = [u16; TILE];

/// Returns the slot of a tile in a table of tiles.
#[inline(always)]
pub fn place(key: &TileKey) -> usize {
    // Products that do not wait for each other.
    const ODD: [u64; TILE / 4] =
        [0x9E37_79B9_7F4A_7C15, 0xD1B5_4A32_D192_ED03, 0x8CB9_2BA7_2F3D_8DD7, 0xABC9_8388_FB8F_AC03];
    let words: [u64; TILE / 4] = bytemuck::cast(*key);
    let mixed = words.iter().zip(ODD).fold(0u64, |h, (w, odd)| h.wrapping_add(w.wrapping_mul(odd)));
    (mixed >> (64 - PLACES.trailing_zeros())) as usize
}

/// Share of the tiles that a second pass over these rows does not find in the table.
///
/// The table has [`PLACES`] slots; a tile replaces another one in its slot.
pub fn missed(ids: &[u16]) -> f64 {
    let mut table: Vec<Option<TileKey>> = vec![None; PLACES];
    let (tiles, _) = ids.as_chunks::<TILE>();
    let mut pass = || tiles.iter().filter(|&&key| table[place(&key)].replace(key) != Some(key)).count();
    pass();
    pass() as f64 / tiles.len().max(1) as f64
}
