//! One-pass solution with overlapping tiles (windows).
//!
//! A certified solution has the certified error. All other systems are solved in two passes.

use crate::support::{Numbers, Opened, cpu, limited, machine};
use crate::tridiagonal::{dominant, fill, rounded, upload};
use kolmo::Machine;
use kolmo::kernel::Precision::F32;
use kolmo::lane::Lane;
use kolmo::tridiagonal::{Number, Plan, PlanOptions, System, Upload};

/// Solves a system on the device; returns the unknowns, and true if they are certified.
///
/// With `two_passes`, the one-pass solution is skipped.
fn resident<T: Number>(machine: &Machine, system: &System, two_passes: bool) -> (Vec<f64>, bool) {
    let options = PlanOptions::default().pageable(true);
    let mut plan =
        Plan::<T>::with(&machine.lanes, system.n, system.batch, system.cyclic, &options).expect("it fits");
    let arrays = plan.on_device();
    upload(&machine.lanes[0], arrays, system);
    machine.lanes[0].upload(&vec![T::of(f64::NAN); system.rows()], &arrays.x, 0).expect("it fits");
    if two_passes {
        plan.two_passes();
    }
    plan.solve_resident(1).expect("it runs");
    plan.fetch().expect("it runs");
    (plan.x().iter().map(|x| x.wide()).collect(), plan.is_one_pass())
}

fn solved(machine: &Machine, system: &System, two_passes: bool) -> (Vec<f64>, bool) {
    let of = if machine.precision == F32 { resident::<f32> } else { resident::<f64> };
    of(machine, system, two_passes)
}

/// Solves a system rounded to the lane's precision; returns true if one pass sufficed.
///
/// Asserts that a certified solution has the certified error, and that any other solution has the
/// bits of two passes.
#[track_caller]
fn check(machine: &Machine, system: &System) -> bool {
    let precision = machine.precision;
    let system = rounded(system, precision);
    let (x, certified) = solved(machine, &system, false);
    let two = || solved(machine, &system, true).0;
    let residual = |x: &[f64]| system.residual(&system.b[0], x, &mut []).componentwise;
    if !certified {
        let bits = |x: &[f64]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert!(bits(&x) == bits(&two()), "the bits of two passes");
    } else if residual(&x) > 128.0 * precision.unit_roundoff() {
        // Above the limit only by the rounding error of other rows.
        let two = residual(&two());
        assert!(residual(&x) <= 4.0 * two, "{:e}, in two passes {two:e}", residual(&x));
    }
    certified
}

/// Tridiagonal system with the rows (−1, d, −1) and a random right-hand side.
fn toeplitz(n: usize, d: impl Fn(usize) -> f64) -> System {
    let mut r = Numbers(0x3c6e_f372_fe94_f82b ^ n as u64);
    let b = (0..n).map(|_| r.signed()).collect();
    System::new(vec![-1.0; n], (0..n).map(d).collect(), vec![-1.0; n], b).expect("lengths fit")
}

/// Solves from host memory on all lanes; returns unknowns, certification and plan.
fn hosted<'a, T: Number>(lanes: &'a [Lane], system: &System) -> (Vec<f64>, bool, Plan<'a, T>) {
    let mut plan = Plan::<T>::new(lanes, system.n, system.batch, system.cyclic).expect("it fits");
    fill(&mut plan, system);
    plan.solve(Upload::All).expect("it runs");
    (plan.x().iter().map(|x| x.wide()).collect(), plan.is_one_pass(), plan)
}

/// Asserts equal bits on one lane, on several lanes, and with memory for one chunk at a time.
fn check_lanes<T: Number>(one: &Opened) {
    let Some(three) = machine(&[one.spec; 3].join(","), T::PRECISION) else { return };
    let small = limited(one.spec, T::PRECISION, 100_000 * size_of::<T>() as u64);
    // Chunk boundaries before, at and after tile boundaries.
    for n in [2049, 40_000, 57_600, 100_003] {
        let system = rounded(&dominant(n, 1, 23), T::PRECISION);
        let (x, certified) = solved(one, &system, false);
        assert!(certified, "n = {n}");
        for machine in [one, &three, &small] {
            let (hosted, one_pass, mut plan) = hosted::<T>(&machine.lanes, &system);
            assert!(one_pass && hosted == x, "n = {n} on {} lanes", machine.lanes.len());
            assert_eq!(plan.flags().expect("it runs"), 0);
            // A new right-hand side, then a new diagonal.
            plan.inputs().b.iter_mut().for_each(|b| *b = *b + *b);
            plan.solve(Upload::RightHandSide).expect("it runs");
            let twice = |(x, y): (&T, &f64)| x.wide() == 2.0 * y;
            assert!(plan.is_one_pass() && plan.x().iter().zip(&x).all(twice));
            plan.inputs().d[n / 3] = T::of(1e-3);
            plan.solve(Upload::All).expect("it runs");
            assert!(!plan.is_one_pass() && plan.flags().expect("it runs") != 0);
        }
        assert!(n < 10_000 || hosted::<T>(&small.lanes, &system).2.streamed(), "{n} rows in little memory");
    }
    // Weak rows at a chunk boundary.
    let weak = |row: usize| if (32_000..35_000).contains(&row) { 2.0 } else { 4.0 };
    let system = rounded(&toeplitz(100_003, weak), T::PRECISION);
    let two = solved(one, &system, true).0;
    for machine in [one, &three, &small] {
        let (x, one_pass, _) = hosted::<T>(&machine.lanes, &system);
        assert!(!one_pass && x == two, "the bits of two passes on {} lanes", machine.lanes.len());
    }
}

