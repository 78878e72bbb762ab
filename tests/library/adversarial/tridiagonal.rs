//! Tridiagonal systems.
//!
//! A result with status `Met` is checked by its componentwise backward error (Oettli, Prager 1964).
//! The error is recomputed in double-word arithmetic from the given system, and compared with that
//! of LAPACK's `dgtsv`. Banded systems are checked in the same way.

use std::sync::OnceLock;

use kolmo::Machine;
use kolmo::kernel::Precision::{self, F32, F64};
use kolmo::tridiagonal::{Options, Pivot, Refine, Residual, Solution, Status, System, solve};

use super::double_word::DoubleWord;
use super::run_all;
use crate::support::{Equations, Numbers, Real, machine};

kinds! {
    Random Dominant WeaklyDominant Laplace Toeplitz GradedUp GradedDown RowScales ColumnScales Alternating
    ZeroDiagonalEven ZeroDiagonalOdd Clement Wilkinson NearlySingular Decoupled BorderPivots WholeRange Subnormal
    Integers Cyclic Batch RandomSigns FewRows Decaying NearTop NearBottom Singular SingularRing
}

use Kind::*;

/// Returns the random number generator of a case, by the number of its kind and by its seed.
pub(super) fn numbers(kind: u64, seed: u64) -> Numbers {
    let mut own = Numbers((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (kind + 1) << 40);
    for _ in 0..8 {
        own.bits();
    }
    own
}

impl Numbers {
    pub(super) fn sign(&mut self) -> f64 {
        if self.bits() & 1 == 0 { 1.0 } else { -1.0 }
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Returns a number of rows: mostly few, else near the sizes of units and tiles, or some
    /// thousands.
    fn rows(&mut self) -> usize {
        match self.below(10) {
            0..6 => 1 + self.below(60),
            6 => self.pick(&[127, 128, 129, 255, 256, 257, 1023, 1024, 1025]),
            7 => self.pick(&[2047, 2048, 2049, 2175, 2176, 4096, 4097]),
            _ => 60 + self.below(1000),
        }
    }
}

/// Three diagonals (`dl`, `d`, `du`) and the right-hand side of one system.
type Rows = [Vec<f64>; 4];

fn rows(n: usize, mut row: impl FnMut(usize) -> [f64; 4]) -> Rows {
    let all: Vec<[f64; 4]> = (0..n).map(&mut row).collect();
    std::array::from_fn(|k| all.iter().map(|row| row[k]).collect())
}

fn decimal(exponent: f64) -> f64 {
    10f64.powf(exponent)
}

/// Generates one system of `n` rows.
fn one(kind: Kind, n: usize, r: &mut Numbers) -> Rows {
    match kind {
        Random | Cyclic | FewRows => rows(n, |_| [r.signed(), r.signed(), r.signed(), r.signed()]),
        Dominant => rows(n, |_| {
            let (a, c) = (r.signed(), r.signed());
            [a, r.sign() * 1.1 * (a.abs() + c.abs()), c, r.signed()]
        }),
        WeaklyDominant => rows(n, |i| {
            let (a, c) = (r.signed(), r.signed());
            let used = if i > 0 { a.abs() } else { 0.0 } + if i + 1 < n { c.abs() } else { 0.0 };
            [a, r.sign() * used, c, r.signed()]
        }),
        Laplace => {
            let b = r.below(3);
            rows(n, |i| [-1.0, 2.0, -1.0, [r.unit(), 1.0, f64::from(u8::from(i == n / 2))][b]])
        }
        Toeplitz => {
            let [a, d, c] = [0; 3].map(|_| r.pick(&[-1.0, 1.0, 0.5, -2.0, 1e-3, 0.25, 3.0, 1e5]));
            rows(n, |_| [a, d, c, r.signed()])
        }
        GradedUp | GradedDown => {
            let (orders, from) = (r.pick(&[20.0, 100.0, 300.0]), r.signed() * 150.0);
            let sign = if kind == GradedUp { 1.0 } else { -1.0 };
            let dominance = r.pick(&[1.0, 3.0, 1e-3]);
            rows(n, |i| {
                let size = decimal((sign * orders * (i as f64 / n as f64 - 0.5) + from).clamp(-290.0, 290.0));
                [r.signed() * size, r.signed() * dominance * size, r.signed() * size, r.signed() * size]
            })
        }
        RowScales => {
            let orders = r.pick(&[10.0, 100.0, 290.0]);
            rows(n, |_| {
                let scale = decimal(orders * r.signed());
                [r.signed() * scale, r.signed() * scale, r.signed() * scale, r.signed() * scale]
            })
        }
        ColumnScales => {
            let orders = r.pick(&[10.0, 100.0, 250.0]);
            let scales: Vec<f64> = (0..n + 2).map(|_| decimal(orders * r.signed())).collect();
            rows(n, |i| {
                [r.signed() * scales[i], r.signed() * scales[i + 1], r.signed() * scales[i + 2], r.signed()]
            })
        }
        Alternating => {
            let (tiny, odd) = (decimal(-300.0 * r.unit()), r.below(2));
            rows(n, |i| {
                let d = if i % 2 == odd { tiny } else { r.pick(&[1.0, 0.5, -1.0]) };
                [r.signed(), d, r.signed(), 4.0 * r.signed()]
            })
        }
        ZeroDiagonalEven | ZeroDiagonalOdd => {
            let whole = r.below(2) == 0;
            let mut number = || if whole { 1.0 + r.below(9) as f64 } else { r.signed() };
            rows(n, |_| [number(), 0.0, number(), number()])
        }
        Clement => {
            let d = r.pick(&[1e-8, 1e-12, 1e-4, 1e-16, 1e-30]);
            rows(n, |i| [i as f64, d, (n - 1 - i) as f64, r.signed()])
        }
        Wilkinson => rows(n, |i| [1.0, (i as f64 - (n / 2) as f64).abs(), 1.0, r.signed()]),
        NearlySingular => {
            // Rows that nearly sum to zero: the matrix times a vector of ones is nearly 0.
            let near = decimal(-16.0 * r.unit());
            rows(n, |i| {
                let (a, c) = (r.signed(), r.signed());
                let used = if i > 0 { a } else { 0.0 } + if i + 1 < n { c } else { 0.0 };
                [a, -used + near * r.signed(), c, r.signed()]
            })
        }
        Decoupled => rows(n, |_| {
            let mut coupled = || if r.below(3) == 0 { 0.0 } else { r.signed() };
            let (a, c) = (coupled(), coupled());
            let scale = r.pick(&[1.0, 1.0, 1e-100, 1e100]);
            [a, r.signed(), c, scale * r.signed()]
        }),
        BorderPivots => {
            let (border, tiny) = (r.pick(&[10, 32, 128, 2048]), r.pick(&[0.0, 1e-300, 1e-17, 1e-9]));
            rows(n, |i| {
                let near = (i + 1) % border <= 2;
                [r.signed(), if near { tiny * r.sign() } else { 2.5 * r.sign() }, r.signed(), r.signed()]
            })
        }
        WholeRange => {
            let a = decimal(r.pick(&[-307.0, -200.0, -30.0, 30.0, 200.0, 307.0]));
            let b = decimal(r.pick(&[-320.0, -307.0, -100.0, 0.0, 100.0, 307.0]));
            let dominance = r.pick(&[1.0, 2.1]);
            rows(n, |_| [a * r.signed(), a * dominance * r.sign(), a * r.signed(), b * r.signed()])
        }
        Subnormal => {
            let mut number = || match r.below(4) {
                0 => 5e-324 * r.below(1000) as f64,
                1 => f64::MIN_POSITIVE * r.signed(),
                _ => r.signed(),
            };
            rows(n, |_| [number(), number(), number(), number()])
        }
        Integers => {
            let x: Vec<f64> = (0..n + 2).map(|_| r.below(2001) as f64 - 1000.0).collect();
            rows(n, |i| {
                let [a, d, c] = [0; 3].map(|_| r.below(2001) as f64 - 1000.0);
                let left = if i > 0 { a * x[i] } else { 0.0 };
                let right = if i + 1 < n { c * x[i + 2] } else { 0.0 };
                [a, d, c, left + d * x[i + 1] + right]
            })
        }
        RandomSigns => rows(n, |_| [r.sign(), r.sign(), r.sign(), r.sign()]),
        Decaying => {
            let (d, at, scale) = (r.pick(&[2.5, 10.0, -1e3]), r.below(n), r.pick(&[1.0, 1e100, 1e-100]));
            rows(n, |i| [scale, d * scale, -scale, f64::from(u8::from(i == at))])
        }
        NearTop => {
            let orders = r.pick(&[2.0, 10.0, 20.0]);
            let mut number = || r.sign() * decimal(308.0 - orders * r.unit());
            rows(n, |_| [number(), number(), number(), number() * 1e-290])
        }
        NearBottom => {
            let mut number = |from: f64| r.sign() * decimal(from - 8.0 * r.unit());
            rows(n, |_| [number(-295.0), number(-295.0), number(-295.0), number(-312.0)])
        }
        Singular | SingularRing => {
            // Integers whose rows sum to 0, scaled by powers of two that keep all digits.
            let units: Vec<i32> = {
                let most = r.pick(&[0, 0, 20, 40]);
                (0..2 * n).map(|_| (f64::from(most) * r.signed()) as i32).collect()
            };
            let closed = kind == SingularRing;
            // No element is 0, so that no row is decoupled.
            let mut number = || r.sign() * (1.0 + r.below(9) as f64);
            let whole = rows(n, |_| [number(), 0.0, number(), number()]);
            rows(n, |i| {
                let a = if i > 0 || closed { whole[0][i] } else { 0.0 };
                let c = if i + 1 < n || closed { whole[2][i] } else { 0.0 };
                let unit = |j: usize| 2f64.powi(units[i] + units[n + j % n]);
                [a * unit(i + n - 1), -(a + c) * unit(i), c * unit(i + 1), whole[3][i]]
            })
        }
        Batch => unreachable!("a batch is made of systems of the others"),
    }
}

fn made(kind: Kind, seed: u64) -> System {
    let mut r = numbers(kind as u64, seed);
    let n = match (kind, r.rows()) {
        (ZeroDiagonalEven, n) => n + n % 2,
        (ZeroDiagonalOdd | Clement, n) => n | 1,
        (RandomSigns, n) => n * (1 + r.below(3)),
        (FewRows, n) => 1 + n % 4,
        (NearTop | NearBottom, n) => 1 + n % 8,
        (Singular | SingularRing, n) => n.max(3),
        (Batch, n) => 1 + n % 200,
        (_, n) => n,
    };
    let batch = match kind {
        Batch => 1 + r.below(12),
        Cyclic => r.pick(&[1, 1, 3]),
        _ => 1,
    };
    let mut all = Rows::default();
    for _ in 0..batch {
        let drawn = if kind == Batch { KINDS[r.below(KINDS.len())] } else { kind };
        let of = if kind == Batch && matches!(drawn, Batch | SingularRing) { Alternating } else { drawn };
        let own = one(of, n, &mut r);
        all.iter_mut().zip(own).for_each(|(all, own)| all.extend(own));
    }
    let [dl, d, du, b] = all;
    let mut bs = vec![b];
    if r.below(4) == 0 {
        bs.push((0..n * batch).map(|_| r.signed()).collect());
        bs.push(vec![0.0; n * batch]);
    }
    let mut system = System::batched(batch, dl, d, du, bs).expect("lengths fit");
    if kind == Cyclic && r.below(2) == 0 {
        // A diagonally dominant cyclic system.
        for ((d, a), c) in system.d.iter_mut().zip(&system.dl).zip(&system.du) {
            *d = d.signum() * (a.abs() + c.abs()) * 1.01;
        }
    }
    let system = if r.below(5) == 0 { system.transposed() } else { system };
    if matches!(kind, Cyclic | SingularRing) { system.cyclic() } else { system }
}

/// Splits v into m · 2^k with 1 ≤ |m| < 2, and returns (m, k).
fn split(v: f64) -> (f64, i32) {
    let exponent = |v: f64| (v.to_bits() >> 52 & 0x7ff) as i32 - 1023;
    let (v, less) = if v.abs() < f64::MIN_POSITIVE { (v * 2f64.powi(100), 100) } else { (v, 0) };
    let k = exponent(v);
    (f64::from_bits(v.to_bits() & !(0x7ff << 52) | 1023 << 52), k - less)
}

/// A nonnegative number m · 2^k.
#[derive(Clone, Copy)]
struct Scaled(f64, i32);

impl Scaled {
    fn of(v: f64) -> Self {
        if v == 0.0 { Self(0.0, i32::MIN / 4) } else { Self(split(v.abs()).0.abs(), split(v).1) }
    }

    fn product(self, other: Self) -> Self {
        Self(self.0 * other.0, self.1.saturating_add(other.1).max(i32::MIN / 4))
    }

    /// Returns self / 2^unit, for a unit that no term of a sum exceeds by much.
    fn in_units(self, unit: i32) -> f64 {
        if self.0 == 0.0 || self.1 - unit < -1000 { 0.0 } else { self.0 * 2f64.powi(self.1 - unit) }
    }

    fn larger(self, other: Self) -> Self {
        let unit = self.1.max(other.1);
        if other.in_units(unit) > self.in_units(unit) { other } else { self }
    }

    fn sum(self, other: Self) -> Self {
        let unit = self.1.max(other.1);
        Self(self.in_units(unit) + other.in_units(unit), unit)
    }
}

/// Systems with a reference solution.
pub(super) trait Reference: Equations {
    /// Rounding errors of a residual in double precision, each 2⁻⁵³ of the row.
    const ROUNDINGS: f64;

    /// Solves system `s` by elimination with partial pivoting.
    ///
    /// Returns `None` if a pivot is zero, or if there is no reference for such systems.
    fn reference<T: Real>(&self, s: usize, b: &[f64]) -> Option<Vec<T>>;
}

impl Reference for System {
    // Four per row, and some of the quotient.
    const ROUNDINGS: f64 = 8.0 * f64::EPSILON;

    fn reference<T: Real>(&self, s: usize, b: &[f64]) -> Option<Vec<T>> {
        if self.cyclic { None } else { gtsv(self, s, b) }
    }
}

/// Returns the normwise and the componentwise backward error of system `s`.
///
/// The componentwise error is max_i |b − A·x|_i / (|A|·|x| + |b|)_i in double-word arithmetic. Each
/// row is in units of its largest product, so that nothing overflows, and an underflow is below
/// 2⁻¹⁰⁰⁰ of the row. An unknown below 2⁻¹⁰²² may differ by 2⁻¹⁰⁷⁴.
fn backward_errors(system: &impl Equations, s: usize, b: &[f64], x: &[f64]) -> [f64; 2] {
    let mut norms = [Scaled::of(0.0); 4];
    let mut worst = 0.0f64;
    for i in s * system.n()..(s + 1) * system.n() {
        let mut terms: Vec<_> = system.row(i).into_iter().map(|(column, v)| (v, x[column])).collect();
        if terms.iter().any(|(_, x)| !x.is_finite()) {
            return [f64::INFINITY; 2];
        }
        let size = terms.iter().fold(Scaled::of(0.0), |sum, (a, _)| sum.sum(Scaled::of(*a)));
        let slack: Vec<f64> =
            terms.iter().filter(|(_, x)| x.abs() < f64::MIN_POSITIVE).map(|(a, _)| a.abs()).collect();
        terms.push((-b[i], 1.0));
        let factors: Vec<_> = terms
            .iter()
            .filter(|(a, x)| *a != 0.0 && *x != 0.0)
            .map(|&(a, x)| (split(a), split(x)))
            .collect();
        let own = [size, Scaled::of(x[i]), Scaled::of(b[i])];
        norms[1..].iter_mut().zip(own).for_each(|(norm, own)| *norm = norm.larger(own));
        let Some(unit) = factors.iter().map(|((_, j), (_, k))| j + k).max() else { continue };
        let power = |k: i32| if k < -1000 { 0.0 } else { 2f64.powi(k) };
        let (mut sum, mut size) = (DoubleWord::ZERO, 0.0);
        for &((a, j), (x, k)) in &factors {
            let product = DoubleWord::product(a * power(j + k - unit), x);
            sum = sum + product;
            size += product.abs().to_f64();
        }
        let left = Scaled::of(sum.to_f64());
        norms[0] = norms[0].larger(Scaled(left.0, left.1 + unit));
        let slack: f64 = slack
            .into_iter()
            .filter(|a| *a != 0.0)
            .map(split)
            .map(|(a, j)| {
                let k = j - 1074 - unit;
                a * if k > 1000 { f64::INFINITY } else { power(k) }
            })
            .sum();
        worst = worst.max((sum.abs().to_f64() - slack).max(0.0) / size);
    }
    let [r, a, x, b] = norms;
    let all = a.product(x).sum(b);
    [if r.0 == 0.0 { 0.0 } else { r.in_units(all.1) / all.0 }, worst]
}

/// Returns a lower bound of the growth ‖|A⁻¹|·|A|‖ of system `s`.
///
/// It is the largest unknown, in double-word arithmetic, for a right-hand side with the row sums of
/// |A| times random factors of size ½ … 1. Signs alone may sum to 0, as rows of singular matrices.
/// Infinite if there is no reference or numbers leave the range.
fn reference_growth(system: &impl Reference, s: usize) -> f64 {
    let mut r = numbers(0, system.n() as u64);
    let sized = |i: usize| system.row(i).iter().map(|(_, v)| v.abs()).sum::<f64>();
    let b: Vec<f64> = (0..system.rows()).map(|i| r.sign() * (0.5 + 0.5 * r.unit()) * sized(i)).collect();
    let Some(x) = system.reference::<DoubleWord>(s, &b) else { return f64::INFINITY };
    let sizes = x.iter().map(|x| x.abs().to_f64());
    sizes.fold(0.0f64, |m, x| if x.is_finite() { m.max(x) } else { f64::INFINITY })
}

/// Solves one right-hand side like the reference LAPACK `dgtsv`; `None` if a pivot is zero.
///
/// In double-word arithmetic, for systems of a moderate range.
fn gtsv<T: Real>(system: &System, s: usize, b: &[f64]) -> Option<Vec<T>> {
    let n = system.n;
    let part = |v: &[f64]| v[s * n..][..n].iter().map(|&v| T::from(v)).collect::<Vec<T>>();
    let (dl, mut d, mut du, mut b) = (part(&system.dl), part(&system.d), part(&system.du), part(b));
    let mut du2 = vec![T::from(0.0); n];
    for i in 0..n - 1 {
        let below = dl[i + 1];
        if d[i].size() >= below.size() {
            if d[i].size() == 0.0 {
                return None;
            }
            let w = below / d[i];
            d[i + 1] = d[i + 1] - w * du[i];
            b[i + 1] = b[i + 1] - w * b[i];
        } else {
            let (w, next) = (d[i] / below, d[i + 1]);
            d[i] = below;
            d[i + 1] = du[i] - w * next;
            du[i] = next;
            if i + 2 < n {
                du2[i] = du[i + 1];
                du[i + 1] = -w * du[i + 1];
            }
            let upper = b[i];
            b[i] = b[i + 1];
            b[i + 1] = upper - w * b[i + 1];
        }
    }
    if d[n - 1].size() == 0.0 {
        return None;
    }
    for i in (0..n).rev() {
        if i + 1 < n {
            b[i] = b[i] - du[i] * b[i + 1];
        }
        if i + 2 < n {
            b[i] = b[i] - du2[i] * b[i + 2];
        }
        b[i] = b[i] / d[i];
    }
    Some(b)
}

/// Largest number of rows for which unknowns are compared with the reference.
///
/// The bound needs one reference solution per row.
const SMALL: usize = 24;

/// Compares the unknowns with those in double-word arithmetic: |x − A⁻¹ b| ≤ |A⁻¹|·|b − A x|.
fn unknowns(system: &impl Reference, s: usize, b: &[f64], x: &[f64], omega: f64) -> Result<(), String> {
    let n = system.n();
    let here = s * n..(s + 1) * n;
    let moderate = |v: f64| v == 0.0 || (1e-20..1e20).contains(&v.abs());
    let row_is_moderate = |i| moderate(b[i]) && system.row(i).iter().all(|&(_, v)| moderate(v));
    if n > SMALL || !here.clone().all(row_is_moderate) {
        return Ok(());
    }
    let Some(exact) = system.reference::<DoubleWord>(s, b) else { return Ok(()) };
    let size = |i: usize| system.row(i).iter().map(|&(k, v)| (v * x[k]).abs()).sum::<f64>() + b[i].abs();
    let mut bound = vec![0.0; n];
    let mut condition = 0.0f64;
    for i in here.clone() {
        let mut e = vec![0.0; system.rows()];
        e[i] = 1.0;
        let Some(column) = system.reference::<DoubleWord>(s, &e) else { return Ok(()) };
        for (bound, inverse) in bound.iter_mut().zip(&column) {
            *bound += inverse.abs().to_f64() * omega * size(i);
            condition = condition.max(inverse.abs().to_f64());
        }
    }
    // Too ill-conditioned for double words as well.
    if condition > 1e20 {
        return Ok(());
    }
    for (i, (x, exact)) in x[here].iter().zip(&exact).enumerate() {
        let error = (DoubleWord::from(*x) - *exact).abs().to_f64();
        // Double-word elimination rounds, too: 2⁻¹⁰⁰ · 10²⁰ of the largest number is below 1e-10 ε.
        let most = 1.01 * bound[i] + 1e-9 * f64::EPSILON * bound.iter().fold(0.0f64, |m, b| m.max(b / omega));
        if error > most {
            return Err(format!("unknown {i} of system {s} is {x:e}, off by {error:e}; {most:e} is allowed"));
        }
    }
    Ok(())
}

/// Returns the lanes of a device, opened once.
fn device(spec: &'static str, precision: Precision) -> Option<&'static Machine> {
    static LANES: [OnceLock<Option<Machine>>; 8] = [const { OnceLock::new() }; 8];
    let place = ["cpu", "cpu,cpu", "wgpu:0"].iter().position(|known| *known == spec).unwrap_or(3);
    let slot = &LANES[2 * place + usize::from(precision == F32)];
    slot.get_or_init(|| machine(spec, precision)).as_ref()
}

/// Returns device, precision and options that a seed selects.
pub(super) fn way(kind: usize, seed: u64) -> (&'static str, Precision, Options) {
    let auto = Options::default();
    let steps = auto.refine(Refine::Steps(0));
    let ways = [
        ("cpu", F64, auto),
        ("cpu", F64, auto),
        ("cpu", F64, auto),
        ("cpu,cpu", F64, auto),
        ("cpu", F32, auto),
        ("cpu", F64, steps),
        ("cpu", F64, auto.pivot(Pivot::None)),
        ("wgpu:0", F64, auto),
        ("cpu", F64, auto.pivot(Pivot::Scaled)),
        ("cpu", F64, steps.pivot(Pivot::None)),
        ("cpu", F32, steps.tolerance(1e-4)),
        ("cpu,cpu", F64, auto.pivot(Pivot::Scaled)),
        ("wgpu:0", F32, auto),
        #[cfg(feature = "cuda")]
        ("cuda:0", F64, auto),
        #[cfg(feature = "cuda")]
        ("cuda:0", F32, auto),
    ];
    ways[(seed as usize + kind) % ways.len()]
}

fn case(kind: Kind, seed: u64) -> Result<(), String> {
    let system = made(kind, seed);
    let (spec, precision, options) = way(kind as usize, seed);
    let singular = matches!(kind, Singular | SingularRing);
    judged(&system, singular, (spec, precision, options), |machine| solve(machine, &system, &options))
}

/// Solves a system on a device, and checks the solution; true if the matrix is `known_singular`.
pub(super) fn judged(
    system: &impl Reference,
    known_singular: bool,
    (spec, precision, options): (&'static str, Precision, Options),
    solve: impl Fn(&Machine) -> kolmo::Result<Solution> + Sync,
) -> Result<(), String> {
    // A pool thread that waits for lanes would start another case, which waits for the lanes as
    // well. A separate thread does not.
    let solved = std::thread::scope(|scope| {
        let run = || device(spec, precision).map(&solve);
        scope.spawn(run).join().map_err(|_| "a panic".to_owned())
    })?;
    let Some(solution) = solved.transpose().map_err(|e| e.to_string())? else { return Ok(()) };
    let judged = match known_singular && solution.singular.is_none() {
        true => Err(format!("a singular matrix is not found to be one: {:?}", solution.residual)),
        false => judge(system, &options, &solution),
    };
    judged.map_err(|e| {
        let (n, batch) = (system.n(), system.rows() / system.n());
        format!("n = {n}, {batch} systems, {spec} {precision}, {options:?}: {e}")
    })
}

fn judge<S: Reference>(system: &S, options: &Options, solution: &Solution) -> Result<(), String> {
    let Solution { residual, status, singular, .. } = solution;
    let auto = options.refine == Refine::Auto;
    let mut theirs_are_good = true;
    for (k, (b, x)) in system.b().iter().zip(&solution.x).enumerate() {
        for s in 0..system.rows() / system.n() {
            let theirs = system.reference::<f64>(s, b).map_or(f64::INFINITY, |x| {
                let mut all = vec![0.0; system.rows()];
                all[s * system.n()..][..system.n()].copy_from_slice(&x);
                backward_errors(system, s, b, &all)[1]
            });
            theirs_are_good &= theirs <= 1e-13;
            if *status == Status::NotMet {
                continue;
            }
            let [normwise, omega] = backward_errors(system, s, b, x);
            if residual.normwise < normwise * (1.0 - 1e-10) - S::ROUNDINGS {
                return Err(format!("{normwise:e} in norms, and {:e} is said", residual.normwise));
            }
            let place = || format!("system {s}, right-hand side {k}, {:?}", solution.method);
            if omega.is_nan() || omega > Residual::componentwise_limit(options.tolerance) + S::ROUNDINGS {
                return Err(format!("{}: met with a componentwise error of {omega:e}", place()));
            }
            // If every row is dominant, first solutions with slightly larger rounding errors are
            // accepted.
            let roundings = if solution.dominant { 64.0 * f64::EPSILON } else { 0.0 } + S::ROUNDINGS;
            if auto && omega > 4.0 * theirs + roundings {
                return Err(format!("{}: {omega:e}, and elimination has {theirs:e}", place()));
            }
            if residual.componentwise < omega * (1.0 - 1e-10) - S::ROUNDINGS {
                return Err(format!("{}: {omega:e}, and {:e} is said", place(), residual.componentwise));
            }
            unknowns(system, s, b, x, omega + S::ROUNDINGS)?;
        }
    }
    // Singular means ρ ≥ 2⁵³ in the best scaling; a step from ones finds most of it in any scaling.
    if let Some((s, row)) = *singular {
        let growth = reference_growth(system, s);
        if growth < 2f64.powi(44) {
            return Err(format!("row {row} of system {s} is said to be singular, with {growth:e}"));
        }
    }
    expect_status(solution, options.tolerance, theirs_are_good)
}

/// Returns an error if a status contradicts the residual, or another solver's good solution.
fn expect_status(solution: &Solution, tolerance: f64, solvable: bool) -> Result<(), String> {
    let Solution { status, residual, growth, singular, .. } = solution;
    let finite = [residual.normwise, residual.componentwise, *growth].iter().all(|v| v.is_finite());
    match status {
        Status::Met if !finite || singular.is_some() || !residual.within(tolerance) => {
            Err(format!("met with {residual:?}, growth {growth}, singular {singular:?}"))
        }
        Status::NotMet if singular.is_none() && residual.within(tolerance) => {
            Err(format!("not met with {residual:?}, and no reason"))
        }
        // Subnormal unknowns have fewer digits, which only the normwise error accounts for.
        Status::NotMet if solvable && singular.is_none() && !residual.underflows() => {
            Err(format!("not met with {residual:?}, and elimination with pivoting solves it"))
        }
        _ => Ok(()),
    }
}

#[test]
fn no_error_exceeds_its_bound() {
    run_all(KINDS, 12, case);
}
