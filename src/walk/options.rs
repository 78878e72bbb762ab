//! Problem and options of walks, and checks of both.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use strum::{Display, EnumString, VariantNames};

use super::sequence::{Scramble, Sequence};
use crate::numerics::confidence::expect_confidence;
use crate::sparse::CsrMatrix;
use crate::util::options::options;
use crate::util::quantity::{count, duplicate};
use crate::{Error, Invalid, Result};

/// System A x = b with the requested components and functionals of x.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Problem<'a> {
    /// A, n × n; L itself with [`Splitting::Given`].
    pub matrix: &'a CsrMatrix,
    /// Right-hand sides b, each of n numbers.
    pub rhs: &'a [Vec<f64>],
    /// Requested components of x, counted from 0, without repetition.
    pub components: &'a [u32],
    /// Requested functionals ⟨h, x⟩, each by its h of n numbers.
    pub functionals: &'a [Vec<f64>],
}

impl<'a> Problem<'a> {
    /// Creates a problem without functionals.
    pub fn new(matrix: &'a CsrMatrix, rhs: &'a [Vec<f64>], components: &'a [u32]) -> Self {
        Self { matrix, rhs, components, functionals: &[] }
    }

    /// Sets the requested components.
    #[must_use]
    pub fn components(self, components: &'a [u32]) -> Self {
        Self { components, ..self }
    }

    /// Sets the requested functionals.
    #[must_use]
    pub fn functionals(self, functionals: &'a [Vec<f64>]) -> Self {
        Self { functionals, ..self }
    }
}

const MOST_SWEEPS: u32 = 100_000;

/// Control variate of walks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlVariate {
    /// [`Jacobi`](Self::Jacobi) sweeps, then [`Krylov`](Self::Krylov) if walks would take longer.
    ///
    /// After the sweeps, the number of steps that walks need for ε is predicted. If these would
    /// take longer than BiCGSTAB, it reduces the residual first. This is done only if
    /// `Options::chains` and `Options::length` have their default values.
    Auto,
    /// At most [`MOST_AUTO`](super::control_variate::MOST_AUTO) sweeps.
    ///
    /// Fewer are made if the residual is small enough before.
    Jacobi,
    /// Given number of Jacobi sweeps; with 0, walks sample the vector f itself.
    Sweeps(u32),
    /// BiCGSTAB, until no walk is needed or the residual does not shrink any more.
    Krylov,
}

impl FromStr for ControlVariate {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        match (s, count(s)) {
            ("auto", _) => Ok(Self::Auto),
            ("none", _) => Ok(Self::Sweeps(0)),
            ("jacobi", _) => Ok(Self::Jacobi),
            ("krylov", _) => Ok(Self::Krylov),
            (_, Some(k @ 0..=MOST_SWEEPS)) => Ok(Self::Sweeps(k)),
            _ => Invalid::Argument("control").fail(format!(
                "invalid control variate '{s}': expected auto, none, jacobi, krylov or a number of \
                 Jacobi sweeps up to {MOST_SWEEPS}"
            )),
        }
    }
}

impl fmt::Display for ControlVariate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Jacobi => f.write_str("jacobi"),
            Self::Sweeps(0) => f.write_str("none"),
            Self::Sweeps(k) => write!(f, "{k}"),
            Self::Krylov => f.write_str("krylov"),
        }
    }
}

/// Splitting of A x = b into x = L x + f.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display, EnumString, VariantNames)]
#[strum(serialize_all = "kebab-case", parse_err_ty = Error, parse_err_fn = unknown_splitting)]
pub enum Splitting {
    /// Jacobi, scaled if a row sum of |L| is 1 or more.
    Auto,
    /// L = I − D⁻¹A, f = D⁻¹b with D = diag(A).
    Jacobi,
    /// V⁻¹LV and V⁻¹f of Jacobi, with x = V y.
    ///
    /// V is a positive diagonal matrix for which all row sums of |V⁻¹LV| are below 1.
    ScaledJacobi,
    /// The matrix is L and the right-hand side f.
    Given,
}

fn unknown_splitting(name: &str) -> Error {
    Invalid::name::<Splitting>("splitting", name)
}

/// Number of steps of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// Smallest number for which the truncation is at most δ (`delta` of [`Options`]).
    Bound,
    /// Given number.
    Steps(u32),
}

