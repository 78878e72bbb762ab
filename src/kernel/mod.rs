//! Kernels: a WGSL text and a CPU implementation of one name.
//!
//! The stem of a kernel's file names its entry point, its label in profilers, its CPU
//! implementation and the module of its parameters and arguments. The line `alias real = f64;`
//! makes the text one for `f64`; other precisions replace this line. Shared functions from
//! `shaders/lib/` are appended to the text. In fixed point `lib/q64.wgsl` replaces
//! `lib/float.wgsl`, or `lib/q64_limbs.wgsl` on devices without 64-bit integers. Every kernel has
//! one immediate and storage buffers bound in the order of `@binding`. The immediate is a struct of
//! `u32`s; its first member is the number of the current step.

pub(crate) mod block_sums;
pub(crate) mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod interface;
mod precision;
mod q64;
mod real;

pub use cpu::BindingView;
pub(crate) use interface::Arguments;
pub use interface::{Binding, Interface, Scalar};
pub use precision::Precision;
pub use q64::Q64;
pub(crate) use q64::quotient;
pub(crate) use real::fma;
pub use real::{Number, Real};

use cpu::Call;

/// A kernel that every lane can run.
#[derive(Debug)]
pub struct Kernel {
    /// Name of the WGSL file (stem), of the entry point, and in profilers.
    pub name: &'static str,
    /// The text in double precision: the kernel's own, then the shared files of `shaders/lib/`.
    pub wgsl: &'static str,
    /// Minimum number of workgroups resident on a CUDA multiprocessor, which limits registers. With
    /// 0 the compiler chooses the number of registers.
    pub least_cuda_groups: u32,
    /// CPU implementation in single precision.
    pub cpu_f32: fn(&Call<'_>),
    /// CPU implementation in double precision.
    pub cpu_f64: fn(&Call<'_>),
    /// CPU implementation in fixed point, if there is one.
    pub cpu_q64: Option<fn(&Call<'_>)>,
    /// Names and types of the parameters and bindings of a launch.
    pub interface: Interface,
    /// Values of `override` constants that differ from the defaults in the text.
    pub constants: &'static [(&'static str, f64)],
}

impl Kernel {
    /// Default number of threads in a workgroup.
    pub const GROUP: u32 = 256;

    /// Returns this kernel with a new value of [`Self::least_cuda_groups`].
    pub const fn with_cuda_groups(self, least_cuda_groups: u32) -> Self {
        Self { least_cuda_groups, ..self }
    }

    /// Returns this kernel with new values of `override` constants.
    pub const fn with(&self, constants: &'static [(&'static str, f64)]) -> Self {
        Self { constants, ..*self }
    }

    /// Returns the number of threads in a workgroup: `GROUP` of [`Self::constants`], or 256.
    pub fn group(&self) -> u32 {
        self.constants
            .iter()
            .find(|(name, _)| *name == "GROUP")
            .map_or(Self::GROUP, |&(_, value)| value as u32)
    }

    /// Returns the text in a precision.
    pub fn text(&self, precision: Precision) -> String {
        match precision {
            Precision::F64 => self.wgsl.to_owned(),
            Precision::F32 => self.wgsl.replace(ALIAS, "alias real = f32;"),
            Precision::Q64 => self.wgsl.replace(ALIAS, WORDS).replace(FLOAT, Q64_TEXT),
        }
    }

    /// Returns the text in fixed point for devices without 64-bit integers.
    pub fn text_in_limbs(&self) -> String {
        self.wgsl.replace(ALIAS, WORDS).replace(FLOAT, Q64_LIMBS)
    }

    /// Returns the text for WebGPU in browsers, which lacks immediates and 64-bit numbers.
    pub fn text_for_browsers(&self, precision: Precision) -> String {
        let text = match precision {
            Precision::Q64 => self.text_in_limbs(),
            _ => self.text(precision),
        };
        text.replace("var<immediate> p:", "@group(1) @binding(0) var<uniform> p:")
    }

    /// Returns true if the kernel is available in a precision.
    pub fn has(&self, precision: Precision) -> bool {
        precision != Precision::Q64 || self.cpu_q64.is_some()
    }

    /// Returns the CPU implementation for a precision.
    pub fn cpu(&self, precision: Precision) -> fn(&Call<'_>) {
        match precision {
            Precision::F32 => self.cpu_f32,
            Precision::F64 => self.cpu_f64,
            Precision::Q64 => {
                self.cpu_q64.unwrap_or_else(|| panic!("kernel '{}' has no fixed-point form", self.name))
            }
        }
    }
}

/// Line of a kernel's WGSL text that sets the type of real numbers.
const ALIAS: &str = "alias real = f64;";
/// Replacement of [`ALIAS`] in fixed point: a number is a pair of words.
const WORDS: &str = "alias real = vec2<u32>;";
/// Floating-point arithmetic; [`Q64_TEXT`] or [`Q64_LIMBS`] replaces it in fixed point.
const FLOAT: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/shaders/lib/float.wgsl"));
const Q64_TEXT: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/shaders/lib/q64.wgsl"));
const Q64_LIMBS: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/shaders/lib/q64_limbs.wgsl"));

