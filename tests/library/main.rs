//! Tests that call the library. Tests that start the program `kolmo` are in `tests/command/`.

// Tests reach into the core.
extern crate kolmo_core as kolmo;

#[path = "../devices.rs"]
mod devices;
#[macro_use]
mod support;

mod adversarial;
mod chebyshev;
mod checkpoint;
mod columns;
mod cuda_run;
mod cuda_text;
mod curves;
mod expanded;
mod faults;
mod formats;
mod fuzz;
mod graph;
mod interface;
mod kernels;
mod lockstep;
mod long_run;
mod multilevel;
mod q64;
mod sequence;
mod several_lanes;
mod shared_machine;
mod transient;
mod tridiagonal;
mod tridiagonal_banded;
mod tridiagonal_factor;
mod tridiagonal_resident;
mod tridiagonal_tree;
mod tridiagonal_window;
mod walk;
