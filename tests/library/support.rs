//! Shared code of the library's tests: devices, chains, references without uniformization.

pub(crate) use crate::adversarial::double_word::{Real, eliminate};
use crate::adversarial::transient::Reference;
use std::fmt::Display;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use kolmo::internals::Csr;
use kolmo::kernel::Precision::{self, F64};
use kolmo::lane::{DeviceSpec, OpenOptions};
use kolmo::transient::{Initial, Observer, Options, Problem, Reward, Solution, Transitions, solve};
use kolmo::{Error, Machine, Progress, Result};

use crate::devices::skip;

/// Opens a machine for a test, or reports that the test is skipped.
pub(crate) fn open(spec: &str, options: OpenOptions) -> Option<Machine> {
    let wanted: Vec<DeviceSpec> =
        spec.split(',').map(|d| d.parse().expect("the test names a device")).collect();
    Machine::open(&wanted, &options)
        .inspect_err(|e| skip(spec, format!("{spec} does not open with {:?}: {e}", options.precision)))
        .ok()
}

pub(crate) fn machine(spec: &str, precision: Precision) -> Option<Machine> {
    open(spec, OpenOptions::default().precision(Some(precision)))
}

pub(crate) fn cpu() -> Machine {
    cpu_in(F64)
}

pub(crate) fn cpu_in(precision: Precision) -> Machine {
    machine("cpu", precision).expect("the CPU opens")
}

/// Opens one lane in double precision with a memory limit in bytes.
pub(crate) fn limited(spec: &str, precision: Precision, memory_limit: u64) -> Machine {
    let (precision, memory_limit) = (Some(precision), Some(memory_limit));
    open(spec, OpenOptions::default().precision(precision).memory_limit(memory_limit)).expect("it opens")
}

/// Machine on which one instance of a test suite runs.
pub(crate) struct Opened {
    pub(crate) machine: Arc<Machine>,
    /// Devices, as in [`OpenOptions`].
    pub(crate) spec: &'static str,
}

impl Opened {
    /// Opens a machine, with or without bounds checks.
    pub(crate) fn new(spec: &'static str, precision: Precision, checked: bool) -> Option<Self> {
        let options = OpenOptions::default().precision(Some(precision)).checked(checked);
        open(spec, options).map(|machine| Self { machine: Arc::new(machine), spec })
    }

    /// True if all lanes are CPU implementations.
    pub(crate) fn is_cpu(&self) -> bool {
        self.spec.starts_with("cpu")
    }
}

impl Deref for Opened {
    type Target = Machine;
    fn deref(&self) -> &Machine {
        &self.machine
    }
}

/// Returns a folder or file of this checkout, in the current folder or above it.
pub(crate) fn above(name: &str) -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    let found = here.ancestors().map(|folder| folder.join(name)).find(|path| path.exists());
    if found.is_none() {
        skip("cases", format!("no {name} above the current folder"));
    }
    found
}

/// Keeps every result, and interrupts after `looks` calls of `progress` or more than `products`.
pub(crate) struct Keep {
    pub(crate) looks: u64,
    pub(crate) products: u64,
    pub(crate) results: Vec<Vec<f64>>,
}

impl Keep {
    pub(crate) fn after(looks: u64) -> Self {
        Self { looks, products: u64::MAX, results: Vec::new() }
    }
}

impl Progress for Keep {
    fn progress(&mut self, done: u64, _: u64) -> Result<()> {
        self.looks = self.looks.checked_sub(1).ok_or(Error::Interrupted)?;
        if done > self.products { Err(Error::Interrupted) } else { Ok(()) }
    }
}

impl Observer for Keep {
    fn result(&mut self, index: usize, probabilities: &[f64]) -> Result<()> {
        self.results.resize(self.results.len().max(index + 1), Vec::new());
        assert!(self.results[index].is_empty(), "time {index} is delivered once");
        self.results[index] = probabilities.to_vec();
        Ok(())
    }
}

/// Returns a problem without rewards.
pub(crate) fn problem<'a>(
    transitions: &'a dyn Transitions,
    initial: &'a Initial,
    times: &'a [f64],
) -> Problem<'a> {
    Problem::new(transitions, initial, times)
}

/// Returns π at each time, and the solution.
pub(crate) fn answer(
    machine: &Machine,
    problem: &Problem<'_>,
    options: &Options,
) -> Result<(Vec<Vec<f64>>, Solution)> {
    let mut keep = Keep::after(u64::MAX);
    let solution = solve(machine, problem, options, &mut keep)?;
    Ok((keep.results, solution))
}

/// Returns π at each time, and the solution, of a sound problem without rewards.
pub(crate) fn run(
    machine: &Machine,
    chain: &dyn Transitions,
    initial: &Initial,
    times: &[f64],
    options: &Options,
) -> (Vec<Vec<f64>>, Solution) {
    answer(machine, &problem(chain, initial, times), options).expect("a sound problem has a solution")
}

/// Asserts that a result is an error whose message contains `part`.
#[track_caller]
pub(crate) fn expect_error<T>(result: Result<T>, part: &str) {
    let said = result.err().expect("an error").to_string();
    assert!(said.contains(part), "{said}, not {part}");
}

pub(crate) fn chain(n: usize, transitions: &[(u32, u32, f64)]) -> Csr {
    let list = transitions.iter().copied().collect();
    Csr::from_list(n, list).expect("the test lists each transition once")
}

