//! Factored matrices: many right-hand sides, repeated solutions, and transposed matrices.

use crate::support::{Numbers, Opened, cpu, expect_error};
use crate::tridiagonal::{dominant, largest, rounded};
use kolmo::Machine;
use kolmo::kernel::Precision::F32;
use kolmo::tridiagonal::{Factor, Method, Options, Refine, Solution, Status, System, solve};

/// Returns `count` random right-hand sides of `rows` numbers in [−1, 1).
fn right_hand_sides(rows: usize, count: usize) -> Vec<Vec<f64>> {
    let mut r = Numbers(0x3c6e_f372_fe94_f82b ^ (rows * 64 + count) as u64);
    (0..count).map(|_| (0..rows).map(|_| r.signed()).collect()).collect()
}

fn slices(b: &[Vec<f64>]) -> Vec<&[f64]> {
    b.iter().map(|b| &b[..]).collect()
}

/// Asserts that each right-hand side has the solution of [`solve`] alone.
///
/// With `exact`, the bits are equal.
#[track_caller]
fn compare(
    machine: &Machine,
    system: &System,
    b: &[Vec<f64>],
    options: &Options,
    exact: bool,
    got: &Solution,
) {
    assert_eq!([got.x.len(), got.statuses.len(), got.residuals.len()], [b.len(); 3]);
    for (k, b) in b.iter().enumerate() {
        let alone = System { b: vec![b.clone()], ..system.clone() };
        let alone = solve(machine, &alone, options).expect("a sound system");
        let at = format!("n = {}, right-hand side {k} of {}", system.n, got.x.len());
        assert_eq!(got.statuses[k], alone.status, "{at}");
        assert_eq!(got.residuals[k], system.residual(b, &got.x[k], &mut []), "{at}");
        assert_eq!((got.dominant, got.small_pivots), (alone.dominant, alone.small_pivots), "{at}");
        if exact {
            assert!(got.x[k] == alone.x[0], "{at}: other bits than alone");
            assert_eq!(got.method, alone.method, "{at}");
        } else {
            let most = (4.0 * alone.residual.componentwise).max(128.0 * machine.precision.unit_roundoff());
            let residual = got.residuals[k];
            assert!(residual.componentwise <= most, "{at}: {residual:?}, {:?}", alone.residual);
        }
    }
}

/// Matrices of several sizes, with several, one or two right-hand sides.
fn right_hand_sides_have_their_separate_solutions(machine: &Opened) {
    let plain = Options::default().refine(Refine::Steps(0)).tolerance(1e-4);
    let sizes = [(1, 1), (7, 1), (100, 1), (33, 5), (512, 3), (1500, 2), (2048, 1), (2049, 1), (40_000, 1)];
    for (n, batch) in sizes {
        for options in [Options::default(), plain] {
            let system = rounded(&dominant(n, batch, 31), machine.precision);
            let mut factor = Factor::new(machine, system.clone(), &options).expect("numbers are finite");
            // Each right-hand side is also solved alone, which takes long.
            let many = if n == 512 || n == 40_000 { 37 } else { 3 };
            for count in [many, 1, 2] {
                let b = right_hand_sides(n * batch, count);
                let got = factor.solve(&slices(&b)).expect("it runs");
                // Small systems have another position in a tile than alone. The CPU
                // implementation eliminates each system separately.
                let exact = machine.is_cpu() || 2 * n * batch > 2048;
                compare(machine, &system, &b, &options, exact, &got);
                assert_eq!(got.status, Status::Met, "{batch} of {n}");
                assert_eq!(got.method == Method::OnePass, n > 2048, "{batch} of {n}");
            }
        }
    }
}

/// Slow decay everywhere, rows that the pre-check does not read, and rows that need exchanges.
fn other_methods_are_selected_and_kept(machine: &Opened) {
    let n = 20_011;
    let of = |d: &dyn Fn(usize) -> f64| {
        System::matrix(1, vec![-1.0; n], (0..n).map(d).collect(), vec![-1.0; n]).expect("lengths fit")
    };
    let options = Options::default().tolerance(1e-9);
    for (d, method) in [
        (&(|_| 2.0) as &dyn Fn(usize) -> f64, Method::Partition),
        (&|row| if (9400..9900).contains(&row) { 2.0 } else { 4.0 }, Method::Partition),
        (&|row| if row == 7000 { 1e-3 } else { 4.0 }, Method::Pivoted),
    ] {
        let mut factor = Factor::new(machine, of(d), &options).expect("numbers are finite");
        for count in [3, 1] {
            let b = right_hand_sides(n, count);
            let got = factor.solve(&slices(&b)).expect("it runs");
            // Single precision does not always succeed with −1, 2, −1.
            assert!(got.method == method || machine.precision == F32, "{:?}, {method:?}", got.method);
            compare(machine, factor.matrix(), &b, &options, true, &got);
        }
    }
}

