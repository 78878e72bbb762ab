//! Sizes of the jobs.

/// Jobs of the comparison for one of its sizes, tiny to large.
#[derive(Debug, Clone, Copy)]
pub struct Jobs {
    /// Name of the chain for one step of uniformization.
    pub step: &'static str,
    /// Chains and times of transient solutions.
    pub transient: &'static [(&'static str, f64)],
    /// Name of the linear system for walks.
    pub walk: &'static str,
    /// Number of chains of walks, with 73 steps each.
    pub chains: u32,
    /// Name of the tridiagonal system.
    pub tridiagonal: &'static str,
    /// Bytes of a transfer.
    pub transfer: u64,
    /// Number of measurements of each case.
    pub repeat: usize,
}

/// Returns the jobs of a size by its name.
///
/// The size tiny takes seconds and checks that everything works, small is for CPUs and software
/// adapters, medium for GPUs, and large has the sizes of the papers.
pub fn jobs(size: &str) -> Result<Jobs, String> {
    Ok(match size {
        "tiny" => Jobs {
            step: "wlan:3,6",
            transient: &[("wlan:3,6", 1.0), ("tandem:5", 1.0)],
            walk: "random-dominant:2000,10,0.8,positive",
            chains: 1 << 12,
            tridiagonal: "random:20000",
            transfer: 1 << 20,
            repeat: 2,
        },
        "small" => Jobs {
            step: "wlan:12,6",
            transient: &[("wlan:12,6", 2.0), ("tandem:15", 5.0)],
            walk: "random-dominant:100000,10,0.8,positive",
            chains: 1 << 15,
            tridiagonal: "random:500000",
            transfer: 16 << 20,
            repeat: 5,
        },
        "medium" => Jobs {
            step: "wlan:113,6",
            transient: &[("wlan:60,6", 10.0), ("tandem:15", 10.0)],
            walk: "random-dominant:1000000,10,0.8,positive",
            chains: 1 << 20,
            tridiagonal: "random:10000000",
            transfer: 256 << 20,
            repeat: 5,
        },
        "large" => Jobs {
            step: "wlan:204,6",
            transient: &[("wlan:113,6", 10.0), ("tandem:15", 10.0)],
            walk: "random-dominant:10000000,10,0.8,positive",
            chains: 1 << 22,
            tridiagonal: "random:40000000",
            transfer: 1 << 30,
            repeat: 10,
        },
        _ => return Err(format!("'{size}' is no size; give tiny, small, medium or large")),
    })
}
