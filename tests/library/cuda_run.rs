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

/// Returns expressions of type u32, and their values.
fn cases() -> impl Iterator<Item = (&'static str, u32)> {
    let lines = include_str!("known/cuda_operations.txt").lines();
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| {
        let (expression, value) = line.split_once(" => ").expect("a value");
        let number = match value.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => value.parse(),
        };
        (expression, number.expect("a number of 32 bits"))
    })
}

/// Returns a kernel that writes the value of each expression.
pub(crate) fn text() -> String {
    let stores =
        cases().enumerate().map(|(k, (expression, _))| format!("        out[{k}] = {expression};\n"));
    include_str!("cuda_operations.wgsl").replace("        // STORES\n", &stores.collect::<String>())
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
    let mut output = stream.alloc_zeros::<u32>(cases().count()).expect("room for the output");
    assert_eq!(cuda.params, 1, "words of immediates");
    let mut launch = stream.launch_builder(&function);
    launch.arg(&0u32).arg(&input).arg(&mut output);
    let grid = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 };
    // SAFETY: the arguments are the kernel's, in order and type, and it accesses elements of
    // `INPUT` and one element a case.
    unsafe { launch.launch(grid) }.expect("it runs");

    for (found, (expression, value)) in stream.clone_dtoh(&output).expect("a copy").iter().zip(cases()) {
        assert_eq!(*found, value, "{expression}: {found:#010x}, not {value:#010x}");
    }
}
