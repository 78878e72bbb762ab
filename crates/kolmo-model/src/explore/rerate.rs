//! Rates of explored states for new values of constants, without a new exploration.

use std::sync::Arc;

use rayon::prelude::*;

use super::assemble::{TASK, deadlocks, shares};
use super::layout::StateKey;
use super::program::{CompiledModel, PackedRows, Scratch};
use super::rate_classes::{NewRates, RateClasses};
use super::{News, Options, StateSpace, TransitionMatrix, by_width};
use crate::threads::start_threads;
use crate::{Error, Instance, Result};

impl StateSpace {
    /// Replaces the rates by those of another instance with the same states and transitions.
    ///
    /// The result is bitwise equal to an exploration of the instance, in less time. The first call
    /// finds classes of transitions with equal rates, and each call evaluates one rate per class.
    /// If there are no such classes, each state is evaluated once, its targets are compared with
    /// the stored ones, and no state is searched.
    ///
    /// Returns false, and changes nothing, if states or transitions differ, if the space is
    /// truncated, or if the evaluation of a state fails. An exploration then returns the states or
    /// the error. After [`Instance::alongside`], transitions of the space may be missing, with the
    /// rate 0. Fails if the progress callback of `options` interrupts.
    pub fn rerate(&mut self, instance: &Instance, options: &Options<'_>) -> Result<bool> {
        start_threads();
        // Guards may differ if the transitions of several instances are known.
        let own = &self.instance;
        let same = match own.others.is_empty() {
            true => own.has_structure_of(instance),
            false => own.variables == instance.variables && own.initial == instance.initial,
        };
        if !same || !self.found.edge.is_empty() {
            return Ok(false);
        }
        let program = CompiledModel::new(instance, self.layout.clone());
        let news = News::new(options);
        if own.others.is_empty() && self.truths.is_none() && !own.model.is_discrete() {
            self.classes = RateClasses::new(self, &program).map(Arc::new);
        }
        let rated = match self.classes.as_ref().and_then(|classes| classes.rates(&program)) {
            Some(rated) => Ok(rated),
            None => by_width!(self.stride, self.rated(&program, &news)),
        };
        let (rates, self_loops) = match rated {
            Ok(rated) => rated,
            Err(None) => return Ok(false),
            Err(Some(error)) => return Err(error),
        };
        self.overlaps = program.overlaps.into_inner();
        (self.found.chain.rates, self.found.self_loops) = (rates, self_loops);
        self.found.deadlocks = deadlocks(&self.found.self_loops, &[], &self.found.chain);
        let others = std::mem::take(&mut self.instance.others);
        self.instance = Instance { others, ..instance.clone() };
        self.truths.get_or_insert_default();
        Ok(true)
    }

    /// Evaluates the rates of all states. Fails with `None` if targets differ or a state fails.
    fn rated<const W: usize>(
        &self,
        program: &CompiledModel<'_>,
        news: &News<'_>,
    ) -> std::result::Result<NewRates, Option<Error>> {
        let (keys, _) = self.keys.as_chunks::<W>();
        let TransitionMatrix { offsets, columns, .. } = &self.found.chain;
        let (mut rates, joint) = (vec![0.0; columns.len()], !self.instance.others.is_empty());
        let work = |(task, (states, rates)): (usize, (&[StateKey<W>], &mut [f64]))| {
            let (mut scratch, mut rows, mut row) = (Scratch::default(), PackedRows::default(), Vec::new());
            let (mut loops, mut rates) = (Vec::new(), rates.iter_mut());
            for (state, key) in (task * TASK..).zip(states) {
                rows.clear();
                program.successors(key, &mut scratch, &mut rows).map_err(|_| None)?;
                if rows.self_loop > 0.0 {
                    loops.push((state as u32, rows.self_loop));
                }
                row.clear();
                row.extend(rows.keys.iter().copied().zip(rows.rates.iter().copied()));
                // Targets are stored in ascending order, which is the order of keys.
                row.sort_unstable_by_key(|(key, _)| *key);
                let targets = &columns[offsets[state] as usize..offsets[state + 1] as usize];
                let mut known = row.iter().peekable();
                for (target, rate) in targets.iter().zip(rates.by_ref()) {
                    let new = known.next_if(|(key, _)| *key == keys[*target as usize]);
                    *rate = new.map_or(0.0, |(_, rate)| *rate);
                    // A quotient of probabilities may underflow to 0, which an exploration handles.
                    if new.is_some_and(|(_, rate)| *rate == 0.0) || new.is_none() && !joint {
                        return Err(None);
                    }
                }
                if known.next().is_some() {
                    return Err(None);
                }
            }
            news.tell(keys.len() as u64, columns.len() as u64).map(|()| loops).map_err(Some)
        };
        let tasks: Vec<_> = keys.chunks(TASK).zip(shares(offsets, &mut rates)).enumerate().collect();
        let loops = tasks.into_par_iter().map(work).collect::<std::result::Result<Vec<_>, _>>()?.concat();
        Ok((rates, loops))
    }
}
