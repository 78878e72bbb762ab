//! Krylov approximations of x e^{Qt}, for one vector x after another.

use crate::ranks::Ranks;
use crate::transient::chain::Initial;
use crate::transient::chain::transitions::exit_rate;
use crate::transient::columns::{Action, ActionRequest, ColumnScale, U, gather};
use crate::transient::problem::{Options, Problem};
use crate::transient::solve::solve;
use crate::util::memory::try_zeroed;
use crate::{Machine, Progress, Result};

/// Computes x e^{Qt} = x⁺ e^{Qt} − x⁻ e^{Qt} with [`solve`], where x⁺ and x⁻ are nonnegative.
///
/// Ranks share the vectors.
pub(super) fn solve_each(
    request: &ActionRequest<'_>,
    machine: &Machine,
    options: &Options,
    observer: &mut dyn Progress,
) -> Result<Vec<Action>> {
    let (ranks, alone) = (machine.ranks, machine.clone().on_ranks(Ranks::ALONE));
    ranks.all_ok(request.check())?;
    let ActionRequest { transitions, block, times, .. } = *request;
    let (n, k) = (transitions.states(), block.len() / transitions.states());
    let cut = |rank: usize| k * rank / ranks.size();
    let shares: Vec<_> = (0..ranks.size()).map(|rank| cut(rank)..cut(rank + 1)).collect();
    let zeros =
        |_: &f64| Ok(Action { values: try_zeroed(n * k, || format!("{k} vectors"))?, bounds: vec![0.0; k] });
    let mut done = 0;
    let mut add_part = |c: usize, sign: f64, results: &mut [Action]| {
        let mut part: Vec<f64> = block.iter().skip(c).step_by(k).map(|v| (sign * v).max(0.0)).collect();
        let column = ColumnScale::new(part.iter().copied(), false);
        if column.norm == 0.0 {
            return Ok(());
        }
        part.iter_mut().for_each(|v| *v = column.scaled(*v));
        let mass = exit_rate(part.iter().copied());
        part.iter_mut().for_each(|v| *v /= mass);
        let initial = Initial::Distribution(part);
        let mut report = |more, _| observer.progress(done + more, 0);
        let add = |index: usize, p: &[f64]| {
            let sums = results[index].values.iter_mut().skip(c).step_by(k);
            sums.zip(p).for_each(|(sum, p)| *sum += sign * column.unscaled(p * mass));
            Ok(())
        };
        let solution =
            solve(&alone, &Problem::new(transitions, &initial, times), options, &mut (&mut report, add))?;
        done += solution.terms;
        // Division by the norm, the product with it and the sum are rounded. Scaling rounds
        // subnormal numbers.
        let tiny = n as f64 * f64::from_bits(2);
        for (result, time) in results.iter_mut().zip(&solution.times) {
            result.bounds[c] += column.unscaled(1.001 * mass * (time.bound.total() + 8.0 * U)) + tiny;
        }
        Ok(())
    };
    let own = times.iter().map(zeros).collect::<Result<Vec<Action>>>().and_then(|mut results| {
        let mut parts = shares[ranks.rank()].clone().flat_map(|c| [(c, 1.0), (c, -1.0)]);
        parts.try_for_each(|(c, sign)| add_part(c, sign, &mut results))?;
        Ok(results)
    });
    let mut results = ranks.all_ok(own)?;
    results.iter_mut().for_each(|result| gather(result, ranks, &shares));
    Ok(results)
}
