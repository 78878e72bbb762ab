//! What a kernel's text says of itself, read by naga: bindings, their access, the size of the parameters.

use naga::{AddressSpace, StorageAccess, TypeInner};

use super::{Kernel, Precision};

/// A kernel's interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// One entry a binding, in order: whether the kernel only reads it.
    pub read_only: Vec<bool>,
    /// Members of the parameters, in order; all are `u32`.
    pub params: Vec<String>,
    /// Bytes of the parameters.
    pub param_bytes: u32,
}

/// Parses a kernel's text and reads its interface.
///
/// # Panics
/// If the text breaks the rules of [`crate::kernel`]: it is ours, and a test reads every kernel.
pub fn interface(kernel: &Kernel, precision: Precision) -> Interface {
    let name = kernel.name;
    let module = naga::front::wgsl::parse_str(&kernel.text(precision))
        .unwrap_or_else(|e| panic!("shaders/{name}.wgsl: {}", e.emit_to_string(&kernel.text(precision))));
    let [entry] = &module.entry_points[..] else {
        panic!("shaders/{name}.wgsl has {} entry points, not one", module.entry_points.len());
    };
    assert_eq!(entry.name, name, "a kernel's entry point is its file's stem");
    assert_eq!(entry.workgroup_size, [kernel.group, 1, 1], "groups of kernel {name}");

    let mut bindings = Vec::new();
    let (mut params, mut param_bytes) = (Vec::new(), 0);
    for (_, variable) in module.global_variables.iter() {
        match (variable.space, &variable.binding) {
            (AddressSpace::Storage { access }, Some(binding)) => {
                assert_eq!(binding.group, 0, "shaders/{name}.wgsl binds in group 0 alone");
                bindings.push((binding.binding, !access.contains(StorageAccess::STORE)));
            }
            (AddressSpace::Immediate, _) => {
                let TypeInner::Struct { members, span } = &module.types[variable.ty].inner else {
                    panic!("shaders/{name}.wgsl: the parameters are a struct");
                };
                params = members.iter().map(|m| m.name.clone().unwrap_or_default()).collect();
                param_bytes = *span;
                let word = members.iter().all(|m| {
                    matches!(
                        module.types[m.ty].inner,
                        TypeInner::Scalar(naga::Scalar { kind: naga::ScalarKind::Uint, width: 4 })
                    )
                });
                assert!(word, "shaders/{name}.wgsl: parameters are u32s");
            }
            _ => {}
        }
    }
    bindings.sort_unstable();
    for (i, (binding, _)) in bindings.iter().enumerate() {
        assert_eq!(*binding, i as u32, "shaders/{name}.wgsl numbers its bindings without gaps");
    }
    Interface { read_only: bindings.into_iter().map(|(_, r)| r).collect(), params, param_bytes }
}
