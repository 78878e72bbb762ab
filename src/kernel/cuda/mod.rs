//! Translation of kernels from WGSL to CUDA C++.
//!
//! [`translate`] parses and validates a kernel with naga and writes naga's intermediate
//! representation as CUDA C++ for NVRTC. The result needs no header; compile it with [`OPTIONS`].
//!
//! # Interface of the translation
//!
//! ```text
//! extern "C" __global__ void __launch_bounds__(256)
//! name(const Params p, const T* __restrict__ b0, …, T* b7)
//! ```
//!
//! The immediates come first, by value, if the kernel has any. Then comes one pointer per binding,
//! in order. Read-only bindings are `const` and `__restrict__`. Bindings that the kernel writes are
//! neither, so two of them may overlap. Pointers are aligned to at least 32 bytes. Blocks are 256 ×
//! 1 × 1 threads; the grid is the one of WGSL.
//!
//! # Supported subset
//!
//! The subset has the constructs that kernels use:
//!
//! * Types: `bool`, `i32`, `u32`, `u64`, `f32`, `f64`, vectors of them, structs with WGSL's layout,
//!   and arrays of anything but `vec3`.
//! * Variables: `override` constants, with the kernel's values; arrays of unknown length bound in
//!   group 0 (`storage`); one `immediate` struct of `u32`s; `workgroup` and `function` variables;
//!   `let` and `const`; pointers in `let`, and pointers to `function` variables as arguments.
//! * Statements: blocks, `if`, `loop`, `for`, `while`, `break`, `return`, calls, and assignment to
//!   variables and their components.
//! * Operators: all, on numbers and vectors.
//! * Functions: `abs`, `all`, `any`, `clamp`, `fma`, `max`, `min`, `reverseBits`, `select`,
//!   conversions, and `bitcast` between types of equal width.
//! * Synchronization: `workgroupBarrier` and `storageBarrier`.
//! * Built-in values: `local_invocation_index`, `num_workgroups` and `workgroup_id`.
//!
//! Everything else is [`Unsupported`], with naga's name in the error. Examples are `f16`, matrices,
//! textures, `var<uniform>`, `arrayLength`, atomic numbers, subgroups, transcendental functions,
//! and groups other than 256 × 1 × 1.
//!
//! # Semantics
//!
//! * Every expression is evaluated once, at naga's `Emit`, and kept in a constant; no load moves
//!   across a store.
//! * Floating-point operations round once each, in the order of the WGSL text. `fma` is the only
//!   fused operation; `--fmad=false` among [`OPTIONS`] prevents the compiler from contracting
//!   others.
//! * Integers wrap, and shifts take the amount modulo the width. x / 0 is x, and x % 0 is 0. The
//!   least integer divided by −1 gives itself, with remainder 0. Conversions from floating point
//!   clamp to the numbers that both types can represent.
//! * `add_long_product`, which the prelude has in PTX, gives the sum of its WGSL text; the sum's
//!   division into parts may differ. `plus_four_lines`, which uses tensor cores, rounds as its WGSL
//!   text does.
//! * Indices are not checked, and workgroup memory is not set to zero, as on wgpu lanes without
//!   `--checked`.

mod expression;
mod function;
mod refusal;
mod statement;
mod types;

use naga::back::pipeline_constants::process_overrides;
use naga::proc::Layouter;
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{AddressSpace, GlobalVariable, Handle, Module, ScalarKind, ShaderStage, StorageAccess, TypeInner};

use super::{Kernel, Precision};
use function::FunctionWriter;
use refusal::{IN_PRELUDE, Refusal, Written, name_of, refuse};
use types::Unit;

/// Options for NVRTC that the text relies on: IEEE 754 arithmetic without contraction.
///
/// Diagnostic 177 is suppressed: a WGSL text may compute values that it does not use.
pub const OPTIONS: [&str; 6] = [
    "--std=c++17",
    "--fmad=false",
    "--ftz=false",
    "--prec-div=true",
    "--prec-sqrt=true",
    "--diag-suppress=177",
];

/// Start of every text: definitions for the differences between WGSL and CUDA C++.
const PRELUDE: &str = include_str!("prelude.cuh");

/// A kernel in CUDA C++.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CudaKernel {
    /// Source text; compile it with NVRTC and [`OPTIONS`].
    pub text: String,
    /// Name of the kernel in the text, not mangled.
    pub entry: String,
    /// True for each binding, in order, that the kernel only reads.
    pub bindings: Vec<bool>,
    /// Size in 32-bit words of the struct that is the first argument; 0 if there is none.
    pub params: usize,
}

/// Error for a kernel outside the subset that [`translate`] supports.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("shaders/{kernel}.wgsl{}: {construct}: not supported by the translation to CUDA", .line.map(|l| format!(":{l}")).unwrap_or_default())]
pub struct Unsupported {
    /// Name of the kernel.
    pub kernel: String,
    /// Line of its text, counted from 1, if the error has one place.
    pub line: Option<u32>,
    /// The unsupported construct, or naga's message.
    pub construct: String,
}

