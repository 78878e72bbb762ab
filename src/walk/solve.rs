//! Components of x with their intervals.

use std::time::Instant;

use super::chains::{Chains, Feed, Round, Task};
use super::control::{Control, Goal};
use super::gate::{Gate, gate};
use super::growth::{Growing, Growth};
use super::kernels::COLUMNS;
use super::options::{MOST_LENGTH, Options, PILOT, Problem, check, default_epsilon, points, replicates};
use super::published::{self, Length};
use super::sequence::Scramble;
use super::solution::{Bound, Component, Jacobi, Seconds, Solution, largest};
use super::splitting::Split;
use super::table::{RowOrder, Table};
use super::unprepared::unprepared;
use crate::kernel::Precision;
use crate::lane::{HostArray, Lane};
use crate::transient::Status;
use crate::{Error, Result};

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
    if options.lazy {
        return unprepared(lanes, precision, problem, options, watch);
    }
    let mut seconds = Seconds::default();
    // Lanes may have worked before.
    let downloads = || -> f64 { lanes.iter().map(|lane| lane.transfer_seconds().1).sum() };
    let before = downloads();
    let split = first_lane.host(|| Split::new(problem.matrix, options.splitting))?;
    let fs: Vec<HostArray<f64>> = problem.rhs.iter().map(|b| split.constant(b)).collect::<Result<_>>()?;
    let at = Instant::now();
    let gate = first_lane.host(|| gate(&split, options.splitting, options.force))?;
    if gate.products > 0 {
        seconds.certificate = at.elapsed().as_secs_f64();
    }
    watch(0, 0)?;

    let mut warnings = Vec::new();
    let (scramble, replicates) = replicates(options, &mut warnings);
    let epsilon = options.epsilon.unwrap_or_else(|| default_epsilon(fs.iter().map(|f| &f[..]), &gate));
    let by_norm = |rows: bool| {
        let f = fs.iter().map(|f| gate.scaled_norm(f)).fold(0.0, f64::max);
        let row = |&m: &u32| split.row_sum(m as usize);
        let norm = if rows { problem.components.iter().map(row).fold(0.0, f64::max) } else { gate.norm };
        let scale = problem.components.iter().map(|&m| gate.scale(m as usize)).fold(0.0, f64::max);
        published::chains(epsilon, f * scale, norm)
    };
    let per_replicate = points(options, replicates, by_norm, &mut warnings)?;

    let (mut all, mut rounds) = (Vec::new(), Vec::new());
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
        rounds.extend(done.rounds);
        sweeps = sweeps.max(done.sweeps);
        steps += done.steps;
        table_bytes = done.table_bytes.max(table_bytes);
        tabled = done.tabled.max(tabled);
        if let Some(j) = done.jacobi {
            let sum = jacobi.get_or_insert(Jacobi { sweeps: 0.0, seconds: 0.0 });
            (sum.sweeps, sum.seconds) = (sum.sweeps.max(j.sweeps), sum.seconds + j.seconds);
        }
    }
    let worst = largest(&all);
    seconds.download = downloads() - before;
    seconds.total = started.elapsed().as_secs_f64();
    seconds.build = (seconds.total - seconds.certificate - seconds.upload - seconds.solve).max(0.0);
    Ok(Solution {
        status: if worst.total() <= epsilon { Status::Met } else { Status::NotMet },
        components: all,
        rounds,
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
    rounds: Vec<Component>,
    sweeps: u32,
    steps: u64,
    table_bytes: u64,
    tabled: u32,
    jacobi: Option<Jacobi>,
}

impl Sides<'_> {
    fn solve(
        &self,
        first_rhs: usize,
        fs: &[HostArray<f64>],
        seconds: &mut Seconds,
        watch: &mut (dyn FnMut(u64, u64) -> Result<()> + Send),
    ) -> Result<Done> {
        let (options, gate, split) = (self.options, self.gate, self.split);
        let (controls, table) = self.lanes[0].host(|| {
            // Half of it, since what a walk collects hangs together more or less.
            let chains = self.per_replicate.0.min(PILOT) * u64::from(self.replicates);
            let goal = Goal { error: 0.5 * self.epsilon, chains: chains as f64 };
            let controls: Vec<Control> = fs
                .iter()
                .map(|f| Control::new(split, gate, f, self.components, options.sweeps, goal))
                .collect();
            // Several columns have one order: the first one's.
            let order = match options.order {
                RowOrder::Value => Some(controls[0].values(split)),
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
            Feed::new(options.sequence, self.scramble, length, options.seed, options.groups, options.ahead)?;
        let at = Instant::now();
        let mut chains = Chains::new(self.lanes, self.precision, &table, &feed)?.over(options.ranks);
        if let Some(grid) = options.grid {
            chains = chains.on_grid(grid)?;
        }
        seconds.upload += at.elapsed().as_secs_f64();

        let at = Instant::now();
        let growth = Growth {
            components: self.components,
            replicates: self.replicates,
            columns: chains.columns(),
            shared: options.shared,
            points: self.per_replicate,
        };
        let mut steps = 0;
        let sums = |tasks: &[Task], points: (u32, u32)| {
            steps += u64::from(points.1 - points.0) * tasks.len() as u64 * u64::from(length);
            chains.sums(tasks, Round { points, length, cut }, watch)
        };
        let met = |growing: &Growing| {
            let met = |(column, control): (usize, &Control)| {
                let c = self.result(first_rhs, column, growing, control, &table, length, cut);
                c.half_width <= self.epsilon
            };
            controls.iter().enumerate().all(met)
        };
        let mut rounds = Vec::new();
        let seen = |growing: &Growing| {
            for (column, control) in controls.iter().enumerate() {
                rounds.push(self.result(first_rhs, column, growing, control, &table, length, cut));
            }
        };
        let growing = growth.run(sums, met, seen)?;
        seconds.solve += at.elapsed().as_secs_f64();

        let mut components = Vec::with_capacity(growing.len() * controls.len());
        for (column, control) in controls.iter().enumerate() {
            let of = |g: &Growing| self.result(first_rhs, column, g, control, &table, length, cut);
            components.extend(growing.iter().map(of));
        }

        let jacobi: Option<Vec<Jacobi>> = controls.iter().map(|c| self.jacobi(c)).collect();
        Ok(Done {
            components,
            rounds,
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
        if let Length::Steps(length) = self.options.length {
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
        let printed = self.options.length == Length::Printed;
        let length = match printed {
            true => published::length_as_printed(self.delta, scale * norm, rho),
            false => published::length(self.delta, scale * norm, rho),
        };
        if length > f64::from(MOST_LENGTH) {
            return Err(Error::Invalid(format!(
                "chains of {length} steps, more than {MOST_LENGTH}, would be needed for a truncation of {:e} at the norm \
                 {rho}; give a larger --epsilon or --delta, or a --length, or solve the whole system",
                self.delta
            )));
        }
        // |W| v_s ‖r‖ / (1 − ρ) ≤ δ, where scaled walks carry v_m in the place of v_s ≤ 1.
        let left = if printed { 1.0 } else { 1.0 - rho };
        let cut = self.delta * left / (norm * if self.gate.scaled { scale } else { 1.0 });
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
        let scale = self.gate.walk_scale(m);
        let (estimate, statistical) =
            growing.interval(column, control.h(growing.component), scale, self.options.confidence);
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
    fn certain(
        &self,
        m: usize,
        control: &Control,
        table: &Table,
        length: u32,
        cut: f32,
        points: u64,
    ) -> (f64, f64) {
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
