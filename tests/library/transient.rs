//! Uniformization against closed forms, a dense matrix exponential, and other lanes.

use crate::support::{
    Opened, agree, answer, chain, cpu, dense, expect_error, l1, limited, model, problem, ragged, reward, run,
    within,
};
use kolmo::internals::Csr;
use kolmo::kernel::Precision::F64;
use kolmo::sparse::MatrixFormat;
use kolmo::transient::{Chain, Initial, Options, Partitioning, Status, Transitions, solve};
use kolmo::{Error, Machine};

// Properties of a lane in one precision, run on every device below.

fn parts_with_halos_give_the_bits_of_one_part(machine: &Opened) {
    let wlan = model("wlan:3,2");
    let scattered = ragged(2000);
    for chain in [&*wlan, &scattered as &dyn Transitions] {
        let initial = Initial::State(1);
        let split = |parts| Partitioning::default().parts(parts);
        let options = |parts| Options::default().split(split(parts));
        let (one, _) = run(machine, chain, &initial, &[1.0, 2.5], &options(1));
        for parts in [2, 5] {
            let (many, solution) = run(machine, chain, &initial, &[1.0, 2.5], &options(parts));

            assert!(solution.matrix.parts > 1, "{} parts were made", solution.matrix.parts);
            // Different devices may round differently, and divide the rows by measurements.
            // Then only the bounds hold.
            if machine.lanes.iter().all(|lane| lane.device().backend == machine.lanes[0].device().backend) {
                assert!(one == many, "{parts} parts");
            } else {
                let error = one.iter().zip(&many).map(|(a, b)| l1(a, b)).fold(0.0, f64::max);
                assert!(error <= 2.0 * solution.bound.total(), "{parts} parts: {error:e}");
            }
        }
    }
}

fn larger_chains_agree_with_the_cpu_within_both_bounds(machine: &Opened) {
    let (wlan, times) = (model("wlan:6,4"), [0.3, 2.0, 2.1, 10.0]);
    let of = |machine: &Machine, epsilon| {
        let options = Options::default().epsilon(epsilon);
        run(machine, &*wlan, &Initial::State(0), &times, &options)
    };
    agree(&of(machine, 1e-9), &of(&cpu(), 1e-12), "wlan:6,4");
}

fn rewards_have_the_closed_form(machine: &Opened) {
    let (a, b) = (3.0, 2.0);
    let two = chain(2, &[(0, 1, a), (1, 0, b)]);
    let rewards = [reward("up", 2, |i| i as f64), reward("cost", 2, |i| 2.0 - 3.0 * i as f64)];
    let (times, initial) = ([0.0, 0.4, 2.0, 6.0], Initial::State(0));
    let problem = problem(&two, &initial, &times).rewards(&rewards).vectors(false);

    let (_, solution) = answer(machine, &problem, &Options::default()).expect("a sound problem");

    for (t, result) in times.iter().zip(&solution.times) {
        let decay = (-(a + b) * t).exp();
        let p = [(b + a * decay) / (a + b), a * (1.0 - decay) / (a + b)];
        // The integral of p_1 over (0, t).
        let spent = a / (a + b) * (t - (1.0 - decay) / (a + b));
        let bound = result.bound.total() + 1e-15;
        let wanted = [(p[1], spent), (2.0 * p[0] - p[1], 2.0 * (t - spent) - spent)];
        for (reward, (instant, cumulative)) in result.rewards.iter().zip(wanted) {
            // Here |r| ≤ 2, and a few dozen terms are summed in the lane's precision.
            let (unit, terms) = (machine.precision.unit_roundoff(), 100.0);
            let allowed = 2.0 * bound + 2.0 * terms * unit;
            let errors = (reward.instantaneous - instant, reward.cumulative - cumulative);
            let within = errors.0.abs() <= allowed && errors.1.abs() <= (1.0 + t) * allowed;
            assert!(within, "{} at {t}: {reward:?}", reward.name);
        }
    }
}

