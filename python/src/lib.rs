//! Python module `kolmo._kolmo`: connects the arrays of the package `kolmo` with the solvers.

mod chain;
mod device_chain;
mod dlpack;
mod errors;
mod exponential;
mod gradient;
mod graph;
mod long_run;
mod machine;
mod matrix;
mod model;
mod piecewise;
mod prelude;
mod resident;
mod transient;
mod tridiagonal;
mod walk;
mod watch;

#[pyo3::pymodule]
mod _kolmo {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::chain::{PyChain, chain_of_matrix, chain_of_rates, read};
    #[pymodule_export]
    use super::device_chain::PyDeviceChain;
    #[pymodule_export]
    use super::dlpack::{Borrowed, Lent};
    #[pymodule_export]
    use super::exponential::exponential;
    #[pymodule_export]
    use super::gradient::{adjoint, gradient};
    #[pymodule_export]
    use super::graph::{PyGraph, graph_of_links, read_graph};
    #[pymodule_export]
    use super::long_run::long_run;
    #[pymodule_export]
    use super::machine::devices;
    #[pymodule_export]
    use super::model::{PyModel, model_of_text, read_model};
    #[pymodule_export]
    use super::piecewise::piecewise;
    #[pymodule_export]
    use super::resident::{DeviceLane, ResidentFactor};
    #[pymodule_export]
    use super::transient::{transient, transient_batch, transition_matrices};
    #[pymodule_export]
    use super::tridiagonal::{TridiagonalFactor, solve_tridiagonal};
    #[pymodule_export]
    use super::walk::walk;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
