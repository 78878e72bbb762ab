//! A problem: a chain, times, rewards; and options.

use std::ops::Range;

use super::chain::distributed_rewards;
use super::chain::transitions::Transitions;
use super::chain::{Initial, Reward};
use crate::kernel::Precision;
use crate::ranks::Ranks;
use crate::sparse::{MatrixFormat, WidthRule};
use crate::{Error, Machine, Result};

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
    /// True if the probabilities themselves are wanted.
    pub vectors: bool,
}

impl Problem<'_> {
    /// True if the steady state is asked for.
    pub(super) fn is_endless(&self) -> bool {
        self.times.contains(&f64::INFINITY)
    }
}

/// A way to evaluate the sum.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Method {
    /// One sweep with unscaled iterates, which stops as soon as the rest of it has a certified bound, and which
    /// [Chebyshev polynomials](Self::Chebyshev) or [Krylov spaces](Self::Krylov) take over from where products are far fewer.
    #[default]
    Auto,
    /// The same, which never stops before the last term.
    Uniformization,
    /// Chebyshev polynomials of P in the place of its powers, some √(2αt ln 1/ε) of them: for chains that are nearly
    /// reversible. Where norms of the vectors outgrow what the bound has room for, uniformization takes over.
    Chebyshev {
        /// True if that is an error instead.
        strict: bool,
    },
    /// Curves in Krylov spaces of P, one after the other, each for as long as its error allows: for stiff chains, which have several slow
    /// scales, over long times. It keeps some 40 vectors, and computes in double precision. Where it makes no
    /// progress, or lacks memory, uniformization takes over.
    Krylov {
        /// True if that is an error instead.
        strict: bool,
    },
    /// l = ⌈αt/Θ⌉ intervals of equal length, each a sum of its own from the result of the one before: Algorithm 1
    /// of Karwacki, Bylina, Bylina (FedCSIS 2012), with the error shared over the intervals.
    Subdivided {
        /// Largest αt of an interval.
        theta: f64,
    },
}

/// An order of the states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub enum Order {
    /// The model's own on one lane; on several, whichever has the shortest predicted step.
    #[default]
    Auto,
    /// The model's own.
    Natural,
    /// Breadth first from the states that the chain begins in, transitions followed both ways.
    Bfs,
    /// Reversed, breadth first from the end of a longest path of levels, states of few neighbours first
    /// (E. Cuthill, J. McKee, "Reducing the bandwidth of sparse symmetric matrices", Proc. ACM 1969,
    /// doi:10.1145/800195.805928; A. George, J. W. H. Liu, 1981).
    Rcm,
}

impl Order {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Natural => "natural",
            Self::Bfs => "bfs",
            Self::Rcm => "rcm",
        }
    }
}

/// The values that lanes exchange after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Exchange {
    /// The values that the other reads.
    #[default]
    Halo,
    /// The whole vector, as in Algorithm 2 of Karwacki, Bylina, Bylina (FedCSIS 2012).
    Full,
}

/// The choices by which rows are split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partitioning {
    /// Least number of parts on each lane.
    pub parts: usize,
    /// The values that lanes exchange.
    pub exchange: Exchange,
    /// Steps between two exchanges; none: as many as measured latencies make worthwhile.
    pub halo_depth: Option<usize>,
}

impl Default for Partitioning {
    fn default() -> Self {
        Self { parts: 1, exchange: Exchange::Halo, halo_depth: None }
    }
}

/// Bound on the total l1 error that is asked for where none is named, by the command too: nine digits for 5 % more
/// multiplications than six.
pub const EPSILON: f64 = 1e-9;

/// The way to the answer.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Bound on the total l1 error of each time's probabilities; [`EPSILON`] by default.
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
            Method::Auto | Method::Uniformization => self.split,
            // Terms are scaled by kernels that know of own rows alone; and of the vector before the last, halos are not kept.
            Method::Subdivided { .. } | Method::Chebyshev { .. } | Method::Krylov { .. } => {
                Partitioning { halo_depth: Some(1), ..self.split }
            }
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            epsilon: EPSILON,
            width: WidthRule::Auto,
            format: MatrixFormat::Auto,
            method: Method::Auto,
            split: Partitioning::default(),
            order: Order::Auto,
        }
    }
}

