//! Iterative refinement with a multilevel preconditioner, and certificates of the results.

use std::sync::Arc;

use super::SHARE;
use super::element::{Element, Two};
use super::hierarchy::{Hierarchy, Strength};
use super::subchain::{Equation, LEAST, Pair, ROWS, Subchain, by_rows, copied, largest, subtract, sum_rows};
use crate::parallel::*;
use crate::util::memory::zeroed;
use crate::{Iterate, Progress, Result};

/// Multiplicative cycles that build the first hierarchy.
const CYCLES: usize = 3;
/// Maximum number of stored search directions.
const DIRECTIONS: usize = 30;
/// Maximum number of stored search directions for more than [`MANY`] states.
const FEW_DIRECTIONS: usize = 3;
/// Number of states above which fewer search directions are stored, to save memory.
const MANY: usize = 1 << 18;
/// Number of Gauss–Seidel sweeps after a solve.
///
/// They average the residual over neighbouring states. Opposite signs then cancel before a bound
/// sums magnitudes.
const AVERAGING: usize = 4;
/// Expected ratio of the bound δh, where δ is the largest residual, to a majorant of the errors.
pub(super) const TIGHTER: f64 = 10.0;
/// Number of states from which no majorant is computed if δh meets the requested error.
const PLAIN: usize = 1 << 14;
/// Relative residual at which the solve for a majorant ends, and its maximum number of steps.
const MAJORANT: (f64, usize) = (0.1, 4);
/// Relative residual at which a correction is added to the double-double solution.
const REDUCTION: f64 = 1e-4;
/// [`REDUCTION`] for values from each state of a chain of at least [`PLAIN`] states.
const PLAIN_REDUCTION: f64 = 1e-8;
/// Fraction of the residual needed for the requested error at which a solve aims, for safety.
///
/// Errors are assumed to fall in proportion to residuals.
const MARGIN: f64 = 0.2;
/// [`MARGIN`] for values from each state of a chain of at least [`PLAIN`] states.
///
/// The sweeps after a solve lower the largest residual further than the norm.
const PLAIN_MARGIN: f64 = 0.8;
/// (n, factor): an iteration ends if n steps leave more than `factor` of its residual norm.
const PATIENCE: (usize, f64) = (10, 0.5);
/// Stricter [`PATIENCE`] for a preconditioner that can be strengthened at little cost.
const IMPATIENCE: (usize, f64) = (3, 0.8);
/// Maximum number of times to strengthen the preconditioner for one system.
const STRENGTHENED: usize = 8;
/// Maximum residual of −Qh = 1 for a certificate, so that −Qh ≥ 1/2.
const SHOWN: f64 = 0.5;

/// A restricted generator with its preconditioner.
pub(super) struct MultilevelSolver {
    pub(super) chain: Subchain,
    hierarchy: Hierarchy,
    /// The vector f of the forward equations xQ = −f; 0 for a closed class.
    pub(super) source: Arc<[f64]>,
    /// Low parts of the right-hand side of the current equations; empty if they are 0.
    pub(super) low: Vec<f64>,
    /// True for a closed class.
    closed: bool,
    /// Number of multilevel cycles.
    pub(super) steps: u64,
    /// Error bound at which the current equations are solved; 0 if they only prepare others.
    pub(super) target: f64,
    /// Error bound of the best solution of the current equations.
    bound: f64,
    /// True if the observer has ended the iteration.
    pub(super) ended: bool,
    /// Direction of all equations to solve; `None` keeps the rates for both directions.
    kept: Option<Equation>,
    /// Maximum number of equations to solve together.
    pub(super) together: usize,
}

/// Upper bounds of expected times until a set is left or a state is reached.
pub(super) struct HittingTimes {
    pub(super) times: Vec<f64>,
    pub(super) longest: f64,
}

