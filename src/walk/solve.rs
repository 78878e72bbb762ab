//! Components of x with their intervals.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Instant;

use super::chains::{Chains, Feed, Round, Task, spread};
use super::control::{Control, Goal};
use super::gate::{Gate, gate};
use super::growth::{Growing, Growth};
use super::interval::{shows, unseen};
use super::kernels::{BLOCK, COLUMNS};
use super::options::{MOST_LENGTH, Options, PILOT, Problem, check, default_epsilon, points, replicates};
use super::published::{self, Length};
use super::reach::Reached;
use super::sequence::Scramble;
use super::solution::{Bound, Component, Jacobi, Seconds, Solution, largest, met};
use super::splitting::{Split, up};
use super::table::{RowOrder, Table};
use super::unprepared::unprepared;
use crate::kernel::Precision;
use crate::lane::{HostArray, Lane};
use crate::number::times_power_of_two;
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
    if lanes.is_empty() {
        return Err(Error::Invalid("no lane to walk on; name a device".to_owned()));
    }
    check(problem, options)?;
    if options.lazy {
        return unprepared(lanes, precision, problem, options, watch);
    }
    match prepared(lanes, precision, problem, options, watch) {
        // What the components do not depend on is no reason to refuse them.
        Err(Error::Divergent { .. }) if let Some(part) = Reached::of(problem) => {
            part.back(problem, prepared(lanes, precision, &part.problem(), options, watch))
        }
        answer => answer,
    }
}

/// One right-hand side.
struct Side {
    /// f over 2^exponent.
    f: HostArray<f64>,
    exponent: i32,
    /// ε and δ over 2^exponent.
    epsilon: f64,
    delta: f64,
}

impl Side {
    /// A number of the scaled system.
    fn scaled(&self, x: f64) -> f64 {
        times_power_of_two(x, -self.exponent).clamp(f64::MIN_POSITIVE, f64::MAX)
    }

    /// A component of the scaled system as one of the original.
    fn original(&self, c: Component, rhs: usize) -> Result<Component> {
        c.times_power_of_two(self.exponent).map(|c| Component { rhs, ..c })
    }
}

