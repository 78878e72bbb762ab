//! Facts about this build and the machine.

/// Version and backends of this build.
pub(crate) fn build() -> String {
    let mut backends = vec!["cpu"];
    if cfg!(feature = "wgpu") {
        backends.push("wgpu");
    }
    if cfg!(feature = "cuda") {
        backends.push("cuda");
    }
    let profile = if cfg!(debug_assertions) { ", debug" } else { "" };
    format!("{} ({}{profile})", env!("CARGO_PKG_VERSION"), backends.join(", "))
}

/// Name of the processor.
pub(crate) fn processor() -> String {
    sysinfo::System::new().map_or(String::new(), |mut system| {
        system.refresh_cpu_list(sysinfo::CpuRefreshKind::nothing());
        system.cpus().first().map_or(String::new(), |cpu| cpu.brand().trim().to_owned())
    })
}

/// Total memory of the machine in bytes.
pub(crate) fn memory() -> Option<u64> {
    let mut system = sysinfo::System::new().ok()?;
    system.refresh_memory();
    Some(system.total_memory())
}
