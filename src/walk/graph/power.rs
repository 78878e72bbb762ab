//! PageRank by powers of P, with an enclosure of every node.

use std::time::Instant;

use serde::Serialize;

use super::Graph;
use crate::lane::cpu::expect_memory;
use crate::parallel::*;
use crate::{Error, Result, Status};

/// Rows that one thread works on at a time.
const ROWS: usize = 1024;

/// What is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// d: the probability that a reader follows a link, at least 0 and below 1.
    pub damping: f64,
    /// Nodes to start anew at, each as probable; none for all nodes.
    pub seeds: Vec<u32>,
    /// Half-width that no interval may exceed, over its estimate.
    pub relative: f64,
    /// Half-width that is good enough whatever the estimate is.
    pub epsilon: f64,
    /// Products with P at most.
    pub most_products: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { damping: 0.85, seeds: Vec::new(), relative: 1e-6, epsilon: 0.0, most_products: u32::MAX }
    }
}

/// A node's PageRank, within the half-width of the estimate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Node {
    /// Its number.
    pub node: u32,
    /// PageRank, near enough.
    pub estimate: f64,
    /// Half-width of the interval: the sum of the three that follow.
    pub half_width: f64,
    /// Of the probability asked for, where there were walks.
    pub statistical: f64,
    /// What the terms that were left out can move the estimate by.
    pub truncation: f64,
    /// What rounding can.
    pub rounding: f64,
    /// Half-width around the estimate that is certain, whatever walks have found.
    pub certain: f64,
}

impl Node {
    /// A node of which no part is left to chance.
    pub(super) fn certain(node: u32, estimate: f64, truncation: f64, rounding: f64) -> Self {
        let half_width = truncation + rounding;
        Self { node, estimate, half_width, statistical: 0.0, truncation, rounding, certain: half_width }
    }
}

/// Seconds of a run's phases.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Seconds {
    /// Reading or generating the graph.
    pub load: f64,
    /// Products with P.
    pub solve: f64,
    /// Everything.
    pub total: f64,
}

/// PageRank of the nodes that were asked for.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Solution {
    /// Whether every half-width is what was asked for.
    pub status: Status,
    /// The nodes, in the order they were asked for.
    pub nodes: Vec<Node>,
    /// Products with P.
    pub products: u32,
    /// Factors between which each sum of two iterates lay of the one before it, in the end.
    pub quotients: (f64, f64),
    /// Steps of walks.
    pub steps: u64,
    /// Times.
    pub seconds: Seconds,
}

/// PageRank of `targets`, each to the half-width of `options` or to rounding; `watch` gets the products done, and how many
/// there will be at most where that is known, else 0.
///
/// # Errors
/// [`Error::Invalid`] for a damping factor, seeds or targets that there are no answers for, [`Error::OutOfMemory`], and what
/// `watch` returns.
pub fn page_rank(
    graph: &Graph,
    targets: &[u32],
    options: &Options,
    watch: &mut dyn FnMut(u64, u64) -> Result<()>,
) -> Result<Solution> {
    check(graph, targets, options)?;
    let started = Instant::now();
    expect_memory(of_iterates(graph, targets.len()), || format!("iterates of {} nodes", graph.nodes()))?;
    let mut powers = Powers::new(graph, &options.seeds);
    let mut sums: Vec<f64> = targets.iter().map(|_| 0.0).collect();
    let most = most_products(graph, options).unwrap_or(0);
    loop {
        // Σ_(j<K) d^j z_j, without the last iterate, from which the enclosure goes on.
        let factor = options.damping.powi(powers.products as i32);
        sums.par_iter_mut()
            .zip(targets)
            .with_min_len(ROWS)
            .for_each(|(sum, &t)| *sum += factor * powers.z[t as usize]);
        powers.step();
        watch(u64::from(powers.products), most)?;
        let enclosure = Enclosure::new(&powers, options.damping);
        let least = options.epsilon.max(enclosure.underflow);
        let met = |node: &Node| node.half_width <= (options.relative * node.estimate).max(least);
        let done = |node: &Node| met(node) || node.truncation <= node.rounding;
        let node = |(sum, &t): (&f64, &u32)| enclosure.node(&powers, *sum, t);
        let last = powers.products >= options.most_products;
        if last || sums.par_iter().zip(targets).with_min_len(ROWS).map(node).all(|node| done(&node)) {
            let nodes: Vec<Node> = sums.par_iter().zip(targets).with_min_len(ROWS).map(node).collect();
            let status = if nodes.iter().all(met) { Status::Met } else { Status::NotMet };
            let (products, quotients) = (powers.products, powers.quotients);
            let solve = started.elapsed().as_secs_f64();
            let seconds = Seconds { load: 0.0, solve, total: solve };
            return Ok(Solution { status, nodes, products, quotients, steps: 0, seconds });
        }
    }
}

