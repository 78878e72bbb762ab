//! Functionals ⟨h, x⟩: walks start at row i with a probability proportional to |h_i|.
//!
//! Each walk has the sign of its h_i. In the chain table a functional is a separate row, for the
//! unknown Σ_i h_i x_i without a constant. The first step draws the start row in the system. It
//! uses the points of the walk, and sorts entries as all rows do. Probabilities are multiples of
//! 2⁻³², so for an h with many entries two or three steps draw groups of entries first.
//!
//! With x̃ and its residual r, |⟨h, x⟩ − ⟨h, x̃⟩| ≤ Σ |h_i| |x_i − x̃_i| ≤ Σ |h_i| v_i · ‖r‖_v / (1
//! − ρ). For a functional Σ |h_i| v_i thus replaces v_m, the bound for a component.

use super::record_layout::{COLUMNS, HEAD, UNIT};
use super::records::{RowEntry, TargetRow, sign, write_shares};
use crate::parallel::*;
use crate::util::quantity::{exponent, times_power_of_two};
use crate::walk::convergence::certificate::Certificate;
use crate::{Invalid, Result};

const GROUP: usize = 4096;
/// Number of products per partial sum, so that sums do not depend on the number of threads.
const PIECE: usize = 4096;

/// Functional ⟨h, x⟩ as walks use it, with h divided by a power of 2.
#[derive(Debug)]
pub struct ScaledFunctional {
    /// (i, h_i / 2^exponent) of all nonzero entries; the largest |h_i| / 2^exponent is in [1, 2).
    entries: Vec<(u32, f64)>,
    pub(crate) exponent: i32,
    /// l1 norm Σ |h_i| / 2^exponent of the stored h.
    pub(crate) norm: f64,
    /// Σ |h_i| v_i / 2^exponent, rounded up, with the vector v of the certificate.
    pub(crate) scale: f64,
    /// `scale` if walks run on the scaled system, else `norm`.
    pub(crate) walk_scale: f64,
    /// True if h has negative entries, and true if it has positive ones.
    pub(super) signs: (bool, bool),
}

impl ScaledFunctional {
    /// Prepares h, whose entries are finite.
    pub(crate) fn new(h: &[f64], certificate: &Certificate) -> Result<Self> {
        let largest = h.iter().fold(0.0f64, |most, h| most.max(h.abs()));
        let exponent = if largest > 0.0 { exponent(largest) } else { 0 };
        let scaled = h.iter().map(|&h| times_power_of_two(h, -exponent));
        let entries: Vec<(u32, f64)> = (0..).zip(scaled).filter(|&(_, h)| h != 0.0).collect();
        let sum = |scale: &dyn Fn(usize) -> f64| {
            let piece =
                |piece: &[(u32, f64)]| piece.iter().map(|&(i, h)| h.abs() * scale(i as usize)).sum::<f64>();
            entries.chunks(PIECE).map(piece).sum::<f64>() * (1.0 + terms(entries.len()) * f64::EPSILON)
        };
        let norm = sum(&|_| 1.0);
        let scale = sum(&|i| certificate.scale(i));
        let walk_scale = if certificate.scaled { scale } else { norm };
        if !entries.is_empty() && scale < 1e-280 {
            return Invalid::Number("functionals").fail(format!(
                "a functional has its weight on unknowns that the others hardly reach: its part of \
                 the certificate's vector is {scale:e}; request the components instead"
            ));
        }
        let signs = (entries.iter().any(|e| e.1 < 0.0), entries.iter().any(|e| e.1 > 0.0));
        Ok(Self { entries, exponent, norm, scale, walk_scale, signs })
    }

    /// Returns ⟨h, x⟩ / 2^exponent, the product of x with the stored h.
    pub(crate) fn of(&self, x: &[f64]) -> f64 {
        let piece = |piece: &[(u32, f64)]| piece.iter().map(|&(i, h)| h * x[i as usize]).sum::<f64>();
        let pieces: Vec<f64> = self.entries.par_chunks(PIECE).map(piece).collect();
        pieces.iter().sum()
    }

    /// Returns 1 / 2^exponent, or the nearest normal number.
    pub(super) fn unit(&self) -> f64 {
        times_power_of_two(1.0, -self.exponent).clamp(f64::MIN_POSITIVE, f64::MAX)
    }

