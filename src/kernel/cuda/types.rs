//! Translation of names, types and literals.

use naga::proc::{IndexableLength, Layouter, TypeResolution};
use naga::{
    AddressSpace, ArraySize, Function, GlobalVariable, Handle, Literal, Module, Scalar, ScalarKind,
    StorageAccess, StructMember, Type, TypeInner, VectorSize,
};

use super::refusal::{IN_PRELUDE, Written, name_of, refuse};

/// The module to translate, with naga's analysis of it.
pub(super) struct Unit<'a> {
    pub(super) module: &'a Module,
    pub(super) info: &'a naga::valid::ModuleInfo,
    pub(super) layouter: Layouter,
}

/// An item of a struct's layout.
pub(super) enum LayoutItem {
    Member(usize),
    /// Number of bytes that WGSL leaves unused.
    Padding(u32),
}

/// Returns the start of the C++ name of a WGSL item.
///
/// Callers append `_`, a letter for the kind of item (none for values) and a number unique within
/// the kind. Therefore no name is a keyword, a function of CUDA or the name of a different item.
fn stem(name: Option<&str>, other: &str) -> String {
    let mut stem = String::new();
    for c in name.unwrap_or_default().chars() {
        // C++ reserves names with two adjacent underscores.
        if c.is_ascii_alphanumeric() || (c == '_' && !stem.ends_with('_')) {
            stem.push(c);
        }
    }
    let stem = stem.trim_end_matches('_');
    if stem.starts_with(|c: char| c.is_ascii_alphabetic()) {
        stem.to_owned()
    } else {
        format!("{other}{stem}")
    }
}

pub(super) fn value_name(name: Option<&str>, expression: Handle<naga::Expression>) -> String {
    format!("{}_{}", stem(name, "e"), expression.index())
}

pub(super) fn local_name(name: Option<&str>, variable: Handle<naga::LocalVariable>) -> String {
    format!("{}_v{}", stem(name, "v"), variable.index())
}

pub(super) fn argument_name(name: Option<&str>, index: usize) -> String {
    format!("{}_a{index}", stem(name, "a"))
}

/// Returns a literal in C++, with its exact type and value.
pub(super) fn literal(literal: Literal) -> Written {
    Ok(match literal {
        Literal::F64(v) => real(v, v.to_bits() & ((1 << 52) - 1), 52, (v.to_bits() >> 52) & 0x7ff, 1023),
        Literal::F32(v) => {
            let bits = u64::from(v.to_bits());
            // 23 bits of fraction are one bit less than six hexadecimal digits.
            real(f64::from(v), (bits & 0x7f_ffff) << 1, 24, (bits >> 23) & 0xff, 127) + "f"
        }
        Literal::U32(v) => format!("{v}u"),
        Literal::I32(v) if v == i32::MIN => "(-2147483647 - 1)".into(),
        Literal::I32(v) => format!("{v}"),
        Literal::U64(v) => format!("{v}ull"),
        Literal::Bool(v) => format!("{v}"),
        other => return refuse(name_of(&other)),
    })
}

/// Returns a floating-point literal: decimal if exact and short, else hexadecimal, which is exact.
fn real(value: f64, fraction: u64, bits: usize, exponent: u64, bias: i64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e6 {
        return format!("{value:?}");
    }
    let sign = if value < 0.0 { "-" } else { "" };
    let (lead, exponent) = if exponent == 0 { (0, 1 - bias) } else { (1, exponent as i64 - bias) };
    format!("{sign}0x{lead}.{fraction:0width$x}p{exponent}", width = bits / 4)
}

pub(super) fn scalar(scalar: Scalar) -> Written<&'static str> {
    match (scalar.kind, scalar.width) {
        (ScalarKind::Bool, _) => Ok("bool"),
        (ScalarKind::Sint, 4) => Ok("i32"),
        (ScalarKind::Uint, 4) => Ok("u32"),
        (ScalarKind::Uint, 8) => Ok("u64"),
        (ScalarKind::Float, 4) => Ok("f32"),
        (ScalarKind::Float, 8) => Ok("f64"),
        (kind, width) => refuse(format!("{kind:?} of {width} bytes")),
    }
}

