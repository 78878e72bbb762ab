//! Every kernel is accepted by every shader language that wgpu can hand it to, and obeys the house rules of
//! [`kolmo::kernel`].
//!
//! A rule is a function from a kernel to what is wrong with it. Its test asks it of every kernel, and of some
//! that are broken on purpose, which it must refuse for the reason given.
#![cfg(feature = "wgpu")]

use std::collections::BTreeSet;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

use kolmo::kernel::{Kernel, Precision, all, reflect};
use naga::back::{hlsl, msl, spv};
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, FunctionInfo, ModuleInfo, ValidationFlags, Validator};
use naga::{
    AddressSpace, Expression, Function, GlobalVariable, MathFunction, Module, ShaderStage, TypeInner,
};

const PRECISIONS: [Precision; 2] = [Precision::F32, Precision::F64];

/// The one line that a lane of single precision replaces.
const ALIAS: &str = "alias real = f64;";

/// What every adapter offers: Vulkan's least maximum of workgroup memory, in bytes.
const WORKGROUP_BYTES: u32 = 16 * 1024;
/// Storage buffers of a kernel that every lane can bind.
const BUFFERS: usize = 8;
/// Bytes of immediates.
const IMMEDIATE_BYTES: u32 = 64;

type Rule = fn(&Kernel) -> Result<(), String>;

/// Asserts that every kernel obeys a rule, naming all that do not.
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

/// Asserts that a rule refuses the kernel `name` once `from` is replaced by `to` in its text, and says `why`.
#[track_caller]
fn refuses(rule: Rule, name: &str, from: &str, to: &str, why: &str) {
    let kernel = all().into_iter().find(|k| k.name == name).unwrap_or_else(|| panic!("no kernel {name}"));
    assert!(kernel.wgsl.contains(from), "shaders/{name}.wgsl has no {from:?} to break");
    let broken = with_text(kernel, kernel.wgsl.replace(from, to));
    match complaint(rule, &broken) {
        None => panic!("shaders/{name}.wgsl with {to:?} for {from:?} is accepted"),
        Some(said) => {
            assert!(said.contains(why), "shaders/{name}.wgsl is refused for another reason: {said}");
        }
    }
}

fn with_text(kernel: &Kernel, wgsl: String) -> Kernel {
    Kernel { wgsl: wgsl.leak(), ..*kernel }
}

/// Writes past the test harness, which keeps what passing tests print to itself.
fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// The kernel as naga reads it, validated with what lanes ask of an adapter: immediates, and double precision
/// where it is computed in.
fn module(kernel: &Kernel, precision: Precision) -> Result<(Module, ModuleInfo), String> {
    let text = kernel.text(precision);
    let module = naga::front::wgsl::parse_str(&text)
        .map_err(|e| format!("{precision} does not parse: {}", e.emit_to_string(&text)))?;
    let capabilities = match precision {
        Precision::F32 => Capabilities::IMMEDIATES,
        Precision::F64 => Capabilities::IMMEDIATES | Capabilities::FLOAT64,
    };
    let info = Validator::new(ValidationFlags::all(), capabilities)
        .validate(&module)
        .map_err(|e| format!("{precision} is not valid: {}", e.emit_to_string(&text)))?;
    Ok((module, info))
}

/// The group and number of every binding, in order.
fn bindings(module: &Module) -> BTreeSet<(u32, u32)> {
    module.global_variables.iter().filter_map(|(_, v)| v.binding).map(|b| (b.group, b.binding)).collect()
}

fn variables(module: &Module, space: impl Fn(AddressSpace) -> bool) -> Vec<&GlobalVariable> {
    module.global_variables.iter().map(|(_, v)| v).filter(|v| space(v.space)).collect()
}

/// Bounds are checked with `--checked` and not otherwise.
fn bounds(checked: bool) -> BoundsCheckPolicies {
    let policy = if checked { BoundsCheckPolicy::Restrict } else { BoundsCheckPolicy::Unchecked };
    BoundsCheckPolicies { index: policy, buffer: policy, ..Default::default() }
}

// Languages.

