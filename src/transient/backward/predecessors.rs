//! States from which a set can be reached.

use crate::sparse::CsrMatrix;
use crate::transient::chain::transitions::Transitions;

/// Returns the states from which `targets` can be reached through states of `through` alone.
///
/// The targets are included. Takes linear time and memory.
///
/// # Panics
/// If `targets` or `through` do not have one element for each state.
pub fn may_reach(transitions: &dyn Transitions, targets: &[bool], through: &[bool]) -> Vec<bool> {
    assert_eq!((targets.len(), through.len()), (transitions.states(), targets.len()), "states");
    Predecessors::new(transitions).may_reach(targets, through)
}

/// Number of states whose transitions are read together.
const ROWS: usize = 1 << 12;

/// Predecessors of each state, in a third of the memory of the transitions.
pub(crate) struct Predecessors(CsrMatrix<()>);

impl Predecessors {
    pub(crate) fn new(transitions: &dyn Transitions) -> Self {
        let n = transitions.states();
        let back = |from: usize| {
            let mut row = Vec::new();
            transitions.outgoing(from, &mut row);
            row.into_iter().map(move |(to, _)| (to, from as u32, ()))
        };
        let part = |k: usize| (k * ROWS..n.min((k + 1) * ROWS)).flat_map(back);
        Self(CsrMatrix::grouped(n, n, (n.div_ceil(ROWS), part)))
    }

    pub(crate) fn of(&self, state: usize) -> &[u32] {
        self.0.row(state).0
    }

    /// Returns the states from which `targets` can be reached, as [`may_reach`].
    pub(crate) fn may_reach(&self, targets: &[bool], through: &[bool]) -> Vec<bool> {
        let mut found = targets.to_vec();
        let mut open: Vec<u32> = (0u32..).zip(targets).filter(|(_, t)| **t).map(|(s, _)| s).collect();
        while let Some(state) = open.pop() {
            let before = self.of(state as usize).iter().copied().filter(|&s| through[s as usize]);
            open.extend(before.filter(|&s| !std::mem::replace(&mut found[s as usize], true)));
        }
        found
    }
}