impl MultilevelSolver {
    /// Prepares a closed class (`source` 0), or states that are left almost surely.
    ///
    /// With `kept`, only equations of this direction can be solved, which saves memory.
    pub(super) fn new(
        chain: Subchain,
        source: Arc<[f64]>,
        kept: Option<Equation>,
        observer: &mut dyn Progress,
    ) -> Result<Self> {
        let n = chain.len();
        // Backward equations only need approximate weights.
        let cycles = if kept == Some(Equation::Backward) { CYCLES - 1 } else { CYCLES };
        let mut x = zeroed(n);
        by_rows(&mut x, |_| 1.0 / n as f64);
        // Larger levels and pairs of vectors take time and memory. They pay off for long rows.
        let (strength, together) = match n <= MANY && chain.links.is_mixed() {
            true => (Strength::FIRST.next(), 2),
            false => (Strength::FIRST, 1),
        };
        let check = &mut || observer.progress(0, 0);
        let hierarchy = Hierarchy::new(chain.links.clone(), x, source.clone(), (cycles, strength), check)?;
        let closed = source.iter().all(|f| *f == 0.0);
        let (low, target, bound) = (Vec::new(), 0.0, f64::INFINITY);
        let (steps, ended) = (0, false);
        let mut solver =
            Self { chain, hierarchy, source, low, closed, steps, target, bound, ended, kept, together };
        solver.keep(kept);
        Ok(solver)
    }

    /// Returns true if the bound δh of backward errors suffices, to save the solve for a majorant.
    pub(super) fn is_plain(&self) -> bool {
        self.chain.len() >= PLAIN
    }

    /// Returns a first solution x of the forward equations xQ = −f, that of the hierarchy.
    pub(super) fn start(&self) -> Pair {
        Pair::of(copied(self.hierarchy.weights()))
    }

    /// Solves −Qv = f to the error that `excess` requests, as in [`improve`](Self::improve).
    ///
    /// Returns `None` if no attempt succeeds. The first attempt begins at `start`, if given. Two
    /// more begin at the coarse solution and at 0. Minimal residuals do not find slow modes, so the
    /// coarse solution comes first for transient states: the chain may take long to leave them.
    pub(super) fn backward(
        &mut self,
        f: &[Vec<f64>],
        start: Option<Vec<f64>>,
        observer: &mut dyn Progress,
        mut excess: impl FnMut(&mut Self, &mut dyn Progress, usize, Vec<f64>, &Pair) -> Result<f64>,
    ) -> Result<Option<Vec<Pair>>> {
        let slow = [self.closed, !self.closed].into_iter().cycle().skip(usize::from(start.is_none()));
        let attempts = start.map(Some).into_iter().chain([None, None]);
        for (mut start, slow) in attempts.zip(slow) {
            let begin = |f: &Vec<f64>| match (start.take(), slow) {
                (Some(start), _) => Pair::of(start),
                (None, true) => Pair::of(self.hierarchy.coarse_solution(f)),
                (None, false) => Pair::of(zeroed(f.len())),
            };
            let mut v: Vec<Pair> = f.iter().map(begin).collect();
            if self.improve(Equation::Backward, f, &mut v, observer, &mut excess)? {
                return Ok(Some(v));
            }
        }
        Ok(None)
    }

