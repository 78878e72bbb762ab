//! Early termination: quasi-stationary extrapolation at long times.
//!
//! Compared with Arb's ball arithmetic, with closed forms, and with other methods.

use crate::expanded::KRYLOV;
use crate::support::{Opened, answer, chain, cpu, cpu_in, l1, machine, problem, reward, run, transitions};
use kolmo::internals::Csr;
use kolmo::kernel::Precision::{F32, F64, Q64};
use kolmo::transient::{Initial, Method, Options, Partitioning, Solution, Status, Transitions};

/// A chain with known probabilities, from `known/curves.txt` by `known/curves.py`.
struct Known {
    name: &'static str,
    chain: Csr,
    initial: Initial,
    times: Vec<f64>,
    wanted: Vec<Vec<f64>>,
}

/// Above this number of states, chains are not solved by scaling and squaring.
const SQUARED: usize = 32;

/// Returns the chains with known probabilities, padded to `least` states by isolated states.
fn known(least: usize) -> Vec<Known> {
    let number = |s: &str| s.parse::<f64>().expect("a number");
    let mut all: Vec<Known> = Vec::new();
    for block in include_str!("known/curves.txt").split("chain ").skip(1) {
        let mut lines = block.lines();
        let (name, n) = lines.next().and_then(|line| line.split_once(' ')).expect("a name and a number");
        let n = least.max(n.parse().expect("a number of states"));
        let (mut rates, mut begin) = (Vec::new(), vec![0.0; n]);
        let (mut times, mut wanted) = (Vec::new(), Vec::new());
        for line in lines {
            let (what, rest) = line.split_once(' ').expect("what a line is");
            let numbers: Vec<f64> = rest.split(' ').map(number).collect();
            match what {
                "rate" => rates.push((numbers[0] as u32, numbers[1] as u32, numbers[2])),
                "begin" => begin[numbers[0] as usize] = numbers[1],
                _ => {
                    times.push(numbers[0]);
                    let mut all = numbers[1..].to_vec();
                    all.resize(n, 0.0);
                    wanted.push(all);
                }
            }
        }
        let initial = Initial::Distribution(begin);
        all.push(Known { name, chain: chain(n, &rates), initial, times, wanted });
    }
    all
}

/// Returns m pairs of states that exit slowly, and an initial distribution on 1 … m.
///
/// States i and i + m (1 ≤ i ≤ m) exchange at rates 1 and ½. Each exits at rate `leak` to one of
/// two absorbing states, 0 and 2m + 1.
pub(crate) fn pairs(m: u32, leak: f64) -> (Csr, Initial) {
    let mut list = Vec::new();
    for i in 1..=m {
        for (from, to, rate) in [(i, i + m, 1.0), (i + m, i, 0.5)] {
            list.push((from, to, rate));
            list.push((from, if from % 2 == 0 { 0 } else { 2 * m + 1 }, leak));
        }
    }
    (chain(2 * m as usize + 2, &list), Initial::Uniform((1..=m).collect()))
}

/// Returns the probabilities of [`pairs`] at time t, for even m.
pub(crate) fn of_pairs(m: usize, leak: f64, t: f64) -> Vec<f64> {
    let (stays, turned) = ((-leak * t).exp(), (-1.5 * t).exp());
    let mut p = vec![-(-leak * t).exp_m1() / 2.0; 2 * m + 2];
    p[1..=m].fill(stays * (1.0 + 2.0 * turned) / (3 * m) as f64);
    p[m + 1..=2 * m].fill(stays * 2.0 * (1.0 - turned) / (3 * m) as f64);
    p
}

/// Asserts that probabilities of [`pairs`] are within their bounds.
pub(crate) fn check_pairs(m: u32, leak: f64, got: &[Vec<f64>], solution: &Solution) {
    for (got, time) in got.iter().zip(&solution.times) {
        let error = l1(got, &of_pairs(m as usize, leak, time.time));
        // Rounding of the closed form: t · leak in the last place, and sums.
        let bound = time.bound.total() + 40.0 * f64::EPSILON;
        assert!(error <= bound, "{m} pairs, t = {}: error {error:e}, bound {bound:e}", time.time);
    }
}

