//! Compilation of kernels to machine code: translation, NVRTC, and a cache on disk.

#![expect(unsafe_code, reason = "NVRTC is a foreign interface")]

use std::ffi::{CStr, CString};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};

use cudarc::nvrtc::sys;
use twox_hash::XxHash3_128;

use super::driver;
use crate::kernel::cuda::{OPTIONS, translate};
use crate::kernel::{Kernel, Precision};
use crate::{Error, Result};

/// Returns the machine code of a kernel for an architecture such as `sm_90`.
pub(super) fn machine_code(kernel: &Kernel, precision: Precision, arch: &str) -> Result<Vec<u8>> {
    let fail = |why: String| Error::Device(format!("kernel '{}' for CUDA: {why}", kernel.name));
    let translated = translate(kernel, precision).map_err(|e| fail(e.to_string()))?;
    let interface = &kernel.interface;
    let read_only: Vec<bool> = interface.bindings(precision).iter().map(|binding| !binding.written).collect();
    assert_eq!(translated.bindings, read_only, "bindings of kernel '{}' that are read alone", kernel.name);
    assert_eq!(translated.params, interface.params.len(), "parameters of kernel '{}'", kernel.name);
    let text = translated.text;
    let (version, driver) = (env!("CARGO_PKG_VERSION"), driver::version());
    let key = format!("kolmo {version} {arch} {driver} {OPTIONS:?}\n{text}");
    let place = place(&key);
    if let Some(code) = place.as_ref().and_then(|place| cached(place, &key)) {
        return Ok(code);
    }
    let code = compile(&text, arch).map_err(fail)?;
    // A failed write to the cache only costs one more compilation next time.
    let _ = place.map(|place| store(&place, &key, &code));
    Ok(code)
}

/// Returns an error if the library of NVRTC is missing.
fn present() -> std::result::Result<(), String> {
    // SAFETY: this only searches for the library.
    match unsafe { sys::is_culib_present() } {
        true => Ok(()),
        false => Err("NVRTC (libnvrtc) is not on this machine; install the CUDA toolkit's runtime \
                      compiler, or use `device` wgpu:N"
            .to_owned()),
    }
}

/// Returns the version of NVRTC, or the reason why it cannot be used.
///
/// # Errors
/// A message with a remedy.
pub fn nvrtc_version() -> std::result::Result<String, String> {
    present()?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the library is there, and writes two integers.
    match unsafe { sys::nvrtcVersion(&mut major, &mut minor) } {
        sys::nvrtcResult::NVRTC_SUCCESS => Ok(format!("{major}.{minor}")),
        error => Err(format!("NVRTC does not report its version: {error:?}")),
    }
}

fn compile(text: &str, arch: &str) -> std::result::Result<Vec<u8>, String> {
    present()?;
    let source = CString::new(text).map_err(|e| e.to_string())?;
    let options: Vec<CString> = std::iter::once(format!("--gpu-architecture={arch}"))
        .chain(OPTIONS.map(str::to_owned))
        .filter_map(|o| CString::new(o).ok())
        .collect();
    let pointers: Vec<_> = options.iter().map(|o| o.as_ptr()).collect();
    let mut program = std::ptr::null_mut();
    // SAFETY: strings end in zero and outlive the calls. Buffers are filled after queries of their
    // sizes. The program is destroyed once.
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
            "read the text",
        )?;
        let result = (|| {
            let compiled = sys::nvrtcCompileProgram(program, pointers.len() as i32, pointers.as_ptr().cast());
            if compiled != sys::nvrtcResult::NVRTC_SUCCESS {
                let mut size = 0;
                ok(sys::nvrtcGetProgramLogSize(program, &mut size), "return its log")?;
                let mut log = vec![0u8; size.max(1)];
                ok(sys::nvrtcGetProgramLog(program, log.as_mut_ptr().cast()), "return its log")?;
                let log = CStr::from_bytes_until_nul(&log).map(|l| l.to_string_lossy().into_owned());
                return Err(format!("NVRTC rejects the text for {arch}: {}", log.unwrap_or_default().trim()));
            }
            let mut size = 0;
            ok(sys::nvrtcGetCUBINSize(program, &mut size), "return machine code")?;
            let mut code = vec![0u8; size];
            ok(sys::nvrtcGetCUBIN(program, code.as_mut_ptr().cast()), "return machine code")?;
            Ok(code)
        })();
        let _ = sys::nvrtcDestroyProgram(&mut program);
        result
    }
}

/// Returns the folder of compiled kernels: that of `KOLMO_CACHE_DIR`, or the user's.
///
/// `None` if there is no such folder.
pub fn kernel_cache() -> Option<PathBuf> {
    match std::env::var_os("KOLMO_CACHE_DIR") {
        Some(folder) => Some(PathBuf::from(folder)),
        None => Some(directories::ProjectDirs::from("", "", "kolmo")?.cache_dir().to_path_buf()),
    }
}

fn place(key: &str) -> Option<PathBuf> {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    Some(kernel_cache()?.join(format!("{:016x}.cubin", hasher.finish())))
}

/// Returns the header of a cached file: the whole key and a checksum of the code.
///
/// The key has the kernel's source; storing it detects collisions of the hash in the file's name.
fn head(key: &str, code: &[u8]) -> Vec<u8> {
    let (length, sum) = ((key.len() as u64).to_le_bytes(), XxHash3_128::oneshot(code).to_le_bytes());
    [&length, key.as_bytes(), &sum].concat()
}

/// Returns the cached code of this key; `None` if the file is of another key or damaged.
fn cached(place: &Path, key: &str) -> Option<Vec<u8>> {
    let bytes = std::fs::read(place).ok()?;
    let code = bytes.get(head(key, &[]).len()..)?;
    bytes.starts_with(&head(key, code)).then(|| code.to_vec())
}

fn store(place: &Path, key: &str, code: &[u8]) -> std::io::Result<()> {
    let folder = place.parent().unwrap_or(place);
    std::fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(&head(key, code))?;
    file.write_all(code)?;
    file.persist(place)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_cached_kernel_is_compiled_again() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("a/kernel.cubin");
        let code: Vec<u8> = (0..=255).collect();
        assert_eq!(cached(&place, "a text"), None, "nothing is there");

        store(&place, "a text", &code).unwrap();

        assert_eq!(cached(&place, "a text"), Some(code));
        assert_eq!(cached(&place, "b text"), None, "another text with the same hash");
        let whole = std::fs::read(&place).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            std::fs::write(&place, &damaged).unwrap();
            assert_eq!(cached(&place, "a text"), None, "byte {at}");
            std::fs::write(&place, &whole[..at]).unwrap();
            assert_eq!(cached(&place, "a text"), None, "cut at {at}");
        }
    }

    #[test]
    fn an_error_without_nvrtc_names_a_remedy() {
        // SAFETY: this only searches for the library.
        if unsafe { sys::is_culib_present() } {
            return crate::devices::skip("a machine without NVRTC", "NVRTC is on this machine");
        }

        let why = compile("extern \"C\" __global__ void nothing() {}", "sm_90").unwrap_err();

        assert!(why.contains("NVRTC") && why.contains("install") && why.contains("`device` wgpu:N"), "{why}");
    }
}
