use fastrand::Rng;
use num_bigint::BigInt;

use super::ordered_sweep::OrderedBlocks;
use super::subchain::SetTransitions;
use super::*;
use crate::parallel::*;
use crate::sparse::CsrMatrix;
use crate::transient::backward::predecessors::may_reach;
use crate::transient::chain::csr::Csr;
use crate::transient::chain::csr::tests::chain;
use crate::transient::long_run::{FromStates, absorption, hitting_time};
use crate::transient::problem::Options;
use crate::transient::steady_state::gth::{GthInput, GthPlan};
use crate::util::quantity::{exponent, times_power_of_two};

/// Computes expected rewards from each state of `passing`; `None` if no bound is found.
fn expectations(chain: &Csr, passing: &[u32], columns: Vec<Vec<f64>>, epsilon: f64) -> Option<Vec<Values>> {
    let levels = Expectations::new(chain, passing, (0.0, 0.0), &mut ()).expect("no one stops it");
    levels?.of(columns, (epsilon, 0.0), &mut ()).expect("no one stops it")
}

const EPSILON: f64 = 1e-9;
/// Requested error at which actual errors are far above rounding.
const ROUGH_EPSILON: f64 = 1e-4;

/// Kinds of random chains.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// Rates of similar size.
    Even,
    /// Rates over 12 orders of magnitude.
    Stiff,
    /// Rates over 30 orders of magnitude.
    Wild,
    /// Blocks with couplings between 1e-14 and 1e-4.
    Decomposable,
    /// A cycle of one-way transitions of rate 1.
    Periodic,
    /// A grid with drift.
    Drift,
    /// Several closed classes and transient states.
    Classes,
}

const KINDS: [Kind; 7] =
    [Kind::Even, Kind::Stiff, Kind::Wild, Kind::Decomposable, Kind::Periodic, Kind::Drift, Kind::Classes];

fn list(kind: Kind, n: u32, rng: &mut Rng) -> Vec<(u32, u32, f64)> {
    let mut list = Vec::new();
    let decades = |rng: &mut Rng, decades: f64| 10f64.powf(decades * (rng.f64() - 0.5));
    let side = f64::from(n).sqrt() as u32;
    match kind {
        Kind::Periodic => list.extend((0..n).map(|i| (i, (i + 1) % n, 1.0))),
        Kind::Drift => {
            let (up, down) = (0.5 + rng.f64(), 0.5 + rng.f64());
            for i in 0..side * side {
                let (x, y) = (i % side, i / side);
                let ways = [(x > 0, i.wrapping_sub(1), down), (x + 1 < side, i + 1, up)];
                let more = [(y > 0, i.wrapping_sub(side), up), (y + 1 < side, i + side, down)];
                list.extend(ways.iter().chain(&more).filter(|w| w.0).map(|w| (i, w.1, w.2)));
            }
            list.extend((side * side..n).flat_map(|i| [(i, i - 1, 1.0), (i - 1, i, 1.0)]));
        }
        Kind::Decomposable => {
            let coupling = 10f64.powf(-4.0 - 10.0 * rng.f64());
            let block = 3 + rng.u32(0..8);
            for i in 0..n {
                let next = (i + 1) % n;
                let rate = if i / block == next / block { 0.5 + rng.f64() } else { coupling };
                list.extend([(i, next, rate), (next, i, rate * (0.5 + rng.f64()))]);
            }
        }
        Kind::Classes => {
            let third = n / 3;
            for (first, last) in [(0, third), (third, 2 * third)] {
                list.extend((first..last).map(|i| (i, if i + 1 < last { i + 1 } else { first }, 1.0)));
                for _ in 0..third {
                    list.push((rng.u32(first..last), rng.u32(first..last), decades(rng, 2.0)));
                }
            }
            for i in 2 * third..n {
                list.push((i, rng.u32(0..i), decades(rng, 4.0)));
                list.push((i, rng.u32(2 * third..n), decades(rng, 4.0)));
            }
        }
        _ => {
            let width = [1.0, 12.0, 30.0][kind as usize];
            for i in 0..n {
                list.push((i, (i + 1) % n, decades(rng, width)));
                list.push((i, rng.u32(0..n), decades(rng, width)));
            }
        }
    }
    list.retain(|t| t.0 != t.1);
    list.sort_by_key(|t| (t.0, t.1));
    list.dedup_by_key(|t| (t.0, t.1));
    list
}

