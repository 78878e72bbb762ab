//! CPU implementation of the step with row patterns.
//!
//! It processes tiles of sixteen neighbouring rows. Patterns of neighbours differ, but tiles recur
//! with the period of the model's innermost loop. So each thread decodes a tile once and caches it:
//! the ascending offsets that occur in its rows, and sixteen values for each offset, 0 if a row has
//! none. Then each offset is one contiguous read of x, without a gather. Offsets of COO entries are
//! stored separately for each partial sum, except in fixed point. Zeros change no sum, so the
//! results are bitwise those of single rows.

use std::any::Any;
use std::cell::RefCell;

use super::rows::{StepRows, each, steps};
use crate::kernel::cpu::Call;
use crate::kernel::cpu::simd::{At, Body, dispatch};
use crate::kernel::{Number, Precision, kernel};
use crate::sparse::pattern_tiles::{PLACES, TILE, TileKey, place};
use crate::sparse::patterns::Tables;
use crate::sparse::spmv_cpu::{plus_product, tail};
use crate::util::inline_array::array;

steps! {
    /// One step with a matrix of row patterns.
    static STEP_PATTERN, STEP_PATTERN_SOME, STEP_PATTERN_RECURRENCE = step_pattern(
        ids_log, pointers, groups, value_bits, least, dictionary, exit_apart
    )(ids: &[u8], patterns: &[u32], values: &[T]).with_cuda_groups(6);
}

/// Maximum number of offsets of a tile; a tile with more is computed row by row.
const MOST_OFFSETS: usize = 48;
/// Number of sums of a row: one for the ELL part, and four partial sums of the COO part.
const SUMS: usize = 5;

/// Pattern numbers of rows, one or two bytes each.
#[derive(Clone, Copy)]
enum Ids<'a> {
    Bytes(&'a [u8]),
    Words(&'a [u16]),
}

impl Ids<'_> {
    #[inline(always)]
    fn at(self, row: usize) -> u16 {
        match self {
            Self::Bytes(ids) => u16::from(ids[row]),
            Self::Words(ids) => ids[row],
        }
    }

    #[inline(always)]
    fn tile(self, row: usize) -> TileKey {
        match self {
            Self::Bytes(ids) => {
                let ids = &ids[row..][..TILE];
                array(|i| u16::from(ids[i]))
            }
            Self::Words(ids) => array(|i| ids[row..][..TILE][i]),
        }
    }
}

/// Tile of sixteen rows, decoded from their patterns into offsets and values.
#[derive(Clone, Copy)]
struct Tile<T> {
    key: TileKey,
    /// Start of the tile's data in the cache's `offsets` and `values`.
    region: usize,
    /// End of the offsets for each of a row's [`SUMS`]; `None` if computed row by row.
    ends: Option<[usize; SUMS]>,
    /// Least and greatest offset (column − row) of the tile.
    reach: (i32, i32),
    exit: [T; TILE],
}

/// Cache of a thread's decoded tiles, indexed by the hash of their keys.
struct Tiles<T> {
    /// Identity of the matrix to which the tiles belong.
    matrix: u64,
    places: Vec<Option<Tile<T>>>,
    offsets: Vec<i32>,
    values: Vec<[T; TILE]>,
}

impl<T: Number> Tiles<T> {
    fn new(matrix: u64) -> Self {
        Self { matrix, places: vec![None; PLACES], offsets: Vec::new(), values: Vec::new() }
    }

    /// Returns the tile with the row patterns `key`, from the cache or newly decoded.
    #[inline(always)]
    fn find(&mut self, key: &TileKey, tables: Tables<'_, T>) -> &Tile<T> {
        let place = place(key);
        if !matches!(&self.places[place], Some(tile) if tile.key == *key) {
            self.work_out(place, key, tables);
        }
        self.places[place].as_ref().expect("it was just put there")
    }

    #[cold]
    #[inline(never)]
    fn work_out(&mut self, place: usize, key: &TileKey, tables: Tables<'_, T>) {
        let region = match &self.places[place] {
            Some(evicted) => evicted.region,
            None => {
                let region = self.offsets.len();
                self.offsets.resize(region + MOST_OFFSETS, 0);
                self.values.resize(region + MOST_OFFSETS, [T::ZERO; TILE]);
                region
            }
        };
        let mut tile = Tile { key: *key, region, ends: None, reach: (0, 0), exit: [T::ZERO; TILE] };
        // Integer sums do not depend on the order, so fixed point needs only one sum.
        let apart = T::PRECISION != Precision::Q64;
        // (sum, offset) and value of the entries of each row.
        let entries = |id: u16| {
            let ell = tables.ell(id).map(|(offset, value)| ((0, offset as i32), value));
            let coo = tables.coo(id).enumerate();
            let coo = coo.map(|(t, e)| {
                let (offset, value) = tables.entry(e);
                ((if apart { 1 + t % 4 } else { 0 }, offset as i32), value)
            });
            ell.chain(coo).filter(|&(_, value)| value != T::ZERO)
        };
        let mut all: Vec<(usize, i32)> =
            key.iter().flat_map(|&id| entries(id).map(|(place, _)| place)).collect();
        all.sort_unstable();
        all.dedup();
        if all.len() <= MOST_OFFSETS {
            let values = &mut self.values[region..][..MOST_OFFSETS];
            values.fill([T::ZERO; TILE]);
            for (row, &id) in key.iter().enumerate() {
                tile.exit[row] = tables.exit(id);
                for (place, value) in entries(id) {
                    values[all.partition_point(|&p| p < place)][row] = value;
                }
            }
            for (out, &(_, offset)) in self.offsets[region..].iter_mut().zip(&all) {
                *out = offset;
            }
            tile.ends = Some(array(|sum| all.partition_point(|&(s, _)| s <= sum)));
            let offsets = || all.iter().map(|&(_, offset)| offset);
            tile.reach = (offsets().min().unwrap_or(0), offsets().max().unwrap_or(0));
        }
        self.places[place] = Some(tile);
    }
}

