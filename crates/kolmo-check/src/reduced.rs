//! Smaller chains with equal answers: without unreachable states, and with merged absorbing states.

use std::collections::HashMap;
use std::sync::Arc;

use crate::shared_pattern::{RatedPattern, TransitionPattern};
use crate::state_sets::States;
use kolmo::transient::{Chain, Initial, Transitions};

/// Maximum number of transitions into a merged state, with which the rounding bound grows.
const INCOMING: usize = 8;

/// Reduced states and transitions of a run, for all chains with one pattern of transitions.
#[derive(Debug)]
pub(crate) struct Reduction {
    key: ReductionKey,
    /// An original state for each state; those that are not absorbing come first.
    pub(crate) states: Vec<u32>,
    /// Number of original states.
    pub(crate) original: usize,
    /// Number of states that are not absorbing.
    inner: usize,
    /// Original target of each transition, in the order of the original chain.
    targets: Vec<u32>,
    /// Index of each of these transitions in the reduced pattern.
    places: Vec<u32>,
    pattern: Arc<TransitionPattern>,
}

/// Part of a run that determines the reduced states.
#[derive(Debug, PartialEq)]
pub(crate) struct ReductionKey {
    /// Initial states.
    pub(crate) starts: Vec<u32>,
    pub(crate) absorbing: States,
    /// Sets whose probabilities are requested.
    pub(crate) asked: Vec<States>,
}

/// Makes states absorbing, removes those that are not reached, and merges absorbing states.
///
/// Merged states belong to the same requested sets. The transitions out of a state still lead to
/// different states, so that no rates are added. Uses `known` if it fits the chain, else replaces
/// it. `None` if a reduction would save little or take much memory.
pub(crate) fn reduced(
    chain: &Chain,
    key: ReductionKey,
    known: &mut Option<Arc<Reduction>>,
) -> Option<(Chain, Arc<Reduction>)> {
    let (transitions, n) = (&*chain.transitions, chain.transitions.states());
    let useful = (1 << 10..1 << 22).contains(&n) && key.absorbing.len() >= n / 4;
    if !useful || transitions.is_discrete() {
        return None;
    }
    let fits = known.take_if(|known| known.key == key);
    let fits = fits.and_then(|known| Some((known.rates(transitions)?, known)));
    let (rates, reduction) = match fits {
        Some(fits) => fits,
        None => {
            let new = Reduction::new(transitions, key)?;
            (new.rates(transitions)?, Arc::new(new))
        }
    };
    *known = Some(reduction.clone());
    let Reduction { pattern, key, states, inner, .. } = &*reduction;
    let number = |start: &u32| states[..*inner].binary_search(start).expect("starts are reached") as u32;
    let initial = Initial::Uniform(key.starts.iter().map(number).collect());
    let transitions = RatedPattern { pattern: pattern.clone(), rates };
    let chain = Chain::new(chain.name.clone(), Box::new(transitions)).starting(initial);
    Some((chain, reduction))
}

impl ReductionKey {
    /// Returns the class of each absorbing state: the requested sets to which it belongs, as bits.
    ///
    /// `None` for more than 64 sets, or for a start in an absorbing state.
    fn classes(&self, n: usize) -> Option<Vec<Option<u64>>> {
        let mut classes = vec![None; n];
        self.absorbing.iter().for_each(|&state| classes[state as usize] = Some(0));
        for (bit, set) in self.asked.iter().enumerate() {
            let bit = 1u64.checked_shl(bit as u32)?;
            for &state in set.iter() {
                classes[state as usize] = classes[state as usize].map(|class| class | bit);
            }
        }
        self.starts.iter().all(|&start| classes[start as usize].is_none()).then_some(classes)
    }
}

impl Reduction {
    /// Finds the reduced states of a chain; `None` without classes, or for 2³² transitions or more.
    fn new(rates: &dyn Transitions, key: ReductionKey) -> Option<Self> {
        let classes = key.classes(rates.states())?;
        let mut states = reached(rates, &key.starts, &classes);
        let inner = states.len();
        let mut numbers = vec![0; classes.len()];
        (0..).zip(&states).for_each(|(number, &state)| numbers[state as usize] = number);
        let (mut offsets, mut targets, mut row, mut longest) = (vec![0], Vec::new(), Vec::new(), 0);
        for &state in &states {
            let own = rates.leaving(state as usize, &mut row);
            targets.extend(own.iter().map(|(to, _)| *to));
            longest = longest.max(own.len());
            offsets.push(targets.len() as u64);
        }
        // Number of transitions into each class so far, and its merged states. The transitions lead
        // to these in turn, so that those of one row lead to different states.
        let mut merged: HashMap<u64, (usize, Vec<u32>)> = HashMap::new();
        let number = |&to: &u32| {
            let Some(class) = classes[to as usize] else { return numbers[to as usize] };
            let (count, turns) = merged.entry(class).or_insert_with(|| (0, vec![0; longest]));
            let turn = *count % longest;
            if *count / longest % INCOMING == 0 {
                turns[turn] = states.len() as u32;
                states.push(to);
            }
            *count += 1;
            turns[turn]
        };
        let new_targets: Vec<u32> = targets.iter().map(number).collect();
        let mut order: Vec<u32> = (0..u32::try_from(targets.len()).ok()?).collect();
        for row in offsets.windows(2) {
            order[row[0] as usize..row[1] as usize].sort_unstable_by_key(|&k| new_targets[k as usize]);
        }
        let mut places = vec![0; order.len()];
        (0..).zip(&order).for_each(|(place, &k)| places[k as usize] = place);
        let ascending = order.iter().map(|&k| new_targets[k as usize]).collect();
        offsets.resize(states.len() + 1, targets.len() as u64);
        let pattern = Arc::new(TransitionPattern::new(Arc::new(offsets), Arc::new(ascending))?);
        Some(Self { key, states, original: classes.len(), inner, targets, places, pattern })
    }

    /// Returns the rates of the reduced chain; `None` if the original chain has another pattern.
    ///
    /// The reduced states depend only on the key and on the transitions that are compared.
    fn rates(&self, of: &dyn Transitions) -> Option<Vec<f64>> {
        let (mut rates, mut row) = (vec![0.0; self.places.len()], Vec::new());
        if of.states() != self.original {
            return None;
        }
        for (number, &state) in self.states[..self.inner].iter().enumerate() {
            let range = self.pattern.out_of(number);
            let (targets, places) = (&self.targets[range.clone()], &self.places[range]);
            let own = of.leaving(state as usize, &mut row);
            if !own.iter().map(|(to, _)| to).eq(targets) {
                return None;
            }
            own.iter().zip(places).for_each(|((_, rate), &place)| rates[place as usize] = *rate);
        }
        Some(rates)
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
