//! Other programs' solvers of tridiagonal systems, in the same run as ours: LAPACK on the host, cuSPARSE on the device.
//! Both are libraries opened at run time.

pub mod cusparse;
pub mod lapack;

use super::Spread;
use kolmo::tridiagonal::{BandedSystem, System};

/// A peer's times.
#[derive(Debug, Clone)]
pub struct PeerTimes {
    /// The routine.
    pub name: &'static str,
    /// The library, as it was found.
    pub library: String,
    /// Of one solution.
    pub seconds: Spread,
    /// Bytes beside dl, d, du, b and x, as a share of these.
    pub extra_memory: f64,
    /// Relative residual of what came out.
    pub residual: f64,
}

/// dl, d, du and b with zeros where nothing is, which not every library ignores.
fn rows(system: &System) -> [Vec<f64>; 4] {
    let (mut dl, mut du) = (system.dl.clone(), system.du.clone());
    dl.iter_mut().step_by(system.n).for_each(|v| *v = 0.0);
    du.iter_mut().skip(system.n - 1).step_by(system.n).for_each(|v| *v = 0.0);
    [dl, system.d.clone(), du, system.b[0].clone()]
}

/// The relative residual of a peer's unknowns.
fn residual(system: &System, x: &[f64]) -> f64 {
    system.residual(&system.b[0], x, &mut []).normwise
}

/// The same in a pentadiagonal or block tridiagonal system.
fn banded_residual(system: &BandedSystem, x: &[f64]) -> f64 {
    system.residual(&system.b[0], x, &mut []).normwise
}
