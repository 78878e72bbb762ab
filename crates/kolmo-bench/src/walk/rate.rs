//! Rate of random walks in steps per second.

use std::time::Instant;

use serde_json::json;

use super::{measured, prepare, record};
use crate::Record;
use kolmo::models::System;
use kolmo::walk::sampling::launcher::{Round, Task};
use kolmo::walk::sampling::walk_sums::Chains;
use kolmo::walk::sequence::{PointSource, Sequence};
use kolmo::walk::table::Table;
use kolmo::{Machine, Result};

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

impl Rate {
    /// Returns chains of 73 steps in 16 replicates, from points of Sobol.
    pub fn of_sobol(chains: u32) -> Self {
        Self { chains, length: 73, sequence: Sequence::Sobol, replicates: 16 }
    }
}

/// Measures steps per second on lanes that share the chains.
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
    let (split, f, certificate) = prepare(machine, system)?;
    let table = Table::build(&split, &certificate, &[&f], Some(&f), &[])?;
    let build = at.elapsed().as_secs_f64();
    let source =
        PointSource::new(what.sequence, what.sequence.default_scramble(), what.length, 0, 84, false)?;
    let chains = Chains::new(machine, &table, &source)?;
    let n = split.unknowns();
    let row = (n / 2) as u32;
    let tasks: Vec<Task> =
        (0..what.replicates).map(|replicate| Task { row, component: row, replicate }).collect();
    let each = what.chains / what.replicates;
    let round = Round { points: (0, each), length: what.length, cut: 0.0 };
    let (sums, seconds) = measured(repeat, || chains.sums(&tasks, round, &mut ()))?;
    let mean = sums.iter().sum::<f64>() / f64::from(each * what.replicates);
    let estimate = mean * certificate.walk_scale(row as usize);
    let exact = reference[row as usize];
    let steps = f64::from(each * what.replicates) * f64::from(what.length);
    // A step reads the scalars of a row's record and on average half of its entries.
    let entries = system.matrix.nnz() as f64 / n as f64 - 1.0;
    let bytes = (steps * (16.0 + 8.0 * (entries + 1.0) / 2.0)) as u64;
    let more = json!({
        "chains": each * what.replicates, "length": what.length, "sequence": what.sequence.to_string(),
        "build_seconds": build, "table_bytes": 4 * table.words.len(),
    });
    let case = format!("{} N={} T={} {}", system.name, each * what.replicates, what.length, what.sequence);
    let record = Record {
        relative_error: (estimate - exact).abs() / exact.abs(),
        repetitions: repeat,
        steps_per_s: Some(steps / seconds.median),
        ..record(machine, system, case, seconds, more)
    };
    Ok(record.moving(bytes, (steps * 64.0) as u64))
}
