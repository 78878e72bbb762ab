use fastrand::Rng;

use super::*;
use crate::transient::chain::csr::Csr;
use crate::transient::chain::csr::tests::chain;
use crate::transient::steady_state::gth::{Given, Plan};

const EPSILON: f64 = 1e-9;

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
    let n = if seed.is_multiple_of(4) { rng.u32(300..700) } else { rng.u32(6..60) };
    let chain = chain(n as usize, &list(kind, n, &mut rng));
    (chain, vec![1.0 / f64::from(n); n as usize])
}

/// Compares limits with those of elimination, which is accurate in each entry.
#[test]
fn limits_of_random_chains_are_within_their_bounds() {
    for kind in KINDS {
        let (mut known, mut all) = (0, 0);
        for seed in 0..40 {
            let (chain, initial) = random(kind, seed);
            let n = chain.states();
            let plan = Plan::new(&chain, &Classes::new(&chain, &initial, &initial)).expect("few states");
            let exact = plan
                .limit(Given { transitions: &chain, scale: 1.0, enough: 1e-13 }, &initial, &mut || Ok(()))
                .unwrap();
            let Some((exact, rounding)) = exact else { continue };
            all += 1;
            let Some(found) = limit(&chain, &initial, EPSILON, &mut ()).unwrap() else { continue };
            let error: f64 = found.values.iter().zip(&exact).map(|(a, b)| (a - b).abs()).sum();
            let bound = found.bound + rounding + n as f64 * UNIT;
            assert!(error <= bound, "{kind:?}, seed {seed}: {error:e}, bound {bound:e}");
            known += usize::from(found.bound <= EPSILON);
        }
        // Double-double residuals are not enough for all rates over many orders of magnitude.
        let least = match kind {
            Kind::Wild => 0,
            Kind::Stiff => all / 2,
            Kind::Decomposable => all * 3 / 4,
            _ => all,
        };
        assert!(all > 20 && known >= least, "{kind:?}: {known} of {all}");
    }
}

/// Mean times and ruin probabilities on a line.
#[test]
fn closed_forms_of_a_line() {
    let n = 1000u32;
    let both = (1..n).flat_map(|i| [(i, i + 1, 1.0), (i, i - 1, 1.0)]).collect::<Vec<_>>();
    let line = chain(n as usize + 1, &both);
    let passing: Vec<u32> = (1..n).collect();
    let mut initial = vec![0.0; n as usize + 1];
    initial[n as usize / 4] = 1.0;
    let mut passage = Passage::new(&line, passing.clone(), &initial, &mut ()).unwrap().expect("rates");
    let ones = vec![1.0; n as usize + 1];
    let found = passage.earn(&[&ones], EPSILON, &mut ()).unwrap().expect("a bound");
    let start = f64::from(n / 4);
    let exact = start * (f64::from(n) - start) / 2.0;
    let (total, bound) = (found.totals[0], found.bounds[0]);
    assert!((total - exact).abs() <= bound && bound <= 1e-8 * exact, "{total} ± {bound:e}, {exact}");

    // Both ends: the second solution begins as 1 minus the first.
    let ends = [n - 1, 1].map(|near| passing.iter().map(|&i| f64::from(u8::from(i == near))).collect());
    let found = expectations(&line, &passing, (&ends, 0.0), EPSILON, &mut ()).unwrap().expect("a bound");
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
    for (kind, seed) in [Kind::Even, Kind::Stiff, Kind::Decomposable, Kind::Drift]
        .iter()
        .flat_map(|kind| (0..20).map(move |seed| (*kind, seed)))
    {
        let (chain, initial) = random(kind, seed);
        let passing: Vec<u32> = (1..chain.states() as u32).collect();
        let f: Vec<f64> = passing.iter().map(|i| f64::from(i % 3)).collect();
        let envelope = crate::transient::backward::envelope::Envelope::new(&chain, &passing);
        let envelope = envelope.unwrap().expect("few states");
        let exact = envelope.values(std::slice::from_ref(&f), &mut || Ok(())).unwrap().expect("values");
        let columns = std::slice::from_ref(&f);
        let found = expectations(&chain, &passing, (columns, 0.0), EPSILON, &mut ()).unwrap();
        let plain = matches!(kind, Kind::Even | Kind::Drift);
        let Some((values, bounds)) = found.map(|mut found| found.remove(0)) else {
            assert!(!plain, "{kind:?} {seed}: no bound");
            continue;
        };
        let largest = exact.columns[0].iter().copied().fold(0.0, f64::max);
        for ((value, bound), exact) in values.iter().zip(&bounds).zip(&exact.columns[0]) {
            let all = bound + exact * 1e-12;
            assert!((value - exact).abs() <= all, "{kind:?} {seed}: {value} ± {bound:e}, {exact}");
            // Relative errors of u in the rates of stiff chains can change values by more than ε.
            let met = *bound <= EPSILON * largest || !plain;
            assert!(met, "{kind:?} {seed}: {bound:e} of {largest:e}");
        }
        let mut passage = Passage::new(&chain, passing.clone(), &initial, &mut ()).unwrap().expect("rates");
        let mut rewards = vec![0.0; chain.states()];
        passing.iter().zip(&f).for_each(|(&state, f)| rewards[state as usize] = *f);
        let earned = passage.earn(&[&rewards], EPSILON, &mut ()).unwrap();
        let Some(earned) = earned else {
            assert!(!plain, "{kind:?} {seed}: no bound");
            continue;
        };
        let sum: f64 = exact.columns[0].iter().map(|v| v * initial[0]).sum();
        let (total, bound) = (earned.totals[0], earned.bounds[0]);
        assert!((total - sum).abs() <= bound + 1e-12 * sum, "{kind:?} {seed}: {total} ± {bound:e}, {sum}");
    }
}
