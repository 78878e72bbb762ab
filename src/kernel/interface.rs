//! What a kernel is told: parameters and bindings, by name.

use std::any::TypeId;

use bytemuck::Pod;

use super::twin::Call;
use super::{Precision, Q64};

/// Type of the numbers in an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar {
    /// Integers of 32 bits.
    U32,
    /// Single precision.
    F32,
    /// Double precision.
    F64,
    /// Fractions of 2⁶⁴, which texts see as pairs of words.
    Q64,
}

impl Scalar {
    /// The numbers that elements of a type are made of. None where that cannot be told, as of bytes.
    pub fn of<E: 'static>() -> Option<Self> {
        let is = |known: &[TypeId]| known.contains(&TypeId::of::<E>());
        let words = [TypeId::of::<u32>(), TypeId::of::<[u32; 2]>(), TypeId::of::<[u32; 4]>()];
        let singles = [TypeId::of::<f32>(), TypeId::of::<[f32; 2]>(), TypeId::of::<[f32; 4]>()];
        let doubles = [TypeId::of::<f64>(), TypeId::of::<[f64; 2]>(), TypeId::of::<[f64; 4]>()];
        let fractions = [TypeId::of::<Q64>()];
        match () {
            () if is(&fractions) => Some(Self::Q64),
            () if is(&words) => Some(Self::U32),
            () if is(&singles) => Some(Self::F32),
            () if is(&doubles) => Some(Self::F64),
            () => None,
        }
    }
}

/// An array that a kernel is given.
#[derive(Debug, Clone, Copy)]
pub struct Binding {
    /// Its name in the text.
    pub name: &'static str,
    /// Whether the kernel writes it.
    pub written: bool,
    /// Its numbers, where the twin's type tells them.
    pub scalar: fn() -> Option<Scalar>,
}

/// What a launch of a kernel has to give it.
#[derive(Debug, Clone, Copy)]
pub struct Interface {
    /// Members of the parameters, all `u32`; the first is `step`.
    pub params: &'static [&'static str],
    /// Bindings in single precision.
    pub single: &'static [Binding],
    /// Bindings in double precision: the same but for the type of real numbers.
    pub double: &'static [Binding],
    /// Bindings in fixed point: the same but for that type.
    pub fixed: &'static [Binding],
}

impl Interface {
    /// The bindings, in order.
    pub fn bindings(&self, precision: Precision) -> &'static [Binding] {
        match precision {
            Precision::F32 => self.single,
            Precision::F64 => self.double,
            Precision::Q64 => self.fixed,
        }
    }
}

/// The array of a binding, as a twin sees it.
pub trait View<'a> {
    /// Its elements.
    type Element: 'static;
    /// Whether it is written.
    const WRITTEN: bool;
    /// The array that is bound at this place.
    fn of(call: &Call<'a>, binding: usize) -> Self;
}

impl<'a, E: Pod> View<'a> for &'a [E] {
    type Element = E;
    const WRITTEN: bool = false;

    fn of(call: &Call<'a>, binding: usize) -> Self {
        call.read(binding)
    }
}

impl<'a, E: Pod> View<'a> for &'a mut [E] {
    type Element = E;
    const WRITTEN: bool = true;

    fn of(call: &Call<'a>, binding: usize) -> Self {
        call.write(binding)
    }
}

impl Binding {
    /// One that twins see as `V`.
    pub const fn of<'a, V: View<'a>>(name: &'static str) -> Self {
        Self { name, written: V::WRITTEN, scalar: Scalar::of::<V::Element> }
    }
}

/// The arguments of a kernel's launches: a struct made by `kernel!`, with a member for each binding. A lane says what an argument
/// is, and its unsafe code relies on what they list: `kernel!` alone makes them.
pub(crate) trait Arguments<A> {
    /// The kernel's parameters: a struct of `u32` with the names of the text, in its order.
    type Params: Pod;
    /// The kernel's name.
    const KERNEL: &'static str;
    /// All of them, in the order of the bindings.
    fn list(&self) -> Vec<A>;
}
