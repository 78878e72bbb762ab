//! Error bounds of walks: Student's interval, truncation and rounding.
//!
//! The range of a walk's sum bounds the values that may be missing in the samples
//! (`confidence.rs`). Let v be the vector of the certificate, w = v − |L| v > 0, and W_k the weight
//! of a walk after k steps, scaled by v. A step from row i changes W_k to W_(k+1) = W_k (1 − w_i /
//! v_i), for any next row. Hence Σ_k W_k w_i / v_i = 1 − W_end along *every* walk. If α w ≤ r ≤ β w
//! for the residual r and no entry of L is negative, the sum of a walk from row m is between v_m α
//! and v_m β. After sweeps r is nearly proportional to w, and this range is a thousandth of 2 v_m
//! ‖r‖ / (1 − ρ). If L has entries of both signs, β is the largest |r_i| / w_i, and α = −β.

use std::cell::OnceCell;

use crate::kernel::Precision;
use crate::numerics::confidence::unseen;
use crate::parallel::*;
use crate::walk::context::WalkRun;
use crate::walk::control_variate::Control;
use crate::walk::convergence::certificate::Certificate;
use crate::walk::sampling::adaptive::RunningEstimate;
use crate::walk::sampling::kernels::BLOCK;
use crate::walk::solution::{Bound, Component};
use crate::walk::splitting::{ROWS, Split, up};
use crate::walk::table::Table;
use crate::walk::table::targets::Targets;

/// Computes the error bounds for a batch of right-hand sides.
pub(crate) struct ErrorBounds<'a> {
    pub(crate) run: &'a WalkRun<'a>,
    pub(crate) targets: &'a Targets<'a>,
    pub(crate) split: &'a Split<'a>,
    pub(crate) certificate: &'a Certificate,
    pub(crate) controls: &'a [Control],
    pub(crate) table: &'a Table,
    /// Largest number of steps of a walk, without the steps that draw its start row.
    pub(crate) length: u32,
    pub(crate) cut: f32,
    /// α and β of each column (module docs), computed when first needed.
    pub(crate) extremes: OnceCell<Vec<(f64, f64)>>,
}

