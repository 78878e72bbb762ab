//! Compares derivatives with double-double exponentials of Van Loan's block matrices.

use fastrand::Rng;

use super::adjoint::{Adjoint, Functional, adjoint};
use super::device_chain::{DeviceChain, Rates};
use super::*;
use crate::lane::{DeviceSpec, OpenOptions};
use crate::numerics::double_word::DoubleWord;
use crate::transient::chain::csr::Csr;
use crate::transient::scaling_squaring::DoubleDoubleMatrix;
use crate::transient::{Initial, TransitionList, solve};

/// Groups entries by row.
fn csr(rows: usize, columns: usize, entries: &[(u32, u32, f64)]) -> CsrMatrix {
    CsrMatrix::grouped(rows, columns, (1, |_| entries.iter().copied()))
}

/// Chain with derivatives of its rates, and rewards.
struct TestChain {
    n: usize,
    rates: CsrMatrix,
    parameters: Vec<Parameter>,
    p: Vec<f64>,
    rewards: Vec<f64>,
}

impl TestChain {
    /// Makes a random chain with rates over `decades` powers of ten.
    ///
    /// Some rates are 0 and have derivatives that are not 0.
    fn random(n: usize, parameters: usize, decades: f64, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut next = || rng.f64();
        let mut list = TransitionList::default();
        for i in 0..n as u32 {
            for j in (0..n as u32).filter(|&j| j != i) {
                if n < 4 || next() < 4.0 / n as f64 {
                    let zero = next() < 0.1;
                    list.extend([(i, j, if zero { 0.0 } else { 10f64.powf(decades * (next() - 0.5)) })]);
                }
            }
        }
        let TransitionList { from, to, rate } = list;
        let rates = CsrMatrix::of_lists(n, n, from, to, rate);
        let parameter = |k: usize| {
            let change = |(i, j, rate): (u32, u32, f64)| {
                (i, j, if next() < 0.5 { 0.0 } else { (next() - 0.4) * rate.max(0.2) })
            };
            let entries: Vec<_> = rates.entries().map(change).collect();
            let mut initial: Vec<f64> = (0..n).map(|_| next() - 0.5).collect();
            initial[0] -= initial.iter().sum::<f64>();
            Parameter {
                name: format!("p{k}"),
                rates: csr(n, n, &entries),
                initial: (k % 2 == 1).then_some(initial),
            }
        };
        let parameters = (0..parameters).map(parameter).collect();
        let p: Vec<f64> = (0..n).map(|_| next()).collect();
        let sum: f64 = p.iter().sum();
        Self {
            n,
            parameters,
            p: p.iter().map(|p| p / sum).collect(),
            rewards: (0..n).map(|_| 3.0 * next() - 1.0).collect(),
            rates,
        }
    }

    /// Returns π(t), its derivative by parameter `k`, and the accumulated rewards of both.
    fn exact(&self, k: usize, time: f64) -> [Vec<f64>; 3] {
        let (n, m) = (self.n, 2 * self.n + 2);
        let size = |row: &CsrMatrix, i: usize| row.row(i).1.iter().map(|v| 2.0 * v.abs()).sum::<f64>();
        let derivatives = &self.parameters[k].rates;
        let norm = (0..n).map(|i| size(&self.rates, i) + size(derivatives, i) + 4.0).fold(0.0, f64::max);
        let squarings = (norm * time).log2().ceil().max(-7.0) as i32 + 7;
        let h = DoubleWord::from(time * f64::from(-squarings).exp2());
        let mut block = DoubleDoubleMatrix::zero(m);
        let mut add = |row: usize, column: usize, value: f64| {
            let place = &mut block.values[row * m + column];
            *place = *place + DoubleWord::from(value) * h;
        };
        for (matrix, [down, right]) in [(&self.rates, [0, 0]), (&self.rates, [n, n]), (derivatives, [0, n])] {
            for (i, j, value) in matrix.entries() {
                add(down + i as usize, right + j as usize, value);
                add(down + i as usize, right + i as usize, -value);
            }
        }
        for (i, reward) in self.rewards.iter().enumerate() {
            add(i, 2 * n, *reward);
            add(n + i, 2 * n + 1, *reward);
        }
        let mut power = block.taylor();
        (0..squarings).for_each(|_| power = power.product(&power));
        let start = self.p.iter().chain(self.parameters[k].initial.iter().flatten());
        let mut sums = vec![DoubleWord::from(0.0); m];
        for (row, p) in power.values.chunks(m).zip(start) {
            sums.iter_mut().zip(row).for_each(|(sum, value)| *sum = *sum + DoubleWord::from(*p) * *value);
        }
        let part = |range: std::ops::Range<usize>| sums[range].iter().map(|sum| sum.hi).collect::<Vec<f64>>();
        [part(0..n), part(n..2 * n), part(2 * n..m)]
    }