/// Walks on all of the system.
fn prepared(
    lanes: &[Lane],
    precision: Precision,
    problem: &Problem<'_>,
    options: &Options,
    watch: &mut (dyn FnMut(u64, u64) -> Result<()> + Send),
) -> Result<Solution> {
    let started = Instant::now();
    let first_lane = &lanes[0];
    let mut seconds = Seconds::default();
    // Lanes may have worked before.
    let downloads = || -> f64 { lanes.iter().map(|lane| lane.transfer_seconds().1).sum() };
    let before = downloads();
    let split = first_lane.host(|| Split::new(problem.matrix, options.splitting))?;
    let side = |b: &Vec<f64>| {
        let (f, exponent) = split.scaled_constant(b)?;
        Ok(Side { f, exponent, epsilon: 0.0, delta: 0.0 })
    };
    let mut sides: Vec<Side> = problem.rhs.iter().map(side).collect::<Result<_>>()?;
    let at = Instant::now();
    let gate = first_lane.host(|| gate(&split, options.splitting, options.force))?;
    if gate.products > 0 {
        seconds.certificate = at.elapsed().as_secs_f64();
    }
    watch(0, 0)?;

    let mut warnings = Vec::new();
    let (scramble, replicates) = replicates(options, &mut warnings);
    let epsilon = options.epsilon.unwrap_or_else(|| {
        let of = |s: &Side| times_power_of_two(default_epsilon(&s.f, &gate), s.exponent);
        // b = 0 has no scale of its own.
        let zero = |s: &&Side| s.f.iter().all(|&f| f == 0.0);
        match sides.iter().filter(|s| !zero(s)).map(of).reduce(f64::max) {
            Some(largest) => largest,
            None => of(&sides[0]),
        }
    });
    for side in &mut sides {
        side.epsilon = side.scaled(epsilon);
        side.delta = options.delta.map_or(0.1 * side.epsilon, |delta| side.scaled(delta));
    }
    let by_norm = |rows: bool| {
        let row = |&m: &u32| split.row_sum(m as usize);
        let norm = if rows { problem.components.iter().map(row).fold(0.0, f64::max) } else { gate.norm };
        let scale = problem.components.iter().map(|&m| gate.scale(m as usize)).fold(0.0, f64::max);
        let chains = |s: &Side| published::chains(s.epsilon, gate.scaled_norm(&s.f) * scale, norm);
        sides.iter().map(chains).fold(0.0, f64::max)
    };
    let per_replicate = points(options, replicates, by_norm, &mut warnings)?;

    let (mut all, mut rounds) = (Vec::new(), Vec::new());
    let (mut sweeps, mut steps, mut table_bytes, mut tabled) = (0, 0, 0, 0);
    let mut jacobi: Option<Jacobi> = None;
    for (batch, sides) in sides.chunks(COLUMNS).enumerate() {
        let together = Sides {
            lanes,
            precision,
            split: &split,
            gate: &gate,
            components: problem.components,
            options,
            sides,
            scramble,
            replicates,
            per_replicate,
        };
        let done = together.solve(batch * COLUMNS, &mut seconds, watch)?;
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
        status: met(&all, epsilon),
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
    sides: &'a [Side],
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
        seconds: &mut Seconds,
        watch: &mut (dyn FnMut(u64, u64) -> Result<()> + Send),
    ) -> Result<Done> {
        let (options, gate, split) = (self.options, self.gate, self.split);
        let (controls, table) = self.lanes[0].host(|| {
            // Half of it, since what a walk collects hangs together more or less.
            let chains = self.per_replicate.0.min(PILOT) * u64::from(self.replicates);
            let control = |side: &Side| {
                let goal = Goal { error: 0.5 * side.epsilon, chains: chains as f64 };
                Control::new(split, gate, &side.f, self.components, options.sweeps, goal)
            };
            let controls: Vec<Control> = self.sides.iter().map(control).collect();
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
        // Walked once for a component, if ever.
        let spreads = RefCell::new(BTreeMap::new());
        let spread = |row: u32, column: usize| {
            let mut spreads = spreads.borrow_mut();
            let walk = || spread(&table, row, options.seed, length, cut);
            spreads.entry(row).or_insert_with(walk)[column] * gate.walk_scale(row as usize)
        };
        let of = |column: usize, growing: &Growing| {
            let spread = || spread(growing.component, column);
            self.result(column, growing, &controls[column], &table, length, cut, spread)
        };
        let columns = 0..controls.len();
        // A component is done with where its interval is short enough, and where no number of chains makes it so.
        let done = |growing: &Growing| {
            let met = |column: usize| of(column, growing).half_width <= self.sides[column].epsilon;
            let hopeless = |column: usize| {
                let (c, epsilon) = (of(column, growing), self.sides[column].epsilon);
                let chains = (self.per_replicate.1 * u64::from(self.replicates)) as f64;
                let left = epsilon - c.bound.truncation - c.bound.rounding;
                let range = self.range(&c, &controls[column], length);
                let spread = || spread(c.component, column);
                left < 0.0 || c.bound.statistical > 0.0 && self.floor(range, chains, spread) > left
            };
            columns.clone().all(|column| met(column) || hopeless(column))
        };
        let original = |column: usize, c: Component| self.sides[column].original(c, first_rhs + column);
        let (mut rounds, mut failed) = (Vec::new(), Ok(()));
        let seen = |growing: &Growing| {
            for column in columns.clone() {
                match original(column, of(column, growing)) {
                    Ok(c) => rounds.push(c),
                    Err(error) => failed = Err(error),
                }
            }
        };
        let growing = growth.run(sums, done, seen)?;
        failed?;
        seconds.solve += at.elapsed().as_secs_f64();

        let mut components = Vec::with_capacity(growing.len() * controls.len());
        for column in columns.clone() {
            for growing in &growing {
                components.push(original(column, of(column, growing))?);
            }
        }

        let jacobi: Option<Vec<Jacobi>> =
            controls.iter().zip(self.sides).map(|(c, side)| self.jacobi(c, side.epsilon)).collect();
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
        let all = controls.iter().zip(self.sides).map(|(control, side)| self.length_of(control, side));
        all.reduce(|a, b| {
            let (a, b) = (a?, b?);
            Ok((a.0.max(b.0), a.1.min(b.1)))
        })
        .expect("at least one right-hand side")
    }

    fn length_of(&self, control: &Control, side: &Side) -> Result<(u32, f32)> {
        let (rho, norm, delta) = (self.gate.norm, control.norm, side.delta);
        if let Length::Steps(length) = self.options.length {
            return Ok((length, 0.0));
        }
        if norm == 0.0 {
            return Ok((0, f32::INFINITY));
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
            true => published::length_as_printed(delta, scale * norm, rho),
            false => published::length(delta, scale * norm, rho),
        };
        if length > f64::from(MOST_LENGTH) {
            return Err(Error::Invalid(format!(
                "chains of {length} steps, more than {MOST_LENGTH}, would be needed for a truncation of {:e} at the norm \
                 {rho}; give a larger --epsilon or --delta, or a --length, or solve the whole system",
                times_power_of_two(delta, side.exponent)
            )));
        }
        // |W| v_s ‖r‖ / (1 − ρ) ≤ δ, where scaled walks carry v_m in the place of v_s ≤ 1.
        let left = if printed { 1.0 } else { 1.0 - rho };
        let cut = delta * left / (norm * if self.gate.scaled { scale } else { 1.0 });
        // Rounded down, and never as large as the weight 1 that chains begin with.
        Ok((length as u32, ((cut * (1.0 - 1e-6)).min(0.5)) as f32))
    }

    /// A component of the scaled system.
    #[expect(clippy::too_many_arguments, reason = "all that an interval depends on")]
    fn result(
        &self,
        column: usize,
        growing: &Growing,
        control: &Control,
        table: &Table,
        length: u32,
        cut: f32,
        spread: impl Fn() -> f64,
    ) -> Component {
        let m = growing.component as usize;
        let scale = self.gate.walk_scale(m);
        let (estimate, student) =
            growing.interval(column, control.h(growing.component), scale, self.options.confidence);
        let (truncation, rounding) = self.certain(m, control, table, length, cut, growing.points);
        let chains = growing.points * u64::from(self.replicates);
        let mut c = Component {
            component: growing.component,
            rhs: 0,
            estimate,
            half_width: 0.0,
            bound: Bound { statistical: 0.0, truncation, rounding },
            chains,
            length,
        };
        // Walks without a choice are all the same.
        if control.norm > 0.0 && length > 0 && self.split.branches() {
            let range = self.range(&c, control, length);
            let more = unseen(range, chains as f64, self.options.confidence) > student;
            c.bound.statistical =
                if more { student.max(self.floor(range, chains as f64, spread)) } else { student };
        }
        c.half_width = c.bound.total();
        c
    }

    /// Whether |W_k| ≤ ρ^k, in the scaling of walks: else that holds in the mean alone.
    fn sure(&self) -> bool {
        self.gate.scaled || self.gate.vector.is_none() && self.gate.norm < 1.0
    }

    /// The most that a walk adds up, in absolute value.
    fn most(&self, m: usize, control: &Control, length: u32) -> f64 {
        if self.sure() {
            return self.gate.scale(m) * control.norm / (1.0 - self.gate.norm);
        }
        // |W_k| ≤ s^k, and |r_i| ≤ v_i ‖r‖ ≤ ‖r‖.
        let (s, terms) = (self.gate.row_norm, f64::from(length) + 1.0);
        control.norm * if s < 1.0 { terms.min(1.0 / (1.0 - s)) } else { terms * s.powf(terms) }
    }

    /// How far what a walk adds up lies from its mean at most.
    fn range(&self, c: &Component, control: &Control, length: u32) -> f64 {
        self.most(c.component as usize, control, length) + (c.estimate - control.h(c.component)).abs()
    }

    /// The half-width that what no chain has shown asks for, where a few walks do not show most of their range.
    fn floor(&self, range: f64, chains: f64, spread: impl Fn() -> f64) -> f64 {
        match shows(spread(), range, chains) {
            true => 0.0,
            false => unseen(range, chains, self.options.confidence),
        }
    }

    /// Bounds of truncation and rounding. Norms are those of V⁻¹LV and V⁻¹g, v_m brings them back.
    ///
    /// Sweeps leave ĥ and r̂ with r̂_k = L r̂_{k−1} + e_k, so that ĥ + (I − L)⁻¹ r̂ is the solution of a system with the
    /// right-hand side f̂ + Σ e_k: what is off is ‖f̂ − f‖ + Σ ‖e_k‖ over 1 − ρ, whatever cancels in h.
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
        let u64 = Precision::F64.unit_roundoff();
        let longest = self.split.longest_row() as f64;
        let least = match &self.gate.vector {
            Some(v) => v.iter().copied().fold(f64::INFINITY, f64::min),
            None => 1.0,
        };
        // Of a row's product: an entry of L has a division (which may end below 2^−1022, where it is four times as coarse),
        // a product and a sum of 1; then come products and their sum.
        let row = (longest + 8.0) * u64;
        // What underflows is off by 2^−1075.
        let tiny = (longest + 2.0) * f64::from_bits(1) / least;
        let gap = 1.0 - rho - row - tiny;
        if gap <= 0.0 || gap.is_nan() {
            return (if control.norm == 0.0 { 0.0 } else { f64::INFINITY }, f64::INFINITY);
        }
        let sum = control.norm / gap;
        let all = control.norms + control.norm;
        let sweeps = f64::from(control.sweeps);
        let host = (8.0 * u64 * all + row * control.norms + tiny * (sweeps + 1.0 + all)) / gap;
        // h, the mean over replicates, and their sum.
        let adding = (sweeps + f64::from(self.replicates) + 8.0) * u64 * (control.norms + sum);
        if control.norm == 0.0 {
            // f = 0 is exact.
            return (0.0, if all == 0.0 { 0.0 } else { v * (host + adding) });
        }

        let u = self.precision.unit_roundoff();
        let steps = f64::from(length);
        // g and row sums as pairs of f32, added in the run's precision.
        let number = table.number_error + u;
        // Additions of a chain, of a block or of a thread and its group on a grid, and of blocks on the host.
        let in_turn = self.options.grid.map_or(0.0, |grid| {
            (points as f64 / (f64::from(grid.groups) * f64::from(grid.size))).ceil() + 10.0
        });
        let additions = (steps + 9.0 + in_turn) * u + (points as f64 / BLOCK as f64 + 4.0) * u64;
        // After k steps a weight is off by k (number + u); Σ k ρ^k = ρ / (1 − ρ)².
        let (size, weights) = match self.sure() {
            true => (sum, (number + u) * rho / gap),
            false => (self.most(m, control, length) / v, (number + u) * steps),
        };
        // Probabilities that are multiples of 2⁻³² walk on another L; |x̃ − x| ≤ ‖δL‖ ‖x‖ / (1 − ρ).
        let spread = if self.gate.scaled { 1.0 } else { 1.0 / least };
        let other = table.probability_error * spread + row + 4.0 * u64 + tiny;
        // Columns share a power of 2, beside which a small one underflows.
        let columns = table.factor * f64::from(f32::from_bits(1)) / least;
        let walks = size * (number + additions + weights) + (sum * other + columns) / gap;

        // Rounding of a power of ρ, and of the weights that are cut.
        let slack = |x: f64| up(x * (1.0 + (number + u) * steps), 2 * length as usize + 16);
        let tail = sum * v * rho.powi(length.saturating_add(1).min(i32::MAX as u32) as i32);
        let of_cut = sum * f64::from(cut) * if self.gate.scaled { v } else { 1.0 };
        let truncation = match (length, self.sure()) {
            // No chain comes as far as a cut.
            (0, _) => slack(tail),
            (_, true) => slack(tail.max(of_cut)),
            (_, false) => slack(tail + of_cut),
        };
        (truncation, v * (walks + host + adding))
    }

    /// What the sweeps that were run say of a solution by sweeps alone.
    fn jacobi(&self, control: &Control, epsilon: f64) -> Option<Jacobi> {
        if control.sweeps < 2 || control.norm == 0.0 || self.gate.norm >= 1.0 {
            return None;
        }
        let rate = control.rate.min(self.gate.norm);
        let left = (epsilon * (1.0 - self.gate.norm) / control.norm).ln() / rate.ln();
        let sweeps = (f64::from(control.sweeps) + left.ceil()).max(1.0);
        Some(Jacobi { sweeps, seconds: sweeps * control.sweep_seconds })
    }
}
