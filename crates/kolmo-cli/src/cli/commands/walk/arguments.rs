//! Options of `kolmo walk`, including those of `--pagerank`.

use crate::cli::arguments::Solving;
use crate::cli::prelude::*;
use kolmo::internals::count;
use kolmo::walk::sequence::{Scramble, Sequence};
use kolmo::walk::{ControlVariate, Count, Length, Splitting};

#[derive(Debug, Args)]
pub(crate) struct WalkArgs {
    /// Matrix A: a file (.mtx, .npz, .npy) or a built-in (poisson2d:100,0.9)
    ///
    /// Built-ins: poisson2d:SIDE,RHO, poisson3d:SIDE,RHO, random-dominant:N,PER_ROW,RHO,positive
    /// and random-dominant:N,PER_ROW,RHO,signed. RHO is the largest row sum of |L|. With --pagerank
    /// MATRIX is a graph.
    pub(crate) matrix: String,
    /// Right-hand side b: .npy, .mtx (one per column) or text (one number per line); repeatable
    ///
    /// By default b is all ones for a file. Built-ins have their own: random numbers in (0, 1),
    /// times the diagonal of A.
    #[arg(short = 'b', long = "rhs", value_name = "FILE")]
    pub(crate) rhs: Vec<PathBuf>,
    /// Components of x to estimate, counted from 0, such as 7,100-103
    #[arg(long, alias = "components", value_name = "I,J,K-L", required_unless_present_any = ["functional", "pagerank"])]
    pub(crate) component: Option<String>,
    /// Vector h: estimate the scalar product <h, x>; formats as for -b; repeatable
    #[arg(long, value_name = "FILE")]
    pub(crate) functional: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) graph: GraphArgs,
    /// Largest half-width of the intervals, above 0 [default: 1e-3 of the scale of x]
    ///
    /// The scale is max |f| / (1 - norm of L), where x = L x + f. For <h, x> the default is
    /// multiplied by the sum of |h|.
    #[arg(long, value_name = "E", allow_hyphen_values = true)]
    pub(crate) epsilon: Option<f64>,
    /// Confidence level of the intervals, 0 < P < 1
    #[arg(long, value_name = "P", default_value_t = 0.95, allow_hyphen_values = true)]
    pub(crate) confidence: f64,
    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<u64>)]
    pub(crate) seed: u64,
    /// Output file (.csv) [default: CSV on stdout]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Draw the half-widths over the number of chains as an SVG chart
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) solving: Solving,
    /// Predict memory and run time from a small part of the problem instead of solving
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Sequence of points: sobol (quasi-random) or philox (pseudo-random)
    #[arg(long, value_name = "S", default_value = "sobol")]
    pub(crate) sequence: Sequence,
    /// Randomisation of each replicate: owen, shift or none [default: owen]
    ///
    /// The pseudo-random sequence philox needs none.
    #[arg(long, value_name = "S")]
    pub(crate) scramble: Option<Scramble>,
    /// Chains (walks) per component over all replicates: auto or a number
    ///
    /// auto doubles the number until the interval is at most --epsilon.
    #[arg(long, value_name = "N", default_value = "auto")]
    pub(crate) chains: Count,
    /// Largest number of chains per component with --chains auto [default: 67108864]
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    pub(crate) max_chains: Option<u64>,
    /// Number of independent replicates that intervals are computed from, 1 to 65536
    #[arg(long, value_name = "R", default_value_t = 16, value_parser = whole::<u32>)]
    pub(crate) replicates: u32,
    /// Steps per chain: auto or a number
    ///
    /// auto takes the fewest steps with a truncation error of at most --delta.
    #[arg(long, value_name = "T", default_value = "auto")]
    pub(crate) length: Length,
    /// Bound on the truncation error, above 0 [default: a tenth of --epsilon]
    #[arg(long, value_name = "D", allow_hyphen_values = true)]
    pub(crate) delta: Option<f64>,
    /// Splitting x = L x + f: auto, jacobi, scaled-jacobi or given
    ///
    /// jacobi: L = I - D^-1 A and f = D^-1 b, where D is the diagonal of A.
    ///
    /// scaled-jacobi: the unknowns of jacobi are scaled so that all row sums of |L| are below 1.
    ///
    /// auto: jacobi, scaled if needed.
    ///
    /// given: MATRIX is L, and -b is f.
    #[arg(long, value_name = "S", default_value = "auto")]
    pub(crate) splitting: Splitting,
    /// Control variate: auto, none, jacobi, krylov, or a number of Jacobi sweeps
    ///
    /// Walks estimate the correction to an approximate solution from its residual, which reduces
    /// the variance. jacobi takes at most 8 sweeps, krylov is BiCGSTAB. auto takes jacobi, and also
    /// krylov if the walks would take longer.
    #[arg(long, alias = "sweeps", value_name = "C", default_value = "auto")]
    pub(crate) control: ControlVariate,
    /// Stop after this time with the intervals reached; exit code 1 if they are too wide
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true)]
    pub(crate) time_limit: Option<f64>,
}

/// Options of `kolmo walk --pagerank`.
#[derive(Debug, Clone, Args)]
pub(crate) struct GraphArgs {
    /// Compute PageRank with damping factor D, such as 0.85; MATRIX is a graph
    ///
    /// 0 <= D < 1. The result comes from power iteration, with a guaranteed error bound.
    /// --component selects nodes.
    ///
    /// A graph is a list of edges, two node numbers per line (.txt, .txt.gz, as from SNAP), a
    /// matrix (pattern .mtx, .npz), or built in: rmat:SCALE,EDGES or barabasi:N,EDGES.
    #[arg(long, value_name = "D", conflicts_with_all = WALKS.split(' '))]
    pub(crate) pagerank: Option<f64>,
    /// With --pagerank: nodes at which the random walk restarts, such as 5,17 [default: all]
    ///
    /// This is personalised PageRank.
    #[arg(long, value_name = "I,J,K-L", requires = "pagerank", value_parser = numbers)]
    pub(crate) seeds: Option<String>,
    /// With --pagerank: add the reverse of each edge, for undirected graphs
    ///
    /// Self-loops are not doubled. Nothing is added if every edge is listed in both directions.
    #[arg(long, requires = "pagerank")]
    pub(crate) undirected: bool,
    /// With --pagerank: largest half-width relative to the estimate [default: 1e-6; 0 with
    /// --epsilon]
    #[arg(long, value_name = "E", requires = "pagerank")]
    pub(crate) relative: Option<f64>,
    /// With --pagerank: output only the K largest [default: 10 without --component and -o]
    #[arg(long, value_name = "K", requires = "pagerank", value_parser = whole::<usize>)]
    pub(crate) top: Option<usize>,
}

/// Checks the syntax of a list I,J,K-L and returns it unchanged.
fn numbers(list: &str) -> Result<String, String> {
    let wrong = |part: &str| count::<u64>(part.trim()).is_none();
    match list.split(',').find(|item| item.splitn(2, '-').any(wrong)) {
        Some(item) => Err(format!("invalid entry '{item}': expected I,J,K-L, whole numbers from 0 on")),
        None => Ok(list.to_owned()),
    }
}

/// Options of `kolmo walk` that conflict with `--pagerank`.
const WALKS: &str = "rhs functional plot sequence scramble chains max_chains confidence replicates length delta splitting \
                     control";
