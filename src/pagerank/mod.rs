//! PageRank of graphs: selected nodes, or all of them, each with a proved interval.
//!
//! Users find the method, shapes, errors and sources on the page of the crate `kolmo`.

mod elimination;
mod enclosure;
mod options;
mod ranking;
mod solution;

pub use enclosure::{most_products, page_rank, peak_bytes};
pub use options::Options;
pub use solution::{Node, Seconds, Solution};

use crate::parallel::*;
use crate::util::memory::expect_memory;
use crate::{Invalid, Result};

/// Largest number of edges of a graph.
pub const MOST_LINKS: usize = u32::MAX as usize;
/// Largest number of edges out of a node: f64 counts exactly up to it.
const MOST_PARALLEL: f64 = 9_007_199_254_740_992.0;

/// Directed graph, stored by the edges into each node.
///
/// Nodes are stored in descending order of their number of edges; the index in this order is a
/// node's place. Iterates that are gathered most often are then adjacent, as are rows of equal
/// length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graph {
    /// Node at each place of the storage order; `places` has the place of each node.
    order: Vec<u32>,
    places: Vec<u32>,
    /// Edges into the node at place i come from the places `sources[starts[i]..starts[i + 1]]`.
    starts: Vec<u32>,
    sources: Vec<u32>,
    /// Number of parallel edges per entry of `sources`; empty if all are 1.
    counts: Vec<u64>,
    /// Number of edges out of the node at each place.
    degrees: Vec<u64>,
    /// Names of the nodes in ascending order; none if they are the numbers 0, 1, 2, ….
    names: Option<Vec<u64>>,
}

impl Graph {
    /// Creates a graph of `nodes` nodes with the edges `from[k]` → `to[k]`.
    ///
    /// An edge that is listed twice counts twice.
    ///
    /// # Errors
    /// [`Invalid`] for a node out of range, for lists of different lengths, and for more
    /// than [`MOST_LINKS`] edges; [`crate::Error::OutOfMemory`].
    pub fn new(nodes: usize, from: &[u32], to: &[u32]) -> Result<Self> {
        Self::counted(nodes, from, to, &[], false)
    }

