//! Windows on the rows of a lane, and the check of sampled rows that determines their width.

use std::ops::Range;

use super::kernels::{
    BLOCK_WINDOW, GROUP, OWN, PENTADIAGONAL_WINDOW, WINDOW_BLOCKS, block_window, pentadiagonal_window,
};
use super::{Banded, Form};
use crate::Result;
use crate::lane::{Buffer, Lane, Launch};
use crate::tridiagonal::kernels::number::Number;
use crate::tridiagonal::one_pass::windows::{BEGUN, levels, limit, overlap_for, tiny};
use crate::util::inline_array::array;

/// A 2 × 2 matrix, row by row.
type Block2x2 = [f64; 4];

fn product(a: Block2x2, b: Block2x2) -> Block2x2 {
    [
        a[0] * b[0] + a[1] * b[2],
        a[0] * b[1] + a[1] * b[3],
        a[2] * b[0] + a[3] * b[2],
        a[2] * b[1] + a[3] * b[3],
    ]
}

/// Returns the coupling (d − l·g)⁻¹·u of a block row, with the blocks l, d, u, to the next one. g
/// is the coupling of the previous block row to this one.
fn coupling(d: Block2x2, l: Block2x2, g: Block2x2, u: Block2x2) -> Block2x2 {
    let lg = product(l, g);
    let [a, b, c, d] = array(|k| d[k] - lg[k]);
    let det = a * d - b * c;
    product([d / det, -b / det, -c / det, a / det], u)
}

/// Number of rows after which the coupling of unknowns is lost in rounding, in both directions;
/// `None` if these block rows are too few for that.
fn reach<T: Number>(view: &Banded<'_>, blocks: Range<usize>) -> Option<usize> {
    let negligible = 0.25 * T::PRECISION.unit_roundoff();
    let block = |k: usize| {
        let [a, b] = [2 * k, 2 * k + 1].map(|row| if row < view.rows() { view.row(row) } else { LAST });
        [0, 2, 4].map(|at| [a[at], a[at + 1], b[at], b[at + 1]])
    };
    let one_way = |blocks: &mut dyn Iterator<Item = [Block2x2; 3]>| {
        let (mut g, mut left, mut count) = ([0.0; 4], [1.0, 0.0, 0.0, 1.0], 0);
        for (k, [before, own, behind]) in blocks.enumerate() {
            g = coupling(own, before, g, behind);
            if 2 * k >= BEGUN {
                (left, count) = (product(left, g), count + 1);
            }
            if left[0].abs() + left[1].abs() <= negligible && left[2].abs() + left[3].abs() <= negligible {
                return Some(2 * count);
            }
        }
        None
    };
    let down = one_way(&mut blocks.clone().map(block))?;
    let up = one_way(&mut blocks.rev().map(block).map(|[l, d, u]| [u, d, l]))?;
    Some(down.max(up))
}

/// Row of the unknown that is added if the number of rows is odd.
const LAST: [f64; 6] = [0.0, 0.0, 0.0, 1.0, 0.0, 0.0];

/// Division of the rows of a matrix into tiles and windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Width {
    /// Block rows of a tile.
    pub(super) tile: usize,
    /// Number of levels of cyclic reduction that a device computes.
    levels: u32,
    /// True if tiles are whole systems, so that nothing couples them.
    whole: bool,
}

/// Maximum overlap: rows on either side of a tile.
const WIDEST: usize = 448;

impl Width {
    /// Returns the width that a check of sampled rows finds sufficient; `None` if windows do not
    /// suffice.
    pub(super) fn of<T: Number>(lanes: &[Lane], view: &Banded<'_>) -> Result<Option<Self>> {
        let (rows, whole) = (view.rows(), Self::of_systems(view));
        if let Some(whole) = whole
            && whole.tile == rows.div_ceil(2)
        {
            return Ok(Some(whole));
        }
        let reach_of = |rows: Range<usize>| Ok(reach::<T>(view, rows.start / 2..rows.end / 2));
        let overlap = overlap_for(rows, reach_of)?.map(|overlap| overlap.min(WIDEST));
        let beside = overlap.map(Self::around_tiles);
        // A CPU works on several tiles at a time, which collide in its caches if they are a power
        // of two apart.
        let side_by_side = lanes.iter().any(|lane| lane.device().backend == "cpu");
        Ok(match (whole, beside) {
            (Some(whole), Some(beside)) if whole.tile >= beside.tile && !side_by_side => {
                Some(Self { levels: whole.levels.min(beside.levels), ..whole })
            }
            (whole, beside) => beside.or(whole),
        })
    }

    /// Width with `overlap` rows on either side of a tile.
    fn around_tiles(overlap: usize) -> Self {
        Self { tile: WINDOW_BLOCKS - overlap, levels: levels(overlap, 2 * OWN), whole: false }
    }

