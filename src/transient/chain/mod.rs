//! Chains: transitions of states, with labels, rewards and initial distributions.
//!
//! [`transitions`] is the interface of every source of rows; [`csr`] stores them, [`distributed`] stores them
//! over several ranks, with their rewards in [`distributed_rewards`]. [`scan`] passes over all rows before a run
//! and finds their [`statistics`]; a [`prescan`] does so while devices open. [`absorbing_states`] and [`recurrent_classes`] analyse the graph.

pub mod absorbing_states;
pub(crate) mod csr;
pub(crate) mod distributed;
pub(crate) mod distributed_rewards;
pub(super) mod prescan;
mod prescanned;
pub(super) mod recurrent_classes;
pub(crate) mod scan;
pub(crate) mod state_names;
pub(crate) mod statistics;
pub(crate) mod transitions;

use std::ops::{Deref, Range};
use std::sync::Arc;

use self::csr::Csr;
use self::prescanned::Prescanned;
use self::state_names::StateNames;
use self::transitions::{Distributed, Take, TransitionList, Transitions, exit_rate};
use crate::lane::cpu::zeroed;
use crate::sparse::CsrMatrix;
use crate::{Error, Result};

/// Sets of states by name, states ascending in each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels {
    /// (name, states with that label), in the file's order of names.
    pub sets: Vec<(String, Vec<u32>)>,
}

impl Labels {
    /// The states with that label.
    pub fn get(&self, name: &str) -> Option<&[u32]> {
        self.sets.iter().find(|(n, _)| n == name).map(|(_, s)| &s[..])
    }
}

/// A rate reward: what a state earns per unit of time.
#[derive(Debug, Clone, PartialEq)]
pub struct Reward {
    /// Name as in the file, or its stem.
    pub name: String,
    /// One value a state; where each rank has read its part of a chain, one of each state in its blocks will do.
    pub values: Vec<f64>,
}

/// A chain as read from files.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChainFile {
    /// Number of states.
    pub states: usize,
    /// Number of the first state in the file, and in files beside it: 1 in MRMC's form.
    pub first: u64,
    /// The transitions.
    pub transitions: TransitionList,
    /// Labels, from the same file or a `.lab` beside it.
    pub labels: Labels,
    /// Rewards that the same file holds (DRN, UMB).
    pub rewards: Vec<Reward>,
    /// Names of the states, where the same file has some (DRN, UMB).
    pub names: Option<StateNames>,
    /// Things the user should know: ignored parts, matrices that look like those of another kind of chain.
    pub warnings: Vec<String>,
}

/// Where a chain begins.
#[derive(Debug, Clone, PartialEq)]
pub enum Initial {
    /// In one state.
    State(usize),
    /// In one of these states, each as likely as the others.
    Uniform(Vec<u32>),
    /// One probability a state.
    Distribution(Vec<f64>),
}

impl Initial {
    /// One probability a state, checked: finite, not negative, adding up to 1 within rounding of `n` numbers
    /// that were printed with six digits or more.
    pub fn probabilities(&self, n: usize) -> Result<Vec<f64>> {
        self.probabilities_of(0..n, n)
    }

    /// Bound on the l1 error of the probabilities as numbers: a third is none, nor is it one when states are renumbered.
    pub(crate) fn rounding(&self) -> f64 {
        match self {
            Self::State(_) => 0.0,
            Self::Uniform(_) | Self::Distribution(_) => 0.5 * f64::EPSILON,
        }
    }

    /// Those of some states; all are checked.
    pub fn probabilities_of(&self, states: Range<usize>, n: usize) -> Result<Vec<f64>> {
        let state = |s: usize| match s < n {
            true => Ok(s),
            false => {
                Err(Error::Invalid(format!("initial state {s} is out of range: expected 0 to {}", n - 1)))
            }
        };
        let mut p: Vec<f64> = zeroed(states.len());
        let mut set = |state: usize, probability: f64| {
            if states.contains(&state) {
                p[state - states.start] = probability;
            }
        };
        match self {
            Self::State(s) => set(state(*s)?, 1.0),
            Self::Uniform(among) => {
                if among.is_empty() {
                    return Err(Error::Invalid(
                        "the set of initial states is empty: expected at least one".to_owned(),
                    ));
                }
                for &s in among {
                    set(state(s as usize)?, 1.0 / among.len() as f64);
                }
            }
            Self::Distribution(values) => {
                if values.len() != n {
                    return Err(Error::Invalid(format!(
                        "the initial distribution has {} values, but the chain {n} states: \
                         expected one value for each state",
                        values.len()
                    )));
                }
                if let Some(s) = values.iter().position(|v| !(v.is_finite() && *v >= 0.0)) {
                    return Err(Error::Invalid(format!(
                        "the initial distribution gives state {s} the probability {}: expected a \
                         number ≥ 0",
                        values[s]
                    )));
                }
                let sum = exit_rate(values.iter().copied());
                if !(sum > 0.0 && sum.is_finite()) {
                    // A compensated sum that overflows is no number.
                    let sum: f64 = values.iter().sum();
                    return Err(Error::Invalid(format!(
                        "the initial distribution sums to {sum}: expected a positive, finite sum"
                    )));
                }
                if (sum - 1.0).abs() > 1e-6 {
                    let remedy = match sum.is_normal() {
                        true => format!(" (divide it by {sum})"),
                        false => String::new(),
                    };
                    return Err(Error::Invalid(format!(
                        "the initial distribution sums to {sum}: expected 1{remedy}"
                    )));
                }
                p.copy_from_slice(&values[states]);
            }
        }
        Ok(p)
    }
}

