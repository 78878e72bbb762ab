//! CUDA C++ from WGSL: the same kernel text for NVIDIA's compiler.
//!
//! [`translate`] has naga parse and validate a kernel and writes naga's intermediate representation as CUDA C++
//! for NVRTC. The text needs no header. Compile it with [`OPTIONS`].
//!
//! # Interface of the translation
//!
//! ```text
//! extern "C" __global__ void __launch_bounds__(256)
//! name(const Params p, const T* __restrict__ b0, …, T* b7)
//! ```
//!
//! The immediates come first, by value, if the kernel has any; then one pointer a binding, in order. What the
//! kernel only reads is `const` and `__restrict__`; what it writes is neither, so two of these may overlap.
//! Pointers are aligned to 32 bytes at least. Blocks are 256 × 1 × 1 threads; the grid is the one of WGSL.
//!
//! # What is translated
//!
//! | | |
//! |---|---|
//! | types | `bool`, `i32`, `u32`, `i64`, `u64`, `f32`, `f64`, vectors of them, arrays, structs with WGSL's layout, `atomic<i32>` and `u32`, `i64`, `u64` |
//! | variables | `override` constants, with the kernel's values; bindings of group 0 (`storage`), one `immediate` struct of `u32`s, `workgroup`, `private`, `function`; `let`, `const`; pointers in `let` and as arguments |
//! | statements | blocks, `if`, `switch`, `loop` with `continuing` and `break if`, `for`, `while`, `break`, `continue`, `return`, assignment to places and their parts, calls |
//! | operators | all, on numbers and vectors |
//! | functions | `abs all any ceil clamp countLeadingZeros countOneBits countTrailingZeros distance dot extractBits firstLeadingBit firstTrailingBit floor fma fract insertBits inverseSqrt ldexp length max min mix reverseBits round saturate select sign smoothstep sqrt step trunc`, conversions, `bitcast` between types of one width |
//! | synchronization | `workgroupBarrier storageBarrier subgroupBarrier workgroupUniformLoad`; every atomic function |
//! | subgroups | every operation; a subgroup is a warp, 32 threads, and all of them have to reach the operation |
//! | built-in values | `global_invocation_id local_invocation_id local_invocation_index num_subgroups num_workgroups subgroup_id subgroup_invocation_id subgroup_size workgroup_id workgroup_size`, alone or in a struct |
//!
//! Everything else is [`Unsupported`], by name: among others `f16`, matrices, textures, `var<uniform>`,
//! `arrayLength`, arrays of unknown length inside structs, atomic floating-point numbers, transcendental
//! functions, other groups than 256 × 1 × 1.
//!
//! # What the text means
//!
//! * Every expression is evaluated once, where naga's `Emit` says so, and kept in a constant; no load moves over
//!   a store.
//! * Floating-point operations round once each, in the order of the WGSL text. `fma` is the only fused
//!   operation: without `--fmad=false` the compiler would contract others, which is why it is one of [`OPTIONS`].
//! * Integers wrap; shifts take the amount modulo the width; x / 0 is x, x % 0 is 0, and so is the overflow of
//!   least / −1; conversions from floating point clamp to the numbers that both types hold.
//! * The one function that the prelude has in PTX means what its own text says, whatever parts its sums lie in.
//! * Indices are not checked, and workgroup memory is not set to zero: as on wgpu lanes without `--checked`.

mod expression;
mod function;
mod statement;
mod types;

use naga::proc::Layouter;
use naga::valid::{Capabilities, ModuleInfo, SubgroupOperationSet, ValidationFlags, Validator};
use naga::{
    AddressSpace, GlobalVariable, Handle, Module, ScalarKind, ShaderStage, Span, StorageAccess, TypeInner,
};

use super::reflect::with_constants;
use super::{Kernel, Precision};
use function::Body;
use types::Unit;

/// Options for NVRTC that the text relies on: floating point as IEEE 754 has it, nothing contracted.
///
/// A value that WGSL computes and does not use (177) is no mistake of the text's.
pub const OPTIONS: [&str; 6] = [
    "--std=c++17",
    "--fmad=false",
    "--ftz=false",
    "--prec-div=true",
    "--prec-sqrt=true",
    "--diag-suppress=177",
];

/// What WGSL means where CUDA C++ means something else: the beginning of every text.
const PRELUDE: &str = include_str!("prelude.cuh");

/// The function that is not translated: the prelude has it in PTX, with carries, which neither WGSL nor C++ has.
const IN_PRELUDE: &str = "add_long_product";

/// A kernel as CUDA C++.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CudaKernel {
    /// The text, for NVRTC with [`OPTIONS`].
    pub text: String,
    /// The kernel's name in it, not mangled.
    pub entry: String,
    /// One entry a binding, in order: whether the kernel only reads it.
    pub bindings: Vec<bool>,
    /// Words of 32 bits in the struct that is the first argument; 0 where there is none.
    pub params: usize,
}

/// A kernel that is outside what [`translate`] knows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("shaders/{kernel}.wgsl{}: {construct}: not in the part of WGSL that is translated to CUDA", .line.map(|l| format!(":{l}")).unwrap_or_default())]
pub struct Unsupported {
    /// The kernel's name.
    pub kernel: String,
    /// Line of its text, counted from 1, if one line is to blame.
    pub line: Option<u32>,
    /// The construct, or what naga says against the text.
    pub construct: String,
}

/// A construct that is not translated, and where it stands.
#[derive(Debug)]
struct Refusal {
    construct: String,
    span: Span,
}

