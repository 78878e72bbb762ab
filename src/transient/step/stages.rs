//! The stages of a step, and their launches on a lane.

use crate::Result;
use crate::lane::Launch;
use crate::transient::partition::subdomain::Kind;

/// A part of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Rows that others wait for.
    Boundary,
    /// The same where several steps pass between two exchanges: for the others alone, as all own rows are computed
    /// again.
    SendRows,
    /// All other rows; all rows, where several steps pass between two exchanges.
    Interior,
    /// The own rows alone: what the last of several steps is taken for.
    Own,
    /// The work that needs all rows.
    Rest,
}

impl Stage {
    /// The rows that are computed in it.
    pub(crate) fn kind(self) -> Option<Kind> {
        match self {
            Self::Boundary | Self::SendRows => Some(Kind::Boundary),
            Self::Interior | Self::Own => Some(Kind::Interior),
            Self::Rest => None,
        }
    }
}

/// The launches of a stage of a lane's step from x[source] to the other iterate, but for halos.
pub(crate) type Launches<'a> = &'a dyn Fn(usize, usize, Stage) -> Result<Vec<Launch>>;

/// A lane's step from x[source].
#[derive(Debug)]
pub(crate) struct LaneStep {
    pub(crate) boundary: Vec<Launch>,
    /// The boundary's values, side by side or to where they are read.
    pub(crate) sends: Vec<Launch>,
    pub(crate) interior: Vec<Launch>,
    /// The interior of the last of several steps before an exchange.
    pub(crate) own: Option<Vec<Launch>>,
    /// Launches that need all rows, and halos between parts of the lane.
    pub(crate) rest: Vec<Launch>,
}
