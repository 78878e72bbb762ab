//! Kernels compile to every shader language of wgpu and obey the rules of [`kolmo::kernel`].
//!
//! A rule is a function that returns the defect of a kernel. Its test applies it to every kernel,
//! and to kernels with a deliberate defect, which it must reject for the given reason.
#![cfg(feature = "wgpu")]

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use kolmo::kernel::{Kernel, Precision, reflect};
use kolmo::registry::{all, variants};
use naga::back::{hlsl, msl, spv};
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, FunctionInfo, ModuleInfo, ValidationFlags, Validator};
use naga::{
    AddressSpace, Expression, Function, GlobalVariable, MathFunction, Module, ShaderStage, TypeInner,
};

mod browser;
mod languages;
mod texts;

/// Returns the precisions that a kernel supports.
fn precisions(kernel: &Kernel) -> impl Iterator<Item = Precision> + '_ {
    [Precision::F32, Precision::F64, Precision::Q64].into_iter().filter(|&precision| kernel.has(precision))
}

/// The one line that a lane of single precision replaces.
const ALIAS: &str = "alias real = f64;";

/// Workgroup memory of every adapter in bytes: the minimum that Vulkan guarantees.
const WORKGROUP_BYTES: u32 = 16 * 1024;
/// Largest number of storage buffers that every lane can bind.
const BUFFERS: usize = 8;
/// Largest size of the immediates, in bytes.
const IMMEDIATE_BYTES: u32 = 64;

type Rule = fn(&Kernel) -> Result<(), String>;

/// Asserts that every kernel obeys a rule, and names those that do not.
#[track_caller]
fn obey(rule: Rule) {
    let kernels = all();
    assert!(!kernels.is_empty(), "no kernel is registered");
    let broken: Vec<String> = kernels.iter().filter_map(|k| complaint(rule, k)).collect();
    assert!(broken.is_empty(), "{} of {} kernels:\n{}", broken.len(), kernels.len(), broken.join("\n"));
}

fn complaint(rule: Rule, kernel: &Kernel) -> Option<String> {
    rule(kernel).err().map(|what| format!("shaders/{}.wgsl: {what}", kernel.name))
}

/// Asserts that a rule rejects kernel `name` with `from` replaced by `to`, for the reason `why`.
#[track_caller]
fn refuses(rule: Rule, name: &str, from: &str, to: &str, why: &str) {
    let kernel = kernel_named(name);
    assert!(kernel.wgsl.contains(from), "shaders/{name}.wgsl has no {from:?} to break");
    let broken = with_text(kernel, kernel.wgsl.replace(from, to));
    let said = complaint(rule, &broken);
    let said = said.unwrap_or_else(|| panic!("shaders/{name}.wgsl with {to:?} for {from:?} is accepted"));
    assert!(said.contains(why), "shaders/{name}.wgsl is refused for another reason: {said}");
}

fn with_text(kernel: &Kernel, wgsl: String) -> Kernel {
    Kernel { wgsl: wgsl.leak(), ..*kernel }
}

/// Parses and validates a kernel with the capabilities that lanes request from an adapter.
///
/// These are immediates, and double precision where the kernel needs it.
fn module(kernel: &Kernel, precision: Precision) -> Result<(Module, ModuleInfo), String> {
    parsed(kernel, precision, kernel.text(precision))
}

/// Returns the fixed-point kernel of devices without 64-bit integers.
fn module_in_limbs(kernel: &Kernel) -> Result<(Module, ModuleInfo), String> {
    parsed(kernel, Precision::F32, kernel.text_in_limbs())
}

fn parsed(kernel: &Kernel, precision: Precision, text: String) -> Result<(Module, ModuleInfo), String> {
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
    reflect::with_constants(kernel, &module, &info).map_err(|e| format!("constants: {e}"))
}

/// Returns the group and number of every binding, in order.
fn bindings(module: &Module) -> BTreeSet<(u32, u32)> {
    module.global_variables.iter().filter_map(|(_, v)| v.binding).map(|b| (b.group, b.binding)).collect()
}

fn variables(module: &Module, space: impl Fn(AddressSpace) -> bool) -> Vec<&GlobalVariable> {
    module.global_variables.iter().map(|(_, v)| v).filter(|v| space(v.space)).collect()
}

