//! Smaller chains with equal answers: without unreachable states, and with merged absorbing states.

use std::collections::HashMap;

use crate::source::listed;
use crate::uniformization::{Quantity, UniformizationRun};
use kolmo::Result;
use kolmo::internals::Csr;
use kolmo::transient::{Chain, Initial, TransitionList, Transitions};

/// Maximum number of transitions into a merged state, with which the rounding bound grows.
const INCOMING: usize = 8;

/// An original state for each state of a reduced chain, and the number of original states.
pub(crate) type Origins = (Vec<u32>, usize);

impl UniformizationRun {
    /// Makes states absorbing, removes those that are not reached, and merges absorbing states.
    ///
    /// Merged states belong to the same requested sets. The transitions out of a state still lead
    /// to different states, so that no rates are added. The origins are `None` if the chain is not
    /// reduced.
    pub(crate) fn reduced(&self, from: Chain) -> Result<(Chain, Option<Origins>)> {
        let Some(classes) = self.classes(&from) else {
            return Ok((from.absorbing(&self.absorbing), None));
        };
        let (rates, starts) = (&*from.transitions, listed(&from.initial));
        let mut states = reached(rates, &starts, &classes);
        let inner = states.len();
        let mut numbers = vec![0; classes.len()];
        (0..).zip(&states).for_each(|(number, &state)| numbers[state as usize] = number);
        let mut row = Vec::new();
        let length = |&state: &u32| rates.leaving(state as usize, &mut row).len();
        let longest = states.iter().map(length).max().unwrap_or(0);
        let mut list = TransitionList::default();
        // Number of transitions into each class so far, and its merged states. The transitions lead
        // to these in turn, so that those of one row lead to different states.
        let mut merged: HashMap<u64, (usize, Vec<u32>)> = HashMap::new();
        for number in 0..inner {
            for &(to, rate) in rates.leaving(states[number] as usize, &mut row) {
                let mut target = numbers[to as usize];
                if let Some(class) = classes[to as usize] {
                    let (count, turns) = merged.entry(class).or_insert_with(|| (0, vec![0; longest]));
                    if *count / longest % INCOMING == 0 {
                        turns[*count % longest] = states.len() as u32;
                        states.push(to);
                    }
                    target = turns[*count % longest];
                    *count += 1;
                }
                list.extend([(number as u32, target, rate)]);
            }
        }
        let initial = starts.iter().map(|&start| numbers[start as usize]).collect();
        let chain = Chain::new(from.name, Box::new(Csr::from_list(states.len(), list)?));
        Ok((chain.starting(Initial::Uniform(initial)), Some((states, classes.len()))))
    }

    /// Returns the class of each absorbing state: the requested sets to which it belongs, as bits.
    ///
    /// `None` if a reduction would save little or take much memory, or if other quantities than
    /// probabilities of sets are requested.
    fn classes(&self, chain: &Chain) -> Option<Vec<Option<u64>>> {
        let n = chain.transitions.states();
        let useful = (1 << 10..1 << 22).contains(&n) && self.absorbing.len() >= n / 4;
        if !useful || chain.transitions.is_discrete() || matches!(chain.initial, Initial::Distribution(_)) {
            return None;
        }
        let mut classes = vec![None; n];
        self.absorbing.iter().for_each(|&state| classes[state as usize] = Some(0));
        for (bit, asked) in self.asked.chunk_by(|a, b| a.what == b.what).enumerate() {
            let Quantity::States(set) = &asked[0].what else { return None };
            let bit = 1u64.checked_shl(bit as u32)?;
            for &state in set.iter() {
                classes[state as usize] = classes[state as usize].map(|class| class | bit);
            }
        }
        let starts_inside = listed(&chain.initial).iter().all(|&start| classes[start as usize].is_none());
        starts_inside.then_some(classes)
    }
}

/// Lists the states that are reached from `starts` before absorbing states, ascending.
fn reached(rates: &dyn Transitions, starts: &[u32], classes: &[Option<u64>]) -> Vec<u32> {
    let (mut states, mut row, mut next) = (starts.to_vec(), Vec::new(), 0);
    let mut known: Vec<bool> = classes.iter().map(Option::is_some).collect();
    starts.iter().for_each(|&start| known[start as usize] = true);
    while let Some(&state) = states.get(next) {
        let targets = rates.leaving(state as usize, &mut row).iter().map(|(to, _)| *to);
        states.extend(targets.filter(|&to| !std::mem::replace(&mut known[to as usize], true)));
        next += 1;
    }
    states.sort_unstable();
    states
}
