//! Components of x with their intervals.

use std::time::Instant;

use serde::Serialize;

use super::chains::{Chains, Feed, Round, Task};
use super::control::{Control, Sweeps};
use super::gate::{Gate, gate};
use super::interval::student;
use super::kernels::COLUMNS;
use super::sequence::{Scramble, Sequence};
use super::splitting::{Split, Splitting};
use super::table::{RowOrder, Table};
use crate::kernel::Precision;
use crate::lane::Lane;
use crate::sparse::CsrMatrix;
use crate::transient::Status;
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
    /// Chains of a component over all replicates; `None` grows their number until the interval meets ε.
    pub chains: Option<u64>,
    /// Chains of a component at most, over all replicates.
    pub max_chains: u64,
    /// Steps T of a chain at most; `None` is what the truncation asks for.
    pub length: Option<u32>,
    /// Bound of the truncation; `None` is a tenth of ε.
    pub delta: Option<f64>,
    /// How L and f come from A and b.
    pub splitting: Splitting,
    /// Order of the entries in a row.
    pub order: RowOrder,
    /// Sweeps of the control variate.
    pub sweeps: Sweeps,
    /// One sequence for all components.
    pub shared: bool,
    /// Walk although nothing proves that walks converge.
    pub force: bool,
    /// Generators of MTGP32, each with a parameter set of its own.
    pub groups: u32,
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
            chains: None,
            max_chains: 1 << 26,
            length: None,
            delta: None,
            splitting: Splitting::Auto,
            order: RowOrder::Value,
            sweeps: Sweeps::Auto,
            shared: false,
            force: false,
            groups: 84,
        }
    }
}

/// Parts of a half-width; they add up.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bound {
    /// Student interval of the replicates, of the probability asked for.
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

/// One component of one solution.
#[derive(Debug, Clone, Serialize)]
pub struct Component {
    /// Its number, from 0.
    pub component: u32,
    /// Number of the right-hand side, from 0.
    pub rhs: usize,
    /// x there.
    pub estimate: f64,
    /// Half-width of its interval: the sum of the bound's parts.
    pub half_width: f64,
    /// The parts.
    pub bound: Bound,
    /// Chains over all replicates.
    pub chains: u64,
    /// Steps of a chain at most.
    pub length: u32,
}

/// Seconds of a run's phases.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Seconds {
    /// Reading or generating the system.
    pub load: f64,
    /// Splitting, sweeps, order and table.
    pub build: f64,
    /// The gate's vector, where there had to be one.
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

