//! Chains with different rates that share a pattern of transitions.

use std::sync::Arc;

use kolmo::sparse::CsrMatrix;
use kolmo::transient::Transitions;

/// Number of rows that a thread reads at once.
const ROWS: usize = 1 << 12;

/// Transitions without rates, shared by several chains.
#[derive(Debug)]
pub(crate) struct TransitionPattern {
    /// Index of each state's first outgoing transition, and targets by source.
    offsets: Arc<Vec<u64>>,
    targets: Arc<Vec<u32>>,
    /// Sources by target; values are the indices of the transitions in `targets`.
    incoming: CsrMatrix<u32, u32>,
}

impl TransitionPattern {
    /// Sorts transitions by target. `None` for 2³² transitions or more.
    ///
    /// `offsets` has the index of each state's first transition, then the number of transitions.
    pub(crate) fn new(offsets: Arc<Vec<u64>>, targets: Arc<Vec<u32>>) -> Option<Self> {
        u32::try_from(targets.len()).ok()?;
        let (starts, to, n) = (&offsets[..], &targets[..], offsets.len() - 1);
        let into = |piece: usize| {
            (piece * ROWS..n.min((piece + 1) * ROWS)).flat_map(|from| {
                let places = starts[from]..starts[from + 1];
                places.map(move |place| (to[place as usize], from as u32, place as u32))
            })
        };
        let incoming = CsrMatrix::grouped(n, n, (n.div_ceil(ROWS), into));
        Some(Self { offsets, targets, incoming })
    }

    /// Returns the index range of a state's outgoing transitions.
    pub(crate) fn out_of(&self, state: usize) -> std::ops::Range<usize> {
        self.offsets[state] as usize..self.offsets[state + 1] as usize
    }
}

/// Transitions of one chain: a shared pattern and its own rates.
#[derive(Debug)]
pub(crate) struct RatedPattern {
    pub(crate) pattern: Arc<TransitionPattern>,
    /// Rates by source, then by target.
    pub(crate) rates: Vec<f64>,
}

impl Transitions for RatedPattern {
    fn states(&self) -> usize {
        self.pattern.incoming.rows()
    }

    fn incoming(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        let (sources, places) = self.pattern.incoming.row(state);
        row.extend(sources.iter().zip(places).map(|(&source, &place)| (source, self.rates[place as usize])));
    }

    fn outgoing(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        let range = self.pattern.out_of(state);
        let targets = self.pattern.targets[range.clone()].iter().copied();
        row.extend(targets.zip(self.rates[range].iter().copied()));
    }
}
