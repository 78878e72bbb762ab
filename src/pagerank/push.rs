//! PageRank of a node by itself: a push from it against the links, and walks over what the push leaves.
//!
//! With P without what nodes without a link lead to, p_v + Σ_u (expected visits of u from v, discounted) (1 − d) r_u is what a
//! reader from v spends at the target t; at first p = 0 and r is 1 at t. A push at u moves (1 − d) r_u to p_u and d r_u over
//! the links into u, a share of one over its degree to each node that has one; it is done wherever r_u > δ. As x itself is
//! (1 + d / (1 − d) · Σ x of nodes without a link) times what starts from s alone,
//!
//! x_t = s·p + Σ_v x_v g_v,  g_v = r_v, and d / (1 − d) · s·p more where v has no link.
//!
//! Where a reader stands who has just given up is distributed as x: walks of geometric lengths end there, and the mean of g
//! at their ends is the sum. It lies within [0, max g] for certain.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::enclosure::{check, most_products, page_rank};
use super::options::Options;
use super::solution::{Node, Seconds, Solution};
use super::{Graph, OutLinks};
use crate::lane::cpu::expect_memory;
use crate::parallel::*;
use crate::walk::confidence::{student, unseen};
use crate::walk::sequence::philox::philox;
use crate::{Error, Result, Status};

/// How walks are walked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Walks {
    /// Probability that an interval is to hold its PageRank.
    pub confidence: f64,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Walks of a node at most.
    pub most: u64,
}

impl Default for Walks {
    fn default() -> Self {
        Self { confidence: 0.95, seed: 0, most: 1 << 26 }
    }
}

/// Independent samples, whose spread makes the interval.
const REPLICATES: u64 = 16;
/// Walks of a replicate that one thread walks at a time, and of the first round.
const BLOCK: u64 = 1 << 10;

/// PageRank of `targets`, each by itself, to the half-width `options.epsilon` with the probability of `walks`. What it takes depends on
/// that half-width and on the links into what leads to a target, not on the size of the graph, but for a list of all links out of
/// nodes that the graph keeps from the first call on; `watch` gets the targets done. Where walks would take longer than products
/// with the whole graph, [`page_rank`](super::page_rank) answers.
///
/// # Errors
/// As [`page_rank`](super::page_rank), and [`Error::Invalid`] without an absolute half-width, which alone says how far to push.
///
/// ```
/// use kolmo::pagerank::{Options, Walks, local_page_rank};
///
/// let (_, graph) = kolmo::models::graph("barabasi:1000,4", 0).unwrap()?;
/// let options = Options { seeds: vec![900], epsilon: 1e-4, ..Options::default() };
/// let solution = local_page_rank(&graph, &[0], &options, &Walks::default(), &mut |_done, _all| Ok(()))?;
/// assert!(solution.nodes[0].half_width <= 1e-4);
/// # Ok::<(), kolmo::Error>(())
/// ```
pub fn local_page_rank(
    graph: &Graph,
    targets: &[u32],
    options: &Options,
    walks: &Walks,
    watch: &mut dyn FnMut(u64, u64) -> Result<()>,
) -> Result<Solution> {
    check(graph, targets, options)?;
    if options.epsilon <= 0.0 {
        return Err(Error::Invalid(
            "`epsilon` is missing: a push and walks need an absolute half-width; for one relative \
             to the estimate leave out `lazy`"
                .to_owned(),
        ));
    }
    if !(walks.confidence > 0.0 && walks.confidence < 1.0) {
        let given = walks.confidence;
        return Err(Error::Invalid(format!(
            "`confidence` {given} is out of range: expected a number between 0 and 1, both excluded"
        )));
    }
    expect_memory(12 * graph.entries() as u64 + 28 * graph.nodes() as u64, || {
        "edges out of nodes".to_owned()
    })?;
    let started = Instant::now();
    let (out, dangling) = (graph.out_links(), graph.dangling() > 0);
    let place = |&node: &u32| graph.places[node as usize];
    let seeds: Vec<u32> = options.seeds.iter().map(place).collect();
    let steps = AtomicU64::new(0);
    let mut nodes = Vec::with_capacity(targets.len());
    let mut products = 0;
    for (k, &target) in targets.iter().enumerate() {
        watch(k as u64, targets.len() as u64)?;
        let pushed = Push::new(graph, options, &seeds, place(&target), dangling);
        let ends =
            Ends { graph, out, seeds: &seeds, options, walks, pushed: &pushed, steps: &steps, started };
        if ends.steps() > MANY_STEPS.max(products_cost(graph, options)) {
            // Products answer for this node and all that are left.
            let certain = Options { relative: 0.0, ..options.clone() };
            let rest = page_rank(graph, &targets[k..], &certain, watch)?;
            products = rest.products;
            nodes.extend(rest.nodes);
            break;
        }
        nodes.push(ends.node(target));
    }
    let status = match nodes.iter().all(|node| node.half_width <= options.epsilon) {
        true => Status::Met,
        false => Status::NotMet,
    };
    let solve = started.elapsed().as_secs_f64();
    let seconds = Seconds { load: 0.0, solve, total: solve };
    let steps = steps.into_inner();
    Ok(Solution { status, nodes, products, quotients: (0.0, 0.0), steps, direct: false, seconds })
}

