//! Names of the figures of the three papers.
//!
//! Published numbers are facts and are quoted. Figures without numbers are repeated by measurements
//! of this machine alone.

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
