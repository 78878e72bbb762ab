//! What a kernel's text says of itself, read by naga, against what is declared beside its twin.

use naga::back::pipeline_constants::{PipelineConstantError, process_overrides};
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{AddressSpace, Module, StorageAccess, TypeInner};

use super::{Kernel, Precision, Scalar};

/// A kernel's interface as its text has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// One entry a binding, in order: its name, whether the kernel writes it, its numbers if all are of one type.
    pub bindings: Vec<(String, bool, Option<Scalar>)>,
    /// Members of the parameters, in order; all are `u32`.
    pub params: Vec<String>,
}

/// Numbers that a type is made of.
fn scalar(module: &Module, inner: &TypeInner) -> Option<Scalar> {
    match inner {
        TypeInner::Array { base, .. } => scalar(module, &module.types[*base].inner),
        TypeInner::Scalar(naga::Scalar::U32) | TypeInner::Vector { scalar: naga::Scalar::U32, .. } => {
            Some(Scalar::U32)
        }
        TypeInner::Scalar(naga::Scalar::F32) | TypeInner::Vector { scalar: naga::Scalar::F32, .. } => {
            Some(Scalar::F32)
        }
        TypeInner::Scalar(naga::Scalar::F64) | TypeInner::Vector { scalar: naga::Scalar::F64, .. } => {
            Some(Scalar::F64)
        }
        _ => None,
    }
}

/// A module with the values of a kernel's `override` constants in their places. Where there are some, naga leaves out
/// what nothing uses, bindings among it.
///
/// # Errors
/// What naga says against a constant that the module does not have, or its value.
pub fn with_constants(
    kernel: &Kernel,
    module: &Module,
    info: &ModuleInfo,
) -> Result<(Module, ModuleInfo), Box<PipelineConstantError>> {
    let constants = kernel.constants.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
    let (module, info) = process_overrides(module, info, None, &constants)?;
    Ok((module.into_owned(), info.into_owned()))
}

/// Parses a kernel's text and reads its interface.
///
/// # Panics
/// If the text breaks the rules of [`crate::kernel`]: it is ours, and a test reads every kernel.
pub fn interface(kernel: &Kernel, precision: Precision) -> Interface {
    let name = kernel.name;
    let text = kernel.text(precision);
    let wrong = |what: String| -> ! { panic!("shaders/{name}.wgsl: {what}") };
    let module = naga::front::wgsl::parse_str(&text).unwrap_or_else(|e| wrong(e.emit_to_string(&text)));
    let info = Validator::new(ValidationFlags::all(), Capabilities::all())
        .validate(&module)
        .unwrap_or_else(|e| wrong(e.emit_to_string(&text)));
    let (module, _) = with_constants(kernel, &module, &info).unwrap_or_else(|e| wrong(e.to_string()));
    let [entry] = &module.entry_points[..] else {
        panic!("shaders/{name}.wgsl has {} entry points, not one", module.entry_points.len());
    };
    assert_eq!(entry.name, name, "a kernel's entry point is its file's stem");
    assert_eq!(entry.workgroup_size, [kernel.group(), 1, 1], "groups of kernel {name}");

    let (mut bindings, mut params) = (Vec::new(), Vec::new());
    for (_, variable) in module.global_variables.iter() {
        let inner = &module.types[variable.ty].inner;
        match (variable.space, &variable.binding) {
            (AddressSpace::Storage { access }, Some(binding)) => {
                assert_eq!(binding.group, 0, "shaders/{name}.wgsl binds in group 0 alone");
                let named = variable.name.clone().unwrap_or_default();
                let written = access.contains(StorageAccess::STORE);
                bindings.push((binding.binding, (named, written, scalar(&module, inner))));
            }
            (AddressSpace::Immediate, _) => {
                let TypeInner::Struct { members, .. } = inner else {
                    panic!("shaders/{name}.wgsl: the parameters are a struct");
                };
                params = members.iter().map(|m| m.name.clone().unwrap_or_default()).collect();
                let word = |ty| module.types[ty].inner == TypeInner::Scalar(naga::Scalar::U32);
                assert!(members.iter().all(|m| word(m.ty)), "shaders/{name}.wgsl: parameters are u32s");
            }
            _ => {}
        }
    }
    bindings.sort_unstable_by_key(|(number, _)| *number);
    for (i, (number, _)) in bindings.iter().enumerate() {
        assert_eq!(*number, i as u32, "shaders/{name}.wgsl numbers its bindings without gaps");
    }
    Interface { bindings: bindings.into_iter().map(|(_, binding)| binding).collect(), params }
}

/// What differs between the interface that is declared beside a kernel's twin and the one of its text.
///
/// # Errors
/// The difference, by names.
pub fn declared(kernel: &Kernel, precision: Precision) -> Result<(), String> {
    let text = interface(kernel, precision);
    if kernel.interface.params != text.params {
        return Err(format!(
            "parameters are declared as {:?}, the text has {:?}",
            kernel.interface.params, text.params
        ));
    }
    let bindings = kernel.interface.bindings(precision);
    if bindings.len() != text.bindings.len() {
        return Err(format!(
            "{} bindings are declared, the text has {}",
            bindings.len(),
            text.bindings.len()
        ));
    }
    for (i, (binding, (name, written, scalar))) in bindings.iter().zip(&text.bindings).enumerate() {
        // Twins may see words as bytes, or pairs of them as fractions.
        let numbers = (binding.scalar)().filter(|&scalar| scalar != Scalar::Q64).or(Some(Scalar::U32));
        if (binding.name, binding.written, numbers) != (name, *written, *scalar) {
            let declared = (binding.name, binding.written, numbers);
            return Err(format!(
                "binding {i} is declared as {declared:?}, the text has {:?}",
                (name, written, scalar)
            ));
        }
    }
    Ok(())
}