    fn chain(&self) -> Csr {
        Csr::from_rates(&self.rates)
    }
}

fn machine() -> Machine {
    Machine::open(&[DeviceSpec::Cpu], &OpenOptions::default()).expect("the CPU opens")
}

/// Opens one and two CPU lanes, and the first device of each kind that computes in f64.
fn machines() -> Vec<(&'static str, Machine)> {
    let mut all = vec![("cpu", machine())];
    for name in ["cpu,cpu", "wgpu:0", "cuda:0"] {
        let specs: Vec<DeviceSpec> = name.split(',').map(|spec| spec.parse().expect("a device")).collect();
        match Machine::open(&specs, &OpenOptions::default()) {
            Ok(machine) if machine.precision == Precision::F64 => all.push((name, machine)),
            Ok(_) => crate::devices::skip(name, format!("{name} has no f64")),
            Err(_) if name.starts_with("cuda") && !cfg!(feature = "cuda") => {}
            Err(_) if name.starts_with("wgpu") && !cfg!(feature = "wgpu") => {}
            Err(e) => crate::devices::skip(name, format!("{name} does not open: {e}")),
        }
    }
    all
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).sum()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

const TIMES: [f64; 4] = [0.0, 0.02, 3.0, 40.0];

#[test]
fn errors_of_derivatives_and_integrals_are_within_their_bounds() {
    let machines = machines();
    for (n, parameters, decades, seed) in
        [(1, 1, 0.0, 1), (2, 1, 0.0, 2), (3, 3, 1.0, 3), (20, 8, 2.0, 4), (60, 2, 1.0, 5), (12, 1, 5.0, 6)]
    {
        // Rounding grows with the square of αt, which is 10⁴ for the stiffest chain.
        expect_bounds(&TestChain::random(n, parameters, decades, seed), &TIMES, &machines, 1e-6, seed);
    }
}

/// Compares errors with their bounds, which must be below `most`.
///
/// Returns the largest share of its steps, αt, that a run took.
fn expect_bounds(case: &TestChain, times: &[f64], machines: &[(&str, Machine)], most: f64, seed: u64) -> f64 {
    let (chain, initial) = (case.chain(), Initial::Distribution(case.p.clone()));
    let (problem, count) = (Problem::new(&chain, &initial, times), case.parameters.len());
    let exact: Vec<Vec<_>> =
        times.iter().map(|&time| (0..count).map(|k| case.exact(k, time)).collect()).collect();
    let found = machines.iter().map(|(device, machine)| {
        let found = forward(machine, &problem, &case.parameters, &Options::default(), true, &mut ());
        (device, found.expect("derivatives"))
    });
    let found: Vec<_> = found.collect();

    for (device, found, place) in
        found.iter().flat_map(|(device, found)| (0..times.len()).map(move |i| (device, &found.times[i], i)))
    {
        let (own, integrals) = found.integrals.as_ref().expect("requested");
        assert_eq!((found.derivatives.len(), integrals.len()), (count, count));
        for (k, integral) in integrals.iter().enumerate() {
            let [x, y, sums] = &exact[place][k];
            let largest = case.rewards.iter().fold(0.0f64, |most, r| r.abs().max(most));
            let what = format!("{device}, {} states, seed {seed}, time {}, {k}", case.n, times[place]);
            for (got, exact) in [(&found.probabilities, x), (&found.derivatives[k], y)] {
                let error = distance(&got.values, exact);
                assert!(error <= got.bound, "{what}: error {error:e}, bound {:e}", got.bound);
                assert!(got.bound < most, "{what}: bound {:e}", got.bound);
            }
            for (got, exact) in [(own, sums[0]), (integral, sums[1])] {
                let (error, bound) = ((dot(&got.values, &case.rewards) - exact).abs(), got.bound);
                let small = error <= largest * bound && bound < 10.0 * most;
                assert!(small, "{what}: integral, error {error:e}, bound {bound:e}");
            }
        }
    }
    let last = times.iter().fold(0.0, |last: f64, time| time.max(last));
    let share = |(_, found): &(_, Gradients)| found.terms as f64 / (1 + count) as f64 / (found.alpha * last);
    found.iter().map(share).fold(0.0, f64::max)
}

