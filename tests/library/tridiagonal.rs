//! Tridiagonal systems against elimination with partial pivoting, and by their residuals.

use crate::support::{
    Equations, Numbers, Opened, above, cpu, cpu_in, eliminate, expect_error, limited, machine,
};
use kolmo::Machine;
use kolmo::kernel::Precision::{self, F32, F64};
use kolmo::lane::Lane;
use kolmo::tridiagonal::{
    Arrays, BandedSystem, Factor, Method, Number, Options, Pivot, Plan, PlanOptions, Refine, Residual,
    Solution, Status, System, Upload, solve,
};

/// Returns systems with |d| = 1.1·(|dl| + |du|) and random signs; unused elements are NaN.
pub(crate) fn dominant(n: usize, batch: usize, seed: u64) -> System {
    let mut r = Numbers(0x9e37_79b9_7f4a_7c15 ^ (seed << 20) ^ n as u64);
    let rows = n * batch;
    let mut dl: Vec<f64> = (0..rows).map(|_| r.signed()).collect();
    let mut du: Vec<f64> = (0..rows).map(|_| r.signed()).collect();
    let d = dl.iter().zip(&du).map(|(a, c)| r.signed().signum() * 1.1 * (a.abs() + c.abs())).collect();
    let b = (0..rows).map(|_| r.signed()).collect();
    for s in 0..batch {
        dl[s * n] = f64::NAN;
        du[(s + 1) * n - 1] = f64::NAN;
    }
    System::batched(batch, dl, d, du, vec![b]).expect("lengths fit")
}

impl Equations for System {
    fn n(&self) -> usize {
        self.n
    }

    fn rows(&self) -> usize {
        self.d.len()
    }

    fn b(&self) -> &[Vec<f64>] {
        &self.b
    }

    fn row(&self, i: usize) -> Vec<(usize, f64)> {
        let (n, at) = (self.n, i % self.n);
        let column = |k: usize| i - at + (at + k) % n;
        let mut row = vec![(i, self.d[i])];
        row.extend((at > 0 || self.cyclic).then(|| (column(n - 1), self.dl[i])));
        row.extend((at + 1 < n || self.cyclic).then(|| (column(1), self.du[i])));
        row
    }
}

pub(crate) fn largest(x: &[f64]) -> f64 {
    x.iter().fold(0.0, |most, x| most.max(x.abs()))
}

/// Options without refinement and pivoting, in tiles.
fn plain() -> Options {
    Options::default().refine(Refine::Steps(0)).pivot(Pivot::None).tolerance(1e-4)
}

/// Returns the backward error that the project promises for dominant systems.
fn promised(precision: Precision) -> f64 {
    1e-14 * precision.unit_roundoff() / F64.unit_roundoff()
}

fn sound(machine: &Machine, system: &System, options: &Options) -> Solution {
    solve(machine, system, options).expect("a sound system")
}

pub(crate) fn rounded(system: &System, precision: Precision) -> System {
    let round = |v: &[f64]| -> Vec<f64> {
        match precision {
            F64 | Precision::Q64 => v.to_vec(),
            F32 => v.iter().map(|&v| f64::from(v as f32)).collect(),
        }
    };
    System {
        dl: round(&system.dl),
        d: round(&system.d),
        du: round(&system.du),
        b: system.b.iter().map(|b| round(b)).collect(),
        ..system.clone()
    }
}

/// Asserts the promised residual, and for small systems agreement with elimination.
#[track_caller]
fn check(system: &System, solution: &Solution, precision: Precision) {
    let (n, promised) = (system.n, promised(precision));
    let got = system.residual(&system.b[0], &solution.x[0], &mut []);
    assert!(got.normwise <= promised, "n = {n}: residual {:e}, {promised:e} is promised", got.normwise);
    assert_eq!(got, solution.residual, "n = {n}: the residual that is reported");
    assert_eq!(solution.status, Status::Met, "n = {n}");
    if n > 64 {
        return;
    }
    for s in 0..system.batch {
        let x = &solution.x[0][s * n..][..n];
        let exact = eliminate(system.dense(s, &system.b[0])).expect("dominant matrices are regular");
        // For |d| = 1.1 (|dl| + |du|), |A^-1| |A| is at most (1.1 + 1) / (1.1 - 1) = 21. Each
        // solution has its own componentwise error relative to |A| |x| + |b|, which is at most
        // twice |A| |x|.
        let relative = 2.0 * 21.0 * (solution.residual.componentwise + 4.0 * f64::EPSILON);
        let tolerance = relative * largest(&exact);
        for (i, (x, exact)) in x.iter().zip(&exact).enumerate() {
            assert!((x - exact).abs() <= tolerance, "n = {n}, system {s}, row {i}: {x} for {exact}");
        }
    }
}