/// Returns [`pairs`] with additional random transitions between the states 1 … m.
///
/// These keep a uniform distribution on 1 … m uniform, and no order has a small bandwidth.
fn tangled_pairs(m: u32, leak: f64) -> (Csr, Initial) {
    let (pairs, initial) = pairs(m, leak);
    let mut list = transitions(&pairs);
    // Two permutations that differ in every place.
    let mut rng = fastrand::Rng::with_seed(45);
    let mut first: Vec<u32> = (0..m).collect();
    rng.shuffle(&mut first);
    let mut second = first.clone();
    while first.iter().zip(&second).any(|(one, other)| one == other) {
        rng.shuffle(&mut second);
    }
    for ways in [first, second] {
        let ways = (1..=m).zip(ways).map(|(from, to)| (from, to + 1, 1.0));
        list.extend(ways.filter(|(from, to, _)| from != to));
    }
    (chain(pairs.states(), &list), initial)
}

fn long(epsilon: f64) -> Options {
    Options::default().epsilon(epsilon)
}

fn a_slow_exit_terminates_early_within_the_bound(machine: &Opened) {
    let leak = if machine.precision == F32 { 1e-3 } else { 1e-7 };
    let times = [20.0 / leak, 0.0, 0.1 / leak, 3.0, 1.0 / leak, 20.0 / leak];
    // Small chains have a kernel of their own, and several blocks exchange halos.
    for (m, parts) in [(4, 1), (600, 1), (600, 3)] {
        let (chain, initial) = pairs(m, leak);
        let split = Partitioning::default().parts(parts);
        let epsilon = if machine.precision == F32 { 1e-2 } else { 1e-6 };

        let (got, solution) = run(machine, &chain, &initial, &times, &long(epsilon).split(split));

        assert!(solution.terms < 1000, "{} multiplications", solution.terms);
        assert_eq!(solution.status, Status::Met, "{:?}", solution.bound);
        let stopped = solution.times[0].stopped.expect("it stopped");
        let mu = 1.0 - leak / (1.0 + leak);
        assert!((stopped.mu - mu).abs() <= 4.0 * machine.precision.unit_roundoff(), "{stopped:?}");
        check_pairs(m, leak, &got, &solution);
        assert_eq!(got[0], got[5], "a time asked twice");
    }
}

fn an_exit_slower_than_rounding_has_its_bound(machine: &Opened) {
    // Rounding of steps in double precision is about 10⁻¹⁵, which adds up to 10⁻⁵ until t. In
    // single precision the exit is invisible.
    let (leak, t) = (1e-11, 1e10);
    for (m, parts) in [(4, 1), (600, 3)] {
        let (chain, initial) = pairs(m, leak);
        let options = long(1e-8).split(Partitioning::default().parts(parts));

        let (got, solution) = run(machine, &chain, &initial, &[t], &options);

        let met = if machine.precision == F64 { Status::Met } else { Status::NotMet };
        assert_eq!(solution.status, met, "{:?}", solution.bound);
        assert!(solution.terms < 1000, "{} multiplications", solution.terms);
        check_pairs(m, leak, &got, &solution);
    }
}

fn rewards_follow_the_extrapolation(machine: &Opened) {
    let leak = if machine.precision == F32 { 1e-3 } else { 1e-7 };
    let (chain, initial) = pairs(4, leak);
    let alive = |i: usize| if (1..=8).contains(&i) { 3.0 } else { 0.0 };
    let rewards = [reward("alive", 10, alive), reward("gone", 10, |i| 3.0 - alive(i))];
    let times = [2.0 / leak, 5.0, 0.5 / leak];
    let problem = problem(&chain, &initial, &times).rewards(&rewards).vectors(false);

    let epsilon = if machine.precision == F32 { 1e-2 } else { 1e-6 };
    let (_, solution) = answer(machine, &problem, &long(epsilon)).expect("a sound problem");

    for (t, at) in times.iter().zip(&solution.times) {
        let lived = -(-leak * t).exp_m1() / leak;
        let wanted =
            [(3.0 * (-leak * t).exp(), 3.0 * lived), (-3.0 * (-leak * t).exp_m1(), 3.0 * (t - lived))];
        // A few hundred terms before early termination are added in turn, in the lane's
        // precision.
        let bound = 3.0 * (at.bound.total() + 1000.0 * machine.precision.unit_roundoff());
        for (reward, (instant, cumulative)) in at.rewards.iter().zip(wanted) {
            assert!((reward.instantaneous - instant).abs() <= bound, "{t}: {reward:?}, not {instant}");
            let error = (reward.cumulative - cumulative).abs();
            assert!(error <= t * bound, "{t}: {reward:?}, not {cumulative}");
        }
    }
}

