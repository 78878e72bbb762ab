//! The three papers: citations, machines, names of their figures.
//!
//! Published numbers are facts and are quoted. Figures without numbers are drawn from measurements
//! of this machine alone.

/// A paper and its machine.
#[derive(Debug, Clone, Copy)]
pub struct Paper {
    /// Authors, title, venue, year, and DOI if there is one.
    pub citation: &'static str,
    /// The machine of its measurements.
    pub machine: &'static str,
}

/// Uniformization on GPUs, 2012.
pub const KARWACKI: Paper = Paper {
    citation: "M. Karwacki, B. Bylina, J. Bylina, \u{201c}Multi-GPU implementation of the uniformization method for solving \
               Markov models\u{201d}, FedCSIS 2012, pp. 533\u{2013}537, ISBN 978-1-4673-0708-6 (no DOI)",
    machine: crate::seed_table::MACHINE,
};

/// Random walks on GPUs, 2015.
pub const LAI: Paper = Paper {
    citation: "S. Lai, J. Jin, M. Guo, X. Lin, \u{201c}GPU-based Monte Carlo methods for solving linear algebraic \
               equations\u{201d}, ISCC 2015, Proceedings of Science (no DOI in the paper)",
    machine: "Intel Xeon E5620 (4 cores); NVIDIA C2050 (14 multiprocessors, 448 cores); 84 blocks of 512 threads",
};

/// CUDA streams for tridiagonal systems, 2024.
pub const VENEVA: Paper = Paper {
    citation: "M. Veneva, T. Imamura, \u{201c}ML-based optimum number of CUDA streams for the GPU implementation of the \
               tridiagonal partition method\u{201d}, MMCP 2024, doi:10.48550/arXiv.2501.05938",
    machine: "NVIDIA RTX 2080 Ti; FP64, sub-systems of 10 rows, 256 threads a block, up to 32 streams",
};

/// Speed-up of a GPU over a CPU for the largest problems of Lai et al. (abstract, section 4.2, Fig.
/// 5).
pub const LAI_SPEED_UP: f64 = 50.0;

/// Table II of Karwacki, Bylina, Bylina.
pub const TABLE_II: &str = "karwacki-2012-table-2";
/// Fig. 2 of Lai et al.: accuracy of random numbers.
pub const FIGURE_2: &str = "lai-2015-figure-2";
/// Fig. 3 of Lai et al.: computing time of random numbers for dense systems.
pub const FIGURE_3: &str = "lai-2015-figure-3";
/// Fig. 4 of Lai et al.: computing time of random numbers for sparse systems.
pub const FIGURE_4: &str = "lai-2015-figure-4";
/// Fig. 5 of Lai et al.: time on a CPU and on a GPU, and their ratio.
pub const FIGURE_5: &str = "lai-2015-figure-5";
/// Tables and figures of Veneva and Imamura: stages, overhead, best numbers of streams.
pub const STREAMS: &str = "veneva-2024-streams";
