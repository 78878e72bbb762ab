//! Classes of transitions that have equal rates for all values of constants.
//!
//! A rate of the chain is a sum of products of the rates of commands' updates. An update's rate is
//! a constant, or a table over one variable. So few different sums determine the rates of all
//! transitions, and other values of constants change only these sums.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use rayon::prelude::*;

use super::assemble::TASK;
use super::layout::StateKey;
use super::program::{CompiledModel, RateFactor, Scratch};
use super::{StateSpace, by_width};

/// Rates of all transitions, and states with self-loops and their rates.
pub(super) type NewRates = (Vec<f64>, Vec<(u32, f64)>);

/// Products of rates, whose sum is the rate of a transition.
type RateSum = Vec<Vec<RateFactor>>;

/// Numbers of the different sums.
type SumNumbers = HashMap<RateSum, u32, FixedState>;

/// Sums that determine the rates of all transitions.
#[derive(Debug)]
pub(super) struct RateClasses {
    /// Index of each transition's sum.
    transitions: Vec<u32>,
    /// States with self-loops, and the index of each one's sum.
    self_loops: Vec<(u32, u32)>,
    sums: Vec<RateSum>,
    /// Rates of updates that are 0, in transitions that the chain lacks.
    zeros: Vec<RateFactor>,
}

impl RateClasses {
    /// Finds the classes of a chain in continuous time that `program` explores.
    ///
    /// `None` if a rate depends on several variables, if targets differ from those of the chain, or
    /// if classes are not much fewer than transitions.
    pub(super) fn new(space: &StateSpace, program: &CompiledModel<'_>) -> Option<Self> {
        by_width!(space.stride, space.rate_classes(program))
    }

    /// Returns the rates of all transitions and self-loops for other values of constants.
    ///
    /// They are bitwise equal to those of an exploration. `None` if the chain has other transitions
    /// for these values, or if a rate is invalid.
    pub(super) fn rates(&self, program: &CompiledModel<'_>) -> Option<NewRates> {
        if self.zeros.iter().any(|factor| program.factor(factor) != Some(0.0)) {
            return None;
        }
        let positive = |rate: f64| Some(rate).filter(|rate| *rate > 0.0 && rate.is_finite());
        let product = |factors: &Vec<RateFactor>| {
            let times = |product: f64, factor| positive(product * positive(program.factor(factor)?)?);
            factors.iter().try_fold(1.0, times)
        };
        let sum = |sum: &RateSum| sum.iter().try_fold(0.0, |sum, factors| positive(sum + product(factors)?));
        let rates = self.sums.iter().map(sum).collect::<Option<Vec<f64>>>()?;
        let rate = |class: &u32| rates[*class as usize];
        let self_loops = self.self_loops.iter().map(|(state, class)| (*state, rate(class))).collect();
        Some((self.transitions.par_iter().map(rate).collect(), self_loops))
    }
}

impl StateSpace {
    fn rate_classes<const W: usize>(&self, program: &CompiledModel<'_>) -> Option<RateClasses> {
        let (keys, _) = self.keys.as_chunks::<W>();
        let (offsets, columns) = (&self.found.chain.offsets, &self.found.chain.columns);
        let most = 256 + columns.len() / 16;
        let work = |(task, states): (usize, &[StateKey<W>])| {
            let (mut scratch, mut row) = (Scratch::default(), Vec::new());
            let mut found = RateClasses {
                transitions: Vec::new(),
                self_loops: Vec::new(),
                sums: Vec::new(),
                zeros: Vec::new(),
            };
            let mut numbers = SumNumbers::default();
            for (state, key) in (task * TASK..).zip(states) {
                row.clear();
                program.products(key, &mut scratch, &mut row, &mut found.zeros)?;
                // Products with equal targets stay in the order in which an exploration adds them.
                row.sort_by_key(|(target, _)| *target);
                let targets = &columns[offsets[state] as usize..offsets[state + 1] as usize];
                let mut targets = targets.iter().map(|target| keys[*target as usize]);
                for products in row.chunk_by(|a, b| a.0 == b.0) {
                    let sum: RateSum = products.iter().map(|(_, factors)| factors.clone()).collect();
                    let number = found.number(sum, &mut numbers);
                    if products[0].0 == *key {
                        found.self_loops.push((state as u32, number));
                    } else if targets.next() == Some(products[0].0) {
                        found.transitions.push(number);
                    } else {
                        return None;
                    }
                }
                if targets.next().is_some() || found.sums.len() > most {
                    return None;
                }
            }
            found.zeros.sort_unstable();
            found.zeros.dedup();
            Some(found)
        };
        let tasks: Vec<_> = keys.chunks(TASK).enumerate().collect();
        let parts = tasks.into_par_iter().map(work).collect::<Option<Vec<RateClasses>>>()?;
        let mut parts = parts.into_iter();
        let mut all = parts.next()?;
        let mut numbers: SumNumbers = all.sums.iter().cloned().zip(0..).collect();
        for part in parts {
            let renumbered: Vec<u32> =
                part.sums.into_iter().map(|sum| all.number(sum, &mut numbers)).collect();
            let number = |class: u32| renumbered[class as usize];
            all.transitions.extend(part.transitions.into_iter().map(number));
            all.self_loops.extend(part.self_loops.into_iter().map(|(state, class)| (state, number(class))));
            all.zeros.extend(part.zeros);
        }
        all.zeros.sort_unstable();
        all.zeros.dedup();
        Some(all).filter(|all| all.sums.len() <= most)
    }
}

impl RateClasses {
    /// Returns the number of a sum, which is stored if it is new.
    fn number(&mut self, sum: RateSum, numbers: &mut SumNumbers) -> u32 {
        if let Some(number) = numbers.get(&sum) {
            return *number;
        }
        let number = self.sums.len() as u32;
        numbers.insert(sum.clone(), number);
        self.sums.push(sum);
        number
    }
}
