//! Rate of random walks in steps per second.

use super::*;

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
    let prepared = Prepared::new(machine, system)?;
    let table = prepared.table(&prepared.f, Some(&prepared.f))?;
    let build = at.elapsed().as_secs_f64();
    let Rate { length, sequence, replicates, .. } = what;
    let source = points(sequence, sequence.default_scramble(), length, false)?;
    let chains = Chains::new(machine, &table, &source)?;
    let n = prepared.split.unknowns();
    let row = (n / 2) as u32;
    let tasks: Vec<Task> = (0..replicates).map(|replicate| Task { row, component: row, replicate }).collect();
    let each = what.chains / replicates;
    let all = each * replicates;
    let round = Round { points: (0, each), length, cut: 0.0 };
    let more = json!({
        "chains": all, "length": length, "sequence": sequence.to_string(),
        "build_seconds": build, "table_bytes": 4 * table.words.len(),
    });
    let case = (format!("N={all} T={length} {sequence}"), more);
    let (sums, record) =
        prepared.measure(case, repeat, (all.into(), length), || sums(&chains, &tasks, round))?;
    let mean = sums.iter().sum::<f64>() / f64::from(all);
    let (estimate, exact) = (mean * prepared.certificate.walk_scale(row as usize), reference[row as usize]);
    // A step reads the scalars of a row's record and on average half of its entries.
    let steps = f64::from(all) * f64::from(length);
    let entries = system.matrix.nnz() as f64 / n as f64 - 1.0;
    let bytes = (steps * (16.0 + 8.0 * (entries + 1.0) / 2.0)) as u64;
    let record = Record { relative_error: (estimate - exact).abs() / exact.abs(), ..record };
    Ok(record.moving(bytes, (steps * 64.0) as u64))
}