impl ErrorBounds<'_> {
    /// Returns the current estimate with its bounds, for a column (right-hand side) before
    /// unscaling.
    pub(crate) fn component(&self, column: usize, estimate: &RunningEstimate) -> Component {
        let (m, control) = (estimate.row, &self.controls[column]);
        let (scale, confidence) = (self.targets.walk_scale(m), self.run.options.confidence);
        let (value, student) = estimate.interval(column, control.h(m), scale, confidence);
        // Chains have no step if the time limit came before them.
        let length = self.length.min(estimate.length);
        let (truncation, rounding) = self.certain(m, control, estimate.points, length);
        let mut statistical = 0.0;
        // If no row of L has two entries, all walks from a row are equal.
        let choice = self.split.statistics.branches > 1 || self.targets.start(m, self.table).is_some();
        if control.norm > 0.0 && length > 0 && choice {
            let (range, chains) = (self.norm_range(m, value, control), estimate.chains() as f64);
            statistical = match unseen(range, chains, confidence) > student {
                true => student.max(self.floor(column, m, value, chains)),
                false => student,
            };
        }
        estimate.component(value, Bound { statistical, truncation, rounding }, length)
    }

    /// True if more walks are of no use for a row and column.
    ///
    /// Then the half-width is at most its ε, or cannot become so with `most` points per replicate.
    /// `epsilon` is ε of components.
    pub(crate) fn settled(&self, column: usize, estimate: &RunningEstimate, epsilon: f64, most: u64) -> bool {
        let (row, c) = (estimate.row, self.component(column, estimate));
        let chains = (most * u64::from(self.run.replicates)) as f64;
        c.settled(self.targets.scaled_epsilon(row, epsilon), || self.floor(column, row, c.estimate, chains))
    }

    /// True if |W_k| ≤ ρ^k holds for every walk; otherwise only its mean is bounded.
    ///
    /// W_k is the weight after k steps, in the scaling of the walks, and ρ the certified norm.
    fn sure(&self) -> bool {
        self.certificate.scaled || self.certificate.vector.is_none()
    }

    /// Upper bound of the absolute value of a walk's sum.
    fn most(&self, row: u32, control: &Control) -> f64 {
        if self.sure() {
            return self.targets.scale(row) * control.norm / (1.0 - self.certificate.norm);
        }
        // W_k| ≤ s^k, and |r_i| ≤ v_i ‖r‖ ≤ ‖r‖.
        let (s, terms) = (self.certificate.row_norm, f64::from(self.length) + 1.0);
        self.targets.walk_scale(row)
            * control.norm
            * if s < 1.0 { terms.min(1.0 / (1.0 - s)) } else { terms * s.powf(terms) }
    }

    /// Upper bound of the distance between a walk's sum and its mean, from the norm of r.
    fn norm_range(&self, row: u32, estimate: f64, control: &Control) -> f64 {
        self.most(row, control) + (estimate - control.h(row)).abs()
    }

    /// Upper bound of the distance between a walk's sum and its mean, the smallest one known.
    fn range(&self, column: usize, row: u32, estimate: f64) -> f64 {
        let control = &self.controls[column];
        let norm_range = self.norm_range(row, estimate, control);
        if !self.sure() {
            return norm_range;
        }
        let (split, certificate, controls) = (self.split, self.certificate, self.controls);
        let find = || extremes(split, certificate, controls);
        let (low, high) = self.extremes.get_or_init(find)[column];
        // Walks of a functional have the sign of the h_i at which they start.
        let (low, high) = match self.targets.signs(row) {
            (true, false) => (-high, -low),
            (true, true) => (low.min(-high), high.max(-low)),
            (false, _) => (low, high),
        };
        let (mean, scale) = (estimate - control.h(row), self.targets.scale(row));
        // Part of the sum that is missing in walks that end early.
        let rest = low.abs().max(high.abs())
            * f64::from(self.cut).max(self.certificate.norm.powi(self.length as i32));
        let range = ((high + rest) * scale - mean).max(mean - (low - rest) * scale);
        if range >= 0.0 { range.min(norm_range) } else { norm_range }
    }

    /// Smallest half-width that covers values too rare to occur in any chain.
    fn floor(&self, column: usize, row: u32, estimate: f64, chains: f64) -> f64 {
        unseen(self.range(column, row, estimate), chains, self.run.options.confidence)
    }

    /// Returns error bounds of truncation and rounding for a component or functional.
    ///
    /// Norms are those of V⁻¹LV and V⁻¹g, times v_m. Sweeps leave rounded vectors ĥ and r̂ with
    /// r̂_k = L r̂_{k−1} + e_k. Hence ĥ + (I − L)⁻¹ r̂ solves a system whose right-hand side is
    /// f̂ + Σ e_k. Its error is (‖f̂ − f‖ + Σ ‖e_k‖) / (1 − ρ), for any cancellation in h. Vectors
    /// z that BiCGSTAB adds to h satisfy r̂_k = r̂_{k−1} − (I − L) z + e_k, with an equal bound.
    ///
    /// For a functional v_m is Σ |h_i| v_i, and products with h are rounded. The probabilities of
    /// its start rows are rounded as well, which adds their error times the bound of a walk's sum.
    pub(crate) fn certain(&self, row: u32, control: &Control, points: u64, length: u32) -> (f64, f64) {
        let Self { run, split, table, cut, .. } = *self;
        let (rho, v) = (self.certificate.norm, self.targets.scale(row));
        if v == 0.0 {
            // h = 0 is exact.
            return (0.0, 0.0);
        }
        let (steps_before, terms, of_start) = self.targets.start(row, table).unwrap_or((0, 0.0, 0.0));
        let u64 = Precision::F64.unit_roundoff();
        let longest = split.statistics.longest as f64;
        let least = match &self.certificate.vector {
            Some(v) => v.iter().copied().fold(f64::INFINITY, f64::min),
            None => 1.0,
        };
        // Rounding of a row's product: an entry of L has a division, a product and a difference
        // from 1. The division may end below 2^−1022, where it is four times as coarse. Then come
        // products and their sum.
        let product = (longest + 8.0) * u64;
        // Underflow has an absolute error of 2^−1075.
        let tiny = (longest + 2.0) * f64::from_bits(1) / least;
        let gap = 1.0 - rho - product - tiny;
        if gap <= 0.0 || gap.is_nan() {
            return (if control.norm == 0.0 { 0.0 } else { f64::INFINITY }, f64::INFINITY);
        }
        let sum = control.norm / gap;
        let all = control.norms + control.norm;
        let parts = f64::from(control.parts);
        let host = (8.0 * u64 * all + product * control.norms + tiny * (parts + 1.0 + all)) / gap;
        // Sums: h, the mean over replicates, and both together.
        let adding = (parts + f64::from(run.replicates) + 8.0 + terms) * u64 * (control.norms + sum);
        if control.norm == 0.0 {
            // f = 0 is exact.
            return (0.0, if all == 0.0 { 0.0 } else { v * (host + adding) });
        }

        let u = run.machine.precision.unit_roundoff();
        let steps = f64::from(length + steps_before);
        // g and row sums are pairs of f32, added in the run's precision.
        let number = table.number_error + u;
        // Additions in a chain, in a block, and of blocks on the host.
        let additions = (steps + 9.0) * u + (points as f64 / BLOCK as f64 + 4.0) * u64;
        // After k steps a weight has the error k (number + u); Σ k ρ^k = ρ / (1 − ρ)².
        let (size, weights) = match self.sure() {
            true => (sum, (number + u) * rho / gap),
            false => (self.most(row, control) / v, (number + u) * steps),
        };
        // Probabilities are multiples of 2⁻³², as if walks used another L: |x̃ − x| ≤ ‖δL‖ ‖x‖ / (1
        // − ρ).
        let spread = if self.certificate.scaled { 1.0 } else { 1.0 / least };
        let other = table.probability_error * spread + product + 4.0 * u64 + tiny;
        // Columns share a power of 2, at which a small column may underflow.
        let columns = table.factor * f64::from(f32::from_bits(1)) / least;
        let walks =
            size * (number + additions + weights) + (sum * other + columns) / gap + sum * of_start * spread;

        // Rounding of a power of ρ, and of the weights at which walks end.
        let slack = |x: f64| up(x * (1.0 + (number + u) * steps), 2 * length as usize + 16);
        let tail = sum * v * rho.powi(length.saturating_add(1).min(i32::MAX as u32) as i32);
        let of_cut = sum * f64::from(cut) * self.targets.walk_scale(row);
        let truncation = match (length, self.sure()) {
            // Chains without a step do not reach the smallest weight.
            (0, _) => slack(tail),
            (_, true) => slack(tail.max(of_cut)),
            (_, false) => slack(tail + of_cut),
        };
        (truncation, v * (walks + host + adding))
    }
}

