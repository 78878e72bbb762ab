//! Results with their proved error bounds.

use crate::Status;

/// Vector with a bound on its error.
///
/// Derivatives by a parameter have a value for each state. An
/// [`Adjoint`](super::gradient::adjoint::Adjoint) has others.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Bounded {
    /// Computed values.
    pub values: Vec<f64>,
    /// Bound on the l1 norm of the error, the sum of the errors of all values; an `Adjoint` bounds
    /// each of them.
    pub bound: f64,
}

impl Bounded {
    /// Returns true if the bound is at most ε times the l1 norm, or ε for a norm below 1.
    pub fn is_within(&self, epsilon: f64) -> bool {
        self.bound <= epsilon * self.values.iter().map(|value| value.abs()).sum::<f64>().max(1.0)
    }
}

/// Proved bound on an l1 error, the sum of its terms.
#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Serialize, serde::Deserialize)]
pub struct Bound {
    /// Poisson mass outside of the window.
    pub truncation: f64,
    /// Error of early termination: later iterates are replaced by a quasi-stationary extrapolation.
    pub steady_state: f64,
    /// Rounding of stored and computed numbers; for an infinite time, all of the error.
    pub rounding: f64,
    /// Truncation error of the state space, 0 unless the creator of the chain adds it.
    #[serde(default)]
    pub loss: f64,
}

impl Bound {
    /// Returns the sum of the terms, the bound on the l1 error.
    pub fn total(&self) -> f64 {
        self.truncation + self.steady_state + self.rounding + self.loss
    }

    /// Returns the maximum of two bounds for each error term.
    #[must_use]
    pub fn worst(self, other: &Self) -> Self {
        Self {
            truncation: self.truncation.max(other.truncation),
            steady_state: self.steady_state.max(other.steady_state),
            rounding: self.rounding.max(other.rounding),
            loss: self.loss.max(other.loss),
        }
    }

    /// Returns a bound with the total `missing`, the mass that the probabilities lack.
    ///
    /// It holds for probabilities that are at most the exact ones. The total is rounded up as
    /// little as possible.
    pub(super) fn of_missing(self, missing: f64) -> Self {
        let truncation = self.truncation.min(missing);
        let mut bound = Self { truncation, rounding: missing - truncation, ..Self::default() };
        while bound.total() < missing {
            bound.rounding = bound.rounding.next_up();
        }
        bound
    }

    /// Limits the total to 2 without `loss`: no two distributions differ by more.
    pub(super) fn capped(self) -> Self {
        // `min` replaces a NaN by the limit.
        let truncation = self.truncation.min(2.0);
        let steady_state = self.steady_state.min(2.0 - truncation);
        Self {
            truncation,
            steady_state,
            rounding: self.rounding.min(2.0 - truncation - steady_state),
            loss: self.loss,
        }
    }
}

/// Expected values of a reward at one time.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct RewardValue {
    /// Name of the reward.
    pub name: String,
    /// Expected rate of the reward at the time.
    pub instantaneous: f64,
    /// Expected reward accumulated up to the time; infinite at infinity if it grows without limit.
    pub cumulative: f64,
}

/// Bound and rewards at one time.
#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct TimeResult {
    /// Time; `null` in JSON if it is infinite.
    pub time: f64,
    /// Uniformization rate times time.
    pub alpha_t: f64,
    /// Part of `alpha_t` in the last phase of a schedule.
    #[serde(skip)]
    pub phase_alpha_t: f64,
    /// First and last term of the Poisson sum.
    pub window: (u64, u64),
    /// Proved bound on the l1 error of the probabilities at this time.
    pub bound: Bound,
    /// Sum of the probabilities, if they were computed.
    pub mass: Option<f64>,
    /// Contradiction between the probabilities and the bound, if any; the bound is then not met.
    pub contradiction: Option<String>,
    /// Expected values of the rewards.
    pub rewards: Vec<RewardValue>,
    /// Early termination of the uniformization run, if it ended before the last term.
    pub stopped: Option<Stopped>,
    /// Number of squarings of a small chain's matrix exponential, if it replaced the sum.
    #[serde(default)]
    pub squarings: Option<u32>,
}

/// Early termination of a uniformization run, and its extrapolation.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Stopped {
    /// Number of the iterate from which later ones are extrapolated.
    pub step: u64,
    /// Factor per step of the probability of all transient states, 1 in the steady state.
    ///
    /// With several transient classes it is the factor of the slowest that decays.
    pub mu: f64,
}

/// Expansion used instead of the powers of P.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Expanded {
    /// Chebyshev polynomials of P.
    Chebyshev,
    /// Krylov approximations of the matrix exponential.
    Krylov,
}

/// Number of products of the Chebyshev or Krylov method, and norms of its vectors.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct Expansion {
    /// Kind of expansion that the method used.
    pub method: Expanded,
    /// Matrix–vector products.
    pub terms: u64,
    /// Number of Krylov subspaces.
    pub restarts: u64,
    /// Largest norm of the vectors that a result is summed from.
    ///
    /// Chebyshev: the largest l1 norm of a vector of the recurrence, about 1 for a reversible
    /// chain. Krylov: the largest sum of the l1 norms of the terms of a result.
    pub norm: f64,
    /// Largest weighted mean of the norms; it bounds the extra rounding of dot products.
    ///
    /// The weights are those of a result or of its integral.
    pub weighted_norm: f64,
    /// Number of requested times that the method abandoned and left to uniformization.
    pub given_up: usize,
}

