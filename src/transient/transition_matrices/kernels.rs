//! Kernels for many small chains, and their CPU implementations.

use super::super::chain::transitions::exit_rate;
use super::{ChainExponential, MATRICES, Step, squarings_of, steps};
use crate::kernel::cpu::Call;
use crate::kernel::cpu::simd::dispatch;
use crate::kernel::{Kernel, Real, kernel};
use crate::parallel::*;

kernel! {
    /// Computes the exit rate of each state; -1 for an invalid row of a generator.
    pub(super) static EXIT_RATES = exit_rates(n, states)(q: &[T], exit: &mut [T]);
    /// Computes the largest exit rate of each chain; -1 if one of them is negative.
    pub(super) static LARGEST_EXIT_RATES = largest_exit_rates(n, chains)(exit: &[T], alpha: &mut [T]);
    /// Computes P(t) of chains of up to 64 states.
    pub(super) static EXPONENTIAL = exponential + tiles + scaling(n, chains)(
        q: &[T], exit: &[T], alpha: &[T], times: &[T], coefficients: &[T],
        transition: &mut [T],
    );
    /// Performs one step for larger chains: computes B, or a product combined with other matrices.
    pub(super) static EXPONENTIAL_STEP = exponential_step + tiles + scaling(
        n, first, chains, task, left, right, to, stage
    )(
        q: &[T], exit: &[T], alpha: &[T], times: &[T], coefficients: &[T],
        matrices: &mut [T], transition: &mut [T],
    );
}

/// Variants of [`EXPONENTIAL`] for chains of up to 32, 16, 8 and 4 states.
static UP_TO_32: Kernel = EXPONENTIAL.with(&[("GROUP", 64.0), ("SIDE", 8.0), ("PAIRS", 1024.0)]);
static UP_TO_16: Kernel =
    EXPONENTIAL.with(&[("GROUP", 64.0), ("SIDE", 4.0), ("DEPTH", 16.0), ("PAIRS", 1024.0)]);
static UP_TO_8: Kernel =
    EXPONENTIAL.with(&[("GROUP", 32.0), ("SIDE", 2.0), ("DEPTH", 8.0), ("GROUPED", 8.0), ("PAIRS", 512.0)]);
static UP_TO_4: Kernel =
    EXPONENTIAL.with(&[("GROUP", 32.0), ("SIDE", 1.0), ("DEPTH", 4.0), ("GROUPED", 4.0), ("PAIRS", 512.0)]);

pub(crate) static KERNELS: [&Kernel; 4] = [&EXIT_RATES, &LARGEST_EXIT_RATES, &EXPONENTIAL, &EXPONENTIAL_STEP];
/// Kernels that share the shader of [`EXPONENTIAL`], with other override constants.
pub(crate) static VARIANTS: [&Kernel; 4] = [&UP_TO_32, &UP_TO_16, &UP_TO_8, &UP_TO_4];

/// Returns the kernel for chains of `n` states, and its number of threads per chain.
pub(super) fn kernel_for(n: usize) -> (&'static Kernel, usize) {
    match n {
        ..=4 => (&UP_TO_4, 1),
        5..=8 => (&UP_TO_8, 4),
        9..=16 => (&UP_TO_16, 16),
        17..=32 => (&UP_TO_32, 64),
        _ => (&EXPONENTIAL, 256),
    }
}

fn exit_rates<T: Real>(_: &Call<'_>, p: exit_rates::Params, b: exit_rates::Bindings<'_, T>) {
    let (n, states) = (p.n as usize, p.states as usize);
    let rows = b.q[..n * states].par_chunks(n).enumerate();
    rows.zip(&mut b.exit[..states]).for_each(|((state, row), exit)| {
        let own = state % n;
        let others = || row.iter().enumerate().filter(|(j, _)| *j != own).map(|(_, rate)| rate.wide());
        let valid = others().all(|rate| rate >= 0.0 && rate.is_finite());
        let (sum, diagonal) = (exit_rate(others()), row[own].wide());
        let balanced = diagonal == 0.0 || (diagonal + sum).abs() <= 1e-5 * sum;
        *exit = T::of(if valid && balanced { sum } else { -1.0 });
    });
}

fn largest_exit_rates<T: Real>(
    _: &Call<'_>,
    p: largest_exit_rates::Params,
    b: largest_exit_rates::Bindings<'_, T>,
) {
    for (exit, alpha) in b.exit.chunks_exact(p.n as usize).zip(&mut b.alpha[..p.chains as usize]) {
        let larger = |most, &exit| if exit > most { exit } else { most };
        let valid = exit.iter().all(|exit| *exit >= T::ZERO);
        *alpha = if valid { exit.iter().fold(T::ZERO, larger) } else { T::of(-1.0) };
    }
}

/// Performs the steps that `steps` returns for a number of squarings, for the chains of a launch.
fn run<'a, T: Real>(p: Step, steps: impl Fn(u32) -> &'a [Step], b: exponential_step::Bindings<'_, T>) {
    let (n, size, first) = (p.n as usize, (p.n * p.n) as usize, p.first as usize);
    let results = b.transition[first * size..].chunks_exact_mut(size);
    let mut matrices = b.matrices.chunks_exact_mut(MATRICES * size);
    let chains = (first..first + p.chains as usize).zip(results).map(|(chain, p)| {
        let (alpha, time) = (b.alpha[chain], b.times[chain]);
        let squarings = squarings_of((alpha * time).wide());
        ChainExponential {
            n,
            q: &b.q[chain * size..][..size],
            exit: &b.exit[chain * n..][..n],
            alpha,
            time,
            squarings,
            coefficients: b.coefficients.first_chunk().expect("all coefficients"),
            steps: steps(squarings),
            matrices: matrices.next().unwrap_or_default(),
            p,
        }
    });
    let chains = chains.filter(|chain| !chain.steps.is_empty());
    chains.collect::<Vec<_>>().into_par_iter().for_each(dispatch);
}

fn exponential<T: Real>(_: &Call<'_>, p: exponential::Params, b: exponential::Bindings<'_, T>) {
    let exponential::Bindings { q, exit, alpha, times, coefficients, transition, .. } = b;
    let b = exponential_step::Bindings::over(q, exit, alpha, times, coefficients, &mut [], transition);
    let exponential::Params { n, chains, .. } = p;
    run(Step { n, chains, ..Step::default() }, steps, b);
}

fn exponential_step<T: Real>(_: &Call<'_>, p: Step, b: exponential_step::Bindings<'_, T>) {
    let this = [p];
    run(p, |squarings| if p.stage <= squarings + 1 { &this } else { &[] }, b);
}
