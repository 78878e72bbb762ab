//! Chains: transitions of states, with labels, rewards and initial distributions.
//!
//! [`transitions`] is the interface of every source of rows. [`csr`] stores them in memory.
//! [`scan`] passes over all rows before a run and computes their [`statistics`]; a [`prescan`] does
//! so while devices open. [`absorbing_states`] and [`recurrent_classes`] analyse the graph.

pub mod absorbing_states;
pub(crate) mod csr;
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
use self::transitions::{Discrete, TransitionList, Transitions, WithLoops, exit_rate};
use crate::sparse::CsrMatrix;
use crate::util::memory::zeroed;
use crate::{Invalid, Result};

/// Largest number of states of a chain, 2³² − 2: states are numbered by 32 bits.
pub(crate) const MOST_STATES: u64 = u32::MAX as u64 - 1;

/// Sets of states by name, states ascending in each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels {
    /// (name, states with that label), in the file's order of names.
    pub sets: Vec<(String, Vec<u32>)>,
}

impl Labels {
    /// Returns the states with a label.
    pub fn get(&self, name: &str) -> Option<&[u32]> {
        self.sets.iter().find(|(n, _)| n == name).map(|(_, s)| &s[..])
    }
}

/// Rate reward: reward per unit of time in each state.
#[derive(Debug, Clone, PartialEq)]
pub struct Reward {
    /// Name in the file; if it contains none, the file's name without extension.
    pub name: String,
    /// One value per state.
    pub values: Vec<f64>,
}

/// Chain as read from files.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChainFile {
    /// Number of states.
    pub states: usize,
    /// True if the file declares discrete time.
    pub discrete: bool,
    /// Transitions.
    pub transitions: TransitionList,
    /// Labels, from this file or from a `.lab` file next to it.
    pub labels: Labels,
    /// Rewards contained in the file (DRN).
    pub rewards: Vec<Reward>,
    /// Rewards that were not read: their names, and the warnings about them.
    pub left_out: Vec<(String, String)>,
    /// Names of the states, if the file has them (DRN).
    pub names: Option<StateNames>,
    /// Warnings for the user: ignored parts, matrices that look like those of another kind of
    /// chain.
    pub warnings: Vec<String>,
}

/// Initial distribution of a chain.
#[derive(Debug, Clone, PartialEq)]
pub enum Initial {
    /// Single state with probability 1.
    State(usize),
    /// Uniform distribution over these states.
    Uniform(Vec<u32>),
    /// One probability per state.
    Distribution(Vec<f64>),
}

impl Initial {
    /// Returns one probability per state, checked.
    ///
    /// They must be finite and nonnegative, and sum to 1 within 10⁻⁶, the rounding of values
    /// printed with six digits or more.
    pub fn probabilities(&self, n: usize) -> Result<Vec<f64>> {
        self.probabilities_of(0..n, n)
    }

    /// Bounds the l1 error of the probabilities as stored.
    ///
    /// Numbers such as 1/3 are rounded. Renumbering states turns a uniform distribution into a
    /// general one, so both have this bound.
    pub(crate) fn rounding(&self) -> f64 {
        match self {
            Self::State(_) => 0.0,
            Self::Uniform(_) | Self::Distribution(_) => 0.5 * f64::EPSILON,
        }
    }

    /// Returns the probabilities of `states`; those of all states are checked.
    pub fn probabilities_of(&self, states: Range<usize>, n: usize) -> Result<Vec<f64>> {
        self.probabilities_within(states, n, 0.0)
    }

    /// Returns [`probabilities_of`](Self::probabilities_of) `states`, whose sum may err by `error`.
    pub(crate) fn probabilities_within(
        &self,
        states: Range<usize>,
        n: usize,
        error: f64,
    ) -> Result<Vec<f64>> {
        let state = |s: usize| match s < n {
            true => Ok(s),
            false => Invalid::Distribution
                .fail(format!("initial state {s} is out of range: expected 0 to {}", n - 1)),
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
                    return Invalid::Distribution
                        .fail("the set of initial states is empty: expected at least one");
                }
                for &s in among {
                    set(state(s as usize)?, 1.0 / among.len() as f64);
                }
            }
            Self::Distribution(values) => {
                if values.len() != n {
                    return Invalid::Distribution.fail(format!(
                        "the initial distribution has {} values, but the chain {n} states: \
                         expected one value for each state",
                        values.len()
                    ));
                }
                if let Some(s) = values.iter().position(|v| !(v.is_finite() && *v >= 0.0)) {
                    return Invalid::Distribution.fail(format!(
                        "the initial distribution gives state {s} the probability {}: expected a \
                         number ≥ 0",
                        values[s]
                    ));
                }
                let sum = exit_rate(values.iter().copied());
                if !(sum > 0.0 && sum.is_finite()) {
                    // A compensated sum that overflows is NaN.
                    let sum: f64 = values.iter().sum();
                    return Invalid::Distribution.fail(format!(
                        "the initial distribution sums to {sum}: expected a positive, finite sum"
                    ));
                }
                if (sum - 1.0).abs() > error.max(1e-6) {
                    let remedy = match sum.is_normal() {
                        true => format!(" (divide it by {sum})"),
                        false => String::new(),
                    };
                    return Invalid::Distribution
                        .fail(format!("the initial distribution sums to {sum}: expected 1{remedy}"));
                }
                p.copy_from_slice(&values[states]);
            }
        }
        Ok(p)
    }
}

