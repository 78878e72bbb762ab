//! Pentadiagonal and block tridiagonal systems.
//!
//! The tests compare componentwise backward errors in double-word arithmetic with the tolerance and
//! with the errors of dense elimination with partial pivoting.

use kolmo::tridiagonal::{BandedSystem, Form, solve_banded};

use super::run_all;
use super::tridiagonal::{Reference, judged, numbers, way};
use crate::support::{Equations, Numbers, Real, eliminate};
use crate::tridiagonal_banded::{distances, of_rows};

kinds! {
    Random Dominant WeaklyDominant RowScales Graded Alternating Decoupled NearlySingular Singular
    SingularUnits SingularBatch TwiceSingular
}

use Kind::*;

impl Kind {
    fn is_singular(self) -> bool {
        matches!(self, Singular | SingularUnits | SingularBatch | TwiceSingular)
    }
}

/// Returns the elements of row `i` of `n` with their distances from the diagonal, which comes last.
fn elements(kind: Kind, form: Form, n: usize, i: usize, r: &mut Numbers) -> Vec<(isize, f64)> {
    let mut all: Vec<(isize, f64)> = distances(form, i, n)
        .map(|k| {
            let v = match kind {
                // No element is 0, so that no row is decoupled.
                Singular | SingularUnits | SingularBatch => r.sign() * (1.0 + r.below(9) as f64),
                Decoupled if r.below(3) == 0 => 0.0,
                _ => r.signed(),
            };
            (k, v)
        })
        .collect();
    let sum: f64 = all.iter().map(|(_, v)| v).sum();
    let size: f64 = all.iter().map(|(_, v)| v.abs()).sum();
    let diagonal = match kind {
        Dominant => r.sign() * 1.1 * size,
        WeaklyDominant => r.sign() * size,
        Alternating => [1.0, 1e-12][i % 2] * r.signed(),
        NearlySingular => 10f64.powf(-16.0 * r.unit()) * r.signed() - sum,
        Singular | SingularUnits | SingularBatch => -sum,
        _ => r.signed(),
    };
    all.push((0, diagonal));
    all
}

/// Returns random powers of two by which the rows and the columns of a matrix are scaled.
fn units(kind: Kind, n: usize, r: &mut Numbers) -> [Vec<f64>; 2] {
    let orders = match kind {
        SingularUnits | Graded => r.pick(&[10.0, 40.0]),
        RowScales => r.pick(&[10.0, 100.0]),
        _ => 0.0,
    };
    let (up, columns) = (r.sign(), kind != RowScales);
    let mut of = |i: usize, free: bool| match kind {
        Graded => (up * orders * (i as f64 / n as f64 - 0.5)).round().exp2(),
        _ if free => (orders * r.signed()).round().exp2(),
        _ => 1.0,
    };
    [(0..n).map(|i| of(i, true)).collect(), (0..n).map(|i| of(i, columns)).collect()]
}

fn made(kind: Kind, seed: u64) -> BandedSystem {
    let mut r = numbers(100 + kind as u64, seed);
    let form = if seed.is_multiple_of(2) { Form::Pentadiagonal } else { Form::Blocks };
    let n = match r.below(8) {
        0..6 => 1 + r.below(40),
        6 => 40 + r.below(200),
        _ => r.pick(&[1023, 1024, 1025, 1793]),
    };
    let n = if kind.is_singular() { n.max(5) } else { n };
    let n = if form == Form::Blocks { n.next_multiple_of(2) } else { n };
    let batch = if kind == SingularBatch { 1 + r.below(6) } else { r.pick(&[1, 1, 1, 3]) };
    let singular = r.below(batch);
    let mut all = Vec::new();
    for s in 0..batch {
        let kind = if kind == SingularBatch && s != singular { Random } else { kind };
        let [rows, columns] = units(kind, n, &mut r);
        for (i, size) in rows.iter().enumerate() {
            let mut row = match kind {
                // Linear functions are null vectors.
                TwiceSingular => free_plate(n, i),
                _ => elements(kind, form, n, i, &mut r),
            };
            row.iter_mut().for_each(|(k, v)| *v *= size * columns[(i as isize + *k) as usize]);
            all.push(row);
        }
    }
    let rows = n * batch;
    let mut b = vec![(0..rows).map(|_| r.signed()).collect::<Vec<f64>>()];
    if r.below(4) == 0 {
        b.push(vec![0.0; rows]);
    }
    let system = of_rows(form, n, b, all.into_iter());
    if r.below(3) == 0 { system.transposed() } else { system }
}

/// Returns row `i` of Dᵀ·D, where D takes the second differences of `n` numbers.
fn free_plate(n: usize, i: usize) -> Vec<(isize, f64)> {
    let d = [1.0, -2.0, 1.0];
    let element = |k: isize| {
        // Product of elements i and i + k of row m of D, which begins at column m.
        let product = |m: usize| {
            let part = |at: isize| usize::try_from(at - m as isize).ok().and_then(|at| d.get(at)).copied();
            part(i as isize).zip(part(i as isize + k)).map_or(0.0, |(a, b)| a * b)
        };
        (k, (0..n - 2).filter(|m| m.abs_diff(i) < 3).map(product).sum::<f64>())
    };
    (-2..=2).filter(|k| (0..n as isize).contains(&(i as isize + k))).map(element).collect()
}

/// Maximum number of rows for which a test computes a reference.
const SMALL: usize = 64;

impl Reference for BandedSystem {
    // Seven per row, and one quotient.
    const ROUNDINGS: f64 = 12.0 * f64::EPSILON;

    fn reference<T: Real>(&self, s: usize, b: &[f64]) -> Option<Vec<T>> {
        if self.n() > SMALL { None } else { eliminate(self.dense(s, b)) }
    }
}

fn case(kind: Kind, seed: u64) -> Result<(), String> {
    let system = made(kind, seed);
    // Even and odd seeds differ in the form.
    let way = way(kind as usize, seed / 2);
    judged(&system, kind.is_singular(), way, |machine| solve_banded(machine, &system, &way.2))
}

#[test]
fn no_banded_solution_is_worse_than_reported() {
    run_all(KINDS, 12, case);
}
