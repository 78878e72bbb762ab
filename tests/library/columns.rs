//! The action of e^{Qt} on several vectors, against dense exponentials and single vectors.

use crate::adversarial::double_word::DoubleWord;
use crate::adversarial::transient::Reference;
use crate::support::{Keep, Numbers, Opened, chain, cpu, cpu_in, expect_error, model, ragged, transitions};
use kolmo::kernel::Precision::{F64, Q64};
use kolmo::transient::{Action, Direction, Method, Options, Transitions, exponential_action};
use kolmo::{Error, Machine};

const BOTH: [Direction; 2] = [Direction::Forward, Direction::Backward];

/// Returns random numbers of both signs, with columns of very different sizes.
fn block(n: usize, k: usize) -> Vec<f64> {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15 + k as u64);
    (0..n * k).map(|at| numbers.signed() * 10f64.powi(7 * (at % k) as i32 - 14)).collect()
}

/// Returns column `c` of a block of `k` columns.
fn column(values: &[f64], k: usize, c: usize) -> Vec<f64> {
    values.iter().skip(c).step_by(k).copied().collect()
}

/// Returns the l1 norm or the maximum norm.
fn norm(direction: Direction, values: impl Iterator<Item = f64>) -> f64 {
    match direction {
        Direction::Forward => values.map(f64::abs).sum(),
        Direction::Backward => values.fold(0.0, |most, v| v.abs().max(most)),
    }
}

fn within(epsilon: f64) -> Options {
    Options::default().epsilon(epsilon)
}

fn act(
    machine: &Machine,
    chain: &dyn Transitions,
    direction: Direction,
    block: &[f64],
    times: &[f64],
) -> Vec<Action> {
    exponential_action(machine, chain, direction, block, times, &within(1e-10), &mut ()).expect("an action")
}

/// Compares blocks of some widths with exact exponentials; `most` bounds the relative bounds.
///
/// With the Krylov method, rows alone.
///
/// Returns the largest number of steps of one vector.
fn expect_exact(
    machine: &Opened,
    states: &dyn Transitions,
    times: &[f64],
    (widths, method): (&[usize], Method),
    most: f64,
) -> u64 {
    let n = states.states();
    let mut rates = vec![vec![0.0; n]; n];
    transitions(states).into_iter().for_each(|(i, j, rate)| rates[i as usize][j as usize] = rate);
    let reference = Reference::<DoubleWord>::new(&rates);
    let exact: Vec<_> = times.iter().map(|&t| reference.matrix(t).0).collect();
    let mut steps = 0;
    let directions = if method == Method::Auto { &BOTH[..] } else { &BOTH[..1] };
    let options = within(1e-10).method(method);
    for (&direction, &k) in directions.iter().flat_map(|d| widths.iter().map(move |k| (d, k))) {
        let block = block(n, k);
        let told = &mut |done, _| {
            steps = steps.max(done / k as u64);
            Ok(())
        };
        let found = exponential_action(machine, states, direction, &block, times, &options, told);
        for ((&t, exact), found) in times.iter().zip(&exact).zip(&found.expect("an action")) {
            for c in 0..k {
                let (given, got) = (column(&block, k, c), column(&found.values, k, c));
                let error = (0..n).map(|i| {
                    let term = |j: usize| {
                        let at = if direction == Direction::Forward { j * n + i } else { i * n + j };
                        exact[at] * DoubleWord::from(given[j])
                    };
                    ((0..n).map(term).sum::<DoubleWord>() - DoubleWord::from(got[i])).hi
                });
                let (error, size) = (norm(direction, error), norm(direction, given.iter().copied()));
                let bound = found.bounds[c];
                let what = format!("{n} states, {direction:?}, column {c} of {k}, t = {t}");
                assert!(error <= bound, "{what}: error {error:e}, bound {bound:e}");
                assert!(bound <= most * size, "{what}: bound {bound:e} of {size:e}");
            }
        }
    }
    steps
}

fn errors_are_within_their_bounds(machine: &Opened) {
    let stiff = chain(4, &[(0, 1, 20.0), (1, 0, 1.0), (1, 2, 0.3), (2, 1, 20.0), (2, 3, 1e-3)]);
    let chains: [&dyn Transitions; 4] = [&chain(3, &[]), &chain(2, &[(0, 1, 3.0)]), &stiff, &ragged(24)];
    let most = if machine.precision == F64 { 1.1e-10 } else { 0.2 };
    for states in chains {
        let widths = (&[1, 2, 3, 5, 8, 15][..], Method::Auto);
        expect_exact(machine, states, &[2.0, 0.0, 0.05, 31.0, 31.0], widths, most);
    }
}

