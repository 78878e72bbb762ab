//! `kolmo doctor`.

use crate::cli::prelude::*;
#[cfg(feature = "cuda")]
use crate::cli::terminal::option_names::with_options;
use crate::report::facts;
use kolmo::lane::{Listing, available_memory, control_group_limit, list};
use kolmo::settings;
use std::ffi::OsString;

/// Variable with folders of libraries.
const LIBRARIES: &str = "LD_LIBRARY_PATH";

pub(crate) fn run() -> Result<Status> {
    let devices = list();
    let mut report = DoctorReport::default();
    let target = format!("{} {}", std::env::consts::ARCH, std::env::consts::OS);
    report.add("kolmo", &format!("{}, {target}", facts::build()));
    report.add("system", &sysinfo::System::long_os_version().unwrap_or_else(|_| "unknown".to_owned()));
    report.add("processor", &facts::processor());
    report.add("memory", &memory());
    devices.iter().for_each(|device| report.add(&device.device.spec, &described(device)));
    let mut gpus = devices.iter().filter(|l| l.unusable.is_none() && l.device.backend != "cpu").peekable();
    if gpus.peek().is_some() && !gpus.any(|l| l.device.f64) {
        report.add("f64", "on the CPU only; GPUs without it compute chains in q64, with the same bound");
    }
    report.add("Vulkan", &vulkan(devices.iter().filter(|l| l.device.backend == "vulkan").count()));
    cuda(&devices, &mut report);
    report.add("settings", &measurements());
    let listed = |name: &str| ["KOLMO_", "VK_"].iter().any(|s| name.starts_with(s)) || name == LIBRARIES;
    let mut set: Vec<_> = std::env::vars_os().map(|(k, v)| (k.to_string_lossy().into_owned(), v)).collect();
    set.sort();
    for (name, value) in set.iter().filter(|(name, _)| listed(name)) {
        let unknown = name == "KOLMO_LEVEL" && value != "portable" && value != "avx2";
        let note = if unknown { ": no effect; expected portable or avx2" } else { "" };
        report.add("variable", &format!("{name}={}{note}", value.display()));
    }
    print(&report.text).map(|()| Status::Met)
}

/// Lines of the report: names in a column, and texts next to them.
#[derive(Default)]
struct DoctorReport {
    text: String,
}

impl DoctorReport {
    fn add(&mut self, name: &str, text: &str) {
        self.text += &format!("{name:<10} {text}\n");
    }
}

fn memory() -> String {
    let total = facts::memory();
    let of = total.map_or(String::new(), |total| format!(" of {}", bytes(total)));
    let group = match control_group_limit() {
        Some(limit) if total.is_none_or(|total| limit < total) => {
            format!("; the control group allows {}", bytes(limit))
        }
        _ => String::new(),
    };
    format!("{} available{of}{group}", bytes(available_memory()))
}

fn described(listing: &Listing) -> String {
    let device = &listing.device;
    if let Some(reason) = &listing.unusable {
        return format!("{}: not usable: {reason}", device.name);
    }
    let precision = if device.f64 { "f64, q64, f32" } else { "q64, f32" };
    let memory = device.limits.memory.map_or(String::new(), |b| format!(", {}", bytes(b)));
    let software = if device.software { ", software, only by name" } else { "" };
    format!("{} ({}, {}): {precision}{memory}{software}", device.name, device.backend, listing.driver)
}

/// Describes the loader and the drivers of Vulkan, or how to get them.
fn vulkan(adapters: usize) -> String {
    if !cfg!(feature = "wgpu") {
        return "not in this build; build it with the feature wgpu".to_owned();
    }
    if !cfg!(target_os = "linux") {
        return counted(adapters as u64, "adapter");
    }
    let (drivers, named) = manifests();
    let names: Vec<_> =
        drivers.iter().filter_map(|path| path.file_stem()).map(|s| s.to_string_lossy()).collect();
    match (adapters, loader(), names.is_empty()) {
        (1.., ..) => format!("{}; drivers: {}", counted(adapters as u64, "adapter"), names.join(", ")),
        (0, false, _) => "no loader (libvulkan.so.1); install libvulkan1 (Debian, Ubuntu), \
                          vulkan-loader (Fedora) or vulkan-icd-loader (Arch)"
            .to_owned(),
        (0, true, true) if let Some((name, value)) = named => {
            format!("no driver, because {name} is '{}', which names no file; unset it", value.display())
        }
        (0, true, true) => "no driver; install that of the graphics card, or for a software adapter \
                            mesa-vulkan-drivers (Debian, Ubuntu, Fedora) or vulkan-swrast (Arch)"
            .to_owned(),
        (0, true, false) => format!(
            "no adapter from the drivers {}; check that this user may open /dev/dri, or update them",
            names.join(", ")
        ),
    }
}

