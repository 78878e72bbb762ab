//! Consecutive rows on a lane, the chunks of their matrix, and the launches of their step.

use std::ops::Range;

use super::kernels::{STEP, STEP_PACKED, STEP_PACKED_RECURRENCE, STEP_PACKED_SOME};
use super::kernels::{STEP_RECURRENCE, STEP_SOME, step as step_hyb, step_packed};
use super::pattern_kernel::{STEP_PATTERN, STEP_PATTERN_RECURRENCE, STEP_PATTERN_SOME, step_pattern};
use super::stages::Stage;
use crate::Result;
use crate::kernel::Number;
use crate::lane::{Arg, Buffer, Lane, Launch};
use crate::sparse::BLOCK;
use crate::transient::partition::subdomain::RowKind;

/// Consecutive rows on a lane, with their share of every vector.
#[derive(Debug)]
pub struct LanePart<T> {
    /// Index of the lane that stores the part, among this rank's lanes.
    pub lane: usize,
    /// Own rows, by global index.
    pub rows: Range<usize>,
    /// Computed rows: own ones, and neighbours' if several steps pass between two exchanges.
    pub computed: Range<usize>,
    /// Index of the first own row in `x`.
    pub own: usize,
    /// Two iterates, including halos.
    pub x: [Buffer<T>; 2],
    /// One bit for each own row, 0 for absorbing states.
    pub non_absorbing: Buffer<u32>,
    /// Exit rates of the computed rows, unless the patterns contain them.
    pub exit: Buffer<T>,
    /// Chunks of the matrix.
    pub chunks: Vec<Chunk<T>>,
}

impl<T: Number> LanePart<T> {
    /// Returns the index of the first own row among the computed rows.
    pub fn ghosts(&self) -> usize {
        self.rows.start - self.computed.start
    }

    /// Returns the index of the first computed row in `x`.
    pub fn base(&self) -> usize {
        self.own - self.ghosts()
    }

    /// Prepares the launches of a stage of the step from the iterate x\[source\].
    pub(crate) fn launches(
        &self,
        lane: &Lane,
        stage: &Stage,
        source: usize,
        sum: &StepSum<'_>,
    ) -> Result<Vec<Launch>> {
        let mut launches = Vec::new();
        for chunk in self.chunks.iter().filter(|chunk| Some(chunk.kind) == stage.kind()) {
            let rows = match stage {
                Stage::Own => chunk.within(self.ghosts()..self.ghosts() + self.rows.len()),
                Stage::Rows(rows) => chunk.within(rows.clone()),
                _ => 0..chunk.rows,
            };
            if !rows.is_empty() {
                launches.push(chunk.step(lane, self, source, sum, rows)?);
            }
        }
        Ok(launches)
    }
}

/// Consecutive rows of a part's matrix, stored together.
#[derive(Debug, Clone)]
pub struct Chunk<T> {
    /// Boundary or interior rows.
    pub kind: RowKind,
    /// First row, counted from the part's first computed row.
    pub first: usize,
    /// Number of rows.
    pub rows: usize,
    pub(crate) stored: StoredMatrix<T>,
}

/// The sum that a step's kernel updates: weights w_k times iterates x_k over `window`.
pub(crate) struct StepSum<'a> {
    /// 1/α (α: uniformization rate), followed by Poisson weights, the first one for step `weights`.
    pub(crate) scalars: Arg<'a>,
    pub(crate) acc: Arg<'a>,
    pub(crate) window: Range<u64>,
    pub(crate) weights: u64,
    /// True for a step of Chebyshev's recurrence.
    ///
    /// It computes all rows, and the output array holds the vector before.
    pub(crate) recurrence: bool,
}

/// Arrays of a chunk, per format of its matrix.
#[derive(Debug, Clone)]
pub(crate) enum StoredMatrix<T> {
    Hyb { slices: Buffer<u32>, columns: Buffer<u32>, values: Buffer<T> },
    Packed { slices: Buffer<u32>, entries: Buffer<u32>, values: Buffer<T>, column_bits: u32 },
    Pattern { ids: Buffer<u32>, patterns: Buffer<u32>, values: Buffer<T>, params: step_pattern::Params },
}