fn random(kind: Kind, seed: u64) -> (Csr, Vec<f64>) {
    let mut rng = Rng::with_seed(seed);
    let n = match seed {
        1 => 60,
        _ if seed.is_multiple_of(4) => rng.u32(300..700),
        _ => rng.u32(6..24),
    };
    let chain = chain(n as usize, &list(kind, n, &mut rng));
    (chain, vec![1.0 / f64::from(n); n as usize])
}

/// Number of states up to which references are computed in exact arithmetic.
const EXACT: usize = 60;

/// Solves −Qv = b on `states`, or −vQ = b, for each b, and rounds the exact solutions.
///
/// The integers of fraction-free elimination are minors of the matrix. Source: E. Bareiss,
/// "Sylvester's identity and multistep integer-preserving Gaussian elimination", Mathematics of
/// Computation 22, 1968.
fn exact(direction: Equation, chain: &Csr, states: &[u32], columns: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let (m, place) = (states.len(), places(chain.states(), states));
    let mut least = i32::MAX;
    let whole = |value: f64, least: i32| match value {
        0.0 => BigInt::ZERO,
        _ => {
            BigInt::from(times_power_of_two(value, 52 - exponent(value)) as i64) << (exponent(value) - least)
        }
    };
    let row = |i: usize| {
        let mut row = Vec::new();
        chain.outgoing(states[i] as usize, &mut row);
        row
    };
    let numbers = (0..m).flat_map(row).map(|t| t.1).chain(columns.iter().flatten().copied());
    numbers.filter(|v| *v > 0.0).for_each(|value| least = least.min(exponent(value)));
    let mut rows = vec![vec![BigInt::ZERO; m + columns.len()]; m];
    for i in 0..m {
        for (to, rate) in row(i) {
            let (rate, j) = (whole(rate, least), place[to as usize] as usize);
            rows[i][i] += &rate;
            if j < m {
                let (i, j) = if direction == Equation::Forward { (j, i) } else { (i, j) };
                rows[i][j] -= rate;
            }
        }
        columns.iter().enumerate().for_each(|(k, b)| rows[i][m + k] = whole(b[i], least));
    }
    let mut before = BigInt::from(1);
    for k in 0..m {
        let own = rows[k].clone();
        for (_, row) in rows.iter_mut().enumerate().filter(|(i, _)| *i != k) {
            let factor = std::mem::take(&mut row[k]);
            for (j, v) in row.iter_mut().enumerate().filter(|(j, _)| *j != k) {
                let product = if own[j] == BigInt::ZERO { BigInt::ZERO } else { &factor * &own[j] };
                if *v != BigInt::ZERO || product != BigInt::ZERO {
                    *v = (&own[k] * &*v - product) / &before;
                }
            }
        }
        before = own[k].clone();
    }
    let nearest = |numerator: &BigInt| {
        let shift = 64 + before.bits() as i32 - numerator.bits() as i32;
        let quotient = match shift {
            0.. => (numerator << shift) / &before,
            _ => numerator / (&before << -shift),
        };
        times_power_of_two(i128::try_from(quotient).expect("65 bits") as f64, -shift)
    };
    (m..m + columns.len()).map(|k| rows.iter().map(|row| nearest(&row[k])).collect()).collect()
}

