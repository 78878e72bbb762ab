//! Closed communicating classes that are reachable from the initial states.
//!
//! A single process finds them by one depth-first search. With several ranks, each knows the
//! transitions of its own states; sets of states are then spread along transitions and against
//! them. The two algorithms return the same representatives.

use std::ops::Range;

use super::transitions::Transitions;
use crate::ranks::Ranks;

/// Transition graph of which each rank knows some states.
pub(crate) struct LocalGraph<'a> {
    pub(crate) transitions: &'a dyn Transitions,
    pub(crate) ranks: Ranks,
    /// States of this rank, as a range; `all_rows` has those of every rank.
    pub(crate) rows: Range<usize>,
    all_rows: Vec<Range<usize>>,
}

/// Reachable closed classes, and this rank's reachable states.
pub(crate) struct Classes {
    /// State of each class with the largest probability in a given vector; the first on ties.
    pub(crate) representatives: Vec<usize>,
    pub(crate) reached: Vec<bool>,
}

impl Classes {
    /// Finds the closed classes reachable from `initial`; this rank must know all transitions.
    pub(crate) fn new(transitions: &dyn Transitions, initial: &[f64], probable: &[f64]) -> Self {
        Self::within(transitions, initial, probable, &|_| true)
    }

    /// Finds the closed classes of the chain without transitions into states outside of `within`.
    fn within(
        transitions: &dyn Transitions,
        initial: &[f64],
        probable: &[f64],
        within: &dyn Fn(usize) -> bool,
    ) -> Self {
        let known = LocalGraph::new(transitions, Ranks::ALONE, 0..transitions.states());
        let reached = known.reached(initial, within);
        Self { representatives: tarjan(transitions, &reached, probable, within), reached }
    }

    /// Returns the index of each state's class in `representatives`, `None` outside of closed
    /// classes.
    pub(crate) fn of_states(&self, transitions: &dyn Transitions) -> Vec<Option<usize>> {
        self.of_states_within(transitions, &|_| true)
    }

    fn of_states_within(
        &self,
        transitions: &dyn Transitions,
        within: &dyn Fn(usize) -> bool,
    ) -> Vec<Option<usize>> {
        let mut class = vec![None; transitions.states()];
        let mut row = Vec::new();
        for (place, &representative) in self.representatives.iter().enumerate() {
            let mut open = vec![representative];
            while let Some(state) = open.pop() {
                if class[state].replace(place).is_none() {
                    row.clear();
                    transitions.outgoing(state, &mut row);
                    open.extend(row.iter().map(|&(to, _)| to as usize).filter(|&to| within(to)));
                }
            }
        }
        class
    }
}

/// Finds the transient classes with exits to absorbing states only.
///
/// Returns the class of each state, `None` if it is in no such class, and the number of classes.
/// All states must be known to this rank.
pub(crate) fn last_classes(
    transitions: &dyn Transitions,
    initial: &[f64],
    absorbing: &dyn Fn(usize) -> bool,
) -> (Vec<Option<usize>>, usize) {
    let within = |state: usize| !absorbing(state);
    let mut classes = Classes::within(transitions, initial, initial, &within);
    classes.representatives.retain(|&state| within(state));
    (classes.of_states_within(transitions, &within), classes.representatives.len())
}

/// Direction in which transitions are followed.
#[derive(Clone, Copy, PartialEq)]
enum Direction {
    Along,
    Against,
}

/// True if `one` is preferred as representative: the more probable state, the first on ties.
fn ahead(one: (f64, usize), other: (f64, usize)) -> bool {
    one.0 > other.0 || (one.0 == other.0 && one.1 < other.1)
}

impl<'a> LocalGraph<'a> {
    pub(crate) fn new(transitions: &'a dyn Transitions, ranks: Ranks, rows: Range<usize>) -> Self {
        let bounds = ranks.all_gather(&[rows.start as u64, rows.end as u64]);
        let all_rows = bounds.iter().map(|b| b[0] as usize..b[1] as usize).collect();
        Self { transitions, ranks, rows, all_rows }
    }

    /// Returns the rank that owns a state.
    pub(crate) fn owner(&self, state: usize) -> usize {
        self.all_rows.partition_point(|rows| rows.end <= state)
    }