impl<T: Number> StoredMatrix<T> {
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Hyb { slices, columns, values } => slices.bytes() + columns.bytes() + values.bytes(),
            Self::Packed { slices, entries, values, .. } => slices.bytes() + entries.bytes() + values.bytes(),
            Self::Pattern { ids, patterns, values, .. } => ids.bytes() + patterns.bytes() + values.bytes(),
        }
    }

    /// Returns the number of threads with which the step's kernel is launched.
    ///
    /// If there are enough groups for every device, a group with patterns processes several blocks
    /// of rows, which share cached data.
    fn threads(&self, rows: usize) -> usize {
        const GROUPS: usize = 4096;
        const MOST_BLOCKS: usize = 8;
        match self {
            Self::Pattern { .. } => rows.div_ceil((rows / BLOCK / GROUPS).clamp(1, MOST_BLOCKS)),
            _ => rows,
        }
    }
}

impl<T: Number> Chunk<T> {
    /// Returns those of some rows that are in the chunk, counted from its first row.
    fn within(&self, rows: Range<usize>) -> Range<usize> {
        let within = |row: usize| row.clamp(self.first, self.first + self.rows) - self.first;
        within(rows.start)..within(rows.end)
    }

    /// Prepares the step of some rows from the iterate x\[source\].
    pub(crate) fn step(
        &self,
        lane: &Lane,
        part: &LanePart<T>,
        source: usize,
        sum: &StepSum<'_>,
        rows: Range<usize>,
    ) -> Result<Launch> {
        let all = rows.start == 0;
        macro_rules! bind {
            ([$whole:ident, $some:ident, $recurrence:ident], $kernel:ident($($array:ident),*)($($own:tt)*)) => {{
                let params = $kernel::Params {
                    step: 0,
                    window_first: sum.window.start as u32,
                    window_end: sum.window.end as u32,
                    weights: sum.weights as u32,
                    rows: rows.end as u32,
                    first_row: self.first as u32,
                    own: part.base() as u32,
                    begin: rows.start as u32,
                    $($own)*
                };
                let args = $kernel::Args {
                    $($array: $array.arg(),)*
                    exit: part.exit.arg(),
                    scalars: sum.scalars,
                    x: part.x[source].arg(),
                    y: part.x[1 - source].arg(),
                    acc: sum.acc,
                };
                let kernel = match (all, sum.recurrence) {
                    (true, false) => &$whole,
                    (false, false) => &$some,
                    (all, true) => {
                        assert!(all, "the recurrence has the vector before of all rows");
                        &$recurrence
                    }
                };
                lane.bind(kernel, T::PRECISION, self.stored.threads(rows.len()), params, args)
            }};
        }
        match &self.stored {
            StoredMatrix::Hyb { slices, columns, values } => {
                bind!([STEP, STEP_SOME, STEP_RECURRENCE], step_hyb(slices, columns, values)(derivatives: 0))
            }
            StoredMatrix::Packed { slices, entries, values, column_bits } => {
                let own = *column_bits;
                bind!([STEP_PACKED, STEP_PACKED_SOME, STEP_PACKED_RECURRENCE], step_packed(slices, entries, values)(column_bits: own))
            }
            StoredMatrix::Pattern { ids, patterns, values, params } => {
                bind!(
                    [STEP_PATTERN, STEP_PATTERN_SOME, STEP_PATTERN_RECURRENCE],
                    step_pattern(ids, patterns, values)(..*params)
                )
            }
        }
    }

    /// Returns slices, columns and values if the rows are stored in HYB, and the length of slices.
    pub(crate) fn hyb(&self) -> Option<([Arg<'_>; 3], usize)> {
        match &self.stored {
            StoredMatrix::Hyb { slices, columns, values } => {
                Some(([slices.arg(), columns.arg(), values.arg()], slices.len()))
            }
            _ => None,
        }
    }
}
