//! One step of uniformization.

use std::time::Instant;

use rayon::prelude::*;

use super::{Record, Spread, copy_bandwidth, triad_bandwidth};
use crate::Result;
use crate::kernel::{Precision, Real};
use crate::lane::{Lane, Launch, Program};
use crate::sparse::WidthRule;
use crate::transient::bound::{expect_room, survey};
use crate::transient::chain::Transitions;
use crate::transient::kernels::STEP;
use crate::transient::parts::Parts;

/// Measures the step with and without its accumulator: two records.
pub fn spmv(
    lane: &Lane,
    precision: Precision,
    case: &str,
    transitions: &dyn Transitions,
    rule: WidthRule,
    repeat: usize,
) -> Result<Vec<Record>> {
    let copy = match lane.device().backend {
        "cpu" => triad_bandwidth(lane, repeat)?,
        _ => copy_bandwidth(lane, repeat)?,
    };
    match precision {
        Precision::F32 => measure::<f32>(lane, case, transitions, rule, repeat, copy),
        Precision::F64 => measure::<f64>(lane, case, transitions, rule, repeat, copy),
    }
}

fn measure<T: Real>(
    lane: &Lane,
    case: &str,
    transitions: &dyn Transitions,
    rule: WidthRule,
    repeat: usize,
    copy: f64,
) -> Result<Vec<Record>> {
    let n = transitions.states();
    expect_room::<T>(lane, transitions)?;
    let survey = lane.host(|| survey::<T>(transitions));
    let parts = Parts::build(lane, transitions, &survey, rule, 1)?;
    // A probability vector that is nowhere zero or regular.
    let weight =
        |i: usize| 1.0 + ((i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as f64 / (1u64 << 24) as f64;
    let sum: f64 = (0..n).into_par_iter().map(weight).sum();
    let x: Vec<T> = (0..n).into_par_iter().map(|i| T::of(weight(i) / sum)).collect();
    const STEPS: u64 = 10_000;
    let scalars: Vec<T> =
        std::iter::once(survey.inverse_alpha).chain((0..STEPS).map(|_| T::of(1e-4))).collect();
    let scalars = lane.alloc_with("weights", &scalars)?;
    let acc: Vec<_> =
        parts.parts.iter().map(|p| lane.alloc::<T>("an accumulator", p.rows.len())).collect::<Result<_>>()?;

    let mut records = Vec::new();
    for accumulate in [true, false] {
        let mut cycle = Vec::new();
        for source in 0..2 {
            let mut launches: Vec<Launch> = Vec::new();
            for (part, acc) in parts.parts.iter().zip(&acc) {
                for chunk in &part.chunks {
                    let end = if accumulate { STEPS as u32 } else { 0 };
                    let params = [0, 0, end, chunk.rows as u32, chunk.first as u32, part.own as u32];
                    let args = [
                        chunk.slices.arg(),
                        chunk.columns.arg(),
                        chunk.values.arg(),
                        part.exit.arg(),
                        scalars.arg(),
                        part.x[source].arg(),
                        part.x[1 - source].arg(),
                        acc.arg(),
                    ];
                    launches.push(lane.bind(&STEP, T::PRECISION, chunk.rows, &params, &args)?);
                }
            }
            launches.extend(parts.exchange(lane, 1 - source)?);
            cycle.push(launches);
        }
        let program = Program { cycle: cycle.iter().map(|l| l.iter().collect()).collect() };
        for part in &parts.parts {
            lane.upload(&x[part.rows.clone()], &part.x[0], part.own)?;
        }
        let halos = parts.exchange(lane, 0)?;
        lane.launch(&halos.iter().collect::<Vec<_>>(), 0)?;
        let at = Instant::now();
        lane.run(&program, 0, 1, &mut |_| Ok(()))?;
        let once = at.elapsed().as_secs_f64();
        let relative_error = error::<T>(lane, transitions, &survey, &parts, &x)?;

        // A measurement is a run of many steps: a tenth of a second, or three steps of a slow lane.
        let at = Instant::now();
        let trial = ((0.05 / once) as u64).clamp(2, 256) & !1;
        lane.run(&program, 0, trial, &mut |_| Ok(()))?;
        let step = at.elapsed().as_secs_f64() / trial as f64;
        let steps = ((0.1 / step) as u64).clamp(4, STEPS) & !1;
        let mut seconds = Vec::new();
        for _ in 0..repeat {
            let at = Instant::now();
            lane.run(&program, 0, steps, &mut |_| Ok(()))?;
            seconds.push(at.elapsed().as_secs_f64() / steps as f64);
        }
        let seconds = Spread::of(seconds);
        let real = T::PRECISION.bytes();
        let vectors = real * n as u64 * if accumulate { 4 } else { 2 };
        let bytes = (real + 4) * survey.nnz + vectors;
        let halo: u64 = 2 * parts.matrix.halo * parts.matrix.parts as u64 * real;
        records.push(Record {
            bench: "spmv",
            case: case.to_owned(),
            device: lane.device().name.clone(),
            backend: lane.device().backend,
            precision: T::PRECISION.to_string(),
            n,
            nnz: survey.nnz,
            format: parts.matrix.format,
            lanes: 1,
            accumulate: Some(accumulate),
            bytes,
            bytes_moved: parts.matrix.bytes + vectors + halo,
            seconds,
            gb_per_s: bytes as f64 / seconds.median / 1e9,
            copy_gb_per_s: copy,
            relative_error,
            repetitions: repeat,
            terms: None,
        });
    }
    Ok(records)
}

/// Largest error of a step from `x`, relative to its largest element, against a plain sum in f64.
fn error<T: Real>(
    lane: &Lane,
    transitions: &dyn Transitions,
    survey: &crate::transient::bound::Survey<T>,
    parts: &Parts<T>,
    x: &[T],
) -> Result<f64> {
    let inverse = survey.inverse_alpha.wide();
    let (mut worst, mut largest) = (0.0f64, 0.0f64);
    for part in &parts.parts {
        let mut y = vec![T::ZERO; part.rows.len()];
        lane.download(&part.x[1], part.own, &mut y)?;
        let (w, l) = part
            .rows
            .clone()
            .into_par_iter()
            .with_min_len(4096)
            .map_init(Vec::new, |row, i| {
                row.clear();
                transitions.incoming(i, row);
                let s: f64 = row.iter().map(|&(j, r)| r * x[j as usize].wide()).sum();
                let own = x[i].wide();
                let exact = own + (s - survey.exit[i].wide() * own) * inverse;
                ((exact - y[i - part.rows.start].wide()).abs(), exact.abs())
            })
            .reduce(|| (0.0, 0.0), |a, b| (a.0.max(b.0), a.1.max(b.1)));
        (worst, largest) = (worst.max(w), largest.max(l));
    }
    Ok(worst / largest)
}