/// The end of `scale.wgsl`, and another with an image, which no kernel may read.
const PRODUCT: &str = "factors[p.first + p.step] * y[p.own + i];\n}";
const IMAGE: &str = "real(textureDimensions(image).x);\n}\n\
                     @group(0) @binding(2) var image: texture_2d<f32>;";

#[test]
fn every_kernel_parses_and_validates_in_both_precisions() {
    fn rule(kernel: &Kernel) -> Result<(), String> {
        PRECISIONS.into_iter().try_for_each(|precision| module(kernel, precision).map(drop))
    }
    obey(rule);
    refuses(rule, "scale", "return;", "return", "f32 does not parse");
    refuses(rule, "scale", "factors[p.first + p.step]", "p.first", "f32 is not valid");
    refuses(rule, "scale", "var<immediate> p: Params;", "var<uniform> p: Params;", "is not valid");
    // Double precision beside the alias is out of reach for a lane of single precision.
    refuses(rule, "scale", "array<real>", "array<f64>", "f32 is not valid");
    refuses(rule, "scale", "factors: array<real>", "factors: array<f32>", "f64 is not valid");
}

/// SPIR-V for Vulkan, with what wgpu allows of it.
fn spir_v(
    kernel: &Kernel,
    precision: Precision,
    version: (u8, u8),
    checked: bool,
) -> Result<Vec<u32>, String> {
    let (module, info) = module(kernel, precision)?;
    let options = spv::Options {
        lang_version: version,
        flags: spv::WriterFlags::LABEL_VARYINGS,
        // Without a map, bindings keep the numbers of the text.
        fake_missing_bindings: true,
        capabilities: Some([spv::Capability::Shader, spv::Capability::Matrix].into_iter().collect()),
        bounds_check_policies: bounds(checked),
        force_loop_bounding: checked,
        ..Default::default()
    };
    let entry =
        spv::PipelineOptions { shader_stage: ShaderStage::Compute, entry_point: kernel.name.to_owned() };
    spv::write_vec(&module, &info, &options, Some(&entry)).map_err(|e| format!("{precision} in SPIR-V: {e}"))
}

/// Names of the compute entry points of a SPIR-V module.
fn entry_points(words: &[u32]) -> Vec<String> {
    const ENTRY_POINT: u32 = 15;
    const GL_COMPUTE: u32 = 5;
    const HEADER: usize = 5;
    let (mut names, mut at) = (Vec::new(), HEADER);
    while let Some(&first) = words.get(at) {
        let length = (first >> 16) as usize;
        assert!(length > 0, "an instruction of no words at word {at} of {}", words.len());
        if first & 0xffff == ENTRY_POINT && words[at + 1] == GL_COMPUTE {
            let bytes = words[at + 3..at + length].iter().flat_map(|w| w.to_le_bytes());
            let name = bytes.take_while(|&b| b != 0).collect();
            names.push(String::from_utf8(name).expect("SPIR-V is written in UTF-8"));
        }
        at += length;
    }
    names
}

#[test]
fn every_kernel_translates_to_spir_v_in_both_precisions() {
    fn rule(kernel: &Kernel) -> Result<(), String> {
        for precision in PRECISIONS {
            for checked in [false, true] {
                let words = spir_v(kernel, precision, (1, 3), checked)?;
                let names = entry_points(&words);
                if names != [kernel.name] {
                    return Err(format!("{precision} in SPIR-V has the entry points {names:?}"));
                }
            }
        }
        Ok(())
    }
    obey(rule);
    refuses(rule, "scale", "fn scale(", "fn scales(", "entry point couldn't be found");
    // The size of an image is a capability of SPIR-V that no lane asks for.
    refuses(rule, "scale", PRODUCT, IMAGE, "f32 in SPIR-V: using image queries requires");
}

/// The entry point of a translation: the kernel's name, or that name and `_` where the language reserves it.
fn entry_point<E: std::fmt::Display>(kernel: &Kernel, names: &[Result<String, E>]) -> Result<String, String> {
    let [name] = names else {
        return Err(format!("{} entry points, not one", names.len()));
    };
    let name = name.as_ref().map_err(|e| format!("no entry point: {e}"))?;
    if name.strip_suffix('_').unwrap_or(name) != kernel.name {
        return Err(format!("the entry point is {name}"));
    }
    Ok(name.clone())
}