    /// Width of tiles that are whole systems, without overlap; `None` if a system is larger than a
    /// window.
    fn of_systems(view: &Banded<'_>) -> Option<Self> {
        let (n, most) = (view.n, 2 * WINDOW_BLOCKS / view.n);
        // Tiles begin with a block row.
        let even = if n.is_multiple_of(2) { most } else { most / 2 * 2 };
        let systems = if view.rows() <= most * n { view.rows() / n } else { even };
        // A system may begin amid a thread's rows.
        let threads = (n.div_ceil(2 * OWN) + 1).next_power_of_two().min(GROUP);
        (systems > 0).then(|| Self { tile: (systems * n).div_ceil(2), levels: threads.ilog2(), whole: true })
    }

    /// Returns the width of whole systems if these fit, otherwise that of the largest overlap.
    pub(super) fn widest(view: &Banded<'_>) -> Self {
        Self::of_systems(view).unwrap_or_else(|| Self::around_tiles(WIDEST))
    }

    /// Overlap: maximum number of block rows of a window on one side of its tile.
    pub(super) fn beside(self) -> usize {
        (WINDOW_BLOCKS - self.tile).div_ceil(2)
    }
}

#[derive(Debug)]
pub(super) struct WindowMemory<T> {
    pub(super) matrix: Vec<Buffer<T>>,
    pub(super) b: Buffer<T>,
    pub(super) x: Buffer<T>,
}

impl<T: Number> WindowMemory<T> {
    pub(super) fn new(lane: &Lane, form: Form, blocks: usize) -> Result<Self> {
        let alloc = |name: &str, width: usize| lane.alloc(name, 2 * width * blocks);
        let matrix = form.names().iter().map(|name| alloc(name, form.width())).collect::<Result<_>>()?;
        Ok(Self { matrix, b: alloc("the right-hand side", 1)?, x: alloc("the unknowns", 1)? })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.matrix.iter().chain([&self.b, &self.x]).map(Buffer::bytes).sum()
    }
}

#[derive(Debug)]
pub(super) struct BandedWindows {
    launches: [Launch; 2],
    tiles: usize,
    flags: Buffer<u32>,
}

impl BandedWindows {
    /// Creates the launches for the block rows `solved`, the first of which begins a tile, among
    /// `blocks` in memory.
    pub(super) fn new<T: Number>(
        lane: &Lane,
        memory: &WindowMemory<T>,
        blocks: usize,
        solved: Range<usize>,
        width: Width,
    ) -> Result<Self> {
        let tiles = solved.len().div_ceil(width.tile);
        let groups = tiles.div_ceil(GROUP);
        let flags = lane.alloc("flags of tiles", tiles + groups)?;
        let params = pentadiagonal_window::Params {
            step: 0,
            blocks: blocks as u32,
            at: solved.start as u32,
            tiles: tiles as u32,
            tile: width.tile as u32,
            levels: width.levels,
            limit: limit(T::PRECISION),
            tiny: tiny(T::PRECISION),
            seam: 0,
        };
        let WindowMemory { matrix, b, x } = memory;
        let bind = |groups: usize, seam: u32| {
            let (params, items) = (pentadiagonal_window::Params { seam, ..params }, groups * GROUP);
            let (rhs, x, flags) = (b.arg(), x.arg(), flags.arg());
            match &matrix[..] {
                [dl2, dl, d, du, du2] => {
                    let (dl2, dl, d, du, du2) = (dl2.arg(), dl.arg(), d.arg(), du.arg(), du2.arg());
                    let args = pentadiagonal_window::Args { dl2, dl, d, du, du2, rhs, x, flags };
                    lane.bind(&PENTADIAGONAL_WINDOW, T::PRECISION, items, params, args)
                }
                [lower, diagonal, upper] => {
                    let (lower, diagonal, upper) = (lower.arg(), diagonal.arg(), upper.arg());
                    let args = block_window::Args { lower, diagonal, upper, rhs, x, flags };
                    lane.bind(&BLOCK_WINDOW, T::PRECISION, items, params, args)
                }
                _ => unreachable!("five diagonals or three blocks"),
            }
        };
        Ok(Self { launches: [bind(tiles, 0)?, bind(groups, if width.whole { 2 } else { 1 })?], tiles, flags })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.flags.bytes()
    }

    pub(super) fn launches(&self) -> Vec<&Launch> {
        self.launches.iter().collect()
    }

    /// True if all tiles are certified; called after the launches.
    pub(super) fn are_certified(&self, lane: &Lane) -> Result<bool> {
        let mut bad = vec![0; self.tiles.div_ceil(GROUP)];
        lane.download(&self.flags, self.tiles, &mut bad)?;
        Ok(bad.iter().all(|&tiles| tiles == 0))
    }
}