/// Returns the bounds checks of a lane: only with `--checked`.
fn bounds(checked: bool) -> BoundsCheckPolicies {
    let policy = if checked { BoundsCheckPolicy::Restrict } else { BoundsCheckPolicy::Unchecked };
    BoundsCheckPolicies { index: policy, buffer: policy, ..Default::default() }
}

fn kernel_named(name: &str) -> &'static Kernel {
    all().into_iter().find(|k| k.name == name).unwrap_or_else(|| panic!("no kernel {name}"))
}

#[test]
fn bindings_are_in_group_0_and_numbered_from_0_without_gaps() {
    fn rule(kernel: &Kernel) -> Result<(), String> {
        let (module, _) = module(kernel, Precision::F64)?;
        for (i, (group, binding)) in (0..).zip(bindings(&module)) {
            if group != 0 {
                return Err(format!("binding {binding} lies in group {group}, not 0"));
            }
            if binding != i {
                return Err(format!("binding {binding} stands where {i} is next"));
            }
        }
        Ok(())
    }
    obey(rule);
    refuses(rule, "scale", "@group(0) @binding(1)", "@group(1) @binding(1)", "binding 1 lies in group 1");
    refuses(rule, "scale", "@binding(1)", "@binding(2)", "binding 2 stands where 1 is next");
    refuses(rule, "scale", "@binding(0)", "@binding(2)", "binding 1 stands where 0 is next");
}

#[test]
fn a_kernel_binds_at_most_8_storage_buffers_and_nothing_else() {
    fn rule(kernel: &Kernel) -> Result<(), String> {
        let (module, _) = module(kernel, Precision::F64)?;
        let buffers = variables(&module, |space| matches!(space, AddressSpace::Storage { .. })).len();
        let bound = module.global_variables.iter().filter(|(_, v)| v.binding.is_some()).count();
        if bound != buffers {
            return Err(format!("{} bindings are no storage buffers", bound - buffers));
        }
        // Two variables with one binding would be one argument.
        if bindings(&module).len() != bound {
            return Err(format!("{bound} variables share {} bindings", bindings(&module).len()));
        }
        if buffers > BUFFERS {
            return Err(format!("{buffers} storage buffers, {BUFFERS} are allowed"));
        }
        Ok(())
    }
    obey(rule);
    let ninth = "@group(0) @binding(8) var<storage, read> ninth: array<real>;\n\n@compute";
    refuses(rule, "sweep", "@compute", ninth, "9 storage buffers, 8 are allowed");
    let uniform = "@group(0) @binding(2) var<uniform> third: vec4<u32>;\n\n@compute";
    refuses(rule, "scale", "@compute", uniform, "1 bindings are no storage buffers");
    let shared = "@group(0) @binding(0) var<storage, read> third: array<u32>;\n\n@compute";
    refuses(rule, "scale", "@compute", shared, "3 variables share 2 bindings");
}

#[test]
fn immediates_are_one_struct_of_u32_that_begins_with_step_and_fits_64_bytes() {
    fn rule(kernel: &Kernel) -> Result<(), String> {
        let (module, _) = module(kernel, Precision::F64)?;
        let immediates = variables(&module, |space| space == AddressSpace::Immediate);
        let [parameters] = immediates[..] else {
            return Err(format!("{} variables are immediates, not one", immediates.len()));
        };
        let TypeInner::Struct { members, span } = &module.types[parameters.ty].inner else {
            return Err("the immediates are no struct".into());
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
                let at = member.offset;
                return Err(format!("{name} lies at byte {at} of the immediates, not {}", 4 * i));
            }
        }
        if *span > IMMEDIATE_BYTES {
            return Err(format!("{span} bytes of immediates, {IMMEDIATE_BYTES} are allowed"));
        }
        Ok(())
    }
    obey(rule);
    let other = "member 3 of the immediates, other, is no u32";
    refuses(rule, "scale", "rows: u32,", "rows: u32, other: f32,", other);
    refuses(rule, "scale", "step: u32, first: u32,", "first: u32, step: u32,", "is first, not step");
    let apart = "own lies at byte 16 of the immediates, not 12";
    refuses(rule, "scale", "rows: u32,", "rows: u32, @align(16)", apart);
    let many: String = (0..13).map(|i| format!("more_{i}: u32, ")).collect();
    refuses(rule, "scale", "own: u32", &format!("{many}own: u32"), "68 bytes of immediates, 64 are allowed");
    refuses(rule, "scale", "var<immediate>", "var<private>", "0 variables are immediates");
}