/// Returns the limit, with each element rounded a few times.
fn exact_limit(chain: &Csr, initial: &[f64]) -> Vec<f64> {
    let n = chain.states();
    let classes = ClosedClasses::new(chain, initial, initial);
    let class = classes.of_states(chain);
    let members = |own: Option<usize>| (0..n as u32).filter(move |&s| class[s as usize] == own);
    let members = |own| members.clone()(own).collect::<Vec<u32>>();
    let (passing, mut mass) = (members(None), initial.to_vec());
    let beginning = passing.iter().map(|&s| initial[s as usize]).collect();
    let times = exact(Equation::Forward, chain, &passing, &[beginning]).remove(0);
    let mut row = Vec::new();
    for (&state, time) in passing.iter().zip(times) {
        mass[state as usize] = 0.0;
        let row = chain.leaving(state as usize, &mut row);
        row.iter().for_each(|&(to, rate)| mass[to as usize] += time * rate);
    }
    let mut limit = vec![0.0; n];
    for own in 0..classes.representatives.len() {
        let mut states = members(Some(own));
        let share: f64 = states.iter().map(|&s| mass[s as usize]).sum();
        let one = states.pop().expect("a state");
        let row = chain.leaving(one as usize, &mut row);
        let rate = |s: &u32| row.iter().find(|t| t.0 == *s).map_or(0.0, |t| t.1);
        let mut x = exact(Equation::Forward, chain, &states, &[states.iter().map(rate).collect()]).remove(0);
        states.push(one);
        x.push(1.0);
        let sum: f64 = x.iter().sum();
        states.iter().zip(x).for_each(|(&s, x)| limit[s as usize] = share * x / sum);
    }
    limit
}

/// Fails if an error exceeds its bound; returns their ratio if the error is more than rounding.
fn checked(what: &str, error: f64, bound: f64, size: f64) -> Option<f64> {
    let rounding = 64.0 * UNIT * size;
    assert!(error <= bound + rounding, "{what}: error {error:e}, bound {bound:e}");
    (error > 1e-13 * size).then_some(bound / error)
}

/// Compares limits with exact ones, or with those of elimination for more states.
#[test]
fn limits_of_random_chains_are_within_their_bounds() {
    let mut ratios = Vec::new();
    for kind in KINDS {
        let case = |seed: usize| {
            let (chain, initial) = random(kind, seed as u64);
            let (n, what, mut ratios) = (chain.states(), format!("{kind:?}, seed {seed}"), Vec::new());
            let plan =
                GthPlan::new(&chain, &ClosedClasses::new(&chain, &initial, &initial)).expect("few states");
            let given = GthInput { transitions: &chain, scale: 1.0, enough: 1e-13 };
            let eliminated = plan.limit(given, &initial, &mut || Ok(())).unwrap();
            let l1 = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).sum::<f64>();
            let (exact, rounding) = match (n <= EXACT, eliminated) {
                (true, eliminated) => {
                    let exact = exact_limit(&chain, &initial);
                    if let Some((x, bound)) = eliminated {
                        checked(&format!("{what}, eliminated"), l1(&x, &exact), bound, 1.0);
                    }
                    (exact, 0.0)
                }
                (false, Some(eliminated)) => eliminated,
                (false, None) => return None,
            };
            let mut compare = |epsilon: f64| {
                let found = limit(&chain, &initial, epsilon, &mut ()).unwrap()?;
                ratios.extend(checked(&what, l1(&found.values, &exact), found.bound + rounding, 1.0));
                Some(found.bound <= epsilon)
            };
            compare(ROUGH_EPSILON);
            Some((compare(EPSILON).unwrap_or(false), ratios))
        };
        let found: Vec<Option<(bool, Vec<f64>)>> = (0..16).into_par_iter().map(case).collect();
        let found: Vec<(bool, Vec<f64>)> = found.into_iter().flatten().collect();
        let (all, known) = (found.len(), found.iter().filter(|case| case.0).count());
        // Double-double residuals are not enough for all rates over many orders of magnitude.
        let least = match kind {
            Kind::Wild => 0,
            Kind::Stiff => all / 2,
            Kind::Decomposable => all * 3 / 4,
            _ => all,
        };
        assert!(all >= 12 && known >= least, "{kind:?}: {known} of {all}");
        ratios.extend(found.into_iter().flat_map(|case| case.1));
    }
    expect_tight(ratios);
}

