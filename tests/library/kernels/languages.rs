//! Languages that kernels are translated to.

use super::*;

/// The end of `scale.wgsl`, and a replacement with an image, which no kernel may read.
const PRODUCT: &str = "factors[p.first + p.step] * y[p.own + i];\n}";
const IMAGE: &str = "real(textureDimensions(image).x);\n}\n\
                     @group(0) @binding(2) var image: texture_2d<f32>;";

#[test]
fn every_kernel_parses_and_validates_in_every_precision() {
    fn rule(kernel: &Kernel) -> Result<(), String> {
        precisions(kernel).try_for_each(|precision| module(kernel, precision).map(drop))
    }
    obey(rule);
    refuses(rule, "scale", "return;", "return", "f32 does not parse");
    refuses(rule, "scale", "factors[p.first + p.step]", "p.first", "f32 is not valid");
    refuses(rule, "scale", "var<immediate> p: Params;", "var<uniform> p: Params;", "is not valid");
    // A lane of single precision replaces only the alias, not explicit f64.
    refuses(rule, "scale", "array<real>", "array<f64>", "f32 is not valid");
    refuses(rule, "scale", "factors: array<real>", "factors: array<f32>", "f64 is not valid");
}

/// Translates a kernel to SPIR-V for Vulkan, with the capabilities that wgpu allows.
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
        // Without a map, bindings keep their numbers of the text.
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

#[test]
fn every_kernel_translates_to_spir_v_in_every_precision() {
    fn rule(kernel: &Kernel) -> Result<(), String> {
        for precision in precisions(kernel) {
            for checked in [false, true] {
                spir_v(kernel, precision, (1, 3), checked)?;
            }
        }
        Ok(())
    }
    obey(rule);
    refuses(rule, "scale", "fn scale(", "fn scales(", "entry point couldn't be found");
    // Image queries are a capability of SPIR-V that no lane requests.
    refuses(rule, "scale", PRODUCT, IMAGE, "f32 in SPIR-V: using image queries requires");
}

/// Returns the entry point of a translation.
///
/// It is the kernel's name, followed by `_` if the language reserves that name.
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

/// Returns the modules for devices that have only 32-bit integers and single precision.
fn portable(kernel: &Kernel) -> Result<Vec<(Module, ModuleInfo)>, String> {
    // The fixed-point kernel of devices without 64-bit integers.
    let in_limbs = || parsed(kernel, Precision::F32, kernel.text_in_limbs());
    let fixed = kernel.has(Precision::Q64).then(in_limbs);
    fixed.into_iter().chain([module(kernel, Precision::F32)]).collect()
}

/// Translates a kernel to Metal, which has no double precision; slots are assigned as in wgpu.
fn metal(kernel: &Kernel, checked: bool) -> Result<(), String> {
    let target =
        |slot: u32| msl::BindTarget { buffer: Some(slot as u8), mutable: true, ..Default::default() };
    portable(kernel)?.into_iter().try_for_each(|(module, info)| {
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
        let entry_point = Some((ShaderStage::Compute, kernel.name.to_owned()));
        let pipeline = msl::PipelineOptions { entry_point, ..Default::default() };
        let (text, info) =
            msl::write_string(&module, &info, &options, &pipeline).map_err(|e| e.to_string())?;
        let name = self::entry_point(kernel, &info.entry_point_names)?;
        contains(&text, &format!("kernel void {name}("))
    })
}

#[test]
fn every_kernel_translates_to_msl_in_single_precision_and_limbs() {
    fn rule(kernel: &Kernel) -> Result<(), String> {
        [false, true]
            .into_iter()
            .try_for_each(|checked| metal(kernel, checked))
            .map_err(|e| format!("MSL: {e}"))
    }
    obey(rule);
    refuses(rule, "scale", "fn scale(", "fn scales(", "MSL: entry point");
    // An image gets no slot.
    refuses(rule, "scale", PRODUCT, IMAGE, "MSL: no entry point: mapping of ResourceBinding");
}

/// Translates a kernel to HLSL, in the oldest shader model that wgpu writes.
fn direct_x(kernel: &Kernel) -> Result<(), String> {
    let target = |register: u32| hlsl::BindTarget { register, ..Default::default() };
    portable(kernel)?.into_iter().try_for_each(|(module, info)| {
        let slot =
            |((group, binding), register)| (naga::ResourceBinding { group, binding }, target(register));
        let options = hlsl::Options {
            shader_model: hlsl::ShaderModel::V5_1,
            binding_map: bindings(&module).into_iter().zip(0..).map(slot).collect(),
            fake_missing_bindings: false,
            immediates_target: Some(target(0)),
            // Position of the number of workgroups in wgpu.
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
        contains(&text, &format!("[numthreads({}, 1, 1)]\nvoid {name}(", kernel.group()))
    })
}

#[test]
fn every_kernel_translates_to_hlsl_in_single_precision_and_limbs() {
    fn rule(kernel: &Kernel) -> Result<(), String> {
        direct_x(kernel).map_err(|e| format!("HLSL: {e}"))
    }
    obey(rule);
    refuses(rule, "scale", "fn scale(", "fn scales(", "HLSL: entry point");
    let missing = "there is no \"[numthreads(256, 1, 1)]";
    refuses(rule, "scale", "@workgroup_size(256)", "@workgroup_size(64)", missing);
}

#[test]
#[ignore = "slow: starts spirv-val for every kernel in every way"]
fn spirv_val_accepts_every_kernel_in_both_precisions() {
    fn rule(kernel: &Kernel) -> Result<(), String> {
        // SPIR-V versions that wgpu writes for Vulkan 1.1, 1.2 and 1.3.
        for (version, environment) in [((1, 3), "vulkan1.1"), ((1, 5), "vulkan1.2"), ((1, 6), "vulkan1.3")] {
            for precision in precisions(kernel) {
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
                        let said = [output.stdout, output.stderr].concat();
                        let said = String::from_utf8_lossy(&said);
                        return Err(format!("spirv-val for {environment}, {precision}: {said}"));
                    }
                }
            }
        }
        Ok(())
    }
    if Command::new("spirv-val").arg("--version").output().is_err() {
        return crate::devices::skip("spirv-val", "spirv-val is not on the path: install spirv-tools");
    }
    obey(rule);
    // naga accepts `exp` of f64, which SPIR-V does not have.
    refuses(rule, "triad", "real(3)", "exp(c[i])", "spirv-val for vulkan1.1, f64");
}

#[test]
fn texts_for_browsers_need_nothing_beyond_webgpu() {
    for kernel in all() {
        for precision in [Precision::F32, Precision::Q64].into_iter().filter(|&p| kernel.has(p)) {
            let text = kernel.text_for_browsers(precision);
            let module = naga::front::wgsl::parse_str(&text).expect("it parses, as it does for lanes");
            let checked = Validator::new(ValidationFlags::all(), Capabilities::empty()).validate(&module);
            assert!(checked.is_ok(), "{} in {precision}: {checked:?}", kernel.name);
        }
    }
}
