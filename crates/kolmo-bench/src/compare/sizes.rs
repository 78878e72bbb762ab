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
    /// Queue lengths K of `wlan:K,6` for Table II of Karwacki, Bylina, Bylina (2012).
    pub seed_chains: &'static [usize],
    /// System and exponents of the numbers of chains for Fig. 2 of Lai et al. (2015).
    pub accuracy: (&'static str, &'static [u32]),
    /// Unknowns of the systems for Fig. 3 of Lai et al. (2015), half of them in each row.
    pub dense: &'static [usize],
    /// Unknowns of the systems for Figs. 4 and 5 of Lai et al. (2015), 10 of them in each row.
    pub sparse: &'static [usize],
    /// Numbers of components, chains and steps for Figs. 3 and 4 of Lai et al. (2015).
    pub sharing: (u32, u32, u32),
    /// Numbers of rows for the tables of Veneva and Imamura (2024).
    pub rows: &'static [usize],
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
            seed_chains: &[2, 4],
            accuracy: ("random-dominant:1000,10,0.8,positive", &[4, 6, 8]),
            dense: &[64, 128],
            sparse: &[500, 2000],
            sharing: (2, 256, 16),
            rows: &[1_000, 4_000, 10_000],
            repeat: 2,
        },
        "small" => Jobs {
            step: "wlan:12,6",
            transient: &[("wlan:12,6", 2.0), ("tandem:15", 5.0)],
            walk: "random-dominant:100000,10,0.8,positive",
            chains: 1 << 15,
            tridiagonal: "random:500000",
            transfer: 16 << 20,
            seed_chains: &[8, 16, 24],
            accuracy: ("random-dominant:10000,10,0.8,positive", &[6, 8, 10]),
            dense: &[128, 256, 512],
            sparse: &[1000, 10000, 100000],
            sharing: (4, 1024, 32),
            rows: &[4_000, 40_000, 100_000, 400_000],
            repeat: 5,
        },
        "medium" => Jobs {
            step: "wlan:113,6",
            transient: &[("wlan:60,6", 10.0), ("tandem:15", 10.0)],
            walk: "random-dominant:1000000,10,0.8,positive",
            chains: 1 << 20,
            tridiagonal: "random:10000000",
            transfer: 256 << 20,
            seed_chains: &[113],
            accuracy: ("random-dominant:10000,10,0.8,positive", &[8, 10, 12, 14]),
            dense: &[512, 1024, 2048],
            sparse: &[1000, 10000, 100000, 1000000],
            sharing: (16, 43_008, 32),
            rows: &[4_000, 40_000, 400_000, 1_000_000, 4_000_000],
            repeat: 5,
        },
        "large" => Jobs {
            step: "wlan:204,6",
            transient: &[("wlan:113,6", 10.0), ("tandem:15", 10.0)],
            walk: "random-dominant:10000000,10,0.8,positive",
            chains: 1 << 22,
            tridiagonal: "random:40000000",
            transfer: 1 << 30,
            seed_chains: &[113, 163, 177, 189, 204],
            rows: &[4_000, 40_000, 400_000, 1_000_000, 4_000_000, 10_000_000, 40_000_000],
            repeat: 10,
            ..jobs("medium")?
        },
        _ => return Err(format!("'{size}' is no size; give tiny, small, medium or large")),
    })
}
