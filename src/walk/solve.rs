//! Solver by walks: components and functionals of x with intervals.

use std::cell::OnceCell;
use std::time::Instant;

use super::bicgstab::solver::Krylov;
use super::context::{BatchResult, WalkRun};
use super::control_variate::{Accuracy, Control, ControlRequest};
use super::convergence::certificate::{Certificate, certify, default_epsilon};
use super::convergence::reachable::ReachableSystem;
use super::error::bounds::ErrorBounds;
use super::options::{ControlVariate, Length, MOST_LENGTH, Options, PILOT, Problem, check};
use super::sampling::adaptive::AdaptiveSampling;
use super::sampling::walk_sums::Chains;
use super::sequence::{Points, Sequence};
use super::solution::{Component, Jacobi, Solution};
use super::splitting::Split;
use super::table::Table;
use super::table::functional::ScaledFunctional;
use super::table::record_layout::COLUMNS;
use super::table::targets::Targets;
use crate::lane::HostArray;
use crate::util::quantity::times_power_of_two;
use crate::{Error, Invalid, Machine, Progress, Result};

/// Estimates components and functionals of x, with intervals.
///
/// `watch` gets the steps done and their total. Before the walks it gets the number of products
/// with the matrix, and 0.
///
/// # Errors
/// [`Error::Invalid`] for invalid input, [`Error::Divergent`] for systems on which walks would not
/// converge, and the errors of lanes and of `watch`.
pub fn solve(
    machine: &Machine,
    problem: &Problem<'_>,
    options: &Options,
    watch: &mut dyn Progress,
) -> Result<Solution> {
    machine.expect_floating("walks")?;
    check(problem, options)?;
    let run = WalkRun::start(machine, problem, options);
    match prepared(run, watch) {
        // Components may be independent of the part of the system without convergence.
        Err(Error::Divergent { .. }) if let Some(part) = ReachableSystem::of(problem) => {
            part.back(problem, prepared(WalkRun::start(machine, &part.problem(), options), watch))
        }
        answer => answer,
    }
}

/// Right-hand side, scaled by a power of 2.
struct ScaledRhs {
    /// Vector f of x = L x + f, divided by 2^exponent.
    f: HostArray<f64>,
    exponent: i32,
    /// Half-width ε and truncation bound δ (`delta`), divided by 2^exponent.
    epsilon: f64,
    delta: f64,
}

impl ScaledRhs {
    fn new(split: &Split<'_>, b: &[f64]) -> Result<Self> {
        let (f, exponent) = split.scaled_constant(b)?;
        Ok(Self { f, exponent, epsilon: 0.0, delta: 0.0 })
    }

    /// Sets ε to `epsilon`, and δ to `delta` or by default to a tenth of ε.
    fn aim(&mut self, epsilon: f64, delta: Option<f64>) {
        let scaled = |x| times_power_of_two(x, -self.exponent).clamp(f64::MIN_POSITIVE, f64::MAX);
        let epsilon = scaled(epsilon);
        (self.epsilon, self.delta) = (epsilon, delta.map_or(0.1 * epsilon, scaled));
    }
}

/// Default half-width ε: the largest default of all right-hand sides.
fn epsilon_of_all(all: &[ScaledRhs], certificate: &Certificate) -> f64 {
    let of = |rhs: &ScaledRhs| times_power_of_two(default_epsilon(&rhs.f, certificate), rhs.exponent);
    // b = 0 has no scale of its own.
    let scaled = all.iter().filter(|rhs| rhs.f.iter().any(|&f| f != 0.0));
    scaled.map(of).reduce(f64::max).unwrap_or_else(|| of(&all[0]))
}

/// Solves by walks, after computing certificate, control variate and chain table.
fn prepared(mut run: WalkRun<'_>, watch: &mut dyn Progress) -> Result<Solution> {
    let WalkRun { machine, problem, options, .. } = run;
    let lane = &machine.lanes[0];
    let split = Split::new(problem.matrix, options.splitting)?;
    let mut rhs: Vec<ScaledRhs> =
        problem.rhs.iter().map(|b| ScaledRhs::new(&split, b)).collect::<Result<_>>()?;
    let at = Instant::now();
    let progress = &mut |products| watch.progress(products as u64, 0).map(|()| true);
    let certificate = certify(&split, options.splitting, lane, progress)?;
    if certificate.products > 0 {
        run.seconds.certificate = at.elapsed().as_secs_f64();
    }
    watch.progress(0, 0)?;

    let epsilon = options.epsilon.unwrap_or_else(|| epsilon_of_all(&rhs, &certificate));
    rhs.iter_mut().for_each(|rhs| rhs.aim(epsilon, options.delta));
    let targets = Targets::new(problem, options, &certificate)?;
    let per_replicate = run.points();

    let mut result = BatchResult::default();
    for (batch, rhs) in rhs.chunks(COLUMNS).enumerate() {
        let (first, run, split, targets, certificate) =
            (batch * COLUMNS, &run, &split, &targets, &certificate);
        let batch = RhsBatch { run, split, targets, certificate, rhs, first, epsilon, per_replicate };
        result.add(batch.solve(watch)?);
    }
    // Batches have all components, then all functionals.
    result.components.sort_by_key(|c| c.rhs);
    Ok(run.finish(&certificate, result))
}

