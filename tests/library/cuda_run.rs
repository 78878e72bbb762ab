//! Every construct that is translated to CUDA computes the values that WGSL defines.
//!
//! This runs on CUDA device 0. Without a device the test is skipped with one line, unless
//! `KOLMO_REQUIRE_DEVICES` names `cuda:0`.
#![cfg(feature = "cuda")]

use std::sync::Arc;

use crate::constructs::{Construct, PARAMS};
use crate::devices::skip;
use cudarc::driver::{CudaContext, CudaStream, DeviceRepr, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::{CompileOptions, compile_ptx_with_opts};
use kolmo::kernel::cuda::{OPTIONS, translate};
use kolmo::kernel::{Kernel, Precision};
use kolmo::registry::all;

/// The immediates of every construct.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Params([u32; 2]);

#[expect(unsafe_code, reason = "a kernel's arguments are bytes to CUDA")]
// SAFETY: two words without padding, in the layout of C.
unsafe impl DeviceRepr for Params {}

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

fn device() -> Option<Arc<CudaContext>> {
    open()
        .map_err(|e| {
            skip("cuda:0", format!("cuda:0 does not open: {e}"));
        })
        .ok()
}

/// Runs a construct and returns its output buffer.
#[expect(unsafe_code, reason = "CUDA cannot check that arguments match a kernel")]
fn run(
    device: &Arc<CudaContext>,
    stream: &Arc<CudaStream>,
    construct: &Construct,
) -> Result<Vec<u8>, String> {
    let kernel = Kernel { name: "construct", wgsl: construct.wgsl.clone().leak(), ..*all()[0] };
    let cuda = translate(&kernel, Precision::F64).map_err(|e| e.to_string())?;
    let (major, minor) = device.compute_capability().map_err(|e| e.to_string())?;
    let mut options = vec![format!("--gpu-architecture=compute_{major}{minor}")];
    options.extend(OPTIONS.map(str::to_owned));
    let ptx = compile_ptx_with_opts(&cuda.text, CompileOptions { options, ..CompileOptions::default() })
        .map_err(|e| e.to_string())?;

    let driver = |e: cudarc::driver::DriverError| e.to_string();
    let function = device.load_module(ptx).and_then(|m| m.load_function(&cuda.entry)).map_err(driver)?;
    let input = stream.clone_htod(&construct.input).map_err(driver)?;
    let mut output = stream.alloc_zeros::<u8>(construct.after.len()).map_err(driver)?;
    let params = Params(PARAMS);
    let mut launch = stream.launch_builder(&function);
    assert_eq!(4 * cuda.params, size_of::<Params>(), "{}: words of immediates", construct.name);
    launch.arg(&params).arg(&input).arg(&mut output);
    let grid = LaunchConfig { grid_dim: (2, 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 };
    // SAFETY: the arguments are the kernel's, in order and type, and each array has the length that
    // 512 threads need.
    unsafe { launch.launch(grid) }.map_err(driver)?;
    stream.clone_dtoh(&output).map_err(driver)
}

#[test]
fn every_construct_computes_the_values_of_wgsl() {
    let Some(device) = device() else { return };
    let stream = device.default_stream();
    let constructs = crate::constructs::all();
    let mut complaints = Vec::new();
    for construct in &constructs {
        match run(&device, &stream, construct) {
            Ok(result) => complaints.extend(construct.complaint(&result)),
            Err(e) => complaints.push(format!("{}: {e}", construct.name)),
        }
    }
    assert!(
        complaints.is_empty(),
        "{} of {}:\n{}",
        complaints.len(),
        constructs.len(),
        complaints.join("\n")
    );
}
