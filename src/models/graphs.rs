//! Built-in random graphs.

use super::Parameters;
use super::systems::key;
use crate::Result;
use crate::numerics::philox::philox;
use crate::pagerank::{Graph, MOST_LINKS};
use crate::parallel::*;
use crate::util::memory::expect_memory;

/// Names and parameters of the built-in graphs, for help and messages.
pub const GRAPHS: &str = "rmat:SCALE,EDGES and barabasi:N,EDGES";

/// Returns the built-in graph with the specification `spec`, and its normalised name.
///
/// Random numbers depend on `seed`. Returns `None` if `spec` does not begin with one of the names
/// and a colon. Edges may be parallel, and may lead from a node to itself.
///
/// * `rmat:SCALE,LINKS` has 2^SCALE nodes and LINKS times as many edges. It is the recursive model
///   of D. Chakrabarti, Y. Zhan, C. Faloutsos, "R-MAT: a recursive model for graph mining", SDM
///   2004, doi:10.1137/1.9781611972740.43, with the Graph500 benchmark's probabilities 0.57, 0.19,
///   0.19, 0.05.
/// * `barabasi:N,LINKS` grows by preferential attachment, with LINKS edges from each new node to
///   earlier ones (A.-L. Barabási, R. Albert, Science 286, 1999, doi:10.1126/science.286.5439.509).
///   The algorithm is that of V. Batagelj, U. Brandes, Physical Review E 71, 2005,
///   doi:10.1103/PhysRevE.71.036113.
///
/// # Errors
/// [`Invalid`](crate::Error::Invalid) for invalid parameters,
/// [`OutOfMemory`](crate::Error::OutOfMemory) for a graph that does not fit into memory.
///
/// ```
/// let (name, graph) = kolmo::models::graph("rmat:4,8", 0).unwrap()?;
/// assert_eq!((&name[..], graph.nodes(), graph.links()), ("rmat:4,8", 16, 128));
/// # Ok::<(), kolmo::Error>(())
/// ```
pub fn graph(spec: &str, seed: u64) -> Option<Result<(String, Graph)>> {
    links(spec, seed).map(|made| {
        made.and_then(|Links { name, nodes, from, to }| Ok((name, Graph::new(nodes, &from, &to)?)))
    })
}

/// Edges of a built-in graph, unordered.
#[derive(Debug, Clone)]
pub struct Links {
    /// Normalised specification.
    pub name: String,
    /// Number of nodes.
    pub nodes: usize,
    /// Source of each edge.
    pub from: Vec<u32>,
    /// Target of each edge.
    pub to: Vec<u32>,
}

/// Returns a built-in graph like [`graph`], as a list of edges.
///
/// # Errors
/// Errors of [`graph`].
pub fn links(spec: &str, seed: u64) -> Option<Result<Links>> {
    let parameters = Parameters::of(spec, &["rmat:20,8", "barabasi:1000000,6"])?;
    Some(match parameters.name {
        "rmat" => rmat(&parameters, seed),
        _ => barabasi(&parameters, seed),
    })
}

/// Largest SCALE of an `rmat` graph: number of bits of a node's number.
const MOST_LEVELS: u64 = 31;
/// Last word of Philox's counter, which separates random numbers of `rmat` from all others.
const RMAT: u32 = 3;
const BARABASI: u32 = 4;

fn rmat(parameters: &Parameters<'_>, seed: u64) -> Result<Links> {
    parameters.expect(&["SCALE", "LINKS"])?;
    let levels = parameters.whole(0, "SCALE (levels of the recursion)", MOST_LEVELS)? as u32;
    let nodes = 1usize << levels;
    let each = parameters.whole(1, "EDGES (edges per node)", (MOST_LINKS / nodes) as u64)? as usize;
    let count = each * nodes;
    room(parameters, nodes, count)?;
    // Cumulative probabilities of the first three quarters, times 2^32.
    let quarters = [0.57, 0.76, 0.95].map(|p: f64| (p * 4_294_967_296.0) as u32);
    let at_hand = AtHand::now();
    let link = |e: usize| {
        at_hand.look();
        let words = (0..levels.div_ceil(4)).flat_map(|k| philox([e as u32, k, 0, RMAT], key(seed)));
        words.take(levels as usize).fold((0, 0), |(from, to), word| {
            let quarter = quarters.iter().filter(|&&sum| word >= sum).count() as u32;
            (2 * from + quarter / 2, 2 * to + quarter % 2)
        })
    };
    let all: Vec<(u32, u32)> = (0..count).into_par_iter().map(link).collect();
    let (from, to) = checked(all.into_iter()).unzip();
    Ok(Links { name: format!("rmat:{levels},{each}"), nodes, from, to })
}

fn barabasi(parameters: &Parameters<'_>, seed: u64) -> Result<Links> {
    parameters.expect(&["N", "LINKS"])?;
    let nodes = parameters.whole(0, "N (number of nodes)", u64::from(u32::MAX))? as usize;
    let most = (MOST_LINKS / nodes) as u64;
    let each = parameters.whole(1, "EDGES (edges out of a node)", most)? as usize;
    let count = each * nodes;
    room(parameters, nodes, count)?;
    // Each end of an earlier edge is equally likely, so a node is chosen in proportion to its
    // degree.
    let from = |e: usize| (e / each) as u32;
    let mut to = Vec::with_capacity(count);
    for e in checked(0..count) {
        let [high, low, ..] = philox([e as u32, 0, 0, BARABASI], key(seed));
        let word = u64::from(high) << 32 | u64::from(low);
        let end = ((u128::from(word) * (2 * e as u128 + 1)) >> 64) as usize;
        to.push(if end.is_multiple_of(2) { from(end / 2) } else { to[end / 2] });
    }
    Ok(Links {
        name: format!("barabasi:{nodes},{each}"),
        nodes,
        from: checked(0..count).map(from).collect(),
        to,
    })
}

/// Checks that memory suffices: 16 bytes per edge (as pairs, then two arrays), 12 per node.
fn room(parameters: &Parameters<'_>, nodes: usize, links: usize) -> Result<()> {
    expect_memory(16 * links as u64 + 12 * nodes as u64, || format!("the graph {}", parameters.spec))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graphs_have_the_degrees_of_their_models() {
        let made = links("rmat:10,16", 3).unwrap().unwrap();
        assert_eq!((made.nodes, made.from.len()), (1024, 16 * 1024));
        // The first half of the nodes has 76 % of incoming and outgoing edges, with a standard
        // deviation of 0.33 %.
        for ends in [&made.from, &made.to] {
            let low = ends.iter().filter(|&&node| node < 512).count() as f64 / ends.len() as f64;
            assert!((low - 0.76).abs() < 5.0 * (0.76 * 0.24 / 16384.0f64).sqrt(), "{low}");
        }
        let made = links("barabasi:20000,3", 3).unwrap().unwrap();
        assert!(made.from.iter().zip(&made.to).all(|(from, to)| to <= from));
        let mut degree = vec![3u32; 20_000];
        made.to.iter().for_each(|&node| degree[node as usize] += 1);
        // A share m (m + 1) / (k (k + 1)) of the nodes has degree k or more: 12 / 930 at 30.
        let share = degree.iter().filter(|&&degree| degree >= 30).count() as f64 / 20_000.0;
        assert!((share - 12.0 / 930.0).abs() < 0.004, "{share}");
        let (other, same) = (links("barabasi:20000,3", 4), links("barabasi:20000,3", 3));
        assert!(other.unwrap().unwrap().to != made.to && same.unwrap().unwrap().to == made.to);
    }
}