on_usual_lanes! {
    [
        a_slow_exit_terminates_early_within_the_bound,
        an_exit_slower_than_rounding_has_its_bound,
        rewards_follow_the_extrapolation,
    ]
    three_cpu_lanes_f64("cpu,cpu,cpu", F64);
}

/// Asserts that the errors at the known times that `asked` selects are within their bounds.
///
/// Also asserts that ε is met for the chains that are listed below.
fn check_known(epsilon: f64, asked: impl Fn(f64) -> bool) {
    let machine = cpu();
    for Known { name, chain, initial, times, wanted } in known(1).into_iter().chain(known(SQUARED + 1)) {
        let (times, wanted): (Vec<f64>, Vec<Vec<f64>>) =
            times.into_iter().zip(wanted).filter(|(t, _)| asked(*t)).unzip();
        if times.is_empty() {
            continue;
        }
        let (got, solution) = run(&machine, &chain, &initial, &times, &long(epsilon));

        for (i, t) in times.iter().enumerate() {
            let (error, bound) = (l1(&got[i], &wanted[i]), solution.times[i].bound);
            // References are rounded once.
            assert!(error <= bound.total() + f64::EPSILON, "{name}, t = {t}: {error:e}, {bound:?}");
        }
        assert!(solution.terms < 60_000, "{name}: {} multiplications", solution.terms);
        // With 1e7 steps and more to the exit, the rounding of steps costs more than 1e-9. A
        // double-double vector replaces them.
        let provable = ["periodic", "begins_absorbed", "death", "settled", "leak", "leak_to_three", "parts"];
        let met = solution.status == Status::Met || !provable.contains(&name);
        assert!(met, "{name}, ε = {epsilon:e}: {:?}", solution.bound);
    }
}

/// A chain that leaves state 0 for 1 ⇄ 2 or 3 ⇄ 4.
///
/// The pairs exit from both states, each pair at its own rate, to 5 or 6.
#[test]
fn classes_with_different_decay_rates_are_extrapolated_separately() {
    let leaks = [1e-7, 1e-9];
    let pair = |(a, end, leak): (u32, u32, f64)| {
        let b = a + 1;
        [(0, a, 0.5), (a, b, 1.0), (a, end, leak), (b, a, 0.5), (b, end, leak)]
    };
    let list: Vec<_> = [(1, 5, leaks[0]), (3, 6, leaks[1])].into_iter().flat_map(pair).collect();
    let (chain, initial) = (chain(7, &list), Initial::State(0));
    let rewards = [reward("first", 7, |i| if i == 1 || i == 2 { 2.0 } else { 0.0 })];
    let times = [1e7, 1e8, 1e9, 1e10];
    for spec in ["cpu", "cpu,cpu,cpu"] {
        let machine = machine(spec, F64).expect("the CPU opens");
        let problem = problem(&chain, &initial, &times).rewards(&rewards);

        let (got, solution) = answer(&machine, &problem, &long(1e-9)).expect("a sound problem");

        assert_eq!(solution.status, Status::Met, "{:?}", solution.bound);
        assert!(solution.terms < 1000, "{} multiplications", solution.terms);
        for (i, &t) in times.iter().enumerate() {
            // State 0 is empty by then; each pair got one half.
            let held = leaks.map(|leak| 0.5 * (-leak * t).exp() / (1.0 - leak));
            let ends = leaks.map(|leak| 0.5 * -(-leak * t).exp_m1());
            let wanted = [
                0.0,
                held[0] / 3.0,
                held[0] * 2.0 / 3.0,
                held[1] / 3.0,
                held[1] * 2.0 / 3.0,
                // Less the exit that has not happened while state 0 still had probability.
                ends[0] - leaks[0] * held[0],
                ends[1] - leaks[1] * held[1],
            ];
            let bound = solution.times[i].bound.total() + 40.0 * f64::EPSILON;
            let error = l1(&got[i], &wanted);
            assert!(error <= bound, "{spec}, t = {t:e}: error {error:e}, bound {bound:e}");
            let reward = &solution.times[i].rewards[0];
            let lived = (-(-leaks[0] * t).exp_m1() / leaks[0] - 1.0) / (1.0 - leaks[0]);
            assert!((reward.instantaneous - 2.0 * held[0]).abs() <= 2.0 * bound, "{reward:?}");
            assert!((reward.cumulative - lived).abs() <= 2.0 * t * bound, "{reward:?}, not {lived}");
        }
    }
}