    /// Finds the closed classes that are reachable from the initial probabilities of this rank's
    /// states.
    ///
    /// The representative of a class is its most probable state by `probable`. Collective.
    pub(crate) fn closed_classes(&self, initial: &[f64], probable: &[f64]) -> Classes {
        if !self.ranks.is_distributed() {
            return Classes::new(self.transitions, initial, probable);
        }
        let reached = self.reached(initial, |_| true);
        // An absorbing state is a class of its own.
        let mut row = Vec::new();
        let stays = |&i: &usize| {
            row.clear();
            self.transitions.outgoing(self.rows.start + i, &mut row);
            reached[i] && row.is_empty()
        };
        let staying: Vec<usize> = (0..reached.len()).filter(stays).collect();
        let global: Vec<u64> = staying.iter().map(|&i| (self.rows.start + i) as u64).collect();
        let mut representatives: Vec<usize> =
            self.ranks.all_gather(&global).concat().into_iter().map(|state| state as usize).collect();
        // Marks states from which a known class is reachable, and unreached states. They are in no
        // other closed class.
        let mut done: Vec<bool> = reached.iter().map(|reached| !reached).collect();
        self.spread(staying, Direction::Against, &mut done, |i| reached[i]);
        while let Some(mut state) = self.most(probable, |i| !done[i]) {
            loop {
                let (mut ahead, mut back) = (vec![false; reached.len()], vec![false; reached.len()]);
                self.spread(self.here(state), Direction::Along, &mut ahead, |_| true);
                self.spread(self.here(state), Direction::Against, &mut back, |i| ahead[i]);
                match self.most(probable, |i| ahead[i] && !back[i]) {
                    // There is no path back from `beyond`, so the search continues there.
                    Some(beyond) => state = beyond,
                    None => {
                        let first = self.most(probable, |i| ahead[i]).unwrap_or(state);
                        representatives.push(first);
                        self.spread(self.here(first), Direction::Against, &mut done, |i| reached[i]);
                        break;
                    }
                }
            }
        }
        Classes { representatives, reached }
    }

    /// Returns true for each state of this rank that paths through `within` reach from `initial`.
    fn reached(&self, initial: &[f64], within: impl Fn(usize) -> bool) -> Vec<bool> {
        let mut reached = vec![false; self.rows.len()];
        let begin = (0..initial.len()).filter(|&i| initial[i] > 0.0);
        self.spread(begin.collect(), Direction::Along, &mut reached, within);
        reached
    }

    /// Returns the index of a state among this rank's, in a vector that is empty for remote states.
    fn here(&self, state: usize) -> Vec<usize> {
        if self.rows.contains(&state) { vec![state - self.rows.start] } else { Vec::new() }
    }

    /// Returns the most probable state of all ranks that satisfies `among`, the first on ties.
    fn most(&self, probable: &[f64], among: impl Fn(usize) -> bool) -> Option<usize> {
        let mut best: Option<(f64, usize)> = None;
        for i in (0..probable.len()).filter(|&i| among(i)) {
            let this = (probable[i], self.rows.start + i);
            if best.is_none_or(|best| ahead(this, best)) {
                best = Some(this);
            }
        }
        // State numbers are exact as doubles.
        let mine = best.map_or(Vec::new(), |(p, state)| vec![p, state as f64]);
        let all = self.ranks.all_gather(&mine).concat();
        let all = all.as_chunks::<2>().0.iter().map(|&[p, state]| (p, state as usize));
        all.reduce(|a, b| if ahead(b, a) { b } else { a }).map(|(_, state)| state)
    }

    /// Adds to `set` the states reachable from `from` on any rank, through states that satisfy
    /// `within`.
    ///
    /// Alternates local searches with exchanges of the states reached on remote ranks, until no
    /// rank reaches a new state. Collective.
    fn spread(
        &self,
        from: Vec<usize>,
        direction: Direction,
        set: &mut [bool],
        within: impl Fn(usize) -> bool,
    ) {
        let mut open: Vec<usize> = from;
        open.retain(|&i| !std::mem::replace(&mut set[i], true));
        let mut enter = |state: u32| {
            let i = state as usize - self.rows.start;
            (within(i) && !std::mem::replace(&mut set[i], true)).then_some(i)
        };
        let mut row = Vec::new();
        loop {
            let mut leaving: Vec<Vec<u32>> = vec![Vec::new(); self.ranks.size()];
            while let Some(i) = open.pop() {
                row.clear();
                match direction {
                    Direction::Along => self.transitions.outgoing(self.rows.start + i, &mut row),
                    Direction::Against => self.transitions.incoming(self.rows.start + i, &mut row),
                }
                for &(state, _) in &row {
                    match self.rows.contains(&(state as usize)) {
                        false => leaving[self.owner(state as usize)].push(state),
                        true => open.extend(enter(state)),
                    }
                }
            }
            for states in &mut leaving {
                states.sort_unstable();
                states.dedup();
            }
            open.extend(self.ranks.all_to_all(leaving).concat().into_iter().filter_map(&mut enter));
            if self.ranks.all_reduce_sum(open.len() as u64) == 0 {
                return;
            }
        }
    }
}

