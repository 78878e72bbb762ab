//! Pentadiagonal and block tridiagonal systems with 2 × 2 blocks.
//!
//! A certified pass with overlapping tiles (windows) solves systems with sufficient decay. All
//! others are eliminated with pivoting on the host.

use crate::support::{Equations, Numbers, Opened, cpu, eliminate, expect_error, limited, machine};
use crate::tridiagonal::largest;
use kolmo::Machine;
use kolmo::kernel::Precision::{F32, F64};
use kolmo::tridiagonal::{
    BandedPlan, BandedSystem, Form, Method, Number, Options, Pivot, Refine, Solution, Status, solve_banded,
};

const FORMS: [Form; 2] = [Form::Pentadiagonal, Form::Blocks];

/// Returns systems with the arrays of either form.
fn banded(batch: usize, arrays: Vec<Vec<f64>>, b: Vec<Vec<f64>>) -> BandedSystem {
    match <[_; 5]>::try_from(arrays) {
        Ok(arrays) => BandedSystem::pentadiagonal(batch, arrays, b),
        Err(arrays) => BandedSystem::blocks(batch, arrays.try_into().expect("three"), b),
    }
    .expect("lengths fit")
}

/// Returns the distances of the columns of row `i` of `n` from the diagonal, without 0.
pub(crate) fn distances(form: Form, i: usize, n: usize) -> impl Iterator<Item = isize> {
    let all = match form {
        Form::Pentadiagonal => -2..=2,
        Form::Blocks if i.is_multiple_of(2) => -2..=3,
        Form::Blocks => -3..=2,
    };
    all.filter(move |&k| (0..n as isize).contains(&(i as isize + k)) && k != 0)
}

/// Returns systems from the elements of their rows, with their distances from the diagonal.
pub(crate) fn of_rows(
    form: Form,
    n: usize,
    b: Vec<Vec<f64>>,
    rows: impl Iterator<Item = Vec<(isize, f64)>>,
) -> BandedSystem {
    let all = b[0].len();
    let mut arrays = vec![vec![0.0; form.width() * all]; form.names().len()];
    for (at, row) in rows.enumerate() {
        for (k, v) in row {
            let (i, j) = (at % n, ((at % n) as isize + k) as usize);
            let (array, place) = match form {
                Form::Pentadiagonal => ((k + 2) as usize, at),
                Form::Blocks => (j / 2 + 1 - i / 2, 2 * at + j % 2),
            };
            arrays[array][place] = v;
        }
    }
    banded(all / n, arrays, b)
}

/// Returns systems with elements `beside` off the diagonal.
///
/// `diagonal` computes the diagonal element from the row and its other elements.
fn filled(
    form: Form,
    n: usize,
    b: Vec<f64>,
    mut beside: impl FnMut() -> f64,
    mut diagonal: impl FnMut(usize, Vec<f64>) -> f64,
) -> BandedSystem {
    let rows = b.len();
    let row = |at: usize| {
        let mut row: Vec<(isize, f64)> = distances(form, at % n, n).map(|k| (k, beside())).collect();
        row.push((0, diagonal(at, row.iter().map(|&(_, v)| v).collect())));
        row
    };
    of_rows(form, n, vec![b], (0..rows).map(row))
}

/// Systems with random off-diagonal elements.
///
/// `diagonal` computes the diagonal element from the row and the sum of its off-diagonal sizes.
fn system(form: Form, n: usize, batch: usize, mut diagonal: impl FnMut(usize, f64) -> f64) -> BandedSystem {
    let mut r = Numbers(0x2545_f491_4f6c_dd1d ^ n as u64);
    let b = (0..n * batch).map(|_| r.signed()).collect();
    // A single row has no other elements.
    let sum = |row: Vec<f64>| if n > 1 { row.iter().map(|v| v.abs()).sum() } else { 1.0 };
    filled(form, n, b, || r.signed(), |i, row| diagonal(i, sum(row)))
}

fn dominant(form: Form, n: usize, batch: usize) -> BandedSystem {
    system(form, n, batch, |i, sum| if i % 3 == 0 { -1.1 * sum } else { 1.1 * sum })
}

/// Returns a system with changed elements, by their row and value, and another right-hand side.
fn changed(system: &BandedSystem, b: Vec<f64>, of: impl Fn(usize, f64) -> f64) -> BandedSystem {
    let (width, batch) = (system.form().width(), system.rows() / system.n());
    let new = |v: &Vec<f64>| v.iter().enumerate().map(|(k, v)| of(k / width, *v)).collect();
    let arrays: Vec<Vec<f64>> = system.arrays().iter().map(new).collect();
    banded(batch, arrays, vec![b])
}