/// What a push from a target leaves.
struct Push {
    /// s·p.
    known: f64,
    /// r.
    residuals: Vec<f64>,
    /// No g is above it.
    range: f64,
    /// Of nodes without a link.
    at_ends: f64,
    /// Links that were passed.
    links: u64,
}

impl Push {
    /// `seeds` and `target` are places.
    fn new(graph: &Graph, options: &Options, seeds: &[u32], target: u32, dangling: bool) -> Self {
        let (n, d) = (graph.nodes(), options.damping);
        // Walks over residuals of δ at most: (2 δ / h)² of them at most, and as many as the first round has in any case.
        let walks = |delta: f64| (4.0 * (delta / options.epsilon).powi(2)).max((REPLICATES * BLOCK) as f64);
        let (mut p, mut r) = (vec![0.0; n], vec![0.0; n]);
        r[target as usize] = 1.0;
        let (mut links, mut all, mut touched, mut delta) = (0u64, 0.0, vec![target], 1.0);
        // δ is halved while that promises to save more steps of walks than links that have been passed.
        'push: loop {
            let most = walks(delta) / (1.0 - d);
            delta *= 0.5;
            let above = |&&v: &&u32| r[v as usize] > delta;
            let mut queue: VecDeque<u32> = touched.iter().filter(above).copied().collect();
            while let Some(u) = queue.pop_front() {
                if links as f64 > most {
                    break 'push;
                }
                let own = std::mem::take(&mut r[u as usize]);
                p[u as usize] += (1.0 - d) * own;
                all += (1.0 - d) * own;
                links += graph.links_into(u as usize).len() as u64;
                for (v, count) in graph.entries_into(u as usize) {
                    let before = r[v as usize];
                    if before == 0.0 && p[v as usize] == 0.0 {
                        touched.push(v);
                    }
                    r[v as usize] = before + d * own * count as f64 / graph.degrees[v as usize] as f64;
                    if before <= delta && r[v as usize] > delta {
                        queue.push_back(v);
                    }
                }
            }
            if links as f64 > walks(delta) / (1.0 - d) || delta <= 0.5 * options.epsilon {
                break;
            }
        }
        let known = match seeds {
            [] => all / n as f64,
            seeds => seeds.iter().map(|&seed| p[seed as usize]).sum::<f64>() / seeds.len() as f64,
        };
        let at_ends = if dangling { d / (1.0 - d) * known } else { 0.0 };
        let range = at_ends + touched.iter().map(|&v| r[v as usize]).fold(0.0, f64::max);
        Self { known, residuals: r, range, at_ends, links }
    }
}

/// Ends of walks from the start, in search of g.
struct Ends<'a> {
    graph: &'a Graph,
    out: &'a OutLinks,
    /// Places.
    seeds: &'a [u32],
    options: &'a Options,
    walks: &'a Walks,
    pushed: &'a Push,
    steps: &'a AtomicU64,
    started: Instant,
}

/// Steps of walks that take a fraction of a second, and need no comparison with products.
const MANY_STEPS: f64 = (1u64 << 24) as f64;

/// Steps of walks that take as long as products to the half-width, were each of these as many as the bound allows.
fn products_cost(graph: &Graph, options: &Options) -> f64 {
    let certain = Options { relative: 0.0, ..options.clone() };
    let products = most_products(graph, &certain).map_or(f64::INFINITY, |most| most as f64);
    products * (graph.entries() + 8 * graph.nodes()) as f64
}

