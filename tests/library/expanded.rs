//! Tests that the Chebyshev and the Krylov method share, and those of the Krylov method alone.

use crate::curves::{check_pairs, pairs};
use crate::support::{
    Opened, answer, cpu, expect_error, l1, limited, machine, model, problem, ragged, reward, run,
};
use kolmo::kernel::Precision::{F32, F64, Q64};
use kolmo::sparse::MatrixFormat;
use kolmo::transient::checkpoint::Checkpoint;
use kolmo::transient::{
    Expanded, Initial, Method, Options, Partitioning, Status, Transitions, solve, solve_resumable,
};
use kolmo::{Error, Invalid};

pub(crate) const CHEBYSHEV: Method = Method::Chebyshev { strict: false };
pub(crate) const KRYLOV: Method = Method::Krylov { strict: false };

pub(crate) fn options(method: Method, epsilon: f64) -> Options {
    Options::default().method(method).epsilon(epsilon)
}

/// Returns the methods that a lane supports, each with its element of `each`; Krylov needs f64.
fn methods<T>(machine: &Opened, each: [T; 2]) -> impl Iterator<Item = (Method, T)> {
    [CHEBYSHEV, KRYLOV].into_iter().zip(each).take(if machine.precision == F64 { 2 } else { 1 })
}

fn closed_forms_are_met_with_few_products(machine: &Opened) {
    let (leak, epsilon) = if machine.precision == F32 { (1e-2, 1e-2) } else { (1e-4, 1e-9) };
    let times = [2.0 / leak, 0.0, 3.0, 0.5 / leak, 2.0 / leak];
    for (method, ()) in methods(machine, [(); 2]) {
        // Several blocks exchange halos.
        for (m, parts) in [(4, 1), (600, 1), (600, 3)] {
            let (chain, initial) = pairs(m, leak);
            let options = options(method, epsilon).split(Partitioning::default().parts(parts));

            let (got, solution) = run(machine, &chain, &initial, &times, &options);

            let expansion = solution.expansion.expect("it was asked for");
            // The expansion needs about √(2αt ln 1/ε) products, where uniformization needs αt.
            // The Krylov method needs one or two bases, and uniformization for the short time.
            let (wanted, most) = match method {
                KRYLOV => (Expanded::Krylov, 120),
                _ => (Expanded::Chebyshev, (2.0 * solution.times[0].alpha_t * 30.0).sqrt() as u64),
            };
            assert_eq!((expansion.method, expansion.given_up), (wanted, 0), "{expansion:?}");
            assert!(method == KRYLOV || solution.terms == expansion.terms, "{expansion:?}");
            assert!(solution.terms < most, "{} multiplications, not {most}", solution.terms);
            assert_eq!(solution.status, Status::Met, "{:?}", solution.bound);
            check_pairs(m, leak, &got, &solution);
            assert_eq!(got[0], got[4], "a time asked twice");
        }
    }
}

fn rewards_agree_with_uniformization(machine: &Opened) {
    let queue = model("birth-death:300,1,1.2");
    let rewards = [reward("customers", 300, |i| i as f64), reward("full", 300, |i| (i / 299) as f64)];
    let (initial, unit) = (Initial::State(0), machine.precision.unit_roundoff());
    let epsilon = if machine.precision == F32 { 1e-2 } else { 1e-10 };
    for (method, times) in methods(machine, [[40.0, 300.0], [300.0, 1000.0]]) {
        let problem = problem(&*queue, &initial, &times).rewards(&rewards).vectors(false);
        let of = |method| answer(machine, &problem, &options(method, epsilon)).expect("a sound problem").1;

        let (one, other) = (of(method), of(Method::Uniformization));

        assert_eq!(one.expansion.map(|e| e.given_up), Some(0));
        assert!(one.terms < other.terms / 2, "{} and {}", one.terms, other.terms);
        for (one, other) in one.times.iter().zip(&other.times) {
            let bound = one.bound.total() + other.bound.total() + 2000.0 * unit;
            for ((one, other), most) in one.rewards.iter().zip(&other.rewards).zip([299.0, 1.0]) {
                let instant = one.instantaneous - other.instantaneous;
                let sum = one.cumulative - other.cumulative;
                assert!(instant.abs() <= most * bound, "{one:?}, {other:?}");
                assert!(sum.abs() <= times[1] * most * bound, "{one:?}, {other:?}");
            }
        }
    }
}

