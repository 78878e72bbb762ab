//! Runs in lockstep against single runs, bit by bit.

#![forbid(unsafe_code)]

use std::fmt::Debug;

use kolmo::Result;
use kolmo::kernel::Precision::{F32, F64};
use kolmo::transient::{Chain, Initial, Method, Options, Problem, Reward, Solution, in_lockstep, solve};

use crate::support::{answer, cpu, machine};

/// Starts and columns of rows, from the states that `own` returns for each row.
fn rows(n: usize, mut own: impl FnMut(usize) -> Vec<usize>) -> (Vec<usize>, Vec<u32>) {
    let (mut starts, mut columns) = (vec![0], Vec::new());
    for row in 0..n {
        let mut own = own(row);
        own.sort_unstable();
        own.dedup();
        columns.extend(own.iter().filter(|&&state| state != row).map(|&state| state as u32));
        starts.push(columns.len());
    }
    (starts, columns)
}

/// Rows of a random pattern; some states are absorbing, and state 7 is entered from many.
fn pattern(n: usize, seed: u64) -> (Vec<usize>, Vec<u32>) {
    let mut numbers = fastrand::Rng::with_seed(seed);
    rows(n, |row| {
        let mut own = Vec::new();
        if !row.is_multiple_of(97) || row == 0 {
            own.extend([(row + 1) % n, (row + n - 1) % n, numbers.usize(..n)]);
            own.extend((row % 5 == 0).then_some(7));
        }
        own
    })
}

/// A chain of the pattern: `kinds` distinct rates, or all different if `kinds` is 0.
fn chain((starts, columns): &(Vec<usize>, Vec<u32>), kinds: usize, seed: u64, scale: f64) -> Result<Chain> {
    let mut numbers = fastrand::Rng::with_seed(seed);
    let table: Vec<f64> = (0..kinds).map(|_| scale * (0.1 + numbers.f64())).collect();
    let rate = |k: usize| if kinds > 0 { table[(k * k) % kinds] } else { scale * (0.1 + numbers.f64()) };
    let rates: Vec<f64> = (0..columns.len()).map(rate).collect();
    Chain::from_csr(starts.len() - 1, starts, columns, &rates)
}

type Answer = (Vec<Vec<f64>>, Solution);

/// Asserts that two answers have equal bits, and that the first one was computed in lockstep.
fn assert_equal(what: &dyn Debug, (p, ours): &Answer, (q, single): &Answer) {
    assert_eq!(ours.matrix.format, "lockstep", "{what:?}");
    assert_ne!(single.matrix.format, "lockstep", "{what:?}");
    let [one, other] = [ours, single].map(|run| (run.alpha, run.terms, run.status));
    assert_eq!(one, other, "{what:?}");
    let bits = |row: &Vec<f64>| row.iter().map(|p| p.to_bits()).collect::<Vec<u64>>();
    assert!(p.iter().map(bits).eq(q.iter().map(bits)), "{what:?}: probabilities differ");
    assert_eq!(format!("{:?}", ours.times), format!("{:?}", single.times), "{what:?}");
}

#[test]
fn runs_in_lockstep_have_the_bits_of_single_runs() {
    let (machine, options) = (cpu(), Options::default());
    // States, distinct rates, chains, and whether probabilities are computed.
    for (n, kinds, count, vectors) in [(1500, 0, 11, true), (2100, 9, 3, true), (1300, 4, 10, false)] {
        let pattern = pattern(n, 5 + n as u64);
        let work = |k: usize| {
            let chain = chain(&pattern, kinds, k as u64, 1.0 + k as f64)?;
            let times = [[0.0, 3.0, 4.5], [0.5, 20.0, 2.0], [7.0, 7.5, 1e-3]][k % 3];
            let reward = |seed: usize| Reward {
                name: format!("r{seed}"),
                values: (0..n).map(|state| ((state * seed + k) % 7) as f64 - 1.5).collect(),
            };
            let rewards: Vec<Reward> = (1..=k % 3).map(reward).collect();
            let initial = match k % 2 {
                0 => Initial::State(k),
                _ => Initial::Uniform((0..n as u32).step_by(k).collect()),
            };
            let problem = Problem::new(&*chain.transitions, &initial, &times).rewards(&rewards);
            answer(&machine, &problem.vectors(vectors), &options)
        };
        let together = in_lockstep(count, n, work);
        for (k, ours) in together.into_iter().enumerate() {
            let (ours, single) = (ours.expect("a run"), work(k).expect("a single run"));
            assert_equal(&(n, kinds, k), &ours, &single);
        }
    }
}

