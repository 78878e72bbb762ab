//! Stiff chains with slow exits, at αt up to 10¹³, by every method.
//!
//! The reference is scaling and squaring in double-word arithmetic.

use fastrand::Rng;
use kolmo::kernel::Precision;
use kolmo::transient::{Initial, Method, Options, Solution, Status, solve};
use kolmo::{Error, Result};

use super::transient::{Rates, Reference, between, error, initial, made, small};
use super::{cpu_lanes, run_all};
use crate::support::{Keep, problem};

kinds! {
    /// A pair or a ring with one slow exit.
    SlowExit
    /// Two transient classes with their own decay rates, each to its own absorbing state.
    Parts
    /// A class with a periodic matrix P, since all its exit rates are equal, and a slow exit.
    Periodic
    /// Nested classes, each level slower than the one below.
    Gradual
}

/// Sets the rates of a ring on the states `of`, in both directions.
fn part(rates: &mut Rates, of: std::ops::Range<usize>, rng: &mut Rng) {
    let n = of.len();
    for i in 0..n {
        let mut add = |to: usize| {
            if to != i {
                rates[of.start + i][of.start + to] = between(rng, 0.3, 3.0);
            }
        };
        add((i + 1) % n);
        add((i + n - 1) % n);
    }
}

fn rates(kind: Kind, rng: &mut Rng) -> Rates {
    let leak = |rng: &mut Rng| between(rng, 1e-14, 1e-5);
    match kind {
        Kind::SlowExit => {
            let n = rng.usize(3..=6);
            let mut rates = small(n, &[]);
            part(&mut rates, 0..n - 1, rng);
            rates[rng.usize(0..n - 1)][n - 1] = leak(rng);
            rates
        }
        Kind::Parts => {
            let (first, second) = (rng.usize(2..=3), rng.usize(2..=3));
            let n = first + second + 3;
            let mut rates = small(n, &[]);
            part(&mut rates, 1..1 + first, rng);
            part(&mut rates, 1 + first..n - 2, rng);
            rates[0][1] = between(rng, 0.1, 1.0);
            rates[0][1 + first] = between(rng, 0.1, 1.0);
            rates[rng.usize(1..1 + first)][n - 2] = leak(rng);
            rates[rng.usize(1 + first..n - 2)][n - 1] = leak(rng);
            rates
        }
        Kind::Periodic => {
            // A ring of even length with equal rates.
            let n = 2 * rng.usize(1..=3);
            let (mut rates, rate) = (small(n + 1, &[]), between(rng, 0.1, 10.0));
            for i in 0..n {
                rates[i][(i + 1) % n] = rate;
                rates[(i + 1) % n][i] = rate;
            }
            rates[rng.usize(0..n)][n] = rate * leak(rng);
            rates
        }
        Kind::Gradual => {
            let levels = rng.u32(2..=3);
            let n = 1 << levels;
            let mut rates = small(n, &[]);
            let slower = between(rng, 1e-5, 1e-2);
            for level in 0..levels {
                let apart = 1 << level;
                for i in (0..n).filter(|i| i / apart % 2 == 0) {
                    let rate = slower.powi(level as i32);
                    rates[i][i + apart] = rate * between(rng, 0.3, 3.0);
                    rates[i + apart][i] = rate * between(rng, 0.3, 3.0);
                }
            }
            rates
        }
    }
}

/// Number of matrix–vector products after which a run is interrupted.
const MOST: u64 = 100_000;

/// Results of `auto`, the number of runs by all methods, and the number of interrupted runs.
#[derive(Default)]
struct Seen {
    found: Vec<Found>,
    all: usize,
    left_out: usize,
}

/// A result whose bound misses ε: the bound divided by the error, or by the resolution of doubles
/// if that is larger, and a description. 0 if ε is met: a bound within ε may be loose.
type Found = (f64, String);

