//! Components, their intervals, and what else is known.

use serde::Serialize;

use super::options::Splitting;
use super::sequence::{Scramble, Sequence};
use crate::Status;
use crate::util::quantity::times_power_of_two;
use crate::{Error, Result};

/// Parts of a half-width; they add up.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bound {
    /// Interval of the probability asked for: Student's of the replicates, or what no chain can have shown where that is
    /// more (`confidence.rs`).
    pub statistical: f64,
    /// What chains leave out by ending, certain.
    pub truncation: f64,
    /// Rounding of all numbers, certain.
    pub rounding: f64,
}

impl Bound {
    /// The half-width.
    pub fn total(&self) -> f64 {
        self.statistical + self.truncation + self.rounding
    }
}

/// What is estimated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Quantity {
    /// A component of x.
    Component,
    /// ⟨h, x⟩.
    Functional,
}

/// One component of one solution, or one functional of it.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Component {
    /// Which of the two.
    pub quantity: Quantity,
    /// Its number, from 0, among components or functionals.
    pub component: u32,
    /// Number of the right-hand side, from 0.
    pub rhs: usize,
    /// x there, or ⟨h, x⟩.
    pub estimate: f64,
    /// What its half-width must not exceed: ε as given, or by default, then times Σ |h_i| of a functional.
    pub epsilon: f64,
    /// Half-width of its interval: the sum of the bound's parts.
    pub half_width: f64,
    /// The parts.
    pub bound: Bound,
    /// Chains over all replicates.
    pub chains: u64,
    /// Steps of a chain at most.
    pub length: u32,
}

impl Component {
    /// Whether more chains are of no use: the interval is short enough, or what is certain and `floor`, below which no
    /// number of chains makes it, leave no room for that.
    pub(super) fn settled(&self, epsilon: f64, floor: impl FnOnce() -> f64) -> bool {
        let left = epsilon - self.bound.truncation - self.bound.rounding;
        self.half_width <= epsilon || left < 0.0 || self.bound.statistical > 0.0 && floor() > left
    }

    /// Its name: `component 7`, `functional 0`.
    pub fn name(&self) -> String {
        match self.quantity {
            Quantity::Component => format!("component {}", self.component),
            Quantity::Functional => format!("functional {}", self.component),
        }
    }

    /// Chains that are still missing, `most` in all, should the interval shrink with their root, as those of random numbers
    /// do.
    pub(super) fn more_chains(&self, most: f64) -> f64 {
        let (chains, left) = (self.chains as f64, self.epsilon - self.bound.truncation - self.bound.rounding);
        let wanted = chains * (self.bound.statistical / left.max(f64::MIN_POSITIVE)).powi(2);
        (wanted.min(most) - chains).max(0.0)
    }

    /// The component of a system whose right-hand side is 2^e times as large.
    pub(super) fn times_power_of_two(self, e: i32) -> Result<Self> {
        let times = |x: f64| times_power_of_two(x, e);
        let Bound { statistical, truncation, rounding } = self.bound;
        let estimate = times(self.estimate);
        if !estimate.is_finite() {
            return Err(Error::Invalid(format!(
                "{} is {:e} times 2^{e}, out of range of f64; divide the right-hand side by a \
                 large number",
                self.name(),
                self.estimate
            )));
        }
        // Numbers below 2^−1022 are rounded to multiples of 2^−1074, of which there are four.
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

/// Seconds of a run's phases.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Seconds {
    /// Reading or generating the system.
    pub load: f64,
    /// Splitting, sweeps, order and table.
    pub build: f64,
    /// The certificate of convergence, where it took a vector.
    pub certificate: f64,
    /// Tables to the lanes.
    pub upload: f64,
    /// Walks.
    pub solve: f64,
    /// Sums from the lanes.
    pub download: f64,
    /// Everything.
    pub total: f64,
}

/// What Jacobi sweeps over the whole system would take for the same bound, by those that were run.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Jacobi {
    /// Sweeps from x = 0 until the bound of the error of every component is ε.
    pub sweeps: f64,
    /// Their seconds on this host.
    pub seconds: f64,
}

impl Jacobi {
    /// Both, one after the other.
    pub(super) fn and(self, other: Self) -> Self {
        Self { sweeps: self.sweeps.max(other.sweeps), seconds: self.seconds + other.seconds }
    }
}

/// Components and all that is known of them.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Solution {
    /// Whether every half-width is at most ε.
    pub status: Status,
    /// Right-hand side by right-hand side, components in the order they were asked for.
    pub components: Vec<Component>,
    /// Functionals in the same way.
    pub functionals: Vec<Component>,
    /// What was known of a component or functional after each round of chains, round by round.
    pub rounds: Vec<Component>,
    /// Of the component or functional with the largest half-width over ε.
    pub bound: Bound,
    /// Its ε, given or by default.
    pub epsilon: f64,
    /// Unknowns.
    pub n: usize,
    /// Entries of the matrix.
    pub nnz: usize,
    /// The splitting, with `Auto` decided.
    pub splitting: Splitting,
    /// Certified norm of L in the scaling that proves convergence.
    pub norm: f64,
    /// ‖L‖∞ and the first row that has it.
    pub row_norm: (f64, usize),
    /// Products with |L| behind the certificate.
    pub products: usize,
    /// Sweeps of the control variate; of several right-hand sides the most.
    pub sweeps: u32,
    /// Products with L that BiCGSTAB took for the control variate, of all right-hand sides together.
    pub krylov: usize,
    /// The sequence and how replicates differ.
    pub sequence: (Sequence, Scramble),
    /// Dimensions that come from the sequence; later ones are Philox's.
    pub tabled: u32,
    /// Replicates.
    pub replicates: u32,
    /// Steps of all chains at most: chains times length.
    pub steps: u64,
    /// Bytes of the chain table.
    pub table_bytes: u64,
    /// The competitor, if sweeps were run.
    pub jacobi: Option<Jacobi>,
    /// What a user should know.
    pub warnings: Vec<String>,
    /// Times.
    pub seconds: Seconds,
}

/// Whether all of them are finite, with half-widths of at most their ε.
pub(super) fn met(components: &[Component]) -> Status {
    match components.iter().all(|c| c.estimate.is_finite() && c.half_width <= c.epsilon) {
        true => Status::Met,
        false => Status::NotMet,
    }
}

/// The component with the largest half-width over ε.
pub(super) fn largest(components: &[Component]) -> &Component {
    let share = |c: &Component| if c.half_width > 0.0 { c.half_width / c.epsilon } else { 0.0 };
    components.iter().max_by(|a, b| share(a).total_cmp(&share(b))).expect("at least one quantity")
}
