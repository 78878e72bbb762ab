//! What is asked for, and what of it can be answered.

use std::time::Duration;

use super::control_variate::ControlVariate;
use super::convergence::certificate::Certificate;
use super::error::a_priori::{Count, Length};
use super::sampling::published_grid::Grid;
use super::sequence::{Scramble, Sequence};
use super::splitting::Splitting;
use super::table::RowOrder;
use crate::parallel::*;
use crate::sparse::CsrMatrix;
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

/// ε where nobody gives one: a thousandth of the largest x that f and the norm allow.
pub fn default_epsilon(f: &[f64], certificate: &Certificate) -> f64 {
    let largest = f.par_iter().map(|f| f.abs()).reduce(|| 0.0, f64::max);
    let norm = if certificate.norm < 1.0 { certificate.norm } else { 0.0 };
    // x = 0 has no scale of its own.
    if largest > 0.0 { 1e-3 * largest / (1.0 - norm) } else { 1e-3 }
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