impl Refusal {
    fn new(construct: impl Into<String>) -> Self {
        Self { construct: construct.into(), span: Span::UNDEFINED }
    }

    /// The same, at a place, unless it has one already.
    fn at(mut self, span: Span) -> Self {
        if !self.span.is_defined() {
            self.span = span;
        }
        self
    }
}

/// Text, or the construct that has none.
type Written<T = String> = Result<T, Refusal>;

/// Writes a kernel as CUDA C++.
///
/// # Errors
/// If naga refuses the text, or it holds a construct outside the [subset](self).
pub fn translate(kernel: &Kernel, precision: Precision) -> Result<CudaKernel, Unsupported> {
    let text = kernel.text(precision);
    let refuse = |line, construct| Unsupported { kernel: kernel.name.to_owned(), line, construct };
    let module = naga::front::wgsl::parse_str(&text)
        .map_err(|e| refuse(None, format!("naga: {}", e.emit_to_string(&text))))?;
    let info = validate(&module).map_err(|e| refuse(None, format!("naga: {}", e.emit_to_string(&text))))?;
    let (module, info) =
        with_constants(kernel, &module, &info).map_err(|e| refuse(None, format!("naga: {e}")))?;
    write(kernel, kernel.least_cuda_groups, &module, &info).map_err(|refusal| {
        let line = refusal.span.is_defined().then(|| refusal.span.location(&text).line_number);
        refuse(line, refusal.construct)
    })
}

/// Validates a module with all that a lane of CUDA has.
fn validate(module: &Module) -> Result<ModuleInfo, Box<naga::WithSpan<naga::valid::ValidationError>>> {
    let capabilities = Capabilities::IMMEDIATES
        | Capabilities::FLOAT64
        | Capabilities::SHADER_INT64
        | Capabilities::SHADER_INT64_ATOMIC_ALL_OPS
        | Capabilities::SUBGROUP
        | Capabilities::SUBGROUP_BARRIER
        // Refused here rather than by naga, so that the refusal names them.
        | Capabilities::SHADER_FLOAT16
        | Capabilities::SHADER_FLOAT16_IN_FLOAT32
        | Capabilities::SHADER_INT16
        | Capabilities::SHADER_FLOAT32_ATOMIC;
    Validator::new(ValidationFlags::all(), capabilities)
        .subgroup_stages(naga::valid::ShaderStages::COMPUTE)
        .subgroup_operations(SubgroupOperationSet::all())
        .validate(module)
        .map_err(Box::new)
}

fn write(kernel: &Kernel, groups: u32, module: &Module, info: &ModuleInfo) -> Written<CudaKernel> {
    let mut layouter = Layouter::default();
    layouter.update(module.to_ctx()).map_err(|e| Refusal::new(format!("a type without a layout ({e})")))?;
    let unit = Unit { module, info, layouter };

    let [entry] = &module.entry_points[..] else {
        return Err(Refusal::new(format!("{} entry points", module.entry_points.len())));
    };
    if entry.stage != ShaderStage::Compute {
        return Err(Refusal::new(format!("an entry point of the stage {:?}", entry.stage)));
    }
    if entry.name != kernel.name {
        return Err(Refusal::new(format!("the entry point {}, not {}", entry.name, kernel.name)));
    }
    if entry.workgroup_size != [kernel.group(), 1, 1] {
        return Err(Refusal::new(format!("workgroups of {:?}", entry.workgroup_size)));
    }
    let bindings = bindings(&unit)?;
    let immediates = immediates(&unit)?;

    let mut text = format!("{PRELUDE}\n");
    for (ty, declared) in module.types.iter() {
        if let TypeInner::Struct { members, span } = &declared.inner {
            text += &unit.definition(ty, members, *span).map_err(|r| r.at(module.types.get_span(ty)))?;
        }
    }
    // A table is written once; other constants are written where they are used.
    for (constant, declared) in module.constants.iter() {
        if let TypeInner::Array { .. } = unit.inner(declared.ty) {
            let value = Body::of_module(&unit).value(declared.init)?;
            let ty = unit.type_text(declared.ty)?;
            text += &format!("__device__ const {ty} {} = {value};\n\n", unit.constant_name(constant));
        }
    }
    let translated = |function: &naga::Function| function.name.as_deref() != Some(IN_PRELUDE);
    for (handle, function) in module.functions.iter().filter(|(_, function)| translated(function)) {
        text += &Body::of_function(&unit, function, &info[handle])
            .function(handle)
            .map_err(|r| r.at(module.functions.get_span(handle)))?;
    }
    let arguments = immediates.map(|(variable, _)| variable).into_iter();
    let arguments: Vec<_> = arguments.chain(bindings.iter().map(|b| b.0)).collect();
    text += &Body::of_function(&unit, &entry.function, info.get_entry_point(0)).entry(
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

/// The bindings in order, each with whether the kernel only reads it.
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
            (AddressSpace::WorkGroup | AddressSpace::Private | AddressSpace::Immediate, _) => {}
            (other, _) => return Err(Refusal::new(types::space_name(other)).at(span)),
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

/// The variable of the immediates and its size in words, if there is one.
fn immediates(unit: &Unit<'_>) -> Written<Option<(Handle<GlobalVariable>, usize)>> {
    let mut found = None;
    for (handle, variable) in unit.module.global_variables.iter() {
        if variable.space != AddressSpace::Immediate {
            continue;
        }
        let span = unit.module.global_variables.get_span(handle);
        let TypeInner::Struct { members, span: bytes } = unit.inner(variable.ty) else {
            return Err(Refusal::new("immediates that are no struct").at(span));
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