/// Pentadiagonal system with the rows (1, −4, d, −4, 1) and a varying right-hand side.
fn toeplitz(n: usize, d: impl Fn(usize) -> f64) -> BandedSystem {
    let of = |v: f64| vec![v; n];
    let d = (0..n).map(d).collect();
    let b = vec![(0..n).map(|i| ((7 * i * i + 3 * i) % 101) as f64 - 50.0).collect()];
    BandedSystem::pentadiagonal(1, [of(1.0), of(-4.0), d, of(-4.0), of(1.0)], b).expect("lengths fit")
}

impl Equations for BandedSystem {
    fn n(&self) -> usize {
        self.n()
    }

    fn rows(&self) -> usize {
        self.rows()
    }

    fn b(&self) -> &[Vec<f64>] {
        &self.b
    }

    fn row(&self, i: usize) -> Vec<(usize, f64)> {
        let (n, first) = (self.n(), i / self.n() * self.n());
        let all: Vec<(isize, f64)> = match (self.form(), self.arrays()) {
            (Form::Pentadiagonal, arrays) => {
                (-2..).zip(arrays).map(|(k, v)| (i as isize + k, v[i])).collect()
            }
            (Form::Blocks, arrays) => {
                let block = (i / 2 * 2) as isize;
                let of = |(k, v): (isize, &Vec<f64>)| [0, 1].map(|j| (block + k + j, v[2 * i + j as usize]));
                [-2, 0, 2].into_iter().zip(arrays).flat_map(of).collect()
            }
        };
        let inside = |&(column, _): &(isize, f64)| (first as isize..(first + n) as isize).contains(&column);
        all.into_iter().filter(inside).map(|(column, v)| (column as usize, v)).collect()
    }
}

/// Returns the largest componentwise backward error.
fn error(system: &BandedSystem, b: &[f64], x: &[f64]) -> f64 {
    let one = |i: usize| {
        let of = |(r, s): (f64, f64), (k, v): (usize, f64)| ((-v).mul_add(x[k], r), s + (v * x[k]).abs());
        let (r, s) = system.row(i).into_iter().fold((b[i], b[i].abs()), of);
        if r == 0.0 { 0.0 } else { r.abs() / s }
    };
    (0..system.rows()).map(one).fold(0.0, |a, b| if b > a || b.is_nan() { b } else { a })
}

/// Solves a system, and asserts that its residuals are correct and small.
#[track_caller]
fn check(machine: &Machine, system: &BandedSystem) -> Solution {
    let solution = solve_banded(machine, system, &Options::default()).expect("it runs");
    assert_eq!(solution.status, Status::Met, "{} rows: {:?}", system.rows(), solution.residual);
    let most = if solution.dominant { 64.0 } else { 8.0 } * f64::EPSILON;
    for (b, x) in system.b.iter().zip(&solution.x) {
        let error = error(system, b, x);
        assert!(error <= 1.01 * solution.residual.componentwise + f64::EPSILON, "{error:e}");
        assert!(error <= most, "{} rows: {error:e}", system.rows());
    }
    solution
}

fn every_size_is_solved_in_one_pass(machine: &Opened) {
    let tiles = [895, 896, 897, 898, 1023, 1024, 1025, 1026, 1791, 1792, 1794, 1795, 5001];
    let small: Vec<usize> =
        if machine.is_cpu() { (1..=70).collect() } else { vec![1, 2, 3, 4, 9, 32, 65, 70] };
    for form in FORMS {
        for n in small.iter().copied().chain(tiles).filter(|n| form == Form::Pentadiagonal || n % 2 == 0) {
            let system = dominant(form, n, 1);
            let solution = check(machine, &system);
            assert!(solution.dominant && solution.method == Method::OnePass, "{form:?} of {n} rows");
            if n <= 70 {
                let oracle: Vec<f64> = eliminate(system.dense(0, &system.b[0])).expect("regular");
                let (x, size) = (&solution.x[0], largest(&oracle));
                let apart = x.iter().zip(&oracle).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                assert!(apart <= 1e-12 * size, "{form:?} of {n} rows: {apart:e} of {size}");
            }
        }
    }
}