impl Ends<'_> {
    /// Steps of walks to the half-width, were g evenly distributed up to its range.
    fn steps(&self) -> f64 {
        let walks = (self.pushed.range / self.options.epsilon).powi(2);
        walks.min(self.walks.most as f64) / (1.0 - self.options.damping)
    }

    fn node(&self, node: u32) -> Node {
        let Push { known, range, links, .. } = *self.pushed;
        let mut sums = vec![0.0; REPLICATES as usize];
        let (mut done, mut next) = (0, BLOCK);
        let most = (self.walks.most / REPLICATES).max(1);
        // Each number was rounded as often as links were passed, at most.
        let of_rounding =
            |estimate: f64| (2 * links + 64) as f64 * f64::EPSILON * estimate + f64::MIN_POSITIVE;
        let certain = 0.5 * range;
        let all = known + range;
        if certain + of_rounding(all) <= self.options.epsilon {
            return Node::certain(node, known + certain, certain, of_rounding(all));
        }
        loop {
            let end = next.min(most);
            let blocks = (end - done).div_ceil(BLOCK);
            let block = |k: usize| {
                let (replicate, first) = (k as u64 / blocks, done + k as u64 % blocks * BLOCK);
                (first..end.min(first + BLOCK)).map(|walk| self.at_end(node, replicate, walk)).sum::<f64>()
            };
            let new: Vec<f64> = (0..(REPLICATES * blocks) as usize).into_par_iter().map(block).collect();
            sums.iter_mut()
                .zip(new.chunks(blocks as usize))
                .for_each(|(sum, new)| *sum += new.iter().sum::<f64>());
            done = end;
            let means: Vec<f64> = sums.iter().map(|sum| known + sum / done as f64).collect();
            let (estimate, spread) = student(&means, self.walks.confidence);
            let statistical = spread.max(unseen(range, (REPLICATES * done) as f64, self.walks.confidence));
            let rounding = of_rounding(estimate);
            let half_width = statistical + rounding;
            if half_width <= self.options.epsilon || done >= most || self.options.is_timed_out(self.started) {
                // It lies between s·p and max g above it, wherever the estimate is.
                let certain = (estimate - known).max(all - estimate) + rounding;
                return Node { node, estimate, half_width, statistical, truncation: 0.0, rounding, certain };
            }
            next = 2 * done;
        }
    }

    /// g at the end of a walk.
    fn at_end(&self, node: u32, replicate: u64, walk: u64) -> f64 {
        let (n, d, seeds) = (self.graph.nodes() as u64, self.options.damping, self.seeds);
        let key = [self.walks.seed as u32 ^ node, (self.walks.seed >> 32) as u32 ^ 0x7061_6765];
        let draws = |k: u32| {
            let [a, b, c, e] = philox([walk as u32, (walk >> 32) as u32, replicate as u32, k], key);
            [u64::from(a) << 32 | u64::from(b), u64::from(c) << 32 | u64::from(e)]
        };
        // Each of so many with the same probability, but for 2^−64 of them.
        let one_of = |word: u64, count: u64| ((u128::from(word) * u128::from(count)) >> 64) as u64;
        let teleport = |word: u64| match seeds {
            [] => one_of(word, n) as u32,
            seeds => seeds[one_of(word, seeds.len() as u64) as usize],
        };
        let [length, start] = draws(0);
        // P(length ≥ k) = d^k.
        let uniform = ((length >> 11) as f64 + 0.5) * (-53f64).exp2();
        let length = (uniform.ln() / d.ln()) as u64;
        let mut at = teleport(start);
        let OutLinks { starts, ends, up_to } = self.out;
        let mut words = [0; 2];
        for step in 0..length {
            if step.is_multiple_of(2) {
                words = draws(1 + (step / 2) as u32);
            }
            let word = words[(step % 2) as usize];
            let here = starts[at as usize] as usize..starts[at as usize + 1] as usize;
            let link = || one_of(word, self.graph.degrees[at as usize]);
            at = match &ends[here.clone()] {
                [] => teleport(word),
                links if up_to.is_empty() => links[link() as usize],
                links => {
                    let link = link();
                    links[up_to[here].partition_point(|&before| before <= link)]
                }
            };
        }
        self.steps.fetch_add(length, Ordering::Relaxed);
        let at_ends = if self.graph.degrees[at as usize] == 0 { self.pushed.at_ends } else { 0.0 };
        self.pushed.residuals[at as usize] + at_ends
    }
}
