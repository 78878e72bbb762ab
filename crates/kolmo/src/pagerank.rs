//! PageRank of graphs: selected nodes, or all of them, each with a proved interval.
//!
//! # Problem
//! A random surfer follows one of the edges out of its node, all equally probable, with the
//! probability d (damping factor, usually 0.85). Otherwise it restarts at any node (global
//! PageRank), or at one of some seeds (personalised). It also restarts at nodes without outgoing
//! edges.
//!
//! The PageRank x_i is the fraction of time at node i: x = d Pᵀ x + (1 − d) s, which sums to 1. s
//! is the teleport distribution.
//!
//! An edge that is listed twice is twice as probable, as in multigraphs of igraph and NetworkX. A
//! node may have an edge to itself.
//!
//! # Method
//! x = (1 − d) Σ_k d^k z_k with z_k = (Pᵀ)^k s, of which z_0 … z_K are computed. The terms left out
//! sum to d^(K+1). Let lo and hi bound the quotients of z_k + z_(k+1) and its predecessor, entry by
//! entry. They bound all later quotients as well, since Pᵀ has no negative entry. Hence the terms
//! left out of *every* node lie between two geometric series. As they sum to d^(K+1), no node can
//! exceed its lower series by more than all nodes together. The middle of the two bounds is much
//! closer than the partial sum. On graphs that mix well, 20 products suffice for 10⁻⁴ of each node,
//! and the sum alone takes 140 (`enclosure.rs`). Rounding has a bound relative to each node, as all
//! terms are positive.
//!
//! # Example
//! ```
//! use kolmo::pagerank::{Graph, Options, page_rank};
//!
//!  // Edges in both directions between 0 and 1, and one from 2 to 0; 3 has no edge.
//! let graph = Graph::new(4, &[0, 1, 2], &[1, 0, 0])?;
//! let solution = page_rank(&graph, &[0, 3], &Options::default(), &mut ())?;
//! let [first, last] = &solution.nodes[..] else { unreachable!() };
//! assert!(first.estimate > last.estimate && first.half_width <= 1e-6 * first.estimate);
//! # Ok::<(), kolmo::Error>(())
//! ```
//!
//! # Sources
//! * L. Page, S. Brin, R. Motwani, T. Winograd, "The PageRank citation ranking: bringing order to
//!   the web", Stanford InfoLab 1999-66, 1999.
//! * L. Collatz, "Einschließungssatz für die charakteristischen Zahlen von Matrizen", Mathematische
//!   Zeitschrift 48, 1942, doi:10.1007/BF01180013: quotients of iterates as bounds.

#[doc(inline)]
pub use kolmo_core::pagerank::{Graph, Node, Options, Seconds, Solution, page_rank};
