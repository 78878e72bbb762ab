//! The answer, and the proof of how good it is.

use super::problem::Order;
use crate::Status;

/// A proved bound on an l1 error; the total is the sum.
#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Serialize, serde::Deserialize)]
pub struct Bound {
    /// Poisson mass outside of the window.
    pub truncation: f64,
    /// Iterates replaced by a curve from an earlier one: steady, or shrinking where the chain can still be left.
    pub steady_state: f64,
    /// Rounding of numbers stored and computed.
    pub rounding: f64,
    /// Probability of states that were left out of the chain: none unless whoever made the chain adds it.
    #[serde(default)]
    pub loss: f64,
}

impl Bound {
    /// The bound on the error.
    pub fn total(&self) -> f64 {
        self.truncation + self.steady_state + self.rounding + self.loss
    }

    /// The larger of each part.
    #[must_use]
    pub fn worst(self, other: &Self) -> Self {
        Self {
            truncation: self.truncation.max(other.truncation),
            steady_state: self.steady_state.max(other.steady_state),
            rounding: self.rounding.max(other.rounding),
            loss: self.loss.max(other.loss),
        }
    }

    /// The same with a sum that is at least what is missing of the mass, and no more than that takes: of probabilities that
    /// are at most the exact ones.
    pub(super) fn of_missing(self, missing: f64) -> Self {
        let truncation = self.truncation.min(missing);
        let mut bound = Self { truncation, rounding: missing - truncation, ..Self::default() };
        while bound.total() < missing {
            bound.rounding = bound.rounding.next_up();
        }
        bound
    }

    /// The same with a sum of at most 2: no two distributions differ by more.
    pub(super) fn capped(self) -> Self {
        // A bound that is no number is none.
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

/// A reward's expectations at one time.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct RewardValue {
    /// The reward's name.
    pub name: String,
    /// Expected rate of reward at the time.
    pub instantaneous: f64,
    /// Expected reward accumulated up to the time; infinite at infinity where it goes on in the limit.
    pub cumulative: f64,
}

/// The bound and the rewards at one time.
#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct TimeResult {
    /// The time; `null` in JSON where it is infinite.
    pub time: f64,
    /// Uniformization rate times time.
    pub alpha_t: f64,
    /// First and last term of the sum.
    pub window: (u64, u64),
    /// Bound on the l1 error.
    pub bound: Bound,
    /// Sum of the probabilities, if they were computed.
    pub mass: Option<f64>,
    /// The way in which the probabilities contradict the bound, if they do; it is then not met.
    pub contradiction: Option<String>,
    /// Expectations of rewards.
    pub rewards: Vec<RewardValue>,
    /// Where the sweep stopped, if it did before the last term.
    pub stopped: Option<Stopped>,
}

/// Where a sweep stopped, and how it went on without multiplications.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Stopped {
    /// The number of the iterate that it went on with.
    pub step: u64,
    /// The factor by which the probability of all states that can be left shrinks in a step, from there on: 1 in the steady
    /// state; of several parts that of the slowest that shrinks.
    pub mu: f64,
}

/// What stands in the place of the powers of P.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Expanded {
    /// Chebyshev polynomials of P.
    Chebyshev,
    /// Curves in Krylov spaces of P.
    Krylov,
}

/// What Chebyshev's expansion did, or Krylov's method.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct Expansion {
    /// Which of them.
    pub method: Expanded,
    /// Multiplications.
    pub terms: u64,
    /// Krylov spaces, one after the other.
    pub restarts: u64,
    /// Chebyshev: largest l1 norm of a vector of its recurrence, about 1 where the chain is reversible. Krylov: the same of the
    /// sum of the norms of what an answer is added up from.
    pub norm: f64,
    /// Largest mean of these norms with the weights that they have in a result or in its integral: what dot products of the vectors
    /// round by, beside those of probabilities.
    pub weighted_norm: f64,
    /// Times that it gave up, which uniformization served.
    pub given_up: usize,
}