impl Expansion {
    /// Creates the totals of a method before its first matrix–vector product.
    pub(super) fn new(method: Expanded, norm: f64, given_up: usize) -> Self {
        Self { method, terms: 0, restarts: 0, norm, weighted_norm: norm, given_up }
    }

    /// Returns the totals of two Chebyshev or Krylov expansions: sums of work, maxima of norms.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            method: self.method,
            terms: self.terms + other.terms,
            restarts: self.restarts + other.restarts,
            norm: self.norm.max(other.norm),
            weighted_norm: self.weighted_norm.max(other.weighted_norm),
            given_up: self.given_up + other.given_up,
        }
    }
}

/// Properties of the matrix as stored.
#[derive(Debug, Clone, Default, serde::Serialize)]
#[non_exhaustive]
pub struct MatrixInfo {
    /// `hyb`, `packed` or `pattern`; formats of different parts are joined by `+`.
    pub format: String,
    /// Reasons why formats with fewer bytes were rejected.
    pub passed_over: Vec<String>,
    /// Largest ELL width of a slice.
    pub ell_width: u32,
    /// Share of the entries in the COO part; the diagonal is stored separately and not counted.
    pub coo_share: f64,
    /// Share of ELL elements that are padding.
    pub padding: f64,
    /// Bytes of the matrix, including the diagonal.
    pub bytes: u64,
    /// Largest number of halo elements of a part.
    pub halo: u64,
    /// Number of parts, ranges of consecutive rows with their own halo.
    pub parts: usize,
    /// Number of steps between two exchanges of halos.
    pub halo_depth: usize,
    /// Transport of halo values between lanes.
    pub exchange: LaneExchange,
    /// Rows and predicted cost of each lane; empty for one lane.
    pub plan: Vec<LanePlan>,
}

/// Share of a chain on one lane, and the predicted cost of its steps.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct LanePlan {
    /// Device of the lane.
    pub device: String,
    /// Number of matrix rows on the lane.
    pub rows: usize,
    /// Entries of the rows, without the diagonal.
    pub entries: u64,
    /// Share of the entries with columns among the lane's own rows.
    pub local_share: f64,
    /// Number of halo values received in an exchange.
    pub halo: usize,
    /// Predicted seconds of a step without communication, from the lane's measured bandwidth.
    pub compute: f64,
    /// Predicted seconds of a step with communication.
    pub step: f64,
    /// Predicted share of a step spent on communication.
    ///
    /// It includes waiting for the exchange, and computing rows of other lanes for rarer exchanges.
    pub communication_share: f64,
}

/// Transport of halos between lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LaneExchange {
    /// No exchange: there is only one lane.
    #[default]
    None,
    /// Kernels store into the memory of another device, or of another stream.
    Peer,
    /// Values are copied through host memory.
    Host,
}

/// Seconds of each phase.
#[derive(Debug, Clone, Copy, Default, serde::Serialize)]
pub struct Seconds {
    /// Seconds for reading the model.
    pub load: f64,
    /// Seconds for scanning the rows and building the matrix.
    pub build: f64,
    /// Seconds of copies to the device.
    pub upload: f64,
    /// Seconds of matrix–vector products.
    pub solve: f64,
    /// Seconds of copies to the host, and of passing results to the observer.
    pub download: f64,
    /// Total seconds of the run.
    pub total: f64,
}

/// Solution of a transient problem.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Solution {
    /// Probabilities at each time, one per state (on several ranks: per state of this rank's rows).
    ///
    /// Empty if they were passed to an [`Observer`](super::Observer).
    pub probabilities: Vec<Vec<f64>>,
    /// Met if the requested bound is met at every time.
    pub status: Status,
    /// Maximum over all times of each term of the bound.
    pub bound: Bound,
    /// Number of states.
    pub n: usize,
    /// Entries of the generator, including its diagonal.
    pub nnz: u64,
    /// Uniformization rate: the largest exit rate, or 1 in discrete time.
    pub alpha: f64,
    /// True in discrete time: times are numbers of steps.
    pub discrete: bool,
    /// Matrix–vector products.
    pub terms: u64,
    /// Work of the Chebyshev or Krylov method, if used; its products are included in `terms`.
    pub expansion: Option<Expansion>,
    /// States eliminated for the steady state; 0 if it was iterated.
    pub eliminated: usize,
    /// Properties of the matrix as stored.
    pub matrix: MatrixInfo,
    /// Results in the requested order of times.
    pub times: Vec<TimeResult>,
    /// Largest number of bytes allocated on a device.
    pub device_bytes: u64,
    /// Seconds of each phase.
    pub seconds: Seconds,
}

/// Probabilities or expectations from every initial state, with error bounds.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct FromStates {
    /// Probability or expectation for each initial state; may be infinite.
    pub values: Vec<f64>,
    /// Bound on the error of each value; 0 for exact and infinite values.
    pub bounds: Vec<f64>,
    /// `Met` if all bounds are at most ε; for expectations, ε times the largest finite value.
    pub status: Status,
}

pub(super) fn status(met: bool) -> Status {
    if met { Status::Met } else { Status::NotMet }
}
