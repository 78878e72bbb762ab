//! Sizes of the jobs.

use std::str::FromStr;

use kolmo::{Error, Result};

/// A size of the jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// Takes seconds; checks that everything works.
    Tiny,
    /// For CPUs and software adapters.
    Small,
    /// For GPUs.
    Medium,
    /// Sizes that the papers use.
    Large,
}

impl FromStr for Size {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        match s {
            "tiny" => Ok(Self::Tiny),
            "small" => Ok(Self::Small),
            "medium" => Ok(Self::Medium),
            "large" => Ok(Self::Large),
            _ => Err(Error::Invalid(format!("'{s}' is no size; give tiny, small, medium or large"))),
        }
    }
}

/// The jobs of a size.
#[derive(Debug, Clone, Copy)]
pub struct Jobs {
    /// Chain for one step.
    pub step: &'static str,
    /// Chains and times of transient solutions.
    pub transient: &'static [(&'static str, f64)],
    /// System for walks.
    pub walk: &'static str,
    /// Number of chains of walks, with 73 steps each.
    pub chains: u32,
    /// Tridiagonal system.
    pub tridiagonal: &'static str,
    /// Bytes of a transfer.
    pub transfer: u64,
    /// K of `wlan:K,6` for Table II of Karwacki, Bylina, Bylina (2012).
    pub seed_chains: &'static [usize],
    /// System and exponents of the numbers of chains for Fig. 2 of Lai et al. (2015).
    pub accuracy: (&'static str, &'static [u32]),
    /// Systems for Fig. 3 of Lai et al. (2015), dense.
    pub dense: &'static [&'static str],
    /// Systems for Figs. 4 and 5 of Lai et al. (2015), sparse.
    pub sparse: &'static [&'static str],
    /// Numbers of components, chains and steps for Figs. 3 and 4.
    pub sharing: (u32, u32, u32),
    /// Numbers of rows for the tables of Veneva and Imamura (2024).
    pub rows: &'static [usize],
    /// Number of measurements of each case.
    pub repeat: usize,
}

impl Size {
    /// The jobs of this size.
    pub fn jobs(self) -> Jobs {
        match self {
            Self::Tiny => Jobs {
                step: "wlan:3,6",
                transient: &[("wlan:3,6", 1.0), ("tandem:5", 1.0)],
                walk: "random-dominant:2000,10,0.8,positive",
                chains: 1 << 12,
                tridiagonal: "random:20000",
                transfer: 1 << 20,
                seed_chains: &[2, 4],
                accuracy: ("random-dominant:1000,10,0.8,positive", &[4, 6, 8]),
                dense: &["random-dominant:64,32,0.8,positive", "random-dominant:128,64,0.8,positive"],
                sparse: &["random-dominant:500,10,0.8,positive", "random-dominant:2000,10,0.8,positive"],
                sharing: (2, 256, 16),
                rows: &[1_000, 4_000, 10_000],
                repeat: 2,
            },
            Self::Small => Jobs {
                step: "wlan:12,6",
                transient: &[("wlan:12,6", 2.0), ("tandem:15", 5.0)],
                walk: "random-dominant:100000,10,0.8,positive",
                chains: 1 << 15,
                tridiagonal: "random:500000",
                transfer: 16 << 20,
                seed_chains: &[8, 16, 24],
                accuracy: ("random-dominant:10000,10,0.8,positive", &[6, 8, 10]),
                dense: &[
                    "random-dominant:128,64,0.8,positive",
                    "random-dominant:256,128,0.8,positive",
                    "random-dominant:512,256,0.8,positive",
                ],
                sparse: &[
                    "random-dominant:1000,10,0.8,positive",
                    "random-dominant:10000,10,0.8,positive",
                    "random-dominant:100000,10,0.8,positive",
                ],
                sharing: (4, 1024, 32),
                rows: &[4_000, 40_000, 100_000, 400_000],
                repeat: 5,
            },
            Self::Medium => Jobs {
                step: "wlan:113,6",
                transient: &[("wlan:60,6", 10.0), ("tandem:15", 10.0)],
                walk: "random-dominant:1000000,10,0.8,positive",
                chains: 1 << 20,
                tridiagonal: "random:10000000",
                transfer: 256 << 20,
                seed_chains: &[113],
                accuracy: ("random-dominant:10000,10,0.8,positive", &[8, 10, 12, 14]),
                dense: &[
                    "random-dominant:512,256,0.8,positive",
                    "random-dominant:1024,512,0.8,positive",
                    "random-dominant:2048,1024,0.8,positive",
                ],
                sparse: &[
                    "random-dominant:1000,10,0.8,positive",
                    "random-dominant:10000,10,0.8,positive",
                    "random-dominant:100000,10,0.8,positive",
                    "random-dominant:1000000,10,0.8,positive",
                ],
                sharing: (16, 43_008, 32),
                rows: &[4_000, 40_000, 400_000, 1_000_000, 4_000_000],
                repeat: 5,
            },
            Self::Large => Jobs {
                step: "wlan:204,6",
                transient: &[("wlan:113,6", 10.0), ("tandem:15", 10.0)],
                walk: "random-dominant:10000000,10,0.8,positive",
                chains: 1 << 22,
                tridiagonal: "random:40000000",
                transfer: 1 << 30,
                seed_chains: &[113, 163, 177, 189, 204],
                rows: &[4_000, 40_000, 400_000, 1_000_000, 4_000_000, 10_000_000, 40_000_000],
                repeat: 10,
                ..Self::Medium.jobs()
            },
        }
    }
}