/// A chain, with what its files say beside it.
///
/// ```
/// use kolmo::transient::Chain;
///
/// // A machine fails once in 50 hours and is repaired in 4 hours on average.
/// let chain = Chain::from_csr(2, &[0, 1, 2], &[1, 0], &[0.02, 0.25])?;
/// let solution = chain.transient(&[8.0])?;
/// assert!((solution.probabilities[0][1] - 0.0655).abs() < 1e-4);
/// # Ok::<(), kolmo::Error>(())
/// ```
pub struct Chain {
    /// Name for people: the path, or the built-in's.
    pub name: String,
    /// The transitions.
    pub transitions: Box<dyn Transitions>,
    /// Where it begins unless the user says otherwise.
    pub initial: Initial,
    /// Numbers of the states in files beside it: from 0, or from 1 with MRMC's files.
    pub numbers: Range<u64>,
    /// Names of the states, where a file has some; of several ranks the first alone knows them.
    pub names: Option<Arc<StateNames>>,
    /// Labels of states.
    pub labels: Labels,
    /// Rewards of states.
    pub rewards: Vec<Reward>,
    /// Things the user should know.
    pub warnings: Vec<String>,
}

impl std::fmt::Debug for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Chain({}, {} states)", self.name, self.transitions.states())
    }
}

impl Chain {
    /// A chain that begins in state 0, without labels and rewards.
    pub fn new(name: impl Into<String>, transitions: Box<dyn Transitions>) -> Self {
        Self {
            name: name.into(),
            initial: Initial::State(0),
            numbers: 0..transitions.states() as u64,
            names: None,
            transitions,
            labels: Labels::default(),
            rewards: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// A chain of `n` states from its rates R in compressed rows: the transitions out of state i lead to the states
    /// `indices[indptr[i]..indptr[i + 1]]`, in any order, at the rates in the same places of `rates`. Rates at one place
    /// are added, those on the diagonal have no effect. It begins in state 0.
    ///
    /// # Errors
    /// [`Error::Invalid`] for arrays that do not fit together, and rates that are negative or not finite.
    pub fn from_csr(n: usize, indptr: &[usize], indices: &[u32], rates: &[f64]) -> Result<Self> {
        let rates = CsrMatrix::from_csr(n, n, indptr, indices, rates)?;
        if let Some((from, to, rate)) = rates.entries().find(|&(_, _, r)| !(r.is_finite() && r >= 0.0)) {
            let what = format!("the transition {from} -> {to} has the rate {rate}");
            return Err(Error::Invalid(format!("{what}: expected a number ≥ 0")));
        }
        Ok(Self::new("a chain", Box::new(Csr::from_rates(&rates))))
    }

    /// The same chain with another beginning.
    pub fn starting(self, initial: Initial) -> Self {
        Self { initial, ..self }
    }

    /// The same chain, of which other threads look at the rows from now on: what a run in double precision begins with is then
    /// known when its devices have opened.
    pub fn prescanned(self) -> Self {
        Self { transitions: Box::new(Prescanned::begin(self.transitions.into())), ..self }
    }

    /// The same chain with every transition out of `states` removed.
    pub fn absorbing(self, states: &[u32]) -> Self {
        Self { transitions: Box::new(Absorbing::new(self.transitions, states)), ..self }
    }
}

/// A chain some of whose states are never left.
pub(super) struct Absorbing<D> {
    inner: D,
    /// One bit a state.
    absorbing: Vec<u64>,
}

impl<'a, D: Deref<Target = dyn Transitions + 'a>> Absorbing<D> {
    pub(super) fn new(inner: D, states: &[u32]) -> Self {
        let mut absorbing = vec![0u64; inner.states().div_ceil(64)];
        for &s in states {
            absorbing[s as usize / 64] |= 1 << (s % 64);
        }
        Self { inner, absorbing }
    }

    fn stays(&self, state: usize) -> bool {
        self.absorbing[state / 64] >> (state % 64) & 1 == 1
    }
}

impl<'a, D: Deref<Target = dyn Transitions + 'a> + Send + Sync> Transitions for Absorbing<D> {
    fn states(&self) -> usize {
        self.inner.states()
    }

    fn incoming(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        let before = row.len();
        self.inner.incoming(state, row);
        let mut kept = before;
        for i in before..row.len() {
            if !self.stays(row[i].0 as usize) {
                row[kept] = row[i];
                kept += 1;
            }
        }
        row.truncate(kept);
    }

    fn outgoing(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        if !self.stays(state) {
            self.inner.outgoing(state, row);
        }
    }

    fn exit_rates(&self, states: Range<usize>, out: &mut [f64]) {
        self.inner.exit_rates(states.clone(), out);
        for (state, rate) in states.zip(out) {
            if self.stays(state) {
                *rate = 0.0;
            }
        }
    }

    fn distributed(&self) -> Option<&dyn Distributed> {
        self.inner.distributed().map(|_| self as &dyn Distributed)
    }
}

impl<'a, D: Deref<Target = dyn Transitions + 'a> + Send + Sync> Distributed for Absorbing<D> {
    fn acquire_rows(&self, states: &Range<usize>) {
        self.inner.acquire_rows(states);
    }

    fn release_outgoing(&self) {
        self.inner.release_outgoing();
    }

    fn each_outgoing(&self, states: Range<usize>, take: &mut Take<'_>) {
        self.inner
            .each_outgoing(states, &mut |state, row| take(state, if self.stays(state) { &[] } else { row }));
    }
}