/// Chain with the labels, rewards and names from its files.
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
    /// Display name: the path, or the name of a built-in chain.
    pub name: String,
    /// Transitions.
    pub transitions: Box<dyn Transitions>,
    /// Initial distribution, unless the user requests another.
    pub initial: Initial,
    /// Names of the states, if a file has them.
    pub names: Option<Arc<StateNames>>,
    /// States with each label.
    pub labels: Labels,
    /// Rewards per unit of time in each state.
    pub rewards: Vec<Reward>,
    /// Rewards that were not read: their names, and the warnings about them.
    pub left_out: Vec<(String, String)>,
    /// Warnings for the user about the files.
    pub warnings: Vec<String>,
}

impl std::fmt::Debug for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Chain({}, {} states)", self.name, self.transitions.states())
    }
}

impl Chain {
    /// Creates a chain that starts in state 0, without labels and rewards.
    pub fn new(name: impl Into<String>, transitions: Box<dyn Transitions>) -> Self {
        Self {
            name: name.into(),
            initial: Initial::State(0),
            names: None,
            transitions,
            labels: Labels::default(),
            rewards: Vec::new(),
            left_out: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Creates a chain of `n` states from its rates R in compressed rows; it starts in state 0.
    ///
    /// The transitions out of state i lead to the states `indices[indptr[i]..indptr[i + 1]]`, in
    /// any order, at the rates with equal positions in `rates`. Duplicates are added, and diagonal
    /// entries have no effect.
    ///
    /// # Errors
    /// [`Invalid`] for arrays that do not fit together, and rates that are negative or not
    /// finite.
    pub fn from_csr(n: usize, indptr: &[usize], indices: &[u32], rates: &[f64]) -> Result<Self> {
        let rates = CsrMatrix::from_csr(n, n, indptr, indices, rates)?;
        if let Some((from, to, rate)) = rates.entries().find(|&(_, _, r)| !(r.is_finite() && r >= 0.0)) {
            let what = format!("the transition {from} -> {to} has the rate {rate}");
            return Invalid::Number("rates").fail(format!("{what}: expected a number ≥ 0"));
        }
        Ok(Self::new("a chain", Box::new(Csr::from_rates(&rates))))
    }

    /// Creates a chain in discrete time from its matrix P of probabilities; it starts in state 0.
    ///
    /// The arrays are those of [`from_csr`](Self::from_csr), with the diagonal. Each row is divided
    /// by its sum, unless that is 1. A state whose row has no entries is absorbing.
    ///
    /// # Errors
    /// As [`from_csr`](Self::from_csr); and rows that do not sum to 1, within 10⁻⁶.
    pub fn from_probabilities(n: usize, indptr: &[usize], indices: &[u32], p: &[f64]) -> Result<Self> {
        Self::of_probabilities(&CsrMatrix::from_csr(n, n, indptr, indices, p)?)
    }

    /// Creates a chain in discrete time as [`from_probabilities`](Self::from_probabilities).
    ///
    /// # Errors
    /// As [`from_probabilities`](Self::from_probabilities).
    pub fn of_probabilities(p: &CsrMatrix) -> Result<Self> {
        let n = p.rows();
        let mut list: TransitionList = p.entries().collect();
        if let Some(k) = list.rate.iter().position(|p| !(p.is_finite() && *p >= 0.0)) {
            let what = format!(
                "the transition {} -> {} has the probability {}",
                list.from[k], list.to[k], list.rate[k]
            );
            return Invalid::Number("probabilities").fail(format!("{what}: expected a number from 0 to 1"));
        }
        list.normalise(n)?;
        Ok(Self::new("a chain", Box::new(Csr::added_up(n, list))).discrete())
    }

    /// Takes the rates as probabilities of a step, so that times count steps.
    ///
    /// Those of a state must sum to at most 1, without rounding; see
    /// [`TransitionList::normalise`].
    pub fn discrete(self) -> Self {
        Self { transitions: Box::new(Discrete(self.transitions)), ..self }
    }

    /// Adds the self-loops of a chain in discrete time to its rows, for writers of files.
    pub fn with_loops(self) -> Self {
        Self { transitions: Box::new(WithLoops(self.transitions)), ..self }
    }

    /// Replaces the initial distribution.
    pub fn starting(self, initial: Initial) -> Self {
        Self { initial, ..self }
    }

    /// Starts a scan of the rows in background threads, which overlaps with opening devices.
    ///
    /// Only runs in double precision use its results.
    pub fn prescanned(self) -> Self {
        Self { transitions: Box::new(Prescanned::begin(self.transitions.into())), ..self }
    }

    /// Removes every transition out of `states`.
    pub fn absorbing(self, states: &[u32]) -> Self {
        Self { transitions: Box::new(Absorbing::new(self.transitions, states)), ..self }
    }
}

/// Chain in which some states are made absorbing.
pub(super) struct Absorbing<D> {
    inner: D,
    /// One bit per state, 1 if its transitions are removed.
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
        let mut place = 0;
        row.retain(|&(from, _)| {
            place += 1;
            place <= before || !self.stays(from as usize)
        });
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

    fn is_discrete(&self) -> bool {
        self.inner.is_discrete()
    }
}
