//! Rate of random walks in steps per second.

use std::time::Instant;

use serde_json::json;

use super::{Record, Spread, names};
use crate::models::System;
use crate::walk::convergence::certificate::certify;
use crate::walk::sampling::launcher::{Round, Task};
use crate::walk::sampling::walk_sums::Chains;
use crate::walk::sequence::Points;
use crate::walk::splitting::Split;
use crate::walk::table::Table;
use crate::walk::{Sequence, Splitting};
use crate::{Machine, Result};

/// Chains of one length from one row, for measuring the rate of a device.
#[derive(Debug, Clone, Copy)]
pub struct Rate {
    /// Number of chains.
    pub chains: u32,
    /// Steps per chain.
    pub length: u32,
    /// Sequence of points.
    pub sequence: Sequence,
    /// Number of replicates that share the chains.
    pub replicates: u32,
}

/// Measures steps per second on lanes that share the chains, in `repeat` runs after a first one.
///
/// The error is that of the mean over all chains, relative to the component's value in `reference`.
pub fn rate(
    machine: &Machine,
    system: &System,
    reference: &[f64],
    what: Rate,
    repeat: usize,
) -> Result<Record> {
    let at = Instant::now();
    let split = Split::new(&system.matrix, Splitting::Auto)?;
    let f = split.constant(&system.rhs)?.to_vec();
    let certificate = certify(&split, Splitting::Auto, &machine.lanes[0], &mut |_| Ok(true))?;
    let table = Table::build(&split, &certificate, &[&f[..]], &f, &[])?;
    let build = at.elapsed().as_secs_f64();
    let Rate { length, sequence, replicates, .. } = what;
    let points = Points::new(sequence, sequence.default_scramble(), length, 0);
    let chains = Chains::new(machine, &table, &points)?;
    let n = split.unknowns();
    let row = (n / 2) as u32;
    let tasks: Vec<Task> = (0..replicates).map(|replicate| Task { row, component: row, replicate }).collect();
    let each = what.chains / replicates;
    let all = each * replicates;
    let round = Round { points: (0, each), length, cut: 0.0 };
    let run = || chains.sums(&tasks, round, &mut ());
    let mean = run()?.iter().sum::<f64>() / f64::from(all);
    let seconds = Spread::measure(repeat, || {
        let at = Instant::now();
        run().map(|_| at.elapsed().as_secs_f64())
    })?;
    let (estimate, exact) = (mean * certificate.walk_scale(row as usize), reference[row as usize]);
    // A step reads the scalars of a row's record and on average half of its entries.
    let steps = f64::from(all) * f64::from(length);
    let entries = system.matrix.nnz() as f64 / n as f64 - 1.0;
    let bytes = (steps * (16.0 + 8.0 * (entries + 1.0) / 2.0)) as u64;
    let case = format!("{} N={all} T={length} {sequence}", system.name);
    let record = Record {
        device: names(&machine.lanes),
        n: system.matrix.rows(),
        nnz: system.matrix.nnz() as u64,
        format: "records".to_owned(),
        lanes: machine.lanes.len(),
        repetitions: repeat,
        steps_per_s: Some(steps / seconds.median),
        relative_error: (estimate - exact).abs() / exact.abs(),
        more: Some(json!({
            "chains": all, "length": length, "sequence": sequence.to_string(),
            "build_seconds": build, "table_bytes": 4 * table.words.len(),
        })),
        ..Record::new("walk", case, machine.lanes[0].device(), machine.precision, seconds)
    };
    Ok(record.moving(bytes, (steps * 64.0) as u64))
}

/// Solves a system by Jacobi iteration.
///
/// It ends when no entry changes by more than `tolerance` times the largest entry. Fails for a
/// diagonal element of 0.
pub fn solution(system: &System, tolerance: f64) -> Result<Vec<f64>> {
    let split = Split::new(&system.matrix, Splitting::Jacobi)?;
    let f = split.constant(&system.rhs)?;
    let (mut x, mut next) = (f.to_vec(), vec![0.0; f.len()]);
    for _ in 1..100_000 {
        split.sweep(&f, &x, &mut next);
        let change = x.iter().zip(&next).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        std::mem::swap(&mut x, &mut next);
        if change <= tolerance * x.iter().fold(0.0, |most: f64, x| most.max(x.abs())) {
            break;
        }
    }
    Ok(x)
}