fn lanes_and_parts_change_no_bit(one: &Opened) {
    let precision = one.precision;
    let Some(two) = machine(&[one.spec; 2].join(","), precision) else { return };
    let small = limited(one.spec, precision, 80_000 * precision.bytes());
    for (form, n) in [(Form::Pentadiagonal, 40_003), (Form::Blocks, 23_040)] {
        let mut system = dominant(form, n, 1);
        system.b.push(system.b[0].iter().map(|b| 3.0 * b).collect());
        let solution = check(one, &system);
        assert_eq!(solution.chunks, 1);
        for (machine, least) in [(&two, 2), (&small, 4)] {
            let other = check(machine, &system);
            assert!(other.x == solution.x && other.chunks >= least, "{form:?} in {} parts", other.chunks);
        }
    }
}

fn windows_grow_with_the_decay_length(machine: &Opened) {
    // The inverse of 1, −4, 6, −4, 1 does not decay. Diagonals close to 6 decay slowly.
    let tiles: Vec<_> = [20.0, 8.0, 6.01, 6.0]
        .into_iter()
        .map(|d| {
            let solution = check(machine, &toeplitz(9001, |_| d));
            (solution.method, solution.block)
        })
        .collect();
    assert_eq!(tiles[0], (Method::OnePass, 896));
    assert!(tiles[1].0 == Method::OnePass && tiles[1].1 <= 896, "{tiles:?}");
    assert!(tiles[2].0 == Method::OnePass && tiles[2].1 < 896, "{tiles:?}");
    assert_eq!(tiles[3].0, Method::Host);
}

/// The pre-check reads 8 samples of rows. The certificate finds weak rows between them.
fn slow_decay_in_some_rows_is_detected(machine: &Opened) {
    let weak = |rows: std::ops::Range<usize>, d: f64| {
        check(machine, &toeplitz(40_001, |i| if rows.contains(&i) { d } else { 20.0 }))
    };
    let narrow = weak(0..0, 6.0);
    assert_eq!((narrow.method, narrow.block), (Method::OnePass, 896));
    // Weak rows across a tile boundary, within the reach of the widest windows. Single
    // precision has no margin between the reach of narrow windows and the rounding error.
    if machine.precision == F64 {
        let wide = weak(3384..3784, 6.01);
        assert_eq!((wide.method, wide.block), (Method::OnePass, 128));
    }
    assert_eq!(weak(2900..4400, 6.0).method, Method::Host);
}

fn hard_rows_go_to_the_host(machine: &Opened) {
    for n in [6, 70, 4000] {
        for form in FORMS {
            // A zero diagonal, and no dominance.
            let zeros = system(form, n, 1, |_, _| 0.0);
            assert!(!check(machine, &zeros).dominant);
        }
        // Every diagonal block is singular: elimination must exchange rows with the
        // neighbouring blocks.
        let of = |v: f64| vec![v; n];
        let b = vec![(0..n).map(|i| i as f64 - 3.5).collect()];
        let arrays = [of(1.0), of(0.0), of(0.0), of(0.0), of(2.0)];
        if n % 4 == 0 {
            let singular = BandedSystem::pentadiagonal(1, arrays, b).expect("lengths fit");
            assert_eq!(check(machine, &singular).method, Method::Host);
        }
    }
    // Rows of very different sizes do not matter.
    for form in FORMS {
        let system = dominant(form, 4000, 1);
        let graded = |i: usize, v: f64| v * 10f64.powi((i % 20) as i32 - 10);
        let b = system.b[0].iter().enumerate().map(|(i, &b)| graded(i, b)).collect();
        let solution = check(machine, &changed(&system, b, graded));
        assert_eq!(solution.method, Method::OnePass);
    }
}

