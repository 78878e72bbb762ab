//! What is asked for, and what of it can be answered.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::sequence::{Scramble, Sequence};
use crate::sparse::CsrMatrix;
use crate::util::quantity::count;
use crate::{Error, Result};

/// A x = b and what is wanted of x.
#[derive(Debug, Clone, Copy)]
pub struct Problem<'a> {
    /// A, n × n; L itself with [`Splitting::Given`].
    pub matrix: &'a CsrMatrix,
    /// Right-hand sides b, each of n numbers.
    pub rhs: &'a [Vec<f64>],
    /// Components of x, from 0, each once.
    pub components: &'a [u32],
    /// Functionals: h of n numbers each, of which ⟨h, x⟩ is wanted.
    pub functionals: &'a [Vec<f64>],
}

/// Sweeps that can be asked for.
const MOST_SWEEPS: u32 = 100_000;

/// The control variate of walks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlVariate {
    /// As [`Jacobi`](Self::Jacobi), and then [`Krylov`](Self::Krylov) where walks would take longer, unless their number or
    /// length is given.
    Auto,
    /// At most [`MOST_AUTO`](super::control_variate::MOST_AUTO) sweeps, fewer where they leave little to walk for.
    Jacobi,
    /// That many sweeps; 0 walks on f itself.
    Sweeps(u32),
    /// BiCGSTAB, until walks have nothing left to do or it gains no more.
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
            _ => Err(Error::Invalid(format!(
                "invalid control variate '{s}': expected auto, none, jacobi, krylov or a number of \
                 Jacobi sweeps up to {MOST_SWEEPS}"
            ))),
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

/// How L and f come from A and b.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Splitting {
    /// Jacobi, scaled where a row sum of |L| is not below 1.
    Auto,
    /// L = I − D⁻¹A, f = D⁻¹b with D = diag(A).
    Jacobi,
    /// V⁻¹LV and V⁻¹f of Jacobi with a positive diagonal V, whose row sums are all below 1; x = V y.
    ScaledJacobi,
    /// L = I − ωA, f = ωb.
    Richardson(f64),
    /// The matrix is L and the right-hand side f.
    Given,
}

impl FromStr for Splitting {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        Ok(match s.split_once(':') {
            None if s == "auto" => Self::Auto,
            None if s == "jacobi" => Self::Jacobi,
            None if s == "scaled-jacobi" => Self::ScaledJacobi,
            None if s == "given" => Self::Given,
            Some(("richardson", w)) => match w.parse::<f64>() {
                Ok(w) if w.is_finite() && w != 0.0 => Self::Richardson(w),
                _ => {
                    return Err(Error::Invalid(format!(
                        "invalid factor {w} of richardson:W: expected a finite number other than \
                         0, at best 1 over the largest diagonal entry"
                    )));
                }
            },
            _ => {
                return Err(Error::Invalid(format!(
                    "invalid splitting '{s}': expected auto, jacobi, scaled-jacobi, richardson:W \
                     or given"
                )));
            }
        })
    }
}

impl fmt::Display for Splitting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Jacobi => f.write_str("jacobi"),
            Self::ScaledJacobi => f.write_str("scaled-jacobi"),
            Self::Richardson(w) => write!(f, "richardson:{w}"),
            Self::Given => f.write_str("given"),
        }
    }
}

/// Order of the entries in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowOrder {
    /// By what the entry leads to: sign(l_ij) h_j. The map from fractions to values is then monotone, which is what
    /// quasi-random points are good at.
    Value,
    /// By column.
    Index,
}

/// Steps of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// So many that what is left out is at most δ.
    Bound,
    /// That many.
    Steps(u32),
    /// (2.16) as printed.
    Printed,
}

/// Chains of a component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// Twice as many again and again, until the interval meets ε.
    Grow,
    /// That many over all replicates.
    Number(u64),
    /// (2.20) with ‖L‖.
    Norm,
    /// (2.20) with the norm of the component's row, as the paper suggests; that is no bound.
    RowNorm,
}

impl FromStr for Length {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        match (s, count(s)) {
            ("auto" | "corrected", _) => Ok(Self::Bound),
            ("printed", _) => Ok(Self::Printed),
            (_, Some(steps)) => Ok(Self::Steps(steps)),
            _ => Err(Error::Invalid(format!(
                "invalid length '{s}': expected a number of steps, corrected or printed"
            ))),
        }
    }
}

