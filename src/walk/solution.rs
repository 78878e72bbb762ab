//! Results of walks: components, functionals, their intervals, and data of the run.

use serde::Serialize;

use super::options::Splitting;
use super::sequence::{Scramble, Sequence};
use crate::util::quantity::times_power_of_two;
use crate::{Invalid, Result, Status};

/// Parts of a half-width, which is their sum.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bound {
    /// Half-width of the confidence interval.
    ///
    /// It is that of Student's interval over the replicates, or the larger half-width for values
    /// too rare to occur in any chain (`confidence.rs`).
    pub statistical: f64,
    /// Proved bound of the terms that are missing because chains end.
    pub truncation: f64,
    /// Proved bound of rounding.
    pub rounding: f64,
}

impl Bound {
    /// Returns the half-width.
    pub fn total(&self) -> f64 {
        self.statistical + self.truncation + self.rounding
    }
}

/// Kind of the estimated quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Quantity {
    /// Component of x.
    Component,
    /// Functional ⟨h, x⟩.
    Functional,
}

/// Estimate of a component or functional for one right-hand side.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Component {
    /// Kind: component or functional.
    pub quantity: Quantity,
    /// Number among the components or functionals, from 0.
    pub component: u32,
    /// Number of the right-hand side, from 0.
    pub rhs: usize,
    /// Estimated x_m, or ⟨h, x⟩.
    pub estimate: f64,
    /// Requested or default half-width; the default of a functional has the factor Σ |h_i|.
    pub epsilon: f64,
    /// Half-width of the interval: the sum of the parts of `bound`.
    pub half_width: f64,
    /// Parts of the half-width.
    pub bound: Bound,
    /// Number of chains over all replicates; 0 if `length` is 0.
    pub chains: u64,
    /// Largest number of steps of a chain.
    pub length: u32,
}

impl Component {
    /// True if more chains are of no use: the half-width is at most ε, or cannot become so.
    ///
    /// It cannot if the proved parts leave less for the statistical part than `floor`, its smallest
    /// value for any number of chains.
    pub(super) fn settled(&self, epsilon: f64, floor: impl FnOnce() -> f64) -> bool {
        let left = epsilon - self.bound.truncation - self.bound.rounding;
        self.half_width <= epsilon || left < 0.0 || self.bound.statistical > 0.0 && floor() > left
    }

    /// Returns the name, as `component 7` or `functional 0`.
    pub fn name(&self) -> String {
        match self.quantity {
            Quantity::Component => format!("component {}", self.component),
            Quantity::Functional => format!("functional {}", self.component),
        }
    }

    /// Predicted number of missing chains if intervals shrink with their square root; at most
    /// `most`.
    pub(super) fn more_chains(&self, most: f64) -> f64 {
        let (chains, left) = (self.chains as f64, self.epsilon - self.bound.truncation - self.bound.rounding);
        let wanted = chains * (self.bound.statistical / left.max(f64::MIN_POSITIVE)).powi(2);
        (wanted.min(most) - chains).max(0.0)
    }

    /// Returns the component for a right-hand side that is 2^e times as large.
    pub(super) fn times_power_of_two(self, e: i32) -> Result<Self> {
        let times = |x: f64| times_power_of_two(x, e);
        let Bound { statistical, truncation, rounding } = self.bound;
        let estimate = times(self.estimate);
        if !estimate.is_finite() {
            return Invalid::Number("rhs").fail(format!(
                "{} is {:e} times 2^{e}, out of range of f64; divide the right-hand side by a \
                 large number",
                self.name(),
                self.estimate
            ));
        }
        // Below 2^−1022 each of the four numbers is rounded to a multiple of 2^−1074.
        let exact = |x: f64| x == 0.0 || times(x).abs() >= f64::MIN_POSITIVE;
        let all = [self.estimate, statistical, truncation, rounding];
        let lost = if all.into_iter().all(exact) { 0.0 } else { 4.0 * f64::from_bits(1) };
        let bound = Bound {
            statistical: times(statistical),
            truncation: times(truncation),
            rounding: times(rounding) + lost,
        };
        Ok(Self { estimate, half_width: bound.total(), bound, ..self })
    }
}

