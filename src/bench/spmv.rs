//! Benchmark of one step of uniformization.

use super::together::together;
use super::*;
use crate::kernel::Number;
use crate::transient::chain::statistics::scale_rates;

/// Measures the step with and without its accumulator, on lanes that share the rows.
///
/// Returns two records. `copy` is the [`bandwidth`](bandwidth) of the lanes.
pub fn spmv(
    machine: &Machine,
    case: &str,
    transitions: &dyn Transitions,
    options: &Options,
    repeat: usize,
    copy: f64,
) -> Result<Vec<Record>> {
    by_precision!(machine.precision, measure(machine, case, transitions, options, repeat, copy))
}

fn measure<T: Number>(
    machine: &Machine,
    case: &str,
    transitions: &dyn Transitions,
    options: &Options,
    repeat: usize,
    copy: f64,
) -> Result<Vec<Record>> {
    let n = transitions.states();
    let lanes = &machine.lanes[..];
    expect_chain_memory(machine, transitions.states())?;
    let statistics = statistics::<T>(transitions)?;
    let mut parts = ChainParts::build(machine, transitions, &statistics, options.format, options.split)?;
    // Single steps are measured.
    parts.tiles = None;
    // A probability vector without zeros and without regularity.
    let weight =
        |i: usize| 1.0 + ((i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as f64 / (1u64 << 24) as f64;
    let sum = (0..n).into_par_iter().map(weight).reduce(|| 0.0, |a, b| a + b);
    let x: Vec<f64> = (0..n).into_par_iter().map(|i| weight(i) / sum).collect();
    const STEPS: usize = 10_000;
    let mut iteration = Iteration::new(lanes, &parts, statistics.inverse_alpha, &[], (0, 0), false)?;
    let mut target = iteration.target(STEPS, iteration.accumulators()?)?;
    iteration.weigh(&mut target, 0, &vec![1e-4; STEPS], 1.0)?;

    let mut records = Vec::new();
    for accumulate in [true, false] {
        let targets: &[_] = if accumulate { &[&target] } else { &[] };
        let mut run = |steps: u64| -> Result<f64> {
            iteration.start(&x, None)?;
            let at = Instant::now();
            iteration.advance(steps, targets, &mut ())?;
            Ok(at.elapsed().as_secs_f64() / steps as f64)
        };
        let once = run(1)?;
        // A measurement is a run of many steps: a tenth of a second, or four steps of a slow lane.
        let step = run(((0.05 / once) as u64).clamp(2, 256))?;
        let steps = ((0.1 / step) as u64).clamp(4, STEPS as u64);
        let seconds = Spread::measure(repeat, || run(steps))?;
        iteration.start(&x, None)?;
        iteration.advance(1, targets, &mut ())?;
        let relative_error = error(transitions, &statistics, &x, &iteration.newest()?);

        let real = T::PRECISION.bytes();
        let vectors = real * n as u64 * if accumulate { 4 } else { 2 };
        let bytes = (real + 4) * statistics.nnz + vectors;
        // The accumulator is read and written every second step.
        let moved = real * n as u64 * if accumulate { 3 } else { 2 };
        let halo: u64 = 2 * parts.matrix.halo * parts.matrix.parts as u64 * real;
        let record = Record {
            device: names(lanes),
            n,
            nnz: statistics.nnz,
            format: parts.matrix.format.clone(),
            lanes: lanes.len(),
            accumulate: Some(accumulate),
            copy_gb_per_s: copy,
            relative_error,
            repetitions: repeat,
            ..Record::new("spmv", case.to_owned(), lanes[0].device(), T::PRECISION, seconds)
        };
        records.push(record.moving(bytes, parts.matrix.bytes + moved + halo));
    }
    if lanes.len() > 1 {
        drop((target, iteration));
        let steps = ((0.1 / records[0].seconds.median) as u64).clamp(4, STEPS as u64);
        records[0].together = Some(together(lanes, &mut parts, &statistics, &x, steps, repeat)?);
    }
    Ok(records)
}

/// Largest error of a step from `x` to `y` against a plain sum in f64, relative to the largest
/// element.
fn error<T: Number>(
    transitions: &dyn Transitions,
    statistics: &MatrixStatistics<T>,
    x: &[f64],
    y: &[f64],
) -> f64 {
    // In fixed point exit rates are stored as fractions of α.
    let (inverse, alpha) = match T::PRECISION {
        Precision::Q64 => (1.0 / statistics.divisor, statistics.divisor),
        _ => (statistics.inverse_alpha.wide(), 1.0),
    };
    let (worst, largest) = y
        .par_iter()
        .enumerate()
        .with_min_len(4096)
        .map_init(Vec::new, |row, (i, y)| {
            row.clear();
            transitions.incoming(i, row);
            scale_rates(row, statistics.scale);
            let s: f64 = row.iter().map(|&(j, r)| r * x[j as usize]).sum();
            let exact = x[i] + (s - alpha * statistics.exit[i].wide() * x[i]) * inverse;
            ((exact - y).abs(), exact.abs())
        })
        .reduce(|| (0.0, 0.0), |a, b| (a.0.max(b.0), a.1.max(b.1)));
    worst / largest
}
