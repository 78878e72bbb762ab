//! Bounds of what walks estimate: Student's interval, truncation and rounding.
//!
//! How far apart walks can lie at all says what may be missing in their spread (`confidence.rs`). With the certificate's v and w
//! = v − |L| v > 0, the weight of a walk that is scaled by v goes from W_k at row i to W_(k+1) = W_k (1 − w_i / v_i) whatever the
//! next row is. Along *every* walk Σ_k W_k w_i / v_i = 1 − W_end, so that α w ≤ r ≤ β w keeps what it adds up within v_m α and
//! v_m β where no entry of L is negative. Behind sweeps, when r is nearly proportional to w, that is a thousandth of 2 v_m ‖r‖ /
//! (1 − ρ). Where L has both signs, β is the largest |r_i| / w_i, and −β the smallest.

use std::cell::OnceCell;

use crate::kernel::Precision;
use crate::parallel::*;
use crate::walk::confidence::unseen;
use crate::walk::context::Run;
use crate::walk::control_variate::Control;
use crate::walk::convergence::certificate::Certificate;
use crate::walk::sampling::adaptive::RunningEstimate;
use crate::walk::sampling::kernels::BLOCK;
use crate::walk::solution::{Bound, Component};
use crate::walk::splitting::{Split, up};
use crate::walk::table::Table;
use crate::walk::table::targets::Targets;

/// Rows that one thread works on at a time.
const ROWS: usize = 1024;

/// All that the bounds of a batch of right-hand sides depend on.
pub(crate) struct ErrorBounds<'a> {
    pub(crate) run: &'a Run<'a>,
    pub(crate) targets: &'a Targets<'a>,
    pub(crate) split: &'a Split<'a>,
    pub(crate) certificate: &'a Certificate,
    pub(crate) controls: &'a [Control],
    pub(crate) table: &'a Table,
    /// Steps through the system, at most.
    pub(crate) length: u32,
    pub(crate) cut: f32,
    /// α and β of each column, made when they are asked for.
    pub(crate) extremes: OnceCell<Vec<(f64, f64)>>,
}

