//! Transient problems (chain, times, rewards) and solver options.

use std::ops::Range;

use super::chain::transitions::Transitions;
use super::chain::{Initial, Reward};
use crate::kernel::Precision;
use crate::sparse::MatrixFormat;
use crate::util::options::options;
use crate::{Invalid, Iterate, Machine, Progress, Result};

/// Problem: the probabilities of a chain at given times.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Problem<'a> {
    /// Transitions of the chain.
    pub transitions: &'a dyn Transitions,
    /// Initial distribution.
    pub initial: &'a Initial,
    /// Times ≥ 0, in any order; infinity is the steady state. In discrete time, numbers of steps.
    pub times: &'a [f64],
    /// Rewards to evaluate: their expectations at each time.
    pub rewards: &'a [Reward],
    /// True if the probabilities themselves are computed.
    pub vectors: bool,
    /// Error of the initial distribution, and of its sum, by earlier phases of the computation.
    pub(super) mass_error: f64,
}

impl<'a> Problem<'a> {
    /// Creates a problem without rewards, in which the probabilities are computed.
    pub fn new(transitions: &'a dyn Transitions, initial: &'a Initial, times: &'a [f64]) -> Self {
        Self { transitions, initial, times, rewards: &[], vectors: true, mass_error: 0.0 }
    }

    /// Sets the rewards to evaluate.
    #[must_use]
    pub fn rewards(self, rewards: &'a [Reward]) -> Self {
        Self { rewards, ..self }
    }

    /// Computes the probabilities themselves only if `vectors` is true.
    #[must_use]
    pub fn vectors(self, vectors: bool) -> Self {
        Self { vectors, ..self }
    }
}

/// Method to evaluate the Poisson sum or the matrix exponential.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Method {
    /// Uniformization with early termination once the remaining error is bounded.
    ///
    /// Switches to [Chebyshev polynomials](Self::Chebyshev) or [Krylov spaces](Self::Krylov) if
    /// these need far fewer matrix–vector products.
    #[default]
    Auto,
    /// Uniformization up to the last term, without early termination.
    Uniformization,
    /// Chebyshev polynomials of P, of degree about √(2αt ln 1/ε), for nearly reversible chains.
    ///
    /// Falls back to uniformization if the norms of the vectors exceed the budget of the bound.
    Chebyshev {
        /// Return an error instead of falling back to uniformization.
        strict: bool,
    },
    /// Krylov approximations with restarts, for stiff chains over long times.
    ///
    /// Each Krylov subspace is used for as long a time as its error permits. The method stores
    /// about 40 vectors and requires double precision. Falls back to uniformization if it makes no
    /// progress, or if memory does not suffice.
    Krylov {
        /// Return an error instead of falling back to uniformization.
        strict: bool,
    },
}

options! {
    /// Options for splitting the rows over lanes.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Partitioning {
        /// Minimum number of parts, ranges of consecutive rows, on each lane.
        pub parts: usize = 1,
        /// Number of steps between two exchanges of halos; chosen if `None`.
        pub halo_depth: Option<usize> = None,
    }
}

/// Default bound on the total l1 error, in the library and the command.
///
/// Nine digits cost 5 % more matrix–vector products than six.
pub const EPSILON: f64 = 1e-9;

options! {
    /// Solver options.
    #[derive(Debug, Clone, Copy)]
    pub struct Options {
        /// Bound on the total l1 error of each time's probabilities; [`EPSILON`] by default.
        pub epsilon: f64 = EPSILON,
        /// Storage format of the matrix.
        pub format: MatrixFormat = MatrixFormat::Auto,
        /// Method to evaluate the Poisson sum or the matrix exponential.
        pub method: Method = Method::Auto,
        /// Partitioning of the rows over lanes.
        pub split: Partitioning = Partitioning::default(),
    }
}

impl Options {
    /// Returns the partitioning, restricted to the halo depths that the method supports.
    pub(super) fn partitioning(&self) -> Partitioning {
        match self.method {
            Method::Auto | Method::Uniformization => self.split,
            // The vector before the last has no halo.
            Method::Chebyshev { .. } | Method::Krylov { .. } => {
                Partitioning { halo_depth: Some(1), ..self.split }
            }
        }
    }
}

/// Receives the results of a solver, and its progress in matrix–vector products.
///
/// `()` ignores them, and a closure as in [`Progress`] ignores the results. A `Vec<Vec<f64>>`
/// stores the probabilities of each time. A pair passes progress to its first element, and results
/// to the second.
pub trait Observer: Progress {
    /// Reports the range of states that this rank receives results for.
    ///
    /// It is called only on several ranks; a single rank receives all states.
    fn rows(&mut self, _rows: Range<usize>) {}
    /// Receives the probabilities at time number `index`, one per state.
    ///
    /// Times arrive in the order of their Poisson windows.
    fn result(&mut self, _index: usize, _probabilities: &[f64]) -> Result<()> {
        Ok(())
    }
}