fn ask(
    rates: &Rates,
    initial: &Initial,
    t: f64,
    options: &Options,
    precision: Precision,
) -> Result<(Vec<f64>, Solution)> {
    let (machine, chain) = (cpu_lanes(1, precision), made(rates));
    let mut kept = Keep { products: MOST, ..Keep::after(u64::MAX) };
    let solution = solve(&machine, &problem(&chain, initial, &[t]), options, &mut kept)?;
    Ok((kept.results.remove(0), solution))
}

#[expect(clippy::neg_cmp_op_on_partial_ord, reason = "what is no number fails, too")]
fn case(kind: Kind, seed: u64, seen: &std::sync::Mutex<Seen>) -> std::result::Result<(), String> {
    let mut rng = Rng::with_seed(seed ^ (1000 + kind as u64) << 32);
    let rates = rates(kind, &mut rng);
    let (initial, p0) = initial(rates.len(), &mut rng);
    let reference = Reference::new(&rates);
    let alpha = rates.iter().map(|row| row.iter().sum::<f64>()).fold(0.0, f64::max);
    for _ in 0..2 {
        let alpha_t = between(&mut rng, 1.0, 9e12);
        let t = alpha_t / alpha;
        let epsilon = between(&mut rng, 1e-11, 1e-6);
        let (exact, doubt) = reference.at(&p0, t);
        let mut ways = vec![
            (Precision::F64, Method::Auto),
            (Precision::F64, Method::Chebyshev { strict: false }),
            (Precision::F64, Method::Krylov { strict: false }),
            (Precision::Q64, Method::Auto),
        ];
        if alpha_t <= 1e5 {
            ways.push((Precision::F64, Method::Uniformization));
            ways.push((Precision::F32, Method::Auto));
        }
        for (precision, method) in ways {
            let options = Options::default().epsilon(epsilon).method(method);
            seen.lock().expect("no case panicked").all += 1;
            let what =
                format!("t = {t:e}, alpha t = {alpha_t:e}, {precision}, {method:?}, epsilon {epsilon:e}");
            let (result, solution) = match ask(&rates, &initial, t, &options, precision) {
                Ok(found) => found,
                Err(Error::Interrupted) => {
                    seen.lock().expect("no case panicked").left_out += 1;
                    continue;
                }
                Err(e) => return Err(format!("{what}: {e}")),
            };
            let (error, bound) = (error(&result, &exact), solution.times[0].bound);
            let (total, at) = (bound.total(), format!("{what}: error {error:e}, {bound:?}"));
            // The reference starts from the doubles nearest to thirds.
            if !(error <= total + doubt + f64::EPSILON) {
                return Err(format!("{at}, reference good to {doubt:e}: the bound is broken"));
            }
            if !(total <= 2.0) || (total <= epsilon) != (solution.status == Status::Met) {
                return Err(format!("{at}: {:?}, {:?}", solution.status, solution.times[0].contradiction));
            }
            if method == Method::Auto && precision == Precision::F64 {
                let missed = if total > epsilon { total / error.max(f64::EPSILON) } else { 0.0 };
                let found = (missed, format!("{kind:?}, {seed}: {at}"));
                seen.lock().expect("no case panicked").found.push(found);
            }
        }
    }
    Ok(())
}

#[test]
fn errors_of_stiff_chains_at_long_times_are_within_tight_bounds() {
    let seen = std::sync::Mutex::default();
    run_all(KINDS, 4, |kind, seed| case(kind, seed, &seen));
    let Seen { found, all, left_out } = seen.into_inner().expect("no case panicked");
    let loose: Vec<&Found> = found.iter().filter(|(ratio, _)| *ratio > 1e4).collect();
    let share = format!("{} of {} bounds", loose.len(), found.len());
    println!("{left_out} of {all} runs were left out, and {share}: {loose:#?}");
    let few = 100 * loose.len() <= found.len();
    assert!(few, "{share} miss and are more than 10^4 times the error");
    assert!(found.iter().all(|(ratio, _)| *ratio <= 1e6), "{loose:#?}");
    assert!(2 * left_out <= all, "{left_out} of {all} were left out");
}
