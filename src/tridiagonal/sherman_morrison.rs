//! Cyclic systems as open ones, so that many small ones are solved in one launch.
//!
//! With a the first row's coefficient of the last unknown, c the last row's of the first one, and γ = −d_first, A = A' + u·vᵀ,
//! where A' is open, d_first − γ and d_last − a·c/γ stand at the ends of its diagonal, u = (γ, 0, …, 0, c) and v = (1, 0, …, 0, a/γ).
//! So A·x = b has the solution x = y − z·(γ·y_first + a·y_last) / (1 + γ·z_first + a·z_last), A'·y = b and A'·z = u/γ (Sherman,
//! Morrison 1950, doi:10.1214/aoms/1177729893). Where the rows of A are dominant those of A' are nearly always, too; otherwise
//! systems are solved one after the other, each in tiles.

use super::system::view::View;
use crate::parallel::*;

/// The denominator that is taken for a sign that a matrix is next to singular.
const SMALL: f64 = 1e-6;

/// The numbers at the ends of a cyclic system.
#[derive(Debug, Clone, Copy)]
struct Ends {
    gamma: f64,
    a: f64,
    c: f64,
    /// The last of the diagonal of A'.
    last: f64,
}

impl Ends {
    /// Those of one of the systems of a view.
    fn of(view: &View<'_>, system: usize) -> Self {
        let (first, last) = (system * view.span.n, (system + 1) * view.span.n - 1);
        let (gamma, a, c) = (-view.d[first], view.dl[first], view.du[last]);
        Self { gamma, a, c, last: view.d[last] - a * c / gamma }
    }
}

/// What makes solutions of the open systems those of the cyclic ones.
#[derive(Debug)]
pub(super) struct ShermanMorrison {
    n: usize,
    /// A'·z = u/γ, of all systems.
    z: Vec<f64>,
    /// γ, a and the denominator of each system.
    ends: Vec<[f64; 3]>,
}

impl ShermanMorrison {
    /// True if the first and the last rows of all systems are dominant, as given and in the open systems.
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

    /// Puts the ends of the open systems' diagonals in their places.
    pub(super) fn diagonal(view: &View<'_>, mut put: impl FnMut(usize, f64)) {
        let n = view.span.n;
        for system in 0..view.span.rows / n {
            let Ends { gamma, last, .. } = Ends::of(view, system);
            put(system * n, -2.0 * gamma);
            put((system + 1) * n - 1, last);
        }
    }

    /// Puts the numbers of u/γ that are not 0 in their places.
    pub(super) fn right_hand_side(view: &View<'_>, mut put: impl FnMut(usize, f64)) {
        let n = view.span.n;
        for system in 0..view.span.rows / n {
            let Ends { gamma, c, .. } = Ends::of(view, system);
            put(system * n, 1.0);
            put((system + 1) * n - 1, c / gamma);
        }
    }

    /// The rings of a view with the solution of A'·z = u/γ; none where a matrix is next to singular.
    pub(super) fn new(view: &View<'_>, z: Vec<f64>) -> Option<Self> {
        let n = view.span.n;
        let ends = z.chunks_exact(n).enumerate().map(|(system, z)| {
            let Ends { gamma, a, .. } = Ends::of(view, system);
            [gamma, a, 1.0 + gamma * z[0] + a * z[n - 1]]
        });
        let ends: Vec<[f64; 3]> = ends.collect();
        // What is no number is small as well.
        ends.iter().all(|[.., below]| below.abs() > SMALL).then_some(Self { n, z, ends })
    }

    /// Makes solutions of the open systems those of the cyclic ones.
    pub(super) fn close(&self, x: &mut [f64]) {
        let systems = x.par_chunks_mut(self.n).zip(self.z.par_chunks(self.n)).zip(&self.ends);
        systems.for_each(|((x, z), &[gamma, a, below])| {
            let share = (gamma * x[0] + a * x[self.n - 1]) / below;
            x.iter_mut().zip(z).for_each(|(x, z)| *x = (-share).mul_add(*z, *x));
        });
    }
}