/// Progress and results, told while the solver works.
///
/// `()` lets everything pass; a `Vec<Vec<f64>>` keeps the probabilities of each time.
pub trait Observer: Send {
    /// Multiplications done, and an upper bound of all, or 0 where nobody knows one. An error stops the work.
    fn progress(&mut self, _done: u64, _all: u64) -> Result<()> {
        Ok(())
    }
    /// The states whose probabilities this rank will be given; not called where there is one rank, which has all.
    fn rows(&mut self, _rows: Range<usize>) {}
    /// The probabilities at time number `index`, one a state. Times arrive in the order of their windows.
    fn result(&mut self, _index: usize, _probabilities: &[f64]) -> Result<()> {
        Ok(())
    }
}

impl Observer for () {}

impl Observer for Vec<Vec<f64>> {
    fn result(&mut self, index: usize, probabilities: &[f64]) -> Result<()> {
        self.resize_with(self.len().max(index + 1), Vec::new);
        self[index] = probabilities.to_vec();
        Ok(())
    }
}

/// An error where a problem or its options are none.
pub(super) fn check(ranks: Ranks, problem: &Problem<'_>, options: &Options) -> Result<()> {
    let epsilon = options.epsilon;
    if !(epsilon > 0.0 && epsilon < 1.0) {
        return Err(Error::Invalid(format!(
            "invalid `epsilon` {epsilon}: expected a number between 0 and 1, both excluded"
        )));
    }
    if let Method::Subdivided { theta } = options.method
        && !(theta > 0.0 && theta.is_finite())
    {
        return Err(Error::Invalid(format!("invalid `theta` {theta}: expected a finite number above 0")));
    }
    let n = problem.transitions.states();
    if n == 0 {
        return Err(Error::Invalid("the chain has no states: expected at least one".to_owned()));
    }
    if problem.times.is_empty() {
        return Err(Error::Invalid("no time given: expected at least one".to_owned()));
    }
    if let Some(t) = problem.times.iter().find(|t| t.is_nan() || **t < 0.0) {
        return Err(Error::Invalid(format!("invalid time {t}: expected a number ≥ 0 or inf")));
    }
    for reward in problem.rewards {
        let home = || distributed_rewards::home(n, ranks).len();
        if reward.values.len() != n && (problem.transitions.is_whole() || reward.values.len() != home()) {
            let (name, got) = (&reward.name, reward.values.len());
            return Err(Error::Invalid(format!(
                "reward '{name}' has {got} values, but the chain {n} states: expected one value \
                 for each state"
            )));
        }
        if let Some(state) = reward.values.iter().position(|value| !value.is_finite()) {
            // Where only those at home are known, they are counted from there.
            let first = if reward.values.len() == n { 0 } else { distributed_rewards::home(n, ranks).start };
            let (name, value) = (&reward.name, reward.values[state]);
            return Err(Error::Invalid(format!(
                "rewards \"{name}\"[{}] is {value}: expected a finite number",
                first + state
            )));
        }
    }
    Ok(())
}

/// An error where a problem is none for the machine's precision.
pub(super) fn check_precision(machine: &Machine, problem: &Problem<'_>, options: &Options) -> Result<()> {
    if let (Method::Krylov { .. }, Precision::F32 | Precision::Q64) = (options.method, machine.precision) {
        return Err(Error::Invalid(format!(
            "the Krylov method computes in double precision, not in {}; use `precision` f64 or \
             `method` auto",
            machine.precision
        )));
    }
    if machine.precision != Precision::Q64 {
        return Ok(());
    }
    let negative = |r: &&Reward| r.values.iter().any(|&v| v < 0.0);
    if let Some(reward) = problem.rewards.iter().find(negative) {
        return Err(Error::Invalid(format!(
            "reward '{}' has values below 0, which q64 does not support; use `precision` f64 or \
             f32",
            reward.name
        )));
    }
    if let Method::Chebyshev { .. } = options.method {
        return Err(Error::Invalid(
            "Chebyshev polynomials of a chain have negative elements, which q64 does not support; \
             use `precision` f64 or `method` auto"
                .to_owned(),
        ));
    }
    if let Method::Subdivided { .. } = options.method {
        return Err(Error::Invalid(
            "the subdivided method scales by numbers above 1, which q64 does not support; use \
             `method` auto"
                .to_owned(),
        ));
    }
    Ok(())
}