fn systems_of_a_batch_are_independent(machine: &Opened) {
    let [five, blocks] = FORMS;
    for (form, n) in [(five, 1), (five, 7), (blocks, 10), (five, 301)] {
        let many = dominant(form, n, 40);
        let solution = check(machine, &many);
        assert_eq!(solution.method, Method::OnePass);
    }
    // With far-reaching couplings, windows of whole systems read no row twice. If the size is
    // odd, a window contains an even number of systems.
    for (n, block) in [(301, 602), (512, 1024), (1024, 1024)] {
        let all = 9 * n;
        let arrays = [1.0, -4.0, 6.01, -4.0, 1.0].map(|v| vec![v; all]);
        let b = vec![(0..all).map(|i| ((i * i) % 17) as f64 - 8.0).collect()];
        let many = BandedSystem::pentadiagonal(9, arrays, b).expect("lengths fit");
        let solution = check(machine, &many);
        assert_eq!(solution.method, Method::OnePass);
        // Single precision loses couplings sooner, and processors prefer windows to whole
        // systems.
        let any = machine.is_cpu() || machine.precision == F32;
        assert!(any || solution.block == block, "{}", solution.block);
    }
    // A singular system is reported, and the others are solved.
    let n = 9;
    let singular = system(five, n, 30, |_, sum| 1.1 * sum);
    let b = singular.b[0].clone();
    let singular = changed(&singular, b, |i, v| if i / n == 17 { 0.0 } else { v });
    let solution = solve_banded(machine, &singular, &Options::default()).expect("it runs");
    assert_eq!((solution.status, solution.singular), (Status::NotMet, Some((17, 0))));
    for (s, x) in solution.x[0].chunks(n).enumerate() {
        assert!(x.iter().all(|x| x.is_finite() == (s != 17)), "system {s}: {x:?}");
    }
}

fn a_plan_computes_the_first_solution(machine: &Opened) {
    fn resident<T: Number>(machine: &Machine, system: &BandedSystem) {
        let mut plan =
            BandedPlan::<T>::new(&machine.lanes, system).expect("it fits").expect("windows are enough");
        let mut x = vec![0.0; system.rows()];
        assert!(plan.solve(system, &system.b[0], &mut x).expect("it runs"));
        let (seconds, certified) = plan.solve_resident(2).expect("it runs");
        assert!(certified && seconds > 0.0);
        let options = Options::default().refine(Refine::Steps(0)).tolerance(1e-5);
        let solution = solve_banded(machine, system, &options).expect("it runs");
        assert!(solution.x[0] == x && solution.device_bytes == plan.device_bytes());
        // 7 numbers per row, 8 with blocks, and less than 1 % of other memory.
        let numbers = system.form().width() * system.arrays().len() + 2;
        let least = (numbers * system.rows()) as u64 * T::PRECISION.bytes();
        assert!((least..least + least / 100).contains(&plan.device_bytes()), "{}", plan.device_bytes());
    }
    let of = if machine.precision == F32 { resident::<f32> } else { resident::<f64> };
    FORMS.into_iter().for_each(|form| of(machine, &dominant(form, 30_000, 1)));
}

on_usual_lanes! {
    [
        every_size_is_solved_in_one_pass,
        lanes_and_parts_change_no_bit,
        windows_grow_with_the_decay_length,
        slow_decay_in_some_rows_is_detected,
        hard_rows_go_to_the_host,
        systems_of_a_batch_are_independent,
        a_plan_computes_the_first_solution,
    ]
}

/// Pivoting on the host without the pre-check, for each form and its transpose.
#[test]
fn pivoting_on_the_host_and_transposing_agree_with_dense_elimination() {
    let machine = cpu();
    let options = Options::default().pivot(Pivot::Scaled);
    for n in [1, 2, 3, 4, 5, 6, 7, 8, 21, 22, 40] {
        for form in FORMS.into_iter().filter(|&form| form == Form::Pentadiagonal || n % 2 == 0) {
            let given = system(form, n, 1, |i, sum| if i % 4 == 1 { 0.0 } else { 0.3 * sum + 0.1 });
            let transposed = given.clone().transposed();
            for (i, system) in (0..n).flat_map(|i| [(i, &given), (i, &transposed)]) {
                let other = if std::ptr::eq(system, &given) { &transposed } else { &given };
                for (column, v) in system.row(i) {
                    let there = other.row(column).into_iter().find(|&(k, _)| k == i);
                    assert!(v == 0.0 || there == Some((i, v)), "{form:?} of {n} rows: ({i}, {column})");
                }
            }
            assert_eq!(transposed.clone().transposed(), given);
            for system in [&given, &transposed] {
                let solution = solve_banded(&machine, system, &options).expect("it runs");
                let found = (solution.status, solution.method);
                assert_eq!(found, (Status::Met, Method::Host), "{form:?} of {n} rows");
                assert!(error(system, &system.b[0], &solution.x[0]) <= 8.0 * f64::EPSILON);
            }
        }
    }
}

/// Returns a singular matrix of integers with row sums of 0 and the right-hand side 1. `beside`
/// returns the elements off the diagonal.
fn zero_sums(form: Form, n: usize, beside: impl FnMut() -> f64) -> BandedSystem {
    filled(form, n, vec![1.0; n], beside, |_, row| -row.iter().sum::<f64>())
}

