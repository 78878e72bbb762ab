//! Accuracy of the point sequences over the number of chains (Fig. 2 of Lai et al. 2015).

use std::time::Instant;

use serde_json::json;

use super::{prepare, record, rmse, spread_row};
use crate::{Record, Spread};
use kolmo::models::System;
use kolmo::walk::ControlVariate;
use kolmo::walk::bicgstab::solver::Krylov;
use kolmo::walk::control_variate::{Control, Goal, Request};
use kolmo::walk::error::a_priori;
use kolmo::walk::sampling::launcher::{Round, Task};
use kolmo::walk::sampling::walk_sums::Chains;
use kolmo::walk::sequence::{PointSource, Scramble, Sequence};
use kolmo::walk::table::Table;
use kolmo::{Machine, Result};

/// A combination of point sequence, scramble, row order and control variate.
struct Method {
    name: &'static str,
    sequence: Sequence,
    scramble: Scramble,
    /// True if the entries of a row are in value order.
    ordered: bool,
    /// True if walks sample the residual of a control variate.
    sweeps: bool,
}

const fn method(
    name: &'static str,
    sequence: Sequence,
    scramble: Scramble,
    ordered: bool,
    sweeps: bool,
) -> Method {
    Method { name, sequence, scramble, ordered, sweeps }
}

static METHODS: [Method; 12] = [
    method("philox", Sequence::Philox, Scramble::None, false, false),
    method("mtgp32", Sequence::Mtgp32, Scramble::None, false, false),
    method("halton", Sequence::Halton, Scramble::None, false, false),
    method("faure", Sequence::Faure, Scramble::None, false, false),
    method("sobol", Sequence::Sobol, Scramble::None, false, false),
    method("halton shift", Sequence::Halton, Scramble::Shift, false, false),
    method("faure shift", Sequence::Faure, Scramble::Shift, false, false),
    method("sobol owen", Sequence::Sobol, Scramble::Owen, false, false),
    method("philox value", Sequence::Philox, Scramble::None, true, false),
    method("sobol owen value", Sequence::Sobol, Scramble::Owen, true, false),
    method("philox sweeps", Sequence::Philox, Scramble::None, false, true),
    method("sobol owen value sweeps", Sequence::Sobol, Scramble::Owen, true, true),
];

/// Number of errors averaged for one point of a curve: components times replicates.
const ERRORS: u32 = 256;
/// Replicates of sequences with different replicates.
const REPLICATES: u32 = 16;

/// Number of walks that [`accuracy`] takes with all methods.
pub fn accuracy_walks(exponents: &[u32], sweeps: &[ControlVariate]) -> f64 {
    let points: f64 = exponents.iter().map(|&k| 2f64.powi(k as i32)).sum();
    let methods = METHODS.iter().map(|m| if m.sweeps { sweeps.len() } else { 1 }).sum::<usize>();
    f64::from(ERRORS) * methods as f64 * points
}

/// Measures the root mean square of 256 errors for 2^k chains, for each method and exponent k.
///
/// Methods with different replicates use 16 components and 16 replicates, the others 256
/// components. `seconds` is the time of all 256 estimates. With `only`, only the methods with these
/// names are measured. Methods with a control variate are measured with each of `sweeps`.
///
/// # Errors
/// Errors of the lanes.
pub fn accuracy(
    machine: &Machine,
    system: &System,
    reference: &[f64],
    exponents: &[u32],
    sweeps: &[ControlVariate],
    only: Option<&[&str]>,
) -> Result<Vec<Record>> {
    let (split, f, certificate) = prepare(machine, system)?;
    let n = split.unknowns();
    let largest = reference.iter().fold(0.0f64, |m, x| m.max(x.abs()));
    let mut records: Vec<Record> = Vec::new();
    let asked = METHODS.iter().filter(|m| only.is_none_or(|names| names.contains(&m.name)));
    let each = |m: &'static Method| {
        let sweeps = if m.sweeps { sweeps } else { &[ControlVariate::Sweeps(0)] };
        sweeps.iter().map(move |&sweeps| (m, sweeps))
    };
    for (method, sweeps) in asked.flat_map(each) {
        let replicates = if method.sequence.varies(method.scramble) { REPLICATES } else { 1 };
        let components: Vec<u32> = (0..ERRORS / replicates).map(|c| spread_row(c, n)).collect();
        let asked = Request { components: &components, functionals: &[], goal: Goal::EXACT };
        let krylov = &mut Krylov::new(&machine.lanes[0]);
        let control = Control::new(&split, &certificate, &f, &asked, sweeps, krylov, &mut |_| Ok(true))?;
        let order = method.ordered.then(|| control.values(&split));
        let table = Table::build(&split, &certificate, &[&control.r], order.as_deref(), &[])?;
        // The truncation error is far below all measured errors.
        let length =
            a_priori::length(1e-9 * largest, control.norm.max(f64::MIN_POSITIVE), certificate.norm) as u32;
        let source = PointSource::new(method.sequence, method.scramble, length, 0, 84, false)?;
        let chains = Chains::new(machine, &table, &source)?;
        let tasks: Vec<Task> = components
            .iter()
            .flat_map(|&row| (0..replicates).map(move |replicate| Task { row, component: row, replicate }))
            .collect();
        for &exponent in exponents {
            let points = 1u32 << exponent;
            let at = Instant::now();
            let sums = chains.sums(&tasks, Round { points: (0, points), length, cut: 0.0 }, &mut ())?;
            let seconds = at.elapsed().as_secs_f64();
            let estimate = |(Task { row, .. }, sum): (&Task, &f64)| {
                let scale = certificate.walk_scale(*row as usize);
                (*row, control.h(*row) + scale * sum / f64::from(points))
            };
            let rmse = rmse(tasks.iter().zip(&sums).map(estimate), reference);
            let of_philox = |r: &&Record| {
                r.more.as_ref().is_some_and(|m| m["method"] == "philox" && m["chains"] == points)
            };
            let philox = records.iter().find(of_philox).map_or(rmse, |r| r.relative_error * largest);
            let more = json!({
                "method": method.name, "chains": points, "length": length, "sweeps": control.sweeps, "errors": ERRORS,
                "rmse": rmse, "times_smaller_than_philox": philox / rmse,
            });
            let case = format!("{} accuracy", system.name);
            let steps = f64::from(ERRORS) * f64::from(points) * f64::from(length);
            records.push(Record {
                relative_error: rmse / largest,
                steps_per_s: Some(steps / seconds),
                ..record(machine, system, case, Spread::of(vec![seconds]), more)
            });
        }
    }
    Ok(records)
}
