//! Residual as control variate, which reduces the variance of walks.
//!
//! x = h + (I − L)⁻¹ r for any h with r = f − (I − L) h. Walks that sample r instead of f have a
//! smaller variance if r is small. r is computed for all components at once, h is kept for the
//! requested ones.
//!
//! Jacobi sweeps give h = Σ_{k<K} L^k f and r = L^K f, and each reads the matrix once. If ρ, the
//! norm of L, is near 1, they gain little, and BiCGSTAB continues. Usually r is then so small that
//! its norm alone bounds the remaining error, ‖r‖ / (1 − ρ), without walks.

use std::borrow::Cow;
use std::time::Instant;

use super::bicgstab::solver::{Krylov, ProgressFn};
use super::convergence::certificate::Certificate;
use super::options::ControlVariate;
use super::splitting::{Product, ROWS, Split};
use super::table::functional::ScaledFunctional;
use crate::Result;
use crate::kernel::cpu::simd::dispatch;
use crate::lane::HostArray;
use crate::parallel::*;

/// Largest number of sweeps by [`ControlVariate::Auto`].
///
/// At random columns a sweep costs three or four reads of the matrix, a cache line per entry. It
/// divides the error of walks by three or four.
pub const MOST_AUTO: u32 = 8;

/// Largest number of products with L by a Krylov method: `MOST_PRODUCTS` + `EDGES` · √n.
///
/// √n is the edge of a square grid. If walks would take much longer than more products, more are
/// allowed.
const MOST_PRODUCTS: usize = 1000;
const EDGES: usize = 4;
/// Steps of walks per matrix entry above which [`ControlVariate::Auto`] takes a Krylov method.
const WORTH_PRODUCTS: f64 = 200.0;

/// Steps of walks per matrix entry for which one more product with L is allowed.
///
/// A step takes as long as some ten entries. All additional products together then take at most a
/// thousandth of the time of the walks.
const STEPS_AN_ENTRY: f64 = 100.0;

/// True if walks of `steps` steps take longer than BiCGSTAB on a matrix of `entries` entries.
pub fn takes_longer_than_krylov(steps: f64, entries: usize) -> bool {
    steps > WORTH_PRODUCTS * entries as f64
}

/// Accuracy at which [`ControlVariate::Auto`] makes no further sweep.
#[derive(Debug, Clone, Copy)]
pub struct Accuracy {
    /// Requested absolute error of a component.
    pub error: f64,
    /// Number of chains of a component that walk in any case.
    pub chains: f64,
}

impl Accuracy {
    /// Goal that is never reached: as many sweeps as allowed.
    pub const EXACT: Self = Self { error: 0.0, chains: 1.0 };
}

/// Requested components and functionals of the control variate, and its accuracy.
#[derive(Debug, Clone, Copy)]
pub struct ControlRequest<'a> {
    /// Components of the control variate h to compute.
    pub components: &'a [u32],
    /// Functionals ⟨w, h⟩ to compute; functional k has the component number n + k (n unknowns).
    pub functionals: &'a [ScaledFunctional],
    /// Accuracy at which h needs no further work.
    pub goal: Accuracy,
}

impl ControlRequest<'_> {
    /// Returns entry m of x, or functional m − n of x if m is at least the length n of x.
    fn of(&self, m: u32, x: &[f64]) -> f64 {
        x.get(m as usize).copied().unwrap_or_else(|| self.functionals[m as usize - x.len()].of(x))
    }
}

/// Control variate h with its residual r.
#[derive(Debug)]
pub struct Control {
    /// Number m and value of h for each requested component and functional, ascending.
    h: Vec<(u32, f64)>,
    /// Residual r = f − (I − L) h of the system x = L x + f.
    pub r: HostArray<f64>,
    /// Number of Jacobi sweeps K.
    pub sweeps: u32,
    /// Number of products with L by BiCGSTAB.
    pub products: usize,
    /// Number of vectors that h is the sum of.
    pub parts: u32,
    /// Norm max_i |r_i| / v_i of the residual, with the vector v of the certificate.
    pub norm: f64,
    /// Sum of the norms of all vectors in products with L, for the rounding bound.
    ///
    /// It includes the vectors that products were added to. After sweeps it is Σ_{k<K}
    /// max_i |(L^k f)_i| / v_i.
    pub norms: f64,
    /// Seconds per sweep; 0 without sweeps.
    pub sweep_seconds: f64,
    /// Factor by which the last sweep reduced the norm of r, a prediction for further sweeps.
    pub rate: f64,
}

/// Norm, sum and sum of squares of some numbers.
#[derive(Debug, Clone, Copy, Default)]
struct Moments {
    /// Largest absolute value.
    norm: f64,
    sum: f64,
    squares: f64,
}

