//! PageRank by powers of P, with lower and upper bounds of every node.
//!
//! Per edge a product reads a 32-bit index and gathers one iterate. Per node it reads or writes
//! five numbers. If four or five digits suffice, iterates are stored in f32 and summed in f64. That
//! is half the bytes, and twice as many iterates fit into a cache.

use std::ops::Range;
use std::time::Instant;

use super::Graph;
use super::elimination::Elimination;
use super::options::Options;
use super::solution::{Node, Seconds, Solution};
use crate::kernel::cpu::simd::{Body, dispatch};
use crate::kernel::{Precision, Real};
use crate::parallel::*;
use crate::util::memory::expect_memory;
use crate::util::quantity::duplicate;
use crate::{Invalid, Progress, Result, Status};

/// Maximum number of nodes of a parallel task; `LINKS` limits their edges, except the last node's.
const ROWS: usize = 1024;
const LINKS: usize = 16 * ROWS;

/// Number of products after which targets with an unattainable half-width count as done.
const LONG: u32 = 1 << 20;

/// Returns the PageRank of `targets`, to the half-width of `options` or down to rounding.
///
/// `watch` gets the number of products done, and their largest possible number, or 0 if it is
/// unknown.
///
/// # Errors
/// [`Invalid`] for a damping factor without PageRank, and for invalid or repeated seeds or
/// targets; [`crate::Error::OutOfMemory`]; the errors of `watch`.
pub fn page_rank(
    graph: &Graph,
    targets: &[u32],
    options: &Options,
    watch: &mut dyn Progress,
) -> Result<Solution> {
    check(graph, targets, options)?;
    expect_memory(of_iterates(graph, targets.len()), || format!("iterates of {} nodes", graph.nodes()))?;
    match is_single(graph, options) {
        true => by_powers::<f32>(graph, targets, options, watch),
        false => by_powers::<f64>(graph, targets, options, watch),
    }
}

/// True if iterates in f32 contribute at most half of the requested half-width by rounding.
///
/// From seeds some nodes may be hardly reached. Their probabilities underflow in f32.
fn is_single(graph: &Graph, options: &Options) -> bool {
    let rounding = |products: u64| products as f64 * of_storage::<f32>();
    let most = most_products(graph, options).filter(|_| options.seeds.is_empty());
    most.is_some_and(|most| 2.0 * rounding(most + 4) <= options.relative.max(options.epsilon))
}

/// Bound of the relative error of an entry of a product with Pᵀ by storage as `T`.
///
/// An iterate, the inverse of a degree, and their product are stored.
fn of_storage<T: Real>() -> f64 {
    3.0 * T::PRECISION.unit_roundoff()
}

