//! Kernels: one WGSL text, one name, one CPU twin.
//!
//! A kernel's file stem is its entry point, its label in profilers, its CPU twin, and the module of its parameters and
//! arguments. The text is written for `f64` in one line, `alias real = f64;`, which other precisions replace; behind it
//! stands what it shares with others, from `shaders/lib/`. In fixed point `lib/q64.wgsl` takes the place of
//! `lib/float.wgsl`, and `lib/q64_limbs.wgsl` where a device has no integers of 64 bits. Every kernel has one immediate, a struct
//! of `u32`s whose first member is the number of the step it runs, and storage buffers bound in the order of `@binding`.

pub(crate) mod block_sums;
#[cfg(feature = "cuda")]
pub mod cuda;
mod interface;
mod q64;
mod real;
#[cfg(any(feature = "wgpu", feature = "cuda"))]
pub mod reflect;
pub(crate) mod twin;

pub(crate) use interface::Arguments;
pub use interface::{Binding, Interface, Scalar, View};
pub use q64::Q64;
pub(crate) use q64::quotient;
pub use real::{Number, Precision, Real};

use twin::Call;

/// A kernel for every lane.
#[derive(Debug)]
pub struct Kernel {
    /// File stem, entry point, label.
    pub name: &'static str,
    /// The text in double precision: the kernel's own, then what it shares with others.
    pub wgsl: &'static str,
    /// CUDA: least number of groups that a multiprocessor is to hold at once, where the compiler's own choice of
    /// registers is a bad one; 0 where it is not.
    pub least_cuda_groups: u32,
    /// The CPU twin in single precision.
    pub cpu_f32: fn(&Call<'_>),
    /// The CPU twin in double precision.
    pub cpu_f64: fn(&Call<'_>),
    /// The CPU twin in fixed point, if there is one.
    pub cpu_q64: Option<fn(&Call<'_>)>,
    /// What a launch gives it.
    pub interface: Interface,
    /// Values of the text's `override` constants, where they are others than the text's.
    pub constants: &'static [(&'static str, f64)],
}

impl Kernel {
    /// Threads in a workgroup, as the texts have it.
    pub const GROUP: u32 = 256;

    /// This kernel with [`Self::least_cuda_groups`].
    pub const fn with_cuda_groups(self, least_cuda_groups: u32) -> Self {
        Self { least_cuda_groups, ..self }
    }

    /// This kernel with other values of its text's `override` constants.
    pub const fn with(&self, constants: &'static [(&'static str, f64)]) -> Self {
        Self { constants, ..*self }
    }

    /// Threads in a workgroup: 256, or what [`Self::constants`] say.
    pub fn group(&self) -> u32 {
        self.constants
            .iter()
            .find(|(name, _)| *name == "GROUP")
            .map_or(Self::GROUP, |&(_, value)| value as u32)
    }

    /// The text for a precision.
    pub fn text(&self, precision: Precision) -> String {
        match precision {
            Precision::F64 => self.wgsl.to_owned(),
            Precision::F32 => self.wgsl.replace(ALIAS, "alias real = f32;"),
            Precision::Q64 => self.wgsl.replace(ALIAS, WORDS).replace(FLOAT, Q64_TEXT),
        }
    }

    /// The text in fixed point for devices without integers of 64 bits.
    pub fn text_in_limbs(&self) -> String {
        self.wgsl.replace(ALIAS, WORDS).replace(FLOAT, Q64_LIMBS)
    }

    /// The text for the WebGPU of a browser, which has neither immediates nor numbers of 64 bits.
    pub fn text_for_browsers(&self, precision: Precision) -> String {
        let text = match precision {
            Precision::Q64 => self.text_in_limbs(),
            _ => self.text(precision),
        };
        text.replace("var<immediate> p:", "@group(1) @binding(0) var<uniform> p:")
    }

    /// Whether there is this kernel in a precision.
    pub fn has(&self, precision: Precision) -> bool {
        precision != Precision::Q64 || self.cpu_q64.is_some()
    }

    /// The CPU twin for a precision.
    pub fn twin(&self, precision: Precision) -> fn(&Call<'_>) {
        match precision {
            Precision::F32 => self.cpu_f32,
            Precision::F64 => self.cpu_f64,
            Precision::Q64 => {
                self.cpu_q64.unwrap_or_else(|| panic!("kernel '{}' computes in no fixed point", self.name))
            }
        }
    }
}

/// The line of a text that says what its real numbers are.
const ALIAS: &str = "alias real = f64;";
/// The same in fixed point: numbers are pairs of words.
const WORDS: &str = "alias real = vec2<u32>;";
/// The arithmetic of a text, and what takes its place in fixed point.
const FLOAT: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/shaders/lib/float.wgsl"));
const Q64_TEXT: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/shaders/lib/q64.wgsl"));
const Q64_LIMBS: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/shaders/lib/q64_limbs.wgsl"));

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
/// `&mut`. `T` is the type of real numbers. A launch is bound with `scale::Params` and `scale::Args`, structs with these
/// members, and the twin is `fn scale<T: Real>(call: &Call<'_>, p: scale::Params, b: scale::Bindings<'_, T>)`.
/// `(like scale)` in the place of the parameters are those of another kernel. What the text shares with others lies in
/// `shaders/lib/`: `= walk + tree(…)` has `lib/tree.wgsl` behind `walk.wgsl`. With `in q64` behind the bindings, a kernel
/// is there in fixed point, too, and its twin is generic in a [`Number`].
macro_rules! kernel {
    (@q64 , $twin:expr) => { None };
    (@q64 q64, $twin:expr) => { Some($twin) };
    (@params like $other:ident) => { pub(crate) use super::$other::Params; };
    (@params $($param:ident),* $(,)?) => {
        /// The parameters, in the order of the text.
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
            #![allow(dead_code, reason = "a twin may do without a parameter or an array")]

            use $crate::kernel::{Arguments, Binding, View};
            use $crate::kernel::twin::Call;

            $crate::kernel::kernel!(@params $($params)*);

            /// What is bound for a launch, in the order of the text.
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

            /// What the twin is given.
            pub(crate) struct Bindings<'a, T> {
                $(pub(crate) $binding: &'a $($access)? [$element],)*
                real: std::marker::PhantomData<T>,
            }

            impl<'a, T> Bindings<'a, T> {
                /// The same of arrays on the host that belong to no launch.
                #[allow(dead_code, clippy::too_many_arguments, reason = "few twins are called without a launch")]
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
                    Self { $($binding: View::of(call, next()),)* real: std::marker::PhantomData }
                }
            }
        }
    )+};
}
pub(crate) use kernel;
