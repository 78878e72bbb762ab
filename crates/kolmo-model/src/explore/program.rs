//! Commands compiled for a layout of states: enabled commands and their next states.
//!
//! Conjuncts of a guard that depend on one variable with few values become tables. A table has
//! the set of allowed commands for each value. The enabled commands are the intersection of one set
//! per variable, less those with a false remaining conjunct. Commands with a conjunct `v = 5` of a
//! variable with many values are found by the value of `v`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::bytecode::{Code, EvalError, Op, Term};
use crate::diagnostics::Span;
use crate::instance::Instance;
use crate::syntax::{Type, Value};

use super::layout::{Packing, StateKey};

/// An error in a state, with the command that causes it.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) what: String,
    pub(super) span: Span,
}

enum CompiledRate {
    Constant(f64),
    /// Variable, its least value, and the rate for each of its values.
    Table(usize, i64, Vec<f64>),
    Code(Code),
}

/// Rate of an update for a value of the variable that it depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct RateFactor {
    command: usize,
    update: usize,
    /// Variable and its value; `None` for a constant rate.
    value: Option<(usize, i64)>,
}

pub(super) enum Next {
    Set(i64),
    Add(i64),
    Code(Code),
}

struct CompiledUpdate {
    rate: CompiledRate,
    assignments: Vec<(usize, Next)>,
    /// Word of the packed state and number to add to it, if the update only adds constants.
    step: Option<(usize, u64)>,
}

struct CompiledCommand {
    updates: Vec<CompiledUpdate>,
    span: Span,
}

/// Two sets of commands for each value of a variable.
///
/// The first has the commands with guards that allow the value. The second has the commands that
/// keep the variable in its range if they add a constant.
struct CommandTable {
    variable: usize,
    low: i64,
    sets: Vec<u64>,
}

/// Commands of one (module, action) as a set: index and bits of each word with commands.
type CommandSet = Vec<(usize, u64)>;

/// Commands by index, each with the rest of its guard.
type Guarded = Vec<(usize, Option<Code>)>;

pub(super) struct CompiledModel<'a> {
    pub(super) instance: &'a Instance,
    pub(super) layout: Packing,
    /// Variables with fewer values than this have a [`CommandTable`].
    few: u64,
    commands: Vec<CompiledCommand>,
    all: Vec<u64>,
    /// Set of the commands with updates that all add constants (`Update::step`).
    steps: Vec<u64>,
    tables: Vec<CommandTable>,
    /// Commands by index, each with the conjuncts of its guard that are in no table.
    guards: Vec<(usize, Code)>,
    /// Variables and the commands for each of their values, in no set of `all`.
    by_value: Vec<(usize, HashMap<i64, Guarded>)>,
    /// Set of the commands that are not synchronised, one bit per command.
    alone: Vec<u64>,
    /// Synchronised groups; a transition takes one command of each.
    together: Vec<Vec<CommandSet>>,
    /// True in discrete time: enabled choices of commands are equally likely.
    discrete: bool,
    /// Number of times that a state with several enabled choices was followed in discrete time.
    pub(super) overlaps: AtomicU64,
    /// Programs of the other instances to explore.
    others: Vec<Self>,
}

/// Scratch memory of one thread.
#[derive(Default)]
pub(super) struct Scratch {
    pub(super) values: Vec<i64>,
    enabled: Vec<u64>,
    /// Set of the commands that keep all variables in range, if they add constants.
    safe: Vec<u64>,
    stack: Vec<u64>,
}

/// Rows of transitions to packed states.
#[derive(Default)]
pub(super) struct PackedRows<const W: usize> {
    pub(super) keys: Vec<StateKey<W>>,
    pub(super) rates: Vec<f64>,
    /// Index of the current row's first entry.
    start: usize,
    source: Option<StateKey<W>>,
    pub(super) self_loop: f64,
    /// Number of equally likely choices of commands in discrete time; 1 in continuous time.
    choices: f64,
}

/// Variables with fewer values have tables; halved until all tables fit into [`TABLES`] bytes.
const FEW: u64 = 4096;

/// Maximum size of all tables in bytes.
const TABLES: u64 = 64 << 20;

/// Rows up to this length are searched for an equal target at each new entry.
const SEARCHED: usize = 48;