fn by_powers<T: Real>(
    graph: &Graph,
    targets: &[u32],
    options: &Options,
    watch: &mut dyn Progress,
) -> Result<Solution> {
    let started = Instant::now();
    let core = Core::new(graph, options);
    let mut powers = Powers::<T>::new(graph, &options.seeds, &core);
    let places: Vec<u32> = targets.iter().map(|&t| graph.places[t as usize]).collect();
    let mut sums: Vec<f64> = targets.iter().map(|_| 0.0).collect();
    let mut most = most_products(graph, options).unwrap_or(0);
    let (mut elimination, mut exact) = (Elimination::new(graph, core.nodes), None);
    loop {
        // Adds d^k z_k. The enclosure bounds the sum of all later terms.
        let factor = options.damping.powi(powers.products as i32);
        sums.par_iter_mut()
            .zip(&places)
            .with_min_len(ROWS)
            .for_each(|(sum, &t)| *sum += factor * powers.z.get(t as usize).map_or(0.0, |z| z.wide()));
        powers.step();
        most = if most > 0 { most.max(u64::from(powers.products)) } else { 0 };
        watch.progress(u64::from(powers.products), most)?;
        let enclosure = Enclosure::new(&powers, options.damping);
        let least = options.epsilon.max(enclosure.underflow);
        let met = |node: &Node| node.half_width <= (options.relative * node.estimate).max(least);
        let node = |(sum, &t): (&f64, &u32)| match (t as usize) < core.nodes {
            true => core.in_graph(enclosure.node(&powers, *sum, t)),
            false => core.alone(graph, options, t),
        };
        let all = || sums.par_iter().zip(&places).with_min_len(ROWS);
        let long = powers.products >= LONG;
        let judged = long || enclosure.settled && !elimination.is_planned();
        let is_done = |node: &Node| {
            let wanted = (options.relative * (node.estimate + node.truncation)).max(least);
            let unattainable = judged && enclosure.is_unattainable(node, wanted);
            met(node) || node.truncation <= node.rounding || unattainable
        };
        if powers.products.is_power_of_two() {
            let wanted = |node: &Node| (options.relative * node.estimate).max(least) - node.rounding;
            let further = all().map(node).map(|node| enclosure.further(node.truncation, wanted(&node)));
            most = enclosure.at_most(most, further.reduce(|| 0.0, f64::max));
        }
        if elimination.is_due(powers.products) && !all().map(node).all(|node| is_done(&node)) {
            let products = u64::from(powers.products);
            exact = elimination.solve(graph, core.nodes, options, &mut || watch.progress(products, most))?;
        }
        // Takes the smaller interval of products and elimination.
        let best = |(sum, t): (&f64, &u32)| {
            let by_products = node((sum, t));
            let exact = exact.as_ref().filter(|_| (*t as usize) < core.nodes);
            let by_elimination = exact.map(|exact| core.in_graph(exact.node(graph, *t)));
            by_elimination.filter(|node| node.half_width < by_products.half_width).unwrap_or(by_products)
        };
        let last = powers.products >= options.most_products || options.is_timed_out(started);
        let is_done = |target: (&f64, &u32)| is_done(&node(target)) || exact.is_some() && met(&best(target));
        // Without seeds only rounding is left after elimination.
        let ended = last || exact.is_some() && (long || options.seeds.is_empty()) || all().all(is_done);
        if ended {
            let nodes: Vec<Node> = all().map(best).collect();
            let (status, seconds) = (Status::of(nodes.iter().all(met)), Seconds::since(started));
            let (products, quotients, direct) = (powers.products, powers.quotients, exact.is_some());
            return Ok(Solution { status, nodes, products, quotients, direct, seconds });
        }
    }
}

pub(super) fn check(graph: &Graph, targets: &[u32], options: &Options) -> Result<()> {
    let (n, d) = (graph.nodes(), options.damping);
    Invalid::Argument("damping").unless(d != 1.0, || {
        "a damping factor of 1 never restarts: the walk has the norm 1 and no PageRank; give one below 1, or \
         compute the steady state of the chain"
            .to_owned()
    })?;
    Invalid::Argument("damping").unless((0.0..1.0).contains(&d), || {
        format!("invalid damping factor {d}: expected a number of at least 0 and below 1, such as 0.85")
    })?;
    for (what, value) in [("relative", options.relative), ("epsilon", options.epsilon)] {
        Invalid::Argument(what).unless(value >= 0.0 && value.is_finite(), || {
            format!("invalid half-width `{what}` {value}: expected a finite number ≥ 0")
        })?;
    }
    for (what, nodes) in [("target", targets), ("seed", &options.seeds)] {
        if let Some(node) = nodes.iter().find(|&&node| node as usize >= n) {
            let last = n - 1;
            return Invalid::States.fail(format!(
                "{what} {node} of a graph of {n} nodes is out of range: expected 0 to {last}"
            ));
        }
        if let Some(twice) = duplicate(nodes) {
            let name = graph.name(twice);
            return Invalid::States.fail(format!("duplicate {what} {name}; name it once"));
        }
    }
    Ok(())
}

/// Bytes of the iterates, and of the data kept per target.
fn of_iterates(graph: &Graph, targets: usize) -> u64 {
    49 * graph.nodes() as u64 + 84 * targets as u64
}

/// Host memory in bytes for the graph and the PageRank of `targets` nodes.
pub fn peak_bytes(graph: &Graph, targets: usize) -> u64 {
    4 * (graph.entries() + 2 * graph.counts.len() + 5 * graph.nodes()) as u64 + of_iterates(graph, targets)
}