/// Returns α and β of each column (module docs), rounded outwards.
fn extremes(split: &Split<'_>, certificate: &Certificate, controls: &[Control]) -> Vec<(f64, f64)> {
    let none = || (false, vec![(f64::INFINITY, f64::NEG_INFINITY); controls.len()]);
    let and = |(sign, mut all): (bool, Vec<(f64, f64)>), (other_sign, other): (bool, Vec<(f64, f64)>)| {
        all.iter_mut().zip(other).for_each(|(a, b)| *a = (a.0.min(b.0), a.1.max(b.1)));
        (sign || other_sign, all)
    };
    let rows = |block: usize| {
        let mut found = none();
        for i in block * ROWS..split.unknowns().min((block + 1) * ROWS) {
            let image: f64 = split.each(i).map(|(j, l)| l.abs() * certificate.scale(j as usize)).sum();
            found.0 |= split.each(i).any(|(_, l)| l < 0.0);
            let w = certificate.scale(i) - up(image, split.entries(i) + 3);
            for (control, found) in controls.iter().zip(&mut found.1) {
                let quotient = control.r[i] / w;
                *found = (found.0.min(quotient), found.1.max(quotient));
            }
        }
        found
    };
    let blocks = split.unknowns().div_ceil(ROWS);
    let (signs, all) = (0..blocks).into_par_iter().map(rows).reduce(none, and);
    // w is a difference, so its rounding is that of v over 1 − ρ.
    let slack = 8.0 * (split.statistics.longest as f64 + 8.0) * f64::EPSILON / (1.0 - certificate.norm);
    let outwards = |(low, high): (f64, f64)| {
        let (low, high) = (low - slack * low.abs(), high + slack * high.abs());
        if signs { (low.min(-high), high.max(-low)) } else { (low, high) }
    };
    all.into_iter().map(outwards).collect()
}
