//! Chunks in tiles: up to reduced blocks, and from their interface values down to the unknowns.

use super::super::arithmetic::Number;
use super::super::equations::{ChunkEquations, Equations, Shape};
use super::super::kernels::{
    REDUCE, SOLVE, TILE, UNIT, small_exponent, tridiagonal_reduce, tridiagonal_solve,
};
use super::super::memory::Arrays;
use super::super::merge_tree::{MergeTree, ReducedBlocks, RootSolve};
use super::super::place::Place;
use super::super::subtrees::{Run, Subtrees};
use super::{ChunkSolve, InterfaceSolve, RankReduction};
use crate::Result;
use crate::kernel::Kernel;
use crate::lane::{Lane, Launch};

/// Six numbers of each reduced block, and the two unknowns next to it.
pub(super) const SHAPE: Shape = Shape { columns: 1, width: 6, flags: 1, values: 2, behind: 0 };

/// A chunk in tiles.
#[derive(Debug)]
pub(super) struct TileReduction<T> {
    reduce: Launch,
    solve: Launch,
    // What the launches work on.
    first: ReducedBlocks<T>,
    tree: MergeTree<T>,
}

impl<T: Number> TileReduction<T> {
    /// Cuts `rows` rows, at least 1, into tiles, and joins the reduced blocks of 2^levels units to one.
    pub(super) fn new(
        lane: &Lane,
        arrays: &Arrays<T>,
        place: Place,
        rows: usize,
        levels: u32,
    ) -> Result<Self> {
        assert!(rows > 0 && rows < 1 << 31, "a chunk of {rows} rows");
        let Arrays { dl, d, du, b, x } = arrays;
        let first = ReducedBlocks::new(lane, rows.div_ceil(UNIT))?;
        let (n, at) = place.params(rows);
        let (cyclic, items) = (u32::from(place.cyclic), rows.div_ceil(TILE) * Kernel::GROUP as usize);
        let (rows, small) = (rows as u32, small_exponent(T::PRECISION));
        let (dl, d, du, rhs) = (dl.arg(), d.arg(), du.arg(), b.arg());
        let params = tridiagonal_reduce::Params { step: 0, rows, n, first: at, cyclic, small };
        let (units, flags) = (first.equations.arg(), first.flags.arg());
        let args = tridiagonal_reduce::Args { dl, d, du, rhs, units, flags };
        let reduce = lane.bind(&REDUCE, T::PRECISION, items, params, args)?;
        let params = tridiagonal_solve::Params { step: 0, rows, n, first: at, cyclic };
        let args = tridiagonal_solve::Args { dl, d, du, rhs, values: first.values.arg(), x: x.arg() };
        let solve = lane.bind(&SOLVE, T::PRECISION, items, params, args)?;
        let mut tree = MergeTree::new();
        tree.reduce_levels(lane, &first, levels)?;
        Ok(Self { reduce, solve, first, tree })
    }

    /// The reduced blocks that the chunk leaves.
    fn blocks(&self) -> &ReducedBlocks<T> {
        self.tree.last(&self.first)
    }
}

impl<T: Number> ChunkSolve<T> for TileReduction<T> {
    fn items(&self) -> usize {
        self.blocks().count
    }

    fn bytes(&self) -> u64 {
        self.first.bytes() + self.tree.bytes()
    }

    fn up(&self) -> Vec<&Launch> {
        std::iter::once(&self.reduce).chain(&self.tree.up).collect()
    }

    fn down(&self) -> Vec<&Launch> {
        self.tree.down().chain([&self.solve]).collect()
    }

    fn fetch(&self, lane: &Lane, to: ChunkEquations<'_, T>) -> Result<()> {
        lane.fetch(&self.blocks().flags, 0, to.flags)?;
        to.columns.into_iter().try_for_each(|to| lane.fetch(&self.blocks().equations, 0, to))
    }

    fn send(&self, lane: &Lane, values: &[T]) -> Result<()> {
        lane.send(values, &self.blocks().values, 0)
    }

    /// Nothing: reduced blocks know, and stage 2 knows all of them.
    fn flags(&self, _: &Lane) -> Result<u32> {
        Ok(0)
    }

    fn interface(&self, lane: &Lane, cyclic: bool) -> Result<Option<Box<dyn InterfaceSolve<T>>>> {
        let root = RootSolve::new(lane, self.blocks(), cyclic)?;
        Ok(Some(Box::new(TileInterface { subtrees: None, root })))
    }
}

impl<T: Number> RankReduction<T> for Subtrees<T> {
    fn items(&self) -> usize {
        self.count()
    }

    fn bytes(&self) -> u64 {
        self.bytes()
    }

    fn flags(&self, _: &Lane) -> Result<u32> {
        Ok(0)
    }

    fn reduce(&self, lane: &Lane, equations: &mut Equations<T>) -> Result<()> {
        self.reduce_levels(lane, &mut equations.numbers, &mut equations.flags)?;
        lane.finish()
    }

    fn expand(&self, lane: &Lane, equations: &mut Equations<T>) -> Result<()> {
        self.back_substitute(lane, &mut equations.values)?;
        lane.finish()
    }
}

/// Stage 2 in tiles: the root solve of the reduced blocks of the only chunk, or of those that subtrees become.
#[derive(Debug)]
pub(super) struct TileInterface<T> {
    subtrees: Option<Subtrees<T>>,
    root: RootSolve<T>,
}

impl<T: Number> TileInterface<T> {
    /// Stage 2 for these subtrees of `count` reduced blocks.
    pub(super) fn of_all(lane: &Lane, count: usize, subtrees: Vec<Run>, cyclic: bool) -> Result<Self> {
        let subtrees = Subtrees::of_all(lane, count, subtrees)?;
        let root = RootSolve::new(lane, subtrees.top(), cyclic)?;
        Ok(Self { subtrees: Some(subtrees), root })
    }
}

impl<T: Number> InterfaceSolve<T> for TileInterface<T> {
    fn bytes(&self) -> u64 {
        self.subtrees.as_ref().map_or(0, Subtrees::bytes) + self.root.bytes()
    }

    fn launches(&self) -> Option<Vec<&Launch>> {
        self.subtrees.is_none().then(|| self.root.launches().collect())
    }

    fn flags(&self, lane: &Lane) -> Result<u32> {
        self.root.flags(lane)
    }

    fn solve(&self, lane: &Lane, equations: &mut Equations<T>, _: bool) -> Result<u32> {
        if let Some(subtrees) = &self.subtrees {
            subtrees.gather(lane, &equations.numbers, &equations.flags)?;
        }
        lane.enqueue(&self.root.launches().collect::<Vec<_>>())?;
        if let Some(subtrees) = &self.subtrees {
            subtrees.scatter(lane, &mut equations.values)?;
        }
        Ok(0)
    }
}
