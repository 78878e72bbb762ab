//! Piecewise constant generators, and jumps, in double-word arithmetic.

use fastrand::Rng;
use kolmo::kernel::Precision;
use kolmo::transient::{Chain, Initial, Options, Phase, Status, Transitions, solve_phases};

use super::double_word::DoubleWord;
use super::transient::{Rates, Reference, between, error, initial, made};
use super::{cpu_lanes, run_all};
use crate::support::{cpu, expect_error};

kinds! { Similar Stiff Jumps }

/// Returns random rates or probabilities in `low`..`high`, a third of them 0 on average.
fn phase(n: usize, (low, high): (f64, f64), rng: &mut Rng) -> Rates {
    let mut row = |i: usize| {
        let mut entry = |j: usize| match i == j || rng.u8(0..3) == 0 {
            true => 0.0,
            false => between(rng, low, high),
        };
        (0..n).map(&mut entry).collect()
    };
    (0..n).map(&mut row).collect()
}

/// Returns x P, where P has these probabilities outside of its diagonal.
fn step(x: &[DoubleWord], probabilities: &Rates) -> Vec<DoubleWord> {
    let mut next = x.to_vec();
    for (i, row) in probabilities.iter().enumerate() {
        for (j, &p) in row.iter().enumerate() {
            let moved = x[i] * p.into();
            next[j] = next[j] + moved;
            next[i] = next[i] - moved;
        }
    }
    next
}

#[expect(clippy::neg_cmp_op_on_partial_ord, reason = "a NaN fails, too")]
fn case(kind: Kind, seed: u64) -> Result<(), String> {
    let mut rng = Rng::with_seed(seed ^ (kind as u64) << 32);
    let n = rng.usize(1..=8);
    let (initial, p0) = initial(n, &mut rng);
    let range = if kind == Kind::Stiff { (1e-4, 1e4) } else { (0.1, 10.0) };
    let mut exact: Vec<DoubleWord> = p0.iter().map(|&p| p.into()).collect();
    let (mut chains, mut ends, mut wanted) = (Vec::new(), Vec::new(), Vec::new());
    let mut time = 0.0;
    for k in 0..rng.usize(2..=5) {
        if kind == Kind::Jumps && rng.bool() {
            let jump = phase(n, (1e-3, 1.0 / n as f64), &mut rng);
            exact = step(&exact, &jump);
            chains.push(Chain::new("jump", Box::new(made(&jump))).discrete());
            // A time has one result: that after its last jump.
            if k > 0 && ends.last() == Some(&time) {
                wanted.pop();
            }
        } else {
            let rates = phase(n, range, &mut rng);
            let reference = Reference::new(&rates);
            let end: f64 = time + between(&mut rng, 1e-3, 3.0);
            // The exact length of the phase is the sum of two doubles, both at least 0.
            let length = end - time;
            let span = if length > end || end - length < time { length.next_down() } else { length };
            let rest = (end - span) - time;
            exact = reference.from(&exact, span).0;
            exact = reference.from(&exact, rest).0;
            chains.push(Chain::new("phase", Box::new(made(&rates))));
            time = end;
        }
        ends.push(time);
        wanted.push((time, exact.clone()));
    }
    let phases: Vec<Phase<'_>> = (chains.iter().zip(&ends))
        .map(|(chain, &end)| Phase { end, late: 0.0, transitions: &*chain.transitions, rewards: &[] })
        .collect();
    let precision = if rng.u8(0..4) == 0 { Precision::F32 } else { Precision::F64 };
    let options = Options::default().epsilon(between(&mut rng, 1e-11, 1e-3));
    let times: Vec<f64> = wanted.iter().map(|w| w.0).collect();
    let mut results: Vec<Vec<f64>> = Vec::new();
    let machine = cpu_lanes(1, precision);
    let solution = solve_phases(&machine, &phases, &initial, &times, &options, &mut results)
        .map_err(|error| error.to_string())?;
    for (k, (_, exact)) in wanted.iter().enumerate() {
        let (error, bound) = (error(&results[k], exact), solution.times[k].bound.total());
        // The reference starts from the doubles nearest to thirds.
        if !(error <= bound + 0.5 * f64::EPSILON + 1e-20) || solution.times[k].contradiction.is_some() {
            return Err(format!("{precision}, time {k} of {ends:?}: error {error:e}, bound {bound:e}"));
        }
    }
    let met = solution.status == Status::Met;
    if precision == Precision::F64 && !met {
        return Err(format!("{:?} is not within {:e}", solution.bound, options.epsilon));
    }
    Ok(())
}

#[test]
fn errors_of_piecewise_constant_chains_are_within_their_bounds() {
    run_all(KINDS, 30, case);
}

#[test]
fn phases_that_are_no_schedule_are_refused() {
    let two = made(&vec![vec![0.0, 1.0], vec![0.0; 2]]);
    let jump = Chain::new("jump", Box::new(made(&vec![vec![0.0, 1.0], vec![0.0; 2]]))).discrete();
    let jump = &*jump.transitions;
    let (initial, options) = (Initial::State(0), Options::default());
    for (phases, times, said) in [
        (&[][..], &[1.0][..], "no phase given"),
        (&[(1.0, &two as &dyn Transitions)], &[], "no time given"),
        (&[(1.0, &two)], &[1.5], "time 1.5 is after the last phase, which ends at 1"),
        (&[(1.0, &two)], &[-1.0], "invalid time -1"),
        (&[(f64::NAN, &two)], &[0.5], "phase 1 ends at NaN: expected a time after 0"),
        (&[(1.0, &two), (1.5, jump)], &[0.5], "phase 2 is a jump at time 1.5: expected 1"),
    ] {
        let phase = |&(end, transitions): &(f64, _)| Phase { end, late: 0.0, transitions, rewards: &[] };
        let phases: Vec<Phase<'_>> = phases.iter().map(phase).collect();
        expect_error(solve_phases(&cpu(), &phases, &initial, times, &options, &mut ()), said);
    }
}
