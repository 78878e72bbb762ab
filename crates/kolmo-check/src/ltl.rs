//! Formulas of LTL: deterministic automata by progression, and their products with a chain.
//!
//! A formula is a disjunction of sets of obligations, which are subformulas. Reading a state
//! replaces an obligation by a formula for the rest of the path. Sets that contain another one are
//! left out. So there are finitely many formulas, the states of the automaton.
//!
//! In a closed class every finite path recurs infinitely often, almost surely. If b surely holds
//! from all of its states, so does `a R b`. Otherwise b fails infinitely often, and `a R b` equals
//! `b U (a & b)`. From the inside out this removes every `R` without an end (compare J. Esparza,
//! J. Křetínský and S. Sickert, "One theorem to rule them all", LICS 2018). The other formulas hold
//! exactly if the automaton reaches the formula "true".

use std::collections::HashMap;
use std::rc::Rc;

use crate::language;
use crate::source::{ChainRef, refuse};
use crate::state_values::{EachState, Everywhere, expect_loops, row_of};
use kolmo::Result;
use kolmo::lane::expect_memory;
use kolmo::transient::{Chain, TransitionList, may_reach};
use kolmo_model::properties::Ltl;

/// Numbers of two formulas: without any set of obligations (false), and with an empty set (true).
const FALSE: u32 = 0;
const TRUE: u32 = 1;
/// Upper time bound of an unbounded operator.
const ENDLESS: u32 = u32::MAX;
/// Maximum number of formulas, and maximum number of sets of obligations in a formula.
const MOST: (usize, usize) = (20_000, 1000);

/// Obligation on a path. Operands are numbers of formulas.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum LtlNode {
    /// The first state of the path is in the state set of this number.
    State(u32),
    Next(u32),
    Until(UntilOp),
}

/// `left U[from,to] right`, or its dual `left R[from,to] right`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct UntilOp {
    release: bool,
    left: u32,
    right: u32,
    from: u32,
    to: u32,
}

/// Sets of obligations, ascending.
type Sets = Vec<Vec<u32>>;

fn too_large<T>() -> Result<T> {
    let (states, sets) = MOST;
    refuse(format!(
        "the automaton of a formula of LTL has more than {states} states, or {sets} sets of obligations in one; ask for \
         parts of the formula, or for shorter times"
    ))
}

/// Automaton of a formula, and the chain that it reads.
struct Automaton<'a, 'b> {
    each: &'a EachState<'b>,
    /// Set bits: numbers of the sets that a state is in.
    letters: Vec<u64>,
    /// Closed classes, and the class of each state. Both are empty if no `R` needs them.
    classes: Vec<Vec<u32>>,
    class_of: Vec<Option<u32>>,
    nodes: Vec<LtlNode>,
    numbers_of_nodes: HashMap<LtlNode, u32>,
    formulas: Vec<Rc<Sets>>,
    numbers: HashMap<Rc<Sets>, u32>,
    /// Results of [`Self::step`] and [`Self::reduced`].
    steps: HashMap<(u32, u64), u32>,
    reductions: HashMap<(u32, u32), u32>,
    /// True for a nondeterministic automaton, whose states are single sets of obligations.
    chooses: bool,
}

/// Reachable pairs of a state and the formula that remains after reading it.
#[derive(Default)]
struct ChainProduct {
    states: Vec<(u32, u32)>,
    places: HashMap<(u32, u32), u32>,
    list: TransitionList,
    /// Pairs in which the paths from each state begin.
    starts: Vec<Vec<u32>>,
}

impl ChainProduct {
    /// Pairs in which nothing remains to be fulfilled.
    fn fulfilled(&self) -> Vec<bool> {
        self.states.iter().map(|(_, formula)| *formula == TRUE).collect()
    }

    /// Takes the transitions as a chain.
    fn chain(&mut self, discrete: bool) -> Result<Chain> {
        let list = std::mem::take(&mut self.list);
        language::of_list("a product with an automaton", self.states.len(), list, discrete)
    }
}

