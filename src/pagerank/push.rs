//! PageRank of a single node: a push against the edges, and walks that sample its residuals.
//!
//! Let P be the transition matrix in which dangling nodes have empty rows. Throughout the push,
//! p_v + Σ_u V_vu (1 − d) r_u is the discounted time that a surfer from v spends at the target t.
//! V_vu is its discounted number of visits to u. At first p = 0, r_t = 1, and all other r are 0.
//! A push at u adds (1 − d) r_u to p_u, and sends d r_u back along the edges into u. Each source
//! gets a share of one over its degree. Nodes with r_u > δ are pushed.
//!
//! Let s be the teleport distribution. The PageRank x is (1 − d) Σ_k dᵏ (Pᵀ)ᵏ s times the number
//! 1 + d / (1 − d) · Σ (x of dangling nodes), so
//!
//! x_t = s·p + Σ_v x_v g_v,  g_v = r_v, plus d / (1 − d) · s·p if v is dangling.
//!
//! A surfer's position at its restart is distributed as x. Walks of geometric lengths end there,
//! and the mean of g at their ends is the sum. It lies in [0, max g] for certain.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::enclosure::{check, most_products, page_rank};
use super::options::Options;
use super::solution::{Node, Seconds, Solution};
use super::{Graph, OutLinks};
use crate::numerics::confidence::{expect_confidence, student, unseen};
use crate::numerics::philox::philox;
use crate::parallel::*;
use crate::util::memory::expect_memory;
use crate::util::options::options;
use crate::{Invalid, Progress, Result, Status};

options! {
    /// Options of the walks.
    #[derive(Debug, Clone, Copy, PartialEq)]
    pub struct Walks {
        /// Probability with which an interval contains the PageRank.
        pub confidence: f64 = 0.95,
        /// Seed of all random numbers.
        pub seed: u64 = 0,
        /// Largest number of walks per node.
        pub most: u64 = 1 << 26,
    }
}

/// Number of independent replicates, whose spread gives the interval.
const REPLICATES: u64 = 16;
/// Walks of a replicate per parallel task, and in the first round.
const BLOCK: u64 = 1 << 10;

/// Returns the PageRank of each of `targets` by a push and walks, to `options.epsilon`.
///
/// Intervals hold with the probability `walks.confidence`. The cost depends on the half-width and
/// on the edges into nodes that lead to the target, and hardly on the size of the graph. The first
/// call makes a list of all edges by their sources, which the graph keeps. If walks would take
/// longer than products with the whole graph, [`page_rank`](super::page_rank) is used instead.
///
/// `watch` gets the numbers of targets done and of all targets.
///
/// # Errors
/// Those of [`page_rank`](super::page_rank), and [`Invalid`] without an absolute half-width,
/// which determines the depth of the push.
///
/// ```
/// use kolmo::pagerank::{Options, Walks, local_page_rank};
///
/// let (_, graph) = kolmo::models::graph("barabasi:1000,4", 0).unwrap()?;
/// let options = Options::default().seeds(vec![900]).epsilon(1e-4);
/// let solution = local_page_rank(&graph, &[0], &options, &Walks::default(), &mut ())?;
/// assert!(solution.nodes[0].half_width <= 1e-4);
/// # Ok::<(), kolmo::Error>(())
/// ```
pub fn local_page_rank(
    graph: &Graph,
    targets: &[u32],
    options: &Options,
    walks: &Walks,
    watch: &mut dyn Progress,
) -> Result<Solution> {
    check(graph, targets, options)?;
    Invalid::Argument("epsilon").unless(options.epsilon > 0.0, || {
        "`epsilon` is missing: a push and walks need an absolute half-width; intervals of all nodes can be \
         relative to the estimate"
            .to_owned()
    })?;
    expect_confidence(walks.confidence)?;
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
        watch.progress(k as u64, targets.len() as u64)?;
        let pushed = Push::new(graph, options, &seeds, place(&target), dangling, started);
        let ends =
            Ends { graph, out, seeds: &seeds, options, walks, pushed: &pushed, steps: &steps, started };
        if ends.steps() > MANY_STEPS.max(products_cost(graph, options)) {
            // Products are used for this target and all later ones.
            let left = |limit: Duration| limit.saturating_sub(started.elapsed());
            let time_limit = options.time_limit.map(left);
            let certain = Options { relative: 0.0, time_limit, ..options.clone() };
            let rest = page_rank(graph, &targets[k..], &certain, watch)?;
            products = rest.products;
            nodes.extend(rest.nodes);
            break;
        }
        nodes.push(ends.node(target));
    }
    let status = Status::of(nodes.iter().all(|node| node.half_width <= options.epsilon));
    let (steps, seconds) = (steps.into_inner(), Seconds::since(started));
    Ok(Solution { status, nodes, products, quotients: (0.0, 0.0), steps, direct: false, seconds })
}

