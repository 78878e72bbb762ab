//! Krylov method.
//!
//! Compared with closed forms, Arb's ball arithmetic and uniformization; includes chains on which
//! it gives up.

use crate::curves::pairs;
use crate::expanded::{KRYLOV, options};
use crate::support::{chain, cpu, l1, limited, machine, model, problem, refusal, run};
use kolmo::kernel::Precision::{F32, F64, Q64};
use kolmo::transient::checkpoint::Checkpoint;
use kolmo::transient::{Initial, Method, Status, solve, solve_resumable};
use kolmo::{Error, Invalid};

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
fn periodic_chains_and_several_decay_rates_are_solved_over_long_times() {
    // Steps alternate between even and odd states: iterates do not converge, probabilities do.
    let ring: Vec<(u32, u32, f64)> =
        (0..10).flat_map(|i| [(i, (i + 1) % 10, 1.0), (i, (i + 9) % 10, 1.0)]).collect();
    let (got, solution) =
        run(&cpu(), &chain(10, &ring), &Initial::State(0), &[5e7], &options(Method::Auto, 1e-6));
    assert!(solution.status == Status::Met && solution.terms < 20_000, "{} products", solution.terms);
    assert!(l1(&got[0], &[0.1; 10]) <= solution.bound.total());

    // Three transient classes with exact decay rates: each decays as its own exponential.
    let leaks = [1e-3, 1e-5, 1e-7];
    let mut list = Vec::new();
    for (part, &leak) in (0..3u32).zip(&leaks) {
        let state = 1 + 2 * part;
        list.extend([
            (state, state + 1, 1.0),
            (state + 1, state, 1.0),
            (state, 0, leak),
            (state + 1, 0, leak),
        ]);
    }
    let initial = Initial::Uniform((1..7).collect());
    for t in [1e4, 1e6, 2e7] {
        let (got, solution) = run(&cpu(), &chain(7, &list), &initial, &[t], &options(Method::Auto, 1e-6));
        let mut wanted = vec![1.0];
        wanted.extend(leaks.iter().flat_map(|leak| [(-leak * t).exp() / 6.0; 2]));
        wanted[0] = -leaks.iter().map(|leak| (-leak * t).exp_m1() / 3.0).sum::<f64>();
        let (error, bound) = (l1(&got[0], &wanted), solution.bound.total());
        assert!(solution.terms < 60_000, "t = {t}: {} products", solution.terms);
        assert!(error <= bound + 8.0 * f64::EPSILON && bound <= 1e-6, "t = {t}: {error:e} of {bound:e}");
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