#[test]
fn runs_end_early_within_their_bounds() {
    let machines = machines();
    let mut early = [0; 4];
    for seed in 0..240 {
        let (kind, turn) = (seed as usize % 4, seed as usize / 4);
        let n = 3 + turn % 4;
        let mut case = TestChain::random(n, [1, 2, 1, 4, 1, 7][turn % 6], 1.0, 100 + seed);
        let weak = 10f64.powi(-1 - turn as i32 % 8);
        // Random, nearly decomposable, nearly periodic and absorbing chains.
        let factor = |i: u32, j: u32| match kind {
            1 if (i < 2) != (j < 2) => weak,
            2 if j as usize != (i as usize + 1) % n => weak,
            3 if i < 2 => 0.0,
            _ => 1.0,
        };
        let rates = case.rates.entries().map(|(i, j, rate)| (i, j, rate * factor(i, j)));
        case.rates = csr(n, n, &rates.collect::<Vec<_>>());
        // Few cases run on all devices.
        let machines = if seed % 40 == 0 { &machines[..] } else { &machines[..1] };
        // Bounds are large where few rates are as slow as all others.
        let most = if kind == 0 { 1e-3 } else { f64::INFINITY };
        let share = expect_bounds(&case, &[300.0 * 1.5f64.powi(turn as i32 % 7)], machines, most, seed);
        early[kind] += usize::from(share < 0.5);
    }
    // Slow transitions may delay a stationary state beyond the time.
    assert!(early[0] == 60 && early.iter().all(|&early| early > 0), "{early:?}");
}

#[test]
fn derivatives_by_the_unit_of_time_are_those_by_time() {
    [2, 4, 5, 7].into_iter().for_each(expect_derivatives_by_time);
}

/// Compares the sum of derivatives by `count` parameters, each with its share of the rates.
fn expect_derivatives_by_time(count: usize) {
    // With rates θQ, dπ(t)/dθ = t π(t) Q at θ = 1.
    let (n, time) = (3000, 2.5);
    let mut case = TestChain::random(n, count, 1.0, 7);
    for (k, parameter) in case.parameters.iter_mut().enumerate() {
        let share = case.rates.entries().filter(|(i, j, _)| (i + j) as usize % count == k);
        (parameter.rates, parameter.initial) = (csr(n, n, &share.collect::<Vec<_>>()), None);
    }
    let (chain, initial) = (case.chain(), Initial::Distribution(case.p.clone()));
    for (device, machine) in machines() {
        let (options, times) = (Options::default(), [time]);
        let problem = Problem::new(&chain, &initial, &times);
        let found = forward(&machine, &problem, &case.parameters, &options, false, &mut ());
        let found = &found.expect("derivatives").times[0];

        let mut flow = vec![0.0; n];
        let mut size = vec![0.0; n];
        for (i, j, rate) in case.rates.entries() {
            let moved = time * rate * found.probabilities.values[i as usize];
            flow[j as usize] += moved;
            flow[i as usize] -= moved;
            size[i as usize] += 2.0 * time * rate;
        }
        assert_eq!(found.derivatives.len(), count, "{device}");
        let all = found.derivatives.iter().map(|derivative| &derivative.values);
        let sum: Vec<f64> = (0..n).map(|i| all.clone().map(|values| values[i]).sum()).collect();
        let bounds: f64 = found.derivatives.iter().map(|derivative| derivative.bound).sum();
        let given = size.iter().copied().fold(0.0, f64::max) * found.probabilities.bound;
        let (error, bound) = (distance(&sum, &flow), bounds + given);
        assert!(error <= bound && bound < 1e-6, "{device}: error {error:e}, bound {bound:e}");
        assert!(distance(&found.derivatives[0].values, &flow) > 0.01, "{device}: all derivatives count");
        if count == 2 {
            let functional = [Functional { time, values: &case.rewards, accumulated: false }];
            let found = adjoint(&machine, &case.rates, &initial, &functional, &options, None, &mut ());
            let by_rates = found.expect("derivatives").rates;
            let sum = dot(&by_rates.values, case.rates.value());
            let bound = size.iter().copied().fold(0.0, f64::max) / time * by_rates.bound + 2.0 * given;
            let error = (sum - dot(&flow, &case.rewards)).abs();
            assert!(error <= bound && bound < 1e-6, "{device}: error {error:e}, bound {bound:e}");
        }
    }
}