instances! {
    [
        parts_with_halos_give_the_bits_of_one_part,
        larger_chains_agree_with_the_cpu_within_both_bounds,
        rewards_have_the_closed_form,
    ]
    cpu_f64("cpu", F64);
    #[ignore = "slow: one instance of many"] cpu_f32("cpu", F32);
    #[cfg(feature = "wgpu")] wgpu_f64_checked("wgpu:0", F64, true);
    #[cfg(feature = "wgpu")] #[ignore = "slow: one instance of many"] wgpu_f64("wgpu:0", F64);
    #[cfg(feature = "wgpu")] #[ignore = "slow: one instance of many"] wgpu_f32("wgpu:0", F32);
    #[cfg(feature = "cuda")] cuda_f64("cuda:0", F64);
    #[cfg(feature = "cuda")] cuda_f32("cuda:0", F32);
}
// Tests that depend on several lanes.
instances! {
    [parts_with_halos_give_the_bits_of_one_part, larger_chains_agree_with_the_cpu_within_both_bounds]
    three_cpu_lanes_f64("cpu,cpu,cpu", F64);
    #[ignore = "slow: one instance of many"] two_cpu_lanes_f32("cpu,cpu", F32);
    #[cfg(feature = "wgpu")] #[ignore = "slow: one instance of many"] two_wgpu_lanes_f64("wgpu:0,wgpu:0", F64);
    #[cfg(feature = "wgpu")] wgpu_and_cpu_f64("wgpu:0,cpu", F64);
    #[cfg(feature = "cuda")] two_cuda_streams_f64("cuda:0,cuda:0", F64);
    #[cfg(feature = "cuda")] two_cuda_devices_f64("cuda:0,cuda:1", F64);
    #[cfg(feature = "cuda")] cuda_and_cpu_f64("cuda:0,cpu", F64);
}

#[test]
fn multiplications_stay_within_the_exact_poisson_quantile() {
    let two = chain(2, &[(0, 1, 1.0), (1, 0, 1.0)]);
    let forever = Options::default().epsilon(1e-6);

    // Steady-state detection would save more steps; a birth-death chain of 10 000 states does not
    // reach its steady state.
    let line = model("birth-death:10000,0.5,0.5");
    let (_, long) = run(&cpu(), &*line, &Initial::State(5000), &[2500.0], &forever);
    let (_, short) = run(&cpu(), &two, &Initial::State(0), &[1.0], &forever);

    assert!(long.terms <= 2760, "αt = 2500: {} multiplications", long.terms);
    assert!(short.terms <= 10, "αt = 1: {} multiplications", short.terms);
}

/// Returns the stationary distribution of a queue of n states with λ/μ = `ratio`.
fn geometric(n: i32, ratio: f64) -> Vec<f64> {
    let sum: f64 = (0..n).map(|i| ratio.powi(i)).sum();
    (0..n).map(|i| ratio.powi(i) / sum).collect()
}

#[test]
fn small_chains_have_their_known_probabilities() {
    let small = |n, transitions: &[_]| Box::new(chain(n, transitions)) as Box<dyn Transitions>;
    // Both exit rates equal α: P has no diagonal and period 2.
    let periodic = small(2, &[(0, 1, 1.0), (1, 0, 1.0)]);
    // 0 → 1 at rate 2 only. A self-loop of rate 50 must not matter.
    let death = small(2, &[(0, 1, 2.0), (1, 1, 50.0)]);
    // From 0 to 1 at rate 3, and back at rate 2: P(T_1 ≤ t) = 1 − e^{−3t}.
    let two = Chain::new("two", small(2, &[(0, 1, 3.0), (1, 0, 2.0)]));
    let gone = |decay: f64| vec![decay, 1.0 - decay];
    for (name, chain, start, t, wanted) in [
        ("absorption", death, 0, 3.0, gone((-6f64).exp())),
        ("first passage", two.absorbing(&[1]).transitions, 0, 0.7, gone((-2.1f64).exp())),
        ("a periodic pair that converges", periodic, 0, 1e5, vec![0.5; 2]),
        // The initial state has a steady-state probability of 2^-25. A certificate that depends on
        // its probability would take forever.
        ("the limit of a saturated queue", model("birth-death:26,2,1"), 0, f64::INFINITY, geometric(26, 2.0)),
    ] {
        let (got, solution) = run(&cpu(), &*chain, &Initial::State(start), &[t], &Options::default());

        assert_eq!(solution.status, Status::Met, "{name}: {:?}", solution.bound);
        // The closed form rounds a few times.
        within(&got[0], &wanted, solution.bound.total() + 4e-16, name);
        assert!(name != "absorption" || solution.alpha == 2.0, "{name}: {}", solution.alpha);
    }
}

