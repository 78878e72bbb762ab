//! PageRank by elimination, for small graphs on which products with P hardly converge.
//!
//! Such graphs are periodic, with a damping factor d near 1.
//!
//! The rows of I − d P have off-diagonal entries −d P_ij and sum to 1 − d. The elimination computes
//! each pivot as the sum of the probabilities that leave its row. It has no subtraction, so that a
//! small 1 − d costs no digits (W. K. Grassmann, M. I. Taksar, D. P. Heyman, "Regenerative analysis
//! and steady state distributions for Markov chains", Operations Research 33, 1985,
//! doi:10.1287/opre.33.5.1107). Iterative refinement with residuals in double-double arithmetic
//! follows.
//!
//! A residual r has both signs. Its positive and its negative part are solved separately, so that
//! the difference has errors of ε ‖r‖₁ / (1 − d). Corrections gain nothing once 1 − d is near ε. If
//! f64 leaves too wide a bound, the elimination is repeated in double-double numbers, with ε =
//! 2⁻¹⁰⁰.
//!
//! The last residual r, with its own rounding, proves the bounds. (I − d Pᵀ)⁻¹ has no negative
//! entry, and its columns sum to 1 / (1 − d), so the error of a node is at most ‖r‖₁ / (1 − d). If
//! all entries of the teleport distribution s are 1/n, |r| ≤ δ (1 − d) s gives a relative error of
//! at most δ.

use std::ops::{Add, Div, Mul};

use super::Graph;
use super::options::Options;
use super::solution::Node;
use crate::Result;
use crate::numerics::double_word::DoubleWord;
use crate::parallel::*;

/// Largest number of nodes for elimination: the matrix has 8 MiB, in double-double 16 MiB.
const MOST_NODES: usize = 1024;
/// Smallest number of products before elimination; usual damping factors converge with fewer.
const PRODUCTS: u32 = 500;
/// Largest number of corrections; each in f64 gains about twelve digits of 1 − d.
const CORRECTIONS: usize = 6;
/// Number of remaining rows from which elimination runs on several threads.
const MANY: usize = 256;

/// Decides when a graph is solved by elimination, and does so at most once.
pub(super) struct Elimination {
    /// Number of matrix–vector products that take as long as elimination.
    ///
    /// None if the graph is too large, or after elimination.
    after: Option<u32>,
}

impl Elimination {
    /// Plans the elimination for the nodes at the first n places of a graph.
    pub(super) fn new(graph: &Graph, n: usize) -> Self {
        let product = graph.entries() + 8 * n;
        let after = (n.pow(3) / (4 * product)).max(PRODUCTS as usize) as u32;
        Self { after: (n <= MOST_NODES).then_some(after) }
    }

    /// True while an elimination is still planned.
    pub(super) fn is_planned(&self) -> bool {
        self.after.is_some()
    }

    /// True once the products done have taken as long as elimination.
    pub(super) fn is_due(&self, products: u32) -> bool {
        self.after.is_some_and(|after| products >= after)
    }

    /// Returns the PageRank of the first n places, to which later nodes have no edges, if bounded.
    pub(super) fn solve(
        &mut self,
        graph: &Graph,
        n: usize,
        options: &Options,
        watch: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Option<BoundedRanks>> {
        self.after = None;
        let start = UniformTeleport::new(graph, n, &options.seeds);
        let met = |exact: &BoundedRanks| {
            (0..n as u32)
                .map(|place| exact.node(graph, place))
                .all(|node| node.half_width <= (options.relative * node.estimate).max(options.epsilon))
        };
        let exact = start.solve::<f64>(graph, options, watch)?;
        // The residual is hardly more than its rounding: no better bound can be proved.
        if exact.as_ref().is_some_and(|exact| exact.bound <= 4.0 * exact.rounding || met(exact)) {
            return Ok(exact);
        }
        let closer = start.solve::<DoubleWord>(graph, options, watch)?;
        Ok([exact, closer].into_iter().flatten().min_by(|a, b| a.bound.total_cmp(&b.bound)))
    }
}

/// PageRank with its proved error bound.
pub(super) struct BoundedRanks {
    x: Vec<f64>,
    /// False for nodes that no path leads to from a start node: their PageRank is 0.
    reached: Vec<bool>,
    bound: f64,
    /// Contribution of the residual's rounding to the bound.
    rounding: f64,
    /// True if `bound` is relative, false if it is absolute.
    relative: bool,
}

impl BoundedRanks {
    pub(super) fn node(&self, graph: &Graph, place: u32) -> Node {
        let x = self.x[place as usize];
        let error = match (self.reached[place as usize], self.relative) {
            (false, _) => 0.0,
            // |x̂ − x| ≤ δ x ≤ δ x̂ / (1 − δ).
            (true, true) => self.bound * x / (1.0 - self.bound).max(f64::MIN_POSITIVE),
            (true, false) => self.bound,
        };
        Node::new(graph.order[place as usize], x, 0.0, error + 2.0 * f64::EPSILON * x)
    }
}

/// Teleport distribution s.
struct UniformTeleport {
    /// True for each node i with a teleport probability s_i > 0.
    at: Vec<bool>,
    /// Teleport probability of each node for which `at` is true.
    share: DoubleWord,
}

impl UniformTeleport {
    fn new(graph: &Graph, n: usize, seeds: &[u32]) -> Self {
        let mut at = vec![seeds.is_empty(); n];
        for &seed in seeds {
            if let Some(at) = at.get_mut(graph.places[seed as usize] as usize) {
                *at = true;
            }
        }
        let count = at.iter().filter(|&&at| at).count();
        Self { at, share: DoubleWord::from(1.0) / DoubleWord::from(count as u64) }
    }