#[test]
fn derivatives_by_every_rate_agree_with_those_of_parameters() {
    let machines = machines();
    for (n, decades, seed) in [(2, 0.0, 12), (20, 2.0, 14), (60, 1.0, 15), (12, 5.0, 16)] {
        let case = TestChain::random(n, 2, decades, seed);
        let initial = Initial::Distribution(case.p.clone());
        for (times, accumulated) in
            [(&TIMES[2..3], false), (&TIMES[1..], false), (&TIMES[2..3], true), (&TIMES[..1], true)]
        {
            let functionals: Vec<_> =
                times.iter().map(|&time| Functional { time, values: &case.rewards, accumulated }).collect();
            let solve = |machine: &Machine, memory| {
                adjoint(machine, &case.rates, &initial, &functionals, &Options::default(), memory, &mut ())
            };
            for (device, machine) in &machines {
                let found = solve(machine, None).expect("derivatives");
                let again = solve(machine, Some(64 * n as u64)).expect("derivatives with few iterates");
                assert_eq!(found, again, "{device}, {n} states: iterates computed again change nothing");
                let what = format!("{device}, {n} states, seed {seed}, times {times:?}, sums: {accumulated}");
                expect_adjoint(&case, times, accumulated, &found, &what);
            }
        }
    }
}

/// Compares derivatives by every rate with those by the parameters of a case.
fn expect_adjoint(case: &TestChain, times: &[f64], accumulated: bool, found: &Adjoint, what: &str) {
    let largest = case.rewards.iter().fold(0.0f64, |most, r| r.abs().max(most));
    for (k, parameter) in case.parameters.iter().enumerate() {
        let what = format!("{what}, {k}");
        let (mut value, mut derivative) = (0.0, 0.0);
        for &time in times {
            let [x, y, sums] = case.exact(k, time);
            value += if accumulated { sums[0] } else { dot(&x, &case.rewards) };
            derivative += if accumulated { sums[1] } else { dot(&y, &case.rewards) };
        }
        let rates = parameter.rates.value();
        let row = |i: usize| parameter.rates.row(i).1.iter().map(|d| d.abs()).sum::<f64>();
        let start = parameter.initial.as_deref().unwrap_or(&[]);
        let got = dot(&found.rates.values, rates) + dot(&found.initial.values, start);
        let bound = found.rates.bound * (0..case.n).map(row).fold(0.0, f64::max)
            + found.initial.bound * start.iter().map(|d| d.abs()).sum::<f64>();
        // The sums here round as well.
        let (error, round) = ((got - derivative).abs(), 1e-14 * largest * 40.0);
        assert!(error <= bound + round, "{what}: error {error:e}, bound {bound:e}");
        assert!(bound < 1e-4, "{what}: bound {bound:e}");
        let error = (found.value - value).abs();
        assert!(error <= found.initial.bound + round, "{what}: value, error {error:e}");
    }
}