impl Moments {
    /// Computes L r in one pass, and the moments of its elements divided by the certificate's v_i.
    fn of_sweep(split: &Split<'_>, certificate: &Certificate, r: &[f64], out: &mut [f64]) -> Self {
        let rows = |(block, out): (usize, &mut [f64])| {
            let mut here = Self::default();
            let value = |i: usize, product| {
                here.add(certificate.vector.as_ref().map_or(product, |v| product / v[i]));
                product
            };
            dispatch(Product::<false, _> { split, x: r, first: block * ROWS, out, value });
            here
        };
        // Blocks are added in order: these sums determine the number of sweeps, and so every bit.
        let moments: Vec<Self> = out.par_chunks_mut(ROWS).enumerate().map(rows).collect();
        moments.into_iter().fold(Self::default(), Self::with)
    }

    #[inline(always)]
    fn add(&mut self, x: f64) {
        self.norm = self.norm.max(x.abs());
        self.sum += x;
        self.squares += x * x;
    }

    fn with(self, other: Self) -> Self {
        Self {
            norm: self.norm.max(other.norm),
            sum: self.sum + other.sum,
            squares: self.squares + other.squares,
        }
    }
}

impl Control {
    /// Computes h and r by sweeps, and by BiCGSTAB if requested or faster.
    ///
    /// `krylov` has to belong to this splitting and certificate.
    pub fn new(
        split: &Split<'_>,
        certificate: &Certificate,
        f: &[f64],
        request: &ControlRequest<'_>,
        wanted: ControlVariate,
        krylov: &mut Krylov<'_>,
        progress: ProgressFn<'_>,
    ) -> Result<Self> {
        let goal = request.goal;
        let (most, auto) = match wanted {
            ControlVariate::Auto | ControlVariate::Jacobi => (MOST_AUTO, true),
            ControlVariate::Sweeps(k) => (k, false),
            ControlVariate::Krylov => (0, false),
        };
        let functionals = (f.len() as u32..).take(request.functionals.len());
        let mut h: Vec<(u32, f64)> =
            request.components.iter().copied().chain(functionals).map(|m| (m, 0.0)).collect();
        h.sort_unstable_by_key(|&(m, _)| m);
        let mut control = Self {
            h,
            r: HostArray::large(0),
            sweeps: 0,
            products: 0,
            parts: 0,
            norm: certificate.scaled_norm(f),
            norms: 0.0,
            sweep_seconds: 0.0,
            rate: certificate.norm,
        };
        let mut next = HostArray::large(0);
        let from = Instant::now();
        // Walks have to estimate the variation of r. `independent` is the half-width if all terms
        // of a walk were independent, with weights that fall by the norm per step.
        let mut spread = f64::INFINITY;
        let rho = certificate.norm;
        while control.sweeps < most {
            let independent = 2.0 * spread / (goal.chains * (1.0 - rho * rho)).sqrt();
            let left = (control.norm / (1.0 - rho)).min(independent);
            let done = control.norm == 0.0 || (auto && left <= goal.error);
            if done || !progress(control.sweeps as usize)? {
                break;
            }
            if next.len() < f.len() {
                next = HostArray::large(f.len());
            }
            let r = if control.sweeps > 0 { &control.r[..] } else { f };
            control.h.iter_mut().for_each(|(m, h)| *h += request.of(*m, r));
            let Moments { norm, sum, squares } = Moments::of_sweep(split, certificate, r, &mut next);
            std::mem::swap(&mut control.r, &mut next);
            control.sweeps += 1;
            control.parts += 1;
            control.norms += control.norm;
            let before = std::mem::replace(&mut control.norm, norm);
            control.rate = control.norm / before;
            let n = f.len() as f64;
            spread = (squares / n - (sum / n).powi(2)).max(0.0).sqrt();
        }
        match control.sweeps {
            0 => {
                control.r = HostArray::large(f.len());
                control.r.copy_from_slice(f);
            }
            sweeps => control.sweep_seconds = from.elapsed().as_secs_f64() / f64::from(sweeps),
        }
        let steps = || control.h.len() as f64 * control.steps(spread, rho, goal);
        let entries = split.matrix.nnz();
        if wanted == ControlVariate::Krylov
            || wanted == ControlVariate::Auto && takes_longer_than_krylov(steps(), entries)
        {
            // Ends with a tenth of the requested error, so that walks need no step.
            let enough = 0.1 * goal.error * (1.0 - rho);
            let enough = enough.max(f64::EPSILON * control.norm);
            let worth = (steps() / (STEPS_AN_ENTRY * entries.max(1) as f64)).min(1e6);
            let most = (worth as usize).max(MOST_PRODUCTS + EDGES * f.len().isqrt());
            control.krylov((split, certificate, krylov), request, (enough, most), progress)?;
        }
        Ok(control)
    }

    /// Predicts the steps of walks per component to the goal, if a walk's terms are independent.
    /// They have the standard deviation `spread`; `rho` is the norm of L.
    fn steps(&self, spread: f64, rho: f64, goal: Accuracy) -> f64 {
        if self.norm <= goal.error * (1.0 - rho) {
            return 0.0;
        }
        let chains = (2.0 * spread / goal.error).powi(2) / (1.0 - rho * rho);
        chains.max(goal.chains) * (self.norm / (goal.error * (1.0 - rho))).ln() / -rho.ln()
    }

