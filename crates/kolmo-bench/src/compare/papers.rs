//! The three papers, and what they say of their machines. Numbers that they published are facts; pictures without numbers
//! are drawn anew from this machine's alone.

/// A paper.
#[derive(Debug, Clone, Copy)]
pub struct Paper {
    /// Authors, title, where, year, DOI or what there is in its place.
    pub citation: &'static str,
    /// The machine.
    pub machine: &'static str,
}

/// Uniformization.
pub const KARWACKI: Paper = Paper {
    citation: "M. Karwacki, B. Bylina, J. Bylina, \u{201c}Multi-GPU implementation of the uniformization method for solving \
               Markov models\u{201d}, FedCSIS 2012, pp. 533\u{2013}537, ISBN 978-1-4673-0708-6 (no DOI)",
    machine: crate::seed_table::MACHINE,
};

/// Walks.
pub const LAI: Paper = Paper {
    citation: "S. Lai, J. Jin, M. Guo, X. Lin, \u{201c}GPU-based Monte Carlo methods for solving linear algebraic \
               equations\u{201d}, ISCC 2015, Proceedings of Science (no DOI in the paper)",
    machine: "Intel Xeon E5620 (4 cores); NVIDIA C2050 (14 multiprocessors, 448 cores); 84 blocks of 512 threads",
};

/// Streams.
pub const VENEVA: Paper = Paper {
    citation: "M. Veneva, T. Imamura, \u{201c}ML-based optimum number of CUDA streams for the GPU implementation of the \
               tridiagonal partition method\u{201d}, MMCP 2024, doi:10.48550/arXiv.2501.05938",
    machine: "NVIDIA RTX 2080 Ti; FP64, sub-systems of 10 rows, 256 threads a block, up to 32 streams",
};

/// The speed of a GPU over a CPU that Lai et al. report for their largest problems (abstract, section 4.2, Fig. 5).
pub const LAI_SPEED_UP: f64 = 50.0;

/// Table II of Karwacki, Bylina, Bylina.
pub const TABLE_II: &str = "karwacki-2012-table-2";
/// Fig. 2 of Lai et al.: accuracy of random numbers.
pub const FIGURE_2: &str = "lai-2015-figure-2";
/// Fig. 3: computing time of random numbers, dense systems.
pub const FIGURE_3: &str = "lai-2015-figure-3";
/// Fig. 4: the same, sparse systems.
pub const FIGURE_4: &str = "lai-2015-figure-4";
/// Fig. 5: time on a CPU and on a GPU, and their ratio.
pub const FIGURE_5: &str = "lai-2015-figure-5";
/// The tables and figures of Veneva and Imamura: stages, overhead, best numbers of streams.
pub const STREAMS: &str = "veneva-2024-streams";
