//! From a kernel's text to machine code: our writer, NVRTC, and a cache on disk.

#![expect(unsafe_code, reason = "NVRTC is a foreign interface")]

use std::ffi::{CStr, CString};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

use cudarc::nvrtc::sys;

use crate::kernel::cuda::{OPTIONS, translate};
use crate::kernel::{Kernel, Precision};
use crate::{Error, Result};

/// Machine code of a kernel for an architecture such as `sm_90`.
pub(super) fn machine_code(kernel: &Kernel, precision: Precision, arch: &str) -> Result<Vec<u8>> {
    let fail = |why: String| Error::Device(format!("kernel '{}' for CUDA: {why}", kernel.name));
    let translated = translate(kernel, precision).map_err(|e| fail(e.to_string()))?;
    let interface = &kernel.interface;
    let read_only: Vec<bool> = interface.bindings(precision).iter().map(|binding| !binding.written).collect();
    assert_eq!(translated.bindings, read_only, "bindings of kernel '{}' that are read alone", kernel.name);
    assert_eq!(translated.params, interface.params.len(), "parameters of kernel '{}'", kernel.name);
    let text = translated.text;
    let key = format!("kolmo {} {arch} {OPTIONS:?}\n{text}", env!("CARGO_PKG_VERSION"));
    if let Some(code) = cached(&key) {
        return Ok(code);
    }
    let code = compile(&text, arch).map_err(fail)?;
    store(&key, &code);
    Ok(code)
}

fn compile(text: &str, arch: &str) -> std::result::Result<Vec<u8>, String> {
    // SAFETY: only looks for the library.
    if !unsafe { sys::is_culib_present() } {
        return Err(
            "NVRTC (libnvrtc) is not on this machine; install the CUDA toolkit's runtime compiler, or use \
                    --device wgpu:N"
                .to_owned(),
        );
    }
    let source = CString::new(text).map_err(|e| e.to_string())?;
    let options: Vec<CString> = std::iter::once(format!("--gpu-architecture={arch}"))
        .chain(OPTIONS.map(str::to_owned))
        .filter_map(|o| CString::new(o).ok())
        .collect();
    let pointers: Vec<_> = options.iter().map(|o| o.as_ptr()).collect();
    let mut program = std::ptr::null_mut();
    // SAFETY: strings end in zero and outlive the calls; sizes are asked for before buffers of them are filled; the
    // program is destroyed once.
    unsafe {
        let ok = |r: sys::nvrtcResult, what: &str| match r {
            sys::nvrtcResult::NVRTC_SUCCESS => Ok(()),
            e => Err(format!("NVRTC failed to {what}: {e:?}")),
        };
        ok(
            sys::nvrtcCreateProgram(
                &mut program,
                source.as_ptr(),
                std::ptr::null(),
                0,
                std::ptr::null(),
                std::ptr::null(),
            ),
            "take the text",
        )?;
        let result = (|| {
            let compiled = sys::nvrtcCompileProgram(program, pointers.len() as i32, pointers.as_ptr().cast());
            if compiled != sys::nvrtcResult::NVRTC_SUCCESS {
                let mut size = 0;
                ok(sys::nvrtcGetProgramLogSize(program, &mut size), "tell why")?;
                let mut log = vec![0u8; size.max(1)];
                ok(sys::nvrtcGetProgramLog(program, log.as_mut_ptr().cast()), "tell why")?;
                let log = CStr::from_bytes_until_nul(&log).map(|l| l.to_string_lossy().into_owned());
                return Err(format!("NVRTC refuses the text for {arch}: {}", log.unwrap_or_default().trim()));
            }
            let mut size = 0;
            ok(sys::nvrtcGetCUBINSize(program, &mut size), "write machine code")?;
            let mut code = vec![0u8; size];
            ok(sys::nvrtcGetCUBIN(program, code.as_mut_ptr().cast()), "write machine code")?;
            Ok(code)
        })();
        let _ = sys::nvrtcDestroyProgram(&mut program);
        result
    }
}

/// Where compiled kernels are kept; nowhere if the system names no such place.
fn place(key: &str) -> Option<PathBuf> {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    let folder = match std::env::var_os("KOLMO_CACHE_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => directories::ProjectDirs::from("", "", "kolmo")?.cache_dir().to_path_buf(),
    };
    Some(folder.join(format!("{:016x}.cubin", hasher.finish())))
}

/// A file holds its whole key before the code, so that neither a hash nor a half-written file can mislead.
fn cached(key: &str) -> Option<Vec<u8>> {
    let bytes = std::fs::read(place(key)?).ok()?;
    let rest = bytes.strip_prefix(&(key.len() as u64).to_le_bytes())?.strip_prefix(key.as_bytes())?;
    let (len, code) = rest.split_first_chunk::<8>()?;
    (u64::from_le_bytes(*len) == code.len() as u64).then(|| code.to_vec())
}

/// A cache that cannot be written costs a compilation the next time, no more.
fn store(key: &str, code: &[u8]) {
    let Some(path) = place(key) else { return };
    let Some(folder) = path.parent() else { return };
    if std::fs::create_dir_all(folder).is_err() {
        return;
    }
    let Ok(mut file) = tempfile::NamedTempFile::new_in(folder) else { return };
    let parts =
        [&(key.len() as u64).to_le_bytes()[..], key.as_bytes(), &(code.len() as u64).to_le_bytes(), code];
    if parts.iter().all(|part| std::io::Write::write_all(&mut file, part).is_ok()) {
        let _ = file.persist(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_nvrtc_is_told_what_to_do() {
        // SAFETY: only looks for the library.
        if unsafe { sys::is_culib_present() } {
            return crate::devices::skip("a machine without NVRTC", "NVRTC is on this machine");
        }

        let why = compile("extern \"C\" __global__ void nothing() {}", "sm_90").unwrap_err();

        assert!(why.contains("NVRTC") && why.contains("install") && why.contains("--device wgpu:N"), "{why}");
    }
}