impl Observer for () {}

impl<F: FnMut(u64, u64) -> Result<()> + Send> Observer for F {}

impl<P: Progress + ?Sized, F: Send> Progress for (&mut P, F) {
    fn progress(&mut self, done: u64, all: u64) -> Result<()> {
        self.0.progress(done, all)
    }

    fn iterate(&mut self, iterate: Iterate) -> Result<bool> {
        self.0.iterate(iterate)
    }
}

impl<P: Progress + ?Sized, F: FnMut(usize, &[f64]) -> Result<()> + Send> Observer for (&mut P, F) {
    fn result(&mut self, index: usize, probabilities: &[f64]) -> Result<()> {
        self.1(index, probabilities)
    }
}

impl Progress for Vec<Vec<f64>> {}

impl Observer for Vec<Vec<f64>> {
    fn result(&mut self, index: usize, probabilities: &[f64]) -> Result<()> {
        self.resize_with(self.len().max(index + 1), Vec::new);
        self[index] = probabilities.to_vec();
        Ok(())
    }
}

/// Returns an error if the problem or the options are invalid.
pub(super) fn check(problem: &Problem<'_>, options: &Options) -> Result<()> {
    let epsilon = options.epsilon;
    if !(epsilon > 0.0 && epsilon < 1.0) {
        return Invalid::Argument("epsilon")
            .fail(format!("invalid `epsilon` {epsilon}: expected a number between 0 and 1, both excluded"));
    }
    let n = problem.transitions.states();
    if n == 0 {
        return Invalid::Shape.fail("the chain has no states: expected at least one");
    }
    if problem.times.is_empty() {
        return Invalid::Time.fail("no time given: expected at least one");
    }
    if let Some(t) = problem.times.iter().find(|t| t.is_nan() || **t < 0.0) {
        return Invalid::Time.fail(format!("invalid time {t}: expected a number ≥ 0 or inf"));
    }
    if problem.transitions.is_discrete() {
        check_discrete(problem, options)?;
    }
    for reward in problem.rewards {
        if reward.values.len() != n {
            let (name, got) = (&reward.name, reward.values.len());
            return Invalid::Reward.fail(format!(
                "reward '{name}' has {got} values, but the chain {n} states: expected one value \
                 for each state"
            ));
        }
        if let Some(state) = reward.values.iter().position(|value| !value.is_finite()) {
            let (name, value) = (&reward.name, reward.values[state]);
            return Invalid::Reward
                .fail(format!("rewards \"{name}\"[{state}] is {value}: expected a finite number"));
        }
    }
    Ok(())
}

/// Returns an error if times are no numbers of steps, or the method needs continuous time.
fn check_discrete(problem: &Problem<'_>, options: &Options) -> Result<()> {
    if let Some(t) = problem.times.iter().find(|t| t.is_finite() && t.fract() != 0.0) {
        return Invalid::Time
            .fail(format!("invalid time {t}: in discrete time, expected a whole number of steps or inf"));
    }
    match options.method {
        Method::Auto | Method::Uniformization => Ok(()),
        _ => Invalid::Unsupported
            .fail("this method needs continuous time, and the chain is in discrete time; use `method` auto"),
    }
}

/// Returns an error if the machine's precision does not support the problem or the method.
pub(super) fn check_precision(machine: &Machine, problem: &Problem<'_>, options: &Options) -> Result<()> {
    if let (Method::Krylov { .. }, Precision::F32 | Precision::Q64) = (options.method, machine.precision) {
        return Invalid::Unsupported.fail(format!(
            "the Krylov method computes in double precision, not in {}; use `precision` f64 or \
             `method` auto",
            machine.precision
        ));
    }
    if machine.precision != Precision::Q64 {
        return Ok(());
    }
    let negative = |r: &&Reward| r.values.iter().any(|&v| v < 0.0);
    if let Some(reward) = problem.rewards.iter().find(negative) {
        return Invalid::Unsupported.fail(format!(
            "reward '{}' has values below 0, which q64 does not support; use `precision` f64 or \
             f32",
            reward.name
        ));
    }
    if let Method::Chebyshev { .. } = options.method {
        return Invalid::Unsupported.fail(
            "Chebyshev polynomials of a chain have negative elements, which q64 does not support; \
             use `precision` f64 or `method` auto",
        );
    }
    Ok(())
}