/// Number of chains of a component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// Doubled repeatedly, until the half-width is at most ε (`epsilon` of [`Options`]).
    Grow,
    /// Given number, over all replicates.
    Number(u64),
}

impl FromStr for Length {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        match (s, count(s)) {
            ("auto", _) => Ok(Self::Bound),
            (_, Some(steps)) => Ok(Self::Steps(steps)),
            _ => Invalid::Argument("length")
                .fail(format!("invalid length '{s}': expected auto or a number of steps")),
        }
    }
}

impl FromStr for Count {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        match (s, count(s)) {
            ("auto", _) => Ok(Self::Grow),
            (_, Some(number)) => Ok(Self::Number(number)),
            _ => Invalid::Argument("chains")
                .fail(format!("invalid number of chains '{s}': expected auto or a number")),
        }
    }
}

options! {
    /// Options of walks.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Options {
        /// Requested half-width.
        ///
        /// By default it is 10⁻³ of max |f| / (1 − ‖L‖), for a functional times Σ |h_i|.
        pub epsilon: Option<f64> = None,
        /// Probability that an interval contains the component.
        pub confidence: f64 = 0.95,
        /// Sequence of points.
        pub sequence: Sequence = Sequence::Sobol,
        /// Randomisation of the replicates; by default that of the sequence.
        pub scramble: Option<Scramble> = None,
        /// Seed of the random numbers and scrambles of all components and replicates.
        pub seed: u64 = 0,
        /// Number of independent replicates R.
        pub replicates: u32 = 16,
        /// Number of chains of a component over all replicates.
        pub chains: Count = Count::Grow,
        /// Largest number of chains of a component, over all replicates.
        pub max_chains: u64 = 1 << 26,
        /// Largest number of steps T of a chain.
        pub length: Length = Length::Bound,
        /// Bound of the truncation; by default a tenth of ε.
        pub delta: Option<f64> = None,
        /// Splitting of A x = b into x = L x + f.
        pub splitting: Splitting = Splitting::Auto,
        /// Control variate: approximate solution from whose residual walks estimate the correction.
        pub control: ControlVariate = ControlVariate::Auto,
        /// Time after which no products and chains are begun, and the current result is returned.
        ///
        /// The certificate of convergence is computed in any case.
        pub time_limit: Option<Duration> = None,
        /// Time limit of the walks alone, without the preparation, for a pilot run.
        pub walk_limit: Option<Duration> = None,
    }
}

impl Options {
    /// True if the number and length of chains follow from ε.
    pub(super) fn walks_as_needed(&self) -> bool {
        self.chains == Count::Grow && self.length == Length::Bound
    }
}

/// Points of a replicate in the first round.
pub const PILOT: u64 = 1 << 10;
/// Largest number of points of a replicate.
const MOST_POINTS: u64 = 1 << 31;
/// Limit of the number of steps of a chain.
pub(super) const MOST_LENGTH: u32 = 1 << 24;
const MOST_REPLICATES: u32 = 1 << 16;

