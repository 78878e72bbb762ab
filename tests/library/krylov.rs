//! Krylov method.
//!
//! Compared with Arb's ball arithmetic; includes problems that it does not solve.

use crate::curves::{known, pairs};
use crate::expanded::{KRYLOV, options};
use crate::support::{cpu, l1, limited, machine, model, problem, refusal, run};
use kolmo::kernel::Precision::{F32, F64, Q64};
use kolmo::transient::checkpoint::Checkpoint;
use kolmo::transient::{Initial, Method, solve, solve_resumable};
use kolmo::{Error, Invalid};

#[test]
fn bounds_hold_against_ball_arithmetic() {
    for known in known(1) {
        for epsilon in [1e-6, 1e-9] {
            let (got, solution) =
                run(&cpu(), &known.chain, &known.initial, &known.times, &options(KRYLOV, epsilon));
            for ((got, wanted), time) in got.iter().zip(&known.wanted).zip(&solution.times) {
                let (error, bound) = (l1(got, wanted), time.bound.total());
                // References are rounded to doubles.
                let allowed = bound + f64::EPSILON;
                assert!(error <= allowed, "{}, t = {}: {error:e} of {bound:e}", known.name, time.time);
            }
        }
    }
}

#[test]
fn checkpoints_and_other_precisions_are_rejected() {
    let ring = model("circulant:300,1");
    let (initial, times) = (Initial::State(0), [200.0, 1.0]);
    let problem = problem(&*ring, &initial, &times);
    let place = tempfile::tempdir().expect("a folder");
    let mut checkpoint = Checkpoint::create(place.path().join("kept")).expect("a file");
    let kept = solve_resumable(&cpu(), &problem, &options(KRYLOV, 1e-9), &mut (), &mut checkpoint);
    let refused = kept.expect_err("it is refused").to_string();
    assert!(refused.contains("checkpoints of the Krylov method are not supported"), "{refused}");
    for precision in [F32, Q64] {
        let Some(machine) = machine("cpu", precision) else { return };
        let refused = refusal(&machine, &problem, &options(KRYLOV, 1e-3));
        assert!(refused.contains("double precision"), "{refused}");
    }
}

#[test]
fn memory_for_few_vectors_is_not_enough() {
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
    let refused = solved(9, true).unwrap_err();
    assert!(
        matches!(&refused, Error::Invalid(Invalid::NotConverged, why) if why.contains("memory for")),
        "{refused}"
    );
}