    /// Number of roundings of a product in [`of`](Self::of).
    pub(crate) fn terms(&self) -> f64 {
        terms(self.entries.len())
    }

    /// Number of steps that draw the start row of a walk.
    pub(crate) fn steps(&self) -> u32 {
        self.groups().count() as u32
    }

    pub(crate) fn units(&self) -> usize {
        let of = |all: usize| {
            all / GROUP * units(GROUP) + if all.is_multiple_of(GROUP) { 0 } else { units(all % GROUP) }
        };
        self.groups().map(of).sum()
    }

    /// Numbers of items per level: entries, groups of entries, groups of groups.
    fn groups(&self) -> impl Iterator<Item = usize> {
        let mut next = Some(self.entries.len()).filter(|&all| all > 0);
        std::iter::from_fn(move || {
            let all = next?;
            next = Some(all.div_ceil(GROUP)).filter(|_| all > GROUP);
            Some(all)
        })
    }

    /// Writes the functional's records, the first one at position `at` of the table in units of 32
    /// bytes. `g` are the table's columns, which are stored times `unit`.
    pub(crate) fn write(
        &self,
        certificate: &Certificate,
        targets: &[TargetRow],
        (g, unit): (&[&[f64]], f64),
        (mut at, mut words): (u32, &mut [u32]),
    ) -> Start {
        // These records add nothing to θ: g is 0, or the row number is that of the zero row.
        let head = if g.len() > 1 { [targets.len() as u32, 0] } else { [0, 0] };
        let of = |c: usize| match self.entries[..] {
            [] => 0.0,
            _ => g.get(c).map_or(0.0, |g| self.of(g) / self.walk_scale * unit),
        };
        let without_steps = std::array::from_fn(of);
        let entry = |&(i, h): &(u32, f64)| {
            let (target, sign) = (targets[i as usize], sign(h));
            let share = h.abs() * certificate.walk_scale(i as usize) / self.walk_scale;
            (target.rank(sign), share, target.place | sign)
        };
        let mut entries: Vec<RowEntry> = self.entries.iter().map(entry).collect();
        // Stable: entries of equal rank stay in the order of their rows.
        entries.sort_by_key(|&(rank, ..)| rank);
        let mut error = 32.0 * f64::EPSILON;
        while !entries.is_empty() {
            let mut write = |group: &mut [RowEntry]| {
                let sum: f64 = group.iter().map(|e| e.1).sum();
                // If the sum underflows to 0, every entry keeps the smallest share.
                group.iter_mut().for_each(|e| e.1 /= sum.max(f64::MIN_POSITIVE));
                let (here, rest) = std::mem::take(&mut words).split_at_mut(units(group.len()) * UNIT);
                here[..2].copy_from_slice(&head);
                // Let P_g and p_i be the stored shares of a group g and of its entry i, A_g and a_i
                // the exact ones. Then P_g p_i − A_g a_i = (P_g − A_g) p_i + A_g (p_i − a_i). The
                // second term is added here, the first one at the next level.
                error += sum * write_shares(group, 1.0, here);
                words = rest;
                let place = at;
                at += units(group.len()) as u32;
                (0, sum, place)
            };
            let groups: Vec<RowEntry> = entries.chunks_mut(GROUP).map(&mut write).collect();
            if let [(_, sum, place)] = groups[..] {
                return Start { place, without_steps, error: error + (sum - 1.0).abs() };
            }
            entries = groups;
        }
        Start { place: 0, without_steps, error: 0.0 }
    }
}

/// First record of a functional's walks.
#[derive(Debug, Clone, Copy)]
pub struct Start {
    /// Position of the record in the table, in units of 32 bytes.
    pub(crate) place: u32,
    /// Sum of a walk without steps, per column.
    pub(crate) without_steps: [f64; COLUMNS],
    /// Error Σ_i | p_i − |h_i| / Σ_j |h_j| | of the start probabilities p_i, as walks are scaled.
    pub(crate) error: f64,
}

/// Number of 32-byte units of a record of `entries` entries.
fn units(entries: usize) -> usize {
    (HEAD + 2 + 2 * entries).div_ceil(UNIT)
}

/// Number of roundings of a sum of `entries` products, added in pieces.
fn terms(entries: usize) -> f64 {
    (entries.min(PIECE) + entries / PIECE + 4) as f64
}