    /// Improves the solutions v of one or two equations −Qv = f or −vQ = f.
    ///
    /// `excess` returns the error bound of an equation divided by the requested error. Its
    /// arguments are the number of the equation, bounds of its residuals, and v. Returns true if
    /// all ratios are at most 1, and false if the residuals stagnate.
    pub(super) fn improve(
        &mut self,
        direction: Equation,
        f: &[Vec<f64>],
        v: &mut [Pair],
        observer: &mut dyn Progress,
        mut excess: impl FnMut(&mut Self, &mut dyn Progress, usize, Vec<f64>, &Pair) -> Result<f64>,
    ) -> Result<bool> {
        let mut r: Vec<Vec<f64>> = f.iter().map(|f| zeroed(f.len())).collect();
        let (mut best, mut strengthened, mut first, mut fall) = (f64::INFINITY, 0, f64::INFINITY, 0.1);
        self.bound = f64::INFINITY;
        loop {
            let (mut most, mut square) = (0.0, 0.0);
            for (k, ((f, v), r)) in f.iter().zip(&*v).zip(&mut r).enumerate() {
                let bounds = self.chain.residual(direction, (f, &self.low), v, r);
                let own = excess(self, observer, k, bounds, v)?;
                most = if own > most || own.is_nan() { own } else { most };
                square += self.hierarchy.product(direction, r, r);
            }
            let (excess, size) = (most, square.sqrt());
            if self.target > 0.0 {
                self.bound = self.bound.min(excess * self.target);
            }
            if excess <= 1.0 {
                return Ok(true);
            }
            if self.ended || !(size > 0.0 && size.is_finite()) {
                return self.miss(size / first, observer);
            }
            first = first.min(size);
            if size > fall * best {
                // The preconditioner is too weak for the residual, or rounding limits it.
                let strength = self.hierarchy.strength;
                let last = strength == strength.next();
                if strengthened == STRENGTHENED || (last && size > 0.9 * best) {
                    return self.miss(size / first, observer);
                }
                if best.is_finite() {
                    strengthened += 1;
                    // A solution for numbers of both signs has no weights.
                    let weights =
                        (f[0].iter().all(|f| *f >= 0.0) && direction == Equation::Forward).then_some(&v[0]);
                    self.strengthen(weights, observer)?;
                }
            }
            best = best.min(size);
            // An excess above TIGHTER is that of the bound δh. A majorant will be smaller.
            let values = direction == Equation::Backward && self.target > 0.0;
            let loose = values && !self.is_plain() && excess > TIGHTER;
            let (aim, least) = match values && self.is_plain() {
                true => (PLAIN_MARGIN, PLAIN_REDUCTION),
                false if loose => (MARGIN * TIGHTER, REDUCTION),
                false => (MARGIN, REDUCTION),
            };
            let reduction = (aim / excess).max(least);
            fall = (2.0 * reduction).clamp(0.1, 0.9);
            let to = ((reduction, usize::MAX), size / first);
            if let [r] = &mut r[..] {
                v[0].add(&self.solve(direction, r, to, observer)?);
                continue;
            }
            let mut both = vec![Two::all(0.0); r[0].len()];
            by_rows(&mut both, |i| Two::of(|k| r[k][i]));
            let e = self.solve(direction, &mut both, to, observer)?;
            for (k, (v, r)) in v.iter_mut().zip(&mut r).enumerate() {
                by_rows(r, |i| e[i].number(k));
                v.add(r);
            }
        }
    }

    /// Returns a majorant of the errors: a bound of each element of N d, where N = (−Q)⁻¹, d ≥ 0.
    ///
    /// If −Qg ≥ d − δ, then N d ≤ g + δh. `times` are bounds of h = N1.
    pub(super) fn majorant(
        &mut self,
        d: &[f64],
        times: &[f64],
        observer: &mut dyn Progress,
    ) -> Result<Vec<f64>> {
        // The first guess solves for the mean of d.
        let (mean, mut r) = (sum_rows(d.len(), |i| d[i]) / d.len() as f64, vec![0.0; d.len()]);
        let mut g: Vec<f64> = times.iter().map(|time| mean * time).collect();
        self.chain.links.apply(Equation::Backward, &g, &mut r);
        r.iter_mut().zip(d).for_each(|(r, d)| *r = d - *r);
        let e = self.solve(Equation::Backward, &mut r, (MAJORANT, 1.0), observer)?;
        subtract(&mut g, -1.0, &e);
        drop((r, e));
        let g = Pair::of(g);
        let lacks = largest(&self.chain.defects(Equation::Backward, d, &g));
        let (plain, mut bounds) = (largest(d), g.high);
        for (bound, time) in bounds.iter_mut().zip(times) {
            *bound = (bound.max(0.0) + lacks * time).min(plain * time) * (1.0 + 1e-9);
        }
        Ok(bounds)
    }

    /// Reports why the bound falls no further, and returns false.
    fn miss(&self, residual: f64, observer: &mut dyn Progress) -> Result<bool> {
        let limit = Some(match (self.ended, self.target > 0.0) {
            (true, _) => "the time limit",
            (false, true) => "the residual, which falls no further",
            (false, false) => "expected times to a probable state, whose residual falls no further",
        });
        observer.iterate(Iterate { steps: self.steps, residual, bound: self.bound, limit })?;
        Ok(false)
    }

    /// Frees the rates that this direction does not read; `None` restores them.
    fn keep(&mut self, direction: Option<Equation>) {
        self.chain.links = Arc::default();
        self.chain.links = self.hierarchy.keep(direction);
    }