/// Beyond this time, windows have ten million terms.
const LONG: f64 = 1e11;

#[test]
fn every_bound_holds_against_arb() {
    check_known(1e-6, |t| t < LONG);
    check_known(1e-9, |t| t < LONG);
}

#[test]
#[ignore = "slow: windows of ten million terms"]
fn very_long_times_have_their_bounds() {
    check_known(1e-6, |t| t >= LONG);
}

#[test]
fn the_limit_of_a_slow_exit_is_in_its_absorbing_states() {
    // Too many states with too large a bandwidth to be eliminated before early termination.
    let (chain, initial) = tangled_pairs(1000, 1e-7);

    let (got, solution) = run(&cpu(), &chain, &initial, &[f64::INFINITY], &long(1e-6));

    assert!(solution.terms < 1000 && solution.eliminated == 0, "{} multiplications", solution.terms);
    assert_eq!(solution.status, Status::Met, "{:?}", solution.bound);
    assert!(l1(&got[0], &of_pairs(1000, 1e-7, f64::INFINITY)) <= solution.bound.total());
}

#[test]
fn limits_have_equal_bits_in_every_precision() {
    // Two closed classes that share the initial distribution.
    let (fork, begin) = tangled_pairs(1000, 1e-2);
    let [double, single, fixed] = [F64, F32, Q64].map(|precision| {
        let (got, solution) = run(&cpu_in(precision), &fork, &begin, &[f64::INFINITY], &long(1e-9));
        let found = (solution.status, solution.eliminated);
        assert_eq!(found, (Status::Met, 0), "{precision}: {:?}", solution.bound);
        got
    });
    assert!(double == single && double == fixed);
}

#[test]
fn a_flow_below_the_last_place_counts_in_the_bound() {
    let hidden =
        known(SQUARED + 1).into_iter().find(|known| known.name == "hidden_flow").expect("it is there");

    // Iterates do not show the flow, which moves 5·10⁻⁸ of one half in 10¹⁰. Double-double
    // residuals do.
    for (epsilon, status) in [(1e-6, Status::Met), (1e-8, Status::NotMet)] {
        let (got, solution) = run(&cpu(), &hidden.chain, &hidden.initial, &[1e10], &long(epsilon));

        assert_eq!(solution.status, status, "{:?}", solution.bound);
        let moved = 0.5 * -(-5e-8f64).exp_m1();
        let [first, second] = [0.5 - moved, 0.5 + moved].map(|half| 0.5 * half);
        let pairs = got[0].iter().zip([first, first, second, second]);
        let error: f64 = pairs.map(|(p, wanted)| (p - wanted).abs()).sum();
        // The half that the flow leaves equilibrates within 10⁻¹⁷.
        assert!(error <= solution.bound.total() + 4.0 * f64::EPSILON, "{error:e}, {:?}", solution.bound);
        assert!(error > 1e-8, "it is {error:e} that no iterate tells of");
    }
}