/// Returns an upper bound of the number of products; `None` if it is unknown.
///
/// After k products the omitted terms sum to d^(k+1), with the damping factor d. Without seeds, no
/// node's PageRank is below (1 − d) / n. With seeds there is no such lower bound.
pub fn most_products(graph: &Graph, options: &Options) -> Option<u64> {
    let least = match &options.seeds[..] {
        [] => (1.0 - options.damping) / graph.nodes() as f64,
        _ => 0.0,
    };
    let error = (options.relative * least).max(options.epsilon);
    let products = (error.ln() / options.damping.ln()).ceil();
    products.is_finite().then(|| (products as u64).clamp(1, u64::from(options.most_products)))
}

/// Part of a graph on which PageRank is iterated, without isolated nodes.
///
/// It leaves out nodes without edges to or from them, if every other node has an outgoing edge. Let
/// P be the transition matrix in which dangling nodes have empty rows. Then PageRank is
/// proportional to y = s + d Pᵀ y, with teleport distribution s and damping factor d. Isolated
/// nodes have y_i = s_i and affect no other node. In the remaining part no probability is lost, so
/// Σ y is its share of s over 1 − d.
struct Core {
    nodes: usize,
    /// Sum of the teleport probabilities s_i of the nodes of this part.
    share: f64,
    /// Normalization (1 − d) Σ_i y_i over all nodes of the graph (see [`Core`]).
    all: f64,
    damping: f64,
}

impl Core {
    fn new(graph: &Graph, options: &Options) -> Self {
        let (n, d, linked) = (graph.nodes(), options.damping, graph.linked());
        let share = match &options.seeds[..] {
            [] => linked as f64 / n as f64,
            seeds => {
                let is_linked = |&&seed: &&u32| (graph.places[seed as usize] as usize) < linked;
                seeds.iter().filter(is_linked).count() as f64 / seeds.len() as f64
            }
        };
        let whole = share == 0.0 || graph.degrees[..linked].contains(&0);
        let (nodes, share) = if whole { (n, 1.0) } else { (linked, share) };
        Self { nodes, share, all: share + (1.0 - d) * (1.0 - share), damping: d }
    }

    /// Converts a node's PageRank within this part to that in the whole graph.
    fn in_graph(&self, node: Node) -> Node {
        if self.share == 1.0 {
            return node;
        }
        let part = self.share / self.all;
        let estimate = part * node.estimate;
        Node::new(
            node.node,
            estimate,
            part * node.truncation,
            part * node.rounding + 8.0 * f64::EPSILON * estimate,
        )
    }

    /// Returns the PageRank of the isolated node at a place.
    fn alone(&self, graph: &Graph, options: &Options, place: u32) -> Node {
        let node = graph.order[place as usize];
        let start = match &options.seeds[..] {
            [] => 1.0 / graph.nodes() as f64,
            seeds if seeds.contains(&node) => 1.0 / seeds.len() as f64,
            _ => 0.0,
        };
        let estimate = (1.0 - self.damping) * start / self.all;
        Node::new(node, estimate, 0.0, 8.0 * f64::EPSILON * estimate)
    }
}

/// Statistics of a product with Pᵀ over some of its rows, for the iterates z_k of [`Powers`].
///
/// * The smallest and largest (z_k + z_(k+1))_i / (z_(k−1) + z_k)_i.
/// * The probability at dangling nodes.
/// * True if a node was reached for the first time.
#[derive(Debug, Clone, Copy)]
struct ProductStatistics {
    quotients: (f64, f64),
    dangling: f64,
    grows: bool,
}

impl ProductStatistics {
    fn and(self, other: Self) -> Self {
        Self {
            quotients: (self.quotients.0.min(other.quotients.0), self.quotients.1.max(other.quotients.1)),
            dangling: self.dangling + other.dangling,
            grows: self.grows || other.grows,
        }
    }
}

/// Teleport distribution s.
enum Teleport {
    /// Probability of each node, if there are no seeds.
    Everywhere(f64),
    /// Probability of every node, 0 except for seeds.
    At(Vec<f64>),
}

impl Teleport {
    #[inline(always)]
    fn of(&self, i: usize) -> f64 {
        match self {
            Self::Everywhere(share) => *share,
            Self::At(shares) => shares[i],
        }
    }
}