/// Components and all that is known of them.
#[derive(Debug, Clone)]
pub struct Solution {
    /// Whether every half-width is at most ε.
    pub status: Status,
    /// Right-hand side by right-hand side, components in the order they were asked for.
    pub components: Vec<Component>,
    /// Of the component with the largest half-width.
    pub bound: Bound,
    /// ε, given or by default.
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

/// Points of a replicate in the first round.
const PILOT: u64 = 1 << 10;
/// Points that a replicate can have.
const MOST_POINTS: u64 = 1 << 31;
/// Steps that a chain can have.
pub(super) const MOST_LENGTH: u32 = 1 << 24;
/// Replicates that can be asked for.
const MOST_REPLICATES: u32 = 1 << 16;

/// Estimates components of x with intervals; `watch` gets the steps of a round done and to do, 0 where not known.
///
/// # Errors
/// [`Error::Invalid`] for input without an answer, [`Error::Divergent`] for systems whose walks would not converge,
/// errors of lanes, and what `watch` returns.
pub fn solve(
    lanes: &[Lane],
    precision: Precision,
    problem: &Problem<'_>,
    options: &Options,
    watch: &mut (dyn FnMut(u64, u64) -> Result<()> + Send),
) -> Result<Solution> {
    let started = Instant::now();
    let Some(first_lane) = lanes.first() else {
        return Err(Error::Invalid("no lane to walk on; name a device".to_owned()));
    };
    check(problem, options)?;
    let mut seconds = Seconds::default();
    let split = first_lane.host(|| Split::new(problem.matrix, options.splitting))?;
    let fs: Vec<Vec<f64>> = problem.rhs.iter().map(|b| split.constant(b)).collect::<Result<_>>()?;
    let at = Instant::now();
    let gate = first_lane.host(|| gate(&split, options.splitting, options.force))?;
    if gate.products > 0 {
        seconds.certificate = at.elapsed().as_secs_f64();
    }
    watch(0, 0)?;

    let proved = gate.norm < 1.0;
    let scramble = options.scramble.unwrap_or(options.sequence.default_scramble());
    let mut warnings = Vec::new();
    let replicates = match options.sequence.varies(scramble) {
        true => options.replicates,
        false => {
            warnings.push(format!(
                "{} without a scramble is the same in every replicate: one is walked, and nothing is known of its error",
                options.sequence
            ));
            1
        }
    };
    let epsilon = options.epsilon.unwrap_or_else(|| {
        let largest = fs.iter().flatten().fold(0.0f64, |m, f| m.max(f.abs()));
        let norm = if proved { gate.norm } else { 0.0 };
        // x = 0 has no scale of its own.
        if largest > 0.0 { 1e-3 * largest / (1.0 - norm) } else { 1e-3 }
    });
    let per_replicate = points(options, replicates, &mut warnings)?;

    let mut all = Vec::new();
    let (mut sweeps, mut steps, mut table_bytes, mut tabled) = (0, 0, 0, 0);
    let mut jacobi: Option<Jacobi> = None;
    for (batch, fs) in fs.chunks(COLUMNS).enumerate() {
        let side = Sides {
            lanes,
            precision,
            split: &split,
            gate: &gate,
            components: problem.components,
            options,
            epsilon,
            delta: options.delta.unwrap_or(0.1 * epsilon),
            scramble,
            replicates,
            per_replicate,
        };
        let done = side.solve(batch * COLUMNS, fs, &mut seconds, watch)?;
        all.extend(done.components);
        sweeps = sweeps.max(done.sweeps);
        steps += done.steps;
        table_bytes = done.table_bytes.max(table_bytes);
        tabled = done.tabled.max(tabled);
        if let Some(j) = done.jacobi {
            let sum = jacobi.get_or_insert(Jacobi { sweeps: 0.0, seconds: 0.0 });
            (sum.sweeps, sum.seconds) = (sum.sweeps.max(j.sweeps), sum.seconds + j.seconds);
        }
    }
    let worst = all
        .iter()
        .max_by(|a: &&Component, b| a.half_width.total_cmp(&b.half_width))
        .map_or(Bound { statistical: 0.0, truncation: 0.0, rounding: 0.0 }, |c| c.bound);
    seconds.download = lanes.iter().map(|lane| lane.transfer_seconds().1).sum();
    seconds.total = started.elapsed().as_secs_f64();
    seconds.build = (seconds.total - seconds.certificate - seconds.upload - seconds.solve).max(0.0);
    Ok(Solution {
        status: if worst.total() <= epsilon { Status::Met } else { Status::NotMet },
        components: all,
        bound: worst,
        epsilon,
        n: split.unknowns(),
        nnz: problem.matrix.nnz(),
        splitting: gate.splitting,
        norm: gate.norm,
        row_norm: (gate.row_norm, gate.worst_row),
        products: gate.products,
        sweeps,
        sequence: (options.sequence, scramble),
        tabled,
        replicates,
        steps,
        table_bytes,
        jacobi,
        warnings,
        seconds,
    })
}

/// What can be wrong before anything is computed.
fn check(problem: &Problem<'_>, options: &Options) -> Result<()> {
    let fail = |reason: String| Err(Error::Invalid(reason));
    let n = problem.matrix.rows();
    if problem.components.is_empty() {
        return fail("no component is asked for; name some, such as --component 0".to_owned());
    }
    if let Some(m) = problem.components.iter().find(|&&m| m as usize >= n) {
        return fail(format!("component {m} is none of a system of {n} unknowns; they are 0 to {}", n.max(1) - 1));
    }
    let mut sorted = problem.components.to_vec();
    sorted.sort_unstable();
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        return fail(format!("component {} is named twice; name it once", pair[0]));
    }
    if problem.rhs.is_empty() {
        return fail("no right-hand side; give one".to_owned());
    }
    for (what, value) in [("epsilon", options.epsilon), ("delta", options.delta)] {
        if let Some(value) = value
            && !(value > 0.0 && value.is_finite())
        {
            return fail(format!("--{what} {value} must be a finite number above 0"));
        }
    }
    if !(options.confidence > 0.0 && options.confidence < 1.0) {
        return fail(format!("--confidence {} must lie between 0 and 1, both excluded", options.confidence));
    }
    if options.replicates == 0 || options.replicates > MOST_REPLICATES {
        return fail(format!("--replicates {} must lie between 1 and {MOST_REPLICATES}", options.replicates));
    }
    if let Some(length) = options.length.filter(|&l| l > MOST_LENGTH) {
        return fail(format!("--length {length} is more than {MOST_LENGTH} steps"));
    }
    let most = MOST_POINTS * u64::from(options.replicates);
    for (what, chains) in [("chains", options.chains), ("max-chains", Some(options.max_chains))] {
        if let Some(chains) = chains
            && (chains == 0 || chains > most)
        {
            return fail(format!(
                "--{what} {chains} must lie between 1 and {most}, {MOST_POINTS} for each of {} replicates",
                options.replicates
            ));
        }
    }
    Ok(())
}