/// Times of a run in seconds.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Seconds {
    /// Seconds to read or generate the system.
    pub load: f64,
    /// Seconds for splitting, sweeps and chain table.
    pub build: f64,
    /// Seconds for the certificate of convergence; 0 if it needed no vector.
    pub certificate: f64,
    /// Seconds to upload tables.
    pub upload: f64,
    /// Seconds of the walks.
    pub solve: f64,
    /// Seconds to download sums.
    pub download: f64,
    /// Total seconds.
    pub total: f64,
}

/// Predicted cost of Jacobi sweeps over the whole system until the error bound is ε.
///
/// The prediction uses the sweeps of the control variate.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Jacobi {
    /// Number of sweeps from x = 0 until every component has an error bound of ε.
    pub sweeps: f64,
    /// Seconds of these sweeps on this host.
    pub seconds: f64,
}

impl Jacobi {
    /// Cost for two right-hand sides: maximum of the sweeps, sum of the seconds.
    pub(super) fn and(self, other: Self) -> Self {
        Self { sweeps: self.sweeps.max(other.sweeps), seconds: self.seconds + other.seconds }
    }
}

/// Estimates and data of a run of walks.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Solution {
    /// Met if every half-width is at most ε.
    pub status: Status,
    /// Components in the requested order, one right-hand side after the other.
    pub components: Vec<Component>,
    /// Functionals in the requested order, one right-hand side after the other.
    pub functionals: Vec<Component>,
    /// Estimates of all components and functionals after each round of chains, round by round.
    pub rounds: Vec<Component>,
    /// Parts of the half-width of the component or functional with the largest half-width / ε.
    pub bound: Bound,
    /// Requested or default ε of the component or functional that `bound` belongs to.
    pub epsilon: f64,
    /// Number of unknowns.
    pub n: usize,
    /// Number of entries of the matrix.
    pub nnz: usize,
    /// Splitting of the system, with `Auto` resolved.
    pub splitting: Splitting,
    /// Certified norm of L in the scaling that proves convergence.
    pub norm: f64,
    /// Maximum row sum ‖L‖∞ of |L|, and the first row with this sum.
    pub row_norm: (f64, usize),
    /// Number of matrix–vector products with |L| for the certificate.
    pub products: usize,
    /// Sweeps of the control variate, the maximum over right-hand sides.
    pub sweeps: u32,
    /// Products with L by BiCGSTAB for the control variate, over all right-hand sides.
    pub krylov: usize,
    /// Sequence of the points, and randomisation of the replicates.
    pub sequence: (Sequence, Scramble),
    /// Number of dimensions of the sequence itself; all further ones use Philox.
    pub tabled: u32,
    /// Number of replicates.
    pub replicates: u32,
    /// Largest number of steps of all chains: chains times length.
    pub steps: u64,
    /// Size of the chain table in bytes.
    pub table_bytes: u64,
    /// Predicted cost of sweeps instead of walks, if sweeps were run.
    pub jacobi: Option<Jacobi>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
    /// Times of the run.
    pub seconds: Seconds,
}

/// Met if all estimates are finite, and no half-width exceeds its ε.
pub(super) fn met(components: &[Component]) -> Status {
    Status::of(components.iter().all(|c| c.estimate.is_finite() && c.half_width <= c.epsilon))
}

/// Returns the component with the largest half-width / ε.
pub(super) fn largest(components: &[Component]) -> &Component {
    let share = |c: &Component| if c.half_width > 0.0 { c.half_width / c.epsilon } else { 0.0 };
    components.iter().max_by(|a, b| share(a).total_cmp(&share(b))).expect("at least one quantity")
}
