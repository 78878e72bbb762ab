//! Parameters and bindings of a kernel, by name.

use std::any::TypeId;

use bytemuck::Pod;

use super::{Precision, Q64};

/// Type of the numbers in an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar {
    /// 32-bit integers.
    U32,
    /// Single precision.
    F32,
    /// Double precision.
    F64,
    /// Fractions of 2⁶⁴ ([`Q64`]); pairs of words in the text.
    Q64,
}

impl Scalar {
    /// Returns the number type of an element type; `None` if it is not determined, as for bytes.
    pub fn of<E: 'static>() -> Option<Self> {
        fn is<E: 'static, T: 'static>() -> bool {
            [TypeId::of::<T>(), TypeId::of::<[T; 2]>(), TypeId::of::<[T; 4]>()].contains(&TypeId::of::<E>())
        }
        match () {
            () if is::<E, Q64>() => Some(Self::Q64),
            () if is::<E, u32>() => Some(Self::U32),
            () if is::<E, f32>() => Some(Self::F32),
            () if is::<E, f64>() => Some(Self::F64),
            () => None,
        }
    }
}

/// An array argument of a kernel.
#[derive(Debug, Clone, Copy)]
pub struct Binding {
    /// Name in the kernel's WGSL text.
    pub name: &'static str,
    /// True if the kernel writes the array.
    pub written: bool,
    /// Type of its numbers, if the element type in Rust determines one.
    pub scalar: fn() -> Option<Scalar>,
}

/// Parameters and bindings of a kernel.
#[derive(Debug, Clone, Copy)]
pub struct Interface {
    /// Names of the parameters, all `u32`; the first is `step`.
    pub params: &'static [&'static str],
    /// Bindings in single precision.
    pub single: &'static [Binding],
    /// Bindings in double precision, equal to [`Self::single`] but for the type of real numbers.
    pub double: &'static [Binding],
    /// Bindings in fixed point, equal to [`Self::single`] but for the type of real numbers.
    pub fixed: &'static [Binding],
}

impl Interface {
    /// Returns the bindings, in order.
    pub fn bindings(&self, precision: Precision) -> &'static [Binding] {
        match precision {
            Precision::F32 => self.single,
            Precision::F64 => self.double,
            Precision::Q64 => self.fixed,
        }
    }
}

/// Arguments of a kernel's launches: a struct with a member per binding, made by `kernel!`.
///
/// `A` is the lane's type of an argument. Unsafe code of lanes relies on [`Self::list`], so
/// `kernel!` alone implements this trait.
pub(crate) trait Arguments<A> {
    /// The kernel's parameters: a struct of `u32` with the names and the order of the text.
    type Params: Pod;
    /// The kernel's name.
    const KERNEL: &'static str;
    /// Returns all arguments, in the order of the bindings.
    fn list(&self) -> Vec<A>;
}