impl FromStr for Count {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        match (s, count(s)) {
            ("auto", _) => Ok(Self::Grow),
            ("norm", _) => Ok(Self::Norm),
            ("row-norm", _) => Ok(Self::RowNorm),
            (_, Some(number)) => Ok(Self::Number(number)),
            _ => Err(Error::Invalid(format!(
                "invalid number of chains '{s}': expected a number, norm or row-norm"
            ))),
        }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Grow => f.write_str("auto"),
            Self::Number(n) => write!(f, "{n}"),
            Self::Norm => f.write_str("norm"),
            Self::RowNorm => f.write_str("row-norm"),
        }
    }
}

/// Groups and threads of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// Groups.
    pub groups: u32,
    /// Threads of a group: 32, 64, 128, 256, 512 or 1024.
    pub size: u32,
}

impl Grid {
    /// The grid of the figures of 2015.
    pub const PUBLISHED: Self = Self { groups: 84, size: 512 };
}

/// How walks are walked.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Half-width that intervals must not exceed; `None` is 10⁻³ of max |f| / (1 − norm).
    pub epsilon: Option<f64>,
    /// Probability that an interval is to hold the component.
    pub confidence: f64,
    /// Where the points come from.
    pub sequence: Sequence,
    /// How replicates differ; `None` is the sequence's own way.
    pub scramble: Option<Scramble>,
    /// Seed of all streams.
    pub seed: u64,
    /// Independent replicates R.
    pub replicates: u32,
    /// Chains of a component over all replicates.
    pub chains: Count,
    /// Chains of a component at most, over all replicates.
    pub max_chains: u64,
    /// Steps T of a chain at most.
    pub length: Length,
    /// Bound of the truncation; `None` is a tenth of ε.
    pub delta: Option<f64>,
    /// How L and f come from A and b.
    pub splitting: Splitting,
    /// Order of the entries in a row.
    pub order: RowOrder,
    /// What walks walk on what is left of.
    pub control: ControlVariate,
    /// One sequence for all components.
    pub shared: bool,
    /// Walk although nothing proves that walks converge.
    pub force: bool,
    /// Walk straight from A, without a table, order, control variate or certificate: intervals are then conditional on the rows
    /// that no walk met being no worse than those that were met.
    pub lazy: bool,
    /// Walk on a grid of that many groups and threads, a replicate after the other.
    pub grid: Option<Grid>,
    /// Make the points ahead, into a buffer.
    pub ahead: bool,
    /// Generators of MTGP32, each with a parameter set of its own.
    pub groups: u32,
    /// After that time no more products and chains are begun, and what there is by then is the answer. The certificate of
    /// convergence is found in any case.
    pub time_limit: Option<Duration>,
    /// Time after which walks end, not counting the preparation: that of a pilot.
    #[doc(hidden)]
    pub walk_limit: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            epsilon: None,
            confidence: 0.95,
            sequence: Sequence::Sobol,
            scramble: None,
            seed: 0,
            replicates: 16,
            chains: Count::Grow,
            max_chains: 1 << 26,
            length: Length::Bound,
            delta: None,
            splitting: Splitting::Auto,
            order: RowOrder::Value,
            control: ControlVariate::Auto,
            shared: false,
            force: false,
            lazy: false,
            grid: None,
            ahead: false,
            groups: Grid::PUBLISHED.groups,
            time_limit: None,
            walk_limit: None,
        }
    }
}

impl Options {
    /// The number of walks and their length follow from ε.
    pub(super) fn walks_as_needed(&self) -> bool {
        self.chains == Count::Grow && self.length == Length::Bound
    }
}

/// Points of a replicate in the first round.
pub const PILOT: u64 = 1 << 10;
/// Points that a replicate can have.
const MOST_POINTS: u64 = 1 << 31;
/// Steps that a chain can have.
pub(super) const MOST_LENGTH: u32 = 1 << 24;
/// Replicates that can be asked for.
const MOST_REPLICATES: u32 = 1 << 16;