    /// Returns true for each node that a path leads to from a node with s_i > 0.
    fn reached(&self, graph: &Graph) -> Vec<bool> {
        let mut reached = self.at.clone();
        let mut grows = true;
        while grows {
            grows = false;
            for j in 0..reached.len() {
                if !reached[j] && graph.links_into(j).iter().any(|&i| reached[i as usize]) {
                    (reached[j], grows) = (true, true);
                }
            }
        }
        reached
    }

    /// Computes PageRank by elimination in the arithmetic of `T`, with iterative refinement.
    fn solve<T: EliminationNumber>(
        &self,
        graph: &Graph,
        options: &Options,
        watch: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Option<BoundedRanks>> {
        let (damping, relative) = (options.damping, options.seeds.is_empty());
        let reached = self.reached(graph);
        let factors = LuFactors::<T>::new(graph, self, damping, watch)?;
        let rest = DoubleWord::from(1.0) + DoubleWord::from(-damping);
        let b: Vec<T> = (0..self.at.len()).map(|i| T::from(rest * self.of(i))).collect();
        let mut x: Vec<DoubleWord> = factors.solve(b).into_iter().map(T::into).collect();
        let mut best: Option<BoundedRanks> = None;
        for _ in 0..=CORRECTIONS {
            watch()?;
            let (r, rounding) = self.residual(graph, &x, (damping, rest));
            let bound = self.bound(r.iter().zip(&rounding).map(|(r, own)| r.hi.abs() + own), rest.hi);
            if best.as_ref().is_some_and(|best| bound >= 0.5 * best.bound) {
                break;
            }
            let (hi, reached) = (x.iter().map(|x| x.hi).collect(), reached.clone());
            let rounding = self.bound(rounding.into_iter(), rest.hi);
            best = Some(BoundedRanks { x: hi, reached, bound, rounding, relative });
            let part = |sign: fn(DoubleWord) -> DoubleWord| {
                let positive = |&r: &DoubleWord| if sign(r).hi > 0.0 { sign(r) } else { 0.0.into() };
                factors.solve(r.iter().map(positive).map(T::from).collect()).into_iter().map(T::into)
            };
            for ((x, more), less) in x.iter_mut().zip(part(|r| r)).zip(part(|r| -r)) {
                *x = *x + more + -less;
            }
        }
        Ok(best.filter(|best| best.bound.is_finite()))
    }

    fn of(&self, i: usize) -> DoubleWord {
        if self.at[i] { self.share } else { DoubleWord::from(0.0) }
    }

    /// Returns the residual (1 − d) s + d Pᵀ x − x (module docs), and a rounding bound per entry.
    fn residual(
        &self,
        graph: &Graph,
        x: &[DoubleWord],
        (damping, rest): (f64, DoubleWord),
    ) -> (Vec<DoubleWord>, Vec<f64>) {
        let n = x.len();
        let zero = DoubleWord::from(0.0);
        let degree = |i: usize| graph.degrees[i];
        let each: Vec<DoubleWord> =
            (0..n).map(|i| if degree(i) == 0 { zero } else { x[i] / DoubleWord::from(degree(i)) }).collect();
        let at_ends = (0..n).filter(|&i| degree(i) == 0).fold(zero, |sum, i| sum + x[i]);
        let row = |i: usize| {
            let of_link = |(j, count): (u32, u64)| DoubleWord::from(count) * each[j as usize];
            let links = graph.entries_into(i).map(of_link).fold(zero, |sum, term| sum + term);
            let gained = rest * self.of(i) + DoubleWord::from(damping) * (links + at_ends * self.of(i));
            let r = gained + DoubleWord::from(-1.0) * x[i];
            // The rounding error of an operation is at most 16 u² times its operands, u = ε / 2.
            // All operands are positive, except in the difference.
            let operations = (graph.links_into(i).len() + n + 16) as f64;
            let rounding = operations * 4.0 * f64::EPSILON * f64::EPSILON * (gained.hi + x[i].hi.abs());
            (r, rounding + f64::MIN_POSITIVE)
        };
        (0..n).map(row).unzip()
    }

    /// Error bound from the absolute values `sizes` of the residual r; `rest` is 1 − d.
    ///
    /// Without seeds it is the relative bound δ (module docs), otherwise ‖r‖₁ / (1 − d).
    fn bound(&self, sizes: impl Iterator<Item = f64>, rest: f64) -> f64 {
        let bound = match self.at.iter().all(|&at| at) {
            true => sizes.fold(0.0, f64::max) / (rest * self.share.hi),
            false => sizes.sum::<f64>() / rest,
        };
        bound * (1.0 + (self.at.len() + 8) as f64 * f64::EPSILON)
    }
}

/// Number types of the elimination: f64 and double-double.
trait EliminationNumber:
    Copy
    + Send
    + Sync
    + From<DoubleWord>
    + Into<DoubleWord>
    + Add<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
{
}

impl EliminationNumber for f64 {}
impl EliminationNumber for DoubleWord {}

impl From<DoubleWord> for f64 {
    fn from(x: DoubleWord) -> Self {
        x.hi
    }
}

/// LU factors of I − d P (module docs), eliminated from the last node to the first.
///
/// Row i of `entries` is divided by pivot i left of the diagonal. Right of it are the entries for
/// later nodes, each as it was when that node was eliminated.
struct LuFactors<T> {
    n: usize,
    entries: Vec<T>,
    pivots: Vec<T>,
}

impl<T: EliminationNumber> LuFactors<T> {
    fn new(
        graph: &Graph,
        start: &UniformTeleport,
        damping: f64,
        watch: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Self> {
        let n = start.at.len();
        let [zero, follows] = [0.0, damping].map(|x| T::from(x.into()));
        let mut entries = vec![zero; n * n];
        for j in 0..n {
            for (i, count) in graph.entries_into(j) {
                let i = i as usize;
                let [count, degree] = [count, graph.degrees[i]].map(|count| T::from(count.into()));
                entries[i * n + j] = entries[i * n + j] + follows * count / degree;
            }
        }
        for (_, row) in entries.chunks_mut(n).enumerate().filter(|&(i, _)| graph.degrees[i] == 0) {
            (0..n).for_each(|j| row[j] = follows * T::from(start.of(j)));
        }
        // 1 − d is exact in double-double, and in f64 for d ≥ 1/2.
        let mut excess = vec![T::from(DoubleWord::from(1.0) + DoubleWord::from(-damping)); n];
        let mut pivots = vec![zero; n];
        for k in (0..n).rev() {
            if k.is_multiple_of(64) {
                watch()?;
            }
            let (above, row) = entries.split_at_mut(k * n);
            let row = &mut row[..k];
            let pivot = excess[k] + row.iter().fold(zero, |sum, &entry| sum + entry);
            pivots[k] = pivot;
            row.iter_mut().for_each(|entry| *entry = *entry / pivot);
            let (row, lost) = (&*row, excess[k] / pivot);
            let eliminate = |(above, excess): (&mut [T], &mut T)| {
                let factor = above[k];
                if Into::<DoubleWord>::into(factor).hi != 0.0 {
                    above[..k]
                        .iter_mut()
                        .zip(row)
                        .for_each(|(entry, &share)| *entry = *entry + factor * share);
                    *excess = *excess + factor * lost;
                }
            };
            match k >= MANY {
                true => {
                    above.par_chunks_mut(n).zip(excess[..k].par_chunks_mut(1)).for_each(|(above, excess)| {
                        eliminate((above, &mut excess[0]));
                    });
                }
                false => above.chunks_mut(n).zip(&mut excess[..k]).for_each(eliminate),
            }
        }
        Ok(Self { n, entries, pivots })
    }

    /// Solves x = d Pᵀ x + b (module docs) for b without negative entries.
    fn solve(&self, b: Vec<T>) -> Vec<T> {
        let n = self.n;
        let row = |k: usize| &self.entries[k * n..][..n];
        let mut x = b;
        for k in (1..n).rev() {
            let (below, here) = x.split_at_mut(k);
            below.iter_mut().zip(row(k)).for_each(|(x, &share)| *x = *x + here[0] * share);
        }
        for k in 0..n {
            x[k] = x[k] / self.pivots[k];
            let own = x[k];
            x[k + 1..].iter_mut().zip(&row(k)[k + 1..]).for_each(|(x, &entry)| *x = *x + own * entry);
        }
        x
    }
}