/// Iterates z_k = (Pᵀ)^k s stored as `T`: transition matrix P, teleport distribution s.
struct Powers<'a, T> {
    graph: &'a Graph,
    start: Teleport,
    /// Ranges of nodes, each the work of one thread.
    pieces: Vec<Range<usize>>,
    /// Inverse of each node's number of outgoing edges; 0 for dangling nodes.
    inverse: Vec<T>,
    /// Iterate z_k; `before` is z_(k−1), and `spread` is z_k times `inverse`, entry by entry.
    z: Vec<T>,
    before: Vec<T>,
    spread: Vec<T>,
    next_spread: Vec<T>,
    /// True for nodes reached from seeds so far; empty without seeds.
    reached: Vec<bool>,
    /// Probability of z_k at dangling nodes, which have no outgoing edges.
    dangling: f64,
    /// True if the last product reached a node for the first time.
    grows: bool,
    /// Number k of products with Pᵀ so far.
    products: u32,
    /// Extreme ratios (z_k + z_(k−1))_i / (z_(k−1) + z_(k−2))_i of the iterates z over nodes i.
    quotients: (f64, f64),
    /// Bound of the relative rounding error of an entry of a product with Pᵀ.
    rounding: f64,
}

impl<'a, T: Real> Powers<'a, T> {
    fn new(graph: &'a Graph, seeds: &[u32], core: &Core) -> Self {
        let n = core.nodes;
        let (start, reached) = match seeds {
            [] => (Teleport::Everywhere(1.0 / n as f64), Vec::new()),
            seeds => {
                let mut start = vec![0.0; n];
                for &seed in seeds {
                    if let Some(start) = start.get_mut(graph.places[seed as usize] as usize) {
                        *start = 1.0 / (seeds.len() as f64 * core.share);
                    }
                }
                let reached = start.iter().map(|&share| share > 0.0).collect();
                (Teleport::At(start), reached)
            }
        };
        let inverse = |&degree: &u64| T::of(if degree == 0 { 0.0 } else { 1.0 / degree as f64 });
        let inverse: Vec<T> = graph.degrees[..n].par_iter().map(inverse).collect();
        let z: Vec<T> = (0..n).into_par_iter().map(|i| T::of(start.of(i))).collect();
        let spread: Vec<T> =
            z.par_iter().zip(&inverse).map(|(z, inverse)| T::of(z.wide() * inverse.wide())).collect();
        let at_ends = (0..n).filter(|&i| graph.degrees[i] == 0).map(|i| start.of(i));
        let dangling = at_ends.sum();
        let longest = (0..n).into_par_iter().map(|i| graph.links_into(i).len()).reduce(|| 0, usize::max);
        let pieces = pieces(graph, n);
        // Operations of a row's sum, of the sum over dangling nodes in pieces, and of a few
        // products with it.
        let at_ends = if graph.degrees[..n].contains(&0) { n.min(ROWS) + pieces.len() + 8 } else { 0 };
        let operations = longest + at_ends + usize::from(!graph.counts.is_empty());
        let zeros = || vec![T::ZERO; n];
        Self {
            graph,
            start,
            inverse,
            before: zeros(),
            z,
            spread,
            next_spread: zeros(),
            reached,
            dangling,
            grows: true,
            products: 0,
            quotients: (0.0, f64::INFINITY),
            rounding: operations as f64 * f64::EPSILON + of_storage::<T>(),
            pieces,
        }
    }

    /// Computes the next iterate z_(k+1) = Pᵀ z_k.
    fn step(&mut self) {
        let (mut before, mut next_spread) = (&mut self.before[..], &mut self.next_spread[..]);
        let mut reached = &mut self.reached[..];
        let mut cut = |rows: &Range<usize>| RowPiece {
            graph: self.graph,
            spread: &self.spread,
            start: &self.start,
            dangling: self.dangling,
            first: rows.start,
            inverse: &self.inverse[rows.clone()],
            z: &self.z[rows.clone()],
            before: before.split_off_mut(..rows.len()).expect("pieces are all nodes"),
            next_spread: next_spread.split_off_mut(..rows.len()).expect("pieces are all nodes"),
            reached: reached.split_off_mut(..rows.len()).unwrap_or_default(),
            statistics: ProductStatistics { quotients: (f64::INFINITY, 0.0), dangling: 0.0, grows: false },
        };
        let mut pieces: Vec<RowPiece<'_, T>> = self.pieces.iter().map(&mut cut).collect();
        pieces.par_iter_mut().for_each(dispatch);
        let statistics = pieces
            .into_iter()
            .map(|piece| piece.statistics)
            .reduce(ProductStatistics::and)
            .expect("a graph has a node");
        // z_0 has no predecessor, so there are no quotients yet.
        self.quotients = if self.products == 0 { (0.0, f64::INFINITY) } else { statistics.quotients };
        (self.dangling, self.grows) = (statistics.dangling, statistics.grows);
        std::mem::swap(&mut self.z, &mut self.before);
        std::mem::swap(&mut self.spread, &mut self.next_spread);
        self.products += 1;
    }
}

