//! Proof that a model is infinite: an update that is enabled forever.
//!
//! The update changes variables without a range by constant steps, which keep it enabled.

use super::program::{Next, assignment};
use crate::bytecode::Term;
use crate::diagnostics::Span;
use crate::instance::{GuardedCommand, Instance};
use crate::intervals::{Interval, range};

/// Maximum numbers of modules in an examined synchronisation, and of combined updates.
const PARTS: usize = 8;
const UPDATES: usize = 64;

/// Update by constant steps that may be enabled forever, of one command or of synchronised ones.
#[derive(Clone, Default)]
struct Increment<'a> {
    guards: Vec<&'a Term>,
    rates: Vec<&'a Term>,
    /// Changed variables (indices) with their increments; 0 for bounded variables, which stay
    /// equal.
    steps: Vec<(usize, i64)>,
    /// Variables (indices) and the constants to which they are set, equal to their values before.
    kept: Vec<(usize, i64)>,
    span: Span,
}

/// Updates that may prove that a model is infinite.
pub(super) struct EndlessUpdates<'a> {
    instance: &'a Instance,
    candidates: Vec<Increment<'a>>,
}

impl<'a> EndlessUpdates<'a> {
    pub(super) fn new(instance: &'a Instance) -> Self {
        let mut candidates = Vec::new();
        let together = &instance.model.0.together;
        let some = instance.variables.iter().any(|variable| variable.unbounded);
        for together in together.iter().filter(|t| some && t.parts.len() <= PARTS) {
            let mut all = vec![Increment::default()];
            for part in &together.parts {
                let commands = &instance.commands[instance.groups.get(part).cloned().unwrap_or(0..0)];
                let own: Vec<Increment<'_>> = commands.iter().flat_map(|c| counting(instance, c)).collect();
                let pairs = all.iter().flat_map(|before| own.iter().map(move |own| before.and(own)));
                all = pairs.take(UPDATES).collect();
            }
            candidates.extend(all.into_iter().filter(|c| c.steps.iter().any(|(_, step)| *step != 0)));
        }
        Self { instance, candidates }
    }

    /// Finds an update that is enabled forever from a state on; returns its variable and command.
    pub(super) fn proof(&self, values: &[i64]) -> Option<(usize, Span)> {
        let found = self.candidates.iter().find(|candidate| self.goes_on(candidate, values))?;
        let (variable, _) = found.steps.iter().find(|(_, step)| *step != 0)?;
        Some((*variable, found.span))
    }

    /// True if the update stays enabled forever: all guards hold and all rates are positive.
    ///
    /// The changed variables take all values up to the ends of their 32-bit range.
    fn goes_on(&self, candidate: &Increment<'_>, values: &[i64]) -> bool {
        if candidate.kept.iter().any(|(variable, value)| values[*variable] != *value) {
            return false;
        }
        let mut ranges: Vec<Interval> = values.iter().map(|value| (*value as f64, *value as f64)).collect();
        for (variable, step) in candidate.steps.iter().filter(|(_, step)| *step != 0) {
            let (info, range) = (&self.instance.variables[*variable], &mut ranges[*variable]);
            *(if *step > 0 { &mut range.1 } else { &mut range.0 }) =
                if *step > 0 { info.high as f64 } else { info.low as f64 };
        }
        candidate.guards.iter().all(|guard| range(guard, &ranges) == (1.0, 1.0))
            && candidate.rates.iter().all(|rate| range(rate, &ranges).0 > 0.0)
    }
}

impl Increment<'_> {
    /// Combines two synchronised updates of different modules.
    fn and(&self, other: &Self) -> Self {
        Self {
            guards: [&self.guards[..], &other.guards].concat(),
            rates: [&self.rates[..], &other.rates].concat(),
            steps: [&self.steps[..], &other.steps].concat(),
            kept: [&self.kept[..], &other.kept].concat(),
            span: other.span,
        }
    }
}

/// Updates of a command that change only variables without a range, by constant steps.
fn counting<'a>(instance: &'a Instance, command: &'a GuardedCommand) -> impl Iterator<Item = Increment<'a>> {
    command.updates.iter().filter_map(|(rate, assignments)| {
        let (guards, rates, span) = (vec![&command.guard], vec![rate], command.span);
        let mut candidate = Increment { guards, rates, span, ..Increment::default() };
        for (variable, next) in assignments {
            match assignment(*variable, next) {
                Next::Set(value) => candidate.kept.push((*variable, value)),
                Next::Add(step) if step == 0 || instance.variables[*variable].unbounded => {
                    candidate.steps.push((*variable, step));
                }
                _ => return None,
            }
        }
        Some(candidate)
    })
}