impl<'a, 'b> Automaton<'a, 'b> {
    /// Creates the automaton of a formula, and returns the formula's number.
    fn new(each: &'a EachState<'b>, ltl: &Ltl, chooses: bool) -> Result<(Self, u32)> {
        let mut own = Self {
            each,
            letters: vec![0; each.states()],
            classes: Vec::new(),
            class_of: Vec::new(),
            nodes: Vec::new(),
            numbers_of_nodes: HashMap::new(),
            formulas: Vec::new(),
            numbers: HashMap::new(),
            steps: HashMap::new(),
            reductions: HashMap::new(),
            chooses,
        };
        own.formula(Vec::new())?;
        own.formula(vec![Vec::new()])?;
        let formula = own.compiled(ltl)?;
        if own.nodes.iter().any(|node| matches!(node, LtlNode::Next(_))) {
            expect_loops(each.source)?;
        }
        if !chooses && own.is_eternal(formula) {
            own.classes = each.backward()?.closed_classes();
            own.class_of = vec![None; each.states()];
            for (class, states) in (0u32..).zip(&own.classes) {
                states.iter().for_each(|&state| own.class_of[state as usize] = Some(class));
            }
        }
        Ok((own, formula))
    }

    fn compiled(&mut self, ltl: &Ltl) -> Result<u32> {
        match ltl {
            Ltl::State(condition) => {
                let set = self.nodes.iter().filter(|node| matches!(node, LtlNode::State(_))).count();
                if set == 64 {
                    return refuse("a formula of LTL has more than 64 conditions of states");
                }
                let states = self.each.sure(condition)?;
                self.letters
                    .iter_mut()
                    .zip(states)
                    .for_each(|(all, member)| *all |= u64::from(member) << set);
                self.node(LtlNode::State(set as u32))
            }
            Ltl::And(parts) => parts.iter().try_fold(TRUE, |all, part| {
                let part = self.compiled(part)?;
                self.and(all, part)
            }),
            Ltl::Or(parts) => parts.iter().try_fold(FALSE, |all, part| {
                let part = self.compiled(part)?;
                self.or(all, part)
            }),
            Ltl::Next(then) => {
                let then = self.compiled(then)?;
                self.node(LtlNode::Next(then))
            }
            Ltl::Until { release, operands, times } => {
                let (left, right) = (self.compiled(&operands[0])?, self.compiled(&operands[1])?);
                // Larger finite times have too many formulas.
                let [from, to] = [times.0, times.1].map(|time| match time.is_infinite() {
                    true => ENDLESS,
                    false => time.min(1e9) as u32,
                });
                self.node(LtlNode::Until(UntilOp { release: *release, left, right, from, to }))
            }
        }
    }

    /// Returns the number of a formula, without redundant sets.
    ///
    /// A set is redundant if it contains another one. If the automaton chooses one set, only equal
    /// sets are redundant, because a larger set may keep a promise that a smaller one postpones.
    fn formula(&mut self, mut sets: Sets) -> Result<u32> {
        sets.sort_unstable_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
        let mut least: Sets = Vec::new();
        for set in sets {
            let contains = |part: &Vec<u32>| match self.chooses {
                true => *part == set,
                false => part.iter().all(|node| set.binary_search(node).is_ok()),
            };
            if !least.iter().any(contains) {
                least.push(set);
            }
        }
        if let Some(&known) = self.numbers.get(&least) {
            return Ok(known);
        }
        if self.formulas.len() == MOST.0 || least.len() > MOST.1 {
            return too_large();
        }
        let number = self.formulas.len() as u32;
        let least = Rc::new(least);
        self.formulas.push(least.clone());
        self.numbers.insert(least, number);
        Ok(number)
    }

    /// Number of the formula that is a single obligation.
    fn node(&mut self, node: LtlNode) -> Result<u32> {
        let next = self.nodes.len() as u32;
        let number = *self.numbers_of_nodes.entry(node).or_insert(next);
        if number == next {
            self.nodes.push(node);
        }
        self.formula(vec![vec![number]])
    }

    fn and(&mut self, a: u32, b: u32) -> Result<u32> {
        let (a, b) = (self.formulas[a as usize].clone(), self.formulas[b as usize].clone());
        if a.len() * b.len() > MOST.0 {
            return too_large();
        }
        let union = |a: &[u32], b: &[u32]| {
            let mut all = [a, b].concat();
            all.sort_unstable();
            all.dedup();
            all
        };
        self.formula(a.iter().flat_map(|a| b.iter().map(|b| union(a, b))).collect())
    }