/// Rounds a system to the lane's precision, solves it, and checks the solution.
#[track_caller]
fn verified(machine: &Machine, system: &System, options: &Options) -> Solution {
    let system = rounded(system, machine.precision);
    let solution = sound(machine, &system, options);
    check(&system, &solution, machine.precision);
    solution
}

// Properties of a lane in one precision, run on every device below.

fn every_size_around_blocks_and_tiles(machine: &Opened) {
    let edges = [
        255, 256, 257, 1023, 2039, 2040, 2041, 2047, 2048, 2049, 2056, 2175, 2176, 2177, 4095, 4096, 4097,
        6144, 10_007,
    ];
    for n in (1..44).chain(edges) {
        verified(machine, &dominant(n, 1, 1), &plain());
    }
}

fn every_size_in_blocks(machine: &Opened) {
    for n in (1..44).chain([63, 64, 65, 100, 10_000, 140_000]) {
        let solution = verified(machine, &dominant(n, 1, 2), &plain().pivot(Pivot::Scaled));
        assert_eq!((solution.block, solution.method), (32, Method::Pivoted), "n = {n}");
    }
}

fn many_systems_do_not_touch_each_other(machine: &Opened) {
    let small = [(1, 7), (2, 5), (3, 1000), (7, 300), (64, 40), (100, 41), (8, 600), (512, 9)];
    let large = [(1023, 5), (1024, 4), (2047, 3), (2048, 2), (2049, 3)];
    for (n, batch) in small.into_iter().chain(large) {
        let system = dominant(n, batch, 3);
        verified(machine, &system, &plain());
        verified(machine, &system, &plain().pivot(Pivot::Scaled));
    }
}

fn cyclic_systems_are_solved(machine: &Opened) {
    for (n, batch) in [(1, 1), (2, 1), (3, 2), (4, 1), (17, 3), (64, 1), (2048, 1), (2049, 1), (5000, 1)] {
        verified(machine, &rings(n, batch, 4), &plain());
    }
}

fn right_hand_sides_share_a_matrix(machine: &Opened) {
    let mut system = rounded(&dominant(3000, 2, 5), machine.precision);
    let turned: Vec<f64> = system.b[0].iter().rev().copied().collect();
    system.b.push(turned.clone());

    let both = sound(machine, &system, &plain());
    let alone = System { b: vec![turned], ..system.clone() };
    let alone = sound(machine, &alone, &plain());

    assert_eq!(both.x[1], alone.x[0], "the bits of one right-hand side alone");
}

fn corrections_reach_double_precision(machine: &Opened) {
    let system = dominant(5000, 1, 6);
    let solution = sound(machine, &system, &Options::default());

    assert!(solution.residual.normwise <= 4.0 * f64::EPSILON, "{:e}", solution.residual.normwise);
    let refinements = solution.refinements;
    assert!(machine.precision == F64 || (1..=4).contains(&refinements), "{refinements}");
    assert!(solution.dominant && solution.small_pivots == 0 && solution.method == Method::OnePass);
}

fn a_plan_is_used_again(machine: &Opened) {
    let lanes = &machine.lanes;
    if machine.precision == F32 { plan_again::<f32>(lanes) } else { plan_again::<f64>(lanes) }
}

/// Uploads diagonals and the first right-hand side.
pub(crate) fn upload<T: Number>(lane: &Lane, arrays: &Arrays<T>, system: &System) {
    let System { dl, d, du, b, .. } = system;
    for (from, to) in [(dl, &arrays.dl), (d, &arrays.d), (du, &arrays.du), (&b[0], &arrays.b)] {
        let from: Vec<T> = from.iter().map(|&v| T::of(v)).collect();
        lane.upload(&from, to, 0).expect("it fits");
    }
}