/// Translates a kernel to CUDA C++.
///
/// # Errors
/// naga rejects the text, or it contains a construct outside the [subset](self).
pub fn translate(kernel: &Kernel, precision: Precision) -> Result<CudaKernel, Unsupported> {
    let text = kernel.text(precision);
    let refuse = |line, construct| Unsupported { kernel: kernel.name.to_owned(), line, construct };
    let module = naga::front::wgsl::parse_str(&text)
        .map_err(|e| refuse(None, format!("naga: {}", e.emit_to_string(&text))))?;
    let info = validate(&module).map_err(|e| refuse(None, format!("naga: {}", e.emit_to_string(&text))))?;
    // Sets the `override` constants, which also removes unused items.
    let constants = kernel.constants.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
    let (module, info) = process_overrides(&module, &info, None, &constants)
        .map_err(|e| refuse(None, format!("naga: {e}")))?;
    write(kernel, kernel.least_cuda_groups, &module, &info).map_err(|refusal| {
        let line = refusal.span.is_defined().then(|| refusal.span.location(&text).line_number);
        refuse(line, refusal.construct)
    })
}

/// Validates a module with the capabilities that kernels need.
fn validate(module: &Module) -> Result<ModuleInfo, Box<naga::WithSpan<naga::valid::ValidationError>>> {
    let capabilities = Capabilities::IMMEDIATES | Capabilities::FLOAT64 | Capabilities::SHADER_INT64;
    Validator::new(ValidationFlags::all(), capabilities).validate(module).map_err(Box::new)
}

fn write(kernel: &Kernel, groups: u32, module: &Module, info: &ModuleInfo) -> Written<CudaKernel> {
    let mut layouter = Layouter::default();
    layouter.update(module.to_ctx()).map_err(|e| Refusal::new(format!("a type without a layout ({e})")))?;
    let unit = Unit { module, info, layouter };

    let [entry] = &module.entry_points[..] else {
        return refuse(format!("{} entry points", module.entry_points.len()));
    };
    if entry.stage != ShaderStage::Compute {
        return refuse(format!("an entry point of the stage {:?}", entry.stage));
    }
    if entry.name != kernel.name {
        return refuse(format!("the entry point {}, not {}", entry.name, kernel.name));
    }
    if entry.workgroup_size != [kernel.group(), 1, 1] {
        return refuse(format!("workgroups of {:?}", entry.workgroup_size));
    }
    let bindings = bindings(&unit)?;
    let immediates = immediates(&unit)?;

    let mut text = format!("{PRELUDE}\n");
    for (ty, declared) in module.types.iter() {
        if let TypeInner::Struct { members, span } = &declared.inner {
            text += &unit.definition(ty, members, *span).map_err(|r| r.at(module.types.get_span(ty)))?;
        }
    }
    let translated =
        |function: &naga::Function| !function.name.as_deref().is_some_and(|name| IN_PRELUDE.contains(&name));
    for (handle, function) in module.functions.iter().filter(|(_, function)| translated(function)) {
        text += &FunctionWriter::of_function(&unit, function, &info[handle])
            .function(handle)
            .map_err(|r| r.at(module.functions.get_span(handle)))?;
    }
    let arguments = immediates.map(|(variable, _)| variable).into_iter();
    let arguments: Vec<_> = arguments.chain(bindings.iter().map(|b| b.0)).collect();
    text += &FunctionWriter::of_function(&unit, &entry.function, info.get_entry_point(0)).entry(
        &entry.name,
        groups,
        &arguments,
    )?;
    text += "}  // namespace wgsl\n";

    Ok(CudaKernel {
        text,
        entry: entry.name.clone(),
        bindings: bindings.into_iter().map(|(_, read_only)| read_only).collect(),
        params: immediates.map_or(0, |(_, words)| words),
    })
}

/// Returns the bindings in order, each with true if the kernel only reads it.
fn bindings(unit: &Unit<'_>) -> Written<Vec<(Handle<GlobalVariable>, bool)>> {
    let mut bindings = Vec::new();
    for (handle, variable) in unit.module.global_variables.iter() {
        let span = unit.module.global_variables.get_span(handle);
        match (variable.space, variable.binding) {
            (AddressSpace::Storage { access }, Some(binding)) => {
                if binding.group != 0 {
                    return Err(Refusal::new(format!("@group({})", binding.group)).at(span));
                }
                bindings.push((binding.binding, handle, !access.contains(StorageAccess::STORE)));
            }
            (AddressSpace::WorkGroup | AddressSpace::Immediate, _) => {}
            (other, _) => return Err(Refusal::new(name_of(&other)).at(span)),
        }
    }
    bindings.sort_unstable_by_key(|b| b.0);
    for (i, (number, handle, _)) in bindings.iter().enumerate() {
        if *number as usize != i {
            let span = unit.module.global_variables.get_span(*handle);
            return Err(Refusal::new(format!("@binding({number}) as number {i} of the bindings")).at(span));
        }
    }
    Ok(bindings.into_iter().map(|(_, handle, read_only)| (handle, read_only)).collect())
}

/// Returns the variable of the immediates and its size in words, if there is one.
fn immediates(unit: &Unit<'_>) -> Written<Option<(Handle<GlobalVariable>, usize)>> {
    let mut found = None;
    for (handle, variable) in unit.module.global_variables.iter() {
        if variable.space != AddressSpace::Immediate {
            continue;
        }
        let span = unit.module.global_variables.get_span(handle);
        let TypeInner::Struct { members, span: bytes } = unit.inner(variable.ty) else {
            return Err(Refusal::new("immediates that are not a struct").at(span));
        };
        let word = |m: &naga::StructMember| matches!(*unit.inner(m.ty), TypeInner::Scalar(s) if s.kind == ScalarKind::Uint && s.width == 4);
        if !members.iter().all(word) {
            return Err(Refusal::new("immediates other than u32").at(span));
        }
        if found.replace((handle, *bytes as usize / 4)).is_some() {
            return Err(Refusal::new("a second var<immediate>").at(span));
        }
    }
    Ok(found)
}