pub(crate) fn transitions(chain: &dyn Transitions) -> Vec<(u32, u32, f64)> {
    let (mut list, mut row) = (Vec::new(), Vec::new());
    for from in 0..chain.states() {
        list.extend(chain.leaving(from, &mut row).iter().map(|&(to, rate)| (from as u32, to, rate)));
    }
    list
}

pub(crate) fn model(spec: &str) -> Box<dyn Transitions> {
    kolmo::models::parse(spec).expect("a built-in").expect("its parameters are sound").transitions
}

/// Returns the l1 distance of two vectors.
pub(crate) fn l1(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len(), "two vectors of one length");
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).sum()
}

/// Asserts that the l1 distance of a result from its reference is at most `bound`.
#[track_caller]
pub(crate) fn within(got: &[f64], wanted: &[f64], bound: f64, what: impl Display) {
    let error = l1(got, wanted);
    assert!(error <= bound, "{what}: error {error:e}, bound {bound:e}");
}

/// Asserts that two results of one problem agree within the sum of their bounds.
#[track_caller]
pub(crate) fn agree(one: &(Vec<Vec<f64>>, Solution), other: &(Vec<Vec<f64>>, Solution), what: impl Display) {
    assert_eq!(one.0.len(), other.0.len(), "{what}: as many times");
    for (i, (a, b)) in one.1.times.iter().zip(&other.1.times).enumerate() {
        let what = format_args!("{what}, t = {}", a.time);
        within(&one.0[i], &other.0[i], a.bound.total() + b.bound.total(), what);
    }
}

/// Returns a reward of the states 0 … n − 1.
pub(crate) fn reward(name: &str, n: usize, of: impl Fn(usize) -> f64) -> Reward {
    Reward { name: name.to_owned(), values: (0..n).map(of).collect() }
}

/// Returns π(t) of a small chain by scaling and squaring in double precision.
pub(crate) fn dense(chain: &dyn Transitions, initial: &[f64], t: f64) -> Vec<f64> {
    let mut rates = vec![vec![0.0; chain.states()]; chain.states()];
    transitions(chain).into_iter().for_each(|(i, j, rate)| rates[i as usize][j as usize] = rate);
    Reference::<f64>::new(&rates).at(initial, t).0
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

/// Systems of `n` rows each, given by the elements of their rows.
pub(crate) trait Equations: Sync {
    fn n(&self) -> usize;
    fn rows(&self) -> usize;
    fn b(&self) -> &[Vec<f64>];
    /// Returns column and value of the elements of a row, in the numbering of the whole batch.
    fn row(&self, i: usize) -> Vec<(usize, f64)>;

    /// Returns system `s` in dense rows, each with its right-hand side.
    fn dense<T: Real>(&self, s: usize, b: &[f64]) -> Vec<Vec<T>> {
        let (n, first) = (self.n(), s * self.n());
        let equation = |i: usize| {
            let mut own = vec![T::from(0.0); n + 1];
            let add = |(k, v): (usize, f64)| own[k - first] = own[k - first] + T::from(v);
            self.row(i).into_iter().for_each(add);
            own[n] = T::from(b[i]);
            own
        };
        (first..first + n).map(equation).collect()
    }
}

/// Random numbers (Marsaglia's xorshift).
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    /// Returns 53 random bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }

    /// Returns a number in [0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        self.bits() as f64 / (1u64 << 53) as f64
    }

    /// Returns a number in [−1, 1).
    pub(crate) fn signed(&mut self) -> f64 {
        2.0 * self.unit() - 1.0
    }
}

/// Modules of a suite's tests, one for each machine: its name, devices, precision, bounds checks.
///
/// Instances that other instances of the suite nearly cover are ignored: they run only with
/// `--include-ignored`. Attributes of an instance are those of its tests.
macro_rules! instances {
    ($tests:tt $($(#[$attribute:meta])* $name:ident$machine:tt;)*) => {
        $(instances!(@$tests {$(#[$attribute])*} $name$machine);)*
    };
    (@$tests:tt $attributes:tt $name:ident($spec:literal, $precision:ident)) => {
        instances!(@$tests $attributes $name($spec, $precision, false));
    };
    (@[$($test:ident),* $(,)?] $attributes:tt $name:ident($spec:literal, $precision:ident, $checked:literal)) => {
        mod $name {
            $(instances!(@@$attributes $test($spec, $precision, $checked));)*
        }
    };
    (@@{$(#[$attribute:meta])*} $test:ident($spec:literal, $precision:ident, $checked:literal)) => {
        $(#[$attribute])*
        #[test]
        fn $test() {
            let precision = kolmo::kernel::Precision::$precision;
            if let Some(machine) = crate::support::Opened::new($spec, precision, $checked) {
                super::$test(&machine);
            }
        }
    };
}

/// Instances of a suite on one lane of each kind, in single and double precision, and others.
macro_rules! on_usual_lanes {
    ($tests:tt $($other:tt)*) => {
        instances! {
            $tests
            cpu_f64("cpu", F64);
            #[ignore = "slow: one instance of many"] cpu_f32("cpu", F32);
            #[cfg(feature = "wgpu")] wgpu_f64("wgpu:0", F64);
            #[cfg(feature = "wgpu")] #[ignore = "slow: one instance of many"] wgpu_f32("wgpu:0", F32);
            #[cfg(feature = "cuda")] cuda_f64("cuda:0", F64);
            #[cfg(feature = "cuda")] cuda_f32("cuda:0", F32);
            $($other)*
        }
    };
}