    /// Creates a graph with each edge in both directions, edges from a node to itself once.
    ///
    /// Nothing is added if every edge has its reverse already, as in a symmetric matrix.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn undirected(nodes: usize, from: &[u32], to: &[u32]) -> Result<Self> {
        Self::counted(nodes, from, to, &[], true)
    }

    /// Creates a graph with `counts[k]` parallel edges `from[k]` → `to[k]`, whole numbers ≥ 1.
    ///
    /// The graph is that of [`new`](Self::new), or of [`undirected`](Self::undirected) if
    /// `undirected`. If `counts` is empty, all are 1. Each count takes the memory of one edge.
    ///
    /// # Errors
    /// Those of [`new`](Self::new), and [`Invalid`] for a count that is no positive whole
    /// number, and for a node with more than 2⁵³ outgoing edges.
    pub fn counted(nodes: usize, from: &[u32], to: &[u32], counts: &[f64], undirected: bool) -> Result<Self> {
        let directed = Self::directed(nodes, from, to, counts)?;
        if !undirected || directed.is_symmetric() {
            return Ok(directed);
        }
        drop(directed);
        let (mut all_from, mut all_to, mut all_counts) = (from.to_vec(), to.to_vec(), counts.to_vec());
        for (k, (&from, &to)) in checked(from.iter().zip(to)).enumerate().filter(|(_, (from, to))| from != to)
        {
            all_from.push(to);
            all_to.push(from);
            all_counts.extend(counts.get(k));
        }
        Self::directed(nodes, &all_from, &all_to, &all_counts)
    }

    fn directed(nodes: usize, from: &[u32], to: &[u32], counts: &[f64]) -> Result<Self> {
        let [edges, targets, counted] = [from.len(), to.len(), counts.len()];
        Invalid::Shape.unless(edges == targets && (counted == 0 || counted == edges), || {
            format!(
                "{edges} sources, {targets} targets and {counted} counts of edges: expected equal numbers"
            )
        })?;
        Invalid::TooLarge.unless((1..=u32::MAX as usize).contains(&nodes) && edges <= MOST_LINKS, || {
            format!(
                "a graph of {nodes} nodes and {edges} edges is out of range: expected 1 to {MOST_LINKS} of both"
            )
        })?;
        let is_count = |count: f64| count >= 1.0 && count.fract() == 0.0 && count <= MOST_PARALLEL;
        if let Some(k) = counts.par_iter().position_first(|&count| !is_count(count)) {
            return Invalid::Number("counts").fail(format!(
                "invalid number {} of edges from {} to {}: expected a whole number from 1 to 2^53",
                counts[k], from[k], to[k]
            ));
        }
        let counts = if counts.iter().all(|&count| count == 1.0) { &[] } else { counts };
        let count = |k: usize| counts.get(k).map_or(1, |&count| count as u64);
        let wrong =
            |all: &[u32]| all.par_iter().position_first(|&node| node as usize >= nodes).map(|k| all[k]);
        if let Some(node) = wrong(from).or_else(|| wrong(to)) {
            let last = nodes - 1;
            return Invalid::States.fail(format!(
                "node {node} of a graph of {nodes} nodes is out of range: expected 0 to {last}"
            ));
        }
        expect_memory(4 * (from.len() + 2 * counts.len() + 9 * nodes) as u64, || {
            format!("a graph of {nodes} nodes and {edges} edges")
        })?;
        let mut degrees = vec![0u64; nodes];
        for (k, &node) in checked(from.iter()).enumerate() {
            let degree = &mut degrees[node as usize];
            *degree += count(k);
            Invalid::TooLarge.unless(*degree <= MOST_PARALLEL as u64, || {
                format!("node {node} has more than 2^53 edges; divide the numbers of edges")
            })?;
        }
        // Listed edges in both directions.
        let mut links = vec![0u32; nodes];
        checked(from.iter().chain(to))
            .for_each(|&node| links[node as usize] = links[node as usize].saturating_add(1));
        let mut order: Vec<u32> = (0..nodes as u32).collect();
        let at_hand = AtHand::now();
        order.sort_by_key(|&node| {
            at_hand.look();
            std::cmp::Reverse(links[node as usize])
        });
        let mut places = vec![0u32; nodes];
        (0..).zip(&order).for_each(|(place, &node)| places[node as usize] = place);
        let at = |node: &u32| places[*node as usize];
        let (starts, sources) = by_first(nodes, to.iter().map(at), from.iter().map(at));
        let counts = match counts {
            [] => Vec::new(),
            counts => by_first(nodes, to.iter().map(at), counts.iter().map(|&count| count as u64)).1,
        };
        let degrees = order.iter().map(|&node| degrees[node as usize]).collect();
        Ok(Self { order, places, starts, sources, counts, degrees, names: None })
    }

    /// True if each pair of nodes has equally many edges in both directions.
    fn is_symmetric(&self) -> bool {
        let into = |i: usize| (self.links_into(i).len() as u64).max(self.counts_into(i).iter().sum());
        if (0..self.nodes()).any(|i| into(i) != self.degrees[i]) {
            return false;
        }
        let from = self.sources.iter().copied();
        let numbered =
            (0..self.nodes()).flat_map(|i| self.entries_into(i).map(move |(_, count)| (i as u32, count)));
        let (starts, ends) = by_first(self.nodes(), from, numbered);
        // Sums the numbers of parallel edges per neighbour, which may have several entries.
        let merged = |entries: &mut dyn Iterator<Item = (u32, u64)>| {
            let mut all: Vec<(u32, u64)> = entries.collect();
            all.sort_unstable_by_key(|&(node, _)| node);
            all.dedup_by(|next, kept| {
                next.0 == kept.0 && {
                    kept.1 += next.1;
                    true
                }
            });
            all
        };
        (0..self.nodes()).into_par_iter().all(|i| {
            let out = &ends[starts[i] as usize..starts[i + 1] as usize];
            merged(&mut self.entries_into(i)) == merged(&mut out.iter().copied())
        })
    }

    /// Returns the graph with the given node names, in ascending order.
    ///
    /// # Errors
    /// [`Invalid`] for names that do not ascend, or for a number of names other than that of
    /// nodes.
    pub fn named(self, names: Vec<u64>) -> Result<Self> {
        let (given, nodes) = (names.len(), self.nodes());
        Invalid::Shape.unless(given == nodes && names.is_sorted_by(|a, b| a < b), || {
            format!("{given} names of {nodes} nodes: expected equal numbers, and ascending names")
        })?;
        // Names 0, 1, 2, … are not stored.
        let plain = names.last().is_some_and(|&last| last == names.len() as u64 - 1);
        Ok(Self { names: (!plain).then_some(names), ..self })
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.degrees.len()
    }

    /// Number of edges, parallel ones counted each.
    pub fn links(&self) -> usize {
        match self.counts.is_empty() {
            true => self.sources.len(),
            false => self.counts.iter().fold(0, |all, &count| all.saturating_add(count as usize)),
        }
    }

    /// Number of stored entries, one per group of parallel edges.
    fn entries(&self) -> usize {
        self.sources.len()
    }

    /// Number of nodes without an outgoing edge.
    pub fn dangling(&self) -> usize {
        self.degrees.iter().filter(|&&degree| degree == 0).count()
    }

    /// Number of nodes with an edge to or from them, which have the first places.
    fn linked(&self) -> usize {
        let is_linked = |i: usize| self.degrees[i] > 0 || self.starts[i] < self.starts[i + 1];
        self.order.partition_point(|&node| is_linked(self.places[node as usize] as usize))
    }

    /// Returns the name of a node, its number if the graph has no names.
    pub fn name(&self, node: u32) -> u64 {
        self.names.as_ref().map_or(u64::from(node), |names| names[node as usize])
    }

    /// Returns the node of a name, if there is one.
    pub fn node(&self, name: u64) -> Option<u32> {
        match &self.names {
            Some(names) => names.binary_search(&name).ok().map(|node| node as u32),
            None => u32::try_from(name).ok().filter(|&node| (node as usize) < self.nodes()),
        }
    }

    /// Edges as pairs of node names, ordered by target node.
    pub fn pairs(&self) -> impl Iterator<Item = (u64, u64)> {
        self.counted_pairs().flat_map(|(from, to, count)| {
            let pair = (self.name(from), self.name(to));
            (0..count).map(move |_| pair)
        })
    }

    /// Pairs of adjacent nodes with their number of parallel edges, ordered by target node.
    pub fn counted_pairs(&self) -> impl Iterator<Item = (u32, u32, u64)> {
        let of = move |(i, &place): (u32, &u32)| {
            let entries = self.entries_into(place as usize);
            entries.map(move |(j, count)| (self.order[j as usize], i, count))
        };
        (0..).zip(&self.places).flat_map(of)
    }

    /// Numbers of parallel edges into the node at place i; empty if all are 1.
    #[inline(always)]
    fn counts_into(&self, i: usize) -> &[u64] {
        match self.counts.is_empty() {
            true => &[],
            false => &self.counts[self.starts[i] as usize..self.starts[i + 1] as usize],
        }
    }

    /// Places of the predecessors of the node at place i, with their numbers of parallel edges.
    fn entries_into(&self, i: usize) -> impl Iterator<Item = (u32, u64)> {
        let counts = self.counts_into(i).iter().copied().chain(std::iter::repeat(1));
        self.links_into(i).iter().copied().zip(counts)
    }

    /// Places of the predecessors of the node at place i.
    #[inline(always)]
    fn links_into(&self, i: usize) -> &[u32] {
        &self.sources[self.starts[i] as usize..self.starts[i + 1] as usize]
    }
}

/// Groups pairs by their first member: offsets of groups, and second members in the given order.
fn by_first<T: Copy + Default>(
    count: usize,
    first: impl Iterator<Item = u32> + Clone,
    second: impl Iterator<Item = T>,
) -> (Vec<u32>, Vec<T>) {
    let mut starts = vec![0u32; count + 1];
    checked(first.clone()).for_each(|i| starts[i as usize + 1] += 1);
    (0..count).for_each(|i| starts[i + 1] += starts[i]);
    let mut next = starts.clone();
    let mut all = vec![T::default(); starts[count] as usize];
    for (i, j) in checked(first.zip(second)) {
        all[next[i as usize] as usize] = j;
        next[i as usize] += 1;
    }
    (starts, all)
}
