//! The stages of a step, and their launches on a lane.

use std::ops::Range;

use crate::Result;
use crate::lane::Launch;
use crate::transient::partition::subdomain::RowKind;

/// Stage of a step: group of rows that is launched together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Boundary rows, for which other parts wait.
    Boundary,
    /// Boundary rows for other parts, if several steps pass between two exchanges.
    ///
    /// All own rows are then computed again as interior rows.
    SendRows,
    /// All other rows, or all rows if several steps pass between two exchanges.
    Interior,
    /// Own rows alone, in the last of several steps between two exchanges.
    Own,
    /// Some of the interior rows, counted from the part's first computed row.
    Rows(Range<usize>),
    /// Kernels that read all rows of an iterate, such as reward sums.
    Rest,
}

impl Stage {
    /// Returns the kind of rows that the stage computes.
    pub(crate) fn kind(&self) -> Option<RowKind> {
        match self {
            Self::Boundary | Self::SendRows => Some(RowKind::Boundary),
            Self::Interior | Self::Own | Self::Rows(_) => Some(RowKind::Interior),
            Self::Rest => None,
        }
    }
}

/// Prepares the launches of a stage, given lane, `source` and stage, without halo copies.
///
/// The step is from the iterate x\[source\], `source` 0 or 1, to the other one.
pub(crate) type Launches<'a> = &'a dyn Fn(usize, usize, Stage) -> Result<Vec<Launch>>;

/// Launches of a lane's step from the iterate x\[source\].
#[derive(Debug)]
pub(crate) struct LaneStep {
    pub(crate) boundary: Vec<Launch>,
    /// Copies of boundary values into contiguous arrays, or directly to their readers.
    pub(crate) sends: Vec<Launch>,
    pub(crate) interior: Vec<Launch>,
    /// Interior rows in the last of several steps before an exchange.
    pub(crate) own: Option<Vec<Launch>>,
    /// Launches that need all rows, and halo copies between parts of the lane.
    pub(crate) rest: Vec<Launch>,
}
