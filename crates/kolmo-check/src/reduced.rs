//! Smaller chains with equal answers: without unreachable states, and with merged absorbing states.

use std::collections::HashMap;
use std::sync::Arc;

use crate::shared_pattern::{RatedPattern, TransitionPattern};
use crate::source::listed;
use crate::uniformization::{Quantity, Set, UniformizationRun};
use kolmo::transient::{Chain, Initial, Transitions};

/// Maximum number of transitions into a merged state, with which the rounding bound grows.
const INCOMING: usize = 8;

/// Maximum number of reductions that are kept for further chains.
const KEPT: usize = 8;

/// Reduced states and transitions of a run, for all chains with one pattern of transitions.
#[derive(Debug)]
pub(crate) struct Reduction {
    question: Question,
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
struct Question {
    starts: Vec<u32>,
    absorbing: Set,
    /// Requested sets of states.
    asked: Vec<Set>,
}

/// Reductions for the pattern of the current chains, the newest first.
pub(crate) type Reductions = Vec<Arc<Reduction>>;

impl UniformizationRun {
    /// Makes states absorbing, removes those that are not reached, and merges absorbing states.
    ///
    /// Merged states belong to the same requested sets. The transitions out of a state still lead
    /// to different states, so that no rates are added. The reduction is one of `known` if one
    /// fits; a new one is added there. It is `None` if the chain is not reduced.
    pub(crate) fn reduced(&self, from: Chain, known: &mut Reductions) -> (Chain, Option<Arc<Reduction>>) {
        let Some((reduction, rates)) = self.reduction(&from, known) else {
            return (from.absorbing(&self.absorbing), None);
        };
        let Reduction { pattern, question, states, inner, .. } = &*reduction;
        let number = |start: &u32| states[..*inner].binary_search(start).expect("starts are reached") as u32;
        let initial = Initial::Uniform(question.starts.iter().map(number).collect());
        let transitions = RatedPattern { pattern: pattern.clone(), rates };
        (Chain::new(from.name, Box::new(transitions)).starting(initial), Some(reduction))
    }

    /// Returns the reduction of a chain, with the rates of the reduced chain.
    fn reduction(&self, chain: &Chain, known: &mut Reductions) -> Option<(Arc<Reduction>, Vec<f64>)> {
        let (question, rates) = (self.question(chain)?, &*chain.transitions);
        let mut alike = known.iter().filter(|old| old.question == question);
        let found = alike.find_map(|old| Some((old.clone(), old.rates(rates)?)));
        found.or_else(|| {
            let new = Arc::new(Reduction::new(rates, question)?);
            known.truncate(KEPT - 1);
            known.insert(0, new.clone());
            let rates = new.rates(rates)?;
            Some((new, rates))
        })
    }

    /// Returns the question of a run.
    ///
    /// `None` if a reduction would save little or take much memory, or if other quantities than
    /// probabilities of sets are requested.
    fn question(&self, chain: &Chain) -> Option<Question> {
        let n = chain.transitions.states();
        let useful = (1 << 10..1 << 22).contains(&n) && self.absorbing.len() >= n / 4;
        if !useful || chain.transitions.is_discrete() || matches!(chain.initial, Initial::Distribution(_)) {
            return None;
        }
        let set = |asked: &Quantity| match asked {
            Quantity::States(set) => Some(set.clone()),
            _ => None,
        };
        let sets = self.asked.chunk_by(|a, b| a.what == b.what).map(|asked| set(&asked[0].what));
        let asked = sets.collect::<Option<_>>()?;
        Some(Question { starts: listed(&chain.initial), absorbing: self.absorbing.clone(), asked })
    }
}

impl Question {
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
    fn new(rates: &dyn Transitions, question: Question) -> Option<Self> {
        let classes = question.classes(rates.states())?;
        let mut states = reached(rates, &question.starts, &classes);
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
        Some(Self { question, states, original: classes.len(), inner, targets, places, pattern })
    }

    /// Returns the rates of the reduced chain; `None` if the original chain has another pattern.
    ///
    /// The reduced states depend only on the question and on the transitions that are compared.
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