    /// Rebuilds the levels for the next strength, with the weights of a forward solution, if given.
    fn strengthen(&mut self, v: Option<&Pair>, observer: &mut dyn Progress) -> Result<()> {
        // A negative element is an error of about its size.
        let positive = |x: &f64| if *x > 0.0 { *x } else { 0.1 * x.abs() };
        let x: Vec<f64> = match v {
            Some(v) => v.high.iter().map(|x| positive(x).max(LEAST)).collect(),
            None => self.hierarchy.weights().to_vec(),
        };
        self.hierarchy.free_coarse();
        if self.kept == Some(Equation::Forward) {
            self.keep(None);
        }
        let (links, source) = (self.chain.links.clone(), self.source.clone());
        let strength = self.hierarchy.strength.next();
        self.hierarchy = Hierarchy::new(links, x, source, (1, strength), &mut || observer.progress(0, 0))?;
        self.keep(self.kept);
        Ok(())
    }

    /// Solves −Qe = r or −eQ = r approximately, and replaces r by the residual.
    ///
    /// The iteration ends when the norm of the residual is at most `reduction` times that of r,
    /// when it falls slowly, or after `most_steps`. Sweeps then average the residual, which r does
    /// not reflect. `outer` is the norm of r relative to the first residual of these equations.
    fn solve<E: Element>(
        &mut self,
        direction: Equation,
        r: &mut [E],
        ((reduction, most_steps), outer): ((f64, usize), f64),
        observer: &mut dyn Progress,
    ) -> Result<Vec<E>> {
        let n = r.len();
        let links = &self.chain.links;
        // On many states directions take more memory than anything but the transitions.
        let most = if n <= MANY { DIRECTIONS } else { FEW_DIRECTIONS };
        let product = |a: &[E], b: &[E]| self.hierarchy.product(direction, a, b);
        let mut e: Vec<E> = zeroed(n);
        let mut directions: Vec<(Vec<E>, Vec<E>, E)> = Vec::new();
        let first = product(r, r);
        let strength = self.hierarchy.strength;
        let mut sizes = vec![1.0];
        loop {
            self.steps += 1;
            let residual = outer * sizes[sizes.len() - 1];
            let iterate = Iterate { steps: self.steps, residual, bound: self.bound, limit: None };
            self.ended |= !observer.iterate(iterate)?;
            if self.ended {
                return Ok(e);
            }
            let mut along = self.hierarchy.correction(direction, r);
            self.without_kernel(direction, &mut along);
            let mut image = zeroed(n);
            links.apply(direction, &along, &mut image);
            for (other, other_image, square) in &directions {
                let factor = product(other_image, &image).over(*square);
                subtract(&mut image, factor, other_image);
                subtract(&mut along, factor, other);
            }
            let square = product(&image, &image);
            let factor = product(&image, r).over(square);
            if (factor * factor).largest() == 0.0 {
                break;
            }
            subtract(&mut e, E::all(0.0) - factor, &along);
            subtract(r, factor, &image);
            let now = product(r, r);
            let ratio = |k| if first.number(k) > 0.0 { now.number(k) / first.number(k) } else { 0.0 };
            let size = E::of(ratio).largest().sqrt();
            sizes.push(size);
            let is_slow = |(steps, factor): (usize, f64)| {
                sizes.len() > steps + 1 && size > factor * sizes[sizes.len() - 1 - steps]
            };
            let stalled = strength.is_cheap() && is_slow(IMPATIENCE);
            if size <= reduction || sizes.len() > most_steps || stalled || is_slow(PATIENCE) {
                break;
            }
            directions.push((along, image, square));
            if directions.len() > most {
                directions.remove(0);
            }
        }
        drop(directions);
        let mut averaged = zeroed(n);
        // After a reduction as strong as PLAIN_REDUCTION, another solve follows: no smoothing yet.
        let sweeps = if reduction > PLAIN_REDUCTION { AVERAGING } else { 0 };
        (0..sweeps).for_each(|k| links.sweep(direction, r, &mut averaged, k % 2 == 0));
        subtract(&mut e, E::all(-1.0), &averaged);
        Ok(e)
    }