impl<const W: usize> PackedRows<W> {
    pub(super) fn clear(&mut self) {
        self.keys.clear();
        self.rates.clear();
    }

    fn begin(&mut self, source: StateKey<W>, choices: f64) {
        self.start = self.keys.len();
        self.source = Some(source);
        self.self_loop = 0.0;
        self.choices = choices;
    }

    #[inline]
    fn push(&mut self, key: StateKey<W>, rate: f64) {
        let rate = if self.choices == 1.0 { rate } else { rate / self.choices };
        if self.source == Some(key) {
            self.self_loop += rate;
            return;
        }
        let row = &self.keys[self.start..];
        if row.len() <= SEARCHED
            && let Some(k) = row.iter().position(|other| *other == key)
        {
            self.rates[self.start + k] += rate;
            return;
        }
        self.keys.push(key);
        self.rates.push(rate);
    }

    /// Merges equal targets of a long row.
    fn end(&mut self) {
        if self.keys.len() - self.start <= SEARCHED {
            return;
        }
        let keys = self.keys.drain(self.start..);
        let mut row: Vec<(StateKey<W>, f64)> = keys.zip(self.rates.drain(self.start..)).collect();
        row.sort_by_key(|(key, _)| *key);
        row.dedup_by(|b, a| {
            let same = a.0 == b.0;
            a.1 += if same { b.1 } else { 0.0 };
            same
        });
        self.keys.extend(row.iter().map(|(key, _)| *key));
        self.rates.extend(row.iter().map(|(_, rate)| *rate));
    }
}

impl<'a> CompiledModel<'a> {
    pub(super) fn new(instance: &'a Instance, layout: Packing) -> Self {
        let words = instance.commands.len().div_ceil(64).max(1);
        // Each value has two sets of commands.
        let rows = |few: u64| -> u64 {
            layout.fields.iter().filter(|f| f.width < few).map(|f| 1 + f.width).fold(0, u64::saturating_add)
        };
        let halves = std::iter::successors(Some(FEW), |few| Some(few / 2));
        let few =
            halves.take(16).find(|few| rows(*few).saturating_mul(words as u64 * 16) <= TABLES).unwrap_or(0);
        let mut program = Self {
            instance,
            few,
            commands: Vec::new(),
            all: vec![0; words],
            steps: vec![0; words],
            tables: Vec::new(),
            guards: Vec::new(),
            by_value: Vec::new(),
            alone: vec![0; words],
            together: Vec::new(),
            discrete: instance.model.is_discrete(),
            overlaps: AtomicU64::new(0),
            others: instance.others.iter().map(|other| Self::new(other, layout.clone())).collect(),
            layout,
        };
        for (c, command) in instance.commands.iter().enumerate() {
            program.all[c / 64] |= 1 << (c % 64);
            program.add_guard(c, command.guard.clone());
            let updates = command.updates.iter().map(|(rate, assignments)| {
                let rate = program.rate(rate);
                let assignments: Vec<_> =
                    assignments.iter().map(|(v, next)| (*v, program.assignment(c, *v, next))).collect();
                let step = program.step(&rate, &assignments);
                CompiledUpdate { rate, assignments, step }
            });
            let updates: Vec<CompiledUpdate> = updates.collect();
            if updates.iter().all(|update| update.step.is_some()) {
                program.steps[c / 64] |= 1 << (c % 64);
                let assignments = updates.iter().flat_map(|update| &update.assignments);
                assignments.for_each(|(variable, next)| program.keep_range(c, *variable, next));
            }
            program.commands.push(CompiledCommand { updates, span: command.span });
        }
        for together in &instance.model.0.together {
            let groups: Vec<CommandSet> = together.parts.iter().map(|part| program.group(part)).collect();
            if let [group] = &groups[..] {
                group.iter().for_each(|(word, bits)| program.alone[*word] |= bits);
            } else {
                program.together.push(groups);
            }
        }
        program
    }

    fn group(&self, part: &(usize, Option<String>)) -> CommandSet {
        let range = self.instance.groups.get(part).cloned().unwrap_or(0..0);
        let mut group = CommandSet::new();
        for c in range {
            match group.last_mut() {
                Some((word, bits)) if *word == c / 64 => *bits |= 1 << (c % 64),
                _ => group.push((c / 64, 1 << (c % 64))),
            }
        }
        group
    }