    fn or(&mut self, a: u32, b: u32) -> Result<u32> {
        let sets = [&self.formulas[a as usize][..], &self.formulas[b as usize]].concat();
        self.formula(sets)
    }

    /// Replaces each obligation of `formula`, a subformula to fulfil, by the result of `by`.
    fn replaced(&mut self, formula: u32, by: &dyn Fn(&mut Self, u32) -> Result<u32>) -> Result<u32> {
        let sets = self.formulas[formula as usize].clone();
        sets.iter().try_fold(FALSE, |all, set| {
            let set = set.iter().try_fold(TRUE, |all, &node| {
                let by = by(self, node)?;
                self.and(all, by)
            })?;
            self.or(all, set)
        })
    }

    /// Formula that remains after reading a state with this letter.
    fn step(&mut self, formula: u32, letter: u64) -> Result<u32> {
        if let Some(&known) = self.steps.get(&(formula, letter)) {
            return Ok(known);
        }
        let found = self.replaced(formula, &|own, node| own.after(node, letter))?;
        self.steps.insert((formula, letter), found);
        Ok(found)
    }

    fn after(&mut self, number: u32, letter: u64) -> Result<u32> {
        let own = match self.nodes[number as usize] {
            LtlNode::State(set) => return Ok(if letter >> set & 1 == 1 { TRUE } else { FALSE }),
            LtlNode::Next(then) => return Ok(then),
            node if !self.chooses && self.is_tail(number) => return self.node(node),
            LtlNode::Until(own) => own,
        };
        let (left, right) = (self.step(own.left, letter)?, self.step(own.right, letter)?);
        if own.to == 0 {
            return Ok(right);
        }
        let to = if own.to == ENDLESS { ENDLESS } else { own.to - 1 };
        let rest = self.node(LtlNode::Until(UntilOp { from: own.from.saturating_sub(1), to, ..own }))?;
        let later = if own.release { self.or(left, rest)? } else { self.and(left, rest)? };
        match (own.from, own.release) {
            (0, false) => self.or(right, later),
            (0, true) => self.and(right, later),
            _ => Ok(later),
        }
    }

    /// Returns `F b` or `G b` without times.
    fn unbounded(&self, number: u32) -> Option<UntilOp> {
        let LtlNode::Until(own) = self.nodes[number as usize] else { return None };
        let left = if own.release { FALSE } else { TRUE };
        (own.left == left && own.right > TRUE && (own.from, own.to) == (0, ENDLESS)).then_some(own)
    }

    /// True for `F G b` and `G F b`, which do not depend on any finite part of a path.
    fn is_tail(&self, number: u32) -> bool {
        let Some(own) = self.unbounded(number) else { return false };
        self.formulas[own.right as usize].iter().flatten().all(|&inner| {
            self.is_tail(inner) || self.unbounded(inner).is_some_and(|inner| inner.release != own.release)
        })
    }

    /// True if a formula contains an `R` without an end.
    fn is_eternal(&self, formula: u32) -> bool {
        let of_node = |&node: &u32| match self.nodes[node as usize] {
            LtlNode::State(_) => false,
            LtlNode::Next(then) => self.is_eternal(then),
            LtlNode::Until(own) => {
                (own.release && own.to == ENDLESS) || self.is_eternal(own.left) || self.is_eternal(own.right)
            }
        };
        self.formulas[formula as usize].iter().flatten().any(of_node)
    }

    /// Formula without an endless `R` that equals `formula` on almost all paths in a closed class.
    fn reduced(&mut self, formula: u32, class: u32) -> Result<u32> {
        if let Some(&known) = self.reductions.get(&(formula, class)) {
            return Ok(known);
        }
        let found = match self.is_eternal(formula) {
            true => self.replaced(formula, &|own, node| own.reduced_node(node, class))?,
            false => formula,
        };
        self.reductions.insert((formula, class), found);
        Ok(found)
    }