impl Expansion {
    /// Two of one run.
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

/// Facts of a matrix as it was stored.
#[derive(Debug, Clone, Default, serde::Serialize)]
#[non_exhaustive]
pub struct MatrixInfo {
    /// `hyb`, `packed`, `pair` or `pattern`; several joined by `+` where parts differ.
    pub format: String,
    /// Why formats with fewer bytes were not taken.
    pub passed_over: Vec<String>,
    /// Largest ELL width of a slice.
    pub ell_width: u32,
    /// Share of the entries (without the diagonal, which lies apart) in the COO part.
    pub coo_share: f64,
    /// Share of ELL elements that are padding.
    pub padding: f64,
    /// Bytes of the matrix, the diagonal included.
    pub bytes: u64,
    /// Largest number of halo elements of a part, and of parts.
    pub halo: u64,
    /// Number of parts.
    pub parts: usize,
    /// Steps between two exchanges.
    pub halo_depth: usize,
    /// The way of values from lane to lane.
    pub exchange: LaneExchange,
    /// The share of each lane; empty for one lane.
    pub plan: Vec<LanePlan>,
}

/// A lane's share of a chain, and what its steps are expected to cost.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct LanePlan {
    /// The lane's device.
    pub device: String,
    /// Number of rows.
    pub rows: usize,
    /// Entries of the rows, without the diagonal.
    pub entries: u64,
    /// Share of the entries whose columns are the lane's own rows.
    pub local_share: f64,
    /// Values that it receives in an exchange.
    pub halo: usize,
    /// Predicted seconds of a step's own work, from the lane's measured bandwidth.
    pub compute: f64,
    /// Predicted seconds of a step.
    pub step: f64,
    /// Predicted share of a step that waits for the exchange, or computes rows of others to make it rarer.
    pub communication_share: f64,
}

/// The way in which lanes exchange halos.
#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LaneExchange {
    /// There is nobody to exchange with.
    #[default]
    None,
    /// Kernels store into the memory of another device, or another stream's.
    Peer,
    /// Through the host, at a cost that was measured.
    Host(ExchangeCost),
}

/// The measured cost of an exchange through the host.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct ExchangeCost {
    /// Seconds from the end of a step to the values of another lane, were there none.
    pub latency: f64,
    /// Bytes a second of the values.
    pub rate: f64,
    /// Seconds for which it keeps a lane from its rows, whatever else hides it, were there no values.
    pub busy: f64,
    /// Bytes a second of the values while it does.
    pub drain: f64,
}

/// Seconds of each phase.
#[derive(Debug, Clone, Copy, Default, serde::Serialize)]
pub struct Seconds {
    /// Reading the model.
    pub load: f64,
    /// Surveying and building the matrix.
    pub build: f64,
    /// Copying to the device.
    pub upload: f64,
    /// Multiplying.
    pub solve: f64,
    /// Copying to the host and handing results over.
    pub download: f64,
    /// All of it.
    pub total: f64,
}

/// The answer.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Solution {
    /// The probabilities at each time, one a state (on ranks, one a state of this rank's rows); empty where they went to an
    /// [`Observer`](super::Observer).
    pub probabilities: Vec<Vec<f64>>,
    /// Met where the requested bound is met at every time.
    pub status: Status,
    /// Termwise worst bound over times.
    pub bound: Bound,
    /// Number of states.
    pub n: usize,
    /// Entries of the generator, its diagonal included.
    pub nnz: u64,
    /// Uniformization rate: the largest exit rate.
    pub alpha: f64,
    /// Multiplications.
    pub terms: u64,
    /// What Chebyshev's expansion did, where it was taken; its multiplications are among `terms`.
    pub expansion: Option<Expansion>,
    /// States that were eliminated for the steady state; 0 where it was iterated.
    pub eliminated: usize,
    /// The matrix as stored.
    pub matrix: MatrixInfo,
    /// Order of the states inside.
    pub order: Order,
    /// Each time, in the order asked.
    pub times: Vec<TimeResult>,
    /// Largest number of bytes held on the device.
    pub device_bytes: u64,
    /// Seconds of `build` and `solve`.
    pub seconds: Seconds,
}