pub(crate) fn fill<T: Number>(plan: &mut Plan<'_, T>, system: &System) {
    let inputs = plan.inputs();
    for (to, from) in
        [(inputs.dl, &system.dl), (inputs.d, &system.d), (inputs.du, &system.du), (inputs.b, &system.b[0])]
    {
        to.iter_mut().zip(from).for_each(|(to, &from)| *to = T::of(from));
    }
}

fn plan_again<T: Number>(lanes: &[Lane]) {
    for pivot in [false, true] {
        let options = PlanOptions::default().pivot(pivot);
        let n = 20_011;
        let mut plan = Plan::<T>::with(lanes, n, 1, false, &options).expect("it fits");
        assert_eq!((plan.rows(), plan.chunks()), (n, lanes.len()));
        for seed in [7, 8] {
            let system = rounded(&dominant(n, 1, seed), T::PRECISION);
            fill(&mut plan, &system);
            let wide = |x: &[T]| x.iter().map(|x| x.wide()).collect::<Vec<f64>>();
            let residual = |x: &[f64]| system.residual(&system.b[0], x, &mut []).normwise;

            plan.solve(Upload::All).expect("it runs");
            let x = wide(plan.x());
            assert!(residual(&x) <= promised(T::PRECISION), "{:e}", residual(&x));
            plan.inputs().b.fill(T::ZERO);
            plan.solve(Upload::RightHandSide).expect("it runs");
            assert!(plan.x().iter().all(|x| x.wide() == 0.0), "0 solves the right-hand side 0");
            fill(&mut plan, &system);
            plan.solve(Upload::RightHandSide).expect("it runs");
            assert!(wide(plan.x()) == x, "the same bits again");
            assert_eq!(plan.flags().expect("it runs"), 0);
        }
    }
}

on_usual_lanes! {
    [
        every_size_around_blocks_and_tiles,
        every_size_in_blocks,
        many_systems_do_not_touch_each_other,
        cyclic_systems_are_solved,
        right_hand_sides_share_a_matrix,
        corrections_reach_double_precision,
        a_plan_is_used_again,
    ]
}
// Tests that depend on several lanes.
instances! {
    [
        every_size_around_blocks_and_tiles,
        every_size_in_blocks,
        many_systems_do_not_touch_each_other,
        cyclic_systems_are_solved,
        a_plan_is_used_again,
    ]
    three_cpu_lanes_f64("cpu,cpu,cpu", F64);
    #[cfg(feature = "wgpu")] wgpu_and_cpu_f64_checked("wgpu:0,cpu", F64, true);
    #[cfg(feature = "cuda")] three_cuda_streams_f64("cuda:0,cuda:0,cuda:0", F64);
    #[cfg(feature = "cuda")] two_cuda_devices_f64("cuda:0,cuda:1", F64);
}

/// Asserts that lanes and chunks change no bit, for systems of all kinds.
fn lanes_change_no_bit(one: &Machine, several: &Machine) {
    let tiles = |n, batch| (dominant(n, batch, 11), plain());
    let blocks = |n| (dominant(n, 1, 12), plain().pivot(Pivot::Scaled));
    let cases = [
        tiles(20_011, 1),
        tiles(700_001, 1),
        tiles(3000, 5),
        tiles(100, 300),
        blocks(30_011),
        // Devices reduce the reduced system further.
        blocks(170_011),
    ];
    for (system, options) in cases {
        let x = sound(one, &system, &options).x;
        let shared = sound(several, &system, &options);
        assert!(shared.x == x, "{} rows: {options:?}", system.rows());
        assert!(shared.chunks > 1, "{} rows: {options:?}", system.rows());
    }
    let ring = rings(9001, 1, 13);
    assert!(sound(several, &ring, &plain()).x == sound(one, &ring, &plain()).x);
}

fn rings(n: usize, batch: usize, seed: u64) -> System {
    let mut rings = dominant(n, batch, seed).cyclic();
    for s in 0..batch {
        let (first, last) = (s * n, (s + 1) * n - 1);
        (rings.dl[first], rings.du[last]) = (-0.5, 0.25);
        rings.d[first] = 1.1 * (0.5 + rings.du[first].abs());
        rings.d[last] = -1.1 * (0.25 + rings.dl[last].abs());
    }
    rings
}