fn contains(text: &str, wanted: &str) -> Result<(), String> {
    if text.contains(wanted) { Ok(()) } else { Err(format!("there is no {wanted:?} in\n{text}")) }
}

/// Single precision for Metal, which has no other. Slots are given to every binding as wgpu does.
fn metal(kernel: &Kernel, checked: bool) -> Result<(), String> {
    let (module, info) = module(kernel, Precision::F32)?;
    let target =
        |slot: u32| msl::BindTarget { buffer: Some(slot as u8), mutable: true, ..Default::default() };
    let bound = bindings(&module);
    let resources = msl::EntryPointResources {
        resources: bound
            .iter()
            .zip(1..)
            .map(|(&(group, binding), slot)| (naga::ResourceBinding { group, binding }, target(slot)))
            .collect(),
        immediates_buffer: Some(0),
        sizes_buffer: Some(1 + bound.len() as u8),
    };
    let options = msl::Options {
        lang_version: (2, 0),
        per_entry_point_map: [(kernel.name.to_owned(), resources)].into_iter().collect(),
        fake_missing_bindings: false,
        bounds_check_policies: bounds(checked),
        zero_initialize_workgroup_memory: false,
        force_loop_bounding: checked,
        ..Default::default()
    };
    let pipeline = msl::PipelineOptions {
        entry_point: Some((ShaderStage::Compute, kernel.name.to_owned())),
        ..Default::default()
    };
    let (text, info) = msl::write_string(&module, &info, &options, &pipeline).map_err(|e| e.to_string())?;
    let name = entry_point(kernel, &info.entry_point_names)?;
    contains(&text, &format!("kernel void {name}("))
}

#[test]
fn every_kernel_translates_to_msl_in_single_precision() {
    fn rule(kernel: &Kernel) -> Result<(), String> {
        [false, true]
            .into_iter()
            .try_for_each(|checked| metal(kernel, checked))
            .map_err(|e| format!("MSL: {e}"))
    }
    obey(rule);
    refuses(rule, "scale", "fn scale(", "fn scales(", "MSL: entry point");
    // No slot is given to an image.
    refuses(rule, "scale", PRODUCT, IMAGE, "MSL: no entry point: mapping of ResourceBinding");
}

/// Single precision for DX12, in the oldest shader model that wgpu writes.
fn direct_x(kernel: &Kernel) -> Result<(), String> {
    let (module, info) = module(kernel, Precision::F32)?;
    let target = |register: u32| hlsl::BindTarget { register, ..Default::default() };
    let options = hlsl::Options {
        shader_model: hlsl::ShaderModel::V5_1,
        binding_map: bindings(&module)
            .into_iter()
            .zip(0..)
            .map(|((group, binding), register)| (naga::ResourceBinding { group, binding }, target(register)))
            .collect(),
        fake_missing_bindings: false,
        immediates_target: Some(target(0)),
        // Where wgpu puts the number of workgroups.
        special_constants_binding: Some(target(1)),
        ..Default::default()
    };
    let pipeline =
        hlsl::PipelineOptions { entry_point: Some((ShaderStage::Compute, kernel.name.to_owned())) };
    let mut text = String::new();
    let reflection = hlsl::Writer::new(&mut text, &options, &pipeline)
        .write(&module, &info, None)
        .map_err(|e| e.to_string())?;
    let name = entry_point(kernel, &reflection.entry_point_names)?;
    contains(&text, &format!("[numthreads({}, 1, 1)]\nvoid {name}(", Kernel::GROUP))
}

#[test]
fn every_kernel_translates_to_hlsl_in_single_precision() {
    fn rule(kernel: &Kernel) -> Result<(), String> {
        direct_x(kernel).map_err(|e| format!("HLSL: {e}"))
    }
    obey(rule);
    refuses(rule, "scale", "fn scale(", "fn scales(", "HLSL: entry point");
    refuses(
        rule,
        "scale",
        "@workgroup_size(256)",
        "@workgroup_size(64)",
        "there is no \"[numthreads(256, 1, 1)]",
    );
}

