//! Fixed point: equal bits on all devices, and an error that follows from the result.

use crate::support::{
    above, answer, chain, cpu, cpu_in, dense, l1, model, open, problem, ragged, refusal, reward, run, within,
};
use kolmo::kernel::Precision::Q64;
use kolmo::lane::OpenOptions;
use kolmo::sparse::MatrixFormat;
use kolmo::transient::{Initial, Method, Options, Partitioning, Transitions};
use kolmo::{Machine, Status};

/// Opens a machine in fixed point; `limbs` emulates devices without 64-bit integers.
fn machine(spec: &str, limbs: bool) -> Option<Machine> {
    open(spec, OpenOptions::default().precision(Some(Q64)).limbs(limbs))
}

fn options(format: MatrixFormat) -> Options {
    Options::default().format(format).method(Method::Uniformization)
}

fn same_bits(spec: &str, limbs: bool) {
    use MatrixFormat::{Hyb, Packed, Pair, Pattern};
    let (one, Some(other)) = (cpu_in(Q64), machine(spec, limbs)) else { return };
    // Several lanes exchange values at different intervals. A single lane uses every format.
    let ways: &[_] = match spec.contains(',') {
        true => &[(Hyb, None), (Hyb, Some(3)), (Pattern, None)],
        false => &[(Hyb, None), (Packed, None), (Pair, None), (Pattern, None)],
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
    let refused = refusal(&machine, &problem.rewards(&rewards), &Options::default());
    assert!(refused.contains("'cost'") && refused.contains("`precision` f64"), "{refused}");

    for method in [Method::Subdivided { theta: 1.0 }, Method::Chebyshev { strict: false }] {
        let refused = refusal(&machine, &problem, &Options::default().method(method));
        assert!(refused.contains("`method` auto"), "{refused}");
    }
}

/// A chain of `shared/cases/chains`, with its references.
///
/// A reference is a time, a bound of its distance from π, and the file.
struct Case {
    name: String,
    chain: kolmo::transient::Chain,
    alpha: f64,
    references: Vec<(f64, f64, std::path::PathBuf)>,
}

/// Returns the chains of `shared/cases/chains`, in the current folder or above it.
fn cases() -> Option<Vec<Case>> {
    let folder = above("shared/cases/chains")?;
    let mut folders: Vec<_> =
        std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a folder").path()).collect();
    folders.sort();
    let case = |folder: &std::path::PathBuf| {
        let text = std::fs::read_to_string(folder.join("case.json")).expect("case.json");
        let case: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let number = |value: &serde_json::Value| value.as_f64().expect("a number");
        let model = ["model.tra", "model.tra.gz"].map(|name| folder.join(name));
        let model = model.iter().find(|path| path.exists()).expect("a model");
        let alpha = number(&case["alpha"]);
        let references = case["references"].as_array().expect("references").iter().map(|reference| {
            let t = number(&reference["t"]);
            // Arb's references are exact up to rounding to doubles. The others are as accurate as
            // two programs agree: the accuracy that their authors aimed at, which is coarser than
            // their rounding (README next to the chains).
            let arb = reference["source"].as_str().is_some_and(|source| source.starts_with("Arb"));
            let doubt = match () {
                () if arb => f64::EPSILON,
                () if alpha * t <= 1.1e3 => 8e-14 + 2e-14,
                () => 8e-14 + 1.2e-12,
            };
            (t, doubt, folder.join(reference["name"].as_str().expect("a file")))
        });
        Case {
            name: case["case"].as_str().expect("a name").to_owned(),
            chain: kolmo::io::read_chain(model, None, false).expect("a chain"),
            alpha,
            references: references.collect(),
        }
    };
    let all: Vec<Case> = folders.iter().map(case).collect();
    assert!(all.len() >= 8, "{} chains", all.len());
    Some(all)
}

/// Checks the printed error at every reference time with αt in the range `terms`.
///
/// Leaves out runs of more than 5·10⁷ rows, which would take minutes and check no other code.
fn errors_of_cases_are_true(terms: std::ops::Range<f64>, epsilons: &[f64]) {
    let (machine, Some(cases)) = (cpu_in(Q64), cases()) else { return };
    for Case { name, chain, alpha, references } in cases {
        let rows = chain.transitions.states() as f64;
        let asked = |t: f64| terms.contains(&(alpha * t)) && alpha * t * rows <= 5e7;
        for (t, doubt, file) in references.into_iter().filter(|(t, ..)| asked(*t)) {
            let exact = kolmo::io::npy::read_vector(&file).expect("a vector");
            // Early termination has a bound of its own, so the error is bounded and not equal.
            let (got, solution) =
                run(&machine, &*chain.transitions, &chain.initial, &[t], &Options::default());
            let (printed, wrong) = (solution.bound.total(), l1(&got[0], &exact));
            assert!(wrong <= printed + doubt, "{name} at {t}: {wrong:e}, printed {printed:e}");
            // With truncation, and almost without truncation: only the rounding error grows with
            // the number of steps.
            for &epsilon in epsilons {
                let options = options(MatrixFormat::Auto).epsilon(epsilon);
                let (got, solution) = run(&machine, &*chain.transitions, &chain.initial, &[t], &options);
                let (printed, wrong) = (solution.bound.total(), l1(&got[0], &exact));
                println!("{name} at {t}: printed {printed:e}, {wrong:e} from the reference");
                assert!((printed - wrong).abs() <= doubt, "{name} at {t}: {wrong:e}, printed {printed:e}");
                let above = got[0].iter().zip(&exact).map(|(p, exact)| (p - exact).max(0.0)).sum::<f64>();
                assert!(above <= doubt, "{name} at {t}: {above:e} above the exact probabilities");
                let rounding = exact.len() as f64 * solution.times[0].alpha_t * (-63f64).exp2();
                let most = rounding + (-50f64).exp2() + epsilon;
                assert!(printed <= most, "{name} at {t}: {printed:e}, at most {most:e}");
            }
        }
    }
}

#[test]
fn the_printed_error_of_real_chains_is_the_true_one() {
    errors_of_cases_are_true(0.0..2e3, &[1e-10, 1e-15]);
}

#[test]
#[ignore = "slow: as many as 10⁵ steps"]
fn the_printed_error_of_real_chains_is_the_true_one_at_late_times() {
    errors_of_cases_are_true(2e3..2e5, &[1e-15]);
}

/// All formats, with and without 64-bit integers, on one, two and three lanes.
#[test]
fn real_chains_have_the_same_bits_everywhere() {
    let (one, Some(cases)) = (cpu_in(Q64), cases()) else { return };
    let mut specs = vec!["cpu", "cpu,cpu", "cpu,cpu,cpu"];
    if cfg!(feature = "wgpu") {
        specs.extend(["wgpu:0", "limbs wgpu:0", "wgpu:0,wgpu:0", "limbs wgpu:0,wgpu:0,wgpu:0"]);
    }
    if cfg!(feature = "cuda") {
        specs.extend(["cuda:0", "cuda:0,cuda:0", "cuda:0,cuda:0,cuda:0"]);
    }
    let opened = |spec| match str::strip_prefix(spec, "limbs ") {
        Some(spec) => machine(spec, true),
        None => machine(spec, false),
    };
    let others: Vec<_> = specs.into_iter().filter_map(|spec| Some((spec, opened(spec)?))).collect();
    for Case { name, chain, alpha, .. } in cases {
        let times = [1.0 / alpha, 8.0 / alpha];
        let ask = |machine: &Machine, format| {
            let problem = problem(&*chain.transitions, &chain.initial, &times);
            answer(machine, &problem, &options(format))
        };
        let (wanted, _) = ask(&one, MatrixFormat::Hyb).expect("an answer");
        let fits = |&format: &MatrixFormat| match ask(&one, format) {
            Err(kolmo::Error::Invalid(kolmo::Invalid::Argument("matrix_format"), _)) => false,
            answer => answer.expect("an answer").0 == wanted || panic!("{name}, {format}"),
        };
        let fitting: Vec<_> = MatrixFormat::STORED.into_iter().filter(fits).collect();
        println!("{name}: {fitting:?}");
        for (spec, machine) in &others {
            let alone = !spec.contains(',');
            for &format in if alone { &fitting[..] } else { &[MatrixFormat::Auto] } {
                let (got, solution) = ask(machine, format).expect("an answer");
                assert!(got == wanted, "{name} on {spec}, {format}");
                let stored = solution.matrix.format;
                assert!(!alone || stored == format.name(), "{name}: {stored}");
            }
        }
    }
}