#[test]
fn lanes_and_chunks_change_no_bit() {
    let (one, small) = (cpu(), limited("cpu", F64, 900_000));
    lanes_change_no_bit(&one, &machine("cpu,cpu,cpu", F64).expect("the CPU opens"));
    for options in [plain(), plain().pivot(Pivot::Scaled)] {
        let system = dominant(50_021, 1, 14);
        let (all, chunks) = (sound(&one, &system, &options), sound(&small, &system, &options));
        assert!(chunks.chunks >= 4 && chunks.x == all.x, "{} chunks", chunks.chunks);
    }
}

#[cfg(feature = "wgpu")]
#[test]
fn lanes_of_an_adapter_change_no_bit() {
    if let (Some(one), Some(two)) = (machine("wgpu:0", F64), machine("wgpu:0,wgpu:0", F64)) {
        lanes_change_no_bit(&one, &two);
    }
}

#[test]
fn a_transposed_system_is_the_transposed_matrix() {
    let mut ring = dominant(5, 2, 9).cyclic();
    ring.dl.iter_mut().chain(&mut ring.du).filter(|v| v.is_nan()).for_each(|v| *v = 0.125);
    for (system, s) in [(&dominant(40, 1, 9), 0), (&ring, 0), (&ring, 1)] {
        let (n, turned) = (system.n, system.clone().transposed());
        let [a, t] = [system, &turned].map(|system| system.dense::<f64>(s, &system.b[0]));
        assert!((0..n).all(|i| (0..n).all(|j| a[i][j] == t[j][i])), "system {s}: {a:?}, {t:?}");
    }
}

#[test]
fn off_diagonals_may_be_one_shorter_as_in_lapack() {
    let long = System::new(vec![9.0, 1.0, 2.0], vec![4.0; 3], vec![3.0, 5.0, 9.0], vec![1.0; 3]).unwrap();
    let short = System::new(vec![1.0, 2.0], vec![4.0; 3], vec![3.0, 5.0], vec![1.0; 3]).unwrap();
    let x = |system: &System| sound(&cpu(), system, &plain()).x;
    assert_eq!(x(&long), x(&short));
    assert!(System::new(vec![], vec![2.0], vec![], vec![1.0]).is_ok(), "one row");
}

#[test]
fn singular_matrices_are_reported_and_give_no_number() {
    // A diagonal of zeros is singular for odd n.
    let ones = |n| System::new(vec![1.0; n], vec![0.0; n], vec![1.0; n], vec![1.0; n]).unwrap();
    let zeros = |n| clement(n, 0.0);
    for system in [ones(1), ones(3), ones(101), zeros(33), zeros(129), zeros(2047)] {
        let (n, solution) = (system.n, sound(&cpu(), &system, &Options::default()));
        assert_eq!((solution.status, solution.singular), (Status::NotMet, Some((0, n - 1))), "n = {n}");
        assert!(solution.x[0].iter().all(|x| x.is_nan()) && solution.residual.normwise == f64::INFINITY);
    }
}

/// Returns the system with the rows (−1, 2, −1), and with 1 at both ends of the diagonal.
///
/// Rows sum to 0, so that the matrix is singular.
fn neumann(n: usize, b: Vec<f64>) -> System {
    let mut d = vec![2.0; n];
    (d[0], d[n - 1]) = (1.0, 1.0);
    System::new(vec![-1.0; n], d, vec![-1.0; n], b).unwrap()
}

#[test]
fn row_sums_of_zero_are_singular_for_every_order_and_method() {
    let auto = Options::default();
    let ways = [auto, auto.pivot(Pivot::None), auto.pivot(Pivot::Scaled), auto.refine(Refine::Steps(0))];
    let lanes: Vec<Machine> = ["cpu", "cpu,cpu"].iter().filter_map(|s| machine(s, F64)).collect();
    let single = cpu_in(F32);
    for n in [2, 3, 5, 8, 31, 100, 1000, 2048, 2049, 5000, 20_001] {
        let mut consistent = vec![0.0; n];
        (consistent[0], consistent[n - 1]) = (1.0, -1.0);
        for b in [vec![1.0; n], consistent, vec![0.0; n]] {
            let open = neumann(n, b.clone());
            let ring = System::new(vec![-1.0; n], vec![2.0; n], vec![-1.0; n], b.clone()).unwrap().cyclic();
            for (k, options) in ways.iter().enumerate() {
                let each = lanes.iter().chain([&single]);
                for machine in each.take(if n > 3000 { 1 } else { 3 }) {
                    for system in [&open, &ring].into_iter().take(if n > 2 { 2 } else { 1 }) {
                        let Solution { singular, residual, .. } = solve(machine, system, options).unwrap();
                        let what = format!("n = {n}, cyclic: {}, way {k}", system.cyclic);
                        assert!(singular.is_some(), "{what}: {residual:?}");
                    }
                }
            }
            let matrix = System::matrix(1, open.dl.clone(), open.d.clone(), open.du.clone()).unwrap();
            // With pivoting if needed, and without.
            for options in &ways[..2] {
                let mut factor = Factor::new(&lanes[0], matrix.clone(), options).unwrap();
                for _ in 0..2 {
                    assert!(factor.solve(&[&b]).unwrap().singular.is_some(), "n = {n}");
                    assert!(factor.solve_transposed(&[&b]).unwrap().singular.is_some(), "n = {n}");
                }
            }
        }
    }
}