/// Fails if the median ratio of bound and error is above 100. Mere rounding is not counted.
fn expect_tight(mut ratios: Vec<f64>) {
    ratios.sort_by(f64::total_cmp);
    let median = ratios.get(ratios.len() / 2).copied();
    assert!(ratios.len() >= 10 && median <= Some(100.0), "median {median:?} of {}", ratios.len());
}

/// Compares probabilities and times from each state with exact ones.
#[test]
fn values_from_each_state_are_within_their_bounds() {
    let cases: Vec<(Kind, u64)> =
        KINDS.iter().flat_map(|&kind| (1..12).map(move |seed| (kind, seed))).collect();
    let case = |k: usize| {
        let (kind, seed) = cases[k];
        let (chain, _) = random(kind, seed);
        let (n, mut compared) = (chain.states(), 0);
        if n > EXACT {
            return compared;
        }
        let mut compare = |what: &str, found: &FromStates, states: &[u32], exact: &[f64]| {
            let size = exact.iter().copied().fold(0.0, f64::max);
            for (&s, exact) in states.iter().zip(exact) {
                let (value, bound) = (found.values[s as usize], found.bounds[s as usize]);
                let what = format!("{kind:?}, seed {seed}, {what} from {s}");
                checked(&what, (value - exact).abs(), bound, size);
                compared += 1;
            }
        };
        let options = Options::default();
        let sets = [("a", &[0u32][..]), ("b", &[1])];
        let outside: Vec<bool> = (0..n).map(|s| s > 1).collect();
        let targets: Vec<bool> = outside.iter().map(|outside| !outside).collect();
        let may = may_reach(&chain, &targets, &outside);
        let open: Vec<u32> = (2..n as u32).filter(|&s| may[s as usize]).collect();
        let into = |state: u32| -> Vec<f64> {
            let mut row = Vec::new();
            let rate = |&s: &u32| {
                chain.leaving(s as usize, &mut row).iter().find(|t| t.0 == state).map_or(0.0, |t| t.1)
            };
            open.iter().map(rate).collect()
        };
        let columns = [into(0), into(1)];
        let exact_columns = exact(Equation::Backward, &chain, &open, &columns);
        // A set that no other state reaches is an error.
        if let Ok(found) = absorption(&chain, &sets, &options, &mut ()) {
            found.iter().zip(&exact_columns).for_each(|(found, exact)| compare("p", found, &open, exact));
        }
        let levels = expectations(&chain, &open, columns.to_vec(), EPSILON);
        for ((values, bounds), exact) in levels.into_iter().flatten().zip(&exact_columns) {
            let mut all =
                FromStates { values: vec![0.0; n], bounds: vec![0.0; n], status: crate::Status::Met };
            for ((&s, value), bound) in open.iter().zip(values).zip(bounds) {
                (all.values[s as usize], all.bounds[s as usize]) = (value, bound);
            }
            compare("p by levels", &all, &open, exact);
        }
        if let Ok(found) = hitting_time(&chain, &[0], &options, &mut ()) {
            let sure: Vec<u32> = (1..n as u32).filter(|&s| found.values[s as usize].is_finite()).collect();
            let times = exact(Equation::Backward, &chain, &sure, &[vec![1.0; sure.len()]]);
            compare("time", &found, &sure, &times[0]);
        }
        compared
    };
    let compared: usize = (0..cases.len()).into_par_iter().map(case).collect::<Vec<usize>>().iter().sum();
    assert!(compared > 1000, "{compared} values");
}

