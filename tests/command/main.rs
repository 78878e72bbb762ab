//! Tests that start the program `kolmo`, alone or under `mpirun`.

#[path = "../devices.rs"]
mod devices;
#[cfg(all(feature = "mpi", target_os = "linux"))]
mod mpirun;
mod schedule;
mod support;

mod checkpoint;
mod cli;
mod cli_faults;
mod cli_files;
mod cli_graph;
mod cli_input;
mod cli_interrupt;
mod cli_plots;
mod cli_tridiagonal;
mod cli_walk;
mod control_group;
mod explicit_models;
mod faults;
mod lane_count;
mod models;
mod project;
mod ranks;
mod ranks_checkpoints;
mod ranks_files;
mod words;
mod wrong_inputs;
