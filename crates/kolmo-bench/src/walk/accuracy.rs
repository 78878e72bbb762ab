//! Accuracy of the point sequences over the number of chains (Fig. 2 of Lai et al. 2015).

use std::time::Instant;

use serde_json::json;

use super::{prepare, record};
use crate::{Record, Spread};
use kolmo::models::System;
use kolmo::walk::ControlVariate;
use kolmo::walk::bicgstab::solver::Krylov;
use kolmo::walk::control_variate::{Asked, Control, Goal};
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

static METHODS: [Method; 12] = [
    Method {
        name: "philox",
        sequence: Sequence::Philox,
        scramble: Scramble::None,
        ordered: false,
        sweeps: false,
    },
    Method {
        name: "mtgp32",
        sequence: Sequence::Mtgp32,
        scramble: Scramble::None,
        ordered: false,
        sweeps: false,
    },
    Method {
        name: "halton",
        sequence: Sequence::Halton,
        scramble: Scramble::None,
        ordered: false,
        sweeps: false,
    },
    Method {
        name: "faure",
        sequence: Sequence::Faure,
        scramble: Scramble::None,
        ordered: false,
        sweeps: false,
    },
    Method {
        name: "sobol",
        sequence: Sequence::Sobol,
        scramble: Scramble::None,
        ordered: false,
        sweeps: false,
    },
    Method {
        name: "halton shift",
        sequence: Sequence::Halton,
        scramble: Scramble::Shift,
        ordered: false,
        sweeps: false,
    },
    Method {
        name: "faure shift",
        sequence: Sequence::Faure,
        scramble: Scramble::Shift,
        ordered: false,
        sweeps: false,
    },
    Method {
        name: "sobol owen",
        sequence: Sequence::Sobol,
        scramble: Scramble::Owen,
        ordered: false,
        sweeps: false,
    },
    Method {
        name: "philox value",
        sequence: Sequence::Philox,
        scramble: Scramble::None,
        ordered: true,
        sweeps: false,
    },
    Method {
        name: "sobol owen value",
        sequence: Sequence::Sobol,
        scramble: Scramble::Owen,
        ordered: true,
        sweeps: false,
    },
    Method {
        name: "philox sweeps",
        sequence: Sequence::Philox,
        scramble: Scramble::None,
        ordered: false,
        sweeps: true,
    },
    Method {
        name: "sobol owen value sweeps",
        sequence: Sequence::Sobol,
        scramble: Scramble::Owen,
        ordered: true,
        sweeps: true,
    },
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
        let components: Vec<u32> =
            (0..ERRORS / replicates).map(|c| (u64::from(c) * 2_654_435_761 % n as u64) as u32).collect();
        let asked = Asked { components: &components, functionals: &[], goal: Goal::EXACT };
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
            let sums =
                chains.sums(&tasks, Round { points: (0, points), length, cut: 0.0 }, &mut |_, _| Ok(()))?;
            let seconds = at.elapsed().as_secs_f64();
            let square = |(task, sum): (&Task, &f64)| {
                let m = task.row as usize;
                let estimate = control.h(task.row) + certificate.walk_scale(m) * sum / f64::from(points);
                (estimate - reference[m]).powi(2)
            };
            let rmse = (tasks.iter().zip(&sums).map(square).sum::<f64>() / f64::from(ERRORS)).sqrt();
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