fn every_format_and_split_gives_the_same_bits(machine: &Opened) {
    use MatrixFormat::{Auto, Hyb, Packed, Pattern};
    let (regular, ragged) = (model("birth-death:1500,1,1.5"), ragged(1500));
    let chains: [(&dyn Transitions, &[_]); 2] = [(&*regular, &[Packed, Pattern]), (&ragged, &[Packed])];
    for (method, times) in methods(machine, [[2.0, 7.0], [22.0, 24.0]]) {
        for (chain, formats) in chains {
            let with = |format, parts| {
                let split = Partitioning::default().parts(parts);
                // With several lanes, the order of the states is chosen by measurement unless
                // it is given.
                let asked = options(method, 1e-4).format(format).split(split);
                let (got, solution) = run(machine, chain, &Initial::State(700), &times, &asked);
                assert!(method == CHEBYSHEV || solution.expansion.is_some_and(|e| e.given_up == 0));
                got
            };
            let one = with(Hyb, 1);
            for &format in formats {
                assert!(one == with(format, 1), "{format:?}");
            }
            assert!(one == with(Auto, 4), "in parts");
        }
    }
}

on_usual_lanes! {
    [
        closed_forms_are_met_with_few_products,
        rewards_agree_with_uniformization,
        every_format_and_split_gives_the_same_bits,
    ]
    three_cpu_lanes_f64("cpu,cpu,cpu", F64);
}

/// A ring has no fast method: a wave takes as many products as states to travel around it.
#[test]
fn a_cycle_falls_back_to_uniformization_or_is_rejected() {
    let (ring, initial) = (model("circulant:300,1"), Initial::State(0));
    for (method, strict, t, epsilon, why) in [
        (CHEBYSHEV, Method::Chebyshev { strict: true }, 1e3, 1e-9, "far from reversible"),
        (KRYLOV, Method::Krylov { strict: true }, 200.0, 1e-12, "Krylov method gave up"),
    ] {
        let of = |method| run(&cpu(), &*ring, &initial, &[t, 1.0], &options(method, epsilon));
        let ((got, solution), (swept, _)) = (of(method), of(Method::Uniformization));
        let expansion = solution.expansion.expect("it was asked for");
        assert!(expansion.given_up == 1 && solution.terms > expansion.terms, "{expansion:?}");
        assert!(solution.status == Status::Met && l1(&got[0], &swept[0]) < 2.0 * epsilon);
        if method == CHEBYSHEV {
            let soon = expansion.terms <= 64 && solution.terms > expansion.terms + 1000;
            assert!(soon && expansion.norm > 1e3, "{expansion:?}");
        }
        expect_error(answer(&cpu(), &problem(&*ring, &initial, &[t, 1.0]), &options(strict, epsilon)), why);
    }
}

#[test]
fn krylov_rejects_checkpoints_and_other_precisions() {
    let ring = model("circulant:300,1");
    let (initial, times) = (Initial::State(0), [200.0, 1.0]);
    let problem = problem(&*ring, &initial, &times);
    let place = tempfile::tempdir().expect("a folder");
    let mut checkpoint = Checkpoint::create(place.path().join("kept")).expect("a file");
    let kept = solve_resumable(&cpu(), &problem, &options(KRYLOV, 1e-9), &mut (), &mut checkpoint);
    expect_error(kept, "checkpoints of the Krylov method are not supported");
    for precision in [F32, Q64] {
        let Some(machine) = machine("cpu", precision) else { return };
        expect_error(answer(&machine, &problem, &options(KRYLOV, 1e-3)), "double precision");
    }
}

#[test]
fn memory_for_few_krylov_vectors_is_not_enough() {
    let (chain, initial) = pairs(20_000, 1e-3);
    let bytes = 40_002 * 8;
    let problem = problem(&chain, &initial, &[300.0]);
    let solved = |vectors: u64, strict: bool| {
        let machine = limited("cpu", F64, vectors * bytes);
        solve(&machine, &problem, &options(Method::Krylov { strict }, 1e-6), &mut ())
    };

    let enough = solved(80, true).expect("it is served");
    assert_eq!(enough.expansion.map(|e| e.given_up), Some(0));
    let swept = solved(9, false).expect("a sweep serves it");
    assert!(swept.expansion.is_some_and(|e| (e.given_up, e.terms) == (1, 0)), "{:?}", swept.expansion);
    let found = solved(9, true);
    let Err(Error::Invalid(Invalid::NotConverged, why)) = &found else { panic!("{found:?}") };
    assert!(why.contains("memory for"), "{why}");
}
