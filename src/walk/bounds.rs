//! Bounds of what walks estimate: Student's interval, truncation and rounding.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::certificate::Certificate;
use super::chains::spread;
use super::control::Control;
use super::interval::{shows, unseen};
use super::kernels::{BLOCK, COLUMNS};
use super::run::Run;
use super::sampling::RunningEstimate;
use super::solution::{Bound, Component};
use super::splitting::{Split, up};
use super::table::Table;
use crate::kernel::Precision;

/// All that the bounds of a batch of right-hand sides depend on.
pub(super) struct ErrorBounds<'a> {
    pub(super) run: &'a Run<'a>,
    pub(super) split: &'a Split<'a>,
    pub(super) certificate: &'a Certificate,
    pub(super) controls: &'a [Control],
    pub(super) table: &'a Table,
    pub(super) length: u32,
    pub(super) cut: f32,
    /// How far apart a few walks lie, of each component that this was asked of.
    pub(super) spreads: RefCell<BTreeMap<u32, [f64; COLUMNS]>>,
}

impl ErrorBounds<'_> {
    /// A component of the scaled system, in a column.
    pub(super) fn component(&self, column: usize, estimate: &RunningEstimate) -> Component {
        let (m, control) = (estimate.component, &self.controls[column]);
        let (scale, confidence) = (self.certificate.walk_scale(m as usize), self.run.options.confidence);
        let (value, student) = estimate.interval(column, control.h(m), scale, confidence);
        let (truncation, rounding) = self.certain(m as usize, control, estimate.points);
        let mut statistical = 0.0;
        // Walks without a choice are all the same.
        if control.norm > 0.0 && self.length > 0 && self.split.branches() {
            let (range, chains) = (self.range(m, value, control), estimate.chains() as f64);
            statistical = match unseen(range, chains, confidence) > student {
                true => student.max(self.floor(column, m, range, chains)),
                false => student,
            };
        }
        estimate.component(value, Bound { statistical, truncation, rounding }, self.length)
    }

    /// Whether more walks are of no use to a component: its half-width is at most ε, or no number of chains makes it so.
    pub(super) fn settled(&self, column: usize, estimate: &RunningEstimate, epsilon: f64, most: u64) -> bool {
        let c = self.component(column, estimate);
        let range = self.range(c.component, c.estimate, &self.controls[column]);
        let chains = (most * u64::from(self.run.replicates)) as f64;
        c.settled(epsilon, || self.floor(column, c.component, range, chains))
    }

    /// Whether |W_k| ≤ ρ^k, in the scaling of walks: else that holds in the mean alone.
    fn sure(&self) -> bool {
        self.certificate.scaled || self.certificate.vector.is_none() && self.certificate.norm < 1.0
    }

    /// The most that a walk adds up, in absolute value.
    fn most(&self, m: usize, control: &Control) -> f64 {
        if self.sure() {
            return self.certificate.scale(m) * control.norm / (1.0 - self.certificate.norm);
        }
        // |W_k| ≤ s^k, and |r_i| ≤ v_i ‖r‖ ≤ ‖r‖.
        let (s, terms) = (self.certificate.row_norm, f64::from(self.length) + 1.0);
        control.norm * if s < 1.0 { terms.min(1.0 / (1.0 - s)) } else { terms * s.powf(terms) }
    }

    /// How far what a walk adds up lies from its mean at most.
    fn range(&self, component: u32, estimate: f64, control: &Control) -> f64 {
        self.most(component as usize, control) + (estimate - control.h(component)).abs()
    }

    /// The half-width that what no chain has shown asks for, where a few walks do not show most of their range.
    fn floor(&self, column: usize, component: u32, range: f64, chains: f64) -> f64 {
        match shows(self.spread(column, component), range, chains) {
            true => 0.0,
            false => unseen(range, chains, self.run.options.confidence),
        }
    }

    /// How far apart a few walks lie, which are walked once for a component, if ever.
    fn spread(&self, column: usize, component: u32) -> f64 {
        let mut spreads = self.spreads.borrow_mut();
        let walk = || spread(self.table, component, self.run.options.seed, self.length, self.cut);
        spreads.entry(component).or_insert_with(walk)[column]
            * self.certificate.walk_scale(component as usize)
    }

    /// Bounds of truncation and rounding. Norms are those of V⁻¹LV and V⁻¹g, v_m brings them back.
    ///
    /// Sweeps leave ĥ and r̂ with r̂_k = L r̂_{k−1} + e_k, so that ĥ + (I − L)⁻¹ r̂ is the solution of a system with the
    /// right-hand side f̂ + Σ e_k: what is off is ‖f̂ − f‖ + Σ ‖e_k‖ over 1 − ρ, whatever cancels in h. So do parts z that
    /// BiCGSTAB adds to h, with r̂_k = r̂_{k−1} − (I − L) z + e_k.
    fn certain(&self, m: usize, control: &Control, points: u64) -> (f64, f64) {
        let Self { run, split, table, length, cut, .. } = *self;
        let (rho, v) = (self.certificate.norm, self.certificate.scale(m));
        let u64 = Precision::F64.unit_roundoff();
        let longest = split.longest_row() as f64;
        let least = match &self.certificate.vector {
            Some(v) => v.iter().copied().fold(f64::INFINITY, f64::min),
            None => 1.0,
        };
        // Of a row's product: an entry of L has a division (which may end below 2^−1022, where it is four times as coarse),
        // a product and a sum of 1; then come products and their sum.
        let row = (longest + 8.0) * u64;
        // What underflows is off by 2^−1075.
        let tiny = (longest + 2.0) * f64::from_bits(1) / least;
        let gap = 1.0 - rho - row - tiny;
        if gap <= 0.0 || gap.is_nan() {
            return (if control.norm == 0.0 { 0.0 } else { f64::INFINITY }, f64::INFINITY);
        }
        let sum = control.norm / gap;
        let all = control.norms + control.norm;
        let parts = f64::from(control.parts);
        let host = (8.0 * u64 * all + row * control.norms + tiny * (parts + 1.0 + all)) / gap;
        // h, the mean over replicates, and their sum.
        let adding = (parts + f64::from(run.replicates) + 8.0) * u64 * (control.norms + sum);
        if control.norm == 0.0 {
            // f = 0 is exact.
            return (0.0, if all == 0.0 { 0.0 } else { v * (host + adding) });
        }

        let u = run.machine.precision.unit_roundoff();
        let steps = f64::from(length);
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
            false => (self.most(m, control) / v, (number + u) * steps),
        };
        // Probabilities that are multiples of 2⁻³² walk on another L; |x̃ − x| ≤ ‖δL‖ ‖x‖ / (1 − ρ).
        let spread = if self.certificate.scaled { 1.0 } else { 1.0 / least };
        let other = table.probability_error * spread + row + 4.0 * u64 + tiny;
        // Columns share a power of 2, beside which a small one underflows.
        let columns = table.factor * f64::from(f32::from_bits(1)) / least;
        let walks = size * (number + additions + weights) + (sum * other + columns) / gap;

        // Rounding of a power of ρ, and of the weights that are cut.
        let slack = |x: f64| up(x * (1.0 + (number + u) * steps), 2 * length as usize + 16);
        let tail = sum * v * rho.powi(length.saturating_add(1).min(i32::MAX as u32) as i32);
        let of_cut = sum * f64::from(cut) * if self.certificate.scaled { v } else { 1.0 };
        let truncation = match (length, self.sure()) {
            // No chain comes as far as a cut.
            (0, _) => slack(tail),
            (_, true) => slack(tail.max(of_cut)),
            (_, false) => slack(tail + of_cut),
        };
        (truncation, v * (walks + host + adding))
    }
}