    fn add_guard(&mut self, c: usize, guard: Term) {
        let mut conjuncts = Vec::new();
        guard.conjuncts(&mut conjuncts);
        let (mut rest, mut key) = (Vec::new(), None);
        for conjunct in conjuncts {
            // After a conjunct without a table none gets one: later conjuncts may fail where it is
            // false.
            let allowed = if rest.is_empty() { self.tabulated(&conjunct) } else { None };
            if let Some((variable, allowed)) = allowed {
                self.restrict(c, variable, 0, allowed.iter().map(|allowed| *allowed != 0));
            } else if let (true, None, Some(value)) = (rest.is_empty(), key, only_value(&conjunct)) {
                key = Some(value);
            } else {
                rest.push(conjunct);
            }
        }
        let rest = rest.into_iter().reduce(|a, b| Term::And(Box::new([a, b])));
        let rest = rest.map(|rest| Code::new(&rest));
        if let Some((variable, value)) = key {
            self.all[c / 64] &= !(1 << (c % 64));
            let known = self.by_value.iter().position(|(own, _)| *own == variable);
            let place = known.unwrap_or_else(|| {
                self.by_value.push((variable, HashMap::new()));
                self.by_value.len() - 1
            });
            self.by_value[place].1.entry(value).or_default().push((c, rest));
        } else if let Some(rest) = rest {
            self.guards.push((c, rest));
        }
    }

    /// Index of a term's only variable, and the term's value as bits for each of its values.
    fn tabulated(&self, term: &Term) -> Option<(usize, Vec<u64>)> {
        let variable = term.only_variable()?;
        let values = self.layout.fields[variable].values(self.few)?;
        let code = Code::new(term);
        let mut variables = vec![0; variable + 1];
        let mut stack = Vec::new();
        let cells = values.map(|value| {
            variables[variable] = value;
            code.run(&variables, &mut stack)
        });
        Some((variable, cells.collect::<Result<_, EvalError>>().ok()?))
    }

    /// Removes command `c` from a set (0: allowed, 1: in range) of each value that `keeps`
    /// excludes.
    fn restrict(
        &mut self,
        c: usize,
        variable: usize,
        set: usize,
        keeps: impl ExactSizeIterator<Item = bool>,
    ) {
        let words = self.all.len();
        let low = self.layout.fields[variable].low;
        let known = self.tables.iter().position(|t| t.variable == variable);
        let k = known.unwrap_or_else(|| {
            self.tables.push(CommandTable { variable, low, sets: vec![u64::MAX; 2 * words * keeps.len()] });
            self.tables.len() - 1
        });
        for (value, keeps) in keeps.enumerate() {
            if !keeps {
                self.tables[k].sets[(2 * value + set) * words + c / 64] &= !(1 << (c % 64));
            }
        }
    }

    /// Compiles the next value of a variable.
    ///
    /// A constant becomes an increment if the guard allows only one current value.
    fn assignment(&self, c: usize, variable: usize, next: &Term) -> Next {
        let next = assignment(variable, next);
        let (Next::Set(value), Some(table)) = (&next, self.tables.iter().find(|t| t.variable == variable))
        else {
            return next;
        };
        let words = self.all.len();
        let sets = table.sets.chunks(2 * words).zip(table.low..);
        let mut allowed = sets.filter(|(set, _)| set[c / 64] >> (c % 64) & 1 == 1).map(|(_, value)| value);
        match (allowed.next(), allowed.next()) {
            (Some(before), None) => Next::Add(value.wrapping_sub(before)),
            _ => next,
        }
    }

    /// Returns word and number to add (`Update::step`) for an update that adds constants.
    ///
    /// `None` unless its rates are known to be valid, and its variables have tables and are in one
    /// word.
    fn step(&self, rate: &CompiledRate, assignments: &[(usize, Next)]) -> Option<(usize, u64)> {
        let valid = |rate: &f64| (0.0..f64::INFINITY).contains(rate);
        let known = match rate {
            CompiledRate::Constant(rate) => valid(rate),
            CompiledRate::Table(.., rates) => rates.iter().all(valid),
            CompiledRate::Code(_) => false,
        };
        let word = assignments.first().map_or(0, |(variable, _)| self.layout.fields[*variable].word);
        let mut added = 0_u64;
        for (variable, next) in assignments {
            let (field, Next::Add(step)) = (&self.layout.fields[*variable], next) else { return None };
            if field.word != word || field.values(self.few).is_none() {
                return None;
            }
            added = added.wrapping_add((*step as u64) << field.shift);
        }
        known.then_some((word, added))
    }