#[test]
fn one_singular_system_of_many_is_found_and_the_others_are_solved() {
    let (n, batch) = (40, 50);
    for cyclic in [false, true] {
        let (side, mut d) = (vec![-1.0; n * batch], vec![2.5; n * batch]);
        d[17 * n..18 * n].fill(2.0);
        if !cyclic {
            (d[17 * n], d[18 * n - 1]) = (1.0, 1.0);
        }
        let system = System::batched(batch, side.clone(), d, side, vec![vec![1.0; n * batch]]).unwrap();
        let system = if cyclic { system.cyclic() } else { system };
        let solution = solve(&cpu(), &system, &Options::default()).unwrap();
        assert_eq!(solution.singular.map(|(system, _)| system), Some(17), "cyclic: {cyclic}");
        for (s, x) in solution.x[0].chunks(n).enumerate() {
            assert!(x.iter().all(|x| x.is_nan() == (s == 17)), "system {s}, cyclic: {cyclic}");
        }
    }
}

/// Solves a system on the CPU with the default options, and asserts that they are met.
#[track_caller]
fn met(system: &System) -> Solution {
    let solution = sound(&cpu(), system, &Options::default());
    let found = (solution.status, solution.singular);
    assert_eq!(found, (Status::Met, None), "{} rows: {:?}", system.rows(), solution.residual);
    solution
}

#[test]
fn nearly_singular_and_ill_scaled_matrices_are_solved() {
    // A small addition at one end (heat loss of a rod) makes the matrix regular: ρ is about 4 n /
    // share.
    for (n, share) in [(5, 1e-14), (100, 1e-12), (3000, 1e-10), (100_000, 1e-8)] {
        let mut system = neumann(n, vec![0.0; n]);
        system.d[n - 1] += share;
        system.b[0][n - 1] = share;
        met(&system);
    }
    // A triangular matrix with elements up to 2^999 in its inverse, and x = 1.
    let n = 1000;
    let mut b = vec![3.0; n];
    b[n - 1] = 1.0;
    met(&System::new(vec![0.0; n], vec![1.0; n], vec![2.0; n], b).unwrap());
    // Columns of very different sizes.
    let scales: Vec<f64> = (0..n + 2).map(|i| 2f64.powi((i * 7919 % 400) as i32 - 200)).collect();
    let of = |k: usize, v: f64| (0..n).map(|i| v * scales[i + k]).collect::<Vec<f64>>();
    met(&System::new(of(0, -1.0), of(1, 2.1), of(2, 3.0), vec![1.0; n]).unwrap());
}