pub(super) fn check(graph: &Graph, targets: &[u32], options: &Options) -> Result<()> {
    let fail = |reason: String| Err(Error::Invalid(reason));
    let (n, d) = (graph.nodes(), options.damping);
    if d == 1.0 {
        return fail(
            "a damping factor of 1 never starts anew: the walk has the norm 1 and no PageRank; give one below 1, or ask for the \
             steady state of the chain, `kolmo transient --time inf`"
                .to_owned(),
        );
    }
    if !(0.0..1.0).contains(&d) {
        return fail(format!("the damping factor {d} must be at least 0 and below 1, such as 0.85"));
    }
    for (what, value) in [("relative", options.relative), ("epsilon", options.epsilon)] {
        if !(value >= 0.0 && value.is_finite()) {
            return fail(format!("the half-width --{what} {value} must be a finite number, 0 or more"));
        }
    }
    for (what, nodes) in [("target", targets), ("seed", &options.seeds)] {
        if let Some(node) = nodes.iter().find(|&&node| node as usize >= n) {
            return fail(format!("{what} {node} is none of a graph of {n} nodes; they are 0 to {}", n - 1));
        }
        let mut sorted = nodes.to_vec();
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return fail(format!("{what} {} is named twice; name it once", graph.name(pair[0])));
        }
    }
    Ok(())
}

/// Bytes of the iterates, and of what is kept of so many nodes.
fn of_iterates(graph: &Graph, targets: usize) -> u64 {
    49 * graph.nodes() as u64 + 80 * targets as u64
}

/// Bytes that the graph and PageRank of so many nodes take on the host.
pub fn peak_bytes(graph: &Graph, targets: usize) -> u64 {
    4 * (graph.links() + 2 * graph.nodes()) as u64 + of_iterates(graph, targets)
}

/// Products after which what is left out of a node, d^(k+1) in sum, is small enough whatever the graph is, where that is
/// known: no node's PageRank is below (1 − d) / n, unless there are seeds.
pub fn most_products(graph: &Graph, options: &Options) -> Option<u64> {
    let least = match &options.seeds[..] {
        [] => (1.0 - options.damping) / graph.nodes() as f64,
        _ => 0.0,
    };
    let error = (options.relative * least).max(options.epsilon);
    let products = (error.ln() / options.damping.ln()).ceil();
    products.is_finite().then(|| (products as u64).clamp(1, u64::from(options.most_products)))
}

/// What a product shows of its rows: quotients of sums of two iterates, the share at nodes without a link, and whether a node
/// was reached that was not before.
#[derive(Debug, Clone, Copy)]
struct Seen {
    quotients: (f64, f64),
    dangling: f64,
    grows: bool,
}