#[test]
fn invalid_derivatives_are_named() {
    let two = |entries: &[(u32, u32, f64)]| csr(2, 2, entries);
    let chain = Csr::from_rates(&two(&[(0, 1, 1.0), (1, 0, 2.0)]));
    let of_three = csr(3, 3, &[]);
    for (rates, by, times, expected) in [
        (of_three, None, [1.0], "by 'mu' are a matrix of 3 rows and 3 columns: expected 2"),
        (two(&[(0, 1, f64::NAN)]), None, [1.0], "the rate 0 -> 1 by 'mu' is NaN"),
        (two(&[(0, 0, 1.0), (0, 1, 1.0)]), None, [1.0], "row 0 of the derivatives by 'mu' sums to 2e0"),
        (two(&[]), Some(vec![1.0]), [1.0], "has 1 values: expected 2"),
        (two(&[]), Some(vec![0.0, f64::INFINITY]), [1.0], "probability of state 1 by 'mu' is inf"),
        (two(&[]), None, [f64::INFINITY], "the time inf is not supported for derivatives"),
    ] {
        let (initial, name) = (Initial::State(0), "mu".to_owned());
        let (problem, parameter) =
            (Problem::new(&chain, &initial, &times), Parameter { name, rates, initial: by });
        let error = forward(&machine(), &problem, &[parameter], &Options::default(), false, &mut ());
        let error = error.expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    }
    let ones = [1.0, 1.0];
    for (rates, values, expected) in [
        (csr(2, 3, &[(0, 2, 1.0)]), &ones[..], "2 rows and 3 columns"),
        (two(&[(0, 1, -1.0)]), &ones[..], "the rate 0 -> 1 is -1e0"),
        (two(&[(0, 1, 1.0)]), &ones[..1], "has 1 values"),
        (two(&[(0, 1, 1.0)]), &[1.0, f64::NAN], "[1] is NaN"),
    ] {
        let functional = [Functional { time: 1.0, values, accumulated: false }];
        let found =
            adjoint(&machine(), &rates, &Initial::State(0), &functional, &Options::default(), None, &mut ());
        let error = found.expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_device_chain_has_the_bits_of_single_runs() {
    let options = Options::default();
    for (n, last, seed) in [(1, 3.0, 1), (2, 3.0, 2), (40, 2e4, 3), (3000, 5.0, 4)] {
        let case = TestChain::random(n, 0, 1.0, seed);
        let mut rng = Rng::with_seed(seed);
        let mut listed: Vec<_> = case.rates.entries().map(|(i, j, _)| (i, j)).collect();
        rng.shuffle(&mut listed);
        let (sources, targets): (Vec<u32>, Vec<u32>) = listed.iter().copied().unzip();
        let (initial, times) = (Initial::Distribution(case.p.clone()), [0.0, 0.1, last]);
        for (device, machine) in machines().into_iter().filter(|(_, machine)| machine.lanes.len() == 1) {
            let mut chain = DeviceChain::new(&machine, n, &sources, &targets).expect("a chain");
            // Every factor scales all rates; with the last one, the states before the last are left
            // at the rate 0, and the run ends early.
            for factor in [1.0, 1e-20, 1e-300, 3.5, 0.0] {
                let size = if factor == 0.0 { 1.0 } else { factor };
                let still = |i: u32| factor == 0.0 && (i as usize) + 1 < n.min(20);
                let rate = |&(i, _): &(u32, u32)| if still(i) { 0.0 } else { size * (0.5 + rng.f64()) };
                let rates: Vec<f64> = listed.iter().map(rate).collect();
                let entries = listed.iter().zip(&rates).map(|(&(i, j), &rate)| (i, j, rate));
                let mut matrix = csr(n, n, &entries.collect::<Vec<_>>());
                assert_eq!(matrix.sort_rows(), None);
                let single = Csr::from_rates(&matrix);
                let mut expected = Vec::new();
                let problem = Problem::new(&single, &initial, &times);
                let solution = solve(&machine, &problem, &options, &mut expected).expect("probabilities");
                let accumulated = [false, true].map(|accumulated| Functional {
                    time: 4.0,
                    values: &case.rewards,
                    accumulated,
                });
                let by_rates = adjoint(&machine, &matrix, &initial, &accumulated, &options, None, &mut ());
                let by_rates = by_rates.expect("derivatives");
                let lane = &machine.lanes[0];
                let there = lane.alloc_with("rates", &rates).expect("memory");
                let has_addresses = lane.address(&there).is_some();
                let given = [Rates::Host(&rates), Rates::Device(&there)];
                for rates in given.into_iter().take(if has_addresses { 2 } else { 1 }) {
                    let what = format!("{device}, {n} states, factor {factor}");
                    let mut found = Vec::new();
                    let solved = chain
                        .transient(rates, &initial, &times, &options, &mut found)
                        .expect("probabilities");
                    let (derivatives, ordered) = chain
                        .adjoint(rates, &initial, &accumulated, &options, None, &mut ())
                        .expect("derivatives");
                    let mut ordered_values = vec![0.0; listed.len()];
                    lane.download(&ordered, 0, &mut ordered_values).expect("derivatives");
                    let expected_rate = |&(i, j): &(u32, u32)| {
                        let (columns, _) = matrix.row(i as usize);
                        let place = columns.iter().position(|to| *to == j).expect("an entry");
                        by_rates.rates.values[matrix.starts()[i as usize] + place]
                    };
                    let expected_rates: Vec<f64> = listed.iter().map(expected_rate).collect();
                    // Entries of rates that are 0 change the order of additions, and count in the
                    // bounds.
                    let zeros = factor == 0.0;
                    let compare = |own: &[f64], single: &[f64], bound: f64| match zeros {
                        true => assert!(distance(own, single) <= 2.0 * own.len() as f64 * bound, "{what}"),
                        false => assert_eq!(own, single, "{what}"),
                    };
                    compare(&ordered_values, &expected_rates, derivatives.rates.bound);
                    compare(&derivatives.initial.values, &by_rates.initial.values, derivatives.initial.bound);
                    compare(&found.concat(), &expected.concat(), solved.bound.total());
                    assert!(zeros || solved.terms == solution.terms, "{what}");
                    assert_eq!(solved.alpha, solution.alpha, "{what}");
                    let same = if zeros { 1.5 } else { 1.0 };
                    let bounds = [
                        (solved.bound.total(), solution.bound.total()),
                        (derivatives.rates.bound, by_rates.rates.bound),
                        (derivatives.initial.bound, by_rates.initial.bound),
                    ];
                    assert!(
                        bounds.iter().all(|(own, single)| single <= own && *own <= same * single),
                        "{what}: {bounds:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn invalid_chains_on_a_device_are_named() {
    let machine = machine();
    for (sources, targets, expected) in [
        (&[0, 1][..], &[1][..], "2 sources and 1 targets"),
        (&[0, 2], &[1, 0], "the transition 2 -> 0 is invalid"),
        (&[0, 1], &[1, 1], "the transition 1 -> 1 is invalid"),
        (&[0, 1, 0], &[1, 0, 1], "the transition 0 -> 1 is listed twice"),
    ] {
        let error = DeviceChain::new(&machine, 2, sources, targets).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    }
    let mut chain = DeviceChain::new(&machine, 2, &[1, 0], &[0, 1]).expect("a chain");
    for (rates, time, expected) in [
        (&[1.0][..], 1.0, "1 rates: expected 2"),
        (&[1.0, -1.0], 1.0, "`rates`[1], from state 0 -> 1, is -1e0: expected a finite rate, at least 0"),
        (&[f64::NAN, 1.0], 1.0, "`rates`[0], from state 1 -> 0, is NaN"),
        (&[1.0, f64::INFINITY], 1.0, "from state 0 -> 1, is inf"),
        (&[1.0, 1.0], f64::INFINITY, "the time inf is not supported"),
    ] {
        let solved =
            chain.transient(Rates::Host(rates), &Initial::State(0), &[time], &Options::default(), &mut ());
        let error = solved.expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    }
}
