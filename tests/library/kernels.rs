//! Kernels compile to every shader language of wgpu and obey the rules of [`kolmo::kernel`].
//!
//! A rule is a function that returns the defect of a kernel. Its test applies it to every kernel,
//! and to kernels with a deliberate defect, which it must reject for the given reason.
#![cfg(feature = "wgpu")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::interface::{declared, module, parsed, precisions};
use kolmo::kernel::{Kernel, Precision};
use kolmo::registry::{all, variants};
use naga::back::{hlsl, msl, spv};
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, FunctionInfo, ModuleInfo, ValidationFlags, Validator};
use naga::{AddressSpace, Expression, Function, MathFunction, Module, ShaderStage};

mod languages;
mod texts;

/// Workgroup memory of every adapter in bytes: the minimum that Vulkan guarantees.
const WORKGROUP_BYTES: u32 = 16 * 1024;

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

/// Returns the group and number of every binding, in order.
fn bindings(module: &Module) -> BTreeSet<(u32, u32)> {
    module.global_variables.iter().filter_map(|(_, v)| v.binding).map(|b| (b.group, b.binding)).collect()
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
fn interfaces_obey_the_rules_and_are_declared_as_the_text_has_them() {
    fn rule(kernel: &Kernel) -> Result<(), String> {
        precisions(kernel).try_for_each(|precision| declared(kernel, precision))
    }
    obey(rule);
    variants().into_iter().for_each(|kernel| assert_eq!(rule(kernel), Ok(()), "{}", kernel.name));
    for kernel in all() {
        assert!(kernel.interface.double.iter().any(|b| b.written), "{} writes no array", kernel.name);
    }
    let seven = |n: u32| format!("@group(0) @binding({n}) var<storage, read> more_{n}: array<u32>;\n");
    let seven: String = (2..9).map(seven).collect();
    let many: String = (0..13).map(|i| format!("more_{i}: u32, ")).collect();
    let lines = include_str!("kernels/interfaces.txt").lines();
    for line in lines.filter(|line| !line.starts_with('#')) {
        let [from, to, why] = line.split(" => ").collect::<Vec<_>>()[..] else { panic!("{line}") };
        refuses(rule, "scale", from, &to.replace("\\n", "\n"), why);
    }
    refuses(rule, "scale", "@compute", &(seven + "@compute"), "9 storage buffers, 8 are allowed");
    refuses(rule, "scale", "own: u32", &(many + "own: u32"), "68 bytes of immediates, 64 are allowed");
    refuses(rule, "add", "<storage, read>", "<storage, read_write>", "binding 0 is declared as");
    refuses(rule, "gather", "index: array<u32>", "index: array<i32>", "Some(U32)), the text has (\"index\"");
}

#[test]
fn workgroup_memory_is_at_most_16_kib_and_32_in_double_precision() {
    fn rule(kernel: &Kernel) -> Result<(), String> {
        for precision in precisions(kernel) {
            let (module, _) = module(kernel, precision)?;
            let arrays = module.global_variables.iter().filter(|(_, v)| v.space == AddressSpace::WorkGroup);
            let bytes: u32 = arrays.map(|(_, v)| module.types[v.ty].inner.size(module.to_ctx())).sum();
            let most = WORKGROUP_BYTES * if precision == Precision::F64 { 2 } else { 1 };
            if bytes > most {
                return Err(format!("{bytes} bytes of workgroup memory in {precision}, {most} are allowed"));
            }
        }
        Ok(())
    }
    obey(rule);
    let many = "16388 bytes of workgroup memory in f32";
    refuses(rule, "sweep", "array<real, 2048>", "array<real, 4097>", many);
    let second = "var<workgroup> flags: array<u32, 2049>;\n\n@compute";
    refuses(rule, "sweep", "@compute", second, many);
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
    refuses(rule, "triad", "real(3)", "exp(c[i])", "Exp of an f64");
    refuses(rule, "triad", "real(3)", "log2(c[i])", "Log2 of an f64");
    refuses(rule, "triad", "real(3)", "pow(c[i], b[i])", "Pow of an f64");
    refuses(rule, "triad", "real(3)", "sin(c[i])", "Sin of an f64");
    let helper = "fn wave(v: vec2<real>) -> real { return cos(v).x; }\n\n@compute";
    refuses(rule, "triad", "@compute", helper, "Cos of an f64");
    // Single precision and functions with an f64 version are allowed.
    let triad = kernel_named("triad");
    for call in ["real(exp(f32(i)))", "sqrt(c[i])"] {
        let allowed = with_text(triad, triad.wgsl.replace("real(3)", call));
        assert_eq!(complaint(rule, &allowed), None, "{call}");
    }
}
