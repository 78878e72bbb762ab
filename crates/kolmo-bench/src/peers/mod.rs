//! Tridiagonal solvers of other libraries, measured in one run with kolmo: LAPACK on the host and
//! cuSPARSE on the device. The libraries are opened at run time.

pub mod cusparse;
pub mod lapack;

use kolmo::tridiagonal::{BandedSystem, System};

/// Returns dl, d, du and b, with 0 in the unused elements, which not every library ignores.
fn rows(system: &System) -> [Vec<f64>; 4] {
    let (mut dl, mut du) = (system.dl.clone(), system.du.clone());
    dl.iter_mut().step_by(system.n).for_each(|v| *v = 0.0);
    du.iter_mut().skip(system.n - 1).step_by(system.n).for_each(|v| *v = 0.0);
    [dl, system.d.clone(), du, system.b[0].clone()]
}

/// Relative residual of a peer's solution of a tridiagonal system.
fn residual(system: &System, x: &[f64]) -> f64 {
    system.residual(&system.b[0], x, &mut []).normwise
}

/// Relative residual of a peer's solution of a pentadiagonal or block tridiagonal system.
fn banded_residual(system: &BandedSystem, x: &[f64]) -> f64 {
    system.residual(&system.b[0], x, &mut []).normwise
}