    /// Removes command `c` from the in-range set of each value from which it leaves the range.
    fn keep_range(&mut self, c: usize, variable: usize, next: &Next) {
        let field = self.layout.fields[variable];
        let Next::Add(step) = next else { unreachable!("a step adds to variables") };
        if *step != 0 {
            let values: Vec<i64> = field.values(self.few).expect("a step has tables").collect();
            self.restrict(c, variable, 1, values.iter().map(|value| field.holds(value.wrapping_add(*step))));
        }
    }

    fn rate(&self, term: &Term) -> CompiledRate {
        if let Term::Value(value) = term {
            return CompiledRate::Constant(value.number().unwrap_or(f64::NAN));
        }
        match self.tabulated(term) {
            Some((variable, cells)) => {
                let low = self.layout.fields[variable].low;
                CompiledRate::Table(variable, low, cells.into_iter().map(f64::from_bits).collect())
            }
            None => CompiledRate::Code(Code::new(term)),
        }
    }

    /// Computes the enabled commands of the state in `scratch.values`.
    #[inline]
    fn enable(&self, scratch: &mut Scratch) -> Result<(), Trouble> {
        let words = self.all.len();
        let Scratch { values, enabled, safe, stack } = scratch;
        enabled.clear();
        enabled.extend_from_slice(&self.all);
        safe.clear();
        safe.extend_from_slice(&self.steps);
        if let ([enabled], [safe]) = (&mut enabled[..], &mut safe[..]) {
            for table in &self.tables {
                let at = 2 * (values[table.variable] - table.low) as usize;
                *enabled &= table.sets[at];
                *safe &= table.sets[at + 1];
            }
        } else {
            for table in &self.tables {
                let at = 2 * words * (values[table.variable] - table.low) as usize;
                let (allowed, kept) = table.sets[at..at + 2 * words].split_at(words);
                enabled.iter_mut().zip(allowed).for_each(|(enabled, allowed)| *enabled &= allowed);
                safe.iter_mut().zip(kept).for_each(|(safe, kept)| *safe &= kept);
            }
        }
        for (c, code) in &self.guards {
            let (word, bit) = (c / 64, 1 << (c % 64));
            if enabled[word] & bit != 0 && self.run(code, *c, values, stack)? == 0 {
                enabled[word] &= !bit;
            }
        }
        for (variable, commands) in &self.by_value {
            for (c, code) in commands.get(&values[*variable]).into_iter().flatten() {
                let (word, bit) = (c / 64, 1 << (c % 64));
                let allowed = |table: &CommandTable| {
                    let at = 2 * words * (values[table.variable] - table.low) as usize;
                    table.sets[at + word] & bit != 0
                };
                if self.tables.iter().all(allowed)
                    && code.as_ref().map_or(Ok(1), |code| self.run(code, *c, values, stack))? != 0
                {
                    enabled[word] |= bit;
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn run(&self, code: &Code, c: usize, values: &[i64], stack: &mut Vec<u64>) -> Result<u64, Trouble> {
        code.run(values, stack).map_err(|fault| self.trouble(c, fault.to_string()))
    }

    #[cold]
    fn trouble(&self, c: usize, what: String) -> Trouble {
        Trouble { what, span: self.commands[c].span }
    }

    #[inline]
    fn rate_of(&self, c: usize, update: &CompiledUpdate, scratch: &mut Scratch) -> Result<f64, Trouble> {
        let rate = match &update.rate {
            CompiledRate::Constant(rate) => *rate,
            CompiledRate::Table(variable, low, rates) => rates[(scratch.values[*variable] - low) as usize],
            CompiledRate::Code(code) => {
                f64::from_bits(self.run(code, c, &scratch.values, &mut scratch.stack)?)
            }
        };
        if (0.0..f64::INFINITY).contains(&rate) { Ok(rate) } else { Err(self.bad_rate(c, rate)) }
    }

    #[cold]
    fn bad_rate(&self, c: usize, rate: f64) -> Trouble {
        let what = format!("the rate is {rate}, and rates are finite and 0 or more; change it or the guard");
        self.trouble(c, what)
    }

    /// Returns the rate of an update, and the next state if the rate is positive.
    #[inline]
    fn follow<const W: usize>(
        &self,
        c: usize,
        update: &CompiledUpdate,
        key: &StateKey<W>,
        scratch: &mut Scratch,
    ) -> Result<(f64, StateKey<W>), Trouble> {
        let mut next = *key;
        let safe = scratch.safe[c / 64] >> (c % 64) & 1 == 1;
        let rate = match (&update.rate, update.step) {
            (CompiledRate::Constant(rate), Some(_)) if safe => *rate,
            (CompiledRate::Table(variable, low, rates), Some(_)) if safe => {
                rates[(scratch.values[*variable] - low) as usize]
            }
            _ => return Ok((self.update(c, update, scratch, &mut next)?, next)),
        };
        let (word, added) = update.step.unwrap_or_default();
        next[word] = next[word].wrapping_add(added);
        Ok((rate, next))
    }

    /// Returns the rate of an update. If it is positive, changes `key` to the next state.
    fn update<const W: usize>(
        &self,
        c: usize,
        update: &CompiledUpdate,
        scratch: &mut Scratch,
        key: &mut StateKey<W>,
    ) -> Result<f64, Trouble> {
        let rate = self.rate_of(c, update, scratch)?;
        if rate == 0.0 {
            return Ok(rate);
        }
        for (variable, next) in &update.assignments {
            let old = scratch.values[*variable];
            let new = match next {
                Next::Set(value) => *value,
                Next::Add(step) => old.wrapping_add(*step),
                Next::Code(code) => self.run(code, c, &scratch.values, &mut scratch.stack)? as i64,
            };
            let field = &self.layout.fields[*variable];
            if !field.holds(new) {
                return Err(self.out_of_range(c, *variable, new));
            }
            let word = &mut key[field.word];
            *word = word.wrapping_add((new.wrapping_sub(old) as u64) << field.shift);
        }
        Ok(rate)
    }

    /// Variable without a range with the largest absolute value in these states, and this value.
    pub(super) fn reached<const W: usize>(&self, states: &[(StateKey<W>, u32)]) -> Option<(usize, i64)> {
        let unbounded = self.instance.variables.iter().enumerate().filter(|(_, v)| v.unbounded);
        let farthest = |(v, _): (usize, _)| {
            let values = states.iter().map(|(key, _)| self.layout.fields[v].value(key));
            values.max_by_key(|value| value.unsigned_abs()).map(|value| (v, value))
        };
        unbounded.filter_map(farthest).max_by_key(|(_, value)| value.unsigned_abs())
    }

    #[cold]
    fn out_of_range(&self, c: usize, variable: usize, value: i64) -> Trouble {
        let info = &self.instance.variables[variable];
        let remedy = if info.unbounded {
            "bound it by a guard, or `truncate` the model"
        } else {
            "widen the range or narrow the guard"
        };
        let what = format!("'{}' would become {value}, outside of {}..{}", info.name, info.low, info.high);
        self.trouble(c, format!("{what}; {remedy}"))
    }

    /// Appends the transitions out of a state as a row, those of other instances with the rate 0.
    #[inline]
    pub(super) fn all_successors<const W: usize>(
        &self,
        key: &StateKey<W>,
        scratch: &mut Scratch,
        rows: &mut PackedRows<W>,
    ) -> Result<(), Trouble> {
        self.successors(key, scratch, rows)?;
        if self.others.is_empty() { Ok(()) } else { self.add_others(key, scratch, rows) }
    }

    #[cold]
    fn add_others<const W: usize>(
        &self,
        key: &StateKey<W>,
        scratch: &mut Scratch,
        rows: &mut PackedRows<W>,
    ) -> Result<(), Trouble> {
        for other in &self.others {
            let mut more = PackedRows::default();
            other.successors(key, scratch, &mut more)?;
            more.keys.into_iter().for_each(|next| rows.push(next, 0.0));
            rows.end();
        }
        Ok(())
    }

    /// Appends the transitions out of a state as a row.
    #[inline]
    pub(super) fn successors<const W: usize>(
        &self,
        key: &StateKey<W>,
        scratch: &mut Scratch,
        rows: &mut PackedRows<W>,
    ) -> Result<(), Trouble> {
        self.layout.unpack(key, &mut scratch.values);
        self.enable(scratch)?;
        let choices = self.choices(scratch);
        if choices > 1.0 {
            self.overlaps.fetch_add(1, Ordering::Relaxed);
        }
        rows.begin(*key, choices);
        for word in 0..self.all.len() {
            for c in ones(word, scratch.enabled[word] & self.alone[word]) {
                let mut sum = 0.0;
                for update in &self.commands[c].updates {
                    let (rate, next) = self.follow(c, update, key, scratch)?;
                    if rate > 0.0 {
                        rows.push(next, rate);
                    }
                    sum += rate;
                }
                self.expect_sum(c, sum)?;
            }
        }
        for groups in &self.together {
            let possible =
                |group: &CommandSet| group.iter().any(|(word, bits)| scratch.enabled[*word] & bits != 0);
            if groups.iter().all(possible) {
                self.combine(groups, 1.0, *key, scratch, rows)?;
            }
        }
        rows.end();
        Ok(())
    }

    /// Appends the transitions for every combination of one enabled command per group.
    fn combine<const W: usize>(
        &self,
        groups: &[CommandSet],
        rate: f64,
        key: StateKey<W>,
        scratch: &mut Scratch,
        rows: &mut PackedRows<W>,
    ) -> Result<(), Trouble> {
        let Some((first, rest)) = groups.split_first() else {
            rows.push(key, rate);
            return Ok(());
        };
        for (word, of_group) in first {
            for c in ones(*word, scratch.enabled[*word] & of_group) {
                let mut sum = 0.0;
                for update in &self.commands[c].updates {
                    let (own, next) = self.follow(c, update, &key, scratch)?;
                    let product = rate * own;
                    if product == f64::INFINITY {
                        return Err(self.bad_rate(c, product));
                    }
                    if product > 0.0 {
                        self.combine(rest, product, next, scratch, rows)?;
                    }
                    sum += own;
                }
                self.expect_sum(c, sum)?;
            }
        }
        Ok(())
    }

    /// Returns a rate; `None` if it is no longer a constant or a table over the same variable.
    pub(super) fn factor(&self, factor: &RateFactor) -> Option<f64> {
        match (&self.commands.get(factor.command)?.updates.get(factor.update)?.rate, factor.value) {
            (CompiledRate::Constant(rate), _) => Some(*rate),
            (CompiledRate::Table(own, low, rates), Some((variable, value))) if *own == variable => {
                rates.get(usize::try_from(value - low).ok()?).copied()
            }
            _ => None,
        }
    }

    /// Appends to `row` the products of rates of the transitions out of a state.
    ///
    /// Targets may repeat. Rates that are 0 are appended to `zeros`. `None` if a rate depends on
    /// several variables, or if the state has no valid transitions.
    pub(super) fn products<const W: usize>(
        &self,
        key: &StateKey<W>,
        scratch: &mut Scratch,
        row: &mut Vec<(StateKey<W>, Vec<RateFactor>)>,
        zeros: &mut Vec<RateFactor>,
    ) -> Option<()> {
        self.layout.unpack(key, &mut scratch.values);
        self.enable(scratch).ok()?;
        let alone = |word: usize| ones(word, scratch.enabled[word] & self.alone[word]);
        let alone: Vec<Vec<CommandSet>> =
            (0..self.all.len()).flat_map(alone).map(|c| vec![vec![(c / 64, 1 << (c % 64))]]).collect();
        let all = alone.iter().chain(&self.together);
        all.map(|groups| self.product(groups, &mut Vec::new(), *key, scratch, (row, zeros))).collect()
    }

    /// Appends the product for each combination of one enabled command per group.
    ///
    /// `product` has the rates of the previous groups.
    fn product<const W: usize>(
        &self,
        groups: &[CommandSet],
        product: &mut Vec<RateFactor>,
        key: StateKey<W>,
        scratch: &mut Scratch,
        (row, zeros): (&mut Vec<(StateKey<W>, Vec<RateFactor>)>, &mut Vec<RateFactor>),
    ) -> Option<()> {
        let Some((first, rest)) = groups.split_first() else {
            row.push((key, product.clone()));
            return Some(());
        };
        for (word, of_group) in first {
            for c in ones(*word, scratch.enabled[*word] & of_group) {
                for (u, update) in self.commands[c].updates.iter().enumerate() {
                    let value = match &update.rate {
                        CompiledRate::Constant(_) => None,
                        CompiledRate::Table(variable, ..) => Some((*variable, scratch.values[*variable])),
                        CompiledRate::Code(_) => return None,
                    };
                    let factor = RateFactor { command: c, update: u, value };
                    let (rate, next) = self.follow(c, update, &key, scratch).ok()?;
                    if rate == 0.0 {
                        zeros.push(factor);
                        continue;
                    }
                    product.push(factor);
                    self.product(rest, product, next, scratch, (row, zeros))?;
                    product.pop();
                }
            }
        }
        Some(())
    }

    /// Appends the derivatives of the rates out of a state to `row`; targets may repeat.
    ///
    /// `tangents` has the derivative of each update's rate, by command. They read `symbol`, the
    /// bits of the constant's value, as the variable after those of the model.
    pub(super) fn tangents<const W: usize>(
        &self,
        key: &StateKey<W>,
        (tangents, symbol): (&[Vec<Code>], i64),
        scratch: &mut Scratch,
        row: &mut Vec<(StateKey<W>, f64)>,
    ) -> Result<(), Trouble> {
        self.layout.unpack(key, &mut scratch.values);
        self.enable(scratch)?;
        scratch.values.push(symbol);
        let alone = |word: usize| ones(word, scratch.enabled[word] & self.alone[word]);
        let alone: Vec<Vec<CommandSet>> =
            (0..self.all.len()).flat_map(alone).map(|c| vec![vec![(c / 64, 1 << (c % 64))]]).collect();
        for groups in alone.iter().chain(&self.together) {
            self.tangent(groups, (1.0, 0.0), *key, tangents, scratch, row)?;
        }
        Ok(())
    }

    /// Appends the derivative for each combination of one enabled command per group.
    ///
    /// `rate` is the product of the rates of the previous groups, and `change` its derivative.
    fn tangent<const W: usize>(
        &self,
        groups: &[CommandSet],
        (rate, change): (f64, f64),
        key: StateKey<W>,
        tangents: &[Vec<Code>],
        scratch: &mut Scratch,
        row: &mut Vec<(StateKey<W>, f64)>,
    ) -> Result<(), Trouble> {
        let Some((first, rest)) = groups.split_first() else {
            row.push((key, change));
            return Ok(());
        };
        for (word, of_group) in first {
            for c in ones(*word, scratch.enabled[*word] & of_group) {
                for (update, tangent) in self.commands[c].updates.iter().zip(&tangents[c]) {
                    let (own, next) = self.follow(c, update, &key, scratch)?;
                    let own_change =
                        f64::from_bits(self.run(tangent, c, &scratch.values, &mut scratch.stack)?);
                    if own == 0.0 && own_change == 0.0 {
                        continue;
                    }
                    if own == 0.0 || !own_change.is_finite() {
                        let what = format!("the rate is {own} and its derivative {own_change}");
                        return Err(self.trouble(c, format!("{what}; guard it, or give another value")));
                    }
                    let product = (rate * own, rate * own_change + change * own);
                    self.tangent(rest, product, next, tangents, scratch, row)?;
                }
            }
        }
        Ok(())
    }

    /// Number of enabled, equally likely choices of commands in discrete time; 1 in continuous
    /// time.
    #[inline]
    fn choices(&self, scratch: &Scratch) -> f64 {
        if !self.discrete {
            return 1.0;
        }
        let bits = |word: usize, among: u64| u64::from((scratch.enabled[word] & among).count_ones());
        let alone: u64 = self.alone.iter().enumerate().map(|(word, among)| bits(word, *among)).sum();
        let enabled =
            |group: &CommandSet| group.iter().map(|(word, among)| bits(*word, *among) as f64).sum::<f64>();
        let together = self.together.iter().map(|groups| groups.iter().map(enabled).product::<f64>());
        alone as f64 + together.sum::<f64>()
    }

    /// Fails in discrete time unless the probabilities of a command sum to 1, within 10⁻¹².
    #[inline]
    fn expect_sum(&self, c: usize, sum: f64) -> Result<(), Trouble> {
        if self.discrete && (sum - 1.0).abs() > 1e-12 { Err(self.bad_sum(c, sum)) } else { Ok(()) }
    }

    #[cold]
    fn bad_sum(&self, c: usize, sum: f64) -> Trouble {
        let what = format!(
            "the probabilities of this command sum to {sum}: expected 1; write fractions such as 1/3"
        );
        self.trouble(c, what)
    }

    /// Returns the synchronisations labelled `action` (`None`: unlabelled), as groups of commands.
    pub(super) fn seen_as(&self, action: Option<&str>) -> Vec<Vec<CommandSet>> {
        let all = self.instance.model.0.together.iter().filter(|t| t.seen.as_deref() == action);
        all.map(|t| t.parts.iter().map(|part| self.group(part)).collect()).collect()
    }

    /// Sums the rates of the given synchronisations in the state in `scratch.values`.
    ///
    /// In discrete time it is the probability that one of them happens. The second number is the
    /// derivative of the sum; `tangents` has the derivative of each update's rate, by command, and
    /// is empty if none is asked.
    pub(super) fn total_rate(
        &self,
        all: &[Vec<CommandSet>],
        tangents: &[Vec<Code>],
        scratch: &mut Scratch,
    ) -> Result<(f64, f64), Trouble> {
        self.enable(scratch)?;
        let (mut total, mut total_change) = (0.0, 0.0);
        let enabled = |group: &CommandSet, scratch: &Scratch| {
            group.iter().any(|(word, of_group)| scratch.enabled[*word] & of_group != 0)
        };
        for groups in all {
            // A rate that is infinite or has no derivative does not matter without the others.
            if !groups.iter().all(|group| enabled(group, scratch)) {
                continue;
            }
            let (mut product, mut product_change) = (1.0, 0.0);
            for group in groups {
                let (mut sum, mut change) = (0.0, 0.0);
                for (word, of_group) in group {
                    for c in ones(*word, scratch.enabled[*word] & of_group) {
                        for update in &self.commands[c].updates {
                            sum += self.rate_of(c, update, scratch)?;
                        }
                        for tangent in tangents.get(c).into_iter().flatten() {
                            let bits = self.run(tangent, c, &scratch.values, &mut scratch.stack)?;
                            change += f64::from_bits(bits);
                        }
                    }
                }
                product_change = product_change * sum + product * change;
                product *= sum;
            }
            total += product;
            total_change += product_change;
        }
        Ok((if total == 0.0 { 0.0 } else { total / self.choices(scratch) }, total_change))
    }
}

/// Variable and value of a conjunct `v = 5`.
pub(super) fn only_value(conjunct: &Term) -> Option<(usize, i64)> {
    let Term::Apply(Op::EqualInt, sides) = conjunct else { return None };
    match &sides[..] {
        [Term::Variable(v, Type::Int), Term::Value(Value::Int(value))]
        | [Term::Value(Value::Int(value)), Term::Variable(v, Type::Int)] => Some((*v, *value)),
        _ => None,
    }
}

/// Indices of the bits set in a word of a set.
pub(super) fn ones(word: usize, mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (bits != 0).then_some(bits.trailing_zeros())?;
        bits &= bits - 1;
        Some(word * 64 + bit as usize)
    })
}

/// Compiles the next value of a variable, regardless of guards.
pub(super) fn assignment(variable: usize, next: &Term) -> Next {
    let own = |term: &Term| *term == Term::Variable(variable, Type::Int);
    match next {
        Term::Value(Value::Int(value)) => Next::Set(*value),
        Term::Value(Value::Bool(value)) => Next::Set(i64::from(*value)),
        Term::Variable(v, _) if *v == variable => Next::Add(0),
        Term::Apply(op, parts) => match (op, &parts[..]) {
            (Op::AddInt, [a, Term::Value(Value::Int(step))] | [Term::Value(Value::Int(step)), a])
                if own(a) =>
            {
                Next::Add(*step)
            }
            (Op::SubtractInt, [a, Term::Value(Value::Int(step))]) if own(a) => Next::Add(step.wrapping_neg()),
            _ => Next::Code(Code::new(next)),
        },
        _ => Next::Code(Code::new(next)),
    }
}