#[test]
fn additional_memory_is_less_than_a_hundredth() {
    let machine = cpu();
    let n = 300_000;
    for (d, one_pass) in [(4.0, true), (2.0, false)] {
        let (_, certified, plan) = hosted::<f64>(&machine.lanes, &toeplitz(n, |_| d));
        let rows = 5 * 8 * n as u64;
        assert_eq!(certified, one_pass);
        let bytes = plan.device_bytes();
        assert!((rows..rows + rows / 100).contains(&bytes), "{bytes} of {rows}");
    }
}

fn lanes_and_chunks_change_no_bit(machine: &Opened) {
    if machine.precision == F32 { check_lanes::<f32>(machine) } else { check_lanes::<f64>(machine) }
}

fn every_size_is_certified(machine: &Opened) {
    let sizes: Vec<usize> = match machine.is_cpu() {
        // Sizes near those of whole systems, of tiles, and of the rows per thread.
        true => (1..=80).chain(1900..2100).chain(3820..3860).chain((80..=5000).step_by(61)).collect(),
        false => (2040..2060).chain([1, 3839, 3840, 3841, 5000, 100_003]).collect(),
    };
    for n in sizes {
        // A system of at most one tile is solved as a whole.
        assert_eq!(check(machine, &dominant(n, 1, 20)), n > 2048, "n = {n}");
    }
    for (n, batch) in [(2049, 3), (3001, 5), (4096, 4), (20_000, 9)] {
        assert!(check(machine, &dominant(n, batch, 21)), "{batch} of {n}");
    }
}

fn windows_grow_with_the_decay_length(machine: &Opened) {
    for d in [-4.0, 3.0, 2.5, 2.2, 2.1, 2.05] {
        assert!(check(machine, &toeplitz(30_011, |_| d)), "d = {d}");
    }
    for d in [2.0, -2.0] {
        assert!(!check(machine, &toeplitz(30_011, |_| d)), "d = {d}");
    }
}

/// Couplings that the pre-check does not see, at the limit of certification.
fn decay_at_the_limit_of_certification_is_distinguished(machine: &Opened) {
    let certified = |excess: f64| {
        let weak = |row: usize| if (9000..10_200).contains(&row) { 2.0 + excess } else { 4.0 };
        check(machine, &toeplitz(40_000, weak))
    };
    let (mut not, mut yes) = (0.0, 2.0);
    assert!(!certified(not) && certified(yes));
    for _ in 0..12 {
        let middle = 0.5 * (not + yes);
        if certified(middle) { yes = middle } else { not = middle }
    }
    // The coupling across 64 rows is ρ^64, or ρ^128 over two equally long paths. Certification
    // limits it to 128 u.
    let rho = |excess: f64| {
        let d = 2.0 + excess;
        (d - (d * d - 4.0f64).sqrt()) / 2.0
    };
    let limit = 128.0 * machine.precision.unit_roundoff();
    let (most, least) = (100.0 * limit, 0.001 * limit);
    let left = rho(yes).powi(64);
    assert!(left < most && left > least, "certified from 2 + {yes} on: {left:e} is left of couplings");
}

fn decay_from_a_single_row_is_not_certified(machine: &Opened) {
    let mut system = toeplitz(30_011, |_| 2.6);
    system.b[0].fill(0.0);
    assert!(check(machine, &system), "0 solves the right-hand side 0");
    // 36 rows before the window of the tile that begins with row 9600.
    system.b[0][9500] = 1.0;
    assert!(!check(machine, &system));
}