/// Checks the problem and the options before any computation.
pub(super) fn check(problem: &Problem<'_>, options: &Options) -> Result<()> {
    let &Problem { matrix, rhs, components, functionals } = problem;
    let n = matrix.rows();
    Invalid::States.unless(!components.is_empty() || !functionals.is_empty(), || {
        "no component given: expected at least one, or a functional".to_owned()
    })?;
    for (k, h) in functionals.iter().enumerate() {
        let entries = h.len();
        Invalid::Shape.unless(entries == n, || {
            format!("functional {k} has {entries} entries, but the matrix {n} rows: expected equal numbers")
        })?;
        if let Some(i) = h.iter().position(|h| !h.is_finite()) {
            let h = h[i];
            return Invalid::Number("functionals").fail(format!(
                "entry {i} of functional {k}, counted from 0, is {h}: expected a finite number"
            ));
        }
    }
    if let Some(m) = components.iter().find(|&&m| m as usize >= n) {
        let last = n.max(1) - 1;
        return Invalid::States.fail(format!(
            "component {m} of a system of {n} unknowns is out of range: expected 0 to {last}"
        ));
    }
    if let Some(twice) = duplicate(components) {
        return Invalid::States.fail(format!("duplicate component {twice}; name it once"));
    }
    Invalid::Shape.unless(!rhs.is_empty(), || "no right-hand side: expected at least one".to_owned())?;
    for (what, value) in [("epsilon", options.epsilon), ("delta", options.delta)] {
        let value = value.unwrap_or(1.0);
        Invalid::Argument(what).unless(value > 0.0 && value.is_finite(), || {
            format!("invalid `{what}` {value}: expected a finite number above 0")
        })?;
    }
    expect_confidence(options.confidence)?;
    let replicates = options.replicates;
    Invalid::Argument("replicates").unless((1..=MOST_REPLICATES).contains(&replicates), || {
        format!("`replicates` {replicates} is out of range: expected 1 to {MOST_REPLICATES}")
    })?;
    Invalid::Argument("replicates").unless(replicates > 1 || options.chains != Count::Grow, || {
        "`replicates` 1 gives no interval, so that the number of chains cannot grow; give 2 or more, or set \
         `chains`"
            .to_owned()
    })?;
    if let Length::Steps(length @ MOST_LENGTH..) = options.length {
        return Invalid::Argument("length")
            .fail(format!("`length` {length} is out of range: expected fewer than {MOST_LENGTH} steps"));
    }
    let most = MOST_POINTS * u64::from(replicates);
    let number = if let Count::Number(number) = options.chains { number } else { 1 };
    for (what, chains) in [("chains", number), ("max_chains", options.max_chains)] {
        Invalid::Argument(what).unless((1..=most).contains(&chains), || {
            format!(
                "`{what}` {chains} is out of range: expected 1 to {most}, {MOST_POINTS} for each of {replicates} \
                 replicates"
            )
        })?;
    }
    Ok(())
}

/// Returns the scramble, and the number of replicates: 1 if the scramble does not make them differ.
pub(super) fn replicates(options: &Options, warnings: &mut Vec<String>) -> (Scramble, u32) {
    let scramble = options.scramble.unwrap_or(options.sequence.default_scramble());
    if options.sequence.varies(scramble) {
        return (scramble, options.replicates);
    }
    warnings.push(format!(
        "{} without a scramble is the same in every replicate: only one is walked, and its error \
         is unknown",
        options.sequence
    ));
    (scramble, 1)
}

/// Returns the number of points per replicate: in the first round, and at most in all.
pub(super) fn points(options: &Options, replicates: u32, warnings: &mut Vec<String>) -> (u64, u64) {
    let chains = match options.chains {
        Count::Grow => {
            let most = (options.max_chains / u64::from(replicates)).max(1);
            let most = 1 << most.min(MOST_POINTS).ilog2();
            return (PILOT.min(most), most);
        }
        Count::Number(number) => number,
    };
    let each = chains.div_ceil(u64::from(replicates));
    let net = matches!(options.sequence, Sequence::Sobol);
    if net && !each.is_power_of_two() {
        warnings.push(format!(
            "{each} chains a replicate are not a power of 2, for which Sobol points are most even; \
             {} or {} chains in all would be",
            u64::from(replicates) << each.ilog2(),
            u64::from(replicates) << (each.ilog2() + 1)
        ));
    }
    if !chains.is_multiple_of(u64::from(replicates)) {
        warnings.push(format!(
            "{chains} chains are not divided evenly over {replicates} replicates; {} are walked",
            each * u64::from(replicates)
        ));
    }
    (each, each)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for name in ["auto", "jacobi", "none", "1000", "krylov"] {
            assert_eq!(name.parse::<ControlVariate>().unwrap().to_string(), name);
        }
        assert_eq!("1e3".parse::<ControlVariate>().unwrap(), ControlVariate::Sweeps(1000));
        for name in ["auto", "jacobi", "scaled-jacobi", "given"] {
            assert_eq!(name.parse::<Splitting>().unwrap().to_string(), name);
        }
        let lengths = ["auto", "73"].map(|name| name.parse::<Length>().unwrap());
        assert_eq!(lengths, [Length::Bound, Length::Steps(73)]);
        let counts = ["auto", "73"].map(|name| name.parse::<Count>().unwrap());
        assert_eq!(counts, [Count::Grow, Count::Number(73)]);
    }
}
