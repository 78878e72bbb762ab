//! Kernels: one WGSL text, one name, one CPU twin.
//!
//! A kernel's file stem is its entry point, its Rust constant, its label in profilers and its CPU twin. The text
//! is written for `f64` in one line, `alias real = f64;`, which a lane of single precision replaces. Every
//! kernel has one immediate, a struct of `u32`s whose first member is the number of the step it runs, and
//! storage buffers bound in the order of `@binding`.

#[cfg(feature = "cuda")]
pub mod cuda;
mod interface;
mod real;
#[cfg(any(feature = "wgpu", feature = "cuda"))]
pub mod reflect;

pub use interface::{Binding, Interface, Scalar, View};
pub use real::{Precision, Real};

use crate::lane::cpu::Call;

/// A kernel for every lane.
#[derive(Debug)]
pub struct Kernel {
    /// File stem, entry point, label.
    pub name: &'static str,
    /// The text in double precision: the kernel's own, then what it shares with others.
    pub wgsl: &'static str,
    /// CUDA: least number of groups that a multiprocessor is to hold at once, where the compiler's own choice of
    /// registers is a bad one; 0 where it is not.
    pub cuda_groups: u32,
    /// The CPU twin in single precision.
    pub cpu_f32: fn(&Call<'_>),
    /// The CPU twin in double precision.
    pub cpu_f64: fn(&Call<'_>),
    /// What a launch gives it.
    pub interface: Interface,
    /// Threads in a workgroup.
    pub group: u32,
    /// Whether its text's `SOME` is true.
    pub some: bool,
}

impl Kernel {
    /// Threads in a workgroup, the same in the text of every kernel.
    pub const GROUP: u32 = 256;

    /// This kernel with [`Self::cuda_groups`].
    pub const fn with_cuda_groups(self, cuda_groups: u32) -> Self {
        Self { cuda_groups, ..self }
    }

    /// The text for a precision.
    pub fn text(&self, precision: Precision) -> String {
        let text = match precision {
            Precision::F64 => self.wgsl.to_owned(),
            Precision::F32 => self.wgsl.replace("alias real = f64;", "alias real = f32;"),
        };
        // Such a kernel has what is different behind its name: walk_grid_512, step_some.
        let named = |stem: &str, text: String| {
            text.replace(&format!("fn {stem}(@builtin"), &format!("fn {}(@builtin", self.name))
        };
        if self.some {
            let text = text.replace("const SOME = false;", "const SOME = true;");
            return named(self.name.trim_end_matches("_some"), text);
        }
        if self.group == Self::GROUP {
            return text;
        }
        let stem = self.name.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('_');
        let text = text
            .replace("const GROUP = 256u;", &format!("const GROUP = {}u;", self.group))
            .replace("@workgroup_size(256)", &format!("@workgroup_size({})", self.group));
        named(stem, text)
    }

    /// A kernel for workgroups of another size, whose text has the line `const GROUP = 256u;`.
    pub const fn sized(&self, name: &'static str, group: u32) -> Self {
        Self { name, group, ..*self }
    }

    /// A kernel for some of the items, whose text has the line `const SOME = false;`.
    pub const fn some(&self, name: &'static str) -> Self {
        Self { name, some: true, ..*self }
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
    kernels.extend(crate::walk::sequence::KERNELS);
    kernels.extend(crate::walk::kernels::ALL);
    kernels.extend([
        &crate::bench::TRIAD,
        &crate::bench::COPY,
        &crate::bench::walk::CSR_SWEEP,
        &crate::lane::SELF_TEST,
    ]);
    kernels
}

/// Kernels that share the text of another.
pub fn variants() -> Vec<&'static Kernel> {
    crate::transient::kernels::SOME.into_iter().chain(crate::walk::grid::sizes()).collect()
}

/// Registers `shaders/<name>.wgsl` with the generic function of that name in scope as its CPU twin:
///
/// ```text
/// kernel! {
///     /// A vector times a number.
///     pub static SCALE = scale(first, rows, own)(factors: &[T], y: &mut [T]);
/// }
/// ```
///
/// The parameters behind `step` and the bindings have the names and the order of the text; what the kernel writes is
/// `&mut`. `T` is the type of real numbers. What the text shares with others lies in `shaders/lib/`: `= walk + tree(…)`
/// has `lib/tree.wgsl` behind `walk.wgsl`.
macro_rules! kernel {
    ($($(#[$doc:meta])* $visibility:vis static $constant:ident = $name:ident $(+ $library:ident)*
        ($($param:ident),* $(,)?)(
        $($binding:ident: & $($access:ident)? [$element:ty]),* $(,)?
    ) $(.$with:ident($value:expr))?;)+) => {$(
        $(#[$doc])*
        $visibility static $constant: $crate::kernel::Kernel = $crate::kernel::Kernel {
            name: stringify!($name),
            wgsl: concat!(
                include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/shaders/", stringify!($name), ".wgsl")),
                $("\n", include_str!(concat!(
                    env!("CARGO_MANIFEST_DIR"), "/shaders/lib/", stringify!($library), ".wgsl"
                )),)*
            ),
            cuda_groups: 0,
            cpu_f32: $name::<f32>,
            cpu_f64: $name::<f64>,
            interface: $crate::kernel::Interface {
                params: &["step", $(stringify!($param)),*],
                single: {
                    #[allow(dead_code, reason = "some kernels have no real numbers")]
                    type T = f32;
                    &[$($crate::kernel::Binding::of::<& $($access)? [$element]>(stringify!($binding))),*]
                },
                double: {
                    #[allow(dead_code, reason = "some kernels have no real numbers")]
                    type T = f64;
                    &[$($crate::kernel::Binding::of::<& $($access)? [$element]>(stringify!($binding))),*]
                },
            },
            group: $crate::kernel::Kernel::GROUP,
            some: false,
        }$(.$with($value))?;
    )+};
}
pub(crate) use kernel;