/// Points of a replicate: in the first round and at most.
fn points(options: &Options, replicates: u32, warnings: &mut Vec<String>) -> Result<(u64, u64)> {
    let Some(chains) = options.chains else {
        let most = (options.max_chains / u64::from(replicates)).max(1);
        let most = 1 << most.min(MOST_POINTS).ilog2();
        return Ok((PILOT.min(most), most));
    };
    let each = chains.div_ceil(u64::from(replicates));
    let net = matches!(options.sequence, Sequence::Sobol);
    if net && !each.is_power_of_two() {
        warnings.push(format!(
            "{each} chains a replicate are no power of 2, which is where Sobol points are most even; \
             {} or {} chains in all would be",
            u64::from(replicates) << each.ilog2(),
            u64::from(replicates) << (each.ilog2() + 1)
        ));
    }
    if !chains.is_multiple_of(u64::from(replicates)) {
        warnings.push(format!(
            "{chains} chains are not shared out evenly over {replicates} replicates; {} are walked",
            each * u64::from(replicates)
        ));
    }
    Ok((each, each))
}

/// Right-hand sides that share their walks.
struct Sides<'a> {
    lanes: &'a [Lane],
    precision: Precision,
    split: &'a Split<'a>,
    gate: &'a Gate,
    components: &'a [u32],
    options: &'a Options,
    epsilon: f64,
    delta: f64,
    scramble: Scramble,
    replicates: u32,
    per_replicate: (u64, u64),
}

struct Done {
    components: Vec<Component>,
    sweeps: u32,
    steps: u64,
    table_bytes: u64,
    tabled: u32,
    jacobi: Option<Jacobi>,
}

/// A component on its way to its interval.
struct Growing {
    component: u32,
    /// Of each replicate, column by column.
    sums: Vec<f64>,
    columns: usize,
    points: u64,
}