#[test]
fn a_kernel_has_one_compute_entry_point_with_its_own_name() {
    fn rule(kernel: &Kernel) -> Result<(), String> {
        let (module, _) = module(kernel, Precision::F64)?;
        let [entry] = &module.entry_points[..] else {
            return Err(format!("{} entry points, not one", module.entry_points.len()));
        };
        if entry.stage != ShaderStage::Compute || entry.name != kernel.name {
            return Err(format!("the entry point is {} of stage {:?}", entry.name, entry.stage));
        }
        Ok(())
    }
    obey(rule);
    refuses(rule, "scale", "fn scale(", "fn scales(", "the entry point is scales");
    let second = "@compute @workgroup_size(256) fn other() {}\n\n@compute";
    refuses(rule, "scale", "@compute", second, "2 entry points");
}

#[test]
fn workgroups_have_the_declared_size() {
    fn rule(kernel: &Kernel) -> Result<(), String> {
        let (module, _) = module(kernel, Precision::F64)?;
        for entry in &module.entry_points {
            let said = [kernel.group(), 1, 1];
            if entry.workgroup_size != said {
                return Err(format!("workgroups are {:?}, not {said:?}", entry.workgroup_size));
            }
        }
        Ok(())
    }
    obey(rule);
    refuses(rule, "scale", "@workgroup_size(256)", "@workgroup_size(128)", "workgroups are [128, 1, 1]");
    refuses(rule, "scale", "@workgroup_size(256)", "@workgroup_size(256, 2)", "workgroups are [256, 2, 1]");
}

#[test]
fn precision_is_chosen_in_exactly_one_line() {
    fn rule(kernel: &Kernel) -> Result<(), String> {
        let lines = kernel.wgsl.lines().filter(|&line| line == ALIAS).count();
        let places = kernel.wgsl.matches(ALIAS).count();
        if (lines, places) != (1, 1) {
            return Err(format!("{ALIAS:?} is {lines} lines and stands in {places} places, not 1 and 1"));
        }
        Ok(())
    }
    obey(rule);
    refuses(rule, "scale", ALIAS, "alias real  = f64;", "is 0 lines");
    refuses(rule, "scale", ALIAS, &format!("{ALIAS}\n{ALIAS}"), "is 2 lines");
    refuses(rule, "scale", ALIAS, &format!("// {ALIAS}\n{ALIAS}"), "is 1 lines and stands in 2 places");
    refuses(rule, "scale", ALIAS, &format!("{ALIAS} "), "is 0 lines");
}

#[test]
fn a_kernel_begins_with_a_comment() {
    fn rule(kernel: &Kernel) -> Result<(), String> {
        let first = kernel.wgsl.lines().next().unwrap_or_default();
        match first.strip_prefix("// ") {
            Some(header) if !header.trim().is_empty() => Ok(()),
            _ => Err(format!("line 1 is {first:?}, no header that says what the kernel computes")),
        }
    }
    obey(rule);
    refuses(rule, "scale", "// y_i", "y_i", "line 1 is \"y_i");
    refuses(rule, "scale", "// y_i", "\n// y_i", "line 1 is \"\"");
    refuses(rule, "scale", "// y_i", "// \n// y_i", "line 1 is \"// \"");
}

#[test]
fn workgroup_memory_is_at_most_16_kib_in_every_precision() {
    fn rule(kernel: &Kernel) -> Result<(), String> {
        for precision in precisions(kernel) {
            let (module, _) = module(kernel, precision)?;
            let arrays = variables(&module, |space| space == AddressSpace::WorkGroup);
            let bytes: u32 = arrays.iter().map(|v| module.types[v.ty].inner.size(module.to_ctx())).sum();
            if bytes > WORKGROUP_BYTES {
                let said = format!("{bytes} bytes of workgroup memory in {precision}");
                return Err(format!("{said}, {WORKGROUP_BYTES} are allowed"));
            }
        }
        Ok(())
    }
    obey(rule);
    let many = "16392 bytes of workgroup memory in f64";
    refuses(rule, "sweep", "array<real, 2048>", "array<real, 2049>", many);
    let second = "var<workgroup> flag: u32;\n\n@compute";
    refuses(rule, "sweep", "@compute", second, "16388 bytes of workgroup memory in f64");
}