fn transposed_solutions_are_those_of_the_transposed_matrix(machine: &Opened) {
    let open = [(1, 1, false), (2, 3, false), (777, 4, false), (5000, 1, false)];
    for (n, batch, cyclic) in open.into_iter().chain([(600, 3, true), (9001, 1, true)]) {
        let mut system = rounded(&dominant(n, batch, 32), machine.precision);
        if cyclic {
            system.dl.iter_mut().chain(&mut system.du).filter(|v| v.is_nan()).for_each(|v| *v = 0.5);
            system.d.iter_mut().for_each(|d| *d += 3f64.copysign(*d));
            system = system.cyclic();
        }
        let transposed = system.clone().transposed();
        let mut factor =
            Factor::new(machine, system.clone(), &Options::default()).expect("numbers are finite");
        for count in [2, 1] {
            let b = right_hand_sides(n * batch, count);
            let got = factor.solve_transposed(&slices(&b)).expect("it runs");
            assert_eq!(got.status, Status::Met, "{batch} of {n}");
            let exact = machine.is_cpu() || 2 * n * batch > 2048 || cyclic;
            compare(machine, &transposed, &b, &Options::default(), exact, &got);
            let given = factor.solve(&slices(&b)).expect("it runs");
            compare(machine, &system, &b, &Options::default(), exact, &given);
        }
    }
}

on_usual_lanes! {
    [
        right_hand_sides_have_their_separate_solutions,
        other_methods_are_selected_and_kept,
        transposed_solutions_are_those_of_the_transposed_matrix,
    ]
}

#[test]
fn each_right_hand_side_has_its_status() {
    let machine = cpu();
    let n = 64;
    let matrix = System::matrix(1, vec![0.0; n], vec![1e-200; n], vec![0.0; n]).expect("lengths fit");
    let mut factor = Factor::new(&machine, matrix, &Options::default()).expect("numbers are finite");
    // The unknowns of the second right-hand side are beyond the range of doubles.
    let got = factor.solve(&[&[1e-100; 64], &[1e200; 64], &[0.0; 64]]).expect("it runs");
    assert_eq!(got.statuses, [Status::Met, Status::NotMet, Status::Met]);
    assert_eq!(got.status, Status::NotMet);
    let again = factor.solve(&[&[1e-100; 64]]).expect("it runs");
    assert_eq!((again.status, &again.statuses[..]), (Status::Met, &[Status::Met][..]));
}

#[test]
fn numbers_that_do_not_fit_a_matrix_are_refused() {
    let machine = cpu();
    let matrix =
        |d: f64| System::matrix(1, vec![0.0; 3], vec![1.0, d, 1.0], vec![0.0; 3]).expect("lengths fit");
    let new = |d| Factor::new(&machine, matrix(d), &Options::default());
    expect_error(new(f64::NAN), "d of row 1 is NaN");
    let mut factor = new(1.0).expect("numbers are finite");
    expect_error(factor.solve(&[]), "no right-hand side");
    expect_error(factor.solve(&[&[1.0; 2]]), "b has 2 numbers, but d has 3");
    let infinite = factor.solve(&[&[1.0; 3], &[1.0, 1.0, f64::INFINITY]]);
    expect_error(infinite, "b (right-hand side 1) of row 2");
}

/// Cyclic systems that are nearly singular or not dominant are solved separately, in tiles.
#[test]
fn difficult_cyclic_systems_are_solved_separately() {
    let machine = cpu();
    let options = Options::default().refine(Refine::Steps(0));
    let (n, batch) = (50, 3);
    let rows = n * batch;
    let ring = |batch: usize, d: &[f64], b: &[f64]| {
        let beside = || vec![-1.0; batch * n];
        System::batched(batch, beside(), d.to_vec(), beside(), vec![b.to_vec()])
            .expect("lengths fit")
            .cyclic()
    };
    let b = &right_hand_sides(rows, 1)[0];
    for weak in [2.0 + 1e-9, 1.5] {
        let mut d = vec![3.0; rows];
        d[n..2 * n].fill(weak);
        let got = solve(&machine, &ring(batch, &d, b), &options).expect("it runs");
        for s in 0..batch {
            let here = s * n..(s + 1) * n;
            let alone = ring(1, &d[here.clone()], &b[here.clone()]);
            let alone = solve(&machine, &alone, &options).expect("it runs");
            let bits = |x: &[f64]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert!(bits(&got.x[0][here]) == bits(&alone.x[0]), "{weak}, system {s}");
        }
    }
}

#[test]
fn systems_of_different_sizes_are_solved_as_one() {
    let machine = cpu();
    let sizes = [1, 2, 7, 300, 1, 4000, 64];
    let mut systems: Vec<System> = sizes.iter().map(|&n| dominant(n, 1, 33)).collect();
    let whole = |systems: &[System]| System::joined(systems).expect("they fit");
    let joined = whole(&systems);
    let got = solve(&machine, &joined, &Options::default()).expect("it runs");
    assert_eq!((got.status, got.method), (Status::Met, Method::OnePass));
    let mut at = 0;
    for system in &systems {
        let x = &got.x[0][at..at + system.n];
        let alone = solve(&machine, system, &Options::default()).expect("it runs");
        let close = |(x, y): (&f64, &f64)| (x - y).abs() <= 1e-12 * largest(&alone.x[0]);
        assert!(x.iter().zip(&alone.x[0]).all(close), "n = {}", system.n);
        at += system.n;
    }
    // A singular system spoils no other system, and is identified by its row.
    systems[2].d.fill(0.0);
    let got = solve(&machine, &whole(&systems), &Options::default()).expect("it runs");
    assert_eq!((got.status, got.singular), (Status::NotMet, Some((0, 9))));
    assert!(got.x[0].iter().enumerate().all(|(i, x)| x.is_nan() == (3..10).contains(&i)));

    let other = System::matrix(1, vec![0.0], vec![1.0], vec![0.0]).expect("lengths fit");
    for (with, wanted) in [(other, "0 right-hand sides, but 1"), (dominant(3, 1, 34).cyclic(), "cyclic")] {
        expect_error(System::joined(&[systems[0].clone(), with]), wanted);
    }
}