impl Sides<'_> {
    fn solve(
        &self,
        first_rhs: usize,
        fs: &[Vec<f64>],
        seconds: &mut Seconds,
        watch: &mut (dyn FnMut(u64, u64) -> Result<()> + Send),
    ) -> Result<Done> {
        let (options, gate, split) = (self.options, self.gate, self.split);
        let (controls, table) = self.lanes[0].host(|| {
            let enough = 0.25 * self.epsilon;
            let controls: Vec<Control> =
                fs.iter().map(|f| Control::new(split, gate, f, options.sweeps, enough)).collect();
            // Several columns have one order: the first one's.
            let order = match options.order {
                RowOrder::Value => {
                    let mut values = vec![0.0; split.unknowns()];
                    split.sweep(&controls[0].r, &controls[0].r, &mut values);
                    Some(values)
                }
                RowOrder::Index => None,
            };
            let columns: Vec<&[f64]> = controls.iter().map(|c| &c.r[..]).collect();
            let table = Table::build(split, gate, &columns, order.as_deref());
            (controls, table)
        });
        let table = table?;
        watch(0, 0)?;
        let (length, cut) = self.length(&controls)?;
        let feed =
            Feed::new(options.sequence, self.scramble, length, options.seed, options.groups, false)?;
        let at = Instant::now();
        let chains = Chains::new(self.lanes, self.precision, &table, &feed)?;
        let columns = chains.columns();
        seconds.upload += at.elapsed().as_secs_f64();

        let at = Instant::now();
        let mut growing: Vec<Growing> = self
            .components
            .iter()
            .map(|&component| Growing {
                component,
                sums: vec![0.0; self.replicates as usize * columns],
                columns,
                points: 0,
            })
            .collect();
        let mut active: Vec<usize> = (0..growing.len()).collect();
        let (mut end, most) = self.per_replicate;
        let mut steps = 0;
        loop {
            let tasks: Vec<Task> = active
                .iter()
                .flat_map(|&k| {
                    let row = growing[k].component;
                    let component = if options.shared { 0 } else { row };
                    (0..self.replicates).map(move |replicate| Task { row, component, replicate })
                })
                .collect();
            let first = active.first().map_or(0, |&k| growing[k].points);
            let round = Round { points: (first as u32, end as u32), length, cut };
            let sums = chains.sums(&tasks, round, watch)?;
            steps += (end - first) * tasks.len() as u64 * u64::from(length);
            for (&k, sums) in active.iter().zip(sums.chunks(self.replicates as usize * columns)) {
                growing[k].sums.iter_mut().zip(sums).for_each(|(all, new)| *all += new);
                growing[k].points = end;
            }
            if end >= most {
                break;
            }
            active.retain(|&k| {
                let missed = |(column, control): (usize, &Control)| {
                    let c = self.result(first_rhs, column, &growing[k], control, &table, length, cut);
                    c.half_width > self.epsilon
                };
                controls.iter().enumerate().any(missed)
            });
            if active.is_empty() {
                break;
            }
            end = (2 * end).min(most);
        }
        seconds.solve += at.elapsed().as_secs_f64();
        let mut components = Vec::with_capacity(growing.len() * controls.len());
        for (column, control) in controls.iter().enumerate() {
            let of = |g: &Growing| self.result(first_rhs, column, g, control, &table, length, cut);
            components.extend(growing.iter().map(of));
        }
        let jacobi: Option<Vec<Jacobi>> = controls.iter().map(|c| self.jacobi(c)).collect();
        Ok(Done {
            components,
            sweeps: controls.iter().map(|c| c.sweeps).max().unwrap_or(0),
            steps,
            table_bytes: 4 * table.words.len() as u64,
            tabled: feed.tabled(),
            jacobi: jacobi.map(|all| Jacobi {
                sweeps: all.iter().map(|j| j.sweeps).fold(0.0, f64::max),
                seconds: all.iter().map(|j| j.seconds).sum(),
            }),
        })
    }

    /// T and the weight at which chains are cut, so that the truncation is at most δ for every component.
    fn length(&self, controls: &[Control]) -> Result<(u32, f32)> {
        let rho = self.gate.norm;
        let norm = controls.iter().map(|c| c.norm).fold(0.0, f64::max);
        if let Some(length) = self.options.length {
            return Ok((length, 0.0));
        }
        if norm == 0.0 {
            return Ok((0, 0.0));
        }
        if rho >= 1.0 {
            return Err(Error::Invalid(format!(
                "the norm of L is bounded by {rho} alone, which says nothing of where chains may end; give their \
                 length with --length"
            )));
        }
        let scale = self.components.iter().map(|&m| self.gate.scale(m as usize)).fold(0.0, f64::max);
        // v_m ‖r‖ ρ^(T+1) / (1 − ρ) ≤ δ.
        let exact = (self.delta * (1.0 - rho) / (scale * norm)).ln() / rho.ln();
        let length = (exact.ceil() - 1.0).max(0.0);
        if length > f64::from(MOST_LENGTH) {
            return Err(Error::Invalid(format!(
                "chains of {length} steps, more than {MOST_LENGTH}, would be needed for a truncation of {:e} at the norm \
                 {rho}; give a larger --epsilon or --delta, or a --length, or solve the whole system",
                self.delta
            )));
        }
        // |W| v_s ‖r‖ / (1 − ρ) ≤ δ, where scaled walks carry v_m in the place of v_s ≤ 1.
        let cut = self.delta * (1.0 - rho) / (norm * if self.gate.scaled { scale } else { 1.0 });
        // Rounded down, and never as large as the weight 1 that chains begin with.
        Ok((length as u32, ((cut * (1.0 - 1e-6)).min(0.5)) as f32))
    }

    #[expect(clippy::too_many_arguments, reason = "all that an interval depends on")]
    fn result(
        &self,
        first_rhs: usize,
        column: usize,
        growing: &Growing,
        control: &Control,
        table: &Table,
        length: u32,
        cut: f32,
    ) -> Component {
        let m = growing.component as usize;
        let points = growing.points as f64;
        let scale = self.gate.walk_scale(m);
        let sums = growing.sums.iter().skip(column).step_by(growing.columns);
        let means: Vec<f64> = sums.map(|s| control.h[m] + scale * s / points).collect();
        let (estimate, statistical) = student(&means, self.options.confidence);
        let statistical = if control.norm == 0.0 { 0.0 } else { statistical };
        let (truncation, rounding) = self.certain(m, control, table, length, cut, growing.points);
        let bound = Bound { statistical, truncation, rounding };
        Component {
            component: growing.component,
            rhs: first_rhs + column,
            estimate,
            half_width: bound.total(),
            bound,
            chains: growing.points * u64::from(self.replicates),
            length,
        }
    }

    /// Bounds of truncation and rounding. Norms are those of V⁻¹LV and V⁻¹g, v_m brings them back.
    fn certain(&self, m: usize, control: &Control, table: &Table, length: u32, cut: f32, points: u64) -> (f64, f64) {
        let (rho, v) = (self.gate.norm, self.gate.scale(m));
        if control.norm == 0.0 {
            return (0.0, v * f64::EPSILON * control.norms);
        }
        if rho >= 1.0 {
            return (f64::INFINITY, f64::INFINITY);
        }
        let sum = control.norm / (1.0 - rho);
        let tail = v * rho.powi(length.saturating_add(1).min(i32::MAX as u32) as i32);
        let truncation = sum * tail.max(f64::from(cut) * if self.gate.scaled { v } else { 1.0 });

        let u = self.precision.unit_roundoff();
        let u64 = Precision::F64.unit_roundoff();
        // g and row sums as pairs of f32, added in the run's precision.
        let number = table.number_error + u;
        // Additions of a chain, of a block, and of blocks on the host.
        let additions = (f64::from(length) + 9.0) * u + (points as f64 / 256.0 + 2.0) * u64;
        // After k steps a weight is off by k (number + u); Σ k ρ^k = ρ / (1 − ρ)².
        let weights = (number + u) * rho / (1.0 - rho);
        // Probabilities that are multiples of 2⁻³² walk on another L; |x̃ − x| ≤ ‖δL‖ ‖x‖ / (1 − ρ).
        let spread = match (&self.gate.vector, self.gate.scaled) {
            (Some(v), false) => 1.0 / v.iter().copied().fold(f64::INFINITY, f64::min),
            _ => 1.0,
        };
        let probabilities = table.probability_error * spread / (1.0 - rho);
        let walks = sum * (number + additions + weights + probabilities);
        // L and f themselves, and the sweeps: at most three roundings a number, and those of a row's sum.
        let longest = 8.0 + (self.split.longest_row() as f64);
        let f = control.norms + control.norm;
        let host = (longest * u64 * f / (1.0 - rho)) * (1.0 + 1.0 / (1.0 - rho));
        (truncation, v * (walks + host))
    }

    /// What the sweeps that were run say of a solution by sweeps alone.
    fn jacobi(&self, control: &Control) -> Option<Jacobi> {
        if control.sweeps < 2 || control.norm == 0.0 || self.gate.norm >= 1.0 {
            return None;
        }
        let rate = control.rate.min(self.gate.norm);
        let left = (self.epsilon * (1.0 - self.gate.norm) / control.norm).ln() / rate.ln();
        let sweeps = (f64::from(control.sweeps) + left.ceil()).max(1.0);
        Some(Jacobi { sweeps, seconds: sweeps * control.sweep_seconds })
    }
}
