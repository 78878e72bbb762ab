//! Closed communicating classes that are reachable from the initial states, by one search.

use super::transitions::Transitions;
use crate::parallel::*;

/// Reachable closed classes, and the reachable states.
pub(crate) struct ClosedClasses {
    /// State of each class with the largest probability in a given vector; the first on ties.
    pub(crate) representatives: Vec<usize>,
    pub(crate) reached: Vec<bool>,
}

impl ClosedClasses {
    /// Finds the closed classes reachable from `initial`.
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
        let reached = reached(transitions, initial, within);
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
                    let row = transitions.leaving(state, &mut row);
                    open.extend(row.iter().map(|&(to, _)| to as usize).filter(|&to| within(to)));
                }
            }
        }
        class
    }
}

/// Sufficient test of irreducibility: true only if all states communicate.
///
/// From each state but 0, one or two transitions must lead to a smaller state. Then all states
/// reach state 0. The same test in the opposite direction shows that it reaches all of them.
pub(crate) fn is_one_class(transitions: &dyn Transitions) -> bool {
    let n = transitions.states();
    let falls_to_0 = |back: bool| {
        let read = |row: &mut Vec<(u32, f64)>, state: usize| {
            row.clear();
            if back { transitions.incoming(state, row) } else { transitions.outgoing(state, row) }
        };
        let least = |row: &mut Vec<(u32, f64)>, state: usize| {
            read(row, state);
            row.iter().map(|entry| entry.0).min().unwrap_or(state as u32)
        };
        let states = || (0..n).into_par_iter().with_min_len(1 << 12);
        // Rows are read twice at most: a row of many entries may be next to many states.
        let least: Vec<u32> = states().map_init(Vec::new, least).collect();
        let falls = |row: &mut Vec<(u32, f64)>, state: usize| {
            let smaller = |to: u32| (least[to as usize] as usize) < state;
            smaller(state as u32) || state == 0 || {
                read(row, state);
                row.iter().any(|&(to, _)| smaller(to))
            }
        };
        states().map_init(Vec::new, falls).reduce(|| true, |a, b| a && b)
    };
    falls_to_0(false) && falls_to_0(true)
}

/// Finds the transient classes with exits to absorbing states only.
///
/// Returns the class of each state, `None` if it is in no such class, and the number of classes.
pub(crate) fn last_classes(
    transitions: &dyn Transitions,
    initial: &[f64],
    absorbing: &dyn Fn(usize) -> bool,
) -> (Vec<Option<usize>>, usize) {
    let within = |state: usize| !absorbing(state);
    let mut classes = ClosedClasses::within(transitions, initial, initial, &within);
    classes.representatives.retain(|&state| within(state));
    (classes.of_states_within(transitions, &within), classes.representatives.len())
}

/// True if `one` is preferred as representative: the more probable state, the first on ties.
fn ahead(one: (f64, usize), other: (f64, usize)) -> bool {
    one.0 > other.0 || (one.0 == other.0 && one.1 < other.1)
}

/// Returns true for each state that paths through `within` reach from `initial`.
fn reached(transitions: &dyn Transitions, initial: &[f64], within: &dyn Fn(usize) -> bool) -> Vec<bool> {
    let mut reached: Vec<bool> = initial.iter().map(|p| *p > 0.0).collect();
    let mut open: Vec<usize> = (0..initial.len()).filter(|&state| reached[state]).collect();
    let mut row = Vec::new();
    while let Some(state) = open.pop() {
        let row = transitions.leaving(state, &mut row);
        let to = row.iter().map(|&(to, _)| to as usize).filter(|&to| within(to));
        open.extend(to.filter(|&to| !std::mem::replace(&mut reached[to], true)));
    }
    reached
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
    type SearchFrame = (u32, Vec<(u32, f64)>, usize);
    let mut path: Vec<SearchFrame> = Vec::new();
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

        let mut classes = ClosedClasses::new(&chain, &[1.0 / 7.0; 7], &[0.0, 0.0, 0.1, 0.2, 0.0, 0.0, 0.0]);
        classes.representatives.sort_unstable();
        assert_eq!(classes.representatives, [3, 4, 6], "the more probable of 2 and 3");
        let class = classes.of_states(&chain);
        assert_eq!((0..7).filter(|&s| class[s].is_some()).collect::<Vec<_>>(), [2, 3, 4, 6]);
        assert!(class[2] == class[3] && class[4] != class[2] && class[6] != class[4]);

        // 0 <-> 2 <-> 1: state 1 has no smaller neighbour; then 3, which leaves or is left alone.
        for (pairs, one) in
            [(vec![], true), (vec![(1, 3)], false), (vec![(3, 2)], false), (vec![(1, 3), (3, 0)], true)]
        {
            let all = [rates_of_one(&[(0, 2), (2, 0), (2, 1), (1, 2)]), rates_of_one(&pairs)].concat();
            let n = if pairs.is_empty() { 3 } else { 4 };
            assert_eq!(is_one_class(&self::chain(n, &all)), one, "{pairs:?}");
        }
        let from_2 = ClosedClasses::new(&chain, &[0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0], &[0.5; 7]);
        assert_eq!(from_2.representatives, [2], "4 and 6 are not reached from 2");
    }
}
