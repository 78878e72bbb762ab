//! Chunks in tiles: reduction to reduced blocks, and unknowns from their interface values.

use std::sync::Arc;

use super::levels::{Level, Levels, Shape};
use super::stages::ChunkSolve;
use crate::Result;
use crate::kernel::Kernel;
use crate::lane::Lane;
use crate::tridiagonal::kernels::alignment::ChunkPlace;
use crate::tridiagonal::kernels::number::Number;
use crate::tridiagonal::kernels::row_memory::{Arrays, RowMemory};
use crate::tridiagonal::kernels::tiles::{
    REDUCE, SOLVE, TILE, UNIT, small_exponent, tridiagonal_reduce, tridiagonal_solve,
};
use crate::tridiagonal::scheme::Scheme;

/// Creates a chunk of `rows` rows (at least 1) in tiles, which joins 2^levels units to one block.
pub(super) fn chunk<T: Number>(
    lane: &Lane,
    memory: &RowMemory<T>,
    place: ChunkPlace,
    rows: usize,
    levels: u32,
) -> Result<ChunkSolve<T>> {
    assert!(rows > 0 && rows < 1 << 31, "a chunk of {rows} rows");
    let Arrays { dl, d, du, b, x } = &memory.arrays;
    let (shape, units) = (Shape::REDUCED_BLOCKS, rows.div_ceil(UNIT));
    let first = match memory.shared {
        true => Level::new(lane, shape, units)?,
        // Reduced blocks are no longer needed when unknowns are written.
        false => Level::within(lane, shape, units, x.clone())?,
    };
    let (n, at) = place.params(rows);
    let (cyclic, items) = (u32::from(place.cyclic), rows.div_ceil(TILE) * Kernel::GROUP as usize);
    let (rows, small) = (rows as u32, small_exponent(T::PRECISION));
    let (dl, d, du, rhs) = (dl.arg(), d.arg(), du.arg(), b.arg());
    let params = tridiagonal_reduce::Params { step: 0, rows, n, first: at, cyclic, small };
    let (units, flags) = (first.equations.arg(), first.flags.arg());
    let args = tridiagonal_reduce::Args { dl, d, du, rhs, units, flags };
    let up = lane.bind(&REDUCE, T::PRECISION, items, params, args)?;
    let params = tridiagonal_solve::Params { step: 0, rows, n, first: at, cyclic };
    let args = tridiagonal_solve::Args { dl, d, du, rhs, values: first.values.arg(), x: x.arg() };
    let down = lane.bind(&SOLVE, T::PRECISION, items, params, args)?;
    let mut tree = Levels::new(Arc::new(first));
    tree.reduce_levels(lane, levels)?;
    Ok(ChunkSolve { scheme: Scheme::Tiles, up: Some(up), down, levels: Some(tree), flags: None })
}
