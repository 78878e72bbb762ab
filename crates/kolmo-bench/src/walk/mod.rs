//! Benchmarks of random walks: rate, accuracy, coverage, grids, preparation.

mod accuracy;
mod coverage;
mod grids;
mod rate;
mod setup;
mod sharing;

pub use accuracy::{accuracy, accuracy_walks};
pub use coverage::{COVERED, coverage, covered, push_coverage};
pub use grids::{GRIDS, grids};
pub use rate::{Rate, rate};
pub use setup::setup;
pub use sharing::{SHARED, Sharing, sharing};

use std::time::Instant;

use serde_json::Value;

use super::{Record, Spread, names};
use kolmo::models::System;
use kolmo::walk::Splitting;
use kolmo::walk::convergence::certificate::{Certificate, certify};
use kolmo::walk::splitting::Split;
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

/// Measures `repeat` runs after one that does not count; returns its sums and their seconds.
fn measured(repeat: usize, run: impl Fn() -> Result<Vec<f64>>) -> Result<(Vec<f64>, Spread)> {
    let sums = run()?;
    let seconds = Spread::measure(repeat, || {
        let at = Instant::now();
        run().map(|_| at.elapsed().as_secs_f64())
    })?;
    Ok((sums, seconds))
}

/// Root mean square of the errors of `estimates` of components, (row, estimate).
fn rmse(estimates: impl ExactSizeIterator<Item = (u32, f64)>, reference: &[f64]) -> f64 {
    let count = estimates.len() as f64;
    (estimates.map(|(row, estimate)| (estimate - reference[row as usize]).powi(2)).sum::<f64>() / count)
        .sqrt()
}

/// Row of a component; they are spread over the system.
fn spread_row(component: u32, unknowns: usize) -> u32 {
    (u64::from(component) * 2_654_435_761 % unknowns as u64) as u32
}

/// Returns the splitting x = L x + f of a system, f, and the certificate of convergence.
fn prepare<'a>(machine: &Machine, system: &'a System) -> Result<(Split<'a>, Vec<f64>, Certificate)> {
    let split = Split::new(&system.matrix, Splitting::Auto)?;
    let f = split.constant(&system.rhs)?;
    let certificate = certify(&split, Splitting::Auto, false, &machine.lanes[0], &mut |_| Ok(true))?;
    Ok((split, f.to_vec(), certificate))
}

/// Solves a system by Jacobi iteration; returns x and the number of sweeps.
///
/// It ends when no entry changes by more than `tolerance` times the largest entry.
pub fn solution(system: &System, tolerance: f64) -> Result<(Vec<f64>, u32)> {
    fixed_point(system, Splitting::Jacobi, tolerance)
}

/// Iterates x = L x + f of any splitting; see [`solution`].
fn fixed_point(system: &System, splitting: Splitting, tolerance: f64) -> Result<(Vec<f64>, u32)> {
    let split = Split::new(&system.matrix, splitting)?;
    let f = split.constant(&system.rhs)?;
    let (mut x, mut next) = (f.to_vec(), vec![0.0; f.len()]);
    for sweep in 1..100_000 {
        split.sweep(&f, &x, &mut next);
        let change = x.iter().zip(&next).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        let largest = next.iter().fold(0.0f64, |m, x| m.max(x.abs()));
        std::mem::swap(&mut x, &mut next);
        if change <= tolerance * largest {
            return Ok((x, sweep));
        }
    }
    Ok((x, 100_000))
}
