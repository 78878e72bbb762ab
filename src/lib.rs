//! Engines, lanes, kernels and file formats behind the crate `kolmo`.
//!
//! This crate has no stable interface: other crates of the workspace, its tests and benchmarks
//! reach into it. Programs use `kolmo`, which re-exports the stable part.

#![cfg_attr(not(feature = "io"), allow(dead_code, reason = "readers of files use the rest"))]

/// Calls a generic function with the number type of a precision.
macro_rules! by_precision {
    ($precision:expr, $run:ident($($argument:expr),*)) => {
        match $precision {
            $crate::kernel::Precision::F32 => $run::<f32>($($argument),*),
            $crate::kernel::Precision::F64 => $run::<f64>($($argument),*),
            $crate::kernel::Precision::Q64 => $run::<$crate::kernel::Q64>($($argument),*),
        }
    };
}

/// Calls a function with the type of floating-point numbers of a precision; Q64 has that of F64.
macro_rules! by_floating {
    ($precision:expr, $run:ident($($argument:expr),*)) => {
        match $precision {
            $crate::kernel::Precision::F32 => $run::<f32>($($argument),*),
            _ => $run::<f64>($($argument),*),
        }
    };
}

pub mod bench;
#[cfg(test)]
#[path = "../tests/devices.rs"]
mod devices;
pub mod error;
pub mod internals;
#[cfg(feature = "io")]
pub mod io;
pub mod kernel;
pub mod lane;
mod machine;
pub mod models;
mod numerics;
pub mod output;
pub mod pagerank;
mod parallel;
mod progress;
pub mod ranks;
pub mod registry;
#[cfg(feature = "settings")]
pub mod settings;
pub mod sparse;
mod status;
pub mod transient;
pub mod tridiagonal;
mod util;
pub mod walk;

pub use error::{Error, Invalid, Limit, Result};
pub use machine::Machine;
pub use progress::{Iterate, Progress};
pub use status::Status;

/// Tests that calls which could break memory safety do not compile outside of this crate.
///
/// Calls that must compile:
/// ```
/// # #![forbid(unsafe_code)]
/// use kolmo_core::kernel::{Number, Precision, Q64};
/// use kolmo_core::lane::{Arg, DeviceSpec, OpenOptions};
/// let machine = kolmo_core::Machine::open(&[DeviceSpec::Cpu], &OpenOptions::default())?;
/// let (lane, sums) = (&machine.lanes[0], [0u128; 8]);
/// let buffer = lane.alloc_with("numbers", &[1.0])?;
/// let (mut host, kernel) = (lane.host_array::<f64>(1)?, kolmo_core::registry::all()[0]);
/// lane.download(&buffer, 0, &mut host)?;
/// assert_eq!(host[0], 1.0);
/// # Ok::<(), kolmo_core::Error>(())
/// ```
///
/// Copies that continue after the call, of arrays without an owner (must not compile):
/// ```compile_fail
/// # let machine = kolmo_core::Machine::best()?;
/// # let (lane, mut host) = (&machine.lanes[0], [0.0]);
/// # let buffer = lane.alloc_with("numbers", &[1.0])?;
/// lane.fetch(&buffer, 0, &mut host)?;
/// # Ok::<(), kolmo_core::Error>(())
/// ```
/// ```compile_fail
/// # let machine = kolmo_core::Machine::best()?;
/// # let (lane, host) = (&machine.lanes[0], [0.0]);
/// # let buffer = lane.alloc_with("numbers", &[1.0])?;
/// lane.send(&host, &buffer, 0)?;
/// # Ok::<(), kolmo_core::Error>(())
/// ```
///
/// Kernels with parameters and arguments other than their own (must not compile):
/// ```compile_fail
/// use kolmo_core::kernel::Arguments;
/// ```
/// ```compile_fail
/// # let machine = kolmo_core::Machine::best()?;
/// let bind = kolmo_core::lane::Lane::bind;
/// # Ok::<(), kolmo_core::Error>(())
/// ```
///
/// Instructions that a processor may lack (must not compile):
/// ```compile_fail,E0277
/// use kolmo_core::kernel::{Number, Q64};
/// let a = [Q64(1); 8];
/// <Q64 as Number>::stepped_rows::<3, 8>(Default::default(), &[0u128; 8], &a, &a, Q64(0));
/// ```
/// ```compile_fail,E0603
/// use kolmo_core::kernel::cpu::simd::At;
/// ```
///
/// The environment of a process (must not compile):
/// ```compile_fail
/// kolmo_core::lane::prepare_drivers(true);
/// ```
#[cfg(doctest)]
struct Sealed;