/// z_k = (Pᵀ)^k s, one after the other.
struct Powers<'a> {
    graph: &'a Graph,
    /// s.
    start: Vec<f64>,
    /// One over the number of links out of a node; 0 where there is none.
    inverse: Vec<f64>,
    /// z_k, z_(k−1), and z_k times `inverse`.
    z: Vec<f64>,
    before: Vec<f64>,
    spread: Vec<f64>,
    next_spread: Vec<f64>,
    reached: Vec<bool>,
    /// Σ z_k of nodes without a link.
    dangling: f64,
    /// Whether the last product reached a node for the first time.
    grows: bool,
    /// k.
    products: u32,
    /// Factors between which every z_k + z_(k−1) lies, of the sum before it.
    quotients: (f64, f64),
    /// Bound of the relative error of an entry of a product.
    rounding: f64,
}

impl<'a> Powers<'a> {
    fn new(graph: &'a Graph, seeds: &[u32]) -> Self {
        let n = graph.nodes();
        let start = match seeds {
            [] => vec![1.0 / n as f64; n],
            seeds => {
                let mut start = vec![0.0; n];
                seeds.iter().for_each(|&node| start[node as usize] = 1.0 / seeds.len() as f64);
                start
            }
        };
        let inverse = |&degree: &u32| if degree == 0 { 0.0 } else { 1.0 / f64::from(degree) };
        let inverse: Vec<f64> = graph.degrees.par_iter().map(inverse).collect();
        let spread: Vec<f64> = start.par_iter().zip(&inverse).map(|(z, inverse)| z * inverse).collect();
        let at_ends = start.iter().zip(&inverse).map(|(&z, &inverse)| if inverse == 0.0 { z } else { 0.0 });
        let dangling = at_ends.sum();
        let longest = (0..n).into_par_iter().map(|i| graph.links_into(i).len()).reduce(|| 0, usize::max);
        // A row's sum, the sum over nodes without a link by pieces, and a few products.
        let operations = longest + n.min(ROWS) + n.div_ceil(ROWS) + 8;
        Self {
            graph,
            z: start.clone(),
            before: vec![0.0; n],
            next_spread: vec![0.0; n],
            reached: start.par_iter().map(|&z| z > 0.0).collect(),
            start,
            inverse,
            spread,
            dangling,
            grows: true,
            products: 0,
            quotients: (0.0, f64::INFINITY),
            rounding: operations as f64 * f64::EPSILON,
        }
    }

    /// z_(k+1) from z_k.
    fn step(&mut self) {
        let Self { graph, start, inverse, z, before, spread, next_spread, reached, dangling, .. } = self;
        let (spread, start, inverse, dangling) = (&spread[..], &start[..], &inverse[..], *dangling);
        let rows = z.par_chunks(ROWS).zip(before.par_chunks_mut(ROWS)).zip(next_spread.par_chunks_mut(ROWS));
        let rows = rows.zip(reached.par_chunks_mut(ROWS)).enumerate();
        let pieces = rows.map(|(chunk, (((z, before), next), reached))| {
            let mut seen = Seen { quotients: (f64::INFINITY, 0.0), dangling: 0.0, grows: false };
            for (k, &own) in z.iter().enumerate() {
                let i = chunk * ROWS + k;
                let links: f64 = graph.links_into(i).iter().map(|&j| spread[j as usize]).sum();
                let new = links + dangling * start[i];
                let (sum, sum_before) = (new + own, own + before[k]);
                if sum > 0.0 {
                    let quotient = sum / sum_before;
                    seen.quotients = (seen.quotients.0.min(quotient), seen.quotients.1.max(quotient));
                } else if sum_before > 0.0 {
                    seen.quotients.0 = 0.0;
                }
                if new > 0.0 && !reached[k] {
                    (seen.grows, reached[k]) = (true, true);
                }
                if inverse[i] == 0.0 {
                    seen.dangling += new;
                }
                (before[k], next[k]) = (new, new * inverse[i]);
            }
            seen
        });
        let all: Vec<Seen> = pieces.collect();
        let seen = all.into_iter().reduce(|a, b| Seen {
            quotients: (a.quotients.0.min(b.quotients.0), a.quotients.1.max(b.quotients.1)),
            dangling: a.dangling + b.dangling,
            grows: a.grows || b.grows,
        });
        let seen = seen.expect("a graph has a node");
        // z_0 has none before it.
        self.quotients = if self.products == 0 { (0.0, f64::INFINITY) } else { seen.quotients };
        (self.dangling, self.grows) = (seen.dangling, seen.grows);
        std::mem::swap(&mut self.z, &mut self.before);
        std::mem::swap(&mut self.spread, &mut self.next_spread);
        self.products += 1;
    }
}

