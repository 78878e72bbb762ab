//! Translation of kernels to CUDA C++.
//!
//! NVIDIA's compiler accepts every text without a warning. Constructs outside the subset are
//! rejected by name. The fuzz target `cuda` searches for texts that make the translation panic.
//!
//! The compiler is NVRTC, which needs no GPU and no driver. It is searched for in `KOLMO_NVRTC_DIR`
//! (see `tests/nvrtc.sh`), then in the library paths of the system. With `nvrtc` in
//! `KOLMO_REQUIRE_DEVICES` a missing NVRTC is a failure.
#![cfg(feature = "cuda")]

use std::ffi::{CString, c_char};
use std::path::Path;

use crate::interface::{interface, precisions};
use cudarc::nvrtc::result::{
    NvrtcError, compile_program, create_program, destroy_program, get_program_log, get_ptx,
};
use kolmo::kernel::cuda::{CudaKernel, OPTIONS, Unsupported, translate};
use kolmo::kernel::{Kernel, Precision};
use kolmo::registry::{all, variants};
use libloading::Library;

/// Target architectures.
///
/// The oldest one that CUDA 13 supports, the oldest of those with full double-precision units, and
/// a recent one.
const ARCHITECTURES: [&str; 3] = ["sm_75", "sm_80", "sm_90"];

fn kernel(name: &'static str, wgsl: String) -> Kernel {
    Kernel { name, wgsl: wgsl.leak(), least_cuda_groups: 0, ..*all()[0] }
}

fn translated(wgsl: &str) -> Result<CudaKernel, Unsupported> {
    translate(&kernel("construct", wgsl.to_owned()), Precision::F64)
}

/// NVIDIA's compiler, loaded before the functions of cudarc look for it.
struct Nvrtc(#[expect(dead_code, reason = "it stays loaded")] Library);

#[expect(unsafe_code, reason = "NVRTC is a C library")]
impl Nvrtc {
    /// Loads the library; without it, the test is skipped with a message.
    fn open() -> Option<Self> {
        let mut places = Vec::new();
        let names =
            ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "nvrtc64_130_0.dll", "nvrtc64_120_0.dll"];
        if let Some(folder) = std::env::var_os("KOLMO_NVRTC_DIR") {
            places.extend(names.map(|name| Path::new(&folder).join(name).into_os_string()));
        }
        places.extend(names.map(Into::into));
        // SAFETY: loading NVRTC runs NVIDIA's code, which has no preconditions.
        let found = places.iter().find_map(|place| unsafe { Library::new(place) }.ok());
        if found.is_none() {
            let remedy = "KOLMO_NVRTC_DIR=$(tests/nvrtc.sh) brings one";
            crate::devices::skip("nvrtc", format!("no NVRTC in any of {places:?}; {remedy}"));
        }
        found.map(Self)
    }

    /// Returns PTX, or the message of the compiler.
    ///
    /// A warning is an error: the text is our own.
    fn compile(&self, text: &str, architecture: &str) -> Result<String, String> {
        let source = CString::new(text).expect("a text without zero bytes");
        let program = create_program(&source, None).expect("a program");
        let architecture = format!("--gpu-architecture={architecture}");
        let options = [&architecture[..]].into_iter().chain(OPTIONS);
        let read = |text: Result<Vec<c_char>, NvrtcError>| {
            let bytes = text.expect("a text").into_iter().map(|c| c as u8).take_while(|&c| c != 0);
            String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
        };
        // SAFETY: the program exists until it is destroyed below, and the source outlives it.
        let (status, log, ptx) = unsafe {
            let status = compile_program(program, &options.collect::<Vec<&str>>());
            let log = read(get_program_log(program));
            (status, log, status.map(|()| read(get_ptx(program))))
        };
        // SAFETY: the program exists, and is not used after this.
        unsafe { destroy_program(program) }.expect("the program is destroyed");
        ptx.ok().filter(|_| log.trim().is_empty()).ok_or_else(|| format!("{status:?}: {log}"))
    }
}

#[test]
fn every_kernel_is_translated_with_the_interface_of_its_text() {
    for kernel in all().into_iter().chain(variants()) {
        for precision in precisions(kernel) {
            let cuda = translate(kernel, precision).unwrap_or_else(|e| panic!("{precision}: {e}"));
            let interface = interface(kernel, precision).unwrap_or_else(|e| panic!("{}: {e}", kernel.name));
            assert_eq!(cuda.entry, kernel.name);
            let read_only: Vec<bool> = interface.bindings.iter().map(|(_, written, _)| !written).collect();
            assert_eq!(cuda.bindings, read_only, "bindings of {}", kernel.name);
            assert_eq!(cuda.params, interface.params.len(), "parameters of {}", kernel.name);
            let groups = match kernel.least_cuda_groups {
                0 => String::new(),
                groups => format!(", __CUDA_ARCH__ < 800 ? {} : {groups}", groups.min(1024 / kernel.group())),
            };
            let bounds = format!("__launch_bounds__({}{groups})", kernel.group());
            let head = format!("extern \"C\" __global__ void {bounds}\n{}(const Params_t", kernel.name);
            assert_eq!(cuda.text.matches(&head).count(), 1, "{}", cuda.text);
            let pointers =
                cuda.text.split(&head).nth(1).and_then(|rest| rest.lines().next()).unwrap_or_default();
            let qualified = pointers.matches("* __restrict__ ").count();
            assert_eq!(qualified, cuda.bindings.iter().filter(|&&read_only| read_only).count(), "{pointers}");
            assert_eq!(pointers.matches("* ").count(), cuda.bindings.len(), "{pointers}");
        }
    }
}