#[test]
fn steady_states_end_long_runs_within_their_bounds() {
    // A ↔ B at rate 1, B ↔ C at rate 1e-6. At t = 2e5 consecutive iterates hardly differ, although
    // C has received most of a tenth.
    let slow = chain(3, &[(0, 1, 1.0), (1, 0, 1.0), (1, 2, 1e-6), (2, 1, 1e-6)]);
    let exact = dense(&slow, &[1.0, 0.0, 0.0], 2e5);
    assert!(exact[2] > 0.08, "the case is what it says: {exact:?}");
    // The reference squares a 3 by 3 matrix 24 times, doubling its error each time. The closed form
    // rounds a few times.
    let (oracle, rounding) = (2f64.powi(24) * 9.0 * f64::EPSILON, 4e-16);
    // Scaling and squaring would serve 32 states or fewer at the time 1e5. At 1e10, the rounding
    // error of the distance counts for every skipped step: more than 2³² of them.
    for (chain, t, most, wanted, doubt) in [
        (Box::new(slow) as Box<dyn Transitions>, 2e5, u64::MAX, exact, oracle),
        (model("birth-death:40,1,2"), 1e5, 10_000, geometric(40, 0.5), rounding),
        (model("birth-death:20,1,2"), 1e10, 1_000_000, geometric(20, 0.5), rounding),
    ] {
        let (got, solution) = run(&cpu(), &*chain, &Initial::State(0), &[t], &Options::default());
        assert!(solution.terms < most, "t = {t:e}: {} multiplications", solution.terms);
        assert!(t != 1e5 || solution.bound.steady_state > 0.0, "{:?}", solution.bound);
        within(&got[0], &wanted, solution.bound.total() + doubt, t);
    }
}

#[test]
fn many_times_of_one_run_equal_each_alone() {
    let times = |first: f64, step: f64, count: u32| -> Vec<f64> {
        (0..count).map(|i| first + step * f64::from(i)).collect()
    };
    // From αt = 256 on, a share of ε is reserved for steady-state detection, so windows there do
    // not open in the order of times.
    for (spec, start, times) in
        [("tandem:6", 0, times(0.0, 0.25, 40)), ("birth-death:2000,0.5,0.5", 1000, times(253.0, 0.4, 15))]
    {
        let (chain, start) = (model(spec), Initial::State(start));
        let of = |times: &[f64], epsilon| {
            run(&cpu(), &*chain, &start, times, &Options::default().epsilon(epsilon))
        };
        let (all, solution) = of(&times, Options::default().epsilon);
        for (i, &t) in times.iter().enumerate() {
            let (alone, one) = of(&[t], 1e-12);
            within(&all[i], &alone[0], solution.times[i].bound.total() + one.bound.total(), t);
        }
        let last = solution.times[times.len() - 1].window.1;
        assert!(solution.terms <= last, "{} terms; the last time alone needs {last}", solution.terms);
    }
}

