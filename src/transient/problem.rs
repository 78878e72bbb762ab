//! What is asked of the solver: a chain, times, rewards, and options.

use std::ops::Range;

use super::chain::{Initial, Reward, Transitions};
use super::order::Order;
use super::partitioning::Partitioning;
use super::rewards;
use crate::sparse::{MatrixFormat, WidthRule};
use crate::{Error, Result};

/// The question: probabilities of a chain at some times.
#[derive(Clone, Copy)]
pub struct Problem<'a> {
    /// The chain's transitions.
    pub transitions: &'a dyn Transitions,
    /// Where it begins.
    pub initial: &'a Initial,
    /// Times ≥ 0, in any order; infinity is the steady state.
    pub times: &'a [f64],
    /// Rewards whose expectations are wanted at each time.
    pub rewards: &'a [Reward],
    /// Whether the probabilities themselves are wanted.
    pub vectors: bool,
}

/// A way to evaluate the sum.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Method {
    /// One sweep with unscaled iterates.
    #[default]
    Sweep,
    /// l = ⌈αt/Θ⌉ intervals of equal length, each a sum of its own from the result of the one before: Algorithm 1
    /// of Karwacki, Bylina, Bylina (FedCSIS 2012), with the error shared over the intervals.
    Subdivided {
        /// Largest αt of an interval.
        theta: f64,
    },
}

/// The way to the answer.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Bound on the total l1 error of each time's probabilities.
    pub epsilon: f64,
    /// Rule for the ELL width.
    pub width: WidthRule,
    /// Format of the matrix.
    pub format: MatrixFormat,
    /// Method.
    pub method: Method,
    /// Partitioning of the rows over lanes.
    pub split: Partitioning,
    /// Order of the states inside.
    pub order: Order,
}

impl Options {
    /// The partitioning for the method.
    pub(super) fn partitioning(&self) -> Partitioning {
        match self.method {
            Method::Sweep => self.split,
            // Its terms are scaled by kernels that know of own rows alone.
            Method::Subdivided { .. } => Partitioning { halo_depth: Some(1), ..self.split },
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            epsilon: 1e-6,
            width: WidthRule::Auto,
            format: MatrixFormat::Auto,
            method: Method::Sweep,
            split: Partitioning::default(),
            order: Order::Auto,
        }
    }
}

/// Progress and results, told while the solver works.
pub trait Observer: Send {
    /// Multiplications done, and an upper bound of all. An error stops the work.
    fn progress(&mut self, done: u64, all: u64) -> Result<()>;
    /// The states whose probabilities this rank will be given; not called where there is one rank, which has all.
    fn rows(&mut self, _rows: Range<usize>) {}
    /// The probabilities at time number `index`, one a state. Times arrive in the order of their windows.
    fn result(&mut self, index: usize, probabilities: &[f64]) -> Result<()>;
}

/// An error where a problem or its options are none.
pub(super) fn check(problem: &Problem<'_>, options: &Options) -> Result<()> {
    let epsilon = options.epsilon;
    if !(epsilon > 0.0 && epsilon < 1.0) {
        return Err(Error::Invalid(format!(
            "epsilon is {epsilon}; it must lie between 0 and 1, both excluded"
        )));
    }
    if let Method::Subdivided { theta } = options.method
        && !(theta > 0.0 && theta.is_finite())
    {
        return Err(Error::Invalid(format!("theta is {theta}; it must be a number above 0")));
    }
    let n = problem.transitions.states();
    if n == 0 {
        return Err(Error::Invalid("the chain has no states".to_owned()));
    }
    if problem.times.is_empty() {
        return Err(Error::Invalid("no time was asked for; give --time T".to_owned()));
    }
    if let Some(t) = problem.times.iter().find(|t| t.is_nan() || **t < 0.0) {
        return Err(Error::Invalid(format!("time {t} is not a time; it must be 0 or more")));
    }
    for reward in problem.rewards {
        let home = || rewards::home(n, options.split.ranks).len();
        if reward.values.len() != n && (problem.transitions.whole() || reward.values.len() != home()) {
            let (name, got) = (&reward.name, reward.values.len());
            return Err(Error::Invalid(format!("reward '{name}' has {got} values, the chain {n} states")));
        }
    }
    Ok(())
}
