//! Rules about the interface of a kernel's text, and its comparison with the declaration in Rust.
#![cfg(any(feature = "wgpu", feature = "cuda"))]

use kolmo::kernel::{Kernel, Precision, Scalar};
use naga::back::pipeline_constants::process_overrides;
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{AddressSpace, Module, ShaderStage, StorageAccess, TypeInner};

/// Largest number of storage buffers that every lane can bind.
const BUFFERS: usize = 8;
/// Largest size of the immediates, in bytes.
const IMMEDIATE_BYTES: u32 = 64;

/// Interface of a kernel, read from its text.
#[derive(Debug)]
pub(crate) struct Interface {
    /// Name of each binding, true if the kernel writes it, and its number type if it has one.
    pub(crate) bindings: Vec<(String, bool, Option<Scalar>)>,
    /// Names of the parameters, in order; all are `u32`.
    pub(crate) params: Vec<String>,
}

/// Returns the precisions that a kernel supports.
pub(crate) fn precisions(kernel: &Kernel) -> impl Iterator<Item = Precision> + '_ {
    [Precision::F32, Precision::F64, Precision::Q64].into_iter().filter(|&precision| kernel.has(precision))
}

/// Parses and validates a kernel with the capabilities that lanes request from an adapter.
///
/// These are immediates, and double precision where the kernel needs it.
pub(crate) fn module(kernel: &Kernel, precision: Precision) -> Result<(Module, ModuleInfo), String> {
    parsed(kernel, precision, kernel.text(precision))
}

pub(crate) fn parsed(
    kernel: &Kernel,
    precision: Precision,
    text: String,
) -> Result<(Module, ModuleInfo), String> {
    let module = naga::front::wgsl::parse_str(&text)
        .map_err(|e| format!("{precision} does not parse: {}", e.emit_to_string(&text)))?;
    let capabilities = match precision {
        Precision::F32 => Capabilities::IMMEDIATES,
        Precision::F64 => Capabilities::IMMEDIATES | Capabilities::FLOAT64,
        Precision::Q64 => Capabilities::IMMEDIATES | Capabilities::SHADER_INT64,
    };
    let info = Validator::new(ValidationFlags::all(), capabilities)
        .validate(&module)
        .map_err(|e| format!("{precision} is not valid: {}", e.emit_to_string(&text)))?;
    let constants = kernel.constants.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
    let (module, info) =
        process_overrides(&module, &info, None, &constants).map_err(|e| format!("constants: {e}"))?;
    Ok((module.into_owned(), info.into_owned()))
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

/// Returns the interface of a kernel's text, or the rule of [`kolmo::kernel`] that it breaks.
pub(crate) fn interface(kernel: &Kernel, precision: Precision) -> Result<Interface, String> {
    let (module, _) = module(kernel, precision)?;
    let [entry] = &module.entry_points[..] else {
        return Err(format!("{} entry points, not one", module.entry_points.len()));
    };
    if entry.stage != ShaderStage::Compute || entry.name != kernel.name {
        return Err(format!("the entry point is {} of stage {:?}", entry.name, entry.stage));
    }
    let size = [kernel.group(), 1, 1];
    if entry.workgroup_size != size {
        return Err(format!("workgroups are {:?}, not {size:?}", entry.workgroup_size));
    }
    let (mut bindings, mut immediates) = (Vec::new(), Vec::new());
    for (_, variable) in module.global_variables.iter() {
        let inner = &module.types[variable.ty].inner;
        match (variable.space, &variable.binding) {
            (AddressSpace::Storage { access }, Some(binding)) => {
                let name = variable.name.clone().unwrap_or_default();
                let written = access.contains(StorageAccess::STORE);
                bindings.push((binding.group, binding.binding, (name, written, scalar(&module, inner))));
            }
            (_, Some(_)) => return Err(format!("{:?} is no storage buffer", variable.name)),
            (AddressSpace::Immediate, _) => immediates.push(inner),
            _ => {}
        }
    }
    bindings.sort_unstable_by_key(|&(group, number, _)| (group, number));
    for (i, &(group, number, _)) in (0..).zip(&bindings) {
        if (group, number) != (0, i) {
            return Err(format!("binding {number} of group {group} stands where {i} of group 0 is next"));
        }
    }
    if bindings.len() > BUFFERS {
        return Err(format!("{} storage buffers, {BUFFERS} are allowed", bindings.len()));
    }
    let [TypeInner::Struct { members, span }] = immediates[..] else {
        return Err(format!("{} variables are immediates, not one struct", immediates.len()));
    };
    for (i, member) in members.iter().enumerate() {
        let name = member.name.as_deref().unwrap_or_default();
        if module.types[member.ty].inner != TypeInner::Scalar(naga::Scalar::U32) {
            return Err(format!("member {i} of the immediates, {name}, is no u32"));
        }
        if i == 0 && name != "step" {
            return Err(format!("the first member of the immediates is {name}, not step"));
        }
        if member.offset != 4 * i as u32 {
            return Err(format!("{name} lies at byte {} of the immediates, not {}", member.offset, 4 * i));
        }
    }
    if *span > IMMEDIATE_BYTES {
        return Err(format!("{span} bytes of immediates, {IMMEDIATE_BYTES} are allowed"));
    }
    Ok(Interface {
        bindings: bindings.into_iter().map(|(_, _, binding)| binding).collect(),
        params: members.iter().map(|m| m.name.clone().unwrap_or_default()).collect(),
    })
}

/// Checks that the declared interface of a kernel equals that of its text.
///
/// The CPU implementation, launches and lanes use the declaration; devices use the text.
pub(crate) fn declared(kernel: &Kernel, precision: Precision) -> Result<(), String> {
    let text = interface(kernel, precision)?;
    let (params, bindings) = (kernel.interface.params, kernel.interface.bindings(precision));
    if params != text.params {
        return Err(format!("parameters are declared as {params:?}, the text has {:?}", text.params));
    }
    let (own, found) = (bindings.len(), text.bindings.len());
    if own != found {
        return Err(format!("{own} bindings are declared, the text has {found}"));
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