#[test]
fn earlier_copies_on_a_lane_do_not_count_for_a_run() {
    let machine = cpu();
    let mut numbers = vec![1.0; 4 << 20];
    let buffer = machine.lanes[0].alloc_with("earlier work", &numbers).expect("room for 32 MiB");
    for _ in 0..20 {
        machine.lanes[0].download(&buffer, 0, &mut numbers).expect("a copy");
    }

    let (_, solution) = run(&machine, &*model("tandem:2"), &Initial::State(0), &[1.0], &Options::default());

    let s = solution.seconds;
    let parts = s.build + s.upload + s.solve + s.download;
    assert!(s.solve > 0.0 && parts <= s.total, "{s:?}");
}

#[test]
fn times_beyond_memory_take_another_run() {
    let wlan = model("wlan:4,3");
    let times = [5.0, 5.1, 5.2, 5.3, 5.4, 5.5];
    // A trial of formats would choose them by time, and they differ in memory.
    let options = Options::default().format(MatrixFormat::Hyb);
    let of = |machine| run(&machine, &*wlan, &Initial::State(0), &times, &options);
    let wanted = of(cpu());
    // Memory for the matrix, two iterates and two accumulators.
    let (free, vector) = (&wanted.1, 8 * wlan.states() as u64);
    let limit = free.matrix.bytes + 4 * vector + vector / 2 + (64 << 10);

    let got = of(limited("cpu", F64, limit));

    assert!(got.1.terms > free.terms, "{} terms in several sweeps of {}", got.1.terms, free.terms);
    agree(&got, &wanted, "in several sweeps");
}

#[test]
fn memory_stays_within_matrix_and_three_vectors() {
    let wlan = model("wlan:12,6");

    let (_, solution) = run(&cpu(), &*wlan, &Initial::State(0), &[1.0], &Options::default());

    let needed = solution.matrix.bytes + 3 * 8 * wlan.states() as u64;
    let bytes = solution.device_bytes;
    assert!(bytes as f64 <= 1.05 * needed as f64, "{bytes} of {needed} bytes");
}

#[test]
fn a_matrix_that_does_not_fit_is_an_error_with_the_numbers() {
    let (wlan, initial) = (model("wlan:4,3"), Initial::State(0));
    let (machine, problem) = (limited("cpu", F64, 100_000), problem(&*wlan, &initial, &[1.0]));

    let error = solve(&machine, &problem, &Options::default(), &mut ()).unwrap_err();

    assert!(matches!(error, Error::OutOfMemory { asked, .. } if asked > 0), "{error}");
    // 100,000 bytes.
    assert!(error.to_string().contains("97.7 KiB"), "{error}");
}

#[test]
fn problems_without_an_answer_are_refused_with_the_number() {
    let two = chain(2, &[(0, 1, 1.0)]);
    let state = Initial::State;
    for (times, initial, epsilon, why) in [
        (&[-1.0][..], state(0), 1e-6, "-1"),
        (&[f64::NAN], state(0), 1e-6, "NaN"),
        (&[], state(0), 1e-6, "no time"),
        (&[1.0], state(7), 1e-6, "7"),
        (&[1.0], Initial::Distribution(vec![0.5, 0.4]), 1e-6, "0.9"),
        (&[1.0], Initial::Distribution(vec![1.0]), 1e-6, "2 states"),
        (&[1.0], Initial::Distribution(vec![1.5, -0.5]), 1e-6, "-0.5"),
        (&[1.0], state(0), 0.0, "epsilon"),
        (&[1.0], state(0), 1.0, "epsilon"),
        (&[1.0], state(0), -1e-3, "epsilon"),
        (&[1.0], state(0), f64::NAN, "epsilon"),
        (&[1.0], state(0), 2.0, "epsilon"),
    ] {
        let options = Options::default().epsilon(epsilon);
        expect_error(answer(&cpu(), &problem(&two, &initial, times), &options), why);
    }
}

