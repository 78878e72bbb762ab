//! Fixed point: equal bits on all devices, and an error that follows from the result.

use crate::support::{
    answer, chain, cpu, cpu_in, dense, expect_error, l1, model, open, problem, ragged, reward, run, within,
};
use kolmo::Status;
use kolmo::kernel::Precision::Q64;
use kolmo::lane::OpenOptions;
use kolmo::sparse::MatrixFormat;
use kolmo::transient::{Initial, Method, Options, Partitioning, Transitions};

fn options(format: MatrixFormat) -> Options {
    Options::default().format(format).method(Method::Uniformization)
}

/// Compares lanes with one CPU lane; `limbs` emulates devices without 64-bit integers.
fn same_bits(spec: &str, limbs: bool) {
    use MatrixFormat::{Hyb, Packed, Pattern};
    let in_limbs = OpenOptions::default().precision(Some(Q64)).limbs(limbs);
    let (one, Some(other)) = (cpu_in(Q64), open(spec, in_limbs)) else { return };
    // Several lanes exchange values at different intervals. A single lane uses every format.
    let ways: &[_] = match spec.contains(',') {
        true => &[(Hyb, None), (Hyb, Some(3)), (Pattern, None)],
        false => &[(Hyb, None), (Packed, None), (Pattern, None)],
    };
    for (chain, ways) in [
        (model("wlan:4,3"), ways),
        (model("birth-death:250,0.8,0.7"), &ways[..1]),
        (Box::new(ragged(1024)), &ways[..1]),
    ] {
        let ask = |machine, format, halo_depth| {
            let split = Partitioning::default().halo_depth(halo_depth);
            let initial = Initial::Uniform(vec![0, 201]);
            run(machine, &*chain, &initial, &[0.3, 0.4, 2.0], &options(format).split(split))
        };
        let (wanted, _) = ask(&one, Hyb, None);
        for &(format, halo_depth) in ways {
            let (got, solution) = ask(&other, format, halo_depth);

            assert!(got == wanted, "{} states on {spec}, {format}, {halo_depth:?}", chain.states());
            assert_eq!(solution.matrix.format, format.name());
        }
    }
}

#[test]
fn cpu_lanes_have_the_bits_of_one() {
    same_bits("cpu", false);
    same_bits("cpu,cpu,cpu", false);
}

#[cfg(feature = "wgpu")]
#[test]
fn wgpu_lanes_have_the_bits_of_the_cpu() {
    same_bits("wgpu:0", false);
    same_bits("wgpu:0,wgpu:0", true);
}

#[cfg(feature = "wgpu")]
#[test]
#[ignore = "slow: other ways of the same"]
fn wgpu_lanes_alone_and_mixed_have_the_bits_of_the_cpu() {
    same_bits("wgpu:0", true);
    same_bits("wgpu:0,cpu", false);
}

#[cfg(feature = "cuda")]
#[test]
fn cuda_lanes_have_the_bits_of_the_cpu() {
    same_bits("cuda:0", false);
    same_bits("cuda:0,cuda:0,cuda:0", false);
}

/// The l1 error is the printed one, and no probability exceeds the exact value.
#[test]
fn the_printed_error_is_the_true_one() {
    let machine = cpu_in(Q64);
    let drain = chain(3, &[(0, 1, 0.7), (1, 0, 0.1), (1, 2, 1e-3)]);
    for (name, chain) in [
        ("drain", Box::new(drain) as Box<dyn Transitions>),
        ("birth-death", model("birth-death:60,0.8,0.7")),
        ("ragged", Box::new(ragged(90))),
    ] {
        let n = chain.states();
        let mut initial = vec![0.0; n];
        (initial[0], initial[2]) = (0.75, 0.25);
        let start = Initial::Distribution(initial.clone());
        for t in [0.01, 1.0, 20.0] {
            // Only about 1e-9 is truncated, which the printed error must contain.
            let (got, solution) = run(&machine, &*chain, &start, &[t], &options(MatrixFormat::Auto));
            let exact = dense(&*chain, &initial, t);
            let (printed, wrong) = (solution.bound.total(), l1(&got[0], &exact));
            // The reference is exact to some units in the last place of double precision.
            let doubt = 1e-13;
            assert!(got[0].iter().zip(&exact).all(|(p, exact)| *p <= exact + doubt), "{name} at {t}");
            assert!((printed - wrong).abs() <= doubt, "{name} at {t}: {wrong:e}, printed {printed:e}");
            assert!(printed <= 1e-9 && solution.status == Status::Met, "{name} at {t}: {printed:e}");
            let mass: f64 = got[0].iter().sum();
            assert!((1.0 - mass - (printed - 0.5 * f64::EPSILON)).abs() <= 1e-15, "{name} at {t}");

            // Without truncation, only the rounding error remains.
            let options = options(MatrixFormat::Auto).epsilon(1e-15);
            let (_, solution) = run(&machine, &*chain, &start, &[t], &options);
            let most = n as f64 * solution.times[0].alpha_t * (-63f64).exp2() + (-50f64).exp2() + 1e-15;
            let printed = solution.bound.total();
            assert!(printed <= most, "{name} at {t}: {printed:e}, at most {most:e}");
        }
    }
}

/// Early termination, absorbing states and rewards agree with double precision.
///
/// Early termination ends both runs.
#[test]
fn early_termination_and_rewards_agree_with_double_precision() {
    let (double, fixed) = (cpu(), cpu_in(Q64));
    for chain in [Box::new(ragged(1300)) as Box<dyn Transitions>, model("wlan:3,2")] {
        let n = chain.states();
        let rewards = [reward("fives", n, |i| (i % 5) as f64 * 3.5)];
        let (initial, times) = (Initial::State(0), [2.0, 3e5, f64::INFINITY]);
        let problem = problem(&*chain, &initial, &times).rewards(&rewards);
        let [(exact, a), (got, b)] = [&double, &fixed]
            .map(|machine| answer(machine, &problem, &Options::default()).expect("an answer"));
        for (i, (a, b)) in a.times.iter().zip(&b.times).enumerate() {
            within(&got[i], &exact[i], a.bound.total() + b.bound.total(), a.time);
            assert!(b.bound.total() <= 1e-9, "{:?} at {}", b.bound, b.time);
            let (a, b) = (a.rewards[0].instantaneous, b.rewards[0].instantaneous);
            assert!((a - b).abs() <= 14.0 * 2e-9, "a reward of {b}, {a}");
        }
    }
}

#[test]
fn problems_beyond_fixed_point_are_rejected() {
    let machine = cpu_in(Q64);
    let pair = chain(2, &[(0, 1, 1.0), (1, 0, 2.0)]);
    let rewards = [reward("cost", 2, |i| 1.0 - 2.0 * i as f64)];
    let initial = Initial::State(0);
    let problem = problem(&pair, &initial, &[1.0]);
    let found = answer(&machine, &problem.rewards(&rewards), &Options::default());
    let refused = found.unwrap_err().to_string();
    assert!(refused.contains("'cost'") && refused.contains("`precision` f64"), "{refused}");

    for method in [Method::Krylov { strict: false }, Method::Chebyshev { strict: false }] {
        expect_error(answer(&machine, &problem, &Options::default().method(method)), "`method` auto");
    }
}