impl ErrorBounds<'_> {
    /// A component or functional of the scaled system, in a column.
    pub(crate) fn component(&self, column: usize, estimate: &RunningEstimate) -> Component {
        let (m, control) = (estimate.row, &self.controls[column]);
        let (scale, confidence) = (self.targets.walk_scale(m), self.run.options.confidence);
        let (value, student) = estimate.interval(column, control.h(m), scale, confidence);
        // Where time was up chains have taken no step.
        let length = self.length.min(estimate.length);
        let (truncation, rounding) = self.certain(m, control, estimate.points, length);
        let mut statistical = 0.0;
        // Walks without a choice are all the same.
        let choice = self.split.branches() || self.targets.start(m, self.table).is_some();
        if control.norm > 0.0 && length > 0 && choice {
            let (range, chains) = (self.norm_range(m, value, control), estimate.chains() as f64);
            statistical = match unseen(range, chains, confidence) > student {
                true => student.max(self.floor(column, m, value, chains)),
                false => student,
            };
        }
        estimate.component(value, Bound { statistical, truncation, rounding }, length)
    }

    /// Whether more walks are of no use: the half-width is at most ε, or no number of chains makes it so. `epsilon` is that of
    /// components.
    pub(crate) fn settled(&self, column: usize, estimate: &RunningEstimate, epsilon: f64, most: u64) -> bool {
        let (row, c) = (estimate.row, self.component(column, estimate));
        let chains = (most * u64::from(self.run.replicates)) as f64;
        c.settled(self.targets.scaled_epsilon(row, epsilon), || self.floor(column, row, c.estimate, chains))
    }

    /// Whether |W_k| ≤ ρ^k, in the scaling of walks: else that holds in the mean alone.
    fn sure(&self) -> bool {
        self.certificate.scaled || self.certificate.vector.is_none() && self.certificate.norm < 1.0
    }

    /// The most that a walk adds up, in absolute value.
    fn most(&self, row: u32, control: &Control) -> f64 {
        if self.sure() {
            return self.targets.scale(row) * control.norm / (1.0 - self.certificate.norm);
        }
        // |W_k| ≤ s^k, and |r_i| ≤ v_i ‖r‖ ≤ ‖r‖.
        let (s, terms) = (self.certificate.row_norm, f64::from(self.length) + 1.0);
        self.targets.walk_scale(row)
            * control.norm
            * if s < 1.0 { terms.min(1.0 / (1.0 - s)) } else { terms * s.powf(terms) }
    }

    /// How far what a walk adds up lies from its mean at most, by the norm of r.
    fn norm_range(&self, row: u32, estimate: f64, control: &Control) -> f64 {
        self.most(row, control) + (estimate - control.h(row)).abs()
    }

    /// The same by what is closest.
    fn range(&self, column: usize, row: u32, estimate: f64) -> f64 {
        let control = &self.controls[column];
        let norm_range = self.norm_range(row, estimate, control);
        if !self.sure() {
            return norm_range;
        }
        let (split, certificate, controls) = (self.split, self.certificate, self.controls);
        let find = || self.run.machine.lanes[0].host(|| extremes(split, certificate, controls));
        let (low, high) = self.extremes.get_or_init(find)[column];
        // Walks of a functional have the sign of the h_i that they begin at.
        let (low, high) = match self.targets.signs(row) {
            (true, false) => (-high, -low),
            (true, true) => (low.min(-high), high.max(-low)),
            (false, _) => (low, high),
        };
        let (mean, scale) = (estimate - control.h(row), self.targets.scale(row));
        // What walks that end early leave out.
        let rest = low.abs().max(high.abs())
            * f64::from(self.cut).max(self.certificate.norm.powi(self.length as i32));
        let range = ((high + rest) * scale - mean).max(mean - (low - rest) * scale);
        if range >= 0.0 { range.min(norm_range) } else { norm_range }
    }

    /// The half-width that values which no chain has shown ask for.
    fn floor(&self, column: usize, row: u32, estimate: f64, chains: f64) -> f64 {
        unseen(self.range(column, row, estimate), chains, self.run.options.confidence)
    }

    /// Bounds of truncation and rounding. Norms are those of V⁻¹LV and V⁻¹g, v_m brings them back.
    ///
    /// Sweeps leave ĥ and r̂ with r̂_k = L r̂_{k−1} + e_k, so that ĥ + (I − L)⁻¹ r̂ is the solution of a system with the
    /// right-hand side f̂ + Σ e_k: what is off is ‖f̂ − f‖ + Σ ‖e_k‖ over 1 − ρ, whatever cancels in h. So do parts z that
    /// BiCGSTAB adds to h, with r̂_k = r̂_{k−1} − (I − L) z + e_k.
    ///
    /// Of a functional v_m is Σ |h_i| v_i; products with h are rounded, and the probabilities of the rows that its walks begin
    /// at are off, which moves it by that much of the most that a walk adds up.
    pub(crate) fn certain(&self, row: u32, control: &Control, points: u64, length: u32) -> (f64, f64) {
        let Self { run, split, table, cut, .. } = *self;
        let (rho, v) = (self.certificate.norm, self.targets.scale(row));
        if v == 0.0 {
            // h = 0 is exact.
            return (0.0, 0.0);
        }
        let (steps_before, terms, of_start) = self.targets.start(row, table).unwrap_or((0, 0.0, 0.0));
        let u64 = Precision::F64.unit_roundoff();
        let longest = split.longest_row() as f64;
        let least = match &self.certificate.vector {
            Some(v) => v.iter().copied().fold(f64::INFINITY, f64::min),
            None => 1.0,
        };
        // Of a row's product: an entry of L has a division (which may end below 2^−1022, where it is four times as coarse),
        // a product and a sum of 1; then come products and their sum.
        let product = (longest + 8.0) * u64;
        // What underflows is off by 2^−1075.
        let tiny = (longest + 2.0) * f64::from_bits(1) / least;
        let gap = 1.0 - rho - product - tiny;
        if gap <= 0.0 || gap.is_nan() {
            return (if control.norm == 0.0 { 0.0 } else { f64::INFINITY }, f64::INFINITY);
        }
        let sum = control.norm / gap;
        let all = control.norms + control.norm;
        let parts = f64::from(control.parts);
        let host = (8.0 * u64 * all + product * control.norms + tiny * (parts + 1.0 + all)) / gap;
        // h, the mean over replicates, and their sum.
        let adding = (parts + f64::from(run.replicates) + 8.0 + terms) * u64 * (control.norms + sum);
        if control.norm == 0.0 {
            // f = 0 is exact.
            return (0.0, if all == 0.0 { 0.0 } else { v * (host + adding) });
        }

        let u = run.machine.precision.unit_roundoff();
        let steps = f64::from(length + steps_before);
        // g and row sums as pairs of f32, added in the run's precision.
        let number = table.number_error + u;
        // Additions of a chain, of a block or of a thread and its group on a grid, and of blocks on the host.
        let in_turn = run.options.grid.map_or(0.0, |grid| {
            (points as f64 / (f64::from(grid.groups) * f64::from(grid.size))).ceil() + 10.0
        });
        let additions = (steps + 9.0 + in_turn) * u + (points as f64 / BLOCK as f64 + 4.0) * u64;
        // After k steps a weight is off by k (number + u); Σ k ρ^k = ρ / (1 − ρ)².
        let (size, weights) = match self.sure() {
            true => (sum, (number + u) * rho / gap),
            false => (self.most(row, control) / v, (number + u) * steps),
        };
        // Probabilities that are multiples of 2⁻³² walk on another L; |x̃ − x| ≤ ‖δL‖ ‖x‖ / (1 − ρ).
        let spread = if self.certificate.scaled { 1.0 } else { 1.0 / least };
        let other = table.probability_error * spread + product + 4.0 * u64 + tiny;
        // Columns share a power of 2, beside which a small one underflows.
        let columns = table.factor * f64::from(f32::from_bits(1)) / least;
        let walks =
            size * (number + additions + weights) + (sum * other + columns) / gap + sum * of_start * spread;

        // Rounding of a power of ρ, and of the weights that are cut.
        let slack = |x: f64| up(x * (1.0 + (number + u) * steps), 2 * length as usize + 16);
        let tail = sum * v * rho.powi(length.saturating_add(1).min(i32::MAX as u32) as i32);
        let of_cut = sum * f64::from(cut) * self.targets.walk_scale(row);
        let truncation = match (length, self.sure()) {
            // No chain comes as far as a cut.
            (0, _) => slack(tail),
            (_, true) => slack(tail.max(of_cut)),
            (_, false) => slack(tail + of_cut),
        };
        (truncation, v * (walks + host + adding))
    }
}

/// α and β of each column, rounded outwards.
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
    // w is a difference: its rounding is that of v, over 1 − ρ.
    let slack = 8.0 * (split.longest_row() as f64 + 8.0) * f64::EPSILON / (1.0 - certificate.norm);
    let outwards = |(low, high): (f64, f64)| {
        let (low, high) = (low - slack * low.abs(), high + slack * high.abs());
        if signs { (low.min(-high), high.max(-low)) } else { (low, high) }
    };
    all.into_iter().map(outwards).collect()
}