/// Ruin probabilities on a line.
#[test]
fn closed_forms_of_a_line() {
    let n = 1000u32;
    let both = (1..n).flat_map(|i| [(i, i + 1, 1.0), (i, i - 1, 1.0)]).collect::<Vec<_>>();
    let line = chain(n as usize + 1, &both);
    let passing: Vec<u32> = (1..n).collect();
    // Both ends: the second solution begins as 1 minus the first.
    let ends = [n - 1, 1].map(|near| passing.iter().map(|&i| f64::from(u8::from(i == near))).collect());
    let found = expectations(&line, &passing, ends.to_vec(), EPSILON).expect("a bound");
    for (k, (values, bounds)) in found.into_iter().enumerate() {
        for ((&i, value), bound) in passing.iter().zip(values).zip(bounds) {
            let exact = f64::from([i, n - i][k]) / f64::from(n);
            assert!((value - exact).abs() <= bound && bound <= 1e-8, "{k}, {i}: {value} ± {bound:e}");
        }
    }
}

/// Expected rewards of random transient states solve their equations within their bounds.
#[test]
fn expectations_of_random_chains_are_within_their_bounds() {
    let mut ratios = Vec::new();
    for (kind, seed) in [Kind::Even, Kind::Stiff, Kind::Decomposable, Kind::Drift]
        .iter()
        .flat_map(|kind| (0..20).map(move |seed| (*kind, seed)))
    {
        let (chain, _) = random(kind, seed);
        let passing: Vec<u32> = (1..chain.states() as u32).collect();
        let f: Vec<f64> = passing.iter().map(|i| f64::from(i % 3)).collect();
        let envelope = Envelope::new(&chain, &passing);
        let envelope = envelope.unwrap().expect("few states");
        let exact = envelope.values(std::slice::from_ref(&f), &mut || Ok(())).unwrap().expect("values");
        let largest = exact.columns[0].iter().copied().fold(0.0, f64::max);
        let plain = matches!(kind, Kind::Even | Kind::Drift);
        for epsilon in [ROUGH_EPSILON, EPSILON] {
            let found = expectations(&chain, &passing, vec![f.clone()], epsilon);
            let Some((values, bounds)) = found.map(|mut found| found.remove(0)) else {
                assert!(!plain, "{kind:?} {seed}: no bound");
                continue;
            };
            for ((value, bound), exact) in values.iter().zip(&bounds).zip(&exact.columns[0]) {
                let all = bound + exact * 1e-12;
                assert!((value - exact).abs() <= all, "{kind:?} {seed}: {value} ± {bound:e}, {exact}");
                // Rounded rates of stiff chains can change values by more than ε.
                let met = *bound <= epsilon * largest || !plain;
                assert!(met, "{kind:?} {seed}: {bound:e} of {largest:e}");
                ratios
                    .extend(((value - exact).abs() > 1e-11 * largest).then(|| bound / (value - exact).abs()));
            }
        }
    }
    expect_tight(ratios);
}

/// Sweeps in blocks approach the solution from below, and do not depend on the threads.
#[test]
fn sweeps_in_blocks_approach_the_solution_with_any_number_of_threads() {
    let n = 70_000;
    let out = CsrMatrix::from_rows(n, n, |i, row| {
        row.extend((1..=31).map(|d| (i + d * d * d) % n).map(|j| (j as u32, 1.0 + (j % 7) as f64)));
        row.sort_unstable_by_key(|entry| entry.0);
    });
    let links = SetTransitions::new(out, vec![0.5; n], true);
    let f: Vec<f64> = (0..n).map(|i| (i % 5) as f64).collect();
    for direction in [Equation::Forward, Equation::Backward] {
        let residual = |v: &[f64]| {
            let mut image = vec![0.0; n];
            links.apply(direction, v, &mut image);
            f.iter().zip(image).map(|(f, image)| f - image).collect::<Vec<f64>>()
        };
        let sweeps = || {
            let mut v = vec![0.0; n];
            for ascending in [true, false, true] {
                let before = v.clone();
                links.sweep(direction, &f, &mut v, ascending);
                // From 0 elements only grow, and residuals stay nonnegative up to rounding.
                let falls = v.iter().zip(&before).position(|(new, old)| *new < old - 1e-14 * old);
                let negative = residual(&v).iter().position(|r| *r < -1e-12);
                assert_eq!((falls, negative), (None, None), "{direction:?}");
                assert!(v.iter().sum::<f64>() > 1.01 * before.iter().sum::<f64>(), "{direction:?}");
            }
            v
        };
        assert!(alone(sweeps) == sweeps(), "{direction:?}");
    }
}