/// Two queues with a rare transition between them converge too slowly to end early.
fn far_times_take_few_steps(machine: &Opened) {
    let rate = |i: u32| if i == 15 { 1e-7 } else { 1.0 };
    let line: Vec<_> = (1..32).flat_map(|i| [(i - 1, i, rate(i)), (i, i - 1, 1.1 * rate(i))]).collect();
    let (line, times) = (chain(32, &line), [20_000.0, 3.0, 15_000.0]);
    // Rounding alone takes 10⁻¹⁰ in these steps.
    let most = if machine.precision == F64 { 5e-10 } else { 0.9 };
    let widths = if machine.is_cpu() { &[1, 2, 4, 8][..] } else { &[1, 8] };
    let steps = expect_exact(machine, &line, &times, (widths, Method::Auto), most);
    // αt is 42,000.
    assert!(steps < 6_000, "{steps} steps");
    if machine.precision == F64 {
        let krylov = Method::Krylov { strict: true };
        let steps = expect_exact(machine, &line, &[500.0, 3.0, 300.0], (&[2], krylov), most);
        assert!(steps < 500, "{steps} products in Krylov spaces for αt = 1050");
    }
    // Norms grow on a cycle, so that uniformization goes on.
    let cycle: Vec<_> = (0..32).map(|i| (i, (i + 1) % 32, 1.0)).collect();
    let steps = expect_exact(machine, &chain(32, &cycle), &[5_000.0, 3.0], (&[2], Method::Auto), most);
    assert!(steps > 4_900 || machine.precision != F64, "{steps} steps");
}

fn columns_have_the_bits_of_single_vectors(machine: &Opened) {
    let wlan = model("wlan:3,2");
    for states in [&*wlan, &ragged(1500) as &dyn Transitions] {
        let (n, k) = (states.states(), 15);
        let block = block(n, k);
        for direction in BOTH {
            let all = act(machine, states, direction, &block, &[0.7, 1.9]);
            for c in [0, 3, 7, 8, 11, 12, 14] {
                let own = act(machine, states, direction, &column(&block, k, c), &[0.7, 1.9]);
                for (own, all) in own.iter().zip(&all) {
                    assert!(own.values == column(&all.values, k, c), "{direction:?}, column {c}");
                    assert_eq!(own.bounds[0], all.bounds[c], "{direction:?}, column {c}");
                }
            }
        }
    }
}

fn long_times_end_early(machine: &Opened) {
    let n = 40;
    let line: Vec<_> = (1..n).flat_map(|i| [(i - 1, i, 1.0), (i, i - 1, 1.5)]).collect();
    let queue = chain(n as usize, &line);
    let sum: f64 = (0..n as i32).map(|i| 1.5f64.powi(-i)).sum();
    let stationary: Vec<f64> = (0..n as i32).map(|i| 1.5f64.powi(-i) / sum).collect();
    let block = block(n as usize, 2);
    for direction in BOTH {
        let (mut steps, times) = (0, [1e7]);
        let told = &mut |done, _| {
            steps = done;
            Ok(())
        };
        let found = exponential_action(machine, &queue, direction, &block, &times, &within(1e-6), told)
            .expect("an action");
        assert!(steps < 100_000, "{direction:?}: {steps} steps");
        for c in 0..2 {
            let (given, got) = (column(&block, 2, c), column(&found[0].values, 2, c));
            let limit = |i: usize| match direction {
                Direction::Forward => given.iter().sum::<f64>() * stationary[i],
                Direction::Backward => given.iter().zip(&stationary).map(|(f, p)| f * p).sum(),
            };
            let size = norm(direction, given.iter().copied());
            let error = norm(direction, got.iter().enumerate().map(|(i, x)| x - limit(i)));
            let bound = found[0].bounds[c];
            assert!(error <= bound + 1e-14 * size, "{direction:?}: error {error:e}, bound {bound:e}");
            let allowed = if machine.precision == F64 { 1e-6 } else { f64::INFINITY };
            assert!(bound <= allowed * size, "{direction:?}: bound {bound:e} of {size:e}");
        }
    }
}

on_usual_lanes! {
    [errors_are_within_their_bounds, far_times_take_few_steps, columns_have_the_bits_of_single_vectors, long_times_end_early]
    two_cpu_lanes_f64("cpu,cpu", F64);
    #[cfg(feature = "wgpu")] #[ignore = "slow: one instance of many"] two_wgpu_lanes_f64("wgpu:0,wgpu:0", F64);
    #[cfg(feature = "cuda")] two_cuda_devices_f64("cuda:0,cuda:1", F64);
}

#[test]
fn other_input_is_rejected_with_a_reason() {
    let two = chain(2, &[(0, 1, 1.0)]);
    let options = within(1e-9);
    let act = |machine: &Machine, block: &[f64], time| {
        exponential_action(machine, &two, Direction::Forward, block, &[time], &options, &mut ())
    };
    for (block, time, why) in [
        (&[1.0, 0.0, 2.0][..], 1.0, "3 numbers for 2 states"),
        (&[], 1.0, "0 numbers"),
        (&[1.0, f64::NAN], 1.0, "element (1, 0) is NaN"),
        (&[1.0, 0.0], -1.0, "time -1"),
        (&[1.0, 0.0], f64::INFINITY, "time inf"),
        (&[1.0, 0.0], 1e14, "out of range"),
    ] {
        expect_error(act(&cpu(), block, time), why);
    }
    expect_error(act(&cpu_in(Q64), &[1.0, 0.0], 1.0), "q64");
    let line = model("birth-death:10000,0.5,0.5");
    let (block, mut keep) = (block(10_000, 1), Keep::after(3));
    let found = exponential_action(&cpu(), &*line, Direction::Forward, &block, &[1e5], &options, &mut keep);
    assert!(matches!(found, Err(Error::Interrupted)));
    let options = options.method(Method::Krylov { strict: true });
    let found = exponential_action(&cpu(), &two, Direction::Backward, &[1.0; 2], &[1.0], &options, &mut ());
    expect_error(found, "expected auto, or krylov");
}