impl<'a> Unit<'a> {
    /// Returns naga's type for a handle.
    pub(super) fn inner(&self, ty: Handle<Type>) -> &'a TypeInner {
        &self.module.types[ty].inner
    }

    fn struct_name(&self, ty: Handle<Type>) -> String {
        format!("{}_t{}", stem(self.module.types[ty].name.as_deref(), "Struct"), ty.index())
    }

    pub(super) fn member_name(members: &[StructMember], index: usize) -> String {
        format!("{}_m{index}", stem(members.get(index).and_then(|m| m.name.as_deref()), "m"))
    }

    pub(super) fn global_name(&self, variable: Handle<GlobalVariable>) -> String {
        let GlobalVariable { name, binding, .. } = &self.module.global_variables[variable];
        match binding {
            Some(b) => format!("{}_b{}", stem(name.as_deref(), "b"), b.binding),
            None => format!("{}_g{}", stem(name.as_deref(), "g"), variable.index()),
        }
    }

    /// Returns the C++ name of a function other than the entry point.
    pub(super) fn function_name(&self, function: Handle<Function>) -> String {
        match self.module.functions[function].name.as_deref() {
            Some(name) if IN_PRELUDE.contains(&name) => name.to_owned(),
            name => format!("{}_f{}", stem(name, "f"), function.index()),
        }
    }

    /// Returns the C++ name of a type that values can have.
    pub(super) fn type_text(&self, ty: Handle<Type>) -> Written {
        match *self.inner(ty) {
            TypeInner::Struct { .. } => Ok(self.struct_name(ty)),
            ref inner => self.inner_text(inner),
        }
    }

    pub(super) fn resolution_text(&self, ty: &TypeResolution) -> Written {
        match ty {
            TypeResolution::Handle(handle) => self.type_text(*handle),
            TypeResolution::Value(inner) => self.inner_text(inner),
        }
    }

    fn inner_text(&self, inner: &TypeInner) -> Written {
        Ok(match *inner {
            TypeInner::Scalar(s) => scalar(s)?.into(),
            TypeInner::Vector { size, scalar: s } => format!("Vec<{}, {}>", scalar(s)?, size as u32),
            // `resolve` replaces an `override` constant by its value.
            TypeInner::Array { base, size, .. } => match size.resolve(self.module.to_ctx()) {
                Ok(IndexableLength::Known(n)) => format!("Array<{}, {n}>", self.element_text(base)?),
                Ok(IndexableLength::Dynamic) => {
                    return refuse("an array of unknown length that is not a binding");
                }
                Err(e) => return refuse(format!("an array's length ({e})")),
            },
            ref other => return refuse(name_of(other)),
        })
    }

    /// Returns the C++ type of an array's elements.
    ///
    /// In arrays, WGSL gives vectors of three the size of four numbers, unlike the prelude.
    fn element_text(&self, base: Handle<Type>) -> Written {
        match *self.inner(base) {
            TypeInner::Vector { size: VectorSize::Tri, .. } => refuse("an array of vec3"),
            _ => self.type_text(base),
        }
    }

    /// Returns members and padding of a struct, in order of their offsets.
    pub(super) fn items(&self, members: &[StructMember], span: u32) -> Vec<LayoutItem> {
        let mut items = Vec::new();
        let mut end = 0;
        for (i, member) in members.iter().enumerate() {
            if member.offset > end {
                items.push(LayoutItem::Padding(member.offset - end));
            }
            items.push(LayoutItem::Member(i));
            end = member.offset.saturating_add(self.layouter[member.ty].size);
        }
        if span > end {
            items.push(LayoutItem::Padding(span - end));
        }
        items
    }

    /// Returns the C++ definition of a struct, with WGSL's layout.
    pub(super) fn definition(&self, ty: Handle<Type>, members: &[StructMember], span: u32) -> Written {
        let name = self.struct_name(ty);
        let mut text = format!("struct alignas({}) {name} {{\n", self.layouter[ty].alignment);
        for (place, item) in self.items(members, span).iter().enumerate() {
            match *item {
                LayoutItem::Member(i) => {
                    let ty = self.type_text(members[i].ty)?;
                    text += &format!("    {ty} {};\n", Self::member_name(members, i));
                }
                LayoutItem::Padding(bytes) => text += &format!("    u8 padding_{place}[{bytes}];\n"),
            }
        }
        text += &format!("}};\nstatic_assert(sizeof({name}) == {span}, \"the layout of WGSL\");\n\n");
        Ok(text)
    }

    /// Returns the C++ declaration of a module variable as a parameter of a kernel or function.
    pub(super) fn parameter(&self, variable: Handle<GlobalVariable>) -> Written {
        let GlobalVariable { space, ty, .. } = self.module.global_variables[variable];
        let name = self.global_name(variable);
        Ok(match space {
            AddressSpace::Storage { access } => {
                let TypeInner::Array { base, size: ArraySize::Dynamic, .. } = *self.inner(ty) else {
                    return refuse("a binding other than an array of unknown length");
                };
                let pointee = self.element_text(base)?;
                if access.contains(StorageAccess::STORE) {
                    format!("{pointee}* {name}")
                } else {
                    format!("const {pointee}* __restrict__ {name}")
                }
            }
            AddressSpace::Immediate => format!("const {}& {name}", self.type_text(ty)?),
            AddressSpace::WorkGroup => format!("{}& {name}", self.type_text(ty)?),
            other => return refuse(name_of(&other)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_keep_every_bit() {
        for (value, text) in [
            (Literal::F64(0.0), "0.0"),
            (Literal::F64(-0.0), "-0.0"),
            (Literal::F64(-3.0), "-3.0"),
            (Literal::F64(0.1), "0x1.999999999999ap-4"),
            (Literal::F64(-1e300), "-0x1.7e43c8800759cp996"),
            (Literal::F64(f64::MAX), "0x1.fffffffffffffp1023"),
            (Literal::F64(f64::from_bits(1)), "0x0.0000000000001p-1022"),
            (Literal::F32(2.0), "2.0f"),
            (Literal::F32(0.1), "0x1.99999ap-4f"),
            (Literal::F32(f32::MAX), "0x1.fffffep127f"),
            (Literal::F32(f32::from_bits(1)), "0x0.000002p-126f"),
            (Literal::I32(i32::MIN), "(-2147483647 - 1)"),
            (Literal::U64(u64::MAX), "18446744073709551615ull"),
        ] {
            assert_eq!(literal(value).ok().as_deref(), Some(text));
        }
        assert!(literal(Literal::AbstractInt(1)).is_err());
    }

    #[test]
    fn names_are_in_ascii_and_begin_with_a_letter() {
        assert_eq!(stem(Some("row"), "e"), "row");
        assert_eq!(stem(Some("a__b_"), "e"), "a_b");
        assert_eq!(stem(Some("größe"), "e"), "gre");
        assert_eq!(stem(Some("_x"), "e"), "e_x");
        assert_eq!(stem(Some("λ"), "e"), "e");
        assert_eq!(stem(None, "e"), "e");
    }
}
