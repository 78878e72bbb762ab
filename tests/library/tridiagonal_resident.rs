//! Systems whose numbers are on a device and stay there.
//!
//! Their backward error is that which the host computes.

use crate::support::{Opened, cpu, cpu_in, expect_error, machine};
use crate::tridiagonal::{dominant, upload};
use kolmo::Machine;
use kolmo::kernel::Precision::{F32, F64};
use kolmo::tridiagonal::{Options, Resident, Residual, Status, System, solve};

fn filled<'a>(machine: &'a Machine, system: &System) -> Resident<'a> {
    let mut resident =
        Resident::new(machine, system.n, system.batch, system.cyclic).expect("the lane has room");
    upload(&machine.lanes[0], resident.arrays(), system);
    resident
}

fn unknowns(machine: &Machine, resident: &mut Resident<'_>, rows: usize) -> Vec<f64> {
    let mut x = vec![0.0; rows];
    machine.lanes[0].download(&resident.arrays().x, 0, &mut x).expect("it runs");
    x
}

/// Returns a dominant cyclic system of n rows, with corner elements ¼ and −¼.
fn ring(n: usize) -> System {
    let mut system = dominant(n, 1, 35);
    (system.dl[0], system.du[n - 1]) = (0.25, -0.25);
    system.d.iter_mut().for_each(|d| *d += d.signum());
    system.cyclic()
}

/// Systems for one pass over overlapping tiles (windows), for two passes, and cyclic ones.
///
/// The backward error is compared with the host's.
fn systems_are_solved_on_the_device(machine: &Opened) {
    let mut systems: Vec<System> = [(1, 1), (7, 1), (100, 9), (2048, 1), (2049, 3), (100_003, 1)]
        .map(|(n, batch)| dominant(n, batch, 35))
        .into();
    systems.extend([ring(3), ring(500), ring(20_011)]);
    // Slow decay everywhere: two passes.
    let n = 30_011;
    let slow = System::new(vec![-1.0; n], vec![2.0001; n], vec![-1.0; n], vec![1e-3; n]);
    systems.push(slow.expect("lengths fit"));
    for system in &systems {
        let at = format!("{} of {}", system.batch, system.n);
        let mut resident = filled(machine, system);
        let told = resident.solve(1e-12).expect("it runs");
        let x = unknowns(machine, &mut resident, system.rows());
        let Residual { componentwise, .. } = system.residual(&system.b[0], &x, &mut []);
        let told = told.unwrap_or_else(|| panic!("{at}: {componentwise:e}"));
        assert!(told.within(1e-12) && told.normwise == told.componentwise, "{at}: {told:?}");
        // Each of the two errors is rounded: less than four units for a sum of four products.
        let close = (told.componentwise - componentwise).abs() <= 4.0 * f64::EPSILON;
        assert!(close, "{at}: {:e}, of the host {componentwise:e}", told.componentwise);
    }
}

/// NaN, infinity and a row that needs an exchange are detected in any place.
fn rows_that_need_the_host_are_detected(machine: &Opened) {
    for n in [5, 2048, 5000] {
        for (row, change) in [(n / 2, f64::NAN), (0, f64::INFINITY), (n - 1, f64::NAN), (n / 3, 1e-3)] {
            let mut system = dominant(n, 1, 36);
            match change == 1e-3 {
                // A row that needs an exchange.
                true => system.d[row] *= change,
                false => system.b[0][row] = change,
            }
            let mut resident = filled(machine, &system);
            assert_eq!(resident.solve(1e-12).expect("it runs"), None, "row {row} of {n}: {change}");
            // The next right-hand side is solved again.
            if change != 1e-3 {
                system.b[0][row] = 1.0;
                machine.lanes[0].upload(&system.b[0], &resident.arrays().b, 0).expect("it runs");
                assert!(resident.solve(1e-12).expect("it runs").is_some(), "row {row} of {n}");
            }
        }
    }
    // All products are zero: x = 0 is the solution. Products that may have lost digits are left
    // to the host.
    let mut system = dominant(3000, 1, 37);
    system.b[0].fill(0.0);
    let mut resident = filled(machine, &system);
    assert_eq!(resident.solve(1e-12).expect("it runs"), Some(Residual::default()));
    machine.lanes[0].upload(&[1e-200; 3000], &resident.arrays().b, 0).expect("it runs");
    assert_eq!(resident.solve(1e-12).expect("it runs"), None);
    // A tolerance below the rounding error.
    machine.lanes[0].upload(&[0.1; 3000], &resident.arrays().b, 0).expect("it runs");
    assert_eq!(resident.solve(1e-19).expect("it runs"), None);
}

instances! {
    [systems_are_solved_on_the_device, rows_that_need_the_host_are_detected]
    cpu_f64("cpu", F64);
    #[cfg(feature = "wgpu")] wgpu_f64("wgpu:0", F64);
    #[cfg(feature = "cuda")] cuda_f64("cuda:0", F64);
}

/// Transposed matrices, which need device addresses: on the CPU, and on CUDA devices.
fn transposed_matrices(spec: &str) {
    let Some(machine) = machine(spec, F64) else { return };
    for mut system in [dominant(1, 1, 38), dominant(33, 5, 38), dominant(9001, 1, 38), ring(700)] {
        // Columns are dominant, too.
        system.d.iter_mut().for_each(|d| *d += 2f64.copysign(*d));
        let mut given = filled(&machine, &system);
        let mut resident = given.transposed().expect("the lane has addresses");
        machine.lanes[0].upload(&system.b[0], &resident.arrays().b, 0).expect("it runs");
        assert!(resident.solve(1e-10).expect("it runs").is_some(), "{} of {}", system.batch, system.n);
        let x = unknowns(&machine, &mut resident, system.rows());
        let wanted = solve(&machine, &system.clone().transposed(), &Options::default()).expect("it runs");
        assert_eq!(wanted.status, Status::Met);
        let close = |(x, y): (&f64, &f64)| (x - y).abs() <= 1e-12 * y.abs().max(1.0);
        assert!(x.iter().zip(&wanted.x[0]).all(close), "{} of {}", system.batch, system.n);
        // The given matrix is unchanged.
        assert!(given.solve(1e-10).expect("it runs").is_some());
    }
}

#[test]
fn transposed_matrices_stay_on_the_cpu_lane() {
    transposed_matrices("cpu");
}

#[cfg(feature = "cuda")]
#[test]
fn transposed_matrices_stay_on_the_cuda_device() {
    transposed_matrices("cuda:0");
}

#[test]
fn systems_that_need_the_host_are_rejected() {
    let double = cpu();
    expect_error(Resident::new(&double, 5, 2, true), "2 cyclic systems");
    expect_error(Resident::new(&double, 0, 1, false), "0 rows");
    expect_error(Resident::new(&cpu_in(F32), 5, 1, false), "f64");
}