/// Right-hand sides that share their walks, at most [`COLUMNS`].
struct RhsBatch<'a> {
    run: &'a WalkRun<'a>,
    split: &'a Split<'a>,
    targets: &'a Targets<'a>,
    certificate: &'a Certificate,
    rhs: &'a [ScaledRhs],
    /// Index of the batch's first right-hand side among all.
    first: usize,
    /// Half-width ε required of the components, before scaling of the right-hand sides.
    epsilon: f64,
    /// Number of points per replicate: in the first round, and at most in all rounds.
    per_replicate: (u64, u64),
}

impl RhsBatch<'_> {
    fn solve(&self, watch: &mut dyn Progress) -> Result<BatchResult> {
        let Self { run, split, targets, certificate, .. } = *self;
        let options = run.options;
        let (controls, table) = self.prepare(watch)?;
        watch.progress(0, 0)?;
        let (controls, table) = (&controls[..], &table);
        let (length, cut) = self.length(controls)?;
        let extremes = OnceCell::new();
        let mut bounds =
            ErrorBounds { run, targets, split, certificate, controls, table, length, cut, extremes };
        if self.rounding_decides(&bounds) {
            bounds.length = 0;
        }
        let length = bounds.length;
        let (sequence, seed) = (options.sequence, options.seed);
        // Walks of functionals take extra steps to their start rows, unless they end there.
        let before = targets.functionals.iter().map(|h| h.steps()).max().filter(|_| length > 0).unwrap_or(0);
        let dimensions = length + before;
        let points = Points::new(sequence, run.scramble, dimensions, seed);
        let at = Instant::now();
        let chains = Chains::new(run.machine, table, &points)?;
        let upload = at.elapsed().as_secs_f64();

        let (rhs, most) = (controls.len(), self.per_replicate.1);
        let mut walk = |rows: &[u32], length: u32| {
            let sampling =
                AdaptiveSampling { run, rows, chains: &chains, rhs, points: self.per_replicate, length, cut };
            sampling.run(
                |column, estimate| bounds.settled(column, estimate, self.rhs[column].epsilon, most),
                |column, estimate| {
                    let (c, e) = (bounds.component(column, estimate), self.rhs[column].exponent);
                    let c = targets.unscaled(estimate.row, c, e, self.epsilon)?;
                    Ok(Component { rhs: self.first + column, ..c })
                },
                watch,
            )
        };
        let mut walked = walk(targets.components, length)?;
        walked.add(walk(&targets.functional_rows(), length + before)?);
        let jacobi = controls.iter().zip(self.rhs).map(|(control, rhs)| self.jacobi(control, rhs.epsilon));
        Ok(BatchResult {
            sweeps: controls.iter().map(|c| c.sweeps).max().unwrap_or(0),
            krylov: controls.iter().map(|c| c.products).sum(),
            table_bytes: 4 * table.words.len() as u64,
            tabled: if sequence == Sequence::Philox { dimensions } else { points.tabled },
            jacobi: jacobi.collect::<Option<Vec<_>>>().and_then(|all| all.into_iter().reduce(Jacobi::and)),
            upload,
            ..walked
        })
    }

    /// True if for all rows the rounding bound exceeds ε and half of the error bound without walks.
    fn rounding_decides(&self, bounds: &ErrorBounds<'_>) -> bool {
        let (targets, points) = (self.targets, self.per_replicate.0);
        let rows = || targets.components.iter().copied().chain(targets.functional_rows());
        self.run.options.walks_as_needed()
            && bounds.length > 0
            && bounds.controls.iter().zip(self.rhs).all(|(control, rhs)| {
                rows().all(|row| {
                    let (_, rounding) = bounds.certain(row, control, points, bounds.length);
                    let (truncation, standing) = bounds.certain(row, control, points, 0);
                    rounding > targets.scaled_epsilon(row, rhs.epsilon)
                        && truncation + standing <= 2.0 * rounding
                })
            })
    }

    /// Computes the control variate of each right-hand side, and the chain table.
    fn prepare(&self, watch: &mut dyn Progress) -> Result<(Vec<Control>, Table)> {
        let Self { run, split, targets, certificate, .. } = *self;
        // The goal is half of ε, since the terms of a walk are correlated.
        let chains = self.per_replicate.0.min(PILOT) * u64::from(run.replicates);
        // A given number or length of walks excludes BiCGSTAB, so that walks are made.
        let wanted = match run.options.control {
            ControlVariate::Auto if !run.options.walks_as_needed() => ControlVariate::Jacobi,
            wanted => wanted,
        };
        // v is at most 1 for all components.
        let reach = targets.most(|_| 1.0, |h| h.scale / targets.epsilon_of(h));
        let mut krylov = Krylov::new(&run.machine.lanes[0]);
        let control = |rhs: &ScaledRhs| {
            let goal = Accuracy { error: 0.5 * rhs.epsilon / reach, chains: chains as f64 };
            let request =
                ControlRequest { components: targets.components, functionals: &targets.functionals, goal };
            let progress = &mut |products| watch.progress(products as u64, 0).map(|()| !run.is_timed_out());
            Control::new(split, certificate, &rhs.f, &request, wanted, &mut krylov, progress)
        };
        let controls: Vec<Control> = self.rhs.iter().map(control).collect::<Result<_>>()?;
        drop(krylov);
        // All columns share one order, that of the first.
        let order = controls[0].values(split);
        let columns: Vec<&[f64]> = controls.iter().map(|c| &c.r[..]).collect();
        let table = Table::build(split, certificate, &columns, &order, &targets.functionals)?;
        Ok((controls, table))
    }

    /// Returns the number of steps and the weight at which chains end, for a truncation of at most
    /// δ in every component.
    fn length(&self, controls: &[Control]) -> Result<(u32, f32)> {
        controls.iter().zip(self.rhs).try_fold((0, f32::INFINITY), |(length, cut), (control, rhs)| {
            let (own_length, own_cut) = self.length_of(control, rhs)?;
            Ok((length.max(own_length), cut.min(own_cut)))
        })
    }

    fn length_of(&self, control: &Control, rhs: &ScaledRhs) -> Result<(u32, f32)> {
        let (rho, norm, delta) = (self.certificate.norm, control.norm, rhs.delta);
        if let Length::Steps(length) = self.run.options.length {
            return Ok((length, 0.0));
        }
        if norm == 0.0 {
            return Ok((0, f32::INFINITY));
        }
        let targets = self.targets;
        let most = |component: fn(&Certificate, usize) -> f64, functional: fn(&ScaledFunctional) -> f64| {
            let component = |m: u32| component(self.certificate, m as usize);
            targets.most(component, |h| functional(h) / targets.delta_of(h))
        };
        let scale = most(Certificate::scale, |h| h.scale);
        // Smallest number of steps T with ‖L‖^(T+1) ‖f‖ / (1 − ‖L‖) ≤ δ: (2.16) of S. Lai, J. Jin,
        // M. Guo, X. Lin, ISCC 2015, with the factor 1 − ‖L‖, without which it bounds the last term
        // only.
        let length = (((delta * (1.0 - rho) / (scale * norm)).ln() / rho.ln()).ceil() - 1.0).max(0.0);
        Invalid::TooLarge.unless(length <= f64::from(MOST_LENGTH), || {
            format!(
                "chains of {length} steps, more than {MOST_LENGTH}, would be needed for a truncation of {:e} at the norm \
                 {rho}; give a larger `epsilon` or `delta`, or a `length`, or solve the whole system",
                times_power_of_two(delta, rhs.exponent)
            )
        })?;
        // W| v_s ‖r‖ / (1 − ρ) ≤ δ; scaled walks carry v_m instead of v_s ≤ 1.
        let cut = delta * (1.0 - rho) / (norm * most(Certificate::walk_scale, |h| h.walk_scale));
        // Rounded down, and always below 1, the weight at which chains start.
        Ok((length as u32, ((cut * (1.0 - 1e-6)).min(0.5)) as f32))
    }

    /// Predicts the cost of a solution by sweeps alone, from those that were run.
    fn jacobi(&self, control: &Control, epsilon: f64) -> Option<Jacobi> {
        if control.sweeps < 2 || control.products > 0 || control.norm == 0.0 {
            return None;
        }
        let rate = control.rate.min(self.certificate.norm);
        let left = (epsilon * (1.0 - self.certificate.norm) / control.norm).ln() / rate.ln();
        let sweeps = (f64::from(control.sweeps) + left.ceil()).max(1.0);
        Some(Jacobi { sweeps, seconds: sweeps * control.sweep_seconds })
    }
}
