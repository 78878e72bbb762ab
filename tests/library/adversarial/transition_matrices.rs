//! Transition matrices of small chains, in double-word arithmetic.

use fastrand::Rng;
use kolmo::transient::{transition_matrices, transition_matrices_on};

use super::double_word::DoubleWord;
use super::run_all;
use super::transient::{Rates, Reference, between, error};
use crate::support::{Opened, cpu, expect_error, within};

kinds! { Dense Sparse Stiff Absorbing Tiny Long }

/// Returns rates between 1 and 20 states.
fn rates(kind: Kind, rng: &mut Rng) -> Rates {
    let n = if rng.u8(0..4) == 0 { 20 } else { rng.usize(1..=12) };
    let (low, high) = match kind {
        Kind::Stiff => (1e-6, 1e6),
        Kind::Tiny => (1e-300, 1e-297),
        _ => (0.1, 10.0),
    };
    let mut rates = vec![vec![0.0; n]; n];
    for (i, row) in rates.iter_mut().enumerate() {
        for (j, rate) in row.iter_mut().enumerate() {
            let kept = kind == Kind::Dense || rng.usize(0..n) < 3;
            if i != j && kept && !(kind == Kind::Absorbing && i == 0) {
                *rate = between(rng, low, high);
            }
        }
    }
    rates
}

#[expect(clippy::neg_cmp_op_on_partial_ord, reason = "a NaN fails, too")]
fn case(kind: Kind, seed: u64) -> Result<(), String> {
    let mut rng = Rng::with_seed(seed ^ (kind as u64) << 32);
    // Chains of one size, each with a time of its own; the diagonal is given or left out.
    let first = rates(kind, &mut rng);
    let n = first.len();
    let all: Vec<Rates> = std::iter::once(first)
        .chain(std::iter::repeat_with(|| rates(kind, &mut rng)).filter(|rates| rates.len() == n).take(2))
        .collect();
    let mut times = Vec::new();
    let mut q = Vec::new();
    for rates in &all {
        let exit: Vec<f64> = rates.iter().map(|row| row.iter().sum()).collect();
        let alpha = exit.iter().copied().fold(0.0, f64::max);
        let jumps =
            if kind == Kind::Long { between(&mut rng, 100.0, 1e5) } else { between(&mut rng, 1e-3, 100.0) };
        times.push(if rng.u8(0..8) == 0 { 0.0 } else { jumps / if alpha > 0.0 { alpha } else { 1.0 } });
        let given = rng.bool();
        for (i, row) in rates.iter().enumerate() {
            q.extend(row.iter().enumerate().map(|(j, &rate)| if i == j && given { -exit[i] } else { rate }));
        }
    }
    let mut p = vec![0.0; q.len()];
    let bounds =
        transition_matrices(&cpu(), n, &q, &times, &mut p, &mut ()).map_err(|error| error.to_string())?;
    for (k, rates) in all.iter().enumerate() {
        let (exact, doubt) = Reference::<DoubleWord>::new(rates).matrix(times[k]);
        let jumps = times[k] * rates.iter().map(|row| row.iter().sum::<f64>()).fold(0.0, f64::max);
        for i in 0..n {
            let error = error(&p[(k * n + i) * n..][..n], &exact[i * n..][..n]);
            if !(error <= bounds[k] + doubt) {
                return Err(format!("row {i} at {} jumps: error {error:e}, bound {:e}", jumps, bounds[k]));
            }
        }
        // With 20 states, each of at most 2.5 squares a jump adds 32 roundings.
        if !(bounds[k] <= 9e-15 * (jumps + 8.0)) {
            return Err(format!("the bound {:e} of {jumps} jumps is loose", bounds[k]));
        }
    }
    Ok(())
}

#[test]
fn errors_of_transition_matrices_are_within_their_bounds() {
    run_all(KINDS, 20, case);
}

/// A birth–death chain of 64 states, whose rows are binomial distributions of independent units.
#[test]
fn units_that_fail_and_are_repaired_have_binomial_rows() {
    let n = 64;
    let mut q = vec![0.0; n * n];
    for i in 0..n {
        if i > 0 {
            q[i * n + i - 1] = 0.25 * i as f64;
        }
        if i + 1 < n {
            q[i * n + i + 1] = 0.5 * (n - 1 - i) as f64;
        }
    }
    let mut p = vec![0.0; q.len()];
    let bound = transition_matrices(&cpu(), n, &q, &[1.5], &mut p, &mut ()).expect("a chain")[0];

    assert!(bound < 1e-12, "{bound:e}");
    // From state 0, each of 63 units is up with probability (2/3)(1 − e^(−0.75 t)).
    let up = 2.0 / 3.0 * -(-0.75f64 * 1.5).exp_m1();
    let mut exact = (1.0 - up).powi(63);
    for (j, found) in p[..n].iter().enumerate() {
        assert!((found - exact).abs() < bound + 1e-14, "{j}: {found} instead of {exact}");
        exact *= (63 - j) as f64 / (j + 1) as f64 * up / (1.0 - up);
    }
}

