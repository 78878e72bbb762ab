//! Time to an interval, against deterministic solvers with their own bounds.

use std::time::Instant;

use serde_json::json;

use super::competitors::{Ended, conjugate_gradients, jacobi, push};
use super::{prepare, record};
use crate::Result;
use crate::bench::{Record, Spread};
use crate::kernel::Precision;
use crate::lane::Lane;
use crate::models::System;
use crate::transient::Status;
use crate::walk::{Options, Problem, Sweeps, solve};

/// Measures one component, to half-widths and bounds of the given shares of the largest entry of x: walks as they are by
/// default, without sweeps and lazy, Jacobi and conjugate gradients on the first lane, a local push on the host. Seconds
/// begin with the matrix in the host's memory. What takes longer than `patience` seconds for one share is not asked for a
/// smaller one.
///
/// # Errors
/// Those of the lanes.
pub fn intervals(
    lanes: &[Lane],
    precision: Precision,
    system: &System,
    reference: &[f64],
    shares: &[f64],
    patience: f64,
) -> Result<Vec<Record>> {
    let (split, f, certificate) = prepare(system)?;
    let n = split.unknowns();
    let component = n / 2;
    let largest = reference.iter().fold(0.0f64, |m, x| m.max(x.abs()));
    let lane = &lanes[0];
    let rhs = std::slice::from_ref(&system.rhs);
    let problem = Problem { matrix: &system.matrix, rhs, components: &[component as u32] };
    let walk = |sweeps: Sweeps, lazy: bool, epsilon: f64| -> Result<Option<(Ended, serde_json::Value)>> {
        let options =
            Options { epsilon: Some(epsilon), sweeps, lazy, max_chains: 1 << 24, ..Options::default() };
        let from = Instant::now();
        let solution = solve(lanes, precision, &problem, &options, &mut |_, _| Ok(()))?;
        let seconds = from.elapsed().as_secs_f64();
        let c = &solution.components[0];
        let more = json!({
            "chains": c.chains, "length": c.length, "sweeps": solution.sweeps, "phases": solution.seconds,
            "met": solution.status == Status::Met,
        });
        let ended = Ended {
            seconds,
            upload: solution.seconds.upload,
            steps: solution.steps as f64,
            estimate: c.estimate,
            bound: c.half_width,
        };
        Ok(Some((ended, more)))
    };
    let plain = |ended: Option<Ended>| Ok(ended.map(|e| (e, json!({"met": true}))));
    type Run<'a> = Box<dyn Fn(f64) -> Result<Option<(Ended, serde_json::Value)>> + 'a>;
    let norm = certificate.norm;
    let mut methods: Vec<(&str, Run<'_>)> = vec![
        ("walk", Box::new(|e| walk(Sweeps::Auto, false, e))),
        ("walk, no sweeps", Box::new(|e| walk(Sweeps::Fixed(0), false, e))),
    ];
    // The others' bounds, and lazy walks, need row sums below 1.
    if !certificate.scaled {
        methods.push(("walk, lazy", Box::new(|e| walk(Sweeps::Auto, true, e))));
        methods.push((
            "jacobi",
            Box::new(|e| {
                plain(Some(match precision {
                    Precision::F32 => jacobi::<f32>(lane, &split, &f, norm, component, e)?,
                    Precision::F64 => jacobi::<f64>(lane, &split, &f, norm, component, e)?,
                }))
            }),
        ));
        methods.push((
            "cg",
            Box::new(|e| {
                plain(match precision {
                    Precision::F32 => {
                        conjugate_gradients::<f32>(lane, &split, &system.rhs, norm, component, e)?
                    }
                    Precision::F64 => {
                        conjugate_gradients::<f64>(lane, &split, &system.rhs, norm, component, e)?
                    }
                })
            }),
        ));
        let most = 100 * system.matrix.nnz() as u64 + 1_000_000;
        let (split, f) = (&split, &f);
        methods.push((
            "push on one thread of the host",
            Box::new(move |e| plain(push(split, f, norm, component, e, most))),
        ));
    }
    let mut records = Vec::new();
    for (name, run) in &methods {
        for &share in shares {
            let epsilon = share * largest;
            let Some((ended, mut more)) = run(epsilon)? else { break };
            more["method"] = json!(name);
            more["epsilon"] = json!(epsilon);
            more["share"] = json!(share);
            more["upload_seconds"] = json!(ended.upload);
            more["steps"] = json!(ended.steps);
            more["bound"] = json!(ended.bound);
            let error = (ended.estimate - reference[component]).abs();
            more["error"] = json!(error);
            let case = format!("{} to {share:e} of max x: {name}", system.name);
            records.push(Record {
                relative_error: error / largest,
                ..record(lanes, precision, system, case, Spread::of(vec![ended.seconds]), more)
            });
            if ended.seconds > patience {
                break;
            }
        }
    }
    Ok(records)
}