    fn reduced_node(&mut self, number: u32, class: u32) -> Result<u32> {
        let own = match self.nodes[number as usize] {
            node @ LtlNode::State(_) => return self.node(node),
            LtlNode::Next(then) => {
                let then = self.reduced(then, class)?;
                return self.node(LtlNode::Next(then));
            }
            LtlNode::Until(own) => own,
        };
        let (left, right) = (self.reduced(own.left, class)?, self.reduced(own.right, class)?);
        if !own.release || own.to != ENDLESS {
            let known = right <= TRUE && own.from == 0;
            return if known { Ok(right) } else { self.node(LtlNode::Until(UntilOp { left, right, ..own })) };
        }
        if own.from > 0 {
            let rest = self.node(LtlNode::Until(UntilOp { from: own.from - 1, ..own }))?;
            let rest = self.reduced(rest, class)?;
            let rest = self.node(LtlNode::Next(rest))?;
            return self.or(left, rest);
        }
        if self.is_sure(right, class)? {
            return Ok(TRUE);
        }
        let both = self.and(left, right)?;
        let until = UntilOp { release: false, left: right, right: both, ..own };
        if both == FALSE { Ok(FALSE) } else { self.node(LtlNode::Until(until)) }
    }

    /// True if a formula without an endless `R` almost surely holds from all states of a class.
    fn is_sure(&mut self, formula: u32, class: u32) -> Result<bool> {
        let states = self.classes[class as usize].clone();
        let mut product = self.product(formula, &states, false)?;
        let all = vec![true; product.states.len()];
        let may = may_reach(&*product.chain(false)?.transitions, &product.fulfilled(), &all);
        Ok(may.into_iter().all(|may| may))
    }

    /// Explores the product with the paths from some states.
    fn product(&mut self, formula: u32, starts: &[u32], reduces: bool) -> Result<ChainProduct> {
        let mut found = ChainProduct::default();
        for &state in starts {
            let start = self.enter(formula, state, reduces, &mut found)?;
            found.starts.push(start);
        }
        let mut next = 0;
        while let Some(&(state, formula)) = found.states.get(next) {
            if next % (1 << 16) == 0 {
                // The next pairs, with transitions and in solvers, take about 256 bytes each.
                expect_memory(1 << 24, || format!("a product of {next} states with an automaton"))?;
                self.each.told.borrow_mut().progress(0, 0)?;
            }
            let row = if formula > TRUE { row_of(self.each.source, state).0 } else { Vec::new() };
            for (to, rate) in row {
                let entered = self.enter(formula, to, reduces, &mut found)?;
                found.list.extend(entered.into_iter().map(|place| (next as u32, place, rate)));
            }
            next += 1;
        }
        found.places = HashMap::new();
        Ok(found)
    }

    /// Reads a state, and returns the pairs that this leads to.
    fn enter(
        &mut self,
        formula: u32,
        state: u32,
        reduces: bool,
        found: &mut ChainProduct,
    ) -> Result<Vec<u32>> {
        let mut after = self.step(formula, self.letters[state as usize])?;
        if reduces && let Some(Some(class)) = self.class_of.get(state as usize) {
            after = self.reduced(after, *class)?;
        }
        let all = match self.chooses {
            false => vec![after],
            true => {
                let sets = self.formulas[after as usize].clone();
                sets.iter().map(|set| self.formula(vec![set.clone()])).collect::<Result<_>>()?
            }
        };
        let place = |formula| {
            let ChainProduct { states, places, .. } = &mut *found;
            *places.entry((state, formula)).or_insert_with(|| {
                states.push((state, formula));
                states.len() as u32 - 1
            })
        };
        Ok(all.into_iter().map(place).collect())
    }

    /// True if a step between two pairs of a product fulfils an obligation, or does not have it.
    ///
    /// It fulfils `a U b` if the obligations after the step include those that `b` leaves.
    fn is_kept(&mut self, promise: u32, (_, from): (u32, u32), (state, to): (u32, u32)) -> Result<bool> {
        if !self.formulas[from as usize][0].contains(&promise) {
            return Ok(true);
        }
        let LtlNode::Until(own) = self.nodes[promise as usize] else { return Ok(true) };
        let right = self.step(own.right, self.letters[state as usize])?;
        let kept = &self.formulas[to as usize][0];
        Ok(self.formulas[right as usize].iter().any(|set| set.iter().all(|node| kept.contains(node))))
    }