/// Lines of 700 states; a line is read in part by the next one, and with a cycle of all states.
#[test]
fn sweeps_in_order_are_those_of_one_thread() {
    let n = 70_000;
    for shift in [0, 1] {
        let out = CsrMatrix::from_rows(n, n, |i, row| {
            let near = [(i % 700 > 0).then(|| i - 1), (i % 700 < 699).then_some(i + 1)];
            let some =
                [i.checked_sub(700), i.checked_sub(1399), Some(i + 699), (i % 5 == 0).then_some(i + 1400)];
            let all = near.into_iter().chain(some).flatten().chain([(i + shift) % n]);
            row.extend(all.filter(|&j| j < n && j != i).map(|j| (j as u32, 1.0 + (j % 3) as f64)));
            row.sort_unstable_by_key(|entry| entry.0);
            row.dedup_by_key(|entry| entry.0);
        });
        let links = SetTransitions::new(out, vec![0.5; n], true);
        let f: Vec<f64> = (0..n).map(|i| (i % 5) as f64).collect();
        let (mut v, mut wanted) = (vec![0.0; n], vec![0.0; n]);
        for ascending in [true, false, false, true] {
            let row = |i: usize| {
                let (to, rate) = links.out.row(i);
                to.iter().copied().zip(rate.iter().copied())
            };
            OrderedBlocks::new(&links.out, ascending).run(&mut v, |i, v| {
                (f[i] + row(i).map(|(j, rate)| rate * v.get(j)).sum::<f64>()) / links.exit[i]
            });
            for k in 0..n {
                let i = if ascending { k } else { n - 1 - k };
                let sum = row(i).map(|(j, rate)| rate * wanted[j as usize]).sum::<f64>();
                wanted[i] = (f[i] + sum) / links.exit[i];
            }
            assert!(v == wanted, "shift {shift}, ascending {ascending}");
        }
    }
}

/// Blocks of 100 states on a grid, between which rates are close to the rounding of those inside.
#[test]
fn a_grid_of_blocks_with_the_weakest_couplings_has_a_bound() {
    let side = 160;
    let rate = |a: u32, b: u32| if a / 10 == b / 10 { 1.0 } else { 1e-13 };
    let (mut pairs, at) = (Vec::new(), |x: u32, y: u32| y * side + x);
    for (a, b) in (0..side).flat_map(|a| (0..side - 1).map(move |b| (a, b))) {
        for (from, to) in [(at(b, a), at(b + 1, a)), (at(a, b), at(a, b + 1))] {
            pairs.extend([(from, to, rate(b, b + 1)), (to, from, rate(b, b + 1))]);
        }
    }
    pairs.sort_by_key(|t| (t.0, t.1));
    let n = (side * side) as usize;
    let mut initial = vec![0.0; n];
    initial[0] = 1.0;
    let found = limit(&chain(n, &pairs), &initial, EPSILON, &mut ()).unwrap().expect("a bound");
    let error: f64 = found.values.iter().map(|p| (p - 1.0 / n as f64).abs()).sum();
    assert!(error <= found.bound && found.bound <= EPSILON, "{error:e}, bound {:e}", found.bound);
}
