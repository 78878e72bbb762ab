//! Limits and expectations of large chains against closed forms.

use crate::support::{chain, cpu, l1, run};
use kolmo::Status;
use kolmo::internals::Csr;
use kolmo::transient::{Backward, Initial, Options, reachability, until_absorption};

/// Error of weights that are products of many rounded numbers.
const PRODUCTS: f64 = 1e-12;

/// Checks the limit of an irreducible chain against weights that are proportional to it, but for an
/// error of `rounding`; no bound exceeds `most`.
fn check_limit(name: &str, chain: &Csr, weights: &[f64], rounding: f64, most: f64) {
    let (initial, options) = (Initial::State(0), Options::default());
    let (found, solution) = run(&cpu(), chain, &initial, &[f64::INFINITY], &options);
    let sum: f64 = weights.iter().sum();
    let exact: Vec<f64> = weights.iter().map(|w| w / sum).collect();
    let (error, bound) = (l1(&found[0], &exact), solution.bound.total());
    assert!(error <= bound + rounding, "{name}: error {error:e}, bound {bound:e}");
    assert!(solution.status == Status::Met && bound <= most, "{name}: bound {bound:e}");
}

/// Transitions on a grid, given by the rates from (x, y) to the right, left, up and down.
fn grid(side: u32, rates: impl Fn(u32, u32) -> [f64; 4]) -> Csr {
    let mut list = Vec::new();
    for (y, x) in (0..side).flat_map(|y| (0..side).map(move |x| (y, x))) {
        let ([right, left, up, down], state) = (rates(x, y), y * side + x);
        if y > 0 {
            list.push((state, state - side, down));
        }
        if x > 0 {
            list.push((state, state - 1, left));
        }
        if x + 1 < side {
            list.push((state, state + 1, right));
        }
        if y + 1 < side {
            list.push((state, state + side, up));
        }
    }
    list.retain(|t| t.2 > 0.0);
    chain((side * side) as usize, &list)
}

#[test]
fn a_long_queue_near_saturation_has_a_geometric_limit() {
    let (n, load) = (100_001u32, 0.999f64);
    let list: Vec<_> = (0..n - 1).flat_map(|i| [(i, i + 1, load), (i + 1, i, 1.0)]).collect();
    let weights: Vec<f64> = (0..n).map(|i| load.powi(i as i32)).collect();
    check_limit("M/M/1/K", &chain(n as usize, &list), &weights, PRODUCTS, 1e-9);
}

/// Two independent queues; the second one is close to saturation.
#[test]
fn two_queues_have_a_product_form() {
    for (side, loads) in [(60, [0.5, 0.9]), (150, [0.8, 0.97])] {
        let chain = grid(side, |_, _| [loads[0], 1.0, loads[1], 1.0]);
        let of = |i: u32| loads[0].powi((i % side) as i32) * loads[1].powi((i / side) as i32);
        let weights: Vec<f64> = (0..side * side).map(of).collect();
        check_limit("two queues", &chain, &weights, PRODUCTS, 1e-9);
    }
}

/// Two classes of calls on the same lines; calls are lost if all lines are busy.
#[test]
fn a_loss_system_has_erlangs_limit() {
    let (side, load) = (150u32, [60.0, 40.0]);
    let busy = |x: u32, y: u32| x + y + 1 >= side;
    let chain = grid(side, |x, y| match x + y < side {
        true => {
            let [right, up] = load.map(|load| if busy(x, y) { 0.0 } else { load });
            [right, f64::from(x), up, f64::from(y)]
        }
        // Unreachable states.
        false => [0.0; 4],
    });
    let term = |load: f64, k: u32| (1..=k).fold(1.0, |term, k| term * load / f64::from(k));
    let of = |i: u32| match (i % side, i / side) {
        (x, y) if x + y < side => term(load[0], x) * term(load[1], y),
        _ => 0.0,
    };
    check_limit("Erlang loss", &chain, &(0..side * side).map(of).collect::<Vec<f64>>(), PRODUCTS, 1e-9);
}

