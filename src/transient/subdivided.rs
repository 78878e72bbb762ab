//! Algorithm 1 of Karwacki, Bylina, Bylina (FedCSIS 2012): intervals of αt ≤ Θ, and three kernels a term.
//!
//! Kept to reproduce that algorithm; the sweep needs fewer multiplications and one kernel a term. Two things are
//! mended: the number of intervals is ⌈αt/Θ⌉ (the real quotient loses the last part of an interval), and ε is
//! shared over the intervals, whose errors add. The factor e^{−αt} is applied to the sum at an interval's end as
//! there, which bounds Θ by the range of the numbers.

use super::kernels::{ACCUMULATE, SCALE, STEP};
use super::poisson::Window;
use super::solve::{Bound, Built, Observer, TimeResult};
use crate::kernel::{Precision, Real};
use crate::lane::Program;
use crate::{Error, Result};

/// Largest Θ whose e^Θ stays within the range of the numbers, with room for the sum of terms.
fn largest_theta(precision: Precision) -> f64 {
    match precision {
        Precision::F32 => 80.0,
        Precision::F64 => 700.0,
    }
}

pub(super) fn run<T: Real>(
    built: &Built<'_, T>,
    theta: f64,
    which: &[usize],
    times: &mut [Option<TimeResult>],
    observer: &mut dyn Observer,
) -> Result<u64> {
    let largest = largest_theta(T::PRECISION);
    if theta > largest {
        return Err(Error::Invalid(format!(
            "theta is {theta}; in {} it can be at most {largest}, since e^theta must be a number",
            T::PRECISION
        )));
    }
    let [part] = &built.parts.parts[..] else {
        return Err(Error::Invalid(format!(
            "the subdivided method keeps all rows in one part, and {} needs {}; use --method sweep",
            built.lane.device().name,
            built.parts.parts.len()
        )));
    };
    if !built.problem.rewards.is_empty() {
        return Err(Error::Invalid(
            "the subdivided method computes no rewards; use --method sweep".to_owned(),
        ));
    }
    let (lane, n) = (built.lane, built.initial.len());
    let precision = T::PRECISION;
    let pt = lane.alloc::<T>("an accumulator", n)?;
    let nothing = lane.alloc::<T>("scalars", 1)?;
    let mut terms = 0;
    for &index in which {
        let t = built.problem.times[index];
        let lambda = built.lambda(t);
        let intervals = (lambda / theta).ceil().max(1.0);
        let each = lambda / intervals;
        let share = (built.options.epsilon - built.rounding(lambda, 3 * lambda as u64))
            .max(0.5 * built.options.epsilon);
        let window = Window::new(each, (share / intervals).max(1e-300));
        let last = window.right;

        // 1/α for the step, 1 for the sum, (αt/l)/k for the scaling by terms, e^{−αt/l} for the interval's end.
        let inverse = lane.alloc_with("scalars", &[built.survey.inverse_alpha])?;
        let one = lane.alloc_with("scalars", &[T::ZERO, T::of(1.0)])?;
        let mut factors: Vec<T> = vec![T::of((-each).exp())];
        factors.extend((1..=last).map(|k| T::of(each / k as f64)));
        let factors = lane.alloc_with("factors", &factors)?;

        let initial: Vec<T> = built.initial.iter().map(|&p| T::of(p)).collect();
        lane.upload(&initial, &pt, 0)?;
        let rows = n as u32;
        for interval in 0..intervals as u64 {
            lane.copy(&pt, &part.x[0], 1)?;
            let mut launches = Vec::new();
            for k in 1..=last {
                let (m, r) = (&part.x[(k as usize + 1) % 2], &part.x[k as usize % 2]);
                for chunk in &part.chunks {
                    let params = [0, 0, 0, chunk.rows as u32, chunk.first as u32, 0];
                    let args = [
                        chunk.slices.arg(),
                        chunk.columns.arg(),
                        chunk.values.arg(),
                        part.exit.arg(),
                        inverse.arg(),
                        m.arg(),
                        r.arg(),
                        nothing.arg(),
                    ];
                    launches.push(lane.bind(&STEP, precision, chunk.rows, &params, &args)?);
                }
                launches.push(lane.bind(
                    &SCALE,
                    precision,
                    n,
                    &[0, k as u32, rows, 0],
                    &[factors.arg(), r.arg()],
                )?);
                let args = [one.arg(), r.arg(), pt.arg()];
                launches.push(lane.bind(&ACCUMULATE, precision, n, &[0, 0, rows, 0], &args)?);
            }
            launches.push(lane.bind(&SCALE, precision, n, &[0, 0, rows, 0], &[factors.arg(), pt.arg()])?);
            let all = terms + (intervals as u64 - interval) * last;
            let mut watch = |_| observer.progress(terms, all);
            lane.run(&Program { cycle: vec![launches.iter().collect()] }, 0, 1, &mut watch)?;
            terms += last;
        }
        let mut result = vec![T::ZERO; n];
        lane.download(&pt, 0, &mut result)?;
        let result: Vec<f64> = result.iter().map(|p| p.wide()).collect();
        observer.result(index, &result)?;
        // Each term is scaled and added once more than in the sweep, and e^{−x} rounds once an interval.
        let u = precision.unit_roundoff();
        let rounding = built.rounding(lambda, 0) + u * intervals * (3.0 * last as f64 + 4.0);
        times[index] = Some(TimeResult {
            time: t,
            alpha_t: lambda,
            window: (0, last),
            bound: Bound { truncation: intervals * window.truncation(), steady_state: 0.0, rounding },
            mass: None,
            rewards: Vec::new(),
        });
    }
    Ok(terms)
}
