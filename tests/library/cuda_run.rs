//! Operations at the ends of their ranges on CUDA, with the numbers that `kolmo::kernel::cuda`
//! states.
//!
//! Everything else that is translated runs in the kernels, whose results on CUDA are compared with
//! those of the CPU. This runs on CUDA device 0. Without a device the test is skipped with one
//! line, unless `KOLMO_REQUIRE_DEVICES` names `cuda:0`.
#![cfg(feature = "cuda")]

use std::sync::Arc;

use crate::devices::skip;
use cudarc::driver::{CudaContext, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::{CompileOptions, compile_ptx_with_opts};
use kolmo::kernel::cuda::{OPTIONS, translate};
use kolmo::kernel::{Kernel, Precision};
use kolmo::registry::all;

/// Input words: i32::MIN, −1, 0, 1, 7, the bits of 1e20, 0.1 and 3 in f32, and of a NaN.
const INPUT: [u32; 9] = [0x8000_0000, u32::MAX, 0, 1, 7, 0x60ad_78ec, 0x3dcc_cccd, 0x4040_0000, 0x7fc0_0000];

/// Expressions of type u32, and their values.
const CASES: [(&str, u32); 34] = [
    // Integers wrap.
    ("bitcast<u32>(least + minus)", 0x7fff_ffff),
    ("bitcast<u32>(least - one)", 0x7fff_ffff),
    ("bitcast<u32>(least * minus)", 0x8000_0000),
    ("bitcast<u32>(-least)", 0x8000_0000),
    ("bitcast<u32>(abs(least))", 0x8000_0000),
    ("a[2] - a[3]", u32::MAX),
    ("u32((u64(a[2]) - u64(a[3])) >> 32u)", u32::MAX),
    // Divisions are total.
    ("bitcast<u32>(least / minus)", 0x8000_0000),
    ("bitcast<u32>(least % minus)", 0),
    ("bitcast<u32>(least / zero)", 0x8000_0000),
    ("bitcast<u32>(least % zero)", 0),
    ("a[4] / a[2]", 7),
    ("a[4] % a[2]", 0),
    ("u32(u64(a[4]) / u64(a[2]))", 7),
    ("bitcast<u32>((vec2(least, one) / vec2(minus, zero)).x)", 0x8000_0000),
    // Shifts take the amount modulo the width.
    ("bitcast<u32>(one << (a[4] + 26u))", 2),
    ("bitcast<u32>(least >> (a[4] + 26u))", 0xc000_0000),
    ("a[4] << (a[4] + 26u)", 14),
    ("u32(u64(a[4]) << (a[4] + 58u))", 14),
    // Conversions clamp to numbers that both types represent.
    ("bitcast<u32>(i32(large))", 2_147_483_520),
    ("bitcast<u32>(i32(-large))", 0x8000_0000),
    ("u32(large)", 4_294_967_040),
    ("u32(-large)", 0),
    ("u32(u64(large) >> 32u)", 0xffff_ff00),
    ("bitcast<u32>(i32(f64(large)))", 0x7fff_ffff),
    ("u32(f64(large))", u32::MAX),
    ("u32(u64(f64(large)))", 0xffff_f800),
    ("bitcast<u32>(i32(nan))", 0x8000_0000),
    ("u32(nan)", 0),
    // Floating-point operations round once each; `fma` rounds once. 0.1 · 3 − 0.3 in f32.
    ("bitcast<u32>(tenth * three - f32(0.3))", 0),
    ("bitcast<u32>(fma(tenth, three, -f32(0.3)))", 0xb200_0000),
    ("bitcast<u32>(three % tenth)", 0x3dcc_ccc7),
    ("bitcast<u32>(min(tenth, three))", 0x3dcc_cccd),
    ("reverseBits(a[4])", 0xe000_0000),
];

/// Returns a kernel that writes the value of each expression.
pub(crate) fn text() -> String {
    let stores =
        CASES.iter().enumerate().map(|(k, (expression, _))| format!("        out[{k}] = {expression};\n"));
    format!(
        "// Operations at the ends of their ranges.
struct Params {{ step: u32 }}
var<immediate> p: Params;
@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;

@compute @workgroup_size(256)
fn construct(@builtin(local_invocation_index) i: u32) {{
    if i == 0u {{
        let least = bitcast<i32>(a[0]); let minus = bitcast<i32>(a[1]);
        let zero = bitcast<i32>(a[2]); let one = bitcast<i32>(a[3]);
        let large = bitcast<f32>(a[5]); let tenth = bitcast<f32>(a[6]);
        let three = bitcast<f32>(a[7]); let nan = bitcast<f32>(a[8]);
{}    }}
}}
",
        stores.collect::<String>()
    )
}

/// Opens device 0, or returns the reason why it is missing.
#[expect(unsafe_code, reason = "whether a library is there is found out by loading it")]
fn open() -> Result<Arc<CudaContext>, String> {
    // SAFETY: loading the driver runs NVIDIA's code, which has no preconditions.
    if !unsafe { cudarc::driver::sys::is_culib_present() } {
        return Err("no CUDA driver".into());
    }
    // SAFETY: loading NVRTC runs NVIDIA's code, which has no preconditions.
    if !unsafe { cudarc::nvrtc::sys::is_culib_present() } {
        return Err("no NVRTC".into());
    }
    match CudaContext::device_count() {
        Ok(0) => Err("no CUDA device".into()),
        Ok(_) => CudaContext::new(0).map_err(|e| e.to_string()),
        Err(e) => Err(e.to_string()),
    }
}

#[test]
#[expect(unsafe_code, reason = "CUDA cannot check that arguments match a kernel")]
fn operations_have_their_values_at_the_ends_of_their_ranges() {
    let device = match open() {
        Ok(device) => device,
        Err(e) => return skip("cuda:0", format!("cuda:0 does not open: {e}")),
    };
    let kernel = Kernel { name: "construct", wgsl: text().leak(), ..*all()[0] };
    let cuda = translate(&kernel, Precision::F64).unwrap_or_else(|e| panic!("{e}"));
    let (major, minor) = device.compute_capability().expect("a device has a capability");
    let mut options = vec![format!("--gpu-architecture=compute_{major}{minor}")];
    options.extend(OPTIONS.map(str::to_owned));
    let ptx = compile_ptx_with_opts(&cuda.text, CompileOptions { options, ..CompileOptions::default() })
        .expect("NVRTC compiles it");
    let module = device.load_module(ptx).expect("a module");
    let (function, stream) =
        (module.load_function(&cuda.entry).expect("its kernel"), device.default_stream());
    let input = stream.clone_htod(&INPUT).expect("a copy");
    let mut output = stream.alloc_zeros::<u32>(CASES.len()).expect("room for the output");
    assert_eq!(cuda.params, 1, "words of immediates");
    let mut launch = stream.launch_builder(&function);
    launch.arg(&0u32).arg(&input).arg(&mut output);
    let grid = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 };
    // SAFETY: the arguments are the kernel's, in order and type, and it accesses elements of
    // `INPUT` and one element a case.
    unsafe { launch.launch(grid) }.expect("it runs");

    for (found, (expression, value)) in stream.clone_dtoh(&output).expect("a copy").iter().zip(CASES) {
        assert_eq!(*found, value, "{expression}: {found:#010x}, not {value:#010x}");
    }
}
