//! Benchmarks of random walks: rate, accuracy, sharing, grids.

mod accuracy;
mod grids;
mod rate;
mod sharing;

pub use accuracy::accuracy;
pub use grids::grids;
pub use rate::{Rate, rate};
pub use sharing::{Sharing, sharing};

use std::time::Instant;

use serde_json::{Value, json};

use super::{Record, Spread, names};
use kolmo::models::System;
use kolmo::walk::bicgstab::solver::Krylov;
use kolmo::walk::control_variate::{Control, Goal, Request};
use kolmo::walk::convergence::certificate::{Certificate, certify};
use kolmo::walk::sampling::launcher::{Round, Task};
use kolmo::walk::sampling::walk_sums::Chains;
use kolmo::walk::sequence::PointSource;
use kolmo::walk::splitting::Split;
use kolmo::walk::table::Table;
use kolmo::walk::{ControlVariate, Grid, Scramble, Sequence, Splitting};
use kolmo::{Machine, Result};

/// Returns a record of walks in which the caller sets rates and errors.
pub(crate) fn record(
    machine: &Machine,
    system: &System,
    case: String,
    seconds: Spread,
    more: Value,
) -> Record {
    Record {
        device: names(&machine.lanes),
        n: system.matrix.rows(),
        nnz: system.matrix.nnz() as u64,
        format: "records".to_owned(),
        lanes: machine.lanes.len(),
        repetitions: 1,
        more: Some(more),
        ..Record::new("walk", case, machine.lanes[0].device(), machine.precision, seconds)
    }
}

/// A system prepared for walks on a machine.
struct Prepared<'a> {
    machine: &'a Machine,
    system: &'a System,
    split: Split<'a>,
    f: Vec<f64>,
    certificate: Certificate,
}

impl<'a> Prepared<'a> {
    fn new(machine: &'a Machine, system: &'a System) -> Result<Self> {
        let split = Split::new(&system.matrix, Splitting::Auto)?;
        let f = split.constant(&system.rhs)?.to_vec();
        let certificate = certify(&split, Splitting::Auto, &machine.lanes[0], &mut |_| Ok(true))?;
        Ok(Self { machine, system, split, f, certificate })
    }

    /// Builds the table that walks sample: matrix L and summands g, entries sorted by `order_by`.
    fn table(&self, g: &[f64], order_by: Option<&[f64]>) -> Result<Table> {
        Table::build(&self.split, &self.certificate, &[g], order_by, &[])
    }

    /// Measures `repeat` runs after a first one; returns the sums of the first run and a record.
    ///
    /// `walks` is the number of walks of `length` steps.
    fn measure(
        &self,
        (case, more): (String, Value),
        repeat: usize,
        (walks, length): (u64, u32),
        run: impl Fn() -> Result<Vec<f64>>,
    ) -> Result<(Vec<f64>, Record)> {
        let sums = run()?;
        let seconds = Spread::measure(repeat, || {
            let at = Instant::now();
            run().map(|_| at.elapsed().as_secs_f64())
        })?;
        let steps = walks as f64 * f64::from(length);
        let record = Record {
            repetitions: repeat,
            steps_per_s: Some(steps / seconds.median),
            ..record(self.machine, self.system, format!("{} {case}", self.system.name), seconds, more)
        };
        Ok((sums, record))
    }

    /// Root mean square error of components, each estimated from a sum over `points` points.
    ///
    /// `offset` is added to the estimate of a row.
    fn rmse(
        &self,
        tasks: &[Task],
        sums: &[f64],
        points: u32,
        offset: impl Fn(u32) -> f64,
        reference: &[f64],
    ) -> f64 {
        let error = |(task, sum): (&Task, &f64)| {
            let scale = self.certificate.walk_scale(task.row as usize);
            offset(task.row) + scale * sum / f64::from(points) - reference[task.row as usize]
        };
        let squares: f64 = tasks.iter().zip(sums).map(error).map(|error| error * error).sum();
        (squares / tasks.len() as f64).sqrt()
    }
}

/// Points of a sequence with the seed 0; MTGP32 has the generators of the published grid.
fn points(sequence: Sequence, scramble: Scramble, dimensions: u32, ahead: bool) -> Result<PointSource> {
    PointSource::new(sequence, scramble, dimensions, 0, Grid::PUBLISHED.groups, ahead)
}

/// Returns the sums of walks, without an observer.
fn sums(chains: &Chains<'_>, tasks: &[Task], round: Round) -> Result<Vec<f64>> {
    chains.sums(tasks, round, &mut ())
}

fn largest(x: &[f64]) -> f64 {
    x.iter().fold(0.0, |most, x| most.max(x.abs()))
}

/// Row that is measured as component number `component`; the rows are spread over the system.
fn spread_row(component: u32, unknowns: usize) -> u32 {
    (u64::from(component) * 2_654_435_761 % unknowns as u64) as u32
}

/// Solves a system by Jacobi iteration; returns x and the number of sweeps.
///
/// It ends when no entry changes by more than `tolerance` times the largest entry.
pub fn solution(system: &System, tolerance: f64) -> Result<(Vec<f64>, u32)> {
    let split = Split::new(&system.matrix, Splitting::Jacobi)?;
    let f = split.constant(&system.rhs)?;
    let (mut x, mut next) = (f.to_vec(), vec![0.0; f.len()]);
    for sweep in 1..100_000 {
        split.sweep(&f, &x, &mut next);
        let change = x.iter().zip(&next).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        std::mem::swap(&mut x, &mut next);
        if change <= tolerance * largest(&x) {
            return Ok((x, sweep));
        }
    }
    Ok((x, 100_000))
}
