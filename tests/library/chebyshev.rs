//! Chebyshev expansion: against closed forms and uniformization, and with growing norms.

use crate::expanded::{CHEBYSHEV, options};
use crate::support::{chain, cpu, l1, machine, model, problem, run};
use kolmo::kernel::Precision::F64;
use kolmo::transient::checkpoint::Checkpoint;
use kolmo::transient::{Initial, Method, Partitioning, Status, Transitions, solve, solve_resumable};

#[test]
fn rounding_with_growing_norms_is_within_the_bound() {
    // Norms of some thousands, which a bound from the last two vectors alone would miss.
    let n = 40;
    let list: Vec<(u32, u32, f64)> =
        (0..n).flat_map(|i| [(i, (i + 1) % n, 1.0), (i, (i + n - 1) % n, 0.6)]).collect();
    let walk = chain(n as usize, &list);
    let (got, solution) = run(&cpu(), &walk, &Initial::State(0), &[25.0], &options(CHEBYSHEV, 1e-9));
    let expansion = solution.expansion.expect("it was asked for");
    assert!(expansion.norm > 1e3 && expansion.given_up == 0, "{expansion:?}");
    // The weighted sum of the terms has norm 1. The last term has the largest norm and the smallest
    // weight.
    let mean = expansion.weighted_norm;
    assert!(1.0 - solution.times[0].bound.total() <= mean && mean < expansion.norm, "{expansion:?}");

    // The eigenvalues of a circulant matrix with rates r at offsets o are λ_k = Σ r (ω^{ko} − 1).
    let exact = |j: u32| {
        let term = |k: u32| {
            let angle = std::f64::consts::TAU * f64::from(k) / f64::from(n);
            let (decay, turn) = (1.6 * (angle.cos() - 1.0) * 25.0, (1.0 - 0.6) * angle.sin() * 25.0);
            decay.exp() * (turn - angle * f64::from(j)).cos()
        };
        (0..n).map(term).sum::<f64>() / f64::from(n)
    };
    let wanted: Vec<f64> = (0..n).map(exact).collect();
    let (error, bound) = (l1(&got[0], &wanted), solution.times[0].bound.total());
    assert!(error <= bound + 1e-14, "{error:e}, bound {bound:e}");
}

/// Returns a symmetric random walk that diffuses for long, and a drift around a ring.
///
/// Both have αt = 60,000, and an expansion takes about 1300 products.
fn far() -> [(Box<dyn Transitions>, f64); 2] {
    [(model("birth-death:1000,1,1"), 3e4), (model("circulant:2000,1"), 6e4)]
}

#[test]
fn auto_switches_to_chebyshev_if_uniformization_is_far_longer() {
    let [(walk, t), _] = far();
    let (initial, times) = (Initial::State(500), [t, 1.0, 0.9 * t]);
    let given = |method| options(method, 1e-4);

    let (got, solution) = run(&cpu(), &*walk, &initial, &times, &given(Method::Auto));
    let (swept, other) = run(&cpu(), &*walk, &initial, &times, &given(Method::Uniformization));

    let expansion = solution.expansion.expect("it takes over");
    assert!(expansion.given_up == 0 && solution.terms < 4000 && other.terms > 60_000, "{expansion:?}");
    assert!(solution.terms > expansion.terms, "a sweep comes first");
    assert_eq!(solution.status, Status::Met, "{:?}", solution.bound);
    for i in [0, 2] {
        let bounds = solution.times[i].bound.total() + other.times[i].bound.total();
        assert!(l1(&got[i], &swept[i]) <= bounds, "{bounds:e}");
    }
    assert!(got[1] == swept[1], "the sweep's own");
    // Lanes and blocks must not change a bit.
    let three = machine("cpu,cpu,cpu", F64).expect("the CPU opens");
    assert!(run(&three, &*walk, &initial, &times, &given(Method::Auto)).0 == got, "on three lanes");
    let split = Partitioning::default().parts(4);
    let parts = given(Method::Auto).split(split);
    assert!(run(&cpu(), &*walk, &initial, &times, &parts).0 == got, "in four parts");
    if let Some(adapter) = machine("wgpu:0", F64) {
        let (there, on_adapter) = run(&adapter, &*walk, &initial, &times, &given(Method::Auto));
        assert_eq!(on_adapter.expansion.map(|e| e.terms), Some(expansion.terms));
        assert!(l1(&there[0], &got[0]) <= 2.0 * solution.times[0].bound.total());
    }
}

#[test]
#[ignore = "slow: two sweeps of 60,000 products"]
fn auto_loses_little_if_chebyshev_gives_up() {
    let [_, (ring, t)] = far();
    let times = [t, 1.0];
    let of = |method| run(&cpu(), &*ring, &Initial::State(0), &times, &options(method, 1e-4));

    let (got, solution) = of(Method::Auto);
    let (swept, other) = of(Method::Uniformization);

    let expansion = solution.expansion.expect("it is tried");
    assert!(expansion.given_up == 1 && expansion.terms <= 64, "{expansion:?}");
    assert_eq!(solution.terms, other.terms + expansion.terms);
    assert!(got == swept, "the sweep went on where it was");
}

#[test]
#[ignore = "slow: two sweeps of 60,000 products"]
fn checkpoints_and_deep_halos_use_uniformization() {
    let [(walk, t), _] = far();
    let (initial, times) = (Initial::State(500), [t]);
    let problem = problem(&*walk, &initial, &times);
    let place = tempfile::tempdir().expect("a folder");
    let mut checkpoint = Checkpoint::create(place.path().join("kept")).expect("a file");

    let auto = options(Method::Auto, 1e-4);
    let kept = solve_resumable(&cpu(), &problem, &auto, &mut (), &mut checkpoint);
    let split = Partitioning::default().halo_depth(Some(2));
    let deep = solve(&cpu(), &problem, &auto.split(split), &mut ());

    for solution in [kept, deep] {
        let solution = solution.expect("it is solved");
        assert!(solution.expansion.is_none() && solution.terms > 60_000, "{} terms", solution.terms);
    }
}