/// A reversible grid of blocks with weak couplings, and masses over six orders of magnitude.
#[test]
fn nearly_decomposable_grids_keep_their_masses() {
    for (side, block, coupling) in [(60u32, 10, 1e-12), (100, 10, 1e-8), (60, 20, 1e-5)] {
        let noise = |k: u32| f64::from(k.wrapping_mul(2_654_435_761) >> 8) / f64::from(1 << 24);
        let mass = |x: u32, y: u32| 10f64.powf(6.0 * noise(1 + (x / block) * 77 + y / block) - 3.0);
        // Conductances of edges are symmetric, so masses are in detailed balance.
        let edge = |a: (u32, u32), b: (u32, u32)| {
            let inside = a.0 / block == b.0 / block && a.1 / block == b.1 / block;
            let own = 0.5 + noise(a.0 * 311 + a.1 * 17 + b.0 * 5 + b.1);
            own * if inside { mass(a.0, a.1) } else { coupling * mass(a.0, a.1).min(mass(b.0, b.1)) }
        };
        let chain = grid(side, |x, y| {
            let left = if x > 0 { edge((x - 1, y), (x, y)) } else { 0.0 };
            let down = if y > 0 { edge((x, y - 1), (x, y)) } else { 0.0 };
            [edge((x, y), (x + 1, y)), left, edge((x, y), (x, y + 1)), down].map(|rate| rate / mass(x, y))
        });
        let weights: Vec<f64> = (0..side * side).map(|i| mass(i % side, i / side)).collect();
        // Rates are rounded, so detailed balance holds up to a few units for each of the edges on
        // a path.
        let rounding = 8.0 * f64::EPSILON * f64::from(side);
        check_limit(&format!("coupling {coupling:e}"), &chain, &weights, rounding, 1e-8);
    }
}

#[test]
fn ruin_on_a_million_states_has_its_closed_form() {
    let n = 1_000_000u32;
    let list: Vec<_> = (1..n).flat_map(|i| [(i, i - 1, 1.0), (i, i + 1, 1.0)]).collect();
    let (line, machine, options) = (chain(n as usize + 1, &list), cpu(), Options::default());
    let start = n / 3;
    let initial = Initial::State(start as usize);

    let found = until_absorption(&machine, &line, &initial, &[0, n], &[], &options, &mut ()).unwrap();
    let exact = f64::from(start) * f64::from(n - start) / 2.0;
    let time = found.time;
    assert!((time.value - exact).abs() <= time.bound && time.bound <= 1e-8 * exact, "{time:?}, {exact}");

    let rich = reachability(&machine, &line, &initial, &[&[n]], 1e-8, &mut ()).unwrap().expect("a bound");
    let (p, exact) = (rich.probabilities[0], f64::from(start) / f64::from(n));
    assert!((p.value - exact).abs() <= p.bound && p.bound <= 1e-8, "{p:?}, {exact}");
}

/// The time until the second of two counters is full; the first one has no influence.
#[test]
fn times_from_each_state_of_a_grid_have_their_closed_form() {
    let (side, up, down) = (150u32, 1.0f64, 0.9f64);
    let chain = grid(side, |_, y| if y + 1 == side { [0.0; 4] } else { [0.7, 0.6, up, down] });
    let backward = Backward::new(&chain).unwrap();
    let n = side * side;
    let ends: Vec<bool> = (0..n).map(|i| i / side + 1 == side).collect();
    let found = backward.total(&ends, &vec![0.0; n as usize], &vec![1.0; n as usize], 1e-9, &mut ()).unwrap();
    // The mean time from y to y + 1 is t_y = (1 + down t_{y−1}) / up, and 1 / up from 0.
    let mut steps = vec![0.0; side as usize];
    for y in 0..side as usize {
        steps[y] = (1.0 + if y > 0 { down * steps[y - 1] } else { 0.0 }) / up;
    }
    let largest: f64 = steps[..side as usize - 1].iter().sum();
    for i in 0..n {
        let exact: f64 = steps[(i / side) as usize..side as usize - 1].iter().sum();
        let (value, bound) = (found.values[i as usize], found.bounds[i as usize]);
        let right = (value - exact).abs() <= bound + 1e-13 * largest;
        assert!(right && bound <= 1e-9 * largest, "{i}: {value} ± {bound:e}");
    }
}