/// Splits the first n nodes into ranges of about equal work.
fn pieces(graph: &Graph, n: usize) -> Vec<Range<usize>> {
    let (mut all, mut first) = (Vec::new(), 0);
    for end in 1..=n {
        let links = graph.starts[end] - graph.starts[first];
        if end - first == ROWS || links as usize >= LINKS || end == n {
            all.push(first..end);
            first = end;
        }
    }
    all
}

/// Rows of a product with Pᵀ that one thread computes, from node `first` on.
struct RowPiece<'a, T> {
    graph: &'a Graph,
    spread: &'a [T],
    start: &'a Teleport,
    dangling: f64,
    first: usize,
    inverse: &'a [T],
    z: &'a [T],
    before: &'a mut [T],
    next_spread: &'a mut [T],
    reached: &'a mut [bool],
    statistics: ProductStatistics,
}

impl<T: Real> Body for &mut RowPiece<'_, T> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        let RowPiece { graph, spread, start, dangling, first, inverse, z, .. } = *self;
        let reached = &mut *self.reached;
        let mut statistics = self.statistics;
        let rows = z.iter().zip(inverse).zip(self.before.iter_mut()).zip(self.next_spread.iter_mut());
        for (k, (((own, inverse), before), next)) in rows.enumerate() {
            let i = first + k;
            let links = match graph.counts.is_empty() {
                true => gathered(graph.links_into(i), spread),
                false => {
                    graph.entries_into(i).map(|(j, count)| count as f64 * spread[j as usize].wide()).sum()
                }
            };
            let new = links + dangling * start.of(i);
            let (own, inverse) = (own.wide(), inverse.wide());
            let (sum, sum_before) = (new + own, own + before.wide());
            if sum > 0.0 {
                let quotient = sum / sum_before;
                statistics.quotients =
                    (statistics.quotients.0.min(quotient), statistics.quotients.1.max(quotient));
            } else if sum_before > 0.0 {
                statistics.quotients.0 = 0.0;
            }
            if let Some(reached) = reached.get_mut(k)
                && new > 0.0
                && !*reached
            {
                (statistics.grows, *reached) = (true, true);
            }
            if inverse == 0.0 {
                statistics.dangling += new;
            }
            (*before, *next) = (T::of(new), T::of(new * inverse));
        }
        self.statistics = statistics;
    }
}

/// Sums the gathered entries in eight independent sums, which hides the latency of additions.
#[inline(always)]
fn gathered<T: Real>(links: &[u32], spread: &[T]) -> f64 {
    let (eights, rest) = links.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for eight in eights {
        sums.iter_mut().zip(eight).for_each(|(sum, &j)| *sum += spread[j as usize].wide());
    }
    let of_rest: f64 = rest.iter().map(|&j| spread[j as usize].wide()).sum();
    let [a, b, c, d, e, f, g, h] = sums;
    match eights {
        [] => of_rest,
        _ => ((a + b) + (c + d)) + ((e + f) + (g + h)) + of_rest,
    }
}

/// Bounds of d^(K+1) z_(K+1) + …, the omitted terms of Σ_k d^k z_k, from the last iterates z_K and
/// z_(K+1). d is the damping factor.
struct Enclosure {
    damping: f64,
    /// Factor d^K of z_K, the last iterate but one, with the damping factor d.
    factor: f64,
    /// Bounds of Σ_j d^j u_(K+j) / u_K for u_k = z_k + z_(k+1): iterates z_k, damping factor d.
    series: (f64, f64),
    /// Sums over all nodes of the errors of the lower bounds, and of those of the upper bounds.
    ///
    /// The omitted terms of all nodes sum to d^(K+1) / (1 − d).
    excess: (f64, f64),
    /// Relative rounding bound of the sums; `underflow` is the absolute bound of underflow.
    rounding: f64,
    underflow: f64,
    products: f64,
    /// True if the quotients differ by less than their rounding.
    settled: bool,
}