#[test]
fn runs_in_lockstep_end_early_at_the_step_of_single_runs() {
    let (machine, n) = (cpu(), 1030);
    // Jumps across the ring mix it within some dozens of steps.
    let (starts, columns) = rows(n, |row| vec![(row + 1) % n, (row * 2 + 1) % n, (row + 517) % n]);
    let work = |k: usize| {
        let rates: Vec<f64> = columns.iter().map(|s| 1.0 + (k as f64) * 0.3 * f64::from(s % 3)).collect();
        let (chain, times) = (Chain::from_csr(n, &starts, &columns, &rates)?, [3000.0 + 500.0 * k as f64]);
        answer(&machine, &chain.at(&times), &Options::default())
    };
    let mut stops = Vec::new();
    for (k, ours) in in_lockstep(3, n, work).into_iter().enumerate() {
        let ours = ours.expect("a run");
        stops.push(ours.1.times[0].stopped.expect("an early end").step);
        assert_equal(&k, &ours, &work(k).expect("a single run"));
    }
    assert!(stops[0] < 4000, "{stops:?}");
}

#[test]
fn a_run_that_fails_or_differs_does_not_affect_others() {
    let (machine, n) = (cpu(), 1200);
    let pattern = pattern(n, 3);
    let work = |k: usize| {
        let mut rates: Vec<f64> = (0..pattern.1.len()).map(|i| 1.0 + ((i + k) % 4) as f64).collect();
        match k {
            1 => rates[17] = -1.0,
            2 => rates[17] = 0.0,
            3 => rates[17] = f64::NAN,
            _ => {}
        }
        let chain = Chain::from_csr(n, &pattern.0, &pattern.1, &rates)?;
        let times = [if k == 4 { -1.0 } else { 2.0 }, if k == 5 { f64::INFINITY } else { 1.0 }];
        let method = if k == 6 { Method::Chebyshev { strict: false } } else { Method::Auto };
        answer(&machine, &chain.at(&times), &Options::default().method(method))
    };
    let together = in_lockstep(9, n, work);
    for (k, ours) in together.into_iter().enumerate() {
        match (ours, work(k)) {
            (Err(ours), Err(single)) => {
                assert!([1, 3, 4].contains(&k), "{k}: {ours}");
                assert_eq!(ours.to_string(), single.to_string());
            }
            // This is solved by a single run; an own pattern needs none.
            (Ok(ours), Ok(single)) if k == 6 => {
                assert_ne!(ours.1.matrix.format, "lockstep", "{k}");
                assert_eq!(ours.0, single.0, "{k}");
            }
            (Ok(ours), Ok(single)) => assert_equal(&k, &ours, &single),
            (ours, _) => panic!("{k}: only one of two runs failed, {}", ours.is_err()),
        }
    }
}

#[test]
fn an_interrupted_run_leaves_the_others_to_continue() {
    let (machine, n) = (cpu(), 1100);
    let pattern = pattern(n, 11);
    let work = |k: usize| {
        let chain = chain(&pattern, 5, k as u64, 1.0)?;
        let mut progress = |done: u64, _: u64| match k == 1 && done > 0 {
            true => Err(kolmo::Error::Interrupted),
            false => Ok(()),
        };
        let mut results = Vec::new();
        let keep = |_: usize, p: &[f64]| {
            results.push(p.to_vec());
            Ok(())
        };
        let solution = solve(&machine, &chain.at(&[4.0]), &Options::default(), &mut (&mut progress, keep))?;
        Ok((results, solution))
    };
    for (k, ours) in in_lockstep(4, n, work).into_iter().enumerate() {
        match (ours, work(k)) {
            (Err(kolmo::Error::Interrupted), Err(kolmo::Error::Interrupted)) => assert_eq!(k, 1),
            (Ok(ours), Ok(single)) => assert_equal(&k, &ours, &single),
            (ours, _) => panic!("{k}: {:?}", ours.err()),
        }
    }
}

#[test]
fn small_chains_and_other_precisions_and_lanes_are_solved_by_single_runs() {
    for (n, spec, precision) in [(300, "cpu", F64), (1100, "cpu", F32), (1100, "cpu,cpu", F64)] {
        let pattern = pattern(n, 2);
        let machine = machine(spec, precision).expect("the CPU opens");
        let work =
            |k: usize| answer(&machine, &chain(&pattern, 3, k as u64, 1.0)?.at(&[1.5]), &Options::default());
        for (k, ours) in in_lockstep(3, n, work).into_iter().enumerate() {
            let ours = ours.expect("a run");
            assert_ne!(ours.1.matrix.format, "lockstep");
            assert_eq!(ours.0, work(k).expect("a single run").0);
        }
    }
}