    /// Finds the pairs of a product with a path that keeps all promises.
    ///
    /// Source: E. A. Emerson and C.-L. Lei, "Efficient model checking in fragments of the
    /// propositional mu-calculus", LICS 1986.
    fn fair(&mut self, product: &mut ChainProduct) -> Result<Vec<bool>> {
        let is_promise =
            |node: &LtlNode| matches!(node, LtlNode::Until(own) if !own.release && own.to == ENDLESS);
        let promises = (0u32..).zip(&self.nodes).filter(|(_, node)| is_promise(node)).map(|(k, _)| Some(k));
        let promises: Vec<Option<u32>> = promises.chain([None]).collect();
        let list = product.list.clone();
        let chain = product.chain(false)?;
        let mut fair = vec![true; product.states.len()];
        loop {
            let before = fair.clone();
            for promise in &promises {
                let mut goals = product.fulfilled();
                for (&from, &to) in list.from.iter().zip(&list.to) {
                    let (from, to) = (from as usize, to as usize);
                    goals[from] = goals[from]
                        || (fair[from] && fair[to])
                            && match promise {
                                Some(node) => {
                                    self.is_kept(*node, product.states[from], product.states[to])?
                                }
                                None => true,
                            };
                }
                fair = may_reach(&*chain.transitions, &goals, &fair);
            }
            if fair == before {
                return Ok(fair);
            }
        }
    }
}

impl EachState<'_> {
    /// Computes the probability of a formula of LTL from every state.
    pub(crate) fn ltl(&self, ltl: &Ltl) -> Result<Everywhere> {
        self.on_product(ltl, |product, chain, _| {
            let all = vec![true; chain.states()];
            chain.until(&all, &product.fulfilled(), 0.0, f64::INFINITY)
        })
    }

    /// Computes rewards until a formula of LTL is fulfilled, infinite unless that is sure.
    pub(crate) fn reward_until_ltl(&self, ltl: &Ltl, rewards: &[f64]) -> Result<Everywhere> {
        self.on_product(ltl, |product, chain, eternal| {
            if eternal {
                return refuse(
                    "reward until a formula of LTL needs one that a finite path fulfils: without G, W and R",
                );
            }
            let rewards: Vec<f64> =
                product.states.iter().map(|(state, _)| rewards[*state as usize]).collect();
            chain.reward_until(&product.fulfilled(), &rewards).map(Everywhere::from)
        })
    }

    /// Calls `of` with the product, its chain, and true for a formula with an endless `R`.
    fn on_product(
        &self,
        ltl: &Ltl,
        of: impl Fn(&ChainProduct, &EachState<'_>, bool) -> Result<Everywhere>,
    ) -> Result<Everywhere> {
        let (mut automaton, formula) = Automaton::new(self, ltl, false)?;
        let states: Vec<u32> = (0..self.states() as u32).collect();
        let mut product = automaton.product(formula, &states, true)?;
        let chain = product.chain(self.is_discrete())?;
        let told = &mut **self.told.borrow_mut();
        let mut own = EachState::new(ChainRef::File(&chain), self.epsilon, told);
        own.given.clone_from(&self.given);
        let found = of(&product, &own, automaton.is_eternal(formula))?;
        Ok(found.at(product.starts.iter().map(|start| start[0] as usize)))
    }

    /// Finds the states with a path that satisfies a formula of LTL. Their value is 1.
    pub(crate) fn exists(&self, ltl: &Ltl) -> Result<Everywhere> {
        let (mut automaton, formula) = Automaton::new(self, ltl, true)?;
        let states: Vec<u32> = (0..self.states() as u32).collect();
        let mut product = automaton.product(formula, &states, false)?;
        let fair = automaton.fair(&mut product)?;
        let any = |start: &Vec<u32>| start.iter().any(|&place| fair[place as usize]);
        Ok(Everywhere::exact(product.starts.iter().map(any)))
    }
}
