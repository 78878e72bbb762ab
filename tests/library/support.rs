//! Shared code of the library's tests: devices, chains, references without uniformization.

use kolmo::internals::Csr;
use kolmo::kernel::Precision;
use kolmo::lane::{DeviceSpec, OpenOptions};
use kolmo::transient::{Initial, Observer, Options, Problem, Solution, TransitionList, Transitions, solve};
use kolmo::{Machine, Result};

use crate::devices::skip;

/// Opens a machine for a test, or reports that the test is skipped.
pub(crate) fn machine(spec: &str, precision: Precision, checked: bool) -> Option<Machine> {
    let wanted: Vec<DeviceSpec> =
        spec.split(',').map(|d| d.parse().expect("the test names a device")).collect();
    let options = OpenOptions { precision: Some(precision), checked, ..OpenOptions::default() };
    match Machine::open(&wanted, &options) {
        Ok(machine) => Some(machine),
        Err(e) => {
            skip(spec, format!("{spec} does not open in {precision}: {e}"));
            None
        }
    }
}

/// Keeps every result.
#[derive(Default)]
pub(crate) struct Keep(pub(crate) Vec<Vec<f64>>);

impl Observer for Keep {
    fn result(&mut self, index: usize, probabilities: &[f64]) -> Result<()> {
        if self.0.len() <= index {
            self.0.resize(index + 1, Vec::new());
        }
        assert!(self.0[index].is_empty(), "time {index} is delivered once");
        self.0[index] = probabilities.to_vec();
        Ok(())
    }
}

/// Returns π at each time, and the solution.
pub(crate) fn run(
    machine: &Machine,
    chain: &dyn Transitions,
    initial: &Initial,
    times: &[f64],
    options: &Options,
) -> (Vec<Vec<f64>>, Solution) {
    let mut keep = Keep::default();
    let problem = Problem { transitions: chain, initial, times, rewards: &[], vectors: true };
    let solution = solve(machine, &problem, options, &mut keep).expect("a sound problem has a solution");
    (keep.0, solution)
}

/// Returns a chain from its transitions.
pub(crate) fn chain(n: usize, transitions: &[(u32, u32, f64)]) -> Csr {
    let list = TransitionList {
        from: transitions.iter().map(|t| t.0).collect(),
        to: transitions.iter().map(|t| t.1).collect(),
        rate: transitions.iter().map(|t| t.2).collect(),
    };
    Csr::from_list(n, list).expect("the test lists each transition once")
}

/// Returns a built-in chain.
pub(crate) fn model(spec: &str) -> Box<dyn Transitions> {
    kolmo::models::parse(spec).expect("a built-in").expect("its parameters are sound").transitions
}

/// Returns the l1 distance of two vectors.
pub(crate) fn l1(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len(), "two vectors of one length");
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).sum()
}

/// Returns π(0) e^{Qt} of a small chain by scaling and squaring of a dense Taylor sum.
///
/// The matrix is halved until its norm is below 2⁻⁴. The error of 20 terms is then below 10⁻⁴⁰, and
/// only rounding in double precision remains.
pub(crate) fn dense(chain: &dyn Transitions, initial: &[f64], t: f64) -> Vec<f64> {
    let n = chain.states();
    let mut a = vec![0.0; n * n];
    let mut norm = 0.0f64;
    for i in 0..n {
        let mut row = Vec::new();
        chain.outgoing(i, &mut row);
        let exit: f64 = row.iter().map(|&(_, r)| r).sum();
        for (j, r) in row {
            a[i * n + j as usize] = r * t;
        }
        a[i * n + i] -= exit * t;
        norm = norm.max(2.0 * exit * t);
    }
    let halvings = (norm.log2().ceil() + 4.0).max(0.0) as i32;
    a.iter_mut().for_each(|v| *v *= 2f64.powi(-halvings));
    let product = |x: &[f64], y: &[f64]| {
        let mut z = vec![0.0; n * n];
        for i in 0..n {
            for k in 0..n {
                for j in 0..n {
                    z[i * n + j] += x[i * n + k] * y[k * n + j];
                }
            }
        }
        z
    };
    let mut sum = vec![0.0; n * n];
    (0..n).for_each(|i| sum[i * n + i] = 1.0);
    let mut term = sum.clone();
    for k in 1..=20 {
        term = product(&term, &a);
        term.iter_mut().for_each(|v| *v /= f64::from(k));
        sum.iter_mut().zip(&term).for_each(|(s, t)| *s += t);
    }
    for _ in 0..halvings {
        sum = product(&sum, &sum);
    }
    (0..n).map(|j| (0..n).map(|i| initial[i] * sum[i * n + j]).sum()).collect()
}

/// A chain of `n` states whose rows have very different lengths.
///
/// A ring with chords, a hub, and an absorbing state.
pub(crate) fn ragged(n: u32) -> Csr {
    let mut list = Vec::new();
    for i in 0..n - 1 {
        list.push((i, i + 1, 1.0 + f64::from(i % 7) / 8.0));
        if i > 0 {
            list.push((i, i - 1, 0.3 + f64::from(i % 5) / 16.0));
        }
        if i % 3 == 0 && i + 40 < n {
            list.push((i, i + 40, 0.21));
        }
        // A hub that many states jump to: a row of Rᵀ far longer than the others.
        if i % 11 == 5 && i != 17 && i + 1 != 17 && i != 18 && i + 40 != 17 {
            list.push((i, 17, 0.125));
        }
    }
    chain(n as usize, &list)
}

/// A module of a suite's tests, each called with the given arguments.
///
/// With `slow`, the tests run only with `--include-ignored`, since other instances of the suite
/// cover nearly as much.
macro_rules! instance {
    (slow $name:ident$arguments:tt: $($test:ident),* $(,)?) => {
        instance!(@[ignore = "slow: one instance of many"] $name$arguments: $($test),*);
    };
    ($name:ident$arguments:tt: $($test:ident),* $(,)?) => {
        instance!(@[cfg(all())] $name$arguments: $($test),*);
    };
    (@$when:tt $name:ident$arguments:tt: $($test:ident),*) => {
        mod $name {
            use super::suite;
            #[allow(unused_imports, reason = "not every suite is asked for a precision")]
            use kolmo::kernel::Precision::*;
            $(#[test]
            #$when
            fn $test() {
                suite::$test$arguments;
            })*
        }
    };
}

/// Instances of a suite on one lane of each kind, in single and double precision.
macro_rules! on_usual_lanes {
    ($($test:ident),* $(,)?) => {
        instance!(cpu_f64("cpu", F64): $($test),*);
        instance!(slow cpu_f32("cpu", F32): $($test),*);
        #[cfg(feature = "wgpu")]
        instance!(wgpu_f64("wgpu:0", F64): $($test),*);
        #[cfg(feature = "wgpu")]
        instance!(slow wgpu_f32("wgpu:0", F32): $($test),*);
        #[cfg(feature = "cuda")]
        instance!(cuda_f64("cuda:0", F64): $($test),*);
        #[cfg(feature = "cuda")]
        instance!(cuda_f32("cuda:0", F32): $($test),*);
    };
}