#[test]
fn a_chain_from_arrays_gives_its_probabilities_in_one_call() {
    // Unsorted columns, two rates at one position, and one on the diagonal.
    let (indptr, indices, rates) = ([0, 2, 5], [1, 0, 0, 1, 0], [0.5, 9.0, 1.25, 0.0, 0.75]);
    let chain = Chain::from_csr(2, &indptr, &indices, &rates).unwrap().starting(Initial::State(1));

    let solution = chain.transient_on(&cpu(), &[0.0, 0.3], &Options::default()).unwrap();

    assert_eq!(solution.probabilities[0], [0.0, 1.0]);
    let exact = 0.8 * (1.0 - (-2.5f64 * 0.3).exp());
    approx::assert_abs_diff_eq!(solution.probabilities[1][0], exact, epsilon = solution.bound.total());
}

#[test]
fn invalid_arrays_are_rejected_with_the_reason() {
    for (indptr, indices, rates, why) in [
        (&[0, 1][..], &[1][..], &[1.0][..], "expected 3 that ascend from 0 to 1"),
        (&[0, 2, 1], &[1], &[1.0], "ascend"),
        (&[0, 1, 2], &[1, 0], &[1.0], "1 values for 2 indices"),
        (&[0, 1, 2], &[1, 2], &[1.0, 1.0], "index 1 is 2, out of range: the matrix has 2 columns"),
        (&[0, 1, 2], &[1, 0], &[1.0, -1.0], "1 -> 0 has the rate -1"),
    ] {
        expect_error(Chain::from_csr(2, indptr, indices, rates), why);
    }
}

/// Returns the expected accumulated reward at time infinity.
fn endless(chain: &Csr, initial: &Initial, values: &[f64]) -> kolmo::Result<f64> {
    let rewards = [reward("r", values.len(), |i| values[i])];
    let problem = problem(chain, initial, &[f64::INFINITY]).rewards(&rewards).vectors(false);
    let solution = solve(&cpu(), &problem, &Options::default(), &mut ())?;
    Ok(solution.times[0].rewards[0].cumulative)
}

#[test]
fn rewards_that_cease_accumulate_to_a_finite_value() {
    let zero = Initial::State(0);
    // 0 ⇄ 1 at rate 1, and 1 → 2 at ½. State 0 is visited three times for one unit of time each,
    // and state 1 three times for two thirds.
    let absorbed = chain(3, &[(0, 1, 1.0), (1, 0, 1.0), (1, 2, 0.5)]);
    let near = |value: f64, wanted: f64| {
        assert!((value - wanted).abs() <= 1e-9 * wanted.abs(), "{value}, not {wanted}");
    };
    near(endless(&absorbed, &zero, &[1.0, 1.0, 0.0]).unwrap(), 5.0);
    near(endless(&absorbed, &zero, &[-2.0, 0.0, 0.0]).unwrap(), -6.0);
    assert_eq!(endless(&absorbed, &zero, &[0.0, 0.0, 2.0]).unwrap(), f64::INFINITY);
    assert_eq!(endless(&absorbed, &zero, &[5.0, 1.0, -2.0]).unwrap(), f64::NEG_INFINITY);
    assert_eq!(endless(&absorbed, &zero, &[0.0; 3]).unwrap(), 0.0);
    // A closed class of two states without reward, and one with reward that is never reached.
    let settles = chain(5, &[(0, 1, 2.0), (1, 2, 1.0), (2, 1, 3.0), (3, 4, 1.0)]);
    near(endless(&settles, &zero, &[3.0, 0.0, 0.0, 7.0, 7.0]).unwrap(), 1.5);
    // A reward of a state whose limit probability is below the rounding error.
    let rare = chain(3, &[(0, 1, 1.0), (1, 0, 1e-15), (1, 2, 1.0), (2, 1, 1e-15)]);
    assert_eq!(endless(&rare, &zero, &[1.0, 0.0, 0.0]).unwrap(), f64::INFINITY);
    let cancels = chain(2, &[(0, 1, 1.0), (1, 0, 1.0)]);
    expect_error(endless(&cancels, &zero, &[1.0, -1.0]), "both signs");
}

