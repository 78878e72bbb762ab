//! Benchmarks of random walks: rate, accuracy, coverage, grids, preparation.

mod accuracy;
mod coverage;
mod grids;
mod rate;
mod setup;
mod sharing;

pub use accuracy::{accuracy, accuracy_walks};
pub use coverage::{COVERED, coverage, covered, push_coverage};
pub use grids::{GRIDS, grids, shapes};
pub use rate::{Rate, rate};
pub use setup::setup;
pub use sharing::{SHARED, Sharing, sharing};

use serde_json::Value;

use super::{Record, Spread};
use kolmo::models::System;
use kolmo::walk::convergence::certificate::{Certificate, certify};
use kolmo::walk::splitting::{Split, Splitting};
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
        bench: "walk",
        case,
        device: machine.lanes.iter().map(|lane| lane.device().name.clone()).collect::<Vec<_>>().join(" + "),
        backend: machine.lanes[0].device().backend,
        precision: machine.precision.to_string(),
        n: system.matrix.rows(),
        nnz: system.matrix.nnz() as u64,
        format: "records".to_owned(),
        lanes: machine.lanes.len(),
        accumulate: None,
        bytes: 0,
        bytes_moved: 0,
        seconds,
        gb_per_s: 0.0,
        copy_gb_per_s: 0.0,
        relative_error: 0.0,
        repetitions: 1,
        terms: None,
        together: None,
        steps_per_s: None,
        more: Some(more),
    }
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