/// What can be wrong before anything is computed.
pub(super) fn check(problem: &Problem<'_>, options: &Options) -> Result<()> {
    let fail = |reason: String| Err(Error::Invalid(reason));
    let n = problem.matrix.rows();
    if problem.components.is_empty() && problem.functionals.is_empty() {
        return fail("no component given: expected at least one, or a functional".to_owned());
    }
    for (k, h) in problem.functionals.iter().enumerate() {
        if h.len() != n {
            return fail(format!(
                "functional {k} has {} entries, but the matrix {n} rows: expected equal numbers",
                h.len()
            ));
        }
        if let Some(i) = h.iter().position(|h| !h.is_finite()) {
            return fail(format!(
                "entry {i} of functional {k}, counted from 0, is {}: expected a finite number",
                h[i]
            ));
        }
    }
    if let Some(m) = problem.components.iter().find(|&&m| m as usize >= n) {
        return fail(format!(
            "component {m} of a system of {n} unknowns is out of range: expected 0 to {}",
            n.max(1) - 1
        ));
    }
    let mut sorted = problem.components.to_vec();
    sorted.sort_unstable();
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        return fail(format!("duplicate component {}; name it once", pair[0]));
    }
    if problem.rhs.is_empty() {
        return fail("no right-hand side: expected at least one".to_owned());
    }
    for (what, value) in [("epsilon", options.epsilon), ("delta", options.delta)] {
        if let Some(value) = value
            && !(value > 0.0 && value.is_finite())
        {
            return fail(format!("invalid `{what}` {value}: expected a finite number above 0"));
        }
    }
    if !(options.confidence > 0.0 && options.confidence < 1.0) {
        return fail(format!(
            "`confidence` {} is out of range: expected a number between 0 and 1, both excluded",
            options.confidence
        ));
    }
    if options.replicates == 0 || options.replicates > MOST_REPLICATES {
        return fail(format!(
            "`replicates` {} is out of range: expected 1 to {MOST_REPLICATES}",
            options.replicates
        ));
    }
    if options.replicates == 1 && options.chains == Count::Grow {
        return fail(
            "`replicates` 1 gives no interval, so that the number of chains cannot grow; give 2 or \
             more, or set `chains`"
                .to_owned(),
        );
    }
    if let Length::Steps(length @ MOST_LENGTH..) = options.length {
        return fail(format!(
            "`length` {length} is out of range: expected fewer than {MOST_LENGTH} \
                             steps"
        ));
    }
    let most = MOST_POINTS * u64::from(options.replicates);
    let number = match options.chains {
        Count::Number(number) => number,
        _ => 1,
    };
    for (what, chains) in [("chains", number), ("max_chains", options.max_chains)] {
        if chains == 0 || chains > most {
            return fail(format!(
                "`{what}` {chains} is out of range: expected 1 to {most}, {MOST_POINTS} for each \
                 of {} replicates",
                options.replicates
            ));
        }
    }
    Ok(())
}

/// The scramble and how many replicates it makes.
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

/// Points of a replicate, in the first round and at most. `by_norm` is N of (2.20) for a norm or that of rows.
pub(super) fn points(
    options: &Options,
    replicates: u32,
    by_norm: impl Fn(bool) -> f64,
    warnings: &mut Vec<String>,
) -> Result<(u64, u64)> {
    let most = MOST_POINTS * u64::from(replicates);
    let estimated = |rows: bool| match by_norm(rows) {
        n if n <= most as f64 => Ok(n as u64),
        n => Err(Error::Invalid(format!(
            "the a-priori estimate of {n:.2e} chains is out of range: expected at most {most}; \
             give a larger `epsilon` or set `chains`"
        ))),
    };
    let chains = match options.chains {
        Count::Grow => {
            let most = (options.max_chains / u64::from(replicates)).max(1);
            let most = 1 << most.min(MOST_POINTS).ilog2();
            return Ok((PILOT.min(most), most));
        }
        Count::Number(number) => number,
        Count::Norm => estimated(false)?,
        Count::RowNorm => estimated(true)?,
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
    Ok((each, each))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!("printed".parse::<Length>().unwrap(), Length::Printed);
        assert_eq!("73".parse::<Length>().unwrap(), Length::Steps(73));
        assert_eq!("row-norm".parse::<Count>().unwrap(), Count::RowNorm);
        for wrong in ["", "-1", "1.5", "long"] {
            assert!(wrong.parse::<Length>().is_err() && wrong.parse::<Count>().is_err(), "{wrong}");
        }
    }
}