/// Returns the probabilities of a leaking pair after its fast phase, and the time spent in 0.
///
/// The chain is 0 ⇄ 1 at rates b and c, with an exit from 0 to 2 at rate `leak`, started in 0.
/// Nothing cancels except in the probability of 2.
fn leaking_pair([b, c, leak]: [f64; 3], t: f64) -> ([f64; 3], f64) {
    let (a, fastest) = (b + leak, b + leak + c + ((b + leak - c).powi(2) + 4.0 * b * c).sqrt());
    let slow = -2.0 * leak * c / fastest;
    let share = 1.0 / (1.0 + (a + slow).powi(2) / (b * c));
    let held = [share * (slow * t).exp(), share * (slow * t).exp() * (a + slow) / c];
    let spent = share * (slow * t).exp_m1() / slow + (1.0 - share) * 2.0 / fastest;
    ([held[0], held[1], 1.0 - held[0] - held[1]], spent)
}

#[test]
fn a_pair_with_a_slow_exit_has_its_bound_at_any_time() {
    let reward = [reward("up", 3, |i| if i == 0 { 1.0 } else { 0.0 })];
    // Equal rates make P periodic. At the longest time, the weights have rounding errors above ε.
    for (rates, t) in [
        ([1.0, 1.0, 1e-13], 1e7),
        ([1.0, 1.0, 1e-13], 1e9),
        ([1.0, 1.0, 1e-13], 1e12),
        ([3.0, 3.0, 1e-10], 1e12),
        ([1.0, 2.0, 1e-13], 4e12),
        ([1.0, 2.0, 1e-9], 3e9),
    ] {
        let [b, c, leak] = rates;
        let chain = chain(3, &[(0, 1, b), (1, 0, c), (0, 2, leak)]);
        let (wanted, spent) = leaking_pair(rates, t);
        for method in [Method::Auto, KRYLOV] {
            let (initial, times) = (Initial::State(0), [t]);
            let problem = problem(&chain, &initial, &times).rewards(&reward);
            let options = long(1e-9).method(method);
            let (got, solution) = answer(&cpu(), &problem, &options).expect("a sound problem");

            let (error, bound) = (l1(&got[0], &wanted), solution.bound.total());
            let what = format!("{rates:?}, t = {t:e}, {method:?}: error {error:e}, {:?}", solution.bound);
            assert_eq!(solution.status, Status::Met, "{what}");
            // The closed form rounds a few times.
            assert!(error <= bound + 16.0 * f64::EPSILON, "{what}");
            let up = &solution.times[0].rewards[0];
            let allowed = t * (bound + 32.0 * f64::EPSILON);
            assert!((up.cumulative - spent).abs() <= allowed, "{what}: {up:?}, not {spent}");
            assert!((up.instantaneous - wanted[0]).abs() <= bound + 16.0 * f64::EPSILON, "{what}: {up:?}");
        }
    }
}

#[test]
fn an_extrapolation_is_refined_although_other_rounding_exceeds_epsilon() {
    // Five states, one of which exits at 8·10^−15. With double-double vectors, the other rounding
    // errors remain.
    let list = [
        (0, 2, 0.7577056400940917),
        (0, 4, 8.052025043772749e-15),
        (1, 0, 2.699519369764516),
        (1, 3, 1.3981259619337543),
        (2, 3, 1.3382515117186613),
        (3, 1, 1.5769793671768177),
    ];
    let chain = chain(5, &list);
    let t = 723923951944.1655;
    for epsilon in [1e-9, 1e-12, 1e-15] {
        let (got, solution) = run(&cpu(), &chain, &Initial::State(1), &[t], &long(epsilon));
        // Computed by Arb.
        let leaked = 0.0022600981823168;
        let bound = solution.bound.total();
        assert!(bound <= f64::max(epsilon, 2e-9), "{:?} of {epsilon:e}", solution.bound);
        assert_eq!(solution.status == Status::Met, bound <= epsilon);
        assert!((got[0][4] - leaked).abs() <= bound + 1e-15, "{:?}", got[0]);
    }
}