#[test]
fn residuals_keep_their_size_at_both_ends_of_the_range() {
    // 2⁻⁵³·|A|·|x| is beyond the largest double.
    let high = System::new(vec![0.0, 1e-20], vec![1.3e308, 0.0], vec![-1.1e308, 0.0], vec![1.0; 2]).unwrap();
    let solution = met(&high);
    assert!(solution.residual.normwise <= 2.0 * f64::EPSILON, "{:?}", solution.residual);
    // The residual of the first row is 4 + 8 / 2, and ‖A‖·‖x‖ = 1.5 · 8.
    let wanted = Residual { normwise: 8.0 / 12.0, componentwise: 1.0 };
    let (top, low, zeros) = (2f64.powi(1023), 2f64.powi(-1000), || vec![0.0; 2]);
    for (d, du, x) in [([top, 1.0], top / 2.0, [4.0, 8.0]), ([low; 2], low / 2.0, [4.0 * low, 8.0 * low])] {
        let (d, du) = (d.to_vec(), vec![du, 0.0]);
        let two = System::new(zeros(), d.clone(), du.clone(), zeros()).unwrap();
        assert_eq!(two.residual(&[0.0; 2], &x, &mut []), wanted);
        let two = BandedSystem::pentadiagonal(1, [zeros(), zeros(), d, du, zeros()], vec![zeros()]).unwrap();
        assert_eq!(two.residual(&[0.0; 2], &x, &mut []), wanted);
    }
    // With subnormal products, elimination in doubles has a residual that is not 0.
    let low =
        System::new(vec![0.0, 9e-301], vec![1e-308, 8e-301], vec![7e-301, 0.0], vec![1.1e-315, 5.5e-316]);
    let low = low.unwrap();
    let plain = Options::default().pivot(Pivot::None).refine(Refine::Steps(0));
    let solution = solve(&cpu(), &low, &plain).unwrap();
    let Residual { normwise, componentwise } = solution.residual;
    assert!(normwise > 0.1 * componentwise && !solution.residual.underflows(), "{:?}", solution.residual);
}

#[test]
fn an_unknown_that_one_row_gives_is_its_quotient() {
    // Larger elements above and below make elimination choose other rows.
    let dl = vec![5.0, 7.0, 0.0, 9.0, 3.0, -8.0];
    let d = vec![1.0, 2.0, 1.0, 3.0, -1.0, 2.0];
    let du = vec![3.0, 6.0, 0.0, 7.0, 4.0, 5.0];
    let system = System::new(dl, d, du, vec![1.0, 0.3, 0.0, 0.7, 0.1, 1.0]).unwrap();
    for system in [system.clone(), system.clone().cyclic(), system.transposed().cyclic()] {
        let solution = met(&system);
        assert!(solution.residual.componentwise <= 8.0 * f64::EPSILON, "{:?}", solution.residual);
    }
}

/// Clement's matrix (1959) with the diagonal `d`.
fn clement(n: usize, d: f64) -> System {
    let (dl, du) = ((0..n).map(|i| i as f64).collect(), (0..n).map(|i| (n - 1 - i) as f64).collect());
    let mut r = Numbers(0x2545_f491_4f6c_dd1d ^ n as u64);
    System::new(dl, vec![d; n], du, (0..n).map(|_| r.signed()).collect()).unwrap()
}

#[test]
fn right_hand_sides_of_any_size_are_solved() {
    for precision in [F64, F32] {
        let system = dominant(3000, 1, 17);
        let x = sound(&cpu_in(precision), &system, &Options::default()).x;
        for power in [-900, -200, 200, 900] {
            let scale = 2f64.powi(power);
            let b = system.b[0].iter().map(|b| b * scale).collect();
            let scaled = System { b: vec![b], ..system.clone() };
            let solution = sound(&cpu_in(precision), &scaled, &Options::default());
            let back: Vec<f64> = solution.x[0].iter().map(|x| x / scale).collect();
            assert!(back == x[0], "times 2^{power} in {precision}: the same bits");
            assert_eq!((solution.status, solution.method), (Status::Met, Method::OnePass));
        }
    }
}

#[test]
fn unknowns_beyond_the_range_of_doubles_are_not_met() {
    let one = |d: f64, b: f64| System::new(vec![0.0], vec![d], vec![0.0], vec![b]).unwrap();
    let beyond = sound(&cpu(), &one(1e-200, 1e200), &Options::default());
    assert_eq!((beyond.status, beyond.growth), (Status::NotMet, f64::INFINITY));
    // 1e-320 has four digits.
    let below = sound(&cpu(), &one(3e160, 1e-160), &Options::default());
    assert!(below.status == Status::NotMet && below.residual.underflows(), "{:?}", below.residual);
    // Quotients of finite numbers that overflow are reported as the largest double.
    let grown = sound(&cpu(), &one(5e-324, 1e-310), &Options::default());
    assert_eq!((grown.status, grown.growth), (Status::Met, f64::MAX));
}