#[test]
fn invalid_rewards_and_initial_distributions_are_reported() {
    let pair = chain(3, &[(0, 1, 1.0), (1, 2, 1.0)]);
    for (value, said) in [(f64::NAN, "NaN"), (f64::INFINITY, "inf"), (f64::NEG_INFINITY, "-inf")] {
        let refused = endless(&pair, &Initial::State(0), &[1.0, value, 0.0]).unwrap_err().to_string();
        assert_eq!(refused, format!("rewards \"r\"[1] is {said}: expected a finite number"));
    }
    for (values, said) in [([0.0; 3], "0"), ([1e308; 3], "inf")] {
        let refused = endless(&pair, &Initial::Distribution(values.to_vec()), &[0.0; 3]).unwrap_err();
        let wanted = format!("the initial distribution sums to {said}: expected a positive, finite sum");
        assert_eq!(refused.to_string(), wanted);
    }
}

#[test]
fn narrow_chains_have_their_limits_by_elimination() {
    let machine = cpu();
    // Birth-death chains whose probability is concentrated near the first or the last state.
    for (n, ratio) in [(4001, 0.99), (10_001, 0.999), (4001, 1.01), (30_001, 1.001), (100_001, 0.99)] {
        let n = n as usize;
        let line: Vec<_> = (1..n as u32).flat_map(|i| [(i - 1, i, ratio), (i, i - 1, 1.0)]).collect();
        let (got, solution) =
            run(&machine, &chain(n, &line), &Initial::State(0), &[f64::INFINITY], &Options::default());

        // Powers relative to the larger end; each has an error of some units for each factor in its
        // exponent.
        let largest = if ratio > 1.0 { n - 1 } else { 0 };
        let shrinks = if ratio > 1.0 { 1.0 / ratio } else { ratio };
        let power = |i: usize| (i.abs_diff(largest) as f64 * shrinks.ln()).exp();
        let all: f64 = (0..n).map(power).sum();
        let wanted: Vec<f64> = (0..n).map(|i| power(i) / all).collect();
        let doubt = 1e-16 * 40.0 / (1.0 - shrinks) + 1e-14;
        assert_eq!(solution.status, Status::Met, "{n}, {ratio}: {:?}", solution.bound);
        within(&got[0], &wanted, solution.bound.total() + doubt, format_args!("{n}, {ratio}"));
        assert_eq!((solution.eliminated, solution.terms), (n, 0), "{n}, {ratio}");
    }
    // A grid with a slow direction, in random order: its small bandwidth is found.
    let (width, height) = (12u32, 400u32);
    let n = width * height;
    let mut numbers: Vec<u32> = (0..n).collect();
    fastrand::Rng::with_seed(7).shuffle(&mut numbers);
    let at = |x: u32, y: u32| numbers[(y * width + x) as usize];
    let mut list = Vec::new();
    for (x, y) in (0..height).flat_map(|y| (0..width).map(move |x| (x, y))) {
        if x + 1 < width {
            list.extend([(at(x, y), at(x + 1, y), 2.0), (at(x + 1, y), at(x, y), 1.0)]);
        }
        if y + 1 < height {
            list.extend([(at(x, y), at(x, y + 1), 0.9), (at(x, y + 1), at(x, y), 1.0)]);
        }
    }
    let begin = Initial::State(at(width - 1, height / 2) as usize);
    let (got, solution) =
        run(&machine, &chain(n as usize, &list), &begin, &[f64::INFINITY], &Options::default());
    let weight = |x: u32, y: u32| 2f64.powi(x as i32) * 0.9f64.powi(y as i32);
    let all: f64 = (0..height).flat_map(|y| (0..width).map(move |x| weight(x, y))).sum();
    let pairs = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
    let error: f64 = pairs.map(|(x, y)| (got[0][at(x, y) as usize] - weight(x, y) / all).abs()).sum();
    assert_eq!((solution.status, solution.eliminated), (Status::Met, n as usize), "{:?}", solution.bound);
    assert!(error <= solution.bound.total() + 1e-13, "error {error:e}, {:?}", solution.bound);
}