struct Push {
    /// Lower bound s·p (module docs) of the target's PageRank.
    known: f64,
    residuals: Vec<f64>,
    /// Upper bound of g_v over all nodes v (module docs).
    range: f64,
    /// Part d / (1 − d) · s·p of g_v at each dangling node v (module docs).
    at_ends: f64,
    /// Number of edges that the push has passed.
    links: u64,
}

impl Push {
    /// Pushes from `target`; `seeds` and `target` are places.
    ///
    /// It leaves half of the remaining time for walks or products.
    fn new(
        graph: &Graph,
        options: &Options,
        seeds: &[u32],
        target: u32,
        dangling: bool,
        started: Instant,
    ) -> Self {
        let (n, d) = (graph.nodes(), options.damping);
        let now = started.elapsed();
        let end = options.time_limit.map(|limit| now + limit.saturating_sub(now) / 2);
        let is_late = || end.is_some_and(|end| started.elapsed() >= end);
        // Number of walks for residuals of at most δ: at most (2 δ / h)², and at least the first
        // round.
        let walks = |delta: f64| (4.0 * (delta / options.epsilon).powi(2)).max((REPLICATES * BLOCK) as f64);
        let (mut p, mut r) = (vec![0.0; n], vec![0.0; n]);
        r[target as usize] = 1.0;
        let (mut links, mut all, mut touched, mut delta) = (0u64, 0.0, vec![target], 1.0);
        // δ is halved as long as the walks still need more steps than the number of edges passed.
        'push: loop {
            let most = walks(delta) / (1.0 - d);
            delta *= 0.5;
            let above = |&&v: &&u32| r[v as usize] > delta;
            let mut queue: VecDeque<u32> = touched.iter().filter(above).copied().collect();
            let mut timed = links;
            while let Some(u) = queue.pop_front() {
                let ends = links - timed >= CHECKED && {
                    timed = links;
                    is_late()
                };
                if links as f64 > most || ends {
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
            if links as f64 > walks(delta) / (1.0 - d) || delta <= 0.5 * options.epsilon || is_late() {
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

/// Walks that sample g (module docs) at the nodes where they end.
struct Ends<'a> {
    graph: &'a Graph,
    out: &'a OutLinks,
    seeds: &'a [u32],
    options: &'a Options,
    walks: &'a Walks,
    pushed: &'a Push,
    steps: &'a AtomicU64,
    started: Instant,
}

/// Steps of a walk, or edges of a push, between two checks of the time.
const CHECKED: u64 = 1 << 14;
/// Maximum walks of a replicate per batch; the time limit discards an incomplete batch.
const KEPT: u64 = 16 * BLOCK;
/// Steps up to which walks are used without comparison with products (under a second).
const MANY_STEPS: f64 = (1u64 << 24) as f64;

/// Estimates the largest cost of products to the requested half-width, in steps of walks.
fn products_cost(graph: &Graph, options: &Options) -> f64 {
    let certain = Options { relative: 0.0, ..options.clone() };
    let products = most_products(graph, &certain).map_or(f64::INFINITY, |most| most as f64);
    products * (graph.entries() + 8 * graph.nodes()) as f64
}

impl Ends<'_> {
    /// Predicts the steps to the requested half-width, for g (module docs) uniform over its range.
    fn steps(&self) -> f64 {
        let walks = (self.pushed.range / self.options.epsilon).powi(2);
        walks.min(self.walks.most as f64) / (1.0 - self.options.damping)
    }

    fn node(&self, node: u32) -> Node {
        let Push { known, range, links, .. } = *self.pushed;
        let mut sums = vec![0.0; REPLICATES as usize];
        let (mut done, mut next) = (0, BLOCK);
        let most = (self.walks.most / REPLICATES).max(1);
        // Each number was rounded at most once per edge passed.
        let of_rounding =
            |estimate: f64| (2 * links + 64) as f64 * f64::EPSILON * estimate + f64::MIN_POSITIVE;
        let certain = 0.5 * range;
        let all = known + range;
        let without_walks = || Node::certain(node, known + certain, certain, of_rounding(all));
        if certain + of_rounding(all) <= self.options.epsilon {
            return without_walks();
        }
        loop {
            let end = next.min(most).min(done + KEPT);
            let blocks = (end - done).div_ceil(BLOCK);
            let block = |k: usize| {
                let (replicate, first) = (k as u64 / blocks, done + k as u64 % blocks * BLOCK);
                if self.options.is_timed_out(self.started) {
                    return None;
                }
                let mut steps = 0;
                (first..end.min(first + BLOCK))
                    .map(|walk| self.at_end(node, replicate, walk, &mut steps))
                    .sum::<Option<f64>>()
            };
            let new: Vec<Option<f64>> =
                (0..(REPLICATES * blocks) as usize).into_par_iter().map(block).collect();
            let is_late = new.contains(&None) || self.options.is_timed_out(self.started);
            if let Some(new) = new.into_iter().collect::<Option<Vec<f64>>>() {
                sums.iter_mut()
                    .zip(new.chunks(blocks as usize))
                    .for_each(|(sum, new)| *sum += new.iter().sum::<f64>());
                done = end;
            }
            if done == 0 {
                return without_walks();
            }
            if done < next.min(most) && !is_late {
                continue;
            }
            let means: Vec<f64> = sums.iter().map(|sum| known + sum / done as f64).collect();
            let (estimate, spread) = student(&means, self.walks.confidence);
            let statistical = spread.max(unseen(range, (REPLICATES * done) as f64, self.walks.confidence));
            let rounding = of_rounding(estimate);
            let half_width = statistical + rounding;
            if half_width <= self.options.epsilon || done >= most || is_late {
                // PageRank is between s·p and s·p + max g, for any estimate.
                let certain = (estimate - known).max(all - estimate) + rounding;
                return Node { node, estimate, half_width, statistical, truncation: 0.0, rounding, certain };
            }
            next = 2 * done;
        }
    }

    /// Returns g (module docs) at a walk's end, or `None` once time is over; counts its `steps`.
    fn at_end(&self, node: u32, replicate: u64, walk: u64, steps: &mut u64) -> Option<f64> {
        let (n, d, seeds) = (self.graph.nodes() as u64, self.options.damping, self.seeds);
        let key = [self.walks.seed as u32 ^ node, (self.walks.seed >> 32) as u32 ^ 0x7061_6765];
        let draws = |k: u32| {
            let [a, b, c, e] = philox([walk as u32, (walk >> 32) as u32, replicate as u32, k], key);
            [u64::from(a) << 32 | u64::from(b), u64::from(c) << 32 | u64::from(e)]
        };
        // Uniform choice of one of `count`: each probability is within 2⁻⁶⁴ of 1 / `count`.
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
            *steps += 1;
            if steps.is_multiple_of(CHECKED) && self.options.is_timed_out(self.started) {
                return None;
            }
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
        Some(self.pushed.residuals[at as usize] + at_ends)
    }
}
