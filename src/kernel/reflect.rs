//! Checks the interface declared in Rust against the WGSL text, as naga reads it.

use naga::back::pipeline_constants::{PipelineConstantError, process_overrides};
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{AddressSpace, Module, StorageAccess, TypeInner};

use super::{Kernel, Precision, Scalar};

/// Interface of a kernel, read from its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Name of each binding, true if the kernel writes it, and its number type if it has one.
    pub bindings: Vec<(String, bool, Option<Scalar>)>,
    /// Names of the parameters, in order; all are `u32`.
    pub params: Vec<String>,
}

/// Returns the type of the numbers that a type consists of; `None` for other types.
fn scalar(module: &Module, inner: &TypeInner) -> Option<Scalar> {
    match inner {
        TypeInner::Array { base, .. } => scalar(module, &module.types[*base].inner),
        TypeInner::Scalar(scalar) | TypeInner::Vector { scalar, .. } => match *scalar {
            naga::Scalar::U32 => Some(Scalar::U32),
            naga::Scalar::F32 => Some(Scalar::F32),
            naga::Scalar::F64 => Some(Scalar::F64),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the module with the kernel's values of its `override` constants.
///
/// If the module has such constants, naga also removes unused items, including bindings.
///
/// # Errors
/// The module lacks one of the constants, or naga rejects a value.
pub fn with_constants(
    kernel: &Kernel,
    module: &Module,
    info: &ModuleInfo,
) -> Result<(Module, ModuleInfo), Box<PipelineConstantError>> {
    let constants = kernel.constants.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
    let (module, info) = process_overrides(module, info, None, &constants)?;
    Ok((module.into_owned(), info.into_owned()))
}

/// Parses a kernel's text and returns its interface.
///
/// # Panics
/// If the text breaks a rule of [`crate::kernel`]. A test reads every kernel.
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

/// Checks that the declared interface of a kernel equals the one of its text.
///
/// # Errors
/// The first difference, with the names of the items.
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
        let (declared, bindings) = (bindings.len(), text.bindings.len());
        return Err(format!("{declared} bindings are declared, the text has {bindings}"));
    }
    for (i, (binding, (name, written, scalar))) in bindings.iter().zip(&text.bindings).enumerate() {
        // CPU implementations may view words as bytes, and pairs of words as fractions.
        let numbers = (binding.scalar)().filter(|&scalar| scalar != Scalar::Q64).or(Some(Scalar::U32));
        let (declared, found) = ((binding.name, binding.written, numbers), (&name[..], *written, *scalar));
        if declared != found {
            return Err(format!("binding {i} is declared as {declared:?}, the text has {found:?}"));
        }
    }
    Ok(())
}
