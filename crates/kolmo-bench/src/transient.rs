//! Benchmark of transient solutions.

use super::*;
use kolmo::transient::{Chain, solve};

/// A chain and the time of the solution.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    /// Name of the model.
    pub name: &'a str,
    /// The chain.
    pub chain: &'a Chain,
    /// Time t of the transient solution.
    pub time: f64,
    /// Reference probabilities at this time.
    pub reference: &'a [f64],
}

/// Measures a solution, without building the matrix.
///
/// The error is the l1 distance to the reference. `copy` is the [`bandwidth`](super::bandwidth) of
/// the lanes.
pub fn transient(
    machine: &Machine,
    case: &Case<'_>,
    options: &Options,
    repeat: usize,
    copy: f64,
) -> Result<Record> {
    let (chain, t) = (case.chain, case.time);
    let times = [t];
    let problem = chain.at(&times).rewards(&[]);
    let mut seconds = Vec::new();
    let mut last = None;
    for _ in 0..repeat {
        let mut probabilities = Vec::new();
        let solution = solve(machine, &problem, options, &mut probabilities)?;
        seconds.push(solution.seconds.solve);
        last = Some((solution, probabilities.swap_remove(0)));
    }
    let Some((solution, result)) = last else { unreachable!("at least one repetition") };
    let l1: f64 = result.iter().zip(case.reference).map(|(a, b)| (a - b).abs()).sum();
    let seconds = Spread::of(seconds);
    let real = machine.precision.bytes();
    let (first, end) = solution.times[0].window;
    let window = end - first + 1;
    let bytes = solution.terms * ((real + 4) * solution.nnz + 2 * real * solution.n as u64)
        + window * 2 * real * solution.n as u64;
    let moved = solution.terms * (solution.matrix.bytes + 2 * real * solution.n as u64)
        + window * real * solution.n as u64;
    let (name, device) = (format!("{} t={t}", case.name), machine.lanes[0].device());
    let record = Record {
        n: solution.n,
        nnz: solution.nnz,
        format: solution.matrix.format.clone(),
        lanes: machine.lanes.len(),
        copy_gb_per_s: copy,
        relative_error: l1,
        repetitions: repeat,
        terms: Some(solution.terms),
        ..Record::new("transient", name, device, machine.precision, seconds)
    };
    Ok(record.moving(bytes, moved))
}