/// Bounds of d^(K+1) z_(K+1) + … from z_K and z_(K+1), the last two iterates.
struct Enclosure {
    damping: f64,
    /// d^K.
    factor: f64,
    /// Bounds of Σ_j d^j u_(K+j) over u_K = z_K + z_(K+1).
    series: (f64, f64),
    /// By how much the lower bounds of all nodes together are too small, and the upper ones too large: all that is left out
    /// sums to d^(K+1) / (1 − d).
    excess: (f64, f64),
    /// Of sums that have been rounded all the way, relative; and of numbers below the normal ones.
    rounding: f64,
    underflow: f64,
}

impl Enclosure {
    fn new(powers: &Powers<'_>, damping: f64) -> Self {
        let (lo, hi) = powers.quotients;
        let slack = 4.0 * powers.rounding + 16.0 * f64::EPSILON;
        let series = |quotient: f64| match 1.0 - damping * quotient {
            left if left > 0.0 => 1.0 / left,
            _ => f64::INFINITY,
        };
        let rounding = (f64::from(powers.products) + 4.0) * (powers.rounding + 4.0 * f64::EPSILON);
        let factor = damping.powi(powers.products as i32 - 1);
        let (low, high) = (series(lo * (1.0 - slack)), series(hi * (1.0 + slack)));
        // z_K + z_(K+1) sums to 2, and z_K to 1.
        let together = |series: f64| damping * factor * (2.0 * series - 1.0) / (1.0 + damping);
        let rest = damping * factor / (1.0 - damping);
        let excess = |by: f64| by.max(0.0) + 4.0 * rounding * rest;
        Self {
            damping,
            factor,
            series: (low, high),
            excess: (excess(rest - together(low)), excess(together(high) - rest)),
            rounding,
            underflow: f64::MIN_POSITIVE / ((1.0 - damping) * (1.0 - damping)),
        }
    }

    /// A node, whose terms to z_K have this sum.
    fn node(&self, powers: &Powers<'_>, sum: f64, node: u32) -> Node {
        let (last, next) = (powers.before[node as usize], powers.z[node as usize]);
        if sum == 0.0 && next == 0.0 && !powers.grows {
            // No way leads there.
            return Node::certain(node, 0.0, 0.0, self.underflow);
        }
        let (d, factor) = (self.damping, self.factor);
        // With T = Σ_(j≥K) d^j z_j and S = Σ_(j≥K) d^j u_j it is d S = d T + T − d^K z_K: T − d^K z_K = d (S − d^K z_K) / (1 + d).
        let rest = |series: f64| d * factor * ((last + next) * series - last) / (1.0 + d);
        // The next term is known, and all later ones sum to d^(K+2) / (1 − d) over all nodes.
        let known = d * factor * next;
        let (least, most) = (rest(self.series.0), rest(self.series.1));
        let low = known.max(least).max(most - self.excess.1);
        let high = most.min(known + d * d * factor / (1.0 - d)).min(least + self.excess.0).max(low);
        let estimate = (1.0 - d) * (sum + 0.5 * (low + high));
        let truncation = 0.5 * (1.0 - d) * (high - low);
        let rounding = (estimate + truncation) * self.rounding + self.underflow;
        Node::certain(node, estimate, truncation, rounding)
    }
}