/// Finds the closed classes, the strongly connected components without exits, by one search.
///
/// Source: R. Tarjan, "Depth-first search and linear graph algorithms", SIAM J. Comput. 1, 1972.
fn tarjan(
    transitions: &dyn Transitions,
    reached: &[bool],
    probable: &[f64],
    within: &dyn Fn(usize) -> bool,
) -> Vec<usize> {
    const UNSEEN: u32 = u32::MAX;
    let n = transitions.states();
    let (mut number, mut low) = (vec![UNSEEN; n], vec![0u32; n]);
    let mut component = vec![false; n]; // assigned to a finished component
    let mut stack: Vec<u32> = Vec::new();
    let mut closed = Vec::new();
    let mut counter = 0;
    /// State on the current path of the search, its transitions, and the next one's index.
    type Visit = (u32, Vec<(u32, f64)>, usize);
    let mut path: Vec<Visit> = Vec::new();
    let mut leaves = vec![false; n];
    for root in 0..n {
        if number[root] != UNSEEN || !reached[root] {
            continue;
        }
        let mut enter = Some(root as u32);
        loop {
            if let Some(state) = enter.take() {
                number[state as usize] = counter;
                low[state as usize] = counter;
                counter += 1;
                stack.push(state);
                let mut row = Vec::new();
                transitions.outgoing(state as usize, &mut row);
                row.retain(|&(to, _)| within(to as usize));
                path.push((state, row, 0));
            }
            let Some((state, row, next)) = path.last_mut() else { break };
            let s = *state as usize;
            if let Some(&(to, _)) = row.get(*next) {
                *next += 1;
                let to_place = to as usize;
                if number[to_place] == UNSEEN {
                    enter = Some(to);
                } else if component[to_place] {
                    leaves[s] = true;
                } else {
                    low[s] = low[s].min(number[to_place]);
                }
                continue;
            }
            if low[s] == number[s] {
                let (mut left, mut best) = (false, s);
                while let Some(member) = stack.pop() {
                    let member = member as usize;
                    component[member] = true;
                    left |= leaves[member];
                    if ahead((probable[member], member), (probable[best], best)) {
                        best = member;
                    }
                    if member == s {
                        break;
                    }
                }
                if !left {
                    closed.push(best);
                }
                leaves[s] = left;
            }
            path.pop();
            if let Some((parent, _, _)) = path.last() {
                let p = *parent as usize;
                if component[s] {
                    leaves[p] = true;
                } else {
                    low[p] = low[p].min(low[s]);
                }
            }
        }
    }
    closed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transient::chain::csr::tests::chain;

    fn rates_of_one(pairs: &[(u32, u32)]) -> Vec<(u32, u32, f64)> {
        pairs.iter().map(|&(from, to)| (from, to, 1.0)).collect()
    }

    #[test]
    fn last_classes_exit_to_absorbing_states_alone() {
        // 0 leads to 1 <-> 2 and to 3 <-> 4, and these lead to 5; 6 is not reached.
        let pairs = [(0, 1), (0, 3), (1, 2), (2, 1), (2, 5), (3, 4), (4, 3), (4, 5), (6, 1)];
        let chain = chain(7, &rates_of_one(&pairs));

        let (class, count) = last_classes(&chain, &[1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], &|state| state == 5);

        assert_eq!(count, 2);
        assert!(class[0].is_none() && class[5].is_none() && class[6].is_none());
        assert!(class[1].is_some() && class[1] == class[2]);
        assert!(class[3].is_some() && class[3] == class[4] && class[3] != class[1]);
    }

    #[test]
    fn each_closed_class_has_one_representative() {
        // 0 <-> 1 -> 2 <-> 3, 1 -> 4 absorbing, 5 -> 0; 6 is isolated.
        let chain = chain(7, &rates_of_one(&[(0, 1), (1, 0), (1, 2), (2, 3), (3, 2), (1, 4), (5, 0)]));

        let mut classes = Classes::new(&chain, &[1.0 / 7.0; 7], &[0.0, 0.0, 0.1, 0.2, 0.0, 0.0, 0.0]);
        classes.representatives.sort_unstable();
        assert_eq!(classes.representatives, [3, 4, 6], "the more probable of 2 and 3");
        let class = classes.of_states(&chain);
        assert_eq!((0..7).filter(|&s| class[s].is_some()).collect::<Vec<_>>(), [2, 3, 4, 6]);
        assert!(class[2] == class[3] && class[4] != class[2] && class[6] != class[4]);

        let from_2 = Classes::new(&chain, &[0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0], &[0.5; 7]);
        assert_eq!(from_2.representatives, [2], "4 and 6 are not reached from 2");
    }
}