/// Registers `shaders/<name>.wgsl`, with the function `<name>` as its CPU implementation:
///
/// ```text
/// kernel! {
///     /// A vector times a number.
///     pub static SCALE = scale(first, rows, own)(factors: &[T], y: &mut [T]);
/// }
/// ```
///
/// The parameters after `step` and the bindings have the names and the order of the text. Arrays
/// that the kernel writes are `&mut`. `T` is the type of real numbers. A launch takes
/// `scale::Params` and `scale::Args`, structs with these members. The CPU implementation is
/// `fn scale<T: Real>(call: &Call<'_>, p: scale::Params, b: scale::Bindings<'_, T>)`.
///
/// * `(like scale)` instead of the parameters reuses those of the kernel `scale`.
/// * `= walk + tree(…)` appends `shaders/lib/tree.wgsl` to `walk.wgsl`.
/// * `in q64` after the bindings adds fixed point; the CPU implementation is then generic in
///   [`Number`].
macro_rules! kernel {
    (@q64 , $cpu:expr) => { None };
    (@q64 q64, $cpu:expr) => { Some($cpu) };
    (@params like $other:ident) => { pub(crate) use super::$other::Params; };
    (@params $($param:ident),* $(,)?) => {
        /// Parameters, in the order of the text.
        #[repr(C)]
        #[derive(Debug, Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
        pub(crate) struct Params {
            pub(crate) step: u32,
            $(pub(crate) $param: u32,)*
        }

        impl Params {
            pub(crate) const NAMES: &'static [&'static str] = &["step", $(stringify!($param)),*];
        }
    };
    ($($(#[$doc:meta])* $visibility:vis static $constant:ident = $name:ident $(+ $library:ident)*
        ($($params:tt)*)(
        $($binding:ident: & $($access:ident)? [$element:ty]),* $(,)?
    ) $(in $q64:ident)? $(.$with:ident($value:expr))*;)+) => {$(
        $(#[$doc])*
        $visibility static $constant: $crate::kernel::Kernel = $crate::kernel::Kernel {
            name: stringify!($name),
            wgsl: concat!(
                include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/shaders/", stringify!($name), ".wgsl")),
                $("\n", include_str!(concat!(
                    env!("CARGO_MANIFEST_DIR"), "/shaders/lib/", stringify!($library), ".wgsl"
                )),)*
            ),
            least_cuda_groups: 0,
            cpu_f32: |call| $name(call, call.params(), $name::Bindings::<f32>::of(call)),
            cpu_f64: |call| $name(call, call.params(), $name::Bindings::<f64>::of(call)),
            cpu_q64: $crate::kernel::kernel!(
                @q64 $($q64)?, |call| $name(call, call.params(), $name::Bindings::<$crate::kernel::Q64>::of(call))
            ),
            interface: $crate::kernel::Interface {
                params: $name::Params::NAMES,
                single: $name::Bindings::<f32>::LIST,
                double: $name::Bindings::<f64>::LIST,
                fixed: $name::Bindings::<$crate::kernel::Q64>::LIST,
            },
            constants: &[],
        }$(.$with($value))*;

        #[allow(clippy::module_inception, reason = "a kernel's file has its name, too")]
        pub(crate) mod $name {
            #![allow(dead_code, reason = "a CPU implementation may do without a parameter or an array")]

            use $crate::kernel::{Arguments, Binding, BindingView};
            use $crate::kernel::cpu::Call;

            $crate::kernel::kernel!(@params $($params)*);

            #[derive(Debug, Clone, Copy)]
            pub(crate) struct Args<A> {
                $(pub(crate) $binding: A,)*
            }

            impl<A: Copy> Arguments<A> for Args<A> {
                type Params = Params;
                const KERNEL: &'static str = stringify!($name);

                fn list(&self) -> Vec<A> {
                    vec![$(self.$binding),*]
                }
            }

            /// Arrays that the CPU implementation receives.
            pub(crate) struct Bindings<'a, T> {
                $(pub(crate) $binding: &'a $($access)? [$element],)*
                real: std::marker::PhantomData<T>,
            }

            impl<'a, T> Bindings<'a, T> {
                /// Wraps arrays of the host, for calls outside a launch.
                #[allow(dead_code, clippy::too_many_arguments, reason = "few CPU implementations are called without a launch")]
                pub(crate) fn over($($binding: &'a $($access)? [$element]),*) -> Self {
                    Self { $($binding,)* real: std::marker::PhantomData }
                }
            }

            impl<'a, T: $crate::kernel::Number> Bindings<'a, T> {
                pub(crate) const LIST: &'static [Binding] =
                    &[$(Binding::of::<& $($access)? [$element]>(stringify!($binding))),*];

                pub(crate) fn of(call: &Call<'a>) -> Self {
                    let mut place = 0..;
                    let mut next = || place.next().unwrap_or_default();
                    Self { $($binding: BindingView::of(call, next()),)* real: std::marker::PhantomData }
                }
            }
        }
    )+};
}
pub(crate) use kernel;