    /// Removes the component of e in the kernel of a closed class: multiples of x, or constants.
    fn without_kernel<E: Element>(&self, direction: Equation, e: &mut [E]) {
        if !self.closed {
            return;
        }
        let x = self.hierarchy.weights();
        let all = sum_rows(x.len(), |i| x[i]);
        match direction {
            Equation::Forward => {
                let share = sum_rows(x.len(), |i| e[i]) / E::all(all);
                let pairs = e.par_iter_mut().zip(x).with_min_len(ROWS);
                pairs.for_each(|(e, x)| *e = *e - share * E::all(*x));
            }
            Equation::Backward => {
                let mean = sum_rows(x.len(), |i| E::all(x[i]) * e[i]) / E::all(all);
                e.par_iter_mut().with_min_len(ROWS).for_each(|e| *e = *e - mean);
            }
        }
    }

    /// Bounds the expected times from each state until the states are left.
    ///
    /// For a closed class `end` is the state to reach, with an approximate stationary vector.
    pub(super) fn hitting_times(
        &mut self,
        end: Option<(usize, &Pair)>,
        observer: &mut dyn Progress,
    ) -> Result<Option<HittingTimes>> {
        let n = self.chain.len();
        self.target = 0.0;
        let mut f = vec![1.0; n];
        if let Some((end, x)) = end {
            // The equations have a solution if f is orthogonal to x.
            f[end] = 1.0 - sum_rows(n, |i| x.high[i]) / x.high[end];
        }
        let end = end.map_or(n, |end| end.0);
        let most = |r: &[f64]| {
            let rows = |k: usize| (k * 4096..n.min((k + 1) * 4096)).filter(|&i| i != end).map(|i| r[i]);
            // NaN is no small residual.
            let larger = |most: f64, r: f64| if r > most || r.is_nan() { r } else { most };
            let largest = |k: usize| rows(k).fold(0.0, larger);
            (0..n.div_ceil(4096)).into_par_iter().map(largest).reduce(|| 0.0, larger)
        };
        let mut lacks = f64::INFINITY;
        let excess = |_: &mut Self, _: &mut dyn Progress, _, bounds: Vec<f64>, _: &Pair| {
            lacks = most(&bounds);
            Ok(lacks / SHOWN)
        };
        let Some(mut v) = self.backward(&[f], None, observer, excess)? else { return Ok(None) };
        let v = v.remove(0);
        // For h = v − v_end: −Qh ≥ 1 − lacks outside of the end.
        let (high, low) = match end == n {
            true => (0.0, 0.0),
            false => (v.high[end], v.low[end]),
        };
        let factor = (1.0 + 1e-9) / (1.0 - lacks);
        let mut times = vec![0.0; n];
        by_rows(&mut times, |i| {
            let time = ((v.high[i] - high) + (v.low[i] - low)).max(0.0) * factor;
            if i == end { 0.0 } else { time + f64::MIN_POSITIVE }
        });
        let longest = times.iter().copied().fold(0.0, f64::max);
        let finite = longest.is_finite() && v.high.par_iter().all(|v| v.is_finite());
        Ok(finite.then_some(HittingTimes { times, longest }))
    }

    /// Solves −xQ = f on a closed class, and bounds the error 2 Σ |r_i| h_i relative to `size(x)`.
    ///
    /// `times` are bounds of h. `None` without a bound. The best solution is returned.
    pub(super) fn certified(
        &mut self,
        (f, start): (Vec<f64>, Pair),
        times: &[f64],
        epsilon: f64,
        size: impl Fn(&Pair) -> f64,
        observer: &mut dyn Progress,
    ) -> Result<Option<(f64, Pair)>> {
        let mut best = (f64::INFINITY, None);
        self.target = SHARE * epsilon;
        self.improve(Equation::Forward, &[f], &mut [start], observer, |_, _, _, r, x| {
            let error = 2.0 * sum_rows(r.len(), |i| r[i] * times[i]) * (1.0 + 1e-9) / size(x).max(0.0);
            if error < best.0 {
                best = (error, Some(x.clone()));
            }
            Ok(error / (SHARE * epsilon))
        })?;
        Ok(best.1.map(|x| (best.0, x)))
    }

    /// Bounds Σ |r_i| h_i for the residual r of a forward solution x and the weights h.
    pub(super) fn weighted_defect(&self, x: &Pair, weights: &[f64]) -> f64 {
        let defects = self.chain.defects(Equation::Forward, &self.source, x);
        sum_rows(defects.len(), |i| defects[i] * weights[i]) * (1.0 + 1e-9)
    }
}
