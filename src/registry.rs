//! List of all kernels, for tests and tools.

use crate::kernel::Kernel;

/// Returns every kernel of the crate: one for each file in `shaders/`.
pub fn all() -> Vec<&'static Kernel> {
    let mut kernels = crate::transient::step::vector_kernels::ALL.to_vec();
    kernels.push(&crate::transient::columns::kernels::COLUMN_CHANGE);
    kernels.extend(crate::transient::gradient::kernels::KERNELS);
    kernels.extend(crate::transient::transition_matrices::KERNELS);
    kernels.extend(crate::tridiagonal::KERNELS);
    kernels.extend(crate::walk::kernels());
    kernels.extend([&crate::lane::bandwidth::TRIAD, &crate::lane::bandwidth::COPY, &crate::lane::SELF_TEST]);
    kernels
}

/// Returns the kernels that share the source file of another kernel.
pub fn variants() -> Vec<&'static Kernel> {
    crate::transient::step::vector_kernels::VARIANTS
        .into_iter()
        .chain(&crate::transient::columns::kernels::CHANGE_COLUMNS[..3])
        .chain(&crate::transient::columns::kernels::NORM_COLUMNS)
        .chain(crate::transient::transition_matrices::VARIANTS)
        .collect()
}
