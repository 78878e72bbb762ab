//! Comparison of devices: a fixed set of jobs of all solvers, in parts.
//!
//! A measurement is a line of a report: a JSON object with the keys of a [`Record`] and these:
//!
//! | key | value |
//! |---|---|
//! | `part` | the solver, or `transfer` |
//! | `spec` | the device's name on the command line |
//! | `flops` | the number of operations, where it is of use |

mod engines;
mod sizes;

pub use sizes::{Jobs, jobs};

use serde_json::Value;

use super::{Record, bandwidth};
use kolmo::models::{self, System};
use kolmo::sparse::WidthRule;
use kolmo::transient::{Chain, Options, solve};
use kolmo::tridiagonal;
use kolmo::{Error, Machine, Result};

/// Part of the comparison: the solver or the transfers to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// One step of uniformization, in HYB and in the smallest format.
    Step,
    /// Whole transient solutions.
    Transient,
    /// Steps of walks per second, and the time to an interval.
    Walk,
    /// Tridiagonal systems, host to host.
    Tridiagonal,
    /// Transfers between host and device.
    Transfer,
}

impl Part {
    /// All parts, in the order of measurement: name in a report, contents, part.
    pub const ALL: [(&str, &str, Self); 5] = [
        ("step", "One step of uniformization", Self::Step),
        ("transient", "Whole transient solutions", Self::Transient),
        ("walk", "Random walks", Self::Walk),
        ("tridiagonal", "Tridiagonal systems", Self::Tridiagonal),
        ("transfer", "Transfers between host and device", Self::Transfer),
    ];

    fn name(self) -> &'static str {
        Self::ALL[self as usize].0
    }
}

/// Opens a given number of lanes of one device.
pub type Open<'a> = &'a dyn Fn(usize) -> Result<Machine>;

/// Called between two measurements with a description; its error ends the work.
pub type Watch<'a> = &'a mut dyn FnMut(&str) -> Result<()>;

/// A chain, the time of its solution, and reference probabilities.
struct Whole {
    chain: Chain,
    time: f64,
    reference: Vec<f64>,
}

/// A linear system and its solution x.
struct Known {
    system: System,
    x: Vec<f64>,
}

/// Jobs with their reference results, prepared once for all devices.
pub struct Work {
    jobs: Jobs,
    parts: Vec<Part>,
    step: Option<Chain>,
    whole: Vec<Whole>,
    walk: Option<Known>,
    tridiagonal: Option<(String, tridiagonal::System)>,
}

impl Work {
    /// Builds models and systems, and computes reference results on the CPU.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the host lacks the memory; errors of `watch`.
    pub fn new(jobs: Jobs, parts: &[Part], cpu: &Machine, watch: Watch<'_>) -> Result<Self> {
        let wanted = |part: Part| parts.contains(&part);
        let step = wanted(Part::Step).then(|| built_in(jobs.step)).transpose()?;
        let mut whole = Vec::new();
        if wanted(Part::Transient) {
            for &(name, time) in jobs.transient {
                watch(&format!("{name} at t = {time}: what others are held against"))?;
                let chain = built_in(name)?;
                let reference = reference(cpu, &chain, &[time])?.swap_remove(0);
                whole.push(Whole { chain, time, reference });
            }
        }
        let walk = wanted(Part::Walk).then(|| known(jobs.walk, 1e-13)).transpose()?;
        let tridiagonal = wanted(Part::Tridiagonal).then(|| bands(jobs.tridiagonal)).transpose()?;
        Ok(Self { jobs, parts: parts.to_vec(), step, whole, walk, tridiagonal })
    }

    /// Measures all parts on one device.
    ///
    /// * Argument `spec` is its name on the command line.
    /// * Argument `note` receives the parts that are left out for lack of memory.
    ///
    /// # Errors
    /// Errors of the lanes, except lack of memory; errors of `watch`.
    pub fn measure(
        &self,
        open: Open<'_>,
        spec: &str,
        watch: Watch<'_>,
        note: &mut dyn FnMut(String),
    ) -> Result<Vec<Value>> {
        let mut lines = Vec::new();
        let copy = bandwidth(&open(1)?.lanes, 3)?;
        for &part in &self.parts {
            watch(&format!("{spec}: {}", part.name()))?;
            match self.engine(part, open, copy) {
                Ok(more) => lines.extend(more.into_iter().map(|mut line| {
                    line["part"] = part.name().into();
                    line["spec"] = spec.into();
                    line
                })),
                Err(e @ Error::OutOfMemory { .. }) => note(format!("{}, left out: {e}", part.name())),
                Err(e) => return Err(e),
            }
        }
        Ok(lines)
    }
}

/// Returns a record as a JSON object, with the bandwidth of a copy in GB/s and further keys.
fn line(record: Record, copy: f64, more: Value) -> Value {
    let mut line = serde_json::json!(Record { copy_gb_per_s: copy, ..record });
    if let (Some(line), Value::Object(more)) = (line.as_object_mut(), more) {
        line.extend(more);
    }
    line
}

fn built_in(name: &str) -> Result<Chain> {
    let model = models::parse(name)
        .unwrap_or_else(|| Err(Error::invalid(format!("'{name}' is no built-in chain"))))?;
    Ok(model.into())
}

fn bands(name: &str) -> Result<(String, tridiagonal::System)> {
    let made = models::tridiagonal(name, 0)
        .unwrap_or_else(|| Err(Error::invalid(format!("'{name}' is no built-in tridiagonal system"))))?;
    Ok((made.name, made.system))
}

/// Returns a built-in system and its solution by Jacobi iteration.
fn known(name: &str, tolerance: f64) -> Result<Known> {
    let system = models::system(name, 0)
        .unwrap_or_else(|| Err(Error::invalid(format!("'{name}' is no built-in system"))))?;
    let (x, _) = super::walk::solution(&system, tolerance)?;
    Ok(Known { system, x })
}

/// Computes reference probabilities on the CPU in f64 with an error of at most 1e-9.
///
/// The ELL width differs from that of the measurements. Rounding may make the error larger.
fn reference(cpu: &Machine, chain: &Chain, times: &[f64]) -> Result<Vec<Vec<f64>>> {
    let options = Options::default().epsilon(1e-9).width(WidthRule::Mean);
    let mut probabilities = Vec::new();
    solve(cpu, &chain.at(times).rewards(&[]), &options, &mut probabilities)?;
    Ok(probabilities)
}