fn hard_rows_are_not_certified(machine: &Opened) {
    let n = 12_000;
    for row in [0, 1, 1919, 1920, 7777, n - 2, n - 1] {
        for d in [0.0, 0.5, 1e-30] {
            let mut system = toeplitz(n, |_| 4.0);
            system.d[row] = d;
            assert!(!check(machine, &system), "{d} in row {row}");
        }
    }
    for bad in [f64::NAN, f64::INFINITY] {
        for row in [0, 1919, 1920, n - 1] {
            let mut system = toeplitz(n, |_| 4.0);
            system.b[0][row] = bad;
            let (x, certified) = solved(machine, &system, false);
            assert!(!certified && !x[row].is_finite(), "{bad} in row {row}");
        }
    }
    // Rows of very different sizes do not matter.
    let mut graded = dominant(n, 1, 22);
    for i in 0..n {
        let size = 10f64.powi((i % 20) as i32 - 10);
        for column in [&mut graded.dl, &mut graded.d, &mut graded.du, &mut graded.b[0]] {
            column[i] *= size;
        }
    }
    assert!(check(machine, &graded));
}

on_usual_lanes! {
    [
        lanes_and_chunks_change_no_bit,
        every_size_is_certified,
        windows_grow_with_the_decay_length,
        decay_at_the_limit_of_certification_is_distinguished,
        decay_from_a_single_row_is_not_certified,
        hard_rows_are_not_certified,
    ]
}

/// Unknowns in arrays of the caller have the bits of those in arrays of the library.
#[test]
fn borrowed_arrays_have_the_bits_of_own_ones() {
    use kolmo::tridiagonal::{Factor, Matrix, Method, Options, solve, solve_into};

    let (machine, options) = (cpu(), Options::default());
    for (n, batch, weak, cyclic, wanted) in [
        (40_000, 1, false, false, Some(Method::OnePass)),
        (5000, 3, false, false, Some(Method::OnePass)),
        (40_000, 1, true, false, None),
        (40_000, 1, false, true, None),
        (100, 7, false, false, None),
    ] {
        let mut system = dominant(n, batch, 7);
        system.d.iter_mut().filter(|_| weak).for_each(|d| *d *= 1e-3);
        let System { mut dl, d, mut du, b, .. } = system;
        if cyclic {
            (dl[0], du[n - 1]) = (0.5, -0.5);
        }
        let b = vec![b[0].clone(), b[0].iter().rev().copied().collect()];
        let mut system = System::batched(batch, dl, d, du, b).expect("lengths fit");
        system.cyclic = cyclic;
        let given = Matrix::new(batch, &system.dl, &system.d, &system.du).expect("lengths fit");
        let given = if cyclic { given.cyclic() } else { given };
        let b: Vec<&[f64]> = system.b.iter().map(|b| &b[..]).collect();
        let mut factor = Factor::new(&machine, system.clone(), &options).expect("a sound matrix");
        for transposed in [false, true] {
            let (own, given) = match transposed {
                false => (system.clone(), given.clone()),
                true => (system.clone().transposed(), given.clone().transposed()),
            };
            let kept = solve(&machine, &own, &options).expect("a sound system");
            for by_factor in [false, true] {
                let mut x = vec![vec![f64::NAN; system.rows()]; 2];
                let mut room: Vec<&mut [f64]> = x.iter_mut().map(|x| &mut x[..]).collect();
                let into = match by_factor {
                    false => solve_into(&machine, &given, &b, &mut room, &options, &mut ()),
                    true => factor.solve_into(&b, transposed, &mut room, &mut ()),
                };
                let into = into.expect("a sound system");
                let at = format!("{n} rows, {batch} systems, {weak} {cyclic} {transposed} {by_factor}");
                assert!(x == kept.x && into.x.is_empty(), "{at}: other bits");
                assert_eq!((into.method, into.status), (kept.method, kept.status), "{at}");
                assert_eq!((into.residuals, into.growth), (kept.residuals.clone(), kept.growth), "{at}");
                assert!(transposed || wanted.is_none_or(|wanted| into.method == wanted), "{at}");
            }
        }
    }
    let (ones, mut x) = (vec![1.0; 5000], vec![0.0; 5000]);
    let matrix = Matrix::new(1, &ones, &ones, &ones).expect("lengths fit");
    let refused = |b: &[&[f64]], x: &mut [&mut [f64]], stop: bool| {
        let watch = &mut |_: u64, _: u64| if stop { Err(kolmo::Error::Interrupted) } else { Ok(()) };
        solve_into(&machine, &matrix, b, x, &options, watch).expect_err("refused").to_string()
    };
    assert!(refused(&[], &mut [], false).contains("no right-hand side"));
    assert!(refused(&[&ones], &mut [], false).contains("0 arrays of unknowns for 1 right-hand sides"));
    assert!(refused(&[&ones], &mut [&mut x[1..]], false).contains("x has 4999 numbers"));
    assert_eq!(refused(&[&ones], &mut [&mut x], true), "interrupted");
}
