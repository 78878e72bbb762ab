//! Kernels: one WGSL text, one name, one CPU twin.
//!
//! A kernel's file stem is its entry point, its Rust constant, its label in profilers and its CPU twin. The text
//! is written for `f64` in one line, `alias real = f64;`, which a lane of single precision replaces. Every
//! kernel has one immediate, a struct of `u32`s whose first member is the number of the step it runs, and
//! storage buffers bound in the order of `@binding`.

#[cfg(feature = "cuda")]
pub mod cuda;
mod real;
#[cfg(any(feature = "wgpu", feature = "cuda"))]
pub mod reflect;

pub use real::{Precision, Real};

use crate::lane::cpu::Call;

/// A kernel for every lane.
#[derive(Debug)]
pub struct Kernel {
    /// File stem, entry point, label.
    pub name: &'static str,
    /// The text in double precision.
    pub wgsl: &'static str,
    /// The CPU twin in single precision.
    pub cpu_f32: fn(&Call<'_>),
    /// The CPU twin in double precision.
    pub cpu_f64: fn(&Call<'_>),
}

impl Kernel {
    /// Threads in a workgroup, the same in every kernel.
    pub const GROUP: u32 = 256;

    /// The text for a precision.
    pub fn text(&self, precision: Precision) -> String {
        match precision {
            Precision::F64 => self.wgsl.to_owned(),
            Precision::F32 => self.wgsl.replace("alias real = f64;", "alias real = f32;"),
        }
    }

    /// The CPU twin for a precision.
    pub fn twin(&self, precision: Precision) -> fn(&Call<'_>) {
        match precision {
            Precision::F32 => self.cpu_f32,
            Precision::F64 => self.cpu_f64,
        }
    }
}

/// Every kernel of the crate: one for each file in `shaders/`.
pub fn all() -> Vec<&'static Kernel> {
    let mut kernels = crate::transient::kernels::ALL.to_vec();
    kernels.extend(crate::tridiagonal::kernels::ALL);
    kernels.extend([&crate::bench::TRIAD, &crate::bench::COPY, &crate::lane::SELF_TEST]);
    kernels
}

/// Registers `shaders/<name>.wgsl` with the generic function of that name in scope as its CPU twin.
macro_rules! kernel {
    ($name:ident) => {
        $crate::kernel::Kernel {
            name: stringify!($name),
            wgsl: include_str!(concat!("../../shaders/", stringify!($name), ".wgsl")),
            cpu_f32: $name::<f32>,
            cpu_f64: $name::<f64>,
        }
    };
}
pub(crate) use kernel;