/// Whether `spirv-val` is on the path.
fn spirv_val_is_here() -> bool {
    match Command::new("spirv-val").arg("--version").output() {
        Ok(output) => output.status.success(),
        Err(e) if e.kind() == ErrorKind::NotFound => false,
        Err(e) => panic!("spirv-val does not start: {e}"),
    }
}

#[test]
fn spirv_val_accepts_every_kernel_in_both_precisions() {
    fn rule(kernel: &Kernel) -> Result<(), String> {
        // What wgpu writes for Vulkan 1.1, 1.2 and 1.3.
        for (version, environment) in [((1, 3), "vulkan1.1"), ((1, 5), "vulkan1.2"), ((1, 6), "vulkan1.3")] {
            for precision in PRECISIONS {
                for checked in [false, true] {
                    let words = spir_v(kernel, precision, version, checked)?;
                    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
                    let file = tempfile::NamedTempFile::new().expect("a temporary file");
                    fs::write(file.path(), bytes).expect("a temporary file can be written");
                    let output = Command::new("spirv-val")
                        .args(["--target-env", environment])
                        .arg(file.path())
                        .output()
                        .map_err(|e| format!("spirv-val does not start: {e}"))?;
                    if !output.status.success() {
                        let (out, err) = (
                            String::from_utf8_lossy(&output.stdout),
                            String::from_utf8_lossy(&output.stderr),
                        );
                        return Err(format!("spirv-val for {environment}, {precision}: {out}{err}"));
                    }
                }
            }
        }
        Ok(())
    }
    if !spirv_val_is_here() {
        let required = env::var_os("KOLMO_REQUIRE_DEVICES").is_some();
        assert!(
            !required,
            "KOLMO_REQUIRE_DEVICES is set and spirv-val is not on the path: install spirv-tools"
        );
        return say("skipped: spirv-val is not on the path, so it has seen no kernel");
    }
    obey(rule);
    // What naga lets pass and SPIR-V does not have.
    refuses(rule, "triad", "real(3)", "exp(c[i])", "spirv-val for vulkan1.1, f64");
}

// House rules.

#[test]
fn bindings_lie_in_group_0_and_are_numbered_from_0_without_gaps() {
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
        // Two variables of one binding would be one argument.
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
    refuses(rule, "step", "@compute", ninth, "9 storage buffers, 8 are allowed");
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
                return Err(format!(
                    "{name} lies at byte {} of the immediates, not {}",
                    member.offset,
                    4 * i
                ));
            }
        }
        if *span > IMMEDIATE_BYTES {
            return Err(format!("{span} bytes of immediates, {IMMEDIATE_BYTES} are allowed"));
        }
        Ok(())
    }
    obey(rule);
    refuses(
        rule,
        "scale",
        "rows: u32,",
        "rows: u32, other: f32,",
        "member 3 of the immediates, other, is no u32",
    );
    refuses(rule, "scale", "step: u32, first: u32,", "first: u32, step: u32,", "is first, not step");
    refuses(
        rule,
        "scale",
        "rows: u32,",
        "rows: u32, @align(16)",
        "own lies at byte 16 of the immediates, not 12",
    );
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
    refuses(
        rule,
        "scale",
        "@compute",
        "@compute @workgroup_size(256) fn other() {}\n\n@compute",
        "2 entry points",
    );
}