#[test]
fn products_in_fixed_point_are_those_of_the_prelude() {
    let mut found = 0;
    for kernel in all().into_iter().filter(|kernel| kernel.has(Precision::Q64)) {
        let text = translate(kernel, Precision::Q64).unwrap_or_else(|e| panic!("{e}")).text;
        // Names of translated functions contain a number.
        assert!(!text.contains("add_long_product_f"), "{}", kernel.name);
        found += u32::from(text.contains("= add_long_product("));
    }
    assert!(found > 0, "no kernel adds up products in fixed point");
}

#[test]
fn nvrtc_compiles_every_kernel() {
    let Some(nvrtc) = Nvrtc::open() else { return };
    let mut complaints = Vec::new();
    for (i, kernel) in all().into_iter().chain(variants()).enumerate() {
        for (j, precision) in precisions(kernel).enumerate() {
            let cuda = translate(kernel, precision).unwrap_or_else(|e| panic!("{precision}: {e}"));
            // The text does not depend on the architecture; each architecture compiles a third of
            // the kernels.
            let architecture = ARCHITECTURES[(i + j) % ARCHITECTURES.len()];
            match nvrtc.compile(&cuda.text, architecture) {
                Ok(ptx) => assert!(ptx.contains(&format!(".entry {}(", kernel.name)), "{ptx}"),
                Err(e) => complaints.push(format!("{} in {precision} for {architecture}: {e}", kernel.name)),
            }
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn nvrtc_compiles_operations_of_every_kind() {
    let Some(nvrtc) = Nvrtc::open() else { return };
    let cuda = translated(&crate::cuda_run::text()).unwrap_or_else(|e| panic!("{e}"));
    nvrtc.compile(&cuda.text, "sm_80").unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn the_compiler_fuses_only_explicit_fma() {
    let Some(nvrtc) = Nvrtc::open() else { return };
    let fused = |ptx: &str| ptx.matches("fma.rn").count();
    for precision in [Precision::F32, Precision::F64] {
        let triad = all().into_iter().find(|k| k.name == "triad").expect("the triad is a kernel");
        let ptx = |text: String| {
            let cuda = translate(&kernel("triad", text), precision).unwrap_or_else(|e| panic!("{e}"));
            nvrtc.compile(&cuda.text, "sm_90").unwrap_or_else(|e| panic!("{e}"))
        };
        assert_eq!(fused(&ptx(triad.wgsl.to_owned())), 1, "the triad in {precision}");
        let apart = triad.wgsl.replace("fma(real(3), c[i], b[i])", "real(3) * c[i] + b[i]");
        assert_ne!(apart, triad.wgsl, "the triad has an fma to take apart");
        assert_eq!(fused(&ptx(apart)), 0, "the triad taken apart in {precision}");
    }
}

// Rejected constructs.

/// Asserts that a kernel is rejected for the reason `why`, at the line of `HERE`.
#[track_caller]
fn refuses_text(wgsl: &str, why: &str) {
    let refusal = translated(wgsl).map(|cuda| cuda.text).expect_err(wgsl);
    let said = refusal.to_string();
    assert!(said.contains(why), "refused for another reason: {said}");
    assert!(said.starts_with("shaders/construct.wgsl"), "{said}");
    let line = wgsl.lines().position(|line| line.contains("// HERE")).map(|line| line as u32 + 1);
    if line.is_some() {
        assert_eq!(refusal.line, line, "{said}\n{wgsl}");
    }
}

#[test]
fn constructs_outside_the_subset_are_refused() {
    for section in include_str!("refused.wgsl").split("\n// == ").skip(1) {
        let (why, text) = section.split_once('\n').expect("a reason");
        match text.split_once("// --\n") {
            Some((declarations, statements)) => refuses_text(&with(declarations, statements), why),
            None => refuses_text(text, why),
        }
    }
}

/// Returns a kernel with these declarations, and these statements between a load and a store.
fn with(declarations: &str, statements: &str) -> String {
    let frame = include_str!("refused_frame.wgsl");
    frame.replace("// DECLARATIONS", declarations).replace("// STATEMENTS", statements)
}

#[test]
fn functions_outside_the_subset_are_refused() {
    let calls = "exp(x); log2(x); pow(x, x); sin(x); atan2(x, x); tanh(x); sqrt(x); ceil(x); floor(x); \
                 round(x); trunc(x); degrees(x); dot(vec3(x), vec3(x)); \
                 cross(vec3(x), vec3(x)).x; normalize(vec3(x)).x; sign(x); mix(x, x, x); step(x, x); \
                 f32(countOneBits(i)); f32(extractBits(i, 1, 2)); modf(x).fract; frexp(x).fract; \
                 f32(pack4x8snorm(vec4(x))); unpack4x8unorm(i).x; f32(dot4U8Packed(i, i))";
    for call in calls.split("; ") {
        let name = call.trim_start_matches("f32(").split('(').next().expect("a call has a name");
        let named = format!(": {}{}:", name[..1].to_uppercase(), &name[1..]);
        refuses_text(&with("", &format!("    x = {call}; // HERE")), &named);
    }
}