thread_local! {
    /// Tiles of the matrix that this thread processed last.
    static KEPT: RefCell<Option<Box<dyn Any>>> = const { RefCell::new(None) };
}

/// Rows of a chunk with patterns.
struct Patterned<'a, T> {
    ids: Ids<'a>,
    tables: Tables<'a, T>,
    exit_apart: bool,
    /// First row that is computed, counted from the chunk's first row.
    first: usize,
    /// Index of the chunk's row 0 in x.
    base: usize,
    x: &'a [T],
    rows: StepRows<'a, T>,
    tiles: &'a mut Tiles<T>,
}

impl<T: Number> Body for Patterned<'_, T> {
    #[inline(always)]
    fn run<const LEVEL: u8>(mut self) {
        let rows = self.rows.y.len();
        // Tiles use signed offsets into x, which suffice for all but the longest vectors.
        let tiled = if self.x.len() <= i32::MAX as usize { rows - rows % TILE } else { 0 };
        for row in (0..tiled).step_by(TILE) {
            if !self.tile::<LEVEL>(row) {
                (row..row + TILE).for_each(|row| self.row::<LEVEL>(row));
            }
        }
        (tiled..rows).for_each(|row| self.row::<LEVEL>(row));
    }
}

impl<T: Number> Patterned<'_, T> {
    /// Computes a tile of rows; returns false if its rows must be computed one by one.
    #[inline(always)]
    fn tile<const LEVEL: u8>(&mut self, row: usize) -> bool {
        let key = self.ids.tile(self.first + row);
        let tile = self.tiles.find(&key, self.tables);
        let at = (self.base + self.first + row) as i64;
        let (least, greatest) = (at + i64::from(tile.reach.0), at + i64::from(tile.reach.1) + TILE as i64);
        let Some(ends) = tile.ends.filter(|_| least >= 0 && greatest <= self.x.len() as i64) else {
            return false;
        };
        let (region, exit) = (tile.region, tile.exit);
        let offsets = &self.tiles.offsets[region..][..MOST_OFFSETS];
        let values = &self.tiles.values[region..][..MOST_OFFSETS];
        let x = self.x;
        let mut sums = T::tile_sums(At::<LEVEL>::of_body(), &offsets[..ends[0]], &values[..ends[0]], x, at);
        if ends[0] < ends[SUMS - 1] {
            let mut p = [[T::NONE; TILE]; 4];
            for (i, p) in p.iter_mut().enumerate() {
                let here = ends[i]..ends[i + 1];
                *p = T::tile_sums(At::<LEVEL>::of_body(), &offsets[here.clone()], &values[here], x, at);
            }
            for (r, s) in sums.iter_mut().enumerate() {
                let coo = T::plus_sum(T::plus_sum(p[0][r], p[2][r]), T::plus_sum(p[1][r], p[3][r]));
                *s = T::plus_sum(*s, coo);
            }
        }
        let rates = self.rows.exit;
        let exit: [T; TILE] = if self.exit_apart { array(|r| rates[row..][..TILE][r]) } else { exit };
        self.rows.finish::<LEVEL>(row..row + TILE, &sums, &exit);
        true
    }

    #[inline(always)]
    fn row<const LEVEL: u8>(&mut self, row: usize) {
        let id = self.ids.at(self.first + row);
        let coo = self.tables.coo(id);
        let at = (self.base + self.first + row) as u32;
        let (tables, x) = (self.tables, self.x);
        let entry = |e: usize| {
            let (offset, value) = tables.entry(e);
            (at.wrapping_add(offset) as usize, value)
        };
        let rate = if self.exit_apart { self.rows.exit[row] } else { tables.exit(id) };
        let mut s = T::NONE;
        for (offset, value) in tables.ell(id) {
            s = plus_product::<T, LEVEL>(value, x[at.wrapping_add(offset) as usize], s);
        }
        if !coo.is_empty() {
            s = T::plus_sum(s, tail::<T, LEVEL>(coo.start, coo.end, entry, x));
        }
        self.rows.finish::<LEVEL>(row..row + 1, &[s], &[rate]);
    }
}

fn step_pattern<T: Number>(call: &Call<'_>, p: step_pattern::Params, b: step_pattern::Bindings<'_, T>) {
    let step_pattern::Bindings { patterns, values, x, .. } = b;
    let ids = if p.ids_log == 2 { Ids::Bytes(b.ids) } else { Ids::Words(bytemuck::cast_slice(b.ids)) };
    let tables = Tables {
        words: patterns,
        pointers: p.pointers as usize,
        groups: p.groups as usize,
        value_bits: p.value_bits,
        least: p.least,
        values,
        dictionary: p.dictionary as usize,
    };
    let exit_apart = p.exit_apart != 0;
    let base = (p.first_row + p.own) as usize;
    let matrix = call.contents(patterns);
    // Few large pieces, since a thread has to decode tiles again after another matrix.
    let pieces = 8 * crate::parallel::threads();
    let size = ((p.rows - p.begin) as usize).div_ceil(pieces).next_multiple_of(1024);
    each(call, size, b.shared(&p), |first, rows| {
        let kept = KEPT.take().and_then(|kept| kept.downcast::<Tiles<T>>().ok());
        let mut tiles =
            kept.filter(|tiles| tiles.matrix == matrix).unwrap_or_else(|| Box::new(Tiles::new(matrix)));
        dispatch(Patterned { ids, tables, exit_apart, first, base, x, rows, tiles: &mut tiles });
        KEPT.set(Some(tiles));
    });
}