/// All rates are equal, so that the distribution is uniform: at almost 2^50 jumps, where roundings
/// raise sums of rows above 3, and for an exit rate near the largest number.
#[test]
fn bounds_hold_at_the_limits_of_double_precision() {
    for (n, rate, time) in [
        (64, 0.846_056_334_664_216_9, 18_802_564_405_455.645),
        (31, 0.556_659_965_562_420_5, 62_731_514_698_600.01),
        (2, 1.6e308, 1e-306),
    ] {
        let mut p = vec![0.0; n * n];
        // A diagonal that does not balance its row.
        let found = transition_matrices(&cpu(), n, &vec![rate; n * n], &[time], &mut p, &mut ());
        expect_error(found, "the diagonal entry of state 0");

        let q: Vec<f64> = (0..n * n).map(|at| if at % (n + 1) == 0 { 0.0 } else { rate }).collect();
        let bound = transition_matrices(&cpu(), n, &q, &[time], &mut p, &mut ()).expect("a chain")[0];
        for row in p.chunks_exact(n) {
            let error: f64 = row.iter().map(|p| (p - 1.0 / n as f64).abs()).sum();
            assert!(error <= bound && (n > 2 || bound < 1e-12), "{error} of {bound}");
        }
    }
}

#[test]
fn matrices_that_are_no_generators_are_refused() {
    let good = [-1.0, 1.0, 0.5, -0.5];
    for (n, q, times, said) in [
        (2, &good[..3], &[1.0][..], "arrays of 3 and 3 numbers"),
        (0, &[], &[], "at least one state"),
        (2, &good, &[-1.0], "time 0 is -1"),
        (2, &good, &[f64::INFINITY], "time 0 is inf"),
        (2, &good, &[1e16], "expected at most 2^50"),
        (2, &[-1.0, 1.0, -0.5, 0.5], &[1.0], "a rate of state 1 is -0.5"),
        (2, &[-1.0, 1.0, f64::NAN, 0.0], &[1.0], "a rate of state 1 is NaN"),
        (2, &[-2.0, 1.0, 0.5, -0.5], &[1.0], "the diagonal entry of state 0 is -2, and the rates sum to 1"),
        (2, &[0.0, 1e308, 1.0, 0.0], &[1e10], "expected at most 2^50"),
        (3, &[0.0, 1e308, 1e308, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], &[1.0], "expected a finite sum"),
    ] {
        let mut p = vec![0.0; q.len()];
        expect_error(transition_matrices(&cpu(), n, q, times, &mut p, &mut ()), said);
    }
}

/// Returns generators of chains with `n` states, each with a time: some reach steady state, some
/// barely jump, and some absorb.
fn mixed_batch(n: usize, count: usize) -> (Vec<f64>, Vec<f64>) {
    let mut rng = Rng::with_seed(n as u64);
    let mut q = Vec::new();
    for k in 0..count {
        for state in 0..n * n {
            let absent = state / n == state % n || (k % 3 > 0 && rng.bool()) || (k % 5 == 4 && state < n);
            q.push(if absent { 0.0 } else { 2.0 * rng.f64() / n as f64 });
        }
    }
    let times = (0..count).map(|k| [0.0, 0.3, 1.0, 7.0, 50.0, 3e4][k % 6] * (0.5 + rng.f64())).collect();
    (q, times)
}

/// Computes the same chains on a device and on the host. Values have the same bits, but for
/// software adapters, whose multiply-add rounds twice.
fn devices_compute_the_values_of_the_host(machine: &Opened) {
    let lane = &machine.lanes[0];
    for n in [1, 3, 4, 5, 8, 11, 16, 20, 32, 33, 61, 64, 65, 162, 260] {
        let (q, times) = mixed_batch(n, [67, 7, 2][usize::from(n > 64) + usize::from(n > 65)]);
        let [mut expected, mut copied, mut values] = [(); 3].map(|()| vec![f64::NAN; q.len()]);
        let bounds = transition_matrices(&cpu(), n, &q, &times, &mut expected, &mut ()).expect("chains");
        let found = transition_matrices(machine, n, &q, &times, &mut copied, &mut ()).expect("chains");
        assert_eq!(found, bounds, "bounds of copies of chains with {n} states");
        let on_lane = lane.alloc_with("generators", &q).expect("memory");
        let p = lane.alloc("transition matrices", q.len()).expect("memory");
        let found = transition_matrices_on(lane, n, &on_lane, &times, &p);
        if !matches!(lane.device().backend, "cpu" | "cuda") {
            expect_error(found, "expected a CUDA device");
            values.clone_from(&copied);
        } else {
            assert_eq!(found.expect("chains"), bounds, "bounds of chains with {n} states");
            lane.download(&p, 0, &mut values).expect("a download");
        }
        assert_eq!(values, copied, "chains with {n} states");
        if lane.device().software {
            let rows = values.chunks(n).zip(expected.chunks(n)).zip(bounds.iter().flat_map(|b| vec![b; n]));
            rows.for_each(|((row, expected), bound)| within(row, expected, 2.0 * bound, n));
        } else {
            assert_eq!(values, expected, "chains with {n} states");
        }
    }
    if !matches!(lane.device().backend, "cpu" | "cuda") {
        return;
    }
    let wrong = lane.alloc_with("no generators", &[0.0, 1.0, 2.0, 0.0, 0.0, 1.0, -2.0, 0.0]).expect("memory");
    let p = lane.alloc("transition matrices", 8).expect("memory");
    let found = transition_matrices_on(lane, 2, &wrong, &[1.0, 1.0], &p);
    expect_error(found, "chain 1: a rate of state 1 is -2");
    let [q, p] = [(); 2].map(|()| lane.alloc("matrices", 1025 * 1025).expect("memory"));
    expect_error(transition_matrices_on(lane, 1025, &q, &[1.0], &p), "at most 1024 states");
}

instances! {
    [devices_compute_the_values_of_the_host]
    cpu("cpu", F64);
    #[cfg(feature = "wgpu")] wgpu("wgpu:0", F64);
    #[cfg(feature = "cuda")] cuda("cuda:0", F64);
}