/// True for functions that SPIR-V has only for 16 and 32 bits.
fn transcendental(function: MathFunction) -> bool {
    let all = "Exp Exp2 Log Log2 Pow Radians Degrees Sin Cos Tan Asin Acos Atan Atan2 Sinh Cosh Tanh Asinh Acosh Atanh";
    all.split(' ').any(|name| name == format!("{function:?}"))
}

#[test]
fn no_kernel_calls_a_transcendental_function_in_double_precision() {
    fn scan(module: &Module, function: &Function, info: &FunctionInfo) -> Result<(), String> {
        for (_, expression) in function.expressions.iter() {
            if let Expression::Math { fun, arg, .. } = *expression
                && transcendental(fun)
                && info[arg].ty.inner_with(&module.types).scalar_width() == Some(8)
            {
                return Err(format!("{fun:?} of an f64"));
            }
        }
        Ok(())
    }
    fn rule(kernel: &Kernel) -> Result<(), String> {
        let (module, info) = module(kernel, Precision::F64)?;
        for (handle, function) in module.functions.iter() {
            scan(&module, function, &info[handle])?;
        }
        for (i, entry) in module.entry_points.iter().enumerate() {
            scan(&module, &entry.function, info.get_entry_point(i))?;
        }
        Ok(())
    }
    obey(rule);
    for (call, name) in
        [("exp(c[i])", "Exp"), ("log2(c[i])", "Log2"), ("pow(c[i], b[i])", "Pow"), ("sin(c[i])", "Sin")]
    {
        refuses(rule, "triad", "real(3)", call, &format!("{name} of an f64"));
    }
    let helper = "fn wave(v: vec2<real>) -> real { return cos(v).x; }\n\n@compute";
    refuses(rule, "triad", "@compute", helper, "Cos of an f64");
    // Single precision and functions with an f64 version are allowed.
    let triad = kernel_named("triad");
    for call in ["real(exp(f32(i)))", "sqrt(c[i])"] {
        let allowed = with_text(triad, triad.wgsl.replace("real(3)", call));
        assert_eq!(complaint(rule, &allowed), None, "{call}");
    }
}

#[test]
fn no_kernel_has_atomics() {
    fn rule(kernel: &Kernel) -> Result<(), String> {
        let (module, _) = module(kernel, Precision::F64)?;
        // Every atomic operation needs a pointer to an atomic type. Those on textures need a
        // texture, and kernels bind only storage buffers.
        let atomics = module.types.iter().filter(|(_, t)| matches!(t.inner, TypeInner::Atomic(_))).count();
        if atomics > 0 {
            return Err(format!("{atomics} atomic types"));
        }
        Ok(())
    }
    obey(rule);
    refuses(rule, "scale", "@compute", "var<workgroup> count: atomic<u32>;\n\n@compute", "1 atomic types");
    let buffer = "@group(0) @binding(2) var<storage, read_write> counts: array<atomic<i32>>;\n\n@compute";
    refuses(rule, "scale", "@compute", buffer, "1 atomic types");
}

/// The CPU implementation, launches and lanes use the declaration in Rust; devices use the text.
#[test]
fn parameters_and_bindings_are_declared_as_the_text_has_them() {
    fn rule(kernel: &Kernel) -> Result<(), String> {
        precisions(kernel).try_for_each(|precision| reflect::declared(kernel, precision))
    }
    obey(rule);
    variants().into_iter().for_each(|kernel| assert_eq!(rule(kernel), Ok(()), "{}", kernel.name));
    for kernel in all() {
        assert!(kernel.interface.double.iter().any(|b| b.written), "{} writes no array", kernel.name);
    }
    refuses(rule, "scale", "rows: u32, own: u32", "own: u32, rows: u32", "parameters are declared as");
    refuses(rule, "scale", "factors", "multiples", "binding 0 is declared as (\"factors\"");
    refuses(rule, "add", "<storage, read>", "<storage, read_write>", "binding 0 is declared as");
    refuses(rule, "gather", "index: array<u32>", "index: array<i32>", "Some(U32)), the text has (\"index\"");
}