#[test]
fn row_sums_of_zero_are_singular_in_every_way() {
    let auto = Options::default();
    let ways = [auto, auto.pivot(Pivot::None), auto.pivot(Pivot::Scaled), auto.refine(Refine::Steps(0))];
    let lanes = [("cpu", F64), ("cpu,cpu", F64), ("cpu", F32)];
    let machines = lanes.map(|(spec, precision)| machine(spec, precision).expect("the CPU opens"));
    for n in (5..=40).chain([1000, 20_000]) {
        let mut r = Numbers(0x9e37_79b9_7f4a_7c15 ^ n as u64);
        for form in FORMS.into_iter().filter(|&form| form == Form::Pentadiagonal || n % 2 == 0) {
            for kind in ["Laplace", "signs", "random"] {
                let mut system = zero_sums(form, n, || match kind {
                    "Laplace" => -1.0,
                    "signs" => r.signed().signum(),
                    _ => (10.0 * r.signed()).round(),
                });
                // Right-hand sides in the range of the matrix.
                let sums = (0..n).map(|i| system.row(i).iter().map(|&(k, v)| v * (k % 7) as f64).sum());
                system.b.extend([sums.collect(), vec![0.0; n]]);
                let columns = system.clone().transposed();
                let every = ways.iter().map(|options| (&machines[0], options, &system));
                let other = machines.iter().map(|machine| (machine, &auto, &columns));
                let few = if n > 1000 { 1 } else { usize::MAX };
                for (machine, options, system) in every.take(few).chain(other.take(few)) {
                    let solution = solve_banded(machine, system, options).expect("it runs");
                    let way = format!("{form:?}, {kind}, n = {n}, {options:?}, {}", machine.precision);
                    assert!(solution.singular.is_some(), "{way}: {:?}", solution.residual);
                    assert_eq!(solution.status, Status::NotMet, "{way}");
                    assert!(solution.x.iter().flatten().any(|x| x.is_nan()), "{way}");
                }
            }
        }
    }
}

#[test]
fn nearly_singular_matrices_are_solved() {
    let machine = machine("cpu", F64).expect("the CPU opens");
    // The share that the last diagonal element adds makes the matrix regular.
    for (n, share) in [(6, 1e-13), (40, 1e-12), (100, 1e-12), (3000, 1e-10), (100_000, 1e-8)] {
        for form in FORMS {
            let regular = zero_sums(form, n, || -1.0);
            let mut arrays: Vec<Vec<f64>> = regular.arrays().to_vec();
            let diagonal = &mut arrays[if form == Form::Pentadiagonal { 2 } else { 1 }];
            *diagonal.last_mut().expect("a row") += share;
            let mut b = vec![0.0; n];
            b[n - 1] = share;
            let system = banded(1, arrays, vec![b]);
            for system in [system.clone(), system.transposed()] {
                let solution = solve_banded(&machine, &system, &Options::default()).expect("it runs");
                let (what, found) = (format!("{form:?}, n = {n}"), (solution.status, solution.singular));
                assert_eq!(found, (Status::Met, None), "{what}, share {share}: {:?}", solution.residual);
            }
        }
    }
}

#[test]
fn inconsistent_arrays_are_rejected() {
    let five = |n: usize| [(); 5].map(|()| vec![1.0; n]);
    let mut short = five(3);
    short[4].pop();
    for (batch, arrays, b, why) in [
        (1, five(0), vec![vec![]], "0 rows"),
        (2, five(3), vec![vec![0.0; 3]], "cannot be 2 systems"),
        (1, five(3), vec![], "no right-hand side"),
        (1, five(3), vec![vec![0.0; 4]], "4 numbers, but there are 3 rows"),
        (1, short, vec![vec![0.0; 3]], "du2 has 2 numbers"),
    ] {
        expect_error(BandedSystem::pentadiagonal(batch, arrays, b), why);
    }
    let three = [(); 3].map(|()| vec![1.0; 6]);
    expect_error(BandedSystem::blocks(1, three, vec![vec![0.0; 3]]), "blocks of 2 × 2");

    let mut arrays = five(4);
    (arrays[0][1], arrays[4][2], arrays[1][2]) = (f64::NAN, f64::INFINITY, f64::NAN);
    let system = BandedSystem::pentadiagonal(1, arrays, vec![vec![0.0; 4]]).expect("lengths fit");
    let said = system.check().expect_err("it is refused").to_string();
    assert_eq!(said, "dl of row 2 is NaN: expected a finite number");
}