#[test]
fn each_system_of_a_batch_has_its_own_status() {
    let (n, batch) = (101, 7);
    let mut system = dominant(n, batch, 18);
    // System 2 is singular, system 4 needs exchanges that blocks do not make.
    let singular = 2 * n..3 * n;
    system.d[singular.clone()].fill(0.0);
    let graded = clement(n, 1e-8);
    let here = 4 * n..5 * n;
    system.dl[here.clone()].copy_from_slice(&graded.dl);
    system.d[here.clone()].copy_from_slice(&graded.d);
    system.du[here].copy_from_slice(&graded.du);
    let solution = sound(&cpu(), &system, &Options::default());
    assert_eq!((solution.status, solution.singular), (Status::NotMet, Some((2, n - 1))));
    for (s, x) in solution.x[0].chunks(n).enumerate() {
        assert!(x.iter().all(|x| x.is_nan() == (s == 2)), "system {s}");
    }
    let without = |v: &[f64]| [&v[..singular.start], &v[singular.end..]].concat();
    let [dl, d, du, b] = [&system.dl, &system.d, &system.du, &system.b[0]].map(|v| without(v));
    let others = System::batched(batch - 1, dl, d, du, vec![b]).unwrap();
    let x = without(&solution.x[0]);
    assert!(others.residual(&others.b[0], &x, &mut []).componentwise <= 8.0 * f64::EPSILON);
}

#[test]
fn pivots_of_zero_are_counted_and_do_not_reach_the_answer() {
    let system = System::new(vec![1.0; 100], vec![0.0; 100], vec![1.0; 100], vec![1.0; 100]).unwrap();
    let solution = sound(&cpu(), &system, &Options::default().pivot(Pivot::None));
    assert!(solution.small_pivots > 0 && !solution.dominant);
    assert_eq!((solution.status, solution.method), (Status::Met, Method::Host));
}

#[test]
fn bad_input_is_refused_with_its_place() {
    let v = |n: usize| vec![1.0; n];
    expect_error(System::new(v(0), v(0), v(0), v(0)), "0 rows");
    expect_error(System::new(v(5), v(3), v(3), v(3)), "dl has 5 numbers, but d has 3");
    expect_error(System::new(v(3), v(3), v(3), v(4)), "b has 4 numbers, but d has 3");
    expect_error(System::batched(2, v(3), v(3), v(3), vec![v(3)]), "3 rows cannot be 2 systems");
    // A cyclic system needs its corner elements.
    let solved = |system: &System| solve(&cpu(), system, &Options::default());
    for (dl, du) in [(4, 5), (5, 4), (4, 4)] {
        let system = System::new(v(dl), vec![4.0; 5], v(du), v(5)).unwrap().cyclic();
        expect_error(solved(&system), "expected a finite number");
    }
    for (what, array, row) in [("dl", 0, 1), ("d", 1, 0), ("du", 2, 1), ("b", 3, 2)] {
        for bad in [f64::NAN, f64::INFINITY] {
            let mut arrays = [v(3), v(3), v(3), v(3)];
            arrays[array][row] = bad;
            let [dl, d, du, b] = arrays;
            let system = System::new(dl, d, du, b).unwrap();
            expect_error(solved(&system), &format!("{what} of row {row} is {bad}"));
        }
    }
}

#[test]
fn real_systems_have_the_solutions_of_lapack() {
    let Some(folder) = above("shared/cases/tridiagonal") else { return };
    let mut seen = 0;
    for entry in std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.expect("a file").path();
        if path.extension().is_none_or(|e| e != "mtx") {
            continue;
        }
        seen += 1;
        let file = kolmo::io::tridiagonal::read(&path, false, false, None).expect("a tridiagonal matrix");
        let system = file.system;
        assert!(!file.has_b && system.b[0].iter().all(|&b| b == 1.0));
        let options = Options::default().tolerance(1e-14);
        let solution = sound(&cpu(), &system, &options);
        let name = path.display();
        assert_eq!(solution.status, Status::Met, "{name}: {:e}", solution.residual.normwise);
        let reference = path.with_extension("x.npy");
        if !reference.exists() {
            continue;
        }
        let exact = kolmo::io::npy::read_vector(&reference).expect("a vector");
        let theirs = system.residual(&system.b[0], &exact, &mut []).normwise;
        let ours = solution.residual.normwise;
        assert!(ours <= 10.0 * theirs.max(f64::EPSILON), "{name}: {ours:e}, LAPACK {theirs:e}");
    }
    assert!(seen >= 6, "{seen} systems in {}", folder.display());
}