    /// Adds BiCGSTAB's solution for r to h, as long as that halves the norm of r.
    ///
    /// It ends once the norm is at most `enough`, or after `most` products.
    fn krylov(
        &mut self,
        (split, certificate, krylov): (&Split<'_>, &Certificate, &mut Krylov<'_>),
        request: &ControlRequest<'_>,
        (enough, most): (f64, usize),
        progress: ProgressFn<'_>,
    ) -> Result<()> {
        let mut next = HostArray::large(self.r.len());
        while self.norm > enough && self.products < most && progress(self.products)? {
            let bicgstab = krylov.of(split, certificate.vector.as_deref())?;
            let before = self.products;
            let progress = &mut |used| progress(before + used);
            let (z, used) = bicgstab.solve(&self.r, 0.5 * enough, most - before, progress)?;
            self.products += used + 1;
            if !self.gains_by(&z, (split, certificate), request, &mut next) {
                break;
            }
        }
        Ok(())
    }

    /// Adds z to h if the norm of r falls to half of it or less, computed on the host.
    ///
    /// Returns true if it does. `next` is overwritten.
    fn gains_by(
        &mut self,
        z: &[f64],
        (split, certificate): (&Split<'_>, &Certificate),
        request: &ControlRequest<'_>,
        next: &mut HostArray<f64>,
    ) -> bool {
        // r + L z − z.
        split.sweep(&self.r, z, next);
        next.par_iter_mut().zip(z).for_each(|(r, z)| *r -= z);
        let (norm, of_z) = (certificate.scaled_norm(next), certificate.scaled_norm(z));
        if norm.is_nan() || norm > 0.5 * self.norm {
            return false;
        }
        self.h.iter_mut().for_each(|(m, h)| *h += request.of(*m, z));
        std::mem::swap(&mut self.r, next);
        self.parts += 1;
        self.norms += self.norm + of_z;
        self.norm = norm;
        true
    }

    /// Returns h_m, or functional m − n of h (n: number of unknowns).
    ///
    /// # Panics
    /// If m was not requested.
    pub fn h(&self, m: u32) -> f64 {
        let place = self.h.binary_search_by_key(&m, |&(m, _)| m);
        self.h[place.unwrap_or_else(|_| panic!("component {m} was not requested"))].1
    }

    /// Approximate mean sum of walks from each state, by which rows are sorted.
    ///
    /// It is r + L r, where r is the residual; after sweeps it is r itself. Sorting by r makes the
    /// error of walks at most a quarter larger. A sweep costs as much as the product L r, and
    /// divides the error by three or four.
    pub fn values(&self, split: &Split<'_>) -> Cow<'_, [f64]> {
        if self.sweeps > 0 {
            return Cow::Borrowed(&self.r);
        }
        let mut values = vec![0.0; self.r.len()];
        split.sweep(&self.r, &self.r, &mut values);
        Cow::Owned(values)
    }
}

#[cfg(test)]
mod tests {
    use super::super::convergence::certificate::certify;
    use super::*;
    use crate::lane::Lane;
    use crate::sparse::CsrMatrix;
    use crate::walk::options::Splitting;

    /// Splits a given L, and certifies its convergence.
    fn given(matrix: &CsrMatrix) -> (Split<'_>, Certificate) {
        let split = Split::new(matrix, Splitting::Given).unwrap();
        let certificate = certify(&split, Splitting::Given, &Lane::at_hand(), &mut |_| Ok(true));
        (split, certificate.unwrap())
    }

    /// Computes the control variate for an error and a number of chains, without callbacks.
    fn made(
        (split, certificate): &(Split<'_>, Certificate),
        f: &[f64],
        components: &[u32],
        wanted: ControlVariate,
        (error, chains): (f64, f64),
    ) -> Control {
        let request = ControlRequest { components, functionals: &[], goal: Accuracy { error, chains } };
        let lane = Lane::at_hand();
        let krylov = &mut Krylov::new(&lane);
        Control::new(split, certificate, f, &request, wanted, krylov, &mut |_| Ok(true)).unwrap()
    }

    #[test]
    fn sweeps_end_where_walks_have_no_variance() {
        // Every row averages all unknowns: after one sweep r is constant, though not small.
        let n = 64;
        let matrix =
            CsrMatrix::from_rows(n, n, |_, row| row.extend((0..n as u32).map(|j| (j, 0.9 / n as f64))));
        let f: Vec<f64> = (0..n).map(|i| (i % 7) as f64).collect();
        let control = made(&given(&matrix), &f, &[], ControlVariate::Jacobi, (1e-3, 1.0));
        assert!(control.sweeps == 1 && control.norm > 1.0, "{} {}", control.sweeps, control.norm);
    }
}