impl Enclosure {
    fn new<T: Real>(powers: &Powers<'_, T>, damping: f64) -> Self {
        let (lo, hi) = powers.quotients;
        let slack = 4.0 * powers.rounding + 16.0 * f64::EPSILON;
        let series = |quotient: f64| match 1.0 - damping * quotient {
            left if left > 0.0 => 1.0 / left,
            _ => f64::INFINITY,
        };
        let rounding = (f64::from(powers.products) + 4.0) * (powers.rounding + 4.0 * f64::EPSILON);
        let factor = damping.powi(powers.products as i32 - 1);
        let (low, high) = (series(lo * (1.0 - slack)), series(hi * (1.0 + slack)));
        // The entries of z_K + z_(K+1) sum to 2, those of z_K to 1.
        let together = |series: f64| damping * factor * (2.0 * series - 1.0) / (1.0 + damping);
        let rest = damping * factor / (1.0 - damping);
        let excess = |by: f64| by.max(0.0) + 4.0 * rounding * rest;
        Self {
            damping,
            factor,
            series: (low, high),
            excess: (excess(rest - together(low)), excess(together(high) - rest)),
            rounding,
            underflow: underflow(T::PRECISION) / ((1.0 - damping) * (1.0 - damping)),
            products: f64::from(powers.products),
            settled: hi - lo <= slack,
        }
    }

    /// Returns the number of products, each a factor d, from the error `truncation` to `wanted`.
    fn further(&self, truncation: f64, wanted: f64) -> f64 {
        ((truncation / wanted.max(0.0)).ln() / -self.damping.ln()).max(0.0)
    }

    /// Returns the products so far plus `further`, at most `most` (0 if unknown).
    fn at_most(&self, most: u64, further: f64) -> u64 {
        match (self.products + further).ceil() {
            needed if needed < f64::from(u32::MAX) && (most == 0 || needed < most as f64) => needed as u64,
            _ => most,
        }
    }

    /// True if the rounding of all products that are needed exceeds the `wanted` half-width.
    ///
    /// Settled quotients can at most halve the truncation error. Each further product multiplies
    /// the error by d.
    fn is_unattainable(&self, node: &Node, wanted: f64) -> bool {
        let further = if self.settled { self.further(0.5 * node.truncation, wanted) } else { 0.0 };
        let rounding = self.rounding * (1.0 + further / (self.products + 4.0));
        rounding * (node.estimate - node.truncation) > wanted
    }

    /// Returns the interval of the node at a place; `sum` is its sum Σ_(j≤K) d^j z_j of terms.
    fn node<T: Real>(&self, powers: &Powers<'_, T>, sum: f64, place: u32) -> Node {
        let node = powers.graph.order[place as usize];
        let (last, next) = (powers.before[place as usize].wide(), powers.z[place as usize].wide());
        if sum == 0.0 && next == 0.0 && !powers.grows {
            // No path leads to this node.
            return Node::new(node, 0.0, 0.0, self.underflow);
        }
        let (d, factor) = (self.damping, self.factor);
        // Let T = Σ_(j≥K) d^j z_j and S = Σ_(j≥K) d^j u_j. Then d S = d T + T − d^K z_K, so T − d^K
        // z_K = d (S − d^K z_K) / (1 + d).
        let rest = |series: f64| d * factor * ((last + next) * series - last) / (1.0 + d);
        // The next term is known, and all later ones sum to d^(K+2) / (1 − d) over all nodes.
        let known = d * factor * next;
        let (least, most) = (rest(self.series.0), rest(self.series.1));
        let low = known.max(least).max(most - self.excess.1);
        let high = most.min(known + d * d * factor / (1.0 - d)).min(least + self.excess.0).max(low);
        let estimate = (1.0 - d) * (sum + 0.5 * (low + high));
        let truncation = 0.5 * (1.0 - d) * (high - low);
        let rounding = (estimate + truncation) * self.rounding + self.underflow;
        Node::new(node, estimate, truncation, rounding)
    }
}

/// Bounds the absolute error by underflow in a product with the whole graph.
fn underflow(precision: Precision) -> f64 {
    if matches!(precision, Precision::F32) { 2f64.powi(34 - 150) } else { f64::MIN_POSITIVE }
}
