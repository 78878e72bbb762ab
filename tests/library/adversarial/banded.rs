//! Pentadiagonal and block tridiagonal systems.
//!
//! The tests compare componentwise backward errors in double-word arithmetic with the tolerance and
//! with the errors of dense elimination with partial pivoting.

use kolmo::kernel::Precision::{self, F32, F64};
use kolmo::tridiagonal::{
    BandedSystem, Form, Options, Pivot, Refine, Residual, Solution, Status, solve_banded,
};

use super::double_word::DoubleWord;
use super::run_all;
use super::tridiagonal::{device, expect_status, numbers};
use crate::support::{Numbers, Real, eliminate};
use crate::tridiagonal_banded::row;

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

/// Returns the distances of the columns of row `i` from the diagonal: five, or six in blocks.
fn distances(form: Form, i: usize) -> std::ops::RangeInclusive<isize> {
    match form {
        Form::Pentadiagonal => -2..=2,
        Form::Blocks if i.is_multiple_of(2) => -2..=3,
        Form::Blocks => -3..=2,
    }
}

/// Returns the elements of row `i` of `n` with their distances from the diagonal, which comes last.
fn elements(kind: Kind, form: Form, n: usize, i: usize, r: &mut Numbers) -> Vec<(isize, f64)> {
    let inside = |&k: &isize| (0..n as isize).contains(&(i as isize + k)) && k != 0;
    let mut all: Vec<(isize, f64)> = distances(form, i)
        .filter(inside)
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
    let (count, width) = if form == Form::Blocks { (3, 2) } else { (5, 1) };
    let mut arrays = vec![vec![0.0; width * n * batch]; count];
    for s in 0..batch {
        let kind = if kind == SingularBatch && s != singular { Random } else { kind };
        let [rows, columns] = units(kind, n, &mut r);
        for (i, size) in rows.iter().enumerate() {
            let all = match kind {
                // Linear functions are null vectors.
                TwiceSingular => free_plate(n, i),
                _ => elements(kind, form, n, i, &mut r),
            };
            for (k, v) in all {
                let (at, j) = (s * n + i, (i as isize + k) as usize);
                let place = match form {
                    Form::Pentadiagonal => ((k + 2) as usize, at),
                    Form::Blocks => (j / 2 + 1 - i / 2, 2 * at + j % 2),
                };
                arrays[place.0][place.1] = v * size * columns[j];
            }
        }
    }
    let rows = n * batch;
    let mut b = vec![(0..rows).map(|_| r.signed()).collect::<Vec<f64>>()];
    if r.below(4) == 0 {
        b.push(vec![0.0; rows]);
    }
    let system = match form {
        Form::Pentadiagonal => BandedSystem::pentadiagonal(batch, arrays.try_into().expect("five"), b),
        Form::Blocks => BandedSystem::blocks(batch, arrays.try_into().expect("three"), b),
    }
    .expect("lengths fit");
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

/// Returns the largest componentwise backward error of one system, with a tolerance of 2⁻¹⁰⁷⁴ for
/// unknowns.
fn backward_error(system: &BandedSystem, s: usize, b: &[f64], x: &[f64]) -> f64 {
    let mut worst = 0.0f64;
    for (i, &b) in b.iter().enumerate().skip(s * system.n()).take(system.n()) {
        let (mut sum, mut size) = (DoubleWord::from(b), b.abs());
        for (k, v) in row(system, i) {
            if !x[k].is_finite() {
                return f64::INFINITY;
            }
            sum = sum - DoubleWord::product(v, x[k]);
            size += (v * x[k]).abs();
        }
        let slack: f64 = row(system, i).into_iter().map(|(_, v)| v.abs() * 5e-324).sum();
        let left = (sum.abs().to_f64() - slack).max(0.0);
        worst = if left == 0.0 { worst } else { worst.max(left / size) };
    }
    worst
}

/// Returns the unknowns of dense elimination with partial pivoting; `None` if a pivot is 0.
fn dense<T: Real>(system: &BandedSystem, s: usize, b: &[f64]) -> Option<Vec<T>> {
    let (n, first) = (system.n(), s * system.n());
    let equation = |i: usize| {
        let mut own = vec![T::from(0.0); n + 1];
        row(system, i).into_iter().for_each(|(k, v)| own[k - first] = T::from(v));
        own[n] = T::from(b[i]);
        own
    };
    eliminate((first..first + n).map(equation).collect())
}

/// Maximum number of rows for which a test computes a reference.
const SMALL: usize = 64;

/// Returns a lower bound of the growth ‖|A⁻¹|·|A|‖.
///
/// It is the largest unknown, in double-word arithmetic, for a right-hand side with the row sums of
/// |A| times random factors of size ½ … 1. Infinite if a pivot is 0.
fn reference_growth(system: &BandedSystem, s: usize) -> f64 {
    let mut r = numbers(0, system.n() as u64);
    let sized = |i: usize| row(system, i).iter().map(|(_, v)| v.abs()).sum::<f64>();
    let b: Vec<f64> = (0..system.rows()).map(|i| r.sign() * (0.5 + 0.5 * r.unit()) * sized(i)).collect();
    let x = dense::<DoubleWord>(system, s, &b);
    let sizes = x.iter().flatten().map(|x| x.abs().to_f64());
    let most = sizes.fold(0.0f64, |m, x| if x.is_finite() { m.max(x) } else { f64::INFINITY });
    if x.is_none() { f64::INFINITY } else { most }
}

/// Bound of the rounding error of a componentwise residual: seven roundings of a row, one quotient.
const ROUNDINGS: f64 = 12.0 * f64::EPSILON;

fn case(kind: Kind, seed: u64) -> Result<(), String> {
    let system = made(kind, seed);
    let auto = Options::default();
    let steps = auto.refine(Refine::Steps(0));
    let ways: [(&'static str, Precision, Options); 8] = [
        ("cpu", F64, auto),
        ("cpu", F64, auto),
        ("cpu,cpu", F64, auto),
        ("cpu", F32, auto),
        ("cpu", F64, steps),
        ("cpu", F64, auto.pivot(Pivot::None)),
        ("wgpu:0", F64, auto),
        ("cpu", F64, auto.pivot(Pivot::Scaled)),
    ];
    let (spec, precision, options) = ways[(seed as usize / 2 + kind as usize) % ways.len()];
    // A separate thread waits for lanes: a thread of the pool would start another case meanwhile.
    let solved = std::thread::scope(|scope| {
        let run = || device(spec, precision).map(|machine| solve_banded(machine, &system, &options));
        scope.spawn(run).join().map_err(|_| "a panic".to_owned())
    })?;
    let Some(solution) = solved.transpose().map_err(|e| e.to_string())? else { return Ok(()) };
    let judged = match kind.is_singular() && solution.singular.is_none() {
        true => Err(format!("a singular matrix is not detected: {:?}", solution.residual)),
        false => judge(&system, &options, &solution),
    };
    judged.map_err(|e| {
        let (form, n, batch) = (system.form(), system.n(), system.rows() / system.n());
        format!("{form:?}, n = {n}, {batch} systems, {spec} {precision}, {options:?}: {e}")
    })
}

fn judge(system: &BandedSystem, options: &Options, solution: &Solution) -> Result<(), String> {
    let Solution { residual, status, singular, .. } = solution;
    let (n, small) = (system.n(), system.n() <= SMALL);
    let mut theirs_are_good = small;
    for (b, x) in system.b.iter().zip(&solution.x) {
        for s in 0..system.rows() / n {
            let theirs = if small { dense::<f64>(system, s, b) } else { None };
            let theirs = theirs.map_or(f64::INFINITY, |x| {
                let mut all = vec![0.0; system.rows()];
                all[s * n..][..n].copy_from_slice(&x);
                backward_error(system, s, b, &all)
            });
            theirs_are_good &= theirs <= 1e-13;
            if *status == Status::NotMet {
                continue;
            }
            let omega = backward_error(system, s, b, x);
            if omega.is_nan() || omega > Residual::componentwise_limit(options.tolerance) + ROUNDINGS {
                return Err(format!("system {s}: met with a componentwise error of {omega:e}"));
            }
            let roundings = if solution.dominant { 64.0 * f64::EPSILON } else { 0.0 } + ROUNDINGS;
            if options.refine == Refine::Auto && omega > 4.0 * theirs + roundings {
                return Err(format!("system {s}: {omega:e}, and dense elimination has {theirs:e}"));
            }
            if residual.componentwise < omega * (1.0 - 1e-10) - ROUNDINGS {
                return Err(format!("system {s}: {omega:e}, and {:e} is reported", residual.componentwise));
            }
        }
    }
    if let Some((s, row)) = *singular
        && small
        && reference_growth(system, s) < 2f64.powi(44)
    {
        let growth = reference_growth(system, s);
        return Err(format!("row {row} of system {s} is reported as singular, with {growth:e}"));
    }
    expect_status(solution, options.tolerance, theirs_are_good)
}

#[test]
fn no_banded_solution_is_worse_than_reported() {
    run_all(KINDS, 12, case);
}
