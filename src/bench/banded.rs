//! Benchmarks of pentadiagonal and block tridiagonal systems, on the device and from host to host.

use super::lanes::resident_seconds;
use super::*;
use crate::tridiagonal::{BandedPlan, BandedSystem};

/// Times of solving a pentadiagonal or block tridiagonal system.
#[derive(Debug, Clone)]
pub struct BandedTimes {
    /// Solutions with all data on the device.
    pub resident: ResidentTimes,
    /// Solutions from host to host, including the transfer of the matrix.
    pub host: Spread,
}

/// Measures `system` on the single lane of a machine.
/// Fails with [`Error::Invalid`] if windows do not suffice and the host would eliminate.
pub fn banded_times(machine: &Machine, system: &BandedSystem, repeat: usize) -> Result<BandedTimes> {
    by_floating!(machine.precision, times(&machine.lanes, system, repeat))
}

fn times<T: Number>(lanes: &[Lane], system: &BandedSystem, repeat: usize) -> Result<BandedTimes> {
    let refused =
        |why: &str| Err(Error::invalid(format!("{why}: the host eliminates, which is not measured")));
    let Some(mut plan) = BandedPlan::<T>::new(lanes, system)? else {
        return refused("couplings reach further than windows");
    };
    let mut x = vec![0.0; system.rows()];
    if !plan.solve(system, &system.b[0], &mut x)? {
        return refused("windows are not enough");
    }
    let seconds = resident_seconds(repeat, |count| Ok(plan.solve_resident(count)?.0))?;
    let numbers = (system.form().width() * system.arrays().len() + 2) * system.rows();
    let resident = ResidentTimes {
        seconds,
        one_pass: true,
        residual: system.residual(&system.b[0], &x, &mut []).normwise,
        extra_memory: plan.device_bytes() as f64 / (numbers as u64 * T::PRECISION.bytes()) as f64 - 1.0,
    };
    let host = Spread::measure(repeat.min(5), || {
        plan.forget();
        let at = Instant::now();
        plan.solve(system, &system.b[0], &mut x)?;
        Ok::<_, Error>(at.elapsed().as_secs_f64())
    })?;
    Ok(BandedTimes { resident, host })
}
