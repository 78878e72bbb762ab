//! Smaller chains with equal answers: without unreachable states, and with merged absorbing states.

use std::collections::HashMap;

use crate::source::listed;
use crate::state_sets::mask;
use crate::uniformization::{Quantity, UniformizationRun};
use kolmo::Result;
use kolmo::internals::Csr;
use kolmo::transient::{Chain, Initial, TransitionList};

/// Maximum number of transitions into a merged state, since rounding errors grow with it.
const INCOMING: usize = 8;

impl UniformizationRun {
    /// Makes states absorbing, removes those that are not reached, and merges absorbing states.
    ///
    /// Merged states are in the same requested sets. The transitions out of a state still lead to
    /// different states, so that no rates are added. Returns an original state for each state, and
    /// their number; `None` if little would be saved, or much memory used.
    pub(crate) fn reduced(&self, from: Chain) -> Result<(Chain, Option<(Vec<u32>, usize)>)> {
        let (rates, n, mut kept) = (&*from.transitions, from.transitions.states(), listed(&from.initial));
        let (absorbing, all) = (mask(&self.absorbing, n), self.asked.chunk_by(|a, b| a.what == b.what));
        let set = |what: &Quantity| if let Quantity::States(set) = what { Some(mask(set, n)) } else { None };
        let sets: Option<Vec<_>> = all.map(|asked| set(&asked[0].what)).collect();
        let many = (1 << 10..1 << 22).contains(&n) && self.absorbing.len() >= n / 4 && !rates.is_discrete();
        let given = matches!(from.initial, Initial::Distribution(_));
        let Some(sets) = sets.filter(|_| many && !given && !kept.iter().any(|&s| absorbing[s as usize]))
        else {
            return Ok((from.absorbing(&self.absorbing), None));
        };
        let (mut known, mut row, mut next, mut most) = (absorbing.clone(), Vec::new(), 0, 0);
        kept.iter().for_each(|&start| known[start as usize] = true);
        while let Some(&state) = kept.get(next) {
            let row = rates.leaving(state as usize, &mut row);
            (next, most) = (next + 1, most.max(row.len()));
            let new = |to: &u32| !std::mem::replace(&mut known[*to as usize], true);
            kept.extend(row.iter().map(|(to, _)| *to).filter(new));
        }
        kept.sort_unstable();
        let (mut numbers, mut list, mut merged) = (vec![0; n], TransitionList::default(), HashMap::new());
        (0..).zip(&kept).for_each(|(number, &state)| numbers[state as usize] = number);
        for number in 0..next {
            for &(to, rate) in rates.leaving(kept[number] as usize, &mut row) {
                let mut target = numbers[to as usize];
                if absorbing[to as usize] {
                    // The transitions into a class of states lead to `most` merged states in turn.
                    let class: Vec<bool> = sets.iter().map(|set| set[to as usize]).collect();
                    let (count, states) = merged.entry(class).or_insert((0, vec![0; most]));
                    if *count / most % INCOMING == 0 {
                        states[*count % most] = kept.len() as u32;
                        kept.push(to);
                    }
                    target = states[*count % most];
                    *count += 1;
                }
                list.extend([(number as u32, target, rate)]);
            }
        }
        let initial = listed(&from.initial).iter().map(|&start| numbers[start as usize]).collect();
        let chain = Chain::new(from.name, Box::new(Csr::from_list(kept.len(), list)?));
        Ok((chain.starting(Initial::Uniform(initial)), Some((kept, n))))
    }
}
