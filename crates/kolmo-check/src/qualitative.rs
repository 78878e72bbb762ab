//! States in which a path formula has probability 0 or 1, by graph analysis alone.
//!
//! Rates do not matter: in continuous time, a state that can be reached is reached with positive
//! probability at any time above 0. In discrete time that takes enough steps.

/// States from which a path formula has probability 0 (`never`) or 1 (`surely`).
#[derive(Debug)]
pub(crate) struct Decided {
    pub(crate) never: Vec<bool>,
    pub(crate) surely: Vec<bool>,
    /// True if all remaining states are proved to have a probability strictly between 0 and 1.
    ///
    /// False in a truncated model, and for numbers of steps in discrete time.
    pub(crate) others: bool,
}

/// Search for all states that can reach the first set by transitions out of the second set.
type Search<'a> = &'a dyn Fn(&[bool], &[bool]) -> Vec<bool>;

impl Decided {
    /// Finds the states where `left U[from,to] right` has probability 0 or 1.
    ///
    /// `edge` has the boundary states. The last argument is true in discrete time.
    pub(crate) fn until(
        may_reach: Search<'_>,
        (left, right): (&[bool], &[bool]),
        (from, to): (f64, f64),
        (edge, discrete): (&[u32], bool),
    ) -> Self {
        let all = |of: &dyn Fn(usize) -> bool| -> Vec<bool> { (0..left.len()).map(of).collect() };
        let passing = all(&|s| left[s] && !right[s]);
        let mut goal = right.to_vec();
        edge.iter().for_each(|&state| goal[state as usize] = true);
        let others = edge.is_empty() && (!discrete || (from == 0.0 && to.is_infinite()));
        let not = |set: &[bool]| -> Vec<bool> { set.iter().map(|member| !member).collect() };
        if to == 0.0 {
            return Self { never: not(right), surely: right.to_vec(), others };
        }
        if from == 0.0 {
            let never = not(&may_reach(&goal, &passing));
            let surely = match to.is_infinite() {
                true => not(&may_reach(&never, &passing)),
                false => right.to_vec(),
            };
            return Self { never, surely, others };
        }
        if !edge.is_empty() {
            let none = vec![false; left.len()];
            return Self { never: none.clone(), surely: none, others };
        }
        // Until `from` the chain has to stay in `left`.
        let there = if from == to && !discrete { all(&|s| left[s] && right[s]) } else { goal };
        let may = may_reach(&there, left);
        let never = all(&|s| !(left[s] && may[s]));
        // At `from` it may be in any reachable state, and from there the formula has to hold
        // surely.
        let then = match to.is_infinite() {
            true => Self::until(may_reach, (left, right), (0.0, to), (edge, discrete)).surely,
            false => right.to_vec(),
        };
        let fails = may_reach(&all(&|s| !(left[s] && then[s])), left);
        Self { never, surely: not(&fails), others }
    }
}