#[test]
fn workgroups_are_256_by_1_by_1() {
    fn rule(kernel: &Kernel) -> Result<(), String> {
        let (module, _) = module(kernel, Precision::F64)?;
        for entry in &module.entry_points {
            if entry.workgroup_size != [256, 1, 1] {
                return Err(format!("workgroups are {:?}, not [256, 1, 1]", entry.workgroup_size));
            }
        }
        Ok(())
    }
    assert_eq!(Kernel::GROUP, 256, "threads in a workgroup");
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
fn workgroup_memory_is_at_most_16_kib_in_both_precisions() {
    fn rule(kernel: &Kernel) -> Result<(), String> {
        for precision in PRECISIONS {
            let (module, _) = module(kernel, precision)?;
            let arrays = variables(&module, |space| space == AddressSpace::WorkGroup);
            let bytes: u32 = arrays.iter().map(|v| module.types[v.ty].inner.size(module.to_ctx())).sum();
            if bytes > WORKGROUP_BYTES {
                return Err(format!(
                    "{bytes} bytes of workgroup memory in {precision}, {WORKGROUP_BYTES} are allowed"
                ));
            }
        }
        Ok(())
    }
    obey(rule);
    refuses(
        rule,
        "sweep",
        "array<real, 2048>",
        "array<real, 2049>",
        "16392 bytes of workgroup memory in f64",
    );
    let second = "var<workgroup> flag: u32;\n\n@compute";
    refuses(rule, "sweep", "@compute", second, "16388 bytes of workgroup memory in f64");
}

/// Functions that SPIR-V has for 16 and 32 bits alone.
fn transcendental(function: MathFunction) -> bool {
    use MathFunction as M;
    matches!(
        function,
        M::Exp
            | M::Exp2
            | M::Log
            | M::Log2
            | M::Pow
            | M::Radians
            | M::Degrees
            | M::Sin
            | M::Cos
            | M::Tan
            | M::Asin
            | M::Acos
            | M::Atan
            | M::Atan2
            | M::Sinh
            | M::Cosh
            | M::Tanh
            | M::Asinh
            | M::Acosh
            | M::Atanh
    )
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
    // In single precision, and of what is always allowed, nothing is said.
    let triad = all().into_iter().find(|k| k.name == "triad").expect("the triad is a kernel");
    for call in ["real(exp(f32(i)))", "sqrt(c[i])"] {
        let allowed = with_text(triad, triad.wgsl.replace("real(3)", call));
        assert_eq!(complaint(rule, &allowed), None, "{call}");
    }
}

#[test]
fn no_kernel_has_atomics() {
    fn rule(kernel: &Kernel) -> Result<(), String> {
        let (module, _) = module(kernel, Precision::F64)?;
        // Every atomic operation needs a pointer to an atomic type; those on textures need one, and kernels
        // bind storage buffers alone.
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

#[test]
fn reflection_reads_the_same_interface_in_both_precisions() {
    for kernel in all() {
        let [single, double] = PRECISIONS.map(|precision| reflect::interface(kernel, precision));
        assert_eq!(single, double, "shaders/{}.wgsl", kernel.name);
        let (module, _) = module(kernel, Precision::F64).unwrap_or_else(|e| panic!("{}: {e}", kernel.name));
        assert_eq!(
            double.read_only.len(),
            bindings(&module).len(),
            "bindings of shaders/{}.wgsl",
            kernel.name
        );
        assert_eq!(
            double.param_bytes as usize,
            4 * double.params.len(),
            "bytes of shaders/{}.wgsl",
            kernel.name
        );
        assert!(double.read_only.contains(&false), "shaders/{}.wgsl writes no array", kernel.name);
    }
}

// Files.

/// What differs between a folder of shaders and the kernels that are registered.
fn differences(folder: &Path, kernels: &[&Kernel]) -> Vec<String> {
    let mut found = BTreeSet::new();
    let mut wrong = Vec::new();
    for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.unwrap_or_else(|e| panic!("{}: {e}", folder.display())).path();
        // A folder may hold other texts of a kernel.
        if path.is_dir() {
            continue;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match name.strip_suffix(".wgsl").and_then(|stem| kernels.iter().find(|k| k.name == stem)) {
            None => wrong.push(format!("shaders/{name} is no registered kernel")),
            Some(kernel) => {
                if fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
                    != kernel.wgsl
                {
                    wrong.push(format!(
                        "kernel {} is registered with another text than shaders/{name}",
                        kernel.name
                    ));
                }
                found.insert(kernel.name);
            }
        }
    }
    let missing = kernels.iter().filter(|k| !found.contains(k.name));
    wrong.extend(missing.map(|k| format!("kernel {} is registered without shaders/{}.wgsl", k.name, k.name)));
    wrong
}

/// `shaders/` beside this package's manifest, in the current folder or above it.
fn shaders() -> Option<PathBuf> {
    let here = env::current_dir().ok()?;
    let ours = |folder: &&Path| {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
        manifest.lines().any(|line| line == "name = \"kolmo\"") && folder.join("shaders").is_dir()
    };
    here.ancestors().find(ours).map(|folder| folder.join("shaders"))
}

#[test]
fn every_file_in_shaders_is_a_registered_kernel_and_every_kernel_has_its_file() {
    let kernels = all();
    match shaders() {
        Some(folder) => assert_eq!(differences(&folder, &kernels), Vec::<String>::new()),
        None => say("skipped: no shaders/ of kolmo in the current folder or above it"),
    }

    let copy = tempfile::tempdir().expect("a temporary folder");
    for kernel in &kernels {
        fs::write(copy.path().join(format!("{}.wgsl", kernel.name)), kernel.wgsl)
            .expect("a copy can be written");
    }
    assert_eq!(differences(copy.path(), &kernels), Vec::<String>::new(), "of a faithful copy");
    fs::write(copy.path().join("scale.wgsl"), "// another").expect("a copy can be written");
    fs::rename(copy.path().join("triad.wgsl"), copy.path().join("stray.wgsl"))
        .expect("a copy can be renamed");
    let mut wrong = differences(copy.path(), &kernels);
    wrong.sort();
    assert_eq!(
        wrong,
        [
            "kernel scale is registered with another text than shaders/scale.wgsl",
            "kernel triad is registered without shaders/triad.wgsl",
            "shaders/stray.wgsl is no registered kernel",
        ]
    );
}

#[test]
fn no_kernel_is_registered_twice() {
    let kernels = all();
    let names: BTreeSet<_> = kernels.iter().map(|k| k.name).collect();
    assert_eq!(
        names.len(),
        kernels.len(),
        "names of {:?}",
        kernels.iter().map(|k| k.name).collect::<Vec<_>>()
    );
}

/// The functions of a text but for its entry point: name, and all from `fn` to the brace that ends it.
fn functions(wgsl: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    for (at, _) in wgsl.match_indices("\nfn ") {
        let text = &wgsl[at + 1..];
        if wgsl[..at].ends_with("@workgroup_size(256)") {
            continue;
        }
        let end = text.find("\n}\n").map_or(text.len(), |end| end + 2);
        // One line holds all of a short one.
        let line = text.find('\n').unwrap_or(text.len());
        let text = if text[..line].ends_with('}') { &text[..line] } else { &text[..end] };
        found.push((text[3..].split('(').next().unwrap_or_default(), text));
    }
    found
}

/// WGSL has no includes: a function that several kernels need is copied, and the copies stay copies.
#[test]
fn functions_of_one_name_have_one_text() {
    fn differing(kernels: &[&Kernel]) -> Vec<String> {
        let mut first = std::collections::BTreeMap::new();
        let mut wrong = Vec::new();
        for kernel in kernels {
            for (name, text) in functions(kernel.wgsl) {
                let (other, known) = *first.entry(name).or_insert((kernel.name, text));
                if text != known {
                    wrong.push(format!("{name} in shaders/{}.wgsl and shaders/{other}.wgsl", kernel.name));
                }
            }
        }
        wrong
    }
    let kernels = all();
    assert_eq!(differing(&kernels), Vec::<String>::new(), "functions with two texts");

    let names: Vec<_> = functions(kernel_named("sequence").wgsl).iter().map(|f| f.0).collect();
    assert!(names.contains(&"philox") && names.contains(&"push_digit"), "{names:?}");
    assert!(!names.contains(&"sequence"), "the entry point has the kernel's own text");
    let sequence = kernel_named("sequence");
    let changed = with_text(sequence, sequence.wgsl.replace("0x7feb352du", "0x7feb352fu"));
    assert_eq!(
        differing(&[sequence, &changed]),
        ["mix_bits in shaders/sequence.wgsl and shaders/sequence.wgsl"]
    );
}

fn kernel_named(name: &str) -> &'static Kernel {
    all().into_iter().find(|k| k.name == name).unwrap_or_else(|| panic!("no kernel {name}"))
}