/// True if a folder of libraries has the loader of Vulkan.
fn loader() -> bool {
    let architecture = std::env::consts::ARCH;
    let usual = ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib"].map(PathBuf::from);
    let multiarch = format!("/usr/lib/{architecture}-linux-gnu").into();
    let own = std::env::var_os(LIBRARIES).unwrap_or_default();
    let folders = std::env::split_paths(&own).chain(usual).chain([multiarch]);
    folders.into_iter().any(|folder| folder.join("libvulkan.so.1").exists())
}

/// Files that describe the drivers of Vulkan, where its loader searches them, and the variable that
/// names them.
fn manifests() -> (Vec<PathBuf>, Option<(&'static str, OsString)>) {
    let variables = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"];
    if let Some((name, value)) = variables.iter().find_map(|&name| Some((name, std::env::var_os(name)?))) {
        return (std::env::split_paths(&value).filter(|path| path.exists()).collect(), Some((name, value)));
    }
    let files = |folder| std::fs::read_dir(Path::new(folder).join("vulkan/icd.d"));
    let folders = ["/etc", "/usr/local/etc", "/usr/local/share", "/usr/share"];
    let entries = folders.into_iter().flat_map(files).flatten().flatten();
    let mut all: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    all.sort();
    (all, None)
}

#[cfg(feature = "cuda")]
fn cuda(devices: &[Listing], report: &mut DoctorReport) {
    let found = devices.iter().any(|l| l.device.backend == "cuda" && l.unusable.is_none());
    let driver = if found { "driver found" } else { "no device; NVIDIA GPUs need NVIDIA's driver" };
    report.add("CUDA", driver);
    report.add("NVRTC", &kolmo::lane::nvrtc_version().unwrap_or_else(|why| with_options(&why)));
    let cache = kolmo::lane::kernel_cache();
    let compiled = |folder: &Path| {
        let names = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        names.filter(|path| path.extension().is_some_and(|end| end == "cubin")).count() as u64
    };
    let cache = cache.map(|folder| match settings::prepare(&folder) {
        Ok(()) => format!("{}: {}", folder.display(), counted(compiled(&folder), "compiled kernel")),
        Err(error) => format!("cannot be written: {error}; set KOLMO_CACHE_DIR to another folder"),
    });
    report.add("cache", cache.as_deref().unwrap_or("no folder; set KOLMO_CACHE_DIR"));
}

#[cfg(not(feature = "cuda"))]
fn cuda(_: &[Listing], report: &mut DoctorReport) {
    report.add("CUDA", "not in this build; build it with --features cuda");
}

/// Describes the measurements of `kolmo tune`.
fn measurements() -> String {
    let Some(folder) = settings::folder() else { return "no folder; set KOLMO_CONFIG_DIR".to_owned() };
    let found = match (settings::all(&folder), settings::prepare(&folder)) {
        (Ok(found), _) if !found.is_empty() => found,
        (_, Err(error)) => {
            return format!("cannot be written: {error}; set KOLMO_CONFIG_DIR to another folder");
        }
        (Err(error), _) => return error.to_string(),
        (Ok(found), Ok(())) => found,
    };
    let damaged = found.iter().filter(|(_, tuned)| tuned.is_err()).count();
    let what = match (found.len() - damaged, damaged) {
        (0, 0) => "nothing measured yet; kolmo tune measures the devices".to_owned(),
        (sound, 0) => format!("{} measured", counted(sound as u64, "device")),
        (sound, damaged) => {
            format!("{} measured, {damaged} damaged; kolmo tune renews them", counted(sound as u64, "device"))
        }
    };
    format!("{}: {what}", folder.display())
}
