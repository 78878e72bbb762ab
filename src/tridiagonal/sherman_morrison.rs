//! Cyclic systems solved as open ones, so that one launch solves many small systems.
//!
//! Let a be the first row's coefficient of the last unknown, c the last row's coefficient of the
//! first unknown, and γ = −d_first. Then A = A' + u·vᵀ, where A' is open. The ends of its diagonal
//! are d_first − γ and d_last − a·c/γ; u = (γ, 0, …, 0, c) and v = (1, 0, …, 0, a/γ).
//!
//! A·x = b has the solution x = y − z·(γ·y_first + a·y_last) / (1 + γ·z_first + a·z_last), with
//! A'·y = b and A'·z = u/γ (Sherman, Morrison 1950, doi:10.1214/aoms/1177729893). If the rows of A
//! are dominant, those of A' nearly always are as well. Otherwise systems are solved one after
//! another, each in tiles.

use super::system::view::View;
use crate::parallel::*;

/// Denominator of the formula below which a matrix is regarded as nearly singular.
const SMALL: f64 = 1e-6;

#[derive(Debug, Clone, Copy)]
struct Ends {
    gamma: f64,
    a: f64,
    c: f64,
    /// Last diagonal element of the open matrix A' (module docs).
    last: f64,
}

impl Ends {
    fn of(view: &View<'_>, system: usize) -> Self {
        let (first, last) = (system * view.span.n, (system + 1) * view.span.n - 1);
        let (gamma, a, c) = (-view.d[first], view.dl[first], view.du[last]);
        Self { gamma, a, c, last: view.d[last] - a * c / gamma }
    }
}

/// Correction that turns solutions of the open systems into those of the cyclic ones.
#[derive(Debug)]
pub(super) struct ShermanMorrison {
    n: usize,
    /// Solution of A'·z = u/γ (module docs), for all systems.
    z: Vec<f64>,
    /// γ, a and the denominator 1 + γ·z_first + a·z_last of each system (module docs).
    ends: Vec<[f64; 3]>,
}

impl ShermanMorrison {
    /// True if the first and last rows of all systems are dominant, in the cyclic and the open
    /// systems.
    pub(super) fn open(view: &View<'_>) -> bool {
        let n = view.span.n;
        let system = |s: usize| {
            let (Ends { gamma, a, c, last }, [first, end]) = (Ends::of(view, s), [s * n, (s + 1) * n - 1]);
            let before = view.dl[end].abs();
            let given =
                gamma.abs() >= a.abs() + view.du[first].abs() && view.d[end].abs() >= before + c.abs();
            given && gamma != 0.0 && last.abs() >= before
        };
        (0..view.span.rows / n).into_par_iter().all(system)
    }

    /// Calls `put` for the first and the last row of each open system: the row's index, the changed
    /// diagonal element, and the row's element of u/γ (module docs).
    pub(super) fn put_ends(view: &View<'_>, mut put: impl FnMut(usize, [f64; 2])) {
        let n = view.span.n;
        for system in 0..view.span.rows / n {
            let Ends { gamma, c, last, .. } = Ends::of(view, system);
            put(system * n, [-2.0 * gamma, 1.0]);
            put((system + 1) * n - 1, [last, c / gamma]);
        }
    }

    /// Creates the correction from the solution z of A'·z = u/γ (module docs); `None` if a matrix
    /// is nearly singular.
    pub(super) fn new(view: &View<'_>, z: Vec<f64>) -> Option<Self> {
        let n = view.span.n;
        let ends = z.chunks_exact(n).enumerate().map(|(system, z)| {
            let Ends { gamma, a, .. } = Ends::of(view, system);
            [gamma, a, 1.0 + gamma * z[0] + a * z[n - 1]]
        });
        let ends: Vec<[f64; 3]> = ends.collect();
        // NaN fails this comparison as well.
        ends.iter().all(|[.., below]| below.abs() > SMALL).then_some(Self { n, z, ends })
    }

    /// Turns solutions of the open systems into those of the cyclic systems, in place.
    pub(super) fn close(&self, x: &mut [f64]) {
        let systems = x.par_chunks_mut(self.n).zip(self.z.par_chunks(self.n)).zip(&self.ends);
        systems.for_each(|((x, z), &[gamma, a, below])| {
            let share = (gamma * x[0] + a * x[self.n - 1]) / below;
            x.iter_mut().zip(z).for_each(|(x, z)| *x = (-share).mul_add(*z, *x));
        });
    }
}
